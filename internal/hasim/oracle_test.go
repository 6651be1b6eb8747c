package hasim

import (
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/backend"
	"fencepost/actors/lane"
	"fencepost/actors/shard"
)

// oracle sees every message between sessions, lanes and backends when it is sent, and every message to the shard's actor
// when it has been taken in, and knows what is true of the servers. It holds them against the rules of docs/failover.md:
//
//	a write is granted     only on the elected host of the present view, on a proof that the server gave while it could
//	                       write, on a timeline that nothing this process was told of is above, and asked for after
//	                       whatever spoke against the host, or with such an answer taken in meanwhile
//	a backend              has one holder
//	a checkout             has one answer, by its deadline, in its turn
//	a loss or hint         has raised doubt when it is told, and the doubt lasts until the view says what follows from it
//	a stranger             gets no write when a host of the shard's own cluster has answered
//	the floor              is never below what was taken in, and falls by FORGET alone
//	a write lease          of a server that is not the primary any more ends
type oracle struct {
	w *world

	mu       sync.Mutex // guards what follows
	asks     map[askID]*ask
	gone     map[askID]bool // abandoned: a grant may cross that
	left     map[string]bool
	leases   map[*backend.Backend]*held
	against  map[string]time.Time // what spoke against a host last, as far as it is known here
	positive map[string]time.Time // when the last writable answer that was taken in was asked for
	known    map[uint64]uint32    // the highest timeline out of recovery that was taken in for sure, by cluster
	heard    map[uint64]uint32    // … or perhaps
	cluster  map[string]uint64    // the last identifier that each host has told the shard's actor
	open     map[*backend.Backend]*idle
	cut      time.Time // the last FORGET or restart of the shard's actor: what was asked for before is dropped
	last     *shard.View
	hosts    []shard.HostSetting
	moved    time.Time // when names changed last
	starts   int
	elected  map[string]time.Time // when a host was elected last
	forgets  bool                 // FORGET was asked for, and the view does not show it yet
	taking   bool                 // the shard's actor is taking in what somebody has raised doubt for
	stopping bool
	served   []*ask // in the present step
	closing  bool   // in the present step a backend was closed: perhaps one that somebody was to get
	counts   counts
}

type askID struct {
	from string
	req  uint64
}

// ask is a checkout that is not answered.
type ask struct {
	co       *lane.Checkout
	lane     string
	target   lane.Target
	enqueued time.Time
	deadline time.Time
	queued   bool   // in a queue before the present step
	turn     uint64 // … and its place there
	told     bool
}

// held is a lease.
type held struct {
	from     string
	host     string
	write    bool
	timeline uint32    // that its server was proven on
	wrong    time.Time // since when it should not be there
}

// idle is a backend, in a lease or not.
type idle struct{ wrong time.Time }

func newOracle(w *world) *oracle {
	return &oracle{w: w, asks: map[askID]*ask{}, gone: map[askID]bool{}, left: map[string]bool{}, leases: map[*backend.Backend]*held{},
		against: map[string]time.Time{}, positive: map[string]time.Time{}, known: map[uint64]uint32{}, heard: map[uint64]uint32{}, cluster: map[string]uint64{},
		hosts: w.plan.full, elected: map[string]time.Time{}, open: map[*backend.Backend]*idle{}, last: &shard.View{}}
}

// sent looks at a message on its way.
func (o *oracle) sent(to *actor.PID, message any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch m := message.(type) {
	case *lane.Checkout:
		o.asks[askID{m.From.Id, m.Req}] = &ask{co: m, lane: to.Id, target: m.Target, enqueued: m.Enqueued, deadline: m.Deadline}
	case *lane.Abandon:
		id := askID{m.Checkout.From.Id, m.Checkout.Req}
		delete(o.asks, id)
		o.gone[id] = true
	case *lane.Detach:
		o.detached(m.From.Id)
	case *lane.Granted:
		o.granted(to.Id, m)
	case *lane.Refused:
		o.counts.refused++
		o.answered(to.Id, m.Req)
	case *lane.Checkin:
		delete(o.leases, m.Backend)
	case *lane.Spoiled:
		delete(o.leases, m.Backend)
		co := m.Checkout
		o.asks[askID{co.From.Id, co.Req}] = &ask{co: co, lane: to.Id, target: co.Target, enqueued: co.Enqueued, deadline: co.Deadline}
	case *lane.Superseded:
		o.counts.superseded++
		o.w.trace("lane", "superseded backend %d on %s: %s", m.Backend.ID, m.Backend.Host(), m.Why)
	case *backend.Fence:
		o.counts.fences++
	case *backend.Close:
		o.closing = true
	case *backend.Opened:
		o.open[m.Backend] = &idle{}
	case *backend.Lost:
		o.lost(m)
	case *backend.Hinted:
		o.counts.hints++
		o.mustDoubt("a hint was told without doubt")
	case *shard.HostLost:
		if !m.Expected && !m.Doubts {
			o.w.problem("the loss of a connection to %s raised no doubt", m.Host)
		}
		o.raised(m.Doubts)
	case *shard.ConnectFailed:
		// A server that answers with another error than these lets somebody not in: that says nothing of its role.
		says := m.Code == "" || m.Code == "57P03" || m.Code == "57P01" || m.Code == "57P02"
		if v := o.w.shard.View(); v.Elected == m.Host && says && !m.Doubts {
			o.w.problem("a failed connect to %s, which is elected, raised no doubt", m.Host)
		}
		o.raised(m.Doubts)
	case *shard.Hinted:
		o.raised(m.Doubts)
	}
}

func (o *oracle) raised(doubts bool) {
	if doubts {
		o.mustDoubt("the shard is told of a doubt that is over")
	}
}

func (o *oracle) mustDoubt(what string) {
	if _, doubted := o.w.shard.InDoubt(); !doubted {
		o.w.problem("%s", what)
	}
}

// lost: a backend tells its lane that its connection is gone.
func (o *oracle) lost(m *backend.Lost) {
	delete(o.leases, m.Backend)
	delete(o.open, m.Backend)
	if m.Expected {
		return
	}
	o.counts.losses++
	now, host := time.Now(), m.Backend.Host()
	o.against[host] = now
	if since, doubted := o.w.shard.InDoubt(); !doubted || since.Before(now) {
		o.w.problem("the loss of a connection to %s was told before it raised doubt", host)
	}
}

func (o *oracle) detached(from string) {
	o.left[from] = true
	for id := range o.asks {
		if id.from == from {
			delete(o.asks, id)
		}
	}
	for b, h := range o.leases {
		if h.from == from {
			delete(o.leases, b)
		}
	}
}

// answered takes a checkout's answer; nil if it needs none any more.
func (o *oracle) answered(from string, req uint64) *ask {
	id := askID{from, req}
	a := o.asks[id]
	if a == nil && !o.left[from] && !o.gone[id] {
		o.w.problem("checkout %d of %s was answered and is not open", req, from)
	}
	delete(o.asks, id)
	return a
}

// between is called between two steps. Who has left the queue in the one before stood in front of all that are still there:
// each gets a backend in turn.
func (o *oracle) between() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range o.asks {
		if a.queued && !a.co.Queued() {
			o.served = append(o.served, a)
		}
	}
	for _, a := range o.served {
		for _, b := range o.asks {
			if a.queued && b.queued && b.co.Queued() && b.lane == a.lane && b.target == a.target && b.turn < a.turn && a.target == lane.ReadWrite && !o.closing {
				o.w.problem("checkout of turn %d was served before the one of turn %d", a.turn, b.turn)
			}
		}
	}
	o.served, o.closing = o.served[:0], false
	for _, a := range o.asks {
		if a.queued = a.co.Queued(); a.queued {
			a.turn = a.co.Turn
		}
	}
}

func (o *oracle) granted(from string, m *lane.Granted) {
	a, b, v := o.answered(from, m.Req), m.Backend, o.w.shard.View()
	if o.left[from] {
		return // the lane takes it back when it hears of that
	}
	if h := o.leases[b]; h != nil {
		o.w.problem("backend %d was granted to %s while %s holds it", b.ID, from, h.from)
	}
	h := &held{from: from, host: b.Host()}
	o.leases[b] = h
	if m.Epoch != v.Epoch {
		o.w.problem("granted under epoch %d, the view's is %d", m.Epoch, v.Epoch)
	}
	if a == nil {
		return
	}
	h.write = a.target == lane.ReadWrite
	if p := b.Proof(); p != nil {
		h.timeline = p.Timeline
	}
	switch {
	case h.write:
		o.served = append(o.served, a)
		o.write(a, b, v)
	case a.target == lane.Standby && !slices.Contains(v.Standbys, b.Host()):
		o.w.problem("backend %d on %s was granted for target standby; standbys are %v", b.ID, b.Host(), v.Standbys)
	}
}

// write holds a write grant against all that is true and known.
func (o *oracle) write(a *ask, b *backend.Backend, v *shard.View) {
	o.counts.grants++
	host, p := b.Host(), b.Proof()
	bad := func(format string, args ...any) {
		o.w.problem("write granted on backend %d, %s (epoch %d, floor %d): "+format, append([]any{b.ID, host, v.Epoch, v.Floor}, args...)...)
	}
	o.w.trace("lane", "grants a write on backend %d, %s, to %s", b.ID, host, a.co.From.Id)
	if v.Elected != host {
		bad("elected is %q", v.Elected)
	}
	if o.w.plan.fence == lane.FenceOff {
		if p != nil && p.Timeline < v.Floor {
			bad("its timeline is %d", p.Timeline)
		}
		return
	}
	if p == nil {
		bad("without a proof")
		return
	}
	if p.InRecovery || p.ReadOnly {
		bad("it said that it cannot write")
		return
	}
	if p.Timeline < v.Floor || v.SystemID != 0 && p.SystemID != v.SystemID {
		bad("its timeline is %d, its cluster %d, the shard's %d", p.Timeline, p.SystemID, v.SystemID)
	}
	if since, doubted := o.w.shard.InDoubt(); doubted && !p.Asked.After(since) {
		bad("in doubt since %v, its proof is of %v", since.Sub(epoch), p.Asked.Sub(epoch))
	}
	if o.w.plan.fence == lane.FenceAlways && p.Asked.Before(a.enqueued) {
		bad("fence = always, its proof is older than the checkout")
	}
	o.w.mu.Lock()
	s := o.w.logins[b.Login()]
	o.w.mu.Unlock()
	if s == nil || !s.could(p.Asked, p.Answered, p.Started.UnixMicro(), p.Timeline) {
		bad("%v could not write between %v and %v", s, p.Asked.Sub(epoch), p.Answered.Sub(epoch))
	}
	for other, id := range o.cluster {
		if p.SystemID != ourCluster && id == ourCluster && o.listed(other) {
			bad("it belongs to another cluster than %s, which has answered", other)
		}
	}
	if known := o.known[p.SystemID]; known > p.Timeline {
		bad("its timeline is %d, and %d was seen out of recovery", p.Timeline, known)
	}
	if against := o.against[host]; !p.Asked.After(against) && !o.positive[host].After(against) {
		bad("at %v something spoke against it, its proof is of %v", against.Sub(epoch), p.Asked.Sub(epoch))
	}
}

// slack is how long what must happen at once may take: the tick of a lane, and messages on their way.
const slack = 1500 * time.Millisecond

// inspect looks at what must not last. A step.
func (o *oracle) inspect() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, v := time.Now(), o.w.shard.View()
	for id, a := range o.asks {
		if !a.told && !a.deadline.IsZero() && now.After(a.deadline.Add(slack)) {
			a.told = true
			o.w.problem("checkout %d of %s for target %d was to be answered by %v", id.req, id.from, a.target, a.deadline.Sub(epoch))
		}
	}
	for b, h := range o.leases {
		switch {
		case !h.write || v.Elected == "" || v.Elected == h.host && (h.timeline == 0 || h.timeline >= v.Floor):
			h.wrong = time.Time{}
		case h.wrong.IsZero():
			h.wrong = now
		case now.Sub(h.wrong) > slack:
			o.w.problem("backend %d on %s, timeline %d, is leased for writes to %s since %v, while %s is elected and the floor is %d", b.ID, h.host, h.timeline, h.from,
				h.wrong.Sub(epoch), v.Elected, v.Floor)
			h.write = false
		}
	}
	for b, i := range o.open {
		switch p := b.Proof(); {
		case !b.Resting() || p == nil || p.InRecovery || v.Elected == "" || v.Elected == b.Host() && p.Timeline >= v.Floor ||
			b.OpenedAt().After(o.elected[b.Host()]): // it was opened to read
			i.wrong = time.Time{}
		case i.wrong.IsZero():
			i.wrong = now
		case now.Sub(i.wrong) > slack:
			o.w.problem("backend %d on %s, proven on timeline %d, is idle since %v, while %s is elected and the floor is %d", b.ID, b.Host(), p.Timeline,
				i.wrong.Sub(epoch), v.Elected, v.Floor)
			delete(o.open, b)
		}
	}
}

// deadLetter: a message went to an actor that is gone. Those that cross the end of their receiver are in order; one that
// asks for something would never be answered.
func (o *oracle) deadLetter(d *actor.DeadLetterEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopping {
		return
	}
	switch d.Message.(type) {
	case *lane.Checkout, *lane.Attach:
		o.w.problem("%T went to %s, which is gone", d.Message, d.PID.Id)
	}
}
