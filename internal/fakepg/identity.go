package fakepg

import (
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/role"
)

// Identity is what a server says of itself in answer to role.IdentityQuery.
type Identity struct {
	InRecovery bool
	ReadOnly   bool // by its configuration file
	SystemID   uint64
	Timeline   uint32 // 0: not known
	LSN        uint64
	// PID is the process that serves the session; 0: the one named at login.
	PID uint32
	// Started is when the server was started, in microseconds since 1970; 0: the same for every server.
	Started int64
	// Trouble, if not nil, is the error instead of an answer.
	Trouble *Error
	// Garbage, if not empty, is the only column of the only row instead of an answer.
	Garbage string
}

// Ordinary is the identity of a server that was not told another one: writable, on timeline 1.
func Ordinary() Identity {
	return Identity{SystemID: 7000000000000000001, Timeline: 1, LSN: 0x1000000}
}

// Row is the answer to an identity query in a session served by pid.
func (id Identity) Row(pid uint32) [][]byte {
	if id.Garbage != "" {
		return [][]byte{[]byte(id.Garbage)}
	}
	text := func(s string) []byte { return []byte(s) }
	row := [][]byte{text("postgres"), text("f"), text("off"), nil, text(strconv.FormatInt(int64(id.SystemID), 10)), nil, nil,
		fmt.Appendf(nil, "%X/%X", id.LSN>>32, id.LSN&0xFFFFFFFF), text("0"), nil, nil, text("1700000000000000")}
	if id.InRecovery {
		row[1], row[9] = text("t"), row[7]
		if id.Timeline != 0 {
			row[6] = fmt.Append(nil, id.Timeline)
		}
	} else {
		row[5] = fmt.Appendf(nil, "%08X%016X", id.Timeline, 1)
	}
	if id.ReadOnly {
		row[2], row[3] = text("on"), text("configuration file")
	}
	if id.PID != 0 {
		pid = id.PID
	}
	if id.Started != 0 {
		row[11] = fmt.Append(nil, id.Started)
	}
	row[10] = fmt.Append(nil, pid)
	return row
}

// refuses is what a server that cannot write says of a command that does; nil if it can. Whether a transaction is
// read-only is settled when it begins.
func (e *Engine) refuses(command string) *Error {
	if id, _ := e.Identity(); !id.InRecovery && !e.readOnly {
		return nil
	}
	return fail("25006", "cannot execute %s in a read-only transaction", command)
}

// isIdentityQuery reports whether sql asks a server who it is.
func isIdentityQuery(sql string) bool {
	return sql == role.IdentityQuery || sql == role.IdentityQueryNoControl
}

// roleParameters are what PostgreSQL 14 and newer reports of a server's role.
func (id Identity) roleParameters() [2][2]string {
	onOff := map[bool]string{false: "off", true: "on"}
	return [2][2]string{{"in_hot_standby", onOff[id.InRecovery]}, {"default_transaction_read_only", onOff[id.ReadOnly]}}
}

// tellRole reports those that are new to the client.
func (e *Engine) tellRole() {
	id, _ := e.Identity()
	for i, p := range id.roleParameters() {
		if e.toldRole[i] != p[1] {
			e.toldRole[i] = p[1]
			e.Send(&pgproto3.ParameterStatus{Name: p[0], Value: p[1]})
		}
	}
}

func (e *Engine) tellIdentity() *Error {
	id, pid := e.Identity()
	if id.Trouble != nil {
		return id.Trouble
	}
	e.Send(&pgproto3.DataRow{Values: id.Row(pid)})
	return e.complete("SELECT 1")
}

// SetIdentity changes what the server says of itself, and with it whether it takes writes; sessions that are open included.
func (s *Server) SetIdentity(id Identity) {
	s.mu.Lock()
	s.identity = id
	s.mu.Unlock()
}

// Identity is what the server says of itself.
func (s *Server) Identity() Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity
}
