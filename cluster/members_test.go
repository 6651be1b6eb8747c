package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"fencepost/cluster/evidence"
	"fencepost/role"
)

// TestManyTwins: a fleet whose members all have the same settings file is one problem for the name and one for the number,
// and not one for each pair, which would be more than a journal holds and be logged every second.
func TestManyTwins(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, members := range []int{2, 3, 50} {
		var out strings.Builder
		r, j := newRoster(10*time.Second), newJournal(zerolog.New(&out))
		for i := range members {
			r.seen(now, node{fmt.Sprintf("m%02d@0", i), memAddr(i)}, meta{Boot: evidence.Boot{1, byte(i)}, Member: fmt.Sprintf("m%02d", i), PeerID: 7})
			r.seen(now, node{fmt.Sprintf("x@%d", i), memAddr(100 + i)}, meta{Boot: evidence.Boot{2, byte(i)}, Member: "x", PeerID: 9})
		}
		if early := r.twins(now.Add(9 * time.Second)); len(early) != 1 {
			t.Errorf("%d members, while it could be a restart: %q", members, early)
		}
		for range 10 {
			for _, p := range r.twins(now.Add(10 * time.Second)) {
				j.note(zerolog.ErrorLevel, p, "")
			}
		}
		if lines := strings.Count(out.String(), "\n"); lines != 2 || !strings.Contains(out.String(), "are named x: at 127.0.0.101:7946 and 127.0.0.102:7946") ||
			!strings.Contains(out.String(), "have peer_id 7: m00 and m01") || out.Len() > 1000 {
			t.Errorf("%d members, %d lines:\n%s", members, lines, out.String())
		}
	}
}

// TestMemberThatChangesItsMind: a node that says it is another process than before is one that is gone and a new one, so
// that what the first one said goes with it.
func TestMemberThatChangesItsMind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := memFleet(t, newMemnet(24), 1, nil)[0]
		eventually(t, time.Second, "open", func() bool { return p.describe().Open })
		at := node{"x@0", memAddr(9)}
		before := meta{Boot: evidence.Boot{1, 1}, Member: "x", Version: "1"}
		p.send(&nodeSeen{at, before.encode()})
		r, _ := evidence.NewObserved(evidence.ShardOf("main"), before.Boot, 1, role.Observation{Host: "10.0.0.1:5432", Verdict: role.Writable, Asked: time.Now()}, 0)
		p.send(&received{evidence.Append(append([]byte{evidenceMessage}, evidence.Header()...), time.Now(), r), time.Now()})
		after := before
		after.Boot = evidence.Boot{1, 2}
		p.send(&nodeSeen{at, after.encode()})
		if d := p.describe(); d.Alive != 2 || len(d.Evidence) != 1 {
			t.Errorf("%d alive, %v", d.Alive, d.Evidence)
		}
		time.Sleep(61 * time.Second)
		if d := p.describe(); d.Alive != 2 || len(d.Evidence) != 0 {
			t.Errorf("a minute later: %d alive, %v", d.Alive, d.Evidence)
		}
		p.close()
	})
}

// TestThoseWhoAreGone are remembered for a while, so that they are joined again, but not without end.
func TestThoseWhoAreGone(t *testing.T) {
	now := time.Unix(1e9, 0)
	r := newRoster(10 * time.Second)
	for i := range 2 * maxGone {
		name := fmt.Sprintf("m%d@0", i)
		r.seen(now, node{name, memAddr(i)}, meta{Boot: evidence.Boot{1, byte(i), byte(i >> 8)}, Member: fmt.Sprintf("m%d", i)})
		now = now.Add(time.Second)
		if i > 0 { // the first one stays
			r.gone(now, name)
		}
	}
	r.expire(now)
	if _, dead := r.addresses(); len(dead) != maxGone || r.byName[fmt.Sprintf("m%d@0", 2*maxGone-1)] == nil || r.alive() != 1 {
		t.Errorf("%d that are gone, %d alive", len(dead), r.alive())
	}
	r.expire(now.Add(rememberGone + time.Second))
	if len(r.byName) != 1 || len(r.byBoot) != 1 {
		t.Errorf("an hour later: %d members, %d boots", len(r.byName), len(r.byBoot))
	}
}

// TestTheDeadAreForgotten by the actor, too.
func TestTheDeadAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(28)
		proxies := memFleet(t, n, 2, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		proxies[1].close()
		time.Sleep(rememberGone - time.Minute)
		if rows := proxies[0].describe().Members; len(rows) != 2 {
			t.Errorf("within the hour: %+v", rows)
		}
		time.Sleep(2 * time.Minute)
		if rows := proxies[0].describe().Members; len(rows) != 1 {
			t.Errorf("after an hour: %+v", rows)
		}
		proxies[0].close()
	})
}
