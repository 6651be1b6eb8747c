package cluster

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/cluster/evidence"
)

// received handles a message of another member: records of evidence, or a message to this member alone.
func (f *fleet) received(ctx actor.Context, now time.Time, msg *received) {
	if f.closing {
		return
	}
	if msg.bytes[0] == evidenceMessage {
		f.counts.packets++
		f.heardRecords(ctx, now, msg.at, msg.bytes[1:])
		return
	}
	l, err := decodeMessage(msg.bytes)
	if err != nil {
		f.counts.skipped++
		f.journal.note(zerolog.WarnLevel, "unreadable messages were skipped: another version, or corrupt", err.Error())
		return
	}
	from := f.roster.byBoot[l.from]
	switch {
	case l.to != f.cfg.Boot, from == nil, from.self, from.state != Alive && l.kind != answerMessage:
		f.counts.misdirected++
		return
	case !from.messages.fresh(l.number):
		if l.kind != cancelMessage && l.kind != answerMessage { // which are sent more than once
			f.counts.replayed++
			f.journal.note(zerolog.WarnLevel, "a duplicate message was dropped", "from "+from.Member)
		}
		return
	}
	f.counts.messages++
	from.heard = now
	switch l.kind {
	case cancelMessage:
		f.cancelArrived(ctx, now, from, l)
	case requestMessage:
		f.requestArrived(ctx, now, from, l)
	case answerMessage:
		f.answerArrived(from, l)
	case farewellMessage:
		from.farewell = true
	}
}

// receivedState merges the state that another member sent in a push/pull.
func (f *fleet) receivedState(ctx actor.Context, now time.Time, msg *receivedState) {
	from, ready, message, err := decodeState(msg.bytes)
	if err != nil {
		f.counts.skipped++
		f.journal.note(zerolog.WarnLevel, "the state of a member is unreadable: another version, or corrupt", err.Error())
		return
	}
	if from == f.cfg.Boot || f.closing {
		return
	}
	f.counts.states++
	f.heardRecords(ctx, now, msg.at, message)
	if f.heard = true; ready {
		f.joined = true
		f.becomeReady(ctx, now)
	}
}

func (f *fleet) nodeSeen(now time.Time, msg *nodeSeen) {
	m, err := decodeMeta(msg.meta)
	if err != nil {
		f.journal.note(zerolog.WarnLevel, "the metadata of a member is unreadable: another version, or another program", msg.node.name+" at "+msg.node.addr.String())
		m = meta{Member: msg.node.name, Version: "unknown"}
		copy(m.Boot[:], msg.node.name) // of no use but to tell it from others
	}
	if m.Boot == f.cfg.Boot {
		return
	}
	if was := f.roster.byName[msg.node.name]; was != nil && was.Boot != m.Boot { // a node whose metadata changed its mind
		f.nodeGone(now, &nodeGone{msg.node.name})
	}
	seen, fresh := f.roster.seen(now, msg.node, m)
	f.store.locked(func(t *evidence.Table) { t.Joined(m.Boot) })
	if fresh {
		f.cfg.Log.Info().Str("member", m.Member).Stringer("addr", msg.node.addr).Stringer("boot", m.Boot).Str("version", m.Version).Msg("fleet: member joined")
	}
	f.compareSettings(seen)
	f.recount()
}

func (f *fleet) nodeGone(now time.Time, msg *nodeGone) {
	m := f.roster.gone(now, msg.name)
	if m == nil {
		return
	}
	f.store.locked(func(t *evidence.Table) { t.Left(now, m.Boot) })
	f.cfg.Log.Info().Str("member", m.Member).Stringer("addr", m.node.addr).Stringer("state", m.state).Msg("fleet: member gone")
	f.forsake(m)
	f.recount()
}

func (f *fleet) pinged(now time.Time, msg *pinged) {
	if m := f.roster.byName[msg.name]; m != nil {
		m.heard, m.trip, m.clients, m.servers = now, msg.trip, msg.clients, msg.servers
	}
}

// recount is after every change of the membership.
func (f *fleet) recount() { f.store.members.Store(int64(max(1, f.roster.alive()))) }

func (f *fleet) attach(msg *Attach) {
	if msg.Cancels != nil {
		f.attached.Cancels = msg.Cancels
	}
	if msg.Operations != nil {
		f.attached.Operations = msg.Operations
	}
}

func (f *fleet) storeMeta() {
	b := f.meta.encode()
	f.store.meta.Store(&b)
}

// announce tells everybody what changed of this member.
func (f *fleet) announce() {
	f.storeMeta()
	if f.link != nil {
		f.link.announce()
		if m := f.roster.byBoot[f.cfg.Boot]; m != nil {
			m.meta = f.meta
		}
	}
}

// post writes a message to a member, and returns it as it is sent; nil if it is not.
func (f *fleet) post(to *member, l *message) (written []byte) {
	own := l.request // which waits for this message
	if l.kind == answerMessage {
		own = 0 // it is a number of the member that asked
	}
	if written = f.address(to, l); written == nil || !f.link.write(to, own, written) {
		return nil
	}
	return written
}

// sendWithRetry writes a message again and again until it is answered.
func (f *fleet) sendWithRetry(to *member, l *message, answered <-chan struct{}) bool {
	message := f.address(to, l)
	return message != nil && f.link.sendWithRetry(to, l.request, message, answered)
}

// address gives a message its number; nil if it cannot be sent.
func (f *fleet) address(to *member, l *message) []byte {
	if f.link == nil {
		return nil
	}
	l.from, l.to, l.number = f.cfg.Boot, to.Boot, f.store.number.Add(1)
	b, err := l.encode()
	if err != nil {
		f.journal.note(zerolog.ErrorLevel, "a message to a member could not be encoded", err.Error())
		return nil
	}
	return b
}

// farewells are goodbyes, so that others know this member did not die.
func (f *fleet) farewells() map[node][]byte {
	all := make(map[node][]byte)
	for _, m := range f.roster.others() {
		l := &message{kind: farewellMessage, from: f.cfg.Boot, to: m.Boot, number: f.store.number.Add(1)}
		if b, err := l.encode(); err == nil {
			all[m.node] = b
		}
	}
	return all
}
