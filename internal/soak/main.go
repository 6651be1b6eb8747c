// Command soak puts Fencepost under load for minutes or hours and checks what comes back.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// A run that is interrupted ends what it started, and reports.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		os.Exit(1)
	}
}
