package main

import (
	"time"

	"fencepost/actors/backend"
	"fencepost/actors/backend/cancellease"
)

// noLeases sends every cancel its backend's client asks for, and hands the backend on at once, whatever is on its way:
// what poolers without leases do. It must be caught.
type noLeases struct{ holder uint64 }

func newNoLeases() backend.Leases { return &noLeases{} }

// Step implements backend.Leases.
func (n *noLeases) Step(_ time.Time, ev cancellease.Event) []cancellease.Effect {
	switch e := ev.(type) {
	case cancellease.Take:
		if e.Holder == 0 || e.Holder != n.holder {
			return []cancellease.Effect{{Kind: cancellease.Drop, ID: e.ID}}
		}
		return []cancellease.Effect{{Kind: cancellease.Send, ID: e.ID}}
	case cancellease.Closed:
		return []cancellease.Effect{{Kind: cancellease.End, ID: e.ID, Outcome: cancellease.Delivered}}
	case cancellease.Failed:
		return []cancellease.Effect{{Kind: cancellease.End, ID: e.ID, Outcome: cancellease.Uncertain}}
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
