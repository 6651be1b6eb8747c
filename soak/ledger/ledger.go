// Package ledger remembers what became of transactions, as their clients know it, and compares that with what is in the
// database.
//
// A transaction writes some rows (its parts) under its client's number and a number of its own. If its commit was
// acknowledged all of them must be there, if it was rolled back or its commit never sent none, and if nobody can know
// (the commit was sent and not answered) all or none.
package ledger

import (
	"fmt"
	"slices"
	"sync"
)

// Outcome is what a client knows of a transaction's end.
type Outcome uint8

const (
	// Absent is a transaction that was rolled back, failed, or given up before anything was sent that could have committed it.
	Absent Outcome = iota
	// Unknown is one for which what could have committed it was sent and not answered.
	Unknown
	// Present is one whose commit was acknowledged.
	Present
)

// String is the outcome's name.
func (o Outcome) String() string { return [...]string{"absent", "unknown", "present"}[o] }

// Key names a transaction. Place is the database it was written in.
type Key struct{ Place, Client, N int }

// Rows is how much of a transaction was found: so many parts, which all said there are Of.
type Rows struct{ Count, Of int }

// Book holds the transactions of one run. It is safe for concurrent use.
type Book struct {
	mu      sync.Mutex // guards entries and next
	entries map[Key]entry
	next    map[int]int // by client
}

type entry struct {
	parts   uint16
	outcome Outcome
}

// NewBook returns an empty book.
func NewBook() *Book { return &Book{entries: map[Key]entry{}, next: map[int]int{}} }

// Begin enters a transaction of so many parts. As long as nothing else is said it is Absent.
func (b *Book) Begin(place, client, parts int) Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next[client]++
	k := Key{place, client, b.next[client]}
	b.entries[k] = entry{parts: uint16(parts)}
	return k
}

// Set says what is known of a transaction now. It must be Unknown before anything is sent that may commit it.
func (b *Book) Set(k Key, o Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[k]
	e.outcome = o
	b.entries[k] = e
}

// Count returns how many transactions have each outcome.
func (b *Book) Count() (absent, unknown, present int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var n [Present + 1]int
	for _, e := range b.entries {
		n[e.outcome]++
	}
	return n[Absent], n[Unknown], n[Present]
}

// Compare says what is wrong with what was found, in order, and how many of the unknown ones turned out to be there.
func (b *Book) Compare(found map[Key]Rows) (problems []string, committed int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var wrong []Key
	for k, e := range b.entries {
		if e.check(found[k]) != "" {
			wrong = append(wrong, k)
		} else if e.outcome == Unknown && found[k].Count > 0 {
			committed++
		}
	}
	for k := range found {
		if _, known := b.entries[k]; !known {
			wrong = append(wrong, k)
		}
	}
	slices.SortFunc(wrong, func(x, y Key) int {
		return slices.Compare([]int{x.Place, x.Client, x.N}, []int{y.Place, y.Client, y.N})
	})
	for _, k := range wrong {
		e, known := b.entries[k]
		what := e.check(found[k])
		if !known {
			what = "rows of a transaction that nobody made"
		}
		problems = append(problems, fmt.Sprintf("database %d client %d transaction %d: %s (expected %s of %d parts, found %d)",
			k.Place, k.Client, k.N, what, e.outcome, e.parts, found[k].Count))
	}
	return problems, committed
}

// check says what is wrong with what was found of a transaction, "" if nothing is.
func (e entry) check(r Rows) string {
	whole := r.Count == int(e.parts) && r.Of == int(e.parts)
	switch {
	case r.Count == 0 && e.outcome == Present:
		return "an acknowledged commit is lost"
	case r.Count == 0 || whole && e.outcome != Absent:
		return ""
	case whole:
		return "a transaction that was not committed is there"
	}
	return "a transaction is there in part"
}
