package cluster

import (
	"testing"
	"time"

	"fencepost/cluster/evidence"
)

// TestOperationsWithoutOperations: a member that cannot carry anything out says so, and is waited for no less than the
// others are.
func TestOperationsWithoutOperations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(21)
		proxies := memFleet(t, n, 2, nil)
		for _, p := range proxies {
			answering(p, func(op *Operation) *OperationDone { return &OperationDone{ID: op.ID} })
		}
		cfg := Config{Name: "test", Member: "first of all", PeerID: 3, Bind: memAddr(2), Transport: n.transport(memAddr(2)), Keys: [][]byte{key(1)},
			Join: []string{memAddr(0).String()}}
		unattached := &proxy{t: t, system: proxies[0].system, pid: proxies[0].system.Root.Spawn(Props(cfg))}
		eventually(t, 30*time.Second, "all see all", func() bool {
			return unattached.describe().Alive == 3 && proxies[0].describe().Alive+proxies[1].describe().Alive == 6
		})
		got := unattached.operate("PAUSE", time.Second)
		if len(got) != 3 || got[0].Err == "" || got[1].Err != "" || got[2].Err != "" {
			t.Errorf("%+v", got)
		}
		_ = unattached.system.Root.StopFuture(unattached.pid).Wait()
		closeAll(proxies)
	})
}

// TestAnswerThatCannotBeWritten is nobody's failure but the asking member's: both number their requests alike.
func TestAnswerThatCannotBeWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(22)
		proxies := memFleet(t, n, 4, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		begun := make(chan *Operation, 1)
		answering(proxies[1], func(op *Operation) *OperationDone {
			begun <- op
			return nil
		})
		answering(proxies[0], func(op *Operation) *OperationDone { return &OperationDone{ID: op.ID} })
		for _, p := range proxies[2:] {
			answering(p, func(op *Operation) *OperationDone { return &OperationDone{ID: op.ID} })
		}
		reply := make(chan OperationResult, 1)
		proxies[0].send(&Operate{Verb: "PAUSE", Timeout: time.Minute, Reply: reply})
		op := <-begun
		time.Sleep(100 * time.Millisecond) // the others have answered
		n.split(addrs(proxies[:1]), addrs(proxies[1:]))
		for id := range uint64(messagesAtOnce) { // what it asks is numbered as what it is asked
			b, _ := (&message{kind: requestMessage, from: proxies[1].cfg.Boot, to: proxies[0].cfg.Boot, number: 100 + id, request: id, left: time.Minute, verb: "PAUSE"}).encode()
			proxies[0].send(&received{b, time.Now()})
		}
		time.Sleep(streamTimeout + 100*time.Millisecond)
		n.split()
		if proxies[0].counter("fleet_dropped_total", "unreachable") < messagesAtOnce {
			t.Fatal("the answers could be written: the test tests nothing")
		}
		proxies[1].system.Root.Send(op.Reply, &OperationDone{ID: op.ID, Rows: [][]string{{"done"}}})
		if got := (<-reply).Answers; len(got) != 4 || got[1].Err != "" || len(got[1].Rows) != 1 {
			t.Errorf("%+v", got)
		}
		closeAll(proxies)
	})
}

// TestMessagesOfBefore: a member that was started anew does nothing that its predecessor is asked for, and nobody does what
// one that is gone asks for.
func TestMessagesOfBefore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newMemnet(25)
		proxies := memFleet(t, n, 3, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		before := proxies[1]
		before.close()
		proxies[1] = memFleetMember(t, n, before, 1, nil)
		eventually(t, 30*time.Second, "all see all again", func() bool { return whole(proxies) })
		number := uint64(500)
		arrives := func(from, to evidence.Boot) {
			number++
			b, _ := (&message{kind: cancelMessage, from: from, to: to, number: number, peerID: 2, key: []byte("key")}).encode()
			proxies[1].send(&received{b, time.Now()})
			time.Sleep(100 * time.Millisecond)
		}
		cancels := func() int { return proxies[1].office.count(func(m any) bool { _, ok := m.(*CancelFor); return ok }) }
		arrives(proxies[0].cfg.Boot, proxies[1].cfg.Boot)
		if cancels() != 1 {
			t.Fatal("no cancel arrives: the test tests nothing")
		}
		arrives(proxies[0].cfg.Boot, before.cfg.Boot)
		if cancels() != 1 {
			t.Error("a cancel for its predecessor was carried out")
		}
		gone := proxies[2]
		arrives(gone.cfg.Boot, proxies[1].cfg.Boot)
		if cancels() != 2 {
			t.Fatal("no cancel of the member arrives")
		}
		gone.close()
		eventually(t, 10*time.Second, "it is gone", func() bool { return proxies[1].row("m2").State != Alive })
		arrives(gone.cfg.Boot, proxies[1].cfg.Boot)
		if cancels() != 2 {
			t.Error("a cancel of a member that is gone was carried out")
		}
		closeAll(proxies[:2])
	})
}

// TestMemberGoesWithAnOperation: it is waited for no longer.
func TestMemberGoesWithAnOperation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		proxies := memFleet(t, newMemnet(26), 3, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		begun := make(chan struct{}, 1)
		for i, p := range proxies {
			answering(p, func(op *Operation) *OperationDone {
				if i == 2 {
					begun <- struct{}{}
					return nil
				}
				return &OperationDone{ID: op.ID}
			})
		}
		reply := make(chan OperationResult, 1)
		begin := time.Now()
		proxies[0].send(&Operate{Verb: "PAUSE", Timeout: time.Minute, Reply: reply})
		<-begun
		proxies[2].close()
		got := (<-reply).Answers
		if took := time.Since(begin); took > 10*time.Second || len(got) != 3 || got[1].Err != "" || got[2].Err != "the member is gone" {
			t.Errorf("after %s: %+v", took, got)
		}
		closeAll(proxies[:2])
	})
}

// TestServedRequestsAreBounded: a member that is asked for more than it can do refuses, and serves again when the deadlines are over.
func TestServedRequestsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		proxies := memFleet(t, newMemnet(27), 2, nil)
		eventually(t, 30*time.Second, "all see all", func() bool { return whole(proxies) })
		number := uint64(500)
		asks := func(count int) (begun int) {
			before := proxies[1].office.count(func(any) bool { return true })
			for range count {
				number++
				b, _ := (&message{kind: requestMessage, from: proxies[0].cfg.Boot, to: proxies[1].cfg.Boot, number: number, request: number, left: time.Minute, verb: "PAUSE"}).encode()
				proxies[1].send(&received{b, time.Now()})
			}
			time.Sleep(time.Second)
			return proxies[1].office.count(func(any) bool { return true }) - before
		}
		if begun := asks(2 * maxServed); begun != maxServed {
			t.Errorf("%d served requests at once", begun)
		}
		if got := proxies[1].operate("PAUSE", 2*time.Second); len(got) != 2 || got[1].Err != "the member cannot do that now" {
			t.Errorf("%+v", got)
		}
		time.Sleep(time.Minute)
		if begun := asks(10); begun != 10 {
			t.Errorf("%d of 10 served requests after the time for the others was over", begun)
		}
		closeAll(proxies)
	})
}
