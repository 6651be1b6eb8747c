package e2e

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"fencepost/wire"
)

// labWithFake has a real server behind its databases session and transaction, and a fake one behind the databases fake and
// fake_session.
func labWithFake(t testing.TB, script func(c *fakeConn) error, lines ...string) (*lab, *fakeServer) {
	t.Helper()
	f := startFake(t, script)
	n, db := newDatabase(t, "18")
	s := settings{host: n.Addr(), dbname: db, lines: lines, sections: fmt.Sprintf(`[shards.fake]
hosts = [{ addr = %q, role = "any" }]
[databases.fake]
shard = "fake"
[databases.fake_session]
shard = "fake"
pool_mode = "session"
`, f.addr)}
	return &lab{t: t, node: n, db: db, pooler: startPooler(t, s)}, f
}

var dataRow = wire.AppendDataRow(wire.AppendRowDescription(nil, []wire.Column{{Name: "x", Type: 25}}), []string{"value"})

func serverError(severity, code, message string) []byte {
	body := "S" + severity + "\x00V" + severity + "\x00C" + code + "\x00M" + message + "\x00\x00"
	return typed(wire.MsgErrorResponse, []byte(body))
}

// badLogins are servers that a login fails at. The client is told within client_login_timeout.
var badLogins = []struct {
	name   string
	script func(c *fakeConn) error
	code   string
}{
	{"closes at once", func(c *fakeConn) error { return errLeave }, "57P03"},
	{"says nothing", (*fakeConn).silence, "57P03"},
	{"closes after AuthenticationOk", func(c *fakeConn) error { return c.put(authOK) }, "57P03"},
	{"says nothing after AuthenticationOk", func(c *fakeConn) error { _ = c.put(authOK); return c.silence() }, "57P03"},
	{"closes in the middle of a message", func(c *fakeConn) error { return c.put(append(authOK[:9:9], "S\x00\x00\x00\x20server"...)) }, "57P03"},
	{"speaks something else", func(c *fakeConn) error { _ = c.put([]byte("220 mail.example.com ESMTP\r\n")); return c.silence() }, "57P03"},
	{"sends a length of 2^31-1", func(c *fakeConn) error { _ = c.put([]byte("R\x7f\xff\xff\xff\x00\x00\x00\x00")); return c.silence() }, "57P03"},
	{"sends a length of 0", func(c *fakeConn) error { _ = c.put([]byte("R\x00\x00\x00\x00\x00\x00\x00\x00")); return c.silence() }, "57P03"},
	{"asks for an unknown kind of proof", func(c *fakeConn) error {
		_ = c.put(typed(wire.MsgAuthentication, []byte{0, 0, 0, 99}))
		return c.silence()
	}, "57P03"},
	{"has too many clients", func(c *fakeConn) error {
		return c.put(serverError("FATAL", "53300", "sorry, too many clients already"))
	}, "53300"},
	{"refuses the user", func(c *fakeConn) error { return c.put(serverError("FATAL", "28000", "no pg_hba.conf entry")) }, "28000"},
	{"is starting up", func(c *fakeConn) error {
		return c.put(serverError("FATAL", "57P03", "the database system is starting up"))
	}, "57P03"},
}

func TestServersThatFailLogins(t *testing.T) {
	t.Parallel()
	for _, bad := range badLogins {
		t.Run(bad.name, func(t *testing.T) {
			t.Parallel()
			l, f := labWithFake(t, bad.script, `server_connect_timeout = "500ms"`, `client_login_timeout = "2s"`)
			// The first, one that comes while it waits, and one that comes when it has failed.
			l.each(3, func(i int) error {
				if i == 1 {
					<-time.After(200 * time.Millisecond)
				}
				if i == 2 {
					<-time.After(2500 * time.Millisecond)
				}
				began := time.Now()
				got, err := greet(l.pooler.addr, startupPacket(version30, "user", anyUser, "database", "fake"))
				if err != nil || got != "E["+bad.code+"] EOF" {
					return fmt.Errorf("%s, %w; want E[%s]", got, err, bad.code)
				}
				if took := time.Since(began); took > 4*time.Second {
					return fmt.Errorf("it took %s", took)
				}
				return nil
			})
			if n := f.logins.Load(); n > 40 {
				t.Errorf("%d attempts to log in", n)
			}
			healthy(t, l)
		})
	}
}

// badServerAnswers are answers to a query. want is what the client sees of it, or one of two such; "" for any beginning of
// the nonsense, then the end: what was forwarded before it was seen cannot be called back.
var badServerAnswers = []struct {
	name   string
	answer [][]byte // nil: the connection is closed
	want   string
}{
	{"closes", [][]byte{nil}, "E[08007] EOF"},
	{"closes in the middle of an answer", [][]byte{dataRow, nil}, "T D[value] E[08007] EOF"},
	{"closes in the middle of a message", [][]byte{dataRow[:len(dataRow)-3], nil}, "T EOF"},
	{"closes in the middle of a header", [][]byte{dataRow, complete[:3], nil}, "T D[value] EOF|T D[value] E[08007] EOF"},
	{"closes before ReadyForQuery", [][]byte{dataRow, complete, nil}, "T D[value] C[SELECT 1] E[08007] EOF"},
	{"says why and closes", [][]byte{serverError("FATAL", "57P01", "terminating connection due to administrator command"), nil}, "E[57P01] EOF"},
	{"says that it crashed, and closes", [][]byte{serverError("FATAL", "57P02", "crash"), nil}, "E[57P02] EOF"},
	{"sends a message that answers something else", [][]byte{typed(wire.MsgParseComplete, nil)}, ""},
	{"sends an unknown message", [][]byte{typed('q', []byte("abc"))}, ""},
	{"sends a length of 3", [][]byte{[]byte("D\x00\x00\x00\x03")}, ""},
	{"sends a length of 2^31", [][]byte{[]byte("D\x80\x00\x00\x00")}, ""},
	{"sends garbage", [][]byte{[]byte("\x00\xff\x00\xff\x00\xff\x00\xff")}, ""},
	{"sends text", [][]byte{[]byte("HTTP/1.1 400 Bad Request\r\n\r\n")}, ""},
	{"sends an impossible status", [][]byte{complete, typed(wire.MsgReadyForQuery, []byte("x"))}, ""},
	{"sends ReadyForQuery without a status", [][]byte{complete, typed(wire.MsgReadyForQuery, nil)}, ""},
	{"asks for a password", [][]byte{typed(wire.MsgAuthentication, []byte{0, 0, 0, 3})}, ""},
}

func TestServersThatAnswerNonsense(t *testing.T) {
	t.Parallel()
	for _, bad := range badServerAnswers {
		t.Run(bad.name, func(t *testing.T) {
			t.Parallel()
			l, _ := labWithFake(t, always(bad.answer...), "default_pool_size = 2")
			if bad.want == "" {
				l.pooler.Tolerate("server protocol violation")
			}
			for _, database := range []string{"fake", "fake_session"} {
				for range 3 { // more than the pool has
					c := mustLogin(t, place{database, l.pooler.addr, database})
					got, err := c.exchange(1, query("SELECT 1"))
					if bad.want == "" && (!strings.HasSuffix(got, "EOF") || strings.Contains(got, "Z[")) || bad.want != "" && !slices.Contains(strings.Split(bad.want, "|"), got) {
						t.Errorf("%s: %s, %v; want %s", database, got, err, bad.want)
					}
				}
			}
			healthy(t, l)
			l.poolsAtRest()
		})
	}
}

// A server that says more than it was asked: what comes behind the end of a transaction is nobody's answer.
func TestServersThatSayTooMuch(t *testing.T) {
	t.Parallel()
	for name, more := range map[string][]byte{"a row": dataRow, "another answer": append(complete[:len(complete):len(complete)], ready...), "ReadyForQuery": ready,
		"garbage": []byte("\xff\xff\xff\xff\xff\xff"), "FATAL": serverError("FATAL", "57P01", "bye")} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late %t", name, late), func(t *testing.T) {
				t.Parallel()
				whole := append(append(append([]byte(nil), dataRow...), complete...), ready...)
				l, _ := labWithFake(t, func(c *fakeConn) error {
					if err := c.welcome(); err != nil {
						return err
					}
					return c.serve(func(byte, []byte) error {
						if !late {
							return c.put(append(whole[:len(whole):len(whole)], more...))
						}
						if err := c.put(whole); err != nil {
							return err
						}
						return c.after(100*time.Millisecond, more)
					})
				})
				l.pooler.Tolerate("server protocol violation")
				c := mustLogin(t, place{"fake", l.pooler.addr, "fake"})
				for i := range 5 {
					got, err := c.exchange(1, query("SELECT 1"))
					check(t, fmt.Sprintf("query %d", i), got, err, "T D[value] C[SELECT 1] Z[I]")
					if late {
						<-time.After(200 * time.Millisecond)
					}
				}
				healthy(t, l)
			})
		}
	}
}

// A server that never answers a query: the client can cancel, which the server does not obey either, and leave; neither
// holds up anybody else, and the connection is not used again.
func TestServerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	l, f := labWithFake(t, always(), "default_pool_size = 2", `cancel_ack_timeout = "500ms"`)
	l.pooler.Tolerate("cancel request failed")
	for i := range 6 {
		c := mustLogin(t, place{"fake", l.pooler.addr, "fake"})
		if err := c.send(query("SELECT 1")); err != nil {
			t.Fatal(err)
		}
		if err := poll(patience, func() (bool, error) { return f.logins.Load() >= int64(i/2+1), nil }); err != nil {
			t.Fatal(err)
		}
		if err := c.cancel(l.pooler.addr); err != nil {
			t.Fatal(err)
		}
		departures[i%3].go_(c)
		c.nc.Close()
	}
	l.poolsAtRest()
	if f.cancels.Load() == 0 {
		t.Error("no cancel reached the server")
	}
	healthy(t, l)
}

// Rows of a gigabyte from a server that dies in the middle of one: what was sent is sent, nothing is made up.
func TestServerThatDiesInARow(t *testing.T) {
	t.Parallel()
	row := append([]byte{wire.MsgDataRow}, binary.BigEndian.AppendUint32(nil, 1<<30-1)...)
	l, _ := labWithFake(t, always(row, []byte(strings.Repeat("x", 1<<20)), nil))
	c := mustLogin(t, place{"fake", l.pooler.addr, "fake"})
	if err := c.send(query("SELECT 1")); err != nil {
		t.Fatal(err)
	}
	_, err := c.next()
	if !gone(err) {
		t.Errorf("a row that is cut off is followed by %v, want the end", err)
	}
	healthy(t, l)
}
