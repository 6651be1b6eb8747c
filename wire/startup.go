package wire

import (
	"encoding/binary"
	"fmt"

	"fencepost/pgerr"
)

const (
	// MaxStartup is the largest length word of a startup packet (PostgreSQL's MAX_STARTUP_PACKET_LENGTH).
	MaxStartup = 10000

	// Version30 is the older of the two protocol versions we speak.
	Version30 uint32 = 3 << 16
	// Version32 is the newer one.
	Version32 uint32 = 3<<16 | 2

	// MaxName is how many bytes PostgreSQL keeps of a role's or database's name (NAMEDATALEN-1). It cuts what a startup packet
	// names there without an error, also in the middle of a character.
	MaxName = 63

	minStartup = 8 // length and code

	codeCancel = 80877102
	codeSSL    = 80877103
	codeGSSENC = 80877104

	minSecret, maxSecret = 4, 256
	// cancelHead is the part of a CancelRequest before the secret: length, code, pid.
	cancelHead = 12

	// A TLS record of type handshake begins with this byte and, in every TLS version, this major version.
	tlsHandshake, tlsMajor = 0x16, 0x03
)

// Kind is what a client's first packet is.
type Kind uint8

const (
	// NoKind is the zero value: nothing was parsed.
	NoKind Kind = iota
	// SSLRequest asks for TLS; it is answered with one byte, S or N, and another packet follows.
	SSLRequest
	// GSSENCRequest asks for GSSAPI encryption; it is answered with one byte, G or N, and another packet follows.
	GSSENCRequest
	// CancelRequest asks to cancel what another session runs; nothing is answered.
	CancelRequest
	// StartupMessage begins a session.
	StartupMessage
	// DirectTLS is a TLS ClientHello without a request before it (PostgreSQL 17's sslnegotiation=direct). ParseStartup
	// returns it together with an error; the client cannot read an answer.
	DirectTLS
)

// String returns the protocol's name for k.
func (k Kind) String() string {
	switch k {
	case SSLRequest:
		return "SSLRequest"
	case GSSENCRequest:
		return "GSSENCRequest"
	case CancelRequest:
		return "CancelRequest"
	case StartupMessage:
		return "StartupMessage"
	case DirectTLS:
		return "DirectTLS"
	}
	return "NoKind"
}

// Startup is a client's first packet. It owns all it holds.
type Startup struct {
	// Kind says which of the other fields mean something.
	Kind Kind
	// Version is what a StartupMessage asks for: 3<<16 and the minor version.
	Version uint32
	// User is never empty in a StartupMessage. Of User and Database nothing behind the first MaxName bytes is here.
	User string
	// Database is "" if absent, which means the user's name.
	Database string
	// Options is the command line of settings; see ParseOptions.
	Options string
	// ApplicationName is as sent.
	ApplicationName string
	// Replication is as sent; see WantsReplication.
	Replication string
	// Params are all other parameters, in order, names as sent. A parameter that came twice (PostgreSQL's names are the
	// same in upper and lower case) is here once, with its last value.
	Params []Param
	// ProtocolOptions are the parameters whose name begins with _pq_. (protocol extensions; we know none).
	ProtocolOptions []Param
	// CancelKey is what a CancelRequest names.
	CancelKey CancelKey
}

// ParseStartup reads the first packet of a connection from b, which holds everything received so far. n is the number
// of bytes it takes; 0 without an error means that more are needed. Bytes behind it are not looked at.
//
// Errors are *pgerr.Error: 08P01 for a length below 8 or above MaxStartup (seen before anything is allocated) and for a
// malformed packet, UnsupportedProtocol, DirectTLS (with Kind DirectTLS) and NoUser. With an error only Kind is set, as far
// as it was known.
func ParseStartup(b []byte) (s Startup, n int, err error) {
	if len(b) >= 2 && b[0] == tlsHandshake && b[1] == tlsMajor {
		return Startup{Kind: DirectTLS}, 0, pgerr.DirectTLS()
	}
	if len(b) < lengthSize {
		return Startup{}, 0, nil
	}
	size := binary.BigEndian.Uint32(b)
	if size < minStartup || size > MaxStartup {
		return Startup{}, 0, pgerr.ProtocolViolation("invalid length of startup packet")
	}
	if len(b) < int(size) {
		return Startup{}, 0, nil
	}
	if err := s.parse(b[lengthSize:size]); err != nil {
		return Startup{Kind: s.Kind}, 0, err
	}
	return s, int(size), nil
}

// parse reads a whole packet without its length word.
func (s *Startup) parse(packet []byte) error {
	code, rest := binary.BigEndian.Uint32(packet), packet[4:]
	switch code {
	case codeSSL, codeGSSENC:
		s.Kind = SSLRequest
		if code == codeGSSENC {
			s.Kind = GSSENCRequest
		}
		if len(rest) != 0 {
			return pgerr.ProtocolViolation("invalid length of " + s.Kind.String())
		}
		return nil
	case codeCancel:
		s.Kind = CancelRequest
		const head = cancelHead - minStartup
		if len(rest) < head+minSecret || len(rest) > head+maxSecret {
			return pgerr.ProtocolViolation("invalid length of CancelRequest")
		}
		s.CancelKey = CancelKey{PID: binary.BigEndian.Uint32(rest), Secret: append([]byte(nil), rest[head:]...)}
		return nil
	}
	if major := code >> 16; major != 3 {
		return pgerr.UnsupportedProtocol(uint16(major), uint16(code))
	}
	s.Kind, s.Version = StartupMessage, code
	if err := s.parseParams(rest); err != nil {
		return err
	}
	if s.User == "" {
		return pgerr.NoUser()
	}
	return nil
}

// NeedsNegotiation reports whether the client must be sent NegotiateProtocolVersion: it asked for a version that we do
// not speak, or for protocol extensions, none of which we know.
func (s *Startup) NeedsNegotiation() bool {
	return s.Version != s.NegotiatedVersion() || len(s.ProtocolOptions) > 0
}

// NegotiatedVersion is the version the session will speak: Version32 if at least that was asked for, else Version30.
// (There is no 3.1.)
func (s *Startup) NegotiatedVersion() uint32 {
	if s.Version >= Version32 {
		return Version32
	}
	return Version30
}

// UnknownOptions are the names of the protocol extensions asked for, for AppendNegotiateProtocolVersion.
func (s *Startup) UnknownOptions() []string {
	names := make([]string, len(s.ProtocolOptions))
	for i, p := range s.ProtocolOptions {
		names[i] = p.Name
	}
	return names
}

// WantsReplication reports whether the client asks for a replication connection, physical or logical, by PostgreSQL's
// rules for the parameter (a boolean or "database"). It fails with 22023 for any other value.
func (s *Startup) WantsReplication() (bool, error) {
	if s.Replication == "" {
		return false, nil
	}
	if s.Replication == "database" {
		return true, nil
	}
	on, ok := parseBool(s.Replication)
	if !ok {
		return false, pgerr.InvalidStartupValue("replication", s.Replication, `"false", 0, "true", 1, "database"`)
	}
	return on, nil
}

// CancelKey names a session for a cancel. The secret is never printed.
type CancelKey struct {
	// PID is the process id of BackendKeyData.
	PID uint32
	// Secret has 4 to 256 bytes.
	Secret []byte
}

// Format prints the key without its secret, whatever the verb.
func (k CancelKey) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "pid %d", k.PID) }

// String returns the key without its secret.
func (k CancelKey) String() string { return fmt.Sprintf("pid %d", k.PID) }

// MarshalText returns the key without its secret, so that no encoder shows it.
func (k CancelKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
