package placement

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"fencepost/role"
)

// script places and moves checkouts by text.
//
//	view [elected=H] [standbys=H,H] [failover] [promoted=H,H] [silent=H,H] [late] [read-only=H] [refuse] [static] [floor=N] [system=N]
//	places                        where each target may wait under the view, and where it may stay
//	move [sessions] VIEW...       the view becomes another one; answered by the effects. What the lane holds, one line each:
//	  pool HOST [writers]         "-" for unplaced; what follows is in it
//	    waiter NAME TARGET TURN
//	    connection NAME [timeline=N] [system=N] [recovery] [writes] [standby] [fenced-for=NAME:TURN]
type script struct{ view View }

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "view":
				s.view = parseView(t, d.CmdArgs)
				return ""
			case "places":
				return s.places()
			case "move":
				old := s.view
				s.view = parseView(t, d.CmdArgs)
				return show(Move(&old, &s.view, d.HasArg("sessions"), parsePools(t, d.Input)))
			}
			d.Fatalf(t, "unknown command")
			return ""
		})
	})
}

func parseView(t *testing.T, args []datadriven.CmdArg) (v View) {
	t.Helper()
	for _, a := range args {
		switch a.Key {
		case "elected":
			v.Elected = a.Vals[0]
		case "standbys":
			v.Standbys = a.Vals
		case "promoted":
			v.Promoted = a.Vals
		case "silent":
			v.Silent = a.Vals
		case "late":
			v.Late = true
		case "read-only":
			v.ReadOnly = a.Vals[0]
		case "failover":
			v.Failover = true
		case "refuse":
			v.Refuse = true
		case "static":
			v.Grants.Static = true
		case "floor":
			v.Grants.Floor = uint32(number(t, a.Vals[0]))
		case "system":
			v.Grants.SystemID = uint64(number(t, a.Vals[0]))
		case "sessions":
		default:
			t.Fatalf("%q is not understood", a.Key)
		}
	}
	return v
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (s *script) places() string {
	var out strings.Builder
	for target := ReadWrite; target <= Any; target++ {
		p := s.view.Place(target)
		var hosts, stays []string
		if p.Unplaced {
			hosts = append(hosts, "unplaced")
		}
		hosts = append(hosts, s.view.Standbys[:p.Standbys]...)
		if p.Primary {
			hosts = append(hosts, s.view.Elected)
		}
		for _, h := range []string{"", "a", "b", "c"} {
			if s.view.Serves(h, target) {
				stays = append(stays, name(h))
			}
		}
		fmt.Fprintf(&out, "%s: %s; stays at %s", target, strings.Join(hosts, " "), strings.Join(stays, " "))
		if s.view.Refuses(target) {
			out.WriteString("; refused")
		}
		out.WriteString("\n")
	}
	return out.String()
}

func name(host string) string {
	if host == "" {
		return "unplaced"
	}
	return host
}

func parsePools(t *testing.T, text string) (pools []*Pool) {
	t.Helper()
	targets := map[string]Target{"read-write": ReadWrite, "standby": Standby, "prefer-standby": PreferStandby, "any": Any}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if f[0] == "pool" {
			p := &Pool{Host: strings.TrimPrefix(f[1], "-"), Writers: len(f) > 2 && f[2] == "writers"}
			pools = append(pools, p)
			continue
		}
		p := pools[len(pools)-1]
		switch f[0] {
		case "waiter":
			target, ok := targets[f[2]]
			if !ok {
				t.Fatalf("no target %q", f[2])
			}
			p.Waiting = append(p.Waiting, Waiter{Owner: f[1], Target: target, Turn: uint64(number(t, f[3]))})
		case "connection":
			p.Connections = append(p.Connections, parseConnection(t, f[1], f[2:]))
		default:
			t.Fatalf("%q is not understood", line)
		}
	}
	return pools
}

func parseConnection(t *testing.T, name string, words []string) Connection {
	t.Helper()
	c, id := Connection{Owner: name}, role.Identity{Timeline: 1, SystemID: 7}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "timeline":
			id.Timeline = uint32(number(t, value))
		case "system":
			id.SystemID = uint64(number(t, value))
		case "recovery":
			id.InRecovery = true
		case "standby":
			c.Standby = true
		case "writes":
			c.Writes = true
		case "fenced-for":
			who, turn, _ := strings.Cut(value, ":")
			c.FencedFor = &Waiter{Owner: who, Turn: uint64(number(t, turn))}
		default:
			t.Fatalf("%q is not understood", word)
		}
	}
	c.Known = &role.Proof{Identity: id}
	return c
}

func show(effects []Effect) string {
	var out strings.Builder
	for _, e := range effects {
		out.WriteString(e.Kind.String())
		if e.Waiter != nil {
			fmt.Fprintf(&out, " %s", e.Waiter.Owner)
		}
		if e.Connection != nil {
			fmt.Fprintf(&out, " %s", e.Connection.Owner)
		}
		if e.Pool != nil {
			fmt.Fprintf(&out, " at %s", name(e.Pool.Host))
		}
		out.WriteString("\n")
	}
	return out.String()
}
