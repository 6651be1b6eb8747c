package monitor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"fencepost/role"
)

// Resolver finds the addresses of a name. net.Resolver is one. It returns when ctx ends.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Resolve gives the hosts behind a name of the settings: every address of "host:port", sorted and each once. An IP address
// or a unix socket ("/directory:port") stands for itself. It blocks on the resolver, until ctx ends.
func Resolve(ctx context.Context, r Resolver, name string) ([]role.Host, error) {
	if strings.HasPrefix(name, "/") {
		return []role.Host{role.Host(name)}, nil
	}
	host, portText, err := net.SplitHostPort(name)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port of %s: %w", name, err)
	}
	addrs := []netip.Addr{}
	if a, err := netip.ParseAddr(host); err == nil {
		addrs = append(addrs, a)
	} else if addrs, err = r.LookupNetIP(ctx, "ip", host); err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("lookup %s: no addresses", host)
	}
	hosts := make([]role.Host, 0, len(addrs))
	for _, a := range addrs {
		hosts = append(hosts, role.Host(netip.AddrPortFrom(a.Unmap(), uint16(port)).String()))
	}
	slices.Sort(hosts)
	return slices.Compact(hosts), nil
}

// fixed reports whether a name needs no resolver.
func fixed(name string) bool {
	host, _, err := net.SplitHostPort(name)
	if err != nil {
		return true
	}
	_, err = netip.ParseAddr(host)
	return err == nil || strings.HasPrefix(name, "/")
}

// NamesConfig says how names are followed. It is not changed after the actor was started.
type NamesConfig struct {
	Resolver Resolver   // nil: net.DefaultResolver
	To       *actor.PID // gets the messages; nil: the parent
	// 0: the default. The system's resolver does not tell how long an answer is good for.
	Every time.Duration // between an answer and the next look: 5 s
	Retry time.Duration // between a failure and the next look: 1 s
	Limit time.Duration // for one look: 2 s

	Log zerolog.Logger

	watched []string // by the last Watch, for a restart of the actor
}

// NamesProps spawns the actor that follows the addresses of a shard's host names; one actor per Props. It begins with
// Watch. Every look at a name runs on a goroutine of its own, at most one per name. After a restart it reports anew.
func NamesProps(c NamesConfig) *actor.Props {
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	for d, def := range map[*time.Duration]time.Duration{&c.Every: 5 * time.Second, &c.Retry: time.Second, &c.Limit: 2 * time.Second} {
		if *d == 0 {
			*d = def
		}
	}
	return actor.PropsFromProducer(func() actor.Actor { return &names{cfg: &c, known: map[string]*name{}} })
}

// lookGap is the least time between two looks at a name when Refresh comes often.
const lookGap = 200 * time.Millisecond

// names is the actor.
type names struct {
	cfg   *NamesConfig
	life  context.Context
	end   context.CancelFunc
	known map[string]*name
	next  uint64
}

// name is what is known of one.
type name struct {
	text    string
	hosts   []role.Host
	failing bool
	slow    bool
	told    bool
	look    uint64 // id of the look under way or, with a timer, of the next one
	looking bool
	since   time.Time // when the last look began
	again   bool
	timer   *time.Timer
	failed  repeated
}

// Receive implements actor.Actor.
func (a *names) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		a.life, a.end = context.WithCancel(context.Background())
		a.watch(ctx, a.cfg.watched)
	case *Watch:
		a.cfg.watched = slices.Clone(msg.Names)
		a.watch(ctx, a.cfg.watched)
	case *Refresh:
		if n := a.known[msg.Name]; n != nil {
			a.refresh(ctx, n)
		}
	case lookDue:
		if n := a.known[msg.name]; n != nil && n.look == msg.look && !n.looking {
			a.lookAt(ctx, n)
		}
	case looked:
		if n := a.known[msg.name]; n != nil && n.look == msg.look {
			a.looked(ctx, n, msg)
		}
	case *actor.Stopping, *actor.Restarting:
		a.stop()
	case *actor.Stopped:
	default:
		a.cfg.Log.Error().Type("message", msg).Msg("names: unhandled message")
	}
}

func (a *names) watch(ctx actor.Context, texts []string) {
	for text, n := range a.known {
		if !slices.Contains(texts, text) {
			n.rest()
			delete(a.known, text)
		}
	}
	for _, text := range texts {
		if a.known[text] == nil {
			n := &name{text: text}
			a.known[text] = n
			a.lookAt(ctx, n)
		}
	}
}

func (a *names) refresh(ctx actor.Context, n *name) {
	switch {
	case fixed(n.text):
	case n.looking:
		n.again = true
	default:
		a.lookSoon(ctx, n)
	}
}

// lookSoon looks at once, or when lookGap has passed.
func (a *names) lookSoon(ctx actor.Context, n *name) {
	if pause := lookGap - time.Since(n.since); pause > 0 {
		a.lookIn(ctx, n, pause)
		return
	}
	a.lookAt(ctx, n)
}

// lookIn sets the timer to the next look.
func (a *names) lookIn(ctx actor.Context, n *name, pause time.Duration) {
	n.rest()
	a.next++
	n.look = a.next
	root, self, due := ctx.ActorSystem().Root, ctx.Self(), lookDue{n.text, n.look}
	n.timer = time.AfterFunc(pause, func() { root.Send(self, due) })
}

// lookAt starts a look on a goroutine that ends with it; the end of the actor ends it too.
func (a *names) lookAt(ctx actor.Context, n *name) {
	n.rest()
	a.next++
	n.look, n.looking, n.again, n.since = a.next, true, false, time.Now()
	root, self, look, text := ctx.ActorSystem().Root, ctx.Self(), n.look, n.text
	limited, cancel := context.WithTimeout(a.life, a.cfg.Limit)
	go func() {
		defer cancel()
		hosts, err := Resolve(limited, a.cfg.Resolver, text)
		root.Send(self, looked{text, look, hosts, err})
	}()
}

func (a *names) looked(ctx actor.Context, n *name, l looked) {
	n.looking = false
	to := a.cfg.To
	if to == nil {
		to = ctx.Parent()
	}
	if told := n.record(l); told != nil {
		a.log(told, n)
		if to != nil {
			ctx.Send(to, told)
		}
	} else if n.failing {
		a.repeat(n, l.err)
	}
	switch {
	case fixed(n.text):
	case n.again:
		a.lookSoon(ctx, n)
	case n.failing:
		a.lookIn(ctx, n, a.cfg.Retry)
	default:
		a.lookIn(ctx, n, a.cfg.Every)
	}
}

// record records a look's result, and returns the message for the shard; nil: nothing is new.
func (n *name) record(l looked) any {
	if l.err != nil {
		slow := timedOut(l.err) || isTimeout(l.err)
		if n.failing && n.slow == slow {
			return nil
		}
		n.failing, n.slow = true, slow
		return &Unresolved{Name: n.text, Slow: slow, Err: l.err}
	}
	if n.told && !n.failing && slices.Equal(n.hosts, l.hosts) {
		return nil
	}
	n.told, n.failing, n.hosts = true, false, l.hosts
	return &Resolved{Name: n.text, Hosts: slices.Clone(l.hosts)}
}

func (a *names) log(told any, n *name) {
	switch t := told.(type) {
	case *Resolved:
		a.cfg.Log.Info().Str("name", t.Name).Any("hosts", t.Hosts).Msg("name resolved")
	case *Unresolved:
		n.failed = repeated{logged: time.Now()}
		a.cfg.Log.Warn().Str("name", t.Name).Bool("slow", t.Slow).Err(t.Err).Msg("name not resolved")
	}
}

func (a *names) repeat(n *name, err error) {
	if count, due := n.failed.due(time.Now()); due {
		a.cfg.Log.Warn().Str("name", n.text).Int("count", count).Err(err).Msg("name still not resolved")
	}
}

// rest stops the timer to the next look.
func (n *name) rest() {
	if n.timer != nil {
		n.timer.Stop()
	}
}

func (a *names) stop() {
	for _, n := range a.known {
		n.rest()
	}
	if a.end != nil {
		a.end()
	}
}
