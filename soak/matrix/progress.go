package matrix

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"fencepost/soak/matrix/client"
	"fencepost/soak/matrix/world"
)

// progress says what goes on, line by line.
type progress struct {
	out   io.Writer
	every time.Duration
	start time.Time
	total int // cells to be played

	mu   sync.Mutex // guards out and done
	done int
}

func newProgress(o *Options, total int) *progress {
	return &progress{out: o.Out, every: o.Progress, start: time.Now(), total: total}
}

func (p *progress) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

func (p *progress) begin(c *Cell) {
	p.mu.Lock()
	n := p.done + 1
	p.mu.Unlock()
	left := ""
	if n > 1 {
		each := time.Since(p.start) / time.Duration(n-1)
		left = fmt.Sprintf(", about %v left", (each * time.Duration(max(0, p.total-n+1))).Round(time.Minute))
	}
	p.line("[%d/%d] %s, %s %d%s", n, p.total, c.Arm, c.Event, c.Repeat, left)
}

func (p *progress) end(c *Cell) {
	p.mu.Lock()
	p.done++
	p.mu.Unlock()
	if c.Result == nil {
		p.line("        no result: %s", c.Error)
		return
	}
	r := c.Result
	text := fmt.Sprintf("%d writes, wrong binds %d, 25006 %d, wedged %d, not on the writer %d, lost %d, doubled %d, errors %d", r.Writes, r.WrongBinds,
		r.ReadOnlyErrors, r.Wedged, r.Unbound, r.Lost, r.Doubled, total(r.Errors))
	if len(r.Unavailable) > 0 {
		text += fmt.Sprintf(", back after %s (max %s)", ms(percentile(r.Unavailable, 50)), ms(percentile(r.Unavailable, 100)))
	}
	p.line("        %s; no writer for %s, %.0f polls/s, %.0f s", text, ms(r.NoWriter), c.Rate, c.Seconds)
}

// watch writes a line now and then until the function it returns is called.
func (p *progress) watch(c *Cell, crew *client.Crew, w *world.World) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	began := time.Now()
	go func() { // ends by stop
		defer close(ended)
		tick := time.NewTicker(p.every)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				n := crew.Counts()
				writer := w.Observer().WriterAt(time.Now())
				if writer == "" {
					writer = "nobody"
				}
				p.line("        %s, %s: %.0f s, acknowledged %d, failed %d, waiting %d, %s takes writes", c.Arm, c.Event, time.Since(began).Seconds(),
					n.Acked, n.Failed, n.Waiting, writer)
			}
		}
	}()
	return func() { close(end); <-ended }
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func portOf(addr string) int {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(port)
	return n
}
