package admin

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"fencepost/metrics"
)

// Server is the HTTP server: /metrics for Prometheus, /healthz (is the process alive), /readyz (does it take clients)
// and, on a loopback address only, /debug/pprof/. It asks for no password and changes nothing.
type Server struct {
	ops      Operations
	log      zerolog.Logger
	http     *http.Server
	listener net.Listener
	served   chan struct{} // closed when the goroutine that accepts has ended
}

// NewServer makes the HTTP server of a process: Listen opens its port, Serve begins to answer.
func NewServer(ops Operations, log zerolog.Logger) *Server {
	return &Server{ops: ops, log: log}
}

// Listen opens addr (host:port; "" does nothing). What connects before Serve waits. reuseport lets several processes share the
// port. It is called once.
func (s *Server) Listen(addr string, reuseport bool) error {
	if addr == "" {
		return nil
	}
	lc := net.ListenConfig{}
	if reuseport {
		lc.Control = sharePort
	}
	l, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	s.listener = l
	return nil
}

// Serve answers until Stop. It is called once, when clients are taken: from then on /readyz says so. Without a port it does
// nothing.
func (s *Server) Serve() {
	l := s.listener
	if l == nil {
		return
	}
	s.http = &http.Server{
		Handler:           s.handler(isLoopback(l.Addr())),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute, // a profile may be asked for that long
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          stdlog.New(httpLog{s.log}, "", 0),
	}
	s.served = make(chan struct{})
	go func() { // ended by Stop
		defer close(s.served)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error().Err(err).Msg("http server failed")
		}
	}()
	s.log.Info().Stringer("address", l.Addr()).Msg("http server started")
}

// Addr is the address the server listens on, nil before Listen.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Stop ends the server: it waits for running requests until ctx ends, then cuts them off. Without a Serve it closes the port that
// may be open.
func (s *Server) Stop(ctx context.Context) error {
	if s.http == nil {
		if s.listener != nil {
			_ = s.listener.Close()
		}
		return nil
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close()
	}
	<-s.served
	if err != nil {
		return fmt.Errorf("stop http server: %w", err)
	}
	return nil
}

func sharePort(_, _ string, c syscall.RawConn) error {
	var err error
	if cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}); cerr != nil {
		return cerr
	}
	return err
}

func isLoopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

// httpLog takes what net/http has to say, which are the mistakes of its clients.
type httpLog struct{ log zerolog.Logger }

func (l httpLog) Write(p []byte) (int, error) {
	l.log.Debug().Str("error", strings.TrimSpace(string(p))).Msg("http")
	return len(p), nil
}

const indexText = `Fencepost %s

/metrics   for Prometheus
/healthz   200 while every event loop runs
/readyz    200 while clients are taken, and not about to be refused

Shards
%s`

// indexLimit is how long shards have to answer for the index.
const indexLimit = time.Second

// index says what there is, and how each shard fares.
func (s *Server) index(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), indexLimit)
	defer cancel()
	var shards strings.Builder
	for _, d := range askShards(s.ops, s.ops.Shards()...).answers(ctx) {
		switch {
		case d.row == nil:
			fmt.Fprintf(&shards, "  %s: %s\n", d.name, noAnswer)
		case d.row.View.Elected == "":
			fmt.Fprintf(&shards, "  %s: %s, no primary\n", d.name, d.row.State)
		case d.row.Static:
			fmt.Fprintf(&shards, "  %s: %s, one host %s\n", d.name, d.row.State, d.row.View.Elected)
		default:
			fmt.Fprintf(&shards, "  %s: %s, primary %s\n", d.name, d.row.State, d.row.View.Elected)
		}
	}
	plain(w, http.StatusOK, fmt.Sprintf(indexText, s.ops.Version(), shards.String()))
}

// handler serves everything; profiles only if profiles is set.
func (s *Server) handler(profiles bool) http.Handler {
	mux := http.NewServeMux()
	registry := metrics.NewRegistry()
	registry.MustRegister(metrics.NewCollector(source(s.ops), 0, func(err error) {
		s.log.Warn().Err(err).Msg("metrics are not complete")
	}))
	mux.Handle("GET /metrics", metrics.Handler(registry))
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /{$}", s.index)
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

func plain(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// heartbeatLimit is how long a loop may go without a sign of life.
const heartbeatLimit = 5 * time.Second

// healthz answers 200 while every event loop gives signs of life. It asks no loop and no server: PostgreSQL being away
// is no reason to restart the pooler.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	if reason := stuck(s.ops, time.Now()); reason != "" {
		plain(w, http.StatusServiceUnavailable, reason+"\n")
		return
	}
	plain(w, http.StatusOK, "ok\n")
}

// stuck names the loops without a sign of life, "" if there are none.
func stuck(ops Operations, now time.Time) string {
	var reasons []string
	for _, l := range ops.Loops() {
		if age := now.Sub(l.Stats().Heartbeat); age > heartbeatLimit {
			reasons = append(reasons, fmt.Sprintf("event loop %d was last seen %s ago", l.Index(), age.Round(time.Second)))
		}
	}
	return strings.Join(reasons, "\n")
}

// readyz answers 200 while clients are taken and the process was not ordered to end, also while a shard has no primary:
// standbys serve and writes wait.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if s.ops.Draining() {
		plain(w, http.StatusServiceUnavailable, "draining\n")
		return
	}
	s.healthz(w, r)
}
