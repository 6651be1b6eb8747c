package fleet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"fencepost/soak/raw"
)

// Cancels says how many cancels are sent in RandomCancels.
type Cancels struct {
	Count    int    // cancels of statements that run; at least that many
	Sessions int    // at the same time; 0: 12
	Seed     uint64 // of every choice
	Failover bool   // there is one meanwhile: what ends statements and sessions because of it is no error
}

// CancelResult is what came of them.
type CancelResult struct {
	Sent      int             // of statements that had said that they run
	Took      []time.Duration // from the request to the error, of those that took effect, sorted
	TookFar   []time.Duration // those of them that were sent to another member
	Missed    int             // without effect
	Foreign   int             // statements nobody cancelled that ended with 57014
	Untouched int             // statements nobody cancelled that ended as they should
	Far       int             // of Sent: to another member than the session's
	Nonsense  int             // cancels with a key nobody has
	Broken    int             // statements and logins that a failover ended
	Errors    []string        // anything else
}

// String is a line of figures.
func (r CancelResult) String() string {
	broken := ""
	if r.Broken > 0 {
		broken = fmt.Sprintf("%d ended by a failover; ", r.Broken)
	}
	return fmt.Sprintf("%d cancels, %d of them sent to another member, took effect after p50 %s p99 %s (at another member p50 %s p99 %s), %d without effect; %d statements were left alone, %d hit by a foreign cancel; %d cancels of nobody; %s%d errors %v",
		r.Sent, r.Far, quantile(r.Took, 0.5), quantile(r.Took, 0.99), quantile(r.TookFar, 0.5), quantile(r.TookFar, 0.99), r.Missed, r.Untouched, r.Foreign, r.Nonsense, broken, len(r.Errors), r.Errors[:min(len(r.Errors), 3)])
}

// add counts what came of others in.
func (r *CancelResult) add(o CancelResult) {
	r.Sent, r.Missed, r.Foreign, r.Untouched = r.Sent+o.Sent, r.Missed+o.Missed, r.Foreign+o.Foreign, r.Untouched+o.Untouched
	r.Far, r.Nonsense, r.Broken = r.Far+o.Far, r.Nonsense+o.Nonsense, r.Broken+o.Broken
	r.Took, r.TookFar, r.Errors = append(r.Took, o.Took...), append(r.TookFar, o.TookFar...), append(r.Errors, o.Errors...)
	slices.Sort(r.Took)
	slices.Sort(r.TookFar)
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(float64(len(sorted))*q), len(sorted)-1)].Round(100 * time.Microsecond)
}

const (
	queryCanceled = "57014"

	cancelled = 20 * time.Second      // how long a statement would run that is cancelled
	spared    = 15 * time.Millisecond // one that is not
	answers   = 15 * time.Second
)

// RandomCancels has sessions on all members run statements, of which some are cancelled by way of a member picked at random.
func (l *Lab) RandomCancels(ctx context.Context, c Cancels) (CancelResult, error) {
	if c.Sessions == 0 {
		c.Sessions = 12
	}
	var r CancelResult
	var mu sync.Mutex // guards r
	var all sync.WaitGroup
	for i := range c.Sessions {
		all.Go(func() {
			p := &canceller{lab: l, member: l.Members[i%len(l.Members)], r: &r, mu: &mu, dice: rand.New(rand.NewPCG(c.Seed, uint64(i))),
				protocol: []string{"3.0", "3.2"}[i/len(l.Members)%2], database: []string{"transaction", "session"}[i%2]}
			err := p.run(ctx, c.Count)
			for c.Failover && broken(err) && ctx.Err() == nil {
				mu.Lock()
				r.Broken++
				mu.Unlock()
				err = p.run(ctx, c.Count)
			}
			if err != nil {
				mu.Lock()
				r.Errors = append(r.Errors, err.Error())
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(r.Took)
	slices.Sort(r.TookFar)
	return r, ctx.Err()
}

// stateError is an error of the server's, or the member's.
type stateError struct{ when, code, text string }

func (e *stateError) Error() string { return strings.TrimSpace(e.when + ": " + e.code + " " + e.text) }

// broken reports whether an error is what a failover does to a session: it, or its statement, has ended, or a login finds no
// primary.
func broken(err error) bool {
	var code string
	if e := new(stateError); errors.As(err, &e) {
		code = e.code
	} else if e := new(pgconn.PgError); errors.As(err, &e) {
		code = e.Code
	} else {
		return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	}
	return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P")
}

// canceller is a session, one after the other.
type canceller struct {
	lab                *Lab
	member             *Member
	database, protocol string
	dice               *rand.Rand
	conn               *raw.Conn
	n                  int

	mu *sync.Mutex
	r  *CancelResult
}

func (p *canceller) run(ctx context.Context, count int) error {
	meter := new(raw.Meter)
	conn, err := raw.Open(ctx, raw.Login{Addr: p.member.Addr, User: User, Database: p.database, Protocol: p.protocol}, meter)
	if err != nil {
		return fmt.Errorf("login at %s: %w", p.member.Name, err)
	}
	defer conn.Close()
	p.conn = conn
	for ctx.Err() == nil {
		p.mu.Lock()
		done := p.r.Sent >= count
		p.mu.Unlock()
		if done {
			return nil
		}
		if p.dice.IntN(3) == 0 {
			err = p.spare(ctx)
		} else {
			err = p.cancel(ctx)
		}
		if err != nil {
			return fmt.Errorf("session at %s, protocol %s: %w", p.member.Name, p.protocol, err)
		}
	}
	return nil
}

// begin runs a statement that says that it has begun.
func (p *canceller) begin(runs time.Duration) error {
	p.n++
	sql := fmt.Sprintf("DO $$BEGIN RAISE NOTICE 'begun'; PERFORM pg_sleep(%f); END$$", runs.Seconds())
	until := time.Now().Add(answers)
	if err := p.conn.Send(until, &pgproto3.Query{String: sql}); err != nil {
		return err
	}
	for {
		msg, err := p.conn.Receive(until)
		if err != nil {
			return err
		}
		switch m := msg.(type) {
		case *pgproto3.NoticeResponse:
			return nil
		case *pgproto3.ErrorResponse:
			return &stateError{"before it began", m.Code, m.Message}
		}
	}
}

// ends reads up to the end of the statement, and returns its SQLSTATE.
func (p *canceller) ends(limit time.Duration) (code string, err error) {
	until := time.Now().Add(limit)
	for {
		msg, err := p.conn.Receive(until)
		if err != nil {
			return code, err
		}
		switch m := msg.(type) {
		case *pgproto3.ErrorResponse:
			code = m.Code
		case *pgproto3.ReadyForQuery:
			return code, nil
		}
	}
}

// spare runs a statement that nobody cancels, sometimes beside a cancel with a key nobody has.
func (p *canceller) spare(ctx context.Context) error {
	if err := p.begin(spared); err != nil {
		return err
	}
	nonsense := p.dice.IntN(4) == 0
	if nonsense {
		secret := slices.Clone(p.conn.Secret)
		secret[p.dice.IntN(len(secret))] ^= 1 << (2 + p.dice.IntN(6)) // the other bits may be a count
		pid := p.conn.PID
		if p.dice.IntN(2) == 0 { // of a member there is not
			pid |= 0x3f00 // of its number
		}
		if err := cancelAt(ctx, p.any().Addr, pid, secret); err != nil {
			return fmt.Errorf("a cancel with an unknown key: %w", err)
		}
	}
	code, err := p.ends(answers)
	p.mu.Lock()
	defer p.mu.Unlock()
	if nonsense {
		p.r.Nonsense++
	}
	switch {
	case err != nil:
		return err
	case code == "":
		p.r.Untouched++
	case code == queryCanceled:
		p.r.Foreign++
	default:
		return &stateError{"a statement that nobody cancelled", code, ""}
	}
	return nil
}

func (p *canceller) any() *Member { return p.lab.Members[p.dice.IntN(len(p.lab.Members))] }

// cancel runs a statement and cancels it.
func (p *canceller) cancel(ctx context.Context) error {
	if err := p.begin(cancelled); err != nil {
		return err
	}
	by := p.any()
	asked := time.Now()
	closed := make(chan error, 1)
	go func() { closed <- cancelAt(ctx, by.Addr, p.conn.PID, p.conn.Secret) }() // ends with it, which is bounded
	code, err := p.ends(cancelled + answers)
	took := time.Since(asked)
	if cerr := <-closed; cerr != nil {
		return fmt.Errorf("a cancel at %s: %w", by.Name, cerr)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		return err
	}
	if code == "" || code == queryCanceled {
		p.r.Sent++
		if by != p.member {
			p.r.Far++
		}
	}
	switch {
	case code == queryCanceled:
		p.r.Took = append(p.r.Took, took)
		if by != p.member {
			p.r.TookFar = append(p.r.TookFar, took)
		}
	case code == "":
		p.r.Missed++
	default:
		return &stateError{"a cancelled statement", code, ""}
	}
	return nil
}

// CancelKey is a session's.
type CancelKey struct {
	PID    uint32
	Secret []byte
}

// Cancel sends a cancel request to the member and waits until it closes the connection.
func (m *Member) Cancel(ctx context.Context, k CancelKey) error {
	return cancelAt(ctx, m.Addr, k.PID, k.Secret)
}

// cancelAt sends a CancelRequest and waits for the close. Anything but that is an error: nobody answers one.
func cancelAt(ctx context.Context, addr string, pid uint32, secret []byte) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp4", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(answers)); err != nil {
		return err
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(12+len(secret)))
	b = binary.BigEndian.AppendUint32(b, 80877102) // the code of a CancelRequest
	b = append(binary.BigEndian.AppendUint32(b, pid), secret...)
	if _, err := c.Write(b); err != nil {
		return err
	}
	rest, err := io.ReadAll(c)
	if err == nil && len(rest) > 0 {
		err = errors.New("it was answered")
	}
	return err
}
