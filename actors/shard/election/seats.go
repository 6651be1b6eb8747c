package election

import (
	"fmt"
	"time"
)

// Two standbys may be promoted at once: both are writable, on one timeline, and the members of a fleet may have chosen different
// ones. All follow the member whose primary is the oldest; one that cannot do so has none. Nothing is elected by that: it
// settles what a member's own evidence leaves open.

// seats are the primaries of this member and of the others.
type seats struct {
	own   uint64 // of the elected host; 0: nobody is
	fleet Seat   // the first one of the others; Host "": none has one
}

// rules reports whether the others' seat is fresh: one that nobody has seen for so long holds nobody up.
func (s *seats) rules(now time.Time, silence time.Duration) bool {
	return s.fleet.Host != "" && now.Before(s.fleet.At.Add(silence))
}

// bars reports whether the others have another server as the primary on the timeline of a host.
func (s *seats) bars(now time.Time, silence time.Duration, h *host) bool {
	o, f := h.rec.Evidence(), s.fleet
	return s.rules(now, silence) && f.Host != h.Host && f.Timeline == o.Timeline && (f.Started.IsZero() || !f.Started.Equal(o.Started))
}

// outrank reports whether they have had it since before the elected host was elected here. The number is compared, and for what has the
// same number the name: every member comes to the same end.
func (s *seats) outrank(now time.Time, silence time.Duration, elected *host) bool {
	return s.bars(now, silence, elected) && (s.fleet.Tag < s.own || s.fleet.Tag == s.own && s.fleet.Host < elected.Host)
}

// take has this member sit on a host, or on none: where others did before, since they did.
func (s *seats) take(now time.Time, silence time.Duration, h *host) {
	switch {
	case h == nil:
		s.own = 0
	case s.rules(now, silence) && s.fleet.Host == h.Host:
		s.own = s.fleet.Tag
	default:
		s.own = uint64(now.UnixMicro())
	}
}

// learn replaces the others' seat. Who has the same host has it since the first of them did.
func (s *seats) learn(f Seat, elected *host) {
	s.fleet = f
	if elected != nil && f.Host == elected.Host && f.Tag < s.own {
		s.own = f.Tag
	}
}

// why says on whom others sit.
func (s *seats) why() string {
	return fmt.Sprintf("member %s has had %s as the primary of timeline %d since %s", s.fleet.Member, s.fleet.Host, s.fleet.Timeline,
		time.UnixMicro(int64(s.fleet.Tag)).UTC().Format("15:04:05.000 UTC"))
}
