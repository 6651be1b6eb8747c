package cluster

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/rs/zerolog"

	"fencepost/cluster/evidence"
	"fencepost/role"
)

func messages() []*message {
	b, c := evidence.Boot{1}, evidence.Boot{2}
	return []*message{
		{kind: cancelMessage, from: b, to: c, number: 1, peerID: 7, key: []byte("key")},
		{kind: requestMessage, from: b, to: c, number: 2, request: 9, left: time.Second, verb: "PAUSE", args: []string{"a", ""}},
		{kind: answerMessage, from: b, to: c, number: 3, request: 9, err: "no", rows: [][]string{{"a"}, nil, {"b", "c"}}},
		{kind: farewellMessage, from: b, to: c, number: 4},
	}
}

func TestMessages(t *testing.T) {
	for _, l := range messages() {
		b, err := l.encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeMessage(b); err != nil || !reflect.DeepEqual(got, l) {
			t.Errorf("%+v, %v, want %+v", got, err, l)
		}
		for n := range b {
			if got, err := decodeMessage(b[:n]); err == nil {
				t.Errorf("%d of %d bytes are a message: %+v", n, len(b), got)
			}
		}
	}
	for _, l := range []*message{{kind: cancelMessage, key: make([]byte, 65)}, {kind: answerMessage, err: strings.Repeat("x", maxMessage)}} {
		if _, err := l.encode(); err == nil {
			t.Error("a message that is too long was written")
		}
	}
}

func FuzzMessage(f *testing.F) {
	for _, l := range messages() {
		b, _ := l.encode()
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decodeMessage(b)
		if err != nil {
			return
		}
		again, err := l.encode()
		if err != nil {
			return // rows of many empty texts get longer than they were
		}
		second, err := decodeMessage(again)
		if err != nil || !reflect.DeepEqual(l, second) {
			t.Fatalf("%+v\n%+v, %v", l, second, err)
		}
	})
}

func FuzzMeta(f *testing.F) {
	f.Add(meta{Boot: evidence.Boot{1}, PeerID: 3, Member: "m", Version: "1", Admin: "a:1"}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err == nil && len(m.encode()) > memberlist.MetaMaxSize {
			t.Fatalf("%d bytes", len(m.encode()))
		}
		_, _, _, _ = decodeState(b)
	})
}

func TestMetaFits(t *testing.T) {
	long := strings.Repeat("x", 300)
	m := meta{Boot: evidence.Boot{1}, PeerID: 3, Settings: 9, Draining: true, Member: long, Version: long, Admin: long}
	b := m.encode()
	if len(b) > memberlist.MetaMaxSize {
		t.Fatalf("%d bytes", len(b))
	}
	got, err := decodeMeta(append(b, 1, 2, 3))
	m.Member, m.Version, m.Admin = long[:maxMemberName], long[:maxVersion], long[:maxAdmin]
	if err != nil || got != m {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestWindow: each number counts once, in whatever order, as long as it is not older than the window.
func TestWindow(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 6))
	var w window
	seen := map[uint64]bool{}
	highest := uint64(0)
	for range 200000 {
		n := highest + uint64(rnd.IntN(50))
		if back := uint64(rnd.IntN(1500)); rnd.IntN(3) > 0 && back < n {
			n -= back
		}
		if rnd.IntN(5000) == 0 {
			n += uint64(rnd.IntN(5000))
		}
		want := n != 0 && !seen[n] && n+windowSize > highest
		if got := w.fresh(n); got != want {
			t.Fatalf("%d after %d: %v", n, highest, got)
		}
		if want {
			seen[n] = true
		}
		highest = max(highest, n)
	}
}

// TestQueue: each register is told as often as it should be, in its newest value, and what does not fit waits.
func TestQueue(t *testing.T) {
	q := newQueue()
	told := map[byte]int{}
	for i := range byte(30) {
		q.add(evidence.Key{Shard: evidence.Shard{i}})
	}
	for range 1000 {
		room := 7
		q.pop(5, func(k evidence.Key) (bool, bool) {
			if k.Shard[0] == 29 {
				return true, true
			}
			if room--; room < 0 {
				return false, false
			}
			told[k.Shard[0]]++
			return true, false
		})
	}
	for i := range byte(29) {
		if told[i] != 5 {
			t.Errorf("%d told %d times", i, told[i])
		}
	}
	if q.len() != 0 || told[29] != 0 {
		t.Errorf("%d left", q.len())
	}
}

func TestGossipFitsIntoPackets(t *testing.T) {
	s := newStore(evidence.Boot{1})
	s.members.Store(10)
	now := time.Unix(1e9, 0)
	for i := range 100 {
		r, _ := evidence.NewObserved(evidence.ShardOf("main"), evidence.Boot{2}, 1, role.Observation{Host: role.Host(fmt.Sprintf("10.0.0.%d:1", i+1)), Asked: now}, 0)
		s.merge(now, r)
	}
	sent := 0
	for b := s.gossip(now, 1300); b != nil; b = s.gossip(now, 1300) {
		if len(b) > maxPacket || b[0] != evidenceMessage {
			t.Fatalf("%d bytes", len(b))
		}
		if skipped := evidence.Decode(b[1:], now, func(evidence.Record) { sent++ }); skipped != 0 {
			t.Fatal("skipped")
		}
	}
	if sent != 100*8 {
		t.Errorf("%d records", sent)
	}
	if s.gossip(now, 10) != nil {
		t.Error("nothing fits into 10 bytes")
	}
}

// TestJournal: one line per problem and minute, whatever differs between two lines about it.
func TestJournal(t *testing.T) {
	var out bytes.Buffer
	j := newJournal(zerolog.New(&out))
	now := time.Unix(1e9, 0)
	j.now = func() time.Time { return now }
	for i := range 100 {
		fmt.Fprintf(j, "[ERR] memberlist: Decrypt packet failed: no installed keys could decrypt the message from=10.0.0.%d:%d", i, 1000+i)
		fmt.Fprintf(j, "[ERR] memberlist: discarding packet with unacceptable label \"x%d\": from=[2001:db8::%d]:80", i, i)
		fmt.Fprintf(j, "[WARN] memberlist: Got ping for unexpected node 'm%d@0123456789abcdef' from=10.1.2.3:4", i)
		fmt.Fprintf(j, "[ERR] memberlist: Failed to send gossip to 10.0.0.%d:7946: write: no route", i)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 4 || len(j.rows()) != 4 {
		t.Errorf("%d lines:\n%s", lines, out.String())
	}
	now = now.Add(time.Minute)
	fmt.Fprintf(j, "[ERR] memberlist: Failed to send gossip to 10.0.0.%d:7946: write: no route", 5)
	if !strings.Contains(out.String(), `"not_logged":99`) || j.rows()[0].Count != 101 {
		t.Errorf("%s\n%+v", out.String(), j.rows())
	}
	for i := range 1000 {
		j.note(zerolog.WarnLevel, strings.Repeat("x", i), "")
	}
	if n := len(j.rows()); n > maxProblems {
		t.Errorf("%d problems", n)
	}
}
