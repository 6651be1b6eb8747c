package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fencepost/config"
)

// A log that goes to a file has no colour codes, and durations have their unit.
func TestLogInAFile(t *testing.T) {
	for _, format := range []config.LogFormat{config.LogConsole, config.LogJSON} {
		path := filepath.Join(t.TempDir(), "log")
		out, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		log, flush := newLogger(&config.Fencepost{LogFormat: format, LogLevel: "info"}, out)
		log.Error().Dur("for", 90*time.Second).Msg("text")
		flush()
		b, err := os.ReadFile(path)
		if got := string(b); err != nil || strings.Contains(got, "\x1b") || !strings.Contains(got, "1m30s") || !strings.Contains(got, "text") {
			t.Errorf("%s: %q, %v", format, got, err)
		}
	}
}
