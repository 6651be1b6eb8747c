package pool

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// world is what stands around a machine: the holders, the servers and the coordinator of the permits. It feeds random
// legal events, executes the effects as a lane does, and keeps a model of its own of who waits, who holds what and how
// many permits are out.
type world struct {
	m    *Machine
	rand *rand.Rand
	now  time.Time
	log  []string

	queue   []*Waiter // who waits, in the order in which they must be served
	rested  []*Waiter // answered or abandoned: may come again
	slots   map[*Slot]State
	order   []*Slot // of slots, for a stable choice
	holders map[*Slot]*Waiter
	late    []*Slot // lost under their holders, who do not know yet
	limit   int     // permits there are
	used    int
	hungry  bool // the machine was refused a permit
	paused  bool
	names   map[*Slot]int

	effects []Effect
	running bool
	err     error

	checkouts, grants, refusals, abandoned, spoiled int
	turn                                            uint64
	away                                            []*Waiter // withdrawn
}

func newWorld(seed uint64) *world {
	w := &world{rand: rand.New(rand.NewPCG(seed, 7)), now: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC),
		slots: map[*Slot]State{}, holders: map[*Slot]*Waiter{}, names: map[*Slot]int{}}
	w.limit = 1 + w.rand.IntN(8)
	w.m = New(w.config())
	for i := range 3 + w.rand.IntN(20) {
		w.rested = append(w.rested, &Waiter{Owner: i})
	}
	return w
}

func (w *world) config() Config {
	maybe := func(d time.Duration) time.Duration { return d * time.Duration(w.rand.IntN(2)) }
	return Config{
		MinSize: max(w.rand.IntN(6)-3, 0), IdleTimeout: maybe(2 * time.Second), Lifetime: maybe(20 * time.Second),
		RetryMax: time.Second, Concurrency: 1 + w.rand.IntN(4), RoundRobin: w.rand.IntN(2) == 0, PoolSize: w.limit,
	}
}

func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// feed gives one event to the machine and executes what it answers, in the order in which a lane does: what an effect
// brings about queues up behind the effects that are there.
func (w *world) feed(ev Event) {
	w.log = append(w.log, fmt.Sprintf("%T", ev))
	switch e := ev.(type) {
	case Checkout: // through the short cuts, as the lane
		w.run(w.m.Checkout(w.now, e.Waiter))
	case Checkin:
		w.run(w.m.Checkin(w.now, e.Slot, e.Condition))
	default:
		w.run(w.m.Step(w.now, ev))
	}
}

func (w *world) run(effects []Effect) {
	w.effects = append(w.effects, effects...)
	if err := w.m.Check(w.now); err != nil {
		w.fail("%v", err)
	}
	if w.running {
		return
	}
	w.running = true
	for len(w.effects) > 0 {
		e := w.effects[0]
		w.effects = w.effects[1:]
		w.execute(e)
	}
	w.running = false
}

func (w *world) execute(e Effect) {
	w.log = append(w.log, "  "+e.Kind.String())
	switch e.Kind {
	case Grant:
		w.grant(e)
	case Refuse:
		w.refuse(e.Waiter)
	case Dial:
		if _, ok := w.slots[e.Slot]; ok {
			w.fail("a slot was dialled twice")
		}
		w.slots[e.Slot] = Dialling
		w.order = append(w.order, e.Slot)
		w.names[e.Slot] = len(w.names)
		if len(w.slots) > w.used {
			w.fail("%d backends with %d permits", len(w.slots), w.used)
		}
		if n := w.m.Count(Dialling); n > w.m.cfg.Concurrency {
			w.fail("%d connects at a time, more than %d", n, w.m.cfg.Concurrency)
		}
	case Scrub:
		w.enter(e.Slot, Leased, Cleaning)
		delete(w.holders, e.Slot)
	case Close:
		if st := w.slots[e.Slot]; st == Closing || st == 0 {
			w.fail("close of a backend that is %s", st)
		}
		w.slots[e.Slot] = Closing
	case WantPermits:
		n := min(e.N, w.limit-w.used)
		if n < e.N {
			w.hungry = true
		}
		if n > 0 {
			w.used += n
			w.feed(Permits{n})
		}
	case ReturnPermit:
		w.used--
		if w.used < 0 {
			w.fail("a permit was given back that nobody held")
		}
	case Bug:
		w.fail("bug reported for a legal event")
	}
}

func (w *world) enter(s *Slot, from, to State) {
	if w.slots[s] != from {
		w.fail("a backend that is %s is to be %s", w.slots[s], to)
	}
	w.slots[s] = to
}

func (w *world) grant(e Effect) {
	w.grants++
	if w.paused {
		w.fail("grant in a paused pool")
	}
	if len(w.queue) == 0 || w.queue[0] != e.Waiter {
		w.fail("waiter %v was granted out of order", e.Waiter.Owner)
		return
	}
	if w.holders[e.Slot] != nil {
		w.fail("a backend has two holders")
	}
	w.queue = w.queue[1:]
	if st := w.slots[e.Slot]; st != Idle {
		w.fail("grant of a backend that is %s", st)
	}
	w.slots[e.Slot] = Leased
	if w.rand.IntN(20) == 0 {
		w.spoiled++
		w.queue = append([]*Waiter{e.Waiter}, w.queue...)
		w.feed(Spoiled{e.Slot, e.Waiter})
		return
	}
	w.holders[e.Slot] = e.Waiter
}

func (w *world) refuse(x *Waiter) {
	w.refusals++
	i := slices.Index(w.queue, x)
	switch {
	case i < 0:
		w.fail("waiter %v was refused and does not wait", x.Owner)
		return
	case x.Deadline.IsZero() || w.now.Before(x.Deadline):
		w.fail("waiter %v was refused before its time", x.Owner)
	}
	w.queue = slices.Delete(w.queue, i, i+1)
	w.rested = append(w.rested, x)
}

// pick is a backend in one of the states, nil if there is none.
func (w *world) pick(states ...State) *Slot {
	var all []*Slot
	for _, s := range w.order {
		if slices.Contains(states, w.slots[s]) {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[w.rand.IntN(len(all))]
}

func (w *world) drop(s *Slot) {
	delete(w.slots, s)
	w.order = slices.DeleteFunc(w.order, func(x *Slot) bool { return x == s })
}

// rest is called before the machine hears that a backend came to rest: it may be granted in the same step.
func (w *world) rest(s *Slot) {
	w.slots[s] = Idle
	if h := w.holders[s]; h != nil {
		w.rested = append(w.rested, h)
		delete(w.holders, s)
	}
}

// step is one random legal event.
func (w *world) step() {
	switch k := w.rand.IntN(100); {
	case k < 26:
		w.checkout()
	case k < 30:
		w.abandon()
	case k < 54:
		w.checkin()
	case k < 66:
		if s := w.pick(Dialling); s != nil {
			w.slots[s] = Idle
			w.feed(Opened{s})
		}
	case k < 70:
		if s := w.pick(Dialling); s != nil {
			w.drop(s)
			w.feed(DialFailed{s})
		}
	case k < 75:
		if s := w.pick(Cleaning); s != nil {
			w.slots[s] = Idle
			w.feed(Cleaned{s})
		}
	case k < 81:
		if s := w.pick(Closing); s != nil {
			w.drop(s)
			if w.rand.IntN(4) == 0 {
				w.feed(DialFailed{s})
			} else {
				w.feed(Lost{s})
			}
		}
	case k < 83:
		w.lose()
	case k < 91:
		w.now = w.now.Add(time.Duration(w.rand.IntN(300)) * time.Millisecond)
		w.feed(Tick{})
	default:
		w.control()
	}
	w.settle()
}

func (w *world) checkout() {
	if len(w.rested) == 0 {
		return
	}
	i := w.rand.IntN(len(w.rested))
	x := w.rested[i]
	w.rested = slices.Delete(w.rested, i, i+1)
	x.Enqueued, x.Deadline = w.now, time.Time{}
	if w.rand.IntN(3) == 0 {
		x.Deadline = w.now.Add(time.Duration(w.rand.IntN(2000)) * time.Millisecond)
	}
	w.checkouts++
	w.turn++
	x.Turn = w.turn
	w.queue = append(w.queue, x)
	w.feed(Checkout{x})
}

func (w *world) abandon() {
	if len(w.queue) > 0 && w.rand.IntN(4) > 0 {
		i := w.rand.IntN(len(w.queue))
		x := w.queue[i]
		w.queue = slices.Delete(w.queue, i, i+1)
		w.rested = append(w.rested, x)
		w.abandoned++
		w.feed(Abandon{x})
		return
	}
	if len(w.rested) > 0 { // one that was answered meanwhile
		w.feed(Abandon{w.rested[w.rand.IntN(len(w.rested))]})
	}
}

func (w *world) checkin() {
	if len(w.late) > 0 && w.rand.IntN(2) == 0 {
		s := w.late[0]
		w.late = w.late[1:]
		w.feed(Checkin{s, Broken})
		return
	}
	s := w.pick(Leased)
	if s == nil {
		return
	}
	c := []Condition{Clean, Clean, Clean, Clean, Dirty, Broken}[w.rand.IntN(6)]
	if c == Clean {
		w.rest(s)
	} else {
		w.rested = append(w.rested, w.holders[s])
		delete(w.holders, s)
	}
	w.feed(Checkin{s, c})
}

// lose takes away a backend in any state.
func (w *world) lose() {
	s := w.pick(Dialling, Idle, Leased, Cleaning)
	if s == nil {
		return
	}
	if h := w.holders[s]; h != nil {
		delete(w.holders, s)
		w.rested = append(w.rested, h)
		w.late = append(w.late, s)
	}
	w.drop(s)
	w.feed(Lost{s})
}

// move takes some waiters out, as for another machine, or brings back those that were.
func (w *world) move() {
	if len(w.away) > 0 {
		for _, x := range w.away {
			i := 0
			for i < len(w.queue) && w.queue[i].Turn < x.Turn {
				i++
			}
			w.queue = slices.Insert(w.queue, i, x)
			w.feed(Rejoin{x})
		}
		w.away = nil
		return
	}
	odd := uint64(w.rand.IntN(2))
	pick := func(x *Waiter) bool { return x.Turn%2 == odd }
	w.away = w.m.Withdraw(pick)
	for _, x := range w.away {
		i := slices.Index(w.queue, x)
		if i < 0 {
			w.fail("withdrew waiter %v, which does not wait", x.Owner)
			return
		}
		w.queue = slices.Delete(w.queue, i, i+1)
	}
	if slices.ContainsFunc(w.queue, pick) {
		w.fail("a waiter that was picked is still there")
	}
}

func (w *world) control() {
	switch w.rand.IntN(17) {
	case 15:
		w.feed(Setback{})
	case 16:
		if s := w.pick(Dialling, Idle, Leased, Cleaning, Closing); s != nil {
			w.feed(Retire{s})
		}
	case 12:
		w.feed(Kick{})
	case 13:
		w.feed(Abort{})
	case 14:
		w.move()
	case 0, 1:
		w.paused = true
		w.feed(Pause{})
	case 2, 3, 4, 5:
		w.paused = false
		w.feed(Resume{})
	case 6:
		w.feed(Reconnect{})
	case 7, 8:
		w.feed(GiveUp{w.rand.IntN(5)})
	case 9:
		w.feed(Warm{w.rand.IntN(3)})
	case 10:
		w.feed(Configure{w.config()})
	case 11: // the limit of the pool changes; what is above it stays until it ends
		w.limit = 1 + w.rand.IntN(8)
	}
}

// settle offers permits that came free, and then nobody may wait for anything that could be done.
func (w *world) settle() {
	for i := 0; w.hungry && w.used < w.limit; i++ {
		w.hungry = false
		w.feed(Tick{})
		if i > 100 {
			w.fail("asks for permits and does not use them")
			return
		}
	}
	if len(w.queue) != w.m.Waiting() {
		w.fail("%d wait, the machine says %d", len(w.queue), w.m.Waiting())
	}
	backoff := w.m.failures+w.m.setbacks > 0 || !w.m.retryAt.IsZero() // the next tick goes on
	limit := min(len(w.queue), w.m.cfg.Concurrency)
	if dialling := w.m.Count(Dialling); !w.paused && !backoff && dialling < limit && w.used < w.limit {
		w.fail("%d wait, %d connects are under way of %d at a time, and %d permits are spare",
			len(w.queue), dialling, w.m.cfg.Concurrency, w.limit-w.used)
	}
}

// finish lets everything come to its end: whoever waits is answered, and no permit is left out.
func (w *world) finish() {
	if len(w.away) > 0 {
		w.move()
	}
	w.paused = false
	w.limit = max(w.limit, 2)
	w.feed(Configure{Config{RetryMax: time.Second, Concurrency: 4}})
	w.feed(Warm{0})
	w.feed(Resume{})
	for range 10000 {
		w.now = w.now.Add(50 * time.Millisecond)
		w.feed(Tick{})
		w.settle()
		s := w.pick(Dialling, Leased, Cleaning, Closing)
		if s == nil && len(w.queue) == 0 {
			break
		}
		switch w.slots[s] { // nil: the next connect is not due
		case Dialling:
			w.slots[s] = Idle
			w.feed(Opened{s})
		case Leased:
			w.rest(s)
			w.feed(Checkin{s, Clean})
		case Cleaning:
			w.slots[s] = Idle
			w.feed(Cleaned{s})
		case Closing:
			w.drop(s)
			w.feed(Lost{s})
		}
	}
	if len(w.queue) > 0 {
		w.fail("%d are never answered", len(w.queue))
	}
	w.feed(Drain{})
	for s := w.pick(Closing); s != nil; s = w.pick(Closing) {
		w.drop(s)
		w.feed(Lost{s})
	}
	switch {
	case len(w.slots) > 0 || w.m.Size() > 0:
		w.fail("%d backends are left, the machine has %d", len(w.slots), w.m.Size())
	case w.used != 0:
		w.fail("%d permits are never given back", w.used)
	case w.m.Busy():
		w.fail("busy with nothing")
	}
}

// For any legal sequence of events: one holder a backend, counts that add up, never more backends than permits, waiters
// served in order, each answered once unless abandoned, nobody kept waiting for what could be done, no permit lost.
func TestRandomSequences(t *testing.T) {
	seeds, steps := uint64(250), 3000
	if testing.Short() {
		seeds = 50
	}
	var total world
	for seed := range seeds {
		w := newWorld(seed)
		for i := 0; i < steps && w.err == nil; i++ {
			w.step()
		}
		if w.err == nil {
			w.finish()
		}
		if w.err != nil {
			t.Fatalf("seed %d, after\n%s\n%v", seed, strings.Join(w.log[max(len(w.log)-40, 0):], "\n"), w.err)
		}
		total.checkouts += w.checkouts
		total.grants += w.grants
		total.refusals += w.refusals
		total.abandoned += w.abandoned
		total.spoiled += w.spoiled
		if got := w.grants - w.spoiled + w.refusals + w.abandoned; got != w.checkouts {
			t.Fatalf("seed %d: %d checkouts and %d answers", seed, w.checkouts, got)
		}
	}
	// The sequences must reach what they are there for.
	if n := int(seeds) * 10; total.grants < 20*n || total.refusals < n || total.abandoned < n || total.spoiled < n {
		t.Fatalf("too little happened: %d checkouts, %d grants, %d refusals, %d abandoned, %d spoiled",
			total.checkouts, total.grants, total.refusals, total.abandoned, total.spoiled)
	}
}

// An event that cannot happen changes nothing and grants nothing, wherever in a sequence it comes, and is reported. So
// does one about a backend that is gone, which can happen when messages cross, and is not.
func TestImpossibleEvents(t *testing.T) {
	foreign := append(foreignSlots(), &Slot{}) // of a machine that is no more, and one that is gone
	for seed := range uint64(60) {
		w := newWorld(seed)
		for range 300 {
			w.step()
			if w.err != nil {
				t.Fatalf("seed %d: %v", seed, w.err)
			}
			for _, ev := range w.impossible() {
				w.mustIgnore(t, seed, ev, true)
			}
			for _, s := range foreign {
				for _, ev := range []Event{Checkin{s, Clean}, Checkin{s, Dirty}, Checkin{s, Broken}, Opened{s}, DialFailed{s}, Cleaned{s}, Lost{s}, Retire{s}} {
					w.mustIgnore(t, seed, ev, false)
				}
			}
		}
	}
}

// impossible lists events that no legal sequence can have now.
func (w *world) impossible() (events []Event) {
	for _, s := range w.order {
		st := w.slots[s]
		if st != Dialling && st != Closing {
			events = append(events, Opened{s}, DialFailed{s})
		}
		if st != Cleaning && st != Closing {
			events = append(events, Cleaned{s})
		}
		if st != Leased && st != Closing {
			events = append(events, Checkin{s, Clean}, Checkin{s, Broken})
		}
		if st == Leased && len(w.queue) > 0 {
			events = append(events, Spoiled{s, w.queue[0]})
		}
	}
	if len(w.queue) > 0 {
		events = append(events, Checkout{w.queue[0]})
	}
	return append(events, nil)
}

func (w *world) mustIgnore(t *testing.T, seed uint64, ev Event, report bool) {
	t.Helper()
	before := w.picture()
	effects := w.m.Step(w.now, ev)
	reported := len(effects) == 1 && effects[0].Kind == Bug
	if !reported && (report || len(effects) > 0) {
		t.Fatalf("seed %d: %T %+v is answered by %v", seed, ev, ev, kinds(effects))
	}
	if after := w.picture(); after != before {
		t.Fatalf("seed %d: %T %+v changed\n%s\nto\n%s", seed, ev, ev, before, after)
	}
	if err := w.m.Check(w.now); err != nil {
		t.Fatalf("seed %d: after %T: %v", seed, ev, err)
	}
}

func kinds(effects []Effect) (all []Kind) {
	for _, e := range effects {
		all = append(all, e.Kind)
	}
	return all
}

func (w *world) picture() string {
	var b strings.Builder
	fmt.Fprintf(&b, "permits %d counts %v waiting %d retry %v:", w.m.permits, w.m.counts, w.m.waiters.n, w.m.retryAt)
	for _, s := range w.m.slots {
		fmt.Fprintf(&b, " %d=%s", w.names[s], s.state)
	}
	return b.String()
}

// foreignSlots makes a slot in every state of another machine.
func foreignSlots() (all []*Slot) {
	now := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	m := New(Config{Concurrency: 8})
	for range 5 {
		m.Checkout(now, &Waiter{})
	}
	for _, e := range m.Step(now, Permits{5}) {
		all = append(all, e.Slot)
	}
	for _, s := range all[1:] {
		m.Step(now, Opened{s})
	}
	m.Step(now, Abandon{m.waiters.first})
	m.Step(now, Checkin{all[1], Clean})
	m.Step(now, Checkin{all[2], Dirty})
	m.Step(now, Checkin{all[3], Broken})
	return all
}
