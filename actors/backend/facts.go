package backend

import (
	"net/netip"
	"time"
)

// Cancelling is the number of cancels on their way. Until there is none the backend must be cleaned before it is granted.
func (b *Backend) Cancelling() int { return b.leases.InFlight() }

// Spoiled reports whether a cancel may arrive at any time: the backend must be closed.
func (b *Backend) Spoiled() bool { return b.leases.Spoiled() }

// Host is the configured host the backend was opened to.
func (b *Backend) Host() string { return b.target.Host }

// LastCode is the SQLSTATE of the FATAL error, or else of the warning, with which the server announced its end; "" if it sent none.
func (b *Backend) LastCode() string { return b.lastCode }

// Farewell reports whether the server has sent a FATAL error: its client, to whom it went, need not be told of the end. A
// warning tells a client nothing that it acts on: a server in an immediate shutdown, or one that gives up waiting for a
// synchronous standby, sends no more than that.
func (b *Backend) Farewell() bool { return b.farewell }

// Login is what the server said at login; nil before. Not to be changed.
func (b *Backend) Login() *Login { return b.login }

// Proof is what the server said of itself last on this connection; nil if it was not asked, or if it said something since
// that makes it void. Not to be changed.
func (b *Backend) Proof() *Proof { return b.proof }

// Shadowed reports whether the server named another process as the one that serves this connection than at login: somebody
// else pools in between, and what one query was told says nothing about the next.
func (b *Backend) Shadowed() bool { return b.shadowed }

// Epoch is that of the view under which the backend was opened.
func (b *Backend) Epoch() uint64 { return b.epoch }

// OpenedAt is when the login finished.
func (b *Backend) OpenedAt() time.Time { return b.opened }

// Addrs are the server's and our address of the connection.
func (b *Backend) Addrs() (remote, local netip.AddrPort) {
	if b.conn == nil {
		return hostPort(b.addr), netip.AddrPort{}
	}
	return b.conn.RemoteAddr(), b.conn.LocalAddr()
}

// Resting reports whether the backend is idle and nobody ever held it since it came to rest.
func (b *Backend) Resting() bool { return b.phase == idle && b.scanner.AtBoundary() }

// AtBoundary reports whether the server's last message is complete.
func (b *Backend) AtBoundary() bool { return b.scanner.AtBoundary() }

// Queued is the number of bytes written and not taken by the kernel.
func (b *Backend) Queued() int { return b.conn.Queued() }
