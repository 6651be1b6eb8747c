package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/wire"
)

const (
	version30 = 3 << 16
	version32 = 3<<16 | 2
)

func request(code uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8}, code)
}

var (
	sslRequest    = request(80877103)
	gssencRequest = request(80877104)
)

// drip writes each byte on its own.
func (c *raw) drip(p []byte) error {
	for i := range p {
		if err := c.write(p[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}

// one reads a single byte, the answer to a request for encryption.
func (c *raw) one() (string, error) {
	if err := c.nc.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	b, err := c.r.ReadByte()
	return string(b), err
}

// greet connects, sends p and writes down what comes up to ReadyForQuery or the end.
func greet(addr string, p []byte) (string, error) {
	c, err := dial(addr)
	if err != nil {
		return "", err
	}
	defer c.close()
	if err := c.write(p); err != nil {
		return "", err
	}
	return c.answers(1)
}

// A role and a database with names of more than 63 bytes are the ones that PostgreSQL made of them. A name that is cut in the middle
// of a character is nobody's, there as here.
func TestLongNames(t *testing.T) {
	t.Parallel()
	role, half := strings.Repeat("r", 63), strings.Repeat("h", 62)
	n, db := newDatabase(t, "15")
	long := db + "_" + strings.Repeat("d", 63-len(db)-1)
	ctx := t.Context()
	for _, sql := range []string{`CREATE ROLE "` + role + `x" LOGIN`, `CREATE ROLE "` + half + `é" LOGIN`, `CREATE DATABASE "` + long + `x"`} {
		if err := n.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		err := n.Exec(context.WithoutCancel(ctx), terminateAll(long), `DROP DATABASE "`+long+`"`, `DROP ROLE "`+role+`", "`+half+`"`)
		if err != nil {
			t.Logf("clean up: %v", err)
		}
	})
	p := startPooler(t, settings{host: n.Addr(), dbname: db, lines: []string{`auth_type = "password"`},
		sections: "[databases.\"*\"]\nshard = \"main\"\n[users." + role + "]\npassword = \"" + appPassword + "\"\n[users." + half +
			"]\npassword = \"" + appPassword + "\"\n"})
	for _, at := range []place{{"direct", n.Addr(), long}, {"pooler", p.addr, long}} {
		for _, name := range []struct{ user, database, want string }{
			{role, long, role + "|" + long}, {role + "x", long + "x", role + "|" + long}, {role + "éé", long, role + "|" + long}, {half, long, half + "|" + long},
			{half + "é", long, "refused with 28P01"}, {role, long[:62] + "é", "refused with 3D000"},
		} {
			got := strings.Replace(whoAndWhere(t, at, name.user, name.database), "28000", "28P01", 1) // the server asks nobody for a password
			check(t, fmt.Sprintf("%s: %s in %s", at.name, name.user, name.database), got, nil, name.want)
		}
	}
}

// whoAndWhere logs in with appPassword and asks the server for its user and database. There may be no login.
func whoAndWhere(t *testing.T, at place, user, database string) string {
	t.Helper()
	cfg, err := pgconn.ParseConfig("host=localhost port=5432 user=x dbname=x password=x sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Host, cfg.Port, cfg.User, cfg.Database, cfg.Password = at.host(), uint16(at.port()), user, database, appPassword
	c, err := pgconn.ConnectConfig(t.Context(), cfg)
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused):
		return "refused with " + refused.Code
	case err != nil:
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // leaving anyway
	all, err := c.Exec(t.Context(), "SELECT current_user || '|' || current_database()").ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return string(all[0].Rows[0][0])
}

// Field case 5.01.
func TestStartupInPieces(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18")
	atEach(t, l, func(t *testing.T, at place) {
		long := strings.Repeat("x", 6000)
		for _, name := range []string{"short", long} {
			c, err := dial(at.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			p := startupPacket(version30, "user", anyUser, "database", at.database, "application_name", name)
			if name == long {
				err = c.write(p)
			} else {
				err = c.drip(p)
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.answers(1)
			if before, _, found := strings.Cut(got, " N["); found {
				got = before + " Z[I]" // the server says that it cuts the name
			}
			check(t, "login", got, err, "R[0] Z[I]")
			got, err = c.query("SHOW application_name")
			check(t, "application_name", got, err, name[:min(len(name), 63)])
		}
		// Every later message in pieces, too.
		c := mustLogin(t, at)
		p, err := encode(script(run("SELECT $1::text", "in pieces"), sync_)...)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.drip(p); err != nil {
			t.Fatal(err)
		}
		got, err := c.answers(1)
		check(t, "answers", got, err, "1 2 D[in pieces] C[SELECT 1] Z[I]")
	})
}

// A password message that comes in pieces, for the methods that ask for one.
func TestPasswordInPieces(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", `auth_type = "password"`)
	for _, password := range []string{appPassword, "wrong"} {
		c, err := dial(l.pooler.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		if err := c.write(startupPacket(version30, "user", appUser, "database", "transaction")); err != nil {
			t.Fatal(err)
		}
		got, err := c.first("R")
		check(t, "request", got, err, "R[3]")
		p, err := encode(&pgproto3.PasswordMessage{Password: password})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.drip(p); err != nil {
			t.Fatal(err)
		}
		want := "R[0] Z[I]"
		if password != appPassword {
			want = "E[28P01] EOF"
		}
		got, err = c.answers(1)
		check(t, "login with "+password, got, err, want)
	}
}

// Field case 5.06: libpq asks for GSSAPI first when there is a ticket, then for TLS, then starts up; or the other way.
func TestEncryptionRequests(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18")
	atEach(t, l, func(t *testing.T, at place) {
		for _, order := range [][][]byte{{gssencRequest, sslRequest}, {sslRequest, gssencRequest}, {sslRequest}, {gssencRequest}} {
			c, err := dial(at.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			for _, p := range order {
				if err := c.drip(p); err != nil {
					t.Fatal(err)
				}
				got, err := c.one()
				check(t, "answer", got, err, "N")
			}
			got, err := c.startup(version30, "user", anyUser, "database", at.database)
			check(t, "login", got, err, "R[0] Z[I]")
		}
	})
}

// Field case 5.05: what is sent behind a request for encryption without waiting for the answer is never taken as a
// startup packet.
func TestBytesBehindEncryptionRequest(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18")
	atEach(t, l, func(t *testing.T, at place) {
		for _, p := range [][]byte{sslRequest, gssencRequest} {
			c, err := dial(at.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			if err := c.write(append(p[:8:8], startupPacket(version30, "user", anyUser, "database", at.database)...)); err != nil {
				t.Fatal(err)
			}
			if err := c.nc.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(c.r)
			if err != nil && !gone(err) {
				t.Fatal(err)
			}
			text := strings.TrimPrefix(string(b), "N")
			if strings.Contains(text, "Z\x00\x00\x00\x05I") || len(text) > 0 && text[0] != 'E' {
				t.Errorf("%x was answered with %q", p, b)
			}
			if at.name != "direct" && field([]byte(text[min(5, len(text)):]), wire.FieldCode) != "08P01" {
				t.Errorf("%x was answered with %q, want 08P01", p, b)
			}
		}
	})
}

// Field case 5.04, and protocol 3.2: what a server of version 18 answers.
func TestProtocolNegotiation(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18")
	atEach(t, l, func(t *testing.T, at place) {
		for _, v := range []struct {
			version uint32
			params  []string
			want    string
			secret  int
		}{
			{version30, nil, "R[0] Z[I]", 4},
			{version32, nil, "R[0] Z[I]", 32},
			{version30, []string{"_pq_.fence", "1"}, "v[30000 _pq_.fence] R[0] Z[I]", 4},
			{version32, []string{"_pq_.fence", "1", "_pq_.wall", ""}, "v[30002 _pq_.fence,_pq_.wall] R[0] Z[I]", 32},
			{3<<16 | 7, nil, "v[30002 ] R[0] Z[I]", 32},
			{3<<16 | 9999, []string{"_pq_.fence", "1"}, "v[30002 _pq_.fence] R[0] Z[I]", 32}, // greased, as libpq does
		} {
			c, err := dial(at.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			what := fmt.Sprintf("%x %v", v.version, v.params)
			got, err := c.startup(v.version, append(v.params, "user", anyUser, "database", at.database)...)
			check(t, what, got, err, v.want)
			if len(c.secret) != v.secret || c.pid == 0 {
				t.Errorf("%s: secret of %d bytes and pid %d, want %d bytes", what, len(c.secret), c.pid, v.secret)
			}
			got, err = c.query("SELECT 'works'")
			check(t, what, got, err, "works")
		}
	})
}

// Field case 5.03: the settings in options are applied in every transaction, or refused by name.
func TestOptions(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18")
	lenient := startPooler(t, settings{host: l.node.Addr(), dbname: l.db, lines: []string{`ignore_startup_parameters = ["options", "search_path"]`}})
	login := func(addr, database string, params ...string) (string, *raw, string) {
		c, err := dial(addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.close)
		if err := c.write(startupPacket(version30, append(params, "user", anyUser, "database", database)...)); err != nil {
			t.Fatal(err)
		}
		var said string
		got, err := c.until(func(m message) bool {
			if m.typ == wire.MsgErrorResponse {
				said = field(m.body, wire.FieldMessage)
			}
			return m.typ == wire.MsgReadyForQuery
		})
		if err != nil {
			t.Fatal(err)
		}
		return got, c, said
	}
	all := `-c TimeZone=Asia/Tokyo --application_name=a\ b\\c -cDateStyle=German --client-encoding=latin1 -c IntervalStyle=iso_8601`
	atEach(t, l, func(t *testing.T, at place) {
		got, c, _ := login(at.addr, at.database, "options", all)
		check(t, "login", got, nil, "R[0] Z[I]")
		for range 20 {
			for name, want := range map[string]string{"TimeZone": "Asia/Tokyo", "application_name": `a b\c`, "DateStyle": "German, DMY",
				"client_encoding": "LATIN1", "IntervalStyle": "iso_8601"} {
				got, err := c.query("SHOW " + name)
				check(t, name, got, err, want)
				if c.params[name] != want {
					t.Errorf("%s: the client was told %q, want %q", name, c.params[name], want)
				}
			}
		}
	})
	for _, r := range []struct{ name, value, names string }{
		{"options", "-c search_path=s1", "search_path"}, {"options", "--work-mem=5MB", "work_mem"}, {"options", "-d 5", "-d"},
		{"options", "-c", "-c"}, {"search_path", "s1", "search_path"}, {"statement_timeout", "5s", "statement_timeout"},
	} {
		for _, mode := range []string{"session", "transaction"} {
			got, _, said := login(l.pooler.addr, mode, r.name, r.value)
			check(t, r.name+"="+r.value, got, nil, "E[0A000] EOF")
			if !strings.Contains(said, "options") && r.name == "options" || !strings.Contains(said, r.names) && !strings.HasPrefix(r.names, "-") {
				t.Errorf("%s=%s: the error does not say what is wrong: %s", r.name, r.value, said)
			}
			got, c, _ := login(lenient.addr, mode, r.name, r.value)
			want := "R[0] Z[I]"
			if r.name == "statement_timeout" {
				want = "E[0A000] EOF"
			}
			check(t, "with ignore_startup_parameters, "+r.name+"="+r.value, got, nil, want)
			if want == "R[0] Z[I]" {
				got, err := c.query("SELECT 1")
				check(t, "query", got, err, "1")
			}
		}
	}
}

// What many drivers send must simply work.
func TestUsualStartupParameters(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18")
	atEach(t, l, func(t *testing.T, at place) {
		c := mustLogin(t, at, "extra_float_digits", "2", "client_encoding", "UTF8", "datestyle", "ISO", "TIMEZONE", "Europe/Berlin")
		for name, want := range map[string]string{"client_encoding": "UTF8", "datestyle": "ISO, MDY", "timezone": "Europe/Berlin"} {
			got, err := c.query("SHOW " + name)
			check(t, name, got, err, want)
		}
	})
}
