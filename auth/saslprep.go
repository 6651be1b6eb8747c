package auth

import (
	"unicode/utf8"

	"github.com/xdg-go/stringprep"
	"golang.org/x/text/unicode/norm"
)

// SASLprep (RFC 4013) in the order of PostgreSQL's pg_saslprep, which differs
// from the library's profile in two points: U+200B is a space before it is
// nothing, and what is prohibited is looked for before normalisation. Either
// would lock out a password that works with the server itself.
var (
	saslprepMap = stringprep.Profile{
		Mappings: []stringprep.Mapping{stringprep.SASLprep.Mappings[1], stringprep.SASLprep.Mappings[0]},
	}
	saslprepCheck = stringprep.Profile{
		Prohibits: stringprep.SASLprep.Prohibits,
		CheckBiDi: true,
	}
)

// saslprep prepares a password for PBKDF2. What SASLprep refuses (invalid
// UTF-8, prohibited or unassigned characters) is used as it is, like
// PostgreSQL and libpq do.
func saslprep(password string) string {
	if isASCII(password) || !utf8.ValidString(password) {
		return password
	}
	mapped, err := saslprepMap.Prepare(password)
	if err != nil || mapped == "" {
		return password
	}
	if _, err := saslprepCheck.Prepare(mapped); err != nil {
		return password
	}
	return norm.NFKC.String(mapped)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
