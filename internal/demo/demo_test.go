package demo

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// The demo kills its primary and promotes a standby, the clients go on at the new one and what they noticed is said, a
// second failover can be asked for, and nothing is left behind.
func TestDemo(t *testing.T) {
	before := folders(t)
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	again := make(chan struct{}, 1)
	out := &output{}
	watched := make(chan struct{})
	go func() { // ends with ctx
		defer close(watched)
		asked := false
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			switch strings.Count(out.String(), "is a standby of") {
			case 1:
				if !asked {
					asked = true
					again <- struct{}{}
				}
			case 2:
				end()
			}
			<-tick.C
		}
	}()
	err := Run(ctx, Options{Out: out, Port: 6432, Clients: 8, Version: "test", Failover: time.Second, Again: again})
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	end()
	<-watched
	for _, want := range []string{"In 1s the primary will be killed", "Press Enter", "SHOW FLEET", "a fleet of 3", "Stopping PostgreSQL"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	noticed := regexp.MustCompile(`that (write|read from standbys):  longest pause (\S+);`).FindAllStringSubmatch(out.String(), -1)
	if len(noticed) != 4 {
		t.Fatalf("it says %d times what clients noticed, want 4:\n%s", len(noticed), out)
	}
	for _, n := range noticed {
		if d, err := time.ParseDuration(n[2]); err != nil || d <= 0 || n[1] == "write" && d < detection || d > 30*time.Second {
			t.Errorf("clients that %s noticed a pause of %s", n[1], n[2])
		}
	}
	if after := folders(t); after != before {
		t.Errorf("folders before: %s, after: %s", before, after)
	}
}

// folders are those that a demo makes, for itself.
func folders(t *testing.T) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(os.TempDir(), "fencepost-demo-*"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, " ")
}

type output struct {
	mu sync.Mutex // guards b
	b  strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
