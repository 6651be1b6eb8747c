package cluster

import (
	"encoding/binary"
	"errors"
	"time"

	"fencepost/cluster/evidence"
)

// What is sent by memberlist begins with its type: records of evidence, in packets and by gossip, or a message to one member.
const (
	evidenceMessage = iota + 1
	cancelMessage
	requestMessage
	answerMessage
	farewellMessage
)

// message is what one run of one process sends to one run of another. Its number, which grows with every message of the
// sender, and the two boot identifiers make a copy of it worthless.
type message struct {
	kind     byte
	from, to evidence.Boot
	number   uint64

	peerID uint32 // of the key: cancel
	key    []byte // cancel

	request uint64        // cancel, request, answer
	left    time.Duration // until its deadline: request
	verb    string        // request
	args    []string      // request
	err     string        // answer
	rows    [][]string    // answer
}

const messageVersion = 1

// Limits of a message. What is longer is not sent and not read.
const (
	maxKey     = 64
	maxTexts   = 4096
	maxMessage = 256 << 10
)

func (l *message) encode() ([]byte, error) {
	b := []byte{l.kind, messageVersion}
	b = append(append(b, l.from[:]...), l.to[:]...)
	b = binary.BigEndian.AppendUint64(b, l.number)
	switch l.kind {
	case cancelMessage:
		if len(l.key) > maxKey {
			return nil, errors.New("a cancel key is too long")
		}
		b = binary.BigEndian.AppendUint64(b, l.request)
		b = binary.BigEndian.AppendUint32(b, l.peerID)
		b = append(append(b, byte(len(l.key))), l.key...)
	case requestMessage:
		b = binary.BigEndian.AppendUint64(b, l.request)
		b = binary.BigEndian.AppendUint32(b, uint32(max(l.left.Milliseconds(), 0)))
		b = appendTexts(appendText(b, l.verb), l.args)
	case answerMessage:
		b = binary.BigEndian.AppendUint64(b, l.request)
		b = appendText(b, l.err)
		b = binary.BigEndian.AppendUint16(b, uint16(min(len(l.rows), maxTexts)))
		for _, row := range l.rows[:min(len(l.rows), maxTexts)] {
			b = appendTexts(b, row)
		}
	}
	if len(b) > maxMessage {
		return nil, errors.New("a message is too long")
	}
	return b, nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

func appendTexts(b []byte, texts []string) []byte {
	texts = texts[:min(len(texts), maxTexts)]
	b = binary.BigEndian.AppendUint16(b, uint16(len(texts)))
	for _, t := range texts {
		b = appendText(b, t)
	}
	return b
}

// decodeMessage keeps nothing of b.
func decodeMessage(b []byte) (*message, error) {
	if len(b) > maxMessage {
		return nil, errors.New("message: too long")
	}
	in := &input{b: b}
	l := &message{kind: in.u8()}
	if in.u8() != messageVersion {
		return nil, errors.New("message: of another version")
	}
	copy(l.from[:], in.next(len(l.from)))
	copy(l.to[:], in.next(len(l.to)))
	l.number = in.u64()
	switch l.kind {
	case cancelMessage:
		l.request, l.peerID = in.u64(), in.u32()
		l.key = append([]byte(nil), in.next(int(in.u8()))...)
		if len(l.key) == 0 || len(l.key) > maxKey {
			in.short = true
		}
	case requestMessage:
		l.request, l.left = in.u64(), time.Duration(in.u32())*time.Millisecond
		l.verb, l.args = in.longText(), in.texts()
	case answerMessage:
		l.request, l.err = in.u64(), in.longText()
		for n := in.count(); n > 0 && !in.short; n-- {
			l.rows = append(l.rows, in.texts())
		}
	case farewellMessage:
	default:
		return nil, errors.New("message: of an unknown kind")
	}
	if in.short || l.number == 0 {
		return nil, errors.New("message: cut off")
	}
	return l, nil
}

func (i *input) longText() string {
	n := i.u32()
	if n > maxMessage {
		i.short = true
		return ""
	}
	return i.text(int(n))
}

func (i *input) count() int {
	n := int(i.u16())
	if n > maxTexts {
		i.short = true
		return 0
	}
	return n
}

func (i *input) texts() []string {
	var texts []string
	for n := i.count(); n > 0 && !i.short; n-- {
		texts = append(texts, i.longText())
	}
	return texts
}

// window remembers which messages of one sender have arrived, so that none counts twice.
type window struct {
	highest uint64
	seen    [16]uint64 // the last 1024 numbers, one bit each, by number modulo 1024
}

const windowSize = 16 * 64

// fresh reports whether the number has not been here before, and notes it. One so old that it is not known any more is not.
func (w *window) fresh(n uint64) bool {
	switch {
	case n == 0 || n+windowSize <= w.highest:
		return false
	case n > w.highest+windowSize:
		w.seen = [16]uint64{}
	case n > w.highest:
		for k := w.highest + 1; k <= n; k++ {
			w.seen[k%windowSize/64] &^= 1 << (k % 64)
		}
	}
	w.highest = max(w.highest, n)
	slot, bit := &w.seen[n%windowSize/64], uint64(1)<<(n%64)
	if *slot&bit != 0 {
		return false
	}
	*slot |= bit
	return true
}

// A state, exchanged in every push/pull: version, flags, the sender, and a message of evidence.
const (
	stateVersion = 1
	stateReady   = 1 // the sender is ready itself

	stateHeader = 2 + 16
	// maxState is the longest state that is read.
	maxState = 8 << 20
)

func appendState(b []byte, from evidence.Boot, ready bool) []byte {
	var flags byte
	if ready {
		flags = stateReady
	}
	return append(append(b, stateVersion, flags), from[:]...)
}

func decodeState(b []byte) (from evidence.Boot, ready bool, message []byte, err error) {
	if len(b) < stateHeader || len(b) > maxState || b[0] != stateVersion {
		return from, false, nil, errors.New("state: of another version, too short or too long")
	}
	return evidence.Boot(b[2:stateHeader]), b[1]&stateReady != 0, b[stateHeader:], nil
}
