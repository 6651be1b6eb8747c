package matrix

import (
	"fmt"
	"slices"
	"strings"

	"fencepost/soak/matrix/arm"
	"fencepost/soak/matrix/verdict"
	"fencepost/soak/matrix/world"
)

// summary is several cells added up.
type summary struct {
	cells int
	verdict.Result
	rate     float64 // the least
	measured int     // cells with a new primary
}

func (s *summary) add(c *Cell) {
	r := c.Result
	s.cells++
	if s.rate == 0 || c.Rate < s.rate {
		s.rate = c.Rate
	}
	for _, f := range []struct {
		to   *int
		from int
	}{
		{&s.Attempts, r.Attempts}, {&s.Writes, r.Writes}, {&s.Reads, r.Reads}, {&s.WrongBinds, r.WrongBinds}, {&s.ObserverOnly, r.ObserverOnly},
		{&s.WrongReads, r.WrongReads}, {&s.ReadOnlyErrors, r.ReadOnlyErrors}, {&s.LogErrors, r.LogErrors}, {&s.Wedged, r.Wedged}, {&s.Unbound, r.Unbound},
		{&s.Opened, r.Opened}, {&s.FailedConnects, r.FailedConnects}, {&s.Never, r.Never}, {&s.Lost, r.Lost}, {&s.Doubled, r.Doubled},
		{&s.Unasked, r.Unasked}, {&s.SyncCancelled, r.SyncCancelled}, {&s.SyncCancelledLost, r.SyncCancelledLost}, {&s.OldAcks, r.OldAcks},
	} {
		*f.to += f.from
	}
	s.Unavailable = append(s.Unavailable, r.Unavailable...)
	s.Waited = append(s.Waited, r.Waited...)
	s.NoWriter += r.NoWriter
	s.Longest = max(s.Longest, r.Longest)
	if r.HasNew {
		s.measured++
	}
	if s.Errors == nil {
		s.Errors, s.Samples, s.WrongCauses = map[string]int{}, map[string]string{}, map[string]int{}
	}
	for code, n := range r.Errors {
		s.Errors[code] += n
		if _, known := s.Samples[code]; !known {
			s.Samples[code] = r.Samples[code]
		}
	}
	for cause, n := range r.WrongCauses {
		s.WrongCauses[cause] += n
	}
}

// sum adds up the cells of an arm, of one event or of all for "".
func (r *Report) sum(name string, events ...string) *summary {
	s := new(summary)
	for _, c := range r.Cells {
		if c.Arm == name && c.Result != nil && (len(events) == 0 || slices.Contains(events, c.Event)) {
			s.add(c)
		}
	}
	return s
}

// percentile of values in any order; 0 if there are none.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(float64(len(sorted))*p/100), len(sorted)-1)]
}

func ms(v float64) string {
	if v >= 10000 {
		return fmt.Sprintf("%.1f s", v/1000)
	}
	return fmt.Sprintf("%.0f ms", v)
}

// leastRate is how often a second the observer has to look for the matrix to say anything.
const leastRate = 40

// offences are what a cell of Fencepost's must not show.
func (c *Cell) offences(synchronous bool) (all []string) {
	if c.Result == nil {
		return []string{"no result: " + c.Error}
	}
	r := c.Result
	none := func(n int, what string) {
		if n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, what))
		}
	}
	none(r.WrongBinds, "wrong binds ("+counts(r.WrongCauses)+")")
	none(r.ReadOnlyErrors, "errors 25006")
	none(r.Wedged, "clients wedged")
	none(r.Unbound, "clients not on the writer at the end")
	none(r.Never, "clients never served by the new primary")
	none(r.Doubled, "writes doubled")
	none(r.Unasked, "transactions committed without a COMMIT")
	if synchronous && c.Event != world.KindPromoteCopy {
		none(r.Lost, "acknowledged writes lost")
	}
	if c.Event == world.KindSlow {
		none(total(r.Errors), "errors although the primary was only slow ("+counts(r.Errors)+")")
		none(c.Elections, "elections although the primary was only slow")
	}
	return all
}

// suspicious reports whether somebody will want to look into the cell.
func (c *Cell) suspicious(synchronous bool) bool {
	return c.Error != "" || c.Arm == arm.Fencepost && len(c.offences(synchronous)) > 0
}

// harmless are the events in which no server that could be mistaken for the primary turns up: the control may pass them.
var harmless = []string{world.KindRestart, world.KindSlow}

// Problems are the reasons why the run has failed, none if it passed: Fencepost does what it must not, the control is not
// caught at it, the observer was too slow, or cells are missing.
func (r *Report) Problems(o *Options) (all []string) {
	controlled := false
	for _, e := range o.Events {
		for _, a := range o.Arms {
			for n := 1; n <= o.repeats(a); n++ {
				if !r.has(a, e, n) {
					all = append(all, fmt.Sprintf("%s, %s %d: %s", a, e, n, r.missing(a, e, n)))
				}
			}
			controlled = controlled || a == arm.Control && !slices.Contains(harmless, e)
		}
	}
	for _, c := range r.Cells {
		if c.Result == nil || !slices.Contains(o.Events, c.Event) || !slices.Contains(o.Arms, c.Arm) {
			continue
		}
		if c.Arm == arm.Fencepost {
			for _, text := range c.offences(r.Settings.Synchronous) {
				all = append(all, fmt.Sprintf("%s, %s %d: %s", c.Arm, c.Event, c.Repeat, text))
			}
		}
		if c.Rate < leastRate {
			all = append(all, fmt.Sprintf("%s, %s %d: the observer polled only %.0f times a second: take fewer clients", c.Arm, c.Event, c.Repeat, c.Rate))
		}
	}
	if controlled && r.sum(arm.Control).WrongBinds == 0 {
		all = append(all, "the control shows no wrong binds: the matrix sees nothing")
	}
	return all
}

func (r *Report) missing(name, event string, repeat int) string {
	for _, c := range r.Cells {
		if c.Arm == name && c.Event == event && c.Repeat == repeat && c.Error != "" {
			return "no result: " + c.Error
		}
	}
	return "not played"
}

// counts writes counts, the highest first.
func counts(m map[string]int) string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if m[a] != m[b] {
			return m[b] - m[a]
		}
		return strings.Compare(a, b)
	})
	for i, k := range keys {
		keys[i] = fmt.Sprintf("%s: %d", k, m[k])
	}
	return strings.Join(keys, ", ")
}
