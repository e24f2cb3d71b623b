# shellcheck shell=bash
#
# What scripts/demo and scripts/test share: messages, long steps with progress, packages, the user a server runs as.
# Sourced by bash, never run. Callers have set -euo pipefail and defined `root`, the checkout.
#
# PostgreSQL refuses to run as root. Started by root, the scripts therefore run servers (and whatever talks to them) as
# the user "postgres" that Debian's package makes; started by anybody else, as that user, with sudo for the two things
# that need it: packages and `make install`.

# Nothing of the caller's own PostgreSQL settings may lead to another server than ours.
unset PGHOST PGHOSTADDR PGPORT PGUSER PGDATABASE PGDATA PGOPTIONS PGSERVICE PGSERVICEFILE PGPASSFILE PGAPPNAME PGSSLMODE
unset PGCLIENTENCODING PGTZ PGDATESTYLE
unset MAKEFLAGS MAKELEVEL MFLAGS
export LC_ALL=C.UTF-8
umask 022	# what is installed must be readable for the server's user

say()
{
	printf '%s\n' "$*"
}

# One line on stderr, then exit; the caller's EXIT trap undoes what was begun.
fail()
{
	printf '%s: %s\n' "$(basename "$0")" "$*" >&2
	exit 1
}

phase()
{
	printf '[%4d s] %s\n' "$SECONDS" "$*"
}

# Last lines of a log, indented, to stderr.
show_tail()
{
	tail -n "${2:-25}" "$1" 2>/dev/null | sed 's/^/    /' >&2
}

# A log's last line in short: of a compiler's command the file that it makes.
last_line()
{
	tail -n 1 "$1" | tr -d '\r' | sed -E 's/^(gcc|clang) .* -o ([^ ]+) .*/building \2/' | cut -c 1-100
}

step_pid=

# run_step LOG LABEL COMMAND…: runs it with its output in LOG; says every ten seconds that it is still going.
# Returns the command's status. The command must not be a function that exits.
run_step()
{
	local log=$1 label=$2 began=$SECONDS told=$SECONDS status=0
	shift 2

	phase "$label"
	"$@" >"$log" 2>&1 </dev/null &
	step_pid=$!
	while kill -0 "$step_pid" 2>/dev/null; do
		sleep 0.2
		if [ $((SECONDS - told)) -ge 10 ]; then
			told=$SECONDS
			printf '         … %d s: %s\n' $((SECONDS - began)) "$(last_line "$log")"
		fi
	done
	wait "$step_pid" || status=$?
	step_pid=
	return $status
}

# End a step under way; for traps.
stop_step()
{
	if [ -n "$step_pid" ]; then
		kill "$step_pid" 2>/dev/null || true
		wait "$step_pid" 2>/dev/null || true
		step_pid=
	fi
}

am_root()
{
	[ "$(id -u)" -eq 0 ]
}

# Run a command with root's rights.
as_root()
{
	if am_root; then
		"$@"
	else
		sudo "$@"
	fi
}

can_be_root()
{
	am_root || command -v sudo >/dev/null 2>&1
}

# The user that servers run as.
server_user()
{
	if am_root; then
		echo postgres
	else
		id -un
	fi
}

# Run a command as that user, from a folder that it can surely enter.
as_server()
{
	if am_root; then
		(cd / && exec runuser -u postgres -- env HOME=/var/lib/postgresql "$@")
	else
		(cd / && exec "$@")
	fi
}

# free_megabytes DIR: of its file system; DIR may not exist yet.
free_megabytes()
{
	local dir=$1

	while [ ! -d "$dir" ]; do
		dir=$(dirname "$dir")
	done
	df -Pk "$dir" | awk 'NR == 2 { print int($4 / 1024) }'
}

# need_space DIR MEGABYTES WHAT
need_space()
{
	local have

	have=$(free_megabytes "$1")
	[ "$have" -ge "$2" ] || fail "only $have MB free in $1, $3 needs $2 MB"
}

package_installed()
{
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# PG_CONFIG, PG_BIN (its programs) and PG_MAJOR of the newest PostgreSQL here that has a server and its headers, unless
# PG_CONFIG names one. False when there is none.
find_postgres()
{
	local candidate

	if [ -z "${PG_CONFIG:-}" ]; then
		for candidate in $(printf '%s\n' /usr/lib/postgresql/*/bin/pg_config | sort -rV); do
			if [ -x "$candidate" ] && [ -x "$(dirname "$candidate")/postgres" ] && [ -f "$("$candidate" --pgxs)" ]; then
				PG_CONFIG=$candidate
				break
			fi
		done
	fi
	[ -n "${PG_CONFIG:-}" ] || return 1
	PG_CONFIG=$(command -v "$PG_CONFIG") || fail "PG_CONFIG=$PG_CONFIG is no program"
	PG_BIN=$("$PG_CONFIG" --bindir)
	PG_MAJOR=$("$PG_CONFIG" --version | sed -E 's/^PostgreSQL ([0-9]+).*/\1/')
	[ "$PG_MAJOR" -ge 15 ] || fail "hymt needs PostgreSQL 15 or newer; $PG_CONFIG is of version $PG_MAJOR"
	export PG_CONFIG
}

apt_get()
{
	as_root env DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1 apt-get -q -y \
		-o Dpkg::Options::=--force-confold -o Acquire::Retries=3 "$@"
}

# Debian makes and starts a cluster of its own with the server package. Nobody asked for one, so it is told not to;
# the setting goes back to Debian's own afterwards. A machine that has postgresql-common already keeps its settings.
createcluster=/etc/postgresql-common/createcluster.conf
held_back=0
hold_back_main_cluster()
{
	if ! package_installed postgresql-common && [ ! -e $createcluster ]; then
		as_root mkdir -p "$(dirname $createcluster)"
		echo 'create_main_cluster = false' | as_root tee $createcluster >/dev/null
		held_back=1
	fi
}

release_main_cluster()
{
	if [ $held_back = 1 ]; then
		held_back=0
		if [ -f /usr/share/postgresql-common/createcluster.conf ]; then
			as_root cp /usr/share/postgresql-common/createcluster.conf $createcluster
		else
			as_root rm -f $createcluster
		fi
	fi
}

# need_packages LOG PACKAGE…: installs what is missing, saying what. The names POSTGRES and POSTGRES_DEV stand for the
# server and its headers, in the version that is here already or else Debian's own.
need_packages()
{
	local log=$1 name missing=() wanted=() version=
	shift

	if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
		fail "this script installs what it needs with apt-get, which is not here; README tells how to build by hand"
	fi
	if find_postgres; then
		version=$PG_MAJOR
	fi
	for name in "$@"; do
		case $name in
			POSTGRES*) [ -n "$version" ] || missing+=("$name") ;;
			*) package_installed "$name" || missing+=("$name") ;;
		esac
	done
	[ ${#missing[@]} -gt 0 ] || return 0

	can_be_root || fail "packages are missing (${missing[*]}) and only root or sudo can install them"
	need_space /usr 1500 "installing Debian packages"
	am_root || sudo -v || fail "sudo refused; the packages need root's rights"
	run_step "$log" "Reading Debian's package lists" apt_get update ||
		{ show_tail "$log" 5; fail "apt-get update failed; see $log"; }
	if [ -z "$version" ]; then
		version=$(apt-cache depends postgresql | sed -nE 's/^ *Depends: postgresql-([0-9]+)$/\1/p' | head -n 1)
		[ -n "$version" ] || fail "Debian's package lists know no PostgreSQL"
	fi
	for name in "${missing[@]}"; do
		case $name in
			POSTGRES) wanted+=("postgresql-$version") ;;
			POSTGRES_DEV) wanted+=("postgresql-server-dev-$version") ;;
			*) wanted+=("$name") ;;
		esac
	done
	say "         Debian packages: ${wanted[*]}"
	hold_back_main_cluster
	if ! run_step "$log" "Installing ${#wanted[@]} Debian packages and what they need" \
		apt_get install --no-install-recommends "${wanted[@]}"; then
		release_main_cluster
		show_tail "$log" 5
		fail "apt-get install failed; see $log"
	fi
	release_main_cluster
	find_postgres || fail "PostgreSQL's server headers are still missing after installing their package"
}

# What the build needs; the two sides of hymt use these libraries.
# shellcheck disable=SC2034
build_packages=(gcc g++ make pkg-config libc6-dev libjansson-dev libmd-dev libpcre2-dev libsentencepiece-dev libutf8proc-dev POSTGRES POSTGRES_DEV)

processors()
{
	nproc 2>/dev/null || echo 1
}

# make_quietly LOG LABEL DIR ARGUMENT…: make there, or show why not and return 1. No bitcode is built: it would need
# LLVM and serves nothing here.
make_quietly()
{
	local log=$1 label=$2 dir=$3
	shift 3

	run_step "$log" "$label" make -C "$dir" -j "$(processors)" PG_CONFIG="$PG_CONFIG" with_llvm=no "$@"
}

# Value for postgresql.conf.
quote_setting()
{
	printf "'%s'" "${1//\'/\'\'}"
}

# sql_as_server SOCKET_DIR PORT DATABASE ARGUMENT…: psql, plain output, stops at the first error.
sql_as_server()
{
	local dir=$1 port=$2 database=$3
	shift 3

	as_server "$PG_BIN/psql" -X -q -v ON_ERROR_STOP=1 -h "$dir" -p "$port" -U postgres -d "$database" "$@"
}
