package frontend

import (
	"fencepost/actors/backend"
	"fencepost/actors/lane/pool"
	"fencepost/pgerr"
	"fencepost/wire"
)

// maxParamAnswers bounds what is kept of the answers to our own SET statements.
const maxParamAnswers = 64 << 10

// applyParams gives the backend the client's parameters where they differ, before anything of the client's is sent. It
// reports false if there is nothing to change.
func (f *Frontend) applyParams() bool {
	b := f.backend
	sql := f.deps.Names.SetStatements(b.Params, f.params)
	if sql == "" {
		return false
	}
	f.phase, f.cancelled = applyingParams, false
	b.Tracker.Sent(wire.MsgQuery)
	b.Write(wire.AppendQuery(nil, sql))
	return true
}

// paramsAnswered reads the answers, which the client does not see. If a value was refused the client's message is not
// sent: PostgreSQL, too, ends a session whose startup parameters it cannot take.
func (f *Frontend) paramsAnswered(p []byte) {
	if len(f.paramAnswers)+len(p) <= maxParamAnswers {
		f.paramAnswers = append(f.paramAnswers, p...)
	}
	b := f.backend
	if !b.Tracker.AtRest() || !b.AtBoundary() {
		return
	}
	answers := f.paramAnswers
	f.paramAnswers = nil
	if e := firstError(answers); e != nil {
		f.fail(e)
		return
	}
	if changed := f.canonical(); len(changed) > 0 {
		f.conn.Write(changed)
	}
	f.params = b.Params
	if f.cancelled {
		f.stats.QueueCancels++
		f.giveBack(pool.Clean)
		f.refuse(pgerr.Canceled())
		return
	}
	f.activate()
}

func firstError(p []byte) (first *pgerr.Error) {
	var sc wire.Scanner
	for first == nil && len(p) > 0 {
		m, n, err := sc.Next(p)
		if err != nil {
			break // the backend has read it before and would have failed
		}
		if m.Type == wire.MsgErrorResponse && m.First && m.Last {
			first = wire.ParseError(m.Body)
		}
		p = p[n:]
	}
	return first
}

// canonical tells the client the values as the server spells them, where it was told something else.
func (f *Frontend) canonical() (out []byte) {
	told, now := f.params.Values(), f.backend.Params.Values()
	for i, name := range f.deps.Names {
		if now[i] != told[i] && now[i] != backend.Unknown {
			out = wire.AppendParameterStatus(out, name, now[i])
		}
	}
	return out
}
