"""SentencePiece models and the files beside them, whole ones and every way in which one is refused."""
import struct

from seeds import JSON_WORDS, compact, files

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, kind, content):
    """A field of a message: a varint (0), 8 bytes (1), bytes (2), 4 bytes (5)."""
    body = varint(content) if kind == 0 else (varint(len(content)) if kind == 2 else b"") + content
    return varint(number << 3 | kind) + body


def piece(text, score=0.0, kind=NORMAL):
    body = field(1, 2, text if isinstance(text, bytes) else text.encode()) + field(2, 5, struct.pack("<f", score))
    return field(1, 2, body + (field(3, 0, kind) if kind != NORMAL else b""))


PIECES = [piece("<unk>", 0, UNKNOWN), piece("<s>", 0, CONTROL), piece("</s>", 0, CONTROL)]
LETTERS = [piece(text, -score) for score, text in enumerate(("▁", "a", "b", "c", "ab", "▁a", "▁ab", "abc", "1", "中"), 3)]
MORE = [piece("<|end|>", 0, USER), piece("[tag]", 0, USER), piece("unused", 0, UNUSED)]
BYTES = [piece(f"<0x{byte:02X}>", 0, BYTE) for byte in range(256)]
FEW = BYTES[:4]


def trainer(kind=2, fallback=False, extra=b""):
    return field(2, 2, field(3, 0, kind) + (field(35, 0, 1) if fallback else b"") + extra)


def normalizer(*parts):
    return field(3, 2, b"".join(parts))


def model(*pieces, tail=b"", kind=2, fallback=False, before=None, extra=b"", normal=b""):
    return (b"".join(before if before is not None else PIECES + LETTERS) + b"".join(pieces) +
            trainer(kind, fallback, extra) + normalizer(field(1, 2, b"identity"), normal) + tail)


def charsmap(units, texts=b"a\0", size=None):
    trie = b"".join(struct.pack("<I", unit) for unit in units)
    return field(2, 2, struct.pack("<I", len(trie) if size is None else size) + trie + texts)


GOOD = model(*MORE)
WHOLE = model(*MORE, *BYTES, fallback=True)
CONFIG = compact({"add_bos_token": True, "bos_token": "<s>", "legacy": False, "unk_token": {"content": "<unk>"},
                  "added_tokens_decoder": {"1": {"content": "<s>", "special": True}, "16": {"content": "<pad>", "special": True}}})
ADDED = compact({"<pad>": 16, "<x>": 17})
MAP = compact({"eos_token": "</s>", "additional_special_tokens": ["<x>", "[tag]", "absent", 5]})

SEEDS = {
    "bpe": GOOD, "unigram": model(*MORE, kind=1),
    "bytes": WHOLE, "unigram bytes": model(*MORE, *BYTES, kind=1, fallback=True),
    "all files": files(tokenizer__model=GOOD, added_tokens__json=ADDED, tokenizer_config__json=CONFIG, special_tokens_map__json=MAP),
    "nothing": b"", "empty": b"#file tokenizer.model\n", "text": b"version https://git-lfs.github.com/spec/v1\n",
    "cut": GOOD[:-3], "cut in a piece": GOOD[:40], "no pieces": model(before=[]),
    "no unknown": model(before=PIECES[1:] + LETTERS),
    "two unknown": model(piece("<unk2>", 0, UNKNOWN)), "no type": b"".join(PIECES + LETTERS), "type 0": model(kind=0),
    "words": model(kind=3), "type far": model(kind=1 << 40),
    "piece empty": model(piece("")), "piece with zero": model(piece(b"a\0b")), "piece bytes": model(piece(b"\xff")),
    "piece long": model(piece("x" * 3000)), "piece too long": model(piece(b"x" * 70000)),
    "piece twice": model(piece("a", -9)),
    "score nan": model(piece("x", float("nan"))), "score infinite": model(piece("x", float("-inf"))),
    "score wrong": model(field(1, 2, field(1, 2, b"x") + field(2, 0, 1))),
    "spelling wrong": model(field(1, 2, field(1, 0, 1))), "no spelling": model(field(1, 2, b"")),
    "two spellings": model(field(1, 2, field(1, 2, b"x") + field(1, 2, b"y"))),
    "piece cut": model(field(1, 2, b"\x0a\x7f")), "piece more": model(field(1, 2, field(1, 2, b"x") + field(9, 2, b"z"))),
    "kind 0": model(piece("x", 0, 0)), "kind 7": model(piece("x", 0, 7)),
    "kind in two bytes": model(field(1, 2, field(1, 2, b"x") + b"\x18\x84\x00")),
    "byte wrong": model(piece("<0xG0>", 0, BYTE)), "byte short": model(piece("<0x1>", 0, BYTE)),
    "byte lower": model(piece("<0xab>", 0, BYTE)), "byte open": model(piece("<0xAB)", 0, BYTE)),
    "some bytes": model(*FEW, fallback=True), "byte twice": model(*BYTES, BYTES[3], fallback=True),
    "bytes without fallback": model(*BYTES), "fallback without bytes": model(fallback=True),
    "field wrong": model(tail=field(1, 0, 5)), "group": model(tail=b"\x0b\x0c"),
    "fixed 64": model(tail=field(9, 1, bytes(8))),
    "fixed 32": model(tail=field(9, 5, bytes(4))), "varint without end": model(tail=b"\x48" + b"\xff" * 11),
    "unknown field": model(tail=field(15, 2, b"x")), "self test": model(tail=field(4, 2, field(1, 2, field(1, 2, b"a")))),
    "blank behind": model(extra=field(24, 0, 1)), "unknown text": model(extra=field(44, 2, " ⁇? ".encode())),
    "unknown text bytes": model(extra=field(44, 2, b"\xff")), "unknown text zero": model(extra=field(44, 2, b"a\0")),
    "trainer cut": model(tail=field(2, 2, b"\x1a\x7f")), "normalizer cut": model(tail=field(3, 2, b"\x1a\x7f")),
    "denormalizer": model(tail=field(5, 2, field(2, 2, b"x"))), "denormalizer cut": model(tail=field(5, 2, b"\x12\x7f")),
    "denormalizer empty": model(tail=field(5, 2, b"")), "no dummy prefix": model(normal=field(3, 0, 0)),
    "blanks kept": model(normal=field(4, 0, 0)), "not escaped": model(normal=field(5, 0, 0)),
    "all blanks kept": model(normal=field(3, 0, 0) + field(4, 0, 0)),
}
# A character table of which nothing leads anywhere, and damaged ones: 256 units at least.
LEAVES = [1 << 31] * 256
for label, part in {
        "empty": field(2, 2, b""), "short": field(2, 2, b"abc"), "leaves": charsmap(LEAVES),
        "size 0": charsmap(LEAVES, size=0),
        "size odd": charsmap(LEAVES, size=1025), "size all": charsmap(LEAVES, texts=b""),
        "size far": charsmap(LEAVES, size=1 << 31),
        "texts open": charsmap(LEAVES, texts=b"a"), "leads out": charsmap([1 << 20] + LEAVES[1:]),
        "large step": charsmap([1 << 10 | 1 << 9] + LEAVES[1:]), "stays": charsmap([1 << 10] + LEAVES[1:]),
        "text": charsmap([2 << 10] + LEAVES[1:99] + [0x61 | 2 << 10 | 0x100] + LEAVES[100:]),
        "out of texts": charsmap([1 << 10 | 0x100, 1 << 31 | 77] + LEAVES[2:]),
        "to texts": charsmap([1 << 10 | 0x100, 1 << 31 | 1] + LEAVES[2:]), "a for a": charsmap(
            [1 << 10] + LEAVES[1:0x60] + [0x61 | 2 << 10 | 0x100] + LEAVES[0x61:0x62] + [1 << 31] + LEAVES[0x63:])}.items():
    SEEDS[f"table {label}"] = model(normal=part)
for number, (name, text) in enumerate((
        ("added_tokens", "{"), ("added_tokens", "[]"), ("added_tokens", "{}"), ("added_tokens", '{"":16}'),
        ("added_tokens", '{"<p>":-1}'), ("added_tokens", '{"<p>":1e9}'), ("added_tokens", '{"<p>":"16"}'),
        ("added_tokens", '{"<p>":3}'), ("added_tokens", '{"a":16}'), ("added_tokens", '{"a":4}'),
        ("added_tokens", '{"<p>":16,"<q>":16}'), ("added_tokens", '{"<p>":70000}'),
        ("added_tokens", '{"<p>":99999999999}'),
        ("added_tokens", '{"a\\u0000b":16}'), ("tokenizer_config", "[]"), ("tokenizer_config", "x"),
        ("tokenizer_config", '{"added_tokens_decoder":5}'),
        ("tokenizer_config", '{"added_tokens_decoder":{"x":{"content":"<p>"}}}'),
        ("tokenizer_config", '{"added_tokens_decoder":{"16x":{"content":"<p>"}}}'),
        ("tokenizer_config", '{"added_tokens_decoder":{"":{"content":"<p>"}}}'),
        ("tokenizer_config", '{"added_tokens_decoder":{"99999999999999999999":{"content":"<p>"}}}'),
        ("tokenizer_config", '{"added_tokens_decoder":{"16":{"content":5}}}'),
        ("tokenizer_config", '{"added_tokens_decoder":{"16":7}}'),
        ("tokenizer_config", '{"added_tokens_decoder":{"4":{"content":"a","special":true}}}'),
        ("tokenizer_config", '{"add_bos_token":false}'), ("tokenizer_config", '{"bos_token":"absent"}'),
        ("tokenizer_config", '{"bos_token":null}'), ("tokenizer_config", '{"bos_token":{"content":5}}'),
        ("tokenizer_config", '{"legacy":false}'), ("tokenizer_config", '{"eos_token":"a"}'),
        ("special_tokens_map", "{}"), ("special_tokens_map", "5"), ("special_tokens_map", '{"pad_token":"unused"}'),
        ("special_tokens_map", '{"additional_special_tokens":"x"}'),
        ("special_tokens_map", '{"additional_special_tokens":["b"]}'))):
    SEEDS[f"{name} {number}"] = files(tokenizer__model=GOOD, **{name + "__json": text})
SEEDS["many added"] = files(tokenizer__model=GOOD, added_tokens__json=compact({f"<{i}>": 16 + i for i in range(40)}))

WORDS = JSON_WORDS + ["▁", "<0x41>", "<unk>", "<|", "|>", "added_tokens_decoder", "add_bos_token", "legacy", "special",
                      "content", "additional_special_tokens", "#file tokenizer_config.json\n", "#file added_tokens.json\n"]
