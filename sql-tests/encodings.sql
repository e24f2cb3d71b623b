-- Databases in other encodings: texts are converted to UTF-8 and back; what cannot be is an error or left to on_error.
SET client_min_messages = warning;
SELECT current_database() AS origin \gset
DROP DATABASE IF EXISTS regress_hymt_latin1;
DROP DATABASE IF EXISTS regress_hymt_ascii;
DROP DATABASE IF EXISTS regress_hymt_eucjp;
CREATE DATABASE regress_hymt_latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0;
CREATE DATABASE regress_hymt_ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0;
CREATE DATABASE regress_hymt_eucjp ENCODING 'EUC_JP' LOCALE 'C' TEMPLATE template0;

\c regress_hymt_latin1
SET client_encoding = 'UTF8';
SET client_min_messages = warning;
\pset null '(null)'
CREATE EXTENSION hymt;
SELECT hymt_translate('Body fat percentage', 'en', 'de'), hymt_translate('Intégré', 'fr', 'en');
SELECT octet_length(hymt_translate('Body fat percentage', 'en', 'de')) AS bytes;
SELECT hymt_translate('Grip type', 'en', 'zh', on_error => 'null'),
	hymt_translate('Grip type', 'en', 'zh', on_error => 'source');
SELECT hymt_translate('£5 ½', 'en', 'zh');
SELECT chinese_name FROM hymt_languages() LIMIT 1;
\set VERBOSITY sqlstate
SELECT hymt_translate('Grip type', 'en', 'zh');
SELECT hymt_translate_stream('Grip type', 'en', 'zh');
\set VERBOSITY default
SELECT hymt_translate('Grip type', 'en', 'zh');
SELECT string_agg(piece, '') FROM (SELECT hymt_translate_stream('Body fat percentage', 'en', 'de') AS piece) AS s;
SELECT hymt_translate_stream('Grip type', 'en', 'zh', on_error => 'null');
SELECT hymt_translate_stream('Grip type', 'en', 'zh', on_error => 'source');

\c regress_hymt_ascii
SET client_min_messages = warning;
CREATE EXTENSION hymt;
SELECT hymt_translate('Grip type', 'en', 'zh'), hymt_translate('尿布更换垫罩子', 'zh', 'en');
\set VERBOSITY sqlstate
SELECT hymt_translate(E'caf\xe9', 'fr', 'en');
SELECT hymt_translate(E'\xe9', 'fr', 'en', on_error => 'null');
\set VERBOSITY default

\c regress_hymt_eucjp
SET client_encoding = 'UTF8';
SET client_min_messages = warning;
CREATE EXTENSION hymt;
SELECT hymt_translate('キーチェーン', 'ja', 'en'), hymt_translate('Stone type', 'en', 'ja');
SELECT string_agg(piece, '') FROM (SELECT hymt_translate_stream('Stone type', 'en', 'ja') AS piece) AS s;

\c :origin
SET client_min_messages = warning;
DROP DATABASE regress_hymt_latin1;
DROP DATABASE regress_hymt_ascii;
DROP DATABASE regress_hymt_eucjp;
