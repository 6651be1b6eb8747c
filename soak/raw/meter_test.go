package raw

import (
	"encoding/binary"
	"net"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// TestFramer gives messages in pieces of every size.
func TestFramer(t *testing.T) {
	var b []byte
	for _, m := range []pgproto3.FrontendMessage{&pgproto3.Query{String: "SELECT 1"}, &pgproto3.Sync{}, &pgproto3.CopyData{Data: make([]byte, 1000)}, &pgproto3.Sync{}} {
		b, _ = m.Encode(b)
	}
	for size := 1; size <= len(b); size++ {
		var f framer
		var got []byte
		for p := range slices.Chunk(b, size) {
			f.scan(p, func(typ byte) { got = append(got, typ) })
		}
		if string(got) != "QSdS" || !f.atBoundary() {
			t.Fatalf("pieces of %d bytes: %q", size, got)
		}
	}
	var f framer
	f.scan(b[:7], func(byte) {})
	if f.atBoundary() {
		t.Error("inside a message")
	}
}

// TestMeter counts a login and what follows, and the connection itself.
func TestMeter(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.Write([]byte("Z\x00\x00\x00\x05IZ\x00\x00\x00\x05TZ\x00\x00\x00\x05I"))
		c.Read(make([]byte, 1000))
	}()
	var m Meter
	c, err := m.Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	startup := append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 12), 3<<16), "QSF\x00"...)
	q, _ := (&pgproto3.Query{String: "x"}).Encode(startup)
	q, _ = (&pgproto3.Sync{}).Encode(q)
	q, _ = (&pgproto3.Terminate{}).Encode(q)
	c.Write(q)
	for n := 0; n < 18; {
		k, err := c.Read(make([]byte, 7))
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	if m.Open.Load() != 1 || m.Requests.Load() != 2 || m.Logins.Load() != 1 || m.Ready.Load() != 2 || m.Read.Load() != 18 {
		t.Errorf("open %d, requests %d, logins %d, ready %d, read %d", m.Open.Load(), m.Requests.Load(), m.Logins.Load(), m.Ready.Load(), m.Read.Load())
	}
	if n := m.CloseAll(); n != 1 || m.Open.Load() != 0 {
		t.Errorf("closed %d, open %d", n, m.Open.Load())
	}
	if c.Close() == nil {
		t.Error("closed twice")
	}
}
