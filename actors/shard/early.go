package shard

import (
	"slices"
	"time"
)

// maxDescribe is how many questions of consoles wait for the state file. Who asked before them has given up.
const maxDescribe = 64

// keepEarly keeps a message until the state file was read, which takes as long as the disk hangs. Lanes have no connection to tell of
// while there is no view, but say again and again that somebody waits.
func (a *decider) keepEarly(m any) {
	early := &a.mem.early
	switch m.(type) {
	case *Waiting:
		a.pacer.waited = time.Now()
		return
	case *DescribeShard:
		asks := func(m any) bool { _, ok := m.(*DescribeShard); return ok }
		if first := slices.IndexFunc(*early, asks); first >= 0 && len(*early)-first >= maxDescribe {
			*early = slices.Delete(*early, first, first+1)
		}
	}
	*early = append(*early, m)
}
