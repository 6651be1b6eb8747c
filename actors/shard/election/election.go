// Package election chooses the primary of a shard from what its monitors and backends observed. It is pure: events in,
// effects out; the shard actor executes the effects.
//
//	(start, FORGET, a new host) --> waiting --all answered or failed, or first_wait has passed--> nobody
//	nobody  --one server proven, or electable, to which there is no objection--> elected
//	elected --objection: demoted, below the floor, another cluster, its role, no longer a host, FORGET--> nobody
//	elected --two servers proven on one timeline, on_two_writers = refuse--> nobody
//	elected --another member of the fleet has had another server on its timeline for longer--> nobody, or that one
//	elected --doubted, its address gone or silent for unhealthy_after, and one other server proven--> elected (that one)
//	elected: proven --evidence expires, late, lost, failed, hint--> in doubt --proof asked for after that--> proven
//
// The floor is the highest timeline on which a host of the shard was seen out of recovery. Since it rises before anybody
// is elected, all hosts to which there is no objection are on the floor itself, and the highest timeline wins. A host
// that is elected anew must be proven, or in doubt by no more than lateness or a hint; who is elected stays through any
// doubt. Doubt takes nothing away, but every write grant then needs a fence, and each fence is evidence.
//
// Connections to one address may end at different servers. The newest one is believed: an answer on an older one that shows
// another server, in another role, is no evidence.
//
// The identifier is what all hosts that answer agree on. While they disagree nobody is elected.
//
// Whatever is not known counts against a host: no identifier, no timeline, an answer with impossible times, two writers
// with none of them elected before.
package election

import (
	"fmt"
	"slices"
	"time"

	"fencepost/role"
)

// Role is what a host may be in the election.
type Role uint8

// The roles.
const (
	Auto    Role = iota // takes part
	Primary             // the only one that may be elected (where several are named, one of them), still checked
	Replica             // never elected, never raises the floor
	Any                 // no check at all: not in the election, unless no host is Auto or Primary: then the first one is elected
)

var roleNames = [...]string{"auto", "primary", "replica", "any"}

func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("invalid(%d)", uint8(r))
}

// HostConfig is a host of the shard.
type HostConfig struct {
	Host role.Host
	Role Role
	Name string // as configured, for people; several hosts may have one name
}

func (h HostConfig) String() string { return fmt.Sprintf("%s %s", h.Host, h.Role) }

// TwoWriters is what is done when two servers are proven writable on one timeline.
type TwoWriters uint8

// The policies.
const (
	Sitting TwoWriters = iota // the elected one stays; with none elected nobody is
	Refuse                    // nobody is elected
)

func (t TwoWriters) String() string {
	switch t {
	case Sitting:
		return "sitting"
	case Refuse:
		return "refuse"
	}
	return fmt.Sprintf("invalid(%d)", uint8(t))
}

// Config are the settings.
type Config struct {
	TTL            time.Duration // how long evidence is proof (evidence_ttl); zero: not at all, nobody is ever elected
	UnhealthyAfter time.Duration // silence after which a doubted primary yields to another one on its timeline
	FirstWait      time.Duration // how long the first election waits for hosts that have neither answered nor failed
	TwoWriters     TwoWriters
	SystemID       uint64 // of the shard's cluster (system_identifier); 0: learnt
}

// Defaults are the settings where none are given.
func Defaults() Config {
	return Config{TTL: 3 * time.Second, UnhealthyAfter: 10 * time.Second, FirstWait: time.Second}
}

// View is what the shard has decided. It is immutable.
type View struct {
	Epoch   uint64
	Elected role.Host // "": nobody
	Floor   role.Floor
	Teacher role.Host // the host that alone has told the identifier of Floor; "": that is certain
	Own     uint32    // the timeline of Floor as far as this process saw it itself: without claims of other members
	Seen    time.Time // when a host was last seen out of recovery on Own; zero: not known
	Seat    uint64    // of Elected, by which a fleet orders its members' primaries (evidence.Seat); 0: nobody is elected
	Why     string    // what led to this view
	Since   time.Time // when Elected became what it is
	// Evidence on which Elected was chosen, or which it had when the floor rose last. Asked is zero if nobody is elected,
	// or without evidence (role any).
	Evidence role.Observation
}

func (v View) String() string {
	elected := string(v.Elected)
	if elected == "" {
		elected = "nobody"
	}
	return fmt.Sprintf("epoch %d elected %s floor %d/%d/%d", v.Epoch, elected, v.Floor.SystemID, v.Floor.Generation, v.Floor.Timeline)
}

// host is a host of the list with what is known about it.
type host struct {
	HostConfig
	rec      role.Record
	answered bool               // or failed, since it was added and since the last FORGET
	gone     bool               // its address left DNS
	named    role.Observation   // its last answer with an identifier; Asked zero: none
	foreign  bool               // its last answer was another cluster's
	outs     []role.Observation // the last ones out of recovery on the highest timeline, of each cluster
	flows    flows
}

// out is when the host was last seen out of recovery on the highest timeline of a cluster; Asked zero: never.
func (h *host) out(id uint64) role.Observation {
	for _, o := range h.outs {
		if o.SystemID == id {
			return o
		}
	}
	return role.Observation{}
}

// maxOuts is of how many clusters that is kept: while the shard's is not known, an address may lead to several.
const maxOuts = 4

func (h *host) keepOut(o role.Observation) {
	i := slices.IndexFunc(h.outs, func(p role.Observation) bool { return p.SystemID == o.SystemID })
	switch {
	case i < 0:
		h.outs = append(h.outs[max(0, len(h.outs)-maxOuts+1):len(h.outs):len(h.outs)], o)
	case o.Timeline >= h.outs[i].Timeline:
		h.outs[i] = o
	}
}

// Machine is the election of one shard.
type Machine struct {
	cfg       Config
	hosts     hosts
	floor     role.Floor // as seen here
	seen      time.Time  // … last
	claim     FloorClaim // of other members, in the generation and cluster of floor
	teacher   role.Host  // who alone has told the identifier of floor, and may be a stranger; "": it is certain
	dissent   string     // which hosts belong to different clusters while the identifier is not known
	elected   *host
	last      role.Host // elected last, in this generation
	view      View
	now       time.Time
	waitUntil time.Time // the first election waits for hosts that have not answered
	began     time.Time // the last FORGET or restart: what was asked for before it may be about another generation
	inDoubt   bool      // Doubt was said of the elected host
	conflict  Conflict
	seats     seats

	// Of the step being made.
	effects []Effect
	reasons []string
	rose    bool // doubt about the elected host
	lately  bool // only by lateness: the probe is under way
}

// New starts an election. floor is what a state file kept, or zero; last the view published before a restart of the
// shard's actor, or nil: its floor is kept, and its primary stays, in doubt, if it is in the list. The effects this has
// come with those of the first Step.
func New(now time.Time, cfg Config, hosts []HostConfig, floor role.Floor, last *View) *Machine {
	m := &Machine{cfg: cfg, floor: floor, now: now}
	if last != nil {
		m.view, m.began, m.seen, m.teacher = *last, now, last.Seen, last.Teacher
		own := last.Floor
		own.Timeline = last.Own
		if last.Floor.SystemID == floor.SystemID || last.Floor.Generation < floor.Generation {
			m.floor = own.Merge(floor)
		} else {
			m.floor = own
		}
	}
	if cfg.SystemID != 0 || last != nil && m.floor.SystemID != last.Floor.SystemID {
		m.teacher = ""
	}
	if cfg.SystemID != 0 && m.floor.SystemID != cfg.SystemID {
		m.floor = role.Floor{SystemID: cfg.SystemID, Generation: m.floor.Generation}
	}
	if m.view.Since.IsZero() {
		m.view.Since = now
	}
	m.replace(hosts)
	if last != nil {
		m.restore(*last)
	}
	m.reason("started")
	m.settle()
	return m
}

// restore seats the primary of the last view again, in doubt.
func (m *Machine) restore(last View) {
	h := m.find(last.Elected)
	if h == nil || last.Evidence.Host != h.Host || last.Floor.Generation != m.floor.Generation {
		return
	}
	h.named = last.Evidence
	h.rec.Observe(last.Evidence.Asked, m.cfg.TTL, last.Evidence)
	h.rec.Doubt(m.now, "the shard was restarted")
	h.rec.Hear(m.now)
	m.elect(h, string(h.Host)+" was elected before the restart")
	m.seats.own = last.Seat
}

// Step takes one event in, after it has drawn the conclusions of the time that has passed since the last one: what comes
// out does not depend on whether Ticks came in time. The effects belong to the caller. Time never runs backwards: a now
// before the last one is taken for the last one.
func (m *Machine) Step(now time.Time, ev Event) []Effect {
	if now.After(m.now) {
		m.now = now
	}
	m.settle()
	m.apply(ev)
	m.settle()
	effects := m.effects
	m.effects = nil
	return effects
}

func (m *Machine) apply(ev Event) {
	switch e := ev.(type) {
	case Observed:
		m.observed(e.Observation)
	case Late:
		m.on(e.Host, "late probe", func(h *host) { m.lately = h.rec.Late(m.now, m.cfg.TTL) && h == m.elected })
	case Lost:
		if !e.Expected {
			m.on(e.Host, "loss", func(h *host) { h.answered = true; h.rec.Lost(m.at(e.At), "a connection to it was lost") })
		}
	case Refused:
		m.on(e.Host, "refused connect", func(h *host) { m.refused(h, e) })
	case Failed:
		m.on(e.Host, "failure", func(h *host) { h.answered = true; h.rec.Fail(m.at(e.At), e.Why) })
	case Heard:
		m.on(e.Host, "sign of life", func(h *host) { h.rec.Hear(m.at(e.At)) })
	case Hint:
		m.on(e.Host, "hint", func(h *host) { h.rec.Doubt(m.at(e.At), e.Why) })
	case AddressGone:
		m.on(e.Host, "address", func(h *host) { h.gone = true })
	case AddressBack:
		m.on(e.Host, "address", func(h *host) { h.gone = false })
	case Hosts:
		m.replace(e.List)
	case Forget:
		m.forget(e, false)
	case TakeOver:
		m.forget(Forget{Generation: e.Generation}, true)
	case StoodStill:
		// What was learnt of the cluster stays what it was: one server's word stays one that another may contradict.
		claim, seen, teacher, named := m.claim, m.seen, m.teacher, m.Named(nil)
		m.restart(m.floor, fmt.Sprintf("this process stood still for %v: the hosts are asked again", e.For.Round(time.Millisecond)))
		m.claim, m.seen, m.teacher = claim, seen, teacher
		m.Recall(named)
	case Seat:
		m.seats.learn(e, m.elected)
	case FloorKept:
		m.seen = e.Seen
	case FloorClaim:
		m.claimed(e)
	case Configure:
		m.configure(e.Config)
	case Tick:
	default:
		m.bug("unknown event %v", ev)
		if m.elected != nil {
			m.on(m.elected.Host, "", func(h *host) { h.rec.Doubt(m.now, "an event that cannot happen") })
		}
	}
}

func (m *Machine) emit(e Effect)               { m.effects = append(m.effects, e) }
func (m *Machine) bug(format string, a ...any) { m.emit(Bug{fmt.Sprintf(format, a...)}) }
func (m *Machine) reason(format string, a ...any) {
	m.reasons = append(m.reasons, fmt.Sprintf(format, a...))
}

// at is when something happened: now if it is not known, and never later than now.
func (m *Machine) at(t time.Time) time.Time {
	if t.IsZero() || t.After(m.now) {
		return m.now
	}
	return t
}

func (m *Machine) find(name role.Host) *host { return find(m.hosts, name) }

func find(hosts []*host, name role.Host) *host {
	for _, h := range hosts {
		if h.Host == name {
			return h
		}
	}
	return nil
}

// on applies f to a host and says what that did to its evidence.
func (m *Machine) on(name role.Host, what string, f func(*host)) {
	h := m.find(name)
	if h == nil {
		m.emit(Stale{name, what + " of a host that is not in the list"})
		return
	}
	before, doubt := h.rec.Strength(m.now, m.cfg.TTL), h.rec.Doubts()
	f(h)
	after := h.rec.Strength(m.now, m.cfg.TTL)
	if after == role.Demoted && (before == role.Proven || before == role.Doubted) {
		f, cause, _ := h.rec.Demotion()
		m.emit(Demoted{h.Host, cause, f.Why})
	}
	if d := h.rec.Doubts(); h == m.elected && d != doubt {
		m.rose = true
	}
}

// View is the present decision.
func (m *Machine) View() View { return m.view }

// InDoubt reports whether every write grant on the elected host needs a fence, and why. Somebody may have raised doubt
// before telling: if this is false after the step that took the word in, that doubt is over.
func (m *Machine) InDoubt() (why string, doubted bool) {
	if !m.inDoubt {
		return "", false
	}
	return m.elected.rec.Why(m.now, m.cfg.TTL), true
}

// Proved is when what proves the elected host was asked for; false if nobody is elected or the host is in doubt.
func (m *Machine) Proved() (asked time.Time, ok bool) {
	if m.elected == nil || m.inDoubt || m.elected.Role == Any {
		return time.Time{}, false
	}
	return m.elected.rec.Evidence().Asked, true
}
