package cancelrace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"fencepost/internal/pgcluster"
	"fencepost/internal/program"
)

// The two arms.
const (
	fencepost = "fencepost"
	control   = "control"
)

// build makes the program of an arm.
func build(ctx context.Context, dir, arm string) (string, error) {
	from := map[string]string{fencepost: "fencepost/cmd/fencepost", control: "fencepost/internal/control"}[arm]
	path := filepath.Join(dir, arm)
	return path, program.Build(ctx, path, from)
}

// The one database and its user.
const (
	database = "race"
	user     = "racer"
)

func settingsText(s setting, loops, port int, admin, server string) string {
	ack := ""
	if s.late {
		ack = fmt.Sprintf("cancel_ack_timeout = %q\n", lateAckTimeout.String())
	}
	return fmt.Sprintf(`[fencepost]
listen_addr = "127.0.0.1"
listen_port = %d
unix_socket_dir = ""
admin_http = %q
auth_type = "trust"
pool_mode = "transaction"
default_pool_size = %d
query_wait_timeout = "5m"
event_loops = %d
log_connections = false
log_disconnections = false
log_format = "json"
%s
[shards.main]
hosts = [{ addr = %q, role = "any" }]

[databases.%s]
shard = "main"

[users.%s]
password = "any"
`, port, admin, s.pool, loops, ack, server, database, user)
}

// product is a running Fencepost or control.
type product struct {
	*program.Process
	addr, admin string
}

// startLimit bounds the start of the program, stopLimit its end.
const (
	startLimit = 30 * time.Second
	stopLimit  = 20 * time.Second
)

// launch starts the program in front of a server and waits until it accepts.
func launch(ctx context.Context, path, arm, dir string, s setting, loops int, server string) (*product, error) {
	addr, port, err := pgcluster.FreeAddr()
	if err != nil {
		return nil, err
	}
	admin, _, err := pgcluster.FreeAddr()
	if err != nil {
		return nil, err
	}
	settings := filepath.Join(dir, "fencepost.toml")
	if err := os.WriteFile(settings, []byte(settingsText(s, loops, port, admin, server)), 0o600); err != nil {
		return nil, err
	}
	argv := []string{path, "serve", "-c", settings}
	if arm == control {
		argv = []string{path, "-c", settings, "-without", "leases"}
	}
	p, err := program.Start(program.Command{Name: arm, Argv: argv, Log: filepath.Join(dir, "log")})
	if err != nil {
		return nil, err
	}
	if err := p.Listening(ctx, startLimit, addr); err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	return &product{p, addr, admin}, nil
}

// end stops the process as an operator would.
func (p *product) end() error {
	if err := p.Alive(); err != nil {
		return err
	}
	return p.Stop(syscall.SIGTERM, stopLimit)
}

// errorLines are the lines of the log that say that something is wrong.
func (p *product) errorLines() ([]string, error) {
	f, err := os.Open(p.Log())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var bad []string
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if line := s.Text(); !strings.HasPrefix(line, "{") || strings.Contains(line, `"level":"error"`) || strings.Contains(line, `"level":"fatal"`) {
			bad = append(bad, line)
		}
	}
	return bad, s.Err()
}
