package shard

import (
	"slices"
	"time"

	"fencepost/actors/shard/health"
)

// View is what a shard has decided; immutable. Lanes grant by it without asking.
type View struct {
	Epoch uint64
	// Static: the shard's one host has no role (role any). It serves everything, nobody is elected or fenced.
	Static bool
	// Elected is the address that gets the writes, "" if no primary is known.
	Elected string
	// Floor is the timeline below which nobody may write; 0: none was seen.
	Floor uint32
	// SystemID of the cluster; 0: not known.
	SystemID uint64
	// NoTimelines: the elected host has none (Aurora); every write checkout needs a fence.
	NoTimelines bool
	State       health.State
	StateWhy    string // what led to State
	// Since is when Elected became what it is, Why what led to it.
	Since time.Time
	Why   string
	// Standbys may serve reads, those with the most WAL first. Banned, foreign and lagging ones are not among them.
	Standbys []string
	// Late: none of Standbys answers its monitor in time, and the primary does: reads that may go to the primary do.
	Late bool
	// Promoted are the hosts that are out of recovery, elected or not: sessions that want a standby end there.
	Promoted []string
	// Silent are standbys of which nothing was heard for unhealthy_after, on an old connection or a new one: what is unanswered there
	// is ended.
	Silent  []string
	Balance Balance
	// Warm is how many idle backends each lane keeps to Standbys[0] while State is not Healthy, so that a failover need not
	// begin with logins.
	Warm int
	// Refuse: with no primary, or in Failover, a write checkout is refused at once (failover_policy = refuse).
	Refuse bool
	// Explanation is what each host last said, for whoever waits for a primary; "" while there is one.
	Explanation string
	// ReadOnly is the host that was the primary until it became read-only by its own settings, while nobody else is: what
	// sessions hold there ends with their transactions. "" for none.
	ReadOnly string
	// NoReads is why no host serves reads, for whoever wants a standby; "" while one does.
	NoReads string
	// Candidates are hosts that answer but do not let their monitors look, while no primary is known: the login of a client
	// that waits may find that one of them is it.
	Candidates []string
	// Hint is what an operator can do about it, "" if nothing but wait: FORGET where the floor stands in the way.
	Hint string
}

// Balance is how reads are spread over standbys (standby_balance).
type Balance uint8

// The ways.
const (
	LeastWaiting Balance = iota
	RoundRobin
	Random
)

// ActsLike reports whether lanes do the same under both views.
func (v *View) ActsLike(w *View) bool {
	return v.Epoch == w.Epoch && v.Static == w.Static && v.Elected == w.Elected && v.Floor == w.Floor && v.SystemID == w.SystemID &&
		v.NoTimelines == w.NoTimelines && v.State == w.State && v.Balance == w.Balance && v.Warm == w.Warm && v.Refuse == w.Refuse &&
		v.Late == w.Late && slices.Equal(v.Promoted, w.Promoted) && slices.Equal(v.Silent, w.Silent) &&
		slices.Equal(v.Standbys, w.Standbys) && slices.Equal(v.Candidates, w.Candidates) &&
		v.ReadOnly == w.ReadOnly
}

// WarmHost is the host that connections are kept to before it is elected; "" for none.
func (v *View) WarmHost() string {
	if v.Static || v.Warm == 0 || v.State == health.Healthy || len(v.Standbys) == 0 {
		return ""
	}
	return v.Standbys[0]
}
