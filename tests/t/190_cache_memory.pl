# Answers that are kept in shared memory: who gets them, for how long, and that they are always the right ones.
#
# Which engine answered, and whether one did, is told by itself: by its process number, or by the number of requests that
# it has seen.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = hymt_node(
	'cache',
	conf => "hymt.cache = memory\nhymt.adapters = '\@legal=/nowhere, \@medical=/nowhere'\n",
	init => [ allows_streaming => 1 ]);

# A text's translation, and whether it was kept, as "TRANSLATION|t".
sub details
{
	my ($text, %option) = @_;

	$text =~ s/'/''/g;
	return ($option{node} // $node)->safe_psql($option{database} // 'postgres',
		($option{first} // '')
		  . "SELECT translation, cached FROM hymt_translate_details('$text', 'zh', 'en'"
		  . ($option{more} // '') . ')');
}

# One that an engine of this model has answered, and would answer otherwise each time.
my $number_of_texts = 0;

sub kept_text
{
	my ($verb, $on) = @_;
	my $text = "mock:$verb kept " . ++$number_of_texts;

	like(details($text, node => $on // $node), qr/\|f$/, "$text: the engine answers");
	return $text;
}

sub stat_of
{
	my ($column, $on) = @_;

	return ($on // $node)->safe_psql('postgres', "SELECT $column FROM hymt_stat");
}

sub ready_with
{
	my ($model, $on) = @_;

	return wait_until($on // $node, "SELECT bool_and(state = 'ready' AND model = '$model') FROM hymt_status", 't');
}

scenario 'who gets it' => sub {
	my $text = kept_text('arrival');
	my $answer = details($text);

	like($answer, qr/^\d+\|t$/, 'in another session it is there');
	is(details($text), $answer, 'and again');
	is($node->safe_psql('postgres', "SELECT hymt_translate(ARRAY['$text', '$text', '1'], 'zh', 'en')"),
		'{' . ($answer =~ s/\|t//r) . ',' . ($answer =~ s/\|t//r) . ',1}', 'in an array, too');

	$node->safe_psql('postgres', 'CREATE DATABASE other');
	$node->safe_psql('other', 'CREATE EXTENSION hymt');
	like(details($text, database => 'other'), qr/^(?!\Q$answer\E)\d+\|f$/, 'another database has answers of its own');
	like(details($text, database => 'other'), qr/\|t$/, 'which are kept');

	like(details($text, more => q{, options => '{"adapter": "legal"}'}), qr/\|f$/, 'with an adapter it is another question');
	like(details($text, more => q{, options => '{"adapter": "medical"}'}), qr/\|f$/, 'and another one with another');
	like(details($text, more => q{, options => '{"adapter": "legal"}'}), qr/\|t$/, 'which are kept as well');
	is(details($text), $answer, 'and have nothing to do with the first one');

	# Parts of a question do not run into one another.
	like(details('mock:arrival b', more => ", context => 'a'"), qr/\|f$/, 'a context and a text');
	like(details('rrival b', more => ", context => 'amock:a'"), qr/\|f$/, 'the same bytes, divided otherwise');
};

scenario 'roles' => sub {
	my $text = kept_text('arrival');
	my %as;

	$node->safe_psql('postgres', "CREATE ROLE $_; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO $_") foreach qw(ann bob);
	$as{$_} = "SET hymt.cache_scope = role; SET ROLE $_;" foreach qw(ann bob);
	like(details($text, first => $as{ann}), qr/\|f$/, 'with scope role, what others have is not seen');
	my $answer = details($text, first => $as{ann});
	like($answer, qr/\|t$/, 'but what the role itself has');
	like(details($text, first => $as{bob}), qr/^(?!\Q$answer\E)\d+\|f$/, 'by nobody else');
	like(details($text, first => 'SET ROLE bob;'), qr/\|t$/, 'with scope database all see the same');
};

scenario 'what is not kept' => sub {
	foreach my $text ('mock:fail internal', 'mock:fail language', 'mock:finish length', 'mock:finish loop', 'mock:nul')
	{
		my $entries = stat_of('cache_memory_entries');

		is(details($text, more => ", on_error => 'source'"), "$text|f", "$text: fallback") foreach 1 .. 2;
		is(stat_of('cache_memory_entries'), $entries, "$text: nothing is kept of it");
	}
	$node->safe_psql('postgres', "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
	$node->safe_psql('latin', 'CREATE EXTENSION hymt');
	is(details('mock:chinese', database => 'latin', more => ", on_error => 'null'"), '|f', 'what has no place in the encoding')
	  foreach 1 .. 2;
	$node->safe_psql('postgres', 'DROP DATABASE latin');

	# More than an entry may have of its partition.
	like(details('mock:big 200000'), qr/\|f$/, 'a very long answer') foreach 1 .. 2;
	# That is about how many: an answer, cut into pieces and put together.
	is(details("mock:big 100000"), ('b' x 100_000) . '|f', 'a long answer');
	is(details("mock:big 100000"), ('b' x 100_000) . '|t', 'comes back whole');
	foreach my $length (100 .. 130, 220 .. 260)
	{
		my $text = 'x' x $length;
		my $bad = join ' ', grep { details($text) ne "zh>en: $text|$_" } qw(f t);

		is($bad, '', "a text of $length bytes") if $bad ne '' || $length % 50 == 0;
	}
};

scenario 'another model' => sub {
	my $plain = status($node, 'model');
	my $text = kept_text('pid');
	my $answer = details($text);

	# What is asked before the switch and answered after it is the old model's.
	my $gate = $node->basedir . '/gate';
	my $late = background($node, translate("mock:hold $gate"));
	wait_until($node, "SELECT count(*) FROM hymt_stat_activity WHERE state = 'claimed'", '1');

	switch_model($node, 'mock-load-slow-2');
	wait_for_status($node, "loading_phase = 'loading slowly'");
	is(details($text), $answer, 'while the new model is loading, the old one and its answers serve');
	ok(ready_with('mock-load-slow-2'), 'the new model is ready');
	like(details($text), qr/^(?!\Q$answer\E)\d+\|f$/, 'it answers by itself');
	like(details($text), qr/\|t$/, 'which is kept');
	append_to_file($gate, '');
	is(finish($late)->{out}, 'released', 'the old engine answers');
	is(details("mock:hold $gate"), 'released|f', 'which is no answer of the new model');

	switch_model($node, $plain);
	ok(ready_with($plain), 'back to the first model');
	is(details($text), $answer =~ s/f$/t/r, 'whose answers are still there');
	is(details("mock:hold $gate"), 'released|t', 'the late one, too');

	# An adapter has changed since the engine was started: the answer is of something else.
	is(details('mock:fingerprint mock-third'), 'zh>en: mock:fingerprint mock-third|f', 'not the model that is looked up')
	  foreach 1 .. 2;
	switch_model($node, 'mock-third');
	ok(ready_with('mock-third'), 'when that is looked up');
	is(details('mock:fingerprint mock-third'), 'zh>en: mock:fingerprint mock-third|t', 'it is found');
	switch_model($node, $plain);
	ok(ready_with($plain), 'back to the first model');
};

scenario 'no engine' => sub {
	my $plain = status($node, 'model');
	my $directory = model_directory($node, $plain);
	my $text = kept_text('pid');
	my $answer = details($text);
	my $waits = "SET statement_timeout = '500ms';";

	# The next engine of this model never becomes ready.
	append_to_file("$directory/fault", "silent\n");
	kill 'KILL', status($node, 'engine_pid');
	ok(wait_for_status($node, "state = 'starting'"), 'the engine is started again');
	is(details($text), $answer, 'what is kept is there meanwhile');
	is(finish(background($node, $waits . translate('new')))->{err}, 'ERROR:  57014', 'what is not has to wait');

	switch_model($node, model_directory($node, 'mock-silent'));
	is(finish(background($node, "SELECT pg_sleep(0.3); $waits " . translate($text)))->{err}, 'ERROR:  57014',
		'once it is to be another model, answers of the old one are not given');
	unlink "$directory/fault";
	switch_model($node, $plain);
	ok(ready_with($plain), 'the first model again');
	is(details($text), $answer, 'with its answers');

	restart_workers($node);
	is(details($text), $answer, 'they outlive the worker, too');
	ok(ready_with($plain), 'which comes back');
};

scenario 'counting' => sub {
	$node->safe_psql('postgres', 'SELECT hymt_stat_reset()');
	my $text = kept_text('arrival');
	details($text) foreach 1 .. 3;
	$node->safe_psql('postgres', 'SET hymt.cache = off; ' . translate($text));
	is(stat_of('requests, cache_memory_hits, cache_table_hits, cache_misses'), '2|3|0|1',
		'hits are no requests; what is not looked up is no miss');
	$node->safe_psql('postgres', 'SELECT hymt_stat_reset()');
	is(stat_of('cache_memory_hits, cache_misses, cache_memory_entries > 0, cache_memory_bytes > 0'), '0|0|t|t',
		'a reset resets counters, and leaves what is there');

	# As many elements as never fit into the queue at once: each is counted once.
	$node->safe_psql('postgres',
		"SELECT hymt_translate(array_agg('many ' || i), 'zh', 'en') FROM generate_series(1, 3000) AS i");
	is(stat_of('requests, cache_misses'), '3000|3000', 'each element once');
};

scenario 'reading ahead' => sub {
	$node->safe_psql('postgres',
		"CREATE TABLE goods AS SELECT i AS id, 'mock:arrival ahead ' || i AS title FROM generate_series(1, 5000) AS i");
	my $query = "SELECT sum(hash_record(ROW(id, x))::bigint) FROM (SELECT id, hymt_translate(title, 'zh', 'en') AS x FROM goods OFFSET 0) AS s";
	$node->safe_psql('postgres', 'SELECT hymt_stat_reset()');
	my $sum = $node->safe_psql('postgres', $query);
	is(stat_of('requests, cache_memory_hits, cache_misses'), '5000|0|5000', 'each text is asked for once');
	is($node->safe_psql('postgres', $query), $sum, 'then found');
	is(stat_of('requests, cache_memory_hits, cache_misses'), '5000|5000|5000', 'and counted once');

	like($node->safe_psql('postgres', <<'END'), qr/Workers Launched: [12]/, 'parallel workers');
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
EXPLAIN (ANALYZE) SELECT count(*) FROM goods WHERE hymt_translate(title, 'zh', 'en') <> '';
END
	is(stat_of('requests, cache_memory_hits, cache_misses'), '5000|10000|5000', 'find it, too');
};

scenario 'a standby' => sub {
	$node->backup('copy');
	my $standby = PostgreSQL::Test::Cluster->new('cache_standby');
	$standby->init_from_backup($node, 'copy', has_streaming => 1);
	$standby->start;
	watch($standby);
	my $text = kept_text('pid');
	$node->wait_for_catchup($standby);
	ok(wait_until($standby, 'SELECT ok FROM hymt_health()', 't'), 'it has an engine');
	like(details($text, node => $standby), qr/^\d+\|f$/, 'it has a memory of its own');
	like(details($text, node => $standby), qr/^\d+\|t$/, 'in which answers are kept');
	is(stat_of('cache_memory_hits, cache_memory_entries', $standby), '1|1', 'and counted');
	$standby->stop;
};

scenario 'many at a time' => sub {
	# Few texts, all of which fit, and many more than fit; short and long. Each answer is checked.
	my $few = $node->basedir . '/few';
	my $many = $node->basedir . '/many';
	my $call = "SELECT 1 / (hymt_translate(repeat(:n || ' ', :r), 'zh', 'en') = 'zh>en: ' || repeat(:n || ' ', :r))::int";

	append_to_file($few, "\\set n random(1, 50)\n\\set r :n * 7\n$call x \\gset\n" =~ s/repeat\(:n/repeat('t' || :n/gr);
	append_to_file($many, "\\set n random(1, 100000)\n\\set r 1 + :n % 300\n$call x \\gset\n" =~ s/repeat\(:n/repeat('t' || :n/gr);
	my $small = hymt_node('cache_small', model => 'mock-step-0',
		conf => "hymt.cache = memory\nhymt.cache_memory = 1MB\nrestart_after_crash = on\n");
	$small->safe_psql('postgres', 'SELECT hymt_stat_reset()');
	$small->command_ok(
		[
			'pgbench', '-n', '-M', 'prepared', '-c', '8', '-j', '2', '-t', '2000', '-f', "$few\@4", '-f', "$many\@1",
			'postgres'
		],
		'all answers are right');
	is(stat_of('cache_memory_hits + cache_misses, cache_misses = requests, answered = requests', $small), '16000|t|t',
		'each call is a hit or a request');
	cmp_ok(stat_of('cache_memory_hits', $small), '>', 8000, 'there were hits');
	cmp_ok(stat_of('cache_memory_evictions', $small), '>', 0, 'and evictions');
	cmp_ok(stat_of('cache_memory_bytes', $small), '<=', 1024 * 1024, 'within bounds');

	# A crash lays out shared memory anew.
	my $text = kept_text('pid', $small);
	my $victim = background($small, 'SELECT pg_sleep(60)');
	kill 'KILL', session_pid($small, $victim);
	finish($victim);
	ok(wait_until($small, 'SELECT ok FROM hymt_health()', 't'), 'the server restarts after a crash');
	is(stat_of('cache_memory_entries, cache_memory_bytes, cache_memory_hits', $small), '0|0|0', 'with nothing kept');
	like(details($text, node => $small), qr/\|f$/, 'what was there is asked for again');
	$small->stop;
};

scenario 'the least memory' => sub {
	my $least = hymt_node('cache_least', model => 'mock-step-0', conf => "hymt.cache = memory\nhymt.cache_memory = 128kB\n");
	my $used = kept_text('arrival', $least);
	my $answer = details($used, node => $least);
	my $unused = kept_text('arrival', $least);
	my %sizes;

	foreach my $round (1 .. 40)
	{
		$least->safe_psql('postgres',
			"SELECT hymt_translate(array_agg('round $round, text ' || i), 'zh', 'en') FROM generate_series(1, 200) AS i");
		details($used, node => $least) eq $answer or fail("round $round: what is used is still there");
		$sizes{ stat_of('cache_memory_bytes', $least) }++ if $round > 10;
	}
	is(details($used, node => $least), $answer, 'what is used is still there');
	like(details($unused, node => $least), qr/\|f$/, 'what is not had to make room');
	my @sizes = sort { $a <=> $b } keys %sizes;
	cmp_ok($sizes[-1], '<=', 128 * 1024, 'memory is bounded');
	cmp_ok($sizes[0], '>', 100 * 1024, 'and used');
	cmp_ok(stat_of('cache_memory_evictions', $least), '>', 6000, 'by evictions');

	# What a cursor found while it read ahead is there when its turn comes, whatever happens meanwhile.
	$least->safe_psql('postgres', <<'END');
CREATE TABLE goods AS SELECT i AS id, 'mock:arrival ahead ' || i AS title FROM generate_series(1, 64) AS i;
CREATE TABLE first AS SELECT id, hymt_translate(title, 'zh', 'en') AS x FROM goods;
SELECT hymt_stat_reset();
END
	my $mark = $least->basedir . '/flooded';
	my $session = background($least, <<"END");
BEGIN;
SET LOCAL hymt.read_ahead = on;
DECLARE c CURSOR FOR SELECT hymt_translate(title, 'zh', 'en') FROM goods ORDER BY id;
\\o /dev/null
FETCH 31 FROM c;
SELECT hymt_translate('mock:hold $mark', 'zh', 'en');
\\o
FETCH 1 FROM c;
END
	wait_until($least, "SELECT count(*) FROM hymt_stat_activity WHERE state = 'claimed'", '1');
	$least->safe_psql('postgres',
		"SELECT hymt_translate(array_agg('flood ' || i), 'zh', 'en') FROM generate_series(1, 3000) AS i");
	my $requests = stat_of('requests', $least);
	append_to_file($mark, '');
	is(finish($session)->{out}, $least->safe_psql('postgres', 'SELECT x FROM first WHERE id = 32'), 'the row is as it was read');
	is(stat_of('requests', $least), $requests, 'and was not asked for again');
	$least->stop;

	$least->append_conf('postgresql.conf', 'hymt.cache_memory = 0');
	$least->start;
	ok(wait_until($least, 'SELECT ok FROM hymt_health()', 't'), 'without any');
	like(details($used, node => $least), qr/\|f$/, 'nothing is kept') foreach 1 .. 2;
	is(stat_of('cache_memory_entries, cache_misses', $least), '0|2', 'but counted');
	$least->stop;
};

scenario 'several engines' => sub {
	my $two = hymt_node('cache_two', conf => "hymt.cache = memory\nhymt.devices = 2\n");
	ok(ready_with('mock-plain', $two), 'two engines of one model');
	my $text = kept_text('arrival', $two);
	my $answer = details($text, node => $two);
	like($answer, qr/\|t$/, 'share what is kept');

	# One cannot use the new model and goes on with the old one.
	my $other = model_directory($two, 'mock-other');
	append_to_file("$other/fault-1", "refuse broken\n");
	switch_model($two, $other);
	ok( wait_until($two,
			"SELECT string_agg(model, ',' ORDER BY device), bool_or(last_error LIKE '%asked to refuse%') FROM hymt_status",
			'mock-other,mock-plain|t'),
		'engines of two models');
	like(details($text, node => $two), qr/\|f$/, 'nothing is looked up') foreach 1 .. 3;

	switch_model($two, 'mock-plain');
	ok(ready_with('mock-plain', $two), 'two engines of one model again');
	is(details($text, node => $two), $answer, 'and its answers');
	$two->stop;
};

$node->stop;
done_testing();
