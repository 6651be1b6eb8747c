package auth

import (
	"bytes"
	"encoding/binary"

	"fencepost/pgerr"
	"fencepost/wire"

	"github.com/xdg-go/scram"
)

// initialResponse splits a SASLInitialResponse (protocol-message-formats): the
// mechanism's name, the length of the data as int32, the data. Length -1 means
// that there is no data. The claimed length is compared with what is there,
// never trusted.
func initialResponse(body []byte) (name, data []byte, hasData, ok bool) {
	i := bytes.IndexByte(body, 0)
	if i < 0 || len(body)-i-1 < 4 {
		return nil, nil, false, false
	}
	name, data = body[:i], body[i+1+4:]
	switch claimed := int32(binary.BigEndian.Uint32(body[i+1:])); {
	case claimed == -1:
		return name, nil, false, len(data) == 0
	case claimed < 0 || int64(claimed) != int64(len(data)):
		return nil, nil, false, false
	}
	return name, data, true, true
}

func (e *Exchange) stepSASLInitial(dst, body []byte) ([]byte, *pgerr.Error) {
	name, data, hasData, ok := initialResponse(body)
	if !ok {
		return dst, pgerr.ProtocolViolation("malformed SASLInitialResponse message")
	}
	if string(name) != mechanism {
		return dst, pgerr.ProtocolViolation("client selected an invalid SASL authentication mechanism")
	}
	if !hasData {
		// The mechanism allows it: the server asks with an empty challenge.
		e.state = saslData
		return wire.AppendSASLContinue(dst, nil), nil
	}
	return e.stepSCRAMFirst(dst, data)
}

func (e *Exchange) stepSCRAMFirst(dst, data []byte) ([]byte, *pgerr.Error) {
	e.secret.Derive(SCRAM) // nothing to do where the caller made it Ready
	e.scram = e.secret.verifier.Load().server.NewConversation()
	challenge, _, fault := e.scramStep(data)
	if fault != nil {
		return dst, fault
	}
	if e.scram.AuthzID() != "" {
		return dst, pgerr.AuthorizationIdentity()
	}
	e.state = saslFinal
	return wire.AppendSASLContinue(dst, []byte(challenge)), nil
}

func (e *Exchange) stepSCRAMFinal(dst, data []byte) ([]byte, *pgerr.Error) {
	signature, refused, fault := e.scramStep(data)
	if fault != nil {
		return dst, fault
	}
	if refused || !e.scram.Valid() || e.secret.mock {
		return dst, e.refused()
	}
	e.succeed()
	return wire.AppendSASLFinal(dst, []byte(signature)), nil
}

// scramStep hands one SCRAM message to the library. refused is the wrong
// proof, the one outcome that depends on the secret; all else the library
// finds fault with is a malformed message.
func (e *Exchange) scramStep(data []byte) (answer string, refused bool, fault *pgerr.Error) {
	if bytes.IndexByte(data, 0) >= 0 {
		return "", false, pgerr.ProtocolViolation("malformed SCRAM message")
	}
	answer, err := e.scram.Step(string(data))
	switch {
	case err == nil:
		return answer, false, nil
	case answer == scram.ErrInvalidProof:
		return "", true, nil
	case answer == scram.ErrChannelBindingNotSupported:
		return "", false, pgerr.ProtocolViolation("client requires SCRAM channel binding, but it is not supported")
	}
	return "", false, pgerr.ProtocolViolation("malformed SCRAM message")
}
