package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"fencepost/cluster"
	"fencepost/metrics"
)

// maxProblems bounds the problems that SHOW FLEET has, the latest ones.
const maxProblems = 8

// describeFleet asks the fleet's actor what it knows; nil without a fleet.
func (x *execution) describeFleet() (*cluster.Description, error) {
	fleet := x.ops.Fleet()
	if fleet == nil {
		return nil, nil
	}
	ctx, cancel := x.limited()
	defer cancel()
	reply := make(chan *cluster.Description, 1)
	x.ops.System().Root.Send(fleet, &cluster.Describe{Reply: reply})
	switch d, ok := receive(ctx, reply); {
	case ok:
		return d, nil
	case x.ctx.Err() != nil: // the session's end is nobody's silence
		return nil, context.Cause(x.ctx)
	}
	return nil, errSilentFleet
}

// showFleet is SHOW FLEET, which PgBouncer has not: the members as this one sees them. What is wrong with the fleet as a
// whole is among the problems of this member, whose self is yes.
func showFleet(x *execution) (*table, error) {
	t := &table{columns: "ssisssNiiqssiis", names: []string{"member", "address", "peer_id", "state", "version", "boot", "round_trip_ms",
		"clients", "servers", "last_heard_ms", "draining", "problems", "alive", "fleet_size", "self"}}
	d, err := x.describeFleet()
	if d == nil || err != nil {
		return t, err
	}
	now := time.Now()
	for i := range d.Members {
		m := &d.Members[i]
		var trip, heard any = null{}, null{}
		if m.RoundTrip > 0 {
			trip = fmt.Sprintf("%.3f", float64(m.RoundTrip)/float64(time.Millisecond))
		}
		if !m.LastHeard.IsZero() {
			heard = max(now.Sub(m.LastHeard), 0).Milliseconds()
		}
		problems := memberProblems(m)
		if m.Self {
			problems = append(problems, fleetProblems(d)...)
		}
		t.row(m.Member, m.Address, orNone(uint64(m.PeerID)), m.State.String(), m.Version, m.Boot, trip, m.Clients, m.Servers, heard,
			yesNo(m.Draining), orNull(strings.Join(problems, "; ")), d.Alive, d.Size, yesNo(m.Self))
	}
	return t, nil
}

func memberProblems(m *cluster.MemberRow) []string {
	switch {
	case m.Self || !m.SettingsDiffer:
		return nil
	case len(m.Differs) == 0:
		return []string{"its settings differ"}
	}
	return []string{"its settings differ: " + strings.Join(m.Differs, ", ")}
}

func fleetProblems(d *cluster.Description) (problems []string) {
	if !d.Open {
		problems = append(problems, "it is not listening on its fleet address")
	}
	if !d.Ready {
		problems = append(problems, "it waits for the others before it grants writes")
	}
	if d.Alive != d.Size {
		problems = append(problems, fmt.Sprintf("%d members are alive, fleet_size is %d", d.Alive, d.Size))
	}
	for _, p := range d.Problems[:min(len(d.Problems), maxProblems)] { // the latest one is first
		text := p.What
		if p.Detail != "" {
			text += " (" + p.Detail + ")"
		}
		problems = append(problems, fmt.Sprintf("%s: %d times, last at %s", text, p.Count, timestamp(p.Last)))
	}
	return problems
}

// showEvidence is SHOW EVIDENCE, which PgBouncer has not: what each member said of each host, and the highest timeline
// that it claims to have seen a primary on there. It is what was told, not what is believed: SHOW REPLICATION has that.
func showEvidence(x *execution) (*table, error) {
	t := &table{columns: "sssssqsqssqqqs", names: []string{"shard", "host", "member", "kind", "verdict", "timeline", "lsn", "age_ms", "source",
		"system_identifier", "claim_timeline", "claim_generation", "claim_age_ms", "self"}}
	d, err := x.describeFleet()
	if d == nil || err != nil {
		return t, err
	}
	for i := range d.Evidence {
		t.evidence(&d.Evidence[i])
	}
	return t, nil
}

func (t *table) evidence(r *cluster.EvidenceRow) {
	var kinds []string
	var verdict, timeline, lsn, age, source, id any = null{}, null{}, null{}, null{}, null{}, null{}
	if o := &r.Observation; !o.Asked.IsZero() {
		kinds = append(kinds, "seen")
		verdict, timeline, age, source, id = o.Verdict.String(), orNone(uint64(o.Timeline)), r.Age.Milliseconds(), o.Source.String(), orNone(o.SystemID)
		if o.LSN != 0 {
			lsn = logPosition(o.LSN)
		}
	}
	var claim, generation, claimAge any = null{}, null{}, null{}
	if r.Claim.Timeline != 0 {
		kinds = append(kinds, "claimed")
		claim, generation, claimAge = r.Claim.Timeline, r.Claim.Generation, r.ClaimAge.Milliseconds()
	}
	t.row(r.Shard, string(r.Host), r.Member, strings.Join(kinds, ", "), verdict, timeline, lsn, age, source, id, claim, generation, claimAge, yesNo(r.Self))
}

// logPosition is an LSN as PostgreSQL writes it.
func logPosition(lsn uint64) string { return fmt.Sprintf("%X/%X", lsn>>32, uint32(lsn)) }

// askFleet asks the fleet's actor for its metrics, without waiting; nil without a fleet.
func askFleet(ops Operations) chan []metrics.Family {
	fleet := ops.Fleet()
	if fleet == nil {
		return nil
	}
	reply := make(chan []metrics.Family, 1)
	ops.System().Root.Send(fleet, &cluster.Scrape{Reply: reply})
	return reply
}

// fleetFamilies are the metrics of the fleet. Without a fleet there are none; without an answer fleet_answered is 0.
func fleetFamilies(ctx context.Context, reply chan []metrics.Family) []metrics.Family {
	if reply == nil {
		return nil
	}
	families, ok := receive(ctx, reply)
	return append(families, metrics.Family{Name: "fleet_answered", Type: metrics.Gauge, Samples: single(truth(ok)),
		Help: "1 if the fleet's actor answered this scrape in time; 0 if the fleet is missing from it."})
}
