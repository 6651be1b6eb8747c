package shard

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fencepost/actors/monitor"
	"fencepost/actors/shard/election"
	"fencepost/role"
)

// This file keeps the list of hosts: the addresses of the settings, and those that names have.

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

// hostList is the election's list. A name stands for itself as long as it has no address. The elected host's address that
// a name has lost stays behind the others.
func (a *decider) hostList() []election.HostConfig {
	var list []election.HostConfig
	for _, s := range a.mem.settings.Hosts {
		add := func(h role.Host) {
			list = append(list, election.HostConfig{Host: h, Role: s.Role, Name: s.Addr})
		}
		if !named(s) {
			h, _ := address(s.Addr)
			add(h)
			continue
		}
		addrs := a.mem.resolved[s.Addr]
		if len(addrs) == 0 {
			add(role.Host(s.Addr))
		}
		for _, h := range addrs {
			add(h)
		}
		for h, name := range a.mem.gone { // one at most: the elected one
			if name == s.Addr {
				add(h)
			}
		}
	}
	return list
}

// standIn reports whether a host of the list is a name without an address.
func standIn(h election.HostConfig) bool {
	return string(h.Host) == h.Name && named(HostSetting{Addr: h.Name, Role: h.Role})
}

func (a *decider) has(h role.Host) bool {
	return slices.ContainsFunc(a.list, func(c election.HostConfig) bool { return c.Host == h })
}

func (a *decider) roleOf(h role.Host) election.Role {
	if i := slices.IndexFunc(a.list, func(c election.HostConfig) bool { return c.Host == h }); i >= 0 {
		return a.list[i].Role
	}
	return election.Auto
}

// watchNames sends the names of the settings to the actor that follows them.
func (a *decider) watchNames() {
	var names []string
	for _, s := range a.mem.settings.Hosts {
		if named(s) && !slices.Contains(names, s.Addr) {
			names = append(names, s.Addr)
		}
	}
	for name := range a.mem.resolved {
		if !slices.Contains(names, name) {
			delete(a.mem.resolved, name)
		}
	}
	for h, name := range a.mem.gone {
		if !slices.Contains(names, name) {
			delete(a.mem.gone, h)
		}
	}
	for name := range a.nameErr {
		if !slices.Contains(names, name) {
			delete(a.nameErr, name)
		}
	}
	if a.names == nil && len(names) > 0 {
		a.names = a.ctx.SpawnPrefix(monitor.NamesProps(monitor.NamesConfig{Resolver: a.cfg.Resolver, Log: a.log}), "names-")
	}
	if a.names != nil {
		a.ctx.Send(a.names, &monitor.Watch{Names: names})
	}
}

// resolved: a name has addresses, or others than before.
func (a *decider) resolved(now time.Time, m *monitor.Resolved) {
	if !slices.ContainsFunc(a.mem.settings.Hosts, func(s HostSetting) bool { return s.Addr == m.Name && named(s) }) {
		return
	}
	delete(a.nameErr, m.Name)
	before := a.mem.resolved[m.Name]
	a.mem.resolved[m.Name] = m.Hosts
	elected := a.election.View().Elected
	if slices.Contains(before, elected) && !slices.ContainsFunc(a.hostList(), func(c election.HostConfig) bool { return c.Host == elected }) {
		a.mem.gone[elected] = m.Name
		a.elect(now, now, election.AddressGone{Host: elected})
	}
	for _, h := range m.Hosts {
		if _, was := a.mem.gone[h]; was {
			delete(a.mem.gone, h)
			a.elect(now, now, election.AddressBack{Host: h})
		}
	}
	a.replaceHosts(now, m.Name+" has other addresses")
	a.stale = true
}

// unresolved: a name has no answer. One that had one keeps its addresses.
func (a *decider) unresolved(now time.Time, m *monitor.Unresolved) {
	a.nameErr[m.Name] = m.Err
	a.stale = true
	if a.has(role.Host(m.Name)) {
		why := "its name does not resolve"
		if m.Slow {
			why = "its name was not resolved in time"
		}
		a.elect(now, now, election.Failed{Host: role.Host(m.Name), Why: why, At: now})
	}
}

// dropGone lets go of an address that its name has lost, once it is not the elected host's any more.
func (a *decider) dropGone(now time.Time) {
	if len(a.mem.gone) == 0 {
		return
	}
	for h := range a.mem.gone {
		if h != a.election.View().Elected {
			delete(a.mem.gone, h)
		}
	}
	a.replaceHosts(now, "an address is gone from its name")
}

// replaceHosts gives the election the list of hosts, if it is another one, and each host its monitor.
func (a *decider) replaceHosts(now time.Time, why string) {
	list := a.hostList()
	if slices.Equal(list, a.list) {
		return
	}
	a.list = list
	a.feedHosts(now)
	a.hostsChanged(now, why)
	a.reconcileMonitors(now)
	a.elect(now, now, election.Hosts{List: list})
}
