package cancelrace

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Report is what a run has found.
type Report struct {
	Arm         string    `json:"arm"` // fencepost or control
	PostgreSQL  string    `json:"postgresql"`
	Began       time.Time `json:"began"`
	Seconds     float64   `json:"seconds"`
	Victims     int       `json:"victims"`
	Cancellers  int       `json:"cancellers"`
	PerCell     int       `json:"per_cell"`
	Total       int       `json:"total"`
	Cells       []*Cell   `json:"cells"`
	Sent        int64     `json:"cancels_sent_to_server"`
	Foreign     int64     `json:"foreign"`
	Missed      int64     `json:"missed"`
	Interrupted bool      `json:"interrupted"`
}

// Cell is what one pool size over one link has shown.
type Cell struct {
	Pool    int     `json:"pool"`
	DelayMS float64 `json:"delay_ms"` // each way
	Late    bool    `json:"late"`     // cancels that fail half-way or come after cancel_ack_timeout
	Target  int     `json:"target"`   // cancels to be sent
	Seconds float64 `json:"seconds"`
	Short   bool    `json:"short"` // its time was over before its cancels were sent

	Sent       int64 `json:"cancels_sent_to_server"` // as the relay counted them
	Requests   int64 `json:"cancel_requests"`        // to Fencepost
	Statements int64 `json:"victim_statements"`
	Rounds     int64 `json:"canceller_statements"`
	Hit        int64 `json:"cancelled_running"`
	Unstarted  int64 `json:"cancelled_unstarted"` // in the queue
	Untouched  int64 `json:"over_before"`
	OwnLater   int64 `json:"own_later_statement"` // hit a later statement of the client that had asked for the cancel
	Judged     int64 `json:"had_200_ms"`
	Missed     int64 `json:"missed"`
	Foreign    int64 `json:"foreign"`

	EffectP50 float64 `json:"effect_p50_ms"` // from the request to its 57014, links included
	EffectP99 float64 `json:"effect_p99_ms"`
	EffectMax float64 `json:"effect_max_ms"`

	Outcomes  map[string]int64 `json:"outcomes,omitempty"` // as Fencepost counts them
	LeaseMean float64          `json:"lease_mean_ms"`      // likewise
	Faults    []string         `json:"faults,omitempty"`
}

// excused reports whether a cell may be short: over a long link a pool of one serves few cancels a second.
func (c *Cell) excused() bool { return c.Pool == 1 && c.DelayMS >= 50 }

// Problems are the reasons why the run has failed, none if it passed. A control passes when it fails: each of its cells
// has to show foreign hits.
func (r *Report) Problems() []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if r.Interrupted {
		add("interrupted")
	}
	for _, c := range r.Cells {
		name := c.name()
		if r.Arm == control {
			if c.Foreign == 0 {
				add("%s: no foreign hit in %d cancels; the harness sees nothing", name, c.Sent)
			}
			continue
		}
		if c.Foreign > 0 {
			add("%s: %d foreign hits", name, c.Foreign)
		}
		if c.Missed > 0 {
			add("%s: %d cancels without effect", name, c.Missed)
		}
		if c.Short && !c.excused() {
			add("%s: only %d of %d cancels in its time", name, c.Sent, c.Target)
		}
		if c.Judged == 0 && !c.Late {
			add("%s: no statement had to be cancelled", name)
		}
		for _, f := range c.Faults {
			add("%s: %s", name, f)
		}
	}
	if r.Arm != control && !r.Interrupted && r.Sent < int64(r.Total) {
		add("%d cancels in all, wanted %d", r.Sent, r.Total)
	}
	return all
}

func (c *Cell) name() string {
	return setting{pool: c.Pool, delay: time.Duration(c.DelayMS * float64(time.Millisecond)), late: c.Late}.String()
}

// Table writes the cells for people.
func (r *Report) Table(w io.Writer) {
	fmt.Fprintf(w, "\n%s, PostgreSQL %s, %d victims, %d cancellers, %.0f s\n", r.Arm, r.PostgreSQL, r.Victims, r.Cancellers, r.Seconds)
	const row = "%-22s %8s %8s %8s %8s %7s %7s %7s %7s %8s %8s %8s\n"
	fmt.Fprintf(w, row, "cell", "sent", "foreign", "missed", "of", "hit", "queued", "over", "own", "victims", "p50 ms", "max ms")
	for _, c := range r.Cells {
		name := c.name()
		if c.Short {
			name += " *"
		}
		n := func(v int64) string { return fmt.Sprint(v) }
		fmt.Fprintf(w, row, name, n(c.Sent), n(c.Foreign), n(c.Missed), n(c.Judged), n(c.Hit), n(c.Unstarted), n(c.Untouched), n(c.OwnLater),
			n(c.Statements), fmt.Sprintf("%.1f", c.EffectP50), fmt.Sprintf("%.1f", c.EffectMax))
	}
	fmt.Fprintf(w, row, "all", fmt.Sprint(r.Sent), fmt.Sprint(r.Foreign), fmt.Sprint(r.Missed), "", "", "", "", "", "", "", "")
	if short := shortCells(r.Cells); len(short) > 0 {
		fmt.Fprintf(w, "* its time was over before its cancels were sent: %s\n", strings.Join(short, "; "))
	}
	problems := r.Problems()
	for _, p := range problems {
		fmt.Fprintf(w, "PROBLEM %s\n", p)
	}
	if len(problems) == 0 {
		fmt.Fprintln(w, "passed")
	}
}

func shortCells(cells []*Cell) (names []string) {
	for _, c := range cells {
		if c.Short {
			names = append(names, fmt.Sprintf("%s (%d of %d)", c.name(), c.Sent, c.Target))
		}
	}
	return names
}

// write writes the report as JSON.
func (r *Report) write(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cancel-"+r.Arm+".json"), append(b, '\n'), 0o644)
}
