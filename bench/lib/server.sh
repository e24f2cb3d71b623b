# shellcheck shell=bash
#
# A private server for benchmarks: the installed hymt with the mock engine or a model. Sourced by bash, never run; callers
# have set -euo pipefail and defined `root`, the checkout.
#
# shellcheck source=scripts/lib/common.sh disable=SC2154
. "$root/scripts/lib/common.sh"

bench_dir=
bench_children=()

bench_finish()
{
	local status=$? child

	trap - EXIT
	for child in "${bench_children[@]:-}"; do
		[ -z "$child" ] || kill "$child" 2>/dev/null || true
	done
	if [ -n "$bench_dir" ]; then
		as_server "$PG_BIN/pg_ctl" -D "$bench_dir/data" -m immediate -w stop >/dev/null 2>&1 || true
		rm -rf "$bench_dir"
	fi
	exit $status
}

# bench_start ENGINE MODEL [SETTING…]: starts a server; ENGINE and MODEL as in hymt.engine and hymt.model. Nothing is cached
# unless a setting says so, as what is measured is the work. Sets PGHOST,
# PGPORT, PGUSER, PGDATABASE for clients, which run as the caller.
bench_start()
{
	local engine=$1 model=$2
	shift 2

	find_postgres || fail "no PostgreSQL server with headers is installed; scripts/demo or scripts/test install one"
	[ -e "$("$PG_CONFIG" --pkglibdir)/hymt.so" ] || fail "hymt is not installed: make install"
	bench_dir=$(mktemp -d /var/tmp/hymt-bench.XXXXXX)
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
	"$PG_BIN/psql" -Xqc 'CREATE EXTENSION hymt'
	bench_value "SELECT hymt_translate('这是第一个', 'zh', 'en')" >/dev/null
}

# The only value of a query.
bench_value()
{
	"$PG_BIN/psql" -XAtqc "$1"
}
