package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/failover.md names the test of each promise, every setting of a shard, and the errors in their own words.
func TestFailoverPage(t *testing.T) {
	t.Parallel()
	page := file(t, "../../docs/failover.md")
	tests := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(file(t, path), -1) {
				tests[m[1]] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(page, -1)
	for _, name := range named {
		if !tests[name] {
			t.Errorf("there is no test %s", name)
		}
	}
	if len(named) < 20 {
		t.Errorf("it names %d tests", len(named))
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
