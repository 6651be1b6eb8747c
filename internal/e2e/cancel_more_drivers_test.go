package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// Drivers that take a JVM or a Node to run are for a full run.

// The JDBC driver is pinned: a newer one is for a person to look at.
const (
	jdbcVersion = "42.7.8"
	jdbcDigest  = "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7" // SHA-256
)

// mavenCopy is the plugin that fetches an artifact.
const mavenCopy = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"

// TestMoreDriversCancel is TestDriversCancel for JDBC and node-postgres.
func TestMoreDriversCancel(t *testing.T) {
	if !full {
		t.Log("only in a full run: make test-drivers")
		return
	}
	t.Parallel()
	for _, version := range []string{"14", "15", "16", "17", "18"} {
		t.Run("TCP, PostgreSQL "+version, func(t *testing.T) {
			t.Parallel()
			n, db := newDatabase(t, version)
			p := startPooler(t, settings{host: n.Addr(), dbname: db})
			front := startRelay(t, p.addr)
			l := &lab{t: t, node: n, db: db, pooler: p}
			for _, mode := range []string{"transaction", "session"} {
				at := place{mode, front.Addr(), mode}
				cancelWithAll(t, l, at, front, []canceller{{"JDBC", cancelJDBC}})
				cancelJS(t, at)
			}
			l.atRest()
		})
		t.Run("unix sockets, PostgreSQL "+version, func(t *testing.T) {
			t.Parallel()
			n, db := newDatabase(t, version)
			p, addr := startOnUnix(t, settings{host: fmt.Sprintf("%s:%d", n.SocketDir, n.Port), dbname: db})
			cancelJS(t, place{"transaction", addr, "transaction"}) // JDBC has no unix sockets of its own
			(&lab{t: t, node: n, db: db, pooler: p}).atRest()
		})
	}
}

// cancelJDBC is Statement.cancel and setQueryTimeout.
func cancelJDBC(t *testing.T, _ *lab, at place, protocol string) {
	jar, err := jdbc()
	if err != nil {
		t.Fatal(err)
	}
	out, err := at.command(t, nil, "java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", jar, "testdata/drivers/cancel/JdbcCancel.java", protocol)
	if err != nil {
		t.Errorf("JDBC: %v", err)
	}
	check(t, "JDBC", out, nil, `cancel 57014
then answered
setQueryTimeout 57014
then answered
in a transaction 57014
then answered
`)
}

// cancelJS is Client.cancel of node-postgres, which speaks protocol 3.0 only.
func cancelJS(t *testing.T, at place) {
	t.Helper()
	dir, err := nodePostgres()
	if err != nil {
		t.Fatal(err)
	}
	out, err := at.command(t, nil, "node", filepath.Join(dir, "cancel.js"))
	if err != nil {
		t.Errorf("node-postgres: %v", err)
	}
	check(t, "node-postgres in "+at.name+" mode", out, nil, `cancel 57014
then answered
again 57014
then answered
in a transaction 57014
then answered
`)
}

// jdbc returns the driver's archive, fetched with Maven when it is not there yet.
var jdbc = sync.OnceValues(func() (string, error) {
	dir, err := cached("jdbc-"+jdbcVersion, func(dir string) error {
		return runIn(dir, "mvn", "-q", "-B", mavenCopy, "-Dartifact=org.postgresql:postgresql:"+jdbcVersion, "-DoutputDirectory="+dir)
	})
	if err != nil {
		return "", err
	}
	jar := filepath.Join(dir, "postgresql-"+jdbcVersion+".jar")
	b, err := os.ReadFile(jar)
	if err != nil {
		return "", err
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != jdbcDigest {
		return "", fmt.Errorf("%s is not the archive that was pinned", jar)
	}
	return jar, nil
})

// nodePostgres returns a folder with the script and what it needs, fetched with npm when it is not there yet. The lock
// file pins every package by its digest.
var nodePostgres = sync.OnceValues(func() (string, error) {
	files := []string{"package.json", "package-lock.json", "cancel.js"}
	lay := func(dir string) error {
		for _, name := range files {
			b, err := os.ReadFile(filepath.Join("testdata/drivers/node", name))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
				return err
			}
		}
		return nil
	}
	dir, err := cached("node-postgres-8.16.3", func(dir string) error {
		if err := lay(dir); err != nil {
			return err
		}
		return runIn(dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	})
	if err != nil {
		return "", err
	}
	return dir, lay(dir) // the script may be newer than what was kept
})

// cached returns a folder in the user's cache folder, or in FENCEPOST_E2E_CACHE, that fill has filled once.
func cached(name string, fill func(dir string) error) (string, error) {
	cache := os.Getenv("FENCEPOST_E2E_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no place for %s: %w; set FENCEPOST_E2E_CACHE", name, err)
		}
		cache = filepath.Join(dir, "fencepost-e2e")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(cache, name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close() // gives the lock back
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	dir := filepath.Join(cache, name)
	if exists(dir) {
		return dir, nil
	}
	tmp, err := os.MkdirTemp(cache, name+"-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := fill(tmp); err != nil {
		return "", fmt.Errorf("fetch %s: %w", name, err)
	}
	return dir, os.Rename(tmp, dir)
}

func runIn(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}
