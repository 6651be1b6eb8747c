package lane

import (
	"math/rand/v2"
	"slices"

	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
)

// aim is the host pool a checkout waits in: by its target, the view, and who has least to do.
func (l *Lane) aim(t Target) *hostPool {
	v := l.view
	if t == ReadWrite || v.Static {
		return l.write
	}
	n := len(v.Standbys)
	if t == Any && v.Elected != "" {
		n++ // the primary takes its part, as the last of them
	}
	switch {
	case n == 0 && t == Standby:
		return l.unplaced
	case n == 0:
		return l.write
	}
	host := func(i int) *hostPool {
		if i < len(v.Standbys) {
			return l.hostPool(v.Standbys[i])
		}
		return l.write
	}
	switch v.Balance {
	case shard.RoundRobin:
		l.next++
		return host(l.next % n)
	case shard.Random:
		return host(rand.IntN(n))
	}
	best := host(0)
	for i := 1; i < n; i++ {
		if hp := host(i); hp.load() < best.load() {
			best = hp
		}
	}
	return best
}

// load is how busy a host pool is: who waits counts before what is leased.
func (hp *hostPool) load() int {
	return hp.machine.Waiting()<<20 + hp.machine.Count(pool.Leased)
}

// serves reports whether whoever has a target may stay in a host pool: it is not moved only because another one would do as
// well.
func (l *Lane) serves(hp *hostPool, t Target) bool {
	v := l.view
	switch {
	case v.Static || t == ReadWrite:
		return hp == l.write
	case hp == l.unplaced:
		return len(v.Standbys) == 0 && (t == Standby || v.Elected == "")
	case hp == l.write:
		return t == Any || t == PreferStandby && len(v.Standbys) == 0
	}
	return slices.Contains(v.Standbys, hp.host)
}
