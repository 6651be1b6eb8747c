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
in front, and clients of each of them, all on 127.0.0.1 and in a folder of their own.
The demo prints commands to try and shows the load once a second. After a while it
kills the primary and promotes a standby; a report shows what the clients noticed.
Press Enter to repeat. Ctrl-C ends the demo and removes everything. PostgreSQL must be
installed (make demo does that).`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o.Out, o.Again = c.OutOrStdout(), lines(c.InOrStdin())
			return demo.Run(ctx, o)
		},
	}
	c.Flags().IntVar(&o.Port, "port", 6432, "port of the first member, the others use the next ones; a port in use is replaced by a free one")
	c.Flags().IntVar(&o.Clients, "clients", 20, "sample clients")
	c.Flags().DurationVar(&o.Failover, "failover", 30*time.Second, "kill the primary after this time; 0s: only when you press Enter")
	c.Flags().DurationVar(&o.For, "for", time.Duration(0), "end the demo after this time; 0s: at Ctrl-C")
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
