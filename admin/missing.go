package admin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fencepost/cluster"
	"fencepost/pgerr"
)

// This file is what must hold at every member: SWITCHOVER and PAUSE FLEET. A member that is not heard goes on writing, so it must be
// named by an operator who knows that it is stopped.

// split takes WITHOUT member[, member …] off the end of a statement: the members that need not take part.
func (s statement) split() (rest statement, without []string, err *pgerr.Error) {
	at := slices.IndexFunc(s.tokens, func(t token) bool { return t.is("without") })
	if at <= 0 {
		return s, nil, nil
	}
	for i, t := range s.tokens[at+1:] {
		switch {
		case i%2 == 1 && t.kind == ',':
		case i%2 == 0 && t.name():
			without = append(without, t.text)
		default:
			return s, nil, pgerr.ConsoleSyntax(s.text)
		}
	}
	if (len(s.tokens)-at)%2 != 0 { // nobody behind WITHOUT or a comma
		return s, nil, pgerr.ConsoleSyntax(s.text)
	}
	slices.Sort(without)
	return statement{text: s.text, tokens: s.tokens[:at]}, slices.Compact(without), nil
}

// roll is who is in the fleet, as this member knows it.
type roll struct {
	size  int                      // fleet_size
	state map[string]cluster.State // by name: of several runs alive, if one is; else dead, if one is
	alive []cluster.MemberRow
}

// callRoll asks the fleet's actor who is there; nil without a fleet.
func (x *execution) callRoll() (*roll, error) {
	d, err := x.describeFleet()
	if d == nil || err != nil {
		return nil, err
	}
	r := &roll{size: d.Size, state: map[string]cluster.State{}}
	for _, m := range d.Members {
		was, known := r.state[m.Member]
		if m.State == cluster.Alive {
			r.alive = append(r.alive, m)
		}
		if !known || m.State == cluster.Alive || was != cluster.Alive && m.State == cluster.Dead {
			r.state[m.Member] = m.State
		}
	}
	return r, nil
}

// checkNames refuses names that make no sense behind WITHOUT.
func (r *roll) checkNames(without []string) error {
	if r == nil {
		if len(without) > 0 {
			return pgerr.ConsoleError("no fleet is configured")
		}
		return nil
	}
	strange, gone := "", 0
	for _, name := range without {
		switch state, known := r.state[name]; {
		case !known:
			strange = name // it may have been gone before this member came
		case state == cluster.Alive:
			return pgerr.ConsoleError("member " + name + " is alive: it takes part")
		default:
			gone++
		}
	}
	if strange != "" && (r.size <= 1 || r.missing(gone) <= 0) {
		return pgerr.ConsoleError("no such member: " + strange)
	}
	return nil
}

// heard is how many members are, this one included.
func (r *roll) heard() (n int) {
	for _, state := range r.state {
		if state == cluster.Alive {
			n++
		}
	}
	return n
}

// missing is how many of fleet_size are neither heard nor among so many named ones.
func (r *roll) missing(named int) int { return r.size - r.heard() - named }

// complete refuses while a member is not heard that is not named: of fleet_size, or, without that, of those that were heard within
// the last hour and did not say goodbye.
func (r *roll) complete(without []string) error {
	if r == nil {
		return nil
	}
	var silent, absent []string
	for _, name := range slices.Sorted(maps.Keys(r.state)) {
		switch state := r.state[name]; {
		case slices.Contains(without, name) || state == cluster.Alive:
		case state == cluster.Dead:
			silent, absent = append(silent, name), append(absent, name)
		default:
			absent = append(absent, name+" ("+state.String()+")")
		}
	}
	strange := slices.ContainsFunc(without, func(name string) bool { _, known := r.state[name]; return !known })
	switch enough := r.missing(len(without)) <= 0; {
	case r.size <= 1 && len(silent) == 0, r.size > 1 && enough && !(strange && len(silent) > 0):
		return nil
	case r.size <= 1:
		absent = silent
	}
	why := fmt.Sprintf("%d of %d members are heard", r.heard(), max(r.size, r.heard()+len(silent)))
	if len(absent) > 0 {
		why += "; not heard: " + strings.Join(absent, ", ")
	} else {
		why += "; this member does not know the others by name"
	}
	return pgerr.ConsoleError(why).
		WithHint("A member that is not heard may go on writing. If those that are missing are stopped, name them: … WITHOUT \"member\", \"member\".")
}

// unasked names a member that is alive and is not among those that were asked; "" if there is none.
func (r *roll) unasked(answers []cluster.Answer) string {
	if r == nil {
		return ""
	}
	for _, m := range r.alive {
		if !slices.ContainsFunc(answers, func(a cluster.Answer) bool { return a.Boot.String() == m.Boot }) {
			return m.Member
		}
	}
	return ""
}

// stillWhole reports who fell silent, or came, while the others carried something out.
func (x *execution) stillWhole(answers []cluster.Answer, without []string) error {
	r, err := x.callRoll()
	if err := firstError(err, r.complete(without)); err != nil {
		return err
	}
	if name := r.unasked(answers); name != "" {
		return pgerr.ConsoleError("member " + name + " has come meanwhile and has not carried it out")
	}
	return nil
}

// firstError is the first one that is not nil.
func firstError(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}
