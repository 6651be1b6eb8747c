package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"fencepost/soak/cancelrace"
)

func cancelCommand() *cobra.Command {
	o := cancelrace.DefaultOptions()
	c := &cobra.Command{
		Use:   "cancel",
		Short: "Cancels at random moments on small pools over links of several lengths",
		Long: `Start PostgreSQL and Fencepost with a relay between them, and have 20 clients
cancel their statements at random moments while 40 others loop short ones. The
exit code is 1 if a cancel hit a statement it was not meant for, had no effect
on one that was running, or something else was seen that may not be. With
-control a Fencepost without cancel leases takes its place, and the exit code
is 1 if it was not caught. docs/cancel.md says what is counted and how.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Out = c.OutOrStdout()
			r, err := cancelrace.Run(c.Context(), o)
			if err != nil {
				return err
			}
			if problems := r.Problems(); len(problems) > 0 {
				return fmt.Errorf("%d problems: %w", len(problems), errors.New(problems[0]))
			}
			return nil
		},
	}
	f := c.Flags()
	f.BoolVar(&o.Control, "control", o.Control, "put a Fencepost without cancel leases to the test; it has to be caught")
	f.StringVar(&o.Binary, "binary", o.Binary, "program of Fencepost, or of the control; empty: built from this module")
	f.StringVar(&o.PostgreSQL, "pg", o.PostgreSQL, "major version of PostgreSQL, 12 to 18")
	f.IntSliceVar(&o.Pools, "pools", o.Pools, "sizes of the pool")
	f.DurationSliceVar(&o.Delays, "delays", o.Delays, "delays between Fencepost and the server, each way")
	f.BoolVar(&o.Late, "late", o.Late, "add a cell in which cancels fail half-way or come after cancel_ack_timeout")
	f.IntVar(&o.PerCell, "per-cell", o.PerCell, "cancels to be sent to the server in each cell")
	f.IntVar(&o.Total, "total", o.Total, "cancels to be sent to the server in all")
	f.DurationVar(&o.CellLimit, "cell-limit", o.CellLimit, "time for a cell; one without its cancels by then is short")
	f.IntVar(&o.Victims, "victims", o.Victims, "clients whose statements nobody cancels")
	f.IntVar(&o.Cancellers, "cancellers", o.Cancellers, "clients that cancel their own statements")
	f.IntVar(&o.Loops, "loops", o.Loops, "event loops of Fencepost")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed of every choice; the order in which things happen does not repeat")
	f.StringVar(&o.OutDir, "out", o.OutDir, "folder for cancel-fencepost.json or cancel-control.json; empty: none")
	f.DurationVar(&o.Progress, "progress", o.Progress, "time between two lines of progress")
	return c
}
