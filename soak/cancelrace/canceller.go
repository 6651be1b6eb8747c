package cancelrace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/soak/raw"
)

// canceller is a client that cancels its own statements.
type canceller struct {
	c     *cell
	n     int
	rng   *rand.Rand
	conn  *raw.Conn
	round int
	open  []*request // that may still be under way
}

// A plan is one statement of a canceller and what is done to it.
type plan struct {
	kind  kind
	runs  time.Duration // how long the statement runs if it is let
	after time.Duration // from its reported start, or for blind from its sending, to the first cancel
	times int           // cancels
}

type kind uint8

// The kinds.
const (
	long   kind = iota // has time left when the cancel comes: it must be cancelled
	narrow             // ends about when its cancels are under way: they come to whatever follows it
	wide               // ends at any time
	blind              // is cancelled at any moment, also before its start
	leave              // its client goes as soon as the cancels are sent
)

// margin is what a statement has left at least, when a cancel reaches the server, to be judged.
const margin = 200 * time.Millisecond

// plan makes up the next round.
func (k *canceller) plan() plan {
	up := func(most time.Duration) time.Duration { return time.Duration(k.rng.Int64N(int64(most))) }
	extra := k.c.set.extra()
	// From the statement's start to the arrival of a cancel that is sent when the start is known here.
	way := 2*k.c.set.delay + extra
	least := k.c.set.leastCancels()
	p := plan{times: least + k.rng.IntN(mostCancels-least+1), after: up(2 * time.Millisecond)}
	switch dice := k.rng.IntN(100); {
	case dice < 30:
		p.kind = long
		p.runs = way + p.after + margin + 50*time.Millisecond // what this process may need to get to it
	case dice < 70:
		p.kind, p.runs = narrow, p.after+up(extra+4*time.Millisecond)
	case dice < 80:
		p.kind, p.runs = wide, up(2*way+2*time.Millisecond)
	case dice < 95:
		p.kind, p.after, p.runs = blind, up(2*way+10*time.Millisecond), up(way+2*time.Millisecond)
	default:
		p.kind, p.runs = leave, way+up(way)
	}
	return p
}

// run plays rounds until ctx ends. It fails only if it cannot go on.
func (k *canceller) run(ctx context.Context) error {
	defer func() {
		if k.conn != nil {
			k.conn.Terminate()
		}
	}()
	for ctx.Err() == nil {
		if k.conn == nil {
			var err error
			if k.conn, err = k.c.login(k.n); err != nil {
				return fmt.Errorf("login of a canceller: %w", err)
			}
			k.open = nil // of another session
		}
		err := k.play(k.plan())
		if err == nil && k.conn != nil {
			err = k.between(ctx)
		}
		if err != nil {
			k.c.fault("canceller: %v", err)
			k.conn.Close()
			k.conn = nil
		}
		pause(ctx, k.rng, k.c.set.rest())
	}
	return nil
}

// outcome is how a statement ended.
type outcome struct {
	started bool
	start   time.Time // by the server's clock, which is ours
	code    string    // of its error
	at      time.Time // when that came
}

// play runs one statement and has it cancelled.
func (k *canceller) play(p plan) error {
	k.round++
	k.c.rounds.Add(1)
	tag := fmt.Sprintf("c%d.%d", k.n, k.round)
	k.forget()
	before := len(k.open)
	until := time.Now().Add(patience)
	sql := fmt.Sprintf("DO $$BEGIN RAISE NOTICE '%s at %%', extract(epoch FROM clock_timestamp()); PERFORM pg_sleep(%f); END$$", tag, p.runs.Seconds())
	if err := k.conn.Send(until, &pgproto3.Query{String: sql}); err != nil {
		return err
	}
	if p.kind == blind {
		if err := k.cancel(p); err != nil {
			return err
		}
	}
	var o outcome
	for {
		m, err := k.conn.Receive(until)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *pgproto3.NoticeResponse:
			if o.start, err = startOf(m.Message, tag); err != nil {
				return err
			}
			o.started = true
			if p.kind != blind {
				if err := k.cancel(p); err != nil {
					return err
				}
			}
			if p.kind == leave {
				k.leave()
				return nil
			}
		case *pgproto3.ErrorResponse:
			o.code, o.at = m.Code, time.Now()
			if m.Code != queryCanceled {
				k.c.fault("canceller: %s %s: %s", m.Severity, m.Code, m.Message)
			}
		case *pgproto3.ReadyForQuery:
			k.judge(p, o, before)
			return nil
		case *pgproto3.CommandComplete:
		default:
			return fmt.Errorf("unexpected %T", m)
		}
	}
}

// startOf reads the notice that a statement sends when it starts.
func startOf(text, tag string) (time.Time, error) {
	rest, ok := strings.CutPrefix(text, tag+" at ")
	seconds, err := strconv.ParseFloat(rest, 64)
	if !ok || err != nil {
		return time.Time{}, fmt.Errorf("the notice of %s is %.100q", tag, text)
	}
	return time.UnixMicro(int64(seconds * 1e6)), nil
}

// cancel sends the plan's cancels from goroutines.
func (k *canceller) cancel(p plan) error {
	packet, err := cancelPacket(k.conn.PID, k.conn.Secret)
	if err != nil {
		return err
	}
	for i := range p.times {
		q := &request{round: k.round, packet: packet, after: p.after, vanish: k.rng.IntN(5) == 0, left: make(chan struct{}), ended: make(chan struct{})}
		if i > 0 {
			q.after += time.Duration(k.rng.Int64N(int64(3 * time.Millisecond)))
		}
		k.open = append(k.open, q)
		k.c.cancels.Add(1)
		go func() { // ends with its connection
			defer k.c.cancels.Done()
			q.send(k.c.hard, k.c)
		}()
	}
	return nil
}

// leave goes as soon as the first cancel of this round is on its way, without a word.
func (k *canceller) leave() {
	for _, q := range k.open {
		if q.round == k.round {
			<-q.left
			break
		}
	}
	if k.rng.IntN(2) == 0 {
		k.conn.Reset()
	} else {
		k.conn.Close()
	}
	k.conn = nil
}

// judge says what became of a statement. before is how many older requests could still hit it.
func (k *canceller) judge(p plan, o outcome, before int) {
	first := time.Time{} // of this round's requests that were sent while it ran
	for _, q := range k.open[before:] {
		if ns := q.sent.Load(); ns != 0 {
			if t := time.Unix(0, ns); first.IsZero() || t.Before(first) {
				first = t
			}
		}
	}
	own := !first.IsZero()
	switch {
	case o.code == queryCanceled && own && o.started:
		k.c.hit.Add(1)
	case o.code == queryCanceled && own:
		k.c.unstarted.Add(1)
	case o.code == queryCanceled && before > 0:
		k.c.late.Add(1)
	case o.code == queryCanceled:
		k.c.foreign.Add(1)
	case o.code == "":
		k.c.untouched.Add(1)
	}
	if p.kind != long || !o.started || !own || k.c.set.late {
		return
	}
	left := o.start.Add(p.runs).Sub(first.Add(k.c.set.delay + k.c.set.extra()))
	if left < margin {
		return // this process was too slow to ask in time
	}
	k.c.judged.Add(1)
	if o.code != "" {
		k.c.effect(o.at.Sub(first))
		return
	}
	k.c.missed.Add(1)
	ended := 0
	for _, q := range k.open[before:] {
		if q.over(time.Now()) {
			ended++
		}
	}
	k.c.fault("no effect: %d cancels, the first %v after the start; %d of their connections had ended when the statement did, %v after its start",
		p.times, first.Sub(o.start).Round(time.Millisecond), ended, time.Since(o.start).Round(time.Millisecond))
}

// between comes after a round: half of the time the cancels' ends are waited for, so that nothing of ours can hit what
// follows; then, not each time over a long link,
// something short that must be answered.
func (k *canceller) between(ctx context.Context) error {
	if k.rng.IntN(2) == 0 {
		for _, q := range k.open {
			select {
			case <-q.ended:
			case <-ctx.Done():
			}
		}
	}
	if k.c.set.delay > 0 && k.rng.IntN(4) > 0 {
		return nil
	}
	k.forget()
	before := len(k.open)
	want := fmt.Sprintf("p%d.%d", k.n, k.round)
	until := time.Now().Add(patience)
	if err := k.conn.Send(until, &pgproto3.Query{String: "SELECT '" + want + "', pg_sleep(0.0005)"}); err != nil {
		return err
	}
	r, err := k.conn.Collect(until, 1, nil)
	if err != nil {
		return err
	}
	switch errs := r.Segments[0].Errors; {
	case r.String() == "T D["+want+"|] C[SELECT 1] Z[I]":
	case len(errs) == 1 && errs[0].Code == queryCanceled && before > 0:
		k.c.late.Add(1)
	case len(errs) == 1 && errs[0].Code == queryCanceled:
		k.c.foreign.Add(1)
	case len(errs) > 0:
		k.c.fault("canceller: %s", errs[0].Error())
	default:
		return fmt.Errorf("got %.200s, wanted a row with %s", r, want)
	}
	return nil
}

// forget drops the requests that cannot hit anything any more.
func (k *canceller) forget() {
	now := time.Now()
	kept := k.open[:0]
	for _, q := range k.open {
		if !q.over(now) {
			kept = append(kept, q)
		}
	}
	k.open = kept
}
