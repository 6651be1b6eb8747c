package backend_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/actors/backend"
	"fencepost/internal/fakepg"
	"fencepost/internal/memconn"
	"fencepost/pgerr"
	"fencepost/role"
	"fencepost/wire"
)

// proof is what the backend knows, copied on its loop.
func (r *rig) proof() (p *backend.Proof, shadowed bool) {
	r.on(func() {
		if p = r.b.Proof(); p != nil {
			q := *p
			p = &q
		}
		shadowed = r.b.Shadowed()
	})
	return p, shadowed
}

// usable reports whether the backend may be granted.
func (r *rig) usable() (yes bool) {
	r.on(func() {
		yes = r.b.Usable()
		if yes != r.b.Resting() {
			r.t.Errorf("usable: %t, resting: %t", yes, !yes)
		}
	})
	return yes
}

func (r *rig) fence(id uint64) *backend.Fenced {
	r.t.Helper()
	r.system.Root.Send(r.pid, &backend.Fence{ID: id})
	m := hear[*backend.Fenced](r)
	if m.Backend != r.b || m.ID != id {
		r.t.Fatalf("fenced: %+v", m)
	}
	return m
}

// A backend of a host with a role knows from its login who the server is. One of a host without asks nothing.
func TestIdentityAtLogin(t *testing.T) {
	for _, identify := range []bool{true, false} {
		bubble(t, func(r *rig) {
			var messages atomic.Int64
			r.server.Watch = func(e fakepg.Event) {
				if e.Type != 0 {
					messages.Add(1)
				}
			}
			r.target.Identify = identify
			r.open()
			p, shadowed := r.proof()
			switch {
			case !identify && (p != nil || shadowed):
				t.Errorf("nobody asked: %+v", p)
			case identify && (p == nil || shadowed || p.SystemID != 7000000000000000001 || p.Timeline != 1 || p.InRecovery || p.Asked.IsZero() || p.Answered.Before(p.Asked)):
				t.Errorf("proof: %+v, shadowed: %t", p, shadowed)
			}
			r.sleep(time.Minute)
			if n := messages.Load(); n != 0 {
				t.Errorf("the server was sent %d messages", n)
			}
		})
	}
}

// Somebody in between who pools is known by the process that serves the connection, and stays known.
func TestShadowed(t *testing.T) {
	other := fakepg.Ordinary()
	other.PID = 77
	for name, sets := range map[string][]fakepg.Identity{"at login": {other, fakepg.Ordinary()}, "later": {fakepg.Ordinary(), other}} {
		bubble(t, func(r *rig) {
			r.watched()
			r.server.SetIdentity(sets[0])
			r.open()
			r.server.SetIdentity(sets[1])
			r.fence(1)
			if p, shadowed := r.proof(); !shadowed || p == nil {
				t.Errorf("%s: shadowed: %t, proof: %+v", name, shadowed, p)
			}
		})
	}
}

// A fence replaces what was known by what is so now, and the backend is good for clients before and after.
func TestFence(t *testing.T) {
	bubble(t, func(r *rig) {
		r.watched()
		r.open()
		before, _ := r.proof()
		standby := fakepg.Ordinary()
		standby.InRecovery, standby.Timeline = true, 3
		for id, want := range []fakepg.Identity{fakepg.Ordinary(), standby, fakepg.Ordinary()} {
			r.server.SetIdentity(want)
			r.sleep(time.Second)
			sent := time.Now()
			m := r.fence(uint64(id))
			p, _ := r.proof()
			if m.Err != nil || p == nil || p.InRecovery != want.InRecovery || p.Timeline != want.Timeline || p.Asked != m.Asked || p.Answered != m.Answered {
				t.Fatalf("%+v, proof %+v", m, p)
			}
			if !m.Asked.After(before.Answered) || m.Answered.Before(m.Asked) || m.Asked.Before(sent.Add(-time.Millisecond)) {
				t.Errorf("asked %v, answered %v, the one before at %v", m.Asked, m.Answered, before.Answered)
			}
			before = p
			if !r.usable() {
				t.Error("not usable after the fence")
			}
			h := r.hold()
			if got := h.ask("SELECT 'mine'"); got != "mine" {
				t.Errorf("answer %q", got)
			}
			h.release()
		}
	})
}

// identityRow is a row as a server sends it.
func identityRow(id fakepg.Identity) *pgproto3.DataRow { return &pgproto3.DataRow{Values: id.Row(1)} }

var (
	described = &pgproto3.RowDescription{}
	completed = &pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")}
	atRest    = &pgproto3.ReadyForQuery{TxStatus: wire.TxIdle}
)

type answer = []pgproto3.BackendMessage

func standbyIdentity() fakepg.Identity {
	id := fakepg.Ordinary()
	id.InRecovery = true
	return id
}

// Whatever answers a fence, and in whatever pieces, the backend counts as neither usable nor at rest before the end of it.
// Only one row that makes sense is a proof; after any other answer nothing is known.
func TestFenceAnswers(t *testing.T) {
	row := identityRow(fakepg.Ordinary())
	denied := &pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: pgerr.InsufficientPrivilege, Message: "permission denied"}
	for name, tc := range map[string]struct {
		says  answer
		proof bool
	}{
		"writable":    {answer{described, row, completed, atRest}, true},
		"in recovery": {answer{described, identityRow(standbyIdentity()), completed, atRest}, true},
		"with what servers say unasked": {answer{described, &pgproto3.NoticeResponse{Severity: "NOTICE", Code: "00000"}, row, completed,
			&pgproto3.NotificationResponse{Channel: "c"}, &pgproto3.ParameterStatus{Name: "in_hot_standby", Value: "off"}, atRest}, true},
		"an error":          {answer{denied, atRest}, false},
		"an error too late": {answer{described, row, denied, atRest}, false},
		"no row":            {answer{described, completed, atRest}, false},
		"two rows":          {answer{described, row, row, completed, atRest}, false},
		"garbage":           {answer{described, &pgproto3.DataRow{Values: [][]byte{[]byte("hello")}}, completed, atRest}, false},
		"an endless row":    {answer{described, &pgproto3.DataRow{Values: [][]byte{[]byte(strings.Repeat("x", 200_000))}}, completed, atRest}, false},
		"nothing":           {answer{&pgproto3.EmptyQueryResponse{}, atRest}, false},
	} {
		for _, piece := range []int{1 << 20, 1, 7} {
			bubble(t, func(r *rig) {
				r.watched()
				l := &lines{proof: &backend.Proof{}, query: role.IdentityQueryNoControl}
				r.deps.Dialer = l
				r.open()
				r.system.Root.Send(r.pid, &backend.Fence{ID: 9})
				if q := l.asked(r); q != role.IdentityQueryNoControl {
					t.Errorf("%s: it asks %s", name, q)
				}
				var all []byte
				for _, m := range tc.says {
					all = append(all, server(m)...)
				}
				if len(all) > 100_000 && piece < 100 {
					piece *= 5000
				}
				for len(all) > 0 {
					if r.usable() {
						t.Fatalf("%s: usable although %d bytes of the answer are not there", name, len(all))
					}
					n := min(piece, len(all))
					l.say(all[:n])
					all = all[n:]
				}
				m := hear[*backend.Fenced](r)
				p, _ := r.proof()
				if m.ID != 9 || (m.Err == nil) != tc.proof || (p != nil) != tc.proof {
					t.Errorf("%s: %+v, proof %+v", name, m, p)
				}
				var said *pgerr.Error
				if name == "an error" && (!errors.As(m.Err, &said) || said.Code != pgerr.InsufficientPrivilege) {
					t.Errorf("%s: %v", name, m.Err)
				}
				if !r.usable() {
					t.Errorf("%s: not at rest after the answer", name)
				}
				r.silent(time.Second)
			})
		}
	}
}

// asked reads the query the backend sends.
func (l *lines) asked(r *rig) string {
	r.t.Helper()
	q, err := pgproto3.NewBackend(l.conn, l.conn).Receive()
	if err != nil {
		r.t.Fatal(err)
	}
	if q, ok := q.(*pgproto3.Query); ok {
		return q.String
	}
	r.t.Fatalf("the server hears %T", q)
	return ""
}

// Messages that cannot be of a fence's answer end the connection, like all that nobody asked for.
func TestFenceAnsweredNonsense(t *testing.T) {
	for name, m := range map[string]pgproto3.BackendMessage{
		"COPY IN": &pgproto3.CopyInResponse{}, "COPY OUT": &pgproto3.CopyOutResponse{}, "CopyData": &pgproto3.CopyData{Data: []byte("x")},
		"ParseComplete": &pgproto3.ParseComplete{}, "a transaction": &pgproto3.ReadyForQuery{TxStatus: wire.TxOpen},
	} {
		bubble(t, func(r *rig) {
			r.watched()
			l := &lines{proof: &backend.Proof{}}
			r.deps.Dialer = l
			r.open()
			r.system.Root.Send(r.pid, &backend.Fence{ID: 9})
			if q := l.asked(r); q != role.IdentityQuery {
				t.Errorf("it asks %s", q)
			}
			l.say(server(m))
			if m := hear[*backend.Lost](r); m.Expected || !m.Doubts {
				t.Errorf("%s: %+v", name, m)
			}
			r.silent(time.Second)
		})
	}
}

// A fence is refused while it could be mixed up with something else, and changes nothing then.
func TestFenceWhileNotIdle(t *testing.T) {
	bubble(t, func(r *rig) {
		r.watched()
		r.dialer.Delay = 500 * time.Millisecond
		r.server.SetFaults(fakepg.Faults{LoginDelay: time.Second / 2})
		r.dial()
		refused := func(when string) {
			t.Helper()
			if m := r.fence(3); m.Err == nil {
				t.Errorf("%s: %+v", when, m)
			}
		}
		refused("dialling")
		hear[*backend.Opened](r)
		h := r.hold()
		refused("held")
		h.send(query("SELECT pg_sleep(0.001), 'x'"))
		r.system.Root.Send(r.pid, &backend.Cancel{Holder: h})
		ready(h)
		h.release()
		refused("a cancel on its way")
		<-r.ended
		if p, _ := r.proof(); p == nil || !r.usable() {
			t.Errorf("refusals leave traces: %+v", p)
		}
		if m := r.fence(4); m.Err != nil {
			t.Error(m.Err)
		}
	})
}

// A connection that ends during a fence is lost, and that is the only answer.
func TestLostWhileFencing(t *testing.T) {
	for name, tc := range map[string]struct {
		end      func(r *rig, c *memconn.Conn)
		expected bool
	}{
		"closed by the server": {func(_ *rig, c *memconn.Conn) { c.Close() }, false},
		"FATAL": {func(_ *rig, c *memconn.Conn) {
			c.Write(server(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: pgerr.AdminShutdown}))
			c.Close()
		}, false},
		"closed by us": {func(r *rig, _ *memconn.Conn) { r.system.Root.Send(r.pid, &backend.Close{Why: "enough"}) }, true},
	} {
		bubble(t, func(r *rig) {
			r.watched()
			l := &lines{proof: &backend.Proof{}}
			r.deps.Dialer = l
			r.open()
			r.system.Root.Send(r.pid, &backend.Fence{ID: 9})
			l.asked(r)
			tc.end(r, l.conn)
			m := hear[*backend.Lost](r)
			if m.Expected != tc.expected || m.Doubts == tc.expected || (m.Code == pgerr.AdminShutdown) != (name == "FATAL") {
				t.Errorf("%s: %+v", name, m)
			}
			r.system.Root.Send(r.pid, &backend.Fence{ID: 10})
			r.silent(time.Second)
		})
	}
}

// A server that reports that its role may have changed makes the proof void, whoever holds the connection, until a fence.
func TestProofBecomesVoid(t *testing.T) {
	for _, name := range []string{"in_hot_standby", "default_transaction_read_only", "TimeZone", "search_path"} {
		for _, isHeld := range []bool{false, true} {
			bubble(t, func(r *rig) {
				r.watched()
				l := &lines{proof: &backend.Proof{}, params: map[string]string{name: "off"}}
				r.deps.Dialer = l
				r.open()
				if isHeld {
					r.hold()
				}
				l.say(server(&pgproto3.ParameterStatus{Name: name, Value: "on"}))
				l.say(server(&pgproto3.ParameterStatus{Name: name, Value: "off"}))
				r.sleep(time.Second)
				void := name == "in_hot_standby" || name == "default_transaction_read_only"
				if p, _ := r.proof(); (p == nil) != void {
					t.Errorf("%s reported, held: %t, proof: %+v", name, isHeld, p)
				}
			})
		}
	}
}
