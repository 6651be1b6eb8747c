package main

import (
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"fencepost/internal/demo"
)

func demoCommand() *cobra.Command {
	o := demo.Options{Version: version}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show it at work: a primary, a standby and Fencepost on this machine",
		Long: `Start a PostgreSQL primary with a streaming standby, Fencepost in front, and some
clients, all on 127.0.0.1 and in a folder of their own; say what to type; show the
load once a second. Ctrl-C ends it and removes everything. PostgreSQL must be
installed (make demo does that).`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o.Out = c.OutOrStdout()
			return demo.Run(ctx, o)
		},
	}
	c.Flags().IntVar(&o.Port, "port", 6432, "port of Fencepost; a free one is taken if it is in use")
	c.Flags().IntVar(&o.Clients, "clients", 20, "sample clients")
	c.Flags().DurationVar(&o.For, "for", time.Duration(0), "end by itself after this time")
	return c
}
