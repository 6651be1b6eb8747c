package evidence

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"fencepost/role"
)

// keepClaim keeps a claim; settle judges it.
func (j *Judge) keepClaim(e FloorClaim) {
	r := e.Record
	if r.Kind != Claimed || j.isMuted(r.Observer, r.Host) || j.isRefuted(r) || !r.At.After(j.ordered) {
		return
	}
	j.takeOver(r.Floor.Generation)
	i := slices.IndexFunc(j.claims, func(c *claim) bool {
		k := c.record
		return k.Observer == r.Observer && k.Host == r.Host && k.Floor.SystemID == r.Floor.SystemID && k.Floor.Timeline == r.Floor.Timeline
	})
	if i < 0 { // beside what it claimed before: the floor only rises, whoever takes something back
		j.makeRoom(r.Observer)
		j.claims = append(j.claims, &claim{record: r, member: e.Member, arrived: j.now, kept: e.Kept})
	} else if r.Seq > j.claims[i].record.Seq {
		j.claims[i].record = r // seen again, in a later generation
	}
}

// isRefuted reports whether the host has contradicted that very claim.
func (j *Judge) isRefuted(r Record) bool {
	return slices.ContainsFunc(j.refuted, func(k Record) bool { return k.Key == r.Key && r.Seq <= k.Seq })
}

// Adopted are the claims that make the floor, the highest timelines first, at most so many: what is to be known again after
// a restart. Member of each is its observer's name.
func (j *Judge) Adopted(most int) (kept []FloorClaim) {
	for _, c := range j.claims {
		if c.adopted {
			kept = append(kept, FloorClaim{Record: c.record, Member: c.member})
		}
	}
	slices.SortStableFunc(kept, func(a, b FloorClaim) int { return cmp.Compare(b.Record.Floor.Timeline, a.Record.Floor.Timeline) })
	return kept[:min(len(kept), most)]
}

// makeRoom drops the claim that is missed least: one that was not adopted, else the one with the lowest timeline; of the
// observer itself if that has made too many.
func (j *Judge) makeRoom(observer Boot) {
	own := 0
	for _, c := range j.claims {
		if c.record.Observer == observer {
			own++
		}
	}
	if own < MaxClaimsPerObserver && len(j.claims) < MaxClaims {
		return
	}
	least := -1
	for i, c := range j.claims {
		if own >= MaxClaimsPerObserver && c.record.Observer != observer {
			continue
		}
		if least < 0 || j.timeline(c) < j.timeline(j.claims[least]) {
			least = i
		}
	}
	j.claims = slices.Delete(j.claims, least, least+1)
}

// settle adopts the claims that can be judged now, and says what floor they make.
func (j *Judge) settle() {
	defer j.settleSeat()
	for _, c := range j.claims { // each time, not only when they arrive: identifier, hosts and generation may have become known since
		if !c.adopted {
			j.adopt(c)
		}
	}
	// The highest of all claims that stand, and not the last one: when it is contradicted, the next lower one holds. Of several
	// on one timeline the same one everywhere, so that every member gives the same reason.
	top := slices.MaxFunc(append([]*claim{nil}, j.claims...), func(a, b *claim) int {
		return cmp.Or(cmp.Compare(j.timeline(a), j.timeline(b)), b.compare(a))
	})
	next := Floor{}
	if j.timeline(top) > 0 {
		f := top.record.Floor
		f.Generation = j.floor.Generation // whichever it was claimed in
		next = Floor{j.name(top.record.Host), f, fmt.Sprintf("member %s saw %s on timeline %d", top.member, j.name(top.record.Host), f.Timeline)}
	}
	if next.Floor == j.raised.Floor && (!j.again || next.Floor.Timeline == 0) {
		return
	}
	j.again = false
	if next.Floor.Timeline == 0 {
		next.Why = "no claim of another member stands any more"
		next.Floor = role.Floor{SystemID: j.floor.SystemID, Generation: j.floor.Generation}
		j.raised = Floor{}
	} else {
		j.raised = next
	}
	j.emit(next)
}

// adopt judges a claim that was not adopted yet.
func (j *Judge) adopt(c *claim) {
	r, h := c.record, j.find(c.record.Host)
	switch {
	case h == nil && !c.kept, j.floor.SystemID == 0, r.Floor.Generation > j.floor.Generation: // kept until that is known
	case r.Floor.SystemID != j.floor.SystemID:
		j.refuse(c, fmt.Sprintf("it is about the cluster %d, not %d", r.Floor.SystemID, j.floor.SystemID))
	default:
		c.adopted = true
		if h != nil && r.Floor.Timeline > j.floor.Timeline {
			j.probe(h, fmt.Sprintf("member %s saw it on timeline %d", c.member, r.Floor.Timeline))
		}
	}
}

// timeline that a claim makes the floor; 0 if it does not. A claim about a host that has left the list since it was adopted still does.
func (j *Judge) timeline(c *claim) uint32 {
	if c == nil || !c.adopted || slices.Contains(j.silent, c.record.Host) {
		return 0
	}
	return c.record.Floor.Timeline
}

// compare orders claims on one timeline, so that the same one is named everywhere.
func (c *claim) compare(d *claim) int {
	if c == nil || d == nil {
		return 0
	}
	return cmp.Or(c.record.Host.Compare(d.record.Host), bytes.Compare(c.record.Observer[:], d.record.Observer[:]))
}
