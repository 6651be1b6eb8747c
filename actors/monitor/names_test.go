package monitor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"fencepost/role"
)

// zone is a resolver whose answers change.
type zone struct {
	mu      sync.Mutex // guards what follows
	answers map[string][]string
	slow    time.Duration
	asked   []time.Time
}

func (z *zone) set(name string, addrs ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.answers == nil {
		z.answers = map[string][]string{}
	}
	z.answers[name] = addrs
}

func (z *zone) delay(d time.Duration) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.slow = d
}

func (z *zone) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	z.mu.Lock()
	addrs, slow := z.answers[host], z.slow
	z.asked = append(z.asked, time.Now())
	z.mu.Unlock()
	if network != "ip" {
		return nil, errors.New(network)
	}
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return nil, &net.DNSError{Err: "i/o timeout", Name: host, IsTimeout: true}
	}
	var ips []netip.Addr
	for _, a := range addrs {
		ips = append(ips, netip.MustParseAddr(a))
	}
	if addrs == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return ips, nil
}

func following(t *testing.T, z *zone, names ...string) *shard {
	t.Helper()
	s := newShard(t, NamesProps(NamesConfig{Resolver: z, Log: zerolog.Nop()}))
	t.Cleanup(s.stop)
	s.tell(&Watch{Names: names})
	return s
}

// told gives what the shard was told, as text.
func told(s *shard) string {
	synctest.Wait()
	var lines []string
	for _, m := range s.drop() {
		switch m := m.(type) {
		case *Resolved:
			lines = append(lines, fmt.Sprintf("%s %v", m.Name, m.Hosts))
		case *Unresolved:
			lines = append(lines, fmt.Sprintf("%s slow=%v", m.Name, m.Slow))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

func TestResolve(t *testing.T) {
	z := &zone{}
	z.set("db", "10.0.0.2", "10.0.0.1", "2001:db8::1", "::ffff:10.0.0.1")
	z.set("empty", []string{}...)
	for name, want := range map[string]string{
		"db:5432": "[10.0.0.1:5432 10.0.0.2:5432 [2001:db8::1]:5432]", "10.9.8.7:1": "[10.9.8.7:1]", "[::1]:2": "[[::1]:2]",
		"/run/postgresql:5432": "[/run/postgresql:5432]", "gone:1": "error", "empty:1": "error", "db": "error", "db:x": "error", "db:70000": "error",
	} {
		hosts, err := Resolve(t.Context(), z, name)
		got := fmt.Sprint(hosts)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: %v, %v; want %s", name, hosts, err, want)
		}
	}
	if hosts, err := Resolve(t.Context(), net.DefaultResolver, "localhost:5432"); err != nil || !slices.Contains(hosts, role.Host("127.0.0.1:5432")) {
		t.Errorf("localhost: %v, %v", hosts, err)
	}
}

// Addresses are told when they are known and when they change; a failure takes nothing back.
func TestNamesFollowChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		z := &zone{}
		z.set("db", "10.0.0.1")
		s := following(t, z, "db:5432", "10.9.9.9:1", "/tmp:5")
		if got := told(s); got != "/tmp:5 [/tmp:5], 10.9.9.9:1 [10.9.9.9:1], db:5432 [10.0.0.1:5432]" {
			t.Error(got)
		}
		time.Sleep(21 * time.Second)
		if got := told(s); got != "" {
			t.Errorf("without a change: %s", got)
		}
		z.set("db", "10.0.0.2", "10.0.0.3")
		time.Sleep(5 * time.Second)
		if got := told(s); got != "db:5432 [10.0.0.2:5432 10.0.0.3:5432]" {
			t.Error(got)
		}
		z.set("db") // no answer
		z.mu.Lock()
		delete(z.answers, "db")
		z.mu.Unlock()
		time.Sleep(10 * time.Second)
		if got := told(s); got != "db:5432 slow=false" {
			t.Error(got)
		}
		z.set("db", "10.0.0.3", "10.0.0.2")
		time.Sleep(time.Second)
		if got := told(s); got != "db:5432 [10.0.0.2:5432 10.0.0.3:5432]" {
			t.Errorf("after the failure: %s", got)
		}
	})
}

// A lookup that never comes back is given up and tried again; the answer is taken as soon as there is one.
func TestNamesSlow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		z := &zone{}
		z.set("db", "10.0.0.1")
		z.delay(time.Hour)
		s := following(t, z, "db:5432")
		time.Sleep(2 * time.Second)
		if got := told(s); got != "db:5432 slow=true" {
			t.Error(got)
		}
		time.Sleep(30 * time.Second)
		if got := told(s); got != "" {
			t.Error(got)
		}
		z.delay(1500 * time.Millisecond)
		time.Sleep(4500 * time.Millisecond) // what is left of a look, the pause, a look
		if got := told(s); got != "db:5432 [10.0.0.1:5432]" {
			t.Error(got)
		}
	})
}

// Refresh looks at once; one that comes during a look is followed by another look; a flood of them makes no flood of looks;
// names that are fixed need none.
func TestNamesRefresh(t *testing.T) {
	bubble(t, func(t *testing.T) {
		z := &zone{}
		z.set("db", "10.0.0.1")
		s := following(t, z, "db:5432", "10.9.9.9:1")
		told(s)
		time.Sleep(time.Second)
		z.set("db", "10.0.0.2")
		s.tell(&Refresh{Name: "db:5432"})
		s.tell(&Refresh{Name: "10.9.9.9:1"})
		s.tell(&Refresh{Name: "unknown:1"})
		if got := told(s); got != "db:5432 [10.0.0.2:5432]" {
			t.Error(got)
		}
		time.Sleep(time.Second)
		z.delay(time.Second)
		s.tell(&Refresh{Name: "db:5432"})
		time.Sleep(500 * time.Millisecond)
		z.set("db", "10.0.0.3") // the look under way has its answer already
		s.tell(&Refresh{Name: "db:5432"})
		s.tell(&Refresh{Name: "db:5432"})
		time.Sleep(1500 * time.Millisecond)
		if got := told(s); got != "db:5432 [10.0.0.3:5432]" || len(z.asked) != 4 {
			t.Errorf("%s, %d looks", got, len(z.asked))
		}
		z.delay(0)
		for range 100 {
			time.Sleep(10 * time.Millisecond)
			s.tell(&Refresh{Name: "db:5432"})
		}
		z.set("db", "10.0.0.4")
		time.Sleep(lookGap)
		if got, looks := told(s), len(z.asked)-4; got != "db:5432 [10.0.0.4:5432]" || looks < 5 || looks > 7 {
			t.Errorf("%s, %d looks in a second", got, looks)
		}
	})
}

// A monitor has its name looked at with every attempt to connect, and does not wait for the answer.
func TestRefreshWithEveryAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		z := &zone{}
		z.set("db", "192.0.2.1")
		names := following(t, z, "db:5432")
		told(names)
		time.Sleep(time.Second)
		z.set("db", "192.0.2.2")
		z.delay(time.Minute)
		h := newFake(errno(syscall.ECONNREFUSED))
		s := started(t, h, func(c *Config) { c.Names, c.Name = names.child, "db:5432" })
		time.Sleep(time.Second)
		if n := len(h.times()); n < 6 {
			t.Errorf("%d attempts while the resolver is slow", n)
		}
		z.delay(0)
		find[*Unresolved](t, names, "the look that was too slow", nil)
		r := find[*Resolved](t, names, "new address", nil)
		if at := time.Since(h.start); at > 2*time.Second+lookGap || fmt.Sprint(r.Hosts) != "[192.0.2.2:5432]" {
			t.Errorf("after %v: %v", at, r.Hosts)
		}
		s.drop()
	})
}

// A new list keeps what stays, forgets what goes, also if its look is under way, and a restart asks again.
func TestNamesWatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		z := &zone{}
		z.set("a", "10.0.0.1")
		z.set("b", "10.0.0.2")
		s := following(t, z, "a:1")
		told(s)
		z.delay(time.Second)
		s.tell(&Watch{Names: []string{"a:1", "b:1"}})
		time.Sleep(500 * time.Millisecond)
		s.tell(&Watch{Names: []string{"a:1"}})
		time.Sleep(20 * time.Second)
		if got := told(s); got != "" {
			t.Error(got)
		}
		s.tell(&Watch{Names: []string{"a:1", "b:1"}})
		time.Sleep(500 * time.Millisecond)
		s.tell(&Watch{Names: []string{"a:1"}})
		synctest.Wait()
		z.set("b", "10.0.0.3")
		s.tell(&Watch{Names: []string{"a:1", "b:1"}})
		time.Sleep(time.Second) // two looks end meanwhile; the one for the name as it was watched before counts for nothing
		if got := told(s); got != "b:1 [10.0.0.3:1]" {
			t.Error(got)
		}
		s.tell((*Watch)(nil)) // fails on it
		time.Sleep(time.Second)
		if got := told(s); got != "a:1 [10.0.0.1:1], b:1 [10.0.0.3:1]" {
			t.Errorf("after a restart: %s", got)
		}
		asked := len(z.asked)
		s.tell(&Watch{})
		time.Sleep(time.Minute)
		if got := told(s); got != "" || len(z.asked) > asked {
			t.Errorf("nothing is watched: %s, %d looks", got, len(z.asked)-asked)
		}
	})
}

// Nothing is left of an actor that is stopped during a look.
func TestNamesStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		z := &zone{}
		z.delay(time.Hour)
		following(t, z, "a:1", "b:1")
		time.Sleep(time.Second)
	})
}
