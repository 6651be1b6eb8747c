package relay

import (
	"io"
	"net"
	"time"
)

// pass carries a session in both directions until both have ended.
func (r *Relay) pass(c net.Conn, head []byte, delay time.Duration) {
	if !r.wait(time.Now().Add(delay)) {
		return
	}
	s, err := net.Dial("tcp", r.server)
	if err != nil || !r.own(s) {
		return
	}
	defer r.drop(s)
	if _, err := s.Write(head); err != nil {
		return
	}
	back := make(chan struct{})
	go func() { // ends with the connections
		defer close(back)
		r.pipe(c, s, delay)
	}()
	r.pipe(s, c, delay)
	<-back
}

// pipe carries one direction to its end, which it passes on. A direction that fails takes the other with it.
func (r *Relay) pipe(dst, src net.Conn, delay time.Duration) {
	var err error
	if delay == 0 {
		_, err = io.Copy(dst, src)
	} else {
		err = r.slowly(dst, src, delay)
	}
	if err == nil {
		err = dst.(*net.TCPConn).CloseWrite()
	}
	if err != nil {
		src.Close()
		dst.Close()
	}
}

// chunk is what one read brought, and when it is due at the other end. No bytes: the end of the stream.
type chunk struct {
	b   []byte
	due time.Time
}

// Bounds on what is under way in one direction.
const (
	chunkSize = 16 << 10
	maxChunks = 256
)

func (r *Relay) slowly(dst, src net.Conn, delay time.Duration) error {
	line := make(chan chunk, maxChunks)
	failed := make(chan error, 1)
	go func() { failed <- read(src, line, delay) }() // ends with src
	for c := range line {
		var err error = net.ErrClosed
		if r.wait(c.due) {
			_, err = dst.Write(c.b)
		}
		if err != nil {
			src.Close()
			for range line { // let the reader see it
			}
			return err
		}
	}
	return <-failed
}

// read fills the line. It closes it at the end of the stream, which is delayed like bytes, or at once after a failure.
func read(src net.Conn, line chan<- chunk, delay time.Duration) error {
	defer close(line)
	for {
		b := make([]byte, chunkSize)
		n, err := src.Read(b)
		if err != nil && err != io.EOF { //nolint:errorlint // a socket's own
			return err
		}
		line <- chunk{b[:n], time.Now().Add(delay)}
		if err != nil {
			return nil
		}
	}
}
