package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// Field case 2.04: a cancel at any moment leaves one answer for each query, and the next answer is the next query's.
func TestCancelAtAnyMoment(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 3")
	atEach(t, l, func(t *testing.T, at place) {
		err := together(4, func(i int) error {
			c, err := at.login()
			if err != nil {
				return err
			}
			defer c.close()
			for round := range 50 {
				tag := fmt.Sprintf("%d.%d", i, round)
				if err := c.send(query(fmt.Sprintf("SELECT pg_sleep(%f), '%s'", rand.Float64()*0.006, tag))); err != nil {
					return err
				}
				time.AfterFunc(time.Duration(rand.IntN(6000))*time.Microsecond, func() { c.cancel(at.addr) })
				got, err := c.answers(1)
				if err != nil {
					return err
				}
				if !wholeOrCut(got, "T D[|"+tag+"] C[SELECT 1] ") {
					return fmt.Errorf("round %s: %s", tag, got)
				}
				// A cancel that comes late may hit the probe, on the server itself as well; it must still be this probe's answer.
				got, err = c.exchange(1, query("SELECT 'probe "+tag+"'"))
				if err != nil || !wholeOrCut(got, "T D[probe "+tag+"] C[SELECT 1] ") {
					return fmt.Errorf("probe %s: %s, %w", tag, got, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	l.atRest()
	l.whole(l.transaction(), 3)
}

// wholeOrCut reports whether got is an answer, or its beginning and the error of a cancel.
func wholeOrCut(got, answer string) bool {
	begin, cut := strings.CutSuffix(got, "E[57014] Z[I]")
	return got == answer+"Z[I]" || cut && strings.HasPrefix(answer, begin)
}

// A cancel reaches the query of its own client and nobody else's, with keys of both lengths.
func TestCancelHitsItsOwn(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 10")
	for _, at := range []place{l.session(), l.transaction()} {
		l.each(10, func(i int) error {
			c, err := dial(at.addr)
			if err != nil {
				return err
			}
			defer c.close()
			version := []uint32{version30, version32}[i%2]
			if got, err := c.startup(version, "user", anyUser, "database", at.database); err != nil || got != "R[0] Z[I]" {
				return fmt.Errorf("%s, %w", got, err)
			}
			want := fmt.Sprintf("T D[|%d] C[SELECT 1] Z[I]", i)
			if i%4 < 2 {
				want = "E[57014] Z[I]"
			}
			if err := c.send(query(fmt.Sprintf("SELECT pg_sleep(1.5), %d", i))); err != nil {
				return err
			}
			if i%4 < 2 {
				l.eventually(1, fmt.Sprintf("state = 'active' AND query LIKE 'SELECT pg_sleep%%, %d'", i))
				if err := c.cancel(at.addr); err != nil {
					return err
				}
			}
			got, err := c.answers(1)
			if err != nil || strings.TrimPrefix(got, "T ") != strings.TrimPrefix(want, "T ") {
				return fmt.Errorf("%s, %w; want %s", got, err, want)
			}
			return c.hold(conversation{{script(query("SELECT 'after'")), "T D[after] C[SELECT 1] Z[I]"}})
		})
	}
	l.atRest()
}

// Field case 2.06: bytes behind the request do not matter. A secret that is nearly right does.
func TestCancelPackets(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18")
	atEach(t, l, func(t *testing.T, at place) {
		for _, tail := range [][]byte{nil, {0}, []byte("garbage that goes on for a while")} {
			c := mustLogin(t, at)
			if err := c.send(query("SELECT pg_sleep(10)")); err != nil {
				t.Fatal(err)
			}
			l.eventually(1, "state = 'active' AND query = 'SELECT pg_sleep(10)'")
			wrong := append([]byte(nil), c.secret...)
			wrong[len(wrong)-1] ^= 1
			for _, k := range []struct {
				pid    uint32
				secret []byte
			}{{c.pid, wrong}, {c.pid + 1, c.secret}, {c.pid, append(c.secret[:4:4], 0)}} {
				if err := cancelKey(at.addr, k.pid, k.secret); err != nil {
					t.Fatal(err)
				}
			}
			if n := l.backends("state = 'active' AND query = 'SELECT pg_sleep(10)'"); n != 1 {
				t.Fatal("a cancel with a wrong key was obeyed")
			}
			began := time.Now()
			if err := c.cancel(at.addr, tail...); err != nil {
				t.Fatal(err)
			}
			got, err := c.answers(1)
			check(t, fmt.Sprintf("after a cancel with %d bytes behind", len(tail)), strings.TrimPrefix(got, "T "), err, "E[57014] Z[I]")
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("the cancel took %s", took)
			}
			c.close()
		}
	})
}

// A cancel for a client in the queue takes it out; in a transaction it fails the statement only.
func TestCancelWhileWaiting(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 1")
	holder := mustLogin(t, l.transaction())
	if err := holder.hold(conversation{{script(query("BEGIN")), "C[BEGIN] Z[T]"}}); err != nil {
		t.Fatal(err)
	}
	simple, extended := mustLogin(t, l.transaction()), mustLogin(t, l.transaction())
	if err := simple.send(query("SELECT 1")); err != nil {
		t.Fatal(err)
	}
	if err := extended.send(run("SELECT 1")...); err != nil {
		t.Fatal(err)
	}
	l.waiting(2)
	for c, want := range map[*raw]string{simple: "E[57014] Z[I]", extended: "E[57014]"} {
		if err := c.cancel(l.pooler.addr); err != nil {
			t.Fatal(err)
		}
		if err := c.expect(want); err != nil {
			t.Error(err)
		}
	}
	err := extended.hold(conversation{{script(run("SELECT 2"), query("SELECT 3"), sync_), "Z[I]"}})
	if err != nil {
		t.Error(err)
	}
	// Nobody waits: the cancel has nothing to do.
	if err := simple.cancel(l.pooler.addr); err != nil {
		t.Fatal(err)
	}
	if err := holder.hold(conversation{{script(query("COMMIT")), "C[COMMIT] Z[I]"}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*raw{simple, extended} {
		if err := c.hold(conversation{{script(query("SELECT 4")), "T D[4] C[SELECT 1] Z[I]"}}); err != nil {
			t.Error(err)
		}
	}
}
