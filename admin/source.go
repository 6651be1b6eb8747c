package admin

import (
	"context"
	"runtime"
	"strconv"
	"time"

	"fencepost/actors/backend/cancellease"
	"fencepost/actors/lane/pool"
	"fencepost/eventloop"
	"fencepost/metrics"
)

// source answers a scrape: a message to the lanes of each loop and to each shard's actor, and counters that anybody may
// read. A loop that does not answer in time costs the scrape its pools only, a shard itself and its hosts, the fleet itself.
func source(ops Operations) metrics.Source {
	return func(ctx context.Context) []metrics.Family {
		f := processFamilies(ops)
		f = append(f, loopFamilies(ops.Loops())...)
		shards, fleet := askShards(ops, ops.Shards()...), askFleet(ops)
		rows, err := lanes(ctx, ops)
		f = append(f, metrics.Family{Name: "loops_answered", Type: metrics.Gauge, Samples: single(truth(err == nil)),
			Help: "1 if every event loop answered this scrape in time; 0 if pools are missing from it."})
		f = append(f, poolFamilies(pools(rows))...)
		f = append(f, shardFamilies(shards.answers(ctx))...)
		return append(f, fleetFamilies(ctx, fleet)...)
	}
}

func single(v float64, labels ...string) []metrics.Sample {
	return []metrics.Sample{{Value: v, Labels: labels}}
}

func processFamilies(ops Operations) []metrics.Family {
	standstills, standstill := ops.Standstills()
	return []metrics.Family{
		{Name: "build_info", Type: metrics.Gauge, Labels: []string{"version", "goversion"},
			Samples: single(1, ops.Version(), runtime.Version()), Help: "Always 1; the labels say what runs."},
		{Name: "actors", Type: metrics.Gauge, Samples: single(float64(ops.Actors())), Help: "Live actors."},
		{Name: "clients", Type: metrics.Gauge, Samples: single(float64(ops.Clients())),
			Help: "Client connections, including those still logging in and console sessions."},
		{Name: "max_client_conn", Type: metrics.Gauge, Samples: single(float64(ops.Config().Fencepost.MaxClientConn)),
			Help: "Most client connections allowed (max_client_conn)."},
		{Name: "standstills_total", Type: metrics.Counter, Samples: single(float64(standstills)),
			Help: "Times the process did not run for more than a second: frozen, without a CPU, asleep with its machine, or held up in Go's runtime."},
		{Name: "standstill_seconds_total", Type: metrics.Counter, Samples: single(standstill.Seconds()), Help: "How long all of these were."},
		{Name: "draining", Type: metrics.Gauge, Samples: single(truth(ops.Draining())),
			Help: "1 once the process was ordered to end; it refuses new clients when drain_grace is over."},
	}
}

func loopFamilies(loops []eventloop.Loop) []metrics.Family {
	type column struct {
		name, help string
		typ        metrics.Type
		value      func(*eventloop.Stats) float64
	}
	columns := []column{
		{"turns_total", "Events handled.", metrics.Counter, func(s *eventloop.Stats) float64 { return float64(s.Turns) }},
		{"waits_total", "Waits in the kernel.", metrics.Counter, func(s *eventloop.Stats) float64 { return float64(s.Waits) }},
		{"wakeups_total", "Wake-ups from other threads.", metrics.Counter, func(s *eventloop.Stats) float64 { return float64(s.Wakeups) }},
		{"posted_total", "Functions and mailbox runs queued.", metrics.Counter, func(s *eventloop.Stats) float64 { return float64(s.Posted) }},
		{"reads_total", "Reads from sockets.", metrics.Counter, func(s *eventloop.Stats) float64 { return float64(s.Reads) }},
		{"writes_total", "Writes to sockets.", metrics.Counter, func(s *eventloop.Stats) float64 { return float64(s.Writes) }},
		{"short_writes_total", "Writes that had to be queued.", metrics.Counter, func(s *eventloop.Stats) float64 { return float64(s.ShortWrites) }},
		{"read_bytes_total", "Bytes read from sockets.", metrics.Counter, func(s *eventloop.Stats) float64 { return float64(s.BytesRead) }},
		{"written_bytes_total", "Bytes written to sockets.", metrics.Counter, func(s *eventloop.Stats) float64 { return float64(s.BytesWritten) }},
		{"panics_total", "Panics recovered.", metrics.Counter, func(s *eventloop.Stats) float64 { return float64(s.Panics) }},
		{"stale_events_total", "Events for connections already gone.", metrics.Counter, func(s *eventloop.Stats) float64 { return float64(s.StaleEvents) }},
		{"accept_failures_total", "Connections that could not be accepted.", metrics.Counter, func(s *eventloop.Stats) float64 { return float64(s.AcceptFailures) }},
		{"connections", "Open sockets.", metrics.Gauge, func(s *eventloop.Stats) float64 { return float64(s.Conns) }},
		{"timers", "Armed timers.", metrics.Gauge, func(s *eventloop.Stats) float64 { return float64(s.Timers) }},
		{"queued_bytes", "Bytes the kernel has not taken yet.", metrics.Gauge, func(s *eventloop.Stats) float64 { return float64(s.QueuedBytes) }},
		{"heartbeat_age_seconds", "Time since the loop was last seen alive.", metrics.Gauge, func(s *eventloop.Stats) float64 {
			return max(time.Since(s.Heartbeat), 0).Seconds()
		}},
	}
	stats := make([]eventloop.Stats, len(loops))
	for i, l := range loops {
		stats[i] = l.Stats()
	}
	var all []metrics.Family
	for _, c := range columns {
		f := metrics.Family{Name: "loop_" + c.name, Help: c.help, Type: c.typ, Labels: []string{"loop"}}
		for i := range stats {
			f.Samples = append(f.Samples, metrics.Sample{Labels: []string{strconv.Itoa(loops[i].Index())}, Value: c.value(&stats[i])})
		}
		all = append(all, f)
	}
	return all
}

// poolColumn is one metric per pool.
type poolColumn struct {
	name, help string
	typ        metrics.Type
	value      func(*poolRow) float64
	histogram  func(*poolRow) *metrics.Histogram
}

var poolColumns = []poolColumn{
	{name: "clients", typ: metrics.Gauge, help: "Clients that are logged in or wait for their login.", value: func(p *poolRow) float64 { return float64(p.clients) }},
	{name: "clients_waiting", typ: metrics.Gauge, help: "Clients that wait for a server connection.", value: func(p *poolRow) float64 { return float64(p.waiting) }},
	{name: "max_wait_seconds", typ: metrics.Gauge, help: "Wait so far of the client that has waited longest.", value: func(p *poolRow) float64 { return p.oldest.Seconds() }},
	{name: "paused", typ: metrics.Gauge, help: "Whether the pool is paused.", value: func(p *poolRow) float64 { return truth(p.paused) }},
	{name: "failing", typ: metrics.Gauge, help: "Whether no server connection is open and the last attempt failed.", value: func(p *poolRow) float64 { return truth(p.failing) }},
	{name: "cancels", typ: metrics.Gauge, help: "Cancel requests on their way to a server.", value: func(p *poolRow) float64 { return float64(p.cancelling) }},
	{name: "size", typ: metrics.Gauge, help: "Server connections the pool may open.", value: func(p *poolRow) float64 {
		if p.spec == nil {
			return 0
		}
		return float64(p.spec.Size)
	}},

	{name: "assignments_total", typ: metrics.Counter, help: "Server connections given to clients.", value: func(p *poolRow) float64 { return float64(p.stats.Assignments) }},
	{name: "transactions_total", typ: metrics.Counter, help: "Transactions.", value: func(p *poolRow) float64 { return float64(p.stats.Transactions) }},
	{name: "queries_total", typ: metrics.Counter, help: "Queries.", value: func(p *poolRow) float64 { return float64(p.stats.Queries) }},
	{name: "received_bytes_total", typ: metrics.Counter, help: "Bytes from clients.", value: func(p *poolRow) float64 { return float64(p.stats.Received) }},
	{name: "sent_bytes_total", typ: metrics.Counter, help: "Bytes to clients.", value: func(p *poolRow) float64 { return float64(p.stats.Sent) }},
	{name: "transaction_time_seconds_total", typ: metrics.Counter, help: "Time in transactions.", value: func(p *poolRow) float64 { return p.stats.TransactionTime.Seconds() }},
	{name: "query_time_seconds_total", typ: metrics.Counter, help: "Time in queries.", value: func(p *poolRow) float64 { return p.stats.QueryTime.Seconds() }},
	{name: "wait_time_seconds_total", typ: metrics.Counter, help: "Time clients waited for a server connection.", value: func(p *poolRow) float64 { return p.stats.WaitTime.Seconds() }},
	{name: "client_logins_total", typ: metrics.Counter, help: "Logins of clients.", value: func(p *poolRow) float64 { return float64(p.stats.Logins) }},
	{name: "parses_total", typ: metrics.Counter, help: "Parse messages.", value: func(p *poolRow) float64 { return float64(p.stats.Parses) }},
	{name: "binds_total", typ: metrics.Counter, help: "Bind messages.", value: func(p *poolRow) float64 { return float64(p.stats.Binds) }},
	{name: "unowned_statements_total", typ: metrics.Counter, help: "Messages about prepared statements that their client did not have (SQLSTATE 26000).", value: func(p *poolRow) float64 { return float64(p.stats.UnownedStatements) }},
	{name: "refused_total", typ: metrics.Counter, help: "Requests refused because query_wait_timeout was over.", value: func(p *poolRow) float64 { return float64(p.stats.Refused) }},
	{name: "server_dials_total", typ: metrics.Counter, help: "Attempts to open a server connection.", value: func(p *poolRow) float64 { return float64(p.stats.Dials) }},
	{name: "server_dial_failures_total", typ: metrics.Counter, help: "Attempts to open a server connection that failed.", value: func(p *poolRow) float64 { return float64(p.stats.DialFailures) }},
	{name: "server_losses_total", typ: metrics.Counter, help: "Server connections lost unexpectedly.", value: func(p *poolRow) float64 { return float64(p.stats.Losses) }},

	{name: "wait_seconds", typ: metrics.Distribution, help: "Wait of clients for a server connection.", histogram: func(p *poolRow) *metrics.Histogram { return &p.stats.Wait }},
	{name: "query_seconds", typ: metrics.Distribution, help: "Duration of queries.", histogram: func(p *poolRow) *metrics.Histogram { return &p.stats.Query }},
	{name: "cancel_lease_seconds", typ: metrics.Distribution, help: "How long cancels kept a server connection from the next client.", histogram: func(p *poolRow) *metrics.Histogram { return &p.stats.CancelLease }},
	{name: "fence_seconds", typ: metrics.Distribution, help: "Time from a fence's question to its answer.", histogram: func(p *poolRow) *metrics.Histogram { return &p.stats.FenceTime }},
	{name: "primary_wait_seconds", typ: metrics.Distribution, help: "Wait of writes that found no primary.", histogram: func(p *poolRow) *metrics.Histogram { return &p.stats.PrimaryWait }},
	{name: "transaction_seconds", typ: metrics.Distribution, help: "Duration of transactions.", histogram: func(p *poolRow) *metrics.Histogram { return &p.stats.Transaction }},
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func poolFamilies(all []*poolRow) []metrics.Family {
	families := make([]metrics.Family, 0, len(poolColumns)+1)
	for _, c := range poolColumns {
		f := metrics.Family{Name: "pool_" + c.name, Help: c.help, Type: c.typ, Labels: []string{"database", "user"}}
		for _, p := range all {
			s := metrics.Sample{Labels: []string{p.key.Database, p.key.ServerUser}}
			if c.histogram != nil {
				s.Histogram = c.histogram(p)
			} else {
				s.Value = c.value(p)
			}
			f.Samples = append(f.Samples, s)
		}
		families = append(families, f)
	}
	servers := metrics.Family{Name: "pool_servers", Type: metrics.Gauge, Labels: []string{"database", "user", "state"},
		Help: "Server connections by state."}
	for _, p := range all {
		for state := pool.Dialling; state <= pool.Closing; state++ {
			servers.Samples = append(servers.Samples, metrics.Sample{Labels: []string{p.key.Database, p.key.ServerUser, state.String()},
				Value: float64(p.servers[state])})
		}
		servers.Samples = append(servers.Samples, metrics.Sample{Labels: []string{p.key.Database, p.key.ServerUser, "being_canceled"},
			Value: float64(p.beingCanceled)})
	}
	return append(families, servers, cancelFamily(all), fenceFamily(all))
}

// cancelFamily counts cancels by what became of them. Those of outcome timed_out ran into cancel_ack_timeout.
func cancelFamily(all []*poolRow) metrics.Family {
	f := metrics.Family{Name: "pool_cancels_total", Type: metrics.Counter, Labels: []string{"database", "user", "outcome"},
		Help: "Cancels by outcome: sent to a server (delivered, not_sent, uncertain, timed_out), dropped because the client had left, or of a client in the queue or idle."}
	for _, p := range all {
		add := func(outcome string, n uint64) {
			f.Samples = append(f.Samples, metrics.Sample{Labels: []string{p.key.Database, p.key.ServerUser, outcome}, Value: float64(n)})
		}
		for o, n := range p.stats.Cancels {
			add(cancellease.Outcome(o).String(), n)
		}
		add("queue", p.stats.QueueCancels)
		add("idle", p.stats.IdleCancels)
	}
	return f
}
