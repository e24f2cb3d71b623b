-- hymt_languages(): the table of the models' publishers, and what the loaded model knows of it.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS hymt;

SELECT hymt_translate('Grip type', 'en', 'zh') IS NOT NULL AS loaded;
SELECT * FROM hymt_languages();
-- Spellings that people type.
SELECT code, hymt_translate('bicycle', code, model_code) AS same
FROM (VALUES ('zh-CN', 'zh'), ('zh_Hans', 'zh'), ('ZH-TW', 'zh-Hant'), ('zh-HK', 'zh-Hant'),
	('en-US', 'en'), ('pt-BR', 'pt'), ('fil', 'tl'), ('iw', 'he'), ('in', 'id'), ('cmn', 'zh')) v(code, model_code);
