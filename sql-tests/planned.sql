-- Functions that are declared and not built yet.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS hymt;
\set VERBOSITY sqlstate

CALL hymt_translate_table('pg_class', 'relname', 'relname', 'zh', 'en');
SELECT hymt_manage_column('pg_class', 'relname', 'relname', 'zh', 'en');
SELECT hymt_unmanage_column('pg_class', 'relname');
SELECT hymt_detect_language('a');
\set VERBOSITY default
SELECT hymt_detect_language('a');
