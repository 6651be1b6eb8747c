package eventloop

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	streamBuffer = 64 << 10        // bytes a stream keeps in either direction, as a kernel's socket buffers would
	streamLinger = 5 * time.Second // how long a closed stream tries to deliver what it has taken
	streamRest   = time.Second     // how long reading goes on after a write failed
)

// stream makes a blocking net.Conn look like a non-blocking socket: a reading and a writing goroutine with a buffer
// each, which tell the connection's loop of changes. It is what connections of a Portable loop read and write, and
// moves with them from loop to loop. Both goroutines are owned by the group; they begin with the first loop and end
// when the stream is closed or its net.Conn fails.
type stream struct {
	group *Group
	nc    net.Conn

	// mu guards what follows. A loop's queue lock may be taken while it is held, nothing else.
	mu        sync.Mutex
	room      sync.Cond // the reader waits for room in the buffer
	data      sync.Cond // the writer waits for bytes to write
	sink      *conn     // told of events; nil while the stream is between loops
	pending   events    // not taken by the sink's loop yet
	queued    bool      // on the list of the sink's loop
	running   bool
	in        []byte
	readErr   error // io.EOF at the end
	out       []byte
	writing   int // bytes the writer is busy with
	spare     []byte
	writeErr  error
	refused   bool // send took less than it was given: tell when there is room
	closed    bool
	writeDone bool
}

func newStream(g *Group, nc net.Conn) *stream {
	s := &stream{group: g, nc: nc}
	s.room.L, s.data.L = &s.mu, &s.mu
	return s
}

// bind makes c the one that is told of events; nil takes the stream off its loop.
func (s *stream) bind(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sink, s.pending = c, 0
	if c == nil {
		return nil
	}
	if !s.running {
		if !s.group.open(s) {
			s.sink = nil
			return errStopped
		}
		s.running = true
		go s.read()
		go s.write()
	}
	var ev events
	if len(s.in) > 0 {
		ev |= evReadable
	}
	if s.readErr != nil || s.writeErr != nil {
		ev |= evReadable | evHangup
	}
	s.notify(ev)
	return nil
}

// notify is called with mu held.
func (s *stream) notify(ev events) {
	s.pending |= ev
	if s.pending == 0 || s.sink == nil || s.queued {
		return
	}
	s.queued = true
	s.sink.loop.poll.(*portable).announce(s)
}

// take is called by the loop of c, on whose list the stream was; c is nil if it moved on meanwhile.
func (s *stream) take(l *loop) (c *conn, ev events) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued = false
	if s.sink == nil {
		return nil, 0
	}
	if s.sink.loop != l {
		s.notify(0)
		return nil, 0
	}
	ev, s.pending = s.pending, 0
	return s.sink, ev
}

func (s *stream) read() {
	defer s.group.done(s)
	buf := make([]byte, 16<<10)
	for {
		n, err := s.nc.Read(buf)
		s.mu.Lock()
		ev := evReadable
		if !s.closed { // else: discard, so that a peer that writes comes to read our end
			s.in = append(s.in, buf[:n]...)
		}
		if err != nil {
			s.readErr = readError(err)
			ev |= evHangup
		}
		s.notify(ev)
		for err == nil && !s.closed && len(s.in) >= streamBuffer {
			s.room.Wait()
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// readError folds the ways a net.Conn says that it is closed.
func readError(err error) error {
	if errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

func (s *stream) write() {
	defer s.group.done(s)
	for {
		s.mu.Lock()
		for len(s.out) == 0 && !s.closed {
			s.data.Wait()
		}
		b := s.out
		if len(b) == 0 {
			break
		}
		s.out, s.spare, s.writing = s.spare[:0], nil, len(b)
		s.mu.Unlock()
		_, err := s.nc.Write(b)
		s.mu.Lock()
		s.spare, s.writing = b[:0], 0
		if err != nil {
			s.writeErr, s.out = err, nil
			s.nc.SetReadDeadline(time.Now().Add(streamRest)) // the reader ends soon, with what the peer sent before
			s.notify(evReadable | evWritable | evHangup)
			break
		}
		if s.refused {
			s.refused = false
			s.notify(evWritable)
		}
		s.mu.Unlock()
	}
	s.writeDone = true
	closed := s.closed
	s.mu.Unlock()
	if closed {
		s.nc.Close()
	}
}

// recv takes what has come in: 0 and nil at the end, errAgain when there is nothing.
func (s *stream) recv(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.in) == 0 {
		switch {
		case s.readErr == nil:
			return 0, errAgain
		case s.writeErr != nil:
			return 0, s.writeErr
		case s.readErr == io.EOF:
			return 0, nil
		}
		return 0, s.readErr
	}
	n := copy(b, s.in)
	s.in = s.in[:copy(s.in, s.in[n:])]
	s.room.Signal()
	return n, nil
}

// send takes what fits.
func (s *stream) send(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writeErr != nil {
		return 0, s.writeErr
	}
	n := min(len(b), max(streamBuffer-len(s.out)-s.writing, 0))
	s.refused = n < len(b)
	if n > 0 {
		s.out = append(s.out, b[:n]...)
		s.data.Signal()
	}
	return n, nil
}

func (s *stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writeErr != nil {
		return s.writeErr
	}
	return s.readErr
}

func (s *stream) quiet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readErr == nil && s.writeErr == nil && len(s.in) == 0
}

// close ends the stream. What send has taken is still written, within streamLinger, as a kernel would.
func (s *stream) close() {
	s.mu.Lock()
	s.sink, s.closed, s.in = nil, true, nil
	now := !s.running || s.writeDone || len(s.out)+s.writing == 0
	s.room.Signal()
	s.data.Signal()
	s.mu.Unlock()
	if now {
		s.nc.Close()
		return
	}
	if err := s.nc.SetWriteDeadline(time.Now().Add(streamLinger)); err != nil {
		s.nc.Close()
	}
}

func (s *stream) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
