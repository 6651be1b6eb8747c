package admin

import (
	"fmt"
	"strconv"
	"time"

	"fencepost/wire"
)

// table is a result of SHOW. columns is one letter per name, PgBouncer's: s text, i int4, q int8, N numeric.
type table struct {
	columns string
	names   []string
	rows    [][]string
}

var oids = map[byte]uint32{'s': wire.OIDText, 'i': wire.OIDInt4, 'q': wire.OIDInt8, 'N': wire.OIDNumeric}

// row adds a row; values are as the columns say: string, null, bool (0 or 1) or any integer.
func (t *table) row(values ...any) {
	if len(values) != len(t.names) {
		panic(fmt.Sprintf("admin: %d values for %d columns", len(values), len(t.names)))
	}
	row := make([]string, len(values))
	for i, v := range values {
		row[i] = text(v)
	}
	t.rows = append(t.rows, row)
}

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case null:
		return wire.Null
	case bool:
		if v {
			return "1"
		}
		return "0"
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case uint64:
		return strconv.FormatUint(v, 10)
	}
	return fmt.Sprint(v)
}

// null is SQL's NULL.
type null struct{}

// orNull is s, or NULL where s is empty.
func orNull(s string) any {
	if s == "" {
		return null{}
	}
	return s
}

// orNone is n, or NULL where n is 0 because it is not known.
func orNone(n uint64) any {
	if n == 0 {
		return null{}
	}
	return n
}

// blank adds a row that has the values given by name and is NULL elsewhere.
func (t *table) blank(values map[string]any) {
	row := make([]any, len(t.names))
	for i, name := range t.names {
		row[i] = null{}
		if v, ok := values[name]; ok {
			row[i] = v
		}
	}
	t.row(row...)
}

// encode appends the result as protocol messages.
func (t *table) encode(dst []byte, tag string) []byte {
	columns := make([]wire.Column, len(t.names))
	for i, n := range t.names {
		columns[i] = wire.Column{Name: n, Type: oids[t.columns[i]]}
	}
	dst = wire.AppendRowDescription(dst, columns)
	for _, r := range t.rows {
		dst = wire.AppendDataRow(dst, r)
	}
	return wire.AppendCommandComplete(dst, tag)
}

// timestamp is a time as PgBouncer shows it.
func timestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}

// pointer stands where PgBouncer shows an address in memory.
func pointer(id uint64) string {
	if id == 0 {
		return ""
	}
	return "0x" + strconv.FormatUint(id, 16)
}

// whole and micros split a duration as PgBouncer's columns wait and wait_us do.
func whole(d time.Duration) int  { return int(d / time.Second) }
func micros(d time.Duration) int { return int(d % time.Second / time.Microsecond) }
