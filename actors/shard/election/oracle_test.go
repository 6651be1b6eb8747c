package election

import (
	"fmt"
	"slices"
	"time"

	"fencepost/pgerr"
	"fencepost/role"
)

// oracle keeps everything that was ever said and judges a machine's view by it, the slow way: every rule is a search
// through the whole history. It knows nothing of the machine's inside but what View, InDoubt and Hosts tell.
type oracle struct {
	cfg       Config
	now       time.Time
	list      []HostConfig
	facts     map[role.Host]*facts
	forgotten time.Time
	waitUntil time.Time
	view      View // before the step
	fresh     bool // no step was judged yet
	forgot    bool // in this step
	restarted bool
	seat      Seat   // of the other members
	own       uint64 // of the view before the step
}

type facts struct {
	positive []role.Observation
	out      []role.Observation // out of recovery
	foreign  []role.Observation // whatever names an identifier
	negative []time.Time        // known that it cannot write, identifiers aside
	failed   []time.Time
	doubted  []time.Time
	late     []time.Time
	heard    time.Time
	gone     bool
	answered bool
	dialled  []role.Observation // on connections of which that is known
}

func newOracle(now time.Time, cfg Config, list []HostConfig) *oracle {
	o := &oracle{cfg: cfg, now: now, fresh: true, facts: map[role.Host]*facts{}}
	o.hosts(list)
	return o
}

// restart forgets all but the view.
func (o *oracle) restart(now time.Time, v View) {
	list := o.list
	*o = oracle{cfg: o.cfg, now: now, view: v, restarted: true, forgotten: now, facts: map[role.Host]*facts{}}
	o.hosts(list)
	if f := o.facts[v.Elected]; f != nil && v.Evidence.Host == v.Elected {
		f.positive = append(f.positive, v.Evidence)
		f.foreign = append(f.foreign, v.Evidence)
		f.doubted = append(f.doubted, now)
		f.heard = now
	}
}

func (o *oracle) hosts(list []HostConfig) {
	old, roles := o.facts, o.list
	o.facts, o.list = map[role.Host]*facts{}, nil
	for _, c := range list {
		if i := slices.IndexFunc(o.list, func(d HostConfig) bool { return d.Host == c.Host }); i >= 0 {
			if c.Role == Replica {
				o.list[i].Role = Replica
			}
			continue
		}
		o.list = append(o.list, c)
		o.facts[c.Host] = old[c.Host]
		i := slices.IndexFunc(roles, func(d HostConfig) bool { return d.Host == c.Host })
		if i < 0 || roles[i].Role == Any && c.Role != Any {
			o.facts[c.Host] = &facts{}
			o.wait(c)
		}
	}
}

func (o *oracle) wait(c HostConfig) {
	if c.Role != Any && !o.now.Before(o.waitUntil) {
		o.waitUntil = o.now.Add(o.cfg.FirstWait)
	}
}

func (o *oracle) forget() {
	o.forgotten, o.forgot, o.waitUntil = o.now, true, o.now
	for _, c := range o.list {
		o.facts[c.Host] = &facts{gone: o.facts[c.Host].gone, heard: o.facts[c.Host].heard, dialled: o.facts[c.Host].dialled}
		o.wait(c)
	}
}

func (o *oracle) waiting() bool {
	return o.now.Before(o.waitUntil) && slices.ContainsFunc(o.list, func(c HostConfig) bool {
		return c.Role != Any && !o.facts[c.Host].answered
	})
}

func (o *oracle) at(t time.Time) time.Time {
	if t.IsZero() || t.After(o.now) {
		return o.now
	}
	return t
}

// feed gives an event to a machine and judges what comes of it, apart from what comes of the time that has passed.
func (o *oracle) feed(m *Machine, now time.Time, ev Event) (effects []Effect, err error) {
	for _, ev := range []Event{Tick{}, ev} {
		effects = append(effects, m.Step(now, ev)...)
		o.took(now, ev)
		if e := o.holds(m); err == nil {
			err = e
		}
	}
	return effects, err
}

// took notes an event that a machine was given.
func (o *oracle) took(now time.Time, ev Event) {
	o.forgot = false
	if now.After(o.now) {
		o.now = now
	}
	f := func(h role.Host) *facts {
		if f := o.facts[h]; f != nil {
			return f
		}
		return &facts{}
	}
	switch e := ev.(type) {
	case Observed:
		o.observed(f(e.Observation.Host), e.Observation)
	case Late:
		f(e.Host).late = append(f(e.Host).late, o.now)
	case Lost:
		if !e.Expected {
			f(e.Host).fail(o.at(e.At))
		}
	case Failed:
		f(e.Host).fail(o.at(e.At))
	case Refused:
		x := f(e.Host)
		x.answered = true
		if e.AfterLoss && (e.Code == "" || e.Code == pgerr.CannotConnectNow) {
			x.negative = append(x.negative, o.at(e.At))
			x.failed = append(x.failed, o.at(e.At))
			return
		}
		x.fail(o.at(e.At))
		if e.Code != "" && e.Code != pgerr.CannotConnectNow {
			x.hear(o.at(e.At))
		}
	case Heard:
		f(e.Host).hear(o.at(e.At))
	case Hint:
		f(e.Host).doubted = append(f(e.Host).doubted, o.at(e.At))
	case AddressGone:
		f(e.Host).gone = true
	case AddressBack:
		f(e.Host).gone = false
	case Hosts:
		o.hosts(e.List)
	case StoodStill:
		o.forget()
	case Seat:
		o.seat = e
	case Forget:
		if e.At.IsZero() && (e.Generation == 0 || e.Generation > o.view.Floor.Generation) || !e.At.IsZero() && !o.view.Seen.After(e.At) {
			o.forget()
		}
	case Configure:
		o.cfg = e.Config
		if id := o.view.Floor.SystemID; id != 0 && e.Config.SystemID != 0 && id != e.Config.SystemID {
			o.forget()
		}
	}
}

func (f *facts) fail(at time.Time) {
	f.answered = true
	f.failed, f.doubted = append(f.failed, at), append(f.doubted, at)
}

func (f *facts) hear(at time.Time) {
	if at.After(f.heard) {
		f.heard = at
	}
}

func (o *oracle) observed(f *facts, ob role.Observation) {
	known := o.at(ob.Answered)
	switch {
	case ob.Source == role.Gossip:
		return
	case ob.Asked.IsZero(), ob.Asked.After(o.now), !ob.Answered.IsZero() && ob.Answered.Before(ob.Asked):
		known, ob.Asked, ob.Answered = o.now, o.now, o.now
		if ob.Verdict == role.Writable {
			ob.Verdict = role.Unknown
		}
	case !o.forgotten.IsZero() && !ob.Asked.After(o.forgotten):
		return
	}
	ob.Answered = known
	f.answered = true
	f.hear(known)
	if f.outrun(ob) {
		if ob.Verdict.OutOfRecovery() {
			f.out = append(f.out, ob)
		}
		return
	}
	if ob.SystemID != 0 {
		f.foreign = append(f.foreign, ob)
	}
	switch {
	case ob.Verdict == role.Unknown, ob.Lacks() != "":
		f.fail(known)
		return
	case ob.Verdict == role.InRecovery, ob.Verdict == role.ReadOnly:
		f.negative = append(f.negative, known)
	case ob.Source == role.Probe || ob.Source == role.Fence:
		if o.expired(ob.Asked) && f.demoted(f.newest(), o.view.Floor.SystemID) {
			break // it proves nothing, and only a proof ends a demotion
		}
		f.positive = append(f.positive, ob)
	}
	if ob.Verdict.OutOfRecovery() {
		f.out = append(f.out, ob)
	}
}

// outrun reports whether the newest connection shows another server, in another role; it notes the observation.
func (f *facts) outrun(ob role.Observation) bool {
	if ob.Dialled.IsZero() || ob.Verdict == role.Unknown {
		return false
	}
	var newest role.Observation
	for _, d := range f.dialled {
		if d.Dialled.After(newest.Dialled) || d.Dialled.Equal(newest.Dialled) && !d.Asked.Before(newest.Asked) {
			newest = d
		}
	}
	f.dialled = append(f.dialled, ob)
	return newest.Dialled.After(ob.Dialled) && ob.Contradicts(newest)
}

// latest positive answer of the right cluster.
func (f *facts) latest(id uint64) (best role.Observation) {
	for _, p := range f.positive {
		if p.SystemID == id && p.Asked.After(best.Asked) {
			best = p
		}
	}
	return best
}

// newest is when the latest positive answer of whatever cluster was asked for.
func (f *facts) newest() (asked time.Time) {
	for _, p := range f.positive {
		if p.Asked.After(asked) {
			asked = p.Asked
		}
	}
	return asked
}

func since(times []time.Time, asked time.Time) bool {
	return slices.ContainsFunc(times, func(t time.Time) bool { return !t.Before(asked) })
}

// demoted reports whether something known since a positive answer was asked for says that the host cannot write.
func (f *facts) demoted(asked time.Time, id uint64) bool {
	return since(f.negative, asked) || slices.ContainsFunc(f.foreign, func(ob role.Observation) bool {
		return id != 0 && ob.SystemID != id && !ob.Answered.Before(asked)
	})
}

func (o *oracle) expired(asked time.Time) bool { return !o.now.Before(asked.Add(o.cfg.TTL)) }

func (o *oracle) role(h role.Host) (Role, bool) {
	for _, c := range o.list {
		if c.Host == h {
			return c.Role, true
		}
	}
	return 0, false
}

func (o *oracle) has(roles ...Role) bool {
	return slices.ContainsFunc(o.list, func(c HostConfig) bool { return slices.Contains(roles, c.Role) })
}

func (o *oracle) electable(h role.Host) bool {
	r, ok := o.role(h)
	return ok && (r == Primary || r == Auto && !o.has(Primary))
}

// holds says which rule the machine's view breaks, and takes it for the view before the next step.
func (o *oracle) holds(m *Machine) error {
	v := m.View()
	defer func() { o.view, o.fresh, o.restarted, o.own = v, false, false, v.Seat }()
	if !o.fresh {
		if err := o.moved(v); err != nil {
			return err
		}
	}
	if err := o.floor(v); err != nil {
		return err
	}
	if o.has(Any) && !o.has(Auto, Primary) {
		if r, _ := o.role(v.Elected); r != Any {
			return fmt.Errorf("with nothing but hosts of role any %q is elected", v.Elected)
		}
		return nil
	}
	if err := o.elected(v, m); err != nil {
		return err
	}
	if err := o.unseated(v); err != nil {
		return err
	}
	return o.missed(v)
}

// moved: the epoch moves with the elected host and the floor, and only then, and only up.
func (o *oracle) moved(v View) error {
	same := v.Elected == o.view.Elected && v.Floor == o.view.Floor
	if same && v.Epoch != o.view.Epoch && !o.restarted || !same && v.Epoch <= o.view.Epoch {
		return fmt.Errorf("from %v to %v", o.view, v)
	}
	if since := v.Since; v.Elected != o.view.Elected && !since.Equal(o.now) || v.Elected == o.view.Elected && !since.Equal(o.view.Since) {
		return fmt.Errorf("elected since %v, at %v", v.Since, o.now)
	}
	return nil
}

// floor: it only rises within a generation and a cluster, to what was seen, and no voter was seen above it.
func (o *oracle) floor(v View) error {
	f, g := o.view.Floor, v.Floor
	f.Timeline, g.Timeline = o.view.Own, v.Own // what others claimed comes and goes
	switch {
	case o.cfg.SystemID != 0 && g.SystemID != o.cfg.SystemID:
		return fmt.Errorf("the identifier is %d and set to %d", g.SystemID, o.cfg.SystemID)
	case o.fresh:
		return nil
	case g.Generation < f.Generation:
		return fmt.Errorf("the generation fell: %v to %v", f, g)
	case g.SystemID != 0 && f.SystemID == 0 && o.cfg.SystemID == 0 && !o.restarted && o.disagree("", g.SystemID):
		return fmt.Errorf("the identifier became %d, and a host said otherwise", g.SystemID)
	case v.Teacher != "" && o.disagree(v.Teacher, g.SystemID):
		return fmt.Errorf("the identifier is %d by the word of %s alone, and another host said otherwise", g.SystemID, v.Teacher)
	case g.Generation == f.Generation && g.SystemID != f.SystemID && o.view.Teacher != "" && o.disagree(o.view.Teacher, f.SystemID) && (g.SystemID == 0 || !o.disagree("", g.SystemID)):
		return nil // taken back
	case g.Generation == f.Generation && g.SystemID != f.SystemID && f.SystemID != 0 && o.cfg.SystemID != g.SystemID:
		return fmt.Errorf("the identifier changed by itself: %v to %v", f, g)
	case g.Generation == f.Generation && g.SystemID == f.SystemID && g.Timeline < f.Timeline:
		return fmt.Errorf("the floor fell: %v to %v", f, g)
	}
	reached := g.Timeline == 0 || g.Timeline == f.Timeline
	for h, x := range o.facts {
		for _, ob := range x.out {
			if ob.SystemID != g.SystemID || g.SystemID == 0 {
				continue
			}
			reached = reached || ob.Timeline == g.Timeline
			if r, _ := o.role(h); (r == Auto || r == Primary) && ob.Timeline > g.Timeline {
				return fmt.Errorf("%v is below what was seen: %v", g, ob)
			}
		}
	}
	if !reached {
		return fmt.Errorf("nobody was seen on the floor %v", g)
	}
	return nil
}

// disagree reports whether the last answer with an identifier of some host but one was of another cluster.
func (o *oracle) disagree(but role.Host, id uint64) bool {
	return slices.ContainsFunc(o.list, func(c HostConfig) bool {
		var last role.Observation
		for _, ob := range o.facts[c.Host].foreign {
			if !ob.Asked.Before(last.Asked) {
				last = ob
			}
		}
		return c.Role != Any && c.Host != but && last.SystemID != 0 && last.SystemID != id
	})
}

// elected: by its role, on evidence that stands, of the right cluster, not below the floor; if anew, on evidence that
// neither expired nor failed, and not while the first election waits. And doubt is as it must be.
func (o *oracle) elected(v View, m *Machine) error {
	why, doubted := m.InDoubt()
	if v.Elected == "" {
		if doubted {
			return fmt.Errorf("nobody is in doubt")
		}
		return nil
	}
	f := o.facts[v.Elected]
	if !o.electable(v.Elected) {
		return fmt.Errorf("%s is elected, and its role or the list does not allow it", v.Elected)
	}
	p := f.latest(v.Floor.SystemID)
	anew := v.Elected != o.view.Elected && !o.restarted
	switch {
	case p.Asked.IsZero():
		return fmt.Errorf("%s is elected without evidence", v.Elected)
	case f.demoted(p.Asked, v.Floor.SystemID):
		return fmt.Errorf("%s is elected and demoted", v.Elected)
	case p.Timeline < v.Floor.Timeline:
		return fmt.Errorf("%s is elected below the floor", v.Elected)
	case v.Floor.SystemID == 0 && !p.NoTimelines:
		return fmt.Errorf("%s is elected in an unknown cluster", v.Elected)
	case anew && o.barred(v.Elected, p):
		return fmt.Errorf("%s was elected beside another member's primary", v.Elected)
	case o.barred(v.Elected, p) && o.seat.Tag < v.Seat:
		return fmt.Errorf("%s is elected beside another member's older primary", v.Elected)
	case anew && o.expired(p.Asked):
		return fmt.Errorf("%s was elected on evidence that expired", v.Elected)
	case anew && since(f.failed, p.Asked):
		return fmt.Errorf("%s was elected on evidence that failed", v.Elected)
	case anew && o.waiting():
		return fmt.Errorf("%s was elected before all answered", v.Elected)
	}
	reason := o.expired(p.Asked) || since(f.doubted, p.Asked)
	if !doubted && reason {
		return fmt.Errorf("%s is not in doubt", v.Elected)
	}
	if doubted && !reason && !since(f.late, p.Asked) {
		return fmt.Errorf("%s is in doubt without a reason: %s", v.Elected, why)
	}
	if asked, ok := m.Proved(); ok == doubted || ok && !asked.Equal(p.Asked) {
		return fmt.Errorf("%s proved %v, %t", v.Elected, asked, ok)
	}
	return nil
}

// barred: another member has another server as the primary on the timeline of a host.
func (o *oracle) barred(h role.Host, p role.Observation) bool {
	s := o.seat
	return s.Host != "" && o.now.Before(s.At.Add(o.cfg.UnhealthyAfter)) && s.Host != h && s.Timeline == p.Timeline && (s.Started.IsZero() || !s.Started.Equal(p.Started))
}

// unseated: who is elected stays, unless there is a reason.
func (o *oracle) unseated(v View) error {
	was := o.view.Elected
	f := o.facts[was]
	if was == "" || v.Elected == was || f == nil || o.forgot || o.restarted || !o.electable(was) {
		return nil
	}
	p := f.latest(v.Floor.SystemID)
	switch silent := f.gone || !o.now.Before(f.heard.Add(o.cfg.UnhealthyAfter)); {
	case p.Asked.IsZero(), f.demoted(p.Asked, v.Floor.SystemID), p.Timeline < v.Floor.Timeline:
	case p.NoTimelines && v.Floor != o.view.Floor:
	case silent && v.Elected != "" && (o.expired(p.Asked) || since(f.doubted, p.Asked) || since(f.late, p.Asked)):
	case o.barred(was, p) && (o.seat.Tag < o.own || o.seat.Tag == o.own && o.seat.Host < was):
	case o.cfg.TwoWriters == Refuse && v.Elected == "" && len(o.writers(v, 0)) > 1:
	default:
		return fmt.Errorf("%s lost its seat to %q without a reason", was, v.Elected)
	}
	return nil
}

// writers are the hosts that could be elected and were seen writable on the floor, not longer ago than an age (0: the ttl).
func (o *oracle) writers(v View, age time.Duration) (hosts []role.Host) {
	if age == 0 {
		age = o.cfg.TTL
	}
	for _, c := range o.list {
		f := o.facts[c.Host]
		p := f.latest(v.Floor.SystemID)
		if o.electable(c.Host) && !p.Asked.IsZero() && o.now.Before(p.Asked.Add(age)) && !f.demoted(p.Asked, v.Floor.SystemID) &&
			p.Timeline == v.Floor.Timeline && (p.NoTimelines || v.Floor.SystemID != 0) {
			hosts = append(hosts, c.Host)
		}
	}
	return hosts
}

// missed: if there is one writer, and nothing and nobody beside it, it is elected.
func (o *oracle) missed(v View) error {
	if v.Elected != "" || o.waiting() {
		return nil
	}
	w := o.writers(v, 1000*time.Hour)
	if len(w) != 1 {
		return nil
	}
	f := o.facts[w[0]]
	if o.barred(w[0], f.latest(v.Floor.SystemID)) {
		return nil
	}
	if p := f.latest(v.Floor.SystemID); !o.expired(p.Asked) && !since(f.doubted, p.Asked) && !since(f.late, p.Asked) {
		return fmt.Errorf("%s is proven, and nobody is elected", w[0])
	}
	return nil
}
