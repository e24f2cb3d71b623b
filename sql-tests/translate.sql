-- Translations by the model that ships with hymt. The answers are those of the reference implementation that the
-- model's card names (models/demo/reference.jsonl).
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
-- What is tested here is not the cache: each text is to come from the engine.
SET hymt.cache = off;
CREATE EXTENSION IF NOT EXISTS hymt;
\pset null '(null)'

SELECT hymt_translate('尿布更换垫罩子', 'zh', 'en'), hymt_translate('头发造型工具套装', 'zh', 'en');
SELECT hymt_translate('Grip type', 'en', 'zh'), hymt_translate('Canopy color', 'en', 'zh');
SELECT hymt_translate('Body fat percentage', 'en', 'de'), hymt_translate('Accessory size', 'en', 'fr');
SELECT hymt_translate('Video game platform', 'en', 'es'), hymt_translate('Stone type', 'en', 'ja');
SELECT hymt_translate('Doppel-DIN-Kassettenspieler', 'de', 'en'), hymt_translate('キーチェーン', 'ja', 'en');
SELECT hymt_translate('除雪机', 'zh', 'ja'), hymt_translate('personne debout : peau claire', 'fr', 'en');

-- One statement, many rows; the same text has the same answer.
CREATE TABLE goods (id int PRIMARY KEY, title text, title_en text);
INSERT INTO goods SELECT i, (ARRAY['尿布更换垫罩子', '头发造型工具套装', '11.5（强碱性）', NULL, '42'])[1 + i % 5]
FROM generate_series(1, 20) i;
UPDATE goods SET title_en = hymt_translate(title, 'zh', 'en');
SELECT title, title_en, count(*) FROM goods GROUP BY title, title_en ORDER BY title COLLATE "C";
SELECT count(*) FROM goods WHERE hymt_translate(title, 'zh', 'en') = 'Hair Styling Kits';

-- Where a function may stand.
CREATE TABLE copies AS SELECT hymt_translate(title, 'zh', 'en') AS t FROM goods WHERE id < 3;
INSERT INTO copies SELECT hymt_translate('Grip type', 'en', 'zh') RETURNING t;
SELECT t FROM copies ORDER BY t COLLATE "C";
WITH c AS MATERIALIZED (SELECT hymt_translate('Grip type', 'en', 'zh') AS t) SELECT t FROM c;
BEGIN READ ONLY;
SELECT hymt_translate('Grip type', 'en', 'zh');
COMMIT;
BEGIN;
DECLARE c CURSOR FOR SELECT hymt_translate('Grip type', 'en', 'zh') FROM generate_series(1, 3);
FETCH 1 FROM c;
ROLLBACK;
PREPARE p(text) AS SELECT hymt_translate($1, 'en', 'zh');
EXECUTE p('Grip type');
EXECUTE p(NULL);
DEALLOCATE p;
DO $$
DECLARE
	t text;
BEGIN
	FOR i IN 1..3 LOOP
		BEGIN
			t := hymt_translate('Grip type', 'en', CASE i WHEN 2 THEN 'xx' ELSE 'zh' END);
			RAISE WARNING '%', t;
		EXCEPTION WHEN OTHERS THEN
			RAISE WARNING '%', SQLSTATE;
		END;
	END LOOP;
END
$$;
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
EXPLAIN (COSTS OFF) SELECT count(*) FROM goods WHERE hymt_translate(title, 'zh', 'en') = 'Hair Styling Kits';
SELECT count(*) FROM goods WHERE hymt_translate(title, 'zh', 'en') = 'Hair Styling Kits';
RESET max_parallel_workers_per_gather;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
\set VERBOSITY sqlstate
ALTER TABLE goods ADD COLUMN g text GENERATED ALWAYS AS (hymt_translate(title, 'zh', 'en')) STORED;
CREATE INDEX ON goods (hymt_translate(title, 'zh', 'en'));
\set VERBOSITY default

-- Details.
SELECT translation, source_lang, status, failed_checks, finish_reason, cached, model, input_tokens > 0 AS input,
	output_tokens > 0 AS output, milliseconds > 0 AS time
FROM hymt_translate_details('Grip type', 'en-US', 'zh-CN');

-- A context is asked with, for a text and for an array; an empty one is none.
SELECT d.input_tokens > p.input_tokens + 3 AS longer, e.input_tokens = p.input_tokens AS same, d.status
FROM hymt_translate_details('Grip type', 'en', 'zh') AS p,
	hymt_translate_details('Grip type', 'en', 'zh', context => 'Tennis rackets and their handles') AS d,
	hymt_translate_details('Grip type', 'en', 'zh', context => '') AS e;
SELECT hymt_translate('42', 'en', 'zh', 'a context');
SELECT hymt_translate(ARRAY['Grip type', 'Canopy color'], 'en', 'zh', 'A context') =
	ARRAY[hymt_translate('Grip type', 'en', 'zh', 'A context'), hymt_translate('Canopy color', 'en', 'zh', 'A context')]
	AS same;
-- Drawn answers: the same with the same seed, in one request or in many; the likeliest with temperature 0 or top_k 1.
SELECT count(DISTINCT answer) AS answers, count(*)
FROM (SELECT hymt_translate('Grip type', 'en', 'zh', options => '{"sampling": {"temperature": 2, "seed": 5}}') AS answer
	FROM generate_series(1, 3)) AS a;
SELECT count(DISTINCT hymt_translate('Grip type', 'en', 'zh', on_error => 'null',
	options => format('{"sampling": {"temperature": 2, "seed": %s}, "max_tokens": 64}', seed)::jsonb)) > 2 AS different
FROM generate_series(1, 8) AS seed;
SELECT hymt_translate('Grip type', 'en', 'zh', options => '{"sampling": {"temperature": 0, "seed": 5}}'),
	hymt_translate('Grip type', 'en', 'zh', options => '{"sampling": {"temperature": 2, "top_k": 1, "seed": 5}}');

-- Failed translations: longer than the model's context, a language it does not know, cut short.
SELECT repeat('nail buffers ', 3000) AS long \gset
\set VERBOSITY sqlstate
SELECT hymt_translate(:'long', 'en', 'zh');
SELECT hymt_translate('Grip type', 'en', 'km');
SELECT hymt_translate('Body fat percentage', 'en', 'de', options => '{"max_tokens": 1}');
SELECT hymt_translate(:'long', 'en', 'zh', on_error => 'null');
SELECT hymt_translate(:'long', 'en', 'zh', on_error => 'source') = :'long' AS same;
SELECT hymt_translate('Grip type', 'en', 'km', on_error => 'source');
SELECT hymt_translate('Body fat percentage', 'en', 'de', on_error => 'null', options => '{"max_tokens": 1}');
SELECT translation, source_lang, status, failed_checks, finish_reason, cached
FROM hymt_translate_details('Body fat percentage', 'en', 'de', on_error => 'null', options => '{"max_tokens": 1}');
-- on_error has no say over arguments, cancels, and texts that queue memory cannot hold.
SELECT hymt_translate('Grip type', 'en', 'xx', on_error => 'null');
SELECT hymt_translate(repeat('nail buffers ', 1000000), 'en', 'zh', on_error => 'null');
\set VERBOSITY default
SELECT slots_in_use, queue_bytes_in_use FROM hymt_status;
DROP TABLE goods, copies;
