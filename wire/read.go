package wire

import "fencepost/pgerr"

// Fields are the fields of an ErrorResponse or NoticeResponse that a pooler looks at. They point into the body they
// were read from; those that are absent are nil.
type Fields struct {
	Severity []byte // V where the server sends it (never translated), else S
	Code     []byte
	Message  []byte
	Detail   []byte
	Hint     []byte
}

// ErrorFields reads the body of an ErrorResponse or NoticeResponse. ok is false when the body is not a list of fields
// with its terminator at the end; what was read until then is returned. It does not allocate.
func ErrorFields(body []byte) (f Fields, ok bool) {
	var localized []byte
	for len(body) > 0 && body[0] != 0 {
		value, rest, found := cutString(body[1:])
		if !found {
			break
		}
		switch body[0] {
		case FieldLocalizedSeverity:
			localized = value
		case FieldSeverity:
			f.Severity = value
		case FieldCode:
			f.Code = value
		case FieldMessage:
			f.Message = value
		case FieldDetail:
			f.Detail = value
		case FieldHint:
			f.Hint = value
		}
		body = rest
	}
	if f.Severity == nil {
		f.Severity = localized
	}
	return f, len(body) == 1 && body[0] == 0
}

// ParseError reads the body of an ErrorResponse into an error that owns its strings, to pass it on later. A body that
// is malformed, or lacks code or message, still gives a whole error (see pgerr.FromServer).
func ParseError(body []byte) *pgerr.Error {
	f, _ := ErrorFields(body)
	return pgerr.FromServer(string(f.Severity), string(f.Code), string(f.Message), string(f.Detail), string(f.Hint))
}

// ParameterStatus reads the body of a ParameterStatus; name and value point into it. ok is false when it is not two
// strings. It does not allocate.
func ParameterStatus(body []byte) (name, value []byte, ok bool) {
	name, rest, ok := cutString(body)
	if !ok {
		return nil, nil, false
	}
	value, rest, ok = cutString(rest)
	if !ok || len(rest) != 0 || len(name) == 0 {
		return nil, nil, false
	}
	return name, value, true
}

// QueryText reads the body of a Query; sql points into it.
func QueryText(body []byte) (sql []byte, ok bool) { return wholeString(body) }

// wholeString is body without its zero byte, if that is its only one and at its end.
func wholeString(body []byte) ([]byte, bool) {
	s, rest, ok := cutString(body)
	if !ok || len(rest) != 0 {
		return nil, false
	}
	return s, true
}
