package cluster

import (
	"testing"
	"time"
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
		for id := range uint64(lettersAtOnce) { // what it asks is numbered as what it is asked
			b, _ := (&letter{kind: requestLetter, from: proxies[1].cfg.Boot, to: proxies[0].cfg.Boot, number: 100 + id, request: id, left: time.Minute, verb: "PAUSE"}).encode()
			proxies[0].send(&received{b, time.Now()})
		}
		time.Sleep(streamTimeout + 100*time.Millisecond)
		n.split()
		if proxies[0].counter("fleet_dropped_total", "unreachable") < lettersAtOnce {
			t.Fatal("the answers could be written: the test tests nothing")
		}
		proxies[1].system.Root.Send(op.Reply, &OperationDone{ID: op.ID, Rows: [][]string{{"done"}}})
		if got := (<-reply).Answers; len(got) != 4 || got[1].Err != "" || len(got[1].Rows) != 1 {
			t.Errorf("%+v", got)
		}
		closeAll(proxies)
	})
}
