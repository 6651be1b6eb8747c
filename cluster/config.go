package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/rs/zerolog"

	"fencepost/cluster/evidence"
)

// Config says who this member is and how it finds the others.
type Config struct {
	Name    string // of the fleet: members of another name are not talked to
	Member  string // of this member, for people; each has its own
	PeerID  uint32 // in the cancel keys this process issues; each member has its own
	Version string // of the program, for people
	// AdminAddr is where the member's own HTTP is reached, for people; "" for none.
	AdminAddr string

	Bind      netip.AddrPort // to listen on, TCP and UDP; port 0: a free one
	Advertise netip.AddrPort // where others reach it; not valid: Bind, or a private address if that is unspecified
	// Join are members to join by, "host:port". Names are resolved at every attempt. Empty: others join this one.
	Join []string
	// Keys encrypt; the first one what is sent, all of them are tried on what arrives. 16, 24 or 32 bytes each. None only if
	// Bind is a loopback address.
	Keys     [][]byte
	JoinWait time.Duration // before a member that starts is ready on its own; 0: it does not wait
	Size     int           // fleet_size; above 1 a member waits for others though Join is empty

	// What follows has defaults.
	Boot      evidence.Boot // drawn at random
	Lookup    func(ctx context.Context, host string) ([]netip.Addr, error)
	Transport func(*log.Logger) (memberlist.Transport, error) // sockets at Bind; called at every start of the actor
	TwinAfter time.Duration                                   // how long two of one name may be alive, as at a restart: 10 s
	Log       zerolog.Logger
}

// Check says what is wrong with the settings; nil if nothing is. It does not look at the network.
func (c Config) Check() error {
	var errs []error
	if c.Name == "" || len(c.Name) > memberlist.LabelMaxSize {
		errs = append(errs, errors.New("name: must be set, and not longer than 255 bytes"))
	}
	if c.Member == "" || len(c.Member) > maxMemberName {
		errs = append(errs, fmt.Errorf("member: must be set, and not longer than %d bytes", maxMemberName))
	}
	if !c.Bind.IsValid() {
		errs = append(errs, errors.New("bind: must be an address and port"))
	}
	if len(c.Keys) == 0 && !c.Bind.Addr().IsLoopback() {
		errs = append(errs, errors.New("secret_key: must be set unless bind is a loopback address"))
	}
	for _, k := range c.Keys {
		if memberlist.ValidateKey(k) != nil {
			errs = append(errs, errors.New("secret_key: a key must have 16, 24 or 32 bytes"))
		}
	}
	for _, j := range c.Join {
		if _, _, err := net.SplitHostPort(j); err != nil {
			errs = append(errs, fmt.Errorf("join: %q is not host:port", j))
		}
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if (c.Boot == evidence.Boot{}) {
		_, _ = rand.Read(c.Boot[:]) // never fails: see crypto/rand
	}
	if c.Lookup == nil {
		c.Lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if c.Transport == nil {
		c.Transport = c.sockets
	}
	c.TwinAfter = cmp.Or(c.TwinAfter, 10*time.Second)
	return c
}

// sockets is the transport over the network.
func (c Config) sockets(logger *log.Logger) (memberlist.Transport, error) {
	var err error
	for range 10 { // a free TCP port need not be a free UDP port
		var t *memberlist.NetTransport
		t, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{c.Bind.Addr().String()}, BindPort: int(c.Bind.Port()), Logger: logger})
		if err == nil {
			return t, nil
		}
		if c.Bind.Port() != 0 {
			break
		}
	}
	return nil, err
}

// Bound is c with its sockets open already, so that an address in use is known before the others hear of this member. What arrives
// waits until the actor starts. The caller closes the Closer once the actor has ended, or if it never starts.
func (c Config) Bound() (Config, io.Closer, error) {
	logger := log.New(io.Discard, "", 0)
	t, err := c.sockets(logger)
	if err != nil {
		return c, nil, err
	}
	h := &held{transport: t, logger: logger, again: c.sockets}
	c.Transport = h.take
	return c, h, nil
}

// held is a transport that waits for the actor's first start; a restarted actor opens its own.
type held struct {
	mu        sync.Mutex // guards transport
	transport memberlist.Transport
	logger    *log.Logger
	again     func(*log.Logger) (memberlist.Transport, error)
}

func (h *held) take(l *log.Logger) (memberlist.Transport, error) {
	h.mu.Lock()
	t := h.transport
	h.transport = nil
	h.mu.Unlock()
	if t == nil {
		return h.again(l)
	}
	h.logger.SetOutput(l.Writer())
	return t, nil
}

// Close closes what nobody has taken.
func (h *held) Close() error {
	h.mu.Lock()
	t := h.transport
	h.transport = nil
	h.mu.Unlock()
	if t == nil {
		return nil
	}
	over := make(chan struct{})
	defer close(over)
	go func() { // takes what has arrived, for which Shutdown would wait; ends with it
		for {
			select {
			case c := <-t.StreamCh():
				_ = c.Close()
			case <-t.PacketCh():
			case <-over:
				return
			}
		}
	}()
	return t.Shutdown()
}

// streamTimeout is for connecting to a member, and for each read and write.
const streamTimeout = 2 * time.Second

// list is memberlist's configuration: quicker than its own for a LAN. Nothing is compressed, since digests and numbers do
// not get shorter by it.
func (c Config) list() *memberlist.Config {
	m := memberlist.DefaultLANConfig()
	m.Name = nodeName(c.Member, c.Boot)
	m.Label = c.Name
	m.BindAddr, m.BindPort = c.Bind.Addr().String(), int(c.Bind.Port())
	m.AdvertisePort = int(c.Bind.Port())
	if c.Advertise.IsValid() {
		m.AdvertiseAddr, m.AdvertisePort = c.Advertise.Addr().String(), int(c.Advertise.Port())
	}
	m.GossipInterval, m.GossipNodes = 100*time.Millisecond, 4
	m.PushPullInterval = 10 * time.Second
	m.ProbeInterval, m.ProbeTimeout = 500*time.Millisecond, 250*time.Millisecond
	m.TCPTimeout = streamTimeout
	m.DeadNodeReclaimTime = time.Second
	m.EnableCompression = false
	return m
}

// nodeName is a member's name for memberlist, other for every run: so a process that comes back under another address, or
// sooner than its death was noticed, conflicts with nobody.
func nodeName(member string, b evidence.Boot) string { return member + "@" + b.String()[:16] }
