package monitor

import (
	"bytes"
	"context"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/rs/zerolog"

	"fencepost/internal/memconn"
	"fencepost/role"
	"fencepost/wire"
)

// fakeHost is a scripted server: each connection gets the next handler, and the last handler serves all that follow.
type fakeHost struct {
	start  time.Time
	served sync.WaitGroup // handlers

	mu      sync.Mutex // guards what follows
	script  []handler
	dials   []time.Duration // when, since the start
	cancels []*pgproto3.CancelRequest
}

// handler serves one connection on a goroutine of its own. A nil conn is an attempt to connect: what it returns then is
// the dial's error.
type handler struct {
	refuse func(ctx context.Context) error
	serve  func(c *fakeConn)
}

// fakeConn is the server's end.
type fakeConn struct {
	*memconn.Conn
	be   *pgproto3.Backend
	host *fakeHost
}

func newFake(script ...handler) *fakeHost { return &fakeHost{start: time.Now(), script: script} }

func (h *fakeHost) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	h.mu.Lock()
	do := h.script[0]
	if len(h.script) > 1 {
		h.script = h.script[1:]
	}
	h.dials = append(h.dials, time.Since(h.start))
	h.mu.Unlock()
	if do.refuse != nil {
		return nil, do.refuse(ctx)
	}
	client, server := memconn.Pipe(1 << 16)
	h.served.Go(func() {
		defer server.Close()
		do.serve(&fakeConn{server, pgproto3.NewBackend(server, server), h})
	})
	return client, nil
}

func (h *fakeHost) config() Config {
	return Config{Host: "192.0.2.1:5432", User: watcher, Database: "postgres", Dial: h.dial, Log: zerolog.Nop()}
}

func (h *fakeHost) times() []time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]time.Duration(nil), h.dials...)
}

func errno(n syscall.Errno) handler {
	return handler{refuse: func(context.Context) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", n)}
	}}
}

// blackhole is a network that loses everything.
var blackhole = handler{refuse: func(ctx context.Context) error {
	<-ctx.Done()
	return &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
}}

// login lets the client in; false if it has gone.
func (c *fakeConn) login() bool {
	m, err := c.be.ReceiveStartupMessage()
	if err != nil {
		return false
	}
	if cancel, ok := m.(*pgproto3.CancelRequest); ok {
		c.host.mu.Lock()
		c.host.cancels = append(c.host.cancels, cancel)
		c.host.mu.Unlock()
		return false
	}
	c.send(&pgproto3.AuthenticationOk{}, &pgproto3.ParameterStatus{Name: "server_version", Value: "18"},
		&pgproto3.BackendKeyData{ProcessID: 7, SecretKey: []byte{1, 2, 3, 4}}, &pgproto3.ReadyForQuery{TxStatus: wire.TxIdle})
	return true
}

func (c *fakeConn) send(messages ...pgproto3.BackendMessage) {
	for _, m := range messages {
		c.be.Send(m)
	}
	c.be.Flush()
}

// query waits for the next query; "" when the client has gone.
func (c *fakeConn) query() string {
	for {
		m, err := c.be.Receive()
		if err != nil {
			return ""
		}
		if q, ok := m.(*pgproto3.Query); ok {
			return q.String
		}
	}
}

// row answers with one row; "" is NULL.
func (c *fakeConn) row(values ...string) {
	r := &pgproto3.DataRow{}
	d := &pgproto3.RowDescription{}
	for _, v := range values {
		d.Fields = append(d.Fields, pgproto3.FieldDescription{Name: []byte("c"), DataTypeOID: 25})
		if v == "" {
			r.Values = append(r.Values, nil)
		} else {
			r.Values = append(r.Values, []byte(v))
		}
	}
	c.send(d, r, &pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")}, &pgproto3.ReadyForQuery{TxStatus: wire.TxIdle})
}

func (c *fakeConn) fail(severity, code string) {
	c.send(&pgproto3.ErrorResponse{Severity: severity, SeverityUnlocalized: severity, Code: code, Message: "it was to fail"})
}

// writable is the row of a primary on timeline 3.
var writable = []string{"postgres", "f", "off", "", "77", "000000030000000000000001", "", "0/2000000", "0", "", "7", "1000000"}

// serving answers every probe with what answer does, after the login and the first question.
func serving(answer func(c *fakeConn, n int) bool) handler {
	return handler{serve: func(c *fakeConn) {
		if !c.login() {
			return
		}
		for n := 0; ; {
			switch q := c.query(); {
			case q == "":
				return
			case q == role.AuroraCheck:
				c.row("f")
			default:
				if !answer(c, n) {
					return
				}
				n++
			}
		}
	}}
}

// healthy is a primary.
var healthy = serving(func(c *fakeConn, _ int) bool { c.row(writable...); return true })

// hang keeps the connection open without a word until the client gives up.
func hang(c *fakeConn) bool {
	for c.query() != "" {
	}
	return false
}

// bubble runs a test in a bubble.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// ended stops the monitor and sees that its goroutines end with it and not some time later.
func (h *fakeHost) ended(t *testing.T, s *shard) {
	t.Helper()
	s.stop()
	synctest.Wait()
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, f := range []string{"monitor.(*worker)", "monitor.(*link)", "pgconn."} {
		if bytes.Contains(stacks, []byte(f)) {
			t.Errorf("a goroutine is left in %s:\n%s", f, stacks)
		}
	}
	h.served.Wait()
}

func started(t *testing.T, h *fakeHost, change func(*Config)) *shard {
	t.Helper()
	c := h.config()
	if change != nil {
		change(&c)
	}
	s := watch(t, c)
	t.Cleanup(func() { h.ended(t, s) })
	return s
}

// kinds gives the types of messages, for comparison.
func kinds(messages []any) string {
	var names []string
	for _, m := range messages {
		var words []string
		switch m := m.(type) {
		case *State:
			words = []string{"State", m.Kind.String()}
		case *Observed:
			words = []string{"Observed", m.Verdict.String()}
		case *Late:
			words = []string{"Late"}
		case *Lost:
			words = []string{"Lost", m.Kind.String(), m.Code, map[bool]string{true: "expected"}[m.Expected]}
		case *Refused:
			words = []string{"Refused", m.Kind.String(), m.Code, map[bool]string{true: "after loss"}[m.AfterLoss]}
		case *Failed:
			words = []string{"Failed", m.Kind.String(), m.Code}
		default:
			words = []string{"?"}
		}
		names = append(names, strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " "))
	}
	return strings.Join(names, ", ")
}
