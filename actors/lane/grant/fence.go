package grant

import "time"

// Next is what becomes of a connection whose fence was answered, and of the checkout it was fenced for.
type Next uint8

// What can come next.
const (
	PutBack  Next = iota // the connection goes back to its pool, the checkout, if any, back to a queue
	Close                // the connection is closed, the checkout keeps its turn
	AskAgain             // another fence, for the same checkout
	Lease                // the checkout gets it
)

var nextNames = [...]string{"put back", "close", "ask again", "lease"}

func (n Next) String() string { return nextNames[n] }

// Fenced is the situation in which the answer to a fence comes.
type Fenced struct {
	Worth    Worth // of the answer
	Elected  bool  // the connection leads to the elected host of the shard
	Waiting  bool  // the checkout it was asked for still waits for it
	Retiring bool  // the connection is to be closed when it comes to rest
	Paused   bool  // grants are held back
}

// After says what comes next. A connection to a host that is not elected goes back even if it said no: it may serve reads.
func After(f Fenced) Next {
	switch {
	case !f.Elected, !f.Waiting && f.Retiring:
		return PutBack
	case f.Worth == Nothing:
		return Close
	case !f.Waiting, f.Paused:
		return PutBack
	case f.Worth == Ask:
		return AskAgain
	}
	return Lease
}

// Patience is how long a checkout stays with a connection that does not answer its fence before it may take another one;
// Limit how long such a connection is kept where the checkout has no deadline.
const (
	Patience = time.Second
	Limit    = 30 * time.Second
)

// Overdue is what becomes of a fence that is not answered.
type Overdue uint8

// What becomes of it.
const (
	Wait    Overdue = iota // there is time
	Release                // the checkout may take another connection, this one goes on being asked
	GiveUp                 // the deadline is over: the connection is closed, the checkout refused
)

var overdueNames = [...]string{"wait", "release", "give up"}

func (o Overdue) String() string { return overdueNames[o] }

// Unanswered says what becomes of a fence that was begun at began and has no answer yet. deadline is that of the checkout it was
// begun for (began + Limit if that has none); waiting is whether it still waits for this connection.
func Unanswered(now, began, deadline time.Time, waiting bool) Overdue {
	switch {
	case !now.Before(deadline):
		return GiveUp
	case waiting && now.Sub(began) >= Patience:
		return Release
	}
	return Wait
}
