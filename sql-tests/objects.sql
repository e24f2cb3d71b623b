-- What the extension is made of: signatures, labels, grants.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS hymt;

SELECT extname, extversion, extrelocatable FROM pg_extension WHERE extname = 'hymt';

-- Everything, with arguments and their defaults.
\a
SELECT p.proname, pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result
FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'hymt'
ORDER BY p.proname COLLATE "C", pg_get_function_identity_arguments(p.oid) COLLATE "C";

\a
-- Labels: kind, volatility, parallel safety, strictness, cost.
SELECT p.proname, p.prokind, p.provolatile, p.proparallel, p.proisstrict, p.procost, p.prosecdef, p.proleakproof
FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'hymt'
ORDER BY p.proname COLLATE "C", pg_get_function_identity_arguments(p.oid) COLLATE "C";

-- Nothing for PUBLIC, neither functions nor views.
SELECT count(*) AS functions, count(*) FILTER (WHERE has_function_privilege('public', p.oid, 'EXECUTE')) AS for_public
FROM pg_proc p WHERE p.proname LIKE 'hymt%';
SELECT c.relname, has_table_privilege('public', c.oid, 'SELECT') AS for_public,
	has_table_privilege('pg_monitor', c.oid, 'SELECT') AS for_monitor
FROM pg_class c WHERE c.relname LIKE 'hymt%' AND c.relkind = 'v' ORDER BY c.relname;
SELECT p.proname FROM pg_proc p WHERE p.proname LIKE 'hymt%' AND has_function_privilege('pg_monitor', p.oid, 'EXECUTE')
ORDER BY p.proname;

-- Other kinds of objects.
SELECT pg_describe_object(d.classid, d.objid, 0) AS object
FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'hymt'
WHERE d.deptype = 'e' AND d.classid <> 'pg_proc'::regclass
-- not what comes along with another object: since version 17 the types of views and arrays are listed, too
  AND NOT EXISTS (SELECT FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
                  WHERE d.classid = 'pg_type'::regclass AND t.oid = d.objid AND (t.typelem <> 0 OR c.relkind <> 'c'))
ORDER BY 1;
SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute
WHERE attrelid = 'hymt_translation'::regclass AND attnum > 0 ORDER BY attnum;
SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute
WHERE attrelid = 'hymt_status'::regclass AND attnum > 0 ORDER BY attnum;
SELECT attname, format_type(atttypid, atttypmod) AS type, attnotnull FROM pg_attribute
WHERE attrelid = 'hymt_cache'::regclass AND attnum > 0 ORDER BY attnum;
SELECT c.relreplident, c.reloptions, t.reloptions AS toast FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid
WHERE c.oid = 'hymt_cache'::regclass;
SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'hymt_cache'::regclass ORDER BY 1;
-- What is part of a dump: what people have set, and no cache or job.
SELECT extconfig::regclass[] FROM pg_extension WHERE extname = 'hymt';

-- In a schema of its own, with an empty search_path, and again in the same session.
DROP EXTENSION hymt;
CREATE SCHEMA "odd schema";
CREATE EXTENSION hymt SCHEMA "odd schema";
SET search_path = '';
SELECT "odd schema".hymt_translate('42', 'en', 'zh');
SELECT count(*) FROM "odd schema".hymt_status;
DROP EXTENSION hymt;
RESET search_path;
DROP SCHEMA "odd schema";
CREATE EXTENSION hymt;
SELECT hymt_translate('42', 'en', 'zh');

-- A role that nobody granted anything.
CREATE ROLE regress_hymt_nobody;
SET ROLE regress_hymt_nobody;
\set VERBOSITY sqlstate
SELECT hymt_translate('42', 'en', 'zh');
SELECT * FROM hymt_status;
SELECT * FROM hymt_health();
SELECT * FROM hymt_cache;
SELECT hymt_cache_clear();
SHOW hymt.model;
SHOW hymt.engine;
SET hymt.model = '/etc';
CREATE TEMP TABLE pages (a text, b text);
CREATE TRIGGER t BEFORE INSERT ON pages FOR EACH ROW EXECUTE FUNCTION hymt_translate_trigger('a', 'b', 'zh', 'en');
DROP TABLE pages;
RESET ROLE;
\set VERBOSITY default
GRANT EXECUTE ON FUNCTION hymt_translate(text, text, text, text, text, text, text, jsonb) TO regress_hymt_nobody;
SET ROLE regress_hymt_nobody;
SELECT hymt_translate('42', 'en', 'zh');
RESET ROLE;
DROP OWNED BY regress_hymt_nobody;
DROP ROLE regress_hymt_nobody;
