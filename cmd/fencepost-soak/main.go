// Command fencepost-soak puts Fencepost under load for minutes or hours and checks what comes back.
package main

import (
	"context"
	"os"
)

func main() {
	if err := root().ExecuteContext(context.Background()); err != nil {
		os.Exit(1)
	}
}
