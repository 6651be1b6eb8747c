package debian

import (
	"slices"
	"testing"
)

func TestMirrorIsTheReleasesOwn(t *testing.T) {
	targets := "http://mirror.example/debian-security/ bookworm-security main\n" +
		"http://vendor.example/deb/ bookworm contrib\n" +
		"http://mirror.example/debian/ bookworm main\n"
	if got := mirrorFrom(targets, "bookworm"); got != "http://mirror.example/debian/" {
		t.Errorf("mirror %q", got)
	}
	if got := mirrorFrom(targets, ""); got != "" {
		t.Errorf("without a codename: %q", got)
	}
	release := "NAME=\"Debian GNU/Linux\"\nVERSION_CODENAME=bookworm\nID=debian\n"
	if osReleaseField(release, "VERSION_CODENAME") != "bookworm" || osReleaseField(release, "ID") != "debian" {
		t.Error("os-release is not understood")
	}
}

func TestLibraryPackages(t *testing.T) {
	plan := "Reading package lists...\nInst libc6 (2.41-12 Debian:13/stable [amd64])\nInst libjson-perl (4.1 Debian [all])\n" +
		"Inst perl-base (5.40 Debian [amd64])\nInst zlib1g (1.3 Debian [amd64])\nInst pgbouncer (1.24 Debian [amd64])\nConf libc6 (2.41-12)\n"
	if got, want := libraryPackages(plan, "pgbouncer"), []string{"libc6", "zlib1g", "pgbouncer"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestRecent(t *testing.T) {
	p := Program{Oldest: [2]int{1, 21}}
	for version, want := range map[string]bool{
		"PgBouncer 1.18.0": false, "PgBouncer 1.20.1": false, "PgBouncer 1.21.0": true, "PgBouncer 1.25.2": true,
		"PgBouncer 2.0.0": true, "nothing": false,
	} {
		if got := p.recent(version); got != want {
			t.Errorf("%s recent enough: %v", version, got)
		}
	}
}
