#!/bin/bash
# Installs the named things if they are missing: scripts/install.sh postgresql npm psycopg …
# As root (or with sudo that asks nothing) on Debian and its kin it uses apt-get; elsewhere it says what to install and
# fails. Fencepost itself needs none of this: it is for tests, the demo and the benchmarks.
set -euo pipefail

say() { printf '== %s\n' "$*"; }

have_postgresql() { compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; }
have_npm() { # wanted only for the PostgreSQL versions that the system lacks
	command -v npm >/dev/null && return
	local v
	for v in 12 14 15 16 17 18; do
		[ -x "/usr/lib/postgresql/$v/bin/postgres" ] || return 1
	done
}
have_gcc() { command -v gcc >/dev/null; }
have_git() { command -v git >/dev/null; }
have_psycopg() { /usr/bin/python3 -c 'import psycopg' 2>/dev/null; }
have_make() { command -v make >/dev/null; }
have_iproute2() { command -v ip >/dev/null; }
have_iptables() { command -v iptables-restore >/dev/null; }
have_ca-certificates() { [ -s /etc/ssl/certs/ca-certificates.crt ] || [ -n "${SSL_CERT_FILE:-}" ]; }

packages_of() {
	case $1 in
	postgresql) echo postgresql postgresql-client ;;
	npm) echo npm ;;
	gcc) echo gcc libc6-dev ;;
	psycopg) echo python3 python3-psycopg ;;
	*) echo "$1" ;;
	esac
}

missing=() packages=()
for thing in "$@"; do
	if ! "have_$thing"; then
		missing+=("$thing")
		# shellcheck disable=SC2207 # names without blanks
		packages+=($(packages_of "$thing"))
	fi
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
	if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
		as_root=(sudo -n)
	else
		say "missing: ${missing[*]}. As root: apt-get install --no-install-recommends ${packages[*]}" >&2
		exit 1
	fi
fi
if ! command -v apt-get >/dev/null; then
	say "missing: ${missing[*]}. This is not a Debian-like system; install them with its own package manager." >&2
	exit 1
fi

say "installing ${missing[*]} (apt-get)"
log=$(mktemp)
# Debian's package would start a server of its own on port 5432; nobody asked for that.
no_cluster=/etc/postgresql-common/createcluster.d/fencepost-install.conf
clean() {
	rm -f "$log"
	"${as_root[@]}" rm -f "$no_cluster"
}
trap clean EXIT
if [[ " ${missing[*]} " == *" postgresql "* ]]; then
	"${as_root[@]}" mkdir -p "${no_cluster%/*}"
	echo 'create_main_cluster = false' | "${as_root[@]}" tee "$no_cluster" >/dev/null
fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >"$log" 2>&1 || {
	status=$?
	tail -n 20 "$log" >&2
	exit $status
}
for thing in "${missing[@]}"; do
	"have_$thing" || { say "$thing is still missing after the installation" >&2; exit 1; }
done
say "installed ${missing[*]}"
