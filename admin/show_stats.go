package admin

import (
	"maps"
	"slices"
	"time"
)

// statNames are the counters' names by column, in the order of counters.
var (
	statTotals = [counterKinds]string{"total_server_assignment_count", "total_xact_count", "total_query_count", "total_received",
		"total_sent", "total_xact_time", "total_query_time", "total_wait_time", "total_client_parse_count",
		"total_server_parse_count", "total_bind_count", "total_client_login_count"}
	statAverages = [counterKinds]string{"avg_server_assignment_count", "avg_xact_count", "avg_query_count", "avg_recv", "avg_sent",
		"avg_xact_time", "avg_query_time", "avg_wait_time", "avg_client_parse_count", "avg_server_parse_count",
		"avg_bind_count", "avg_client_login_count"}
	// The columns of STATS_TOTALS, and of STATS_AVERAGES but for the last four, which PgBouncer calls avg_… there.
	statPlain = [counterKinds]string{"server_assignment_count", "xact_count", "query_count", "bytes_received", "bytes_sent",
		"xact_time", "query_time", "wait_time", "client_parse_count", "server_parse_count", "bind_count", "client_login_count"}
	statRows = [counterKinds]string{"server_assignment_count", "xact_count", "query_count", "client_bytes", "server_bytes",
		"xact_time", "query_time", "wait_time", "client_parse_count", "server_parse_count", "bind_count", "client_login_count"}
)

// stat is a line of SHOW STATS.
type stat struct {
	database   string
	total, avg counters
}

// statistics is what all views of SHOW STATS show: per database, sorted, and over all of them.
func (x *execution) statistics() (by []stat, all stat, err error) {
	ctx, cancel := x.limited()
	defer cancel()
	rows, err := lanes(ctx, x.ops)
	if err != nil {
		return nil, stat{}, err
	}
	now := x.c.sampleNow(rows)
	x.c.mu.Lock()
	older := x.c.stats.older
	x.c.mu.Unlock()
	period := time.Duration(0)
	if older == nil {
		older = &sample{}
	} else {
		period = now.at.Sub(older.at)
	}
	var before counters
	for _, name := range slices.Sorted(maps.Keys(now.databases)) {
		s := stat{database: name, total: *now.databases[name]}
		old := older.databases[name]
		if old == nil {
			old = &counters{}
		}
		s.avg = s.total.average(old, period)
		all.total.sum(&s.total)
		before.sum(old)
		by = append(by, s)
	}
	all.avg = all.total.average(&before, period)
	return by, all, nil
}

// statTable makes a line per database of what pick chooses.
func statTable(x *execution, names []string, pick func(*stat) []counters) (*table, error) {
	by, _, err := x.statistics()
	if err != nil {
		return nil, err
	}
	t := &table{columns: "s", names: append([]string{"database"}, names...)}
	for range names {
		t.columns += "N"
	}
	for i := range by {
		values := []any{by[i].database}
		for _, c := range pick(&by[i]) {
			for _, n := range c {
				values = append(values, n)
			}
		}
		t.row(values...)
	}
	return t, nil
}

func showStats(x *execution) (*table, error) {
	return statTable(x, slices.Concat(statTotals[:], statAverages[:]), func(s *stat) []counters { return []counters{s.total, s.avg} })
}

func showStatsTotals(x *execution) (*table, error) {
	return statTable(x, statPlain[:], func(s *stat) []counters { return []counters{s.total} })
}

func showStatsAverages(x *execution) (*table, error) {
	names := slices.Concat(statPlain[:clientParseCount], statAverages[clientParseCount:])
	return statTable(x, names, func(s *stat) []counters { return []counters{s.avg} })
}

func showTotals(x *execution) (*table, error) {
	_, all, err := x.statistics()
	if err != nil {
		return nil, err
	}
	t := &table{columns: "sN", names: []string{"name", "value"}}
	for i, n := range statRows {
		t.row("total_"+n, all.total[i])
	}
	for i, n := range statRows {
		t.row("avg_"+n, all.avg[i])
	}
	return t, nil
}
