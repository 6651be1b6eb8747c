package cluster

import (
	"encoding/binary"
	"errors"
	"unicode/utf8"

	"fencepost/cluster/evidence"
)

// meta is what a member says of itself to all: facts that change seldom. It fits into memberlist's 512 bytes.
type meta struct {
	Boot     evidence.Boot
	PeerID   uint32
	Settings uint64 // digest of the settings that members should have in common; 0: not told
	Draining bool
	Member   string
	Version  string
	Admin    string
}

// The longest texts, in bytes.
const (
	maxMemberName = 128
	maxVersion    = 64
	maxAdmin      = 128

	metaVersion = 1
)

func (m meta) encode() []byte {
	b := append([]byte{metaVersion}, m.Boot[:]...)
	b = binary.BigEndian.AppendUint32(b, m.PeerID)
	b = binary.BigEndian.AppendUint64(b, m.Settings)
	var flags byte
	if m.Draining {
		flags = 1
	}
	b = append(b, flags)
	for _, t := range []struct {
		text string
		most int
	}{{m.Member, maxMemberName}, {m.Version, maxVersion}, {m.Admin, maxAdmin}} {
		text := t.text[:min(len(t.text), t.most)]
		b = append(append(b, byte(len(text))), text...)
	}
	return b
}

// decodeMeta reads what another member says of itself. A later version may have more behind it.
func decodeMeta(b []byte) (m meta, err error) {
	in := &input{b: b}
	if in.u8() == 0 {
		return m, errors.New("metadata: no version")
	}
	copy(m.Boot[:], in.next(len(m.Boot)))
	m.PeerID, m.Settings = in.u32(), in.u64()
	m.Draining = in.u8()&1 != 0
	m.Member, m.Version, m.Admin = in.text(int(in.u8())), in.text(int(in.u8())), in.text(int(in.u8()))
	if in.short || m.Member == "" || m.Boot == (evidence.Boot{}) {
		return meta{}, errors.New("metadata: cut off or without a name")
	}
	return m, nil
}

// input takes fields off the front of what arrived. Beyond the end everything is zero and short is set.
type input struct {
	b     []byte
	short bool
}

func (i *input) next(n int) []byte {
	if n < 0 || n > len(i.b) {
		i.short, i.b = true, nil
		return nil
	}
	f := i.b[:n]
	i.b = i.b[n:]
	return f
}

func (i *input) u8() byte {
	if b := i.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (i *input) u16() uint16 {
	if b := i.next(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (i *input) u32() uint32 {
	if b := i.next(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (i *input) u64() uint64 {
	if b := i.next(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// text of n bytes; what is not UTF-8 counts as cut off.
func (i *input) text(n int) string {
	b := i.next(n)
	if !utf8.Valid(b) {
		i.short = true
		return ""
	}
	return string(b)
}
