package cancelrace

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/internal/poll"
)

// request is one cancel request of a canceller.
type request struct {
	round  int
	packet []byte
	after  time.Duration // from now to its sending
	vanish bool          // do not wait for the end of its connection

	sent  atomic.Int64  // Unix nanoseconds of its leaving, 0 before
	left  chan struct{} // closed when it has left, or never will
	ended chan struct{} // closed with its connection
	free  time.Time     // for one that vanished, when it cannot be under way any more; set before ended is closed
}

// closeLimit bounds how long a cancel connection may stay open. Fencepost gives the server 5 s.
const closeLimit = 30 * time.Second

// vanishedFor is how long a request whose connection was closed at once may still be under way, beside the link's delays.
const vanishedFor = 2 * time.Second

func cancelPacket(pid uint32, secret []byte) ([]byte, error) {
	return (&pgproto3.CancelRequest{ProcessID: pid, SecretKey: secret}).Encode(nil)
}

// send is the goroutine of one request; it ends with its connection.
func (q *request) send(ctx context.Context, c *cell) {
	defer close(q.ended)
	left := sync.OnceFunc(func() { close(q.left) })
	defer left()
	if poll.For(ctx, q.after) != nil {
		return
	}
	nc, err := net.DialTimeout("tcp", c.product.Addr, closeLimit)
	if err != nil {
		c.fault("cancel connection: %v", err)
		return
	}
	defer nc.Close()
	q.sent.Store(time.Now().UnixNano())
	c.requests.Add(1)
	if _, err := nc.Write(q.packet); err != nil {
		c.fault("cancel request: %v", err)
		return
	}
	left()
	if q.vanish {
		q.free = time.Now().Add(vanishedFor + 4*c.set.delay + 2*c.set.extra())
		return
	}
	if err := nc.SetReadDeadline(time.Now().Add(closeLimit)); err != nil {
		c.fault("cancel connection: %v", err)
		return
	}
	var one [1]byte
	switch n, err := nc.Read(one[:]); {
	case n > 0:
		c.fault("a cancel request was answered with %q", one)
	case errors.Is(err, io.EOF):
	default:
		c.fault("the connection of a cancel request ended with %v", err)
	}
}

// over reports whether the request cannot hit anything any more.
func (q *request) over(now time.Time) bool {
	select {
	case <-q.ended:
		return now.After(q.free)
	default:
		return false
	}
}
