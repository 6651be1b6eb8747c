package admin

import (
	"fencepost/actors/lane"
	"fencepost/actors/monitor"
	"fencepost/actors/shard"
	"fencepost/actors/shard/health"
	"fencepost/metrics"
)

// shardColumns are the metrics with one value per shard.
var shardColumns = []struct {
	name, help string
	typ        metrics.Type
	value      func(*shard.Row) float64
}{
	{"epoch", "Number of the present view; it moves when the primary, its demotion or the floor changes.", metrics.Gauge, func(r *shard.Row) float64 { return float64(r.View.Epoch) }},
	{"floor_timeline", "Lowest timeline that may get writes; 0 before one was seen.", metrics.Gauge, func(r *shard.Row) float64 { return float64(r.Floor.Timeline) }},
	{"generation", "Number of FORGETs carried out; kept over a restart with a state_file.", metrics.Gauge, func(r *shard.Row) float64 { return float64(r.Floor.Generation) }},
	{"doubt", "1 while every write needs a fence because evidence speaks against the primary.", metrics.Gauge, func(r *shard.Row) float64 { return truth(r.Doubt != "") }},
	{"primary_connections", "Open connections to the primary, or the last one.", metrics.Gauge, func(r *shard.Row) float64 { return float64(r.Connections) }},
	{"elections_total", "Changes of the primary, including to none.", metrics.Counter, func(r *shard.Row) float64 { return float64(r.Counts.Elections) }},
	{"demotions_total", "Times a host that took writes showed that it no longer does.", metrics.Counter, func(r *shard.Row) float64 { return float64(r.Counts.Demotions) }},
	{"doubts_total", "Times the primary came into doubt.", metrics.Counter, func(r *shard.Row) float64 { return float64(r.Counts.Doubts) }},
	{"forgets_total", "FORGETs carried out since the start.", metrics.Counter, func(r *shard.Row) float64 { return float64(r.Counts.Forgets) }},
	{"restarts_total", "Restarts of the shard's actor after a failure.", metrics.Counter, func(r *shard.Row) float64 { return float64(r.Counts.Restarts) }},
}

// shardStates are all states a shard can be in.
var shardStates = []health.State{health.Unhealthy, health.Healthy, health.Failover}

// shardFamilies are the metrics of shards and their hosts. A shard whose actor did not answer is missing from them, and
// shards_answered is 0.
func shardFamilies(all []described) []metrics.Family {
	var rows []*shard.Row
	answered := true
	for _, d := range all {
		if d.row == nil {
			answered = false
			continue
		}
		rows = append(rows, d.row)
	}
	families := []metrics.Family{{Name: "shards_answered", Type: metrics.Gauge, Samples: single(truth(answered)),
		Help: "1 if every shard answered this scrape in time; 0 if shards are missing from it."}}
	for _, c := range shardColumns {
		f := metrics.Family{Name: "shard_" + c.name, Help: c.help, Type: c.typ, Labels: []string{"shard"}}
		for _, r := range rows {
			f.Samples = append(f.Samples, metrics.Sample{Labels: []string{r.Name}, Value: c.value(r)})
		}
		families = append(families, f)
	}
	families = append(families, stateFamilies(rows)...)
	return append(families, hostFamilies(rows)...)
}

func stateFamilies(rows []*shard.Row) []metrics.Family {
	state := metrics.Family{Name: "shard_state", Type: metrics.Gauge, Labels: []string{"shard", "state"},
		Help: "1 for the state the shard is in, 0 for the others."}
	entered := metrics.Family{Name: "shard_state_entered_total", Type: metrics.Counter, Labels: []string{"shard", "state"},
		Help: "Times the shard entered the state."}
	for _, r := range rows {
		for _, s := range shardStates {
			labels := []string{r.Name, s.String()}
			state.Samples = append(state.Samples, metrics.Sample{Labels: labels, Value: truth(r.State == s)})
			entered.Samples = append(entered.Samples, metrics.Sample{Labels: labels, Value: float64(r.Counts.States[s])})
		}
	}
	return []metrics.Family{state, entered}
}

// hostColumns are the metrics with one value per host; ok is false where there is nothing to tell.
var hostColumns = []struct {
	name, help string
	value      func(*shard.HostRow) (v float64, ok bool)
}{
	{"reads", "Whether the host serves reads of clients that ask for a standby.", func(h *shard.HostRow) (float64, bool) { return truth(h.Reads), true }},
	{"monitor_up", "Whether the host answered its last probe.", func(h *shard.HostRow) (float64, bool) { return truth(h.Monitor == monitor.Up), true }},
	{"evidence_age_seconds", "Time since the host was asked for the last answer it gave.", func(h *shard.HostRow) (float64, bool) {
		return h.Age.Seconds(), !h.Last.Asked.IsZero()
	}},
	{"lag_seconds", "How far a standby's replay is behind, by its last answer.", func(h *shard.HostRow) (float64, bool) {
		d, _, ok := lag(h)
		return d.Seconds(), ok && h.Last.LagKnown
	}},
	{"lag_bytes", "What a standby has received and not replayed, by its last answer.", func(h *shard.HostRow) (float64, bool) {
		_, n, ok := lag(h)
		return float64(n), ok && h.Last.LSN != 0
	}},
}

func hostFamilies(rows []*shard.Row) []metrics.Family {
	elected := metrics.Family{Name: "shard_elected", Type: metrics.Gauge, Labels: []string{"shard", "host"},
		Help: "1 for the host that gets the writes, 0 for the others."}
	roles := metrics.Family{Name: "host_role", Type: metrics.Gauge, Labels: []string{"shard", "host", "role"},
		Help: "1 for what the host is: primary (elected), standby, read-only, writable (and not elected), foreign or unknown."}
	families := make([]metrics.Family, 0, len(hostColumns)+2)
	for _, c := range hostColumns {
		families = append(families, metrics.Family{Name: "host_" + c.name, Help: c.help, Type: metrics.Gauge, Labels: []string{"shard", "host"}})
	}
	for _, r := range rows {
		found := r.View.Elected == ""
		for i := range r.Hosts {
			h := &r.Hosts[i]
			labels := []string{r.Name, string(h.Host)}
			is := r.View.Elected == string(h.Host)
			found = found || is
			elected.Samples = append(elected.Samples, metrics.Sample{Labels: labels, Value: truth(is)})
			if r.Static {
				continue // role any: it has no monitor
			}
			roles.Samples = append(roles.Samples, metrics.Sample{Labels: append(labels[:2:2], hostRole(h)), Value: 1})
			for j, c := range hostColumns {
				if v, ok := c.value(h); ok {
					families[j].Samples = append(families[j].Samples, metrics.Sample{Labels: labels, Value: v})
				}
			}
		}
		if !found {
			elected.Samples = append(elected.Samples, metrics.Sample{Labels: []string{r.Name, r.View.Elected}, Value: 1})
		}
	}
	return append(families, elected, roles)
}

// fenceFamily counts fences by what the server said.
func fenceFamily(all []*poolRow) metrics.Family {
	f := metrics.Family{Name: "pool_fences_total", Type: metrics.Counter, Labels: []string{"database", "user", "verdict"},
		Help: "Fences by verdict: ok, no (it cannot take writes), failed, or slow (no answer before the client's time was over)."}
	for _, p := range all {
		for v, n := range p.stats.Fences {
			f.Samples = append(f.Samples, metrics.Sample{Labels: []string{p.key.Database, p.key.ServerUser, lane.FenceVerdict(v).String()}, Value: float64(n)})
		}
	}
	return f
}
