package monitor

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/pgerr"
)

// failure is what went wrong with an attempt to connect, a probe or a connection.
type failure struct {
	kind     Kind
	code     string // SQLSTATE, if the server said one
	expected bool   // as Lost.Expected
	err      error
}

// errSilent is the cause of a failure whose time was over.
var errSilent = errors.New("no answer in time")

// errOutrun is why a monitor gives up its connection although nothing is wrong with it.
var errOutrun = errors.New("a newer connection leads to another server")

// errSense is wrapped by what says that an answer was understood and made no sense.
var errSense = errors.New("unexpected answer")

// dialFailure classifies an attempt that did not get as far as a connection.
func dialFailure(err error) *failure {
	f := &failure{kind: Local, err: err}
	var number syscall.Errno
	switch {
	case errors.As(err, &number):
		f.kind = errnoKind(number)
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		f.kind = Unreachable
	}
	return f
}

// errnoKind is the kind of a system call's failure to connect. What is not known to be the network's or the host's fault
// is taken for ours: nothing follows from it.
func errnoKind(n syscall.Errno) Kind {
	switch n {
	case syscall.ECONNREFUSED, syscall.ENOENT: // ENOENT: no socket file
		return Closed
	case syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED:
		return Reset
	case syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN, syscall.ETIMEDOUT:
		return Unreachable
	}
	return Local
}

// loginFailure classifies an attempt that failed on a connection. heard: the server has sent at least one byte.
func loginFailure(err error, heard bool) *failure {
	f := &failure{kind: Garbled, err: err}
	var answer *pgconn.PgError
	var own *pgerr.Error // it asks for a password that we do not have
	switch {
	case errors.As(err, &own):
		f.kind, f.code = Rejected, own.Code
	case errors.As(err, &answer) && pgerr.ValidCode(answer.Code):
		f.kind, f.code = Rejected, answer.Code
		switch answer.Code {
		case pgerr.CannotConnectNow:
			f.kind = Starting
		case pgerr.AdminShutdown, pgerr.CrashShutdown:
			f.kind = Broken
		}
	case ended(err) && !heard:
		f.kind = Reset
	case ended(err):
		f.kind = Broken
	case timedOut(err):
		f.kind = Silent
	}
	return f
}

// loss classifies the end of a connection that was logged in. code is the SQLSTATE the server warned with, if any.
func loss(err error, code string) *failure {
	f := &failure{kind: Garbled, code: code, expected: true, err: err}
	switch {
	case ended(err):
		f.kind, f.expected = Broken, false
	case timedOut(err):
		f.kind, f.expected, f.err = Silent, false, errSilent
	}
	return f
}

// farewell is the loss that a server announced.
func farewell(m *pgproto3.ErrorResponse) *failure {
	f := &failure{kind: Broken, code: m.Code, err: pgconn.ErrorResponseToPgError(m)}
	switch m.Code {
	case pgerr.IdleSessionTimeout, pgerr.IdleInTransactionTimeout, pgerr.TransactionTimeout:
		f.expected = true
	}
	if !pgerr.ValidCode(m.Code) {
		f.kind, f.code, f.expected = Garbled, "", true
	}
	return f
}

// ended reports whether the peer, or the way to it, ended the connection.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.ETIMEDOUT) ||
		errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}

func timedOut(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errSilent)
}

// isTimeout reports whether a resolver or dialler says that its time was over.
func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}
