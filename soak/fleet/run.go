package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"fencepost/internal/program"
	"fencepost/soak/fleet/network"
)

// Options say what Run does.
type Options struct {
	Binary    string // Fencepost; "": built from this module
	Splits    int    // split brains of each kind
	Controls  int    // the same without a fleet
	Cancels   int
	Partition time.Duration
	Planned   int           // switchovers
	Slow      time.Duration // of every server, each way, in further switchovers; 0: none of them
	Rolling   int           // restarts of all members in turn
	Lossy     int           // failovers, of two kinds, while members lose much of what they send each other
	OneWay    time.Duration // how long a member is not heard, or does not hear; 0: not at all
	Seed      uint64
	Network   network.Kind
	Out       io.Writer
}

// DefaultOptions are those of make soak-fleet.
func DefaultOptions() Options {
	return Options{Splits: 10, Controls: 2, Cancels: 10000, Partition: 5 * time.Minute, Planned: 10, Slow: 50 * time.Millisecond, Rolling: 3, Lossy: 5,
		OneWay: 30 * time.Second, Seed: 1, Network: network.Auto, Out: io.Discard}
}

// Report is what came of it.
type Report struct {
	Splits     []SplitResult
	Cancels    CancelResult
	Partition  PartitionResult
	Switches   []SwitchoverResult
	Slows      []SwitchoverResult // with servers that are far away
	Rollings   []RollingResult
	Loss       LossResult
	OneWays    []OneWayResult
	unfinished []string
}

// Run does all of it, one after the other, and prints a line that says on what network, a line for each thing, and a table at
// the end.
func Run(ctx context.Context, o Options) (*Report, error) {
	kind, why, err := network.Choose(o.Network)
	if err != nil {
		return nil, err
	}
	o.Network = kind
	fmt.Fprintf(o.Out, "network: %s (%s)\n", kind, why)
	dir, err := os.MkdirTemp("", "fencepost-fleet-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if o.Binary == "" {
		o.Binary = filepath.Join(dir, "fencepost")
		if err := program.Build(ctx, o.Binary, "fencepost/cmd/fencepost"); err != nil {
			return nil, err
		}
	}
	r := &Report{}
	for _, part := range []func(context.Context, Options) error{r.alone, r.together} {
		if err := part(ctx, o); err != nil {
			r.unfinished = append(r.unfinished, err.Error())
		}
	}
	r.table(o.Out)
	return r, ctx.Err()
}

// attempt says what becomes of one thing. Its failure is a problem of the report, not the end of it.
func attempt[T fmt.Stringer](r *Report, o Options, what string, do func() (T, error)) (T, bool) {
	began := time.Now()
	got, err := do()
	fmt.Fprintf(o.Out, "%s %s: %s\n", began.UTC().Format("15:04:05"), what, got)
	if err != nil {
		fmt.Fprintf(o.Out, "         %v\n", err)
		r.unfinished = append(r.unfinished, fmt.Sprintf("%s: %v", what, err))
	}
	return got, err == nil
}

func (r *Report) split(ctx context.Context, o Options, l *Lab, what string, s Split) error {
	got, ok := attempt(r, o, what, func() (SplitResult, error) { return l.SplitBrain(ctx, s) })
	if ok {
		r.Splits = append(r.Splits, got)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.Mend(ctx)
}

// alone is the control.
func (r *Report) alone(ctx context.Context, o Options) (err error) {
	if o.Controls == 0 {
		return nil
	}
	l, err := Start(ctx, Config{Program: o.Binary, Alone: true, Network: o.Network, Lines: quick})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for i := range o.Controls {
		if err := r.split(ctx, o, l, fmt.Sprintf("control %d", i+1), Split{}); err != nil {
			return err
		}
	}
	return nil
}

// quick has clients without a primary hear of it soon.
var quick = []string{`query_wait_timeout = "1s"`}

// What is not worth an option.
const (
	slowSwitchovers = 3
	lossPercent     = 30
	lossCancels     = 300
)

// oneWays has the failover come when members do not miss each other yet, and when they do.
func (r *Report) oneWays(ctx context.Context, o Options, l *Lab) error {
	if o.OneWay == 0 {
		return nil
	}
	for _, deaf := range []bool{false, true} {
		for _, after := range []time.Duration{o.OneWay / 30, o.OneWay / 2} {
			got, ok := attempt(r, o, "one way", func() (OneWayResult, error) { return l.OneWay(ctx, OneWay{Deaf: deaf, Lasts: o.OneWay, After: after}) })
			if ok {
				r.OneWays = append(r.OneWays, got)
			}
			if err := firstOf(ctx.Err(), l.Mend(ctx)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Report) together(ctx context.Context, o Options) (err error) {
	l, err := Start(ctx, Config{Program: o.Binary, Network: o.Network})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if o.Cancels > 0 {
		r.Cancels, _ = attempt(r, o, "cancels", func() (CancelResult, error) { return l.RandomCancels(ctx, Cancels{Count: o.Cancels, Seed: o.Seed}) })
	}
	for i := range o.Planned {
		if got, ok := attempt(r, o, fmt.Sprintf("switchover %d", i+1), func() (SwitchoverResult, error) { return l.Switchover(ctx, 8) }); ok {
			r.Switches = append(r.Switches, got)
		}
	}
	if o.Slow > 0 {
		for i := range slowSwitchovers {
			what := fmt.Sprintf("switchover %d, servers %s away", i+1, o.Slow)
			if got, ok := attempt(r, o, what, func() (SwitchoverResult, error) { return l.SlowSwitchover(ctx, 8, o.Slow) }); ok {
				r.Slows = append(r.Slows, got)
			}
		}
	}
	for i := range o.Rolling {
		if got, ok := attempt(r, o, fmt.Sprintf("rolling restart %d", i+1), func() (RollingResult, error) { return l.Rolling(ctx, 8) }); ok {
			r.Rollings = append(r.Rollings, got)
		}
	}
	for i := range o.Splits {
		for _, freeze := range []bool{false, true} {
			if err := r.split(ctx, o, l, fmt.Sprintf("split brain %d", i+1), Split{Freeze: freeze}); err != nil {
				return err
			}
		}
	}
	if o.Lossy > 0 {
		r.Loss, _ = attempt(r, o, "loss", func() (LossResult, error) {
			return l.Lossy(ctx, Loss{Percent: lossPercent, Rounds: o.Lossy, Cancels: lossCancels, Seed: o.Seed})
		})
		if err := l.Mend(ctx); err != nil {
			return err
		}
	}
	if err := r.oneWays(ctx, o, l); err != nil {
		return err
	}
	if o.Partition > 0 {
		r.Partition, _ = attempt(r, o, "partition", func() (PartitionResult, error) { return l.Partition(ctx, o.Partition) })
	}
	return ctx.Err()
}
