package frontend

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/cluster"
	"fencepost/wire"
)

// Cancel keys are ours, never the server's. Layout, for both lengths of secret:
//
//	pid     0 | peer_id (14 bits) | random (17 bits)     what BackendKeyData calls the process id; always positive
//	secret  random, 4 bytes on protocol 3.0, 32 on 3.2   from crypto/rand
//
// The peer_id lets any member of a fleet see whose key it is. What protects a session is the secret and the random part
// of the pid: 49 bits on 3.0, 273 on 3.2.
const (
	peerShift   = 17
	pidRandom   = 1<<peerShift - 1
	shortSecret = 4
	longSecret  = 32
	maxPeerID   = 1<<14 - 1
)

// newKey makes a key. It cannot fail: crypto/rand ends the process rather than return too little.
func newKey(peerID uint16, version uint32) wire.CancelKey {
	n := shortSecret
	if version >= wire.Version32 {
		n = longSecret
	}
	var b [4 + longSecret]byte
	rand.Read(b[:4+n])
	pid := uint32(peerID&maxPeerID)<<peerShift | binary.BigEndian.Uint32(b[:4])&pidRandom
	return wire.CancelKey{PID: pid, Secret: append([]byte(nil), b[4:4+n]...)}
}

// KeyPeer is the peer_id in a key.
func KeyPeer(k wire.CancelKey) uint16 { return uint16(k.PID >> peerShift & maxPeerID) }

// KeyBytes is a key as members of a fleet pass it on.
func KeyBytes(k wire.CancelKey) []byte {
	return append(binary.BigEndian.AppendUint32(nil, k.PID), k.Secret...)
}

// keyOf reads KeyBytes; false for what no member sends.
func keyOf(b []byte) (wire.CancelKey, bool) {
	if len(b) != 4+shortSecret && len(b) != 4+longSecret {
		return wire.CancelKey{}, false
	}
	return wire.CancelKey{PID: binary.BigEndian.Uint32(b), Secret: append([]byte(nil), b[4:]...)}, true
}

// Keys is what a KeyTable knows; it outlives a failure of the actor.
type Keys struct {
	pids    map[tableKey]*actor.PID
	waiting map[tableKey][]func() // Done of the last cancels passed on: a session that ends may not read them any more
}

// maxWaiting bounds Keys.waiting for one key.
const maxWaiting = 16

// NewKeys makes an empty set.
func NewKeys() *Keys { return &Keys{pids: map[tableKey]*actor.PID{}, waiting: map[tableKey][]func(){}} }

// KeyTable is the cancel actor: it knows which frontend has which key.
type KeyTable struct {
	Log  zerolog.Logger
	Keys *Keys
	// PeerID is this process's; 0: it has none.
	PeerID uint16
	// Forward passes a request on to the process that issued its key, and calls done once when that is over or cannot be
	// done. It does not block. nil: there is nobody else.
	Forward func(peer uint16, key wire.CancelKey, done func())

	unknown uint64 // requests with a key nobody has
}

// tableKey holds a whole key, so that finding one is a single map lookup whose time says nothing about how much of it
// was right.
type tableKey struct {
	pid    uint32
	secret string
}

// Receive implements actor.Actor.
func (t *KeyTable) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *Bind:
		t.Keys.pids[tableKey{m.Key.PID, string(m.Key.Secret)}] = m.PID
	case *Unbind:
		k := tableKey{m.Key.PID, string(m.Key.Secret)}
		delete(t.Keys.pids, k)
		for _, done := range t.Keys.waiting[k] {
			done() // a second call does no harm
		}
		delete(t.Keys.waiting, k)
	case *cluster.CancelFor: // from another member
		if key, ok := keyOf(m.Key); ok {
			ctx.Send(ctx.Self(), &CancelRequest{Key: key, Done: m.Done, Forwarded: true})
		} else {
			m.Done()
		}
	case *CancelRequest:
		pid := t.Keys.pids[tableKey{m.Key.PID, string(m.Key.Secret)}]
		if peer := KeyPeer(m.Key); pid == nil && peer != t.PeerID && peer != 0 && t.Forward != nil && !m.Forwarded {
			t.Forward(peer, m.Key, m.Done)
			return
		}
		if pid == nil {
			t.unknown++
			t.Log.Debug().Msg("cancel request with an unknown key")
			m.Done()
			return
		}
		k := tableKey{m.Key.PID, string(m.Key.Secret)}
		w := append(t.Keys.waiting[k], m.Done)
		t.Keys.waiting[k] = w[max(0, len(w)-maxWaiting):]
		ctx.Send(pid, &CancelQuery{Done: m.Done})
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting:
	default:
		t.Log.Error().Type("message_type", m).Msg("cancel: unhandled message")
	}
}
