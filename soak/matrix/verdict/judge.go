package verdict

import (
	"cmp"
	"slices"
	"time"
)

// Result is what a run has shown.
type Result struct {
	Attempts int `json:"attempts"`
	Writes   int `json:"acknowledged_writes"`
	Reads    int `json:"reads"`

	WrongBinds   int            `json:"wrong_binds"`
	WrongCauses  map[string]int `json:"wrong_causes,omitempty"`
	ObserverOnly int            `json:"wrong_by_the_observer_only"`
	WrongReads   int            `json:"wrong_reads"` // as wrong binds, of reads

	ReadOnlyErrors int `json:"errors_25006"`
	LogErrors      int `json:"errors_25006_in_server_logs"`

	Wedged  int `json:"wedged_clients"`
	Unbound int `json:"clients_not_on_the_writer"`

	Opened         int `json:"connections_opened"`
	FailedConnects int `json:"failed_connects"`

	HasNew      bool      `json:"has_new_primary"`
	Unavailable []float64 `json:"unavailable_ms,omitempty"` // of each client that was served again
	Waited      []float64 `json:"waited_ms,omitempty"`      // … without what it did not ask for anything
	Never       int       `json:"clients_never_served_again"`
	NoWriter    float64   `json:"no_writer_ms"`
	Longest     float64   `json:"longest_acknowledged_ms"`

	Lost              int `json:"acknowledged_lost"`
	Doubled           int `json:"doubled"`
	Unasked           int `json:"committed_without_commit"`
	SyncCancelled     int `json:"acknowledged_without_standby"`
	SyncCancelledLost int `json:"acknowledged_without_standby_lost"`
	OldAcks           int `json:"acknowledged_by_the_old_primary"`

	Errors  map[string]int    `json:"errors,omitempty"`
	Samples map[string]string `json:"error_samples,omitempty"` // the first text of each
}

// Causes of wrong binds.
const (
	causeRecovery = "in recovery"
	causeReadOnly = "read-only"
	causeTimeline = "old timeline"
	causeRefused  = "write refused as read-only"
)

// Judge draws the conclusions. Nothing it is given is changed or kept.
func Judge(h *History, t *Truth, l Ledger) *Result {
	r := &Result{Opened: h.Opened, FailedConnects: len(h.Refusals), NoWriter: milliseconds(t.NoWriter), HasNew: t.HasNew, LogErrors: t.LogErrors,
		WrongCauses: map[string]int{}, Errors: map[string]int{}, Samples: map[string]string{}}
	attempts := slices.Clone(h.Attempts)
	slices.SortStableFunc(attempts, func(a, b Attempt) int { return cmp.Compare(a.End, b.End) })
	r.count(h, attempts)
	r.binds(h, t, attempts)
	r.ending(h, t, attempts)
	r.service(h, t, attempts)
	r.writes(t, attempts, l)
	return r
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// count counts what needs no rule.
func (r *Result) count(h *History, attempts []Attempt) {
	note := func(code, message string) {
		r.Errors[code]++
		if _, known := r.Samples[code]; !known {
			r.Samples[code] = message
		}
		if code == ReadOnlyError {
			r.ReadOnlyErrors++
		}
	}
	r.Attempts = len(attempts)
	for i := range attempts {
		a := &attempts[i]
		switch {
		case a.Acked && a.Kind.Writes():
			r.Writes++
			r.Longest = max(r.Longest, milliseconds(a.End-a.Start))
		case a.Acked:
			r.Reads++
		case !a.Cut:
			note(a.Code, a.Message)
		}
	}
	for _, c := range h.Refusals {
		note(c.Code, c.Message)
	}
}

// ending looks at each client's last write attempt.
func (r *Result) ending(h *History, t *Truth, attempts []Attempt) {
	last := map[int]*Attempt{}
	for i := range attempts {
		if a := &attempts[i]; a.Kind.Writes() {
			last[a.Client] = a
		}
	}
	for client := range h.Clients {
		a := last[client]
		if a == nil {
			r.Unbound++
			continue
		}
		if readOnly := a.Bound != nil && (a.Bound.InRecovery || a.Bound.ReadOnly); a.Code == ReadOnlyError || readOnly {
			r.Wedged++
		}
		if !a.Acked || a.Bound == nil || t.Writer == "" || a.Bound.Port != t.Ports[t.Writer] {
			r.Unbound++
		}
	}
}

// service is how long each client waited after the new primary had been there.
func (r *Result) service(h *History, t *Truth, attempts []Attempt) {
	if !t.HasNew {
		return
	}
	before := map[incarnation]bool{} // servers that clients had by the time of the event
	for i := range attempts {
		if a := &attempts[i]; a.Bound != nil && a.BoundAt < t.Began {
			before[a.Bound.incarnation()] = true
		}
	}
	served := map[int]bool{}
	asked := asking(h, attempts)
	for i := range attempts {
		a := &attempts[i]
		if served[a.Client] || !a.Acked || !a.Kind.Writes() || a.Bound == nil || a.End < t.Began || a.Bound.Port != t.Ports[t.New] {
			continue
		}
		if t.New == t.Old && before[a.Bound.incarnation()] {
			continue
		}
		served[a.Client] = true
		r.Unavailable = append(r.Unavailable, milliseconds(max(0, a.End-t.NewFirst)))
		r.Waited = append(r.Waited, milliseconds(max(0, a.End-max(t.NewFirst, asked[i]))))
	}
	r.Never = h.Clients - len(served)
}

// asking is, for each attempt, since when its client has been asking in vain: from the first of the failures in a row before
// it, refused connections included, else from its own beginning. Pauses after an error are part of it, those after a success
// are not.
func asking(h *History, attempts []Attempt) []time.Duration {
	refusals := slices.Clone(h.Refusals)
	slices.SortStableFunc(refusals, func(a, b Refusal) int { return cmp.Compare(a.End, b.End) })
	since := map[int]time.Duration{} // of clients whose last try failed
	failed := func(client int, start time.Duration) {
		if _, known := since[client]; !known {
			since[client] = start
		}
	}
	all := make([]time.Duration, len(attempts))
	for i := range attempts {
		a := &attempts[i]
		for len(refusals) > 0 && refusals[0].End <= a.End {
			failed(refusals[0].Client, refusals[0].Start)
			refusals = refusals[1:]
		}
		failed(a.Client, a.Start)
		all[i] = since[a.Client]
		if a.Acked {
			delete(since, a.Client)
		}
	}
	return all
}

// writes compares what was acknowledged with what is there.
func (r *Result) writes(t *Truth, attempts []Attempt, l Ledger) {
	for i := range attempts {
		a := &attempts[i]
		if !a.Kind.Writes() {
			continue
		}
		n := l[Row{a.Client, a.Seq}]
		if n > 1 {
			r.Doubled++
		}
		switch {
		case a.Acked && a.SyncCancelled:
			r.SyncCancelled++
			if n == 0 {
				r.SyncCancelledLost++
			}
		case a.Acked && n == 0:
			r.Lost++
		case !a.CommitSent && n > 0:
			r.Unasked++
		}
		if a.Acked && t.HasNew && t.New != t.Old && a.Bound != nil && a.Bound.Port == t.Ports[t.Old] && a.Bound.Timeline < t.NewTimeline && a.End > t.NewFirst {
			r.OldAcks++
		}
	}
}
