package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"fencepost/internal/pgcluster"
)

// writers are clients that write all the time, pgx's and psycopg's, and what they saw. The first statement of each of
// their transactions asks the server what it is.
type writers struct {
	g     *group
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu      sync.Mutex // guards what follows
	commits map[string][]commit
	codes   map[string]int    // SQLSTATE: how many
	texts   map[string]string // the last one
	wrong   []string          // fresh transactions on a server that could not write
}

type commit struct {
	port int
	at   time.Time
}

// startWriters starts n clients of each driver in the pool mode and returns when each has written.
func (g *group) startWriters(mode string, n int) *writers {
	g.t.Helper()
	began := time.Now()
	ctx, stop := context.WithCancel(g.t.Context())
	w := &writers{g: g, stop: stop, commits: map[string][]commit{}, codes: map[string]int{}, texts: map[string]string{}}
	g.t.Cleanup(w.end)
	for i := range n {
		who := fmt.Sprintf("pgx %d", i)
		w.commits[who] = nil
		w.commits[fmt.Sprintf("psycopg %d", i)] = nil
		w.ended.Go(func() { w.pgx(ctx, g.mode(mode), who) })
	}
	w.ended.Go(func() {
		if err := w.psycopg(ctx, g.mode(mode), n); err != nil {
			g.t.Errorf("psycopg: %v", err)
		}
	})
	w.all("from the start", began, g.node)
	return w
}

// end stops them. What they saw may be read then.
func (w *writers) end() {
	w.stop()
	w.ended.Wait()
}

func (w *writers) committed(who string, port int, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commits[who] = append(w.commits[who], commit{port, at})
}

func (w *writers) failed(who, code, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if code == "none" && strings.Contains(text, "server closed the connection unexpectedly") {
		code = unheard
	}
	w.codes[code]++
	w.texts[code] = time.Now().UTC().Format("15:04:05.000") + " " + who + ": " + text
}

func (w *writers) misbound(who, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, who+": "+text)
}

// all waits until every client has had a transaction on n committed after since, and returns how long after since the
// first and the last of them had.
func (w *writers) all(what string, since time.Time, n *pgcluster.Node) (first, last time.Duration) {
	w.g.t.Helper()
	missing := ""
	err := poll(patience, func() (bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		first, last = time.Hour, 0
		for who, list := range w.commits {
			i := slices.IndexFunc(list, func(c commit) bool { return c.port == n.Port && c.at.After(since) })
			if i < 0 {
				missing = who
				return false, nil
			}
			gap := list[i].at.Sub(since)
			first, last = min(first, gap), max(last, gap)
		}
		return true, nil
	})
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.g.t.Fatalf("%s: %s does not write to %s: %v\nerrors %v %v\n%s", what, missing, n.Addr(), err, w.codes, w.texts, w.g.said())
	}
	return first, last
}

// verdict ends the writers and checks that none was bound wrongly and that all errors are of these SQLSTATEs.
func (w *writers) verdict(codes string) {
	w.g.t.Helper()
	w.end()
	if len(w.wrong) > 0 {
		w.g.t.Errorf("%d transactions began on a server that takes no writes: %v", len(w.wrong), w.wrong)
	}
	for code, n := range w.codes {
		if !strings.Contains(codes, code) {
			w.g.t.Errorf("%d errors %s, want only %s: %s", n, code, codes, w.texts[code])
		}
	}
	total := 0
	for _, list := range w.commits {
		total += len(list)
	}
	w.g.t.Logf("%d transactions of %d clients, errors %v", total, len(w.commits), w.codes)
}

// unheard is what psycopg makes of a connection whose end it sees before it has read the last error: now and then, and of a
// server's own connection as well.
const unheard = "unheard"

const (
	askRole   = "SELECT inet_server_port(), pg_is_in_recovery(), current_setting('transaction_read_only')"
	writePace = 5 * time.Millisecond
)

func (w *writers) pgx(ctx context.Context, at place, who string) {
	var c *pgx.Conn
	tick := time.NewTicker(writePace)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			if c != nil {
				c.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it goes in any case
			}
			return
		case <-tick.C:
		}
		// Not ctx: a statement that is cut off by the end of the test would look like an error of Fencepost's.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		err := w.transfer(limited, &c, at, who, n)
		cancel()
		if err != nil {
			var pe *pgconn.PgError
			if errors.As(err, &pe) {
				w.failed(who, pe.Code, pe.Message+" "+pe.Detail)
			} else {
				w.failed(who, "none", err.Error())
			}
		}
	}
}

func (w *writers) transfer(ctx context.Context, c **pgx.Conn, at place, who string, n int) (err error) {
	if *c == nil || (*c).IsClosed() {
		if *c, err = at.pgx(ctx); err != nil {
			*c = nil
			return err
		}
	}
	var port int
	err = pgx.BeginFunc(ctx, *c, func(tx pgx.Tx) error {
		var standby bool
		var readOnly string
		if err := tx.QueryRow(ctx, askRole).Scan(&port, &standby, &readOnly); err != nil {
			return err
		}
		if standby || readOnly != "off" {
			w.misbound(who, fmt.Sprintf("port %d, in recovery %t, read only %s", port, standby, readOnly))
		}
		_, err := tx.Exec(ctx, "INSERT INTO written VALUES ($1, $2)", who, n)
		return err
	})
	if err == nil {
		w.committed(who, port, time.Now())
	}
	return err
}

// psycopg runs testdata/drivers/psycopg_writers.py, which says what it sees line by line, until ctx ends.
func (w *writers) psycopg(ctx context.Context, at place, n int) error {
	python, err := pythonWithPsycopg()
	if err != nil {
		return err
	}
	cmd := exec.Command(python, "testdata/drivers/psycopg_writers.py", fmt.Sprint(n), askRole)
	cmd.Env = append(os.Environ(), "PYTHONUTF8=1", "PGHOST="+at.host(), fmt.Sprintf("PGPORT=%d", at.port()), "PGDATABASE="+at.database,
		"PGUSER="+appUser, "PGPASSWORD="+appPassword, "PGSSLMODE=disable", "PGGSSENCMODE=disable")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { in.Close() })
	defer stop()
	ended := make(chan struct{})
	defer close(ended)
	go func() { // ends with the process, at the latest some time after it was told to
		<-ctx.Done()
		select {
		case <-ended:
		case <-time.After(patience):
			cmd.Process.Kill() //nolint:errcheck // it may be gone
		}
	}()
	w.listen(out)
	if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
		return fmt.Errorf("%w: %s", err, stderr.String())
	}
	return nil
}

func (w *writers) listen(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		f := strings.SplitN(lines.Text(), "\t", 4)
		if len(f) != 4 {
			w.failed("psycopg", "none", lines.Text())
			continue
		}
		who := "psycopg " + f[1]
		switch f[0] {
		case "commit":
			var port int
			var at float64
			fmt.Sscan(f[2], &port) //nolint:errcheck // 0 is no server's
			fmt.Sscan(f[3], &at)   //nolint:errcheck // likewise
			w.committed(who, port, time.UnixMicro(int64(at*1e6)))
		case "wrong":
			w.misbound(who, f[2]+" "+f[3])
		default:
			w.failed(who, f[2], f[3])
		}
	}
}
