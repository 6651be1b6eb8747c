package admin

import (
	"context"
	"strings"

	"fencepost/pgerr"
	"fencepost/wire"
)

// shows are the results of SHOW by name, in lower case.
var shows = map[string]func(x *execution) (*table, error){
	"active_sockets": nil,
	"clients":        showClients,
	"config":         showConfig,
	"databases":      showDatabases,
	"dns_hosts":      empty("sqs", "hostname", "ttl", "addrs"),
	"dns_zones":      empty("sqi", "zonename", "serial", "count"),
	"elections":      showElections,
	"evidence":       showEvidence,
	"fds":            nil,
	"fleet":          showFleet,
	"lists":          showLists,
	"loops":          showLoops,
	"mem":            nil,
	"peer_pools":     empty("iiiii", "peer_id", "cl_active_cancel_req", "cl_waiting_cancel_req", "sv_active_cancel", "sv_login"),
	"peers":          showPeers,
	"pools":          showPools,
	"replication":    showReplication,
	"servers":        showServers,
	"shards":         showShards,
	"sockets":        nil,
	"state":          showState,
	"stats":          showStats,
	"stats_averages": showStatsAverages,
	"stats_totals":   showStatsTotals,
	"totals":         showTotals,
	"users":          showUsers,
	"version":        showVersion,
}

// empty is a result that never has rows here: cancels go to peers without a pool, and there is no DNS cache of our own.
func empty(columns string, names ...string) func(*execution) (*table, error) {
	return func(*execution) (*table, error) { return &table{columns: columns, names: names}, nil }
}

func show(x *execution, s statement) error {
	if t := parameter(s.args()); t != nil {
		x.out = t.encode(x.out, "SHOW")
		return nil
	}
	args := s.args()
	if len(args) != 1 || args[0].kind != 'w' {
		return pgerr.ConsoleSyntax(s.text)
	}
	name := strings.ToLower(args[0].text)
	if name == "help" {
		x.out = wire.AppendNotice(x.out, &pgerr.Error{Code: pgerr.SuccessfulCompletion, Message: "Console usage", Detail: help})
		return x.done("SHOW")
	}
	build, ok := shows[name]
	switch {
	case !ok:
		return pgerr.ConsoleSyntax(s.text)
	case build == nil:
		return pgerr.FeatureNotSupported("SHOW " + strings.ToUpper(name) + " is not available")
	}
	t, err := build(x)
	if x.ctx.Err() != nil { // what is missing then is nobody's silence
		return context.Cause(x.ctx)
	}
	if err != nil {
		return err
	}
	x.out = t.encode(x.out, "SHOW")
	return nil
}

const help = `
	SHOW HELP|CONFIG|DATABASES|POOLS|CLIENTS|SERVERS|USERS|VERSION
	SHOW PEERS|PEER_POOLS
	SHOW LISTS|STATE|LOOPS
	SHOW SHARDS|REPLICATION|ELECTIONS
	SHOW FLEET|EVIDENCE
	SHOW DNS_HOSTS|DNS_ZONES
	SHOW STATS|STATS_TOTALS|STATS_AVERAGES|TOTALS
	RELOAD [FLEET]
	PAUSE [<db>] [FLEET [WITHOUT <member>, ...]]
	RESUME [<db>] [FLEET]
	RECONNECT [<db>] [FLEET]
	WAIT_CLOSE [<db>]
	KILL_CLIENT <client_id>
	FORGET <shard> [FLEET]
	SWITCHOVER <shard> [<seconds>] [WITHOUT <member>, ...]
	DRAIN
	SHUTDOWN
	SHUTDOWN WAIT_FOR_SERVERS|WAIT_FOR_CLIENTS`
