package frontend

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/cluster"
	"fencepost/wire"
)

// Cancel keys are ours, never the server's. Layout, for both lengths of secret; byte 0 is the first of what BackendKeyData
// calls the process id, which is always positive:
//
//	0        0 | random (7 bits)
//	1, 2     peer_id (14 bits), its low 8 bits first
//	3        random
//	4 …      the secret: 4 bytes on protocol 3.0, 32 on 3.2, random but for
//	7        random (6 bits) | how often it may still be passed on (2 bits)
//
// The peer_id lets any member of a fleet see whose key it is. Without one there is nobody to be told apart from, and its
// places and that of the count are random as well. What protects a session is what is random: 45 bits on 3.0, 269 on 3.2;
// 63 and 287 without a peer_id. All numbers are where PgBouncer has them since 1.21 (documentation of its [peers]): either
// program passes on the other's keys, those of 3.0.
const (
	pidSize     = 4
	shortSecret = 4
	longSecret  = 32
	hopsAt      = 3    // in the secret
	maxHops     = 0b11 // as many as a new key allows
)

// newKey makes a key. It cannot fail: crypto/rand ends the process rather than return too little.
func newKey(peerID uint16, version uint32) wire.CancelKey {
	n := shortSecret
	if version >= wire.Version32 {
		n = longSecret
	}
	b := make([]byte, pidSize+n)
	rand.Read(b)
	b[0] &= 0x7f
	if peerID != 0 {
		binary.LittleEndian.PutUint16(b[1:], peerID)
		b[pidSize+hopsAt] |= maxHops
	}
	return wire.CancelKey{PID: binary.BigEndian.Uint32(b), Secret: b[pidSize:]}
}

// KeyPeer is the peer_id in a key of a process that has one.
func KeyPeer(k wire.CancelKey) uint16 { return uint16(k.PID>>16&0xff | k.PID&0xff00) }

// hops is how often a key may still be passed on.
func hops(k wire.CancelKey) byte { return k.Secret[hopsAt] & maxHops }

// withHops is a copy of a key that may be passed on n times.
func withHops(k wire.CancelKey, n byte) wire.CancelKey {
	k.Secret = append([]byte(nil), k.Secret...)
	k.Secret[hopsAt] = k.Secret[hopsAt]&^maxHops | n
	return k
}

// KeyBytes is a key as members of a fleet pass it on.
func KeyBytes(k wire.CancelKey) []byte {
	return append(binary.BigEndian.AppendUint32(nil, k.PID), k.Secret...)
}

// keyOf reads KeyBytes; false for what no member sends.
func keyOf(b []byte) (wire.CancelKey, bool) {
	if len(b) != pidSize+shortSecret && len(b) != pidSize+longSecret {
		return wire.CancelKey{}, false
	}
	return wire.CancelKey{PID: binary.BigEndian.Uint32(b), Secret: append([]byte(nil), b[pidSize:]...)}, true
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
		t.Keys.pids[t.find(m.Key)] = m.PID
	case *Unbind:
		k := t.find(m.Key)
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
		t.cancel(ctx, m)
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting:
	default:
		t.Log.Error().Type("message_type", m).Msg("cancel: unhandled message")
	}
}

// find is a key as the table has it: one that was passed on is the one that was issued.
func (t *KeyTable) find(k wire.CancelKey) tableKey {
	if t.PeerID != 0 {
		k = withHops(k, maxHops)
	}
	return tableKey{k.PID, string(k.Secret)}
}

func (t *KeyTable) cancel(ctx actor.Context, m *CancelRequest) {
	k := t.find(m.Key)
	pid := t.Keys.pids[k]
	if pid == nil {
		t.elsewhere(m)
		return
	}
	w := append(t.Keys.waiting[k], m.Done)
	t.Keys.waiting[k] = w[max(0, len(w)-maxWaiting):]
	ctx.Send(pid, &CancelQuery{Done: m.Done})
}

// elsewhere passes a request on whose key is not one of ours, if it may be. The count ends what would go in circles: processes
// that take each other for the one that has issued the key, or a balancer in front of several.
func (t *KeyTable) elsewhere(m *CancelRequest) {
	peer := KeyPeer(m.Key)
	switch left := hops(m.Key); {
	case t.PeerID == 0 || peer == 0 || peer == t.PeerID || t.Forward == nil || m.Forwarded:
		t.unknown++
		t.Log.Debug().Msg("cancel request with an unknown key")
	case left == 0:
		t.Log.Debug().Uint16("peer_id", peer).Msg("cancel request was passed on too often")
	default:
		t.Forward(peer, withHops(m.Key, left-1), m.Done)
		return
	}
	m.Done()
}
