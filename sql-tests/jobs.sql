-- Jobs: what the functions say, and who sees what. That they are made whatever happens is tests/t/200_jobs.pl's.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS hymt;
\set VERBOSITY terse

SELECT hymt_submit('Grip type', 'en', 'zh') AS job \gset
SELECT hymt_wait(:job, '60 s') = hymt_translate('Grip type', 'en', 'zh') AS equal;
SELECT hymt_result(:job) = hymt_wait(:job) AS equal;
SELECT owner, state, attempts, source_lang, target_lang, source, translation = hymt_result(id) AS equal, sqlstate, message,
	submitted <= started AND started <= finished AS in_order, token, lease_until, next_attempt
FROM hymt_job WHERE id = :job;
SELECT hymt_cancel(:job);

-- What needs no model, and nulls.
SELECT hymt_submit('42', 'en', 'zh') AS job \gset
SELECT hymt_wait(:job, '60 s');
SELECT hymt_submit('Grip', 'en', 'en') AS job \gset
SELECT hymt_wait(:job, '60 s');
SELECT hymt_submit('', 'en', 'zh') AS job \gset
SELECT hymt_wait(:job, '60 s') = '' AS empty;
SELECT hymt_submit(NULL, 'en', 'zh') IS NULL AND hymt_result(NULL) IS NULL AND hymt_wait(NULL) IS NULL
	AND hymt_cancel(NULL) IS NULL AS nulls;

-- What a person has set wins.
SELECT hymt_set_translation('Grip type', 'en', 'zh', 'by hand');
SELECT hymt_submit('Grip type', 'en', 'zh') AS job \gset
SELECT hymt_wait(:job, '60 s');
SELECT hymt_unset_translation('Grip type', 'en', 'zh');

-- Arguments are checked as hymt_translate() does, and at once.
SELECT hymt_submit('a', 'xx', 'zh');
SELECT hymt_submit('a', 'en', NULL);
SELECT hymt_submit('a', 'auto', 'zh');
SELECT hymt_submit('a', 'en', 'zh', glossary => 'g');
SELECT hymt_submit('a', 'en', 'zh', format => 'html');
SELECT hymt_submit('a', 'en', 'zh', on_error => 'maybe');
SELECT hymt_submit('a', 'en', 'zh', options => '{"max_tokens": 0}');
SELECT hymt_submit('a', 'en', 'zh', options => '{"adapter": "none"}');
SELECT hymt_submit(repeat('a', 9000000), 'en', 'zh');

-- Options, context and priority go with the job.
SELECT hymt_submit('Grip type', 'en-US', 'zh-CN', context => 'bicycles', on_error => 'source',
	options => '{"max_tokens": 1, "priority": "bulk"}') AS job \gset
SELECT hymt_wait(:job, '60 s');
SELECT state, priority, source_lang, target_lang, context, on_error, options, sqlstate FROM hymt_job WHERE id = :job;

-- A text's own failure ends its job.
SELECT hymt_submit('Grip type', 'en', 'zh', options => '{"max_tokens": 1}') AS job \gset
\set VERBOSITY sqlstate
SELECT hymt_wait(:job, '60 s');
SELECT hymt_result(:job);
\set VERBOSITY terse
SELECT state, attempts, sqlstate, message, translation FROM hymt_job WHERE id = :job;
SELECT hymt_submit('Grip type', 'en', 'zh', on_error => 'null', options => '{"max_tokens": 1}') AS job \gset
SELECT hymt_wait(:job, '60 s');
SELECT state, sqlstate, translation FROM hymt_job WHERE id = :job;

-- With the transaction that submits it.
SELECT count(*) AS before FROM hymt_job \gset
BEGIN;
SELECT hymt_submit('Grip type', 'en', 'zh') AS job \gset
SELECT state FROM hymt_job WHERE id = :job;
SELECT hymt_result(:job);
ROLLBACK;
SELECT count(*) - :before FROM hymt_job;
BEGIN;
SELECT hymt_submit('Grip', 'en', 'en') AS kept \gset
SAVEPOINT s;
SELECT hymt_submit('Grip', 'en', 'en') AS lost \gset
ROLLBACK TO s;
COMMIT;
SELECT hymt_wait(:kept, '60 s');
SELECT count(*) FROM hymt_job WHERE id = :lost;
-- Who waits for his own waits for ever.
\set VERBOSITY sqlstate
BEGIN;
SELECT hymt_submit('Grip', 'en', 'en') AS job \gset
SELECT hymt_wait(:job);
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT hymt_submit('Grip', 'en', 'en') AS job \gset
RELEASE s;
SELECT hymt_wait(:job);
ROLLBACK;
SELECT hymt_wait(hymt_submit('Grip', 'en', 'en'));
SELECT hymt_wait(0);
SELECT hymt_result(0);
SELECT hymt_cancel(0);
SELECT hymt_wait(:job);
-- Cancelled in the transaction that submits it.
BEGIN;
SELECT hymt_submit('Grip', 'en', 'en') AS job \gset
SELECT hymt_cancel(:job);
SELECT hymt_cancel(:job);
COMMIT;
SELECT hymt_wait(:job);
SELECT hymt_result(:job);
\set VERBOSITY terse
SELECT state, translation FROM hymt_job WHERE id = :job;

-- Newer than the snapshot.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM hymt_job WHERE id > 1000000;
SELECT hymt_wait(:kept);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT hymt_result(:kept);
COMMIT;

-- Nothing is written in a read-only transaction, but a result can be read.
\set VERBOSITY sqlstate
BEGIN READ ONLY;
SELECT hymt_result(:kept);
SELECT hymt_submit('Grip', 'en', 'zh');
ROLLBACK;
\set VERBOSITY terse

-- A job is its owner's.
CREATE ROLE regress_hymt_a;
CREATE ROLE regress_hymt_b;
GRANT EXECUTE ON FUNCTION hymt_submit(text, text, text, text, text, text, text, jsonb), hymt_result(bigint),
	hymt_wait(bigint, interval), hymt_cancel(bigint) TO regress_hymt_a, regress_hymt_b;
SET ROLE regress_hymt_a;
SELECT hymt_submit('Grip', 'en', 'en') AS job \gset
SELECT hymt_wait(:job, '60 s');
SELECT owner, source FROM hymt_job;
INSERT INTO hymt_job (owner, source_lang, target_lang, on_error, source) VALUES ('regress_hymt_a', 'en', 'zh', 'error', 'a');
UPDATE hymt_job SET state = 'queued';
DELETE FROM hymt_job;
SELECT nextval('hymt_job_id_seq');
SET ROLE regress_hymt_b;
SELECT count(*) FROM hymt_job;
\set VERBOSITY sqlstate
SELECT hymt_result(:job);
SELECT hymt_wait(:job);
SELECT hymt_cancel(:job);
\set VERBOSITY terse
-- Nor by a function of his own that is called before the policy is.
CREATE FUNCTION pg_temp.tell(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS
	$$BEGIN RAISE WARNING 'seen: %', $1; RETURN true; END$$;
SELECT count(*) FROM hymt_job WHERE pg_temp.tell(source);
RESET ROLE;
-- Nothing without the right to call the functions.
REVOKE ALL ON FUNCTION hymt_submit(text, text, text, text, text, text, text, jsonb) FROM regress_hymt_b;
SET ROLE regress_hymt_b;
SELECT hymt_submit('Grip', 'en', 'en');
RESET ROLE;
-- Superusers see all.
SELECT owner, hymt_result(id) FROM hymt_job WHERE id = :job;
DROP FUNCTION pg_temp.tell(text);
DROP OWNED BY regress_hymt_a, regress_hymt_b;
DROP ROLE regress_hymt_a, regress_hymt_b;

-- The row stays as it is in the session of somebody who applies another server's rows.
SET session_replication_role = replica;
SELECT hymt_submit('Grip', 'en', 'en');
DELETE FROM hymt_job;
RESET session_replication_role;
SELECT hymt_job_stays();
SELECT count(*) > 5 AS still_there FROM hymt_job;

-- Others may search for whatever they like.
BEGIN;
CREATE SCHEMA regress_hymt_schema;
CREATE TABLE regress_hymt_schema.hymt_job (id bigint, state text);
CREATE FUNCTION regress_hymt_schema.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS
	$$BEGIN RAISE EXCEPTION 'called'; END$$;
SET LOCAL search_path = regress_hymt_schema, pg_catalog, public;
SELECT hymt_submit('Grip', 'en', 'en') > 0 AS submitted;
ROLLBACK;
