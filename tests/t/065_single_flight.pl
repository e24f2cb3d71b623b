# Equal requests that are outstanding at one time are computed once, and each of those who asked may leave.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = hymt_node('flights', conf => <<'END');
hymt.adapters = '@legal=/nowhere, @formal=/nowhere'
max_connections = 250
log_statement = none
END
my $number_of_files = 0;

$node->safe_psql('postgres', <<'END');
CREATE TABLE answers (pid int, answer text);
CREATE ROLE ann; CREATE ROLE bob; CREATE ROLE cat;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO ann, bob, cat;
END

sub file
{
	my ($name) = @_;

	return $node->basedir . "/${name}_" . ++$number_of_files;
}

# The number of requests that have reached the engine so far.
sub arrivals
{
	return $node->safe_psql('postgres', translate("mock:arrival " . ++$number_of_files)) - 1;
}

sub cancel
{
	my ($condition) = @_;

	return $node->safe_psql('postgres', <<"END");
SELECT count(pg_cancel_backend(pid)) FROM hymt_stat_activity WHERE $condition
END
}

sub states
{
	return $node->safe_psql('postgres', <<'END');
SELECT string_agg(n || ' ' || state, ', ' ORDER BY state)
  FROM (SELECT state, count(*) AS n FROM hymt_stat_activity GROUP BY state) AS s
END
}

# So many sessions that insert the answer to one text into the table.
sub crowd
{
	my ($text, $count) = @_;
	my $insert = "INSERT INTO answers VALUES (pg_backend_pid(), hymt_translate('$text', 'zh', 'en'))";

	$node->safe_psql('postgres', 'TRUNCATE answers');
	return map { background($node, $insert) } 1 .. $count;
}

sub answers_are
{
	my ($expected, $name) = @_;

	return is($node->safe_psql('postgres', 'SELECT answer, count(*) FROM answers GROUP BY answer'), $expected, $name);
}

scenario 'requests that differ in the context only' => sub {
	my $release = file('release');
	my @sessions = map {
		background($node, "SELECT hymt_translate('mock:hold $release', 'zh', 'en', $_)")
	} ('NULL', "'a'", "'b'", "'a'", "'mock'");

	wait_for_slots($node, 5);
	is(states(), '4 claimed, 1 following', 'are computed apart');
	append_to_file($release, 'now');
	finish($_) foreach @sessions;
	is(join('', map { $_->{err} } @sessions), '', 'all of them');
};

scenario 'forty sessions ask one text, half of them leave' => sub {
	my $release = file('release');
	my $before = arrivals();

	$node->safe_psql('postgres', 'SELECT hymt_stat_reset()');
	my @crowd = crowd("mock:hold $release", 40);
	wait_for_slots($node, 40);
	is(states(), '1 claimed, 39 following', 'all wait for one of them');
	my $bytes = status($node, 'queue_bytes_in_use');
	cmp_ok($bytes, '<=', 256, 'queue memory holds one text');

	is(cancel("state = 'claimed'"), '1', 'the one that was first leaves');
	ok( wait_until($node, "SELECT count(*), count(pid) FROM hymt_stat_activity", '40|39'),
		'its request stays, for the others');
	is(states(), '1 claimed, 39 following', 'which still wait for it');
	is(cancel("pid IN (SELECT pid FROM hymt_stat_activity WHERE state = 'following' ORDER BY pid LIMIT 19)"),
		'19', '19 others leave');
	ok(wait_for_slots($node, 21), 'and are gone');
	append_to_file($release, 'now');
	finish($_) foreach @crowd;
	answers_are('released|20', 'the other twenty are answered');
	is(arrivals() - $before - 1, 1, 'that was one request for the engine');
	is( $node->safe_psql('postgres', 'SELECT requests - 1, joined, answered - 1, cancelled FROM hymt_stat'),
		'40|39|20|20', 'all are counted');
	is( $node->safe_psql('postgres', 'SELECT (SELECT sum(b) FROM unnest(total_time_histogram) AS b) = answered FROM hymt_stat'),
		't', 'with their times');
};

scenario 'all leave' => sub {
	my $before = arrivals();
	my @sessions = map { background($node, translate('mock:sleep 30 all')) } 1 .. 4;

	wait_for_slots($node, 4);
	cancel("state = 'claimed'");
	wait_until($node, 'SELECT count(*), count(pid) FROM hymt_stat_activity', '4|3');
	cancel('pid IS NOT NULL');
	finish($_) foreach @sessions;
	is_deeply([ map { $_->{err} } @sessions ], [ ('ERROR:  57014') x 4 ], 'all are cancelled');
	wait_for_all_free($node, 'all leave');
	# The text is asked for anew, and does not find what was given up.
	is( finish(background($node, "SET statement_timeout = 500; " . translate('mock:sleep 30 all')))->{err},
		'ERROR:  57014', 'the same text again');
	is(arrivals() - $before - 1, 2, 'is another request for the engine');
};

scenario 'what differs is not shared' => sub {
	my $release = file('release');
	my $before = arrivals();
	my @calls = (
		"'mock:hold $release', 'zh', 'en'", "'mock:hold $release', 'zh', 'de'", "'mock:hold $release', 'ja', 'en'",
		"'mock:hold $release', 'zh', 'en', options => '{\"max_tokens\": 7}'", "'mock:hold /$release', 'zh', 'en'",
		map { "'mock:hold $release', 'zh', 'en', options => '{$_}'" } '"adapter": "legal"', '"adapter": "formal"',
		map { qq("sampling": {$_}) } '"seed": 1', '"seed": 2', '"temperature": 0.5', '"top_k": 5', '"top_p": 0.5');
	# The same as the first of all, and as the first with a seed, in other words.
	my @same = map { "'mock:hold $release', 'zh', 'en', options => '{\"sampling\": {$_}}'" } '"temperature": 0.0, "seed": 9',
	  '"seed": 1, "temperature": 1, "top_k": 0, "top_p": 1.0';
	my @sessions = map { background($node, "SELECT hymt_translate($_)") } @calls;

	wait_for_slots($node, 12);
	is(states(), '12 claimed', 'languages, options and every byte count');
	push @sessions, map { background($node, "SELECT hymt_translate($_)") } @calls[ 3, 5 ], @same;
	wait_for_slots($node, 16);
	is(states(), '12 claimed, 4 following', 'the words do not');
	append_to_file($release, 'now');
	is_deeply([ map { finish($_)->{out} } @sessions ], [ ('released') x 16 ], 'all are answered');
	is(arrivals() - $before - 1, 12, 'by twelve requests');
};

scenario 'long texts' => sub {
	foreach my $case ([ 60_000, '1 claimed, 1 following' ], [ 70_000, '2 claimed' ])
	{
		my $release = file('release');
		my $sql = "SELECT hymt_translate(E'mock:hold $release\\n' || repeat('x', $case->[0]), 'zh', 'en')";
		my @sessions = map { background($node, $sql) } 1 .. 2;
		wait_for_slots($node, 2);
		is(states(), $case->[1], "of $case->[0] bytes");
		append_to_file($release, 'now');
		is_deeply([ map { finish($_)->{out} } @sessions ], [ ('released') x 2 ], 'both are answered');
	}
};

scenario 'failures are shared' => sub {
	my $release = file('release');
	my @sessions = map { background($node, translate("mock:crash")) } 1 .. 3;

	is_deeply([ map { finish($_)->{err} } @sessions ], [ ('ERROR:  MT002') x 3 ], 'a text that the engine dies of');
	@sessions = map { background($node, translate('mock:fail internal')) } 1 .. 3;
	is_deeply([ map { finish($_)->{err} } @sessions ], [ ('ERROR:  MT003') x 3 ], 'a text that fails');
};

scenario 'an engine dies while many wait for one text, and the first one has left' => sub {
	my $release = file('release');
	my @crowd = crowd("mock:hold $release", 30);

	wait_for_slots($node, 30);
	cancel("state = 'claimed'");
	wait_until($node, 'SELECT count(pid) FROM hymt_stat_activity', '29');
	kill 'KILL', status($node, 'engine_pid');
	ok(wait_until($node, "SELECT count(*) FROM hymt_stat_activity WHERE state = 'claimed' AND retries = 1", '1'),
		'it is tried again');
	append_to_file($release, 'now');
	finish($_) foreach @crowd;
	answers_are('released|29', 'the others are answered');
};

scenario 'a worker ends while many wait for one text, and the first one has left' => sub {
	my $release = file('release');
	my @crowd = crowd("mock:hold $release", 20);

	wait_for_slots($node, 20);
	cancel("state = 'claimed'");
	wait_until($node, 'SELECT count(pid) FROM hymt_stat_activity', '19');
	restart_workers($node);
	ok(wait_until($node, "SELECT count(*) FROM hymt_stat_activity WHERE state = 'claimed'", '1'), 'it is tried again');
	append_to_file($release, 'now');
	finish($_) foreach @crowd;
	answers_are('released|19', 'the others are answered');
};

# From here on the engine takes one request at a time.
use_model($node, 'mock-credits-1');
wait_for_status($node, "state = 'ready'");

scenario 'who leaves while nothing has begun' => sub {
	my ($gate, $release) = (file('gate'), file('release'));
	my $first = background($node, translate("mock:hold $gate"));

	wait_until($node, "SELECT count(*) FROM hymt_stat_activity WHERE state = 'claimed'", '1');
	my @sessions = map { background($node, translate("mock:hold $release")) } 1 .. 3;
	wait_for_slots($node, 4);
	is(states(), '1 claimed, 2 following, 1 queued', 'they wait for one that waits for its turn');
	cancel("state = 'queued'");
	wait_until($node, 'SELECT count(*), count(pid) FROM hymt_stat_activity', '4|3');
	is(states(), '1 claimed, 2 following, 1 queued', 'which keeps its place when its owner leaves');
	append_to_file($_, 'now') foreach $gate, $release;
	finish($_) foreach $first, @sessions;
	is_deeply([ sort map { "$_->{out}$_->{err}" } @sessions ], [ 'ERROR:  57014', 'released', 'released' ], 'two are answered');

	# hymt.queue_timeout of one that follows is its own.
	$gate = file('gate');
	$first = background($node, translate("mock:hold $gate"));
	wait_until($node, "SELECT count(*) FROM hymt_stat_activity WHERE state = 'claimed'", '1');
	my $patient = background($node, translate('after a while'));
	wait_for_slots($node, 2);
	my $hasty = finish(background($node, 'SET hymt.queue_timeout = 200; ' . translate('after a while')));
	is($hasty->{err}, 'ERROR:  MT005', 'one that follows has its own time limit');
	append_to_file($gate, 'now');
	is(finish($patient)->{out}, 'zh>en: after a while', 'the other one waits on');
	finish($first);
};

scenario 'a single call that asks what a bulk one waits for' => sub {
	my $gate = file('gate');
	my $first = background($node, translate("mock:hold $gate"));

	wait_until($node, "SELECT count(*) FROM hymt_stat_activity WHERE state = 'claimed'", '1');
	my $bulk = background($node, <<'END');
SELECT unnest(hymt_translate(array_agg('mock:arrival ' || i), 'zh', 'en')) FROM generate_series(1, 100) AS i
END
	wait_for_slots($node, 101);
	my $single = background($node, translate('mock:arrival 90'));
	wait_for_slots($node, 102);
	is(states(), '1 claimed, 1 following, 100 queued', 'it follows that');
	append_to_file($gate, 'now');
	my @numbers = split /\n/, finish($bulk)->{out};
	is(finish($single)->{out}, $numbers[89], 'both have the same answer');
	is($numbers[89], $numbers[0] - 1, 'which comes before all other bulk requests');
	finish($first);

	# And of a role with nothing else to do: its turn comes as soon as with a request of its own.
	$gate = file('gate');
	$first = background($node, translate("mock:hold $gate"));
	wait_until($node, "SELECT count(*) FROM hymt_stat_activity WHERE state = 'claimed'", '1');
	my @many = map { background($node, translate("mock:arrival many $_")) } 1 .. 10;
	wait_for_slots($node, 11);
	my $last = background($node, translate('mock:arrival last of many'));
	wait_for_slots($node, 12);
	my $ann = background($node, 'SET ROLE ann; ' . translate('mock:arrival last of many'));
	wait_for_slots($node, 13);
	append_to_file($gate, 'now');
	my $number = finish($ann)->{out};
	is(finish($last)->{out}, $number, 'two roles have the same answer');
	my $earlier = grep { finish($_)->{out} < $number } @many;
	cmp_ok($earlier, '<=', 1, 'which came in the turn of the one that asked for nothing else');
	finish($first);
};

scenario 'nobody waits longer because others ask the same, and leave' => sub {
	my $gate = file('gate');
	my $first = background($node, translate("mock:hold $gate"));

	wait_until($node, "SELECT count(*) FROM hymt_stat_activity WHERE state = 'claimed'", '1');
	my $bob = background($node, 'SET ROLE bob; ' . translate('mock:arrival popular'));
	wait_for_slots($node, 2);
	my $ann = background($node, 'SET ROLE ann; ' . translate('mock:arrival of ann'));
	wait_for_slots($node, 3);
	is( finish(background($node, "SET statement_timeout = 300; SET ROLE cat; " . translate('mock:arrival popular')))->{err},
		'ERROR:  57014', 'a third role asks the same, and leaves');
	append_to_file($gate, 'now');
	my $of_ann = finish($ann)->{out};
	cmp_ok(finish($bob)->{out}, '<', $of_ann, 'it kept its place');
	finish($first);

	# A bulk request, next to be served, that a single one of a role with much to do makes single.
	$gate = file('gate');
	$first = background($node, translate("mock:hold $gate"));
	wait_until($node, "SELECT count(*) FROM hymt_stat_activity WHERE state = 'claimed'", '1');
	my $bulk = background($node, <<'END');
SET ROLE bob; SELECT hymt_translate('mock:arrival bulk', 'zh', 'en', options => '{"priority": "bulk"}')
END
	wait_for_slots($node, 2);
	my @many = map { background($node, 'SET ROLE ann; ' . translate("mock:arrival ann $_")) } 1 .. 6;
	wait_for_slots($node, 8);
	my $hasty = "SET statement_timeout = 300; SET ROLE ann; " . translate('mock:arrival bulk');
	is(finish(background($node, $hasty))->{err}, 'ERROR:  57014', 'a role with a backlog joins a bulk request, and leaves');
	append_to_file($gate, 'now');
	my $number = finish($bulk)->{out};
	my $earlier = grep { finish($_)->{out} < $number } @many;
	cmp_ok($earlier, '<=', 1, 'it is not put behind that backlog');
	finish($first);
};

# Loading takes longer than the limit.
scenario 'hymt.queue_timeout is for requests that nobody began' => sub {
	my $release = file('release');

	use_model($node, 'mock-load-slow-2');
	wait_for_status($node, "state = 'ready'");
	my $hasty = 'SET hymt.queue_timeout = 1000; ' . translate("mock:hold $release");
	my @sessions = map { background($node, $hasty) } 1 .. 2;
	ok( wait_until($node, "SELECT count(*) FROM hymt_stat_activity WHERE age > '1.1 s' AND begun IS NOT NULL", '2'),
		'two wait for one that was begun in time');
	kill 'KILL', status($node, 'engine_pid');
	ok(wait_until($node, "SELECT count(*) FROM hymt_stat_activity WHERE state = 'claimed' AND retries = 1", '1'),
		'it is begun again after the death of the engine, though it is older than the limit');
	append_to_file($release, 'now');
	is_deeply([ map { my $s = finish($_); "$s->{out}$s->{err}" } @sessions ], [ ('released') x 2 ], 'both are answered');
};

scenario 'many ask few texts, all the time' => sub {
	use_model($node, 'mock-credits-4');
	wait_for_status($node, "state = 'ready'");
	$node->safe_psql('postgres', 'SELECT hymt_stat_reset()');
	my $script = file('few');
	append_to_file($script, <<'END');
\set text random(1, 5)
SELECT 1 / (hymt_translate('text ' || :text, 'zh', 'en') = 'zh>en: text ' || :text)::int;
END
	$node->command_ok([ 'pgbench', '-n', '-c', '30', '-j', '2', '-t', '60', '-f', $script, 'postgres' ],
		'every answer is right');
	is($node->safe_psql('postgres', 'SELECT requests, answered, joined > 900 FROM hymt_stat'), '1800|1800|t', 'most share one');
};

$node->stop;
done_testing();
