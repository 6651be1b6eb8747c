package admin

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"fencepost/actors/shard/health"
)

// shardMetrics returns the lines of a scrape of shards and hosts, without comments.
func shardMetrics(t *testing.T, p *process) []string {
	t.Helper()
	status, body := get(NewServer(p, zerolog.Nop()).handler(false), "/metrics")
	if status != http.StatusOK || !strings.Contains(body, "fencepost_scrape_complete 1\n") {
		t.Fatalf("%d %s", status, body)
	}
	var lines []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "fencepost_shard") || strings.HasPrefix(line, "fencepost_host") {
			lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "fencepost_"))
		}
	}
	return lines
}

// A shard that does not answer costs a scrape itself, not the rest and not its client the time limit of Prometheus. One
// that has no primary is elected nowhere.
func TestMetricsOfAShardThatDoesNotAnswer(t *testing.T) {
	inProcess(t, "", func(t *testing.T, p *process) {
		p.shards[0].set(func(s *fakeShard) { s.mute = true })
		began := time.Now()
		got := strings.Join(shardMetrics(t, p), "\n")
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("took %v", took)
		}
		if !strings.Contains(got, "shards_answered 0") || strings.Contains(got, `shard="main"`) || !strings.Contains(got, `shard_state{shard="reports",state="healthy"} 1`) {
			t.Error(got)
		}
		p.shards[0].set(func(s *fakeShard) {
			s.mute, s.row.View.Elected, s.row.State, s.row.Doubt = false, "", health.Failover, ""
		})
		got = strings.Join(shardMetrics(t, p), "\n")
		for _, want := range []string{"shards_answered 1", `shard_state{shard="main",state="failover"} 1`, `shard_state{shard="main",state="healthy"} 0`,
			`shard_elected{host="10.0.0.1:5433",shard="main"} 0`, `shard_doubt{shard="main"} 0`} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in\n%s", want, got)
			}
		}
	})
}
