package main

import "testing"

func TestPgBouncerVersion(t *testing.T) {
	out := "PgBouncer 1.25.2\nlibevent 2.1.12-stable\nadns: c-ares 1.34.8\ntls: OpenSSL 3.5.4 30 Sep 2025\nsystemd: yes\n"
	if got, want := pgbouncerVersion(out), "PgBouncer 1.25.2 (libevent 2.1.12-stable, OpenSSL 3.5.4)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
