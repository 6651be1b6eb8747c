package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"fencepost/internal/poll"
)

// Split says how the cluster is split in SplitBrain.
type Split struct {
	Freeze bool          // the old primary is frozen, and thawed when another was promoted; else it is cut off
	Stays  time.Duration // how long clients go on after the promotion; 0: 3 s
	Each   int           // clients in each mode; 0: 4
}

// SplitResult is what came of it.
type SplitResult struct {
	Split
	Alone    bool
	Promoted time.Time // the new primary took writes
	Seen     time.Time // the first member but the first has elected it, by its log; zero in a control that did not
	Thawed   time.Time

	Before   int           // writes that the old primary acknowledged before Seen
	Late     int           // later than that
	Later500 int           // more than 500 ms later
	Last     time.Duration // the last one, after Seen
	Session  int           // of Later500
	Says     string        // what the first member says in an error to a client
	Shows    string        // and on its console
	Codes    map[string]int
}

const seenLimit = 500 * time.Millisecond

// noPrimary is the SQLSTATE for a write without a primary.
const noPrimary = "57P03"

// String is a line of figures.
func (r SplitResult) String() string {
	how := "cut off"
	if r.Freeze {
		how = "frozen"
	}
	seen := "never"
	if !r.Seen.IsZero() {
		seen = r.Seen.Sub(r.Promoted).Round(time.Millisecond).String()
	}
	return fmt.Sprintf("%s, fleet %t: the new timeline seen %s after the promotion; writes acknowledged by the old primary: %d before, %d after that (%d later than %s, %d of them in session mode, the last after %s); errors %v",
		how, !r.Alone, seen, r.Before, r.Late, r.Later500, seenLimit, r.Session, r.Last.Round(time.Millisecond), r.Codes)
}

// SplitBrain cuts the primary off from all members but the first, or freezes it, and the first member off from its standby,
// promotes that, and has clients write through the first member all the while. Then it heals the network; Mend repairs the
// servers.
func (l *Lab) SplitBrain(ctx context.Context, s Split) (SplitResult, error) {
	if s.Stays == 0 {
		s.Stays = 3 * time.Second
	}
	if s.Each == 0 {
		s.Each = 4
	}
	r := SplitResult{Split: s, Alone: l.config.Alone}
	primary := l.Primary()
	standby := l.standbys()[0]
	first := l.Members[0]
	began := time.Now()
	writers := []*Writers{l.Write("session", s.Each, first.Addr), l.Write("transaction", s.Each, first.Addr)}
	end := func() {
		for _, w := range writers {
			w.End()
		}
	}
	defer func() {
		l.Net.HealAll() // so that those who wait come to an end
		end()
	}()
	for _, w := range writers {
		if err := w.Await(ctx, s.Each, primary, began); err != nil {
			return r, err
		}
	}
	for _, b := range l.standbys() {
		l.Net.Cut(first.Name, l.ServerName(b))
	}
	if s.Freeze {
		if err := primary.Freeze(); err != nil {
			return r, err
		}
	} else {
		for _, m := range l.Members[1:] {
			l.Net.Cut(m.Name, l.ServerName(primary))
		}
	}
	if err := standby.Promote(ctx); err != nil {
		return r, err
	}
	r.Promoted = time.Now()
	seen := func() bool {
		for _, m := range l.Members[1:] {
			for _, line := range m.Lines(r.Promoted.Add(-time.Second), "shard: view", `"elected":"`+standby.Front+`"`) {
				if r.Seen.IsZero() || line.At.Before(r.Seen) {
					r.Seen = line.At
				}
			}
		}
		return !r.Seen.IsZero()
	}
	bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := poll.Until(bounded, 10*time.Millisecond, func() (bool, error) { return seen(), nil }); err != nil {
		return r, fmt.Errorf("no member has elected the new primary: %w", err)
	}
	if s.Freeze {
		if err := primary.Thaw(); err != nil {
			return r, err
		}
		r.Thawed = time.Now()
	}
	if !r.Alone {
		r.Shows = l.shows(ctx, first, standby)
	}
	select {
	case <-ctx.Done():
		return r, ctx.Err()
	case <-time.After(time.Until(r.Promoted.Add(s.Stays))):
	}
	// Clients may be waiting for a primary: their errors tell what the member says.
	row, err := first.Shard(ctx)
	if err != nil {
		return r, err
	}
	r.Shows = strings.TrimSpace(r.Shows + "\n" + fmt.Sprint(row))
	for _, m := range l.Members[1:] {
		if n := len(m.Lines(r.Seen.Add(time.Millisecond), "shard: view", `"elected":"`+primary.Front+`"`)); n > 0 {
			return r, fmt.Errorf("%s has elected the old primary again", m.Name)
		}
	}
	r.Codes = map[string]int{}
	l.Net.HealAll()
	end()
	for _, w := range writers {
		r.count(w, primary)
	}
	return r, nil
}

// count looks at what the clients saw.
func (r *SplitResult) count(w *Writers, old *Server) {
	for _, a := range w.Acks() {
		late := a.At.Sub(r.Seen)
		switch {
		case a.Port != old.Port:
		case late <= 0:
			r.Before++
		default:
			r.Late++
			r.Last = max(r.Last, late)
			if late > seenLimit {
				r.Later500++
				if a.Database == "session" {
					r.Session++
				}
			}
		}
	}
	for _, f := range w.Failures() {
		r.Codes[f.Code]++
		if r.Says == "" && f.Code == noPrimary {
			r.Says = f.Code + " " + f.Text
		}
	}
}

// shows asks a member on a new session, as a client and on its console, what it makes of the new timeline that it cannot
// reach.
func (l *Lab) shows(ctx context.Context, m *Member, standby *Server) string {
	bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var text string
	poll.Until(bounded, 20*time.Millisecond, func() (bool, error) { //nolint:errcheck // what it shows is judged by the caller
		rows, err := m.Console(bounded, "SHOW REPLICATION")
		if err != nil {
			return false, err
		}
		text = ""
		for _, r := range rows {
			text += fmt.Sprintln(r)
		}
		row, err := m.Shard(bounded)
		return err == nil && row["elected"] == "NULL", nil
	})
	return text
}

// Primary is the server that was promoted last.
func (l *Lab) Primary() *Server { return l.server(l.cluster.Primary().Name) }

func (l *Lab) server(name string) *Server {
	for _, s := range l.Servers {
		if s.Name == name {
			return s
		}
	}
	return nil
}

func (l *Lab) standbys() (all []*Server) {
	for _, s := range l.Servers {
		if s != l.Primary() {
			all = append(all, s)
		}
	}
	return all
}

// Mend heals the network and makes every server that is not the primary its standby, from a copy of it, and waits until the
// fleet is whole.
func (l *Lab) Mend(ctx context.Context) error {
	l.Net.HealAll()
	primary := l.Primary()
	var err error
	for _, s := range l.standbys() {
		if s.Running() {
			err = errors.Join(err, s.Kill())
		}
		err = errors.Join(err, s.Rebuild(ctx, primary.Node))
	}
	if err != nil {
		return fmt.Errorf("mend: %w", err)
	}
	return l.Whole(ctx, primary)
}
