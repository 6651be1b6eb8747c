package fakepg

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/wire"
)

// Engine is the message loop of one session. It is for one goroutine; make it with NewEngine.
type Engine struct {
	// Send takes each message for the client.
	Send func(pgproto3.BackendMessage)
	// Flush, if not nil, is called where PostgreSQL sends what it has collected.
	Flush func()
	// Sleep, if not nil, waits for pg_sleep. It returns what ended the wait early; a FATAL error ends the session.
	Sleep func(d time.Duration) *Error
	// Identity is what the server says of itself, and the process that serves the session.
	Identity func() (Identity, uint32)
	// Committed, if not nil, takes the texts that a transaction has inserted, when it is committed.
	Committed func(texts []string)
	// TellsRole: the role of the server is reported, too, as far as the client has not been told (PostgreSQL 14 and newer).
	TellsRole bool

	toldRole [2]string
	readOnly bool     // the transaction is
	inserted []string // in the transaction

	params   map[string]string // present values
	defaults map[string]string
	saved    map[string]string // as they were when the transaction began; nil outside of one
	reported map[string]string // as the client knows them

	tx       txState
	doomed   bool // the commit will fail
	skipping bool // until Sync
	ended    bool // by a FATAL error
	extended bool // the message at work is one of the extended protocol

	todo    []statement // of a simple query, not run yet
	copying bool
	rows    int // copied so far
	line    []byte

	statements map[string]*prepared
	portals    map[string]*portal
}

type txState uint8

const (
	none     txState = iota
	implicit         // between the first extended message and its Sync, or in a simple query of several statements
	explicit         // BEGIN
	failed           // explicit, and something went wrong
)

type prepared struct{ s *statement } // nil: the empty query

type portal struct {
	s    *statement
	at   int
	done bool
}

// Error is what an ErrorResponse says.
type Error struct{ Severity, Code, Message string }

// Error returns code and message.
func (e *Error) Error() string { return e.Code + " " + e.Message }

func fail(code, format string, args ...any) *Error {
	return &Error{"ERROR", code, fmt.Sprintf(format, args...)}
}

// Reported are the parameters a server reports, with the values of a fresh session.
func Reported() map[string]string {
	return map[string]string{
		"server_version": "18.0", "server_encoding": "UTF8", "client_encoding": "UTF8", "application_name": "", "DateStyle": "ISO, MDY",
		"TimeZone": "Etc/UTC", "IntervalStyle": "postgres", "standard_conforming_strings": "on", "integer_datetimes": "on",
	}
}

// NewEngine makes a session at rest.
func NewEngine(send func(pgproto3.BackendMessage)) *Engine {
	e := &Engine{Send: send, params: Reported(), defaults: Reported(), reported: Reported(),
		Identity: func() (Identity, uint32) { return Ordinary(), 1 }}
	e.forget()
	return e
}

func (e *Engine) forget() {
	e.statements, e.portals = map[string]*prepared{}, map[string]*portal{}
}

// Status is what the next ReadyForQuery would say.
func (e *Engine) Status() byte {
	switch e.tx {
	case explicit:
		return wire.TxOpen
	case failed:
		return wire.TxFailed
	}
	return wire.TxIdle
}

// AtRest reports whether the session holds nothing open: no transaction, explicit or implicit, no COPY, and nothing is
// being skipped.
func (e *Engine) AtRest() bool { return e.tx == none && e.Listening() }

// Listening reports whether the session would work on whatever message comes next: no COPY FROM STDIN is under way and
// nothing is being skipped.
func (e *Engine) Listening() bool { return !e.copying && !e.skipping }

// Handle works on one message. It reports false when the session has ended.
func (e *Engine) Handle(m pgproto3.FrontendMessage) bool {
	if _, bye := m.(*pgproto3.Terminate); bye {
		return false
	}
	if e.copying {
		return e.copyMessage(m)
	}
	_, sync := m.(*pgproto3.Sync)
	if e.skipping && !sync {
		return true
	}
	e.extended = true
	switch m := m.(type) {
	case *pgproto3.Query:
		e.extended = false
		e.query(m.String)
	case *pgproto3.FunctionCall:
		e.extended = false
		e.function(m)
	case *pgproto3.Sync:
		e.extended = false
		e.skipping = false
		if e.tx == implicit {
			if err := e.finish(true); err != nil {
				e.error(err)
			}
		}
		e.ready()
	case *pgproto3.Flush:
		e.flush()
	case *pgproto3.CopyData, *pgproto3.CopyDone, *pgproto3.CopyFail:
		// too late for a COPY that has failed
	default:
		if err := e.step(m); err != nil {
			e.error(err)
			e.skipping = true
		}
	}
	return !e.ended
}

func (e *Engine) flush() {
	if e.Flush != nil {
		e.Flush()
	}
}

// Notice sends a NoticeResponse. PostgreSQL keeps neither notices nor errors back (send_message_to_frontend).
func (e *Engine) Notice(text string) {
	e.Send(&pgproto3.NoticeResponse{Severity: "NOTICE", SeverityUnlocalized: "NOTICE", Code: "00000", Message: text})
	e.flush()
}

// error reports an error and aborts the transaction.
func (e *Engine) error(err *Error) {
	e.Send(&pgproto3.ErrorResponse{Severity: err.Severity, SeverityUnlocalized: err.Severity, Code: err.Code, Message: err.Message})
	e.flush()
	e.ended = err.Severity == "FATAL"
	switch e.tx {
	case implicit:
		e.abort()
	case explicit:
		e.restore()
		e.tx = failed
	}
}

// ready ends a request. Changed parameters are reported here, as PostgreSQL 14 and newer does.
func (e *Engine) ready() {
	if e.ended {
		return
	}
	for _, name := range reportOrder {
		if e.params[name] != e.reported[name] {
			e.reported[name] = e.params[name]
			e.Send(&pgproto3.ParameterStatus{Name: name, Value: e.params[name]})
		}
	}
	if e.TellsRole {
		e.tellRole()
	}
	e.Send(&pgproto3.ReadyForQuery{TxStatus: e.Status()})
	e.flush()
}

var reportOrder = []string{"client_encoding", "application_name", "DateStyle", "TimeZone", "IntervalStyle", "standard_conforming_strings"}

// start begins the implicit transaction every statement runs in.
func (e *Engine) start() {
	if e.tx == none {
		e.tx = implicit
		e.save()
		id, _ := e.Identity()
		e.readOnly = id.ReadOnly
	}
}

func (e *Engine) save() {
	e.saved = map[string]string{}
	for k, v := range e.params {
		e.saved[k] = v
	}
}

func (e *Engine) restore() {
	if e.saved != nil {
		e.params, e.saved = e.saved, nil
	}
}

func (e *Engine) abort() {
	e.restore()
	e.over()
}

func (e *Engine) over() {
	e.tx, e.doomed, e.saved, e.inserted = none, false, nil, nil
	clear(e.portals)
}

// finish ends the transaction by a commit.
func (e *Engine) finish(committed bool) *Error {
	if !committed || e.tx == failed {
		e.abort()
		return nil
	}
	if e.doomed {
		e.abort()
		return fail("23505", "duplicate key value violates unique constraint \"d_pkey\"")
	}
	if e.Committed != nil && len(e.inserted) > 0 {
		e.Committed(e.inserted)
	}
	e.over()
	return nil
}

// query is a simple query.
func (e *Engine) query(sql string) {
	delete(e.statements, "")
	all, ok := parse(sql)
	switch {
	case !ok:
		e.error(fail("42601", "syntax error"))
		e.ready()
	case len(all) == 0:
		var err *Error
		if e.tx == implicit {
			err = e.finish(true)
		}
		if err == nil {
			e.Send(&pgproto3.EmptyQueryResponse{})
		}
		e.endQuery(err)
	default:
		e.todo = all
		e.run()
	}
}

// run executes what is left of a simple query, until it ends or a COPY waits for the client.
func (e *Engine) run() {
	for len(e.todo) > 0 {
		s := e.todo[0]
		e.todo = e.todo[1:]
		if e.tx == failed && !s.ends() {
			e.endQuery(aborted())
			return
		}
		e.start()
		e.portals[""] = &portal{s: &s, done: true} // left behind by a failure
		if s.returnsRows() {
			e.Send(e.describe(&s))
		}
		if err := e.execute(&s, -1, nil); err != nil {
			e.endQuery(err)
			return
		}
		if e.copying {
			return
		}
		delete(e.portals, "")
	}
	e.endQuery(nil)
}

func aborted() *Error {
	return fail("25P02", "current transaction is aborted, commands ignored until end of transaction block")
}

// endQuery ends a simple query, and with it a transaction that is only implicit.
func (e *Engine) endQuery(err *Error) {
	e.todo = nil
	if err == nil && e.tx == implicit {
		err = e.finish(true)
	}
	if err != nil {
		e.error(err)
	}
	e.ready()
}

func (e *Engine) function(m *pgproto3.FunctionCall) {
	switch {
	case e.tx == failed:
		e.endQuery(aborted())
	case m.Function == 0:
		e.start()
		e.endQuery(fail("42883", "function with OID 0 does not exist"))
	default:
		e.start()
		e.Send(&pgproto3.FunctionCallResponse{Result: []byte{0, 0, 0, 1}})
		e.endQuery(nil)
	}
}

// errTerminated is what a session says that pg_terminate_backend has ended.
func errTerminated() *Error {
	return &Error{"FATAL", "57P01", "terminating connection due to administrator command"}
}

// Terminating sends the FATAL error of a server that ends the session.
func (e *Engine) Terminating() { e.error(errTerminated()) }

// Parameters are the reported parameters with their present values.
func (e *Engine) Parameters() map[string]string {
	m := map[string]string{}
	for k := range Reported() {
		m[k] = e.params[k]
	}
	return m
}

// parameter finds the spelling of a parameter's name.
func (e *Engine) parameter(name string) string {
	for k := range e.params {
		if strings.EqualFold(k, name) {
			return k
		}
	}
	return name
}
