package arm

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"fencepost/internal/pgcluster"
	"fencepost/internal/program"
)

// startBalanced puts HAProxy in front of a PgBouncer for each host. Clients are with the host whose role check says that
// it is the primary; when one ceases to be, its sessions are ended, as the documentation of Patroni has it.
func (r *Running) startBalanced(ctx context.Context, s *Setup) error {
	as, err := program.ServerAccount()
	if err != nil {
		return err
	}
	dir, err := program.Folder(s.Dir, r.Name, as)
	if err != nil {
		return err
	}
	var servers strings.Builder
	for _, h := range s.Hosts {
		bouncer, err := r.launchPgBouncer(ctx, s, h)
		if err != nil {
			return err
		}
		check, err := checkRole(fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", s.User, h.Addr, s.Database))
		if err != nil {
			return err
		}
		r.ends = append(r.ends, check.close)
		_, port, err := net.SplitHostPort(check.addr())
		if err != nil {
			return err
		}
		fmt.Fprintf(&servers, "    server %s %s check port %s\n", h.Name, bouncer, port)
	}
	addr, _, err := pgcluster.FreeAddr()
	if err != nil {
		return err
	}
	conf := fmt.Sprintf(`global
    maxconn 2000
defaults
    mode tcp
    timeout connect 2s
    timeout check 1s
    timeout client 1h
    timeout server 1h
listen primary
    bind %s
    option httpchk GET /primary
    http-check expect status 200
    default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
%s`, addr, servers.String())
	file := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(conf), 0o644); err != nil {
		return err
	}
	argv := append(append([]string(nil), s.Programs.HAProxy...), "-db", "-f", file)
	r.Version = "HAProxy " + number(s.Programs.HAProxy, "-v") + ", PgBouncer " + number(s.Programs.PgBouncer, "-V")
	if err := r.launch(ctx, "haproxy", dir, addr, argv, syscall.SIGTERM, as); err != nil {
		return err
	}
	if err := r.connectTo(s, "", addr); err != nil {
		return err
	}
	return r.settled(ctx)
}

// settledAfter is how many connects in a row have to come to the primary. HAProxy takes all servers for good until its
// checks have found out about them, and passes its clients round.
const settledAfter = 10

// settled waits until the role checks have had their effect.
func (r *Running) settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for good := 0; good < settledAfter; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("HAProxy does not pass clients to the primary alone: %w", ctx.Err())
		case <-tick.C:
		}
		if r.writable(ctx) {
			good++
		} else {
			good = 0
		}
	}
	return nil
}

func (r *Running) writable(ctx context.Context) bool {
	cfg := r.Connect.Copy()
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return false
	}
	defer conn.Close(ctx)
	standby := true
	return conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby) == nil && !standby
}
