package picture

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

const second = time.Second

func draw(t *testing.T, rows ...*Row) string {
	t.Helper()
	var b strings.Builder
	if err := Draw(&b, "a <heading>", rows); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return b.String()
		} else if err != nil {
			t.Fatalf("%v:\n%s", err, b.String())
		}
	}
}

func TestDraw(t *testing.T) {
	r := &Row{Title: "fencepost & others", Clients: 2, Zero: 3 * second, End: 9 * second, Tries: []Try{
		{0, 2 * second, 2*second + time.Millisecond, Acked}, {1, 3 * second, 4 * second, Failed}, {0, 5 * second, 5*second + 1, Wrong}},
		Marks: []Mark{{3 * second, "n0 stopped"}, {3*second + 1, "n1 promoted"}}, NoWriter: []Span{{3 * second, 4 * second}}}
	svg := draw(t, r)
	for _, want := range []string{"a &lt;heading&gt;", "fencepost &amp; others", colors[Acked], colors[Failed], colors[Wrong], waiting, "n0 stopped", `fill="#f3e3c3"`} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture lacks %s", want)
		}
	}
	if strings.Contains(svg, colors[Cut]) {
		t.Error("there is something cut in it")
	}
	if lone := draw(t, &Row{Title: "x", End: second}); strings.Contains(lone, colors[Failed]+`" stroke-width`) {
		t.Error("an empty row shows errors")
	}
}

// Texts of marks that are close to each other are below each other.
func TestLanes(t *testing.T) {
	c := &canvas{perSecond: 100, length: 10 * second}
	lanes, used := c.lanes(&Row{Marks: []Mark{{0, "first"}, {time.Millisecond, "second"}, {5 * second, "third"}}})
	if used != 2 || lanes[0] != 0 || lanes[1] != 1 || lanes[2] != 0 {
		t.Error(lanes, used)
	}
}
