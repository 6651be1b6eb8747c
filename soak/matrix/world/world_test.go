package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"fencepost/internal/pgcluster"
	"fencepost/internal/poll"
)

// full is set for all kinds of events and for other versions of PostgreSQL: minutes.
var full = os.Getenv("FENCEPOST_WORLD_FULL") != ""

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scene is a world under test.
type scene struct {
	*World
	t       *testing.T
	clients *clients

	mu sync.Mutex // guards at
	at func(line string)
}

// setUp starts a world, with a few clients that write all the time, and checks at the end that nothing is left of it.
func setUp(t *testing.T, c Config) *scene {
	t.Helper()
	s := &scene{t: t}
	c.Log = zerolog.New(zerolog.NewTestWriter(t))
	c.Progress = func(line string) {
		t.Log(line)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.at != nil {
			s.at(line)
		}
	}
	before := descriptors(t)
	w, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	s.World = w
	t.Cleanup(func() {
		var pids []int
		for _, srv := range w.servers {
			pids = append(pids, srv.node.Processes()...)
		}
		if len(pids) < 4*len(w.servers) {
			t.Errorf("only %d processes before the end", len(pids))
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if left := pgcluster.Alive(pids); len(left) > 0 {
			t.Errorf("processes left: %v", left)
		}
		if _, err := os.Stat(w.cluster.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the cluster's folder: %v", err)
		}
		// The runtime gives sockets up a moment after they were closed.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := poll.Until(ctx, pollEvery, func() (bool, error) { return descriptors(t) <= before, nil }); err != nil {
			t.Errorf("%d descriptors, %d before", descriptors(t), before)
		}
	})
	return s
}

func descriptors(t *testing.T) int {
	t.Helper()
	names, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// during has f called with each line of progress from now on.
func (s *scene) during(f func(line string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = f
}

// clients write through the relays to whichever server takes it.
type clients struct {
	ids   atomic.Int64
	mu    sync.Mutex // guards acked
	acked map[int64]string
}

// write lets n clients write until stop is called.
func (s *scene) write(n int) (stop func()) {
	s.t.Helper()
	if err := s.Primary().node.Exec(s.t.Context(), "CREATE TABLE IF NOT EXISTS ledger (id bigint PRIMARY KEY)", "TRUNCATE ledger"); err != nil {
		s.t.Fatal(err)
	}
	s.clients = &clients{acked: map[int64]string{}}
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			for next := i; ctx.Err() == nil; next++ {
				s.clients.work(ctx, s.servers[next%len(s.servers)])
			}
		})
	}
	return func() { cancel(); running.Wait() }
}

// work writes to one server until it fails.
func (c *clients) work(ctx context.Context, srv *Server) {
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := pgx.Connect(brief, "postgres://postgres@"+srv.RelayAddr+"/postgres?sslmode=disable")
	if err != nil {
		return
	}
	defer hangUp(conn)
	for ctx.Err() == nil {
		id := c.ids.Add(1)
		brief, cancel := context.WithTimeout(ctx, time.Second)
		_, err := conn.Exec(brief, "INSERT INTO ledger VALUES ($1)", id)
		cancel()
		if err != nil {
			return
		}
		c.mu.Lock()
		c.acked[id] = srv.Name
		c.mu.Unlock()
	}
}

// lost are acknowledged writes that are not there, without those on one server.
func (s *scene) lost(except string) (lost []int64, all int) {
	s.t.Helper()
	var there []int64
	if err := s.Primary().node.QueryRow(s.t.Context(), "SELECT coalesce(array_agg(id), '{}') FROM ledger", &there); err != nil {
		s.t.Fatal(err)
	}
	slices.Sort(there)
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	for id, server := range s.clients.acked {
		if _, ok := slices.BinarySearch(there, id); !ok && server != except {
			lost = append(lost, id)
		}
	}
	return lost, len(s.clients.acked)
}

// short are times as short as what is to be seen allows.
func short() Timing {
	return Timing{
		Detect: 200 * time.Millisecond, Demoted: 500 * time.Millisecond, Frozen: 1500 * time.Millisecond, Cut: 1500 * time.Millisecond,
		Believes: time.Second, ReadOnly: time.Second, Copy: time.Second, Dead: 300 * time.Millisecond,
		Slow: 2 * time.Second, SlowMin: 500 * time.Millisecond, SlowMax: time.Second,
	}
}

// play runs an event under load and checks what is true after each.
func (s *scene) play(kind string) Occurrence {
	s.t.Helper()
	timing := short()
	stop := s.write(4)
	began := time.Now()
	before := s.observer.WritersAt(began)[0].Timeline
	o, err := EventNamed(kind, timing).Run(s.t.Context(), s.World)
	stop()
	if err != nil {
		s.t.Fatalf("%v\n%s", err, s.logs())
	}
	took := o.Ended.Sub(o.Began)
	s.t.Logf("%s took %.1f s, without a writer %v, polls a second %v", kind, took.Seconds(), gaps(s.observer, o), s.observer.Rate(o.Began, o.Ended))

	promoted := !slices.Contains([]string{KindRestart, KindSlow, KindPromoteCopy}, kind)
	if promoted != (o.Old != o.New) || o.New != s.Primary().Name || o.Name != kind {
		s.t.Errorf("%s: %s was the primary, %s is", o.Name, o.Old, o.New)
	}
	s.atEnd(o, before, promoted)
	if o.Lost.IsZero() != slices.Contains([]string{KindSlow, KindPromoteCopy}, kind) {
		s.t.Errorf("%s: the old primary was lost at %v", kind, o.Lost)
	}
	if !o.Lost.IsZero() {
		first, ok := s.observer.FirstWrite(o.New, o.Lost)
		if !ok || first.Acked.After(o.Ended) || first.Acked.Before(o.Lost) {
			s.t.Errorf("%s: first write on the new primary %v, %v", kind, first, ok)
		}
		if len(gaps(s.observer, o)) == 0 && kind != KindRestart { // that may be faster than NoWriterLeast
			s.t.Errorf("%s: there always was a writer", kind)
		}
	}
	if lost, all := s.lost(o.Copy); s.config.Synchronous && len(lost) > 0 || all == 0 {
		s.t.Errorf("%s: of %d acknowledged writes %d were lost: %v", kind, all, len(lost), lost)
	}
	for server, rate := range s.observer.Rate(o.Began, o.Ended) {
		if rate < 20 {
			s.t.Logf("only %.0f polls a second of %s", rate, server)
		}
	}
	return o
}

func gaps(o *Observer, x Occurrence) (lengths []time.Duration) {
	for _, i := range o.NoWriterIntervals(x.Began, x.Ended) {
		lengths = append(lengths, i.Length().Round(time.Millisecond))
	}
	return lengths
}

// atEnd checks the roles and the timelines after an event, and the order of its steps.
func (s *scene) atEnd(o Occurrence, before uint32, promoted bool) {
	s.t.Helper()
	want := before
	if promoted {
		want++
	}
	for _, x := range s.observer.At(o.Ended) {
		if !x.Answers || x.InRecovery == (x.Server == o.New) || x.ReadOnly || x.Timeline != want {
			s.t.Errorf("%s: at the end %+v, want timeline %d", o.Name, x, want)
		}
	}
	at := o.Began
	for _, step := range append(o.Steps[:len(o.Steps):len(o.Steps)], Step{At: o.Ended}) {
		if step.At.Before(at) && step.What != "" {
			s.t.Errorf("%s: step %+v before %v", o.Name, step, at)
		}
		at = step.At
	}
	for _, srv := range s.servers {
		conn, err := pgx.Connect(s.t.Context(), "postgres://postgres@"+srv.RelayAddr+"/postgres?sslmode=disable")
		if err != nil {
			s.t.Errorf("%s: %s by its relay: %v", o.Name, srv.Name, err)
			continue
		}
		hangUp(conn)
	}
}

// pairs of servers that both took writes at some time.
func (s *scene) twoWriters(o Occurrence) bool {
	all := slices.DeleteFunc(s.observer.Samples(o.Began, o.Ended), func(x Sample) bool { return !x.Writable() })
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.Server != b.Server && !b.From.After(a.Until) && !a.From.After(b.Until) {
				return true
			}
		}
	}
	return false
}

func (s *scene) oneWriter(o Occurrence) {
	s.t.Helper()
	if s.twoWriters(o) {
		s.t.Errorf("%s: two writers at a time: %+v", o.Name, s.observer.Samples(o.Began, o.Ended))
	}
}

// saw returns the first sample of a server after a time that is as wanted.
func (s *scene) saw(server string, after time.Time, so func(Sample) bool) (Sample, bool) {
	for _, x := range s.observer.Samples(after, time.Time{}) {
		if x.Server == server && !x.From.Before(after) && so(x) {
			return x, true
		}
	}
	return Sample{}, false
}

func (o Occurrence) step(what string) time.Time {
	for _, s := range o.Steps {
		if s.What == what {
			return s.At
		}
	}
	return time.Time{}
}

// knock connects to a relay for a moment.
func knock(srv *Server) error {
	c, err := net.DialTimeout("tcp", srv.RelayAddr, 100*time.Millisecond)
	if err == nil {
		c.Close()
	}
	return err
}

// whenDone has a check made as soon as a step was done.
func (s *scene) whenDone(what string, check func()) (checked *bool) {
	checked = new(bool)
	s.during(func(line string) {
		if strings.HasSuffix(line, " "+what) && !*checked {
			*checked = true
			check()
		}
	})
	return checked
}

func (s *scene) refused(srv *Server) func() {
	return func() {
		if err := knock(srv); !errors.Is(err, syscall.ECONNREFUSED) {
			s.t.Errorf("connect to the relay of a dead server: %v", err)
		}
	}
}

func (s *scene) logs() string {
	var b strings.Builder
	for _, srv := range s.servers {
		lines := strings.Split(srv.node.Log(), "\n")
		fmt.Fprintf(&b, "%s:\n%s\n", srv.Name, strings.Join(lines[max(0, len(lines)-25):], "\n"))
	}
	return b.String()
}
