package e2e

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// Keys are ours: four bytes of secret on protocol 3.0, 32 on 3.2, the member's number in the process id, never twice.
// Towards the server it is the server's: long since PostgreSQL 18.
func TestCancelKeys(t *testing.T) {
	t.Parallel()
	const head = 12 // of a CancelRequest, before the secret
	for version, long := range map[string]int64{"14": head + 4, "17": head + 4, "18": head + 32} {
		t.Run("PostgreSQL "+version, func(t *testing.T) {
			t.Parallel()
			w := newWired(t, version, "peer_id = 300")
			seen := map[string]bool{}
			for i := range 100 {
				for protocol, size := range map[uint32]int{version30: 4, version32: 32} {
					c, err := loginKey(w.pooler.addr, "transaction", protocol)
					if err != nil {
						t.Fatal(err)
					}
					if len(c.secret) != size || int32(c.pid) <= 0 || c.pid&0xffff00 != peerBits(300) || seen[string(c.secret)] {
						t.Fatalf("login %d with %x: key %d, %x", i, protocol, c.pid, c.secret)
					}
					seen[string(c.secret)] = true
					if i == 0 {
						if err := c.begun("key", time.Minute); err != nil {
							t.Fatal(err)
						}
						if err := c.cancel(w.pooler.addr); err != nil {
							t.Fatal(err)
						}
						if err := c.expect("E[57014] Z[I]"); err != nil {
							t.Error(err)
						}
						if got := w.wire.Length.Load(); got != long {
							t.Errorf("a cancel request of %d bytes went to the server, want %d", got, long)
						}
					}
					c.close()
				}
			}
		})
	}
}

// peerBits is a peer_id in the process id of a key.
func peerBits(id uint32) uint32 { return id&0xff<<16 | id&0xff00 }

// A wrong key of either length, an unknown one, one of a session that is over: the connection is closed and nothing else
// happens.
func TestWrongCancelKeys(t *testing.T) {
	t.Parallel()
	w := newWired(t, "18")
	for _, protocol := range []uint32{version30, version32} {
		c, err := loginKey(w.pooler.addr, "transaction", protocol)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		if err := c.begun("mine", time.Minute); err != nil {
			t.Fatal(err)
		}
		over, err := loginKey(w.pooler.addr, "transaction", protocol)
		if err != nil {
			t.Fatal(err)
		}
		over.close()
		flipped := append([]byte(nil), c.secret...)
		flipped[len(flipped)-1] ^= 1
		for _, k := range []struct {
			name   string
			pid    uint32
			secret []byte
		}{
			{"last bit wrong", c.pid, flipped}, {"other process id", c.pid ^ 1, c.secret}, {"longer", c.pid, append(c.secret[:len(c.secret):len(c.secret)], 0)},
			{"first bytes only", c.pid, c.secret[:len(c.secret)-1]}, {"random", 1 << 20, flipped}, {"over", over.pid, over.secret}, {"zeros", 0, make([]byte, 4)},
			{"very long", c.pid, make([]byte, 256)},
		} {
			if n, err := silentCancel(w.pooler.addr, k.pid, k.secret); err != nil || n > 0 {
				t.Errorf("%s: %d bytes came back, %v", k.name, n, err)
			}
		}
		if w.wire.Seen.Load() > 0 {
			t.Fatal("a cancel request with a wrong key reached the server")
		}
		if err := c.cancel(w.pooler.addr); err != nil {
			t.Fatal(err)
		}
		if err := c.expect("E[57014] Z[I]"); err != nil {
			t.Error(err)
		}
		w.wire.Seen.Store(0)
	}
	w.counted("delivered 2")
}

// silentCancel sends a CancelRequest and returns how much came back before the connection was closed.
func silentCancel(addr string, pid uint32, secret []byte) (int64, error) {
	nc, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	p := binary.BigEndian.AppendUint32(nil, uint32(12+len(secret)))
	p = binary.BigEndian.AppendUint32(p, 80877102)
	p = append(binary.BigEndian.AppendUint32(p, pid), secret...)
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := nc.Write(p); err != nil {
		return 0, err
	}
	return io.Copy(io.Discard, nc)
}

// Field case 2.07: a server that gives no key can be used, and a cancel for it goes nowhere.
func TestServerWithoutKey(t *testing.T) {
	t.Parallel()
	f := startFake(t, func(c *fakeConn) error {
		if err := c.put(append(append([]byte(nil), authOK...), ready...)); err != nil {
			return err
		}
		return c.serve(func(byte, []byte) error {
			<-time.After(500 * time.Millisecond)
			return c.put(append(append([]byte(nil), complete...), ready...))
		})
	})
	w := startWired(t, f.addr, "any")
	for _, protocol := range []uint32{version30, version32} {
		c, err := loginKey(w.pooler.addr, "transaction", protocol)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(c.secret); n != 4 && n != 32 {
			t.Errorf("the client's secret has %d bytes", n)
		}
		if err := c.send(query("SELECT 1")); err != nil {
			t.Fatal(err)
		}
		if err := poll(patience, func() (bool, error) { return w.active() == 1, nil }); err != nil {
			t.Fatal(err)
		}
		if err := c.cancel(w.pooler.addr); err != nil {
			t.Fatal(err)
		}
		if err := c.expect("C[SELECT 1] Z[I]"); err != nil {
			t.Error(err)
		}
		c.close()
	}
	if n := w.wire.Seen.Load() + f.cancels.Load(); n > 0 {
		t.Errorf("%d cancel requests without a key went to the server", n)
	}
	if got := w.outcomes(); strings.Contains(got, "delivered") {
		t.Errorf("cancels by outcome: %s", got)
	}
}
