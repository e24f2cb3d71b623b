-- hymt_translate_trigger().
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
-- What is tested here is not the cache: each text is to come from the engine.
SET hymt.cache = off;
CREATE EXTENSION IF NOT EXISTS hymt;
\pset null '(null)'

CREATE TABLE products (id int PRIMARY KEY, title text, title_en text, price numeric);
CREATE TRIGGER translate BEFORE INSERT OR UPDATE ON products
	FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('title', 'title_en', 'zh', 'en');

-- INSERT: translated; null; by hand; nothing to translate.
INSERT INTO products (id, title, title_en) VALUES
	(1, '尿布更换垫罩子', NULL), (2, NULL, NULL), (3, '尿布更换垫罩子', 'by hand'), (4, 'AB-12', NULL), (5, NULL, 'by hand');
SELECT id, title, title_en FROM products ORDER BY id;

-- UPDATE: another column; the source to itself; the source to something else.
UPDATE products SET price = 1;
SELECT id, title, title_en FROM products ORDER BY id;
UPDATE products SET title = title;
SELECT id, title, title_en FROM products ORDER BY id;
UPDATE products SET title = '头发造型工具套装' WHERE id IN (1, 2, 3);
SELECT id, title, title_en FROM products ORDER BY id;
-- Source and target together: by hand. The target alone: by hand, and stays so.
UPDATE products SET title = '除雪机', title_en = 'snow blower' WHERE id = 1;
UPDATE products SET title_en = 'corrected' WHERE id = 2;
UPDATE products SET price = 2;
SELECT id, title, title_en FROM products ORDER BY id;
-- To null and back.
UPDATE products SET title = NULL WHERE id IN (1, 2);
SELECT id, title, title_en FROM products ORDER BY id;
UPDATE products SET title = '尿布更换垫罩子' WHERE id = 1;
SELECT id, title, title_en FROM products ORDER BY id;
-- ON CONFLICT.
INSERT INTO products VALUES (1, '头发造型工具套装') ON CONFLICT (id) DO UPDATE SET title = excluded.title;
SELECT id, title, title_en FROM products WHERE id = 1;

-- The model is not asked for what did not change.
CREATE TABLE counted (requests bigint);
INSERT INTO counted SELECT requests FROM hymt_status;
UPDATE products SET price = 3, title = title;
UPDATE products SET title_en = 'by hand', title = title || ' ' WHERE title IS NOT NULL;
SELECT s.requests - c.requests AS asked FROM hymt_status s, counted c;
UPDATE products SET title = '除雪机' WHERE id = 3;
SELECT s.requests - c.requests AS asked FROM hymt_status s, counted c;
DROP TABLE counted, products;

-- on_error.
SELECT repeat('nail buffers ', 3000) AS long \gset
CREATE TABLE notes (t text, e text, n text, s text);
CREATE TRIGGER n BEFORE INSERT ON notes
	FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('t', 'n', 'en', 'zh', 'null');
CREATE TRIGGER s BEFORE INSERT ON notes
	FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('t', 's', 'en', 'zh', 'source');
INSERT INTO notes (t) VALUES (:'long');
SELECT n IS NULL AS n, s = t AS s FROM notes;
CREATE TRIGGER e BEFORE INSERT ON notes
	FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('t', 'e', 'en', 'zh');
\set VERBOSITY sqlstate
INSERT INTO notes (t) VALUES (:'long');
INSERT INTO notes (t) VALUES ('Grip type');
SELECT count(*), min(e), min(n), min(s) FROM notes WHERE t = 'Grip type';
DROP TABLE notes;

-- Types: of text kind, with their usual limits and checks.
CREATE DOMAIN short_text AS varchar(12) CHECK (VALUE <> 'Blanc');
CREATE TABLE kinds (c char(12), v varchar(12), d short_text, n name, i int, b bytea);
CREATE TRIGGER t BEFORE INSERT ON kinds FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('c', 'v', 'en', 'fr');
INSERT INTO kinds (c) VALUES ('White');
INSERT INTO kinds (c) VALUES ('Home cinema');
INSERT INTO kinds (c) VALUES ('Front Seats');
SELECT c, v FROM kinds;
DROP TRIGGER t ON kinds;
CREATE TRIGGER t BEFORE INSERT ON kinds FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('v', 'd', 'en', 'fr');
INSERT INTO kinds (v) VALUES ('White');
INSERT INTO kinds (v) VALUES ('Home cinema');
DROP TRIGGER t ON kinds;
CREATE TRIGGER t BEFORE INSERT ON kinds FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('i', 'v', 'en', 'fr');
INSERT INTO kinds (i) VALUES (1);
DROP TRIGGER t ON kinds;
CREATE TRIGGER t BEFORE INSERT ON kinds FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('v', 'b', 'en', 'fr');
INSERT INTO kinds (v) VALUES ('White');
DROP TRIGGER t ON kinds;
-- A name may be translated, but a translation would be cut to 63 bytes.
CREATE TRIGGER t BEFORE INSERT ON kinds FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('n', 'v', 'en', 'fr');
INSERT INTO kinds (n) VALUES ('White');
SELECT n, v FROM kinds WHERE n IS NOT NULL;
DROP TRIGGER t ON kinds;
CREATE TRIGGER t BEFORE INSERT ON kinds FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('v', 'n', 'en', 'fr');
INSERT INTO kinds (v) VALUES ('White');
DROP TABLE kinds;
DROP DOMAIN short_text;

-- Wrong uses.
CREATE TABLE wrong (a text, b text, c text GENERATED ALWAYS AS (a || 'x') STORED);
CREATE FUNCTION try_trigger(definition text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'CREATE TRIGGER t ' || definition;
	INSERT INTO wrong (a) VALUES ('White');
	DROP TRIGGER t ON wrong;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;
SELECT try_trigger(format('BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger(%s)', arguments))
	AS code, arguments
FROM unnest(ARRAY[
	'a, b, en, fr',
	'a, b, en',
	'',
	'a, b, en, fr, "null", x',
	'nope, b, en, fr',
	'a, nope, en, fr',
	'a, a, en, fr',
	'a, ctid, en, fr',
	'a, c, en, fr',
	'a, b, xx, fr',
	'a, b, en, xx',
	'a, b, auto, fr',
	'a, b, en, fr, ignore']) arguments;
SELECT try_trigger(fires || ' EXECUTE FUNCTION hymt_translate_trigger(a, b, en, fr)') AS code, fires
FROM unnest(ARRAY['AFTER INSERT ON wrong FOR EACH ROW', 'BEFORE INSERT ON wrong FOR EACH STATEMENT']) fires;
CREATE TRIGGER t BEFORE DELETE ON wrong FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('a', 'b', 'en', 'fr');
DELETE FROM wrong;
SELECT hymt_translate_trigger();
DROP TABLE wrong;
DROP FUNCTION try_trigger;

-- Partitions and quoted names.
CREATE TABLE "Odd ""table" (id int, "Title" text, "Title EN" text) PARTITION BY LIST (id);
CREATE TABLE part_1 PARTITION OF "Odd ""table" FOR VALUES IN (1);
CREATE TABLE part_2 ("Title EN" text, gone int, id int, "Title" text);
ALTER TABLE part_2 DROP COLUMN gone;
ALTER TABLE "Odd ""table" ATTACH PARTITION part_2 FOR VALUES IN (2);
CREATE TRIGGER t BEFORE INSERT OR UPDATE ON "Odd ""table"
	FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('Title', 'Title EN', 'zh', 'en');
INSERT INTO "Odd ""table" VALUES (1, '尿布更换垫罩子'), (2, '头发造型工具套装');
SELECT * FROM "Odd ""table" ORDER BY id;
DROP TABLE "Odd ""table";
