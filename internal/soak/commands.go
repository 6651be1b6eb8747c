package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"fencepost/soak"
)

func root() *cobra.Command {
	c := &cobra.Command{
		Use:          "soak",
		Short:        "Soak runs of Fencepost on this machine",
		SilenceUsage: true,
	}
	c.AddCommand(loadCommand(), cancelCommand(), matrixCommand(), fleetCommand())
	// One dash is enough for the flags, as in the other programs of the Go world.
	args := os.Args[1:]
	for i, a := range args {
		if strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--") && len(a) > 2 && a[1] != '=' {
			args[i] = "-" + a
		}
	}
	c.SetArgs(args)
	return c
}

func loadCommand() *cobra.Command {
	o := soak.DefaultOptions()
	only := ""
	c := &cobra.Command{
		Use:   "load",
		Short: "Mixed load with clients killed and server backends terminated at random",
		Long: `Start PostgreSQL and Fencepost, put them under a mixed load of clients that work,
fail, cancel and vanish while server backends are terminated, PostgreSQL is
restarted and the console is used, and check every answer. The exit code is 1 if
anything was seen that may not be; docs/soak.md says what that is.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if only != "" {
				p, err := regexp.Compile(only)
				if err != nil {
					return fmt.Errorf("only: %w", err)
				}
				o.Only = p
			}
			o.Out = c.OutOrStdout()
			_, err := soak.Run(c.Context(), o)
			return err
		},
	}
	f := c.Flags()
	f.DurationVar(&o.Duration, "duration", o.Duration, "time of the load, without start and end")
	f.IntVar(&o.Clients, "clients", o.Clients, "clients that work at the same time")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed of every choice; the order in which things happen does not repeat")
	f.DurationVar(&o.Think, "think", o.Think, "mean pause of a client between two things it does")
	f.StringVar(&o.PostgreSQL, "pg", o.PostgreSQL, "major version of PostgreSQL, 12 to 18; empty: 15")
	f.StringVar(&o.Binary, "binary", o.Binary, "program of Fencepost; empty: built from this module")
	f.BoolVar(&o.Race, "race", o.Race, "build Fencepost with the race detector (needs gcc)")
	f.IntVar(&o.Loops, "loops", o.Loops, "event loops of Fencepost")
	f.StringVar(&o.LoopKind, "loop-kind", o.LoopKind, "epoll or portable; empty: Fencepost's default")
	f.DurationVar(&o.Sabotage, "sabotage", o.Sabotage, "mean pause between two acts of sabotage; 0: none")
	f.DurationVar(&o.Restart, "restart", o.Restart, "restart PostgreSQL once in each such time; 0: never")
	f.StringVar(&only, "only", only, "clients do only the activities whose name matches, and leave in an orderly way")
	f.StringVar(&o.OutDir, "out", o.OutDir, "folder for soak.json and what else there is to read; empty: none")
	f.DurationVar(&o.Progress, "progress", o.Progress, "time between two lines of progress")
	return c
}
