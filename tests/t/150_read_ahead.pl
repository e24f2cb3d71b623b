# Plain statements are translated in batches: every form that is read ahead, how far, and that nothing is left behind.
#
# A row "mock:batch 32 …" is answered only when 32 requests are in one step of the engine: without reading ahead a session
# alone would wait for ever.
use strict;
use warnings;

use HymtTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $node = hymt_node('ahead', model => 'mock-step-5-64', conf => <<'END');
statement_timeout = '60s'
max_worker_processes = 16
max_connections = 120
hymt.queue_slots = 1024
hymt.adapters = '@formal=formal'
END
my $arrivals = 0;

$node->safe_psql('postgres', <<'END');
CREATE TABLE t (id int PRIMARY KEY, title text, description text, en text, note text);
INSERT INTO t SELECT g, CASE WHEN g BETWEEN 200 AND 231 THEN 'mock:batch 32 ' ELSE 'title ' END || g, 'text ' || g FROM generate_series(1, 600) g;
CREATE TABLE copy (id int PRIMARY KEY, en text);
CREATE TABLE p (LIKE t) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (10000);
INSERT INTO p SELECT * FROM t;
CREATE TABLE i (LIKE t);
CREATE TABLE i1 () INHERITS (i);
INSERT INTO i SELECT * FROM t WHERE id < 20;
INSERT INTO i1 SELECT * FROM t WHERE id >= 20;
CREATE VIEW barrier WITH (security_barrier) AS SELECT * FROM t WHERE id > 0;
ANALYZE;
END

# The number of requests that have reached the engine so far, without this one.
sub arrivals
{
	return $node->safe_psql('postgres', translate('mock:arrival ' . ++$arrivals)) - 1;
}

# What a statement costs in requests.
sub requests_of
{
	my ($sql) = @_;
	my $before = arrivals();

	$node->safe_psql('postgres', $sql);
	return arrivals() - $before - 1;
}

my $call = "hymt_translate(r.title, 'zh', 'en')";
my $in_batches = "count(*) FILTER (WHERE en ~ '^[0-9]+\$' AND en::int >= 32)";

# --- forms ---------------------------------------------------------------------------------------------------------

# What is asked, and the result that has the answers in a column "en".
my %form = (
	'SELECT' => [ '', "SELECT $call AS en FROM t AS r OFFSET 0" ],
	'SELECT with ORDER BY' => [ '', "SELECT $call AS en FROM t AS r ORDER BY id DESC OFFSET 0" ],
	'SELECT with LIMIT' => [ '', "SELECT $call AS en FROM t AS r ORDER BY id LIMIT 500" ],
	'SELECT from a join' => [ '', "SELECT $call AS en FROM t AS r JOIN p USING (id) OFFSET 0" ],
	'SELECT from a left join' => [ '', "SELECT x.en FROM t LEFT JOIN (SELECT id, $call AS en FROM t AS r) AS x USING (id) OFFSET 0" ],
	'SELECT from a subquery' => [ '', "SELECT $call AS en FROM (SELECT * FROM t OFFSET 2) AS r OFFSET 0" ],
	'SELECT from a view with a barrier' => [ '', "SELECT $call AS en FROM barrier AS r OFFSET 0" ],
	'SELECT from partitions' => [ '', "SELECT $call AS en FROM p AS r OFFSET 0" ],
	'SELECT from an inheritance tree' => [ '', "SELECT $call AS en FROM i AS r OFFSET 0" ],
	'SELECT from a function' => [ '', "SELECT $call AS en FROM unnest(ARRAY(SELECT title FROM t ORDER BY id)) AS r(title) OFFSET 0" ],
	'UNION ALL' => [ '', "SELECT $call AS en FROM t AS r UNION ALL SELECT hymt_translate('a' || r.title, 'zh', 'en') FROM t AS r" ],
	'a CTE' => [ '', "WITH w AS MATERIALIZED (SELECT $call AS en FROM t AS r) SELECT en FROM w" ],
	'nested in another expression' => [ '', "SELECT substr(upper($call || 'x'), 1, 2) AS en FROM t AS r OFFSET 0" ],
	'several calls in one list' => [ '', "SELECT en FROM (SELECT $call AS en, hymt_translate(r.description, 'zh', 'en'), hymt_translate(r.title || ' ', 'zh', 'fr') FROM t AS r OFFSET 0) AS x" ],
	'languages from columns' => [ '', "SELECT hymt_translate(r.title, coalesce(r.note, 'zh'), 'en') AS en FROM t AS r OFFSET 0" ],
	'details' => [ '', "SELECT (hymt_translate_details(r.title, 'zh', 'en')).translation AS en FROM t AS r OFFSET 0" ],
	'with a context' => [ '', "SELECT hymt_translate(r.title, 'zh', 'en', r.description) AS en FROM t AS r OFFSET 0" ],
	'with sampling' => [ '', "SELECT hymt_translate(r.title, 'zh', 'en', options => '{\"sampling\": {\"seed\": 7}}') AS en FROM t AS r OFFSET 0" ],
	'with an adapter' => [ '', "SELECT hymt_translate(r.title, 'zh', 'en', options => '{\"adapter\": \"formal\"}') AS en FROM t AS r OFFSET 0" ],
	'a function in FROM' => [ '', "SELECT d.translation AS en FROM t AS r, LATERAL hymt_translate_details(r.title, 'zh', 'en') AS d OFFSET 0" ],
	'a function in LEFT JOIN' => [ '', "SELECT d.en FROM t AS r LEFT JOIN LATERAL $call AS d(en) ON true OFFSET 0" ],
	'a function that is filtered' => [ '', "SELECT d.translation AS en FROM t AS r, LATERAL hymt_translate_details(r.title, 'zh', 'en') AS d WHERE d.status = 'translated' OFFSET 0" ],
	'two functions' => [ '', "SELECT d.en FROM t AS r, hymt_translate(r.description, 'zh', 'en') AS other, $call AS d(en) OFFSET 0" ],
	'a list above a function' => [ '', "SELECT $call AS en FROM t AS r, hymt_translate(r.description, 'zh', 'en') AS other OFFSET 0" ],
	'a list above a sort above a function' => [ '', "SELECT $call AS en FROM t AS r, hymt_translate(r.description, 'zh', 'en') AS other ORDER BY other DESC, id OFFSET 0" ],
	'a function beside a join' => [ '', "SELECT d.en FROM t AS r JOIN p USING (id), LATERAL $call AS d(en) OFFSET 0" ],
	'a function around the call' => [ '', "SELECT d.en FROM t AS r, LATERAL unnest(ARRAY[$call, 'x']) AS d(en) OFFSET 0" ],
	'words of another function' => [ '', "SELECT hymt_translate(r.title, 'zh', 'en') AS en FROM t, LATERAL unnest(ARRAY[t.title, 'x']) AS r(title) OFFSET 0" ],
	'UPDATE FROM a function' => [ "UPDATE t SET en = d.translation FROM t AS r, hymt_translate_details(r.title, 'zh', 'en') AS d WHERE r.id = t.id", 'SELECT en FROM t' ],
	'UPDATE FROM of partitions' => [ "UPDATE p AS r SET en = $call FROM t WHERE r.id = t.id", 'SELECT en FROM p' ],
	'UPDATE of partitions FROM others' => [ "UPDATE p SET en = $call FROM t AS r WHERE r.id = p.id", 'SELECT en FROM p' ],
	'UPDATE of partitions FROM a function' => [ "UPDATE p SET en = d FROM t AS r, $call AS d WHERE r.id = p.id", 'SELECT en FROM p' ],
	'UPDATE FROM of an inheritance tree' => [ "UPDATE i AS r SET en = $call FROM p WHERE r.id = p.id", 'SELECT en FROM i' ],
	'MERGE into partitions' => [ "MERGE INTO p USING (SELECT id, $call AS en FROM t AS r) AS x ON x.id = p.id WHEN MATCHED THEN UPDATE SET en = x.en WHEN NOT MATCHED THEN INSERT (id, en) VALUES (x.id, x.en)", 'SELECT en FROM p' ],
	'GROUP BY the call' => [ '', "SELECT $call AS en FROM t AS r GROUP BY $call, id" ],
	'above GROUP BY' => [ '', "SELECT hymt_translate(max(r.title), 'zh', 'en') AS en FROM t AS r GROUP BY id" ],
	'with a window function' => [ '', "SELECT $call AS en, row_number() OVER (ORDER BY id) FROM t AS r OFFSET 0" ],
	'FOR UPDATE' => [ '', "SELECT $call AS en FROM t AS r FOR UPDATE SKIP LOCKED" ],
	'UPDATE' => [ "UPDATE t AS r SET en = $call", 'SELECT en FROM t' ],
	'UPDATE FROM' => [ "UPDATE t SET en = $call FROM p AS r WHERE r.id = t.id", 'SELECT en FROM t' ],
	'UPDATE of partitions' => [ "UPDATE p AS r SET en = $call", 'SELECT en FROM p' ],
	'UPDATE of an inheritance tree' => [ "UPDATE i AS r SET en = $call", 'SELECT en FROM i' ],
	'INSERT SELECT' => [ "INSERT INTO copy SELECT id, $call FROM t AS r", 'SELECT en FROM copy' ],
	'INSERT SELECT ON CONFLICT' => [ "INSERT INTO copy SELECT id, $call FROM t AS r ON CONFLICT (id) DO UPDATE SET en = excluded.en", 'SELECT en FROM copy' ],
	'CREATE TABLE AS' => [ "CREATE TABLE made AS SELECT id, $call AS en FROM t AS r", 'SELECT en FROM made' ],
	'MERGE' => [ "INSERT INTO copy SELECT id FROM t WHERE id <= 300;\nMERGE INTO copy USING (SELECT id, $call AS en FROM t AS r) AS x ON x.id = copy.id" .
		' WHEN MATCHED THEN UPDATE SET en = x.en WHEN NOT MATCHED THEN INSERT VALUES (x.id, x.en)', 'SELECT en FROM copy' ],
	'MERGE with a source of its own' => [ "MERGE INTO copy USING (SELECT id, $call AS en FROM t AS r OFFSET 0) AS x ON x.id = copy.id" .
		' WHEN NOT MATCHED THEN INSERT VALUES (x.id, x.en)', 'SELECT en FROM copy' ],
	'a PL/pgSQL loop' => [ "DO \$\$ DECLARE x record; BEGIN FOR x IN SELECT id, $call AS en FROM t AS r LOOP INSERT INTO copy VALUES (x.id, x.en); END LOOP; END \$\$", 'SELECT en FROM copy' ],
);

scenario 'each form is translated in batches, and gives the same without' => sub {
	foreach my $name (sort keys %form)
	{
		my ($statement, $result) = @{ $form{$name} };
		my $found = $node->safe_psql('postgres', "BEGIN;\n$statement;\nSELECT $in_batches FROM ($result) AS x;\nROLLBACK");

		is($found, 32, $name);
		my @got = map {
			my ($off, $sql, $select) = ($_, $statement, $result);
			s/r\.title/replace(r.title, 'mock:batch', 'plain')/g for $sql, $select;
			$node->safe_psql('postgres', "SET hymt.read_ahead = $off; BEGIN;\n$sql;\nSELECT en FROM ($select) AS x ORDER BY en;\nROLLBACK")
		} ('on', 'off');
		ok($got[0] eq $got[1], "$name: the same with reading ahead and without");
	}
};

# Columns that tell which row of an inheritance tree is meant go through the node under another name.
scenario 'EXPLAIN shows all of a join that is updated' => sub {
	like($node->safe_psql('postgres', "EXPLAIN (VERBOSE, COSTS OFF) UPDATE $_ AS r SET en = $call FROM t WHERE t.id = r.id RETURNING r.tableoid"),
		qr/HymtReadAhead\)\n *Output: .*r\.tableoid.*\n/, $_) foreach qw(p i);
};

scenario 'prepared statements, generic and custom' => sub {
	foreach my $mode ('force_generic_plan', 'force_custom_plan')
	{
		is($node->safe_psql('postgres', <<"END"), "32\n32", $mode);
SET plan_cache_mode = $mode;
PREPARE q(text, text) AS SELECT $in_batches FROM (SELECT hymt_translate(r.title || \$2, \$1, 'en') AS en FROM t AS r OFFSET 0) AS x;
EXECUTE q('zh', 'a');
EXECUTE q('fr', 'b');
END
	}
};

scenario 'cursors' => sub {
	my $rows = $node->safe_psql('postgres', "BEGIN; DECLARE c CURSOR FOR SELECT $call AS en FROM t AS r; " .
		(join '', map { 'FETCH 60 FROM c;' } 1 .. 10) . 'COMMIT');

	is(scalar(grep { /^\d+$/ && $_ >= 32 } split /\n/, $rows), 32, 'a cursor that is read in portions');
	is(scalar(split /\n/, $rows), 600, 'all rows');
};

scenario 'parallel plans' => sub {
	my $settings = "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; " .
	  "SET min_parallel_table_scan_size = 0;";
	my $query = "SELECT $call AS en FROM t AS r OFFSET 0";

	like($node->safe_psql('postgres', "$settings EXPLAIN (COSTS OFF) $query"), qr/Gather.*HymtReadAhead.*Parallel Seq Scan/s,
		'each worker reads ahead');
	is($node->safe_psql('postgres', "$settings SELECT $in_batches FROM ($query) AS x"), 32, 'in batches');
	is($node->safe_psql('postgres', "$settings SELECT count(*) FROM ($query) AS x WHERE en LIKE 'zh>en: %'"), 568, 'and right');
	like($node->safe_psql('postgres', "$settings EXPLAIN (COSTS OFF) SELECT $call FROM (SELECT * FROM t OFFSET 1) AS r"),
		qr/HymtReadAhead.*Gather/s, 'above the workers');
};

# --- how far -------------------------------------------------------------------------------------------------------

scenario 'no further than what LIMIT needs, and the ramp' => sub {
	my $plain = "SELECT hymt_translate(r.description, 'zh', 'en') FROM t AS r ORDER BY id";

	is(requests_of("$plain LIMIT 1"), 1, 'LIMIT 1');
	is(requests_of("$plain LIMIT 3"), 3, 'LIMIT 3');
	is(requests_of("$plain LIMIT 20"), 20, 'LIMIT 20');
	my $beside = "FROM t AS r, LATERAL hymt_translate_details(r.description, 'zh', 'en') AS d";
	is(requests_of("SELECT d.translation $beside LIMIT 20"), 20, 'a function in FROM');
	is(requests_of("SELECT d.translation, hymt_translate(r.description, 'zh', 'fr') $beside ORDER BY id LIMIT 20"), 40, 'and a list above it');
	is(requests_of("SELECT d.translation $beside LIMIT (3 + 0 * random())::int"), 3, 'a function and the ramp');
	cmp_ok(requests_of("SELECT d.translation $beside WHERE d.status <> 'x' LIMIT 20"), '<=', 48, 'a function that is filtered');
	is(requests_of("SELECT d.translation FROM t, LATERAL hymt_translate_details('always', 'zh', 'en') AS d"), 1, 'a function of no row');
	is(requests_of("$plain LIMIT 4 OFFSET 6"), 10, 'with OFFSET: as many rows as without reading ahead');
	is(requests_of("$plain LIMIT (SELECT 20)"), 20, 'LIMIT of a subquery');
	is(requests_of("SET plan_cache_mode = force_generic_plan; PREPARE q(int) AS $plain LIMIT \$1 OFFSET 1; EXECUTE q(20)"), 21, 'LIMIT of a parameter');
	like($node->safe_psql('postgres', "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT hymt_translate('12', 'zh', 'en') FROM t ORDER BY note, id LIMIT 3"),
		qr/HymtReadAhead.*Sort Method: top-N heapsort/s, 'a sort below learns of the LIMIT');
	is(requests_of("$plain LIMIT (3 + 0 * random())::int"), 3, 'LIMIT of an unknown number: 1 + 2');
	cmp_ok(requests_of("$plain LIMIT (20 + 0 * random())::int"), '<=', 48, 'no more than the window');
	is(requests_of("BEGIN; DECLARE c CURSOR FOR $plain; FETCH c; FETCH c; FETCH c; COMMIT"), 3, 'a cursor, three rows');
	is(requests_of("EXPLAIN $plain"), 0, 'EXPLAIN asks for nothing');
	is(requests_of("SET hymt.read_ahead_rows = 4; $plain LIMIT (9 + 0 * random())::int"), 11, 'hymt.read_ahead_rows: 1 + 2 + 4 + 4');
	is(requests_of("SELECT hymt_translate(description, 'en', 'en'), hymt_translate('12' || id, 'zh', 'en'), " .
			"hymt_translate(NULL, 'zh', 'en') FROM t"), 0, 'nothing where no model is needed');
	is(requests_of("SELECT hymt_translate('the same', 'zh', 'en') FROM t"), 2, 'equal texts: the first one, and all others together');
};

scenario 'an answer is found by all that makes it' => sub {
	my @calls = map { "hymt_translate(title, 'zh', 'en'$_)" } '', ", 'a'", ", 'b'", ", description", ", options => '{\"max_tokens\": 9}'",
	  ", options => '{\"adapter\": \"formal\"}'", map { ", options => '{\"sampling\": {$_}}'" } '', '"seed": 1', '"temperature": 0.5', '"top_p": 0.5', '"top_k": 3';
	my $sql = 'SELECT ' . join(', ', @calls) . ' FROM t WHERE id <= 50 ORDER BY id OFFSET 0';

	is(requests_of($sql), 50 * @calls, 'each row asks once for each of these calls');
	is($node->safe_psql('postgres', "SET hymt.read_ahead = on; $sql"), $node->safe_psql('postgres', "SET hymt.read_ahead = off; $sql"),
		'and gives what it would without');
	is(requests_of("SELECT hymt_translate(title, 'zh', 'en', ''), hymt_translate(title, 'zh', 'en', NULL), hymt_translate(title, 'zh', 'en'), " .
			"hymt_translate(title, 'zh', 'en', options => '{\"sampling\": {\"temperature\": 0, \"seed\": 5}}') FROM t WHERE id <= 50 OFFSET 0"),
		50, 'calls that mean the same ask together');
};

scenario 'a prepared plan obeys hymt.read_ahead' => sub {
	is($node->safe_psql('postgres', <<'END'), "3\n3\n1", 'also after it was made');
SET plan_cache_mode = force_generic_plan;
PREPARE q AS SELECT hymt_translate('mock:batch 1 ' || id % 3, 'zh', 'en') FROM t WHERE id BETWEEN 2 AND 4 ORDER BY id LIMIT (3 + 0 * random())::int;
SELECT 3 FROM (SELECT 1) x;
SELECT count(hymt_translate) FROM (SELECT hymt_translate(description, 'zh', 'en') FROM t LIMIT 3) x;
SET hymt.read_ahead = off;
CREATE TEMP TABLE got AS EXECUTE q;
SELECT max(hymt_translate::int) FROM got;
END
};

# --- errors --------------------------------------------------------------------------------------------------------

scenario 'an error belongs to its row' => sub {
	$node->safe_psql('postgres', <<'END');
CREATE TABLE bad AS SELECT id, CASE WHEN id = 6 THEN 'mock:fail language' ELSE 'text ' || id END AS title, CASE WHEN id = 9 THEN 'xx' ELSE 'zh' END AS lang,
    CASE WHEN id = 12 THEN 0 ELSE 1 END AS one FROM generate_series(1, 100) id;
END
	my $plain = "SELECT hymt_translate(title, 'zh', 'en') FROM bad ORDER BY id";
	is(scalar(split /\n/, $node->safe_psql('postgres', "$plain LIMIT 5")), 5, 'a failed translation behind the LIMIT');
	is(scalar(split /\n/, $node->safe_psql('postgres', "$plain LIMIT (5 + 0 * random())::int")), 5, 'also when it was read ahead');
	my ($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\nBEGIN; DECLARE c CURSOR FOR $plain; FETCH 5 FROM c; FETCH c");
	is(scalar(split /\n/, $out), 5, 'a cursor gives the rows before');
	like($err, qr/MT007/, 'then the error');
	foreach my $list ('en', "en, hymt_translate(id || ' x', 'zh', 'en')")
	{
		my $function = "SELECT $list FROM bad, hymt_translate(title, 'zh', 'en') AS en ORDER BY id";
		($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\nBEGIN; SET LOCAL enable_sort = off; CREATE INDEX ON bad (id); " .
			"DECLARE c CURSOR FOR $function; FETCH 5 FROM c; FETCH c");
		is(scalar(split /\n/, $out), 5, "a cursor gives the rows before, with a function in FROM: $list");
		like($err, qr/MT007/, 'then the error');
	}
	is($node->safe_psql('postgres', "SELECT count(en), count(*) FROM (SELECT hymt_translate(title, 'zh', 'en', on_error => 'null') AS en FROM bad OFFSET 0) AS x"),
		'99|100', 'on_error decides for its row');
	is(scalar(split /\n/, $node->safe_psql('postgres', "SELECT hymt_translate('a' || title, lang, 'en') FROM bad ORDER BY id LIMIT (8 + 0 * random())::int")), 8,
		'an unknown language is no error before its row');
	($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT hymt_translate('a' || title, lang, 'en') FROM bad ORDER BY id");
	like($err, qr/22023/, 'and one then');
	foreach my $wrong ([ "CASE WHEN id = 9 THEN 'no' ELSE 'text' END", "'error'" ], [ "'text'", "CASE WHEN id = 9 THEN 'no' ELSE 'error' END" ])
	{
		$node->safe_psql('postgres', "DROP TABLE IF EXISTS worse; CREATE TABLE worse AS SELECT id, $wrong->[0] AS format, $wrong->[1] AS on_error FROM bad");
		my $worse = "SELECT hymt_translate('a' || id, 'zh', 'en', NULL, NULL, format, on_error) FROM worse ORDER BY id";
		is(scalar(split /\n/, $node->safe_psql('postgres', "$worse LIMIT (8 + 0 * random())::int")), 8, 'nor are ' . join ', ', @$wrong);
		($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\n$worse");
		like($err, qr/22023/, 'and one then');
	}
	foreach my $options ('[]', '{"no": 1}', '{"max_tokens": 0}', '{"max_tokens": "NaN"}', '{"priority": "high"}', '{"adapter": 1}', '{"adapter": "none"}', '{"sampling": 1}', '{"sampling": {"no": 1}}',
		'{"sampling": {"temperature": -1}}', '{"sampling": {"temperature": 1e400}}', '{"sampling": {"top_p": 0}}', '{"sampling": {"top_k": 1.5}}', '{"sampling": {"seed": "x"}}', '{"max_chars": 5}')
	{
		my $state = $options =~ /max_chars/ ? '0A000' : '22023';
		$node->safe_psql('postgres', "DROP TABLE IF EXISTS worse; CREATE TABLE worse AS SELECT id, CASE WHEN id = 9 THEN '$options'::jsonb ELSE '{\"priority\": \"bulk\"}' END AS options FROM bad");
		my $worse = "SELECT hymt_translate('a' || id, 'zh', 'en', options => options) FROM worse ORDER BY id";
		is(scalar(split /\n/, $node->safe_psql('postgres', "$worse LIMIT (8 + 0 * random())::int")), 8, "nor are wrong options: $options");
		($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\n$worse");
		like($err, qr/$state/, 'and one then');
	}
	is(scalar(split /\n/, $node->safe_psql('postgres', "SELECT hymt_translate('a' || id, 'zh', 'en'), 1 / one, hymt_translate('b' || 1 / one, 'zh', 'en') FROM bad LIMIT (11 + 0 * random())::int")), 11,
		'nor are other expressions of the list evaluated before');
};

scenario 'what has effects is not read ahead' => sub {
	is($node->safe_psql('postgres', <<'END'), "3\n3\n4", 'nextval() below, FOR UPDATE in a subquery');
CREATE SEQUENCE s;
CREATE TABLE lockable AS SELECT * FROM t WHERE id < 100;
CREATE TEMP TABLE got AS SELECT hymt_translate('a' || n, 'zh', 'en') FROM (SELECT nextval('s') AS n FROM t OFFSET 0) AS x LIMIT (3 + 0 * random())::int;
SELECT last_value FROM s;
SELECT count(*) FROM got;
BEGIN;
CREATE TEMP TABLE locked AS SELECT hymt_translate(title || 'x', 'zh', 'en') FROM (SELECT * FROM lockable FOR UPDATE) AS x LIMIT (4 + 0 * random())::int;
SELECT count(*) FROM lockable WHERE xmax <> 0;
ROLLBACK;
END
	my $query = "SELECT hymt_translate(title, 'zh', 'en')";
	foreach my $from ("generate_series(1, 2) AS g FROM t", "nothing FROM (SELECT title, nextval('s') FROM t) AS x(title, nothing)",
		"title FROM t WHERE random() < 2", "title FROM t WHERE (SELECT nextval('s') + t.id) > 0", "title FROM t WHERE (SELECT 1 FROM bad WHERE bad.id = t.id FOR UPDATE) = 1", "title FROM (SELECT * FROM t FOR UPDATE) AS x", "title FROM (SELECT title, generate_series(1, 2) FROM t) AS x")
	{
		unlike($node->safe_psql('postgres', "EXPLAIN (COSTS OFF) $query, $from"), qr/HymtReadAhead/, "not ahead: $from");
	}
	like($node->safe_psql('postgres', "EXPLAIN (COSTS OFF) $query FROM t ORDER BY random()"), qr/HymtReadAhead/, 'ahead: in any order');
	foreach my $from ("t, nextval('s') AS n", "t, LATERAL (SELECT nextval('s') + t.id) AS n", "t, hymt_translate('a' || nextval('s'), 'zh', 'en') AS n", "t, hymt_translate(title || nextval('s'), 'zh', 'en') AS n")
	{
		unlike($node->safe_psql('postgres', "EXPLAIN (COSTS OFF) $query FROM $from"), qr/HymtReadAhead/, "not ahead: FROM $from");
	}
	unlike($node->safe_psql('postgres', "SET enable_hashagg = off; SET enable_sort = off; SET enable_seqscan = off; EXPLAIN (COSTS OFF) " .
		"SELECT hymt_translate(max(title), 'zh', 'en'), sum(nextval('s')) FROM t GROUP BY id LIMIT (3 + 0 * random())::int"), qr/HymtReadAhead/, 'not ahead: an aggregate with effects');
	foreach my $list ("CASE WHEN id > 1 THEN hymt_translate(title, 'zh', 'en') END", "coalesce(note, hymt_translate(title, 'zh', 'en'))",
		"id > 1 OR hymt_translate(title, 'zh', 'en') IS NULL", "max(hymt_translate(title, 'zh', 'en'))", "hymt_translate(md5(title), 'zh', 'en')",
		"hymt_translate((SELECT t.title), 'zh', 'en')")
	{
		unlike($node->safe_psql('postgres', "EXPLAIN (COSTS OFF) SELECT $list FROM t"), qr/HymtReadAhead/, "not ahead: $list");
	}
};

# --- cursors -------------------------------------------------------------------------------------------------------

scenario 'a cursor goes back, and WHERE CURRENT OF finds its row' => sub {
	foreach my $table (qw(t p i))
	{
		my $declare = "SELECT id, $call FROM $table AS r";
		my @steps = ('FETCH 5 FROM c', "UPDATE $table SET note = 'here' WHERE CURRENT OF c RETURNING id", 'FETCH BACKWARD 2 FROM c',
			"UPDATE $table SET note = 'there' WHERE CURRENT OF c RETURNING id", 'FETCH 40 FROM c', 'FETCH RELATIVE -3 FROM c', 'FETCH ALL FROM c',
			'FETCH PRIOR FROM c', 'FETCH LAST FROM c', 'FETCH FIRST FROM c');
		$declare =~ s/r\.title/r.description/;
		foreach my $kind ('', 'SCROLL ')
		{
			my @got = map { $node->safe_psql('postgres', "SET hymt.read_ahead = $_; BEGIN; DECLARE c ${kind}CURSOR FOR $declare;\n" .
				join(";\n", grep { $kind eq '' || !/CURRENT/ } @steps) . ";\nROLLBACK") } ('on', 'off');
			is($got[0], $got[1], "${kind}cursor on $table");
		}
	}
};

scenario 'a cursor that is read half and closed gives everything back' => sub {
	my $declare = "DECLARE c CURSOR FOR SELECT hymt_translate(description, 'zh', 'en') FROM t";
	my $used = 'SELECT slots_in_use > 5, queue_bytes_in_use > 0 FROM hymt_status';
	my $free = 'SELECT slots_in_use FROM hymt_status';

	foreach my $end ('CLOSE c', 'COMMIT', 'ROLLBACK', 'SELECT 1/0; ROLLBACK')
	{
		my ($code, $out) = $node->psql('postgres', "BEGIN;\n$declare;\nMOVE 40 IN c;\n$used;\n$end;\nSELECT pg_sleep(0.2);\n$free", on_error_stop => 0);
		like($out, qr/^t\|t\n+0$/m, "by $end");
	}
	my ($code, $out) = $node->psql('postgres', "BEGIN;\nSAVEPOINT a;\n$declare;\nMOVE 40 IN c;\n$used;\nROLLBACK TO a;\nSELECT pg_sleep(0.2);\n$free;\nCOMMIT");
	like($out, qr/^t\|t\n+0$/m, 'by ROLLBACK TO');
	($code, $out) = $node->psql('postgres', "BEGIN;\n$declare;\nMOVE 40 IN c;\nSAVEPOINT a;\nFETCH c;\nSELECT 1/0;\nROLLBACK TO a;\nFETCH c;\nFETCH c;\nCOMMIT;", on_error_stop => 0);
	like($out, qr/zh>en: text 42\nzh>en: text 43$/, 'a failed subtransaction leaves it alone');
	($code, $out) = $node->psql('postgres', "BEGIN;\nDECLARE c CURSOR WITH HOLD FOR SELECT hymt_translate(description, 'zh', 'en') FROM t;\nMOVE 40 IN c;\nCOMMIT;\nFETCH c;\n$free");
	is($out, "zh>en: text 41\n0", 'WITH HOLD');
	is($node->safe_psql('postgres', "SELECT count(hymt_translate) FROM (SELECT hymt_translate(description, 'zh', 'en') FROM t LIMIT (50 + 0 * random())::int) x; SELECT pg_sleep(0.2); $free"),
		"50\n\n0", 'a LIMIT');
};

# --- company -------------------------------------------------------------------------------------------------------

scenario 'a thousand idle cursors block nobody' => sub {
	my $file = $node->basedir . '/go';
	my @idle = map {
		background($node, "BEGIN;\n" . (join '', map { "DECLARE c$_ CURSOR FOR SELECT hymt_translate(description || $_, 'zh', 'en') FROM t;\nMOVE 40 IN c$_;\n" } 1 .. 50) .
			translate("mock:hold $file"))
	} 1 .. 20;

	wait_until($node, "SELECT count(*) FROM hymt_stat_activity WHERE class = 'single' AND state = 'claimed' OR state = 'following'", 20);
	my $held = $node->safe_psql('postgres', "SELECT count(*) FROM hymt_stat_activity WHERE class = 'ahead'");
	cmp_ok($held, '>', 100, "they hold something ($held requests)");
	cmp_ok($held, '<=', 384, 'but no more than half of what bulk requests may');
	my $since = time;
	is($node->safe_psql('postgres', translate('hello')), 'zh>en: hello', 'a single call');
	is($node->safe_psql('postgres', "SELECT count(*) FROM unnest(hymt_translate(ARRAY(SELECT 'x' || g FROM generate_series(1, 500) g), 'zh', 'en'))"), 500, 'an array');
	is($node->safe_psql('postgres', "SELECT count(hymt_translate) FROM (SELECT hymt_translate('y' || id, 'zh', 'en') FROM t WHERE id < 100 OFFSET 0) x"), 99,
		'a statement that would read ahead');
	cmp_ok(time - $since, '<', PROMPT_SECONDS + 5, 'all of it soon');
	append_to_file($file, '');
	finish($_) foreach @idle;
	is(scalar(grep { $_->{err} ne '' } @idle), 0, 'the sessions ended well');
};

scenario 'what a role may have is not used up by reading ahead' => sub {
	$node->safe_psql('postgres', 'CREATE ROLE few; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO few; GRANT SELECT ON t TO few; ' .
		'ALTER SYSTEM SET hymt.max_requests_per_role = 4; SELECT pg_reload_conf()');
	wait_until($node, 'SHOW hymt.max_requests_per_role', 4);
	is($node->safe_psql('postgres', "SET ROLE few; BEGIN; DECLARE c CURSOR FOR SELECT hymt_translate(description, 'zh', 'en') FROM t; MOVE 40 IN c;\n" .
			translate('and now') . ";\nSELECT hymt_translate(ARRAY['a', 'b', 'c'], 'zh', 'en'); COMMIT"),
		"zh>en: and now\n{\"zh>en: a\",\"zh>en: b\",\"zh>en: c\"}", 'other calls of the same session find room');
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET hymt.max_requests_per_role; SELECT pg_reload_conf()');
	wait_until($node, 'SHOW hymt.max_requests_per_role', 0);
};

# --- faults --------------------------------------------------------------------------------------------------------

scenario 'cancel and terminate in the middle of a window' => sub {
	$node->safe_psql('postgres', "CREATE TABLE slow AS SELECT id, CASE WHEN id = 50 THEN 'mock:sleep 30' ELSE 'quick ' || id END AS title FROM generate_series(1, 300) id");
	foreach my $way ([ 'pg_cancel_backend', qr/57014/ ], [ 'pg_terminate_backend', qr/57P01|connection/ ])
	{
		my $session = background($node, "SELECT count(en) FROM (SELECT hymt_translate(title, 'zh', 'en') AS en FROM slow OFFSET 0) x");
		my $pid = session_pid($node, $session);

		wait_until($node, "SELECT count(*) FROM hymt_stat_activity WHERE pid = $pid AND state = 'claimed' AND text_bytes = 13", 1);
		my $since = time;
		$node->safe_psql('postgres', "SELECT $way->[0]($pid)");
		finish($session);
		like($session->{err}, $way->[1], $way->[0]);
		cmp_ok(time - $since, '<', PROMPT_SECONDS, "$way->[0]: soon");
		wait_for_all_free($node, $way->[0]);
	}
};

scenario 'a text that kills the engine fails alone' => sub {
	my $identity = server_identity($node);

	$node->safe_psql('postgres', "CREATE TABLE deadly AS SELECT id, CASE WHEN id = 20 THEN 'mock:crash' ELSE 'alive ' || id END AS title FROM generate_series(1, 60) id");
	is($node->safe_psql('postgres', "SELECT count(en), count(*) FROM (SELECT hymt_translate(title, 'zh', 'en', on_error => 'null') AS en FROM deadly OFFSET 0) x"),
		'59|60', 'the others are translated');
	is_undisturbed($node, $identity, 'a crash in the middle of a window');
};

scenario 'a long window is no long wait' => sub {
	use_model($node, 'mock-step-100-1');
	wait_for_status($node, "state = 'ready'");
	is($node->safe_psql('postgres', "SET hymt.queue_timeout = '1s'; SELECT count(hymt_translate) FROM (SELECT hymt_translate(description, 'zh', 'en') FROM t WHERE id <= 30 OFFSET 0) x"),
		30, 'hymt.queue_timeout counts from when the row is at its turn');
	use_model($node, 'mock-step-0-64');
	wait_for_status($node, "state = 'ready'");
};

scenario 'memory stays the same however many rows there are' => sub {
	my $growth = $node->safe_psql('postgres', <<'END');
CREATE FUNCTION memory() RETURNS bigint VOLATILE LANGUAGE sql AS 'SELECT sum(total_bytes)::bigint FROM pg_backend_memory_contexts';
CREATE TABLE many AS SELECT id, repeat('many words ', 30) || id AS title, NULL AS en FROM generate_series(1, 30000) id;
SELECT max(memory) - min(memory) FROM
    (SELECT id, hymt_translate(title, 'zh', 'en') AS en, CASE WHEN id % 1000 = 0 THEN memory() END AS memory FROM many OFFSET 0) AS x
    WHERE id > 2000;
END
	cmp_ok($growth, '<', 2_000_000, "from row 2,000 to row 30,000 it grows by $growth bytes");
	my $peak = $node->safe_psql('postgres', <<'END');
SET hymt.read_ahead_bytes = '64kB';
SELECT max(total) FROM (SELECT hymt_translate('b' || title, 'zh', 'en') AS en,
    CASE WHEN id % 100 = 0 THEN (SELECT sum(total_bytes) FROM pg_backend_memory_contexts WHERE name IN ('hymt window', 'hymt read ahead') AND id > 0) END AS total
    FROM many WHERE id <= 3000 OFFSET 0) AS x;
END
	cmp_ok($peak, '<', 400_000, "hymt.read_ahead_bytes = 64kB: the window takes $peak bytes at most");
};

done_testing();
