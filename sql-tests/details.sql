-- hymt_translate_details(): every column in every case, and forms that expand the composite.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS hymt;
\pset null '(null)'

\d hymt_translation

CREATE TEMP TABLE cases (id int, title text, src text DEFAULT 'en', on_error text DEFAULT 'null', options jsonb);
INSERT INTO cases (id, title, src, on_error, options) VALUES
	(1, 'Grip type', 'en-US', 'error', NULL),
	(2, '42', 'en', 'error', NULL),
	(3, '', 'en', 'error', NULL),
	(4, 'Grip type', 'zh', 'error', NULL),
	(5, 'Body fat percentage', 'en', 'null', '{"max_tokens": 1}'),
	(6, 'Body fat percentage', 'en', 'source', '{"max_tokens": 1}'),
	(7, repeat('nail buffers ', 3000), 'en', 'null', NULL),
	(8, 'Grip type', 'km', 'null', NULL),
	(9, NULL, 'en', 'error', NULL);

-- The columns that say how it came about.
SELECT c.id, left(d.translation, 20) AS translation, d.source_lang, d.status, d.failed_checks, d.finish_reason, d.cached, d.model
FROM cases AS c, LATERAL hymt_translate_details(c.title, c.src, 'zh', on_error => c.on_error, options => c.options) AS d ORDER BY id;
-- The numbers: those of the model for what it translated, else 0, and never null.
SELECT c.id, d.input_tokens > 0 AS input, d.output_tokens > 0 AS output, d.milliseconds >= 0 AS time
FROM cases AS c, LATERAL hymt_translate_details(c.title, c.src, 'zh', on_error => c.on_error, options => c.options) AS d ORDER BY id;

-- The translation is that of hymt_translate(); a null text gives a null, not a row of nulls.
SELECT (hymt_translate_details('Grip type', 'en', 'zh')).translation = hymt_translate('Grip type', 'en', 'zh') AS same;
SELECT hymt_translate_details(NULL, 'no such language', NULL), hymt_translate_details(NULL, 'en', 'zh') IS NULL AS is_null;

-- Expanded once for each row, in a subquery and by LATERAL; and stored as a composite.
CREATE TEMP TABLE subquery AS SELECT id, (d).* FROM
	(SELECT id, hymt_translate_details(title, src, 'zh', on_error => on_error, options => options) AS d FROM cases OFFSET 0) AS s;
CREATE TEMP TABLE lateral_form AS SELECT c.id, d.*
	FROM cases AS c, LATERAL hymt_translate_details(c.title, c.src, 'zh', on_error => c.on_error, options => c.options) AS d;
ALTER TABLE subquery DROP COLUMN milliseconds;
ALTER TABLE lateral_form DROP COLUMN milliseconds;
SELECT count(*), count(*) FILTER (WHERE s IS NOT DISTINCT FROM l) AS same FROM subquery AS s JOIN lateral_form AS l USING (id);
CREATE TEMP TABLE stored (id int, d hymt_translation);
INSERT INTO stored SELECT id, hymt_translate_details(title, src, 'zh', on_error => on_error, options => options) FROM cases;
SELECT (d).status, count(*) FROM stored GROUP BY 1 ORDER BY 1;
SELECT to_jsonb(d) - 'milliseconds' AS document FROM stored WHERE id IN (2, 5, 9) ORDER BY id;
