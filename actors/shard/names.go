package shard

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"fencepost/actors/monitor"
	"fencepost/actors/shard/election"
	"fencepost/cluster/evidence"
	"fencepost/role"
)

// address gives the address that a host of the settings is; false if it is a name.
func address(addr string) (role.Host, bool) {
	if strings.HasPrefix(addr, "/") {
		return role.Host(addr), true
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return role.Host(addr), true // the settings refuse it; a monitor will say what is wrong with it
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return role.Host(addr), false
	}
	hosts, err := monitor.Resolve(context.Background(), nil, addr) // of an address: asks nobody
	if err != nil {
		return role.Host(addr), true
	}
	return hosts[0], true
}

// named reports whether the addresses of a host of the settings are followed. A host that nobody checks is dialled by its
// name.
func named(s HostSetting) bool {
	_, fixed := address(s.Addr)
	return !fixed && s.Role != election.Any
}

// standIn reports whether a host of the list is a name without an address.
func standIn(h election.HostConfig) bool {
	return string(h.Host) == h.Name && named(HostSetting{Addr: h.Name, Role: h.Role})
}

// hostList is the shard's hosts as the election has them.
type hostList []election.HostConfig

func (l hostList) has(h role.Host) bool {
	return slices.ContainsFunc(l, func(c election.HostConfig) bool { return c.Host == h })
}

// roleOf is a host's role; Auto for one that is not in the list.
func (l hostList) roleOf(h role.Host) election.Role {
	if i := slices.IndexFunc(l, func(c election.HostConfig) bool { return c.Host == h }); i >= 0 {
		return l[i].Role
	}
	return election.Auto
}

// voters are the hosts that raise the floor, and those that do not, for the judge.
func (l hostList) voters() (e evidence.Hosts) {
	for _, h := range l {
		if h.Role == election.Auto || h.Role == election.Primary {
			e.List = append(e.List, h.Host)
		} else {
			e.Voteless = append(e.Voteless, h.Host)
		}
	}
	return e
}

func (l hostList) String() string {
	names := make([]string, len(l))
	for i, c := range l {
		names[i] = c.String()
	}
	return strings.Join(names, ", ")
}

// addresses are what the names of the settings stand for.
type addresses struct {
	resolved map[string][]role.Host
	gone     map[role.Host]string // the elected host's address that its name, the value, does not have any more
	errs     map[string]error     // of the names that do not resolve
}

func newAddresses() addresses {
	return addresses{map[string][]role.Host{}, map[role.Host]string{}, map[string]error{}}
}

// hosts are the hosts of the settings. A name stands for itself as long as it has no address. The elected host's address
// that a name has lost stays behind the others.
func (n *addresses) hosts(settings []HostSetting) hostList {
	var list hostList
	for _, s := range settings {
		add := func(h role.Host) {
			list = append(list, election.HostConfig{Host: h, Role: s.Role, Name: s.Addr})
		}
		if !named(s) {
			h, _ := address(s.Addr)
			add(h)
			continue
		}
		addrs := n.resolved[s.Addr]
		if len(addrs) == 0 {
			add(role.Host(s.Addr))
		}
		for _, h := range addrs {
			add(h)
		}
		for h, name := range n.gone { // one at most: the elected one
			if name == s.Addr {
				add(h)
			}
		}
	}
	return list
}

// names are those of the settings. What is known of others is dropped.
func (n *addresses) names(settings []HostSetting) (names []string) {
	for _, s := range settings {
		if named(s) && !slices.Contains(names, s.Addr) {
			names = append(names, s.Addr)
		}
	}
	for name := range n.resolved {
		if !slices.Contains(names, name) {
			delete(n.resolved, name)
		}
	}
	for h, name := range n.gone {
		if !slices.Contains(names, name) {
			delete(n.gone, h)
		}
	}
	for name := range n.errs {
		if !slices.Contains(names, name) {
			delete(n.errs, name)
		}
	}
	return names
}

// resolve records the addresses of a name, and returns what the election has to know of them.
func (n *addresses) resolve(settings []HostSetting, m *monitor.Resolved, elected role.Host) (events []election.Event) {
	delete(n.errs, m.Name)
	before := n.resolved[m.Name]
	n.resolved[m.Name] = m.Hosts
	if slices.Contains(before, elected) && !n.hosts(settings).has(elected) {
		n.gone[elected] = m.Name
		events = append(events, election.AddressGone{Host: elected})
	}
	for _, h := range m.Hosts {
		if _, was := n.gone[h]; was {
			delete(n.gone, h)
			events = append(events, election.AddressBack{Host: h})
		}
	}
	return events
}

// dropGone forgets an address that its name has lost, once it is not the elected host's any more; false: there was none.
func (n *addresses) dropGone(elected role.Host) bool {
	any := len(n.gone) > 0
	for h := range n.gone {
		if h != elected {
			delete(n.gone, h)
		}
	}
	return any
}

// watchNames sends the names of the settings to the actor that follows them.
func (a *decider) watchNames() {
	names := a.mem.addresses.names(a.mem.settings.Hosts)
	w := &a.monitors
	if w.names == nil && len(names) > 0 {
		w.names = a.ctx.SpawnPrefix(monitor.NamesProps(monitor.NamesConfig{Resolver: a.cfg.Resolver, Log: a.log}), "names-")
	}
	if w.names != nil {
		a.ctx.Send(w.names, &monitor.Watch{Names: names})
	}
}

// resolved: a name has addresses, or others than before.
func (a *decider) resolved(now time.Time, m *monitor.Resolved) {
	settings := a.mem.settings.Hosts
	if !slices.ContainsFunc(settings, func(s HostSetting) bool { return s.Addr == m.Name && named(s) }) {
		return
	}
	for _, e := range a.mem.addresses.resolve(settings, m, a.election.View().Elected) {
		a.elect(now, now, e)
	}
	a.replaceHosts(now, m.Name+" has other addresses")
	a.stale = true
}

// unresolved: a name has no answer. One that had one keeps its addresses.
func (a *decider) unresolved(now time.Time, m *monitor.Unresolved) {
	a.mem.addresses.errs[m.Name] = m.Err
	a.stale = true
	if a.list.has(role.Host(m.Name)) {
		why := "its name does not resolve"
		if m.Slow {
			why = "its name was not resolved in time"
		}
		a.elect(now, now, election.Failed{Host: role.Host(m.Name), Why: why, At: now})
	}
}

// replaceHosts gives the election the list of hosts, if it is another one, and each host its monitor.
func (a *decider) replaceHosts(now time.Time, why string) {
	list := a.mem.addresses.hosts(a.mem.settings.Hosts)
	if slices.Equal(list, a.list) {
		return
	}
	a.list, a.stale = list, true
	a.judge(now, list.voters())
	a.logTransition(now, zerolog.InfoLevel, "hosts", "", fmt.Sprintf("%s: %s", why, list))
	a.reconcileMonitors(now)
	a.elect(now, now, election.Hosts{List: list})
	maps.DeleteFunc(a.mem.peers.published, func(h role.Host, _ published) bool { return !list.has(h) })
}
