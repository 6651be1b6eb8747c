package cluster

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// This file is how a member finds the others, and when it may grant writes.

// rejoin is the time between two rounds of attempts to join who is missing.
const rejoin = 10 * time.Second

// joinAgain begins a round of attempts to join who is not known to be alive: often at first, then every rejoin. memberlist
// itself never gets over a partition that was long enough for both sides to forget each other.
func (f *fleet) joinAgain(now time.Time) {
	if f.link == nil || f.joining || f.nextJoin.IsZero() || now.Before(f.nextJoin) {
		return
	}
	f.joining = true
	alive, dead := f.roster.addresses()
	f.link.join(f.cfg, f.cfg.Join, alive, append(dead, f.expected...))
	f.joins++
	wait := min(rejoin, 250*time.Millisecond<<min(f.joins, 8))
	f.nextJoin = now.Add(wait - wait/20 + rand.N(wait/10+1)) // jittered, so that a fleet does not join in step
}

func (f *fleet) joinedRound(ctx actor.Context, now time.Time, msg *joined) {
	f.joining = false
	f.counts.joins += uint64(msg.tried)
	f.counts.joined += uint64(msg.reached)
	if f.heard {
		f.joined = true
	}
	f.becomeReady(ctx, now)
	f.arm(now)
}

// becomeReady says Ready when it is time to.
func (f *fleet) becomeReady(ctx actor.Context, now time.Time) {
	if !f.ready && (f.joined || f.cfg.alone(f.expected) || !now.Before(f.waitUntil)) {
		f.ready = true
		f.store.ready.Store(true)
		f.cfg.Log.Info().Bool("joined", f.joined).Int("members", f.roster.alive()).Msg("fleet: ready")
	}
	if !f.ready {
		return
	}
	for _, subs := range f.subscribers {
		for _, s := range subs {
			f.sayReady(ctx, s)
		}
	}
}

// alone reports whether there is nobody to wait for, as far as the settings and the state files say.
func (c *Config) alone(expected []netip.AddrPort) bool {
	return len(c.Join) == 0 && c.Size <= 1 && len(expected) == 0
}

// maxExpected bounds what state files may say of members.
const maxExpected = 256

// expect takes in where members were reached before a restart. Who has nobody to join by looks for them there, and waits for
// them like for those of its settings.
func (f *fleet) expect(now time.Time, members []netip.AddrPort) {
	for _, a := range members {
		if !slices.Contains(f.expected, a) && len(f.expected) < maxExpected {
			f.expected = append(f.expected, a)
			if !f.nextJoin.IsZero() {
				f.nextJoin = now
			}
			f.arm(now)
		}
	}
	if f.ready && !f.joined && !f.cfg.alone(f.expected) && now.Before(f.waitUntil) { // it was ready because it knew of nobody
		f.ready = false
		f.store.ready.Store(false)
	}
}

// tell tells a shard where the other members are, if that is new to it.
func (s *subscriber) tell(ctx actor.Context, members []netip.AddrPort) {
	if len(members) > 0 && !slices.Equal(s.members, members) {
		s.members = members
		ctx.Send(s.to, &Members{Addrs: members})
	}
}

func (f *fleet) sayReady(ctx actor.Context, s *subscriber) {
	if f.ready && !s.ready {
		s.ready = true
		ctx.Send(s.to, &Ready{Joined: f.joined})
	}
}
