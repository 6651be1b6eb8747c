package auth

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"iter"
	"slices"

	"github.com/xdg-go/scram"
)

// processKey makes mock salts unpredictable and yet the same for one user as
// long as the process lives.
var processKey = func() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	return key
}()

// Profile is what the secrets of the settings look like on the wire, so that
// unknown users can look like most of the known. The zero value looks like a
// plaintext secret: DefaultIterations and a salt of 16 bytes for SCRAM.
type Profile struct {
	kind       kind
	iterations int
	saltLen    int
}

// ProfileOf returns the profile that most of the secrets usable by m share; the
// zero Profile if there are none.
func ProfileOf(m Method, secrets iter.Seq[*Secret]) Profile {
	counts := map[Profile]int{}
	for s := range secrets {
		if s.Usable(m) {
			counts[s.profile(m)]++
		}
	}
	var best Profile
	for p, n := range counts {
		if more := cmp.Or(cmp.Compare(n, counts[best]), p.compare(best)); more > 0 {
			best = p
		}
	}
	return best
}

// compare makes ties independent of the map's order.
func (p Profile) compare(q Profile) int {
	return cmp.Or(
		cmp.Compare(p.kind, q.kind),
		cmp.Compare(p.iterations, q.iterations),
		cmp.Compare(p.saltLen, q.saltLen),
	)
}

// profile is what s looks like by m: two secrets that cannot be told apart
// have one profile.
func (s *Secret) profile(m Method) Profile {
	if s.kind == kindSCRAM {
		f := s.verifier.Load().creds.KeyFactors
		return Profile{kind: kindSCRAM, iterations: f.Iters, saltLen: len(f.Salt)}
	}
	if m == SCRAM {
		return Profile{kind: kindSCRAM, iterations: DefaultIterations, saltLen: defaultSaltLen}
	}
	return Profile{}
}

// Mock is Profile.Mock of the zero Profile.
func Mock(user string) *Secret { return Profile{}.Mock(user) }

// Mock returns a secret for a user who does not exist: ready for every method,
// the same requests each time within one process, matched by no password. It
// is cheap and need not be kept.
func (p Profile) Mock(user string) *Secret {
	x := &secret{user: user, kind: kindPlain, mock: true}
	if p.kind == kindSCRAM {
		x.kind = kindSCRAM
	}
	iterations, saltLen := cmp.Or(p.iterations, DefaultIterations), cmp.Or(p.saltLen, defaultSaltLen)
	x.verifier.Store(mockVerifier(user, iterations, saltLen))
	hex.Encode(x.md5[:], hmacSHA256(processKey, "md5", user)[:len(x.md5)/2])
	return &Secret{x}
}

func mockVerifier(user string, iterations, saltLen int) *verifier {
	salt := hmacSHA256(processKey, "salt", user)
	for len(salt) < saltLen {
		salt = slices.Concat(salt, hmacSHA256(processKey, "salt", string(salt)))
	}
	return newVerifier(scram.StoredCredentials{
		KeyFactors: scram.KeyFactors{Salt: string(salt[:saltLen]), Iters: iterations},
		StoredKey:  hmacSHA256(processKey, "stored key", user),
		ServerKey:  hmacSHA256(processKey, "server key", user),
	})
}
