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

-- The node is below the target list, and not where only other plans would do.
EXPLAIN (COSTS OFF) SELECT id, hymt_translate(title, 'zh', 'en') FROM goods;
EXPLAIN (COSTS OFF) SELECT upper(hymt_translate(lower(title), lang, 'en', on_error => 'null')), hymt_translate(title, 'zh', 'de') FROM goods ORDER BY id LIMIT 3;
EXPLAIN (COSTS OFF, VERBOSE) UPDATE goods SET title_en = hymt_translate(title, 'zh', 'en');
EXPLAIN (COSTS OFF) UPDATE goods SET title_en = hymt_translate(g.title, 'zh', 'en') FROM goods AS g WHERE g.id = goods.id + 1;
EXPLAIN (COSTS OFF) INSERT INTO goods (id, title) SELECT id + 100, hymt_translate(title, 'zh', 'en') FROM goods;
EXPLAIN (COSTS OFF) SELECT hymt_translate(title, 'zh', 'en'), count(*) FROM goods GROUP BY title;
EXPLAIN (COSTS OFF) SELECT hymt_translate(title, 'zh', 'en'), row_number() OVER (ORDER BY id) FROM goods;
EXPLAIN (COSTS OFF) SELECT id FROM goods WHERE hymt_translate(title, 'zh', 'en') IS NULL;
EXPLAIN (COSTS OFF) SELECT CASE WHEN id > 3 THEN hymt_translate(title, 'zh', 'en') END FROM goods;
EXPLAIN (COSTS OFF) SELECT hymt_translate(title, 'zh', 'en'), generate_series(1, 2) FROM goods;
EXPLAIN (COSTS OFF) SELECT hymt_translate(title, 'zh', 'en') FROM goods WHERE random() < 2;
EXPLAIN (COSTS OFF) SELECT hymt_translate(repeat(title, 2), 'zh', 'en') FROM goods;
EXPLAIN (COSTS OFF) SELECT hymt_translate('黑色皮鞋', 'zh', 'en');
EXPLAIN (COSTS OFF, FORMAT json) SELECT hymt_translate(title, 'zh', 'en') FROM goods;
SET hymt.read_ahead = off;
EXPLAIN (COSTS OFF) SELECT id, hymt_translate(title, 'zh', 'en') FROM goods;
SET hymt.read_ahead = on;

-- What it did: rows were read, and nothing asked for, because nothing needs the model.
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT hymt_translate('12', 'zh', 'en'), hymt_translate(title, 'zh', 'zh') FROM goods WHERE id <= 10;

-- The same as without.
CREATE TEMP TABLE ahead AS SELECT id, hymt_translate(title, 'zh', 'en') AS en, upper(hymt_translate(title, 'zh', 'de')) AS de FROM goods;
SET hymt.read_ahead = off;
CREATE TEMP TABLE single AS SELECT id, hymt_translate(title, 'zh', 'en') AS en, upper(hymt_translate(title, 'zh', 'de')) AS de FROM goods;
SET hymt.read_ahead = on;
SELECT count(*), count(en), (SELECT count(*) FROM (TABLE ahead EXCEPT TABLE single) AS x) AS different FROM ahead;
UPDATE goods SET title_en = hymt_translate(title, 'zh', 'en');
SELECT count(*) FROM goods JOIN single USING (id) WHERE title_en IS DISTINCT FROM en;

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
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT id, hymt_translate(title, 'zh', 'zh') FROM goods;
RESET ROLE;
REVOKE EXECUTE ON FUNCTION hymt_translate(text, text, text, text, text, text, text, jsonb) FROM hymt_reader;
DROP TABLE goods;
DROP ROLE hymt_reader;

-- After the extension was created anew its functions have other numbers.
CREATE TEMP TABLE one (title text);
BEGIN;
DROP EXTENSION hymt CASCADE;
CREATE EXTENSION hymt;
EXPLAIN (COSTS OFF) SELECT hymt_translate(title, 'zh', 'en') FROM one;
ROLLBACK;
EXPLAIN (COSTS OFF) SELECT hymt_translate(title, 'zh', 'en') FROM one;
