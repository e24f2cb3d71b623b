# In which order requests are served, and what classes and roles may occupy. The mock engine takes one request at a time
# and answers with the number of its arrival, so that the order is known exactly.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = hymt_node('fairness', model => 'mock-credits-1', conf => <<'END');
hymt.queue_slots = 16384
log_statement = none
END
my $number_of_gates = 0;

$node->safe_psql('postgres', <<'END');
CREATE ROLE ann; CREATE ROLE bob;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO ann, bob;
END

# An array of texts that are answered with the numbers of their arrival, one number to a line of the output.
sub arrivals
{
	my ($name, $count, $role) = @_;

	return ($role ? "SET ROLE $role; " : '') . <<"END";
SELECT unnest(hymt_translate(array_agg('mock:arrival $name ' || i), 'zh', 'en')) FROM generate_series(1, $count) AS i
END
}

sub arrival
{
	my ($name, $options) = @_;

	return "SELECT hymt_translate('mock:arrival $name', 'zh', 'en', options => '$options')";
}

# A request that takes the engine's only place until the gate is opened.
sub close_gate
{
	my ($slots) = @_;
	my $file = $node->basedir . '/gate_' . ++$number_of_gates;
	my $session = background($node, translate("mock:hold $file"));

	wait_until($node, "SELECT count(*) FROM hymt_stat_activity WHERE state = 'claimed'", '1');
	return { file => $file, session => $session };
}

sub open_gate
{
	my ($gate) = @_;

	append_to_file($gate->{file}, 'open');
	finish($gate->{session});
	return;
}

sub numbers
{
	my ($session) = @_;

	finish($session);
	die "$session->{err} from: $session->{sql}" if $session->{err} ne '';
	my @numbers = sort { $a <=> $b } split /\n/, $session->{out};
	return @numbers;
}

# The largest factor between the claims of two roles, from the 20th on until one has no more.
sub worst_ratio
{
	my ($first, $second) = @_;
	my @both = sort { $a->[0] <=> $b->[0] } ((map { [ $_, 0 ] } @$first), (map { [ $_, 1 ] } @$second));
	my @count = (0, 0);
	my $worst = 0;

	foreach my $claim (@both)
	{
		$count[ $claim->[1] ]++;
		next if $count[0] + $count[1] < 20;
		my ($less, $more) = sort { $a <=> $b } @count;
		my $ratio = $less == 0 ? 1000 : $more / $less;
		$worst = $ratio if $ratio > $worst;
		last if $count[0] == @$first || $count[1] == @$second;
	}
	return $worst;
}

scenario 'a single call behind ten thousand bulk requests' => sub {
	my $gate = close_gate();
	my $bulk = background($node, arrivals('bulk', 10_000));

	wait_for_slots($node, 10_001);
	my $single = background($node, arrival('single', '{}'));
	wait_for_slots($node, 10_002);
	open_gate($gate);
	my ($number) = numbers($single);
	# The gate was the first to arrive.
	cmp_ok($number, '<=', 1 + 8, "it is number $number, the first being the one that waited for nothing");
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . session_pid($node, $bulk) . ')');
	is(finish($bulk)->{err}, 'ERROR:  57014', 'the bulk requests are cancelled');
	wait_for_all_free($node, 'ten thousand');
};

scenario 'two roles with equal backlogs' => sub {
	my $gate = close_gate();
	my $ann = background($node, arrivals('ann', 100, 'ann'));

	wait_for_slots($node, 101);
	my $bob = background($node, arrivals('bob', 100, 'bob'));
	wait_for_slots($node, 201);
	open_gate($gate);
	my $worst = worst_ratio([ numbers($ann) ], [ numbers($bob) ]);
	cmp_ok($worst, '<=', 2, sprintf('claims of one are at most %.2f times those of the other', $worst));
};

scenario 'single calls of two roles, one with many sessions' => sub {
	my $gate = close_gate();
	my @ann = map { background($node, 'SET ROLE ann; ' . arrival("ann $_", '{}')) } 1 .. 12;

	wait_for_slots($node, 13);
	my $bob = background($node, 'SET ROLE bob; ' . arrival('bob', '{}'));
	wait_for_slots($node, 14);
	open_gate($gate);
	my ($number) = numbers($bob);
	my @others = sort { $a <=> $b } map { numbers($_) } @ann;
	cmp_ok(scalar(grep { $_ < $number } @others), '<=', 1, 'a call of another role waits for one of the twelve at most');
};

scenario 'bulk requests under a constant stream of single calls' => sub {
	my $gate = close_gate();
	my $bulk = background($node, arrivals('trickle', 10));

	wait_for_slots($node, 11);
	# Each session calls again as soon as it has its answer.
	my @singles = map { background($node, <<"END") } 1 .. 24;
SELECT hymt_translate(format('mock:arrival stream $_ %s', i), 'zh', 'en') FROM generate_series(1, 12) AS i
END
	wait_for_slots($node, 35);
	open_gate($gate);
	my @bulk = numbers($bulk);
	my @gaps = map { $bulk[$_] - $bulk[ $_ - 1 ] } 1 .. $#bulk;
	my ($largest) = sort { $b <=> $a } @gaps;
	cmp_ok($largest, '<=', 16, "one of 16 claims at least: distances are @gaps");
	my @all = map { numbers($_) } @singles;
	is(scalar(@all), 24 * 12, 'all single calls are answered');
	my $first = (sort { $a <=> $b } @all)[0];
	cmp_ok($first, '<', $bulk[0], 'single calls go first');
};

scenario 'priority' => sub {
	my $gate = close_gate();
	my $bulk = background($node, arrival('said to be bulk', '{"priority": "bulk"}'));

	wait_for_slots($node, 2);
	my $normal = background($node, arrival('said to be normal', '{"priority": "normal"}'));
	wait_for_slots($node, 3);
	open_gate($gate);
	cmp_ok((numbers($normal))[0], '<', (numbers($bulk))[0], 'a bulk call lets a later one go first');
};

# With more to do than there are slots.
$node->append_conf('postgresql.conf', "hymt.queue_slots = 16\nhymt.queue_memory = 1MB\n");
$node->restart;
wait_for_status($node, "state = 'ready'");

scenario 'bulk requests leave room for single calls' => sub {
	my $gate = close_gate();
	my $bulk = background($node, arrivals('share', 100));

	# Three quarters of 16, and the gate.
	wait_for_slots($node, 13);
	usleep(300_000);
	is(status($node, 'slots_in_use'), '13', 'bulk requests hold 12 of 16 slots');
	my $single = background($node, arrival('single', '{}'));
	wait_for_slots($node, 14);
	open_gate($gate);
	numbers($single);
	is(numbers($bulk) + 0, 100, 'an array that is larger than the queue is translated');

	$node->append_conf('postgresql.conf', 'hymt.bulk_share = 25');
	$node->reload;
	wait_until($node, 'SHOW hymt.bulk_share', '25');
	$gate = close_gate();
	$bulk = background($node, arrivals('share', 20));
	wait_for_slots($node, 5);
	usleep(300_000);
	is(status($node, 'slots_in_use'), '5', 'or 4 of 16, if so set');
	open_gate($gate);
	numbers($bulk);
	$node->append_conf('postgresql.conf', 'hymt.bulk_share = 75');
	$node->reload;
	wait_until($node, 'SHOW hymt.bulk_share', '75');
};

scenario 'bulk texts leave room for single ones' => sub {
	my $gate = close_gate();
	# Of 1 MB half is for texts of requests, and three quarters of that for bulk ones: 384 kB.
	my $bulk = background($node, <<'END');
SELECT sum(length(t)) FROM unnest(hymt_translate(
  (SELECT array_agg(i || repeat(' word', 12800)) FROM generate_series(1, 10) AS i), 'zh', 'en')) AS t
END

	wait_until($node, 'SELECT queue_bytes_in_use > 300000 FROM hymt_status', 't');
	usleep(300_000);
	cmp_ok(status($node, 'queue_bytes_in_use'), '<=', 384 * 1024 + 1024, 'bulk texts hold 384 kB at most');
	my $single = background($node, 'SELECT length(hymt_translate(repeat(\'room \', 20000), \'zh\', \'en\'))');
	wait_until($node, 'SELECT count(*) FROM hymt_stat_activity WHERE text_bytes = 100000', '1');
	open_gate($gate);
	is(finish($single)->{out}, 100_000 + length('zh>en: '), 'a single text of 100 kB finds room');
	finish($bulk);
	is("$bulk->{out}$bulk->{err}", 10 * 12_800 * 5 + 11 + 10 * length('zh>en: '), 'the bulk texts are translated');

	# Larger than the whole share.
	is( $node->safe_psql('postgres', <<'END'), '900013', 'an array with texts that are larger than the share');
SELECT sum(length(t)) FROM unnest(hymt_translate(ARRAY['a' || repeat(' word', 90000) || 'z', 'b' || repeat(' word', 89999) || '.'],
  'zh', 'en')) AS t
END
};

scenario 'two roles with more than fits the queue' => sub {
	my $ann = background($node, arrivals('much of ann', 120, 'ann'));

	wait_until($node, "SELECT count(*) > 8 FROM hymt_stat_activity WHERE role = 'ann'", 't');
	my $bob = background($node, arrivals('much of bob', 120, 'bob'));
	my @ann = numbers($ann);
	my @bob = numbers($bob);
	# Ann had begun before. From where Bob has come in, until Ann has no more:
	my @common = grep { $_ >= $bob[0] } @ann;
	my @of_bob = grep { $_ <= $ann[-1] } @bob;
	cmp_ok(scalar(@common), '>=', 20, 'Bob comes in while Ann has much to do');
	my ($less, $more) = sort { $a <=> $b } scalar(@common), scalar(@of_bob);
	cmp_ok($more, '<=', 2 * $less + 1, 'who comes later gets his share: ' . @common . ' to ' . @of_bob);
};

scenario 'many leave at any moment' => sub {
	my $chaos = $node->basedir . '/chaos.sql';
	my ($out, $err) = ('', '');

	# Each session is one of two roles, with one text or twenty, few of them different, and a limit that ends most.
	append_to_file($chaos, <<'END');
\set limit random(1, 60)
SELECT set_config('role', CASE WHEN random() < 0.5 THEN 'ann' ELSE 'bob' END, false),
  set_config('statement_timeout', :limit::text, false);
DO $$
DECLARE
  number int := 30 * random();
BEGIN
  IF random() < 0.4 THEN
    PERFORM hymt_translate((SELECT array_agg('text ' || (number + i)) FROM generate_series(1, 20) AS i), 'zh', 'en');
  ELSE
    PERFORM hymt_translate('text ' || number, 'zh', 'en');
  END IF;
EXCEPTION WHEN query_canceled THEN
END $$;
END
	my $run = IPC::Run::start(
		[ 'pgbench', '-n', '-c', '30', '-j', '2', '-T', '3', '-f', $chaos, '-d', $node->connstr('postgres') ],
		'<', File::Spec->devnull, '>', \$out, '2>', \$err);
	for (1 .. 10)
	{
		usleep(300_000);
		$node->safe_psql('postgres', <<'END');
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgbench' ORDER BY random() LIMIT 1
END
	}
	$run->finish;
	wait_for_all_free($node, 'chaos');
	is($node->safe_psql('postgres', <<'END'), 't', 'every request has one end');
SELECT requests = answered + cancelled + failed_language + failed_too_long + failed_unfinished + failed_crashed
  + failed_engine + failed_memory + failed_timeout + failed_unavailable + failed_other FROM hymt_stat
END
	# What classes and roles are charged is as in the beginning.
	my $gate = close_gate();
	my $bulk = background($node, arrivals('after it', 40, 'ann'));
	wait_for_slots($node, 13);
	usleep(300_000);
	is(status($node, 'slots_in_use'), '13', 'bulk requests of one role hold 12 of 16 slots again');
	open_gate($gate);
	is(numbers($bulk) + 0, 40, 'and are answered');
};

scenario 'more callers than slots' => sub {
	my $file = $node->basedir . '/hundred.sql';

	append_to_file($file, "SELECT hymt_translate(format('caller %s', pg_backend_pid()), 'zh', 'en');\n");
	$node->append_conf('postgresql.conf', "hymt.queue_slots = 8\nmax_connections = 120\n");
	$node->restart;
	wait_for_status($node, "state = 'ready'");
	$node->safe_psql('postgres', 'SELECT hymt_stat_reset()');
	$node->command_ok([ 'pgbench', '-n', '-c', '100', '-j', '2', '-t', '3', '-f', $file, 'postgres' ],
		'100 sessions on 8 slots');
	is($node->safe_psql('postgres', 'SELECT requests, answered FROM hymt_stat'), '300|300', 'all are answered');
};

scenario 'a limit for each role' => sub {
	$node->append_conf('postgresql.conf', 'hymt.max_requests_per_role = 3');
	$node->reload;
	wait_until($node, 'SHOW hymt.max_requests_per_role', '3');
	my @ann = map { background($node, "SET ROLE ann; " . translate("mock:sleep 30 $_")) } 1 .. 5;
	my $of_ann = "SELECT count(*) FROM hymt_stat_activity WHERE role = 'ann'";
	my $waiting = <<'END';
SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%mock:sleep 30%' AND pid <> pg_backend_pid()
   AND pid NOT IN (SELECT pid FROM hymt_stat_activity) AND wait_event_type = 'Extension'
END

	wait_until($node, $of_ann, '3');
	ok(wait_until($node, $waiting, '2'), 'two of five wait, visibly');
	is($node->safe_psql('postgres', $of_ann), '3', 'three are in the queue');
	my $array = background($node, arrivals('of bob', 20, 'bob'));
	my $timeout = finish(background($node, "SET ROLE ann; SET hymt.queue_timeout = 200; " . translate('too many')));
	is($timeout->{err}, 'ERROR:  MT005', 'hymt.queue_timeout ends that wait');
	my $denied = finish(background($node, 'SET ROLE ann; SET hymt.max_requests_per_role = 0'));
	is($denied->{err}, 'ERROR:  42501', 'a role cannot lift its own limit');
	# The engine's only place is taken by the first of Ann.
	my $cancel = <<"END";
SELECT pg_cancel_backend(pid) FROM hymt_stat_activity WHERE role = 'ann' AND state = '%s'
END
	$node->safe_psql('postgres', sprintf($cancel, 'queued') . ' LIMIT 1');
	ok(wait_until($node, $waiting, '1'), 'when one leaves, the next one enters');
	is($node->safe_psql('postgres', $of_ann), '3', 'and there are three again');
	for (1 .. 20)
	{
		$node->safe_psql('postgres', <<'END');
SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%mock:sleep 30%' AND pid <> pg_backend_pid()
END
		last if $node->safe_psql('postgres', $of_ann) eq '0';
		usleep(50_000);
	}
	finish($_) foreach @ann;
	is(numbers($array) + 0, 20, 'an array of another role is translated, three at a time');
};

$node->stop;
done_testing();
