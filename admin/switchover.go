package admin

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	"fencepost/cluster"
	"fencepost/pgerr"
)

// The heartbeat of a SWITCHOVER. Each one makes writes wait for holdFor from when it arrives: if this process dies, or is
// cut off, they go on by themselves.
const (
	holdFor    = 2 * time.Second
	heartbeat  = 500 * time.Millisecond
	firstBeats = 50 * time.Millisecond // while running transactions end: writes wait, and nobody does anything yet
	beatLimit  = 1500 * time.Millisecond
)

const (
	switchoverLimit    = 30 * time.Second
	maxSwitchoverLimit = time.Hour
)

// switching is one SWITCHOVER.
type switching struct {
	x       *execution
	shard   string
	order   string
	from    string   // the primary that writes wait on
	without []string // members that need not take part
	ready   bool     // every member has come to rest: said to the client
}

// switchover is SWITCHOVER shard [SECONDS] [WITHOUT member, …]: writes wait at every member until another host is the primary, which
// somebody else sees to.
func switchover(x *execution, s statement) error {
	s, without, syntax := s.split()
	if syntax != nil {
		return syntax
	}
	args := s.args()
	limit := switchoverLimit
	if len(args) == 2 {
		n, err := strconv.ParseUint(args[1].text, 10, 32)
		if err != nil || args[1].kind != 'w' {
			return pgerr.ConsoleSyntax(s.text)
		}
		if limit = time.Duration(n) * time.Second; limit <= 0 || limit > maxSwitchoverLimit {
			return pgerr.ConsoleError(fmt.Sprintf("SWITCHOVER waits from 1 to %d seconds", int(maxSwitchoverLimit/time.Second)))
		}
		args = args[:1]
	}
	if len(args) > 1 || len(args) == 1 && !args[0].name() {
		return pgerr.ConsoleSyntax(s.text)
	}
	name := ""
	if len(args) == 1 {
		name = args[0].text
	}
	ref, err := x.shard(s, name)
	if err != nil {
		return err
	}
	w := &switching{x: x, shard: ref.Name, order: rand.Text(), without: without}
	r, err := x.callRoll()
	if err := firstError(err, r.checkNames(without), r.complete(without)); err != nil {
		return err
	}
	answers, err := w.run(time.Now().Add(limit))
	if err != nil {
		return w.giveUp(err)
	}
	t := &table{columns: "sqss", names: []string{"member", "paused_ms", "from", "to"}}
	for _, a := range answers {
		h, _ := readHolding(a.Rows)
		var paused any = h.paused.Milliseconds()
		if h.paused == 0 {
			paused = null{} // it came later, or was quicker to see the new primary than to be told
		}
		t.row(orNull(a.Member), paused, h.from, h.elected)
	}
	x.c.log.Info().Str("shard", w.shard).Str("from", w.from).Msg("switchover: writes resume at the new primary")
	x.out = t.encode(x.out, "SWITCHOVER")
	return nil
}

// run makes writes wait until every member has another primary, and returns the last answers.
func (w *switching) run(deadline time.Time) ([]cluster.Answer, error) {
	for {
		began := time.Now()
		answers, err := w.x.everywhere(beatLimit, holdVerb, w.shard, w.order, strconv.Itoa(int(holdFor/time.Millisecond)), w.from)
		if err != nil {
			return nil, err
		}
		r, err := w.x.callRoll() // behind the answers: a member that was not asked because it is not heard is missed now
		if err := firstError(err, r.complete(w.without)); err != nil {
			return nil, err
		}
		quiet, moved, err := w.read(answers)
		whole := r.unasked(answers) == "" // who has come meanwhile is asked next time
		switch {
		case err != nil:
			return nil, err
		case !whole:
		case moved:
			return answers, nil
		case quiet && !w.ready:
			w.ready = true
			w.x.c.log.Info().Str("shard", w.shard).Str("from", w.from).Msg("switchover: writes are paused: switch over now")
			w.x.notice("writes of shard " + w.shard + " are paused at every member" + w.except() + ": switch over from " + w.from + " now")
			w.x.flush()
		}
		beat := heartbeat
		if !w.ready {
			beat = firstBeats
		}
		next := began.Add(beat)
		if next.After(deadline) {
			return nil, w.late(answers)
		}
		select {
		case <-w.x.ctx.Done():
			return nil, context.Cause(w.x.ctx)
		case <-time.After(time.Until(next)):
		}
		if w.x.gone() {
			return nil, errClientGone
		}
	}
}

// except names the members that take no part.
func (w *switching) except() string {
	if len(w.without) == 0 {
		return ""
	}
	return " but " + strings.Join(w.without, ", ")
}

// read finds what is doubtful in the members' answers; else whether all are at rest, or all have one other primary.
func (w *switching) read(answers []cluster.Answer) (quiet, moved bool, err error) {
	quiet, moved = true, true
	to := ""
	for _, a := range answers {
		h, ok := readHolding(a.Rows)
		switch {
		case a.Err != "":
			return false, false, w.doubt(a, a.Err)
		case !ok:
			return false, false, w.doubt(a, "its answer is unreadable")
		case w.from == "":
			w.from = h.from
		}
		if h.from != w.from {
			return false, false, w.doubt(a, fmt.Sprintf("its primary is %s, that of others %s", h.from, w.from))
		}
		if !h.held && !h.moved() {
			return false, false, w.doubt(a, "its writes were no longer paused")
		}
		quiet = quiet && (h.quiet() || h.moved())
		if !h.moved() {
			moved = false
			continue
		}
		if to == "" {
			to = h.elected
		}
		moved = moved && h.elected == to
	}
	return quiet, moved, nil
}

func (w *switching) doubt(a cluster.Answer, why string) error {
	who := "this process"
	if a.Member != "" {
		who = "member " + a.Member
	}
	return pgerr.ConsoleError(who + ": " + why)
}

// late is the error when the time is over: who is not where it should be.
func (w *switching) late(answers []cluster.Answer) error {
	var lines []string
	for _, a := range answers {
		h, _ := readHolding(a.Rows)
		state := fmt.Sprintf("no primary other than %s is known", h.from)
		switch {
		case h.moved():
			state = h.elected + " is the primary"
		case !w.ready && h.busy > 0:
			state = fmt.Sprintf("%d server connections to %s are still in use", h.busy, h.from)
		}
		lines = append(lines, strings.TrimSpace(a.Member+" "+a.Address+": "+state))
	}
	why := "no other primary was elected in time"
	if !w.ready {
		why = "transactions did not end in time"
	}
	return pgerr.ConsoleError(why).WithDetail(strings.Join(lines, "\n"))
}

// giveUp lets writes go on everywhere. A member that does not hear of it lets them go on when holdFor is over.
func (w *switching) giveUp(err error) error {
	// Here at once, whatever the fleet's actor does.
	w.x.c.release(w.shard, w.order)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.x.ctx), holdFor)
	defer cancel()
	if w.x.ops.Fleet() != nil {
		_, _ = w.x.c.everywhere(ctx, holdFor, releaseVerb, w.shard, w.order)
	}
	e := asError(err)
	w.x.c.log.Warn().Str("shard", w.shard).Str("from", w.from).Str("reason", inOneLine(e)).Msg("switchover: given up, writes resume")
	given := pgerr.ConsoleError("SWITCHOVER of shard " + w.shard + " was given up, writes resume")
	if e.Code != given.Code { // a cancel, the end of the process
		return e.WithDetail(given.Message)
	}
	return given.WithDetail(strings.TrimSuffix(e.Message+"\n"+e.Detail, "\n")).WithHint(e.Hint)
}
