package auth

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"fencepost/pgerr"
	"fencepost/wire"
)

func TestPasswordless(t *testing.T) {
	notice := wire.AppendNotice(nil, pgerr.Canceled())
	for name, c := range map[string]struct {
		said []byte
		asks bool
	}{
		"trust":        {wire.AppendReadyForQuery(wire.AppendAuthenticationOk(notice), wire.TxIdle), false},
		"cleartext":    {wire.AppendAuthCleartext(notice), true},
		"md5":          {wire.AppendAuthMD5(nil, [4]byte{}), true},
		"SCRAM":        {wire.AppendSASL(nil, []string{mechanism}), true},
		"GSSAPI":       {[]byte("R\x00\x00\x00\x08\x00\x00\x00\x07"), false}, // the driver refuses it
		"an error":     {wire.AppendError(nil, pgerr.Canceled()), false},
		"no protocol":  {[]byte("HTTP/1.1 400 Bad Request"), false},
		"asks anew":    {wire.AppendAuthCleartext(wire.AppendAuthenticationOk(nil)), false}, // logged in: the driver fails on it
		"negotiation":  {wire.AppendAuthMD5(wire.AppendNegotiateProtocolVersion(nil, wire.Version30, nil), [4]byte{}), true},
		"half of it":   {wire.AppendAuthCleartext(nil)[:7], false},
		"nothing said": {nil, false},
	} {
		for _, pieces := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, func(r io.Reader) io.Reader { return r }} {
			got, err := io.ReadAll(Passwordless(pieces(strings.NewReader(string(c.said))), "u"))
			var e *pgerr.Error
			if asks := errors.As(err, &e); asks != c.asks || !asks && (err != nil || string(got) != string(c.said)) {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
	}
}
