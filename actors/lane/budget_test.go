package lane

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
)

func lanePID(i int) *actor.PID { return actor.NewPID("here", fmt.Sprintf("lane-%d", i)) }

// What a budget promises its lanes: never more permits than the limit, none lost, and those who wait for one get it in the
// order in which they asked, whatever the others do meanwhile.
func TestBudgetAgainstModel(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit := r.IntN(5)
		b := NewBudget(limit)
		lanes := 2 + r.IntN(4)
		held := make([]int, lanes)
		var queue, told []int // lanes in the order they began to wait; those a permit is reserved for
		out := 0
		for i := range lanes {
			b.Join(lanePID(i))
		}
		// tell is what a lane does with the answer of release, decline, spare and Leave.
		tell := func(pid *actor.PID) {
			if pid == nil {
				return
			}
			if len(queue) == 0 || !pid.Equal(lanePID(queue[0])) {
				t.Fatalf("seed %d: %v is told, the queue is %v", seed, pid, queue)
			}
			told, queue = append(told, queue[0]), queue[1:]
		}
		for step := range 400 {
			i := r.IntN(lanes)
			switch r.IntN(8) {
			case 0, 1, 2:
				needed := r.IntN(4) > 0
				reserved := slices.Index(told, i)
				ok, ask, _ := b.acquire(lanePID(i), needed)
				switch {
				case ok && reserved >= 0:
					told = slices.Delete(told, reserved, reserved+1)
					held[i]++
					out++
				case ok:
					if len(queue) > 0 {
						t.Fatalf("seed %d: lane %d overtakes %v", seed, i, queue)
					}
					held[i]++
					out++
				case reserved >= 0:
					t.Fatalf("seed %d: what is reserved for lane %d is refused", seed, i)
				case needed && !slices.Contains(queue, i):
					queue = append(queue, i)
				}
				if ok && ask != nil || slices.ContainsFunc(ask, lanePID(i).Equal) {
					t.Fatalf("seed %d: lane %d has %v others asked", seed, i, ask)
				}
			case 3, 4, 5:
				if held[i] > 0 {
					held[i]--
					out--
					tell(b.release())
				}
			case 6:
				next := b.decline(lanePID(i))
				if at := slices.Index(told, i); at >= 0 {
					told = slices.Delete(told, at, at+1)
				}
				tell(next)
			case 7:
				limit = r.IntN(5)
				b.SetLimit(limit)
				tell(b.spare())
			}
			if b.Used() != out {
				t.Fatalf("seed %d, step %d: %d used, %d are out", seed, step, b.Used(), out)
			}
		}
		for i := range lanes {
			for ; held[i] > 0; held[i]-- {
				tell(b.release())
			}
		}
		for i := range lanes {
			next := b.Leave(lanePID(i))
			if at := slices.Index(queue, i); at >= 0 {
				queue = slices.Delete(queue, at, at+1)
			}
			if at := slices.Index(told, i); at >= 0 {
				told = slices.Delete(told, at, at+1)
			}
			tell(next)
		}
		if b.Used() != 0 || !b.unused() {
			t.Fatalf("seed %d: %d used in the end", seed, b.Used())
		}
	}
}

func TestBudgetNeverExceedsItsLimit(t *testing.T) {
	b := NewBudget(2)
	a := lanePID(1)
	b.Join(a)
	for i := range 4 {
		if ok, _, _ := b.acquire(a, true); ok != (i < 2) {
			t.Fatalf("permit %d of 2: %v", i+1, ok)
		}
	}
	b.SetLimit(1) // lowered: what is out stays out, and is not handed on
	if next := b.release(); next != nil {
		t.Fatal("a permit above the limit is handed on")
	}
	if next := b.release(); !next.Equal(a) {
		t.Fatal("nobody is told that a permit is free")
	}
	b.SetLimit(0) // none: everybody gets one
	for range 100 {
		if ok, _, _ := b.acquire(a, false); !ok {
			t.Fatal("refused without a limit")
		}
	}
}

// Pools of one database share its limit, and each has its own.
func TestBudgetsOfPools(t *testing.T) {
	s := NewBudgets()
	k1, k2 := PoolKey{"db", "a"}, PoolKey{"db", "b"}
	p1, d1 := s.For(k1, "h:1", &PoolSpec{Size: 3, DBLimit: 4})
	p2, d2 := s.For(k2, "h:1", &PoolSpec{Size: 5, DBLimit: 4})
	if p1 == p2 || d1 != d2 {
		t.Fatal("pools share what is theirs, or not what is not")
	}
	if p1.Limit() != 3 || p2.Limit() != 5 || d1.Limit() != 4 {
		t.Errorf("limits %d, %d and %d", p1.Limit(), p2.Limit(), d1.Limit())
	}
	p1.Join(lanePID(1))
	d1.Join(lanePID(1))
	if ok, _, _ := d1.acquire(lanePID(1), true); !ok || s.DatabaseUsed("db") != 1 || s.DatabaseUsed("other") != 0 {
		t.Errorf("used %d", s.DatabaseUsed("db"))
	}
	s.forget(k1, "h:1")
	if again, _ := s.For(k1, "h:1", &PoolSpec{Size: 3, DBLimit: 4}); again != p1 {
		t.Error("the budget of a pool with lanes is forgotten")
	}
	d1.release()
	p1.Leave(lanePID(1))
	d1.Leave(lanePID(1))
	s.forget(k1, "h:1")
	if again, _ := s.For(k1, "h:1", &PoolSpec{Size: 3, DBLimit: 4}); again == p1 {
		t.Error("the budget of a pool without lanes is kept")
	}
}
