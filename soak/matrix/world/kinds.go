package world

import (
	"fencepost/internal/relay"
)

// A server that is stopped in order sends all it has to the standbys that are connected before it ends.
func (c *course) switchover() error {
	if err := c.stop(); err != nil {
		return err
	}
	if err := c.promoteBest(); err != nil {
		return err
	}
	return c.comeBack(c.w.Primary())
}

func (c *course) crash() error {
	if err := c.old.kill(); err != nil {
		return err
	}
	c.lost(DidKill)
	if err := c.hold(c.timing.Detect, "nobody has noticed"); err != nil {
		return err
	}
	if err := c.promoteBest(); err != nil {
		return err
	}
	if err := c.hold(c.timing.Dead, "the old primary is dead"); err != nil {
		return err
	}
	return c.rebuild(c.old)
}

// The old primary comes back as a standby of one that is itself still a standby, and has replayed all there is.
func (c *course) demote() error {
	if err := c.stop(); err != nil {
		return err
	}
	next, err := c.best()
	if err != nil {
		return err
	}
	if err := c.comeBack(next); err != nil {
		return err
	}
	if err := c.hold(c.timing.Demoted, "all are standbys"); err != nil {
		return err
	}
	return c.promote(next)
}

func (c *course) freeze() error {
	if err := c.old.node.Freeze(); err != nil {
		return err
	}
	c.lost(DidFreeze)
	if err := c.hold(c.timing.Detect, "nobody has noticed"); err != nil {
		return err
	}
	if err := c.promoteBest(); err != nil {
		return err
	}
	if err := c.hold(c.timing.Frozen-c.timing.Detect, "the old primary is frozen"); err != nil {
		return err
	}
	if err := c.old.node.Thaw(); err != nil {
		return err
	}
	c.did(c.old, DidThaw)
	return c.retire()
}

// retire ends an old primary that believes it still is one.
func (c *course) retire() error {
	if err := c.hold(c.timing.Believes, "the old primary believes it still is one"); err != nil {
		return err
	}
	c.old.peers.Reset() // a server that ends waits for its standbys, of whom it has none any more
	if err := c.old.stop(c.ctx); err != nil {
		return err
	}
	c.did(c.old, DidStop)
	return c.rebuild(c.old)
}

func (c *course) restart() error {
	if err := c.stop(); err != nil {
		return err
	}
	if err := c.old.node.Start(c.ctx); err != nil {
		return err
	}
	c.did(c.old, DidStart)
	return nil
}

func (c *course) partition() error {
	if err := c.old.cut(); err != nil {
		return err
	}
	c.lost(DidCut)
	if err := c.hold(c.timing.Detect, "nobody has noticed"); err != nil {
		return err
	}
	if err := c.promoteBest(); err != nil {
		return err
	}
	if err := c.hold(c.timing.Cut-c.timing.Detect, "the network is down"); err != nil {
		return err
	}
	c.old.heal()
	c.did(c.old, DidHeal)
	return c.retire()
}

func (c *course) readOnly() error {
	if err := c.stop(); err != nil {
		return err
	}
	next, err := c.best()
	if err != nil {
		return err
	}
	if err := next.readOnly(c.ctx, true); err != nil {
		return err
	}
	c.did(next, DidReadOnly)
	if err := c.promote(next); err != nil {
		return err
	}
	if err := c.hold(c.timing.ReadOnly, "the new primary is read-only"); err != nil {
		return err
	}
	if err := next.readOnly(c.ctx, false); err != nil {
		return err
	}
	c.did(next, DidWritable)
	return c.comeBack(c.w.Primary())
}

// The copy waits for no standby: it has none, and whoever promotes one for a rehearsal sees to it that it takes writes.
func (c *course) promoteCopy() error {
	standbys := c.w.standbys()
	guest := standbys[len(standbys)-1]
	c.Copy = guest.Name
	if err := guest.node.Configure(map[string]string{"synchronous_standby_names": ""}); err != nil {
		return err
	}
	if err := guest.node.Promote(c.ctx); err != nil {
		return err
	}
	c.did(guest, DidPromote)
	if err := c.hold(c.timing.Copy, "there are two primaries"); err != nil {
		return err
	}
	if err := guest.stop(c.ctx); err != nil {
		return err
	}
	c.did(guest, DidWithdraw)
	return c.rebuild(guest)
}

func (c *course) slow() error {
	c.old.clients.SetLate(relay.Late{}, relay.Late{Min: c.timing.SlowMin, Max: c.timing.SlowMax})
	c.did(c.old, DidSlow)
	if err := c.hold(c.timing.Slow, "the primary's replies are late"); err != nil {
		return err
	}
	c.old.clients.SetLate(relay.Late{}, relay.Late{})
	c.did(c.old, DidQuicken)
	return c.hold(c.timing.SlowMax, "what was late is under way")
}
