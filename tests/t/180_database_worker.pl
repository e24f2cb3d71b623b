# The processes that work in databases: when they come and go, whom they are in the way of, and what they may do. Their
# work here is writing translations into hymt_cache.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

# Without the first level, so that each translation is looked up and written.
my $node = hymt_node('main',
	conf => "hymt.cache = on\nhymt.cache_memory = 0\nmax_worker_processes = 12\nrestart_after_crash = on\n"
	  . "max_prepared_transactions = 2\n");

# How many database workers there are, in one database or all.
sub workers
{
	my ($database) = @_;
	my $where = defined $database ? " AND datname = '$database'" : '';

	return "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'hymt database worker'$where";
}

sub worker_pid
{
	my ($database) = @_;

	return $node->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE backend_type = 'hymt database worker' AND datname = '$database'");
}

# wait_until() in another database.
sub wait_in
{
	my ($database, $query, $expected, $name) = @_;
	my $until = time + 60;
	my $got;

	do
	{
		$got = $node->safe_psql($database, $query);
		return pass($name) if $got eq $expected;
		sleep 0.02;
	} while (time < $until);
	return is($got, $expected, $name);
}

# A translation, and its way into the table.
sub is_written
{
	my ($database, $text, $name) = @_;

	$node->safe_psql($database, translate($text));
	return wait_in($database, "SELECT count(*) FROM hymt_cache WHERE source = '$text'", '1', $name);
}

# From now on a worker that writes into the table of a database does so for a minute.
my $slow_trigger = <<'END';
CREATE OR REPLACE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END';
CREATE OR REPLACE TRIGGER slow BEFORE INSERT ON hymt_cache FOR EACH ROW EXECUTE FUNCTION slow();
END

sub hold_worker
{
	my ($database, $text) = @_;

	$node->safe_psql($database, $slow_trigger . translate($text));
	return ok( wait_until(
			$node,
			"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'hymt database worker'"
			  . " AND datname = '$database' AND wait_event = 'PgSleep'",
			'1'),
		"a worker is held in $database");
}

sub create_database
{
	my ($database) = @_;

	$node->safe_psql('postgres', qq{CREATE DATABASE "$database"});
	$node->safe_psql($database, 'CREATE EXTENSION hymt');
}

scenario 'with work it comes, without it goes' => sub {
	ok(wait_until($node, workers(), '0'), 'none is there');
	is_written('postgres', 'work', 'what was translated is in the table');
	wait_in('postgres', "SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'hymt_cache'", '1', 'autovacuum hears of it');
	ok(wait_until($node, workers(), '0'), 'it has gone');

	# Nothing polls: a process that sleeps without a timeout is not scheduled.
	my $launcher =
	  $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'hymt launcher'");
	my $switches = sub { slurp_file("/proc/$launcher/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m ? $1 : die };
	my $before = $switches->();
	sleep 2.5;
	is($switches->(), $before, 'the launcher sleeps');
	is($node->safe_psql('postgres', workers()), '0', 'and has started none');
};

scenario 'what was prepared' => sub {
	$node->safe_psql('postgres', "BEGIN; PREPARE TRANSACTION 'p'");
	is($node->safe_psql('postgres', workers()), '0', 'there is nothing to be done');
	$node->safe_psql('postgres', "COMMIT PREPARED 'p'");
	ok(wait_until($node, workers('postgres'), '1'), 'it is looked after once it is committed');
	$node->safe_psql('postgres', 'CREATE DATABASE without');
	$node->safe_psql('without', "BEGIN; PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'");
	ok(wait_until($node, workers(), '0'), 'the worker goes');
	$node->safe_psql('postgres', 'DROP DATABASE without');
};

scenario 'settings of others' => sub {
	create_database('set');
	$node->safe_psql('postgres', <<'END');
ALTER DATABASE set SET default_transaction_read_only = on;
ALTER DATABASE set SET default_transaction_isolation = serializable;
ALTER DATABASE set SET session_replication_role = replica;
ALTER DATABASE set SET exit_on_error = on;
ALTER DATABASE set SET search_path = nowhere;
ALTER DATABASE set SET lock_timeout = 1;
END
	$node->safe_psql('set', "SET default_transaction_read_only = off; SET search_path = public; CREATE TABLE seen (name text, value text);"
		  . "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN INSERT INTO public.seen SELECT name, setting FROM pg_settings"
		  . " WHERE name IN ('transaction_read_only', 'transaction_isolation', 'lock_timeout', 'synchronous_commit', 'exit_on_error'); RETURN NEW; END \$\$;"
		  . 'CREATE TRIGGER look BEFORE INSERT ON hymt_cache FOR EACH ROW EXECUTE FUNCTION look()');
	$node->safe_psql('set', 'SET search_path = public; ' . translate('set'));
	wait_in('set', 'SELECT string_agg(name || $$=$$ || value, $$ $$ ORDER BY name) FROM public.seen',
		'exit_on_error=off lock_timeout=0 synchronous_commit=off transaction_isolation=read committed transaction_read_only=off',
		'are not the worker\'s, which does not wait for the disk');
	$node->safe_psql('postgres', 'DROP DATABASE set');
};

scenario 'statements that need the database for themselves' => sub {
	create_database('first');
	hold_worker('first', 'held');
	my $since = time;
	$node->safe_psql('postgres', 'CREATE DATABASE second TEMPLATE first');
	cmp_ok(time - $since, '<', PROMPT_SECONDS, 'CREATE DATABASE … TEMPLATE');
	hold_worker('second', 'held');
	$node->safe_psql('postgres', 'ALTER DATABASE second RENAME TO third');
	ok(wait_until($node, workers('third'), '1'), 'its worker comes back to a database with another name');
	my $place = PostgreSQL::Test::Utils::tempdir();
	$node->safe_psql('postgres', "CREATE TABLESPACE place LOCATION '$place'");
	$node->safe_psql('postgres', 'ALTER DATABASE third SET TABLESPACE place');
	ok(wait_until($node, workers('third'), '1'), 'and to another tablespace');
	$node->safe_psql('postgres', 'DROP DATABASE third');
	$node->safe_psql('postgres', 'DROP DATABASE first WITH (FORCE)');
	ok(wait_until($node, workers(), '0'), 'no worker is left');
	is($node->safe_psql('postgres', "SELECT count(*) FROM pg_database WHERE datname IN ('first', 'second', 'third')"),
		'0', 'the databases are gone');
	$node->safe_psql('postgres', 'DROP TABLESPACE place');
};

scenario 'statements that fail' => sub {
	create_database('kept');
	hold_worker('kept', 'kept');
	my $pid = worker_pid('kept');
	$node->safe_psql('postgres', 'CREATE ROLE nobody');
	foreach my $statement ('DROP DATABASE kept', 'ALTER DATABASE kept RENAME TO mine', 'CREATE DATABASE mine TEMPLATE kept',
		'ALTER DATABASE kept SET TABLESPACE pg_global')
	{
		is(($node->psql('postgres', "SET ROLE nobody; $statement"))[0], 3, "$statement: not for everybody");
	}
	is(worker_pid('kept'), $pid, 'and disturbs no worker');

	# Somebody is connected: the statement waits for that in vain, and is cancelled.
	my $guest = background($node, 'SELECT pg_sleep(60)', database => 'kept');
	session_pid($node, $guest);
	my $drop = background($node, 'DROP DATABASE kept');
	ok(wait_until($node, workers('kept'), '0'), 'its worker leaves');
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . session_pid($node, $drop) . ')');
	finish($drop);
	is($drop->{err}, 'ERROR:  57014', 'it is cancelled');
	ok(wait_until($node, workers('kept'), '1'), 'then there is a worker again');

	$drop = background($node, 'DROP DATABASE kept');
	ok(wait_until($node, workers('kept'), '0'), 'it leaves again');
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . session_pid($node, $drop) . ')');
	finish($drop);
	ok(wait_until($node, workers('kept'), '1'), 'and is there when the session has ended');
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . session_pid($node, $guest) . ')');
	finish($guest);

	# Nobody may connect any more: nor does a worker.
	$node->safe_psql('postgres', 'ALTER DATABASE kept ALLOW_CONNECTIONS false');
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . worker_pid('kept') . ')');
	my $offset = -s $node->logfile;
	sleep 2.5;
	is($node->safe_psql('postgres', workers('kept')), '0', 'a database without connections has none');
	unlike(slurp_file($node->logfile, $offset), qr/not currently accepting connections/, 'and none tries');
	$node->safe_psql('postgres', 'DROP DATABASE kept');
};

scenario 'processes that end' => sub {
	create_database('ends');
	hold_worker('ends', 'not lost');
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . worker_pid('ends') . ')');
	$node->safe_psql('ends', 'DROP TRIGGER slow ON hymt_cache');
	wait_in('ends', "SELECT count(*) FROM hymt_cache WHERE source = 'not lost'", '1',
		'what a terminated worker was at is done by the next one');

	my $launchers = "SELECT max(pid) FROM pg_stat_activity WHERE backend_type = 'hymt launcher'";
	my $former = $node->safe_psql('postgres', $launchers);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($former)");
	ok(wait_for_end($former), 'the launcher is terminated');
	is_written('ends', 'without launcher', 'and comes back');
	ok(wait_until($node, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'hymt launcher'", '1'), 'soon');

	hold_worker('ends', 'with worker');
	$former = $node->safe_psql('postgres', $launchers);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($former)");
	ok(wait_until($node, "SELECT count(*) FROM ($launchers) AS l WHERE max <> $former", '1'), 'there is a new one');
	is($node->safe_psql('postgres', workers('ends')), '1', 'which starts no second worker');
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . worker_pid('ends') . ')');
	$node->safe_psql('ends', 'DROP TRIGGER slow ON hymt_cache');
	wait_in('ends', "SELECT count(*) FROM hymt_cache WHERE source = 'with worker'", '1', 'but one that is needed');
	$node->safe_psql('postgres', 'DROP DATABASE ends');
};

scenario 'the extension' => sub {
	my $offset = -s $node->logfile;
	$node->safe_psql('postgres', 'CREATE DATABASE former');
	$node->safe_psql('former', "CREATE EXTENSION hymt VERSION '0.1.0'");
	is($node->safe_psql('former', translate('before')), 'zh>en: before', 'a former version');
	ok(wait_until($node, workers('former'), '0'), 'has nothing to do for a worker');
	unlike(slurp_file($node->logfile, $offset), qr/ERROR|FATAL|WARNING/, 'that is no error');
	$node->safe_psql('former', 'ALTER EXTENSION hymt UPDATE');
	is_written('former', 'after', 'after the update it has');

	# Half dropped.
	my $drop = background($node, 'BEGIN; DROP EXTENSION hymt; SELECT pg_sleep(60)', database => 'former');
	my $pid = session_pid($node, $drop);
	ok(wait_until($node, "SELECT wait_event FROM pg_stat_activity WHERE pid = $pid", 'PgSleep'), 'it is being dropped');
	is($node->safe_psql('former', translate('meanwhile')), 'zh>en: meanwhile', 'a session translates');
	ok(wait_until($node, workers('former'), '1'), 'a worker comes');
	is($node->safe_psql('former', "SELECT count(*) FROM pg_locks WHERE NOT granted"), '0', 'and waits for no lock');
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	finish($drop);
	wait_in('former', "SELECT count(*) FROM hymt_cache WHERE source = 'meanwhile'", '1', 'it is not dropped after all');

	# The worker at work, and somebody who wants to drop the extension.
	$node->safe_psql('former', 'DROP EXTENSION hymt');
	is($node->safe_psql('former', 'CREATE EXTENSION hymt; ' . translate('again')), 'zh>en: again', 'it is made anew');
	wait_in('former', "SELECT count(*) FROM hymt_cache WHERE source = 'again'", '1', 'with its table');
	my $both = join ' ', map { "DROP EXTENSION hymt; CREATE EXTENSION hymt SCHEMA s$_; SET search_path = s$_;" . translate("s$_") . ';' } 1, 2;
	is($node->safe_psql('former', "CREATE SCHEMA s1; CREATE SCHEMA s2; $both"), "zh>en: s1\nzh>en: s2",
		'one session, several extensions');
	wait_in('former', "SELECT count(*) FROM s2.hymt_cache WHERE source = 's2'", '1', 'the last one has its row');
	$node->safe_psql('postgres', 'DROP DATABASE former');
};

scenario 'what fails' => sub {
	create_database('fails');
	$node->safe_psql('fails', <<'END');
CREATE FUNCTION check_it() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.source LIKE 'bad%' THEN RAISE EXCEPTION 'secret: %', NEW.source; END IF;
  IF NEW.source LIKE 'full%' THEN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_it BEFORE INSERT ON hymt_cache FOR EACH ROW EXECUTE FUNCTION check_it();
END
	my $offset = -s $node->logfile;
	$node->safe_psql('fails', "SELECT hymt_translate(t, 'zh', 'en') FROM unnest('{one, bad two, three, bad four, five}'::text[]) AS t");
	wait_in('fails', 'SELECT string_agg(source, $$, $$ ORDER BY source) FROM hymt_cache', 'five, one, three',
		'bad ones do not keep back the others');
	ok(wait_until($node, workers('fails'), '0'), 'and are not tried again');
	my $log = slurp_file($node->logfile, $offset);
	like($log, qr/table hymt_cache of database "fails" did not take .* translations/, 'the log tells');
	unlike($log, qr/secret/, 'without texts');

	$node->safe_psql('fails', translate('full'));
	ok(wait_until($node, workers('fails'), '0'), 'when the table cannot be written, the worker goes');
	is_written('postgres', 'elsewhere', 'others are written');
	$node->safe_psql('fails', 'DROP TRIGGER check_it ON hymt_cache');
	wait_in('fails', "SELECT count(*) FROM hymt_cache WHERE source = 'full'", '1', 'it is tried again after a while');
	$node->safe_psql('postgres', 'DROP DATABASE fails');
};

# Whoever owns the table has code run by a worker that is a superuser: as himself, and with a safe search_path.
scenario 'a hostile owner' => sub {
	create_database('hostile');
	$node->safe_psql('hostile', <<'END');
CREATE ROLE mallory;
ALTER TABLE hymt_cache OWNER TO mallory;
GRANT CREATE ON SCHEMA public TO mallory;
ALTER ROLE ALL IN DATABASE hostile SET search_path = public, pg_catalog;
SET ROLE mallory;
CREATE TABLE seen (who text, path text);
CREATE FUNCTION public.grab(text) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.seen VALUES (current_user, current_setting('search_path'));
  EXECUTE 'ALTER ROLE mallory SUPERUSER';
  RETURN 1;
EXCEPTION WHEN insufficient_privilege OR invalid_parameter_value THEN
  INSERT INTO public.seen VALUES (current_user, current_setting('search_path'));
  BEGIN
    EXECUTE 'RESET ROLE; RESET SESSION AUTHORIZATION; ALTER ROLE mallory SUPERUSER';
  EXCEPTION WHEN OTHERS THEN NULL;
  END;
  RETURN 1;
END $$;
CREATE FUNCTION public.grab() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM public.grab('');
  IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER grab BEFORE INSERT OR DELETE ON hymt_cache FOR EACH ROW EXECUTE FUNCTION grab();
CREATE FUNCTION public.index_grab(text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN public.grab($1); END';
CREATE INDEX ON hymt_cache (public.index_grab(source));
CREATE FUNCTION public.yes(bytea, bytea) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN PERFORM public.grab(''); RETURN true; END $$;
CREATE OPERATOR public.= (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = public.yes);
END
	$node->safe_psql('hostile', translate('steal'));
	wait_in('hostile', "SELECT count(*) > 0 FROM hymt_cache WHERE source = 'steal'", 't', 'the row is written');
	is($node->safe_psql('hostile', 'SELECT DISTINCT who, path FROM seen'), 'mallory|pg_catalog, pg_temp',
		'what the owner has attached to the table runs as the owner');
	is($node->safe_psql('hostile', 'SELECT hymt_cache_clear() > 0'), 't', 'a superuser clears the table');
	is($node->safe_psql('hostile', 'SELECT DISTINCT who, path FROM seen'), 'mallory|pg_catalog, pg_temp', 'with the same effect');
	is($node->safe_psql('hostile', "SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'"), 'f', 'he gained nothing');
	$node->safe_psql('postgres', 'DROP DATABASE hostile');
};

scenario 'more databases than workers' => sub {
	my @databases = map { "many$_" } 1 .. 12;
	create_database('held');
	$node->safe_psql('postgres', 'CREATE DATABASE many0');
	$node->safe_psql('many0', 'CREATE EXTENSION hymt');
	$node->safe_psql('postgres', "CREATE DATABASE $_ TEMPLATE many0") foreach @databases;
	hold_worker('held', 'held');
	$node->safe_psql($_, translate("in $_")) foreach @databases;
	wait_in($_, 'SELECT source FROM hymt_cache', "in $_", "$_ gets its turn") foreach @databases;
	is($node->safe_psql('postgres', workers('held')), '1', 'while one keeps its worker');
	$node->safe_psql('postgres', "DROP DATABASE $_") foreach 'held', 'many0', @databases;
};

scenario 'a crash' => sub {
	create_database('crash');
	hold_worker('crash', 'lost');
	my $victim = background($node, 'SELECT pg_sleep(60)');
	my $pid = session_pid($node, $victim);
	my $offset = -s $node->logfile;
	kill 'KILL', $pid;
	finish($victim);
	ok($node->wait_for_log(qr/ready to accept connections/, $offset), 'the server is back');
	wait_for_status($node, "state = 'ready'");
	$node->safe_psql('crash', 'DROP TRIGGER slow ON hymt_cache');
	is_written('crash', 'after the crash', 'and so is the launcher');
	is($node->safe_psql('crash', "SELECT count(*) FROM hymt_cache WHERE source = 'lost'"), '0', 'what was not written is not');
	$node->safe_psql('postgres', 'DROP DATABASE crash');
};

# What there is to be done at the start is seen by rows that are too old.
my $old_row = <<'END';
INSERT INTO hymt_cache VALUES ('\x00', '', '', 'zh', 'en', '', '', 'old', 'old', '', 0, 0, '2000-01-01', 1)
END

scenario 'the start of a server' => sub {
	$node->append_conf('postgresql.conf', 'hymt.cache_max_age = 1000');
	create_database($_) foreach 'named', 'Other, one';
	$node->safe_psql($_, $old_row) foreach 'named', 'Other, one';
	$node->restart;
	wait_in($_, 'SELECT count(*) FROM hymt_cache', '0', "$_ is looked into") foreach 'named', 'Other, one';
	ok(wait_until($node, workers(), '0'), 'the workers are gone');
	$node->append_conf('postgresql.conf', q{hymt.databases = 'nowhere, "Other, one"'});
	$node->safe_psql($_, $old_row) foreach 'named', 'Other, one';
	$node->restart;
	wait_in('Other, one', 'SELECT count(*) FROM hymt_cache', '0', 'the named one is looked into');
	ok(wait_until($node, workers(), '0'), 'the workers are gone');
	is($node->safe_psql('named', 'SELECT count(*) FROM hymt_cache'), '1', 'and no other');
	$node->append_conf('postgresql.conf', "hymt.databases = ''");
	$node->reload;
};

scenario 'a standby, and its promotion' => sub {
	$node->append_conf('postgresql.conf', "max_wal_senders = 5\nwal_level = replica");
	$node->restart;
	$node->backup('copy');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'copy', has_streaming => 1);
	$standby->start;
	watch($standby);
	ok(wait_until($standby, translate('on a standby'), 'zh>en: on a standby'), 'a standby translates');
	is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('hymt launcher', 'hymt database worker')"),
		'0', 'it has no launcher and no workers');
	$node->safe_psql('postgres', 'CREATE TABLE stamp (n int)');
	$node->stop;
	$standby->promote;
	ok(wait_until($standby, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'hymt launcher'", '1'),
		'once it is promoted it has');
	ok(wait_until($standby, translate('promoted'), 'zh>en: promoted'), 'it translates');
	ok(wait_until($standby, "SELECT source FROM hymt_cache WHERE source IN ('promoted', 'on a standby')", 'promoted'), 'and writes');
	$standby->stop;
};

scenario 'no process is to be had' => sub {
	$node->append_conf('postgresql.conf', 'max_worker_processes = 3');
	my $offset = -s $node->logfile;
	$node->start;
	ok(wait_until($node, translate('crowd'), 'zh>en: crowd'), 'sessions translate');
	ok($node->wait_for_log(qr/hymt: no background worker is left for work in a database/, $offset), 'the log tells');
	is($node->safe_psql('postgres', "SELECT count(*) FROM hymt_cache WHERE source = 'crowd'"), '0', 'nothing is written');
	my $count = () = slurp_file($node->logfile, $offset) =~ /no background worker is left/g;
	is($count, 1, 'it tells once');
	my $since = time;
	$node->safe_psql('postgres', 'DROP DATABASE named');
	cmp_ok(time - $since, '<', PROMPT_SECONDS, 'a database can be dropped');
};

$node->stop;
done_testing();
