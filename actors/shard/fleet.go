package shard

import (
	"net/netip"
	"time"

	"github.com/rs/zerolog"

	"fencepost/actors/shard/election"
	"fencepost/cluster"
	"fencepost/cluster/evidence"
	"fencepost/role"
)

// This file is what a shard tells the fleet, and what it makes of what the fleet says: see evidence.Judge.

// peers is what is kept of the fleet over a restart of the actor.
type peers struct {
	judge     evidence.Judge
	claim     election.FloorClaim // the one in force
	seat      election.Seat       // likewise
	ready     bool                // the shard may grant writes, as far as the fleet is concerned
	published map[role.Host]published
	floor     role.Floor // told to the others
	ordered   time.Time  // when the last FORGET was given
	members   []netip.AddrPort
	kept      []evidence.FloorClaim // those that are adopted, if not stale
	stale     bool
	judges    bool // there is something of others to judge
}

// published is what the others were told of a host last.
type published struct {
	verdict  role.Verdict
	timeline uint32
	seat     uint64
	at       time.Time
}

// publishEvery is how often the others are sent what has not changed.
const publishEvery = 500 * time.Millisecond

// joinFleet asks for what the others say.
func (a *decider) joinFleet(now time.Time) {
	p, s := &a.mem.peers, &a.mem.file.state
	p.judges = a.cfg.Fleet != nil || len(s.claims) > 0
	if p.published == nil { // the first incarnation: what the process before this one has accepted still stands
		p.published = map[role.Host]published{}
		p.ordered, p.members = s.ordered, s.members
		a.judge(now, evidence.OrderKept{At: s.ordered})
		a.feedJudge(now)
		for _, c := range s.claims {
			a.judge(now, c)
		}
	}
	if c := p.claim; c.Floor.Timeline != 0 { // a restart has lost it
		a.elect(now, now, c)
	}
	if p.seat.Host != "" {
		a.elect(now, now, p.seat)
	}
	if a.cfg.Fleet == nil {
		p.ready = true
		return
	}
	var claims []evidence.Record
	for _, c := range p.adopted() {
		claims = append(claims, c.Record)
	}
	a.ctx.Send(a.cfg.Fleet, &cluster.Subscribe{Shard: a.cfg.Shard.Name, To: a.ctx.Self(), Generation: a.election.View().Floor.Generation,
		Claims: claims, Members: p.members})
	a.feedJudge(now)
}

// adopted are the claims that raise the floor here, for the state file and for members that come later.
func (p *peers) adopted() []evidence.FloorClaim {
	if p.stale {
		p.kept, p.stale = p.judge.Adopted(maxClaims), false
	}
	return p.kept
}

// feedJudge gives the judge the shard's own view. It is called after every step.
func (a *decider) feedJudge(now time.Time) {
	if !a.mem.peers.judges {
		return
	}
	v := a.election.View()
	a.judge(now, evidence.Decided{Elected: v.Elected, Floor: v.Floor})
	for _, h := range a.mem.peers.untold(a.list, v) {
		if o := a.election.Last(h); !o.Asked.IsZero() {
			a.publishObserved(now, o)
		}
	}
	own := v.Floor
	own.Timeline = v.Own
	if own == a.mem.peers.floor || own.Timeline == 0 || a.cfg.Fleet == nil {
		return
	}
	host, at := a.mem.file.state.host, v.Seen
	if o, ok := a.election.OnFloor(); ok {
		host, at = o.Host, o.Asked
	} else if host == "" || a.mem.file.state.floor.Timeline != own.Timeline || a.mem.file.state.floor.SystemID != own.SystemID {
		return // seen by an earlier process, which did not say where
	}
	a.mem.peers.floor = own
	a.ctx.Send(a.cfg.Fleet, &cluster.PublishFloorClaim{Shard: a.cfg.Shard.Name, Host: host, Floor: own, At: at})
}

// publishObserved tells the judge and the others of an answer: what is new at once, the rest now and then.
func (a *decider) publishObserved(now time.Time, o role.Observation) {
	if !a.mem.peers.judges {
		return
	}
	a.judge(now, evidence.OwnObserved{Observation: o})
	if a.cfg.Fleet == nil {
		return
	}
	last := a.mem.peers.published[o.Host]
	seat := seatOf(a.election.View(), o.Host)
	if last.verdict == o.Verdict && last.timeline == o.Timeline && last.seat == seat && now.Sub(last.at) < publishEvery {
		return
	}
	a.mem.peers.published[o.Host] = published{o.Verdict, o.Timeline, seat, now}
	a.ctx.Send(a.cfg.Fleet, &cluster.Publish{Shard: a.cfg.Shard.Name, Observation: o, Seat: seat})
}

// seatOf is the host's seat in a view; 0 if it is not the primary.
func seatOf(v election.View, h role.Host) uint64 {
	if v.Elected == h {
		return v.Seat
	}
	return 0
}

// untold are the hosts of which the others were told another seat than they have now.
func (p *peers) untold(list hostList, v election.View) (hosts []role.Host) {
	for _, h := range list {
		if p.published[h.Host].seat != seatOf(v, h.Host) {
			hosts = append(hosts, h.Host)
		}
	}
	return hosts
}

// claimedBy names the claim that raises the floor above what this process saw itself; "" if none does.
func (p *peers) claimedBy(v election.View) string {
	c := p.claim
	if c.Floor.Timeline <= v.Own || c.Floor.Timeline != v.Floor.Timeline || c.Floor.Generation != v.Floor.Generation {
		return ""
	}
	return c.Why
}

// judge gives the judge an event, and executes what it makes of it.
func (a *decider) judge(now time.Time, e evidence.Event) {
	switch e.(type) {
	case evidence.FloorClaim, evidence.ForgetOrdered, evidence.Hosts:
		a.mem.peers.stale = true
	}
	for _, e := range a.mem.peers.judge.Step(now, e) {
		switch e := e.(type) {
		case evidence.Floor:
			a.mem.peers.stale = true
			a.mem.peers.claim = election.FloorClaim{Host: e.Host, Floor: e.Floor, Why: e.Why}
			a.elect(now, now, a.mem.peers.claim)
		case evidence.Doubt:
			a.elect(now, now, election.Hint{Host: e.Host, Why: "reported by a peer: " + e.Why})
			a.monitors.probeAfterLoss(a.ctx, e.Host, a.election.View().Elected)
		case evidence.Probe:
			a.monitors.probe(a.ctx, e.Host)
		case evidence.Seat:
			a.mem.peers.seat = election.Seat(e)
			a.elect(now, now, a.mem.peers.seat)
		case evidence.Reconnect:
			a.monitors.reconnect(a.ctx, e.Host, e.Since)
		case evidence.TakeOver:
			a.elect(now, now, election.TakeOver{Generation: e.Generation})
		case evidence.Forget:
			a.mem.history.counts.Forgets++
			if e.At.After(a.mem.peers.ordered) {
				a.mem.peers.ordered = e.At
			}
			a.mem.peers.floor = role.Floor{} // what the others were told before the order may be void for them: tell it again
			a.logTransition(now, zerolog.WarnLevel, "forget", "", "FORGET: system identifier and floor were cleared, except for what was seen since it was given")
			a.elect(now, now, election.Forget{Generation: e.Generation, At: e.At})
		case evidence.Refused:
			a.mem.peers.stale = true
			a.log.Info().Str("host", string(e.Host)).Str("member", e.Member).Str("reason", e.Why).Msg("shard: a peer's claim was rejected")
		}
	}
}

// ready: the fleet has been heard, or there is nobody to hear.
func (a *decider) ready(now time.Time, m *cluster.Ready) {
	if a.mem.peers.ready {
		return
	}
	a.mem.peers.ready, a.stale = true, true
	why := "no other member was heard: this member grants writes on its own evidence"
	if m.Joined {
		why = "received the fleet's evidence"
	}
	a.logTransition(now, zerolog.InfoLevel, "fleet", "", why)
}
