package config

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fleet is the section [fleet]: the Fencepost processes that know what each other knows. Absent: a single proxy.
type Fleet struct {
	// Name of the fleet, the same for all its members.
	Name string `key:"name" example:"prod" reload:"restart"`
	// Name of this member; each has its own. Absent: the machine's name.
	Member string `key:"member" example:"proxy-1" reload:"restart"`
	// Number of this member, other than that of any other; it goes into the cancel keys this process issues, so that the
	// others can pass a cancel on. The same as peer_id of [fencepost], which may be left out then.
	PeerID int `key:"peer_id" min:"1" max:"16383" example:"1" reload:"restart"`
	// Address to listen on for the other members, TCP and UDP: "ip:port".
	Bind string `key:"bind" example:"10.0.0.9:7946" reload:"restart"`
	// Address the others reach this member at, where it is not bind: "ip:port".
	Advertise string `key:"advertise" example:"192.0.2.9:7946" reload:"restart"`
	// Members to join by, "host:port" each; names are resolved anew at every attempt. A few suffice. Empty: the others
	// join this one.
	Join []string `key:"join" example:"fencepost.internal:7946" reload:"yes"`
	// Key that encrypts what members say to each other: 16, 24 or 32 bytes in base64. Several, one a line, in a file: the
	// first one encrypts, all decrypt, so that a key can be replaced one member after another. Needed unless bind is a
	// loopback address.
	SecretKey Secret `key:"secret_key" example:"file:/etc/fencepost/fleet.key" reload:"yes"`
	// How long a member that starts waits for the others before it grants writes on its own evidence. Has no effect where
	// join is empty, fleet_size is 1 and no state_file names others.
	JoinWait time.Duration `key:"fleet_join_wait" default:"2s" min:"0s" max:"5m" reload:"yes"`
	// How many members the fleet has; each gets an equal share of fleet_max_db_connections. Above 1 a member waits for others
	// when it starts.
	Size int `key:"fleet_size" default:"1" min:"1" max:"1000" unit:"members" reload:"yes"`
	// Server connections of one database that the whole fleet may have to a host. Each member takes its share,
	// fleet_max_db_connections / fleet_size, at least one, or its max_db_connections if that is less. 0 is no limit.
	MaxDBConnections int `key:"fleet_max_db_connections" default:"0" min:"0" max:"1000000" unit:"connections" reload:"yes"`
}

// Peer is a section [peers.NUMBER]: another Fencepost, or PgBouncer, that cancels are passed on to. A fleet needs none.
type Peer struct {
	// ID is the peer_id of the other process.
	ID int
	// Address it listens on for clients, "host:port".
	Addr string `key:"addr" example:"10.0.0.8:6432" reload:"yes"`
}

// Keys are the secret keys, the one that encrypts first; nil if there is none.
func (f *Fleet) Keys() [][]byte {
	keys, _ := fleetKeys(f.SecretKey.Reveal())
	return keys
}

func fleetKeys(text string) ([][]byte, string) {
	var keys [][]byte
	for _, line := range strings.Fields(text) {
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != 16 && len(key) != 24 && len(key) != 32 {
			return nil, "must be 16, 24 or 32 bytes in base64, one key a line; make one with: openssl rand -base64 32"
		}
		keys = append(keys, key)
	}
	return keys, ""
}

// Share is this member's part of a limit that the fleet has as a whole; own is the limit of the member itself. 0 is none.
func (c *Config) Share(own int) int {
	if c.Fleet == nil || c.Fleet.MaxDBConnections == 0 {
		return own
	}
	share := max(c.Fleet.MaxDBConnections/c.Fleet.Size, 1)
	if own > 0 {
		return min(own, share)
	}
	return share
}

// readFleet reads [fleet] and [peers].
func (r *reader) readFleet(c *Config) {
	if raw, ok := r.file["fleet"]; ok {
		c.Fleet = &Fleet{}
		setDefaults(c.Fleet, fleetSettings)
		if table, ok := r.table(raw, "fleet"); ok {
			r.section(c.Fleet, fleetSettings, table, "fleet")
			r.validateFleet(c)
		}
	}
	for name, table := range r.named("peers") {
		id, err := strconv.Atoi(name)
		if err != nil || id < 1 || id > 16383 || strconv.Itoa(id) != name {
			r.problem("must be named by the peer_id of the other process, from 1 to 16383", nil, "peers", name)
			continue
		}
		p := &Peer{ID: id}
		r.section(p, peerSettings, table, "peers", name)
		if _, ok := table["addr"]; !ok {
			r.problem(`must be set: where the peer listens for clients, "host:port"`, nil, "peers", name, "addr")
		} else if !hostAndPort(p.Addr) && r.sound("peers", name, "addr") {
			r.problem(`must be "host:port"`, p.Addr, "peers", name, "addr")
		}
		if id == c.Fencepost.PeerID {
			r.problem("must be another process: this one has that peer_id itself", nil, "peers", name)
		}
		c.Peers[id] = p
	}
	if len(c.Peers) > 0 && c.Fencepost.PeerID == 0 {
		r.problem("must be set where [peers] is: cancel keys carry it", nil, "fencepost", "peer_id")
	}
}

func hostAndPort(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

func (r *reader) validateFleet(c *Config) {
	f := c.Fleet
	need := map[string]string{"name": "must be set: every member has the same", "peer_id": "must be set: a number that no other member has",
		"bind": `must be set: the address other members are heard on, such as "10.0.0.9:7946"`}
	for _, key := range sortedKeys(need) {
		if !r.has("fleet", key) {
			r.problem(need[key], nil, "fleet", key)
		}
	}
	if f.Name != "" && !shardName.MatchString(f.Name) && r.sound("fleet", "name") {
		r.problem("must be letters, digits, dots, dashes and underscores", f.Name, "fleet", "name")
	}
	if f.Member != "" && labelRule(f.Member, 128) != "" {
		r.problem(labelRule(f.Member, 128), f.Member, "fleet", "member")
	}
	bind := r.fleetAddr(f.Bind, "bind")
	r.fleetAddr(f.Advertise, "advertise")
	for _, addr := range f.Join {
		if !hostAndPort(addr) {
			r.problem(`must be addresses of other members, "host:port" each`, addr, "fleet", "join")
		}
	}
	keys, rule := fleetKeys(f.SecretKey.Reveal())
	switch {
	case rule != "" && r.sound("fleet", "secret_key"):
		r.problem(rule, nil, "fleet", "secret_key")
	case len(keys) == 0 && bind.IsValid() && !bind.Addr().IsLoopback() && r.sound("fleet", "secret_key"):
		r.problem("must be set unless bind is a loopback address: what members say is to be encrypted", nil, "fleet", "secret_key")
	}
	own := &c.Fencepost.PeerID
	switch {
	case f.PeerID == 0:
	case *own != 0 && *own != f.PeerID:
		r.problem(fmt.Sprintf("must be the peer_id of [fencepost], %d, which may be left out", *own), f.PeerID, "fleet", "peer_id")
	default:
		*own = f.PeerID
	}
}

// fleetAddr checks an "ip:port" of [fleet]; not valid if it is none.
func (r *reader) fleetAddr(addr, key string) netip.AddrPort {
	if addr == "" {
		return netip.AddrPort{}
	}
	a, err := netip.ParseAddrPort(addr)
	if (err != nil || a.Port() == 0) && r.sound("fleet", key) {
		r.problem(`must be "ip:port", such as "10.0.0.9:7946"`, addr, "fleet", key)
	}
	return a
}

// fleetChanges compares two [fleet] sections, of which either may be absent.
func fleetChanges(from, to *Fleet, note func(string, bool)) {
	switch {
	case from == nil && to == nil:
	case from == nil || to == nil:
		note("fleet", false)
	default:
		compare(from, to, fleetSettings, func(key string, reloadable bool) { note("fleet."+key, reloadable) })
	}
}

// reloadedFleet is what is in force after a reload: joining a fleet, leaving it and its addresses need a restart.
func reloadedFleet(running, loaded *Fleet) *Fleet {
	if running == nil || loaded == nil {
		return running
	}
	next := *running
	next.Join, next.SecretKey, next.JoinWait = slices.Clone(loaded.Join), loaded.SecretKey, loaded.JoinWait
	next.Size, next.MaxDBConnections = loaded.Size, loaded.MaxDBConnections
	return &next
}
