package matrix

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"fencepost/soak/matrix/arm"
	"fencepost/soak/matrix/picture"
	"fencepost/soak/matrix/verdict"
	"fencepost/soak/matrix/world"
)

// view is what the world knows of one cell, with times since the cell's beginning.
type view struct {
	began, ended time.Time
	occurrence   world.Occurrence
	forgot       []time.Time
	world        *world.World

	elections int
	chosen    []picture.Mark // by Fencepost
}

func (v *view) since(t time.Time) time.Duration { return t.Sub(v.began) }

// truth is what the verdict needs.
func (v *view) truth() *verdict.Truth {
	o, obs := &v.occurrence, v.world.Observer()
	t := &verdict.Truth{Began: v.since(o.Began), Old: o.Old, New: o.New, Ports: map[string]int{}, Writer: obs.WriterAt(v.ended)}
	for _, s := range v.world.Servers() {
		t.Ports[s.Name] = portOf(s.DirectAddr)
	}
	if w, ok := v.newWriter(); ok {
		t.HasNew, t.NewFirst, t.NewTimeline = true, v.since(w.Acked), w.Timeline
	}
	for _, f := range v.forgot {
		t.Forgets = append(t.Forgets, v.since(f))
	}
	for _, i := range obs.NoWriterIntervals(v.began, v.ended) {
		t.NoWriter += i.Length()
	}
	t.Sightings = v.sightings()
	for _, l := range obs.Log(v.began, v.ended) {
		if l.SQLSTATE == verdict.ReadOnlyError && l.App == arm.ApplicationName {
			t.LogErrors++
		}
	}
	return t
}

// newWriter is the observer's first write on the primary that the event brought: another server, or the same one after
// it had been started again.
func (v *view) newWriter() (world.Write, bool) {
	o := &v.occurrence
	after := o.Began
	if o.New == o.Old {
		after = time.Time{}
		for _, s := range o.Steps {
			if s.Server == o.Old && s.What == world.DidStop {
				after = s.At
			}
		}
		if after.IsZero() {
			return world.Write{}, false
		}
	}
	return v.world.Observer().FirstWrite(o.New, after)
}

// sightings are the rises of the highest timeline, from what it was at the beginning on.
func (v *view) sightings() (all []verdict.Sighting) {
	highest := uint32(0)
	for _, s := range v.world.Observer().Samples(v.began, v.ended) {
		if s.Answers && !s.InRecovery && s.Timeline > highest {
			highest = s.Timeline
			all = append(all, verdict.Sighting{At: max(0, v.since(s.From)), Timeline: highest})
		}
	}
	return all
}

// said takes in what the arm said of itself.
func (v *view) said(all []arm.Said, h *verdict.History) {
	elected := ""
	for i, s := range all {
		if s.Floor > 0 && s.At.After(v.began) {
			h.Seen = append(h.Seen, verdict.Sighting{At: v.since(s.At), Timeline: s.Floor})
		}
		if s.Elected != elected && i > 0 && s.At.After(v.began) {
			v.elections++
			v.chosen = append(v.chosen, picture.Mark{At: v.since(s.At), Text: "→ " + v.nameOf(s.Elected)})
		}
		elected = s.Elected
	}
}

// nameOf is the server with an address.
func (v *view) nameOf(addr string) string {
	for _, s := range v.world.Servers() {
		if s.RelayAddr == addr {
			return s.Name
		}
	}
	return "nobody"
}

// rate is the least of the servers'.
func (v *view) rate() float64 {
	least := 0.0
	for _, r := range v.world.Observer().Rate(v.began, v.ended) {
		if least == 0 || r < least {
			least = r
		}
	}
	return least
}

// marks are the event's steps, and the first write on the new primary.
func (v *view) marks() (all []picture.Mark) {
	for _, s := range v.occurrence.Steps {
		all = append(all, picture.Mark{At: v.since(s.At), Text: strings.TrimSpace(s.Server + " " + s.What)})
	}
	if w, ok := v.newWriter(); ok {
		all = append(all, picture.Mark{At: v.since(w.Acked), Text: w.Server + " takes writes"})
	}
	for _, f := range v.forgot {
		all = append(all, picture.Mark{At: v.since(f), Text: "FORGET"})
	}
	all = append(all, v.chosen...)
	slices.SortStableFunc(all, func(a, b picture.Mark) int { return cmp.Compare(a.At, b.At) })
	return all
}

// row is the cell's band in the picture.
func (v *view) row(c *Cell, h *verdict.History) *picture.Row {
	r := &picture.Row{Title: fmt.Sprintf("%s, %s %d", c.Arm, c.Event, c.Repeat), Clients: h.Clients, Zero: v.since(v.occurrence.Began), End: v.since(v.ended), Marks: c.Steps}
	for i := range h.Attempts {
		a := &h.Attempts[i]
		t := picture.Try{Client: a.Client, From: a.Start, To: a.End}
		switch {
		case a.Cut:
			t.Outcome = picture.Cut
		case a.Kind.Writes() && (a.Code == verdict.ReadOnlyError || a.Bound != nil && (a.Bound.InRecovery || a.Bound.ReadOnly)):
			t.Outcome = picture.Wrong
		case !a.Acked:
			t.Outcome = picture.Failed
		}
		r.Tries = append(r.Tries, t)
	}
	for _, f := range h.Refusals {
		r.Tries = append(r.Tries, picture.Try{Client: f.Client, From: f.Start, To: f.End, Outcome: picture.Failed})
	}
	for _, i := range v.world.Observer().NoWriterIntervals(v.began, v.ended) {
		r.NoWriter = append(r.NoWriter, picture.Span{From: v.since(i.From), To: v.since(i.To)})
	}
	r.Sort()
	return r
}
