package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// spaces is where ip keeps the namespaces that it has made.
const spaces = "/run/netns"

// run runs a program of the system.
func run(input, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s; it was told: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)), strings.TrimSpace(input))
	}
	return nil
}

// ip runs commands of ip, in a namespace unless that is "", up to the first one that fails.
func ip(space string, commands ...string) error {
	args := []string{"-batch", "-"}
	if space != "" {
		args = append([]string{"-n", space}, args...)
	}
	return run(strings.Join(commands, "\n")+"\n", "ip", args...)
}

// inside does something in a namespace: sockets that are opened, and programs that are started, belong there.
func inside(space string, do func() error) error {
	done := make(chan error, 1)
	go func() { // ends with do
		// The thread goes back to where it was, and is not given up: the kernel would take that for the death of the parent of
		// every program that was started on it.
		runtime.LockOSThread()
		err, home := visit(space, do)
		if home == nil {
			runtime.UnlockOSThread()
		}
		done <- errors.Join(err, home)
	}()
	return <-done
}

// visit has this thread be in a namespace for as long as do takes. home is why it is still there.
func visit(space string, do func() error) (err, home error) { //nolint:revive // the first one is do's
	back, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err, nil
	}
	defer back.Close()
	there, err := os.Open(filepath.Join(spaces, space))
	if err != nil {
		return err, nil
	}
	defer there.Close()
	if err := enter(there); err != nil {
		return err, nil
	}
	err = do()
	return err, enter(back)
}

// enter has this thread be in a namespace.
func enter(space *os.File) error {
	return os.NewSyscallError("setns", unix.Setns(int(space.Fd()), unix.CLONE_NEWNET))
}

// claims has a byte for each number a network may have: who has locked it has the number, until it closes the file or ends,
// in whatever way.
const claims = "/run/fencepost-networks.lock"

// numbers there are: the addresses are of a network for tests between devices (RFC 2544), which is not used elsewhere.
const numbers = 256

// claim finds a number that nobody has, whose addresses are not in use, and removes what is left of networks nobody has any
// more.
func claim() (number int, held *os.File, err error) {
	lock := func(f *os.File, number int) error {
		return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(number), Len: 1})
	}
	open := func() (*os.File, error) { return os.OpenFile(claims, os.O_CREATE|os.O_RDWR, 0o600) }
	for _, left := range leftovers() {
		f, err := open()
		if err != nil {
			return 0, nil, err
		}
		if lock(f, left) == nil {
			err = remove(left)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return 0, nil, err
		}
	}
	if held, err = open(); err != nil {
		return 0, nil, err
	}
	for _, number := range rand.Perm(numbers) {
		if inUse(address(number, 0)) || lock(held, number) != nil {
			continue
		}
		return number, held, nil
	}
	return 0, nil, errors.Join(errors.New("no addresses are free"), held.Close())
}

// inUse reports whether this machine has another way than the default one to an address.
func inUse(ip string) bool {
	proc, err := procfs.NewFS("/proc/thread-self") // the process's first thread may be inside of a namespace
	if err != nil {
		return false
	}
	want := binary.NativeEndian.Uint32(net.ParseIP(ip).To4())
	routes, _ := proc.NetRoute()
	return slices.ContainsFunc(routes, func(r procfs.NetRouteLine) bool { return r.Mask != 0 && want&r.Mask == r.Destination })
}

// ours is what the names of interfaces and namespaces here look like.
var ours = regexp.MustCompile(`^fencepost(\d{1,3})(-.+)?$`)

// leftovers are the numbers of networks of which there is anything.
func leftovers() (all []int) {
	for _, dir := range []string{spaces, "/sys/class/net"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // there has never been a namespace
		}
		for _, e := range entries {
			if m := ours.FindStringSubmatch(e.Name()); m != nil {
				n, _ := strconv.Atoi(m[1]) // it is a number
				all = append(all, n)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// remove removes all there is of a network.
func remove(number int) error {
	var commands []string
	for dir, command := range map[string]string{"/sys/class/net": "link del ", spaces: "netns del "} {
		entries, _ := os.ReadDir(dir) // if there is no such folder there is nothing in it
		for _, e := range entries {
			if m := ours.FindStringSubmatch(e.Name()); m != nil && m[1] == strconv.Itoa(number) {
				commands = append(commands, command+e.Name())
			}
		}
	}
	if len(commands) == 0 {
		return nil
	}
	slices.Sort(commands) // interfaces first: those of a namespace go at some later time when that does
	if err := run(strings.Join(commands, "\n")+"\n", "ip", "-force", "-batch", "-"); err != nil && slices.Contains(leftovers(), number) {
		return err
	}
	return nil // what had gone by itself is no error
}
