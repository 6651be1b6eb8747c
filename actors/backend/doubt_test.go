package backend_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/actors/backend"
	"fencepost/internal/fakepg"
	"fencepost/pgerr"
)

// doubted says when doubt was raised, if it was.
func (r *rig) doubted() (at time.Time, yes bool) {
	select {
	case at = <-r.doubts:
		return at, true
	default:
		return at, false
	}
}

// A write that a server refuses as read-only is a hint, and reaches its client unchanged; one hint lately is enough.
func TestHintOfARefusedWrite(t *testing.T) {
	bubble(t, func(r *rig) {
		r.watched()
		r.server.SetIdentity(standbyIdentity())
		r.open()
		h := r.hold()
		if got := h.ask("INSERT INTO d VALUES (1)"); got != pgerr.ReadOnlyTransaction {
			t.Fatalf("answer %q", got)
		}
		m := hear[*backend.Hinted](r)
		if at, yes := r.doubted(); m.Backend != r.b || m.Code != pgerr.ReadOnlyTransaction || !yes || at != m.At || at.IsZero() {
			t.Errorf("%+v, doubt raised: %t %v", m, yes, at)
		}
		if got := h.ask("SELECT 'mine'"); got != "mine" {
			t.Errorf("answer %q", got)
		}
		r.deaf.Store(true)
		h.ask("INSERT INTO d VALUES (1)")
		r.silent(time.Second)
	})
}

// Only what puts the role in question is a hint, and nothing is where the host has no role.
func TestHints(t *testing.T) {
	notice := func(severity, code, text string) pgproto3.BackendMessage {
		return &pgproto3.NoticeResponse{Severity: "WARNUNG", SeverityUnlocalized: severity, Code: code, Message: text}
	}
	failure := func(code string) pgproto3.BackendMessage {
		return &pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: code, Message: "no"}
	}
	for name, tc := range map[string]struct {
		says pgproto3.BackendMessage
		code string
	}{
		"read-only":          {failure(pgerr.ReadOnlyTransaction), pgerr.ReadOnlyTransaction},
		"another error":      {failure(pgerr.SyntaxError), ""},
		"immediate shutdown": {notice("WARNING", pgerr.AdminShutdown, "terminating"), pgerr.AdminShutdown},
		"crash":              {notice("WARNING", pgerr.CrashShutdown, strings.Repeat("x", 10_000)), pgerr.CrashShutdown},
		"another notice":     {notice("WARNING", pgerr.SuccessfulCompletion, "hello"), ""},
		"a client's own":     {notice("NOTICE", pgerr.AdminShutdown, "RAISE NOTICE"), ""},
		"too long":           {notice("WARNING", pgerr.AdminShutdown, strings.Repeat("x", 200_000)), ""},
	} {
		for _, piece := range []int{1 << 20, 13} {
			for _, watched := range []bool{true, false} {
				bubble(t, func(r *rig) {
					if watched {
						r.watched()
					}
					l := &lines{proof: &backend.Proof{}}
					r.deps.Dialer = l
					r.open()
					h := r.hold()
					h.send(query("SELECT 1"))
					all := server(tc.says)
					got := make(chan []byte)
					go func() { got <- h.read(len(all)) }()
					for rest := all; len(rest) > 0; {
						n := min(piece*max(1, len(all)/1000), len(rest))
						l.say(rest[:n])
						rest = rest[n:]
					}
					if !bytes.Equal(<-got, all) {
						t.Errorf("%s: the client gets something else", name)
					}
					if watched && tc.code != "" {
						if m := hear[*backend.Hinted](r); m.Code != tc.code {
							t.Errorf("%s: %+v", name, m)
						}
					}
					r.silent(time.Second)
				})
			}
		}
	}
}

// read reads n bytes of what the server sends.
func (h *holder) read(n int) []byte {
	b := make([]byte, 0, n)
	for len(b) < n {
		k, err := h.theirs.Read(b[len(b):n])
		if err != nil {
			h.r.t.Error(err)
			return b
		}
		b = b[:len(b)+k]
	}
	return b
}

// A server that ends without a word behind its warning has said why.
func TestWarningIsTheLastWord(t *testing.T) {
	bubble(t, func(r *rig) {
		r.watched()
		l := &lines{proof: &backend.Proof{}}
		r.deps.Dialer = l
		r.open()
		l.say(server(&pgproto3.NoticeResponse{Severity: "WARNING", SeverityUnlocalized: "WARNING", Code: pgerr.CrashShutdown}))
		l.conn.Close()
		if m := hear[*backend.Hinted](r); m.Code != pgerr.CrashShutdown {
			t.Errorf("%+v", m)
		}
		if m := hear[*backend.Lost](r); m.Code != pgerr.CrashShutdown || m.Expected || !m.Doubts {
			t.Errorf("%+v", m)
		}
		if len(r.doubts) != 2 {
			t.Errorf("doubt was raised %d times instead of twice", len(r.doubts))
		}
	})
}

// Doubt is there before the holder or the lane hears of a loss. Our own closes raise none.
func TestLossRaisesDoubt(t *testing.T) {
	for name, tc := range map[string]struct {
		end    func(r *rig)
		doubts bool
	}{
		"lost": {func(r *rig) {
			for _, pid := range r.server.PIDs() {
				r.server.Kill(pid)
			}
		}, true},
		"closed": {func(r *rig) { r.system.Root.Send(r.pid, &backend.Close{Why: "enough"}) }, false},
	} {
		for _, isHeld := range []bool{true, false} {
			bubble(t, func(r *rig) {
				r.watched()
				r.open()
				var h *holder
				if isHeld {
					h = r.hold()
					h.onLost = func() {
						if (len(r.doubts) == 1) != tc.doubts {
							t.Errorf("%s: the holder hears of it, and doubt was raised %d times", name, len(r.doubts))
						}
					}
				}
				tc.end(r)
				m := hear[*backend.Lost](r)
				if _, yes := r.doubted(); yes != tc.doubts || m.Doubts != tc.doubts || m.Expected == tc.doubts || len(r.doubts) > 0 {
					t.Errorf("%s: %+v, doubt raised: %t", name, m, yes)
				}
				r.on(func() {
					if isHeld && h.lost == nil {
						t.Error("the holder hears nothing")
					}
				})
			})
		}
	}
}

// A login that was given up is told from one that failed; neither is a loss of the backend's.
func TestCloseWhileDialling(t *testing.T) {
	bubble(t, func(r *rig) {
		r.watched()
		r.server.SetFaults(fakepg.Faults{LoginDelay: 900 * time.Millisecond})
		r.dial()
		r.system.Root.Send(r.pid, &backend.Close{Why: "another host was elected"})
		if m := hear[*backend.DialFailed](r); !m.Aborted || m.Rejected {
			t.Errorf("%+v", m)
		}
		r.silent(2 * time.Second)
		if n := r.server.Open(); n != 0 || len(r.doubts) != 0 {
			t.Errorf("%d connections are open, doubt was raised %d times", n, len(r.doubts))
		}
	})
	bubble(t, func(r *rig) {
		r.watched()
		r.server.Refuse(&fakepg.Error{Severity: "FATAL", Code: pgerr.CannotConnectNow, Message: "starting up"})
		r.dial()
		if m := hear[*backend.DialFailed](r); m.Aborted || !m.Rejected || m.Err.Code != pgerr.CannotConnectNow {
			t.Errorf("%+v", m)
		}
	})
}
