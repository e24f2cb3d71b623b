# What processes wait for can be told by name, on versions of PostgreSQL whose extensions can name their wait events.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

plan skip_all => 'extensions name wait events since PostgreSQL 17'
  if PostgreSQL::Test::Cluster->new('any')->pg_version < 17;

my $node = hymt_node('waits', conf => <<'END');
hymt.queue_slots = 8
restart_after_crash = on
END
my $worker = "backend_type = 'hymt worker'";

# What that process waits for.
sub waits_for
{
	my ($condition, $event, $name) = @_;

	return ok(wait_until($node, "SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE $condition",
			"Extension|$event"), $name);
}

scenario 'a question' => sub {
	waits_for($worker, 'HymtWorkerIdle', 'nobody asks: the worker');
	my @sleepers = map { background($node, translate("mock:sleep 30 $_")) } 1 .. 8;
	wait_for_slots($node, 8);
	waits_for($worker, 'HymtEngine', 'at work: the worker');
	waits_for("application_name = '$_->{name}'", 'HymtAnswer', "at work: session $_->{name}") foreach @sleepers;

	my $late = background($node, translate('too late'));
	waits_for("application_name = '$late->{name}'", 'HymtQueueFull', 'the queue is full: another session');
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . session_pid($node, $_) . ')') foreach @sleepers;
	finish($_) foreach @sleepers;
	is(finish($late)->{out}, 'zh>en: too late', 'the queue is free again');
	waits_for($worker, 'HymtWorkerIdle', 'all is answered: the worker');
};

scenario 'a model that loads' => sub {
	use_model($node, 'mock-hang-at-start');
	waits_for($worker, 'HymtEngine', 'an engine is started: the worker');
	use_model($node, 'mock-plain');
	is($node->safe_psql('postgres', translate('ready')), 'zh>en: ready', 'it has started');
};

# The worker needs a descriptor for the set that it waits on, which it makes anew when the engine closes its log.
scenario 'an error in the worker' => sub {
	my $pid = status($node, 'worker_pid');
	my ($hard) = slurp_file("/proc/$pid/limits") =~ /^Max open files\s+\d+\s+(\d+)/m;

	command_ok([ 'prlimit', '--pid', $pid, '--nofile=3:' ], 'it can open no descriptor');
	is($node->safe_psql('postgres', translate('mock:closelog')), 'closed', 'the engine closes its log');
	waits_for($worker, 'HymtWorkerError', 'the worker pauses');
	command_ok([ 'prlimit', '--pid', $pid, "--nofile=$hard:" ], 'it can again');
	waits_for($worker, 'HymtWorkerIdle', 'the worker goes on');
};

# Names belong to the server: each process that comes finds those of the ones before.
my $known = <<'END';
SELECT string_agg(type || ' ' || name, ', ' ORDER BY name) FROM pg_wait_events WHERE name ILIKE '%hymt%'
END
my $all = 'Extension HymtAnswer, Extension HymtEngine, Extension HymtQueueFull, Extension HymtWorkerError, '
  . 'Extension HymtWorkerIdle';

is($node->safe_psql('postgres', $known), $all, 'pg_wait_events has all names');
restart_workers($node);
waits_for($worker, 'HymtWorkerIdle', 'a new worker');
is($node->safe_psql('postgres', $known), $all, 'and no other after a new worker');

# A crash of a session takes the names with it; the processes that come have to give them anew.
scenario 'a crash of the server' => sub {
	my $sleeper = background($node, translate('mock:sleep 30'));

	wait_for_slots($node, 1);
	kill 'KILL', session_pid($node, $sleeper);
	finish($sleeper);
	wait_until($node, 'SELECT 1', '1');
	is($node->safe_psql('postgres', translate('back')), 'zh>en: back', 'the server is back');
	waits_for($worker, 'HymtWorkerIdle', 'its worker');
};

$node->stop;
done_testing();
