package auth

import "fmt"

// Method is how clients prove who they are (setting auth_type). The zero value
// is no method: an Exchange with it lets nobody in.
type Method uint8

const (
	// Trust asks for nothing; the user must exist.
	Trust Method = iota + 1
	// Password asks for the password in clear text.
	Password
	// MD5 sends a salted challenge, or speaks SCRAM where the user's secret is
	// a SCRAM verifier.
	MD5
	// SCRAM is SASL with SCRAM-SHA-256 (RFC 5802, RFC 7677).
	SCRAM
)

// ParseMethod reads the value of auth_type: trust, password (PgBouncer's name
// plain means the same), md5, scram-sha-256. Anything else is an error.
func ParseMethod(s string) (Method, error) {
	switch s {
	case "trust":
		return Trust, nil
	case "password", "plain":
		return Password, nil
	case "md5":
		return MD5, nil
	case "scram-sha-256":
		return SCRAM, nil
	}
	return 0, fmt.Errorf("unknown authentication method %q: want trust, password, md5 or scram-sha-256", s)
}

// String returns the method's name as in the setting auth_type.
func (m Method) String() string {
	switch m {
	case Trust:
		return "trust"
	case Password:
		return "password"
	case MD5:
		return "md5"
	case SCRAM:
		return "scram-sha-256"
	}
	return fmt.Sprintf("method(%d)", uint8(m))
}
