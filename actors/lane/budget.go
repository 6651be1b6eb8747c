package lane

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
)

// Budget hands out the permits of one limit (a pool's size or a database's max_db_connections, on one host) to the lanes
// that share it.
// A permit is held for as long as a backend exists. A lane that gets none while somebody waits in it is remembered; a
// permit that is given back is reserved for the lane remembered longest, so that nobody overtakes it. Meanwhile the other
// lanes are asked to give one up.
type Budget struct {
	mu       sync.Mutex // guards the fields below; no message is sent and no other lock taken while it is held
	limit    int        // 0: none
	used     int        // permits handed out or reserved
	hungry   []*actor.PID
	reserved []*actor.PID
	lanes    []*actor.PID
}

// NewBudget makes a budget of limit permits; 0 means without limit.
func NewBudget(limit int) *Budget { return &Budget{limit: limit} }

// SetLimit changes the limit. Lanes above a lowered limit give permits back as their backends end; after raising it ask
// spare whom to tell.
func (b *Budget) SetLimit(limit int) {
	b.mu.Lock()
	b.limit = limit
	b.mu.Unlock()
}

// Limit is the present limit.
func (b *Budget) Limit() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit
}

// Used is the number of permits handed out.
func (b *Budget) Used() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used - len(b.reserved)
}

// Join makes a lane known.
func (b *Budget) Join(lane *actor.PID) {
	b.mu.Lock()
	b.lanes = append(b.lanes, lane)
	b.mu.Unlock()
}

// Leave forgets a lane, whose permits must have been given back, and returns the lane to tell that one is free.
func (b *Budget) Leave(lane *actor.PID) (next *actor.PID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lanes, _ = without(b.lanes, lane)
	b.hungry, _ = without(b.hungry, lane)
	var had bool
	if b.reserved, had = without(b.reserved, lane); had {
		b.used--
	}
	return b.reserve()
}

// acquire takes one permit for lane. If there is none and it is needed now, the lane is remembered and those to ask for
// one are returned, with the share each may keep.
func (b *Budget) acquire(lane *actor.PID, needed bool) (ok bool, ask []*actor.PID, share int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if rest, had := without(b.reserved, lane); had {
		b.reserved = rest
		return true, nil, 0
	}
	if b.free() && len(b.hungry) == 0 {
		b.used++
		return true, nil, 0
	}
	if !needed {
		return false, nil, 0
	}
	known := false
	for _, h := range b.hungry {
		known = known || h.Equal(lane)
	}
	if !known {
		b.hungry = append(b.hungry, lane)
	}
	for _, l := range b.lanes {
		if !l.Equal(lane) {
			ask = append(ask, l)
		}
	}
	return false, ask, b.limit / max(len(b.lanes), 1)
}

func (b *Budget) free() bool { return b.limit == 0 || b.used < b.limit }

// reserve sets a free permit aside for the lane remembered longest and returns it; nil if there is none of either.
func (b *Budget) reserve() *actor.PID {
	if len(b.hungry) == 0 || !b.free() {
		return nil
	}
	next := b.hungry[0]
	b.hungry = append(b.hungry[:0], b.hungry[1:]...)
	b.reserved = append(b.reserved, next)
	b.used++
	return next
}

// release gives one permit back and returns the lane to tell that one is reserved for it, nil if none waits.
func (b *Budget) release() *actor.PID {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used--
	return b.reserve()
}

// decline gives back what is reserved for lane and was not used.
func (b *Budget) decline(lane *actor.PID) *actor.PID {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest, had := without(b.reserved, lane)
	if !had {
		return nil
	}
	b.reserved = rest
	b.used--
	return b.reserve()
}

// spare returns a lane to tell after the limit was raised.
func (b *Budget) spare() *actor.PID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reserve()
}

func without(list []*actor.PID, pid *actor.PID) (rest []*actor.PID, had bool) {
	for i, p := range list {
		if p.Equal(pid) {
			return append(list[:i], list[i+1:]...), true
		}
	}
	return list, false
}

// Budgets are all budgets of a process: one a pool and host, one a database and host. Safe for any goroutine.
type Budgets struct {
	mu            sync.Mutex // guards the maps
	pools         map[poolHost]*Budget
	databases     map[databaseHost]*Budget
	startupParams map[PoolKey]*startupParams
}

type (
	poolHost struct {
		pool PoolKey
		host string
	}
	databaseHost struct{ database, host string }
)

// startupParams are what the servers of a pool report, as the last login in any lane showed: the primary and a standby. nil
// before.
type startupParams struct {
	lanes            int
	primary, standby atomic.Pointer[StartupParams]
}

func (w *startupParams) forget() {
	w.primary.Store(nil)
	w.standby.Store(nil)
}

// NewBudgets makes an empty set.
func NewBudgets() *Budgets {
	return &Budgets{pools: map[poolHost]*Budget{}, databases: map[databaseHost]*Budget{}, startupParams: map[PoolKey]*startupParams{}}
}

// For returns the budgets of a pool and of its database on a host, with the limits of spec.
func (b *Budgets) For(key PoolKey, host string, spec *PoolSpec) (pool, database *Budget) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.get(key, host, spec)
}

// join is For for a lane that takes part from now on. In one step: another lane that leaves could have them forgotten in
// between, and there would be two budgets for one host.
func (b *Budgets) join(key PoolKey, host string, spec *PoolSpec, lane *actor.PID) (pool, database *Budget) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, d := b.get(key, host, spec)
	p.Join(lane)
	d.Join(lane)
	return p, d
}

func (b *Budgets) get(key PoolKey, host string, spec *PoolSpec) (pool, database *Budget) {
	ph, dh := poolHost{key, host}, databaseHost{key.Database, host}
	p, d := b.pools[ph], b.databases[dh]
	if p == nil {
		p = NewBudget(spec.Size)
		b.pools[ph] = p
	}
	if d == nil {
		d = NewBudget(spec.DBLimit)
		b.databases[dh] = d
	}
	p.SetLimit(spec.Size)
	d.SetLimit(spec.DBLimit)
	return p, d
}

// forget drops the budgets of a pool on a host whose last lane has left.
func (b *Budgets) forget(key PoolKey, host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ph, dh := poolHost{key, host}, databaseHost{key.Database, host}
	if p := b.pools[ph]; p != nil && p.unused() {
		delete(b.pools, ph)
	}
	if d := b.databases[dh]; d != nil && d.unused() {
		delete(b.databases, dh)
	}
}

// joinParams is what all lanes of a pool share; a lane that ends gives it back with leave.
func (b *Budgets) joinParams(key PoolKey) *startupParams {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.startupParams[key]
	if w == nil {
		w = &startupParams{}
		b.startupParams[key] = w
	}
	w.lanes++
	return w
}

func (b *Budgets) leaveParams(key PoolKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.startupParams[key]; w != nil {
		if w.lanes--; w.lanes == 0 {
			delete(b.startupParams, key)
		}
	}
}

func (b *Budget) unused() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.lanes) == 0
}

// Used is the number of server connections of the process.
func (b *Budgets) Used() int {
	b.mu.Lock()
	all := slices.Collect(maps.Values(b.pools))
	b.mu.Unlock()
	n := 0
	for _, p := range all {
		n += p.Used()
	}
	return n
}

// DatabaseUsed is the number of server connections of a database, on all hosts.
func (b *Budgets) DatabaseUsed(name string) int {
	b.mu.Lock()
	var all []*Budget
	for k, d := range b.databases {
		if k.database == name {
			all = append(all, d)
		}
	}
	b.mu.Unlock()
	n := 0
	for _, d := range all {
		n += d.Used()
	}
	return n
}
