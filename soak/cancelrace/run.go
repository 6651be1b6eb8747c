package cancelrace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"fencepost/internal/pgcluster"
)

// run is a run's surroundings: the server, the program, a folder.
type run struct {
	o      *Options
	dir    string
	binary string
	server string // host:port
}

func (r *run) arm() string {
	if r.o.Control {
		return control
	}
	return fencepost
}

// Run plays all cells and reports what they have shown; an error says that they could not be played. It blocks for at
// most the cells' limits and some minutes; when ctx ends it stops cleanly and reports what there is. The caller judges by
// Report.Problems.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fencepost-cancelrace-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &run{o: &o, dir: dir, binary: o.Binary}
	if r.binary == "" {
		if r.binary, err = build(ctx, dir, r.arm()); err != nil {
			return nil, err
		}
	}
	c, err := pgcluster.Start(ctx, pgcluster.Options{Version: o.PostgreSQL, Roles: []pgcluster.Role{{Name: user}}, Databases: []string{database},
		Conf: map[string]string{"autovacuum": "off", "log_connections": "off", "log_min_messages": "panic"}})
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	r.server = c.Primary().Addr()
	report, err := r.cells(ctx)
	if stop := c.Stop(); stop != nil {
		err = errors.Join(err, stop)
	}
	report.Table(o.Out)
	return report, errors.Join(err, report.write(o.OutDir))
}

// cells plays one cell after the other. What the slow ones leave of the total the quick ones behind them do.
func (r *run) cells(ctx context.Context) (*Report, error) {
	began := time.Now()
	report := &Report{Arm: r.arm(), PostgreSQL: r.o.PostgreSQL, Began: began.UTC().Truncate(time.Second), Victims: r.o.Victims, Cancellers: r.o.Cancellers,
		PerCell: r.o.PerCell, Total: r.o.Total}
	defer func() { report.Seconds = time.Since(began).Seconds() }()
	all := r.o.cells()
	for i, set := range all {
		if ctx.Err() != nil {
			break
		}
		target := r.o.PerCell
		if left := len(all) - i; set.delay < 50*time.Millisecond && !set.late {
			target = max(target, (r.o.Total-int(report.Sent)+left-1)/left)
		}
		c, err := r.play(ctx, set, target)
		if c != nil {
			report.add(c)
			fmt.Fprintf(r.o.Out, "%v: %d cancels sent in %.0f s, %d foreign, %d missed of %d%s\n", set, c.Sent, c.Seconds, c.Foreign, c.Missed, c.Judged, list(c.Faults))
		}
		if err != nil && ctx.Err() == nil {
			return report, err
		}
	}
	report.Interrupted = ctx.Err() != nil
	return report, nil
}

func list(faults []string) string {
	if len(faults) == 0 {
		return ""
	}
	return "\n  " + strings.Join(faults, "\n  ")
}

func (r *Report) add(c *Cell) {
	r.Cells = append(r.Cells, c)
	r.Sent += c.Sent
	r.Foreign += c.Foreign
	r.Missed += c.Missed
}
