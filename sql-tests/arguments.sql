-- Arguments: which are refused, and with which code. Wrong values come before values that are not supported yet.
-- The model may still be loading when the first test begins: a NOTICE about it is no difference.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS hymt;
\set VERBOSITY sqlstate
\pset null '(null)'

-- A null text is null, whatever else there is.
SELECT hymt_translate(NULL, 'zh', 'en');
SELECT hymt_translate(NULL, 'no such language', NULL, NULL, 'g', 'f', 'e', '[]');
SELECT hymt_translate_details(NULL, 'no such language', NULL);

-- Languages.
SELECT hymt_translate('42', 'no such language', 'en');
SELECT hymt_translate('42', 'zh', 'no such language');
SELECT hymt_translate('42', '', 'en');
SELECT hymt_translate('42', 'zh', '');
SELECT hymt_translate('42', 'zh', NULL);
SELECT hymt_translate('42', 'zh', 'auto');
SELECT hymt_translate('42', 'zh-CN', 'en-US'), hymt_translate('42', 'ZH_tw', 'pt-BR');

-- format, on_error, options.
SELECT hymt_translate('42', 'zh', 'en', format => 'pdf');
SELECT hymt_translate('42', 'zh', 'en', format => NULL);
SELECT hymt_translate('42', 'zh', 'en', on_error => 'ignore');
SELECT hymt_translate('42', 'zh', 'en', on_error => NULL);
SELECT hymt_translate('42', 'zh', 'en', on_error => 'error'), hymt_translate('42', 'zh', 'en', on_error => 'null'),
	hymt_translate('42', 'zh', 'en', on_error => 'source');
SELECT hymt_translate('42', 'zh', 'en', options => '[]');
SELECT hymt_translate('42', 'zh', 'en', options => '1');
SELECT hymt_translate('42', 'zh', 'en', options => 'null');
SELECT hymt_translate('42', 'zh', 'en', options => '{"max_token": 5}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"max_tokens": 0}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"max_tokens": -1}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"max_tokens": 2.5}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"max_tokens": 1e300}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"max_tokens": "5"}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"max_tokens": null}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"max_tokens": {"a": [1, {"b": 2}]}, "max_tokens2": 1}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"priority": 1}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"priority": "urgent"}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"priority": "bulk"}'),
	hymt_translate('42', 'zh', 'en', options => '{"priority": "normal"}');
SELECT hymt_translate('42', 'zh', 'en', options => '{}'), hymt_translate('42', 'zh', 'en', options => NULL),
	hymt_translate('42', 'zh', 'en', options => '{"max_tokens": 5}'),
	hymt_translate('42', 'zh', 'en', options => '{"max_tokens": 5.0}');

-- How tokens are drawn, and with which adapter: checked even where nothing is drawn.
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": {}}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": {"temperature": 0.7, "top_k": 20, "top_p": 0.6, "seed": -9223372036854775808}}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": 1}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": []}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": {"temperature": -0.1}}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": {"temperature": 1e300}}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": {"temperature": "1"}}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": {"top_p": 0}}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": {"top_p": 1e-300}}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": {"top_p": 1.01}}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": {"top_k": -1}}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": {"top_k": 1.5}}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": {"seed": 9223372036854775808}}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": {"heat": 1}}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"adapter": "no-such-adapter"}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"adapter": ""}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"adapter": null}');

-- Not supported yet: 0A000. What is wrong besides is said first.
SELECT hymt_translate('42', 'auto', 'en');
SELECT hymt_translate('42', NULL, 'en');
SELECT hymt_translate('42', 'zh', 'en', glossary => 'a glossary');
SELECT hymt_translate('42', 'zh', 'en', format => 'html');
SELECT hymt_translate('42', 'zh', 'en', format => 'markdown');
SELECT hymt_translate('42', 'zh', 'en', format => 'icu');
SELECT hymt_translate('42', 'zh', 'en', format => 'auto');
SELECT hymt_translate('42', 'zh', 'en', options => '{"max_chars": 1, "max_tokens": "x"}');
SELECT hymt_translate('42', NULL, 'no such language');
SELECT hymt_translate('42', NULL, 'en', on_error => 'ignore');
SELECT hymt_translate('42', NULL, 'en', 'a context', format => 'pdf');

-- Messages and hints once in full.
\set VERBOSITY terse
SELECT hymt_translate('42', 'xx', 'en');
SELECT hymt_translate('42', 'zh', 'en', options => '{"max_token": 5}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": {"heat": 1}}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": {"temperature": 101}}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": {"top_p": 0}}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": {"top_k": -1}}');
SELECT hymt_translate('42', 'zh', 'en', options => '{"sampling": {"seed": "1"}}');
\set VERBOSITY default
SELECT hymt_translate('42', 'zh', 'en', options => '{"adapter": "legal"}');
SELECT hymt_translate('42', 'auto', 'en');
SELECT hymt_translate('42', 'zh', 'xx');
