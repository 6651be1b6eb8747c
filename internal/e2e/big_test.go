package e2e

import (
	"crypto/md5"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"fencepost/wire"
)

const mib = 1 << 20

// Field case 5.15: a parameter and a row of 64 MB each, two clients at once, and Fencepost does not keep them.
func TestHugeMessages(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 2")
	size := 64 * mib
	value := strings.Repeat("0123456789abcdef", size/16)
	digest := fmt.Sprintf("%x", md5.Sum([]byte(value)))
	before := l.pooler.residentKiB(t)
	for _, at := range []place{l.session(), l.transaction()} {
		began := time.Now()
		l.each(2, func(int) error {
			c, err := at.login()
			if err != nil {
				return err
			}
			defer c.close()
			return c.hold(conversation{
				{script(run("SELECT length($1), md5($1)", value), sync_), fmt.Sprintf("1 2 D[%d|%s] C[SELECT 1] Z[I]", size, digest)},
				{script(query(fmt.Sprintf("SELECT repeat('0123456789abcdef', %d)", size/16))),
					fmt.Sprintf("T D[%d bytes %.8s] C[SELECT 1] Z[I]", size, digest)},
				{script(run(fmt.Sprintf("SELECT repeat('0123456789abcdef', %d)", size/16)), run("SELECT 'next'"), sync_),
					fmt.Sprintf("1 2 D[%d bytes %.8s] C[SELECT 1] 1 2 D[next] C[SELECT 1] Z[I]", size, digest)},
				{script(query("SELECT 'last'")), "T D[last] C[SELECT 1] Z[I]"},
			})
		})
		if took := time.Since(began); took > time.Minute && !raceDetector {
			t.Errorf("%s: took %s", at.name, took)
		}
	}
	if grown := int(l.pooler.status(t).VmHWM>>10) - before; grown > 100<<10 {
		t.Errorf("Fencepost's memory grew by %d KiB", grown)
	}
	l.whole(l.transaction(), 2)
}

// Field case 9.02: a client that does not read holds up its own server connection, not memory and not other clients.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 4")
	mustQuick(t, l, 1)
	before := l.pooler.residentKiB(t)
	slow := mustLogin(t, l.transaction())
	if err := slow.send(query("SELECT repeat('x', 1000) FROM generate_series(1, 400000)")); err != nil {
		t.Fatal(err)
	}
	l.eventually(1, "wait_event = 'ClientWrite'")
	mustQuick(t, l, 100)
	if grown := l.pooler.residentKiB(t) - before; grown > 100<<10 {
		t.Errorf("Fencepost's memory grew by %d KiB while a client did not read", grown)
	}
	rows, err := slow.count(wire.MsgDataRow)
	if err != nil || rows != 400000 {
		t.Errorf("%d rows, %v", rows, err)
	}
	// And a client that sends without reading: the answers of its queries wait, and so does it.
	flood := mustLogin(t, l.transaction())
	if err := flood.nc.SetWriteDeadline(time.Now().Add(2 * time.Second)); err != nil {
		t.Fatal(err)
	}
	p, err := encode(query("SELECT repeat('x', 100000)"))
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for err == nil {
		var n int
		n, err = flood.nc.Write(p)
		sent += n
	}
	if gone(err) {
		t.Errorf("a client that does not read was cut off: %v", err)
	}
	if sent > 64*mib {
		t.Errorf("Fencepost took %d MiB from a client that does not read", sent/mib)
	}
	if grown := l.pooler.residentKiB(t) - before; grown > 100<<10 {
		t.Errorf("Fencepost's memory grew by %d KiB while a client sent and did not read", grown)
	}
	mustQuick(t, l, 100)
	flood.rst()
	slow.close()
	l.atRest()
	l.whole(l.transaction(), 4)
}

// mustQuick runs n small queries of a new client and fails the test if more than one of twenty is slow, for what the server
// itself needs at this time.
func mustQuick(t testing.TB, l *lab, n int) {
	t.Helper()
	direct, through := latencies(t, l.direct(), n), latencies(t, l.transaction(), n)
	most := n - 1 - n/20
	if limit := 200*time.Millisecond + 4*direct[most]; through[most] > limit {
		t.Errorf("19 of 20 queries of another client took up to %s; at the server itself up to %s", through[most], direct[most])
	}
}

// latencies of n small queries of a new client, in order of size.
func latencies(t testing.TB, at place, n int) []time.Duration {
	t.Helper()
	c := mustLogin(t, at)
	defer c.close()
	took := make([]time.Duration, n)
	for i := range took {
		began := time.Now()
		if got, err := c.query("SELECT 'quick'"); err != nil || got != "quick" {
			t.Fatalf("%s, %v", got, err)
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took
}

// count reads up to ReadyForQuery and counts the messages of a type.
func (c *raw) count(typ byte) (n int, err error) {
	for {
		m, err := c.next()
		if err != nil {
			return n, err
		}
		switch m.typ {
		case typ:
			n++
		case wire.MsgErrorResponse:
			return n, errors.New(c.note(m))
		case wire.MsgReadyForQuery:
			return n, nil
		}
	}
}

// Field case 9.03: buffers that were large once are given back.
func TestBuffersShrink(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18", "default_pool_size = 10", "max_client_conn = 2000")
	l.sql("CREATE TABLE kept (t text)", "ALTER TABLE kept ALTER t SET STORAGE EXTERNAL", "GRANT ALL ON kept TO PUBLIC")
	clients, size := 200, mib
	if full {
		clients, size = 1000, 4*mib
	}
	open := make([]*raw, clients)
	l.each(clients, func(i int) (err error) {
		open[i], err = l.transaction().login()
		return err
	})
	base := l.pooler.residentKiB(t)
	value := strings.Repeat("x", size)
	slots := make(chan struct{}, 20)
	l.each(clients, func(i int) error {
		slots <- struct{}{}
		defer func() { <-slots }()
		return open[i].hold(conversation{{script(run("SELECT length($1)", value), sync_), fmt.Sprintf("1 2 D[%d] C[SELECT 1] Z[I]", size)}})
	})
	err := poll(time.Minute, func() (bool, error) { return l.pooler.residentKiB(t)-base < 40<<10, nil })
	if err != nil {
		t.Errorf("%d KiB before, %d KiB after: %v", base, l.pooler.residentKiB(t), err)
	}
	for _, c := range open {
		c.close()
	}
}

// Field case 5.17: a flood of notices arrives in order; slow ones arrive when they are raised.
func TestNotices(t *testing.T) {
	t.Parallel()
	l := newLab(t, "18")
	for _, at := range []place{l.session(), l.transaction()} {
		c := mustLogin(t, at)
		n := 100000
		if err := c.send(query(fmt.Sprintf("DO $$ BEGIN FOR i IN 1..%d LOOP RAISE NOTICE '%%', i; END LOOP; END $$", n))); err != nil {
			t.Fatal(err)
		}
		for i := 1; i <= n; i++ {
			m, err := c.next()
			if err != nil || m.typ != wire.MsgNoticeResponse || field(m.body, wire.FieldMessage) != fmt.Sprint(i) {
				t.Fatalf("notice %d is %s, %v", i, c.note(m), err)
			}
		}
		got, err := c.answers(1)
		check(t, "end", got, err, "C[DO] Z[I]")

		slow := "DO $$ BEGIN FOR i IN 1..5 LOOP RAISE NOTICE '%', clock_timestamp(); PERFORM pg_sleep(0.3); END LOOP; END $$"
		if err := c.send(query(slow)); err != nil {
			t.Fatal(err)
		}
		var late []time.Duration
		for range 5 {
			m, err := c.next()
			if err != nil {
				t.Fatal(err)
			}
			raised, err := time.Parse("2006-01-02 15:04:05.999999-07", field(m.body, wire.FieldMessage))
			if err != nil {
				t.Fatal(err)
			}
			late = append(late, time.Since(raised))
		}
		// Kept back to the end they would be 1.5, 1.2, 0.9, 0.6 and 0.3 seconds late; one may be by accident.
		slices.Sort(late)
		if late[2] > 500*time.Millisecond {
			t.Errorf("%s: notices came %s after they were raised", at.name, late)
		}
		got, err = c.answers(1)
		check(t, "end", got, err, "C[DO] Z[I]")
	}
	if n := len(l.pooler.Log()); n > 20000 {
		t.Errorf("Fencepost logged %d bytes", n)
	}
}
