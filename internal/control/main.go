// Command control is Fencepost with one of its machines replaced by one that is wrong on purpose: the control arm of a
// test, which has to fail where Fencepost passes. It is never installed.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"

	"fencepost/admin"
	"fencepost/config"
	"fencepost/supervisor"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "control:", err)
		os.Exit(1)
	}
}

func run() error {
	path := flag.String("c", "", "settings file")
	without := flag.String("without", "", "what to leave out: leases or election")
	flag.Parse()
	cfg, err := config.Load(*path)
	if err != nil {
		return err
	}
	var parts supervisor.Parts
	switch *without {
	case "leases":
		parts.Leases = newNoLeases
	case "election":
		parts.Shard = newLooks
	default:
		return fmt.Errorf("-without %s: only leases and election can be left out", *without)
	}
	f, err := supervisor.StartWith(cfg, "control without "+*without, zerolog.New(os.Stderr).With().Timestamp().Logger(), parts)
	if err != nil {
		return err
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-end
		f.Shutdown(admin.Immediate)
	}()
	return f.Wait()
}
