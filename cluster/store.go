package cluster

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"fencepost/cluster/evidence"
)

// store is what memberlist's callbacks read and the actor writes. It outlives a restart of the actor.
type store struct {
	boot  evidence.Boot
	meta  atomic.Pointer[[]byte]
	load  atomic.Uint64 // clients << 32 | servers
	ready atomic.Bool
	// waiting is how many messages from outside lie in the actor's mailbox; their number is bounded here, because mailboxes
	// are not.
	waiting atomic.Int64
	dropped atomic.Uint64

	number  atomic.Uint64 // of the last message
	seq     uint64        // of the last record; the actor's alone
	members atomic.Int64  // alive, this one included

	// mu guards what follows. Nothing is called while it is held.
	mu    sync.Mutex
	table *evidence.Table
	queue queue
}

// maxWaiting is how many messages may wait for the actor.
const maxWaiting = 4096

func newStore(boot evidence.Boot) *store {
	s := &store{boot: boot, table: evidence.NewTable(evidence.Limits{}), queue: newQueue()}
	s.table.Joined(boot)
	s.members.Store(1)
	s.meta.Store(&[]byte{})
	return s
}

// nextSeq is the number of the next record this process writes.
func (s *store) nextSeq() uint64 {
	s.seq++
	return s.seq
}

// admit reports whether one more message may wait.
func (s *store) admit() bool {
	if s.waiting.Add(1) > maxWaiting {
		s.waiting.Add(-1)
		s.dropped.Add(1)
		return false
	}
	return true
}

// merge takes a record in and has it told on if it is news. A record that makes that fail is dropped.
func (s *store) merge(now time.Time, r evidence.Record) (out evidence.Outcome, failed any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		if failed = recover(); failed != nil {
			out = evidence.Rejected
		}
	}()
	out = s.table.Merge(now, r)
	if out == evidence.News {
		s.queue.add(r.Key)
	}
	return out, nil
}

// locked runs f on the table.
func (s *store) locked(f func(*evidence.Table)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.table)
}

// gossip is the next message of records for a random member, of at most limit bytes; nil if there is nothing to tell.
func (s *store) gossip(now time.Time, limit int) []byte {
	sends := retransmit * int(math.Ceil(math.Log10(float64(s.members.Load()+1))))
	s.mu.Lock()
	defer s.mu.Unlock()
	var message []byte
	s.queue.pop(sends, func(k evidence.Key) (fits, gone bool) {
		r, ok := s.table.Get(k)
		if !ok {
			return true, true
		}
		if message == nil {
			message = append([]byte{evidenceMessage}, evidence.Header()...)
		}
		if len(message)+evidence.Length(k.Kind) > min(limit, maxPacket) {
			return false, false
		}
		message = evidence.Append(message, now, r)
		return true, false
	})
	if len(message) <= 1+len(evidence.Header()) {
		return nil
	}
	return message
}

// maxPacket is how long a message of records gets: with all that goes around it, it fits into every network's packets.
const maxPacket = 1000

// packets are messages of the registers given.
func (s *store) packets(now time.Time, keys []evidence.Key) [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var packets [][]byte
	var message []byte
	for _, k := range keys {
		r, ok := s.table.Get(k)
		if !ok {
			continue
		}
		if message != nil && len(message)+evidence.Length(k.Kind) > maxPacket {
			packets, message = append(packets, message), nil
		}
		if message == nil {
			message = append([]byte{evidenceMessage}, evidence.Header()...)
		}
		message = evidence.Append(message, now, r)
	}
	if message != nil {
		packets = append(packets, message)
	}
	return packets
}

// state is all there is, for a push/pull.
func (s *store) state(now time.Time) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.table.All()
	b := make([]byte, 0, stateHeader+1+len(all)*evidence.MaxRecordLength)
	b = append(appendState(b, s.boot, s.ready.Load()), evidence.Header()...)
	for _, r := range all {
		b = evidence.Append(b, now, r)
	}
	return b
}
