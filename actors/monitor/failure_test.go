package monitor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/role"
	"fencepost/wire"
)

// What a first attempt to connect may come to, and what a shard is told of it within the time given.
func TestFirstAttempt(t *testing.T) {
	closing := func(c *fakeConn) { c.be.ReceiveStartupMessage() }
	for name, tc := range map[string]struct {
		host handler
		want string
		in   time.Duration
	}{
		"refused":      {errno(syscall.ECONNREFUSED), "Refused closed, State closed", 0},
		"no socket":    {errno(syscall.ENOENT), "Refused closed, State closed", 0},
		"reset":        {errno(syscall.ECONNRESET), "Refused reset, State reset", 0},
		"no route":     {errno(syscall.EHOSTUNREACH), "Failed unreachable, State unreachable", 0},
		"no network":   {errno(syscall.ENETUNREACH), "Failed unreachable, State unreachable", 0},
		"kernel tired": {errno(syscall.ETIMEDOUT), "Failed unreachable, State unreachable", 0},
		"blackhole":    {blackhole, "Failed unreachable, State unreachable", 3 * time.Second},
		"out of files": {errno(syscall.EMFILE), "Failed local, State local", 0},
		"closed first": {handler{serve: closing}, "Refused reset, State reset", 0},
		"broken first": {handler{serve: func(c *fakeConn) { c.Break(syscall.ECONNRESET) }}, "Refused reset, State reset", 0},
		"starting": {handler{serve: func(c *fakeConn) { closing(c); c.fail("FATAL", "57P03") }},
			"Refused starting 57P03, State starting", 0},
		"rejected": {handler{serve: func(c *fakeConn) { closing(c); c.fail("FATAL", "28000") }},
			"Failed rejected 28000, State rejected", 0},
		"asks for a password": {handler{serve: func(c *fakeConn) { // there is none, and none is sent
			closing(c)
			c.send(&pgproto3.AuthenticationMD5Password{})
			if n, _ := c.Read(make([]byte, 1)); n > 0 {
				panic("an empty password was sent")
			}
		}}, "Failed rejected 28000, State rejected", 0},
		"full": {handler{serve: func(c *fakeConn) { closing(c); c.fail("FATAL", "53300") }},
			"Failed rejected 53300, State rejected", 0},
		"shutdown": {handler{serve: func(c *fakeConn) { closing(c); c.fail("FATAL", "57P01") }},
			"Failed broken 57P01, State broken", 0},
		"broken later": {handler{serve: func(c *fakeConn) { closing(c); c.send(&pgproto3.AuthenticationOk{}) }},
			"Failed broken, State broken", 0},
		"silent": {handler{serve: func(c *fakeConn) { closing(c); hang(c) }}, "Failed silent, State silent", 10 * time.Second},
		"trickle": {handler{serve: func(c *fakeConn) {
			closing(c)
			for { // for ever something, never enough
				c.Write([]byte{'N', 0, 0, 0, 5, 0})
				c.SetReadDeadline(time.Now().Add(time.Second))
				if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
					return
				}
			}
		}}, "Failed silent, State silent", 10 * time.Second},
		"web server": {handler{serve: func(c *fakeConn) { closing(c); c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }},
			"Failed garbled, State garbled", 0},
		"too long": {handler{serve: func(c *fakeConn) { closing(c); c.Write([]byte{'R', 0, 0x20, 0, 0}); hang(c) }},
			"Failed garbled, State garbled", 0},
		"nonsense": {handler{serve: func(c *fakeConn) { closing(c); c.send(&pgproto3.CopyDone{}) }},
			"Failed garbled, State garbled", 0},
		"no code": {handler{serve: func(c *fakeConn) { closing(c); c.fail("FATAL", "") }},
			"Failed garbled, State garbled", 0},
		"lost at the first question": {handler{serve: func(c *fakeConn) { c.login(); c.query() }},
			"Failed broken, State broken", 0},
		"no answer to the first question": {handler{serve: func(c *fakeConn) { c.login(); hang(c) }},
			"Failed silent, State silent", 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := started(t, newFake(tc.host, blackhole), nil)
				time.Sleep(tc.in)
				synctest.Wait()
				got := s.drop()
				if kinds(got) != tc.want {
					t.Errorf("got %s, want %s", kinds(got), tc.want)
				}
				var err error
				var asked time.Time
				switch m := got[0].(type) {
				case *Refused:
					err, asked = m.Err, m.Asked
				case *Failed:
					err, asked = m.Err, m.Asked
				}
				if err == nil || time.Since(asked) != tc.in {
					t.Errorf("asked %v ago, %v", time.Since(asked), err)
				}
			})
		})
	}
}

// A credential source that fails, blocks or panics is a fault of ours and says nothing about the host.
func TestCredentials(t *testing.T) {
	for name, tc := range map[string]struct {
		password func(context.Context) (string, error)
		want     string
		in       time.Duration
	}{
		"fails":  {func(context.Context) (string, error) { return "", errors.New("vault is sealed") }, "Failed local, State local", 0},
		"blocks": {func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }, "Failed local, State local", 10 * time.Second},
		"panics": {func(context.Context) (string, error) { panic("it was to") }, "Failed local, State local", 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := started(t, newFake(healthy), func(c *Config) { c.Password = tc.password })
				time.Sleep(tc.in)
				synctest.Wait()
				if got := kinds(s.drop()); got != tc.want {
					t.Errorf("got %s, want %s", got, tc.want)
				}
			})
		})
	}
}

// What can happen on a connection that is logged in, and what follows when the reconnect is refused.
func TestLosses(t *testing.T) {
	then := func(what func(c *fakeConn)) handler {
		return serving(func(c *fakeConn, n int) bool {
			if n == 0 {
				c.row(writable...)
				return true
			}
			what(c)
			return false
		})
	}
	const first = "Observed writable, State up, "
	for name, tc := range map[string]struct {
		host handler
		want string
		in   time.Duration
		more []handler // before the refusal
	}{
		"closed instead of an answer": {then(func(*fakeConn) {}), "Lost broken, State connecting, Refused closed after loss, State closed", time.Second, nil},
		"reset": {then(func(c *fakeConn) { c.Break(syscall.ECONNRESET) }),
			"Lost broken, State connecting, Refused closed after loss, State closed", time.Second, nil},
		"shut down": {then(func(c *fakeConn) { c.fail("FATAL", "57P01") }),
			"Lost broken 57P01, State connecting, Refused closed after loss, State closed", time.Second, nil},
		"crash": {then(func(c *fakeConn) { c.send(&pgproto3.NoticeResponse{Severity: "WARNING", Code: "57P02"}) }),
			"Lost broken 57P02, State connecting, Refused closed after loss, State closed", time.Second, nil},
		"idle for too long": {then(func(c *fakeConn) { c.fail("FATAL", "57P05") }),
			"Lost broken 57P05 expected, State connecting, Refused closed, State closed", time.Second, nil},
		"garbage": {then(func(c *fakeConn) { c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }),
			"Lost garbled expected, State connecting, Refused closed, State closed", time.Second, nil},
		"two rows": {then(func(c *fakeConn) {
			r := &pgproto3.DataRow{Values: [][]byte{nil}}
			c.send(r, r, &pgproto3.CommandComplete{CommandTag: []byte("SELECT 2")}, &pgproto3.ReadyForQuery{TxStatus: wire.TxIdle})
		}), "Lost garbled expected, State connecting, Refused closed, State closed", time.Second, nil},
		"in a transaction": {then(func(c *fakeConn) { c.send(&pgproto3.ReadyForQuery{TxStatus: wire.TxOpen}) }),
			"Lost garbled expected, State connecting, Refused closed, State closed", time.Second, nil},
		"chatter": {then(func(c *fakeConn) {
			for range maxMessages + 1 {
				c.send(&pgproto3.NoticeResponse{Severity: "NOTICE", Code: "00000"})
			}
			hang(c)
		}), "Lost garbled expected, State connecting, Refused closed, State closed", time.Second, nil},
		"no answer": {then(func(c *fakeConn) { hang(c) }),
			"Late, Lost silent, State connecting, Refused closed after loss, State closed", 11 * time.Second, []handler{errno(syscall.ECONNREFUSED)}}, // for the cancel beside it
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := started(t, newFake(slices.Concat([]handler{tc.host}, tc.more, []handler{errno(syscall.ECONNREFUSED), blackhole})...), nil)
				time.Sleep(tc.in)
				synctest.Wait()
				if got := kinds(s.drop()); got != first+tc.want {
					t.Errorf("got  %s\nwant %s", got, first+tc.want)
				}
			})
		})
	}
}

// What comes while no probe is under way is heard at once: the end, and what servers say unasked.
func TestBetweenProbes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := started(t, newFake(serving(func(c *fakeConn, _ int) bool {
			c.row(writable...)
			time.Sleep(100 * time.Millisecond)
			c.send(&pgproto3.ParameterStatus{Name: "TimeZone", Value: "UTC"}, &pgproto3.NotificationResponse{Channel: "x"},
				&pgproto3.NoticeResponse{Severity: "NOTICE", Code: "00000"})
			time.Sleep(100 * time.Millisecond)
			c.fail("FATAL", "57P01")
			return false
		}), errno(syscall.ECONNREFUSED), blackhole), nil)
		time.Sleep(199 * time.Millisecond)
		if got := kinds(s.drop()); got != "Observed writable, State up" {
			t.Error(got)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got := kinds(s.drop()); got != "Lost broken 57P01, State connecting" {
			t.Error(got)
		}
	})
}

// Only the first attempt after a loss is AfterLoss, also when a slow one comes in between, and none after a connection.
func TestAfterLoss(t *testing.T) {
	once := serving(func(c *fakeConn, n int) bool {
		if n < 2 {
			c.row(writable...)
		}
		return n < 2
	})
	starting := handler{serve: func(c *fakeConn) { c.be.ReceiveStartupMessage(); c.fail("FATAL", "57P03") }}
	closing := handler{serve: func(c *fakeConn) { c.be.ReceiveStartupMessage() }}
	for name, tc := range map[string]struct {
		script []handler
		want   string
	}{
		"starting":  {[]handler{once, starting, starting, blackhole}, "Refused starting 57P03 after loss, State starting, Refused starting 57P03"},
		"closed":    {[]handler{once, closing, closing, blackhole}, "Refused reset after loss, State reset, Refused reset"},
		"rejected":  {[]handler{once, errno(syscall.EHOSTUNREACH), starting, blackhole}, "Failed unreachable, State unreachable, Refused starting 57P03, State starting"},
		"back":      {[]handler{once, once, blackhole}, "Observed writable, State up, Observed writable"},
		"back, out": {[]handler{closing, once, blackhole}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := started(t, newFake(tc.script...), nil)
				if name == "back, out" {
					find(t, s, "observation after a refusal", verdict(role.Writable))
					return
				}
				find[*Lost](t, s, "loss", nil)
				find(t, s, "state", isKind(Connecting))
				time.Sleep(1500 * time.Millisecond)
				if got := kinds(s.drop()); got != tc.want {
					t.Errorf("got  %s\nwant %s", got, tc.want)
				}
			})
		})
	}
}

// A query that the server did not answer in time is cancelled, with the key of its session.
func TestCancelOfAnUnansweredProbe(t *testing.T) {
	bubble(t, func(t *testing.T) { // two of the same, since the cancel and the new connection race
		h := newFake(serving(func(c *fakeConn, _ int) bool { return hang(c) }), healthy, healthy)
		s := started(t, h, nil)
		find[*Lost](t, s, "loss", nil)
		find(t, s, "observation", verdict(role.Writable))
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.cancels) != 1 || h.cancels[0].ProcessID != 7 || !slices.Equal(h.cancels[0].SecretKey, []byte{1, 2, 3, 4}) {
			t.Errorf("%+v", h.cancels)
		}
	})
}

// An answer that is an error, or that lacks or contradicts something, is no observation; the connection goes on.
func TestSenseless(t *testing.T) {
	with := func(col int, value string) func(*fakeConn) {
		return func(c *fakeConn) {
			row := slices.Clone(writable)
			row[col] = value
			c.row(row...)
		}
	}
	for name, answer := range map[string]func(*fakeConn){
		"error": func(c *fakeConn) { c.fail("ERROR", "XX001"); c.send(&pgproto3.ReadyForQuery{TxStatus: wire.TxIdle}) },
		"no row": func(c *fakeConn) {
			c.send(&pgproto3.EmptyQueryResponse{}, &pgproto3.ReadyForQuery{TxStatus: wire.TxIdle})
		},
		"no columns":  func(c *fakeConn) { c.row() },
		"no recovery": with(1, ""), "bad recovery": with(1, "maybe"), "no file": with(5, ""), "bad file": with(5, "xyz"),
		"timeline 0": with(5, "000000000000000000000001"), "bad LSN": with(7, "5"), "no LSN": with(7, ""),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := newFake(serving(func(c *fakeConn, n int) bool {
					if n == 1 {
						answer(c)
					} else {
						c.row(writable...)
					}
					return true
				}))
				s := started(t, h, nil)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				code := map[bool]string{true: " XX001"}[name == "error"]
				want := "Observed writable, State up, Failed senseless" + code + ", State senseless, Observed writable, State up"
				if got := kinds(s.drop()); got != want || len(h.times()) != 1 {
					t.Errorf("got  %s (%d connections)\nwant %s", got, len(h.times()), want)
				}
			})
		})
	}
}

// The row is the server's own although it is followed by more than the buffer holds.
func TestRowBeforeChatter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := started(t, newFake(serving(func(c *fakeConn, _ int) bool {
			r := &pgproto3.DataRow{}
			for _, v := range writable {
				r.Values = append(r.Values, map[bool][]byte{false: []byte(v)}[v == ""])
			}
			c.send(r)
			for range 20 {
				c.send(&pgproto3.NoticeResponse{Severity: "NOTICE", Code: "00000", Message: strings.Repeat("x", 10000)})
			}
			c.send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")}, &pgproto3.ReadyForQuery{TxStatus: wire.TxIdle})
			return true
		})), nil)
		if o := find[*Observed](t, s, "observation", nil); o.Verdict != role.Writable || o.Timeline != 3 || o.SystemID != 77 {
			t.Errorf("%+v", o)
		}
	})
}

// A server that does not let the monitor call pg_control_system() is asked without it, once refused.
func TestDenied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var queries []string
		h := newFake(handler{serve: func(c *fakeConn) {
			c.login()
			for {
				switch q := c.query(); q {
				case "":
					return
				case role.AuroraCheck:
					c.row("f")
				case role.IdentityQuery:
					queries = append(queries, "full")
					c.fail("ERROR", "42501")
					c.send(&pgproto3.ReadyForQuery{TxStatus: wire.TxIdle})
				case role.IdentityQueryNoControl:
					queries = append(queries, "reduced")
					row := slices.Clone(writable)
					row[4] = ""
					c.row(row...)
				}
			}
		}})
		s := started(t, h, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := s.drop(); kinds(got) != "Observed writable, State up, Observed writable" || got[0].(*Observed).SystemID != 0 {
			t.Error(kinds(got))
		}
		if fmt.Sprint(queries) != "[full reduced reduced]" {
			t.Error(queries)
		}
	})
}

// Aurora is recognised and asked in its own way.
func TestAurora(t *testing.T) {
	reader := []string{"aurora", "t", "off", "", "", "", "", "", "21500", "", "7", "1000000"}
	writer := []string{"aurora", "f", "off", "", "", "", "", "", "", "", "7", "1000000"}
	bubble(t, func(t *testing.T) {
		h := newFake(handler{serve: func(c *fakeConn) {
			c.login()
			for n := 0; ; {
				switch q := c.query(); q {
				case "":
					return
				case role.AuroraCheck:
					c.row("t")
				case role.AuroraQuery:
					if n++; n == 1 {
						c.row(reader...)
					} else {
						c.row(writer...)
					}
				default:
					c.fail("ERROR", "0A000")
					c.send(&pgproto3.ReadyForQuery{TxStatus: wire.TxIdle})
				}
			}
		}})
		s := started(t, h, nil)
		o := find[*Observed](t, s, "observation", nil)
		if o.Verdict != role.InRecovery || !o.NoTimelines || o.Lag != 21500*time.Microsecond || !o.LagKnown || o.SystemID != 0 || o.Timeline != 0 {
			t.Errorf("reader: %+v", o)
		}
		o = find[*Observed](t, s, "observation", nil)
		if o.Verdict != role.Writable || !o.NoTimelines || o.LagKnown {
			t.Errorf("writer: %+v", o)
		}
	})
}
