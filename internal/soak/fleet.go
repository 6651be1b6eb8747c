package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"fencepost/soak/fleet"
)

func fleetCommand() *cobra.Command {
	o := fleet.DefaultOptions()
	c := &cobra.Command{
		Use:   "fleet",
		Short: "Three members on networks of their own: split brains, cancels, loss, partitions, switchovers, restarts",
		Long: `Start PostgreSQL and three Fencepost processes that know of each other, each with
a network path of its own to every server and every other member; cut them off,
have them lose what they send, restart them, cancel at random members, and see
what the clients notice. The exit code is 1 if the old primary acknowledged a
write after the fleet had seen its successor, if a cancel was lost or hit another's
statement, if a client saw an error in a switchover or lost a transaction in a
rolling restart, if members did not find together again, or if the control, which
has no fleet, was not caught. docs/soak.md says what is measured.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Out = c.OutOrStdout()
			r, err := fleet.Run(c.Context(), o)
			if err != nil {
				return err
			}
			if problems := r.Problems(); len(problems) > 0 {
				return fmt.Errorf("%d problems, the first: %s", len(problems), problems[0])
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&o.Binary, "binary", o.Binary, "program of Fencepost; empty: built from this module")
	f.StringVar((*string)(&o.Network), "network", string(o.Network), "namespaces (needs root), ports, or auto: namespaces where they can be made")
	f.IntVar(&o.Splits, "splits", o.Splits, "split brains of each kind")
	f.IntVar(&o.Controls, "controls", o.Controls, "split brains of members that do not know of each other")
	f.IntVar(&o.Cancels, "cancels", o.Cancels, "cancels of running statements at random members")
	f.DurationVar(&o.Partition, "partition", o.Partition, "how long a member is cut off from the others; 0: not at all")
	f.IntVar(&o.Planned, "switchovers", o.Planned, "switchovers under load")
	f.IntVar(&o.Rolling, "rolling", o.Rolling, "restarts of all members in turn, under load")
	f.DurationVar(&o.Slow, "slow", o.Slow, "how far away servers are, each way, in three more switchovers; 0: without them")
	f.IntVar(&o.Lossy, "lossy", o.Lossy, "failovers, of two kinds, while members lose 30 of 100 packets to each other")
	f.DurationVar(&o.OneWay, "oneway", o.OneWay, "how long a member is heard by nobody, or hears nobody; 0: not at all")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed of every choice; the order in which things happen does not repeat")
	return c
}
