package lane

import (
	"math/rand/v2"
	"slices"

	"fencepost/actors/lane/pool"
	"fencepost/actors/shard"
)

// aim is the branch a checkout waits in: by its target, the view, and who has least to do.
func (l *Lane) aim(t Target) *branch {
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
		return l.home
	case n == 0:
		return l.write
	}
	host := func(i int) *branch {
		if i < len(v.Standbys) {
			return l.branchOf(v.Standbys[i])
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
		if br := host(i); br.load() < best.load() {
			best = br
		}
	}
	return best
}

// load is how busy a branch is: who waits counts before what is leased.
func (br *branch) load() int {
	return br.machine.Waiting()<<20 + br.machine.Count(pool.Leased)
}

// serves reports whether whoever has a target may stay in a branch: it is not moved only because another one would do as
// well.
func (l *Lane) serves(br *branch, t Target) bool {
	v := l.view
	switch {
	case v.Static || t == ReadWrite:
		return br == l.write
	case br == l.home:
		return len(v.Standbys) == 0 && (t == Standby || v.Elected == "")
	case br == l.write:
		return t == Any || t == PreferStandby && len(v.Standbys) == 0
	}
	return slices.Contains(v.Standbys, br.host)
}
