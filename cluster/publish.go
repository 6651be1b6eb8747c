package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/cluster/evidence"
	"fencepost/role"
)

// own notes the name of one of this process's shards.
func (f *fleet) own(name string) evidence.Shard {
	shard := evidence.ShardOf(name)
	if _, known := f.names[shard]; !known {
		f.names[shard] = name
		f.store.locked(func(t *evidence.Table) { t.Keep(shard) })
	}
	return shard
}

func (f *fleet) subscribe(ctx actor.Context, now time.Time, msg *Subscribe) {
	shard := f.own(msg.Shard)
	i := slices.IndexFunc(f.subscribers[msg.Shard], func(s *subscriber) bool { return s.to.Equal(msg.To) })
	if i < 0 {
		ctx.Watch(msg.To)
		f.subscribers[msg.Shard] = append(f.subscribers[msg.Shard], &subscriber{to: msg.To})
		i = len(f.subscribers[msg.Shard]) - 1
	}
	s := f.subscribers[msg.Shard][i]
	s.ready = false
	s.members = nil
	f.generation(ctx, now, msg.Shard, msg.Generation, s)
	for _, r := range msg.Claims {
		f.merge(now, r)
	}
	f.expect(now, msg.Members)
	var known []evidence.Record
	f.store.locked(func(t *evidence.Table) { known = t.Of(shard) })
	for _, r := range known {
		if r.Kind == evidence.Generation && r.Floor.Generation <= msg.Generation {
			continue
		}
		f.deliver(ctx, msg.Shard, r, []*subscriber{s})
	}
	f.sayReady(ctx, s)
}

func (f *fleet) terminated(who *actor.PID) {
	for shard, subs := range f.subscribers {
		left := slices.DeleteFunc(subs, func(s *subscriber) bool { return s.to.Equal(who) })
		if f.subscribers[shard] = left; len(left) == 0 {
			delete(f.subscribers, shard)
		}
	}
}

// deliver gives subscribers what another member said.
func (f *fleet) deliver(ctx actor.Context, shard string, r evidence.Record, to []*subscriber) {
	var msg any
	switch {
	case r.Kind == evidence.Generation:
		msg = &Generation{Shard: shard, Generation: r.Floor.Generation}
	case r.Kind == evidence.Ordered:
		msg = &ForgetOrdered{shard, evidence.ForgetOrdered{Generation: r.Floor.Generation, Order: r.Order, At: r.At}}
	case r.Observer == f.cfg.Boot:
		return
	case r.Kind == evidence.Claimed:
		msg = &PeerFloorClaim{shard, evidence.FloorClaim{Record: r, Member: f.roster.name(r.Observer)}}
	default:
		msg = &PeerObserved{shard, evidence.PeerObserved{Record: r, Member: f.roster.name(r.Observer)}}
	}
	for _, s := range to {
		ctx.Send(s.to, msg)
	}
}

// publish tells what this process saw: at once if it is not what was told last, else now and then.
func (f *fleet) publish(now time.Time, msg *Publish) {
	shard := f.own(msg.Shard)
	r, ok := evidence.NewObserved(shard, f.cfg.Boot, f.store.seq+1, msg.Observation, msg.Seat)
	if !ok {
		f.counts.untold++
		return
	}
	var last evidence.Record
	var known bool
	f.store.locked(func(t *evidence.Table) { last, known = t.Get(r.Key) })
	changed := !known || !same(last.Observation, r.Observation) || last.Seat != r.Seat
	every := f.refresh()
	if r.Seat != 0 {
		every = min(every, seatEvery)
	}
	if !changed && now.Sub(last.At) < every {
		return
	}
	f.spread(now, r, changed)
}

// same reports whether two observations say the same of a host's role.
func same(a, b role.Observation) bool {
	return a.Verdict == b.Verdict && a.SystemID == b.SystemID && a.Timeline == b.Timeline && a.NoTimelines == b.NoTimelines &&
		a.Started.Equal(b.Started)
}

// refresh is how often the same is told again; the traffic of a fleet grows with the square of its size.
func (f *fleet) refresh() time.Duration {
	return time.Second * time.Duration(max(1, f.store.members.Load()/10))
}

// seatEvery is how often at least it is told again that a host is this member's primary: what is not told for long does not hold.
const seatEvery = 2 * time.Second

func (f *fleet) publishFloorClaim(ctx actor.Context, now time.Time, msg *PublishFloorClaim) {
	shard := f.own(msg.Shard)
	r, ok := evidence.NewClaimed(shard, f.cfg.Boot, f.store.seq+1, msg.Host, msg.Floor, msg.At)
	if !ok {
		f.counts.untold++
		return
	}
	f.generation(ctx, now, msg.Shard, msg.Floor.Generation, nil)
	var last evidence.Record
	f.store.locked(func(t *evidence.Table) { last, _ = t.Get(r.Key) })
	if last.Floor == r.Floor {
		return
	}
	f.spread(now, r, true)
}

// spread writes one of this process's registers and sends it by gossip, and if it is urgent also directly. A member that
// is thought dead is out of the reach of gossip and gets it directly each time: the link may be broken in one direction only.
func (f *fleet) spread(now time.Time, r evidence.Record, urgent bool) {
	f.store.nextSeq()
	if f.merge(now, r) != evidence.News {
		return
	}
	to := f.roster.unheard()
	if urgent {
		to = append(to, f.roster.others()...)
	}
	f.direct(now, to, r.Key)
}

// direct sends a register to members at once. What is lost on the way comes by gossip, or when it is told again.
func (f *fleet) direct(now time.Time, members []*member, key evidence.Key) {
	if f.link == nil || len(members) == 0 {
		return
	}
	to := make([]node, len(members))
	for i, m := range members {
		to[i] = m.node
	}
	for _, message := range f.store.packets(now, []evidence.Key{key}) {
		if f.link.sendPacket(packet{message, to}) {
			f.counts.direct += uint64(len(to))
		} else {
			f.counts.dropped++
		}
	}
}

// forgetOrdered is FORGET on this member.
func (f *fleet) forgetOrdered(now time.Time, msg *ForgetOrdered) {
	o := msg.ForgetOrdered
	if r, ok := evidence.NewOrdered(f.own(msg.Shard), o.Generation, o.Order, o.At); ok && f.merge(now, r) == evidence.News {
		f.direct(now, append(f.roster.unheard(), f.roster.others()...), r.Key)
	}
}

// generation merges the generation of a shard of this process. except, the subscriber that reported it, is not told again; nil if
// the shard itself did.
func (f *fleet) generation(ctx actor.Context, now time.Time, shard string, generation uint64, except *subscriber) {
	r, ok := evidence.NewGeneration(evidence.ShardOf(shard), generation)
	if !ok || f.merge(now, r) != evidence.News {
		return
	}
	f.direct(now, append(f.roster.unheard(), f.roster.others()...), r.Key)
	to := slices.DeleteFunc(slices.Clone(f.subscribers[shard]), func(s *subscriber) bool { return s == except })
	f.deliver(ctx, shard, r, to)
}

// merge merges a record into the table; a record that makes the merge fail is dropped and counted.
func (f *fleet) merge(now time.Time, r evidence.Record) evidence.Outcome {
	out, failed := f.store.merge(now, r)
	if failed != nil {
		f.counts.failed++
		f.journal.note(zerolog.ErrorLevel, "a record could not be merged: this is a bug", fmt.Sprint(failed))
	}
	return out
}

// heardRecords merges the records of other members and passes new ones to the subscribers.
func (f *fleet) heardRecords(ctx actor.Context, now, at time.Time, message []byte) {
	skipped := evidence.Decode(message, at, func(r evidence.Record) {
		f.counts.records++
		if r.Observer == f.cfg.Boot {
			f.ownRecord(now, r)
			return
		}
		var before uint64
		if r.Kind == evidence.Claimed {
			f.store.locked(func(t *evidence.Table) { before = t.GenerationOf(r.Shard) })
		}
		switch f.merge(now, r) {
		case evidence.Rejected:
			f.counts.rejected++
			return
		case evidence.Known:
			return
		}
		f.counts.news++
		if m := f.roster.byBoot[r.Observer]; m != nil && m.state == Alive {
			m.heard = now
		}
		shard, ok := f.names[r.Shard]
		if !ok {
			return
		}
		if r.Kind == evidence.Claimed && r.Floor.Generation > before {
			g, _ := evidence.NewGeneration(r.Shard, r.Floor.Generation)
			f.deliver(ctx, shard, g, f.subscribers[shard])
		}
		f.deliver(ctx, shard, r, f.subscribers[shard])
	})
	if skipped > 0 {
		f.counts.skipped += uint64(skipped)
		f.journal.note(zerolog.WarnLevel, "unreadable records were skipped: another version, or corrupt", fmt.Sprint(skipped))
	}
}

// ownRecord is one of this process's registers as somebody else has it. One that is ahead of it was forged: it is written
// anew with a higher number.
func (f *fleet) ownRecord(now time.Time, r evidence.Record) {
	var own evidence.Record
	var known bool
	var generation uint64
	f.store.locked(func(t *evidence.Table) { own, known = t.Get(r.Key); generation = t.GenerationOf(r.Shard) })
	if !known && r.Seq <= f.store.seq && (r.Kind == evidence.Observed || r.Floor.Generation < generation) {
		return // what this process said itself, before FORGET or so long ago that it has dropped it
	}
	if r.Seq < own.Seq || known && r.Seq == own.Seq && r.Observation == own.Observation && r.Seat == own.Seat && r.Floor == own.Floor {
		return
	}
	f.journal.note(zerolog.ErrorLevel, "another process sent evidence in this member's name", r.String())
	f.counts.forged++
	f.store.seq = max(f.store.seq, r.Seq)
	if known {
		own.Seq = f.store.nextSeq()
		if f.merge(now, own) == evidence.News {
			f.direct(now, f.roster.others(), own.Key)
		}
	}
}
