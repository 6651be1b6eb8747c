package backend

import (
	"strings"
	"unique"
)

// Names are the parameters that are carried from client to backend: those a server reports by ParameterStatus and a
// client may set. The order is fixed for the life of the process.
type Names []string

// BaseNames are the parameters PgBouncer tracks.
var BaseNames = Names{"client_encoding", "DateStyle", "TimeZone", "standard_conforming_strings", "application_name"}

// Index finds a name, whatever its case; -1 if it is not tracked.
func (n Names) Index(name string) int {
	for i, x := range n {
		if strings.EqualFold(x, name) {
			return i
		}
	}
	return -1
}

// IndexBytes is Index without a conversion.
func (n Names) IndexBytes(name []byte) int {
	for i, x := range n {
		if len(x) == len(name) && strings.EqualFold(x, string(name)) {
			return i
		}
	}
	return -1
}

// Params are the values of all tracked parameters, in the order of Names. Equal values are the same Params, so that "do
// they differ?" is one comparison, and thousands of clients with the same values share one copy. A value may be Unknown:
// then it is never carried.
type Params struct{ h unique.Handle[string] }

// Unknown is the value of a parameter the server does not report, or a client does not ask for. No server and no client can
// send it.
const Unknown = "\x00"

// UnknownValues is a list of n values, all Unknown.
func UnknownValues(n int) []string {
	v := make([]string, n)
	for i := range v {
		v[i] = Unknown
	}
	return v
}

// MakeParams interns values, which must be as many as there are names. They are kept in one string: each with a mark in
// front that tells Unknown from a value, and a zero byte, which is in no value, between them.
func MakeParams(values []string) Params {
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteByte(0)
		}
		if v == Unknown {
			b.WriteByte('?')
		} else {
			b.WriteByte('=')
			b.WriteString(v)
		}
	}
	return Params{unique.Make(b.String())}
}

// Known reports whether p was made by MakeParams.
func (p Params) Known() bool { return p != Params{} }

// Values splits p.
func (p Params) Values() []string {
	v := strings.Split(p.h.Value(), "\x00")
	for i, x := range v {
		if x == "?" {
			v[i] = Unknown
		} else {
			v[i] = x[1:]
		}
	}
	return v
}

// With is p with one value changed.
func (p Params) With(i int, value string) Params {
	v := p.Values()
	if v[i] == value {
		return p
	}
	v[i] = value
	return MakeParams(v)
}

// Overlay is p with the values of over that are not Unknown.
func (p Params) Overlay(over []string) Params {
	if over == nil {
		return p
	}
	v := p.Values()
	for i, x := range over {
		if x != Unknown {
			v[i] = x
		}
	}
	return MakeParams(v)
}

// Value is the value of one parameter in p, "" if it is not tracked or not known.
func (n Names) Value(p Params, name string) string {
	i := n.Index(name)
	if i < 0 || !p.Known() {
		return ""
	}
	if v := p.Values()[i]; v != Unknown {
		return v
	}
	return ""
}

// SetStatements is the SQL that changes the values in have to those in want, "" if there is nothing to change. Where
// have is unknown the server does not report the parameter, and it is left alone.
func (n Names) SetStatements(have, want Params) string {
	if have == want {
		return ""
	}
	h, w := have.Values(), want.Values()
	var b strings.Builder
	for i, name := range n {
		if w[i] == Unknown || h[i] == Unknown || h[i] == w[i] {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(';')
		}
		b.WriteString("SET ")
		b.WriteString(name)
		b.WriteByte('=')
		quote(&b, w[i])
	}
	return b.String()
}

// quote writes s as a literal that means the same whatever standard_conforming_strings says.
func quote(b *strings.Builder, s string) {
	if strings.ContainsRune(s, '\\') {
		b.WriteString(" E'")
		s = strings.ReplaceAll(s, `\`, `\\`)
	} else {
		b.WriteByte('\'')
	}
	b.WriteString(strings.ReplaceAll(s, "'", "''"))
	b.WriteByte('\'')
}
