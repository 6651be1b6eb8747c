package placement

import (
	"slices"

	"fencepost/actors/lane/grant"
	"fencepost/role"
)

// Pool is what a lane holds for one host, at the moment of a move. The Owner fields are the caller's.
type Pool struct {
	Owner any
	Host  string // "" for unplaced
	// Writers: connections of this pool may have been leased for writes since Replace was last its effect: the host is elected, or was.
	Writers     bool
	Waiting     []Waiter // in its queue
	Connections []Connection
}

// Waiter is a checkout without a connection.
type Waiter struct {
	Owner  any
	Target Target
	Turn   uint64 // its place in the order of the lane
}

// Connection is one server connection of a pool.
type Connection struct {
	Owner any
	Known *role.Proof // what the server said last, nil if it was not asked
	// FencedFor is the checkout that waits for the answer to a fence on it, nil if none does.
	FencedFor *Waiter
	// Writes: it is leased for writes, and its holder has not been told that it may write no more. Standby: it is leased to a holder that
	// wants nothing but a standby, and was not told that it is one no longer.
	Writes, Standby bool
}

// Kind is what an Effect asks for.
type Kind uint8

// The effects, in the order in which a move has them.
const (
	Withdraw    Kind = iota + 1 // take Waiter out of the queue of Pool
	Unfence                     // Waiter waits no more for the fence on Connection; the fence goes on
	Cut                         // the connections of Pool are closed, whoever holds them
	EndSessions                 // the holder of Connection ends its session with the transaction
	EndReads                    // likewise: its server is a standby no longer
	Supersede                   // the holder of Connection is told that its server is not the primary any more
	Replace                     // every connection of Pool is closed as it comes to rest, idle ones now
	Retire                      // Connection is
	Demote                      // Pool is not the primary's any more: its connects under way end
	Promote                     // Pool is the primary's: it may connect at once
	Requeue                     // Waiter waits where Place says, at its turn
)

var kindNames = [...]string{"", "withdraw", "unfence", "cut", "end-sessions", "end-reads", "supersede", "replace", "retire", "demote", "promote", "requeue"}

func (k Kind) String() string { return kindNames[k] }

// Effect is what a lane does in a move.
type Effect struct {
	Kind       Kind
	Pool       *Pool
	Connection *Connection
	Waiter     *Waiter
}

// Move says what changes in a lane when the view it acts on becomes another one. sessions: leases last as long as sessions.
//
// Checkouts that have to wait elsewhere are taken out of their queues first: what happens to the pools after that neither opens
// connections for them where they do not belong, nor serves them out of turn. They come back last, the first to come first:
// it has the choice.
func Move(old, now *View, sessions bool, pools []*Pool) []Effect {
	m := move{old: old, now: now}
	for _, p := range pools {
		m.misplaced(p)
	}
	if !now.Grants.Static { // else there are no roles any more
		for _, p := range pools {
			m.reads(p, sessions)
			m.supersede(p, sessions)
		}
	}
	m.primary(pools)
	slices.SortFunc(m.moved, func(a, b *Waiter) int { return int(int64(a.Turn - b.Turn)) })
	for _, w := range m.moved {
		m.effects = append(m.effects, Effect{Kind: Requeue, Waiter: w})
	}
	return m.effects
}

type move struct {
	old, now *View
	effects  []Effect
	moved    []*Waiter
}

// misplaced takes those checkouts of a pool out that it cannot serve under the view. Those that wait for a fence wait for a
// write: they stay with the elected host alone.
func (m *move) misplaced(p *Pool) {
	for i := range p.Waiting {
		if w := &p.Waiting[i]; !m.now.Serves(p.Host, w.Target) {
			m.effects = append(m.effects, Effect{Kind: Withdraw, Pool: p, Waiter: w})
			m.moved = append(m.moved, w)
		}
	}
	if p.Host != m.now.Elected {
		for i := range p.Connections {
			m.unfence(p, &p.Connections[i])
		}
	}
}

func (m *move) unfence(p *Pool, c *Connection) {
	if c.FencedFor != nil {
		m.effects = append(m.effects, Effect{Kind: Unfence, Pool: p, Connection: c, Waiter: c.FencedFor})
		m.moved = append(m.moved, c.FencedFor)
		c.FencedFor = nil
	}
}

// reads ends what reads on a server that is silent, and sessions that want a standby on one that was promoted; leases that last a
// transaction end by themselves.
func (m *move) reads(p *Pool, sessions bool) {
	if slices.Contains(m.now.Silent, p.Host) && !slices.Contains(m.old.Silent, p.Host) {
		m.effects = append(m.effects, Effect{Kind: Cut, Pool: p})
		return
	}
	if !sessions || !slices.Contains(m.now.Promoted, p.Host) {
		return
	}
	for i := range p.Connections {
		if c := &p.Connections[i]; c.Standby {
			m.effects = append(m.effects, Effect{Kind: EndReads, Pool: p, Connection: c})
		}
	}
}

// supersede ends what may write on servers that are not the primary any more: idle connections now, leased ones by their
// holders, who know what is under way; leases that only read are left alone. While no host is elected connections stay: the
// elected host may come back, and its connections with it.
func (m *move) supersede(p *Pool, sessions bool) {
	if p.Writers && m.now.ReadOnly == p.Host && m.old.ReadOnly != p.Host {
		m.endSessions(p, sessions)
	}
	all := m.replaces(p)
	var outdated []*Connection
	for i := range p.Connections {
		c := &p.Connections[i]
		if _, no := grant.Outdates(m.now.Grants, c.Known); !all && !no {
			continue
		}
		outdated = append(outdated, c)
		m.unfence(p, c)
		if c.Writes {
			m.effects = append(m.effects, Effect{Kind: Supersede, Pool: p, Connection: c})
		}
	}
	if all {
		m.effects = append(m.effects, Effect{Kind: Replace, Pool: p})
		return
	}
	for _, c := range outdated {
		m.effects = append(m.effects, Effect{Kind: Retire, Pool: p, Connection: c})
	}
}

// replaces reports whether all connections of a pool end: it was the primary's, and another host is elected or the shard gives
// it up (Failover).
func (m *move) replaces(p *Pool) bool {
	if p.Host == m.now.Elected {
		return m.now.Failover && !m.old.Failover && m.old.Elected == m.now.Elected
	}
	return p.Writers && (m.now.Elected != "" || m.now.Failover)
}

// endSessions ends the sessions on a host that is read-only now with their transactions; where leases last a transaction they end
// then anyway. Idle connections are opened anew when they are wanted.
func (m *move) endSessions(p *Pool, sessions bool) {
	m.effects = append(m.effects, Effect{Kind: EndSessions, Pool: p})
	for i := range p.Connections {
		if c := &p.Connections[i]; sessions && c.Writes {
			m.effects = append(m.effects, Effect{Kind: EndSessions, Pool: p, Connection: c})
		}
	}
}

// primary hands the part of the primary from one pool to another.
func (m *move) primary(pools []*Pool) {
	if m.old.Elected == m.now.Elected {
		return
	}
	for _, p := range pools {
		if p.Host != "" && p.Host == m.old.Elected {
			m.effects = append(m.effects, Effect{Kind: Demote, Pool: p})
		}
	}
	for _, p := range pools {
		if p.Host != "" && p.Host == m.now.Elected {
			m.effects = append(m.effects, Effect{Kind: Promote, Pool: p})
		}
	}
}
