package session

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/internal/fakepg"
	"fencepost/wire"
)

// line is a client, a server and the two directions between them, with a tracker where the relay is: it notes what the
// client sends as it is put on the way to the server, and what the server sends as it arrives.
type line struct {
	tracker  Tracker
	engine   *fakepg.Engine
	toServer []pgproto3.FrontendMessage
	toClient []pgproto3.BackendMessage
	batch    bool // the server has worked on extended messages since the last Sync
	ended    bool // the server has ended the session
	log      []string
}

func newLine() *line {
	l := &line{}
	l.tracker.Reset()
	l.engine = fakepg.NewEngine(func(m pgproto3.BackendMessage) {
		b, _ := m.Encode(nil) // the engine may use its memory again
		l.toClient = append(l.toClient, decodeAnswer(b))
	})
	return l
}

// answer is a server's message as far as the tracker sees it.
type answer struct {
	pgproto3.BackendMessage
	typ    byte
	status byte
}

func decodeAnswer(b []byte) pgproto3.BackendMessage {
	a := answer{typ: b[0]}
	if a.typ == wire.MsgReadyForQuery {
		a.status = b[5]
	}
	return a
}

func (l *line) note(format string, args ...any) { l.log = append(l.log, fmt.Sprintf(format, args...)) }

func (l *line) send(m pgproto3.FrontendMessage) error {
	b, err := m.Encode(nil)
	if err != nil {
		return err
	}
	l.note(">%c %s", b[0], strings.Trim(fmt.Sprintf("%+v", m), "&{}"))
	if !l.tracker.Sent(b[0]) {
		return fmt.Errorf("%c is refused", b[0])
	}
	l.toServer = append(l.toServer, m)
	return nil
}

// serve lets the server work on one message.
func (l *line) serve() {
	m := l.toServer[0]
	l.toServer = l.toServer[1:]
	l.note("  server takes %T", m)
	if l.engine.Listening() {
		switch m.(type) {
		case *pgproto3.Parse, *pgproto3.Bind, *pgproto3.Describe, *pgproto3.Execute, *pgproto3.Close:
			l.batch = true
		case *pgproto3.Query, *pgproto3.FunctionCall:
			l.batch = false
		}
	}
	inCopy := !l.engine.Listening()
	l.ended = !l.engine.Handle(m)
	if _, sync := m.(*pgproto3.Sync); sync && (!inCopy || l.engine.Listening()) {
		l.batch = false
	}
}

func (l *line) receive() error {
	a := l.toClient[0].(answer)
	l.toClient = l.toClient[1:]
	var ok bool
	if a.typ == wire.MsgReadyForQuery {
		l.note("<Z:%c", a.status)
		ok = l.tracker.Ready(a.status)
	} else {
		l.note("<%c", a.typ)
		ok = l.tracker.Received(a.typ)
	}
	if !ok {
		return fmt.Errorf("the tracker does not understand %c", a.typ)
	}
	return nil
}

// idleWay reports whether nothing is on its way to the server that a server at rest would act upon: what comes too late
// for its COPY is read and forgotten, and a Flush answers nothing.
func (l *line) idleWay() bool {
	for _, m := range l.toServer {
		switch m.(type) {
		case *pgproto3.CopyData, *pgproto3.CopyDone, *pgproto3.CopyFail, *pgproto3.Flush:
		default:
			return false
		}
	}
	return true
}

// check compares what the tracker says with the truth.
func (l *line) check() error {
	quiet := l.idleWay() && len(l.toClient) == 0 && l.engine.Listening() && !l.batch
	idle := quiet && l.engine.AtRest()
	t := &l.tracker
	l.note("    %s", state(t))
	switch {
	case t.Idle() && !idle:
		return fmt.Errorf("idle is claimed early: %d messages to the server, %d to the client, server at rest: %v",
			len(l.toServer), len(l.toClient), l.engine.AtRest())
	case t.AtRest() && !quiet:
		return fmt.Errorf("rest is claimed early: %d messages to the server, %d to the client", len(l.toServer), len(l.toClient))
	case t.Pinned() || l.ended:
		return nil
	case idle && !t.Idle():
		return fmt.Errorf("everything is at rest and the tracker is not idle")
	case quiet && !t.AtRest():
		return fmt.Errorf("nothing is under way and the tracker is not at rest")
	case quiet && t.Status() != l.engine.Status():
		return fmt.Errorf("status is %c, the server's %c", t.Status(), l.engine.Status())
	}
	return nil
}

// converse plays one conversation to its end: the client sends what next returns, one piece at a time, the server works
// and the answers arrive, in a random order of steps.
func converse(r *rand.Rand, pieces int, next func() [][]pgproto3.FrontendMessage) (*line, error) {
	l := newLine()
	var sending [][]pgproto3.FrontendMessage
	for !l.ended || len(l.toClient) > 0 {
		var steps []func() error
		if len(sending) == 0 && pieces > 0 {
			pieces--
			sending = next()
		}
		if len(sending) > 0 && !l.ended {
			steps = append(steps, func() error {
				piece := sending[0]
				sending = sending[1:]
				for _, m := range piece {
					if err := l.send(m); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if len(l.toServer) > 0 && !l.ended {
			steps = append(steps, func() error { l.serve(); return nil })
		}
		if len(l.toClient) > 0 {
			steps = append(steps, l.receive)
		}
		if len(steps) == 0 {
			break
		}
		if err := steps[r.IntN(len(steps))](); err != nil {
			return l, err
		}
		if err := l.check(); err != nil {
			return l, err
		}
	}
	return l, nil
}

func conversations(t *testing.T, n uint64) (first, last uint64) {
	t.Helper()
	if s := os.Getenv("SESSION_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return seed, seed + 1
	}
	return 0, n
}

// Whatever a client sends and however it is interleaved with the answers: the tracker is never idle, nor at rest, while
// anything is under way or open; and unless it gave up its accounting (pinned) it is idle as soon as nothing is.
// SESSION_SEED plays one conversation.
func TestIdleExactlyWhenServerIs(t *testing.T) {
	first, last := conversations(t, 40000)
	pinned, ended := 0, 0
	for seed := first; seed < last; seed++ {
		r := rand.New(rand.NewPCG(seed, 2))
		l, err := converse(r, 1+r.IntN(8), func() [][]pgproto3.FrontendMessage { return cut(r, fakepg.Random(r, "x")) })
		if err != nil {
			t.Fatalf("seed %d:\n%s\n%v", seed, strings.Join(l.log, "\n"), err)
		}
		if l.tracker.Pinned() {
			pinned++
		}
		if l.ended {
			ended++
		}
	}
	if n := int(last - first); n > 1 && (pinned+ended > n/2 || ended == 0 || pinned == 0) {
		t.Errorf("of %d conversations %d were pinned and %d ended by the server: too many or too few to show much", n, pinned, ended)
	}
}

// cut cuts at random places, as a network may.
func cut(r *rand.Rand, all []pgproto3.FrontendMessage) (pieces [][]pgproto3.FrontendMessage) {
	for len(all) > 0 {
		n := 1 + r.IntN(len(all))
		pieces = append(pieces, all[:n])
		all = all[n:]
	}
	return pieces
}

// What sensible clients do is never pinned: batches that end with a Sync, COPY as libpq does it (data and end after
// CopyInResponse or blindly, then a Sync), pipelines of such.
func TestSensibleClientsAreNeverPinned(t *testing.T) {
	first, last := conversations(t, 10000)
	for seed := first; seed < last; seed++ {
		r := rand.New(rand.NewPCG(seed, 3))
		l, err := converse(r, 1+r.IntN(6), func() [][]pgproto3.FrontendMessage { return sensible(r) })
		if err == nil && l.tracker.Pinned() {
			err = fmt.Errorf("pinned")
		}
		if err == nil && l.ended {
			err = fmt.Errorf("the server has ended the session: not so sensible")
		}
		if err == nil && !l.tracker.AtRest() {
			err = fmt.Errorf("not at rest at the end")
		}
		if err != nil {
			t.Fatalf("seed %d:\n%s\n%v", seed, strings.Join(l.log, "\n"), err)
		}
	}
}

// sensible is a list of what is written at a time.
func sensible(r *rand.Rand) (pieces [][]pgproto3.FrontendMessage) {
	piece := func(all ...pgproto3.FrontendMessage) { pieces = append(pieces, all) }
	texts := []string{"SELECT 'x'", "SELECT 'x' FROM generate_series(1,3)", "BEGIN", "COMMIT", "DO $$BEGIN RAISE EXCEPTION 'x'; END$$",
		"COPY (SELECT 'x' FROM generate_series(1,2)) TO STDOUT", "nonsense"}
	sql := func() string { return texts[r.IntN(len(texts))] }
	data := func(end ...pgproto3.FrontendMessage) {
		for range r.IntN(3) {
			piece(&pgproto3.CopyData{Data: []byte([]string{"1\n", "x\n"}[r.IntN(8)/7])})
		}
		if r.IntN(5) == 0 {
			piece(append([]pgproto3.FrontendMessage{&pgproto3.CopyFail{}}, end...)...)
		} else {
			piece(append([]pgproto3.FrontendMessage{&pgproto3.CopyDone{}}, end...)...)
		}
	}
	const copyIn = "COPY t FROM STDIN"
	switch r.IntN(5) {
	case 0:
		piece(&pgproto3.Query{String: sql() + ";" + sql()})
	case 1:
		piece(&pgproto3.Query{String: copyIn})
		data()
	case 2: // the server ignores the first Sync, unless the COPY does not begin
		piece(&pgproto3.Parse{Query: copyIn}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Sync{})
		data(&pgproto3.Sync{})
	default:
		var all []pgproto3.FrontendMessage
		for range 1 + r.IntN(3) {
			all = append(all, &pgproto3.Parse{Query: sql()}, &pgproto3.Bind{}, &pgproto3.Describe{ObjectType: wire.ObjectPortal}, &pgproto3.Execute{})
		}
		piece(append(all, &pgproto3.Sync{})...)
	}
	return pieces
}
