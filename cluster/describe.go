package cluster

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"fencepost/cluster/evidence"
	"fencepost/metrics"
	"fencepost/role"
)

// Description is the fleet as this member sees it, for SHOW FLEET and SHOW EVIDENCE. It is a copy.
type Description struct {
	Name     string
	Ready    bool // shards may grant writes
	Joined   bool // some other member was heard
	Open     bool // the address is bound
	Size     int  // fleet_size
	Alive    int  // members that are, this one included
	Keys     int  // secret keys in use
	Records  int
	Members  []MemberRow
	Evidence []EvidenceRow
	Problems []ProblemRow
}

// MemberRow is one run of one process.
type MemberRow struct {
	Member    string
	Self      bool
	Address   string
	State     State
	Since     time.Time // of State
	Version   string
	Boot      string
	PeerID    uint32
	RoundTrip time.Duration // of the last probe; 0: none yet
	LastHeard time.Time     // this member hears itself all the time
	Clients   uint32
	Servers   uint32
	Draining  bool
	Admin     string
	// SettingsDiffer: it does not have the settings this member has. Differs says which, once it has answered.
	SettingsDiffer bool
	Differs        []string
}

// EvidenceRow is what one observer said of one host, and the highest timeline it claims for it.
type EvidenceRow struct {
	Shard       string
	Host        role.Host
	Member      string // the observer's name
	Boot        string
	Self        bool
	Observation role.Observation // Asked is zero if there is a claim only
	Age         time.Duration    // of Observation
	Seq         uint64
	Claim       role.Floor // Timeline 0: none
	ClaimAge    time.Duration
}

func (f *fleet) memberRows() []MemberRow {
	all := f.roster.sorted()
	rows := make([]MemberRow, 0, len(all))
	for _, m := range all {
		r := MemberRow{
			Member: m.Member, Self: m.self, Address: m.node.addr.String(), State: m.state, Since: m.since, Version: m.Version, Boot: m.Boot.String(),
			PeerID: m.PeerID, RoundTrip: m.trip, LastHeard: m.heard, Clients: m.clients, Servers: m.servers, Draining: m.Draining,
			Admin: m.Admin, Differs: slices.Clone(m.differs),
			SettingsDiffer: f.meta.Settings != 0 && m.Settings != 0 && f.meta.Settings != m.Settings,
		}
		if m.self {
			load := f.store.load.Load()
			r.LastHeard, r.Clients, r.Servers = time.Now(), uint32(load>>32), uint32(load)
		}
		rows = append(rows, r)
	}
	return rows
}

func (f *fleet) describe(now time.Time) *Description {
	d := &Description{
		Name: f.cfg.Name, Ready: f.ready, Joined: f.joined, Open: f.link != nil, Size: f.cfg.Size, Alive: f.roster.alive(),
		Keys: len(f.keys.GetKeys()), Members: f.memberRows(), Problems: f.journal.rows(),
	}
	var all []evidence.Record
	f.store.locked(func(t *evidence.Table) { all = t.All(); d.Records, _ = t.Len() })
	rows := make(map[evidence.Key]*EvidenceRow)
	for _, r := range all {
		shard, ok := f.names[r.Shard]
		if !ok || r.Kind == evidence.Generation || r.Kind == evidence.Ordered {
			continue
		}
		k := r.Key
		k.Kind = 0
		row := rows[k]
		if row == nil {
			row = &EvidenceRow{Shard: shard, Host: role.Host(r.Host.String()), Member: f.roster.name(r.Observer), Boot: r.Observer.String(),
				Self: r.Observer == f.cfg.Boot}
			rows[k] = row
		}
		if r.Kind == evidence.Claimed {
			row.Claim, row.ClaimAge = r.Floor, now.Sub(r.At)
			continue
		}
		row.Observation, row.Age, row.Seq = r.Observed(""), now.Sub(r.At), r.Seq
		row.Observation.Source = r.Observation.Source
	}
	for _, row := range rows {
		d.Evidence = append(d.Evidence, *row)
	}
	slices.SortFunc(d.Evidence, compareRows)
	return d
}

func compareRows(a, b EvidenceRow) int {
	return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Member, b.Member), cmp.Compare(a.Boot, b.Boot))
}

// counts are what the actor counted.
type counts struct {
	packets, messages, states, records, news, rejected, skipped, failed, forged  uint64
	untold, direct, dropped, replayed, misdirected, undelivered                  uint64
	cancelsSent, cancelsReceived, cancelsRefused, cancelsUnknown, requests, late uint64
	joins, joined                                                                uint64
}

func (f *fleet) families() []metrics.Family {
	c := f.counts
	one := func(name, help string, t metrics.Type, v float64) metrics.Family {
		return metrics.Family{Name: name, Help: help, Type: t, Samples: []metrics.Sample{{Value: v}}}
	}
	many := func(name, help, label string, v map[string]uint64) metrics.Family {
		family := metrics.Family{Name: name, Help: help, Type: metrics.Counter, Labels: []string{label}}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			family.Samples = append(family.Samples, metrics.Sample{Labels: []string{k}, Value: float64(v[k])})
		}
		return family
	}
	states := map[State]int{}
	for _, m := range f.roster.byName {
		states[m.state]++
	}
	members := metrics.Family{Name: "fleet_members", Help: "Members by state, this one included.", Type: metrics.Gauge, Labels: []string{"state"}}
	for s := Alive; s <= Dead; s++ {
		members.Samples = append(members.Samples, metrics.Sample{Labels: []string{s.String()}, Value: float64(states[s])})
	}
	health := 0
	if f.link != nil {
		health = f.link.list.GetHealthScore()
	}
	var records, queued int
	f.store.mu.Lock()
	records, _ = f.store.table.Len()
	queued = f.store.queue.len()
	f.store.mu.Unlock()
	var ready float64
	if f.ready {
		ready = 1
	}
	return []metrics.Family{
		members,
		one("fleet_size", "Members the fleet should have (fleet_size).", metrics.Gauge, float64(f.cfg.Size)),
		one("fleet_ready", "Whether this member has heard the others or waited long enough to grant writes.", metrics.Gauge, ready),
		one("fleet_health_score", "Memberlist's health score of this member: 0 is healthy, more means that its own probes are late.", metrics.Gauge, float64(health)),
		one("fleet_records", "Records of evidence that are kept.", metrics.Gauge, float64(records)),
		one("fleet_queued_records", "Records still to be sent to other members.", metrics.Gauge, float64(queued)),
		one("fleet_problems", "Distinct problems shown by SHOW FLEET.", metrics.Gauge, float64(f.journal.len())),
		many("fleet_received_total", "Messages and records received from other members, by kind.", "what", map[string]uint64{
			"packet": c.packets, "message": c.messages, "state": c.states, "record": c.records, "news": c.news}),
		many("fleet_dropped_total", "Messages and records dropped, by reason.", "why", map[string]uint64{
			"unreadable": c.skipped, "rejected": c.rejected, "bug": c.failed, "forged": c.forged, "replayed": c.replayed,
			"misdirected": c.misdirected, "flood": f.store.dropped.Load(), "send_queue_full": c.dropped, "unreachable": c.undelivered,
			"not_an_address": c.untold, "late_answer": c.late}),
		many("fleet_cancels_total", "Cancels between members.", "what", map[string]uint64{
			"sent": c.cancelsSent, "received": c.cancelsReceived, "refused": c.cancelsRefused, "unknown": c.cancelsUnknown}),
		one("fleet_direct_messages_total", "Messages sent to a member directly because they were urgent.", metrics.Counter, float64(c.direct)),
		one("fleet_requests_total", "Operations that other members asked for.", metrics.Counter, float64(c.requests)),
		many("fleet_joins_total", "Attempts to join a member.", "outcome", map[string]uint64{"reached": c.joined, "failed": c.joins - c.joined}),
	}
}
