package backend_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/actors/backend"
	"fencepost/wire"
)

func query(sql string) pgproto3.FrontendMessage { return &pgproto3.Query{String: sql} }

func batch(sql ...string) (all []pgproto3.FrontendMessage) {
	for _, s := range sql {
		all = append(all, &pgproto3.Parse{Query: s}, &pgproto3.Bind{}, &pgproto3.Execute{})
	}
	return all
}

type messages = []pgproto3.FrontendMessage

// However a client leaves its server connection behind, it is brought to rest and used on: nothing is open on it, nothing
// of what was not confirmed is left, and the next one's first answer is its own.
func TestClean(t *testing.T) {
	copyIn := query("COPY t FROM STDIN")
	data := &pgproto3.CopyData{Data: []byte("1\n")}
	for name, tc := range map[string]struct {
		sent  messages
		await func(h *holder) // what of the answers the client still saw
		late  messages        // sent after that
	}{
		"at rest":                       {},
		"in a transaction":              {sent: messages{query("BEGIN; SET application_name = 'theirs'")}, await: ready},
		"in a transaction, unanswered":  {sent: messages{query("BEGIN; SET application_name = 'theirs'")}},
		"in a failed transaction":       {sent: messages{query("BEGIN"), query("nonsense")}},
		"query unanswered":              {sent: messages{query("SELECT 'x'")}},
		"rows unread":                   {sent: messages{query("SELECT 'a long row, and many of them' FROM generate_series(1,20000)")}},
		"several queries unanswered":    {sent: messages{query("BEGIN"), query("SELECT 'x'"), query("SET application_name = 'theirs'")}},
		"query runs for a while":        {sent: messages{query("SELECT pg_sleep(1), 'x'")}},
		"COPY in":                       {sent: messages{copyIn}, await: copying, late: messages{data}},
		"COPY in not begun":             {sent: messages{copyIn}},
		"COPY in with data not begun":   {sent: messages{copyIn, data}},
		"COPY in in a transaction":      {sent: messages{query("BEGIN"), copyIn, data}},
		"COPY in failed":                {sent: messages{copyIn, &pgproto3.CopyData{Data: []byte("bad\n")}}},
		"two COPYs in one query":        {sent: messages{query("COPY t FROM STDIN; COPY t FROM STDIN"), data, &pgproto3.CopyDone{}}},
		"COPY in, extended":             {sent: batch("COPY t FROM STDIN"), await: copying, late: messages{data}},
		"COPY in, extended, not begun":  {sent: append(batch("COPY t FROM STDIN"), &pgproto3.Sync{})},
		"COPY in, extended, failed":     {sent: batch("COPY t FROM STDIN"), await: copying, late: messages{&pgproto3.CopyData{Data: []byte("bad\n")}}},
		"COPY out":                      {sent: messages{query("COPY (SELECT 'x' FROM generate_series(1,20000)) TO STDOUT")}},
		"batch without Sync":            {sent: batch("SET application_name = 'theirs'", "SELECT 'x'")},
		"batch without Sync, flushed":   {sent: append(batch("SET application_name = 'theirs'"), &pgproto3.Flush{}), await: complete},
		"batch without Sync, failed":    {sent: batch("SET application_name = 'theirs'", "nonsense", "SELECT 'x'")},
		"batch, second without Sync":    {sent: append(append(batch("SELECT 'x'"), &pgproto3.Sync{}), batch("SET application_name = 'theirs'")...)},
		"BEGIN in a batch without Sync": {sent: batch("BEGIN", "SET application_name = 'theirs'")},
		"only a Parse":                  {sent: messages{&pgproto3.Parse{Query: "SELECT 'x'"}}},
		"only a Parse, failed":          {sent: messages{&pgproto3.Parse{Query: "nonsense"}}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.open()
				h := r.hold()
				h.send(tc.sent...)
				if tc.await != nil {
					tc.await(h)
				}
				h.send(tc.late...)
				h.release()
				r.system.Root.Send(r.pid, &backend.Clean{Limit: 2 * time.Second})
				hear[*backend.Cleaned](r)
				next := r.hold()
				if got := next.ask("SHOW application_name"); got != "" {
					t.Errorf("application_name is %q: something of the last client's was committed", got)
				}
				if got := next.ask("BEGIN; SELECT 'mine'"); got != "mine" {
					t.Errorf("the next client's answer is %q", got)
				}
				if n := r.server.Logins(); n != 1 {
					t.Errorf("%d logins", n)
				}
				if h.lost != nil {
					t.Errorf("the last holder hears %v", h.lost)
				}
			})
		})
	}
}

func ready(h *holder)    { await[*pgproto3.ReadyForQuery](h) }
func copying(h *holder)  { await[*pgproto3.CopyInResponse](h) }
func complete(h *holder) { await[*pgproto3.CommandComplete](h) }

func TestCleanRunsTheResetQuery(t *testing.T) {
	bubble(t, func(r *rig) {
		r.open()
		h := r.hold()
		h.ask("SET app.mark = 'theirs'; BEGIN")
		h.release()
		r.system.Root.Send(r.pid, &backend.Clean{Reset: "DISCARD ALL", Limit: time.Second})
		hear[*backend.Cleaned](r)
		if got := r.hold().ask("SHOW app.mark"); got != "42704" {
			t.Errorf("the last client's mark is still there: %q", got)
		}
	})
}

// A server connection that cannot be reset is closed, which says nothing about the server.
func TestCleanResetFails(t *testing.T) {
	bubble(t, func(r *rig) {
		r.watched()
		r.open()
		r.hold().release()
		r.system.Root.Send(r.pid, &backend.Clean{Reset: "nonsense", Limit: time.Second})
		if m := hear[*backend.Lost](r); !m.Expected || m.Doubts || len(r.doubts) > 0 {
			t.Errorf("%+v, doubt raised %d times", m, len(r.doubts))
		}
	})
}

// What runs longer than the limit is cancelled, and the connection kept.
func TestCleanCancelsWhatRunsTooLong(t *testing.T) {
	bubble(t, func(r *rig) {
		r.open()
		h := r.hold()
		h.send(query("BEGIN; SELECT pg_sleep(1000), 'x'"))
		h.release()
		began := time.Now()
		r.system.Root.Send(r.pid, &backend.Clean{Limit: 2 * time.Second})
		hear[*backend.Cleaned](r)
		if took := time.Since(began); took < time.Second || took > 6*time.Second {
			t.Errorf("it took %v", took)
		}
		if got := r.hold().ask("SELECT 'mine'"); got != "mine" {
			t.Errorf("the next client's answer is %q", got)
		}
	})
}

// With cancel_on_disconnect it is cancelled at once.
func TestCleanCancelsAtOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		r.deps.CancelVanished = func() bool { return true }
		r.open()
		h := r.hold()
		h.send(query("SELECT pg_sleep(1000), 'x'"))
		h.release()
		began := time.Now()
		r.system.Root.Send(r.pid, &backend.Clean{Limit: 2 * time.Second})
		hear[*backend.Cleaned](r)
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Patience: what its client wanted done is neither limited nor cancelled.
func TestPatientClean(t *testing.T) {
	bubble(t, func(r *rig) {
		r.deps.CancelVanished = func() bool { return true }
		r.open()
		h := r.hold()
		h.send(query("SELECT pg_sleep(100), 'x'"))
		h.release()
		began := time.Now()
		r.system.Root.Send(r.pid, &backend.Clean{Limit: 2 * time.Second, Patient: true})
		r.silent(99 * time.Second)
		hear[*backend.Cleaned](r)
		if took := time.Since(began); took < 99*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A server that does not answer at all is given up, in time.
func TestCleanGivesUp(t *testing.T) {
	for name, patient := range map[string]bool{"at once": false, "patient": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				l := &lines{}
				r.deps.Dialer = l
				r.open()
				h := r.hold()
				h.send(query("BEGIN"))
				l.say(append(server(&pgproto3.CommandComplete{CommandTag: []byte("BEGIN")}), server(&pgproto3.ReadyForQuery{TxStatus: wire.TxOpen})...))
				ready(h)
				h.release()
				began := time.Now()
				r.system.Root.Send(r.pid, &backend.Clean{Limit: 2 * time.Second, Patient: patient})
				hear[*backend.Lost](r)
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// A Sync in the middle of COPY data cannot be accounted for: such a connection is closed, not shared.
func TestCleanOfWhatCannotBeTold(t *testing.T) {
	bubble(t, func(r *rig) {
		r.open()
		h := r.hold()
		h.send(query("COPY t FROM STDIN"))
		copying(h)
		h.send(&pgproto3.CopyData{Data: []byte("1\n")}, &pgproto3.Sync{})
		h.release()
		r.system.Root.Send(r.pid, &backend.Clean{Limit: 2 * time.Second})
		hear[*backend.Lost](r)
	})
}
