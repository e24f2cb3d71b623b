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
	my @sleepers = map { background($node, translate("mock:sleep 1 $_")) } 1 .. 5;

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

# So many changes of the catalog that a process that does not follow them is told to.
{
	my $start = -s $node->logfile;
	my $worker = status($node, 'worker_pid');

	$node->append_conf('postgresql.conf', "log_min_messages = debug4\nlog_line_prefix = '[%p] '");
	$node->reload;
	usleep(500_000);
	$node->safe_psql('postgres', <<'END');
SELECT hymt_translate('before', 'zh', 'en');
DO $$ BEGIN FOR i IN 1 .. 1500 LOOP CREATE TABLE passing (a int); DROP TABLE passing; COMMIT; END LOOP; END $$;
SELECT hymt_translate('after', 'zh', 'en');
END
	$node->append_conf('postgresql.conf', 'log_min_messages = warning');
	$node->reload;
	like(slurp_file($node->logfile, $start), qr/^\[$worker\] DEBUG:  ProcessCatchupEvent outside transaction/m,
		'changes of the catalog: the worker follows them');
	is(status($node, 'worker_pid'), $worker, 'changes of the catalog: the same worker');
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

# An error inside the worker costs a turn of its loop, but not the engine: without a free descriptor it cannot build the
# set that it waits on, which it has to because the engine closes its log.
{
	my $before = status($node, 'engine_pid, worker_pid');
	my $worker = status($node, 'worker_pid');
	my $start = -s $node->logfile;
	my $until = time + 30;

	command_ok([ 'prlimit', '--pid', $worker, '--nofile=3:' ], 'error in the worker: it can open no descriptor');
	is($node->safe_psql('postgres', translate('mock:closelog')),
		'closed', 'error in the worker: the engine closes its log');
	usleep(100_000) while time < $until && slurp_file($node->logfile, $start) !~ /ERROR:  .*Too many open files/;
	like(slurp_file($node->logfile, $start), qr/ERROR:  .*Too many open files/, 'error in the worker: there are errors');
	my @sessions = map { background($node, translate("between errors $_")) } 1 .. 5;
	is(scalar(grep { finish($_)->{out} =~ /^zh>en: between errors/ } @sessions), 5,
		'error in the worker: it goes on with its work');
	# Each of these sets the worker's latch, which must not make it try again at once.
	$start = -s $node->logfile;
	my @busy = map { background($node, "SET statement_timeout = 3000; " . translate("mock:sleep 30 of $_")) } 1 .. 5;
	finish($_) foreach @busy;
	my $errors = () = slurp_file($node->logfile, $start) =~ /ERROR:  .*Too many open files/g;
	cmp_ok($errors, '<', 20, 'error in the worker: it pauses after each');
	my ($hard) = slurp_file("/proc/$worker/limits") =~ /^Max open files\s+\d+\s+(\d+)/m;
	command_ok([ 'prlimit', '--pid', $worker, "--nofile=$hard:" ], 'error in the worker: the cause is gone');
	usleep(1_500_000);
	$start = -s $node->logfile;
	is($node->safe_psql('postgres', translate('hello')), 'zh>en: hello', 'error in the worker: it translates');
	usleep(1_500_000);
	unlike(slurp_file($node->logfile, $start), qr/ERROR/, 'error in the worker: there are no more');
	is(status($node, 'engine_pid, worker_pid'), $before, 'error in the worker: the same engine and worker');
}

# An engine that cannot be started for want of a descriptor or process says nothing about the model: callers wait.
{
	my $sleeper = background($node, translate('mock:sleep 1'));

	wait_for_slots($node, 1);
	my ($engine, $worker) = split /\|/, status($node, 'engine_pid, worker_pid');
	my ($hard) = slurp_file("/proc/$worker/limits") =~ /^Max open files\s+\d+\s+(\d+)/m;
	my $start = -s $node->logfile;
	my $until = time + 30;
	command_ok([ 'prlimit', '--pid', $worker, '--nofile=3:' ], 'no descriptor for an engine: the limit is set');
	kill 'KILL', $engine;
	usleep(20_000) while time < $until && slurp_file($node->logfile, $start) !~ /cannot start the engine program/;
	is(status($node, 'state'), 'restarting', 'no descriptor for an engine: that is no refusal');
	command_ok([ 'prlimit', '--pid', $worker, "--nofile=$hard:" ], 'no descriptor for an engine: there is one again');
	is(finish($sleeper)->{out}, 'awake', 'no descriptor for an engine: the answer comes');
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

# The postmaster is killed: nothing of it survives, and the next start is clean.
{
	my $sleeper = background($node, translate('mock:sleep 30'));

	wait_for_slots($node, 1);
	my ($engine, $worker) = split /\|/, status($node, 'engine_pid, worker_pid');
	my $session = session_pid($node, $sleeper);
	my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
	$node->kill9;
	my $since = time;
	usleep(20_000) while time < $since + 5 && grep { process_lives($_) } $engine, $worker, $session;
	ok(!process_lives($engine), 'postmaster killed: the engine is gone within 5 s');
	ok(!process_lives($worker), 'postmaster killed: the worker, too');
	ok(!process_lives($session), 'postmaster killed: and the session that waited');
	finish($sleeper);
	# Where nobody collects dead processes, PostgreSQL takes a dead postmaster for a live one.
	usleep(500_000);
	unlink $node->data_dir . '/postmaster.pid', $node->host . '/.s.PGSQL.' . $node->port . '.lock'
	  if -e "/proc/$postmaster" && !process_lives($postmaster);
	$node->start;
	is($node->safe_psql('postgres', translate('a new start')),
		'zh>en: a new start', 'postmaster killed: translates again');
	wait_for_all_free($node, 'postmaster killed');
}

$node->stop;
done_testing();
