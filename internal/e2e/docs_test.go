package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	testFunc   = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	testName   = regexp.MustCompile(`\b(Test[A-Z]\w+)(…?)`)
	makeTarget = regexp.MustCompile("(?m)(?:^    |`)make ([a-z-]+)")
	link       = regexp.MustCompile(`\]\(([^)#:]+)[^):]*\)`)
)

// The tests, targets of make and pages that a page names are there. A test's name may be the beginning of several: TestX….
func TestPages(t *testing.T) {
	t.Parallel()
	var tests []string
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			for _, m := range testFunc.FindAllStringSubmatch(file(t, path), -1) {
				tests = append(tests, m[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, named := file(t, "../../Makefile"), 0
	for _, path := range append(pages, "../../README.md", "../../ARCHITECTURE.md", "../../CHANGELOG.md", "../../CONTRIBUTING.md") {
		page := file(t, path)
		for _, m := range testName.FindAllStringSubmatch(page, -1) {
			named++
			if !slices.ContainsFunc(tests, func(n string) bool { return n == m[1] || m[2] != "" && strings.HasPrefix(n, m[1]) }) {
				t.Errorf("%s: there is no test %s", path, m[0])
			}
		}
		for _, m := range makeTarget.FindAllStringSubmatch(page, -1) {
			named++
			if !strings.Contains(makefile, "\n"+m[1]+": ") {
				t.Errorf("%s: there is no make %s", path, m[1])
			}
		}
		for _, m := range link.FindAllStringSubmatch(page, -1) {
			named++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	if named < 100 {
		t.Errorf("they name %d things", named)
	}
}

// docs/failover.md names the tests of what it says, and every setting of a shard.
func TestFailoverPage(t *testing.T) {
	t.Parallel()
	page := file(t, "../../docs/failover.md")
	if n := len(testName.FindAllString(page, -1)); n < 20 {
		t.Errorf("it names %d tests", n)
	}
	_, shards, _ := strings.Cut(file(t, "../../docs/fencepost.toml"), "\n[shards.main]\n")
	shards, _, _ = strings.Cut(shards, "\n[databases.app]\n")
	keys := regexp.MustCompile(`(?m)^#?([a-z_]+) = `).FindAllStringSubmatch(shards, -1)
	for _, k := range keys {
		if !strings.Contains(page, "`"+k[1]+"`") {
			t.Errorf("it does not name the setting %s", k[1])
		}
	}
	if len(keys) < 15 {
		t.Errorf("the example file has %d settings of shards", len(keys))
	}
}

func file(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
