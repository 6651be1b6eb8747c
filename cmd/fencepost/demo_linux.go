package main

import (
	"bufio"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"fencepost/internal/demo"
)

// extraCommands are those that exist on this system alone. The demo runs on test support, which is written for Linux.
func extraCommands() []*cobra.Command { return []*cobra.Command{demoCommand()} }

func demoCommand() *cobra.Command {
	o := demo.Options{Version: version}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show it at work: a primary, two standbys, a fleet of three, and a failover",
		Long: `Start a PostgreSQL primary with two streaming standbys, a fleet of three Fenceposts
in front, and clients of each of them, all on 127.0.0.1 and in a folder of their own;
say what to type; show the load once a second. After a while the primary is killed
and a standby promoted, and it is said what the clients noticed; Enter has that done
again. Ctrl-C ends it and removes everything. PostgreSQL must be installed (make demo
does that).`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o.Out, o.Again = c.OutOrStdout(), lines(c.InOrStdin())
			return demo.Run(ctx, o)
		},
	}
	c.Flags().IntVar(&o.Port, "port", 6432, "port of the first member, the others have the next ones; free ones are taken for those in use")
	c.Flags().IntVar(&o.Clients, "clients", 20, "sample clients")
	c.Flags().DurationVar(&o.Failover, "failover", 30*time.Second, "kill the primary after this time; 0s: only at Enter")
	c.Flags().DurationVar(&o.For, "for", time.Duration(0), "end by itself after this time")
	return c
}

// lines passes on that lines were entered. The goroutine ends with the input, at the latest with the process.
func lines(in io.Reader) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		defer close(c)
		for s := bufio.NewScanner(in); s.Scan(); {
			c <- struct{}{}
		}
	}()
	return c
}
