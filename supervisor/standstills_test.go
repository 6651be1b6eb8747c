package supervisor

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"fencepost/config"
	"fencepost/eventloop"
	"fencepost/standstill"
)

// logged is a log that can be read meanwhile.
type logged struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.buf.String(), text)
}

// A loop that gives no sign of life is in the log, with the function that keeps it.
func TestLoopThatStandsStillIsLogged(t *testing.T) {
	cfg, err := config.Parse("fencepost.toml", []byte(`
[fencepost]
listen_addr = ""
unix_socket_dir = "@fencepost-standstill"
admin_http = ""
[shards.main]
hosts = [{ addr = "127.0.0.1:1", role = "any" }]
[databases.app]
shard = "main"
[users.ops]
password = "o"
`))
	if err != nil {
		t.Fatal(err)
	}
	var log logged
	s, err := Start(cfg, "test", zerolog.New(&log))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Wait() //nolint:errcheck // it is ended
	defer s.Shutdown(0)
	release := make(chan struct{})
	s.group.Loop(0).Post(func() { keepTheLoop(release) })
	await(t, &log, "an event loop stands still")
	if !log.has("keepTheLoop") {
		t.Error("the log does not say where the loop is")
	}
	close(release)
	await(t, &log, "the event loop goes on")
}

func keepTheLoop(release <-chan struct{}) { <-release }

func await(t *testing.T, log *logged, text string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !log.has(text); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log has no line %q", text)
		}
	}
}

// Standstills are in the log, at most one line a minute.
func TestStandstillIsLogged(t *testing.T) {
	g, err := eventloop.NewGroup(eventloop.Options{Kind: eventloop.Portable})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	var log logged
	s := &Fencepost{log: zerolog.New(&log), group: g}
	o := s.watching()
	for range 3 {
		o.Noticed(standstill.Gap{Length: 5 * time.Second})
	}
	if n := strings.Count(log.buf.String(), "the process stood still"); n != 1 || !log.has(`"length":5000`) {
		t.Fatalf("%d lines: %s", n, log.buf.String())
	}
}
