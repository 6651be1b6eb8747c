package supervisor

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// LogQueue is a writer for log lines that never blocks: an event loop must not wait for a pipe or a disk. Lines are
// gathered for a moment and written together by one goroutine, so that a line costs a copy and not a thread's wake-up;
// what does not fit while the reader is slow is dropped and counted.
type LogQueue struct {
	out  io.Writer
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex // guards the fields below; nothing is written while it is held
	lines   []byte
	spare   []byte
	dropped int
	closed  bool
	awake   bool // the goroutine will look at lines without being woken
}

const (
	logGather = 20 * time.Millisecond
	logMax    = 4 << 20 // bytes waiting
)

// NewLogQueue starts the goroutine, which Close ends.
func NewLogQueue(out io.Writer) *LogQueue {
	q := &LogQueue{out: out, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()
	return q
}

// Write queues one line. It always reports success.
func (q *LogQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	if q.closed || len(q.lines)+len(line) > logMax {
		q.dropped++
		q.mu.Unlock()
		return len(line), nil
	}
	q.lines = append(q.lines, line...)
	if !q.awake {
		q.awake = true
		q.wake <- struct{}{} // has room: the last one was taken before awake was cleared
	}
	q.mu.Unlock()
	return len(line), nil
}

func (q *LogQueue) run() {
	defer close(q.done)
	for range q.wake {
		q.flush()
	}
	q.flush()
}

// flush waits a moment for more lines and writes them all.
func (q *LogQueue) flush() {
	for {
		q.mu.Lock()
		closed := q.closed
		q.mu.Unlock()
		if !closed {
			time.Sleep(logGather)
		}
		q.mu.Lock()
		lines, dropped := q.lines, q.dropped
		q.lines, q.dropped = q.spare[:0], 0
		if len(lines) == 0 {
			q.spare = lines
			q.awake = false
			q.mu.Unlock()
			return
		}
		q.spare = nil
		q.mu.Unlock()
		if dropped > 0 {
			lines = fmt.Appendf(lines, `{"level":"warn","dropped":%d,"message":"log lines dropped: the reader is slow"}`+"\n", dropped)
		}
		_, _ = q.out.Write(lines) // where logs cannot be written nothing can be said of it
		q.mu.Lock()
		if cap(lines) <= 1<<20 {
			q.spare = lines
		}
		q.mu.Unlock()
	}
}

// Close writes what is queued and ends the goroutine. Lines written later are dropped.
func (q *LogQueue) Close() error {
	q.mu.Lock()
	was := q.closed
	q.closed = true
	q.mu.Unlock()
	if !was {
		close(q.wake)
	}
	<-q.done
	return nil
}
