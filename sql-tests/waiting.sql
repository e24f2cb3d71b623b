-- A wait can be ended, and leaves nothing behind. The time limits are far from what the work needs, on either side.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
-- What is tested here is not the cache: each text is to come from the engine.
SET hymt.cache = off;
CREATE EXTENSION IF NOT EXISTS hymt;
\set VERBOSITY sqlstate

-- A text that takes the model seconds.
SELECT repeat('nail buffers ', 400) AS long \gset
SET statement_timeout = 100;
SELECT hymt_translate(:'long', 'en', 'zh');
RESET statement_timeout;
DO $$
BEGIN
	FOR i IN 1..100 LOOP
		EXIT WHEN (SELECT slots_in_use = 0 AND queue_bytes_in_use = 0 FROM hymt_status);
		PERFORM pg_sleep(0.05);
	END LOOP;
END
$$;
SELECT slots_in_use, queue_bytes_in_use FROM hymt_status;

-- In a subtransaction, and in a portal that is left open.
BEGIN;
SAVEPOINT s;
SET LOCAL statement_timeout = 100;
SELECT hymt_translate(:'long', 'en', 'zh');
ROLLBACK TO s;
SELECT hymt_translate('Grip type', 'en', 'zh');
COMMIT;
SELECT slots_in_use, queue_bytes_in_use FROM hymt_status;
