package auth

import (
	"crypto/md5"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// kind is what a secret was written as. The zero value is the user without a
// password.
type kind uint8

const (
	kindNone kind = iota
	kindPlain
	kindMD5
	kindSCRAM
)

// Secret is what the settings know of one user's password. It is immutable
// but for the verifier that Derive adds, and safe for any goroutine. It does
// not show its content to fmt, log/slog or encoding/json.
//
// A nil *Secret stands for a user who does not exist.
type Secret struct {
	// The content is behind a second pointer because fmt prints nested
	// pointers as addresses, even of a Secret copied by value.
	*secret
}

type secret struct {
	user  string
	kind  kind
	mock  bool // nothing may ever match
	plain string
	// md5 is the 32 hex digits of md5(password user); for kindPlain and
	// kindMD5.
	md5      [2 * md5.Size]byte
	once     sync.Once
	verifier atomic.Pointer[verifier]
}

// ParseSecret reads a secret from the settings, told apart as PostgreSQL does
// in pg_authid.rolpassword: "md5" and 32 lower-case hex digits; a SCRAM verifier
// "SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>"; anything else is
// a plaintext password. "" is a user without a password: only trust lets it in.
//
// A plaintext password that holds a NUL byte is an error, and so is, unlike in
// PostgreSQL, a value that begins like a SCRAM verifier and is none. Errors
// never hold the value.
func ParseSecret(user, s string) (*Secret, error) {
	x := &secret{user: user}
	switch {
	case s == "":
		x.kind = kindNone
	case isMD5(s):
		x.kind = kindMD5
		copy(x.md5[:], s[len("md5"):])
	case strings.HasPrefix(s, verifierPrefix):
		v, err := parseVerifier(s)
		if err != nil {
			return nil, err
		}
		x.kind = kindSCRAM
		x.verifier.Store(v)
	default:
		if strings.IndexByte(s, 0) >= 0 {
			return nil, errors.New("a password cannot hold a NUL byte")
		}
		x.kind = kindPlain
		x.plain = s
		x.md5 = md5Hex(s + user)
	}
	return &Secret{x}, nil
}

func isMD5(s string) bool {
	if len(s) != len("md5")+2*md5.Size || !strings.HasPrefix(s, "md5") {
		return false
	}
	return strings.Trim(s[len("md5"):], "0123456789abcdef") == ""
}

func md5Hex(s string) (digits [2 * md5.Size]byte) {
	sum := md5.Sum([]byte(s))
	hex.Encode(digits[:], sum[:])
	return digits
}

// isKnown tells a Secret from nil and from the zero Secret, which also stands
// for nobody.
func (s *Secret) isKnown() bool { return s != nil && s.secret != nil }

// Plaintext returns the password if the settings hold it in plain text. It is
// what a backend of this user logs in with.
func (s *Secret) Plaintext() (password string, ok bool) {
	if !s.isKnown() || s.kind != kindPlain || s.mock {
		return "", false
	}
	return s.plain, true
}

// Usable reports whether a client can log in by m with this secret at all.
func (s *Secret) Usable(m Method) bool {
	if !s.isKnown() || s.mock {
		return false
	}
	switch m {
	case Trust:
		return true
	case Password, MD5:
		return s.kind != kindNone
	case SCRAM:
		return s.kind == kindPlain || s.kind == kindSCRAM
	}
	return false
}

// Ready reports whether an Exchange by m can begin without slow work. It is
// false only for SCRAM and a plaintext secret before Derive.
func (s *Secret) Ready(m Method) bool {
	return !s.isKnown() || m != SCRAM || s.kind != kindPlain || s.verifier.Load() != nil
}

// Derive does what Ready misses: a PBKDF2 with DefaultIterations, milliseconds
// of one core. It blocks for that long, does its work once however many
// goroutines call it, and does nothing where Ready says yes. The salt depends on
// the user and the process alone and is that of the user's mock secret, so that
// neither a reload nor creating the user shows.
func (s *Secret) Derive(m Method) {
	if s.Ready(m) {
		return
	}
	s.once.Do(func() { s.verifier.Store(deriveVerifier(s.user, s.plain)) })
}

// Slow reports whether the Step of an Exchange by m costs a PBKDF2.
func (s *Secret) Slow(m Method) bool {
	return s.isKnown() && m == Password && s.kind == kindSCRAM
}

// matches checks a cleartext password in a time that does not depend on where
// it differs.
func (s *Secret) matches(password string) bool {
	var equal bool
	switch s.kind {
	case kindPlain:
		want, got := sha256.Sum256([]byte(s.plain)), sha256.Sum256([]byte(password))
		equal = subtle.ConstantTimeCompare(want[:], got[:]) == 1
	case kindMD5:
		got := md5Hex(password + s.user)
		equal = subtle.ConstantTimeCompare(s.md5[:], got[:]) == 1
	case kindSCRAM:
		equal = s.verifier.Load().matches(password)
	}
	return equal && !s.mock
}

// matchesMD5 checks the answer to an MD5 challenge: "md5" and the hex digits of
// md5(digits of the secret, salt).
func (s *Secret) matchesMD5(answer string, salt [4]byte) bool {
	digits := md5Hex(string(s.md5[:]) + string(salt[:]))
	want := "md5" + string(digits[:])
	return subtle.ConstantTimeCompare([]byte(want), []byte(answer)) == 1 && !s.mock
}

const redacted = "[secret]"

// Format prints a placeholder for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// String returns a placeholder.
func (s Secret) String() string { return redacted }

// MarshalText returns a placeholder, to encoding/json and log/slog too.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
