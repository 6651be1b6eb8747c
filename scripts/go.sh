#!/bin/bash
# Prints the path of a Go toolchain that can build this module, installing Debian's package as root if the machine's own
# sources have one that is new enough. Otherwise it says what to install and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
want=$(sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' go.mod)

# A go from 1.21 on that is too old fetches the toolchain named in go.mod by itself, unless GOTOOLCHAIN=local.
usable() { (GOFLAGS='' "$1" list -m >/dev/null 2>&1); }

for go in go /usr/local/go/bin/go "$HOME/go/bin/go" "$HOME/sdk/go/bin/go" "/usr/lib/go-$want/bin/go"; do
	if path=$(command -v "$go") && usable "$path"; then
		echo "$path"
		exit 0
	fi
done
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
	echo "== no Go $want; looking for Debian's package golang-$want-go" >&2
	apt-get update -qq >&2
	if [ -n "$(apt-cache search --names-only "^golang-$want-go\$")" ]; then
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "golang-$want-go" ca-certificates >/dev/null
		if usable "/usr/lib/go-$want/bin/go"; then
			echo "/usr/lib/go-$want/bin/go"
			exit 0
		fi
	fi
fi
cat >&2 <<END
== Go $want or newer is needed and was not found (on the PATH, in /usr/local/go, or as Debian's golang-$want-go).
   Install it into /usr/local/go (go.dev/doc/install). Any Go from 1.21 on, such as the one in Debian's backports, will
   also do with GOTOOLCHAIN=auto: it then fetches the toolchain that go.mod names.
END
exit 1
