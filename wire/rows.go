package wire

import "encoding/binary"

// Type OIDs of the console's columns.
const (
	OIDInt8    uint32 = 20
	OIDInt4    uint32 = 23
	OIDText    uint32 = 25
	OIDNumeric uint32 = 1700
)

// Null is the value of AppendDataRow that stands for SQL's NULL: the zero byte cannot be in a text value.
const Null = "\x00"

// Column describes one column of a result in text format.
type Column struct {
	Name string
	Type uint32 // OIDText and so on
}

// AppendRowDescription appends RowDescription for columns in text format.
func AppendRowDescription(dst []byte, columns []Column) []byte {
	dst, at := begin(dst, MsgRowDescription)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(columns)))
	for _, c := range columns {
		dst = appendString(dst, c.Name)
		dst = append(dst, 0, 0, 0, 0, 0, 0) // of no table
		dst = binary.BigEndian.AppendUint32(dst, c.Type)
		dst = binary.BigEndian.AppendUint16(dst, typeSize(c.Type))
		dst = append(dst, 0xff, 0xff, 0xff, 0xff) // no type modifier
		dst = append(dst, 0, 0)                   // text
	}
	return finish(dst, at)
}

// typeSize is pg_type.typlen: variable (-1) but for the integers.
func typeSize(oid uint32) uint16 {
	switch oid {
	case OIDInt4:
		return 4
	case OIDInt8:
		return 8
	}
	return 0xffff
}

// AppendDataRow appends DataRow with values in text format; Null stands for NULL.
func AppendDataRow(dst []byte, values []string) []byte {
	dst, at := begin(dst, MsgDataRow)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(values)))
	for _, v := range values {
		if v == Null {
			dst = append(dst, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(v)))
		dst = append(dst, v...)
	}
	return finish(dst, at)
}

// AppendCommandComplete appends CommandComplete.
func AppendCommandComplete(dst []byte, tag string) []byte {
	dst, at := begin(dst, MsgCommandComplete)
	return finish(appendString(dst, tag), at)
}

// AppendEmptyQueryResponse appends EmptyQueryResponse.
func AppendEmptyQueryResponse(dst []byte) []byte {
	return append(dst, MsgEmptyQueryResponse, 0, 0, 0, 4)
}
