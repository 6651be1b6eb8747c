package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"fencepost/internal/pgcluster"
	"fencepost/internal/product"
	"fencepost/internal/program"
)

// What every arm serves: one database under one name, one user without a password.
const (
	database = "bench"
	role     = "postgres"
)

// pooler is a running arm. For the arm direct it is PostgreSQL, of which no process is measured.
type pooler struct {
	arm       string
	version   string
	addr      string             // host:port for clients
	proc      *program.Process   // nil for direct
	fencepost *product.Fencepost // nil where it is another pooler, or none
}

func (p *pooler) pid() int {
	if p.proc == nil {
		return 0
	}
	return p.proc.PID()
}

func (p *pooler) stop() {
	if p.proc != nil {
		_ = p.proc.Stop(syscall.SIGINT, 2*time.Second) // how it ends is not measured
	}
}

// lab is what the arms are started from.
type lab struct {
	opts      options
	dir       string // working folder, removed at the end; everybody may read it
	account   *syscall.Credential
	cluster   *pgcluster.Cluster
	server    string // PostgreSQL's host:port
	pgbouncer pgbouncerBinary
	fencepost string // binary of this tree
	env       []string
}

// start starts an arm, a fresh process each time, and returns once it answers a query.
func (l *lab) start(ctx context.Context, arm string) (*pooler, error) {
	if arm == armDirect {
		return &pooler{arm: arm, addr: l.server}, nil
	}
	dir, err := program.Folder(l.dir, arm, l.account)
	if err != nil {
		return nil, err
	}
	p := &pooler{arm: arm}
	switch arm {
	case armPgBouncer, armPgBouncerAA:
		err = l.startPgBouncer(p, dir)
	case armOther:
		err = l.startFencepost(ctx, p, dir, l.opts.other, variant{loops: 1, role: l.opts.hostRole})
	case armLoops2:
		err = l.startFencepost(ctx, p, dir, l.fencepost, variant{loops: 2, role: l.opts.hostRole})
	case armAuto:
		err = l.startFencepost(ctx, p, dir, l.fencepost, variant{loops: 1, role: "auto"})
	case armAlways:
		err = l.startFencepost(ctx, p, dir, l.fencepost, variant{loops: 1, role: "auto", fence: "always"})
	default:
		err = l.startFencepost(ctx, p, dir, l.fencepost, variant{loops: 1, role: l.opts.hostRole})
	}
	if err != nil {
		return nil, err
	}
	err = p.proc.Await(ctx, 15*time.Second, func(ctx context.Context) error {
		c, err := dial(ctx, p.addr)
		if err != nil {
			return err
		}
		defer c.close()
		return c.query("SELECT 1")
	})
	if err == nil && l.opts.fifo {
		err = realtime(p.pid())
	}
	if err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// maxClientConn leaves room for every measurement and for the harness's own connections.
func (l *lab) maxClientConn() int { return max(l.opts.maxClients(), l.opts.idle) + 500 }

func (l *lab) startPgBouncer(p *pooler, dir string) error {
	addr, port, err := pgcluster.FreeAddr()
	if err != nil {
		return err
	}
	host, serverPort, err := net.SplitHostPort(l.server)
	if err != nil {
		return err
	}
	ini := fmt.Sprintf(`[databases]
%s = host=%s port=%s dbname=%s user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s
admin_users = %s
pool_mode = transaction
default_pool_size = %d
max_client_conn = %d
logfile = %s
`, database, host, serverPort, database, role, port, filepath.Join(dir, "users.txt"), role,
		l.opts.pool, l.maxClientConn(), filepath.Join(dir, "pgbouncer.log"))
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := errors.Join(
		os.WriteFile(file, []byte(ini), 0o644),
		os.WriteFile(filepath.Join(dir, "users.txt"), []byte(`"`+role+`" ""`+"\n"), 0o644),
	); err != nil {
		return err
	}
	p.addr, p.version = addr, l.pgbouncer.version
	argv := append(append([]string{}, l.pgbouncer.argv...), "-q", file)
	p.proc, err = program.Start(program.Command{Name: p.arm, Argv: argv, Env: l.env, Log: filepath.Join(dir, "output"), As: l.account})
	return err
}

// variant is what arms of Fencepost differ in.
type variant struct {
	loops int
	role  string // of the host
	fence string // of the database, "": the default
}

// startFencepost runs a binary with the metrics, the console and the logs on that a user would have on.
func (l *lab) startFencepost(ctx context.Context, p *pooler, dir, binary string, v variant) (err error) {
	served := product.Section{"shard": "main", "dbname": database, "user": role}
	if v.fence != "" {
		served["fence"] = v.fence
	}
	p.version = versionOf(binary, "version")
	p.fencepost, err = product.Start(ctx, product.Config{Name: p.arm, Program: binary, Dir: dir, Env: l.env, Settings: product.Settings{
		"fencepost": {"auth_type": "trust", "admin_users": []string{role}, "pool_mode": "transaction", "default_pool_size": l.opts.pool,
			"max_client_conn": l.maxClientConn(), "event_loops": v.loops},
		"shards":    {"main": product.Section{"hosts": []product.Section{{"addr": l.server, "role": v.role}}}},
		"databases": {database: served},
	}})
	if err != nil {
		return err
	}
	p.addr, p.proc = p.fencepost.Addr, p.fencepost.Process()
	return nil
}

// cleanEnv is the environment without what libpq, Go's runtime or a pooler would take from it.
func cleanEnv() []string {
	return append(program.Environ("PG", "GO", "LC_", "LANG"), "LC_ALL=C", "PGSSLMODE=disable", "PGGSSENCMODE=disable")
}
