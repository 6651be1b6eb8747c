package election

import (
	"time"

	"fencepost/role"
)

// flows is what is known of the connections to one address. It may be that of a service, or move from one server to another:
// connections that are open then stay with the old server, whose answers say nothing about the one that new connections come to. The
// newest connection is believed.
type flows struct {
	newest role.Observation // the last one on the newest connection; Dialled zero: not known
	outrun time.Time        // when the connection was dialled for which the host's monitor was to connect anew last
}

// believes reports whether an answer is about the server that the newest connection leads to, as far as anybody knows. If the host's
// monitor has an older connection, which ends at another server, newer is what was seen on the newest one: the monitor is to connect
// anew. It is said once for each such connection, else Dialled is zero.
func (f *flows) believes(o role.Observation) (believed bool, newer role.Observation) {
	if o.Dialled.IsZero() || o.Verdict == role.Unknown {
		return true, newer
	}
	contradicts := !f.newest.Dialled.IsZero() && o.Contradicts(f.newest)
	believed = !o.Dialled.Before(f.newest.Dialled)
	if believed && (o.Dialled.After(f.newest.Dialled) || !o.Asked.Before(f.newest.Asked)) {
		f.newest = o
	}
	// A probe contradicts what others have seen on newer connections, or the other way round.
	if contradicts && believed == (o.Source != role.Probe) && f.newest.Dialled.After(f.outrun) {
		f.outrun, newer = f.newest.Dialled, f.newest
	}
	return believed || !contradicts, newer
}
