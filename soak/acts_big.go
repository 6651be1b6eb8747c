package soak

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Sizes of what is big, and how often: not more than so much at once on one machine.
const (
	bigRowBytes   = 10 << 20
	bigParamBytes = 4 << 20
	bigResultRows = 20000
	bigEvery      = 700 * time.Millisecond
	slowRate      = 4 << 20 // bytes a second that a slow reader takes
)

// bigTurn reports whether something big may be done now; else something small is done in its place.
func (r *run) bigTurn() bool {
	now := time.Now().UnixNano()
	last := r.lastBig.Load()
	return now-last >= int64(bigEvery) && r.lastBig.CompareAndSwap(last, now)
}

// slowly has the session take its answer slowly, sometimes: not at all for a while, or a bit at a time.
func (s *session) slowly() (normal func()) {
	switch s.rng.IntN(4) {
	case 0:
		s.wait(time.Duration(500+s.rng.IntN(2500)) * time.Millisecond)
	case 1:
		s.conn.Pace(slowRate)
		return func() { s.conn.Pace(0) }
	}
	return func() {}
}

// bigRow reads one row of megabytes.
func bigRow(s *session) error {
	if !s.r.bigTurn() {
		return simpleQuery(s)
	}
	t := s.question()
	n := (1 + s.rng.IntN(bigRowBytes)) / len(t)
	whole := 0
	return s.stream(func(m *pgproto3.DataRow) string {
		if string(m.Values[0]) != t {
			return "the first column is " + short(string(m.Values[0]), 200)
		}
		if v := m.Values[1]; len(v) != n*len(t) || strings.Count(string(v), t) != n {
			return fmt.Sprintf("the second column has %d bytes (%s), wanted %d times %s", len(v), short(string(v), 200), n, t)
		}
		whole++
		return ""
	}, func() string { return fmt.Sprintf("C[SELECT %d]", whole) }, "C[SELECT 1]",
		query(fmt.Sprintf("SELECT %s, repeat(%s, %d)", literal(t), literal(t), n)))
}

// bigResult reads many rows.
func bigResult(s *session) error {
	if !s.r.bigTurn() {
		return extendedQuery(s)
	}
	t := s.question()
	n := 1 + s.rng.IntN(bigResultRows)
	i := 0
	return s.stream(func(m *pgproto3.DataRow) string {
		i++
		if want := t + " " + strconv.Itoa(i); string(m.Values[0]) != want {
			return fmt.Sprintf("row %d is %s, wanted %s", i, short(string(m.Values[0]), 200), want)
		}
		return ""
	}, func() string { return fmt.Sprintf("C[SELECT %d]", i) }, fmt.Sprintf("C[SELECT %d]", n),
		query(fmt.Sprintf("SELECT %s || i FROM generate_series(1, %d) i", literal(t+" "), n)))
}

// stream asks a query and checks each row as it comes instead of keeping the answer.
func (s *session) stream(check func(*pgproto3.DataRow) string, count func() string, wanted string, q *pgproto3.Query) error {
	if err := s.send(q); err != nil {
		return err
	}
	normal := s.slowly()
	defer normal()
	bad := ""
	until := func(m pgproto3.BackendMessage) bool {
		if d, ok := m.(*pgproto3.DataRow); ok && bad == "" {
			bad = check(d)
		}
		switch m.(type) {
		case *pgproto3.DataRow, *pgproto3.RowDescription:
			return true // the reply is thrown away row by row
		}
		return false
	}
	for {
		reply, err := s.conn.Collect(time.Now().Add(patience), 1, until)
		switch {
		case bad != "":
			return s.violate(strange(s.id, bad), "%s", bad)
		case err != nil:
			return err
		}
		got := &reply.Segments[0]
		if !got.Done {
			continue
		}
		if s.conn.Status == 'I' {
			s.own.busy.Store(false)
		}
		s.history[(s.asked-1)%len(s.history)].got = got.Text
		d, verr := s.compare(got, wanted+" Z[I]", false)
		if verr == nil && d == nil && count() != wanted {
			return s.violate(wrongAnswer, "rows for %s, wanted %s", count(), wanted)
		}
		if d != nil {
			return d
		}
		return verr
	}
}

// bigParameter sends megabytes in one message and has them measured.
func bigParameter(s *session) error {
	if !s.r.bigTurn() {
		return extendedQuery(s)
	}
	t := s.question()
	v := strings.Repeat(t, (1+s.rng.IntN(bigParamBytes))/len(t)+1)
	sum := md5.Sum([]byte(v))
	return s.ask([]string{"1 2 " + data(t, strconv.Itoa(len(v)), hex.EncodeToString(sum[:])) + " C[SELECT 1] Z[I]"},
		append(extended("SELECT $1::text, length($2::text), md5($2::text)", t, v), syncMessage())...)
}
