package eventloop

import (
	"errors"
	"net"
	"time"
)

// portable is the poller of a Portable loop: it waits on a channel, and its events come from streams.
type portable struct {
	l     *loop
	woken chan struct{} // one slot: a wake that finds it full is one with the former
	timer *time.Timer
	list  []*stream // guarded by l.mu: have told of events that were not taken
	batch []*stream // batch[at:] is still to be worked off
	at    int
}

func newPortable(l *loop) *portable {
	return &portable{l: l, woken: make(chan struct{}, 1)}
}

func (p *portable) start() {}

func (p *portable) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// announce puts a stream on the list (any goroutine).
func (p *portable) announce(s *stream) {
	p.l.mu.Lock()
	if !p.l.stopped {
		p.list = append(p.list, s)
	}
	p.l.mu.Unlock()
	p.l.rouse()
}

func (p *portable) pending() bool {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	return len(p.list) > 0
}

func (p *portable) wait(timeout time.Duration) {
	p.sleep(timeout)
	p.collect()
}

func (p *portable) sleep(timeout time.Duration) {
	switch {
	case timeout < 0:
		<-p.woken
		p.l.count.Wakeups++
	case timeout > 0:
		if p.timer == nil {
			p.timer = time.NewTimer(timeout)
		} else {
			p.timer.Reset(timeout)
		}
		select {
		case <-p.woken:
			p.l.count.Wakeups++
		case <-p.timer.C:
		}
		p.timer.Stop()
	}
}

// collect takes the list over. The batch before must have been worked off.
func (p *portable) collect() {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	clear(p.batch)
	p.batch, p.list, p.at = p.list, p.batch[:0], 0
}

func (p *portable) next() (*conn, events) {
	for p.at < len(p.batch) {
		s := p.batch[p.at]
		p.at++
		if c, ev := s.take(p.l); c != nil {
			return c, ev
		}
		p.l.count.StaleEvents++
	}
	return nil, 0
}

func (p *portable) add(c *conn) error {
	if c.stream == nil {
		return errForeign
	}
	return c.stream.bind(c)
}

func (p *portable) remove(c *conn) { c.stream.bind(nil) }

func (p *portable) forget(*conn) {}

func (p *portable) close() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

// netAcceptor accepts on a goroutine, one connection at a time: the next when the loop has taken the last. The
// goroutine is owned by the group and ends when the listener is closed.
type netAcceptor struct {
	l      *loop
	nl     net.Listener
	accept func(Socket)
	failed func(error)
	taken  chan struct{}
	closed chan struct{}
	rest   Timer
}

func (p *portable) listen(nl net.Listener, accept func(Socket), failed func(error)) (Acceptor, error) {
	a := &netAcceptor{
		l: p.l, nl: nl, accept: accept, failed: failed,
		taken: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	a.rest.Fire = func() { a.taken <- struct{}{} }
	if !p.l.group.begin() {
		return nil, errStopped
	}
	go a.run()
	return a, nil
}

func (a *netAcceptor) run() {
	defer a.l.group.running.Done()
	for {
		nc, err := a.nl.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		var s *socket
		task := func() { a.deliver(s) }
		if err != nil {
			task = func() { a.pause(err) }
		} else {
			s = a.l.group.streamSocket(nc)
		}
		if !a.l.Post(task) {
			if s != nil {
				s.Close()
			}
			return
		}
		select {
		case <-a.taken:
		case <-a.closed:
			return // the task that is queued sees it and closes its socket
		}
	}
}

func (a *netAcceptor) isClosed() bool {
	select {
	case <-a.closed:
		return true
	default:
		return false
	}
}

func (a *netAcceptor) deliver(s *socket) {
	if a.isClosed() {
		s.Close()
		return
	}
	a.taken <- struct{}{}
	a.l.accepted(s, a.accept)
}

func (a *netAcceptor) pause(err error) {
	if a.isClosed() {
		return
	}
	a.l.SetTimer(&a.rest, AcceptPause)
	a.l.acceptFailed(err, a.failed)
}

// Close stops accepting.
func (a *netAcceptor) Close() {
	if a.isClosed() {
		return
	}
	close(a.closed)
	a.l.StopTimer(&a.rest)
	a.l.dropAcceptor(a)
	a.nl.Close()
}
