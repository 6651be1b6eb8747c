package backend

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"fencepost/actors/backend/cancellease"
	"fencepost/wire"
)

// errCancelUnanswered says that the server did not close a cancel connection in time.
var errCancelUnanswered = errors.New("the server did not answer the cancel request in time")

// Cancel sends a CancelRequest to the server behind a backend.
func (PasswordDialer) Cancel(remote net.Addr, key wire.CancelKey, limit time.Duration) CancelResult {
	return SendCancel(remote.Network(), remote.String(), key, limit)
}

// SendCancel sends a CancelRequest to an address as net.Dial takes it and waits until the other side has closed the
// connection: then it has been dealt with. It blocks for at most limit.
func SendCancel(network, addr string, key wire.CancelKey, limit time.Duration) CancelResult {
	end := time.Now().Add(limit)
	c, err := net.DialTimeout(network, addr, limit)
	if err != nil {
		return CancelResult{Err: err}
	}
	defer c.Close()
	if err := c.SetDeadline(end); err != nil {
		return CancelResult{Err: err}
	}
	if n, err := c.Write(wire.AppendCancelRequest(nil, key)); err != nil {
		return CancelResult{Sent: n > 0, Timeout: isTimeout(err), Err: err}
	}
	// PostgreSQL answers nothing and ends the stream in order, having read the whole packet. Anything else, a reset too,
	// may come from somebody in between who still has the packet.
	switch _, err := io.Copy(io.Discard, c); {
	case err == nil:
		return CancelResult{Sent: true}
	case isTimeout(err):
		return CancelResult{Sent: true, Timeout: true, Err: errCancelUnanswered}
	default:
		return CancelResult{Sent: true, Err: err}
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// startCancel takes a lease for h (nil: for whoever held the backend last, while it is brought to rest) and sends the
// cancel from a goroutine, which ends with the server's close, a failure, or cancel_ack_timeout. It outlives the holder
// and the canceller; should this actor end first, its connection does, too, and nothing can be handed on.
func (b *Backend) startCancel(h Holder, done func()) {
	b.unwanted = b.unwanted || h != nil
	if b.login == nil || len(b.login.Secret) == 0 { // a server that gave no key cannot be asked
		b.send(&CancelEnded{Outcome: cancellease.NotSent})
		if done != nil {
			done()
		}
		return
	}
	b.leaseID++
	holding := b.holding
	if b.phase == gone || b.phase == dialling || h != nil && b.holder != h {
		holding = 0
	}
	id := b.leaseID
	for _, e := range b.leases.Step(b.loop.Now(), cancellease.Take{ID: id, Holder: holding}) {
		switch e.Kind {
		case cancellease.Send:
			b.sendCancel(id, done)
		default:
			b.send(&CancelEnded{Outcome: cancellease.Dropped})
			if done != nil {
				done()
			}
		}
	}
}

func (b *Backend) sendCancel(id uint64, done func()) {
	addr, key, limit := b.addr, wire.CancelKey{PID: b.login.PID, Secret: b.login.Secret}, b.deps.CancelLimit()
	b.deps.Cancels.Add(1)
	go func() {
		r := b.deps.Dialer.Cancel(addr, key, limit)
		b.deps.Cancels.Add(-1)
		b.loop.Post(func() {
			b.mb.Run(func() {
				if done != nil {
					defer done() // also if what follows fails: the canceller waits for it
				}
				b.cancelEnded(id, r)
			})
		})
	}()
}

func (b *Backend) cancelEnded(id uint64, r CancelResult) {
	var ev cancellease.Event = cancellease.Closed{ID: id}
	if r.Err != nil {
		ev = cancellease.Failed{ID: id, Sent: r.Sent, Timeout: r.Timeout}
		b.deps.Log.Warn().Err(r.Err).Uint64("backend", b.ID).Str("host", b.target.Host).Bool("sent", r.Sent).Msg("cancel request failed")
	}
	for _, e := range b.leases.Step(b.loop.Now(), ev) {
		if e.Kind == cancellease.End {
			b.send(&CancelEnded{Outcome: e.Outcome, Took: e.Took})
		}
	}
	if b.phase == cleaning {
		if b.clean.step == draining && !b.clean.deadline.IsZero() && b.timer.Armed() {
			b.loop.SetTimer(&b.timer, b.clean.wait/2) // the next cancel is due so long after this one: its answer may be on its way
		}
		b.cleanNext()
	}
}

// cancelAddr is the address a cancel goes to: the very server the backend is connected to, whatever its name resolves to
// by now.
func cancelAddr(nc net.Conn) net.Addr {
	a := nc.RemoteAddr()
	if u, ok := a.(*net.UnixAddr); ok && u.Name != "" {
		return u
	}
	return a
}

// hostPort is a as far as it is an IP address.
func hostPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort()
	}
	return netip.AddrPort{}
}
