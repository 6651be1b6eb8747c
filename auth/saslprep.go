package auth

import (
	"unicode/utf8"

	"github.com/xdg-go/stringprep"
	"golang.org/x/text/unicode/norm"
)

// SASLprep (RFC 4013) as PostgreSQL's pg_saslprep does it, which differs from
// the library's profile in three points: U+200B is a space before it is
// nothing, U+1806 is nothing (the library's table B.1 lacks it), and what is
// prohibited is looked for before normalisation, not after. Each would lock out
// a password that works with the server itself.
var (
	saslprepMap = stringprep.Profile{
		Mappings: []stringprep.Mapping{
			stringprep.SASLprep.Mappings[1], // table C.1.2, non-ASCII spaces
			stringprep.TableB1,
			{0x1806: nil},
		},
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
