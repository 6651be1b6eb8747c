package e2e

import (
	"encoding/binary"
	"strings"
	"syscall"
	"testing"
	"time"

	"fencepost/wire"
)

func lengthWord(n uint32, rest string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, n), rest...)
}

// badGreetings are first packets that begin no session. Each ends with an error of this code, or without a word, and with
// the connection closed.
var badGreetings = []struct {
	name   string
	packet []byte
	code   string // "" for a close without a word
}{
	{"length 0", lengthWord(0, "xxxx"), "08P01"},
	{"length 4", lengthWord(4, "xxxx"), "08P01"},
	{"length 7", lengthWord(7, "xxxx"), "08P01"},
	{"length just above the limit", lengthWord(10001, "\x00\x03\x00\x00"), "08P01"},
	{"length 2^31-1", lengthWord(0x7fffffff, "\x00\x03\x00\x00user\x00x\x00\x00"), "08P01"},
	{"length 2^31", lengthWord(0x80000000, "\x00\x03\x00\x00user\x00x\x00\x00"), "08P01"},
	{"length 2^32-1", lengthWord(0xffffffff, "\x00\x03\x00\x00user\x00x\x00\x00"), "08P01"},
	{"HTTP", []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), "08P01"},
	{"SSH", []byte("SSH-2.0-OpenSSH_9.2\r\n"), "08P01"},
	{"TLS ClientHello", []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), ""},
	{"major version 2", startupPacket(2<<16, "user", anyUser), "0A000"},
	{"major version 4", startupPacket(4<<16, "user", anyUser), "0A000"},
	{"no user", startupPacket(version30, "database", "transaction"), "28000"},
	{"no parameters", startupPacket(version30), "28000"},
	{"name without value", lengthWord(14, "\x00\x03\x00\x00user\x00\x00"), "08P01"},
	{"no end of a string", lengthWord(13, "\x00\x03\x00\x00usera"), "08P01"},
	{"bytes behind the end", lengthWord(18, "\x00\x03\x00\x00user\x00x\x00\x00xx"), "08P01"},
	{"SSLRequest too long", lengthWord(12, "\x04\xd2\x16\x2fxxxx"), "08P01"},
	{"CancelRequest too short", lengthWord(12, "\x04\xd2\x16\x2exxxx"), ""},
	{"CancelRequest too long", lengthWord(12+257, "\x04\xd2\x16\x2exxxx"+strings.Repeat("x", 257)), ""},
	{"CancelRequest with an unknown key", lengthWord(16, "\x04\xd2\x16\x2exxxxyyyy"), ""},
	{"replication", startupPacket(version30, "user", anyUser, "replication", "true"), "0A000"},
	{"replication with nonsense", startupPacket(version30, "user", anyUser, "replication", "perhaps"), "22023"},
	{"unknown database", startupPacket(version30, "user", anyUser, "database", "nowhere"), "3D000"},
	{"no database, and none of the user's name", startupPacket(version30, "user", anyUser), "3D000"},
	{"database that the server does not have", startupPacket(version30, "user", anyUser, "database", "missing"), "3D000"}, // 6.08
	{"console for somebody else", startupPacket(version30, "user", anyUser, "database", "fencepost"), "28000"},
}

func TestBadGreetings(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18")
	for _, bad := range badGreetings {
		want := "E[" + bad.code + "] EOF"
		if bad.code == "" {
			want = "EOF"
		}
		began := time.Now()
		got, err := greet(l.pooler.addr, bad.packet)
		check(t, bad.name, got, err, want)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %s", bad.name, took)
		}
	}
	// The server's own words about a database that it does not have.
	c := mustDial(t, l.pooler.addr)
	if err := c.write(startupPacket(version30, "user", anyUser, "database", "missing")); err != nil {
		t.Fatal(err)
	}
	m, err := c.next()
	if err != nil || !strings.Contains(field(m.body, wire.FieldMessage), `database "this database does not exist" does not exist`) {
		t.Errorf("the client of a missing database is told %q, %v", m.body, err)
	}
	healthy(t, l)
}

// A user who cannot log in for what the settings lack keeps nobody else out, at a start and at a reload. The client hears what
// PostgreSQL would tell it, the log has the reason.
func TestLoginsThatTheSettingsExclude(t *testing.T) {
	t.Parallel()
	const hash = "md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	l := newLab(t, "15", `auth_type = "scram-sha-256"`, `log_level = "info"`, `admin_users = ["ops", "nobody"]`)
	said := func(since time.Time, parts ...string) {
		t.Helper()
		if err := poll(patience, func() (bool, error) { return len(l.pooler.Lines(since, parts...)) == 1, nil }); err != nil {
			t.Errorf("%q: %v", parts, err)
		}
	}
	said(time.Time{}, `"warn"`, "settings: warning", "fencepost.admin_users", "there is no section")
	began := time.Now()
	l.pooler.rewrite(t, func(s string) string {
		return s + "\n[users.hashed]\npassword = \"" + hash + "\"\n[users.empty]\npool_size = 1\n"
	})
	if err := l.pooler.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	said(began, "settings reloaded")
	said(began, `"warn"`, "settings: warning", "users.hashed.password", "is an md5 hash")
	said(began, `"warn"`, "settings: warning", "users.empty.password", "is not set")
	for user, reason := range map[string]string{"hashed": "an md5 secret cannot be used with scram-sha-256", "empty": "user has no password", "nobody": "no such user"} {
		check(t, user, whoAndWhere(t, l.transaction(), user, "transaction"), nil, "refused with 28P01")
		said(began, "login refused", user, reason)
	}
	check(t, "app", whoAndWhere(t, l.transaction(), appUser, "transaction"), nil, appUser+"|"+l.db)
}

func mustDial(t testing.TB, addr string) *raw {
	t.Helper()
	c, err := dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.nc.Close() })
	return c
}

// healthy checks that Fencepost serves.
func healthy(t testing.TB, l *lab) {
	t.Helper()
	for _, at := range []place{l.transaction(), l.session()} {
		c := mustLogin(t, at)
		got, err := c.query("SELECT 'healthy'")
		check(t, "query in "+at.name, got, err, "healthy")
		c.close()
	}
	if !l.pooler.Running() {
		t.Error("Fencepost has ended")
	}
}

func sasl(mechanism string, length int32, data string) []byte {
	body := binary.BigEndian.AppendUint32([]byte(mechanism+"\x00"), uint32(length))
	return typed(wire.MsgPasswordResponse, append(body, data...))
}

// typed is a message of a type with a body.
func typed(typ byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{typ}, uint32(len(body)+4)), body...)
}

const (
	scram       = "SCRAM-SHA-256"
	clientFirst = "n,,n=,r=abcdefghijklmnopqrstuvwx"
)

// badAnswers are messages in place of the first answer of a SCRAM login.
var badAnswers = []struct {
	name   string
	packet []byte
	code   string
}{
	{"unknown mechanism", sasl("PLAIN", 4, "abcd"), "08P01"},
	{"PLUS without TLS", sasl("SCRAM-SHA-256-PLUS", int32(len(clientFirst)), clientFirst), "08P01"},
	{"length larger than the message", sasl(scram, 1000, clientFirst), "08P01"},
	{"length 2^31-1", sasl(scram, 0x7fffffff, clientFirst), "08P01"},
	{"length -2", sasl(scram, -2, clientFirst), "08P01"},
	{"length smaller than the message", sasl(scram, 3, clientFirst), "08P01"},
	{"mechanism without end", typed(wire.MsgPasswordResponse, []byte(scram)), "08P01"},
	{"empty", typed(wire.MsgPasswordResponse, nil), "08P01"},
	{"too long", sasl(scram, 70000, strings.Repeat("x", 70000)), "08P01"},
	{"length word 3", []byte("p\x00\x00\x00\x03xxxxxxxx"), "08P01"},
	{"length word 2^31-1", []byte("p\x7f\xff\xff\xffxxxxxxxx"), "08P01"},
	{"length word 2^32-1", []byte("p\xff\xff\xff\xffxxxxxxxx"), "08P01"},
	{"a query", typed(wire.MsgQuery, []byte("SELECT 1\x00")), "08P01"},
	{"nonsense in SCRAM", sasl(scram, 8, "nonsense"), "08P01"},
	{"a plain password", typed(wire.MsgPasswordResponse, []byte(appPassword+"\x00")), "08P01"},
	{"type 0", []byte("\x00\x00\x00\x00\x04"), "08P01"},
	{"goodbye", typed(wire.MsgTerminate, nil), ""},
}

func TestBadPasswordMessages(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", `auth_type = "scram-sha-256"`)
	for _, bad := range badAnswers {
		c := mustDial(t, l.pooler.addr)
		if err := c.write(startupPacket(version30, "user", appUser, "database", "transaction")); err != nil {
			t.Fatal(err)
		}
		got, err := c.first("R")
		check(t, "request", got, err, "R[10]")
		if err := c.write(bad.packet); err != nil {
			t.Fatal(err)
		}
		want := "E[" + bad.code + "] EOF"
		if bad.code == "" {
			want = "EOF"
		}
		got, err = c.answers(1)
		check(t, bad.name, got, err, want)
	}
	// The second message of the exchange, and users who do not exist.
	for _, user := range []string{appUser, "nobody"} {
		for name, second := range map[string]string{"garbage": "garbage", "another nonce": "c=biws,r=xyz,p=AAAA", "empty": ""} {
			c := mustDial(t, l.pooler.addr)
			if err := c.write(startupPacket(version30, "user", user, "database", "nowhere")); err != nil {
				t.Fatal(err)
			}
			if err := c.write(sasl(scram, int32(len(clientFirst)), clientFirst)); err != nil {
				t.Fatal(err)
			}
			if err := c.write(typed(wire.MsgPasswordResponse, []byte(second))); err != nil {
				t.Fatal(err)
			}
			got, err := c.answers(1)
			if err != nil || !strings.HasPrefix(got, "R[10] R[11] E[") || !strings.HasSuffix(got, "EOF") {
				t.Errorf("%s as %s: %s, %v", name, user, got, err)
			}
		}
	}
}

// All the places where a client may fall silent during its login end with client_login_timeout.
func TestLoginTimeout(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", `auth_type = "scram-sha-256"`, `client_login_timeout = "700ms"`)
	l.each(4, func(i int) error {
		c, err := dial(l.pooler.addr)
		if err != nil {
			return err
		}
		defer c.close()
		packet := startupPacket(version30, "user", appUser, "database", "transaction")
		began := time.Now()
		if err := c.write([][]byte{nil, packet[:9], packet, append(packet, sasl(scram, int32(len(clientFirst)), clientFirst)...)}[i]); err != nil {
			return err
		}
		got, err := c.answers(1)
		want := []string{"EOF", "EOF", "R[10] E[08P01] EOF", "R[10] R[11] E[08P01] EOF"}[i]
		check(t, "silence", got, err, want)
		if took := time.Since(began); took < 500*time.Millisecond || took > 5*time.Second {
			t.Errorf("it ended after %s", took)
		}
		return nil
	})
}

// Beyond max_client_conn a client is told, the console stays open, and a place that becomes free is used.
func TestTooManyClients(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "max_client_conn = 5")
	var open []*raw
	for range 5 {
		open = append(open, mustLogin(t, l.transaction()))
	}
	packet := startupPacket(version30, "user", anyUser, "database", "transaction")
	got, err := greet(l.pooler.addr, packet)
	check(t, "sixth client", got, err, "E[53300] EOF")
	if rows := l.rows("SHOW VERSION"); len(rows) != 1 {
		t.Errorf("the console at the limit: %q", rows)
	}
	open[0].close()
	err = poll(patience, func() (bool, error) {
		got, err := greet(l.pooler.addr, packet)
		return got == "R[0] Z[I]", err
	})
	if err != nil {
		t.Errorf("after one has left: %v", err)
	}
}
