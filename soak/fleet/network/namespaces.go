package network

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Namespaces is a network of the kernel's: each member and each server has a network namespace with an address, and a bridge
// is between them. What is cut or lost is dropped by the firewall of whoever it was sent to, as it would be on the way: if it
// were dropped where it is sent, the sender of a datagram would see an error.
//
// A server itself stays where it is. Its namespace has a relay to it. One that is down therefore takes a connection and
// resets it, where a real one would refuse it.
type Namespaces struct {
	relays

	number  int      // of this network among those on this machine: it is in all names, and in the addresses
	held    *os.File // the claim on number
	restore string   // the program that replaces the rules of a firewall
	closing sync.Once

	state  sync.Mutex // guards what follows, and is held while the kernel is told
	made   int        // places, with those that are gone
	places map[string]*place
	losses map[way]int // in a hundred
}

// place is a namespace, with the outer end of its cable.
type place struct{ space, outer, ip string }

// ErrNotPermitted is a system that does not let us make namespaces, or does not have the programs for it.
var ErrNotPermitted = errors.New("network namespaces cannot be made")

// NewNamespaces makes a network without anybody, after it has removed what runs that were interrupted have left, and sees
// whether everything works that is needed. It takes a fraction of a second. The error is an [ErrNotPermitted] if nothing could
// be begun.
func NewNamespaces() (_ *Namespaces, err error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: only root can", ErrNotPermitted)
	}
	firewalls := slices.DeleteFunc([]string{"iptables-restore", "iptables-legacy-restore"}, func(p string) bool { _, err := exec.LookPath(p); return err != nil })
	if _, err := exec.LookPath("ip"); err != nil || len(firewalls) == 0 {
		return nil, fmt.Errorf("%w: ip and iptables-restore are needed (Debian: apt-get install iproute2 iptables)", ErrNotPermitted)
	}
	n := &Namespaces{places: map[string]*place{}, losses: map[way]int{}}
	n.init()
	if n.number, n.held, err = claim(); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	bridge := bridgeName(n.number)
	if err := ip("", "link add "+bridge+" type bridge", "addr add "+address(n.number, 1)+"/24 dev "+bridge, "link set "+bridge+" up"); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotPermitted, err)
	}
	const one, other = "one", "other"
	if err := n.makePlace(one); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotPermitted, err)
	}
	if err := n.makePlace(other); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	for _, n.restore = range firewalls {
		if err = n.try(one, other); err == nil {
			break
		}
	}
	if err = errors.Join(err, n.unmake(one), n.unmake(other)); err != nil {
		return nil, fmt.Errorf("network: namespaces do not work as they should: %w", err)
	}
	return n, nil
}

// try sees whether one reaches another, and the machine does, and the firewall can stop that.
func (n *Namespaces) try(one, other string) error {
	from, to := n.place(one), n.place(other)
	var ln net.Listener
	listen := func() (err error) { ln, err = net.Listen("tcp4", net.JoinHostPort(to.ip, "1")); return err }
	if err := inside(to.space, listen); err != nil {
		return err
	}
	defer ln.Close()
	dial := func(limit time.Duration) func() error {
		return func() error {
			c, err := net.DialTimeout("tcp4", ln.Addr().String(), limit)
			if err == nil {
				c.Close()
			}
			return err
		}
	}
	const long, short = 2 * time.Second, 50 * time.Millisecond
	if err := errors.Join(inside(from.space, dial(long)), dial(long)()); err != nil {
		return err
	}
	defer n.HealAll() //nolint:errcheck // both places go
	if err := errors.Join(n.Lose(other, one, 1), n.CutWay(one, other)); err != nil {
		return err
	}
	if inside(from.space, dial(short)) == nil {
		return errors.New("what the firewall should drop arrives")
	}
	return dial(long)()
}

// addresses of a network: the machine has the first one.
func address(number, host int) string { return fmt.Sprintf("198.18.%d.%d", number, host) }

// makePlace makes a namespace, unless it is there.
func (n *Namespaces) makePlace(name string) error {
	n.state.Lock()
	defer n.state.Unlock()
	if n.places[name] != nil {
		return nil
	}
	n.made++
	host := n.made + 1
	bridge := bridgeName(n.number)
	p := &place{spaceName(n.number, name), fmt.Sprintf("%s-%d", bridge, host), address(n.number, host)}
	err := ip("", "netns add "+p.space, "link add "+p.outer+" type veth peer name eth0 netns "+p.space, "link set "+p.outer+" master "+bridge+" up")
	if err != nil {
		return err
	}
	n.places[name] = p
	return ip(p.space, "addr add "+p.ip+"/24 dev eth0", "link set eth0 up", "link set lo up")
}

// unmake removes a place.
func (n *Namespaces) unmake(name string) error {
	n.state.Lock()
	defer n.state.Unlock()
	p := n.places[name]
	delete(n.places, name)
	return ip("", "link del "+p.outer, "netns del "+p.space)
}

func (n *Namespaces) place(name string) *place {
	n.state.Lock()
	defer n.state.Unlock()
	return n.places[name]
}

// Server implements [Network].
func (n *Namespaces) Server(name, target string) (addr string, err error) {
	if err := n.makePlace(name); err != nil {
		return "", fmt.Errorf("network: %w", err)
	}
	p := n.place(name)
	var ln net.Listener
	listen := func() (err error) { ln, err = net.Listen("tcp4", net.JoinHostPort(p.ip, "5432")); return err }
	if err := inside(p.space, listen); err != nil {
		return "", fmt.Errorf("network: %w", err)
	}
	always := func() bool { return true }
	n.accept(ln, func(c net.Conn) { n.join(c, target, n.delayOf(name), always, always) })
	return ln.Addr().String(), nil
}

// Host implements [Network].
func (n *Namespaces) Host(name string) (ip string, err error) {
	if err := n.makePlace(name); err != nil {
		return "", fmt.Errorf("network: %w", err)
	}
	return n.place(name).ip, nil
}

// Member implements [Network]: there is nothing between others and the address it listens on.
func (n *Namespaces) Member(name, bind string) (addr string, err error) {
	if n.place(name) == nil {
		return "", fmt.Errorf("network: %s has no place: call Host", name)
	}
	return bind, nil
}

// Command implements [Network]. ip becomes the program that it is told to run.
func (n *Namespaces) Command(name string, argv ...string) []string {
	return append([]string{"ip", "netns", "exec", spaceName(n.number, name)}, argv...)
}

// Runs implements [Network]: addresses say who is who.
func (n *Namespaces) Runs(string, int) {}

// Ran implements [Network].
func (n *Namespaces) Ran(int) {}

// Cut implements [Network].
func (n *Namespaces) Cut(a, b string) error { return errors.Join(n.CutWay(a, b), n.CutWay(b, a)) }

// CutWay implements [Network].
func (n *Namespaces) CutWay(from, to string) error { return n.Lose(from, to, 100) }

// Lose implements [Network].
func (n *Namespaces) Lose(from, to string, percent int) error {
	return n.change(func() {
		if n.losses[way{from, to}] = percent; percent <= 0 {
			delete(n.losses, way{from, to})
		}
	})
}

// Heal implements [Network].
func (n *Namespaces) Heal(a, b string) error {
	return n.change(func() {
		delete(n.losses, way{a, b})
		delete(n.losses, way{b, a})
	})
}

// HealAll implements [Network].
func (n *Namespaces) HealAll() error { return n.change(func() { clear(n.losses) }) }

// change changes the losses, and the rules of those firewalls for which that is a change.
func (n *Namespaces) change(how func()) error {
	n.state.Lock()
	defer n.state.Unlock()
	before := map[string]string{}
	for name := range n.places {
		before[name] = n.rules(name)
	}
	was := maps.Clone(n.losses)
	how()
	for w := range n.losses {
		if n.places[w.from] == nil || n.places[w.to] == nil {
			n.losses = was
			return fmt.Errorf("network: %s and %s are not both there", w.from, w.to)
		}
	}
	var all []error
	for _, name := range slices.Sorted(maps.Keys(n.places)) {
		if rules := n.rules(name); rules != before[name] {
			all = append(all, inside(n.places[name].space, func() error { return run(rules, n.restore, "-w", "5") }))
		}
	}
	return errors.Join(all...)
}

// rules are those of a place, for iptables-restore: they replace what was there at once.
func (n *Namespaces) rules(to string) string {
	var b strings.Builder
	b.WriteString("*filter\n:INPUT ACCEPT [0:0]\n")
	for _, from := range slices.Sorted(maps.Keys(n.places)) {
		switch percent := n.losses[way{from, to}]; {
		case percent >= 100:
			fmt.Fprintf(&b, "-A INPUT -s %s/32 -j DROP\n", n.places[from].ip)
		case percent > 0:
			fmt.Fprintf(&b, "-A INPUT -s %s/32 -m statistic --mode random --probability %.2f -j DROP\n", n.places[from].ip, float64(percent)/100)
		}
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// Close implements [Network]. It waits for its goroutines, and may be called again.
func (n *Namespaces) Close() (err error) {
	n.closing.Do(func() {
		n.close()
		err = remove(n.number)
		n.held.Close() // then others may have the number
	})
	return err
}

func bridgeName(number int) string              { return "fencepost" + strconv.Itoa(number) }
func spaceName(number int, place string) string { return bridgeName(number) + "-" + place }
