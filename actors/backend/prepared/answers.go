package prepared

import (
	"fencepost/actors/backend/session"
	"fencepost/pgerr"
	"fencepost/wire"
)

// Answered notes an answer other than ReadyForQuery in the tracker, and here what it says of ops. It reports false on a
// desync.
func (c *Cache) Answered(typ byte) bool {
	t := c.Tracker
	before := t.Marked()
	if before == 0 {
		return t.Received(typ)
	}
	head := t.Head()
	ok := t.Received(typ)
	switch n := before - t.Marked(); {
	case n == 0:
	case typ == wire.MsgErrorResponse:
		c.failed(n, session.IsMark(head))
	default:
		c.done()
	}
	return ok
}

// Edited reports whether an answer that begins with typ must not reach the client as it is.
func (c *Cache) Edited(typ byte) bool {
	if !c.Tracker.Edits() {
		return false
	}
	switch head := c.Tracker.Head(); typ {
	case wire.MsgParseComplete:
		return head == session.InjectedParse
	case wire.MsgCloseComplete:
		return head == session.InjectedClose || head == session.ParseKnown
	case wire.MsgParameterDescription, wire.MsgRowDescription, wire.MsgNoData:
		return head == session.InjectedDescribe
	case wire.MsgErrorResponse:
		return head == session.Refused
	}
	return false
}

// Completed notes a command tag. cleared: all prepared statements of the server are gone.
func (c *Cache) Completed(tag []byte) (cleared bool) {
	switch string(tag) {
	case "PREPARE":
		c.sqlNames = true
	case "DEALLOCATE ALL", "DISCARD ALL":
		c.clear()
		return true
	}
	return false
}

// ServerError notes an error's SQLSTATE. Two tell of statements that are not what they were: a table has changed, or they are
// gone.
func (c *Cache) ServerError(code string) {
	switch code {
	case pgerr.FeatureUnsupported, pgerr.InvalidStatementName:
		c.changed()
	}
}
