package fencepost_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// pure packages decide and do nothing else: no clock, goroutine, random, I/O or log.
var pure = []string{
	"wire", "role", "actors/lane/pool", "actors/lane/grant", "actors/lane/placement", "actors/shard/election", "actors/shard/health",
	"actors/backend/session", "actors/backend/prepared", "actors/backend/cancellease", "cluster/evidence",
}

// order is who may import whom: a package may import those on earlier lines. Pure packages may also import each other.
var order = [][]string{
	{"pgerr"},
	pure,
	{"config", "metrics"},
	{"eventloop", "actors/strategy", "standstill"},
	{"auth"},
	{"actors/monitor", "actors/backend", "cluster"},
	{"actors/shard"},
	{"actors/lane"},
	{"admin"},
	{"actors/frontend"},
	{"supervisor"},
	{"soak"},
	{"cmd/fencepost"},
}

func level(pkg string) int {
	return slices.IndexFunc(order, func(l []string) bool { return slices.Contains(l, pkg) })
}

func checkImports(s source) (problems []string) {
	if strings.HasPrefix(s.name, "soak/") && !s.isTest() {
		return checkSoakImports(s)
	}
	if s.support() {
		return nil
	}
	own := level(s.dir())
	if own < 0 {
		return []string{fmt.Sprintf("%s: package %s has no place in the order of imports", s.name, s.dir())}
	}
	for _, p := range sortedKeys(s.imports()) {
		pkg, ok := strings.CutPrefix(p, module+"/")
		switch {
		case !ok, slices.Contains(pure, s.dir()) && slices.Contains(pure, pkg):
		case pkg == "soak", strings.HasPrefix(pkg, "soak/"), strings.HasPrefix(pkg, "internal/"):
			if !strings.HasPrefix(s.name, "cmd/") { // the demo starts PostgreSQL
				problems = append(problems, fmt.Sprintf("%s imports test support (%s)", s.name, pkg))
			}
		case level(pkg) < 0 || level(pkg) >= own:
			problems = append(problems, fmt.Sprintf("%s imports %s, which is not below %s", s.name, pkg, s.dir()))
		}
	}
	return problems
}

// checkSoakImports: what judges the product from outside knows nothing of its inside.
func checkSoakImports(s source) (problems []string) {
	for _, p := range sortedKeys(s.imports()) {
		pkg, ok := strings.CutPrefix(p, module+"/")
		if ok && !strings.HasPrefix(pkg, "soak/") && !strings.HasPrefix(pkg, "internal/") {
			problems = append(problems, fmt.Sprintf("%s imports %s; soak uses the public protocol and test support alone", s.name, pkg))
		}
	}
	return problems
}

// Over any number of steps, a package reaches only those below it, on every system the program is built for: no actor
// knows one further up, and test support is in no program but the demo's, on Linux, and the soak.
func TestNothingReachesUpwards(t *testing.T) {
	for _, system := range []string{"linux", "darwin", "freebsd"} {
		list := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...")
		list.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		out, err := list.Output()
		if err != nil {
			t.Fatalf("go list for %s: %v", system, err)
		}
		seen := 0
		for line := range strings.Lines(string(out)) {
			reached := strings.Fields(line)
			pkg := strings.TrimPrefix(reached[0], module+"/")
			if level(pkg) < 0 {
				continue
			}
			seen++
			for _, to := range reached[1:] {
				if to, ok := strings.CutPrefix(to, module+"/"); ok && !mayReach(system, pkg, to) {
					t.Errorf("%s: %s reaches %s", system, pkg, to)
				}
			}
		}
		if want := len(slices.Concat(order...)); seen != want {
			t.Errorf("%s: %d packages of the order are there, not %d", system, seen, want)
		}
	}
}

func mayReach(system, pkg, to string) bool {
	switch {
	case strings.HasPrefix(to, "internal/"), to == "soak", strings.HasPrefix(to, "soak/"):
		return pkg == "soak" || pkg == "cmd/fencepost" && system == "linux"
	case slices.Contains(pure, pkg) && slices.Contains(pure, to):
		return true
	}
	return level(to) >= 0 && level(to) < level(pkg)
}

// What the lists of this file name is there.
func TestNamedPackagesExist(t *testing.T) {
	there := make(map[string]bool)
	for _, s := range sources(t) {
		there[s.dir()] = there[s.dir()] || !s.isTest()
	}
	for _, pkg := range slices.Concat(order...) {
		if !there[pkg] {
			t.Errorf("%s is named here and is not there", pkg)
		}
	}
}
