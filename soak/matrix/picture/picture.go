// Package picture draws what happened to clients as a timeline: a band for each arm, a line for each client.
package picture

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"time"
)

// Outcome is how something that a client tried ended.
type Outcome uint8

// The outcomes.
const (
	Acked  Outcome = iota
	Failed         // with an error
	Wrong          // it was bound to a server that could not take the write
	Cut            // it had no end
)

// Try is something that a client tried. The names are short because there are many of them in a file.
type Try struct {
	Client  int           `json:"c"`
	From    time.Duration `json:"f"`
	To      time.Duration `json:"t"`
	Outcome Outcome       `json:"o"`
}

// Mark is something that was done to a server, or seen.
type Mark struct {
	At   time.Duration `json:"at"`
	Text string        `json:"text"`
}

// Span is a time from From to To.
type Span struct{ From, To time.Duration }

// Row is one arm's band. All times of a row are since its own beginning; rows are drawn one below the other so that
// what happened at Zero is in one place.
type Row struct {
	Title    string        `json:"title"`
	Clients  int           `json:"clients"`
	Zero     time.Duration `json:"zero"` // the event began
	End      time.Duration `json:"end"`
	Tries    []Try         `json:"tries"`
	Marks    []Mark        `json:"marks"`
	NoWriter []Span        `json:"no_writer"` // no server took writes
}

const (
	width   = 1300.0
	left    = 20.0
	line    = 4.0                   // height of a client
	text    = 9.0                   // height of a mark's text
	letter  = 5.0                   // … and about how wide its letters are
	title   = 18.0                  // height of a row's title
	gap     = 26.0                  // below the clients: seconds
	visible = 50 * time.Millisecond // what takes longer is drawn as waiting
	lead    = 2 * time.Second       // drawn before the event
)

// Draw writes the rows as an SVG document.
func Draw(w io.Writer, heading string, rows []*Row) error {
	length := time.Second
	for _, r := range rows {
		length = max(length, r.End-r.Zero)
	}
	c := &canvas{perSecond: (width - 2*left) / (length + lead).Seconds(), length: length, tick: time.Second}
	if length > 20*time.Second {
		c.tick = 5 * time.Second
	}
	y := 56.0
	for _, r := range rows {
		y = c.row(r, y)
	}
	body := c.String()
	c.Reset()
	c.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="sans-serif" font-size="11">`+"\n", width, y)
	c.printf(`<rect width="100%%" height="100%%" fill="#ffffff"/><text x="%.0f" y="20" font-size="15">%s</text>`+"\n", left, html.EscapeString(heading))
	c.printf(`<text x="%.0f" y="38" fill="#555555">each line is a client: <tspan fill="%s">acknowledged</tspan>, <tspan fill="%s">error</tspan>, <tspan fill="%s">bound to a wrong server</tspan>, grey: waiting for more than %v; shaded: no server took writes; seconds since the event began</text>`+"\n",
		left, colors[Acked], colors[Failed], colors[Wrong], visible)
	c.printf("%s</svg>\n", body)
	_, err := io.WriteString(w, c.String())
	return err
}

// colors of the outcomes, and of waiting.
var colors = [...]string{Acked: "#2a9d3a", Failed: "#d62828", Wrong: "#8000c0", Cut: "#222222"}

const waiting = "#9a9a9a"

type canvas struct {
	strings.Builder
	perSecond    float64
	length, tick time.Duration
}

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(c, format, args...) }

// x is where a time since the event is.
func (c *canvas) x(since time.Duration) float64 {
	since = min(max(since, -lead), c.length)
	return left + (since+lead).Seconds()*c.perSecond
}

// row draws one below y and returns where the next one begins.
func (c *canvas) row(r *Row, y float64) float64 {
	c.printf(`<text x="%.0f" y="%.1f" font-size="13">%s</text>`+"\n", left, y+12, html.EscapeString(r.Title))
	lanes, used := c.lanes(r)
	top := y + title + text*float64(used) + 4
	bottom := top + line*float64(r.Clients)
	for _, s := range r.NoWriter {
		if s.To > r.Zero-lead {
			c.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#f3e3c3"/>`+"\n", c.x(s.From-r.Zero), top, max(0.5, c.x(s.To-r.Zero)-c.x(s.From-r.Zero)), bottom-top)
		}
	}
	for t := time.Duration(0); t <= c.length; t += c.tick {
		c.printf(`<path d="M%.1f %.1fV%.1f" stroke="#cccccc"/><text x="%.1f" y="%.1f" fill="#888888">%.0f</text>`+"\n", c.x(t), top, bottom+3, c.x(t), bottom+14, t.Seconds())
	}
	c.tries(r, top)
	for i, m := range r.Marks {
		x, at := c.x(m.At-r.Zero), y+title+text*float64(lanes[i])
		c.printf(`<path d="M%.1f %.1fV%.1f" stroke="#1d3557" stroke-dasharray="3 3"/><text x="%.1f" y="%.1f" fill="#1d3557" font-size="%.0f">%s</text>`+"\n",
			x, at, bottom, x+2, at+text-1, text, html.EscapeString(m.Text))
	}
	return bottom + gap
}

// lanes are the heights at which the marks' texts do not lie over each other, and how many there are.
func (c *canvas) lanes(r *Row) (lanes []int, used int) {
	var end []float64 // of the last text in each
	for _, m := range r.Marks {
		x := c.x(m.At - r.Zero)
		lane := slices.IndexFunc(end, func(e float64) bool { return e <= x })
		if lane < 0 {
			lane, end = len(end), append(end, 0)
		}
		end[lane] = x + letter*float64(len(m.Text)+1)
		lanes = append(lanes, lane)
	}
	return lanes, len(end)
}

// tries draws one path per colour: there are tens of thousands of tries.
func (c *canvas) tries(r *Row, top float64) {
	paths := map[string]*strings.Builder{}
	add := func(color string, x, y, length float64) {
		if paths[color] == nil {
			paths[color] = new(strings.Builder)
		}
		fmt.Fprintf(paths[color], "M%.1f %.1fh%.1f", x, y, length)
	}
	for _, t := range r.Tries {
		if t.To < r.Zero-lead {
			continue
		}
		y := top + (float64(t.Client)+0.5)*line
		if t.To-t.From > visible {
			add(waiting, c.x(t.From-r.Zero), y, c.x(t.To-r.Zero)-c.x(t.From-r.Zero))
		}
		add(colors[t.Outcome], c.x(t.To-r.Zero), y, 1.2)
	}
	for _, name := range []string{waiting, colors[Acked], colors[Cut], colors[Failed], colors[Wrong]} { // the worst on top
		if p := paths[name]; p != nil {
			c.printf(`<path d="%s" stroke="%s" stroke-width="%.1f"/>`+"\n", p, name, line-1)
		}
	}
}

// Sort brings tries into the order of their ends, in which they compress well.
func (r *Row) Sort() {
	slices.SortFunc(r.Tries, func(a, b Try) int { return int(a.To - b.To) })
}
