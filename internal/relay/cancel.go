package relay

import (
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"time"

	"fencepost/internal/poll"
)

// Fate is what becomes of a cancel request.
type Fate uint8

// The fates. Whatever is passed on is passed on after the treatment's Wait.
const (
	Pass  Fate = iota // it is passed on, and so is the server's close
	Hang              // it is read and kept, and its connection stays open: the server's cancel port hangs
	Mute              // it is passed on, the server's close is not
	Reset             // its connection is reset as soon as it has come; it is passed on all the same
)

// Treatment is what is done to one cancel request.
type Treatment struct {
	Fate Fate
	Wait time.Duration // how long it is held before it goes on, on top of the link's delay
}

// Cancels is what has become of cancel requests.
type Cancels struct {
	Sessions atomic.Int64 // connections other than cancel requests
	Seen     atomic.Int64 // cancel requests that came in
	Sent     atomic.Int64 // cancel requests that were written to the server whole
	Hanging  atomic.Int64 // connections of cancel requests that hang now
	Length   atomic.Int64 // of the last cancel request, in bytes

	treat atomic.Pointer[func() Treatment]
}

// Treat says how cancel requests are treated from now on; how is asked for each, from any goroutine.
func (c *Cancels) Treat(how func() Treatment) { c.treat.Store(&how) }

// cancelCode is in a CancelRequest where a startup packet has the protocol version.
const cancelCode = 80877102

// maxCancel is more than the longest CancelRequest (a key has at most 256 bytes).
const maxCancel = 12 + 256

// head reads the first bytes of a connection; of a cancel request all. It is nil if there are none.
func (c *Cancels) head(from net.Conn) (head []byte, cancel bool) {
	head = make([]byte, 8, maxCancel)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, false
	}
	if binary.BigEndian.Uint32(head[4:]) != cancelCode {
		c.Sessions.Add(1)
		return head, false
	}
	size := binary.BigEndian.Uint32(head)
	if size < 8 || size > maxCancel {
		return nil, true
	}
	head = head[:size]
	if _, err := io.ReadFull(from, head[8:]); err != nil {
		return nil, true
	}
	c.Seen.Add(1)
	c.Length.Store(int64(size))
	return head, true
}

// cancel treats one cancel request. One whose sender has gone is passed on nevertheless: what has been sent arrives. The
// server's close says that it has sent its signal; it is passed on like any other byte, as late as the way is long.
func (r *Relay) cancel(s *session, packet []byte) {
	if packet == nil {
		return
	}
	t := (*r.treat.Load())()
	switch t.Fate {
	case Hang:
		r.Hanging.Add(1)
		defer r.Hanging.Add(-1)
		io.Copy(io.Discard, s.client) //nolint:errcheck // until the other side gives up
		return
	case Reset:
		s.client.SetLinger(0) //nolint:errcheck // a socket that is gone needs no reset
		s.client.Close()
	}
	if !poll.At(time.Now().Add(t.Wait+r.late[up].Load().Min), s.over) {
		return
	}
	server, err := net.Dial("tcp", *r.server.Load())
	if err != nil {
		return
	}
	defer server.Close()
	if !s.reaches(server.(*net.TCPConn)) {
		return
	}
	if _, err := server.Write(packet); err != nil {
		return
	}
	r.Sent.Add(1)
	io.Copy(io.Discard, server) //nolint:errcheck // until it has been dealt with
	if t.Fate == Mute {
		io.Copy(io.Discard, s.client) //nolint:errcheck // until the other side gives up
		return
	}
	poll.At(time.Now().Add(r.late[down].Load().Min), s.over)
}
