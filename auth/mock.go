package auth

import (
	"cmp"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"iter"

	"github.com/xdg-go/scram"
)

// processKey makes mock salts unpredictable and yet the same for one user as
// long as the process lives. noKey and noMD5 are what mock secrets hold instead
// of hashes of a password; nothing on the wire depends on them.
var (
	processKey = randomBytes(sha256.Size)
	noKey      = randomBytes(sha256.Size)
	noMD5      = [2 * md5.Size]byte(hex.AppendEncode(nil, randomBytes(md5.Size)))
)

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return b
}

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
	x := &secret{user: user, kind: kindPlain, mock: true, md5: noMD5}
	if p.kind == kindSCRAM {
		x.kind = kindSCRAM
	}
	x.verifier.Store(newVerifier(scram.StoredCredentials{
		KeyFactors: mockFactors(user, cmp.Or(p.iterations, DefaultIterations), cmp.Or(p.saltLen, defaultSaltLen)),
		StoredKey:  noKey,
		ServerKey:  noKey,
	}))
	return &Secret{x}
}

func mockFactors(user string, iterations, saltLen int) scram.KeyFactors {
	salt := hmacSHA256(processKey, user)
	for len(salt) < saltLen {
		salt = append(salt, hmacSHA256(processKey, string(salt))...)
	}
	return scram.KeyFactors{Salt: string(salt[:saltLen]), Iters: iterations}
}
