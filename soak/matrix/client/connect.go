package client

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"fencepost/soak/matrix/verdict"
)

// connect opens the client's connection; false: it could not.
func (w *worker) connect() bool {
	cfg := w.c.o.Connect.Copy()
	// Names of prepared statements belong to a server connection, of which a pooler may have several.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	if w.n%4 >= 2 {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	}
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		// The only sign there is of a commit that nobody but the primary has (syncrep.c); it has no SQLSTATE of its own.
		w.warned = w.warned || strings.Contains(n.Message, "wait for synchronous replication")
	}
	cfg.ConnectTimeout = w.c.o.Dial // for each host
	ctx, cancel := context.WithTimeout(w.hard, w.c.o.Dial*time.Duration(1+len(cfg.Fallbacks)))
	defer cancel()
	start := w.c.since()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		if w.hard.Err() == nil {
			code, message := describe(err)
			w.c.refused(verdict.Refusal{Client: w.n, Start: start, End: w.c.since(), Code: code, Message: message})
		}
		return false
	}
	w.c.opened.Add(1)
	w.conn = conn
	return true
}

// Words in the place of a SQLSTATE for what is no server's error.
const (
	codeTimeout  = "timeout"   // the client's own patience was over
	codeRefused  = "refused"   // connection refused
	codeLost     = "lost"      // the connection ended without a word
	codeNoWriter = "no writer" // the driver found no host that takes writes
	codeCut      = "cut"       // the run's end
	codeOther    = "other"     // see the text
)

// textLimit is how many bytes of an error's text are kept.
const textLimit = 300

// describe is the code and the text of an error.
func describe(err error) (code, message string) {
	message = strings.ReplaceAll(err.Error(), "\n", " ")
	message = message[:min(len(message), textLimit)]
	var server *pgconn.PgError
	var network net.Error
	switch {
	case errors.Is(err, pgconn.ErrReadOnlyConnection):
		return codeNoWriter, message
	case errors.As(err, &server):
		return server.Code, message
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return codeTimeout, message
	case errors.Is(err, syscall.ECONNREFUSED):
		return codeRefused, message
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.Is(err, net.ErrClosed), errors.Is(err, pgconn.ErrConnClosed):
		return codeLost, message
	}
	return codeOther, message
}
