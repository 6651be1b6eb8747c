package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"fencepost/internal/poll"
	"fencepost/soak/raw"
)

// worker is one client of the run: it lives one connection after the other.
type worker struct {
	r     *run
	rng   *rand.Rand
	soft  context.Context
	id    int
	conns int
	doing string
	now   atomic.Pointer[string] // for the report of a client that does not come to an end
}

// What a worker does next, in parts of their sum.
const (
	weightRaw     = 70 // a session by the protocol alone
	weightPgx     = 18 // a session with pgx
	weightShort   = 12 // connect, one query, leave
	weightVisitor = 10 // anything that is no session
)

// work lives until the load ends.
func (w *worker) work() {
	defer w.now.Store(nil)
	for w.soft.Err() == nil {
		w.live()
		w.wait(w.r.think(w.rng))
	}
}

func (w *worker) live() {
	n := w.rng.IntN(weightRaw + weightPgx + weightShort + weightVisitor)
	switch {
	case w.r.opts.Only != nil || n < weightRaw:
		w.session(1 + min(int(w.rng.ExpFloat64()*20), 100))
	case n < weightRaw+weightPgx:
		w.pgxSession()
	case n < weightRaw+weightPgx+weightShort:
		w.session(1)
	default:
		v := pick(w.rng, visitors, func(v *visitor) int { return v.weight })
		w.doing = v.name
		w.now.Store(&v.name)
		began := time.Now()
		if err := v.do(w); err != nil && w.r.hard.Err() == nil {
			w.r.violate(harness, "%s: %v", v.name, err)
		}
		w.r.did("visitor: "+v.name, time.Since(began), false)
	}
}

func (w *worker) wait(d time.Duration) {
	poll.For(w.soft, d) //nolint:errcheck // the caller looks at soft
}

// anyDatabase chooses where to work, and as whom.
func (w *worker) anyDatabase() (*database, string) {
	db := pick(w.rng, w.r.dbs, func(d *database) int { return d.weight })
	return db, users[w.rng.IntN(len(users))]
}

// newSession prepares the next connection.
func (w *worker) newSession(db *database, user string) *session {
	w.conns++
	s := &session{r: w.r, now: &w.now, rng: rand.New(rand.NewPCG(w.rng.Uint64(), w.rng.Uint64())), db: db, user: user, soft: w.soft, doing: "login"}
	s.id = tag{client: w.id, conn: w.conns}
	return s
}

// login opens a session; nil if it was refused, which has been judged then.
func (w *worker) login(db *database, user string) *session {
	s := w.newSession(db, user)
	if err := s.login(); err != nil {
		w.r.judgeLogin(s.id.name()+" "+db.name+"/"+user, err)
		return nil
	}
	return s
}

// login connects with settings of the session's own and checks what it is told.
func (s *session) login() error {
	params, want := chooseSettings(s.rng, s.id.name())
	l := raw.Login{Addr: s.r.addr, User: s.user, Password: password(s.user), Database: s.db.name, Params: params,
		Protocol: []string{"3.0", "3.2"}[s.rng.IntN(2)]}
	if s.rng.IntN(8) == 0 {
		l.ReceiveBuffer = 32 << 10 // with less the loopback stalls, whoever sends
	}
	s.own, s.want = s.r.owners.enter(s.id.name()), want
	c, err := raw.Open(s.r.hard, l, &s.r.meter)
	if err != nil {
		s.own.leave("login failed")
		return err
	}
	s.conn = c
	c.Notified = s.notified
	s.checkReported() //nolint:errcheck // noted
	return nil
}

// session does some things in a session and leaves it.
func (w *worker) session(things int) {
	s := w.login(w.anyDatabase())
	if s == nil {
		return
	}
	defer s.forgetListener()
	for range things {
		if w.soft.Err() != nil {
			break
		}
		a := s.nextActivity()
		if !s.perform(a.name, a.do) {
			return
		}
		w.wait(w.r.think(w.rng))
	}
	s.part()
}

// nextActivity chooses among those that the database allows.
func (s *session) nextActivity() *activity {
	a := pick(s.rng, activities, func(a *activity) int {
		if !s.db.allows(a.modes) || s.r.opts.Only != nil && !s.r.opts.Only.MatchString(a.name) {
			return 0
		}
		return a.weight
	})
	if a == nil {
		return &activities[0]
	}
	return a
}

// perform does one thing; false if the session is over.
func (s *session) perform(name string, do func(*session) error) bool {
	s.does(name)
	began := time.Now()
	err := do(s)
	var d *disturbed
	s.r.did(name, time.Since(began), err != nil && !errors.Is(err, errLeft))
	if err == nil || errors.As(err, &d) {
		return true
	}
	s.judge(err)
	s.conn.Close()
	s.own.leave(name + ": " + err.Error())
	return false
}

// does notes what the session does now.
func (s *session) does(what string) {
	s.doing = what
	text := s.id.name() + " " + s.db.name + "/" + s.user + " " + what
	s.now.Store(&text)
}

// part brings the session into some phase and leaves.
func (s *session) part() {
	p := &partings[0]
	if s.r.opts.Only == nil && s.soft.Err() == nil {
		p = pick(s.rng, partings, func(p *parting) int {
			if !s.db.allows(p.modes) {
				return 0
			}
			return p.weight
		})
	}
	began := time.Now()
	s.does("leaves " + p.name)
	err := p.do(s)
	var d *disturbed
	if err != nil && !errors.As(err, &d) {
		s.judge(err)
	}
	s.leave()
	s.r.did(strings.Replace(s.doing, ", ", " by ", 1), time.Since(began), err != nil)
}

// forgetListener takes the session off the list of those who listen.
func (s *session) forgetListener() {
	for c := range s.channels {
		s.r.listeners.remove(s.db.index, c)
	}
}

// password of a user of the run.
func password(user string) string { return "soak password of " + user }
