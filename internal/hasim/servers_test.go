package hasim

import (
	"fmt"
	"time"

	"fencepost/internal/fakepg"
)

const (
	ourCluster   = 7700
	otherCluster = 6600
)

// server is one scripted server with what is true of it.
type server struct {
	w    *world
	n    int
	addr string
	pg   *fakepg.Server
	link *link

	// Guarded by world.mu.
	id    fakepg.Identity
	life  life
	truth []truth // oldest first
}

// life is what a server's process is up to.
type life uint8

const (
	alive life = iota
	starting
	dead
)

// truth is what held of a server from at on.
type truth struct {
	at    time.Time
	boots int64 // which start of the server
	up    bool
	id    fakepg.Identity
}

func (w *world) newServer(n int, cluster uint64) *server {
	s := &server{w: w, n: n, addr: fmt.Sprintf("10.0.0.%d:5432", n+1), link: newLink()}
	s.pg = fakepg.NewServer(w.seed+uint64(n)<<40, fakepg.Faults{})
	s.pg.Committed = func(_ uint32, texts []string) { w.committed(s, texts) }
	s.id = fakepg.Identity{SystemID: cluster, Timeline: 1, LSN: 0x1000000, InRecovery: true}
	s.id.Started = w.boot()
	s.note()
	return s
}

// boot is a start time that no other server has.
func (w *world) boot() int64 {
	w.boots++
	return 1_700_000_000_000_000 + w.boots
}

// note makes what is true of s now part of its history. With world.mu held.
func (s *server) note() {
	s.truth = append(s.truth, truth{time.Now(), s.id.Started, s.life == alive, s.id})
	s.pg.SetIdentity(s.id)
}

// change changes what is true of s.
func (s *server) change(f func()) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	f()
	s.note()
}

func (s *server) state() (life, fakepg.Identity) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return s.life, s.id
}

func (s *server) outOfRecovery() bool {
	l, id := s.state()
	return l == alive && !id.InRecovery
}

func (s *server) String() string {
	l, id := s.state()
	words := map[life]string{alive: "", starting: " starting", dead: " dead"}[l]
	role := fmt.Sprintf("primary on %d", id.Timeline)
	if id.InRecovery {
		role = fmt.Sprintf("standby on %d", id.Timeline)
	}
	if id.ReadOnly {
		role += " read-only"
	}
	return fmt.Sprintf("%s (%s%s)", s.addr, role, words)
}

// could reports whether at some moment between from and to a session of this start of s could write on the timeline.
func (s *server) could(from, to time.Time, boots int64, timeline uint32) bool {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	for i, t := range s.truth {
		ended := i+1 < len(s.truth) && s.truth[i+1].at.Before(from)
		if !ended && !t.at.After(to) && t.boots == boots && t.up && !t.id.InRecovery && !t.id.ReadOnly && t.id.Timeline == timeline {
			return true
		}
	}
	return false
}

// crash kills the process: connections end without a word, or are reset.
func (s *server) crash(reset bool) {
	s.w.trace("event", "crash %s reset=%t", s, reset)
	s.change(func() { s.life = dead })
	s.link.set(func(l *link) { l.dead, l.reset, l.frozen = true, reset, false })
	s.pg.Crash()
}

// shutdown stops the server as a fast shutdown does: with a word to everybody.
func (s *server) shutdown() {
	s.w.trace("event", "shutdown %s", s)
	s.change(func() { s.life = dead })
	s.link.set(func(l *link) { l.dead, l.reset = true, false })
	for _, pid := range s.pg.PIDs() {
		s.pg.Kill(pid)
	}
	s.w.in(20*time.Millisecond, func() { // what did not listen is killed
		if l, _ := s.state(); l == dead {
			s.pg.Crash()
		}
	})
}

// start starts the process again. It refuses connections with 57P03 for a while; then it is a standby, or what it was.
func (s *server) start(after time.Duration, standby bool, timeline uint32) {
	s.w.trace("event", "start %s standby=%t", s, standby)
	s.pg.Refuse(&fakepg.Error{Severity: "FATAL", Code: "57P03", Message: "the database system is starting up"})
	s.pg.Crash()
	var boots int64
	s.change(func() {
		s.id.Started = s.w.boot()
		boots = s.id.Started
		s.life = starting
		if standby {
			s.id.InRecovery, s.id.ReadOnly, s.id.Timeline = true, false, timeline
		}
	})
	s.link.set(func(l *link) { l.dead, l.frozen = false, false })
	s.w.in(after, func() {
		l, id := s.state()
		if l != starting || id.Started != boots {
			return
		}
		s.change(func() { s.life = alive })
		s.pg.Refuse(nil)
		s.w.trace("event", "up %s", s)
	})
}

// promote makes a standby a primary, on the timeline after the one it followed.
func (s *server) promote(readOnly bool) {
	s.change(func() {
		if s.life == alive && s.id.InRecovery {
			s.id.InRecovery, s.id.ReadOnly = false, readOnly
			s.id.Timeline++
			s.id.LSN += 0x1000
		}
	})
	s.w.trace("event", "promote %s", s)
}

// readOnly sets default_transaction_read_only in the configuration.
func (s *server) readOnly(on bool) {
	s.change(func() { s.id.ReadOnly = on })
	s.w.trace("event", "read-only=%t %s", on, s)
}

func (s *server) freeze(on bool) {
	s.link.set(func(l *link) { l.frozen = on })
	s.w.trace("event", "frozen=%t %s", on, s)
}

func (s *server) partition(in, out bool) {
	s.link.set(func(l *link) { l.in, l.out = in, out })
	s.w.trace("event", "partition in=%t out=%t %s", in, out, s)
}

func (s *server) slow(in, out time.Duration) {
	s.link.set(func(l *link) { l.slowIn, l.slowOut = in, out })
	s.w.trace("event", "slow in=%v out=%v %s", in, out, s)
}
