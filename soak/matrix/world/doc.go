// Package world is what a run of the failover matrix happens in: a real PostgreSQL cluster behind relays, the events that
// befall it, and an observer that sees every server without a relay between.
//
//	w, err := world.Start(ctx, world.Config{Standbys: 2, Synchronous: true})
//	defer w.Close()
//	for _, e := range world.Events(world.DefaultTiming()) {
//		o, err := e.Run(ctx, w) // returns when the cluster is whole again
//		…
//	}
//
// Each server has a relay of a fixed port for clients (Server.RelayAddr) and another one that its standbys replicate
// through. A relay listens when its server does: to connect to a server that is dead is refused, as by a host without that
// server. A relay that is cut passes nothing in either direction and answers no connect, as a network that is down; what
// was under way arrives once it is healed, as TCP would see to.
//
// Everything is on the loopback interface. Servers run as the user postgres when we are root. With synchronous replication
// a commit is acknowledged once one standby has it on disk, and the standby that has the most of the WAL is promoted once
// its primary hears no standby any more, so that no acknowledged write is lost by the cluster itself.
package world
