package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"fencepost/soak/matrix"
	"fencepost/soak/matrix/arm"
)

func matrixCommand() *cobra.Command {
	o := matrix.DefaultOptions()
	c := &cobra.Command{
		Use:   "matrix",
		Short: "Failovers of every kind, with Fencepost, a control that has to fail, and others",
		Long: fmt.Sprintf(`Start PostgreSQL clusters, have each kind of event happen to them, and see how the
same clients fare with Fencepost and with others in front. The exit code is 1 if a
client of Fencepost's was bound to a wrong server, lost a write or was left behind,
or if the control, which has to be caught, was not. What is done is kept: a run that
was interrupted goes on. docs/soak.md defines every figure.

Events: %s
Arms:   %s`, strings.Join(matrix.Events(), ", "), strings.Join(arm.Names, ", ")),
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Out = c.OutOrStdout()
			r, err := matrix.Run(c.Context(), o)
			if err != nil {
				return err
			}
			if problems := r.Problems(&o); len(problems) > 0 {
				return fmt.Errorf("%d problems", len(problems))
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringSliceVar(&o.Events, "events", o.Events, "kinds of events, separated by commas")
	f.StringSliceVar(&o.Arms, "arms", o.Arms, "arms, separated by commas")
	f.IntVar(&o.PerEvent, "per-event", o.PerEvent, "how often each event happens to Fencepost and the control")
	f.IntVar(&o.Others, "per-event-others", o.Others, "how often at most to the other arms; 0: as often")
	f.BoolVar(&o.Short, "short", o.Short, "keep the parts of events short that are waited for on purpose")
	f.IntVar(&o.Clients, "clients", o.Clients, "clients at work at the same time")
	f.StringVar(&o.Mode, "mode", o.Mode, "pooling: transaction or session")
	f.BoolVar(&o.Synchronous, "sync", o.Synchronous, "synchronous replication: a commit waits for a standby")
	f.StringVar(&o.PostgreSQL, "pg", o.PostgreSQL, "major version of PostgreSQL, 12 to 18; empty: 15")
	f.IntVar(&o.Pool, "pool", o.Pool, "server connections in transaction mode; in session mode there are as many as clients")
	f.IntVar(&o.Warm, "warm", o.Warm, "failover_warm of Fencepost; negative: as many as clients in session mode, else 0")
	f.StringVar(&o.Binary, "binary", o.Binary, "program of Fencepost; empty: built from this module")
	f.DurationVar(&o.Think, "think", o.Think, "mean pause of a client between two transactions")
	f.DurationVar(&o.Backoff, "backoff", o.Backoff, "mean pause of a client after an error")
	f.DurationVar(&o.Limit, "limit", o.Limit, "time for a transaction, after which its client gives the connection up")
	f.DurationVar(&o.After, "after", o.After, "time to recover, from when the servers are whole again to the verdict")
	f.StringVar(&o.OutDir, "out", o.OutDir, "folder for matrix.json and the pictures; empty: nothing is kept")
	f.BoolVar(&o.Fresh, "fresh", o.Fresh, "begin anew instead of going on where an earlier run ended")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed of the clients' choices; the order in which things happen does not repeat")
	f.DurationVar(&o.Progress, "progress", o.Progress, "time between two lines of progress")
	return c
}
