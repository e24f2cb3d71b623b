# RandomQueries.pm: random statements with calls of hymt_translate, for comparing the same statement with reading ahead
# and without. Made from a seed, so that a case that differs can be made again.
#
# Each case is a block of SQL in a transaction that is rolled back. Whatever it leaves behind is printed by the block
# itself. Conditions never raise, because the order in which rows are looked at before they are returned is nobody's
# promise; target lists do.
package RandomQueries;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(random_schema random_case);

sub pick { return $_[ int rand @_ ]; }
sub chance { return rand() < $_[0]; }

sub random_schema
{
	return <<'END';
CREATE TABLE t (id int PRIMARY KEY, title text, title_en text, note varchar(40), price int, lang text, data jsonb);
INSERT INTO t SELECT g, CASE WHEN g % 17 = 0 THEN NULL WHEN g % 13 = 0 THEN '12 345' ELSE '第 ' || g % 29 || ' 件' END,
    NULL, CASE WHEN g % 3 = 0 THEN 'note ' || g END, g * 7 % 31, (ARRAY['zh', 'de', 'fr'])[g % 3 + 1],
    jsonb_build_object('title', 'json ' || g) FROM generate_series(1, 120) g;
CREATE INDEX ON t (price);
CREATE TABLE u (id int, title text, title_en text, note varchar(40), price int, lang text, data jsonb);
INSERT INTO u SELECT id * 2, upper(title), NULL, note, price, lang, data FROM t WHERE id <= 40;
CREATE TABLE p (LIKE t) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (20);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (20) TO (70);
CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (70) TO (1000);
INSERT INTO p SELECT * FROM t;
CREATE TABLE i (LIKE t);
CREATE TABLE i1 (extra int) INHERITS (i);
CREATE TABLE i2 () INHERITS (i1);
INSERT INTO i SELECT * FROM t WHERE id <= 10;
INSERT INTO i1 SELECT *, 1 FROM t WHERE id BETWEEN 11 AND 50;
INSERT INTO i2 SELECT *, 2 FROM t WHERE id BETWEEN 51 AND 70;
CREATE VIEW v WITH (security_barrier) AS SELECT * FROM t WHERE price > 3;
CREATE TABLE bad (LIKE t);
INSERT INTO bad SELECT * FROM t WHERE id <= 30;
UPDATE bad SET title = 'mock:fail language' WHERE id IN (9, 25);
UPDATE bad SET lang = 'xx' WHERE id = 14;
UPDATE bad SET price = 0 WHERE id = 11;
CREATE TABLE target (id int PRIMARY KEY, en text);
CREATE SEQUENCE s;
CREATE FUNCTION loud(x int) RETURNS int VOLATILE LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('s'); RETURN x; END $$;
CREATE FUNCTION sum_of(n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r record; result text := '';
BEGIN
    FOR r IN SELECT hymt_translate(title, 'zh', 'en') AS en FROM t ORDER BY id LOOP
        result := result || coalesce(left(r.en, 9), '-');
        n := n - 1;
        EXIT WHEN n = 0;
    END LOOP;
    RETURN result;
END $$;
ANALYZE;
END
}

# --- expressions ---------------------------------------------------------------------------------------------------

sub text_expression
{
	my ($r) = @_;

	return pick("$r.title", "$r.title", "$r.title", "lower($r.title)", "$r.title || ' x'", "coalesce($r.note, $r.title)",
		"$r.title || $r.id", "$r.data->>'title'", "$r.note", "left($r.title, 3)", "md5($r.title)", "'const'",
		"upper(btrim($r.title))", "CASE WHEN $r.id % 2 = 0 THEN $r.title END", "NULL",
		"(SELECT max(title) FROM u)", "(SELECT u.title FROM u WHERE u.id = $r.id LIMIT 1)", "repeat($r.title, 2)");
}

sub call
{
	my ($r, $depth) = @_;
	my $text = !$depth && chance(0.08) ? call($r, 1) : text_expression($r);
	my $source = pick("'zh'", "'zh'", "'zh'", "$r.lang", "'en'");
	my $target = pick("'en'", "'en'", "'fr'", "'ja'");
	my $rest = pick('', '', '', '', ", on_error => 'null'", ", on_error => 'source'", q(, options => '{"priority": "bulk"}'),
		q(, options => '{"max_tokens": 50}'), ", context => $r.note", ", context => 'about ' || $r.id", ", context => 'shoes'", ", context => NULL, options => $r.data",
		q(, options => '{"sampling": {}}'), q(, options => '{"sampling": {"seed": 4, "top_p": 0.5}}'), q(, 'shoes', options => '{"adapter": "formal"}'),
		q(, options => '{"adapter": "unknown"}'));

	return "hymt_translate($text, $source, $target$rest)";
}

sub expression
{
	my ($r) = @_;
	my $call = call($r);

	return pick($call, $call, $call, "upper($call)", "$call || '-'", "coalesce($r.note, $call)",
		"CASE WHEN $r.id % 2 = 0 THEN $call END", "length($call)", "nullif($call, 'x')", "row($call, $r.id)::text",
		"$call IS NULL", "coalesce($call, $r.note)", "$call = ANY (ARRAY['a', $r.title])",
		"(hymt_translate_details($r.title, 'zh', 'en')).status", "greatest($call, 'm')",
		"(SELECT $call || count(*) FROM u)", "$r.price > 5 AND $call IS NOT NULL", "100 / $r.price");
}

sub condition
{
	my ($r) = @_;

	return pick('true', 'true', "$r.id < 40", "$r.title_en IS NULL", "$r.price > 10", "$r.id IN (SELECT id FROM u)",
		"$r.title LIKE '%1%'", "$r.id BETWEEN 5 AND 25", "loud($r.id) < 50", "(SELECT loud($r.id)) < 30", "(SELECT max(id) FROM u WHERE u.id <= $r.id) > 3", "$r.id = 7", 'false',
		"hymt_translate($r.title, 'zh', 'en') <> 'x'", "EXISTS (SELECT FROM u WHERE u.id = $r.id)", "random() < 2");
}

# A FROM item with the columns of t under the alias r.
sub source
{
	my $call = call('a');

	return pick('t AS r', 't AS r', 't AS r', 'p AS r', 'i AS r', 'v AS r', 'u AS r', 'bad AS r',
		'(SELECT * FROM t OFFSET 3) AS r', 't AS r JOIN u AS a USING (id)', 't AS r JOIN u AS a ON r.id = a.id',
		't AS r LEFT JOIN u AS a ON r.id = a.id', "t AS r LEFT JOIN (SELECT id AS k, $call AS en FROM u AS a) AS x ON x.k = r.id",
		'(SELECT * FROM t UNION ALL SELECT * FROM u) AS r',
		"(SELECT a.id, $call AS title, a.note, a.title_en, a.price, a.lang, a.data FROM t AS a) AS r",
		"(SELECT a.id, a.title, $call AS title_en, a.note, a.price, a.lang, a.data FROM t AS a WHERE id < 20 UNION ALL " .
		"SELECT a.id, a.title, $call, a.note, a.price, a.lang, a.data FROM p AS a) AS r",
		'u AS a, LATERAL (SELECT * FROM t WHERE t.id = a.id) AS r',
		"u AS a, LATERAL (SELECT t.*, hymt_translate(t.title, 'zh', 'en') || a.id AS en FROM t WHERE t.price > a.price ORDER BY t.id LIMIT 2) AS r",
		"t AS r, LATERAL hymt_translate_details(r.title, 'zh', 'en') AS d", "bad AS r, LATERAL hymt_translate_details(r.title, r.lang, 'en') AS d",
		"p AS r LEFT JOIN LATERAL hymt_translate(r.title, 'zh', 'en', r.note) AS d ON true", "i AS r LEFT JOIN LATERAL hymt_translate_details(r.title, 'zh', 'fr') AS d ON d.status = 'unchanged'",
		"t AS r, hymt_translate(r.title, 'zh', 'en') AS d, hymt_translate(d || r.id, 'zh', 'fr') AS e, hymt_translate(r.note, 'zh', 'ja') AS f",
		"(SELECT t.*, d.translation AS en FROM t, LATERAL hymt_translate_details(t.title, 'zh', 'en') AS d WHERE d.status = 'translated') AS r",
		"t AS a JOIN u AS b USING (id), LATERAL hymt_translate_details(b.title, 'zh', 'en') AS d, LATERAL (SELECT a.*) AS r",
		"t AS a LEFT JOIN u AS b USING (id) LEFT JOIN LATERAL hymt_translate_details(b.title, 'zh', 'en') AS d ON true JOIN p AS r ON r.id = a.id",
		"t AS r, regexp_split_to_table(hymt_translate(r.title, 'zh', 'en'), ' ') AS word", "t AS r, unnest(ARRAY[r.title, r.note]) AS word",
		"t AS r, loud(r.id) AS l, hymt_translate(r.title, 'zh', 'en') AS d", "(SELECT r.*, w FROM t AS r, hymt_translate(r.title || r.price, 'zh', 'en') AS w OFFSET 2) AS r",
		"t AS r LEFT JOIN (SELECT a.id AS k, d.translation || '!' AS en FROM u AS a, LATERAL hymt_translate_details(a.title, 'zh', 'en') AS d) AS x ON x.k = r.id",
		'(SELECT * FROM t ORDER BY price, id FOR UPDATE) AS r', '(SELECT loud(id) AS id, title, note, title_en, price, lang, data FROM t) AS r',
		"(SELECT g AS id, '第' || g AS title, NULL AS note, NULL AS title_en, g AS price, 'zh' AS lang, NULL::jsonb AS data FROM generate_series(1, 50) g) AS r",
		'(WITH w AS MATERIALIZED (SELECT * FROM t) SELECT * FROM w) AS r',
		'(VALUES (1, \'一\', NULL, NULL, 1, \'zh\', NULL::jsonb), (2, \'二\', \'n\', NULL, 0, \'zh\', NULL)) AS r(id, title, note, title_en, price, lang, data)');
}

# --- statements ----------------------------------------------------------------------------------------------------

sub select_statement
{
	my $from = source();
	my $where = condition('r');
	my @list = ('r.id', map { expression('r') } 1 .. pick(1, 1, 1, 2, 3));
	my $tail = pick('', '', '', ' ORDER BY r.id', ' ORDER BY r.price, r.id', ' ORDER BY 2, r.id', ' ORDER BY r.id DESC');
	my $limit = pick('', '', '', ' LIMIT 1', ' LIMIT 3', ' LIMIT 10 OFFSET 4', ' LIMIT 0', ' LIMIT 1000', ' LIMIT (SELECT 3)', ' LIMIT (15 + 0 * random())::int');

	# Without an order, which rows a LIMIT gives is nobody's promise either.
	$tail ||= ' ORDER BY r.id' if $limit ne '';
	$tail .= ', r.title, r.note' if $limit ne '' && $from =~ /UNION|JOIN|LATERAL/;
	$tail .= ', word' if $limit ne '' && $from =~ /AS word/;
	push @list, pick("nextval('s')", 'loud(r.id)', 'row_number() OVER (ORDER BY r.id, r.price)', 'count(*) OVER ()',
		'generate_series(1, 2)') if chance(0.15);
	return "SELECT DISTINCT $list[1] FROM $from WHERE $where" if chance(0.04);
	return "SELECT count(*), $list[1] FROM $from WHERE $where GROUP BY 2" if chance(0.04);
	return "SELECT count(*), max(r.id), hymt_translate(r.title, 'zh', 'en') FROM $from WHERE $where GROUP BY r.title" if chance(0.05);
	return "SELECT count(" . call('r') . "), max(" . call('r') . ") FROM $from WHERE $where" if chance(0.04);
	return "SELECT hymt_translate(max(r.title), 'zh', 'en'), count(*) FROM $from WHERE $where GROUP BY r.price % 5" if chance(0.04);
	return "SELECT hymt_translate(max(r.title), 'zh', 'en'), sum(loud(r.id)) FROM $from WHERE $where GROUP BY r.id ORDER BY r.id LIMIT (3 + 0 * random())::int" if chance(0.03);
	return "SELECT r.id, hymt_translate(r.title, 'zh', 'en') FROM $from WHERE $where ORDER BY r.id, loud(r.id) LIMIT (3 + 0 * random())::int" if chance(0.03);
	$tail .= $limit;
	$tail .= pick(' FOR UPDATE OF r', ' FOR UPDATE OF r SKIP LOCKED', ' FOR SHARE OF r') if $from =~ /^[tpui] AS r$/ && chance(0.15);
	return 'SELECT ' . join(', ', @list) . " FROM $from WHERE $where$tail";
}

sub data_statement
{
	my $table = pick('t', 't', 'p', 'i', 'u');
	my $call = call('r');
	my $where = condition('r');
	my $select = "SELECT r.id + 1000, $call FROM t AS r WHERE $where";
	my $source = "(SELECT r.id, $call AS en FROM t AS r WHERE $where) AS x";

	return pick(
		"UPDATE $table AS r SET title_en = $call WHERE $where",
		"UPDATE $table AS r SET title_en = $call WHERE $where",
		"UPDATE $table AS r SET title_en = $call, note = left(" . call('r') . ", 20) WHERE $where",
		"UPDATE $table AS q SET title_en = $call FROM t AS r WHERE r.id = q.id AND $where",
		"UPDATE $table AS r SET title_en = $call FROM u AS a WHERE r.id = a.id RETURNING r.id, " . call('r'),
		"UPDATE $table AS q SET title_en = hymt_translate(q.title, 'zh', 'en'), note = left($call, 20) FROM " . pick('t', 'p', 'i') . " AS r WHERE r.id = q.id AND $where",
		"UPDATE $table AS q SET title_en = d FROM t AS r, hymt_translate(r.title, 'zh', 'en') AS d WHERE r.id = q.id AND $where RETURNING q.*, r.id, q.tableoid::regclass",
		"UPDATE p SET id = (p.id + 35) % 140, title_en = $call FROM t AS r WHERE r.id = p.id AND $where RETURNING p.id, p.tableoid::regclass",
		"UPDATE i SET title_en = $call || i.ctid FROM u AS r WHERE r.id = i.id RETURNING i.*, i.tableoid::regclass",
		"DELETE FROM $table AS q USING t AS r, hymt_translate(r.title, 'zh', 'en') AS d WHERE r.id = q.id AND $where AND d <> 'x' RETURNING q.id",
		"INSERT INTO target SELECT r.id, d.translation FROM t AS r, LATERAL hymt_translate_details(r.title, 'zh', 'en') AS d WHERE $where",
		"MERGE INTO $table AS q USING $source ON q.id = x.id WHEN MATCHED THEN UPDATE SET title_en = x.en",
		"MERGE INTO $table AS q USING $source ON q.id = x.id WHEN MATCHED THEN UPDATE SET title_en = x.en WHEN NOT MATCHED THEN INSERT (id, title_en) VALUES (x.id, x.en)",
		"MERGE INTO $table AS q USING (SELECT r.id, d FROM t AS r, hymt_translate(r.title, 'zh', 'en') AS d WHERE $where) AS x ON q.id = x.id WHEN MATCHED AND x.id > 9 THEN UPDATE SET title_en = x.d WHEN MATCHED THEN DELETE",
		"INSERT INTO target $select",
		"INSERT INTO target $select ON CONFLICT (id) DO UPDATE SET en = excluded.en",
		"INSERT INTO target SELECT id, 'old' FROM t WHERE id % 2 = 0; INSERT INTO target SELECT r.id, $call FROM t AS r " .
		"ON CONFLICT (id) DO UPDATE SET en = hymt_translate(excluded.en, 'en', 'de')",
		"DELETE FROM $table AS r WHERE $where RETURNING r.id, $call",
		"CREATE TABLE made AS SELECT r.id, $call AS en FROM $table AS r WHERE $where; SELECT * FROM made",
		"WITH w AS (UPDATE $table AS r SET title_en = $call WHERE $where RETURNING r.*) SELECT r.id, " . expression('r') . " FROM w AS r",
		"INSERT INTO target SELECT id, 'old' FROM t WHERE id % 2 = 0; MERGE INTO target USING $source ON target.id = x.id " .
		"WHEN MATCHED THEN UPDATE SET en = x.en WHEN NOT MATCHED THEN INSERT VALUES (x.id, x.en)",
		"INSERT INTO target SELECT id, 'old' FROM t WHERE id % 2 = 0; MERGE INTO target USING $source ON target.id = x.id " .
		"WHEN MATCHED AND x.id > 20 THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (x.id, x.en)",
		"INSERT INTO target SELECT id, 'old' FROM t WHERE id % 2 = 0; MERGE INTO target USING $source ON target.id = x.id " .
		"WHEN MATCHED THEN UPDATE SET en = x.en");
}

sub cursor_statements
{
	my $simple = chance(0.5);
	my $query = $simple ? 'SELECT r.id, ' . expression('r') . ' FROM ' . pick('t', 'p', 'i', 'u') . ' AS r' : select_statement();
	my $scroll = $query =~ /FOR (UPDATE|SHARE)/ ? '' : pick('', '', 'SCROLL ', 'NO SCROLL ');
	my $sql = "DECLARE c ${scroll}CURSOR FOR $query;\n";

	for (1 .. 2 + int rand 5)
	{
		$sql .= pick('FETCH c', 'FETCH 2 FROM c', 'FETCH 7 FROM c', 'FETCH 40 FROM c', 'MOVE 5 IN c', 'FETCH ALL FROM c') . ";\n";
		$sql .= pick('SAVEPOINT a; FETCH BACKWARD 2 FROM c; ROLLBACK TO a', 'SAVEPOINT a; FETCH PRIOR FROM c; ROLLBACK TO a',
			'SAVEPOINT a; FETCH FIRST FROM c; RELEASE a', 'FETCH BACKWARD 3 FROM c', 'FETCH LAST FROM c', 'FETCH RELATIVE 0 FROM c') . ";\n"
		  if chance(0.3);
		$sql .= pick(map { "UPDATE $_ SET note = 'cur' WHERE CURRENT OF c RETURNING id" } qw(t p i u i1 p2)) . ";\n" if $simple && chance(0.4);
	}
	return $sql . "CLOSE c";
}

sub prepared_statements
{
	my $query = 'SELECT r.id, hymt_translate(r.title || $2, $3, \'en\'), ' . expression('r') .
	  ' FROM ' . pick('t', 'p', 'i') . ' AS r WHERE r.id < $1 ORDER BY r.id' . pick('', ' LIMIT 5', ' LIMIT $1 / 2');

	# What is prepared outlives a rollback.
	return "DEALLOCATE ALL;\nSET LOCAL plan_cache_mode = " . pick('force_generic_plan', 'force_custom_plan', 'auto') . ";\n" .
	  "PREPARE q(int, text, text) AS $query;\n" .
	  join(";\n", map { sprintf "EXECUTE q(%d, '%s', '%s')", pick(0, 3, 40, 200), pick('', '!', 'a'), pick('zh', 'zh', 'en', 'xx') } 1 .. 3);
}

# The settings of a case, the same for both of its runs.
sub settings
{
	my @set = ("SET LOCAL hymt.read_ahead_rows = " . pick(1, 2, 5, 40, 256, 256));

	push @set, map { "SET LOCAL $_ = off" } grep { chance(0.2) }
	  qw(enable_hashjoin enable_mergejoin enable_nestloop enable_seqscan enable_sort enable_hashagg enable_indexscan enable_material);
	push @set, 'SET LOCAL enable_partitionwise_join = on' if chance(0.2);
	push @set, 'SET LOCAL jit = off' if chance(0.9);
	if (chance(0.25))
	{
		push @set, 'SET LOCAL max_parallel_workers_per_gather = 2', 'SET LOCAL parallel_setup_cost = 0',
		  'SET LOCAL parallel_tuple_cost = 0', 'SET LOCAL min_parallel_table_scan_size = 0';
		push @set, 'SET LOCAL parallel_leader_participation = off' if chance(0.3);
	}
	else
	{
		push @set, 'SET LOCAL max_parallel_workers_per_gather = 0';
	}
	push @set, "SET LOCAL hymt.read_ahead_bytes = '64kB'" if chance(0.1);
	# Either every statement runs in a subtransaction, or the first error ends the case.
	return "\\set ON_ERROR_ROLLBACK " . pick('on', 'off') . "\n" . join(";\n", @set) . ";\n";
}

# The SQL of a case, without the setting of hymt.read_ahead.
sub random_case
{
	my ($seed) = @_;

	srand($seed);
	my $kind = rand();
	my $sql =
		$kind < 0.5 ? select_statement()
	  : $kind < 0.72 ? data_statement()
	  : $kind < 0.88 ? cursor_statements()
	  : $kind < 0.95 ? prepared_statements()
	  : 'SELECT sum_of(' . pick(1, 5, 100, 500) . ')';

	# Which of its errors comes first, and after how many rows, is nobody's promise where several processes look for it.
	$sql = "SET LOCAL max_parallel_workers_per_gather = 0;\n$sql" if $sql =~ /\bbad AS r\b/;
	# The sequence tells how often what has effects was evaluated, as setval() is undone by no rollback, nor is nextval().
	return settings() . "SELECT setval('s', 1);\nSAVEPOINT before;\n$sql;\nSAVEPOINT after;\nROLLBACK TO before;\n" .
	  "SELECT last_value FROM s;\n" if $kind < 0.5;
	return settings() . "SELECT setval('s', 1);\n$sql;\n" .
	  "SELECT 'after', * FROM (SELECT 't', id, title_en, note FROM t UNION ALL SELECT 'p', id, title_en, note FROM p " .
	  "UNION ALL SELECT 'i', id, title_en, note FROM i UNION ALL SELECT 'u', id, title_en, note FROM u " .
	  "UNION ALL SELECT 'target', id, en, NULL FROM target) AS x ORDER BY 2, 3;\nSELECT last_value FROM s;\n";
}

1;
