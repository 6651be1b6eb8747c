// Package fakedial connects backend actors to a fakepg.Server. It is for tests.
package fakedial

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"fencepost/actors/backend"
	"fencepost/internal/fakepg"
	"fencepost/role"
	"fencepost/wire"
)

// Dialer is a backend.Dialer.
type Dialer struct {
	Server *fakepg.Server
	Seed   uint64
	// How a cancel goes wrong, per 1000: nobody is reached; the connection fails after the packet may have left, and the
	// signal comes late; nobody answers, and the signal comes late.
	NotSent, Uncertain, Unanswered int
	// Delay is how long the signal takes at most, LateBy by how much a late one comes after the failure.
	Delay, LateBy time.Duration

	mu    sync.Mutex // guards count and late
	count map[uint32]uint64
	late  sync.WaitGroup
}

var _ backend.Dialer = (*Dialer)(nil)

// Dial logs in. What the server says is what pgconn would make of it. With Target.Identify it is the server's Identity, which
// is not asked for over the connection.
func (d *Dialer) Dial(ctx context.Context, t backend.Target) (*backend.Login, error) {
	l, err := d.Server.Login(ctx)
	var refused *fakepg.Error
	if errors.As(err, &refused) {
		return nil, &pgconn.PgError{Severity: refused.Severity, Code: refused.Code, Message: refused.Message}
	}
	if err != nil {
		return nil, err
	}
	login := &backend.Login{Conn: l.Conn, Params: l.Params, PID: l.PID, Secret: l.Secret}
	if t.Identify {
		login.Query = role.IdentityQuery
		if login.Proof, err = d.identify(l.PID); err != nil {
			l.Conn.Close()
			return nil, err
		}
	}
	return login, nil
}

func (d *Dialer) identify(pid uint32) (*backend.Proof, error) {
	asked, said := time.Now(), d.Server.Identity()
	if e := said.Trouble; e != nil {
		return nil, &pgconn.PgError{Severity: e.Severity, Code: e.Code, Message: e.Message}
	}
	id, err := role.ParseIdentity(said.Row(pid))
	if err != nil {
		return nil, err
	}
	return &backend.Proof{Identity: id, Asked: asked, Answered: time.Now()}, nil
}

// Cancel sends a cancel, which goes wrong as often as it was told to.
func (d *Dialer) Cancel(_ net.Addr, key wire.CancelKey, limit time.Duration) backend.CancelResult {
	r := d.generator(key.PID)
	delay := time.Duration(r.Int64N(int64(max(d.Delay, 1))))
	failed := errors.New("fakedial: it was to fail")
	switch k := r.IntN(1000); {
	case k < d.NotSent:
		return backend.CancelResult{Err: failed}
	case k < d.NotSent+d.Uncertain:
		time.Sleep(delay)
		d.deliverLate(key, r)
		return backend.CancelResult{Sent: true, Err: failed}
	case k < d.NotSent+d.Uncertain+d.Unanswered:
		time.Sleep(limit)
		d.deliverLate(key, r)
		return backend.CancelResult{Sent: true, Timeout: true, Err: failed}
	}
	d.Server.Cancel(key.PID, key.Secret, delay)
	return backend.CancelResult{Sent: true}
}

func (d *Dialer) generator(pid uint32) *rand.Rand {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == nil {
		d.count = map[uint32]uint64{}
	}
	d.count[pid]++
	return rand.New(rand.NewPCG(d.Seed+uint64(pid)<<32, d.count[pid]))
}

// deliverLate sends the signal after the failure was reported, from a goroutine that Wait waits for.
func (d *Dialer) deliverLate(key wire.CancelKey, r *rand.Rand) {
	delay := time.Duration(r.Int64N(int64(max(d.LateBy, 1))))
	d.late.Go(func() { d.Server.Cancel(key.PID, key.Secret, delay) })
}

// Wait waits for the signals that are late.
func (d *Dialer) Wait() { d.late.Wait() }
