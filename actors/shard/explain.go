package shard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fencepost/actors/shard/election"
	"fencepost/actors/shard/health"
	"fencepost/role"
)

// explainer says in words why clients wait, and what an operator can do about it.
type explainer struct {
	shard    string
	election *election.Machine
	health   *health.Machine
	claim    string // whose claim raises the floor above what this process saw itself; "": none does
	conflict bool   // several servers are writable on one timeline
	fixedID  bool   // system_identifier is in the settings
}

func (a *decider) explainer() explainer {
	return explainer{a.cfg.Shard.Name, a.election, a.health, a.mem.peers.claimedBy(a.election.View()), a.conflict, a.mem.settings.Election.SystemID != 0}
}

// needed reports whether the view says what each host last said.
func (e explainer) needed() bool {
	return e.election.View().Elected == "" || e.health.State() == health.Failover
}

// explain gives the reasons why there is no primary, or why it is not served; "" while it is.
func (e explainer) explain(now time.Time) string {
	switch v := e.election.View(); {
	case !e.needed():
		return ""
	case v.Elected == "":
		reasons := []string{"no primary has been known since " + clock(v.Since)}
		if e.claim != "" {
			reasons = append(reasons, e.claim)
		}
		reasons = append(reasons, e.election.Explain(now), "the shard is "+e.health.State().String())
		return strings.Join(reasons, "; ")
	}
	return fmt.Sprintf("failover since %s (%s); %s", clock(e.health.Since()), e.health.Reason(), e.election.Explain(now))
}

// hint is what an operator can do so that there is a primary again; "" if there is nothing but to wait.
func (e explainer) hint(rows []election.HostRow) string {
	foreign := slices.ContainsFunc(rows, func(r election.HostRow) bool { return r.Foreign && r.Last.Verdict == role.Writable })
	switch behind := e.election.BehindFloor(); {
	case e.election.Disagreement() != "":
		return "Hosts of the shard belong to different clusters. Take the wrong ones out of hosts, or set system_identifier, and RELOAD."
	case e.conflict:
		return "Stop or demote all but one of the writable servers."
	case behind && e.claim != "":
		return "Another member sees a primary on a later timeline that this member cannot reach: check the network between them. If that server is gone for good, run FORGET " +
			e.shard + " on the admin console."
	case behind && foreign && e.fixedID:
		return "A writable server belongs to a different cluster. If it is the right server, change system_identifier in the settings and RELOAD."
	case behind:
		return "A writable server was refused: its timeline is older than one already used (was another server promoted, perhaps by hand while a cluster manager " +
			"was paused?), or it belongs to a different cluster. " +
			"If it is the right server, run FORGET " + e.shard + " on the admin console."
	}
	return ""
}

// clock is a time for people.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func conflictText(c election.Conflict) string {
	text := fmt.Sprintf("%s are writable on timeline %d", join(c.Hosts), c.Timeline)
	if c.Timeline == 0 {
		text = join(c.Hosts) + " are writable"
	}
	if c.Elected == "" {
		return text + ": no server gets writes"
	}
	return fmt.Sprintf("%s: %s keeps getting the writes", text, c.Elected)
}

func foreignText(e election.Foreign) string {
	return fmt.Sprintf("its system identifier is %d, the shard's is %d: it is refused", e.SystemID, e.Want)
}

func join(hosts []role.Host) string {
	names := make([]string, len(hosts))
	for i, h := range hosts {
		names[i] = string(h)
	}
	return strings.Join(names, " and ")
}
