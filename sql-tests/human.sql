-- Translations by people: they win over the model, wherever a text is translated; who may set them, and how.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
SELECT current_database() AS main \gset
CREATE DATABASE regress_hymt_human TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C';
\c regress_hymt_human
SET client_min_messages = warning;
SET TimeZone = 'UTC';
CREATE SCHEMA translations;
CREATE EXTENSION hymt SCHEMA translations;
SET search_path = public, translations;

-- Nobody has set any.
SELECT hymt_translate('自行车', 'zh', 'en') AS machine \gset
SELECT hymt_unset_translation('自行车', 'zh', 'en');

SELECT hymt_set_translation('自行车', 'zh', 'en', 'Velocipede');
SELECT hymt_translate('自行车', 'zh', 'en');
SELECT translation, source_lang, status, failed_checks, finish_reason, cached, model, input_tokens, output_tokens
FROM hymt_translate_details('自行车', 'zh', 'en');
-- Other texts, languages and directions are others.
SELECT hymt_translate('自行车 ', 'zh', 'en') = 'Velocipede' AS blank, hymt_translate('自行车', 'zh', 'de') = 'Velocipede' AS language;
SELECT hymt_translate('Velocipede', 'en', 'zh') = '自行车' AS backwards;
-- Codes are those of hymt_languages(), however they are spelled.
SELECT hymt_translate('自行车', 'zh-CN', 'en_US');
SELECT hymt_set_translation('自行车', 'zh-Hans-CN', 'EN-gb', 'Push-bike');
SELECT hymt_translate('自行车', 'zh', 'en');
SELECT source_lang, target_lang, text, translation, set_by = current_user AS by_me, set_at <= clock_timestamp() AS before
FROM hymt_human_translations;
SELECT count(*) FROM hymt_human_translation;
-- Whatever else is asked of the model.
SELECT hymt_translate('自行车', 'zh', 'en', context => 'sports', on_error => 'null',
	options => '{"max_tokens": 1, "priority": "bulk", "sampling": {"temperature": 2}}');
-- Arguments are checked all the same.
\set VERBOSITY sqlstate
SELECT hymt_translate('自行车', 'zh', 'en', options => '{"adapter": "none"}');
SELECT hymt_translate('自行车', 'zh', 'en', format => 'html');
SELECT hymt_translate('自行车', 'auto', 'en');
\set VERBOSITY default

-- Also texts that the model is not asked for.
SELECT hymt_set_translation('42', 'zh', 'en', 'forty-two'), hymt_set_translation('', 'zh', 'en', '(none)'),
	hymt_set_translation('colour', 'en-GB', 'en-US', 'color'), hymt_set_translation('没有', 'zh', 'en', '');
SELECT hymt_translate('42', 'zh', 'en'), hymt_translate('', 'zh', 'en'), hymt_translate('colour', 'en', 'en'),
	hymt_translate('没有', 'zh', 'en') = '' AS empty, hymt_translate(NULL, 'zh', 'en') IS NULL AS null;

-- Arrays.
SELECT hymt_translate('[3:6]={自行车,NULL,42,自行车}'::text[], 'zh', 'en');
SELECT hymt_translate(ARRAY['自行车', '43'], 'zh', 'de') = ARRAY[hymt_translate('自行车', 'zh', 'de'), '43'] AS machine;
SELECT (hymt_translate(ARRAY['自行车', '汽车', '43', '42'], 'zh', 'en'))[i] = ANY (ARRAY['Push-bike', '43', 'forty-two'])
FROM generate_series(1, 4) AS i;

-- Long texts.
SELECT hymt_set_translation(repeat('自行车', 100000), 'zh', 'en', repeat('bicycle ', 100000));
SELECT length(hymt_translate(repeat('自行车', 100000), 'zh', 'en'));
SELECT hymt_unset_translation(repeat('自行车', 100000), 'zh', 'en'), hymt_unset_translation(repeat('自行车', 100000), 'zh', 'en');

-- Rows that are read ahead: what a person has translated is not asked for.
CREATE TABLE products (id int PRIMARY KEY, title text, title_en text);
INSERT INTO products SELECT i, CASE WHEN i % 2 = 0 THEN '自行车' ELSE (1000 + i) || '号' END FROM generate_series(1, 40) AS i;
SELECT hymt_set_translation('1001号', 'zh', 'en', 'No. 1');
CREATE FUNCTION texts_asked(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		IF line LIKE '%Texts Asked%' THEN
			RETURN trim(line);
		END IF;
	END LOOP;
	RETURN 'nothing is read ahead';
END $$;
SET hymt.read_ahead = on;
SELECT texts_asked($$UPDATE products SET title_en = hymt_translate(title, 'zh', 'en')$$);
RESET hymt.read_ahead;
SELECT title_en, count(*) FROM products WHERE title_en IN ('Push-bike', 'No. 1') GROUP BY 1 ORDER BY 1;

-- The trigger.
CREATE TRIGGER translate_title BEFORE INSERT OR UPDATE ON products FOR EACH ROW
	EXECUTE FUNCTION hymt_translate_trigger('title', 'title_en', 'zh', 'en');
INSERT INTO products VALUES (100, '自行车') RETURNING title_en;
UPDATE products SET title = '42' WHERE id = 100 RETURNING title_en;

-- Transactions. A statement sees what was set before it began.
BEGIN;
SELECT hymt_set_translation('自行车', 'zh', 'en', 'Bike'), hymt_translate('自行车', 'zh', 'en');
SELECT hymt_translate('自行车', 'zh', 'en');
SAVEPOINT s;
SELECT hymt_unset_translation('自行车', 'zh', 'en');
SELECT hymt_translate('自行车', 'zh', 'en') = :'machine' AS machine;
ROLLBACK TO s;
SELECT hymt_translate('自行车', 'zh', 'en');
ROLLBACK;
SELECT hymt_translate('自行车', 'zh', 'en');
BEGIN READ ONLY;
SELECT hymt_translate('自行车', 'zh', 'en');
SELECT hymt_set_translation('自行车', 'zh', 'en', 'Bike');
ROLLBACK;
BEGIN READ ONLY;
SELECT hymt_unset_translation('自行车', 'zh', 'en');
ROLLBACK;
-- One statement, several times the same text.
SELECT count(hymt_set_translation('自行车', 'zh', 'en', 'Bike ' || i)) FROM generate_series(1, 3) AS i;
SELECT hymt_translate('自行车', 'zh', 'en'), count(*) FROM hymt_human_translation WHERE text = '自行车' GROUP BY 1;

-- Wrong arguments.
SELECT hymt_set_translation(NULL, 'zh', 'en', 'a');
SELECT hymt_set_translation('a', NULL, 'en', 'a');
SELECT hymt_set_translation('a', 'zh', NULL, 'a');
SELECT hymt_set_translation('a', 'zh', 'en', NULL);
SELECT hymt_unset_translation(NULL, 'zh', 'en');
\set VERBOSITY terse
SELECT hymt_set_translation('a', 'auto', 'en', 'a');
SELECT hymt_set_translation('a', 'zh', 'xx', 'a');
SELECT hymt_unset_translation('a', 'xx', 'en');

-- The view: out and in again.
\set VERBOSITY default
SELECT source_lang, target_lang, text, translation FROM hymt_human_translations ORDER BY source_lang, target_lang, text;
COPY (SELECT source_lang, target_lang, text, translation FROM hymt_human_translations ORDER BY text) TO STDOUT;
COPY hymt_human_translations (source_lang, target_lang, text, translation) FROM STDIN;
zh-CN	en-US	自行车	Bicycle, by hand
zh	en	汽车	Car, by hand
zh	en	汽车	Motor-car
\.
SELECT hymt_translate(ARRAY['自行车', '汽车'], 'zh', 'en');
-- All or nothing, and the row is named.
COPY hymt_human_translations (source_lang, target_lang, text, translation) FROM STDIN;
zh	en	汽车	Lorry
zh	xx	汽车	Lorry
\.
COPY hymt_human_translations (source_lang, target_lang, text, translation) FROM STDIN;
zh	en	汽车	Lorry
zh	en	\N	Lorry
\.
COPY hymt_human_translations (source_lang, target_lang, text, translation) FROM STDIN;
zh	en	汽车	\N
\.
SELECT hymt_translate('汽车', 'zh', 'en');
-- Who and when is recorded, whatever is given.
INSERT INTO hymt_human_translations VALUES ('zh', 'en', '汽车', 'Van', 'nobody', '1970-01-01');
SELECT translation, set_by = current_user AS by_me, set_at > '2000-01-01' AS now FROM hymt_human_translations WHERE text = '汽车';
UPDATE hymt_human_translations SET translation = upper(translation), source_lang = 'zh-SG' WHERE text IN ('汽车', '自行车');
SELECT hymt_translate(ARRAY['自行车', '汽车'], 'zh', 'en');
UPDATE hymt_human_translations SET text = '卡车' WHERE text = '汽车';
SELECT hymt_translate('卡车', 'zh', 'en'), hymt_translate('汽车', 'zh', 'en') = 'VAN' AS moved;
DELETE FROM hymt_human_translations WHERE text = '卡车';
SELECT hymt_translate('卡车', 'zh', 'en') = 'VAN' AS deleted;
INSERT INTO hymt_human_translations SELECT 'zh', 'en', i || '辆', i || ' pieces' FROM generate_series(1, 2000) AS i;
SELECT count(*) FROM generate_series(1, 2000) AS i WHERE hymt_translate(i || '辆', 'zh', 'en') <> i || ' pieces';
DELETE FROM hymt_human_translations WHERE translation LIKE '% pieces';

-- Several rows for one text, as replication brings them: the newest counts, of equally old ones the larger id.
INSERT INTO hymt_human_translation VALUES
	('00000000-0000-0000-0000-000000000001', 'zh', 'en', '剪刀', 'old', 'a', '2001-01-01'),
	('00000000-0000-0000-0000-000000000002', 'zh', 'en', '剪刀', 'new', 'b', '2003-01-01'),
	('00000000-0000-0000-0000-000000000004', 'zh', 'en', '剪刀', 'last', 'c', '2003-01-01'),
	('00000000-0000-0000-0000-000000000003', 'zh', 'en', '剪刀', 'former', 'd', '2003-01-01');
SELECT hymt_translate('剪刀', 'zh', 'en');
SELECT translation, set_by FROM hymt_human_translations WHERE text = '剪刀';
SELECT hymt_unset_translation('剪刀', 'zh', 'en');
SELECT count(*) FROM hymt_human_translation WHERE text = '剪刀';

-- Without its index, slower.
BEGIN;
DROP INDEX hymt_human_translation_key;
SELECT hymt_translate('自行车', 'zh', 'en'), hymt_set_translation('自行车', 'zh', 'en', 'Bike');
SELECT hymt_translate('自行车', 'zh', 'en');
ROLLBACK;
SELECT hymt_translate('自行车', 'zh', 'en');
REINDEX TABLE CONCURRENTLY hymt_human_translation;
SELECT hymt_translate('自行车', 'zh', 'en');

-- Who may. Nobody at first.
CREATE ROLE regress_hymt_reader;
CREATE ROLE regress_hymt_editor;
GRANT USAGE ON SCHEMA translations TO regress_hymt_reader, regress_hymt_editor;
GRANT EXECUTE ON FUNCTION hymt_translate(text, text, text, text, text, text, text, jsonb) TO regress_hymt_reader, regress_hymt_editor;
\set VERBOSITY terse
SET ROLE regress_hymt_reader;
SELECT hymt_translate('自行车', 'zh', 'en');
SELECT hymt_set_translation('自行车', 'zh', 'en', 'Bike');
SELECT hymt_unset_translation('自行车', 'zh', 'en');
SELECT count(*) FROM hymt_human_translation;
SELECT count(*) FROM hymt_human_translations;
INSERT INTO hymt_human_translations VALUES ('zh', 'en', '自行车', 'Bike');
CREATE VIEW pg_temp.mine AS SELECT 'zh' AS source_lang, 'en' AS target_lang, 'a' AS text, 'b' AS translation;
CREATE TRIGGER mine INSTEAD OF INSERT ON pg_temp.mine FOR EACH ROW EXECUTE FUNCTION hymt_human_trigger();
DROP VIEW pg_temp.mine;
RESET ROLE;
GRANT EXECUTE ON FUNCTION hymt_set_translation(text, text, text, text) TO regress_hymt_editor;
SET ROLE regress_hymt_editor;
SELECT hymt_set_translation('自行车', 'zh', 'en', 'Bike');
SELECT hymt_translate('自行车', 'zh', 'en');
SELECT hymt_unset_translation('自行车', 'zh', 'en');
DELETE FROM hymt_human_translations;
RESET ROLE;
SELECT translation, set_by FROM hymt_human_translations WHERE text = '自行车';
GRANT SELECT, INSERT ON hymt_human_translations TO regress_hymt_editor;
SET ROLE regress_hymt_editor;
COPY hymt_human_translations (source_lang, target_lang, text, translation) FROM STDIN;
zh	en	自行车	Cycle
\.
SELECT translation, set_by FROM hymt_human_translations WHERE text = '自行车';
UPDATE hymt_human_translations SET translation = 'none';
SELECT count(*) FROM hymt_human_translation;
RESET ROLE;

-- What a caller prepares in other schemas is not looked at.
CREATE SCHEMA trap AUTHORIZATION regress_hymt_editor;
SET ROLE regress_hymt_editor;
CREATE FUNCTION trap.sprung() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'sprung by %', current_user; END $$;
CREATE FUNCTION trap.equal(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'sprung by %', current_user; END $$;
CREATE FUNCTION trap.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT trap.sprung()::timestamptz $$;
CREATE FUNCTION trap.hashtextextended(text, int) RETURNS bigint LANGUAGE sql AS $$ SELECT trap.sprung()::bigint $$;
CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.equal);
CREATE TEMP TABLE hymt_human_translation (id uuid DEFAULT gen_random_uuid(), source_lang text, target_lang text, text text,
	translation text, set_by text, set_at timestamptz);
SET search_path = trap, pg_temp, pg_catalog, translations;
SELECT hymt_set_translation('自行车', 'zh', 'en', 'Safe');
SELECT hymt_translate('自行车', 'zh', 'en');
SELECT count(*) FROM pg_temp.hymt_human_translation;
RESET search_path;
DROP TABLE pg_temp.hymt_human_translation;
RESET ROLE;
SET search_path = public, translations;
DROP OWNED BY regress_hymt_editor;

-- What the table's owner puts on it runs as the owner, not as whoever sets translations, and must not outlive the call.
CREATE ROLE regress_hymt_owner;
GRANT ALL ON SCHEMA translations TO regress_hymt_owner;
ALTER TABLE hymt_human_translation OWNER TO regress_hymt_owner;
SET ROLE regress_hymt_owner;
CREATE FUNCTION translations.spy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.translation := NEW.translation || ', seen by ' || current_user || ', ' || current_setting('search_path');
	RETURN NEW;
END $$;
CREATE TRIGGER spy BEFORE INSERT ON hymt_human_translation FOR EACH ROW EXECUTE FUNCTION translations.spy();
RESET ROLE;
SELECT hymt_set_translation('自行车', 'zh', 'en', 'Bike');
SELECT hymt_translate('自行车', 'zh', 'en'), current_user = session_user AS back, current_setting('search_path');
SET ROLE regress_hymt_owner;
DROP TRIGGER spy ON hymt_human_translation;
CREATE CONSTRAINT TRIGGER spy AFTER INSERT ON hymt_human_translation DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION translations.spy();
RESET ROLE;
SELECT hymt_set_translation('自行车', 'zh', 'en', 'Bike');
SELECT current_user = session_user AS back, current_setting('search_path'), current_setting('enable_seqscan');
DROP TRIGGER spy ON hymt_human_translation;
DROP FUNCTION translations.spy();
SELECT hymt_set_translation('自行车', 'zh', 'en', 'Bike');
\set VERBOSITY default

-- The schema is renamed, the extension dropped and made again elsewhere, all in one session.
ALTER SCHEMA translations RENAME TO "other Schema";
SET search_path = public, "other Schema";
SELECT hymt_translate('自行车', 'zh', 'en');
SELECT hymt_set_translation('自行车', 'zh', 'en', 'Bike 2');
SELECT hymt_translate('自行车', 'zh', 'en');
DROP TABLE products;
BEGIN;
DROP EXTENSION hymt;
CREATE EXTENSION hymt SCHEMA public;
SELECT hymt_translate('42', 'zh', 'en');
SELECT hymt_set_translation('42', 'zh', 'en', 'forty-three');
SELECT hymt_translate('42', 'zh', 'en');
ROLLBACK;
SELECT hymt_translate(ARRAY['42', '自行车'], 'zh', 'en');
DROP EXTENSION hymt;
-- A table of that name that somebody else made is not the extension's.
CREATE TABLE hymt_human_translation (text text, translation text);
CREATE EXTENSION hymt SCHEMA "other Schema" VERSION '0.1.0';
SELECT hymt_translate('42', 'zh', 'en');
SELECT hymt_set_translation('42', 'zh', 'en', 'forty-two');
ALTER EXTENSION hymt UPDATE;
SELECT hymt_translate('42', 'zh', 'en');
SELECT hymt_set_translation('42', 'zh', 'en', 'forty-two');
SELECT hymt_translate('42', 'zh', 'en');
SELECT * FROM public.hymt_human_translation;
-- Altered by somebody who must know.
ALTER TABLE "other Schema".hymt_human_translation ADD COLUMN note text;
SELECT hymt_translate('42', 'zh', 'en');
ALTER EXTENSION hymt DROP VIEW hymt_human_translations;
DROP VIEW hymt_human_translations;
ALTER TABLE "other Schema".hymt_human_translation ALTER COLUMN text TYPE varchar;
SELECT hymt_translate('42', 'zh', 'en');
SELECT hymt_set_translation('42', 'zh', 'en', 'forty-two');
\c :main
DROP DATABASE regress_hymt_human;
DROP ROLE regress_hymt_reader;
DROP ROLE regress_hymt_editor;
DROP ROLE regress_hymt_owner;
