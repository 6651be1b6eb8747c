package backend_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/actors/backend"
	"fencepost/actors/backend/cancellease"
	"fencepost/internal/fakepg"
	"fencepost/pgerr"
	"fencepost/wire"
)

func TestOpen(t *testing.T) {
	bubble(t, func(r *rig) {
		r.open()
		r.on(func() {
			if !r.b.Usable() || !r.b.Resting() {
				t.Error("not usable after the login")
			}
			if r.b.Login().PID == 0 || r.deps.Names.Value(r.b.Params, "TimeZone") != "Etc/UTC" {
				t.Errorf("login %+v", r.b.Login())
			}
		})
		if got := r.hold().ask("SELECT 'x'"); got != "x" {
			t.Errorf("answer %q", got)
		}
	})
}

func TestDialFails(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare  func(s *fakepg.Server)
		code     string
		rejected bool
	}{
		"refused":   {func(s *fakepg.Server) { s.Refuse(&fakepg.Error{Severity: "FATAL", Code: "28P01", Message: "no"}) }, "28P01", true},
		"unreached": {func(s *fakepg.Server) { s.SetFaults(fakepg.Faults{Unreached: 1000}) }, pgerr.CannotConnect(nil).Code, false},
		"too slow":  {func(s *fakepg.Server) { s.SetFaults(fakepg.Faults{LoginDelay: 1000 * time.Hour}) }, pgerr.CannotConnect(nil).Code, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				tc.prepare(r.server)
				began := time.Now()
				r.dial()
				m := hear[*backend.DialFailed](r)
				if m.Err.Code != tc.code || m.Rejected != tc.rejected || m.Epoch != 7 {
					t.Errorf("%+v", m)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// An actor that stops while it dials leaves no connection behind.
func TestStopWhileDialling(t *testing.T) {
	bubble(t, func(r *rig) {
		r.server.SetFaults(fakepg.Faults{LoginDelay: 900 * time.Millisecond})
		r.dial()
		if err := r.system.Root.StopFuture(r.pid).Wait(); err != nil {
			t.Error(err)
		}
		r.sleep(2 * time.Second)
		if n := r.server.Open(); n != 0 {
			t.Errorf("%d connections are open", n)
		}
	})
}

// While nobody holds it a server may say what servers say unasked, and nothing else.
func TestIdleServerTalks(t *testing.T) {
	bubble(t, func(r *rig) {
		l := &lines{params: map[string]string{"TimeZone": "UTC"}}
		r.deps.Dialer = l
		r.open()
		l.say(server(&pgproto3.NoticeResponse{Severity: "NOTICE", Code: "00000", Message: "hello"}))
		l.say(server(&pgproto3.NotificationResponse{PID: 3, Channel: "c"}))
		l.say(server(&pgproto3.ParameterStatus{Name: "TimeZone", Value: "Europe/Vienna"}))
		r.silent(time.Second)
		r.on(func() {
			if got := r.deps.Names.Value(r.b.Params, "TimeZone"); got != "Europe/Vienna" || !r.b.Usable() {
				t.Errorf("TimeZone is %q, usable: %v", got, r.b.Usable())
			}
		})
		l.say(server(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P05", Message: "idle too long"}))
		if m := hear[*backend.Lost](r); m.Code != "57P05" || m.Expected {
			t.Errorf("%+v", m)
		}
	})
}

// A server that has said that it ends is nobody's any more, although its socket is open for some moments more: the next
// holder would not be told why it gets no answer.
func TestLastWords(t *testing.T) {
	fatal := server(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: pgerr.AdminShutdown})
	warning := server(&pgproto3.NoticeResponse{Severity: "WARNING", SeverityUnlocalized: "WARNING", Code: pgerr.AdminShutdown})
	answer := append(server(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")}), server(&pgproto3.ReadyForQuery{TxStatus: wire.TxIdle})...)
	for name, tc := range map[string]struct {
		word []byte
		to   func(r *rig, l *lines) // brings the backend to where it hears it
	}{
		"FATAL to nobody":   {fatal, func(*rig, *lines) {}},
		"WARNING to nobody": {warning, func(*rig, *lines) {}},
		"FATAL while a cancel is on its way": {fatal, func(r *rig, l *lines) {
			l.cancelling = time.Minute
			h := r.hold()
			h.send(query("SELECT 'x'"))
			r.system.Root.Send(r.pid, &backend.Cancel{Holder: h})
			l.say(answer)
			ready(h)
			h.release()
			r.system.Root.Send(r.pid, &backend.Clean{Limit: time.Hour})
		}},
		"FATAL before it is cleaned": {fatal, func(r *rig, _ *lines) {
			h := r.hold()
			h.send(query("SELECT 'x'"))
			h.release()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.watched()
				l := &lines{proof: &backend.Proof{}}
				r.deps.Dialer = l
				r.open()
				tc.to(r, l)
				r.sleep(time.Second)
				l.say(tc.word)
				for {
					m := hear[any](r)
					if _, ok := m.(*backend.Hinted); ok {
						continue
					}
					if m, ok := m.(*backend.Lost); !ok || m.Code != pgerr.AdminShutdown || m.Expected || !m.Doubts {
						t.Errorf("%T %+v", m, m)
					}
					break
				}
				r.sleep(time.Minute) // for the cancel
			})
		})
	}
	t.Run("FATAL to a holder that leaves", func(t *testing.T) {
		bubble(t, func(r *rig) {
			l := &lines{}
			r.deps.Dialer = l
			r.open()
			h := r.hold()
			l.say(fatal)
			r.sleep(time.Second)
			h.release()
			r.on(func() {
				if r.b.Usable() || r.b.Resting() {
					t.Error("usable after the server's last word")
				}
			})
		})
	})
	t.Run("a warning that announces nothing", func(t *testing.T) {
		bubble(t, func(r *rig) {
			r.watched()
			l := &lines{proof: &backend.Proof{}}
			r.deps.Dialer = l
			r.open()
			h := r.hold()
			h.send(query("DO $$ BEGIN RAISE WARNING USING ERRCODE = '57P01'; END $$"))
			l.say(warning)
			r.sleep(time.Second)
			r.on(func() {
				if r.b.LastCode() != pgerr.AdminShutdown {
					t.Errorf("the warning was not heard: %q", r.b.LastCode())
				}
			})
			l.say(answer)
			ready(h)
			h.release()
			r.on(func() {
				if r.b.LastCode() != "" || !r.b.Usable() || !r.b.Resting() {
					t.Errorf("not usable after an answer; last code %q", r.b.LastCode())
				}
			})
		})
	})
}

func TestIdleServerTalksNonsense(t *testing.T) {
	for name, m := range map[string]pgproto3.BackendMessage{
		"ReadyForQuery":   &pgproto3.ReadyForQuery{TxStatus: wire.TxIdle},
		"CommandComplete": &pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")},
		"RowDescription":  &pgproto3.RowDescription{},
		"DataRow":         &pgproto3.DataRow{Values: [][]byte{[]byte("whose?")}},
		"CopyData":        &pgproto3.CopyData{Data: []byte("whose?")},
		"ParseComplete":   &pgproto3.ParseComplete{},
		"ErrorResponse":   &pgproto3.ErrorResponse{Severity: "ERROR", Code: "XX000", Message: "whose?"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				l := &lines{}
				r.deps.Dialer = l
				r.open()
				l.say(server(m))
				if m := hear[*backend.Lost](r); m.Expected {
					t.Errorf("%+v", m)
				}
				r.on(func() {
					if r.b.Usable() || r.b.Resting() {
						t.Error("still usable")
					}
				})
			})
		})
	}
}

// A message that a server began while nobody held the connection is not to end in the next client's hands.
func TestHalfAMessageWhileIdle(t *testing.T) {
	bubble(t, func(r *rig) {
		l := &lines{}
		r.deps.Dialer = l
		r.open()
		notice := server(&pgproto3.NoticeResponse{Severity: "NOTICE", Code: "00000", Message: "a long one"})
		l.say(notice[:len(notice)/2])
		r.sleep(time.Second)
		r.on(func() {
			if r.b.Usable() || r.b.Resting() {
				t.Error("usable in the middle of a message")
			}
		})
		l.say(notice[len(notice)/2:])
		r.sleep(time.Second)
		r.on(func() {
			if !r.b.Usable() || !r.b.Resting() {
				t.Error("not usable after the message")
			}
		})
	})
}

// A server that closes while the connection is idle is noticed, also in the instant before the loop is told.
func TestIdleServerCloses(t *testing.T) {
	bubble(t, func(r *rig) {
		l := &lines{}
		r.deps.Dialer = l
		r.open()
		r.sleep(time.Second)
		r.on(func() {
			l.conn.Close()
			for range 1000 { // the stream's reader hears of it in its own time
				if !r.b.Usable() {
					return
				}
				r.sleep(1)
			}
			t.Error("usable although the server has closed")
		})
		if m := hear[*backend.Lost](r); m.Expected || m.Code != "" {
			t.Errorf("%+v", m)
		}
	})
}

// The holder is told that its server connection is gone, and whether something was unanswered.
func TestLostWhileHeld(t *testing.T) {
	for name, tc := range map[string]struct {
		sent messages
		want *pgerr.Error
	}{
		"nothing sent":    {nil, pgerr.ServerLost(false)},
		"unanswered":      {messages{query("SELECT pg_sleep(10), 'x'")}, pgerr.ServerLost(true)},
		"batch unsynced":  {batch("SELECT 'x'"), pgerr.ServerLost(true)},
		"between queries": {messages{query("BEGIN")}, pgerr.ServerLost(false)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.open()
				h := r.hold()
				h.send(tc.sent...)
				r.sleep(time.Second)
				for _, pid := range r.server.PIDs() {
					r.server.Kill(pid)
				}
				m := hear[*backend.Lost](r)
				if m.Code != "57P01" || m.Expected {
					t.Errorf("%+v", m)
				}
				r.on(func() {
					if h.lost == nil || h.lost.Code != tc.want.Code {
						t.Errorf("the holder hears %v", h.lost)
					}
				})
			})
		})
	}
}

// Answers that match no request end the connection: nobody can say any more what belongs to whom.
func TestDesync(t *testing.T) {
	bubble(t, func(r *rig) {
		l := &lines{}
		r.deps.Dialer = l
		r.open()
		h := r.hold()
		h.send(query("SELECT 'x'"))
		l.say(server(&pgproto3.BindComplete{}))
		hear[*backend.Lost](r)
		r.on(func() {
			if h.lost == nil {
				t.Error("the holder hears nothing")
			}
		})
	})
}

// Close says goodbye to the server.
func TestClose(t *testing.T) {
	bubble(t, func(r *rig) {
		l := &lines{}
		r.deps.Dialer = l
		r.open()
		r.system.Root.Send(r.pid, &backend.Close{Why: "enough", Goodbye: true})
		if m := hear[*backend.Lost](r); !m.Expected {
			t.Errorf("%+v", m)
		}
		if got := l.said(r); !bytes.Equal(got, []byte{'X', 0, 0, 0, 4}) {
			t.Errorf("the server hears %q", got)
		}
	})
}

// An actor that stops takes its connection with it, and its holder is told.
func TestStopWhileHeld(t *testing.T) {
	bubble(t, func(r *rig) {
		r.open()
		h := r.hold()
		if err := r.system.Root.StopFuture(r.pid).Wait(); err != nil {
			t.Error(err)
		}
		r.on(func() {
			if h.lost == nil {
				t.Error("the holder hears nothing")
			}
		})
		r.sleep(time.Second)
		if n := r.server.Open(); n != 0 {
			t.Errorf("%d connections are open", n)
		}
	})
}

// A cancel reaches what its holder runs. While it is on its way nobody else gets the connection; when the server has taken
// it the connection is as good as any.
func TestCancel(t *testing.T) {
	bubble(t, func(r *rig) {
		r.dialer.Delay = 500 * time.Millisecond
		r.open()
		h := r.hold()
		h.send(query("SELECT pg_sleep(100), 'x'"))
		done := make(chan struct{})
		r.system.Root.Send(r.pid, &backend.Cancel{Holder: h, Done: func() { close(done) }})
		if m, err := h.f.Receive(); err != nil {
			t.Fatal(err)
		} else if e, ok := m.(*pgproto3.RowDescription); !ok {
			t.Errorf("%T %+v", m, e)
		}
		if m, _ := h.f.Receive(); m.(*pgproto3.ErrorResponse).Code != "57014" {
			t.Errorf("%+v", m)
		}
		ready(h)
		<-done
		if m := <-r.ended; m.Outcome != cancellease.Delivered {
			t.Errorf("%+v", m)
		}
		h.release()
		if got := r.hold().ask("SELECT 'mine'"); got != "mine" {
			t.Errorf("answer %q", got)
		}
	})
}

func TestCancelOnItsWay(t *testing.T) {
	bubble(t, func(r *rig) {
		r.dialer.Delay = 500 * time.Millisecond
		r.open()
		h := r.hold()
		h.send(query("SELECT pg_sleep(0.001), 'x'"))
		r.system.Root.Send(r.pid, &backend.Cancel{Holder: h})
		ready(h)
		h.release()
		r.on(func() {
			if r.b.Usable() || r.b.Cancelling() != 1 {
				t.Error("usable with a cancel on its way")
			}
		})
		<-r.ended
		r.on(func() {
			if !r.b.Usable() || r.b.Cancelling() != 0 {
				t.Error("not usable after the cancel")
			}
		})
	})
}

// A cancel that may still arrive spoils the connection.
func TestCancelUncertain(t *testing.T) {
	bubble(t, func(r *rig) {
		r.dialer.Uncertain, r.dialer.LateBy = 1000, time.Hour
		r.open()
		h := r.hold()
		h.send(query("SELECT pg_sleep(0.001), 'x'"))
		r.system.Root.Send(r.pid, &backend.Cancel{Holder: h})
		ready(h)
		if m := <-r.ended; m.Outcome != cancellease.Uncertain {
			t.Errorf("%+v", m)
		}
		h.release()
		r.on(func() {
			if r.b.Usable() || !r.b.Spoiled() {
				t.Error("usable after a cancel of unknown fate")
			}
		})
	})
}

// A cancel for somebody who has left is dropped.
func TestCancelForWhoHasLeft(t *testing.T) {
	bubble(t, func(r *rig) {
		r.open()
		old := r.hold()
		old.release()
		h := r.hold()
		h.send(query("SELECT pg_sleep(1), 'mine'"))
		done := make(chan struct{})
		r.system.Root.Send(r.pid, &backend.Cancel{Holder: old, Done: func() { close(done) }})
		<-done
		if m := <-r.ended; m.Outcome != cancellease.Dropped {
			t.Errorf("%+v", m)
		}
		ready(h) // and no error before it
	})
}
