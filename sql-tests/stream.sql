-- Translations in pieces, by the model that ships with hymt. How many pieces there are is a matter of time; together they
-- are what hymt_translate() gives.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS hymt;
\pset null '(null)'

SELECT string_agg(piece, '') FROM (SELECT hymt_translate_stream('Video game platform', 'en', 'es') AS piece) AS s;
SELECT string_agg(piece, '' ORDER BY n) FROM hymt_translate_stream('Stone type', 'en', 'ja') WITH ORDINALITY AS s(piece, n);
CREATE TABLE goods AS SELECT i AS id, t AS title FROM unnest(ARRAY['尿布更换垫罩子', '头发造型工具套装', '11.5（强碱性）', NULL,
	'42', '', '除雪机', '钥匙扣']) WITH ORDINALITY AS u(t, i);
SELECT id, string_agg(piece, '') AS pieces, bool_and(piece IS NOT DISTINCT FROM title) AS unchanged
FROM (SELECT id, title, hymt_translate_stream(title, 'zh', 'en') AS piece FROM goods) AS s GROUP BY id ORDER BY id;
SELECT count(*), bool_and(whole = pieces) FROM (
	SELECT hymt_translate(title, 'zh', 'en') AS whole,
		(SELECT string_agg(piece, '' ORDER BY n) FROM hymt_translate_stream(title, 'zh', 'en') WITH ORDINALITY AS s(piece, n)) AS pieces
	FROM goods WHERE title IS NOT NULL) AS both_ways;

-- One row for what the model is not asked for.
SELECT hymt_translate_stream('42', 'zh', 'en');
SELECT hymt_translate_stream('same', 'en', 'en-GB');
SELECT hymt_translate_stream(NULL, 'zh', 'en');
SELECT count(*) FROM hymt_translate_stream('', 'zh', 'en');

-- Several in one list, among other sets.
SELECT string_agg(a, '') AS a, string_agg(b, '') AS b, count(DISTINCT g)
FROM (SELECT hymt_translate_stream('Grip type', 'en', 'zh') AS a, hymt_translate_stream('Body fat percentage', 'en', 'de') AS b,
	generate_series(1, 50) AS g) AS s;
EXPLAIN (COSTS OFF) SELECT hymt_translate_stream(title, 'zh', 'en') FROM goods;
PREPARE p(text) AS SELECT string_agg(piece, '') FROM (SELECT hymt_translate_stream($1, 'en', 'zh') AS piece) AS s;
EXECUTE p('Grip type');
EXECUTE p('Canopy color');
DEALLOCATE p;

-- Context and sampling as ever.
SELECT string_agg(piece, '') = hymt_translate('Grip type', 'en', 'zh', 'Tennis rackets') AS same
FROM (SELECT hymt_translate_stream('Grip type', 'en', 'zh', 'Tennis rackets') AS piece) AS s;
SELECT string_agg(piece, '') = hymt_translate('Grip type', 'en', 'zh', options => '{"sampling": {"temperature": 1, "seed": 5}}') AS same
FROM (SELECT hymt_translate_stream('Grip type', 'en', 'zh', options => '{"sampling": {"temperature": 1, "seed": 5}, "priority": "bulk"}') AS piece) AS s;

-- Loops, cursors, exception blocks around single fetches, and a stream within the loop over another one.
DO $$
DECLARE
	c CURSOR FOR SELECT hymt_translate_stream('Video game platform', 'en', 'es');
	piece text;
	inner_piece text;
	whole text := '';
	inner_whole text;
BEGIN
	FOR piece IN SELECT hymt_translate_stream('Accessory size', 'en', 'fr') LOOP
		whole := whole || piece;
		inner_whole := '';
		FOR inner_piece IN SELECT hymt_translate_stream('Canopy color', 'en', 'zh') LOOP
			inner_whole := inner_whole || inner_piece;
		END LOOP;
		IF inner_whole <> hymt_translate('Canopy color', 'en', 'zh') THEN
			RAISE WARNING 'inner: %', inner_whole;
		END IF;
	END LOOP;
	RAISE WARNING '%', whole;
	whole := '';
	OPEN c;
	LOOP
		BEGIN
			FETCH c INTO piece;
			EXIT WHEN NOT FOUND;
			whole := whole || piece;
			PERFORM hymt_translate('Grip type', 'en', 'xx');
		EXCEPTION WHEN invalid_parameter_value THEN
			NULL;			-- the cursor was opened outside of what is undone
		END;
	END LOOP;
	CLOSE c;
	RAISE WARNING '%', whole;
END
$$;
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT hymt_translate_stream('Grip type', 'en', 'zh');
COMMIT;
DO $$
DECLARE
	c CONSTANT refcursor := 'c';
	piece text;
	whole text := '';
BEGIN
	FETCH c INTO piece;
	WHILE FOUND LOOP
		whole := whole || piece;
		FETCH c INTO piece;
	END LOOP;
	RAISE WARNING '%', whole;
END
$$;
CLOSE c;
SELECT count(*) FROM (SELECT hymt_translate_stream('Video game platform', 'en', 'es') LIMIT 1) AS s;
CREATE TABLE pieces AS SELECT hymt_translate_stream('Stone type', 'en', 'ja') AS piece;
SELECT string_agg(piece, '') FROM pieces;

-- Failures: before anything was given, and after. Who does not want errors gets a null at the end.
SELECT repeat('nail buffers ', 3000) AS long \gset
SELECT hymt_translate_stream('Grip type', 'en', 'km', on_error => 'null');
SELECT hymt_translate_stream('Grip type', 'en', 'km', on_error => 'source');
SELECT hymt_translate_stream(:'long', 'en', 'zh', on_error => 'null');
SELECT hymt_translate_stream('Body fat percentage', 'en', 'de', on_error => 'null', options => '{"max_tokens": 1}');
SELECT (array_agg(piece))[count(*)] AS last
FROM (SELECT hymt_translate_stream('Body fat percentage', 'en', 'de', on_error => 'null', options => '{"max_tokens": 2}') AS piece) AS s;
\set VERBOSITY sqlstate
SELECT hymt_translate_stream('Grip type', 'en', 'xx');
SELECT hymt_translate_stream('Grip type', 'en', NULL);
SELECT hymt_translate_stream('Grip type', 'auto', 'zh');
SELECT hymt_translate_stream('Grip type', 'en', 'km');
SELECT hymt_translate_stream(:'long', 'en', 'zh');
SELECT hymt_translate_stream(repeat('nail buffers ', 1000000), 'en', 'zh', on_error => 'null');
SELECT count(*) FROM hymt_translate_stream('Body fat percentage', 'en', 'de', options => '{"max_tokens": 2}');
\set VERBOSITY default
DROP TABLE goods, pieces;
