-- Texts with nothing to translate come back as they are, without the model. Each row is checked with a details call,
-- which says whether the model was asked.
SET client_min_messages = warning;
-- What is tested here is not the cache: each text is to come from the engine.
SET hymt.cache = off;
CREATE EXTENSION IF NOT EXISTS hymt;

CREATE TEMP TABLE passing (id int GENERATED ALWAYS AS IDENTITY, t text);
INSERT INTO passing (t) VALUES
	(''), (' '), (E' \t\r\n '), (U&'\3000\00A0\2003'),
	('42'), ('-3.14'), ('1,234.50'), ('١٢٣'), ('½ ²'), ('２４'),
	('...'), ('—'), ('。，、'), ('()[]{}'), ('$€¥%'), ('±5°'),
	('😀'), ('👍🏽'), ('👨‍👩‍👧'), ('🇩🇪 🇫🇷'), ('❤️'), ('5️⃣'), ('㎡'),
	('AB-1234'), ('HI914'), ('4X5'), ('A.1/B_2+C-3'), ('S00120126FR-3'), ('(AB-12)'), ('AB-12, CD-34;'),
	('https://example.com/a?b=c#d'), ('http://example.com'), ('www.example.com/path'), ('FTP://EXAMPLE.COM'),
	('someone@example.com'), ('<first.last+tag@mail.example.org>,'), ('mailbox_1@a-b.co'),
	(' AB-12  42 https://example.com 😀 ');
SELECT id, t = hymt_translate(t, 'zh', 'en') AS same, d.status, d.finish_reason, d.model, d.input_tokens
FROM passing, LATERAL hymt_translate_details(t, 'zh', 'en') d ORDER BY id;

-- The same language under two names; a text of any kind passes then.
SELECT hymt_translate('红色自行车', 'zh', 'zh-CN'), hymt_translate('bicycle', 'en', 'en-GB'),
	hymt_translate('bicycle', 'en_us', 'EN');
SELECT hymt_translate(repeat('长', 5000000), 'zh', 'zh') = repeat('长', 5000000) AS same;

-- These have words. The model is asked for each.
CREATE TEMP TABLE words (id int GENERATED ALWAYS AS IDENTITY, t text);
INSERT INTO words (t) VALUES
	('a'), ('A'), ('iPhone15'), ('5 kg'), ('一'), ('AB-12 红'), ('AB-12红'), ('https://example.com的'), ('example.com'),
	('a@b'), ('@someone'), ('not://'), ('ⅷ级');
SELECT id, t, d.status FROM words, LATERAL hymt_translate_details(t, 'zh', 'en', on_error => 'source') d
WHERE d.status <> 'unchanged' ORDER BY id;
