package matrix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"fencepost/internal/pgcluster"
	"fencepost/soak/matrix/arm"
	"fencepost/soak/matrix/client"
	"fencepost/soak/matrix/world"
)

// What the clients use.
const (
	user     = "app"
	database = "app"
)

// run is a run's surroundings.
type run struct {
	o        *Options
	dir      string // for what is needed while it runs
	programs arm.Programs
	store    store
	report   *Report
	progress *progress
}

// Run plays what is missing of the matrix and reports what there is; an error says that it could not be played. It blocks
// for about 40 s a cell; when ctx ends it stops what it started, and what is done is kept. The caller judges by
// Report.Problems.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	r := &run{o: &o, store: store{o.OutDir}}
	var err error
	if r.report, err = r.store.load(o.settings(), o.Fresh); err != nil {
		return nil, err
	}
	if r.dir, err = os.MkdirTemp("", "fencepost-matrix-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(r.dir)
	if err := os.Chmod(r.dir, 0o755); err != nil {
		return nil, err
	}
	r.progress = newProgress(&o, r.missing())
	if r.progress.total > 0 {
		r.progress.line("getting the programs of %v", o.Arms)
		if err := r.programs.Find(ctx, r.dir, o.Binary, o.Arms); err != nil {
			return nil, err
		}
	}
	err = r.passes(ctx)
	r.report.Table(o.Out, &o)
	return r.report, errors.Join(err, r.pictures())
}

// missing is how many cells are still to be played.
func (r *run) missing() (n int) {
	for _, e := range r.o.Events {
		for _, a := range r.o.Arms {
			n += len(r.repeats(a, e))
		}
	}
	return n
}

// repeats are the cells of an arm and an event that are to be played.
func (r *run) repeats(name, event string) (all []int) {
	for n := 1; n <= r.o.repeats(name); n++ {
		if !r.report.has(name, event, n) {
			all = append(all, n)
		}
	}
	return all
}

// passes plays all cells. The arms take turns at each kind of event, so that what is there early can be compared.
func (r *run) passes(ctx context.Context) error {
	for _, e := range r.o.Events {
		for _, a := range r.o.Arms {
			todo := r.repeats(a, e)
			// What befell the world or the arm may be an accident: what is left then gets one more world.
			for try := 0; len(todo) > 0 && try < 2; try++ {
				err := r.pass(ctx, a, e, todo)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					r.progress.line("%s, %s: %v", a, e, err)
				}
				todo = r.repeats(a, e)
			}
		}
	}
	return nil
}

// pass plays cells of one arm and one kind of event in a world of their own.
func (r *run) pass(ctx context.Context, name, event string, todo []int) (err error) {
	w, err := world.Start(ctx, world.Config{Version: r.o.PostgreSQL, Standbys: 2, Synchronous: r.o.Synchronous,
		Roles: []pgcluster.Role{{Name: user}}, Databases: []string{database},
		Conf: map[string]string{"max_connections": fmt.Sprint(3*r.o.Clients + 100)}})
	if err != nil {
		return fmt.Errorf("start the servers: %w", err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := prepare(ctx, w); err != nil {
		return err
	}
	p := &pass{run: r, w: w, event: world.EventNamed(event, r.o.timing()), name: name}
	defer p.stopArm()
	for _, n := range todo {
		if err := p.cell(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the ledger.
func prepare(ctx context.Context, w *world.World) error {
	return asOwner(ctx, w.Primary(), append(slices.Clone(client.Schema),
		"GRANT SELECT, INSERT ON ledger TO "+user)...)
}

// startArm starts the arm, unless it runs and may go on.
func (p *pass) startArm(ctx context.Context) error {
	if p.arm != nil && !p.arm.Fixed {
		return p.arm.Alive()
	}
	p.stopArm()
	var hosts []arm.Host
	for _, s := range p.w.Servers() {
		hosts = append(hosts, arm.Host{Name: s.Name, Addr: s.RelayAddr})
	}
	o := p.o
	a, err := arm.Start(ctx, p.name, arm.Setup{Dir: p.dir, Hosts: hosts, Primary: p.w.Primary().Name, User: user, Database: database,
		Session: o.Mode == Session, Pool: o.pool(), Warm: o.warm(), Programs: &p.programs})
	if err != nil {
		return err
	}
	p.arm = a
	p.report.Versions[p.name] = a.Version
	return nil
}

func (p *pass) stopArm() {
	if p.arm != nil {
		p.arm.Stop()
		p.arm = nil
	}
}

// pass is a world and an arm, and the cells that are played with them.
type pass struct {
	*run
	w     *world.World
	event world.Event
	name  string       // of the arm
	arm   *arm.Running // nil: it does not run
}

// cellLimit bounds a cell, whatever hangs in it.
const cellLimit = 6 * time.Minute
