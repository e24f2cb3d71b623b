# Several devices: one worker and one engine each, all working on one queue. One that is slow, hung or dead does not
# hold back another.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $node = hymt_node('devices', conf => "hymt.devices = 2\nhymt.engine_timeout = '6s'\n");
my $identity = server_identity($node);
my $directory = $node->basedir . '/mock-plain';

sub device
{
	my ($number, $column) = @_;

	return $node->safe_psql('postgres', "SELECT $column FROM hymt_status WHERE device = $number");
}

sub wait_for_device
{
	my ($number, $condition) = @_;

	return wait_until($node, "SELECT $condition FROM hymt_status WHERE device = $number", 't');
}

sub wait_for_all_ready
{
	return wait_until($node, "SELECT count(*) FROM hymt_status WHERE state = 'ready'", '2');
}

# So many calls of one session, each of another text: gives how many were answered.
sub calls
{
	my ($count, $name) = @_;

	return "SELECT count(*) FROM generate_series(1, $count) AS i "
	  . "WHERE hymt_translate('$name ' || i, 'zh', 'en') = 'zh>en: $name ' || i";
}

sub all_devices_answer
{
	my %seen;

	for my $round (1 .. 20)
	{
		$seen{ $_->{out} } = 1 foreach map { finish($_) } map { background($node, translate("mock:device $_")) } 1 .. 4;
		last if keys %seen == 2;
	}
	return join ' ', sort keys %seen;
}

# What happens at device 0 from now on; nothing: all is well.
sub fault_at_device_0
{
	my ($fault) = @_;

	unlink "$directory/fault-0";
	append_to_file("$directory/fault-0", "$fault\n") if $fault;
	restart_workers($node);
	wait_for_device(1, "state = 'ready'");
	wait_for_device(0, "state = 'ready'");
	return;
}

scenario 'two devices' => sub {
	wait_for_all_ready();
	is($node->safe_psql('postgres', 'SELECT count(DISTINCT worker_pid), count(DISTINCT engine_pid) FROM hymt_status'),
		'2|2', 'each has a worker and an engine');
	is( $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'hymt worker'"),
		'2', 'both workers are in pg_stat_activity');
	is(all_devices_answer(), '0 1', 'both answer');
};

scenario 'a text that kills engines' => sub {
	my @others = map { background($node, calls(20, "beside $_")) } 1 .. 4;

	is(finish(background($node, translate('mock:crash')))->{err}, 'ERROR:  MT002', 'its caller is told');
	is(join(' ', map { finish($_)->{out} } @others), '20 20 20 20', 'all others are answered');
	wait_for_all_ready();
};

scenario 'a worker that is terminated' => sub {
	my $release = $node->basedir . '/release_after_worker';
	my @held = map { background($node, translate("mock:hold $release\n$_")) } 1 .. 6;

	wait_until($node, 'SELECT DISTINCT slots_in_use FROM hymt_status', '6');
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(worker_pid) FROM hymt_status WHERE device = 0');
	append_to_file($release, 'now');
	is(join(' ', map { finish($_)->{out} } @held), join(' ', ('released') x 6), 'all are answered');
	ok(wait_for_all_ready(), 'it comes back');
};

scenario 'a device whose engine dies of every request' => sub {
	# The first one is the worker's own, with which it measures the device.
	fault_at_device_0('crash-at-request 2');
	my $since = time;
	my @sessions = map { background($node, calls(50, "dying $_")) } 1 .. 4;

	is(join(' ', map { finish($_)->{out} . $_->{err} } @sessions), '50 50 50 50', 'every call is answered');
	cmp_ok(time - $since, '<', 30, 'without much delay');
	# As long as it is tried again it gets a request now and then, and the other device answers that one too.
	my $until = time + 60;
	my $wrong = 0;
	while (device(0, 'state') ne 'refused' && time < $until)
	{
		my $session = finish(background($node, calls(5, 'still')));
		$wrong++ if "$session->{out}$session->{err}" ne '5';
	}
	is($wrong, 0, 'no call fails until it is given up');
	is(device(0, 'state'), 'refused', 'its circuit breaker opens');
	like(device(0, 'last_error'), qr/keeps failing/, 'hymt_status says why');
	is($node->safe_psql('postgres', calls(50, 'without it')), '50', 'the other one goes on');
	like($node->safe_psql('postgres', 'SELECT hymt_health()'), qr/^\(t,/, 'the service is healthy');

	unlink "$directory/fault-0";
	ok(wait_for_device(0, "state = 'ready'"), 'it is tried again by itself');
	is(all_devices_answer(), '0 1', 'and works');
};

scenario 'a device whose engine hangs from the beginning' => sub {
	fault_at_device_0('hang-at-request');
	my $before = device(0, 'requests');
	my @sessions = map { background($node, calls(20, "hanging $_")) } 1 .. 6;

	is(join(' ', map { finish($_)->{out} . $_->{err} } @sessions), join(' ', (20) x 6), 'the other one answers');
	# It is killed after 6 s, and the next one is no better.
	ok(wait_for_device(0, "state <> 'ready'"), 'the worker notices it by itself');
	is(device(0, 'requests'), $before, 'it never had a request');
};

# That is how the fastest device of all would look.
scenario 'a device whose engine fails every request' => sub {
	fault_at_device_0('fail-requests numeric');
	my $before = device(0, 'requests');
	my @sessions = map { background($node, calls(20, "failing $_")) } 1 .. 4;

	is(join(' ', map { finish($_)->{out} . $_->{err} } @sessions), join(' ', (20) x 4), 'the other one answers');
	is(device(0, 'requests'), $before, 'it never had a request');
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(worker_pid) FROM hymt_status WHERE device = 1');
	is(finish(background($node, translate('alone')))->{err}, 'ERROR:  MT003', 'when it is alone it is asked');
};

# Its worker waits two minutes for it, so all that is answered meanwhile is answered beside it.
scenario 'a device whose engine hangs' => sub {
	fault_at_device_0('hang-at-request 2');
	$node->append_conf('postgresql.conf', "hymt.engine_timeout = '120s'");
	$node->reload;
	my $restarts = device(0, 'restarts');
	my @sessions;

	# Until it has got something. When it stands still it gets no more.
	do
	{
		push @sessions, map { background($node, calls(20, "hanging $_")) } 1 .. 4;
		wait_until($node, "SELECT coalesce(min(age) > interval '2 s', true) FROM hymt_stat_activity", 't');
	} while ($node->safe_psql('postgres', 'SELECT count(*) FROM hymt_stat_activity') == 0 && @sessions < 40);
	is($node->safe_psql('postgres', calls(20, 'beside a hang')), '20', 'the other one answers meanwhile');
	is(device(0, 'restarts'), $restarts, 'though the hung one is there');
	kill 'KILL', device(0, 'engine_pid');
	is(join(' ', map { finish($_)->{out} . $_->{err} } @sessions),
		join(' ', (20) x @sessions), 'those in the hung one are answered, too');
};

scenario 'a slow device' => sub {
	fault_at_device_0('step 3000');
	my $before = device(0, 'requests');

	is($node->safe_psql('postgres', calls(20, 'before it is measured')), '20', 'the other one answers');
	is(device(0, 'requests'), $before, 'it gets nothing before it is measured');
	usleep(3_500_000);
	is($node->safe_psql('postgres', calls(20, 'beside a slow one')), '20', 'the other one answers');
	is(device(0, 'requests'), $before, 'nor what the other one can do sooner');

	# The fast one takes 32 at a time.
	my $release = $node->basedir . '/release';
	my @held = map { background($node, translate("mock:hold $release\n$_")) } 1 .. 32;
	wait_until($node, 'SELECT DISTINCT slots_in_use FROM hymt_status', '32');
	my @sessions = map { background($node, translate("slow $_")) } 1 .. 4;
	is(scalar(grep { finish($_)->{out} =~ /^zh>en: slow \d+$/ } @sessions), 4, 'when the fast one is full');
	cmp_ok(device(0, 'requests'), '>', $before, 'the slow one works, too');
	append_to_file($release, 'now');
	is(scalar(grep { finish($_)->{out} eq 'released' } @held), 32, 'and so does the fast one');
};

scenario 'the worker of the only device that works is terminated' => sub {
	unlink "$directory/fault-0";
	append_to_file("$directory/fault-0", "refuse broken\n");
	restart_workers($node);
	wait_for_device(1, "state = 'ready'");
	wait_for_device(0, "state = 'refused'");
	my $release = $node->basedir . '/release_the_only_one';
	my @held = map { background($node, translate("mock:hold $release\n$_")) } 1 .. 3;

	wait_until($node, 'SELECT DISTINCT slots_in_use FROM hymt_status', '3');
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(worker_pid) FROM hymt_status WHERE device = 1');
	wait_for_device(1, "state = 'ready'");
	append_to_file($release, 'now');
	is(join(' ', map { finish($_)->{out} . $_->{err} } @held), 'released released released', 'callers wait for the next one');
	is(device(0, 'state'), 'refused', 'though the other device is refused');
};

fault_at_device_0('');
is_undisturbed($node, $identity, 'all the time');
$node->stop;

# Not enough worker processes.
scenario 'fewer worker processes than devices' => sub {
	my $start = -s $node->logfile;

	$node->append_conf('postgresql.conf',
		"hymt.devices = 3\nmax_worker_processes = 2\nmax_logical_replication_workers = 0");
	$node->start;
	like(slurp_file($node->logfile, $start),
		qr/WARNING:  hymt: 4 of max_worker_processes are needed, 2 were left/, 'the log has numbers');
	is($node->safe_psql('postgres', calls(20, 'two of three')), '20', 'those that are there work');
	is($node->safe_psql('postgres', "SELECT count(*) FROM hymt_status WHERE state = 'no worker'"),
		'1', 'one is missing');
	$node->stop;
};

scenario 'no worker process at all' => sub {
	my $start = -s $node->logfile;

	$node->append_conf('postgresql.conf', "hymt.devices = 1\nmax_worker_processes = 0");
	$node->start;
	like(slurp_file($node->logfile, $start),
		qr/WARNING:  hymt: 2 of max_worker_processes are needed, 0 were left/, 'the log has numbers');
	like(slurp_file($node->logfile, $start), qr/HINT:  Raise max_worker_processes by at least 2/, 'and a hint');
	my $session = finish(background($node, translate('hello')));
	is($session->{err}, 'ERROR:  57P03', 'callers are told');
	cmp_ok($session->{took}, '<', 15, 'soon');
	my ($code, $out, $error) = $node->psql('postgres', translate('hello'));
	like($error, qr/HINT:.*max_worker_processes/, 'and what to look at');
	$node->stop;
};

done_testing();
