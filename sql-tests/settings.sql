-- Settings: contexts, units, limits.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS hymt;

SELECT name, context, vartype, unit, min_val, max_val, boot_val FROM pg_settings WHERE name LIKE 'hymt.%'
ORDER BY name COLLATE "C";

\set VERBOSITY sqlstate
SET hymt.queue_timeout = '2s';
SHOW hymt.queue_timeout;
SET hymt.queue_timeout = -1;
RESET hymt.queue_timeout;
SET hymt.threads = 2;
SET hymt.queue_slots = 8;
SET hymt.no_such_setting = 1;
ALTER SYSTEM SET hymt.prompt_family = 'no such family';
ALTER SYSTEM SET hymt.max_context = 1;
ALTER SYSTEM SET hymt.adapters = 'klingon=/srv/adapters/klingon';
ALTER SYSTEM SET hymt.max_adapters = 0;
ALTER SYSTEM SET hymt.queue_memory = '1kB';

-- What names files is not for everybody.
CREATE ROLE regress_hymt_reader;
SET ROLE regress_hymt_reader;
SELECT string_agg(name, ' ' ORDER BY name COLLATE "C") AS visible FROM pg_settings WHERE name LIKE 'hymt.%';
SHOW hymt.adapters;
RESET ROLE;
DROP ROLE regress_hymt_reader;

-- Messages once in full.
\set VERBOSITY default
ALTER SYSTEM SET hymt.adapters = 'de=/srv/adapters/german, de=/srv/adapters/austrian';
ALTER SYSTEM SET hymt.adapters = 'klingon=/srv/adapters/klingon';
