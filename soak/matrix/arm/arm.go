// Package arm has what the failover matrix compares: Fencepost, a Fencepost made to fail, PgBouncer in two arrangements,
// and a driver that knows all servers. Each is set up as its own documentation has it, with limits a little shorter than
// its defaults where those would have it wait longer than the matrix looks.
package arm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"fencepost/internal/product"
	"fencepost/internal/program"
)

// The arms.
const (
	Fencepost = "fencepost"         // cmd/fencepost, told all hosts and nothing of their roles
	Control   = "control"           // Fencepost with an election that looks every 5 s, and without fences
	Fixed     = "pgbouncer-fixed"   // PgBouncer on the host that was the primary when the run began
	Balanced  = "pgbouncer-haproxy" // a PgBouncer for each host, behind HAProxy with a role check
	Direct    = "direct"            // the driver's own list of hosts, target_session_attrs=read-write
)

// Names are all arms, in the order in which they run.
var Names = []string{Fencepost, Control, Balanced, Fixed, Direct}

// ApplicationName is the clients', by which the servers' logs tell them from others.
const ApplicationName = "matrix"

// Host is a server as the arm may reach it.
type Host struct{ Name, Addr string }

// Setup is what an arm is told.
type Setup struct {
	Dir            string // working folder, which every account may enter
	Hosts          []Host
	Primary        string // the name of the one that is the primary now
	User, Database string
	Session        bool // session pooling instead of transaction pooling
	Pool           int  // server connections per pool
	Warm           int  // Fencepost's failover_warm
	Programs       *Programs
}

// Running is an arm that takes clients. Stop ends it.
type Running struct {
	Name    string
	Connect *pgx.ConnConfig // where clients connect, and as whom
	// PerClient: nothing stands between the clients and the servers.
	PerClient bool
	// Fixed: it has to be started anew when the primary has changed hands for good.
	Fixed bool
	// Version for the report.
	Version string

	procs     []*program.Process
	ends      []func()           // called by Stop, the last one first
	fencepost *product.Fencepost // nil: another arm
	watcher   *watcher           // of fencepost

	once sync.Once
}

// Start starts an arm, and returns when it accepts connections.
func Start(ctx context.Context, name string, s Setup) (*Running, error) {
	r := &Running{Name: name}
	start := map[string]func(context.Context, *Setup) error{
		Fencepost: r.startFencepost, Control: r.startControl, Fixed: r.startFixed, Balanced: r.startBalanced, Direct: r.startDirect,
	}[name]
	if start == nil {
		return nil, fmt.Errorf("no arm is called %q: there are %s", name, strings.Join(Names, ", "))
	}
	if err := start(ctx, &s); err != nil {
		r.Stop()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// Stop ends the arm's programs.
func (r *Running) Stop() {
	r.once.Do(func() {
		for _, end := range slices.Backward(r.ends) {
			end()
		}
	})
}

// Alive is nil while all programs of the arm are there.
func (r *Running) Alive() error {
	var errs []error
	for _, p := range r.procs {
		errs = append(errs, p.Alive())
	}
	return errors.Join(errs...)
}

// Logs are the files that the arm's programs print to.
func (r *Running) Logs() []string {
	var files []string
	for _, p := range r.procs {
		files = append(files, p.Log())
	}
	return files
}

// Forget tells the arm that the highest timeline it has seen does not count any more, if it knows of such a thing.
func (r *Running) Forget(ctx context.Context) error {
	if r.fencepost == nil {
		return nil
	}
	_, err := r.fencepost.Console(ctx, "FORGET main")
	return err
}

// Said is what the arm has said of itself so far, if it is one that says something.
func (r *Running) Said() []Said {
	if r.watcher == nil {
		return nil
	}
	return r.watcher.all()
}

// startDirect needs no program.
func (r *Running) startDirect(_ context.Context, s *Setup) error {
	var addrs []string
	for _, h := range s.Hosts {
		addrs = append(addrs, h.Addr)
	}
	r.PerClient = true
	r.Version = "pgx " + pgxVersion()
	return r.connectTo(s, "?target_session_attrs=read-write", addrs...)
}

// connectTo says where clients connect.
func (r *Running) connectTo(s *Setup, query string, addrs ...string) (err error) {
	if query == "" {
		query = "?"
	} else {
		query += "&"
	}
	r.Connect, err = pgx.ParseConfig(fmt.Sprintf("postgres://%s@%s/%s%ssslmode=disable&application_name=%s", s.User, strings.Join(addrs, ","), s.Database,
		query, ApplicationName))
	return err
}

// mode is the pool mode.
func (s *Setup) mode() string {
	if s.Session {
		return "session"
	}
	return "transaction"
}

func (s *Setup) primary() (Host, error) {
	for _, h := range s.Hosts {
		if h.Name == s.Primary {
			return h, nil
		}
	}
	return Host{}, fmt.Errorf("host %q is not among those of the run", s.Primary)
}
