package shard

import "testing"

// While the state file's disk hangs, what is repeated is not kept, and what somebody orders is.
func TestEarlyMessagesAreBounded(t *testing.T) {
	a := newDecider(&ActorConfig{Shard: NewShard("main")}, &memory{addresses: newAddresses()})
	order := &Configure{}
	a.keepEarly(order)
	for range 10_000 {
		a.keepEarly(&Waiting{})
		a.keepEarly(&DescribeShard{})
	}
	if n := len(a.mem.early); n > maxDescribe+1 || a.mem.early[0] != order {
		t.Errorf("%d messages are kept, the first is %T", n, a.mem.early[0])
	}
	if a.pacer.waited.IsZero() {
		t.Error("it is not known that somebody waits")
	}
}
