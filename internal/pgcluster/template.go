package pgcluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"fencepost/internal/poll"
)

// cacheDir is where programs and template data directories are kept between runs. FENCEPOST_PG_CACHE overrides it. As
// root it must be a place that the postgres user can reach, which root's own cache folder is not.
func cacheDir() (string, error) {
	if dir := os.Getenv("FENCEPOST_PG_CACHE"); dir != "" {
		return dir, nil
	}
	if os.Getuid() == 0 {
		return "/var/cache/fencepost-pgcluster", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("folder for cached PostgreSQL programs: %w", err)
	}
	return filepath.Join(dir, "fencepost-pgcluster"), nil
}

// memoryDir is a file system in memory. Each server has a thousand small files, and ext4 gets slow when many files are
// made where many have just been removed, as tests do.
const memoryDir = "/dev/shm"

// workDir is where clusters are made that are given no place: in memory if there are some gigabytes to spare and TMPDIR
// does not say otherwise, else in the folder for temporary files.
func workDir() string {
	var fs unix.Statfs_t
	if os.Getenv("TMPDIR") == "" && unix.Statfs(memoryDir, &fs) == nil && fs.Type == unix.TMPFS_MAGIC &&
		fs.Bavail*uint64(fs.Bsize) >= 4<<30 && unix.Access(memoryDir, unix.W_OK|unix.X_OK) == nil {
		return memoryDir
	}
	return os.TempDir()
}

// once fills dir with fill unless it exists. Test processes run side by side, so a lock file lets one of them do the work
// and the rename at the end lets nobody see half of it. It waits for the lock until ctx ends.
func once(ctx context.Context, dir string, fill func(tmp string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close() // releases the lock
	err = poll.Until(ctx, pollEvery, func() (bool, error) {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return err
	}
	if err := fill(tmp); err != nil {
		os.RemoveAll(tmp)
		return err
	}
	return os.Rename(tmp, dir)
}

// template returns a data directory fresh from initdb, made once per server version.
func template(ctx context.Context, binDir string, as account) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(binDir, "postgres"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", filepath.Join(binDir, "postgres"), err)
	}
	fields := strings.Fields(string(out)) // postgres (PostgreSQL) 15.18 (Debian …)
	if len(fields) < 3 {
		return "", fmt.Errorf("%s --version printed %q", filepath.Join(binDir, "postgres"), out)
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "templates", fields[2])
	err = once(ctx, dir, func(tmp string) error {
		if err := as.own(tmp); err != nil {
			return err
		}
		cmd := as.command(ctx, filepath.Join(binDir, "initdb"), "-D", filepath.Join(tmp, "data"), "-U", Superuser,
			"-A", "trust", "-E", "UTF8", "--locale=C", "-N")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("initdb of version %s: %w\n%s", fields[2], err, bytes.TrimSpace(out))
		}
		return nil
	})
	return filepath.Join(dir, "data"), err
}

// clone copies a data directory whose server is stopped.
func clone(ctx context.Context, from, to string, as account) error {
	out, err := as.command(ctx, "cp", "-a", "--reflink=auto", "--sparse=always", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy data directory: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// Where a WAL segment's first page keeps the system identifier: behind XLogPageHeaderData, in XLogLongPageHeaderData
// (src/include/access/xlog_internal.h).
const walSystemIDOffset = 24

// renumber gives a stopped, freshly cloned data directory a system identifier of its own. Without it all clusters of a
// version would share the template's, and nothing could be tested that tells two clusters apart. The identifier is at the
// front of pg_control (whose checksum follows the last field) and in the first page of each WAL segment.
func renumber(dataDir string) error {
	name := filepath.Join(dataDir, "global", "pg_control")
	control, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	end := checksummed(control)
	if end == 0 {
		return fmt.Errorf("%s: no checksum found", name)
	}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	id[7] &= 0x7f // shown as a positive bigint
	copy(control, id[:])
	binary.LittleEndian.PutUint32(control[end:], crc32.Checksum(control[:end], crc32.MakeTable(crc32.Castagnoli)))
	if err := os.WriteFile(name, control, 0o600); err != nil {
		return err
	}
	return filepath.WalkDir(filepath.Join(dataDir, "pg_wal"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || len(d.Name()) != 24 {
			return err
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt(id[:], walSystemIDOffset)
		return errors.Join(err, f.Close())
	})
}

// checksummed returns how many bytes of pg_control its checksum covers, which differs between versions; 0 if none fits.
func checksummed(control []byte) int {
	table := crc32.MakeTable(crc32.Castagnoli)
	for end := 8; end+4 <= len(control) && end <= 512; end += 4 {
		if binary.LittleEndian.Uint32(control[end:]) == crc32.Checksum(control[:end], table) {
			return end
		}
	}
	return 0
}
