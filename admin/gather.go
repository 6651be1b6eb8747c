package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"fencepost/actors/lane"
	"fencepost/actors/lane/pool"
	"fencepost/metrics"
)

// answerLimit is how long the loops have to answer before a command gives up.
const answerLimit = 5 * time.Second

// silent is the error of loops that did not answer in time.
type silent struct{ loops []int }

func (s *silent) Error() string {
	words := make([]string, len(s.loops))
	for i, n := range s.loops {
		words[i] = fmt.Sprint(n)
	}
	return "no answer in time from event loop " + strings.Join(words, ", ")
}

// ask sends a message to one actor on each loop and waits for their answers until ctx ends. With an error, a *silent,
// the answers of the others are there.
func ask[T any](ctx context.Context, system *actor.ActorSystem, of []*actor.PID, message func(chan<- T) any) ([]T, error) {
	return collect(ctx, tell(system, of, message))
}

// tell sends a message to one actor on each loop; it does not block. Each has a channel of its own to answer to, with
// room for the answer.
func tell[T any](system *actor.ActorSystem, to []*actor.PID, message func(chan<- T) any) []chan T {
	replies := make([]chan T, len(to))
	for i, pid := range to {
		replies[i] = make(chan T, 1)
		system.Root.Send(pid, message(replies[i]))
	}
	return replies
}

// collect waits for what tell asked for.
func collect[T any](ctx context.Context, replies []chan T) ([]T, error) {
	var answers []T
	var missing []int
	for i, reply := range replies {
		if a, ok := receive(ctx, reply); ok {
			answers = append(answers, a)
		} else {
			missing = append(missing, i)
		}
	}
	if missing != nil {
		return answers, &silent{missing}
	}
	return answers, nil
}

// receive waits for one answer until ctx ends.
func receive[T any](ctx context.Context, reply <-chan T) (answer T, ok bool) {
	select {
	case answer = <-reply:
		return answer, true
	default: // what is there counts, also when ctx has ended
	}
	select {
	case answer = <-reply:
		return answer, true
	case <-ctx.Done():
		return answer, false
	}
}

// lanes asks for every lane's row.
func lanes(ctx context.Context, ops Operations) ([]lane.LaneRow, error) {
	answers, err := ask(ctx, ops.System(), ops.Lanes(), func(r chan<- []lane.LaneRow) any { return &lane.Describe{Reply: r} })
	return slices.Concat(answers...), err
}

// clients asks for every client's row, sorted by id.
func clients(ctx context.Context, ops Operations) ([]ClientRow, error) {
	answers, err := ask(ctx, ops.System(), ops.Sessions(), func(r chan<- []ClientRow) any { return &DescribeClients{Reply: r} })
	rows := slices.Concat(answers...)
	slices.SortFunc(rows, func(a, b ClientRow) int { return cmp.Compare(a.ID, b.ID) })
	return rows, err
}

// consoles counts the console's own sessions.
func consoles(ctx context.Context, ops Operations) (int, error) {
	answers, err := ask(ctx, ops.System(), ops.Sessions(), func(r chan<- []ClientRow) any {
		return &DescribeClients{Reply: r, ConsoleOnly: true}
	})
	n := 0
	for _, rows := range answers {
		for i := range rows {
			if rows[i].Console {
				n++
			}
		}
	}
	return n, err
}

// poolRow is a pool: its lanes on all loops together.
type poolRow struct {
	key             lane.PoolKey
	spec            *lane.PoolSpec
	clients         int
	waiting         int
	oldest          time.Duration
	servers         [pool.Closing + 1]int // by state, without those being cancelled
	beingCanceled   int                   // no longer leased, a cancel is still on its way to them
	cancelling      int                   // cancel requests on their way
	paused, failing bool
	stats           lane.Stats
}

// size is the number of server connections, whatever their state.
func (p *poolRow) size() int {
	n := p.beingCanceled
	for _, k := range p.servers {
		n += k
	}
	return n
}

// pools merges the lanes of each pool, sorted by database and user.
func pools(rows []lane.LaneRow) []*poolRow {
	byKey := map[lane.PoolKey]*poolRow{}
	var all []*poolRow
	for i := range rows {
		p := byKey[rows[i].Pool]
		if p == nil {
			p = &poolRow{key: rows[i].Pool, spec: rows[i].Spec, failing: true}
			byKey[p.key] = p
			all = append(all, p)
		}
		p.add(&rows[i])
	}
	slices.SortFunc(all, func(a, b *poolRow) int {
		return cmp.Or(cmp.Compare(a.key.Database, b.key.Database), cmp.Compare(a.key.ServerUser, b.key.ServerUser))
	})
	return all
}

func (p *poolRow) add(r *lane.LaneRow) {
	if p.spec == nil {
		p.spec = r.Spec
	}
	p.clients += r.Clients
	p.waiting += r.Waiting
	p.oldest = max(p.oldest, r.OldestWait)
	p.cancelling += r.Cancelling
	p.paused = p.paused || r.Paused
	p.failing = p.failing && r.Failing
	for s, n := range r.Counts {
		p.servers[s] += n
	}
	for _, b := range r.Backends {
		if beingCanceled(&b) && p.servers[b.State] > 0 {
			p.servers[b.State]--
			p.beingCanceled++
		}
	}
	addStats(&p.stats, &r.Stats)
}

// beingCanceled is PgBouncer's state of a server connection that its client has left before a cancel for it was done.
func beingCanceled(b *lane.BackendRow) bool { return b.Cancelling && b.State != pool.Leased }

// addStats adds what one lane has counted.
func addStats(to *lane.Stats, s *lane.Stats) {
	for _, c := range [...]struct {
		to *uint64
		n  uint64
	}{
		{&to.Assignments, s.Assignments}, {&to.Transactions, s.Transactions}, {&to.Queries, s.Queries},
		{&to.Received, s.Received}, {&to.Sent, s.Sent}, {&to.Logins, s.Logins}, {&to.Parses, s.Parses}, {&to.Binds, s.Binds}, {&to.UnownedStatements, s.UnownedStatements},
		{&to.Refused, s.Refused}, {&to.Dials, s.Dials}, {&to.DialFailures, s.DialFailures}, {&to.Losses, s.Losses},
		{&to.QueueCancels, s.QueueCancels}, {&to.IdleCancels, s.IdleCancels},
	} {
		*c.to += c.n
	}
	for o, n := range s.Cancels {
		to.Cancels[o] += n
	}
	for v, n := range s.Fences {
		to.Fences[v] += n
	}
	to.TransactionTime += s.TransactionTime
	to.QueryTime += s.QueryTime
	to.WaitTime += s.WaitTime
	for _, h := range [...]struct{ to, h *metrics.Histogram }{
		{&to.Wait, &s.Wait}, {&to.Query, &s.Query}, {&to.Transaction, &s.Transaction},
		{&to.CancelLease, &s.CancelLease}, {&to.FenceTime, &s.FenceTime}, {&to.PrimaryWait, &s.PrimaryWait},
	} {
		h.to.Merge(h.h)
	}
}
