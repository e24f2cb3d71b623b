# The worker itself: it comes back, hands nothing of the server to the engine, and never hurts the server.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

# Servers of tests do not restart after a crash of their own unless told to.
my $node = hymt_node('worker', conf => "restart_after_crash = on\n");
my $identity = server_identity($node);

# What the engine inherits.
{
	my $engine = status($node, 'engine_pid');
	my $environment = slurp_file("/proc/$engine/environ");
	my $process = slurp_file("/proc/$engine/status");
	my @names = sort map { /^([^=]*)=/ ? $1 : $_ } split /\0/, $environment;
	my @descriptors = sort { $a <=> $b } map { m{/(\d+)$} ? $1 : () } glob("/proc/$engine/fd/*");

	is("@names", 'LANG PATH', 'the engine has a clean environment');
	is("@descriptors", '0 1 2 3', 'the engine has its own descriptors only');
	like($process, qr/^SigBlk:\s*0+$/m, 'the engine blocks no signal');
	like($process, qr/^NoNewPrivs:\s*1$/m, 'the engine can gain no privileges');
	unlike(slurp_file("/proc/$engine/maps"),
		qr{/dev/zero|/SYSV|/PostgreSQL\.}, 'the engine has no shared memory of the server');
	like(slurp_file("/proc/$engine/limits"), qr/^Max core file size\s+0\s+0\s/m, 'the engine dumps no core');
}

# The worker is visible, idle, and says what it waits for.
is( $node->safe_psql(
		'postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'hymt worker' AND wait_event IS NOT NULL"),
	'1', 'the worker is in pg_stat_activity');

# Cancelling the worker is no reason to lose a model.
{
	my ($engine, $worker) = split /\|/, status($node, 'engine_pid, worker_pid');

	$node->safe_psql('postgres', "SELECT pg_cancel_backend($worker)");
	usleep(300_000);
	is(status($node, 'engine_pid, worker_pid'), "$engine|$worker", 'cancelling the worker changes nothing');
	is($node->safe_psql('postgres', translate('mock:pid')), $engine, 'the same engine answers');
}

# A terminated worker comes back, with requests in flight, which are answered in the end.
{
	my @sleepers = map { background($node, translate('mock:sleep 1')) } 1 .. 5;

	wait_for_slots($node, 5);
	my ($engine, $worker) = split /\|/, status($node, 'engine_pid, worker_pid');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
	ok(wait_for_end($engine), 'worker terminated: its engine is gone');
	is_deeply(
		[ map { my $s = finish($_); "$s->{out}$s->{err}" } @sleepers ],
		[ ('awake') x 5 ],
		'worker terminated: what was in flight is answered by the next one');
	isnt(status($node, 'worker_pid'), $worker, 'worker terminated: there is a new one');
	wait_for_all_free($node, 'worker terminated');
}

# During start-up, and again and again.
for my $round (1 .. 3)
{
	wait_for_status($node, 'worker_pid IS NOT NULL');
	my $worker = status($node, 'worker_pid');

	$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
	ok(wait_for_end($worker), "terminated $round times");
}
is($node->safe_psql('postgres', translate('still there')), 'zh>en: still there', 'and still there');
is_undisturbed($node, $identity, 'worker terminated');

# Engine and worker die together.
{
	my $session = background($node, translate('mock:sleep 1'));

	wait_for_slots($node, 1);
	my ($engine, $worker) = split /\|/, status($node, 'engine_pid, worker_pid');
	kill 'KILL', $engine;
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
	is(finish($session)->{out}, 'awake', 'engine and worker die together: the answer comes');
	is_undisturbed($node, $identity, 'engine and worker die together');
}

# Databases come and go with an idle engine, and one that does not start.
foreach my $model ('mock-plain', 'mock-exit-at-start')
{
	use_model($node, $model);
	my $since = time;
	$node->safe_psql('postgres', 'CREATE DATABASE passing');
	$node->safe_psql('postgres', 'DROP DATABASE passing');
	cmp_ok(time - $since, '<', 15, "$model: CREATE and DROP DATABASE");
}
use_model($node, 'mock-plain');
is($node->safe_psql('postgres', translate('hello')), 'zh>en: hello', 'a good model again');

# A crash of a backend restarts the server, as always; hymt starts anew with it.
{
	my $sleeper = background($node, translate('mock:sleep 30'));

	my $pid = session_pid($node, $sleeper);
	wait_for_slots($node, 1);
	my $engine = status($node, 'engine_pid');
	kill 'KILL', $pid;
	finish($sleeper);
	ok(wait_for_end($engine), 'backend killed: the engine is gone with the rest');
	wait_until($node, 'SELECT 1', '1');
	is($node->safe_psql('postgres', translate('after recovery')),
		'zh>en: after recovery', 'backend killed: translates after recovery');
	wait_for_all_free($node, 'backend killed');
}

# Many sessions that leave in all ways at once: nothing is left, and the latches of dead sessions disturb nobody.
{
	my @sessions = map {
		my $text = $_ % 3 ? 'mock:sleep 30' : "quick $_";
		background($node, 'SET statement_timeout = ' . (20 + 37 * $_) . '; ' . translate($text));
	} 1 .. 30;
	my @wrong = grep { finish($_); "$_->{out}$_->{err}" !~ /^(zh>en: quick \d+|ERROR:  57014)$/ } @sessions;

	is(scalar(@wrong), 0, 'thirty sessions come and go');
	diag("$_->{out}$_->{err}") foreach @wrong;
	wait_for_all_free($node, 'thirty sessions');
}

$node->stop;
done_testing();
