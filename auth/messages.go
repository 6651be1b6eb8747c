package auth

import "encoding/binary"

func appendRequest(dst []byte, code uint32, body ...string) []byte {
	n := 8
	for _, b := range body {
		n += len(b)
	}
	dst = append(dst, 'R')
	dst = binary.BigEndian.AppendUint32(dst, uint32(n))
	dst = binary.BigEndian.AppendUint32(dst, code)
	for _, b := range body {
		dst = append(dst, b...)
	}
	return dst
}

func appendCleartext(dst []byte) []byte { return appendRequest(dst, 3) }

func appendMD5(dst []byte, salt [4]byte) []byte { return appendRequest(dst, 5, string(salt[:])) }

func appendSASL(dst []byte, mechanism string) []byte {
	return appendRequest(dst, 10, mechanism, "\x00\x00")
}

func appendSASLContinue(dst []byte, data string) []byte { return appendRequest(dst, 11, data) }

func appendSASLFinal(dst []byte, data string) []byte { return appendRequest(dst, 12, data) }
