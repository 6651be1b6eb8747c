package arm

import (
	"context"
	"path/filepath"
	"syscall"
	"time"

	"fencepost/internal/program"
)

// startLimit bounds the start of a program, stopLimit its end.
const (
	startLimit = 20 * time.Second
	stopLimit  = 10 * time.Second
)

// launch starts a program of the arm with its output in dir, and returns when it accepts connections at addr. The signal
// quit has it end at once.
func (r *Running) launch(ctx context.Context, name, dir, addr string, argv []string, quit syscall.Signal, as *syscall.Credential) error {
	env := program.Environ("PG") // none of what libpq would take from it
	p, err := program.Start(program.Command{Name: name, Argv: argv, Env: env, Dir: dir, Log: filepath.Join(dir, name+".log"), As: as})
	if err != nil {
		return err
	}
	r.runs(p, quit)
	return p.Listening(ctx, startLimit, addr)
}

// runs notes a program of the arm, which Stop ends.
func (r *Running) runs(p *program.Process, quit syscall.Signal) {
	r.procs = append(r.procs, p)
	r.ends = append(r.ends, func() { p.Stop(quit, stopLimit) }) //nolint:errcheck // how it ends is of no interest any more
}
