package evidence

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"fencepost/role"
)

// randomRecords are what a few observers, honest and not, may have written.
func randomRecords(rnd *rand.Rand, n int) []Record {
	var all []Record
	for len(all) < n {
		shard := ShardOf(string(rune('A' + rnd.IntN(2))))
		b := boot(string(rune('p' + rnd.IntN(3))))
		h := role.Host(fmt.Sprintf("10.0.0.%d:5432", rnd.IntN(2)+1))
		seq := uint64(rnd.IntN(5) + 1)
		at := epoch.Add(-time.Duration(6-seq) * time.Second) // later ones are asked for later
		var r Record
		var ok bool
		switch rnd.IntN(6) {
		case 0:
			r, ok = NewGeneration(shard, uint64(rnd.IntN(3)))
		case 5: // given at the same time wherever it is heard of
			generation, order := uint64(rnd.IntN(3)+1), byte(rnd.IntN(2)+1)
			r, ok = NewOrdered(shard, generation, Order{order}, epoch.Add(-time.Duration(5-generation)*time.Second-time.Duration(order)*100*time.Millisecond))
		case 1, 2:
			r, ok = NewClaimed(shard, b, seq, h,
				role.Floor{SystemID: 7, Generation: uint64(rnd.IntN(3)), Timeline: uint32(rnd.IntN(3) + 1)}, at)
		default:
			r, ok = NewObserved(shard, b, seq,
				role.Observation{Host: h, Verdict: role.Verdict(rnd.IntN(4)), Timeline: uint32(rnd.IntN(3)), Asked: at}, 0)
		}
		if ok {
			all = append(all, r)
		}
	}
	return all
}

func merged(records ...Record) []Record {
	t := NewTable(Limits{})
	for _, r := range records {
		t.Merge(epoch, r)
	}
	return t.All()
}

// TestMergeIsAJoin: in whatever order, how often and in whatever groups records arrive, the table is the same.
func TestMergeIsAJoin(t *testing.T) {
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		records := randomRecords(rnd, 12)
		want := merged(records...)
		shuffled := slices.Concat(records, records[:rnd.IntN(len(records))])
		rnd.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if got := merged(shuffled...); !slices.Equal(got, want) {
			t.Fatalf("seed %d: order matters:\n%v\n%v", seed, got, want)
		}
		cut := rnd.IntN(len(records))
		left, right := merged(records[:cut]...), merged(records[cut:]...)
		if got := merged(slices.Concat(right, left)...); !slices.Equal(got, want) {
			t.Fatalf("seed %d: grouping matters:\n%v\n%v", seed, got, want)
		}
		table := NewTable(Limits{})
		for _, r := range want {
			table.Merge(epoch, r)
		}
		for _, r := range want {
			if out := table.Merge(epoch, r); out == News {
				t.Fatalf("seed %d: %s is news twice", seed, r)
			}
		}
	}
}

// TestMergeOverTheWire: tables that exchange messages agree on everything but ages, and those only get older.
func TestMergeOverTheWire(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 3))
	a := NewTable(Limits{})
	for _, r := range randomRecords(rnd, 40) {
		a.Merge(epoch, r)
	}
	b, now := NewTable(Limits{}), epoch.Add(time.Second)
	message := Header()
	for _, r := range a.All() {
		message = Append(message, now, r)
	}
	if skipped := Decode(message, now, func(r Record) { b.Merge(now, r) }); skipped != 0 {
		t.Fatalf("%d records skipped", skipped)
	}
	if got, want := fmt.Sprint(b.All()), fmt.Sprint(a.All()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for i, r := range b.All() {
		if d := r.At.Sub(a.All()[i].At); d < 0 || d > time.Millisecond {
			t.Errorf("%s is %s younger than told", r, d)
		}
	}
}

func claimOf(t *testing.T, observer string, seq uint64, n int) Record {
	t.Helper()
	r, ok := NewClaimed(ShardOf("main"), boot(observer), seq, role.Host(fmt.Sprintf("10.1.%d.%d:5432", n/250, n%250+1)), role.Floor{SystemID: 7, Timeline: 1}, epoch)
	if !ok {
		t.Fatal("not a claim")
	}
	return r
}

func TestTableIsBounded(t *testing.T) {
	table := NewTable(Limits{Total: 100, PerObserver: 40, Strangers: 3, Shards: 5})
	table.Joined(boot("member"))
	table.Merge(epoch, claimOf(t, "member", 1, 0))
	for i := range 2000 {
		table.Merge(epoch, claimOf(t, fmt.Sprintf("stranger%d", i/60), 1, i))
		if records, observers := table.Len(); records > 100 || observers > 4 {
			t.Fatalf("%d records of %d observers", records, observers)
		}
	}
	if _, ok := table.Get(claimOf(t, "member", 1, 0).Key); !ok {
		t.Error("a flood of strangers drove a member's record out")
	}
	for i := range 50 {
		table.Merge(epoch, claimOf(t, "member", 1, i))
	}
	if _, ok := table.Get(claimOf(t, "member", 1, 0).Key); ok {
		t.Error("the oldest record of an observer that writes too many stays")
	}
	for i := range 20 {
		g, _ := NewGeneration(ShardOf(fmt.Sprint(i)), 1)
		table.Merge(epoch, g)
	}
	if n := len(table.generations); n > 5 {
		t.Errorf("%d generations", n)
	}
}

// TestThoseWhoLeft: records of an observer that is no member go after a while, old packets do not bring them back, and its
// return does.
func TestThoseWhoLeft(t *testing.T) {
	table := NewTable(Limits{})
	r := claimOf(t, "m2", 3, 0)
	table.Joined(boot("m2"))
	table.Merge(epoch, r)
	table.Expire(epoch.Add(time.Hour))
	if table.Merge(epoch, r) != Known {
		t.Fatal("a member's record is gone")
	}
	table.Left(epoch, boot("m2"))
	if table.Expire(epoch.Add(59*time.Second)) != 0 || table.Expire(epoch.Add(time.Minute)) != 1 {
		t.Fatal("the record did not go after a minute")
	}
	if out := table.Merge(epoch.Add(time.Minute), r); out != Rejected {
		t.Errorf("a replayed record of an observer that left: %d", out)
	}
	table.Joined(boot("m2"))
	if out := table.Merge(epoch.Add(time.Minute), r); out != News {
		t.Errorf("after its return: %d", out)
	}
	old, _ := NewObserved(ShardOf("main"), boot("m2"), 9, role.Observation{Host: "10.0.0.1:1", Asked: epoch}, 0)
	if out := table.Merge(epoch.Add(time.Hour), old); out != Rejected {
		t.Errorf("an observation an hour old: %d", out)
	}
}

// TestClaimsOfThoseWhoLeft: what an observer claimed about a shard of this process outlives it, of each host the highest
// timeline, until FORGET. Whoever tells of it later, as one that has it in a state file, makes no difference.
func TestClaimsOfThoseWhoLeft(t *testing.T) {
	table, shard := NewTable(Limits{Departed: 3}), ShardOf("main")
	table.Keep(shard)
	claim := func(observer string, host byte, timeline uint32) Record {
		r, _ := NewClaimed(shard, boot(observer), 1, role.Host(fmt.Sprintf("10.0.0.%d:5432", host)), role.Floor{SystemID: 7, Timeline: timeline}, epoch)
		return r
	}
	low, high, other := claim("m2", 1, 2), claim("m3", 1, 3), claim("m2", 2, 2)
	for _, r := range []Record{low, high, other} {
		table.Merge(epoch, r)
	}
	table.Expire(epoch.Add(time.Hour))
	now := epoch.Add(time.Hour)
	if got, want := table.All(), []Record{high, other}; !slices.Equal(got, want) {
		t.Errorf("kept\n%v\nwant\n%v", got, want)
	}
	if r, ok := table.Get(high.Key); !ok || r != high {
		t.Errorf("%v, %t", r, ok)
	}
	if a, b, c := table.Merge(now, low), table.Merge(now, high), table.Merge(now, claim("m2", 2, 5)); a != Known || b != Known || c != News {
		t.Errorf("a lower one %d, the same %d, a higher one %d", a, b, c)
	}
	for host := range byte(9) {
		table.Merge(now, claim("m2", 10+host, 9))
	}
	if n := len(table.departed); n != 3 {
		t.Errorf("%d are kept", n)
	}
	o, _ := NewOrdered(shard, 1, Order{1}, epoch)
	table.Merge(now, o)
	if got := table.All(); len(got) != 2 { // the order and its generation
		t.Errorf("after FORGET: %v", got)
	}
}

func TestGenerations(t *testing.T) {
	table := NewTable(Limits{})
	r := claimOf(t, "m2", 3, 0)
	table.Merge(epoch, r)
	g, _ := NewGeneration(r.Shard, 2)
	if table.Merge(epoch, g) != News || table.Merge(epoch, g) != Known {
		t.Error("a later generation is not news once")
	}
	if _, ok := table.Get(r.Key); !ok {
		t.Error("a claim goes because somebody is in a later generation")
	}
	before, _ := NewOrdered(r.Shard, 3, Order{1}, epoch.Add(-time.Second))
	if table.Merge(epoch, before) != News || table.Merge(epoch, before) != Known {
		t.Error("an order is not news once")
	}
	if _, ok := table.Get(r.Key); !ok {
		t.Error("a claim goes that was seen since the order was given")
	}
	o, _ := NewOrdered(r.Shard, 4, Order{2}, epoch)
	if table.Merge(epoch, o) != News || table.GenerationOf(r.Shard) != 4 {
		t.Error("an order does not begin its generation")
	}
	if _, ok := table.Get(r.Key); ok {
		t.Error("a claim of before the order stays")
	}
	if out := table.Merge(epoch, r); out != Rejected {
		t.Errorf("and comes back: %d", out)
	}
	if far, _ := NewGeneration(r.Shard, maxGeneration); table.Merge(epoch, far) != Rejected {
		t.Error("somebody used up all generations")
	}
}

func TestAddresses(t *testing.T) {
	for h, want := range map[role.Host]string{
		"10.0.0.1:5432": "10.0.0.1:5432", "[::ffff:10.0.0.1]:5432": "10.0.0.1:5432", "[2001:db8:0::1]:5432": "[2001:db8::1]:5432",
		"/tmp:5432": "", "db1:5432": "", "[fe80::1%eth0]:5432": "", "0.0.0.0:5432": "", "10.0.0.1:0": "", "": "",
	} {
		a, ok := Address(h)
		if ok != (want != "") || ok && a.String() != want {
			t.Errorf("%s: %s, %v", h, a, ok)
		}
	}
}
