package ledger

import (
	"slices"
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	whole, half, none := Rows{2, 2}, Rows{1, 2}, Rows{}
	for _, c := range []struct {
		outcome Outcome
		found   Rows
		problem string
	}{
		{Present, whole, ""},
		{Present, none, "an acknowledged commit is lost"},
		{Present, half, "in part"},
		{Absent, none, ""},
		{Absent, whole, "was not committed"},
		{Absent, half, "in part"},
		{Unknown, whole, ""},
		{Unknown, none, ""},
		{Unknown, half, "in part"},
		{Present, Rows{2, 3}, "in part"},
		{Present, Rows{3, 2}, "in part"},
	} {
		b := NewBook()
		k := b.Begin(1, 7, 2)
		b.Set(k, c.outcome)
		found := map[Key]Rows{}
		if c.found != none {
			found[k] = c.found
		}
		problems, committed := b.Compare(found)
		if c.problem == "" && len(problems) > 0 || c.problem != "" && (len(problems) != 1 || !strings.Contains(problems[0], c.problem)) {
			t.Errorf("%s, found %v: %q, want %q", c.outcome, c.found, problems, c.problem)
		}
		if want := c.outcome == Unknown && c.found == whole; (committed == 1) != want {
			t.Errorf("%s, found %v: %d of the unknown ones were committed", c.outcome, c.found, committed)
		}
	}
}

func TestStrangersAndOrder(t *testing.T) {
	b := NewBook()
	for range 2 {
		b.Set(b.Begin(0, 2, 1), Present)
	}
	b.Set(b.Begin(0, 1, 1), Present)
	problems, _ := b.Compare(map[Key]Rows{{1, 9, 9}: {1, 1}})
	var ends []string
	for _, p := range problems {
		ends = append(ends, p[:strings.Index(p, ":")])
	}
	want := []string{"database 0 client 1 transaction 1", "database 0 client 2 transaction 1", "database 0 client 2 transaction 2",
		"database 1 client 9 transaction 9"}
	if !slices.Equal(ends, want) {
		t.Errorf("problems of %q, want %q", ends, want)
	}
	if !strings.Contains(problems[3], "nobody made") {
		t.Error(problems[3])
	}
}

func TestBeginIsAbsentAndNumbersAreUnique(t *testing.T) {
	b := NewBook()
	first, second := b.Begin(0, 1, 1), b.Begin(1, 1, 1)
	if first.N == second.N {
		t.Errorf("the same number twice: %v, %v", first, second)
	}
	if a, u, p := b.Count(); a != 2 || u+p != 0 {
		t.Errorf("after Begin: absent %d, unknown %d, present %d", a, u, p)
	}
}
