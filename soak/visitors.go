package soak

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"fencepost/soak/raw"
)

// visitor is a connection that never becomes a working session.
type visitor struct {
	name   string
	weight int
	do     func(*worker) error
}

var visitors = []visitor{
	{"connects and leaves", 4, func(w *worker) error { return w.mute(nil, false) }},
	{"connects and says nothing", 2, func(w *worker) error { return w.mute(nil, true) }},
	{"half a startup packet", 2, func(w *worker) error { return w.mute(w.startup()[:20], w.rng.IntN(2) == 0) }},
	{"stops in the login", 3, func(w *worker) error { return w.mute(w.startup(), w.rng.IntN(2) == 0) }},
	{"garbage", 4, func(w *worker) error { return w.mute(noise(w.rng, 1+w.rng.IntN(3000)), true) }},
	{"garbage in the login", 3, func(w *worker) error {
		return w.mute(append(w.startup(), noise(w.rng, 1+w.rng.IntN(300))...), true)
	}},
	{"huge lengths", 2, func(w *worker) error { return w.mute(hugeLength(w.rng), true) }},
	{"TLS without asking", 1, (*worker).directTLS},
	{"asks for encryption", 2, (*worker).asksForEncryption},
	{"injects behind a request for encryption", 1, (*worker).injects},
	{"garbage in the session", 4, (*worker).garbageInSession},
	{"wrong password", 3, func(w *worker) error { return w.refusedLogin("", "wrong", "28P01") }},
	{"unknown user", 2, func(w *worker) error { return w.refusedLogin("nobody", "x", "28P01") }},
	{"unknown database", 2, (*worker).unknownDatabase},
	{"burst of logins", 2, (*worker).burst},
	{"health check", 2, (*worker).healthCheck},
}

// closing is how long Fencepost may take to close a connection it should close.
func (r *run) closing() time.Duration { return loginTimeout + cancelClosing }

// mute connects, sends bytes and waits for the other side to close, or leaves after a moment.
func (w *worker) mute(b []byte, wait bool) error {
	nc, err := w.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	if _, err := nc.Write(b); err != nil {
		return nil // closed meanwhile, as it may be
	}
	if !wait {
		w.wait(time.Duration(w.rng.IntN(100)) * time.Millisecond)
		return nil
	}
	return w.untilClosed(nc)
}

func (w *worker) connect() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(w.r.hard, patience)
	defer cancel()
	return w.r.meter.DialUncounted(ctx, "tcp", w.r.addr)
}

// untilClosed reads until the other side closes. Nothing in what it says may be anybody's answer.
func (w *worker) untilClosed(nc net.Conn) error {
	if err := nc.SetDeadline(time.Now().Add(w.r.closing())); err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(nc, 1<<20))
	if len(tags(string(b))) > 0 {
		w.r.violate(foreignAnswer, "%s: a connection without a session got %q", w.doing, short(string(b), 400))
	}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() && w.r.hard.Err() == nil {
		w.r.violate(notClosed, "%s: still open after %v, said %q", w.doing, w.r.closing(), short(string(b), 200))
	}
	return nil
}

// startup is a startup packet of a user who exists.
func (w *worker) startup() []byte {
	p := binary.BigEndian.AppendUint32(make([]byte, 4), 3<<16)
	p = fmt.Appendf(p, "user\x00%s\x00database\x00%s\x00\x00", users[0], w.r.dbs[0].name)
	binary.BigEndian.PutUint32(p, uint32(len(p)))
	return p
}

func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.IntN(256))
	}
	return b
}

func hugeLength(rng *rand.Rand) []byte {
	n := []uint32{0, 3, 7, 10001, 1 << 30, 1<<31 - 1, 1 << 31, 1<<32 - 1}[rng.IntN(8)]
	return append(binary.BigEndian.AppendUint32(nil, n), noise(rng, rng.IntN(100))...)
}

func (w *worker) directTLS() error {
	nc, err := w.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(w.r.hard, w.r.closing())
	defer cancel()
	c := tls.Client(nc, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"postgresql"}})
	if err := c.HandshakeContext(ctx); err == nil {
		w.r.violate(wrongAnswer, "%s: a handshake succeeded", w.doing)
	} else if ctx.Err() != nil && w.r.hard.Err() == nil {
		w.r.violate(notClosed, "%s: no answer within %v", w.doing, w.r.closing())
	}
	return nil
}

// asksForEncryption is told no twice and then goes on as it is.
func (w *worker) asksForEncryption() error {
	const sslRequest, gssRequest = 80877103, 80877104
	nc, err := w.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	for _, code := range []uint32{gssRequest, sslRequest} {
		b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 8), code)
		if _, err := nc.Write(b); err != nil {
			return nil
		}
		if _, err := io.ReadFull(nc, b[:1]); err != nil || b[0] != 'N' {
			if w.r.hard.Err() == nil {
				w.r.violate(wrongAnswer, "%s: request %d was answered with %q, %v", w.doing, code, b[0], err)
			}
			return nil
		}
	}
	if _, err := nc.Write(w.startup()); err != nil {
		return nil
	}
	var b [1]byte
	if _, err := io.ReadFull(nc, b[:]); (err != nil || b[0] != 'R') && w.r.hard.Err() == nil {
		w.r.violate(wrongAnswer, "%s: the startup packet was answered with %q, %v", w.doing, b, err)
	}
	return nil
}

// injects sends plain text behind a request for encryption, as somebody in between might.
func (w *worker) injects() error {
	b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 8), 80877103)
	return w.mute(append(b, w.startup()...), true)
}

// garbageInSession logs in and then sends what is no protocol.
func (w *worker) garbageInSession() error {
	s := w.login(w.anyDatabase())
	if s == nil {
		return nil
	}
	defer func() { s.own.leave(s.doing) }()
	defer s.conn.Reset()
	s.doing = w.doing
	if w.rng.IntN(2) == 0 {
		if err := s.again(simpleQuery); err != nil {
			s.judge(err)
			return nil
		}
	}
	s.own.busy.Store(true)
	b := noise(w.rng, 1+w.rng.IntN(2000))
	if w.rng.IntN(2) == 0 { // a type that exists, with a length that does not fit
		b = append([]byte{"QPBDESCFHdcfp"[w.rng.IntN(13)]}, hugeLength(w.rng)...)
	}
	if s.conn.Write(time.Now().Add(time.Second), b) != nil {
		return nil
	}
	// It may wait for the rest of a message that will never come: a moment is enough.
	reply, err := s.conn.Collect(time.Now().Add(time.Duration(200+w.rng.IntN(1000))*time.Millisecond), 1<<30, nil)
	for i := range reply.Segments {
		if strange(s.id, reply.Segments[i].Text+errorTexts(reply.Segments[i].Errors)) == foreignAnswer {
			s.violate(foreignAnswer, "garbage was answered with %s", short(reply.String(), 400)) //nolint:errcheck // the session ends
		}
	}
	if lost := (*raw.Lost)(nil); errors.As(err, &lost) && lost.Said != nil {
		w.r.error("garbage: "+lost.Said.Code, lost.Said.Error())
	}
	return nil
}

func (w *worker) refusedLogin(user, password, code string) error {
	db, own := w.anyDatabase()
	if user == "" {
		user = own
	}
	return w.refused(raw.Login{Addr: w.r.addr, User: user, Password: password, Database: db.name}, code)
}

func (w *worker) unknownDatabase() error {
	return w.refused(raw.Login{Addr: w.r.addr, User: users[0], Password: password(users[0]), Database: "nowhere"}, "3D000")
}

func (w *worker) refused(l raw.Login, code string) error {
	c, err := raw.Open(w.r.hard, l, &w.r.meter)
	var pe *pgconn.PgError
	switch {
	case err == nil:
		c.Close()
		w.r.violate(wrongAnswer, "%s: the login of %s to %s succeeded", w.doing, l.User, l.Database)
	case errors.As(err, &pe) && pe.Code == code:
		w.r.error(code+" at login", pe.Error())
	default:
		w.r.judgeLogin(w.doing, err)
	}
	return nil
}

// burst has many clients log in at the same instant, ask one thing and leave.
func (w *worker) burst() error {
	const n = 16
	db, user := w.anyDatabase()
	var all sync.WaitGroup
	for range n {
		s := w.newSession(db, user) // numbers and choices are made here: they belong to one goroutine
		all.Go(func() {
			if err := s.login(); err != nil {
				w.r.judgeLogin(s.id.name()+" (burst)", err)
				return
			}
			defer func() { s.own.leave(s.doing) }()
			err := s.again(simpleQuery)
			s.judge(err)
			if err == nil {
				s.conn.Terminate()
			} else {
				s.conn.Close()
			}
		})
	}
	all.Wait()
	return nil
}

// healthCheck is what load balancers do: connect and close, a few times.
func (w *worker) healthCheck() error {
	for range 5 {
		nc, err := w.connect()
		if err != nil {
			return err
		}
		nc.Close()
	}
	return nil
}
