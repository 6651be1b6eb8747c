package wire

import (
	"encoding/binary"
	"fmt"

	"fencepost/pgerr"
)

const (
	// HeaderSize is the size of a message's header: type and length.
	HeaderSize = 5
	// MaxMessage is the largest value of a message's length word (which counts itself, not the type).
	MaxMessage = 0x7fffffff

	lengthSize  = 4
	maxBody     = MaxMessage - lengthSize
	smallestLen = lengthSize
)

// Scanner follows the boundaries of messages in one direction of a connection, in whatever pieces the bytes arrive. It
// keeps no bytes. The zero value stands at a boundary. It is for one goroutine at a time.
type Scanner struct {
	total uint32 // length word of the current message; while its header is partial, the bytes of it that were seen
	left  uint32 // body bytes of the current message still to come
	typ   byte
	seen  uint8 // bytes of a partial header: 0 to 4, or broken
}

// broken is the value of Scanner.seen after an error: what follows cannot be told apart any more.
const broken = 0xff

// Fragment is the part of one message that lies in the slice given to Next.
type Fragment struct {
	// Type is the message's type byte. 0: the header is still incomplete; the n bytes belong to the message that the
	// next Fragment begins.
	Type byte
	// First says that the header ended in this fragment. Exactly one fragment of a message is First.
	First bool
	// Last says that the message ends with this fragment. Exactly one fragment of a message is Last.
	Last bool
	// Len is the length of the whole message's body.
	Len int
	// Body is the part of the body that lies in the slice given to Next, and points into it.
	Body []byte
}

// Next takes the longest piece of one message from the front of b: the fragment in b[:n]. n > 0 whenever b is not empty
// and err is nil. It fails with 08P01, and from then on always, when a length word is below 4 or above MaxMessage or a
// type byte is 0.
func (s *Scanner) Next(b []byte) (f Fragment, n int, err error) {
	n, err = s.Scan(b, &f)
	return f, n, err
}

// Scan is Next with the fragment written to *f, of which nothing is kept: for the loop that runs for each message of
// each transaction, since a Fragment is too large to be returned in registers without copies.
func (s *Scanner) Scan(b []byte, f *Fragment) (n int, err error) {
	// The whole message in b: nearly every message of nearly every transaction.
	if s.left == 0 && s.seen == 0 && len(b) >= HeaderSize {
		size := int(binary.BigEndian.Uint32(b[1:])) - smallestLen
		if uint(size) <= uint(len(b)-HeaderSize) && size <= maxBody && b[0] != 0 {
			f.Type, f.First, f.Last, f.Len, f.Body = b[0], true, true, size, b[HeaderSize:HeaderSize+size]
			return HeaderSize + size, nil
		}
	}
	return s.piece(b, f)
}

// piece is Scan for a message that does not begin and end in b.
func (s *Scanner) piece(b []byte, f *Fragment) (n int, err error) {
	*f = Fragment{}
	switch {
	case len(b) == 0:
		return 0, nil
	case s.seen == broken:
		return 0, pgerr.ProtocolViolation("message boundary lost")
	case s.left == 0:
		if n = s.header(b); s.seen < HeaderSize {
			return n, nil
		}
		if err := s.check(); err != nil {
			s.seen = broken
			return 0, err
		}
		s.seen, s.left, f.First = 0, s.total-smallestLen, true
	}
	size := min(int(s.left), len(b)-n)
	s.left -= uint32(size)
	f.Type, f.Last, f.Len, f.Body = s.typ, s.left == 0, int(s.total-smallestLen), b[n:n+size]
	return n + size, nil
}

// header takes what is missing of a header from the front of b, as far as it is there.
func (s *Scanner) header(b []byte) (n int) {
	for ; s.seen < HeaderSize && n < len(b); n++ {
		if s.seen == 0 {
			s.typ, s.total = b[n], 0
		} else {
			s.total = s.total<<8 | uint32(b[n])
		}
		s.seen++
	}
	return n
}

func (s *Scanner) check() error {
	if s.typ == 0 {
		return pgerr.ProtocolViolation("invalid message type 0")
	}
	if s.total < smallestLen || s.total > MaxMessage {
		return pgerr.ProtocolViolation(fmt.Sprintf("invalid length %d of a message of type %q", s.total, s.typ))
	}
	return nil
}

// AtBoundary reports whether no message is begun: neither a partial header nor a partial body. False after an error.
func (s *Scanner) AtBoundary() bool { return s.left == 0 && s.seen == 0 }

// Remaining is the number of body bytes of the current message that are still to come; 0 while its header is partial.
func (s *Scanner) Remaining() int { return int(s.left) }

// Reset makes s stand at a boundary, for another stream.
func (s *Scanner) Reset() { *s = Scanner{} }

// Limits on the bodies of a client's messages, as PostgreSQL 14 and newer sets them for the length words
// (SocketBackend: PQ_LARGE_MESSAGE_LIMIT, PQ_SMALL_MESSAGE_LIMIT, PG_MAX_AUTH_TOKEN_LENGTH).
const (
	largeBody = 0x3fffffff - 1 - lengthSize
	smallBody = 10000 - lengthSize
	authBody  = 65535 - lengthSize
)

var clientLimits = [256]int32{
	MsgQuery: largeBody, MsgParse: largeBody, MsgBind: largeBody, MsgFunctionCall: largeBody, MsgCopyData: largeBody,
	MsgClose: smallBody, MsgDescribe: smallBody, MsgExecute: smallBody, MsgFlush: smallBody, MsgSync: smallBody, MsgTerminate: smallBody,
	MsgCopyDone: smallBody, MsgCopyFail: smallBody,
	MsgPasswordResponse: authBody,
}

// ClientMessageLimit is the longest body (Fragment.Len) that PostgreSQL accepts from a client in a message of type typ;
// 0 if clients do not send that type, which is a protocol violation.
func ClientMessageLimit(typ byte) int { return int(clientLimits[typ]) }
