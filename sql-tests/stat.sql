-- hymt_stat, hymt_stat_activity and hymt_stat_reset(): columns, privileges, and what does not change from run to run.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
-- What is tested here is not the cache: each text is to come from the engine.
SET hymt.cache = off;
CREATE EXTENSION IF NOT EXISTS hymt;

SELECT attrelid::regclass AS view, attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute
WHERE attrelid IN ('hymt_stat'::regclass, 'hymt_stat_activity'::regclass) AND attnum > 0
ORDER BY attrelid::regclass::text, attnum;

-- Two requests of this session: one translated, one that runs into its length limit. What passes through is none.
SELECT hymt_stat_reset();
SELECT hymt_translate('Grip type', 'en', 'zh');
SELECT hymt_translate('Grip type', 'en', 'zh', on_error => 'source', options => '{"max_tokens": 1}');
SELECT hymt_translate('42', 'en', 'zh');
\x
SELECT requests, joined, answered, cancelled, failed_language, failed_too_long, failed_unfinished, failed_crashed,
	failed_engine, failed_memory, failed_timeout, failed_unavailable, failed_other, retries, restarts,
	input_tokens > 0 AS input_tokens, output_tokens > 0 AS output_tokens,
	queue_wait_ms >= 0 AS queue_wait_ms, queue_wait_p50 <= queue_wait_p95 AND queue_wait_p95 <= queue_wait_p99 AS in_order,
	array_length(queue_wait_histogram, 1) AS buckets,
	(SELECT sum(b) FROM unnest(queue_wait_histogram) AS b) AS begun,
	total_time_ms > 0 AS total_time_ms, total_time_p50 > 0 AS total_time_p50,
	array_length(total_time_histogram, 1) AS buckets,
	(SELECT sum(b) FROM unnest(total_time_histogram) AS b) AS finished,
	stats_reset BETWEEN now() - interval '1 minute' AND clock_timestamp() AS stats_reset
FROM hymt_stat;
\x

-- Nothing was counted: quantiles are null.
SELECT hymt_stat_reset();
SELECT requests, queue_wait_ms, queue_wait_p50, total_time_p99, total_time_histogram FROM hymt_stat;
SELECT count(*) FROM hymt_stat_activity;

-- Who watches the server reads, and does not reset.
\set VERBOSITY sqlstate
CREATE ROLE regress_hymt_monitor IN ROLE pg_monitor;
CREATE ROLE regress_hymt_other;
SET ROLE regress_hymt_monitor;
SELECT requests FROM hymt_stat;
SELECT count(*) FROM hymt_stat_activity;
SELECT ok FROM hymt_health();
SELECT hymt_stat_reset();
SET ROLE regress_hymt_other;
SELECT requests FROM hymt_stat;
SELECT count(*) FROM hymt_stat_activity;
SELECT requests FROM hymt_stat();
SELECT count(*) FROM hymt_stat_activity();
SELECT hymt_stat_reset();
SELECT ok FROM hymt_health();
RESET ROLE;
GRANT EXECUTE ON FUNCTION hymt_stat_reset() TO regress_hymt_other;
SET ROLE regress_hymt_other;
SELECT hymt_stat_reset();
RESET ROLE;
DROP OWNED BY regress_hymt_other;
DROP ROLE regress_hymt_monitor, regress_hymt_other;
