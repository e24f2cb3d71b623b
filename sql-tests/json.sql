-- hymt_translate_json(): paths, what is translated and what is not, failures, and names of places.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS hymt;
\set VERBOSITY sqlstate
\pset null '(null)'

-- What became of a document: paths of the strings that differ, as #> takes them. All else has to be as it was.
CREATE FUNCTION leaves(document jsonb) RETURNS TABLE (place text[], leaf jsonb) LANGUAGE sql AS $$
	WITH RECURSIVE inside(place, leaf) AS (
		SELECT '{}'::text[], document
		UNION ALL
		SELECT place || step, below FROM inside, LATERAL (
			SELECT key AS step, value AS below
				FROM jsonb_each(CASE WHEN jsonb_typeof(leaf) = 'object' THEN leaf END)
			UNION ALL
			SELECT (position - 1)::text, value
				FROM jsonb_array_elements(CASE WHEN jsonb_typeof(leaf) = 'array' THEN leaf END) WITH ORDINALITY AS e (value, position)
		) AS s
	)
	SELECT place, leaf FROM inside WHERE jsonb_typeof(leaf) NOT IN ('object', 'array') OR leaf IN ('{}', '[]')
$$;
CREATE FUNCTION translated(document jsonb, VARIADIC paths text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result jsonb := hymt_translate_json(document, 'zh', 'en', paths);
	differing text;
	faults bigint;
BEGIN
	IF jsonb_typeof(result) <> jsonb_typeof(document) OR (SELECT count(*) FROM leaves(document)) <> (SELECT count(*) FROM leaves(result)) THEN
		RAISE EXCEPTION 'not the same places: %', result;
	END IF;
	SELECT string_agg(place::text, ' ' ORDER BY place COLLATE "C"),
		count(*) FILTER (WHERE jsonb_typeof(d.leaf) <> 'string' OR r.leaf <> to_jsonb(hymt_translate(d.leaf #>> '{}', 'zh', 'en')))
		INTO differing, faults
		FROM leaves(document) AS d FULL JOIN leaves(result) AS r USING (place) WHERE d.leaf::text IS DISTINCT FROM r.leaf::text;
	IF faults > 0 THEN
		RAISE EXCEPTION 'not the translation: %', result;
	END IF;
	RETURN differing;
END $$;

CREATE TEMP TABLE goods (document jsonb);
INSERT INTO goods VALUES ('{
	"sku": "A-1", "title": "红色连衣裙", "price": 12.50, "sold": true, "note": null,
	"variants": [
		{"name": "黑色皮鞋", "size": 7, "colors": ["黑色", "红色"]},
		{"name": "男士外套", "stock": {"name": "蓝色背包", "0": "棉质衬衫"}},
		"红色"
	],
	"0": "黑色背包", "a.b": "蓝色", "*": "白色", "q\"\\": "绿色", "": "男士", "标题": {"名": "女士"}
}');

-- Keys, elements, stars.
SELECT translated(document, 'title') FROM goods;
SELECT translated(document, 'title', 'variants.*.name') FROM goods;
SELECT translated(document, 'variants.0.name') FROM goods;
SELECT translated(document, 'variants.-1') FROM goods;
SELECT translated(document, 'variants.-3.name', 'variants.-4', 'variants.3', 'variants.99999999999999999999.name') FROM goods;
SELECT translated(document, 'variants.00.colors.-02') FROM goods;
SELECT translated(document, 'variants.*.*') FROM goods;
SELECT translated(document, '*.*.name') FROM goods;
SELECT translated(document, '0', 'variants.1.stock.0') FROM goods;
SELECT translated(document, '标题.名') FROM goods;
SELECT translated(document, '标题.*') FROM goods;
-- All that is below.
SELECT translated(document, 'variants') FROM goods;
SELECT translated(document, 'variants.1', 'variants.0.colors') FROM goods;
SELECT translated(document, '') FROM goods;
SELECT translated(document, '*') = translated(document, '') AS same FROM goods;
-- Quotes.
SELECT translated(document, '"a.b"') FROM goods;
SELECT translated(document, '"*"') FROM goods;
SELECT translated(document, '"q\"\\"') FROM goods;
SELECT translated(document, '""') FROM goods;
SELECT translated(document, '"title"', '"variants"."0"."name"', 'variants."*".name', 'a.b') FROM goods;
SELECT translated(document, '"0"', 'variants.1."stock"."0"') FROM goods;
-- Nowhere: such paths change nothing.
SELECT translated(document, 'Title', 'title.x', 'title.*', 'title.0', 'price', 'price.0', 'sold', 'note', 'variants.x',
	'variants.name', 'nothing.*', ' title', 'sku') FROM goods;
-- Overlapping ones.
SELECT translated(document, 'title', 'title', '"title"', 'variants.0.name', 'variants.*.name', 'variants.0', '*.0.name')
FROM goods;

-- Documents that are no objects.
SELECT translated('["红色", ["黑色", {"a": "蓝色"}], []]', '0', '1.*', '2.*');
SELECT translated('["红色", ["黑色", {"a": "蓝色"}]]', '*.1.a', '-1.0');
SELECT hymt_translate_json('"红色"', 'zh', 'en', '{""}') = to_jsonb(hymt_translate('红色', 'zh', 'en')) AS same;
SELECT hymt_translate_json('"红色"', 'zh', 'en', '{0,-1,*,"\"\""}');
SELECT hymt_translate_json(document, 'zh', 'en', '{""}')
FROM unnest('{1.500,"null",true,"[]","{}","\"\"","\"1\"","[[],{}]"}'::jsonb[]) AS document;

-- All else stays exactly as it is.
SELECT hymt_translate_json('{"bb": 1.10, "a": "红色", "ccc": [1e3, -0.0, 12345678901234567890.123456789, {}], "d": {"x": []}}',
	'zh', 'en', '{a}') - 'a';
SELECT hymt_translate_json('{"bb": 1.10, "a": "红色", "ccc": [1e3, -0.0, 12345678901234567890.123456789, {}], "d": {"x": []}}',
	'zh', 'en', '{a}')::text = replace('{"a": "红色", "d": {"x": []}, "bb": 1.10, "ccc": [1000, 0.0, 12345678901234567890.123456789, {}]}',
	'红色', hymt_translate('红色', 'zh', 'en')) AS same;
SELECT hymt_translate_json('{"a": ["SKU-1042", "", " ", "42", "https://example.com", "红色"]}', 'zh', 'en', '{a}') #- '{a,5}';
SELECT translated('["", "红色", "", "", {"": "", "a": "", "b": "黑色", "c": ""}, 1, "", "红色", ""]', '');

-- Nothing to do.
SELECT hymt_translate_json(document, 'zh', 'en', '{}') = document AS same FROM goods;
SELECT hymt_translate_json(document, 'zh', 'zh', '{""}') = document AS same FROM goods;
SELECT hymt_translate_json(NULL, 'no such language', NULL, NULL), hymt_translate_json(NULL, 'zh', 'en', '{{a}}');

-- Wrong arguments.
SELECT hymt_translate_json('{}', 'zh', 'en', NULL);
SELECT hymt_translate_json('{}', 'zh', 'en', ARRAY['a', NULL]);
SELECT hymt_translate_json('{}', 'zh', 'en', '{{a},{b}}');
SELECT hymt_translate_json('{}', 'zh', 'no such language', '{}');
SELECT hymt_translate_json('{}', 'zh', NULL, '{}');
SELECT hymt_translate_json('{}', 'auto', 'en', '{}');
SELECT hymt_translate_json('{}', 'zh', 'en', '{}', glossary => 'g');
SELECT hymt_translate_json('{}', 'zh', 'en', '{}', format => 'html');
SELECT hymt_translate_json('{}', 'zh', 'en', '{}', format => 'words');
SELECT hymt_translate_json('{}', 'zh', 'en', '{}', on_error => 'ignore');
SELECT hymt_translate_json('{}', 'zh', 'en', '{}', on_error => NULL);
SELECT hymt_translate_json('{}', 'zh', 'en', '{}', options => '{"max": 1}');

-- Malformed paths: which, where and how.
\set VERBOSITY default
SELECT hymt_translate_json('{}', 'zh', 'en', ARRAY['title', 'a..b']);
SELECT hymt_translate_json('{}', 'zh', 'en', '{.a}');
SELECT hymt_translate_json('{}', 'zh', 'en', '{标题.}');
SELECT hymt_translate_json('{}', 'zh', 'en', '{.}');
\set VERBOSITY terse
SELECT path, hymt_translate_json('{}', 'zh', 'en', ARRAY[path]) FROM (VALUES ('a*')) AS v (path);
\set VERBOSITY sqlstate
CREATE FUNCTION fault(path text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text;
	detail text;
BEGIN
	PERFORM hymt_translate_json('{}', 'zh', 'en', ARRAY[path]);
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, detail = PG_EXCEPTION_DETAIL;
	RETURN state || ' ' || detail;
END $$;
SELECT path, fault(path) FROM unnest(ARRAY['a*', '*a', '**', 'a.b*.c', '键*', 'a"b', 'a\b', '"', '"a', 'a."b', '标."b\', '"b\"', '"a"b',
	'"a""b"', '"a"*', '"a".', '"\n"', '"a\', '..', '""', '"a"."b"', ' . ', '-', '-1', 'a b', '$[0]', E'a\nb']) AS path;

-- Failures: of a string only, or of all.
SELECT hymt_translate_json('{"a": "红色连衣裙", "b": ["男士外套", "1"]}', 'zh', 'en', '{a,b}', options => '{"max_tokens": 1}');
SELECT hymt_translate_json('{"a": "红色连衣裙", "b": ["男士外套", "1", 2]}', 'zh', 'en', '{a,b}', on_error => 'null',
	options => '{"max_tokens": 1}');
SELECT hymt_translate_json('{"a": "红色连衣裙", "b": ["男士外套", "1", 2]}', 'zh', 'en', '{a,b}', on_error => 'source',
	options => '{"max_tokens": 1}');
SELECT hymt_translate_json('"红色连衣裙"', 'zh', 'en', '{""}', on_error => 'null', options => '{"max_tokens": 1}');

-- An error names the place, as a path that leads to it, and not the text.
CREATE FUNCTION failing(document jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	context text;
BEGIN
	PERFORM hymt_translate_json(document, 'zh', 'en', '{""}', options => '{"max_tokens": 1}');
EXCEPTION WHEN SQLSTATE 'MT004' THEN
	GET STACKED DIAGNOSTICS context = PG_EXCEPTION_CONTEXT;
	RETURN split_part(context, E'\n', 1);
END $$;
SELECT failing('{"a": [1, {"b c": ["x1", "红色连衣裙"]}]}');
SELECT failing('["1", [], {}, {"2": [["红色连衣裙"]]}]');
SELECT failing('{"a.b": {"": {"*": {"\"\\": {"-5": {"键": "红色连衣裙"}}}}}}');
SELECT failing(jsonb_build_object(repeat('键', 30), '红色连衣裙'));
SELECT failing('"红色连衣裙"');

-- Documents from a table, compressed.
CREATE TEMP TABLE stored AS
	SELECT jsonb_build_object('codes', jsonb_agg('SKU-' || i), 'name', '红色') AS document FROM generate_series(1, 2000) AS i;
SELECT hymt_translate_json(document, 'zh', 'en', '{name,codes}') =
	jsonb_set(document, '{name}', to_jsonb(hymt_translate('红色', 'zh', 'en'))) AS same,
	hymt_translate_json(document, 'zh', 'en', '{codes}') = document AS unchanged FROM stored;

-- Deep ones, and wide ones.
SELECT hymt_translate_json((repeat('[', 500) || '"红色"' || repeat(']', 500))::jsonb, 'zh', 'en',
	ARRAY[repeat('0.', 499) || '-1']) = (repeat('[', 500) || to_jsonb(hymt_translate('红色', 'zh', 'en')) || repeat(']', 500))::jsonb AS same;
SELECT hymt_translate_json((repeat('{"a":', 500) || '"红色"' || repeat('}', 500))::jsonb, 'zh', 'en', '{a.*.a}') =
	(repeat('{"a":', 500) || to_jsonb(hymt_translate('红色', 'zh', 'en')) || repeat('}', 500))::jsonb AS same;
SELECT count(*), bool_and(t.value #>> '{name}' = hymt_translate(w.value #>> '{name}', 'zh', 'en')), bool_and(t.value - 'name' = w.value - 'name')
FROM (SELECT jsonb_object_agg('k' || i, jsonb_build_object('name', '红色 ' || i % 20, 'other', '黑色')) AS document
		FROM generate_series(1, 2000) AS i) AS d,
	jsonb_each(document) AS w JOIN LATERAL jsonb_each(hymt_translate_json(document, 'zh', 'en', '{*.name}')) AS t USING (key)
WHERE w.key < 'k12';

-- Paths of several rows, in a prepared statement, and in PL/pgSQL.
SELECT path, hymt_translate_json('{"a": "红色", "b": "红色"}', 'zh', 'en', ARRAY[path]) ->> 'a' = '红色' AS a_stays FROM unnest('{a,b,c}'::text[]) AS path;
PREPARE q(text[]) AS SELECT hymt_translate_json('{"a": "红色", "b": "1"}', 'zh', 'en', $1) ->> 'a' = '红色' AS a_stays;
EXECUTE q('{a}');
EXECUTE q('{b}');
-- Paths may be of type varchar.
SELECT hymt_translate_json('{"a": "红色"}', 'zh', 'en', ARRAY['a']::varchar[]) ->> 'a' = '红色' AS a_stays;

-- Nothing is left in the queue.
SELECT slots_in_use, queue_bytes_in_use FROM hymt_status;
DROP FUNCTION leaves, translated, fault, failing;
