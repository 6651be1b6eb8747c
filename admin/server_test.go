package admin

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"fencepost/actors/shard/health"
	"fencepost/eventloop"
)

func get(h http.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestMetrics(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		h := NewServer(p, zerolog.Nop()).handler(false)
		status, body := get(h, "/metrics")
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		for _, want := range []string{
			`fencepost_pool_clients{database="app",user="app_owner"} 7`,
			`fencepost_pool_clients_waiting{database="app",user="app_owner"} 1`,
			`fencepost_pool_max_wait_seconds{database="app",user="app_owner"} 2.5`,
			`fencepost_pool_servers{database="app",state="leased",user="app_owner"} 2`,
			`fencepost_pool_servers{database="app",state="being_canceled",user="app_owner"} 1`,
			`fencepost_pool_servers{database="reports",state="idle",user="alice"} 1`,
			`fencepost_pool_size{database="app",user="app_owner"} 7`,
			`fencepost_pool_failing{database="reports",user="alice"} 1`,
			`fencepost_pool_failing{database="app",user="app_owner"} 0`,
			`fencepost_pool_transactions_total{database="app",user="app_owner"} 180`,
			`fencepost_pool_query_time_seconds_total{database="app",user="app_owner"} 4`,
			`fencepost_pool_server_dial_failures_total{database="app",user="app_owner"} 2`,
			`fencepost_pool_server_losses_total{database="app",user="app_owner"} 2`,
			`fencepost_pool_refused_total{database="app",user="app_owner"} 2`,
			`fencepost_pool_cancels_total{database="app",outcome="delivered",user="app_owner"} 6`,
			`fencepost_pool_cancels_total{database="app",outcome="timed_out",user="app_owner"} 2`,
			`fencepost_pool_cancels_total{database="app",outcome="queue",user="app_owner"} 4`,
			`fencepost_pool_cancel_lease_seconds_count{database="app",user="app_owner"} 2`,
			`fencepost_pool_wait_seconds_count{database="app",user="app_owner"} 2`,
			`fencepost_pool_query_seconds_bucket{database="app",user="app_owner",le="0.001"} 2`,
			`fencepost_pool_transaction_seconds_sum{database="app",user="app_owner"} 0.002`,
			`fencepost_pool_fences_total{database="app",user="app_owner",verdict="ok"} 18`,
			`fencepost_pool_fences_total{database="app",user="app_owner",verdict="no"} 4`,
			`fencepost_pool_fences_total{database="app",user="app_owner",verdict="failed"} 2`,
			`fencepost_pool_fences_total{database="app",user="app_owner",verdict="slow"} 6`,
			`fencepost_pool_fence_seconds_count{database="app",user="app_owner"} 2`,
			`fencepost_pool_primary_wait_seconds_sum{database="app",user="app_owner"} 0.06`,
			`fencepost_loop_turns_total{loop="1"}`,
			`fencepost_clients 6`, `fencepost_actors 11`, `fencepost_draining 0`, `fencepost_standstills_total 3`, `fencepost_standstill_seconds_total 7.5`, `fencepost_loops_answered 1`,
			`fencepost_scrape_complete 1`, `go_goroutines `, `process_start_time_seconds `,
		} {
			if !strings.Contains(body, want) {
				t.Errorf("no %s", want)
			}
		}
		if !regexp.MustCompile(`fencepost_build_info\{goversion="go[^"]+",version="0.1.0"\} 1`).MatchString(body) {
			t.Error("no build info")
		}
	})
}

// A loop that does not answer costs a scrape its pools, not the rest and not its client the time limit of Prometheus.
func TestMetricsOfALoopThatDoesNotAnswer(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		p.lanes[0].set(func(l *fakeLanes) { l.mute = true })
		began := time.Now()
		status, body := get(NewServer(p, zerolog.Nop()).handler(false), "/metrics")
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("took %v", took)
		}
		for _, want := range []string{"fencepost_loops_answered 0", "fencepost_clients 6", `fencepost_pool_clients{database="app",user="app_owner"} 4`} {
			if status != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%d without %s", status, want)
			}
		}
	})
}

// stuckLoop is a loop that was last seen alive some time ago.
type stuckLoop struct {
	eventloop.Loop
	seen time.Time
}

func (l stuckLoop) Stats() eventloop.Stats { return eventloop.Stats{Heartbeat: l.seen} }

type stuckProcess struct {
	*process
	loops []eventloop.Loop
}

func (p stuckProcess) Loops() []eventloop.Loop { return p.loops }

func TestHealth(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		h := NewServer(p, zerolog.Nop()).handler(false)
		for _, path := range []string{"/healthz", "/readyz"} {
			if status, body := get(h, path); status != http.StatusOK || body != "ok\n" {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
		// Loops that answer nothing but live are healthy: a server that is away is no reason to restart.
		for _, l := range p.lanes {
			l.set(func(l *fakeLanes) { l.mute = true })
		}
		if status, _ := get(h, "/healthz"); status != http.StatusOK {
			t.Error(status)
		}
		p.draining.Store(true)
		if status, body := get(h, "/readyz"); status != http.StatusServiceUnavailable || body != "draining\n" {
			t.Errorf("%d %s", status, body)
		}
		if status, _ := get(h, "/healthz"); status != http.StatusOK {
			t.Error("a process that drains is alive")
		}
		p.draining.Store(false)

		loops := slices.Clone(p.Loops())
		loops[1] = stuckLoop{loops[1], time.Now().Add(-heartbeatLimit - time.Second)}
		h = NewServer(stuckProcess{p, loops}, zerolog.Nop()).handler(false)
		for _, path := range []string{"/healthz", "/readyz"} {
			if status, body := get(h, path); status != http.StatusServiceUnavailable || body != "event loop 1 was last seen 6s ago\n" {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
	})
}

func TestPaths(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		h := NewServer(p, zerolog.Nop()).handler(false)
		if status, body := get(h, "/"); status != http.StatusOK || !strings.Contains(body, "Fencepost 0.1.0") ||
			!strings.Contains(body, "\nShards\n  main: healthy, primary 10.0.0.1:5433\n  reports: healthy, one host /run/postgresql:5432\n") {
			t.Errorf("%d %s", status, body)
		}
		p.shards[0].set(func(s *fakeShard) { s.row.View.Elected, s.row.State = "", health.Failover })
		p.shards[1].set(func(s *fakeShard) { s.mute = true })
		began := time.Now()
		if status, body := get(h, "/"); status != http.StatusOK || !strings.Contains(body, "\n  main: failover, no primary\n  reports: "+noAnswer+"\n") {
			t.Errorf("%d %s", status, body)
		}
		if took := time.Since(began); took > indexLimit {
			t.Errorf("took %v", took)
		}
		// No primary is no reason to send clients elsewhere: standbys serve and writes wait.
		if status, body := get(h, "/readyz"); status != http.StatusOK || body != "ok\n" {
			t.Errorf("/readyz: %d %s", status, body)
		}
		for _, path := range []string{"/nosuch", "/debug/pprof/", "/debug/pprof/profile", "/debug/pprof/heap"} {
			if status, _ := get(h, path); status != http.StatusNotFound {
				t.Errorf("%s: %d", path, status)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/healthz", nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST: %d", w.Code)
		}
		if status, _ := get(NewServer(p, zerolog.Nop()).handler(true), "/debug/pprof/cmdline"); status != http.StatusOK {
			t.Errorf("profiles: %d", status)
		}
	})
}

func TestIsLoopback(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1:1": true, "127.3.4.5:1": true, "[::1]:1": true, "0.0.0.0:1": false, "[::]:1": false, "192.0.2.1:1": false} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil || isLoopback(a) != want {
			t.Errorf("%s: %v, %v", addr, isLoopback(a), err)
		}
	}
}

// Two processes can share the port when told so, and only then; after Stop nothing listens.
func TestStartAndStop(t *testing.T) {
	p := &process{t: t}
	a := NewServer(p, zerolog.Nop())
	if err := a.Listen("127.0.0.1:0", true); err != nil {
		t.Fatal(err)
	}
	a.Serve()
	addr := a.Addr().String()
	b := NewServer(p, zerolog.Nop())
	if err := b.Listen(addr, false); err == nil {
		t.Error("the port was shared without so_reuseport")
	}
	b = NewServer(p, zerolog.Nop())
	if err := b.Listen(addr, true); err != nil {
		t.Error(err)
	}
	b.Serve()
	resp, err := http.Get("http://" + addr + "/debug/pprof/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("profiles on a loopback address: %d", resp.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, s := range []*Server{a, b} {
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Error("still listens")
	}
	unserved := NewServer(p, zerolog.Nop())
	if err := errors.Join(unserved.Listen(addr, false), unserved.Stop(ctx)); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Error("listens without Serve, after Stop")
	}
	none := NewServer(p, zerolog.Nop())
	if err := none.Listen("", false); err != nil || none.Addr() != nil || none.Stop(ctx) != nil {
		t.Errorf("without an address: %v", err)
	}
}

// A client that sends nothing does not keep Stop waiting beyond its limit.
func TestStopCutsOff(t *testing.T) {
	s := NewServer(&process{t: t}, zerolog.Nop())
	if err := s.Listen("127.0.0.1:0", false); err != nil {
		t.Fatal(err)
	}
	s.Serve()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	_ = s.Stop(ctx)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("Stop took %v", took)
	}
}
