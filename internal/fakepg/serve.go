package fakepg

import (
	"bytes"
	"math/rand/v2"
	"net"
	"slices"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Serve serves a client that connects over nc, which belongs to the server from now on: it is logged in without a password
// and told the role of the server, as PostgreSQL 14 and newer tells it, then and when it changes. A CancelRequest is
// carried out. Serve does not wait.
func (s *Server) Serve(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		nc.Close()
		return
	}
	s.logins++
	c := newConn(s, uint32(1000+s.logins), nc, rand.New(rand.NewPCG(s.seed, uint64(s.logins))), s.faults)
	c.engine.TellsRole = true
	s.conns[c.pid] = c
	s.done.Add(1)
	go c.accept()
}

// refusal is what the login of a user fails with; nil: nothing.
func (s *Server) refusal(user string) *Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return s.down
	}
	return s.barred[user]
}

// accept serves one connection from its startup packet on.
func (c *conn) accept() {
	defer c.server.done.Done()
	defer c.leave()
	b := pgproto3.NewBackend(c.nc, nil)
	m, err := b.ReceiveStartupMessage()
	if err != nil {
		c.trouble = "startup: " + err.Error()
		return
	}
	switch m := m.(type) {
	case *pgproto3.StartupMessage:
		if c.greet(m.Parameters["user"]) {
			c.serve(b)
		}
	case *pgproto3.CancelRequest:
		c.trouble = "cancel request"
		c.server.Cancel(m.ProcessID, bytes.Clone(m.SecretKey), 0)
	default:
		c.trouble = "startup: not understood"
	}
}

// greet logs the client in, unless the server lets nobody in.
func (c *conn) greet(user string) bool {
	switch down := c.server.refusal(user); {
	case c.isCrashed():
		c.trouble = "crashed"
		return false
	case down != nil:
		c.engine.error(down)
		c.trouble = "refused"
		return false
	}
	c.send(&pgproto3.AuthenticationOk{})
	reported := Reported()
	for _, name := range sortedNames(reported) {
		c.send(&pgproto3.ParameterStatus{Name: name, Value: reported[name]})
	}
	c.send(&pgproto3.BackendKeyData{ProcessID: c.pid, SecretKey: c.secret})
	c.engine.ready()
	return c.trouble == ""
}

func sortedNames(m map[string]string) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
