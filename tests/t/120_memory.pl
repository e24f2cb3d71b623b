# Backend, worker and engine use no more memory after many calls than after a few. HYMT_TEST_CALLS says how many; a
# million takes some minutes.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $calls = $ENV{HYMT_TEST_CALLS} // 50_000;
# What may be added to a process by the way: a leak of 100 bytes per call would be twice as much.
my $limit_kb = 2048;

my $node = hymt_node('memory', model => 'mock-step-0', conf => "log_statement = none\n");
my $identity = server_identity($node);

# A session that does what it is told, line by line, and keeps its process.
my ($in, $out) = ('', '');
my $session = IPC::Run::start([ 'psql', '-XAtq', '-v', 'VERBOSITY=sqlstate', '-d', $node->connstr('postgres') ],
	'<', \$in, '>', \$out, '2>', \my $err);

sub ask
{
	my ($sql) = @_;
	my $until = time + 600;

	$out = '';
	$in .= "$sql;\n\\echo done\n";
	while ($out !~ /^done$/m)
	{
		$session->pump_nb;
		usleep(2_000);
		die "no answer to: $sql" if time > $until;
	}
	$out =~ s/^done\n//m;
	chomp $out;
	return $out;
}

my $backend = ask('SELECT pg_backend_pid()');
my ($worker, $engine) = split /\|/, status($node, 'worker_pid, engine_pid');

sub used
{
	return map { anonymous_kb($_) } ($backend, $worker, $engine);
}

# Runs something a few times, then often, and compares.
sub is_flat
{
	my ($name, $few, $often) = @_;

	ask($few) for 1 .. 3;
	my @before = used();
	my $since = time;
	ask($often);
	my @after = used();
	my @growth = map { $after[$_] - $before[$_] } 0 .. 2;

	note(sprintf('%s: %.1f s; kB: backend %d %+d, worker %d %+d, engine %d %+d',
			$name, time - $since, map { ($before[$_], $growth[$_]) } 0 .. 2));
	cmp_ok($growth[0], '<', $limit_kb, "$name: backend");
	cmp_ok($growth[1], '<', $limit_kb, "$name: worker");
	cmp_ok($growth[2], '<', $limit_kb, "$name: engine");
	is($err, '', "$name: no error");
	return;
}

# By another session, whose memory does not matter. No set-returning function is called in FROM below, because that
# keeps its rows in memory.
$node->safe_psql('postgres', <<"END");
CREATE TABLE many AS SELECT i FROM generate_series(1, $calls) AS i;
ANALYZE many;
END
$node->safe_psql('postgres', <<'END');
CREATE TABLE texts (id int, plain text, large text);
INSERT INTO texts SELECT i, 'text ' || i, repeat(md5(i::text), 400) FROM generate_series(1, 100) AS i;
ALTER TABLE texts ALTER large SET STORAGE external;
CREATE FUNCTION failures(times int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. times LOOP
		BEGIN
			PERFORM hymt_translate('mock:fail internal', 'zh', 'en');
		EXCEPTION WHEN OTHERS THEN
			IF SQLSTATE <> 'MT003' THEN RAISE; END IF;
		END;
	END LOOP;
END $$;
CREATE FUNCTION timeouts(times int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. times LOOP
		BEGIN
			PERFORM set_config('hymt.queue_timeout', '0', true);
			PERFORM pg_cancel_backend(pg_backend_pid()), hymt_translate('mock:sleep 30', 'zh', 'en');
		EXCEPTION WHEN query_canceled THEN
		END;
	END LOOP;
END $$;
CREATE FUNCTION looks(times int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. times LOOP
		PERFORM * FROM hymt_status;
	END LOOP;
END $$;
CREATE FUNCTION loops(times int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE last text;
BEGIN
	FOR i IN 1 .. times LOOP
		last := hymt_translate('text ' || i, 'zh', 'en');
	END LOOP;
	RETURN last;
END $$
END
# A compiler in the process would take more than any leak.
ask('SET jit = off; SET max_parallel_workers_per_gather = 0');

scenario 'calls in one statement' => sub {
	is_flat(
		"$calls calls",
		"SELECT count(hymt_translate('text ' || i, 'zh', 'en')) FROM many WHERE i % 50 = 0",
		"SELECT count(hymt_translate('text ' || i, 'zh', 'en')) FROM many");
};

scenario 'other ways to call' => sub {
	my $times = $calls / 10;

	is_flat('PL/pgSQL', 'SELECT loops(100)', "SELECT loops($times)");
	is_flat('texts out of line', <<'END', <<"END");
SELECT count(length(hymt_translate(large, 'zh', 'en'))) FROM texts
END
SELECT count(length(hymt_translate(large, 'zh', 'en'))) FROM texts, (SELECT FROM many LIMIT $times / 500) AS m
END
	is_flat(
		'details',
		"SELECT count(hymt_translate_details(plain, 'zh', 'en')) FROM texts",
		"SELECT count(hymt_translate_details(plain, 'zh', 'en')) FROM texts, (SELECT FROM many LIMIT $times / 100) AS m");
	is_flat(
		'documents',
		"SELECT count(hymt_translate_json(jsonb_build_array(plain, id), 'zh', 'en', '{0}')) FROM texts",
		"SELECT count(hymt_translate_json(jsonb_build_array(plain, id), 'zh', 'en', '{0}')) FROM texts, (SELECT FROM many LIMIT $times / 100) AS m");
	is_flat('failures', 'SELECT failures(100)', "SELECT failures($times / 2)");
	is_flat('cancelled calls', 'SELECT timeouts(20)', "SELECT timeouts($times / 5)");
	is_flat(
		'words that need no model',
		"SELECT count(hymt_translate(i::text, 'zh', 'en')) FROM many WHERE i % 50 = 0",
		"SELECT count(hymt_translate(i::text, 'zh', 'en')) FROM many");
	is_flat(
		'looking at the state',
		'SELECT looks(100)',
		"SELECT looks($times)");
};

scenario 'reloads and sessions' => sub {
	my @before = used();
	my $files = () = glob "/proc/$worker/fd/*";

	for my $i (1 .. 100)
	{
		# Every fifth with a change that matters to nobody's engine.
		$node->append_conf('postgresql.conf', "hymt.engine_timeout = '" . (50 + $i) . "s'") if $i % 5 == 0;
		$node->reload;
		usleep(5_000);
	}
	for my $i (1 .. 60)
	{
		$node->safe_psql('postgres', translate("session $i"));
	}
	usleep(300_000);
	my @after = used();
	cmp_ok($after[1] - $before[1], '<', 1024, 'a hundred reloads and sixty sessions: worker');
	cmp_ok($after[2] - $before[2], '<', 1024, 'engine');
	is(scalar(() = glob "/proc/$worker/fd/*"), $files, 'the worker has the same descriptors');
	is(status($node, 'worker_pid, engine_pid'), "$worker|$engine", 'worker and engine are still the same');
};

scenario 'engines that come and go' => sub {
	my $before;
	my $files;

	for my $i (1 .. 24)
	{
		switch_model($node, 'mock-step-' . $i % 2);
		wait_for_status($node, "state = 'ready' AND model = 'mock-step-" . $i % 2 . "'");
		is($node->safe_psql('postgres', translate("engine $i")), "zh>en: engine $i", "engine $i") if $i % 8 == 0;
		if ($i == 4)
		{
			$before = anonymous_kb($worker);
			$files = () = glob "/proc/$worker/fd/*";
		}
	}
	cmp_ok(anonymous_kb($worker) - $before, '<', 512, 'twenty engines: worker');
	is(scalar(() = glob "/proc/$worker/fd/*"), $files, 'twenty engines: the worker has the same descriptors');
	is(status($node, 'worker_pid'), $worker, 'twenty engines: the same worker');
};

$in .= "\\q\n";
$session->finish;
is_undisturbed($node, $identity, 'in the end');
$node->stop;
done_testing();
