package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"fencepost/internal/poll"
)

// Every kind of event, with synchronous replication: no acknowledged write is lost.
func TestEvents(t *testing.T) {
	s := setUp(t, Config{Standbys: 2, Synchronous: true, Databases: []string{"app"}, Conf: map[string]string{"work_mem": "5MB"}})
	var workMem string
	if err := s.Primary().node.QueryRow(t.Context(), "SHOW work_mem", &workMem); err != nil || workMem != "5MB" {
		t.Errorf("work_mem = %s, %v", workMem, err)
	}
	s.every()
}

func (s *scene) every() {
	s.t.Helper()
	s.switchover()
	s.crash()
	s.demote()
	s.freeze()
	s.restart()
	s.partition()
	s.readOnlyPromotion()
	s.slow()
	s.promoteCopy()
	s.switchover() // takes the number of the copy's timeline
	s.crash()
}

func (s *scene) switchover() {
	s.t.Helper()
	checked := s.whenDone(DidStop, s.refused(s.Primary()))
	o := s.play(KindSwitchover)
	s.oneWriter(o)
	if !*checked {
		s.t.Error("the old primary was not stopped")
	}
	for server, text := range map[string]string{o.Old: "received fast shutdown request", o.New: "selected new timeline ID"} {
		if !slices.ContainsFunc(s.observer.Log(o.Began, time.Time{}), func(l Logged) bool {
			return l.Server == server && strings.Contains(l.Text, text) && l.App == "" && l.Severity == "LOG"
		}) {
			s.t.Errorf("the log of %s does not say %q", server, text)
		}
	}
}

func (s *scene) crash() {
	s.t.Helper()
	checked := s.whenDone(DidKill, s.refused(s.Primary()))
	o := s.play(KindCrash)
	s.oneWriter(o)
	if !*checked || o.step(DidRebuild).Before(o.step(DidPromote)) {
		s.t.Errorf("steps %v", o.Steps)
	}
	if x, ok := s.saw(o.Old, o.Began, func(x Sample) bool { return !x.Answers }); !ok || x.Reason != "refused" && x.Reason != "closed" && x.Reason != "reset" {
		s.t.Errorf("the killed server: %+v, %v", x, ok)
	}
}

func (s *scene) demote() {
	s.t.Helper()
	s.during(nil)
	o := s.play(KindDemote)
	s.oneWriter(o)
	old, ok1 := s.saw(o.Old, o.Began, func(x Sample) bool { return x.InRecovery })
	next, ok2 := s.saw(o.New, o.Began, func(x Sample) bool { return x.Writable() })
	if !ok1 || !ok2 || !old.From.Before(next.From) {
		s.t.Errorf("a standby at the old address %+v, then the new primary %+v", old, next)
	}
	if took := old.From.Sub(o.Lost); took > time.Second {
		s.t.Logf("the old address answered as a standby after %v", took)
	}
}

func (s *scene) freeze() {
	s.t.Helper()
	s.during(nil)
	o := s.play(KindFreeze)
	if !s.twoWriters(o) {
		s.t.Error("freeze: the old primary did not believe it still was one")
	}
	if x, ok := s.saw(o.Old, o.Lost, func(x Sample) bool { return x.Reason == "silent" }); !ok || x.Until.Sub(x.From) < time.Second/2 {
		s.t.Errorf("frozen: %+v, %v", x, ok)
	}
	thawed := o.step(DidThaw).Add(-100 * time.Millisecond)
	if x, ok := s.saw(o.Old, thawed, func(x Sample) bool { return x.Writable() }); !ok || x.Until.Sub(x.From) < time.Second/2 {
		s.t.Errorf("thawed: %+v, %v", x, ok)
	}
	if at := thawed.Add(500 * time.Millisecond); s.observer.WriterAt(at) != o.New || len(s.observer.WritersAt(at)) != 2 {
		s.t.Errorf("writers after the thaw: %+v", s.observer.WritersAt(at))
	}
}

func (s *scene) restart() {
	s.t.Helper()
	checked := s.whenDone(DidStop, s.refused(s.Primary()))
	o := s.play(KindRestart)
	s.oneWriter(o)
	if !*checked || !o.step(DidPromote).IsZero() {
		s.t.Errorf("steps %v", o.Steps)
	}
}

func (s *scene) partition() {
	s.t.Helper()
	old := s.Primary()
	checked := s.whenDone(DidCut, func() {
		if err := knock(old); !timedOut(err) {
			s.t.Errorf("connect through a network that is down: %v", err)
		}
	})
	o := s.play(KindPartition)
	if !*checked || !s.twoWriters(o) {
		s.t.Errorf("partition: the old primary did not believe it still was one: %v", o.Steps)
	}
	if !s.config.Synchronous && !slices.ContainsFunc(s.observer.Writes(o.Lost, o.step(DidHeal)), func(w Write) bool { return w.Server == o.Old && w.CutOff }) {
		s.t.Error("partition: the old primary took no writes")
	}
	late := slices.DeleteFunc(s.observer.Writes(o.step(DidPromote), o.Ended), func(w Write) bool {
		return w.Server != o.Old || w.Asked.Before(o.step(DidPromote)) // a standby had it, and its word came through only now
	})
	if s.config.Synchronous && len(late) > 0 {
		s.t.Errorf("partition: the old primary acknowledged %d writes without a standby: %v", len(late), late[0])
	}
}

func timedOut(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func (s *scene) readOnlyPromotion() {
	s.t.Helper()
	s.during(nil)
	o := s.play(KindReadOnly)
	s.oneWriter(o)
	x, ok := s.saw(o.New, o.Began, func(x Sample) bool { return x.Answers && !x.InRecovery })
	if !ok || !x.ReadOnly || x.Until.Sub(x.From) < short().ReadOnly/2 {
		s.t.Errorf("read-only: the new primary at first: %+v, %v", x, ok)
	}
	// Clients were told so, which the log knows.
	if !slices.ContainsFunc(s.observer.Log(o.Began, o.Ended), func(l Logged) bool { return l.Server == o.New && l.SQLSTATE == "25006" }) {
		s.t.Error("read-only: nobody was told")
	}
}

func (s *scene) promoteCopy() {
	s.t.Helper()
	s.during(nil)
	before := s.observer.WritersAt(time.Now())[0].Timeline
	o := s.play(KindPromoteCopy)
	if !s.twoWriters(o) {
		s.t.Error("promote-copy: there never were two writers")
	}
	if o.Copy == "" || o.Copy == o.Old || s.observer.HighestTimeline(o.Began, o.Ended) != before+1 || s.observer.WriterAt(o.Ended) != o.Old {
		s.t.Errorf("promote-copy: %+v", o)
	}
	if !slices.ContainsFunc(s.observer.Writes(o.Began, o.Ended), func(w Write) bool { return w.Server == o.Copy && w.Timeline == before+1 }) {
		s.t.Error("promote-copy: the copy took no writes")
	}
}

func (s *scene) slow() {
	s.t.Helper()
	primary := s.Primary()
	conn, err := pgx.Connect(s.t.Context(), "postgres://postgres@"+primary.RelayAddr+"/postgres?sslmode=disable")
	if err != nil {
		s.t.Fatal(err)
	}
	defer hangUp(conn)
	checked := s.whenDone(DidSlow, func() {
		ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		if err := conn.Ping(ctx); err != nil || time.Since(began) < short().SlowMin {
			s.t.Errorf("an answer of a slow primary after %v, %v", time.Since(began), err)
		}
	})
	o := s.play(KindSlow)
	s.oneWriter(o)
	if !*checked || len(gaps(s.observer, o)) > 2 {
		s.t.Errorf("slow: %v, without a writer %v", o.Steps, gaps(s.observer, o))
	}
}

// The same without synchronous replication, and on the oldest and the newest version.
func TestMoreWorlds(t *testing.T) {
	if !full {
		t.Log("FENCEPOST_WORLD_FULL=1 plays the events in other worlds")
		return
	}
	for name, c := range map[string]Config{
		"asynchronous": {Standbys: 2}, "12": {Version: "12", Standbys: 2, Synchronous: true}, "14": {Version: "14", Standbys: 1},
		"18": {Version: "18", Standbys: 3, Synchronous: true},
	} {
		t.Run(name, func(t *testing.T) { setUp(t, c).every() })
	}
	t.Run("diverged", diverged)
}

// A standby that cannot follow is rebuilt.
func diverged(t *testing.T) {
	s := setUp(t, Config{Standbys: 1})
	astray := s.standbys()[0]
	if err := errors.Join(astray.node.Promote(t.Context()), astray.node.Exec(t.Context(), "CREATE TABLE t ()"), astray.node.Follow(t.Context(), s.Primary().node)); err != nil {
		t.Fatal(err)
	}
	var rebuilt []*Server
	if err := s.whole(t.Context(), func(x *Server) { rebuilt = append(rebuilt, x) }); err != nil {
		t.Fatal(err)
	}
	if len(rebuilt) != 1 || rebuilt[0] != astray {
		t.Errorf("rebuilt: %v", rebuilt)
	}
}

// The standby that is promoted is the one that has the most.
func TestBest(t *testing.T) {
	s := setUp(t, Config{Standbys: 2, Synchronous: true})
	c := &course{ctx: t.Context(), w: s.World, old: s.Primary()}
	for i, lagging := range s.standbys() {
		if err := lagging.node.Configure(map[string]string{"primary_conninfo": ""}); err != nil {
			t.Fatal(err)
		}
		err := poll.Until(t.Context(), pollEvery, func() (ok bool, err error) {
			err = lagging.node.QueryRow(t.Context(), "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)", &ok)
			return ok, err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Primary().node.Exec(t.Context(), fmt.Sprintf("CREATE TABLE t%d ()", i)); err != nil {
			t.Fatal(err)
		}
		s.observer.end() // or there is always more
		best, err := c.best()
		if err != nil || best != s.standbys()[1-i] {
			t.Errorf("%s lags, best is %+v, %v", lagging.Name, best, err)
		}
		if err := lagging.node.Follow(t.Context(), s.Primary().node); err != nil {
			t.Fatal(err)
		}
		if err := s.stream(t.Context(), streamPatience); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOneEventAtATime(t *testing.T) {
	s := setUp(t, Config{Standbys: 1})
	if EventNamed("nonsense", short()) != nil || len(Events(short())) != 9 {
		t.Error("kinds of events")
	}
	if err := s.left([]int{os.Getpid()}); err == nil || strings.Count(err.Error(), "port") != 6 || strings.Count(err.Error(), "process") != 1 {
		t.Errorf("what is left of a world that lives: %v", err)
	}
	var second error
	s.whenDone(DidStop, func() { _, second = EventNamed(KindRestart, short()).Run(t.Context(), s.World) })
	s.play(KindRestart)
	if second == nil {
		t.Error("two events at a time")
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.whenDone(DidStop, cancel)
	if _, err := EventNamed(KindSwitchover, short()).Run(ctx, s.World); !errors.Is(err, context.Canceled) {
		t.Errorf("an event that was given up: %v", err)
	}
	if err := s.Primary().node.Start(t.Context()); err != nil { // the count of processes at the end
		t.Error(err)
	}
}

func TestFailedStart(t *testing.T) {
	before := descriptors(t)
	if w, err := Start(t.Context(), Config{}); err == nil {
		t.Errorf("no standby: %v", w)
	}
	if w, err := Start(t.Context(), Config{Standbys: 1, Conf: map[string]string{"work_mem": "much"}}); err == nil || !strings.Contains(err.Error(), "work_mem") {
		t.Errorf("a setting that is none: %v, %v", w, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := poll.Until(ctx, pollEvery, func() (bool, error) { return descriptors(t) <= before, nil }); err != nil {
		t.Errorf("%d descriptors, %d before", descriptors(t), before)
	}
}
