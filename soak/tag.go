package soak

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// tag marks a question and comes back in its answer: <c17.3.42> is the 42nd question of the 3rd connection of client 17.
type tag struct{ client, conn, n int }

func (t tag) String() string { return fmt.Sprintf("<c%d.%d.%d>", t.client, t.conn, t.n) }

// name is the connection's part of a tag, used as its application_name.
func (t tag) name() string { return fmt.Sprintf("c%d.%d", t.client, t.conn) }

var tagPattern = regexp.MustCompile(`<c(\d+)\.(\d+)\.(\d+)>`)

// tags finds all tags in a text.
func tags(text string) []tag {
	if !strings.Contains(text, "<c") {
		return nil
	}
	var all []tag
	for _, m := range tagPattern.FindAllStringSubmatch(text, -1) {
		var t tag
		t.client, _ = strconv.Atoi(m[1])
		t.conn, _ = strconv.Atoi(m[2])
		t.n, _ = strconv.Atoi(m[3])
		all = append(all, t)
	}
	return all
}

// strange classifies a text that came to the connection of own and is not what was expected: a tag of somebody else's
// makes it a foreign answer, one of an earlier question of the connection's own a stale one.
func strange(own tag, text string) kind {
	found := wrongAnswer
	for _, t := range tags(text) {
		switch {
		case t.client != own.client || t.conn != own.conn:
			return foreignAnswer
		case t.n < own.n:
			found = staleAnswer
		}
	}
	return found
}
