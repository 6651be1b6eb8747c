package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestDescribe(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&pgconn.PgError{Code: "57P01"}, "57P01"},
		{fmt.Errorf("begin: %w", &pgconn.PgError{Code: "25006"}), "25006"},
		{errors.Join(&pgconn.PgError{Code: "57P03"}, pgconn.ErrReadOnlyConnection), codeNoWriter},
		{fmt.Errorf("read: %w", context.DeadlineExceeded), codeTimeout},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, codeRefused},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, codeLost},
		{io.ErrUnexpectedEOF, codeLost},
		{pgconn.ErrConnClosed, codeLost},
		{errors.New("odd"), codeOther},
	} {
		if code, _ := describe(c.err); code != c.want {
			t.Errorf("%v: %s, want %s", c.err, code, c.want)
		}
	}
	if _, text := describe(errors.New(strings.Repeat("x\n", 1000))); len(text) != textLimit || strings.Contains(text, "\n") {
		t.Errorf("text %q", text)
	}
}
