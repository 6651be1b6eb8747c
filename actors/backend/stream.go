package backend

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"fencepost/eventloop"
	"fencepost/pgerr"
	"fencepost/wire"
)

// maxCarry bounds the body of a message that is looked at whole. Longer ones are passed on unread.
const maxCarry = 64 << 10

var (
	errDesync  = errors.New("the server's answers do not match what was asked")
	errGoodbye = errors.New("the server ended an idle connection")
)

// OnData implements eventloop.Handler.
func (b *Backend) OnData(_ eventloop.Conn, p []byte) {
	for len(p) > 0 && b.phase != gone {
		out := p
		seen, n, err := Seen{}, 0, error(nil)
		if b.Tracker.Edits() && b.scanner.AtBoundary() && b.Statements.Edited(p[0]) {
			if out, n, err = b.edit(p, &seen); n == 0 && err == nil {
				b.conn.Stash(p)
				return
			}
		} else if n, err = b.scan(p, &seen); err == nil {
			out = p[:n]
		}
		if err != nil {
			if !errors.Is(err, errGoodbye) {
				b.deps.Log.Error().Err(err).Uint64("backend", b.ID).Str("host", b.target.Host).Msg("server protocol violation")
			}
			b.end(false, err)
			return
		}
		switch b.phase {
		case held:
			if len(out) > 0 || seen.Described {
				b.holder.ServerData(out, seen)
			}
		case cleaning:
			b.cleanProgress(seen)
		case fencing:
			if seen.Ready > 0 {
				b.fenceDone()
			}
		}
		p = p[n:]
	}
}

// scan notes the messages in p in the tracker and picks up what concerns the connection itself. It stops behind a
// ReadyForQuery after which nothing is owed: the holder may give the backend back there, and what follows is then not its
// client's (a FATAL error of a server that ends, above all), and before an answer that the client does not get as it is. n is
// how far it got.
func (b *Backend) scan(p []byte, seen *Seen) (n int, err error) {
	var f wire.Fragment
	edits := b.Tracker.Edits() // only what a client sends begins that
scan:
	for n < len(p) {
		if edits && b.scanner.AtBoundary() && b.Statements.Edited(p[n]) {
			break
		}
		k, err := b.scanner.Scan(p[n:], &f)
		if err != nil {
			return n, err
		}
		n += k
		if f.First && f.Len > maxShort && !mayBeLong(f.Type) {
			return n, fmt.Errorf("%w: %d bytes of type %q", errDesync, f.Len, f.Type)
		}
		switch f.Type {
		case wire.MsgDataRow, wire.MsgCopyData:
			if b.phase == idle || b.phase == fencing {
				if err := b.unheldRow(&f, seen); err != nil {
					return n, err
				}
			}
			seen.Rows = true
		case 0:
		case wire.MsgReadyForQuery, wire.MsgParameterStatus, wire.MsgErrorResponse:
			if err := b.whole(&f, seen); err != nil {
				return n, err
			}
			if f.Type == wire.MsgReadyForQuery && f.Last && b.phase != idle && b.Tracker.Idle() {
				seen.Boundary = true
				return n, nil
			}
		default:
			if f.First && !b.received(f.Type) {
				return n, fmt.Errorf("%w: unexpected %q", errDesync, f.Type)
			}
			if f.Type == wire.MsgNoticeResponse || f.Type == wire.MsgCommandComplete && mayConcernStatements(&f) {
				if err := b.whole(&f, seen); err != nil {
					return n, err
				}
				if seen.Cleared { // the holder must know before what follows is noted
					break scan
				}
			}
		}
	}
	seen.Boundary = b.scanner.AtBoundary()
	return n, nil
}

// maxShort is the longest message of a type that is never long. Without it a server that does not speak the protocol (an
// HTTP error page) would be waited for until gigabytes had come.
const maxShort = 30000

// mayBeLong is libpq's rule for the same (VALID_LONG_MESSAGE_TYPE in fe-protocol3.c).
func mayBeLong(typ byte) bool {
	switch typ {
	case wire.MsgRowDescription, wire.MsgDataRow, wire.MsgCopyData, wire.MsgFunctionCallResponse, wire.MsgErrorResponse,
		wire.MsgNoticeResponse, wire.MsgNotificationResponse:
		return true
	}
	return false
}

// received notes a message in the tracker. While nobody is served, only what servers say unasked is allowed.
func (b *Backend) received(typ byte) bool {
	switch b.phase {
	case idle:
		return typ == wire.MsgNoticeResponse || typ == wire.MsgNotificationResponse
	case fencing:
		return answersFence(typ) && b.Tracker.Received(typ)
	}
	return b.Statements.Answered(typ)
}

// unheldRow takes a row while nobody holds the backend: only a fence has asked for one.
func (b *Backend) unheldRow(f *wire.Fragment, seen *Seen) error {
	if b.phase == idle || f.Type != wire.MsgDataRow {
		return fmt.Errorf("%w: rows without a query", errDesync)
	}
	return b.whole(f, seen)
}

// whole looks at a message whose body matters, which may have come in pieces.
func (b *Backend) whole(f *wire.Fragment, seen *Seen) error {
	body := f.Body
	if !f.First || !f.Last {
		if f.First {
			b.carry, b.carried = b.carry[:0], f.Len <= maxCarry
		}
		if b.carried {
			b.carry = append(b.carry, f.Body...)
		}
		if !f.Last {
			return nil
		}
		body = b.carry
		if !b.carried {
			body = nil
		}
		b.carry = nil
	}
	switch f.Type {
	case wire.MsgReadyForQuery:
		if len(body) != 1 || b.phase == idle || !b.Tracker.Ready(body[0]) {
			return fmt.Errorf("%w: unexpected ReadyForQuery", errDesync)
		}
		if b.phase == fencing && body[0] != wire.TxIdle {
			return fmt.Errorf("%w: a transaction that no client began", errDesync)
		}
		if b.Tracker.AtRest() {
			b.Statements.Rested()
		}
		b.lastCode = "" // a warning was no announcement: a server that ends is not ready for anything
		seen.Ready++
	case wire.MsgParameterStatus:
		b.parameterStatus(body, seen)
	case wire.MsgErrorResponse:
		return b.errorResponse(body, seen)
	case wire.MsgNoticeResponse:
		return b.notice(body)
	case wire.MsgCommandComplete:
		seen.Cleared = b.Statements.Completed(bytes.TrimSuffix(body, []byte{0})) || seen.Cleared
	case wire.MsgDataRow:
		b.fenceRow(body)
	}
	return nil
}

func (b *Backend) parameterStatus(body []byte, seen *Seen) {
	name, value, ok := wire.ParameterStatus(body)
	if !ok {
		return
	}
	switch string(name) {
	case "in_hot_standby", "default_transaction_read_only": // PostgreSQL 14 and newer report them
		// A client's own SET is reported, too, and a fence too much. What a fence itself changes its answer knows.
		b.proof = nil
		if string(name) == "in_hot_standby" && string(value) == "off" {
			b.send(&Promoted{Backend: b, At: time.Now()})
		}
	}
	if i := b.deps.Names.IndexBytes(name); i >= 0 {
		if p := b.Params.With(i, string(value)); p != b.Params {
			b.Params, seen.Params = p, true
		}
	}
}

func (b *Backend) errorResponse(body []byte, seen *Seen) error {
	seen.Failed = true
	e := wire.ParseError(body)
	fatal := e != nil && (e.Severity == "FATAL" || e.Severity == "PANIC")
	if fatal {
		b.lastCode, b.farewell = e.Code, true
	}
	if b.phase == idle || fatal && b.phase != held { // the socket may stay open for a while, and nobody may get it any more
		code := "?"
		if e != nil {
			code = e.Code
		}
		return fmt.Errorf("%w: %s", errGoodbye, code)
	}
	if e != nil && e.Code == pgerr.ReadOnlyTransaction {
		b.hint(e.Code)
	}
	if b.phase == fencing && e != nil {
		b.fence.fail(e)
	}
	if e != nil {
		b.Statements.ServerError(e.Code)
	}
	b.Statements.Answered(wire.MsgErrorResponse)
	return nil
}

// notice looks for a server that announces its end: an immediate shutdown and a crash are warnings, after which the
// connection ends without a word.
func (b *Backend) notice(body []byte) error {
	f, _ := wire.ErrorFields(body)
	if string(f.Severity) != "WARNING" {
		return nil
	}
	switch code := string(f.Code); code {
	case pgerr.AdminShutdown, pgerr.CrashShutdown:
		if b.lastCode == "" {
			b.lastCode = code
		}
		b.hint(code)
		if b.phase == idle {
			return fmt.Errorf("%w: %s", errGoodbye, code)
		}
	}
	return nil
}

// hint raises doubt for what the server has said, which clients may have brought about, and tells the lane unless there
// was such a hint lately.
func (b *Backend) hint(code string) {
	if b.target.Doubt == nil {
		return
	}
	if at := time.Now(); b.target.Doubt(at) {
		b.send(&Hinted{Backend: b, Code: code, At: at})
	}
}

// OnDrained implements eventloop.Handler.
func (b *Backend) OnDrained(eventloop.Conn) {
	if b.phase == held {
		b.holder.ServerDrained()
	}
}

// OnClosed implements eventloop.Handler.
func (b *Backend) OnClosed(_ eventloop.Conn, err error) {
	if errors.Is(err, io.EOF) {
		err = errors.New("server closed the connection")
	}
	b.end(false, err)
}
