package wire

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/pgerr"
)

// decoder is what pgproto3's messages have in common.
type decoder interface{ Decode([]byte) error }

// TestBuildersAgainstPgproto3 reads what the builders write with another implementation of the protocol.
func TestBuildersAgainstPgproto3(t *testing.T) {
	secret32 := bytes.Repeat([]byte{7}, 32)
	for _, c := range []struct {
		name  string
		built []byte
		typ   byte
		want  decoder
	}{
		{"error", AppendError(nil, failure), 'E', &pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL",
			Code: "3D000", Message: failure.Message, Detail: "d", Hint: failure.Hint}},
		{"error without hint", AppendError(nil, pgerr.Canceled()), 'E', &pgproto3.ErrorResponse{Severity: "ERROR",
			SeverityUnlocalized: "ERROR", Code: "57014", Message: pgerr.Canceled().Message}},
		{"notice", AppendNotice(nil, failure), 'N', &pgproto3.NoticeResponse{Severity: "NOTICE", SeverityUnlocalized: "NOTICE",
			Code: "3D000", Message: failure.Message, Detail: "d", Hint: failure.Hint}},
		{"ready", AppendReadyForQuery(nil, 'T'), 'Z', &pgproto3.ReadyForQuery{TxStatus: 'T'}},
		{"parameter", AppendParameterStatus(nil, "TimeZone", "CET"), 'S', &pgproto3.ParameterStatus{Name: "TimeZone", Value: "CET"}},
		{"key of 3.0", AppendBackendKeyData(nil, 7, []byte("abcd")), 'K', &pgproto3.BackendKeyData{ProcessID: 7, SecretKey: []byte("abcd")}},
		{"key of 3.2", AppendBackendKeyData(nil, 0xfffffff0, secret32), 'K',
			&pgproto3.BackendKeyData{ProcessID: 0xfffffff0, SecretKey: secret32}},
		{"negotiate", AppendNegotiateProtocolVersion(nil, Version32, []string{"_pq_.a", "_pq_.b"}), 'v',
			&pgproto3.NegotiateProtocolVersion{NewestMinorProtocol: 0x00030002, UnrecognizedOptions: []string{"_pq_.a", "_pq_.b"}}},
		{"negotiate without options", AppendNegotiateProtocolVersion(nil, Version30, nil), 'v',
			&pgproto3.NegotiateProtocolVersion{NewestMinorProtocol: 0x00030000, UnrecognizedOptions: []string{}}},
		{"authentication ok", AppendAuthenticationOk(nil), 'R', &pgproto3.AuthenticationOk{}},
		{"cleartext", AppendAuthCleartext(nil), 'R', &pgproto3.AuthenticationCleartextPassword{}},
		{"md5", AppendAuthMD5(nil, [4]byte{1, 2, 3, 4}), 'R', &pgproto3.AuthenticationMD5Password{Salt: [4]byte{1, 2, 3, 4}}},
		{"sasl", AppendSASL(nil, []string{"SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"}), 'R',
			&pgproto3.AuthenticationSASL{AuthMechanisms: []string{"SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"}}},
		{"sasl continue", AppendSASLContinue(nil, []byte("r=x")), 'R', &pgproto3.AuthenticationSASLContinue{Data: []byte("r=x")}},
		{"sasl final", AppendSASLFinal(nil, []byte("v=x")), 'R', &pgproto3.AuthenticationSASLFinal{Data: []byte("v=x")}},
		{"query", AppendQuery(nil, "select 1"), 'Q', &pgproto3.Query{String: "select 1"}},
		{"terminate", AppendTerminate(nil), 'X', &pgproto3.Terminate{}},
		{"sync", AppendSync(nil), 'S', &pgproto3.Sync{}},
		{"copy fail", AppendCopyFail(nil, "no more"), 'f', &pgproto3.CopyFail{Message: "no more"}},
		{"command complete", AppendCommandComplete(nil, "SELECT 1"), 'C', &pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")}},
		{"empty query", AppendEmptyQueryResponse(nil), 'I', &pgproto3.EmptyQueryResponse{}},
		{"row description", AppendRowDescription(nil, []Column{{"a", OIDInt4}, {"b", OIDInt8}, {"c", OIDText}, {"d", OIDNumeric}}), 'T',
			&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{
				{Name: []byte("a"), DataTypeOID: 23, DataTypeSize: 4, TypeModifier: -1},
				{Name: []byte("b"), DataTypeOID: 20, DataTypeSize: 8, TypeModifier: -1},
				{Name: []byte("c"), DataTypeOID: 25, DataTypeSize: -1, TypeModifier: -1},
				{Name: []byte("d"), DataTypeOID: 1700, DataTypeSize: -1, TypeModifier: -1}}}},
		{"row of nothing", AppendRowDescription(nil, nil), 'T', &pgproto3.RowDescription{}},
		{"data row", AppendDataRow(nil, []string{"x", "", Null, "ü"}), 'D',
			&pgproto3.DataRow{Values: [][]byte{[]byte("x"), {}, nil, []byte("ü")}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			messages, rest, ok := split(c.built)
			if len(messages) != 1 || rest != 0 || !ok || messages[0].typ != c.typ {
				t.Fatalf("%q is not one message of type %q", c.built, c.typ)
			}
			got := reflect.New(reflect.TypeOf(c.want).Elem()).Interface().(decoder)
			if err := got.Decode([]byte(messages[0].body)); err != nil {
				t.Fatalf("%q: %v", c.built, err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestAppendCancelRequest(t *testing.T) {
	for _, size := range []int{4, 32, 256} {
		key := CancelKey{PID: 0x80000001, Secret: bytes.Repeat([]byte{byte(size)}, size)}
		built := AppendCancelRequest([]byte("before"), key)[len("before"):]
		var got pgproto3.CancelRequest
		if err := got.Decode(built[4:]); err != nil || got.ProcessID != key.PID || !bytes.Equal(got.SecretKey, key.Secret) {
			t.Errorf("%d: %v, %v", size, got, err)
		}
		s, n, err := ParseStartup(built)
		if err != nil || n != len(built) || s.Kind != CancelRequest || !reflect.DeepEqual(s.CancelKey, key) {
			t.Errorf("%d: %v, %d, %v", size, s, n, err)
		}
	}
}

// everything appends one of each message.
func everything(dst []byte) []byte {
	dst = queryAndAnswer(dst)
	dst = AppendError(dst, failure)
	dst = AppendNotice(dst, failure)
	dst = AppendParameterStatus(dst, "TimeZone", "CET")
	dst = AppendBackendKeyData(dst, 7, secret)
	dst = AppendNegotiateProtocolVersion(dst, Version30, names)
	dst = AppendAuthenticationOk(dst)
	dst = AppendAuthCleartext(dst)
	dst = AppendAuthMD5(dst, [4]byte{1, 2, 3, 4})
	dst = AppendSASL(dst, names)
	dst = AppendSASLContinue(dst, secret)
	dst = AppendSASLFinal(dst, secret)
	dst = AppendCopyFail(dst, "no")
	dst = AppendCommandComplete(dst, "SELECT 1")
	return AppendCancelRequest(dst, CancelKey{PID: 1, Secret: secret})
}

var (
	failure = pgerr.NoSuchDatabase("x").WithDetail("d")
	secret  = []byte("secret")
	names   = []string{"_pq_.a", "SCRAM-SHA-256"}
	columns = []Column{{"a", OIDInt4}}
	values  = []string{"12345", Null}
)

func queryAndAnswer(dst []byte) []byte {
	dst = AppendQuery(dst, "select 1")
	dst = AppendSync(dst)
	dst = AppendRowDescription(dst, columns)
	dst = AppendDataRow(dst, values)
	dst = AppendReadyForQuery(dst, 'I')
	dst = AppendEmptyQueryResponse(dst)
	return AppendTerminate(dst)
}

func TestBuildersAppendAndDoNotAllocate(t *testing.T) {
	alone := everything(nil)
	if got := everything([]byte("before")); string(got) != "before"+string(alone) {
		t.Error("what is built depends on what is before it")
	}
	dst := make([]byte, 0, len(alone))
	if n := testing.AllocsPerRun(100, func() { everything(dst) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestZeroBytesDoNotShiftFields: a zero byte in a text would end it early, and the rest would be read as other fields.
func TestZeroBytesDoNotShiftFields(t *testing.T) {
	e := pgerr.ConsoleError("a\x00Cb\x00").WithDetail("\x00\x00d")
	messages, _, _ := split(AppendError(nil, e))
	got := ParseError([]byte(messages[0].body))
	if got.Message != "aCb" || got.Detail != "d" || got.Code != e.Code {
		t.Errorf("got %+v", got)
	}
	messages, _, _ = split(AppendParameterStatus(nil, "a\x00b", "c\x00"))
	if name, value, ok := ParameterStatus([]byte(messages[0].body)); !ok || string(name) != "ab" || string(value) != "c" {
		t.Errorf("got %q, %q, %v", name, value, ok)
	}
}

func TestErrorRoundTrip(t *testing.T) {
	for _, e := range []*pgerr.Error{pgerr.Canceled(), pgerr.ServerLost(true), failure, pgerr.MalformedOptions("x")} {
		messages, _, _ := split(AppendError(nil, e))
		if got := ParseError([]byte(messages[0].body)); *got != *e {
			t.Errorf("got %+v, want %+v", got, e)
		}
	}
	long := pgerr.ConsoleError(strings.Repeat("x", 100000))
	messages, _, _ := split(AppendError(nil, long))
	if got := ParseError([]byte(messages[0].body)); *got != *long {
		t.Errorf("a long message: %d bytes", len(got.Message))
	}
}
