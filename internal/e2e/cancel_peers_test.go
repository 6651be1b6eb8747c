package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fencepost/internal/debian"
	process "fencepost/internal/program"
	"fencepost/internal/relay"
)

// The peer_ids of this test: Fencepost's, PgBouncer's, one that nobody has, one that each of the two says is the other, and
// one that Fencepost says is Fencepost.
const (
	fencepostPeer = 300 // more than eight bits
	pgbouncerPeer = 2
	nobodysPeer   = 4711
	eachOthers    = 77
	itself        = 78
)

// peered is Fencepost and a PgBouncer that name each other in [peers], in front of the same server.
type peered struct {
	*lab
	bouncer  string       // address of PgBouncer's
	circle   *relay.Relay // Fencepost's way to PgBouncer for eachOthers
	onItself *relay.Relay // Fencepost's way to itself
}

// Cancels between Fencepost and a real PgBouncer, each of which names the other one in [peers].
func TestPgBouncerPeers(t *testing.T) {
	t.Parallel()
	p := startPeered(t)
	fencepost := place{"Fencepost", p.pooler.addr, "transaction"}
	pgbouncer := place{"PgBouncer", p.bouncer, "transaction"}
	for _, way := range []struct{ of, by place }{{pgbouncer, fencepost}, {fencepost, pgbouncer}} {
		t.Run("a client of "+way.of.name+" by way of "+way.by.name, func(t *testing.T) {
			t.Parallel()
			p.hits(t, way.of, way.by)
			p.misses(t, way.of, way.by)
		})
	}
	// Its keys have another length, which PgBouncer does not take (as of 1.26); that may change.
	t.Run("protocol 3.2", func(t *testing.T) {
		t.Parallel()
		c, err := loginKey(fencepost.addr, fencepost.database, version32)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		if err := c.begun("long key", time.Second); err != nil {
			t.Fatal(err)
		}
		if n, err := silentCancel(pgbouncer.addr, c.pid, c.secret); err != nil || n > 0 {
			t.Errorf("%d bytes came back, %v", n, err)
		}
		got, err := c.answers(1)
		if err != nil || got != "C[DO] Z[I]" && got != "E[57014] Z[I]" {
			t.Errorf("%s, %v", got, err)
		}
		t.Logf("by way of PgBouncer: %s", got)
	})
	t.Run("nobody's", func(t *testing.T) {
		t.Parallel()
		p.nobodys(t, fencepost, pgbouncer)
	})
}

// startPeered starts both. The test is skipped if there is no PgBouncer.
func startPeered(t *testing.T) *peered {
	t.Helper()
	as, err := process.ServerAccount()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := process.Folder("", "fencepost-peers", as)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	argv, source, err := debian.Find(t.Context(), dir, debian.Program{Name: "pgbouncer", Path: "usr/sbin/pgbouncer", Version: "-V", Oldest: [2]int{1, 21}})
	if err != nil {
		t.Skipf("there is no PgBouncer from 1.21 on: %v", err)
	}
	t.Logf("PgBouncer is %s", source)
	n, db := newDatabase(t, "17")
	p := &peered{lab: &lab{t: t, node: n, db: db}, bouncer: freeAddr(t)}
	p.circle = startRelay(t, p.bouncer)
	peer := func(id int, addr string) string { return fmt.Sprintf("[peers.%d]\naddr = %q\n", id, addr) }
	p.pooler = startPooler(t, settings{host: n.Addr(), dbname: db, lines: []string{fmt.Sprintf("peer_id = %d", fencepostPeer)},
		sections: peer(pgbouncerPeer, p.bouncer) + peer(eachOthers, p.circle.Addr())})
	p.onItself = startRelay(t, p.pooler.addr)
	text, err := os.ReadFile(p.pooler.File)
	if err := errors.Join(err, os.WriteFile(p.pooler.File, append(text, peer(itself, p.onItself.Addr())...), 0o600)); err != nil {
		t.Fatal(err)
	}
	p.command("RELOAD")
	p.startPgBouncer(dir, argv, as)
	return p
}

func (p *peered) startPgBouncer(dir string, argv []string, as *syscall.Credential) {
	p.t.Helper()
	host := func(addr string) string {
		h, port, _ := net.SplitHostPort(addr)
		return fmt.Sprintf("host=%s port=%s", h, port)
	}
	_, port, _ := net.SplitHostPort(p.bouncer)
	users, file, log := filepath.Join(dir, "users.txt"), filepath.Join(dir, "pgbouncer.ini"), filepath.Join(dir, "log")
	ini := fmt.Sprintf("[databases]\ntransaction = %s dbname=%s\n[peers]\n%d = %s\n%d = %s\n[pgbouncer]\npeer_id = %d\nlisten_addr = 127.0.0.1\nlisten_port = %s\n"+
		"unix_socket_dir =\nauth_type = trust\nauth_file = %s\npool_mode = transaction\n", host(p.node.Addr()), p.db, fencepostPeer, host(p.pooler.addr), eachOthers, host(p.pooler.addr),
		pgbouncerPeer, port, users)
	if err := errors.Join(os.WriteFile(file, []byte(ini), 0o644), os.WriteFile(users, fmt.Appendf(nil, "%q \"\"\n", anyUser), 0o644)); err != nil {
		p.t.Fatal(err)
	}
	proc, err := process.Start(process.Command{Name: "pgbouncer", Argv: append(argv, file), Env: []string{}, Dir: dir, Log: log, As: as})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if p.t.Failed() {
			b, _ := os.ReadFile(log)
			lines := bytes.SplitAfter(b, []byte("\n"))
			p.t.Logf("end of the log of PgBouncer:\n%s", bytes.Join(lines[max(0, len(lines)-30):], nil))
		}
		if err := proc.Stop(syscall.SIGQUIT, patience); err != nil {
			p.t.Log(err)
		}
	})
	if err := proc.Listening(p.t.Context(), patience, p.bouncer); err != nil {
		p.t.Fatal(err)
	}
}

// hits checks that a cancel ends what runs, the whole of its way, and nothing of another session.
func (p *peered) hits(t *testing.T, of, by place) {
	other := mustLogin(t, of)
	if err := other.begun("other", 2*time.Second); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		c := mustLogin(t, of)
		tag := fmt.Sprintf("cancelled %s %d", of.name, i)
		if err := c.begun(tag, time.Minute); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if n, err := silentCancel(by.addr, c.pid, c.secret); err != nil || n > 0 {
			t.Errorf("%d bytes came back, %v", n, err)
		}
		if err := c.expect("E[57014] Z[I]"); err != nil {
			t.Fatalf("a cancel by way of %s: %v", by.name, err)
		}
		if took := time.Since(began); i == 0 {
			t.Logf("cancelled after %s", took.Round(100*time.Microsecond))
		}
		// Either of them closes the canceller's connection when the request has been dealt with.
		if got, err := c.query("SELECT 'next'"); err != nil || got != "next" {
			t.Errorf("the next statement: %s, %v", got, err)
		}
		c.close()
	}
	check(t, "a session that nobody cancelled", rest(other), nil, "C[DO] Z[I]")
	other.close()
}

// rest is the rest of an answer, or what went wrong.
func rest(c *raw) string {
	got, err := c.answers(1)
	if err != nil {
		return err.Error()
	}
	return got
}

// misses checks that keys that are almost right do nothing.
func (p *peered) misses(t *testing.T, of, by place) {
	c := mustLogin(t, of)
	if err := c.begun("missed "+of.name, time.Second); err != nil {
		t.Fatal(err)
	}
	for i, key := range []func() (uint32, []byte){
		func() (uint32, []byte) { return c.pid ^ 1, c.secret },
		func() (uint32, []byte) { return c.pid ^ 1<<24, c.secret },
		func() (uint32, []byte) { return c.pid, flipped(c.secret, 0, 1) },
		func() (uint32, []byte) { return c.pid, flipped(c.secret, 3, 4) },
		func() (uint32, []byte) { return c.pid, make([]byte, 4) },
	} {
		pid, secret := key()
		if n, err := silentCancel(by.addr, pid, secret); err != nil || n > 0 {
			t.Errorf("wrong key %d: %d bytes came back, %v", i, n, err)
		}
	}
	check(t, "a session that was almost cancelled", rest(c), nil, "C[DO] Z[I]")
	c.close()
}

// flipped is a copy of a secret with another value of a bit.
func flipped(secret []byte, at int, bit byte) []byte {
	s := bytes.Clone(secret)
	s[at] ^= bit
	return s
}

// nobodys sends cancels that are for nobody: they are dropped, also where two take each other, or one takes itself, for the
// one they are for.
func (p *peered) nobodys(t *testing.T, fencepost, pgbouncer place) {
	c := mustLogin(t, fencepost)
	if err := c.begun("for nobody", 2*time.Second); err != nil {
		t.Fatal(err)
	}
	for _, at := range []place{fencepost, pgbouncer} {
		for _, peer := range []uint32{fencepostPeer, pgbouncerPeer, nobodysPeer, eachOthers, itself} {
			pid := c.pid&^0xffff00 | peerBits(peer) // the rest of the key is that of a session
			secret := c.secret
			if peer == fencepostPeer {
				secret = flipped(secret, 1, 1)
			}
			began := time.Now()
			if n, err := silentCancel(at.addr, pid, secret); err != nil || n > 0 {
				t.Errorf("%d at %s: %d bytes came back, %v", peer, at.name, n, err)
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("%d at %s: closed after %s", peer, at.name, took)
			}
		}
	}
	check(t, "a session whose key was used in part", rest(c), nil, "C[DO] Z[I]")
	// A key may be passed on three times. From Fencepost: to PgBouncer, back, to PgBouncer; from PgBouncer: to Fencepost,
	// to PgBouncer, back.
	if n := p.circle.Seen.Load(); n != 3 {
		t.Errorf("Fencepost passed cancels on to PgBouncer %d times where each takes the other for their owner, want 3", n)
	}
	if n := p.onItself.Seen.Load(); n != 3 { // PgBouncer knows nobody of that number
		t.Errorf("Fencepost passed a cancel on to itself %d times, want 3", n)
	}
	if log := p.pooler.Log(); strings.Contains(log, "could not be passed on") {
		t.Error("a cancel could not be passed on")
	}
	c.close()
}
