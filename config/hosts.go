package config

import (
	"fmt"
	"slices"
)

// hosts decodes a list of hosts: strings, or tables with addr and role. The value of a problem is never shown: a
// connection string written here by mistake may hold a password.
func (r *reader) hosts(raw any, at []string) []Host {
	var elements []any
	switch list := raw.(type) {
	case []any:
		elements = list
	case []map[string]any: // the library's type for tables only
		for _, table := range list {
			elements = append(elements, table)
		}
	default:
		r.problem(`must be a list, such as ["127.0.0.1:5432"]`, nil, at...)
		return nil
	}
	var hosts []Host
	for _, element := range elements {
		host, rule := parseHost(element)
		if rule != "" {
			r.problem(rule, nil, at...)
		}
		hosts = append(hosts, host)
	}
	if rule := listRule(hosts); rule != "" {
		r.problem(rule, nil, at...)
	}
	return hosts
}

// listRule says what is wrong with hosts each of which is right, or could be made out at least.
func listRule(hosts []Host) string {
	if len(hosts) == 0 {
		return `must name a host, such as ["127.0.0.1:5432"]`
	}
	without := 0
	seen := map[string]bool{}
	for _, h := range hosts {
		if h.Addr == "" {
			return "" // wrong by itself
		}
		key := h.canonical()
		if seen[key] {
			return fmt.Sprintf("must name each address once, not %s twice", h.Addr)
		}
		seen[key] = true
		if h.Role == RoleAny {
			without++
		}
	}
	switch {
	case without > 0 && without < len(hosts):
		return `must not mix the role "any" with others: a host with the role any is the only host of its shard`
	case without > 1:
		return fmt.Sprintf(`must name one host with the role "any", not %d: without monitors there is no choice between hosts`, without)
	}
	return ""
}

func parseHost(raw any) (Host, string) {
	switch written := raw.(type) {
	case string:
		addr, ok := parseAddr(written)
		if !ok {
			return Host{}, `must be addresses: "host:port", "[ipv6]:port" or "/directory" of a Unix socket; without a port 5432`
		}
		return Host{Addr: addr, Role: RoleAuto}, ""
	case map[string]any:
		for _, key := range sortedKeys(written) {
			if key != "addr" && key != "role" {
				return Host{}, fmt.Sprintf("must have nothing but addr and role in a host, not %q", key)
			}
		}
		host, rule := parseHost(written["addr"])
		if _, nested := written["addr"].(string); !nested {
			return Host{}, "must have an addr that is a string in each host"
		}
		if role, ok := written["role"]; ok && rule == "" {
			host.Role, rule = parseRole(role)
		}
		return host, rule
	}
	return Host{}, `must be addresses such as "127.0.0.1:5432", or tables such as { addr = "127.0.0.1:5432" }`
}

func parseRole(raw any) (Role, string) {
	word, _ := raw.(string)
	if slices.Contains(RoleAuto.words(), word) {
		return Role(word), ""
	}
	return RoleAuto, "must have a role out of " + quotedList(RoleAuto.words())
}
