package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"fencepost/config"
)

const defaultConfig = "/etc/fencepost/fencepost.toml"

func root() *cobra.Command {
	c := &cobra.Command{
		Use:   "fencepost",
		Short: "A PostgreSQL pooler and proxy",
		Long: `Fencepost pools connections to PostgreSQL. Applications connect to it with their
ordinary driver, as if it were the server.

  fencepost check -c fencepost.toml    look for mistakes in a settings file
  fencepost serve -c fencepost.toml    run
  fencepost example > fencepost.toml   a complete, commented settings file`,
		SilenceUsage: true,
	}
	c.AddCommand(serveCommand(), checkCommand(), exampleCommand(), versionCommand())
	c.AddCommand(extraCommands()...)
	return c
}

func configFlag(c *cobra.Command, path *string) {
	c.Flags().StringVarP(path, "config", "c", defaultConfig, "settings file")
}

func serveCommand() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run in the foreground",
		Long: `Run in the foreground until a signal or the console ends it.

Signals:
  SIGTERM          refuse new clients after drain_grace, then do as the setting sigterm
                   says: drain (the default) ends each session at its transaction
                   boundary; wait_for_clients waits for the clients to leave.
                   A second SIGTERM ends at once.
  SIGINT, SIGQUIT  SIGINT drains, a second one ends at once; SIGQUIT ends at once.
  SIGHUP           read the settings file again.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return serve(path) },
	}
	configFlag(c, &path)
	return c
}

func checkCommand() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "check",
		Short: "Check a settings file and report every problem",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := config.Load(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: no problems; %d shards, %d databases, %d users\n", path, len(cfg.Shards), len(cfg.Databases), len(cfg.Users))
			for _, w := range cfg.Warnings() {
				fmt.Fprintf(c.OutOrStdout(), "%s:%d: warning: %s\n", path, w.Line, w)
			}
			return nil
		},
	}
	configFlag(c, &path)
	return c
}

func exampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Print a complete, commented settings file",
		Args:  cobra.NoArgs,
		Run:   func(c *cobra.Command, _ []string) { fmt.Fprint(c.OutOrStdout(), config.Example()) },
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(c *cobra.Command, _ []string) { fmt.Fprintln(c.OutOrStdout(), "Fencepost", version) },
	}
}
