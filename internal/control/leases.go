package main

import (
	"time"

	"fencepost/actors/backend"
	"fencepost/actors/backend/lease"
)

// noLeases sends every cancel its backend's client asks for, and hands the backend on at once, whatever is on its way:
// what poolers without leases do. It must be caught.
type noLeases struct{ holder uint64 }

func newNoLeases() backend.Leases { return &noLeases{} }

// Step implements backend.Leases.
func (n *noLeases) Step(_ time.Time, ev lease.Event) []lease.Effect {
	switch e := ev.(type) {
	case lease.Take:
		if e.Holder == 0 || e.Holder != n.holder {
			return []lease.Effect{{Kind: lease.Drop, ID: e.ID}}
		}
		return []lease.Effect{{Kind: lease.Send, ID: e.ID}}
	case lease.Closed:
		return []lease.Effect{{Kind: lease.End, ID: e.ID, Outcome: lease.Delivered}}
	case lease.Failed:
		return []lease.Effect{{Kind: lease.End, ID: e.ID, Outcome: lease.Uncertain}}
	}
	return nil
}

// Hold implements backend.Leases.
func (n *noLeases) Hold(holder uint64) bool { n.holder = holder; return true }

// Leave implements backend.Leases.
func (n *noLeases) Leave() { n.holder = 0 }

// InFlight implements backend.Leases: none that anybody waits for.
func (n *noLeases) InFlight() int { return 0 }

// Spoiled implements backend.Leases.
func (n *noLeases) Spoiled() bool { return false }

// MayBeHandedOn implements backend.Leases.
func (n *noLeases) MayBeHandedOn() bool { return true }
