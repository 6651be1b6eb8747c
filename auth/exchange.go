package auth

import (
	"bytes"
	"crypto/rand"
	"errors"

	"fencepost/pgerr"
	"fencepost/wire"

	"github.com/xdg-go/scram"
)

// MaxMessage is the longest body of a message of type 'p' that Step accepts, in
// bytes: PostgreSQL's PG_MAX_AUTH_TOKEN_LENGTH. Callers refuse longer ones by
// their header, before they keep them.
const MaxMessage = 65535

type state uint8

const (
	created   state = iota
	password        // a cleartext password is due
	md5Answer       // the answer to an MD5 challenge is due
	saslFirst       // SASLInitialResponse is due
	saslData        // the client's first SCRAM message is due, in a SASLResponse
	saslFinal       // the client's final SCRAM message is due
	succeeded
	failed
)

// Exchange is the server side of one client's login. It belongs to one
// goroutine at a time, keeps nothing of the bodies it is handed, and is dropped
// when the login is over. The package documentation has its states.
type Exchange struct {
	state  state
	method Method // as spoken: MD5 becomes SCRAM where the secret is a verifier
	user   string
	secret *Secret
	salt   [4]byte
	scram  *scram.ServerConversation
	cause  error // of a refusal, for the log
	err    *pgerr.Error
}

// Causes of a LoginFailed, for logs and errors.Is. The client learns none of them.
var (
	ErrUnknownUser   = errors.New("no such user")
	ErrNoPassword    = errors.New("user has no password")
	ErrWrongSecret   = errors.New("an md5 secret cannot be used with scram-sha-256")
	ErrEmptyPassword = errors.New("empty password")
	ErrWrongPassword = errors.New("wrong password")
	ErrNoMethod      = errors.New("no authentication method")
)

// NewExchange is Profile.NewExchange of the zero Profile.
func NewExchange(m Method, user string, s *Secret) *Exchange {
	return Profile{}.NewExchange(m, user, s)
}

// NewExchange returns an Exchange by method m for the user named in the startup
// message. Pass nil for s if there is no such user. A secret that m cannot use
// is replaced by the profile's mock, and the client learns of it as of a wrong
// password.
//
// Where s is not Ready for m, a Step does the slow work of Derive.
func (p Profile) NewExchange(m Method, user string, s *Secret) *Exchange {
	e := &Exchange{method: m, user: user, secret: s, cause: ErrWrongPassword}
	if m == Trust && s.Usable(m) {
		return e
	}
	// Made for known users too, so that it costs them the same.
	mock := p.Mock(user)
	if !s.Usable(m) {
		e.cause, e.secret = s.unusable(m), mock
	}
	if m == MD5 && e.secret.kind == kindSCRAM {
		e.method = SCRAM
	}
	return e
}

// unusable says why Usable said no.
func (s *Secret) unusable(m Method) error {
	switch {
	case m < Trust || m > SCRAM:
		return ErrNoMethod
	case !s.isKnown() || s.mock:
		return ErrUnknownUser
	case s.kind == kindNone:
		return ErrNoPassword
	}
	return ErrWrongSecret
}

// Start appends the first Authentication request to dst. For Trust it appends
// nothing and the Exchange is over: ask Done and Err. A second call appends
// nothing.
func (e *Exchange) Start(dst []byte) []byte {
	if e.state != created {
		return dst
	}
	switch e.method {
	case Password:
		e.state = password
		return wire.AppendAuthCleartext(dst)
	case MD5:
		_, _ = rand.Read(e.salt[:]) // never fails (crypto/rand)
		e.state = md5Answer
		return wire.AppendAuthMD5(dst, e.salt)
	case SCRAM:
		e.state = saslFirst
		return wire.AppendSASL(dst, []string{mechanism})
	case Trust:
		if !e.secret.mock {
			e.state = succeeded
			return dst
		}
	}
	_ = e.fail(e.refused())
	return dst
}

// Done reports whether the client has proved who it is. Only then may the
// caller send AuthenticationOk.
func (e *Exchange) Done() bool { return e.state == succeeded }

// Err returns why the login failed, nil while it goes on and when it succeeded.
func (e *Exchange) Err() error {
	if e.err == nil {
		return nil
	}
	return e.err
}

// Slow reports whether the next Step costs a PBKDF2 and so belongs on a
// goroutine. It may be asked between Start and the last Step.
func (e *Exchange) Slow() bool {
	switch e.state {
	case password:
		return e.secret.Slow(Password)
	case saslFirst, saslData:
		return !e.secret.Ready(SCRAM)
	}
	return false
}

// Step takes the body of the next message of type 'p' and appends the answer
// to dst: the next Authentication request, or nothing. done means that the
// client has proved who it is; the caller sends AuthenticationOk.
//
// err is a *pgerr.Error that ends the session, and nothing is appended then:
// LoginFailed for every cause but a malformed or unexpected message, which is
// a ProtocolViolation and says nothing of the user either.
//
// Step does not block, but see Slow. body is not kept.
func (e *Exchange) Step(dst, body []byte) (out []byte, done bool, err error) {
	if len(body) > MaxMessage {
		return dst, false, e.fail(pgerr.ProtocolViolation("authentication message too long"))
	}
	var fault *pgerr.Error
	out = dst
	switch e.state {
	case password:
		fault = e.stepPassword(body)
	case md5Answer:
		fault = e.stepMD5(body)
	case saslFirst:
		out, fault = e.stepSASLInitial(dst, body)
	case saslData:
		out, fault = e.stepSCRAMFirst(dst, body)
	case saslFinal:
		out, fault = e.stepSCRAMFinal(dst, body)
	case failed:
		fault = e.err
	default:
		fault = pgerr.ProtocolViolation("unexpected authentication message")
	}
	if fault != nil {
		return dst, false, e.fail(fault)
	}
	return out, e.Done(), nil
}

// fail ends the Exchange and lets go of the secret.
func (e *Exchange) fail(err *pgerr.Error) error {
	e.state, e.err = failed, err
	e.secret, e.scram = nil, nil
	return err
}

// refused is the one answer to whoever is not let in.
func (e *Exchange) refused() *pgerr.Error { return pgerr.LoginFailed(e.user).WithCause(e.cause) }

func (e *Exchange) succeed() {
	e.state = succeeded
	e.secret, e.scram = nil, nil
}

func (e *Exchange) stepPassword(body []byte) *pgerr.Error {
	answer, fault := passwordMessage(body)
	if fault != nil {
		return fault
	}
	// The empty password is refused after the work of any other.
	ok := e.secret.matches(answer)
	if answer == "" && !e.secret.mock {
		e.cause = ErrEmptyPassword
	}
	if !ok || answer == "" {
		return e.refused()
	}
	e.succeed()
	return nil
}

func (e *Exchange) stepMD5(body []byte) *pgerr.Error {
	answer, fault := passwordMessage(body)
	if fault != nil {
		return fault
	}
	if !e.secret.matchesMD5(answer, e.salt) {
		return e.refused()
	}
	e.succeed()
	return nil
}

// passwordMessage reads a PasswordMessage: one string, NUL at its end and
// nowhere else.
func passwordMessage(body []byte) (string, *pgerr.Error) {
	if i := bytes.IndexByte(body, 0); i < 0 || i != len(body)-1 {
		return "", pgerr.ProtocolViolation("invalid password packet size")
	}
	return string(body[:len(body)-1]), nil
}
