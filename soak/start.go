package soak

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"fencepost/internal/pgcluster"
	"fencepost/internal/product"
	"fencepost/internal/program"
	"fencepost/soak/raw"
)

// start starts PostgreSQL and Fencepost. stop ends both.
func (r *run) start(ctx context.Context) (stop func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	path := r.opts.Binary
	if path == "" {
		r.say("building fencepost …")
		path = filepath.Join(r.dir, "fencepost")
		var args []string
		if r.opts.Race {
			args = append(args, "-race")
		}
		if err := program.Build(ctx, path, "fencepost/cmd/fencepost", args...); err != nil {
			return nil, err
		}
	}
	r.say("starting PostgreSQL …")
	cluster, err := startServer(ctx, r.opts.PostgreSQL, r.dbs)
	if err != nil {
		return nil, err
	}
	r.node = cluster.Primary()
	stop = cluster.Stop
	if r.addr, _, err = pgcluster.FreeAddr(); err == nil {
		r.product, err = product.Start(ctx, product.Config{Program: path, Dir: r.dir, Settings: r.settings(smallPoolMin + 1), Line: r.log.line})
	}
	if err != nil {
		return nil, errors.Join(err, r.product.Kill(), stop())
	}
	r.say("fencepost listens on %s, metrics on http://%s/metrics, PostgreSQL %s on %s", r.addr, r.product.HTTP, r.opts.PostgreSQL, r.node.Addr())
	return func() error {
		p := r.product.Process()
		return errors.Join(p.Alive(), p.Stop(syscall.SIGTERM, 20*time.Second), cluster.Stop())
	}, nil
}

// warmUp has every pool used once and come to rest, so that what stays for ever (a lane for each pool) is there before
// the first count.
func (r *run) warmUp(ctx context.Context) error {
	r.began = time.Now()
	for i := range r.dbs {
		for _, u := range users {
			for range 2 * r.opts.Loops { // a pool's clients go to its loops in turn
				if err := r.firstUse(ctx, &r.dbs[i], u); err != nil {
					return err
				}
			}
		}
	}
	if _, err := r.product.Console(ctx, "SHOW POOLS"); err != nil {
		return err
	}
	r.aside.CloseAll()
	return r.rest(ctx)
}

// firstUse logs in, asks one question and leaves.
func (r *run) firstUse(ctx context.Context, d *database, user string) error {
	c, err := raw.Open(ctx, raw.Login{Addr: r.addr, User: user, Password: password(user), Database: d.name}, &r.aside)
	if err != nil {
		return fmt.Errorf("first login to %s as %s: %w", d.name, user, err)
	}
	defer c.Terminate()
	err = c.Send(time.Now().Add(patience), query("SELECT 1"))
	if err == nil {
		_, err = c.Collect(time.Now().Add(patience), 1, nil)
	}
	if err != nil {
		return fmt.Errorf("first query in %s as %s: %w", d.name, user, err)
	}
	return nil
}

// rest waits until the idle server connections are closed (server_idle_timeout) and takes the samples that the end is
// compared with. The runtime has a goroutine more or less at times: the most of a few seconds counts.
func (r *run) rest(ctx context.Context) error {
	for looks := 0; looks < 8; {
		if !sleep(ctx, 400*time.Millisecond) {
			return ErrInterrupted
		}
		s, err := r.look(ctx)
		switch {
		case err != nil:
			return err
		case time.Since(r.began) > time.Minute:
			return fmt.Errorf("fencepost does not come to rest before the load: %d server connections, %d clients; %s", s.Servers, s.Clients, r.clientsNow())
		case s.Servers > r.restingServers() || s.Clients > 0:
			looks, r.base = 0, sample{}
			continue
		}
		looks++
		s.Goroutines, s.Actors, s.FDs = max(s.Goroutines, r.base.Goroutines), max(s.Actors, r.base.Actors), max(s.FDs, r.base.FDs)
		r.base = s
	}
	var err error
	r.base.Live, err = r.liveHeap(ctx)
	return err
}

// restingServers is how many server connections stay open when nobody works (min_pool_size).
func (r *run) restingServers() int {
	n := 0
	for _, d := range r.dbs {
		n += d.minPoolSize * len(users)
	}
	return n
}
