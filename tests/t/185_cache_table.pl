# The table hymt_cache: what is found there, by whom, and what becomes of it.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

# Without the first level, so that each answer that was not asked for comes from the table.
my $conf = "hymt.cache = on\nhymt.cache_memory = 0\nhymt.max_database_workers = 4\nmax_worker_processes = 16\n"
  . "max_prepared_transactions = 1\n";
my $node = hymt_node('main', conf => $conf, init => [ allows_streaming => 'logical' ]);

sub node_query
{
	my ($where, $database, $query) = @_;

	return $where->safe_psql($database, $query);
}

sub wait_in
{
	my ($where, $database, $query, $expected) = @_;
	my $until = time + 60;
	my $got;

	do
	{
		$got = node_query($where, $database, $query);
		return 1 if $got eq $expected;
		sleep 0.02;
	} while (time < $until);
	diag("waited in vain for $expected, last $got: $query");
	return 0;
}

# Everything that is on its way is in the table.
sub settle
{
	my ($where, $database, $count) = @_;

	return ok(wait_in($where, $database, 'SELECT count(*) FROM hymt_cache', $count), "the table has $count rows");
}

# The translation, whether it was cached, and how many requests were made for it.
my $asked = <<'END';
CREATE FUNCTION asked(t text, OUT translation text, OUT cached boolean, OUT requests bigint) LANGUAGE plpgsql AS $$
DECLARE before bigint;
BEGIN
  SELECT s.requests INTO before FROM hymt_stat() AS s;
  SELECT d.translation, d.cached INTO translation, cached FROM hymt_translate_details(t, 'zh', 'en') AS d;
  SELECT s.requests - before INTO requests FROM hymt_stat() AS s;
END $$;
END

sub asked
{
	my ($text) = @_;

	return "SELECT * FROM asked('$text')";
}

sub new_database
{
	my ($name, $options) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $name " . ($options // ''));
	$node->safe_psql($name, "CREATE EXTENSION hymt; $asked");
	return;
}

$node->safe_psql('postgres', $asked);

scenario 'across restarts' => sub {
	is($node->safe_psql('postgres', asked('kept')), 'zh>en: kept|f|1', 'it is translated once');
	settle($node, 'postgres', 1);
	is($node->safe_psql('postgres', asked('kept')), 'zh>en: kept|t|0', 'and then found');
	$node->restart;
	wait_for_status($node, "state = 'ready'");
	is($node->safe_psql('postgres', asked('kept')), 'zh>en: kept|t|0', 'after a restart, too');
	is($node->safe_psql('postgres', 'SELECT cache_table_hits, cache_misses, requests FROM hymt_stat'), '1|0|0', 'it is counted');
	is( $node->safe_psql('postgres', 'SELECT model, input_tokens, output_tokens, finish_reason FROM hymt_translate_details($$kept$$, $$zh$$, $$en$$)'),
		$node->safe_psql('postgres', 'SELECT model, input_tokens, output_tokens, $$stop$$ FROM hymt_cache'), 'with its figures');
	is($node->safe_psql('postgres', 'SET hymt.cache = memory; ' . asked('kept')), 'zh>en: kept|f|1', 'not with hymt.cache = memory');
	is($node->safe_psql('postgres', 'SET hymt.cache = off; ' . asked('kept')), 'zh>en: kept|f|1', 'nor off');
};

scenario 'what makes a question' => sub {
	new_database('questions');
	my $translate = sub { node_query($node, 'questions', "SELECT cached FROM hymt_translate_details($_[0])") };
	my @questions = (
		"'a', 'zh', 'en'", "'a', 'zh', 'de'", "'a', 'en', 'de'", "'A', 'zh', 'en'", "'a ', 'zh', 'en'",
		"'a', 'zh', 'en', context => 'b'", "'a', 'zh', 'en', context => 'b '",
		q{'a', 'zh', 'en', options => '{"max_tokens": 100}'},
		map { qq{'a', 'zh', 'en', options => '{"sampling": {$_}}'} }
		  '"seed": 1', '"seed": -1', '"temperature": 0.7', '"temperature": 0.70001', '"top_k": 5', '"top_p": 0.5');
	is($translate->($_), 'f', "$_: not asked before") foreach @questions;
	settle($node, 'questions', scalar @questions);
	is($translate->($_), 't', "$_: found") foreach @questions;
	is($translate->(q{'a', 'zh-Hans', 'en', options => '{"priority": "bulk", "max_tokens": 100}'}), 't', 'what does not matter does not');
	is(node_query($node, 'questions', 'SELECT count(*) FROM hymt_cache'), scalar @questions, 'nothing is written twice');

	# The key alone is not trusted.
	node_query($node, 'questions', "UPDATE hymt_cache SET source = 'x' WHERE source = 'A'");
	is($translate->("'A', 'zh', 'en'"), 'f', 'another text under this key');
	node_query($node, 'questions', "DELETE FROM hymt_cache WHERE source = 'A'");
	foreach my $column ('fingerprint', 'scope', 'source_lang', 'target_lang', 'options', 'context')
	{
		node_query($node, 'questions', 'SELECT hymt_cache_clear()');
		$translate->("'a', 'zh', 'en'");
		settle($node, 'questions', 1);
		is($translate->("'a', 'zh', 'en'"), 't', 'there is a row');
		node_query($node, 'questions', "UPDATE hymt_cache SET $column = 'other'");
		is($translate->("'a', 'zh', 'en'"), 'f', "$column is compared");
		ok(wait_in($node, 'questions', 'SELECT count(*) FROM hymt_cache', 2), 'and is no reason not to write the right one');
	}
	$node->safe_psql('postgres', 'DROP DATABASE questions');
};

scenario 'who may not write' => sub {
	my $read_only = 'BEGIN READ ONLY; ' . asked('read only') . '; COMMIT';
	is($node->safe_psql('postgres', $read_only), 'zh>en: read only|f|1', 'a transaction that may not write');
	settle($node, 'postgres', 2);
	is($node->safe_psql('postgres', $read_only), 'zh>en: read only|t|0', 'reads what was written for it');
	is($node->safe_psql('postgres', 'BEGIN; ' . asked('rolled back') . '; ROLLBACK'), 'zh>en: rolled back|f|1', 'one that is rolled back');
	settle($node, 'postgres', 3);
	is($node->safe_psql('postgres', 'BEGIN; SAVEPOINT s; ' . asked('subtransaction') . '; ROLLBACK TO s; COMMIT'), 'zh>en: subtransaction|f|1', 'and a subtransaction');
	settle($node, 'postgres', 4);
	is($node->safe_psql('postgres', asked('rolled back')), 'zh>en: rolled back|t|0', 'leave their translations');
	is( $node->safe_psql('postgres', 'BEGIN; SAVEPOINT s; ' . asked('subtransaction') . '; ROLLBACK TO s; ' . asked('subtransaction') . '; COMMIT'),
		"zh>en: subtransaction|t|0\nzh>en: subtransaction|t|0", 'and find them');
};

scenario 'an old snapshot' => sub {
	my $go = $node->basedir . '/go';
	my $old = background($node, <<"END");
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 1;
SELECT hymt_translate('mock:hold $go', 'zh', 'en') IS NOT NULL;
SELECT * FROM asked('newer');
COMMIT;
SELECT * FROM asked('newer');
END
	wait_for_slots($node, 1);
	$node->safe_psql('postgres', translate('newer'));
	settle($node, 'postgres', 5);
	append_to_file($go, '');
	finish($old);
	is($old->{out}, "1\nt\nzh>en: newer|f|1\nzh>en: newer|t|0", 'does not see the row, a newer one does');
	settle($node, 'postgres', 6);
	is($node->safe_psql('postgres', "SELECT count(*) FROM hymt_cache WHERE source = 'newer'"), '1', 'it is not written twice');
};

scenario 'parallel workers' => sub {
	$node->safe_psql('postgres', <<'END');
CREATE TABLE texts AS SELECT 'text ' || i AS t FROM generate_series(1, 200) AS i;
ALTER TABLE texts SET (parallel_workers = 2);
SELECT count(hymt_translate(t, 'zh', 'en')) FROM texts;
END
	settle($node, 'postgres', 206);
	my $parallel = 'SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET hymt.read_ahead = off;'
	  . ' SET parallel_leader_participation = off; ';
	my $query = "SELECT count(*) FILTER (WHERE (hymt_translate_details(t, 'zh', 'en')).cached), max(hymt_translate(t, 'zh', 'en')) FROM texts";
	like($node->safe_psql('postgres', "$parallel EXPLAIN (ANALYZE, COSTS OFF) $query"), qr/Workers Launched: 2/, 'there are parallel workers');
	is($node->safe_psql('postgres', "$parallel $query"), '200|zh>en: text 99', 'which find all');
};

scenario 'long texts and encodings' => sub {
	new_database('latin', "ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
	my $details = 'SELECT length(translation), md5(translation), cached FROM hymt_translate_details';
	my $long = "'mock:big 100000', 'zh', 'en'";
	my $first = $node->safe_psql('latin', "$details($long)");
	my $accents = "E'caf\\u00e9', 'fr', 'en'";
	is($node->safe_psql('latin', "SELECT translation, cached FROM hymt_translate_details($accents)"), "fr>en: caf\xe9|f", 'LATIN1');
	settle($node, 'latin', 2);
	is($node->safe_psql('latin', "$details($long)"), $first =~ s/f$/t/r, 'a long translation');
	is($node->safe_psql('latin', "SELECT translation, cached FROM hymt_translate_details($accents)"), "fr>en: caf\xe9|t", 'LATIN1, found');
	is($node->safe_psql('latin', "SELECT source = E'caf\\u00e9' AND length(source) = 4 FROM hymt_cache WHERE source_lang = 'fr'"), 't', 'the table shows the text');
	$node->safe_psql('latin', "SELECT hymt_translate('mock:chinese', 'en', 'zh', on_error => 'null')");
	$node->safe_psql('latin', "SELECT hymt_translate(t, 'zh', 'en', on_error => 'source') FROM unnest(ARRAY['mock:badutf8', 'mock:finish length']) AS t");
	$node->safe_psql('latin', "SELECT hymt_translate('last', 'zh', 'en')");
	settle($node, 'latin', 3);
	my $source = "repeat('word ', 20000), 'zh', 'en'";
	$node->safe_psql('postgres', "SELECT hymt_cache_clear()");
	$node->safe_psql('postgres', "SELECT count(hymt_translate($source))");
	settle($node, 'postgres', 1);
	is($node->safe_psql('postgres', "SELECT translation = 'zh>en: ' || repeat('word ', 20000), cached FROM hymt_translate_details($source)"),
		't|t', 'a long source');
	is($node->safe_psql('postgres', "SELECT cached FROM hymt_translate_details(left(repeat('word ', 20000), -2) || 'x ', 'zh', 'en')"),
		'f', 'and one that differs at its end');
	# Too long to be on its way.
	$node->safe_psql('postgres', "SELECT length(hymt_translate('mock:big 1100000', 'zh', 'en'))");
	is($node->safe_psql('postgres', 'SELECT cache_dropped > 0 FROM hymt_stat'), 't', 'one that is longer than 1 MB is not stored');
	$node->safe_psql('postgres', 'DROP DATABASE latin');
};

scenario 'whose translations' => sub {
	new_database('roles');
	$node->safe_psql('roles', <<'END');
CREATE ROLE one;
CREATE ROLE two;
GRANT EXECUTE ON FUNCTION hymt_translate_details(text, text, text, text, text, text, text, jsonb) TO one, two;
END
	my $as = sub {
		node_query($node, 'roles', "SET hymt.cache_scope = $_[1]; SET ROLE $_[0]; SELECT cached FROM hymt_translate_details('mine', 'zh', 'en')");
	};
	is($as->('one', 'role'), 'f', 'one asks for himself');
	settle($node, 'roles', 1);
	is($as->('one', 'role'), 't', 'and finds it');
	is($as->('two', 'role'), 'f', 'the other does not');
	is($as->('two', 'database'), 'f', 'nor do all');
	settle($node, 'roles', 3);
	is($as->('one', 'database'), 't', 'what one asks for all is for all');
	is(($node->psql('roles', 'SET ROLE one; SELECT * FROM hymt_cache'))[0], 3, 'nobody reads the table');
	is(($node->psql('roles', 'SET ROLE one; SELECT hymt_cache_clear()'))[0], 3, 'or clears it');
	# As after logical replication from a cluster in which the number is another role's.
	node_query($node, 'roles', "UPDATE hymt_cache SET scope = regexp_replace(scope, '\\d\$', 'x') WHERE scope <> ''");
	is($as->('one', 'role'), 'f', 'a role of another cluster is another role');
	$node->safe_psql('postgres', 'DROP DATABASE roles');
};

scenario 'the table is in use' => sub {
	new_database('busy');
	$node->safe_psql('busy', translate('there'));
	settle($node, 'busy', 1);
	my $locker = background($node, 'BEGIN; LOCK TABLE hymt_cache; SELECT pg_sleep(60)', database => 'busy');
	my $pid = session_pid($node, $locker);
	ok(wait_until($node, "SELECT wait_event FROM pg_stat_activity WHERE pid = $pid", 'PgSleep'), 'somebody has it for himself');
	is($node->safe_psql('busy', asked('there')), 'zh>en: there|f|1', 'nobody waits for him');
	is($node->safe_psql('busy', asked('not there')), 'zh>en: not there|f|1', 'whatever is asked');
	is($node->safe_psql('busy', 'SELECT count(*) FROM pg_locks WHERE NOT granted'), '0', 'nor does the worker');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	finish($locker);
	settle($node, 'busy', 2);

	# Who waits for the table is not kept waiting by those who read it.
	my $reader = background($node, 'BEGIN; ' . translate('there') . '; SELECT pg_sleep(60)', database => 'busy');
	my $reader_pid = session_pid($node, $reader);
	ok(wait_until($node, "SELECT wait_event FROM pg_stat_activity WHERE pid = $reader_pid", 'PgSleep'), 'a transaction has read it');
	$node->safe_psql('busy', 'SET lock_timeout = 5000; BEGIN; LOCK TABLE hymt_cache; COMMIT');
	$node->safe_psql('busy', 'SET lock_timeout = 5000; REINDEX TABLE hymt_cache');
	$node->safe_psql('busy', 'SET lock_timeout = 5000; VACUUM FULL hymt_cache');
	is($node->safe_psql('busy', asked('there')), 'zh>en: there|t|0', 'and has its rows');
	$node->safe_psql('busy', 'SET lock_timeout = 5000; DROP EXTENSION hymt CASCADE; CREATE EXTENSION hymt');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($reader_pid)");
	finish($reader);
	$node->safe_psql('postgres', 'DROP DATABASE busy');
};

scenario 'a table that is not as it should be' => sub {
	new_database('odd');
	my $is_found = sub { node_query($node, 'odd', "SELECT (asked('$_[0]')).cached") };
	my $round = sub {
		my ($change, $back, $name) = @_;

		node_query($node, 'odd', 'SELECT hymt_cache_clear()');
		node_query($node, 'odd', translate('odd'));
		settle($node, 'odd', 1);
		is($is_found->('odd'), 't', "$name: found before");
		# In one session, which knows the table already.
		is(node_query($node, 'odd', "SELECT (asked('odd')).cached; $change; SELECT (asked('odd')).cached"), "t\nf", "$name: not found");
		is(node_query($node, 'odd', "SELECT (asked('odd')).cached; $back; SELECT (asked('odd')).cached"), "f\nt", "$name: found again");
	};
	$round->('ALTER TABLE hymt_cache RENAME TO elsewhere', 'ALTER TABLE elsewhere RENAME TO hymt_cache', 'renamed');
	$round->('ALTER TABLE hymt_cache RENAME source TO s', 'ALTER TABLE hymt_cache RENAME s TO source', 'a column renamed');
	$round->('ALTER TABLE hymt_cache ALTER source TYPE varchar', 'ALTER TABLE hymt_cache ALTER source TYPE text', 'of another type');
	$round->('DROP INDEX hymt_cache_key', 'CREATE INDEX hymt_cache_key ON hymt_cache (key)', 'without index');
	$round->("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'hymt_cache_key'::regclass; SELECT; ALTER INDEX hymt_cache_key SET (fillfactor = 90)",
		'REINDEX INDEX hymt_cache_key', 'with an invalid index');
	$round->('DROP INDEX hymt_cache_key; CREATE INDEX hymt_cache_key ON hymt_cache USING brin (key)',
		'DROP INDEX hymt_cache_key; CREATE INDEX hymt_cache_key ON hymt_cache (key, created)', 'with another kind of index');
	$round->("DROP INDEX hymt_cache_key; CREATE INDEX hymt_cache_key ON hymt_cache (key) WHERE source <> 'odd'",
		'DROP INDEX hymt_cache_key; CREATE INDEX hymt_cache_key ON hymt_cache (key)', 'with a partial index');
	$round->('ALTER EXTENSION hymt DROP TABLE hymt_cache; ALTER TABLE hymt_cache SET (fillfactor = 90)',
		'ALTER EXTENSION hymt ADD TABLE hymt_cache; ALTER TABLE hymt_cache SET (fillfactor = 100)', 'not the extension\'s own');

	node_query($node, 'odd', "SELECT hymt_cache_clear()");
	node_query($node, 'odd', translate('odd'));
	settle($node, 'odd', 1);
	is(node_query($node, 'odd', "ALTER TABLE hymt_cache ADD extra int DEFAULT 1; ALTER TABLE hymt_cache DROP created; SELECT (asked('odd')).cached"), 'f', 'a column is missing');
	is(node_query($node, 'odd', "SELECT (asked('odd')).translation"), 'zh>en: odd', 'still a translation');
	is(($node->psql('odd', 'SELECT hymt_cache_clear()'))[0], 3, 'it cannot be cleared');
	is( node_query($node, 'odd', "DROP EXTENSION hymt CASCADE; CREATE SCHEMA s; CREATE EXTENSION hymt SCHEMA s; SET search_path = s, public; $asked; SELECT (asked('odd')).cached"),
		'f', 'a new extension in the same session');
	ok(wait_in($node, 'odd', 'SELECT count(*) FROM s.hymt_cache', 1), 'has its row');
	is(node_query($node, 'odd', "SET search_path = s, public; SELECT (asked('odd')).cached"), 't', 'and finds it');
	$node->safe_psql('postgres', 'DROP DATABASE odd');
};

scenario 'clearing' => sub {
	new_database('clear');
	node_query($node, 'clear', <<'END');
SELECT hymt_translate(t, s, 'de') FROM unnest('{a, b, c}'::text[]) AS t, unnest('{zh, en}'::text[]) AS s;
SELECT hymt_translate('a', 'zh', 'en');
END
	settle($node, 'clear', 7);
	my $clear = sub { node_query($node, 'clear', "SELECT hymt_cache_clear($_[0])") };
	is($clear->("model => 'other'"), '0', 'another model');
	is($clear->("'en', 'zh'"), '0', 'both languages');
	is(node_query($node, 'clear', "BEGIN; SELECT hymt_cache_clear(); ROLLBACK; SELECT count(*) FROM hymt_cache"), "7\n7", 'rolled back');
	is($clear->("'en'"), '3', 'one language');
	is($clear->("tgt => 'en', model => 'mock-plain'"), '1', 'the other, and the model');
	is($clear->(''), '3', 'everything');
	is(node_query($node, 'clear', 'SELECT count(*) FROM hymt_cache'), '0', 'nothing is left');
	foreach my $bad ("'xx'", "tgt => 'xx'")
	{
		is(($node->psql('clear', "\\set VERBOSITY sqlstate\nSELECT hymt_cache_clear($bad)"))[2], 'psql:<stdin>:2: ERROR:  22023', "$bad is no language");
	}
	is(($node->psql('clear', "\\set VERBOSITY sqlstate\nBEGIN READ ONLY; SELECT hymt_cache_clear()"))[2], 'psql:<stdin>:2: ERROR:  25006', 'it is no reading');
	is(($node->psql('clear', "\\set VERBOSITY sqlstate\nBEGIN; SELECT hymt_cache_clear(); PREPARE TRANSACTION 'c'"))[2],
		'psql:<stdin>:2: ERROR:  0A000', 'nor can it be prepared');

	# The first level and what is on its way are forgotten with it, at commit.
	$node->append_conf('postgresql.conf', 'hymt.cache_memory = 1MB');
	$node->restart;
	wait_for_status($node, "state = 'ready'");
	node_query($node, 'clear', translate('both'));
	settle($node, 'clear', 1);
	is(node_query($node, 'clear', 'BEGIN; SELECT hymt_cache_clear(); ROLLBACK; ' . asked('both')), "1\nzh>en: both|t|0", 'not with a rollback');
	my $locker = background($node, 'BEGIN; LOCK TABLE hymt_cache IN SHARE MODE; SELECT pg_sleep(60)', database => 'clear');
	my $pid = session_pid($node, $locker);
	ok(wait_until($node, "SELECT wait_event FROM pg_stat_activity WHERE pid = $pid", 'PgSleep'), 'the worker cannot write');
	node_query($node, 'clear', translate('on its way'));
	my $clearing = background($node, 'SELECT hymt_cache_clear()', database => 'clear');
	session_pid($node, $clearing);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	finish($locker);
	finish($clearing);
	like($clearing->{out}, qr/^[12]$/, 'it is cleared');
	is(node_query($node, 'clear', asked('both')), 'zh>en: both|f|1', 'both levels');
	is(node_query($node, 'clear', asked('on its way')), 'zh>en: on its way|f|1', 'and the way between them');
	settle($node, 'clear', 2);

	# A session that still sees the row does not hand it on to those that do not.
	my $go = $node->basedir . '/cleared';
	my $old = background($node, <<"END", database => 'clear');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 1;
SELECT hymt_translate('mock:hold $go', 'zh', 'en') IS NOT NULL;
SELECT * FROM asked('both');
END
	wait_for_slots($node, 1);
	node_query($node, 'clear', 'SELECT hymt_cache_clear()');
	append_to_file($go, '');
	finish($old);
	is($old->{out}, "1\nt\nzh>en: both|t|0", 'an older snapshot sees what was cleared');
	is(node_query($node, 'clear', asked('both')), 'zh>en: both|f|1', 'a newer one does not');
	ok(wait_in($node, 'clear', 'SELECT count(*) FROM hymt_cache', 2), 'it is written anew');
	$node->safe_psql('postgres', 'DROP DATABASE clear');
	$node->append_conf('postgresql.conf', 'hymt.cache_memory = 0');
	$node->restart;
	wait_for_status($node, "state = 'ready'");
};

scenario 'age' => sub {
	new_database('age');
	node_query($node, 'age', "SELECT hymt_translate(t, 'zh', 'en') FROM unnest('{old, young}'::text[]) AS t");
	settle($node, 'age', 2);
	node_query($node, 'age', "UPDATE hymt_cache SET created = created - interval '2 h' WHERE source = 'old'");
	is(node_query($node, 'age', "SELECT (asked('old')).cached"), 't', 'without a limit no row is too old');
	$node->append_conf('postgresql.conf', 'hymt.cache_max_age = 60');
	$node->reload;
	ok(wait_until($node, 'SHOW hymt.cache_max_age', '1h'), 'a limit');
	is(node_query($node, 'age', "SELECT (asked('young')).cached"), 't', 'a young row counts');
	is(node_query($node, 'age', "SELECT (asked('old')).cached"), 'f', 'an old one does not');
	ok(wait_in($node, 'age', "SELECT count(*), min(created) > now() - interval '1 h' FROM hymt_cache", '2|t'), 'it is replaced');
	is(node_query($node, 'age', "SELECT (asked('old')).cached"), 't', 'by one that is found');
	$node->append_conf('postgresql.conf', 'hymt.cache_max_age = 0');
	$node->reload;
	$node->safe_psql('postgres', 'DROP DATABASE age');
};

scenario 'size' => sub {
	new_database('size');
	$node->append_conf('postgresql.conf', 'hymt.cache_max_size = 2MB');
	$node->reload;
	my $size = sub { node_query($node, 'size', "SELECT pg_total_relation_size('hymt_cache')") };
	# So many rows of some 700 bytes, texts that cannot be compressed away.
	my $flood = sub {
		my ($rows, $last) = @_;

		node_query($node, 'size', <<"END");
SELECT count(hymt_translate(t, 'zh', 'en'))
FROM (SELECT string_agg(md5(random()::text), ' ') AS t FROM generate_series(1, $rows * 8) AS i GROUP BY i % $rows) AS s
END
		node_query($node, 'size', translate($last));
		# The worker goes when nothing is left to be written or deleted.
		ok( wait_until($node, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'hymt database worker' AND datname = 'size'", 0),
			"$last: written and evicted");
	};
	my @sizes;
	foreach my $round (1 .. 8)
	{
		$flood->(1000, "end of round $round");
		push @sizes, $size->();
		node_query($node, 'size', 'VACUUM hymt_cache');
		note("round $round: $sizes[-1] bytes, " . node_query($node, 'size', 'SELECT count(*) FROM hymt_cache') . ' rows');
	}
	cmp_ok($_, '<', 4 * 1024 * 1024, 'the files stay small') foreach @sizes;
	cmp_ok($sizes[-1], '<=', $sizes[-3] * 1.05, 'and do not grow');
	cmp_ok(node_query($node, 'size', 'SELECT sum(pg_column_size(c)) FROM hymt_cache AS c'), '<', 2 * 1024 * 1024, 'what is left is within the limit');
	cmp_ok(node_query($node, 'size', 'SELECT sum(pg_column_size(c)) FROM hymt_cache AS c'), '>', 1024 * 1024, 'and not much less');
	is(node_query($node, 'size', "SELECT (asked('end of round 8')).cached"), 't', 'the youngest rows are left');
	is(node_query($node, 'size', "SELECT (asked('end of round 1')).cached"), 'f', 'the oldest are not');
	cmp_ok(node_query($node, 'size', 'SELECT cache_table_evictions FROM hymt_stat'), '>', 4000, 'it is counted');

	# Without vacuum there is an end, too.
	my $dropped = node_query($node, 'size', 'SELECT cache_dropped FROM hymt_stat');
	$flood->(3000, 'without vacuum') foreach 1 .. 2;
	cmp_ok($size->(), '<', 5 * 1024 * 1024, 'nor do they without vacuum');
	cmp_ok(node_query($node, 'size', 'SELECT cache_dropped FROM hymt_stat'), '>', $dropped, 'rather nothing is written');
	node_query($node, 'size', 'VACUUM hymt_cache');
	node_query($node, 'size', translate('after vacuum'));
	ok(wait_in($node, 'size', "SELECT count(*) FROM hymt_cache WHERE source = 'after vacuum'", 1), 'until there is room again');
	$node->append_conf('postgresql.conf', 'hymt.cache_max_size = 0');
	$node->reload;
	$node->safe_psql('postgres', 'DROP DATABASE size');
};

scenario 'crashes of the server' => sub {
	new_database('crash');
	my $crash = sub {
		$node->stop('immediate');
		$node->start;
		wait_for_status($node, "state = 'ready'");
	};
	# On its way.
	my $locker = background($node, 'BEGIN; LOCK TABLE hymt_cache; SELECT pg_sleep(60)', database => 'crash');
	my $pid = session_pid($node, $locker);
	ok(wait_until($node, "SELECT wait_event FROM pg_stat_activity WHERE pid = $pid", 'PgSleep'), 'the table is locked');
	node_query($node, 'crash', translate('on its way'));
	$crash->();
	finish($locker);
	is(node_query($node, 'crash', 'SELECT count(*) FROM hymt_cache'), '0', 'what was on its way is lost');
	is(node_query($node, 'crash', asked('on its way')), 'zh>en: on its way|f|1', 'and made anew');
	settle($node, 'crash', 1);
	# In the writer's transaction.
	node_query($node, 'crash', <<'END');
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END';
CREATE TRIGGER slow AFTER INSERT ON hymt_cache FOR EACH ROW EXECUTE FUNCTION slow();
END
	node_query($node, 'crash', translate('half written'));
	ok(wait_until($node, "SELECT count(*) FROM pg_stat_activity WHERE datname = 'crash' AND wait_event = 'PgSleep'", 1), 'the worker is at it');
	$crash->();
	node_query($node, 'crash', 'DROP TRIGGER slow ON hymt_cache');
	is(node_query($node, 'crash', asked('half written')), 'zh>en: half written|f|1', 'half written is not written');
	settle($node, 'crash', 2);
	# Committed, but perhaps not on disk.
	node_query($node, 'crash', translate('committed'));
	settle($node, 'crash', 3);
	$crash->();
	like(node_query($node, 'crash', asked('committed')), qr/^zh>en: committed\|(t\|0|f\|1)$/, 'committed is right either way');
	settle($node, 'crash', 3);
	is(node_query($node, 'crash', 'SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*), count(DISTINCT source) FROM hymt_cache'), '3|3', 'each is there once');
	$node->safe_psql('postgres', 'DROP DATABASE crash');
};

scenario 'dumps, standbys' => sub {
	$node->safe_psql('postgres', 'SELECT hymt_cache_clear()');
	$node->safe_psql('postgres', translate('dumped'));
	settle($node, 'postgres', 1);
	my $dump = $node->basedir . '/dump.sql';
	command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $dump ], 'a dump');
	unlike(slurp_file($dump), qr/dumped|hymt_cache/, 'has no rows of the table');

	$node->backup('copy');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'copy', has_streaming => 1);
	$standby->start;
	watch($standby);
	wait_for_status($standby, "state = 'ready'");
	is($standby->safe_psql('postgres', asked('dumped')), 'zh>en: dumped|t|0', 'a standby reads the table');
	is($standby->safe_psql('postgres', asked('on the standby')), 'zh>en: on the standby|f|1', 'and writes nothing');
	$node->safe_psql('postgres', translate('streamed'));
	settle($node, 'postgres', 2);
	$node->wait_for_catchup($standby, 'replay', $node->lsn('flush'));
	is($standby->safe_psql('postgres', asked('streamed')), 'zh>en: streamed|t|0', 'rows arrive there');
	$node->safe_psql('postgres', 'VACUUM FULL hymt_cache');
	$node->wait_for_catchup($standby, 'replay', $node->lsn('flush'));
	is($standby->safe_psql('postgres', asked('streamed')), 'zh>en: streamed|t|0', 'also from a table that was rewritten');
	$node->safe_psql('postgres', 'SELECT hymt_cache_clear()');
	$node->wait_for_catchup($standby, 'replay', $node->lsn('flush'));
	is($standby->safe_psql('postgres', asked('streamed')), 'zh>en: streamed|f|1', 'and go');
	$standby->stop;
};

# Both fill their own table, with the same rows among others.
scenario 'a publication for all tables' => sub {
	my $subscriber = hymt_node('subscriber', conf => $conf, init => [ allows_streaming => 'logical' ]);
	my $connection = $node->connstr . ' dbname=postgres';
	$subscriber->safe_psql('postgres', $asked);
	$subscriber->safe_psql('postgres', 'CREATE TABLE texts (t text)');
	$subscriber->safe_psql('postgres', 'CREATE TABLE stamps (n int)');
	$node->safe_psql('postgres', 'SELECT hymt_cache_clear(); CREATE TABLE stamps (n int)');
	$_->safe_psql('postgres', translate('in both')) foreach $node, $subscriber;
	settle($_, 'postgres', 1) foreach $node, $subscriber;
	$node->safe_psql('postgres', 'CREATE PUBLICATION everything FOR ALL TABLES');
	$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION everything CONNECTION '$connection' PUBLICATION everything");
	settle($subscriber, 'postgres', 2);
	$_->safe_psql('postgres', translate('later in both')) foreach $subscriber, $node;
	ok(wait_in($subscriber, 'postgres', "SELECT count(*) FROM hymt_cache WHERE source = 'later in both'", 2), 'rows that are there arrive all the same');
	$node->safe_psql('postgres', translate('of the publisher'));
	ok(wait_in($subscriber, 'postgres', "SELECT count(*) FROM hymt_cache WHERE source = 'of the publisher'", 1), 'others, too');
	is($subscriber->safe_psql('postgres', asked('of the publisher')), 'zh>en: of the publisher|t|0', 'and are found');
	# One that the subscriber has evicted itself is missing there.
	$subscriber->safe_psql('postgres', "DELETE FROM hymt_cache WHERE source = 'of the publisher'");
	$node->safe_psql('postgres', 'SELECT hymt_cache_clear()');
	$node->safe_psql('postgres', 'INSERT INTO stamps VALUES (1)');
	ok(wait_in($subscriber, 'postgres', 'SELECT count(*) FROM stamps', 1), 'the subscription goes on');
	is($subscriber->safe_psql('postgres', 'SELECT string_agg(source, $$, $$ ORDER BY source) FROM hymt_cache'), 'in both, later in both',
		'what the publisher deletes is deleted, and nothing else');
	$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION everything');
	$subscriber->stop;
};

$node->stop;
done_testing();
