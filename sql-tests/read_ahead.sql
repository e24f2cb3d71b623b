-- Reading ahead: where the plans have the node, and that results are the same.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
-- What is tested here is not the cache: each text is to come from the engine.
SET hymt.cache = off;
CREATE EXTENSION IF NOT EXISTS hymt;
SET hymt.read_ahead = on;
SET max_parallel_workers_per_gather = 0;
\set VERBOSITY sqlstate
\pset null '(null)'

CREATE TABLE goods (id int PRIMARY KEY, title text, title_en text, lang text DEFAULT 'zh');
INSERT INTO goods (id, title) SELECT id, (ARRAY['黑色皮鞋', '红色连衣裙', '男士外套', '棉质衬衫', NULL, 'SKU-1', '蓝色背包'])[id % 7 + 1]
	FROM generate_series(1, 40) AS id;
ANALYZE goods;

-- Plans as versions 15 to 18 all show them: they differ in how rows are counted, in names of columns and in further lines.
CREATE FUNCTION plan(query text, options text DEFAULT '') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF' || options || ') ' || query LOOP
		CONTINUE WHEN line ~ '^ *Window: ';
		RETURN NEXT replace(regexp_replace(line, '(actual rows=\d+)\.00 ', '\1 '), '(goods.title,', '(title,');
	END LOOP;
END
$$;

-- The node is below the target list, and not where only other plans would do.
EXPLAIN (COSTS OFF) SELECT id, hymt_translate(title, 'zh', 'en') FROM goods;
EXPLAIN (COSTS OFF) SELECT upper(hymt_translate(lower(title), lang, 'en', on_error => 'null')), hymt_translate(title, 'zh', 'de') FROM goods ORDER BY id LIMIT 3;
EXPLAIN (COSTS OFF, VERBOSE) UPDATE goods SET title_en = hymt_translate(title, 'zh', 'en');
EXPLAIN (COSTS OFF) UPDATE goods SET title_en = hymt_translate(g.title, 'zh', 'en') FROM goods AS g WHERE g.id = goods.id + 1;
EXPLAIN (COSTS OFF) INSERT INTO goods (id, title) SELECT id + 100, hymt_translate(title, 'zh', 'en') FROM goods;
SELECT plan($$SELECT hymt_translate(title, 'zh', 'en'), count(*) FROM goods GROUP BY title$$);
SELECT plan($$SELECT hymt_translate(title, 'zh', 'en'), row_number() OVER (ORDER BY id) FROM goods$$);
EXPLAIN (COSTS OFF) SELECT d.translation, hymt_translate(lang, 'zh', 'en') FROM goods, LATERAL hymt_translate_details(title, 'zh', 'en', 'shoes') AS d WHERE d.status <> 'failed';
EXPLAIN (COSTS OFF) SELECT d.translation, hymt_translate(lang, 'zh', 'en') FROM goods LEFT JOIN LATERAL hymt_translate_details(title, 'zh', 'en') AS d ON true;
CREATE TABLE parts (LIKE goods) PARTITION BY HASH (id);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO parts SELECT * FROM goods;
ANALYZE parts;
EXPLAIN (COSTS OFF) UPDATE parts SET title_en = hymt_translate(parts.title, 'zh', 'en') FROM goods WHERE goods.id = parts.id;
EXPLAIN (COSTS OFF) SELECT id FROM goods WHERE hymt_translate(title, 'zh', 'en') IS NULL;
EXPLAIN (COSTS OFF) SELECT CASE WHEN id > 3 THEN hymt_translate(title, 'zh', 'en') END FROM goods;
EXPLAIN (COSTS OFF) SELECT hymt_translate(title, 'zh', 'en'), generate_series(1, 2) FROM goods;
EXPLAIN (COSTS OFF) SELECT hymt_translate(title, 'zh', 'en') FROM goods WHERE random() < 2;
EXPLAIN (COSTS OFF) SELECT hymt_translate(repeat(title, 2), 'zh', 'en') FROM goods;
EXPLAIN (COSTS OFF) SELECT hymt_translate('黑色皮鞋', 'zh', 'en');
SELECT node->'Custom Plan Provider', node->'Calls', node#>'{Plans,0,Relation Name}'
	FROM (SELECT plan($$SELECT hymt_translate(title, 'zh', 'en') FROM goods$$, ', FORMAT json')::jsonb#>'{0,Plan,Plans,0}' AS node) AS p;
SET hymt.read_ahead = off;
EXPLAIN (COSTS OFF) SELECT id, hymt_translate(title, 'zh', 'en') FROM goods;
SET hymt.read_ahead = on;

-- What it did: rows were read, and nothing asked for, because nothing needs the model.
SELECT plan($$SELECT hymt_translate('12', 'zh', 'en'), hymt_translate(title, 'zh', 'zh') FROM goods WHERE id <= 10$$, ', ANALYZE, BUFFERS OFF, TIMING OFF, SUMMARY OFF');

-- The same as without.
CREATE TEMP TABLE ahead AS SELECT id, hymt_translate(title, 'zh', 'en') AS en, upper(hymt_translate(title, 'zh', 'de')) AS de FROM goods;
SET hymt.read_ahead = off;
CREATE TEMP TABLE single AS SELECT id, hymt_translate(title, 'zh', 'en') AS en, upper(hymt_translate(title, 'zh', 'de')) AS de FROM goods;
SET hymt.read_ahead = on;
SELECT count(*), count(en), (SELECT count(*) FROM (TABLE ahead EXCEPT TABLE single) AS x) AS different FROM ahead;
UPDATE goods SET title_en = hymt_translate(title, 'zh', 'en');
SELECT count(*) FROM goods JOIN single USING (id) WHERE title_en IS DISTINCT FROM en;
UPDATE parts SET title_en = hymt_translate(parts.title, 'zh', 'en') || parts.tableoid::regclass FROM goods WHERE goods.id = parts.id;
SELECT count(*), count(DISTINCT parts.tableoid) FROM parts JOIN single USING (id) WHERE title_en = en || parts.tableoid::regclass;
SELECT count(*), count(translation) FROM (SELECT goods.*, d.translation FROM goods, hymt_translate_details(title, 'zh', 'en') AS d) AS x WHERE translation IS DISTINCT FROM title_en;
DROP TABLE parts;

-- An error belongs to its row.
UPDATE goods SET lang = 'no such language' WHERE id = 9;
SELECT count(en) FROM (SELECT hymt_translate(title, lang, 'en') AS en FROM goods ORDER BY id LIMIT (8 + 0 * random())::int) AS x;
SELECT count(en) FROM (SELECT hymt_translate(title, lang, 'en') AS en FROM goods ORDER BY id OFFSET 0) AS x;

-- Cursors: back and forth, and their current row.
BEGIN;
DECLARE c CURSOR FOR SELECT id, hymt_translate(title, 'zh', 'en') = title_en AS same FROM goods WHERE title IS NOT NULL ORDER BY id;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH 6 FROM c;
FETCH LAST FROM c;
FETCH PRIOR FROM c;
CLOSE c;
DECLARE c CURSOR FOR SELECT id, hymt_translate(title, 'zh', 'en') = title_en AS same FROM goods;
MOVE 5 IN c;
FETCH c;
DELETE FROM goods WHERE CURRENT OF c RETURNING id;
FETCH c;
ROLLBACK;

-- Who may not call it, may not have it called ahead; policies keep rows from being read ahead as well.
CREATE ROLE hymt_reader;
GRANT SELECT ON goods TO hymt_reader;
ALTER TABLE goods ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON goods TO hymt_reader USING (id < 4);
SET ROLE hymt_reader;
SELECT id, hymt_translate(title, 'zh', 'en') FROM goods;
RESET ROLE;
GRANT EXECUTE ON FUNCTION hymt_translate(text, text, text, text, text, text, text, jsonb) TO hymt_reader;
SET ROLE hymt_reader;
SELECT plan($$SELECT id, hymt_translate(title, 'zh', 'zh') FROM goods$$, ', ANALYZE, BUFFERS OFF, TIMING OFF, SUMMARY OFF');
RESET ROLE;
REVOKE EXECUTE ON FUNCTION hymt_translate(text, text, text, text, text, text, text, jsonb) FROM hymt_reader;
DROP TABLE goods;
DROP FUNCTION plan;
DROP ROLE hymt_reader;

-- After the extension was created anew its functions have other numbers.
CREATE TEMP TABLE one (title text);
BEGIN;
DROP EXTENSION hymt CASCADE;
CREATE EXTENSION hymt;
EXPLAIN (COSTS OFF) SELECT hymt_translate(title, 'zh', 'en') FROM one;
ROLLBACK;
EXPLAIN (COSTS OFF) SELECT hymt_translate(title, 'zh', 'en') FROM one;
