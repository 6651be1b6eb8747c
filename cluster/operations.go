package cluster

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/cluster/evidence"
)

// CancelWait is how long the member that a cancel is for may take to say that it has been dealt with.
const CancelWait = 10 * time.Second

// maxCancels is how many cancels for one member may wait for that. Anybody can send them, with any key, and need not stay.
const maxCancels = 512

// cancelFor passes a cancel on to the one member it is for.
func (f *fleet) cancelFor(now time.Time, msg *CancelFor) {
	to, ambiguous := f.roster.byPeerID(msg.PeerID)
	done := msg.Done
	if done == nil {
		done = func() {}
	}
	f.requestID++
	switch id := f.requestID; {
	case ambiguous:
		f.counts.cancelsRefused++
		f.journal.note(zerolog.ErrorLevel, fmt.Sprintf("a cancel was dropped: two members have peer_id %d", msg.PeerID), "")
	case to == nil || to.self || len(msg.Key) == 0:
		f.counts.cancelsUnknown++
	case to.cancels < maxCancels:
		answered := make(chan struct{})
		over := func() { close(answered); done() }
		if f.sendWithRetry(to, &message{kind: cancelMessage, request: id, peerID: msg.PeerID, key: slices.Clone(msg.Key)}, answered) {
			f.counts.cancelsSent++
			to.cancels++
			f.requests[id] = &request{waits: map[evidence.Boot]*Answer{to.Boot: {}}, deadline: now.Add(CancelWait), cancels: to, done: over}
			return // a tick is never further away than its deadline
		}
		f.counts.dropped++
	default:
		f.counts.dropped++
	}
	done()
}

// cancelArrived gives a cancel to the process's own; it is never passed on.
func (f *fleet) cancelArrived(ctx actor.Context, now time.Time, from *member, l *message) {
	e := &servedRequest{from: from, request: l.request, deadline: now.Add(CancelWait), cancel: true}
	switch {
	case from.PeerID == f.cfg.PeerID:
		f.counts.cancelsRefused++
		f.journal.note(zerolog.ErrorLevel, fmt.Sprintf("a cancel was refused: two members have peer_id %d", from.PeerID), "from "+from.Member)
	case l.peerID != f.cfg.PeerID || f.attached.Cancels == nil || len(f.served) >= maxServed:
		f.counts.cancelsUnknown++
	default:
		f.counts.cancelsReceived++
		f.requestID++
		id, root, self := f.requestID, ctx.ActorSystem().Root, ctx.Self()
		f.served[id] = e
		done := func() { root.Send(self, &OperationDone{ID: id}) }
		ctx.Send(f.attached.Cancels, &CancelFor{PeerID: l.peerID, Key: l.key, Done: sync.OnceFunc(done)})
		return
	}
	f.respond(e, &OperationDone{})
}

// request is an operation that members are asked for.
type request struct {
	waits    map[evidence.Boot]*Answer
	answers  []*Answer
	deadline time.Time
	reply    chan<- OperationResult
	cancels  *member // it is a cancel for this member
	done     func()  // of a cancel
	settings *member // it asked for the settings of this member only
}

// servedRequest is an operation that this member is asked for.
type servedRequest struct {
	from     *member
	request  uint64
	deadline time.Time
	cancel   bool
}

// settingsVerb asks a member for its settings. No operation of others has a name like that.
const settingsVerb = "\x00settings"

const (
	defaultTimeout = 10 * time.Second
	maxServed      = 1024
)

func (f *fleet) operate(ctx actor.Context, now time.Time, msg *Operate) {
	timeout := cmp.Or(max(msg.Timeout, 0), defaultTimeout)
	f.requestID++
	id := f.requestID
	r := &request{waits: make(map[evidence.Boot]*Answer), deadline: now.Add(timeout), reply: msg.Reply}
	f.requests[id] = r
	asked := slices.DeleteFunc(f.roster.sorted(), func(m *member) bool { return m.state != Alive })
	for _, m := range asked { // before anybody can answer
		a := &Answer{Member: m.Member, Boot: m.Boot, Address: m.node.addr.String()}
		r.answers = append(r.answers, a)
		r.waits[m.Boot] = a
	}
	for _, m := range asked {
		switch l := (&message{kind: requestMessage, request: id, left: timeout, verb: msg.Verb, args: msg.Args}); {
		case m.self:
			f.serve(ctx, now, m, l)
		case f.post(m, l) == nil:
			f.recordAnswer(id, m.Boot, "the request could not be sent", nil)
		}
	}
	f.finish(id)
	f.arm(now)
}

// serve has this member's Operations do something.
func (f *fleet) serve(ctx actor.Context, now time.Time, from *member, l *message) {
	if f.attached.Operations == nil || len(f.served) >= maxServed {
		f.respond(&servedRequest{from: from, request: l.request}, &OperationDone{Err: "the member cannot do that now"})
		return
	}
	f.requestID++
	e := &servedRequest{from: from, request: l.request, deadline: now.Add(min(l.left, time.Hour))}
	f.served[f.requestID] = e
	ctx.Send(f.attached.Operations, &Operation{ID: f.requestID, Verb: l.verb, Args: l.args, From: from.Member, FromBoot: from.Boot,
		Deadline: e.deadline, Reply: ctx.Self()})
}

func (f *fleet) requestArrived(ctx actor.Context, now time.Time, from *member, l *message) {
	f.counts.requests++
	if l.verb != settingsVerb {
		f.serve(ctx, now, from, l)
		return
	}
	done := &OperationDone{}
	for _, k := range slices.Sorted(maps.Keys(f.settings)) {
		done.Rows = append(done.Rows, []string{k, f.settings[k]})
	}
	f.respond(&servedRequest{from: from, request: l.request}, done)
}

func (f *fleet) operationDone(msg *OperationDone) {
	e := f.served[msg.ID]
	if e == nil {
		f.counts.late++
		return
	}
	delete(f.served, msg.ID)
	f.respond(e, msg)
}

func (f *fleet) respond(e *servedRequest, msg *OperationDone) {
	if e.from.self {
		f.recordAnswer(e.request, e.from.Boot, msg.Err, msg.Rows)
		f.finish(e.request)
		return
	}
	l := &message{kind: answerMessage, request: e.request, err: msg.Err, rows: msg.Rows}
	if _, err := l.encode(); err != nil {
		l.err, l.rows = "it was done, but the answer is too long", nil
	}
	if message := f.post(e.from, l); message != nil && e.cancel {
		f.link.sendPacket(packet{message, []node{e.from.node}}) // as a datagram, too: it is waited for
	}
}

func (f *fleet) answerArrived(from *member, l *message) {
	if r := f.requests[l.request]; r != nil && r.settings == from {
		delete(f.requests, l.request)
		f.settingsArrived(from, l.rows)
		return
	}
	f.recordAnswer(l.request, from.Boot, l.err, l.rows)
	f.finish(l.request)
}

// recordAnswer records a member's answer to a request.
func (f *fleet) recordAnswer(id uint64, b evidence.Boot, err string, rows [][]string) {
	r := f.requests[id]
	if r == nil || r.waits[b] == nil {
		f.counts.late++
		return
	}
	r.waits[b].Err, r.waits[b].Rows = err, rows
	delete(r.waits, b)
}

// finish answers a request when every answer is there.
func (f *fleet) finish(id uint64) {
	r := f.requests[id]
	if r == nil || len(r.waits) > 0 || r.settings != nil {
		return
	}
	delete(f.requests, id)
	if r.cancels != nil {
		r.cancels.cancels--
		r.done()
		return
	}
	var result OperationResult
	for _, a := range r.answers {
		result.Answers = append(result.Answers, *a)
	}
	answer(r.reply, result)
}

func (f *fleet) undelivered(msg *undelivered) {
	f.counts.undelivered++
	f.journal.note(zerolog.WarnLevel, "a message to a member could not be sent", msg.err.Error())
	if msg.request != 0 {
		f.recordAnswer(msg.request, msg.to, "the member cannot be reached", nil)
		f.finish(msg.request)
	}
}

// forsake gives up waiting for a member that is gone.
func (f *fleet) forsake(m *member) {
	for _, id := range slices.Sorted(maps.Keys(f.requests)) {
		if r := f.requests[id]; r.waits[m.Boot] != nil {
			f.recordAnswer(id, m.Boot, "the member is gone", nil)
			f.finish(id)
		} else if r.settings == m {
			delete(f.requests, id)
		}
	}
}

func (f *fleet) firstDeadline() (first time.Time) {
	for _, r := range f.requests {
		if first.IsZero() || r.deadline.Before(first) {
			first = r.deadline
		}
	}
	return first
}

func (f *fleet) expireRequests(now time.Time) {
	for _, id := range slices.Sorted(maps.Keys(f.requests)) {
		if r := f.requests[id]; !now.Before(r.deadline) {
			f.giveUp(id, r, "no answer in time")
		}
	}
	maps.DeleteFunc(f.served, func(_ uint64, e *servedRequest) bool { return now.After(e.deadline) })
}

func (f *fleet) giveUp(id uint64, r *request, why string) {
	if r.settings != nil {
		r.settings.asked = 0 // again at the next occasion
		delete(f.requests, id)
		return
	}
	for _, b := range slices.SortedFunc(maps.Keys(r.waits), func(a, b evidence.Boot) int { return slices.Compare(a[:], b[:]) }) {
		f.recordAnswer(id, b, why, nil)
	}
	f.finish(id)
}

// abandonRequests answers whoever waits, because this member leaves.
func (f *fleet) abandonRequests() {
	for _, id := range slices.Sorted(maps.Keys(f.requests)) {
		f.giveUp(id, f.requests[id], "this member is leaving the fleet")
	}
}

func (f *fleet) setSettings(settings map[string]string) {
	f.settings = maps.Clone(settings)
	h := fnv.New64a()
	for _, k := range slices.Sorted(maps.Keys(f.settings)) {
		fmt.Fprintf(h, "%q=%q\n", k, f.settings[k])
	}
	f.meta.Settings = max(h.Sum64(), 1)
	f.announce()
	for _, m := range f.roster.others() {
		m.asked = 0
		f.compareSettings(m)
	}
}

// compareSettings asks a member for its settings if they are not the same.
func (f *fleet) compareSettings(m *member) {
	switch {
	case f.meta.Settings == 0 || m.Settings == 0 || f.meta.Settings == m.Settings:
		m.differs = nil
	case m.asked != m.Settings && m.state == Alive && f.link != nil:
		m.asked = m.Settings
		f.requestID++
		f.requests[f.requestID] = &request{deadline: time.Now().Add(defaultTimeout), settings: m}
		f.post(m, &message{kind: requestMessage, request: f.requestID, left: defaultTimeout, verb: settingsVerb})
	}
}

// maxDiffers is how many settings in which a member differs are named.
const maxDiffers = 32

func (f *fleet) settingsArrived(m *member, rows [][]string) {
	theirs := make(map[string]string, len(rows))
	for _, row := range rows {
		if len(row) == 2 {
			theirs[row[0]] = row[1]
		}
	}
	keys := maps.Clone(f.settings)
	maps.Copy(keys, theirs)
	m.differs = nil
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		ours, here := f.settings[k]
		other, there := theirs[k]
		if here == there && ours == other {
			continue
		}
		if len(m.differs) == maxDiffers {
			m.differs = append(m.differs, "and more")
			break
		}
		m.differs = append(m.differs, fmt.Sprintf("%s: %s here, %s there", k, shown(ours, here), shown(other, there)))
	}
	if len(m.differs) > 0 {
		f.cfg.Log.Warn().Str("member", m.Member).Strs("settings", m.differs).Msg("fleet: a member's settings differ")
	}
}

func shown(v string, there bool) string {
	if !there {
		return "not set"
	}
	return fmt.Sprintf("%q", v[:min(len(v), 200)])
}
