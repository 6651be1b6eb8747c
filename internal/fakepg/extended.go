package fakepg

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/wire"
)

// step works on a message of the extended protocol.
func (e *Engine) step(m pgproto3.FrontendMessage) *Error {
	switch m := m.(type) {
	case *pgproto3.Parse:
		return e.parse(m)
	case *pgproto3.Bind:
		return e.bind(m)
	case *pgproto3.Describe:
		return e.describeMessage(m)
	case *pgproto3.Execute:
		return e.executeMessage(m)
	case *pgproto3.Close:
		e.start()
		if m.ObjectType == wire.ObjectStatement {
			delete(e.statements, m.Name)
		} else {
			delete(e.portals, m.Name)
		}
		e.Send(&pgproto3.CloseComplete{})
		return nil
	}
	return &Error{"FATAL", "08P01", fmt.Sprintf("invalid frontend message %T", m)}
}

func (e *Engine) parse(m *pgproto3.Parse) *Error {
	e.start()
	if m.Name == "" {
		delete(e.statements, "")
	}
	all, ok := parse(m.Query)
	switch {
	case !ok:
		return fail("42601", "syntax error")
	case len(all) > 1:
		return fail("42601", "cannot insert multiple commands into a prepared statement")
	}
	p := &prepared{}
	if len(all) == 1 {
		p.s = &all[0]
		if e.tx == failed && !p.s.ends() {
			return aborted()
		}
	}
	if m.Name != "" && e.statements[m.Name] != nil {
		return fail("42P05", "prepared statement %q already exists", m.Name)
	}
	e.statements[m.Name] = p
	e.Send(&pgproto3.ParseComplete{})
	return nil
}

func (e *Engine) bind(m *pgproto3.Bind) *Error {
	e.start()
	p := e.statements[m.PreparedStatement]
	if p == nil {
		return fail("26000", "prepared statement %q does not exist", m.PreparedStatement)
	}
	if e.tx == failed && (p.s == nil || !p.s.ends()) {
		return aborted()
	}
	if m.DestinationPortal != "" && e.portals[m.DestinationPortal] != nil {
		return fail("42P03", "cursor %q already exists", m.DestinationPortal)
	}
	e.portals[m.DestinationPortal] = &portal{s: p.s}
	e.Send(&pgproto3.BindComplete{})
	return nil
}

func (e *Engine) describeMessage(m *pgproto3.Describe) *Error {
	e.start()
	var s *statement
	if m.ObjectType == wire.ObjectStatement {
		p := e.statements[m.Name]
		if p == nil {
			return fail("26000", "prepared statement %q does not exist", m.Name)
		}
		s = p.s
	} else {
		p := e.portals[m.Name]
		if p == nil {
			return fail("34000", "portal %q does not exist", m.Name)
		}
		s = p.s
	}
	rows := s != nil && s.returnsRows()
	if e.tx == failed && rows {
		return aborted()
	}
	if m.ObjectType == wire.ObjectStatement {
		e.Send(&pgproto3.ParameterDescription{})
	}
	if rows {
		e.Send(e.describe(s))
	} else {
		e.Send(&pgproto3.NoData{})
	}
	return nil
}

func (e *Engine) executeMessage(m *pgproto3.Execute) *Error {
	e.start()
	p := e.portals[m.Portal]
	if p == nil {
		return fail("34000", "portal %q does not exist", m.Portal)
	}
	if p.s == nil {
		e.Send(&pgproto3.EmptyQueryResponse{})
		return nil
	}
	if e.tx == failed && !p.s.ends() {
		return aborted()
	}
	if p.done && !p.s.returnsRows() {
		return fail("55000", "portal %q cannot be run", m.Portal)
	}
	limit := -1
	if m.MaxRows > 0 {
		limit = int(m.MaxRows)
	}
	return e.execute(p.s, limit, p)
}

func (e *Engine) describe(s *statement) *pgproto3.RowDescription {
	column := func(name string) pgproto3.FieldDescription {
		return pgproto3.FieldDescription{Name: []byte(name), DataTypeOID: 25, DataTypeSize: -1, TypeModifier: -1}
	}
	d := &pgproto3.RowDescription{}
	if s.kind == sleep {
		d.Fields = append(d.Fields, column("pg_sleep"))
	}
	if s.kind == identity {
		id, pid := e.Identity()
		for range len(id.Row(pid)) - 1 {
			d.Fields = append(d.Fields, column("?column?"))
		}
	}
	d.Fields = append(d.Fields, column("?column?"))
	return d
}

// execute runs a statement; of a portal at most limit rows, if limit is not negative.
func (e *Engine) execute(s *statement, limit int, p *portal) *Error {
	var tag string
	if p != nil {
		defer func() { p.done = true }()
	}
	switch s.kind {
	case selectRows:
		return e.selectRows(s, limit, p)
	case sleep:
		if e.Sleep != nil {
			if err := e.Sleep(s.wait); err != nil {
				return err
			}
		}
		e.Send(&pgproto3.DataRow{Values: [][]byte{{}, []byte(s.text)}})
		tag = "SELECT 1"
	case show:
		v, ok := e.params[e.parameter(s.name)]
		if !ok {
			return fail("42704", "unrecognized configuration parameter %q", s.name)
		}
		e.Send(&pgproto3.DataRow{Values: [][]byte{[]byte(v)}})
		tag = "SHOW"
	case raise:
		return fail("P0001", "%s", s.text)
	case notice:
		e.Notice(s.text)
		tag = "DO"
	case set:
		if strings.Contains(s.text, "bad") {
			return fail("22023", "invalid value for parameter %q: %q", s.name, s.text)
		}
		e.params[e.parameter(s.name)] = s.text
		tag = "SET"
	case identity:
		return e.tellIdentity()
	case insert:
		if err := e.refuses("INSERT"); err != nil {
			return err
		}
		e.inserted = append(e.inserted, s.text)
		tag = "INSERT 0 1"
	case defer1:
		if err := e.refuses("INSERT"); err != nil {
			return err
		}
		e.doomed = true
		tag = "INSERT 0 1"
	case copyOut:
		e.copyOut(s)
		tag = fmt.Sprintf("COPY %d", s.n)
	case copyIn:
		if err := e.refuses("COPY FROM"); err != nil {
			return err
		}
		e.Send(&pgproto3.CopyInResponse{ColumnFormatCodes: []uint16{0}})
		e.copying, e.rows, e.line = true, 0, nil
		e.flush()
		return nil
	default:
		return e.control(s, p)
	}
	return e.complete(tag)
}

// complete ends a statement. The last one of a simple query says so only when the transaction is committed.
func (e *Engine) complete(tag string) *Error {
	if !e.extended && len(e.todo) == 0 && e.tx == implicit {
		if err := e.finish(true); err != nil {
			return err
		}
	}
	e.Send(&pgproto3.CommandComplete{CommandTag: []byte(tag)})
	return nil
}

func (e *Engine) selectRows(s *statement, limit int, p *portal) *Error {
	n := s.n
	if p != nil {
		n -= p.at
		if limit >= 0 && n >= limit {
			n = limit
		}
		p.at += n
	}
	for range n {
		e.Send(&pgproto3.DataRow{Values: [][]byte{[]byte(s.text)}})
	}
	if limit > 0 && n == limit {
		e.Send(&pgproto3.PortalSuspended{})
		return nil
	}
	return e.complete(fmt.Sprintf("SELECT %d", n))
}

// control is what begins and ends transactions.
func (e *Engine) control(s *statement, p *portal) *Error {
	switch s.kind {
	case begin:
		if e.tx == explicit {
			e.warn("25001", "there is already a transaction in progress")
		}
		e.tx = explicit
		return e.complete("BEGIN")
	case commit, rollback:
		if e.tx == implicit {
			e.warn("25P01", "there is no transaction in progress")
		}
		tag := "COMMIT"
		if s.kind == rollback || e.tx == failed {
			tag = "ROLLBACK"
		}
		if err := e.finish(s.kind == commit); err != nil {
			return err
		}
		return e.complete(tag)
	case discard:
		if e.tx == explicit || p == nil && len(e.todo) > 0 {
			return fail("25001", "DISCARD ALL cannot run inside a transaction block")
		}
		e.params = map[string]string{}
		for k, v := range e.defaults {
			e.params[k] = v
		}
		e.save()
		e.forget()
		return e.complete("DISCARD ALL")
	}
	return nil
}

func (e *Engine) warn(code, text string) {
	e.Send(&pgproto3.NoticeResponse{Severity: "WARNING", SeverityUnlocalized: "WARNING", Code: code, Message: text})
	e.flush()
}

func (e *Engine) copyOut(s *statement) {
	e.Send(&pgproto3.CopyOutResponse{ColumnFormatCodes: []uint16{0}})
	for range s.n {
		e.Send(&pgproto3.CopyData{Data: []byte(s.text + "\n")})
	}
	e.Send(&pgproto3.CopyDone{})
}

// copyMessage is what a server does with a message while it reads copy data (CopyGetData in copyfromparse.c). One that has
// no place there ends the session: the server stops in the middle of it and does not find its end.
func (e *Engine) copyMessage(m pgproto3.FrontendMessage) (more bool) {
	var err *Error
	switch m := m.(type) {
	case *pgproto3.CopyData:
		if err = e.copyData(m.Data); err == nil {
			return true
		}
	case *pgproto3.CopyDone:
		if err = e.copyLine(e.line); err == nil {
			e.copying = false
			err = e.complete(fmt.Sprintf("COPY %d", e.rows))
		}
		if err == nil {
			if !e.extended {
				delete(e.portals, "")
				e.run()
			}
			return true
		}
	case *pgproto3.CopyFail:
		err = fail("57014", "COPY from stdin failed: %s", m.Message)
	case *pgproto3.Flush, *pgproto3.Sync:
		return true
	default:
		e.error(fail("08P01", "unexpected message type during COPY from stdin"))
		e.error(&Error{"FATAL", "08P01", "terminating connection because protocol synchronization was lost"})
		return false
	}
	e.copying = false
	if !e.extended {
		e.endQuery(err)
		return true
	}
	e.error(err)
	e.skipping = true
	return true
}

func (e *Engine) copyData(data []byte) *Error {
	e.line = append(e.line, data...)
	for {
		i := bytes.IndexByte(e.line, '\n')
		if i < 0 {
			return nil
		}
		if err := e.copyLine(e.line[:i]); err != nil {
			return err
		}
		e.line = e.line[i+1:]
	}
}

func (e *Engine) copyLine(line []byte) *Error {
	if len(line) == 0 {
		return nil
	}
	for _, c := range line {
		if c < '0' || c > '9' {
			return fail("22P02", "invalid input syntax for type integer: %q", line)
		}
	}
	e.rows++
	return nil
}
