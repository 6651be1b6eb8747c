package election

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"fencepost/pgerr"
	"fencepost/role"
)

const histories = 2000

// server is what a host really is.
type server struct {
	verdict  role.Verdict // Unknown: down
	timeline uint32
	system   uint64
	started  time.Time
	aurora   bool
}

// cluster is a world of servers that fail, are promoted and come back, and of looks at them that take their time: what
// was seen is as it was when it was asked for, and is told late, twice, out of order or not at all.
type cluster struct {
	rand    *rand.Rand
	now     time.Time
	names   []role.Host
	servers map[role.Host]*server
	under   []role.Observation // looks under way; Answered is when they come
	list    []HostConfig
	cfg     Config
	aurora  bool
}

func newCluster(seed uint64) *cluster {
	w := &cluster{rand: rand.New(rand.NewPCG(seed, 11)), now: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC),
		names: []role.Host{"a", "b", "c", "d"}, servers: map[role.Host]*server{}}
	w.aurora = w.rand.IntN(8) == 0
	for i, n := range w.names {
		w.servers[n] = &server{verdict: role.InRecovery, timeline: 1, system: 7, started: w.now.Add(time.Duration(i)), aurora: w.aurora}
	}
	w.servers["a"].verdict = role.Writable
	if !w.aurora && w.one(10) { // an address is a stranger's from the beginning
		*w.servers[w.host()] = server{verdict: role.Writable, timeline: 3, system: 8, started: w.now.Add(-time.Second)}
	}
	w.cfg, w.list = w.config(), w.hosts()
	return w
}

func (w *cluster) one(n int) bool { return w.rand.IntN(n) == 0 }

func (w *cluster) host() role.Host { return w.names[w.rand.IntN(len(w.names))] }

func (w *cluster) config() Config {
	c := Defaults()
	c.TTL = time.Duration(1+w.rand.IntN(3)) * time.Second
	c.TwoWriters = TwoWriters(w.rand.IntN(2))
	if w.one(6) && !w.aurora {
		c.SystemID = 7 + uint64(w.rand.IntN(2))
	}
	return c
}

func (w *cluster) hosts() (list []HostConfig) {
	for _, n := range w.names {
		if !w.one(5) {
			r := Auto
			if w.one(6) {
				r = Role(w.rand.IntN(4))
			}
			list = append(list, HostConfig{Host: n, Role: r})
		}
	}
	w.rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	if w.one(10) && len(list) > 0 {
		list = append(list, HostConfig{Host: list[0].Host, Role: Role(w.rand.IntN(4))})
	}
	return list
}

// change something about a server, without telling.
func (w *cluster) change() {
	s := w.servers[w.host()]
	switch w.rand.IntN(8) {
	case 0:
		s.verdict = role.Unknown
	case 1, 2: // it comes up as a standby of the highest timeline
		for _, n := range w.names {
			s.timeline = max(s.timeline, w.servers[n].timeline)
		}
		s.verdict, s.started = role.InRecovery, w.now
	case 3, 4: // promoted
		if s.verdict == role.InRecovery {
			s.timeline++
			s.verdict = role.Writable
			if w.one(3) {
				s.verdict = role.ReadOnly
			}
		}
	case 5: // restarted, or a copy of another one started
		*s = *w.servers[w.host()]
		if w.one(3) {
			s.verdict = role.Writable
		}
		s.started = w.now
	case 6:
		if s.verdict == role.ReadOnly {
			s.verdict = role.Writable
		}
	case 7:
		if w.one(10) && !w.aurora {
			s.system = 15 - s.system
		}
	}
}

// look at a server now; the answer comes after a while.
func (w *cluster) look(h role.Host) {
	s := w.servers[h]
	o := role.Observation{Host: h, Verdict: s.verdict, SystemID: s.system, Timeline: s.timeline, Started: s.started,
		Source: role.Source(w.rand.IntN(2)), Asked: w.now}
	if s.aurora {
		o.SystemID, o.Timeline, o.NoTimelines = 0, 0, true
	}
	wait := time.Duration(w.rand.IntN(50)) * time.Millisecond
	if w.one(8) {
		wait = time.Duration(w.rand.IntN(5000)) * time.Millisecond
	}
	o.Answered = w.now.Add(wait)
	if w.one(6) { // on a connection that may be older than others
		o.Dialled = w.now.Add(-time.Duration(w.rand.IntN(3000)) * time.Millisecond)
	}
	if w.one(20) {
		o.SystemID, o.Timeline = 0, 0 // a login, or a look without rights
		o.Source = role.Source(w.rand.IntN(4))
	}
	w.under = append(w.under, o)
}

// answer is the look whose answer comes next, if one has come.
func (w *cluster) answer() (Event, bool) {
	i := slices.IndexFunc(w.under, func(o role.Observation) bool { return !o.Answered.After(w.now) })
	if i < 0 {
		return nil, false
	}
	o := w.under[i]
	if !w.one(20) {
		w.under = slices.Delete(w.under, i, i+1)
	}
	return Observed{o}, true
}

func (w *cluster) event() Event {
	if ev, ok := w.answer(); ok && !w.one(4) {
		return ev
	}
	h := w.host()
	at := time.Time{}
	if w.one(3) {
		at = w.now.Add(time.Duration(w.rand.IntN(200)-150) * time.Millisecond)
	}
	switch n := w.rand.IntN(100); {
	case n < 40:
		return Tick{}
	case n < 48:
		return Late{h}
	case n < 56:
		return Lost{h, w.one(3), at}
	case n < 64:
		return Refused{h, w.one(2), []string{"", pgerr.CannotConnectNow, pgerr.TooManyConnections}[w.rand.IntN(3)], at}
	case n < 69:
		return Failed{h, "failed", at}
	case n < 76:
		return Hint{h, "hint", at}
	case n < 79:
		return Heard{h, at}
	case n < 82:
		if w.one(2) {
			return Seat{}
		}
		return Seat{Host: h, Timeline: w.servers[h].timeline, Tag: uint64(w.now.UnixMicro() - int64(w.rand.IntN(3e6))), Started: w.servers[h].started, At: w.now.Add(-time.Duration(w.rand.IntN(3000)) * time.Millisecond), Member: "m2"}
	case n < 86:
		return AddressGone{h}
	case n < 90:
		return AddressBack{h}
	case n < 94:
		w.list = w.hosts()
		return Hosts{w.list}
	case n < 95:
		return Forget{Generation: uint64(w.rand.IntN(3))}
	case n < 97:
		w.cfg = w.config()
		return Configure{w.cfg}
	case n < 98:
		return FloorClaim{Host: h, Floor: role.Floor{SystemID: 7, Generation: 9, Timeline: 9}}
	}
	o := role.Observation{Host: h, Verdict: role.Verdict(w.rand.IntN(4)), SystemID: 7, Timeline: 9, Asked: w.now.Add(time.Second), Answered: w.now}
	switch w.rand.IntN(4) {
	case 0:
		o.Asked = time.Time{}
	case 1:
		o.Answered = time.Time{}
	case 2:
		o.Answered = o.Asked
	}
	return Observed{o}
}

// trace is what happened in a history; its text is made only when somebody wants to read it.
type trace []taken

type taken struct {
	at      time.Time
	event   Event // nil: the machine was made anew
	effects []Effect
}

// lines of the trace. Two probes that one step asks for together are two when it is made in two: probes aside.
func (tr trace) lines(probes bool) (lines []string) {
	for _, k := range tr {
		lines = append(lines, fmt.Sprint(k.at.Format("05.000 "), k.event))
		for _, e := range k.effects {
			if _, ok := e.(ProbeNow); !ok || probes {
				lines = append(lines, "    "+e.String())
			}
		}
	}
	return lines
}

func (tr trace) tail() string { return strings.Join(tr[max(0, len(tr)-40):].lines(true), "\n") }

// run gives one history to a machine and, unless it is only to be repeated, its oracle.
func run(seed uint64, steps int, judged bool) (tr trace, m *Machine, w *cluster, check *oracle, err error) {
	w = newCluster(seed)
	m, check = New(w.now, w.cfg, w.list, role.Floor{}, nil), newOracle(w.now, w.cfg, w.list)
	step := func(ev Event) {
		var effects []Effect
		if judged {
			effects, err = check.feed(m, w.now, ev)
		} else {
			effects = m.Step(w.now, ev)
		}
		tr = append(tr, taken{w.now, ev, effects})
	}
	step(Tick{})
	for range steps {
		w.now = w.now.Add(time.Duration(w.rand.IntN(40)) * time.Millisecond)
		if w.one(25) {
			w.now = w.now.Add(time.Duration(w.rand.IntN(6000)) * time.Millisecond)
		}
		if w.one(8) {
			w.change()
		}
		for _, n := range w.names {
			if w.one(3) {
				w.look(n)
			}
		}
		if w.one(100) {
			v := m.View()
			m = New(w.now, w.cfg, w.list, role.Floor{}, &v)
			check.restart(w.now, v)
			tr = append(tr, taken{at: w.now})
			step(Tick{})
		}
		if next := m.Next(); err == nil && !next.IsZero() && next.After(w.now.Add(time.Millisecond)) && w.one(4) {
			w.now = w.now.Add(time.Duration(w.rand.Int64N(int64(next.Sub(w.now)))))
			if e := m.Step(w.now, Tick{}); judged && len(e) > 0 {
				return tr, m, w, check, fmt.Errorf("nothing was due before %v, and there came %v", next, e)
			}
		}
		step(w.event())
		if err != nil {
			break
		}
	}
	return tr, m, w, check, err
}

// TestProperties: whatever happens, in whatever order, the rules of the oracle hold; the same events have the same
// effects; and once the servers settle and are asked, the one that is the primary is elected.
func TestProperties(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(histories) {
		tr, m, w, check, err := run(seed, 150, true)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, tr.tail())
		}
		if seed%10 == 0 { // without the extra ticks, what time does must come with the next event
			if again, _, _, _, _ := run(seed, 150, false); !slices.Equal(tr.lines(false), again.lines(false)) {
				t.Fatalf("seed %d: the same events had other effects", seed)
			}
		}
		if err := settles(m, w, check); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, tr.tail())
		}
		for _, k := range tr {
			for _, e := range k.effects {
				seen[fmt.Sprintf("%T", e)]++
			}
		}
	}
	for _, e := range []Effect{ViewChanged{}, Doubt{}, DoubtOver{}, Demoted{}, Conflict{}, ConflictOver{}, Foreign{}, Disagreement{}, ClaimRefused{}, ProbeNow{}, Stale{}, Bug{}} {
		if kind := fmt.Sprintf("%T", e); seen[kind] < 100 {
			t.Errorf("in all histories there were only %d of %s", seen[kind], kind)
		}
	}
	t.Log(seen)
}

// settles: liveness. The operator says FORGET, one server is the primary, and everybody answers.
func settles(m *Machine, w *cluster, check *oracle) error {
	w.now = w.now.Add(time.Second)
	w.cfg.SystemID = 0
	events := []Event{Configure{w.cfg}, Hosts{[]HostConfig{{Host: "a"}, {Host: "b"}, {Host: "c", Role: Replica}}}, Seat{}, Forget{}}
	for range 2 {
		for _, h := range []role.Host{"c", "b", "a"} {
			o := role.Observation{Host: h, Verdict: role.InRecovery, SystemID: 9, Timeline: 3}
			if h == "b" {
				o.Verdict = role.Writable
			}
			events = append(events, Observed{o})
		}
	}
	for _, ev := range events {
		w.now = w.now.Add(20 * time.Millisecond)
		if o, ok := ev.(Observed); ok {
			o.Observation.Asked, o.Observation.Answered = w.now.Add(-time.Millisecond), w.now
			ev = o
		}
		if _, err := check.feed(m, w.now, ev); err != nil {
			return err
		}
	}
	v := m.View()
	if _, doubted := m.InDoubt(); v.Elected != "b" || doubted || v.Floor.SystemID != 9 || v.Floor.Timeline != 3 {
		return fmt.Errorf("after all is well: %v, in doubt %t", v, doubted)
	}
	return nil
}
