-- hymt_stat_progress: columns, privileges, nothing where nothing runs; the setting hymt.progress.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS hymt;
-- What is in the cache is not asked for.
SET hymt.cache = off;

SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute
WHERE attrelid = 'hymt_stat_progress'::regclass AND attnum > 0 ORDER BY attnum;

SELECT count(*) FROM hymt_stat_progress;
-- What a statement translated is not seen from the next one.
SELECT hymt_translate('Grip type', 'en', 'zh');
SELECT count(*) FROM hymt_stat_progress;
BEGIN;
SELECT hymt_translate('Grip type', 'en', 'zh');
SELECT count(*) FROM hymt_stat_progress;
COMMIT;
-- In a block all statements count together, and it sees itself.
DO $$
DECLARE
	p record;
BEGIN
	PERFORM hymt_translate('Grip type', 'en', 'zh');
	PERFORM hymt_translate('Grip type', 'en', 'zh', on_error => 'source', options => '{"max_tokens": 1}');
	PERFORM hymt_translate_stream('Grip type', 'en', 'zh', on_error => 'null', options => '{"max_tokens": 1}');
	SELECT * INTO STRICT p FROM hymt_stat_progress;
	RAISE WARNING '% of this process %, leader %, in % by %, texts %, failed %, in order %', p.command, p.pid = pg_backend_pid(),
		p.leader_pid, p.database = current_database(), p.role = session_user, p.texts, p.failed, p.started <= p.updated;
END $$;

-- For everybody who wants it; NOTICEs only.
SHOW hymt.progress;
CREATE ROLE regress_hymt_other;
SET ROLE regress_hymt_other;
SET hymt.progress = on;
SHOW hymt.progress;
\set VERBOSITY sqlstate
SET hymt.progress = 'often';
SELECT * FROM hymt_stat_progress;
SELECT * FROM hymt_stat_progress();
RESET ROLE;
RESET hymt.progress;
DROP ROLE regress_hymt_other;
