package soak

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fencepost/internal/pgcluster"
	"fencepost/soak/ledger"
)

// careless is a pooler as it must not be: it hands the server connection of a client that has left to the next one of
// the same user as it is, with whatever is unread, uncommitted and set on it.
type careless struct {
	t      *testing.T
	server string // address
	db     string
	mu     sync.Mutex // guards idle
	idle   map[string][]*used
	all    sync.WaitGroup
}

// used is a server connection with what the server said at its login.
type used struct {
	nc      net.Conn
	welcome []byte
}

func (c *careless) serve(l net.Listener) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		c.all.Go(func() { c.client(nc) })
	}
}

func (c *careless) client(nc net.Conn) {
	defer nc.Close()
	var head [4]byte
	if _, err := io.ReadFull(nc, head[:]); err != nil {
		return
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 8 || n > 10000 {
		return
	}
	packet := make([]byte, n-4)
	if _, err := io.ReadFull(nc, packet); err != nil || binary.BigEndian.Uint32(packet)>>16 != 3 {
		return
	}
	_, rest, _ := strings.Cut(string(packet[4:]), "user\x00")
	user, _, _ := strings.Cut(rest, "\x00")
	u, err := c.take(user)
	if err != nil {
		return
	}
	if _, err := nc.Write(u.welcome); err == nil {
		c.relay(nc, u)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle[user] = append(c.idle[user], u)
}

// relay copies until the client has left.
func (c *careless) relay(nc net.Conn, u *used) {
	var answers sync.WaitGroup
	answers.Go(func() {
		io.Copy(nc, u.nc)
		nc.Close()
	})
	terminate := []byte{'X', 0, 0, 0, 4}
	for b := make([]byte, 64<<10); ; {
		n, err := nc.Read(b)
		rest, bye := bytes.CutSuffix(b[:n], terminate)
		if _, werr := u.nc.Write(rest); werr != nil || err != nil || bye {
			break
		}
	}
	nc.Close()
	u.nc.SetReadDeadline(time.Now())
	answers.Wait()
	u.nc.SetReadDeadline(time.Time{})
}

// take returns a connection somebody has left behind, or opens one.
func (c *careless) take(user string) (*used, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if idle := c.idle[user]; len(idle) > 0 {
		c.idle[user] = idle[1:]
		return idle[0], nil
	}
	nc, err := net.Dial("tcp", c.server)
	if err != nil {
		return nil, err
	}
	p := binary.BigEndian.AppendUint32(make([]byte, 4), 3<<16)
	p = append(p, "user\x00"+user+"\x00database\x00"+c.db+"\x00\x00"...)
	binary.BigEndian.PutUint32(p, uint32(len(p)))
	if _, err := nc.Write(p); err != nil {
		return nil, err
	}
	u := &used{nc: nc}
	for {
		var head [5]byte
		if _, err := io.ReadFull(nc, head[:]); err != nil {
			return nil, err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(nc, body); err != nil {
			return nil, err
		}
		u.welcome = append(append(u.welcome, head[:]...), body...)
		if head[0] == 'Z' {
			return u, nil
		}
	}
}

func (c *careless) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, all := range c.idle {
		for _, u := range all {
			u.nc.Close()
		}
	}
	clear(c.idle)
}

// TestControl puts the load on a pooler that cleans nothing: the checks must see it.
func TestControl(t *testing.T) {
	t.Parallel()
	dbs := databases()[1:2]
	dbs[0].index = 0
	o := pgcluster.Options{Conf: map[string]string{"log_min_messages": "fatal"}, Databases: []string{dbs[0].server}}
	for _, u := range users {
		o.Roles = append(o.Roles, pgcluster.Role{Name: u})
	}
	cluster := pgcluster.New(t, o)
	if err := layTables(t.Context(), cluster.Primary(), dbs[0].server); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &careless{t: t, server: cluster.Primary().Addr(), db: dbs[0].server, idle: map[string][]*used{}}
	c.all.Go(func() { c.serve(l) })

	r := &run{opts: DefaultOptions(), dbs: dbs, addr: l.Addr().String(), node: cluster.Primary(), book: ledger.NewBook()}
	r.opts.Think = time.Millisecond
	r.tally = newTally(func(violation) {})
	r.log, r.began = newLogWatch(r.tally), time.Now()
	wanted := []kind{foreignAnswer, wrongSetting, leakedState, ledgerBroken}
	unseen := func(k kind) bool { return r.tally.counts[k] == 0 }
	for round := 0; round < 10 && slices.ContainsFunc(wanted, unseen); round++ {
		r.someLoad(t, 10*round, 4*time.Second)
		r.ledger(t.Context())
		t.Logf("round %d: %v", round, r.tally.counts)
		c.close() // the next round begins with what works
	}
	l.Close()
	c.close()
	c.all.Wait()
	t.Logf("seen: %v", r.tally.counts)
	for _, k := range wanted {
		if unseen(k) {
			t.Errorf("%s: not seen", k)
		}
	}
}

// someLoad has ten clients work for a time; their numbers begin behind first.
func (r *run) someLoad(t *testing.T, first int, d time.Duration) {
	r.hard, r.abandon = context.WithCancel(t.Context())
	soft, cancel := context.WithTimeout(r.hard, d)
	defer cancel()
	var clients sync.WaitGroup
	for i := range 10 {
		w := &worker{r: r, rng: r.source(uint64(first + i)), soft: soft, id: first + i + 1}
		clients.Go(func() {
			for w.soft.Err() == nil {
				w.session(1 + w.rng.IntN(6))
			}
		})
	}
	<-soft.Done()
	r.abandon()
	r.meter.CloseAll()
	clients.Wait()
	r.side.Wait()
}
