package frontend

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/actors/backend"
	"fencepost/actors/lane"
	"fencepost/admin"
	"fencepost/internal/fakepg"
	"fencepost/pgerr"
	"fencepost/wire"
)

const (
	isRolledBack = "not committed: it is rolled back"
	isNotKnown   = "may or may not have taken effect"
	seeds        = 6
)

// A statement unanswered is cut off at once. What the client is told is that it was not committed where that is certain.
func TestSupersededWithSomethingUnanswered(t *testing.T) {
	named := &pgproto3.Parse{Name: "s", Query: "SELECT pg_sleep(0.5), 'x'"}
	for _, c := range []struct {
		name   string
		block  bool
		sent   func(l *lost)
		owes   bool // the server
		code   string
		detail string
	}{
		{"autocommit", false, func(l *lost) { l.write(query(l.sleep())) }, true, "08007", isNotKnown},
		{"in a block", true, func(l *lost) { l.write(query(l.sleep())) }, true, "57P01", isRolledBack},
		{"COMMIT behind it", true, func(l *lost) { l.write(query(l.sleep()), query("COMMIT")) }, true, "08007", isNotKnown},
		{"COMMIT in it", true, func(l *lost) { l.write(query(l.sleep() + "; COMMIT")) }, true, "08007", isNotKnown},
		{"ROLLBACK behind it", true, func(l *lost) { l.write(query(l.sleep()), query("ROLLBACK")) }, true, "57P01", isRolledBack},
		{"behind ROLLBACK", true, func(l *lost) { l.write(query("ROLLBACK"), query(l.sleep())) }, true, "08007", isNotKnown},
		{"a batch", true, func(l *lost) { l.write(extended(l.sleep())...) }, true, "57P01", isRolledBack},
		{"a batch with COMMIT", true, func(l *lost) { l.write(extended(l.sleep(), "COMMIT")...) }, true, "08007", isNotKnown},
		{"a statement of before", true, func(l *lost) {
			l.c.send(named, &pgproto3.Sync{})
			l.c.verify(request{}, "", l.c.read(1))
			l.write(&pgproto3.Bind{PreparedStatement: "s"}, &pgproto3.Execute{}, &pgproto3.Sync{})
		}, true, "08007", isNotKnown},
		{"a batch without its Sync", true, func(l *lost) {
			l.write(&pgproto3.Parse{Query: sel(l.c.tag())}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Flush{})
			l.c.read(0)
		}, false, "57P01", isRolledBack},
		{"a batch without its Sync, autocommit", false, func(l *lost) {
			l.write(&pgproto3.Parse{Query: sel(l.c.tag())}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Flush{})
			l.c.read(0)
		}, false, "08007", isNotKnown},
		{"a block that begins", false, func(l *lost) { l.write(query("BEGIN"), query(l.sleep()), query("COMMIT")); l.c.read(1) }, true, "08007", isNotKnown},
		{"COPY", false, func(l *lost) {
			l.write(query("COPY t FROM STDIN"))
			l.c.read(1)
			l.write(&pgproto3.CopyData{Data: []byte("1\n")})
		}, true, "08007", isNotKnown},
		{"COPY in a block", true, func(l *lost) {
			l.write(query("COPY t FROM STDIN"))
			l.c.read(1)
			l.write(&pgproto3.CopyData{Data: []byte("1\n")})
		}, true, "57P01", isRolledBack},
		{"COPY in a block, and who knows what", true, func(l *lost) {
			l.write(&pgproto3.Parse{Query: "COPY t FROM STDIN"}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Flush{})
			l.c.read(1)
			l.write(&pgproto3.CopyData{Data: []byte("1\n")}, &pgproto3.Sync{})
		}, true, "08007", isNotKnown},
		{"half a message", false, func(l *lost) {
			l.c.simple(l.c.tag())
			l.c.write(encode(query(l.sleep()))[:12])
		}, true, "08007", isNotKnown},
		{"half a message in a block", true, func(l *lost) { l.c.write(encode(query(l.sleep()))[:12]) }, true, "08007", isNotKnown},
		{"half a message behind one", true, func(l *lost) { l.write(query(l.sleep())); l.c.write(encode(query("SELECT 'x'"))[:12]) }, true, "08007", isNotKnown},
		{"half of what no server answers", true, func(l *lost) { l.c.write(encode(&pgproto3.CopyData{Data: []byte("late")})[:7]) }, false, "57P01", isRolledBack},
	} {
		for i, mode := range []Mode{Session, Transaction} {
			for seed := range uint64(seeds / 2) {
				play(t, c.name, 2*seed+uint64(i), mode, func(l *lost) {
					if c.block {
						l.begin()
					}
					c.sent(l)
					time.Sleep(time.Millisecond) // what is answered at once is answered
					l.c.seq++                    // no answer to the last one may come
					b := l.supersede("unanswered", func(f *Frontend) bool {
						return f.phase == active && (f.backend.Tracker.Outstanding() > 0) == c.owes && !(atRest(f) && f.backend.AtBoundary())
					})
					l.fatal(c.code, c.detail)
					l.given(b)
				})
			}
		}
	}
}

// In session mode a client holds its server between transactions, too: it is told at once.
func TestSupersededBetweenTransactions(t *testing.T) {
	for seed := range uint64(seeds) {
		play(t, "rest", seed, Session, func(l *lost) {
			l.c.simple(l.c.tag())
			b := l.supersede("at rest", atRest)
			l.fatal("57P01", whyLost)
			l.given(b)
		})
		play(t, "of another", seed, Session, func(l *lost) { // that it does not hold
			l.c.simple(l.c.tag())
			other := l.loggedIn(1)
			defer other.close()
			other.simple(other.tag())
			l.on(0, func() {
				l.system.Root.Send(l.f.self, &lane.Superseded{Backend: l.nth(0, 0).backend, Why: whyLost})
			})
			l.goesOn(l.c)
			l.goesOn(other)
		})
		play(t, "without a server", seed, Transaction, func(l *lost) {
			l.c.simple(l.c.tag())
			l.on(0, func() {
				l.system.Root.Send(l.f.self, &lane.Superseded{Why: whyLost})
			})
			l.goesOn(l.c)
		})
	}
}

// A transaction with nothing under way is lost without a word; the client hears of it at its next message, whatever that
// is, and can do nothing wrong meanwhile.
func TestSupersededInAQuietTransaction(t *testing.T) {
	for _, c := range []struct {
		name string
		next func(l *lost)
	}{
		{"COMMIT", func(l *lost) { l.write(query("COMMIT")); l.fatal("57P01", isRolledBack) }},
		{"ROLLBACK", func(l *lost) { l.write(query("ROLLBACK")); l.fatal("57P01", isRolledBack) }},
		{"a batch", func(l *lost) { l.write(extended(sel(l.c.tag()), "COMMIT")...); l.fatal("57P01", isRolledBack) }},
		{"Sync", func(l *lost) { l.write(&pgproto3.Sync{}); l.fatal("57P01", isRolledBack) }},
		{"a message in pieces", func(l *lost) {
			b := encode(query("COMMIT"))
			l.c.write(b[:3])
			l.nothing()
			l.c.write(b[3:])
			l.fatal("57P01", isRolledBack)
		}},
		{"what no server answers", func(l *lost) {
			l.write(&pgproto3.Flush{}, &pgproto3.CopyData{Data: bytes.Repeat([]byte("x"), 5000)}, &pgproto3.CopyDone{})
			l.nothing()
			l.write(query("COMMIT"))
			l.fatal("57P01", isRolledBack)
		}},
		{"no message", func(l *lost) {
			l.write(&pgproto3.CopyData{})
			l.c.write([]byte("p\x00\x00\x00\x04"))
			a := l.c.read(100)
			if a.fatal == nil || a.fatal.Code != "08P01" {
				l.problem("told %v", a.fatal)
			}
			l.problems = nil // the client takes it for its own fault
		}},
		{"Terminate", func(l *lost) { l.write(&pgproto3.Terminate{}); l.silence() }},
		{"gone", func(l *lost) { l.c.close() }},
		{"cancel", func(l *lost) {
			done := make(chan struct{}, 1)
			l.system.Root.Send(l.deps.Cancel, &CancelRequest{Key: l.c.key, Done: func() { done <- struct{}{} }})
			<-done
			l.nothing()
			l.write(query("COMMIT"))
			l.fatal("57P01", isRolledBack)
		}},
		{"drain", func(l *lost) {
			l.system.Root.Send(l.parents[0], &admin.Drain{})
			l.fatal("57P01", isRolledBack)
		}},
		{"drain at once", func(l *lost) {
			l.system.Root.Send(l.parents[0], &admin.Drain{AtOnce: true})
			l.fatal("57P01", isRolledBack)
		}},
		{"reload", func(l *lost) {
			l.reload()
			l.nothing()
			l.write(query("COMMIT"))
			l.fatal("57P01", isRolledBack)
		}},
		{"kill", func(l *lost) {
			l.kill(0, 0)
			if a := l.c.read(100); a.fatal == nil || a.fatal.Message != "admin forced disconnect" {
				l.problem("told %v", a.fatal)
			}
		}},
	} {
		for i, mode := range []Mode{Session, Transaction} {
			for _, failed := range []bool{false, true} {
				play(t, c.name, uint64(i)+uint64(len(c.name)), mode, func(l *lost) {
					l.begin()
					if failed {
						tag := l.c.tag()
						l.c.send(query(raise(tag)))
						l.c.verify(request{code: "P0001", status: wire.TxFailed}, tag, l.c.read(1))
					}
					b := l.supersede("at rest", atRest)
					l.nothing()
					l.given(b)
					l.on(0, func() {
						if row := l.f.row(); row.State != "idle" || row.Backend != 0 {
							l.problem("shown as %+v", row)
						}
					})
					c.next(l)
				})
			}
		}
	}
	play(t, "to end anyway", 1, Session, func(l *lost) {
		l.begin()
		l.system.Root.Send(l.parents[0], &admin.Drain{})
		l.nothing()
		b := l.supersede("at rest", atRest)
		l.fatal("57P01", isRolledBack)
		l.given(b)
	})
}

// What the server said last is the last word, though its connection is still there.
func TestSupersededBehindAFatalError(t *testing.T) {
	for seed := range uint64(seeds) {
		play(t, "told", seed, []Mode{Session, Transaction}[seed%2], func(l *lost) {
			l.write(query(l.sleep()))
			var b *backend.Backend
			l.when("asked", func(f *Frontend) bool { return f.phase == active }, func() {
				b = l.f.backend
				b.OnData(nil, wire.AppendError(nil, pgerr.FromServer("FATAL", "57P01", "by the server", "", "")))
				l.f.superseded(&lane.Superseded{Backend: b, Why: whyLost})
			})
			if a := l.c.read(100); a.fatal == nil || a.fatal.Message != "by the server" {
				l.problem("told %+v", a.fatal)
			}
			l.given(b)
		})
	}
}

// A warning that announces the server's end is no last word for the client: drivers act on errors only.
func TestEndBehindAWarning(t *testing.T) {
	ends := map[string]func(l *lost, b *backend.Backend){
		"lost":       func(_ *lost, b *backend.Backend) { b.OnClosed(nil, io.EOF) },
		"superseded": func(l *lost, b *backend.Backend) { l.f.superseded(&lane.Superseded{Backend: b, Why: whyLost}) },
	}
	for name, end := range ends {
		for seed := range uint64(seeds) {
			play(t, name, seed, []Mode{Session, Transaction}[seed%2], func(l *lost) {
				l.write(query(l.sleep()))
				var b *backend.Backend
				l.when("asked", func(f *Frontend) bool { return f.phase == active }, func() {
					b = l.f.backend
					warning, _ := (&pgproto3.NoticeResponse{Severity: "WARNING", SeverityUnlocalized: "WARNING", Code: "57P01", Message: "by the server"}).Encode(nil)
					if b.OnData(nil, warning); b.LastCode() != "57P01" {
						l.problem("the warning was not heard: %q", b.LastCode())
					}
					end(l, b)
				})
				if a := l.c.read(100); a.fatal == nil || a.fatal.Code != "08007" || len(a.notices) != 1 {
					l.problem("told %+v behind %v", a.fatal, a.notices)
				}
			})
		}
	}
}

// A transaction that is over, with bytes on their way that no server will answer, costs the client nothing.
func TestSupersededWithNothingButLateBytes(t *testing.T) {
	played := 0
	for seed := range uint64(2 * seeds) {
		play(t, "copy", seed, Transaction, func(l *lost) {
			l.slow(fakepg.Faults{Slow: 1000, SlowBy: time.Second})
			l.write(query("COPY t FROM STDIN"))
			l.c.read(1)
			l.c.nc.SetWriteDeadline(time.Now().Add(time.Minute))
			written := make(chan struct{})
			go func() {
				defer close(written)
				l.write(&pgproto3.CopyData{Data: []byte("bad\n")})
				for range 20 + seed%7 { // some of it is still ours when the server has failed
					l.write(&pgproto3.CopyData{Data: bytes.Repeat([]byte("1\n"), 4000)})
				}
			}()
			if a := l.c.read(1); a.code() != "22P02" {
				l.problem("told %v", a.errors)
			}
			late := func(f *Frontend) bool { return f.backend != nil && atRest(f) && f.backend.Queued() > 0 }
			for range 30000 {
				is := false
				if l.on(0, func() { is = late(l.f) }); is {
					played++
					l.given(l.supersede("late", late))
					break
				}
				time.Sleep(time.Millisecond)
			}
			<-written
			l.goesOn(l.c)
		})
	}
	if played == 0 {
		t.Error("nothing was late")
	}
}

// The answer of which a client has half cannot be followed by an error: the connection ends.
func TestSupersededInTheMiddleOfAnAnswer(t *testing.T) {
	for seed := range uint64(seeds) {
		play(t, "rows", seed, []Mode{Session, Transaction}[seed%2], func(l *lost) {
			l.write(query("SELECT '" + strings.Repeat("long", 1000) + "' FROM generate_series(1,300)"))
			b := l.supersede("in the middle", func(f *Frontend) bool { return f.midAnswer })
			l.c.nc.SetReadDeadline(time.Now().Add(time.Minute))
			all, err := io.ReadAll(l.c.nc)
			if err != nil || bytes.Contains(all, []byte("FATAL")) || !bytes.Contains(all, []byte("longlong")) {
				l.problem("%d bytes, %v", len(all), err)
			}
			l.given(b)
		})
	}
}

// A server that is being given the client's parameters has got nothing of the client's: another one answers.
func TestSupersededWhileApplyingParams(t *testing.T) {
	apply := func(l *lost) {
		l.c.send(query("SET application_name = 'mine'"))
		l.c.verify(request{}, "", l.c.read(1))
		l.slow(fakepg.Faults{Slow: 1000, SlowBy: 200 * time.Millisecond})
		l.write(query(sel(l.c.tag())))
	}
	applyingParams := func(f *Frontend) bool { return f.phase == applyingParams }
	for seed := range uint64(seeds) {
		play(t, "answered", seed, Transaction, func(l *lost) {
			apply(l)
			var since time.Time
			l.when("applyingParams", applyingParams, func() {
				since = l.f.checkout.Enqueued
				l.f.backend.OnData(nil, wire.AppendError(nil, pgerr.ConsoleError("of the first server"))) // nobody's any more
			})
			b := l.supersede("applyingParams", applyingParams)
			tag := fmt.Sprintf("c0.%d", l.c.seq)
			l.c.verify(request{rows: []string{tag}}, tag, l.c.read(1))
			l.on(0, func() {
				if b == nil || l.told.spoiled[b] != 1 || l.told.checkins[b] != 0 || b.Resting() || !l.f.checkout.Enqueued.Equal(since) {
					l.problem("spoiled %d, checked in %d times, waits since %v", l.told.spoiled[b], l.told.checkins[b], l.f.checkout.Enqueued.Sub(since))
				}
			})
			l.goesOn(l.c)
		})
		play(t, "cancelled", seed, Transaction, func(l *lost) {
			apply(l)
			l.c.cancelled = true
			l.when("applyingParams", applyingParams, func() { l.system.Root.Send(l.f.self, &CancelQuery{Done: func() {}}) })
			b := l.supersede("cancelled", func(f *Frontend) bool { return applyingParams(f) && f.cancelled })
			l.c.verify(request{code: "57014"}, "", l.c.read(1))
			l.given(b)
			l.goesOn(l.c)
		})
		play(t, "to end", seed, Transaction, func(l *lost) {
			apply(l)
			l.when("applyingParams", applyingParams, func() { l.f.drain(pgerr.Shutdown(), false) })
			b := l.supersede("to end", func(f *Frontend) bool { return applyingParams(f) && f.ending != nil })
			if a := l.c.read(1); a.fatal == nil || a.fatal.Message != pgerr.Shutdown().Message {
				l.problem("told %v", a.fatal)
			}
			time.Sleep(10 * time.Millisecond)
			l.on(0, func() {
				if l.told.spoiled[b]+l.told.checkins[b] != 1 {
					l.problem("spoiled %d, checked in %d times", l.told.spoiled[b], l.told.checkins[b])
				}
			})
		})
	}
}
