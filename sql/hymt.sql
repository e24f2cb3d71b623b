/*
 * hymt.sql: everything that CREATE EXTENSION hymt makes. hymt--VERSION.sql is a copy of it.
 *
 * Signatures are complete: a defaulted argument added later would make an ambiguous overload. What a version lacks
 * raises 0A000. Nothing is granted to PUBLIC but to see one's own jobs: translating takes processor time from everybody.
 */
\echo Use "CREATE EXTENSION hymt" to load this file. \quit

-- Translating: not STRICT, because a null source language means "detect it"; a null text gives null. STABLE, because
-- the answer depends on the model that is loaded. The cost keeps the planner from calling it on rows that other
-- conditions remove, and is low enough that statements are not compiled for it alone.

CREATE FUNCTION @extschema@.hymt_translate(
	text text,
	src text,
	tgt text,
	context text DEFAULT NULL,
	glossary text DEFAULT NULL,
	format text DEFAULT 'text',
	on_error text DEFAULT 'error',
	options jsonb DEFAULT NULL
) RETURNS text
AS 'MODULE_PATHNAME', 'hymt_translate'
LANGUAGE C STABLE PARALLEL SAFE COST 1000;

COMMENT ON FUNCTION @extschema@.hymt_translate(text, text, text, text, text, text, text, jsonb) IS
'translation of a text';

CREATE FUNCTION @extschema@.hymt_translate(
	text text[],
	src text,
	tgt text,
	context text DEFAULT NULL,
	glossary text DEFAULT NULL,
	format text DEFAULT 'text',
	on_error text DEFAULT 'error',
	options jsonb DEFAULT NULL
) RETURNS text[]
AS 'MODULE_PATHNAME', 'hymt_translate_array'
LANGUAGE C STABLE PARALLEL SAFE COST 1000;

COMMENT ON FUNCTION @extschema@.hymt_translate(text[], text, text, text, text, text, text, jsonb) IS
'translations of the elements of an array, made together';

CREATE TYPE @extschema@.hymt_translation AS (
	translation text,
	source_lang text,
	status text,				-- translated, unchanged, failed, human
	failed_checks text[],
	finish_reason text,			-- stop, length, loop; null when the model was not asked
	cached boolean,
	model text,
	input_tokens int,
	output_tokens int,
	milliseconds double precision
);

CREATE FUNCTION @extschema@.hymt_translate_details(
	text text,
	src text,
	tgt text,
	context text DEFAULT NULL,
	glossary text DEFAULT NULL,
	format text DEFAULT 'text',
	on_error text DEFAULT 'error',
	options jsonb DEFAULT NULL
) RETURNS @extschema@.hymt_translation
AS 'MODULE_PATHNAME', 'hymt_translate_details'
LANGUAGE C STABLE PARALLEL SAFE COST 1000;

COMMENT ON FUNCTION @extschema@.hymt_translate_details(text, text, text, text, text, text, text, jsonb) IS
'translation of a text and how it came about';

CREATE FUNCTION @extschema@.hymt_translate_stream(
	text text,
	src text,
	tgt text,
	context text DEFAULT NULL,
	glossary text DEFAULT NULL,
	format text DEFAULT 'text',
	on_error text DEFAULT 'error',
	options jsonb DEFAULT NULL
) RETURNS SETOF text
AS 'MODULE_PATHNAME', 'hymt_translate_stream'
LANGUAGE C STABLE PARALLEL SAFE COST 1000;

COMMENT ON FUNCTION @extschema@.hymt_translate_stream(text, text, text, text, text, text, text, jsonb) IS
'translation of a text in pieces, as they are generated';

CREATE FUNCTION @extschema@.hymt_translate_json(
	document jsonb,
	src text,
	tgt text,
	paths text[],
	context text DEFAULT NULL,
	glossary text DEFAULT NULL,
	format text DEFAULT 'text',
	on_error text DEFAULT 'error',
	options jsonb DEFAULT NULL
) RETURNS jsonb
AS 'MODULE_PATHNAME', 'hymt_translate_json'
LANGUAGE C STABLE PARALLEL SAFE COST 1000;

COMMENT ON FUNCTION @extschema@.hymt_translate_json(jsonb, text, text, text[], text, text, text, text, jsonb) IS
'a document with the strings under dotted paths translated';

-- Jobs.

CREATE FUNCTION @extschema@.hymt_submit(
	text text,
	src text,
	tgt text,
	context text DEFAULT NULL,
	glossary text DEFAULT NULL,
	format text DEFAULT 'text',
	on_error text DEFAULT 'error',
	options jsonb DEFAULT NULL
) RETURNS bigint
AS 'MODULE_PATHNAME', 'hymt_submit'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.hymt_submit(text, text, text, text, text, text, text, jsonb) IS
'begin a translation and return its job';

CREATE FUNCTION @extschema@.hymt_result(
	job bigint
) RETURNS text
AS 'MODULE_PATHNAME', 'hymt_result'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.hymt_result(bigint) IS
'translation of a finished job, null before';

CREATE FUNCTION @extschema@.hymt_wait(
	job bigint,
	timeout interval DEFAULT NULL
) RETURNS text
AS 'MODULE_PATHNAME', 'hymt_wait'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.hymt_wait(bigint, interval) IS
'translation of a job, once it is finished';

CREATE FUNCTION @extschema@.hymt_cancel(
	job bigint
) RETURNS boolean
AS 'MODULE_PATHNAME', 'hymt_cancel'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.hymt_cancel(bigint) IS
'give up a job';

-- Jobs. Written by functions and the database worker only; a row is its owner's to see. Rows are not dumped, and not taken
-- from another server by logical replication: a job is made by the server that it was submitted to. Partial indexes have
-- what the worker looks for, so that jobs that have ended are not in its way.

CREATE TABLE @extschema@.hymt_job (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	owner regrole NOT NULL,
	state text NOT NULL DEFAULT 'queued'
		CHECK (state IN ('queued', 'running', 'done', 'failed', 'dead', 'cancelled')),
	priority smallint NOT NULL DEFAULT 0,
	source_lang text NOT NULL,
	target_lang text NOT NULL,
	context text,
	on_error text NOT NULL,
	options jsonb,
	source text,
	translation text,
	rel regclass,				-- a column of this table is to be filled, of the row with this key
	trigger name,
	key_columns smallint[],
	key text[],
	former text,
	attempts int NOT NULL DEFAULT 0,
	token bigint,
	lease_until timestamptz,
	next_attempt timestamptz,
	sqlstate text,
	message text,
	submitted timestamptz NOT NULL DEFAULT clock_timestamp(),
	started timestamptz,
	finished timestamptz
) WITH (
	vacuum_truncate = off,
	toast.vacuum_truncate = off,
	autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_scale_factor = 0.05
);
CREATE INDEX hymt_job_ready ON @extschema@.hymt_job (priority, id) WHERE state = 'queued' AND next_attempt IS NULL;
CREATE INDEX hymt_job_retry ON @extschema@.hymt_job (next_attempt) WHERE state = 'queued' AND next_attempt IS NOT NULL;
CREATE INDEX hymt_job_lease ON @extschema@.hymt_job (lease_until) WHERE state = 'running';
CREATE INDEX hymt_job_finished ON @extschema@.hymt_job (finished) WHERE finished IS NOT NULL;
ALTER TABLE @extschema@.hymt_job ENABLE ROW LEVEL SECURITY;
CREATE POLICY hymt_job_owner ON @extschema@.hymt_job FOR SELECT
	USING (owner = pg_catalog.quote_ident(CURRENT_USER)::pg_catalog.regrole);

COMMENT ON TABLE @extschema@.hymt_job IS
'jobs of the current user: translations that were asked for by hymt_submit()';

CREATE FUNCTION @extschema@.hymt_job_stays() RETURNS trigger
AS 'MODULE_PATHNAME', 'hymt_job_stays'
LANGUAGE C;

COMMENT ON FUNCTION @extschema@.hymt_job_stays() IS
'trigger that keeps out jobs of other servers';

CREATE TRIGGER hymt_job_stays BEFORE INSERT OR UPDATE OR DELETE ON @extschema@.hymt_job
	FOR EACH ROW EXECUTE FUNCTION @extschema@.hymt_job_stays();
ALTER TABLE @extschema@.hymt_job ENABLE REPLICA TRIGGER hymt_job_stays;

-- Columns.

CREATE FUNCTION @extschema@.hymt_translate_trigger() RETURNS trigger
AS 'MODULE_PATHNAME', 'hymt_translate_trigger'
LANGUAGE C;

COMMENT ON FUNCTION @extschema@.hymt_translate_trigger() IS
'trigger (column, target column, source language, target language, on_error, async) that keeps a column translated';

CREATE PROCEDURE @extschema@.hymt_translate_table(
	rel regclass,
	col name,
	target_col name,
	src text,
	tgt text,
	chunk_rows int DEFAULT 1000,
	on_error text DEFAULT 'error'
)
AS 'MODULE_PATHNAME', 'hymt_translate_table'
LANGUAGE C;

COMMENT ON PROCEDURE @extschema@.hymt_translate_table(regclass, name, name, text, text, int, text) IS
'fill a column with translations, committing after each chunk';

CREATE FUNCTION @extschema@.hymt_manage_column(
	rel regclass,
	col name,
	target_col name,
	src text,
	tgt text
) RETURNS void
AS 'MODULE_PATHNAME', 'hymt_manage_column'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.hymt_manage_column(regclass, name, name, text, text) IS
'keep a column translated in the background';

CREATE FUNCTION @extschema@.hymt_unmanage_column(
	rel regclass,
	target_col name
) RETURNS void
AS 'MODULE_PATHNAME', 'hymt_unmanage_column'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.hymt_unmanage_column(regclass, name) IS
'stop keeping a column translated';

-- Translations by people. There may be several for one text, of which the newest counts: a unique index would stop
-- logical replication between databases that both have one. The index has no function of hymt's, so that it is as good
-- with any version of the library; its hash is that of the bytes in the encoding of the database.

CREATE TABLE @extschema@.hymt_human_translation (
	id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
	source_lang text COLLATE "C" NOT NULL,
	target_lang text COLLATE "C" NOT NULL,
	text text NOT NULL,
	translation text NOT NULL,
	set_by text NOT NULL,
	set_at timestamptz NOT NULL
);

CREATE INDEX hymt_human_translation_key ON @extschema@.hymt_human_translation
	(pg_catalog.hashtextextended(text COLLATE "C", 0), source_lang, target_lang);

SELECT pg_catalog.pg_extension_config_dump('@extschema@.hymt_human_translation', '');

COMMENT ON TABLE @extschema@.hymt_human_translation IS
'translations set by people; use hymt_set_translation() or the view hymt_human_translations';

CREATE VIEW @extschema@.hymt_human_translations AS
SELECT source_lang, target_lang, text, translation, set_by, set_at
FROM @extschema@.hymt_human_translation AS h
WHERE NOT EXISTS (SELECT FROM @extschema@.hymt_human_translation AS newer
	WHERE pg_catalog.hashtextextended(newer.text COLLATE "C", 0) = pg_catalog.hashtextextended(h.text COLLATE "C", 0)
		AND newer.source_lang = h.source_lang AND newer.target_lang = h.target_lang AND newer.text = h.text
		AND (newer.set_at, newer.id) > (h.set_at, h.id));

COMMENT ON VIEW @extschema@.hymt_human_translations IS
'translations that people set; INSERT (COPY), UPDATE and DELETE set and remove them';

COMMENT ON COLUMN @extschema@.hymt_human_translations.set_by IS
'role that set it; recorded, whatever is inserted';

COMMENT ON COLUMN @extschema@.hymt_human_translations.set_at IS
'when it was set; recorded, whatever is inserted';

CREATE FUNCTION @extschema@.hymt_human_trigger() RETURNS trigger
AS 'MODULE_PATHNAME', 'hymt_human_trigger'
LANGUAGE C;

COMMENT ON FUNCTION @extschema@.hymt_human_trigger() IS
'trigger of the view hymt_human_translations';

CREATE TRIGGER write_translation INSTEAD OF INSERT OR UPDATE OR DELETE ON @extschema@.hymt_human_translations
FOR EACH ROW EXECUTE FUNCTION @extschema@.hymt_human_trigger();

CREATE FUNCTION @extschema@.hymt_set_translation(
	text text,
	src text,
	tgt text,
	translation text
) RETURNS void
AS 'MODULE_PATHNAME', 'hymt_set_translation'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.hymt_set_translation(text, text, text, text) IS
'set a human translation, which wins over the model''s';

CREATE FUNCTION @extschema@.hymt_unset_translation(
	text text,
	src text,
	tgt text
) RETURNS boolean
AS 'MODULE_PATHNAME', 'hymt_unset_translation'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.hymt_unset_translation(text, text, text) IS
'remove a human translation; whether there was one';

-- Translations that the model made, written by the database worker. No row is ever changed, and no constraint can be
-- violated: rows may come by logical replication, too. The nonce makes an identity of the age, by which a subscriber finds
-- the rows that a publisher deletes. Rows are not dumped. The files keep their size: no statement waits for a truncation.

CREATE TABLE @extschema@.hymt_cache (
	key bytea NOT NULL,
	fingerprint text NOT NULL,
	scope text NOT NULL,
	source_lang text NOT NULL,
	target_lang text NOT NULL,
	options text NOT NULL,
	context text NOT NULL,
	source text NOT NULL,
	translation text NOT NULL,
	model text NOT NULL,
	input_tokens int NOT NULL,
	output_tokens int NOT NULL,
	created timestamptz NOT NULL,
	nonce bigint NOT NULL
) WITH (
	vacuum_truncate = off,
	toast.vacuum_truncate = off,
	autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_scale_factor = 0.02,
	toast.autovacuum_vacuum_threshold = 1000,
	toast.autovacuum_vacuum_scale_factor = 0.02
);
CREATE INDEX hymt_cache_key ON @extschema@.hymt_cache (key);
CREATE UNIQUE INDEX hymt_cache_age ON @extschema@.hymt_cache (created, nonce);
ALTER TABLE @extschema@.hymt_cache REPLICA IDENTITY USING INDEX hymt_cache_age;

COMMENT ON TABLE @extschema@.hymt_cache IS
'translations that were made before';

CREATE FUNCTION @extschema@.hymt_cache_clear(
	src text DEFAULT NULL,
	tgt text DEFAULT NULL,
	model text DEFAULT NULL
) RETURNS bigint
AS 'MODULE_PATHNAME', 'hymt_cache_clear'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.hymt_cache_clear(text, text, text) IS
'forget translations that were made before, and return how many the table hymt_cache had';

-- Languages.

CREATE FUNCTION @extschema@.hymt_detect_language(
	text text
) RETURNS text
AS 'MODULE_PATHNAME', 'hymt_detect_language'
LANGUAGE C STABLE PARALLEL SAFE COST 1000;

COMMENT ON FUNCTION @extschema@.hymt_detect_language(text) IS
'language of a text';

CREATE FUNCTION @extschema@.hymt_languages(
	OUT code text,
	OUT english_name text,
	OUT chinese_name text,
	OUT supported boolean
) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'hymt_languages_sql'
LANGUAGE C STABLE PARALLEL SAFE ROWS 40;

COMMENT ON FUNCTION @extschema@.hymt_languages() IS
'languages, and whether the loaded model knows them';

-- State.

CREATE FUNCTION @extschema@.hymt_status(
	OUT device int,
	OUT state text,
	OUT loading_phase text,
	OUT loading_percent int,
	OUT engine_pid int,
	OUT worker_pid int,
	OUT model text,
	OUT family text,
	OUT fingerprint text,
	OUT parameters bigint,
	OUT "precision" text,
	OUT weight_bytes bigint,
	OUT hardware text,
	OUT threads int,
	OUT max_context int,
	OUT slots int,
	OUT slots_in_use int,
	OUT queue_bytes bigint,
	OUT queue_bytes_in_use bigint,
	OUT requests bigint,
	OUT steps bigint,
	OUT rows_per_step double precision,
	OUT uptime interval,
	OUT restarts bigint,
	OUT last_error text,
	OUT last_error_at timestamptz
) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'hymt_status'
LANGUAGE C VOLATILE PARALLEL SAFE ROWS 1;

COMMENT ON FUNCTION @extschema@.hymt_status() IS
'state of each device';

CREATE FUNCTION @extschema@.hymt_health(
	OUT ok boolean,
	OUT reason text
) RETURNS record
AS 'MODULE_PATHNAME', 'hymt_health'
LANGUAGE C VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION @extschema@.hymt_health() IS
'whether translations can be had now, and if not, why';

CREATE FUNCTION @extschema@.hymt_stat(
	OUT requests bigint,
	OUT joined bigint,
	OUT answered bigint,
	OUT cancelled bigint,
	OUT failed_language bigint,
	OUT failed_too_long bigint,
	OUT failed_unfinished bigint,
	OUT failed_crashed bigint,
	OUT failed_engine bigint,
	OUT failed_memory bigint,
	OUT failed_timeout bigint,
	OUT failed_unavailable bigint,
	OUT failed_other bigint,
	OUT retries bigint,
	OUT restarts bigint,
	OUT input_tokens bigint,
	OUT output_tokens bigint,
	OUT steps bigint,
	OUT rows_per_step double precision,
	OUT degraded_steps bigint,
	OUT reused_tokens bigint,
	OUT preemptions bigint,
	OUT queue_wait_ms double precision,
	OUT queue_wait_p50 double precision,
	OUT queue_wait_p95 double precision,
	OUT queue_wait_p99 double precision,
	OUT queue_wait_histogram bigint[],
	OUT total_time_ms double precision,
	OUT total_time_p50 double precision,
	OUT total_time_p95 double precision,
	OUT total_time_p99 double precision,
	OUT total_time_histogram bigint[],
	OUT cache_memory_hits bigint,
	OUT cache_table_hits bigint,
	OUT cache_misses bigint,
	OUT cache_memory_entries bigint,
	OUT cache_memory_bytes bigint,
	OUT cache_memory_evictions bigint,
	OUT cache_written bigint,
	OUT cache_dropped bigint,
	OUT cache_table_evictions bigint,
	OUT stats_reset timestamptz
) RETURNS record
AS 'MODULE_PATHNAME', 'hymt_stat'
LANGUAGE C VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION @extschema@.hymt_stat() IS
'what was counted since the start of the server or hymt_stat_reset()';

CREATE FUNCTION @extschema@.hymt_stat_reset() RETURNS void
AS 'MODULE_PATHNAME', 'hymt_stat_reset'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.hymt_stat_reset() IS
'begin counting anew';

CREATE FUNCTION @extschema@.hymt_stat_activity(
	OUT pid int,
	OUT state text,
	OUT class text,
	OUT database name,
	OUT role name,
	OUT device int,
	OUT source_lang text,
	OUT target_lang text,
	OUT text_bytes bigint,
	OUT retries int,
	OUT submitted timestamptz,
	OUT begun timestamptz,
	OUT age interval
) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'hymt_stat_activity'
LANGUAGE C VOLATILE PARALLEL SAFE ROWS 100;

COMMENT ON FUNCTION @extschema@.hymt_stat_activity() IS
'requests that are waiting or being answered';

CREATE FUNCTION @extschema@.hymt_stat_progress(
	OUT pid int,
	OUT leader_pid int,
	OUT database name,
	OUT role name,
	OUT command text,
	OUT started timestamptz,
	OUT updated timestamptz,
	OUT rows_total bigint,
	OUT rows_done bigint,
	OUT rows_per_second double precision,
	OUT texts bigint,
	OUT failed bigint,
	OUT remaining interval
) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'hymt_stat_progress'
LANGUAGE C VOLATILE PARALLEL SAFE ROWS 10;

COMMENT ON FUNCTION @extschema@.hymt_stat_progress() IS
'how far statements that translate have come';

CREATE VIEW @extschema@.hymt_status AS SELECT * FROM @extschema@.hymt_status();

CREATE VIEW @extschema@.hymt_stat AS SELECT * FROM @extschema@.hymt_stat();

CREATE VIEW @extschema@.hymt_stat_activity AS SELECT * FROM @extschema@.hymt_stat_activity();

CREATE VIEW @extschema@.hymt_stat_progress AS SELECT * FROM @extschema@.hymt_stat_progress();

-- The database's owner grants; who watches the server may watch hymt.

REVOKE ALL ON FUNCTION @extschema@.hymt_translate(text, text, text, text, text, text, text, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_translate(text[], text, text, text, text, text, text, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_translate_details(text, text, text, text, text, text, text, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_translate_stream(text, text, text, text, text, text, text, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_translate_json(jsonb, text, text, text[], text, text, text, text, jsonb)
	FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_submit(text, text, text, text, text, text, text, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_result(bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_wait(bigint, interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_cancel(bigint) FROM PUBLIC;
REVOKE ALL ON TABLE @extschema@.hymt_job FROM PUBLIC;
GRANT SELECT ON TABLE @extschema@.hymt_job TO PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_job_stays() FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_translate_trigger() FROM PUBLIC;
REVOKE ALL ON PROCEDURE @extschema@.hymt_translate_table(regclass, name, name, text, text, int, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_manage_column(regclass, name, name, text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_unmanage_column(regclass, name) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_set_translation(text, text, text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_unset_translation(text, text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_human_trigger() FROM PUBLIC;
REVOKE ALL ON TABLE @extschema@.hymt_human_translation FROM PUBLIC;
REVOKE ALL ON TABLE @extschema@.hymt_human_translations FROM PUBLIC;
REVOKE ALL ON TABLE @extschema@.hymt_cache FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_cache_clear(text, text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_detect_language(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_languages() FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_status() FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_health() FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_stat() FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_stat_reset() FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_stat_activity() FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.hymt_stat_progress() FROM PUBLIC;

REVOKE ALL ON TABLE @extschema@.hymt_status FROM PUBLIC;
GRANT SELECT ON TABLE @extschema@.hymt_status TO pg_monitor;
GRANT EXECUTE ON FUNCTION @extschema@.hymt_status() TO pg_monitor;
REVOKE ALL ON TABLE @extschema@.hymt_stat FROM PUBLIC;
GRANT SELECT ON TABLE @extschema@.hymt_stat TO pg_monitor;
GRANT EXECUTE ON FUNCTION @extschema@.hymt_stat() TO pg_monitor;
REVOKE ALL ON TABLE @extschema@.hymt_stat_activity FROM PUBLIC;
GRANT SELECT ON TABLE @extschema@.hymt_stat_activity TO pg_monitor;
GRANT EXECUTE ON FUNCTION @extschema@.hymt_stat_activity() TO pg_monitor;
REVOKE ALL ON TABLE @extschema@.hymt_stat_progress FROM PUBLIC;
GRANT SELECT ON TABLE @extschema@.hymt_stat_progress TO pg_monitor;
GRANT EXECUTE ON FUNCTION @extschema@.hymt_stat_progress() TO pg_monitor;
GRANT EXECUTE ON FUNCTION @extschema@.hymt_health() TO pg_monitor;
