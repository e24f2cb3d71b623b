# Every way to end a wait works at once while the engine sleeps, and leaves nothing behind in the queue.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $node = hymt_node('waits', conf => "hymt.queue_slots = 8\n");
my $identity = server_identity($node);
my $sleep = translate('mock:sleep 30');

# Runs $end while a session sleeps; says how long it took to get its result.
sub is_ended
{
	my ($name, $end, $expected) = @_;
	my $session = background($node, $sleep);
	my $pid = session_pid($node, $session);

	wait_for_slots($node, 1);
	my $since = time;
	$end->($pid, $session);
	finish($session);
	my $took = time - $since;

	like($session->{err}, $expected, "$name: the session is told");
	cmp_ok($took, '<', PROMPT_SECONDS, sprintf('%s: after %.0f ms', $name, $took * 1000));
	return wait_for_all_free($node, $name);
}

is_ended('cancel', sub { $node->safe_psql('postgres', "SELECT pg_cancel_backend($_[0])") }, qr/^ERROR:  57014/);
is_ended('terminate', sub { $node->safe_psql('postgres', "SELECT pg_terminate_backend($_[0])") }, qr/FATAL:  57P01/);

# A client that vanished: psql is killed, the server process must notice by itself.
{
	my $session = background($node, $sleep);
	my $pid = session_pid($node, $session);

	wait_for_slots($node, 1);
	my $since = time;
	$session->{run}->kill_kill;
	ok(wait_for_end($pid), 'client vanished: its server process ends');
	my $took = time - $since;
	cmp_ok($took, '<', PROMPT_SECONDS, sprintf('client vanished: after %.0f ms', $took * 1000));
	wait_for_all_free($node, 'client vanished');
}

# Statement timeout, measured by the session itself.
{
	my $session = finish(background($node, "SET statement_timeout = 300; $sleep"));

	is($session->{err}, 'ERROR:  57014', 'statement timeout: the session is told');
	cmp_ok($session->{took}, '<', PROMPT_SECONDS, sprintf('statement timeout: after %.0f ms', $session->{took} * 1000));
	wait_for_all_free($node, 'statement timeout');
}

# An exception block rolls back to a savepoint; the session goes on and uses the queue again.
{
	my $session = finish(background($node, <<'END'));
DO $$
BEGIN
	FOR i IN 1 .. 20 LOOP
		BEGIN
			SET LOCAL statement_timeout = 100;
			PERFORM pg_cancel_backend(pg_backend_pid());
			PERFORM hymt_translate('mock:sleep 30', 'zh', 'en');
		EXCEPTION WHEN query_canceled THEN
			NULL;
		END;
	END LOOP;
END $$;
SELECT slots_in_use || ' slots', hymt_translate('after twenty', 'zh', 'en') FROM hymt_status;
END
	is("$session->{out}$session->{err}", '0 slots|zh>en: after twenty', 'exception block: slots are given back at once');
	wait_for_all_free($node, 'exception block');
}

# Failures inside an exception block, and a savepoint by hand.
{
	my $session = finish(background($node, <<'END'));
BEGIN;
SELECT hymt_translate('before', 'zh', 'en');
SAVEPOINT s;
\set ON_ERROR_STOP 0
SELECT hymt_translate('mock:fail internal', 'zh', 'en');
\set ON_ERROR_STOP 1
ROLLBACK TO s;
SELECT hymt_translate('after', 'zh', 'en');
COMMIT;
END
	is($session->{out}, "zh>en: before\nzh>en: after", 'savepoint: the transaction goes on');
	is($session->{err}, 'ERROR:  MT003', 'savepoint: with one error');
	wait_for_all_free($node, 'savepoint');
}

# A queue that is full: waiting for a slot can be ended too, and others' slots are not touched.
{
	my @sleepers = map { background($node, $sleep) } 1 .. 8;

	wait_for_slots($node, 8);
	my $waiting = finish(background($node, "SET statement_timeout = 300; " . translate('no room')));
	is($waiting->{err}, 'ERROR:  57014', 'queue full: waiting for a slot times out');
	cmp_ok($waiting->{took}, '<', PROMPT_SECONDS, 'queue full: promptly');
	$waiting = finish(background($node, "SET hymt.queue_timeout = 300; " . translate('no room')));
	is($waiting->{err}, 'ERROR:  MT005', 'queue full: hymt.queue_timeout');
	is(status($node, 'slots_in_use'), '8', 'queue full: the others still wait');

	my $next = background($node, translate('room at last'));
	session_pid($node, $next);
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . session_pid($node, $sleepers[0]) . ')');
	is(finish($next)->{out}, 'zh>en: room at last', 'queue full: the next in line gets a free slot');
	$node->safe_psql('postgres', <<'END');
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ~ 'mock:sleep 30' AND pid <> pg_backend_pid()
END
	finish($_) foreach @sleepers;
	wait_for_all_free($node, 'queue full');
}

# Databases come and go while a session waits, and while nobody does.
{
	my $session = background($node, $sleep);

	wait_for_slots($node, 1);
	my $since = time;
	$node->safe_psql('postgres', "SET statement_timeout = '20s'; CREATE DATABASE passing");
	$node->safe_psql('postgres', "SET statement_timeout = '20s'; DROP DATABASE passing");
	my $took = time - $since;
	cmp_ok($took, '<', 15, sprintf('CREATE and DROP DATABASE while the engine sleeps: after %.0f ms', $took * 1000));
	is(status($node, 'slots_in_use'), '1', 'the session still waits');
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . session_pid($node, $session) . ')');
	finish($session);
	wait_for_all_free($node, 'databases');
}
is_undisturbed($node, $identity, 'so far');

# A smart shutdown waits for sessions, and they for their translations.
{
	my $session = background($node, translate('mock:sleep 2'));

	wait_for_slots($node, 1);
	$node->stop('smart');
	is(finish($session)->{out}, 'awake', 'smart shutdown: the session gets its answer first');
	$node->start;
}

# Shutdown.
foreach my $mode ('fast', 'immediate')
{
	my @sleepers = map { background($node, $sleep) } 1 .. 3;

	wait_for_slots($node, 3);
	my $engine = status($node, 'engine_pid');
	my $since = time;
	$node->stop($mode);
	my $took = time - $since;
	finish($_) foreach @sleepers;
	cmp_ok($took, '<', 2 * PROMPT_SECONDS, sprintf('%s shutdown: after %.0f ms', $mode, $took * 1000));
	like($_->{err}, qr/57P0[12]|connection/, "$mode shutdown: the session is told") foreach @sleepers;
	ok(wait_for_end($engine), "$mode shutdown: the engine is gone");
	$node->start;
	is($node->safe_psql('postgres', translate('again')), 'zh>en: again', "$mode shutdown: the next start works");
	wait_for_all_free($node, "$mode shutdown");
}

# Without its postmaster nothing stays.
{
	my $session = background($node, $sleep);

	wait_for_slots($node, 1);
	my @pids = split /\|/, status($node, 'engine_pid, worker_pid');
	my $postmaster = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/ ? $1 : die;
	$node->kill9;
	ok(wait_for_end($_), 'postmaster killed: engine and worker end by themselves') foreach @pids;
	finish($session);
	# Its number has to be free before the next one believes that it is dead.
	for (1 .. 500)
	{
		last unless kill 0, $postmaster;
		usleep(20_000);
	}
	$node->start;
	is($node->safe_psql('postgres', translate('again')), 'zh>en: again', 'postmaster killed: the next start works');
	wait_for_all_free($node, 'postmaster killed');
}

$node->stop;
done_testing();
