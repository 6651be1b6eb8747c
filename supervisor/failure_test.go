package supervisor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"fencepost/admin"
	"fencepost/config"
	"fencepost/internal/actortest"
)

// crash is a message that nobody handles: the log line about it panics, within Receive.
type crash struct{}

// crashLog notes what became of the actors that failed, by name.
type crashLog struct {
	mu       sync.Mutex // guards outcomes
	outcomes map[string]string
}

func (l *crashLog) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("unhandled message")) {
		panic(actortest.ErrInjected)
	}
	var line struct{ Message, Actor, Outcome string }
	if err := json.Unmarshal(b, &line); err == nil && line.Message == "actor failed" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.outcomes[line.Actor] = line.Outcome
	}
	return len(b), nil
}

func (l *crashLog) outcome(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outcomes[name]
}

// What a server user or a shard is called says nothing about what becomes of the actors named after it.
func TestNamesDecideNothingAboutFailures(t *testing.T) {
	users := []string{"lanes-reader", "sessions-x", "monitor-1", "cancel", "fleet", "shard-main-1"}
	text := fmt.Sprintf(`
[fencepost]
listen_port = %d
listen_addr = "127.0.0.1"
unix_socket_dir = ""
admin_http = ""
auth_type = "trust"
event_loops = 1
[shards.main]
hosts = [{ addr = "127.0.0.1:1", role = "any" }]
[shards.fleet]
hosts = [{ addr = "127.0.0.1:1", role = "any" }]
`, free(t))
	want := map[string]string{"fencepost": "resumed", "fencepost/lanes-0": "resumed", "fencepost/sessions-0": "resumed", "fencepost/cancel": "resumed",
		"fencepost/admin": "resumed", "fencepost/listener": "resumed"}
	for i, u := range users {
		text += fmt.Sprintf("[users.%q]\npassword = \"x\"\n[databases.d%d]\nshard = \"main\"\nuser = %q\nmin_pool_size = 1\n", u, i, u)
		want[fmt.Sprintf("fencepost/lanes-0/d%d/%s", i, u)] = "restarted"
	}
	cfg, err := config.Parse("fencepost.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	log := &crashLog{outcomes: map[string]string{}}
	s, err := Start(cfg, "test", zerolog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Shutdown(admin.Immediate); _ = s.Wait() }()
	for _, sh := range s.Shards() {
		want[sh.PID.Id] = "restarted"
	}
	if len(want) != 6+len(users)+2 {
		t.Fatalf("not all are looked at: %v", want)
	}
	eventually(t, "all are there", func() bool {
		names := actortest.Names(s.system)
		for name := range want {
			if !slices.Contains(names, name) {
				return false
			}
		}
		return true
	})
	for name := range want {
		s.system.Root.Send(s.system.NewLocalPID(name), crash{})
		eventually(t, name+" fails", func() bool { return log.outcome(name) != "" })
	}
	for name, w := range want {
		if got := log.outcome(name); got != w {
			t.Errorf("%s was %s, want %s", name, got, w)
		}
	}
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}
