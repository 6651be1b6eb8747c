package matrix

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"fencepost/soak/matrix/arm"
	"fencepost/soak/matrix/picture"
	"fencepost/soak/matrix/world"
)

// column is one of the table's.
type column struct {
	head  string
	width int
	value func(*summary) string
}

func whole(f func(*summary) int) func(*summary) string {
	return func(s *summary) string { return fmt.Sprint(f(s)) }
}

// spread is a percentile of what each client has, of those that were served again.
func spread(of func(*summary) []float64, p float64) func(*summary) string {
	return func(s *summary) string {
		values := of(s)
		switch {
		case s.measured == 0:
			return "-"
		case s.Never > 0 && p == 100, len(values) == 0:
			return "never"
		}
		return fmt.Sprintf("%.0f", percentile(values, p))
	}
}

func unavailable(s *summary) []float64 { return s.Unavailable }
func waited(s *summary) []float64      { return s.Waited }

var columns = []column{
	{"runs", 4, whole(func(s *summary) int { return s.cells })},
	{"writes", 7, whole(func(s *summary) int { return s.Writes })},
	{"wrong", 6, whole(func(s *summary) int { return s.WrongBinds })},
	{"(obs.)", 6, whole(func(s *summary) int { return s.ObserverOnly })},
	{"25006", 6, whole(func(s *summary) int { return s.ReadOnlyErrors })},
	{"in logs", 7, whole(func(s *summary) int { return s.LogErrors })},
	{"wedged", 6, whole(func(s *summary) int { return s.Wedged })},
	{"astray", 6, whole(func(s *summary) int { return s.Unbound })},
	{"errors", 7, whole(func(s *summary) int { return total(s.Errors) })},
	{"connects", 8, whole(func(s *summary) int { return s.FailedConnects })},
	{"p50 ms", 7, spread(unavailable, 50)},
	{"p99", 7, spread(unavailable, 99)},
	{"max", 7, spread(unavailable, 100)},
	{"waited", 7, spread(waited, 50)},
	{"p99", 7, spread(waited, 99)},
	{"max", 7, spread(waited, 100)},
	{"no writer", 9, func(s *summary) string {
		if s.cells == 0 {
			return "-"
		}
		return fmt.Sprintf("%.0f", s.NoWriter/float64(s.cells))
	}},
	{"lost", 5, whole(func(s *summary) int { return s.Lost })},
	{"twice", 5, whole(func(s *summary) int { return s.Doubled })},
	{"unasked", 7, whole(func(s *summary) int { return s.Unasked })},
	{"no sync", 7, whole(func(s *summary) int { return s.SyncCancelled })},
	{"old acks", 8, whole(func(s *summary) int { return s.OldAcks })},
	{"polls/s", 7, func(s *summary) string { return fmt.Sprintf("%.0f", s.rate) }},
}

// Table writes what there is for people, and what is wrong with it.
func (r *Report) Table(w io.Writer, o *Options) {
	set := r.Settings
	sync := "asynchronous"
	if set.Synchronous {
		sync = "synchronous"
	}
	fmt.Fprintf(w, "\nPostgreSQL %s, %s replication, %d clients, %s pooling, pool %d\n", set.PostgreSQL, sync, set.Clients, set.Mode, set.Pool)
	for _, name := range o.Arms {
		if r.sum(name).cells == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s (%s)\n", name, r.Versions[name])
		r.row(w, "event", nil)
		for _, e := range o.Events {
			if s := r.sum(name, e); s.cells > 0 {
				r.row(w, e, s)
			}
		}
		s := r.sum(name)
		r.row(w, "all", s)
		r.details(w, s)
	}
	r.aim(w, o)
	problems := r.Problems(o)
	fmt.Fprintln(w)
	for _, p := range problems {
		fmt.Fprintf(w, "PROBLEM %s\n", p)
	}
	if len(problems) == 0 {
		fmt.Fprintln(w, "passed")
	}
}

func (r *Report) row(w io.Writer, name string, s *summary) {
	fmt.Fprintf(w, "%-16s", name)
	for _, c := range columns {
		text := c.head
		if s != nil {
			text = c.value(s)
		}
		fmt.Fprintf(w, " %*s", c.width, text)
	}
	fmt.Fprintln(w)
}

// details are the causes of wrong binds and the errors with their texts.
func (r *Report) details(w io.Writer, s *summary) {
	if len(s.WrongCauses) > 0 {
		fmt.Fprintf(w, "  wrong binds: %s\n", counts(s.WrongCauses))
	}
	if s.WrongReads > 0 {
		fmt.Fprintf(w, "  reads on such servers: %d\n", s.WrongReads)
	}
	if s.Never > 0 {
		fmt.Fprintf(w, "  clients that the new primary never served: %d\n", s.Never)
	}
	if s.SyncCancelledLost > 0 {
		fmt.Fprintf(w, "  lost of those that no standby had confirmed: %d\n", s.SyncCancelledLost)
	}
	fmt.Fprintf(w, "  longest acknowledged transaction: %s\n", ms(s.Longest))
	codes := make([]string, 0, len(s.Errors))
	for code := range s.Errors {
		codes = append(codes, code)
	}
	slices.SortFunc(codes, func(a, b string) int { return s.Errors[b] - s.Errors[a] })
	for _, code := range codes {
		fmt.Fprintf(w, "  %6d  %-10s %.150s\n", s.Errors[code], code, s.Samples[code])
	}
}

// aim compares Fencepost's unavailability with what it is meant to be. It is no problem if a busy machine is slower.
func (r *Report) aim(w io.Writer, o *Options) {
	s := r.sum(arm.Fencepost, world.KindCrash, world.KindSwitchover)
	if len(s.Unavailable) == 0 || !slices.Contains(o.Arms, arm.Fencepost) {
		return
	}
	of := func(values []float64) string {
		return fmt.Sprintf("%s (median; p99 %s, most %s)", ms(percentile(values, 50)), ms(percentile(values, 99)), ms(percentile(values, 100)))
	}
	fmt.Fprintf(w, "\nFencepost after crash and switchover: clients are served %s after the new primary takes writes, for which they waited %s; the aim is 50 ms, and 250 ms at most\n",
		of(s.Unavailable), of(s.Waited))
}

// pictures draws a picture for each event, from the histories that were kept.
func (r *run) pictures() error {
	if r.o.OutDir == "" {
		return nil
	}
	for _, e := range r.o.Events {
		var rows []*picture.Row
		for _, name := range arm.Names {
			for _, c := range r.report.Cells {
				if c.Arm != name || c.Event != e || c.Result == nil {
					continue
				}
				row, err := r.store.loadHistory(c)
				if err != nil {
					return err
				}
				if row != nil && slices.Contains(r.o.Arms, name) {
					rows = append(rows, row)
				}
			}
		}
		if len(rows) == 0 {
			continue
		}
		var b strings.Builder
		if err := picture.Draw(&b, e, rows); err != nil {
			return err
		}
		if err := r.store.write(e+".svg", []byte(b.String())); err != nil {
			return err
		}
	}
	return nil
}
