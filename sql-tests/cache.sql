-- The cache in shared memory: which questions are the same, what is kept, what the settings do.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS hymt;
SET hymt.cache = memory;
\set VERBOSITY sqlstate

-- No test before this one asked for these texts. Requests are what reached the queue.
CREATE FUNCTION pg_temp.asked(statement text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE before bigint := (SELECT requests FROM hymt_stat);
BEGIN
	EXECUTE statement;
	RETURN (SELECT requests FROM hymt_stat) - before;
END $$;
SELECT hymt_stat_reset();
SELECT pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh')$$) AS first,
	pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh')$$) AS second,
	pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en-US', 'zh_CN')$$) AS other_spelling,
	pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh', options => '{"priority": "bulk"}')$$) AS priority,
	pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh', context => '', on_error => 'null')$$) AS no_context,
	pg_temp.asked($$SELECT hymt_translate(ARRAY['nail buffers and brushes', 'nail buffers and brushes'], 'en', 'zh')$$) AS in_an_array;
SELECT cache_memory_hits, cache_table_hits, cache_misses, cache_memory_entries > 0 AS entries, cache_memory_bytes > 0 AS bytes
FROM hymt_stat;

-- The same text, and another question.
SELECT pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'de')$$) AS target,
	pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'fr', 'zh')$$) AS source,
	pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh', context => 'A catalog.')$$) AS context,
	pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh', context => 'A catalog!')$$) AS other_context,
	pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh', options => '{"max_tokens": 200}')$$) AS max_tokens,
	pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh', options => '{"sampling": {"temperature": 0.2}}')$$) AS sampling,
	pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh', options => '{"sampling": {"temperature": 0.2, "seed": 7}}')$$) AS seed,
	pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh', options => '{"sampling": {"temperature": 0.3}}')$$) AS temperature,
	pg_temp.asked($$SELECT hymt_translate('Nail buffers and brushes', 'en', 'zh')$$) AS letter,
	pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes ', 'en', 'zh')$$) AS blank;
-- And each of them again. With a temperature of 0 the rest says nothing.
SELECT pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh', context => 'A catalog.')$$) AS context,
	pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh', options => '{"max_tokens": 200}')$$) AS max_tokens,
	pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh', options => '{"sampling": {"temperature": 0.2, "seed": 7}}')$$) AS seed,
	pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh', options => '{"sampling": {"temperature": 0, "seed": 7}}')$$) AS cold;

-- A kept answer tells what the engine told of it.
SELECT count(DISTINCT (translation, model, input_tokens, output_tokens, finish_reason)) AS answers,
	array_agg(cached ORDER BY i) AS cached
FROM (VALUES (1), (2)) AS v (i), LATERAL hymt_translate_details('velvet slippers' || left('x', 0 * i), 'en', 'zh') AS d;

-- Failures and what on_error makes of them are not kept, nor is what passes through.
SELECT pg_temp.asked($$SELECT hymt_translate('a grip type', 'en', 'zh', on_error => 'source', options => '{"max_tokens": 1}')$$) AS failed,
	pg_temp.asked($$SELECT hymt_translate('a grip type', 'en', 'zh', on_error => 'source', options => '{"max_tokens": 1}')$$) AS again;
SELECT status, cached FROM hymt_translate_details('a grip type', 'en', 'zh', on_error => 'null', options => '{"max_tokens": 1}');
SELECT status, cached FROM hymt_translate_details('42', 'en', 'zh');

-- Off: neither looked up nor kept.
SET hymt.cache = off;
SELECT pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh')$$) AS looked_up,
	pg_temp.asked($$SELECT hymt_translate('leather belts', 'en', 'zh')$$) AS kept;
SELECT cached FROM hymt_translate_details('nail buffers and brushes', 'en', 'zh');
SET hymt.cache = memory;
SELECT pg_temp.asked($$SELECT hymt_translate('leather belts', 'en', 'zh')$$) AS kept;

-- Each role for itself.
SET hymt.cache_scope = role;
SELECT pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh')$$) AS other_scope,
	pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh')$$) AS again;
CREATE ROLE regress_hymt_cache IN ROLE pg_monitor;
GRANT EXECUTE ON FUNCTION hymt_translate(text, text, text, text, text, text, text, jsonb) TO regress_hymt_cache;
GRANT EXECUTE ON FUNCTION pg_temp.asked(text) TO regress_hymt_cache;
SET ROLE regress_hymt_cache;
SELECT pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh')$$) AS other_role,
	pg_temp.asked($$SELECT hymt_translate('nail buffers and brushes', 'en', 'zh')$$) AS again;
-- Only superusers say who sees what; everybody whether he himself uses the cache.
SET hymt.cache_scope = database;
SET hymt.cache = on;
SET hymt.cache = memory;
RESET ROLE;
RESET hymt.cache_scope;
DROP OWNED BY regress_hymt_cache;
DROP ROLE regress_hymt_cache;

-- The trigger asks like everybody else.
CREATE TABLE kept (id int, title text, title_zh text);
CREATE TRIGGER translate_title BEFORE INSERT ON kept FOR EACH ROW
	EXECUTE FUNCTION hymt_translate_trigger('title', 'title_zh', 'en', 'zh');
SELECT pg_temp.asked($$INSERT INTO kept VALUES (1, 'woollen gloves')$$) AS first,
	pg_temp.asked($$INSERT INTO kept VALUES (2, 'woollen gloves')$$) AS second;
SELECT count(DISTINCT title_zh), count(title_zh) FROM kept;
DROP TABLE kept;

-- Reading ahead finds what is kept, and asks only for the rest.
CREATE TABLE kept (id int PRIMARY KEY, title text);
INSERT INTO kept SELECT i, 'linen shirt ' || chr(96 + i) || 'x' FROM generate_series(1, 12) AS i;
SELECT count(hymt_translate(title, 'en', 'zh')) FROM kept WHERE id <= 8;
SET hymt.read_ahead = on;
SET max_parallel_workers_per_gather = 0;
CREATE FUNCTION pg_temp.ahead(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || statement LOOP
		IF line ~ 'Asked|Hits|Rows Read' THEN
			RETURN NEXT btrim(line);
		END IF;
	END LOOP;
END $$;
SELECT pg_temp.ahead('SELECT id, hymt_translate(title, ''en'', ''zh''), hymt_translate(title, ''en'', ''zh'') || '''' FROM kept');
SELECT pg_temp.ahead('SELECT id, hymt_translate(title, ''en'', ''zh''), hymt_translate(title, ''en'', ''zh'') || '''' FROM kept');
SELECT pg_temp.asked('SELECT hymt_translate(title, ''en'', ''zh'') FROM kept');
DROP TABLE kept;

-- Values that are none.
SET hymt.cache = sometimes;
SET hymt.cache_scope = server;
ALTER SYSTEM SET hymt.cache_memory = '1kB';
SET hymt.cache_memory = '64MB';
SET hymt.cache_max_age = 1;
SET hymt.cache_max_size = 1;
