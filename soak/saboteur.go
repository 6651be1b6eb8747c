package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"fencepost/internal/pgcluster"
	"fencepost/internal/poll"
	"fencepost/internal/product"
)

// saboteur does to Fencepost and its servers what happens to them in a bad week.
type saboteur struct {
	r       *run
	rng     *rand.Rand
	console *product.Console
	direct  *pgx.Conn // to the server, as superuser
	mu      sync.Mutex
	done    map[string]int // how often each act was done; guarded by mu
}

// harm is one act.
type harm struct {
	name   string
	weight int
	do     func(*saboteur, context.Context) error
}

var harms = []harm{
	{"terminate server backends", 40, (*saboteur).terminateSome},
	{"terminate all idle backends", 8, (*saboteur).terminateIdle},
	{"reload", 10, (*saboteur).reload},
	{"reload of a broken file", 3, (*saboteur).reloadBroken},
	{"pause and resume", 9, (*saboteur).pauseOne},
	{"pause and resume all", 2, (*saboteur).pauseAll},
	{"reconnect", 8, (*saboteur).reconnect},
	{"kill a client", 5, (*saboteur).killClient},
	{"show everything", 10, (*saboteur).showEverything},
}

// work acts at random until the load ends.
func (b *saboteur) work(ctx context.Context) {
	defer b.close()
	for sleep(ctx, min(time.Duration(b.rng.ExpFloat64()*float64(b.r.opts.Sabotage)), 5*b.r.opts.Sabotage)) {
		h := pick(b.rng, harms, func(h *harm) int { return h.weight })
		// What has begun is ended: a pause is followed by its RESUME.
		err := h.do(b, context.WithoutCancel(ctx))
		b.did(h.name)
		if err != nil && !b.r.causes.down() {
			b.r.violate(processTrouble, "%s: %v", h.name, err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool { return poll.For(ctx, d) == nil }

func (b *saboteur) did(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done[name]++
}

func (b *saboteur) close() {
	b.console.Close()
	if b.direct != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		b.direct.Close(ctx) //nolint:errcheck // leaving anyway
	}
}

// server is a connection to PostgreSQL itself.
func (b *saboteur) server(ctx context.Context) (*pgx.Conn, error) {
	if b.direct != nil && !b.direct.IsClosed() {
		return b.direct, nil
	}
	var err error
	b.direct, err = b.r.node.Connect(ctx, "postgres")
	return b.direct, err
}

// terminate ends backends of the users of the run that meet a condition, at most so many.
func (b *saboteur) terminate(ctx context.Context, where string, most int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := b.server(ctx)
	if err != nil {
		return err
	}
	mark(&b.r.causes.lastHarm)
	var n int
	err = c.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FROM (SELECT pg_terminate_backend(pid) AS done FROM (
		SELECT pid FROM pg_stat_activity WHERE usename = ANY($1) AND %s ORDER BY random() LIMIT $2) AS p OFFSET 0) AS t WHERE done`, where),
		users, most).Scan(&n)
	b.r.causes.terminated.Add(int64(n))
	mark(&b.r.causes.lastHarm)
	return err
}

func (b *saboteur) terminateSome(ctx context.Context) error {
	return b.terminate(ctx, "true", 1+b.rng.IntN(3))
}

func (b *saboteur) terminateIdle(ctx context.Context) error {
	return b.terminate(ctx, "state = 'idle'", 1000)
}

// The sizes of the small pool that reloads choose from.
const smallPoolMin, smallPoolMax = 1, 3

// reload changes a pool's size, by the console or by a signal.
func (b *saboteur) reload(ctx context.Context) error {
	if err := b.r.writeSettings(smallPoolMin + b.rng.IntN(smallPoolMax-smallPoolMin+1)); err != nil {
		return err
	}
	if b.rng.IntN(2) == 0 {
		return b.r.product.Signal(syscall.SIGHUP)
	}
	_, err := b.console.Run(ctx, "RELOAD")
	return err
}

// reloadBroken has a settings file with a mistake in it refused.
func (b *saboteur) reloadBroken(ctx context.Context) error {
	path := b.r.product.File
	good, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(good, "\n[no_such_section]\n"...), 0o600); err != nil {
		return err
	}
	_, err = b.console.Run(ctx, "RELOAD")
	if werr := os.WriteFile(path, good, 0o600); werr != nil {
		return werr
	}
	if !strings.HasPrefix(consoleError(err), "F0000 ") {
		return errors.Join(errors.New("a broken settings file was not refused"), err)
	}
	return nil
}

func (b *saboteur) pauseOne(ctx context.Context) error {
	return b.pause(ctx, " "+b.r.dbs[b.rng.IntN(len(b.r.dbs))].name)
}

func (b *saboteur) pauseAll(ctx context.Context) error { return b.pause(ctx, "") }

// pause gives PAUSE, which waits for the servers to be idle, and after a moment RESUME, whether it has waited enough or
// not.
func (b *saboteur) pause(ctx context.Context, which string) error {
	mark(&b.r.causes.lastPause)
	paused := make(chan error, 1)
	go func() { // ends with the answer to PAUSE, which the RESUME brings about
		c := b.r.product.OpenConsole()
		defer c.Close()
		_, err := c.Run(ctx, "PAUSE"+which)
		paused <- err
	}()
	sleep(ctx, time.Duration(200+b.rng.IntN(1200))*time.Millisecond)
	mark(&b.r.causes.lastPause)
	var err error
	for range 50 { // the PAUSE may not have arrived yet
		if _, err = b.console.Run(ctx, "RESUME"+which); err == nil || !strings.HasPrefix(consoleError(err), "55000") {
			break
		}
		sleep(ctx, 100*time.Millisecond)
	}
	perr := <-paused
	if consoleError(perr) == "55000 PAUSE was ended by RESUME" {
		perr = nil
	}
	return errors.Join(err, perr)
}

func (b *saboteur) reconnect(ctx context.Context) error {
	which := append([]string{""}, names(b.r.dbs)...)
	_, err := b.console.Run(ctx, strings.TrimSpace("RECONNECT "+which[b.rng.IntN(len(which))]))
	return err
}

func names(dbs []database) (all []string) {
	for _, d := range dbs {
		all = append(all, d.name)
	}
	return all
}

// killClient ends a client by the console.
func (b *saboteur) killClient(ctx context.Context) error {
	t, err := b.console.Run(ctx, "SHOW CLIENTS")
	if err != nil {
		return err
	}
	t = slices.DeleteFunc(t, func(m map[string]string) bool { return m["user"] == opsUser })
	if len(t) == 0 {
		return nil
	}
	mark(&b.r.causes.lastKill)
	_, err = b.console.Run(ctx, "KILL_CLIENT "+t[b.rng.IntN(len(t))]["id"])
	mark(&b.r.causes.lastKill)
	if strings.HasSuffix(consoleError(err), "client not found") {
		return nil // it has left meanwhile
	}
	b.r.causes.kills.Add(1)
	return err
}

// showEverything looks at every page of the console.
func (b *saboteur) showEverything(ctx context.Context) error {
	var errs []error
	for _, what := range []string{"CLIENTS", "CONFIG", "DATABASES", "LISTS", "POOLS", "SERVERS", "STATS", "TOTALS", "USERS", "VERSION"} {
		t, err := b.console.Run(ctx, "SHOW "+what)
		if err == nil && len(t) == 0 && what != "SERVERS" {
			err = fmt.Errorf("SHOW %s has no rows", what)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// restarts stops and starts PostgreSQL now and then, in turn in an orderly way and as after a crash.
func (b *saboteur) restarts(ctx context.Context, rng *rand.Rand) {
	every := b.r.opts.Restart
	for i := 0; sleep(ctx, every*3/4+time.Duration(rng.Int64N(int64(every)/4+1))); i++ {
		mode := []pgcluster.Mode{pgcluster.Fast, pgcluster.Immediate}[i%2]
		mark(&b.r.causes.lastDown)
		err := b.restart(context.WithoutCancel(ctx), mode)
		mark(&b.r.causes.lastDown)
		b.r.causes.restarts.Add(1)
		b.did("restart PostgreSQL")
		if err != nil {
			b.r.violate(harness, "restart PostgreSQL: %v", err)
			return
		}
	}
}

func (b *saboteur) restart(ctx context.Context, mode pgcluster.Mode) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := b.r.node.Stop(ctx, mode); err != nil {
		return err
	}
	return b.r.node.Start(ctx)
}
