package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// psycopgVersion is pinned: a newer one is for a person to look at.
const psycopgVersion = "3.3.9"

// runPsycopg runs testdata/drivers/psycopg_script.py.
func runPsycopg(t *testing.T, at place, e extent) string {
	t.Helper()
	python, err := pythonWithPsycopg()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"testdata/drivers/psycopg_script.py"}
	if e.full {
		args = append(args, "full")
	}
	if e.session {
		args = append(args, "session")
	}
	out, err := at.command(t, []string{"PYTHONUTF8=1"}, python, args...)
	if err != nil {
		t.Errorf("psycopg at %s: %v\n%s", at.name, err, short(out))
	}
	return out
}

// pythonWithPsycopg returns a Python that has psycopg: one with the pinned version, in a virtual environment that is made
// when it is not there yet, or else the operating system's. It fails, and says what to do, where there is neither.
var pythonWithPsycopg = sync.OnceValues(func() (string, error) {
	python, err := virtualEnvironment()
	if err == nil {
		return python, nil
	}
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import psycopg; psycopg.pq.version()").Run() == nil {
			return python, nil
		}
	}
	return "", fmt.Errorf("no Python with psycopg 3 (Debian: apt-get install python3-psycopg), and %w", err)
})

// virtualEnvironment is in the user's cache folder, or in FENCEPOST_E2E_CACHE.
func virtualEnvironment() (python string, err error) {
	cache := os.Getenv("FENCEPOST_E2E_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no place for psycopg: %w; set FENCEPOST_E2E_CACHE", err)
		}
		cache = filepath.Join(dir, "fencepost-e2e")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "psycopg-"+psycopgVersion)
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close() // gives the lock back
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	python = filepath.Join(dir, "bin", "python")
	if exec.Command(python, "-c", "import psycopg; psycopg.pq.version()").Run() == nil {
		return python, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"python3", "-m", "venv", dir},
		{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "psycopg[binary]==" + psycopgVersion},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			os.RemoveAll(dir)
			return "", fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return python, nil
}
