package monitor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// lines gives the log as "level message kind count", and fails on what is no line of ours.
func lines(t *testing.T, log *bytes.Buffer) []string {
	t.Helper()
	var all []string
	for line := range strings.Lines(log.String()) {
		var l struct {
			Level, Message, Kind, Host string
			Count, Hidden              int
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Host == "" {
			t.Fatalf("%s: %v", line, err)
		}
		text := strings.TrimSpace(l.Level + " " + l.Message + " " + l.Kind)
		if l.Count > 0 {
			text += fmt.Sprintf(" %d", l.Count)
		}
		if l.Hidden > 0 {
			text += fmt.Sprintf(", %d hidden", l.Hidden)
		}
		all = append(all, text)
	}
	log.Reset()
	return all
}

func logged(t *testing.T, h *fakeHost) *bytes.Buffer {
	t.Helper()
	var log bytes.Buffer
	started(t, h, func(c *Config) { c.Log = zerolog.New(&log) })
	return &log
}

// One line per transition; what repeats comes at most once a minute, with the count.
func TestLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newFake(serving(func(c *fakeConn, n int) bool {
			if n < 3 {
				c.row(writable...)
			}
			return n < 3
		}), errno(syscall.ECONNREFUSED))
		log := logged(t, h)
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		want := "info host shows its role; info monitor is up; warn monitor lost its connection broken; warn monitor cannot see its host closed"
		if got := strings.Join(lines(t, log), "; "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		want = "warn monitor still cannot see its host closed 124; warn monitor still cannot see its host closed 120"
		if got := strings.Join(lines(t, log), "; "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// A server that comes and goes all the time does not fill the log.
func TestLogOfFlapping(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := logged(t, newFake(serving(func(c *fakeConn, n int) bool {
			if n == 0 {
				c.row(writable...)
				time.Sleep(100 * time.Millisecond)
			}
			return false
		})))
		time.Sleep(61 * time.Second)
		synctest.Wait()
		got := lines(t, log)
		if n := len(got); n < maxLines || n > 2*maxLines || !strings.Contains(strings.Join(got, ";"), "hidden") {
			t.Errorf("%d lines:\n%s", n, strings.Join(got, "\n"))
		}
	})
}

// Probes that are late all the time are a line a minute.
func TestLogOfLateness(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := logged(t, newFake(serving(func(c *fakeConn, n int) bool {
			time.Sleep(2 * time.Second)
			c.row(writable...)
			return true
		})))
		time.Sleep(90 * time.Second)
		synctest.Wait()
		want := "warn probe is late 1; info host shows its role; info monitor is up; warn probe is late 30"
		if got := strings.Join(lines(t, log), "; "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}
