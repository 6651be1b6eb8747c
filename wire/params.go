package wire

import (
	"bytes"
	"strings"

	"fencepost/pgerr"
)

// Param is a parameter by name and value.
type Param struct {
	Name, Value string
}

const protocolOptionPrefix = "_pq_."

// parseParams reads the list of names and values that ends with an empty name exactly at the end of b.
func (s *Startup) parseParams(b []byte) error {
	var params, protocol paramList
	for {
		name, rest, ok := cutString(b)
		if !ok {
			return pgerr.ProtocolViolation("invalid startup packet layout: expected terminator as last byte")
		}
		if len(name) == 0 {
			if len(rest) != 0 {
				return pgerr.ProtocolViolation("invalid startup packet layout: expected terminator as last byte")
			}
			s.Params, s.ProtocolOptions = params.list, protocol.list
			return nil
		}
		value, rest, ok := cutString(rest)
		if !ok {
			return pgerr.ProtocolViolation("invalid startup packet layout: a parameter has no value")
		}
		b = rest
		switch string(name) {
		case "user":
			s.User = string(value[:min(len(value), MaxName)])
		case "database":
			s.Database = string(value[:min(len(value), MaxName)])
		case "options":
			s.Options = string(value)
		case "application_name":
			s.ApplicationName = string(value)
		case "replication":
			s.Replication = string(value)
		default:
			list := &params
			if bytes.HasPrefix(name, []byte(protocolOptionPrefix)) {
				list = &protocol
			}
			list.set(paramName(name), string(value))
		}
	}
}

// cutString takes a string that ends with a zero byte from the front of b.
func cutString(b []byte) (s, rest []byte, ok bool) {
	i := bytes.IndexByte(b, 0)
	if i < 0 {
		return nil, b, false
	}
	return b[:i], b[i+1:], true
}

// paramName is string(b) without an allocation for the names that clients commonly send.
func paramName(b []byte) string {
	for _, name := range [...]string{"client_encoding", "DateStyle", "datestyle", "TimeZone", "timezone",
		"extra_float_digits", "search_path", "standard_conforming_strings", "IntervalStyle", "statement_timeout"} {
		if string(b) == name {
			return name
		}
	}
	return string(b)
}

// paramList collects parameters of which the last of equal names (upper and lower case are the same) wins. A client
// can send thousands before it has logged in, so that from indexFrom on it looks them up in a map.
type paramList struct {
	list  []Param
	index map[string]int // lower-case name to place in list; nil for a short list
}

const indexFrom = 16

func (l *paramList) set(name, value string) {
	if i := l.find(name); i >= 0 {
		l.list[i] = Param{name, value}
		return
	}
	l.list = append(l.list, Param{name, value})
	switch {
	case l.index != nil:
		l.index[lowerASCII(name)] = len(l.list) - 1
	case len(l.list) == indexFrom:
		l.index = make(map[string]int, 2*indexFrom)
		for i, p := range l.list {
			l.index[lowerASCII(p.Name)] = i
		}
	}
}

func (l *paramList) find(name string) int {
	if l.index != nil {
		if i, ok := l.index[lowerASCII(name)]; ok {
			return i
		}
		return -1
	}
	for i := range l.list {
		if equalFoldASCII(l.list[i].Name, name) {
			return i
		}
	}
	return -1
}

// lowerASCII folds as PostgreSQL's guc_name_compare does: other letters are bytes.
func lowerASCII(s string) string {
	for i := range len(s) {
		if lowerByte(s[i]) != s[i] {
			b := []byte(s)
			for i, c := range b {
				b[i] = lowerByte(c)
			}
			return string(b)
		}
	}
	return s
}

func equalFoldASCII(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lowerByte(a[i]) != lowerByte(b[i]) {
			return false
		}
	}
	return true
}

func lowerByte(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// ParseOptions splits the startup parameter "options" into settings, in order, the last of equal names winning:
// "-c name=value", "-cname=value" and "--name=value", separated by white space; a backslash takes the next character
// literally; a dash in a name stands for an underscore (PostgreSQL's pg_split_opts and ParseLongOption). Anything else
// is an error that says what is allowed.
func ParseOptions(options string) ([]Param, error) {
	var params paramList
	for {
		word, rest, ok := cutWord(options)
		if !ok {
			return params.list, nil
		}
		options = rest
		var setting string
		switch {
		case word == "-c":
			if setting, options, ok = cutWord(options); !ok {
				return nil, pgerr.MalformedOptions(word)
			}
		case strings.HasPrefix(word, "-c"), strings.HasPrefix(word, "--"):
			setting = word[2:]
		default:
			return nil, pgerr.MalformedOptions(shortArgument(word))
		}
		name, value, found := strings.Cut(setting, "=")
		if !found || name == "" {
			return nil, pgerr.MalformedOptions(shortArgument(setting))
		}
		params.set(strings.ReplaceAll(name, "-", "_"), value)
	}
}

// cutWord takes the next word, unescaped, from the front of s; ok is false when there is none.
func cutWord(s string) (word, rest string, ok bool) {
	s = strings.TrimLeft(s, whiteSpace)
	if s == "" {
		return "", "", false
	}
	if end := strings.IndexAny(s, whiteSpace+`\`); end < 0 {
		return s, "", true
	} else if s[end] != '\\' {
		return s[:end], s[end:], true
	}
	var w strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\\' {
			// A backslash at the very end stands for nothing, as in PostgreSQL.
			if i++; i < len(s) {
				w.WriteByte(s[i])
			}
			continue
		}
		if strings.IndexByte(whiteSpace, c) >= 0 {
			return w.String(), s[i:], true
		}
		w.WriteByte(c)
	}
	return w.String(), "", true
}

// whiteSpace is what isspace takes for it in the C locale.
const whiteSpace = " \t\n\v\f\r"

// shortArgument is what an error shows of an argument: not its value, which may be a secret, and not all of a long one.
func shortArgument(arg string) string {
	const most = 64
	name, _, found := strings.Cut(arg, "=")
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "..."
	}
	if found {
		return name + "=..."
	}
	return name
}

// parseBool follows PostgreSQL's parse_bool: any unambiguous beginning of true, false, yes, no, on, off, in any case,
// or 1 or 0.
func parseBool(s string) (value, ok bool) {
	switch s {
	case "1":
		return true, true
	case "0":
		return false, true
	case "", "o", "O":
		return false, false
	}
	lower := lowerASCII(s)
	for _, word := range [...]string{"true", "yes", "on", "false", "no", "off"} {
		if strings.HasPrefix(word, lower) {
			return word == "true" || word == "yes" || word == "on", true
		}
	}
	return false, false
}
