package wire

import (
	"encoding/binary"
	"strings"

	"fencepost/pgerr"
)

// begin appends a header whose length word finish fills in; at is the place of the length word.
func begin(dst []byte, typ byte) (out []byte, at int) {
	return append(dst, typ, 0, 0, 0, 0), len(dst) + 1
}

func finish(dst []byte, at int) []byte {
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at))
	return dst
}

// appendString appends s and a zero byte. Zero bytes inside s are left out: they would end it early and shift all that
// follows.
func appendString(dst []byte, s string) []byte {
	for {
		i := strings.IndexByte(s, 0)
		if i < 0 {
			return append(append(dst, s...), 0)
		}
		dst, s = append(dst, s[:i]...), s[i+1:]
	}
}

// AppendError appends an ErrorResponse with the fields S, V, C and M, and D and H where they are not empty.
func AppendError(dst []byte, e *pgerr.Error) []byte {
	return appendReport(dst, MsgErrorResponse, e.Severity, e)
}

// AppendNotice appends a NoticeResponse with the fields of AppendError, of severity NOTICE whatever e's is.
func AppendNotice(dst []byte, e *pgerr.Error) []byte {
	return appendReport(dst, MsgNoticeResponse, pgerr.SeverityNotice, e)
}

func appendReport(dst []byte, typ byte, severity string, e *pgerr.Error) []byte {
	dst, at := begin(dst, typ)
	dst = appendField(dst, FieldLocalizedSeverity, severity)
	dst = appendField(dst, FieldSeverity, severity)
	dst = appendField(dst, FieldCode, e.Code)
	dst = appendField(dst, FieldMessage, e.Message)
	if e.Detail != "" {
		dst = appendField(dst, FieldDetail, e.Detail)
	}
	if e.Hint != "" {
		dst = appendField(dst, FieldHint, e.Hint)
	}
	return finish(append(dst, 0), at)
}

func appendField(dst []byte, field byte, value string) []byte {
	return appendString(append(dst, field), value)
}

// AppendReadyForQuery appends ReadyForQuery; status is TxIdle, TxOpen or TxFailed.
func AppendReadyForQuery(dst []byte, status byte) []byte {
	return append(dst, MsgReadyForQuery, 0, 0, 0, 5, status)
}

// AppendParameterStatus appends ParameterStatus.
func AppendParameterStatus(dst []byte, name, value string) []byte {
	dst, at := begin(dst, MsgParameterStatus)
	return finish(appendString(appendString(dst, name), value), at)
}

// AppendBackendKeyData appends BackendKeyData. The secret has 4 bytes in protocol 3.0, 4 to 256 in 3.2.
func AppendBackendKeyData(dst []byte, pid uint32, secret []byte) []byte {
	dst, at := begin(dst, MsgBackendKeyData)
	dst = binary.BigEndian.AppendUint32(dst, pid)
	return finish(append(dst, secret...), at)
}

// AppendNegotiateProtocolVersion appends NegotiateProtocolVersion: version is the one we will speak, as a full number
// (Version30, Version32), unknown the protocol extensions asked for that we do not know.
func AppendNegotiateProtocolVersion(dst []byte, version uint32, unknown []string) []byte {
	dst, at := begin(dst, MsgNegotiateProtocolVersion)
	dst = binary.BigEndian.AppendUint32(dst, version)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(unknown)))
	for _, name := range unknown {
		dst = appendString(dst, name)
	}
	return finish(dst, at)
}

// Authentication requests (the first word of an Authentication message's body).
const (
	AuthOk           uint32 = 0
	AuthCleartext    uint32 = 3
	AuthMD5          uint32 = 5
	AuthSASL         uint32 = 10
	AuthSASLContinue uint32 = 11
	AuthSASLFinal    uint32 = 12
)

func beginAuth(dst []byte, request uint32) (out []byte, at int) {
	dst, at = begin(dst, MsgAuthentication)
	return binary.BigEndian.AppendUint32(dst, request), at
}

// AppendAuthenticationOk appends AuthenticationOk.
func AppendAuthenticationOk(dst []byte) []byte {
	dst, at := beginAuth(dst, AuthOk)
	return finish(dst, at)
}

// AppendAuthCleartext appends AuthenticationCleartextPassword.
func AppendAuthCleartext(dst []byte) []byte {
	dst, at := beginAuth(dst, AuthCleartext)
	return finish(dst, at)
}

// AppendAuthMD5 appends AuthenticationMD5Password.
func AppendAuthMD5(dst []byte, salt [4]byte) []byte {
	dst, at := beginAuth(dst, AuthMD5)
	return finish(append(dst, salt[:]...), at)
}

// AppendSASL appends AuthenticationSASL, which offers mechanisms in the order of our preference.
func AppendSASL(dst []byte, mechanisms []string) []byte {
	dst, at := beginAuth(dst, AuthSASL)
	for _, m := range mechanisms {
		dst = appendString(dst, m)
	}
	return finish(append(dst, 0), at)
}

// AppendSASLContinue appends AuthenticationSASLContinue.
func AppendSASLContinue(dst, data []byte) []byte {
	dst, at := beginAuth(dst, AuthSASLContinue)
	return finish(append(dst, data...), at)
}

// AppendSASLFinal appends AuthenticationSASLFinal.
func AppendSASLFinal(dst, data []byte) []byte {
	dst, at := beginAuth(dst, AuthSASLFinal)
	return finish(append(dst, data...), at)
}

// AppendQuery appends Query.
func AppendQuery(dst []byte, sql string) []byte {
	dst, at := begin(dst, MsgQuery)
	return finish(appendString(dst, sql), at)
}

// AppendTerminate appends Terminate.
func AppendTerminate(dst []byte) []byte { return append(dst, MsgTerminate, 0, 0, 0, 4) }

// AppendSync appends Sync.
func AppendSync(dst []byte) []byte { return append(dst, MsgSync, 0, 0, 0, 4) }

// AppendCopyFail appends CopyFail.
func AppendCopyFail(dst []byte, reason string) []byte {
	dst, at := begin(dst, MsgCopyFail)
	return finish(appendString(dst, reason), at)
}

// AppendCancelRequest appends a CancelRequest packet, which has no type byte.
func AppendCancelRequest(dst []byte, key CancelKey) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(cancelHead+len(key.Secret)))
	dst = binary.BigEndian.AppendUint32(dst, codeCancel)
	dst = binary.BigEndian.AppendUint32(dst, key.PID)
	return append(dst, key.Secret...)
}
