# Engines that fail again and again: callers are told at once instead of waiting, and service comes back by itself.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $node = hymt_node('breaker');
my $identity = server_identity($node);
my $directory = model_directory($node, 'ailing');

sub set_fault
{
	my ($fault) = @_;

	unlink "$directory/fault";
	append_to_file("$directory/fault", "$fault\n") if $fault;
	return;
}

sub log_since
{
	my ($start) = @_;

	return slurp_file($node->logfile, $start);
}

scenario 'engines that die of whatever they are asked' => sub {
	my $start = -s $node->logfile;
	set_fault('crash-at-request');
	use_model($node, $directory);
	wait_for_status($node, "state = 'ready'");
	my $since = time;
	my @sessions = map { background($node, translate("under load $_")) } 1 .. 20;
	my %errors;

	$errors{ finish($_)->{err} }++ foreach @sessions;
	my $took = time - $since;
	note("$_: $errors{$_}") foreach sort keys %errors;
	is(join(' ', sort keys %errors), 'ERROR:  MT002 ERROR:  MT003', 'all callers are told');
	cmp_ok($errors{'ERROR:  MT003'}, '>', 10, 'most of them that it is not their text');
	cmp_ok($took, '<', 30, 'within a bounded time');
	like(log_since($start), qr/LOG:  hymt: the engine of device 0 keeps failing/, 'the log says so');

	# From now on at once, whatever is asked: at most one attempt is under way, of which a caller may be the probe.
	my ($code, $out, $error);
	for my $round (1 .. 20)
	{
		$since = time;
		($code, $out, $error) = $node->psql('postgres', translate("at once $round"));
		cmp_ok(time - $since, '<', PROMPT_SECONDS, "caller $round is told at once");
		isnt($code, 0, 'that there is no translation');
		usleep(50_000);
	}
	like($error, qr/ERROR:  the translation engine keeps failing/, 'with an error of its own');
	like($error, qr/DETAIL:  the engine keeps failing: the last one was terminated by signal 11/, 'and the reason');
	like($error, qr/HINT:  The next attempt is (in \d+ s|under way); the server log has more about it\./, 'and a hint');
	my $lenient = "SELECT hymt_translate('lenient', 'zh', 'en', on_error => 'null')";
	is(finish(background($node, $lenient))->{err}, 'ERROR:  MT003', 'that is no matter of on_error');
	# An engine that is just being tried is ready until it is asked something.
	my ($state, $last_error, $health) = ('', '', '');
	my $limit = time + 60;
	while (time < $limit && $health !~ /^\(f/)
	{
		finish(background($node, translate('probe')));
		($state, $last_error, $health) = split /\|/, status($node, 'state, last_error, hymt_health()');
	}
	is($state, 'refused', 'the state is refused');
	like($last_error, qr/keeps failing/, 'hymt_status says why');
	like($health, qr/^\(f,.*keeps failing/, 'the service is not healthy');

	set_fault('');
	my $until = time + 60;
	my $answer = '';
	while (time < $until && $answer ne 'zh>en: hello')
	{
		my $session = finish(background($node, translate('hello')));
		$answer = $session->{out};
		usleep(100_000);
	}
	is($answer, 'zh>en: hello', 'when the cause is gone it translates again, by itself');
	is(status($node, 'state'), 'ready', 'and is ready');
	like(log_since($start), qr/LOG:  hymt: the engine of device 0 works again/, 'the log says so');
	my @many = map { background($node, translate("many $_")) } 1 .. 20;
	is(scalar(grep { finish($_)->{out} =~ /^zh>en: many/ } @many), 20, 'for everybody');
};

scenario 'engines that die without being asked' => sub {
	my $start = -s $node->logfile;
	set_fault('exit-when-ready');
	restart_workers($node);
	ok(wait_for_status($node, "state = 'refused' AND last_error LIKE '%keeps failing%exit code 4%'"), 'are given up');
	is(finish(background($node, translate('hello')))->{err}, 'ERROR:  MT003', 'callers are told');

	set_fault('');
	ok(wait_for_status($node, "state = 'ready'"), 'ready when the cause is gone');
	my $until = time + 30;
	usleep(200_000) while time < $until && log_since($start) !~ /works again/;
	like(log_since($start), qr/works again/, 'an idle engine that lives on is trusted again');
};

scenario 'a reload makes the next attempt at once' => sub {
	set_fault('exit-at-start');
	restart_workers($node);
	wait_for_status($node, "state = 'refused'");
	# Until the distance between attempts is long.
	wait_until($node, "SELECT count(*) FROM hymt_status WHERE last_error_at < now() - interval '6 s'", '1');
	set_fault('');
	my $since = time;
	$node->reload;
	ok(wait_for_status($node, "state = 'ready'"), 'ready');
	cmp_ok(time - $since, '<', 3, 'soon');
};

scenario 'a reload about something else leaves an attempt alone' => sub {
	set_fault('exit-at-start');
	restart_workers($node);
	wait_for_status($node, "state = 'refused'");
	set_fault('load-slow 3');
	my $until = time + 60;
	my $engine = '';
	while (time < $until && $engine eq '')
	{
		$engine = status($node, "CASE WHEN loading_percent > 0 THEN engine_pid END");
		usleep(50_000);
	}
	$node->reload;
	usleep(500_000);
	ok(process_lives($engine), 'the engine goes on loading');
	is(status($node, 'state'), 'refused', 'and callers are told at once as before');
	ok(wait_for_status($node, "state = 'ready' AND engine_pid = $engine"), 'it becomes ready');
};

is_undisturbed($node, $identity, 'in the end');
$node->stop;
done_testing();
