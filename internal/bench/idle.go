package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"fencepost/internal/poll"
)

// idleClientsCommand is the first argument of this program when it runs as its own child to hold idle clients: a
// process may not have descriptors enough for all of them.
const idleClientsCommand = "idle-clients"

const (
	idleProcesses = 2
	idleReady     = "idle" // what a child prints, with the count, once all its clients are there
	idleAlive     = "alive"
)

// idleClients connects -n clients to -addr, has each run one query, says so on out, and holds them until in ends.
// Before it leaves it asks each client whether it is still being served.
func idleClients(args []string, in io.Reader, out io.Writer) error {
	fs := flag.NewFlagSet(idleClientsCommand, flag.ContinueOnError)
	addr := fs.String("addr", "", "host:port to connect to")
	n := fs.Int("n", 1, "clients")
	if err := fs.Parse(args); err != nil {
		return errUsage
	}
	raiseDescriptorLimit()
	clients := make([]*client, *n)
	err := concurrently(*n, func(i int) error {
		c, err := dial(context.Background(), *addr)
		if err != nil {
			return fmt.Errorf("client %d of %d: %w", i, *n, err)
		}
		clients[i] = c
		return c.query("SELECT 1")
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, idleReady, *n)
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	err = concurrently(*n, func(i int) error {
		defer clients[i].close()
		return clients[i].query("SELECT 1")
	})
	if err == nil {
		fmt.Fprintln(out, idleAlive, *n)
	}
	return err
}

// concurrently calls f for 0 to n-1, a few at a time, until one fails.
func concurrently(n int, f func(int) error) error {
	var g errgroup.Group
	g.SetLimit(16)
	for i := range n {
		g.Go(func() error { return f(i) })
	}
	return g.Wait()
}

// raiseDescriptorLimit goes as high as the hard limit and returns what it reached. Go's runtime has raised the limit
// of this process already, but gives its children the old one unless the program itself sets it.
func raiseDescriptorLimit() uint64 {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	l.Cur = l.Max
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
	return l.Cur
}

// memoryResult is what the idle clients of one arm cost.
type memoryResult struct {
	Arm       string  `json:"arm"`
	Clients   int     `json:"clients"`
	Before    int64   `json:"rss_before_bytes"`
	With      int64   `json:"rss_with_clients_bytes"`
	PerClient float64 `json:"bytes_per_client"`
	Error     string  `json:"error,omitempty"` // then the figures are void
}

// measureMemory starts a fresh process of the arm, so that no earlier load has grown its memory, lets a few clients
// come and go, so that its code and first buffers are there, and compares its resident memory without and with n
// idle clients that have each run a query.
func (l *lab) measureMemory(ctx context.Context, arm string, n int) (memoryResult, error) {
	res := memoryResult{Arm: arm, Clients: n}
	p, err := l.start(ctx, arm)
	if err != nil {
		return res, err
	}
	defer p.stop()
	if err := fillPool(ctx, p.addr, l.opts.pool); err != nil {
		return res, err
	}
	if res.Before, err = rss(p.pid()); err != nil {
		return res, err
	}
	holders, err := l.holdIdle(ctx, p.addr, n)
	if err != nil {
		return res, err
	}
	defer func() {
		for _, h := range holders {
			h.kill()
		}
	}()
	if err := poll.For(ctx, 2*time.Second); err != nil {
		return res, err
	}
	if res.With, err = rss(p.pid()); err != nil {
		return res, err
	}
	res.PerClient = float64(res.With-res.Before) / float64(n)
	for _, h := range holders {
		if err := h.finish(); err != nil {
			return res, fmt.Errorf("idle clients of %s: %w", arm, err)
		}
	}
	return res, nil
}

// fillPool runs enough slow queries at once that the pool opens all its server connections, and then some clients
// more one after another.
func fillPool(ctx context.Context, addr string, pool int) error {
	g, ctx := errgroup.WithContext(ctx)
	for range 4 * pool {
		g.Go(func() error {
			c, err := dial(ctx, addr)
			if err != nil {
				return err
			}
			defer c.close()
			return c.query("SELECT pg_sleep(0.1)")
		})
	}
	return g.Wait()
}

// holder is a child process with idle clients.
type holder struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// holdIdle starts the children and returns when all clients are idle.
func (l *lab) holdIdle(ctx context.Context, addr string, n int) (_ []*holder, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var holders []*holder
	defer func() {
		if err != nil {
			for _, h := range holders {
				h.kill()
			}
		}
	}()
	for i := range idleProcesses {
		share := n / idleProcesses
		if i == 0 {
			share += n % idleProcesses
		}
		h := &holder{cmd: exec.CommandContext(ctx, self, idleClientsCommand, "-addr", addr, "-n", fmt.Sprint(share))}
		h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		h.cmd.Stderr = os.Stderr
		if h.in, err = h.cmd.StdinPipe(); err != nil {
			return nil, err
		}
		stdout, err := h.cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		h.out = bufio.NewScanner(stdout)
		if err := h.cmd.Start(); err != nil {
			return nil, err
		}
		holders = append(holders, h)
	}
	for _, h := range holders {
		if err := h.expect(idleReady); err != nil {
			return nil, fmt.Errorf("connect %d idle clients: %w", n, err)
		}
	}
	return holders, nil
}

func (h *holder) expect(word string) error {
	if h.out.Scan() && strings.HasPrefix(h.out.Text(), word+" ") {
		return nil
	}
	return errors.Join(fmt.Errorf("the process that holds them said %q in place of %q", h.out.Text(), word), h.out.Err())
}

// finish lets the child ask its clients for a sign of life and end.
func (h *holder) finish() error {
	return errors.Join(h.in.Close(), h.expect(idleAlive), h.cmd.Wait())
}

// kill ends the child if it still runs.
func (h *holder) kill() {
	if h.cmd.ProcessState == nil {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
	}
}
