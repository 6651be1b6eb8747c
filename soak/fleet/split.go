package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"fencepost/internal/poll"
	"fencepost/internal/product"
)

// Split says how the cluster is split in SplitBrain.
type Split struct {
	Freeze bool          // the old primary is frozen, and thawed when another was promoted; else it is cut off
	One    int           // the member that is on a side of its own: it is left behind with the old primary
	Ahead  bool          // or is not: it alone reaches the new primary, and the others are left behind
	Stays  time.Duration // how long clients go on after the promotion; 0: 3 s
	Each   int           // clients in each mode, of each member that is left behind; 0: 4
}

// sides are the members that are left behind, and those that reach the new primary.
func (l *Lab) sides(s Split) (behind, ahead []*Member) {
	one := l.Members[s.One]
	others := slices.DeleteFunc(slices.Clone(l.Members), func(m *Member) bool { return m == one })
	if s.Ahead {
		return others, []*Member{one}
	}
	return []*Member{one}, others
}

// SplitResult is what came of it.
type SplitResult struct {
	Split
	Alone    bool
	Promoted time.Time // the new primary took writes
	Seen     time.Time // the first member that reaches it has elected it, by its log; zero in a control that did not
	Thawed   time.Time
	Told     []time.Duration // after Seen each member that was left behind knew better, by its log, if the old primary was cut off
	Untold   int             // those that did not as long as clients went on

	Before   int           // writes that the old primary acknowledged before Seen
	Late     int           // later than that
	Later500 int           // more than 500 ms later
	Last     time.Duration // the last one, after Seen
	Session  int           // of Later500
	Says     string        // what a member that was left behind says in an error to a client
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
	told := ""
	for _, t := range r.Told {
		told += fmt.Sprintf(" and heard of %s after that;", t.Round(time.Millisecond))
	}
	return fmt.Sprintf("%s, fleet %t: the new timeline seen %s after the promotion;%s writes acknowledged by the old primary: %d before, %d after that (%d later than %s, %d of them in session mode, the last after %s); errors %v",
		how, !r.Alone, seen, told, r.Before, r.Late, r.Later500, seenLimit, r.Session, r.Last.Round(time.Millisecond), r.Codes)
}

// SplitBrain cuts the primary off from all members but the one that is left behind, or freezes it, and that one off from its
// standby, promotes the standby, and has clients write through who is left behind all the while. Then it undoes what it cut;
// Mend repairs the servers.
func (l *Lab) SplitBrain(ctx context.Context, s Split) (SplitResult, error) {
	if s.Stays == 0 {
		s.Stays = 3 * time.Second
	}
	if s.Each == 0 {
		s.Each = 4
	}
	r := SplitResult{Split: s, Alone: l.config.Alone}
	primary, standby := l.Primary(), l.standbys()[0]
	behind, ahead := l.sides(s)
	began := time.Now()
	var writers []*Writers
	for _, m := range behind {
		writers = append(writers, l.Write("session", s.Each, m.Addr), l.Write("transaction", s.Each, m.Addr))
	}
	end := func() {
		for _, w := range writers {
			w.End()
		}
	}
	healed := false
	heal := func() (err error) {
		for _, m := range l.Members {
			for _, s := range l.Servers {
				err = errors.Join(err, l.Net.Heal(m.Name, l.ServerName(s)))
			}
		}
		healed = true
		return err
	}
	defer func() {
		if !healed { // so that those who wait come to an end
			heal() //nolint:errcheck // something else has failed
		}
		end()
	}()
	for _, w := range writers {
		if err := w.Await(ctx, s.Each, primary, began); err != nil {
			return r, err
		}
	}
	cut := time.Now()
	if err := l.cutOff(behind, l.standbys()...); err != nil {
		return r, err
	}
	if s.Freeze {
		if err := primary.Freeze(); err != nil {
			return r, err
		}
	} else if err := l.cutOff(ahead, primary); err != nil {
		return r, err
	}
	if err := standby.Promote(ctx); err != nil {
		return r, err
	}
	r.Promoted = time.Now()
	if err := r.sees(ctx, ahead, standby); err != nil {
		return r, err
	}
	if s.Freeze {
		if err := primary.Thaw(); err != nil {
			return r, err
		}
		r.Thawed = time.Now()
	}
	if !r.Alone {
		r.Shows = l.shows(ctx, behind[0])
	}
	if err := until(ctx, r.Promoted.Add(s.Stays)); err != nil {
		return r, err
	}
	// Clients may be waiting for a primary: their errors tell what the member says.
	row, err := behind[0].Shard(ctx)
	if err != nil {
		return r, err
	}
	r.Shows = strings.TrimSpace(r.Shows + "\n" + fmt.Sprint(row))
	for _, m := range ahead {
		if n := len(m.elections(r.Seen.Add(time.Millisecond), primary.Front)); n > 0 {
			return r, fmt.Errorf("%s has elected the old primary again", m.Name)
		}
	}
	r.told(behind, cut)
	r.Codes = map[string]int{}
	if err := heal(); err != nil {
		return r, err
	}
	end()
	for _, w := range writers {
		r.count(w, primary)
	}
	return r, nil
}

// cutOff cuts members off from servers.
func (l *Lab) cutOff(members []*Member, servers ...*Server) error {
	for _, m := range members {
		for _, s := range servers {
			if err := l.Net.Cut(m.Name, l.ServerName(s)); err != nil {
				return err
			}
		}
	}
	return nil
}

// elections are the lines of the log that say that a member elected a server, "" for none.
func (m *Member) elections(since time.Time, front string) []product.Line {
	return m.Lines(since, "shard: view", `"elected":"`+front+`"`)
}

// sees waits until one of the members has elected the new primary.
func (r *SplitResult) sees(ctx context.Context, ahead []*Member, next *Server) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := poll.Until(ctx, 10*time.Millisecond, func() (bool, error) {
		for _, m := range ahead {
			for _, line := range m.elections(r.Promoted.Add(-time.Second), next.Front) {
				if r.Seen.IsZero() || line.At.Before(r.Seen) {
					r.Seen = line.At
				}
			}
		}
		return !r.Seen.IsZero(), nil
	})
	if err != nil {
		return fmt.Errorf("no member has elected the new primary: %w", err)
	}
	return nil
}

// told says when those that are left behind gave the old primary up, since they were cut off from its successor. A frozen one
// they give up for itself.
func (r *SplitResult) told(behind []*Member, cut time.Time) {
	if r.Alone || r.Freeze {
		return
	}
	for _, m := range behind {
		if given := m.elections(cut, ""); len(given) > 0 {
			r.Told = append(r.Told, max(0, given[0].At.Sub(r.Seen)))
		} else {
			r.Untold++
		}
	}
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
func (l *Lab) shows(ctx context.Context, m *Member) string {
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

// Mend heals the network, slow ways excepted, and makes every server that is not the primary its standby, from a copy of it, and waits until the
// fleet is whole.
func (l *Lab) Mend(ctx context.Context) error {
	err := l.Net.HealAll()
	primary := l.Primary()
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
