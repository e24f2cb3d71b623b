# shellcheck shell=bash
#
# A private server for benchmarks: the installed hymt with the mock engine or a model. Sourced by bash, never run; callers
# have set -euo pipefail and defined `root`, the checkout.
#
# shellcheck source=scripts/lib/common.sh disable=SC2154
. "$root/scripts/lib/common.sh"

bench_dir=		# of the server that was started last
bench_dirs=()
bench_children=()

bench_finish()
{
	local status=$? child dir

	trap - EXIT
	for child in "${bench_children[@]:-}"; do
		[ -z "$child" ] || kill "$child" 2>/dev/null || true
	done
	for dir in "${bench_dirs[@]:-}"; do
		[ -n "$dir" ] || continue
		as_server "$PG_BIN/pg_ctl" -D "$dir/data" -m immediate -w stop >/dev/null 2>&1 || true
		rm -rf "$dir"
	done
	exit $status
}

# bench_start ENGINE MODEL [SETTING…]: starts a server; ENGINE and MODEL as in hymt.engine and hymt.model. Nothing is cached
# unless a setting says so, as what is measured is the work. Sets PGHOST,
# PGUSER, PGDATABASE for clients, which run as the caller. With several servers, bench_use says which one is meant.
bench_start()
{
	bench_cluster "$@"
	"$PG_BIN/psql" -Xqc 'CREATE EXTENSION hymt'
	bench_value "SELECT hymt_translate('这是第一个', 'zh', 'en')" >/dev/null
}

# bench_cluster …: the same without the extension.
bench_cluster()
{
	local engine=$1 model=$2
	shift 2

	find_postgres || fail "no PostgreSQL server with headers is installed; scripts/demo or scripts/test install one"
	[ -e "$("$PG_CONFIG" --pkglibdir)/hymt.so" ] || fail "hymt is not installed: make install"
	bench_dir=$(mktemp -d /var/tmp/hymt-bench.XXXXXX)
	bench_dirs+=("$bench_dir")
	trap bench_finish EXIT
	trap 'exit 130' INT TERM
	chmod 755 "$bench_dir"
	mkdir "$bench_dir/socket" "$bench_dir/models"
	if [ -n "$engine" ]; then
		cp "$engine" "$bench_dir/engine"
		engine=$bench_dir/engine
		mkdir "$bench_dir/models/$model"
		model=$bench_dir/models/$model
	fi
	if am_root; then
		chown -R postgres: "$bench_dir"
	fi
	as_server "$PG_BIN/initdb" -D "$bench_dir/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 -N >"$bench_dir/initdb.log" 2>&1 ||
		{ show_tail "$bench_dir/initdb.log"; fail "initdb failed"; }
	{
		printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$bench_dir/socket'" "fsync = off" \
			"max_connections = 200" "shared_preload_libraries = 'hymt'" "hymt.engine = '$engine'" "hymt.model = '$model'" \
			'hymt.cache = off' "$@"
	} | as_server tee -a "$bench_dir/data/postgresql.conf" >/dev/null
	as_server "$PG_BIN/pg_ctl" -D "$bench_dir/data" -l "$bench_dir/log" -w start >/dev/null 2>&1 ||
		{ show_tail "$bench_dir/log"; fail "the server did not start"; }
	export PGHOST=$bench_dir/socket PGUSER=postgres PGDATABASE=postgres
}

# bench_use DIR: clients talk to the server that had this bench_dir.
bench_use()
{
	export PGHOST=$1/socket
}

# The only value of a query.
bench_value()
{
	"$PG_BIN/psql" -XAtqc "$1"
}
