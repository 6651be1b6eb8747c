package supervisor

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"fencepost/config"
)

// A member of a fleet that cannot listen for clients does not go on telling the others how busy it is.
func TestFailedStartEndsItsGoroutines(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg, err := config.Parse("fencepost.toml", fmt.Appendf(nil, `
[fencepost]
listen_port = %d
listen_addr = "127.0.0.1"
unix_socket_dir = ""
admin_http = ""
auth_type = "trust"
[fleet]
name = "test"
member = "a"
peer_id = 1
bind = "127.0.0.1:%d"
fleet_size = 1
[shards.main]
hosts = ["127.0.0.1:1"]
[databases.app]
shard = "main"
[users.ops]
password = "o"
`, taken.Addr().(*net.TCPAddr).Port, free(t)))
	if err != nil {
		t.Fatal(err)
	}
	if s, err := Start(cfg, "test", zerolog.Nop()); err == nil {
		t.Fatalf("it listens where another one does: %v", s)
	}
	telling := func() int {
		all := make([]byte, 1<<20)
		return strings.Count(string(all[:runtime.Stack(all, true)]), ".tellLoad(")
	}
	for end := time.Now().Add(5 * time.Second); telling() > 0; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it still tells a fleet that it has left")
		}
	}
}
