"""Small tokenizers of every kind that is understood, and every way in which one can be refused."""
from seeds import JSON_WORDS, compact, edits

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
SPLIT = {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}|\\s+(?!\\S)|[^\\s]+|\\s+"}, "behavior": "Isolated", "invert": False}
VOCAB = {"a": 0, "b": 1, "c": 2, "Ġ": 3, "ab": 4, "abc": 5, "Ċ": 6, "Ã": 7, "ł": 8, "<s>": 9}
TOKENIZER = compact({
    "version": "1.0", "truncation": None,
    "added_tokens": [
        {"id": 9, "content": "<s>", "single_word": False, "special": True},
        {"id": 10, "content": "<|eos|>", "special": True},
        {"id": 11, "content": "/think", "special": False}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [SPLIT, BYTE_LEVEL]},
    "post_processor": BYTE_LEVEL, "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
              "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
              "vocab": VOCAB, "merges": [["a", "b"], ["ab", "c"]]}})

MODEL = TOKENIZER[TOKENIZER.index('"model"'):-1]
SEEDS = edits(TOKENIZER, {
    "merges as strings": ('[["a","b"],["ab","c"]]', '["#version: 0.2","a b","ab c"]'),
    "merges first": (MODEL, '"model":{"merges":["a b"],"type":"BPE","vocab":{"a":0,"b":1,"ab":2}}'),
    "ignore merges": ('"ignore_merges":false', '"ignore_merges":true'),
    "ignore merges twice": ('"ignore_merges":false', '"ignore_merges":true,"ignore_merges":true'),
    "ignore merges number": ('"ignore_merges":false', '"ignore_merges":1'),
    "no normalizer": ('{"type":"Sequence","normalizers":[{"type":"NFC"}]}', "null"),
    "empty normalizers": ('[{"type":"NFC"}]', "[]"),
    "nfc alone": ('{"type":"Sequence","normalizers":[{"type":"NFC"}]}', '{"type":"NFC"}'),
    "nfkc": ('"NFC"', '"NFKC"'),
    "sequence without parts": (',"normalizers":[{"type":"NFC"}]', ""),
    "parts are a number": ('[{"type":"NFC"}]', "3"),
    "part is a number": ('[{"type":"NFC"}]', "[3]"),
    "component without type": ('{"type":"NFC"}', '{"typ":"NFC"}'),
    "type is a number": ('{"type":"NFC"}', '{"type":1}'),
    "no pre_tokenizer": ('"pre_tokenizer":', '"pre_tok":'),
    "pre_tokenizer null": ('"pre_tokenizer":{', '"pre_tokenizer":null,"x":{'),
    "digits": ('"Split"', '"Digits"'),
    "split after bytelevel": ('"use_regex":false}]', '"use_regex":false},{"type":"Split"}]'),
    "string pattern": ('"Regex":"', '"String":"'),
    "other pattern": ('"Regex":"', '"Glob":"'),
    "no pattern": ('"pattern":', '"patter":'),
    "no behavior": ('"behavior":', '"behav":'),
    "removed": ('"Isolated"', '"Removed"'),
    "inverted": ('"invert":false', '"invert":true'),
    "invert number": ('"invert":false', '"invert":1'),
    "prefix space": ('"add_prefix_space":false', '"add_prefix_space":true'),
    "own regex": ('"use_regex":false', '"use_regex":true'),
    "broken regex": ("\\\\s+(?!\\\\S)", "(("),
    "lookbehind": ("\\\\s+(?!\\\\S)", "(?<!x)y"),
    "case": ("\\\\s+(?!\\\\S)", "(?i:'s|'t)"),
    "class": ("[^\\\\s]+", "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+[一-龥&&\\\\w]"),
    "slow regex": ("[^\\\\s]+", "(a+)+$"),
    "empty regex": ("[^\\\\s]+", ""),
    "no decoder": ('"decoder":', '"decode":'),
    "decoder null": ('"decoder":{"type":"ByteLevel"}', '"decoder":null'),
    "decoder sequence": ('"decoder":{"type":"ByteLevel"}',
    '"decoder":{"type":"Sequence","decoders":[{"type":"ByteLevel"}]}'),
    "two decoders": ('"decoder":{"type":"ByteLevel"}',
                     '"decoder":{"type":"Sequence","decoders":[{"type":"ByteLevel"},{"type":"ByteLevel"}]}'),
    "other decoder": ('"decoder":{"type":"ByteLevel"}', '"decoder":{"type":"Metaspace"}'),
    "no model": ('"model":', '"mode":'),
    "two models": ('"model":', '"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"model":'),
    "two decoders, twice": ('"decoder":', '"decoder":{"type":"ByteLevel"},"decoder":'),
    "two normalizers": ('"normalizer":', '"normalizer":null,"normalizer":'),
    "two pre_tokenizers": ('"pre_tokenizer":', '"pre_tokenizer":{"type":"ByteLevel"},"pre_tokenizer":'),
    "two lists of added": ('"added_tokens":', '"added_tokens":[],"added_tokens":'),
    "unigram": ('"BPE"', '"Unigram"'),
    "wordpiece twice": ('"type":"BPE"', '"type":"BPE","type":"WordPiece"'),
    "vocab twice": ('"vocab":', '"vocab":{},"vocab":'),
    "merges twice": ('"merges":', '"merges":[],"merges":'),
    "dropout": ('"dropout":null', '"dropout":0.1'),
    "unknown token": ('"unk_token":null', '"unk_token":""'),
    "prefix": ('"continuing_subword_prefix":""', '"continuing_subword_prefix":"##"'),
    "suffix list": ('"end_of_word_suffix":""', '"end_of_word_suffix":[]'),
    "fuse": ('"fuse_unk":false', '"fuse_unk":true'),
    "byte fallback": ('"byte_fallback":false', '"byte_fallback":true'),
    "no vocab": ('"vocab":', '"voc":'),
    "empty vocab": (compact(VOCAB), "{}"),
    "vocab is a list": (compact(VOCAB), "[]"),
    "no merges": ('"merges":', '"merge":'),
    "negative id": ('"a":0', '"a":-1'),
    "large id": ('"a":0', '"a":9223372036854775807'),
    "id beyond": ('"a":0', '"a":9223372036854775808'),
    "real id": ('"a":0', '"a":0.5'),
    "id twice": ('"b":1', '"b":0'),
    "token twice": ('"b":1', '"a":1'),
    "gap": ('"abc":5', '"abc":70000'),
    "empty token": ('"a":0', '"":0'),
    "strange character": ('"Ċ":6', '"中":6'),
    "merge of unknown": ('["ab","c"]', '["ab","z"]'),
    "merge to unknown": ('["ab","c"]', '["c","c"]'),
    "merge of three": ('["ab","c"]', '["ab","c","a"]'),
    "merge of one": ('["ab","c"]', '["ab"]'),
    "merge of numbers": ('["ab","c"]', "[1,2]"),
    "merge without blank": ('["ab","c"]', '"abc"'),
    "merge with two blanks": ('["ab","c"]', '"a b c"'),
    "merge again": ('["ab","c"]', '["a","b"]'),
    "merge is a number": ('["ab","c"]', "7"),
    "added without id": ('"id":10,', ""),
    "added without content": ('"content":"<|eos|>",', ""),
    "added empty": ("<|eos|>", ""),
    "added far": ('"id":10', '"id":1000000000000'),
    "added negative": ('"id":10', '"id":-10'),
    "added real": ('"id":10', '"id":1.5'),
    "added over token": ('"id":10', '"id":0'),
    "added twice": ('"id":11', '"id":10'),
    "added special number": ('"special":true', '"special":1'),
    "added is a number": ('{"id":11,"content":"/think","special":false}', "5"),
    "added is an object": ('"added_tokens":[', '"added_tokens":{"a":['),
    "escapes": ('"a":0', '"\\u0061":0,"\\ud83d\\ude00":12,"\\"\\\\\\/\\b\\f\\n\\r\\t":13'),
    "half a surrogate": ('"a":0', '"\\ud83d":0'),
    "wrong escape": ('"a":0', '"\\x":0'),
    "short escape": ('"a":0', '"\\u00":0'),
    "nul": ('"a":0', '"\\u0000":0'),
    "garbage behind": ('"0.2"' if '"0.2"' in TOKENIZER else '"1.0"', '"1.0"}x{"a":"b"'),
    "literal": ('"truncation":null', '"truncation":nul'),
    "numbers": ('"truncation":null', '"truncation":[-0.5e+10,0,1E5,-3]'),
    "bad number": ('"truncation":null', '"truncation":01'),
    "open list": ('"truncation":null', '"truncation":[1,'),
    "colon": ('"truncation":null', '"truncation" null'),
    "comma": ('"truncation":null,', '"truncation":null '),
})
SEEDS = {label: text.encode() for label, text in SEEDS.items()}
# Patterns in the dialect of these files, some of them in none.
for number, pattern in enumerate((
        r"\pL+", r"\p{Letter}+", r"\p{Foo}", r"\p", r"\P{N}", r"\x41", r"\x{4e2D}+", r"\x{}", r"\x{1234567}",
        r"\x{41", r"\x4", r"\u4e2d", r"\u4e",
        r"[\x{41}-\x{5A}]", r"[\u4e00-\u9fff]+", r"[a-z&&[^b]]", r"[a-z--b]", r"[a~~b]", r"[[:alpha:]]", r"[]a]",
        r"[^]a]", r"[a", r"[z-a]", r"[\d\w\s\D\W\S]",
        r"\d+\w*\s?\D\W\S", r"\h\R\X", r"\b\B\A\z\Z\G", r"\Qabc\E", r"\1(a)", r"(?<name>a)\k<name>", r"(?P<n>a)",
        r"(?>a+)b", r"(?:a|b)", r"(?=a)", r"(?<=a)b",
        r"(?<!a)b", r"(?i)a", r"(?m)^a$", r"(?s).", r"(?x) a", r"(?-i:a)", r"(?#c)", r"(?R)", r"(*ACCEPT)",
        r"(*UTF8)", r"a++", r"a{2,}", r"a{,3}", r"a{2}{3}", r"{", r"a{70000}",
        r"^", r"$", r".", r"\n\r\t\f\v\e\a", r"\c", r"\N{U+41}", r"\o{101}", r"\08", r"\-\.\/", r"\é", "\\", r"|",
        r"()", r"(", r")", r"x*", r"(x*)*y", r"(a|aa)+$", "\0",
        "[\u3040-ゟ]+", "(" * 300 + ")" * 300)):
    SEEDS[f"pattern {number}"] = TOKENIZER.replace(compact(SPLIT["pattern"]["Regex"]), compact(pattern)).encode()
# Many tokens and merges, so that the tables grow.
MANY = {**VOCAB, **{f"{a}{b}": 100 + i for i, (a, b) in enumerate((a, b) for a in map(chr, range(0x41, 0x5b)) for b in "abc")},
        **{chr(c): 300 + c for c in range(0x41, 0x5b)}}
SEEDS["many"] = TOKENIZER.replace(compact(VOCAB), compact(MANY)).replace(
    '[["a","b"],["ab","c"]]', compact([[a, b] for a in map(chr, range(0x41, 0x5b)) for b in "abc"])).encode()
SEEDS["many steps"] = TOKENIZER.replace(compact(SPLIT), ",".join([compact(SPLIT)] * 40)).encode()
SEEDS["long token"] = TOKENIZER.replace('"a":0', '"a":0,"' + "a" * 3000 + '":20').encode()
SEEDS["long added token"] = TOKENIZER.replace("<|eos|>", "中é\\u00e9\\u4e2D\\u0001" * 200).encode()
for number, text in enumerate((
        '"truncation":nulL', '"truncation":-', '"truncation":1.', '"truncation":1e', '"truncation":-01',
        '"truncation":"', '"truncation":tru',
        '"truncation":[[1,2],{"a":[true,false,null]}]', '"truncation":{"a":1,}', '"truncation":[1,]',
        '"truncation":{1:2}', '"truncation":"\\uD83D\\u0041"',
        '"truncation":"\\udE00"', '"truncation":"\\u00AF\\uABCD"', '"truncation":99999999999999999999999999')):
    SEEDS[f"json {number}"] = TOKENIZER.replace('"truncation":null', text).encode()
for number, (old, new) in enumerate((
        ('"id":10', '"id":99999999999999999999'), ('"id":10', '"id":"10"'), ('"content":"<|eos|>"', '"content":10'),
        ('"type":"BPE"', '"type":null'),
        ('"special":true}', '"special":true,"x":'), ('"decoder":{"type":"ByteLevel"}', '"decoder":nope'),
        ('"content":"<|eos|>"', '"content":"ab"'),
        ('"content":"<|eos|>","special":true', '"content":"a","special":true'), ('"id":9,"content":"<s>"',
        '"id":4,"content":"ab"'),
        ('"id":9,"content":"<s>"', '"id":0,"content":"a"'), ('["ab","c"]', '["","c"]'), ('["ab","c"]', '"ab  c"'),
        ('["ab","c"]', '" "'),
        ('"added_tokens":[', '"added_tokens":null,"x":['), ('"vocab":{', '"vocab":{"\\u00zz":1,'), ('"vocab":{',
        '"vocab":{"a" 1,'))):
    SEEDS[f"member {number}"] = TOKENIZER.replace(old, new, 1).encode()
SEEDS.update({
    "good": TOKENIZER.encode(), "nothing": b"", "empty": b"#file tokenizer.json\n", "list": b"[]", "object": b"{}",
    "deep": b"[" * 3000, "deep objects": b'{"a":' * 3000,
    "nested sequences": TOKENIZER.replace('{"type":"NFC"}', '{"type":"Sequence","normalizers":[' * 70 + "]}" * 70).encode(),
    "bytes": TOKENIZER.encode().replace(b'"a":0', b'"\xff\xfe":0'),
    "control": TOKENIZER.encode().replace(b'"a":0', b'"\x01":0'),
    "cut": TOKENIZER.encode()[:-40],
    "blanks": TOKENIZER.replace(",", " ,\n\t\r ").replace(":{", " : {").encode(),
})

WORDS = JSON_WORDS + ["ByteLevel", "Sequence", "Split", "Isolated", "Regex", "String", "NFC", "BPE", "\\\\p{L}", "(?!",
                      "\\\\s+", "{1,3}",
                      "(?i:", "[^", "\"vocab\":", "\"merges\":", "\"added_tokens\":", "\"special\":true", "Ġ"]
