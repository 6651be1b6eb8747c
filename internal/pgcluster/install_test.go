package pgcluster

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func archive(t *testing.T, files ...string) (tgz []byte, integrity string) {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	tw := tar.NewWriter(zw)
	for i := 0; i < len(files); i += 2 {
		if err := tw.WriteHeader(&tar.Header{Name: files[i], Mode: 0o755, Size: int64(len(files[i+1])), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(files[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(b.Bytes())
	return b.Bytes(), "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

func TestInstallUnpacksAndLinks(t *testing.T) {
	tgz, integrity := archive(t, "package/native/bin/postgres", "program", "package/native/lib/libpq.so.5.1", "library",
		"package/native/pg-symlinks.json", `[{"source":"native/lib/libpq.so.5.1","target":"native/lib/libpq.so.5"}]`)
	dir := t.TempDir()
	if err := (release{"1", integrity}).install(tgz, dir); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(filepath.Join(dir, "native/bin/postgres")); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("program: %v, %v", fi, err)
	}
	if to, err := os.Readlink(filepath.Join(dir, "native/lib/libpq.so.5")); err != nil || to != "libpq.so.5.1" {
		t.Errorf("link leads to %q, %v", to, err)
	}
}

func TestInstallRefusesAnotherArchive(t *testing.T) {
	tgz, _ := archive(t, "package/native/bin/postgres", "program")
	_, other := archive(t, "package/native/bin/postgres", "another program")
	dir := t.TempDir()
	if err := (release{"1", other}).install(tgz, dir); err == nil || !strings.Contains(err.Error(), "digest") {
		t.Errorf("error = %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 0 {
		t.Errorf("unpacked before the digest was compared: %v", left)
	}
}

func TestInstallStaysInItsFolder(t *testing.T) {
	outside := t.TempDir()
	dir := filepath.Join(outside, "inside")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, files := range [][]string{
		{"package/../../outside", "x"},
		{"package/native/pg-symlinks.json", `[{"source":"native/x","target":"../outside"}]`},
	} {
		tgz, integrity := archive(t, files...)
		if err := (release{"1", integrity}).install(tgz, dir); err == nil {
			t.Errorf("%q was accepted", files[0])
		}
		if _, err := os.Lstat(filepath.Join(outside, "outside")); err == nil {
			t.Errorf("%q wrote outside", files[0])
		}
	}
}

func TestInstallUnknownVersion(t *testing.T) {
	if _, err := Install(t.Context(), "9"); err == nil || !strings.Contains(err.Error(), "12, 13, 14, 15, 16, 17, 18") {
		t.Errorf("error = %v", err)
	}
}
