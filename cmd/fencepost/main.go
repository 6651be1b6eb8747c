// Command fencepost is a PostgreSQL pooler and proxy.
package main

import (
	"context"
	"os"
)

// version is set at build time (-ldflags -X main.version=…).
var version = "0.1.0-dev"

func main() {
	clearPostgresEnvironment()
	if err := root().ExecuteContext(context.Background()); err != nil {
		os.Exit(1)
	}
}

// clearPostgresEnvironment removes what the PostgreSQL client library would read: only the settings file may say where
// and as whom Fencepost logs in.
func clearPostgresEnvironment() {
	for _, kv := range os.Environ() {
		for i := 0; i < len(kv); i++ {
			if kv[i] == '=' {
				if name := kv[:i]; len(name) > 2 && name[:2] == "PG" {
					_ = os.Unsetenv(name) // fails for no name that os.Environ lists
				}
				break
			}
		}
	}
}
