-- Reading ahead: rows that no tuple can hold or that would fill the window, and arguments that look harmless and raise. No
-- text here needs the model.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS hymt;
SET hymt.read_ahead = on;
SET max_parallel_workers_per_gather = 0;
\set VERBOSITY sqlstate

-- Expressions above the node may use more columns than a tuple has.
CREATE TEMP TABLE goods (id int, sku text);
INSERT INTO goods SELECT id, 'SKU-' || id FROM generate_series(1, 12) AS id;
DO $$
BEGIN
	EXECUTE (SELECT format('CREATE TEMP TABLE wide_a (id int, %s)', string_agg('a' || c || ' int', ', ')) FROM generate_series(1, 1000) AS c);
	EXECUTE (SELECT format('CREATE TEMP TABLE wide_b (id int, %s)', string_agg('b' || c || ' int', ', ')) FROM generate_series(1, 1000) AS c);
END
$$;
INSERT INTO wide_a (id, a1, a1000) SELECT id, id, id * 2 FROM generate_series(1, 12) AS id;
INSERT INTO wide_b (id, b1000) SELECT id, id * 3 FROM generate_series(1, 12) AS id;
CREATE FUNCTION pg_temp.of_all_columns() RETURNS TABLE (en text, largest int) LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE (
		SELECT format('SELECT hymt_translate(sku, ''zh'', ''en''), greatest(%s, %s) FROM goods JOIN wide_a USING (id) JOIN wide_b USING (id)',
					  string_agg('a' || c, ', '), string_agg('b' || c, ', ')) FROM generate_series(1, 1000) AS c);
END
$$;
SELECT count(en), min(largest), max(largest) FROM pg_temp.of_all_columns();

-- Rows larger than the window may be are passed on as they are, in their place, back and forth.
SET hymt.read_ahead_bytes = '64kB';
CREATE TEMP VIEW large AS
	SELECT id, repeat('x', CASE WHEN id % 5 IN (1, 4) THEN 100000 ELSE 10 END) AS filling, 'SKU-' || id AS sku FROM generate_series(1, 30) AS id OFFSET 0;
EXPLAIN (COSTS OFF) SELECT id, length(filling), hymt_translate(sku, 'zh', 'en') FROM large;
SELECT count(*), count(DISTINCT id), sum(length), count(*) FILTER (WHERE en = 'SKU-' || id)
	FROM (SELECT id, length(filling), hymt_translate(sku, 'zh', 'en') AS en FROM large OFFSET 0) AS l;
CREATE FUNCTION pg_temp.counted(name text, query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, FORMAT json) ' || query INTO plan;
	RETURN jsonb_path_query_first(plan, format('$.**.%I', name)::jsonpath);
END
$$;
SELECT pg_temp.counted('Rows Read', $$SELECT filling, hymt_translate(sku, 'zh', 'en') FROM large$$);
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id, length(filling), hymt_translate(sku, 'zh', 'en') AS en FROM large;
FETCH 4 FROM c;
FETCH BACKWARD 3 FROM c;
FETCH 13 FROM c;
SET LOCAL hymt.read_ahead = off;
FETCH 2 FROM c;
SET LOCAL hymt.read_ahead = on;
FETCH LAST FROM c;
FETCH PRIOR FROM c;
FETCH ABSOLUTE 16 FROM c;
ROLLBACK;
RESET hymt.read_ahead_bytes;

-- Some versions cannot search with such a collation, and raise as soon as there is a text to search in.
CREATE COLLATION pg_temp.loose (provider = icu, locale = 'und', deterministic = false);
CREATE TEMP TABLE loose AS SELECT id, CASE WHEN id > 5 THEN 'SKU-1' ELSE '' END COLLATE pg_temp.loose AS sku FROM generate_series(1, 20) AS id;
SELECT id, hymt_translate(replace(sku, '-', ' '), 'zh', 'en') FROM loose LIMIT (5 + 0 * random())::int;
EXPLAIN (COSTS OFF) SELECT hymt_translate(replace(sku, '-', ' '), 'zh', 'en') FROM loose;
EXPLAIN (COSTS OFF) SELECT hymt_translate(replace(sku, '-', ' '), 'zh', 'en') FROM goods;

-- Where nobody can stop early, the window is not small at the beginning.
SELECT pg_temp.counted('Batches', $$SELECT hymt_translate(sku, 'zh', 'en') FROM goods$$) AS "select",
	pg_temp.counted('Batches', $$UPDATE goods SET sku = hymt_translate(sku, 'zh', 'en')$$) AS "update",
	pg_temp.counted('Batches', $$INSERT INTO goods SELECT id, hymt_translate(sku, 'zh', 'en') FROM goods$$) AS "insert",
	pg_temp.counted('Batches', $$INSERT INTO goods SELECT id, hymt_translate(sku, 'zh', 'en') FROM goods WHERE id <= 12 LIMIT (12 + 0 * random())::int$$) > 1 AS "insert with limit";

-- A plan is shown after it has run, when its function may be gone.
CREATE FUNCTION pg_temp.without_extension() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	DROP EXTENSION IF EXISTS hymt CASCADE;
	RETURN 1;
END
$$;
CREATE FUNCTION pg_temp.calls_shown(query text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, FORMAT json) ' || query INTO plan;
	RETURN jsonb_path_query_first(plan, '$.**.Calls');
END
$$;
BEGIN;
SET LOCAL client_min_messages = warning;
SELECT pg_temp.calls_shown($$SELECT hymt_translate(sku, 'zh', 'en'), pg_temp.without_extension() FROM goods$$);
ROLLBACK;
