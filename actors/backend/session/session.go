// Package session knows, from the protocol alone, what a server still owes a client: which messages are unanswered,
// whether a COPY is under way, whether anything was sent since the last Sync, and so whether the transaction is over and
// the server connection may go to somebody else.
//
// It is pure: no clock, no I/O, no bytes. The relay feeds it the type of every message that it forwards.
//
// A Tracker keeps the client's messages in the order sent and strikes each out when the server answers it:
//
//	Parse    -> ParseComplete                         Query        -> ReadyForQuery
//	Bind     -> BindComplete                          Sync         -> ReadyForQuery
//	Close    -> CloseComplete                         FunctionCall -> ReadyForQuery
//	Describe -> RowDescription | NoData
//	Execute  -> CommandComplete | EmptyQueryResponse | PortalSuspended
//
// An ErrorResponse to an extended-protocol message strikes out everything up to the next Sync, simple Queries included,
// because the server skips them (PostgreSQL manual, "Extended Query"). During COPY FROM STDIN the server ignores Sync and
// Flush (CopyGetData in copyfromparse.c), so these are struck out too. A message that does not answer the oldest open one
// is a desync: nobody can say any more what belongs to whom, and both connections must be closed.
package session

import "fencepost/wire"

// Tracker follows one client and the server connection it holds. The zero value is not ready: call Reset.
type Tracker struct {
	open     queue
	status   byte // of the last ReadyForQuery: wire.TxIdle and so on
	copying  copyState
	unsynced bool // extended-protocol messages were sent after the last Sync, Query or FunctionCall
	skipping bool // the server skips everything until a Sync that has not been sent yet
	pinned   bool // the accounting is not certain any more, or CopyBoth: never idle again
	batch    uint32
	marked   int32 // messages in open with a mark
	edited   int32 // those of them whose answer the client does not get as it is
}

type copyState uint8

const (
	noCopy copyState = iota
	copyIn
	copyInEnded // CopyDone or CopyFail was sent, the server has not answered it
	copyOut
)

// dataMark stands in the queue for CopyData sent before the server said CopyInResponse, endMark for CopyDone or CopyFail.
const (
	dataMark = wire.MsgCopyData
	endMark  = wire.MsgCopyDone
)

// Reset prepares the tracker for a server connection at rest.
func (t *Tracker) Reset() {
	*t = Tracker{status: wire.TxIdle}
}

// Status is the transaction status the server reported last: wire.TxIdle and so on.
func (t *Tracker) Status() byte { return t.status }

// Outstanding is the number of messages sent and not answered; at least 1 where that cannot be told (Pinned).
func (t *Tracker) Outstanding() int {
	if t.pinned {
		return max(1, t.open.len())
	}
	return t.open.len()
}

// Idle reports whether the server owes nothing and holds no transaction: nothing unanswered, nothing sent since the last
// Sync, no COPY, no transaction. The other half of the rule, both directions at a message boundary, is the relay's.
func (t *Tracker) Idle() bool {
	return t.open.n == 0 && t.status == wire.TxIdle && !t.unsynced && !t.skipping && t.copying == noCopy && !t.pinned
}

// AtRest is Idle whatever the transaction status: nothing is on its way in either direction.
func (t *Tracker) AtRest() bool {
	return t.open.n == 0 && !t.unsynced && !t.skipping && t.copying == noCopy && !t.pinned
}

// CopyingIn reports whether the server waits for CopyData from the client.
func (t *Tracker) CopyingIn() bool { return t.copying == copyIn }

// NeedsSync reports whether the server will not come to rest without a Sync.
func (t *Tracker) NeedsSync() bool { return t.unsynced || t.skipping }

// Skipping reports whether the server skips everything up to a Sync that was not sent yet.
func (t *Tracker) Skipping() bool { return t.skipping }

// Pinned reports whether the accounting has become uncertain (or CopyBoth is on): the connection cannot be shared again.
func (t *Tracker) Pinned() bool { return t.pinned }

// Sent notes a client message of type typ. It reports false when no client may send such a message here.
func (t *Tracker) Sent(typ byte) bool {
	if t.pinned {
		return typ != wire.MsgTerminate && typ != wire.MsgPasswordResponse && wire.ClientMessageLimit(typ) > 0
	}
	switch typ {
	case wire.MsgQuery, wire.MsgFunctionCall:
		t.unsynced = false
		if !t.skipping {
			t.open.push(typ)
		}
	case wire.MsgSync:
		t.sentSync()
	case wire.MsgParse, wire.MsgBind, wire.MsgDescribe, wire.MsgClose, wire.MsgExecute:
		t.unsynced = true
		if !t.skipping {
			t.open.push(typ)
		}
	case wire.MsgCopyData:
		if t.copying != copyIn && !t.skipping && t.open.n > 0 && t.open.last() != dataMark {
			t.open.push(dataMark)
		}
	case wire.MsgCopyDone, wire.MsgCopyFail:
		if t.copying == copyIn {
			t.copying = copyInEnded
		} else if !t.skipping && t.open.n > 0 {
			t.open.push(endMark)
		}
	case wire.MsgFlush:
	default:
		return false
	}
	return true
}

func (t *Tracker) sentSync() {
	if t.copying == copyIn {
		// Ignored by the server unless the COPY has failed meanwhile; which of the two cannot be known before its
		// answer, and then it is too late to tell the answers apart.
		t.pinned = true
		return
	}
	t.unsynced, t.skipping = false, false
	t.batch++
	t.open.push(wire.MsgSync)
}

// Received notes a server message of type typ other than ReadyForQuery. It reports false on a desync.
func (t *Tracker) Received(typ byte) bool {
	if t.pinned {
		return true // nothing can be told any more; the server goes on serving this client
	}
	switch typ {
	case wire.MsgDataRow, wire.MsgCopyData, wire.MsgCopyDone, wire.MsgParameterDescription,
		wire.MsgNoticeResponse, wire.MsgParameterStatus, wire.MsgNotificationResponse:
		return true // they answer nothing
	case wire.MsgErrorResponse:
		t.failed()
		return true
	}
	head := t.head()
	switch typ {
	case wire.MsgParseComplete:
		return t.strike(head, wire.MsgParse) || t.strikeMarked(head, ClientParse, InjectedParse)
	case wire.MsgBindComplete:
		return t.strike(head, wire.MsgBind)
	case wire.MsgCloseComplete:
		return t.strike(head, wire.MsgClose) || t.strikeMarked(head, ClientClose, InjectedClose) || t.strikeMarked(head, ParseKnown, 0)
	case wire.MsgNoData:
		return t.strike(head, wire.MsgDescribe) || t.strikeMarked(head, InjectedDescribe, 0)
	case wire.MsgRowDescription:
		return head == wire.MsgQuery || t.strike(head, wire.MsgDescribe) || t.strikeMarked(head, InjectedDescribe, 0)
	case wire.MsgCommandComplete, wire.MsgEmptyQueryResponse:
		t.copying = noCopy
		return head == wire.MsgQuery || t.strike(head, wire.MsgExecute)
	case wire.MsgPortalSuspended:
		return t.strike(head, wire.MsgExecute)
	case wire.MsgFunctionCallResponse:
		return head == wire.MsgFunctionCall
	case wire.MsgCopyInResponse:
		return t.copyInStarted(head)
	case wire.MsgCopyOutResponse:
		t.copying = copyOut
		return head == wire.MsgQuery || head == wire.MsgExecute
	case wire.MsgCopyBothResponse:
		t.pinned = true
		return head == wire.MsgQuery || head == wire.MsgExecute
	}
	return false
}

// Ready notes ReadyForQuery with its status. It reports false on a desync.
func (t *Tracker) Ready(status byte) bool {
	if t.pinned {
		t.status = status
		return true
	}
	switch t.head() {
	case wire.MsgQuery, wire.MsgSync, wire.MsgFunctionCall:
	default:
		return false
	}
	if status != wire.TxIdle && status != wire.TxOpen && status != wire.TxFailed {
		return false
	}
	t.open.pop()
	t.copying = noCopy
	t.status = status
	// Marks of COPY messages that came too late to matter answer nothing.
	t.head()
	return true
}

// head is the oldest open message, 0 if none; marks at the head are dropped, since nothing answers them.
func (t *Tracker) head() byte {
	for t.open.n > 0 {
		h := t.open.first()
		if h != dataMark && h != endMark {
			return h
		}
		t.open.pop()
	}
	return 0
}

func (t *Tracker) strike(head, want byte) bool {
	if head != want {
		return false
	}
	t.open.pop()
	return true
}

// failed strikes out what the server skips after an error.
func (t *Tracker) failed() {
	t.copying = noCopy
	switch t.head() {
	case wire.MsgParse, wire.MsgBind, wire.MsgDescribe, wire.MsgClose, wire.MsgExecute:
	case ClientParse, InjectedParse, ClientClose, InjectedClose, ParseKnown, Refused, InjectedDescribe:
	default:
		return
	}
	for t.open.n > 0 {
		if t.open.first() == wire.MsgSync {
			return
		}
		t.unmark(t.open.first())
		t.open.pop()
	}
	t.skipping = true
}

// copyInStarted strikes out the Syncs that the server reads, and ignores, while it waits for copy data.
func (t *Tracker) copyInStarted(head byte) bool {
	if head != wire.MsgQuery && head != wire.MsgExecute {
		return false
	}
	// The client did not know of the COPY when it sent what is still open behind head: all of that is read as copy data,
	// up to its CopyDone or CopyFail, and only what is behind that mark will be answered. head itself stays open: its
	// CommandComplete comes at the end of the COPY.
	t.copying = copyIn
	t.open.pop()
	rest := t.open.drain()
	t.open.push(head)
	data, synced := false, false // synced: a Sync that counts is on its way
	for i, m := range rest {
		if m == endMark {
			t.copying = copyInEnded
			for _, m := range rest[i+1:] {
				t.open.push(m)
				synced = synced || m == wire.MsgSync || m == wire.MsgQuery || m == wire.MsgFunctionCall
			}
			break
		}
		switch m {
		case wire.MsgSync:
			// Certain before the first CopyData; after it the COPY may have failed, and the Sync be answered.
			t.pinned = t.pinned || data
		case dataMark:
			data = true
		default:
			t.pinned = true // PostgreSQL fails the COPY on it: whatever follows cannot be told apart here
		}
	}
	if head == wire.MsgExecute && !synced {
		t.unsynced = true // a Sync that was ignored does not count
	}
	return true
}
