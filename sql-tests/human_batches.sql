-- Translations by people in documents and in pieces.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS hymt;
BEGIN;
SELECT hymt_set_translation('自行车', 'zh', 'en', 'Push-bike'), hymt_set_translation('42', 'zh', 'en', 'forty-two');
-- With texts of the model beside them, and without.
SELECT hymt_translate_json('{"a": "自行车", "b": ["42", "43", "自行车", null, 42], "c": "自行车"}', 'zh', 'en', ARRAY['a', 'b.*']);
SELECT document ->> 'a' = hymt_translate('汽车', 'zh', 'en') AS machine, document ->> 'b' AS human
FROM hymt_translate_json('{"a": "汽车", "b": "自行车"}', 'zh', 'en', ARRAY['*']) AS document;
SELECT hymt_translate(ARRAY['42', '自行车', '汽车', '自行车'], 'zh', 'en') =
	ARRAY['forty-two', 'Push-bike', hymt_translate('汽车', 'zh', 'en'), 'Push-bike'] AS same;
SELECT * FROM hymt_translate_stream('自行车', 'zh', 'en') AS piece;
SELECT hymt_translate_stream('42', 'zh', 'en');
ROLLBACK;
