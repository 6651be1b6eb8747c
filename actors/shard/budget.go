package shard

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// Budget hands out the permits of one limit (a pool's size, a database's max_db_connections) to the lanes that share it.
// A permit is held for as long as a backend exists. A lane that gets none is remembered and offered the next one that
// is given back, in the order asked; meanwhile the other lanes are asked to give up an idle backend.
type Budget struct {
	mu     sync.Mutex // guards the fields below; no message is sent and no other lock taken while it is held
	limit  int        // 0: none
	used   int
	hungry []*actor.PID
	lanes  []*actor.PID
}

// NewBudget makes a budget of limit permits; 0 means without limit.
func NewBudget(limit int) *Budget { return &Budget{limit: limit} }

// SetLimit changes the limit. Lanes above a lowered limit give permits back as their backends end.
func (b *Budget) SetLimit(limit int) {
	b.mu.Lock()
	b.limit = limit
	b.mu.Unlock()
}

// Limit is the present limit, Used the permits handed out.
func (b *Budget) Limit() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit
}

// Used is the number of permits handed out.
func (b *Budget) Used() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Join makes a lane known, Leave forgets it.
func (b *Budget) Join(lane *actor.PID) {
	b.mu.Lock()
	b.lanes = append(b.lanes, lane)
	b.mu.Unlock()
}

// Leave forgets a lane, whose permits must have been given back.
func (b *Budget) Leave(lane *actor.PID) {
	b.mu.Lock()
	b.lanes = without(b.lanes, lane)
	b.hungry = without(b.hungry, lane)
	b.mu.Unlock()
}

// acquire takes one permit for lane. If there is none it remembers the lane and returns those to ask for one, which is
// nobody if the lane was remembered already.
func (b *Budget) acquire(lane *actor.PID) (ok bool, ask []*actor.PID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limit == 0 || b.used < b.limit {
		b.used++
		return true, nil
	}
	for _, h := range b.hungry {
		if h.Equal(lane) {
			return false, nil
		}
	}
	b.hungry = append(b.hungry, lane)
	for _, l := range b.lanes {
		if !l.Equal(lane) {
			ask = append(ask, l)
		}
	}
	return false, ask
}

// release gives one permit back and returns the lane to tell that one is free, nil if none waits.
func (b *Budget) release() *actor.PID {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used--
	if len(b.hungry) == 0 || b.limit > 0 && b.used >= b.limit {
		return nil
	}
	next := b.hungry[0]
	b.hungry = append(b.hungry[:0], b.hungry[1:]...)
	return next
}

func without(list []*actor.PID, pid *actor.PID) []*actor.PID {
	for i, p := range list {
		if p.Equal(pid) {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// Budgets are all budgets of a process: one a pool, one a database. Safe for any goroutine.
type Budgets struct {
	mu        sync.Mutex // guards the maps
	pools     map[PoolKey]*Budget
	databases map[string]*Budget
}

// NewBudgets makes an empty set.
func NewBudgets() *Budgets {
	return &Budgets{pools: map[PoolKey]*Budget{}, databases: map[string]*Budget{}}
}

// For returns the budgets of a pool and of its database, with the limits of spec.
func (b *Budgets) For(key PoolKey, spec *PoolSpec) (pool, database *Budget) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, d := b.pools[key], b.databases[key.Database]
	if p == nil {
		p = NewBudget(spec.Size)
		b.pools[key] = p
	}
	if d == nil {
		d = NewBudget(spec.DBLimit)
		b.databases[key.Database] = d
	}
	p.SetLimit(spec.Size)
	d.SetLimit(spec.DBLimit)
	return p, d
}

// DatabaseUsed is the number of server connections of a database.
func (b *Budgets) DatabaseUsed(name string) int {
	b.mu.Lock()
	d := b.databases[name]
	b.mu.Unlock()
	if d == nil {
		return 0
	}
	return d.Used()
}
