package evidence

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"fencepost/role"
)

// seat is the primary of another member.
type seat struct {
	observer Boot
	addr     netip.AddrPort
	member   string
	tag      uint64
	seen     role.Observation
	at       time.Time
}

const (
	// maxSeats is of how many members they are kept.
	maxSeats = 1024
	// seatFor is how long a seat is kept that is not told again. The election goes by what is much younger.
	seatFor = 30 * time.Second
)

// keepSeat keeps which host a member has as its primary: one of each member.
func (j *Judge) keepSeat(e PeerObserved) {
	r, o := e.Record, e.Record.Observation
	i := slices.IndexFunc(j.seats, func(s seat) bool { return s.observer == r.Observer })
	sits := r.Seat != 0 && o.Verdict == role.Writable && o.Timeline != 0 && o.SystemID != 0
	switch {
	case i >= 0 && !sits:
		if j.seats[i].addr == r.Host {
			j.seats = slices.Delete(j.seats, i, i+1)
		}
		return
	case !sits, i >= 0 && j.seats[i].addr != r.Host && r.At.Before(j.seats[i].at):
		return
	case i >= 0:
		j.seats = slices.Delete(j.seats, i, i+1)
	case len(j.seats) >= maxSeats:
		j.seats = slices.Delete(j.seats, 0, 1)
	}
	j.seats = append(j.seats, seat{r.Observer, r.Host, e.Member, r.Seat, o, r.At})
}

// settleSeat says which seat is the first, if that is new.
func (j *Judge) settleSeat() {
	j.seats = slices.DeleteFunc(j.seats, func(s seat) bool { return j.now.Sub(s.at) >= seatFor })
	var first *seat
	for i := range j.seats {
		s := &j.seats[i]
		if j.refutes(s) || s.seen.SystemID != j.floor.SystemID || s.seen.Timeline != j.floor.Timeline {
			continue
		}
		if first == nil || cmp.Or(cmp.Compare(s.tag, first.tag), s.addr.Compare(first.addr), first.at.Compare(s.at)) < 0 {
			first = s
		}
	}
	next := Seat{}
	if first != nil {
		next = Seat{j.name(first.addr), first.seen.Timeline, first.tag, first.seen.Started, first.at, first.member}
	}
	if next != j.seat {
		j.seat = next
		j.emit(next)
	}
}

// refutes reports whether the host is none of the shard's, or has shown since that it is not writable on that timeline.
func (j *Judge) refutes(s *seat) bool {
	h := j.find(s.addr)
	if h == nil || j.isMuted(s.observer, s.addr) {
		return true
	}
	o := h.last
	return o.Asked.After(s.at) && (o.Verdict == role.InRecovery || o.SystemID != 0 && o.SystemID != s.seen.SystemID || o.Timeline != 0 && o.Timeline < s.seen.Timeline)
}
