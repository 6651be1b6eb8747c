// Package network is the network between the members of a fleet, and between them and the servers, on one machine: any two
// can be cut off from each other, in one direction or in both, or lose some of what they send, while everybody else goes on.
//
//	n, err := network.NewNamespaces()
//	defer n.Close()
//	front, err := n.Server("a", "127.0.0.1:5432")
//	ip, err := n.Host("m1")
//	where, err := n.Member("m1", net.JoinHostPort(ip, "7946"))
//	exec.Command(n.Command("m1", "fencepost", "serve", …))
//	n.Cut("m1", "a")
//
// There are two of them. [Namespaces] is a real one, for which one has to be root. [Ports] needs no rights and pretends.
//
// The servers listen on the loopback interface. Both lead to them by relays, which is where a way can be made long.
package network

import (
	"fmt"
	"time"
)

// Network is what members and servers, whose names are unique, reach each other by. All methods may be called from any
// goroutine; they block for as long as a program of the system runs. Their errors say what the system refused.
type Network interface {
	// Server makes a way to a server that listens at target, and returns the address by which members know it.
	Server(name, target string) (addr string, err error)

	// Host makes the place where a member runs, and returns the IP address that it listens on there, for whomever. The
	// machine reaches it, whatever is cut.
	Host(name string) (ip string, err error)

	// Member says where a member listens for the others, TCP and UDP, and returns the address by which they know it.
	Member(name, bind string) (addr string, err error)

	// Command is how a program is run where a member is. The process that is started becomes the program.
	Command(name string, argv ...string) []string

	// Runs says that a process is a member, and Ran that it has ended.
	Runs(name string, pid int)
	Ran(pid int)

	// Cut lets nothing pass between two, whoever they are, until Heal, and CutWay nothing from one to another.
	Cut(a, b string) error
	CutWay(from, to string) error

	// Lose loses so many in a hundred of what one sends to another, until Heal.
	Lose(from, to string, percent int) error

	// Heal undoes what was cut and is lost between two, and HealAll all of it.
	Heal(a, b string) error
	HealAll() error

	// Slow makes everything between a server and the members, a connect as well, arrive so much later, in each direction.
	// 0 undoes it. What is under way stays in order.
	Slow(server string, delay time.Duration) error

	// Close ends all of it. Who runs in it has to have ended.
	Close() error
}

// Kind says which one.
type Kind string

// The kinds. Auto is the first one where it is to be had, else the second one.
const (
	OfNamespaces Kind = "namespaces"
	OfPorts      Kind = "ports"
	Auto         Kind = "auto"
)

// Open makes a network of a kind.
func Open(k Kind) (Network, error) {
	switch k {
	case OfNamespaces:
		return NewNamespaces()
	case OfPorts, "":
		return NewPorts(), nil
	default:
		return nil, fmt.Errorf("network: %q is neither %q nor %q", k, OfNamespaces, OfPorts)
	}
}

// Choose says which kind it is to be, and why. It fails if that is one that cannot be had.
func Choose(k Kind) (_ Kind, why string, err error) {
	switch k {
	case OfNamespaces, Auto:
		n, err := NewNamespaces()
		switch {
		case err == nil:
			return OfNamespaces, "a namespace with an address for each member and server", n.Close()
		case k == Auto:
			return OfPorts, "relays on the loopback interface, since namespaces cannot be had: " + err.Error(), nil
		}
		return "", "", err
	case OfPorts:
		return OfPorts, "relays on the loopback interface, as asked for", nil
	}
	return "", "", fmt.Errorf("network: %q is none of %q, %q and %q", k, Auto, OfNamespaces, OfPorts)
}

// way is a direction between two.
type way struct{ from, to string }
