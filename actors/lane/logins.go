package lane

import (
	"slices"
	"sort"
	"time"

	"fencepost/actors/backend"
	"fencepost/pgerr"
)

// login is an Attach that waits until its lane knows what to tell the client, in a host pool that opens a backend for it.
type login struct {
	*Attach
	at *hostPool
}

// logins are the clients of a lane that have no answer yet: no server login has succeeded since the lane began.
type logins struct {
	lane    *Lane
	pending []*login
	// placing is the Attach that is being handled: not answered, and not among the pending yet. If the lane fails meanwhile it is
	// refused with them.
	placing *Attach
}

// attach answers at once when the pool knows what its servers report; else it has one opened first.
func (l *Lane) attach(m *Attach) {
	l.emptied = time.Time{}
	l.stats.Logins++
	hp := l.logins.place(m)
	l.logins.placing = nil
	if hp != nil {
		hp.setWarm()
		l.reportWaiting()
		l.probeCandidates()
	}
}

// place answers a login, or has it wait in a host pool.
func (g *logins) place(m *Attach) *hostPool {
	l := g.lane
	if g.params(m.Target) != nil {
		g.answer(m)
		return nil
	}
	hp := l.aim(m.Target)
	switch {
	case hp.rejected && hp.machine.Failing() && hp.machine.BackingOff(l.loop.Now()):
		l.root.Send(m.From, &AttachRefused{Req: m.Req, Err: hp.refusal.Fatal()})
	case l.place.Refuses(m.Target):
		l.root.Send(m.From, &AttachRefused{Req: m.Req, Err: l.whyLate(hp, m.Target, 0).Fatal()})
	default:
		g.pending = append(g.pending, &login{m, hp})
		return hp
	}
	return nil
}

// waitAt reports whether a login waits in a host pool.
func (g *logins) waitAt(hp *hostPool) bool {
	return slices.ContainsFunc(g.pending, func(a *login) bool { return a.at == hp })
}

func (g *logins) answer(m *Attach) {
	l := g.lane
	l.root.Send(m.From, &Attached{Req: m.Req, Lane: l.self, Startup: g.params(m.Target), Stats: l.stats})
}

// aim moves the logins whose host pool cannot serve them under the view, answers those that can be answered by now,
// and has backends opened for the others.
func (g *logins) aim() {
	for _, a := range g.pending {
		if !g.lane.place.Serves(a.at.host, a.Target) {
			a.at = g.lane.aim(a.Target)
		}
	}
	g.answerAll()
}

// answerAll answers the logins that wait for what has become known.
func (g *logins) answerAll() {
	g.end(func(a *login) bool {
		if g.params(a.Target) == nil {
			return false
		}
		g.answer(a.Attach)
		return true
	})
}

// end forgets the logins that ended has answered, and what was opened for them alone.
func (g *logins) end(ended func(*login) bool) {
	still := g.pending[:0]
	for _, a := range g.pending {
		if !ended(a) {
			still = append(still, a)
		}
	}
	clear(g.pending[len(still):])
	g.pending = still
	g.lane.all((*hostPool).setWarm)
}

// refuse tells logins what stands in their way: waiting longer would not help.
func (g *logins) refuse(which func(*login) bool, e *pgerr.Error) {
	g.end(func(a *login) bool {
		if !which(a) {
			return false
		}
		g.lane.root.Send(a.From, &AttachRefused{Req: a.Req, Err: e.Fatal()})
		return true
	})
}

// refuseAll is for a lane that ends in the middle of anything.
func (g *logins) refuseAll(e *pgerr.Error) {
	if a := g.placing; a != nil {
		g.pending = append(g.pending, &login{Attach: a})
	}
	for _, a := range g.pending {
		g.lane.root.Send(a.From, &AttachRefused{Req: a.Req, Err: e})
	}
	g.pending = nil
}

// expire refuses logins that could not be answered in time.
func (g *logins) expire() {
	if len(g.pending) == 0 {
		return
	}
	l := g.lane
	now := l.loop.Now()
	g.end(func(a *login) bool {
		if a.Deadline.IsZero() || now.Before(a.Deadline) {
			return false
		}
		l.stats.Refused++
		l.root.Send(a.From, &AttachRefused{Req: a.Req, Err: l.whyLate(a.at, a.Target, now.Sub(a.Since)).Fatal()})
		return true
	})
}

func (l *Lane) detach(m *Detach) {
	l.reclaim(m.From)
	for i := len(l.waiters.asked) - 1; i >= 0; i-- {
		if co := l.waiters.asked[i]; co.From.Equal(m.From) {
			l.abandon(co)
		}
	}
	if len(l.logins.pending) > 0 {
		l.logins.end(func(a *login) bool { return a.Req == m.Req && a.From.Equal(m.From) })
	}
}

// hotStandby is the parameter by which a server tells its clients whether it is in recovery (PostgreSQL 14 and newer).
const hotStandby = "in_hot_standby"

// params is what a client with a target is told at login; nil if that is not known yet. With the primary lost new
// clients are told what it reported. Where a server has connections that were opened while it had another role, nobody
// else would ask it: what servers of that role report is told then, but for the role.
func (g *logins) params(t Target) *StartupParams {
	l := g.lane
	w := l.params
	primary, standby := w.primary.Load(), w.standby.Load()
	switch {
	case l.view.Static:
		return primary
	case t == ReadWrite && primary == nil && standby != nil && l.write.opened() > 0:
		primary = standby.with(hotStandby, "off")
		w.primary.Store(primary)
	case t == Standby && standby == nil && primary != nil && g.standbyOpen():
		standby = primary.with(hotStandby, "on")
		w.standby.Store(standby)
	}
	switch {
	case t == ReadWrite:
		return primary
	case t == Standby:
		return standby
	case len(l.view.Standbys) > 0 && standby != nil || primary == nil:
		return standby
	}
	return primary
}

func (g *logins) standbyOpen() bool {
	l := g.lane
	for _, h := range l.view.Standbys {
		if l.hostPool(h).opened() > 0 {
			return true
		}
	}
	return false
}

// with is the same parameters with another value of a parameter, if the server reports it.
func (w *StartupParams) with(name, value string) *StartupParams {
	c := &StartupParams{Params: w.Params}
	for _, p := range w.Parameters {
		if p[0] == name {
			p[1] = value
		}
		c.Parameters = append(c.Parameters, p)
	}
	return c
}

// makeStartupParams collects what a server reported, sorted: a client gets the same bytes whichever backend came first.
func makeStartupParams(b *backend.Backend) *StartupParams {
	w := &StartupParams{Params: b.Params}
	for name, value := range b.Login().Params {
		w.Parameters = append(w.Parameters, [2]string{name, value})
	}
	sort.Slice(w.Parameters, func(i, j int) bool { return w.Parameters[i][0] < w.Parameters[j][0] })
	return w
}
