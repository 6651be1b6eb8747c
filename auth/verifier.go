package auth

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/xdg-go/scram"
)

// DefaultIterations is the PBKDF2 iteration count of verifiers derived here:
// PostgreSQL's scram_iterations.
const DefaultIterations = 4096

const (
	mechanism      = "SCRAM-SHA-256"
	verifierPrefix = mechanism + "$"
	// defaultSaltLen is PostgreSQL's SCRAM_DEFAULT_SALT_LEN.
	defaultSaltLen = 16
)

// verifier is the server's half of a SCRAM password and, made once, the
// library's server that begins conversations over it.
type verifier struct {
	creds  scram.StoredCredentials
	server *scram.Server
}

func newVerifier(creds scram.StoredCredentials) *verifier {
	// The name inside SCRAM is ignored, as in PostgreSQL: the startup
	// message has named the user, and libpq sends an empty name.
	server, err := scram.SHA256.NewServer(func(string) (scram.StoredCredentials, error) { return creds, nil })
	if err != nil {
		panic("auth: scram.NewServer: " + err.Error()) // the library has no failing path
	}
	return &verifier{creds: creds, server: server}
}

var errVerifier = errors.New("malformed SCRAM verifier: want SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>")

func parseVerifier(s string) (*verifier, error) {
	head, keys, ok := strings.Cut(strings.TrimPrefix(s, verifierPrefix), "$")
	if !ok {
		return nil, errVerifier
	}
	iterations, salt64, ok := strings.Cut(head, ":")
	if !ok {
		return nil, errVerifier
	}
	stored64, server64, ok := strings.Cut(keys, ":")
	if !ok {
		return nil, errVerifier
	}
	n, err := strconv.ParseUint(iterations, 10, 31)
	// Go's base64 skips line ends.
	if err != nil || n == 0 || strings.ContainsAny(s, "\r\n") {
		return nil, errVerifier
	}
	decode := base64.StdEncoding.Strict().DecodeString
	salt, err1 := decode(salt64)
	stored, err2 := decode(stored64)
	server, err3 := decode(server64)
	if err1 != nil || err2 != nil || err3 != nil || len(salt) == 0 ||
		len(stored) != sha256.Size || len(server) != sha256.Size {
		return nil, errVerifier
	}
	return newVerifier(scram.StoredCredentials{
		KeyFactors: scram.KeyFactors{Salt: string(salt), Iters: int(n)},
		StoredKey:  stored,
		ServerKey:  server,
	}), nil
}

// deriveVerifier makes the verifier of a plaintext password. Where PBKDF2 is
// refused (a FIPS policy) the result matches nothing.
func deriveVerifier(user, password string) *verifier {
	f := mockFactors(user, DefaultIterations, defaultSaltLen)
	stored, server, err := keys(password, f)
	if err != nil {
		stored, server = noKey, noKey
	}
	return newVerifier(scram.StoredCredentials{KeyFactors: f, StoredKey: stored, ServerKey: server})
}

// matches checks a cleartext password: a PBKDF2, as slow as the verifier's
// iteration count.
func (v *verifier) matches(password string) bool {
	stored, _, err := keys(password, v.creds.KeyFactors)
	return err == nil && subtle.ConstantTimeCompare(stored, v.creds.StoredKey) == 1
}

// keys computes StoredKey and ServerKey (RFC 5802 section 3).
func keys(password string, f scram.KeyFactors) (stored, server []byte, err error) {
	if f.Iters <= 0 || f.Iters > math.MaxInt32 {
		return nil, nil, errVerifier
	}
	salted, err := pbkdf2.Key(sha256.New, saslprep(password), []byte(f.Salt), f.Iters, sha256.Size)
	if err != nil {
		return nil, nil, err
	}
	client := hmacSHA256(salted, "Client Key")
	sum := sha256.Sum256(client)
	return sum[:], hmacSHA256(salted, "Server Key"), nil
}

func hmacSHA256(key []byte, data string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(data))
	return h.Sum(nil)
}
