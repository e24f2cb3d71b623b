-- From each former version to this one: the same objects as in a fresh installation. Then 0.1.0's declarations with
-- this library.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS hymt;
SELECT current_database() AS fresh \gset

-- One line of everything about each object of the extension: definition with labels and cost, C symbol, columns with
-- defaults, indexes, constraints, policies, triggers, whether its rows are dumped, privileges, initial privileges (with which pg_dump compares), comment.
SELECT $query$
SELECT string_agg(line, E'\n' ORDER BY line COLLATE "C") AS listing
FROM (SELECT replace(concat_ws(' | ',
		pg_describe_object(d.classid, d.objid, 0),
		CASE WHEN p.oid IS NOT NULL THEN pg_get_functiondef(p.oid) END,
		CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END,
		CASE WHEN c.relkind = 'r' THEN concat_ws(' ', c.relreplident, c.reloptions, toast.reloptions,
			(SELECT string_agg(pg_get_indexdef(indexrelid) || indisreplident, ', ' ORDER BY indexrelid::regclass::text)
				FROM pg_index WHERE indrelid = c.oid)) END,
		(SELECT string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod),
				CASE WHEN attnotnull THEN 'not null' END), ', ' ORDER BY attnum)
			FROM pg_attribute WHERE attrelid = coalesce(c.oid, t.typrelid) AND attnum > 0),
		(SELECT string_agg(concat_ws(' ', attname, 'not null ' || nullif(attnotnull, false), attcollation::regcollation,
				pg_get_expr(adbin, adrelid)), ', ' ORDER BY attnum)
			FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
			WHERE attrelid = c.oid AND attnum > 0),
		(SELECT string_agg(pg_get_indexdef(indexrelid), ', ' ORDER BY indexrelid::regclass::text) FROM pg_index
			WHERE indrelid = c.oid),
		(SELECT string_agg(pg_get_constraintdef(k.oid), ', ' ORDER BY conname) FROM pg_constraint AS k WHERE conrelid = c.oid),
		(SELECT string_agg(concat_ws(' ', polname, polcmd, polroles, pg_get_expr(polqual, polrelid)), ', ' ORDER BY polname)
			FROM pg_policy WHERE polrelid = c.oid AND c.relrowsecurity),
		(SELECT string_agg(pg_get_triggerdef(g.oid) || tgenabled::text, ', ' ORDER BY tgname) FROM pg_trigger AS g WHERE tgrelid = c.oid),
		'dumped where ' || e.extcondition[array_position(e.extconfig, c.oid)],
		'privileges ' || (SELECT string_agg(a::text, ',' ORDER BY a::text)
			FROM unnest(coalesce(p.proacl, c.relacl, t.typacl)) AS a),
		'initial ' || (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(i.initprivs) AS a),
		obj_description(d.objid, d.classid::regclass::name)), E'\n', ' ') AS line
	FROM pg_depend d
	JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass AND e.extname = 'hymt'
	LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
	LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
	LEFT JOIN pg_class toast ON toast.oid = c.reltoastrelid AND toast.oid <> 0
	LEFT JOIN pg_type t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
	LEFT JOIN pg_init_privs i ON i.classoid = d.classid AND i.objoid = d.objid
	WHERE d.deptype = 'e') AS lines
$query$ AS describe \gset
:describe \gset fresh_
SELECT count(*) >= 25 AS objects, count(*) FILTER (WHERE line LIKE '%| privileges %| initial %') >= 25 AS privileges
FROM unnest(string_to_array(:'fresh_listing', E'\n')) AS line;
CREATE DATABASE regress_hymt_upgrade;

\c regress_hymt_upgrade
SET client_min_messages = warning;
CREATE EXTENSION hymt VERSION '0.1.0';
-- An old declaration with this library: works, or says what is to be done.
SELECT hymt_translate('42', 'en', 'zh');
SELECT hymt_translate('Grip type', 'en', 'zh');
SELECT ok FROM hymt_health();
\set VERBOSITY sqlstate
SELECT * FROM hymt_stat;
SELECT * FROM hymt_stat_activity;
SELECT * FROM hymt_stat_progress;
\set VERBOSITY default
-- What a user granted and built on it stays.
CREATE ROLE regress_hymt_user;
GRANT EXECUTE ON FUNCTION hymt_translate(text, text, text, text, text, text, text, jsonb) TO regress_hymt_user;
CREATE VIEW uses AS SELECT hymt_translate('42', 'en', 'zh') AS translation, state FROM hymt_status;
ALTER EXTENSION hymt UPDATE;
SELECT extversion FROM pg_extension WHERE extname = 'hymt';
SELECT translation FROM uses;
SELECT requests >= 0 AS counts FROM hymt_stat;
DROP VIEW uses;
DROP OWNED BY regress_hymt_user;
DROP ROLE regress_hymt_user;

:describe \gset upgraded_
SELECT :'upgraded_listing' = :'fresh_listing' AS equal;
-- What differs, if anything.
SELECT 'only upgraded' AS what, line FROM (SELECT unnest(string_to_array(:'upgraded_listing', E'\n'))
	EXCEPT SELECT unnest(string_to_array(:'fresh_listing', E'\n'))) AS u (line)
UNION ALL
SELECT 'only fresh', line FROM (SELECT unnest(string_to_array(:'fresh_listing', E'\n'))
	EXCEPT SELECT unnest(string_to_array(:'upgraded_listing', E'\n'))) AS f (line)
ORDER BY 1, 2;

-- The comparison sees labels and privileges.
ALTER FUNCTION hymt_health() COST 2;
REVOKE SELECT ON hymt_stat FROM pg_monitor;
:describe \gset changed_
SELECT count(*) FROM (SELECT unnest(string_to_array(:'changed_listing', E'\n'))
	EXCEPT SELECT unnest(string_to_array(:'fresh_listing', E'\n'))) AS c;

-- Every version that has a script can be had, and leads here.
SELECT source FROM pg_extension_update_paths('hymt')
WHERE target = (SELECT default_version FROM pg_available_extensions WHERE name = 'hymt')
	AND source <> target AND path IS NOT NULL
ORDER BY source COLLATE "C";
SELECT version FROM pg_available_extension_versions WHERE name = 'hymt' ORDER BY version COLLATE "C";

\c :fresh
DROP DATABASE regress_hymt_upgrade;
