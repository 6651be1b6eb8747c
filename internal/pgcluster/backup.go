package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// AddStandby starts one more standby of a running primary, which may have been written to. It returns when the standby
// streams.
func (c *Cluster) AddStandby(ctx context.Context) (*Node, error) {
	n, err := c.newNode()
	if err != nil {
		return nil, err
	}
	if err := n.Rebuild(ctx, c.primary); err != nil {
		return nil, err
	}
	return n, c.CatchUp(ctx)
}

// Rebuild replaces what the node has by a base backup of a running server of the cluster and starts it as that server's
// standby: the way back for a former primary that was killed. It uses the functions for a base backup and not
// pg_basebackup, which the packaged versions lack (manual, "Making a Base Backup Using the Low Level API").
func (n *Node) Rebuild(ctx context.Context, from *Node) error {
	if err := n.Stop(ctx, Fast); err != nil {
		return err
	}
	n.removeSharedMemory()
	if err := os.RemoveAll(n.DataDir); err != nil {
		return err
	}
	label, err := from.backup(ctx, n.DataDir)
	if err != nil {
		return fmt.Errorf("base backup of %s for %s: %w", from.Name, n.Name, err)
	}
	if err := n.writeFile("backup_label", label); err != nil {
		return err
	}
	if err := n.configure(); err != nil {
		return err
	}
	if err := n.follow(from); err != nil {
		return err
	}
	return n.Start(ctx)
}

// backup copies the data directory of a running server and returns the text of the copy's backup_label.
func (n *Node) backup(ctx context.Context, to string) (label string, err error) {
	start, stop := "pg_backup_start($1, true)", "pg_backup_stop(false)"
	if n.major() < 15 {
		start, stop = "pg_start_backup($1, true, false)", "pg_stop_backup(false, false)"
	}
	conn, err := n.Connect(ctx, "postgres")
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SELECT "+start, "fencepost"); err != nil {
		return "", err
	}
	if err := n.c.as.copyLive(n.DataDir, to); err != nil {
		return "", err
	}
	err = conn.QueryRow(ctx, "SELECT labelfile FROM "+stop).Scan(&label)
	return label, err
}

// copyLive copies a data directory while its server changes it: files may vanish meanwhile, the WAL comes by streaming,
// and what belongs to the running server stays behind.
func (a account) copyLive(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			if err := os.Mkdir(target, 0o700); err != nil {
				return err
			}
			return a.own(target)
		}
		dir, _, _ := strings.Cut(rel, string(filepath.Separator))
		switch {
		case !d.Type().IsRegular(), strings.HasPrefix(rel, "postmaster."), strings.HasPrefix(rel, "standby.signal"),
			dir == "pg_wal", dir == "pg_replslot", dir == "pg_dynshmem", dir == "pg_stat_tmp":
			return nil
		}
		return a.copyFile(path, target)
	})
}

func (a account) copyFile(from, to string) error {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), a.own(to))
}
