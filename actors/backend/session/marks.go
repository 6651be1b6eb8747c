package session

import "fencepost/wire"

// Marks stand in the queue of open messages for those of the extended protocol that the relay has sent of its own or
// rewritten (package prepared). They are answered and skipped like the messages they are.
const (
	ClientParse      byte = 0x80 + iota // the client's Parse
	ClientClose                         // the client's Close
	InjectedParse                       // our Parse: the client does not see its answer
	InjectedClose                       // our Close, likewise
	ParseKnown                          // the client's Parse of what the server has, sent as a Close of nothing: CloseComplete means ParseComplete
	Refused                             // a Bind or Parse that fails: the client sees another error instead
	InjectedDescribe                    // our Describe of a statement that was parsed anew
)

// IsMark reports whether an open message is one of these.
func IsMark(m byte) bool { return m >= ClientParse }

// SentMarked notes a message with a mark. Nothing may be marked while the server skips (Skipping), or when the accounting
// is uncertain (Pinned).
func (t *Tracker) SentMarked(mark byte) {
	t.unsynced = true
	t.open.push(mark)
	t.marked++
	if edits(mark) {
		t.edited++
	}
}

// edits reports whether the answer to a message does not reach the client as it is.
func edits(mark byte) bool {
	return mark == InjectedParse || mark == InjectedClose || mark == ParseKnown || mark == Refused || mark == InjectedDescribe
}

func (t *Tracker) unmark(m byte) {
	switch m {
	case InjectedParse, InjectedClose, ParseKnown, Refused, InjectedDescribe:
		t.edited--
		t.marked--
	case ClientParse, ClientClose:
		t.marked--
	}
}

func (t *Tracker) strikeMarked(head, one, other byte) bool {
	if head == 0 || head != one && head != other {
		return false
	}
	t.unmark(head)
	t.open.pop()
	return true
}

// QueryOpen reports whether a Query is unanswered.
func (t *Tracker) QueryOpen() bool {
	for i := range t.open.n {
		if t.open.at(i) == wire.MsgQuery {
			return true
		}
	}
	return false
}

// Batch is the number of Syncs sent that count.
func (t *Tracker) Batch() uint32 { return t.batch }

// Marked is the number of open messages with a mark.
func (t *Tracker) Marked() int { return int(t.marked) }

// Edits reports whether an answer is still to come that the client must not get as it is.
func (t *Tracker) Edits() bool { return t.edited > 0 && !t.pinned }

// Head is the oldest open message: its type or mark, 0 if none.
func (t *Tracker) Head() byte { return t.head() }

// Succeeding reports whether a message sent now is either skipped or finds a transaction that has not failed: the server
// said so last, and nothing that could have changed it is open.
func (t *Tracker) Succeeding() bool {
	if t.status == wire.TxFailed {
		return false
	}
	for i := range t.open.n {
		switch t.open.at(i) {
		case wire.MsgSync, wire.MsgQuery, wire.MsgFunctionCall:
			return false
		}
	}
	return true
}
