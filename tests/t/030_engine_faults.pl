# Whatever the engine does, no session is lost, no row is wrong, and the postmaster restarts nothing.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $node = hymt_node('faults', conf => "hymt.engine_timeout = '3s'\n");
my $identity = server_identity($node);

# Lives through everything, holding a temporary table to prove it.
my $witness = background($node, <<'END');
CREATE TEMP TABLE witness AS SELECT 'still here' AS word;
SELECT pg_sleep(600);
SELECT word FROM witness;
END
my $witness_pid = session_pid($node, $witness);

# Faults at the fault of one text: it gets an error of its own, the next text is translated.
my %fatal = (
	'mock:crash' => 'MT002', 'mock:abort' => 'MT002', 'mock:exit 3' => 'MT002', 'mock:exit 0' => 'MT002',
	'mock:halfframe' => 'MT002', 'mock:close' => 'MT002', 'mock:garbage' => 'MT003', 'mock:liar' => 'MT003',
	'mock:badutf8' => 'MT003', 'mock:nul' => 'MT003', 'mock:wrongslot' => 'MT003');
foreach my $text (sort keys %fatal)
{
	my $session = finish(background($node, translate($text)));

	is("$session->{out}$session->{err}", "ERROR:  $fatal{$text}", "$text: has its own error");
	is($node->safe_psql('postgres', translate("after $text")), "zh>en: after $text", "$text: the next text is translated");
	wait_for_all_free($node, $text);
	is_undisturbed($node, $identity, $text);
}

# A text that was in flight when the engine died for another reason is just tried again.
{
	my $flag = $node->basedir . '/crashed_once';

	is( $node->safe_psql('postgres', translate("mock:crashonce $flag")),
		"zh>en: mock:crashonce $flag", 'a crash that does not come back costs a delay only');
}

# Hangs, all at a time: silent, silent in the middle of an answer, and with heartbeats but no steps.
{
	my $restarts = status($node, 'restarts');
	my %hang = map { $_ => background($node, translate($_)) } ('mock:hang', 'mock:halfhang', 'mock:stall');
	my @others = map { background($node, translate("beside a hang $_")) } 1 .. 5;

	foreach my $text (sort keys %hang)
	{
		is(finish($hang{$text})->{err}, 'ERROR:  MT003', "$text: has its own error");
	}
	is_deeply(
		[ map { finish($_)->{out} } @others ],
		[ map { "zh>en: beside a hang $_" } 1 .. 5 ],
		'others beside a hang are translated');
	cmp_ok(status($node, 'restarts') - $restarts, '>=', 4, 'hung engines were killed');
	wait_for_all_free($node, 'hangs');
	is_undisturbed($node, $identity, 'hangs');
}

# A long sleep is no hang.
is($node->safe_psql('postgres', translate('mock:sleep 4.5')),
	'awake', 'a request may take longer than hymt.engine_timeout');

# One poisonous text among eight in flight.
{
	my $restarts = status($node, 'restarts');
	my $release = $node->basedir . '/release';
	# Slashes make texts of one file differ, or they would be one request.
	my @innocent = map { background($node, translate('mock:hold ' . '/' x $_ . $release)) } 1 .. 7;

	wait_for_slots($node, 7);
	usleep(300_000);
	my $poison = background($node, translate('mock:crash'));
	wait_for_status($node, "restarts > $restarts");
	append_to_file($release, 'now');
	is(finish($poison)->{err}, 'ERROR:  MT002', 'poison: has its own SQLSTATE');
	is_deeply(
		[ map { my $s = finish($_); "$s->{out}$s->{err}" } @innocent ],
		[ ('released') x 7 ],
		'poison: the seven innocent ones are answered');
	is(status($node, 'restarts') - $restarts, 2, 'poison: it cost two engines');
	wait_for_all_free($node, 'poison');
	is_undisturbed($node, $identity, 'poison');
}

# Two poisonous texts among others.
{
	my $release = $node->basedir . '/release_two';
	my @innocent = map { background($node, translate('mock:hold ' . '/' x $_ . $release)) } 1 .. 4;
	my $restarts = status($node, 'restarts');

	wait_for_slots($node, 4);
	my @poison = map { background($node, translate($_)) } ('mock:crash', 'mock:abort');
	wait_for_status($node, "restarts > $restarts");
	append_to_file($release, 'now');
	is(finish($_)->{err}, 'ERROR:  MT002', 'two poisons: each has its SQLSTATE') foreach @poison;
	is_deeply([ map { finish($_)->{out} } @innocent ], [ ('released') x 4 ], 'two poisons: the innocent ones are answered');
	wait_for_all_free($node, 'two poisons');
}

# The engine is killed again and again while sessions translate.
{
	my @sessions = map { background($node, <<'END') } 1 .. 4;
SELECT count(*) FROM generate_series(1, 400) AS i
 WHERE hymt_translate(format('text %s of %s', i, pg_backend_pid()), 'zh', 'en')
       IS DISTINCT FROM format('zh>en: text %s of %s', i, pg_backend_pid())
END
	my $killed = 0;
	my $last = 0;

	for (1 .. 3)
	{
		wait_for_status($node, "state = 'ready' AND requests > 20 AND engine_pid <> $last");
		$last = status($node, 'engine_pid');
		usleep(200_000);
		$killed += kill 'KILL', $last;
	}
	is($killed, 3, 'three engines were killed');
	is_deeply(
		[ map { my $s = finish($_); "$s->{out}$s->{err}" } @sessions ],
		[ ('0') x 4 ],
		'every row is right in spite of it');
	wait_for_all_free($node, 'killed engines');
	is_undisturbed($node, $identity, 'killed engines');
}

# An engine that does not read: more waits than fits the socket, and nothing but the texts themselves is delayed.
{
	my $deaf = background($node, translate('mock:stopreading 3'));

	usleep(300_000);
	my $text = <<'END';
SELECT md5(hymt_translate(t, 'zh', 'en')) = md5('zh>en: ' || t) FROM repeat('slow reader ', 25000) AS t
END
	# A few fill the socket, so that what comes next has to wait.
	my @large = map { background($node, $text) } 1 .. 4;
	my $cancelled = background($node, "SET statement_timeout = 300; " . translate('cannot be sent'));
	push @large, map { background($node, $text) } 5 .. 20;
	finish($cancelled);

	is($cancelled->{err}, 'ERROR:  57014', 'slow reader: cancelling works');
	cmp_ok($cancelled->{took}, '<', PROMPT_SECONDS, sprintf('slow reader: after %.0f ms', $cancelled->{took} * 1000));
	my $since = time;
	$node->safe_psql('postgres', 'CREATE DATABASE passing');
	$node->safe_psql('postgres', 'DROP DATABASE passing');
	cmp_ok(time - $since, '<', 15, 'slow reader: databases come and go');
	is(finish($deaf)->{out}, 'awake', 'slow reader: its own answer comes');
	is_deeply([ map { finish($_)->{out} } @large ], [ ('t') x 20 ], 'slow reader: every large text is answered');
	wait_for_all_free($node, 'slow reader');
	is_undisturbed($node, $identity, 'slow reader');
}

$node->safe_psql('postgres', "SELECT pg_cancel_backend($witness_pid)");
is(finish($witness)->{err}, 'ERROR:  57014', 'the witness lived through it');
unlike(slurp_file($node->logfile),
	qr/terminating any other active server processes|PANIC/, 'the log has no crash of the server');
$node->stop;
done_testing();
