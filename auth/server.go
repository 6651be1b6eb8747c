package auth

import (
	"encoding/binary"
	"io"

	"fencepost/pgerr"
	"fencepost/wire"
)

// Passwordless is what a login without a password reads from its server: it fails with pgerr.NoServerPassword as soon as
// the server asks for one. Drivers would send an empty password, which counts as a failed login there.
func Passwordless(server io.Reader, user string) io.Reader {
	return &passwordless{server: server, user: user}
}

type passwordless struct {
	server  io.Reader
	user    string
	scanner wire.Scanner
	request []byte // the first word of an Authentication message, as far as it has come
	over    bool   // the server has said yes, or what the driver will fail on
}

// Read implements io.Reader.
func (p *passwordless) Read(b []byte) (int, error) {
	n, err := p.server.Read(b)
	for rest := b[:n]; !p.over && len(rest) > 0; {
		m, k, fault := p.scanner.Next(rest)
		if fault != nil {
			p.over = true
			break
		}
		rest = rest[k:]
		if m.Type != wire.MsgAuthentication {
			continue
		}
		p.request = append(p.request, m.Body[:min(len(m.Body), 4-len(p.request))]...)
		if len(p.request) < 4 {
			continue
		}
		switch binary.BigEndian.Uint32(p.request) {
		case wire.AuthCleartext, wire.AuthMD5, wire.AuthSASL:
			return 0, pgerr.NoServerPassword(p.user)
		}
		p.over = true
	}
	return n, err
}
