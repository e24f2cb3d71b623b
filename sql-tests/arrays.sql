-- hymt_translate(text[], ...): order, nulls, shape, equal elements, and what comes back unchanged.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
-- What is tested here is not the cache: each text is to come from the engine.
SET hymt.cache = off;
CREATE EXTENSION IF NOT EXISTS hymt;
\set VERBOSITY sqlstate
\pset null '(null)'

CREATE TEMP TABLE words (number serial, word text);
INSERT INTO words (word) VALUES ('红色连衣裙'), ('黑色皮鞋'), ('男士外套'), ('棉质衬衫'), ('蓝色背包');

-- Each element is what a call of its own gives.
CREATE TEMP VIEW whole AS SELECT array_agg(word ORDER BY number) AS words FROM words;
SELECT (SELECT hymt_translate(words, 'zh', 'en') FROM whole) =
	(SELECT array_agg(hymt_translate(word, 'zh', 'en') ORDER BY number) FROM words) AS same;
SELECT hymt_translate(ARRAY['红色连衣裙'], 'zh', 'en') = ARRAY[hymt_translate('红色连衣裙', 'zh', 'en')] AS same;

-- Order, nulls, equal elements, texts that need no model.
WITH result AS (
	SELECT hymt_translate(ARRAY['黑色皮鞋', NULL, '42', '红色连衣裙', '', '黑色皮鞋', 'https://example.com', '红色连衣裙'],
		'zh', 'en') AS r
)
SELECT r[1] = hymt_translate('黑色皮鞋', 'zh', 'en') AS first, r[2] AS second, r[3] AS third,
	r[4] = hymt_translate('红色连衣裙', 'zh', 'en') AS fourth, r[5] = '' AS fifth, r[6] = r[1] AS sixth, r[7] AS seventh,
	r[8] = r[4] AS eighth, array_length(r, 1)
FROM result;

-- Dimensions and bounds.
WITH result AS (SELECT hymt_translate('[0:1][-2:-1]={{黑色皮鞋,1},{2,红色连衣裙}}'::text[], 'zh', 'en') AS r)
SELECT array_dims(r), r[0][-2] = hymt_translate('黑色皮鞋', 'zh', 'en') AS one, r[0][-1], r[1][-2],
	r[1][-1] = hymt_translate('红色连衣裙', 'zh', 'en') AS four FROM result;
SELECT hymt_translate('{}'::text[], 'zh', 'en'), hymt_translate('[5:7]={a1,NULL,2}'::text[], 'zh', 'zh'),
	hymt_translate('[3:4]={1,2}'::text[], 'zh', 'en');
SELECT hymt_translate(ARRAY[NULL, NULL]::text[], 'zh', 'en'), hymt_translate(NULL::text[], 'zh', 'en'),
	hymt_translate(NULL::text[], 'no such language', NULL);

WITH result AS (
	SELECT hymt_translate('[-7:-6][100:100][2147483645:2147483646]={{{黑色皮鞋,NULL}},{{7,黑色皮鞋}}}'::text[], 'zh', 'en') AS r
)
SELECT array_ndims(r), array_dims(r), r[-7][100][2147483645] = hymt_translate('黑色皮鞋', 'zh', 'en') AS one,
	r[-7][100][2147483646] AS two, r[-6][100][2147483645] AS three, r[-6][100][2147483646] = r[-7][100][2147483645] AS four FROM result;
SELECT array_ndims(hymt_translate('{}'::text[], 'zh', 'en')), hymt_translate('{}'::text[], 'zh', 'en') = '{}' AS empty;

-- Arrays of varchar, of domains over text, and domains over arrays.
CREATE DOMAIN title AS text CHECK (VALUE <> '');
CREATE DOMAIN titles AS text[];
SELECT hymt_translate(ARRAY['黑色皮鞋', NULL, '7']::varchar(20)[], 'zh', 'en') =
	hymt_translate(ARRAY['黑色皮鞋', NULL, '7'], 'zh', 'en') AS varchars,
	hymt_translate(ARRAY['黑色皮鞋', NULL, '7']::title[], 'zh', 'en') =
	hymt_translate(ARRAY['黑色皮鞋', NULL, '7'], 'zh', 'en') AS elements,
	hymt_translate(ARRAY['黑色皮鞋', NULL, '7']::titles, 'zh', 'en') =
	hymt_translate(ARRAY['黑色皮鞋', NULL, '7'], 'zh', 'en') AS whole,
	pg_typeof(hymt_translate(ARRAY['7']::title[], 'zh', 'en'));
DROP DOMAIN title, titles;

-- Arguments as for one text.
SELECT hymt_translate(ARRAY['a'], 'no such language', 'en');
SELECT hymt_translate('{}'::text[], 'zh', 'no such language');
SELECT hymt_translate(ARRAY['a'], 'auto', 'en');
SELECT hymt_translate(ARRAY['a'], 'zh', 'en', on_error => 'ignore');

-- Failures: of an element only, or of all.
SELECT hymt_translate(ARRAY['1', '红色连衣裙', '男士外套'], 'zh', 'en', options => '{"max_tokens": 1}');
SELECT hymt_translate(ARRAY['1', '红色连衣裙', NULL, '男士外套'], 'zh', 'en', on_error => 'null', options => '{"max_tokens": 1}');
SELECT hymt_translate(ARRAY['1', '红色连衣裙', NULL, '男士外套'], 'zh', 'en', on_error => 'source',
	options => '{"max_tokens": 1}');

-- Many at a time, each as alone.
SELECT array_agg(word || ' ' || i) AS many FROM words, generate_series(1, 12) AS i \gset
SELECT count(*), bool_and(t = hymt_translate(word, 'zh', 'en')) AS same
FROM unnest(:'many'::text[], hymt_translate(:'many'::text[], 'zh', 'en')) AS r (word, t);

-- In PL/pgSQL arrays are kept in a form of their own.
DO $$
DECLARE
	texts text[] := ARRAY['红色连衣裙', '7'];
BEGIN
	texts[3] := '黑色皮鞋';
	texts := hymt_translate(texts, 'zh', 'en');
	IF texts IS DISTINCT FROM
		ARRAY[hymt_translate('红色连衣裙', 'zh', 'en'), '7', hymt_translate('黑色皮鞋', 'zh', 'en')] THEN
		RAISE EXCEPTION 'differs: %', texts;
	END IF;
END $$;

-- From a table, compressed.
CREATE TEMP TABLE stored AS SELECT array_agg(repeat('12345 ', 50) || i) AS numbers FROM generate_series(1, 1000) AS i;
SELECT hymt_translate(numbers, 'zh', 'en') = numbers AS same FROM stored;

-- Nothing is left in the queue.
SELECT slots_in_use, queue_bytes_in_use FROM hymt_status;
