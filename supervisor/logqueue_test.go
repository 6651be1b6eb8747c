package supervisor

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// slowWriter lets nothing through until it is opened.
type slowWriter struct {
	gate chan struct{}
	mu   sync.Mutex
	buf  bytes.Buffer
}

func (w *slowWriter) Write(b []byte) (int, error) {
	<-w.gate
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(b)
}

func TestLogQueueNeverBlocksAndKeepsOrder(t *testing.T) {
	w := &slowWriter{gate: make(chan struct{})}
	q := NewLogQueue(w)
	line := strings.Repeat("x", 1000)
	for i := range 3 * logMax / 1000 { // more than fits while the reader stands still
		fmt.Fprintf(q, "%d %s\n", i, line)
	}
	close(w.gate)
	q.Close()
	fmt.Fprintln(q, "late")
	got := strings.Split(strings.TrimSpace(w.buf.String()), "\n")
	for i, l := range got[:100] {
		if !strings.HasPrefix(l, fmt.Sprintf("%d ", i)) {
			t.Fatalf("line %d is %.20q", i, l)
		}
	}
	if !strings.Contains(w.buf.String(), "log lines dropped") {
		t.Error("dropped lines are not reported")
	}
	if strings.Contains(w.buf.String(), "late") {
		t.Error("a line was written after Close")
	}
}

func TestLogQueueWritesEverythingBeforeClose(t *testing.T) {
	var buf bytes.Buffer
	q := NewLogQueue(&buf)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 500 {
				fmt.Fprintf(q, "%d/%d\n", i, j)
			}
		})
	}
	wg.Wait()
	q.Close()
	if n := strings.Count(buf.String(), "\n"); n != 4000 {
		t.Errorf("%d lines, want 4000", n)
	}
}
