package frontend

import (
	"fmt"

	"fencepost/pgerr"
	"fencepost/wire"
)

// relay forwards what the client sends to its backend, noting each message. An incomplete header at the end is not
// forwarded but returned, for the caller to hold: what is behind it may be something no server must get.
func (f *Frontend) relay(p []byte) (tail []byte) {
	b := f.backend
	if b.Tracker.Outstanding() == 0 {
		f.requested = f.loop.Now()
	}
	inBlock := b.Tracker.Status() != wire.TxIdle
	if !inBlock {
		f.unanswered = mayCommit
	}
	rest := p
	var m wire.Fragment
	var ed edit
	for len(rest) > 0 {
		if f.mode != Session && aboutStatements(rest[0]) && f.scanner.AtBoundary() {
			before := p[:len(p)-len(rest)]
			if e := ed.statement(f, rest, before); e != nil {
				f.forward(ed.rest(before))
				f.fail(e)
				return nil
			}
			if ed.wait {
				p, tail = before, rest
				break
			}
		}
		n, err := f.scanner.Scan(rest, &m)
		if err == nil && m.First {
			err = f.sent(&m, ed.take())
			if inBlock {
				f.unanswered = f.unanswered.with(&m)
			}
		}
		if err != nil || m.Type == wire.MsgTerminate {
			// What came before is on record as sent. Terminate is the client's goodbye to us, not to the server.
			f.forward(ed.rest(p[:len(p)-len(rest)]))
			f.scanner.Reset()
			if err != nil {
				f.fail(pgerr.As(err))
			} else {
				f.terminate()
			}
			return nil
		}
		if m.Type == 0 {
			f.scanner.Reset()
			p, tail = p[:len(p)-len(rest)], rest
			break
		}
		rest = rest[n:]
	}
	f.forward(ed.rest(p))
	f.sessions.keepScratch(ed.out)
	// A late CopyData may have been all that kept the transaction from being over.
	if b.Tracker.Outstanding() == 0 {
		f.done()
	}
	return tail
}

// sent notes a message about to be forwarded, in the tracker unless statement has noted it there; an error if no client may
// send it.
func (f *Frontend) sent(m *wire.Fragment, noted bool) error {
	switch m.Type {
	case wire.MsgQuery:
		if f.names != nil && !f.backend.Tracker.Skipping() {
			noteQuery(f.names, m)
		}
	case wire.MsgSync, wire.MsgCopyData: // the usual ones, of any length as far as PostgreSQL takes it
	case wire.MsgTerminate:
		return nil
	case wire.MsgParse:
		f.stats.Parses++
	case wire.MsgBind:
		f.stats.Binds++
	}
	if err := allowed(m); err != nil {
		return err
	}
	if !noted && !f.backend.Tracker.Sent(m.Type) {
		return pgerr.ProtocolViolation("unexpected message type " + printable(m.Type))
	}
	return nil
}

// allowed holds a message against PostgreSQL's limits for its type.
func allowed(m *wire.Fragment) error {
	limit := wire.ClientMessageLimit(m.Type)
	switch {
	case limit == 0:
		return pgerr.ProtocolViolation("unexpected message type " + printable(m.Type))
	case m.Len > limit:
		return pgerr.ProtocolViolation(fmt.Sprintf("invalid message length %d for message type %s", m.Len, printable(m.Type)))
	}
	return nil
}

func (f *Frontend) forward(p []byte) {
	if len(p) == 0 {
		return
	}
	f.stats.Received += uint64(len(p))
	if !f.backend.Write(p) {
		f.conn.Pause()
	}
}

func printable(typ byte) string {
	if typ > ' ' && typ < 0x7f {
		return fmt.Sprintf("%q", typ)
	}
	return fmt.Sprintf("0x%02x", typ)
}
