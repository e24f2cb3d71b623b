-- hymt_status and hymt_health(): what does not change from run to run.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS hymt;

SELECT hymt_translate('Grip type', 'en', 'zh');
\x
SELECT device, state, loading_phase, loading_percent, engine_pid > 0 AS engine, worker_pid > 0 AS worker, model, family,
	fingerprint ~ '^[0-9a-f]{64}$' AS fingerprint, parameters > 0 AS parameters, precision,
	weight_bytes > 0 AS weight_bytes, hardware ~ '^cpu' AS hardware, threads > 0 AS threads,
	max_context, slots > 0 AS slots, slots_in_use,
	queue_bytes > 0 AS queue_bytes, queue_bytes_in_use,
	requests > 0 AS requests, steps >= 0 AS steps, uptime > '0' AS uptime, restarts, last_error, last_error_at
FROM hymt_status;
\x
SELECT * FROM hymt_health();
SELECT a.backend_type FROM pg_stat_activity a JOIN hymt_status s ON s.worker_pid = a.pid;

-- Whoever may watch the server.
CREATE ROLE regress_hymt_monitor IN ROLE pg_monitor;
SET ROLE regress_hymt_monitor;
SELECT count(*) FROM hymt_status;
SELECT ok FROM hymt_health();
RESET ROLE;
DROP ROLE regress_hymt_monitor;
