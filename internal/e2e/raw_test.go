package e2e

import (
	"bufio"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/wire"
)

// raw is a client that sends what it is told to, byte for byte, and writes down what comes back. It checks nothing.
type raw struct {
	nc     net.Conn
	r      *bufio.Reader
	params map[string]string // the last ParameterStatus of each name
	pid    uint32
	secret []byte
	told   []string // ParameterStatus messages since the last call of settings
}

// patience bounds every wait for an answer.
const patience = 20 * time.Second

func dial(addr string) (*raw, error) {
	nc, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	return &raw{nc: nc, r: bufio.NewReaderSize(nc, 4096), params: map[string]string{}}, nil
}

// login connects and starts a session. Without a "user" it is anyUser.
func login(addr, database string, params ...string) (*raw, error) {
	c, err := dial(addr)
	if err != nil {
		return nil, err
	}
	got, err := c.startup(pgproto3.ProtocolVersion30, append([]string{"user", anyUser, "database", database}, params...)...)
	if err == nil && !strings.HasSuffix(got, "Z[I]") {
		err = errors.New(got)
	}
	if err != nil {
		c.nc.Close()
		return nil, fmt.Errorf("login to %s: %w", database, err)
	}
	return c, nil
}

// startup sends a startup packet and reads up to the first ReadyForQuery or the end.
func (c *raw) startup(version uint32, params ...string) (string, error) {
	if err := c.write(startupPacket(version, params...)); err != nil {
		return "", err
	}
	return c.answers(1)
}

func startupPacket(version uint32, params ...string) []byte {
	p := binary.BigEndian.AppendUint32(make([]byte, 4), version)
	for _, s := range params {
		p = append(append(p, s...), 0)
	}
	p = append(p, 0)
	binary.BigEndian.PutUint32(p, uint32(len(p)))
	return p
}

func (c *raw) write(p []byte) error {
	if err := c.nc.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := c.nc.Write(p)
	return err
}

// send writes messages in one piece.
func (c *raw) send(msgs ...pgproto3.FrontendMessage) error {
	p, err := encode(msgs...)
	if err != nil {
		return err
	}
	return c.write(p)
}

func encode(msgs ...pgproto3.FrontendMessage) (p []byte, err error) {
	for _, m := range msgs {
		if p, err = m.Encode(p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// message is one message of a server.
type message struct {
	typ  byte
	body []byte
}

// next reads one message.
func (c *raw) next() (message, error) { return c.nextWithin(patience) }

func (c *raw) nextWithin(limit time.Duration) (message, error) {
	var head [5]byte
	if err := c.nc.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return message{}, err
	}
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return message{}, err
	}
	size := int(binary.BigEndian.Uint32(head[1:])) - 4
	if size < 0 || size > 1<<30 {
		return message{}, fmt.Errorf("message %q has length %d", head[0], size)
	}
	m := message{head[0], make([]byte, size)}
	if _, err := io.ReadFull(c.r, m.body); err != nil {
		return message{}, err
	}
	switch m.typ {
	case wire.MsgParameterStatus:
		f := strings.Split(string(m.body), "\x00")
		c.params[f[0]] = f[1]
		c.told = append(c.told, f[0]+"="+f[1])
	case wire.MsgBackendKeyData:
		c.pid, c.secret = binary.BigEndian.Uint32(m.body), m.body[4:]
	}
	return m, nil
}

// answers writes down what comes up to and with the n-th ReadyForQuery, or up to the end of the connection ("EOF").
// ParameterStatus and BackendKeyData are not in it: see params, settings, pid and secret.
func (c *raw) answers(n int) (string, error) {
	return c.until(func(m message) bool {
		if m.typ == wire.MsgReadyForQuery {
			n--
		}
		return n == 0
	})
}

// first writes down what comes up to and with the first message of one of these types.
func (c *raw) first(types string) (string, error) {
	return c.until(func(m message) bool { return strings.IndexByte(types, m.typ) >= 0 })
}

func (c *raw) until(last func(message) bool) (string, error) {
	var trace []string
	for {
		m, err := c.next()
		if gone(err) {
			return strings.Join(append(trace, "EOF"), " "), nil
		}
		if err != nil {
			return "", fmt.Errorf("after %q: %w", strings.Join(trace, " "), err)
		}
		if m.typ != wire.MsgParameterStatus && m.typ != wire.MsgBackendKeyData {
			trace = append(trace, c.note(m))
		}
		if last(m) {
			return strings.Join(trace, " "), nil
		}
	}
}

// gone reports whether the other side has closed the connection.
func gone(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op) && !op.Timeout()
}

// exchange sends messages and writes down the answers up to the n-th ReadyForQuery.
func (c *raw) exchange(n int, msgs ...pgproto3.FrontendMessage) (string, error) {
	if err := c.send(msgs...); err != nil {
		return "", err
	}
	return c.answers(n)
}

// query runs one simple query and returns its first row's first column.
func (c *raw) query(sql string) (string, error) {
	if err := c.send(&pgproto3.Query{String: sql}); err != nil {
		return "", err
	}
	value, failed := "", error(nil)
	for {
		m, err := c.next()
		if err != nil {
			return "", fmt.Errorf("%.60s: %w", sql, err)
		}
		switch m.typ {
		case wire.MsgDataRow:
			if row := columns(m.body); value == "" && len(row) > 0 {
				value = row[0]
			}
		case wire.MsgErrorResponse:
			failed = fmt.Errorf("%.60s: %s %s", sql, field(m.body, wire.FieldCode), field(m.body, wire.FieldMessage))
		case wire.MsgReadyForQuery:
			return value, failed
		}
	}
}

// settings returns the ParameterStatus messages since its last call.
func (c *raw) settings() []string {
	s := c.told
	c.told = nil
	return s
}

// note is a message in short: its type, and what of it says most.
func (c *raw) note(m message) string {
	switch m.typ {
	case wire.MsgDataRow:
		row := columns(m.body)
		for i, v := range row {
			if len(v) > 64 {
				row[i] = fmt.Sprintf("%d bytes %.4x", len(v), md5.Sum([]byte(v)))
			}
		}
		return "D[" + strings.Join(row, "|") + "]"
	case wire.MsgCommandComplete:
		return "C[" + strings.TrimRight(string(m.body), "\x00") + "]"
	case wire.MsgReadyForQuery:
		return "Z[" + string(m.body) + "]"
	case wire.MsgErrorResponse:
		return "E[" + field(m.body, wire.FieldCode) + "]"
	case wire.MsgNoticeResponse:
		return "N[" + field(m.body, wire.FieldMessage) + "]"
	case wire.MsgNotificationResponse:
		return "A[" + strings.Join(strings.Split(string(m.body[4:]), "\x00")[:2], "|") + "]"
	case wire.MsgAuthentication:
		return fmt.Sprintf("R[%d]", binary.BigEndian.Uint32(m.body))
	case wire.MsgCopyData, wire.MsgFunctionCallResponse:
		return fmt.Sprintf("%c[%s]", m.typ, strings.TrimRight(string(m.body), "\n"))
	case wire.MsgNegotiateProtocolVersion:
		f := strings.Split(string(m.body[8:]), "\x00")
		return fmt.Sprintf("v[%x %s]", binary.BigEndian.Uint32(m.body), strings.Join(f[:len(f)-1], ","))
	}
	return string(m.typ)
}

// columns splits a DataRow.
func columns(body []byte) []string {
	n := int(binary.BigEndian.Uint16(body))
	row := make([]string, 0, n)
	for body = body[2:]; n > 0; n-- {
		size := int(int32(binary.BigEndian.Uint32(body)))
		body = body[4:]
		if size < 0 {
			row = append(row, "NULL")
			continue
		}
		row = append(row, string(body[:size]))
		body = body[size:]
	}
	return row
}

// field is one field of an ErrorResponse or NoticeResponse.
func field(body []byte, typ byte) string {
	for f := range strings.SplitSeq(string(body), "\x00") {
		if f != "" && f[0] == typ {
			return f[1:]
		}
	}
	return ""
}
