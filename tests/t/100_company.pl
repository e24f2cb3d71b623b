# In company: other preloaded libraries, compiled and parallel plans, prepared statements, pgbouncer, other encodings,
# schemas and roles.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

$ENV{PGCLIENTENCODING} = 'UTF8';

my $node = hymt_node('company', conf => "max_worker_processes = 16\n");

# The output of statements, or the error.
sub outcome
{
	my ($sql, %option) = @_;
	my $session = finish(background($node, $sql, %option));

	return "$session->{out}$session->{err}";
}

sub is_translating
{
	my ($name, %option) = @_;

	return is(outcome(translate($name), %option), "zh>en: $name", "$name: translates");
}

# --- other libraries ----------------------------------------------------------------------------------------------

my $libraries = $node->safe_psql('postgres', q(SELECT setting FROM pg_config WHERE name = 'PKGLIBDIR'));
my @others = grep { -e "$libraries/$_.so" } ('pg_stat_statements', 'auto_explain', 'pg_cron');
my $company = <<'END';
auto_explain.log_min_duration = 0
auto_explain.log_analyze = on
auto_explain.log_nested_statements = on
cron.database_name = 'postgres'
END

foreach my $order ([ @others, 'hymt' ], [ 'hymt', reverse @others ])
{
	my $list = join ', ', @$order;

	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$list'\n$company");
	$node->restart;
	scenario "preloaded: $list" => sub {
		my $identity = server_identity($node);

		foreach my $library (@others)
		{
			next if $library eq 'auto_explain';
			is(outcome("CREATE EXTENSION IF NOT EXISTS $library; SELECT 'made'"), 'made', "$library is made");
		}
		is_translating($list);
		if (grep { $_ eq 'pg_stat_statements' } @others)
		{
			is( outcome('SELECT pg_stat_statements_reset() IS NULL; ' . translate('counted') . '; ' . translate('again')
					  . q(; SELECT calls, rows FROM pg_stat_statements WHERE query LIKE 'SELECT hymt_translate%';)
					  . q(SELECT count(*) FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'
							AND query NOT LIKE 'SELECT hymt_translate%')),
				"f\nzh>en: counted\nzh>en: again\n2|2\n0", 'statements are counted, and nothing but statements');
		}
		is_undisturbed($node, $identity, $list);
	};
}
# pg_cron of some versions keeps databases from being dropped, which is not to be tested here.
my $list = join ', ', 'hymt', grep { $_ ne 'pg_cron' } @others;
$node->append_conf('postgresql.conf', "shared_preload_libraries = '$list'\nauto_explain.log_min_duration = -1");
$node->restart;
my $identity = server_identity($node);

# --- plans --------------------------------------------------------------------------------------------------------

$node->safe_psql('postgres', <<'END');
CREATE TABLE titles (id int, title text, filler text) WITH (parallel_workers = 3);
INSERT INTO titles SELECT i, 'title ' || i, repeat('x', 800) FROM generate_series(1, 600) AS i;
ANALYZE titles;
END
my $wrong = "SELECT count(*), count(*) FILTER (WHERE t IS DISTINCT FROM 'zh>en: title ' || id)"
  . " FROM (SELECT id, hymt_translate(title, 'zh', 'en') AS t FROM titles) AS s";

scenario 'compiled' => sub {
	note('JIT is available: ' . $node->safe_psql('postgres', 'SELECT pg_jit_available()'));
	my $jit = 'SET jit = on; SET jit_above_cost = 0; SET jit_inline_above_cost = 0; SET jit_optimize_above_cost = 0;';

	is(outcome("$jit $wrong"), '600|0', 'all are right');
	is( outcome("$jit SELECT hymt_translate('mock:fail internal', 'zh', 'en') FROM titles"),
		'ERROR:  MT003', 'an error is an error');
};

my $parallel = 'SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET max_parallel_workers_per_gather = 3;'
  . ' SET parallel_leader_participation = off;';
scenario 'parallel' => sub {
	my $mode = $node->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';

	is(outcome("SET $mode = on; " . translate('alone in a worker')), 'zh>en: alone in a worker', "$mode = on");
	like(outcome("$parallel EXPLAIN (ANALYZE, COSTS off, TIMING off) $wrong"),
		qr/Workers Launched: [123].*Parallel Seq Scan on titles/s, 'a parallel plan');
	is(outcome("$parallel $wrong"), '600|0', 'all are right');
	is( outcome("$parallel SELECT count(hymt_translate(CASE id WHEN 500 THEN 'mock:fail internal' ELSE title END,"
			  . " 'zh', 'en')) FROM titles"),
		'ERROR:  MT003', "a worker's error is the statement's");
	is( outcome("$parallel CREATE TABLE made AS SELECT hymt_translate(title, 'zh', 'en') AS t FROM titles;"
			  . " SELECT count(DISTINCT t), min(t) FROM made; DROP TABLE made"),
		'600|zh>en: title 1', 'CREATE TABLE AS');
};

scenario 'prepared and in cursors' => sub {
	foreach my $mode ('auto', 'force_generic_plan', 'force_custom_plan')
	{
		my $execute = join '', map { "EXECUTE p('word $_', 'zh');\n" } 1 .. 7;

		is( outcome("SET plan_cache_mode = $mode; PREPARE p(text, text) AS SELECT hymt_translate(\$1, \$2, 'en');\n$execute"),
			join("\n", map { "zh>en: word $_" } 1 .. 7), $mode);
	}
	is(outcome(<<'END'), "zh>en: title 1\nzh>en: title 2\nzh>en: title 1\nzh>en: title 600", 'a cursor that scrolls');
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT hymt_translate(title, 'zh', 'en') FROM titles ORDER BY id;
FETCH NEXT FROM c;
FETCH NEXT FROM c;
FETCH PRIOR FROM c;
FETCH LAST FROM c;
COMMIT;
END
	is(outcome(<<'END'), 'zh>en: title 7', 'a function of a materialised expression');
WITH w AS MATERIALIZED (SELECT id, hymt_translate(title, 'zh', 'en') AS t FROM titles WHERE id < 10)
SELECT t FROM w WHERE id = 7;
END
};

# --- pgbouncer ----------------------------------------------------------------------------------------------------

my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin', '/usr/local/sbin';

scenario 'pgbouncer in transaction mode' => sub {
  SKIP:
	{
		skip 'pgbouncer is not installed', 1 unless defined $pgbouncer;

		my $directory = PostgreSQL::Test::Utils::tempdir_short();
		my $port = PostgreSQL::Test::Cluster::get_free_port();
		my $host = $node->host;
		my $server_port = $node->port;

		append_to_file("$directory/pgbouncer.ini", <<"END");
[databases]
postgres = host=$host port=$server_port dbname=postgres
[pgbouncer]
listen_addr =
listen_port = $port
unix_socket_dir = $directory
auth_type = trust
auth_file = $directory/users
logfile = $directory/log
pool_mode = transaction
default_pool_size = 2
END
		my $user = $node->safe_psql('postgres', 'SELECT current_user');
		append_to_file("$directory/users", "\"$user\" \"\"\n");
		my $log = '';
		my $bouncer = IPC::Run::start([ $pgbouncer, "$directory/pgbouncer.ini" ], '>&', \$log);
		my %through = (connstr => "host=$directory port=$port dbname=postgres");
		for (1 .. 250)
		{
			last if -S "$directory/.s.PGSQL.$port";
			usleep(20_000);
		}

		my @sessions = map { background($node, <<"END", %through) } 1 .. 6;
BEGIN;
SELECT hymt_translate('first of $_', 'zh', 'en');
SAVEPOINT s;
SELECT hymt_translate('second of $_', 'zh', 'en');
COMMIT;
SELECT hymt_translate('third of $_', 'zh', 'en');
END
		foreach my $i (1 .. 6)
		{
			my $session = finish($sessions[ $i - 1 ]);
			is("$session->{out}$session->{err}",
				join("\n", map { "zh>en: $_ of $i" } ('first', 'second', 'third')), "session $i of 6 on two connections");
		}
		is( outcome("BEGIN; SET LOCAL statement_timeout = 200; " . translate('mock:sleep 30'), %through),
			'ERROR:  57014', 'a timeout');
		is(outcome(translate('after it'), %through), 'zh>en: after it', 'the connection is used again');

		my $vanishing = background($node, translate('mock:sleep 30'), %through);
		wait_for_slots($node, 1);
		$vanishing->{run}->kill_kill;
		my $since = time;
		finish($vanishing);
		ok(wait_for_slots($node, 0), sprintf('a client that vanished: after %.0f ms', (time - $since) * 1000));
		$bouncer->kill_kill;
	}
};

# --- databases ----------------------------------------------------------------------------------------------------

scenario 'encodings' => sub {
	foreach my $encoding ('LATIN1', 'EUC_CN', 'SQL_ASCII')
	{
		my $database = lc $encoding;

		$node->safe_psql('postgres', <<"END");
CREATE DATABASE $database TEMPLATE template0 ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C'
END
		$node->safe_psql($database, 'CREATE EXTENSION hymt');
	}
	is(outcome(translate('café'), database => 'latin1'), 'zh>en: café', 'LATIN1: there and back');
	is( outcome("SELECT octet_length(hymt_translate('café', 'fr', 'en'))", database => 'latin1'),
		'11', 'LATIN1: in LATIN1');
	is(outcome(translate('mock:chinese'), database => 'latin1'), 'ERROR:  22P05', 'LATIN1: an answer that it lacks');
	is( outcome("SELECT hymt_translate('mock:chinese', 'en', 'zh', on_error => 'source')", database => 'latin1'),
		'mock:chinese', 'LATIN1: is a failed translation');
	is(outcome(translate('自行车'), database => 'euc_cn'), 'zh>en: 自行车', 'EUC_CN: there and back');
	is( outcome("SELECT octet_length(hymt_translate('自行车', 'zh', 'en'))", database => 'euc_cn'),
		'13', 'EUC_CN: in EUC_CN');
	is(outcome(translate('mock:chinese'), database => 'euc_cn'), '自行车', 'EUC_CN: an answer in Chinese');
	is(outcome("SET client_encoding = SQL_ASCII; " . translate('自行车'), database => 'sql_ascii'),
		'zh>en: 自行车', 'SQL_ASCII: UTF-8 passes');
	is(outcome("SELECT hymt_translate(E'word \\xff', 'zh', 'en')", database => 'sql_ascii'),
		'ERROR:  22021', 'SQL_ASCII: nothing else does');
	foreach my $database ('latin1', 'euc_cn', 'sql_ascii')
	{
		isnt(outcome('SELECT state, model FROM hymt_status', database => $database), '', "$database: hymt_status");
		$node->safe_psql('postgres', "DROP DATABASE $database");
	}
};

$node->safe_psql('postgres', 'CREATE DATABASE shop');
$node->safe_psql('shop', <<'END');
CREATE SCHEMA "The other";
CREATE EXTENSION hymt SCHEMA "The other";
CREATE TABLE public.products (title text, title_en text);
CREATE TRIGGER translate_title BEFORE INSERT OR UPDATE ON public.products FOR EACH ROW
  EXECUTE FUNCTION "The other".hymt_translate_trigger('title', 'title_en', 'zh', 'en');
CREATE ROLE seller;
CREATE ROLE stranger;
CREATE ROLE watcher;
GRANT pg_monitor TO watcher;
GRANT USAGE ON SCHEMA "The other" TO seller, stranger, watcher;
GRANT INSERT, SELECT ON public.products TO seller;
GRANT EXECUTE ON FUNCTION "The other".hymt_translate(text, text, text, text, text, text, text, jsonb) TO seller;
END

scenario 'another schema and no search_path' => sub {
	my %in = (database => 'shop');

	is( outcome(q(SET search_path = ''; SELECT "The other".hymt_translate('word', 'zh', 'en')), %in),
		'zh>en: word', 'a call');
	is(outcome(q(SET search_path = ''; SELECT status FROM "The other".hymt_translate_details('word', 'zh', 'en')), %in),
		'translated', 'details');
	is(outcome(q(SET search_path = ''; SELECT count(*) FROM "The other".hymt_languages()), %in), '38', 'languages');
	is(outcome(q(SET search_path = ''; SELECT state FROM "The other".hymt_status), %in), 'ready', 'status');
	is(outcome(q(SET search_path = ''; SELECT ok FROM "The other".hymt_health()), %in), 't', 'health');
	is( outcome(q(SET search_path = ''; INSERT INTO public.products VALUES ('bike') RETURNING title_en), %in),
		'zh>en: bike', 'the trigger');
	is(outcome(translate('word'), %in), 'ERROR:  42883', 'it is nowhere else');
};

scenario 'privileges' => sub {
	my %in = (database => 'shop');
	my $call = q(SELECT "The other".hymt_translate('word', 'zh', 'en'));

	is(outcome("SET ROLE stranger; $call", %in), 'ERROR:  42501', 'a role without a grant may not translate');
	is(outcome("SET ROLE seller; $call", %in), 'zh>en: word', 'one with a grant may');
	is(outcome(q(SET ROLE seller; INSERT INTO products VALUES ('pan') RETURNING title_en), %in),
		'zh>en: pan', "a trigger needs no grant but the table's");
	foreach my $relation ('hymt_status', 'hymt_stat', 'hymt_stat_activity')
	{
		is(outcome(qq(SET ROLE seller; SELECT count(*) FROM "The other".$relation), %in), 'ERROR:  42501',
			"$relation: not for everybody");
	}
	is( outcome(q(SET ROLE watcher; SELECT state FROM "The other".hymt_status), %in),
		'ready', 'hymt_status: for pg_monitor');
	foreach my $setting ('hymt.model', 'hymt.engine')
	{
		is(outcome("SET ROLE seller; SHOW $setting", %in), 'ERROR:  42501', "$setting is not for everybody to see");
	}
	is(outcome("SET ROLE seller; SET hymt.queue_timeout = '1s'; $call", %in), 'zh>en: word', 'hymt.queue_timeout is');
};

scenario 'dump and restore' => sub {
	my $script = $node->basedir . '/shop.sql';
	my $archive = $node->basedir . '/shop.dump';
	my $before = status($node, 'requests');

	$node->command_ok([ 'pg_dump', '-d', $node->connstr('shop'), '-f', $script ], 'pg_dump, plain');
	$node->command_ok([ 'pg_dump', '-d', $node->connstr('shop'), '-Fc', '-f', $archive ], 'pg_dump, custom');
	$node->safe_psql('postgres', "CREATE DATABASE $_") foreach ('plain', 'custom');
	$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('plain'), '-f', $script ], 'psql');
	$node->command_ok([ 'pg_restore', '-e', '-d', $node->connstr('custom'), $archive ], 'pg_restore');
	is(status($node, 'requests'), $before, 'no text was translated anew');
	unlike(slurp_file($script), qr/hymt_translation|CREATE (VIEW|FUNCTION)/, 'the dump has the extension by name only');
	foreach my $database ('plain', 'custom')
	{
		my %in = (database => $database);

		is(outcome('SELECT * FROM products ORDER BY title', %in), "bike|zh>en: bike\npan|zh>en: pan", "$database: rows");
		is(outcome(q(INSERT INTO products VALUES ('new') RETURNING title_en), %in), 'zh>en: new', "$database: the trigger");
		is(outcome(q(SET ROLE seller; SELECT "The other".hymt_translate('word', 'zh', 'en')), %in), 'zh>en: word',
			"$database: the grant");
		is(outcome(q(SET ROLE stranger; SELECT "The other".hymt_translate('word', 'zh', 'en')), %in), 'ERROR:  42501',
			"$database: no other");
	}
};

is_undisturbed($node, $identity, 'in the end');
$node->stop;
done_testing();
