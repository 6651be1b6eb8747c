package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"fencepost/internal/pgcluster"
)

// Roles of every server. The server asks app for its password, and takes client at its word.
const (
	appUser     = "app"
	appPassword = "correct horse, battery: 'staple'"
	anyUser     = "client"
)

// full asks for the whole matrix: every driver against every version.
var full = os.Getenv("FENCEPOST_E2E_FULL") != ""

// workDir holds the program under test and the settings files.
var workDir string

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fencepost-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	workDir = dir
	defer stopServers()
	// Most tests wait for a server or a clock most of the time.
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// program builds Fencepost, under the race detector if the tests run under it. FENCEPOST_E2E_PROGRAM names one that is
// built already.
var program = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("FENCEPOST_E2E_PROGRAM"); path != "" {
		return path, nil
	}
	path := filepath.Join(workDir, "fencepost")
	args := []string{"build", "-o", path}
	if raceDetector {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "fencepost/cmd/fencepost")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build fencepost: %w\n%s", err, out)
	}
	return path, nil
})

// servers are shared by all tests, one for each version, each test in a database of its own.
var servers = struct {
	sync.Mutex
	started map[string]func() (*pgcluster.Cluster, error)
}{started: map[string]func() (*pgcluster.Cluster, error){}}

// server returns the running server of a version, starting it when it is first asked for.
func server(t testing.TB, version string) *pgcluster.Node {
	t.Helper()
	servers.Lock()
	start := servers.started[version]
	if start == nil {
		start = sync.OnceValues(func() (*pgcluster.Cluster, error) {
			return pgcluster.Start(context.Background(), serverOptions(version))
		})
		servers.started[version] = start
	}
	servers.Unlock()
	c, err := start()
	if err != nil {
		t.Fatalf("PostgreSQL %s: %v", version, err)
	}
	return c.Primary()
}

func serverOptions(version string) pgcluster.Options {
	return pgcluster.Options{
		Version: version,
		Conf:    map[string]string{"max_connections": "400", "autovacuum": "off", "log_connections": "off"},
		HBA:     []string{"host all " + appUser + " 127.0.0.1/32 scram-sha-256"},
		Roles:   []pgcluster.Role{{Name: appUser, Password: appPassword}, {Name: anyUser}},
	}
}

func stopServers() {
	var g errgroup.Group
	for _, start := range servers.started {
		g.Go(func() error {
			if c, err := start(); err == nil { // else the tests that wanted it have failed, and said why
				return c.Stop()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, "stop servers:", err)
	}
}

// versions returns the versions to test on: those named, and in a full run every one.
func versions(t testing.TB, named ...string) []string {
	t.Helper()
	if full {
		return pgcluster.Versions()
	}
	return named
}
