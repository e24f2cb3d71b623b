"""GGUF files: every type of value and of tensor, and every way in which container, metadata or tokenizer are refused."""
import struct

U8, I8, U16, I16, U32, I32, FLOAT, BOOL, STRING, ARRAY, U64, I64, DOUBLE = range(13)
PACK = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", FLOAT: "f", BOOL: "?", U64: "Q", I64: "q", DOUBLE: "d"}
F32, F16, Q4_0, Q8_0, Q4_K, Q6_K, BF16 = 0, 1, 2, 8, 12, 14, 30
BLOCKS = {F32: (1, 4), F16: (1, 2), BF16: (1, 2), Q4_0: (32, 18), Q8_0: (32, 34), Q4_K: (256, 144), Q6_K: (256, 210)}
ARCH = "hunyuan-dense."
DROP = object()


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, content):
    """The bytes of a value with its type; of an array `content` is (type, list) or (type, list, a number that lies)."""
    if kind == STRING:
        return struct.pack("<I", kind) + string(content)
    if kind == ARRAY:
        element, items, count = content if len(content) == 3 else (*content, len(content[1]))
        body = b"".join(string(item) if element == STRING else struct.pack("<" + PACK[element], item) for item in items)
        return struct.pack("<IIQ", kind, element, count) + body
    return struct.pack("<I", kind) + struct.pack("<" + PACK[kind], content)


def size_of(kind, shape):
    block, size = BLOCKS.get(kind, (1, 1))
    count = 1
    for extent in shape:
        count *= extent
    return count // block * size


def build(values, tensors, counts=None, version=3, magic=b"GGUF", align=32):
    """values: name to (type, content) or bytes; tensors: name to (type, shape with the rows first[, offset])."""
    parts = [magic + struct.pack("<IQQ", version, *(counts or (len(tensors), len(values))))]
    for key, entry in values.items():
        parts.append(string(key) + (entry if isinstance(entry, bytes) else value(*entry)))
    at = 0
    for name, (kind, shape, *offset) in tensors.items():
        parts.append(string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape)))
        parts.append(struct.pack("<IQ", kind, offset[0] if offset else at))
        if size_of(kind, shape) < 1 << 20:      # the others are lies
            at += size_of(kind, shape) + -size_of(kind, shape) % align
    head = b"".join(parts)
    return head + bytes(-len(head) % align) + bytes((i * 7 + 1) & 0x3F for i in range(at))


# --- a model -----------------------------------------------------------------------------------------------------

# The letters a to d, their merges, and what else a tokenizer has.
TOKENS = ["a", "b", "c", "d", "ab", "abc", "Ġ", "<s>", "<tool>", "[PAD9]"]
TYPES = [1, 1, 1, 1, 1, 1, 1, 3, 4, 5]
TOKENIZER = {
    "tokenizer.ggml.model": (STRING, "gpt2"), "tokenizer.ggml.pre": (STRING, "hunyuan-dense"),
    "tokenizer.ggml.tokens": (ARRAY, (STRING, TOKENS)), "tokenizer.ggml.token_type": (ARRAY, (I32, TYPES)),
    "tokenizer.ggml.merges": (ARRAY, (STRING, ["a b", "ab c"])), "tokenizer.ggml.eos_token_id": (U32, 7),
}


def metadata(hidden, heads, head_dim, inner):
    return {
        "general.architecture": (STRING, "hunyuan-dense"), "general.name": (STRING, "HY-MT1.5 small"),
        ARCH + "block_count": (U32, 1), ARCH + "context_length": (U32, 64), ARCH + "embedding_length": (U32, hidden),
        ARCH + "feed_forward_length": (U32, inner), ARCH + "attention.head_count": (U32, heads),
        ARCH + "attention.head_count_kv": (U32, 1), ARCH + "attention.key_length": (U32, head_dim),
        ARCH + "attention.value_length": (U32, head_dim), ARCH + "rope.dimension_count": (U32, head_dim),
        ARCH + "attention.layer_norm_rms_epsilon": (FLOAT, 1e-5), ARCH + "rope.freq_base": (FLOAT, 10000.0),
        ARCH + "vocab_size": (U32, 10), **TOKENIZER}


def tensors(hidden, heads, head_dim, inner, kind):
    """Matrices with rows of whole blocks in one type, the others in F16."""
    def matrix(rows, columns):
        return (kind if columns % BLOCKS[kind][0] == 0 else F16, [rows, columns])

    query = heads * head_dim
    layer = {"attn_q": matrix(query, hidden), "attn_k": matrix(head_dim, hidden), "attn_v": matrix(head_dim, hidden),
             "attn_output": matrix(hidden, query), "ffn_gate": matrix(inner, hidden), "ffn_up": matrix(inner, hidden),
             "ffn_down": matrix(hidden, inner), "attn_norm": (F32, [hidden]), "ffn_norm": (F32, [hidden]),
             "attn_q_norm": (F32, [head_dim]), "attn_k_norm": (F32, [head_dim])}
    return {"token_embd.weight": matrix(10, hidden), "output_norm.weight": (F32, [hidden]),
            **{f"blk.0.{name}.weight": tensor for name, tensor in layer.items()}}


SHAPES = {F32: (8, 2, 4, 6), F16: (8, 2, 4, 6), BF16: (8, 2, 4, 6), Q8_0: (32, 2, 4, 32), Q4_0: (32, 2, 4, 32),
          Q4_K: (256, 1, 2, 2), Q6_K: (256, 1, 2, 2)}
SMALL = SHAPES[BF16]


def model(changes=None, weights=None, kind=BF16, **how):
    """The small model with other values or tensors."""
    values = {**metadata(*SHAPES[kind]), **(changes or {})}
    stored = {**tensors(*SHAPES[kind], kind), **(weights or {})}
    return build({key: entry for key, entry in values.items() if entry is not DROP},
                 {name: entry for name, entry in stored.items() if entry is not DROP}, **how)


def alone(entry, key="k"):
    """A file of one value."""
    return build({key: entry}, {})


SEEDS = {f"type {kind}": model(kind=kind) for kind in SHAPES}
SEEDS.update({
    "untied": model(weights={"output.weight": (BF16, [10, 8])}),
    "tokenizer only": build({"general.architecture": (STRING, "hunyuan-dense"), **TOKENIZER}, {}),
    "nothing in it": build({}, {}), "short": b"GGUF\3\0\0\0", "empty": b"#file model.gguf\n", "nothing": b"",
    "magic": model(magic=b"GGML"), "version": model(version=2), "big endian": model(version=3 << 24),
    "cut in the header": model()[:700], "cut in a name": model()[:27], "cut in the data": model()[:-40],
    "ends at the header": build({}, {"a": (F32, [1])})[:-64],
    "more values": model(counts=(13, 1 << 21)), "all values": model(counts=(13, (1 << 64) - 1)),
    "more tensors": model(counts=((1 << 64) - 1, 20)), "one tensor more": model(counts=(14, 20)),
    "aligned to 8": model({"general.alignment": (U32, 8)}, align=8),
    "aligned to 7": model({"general.alignment": (U32, 7)}), "aligned to 0": model({"general.alignment": (U32, 0)}),
    "aligned far": model({"general.alignment": (U64, 1 << 40)}),
    "aligned to text": model({"general.alignment": (STRING, "8")}),
    "key twice": model()[:8] + struct.pack("<QQ", 0, 2) + (string("k") + value(U8, 1)) * 2,
    "key empty": alone((U8, 1), ""), "key with zero": alone((U8, 1), "a\0b"),
    "value of no type": alone(struct.pack("<II", 13, 0)), "array of arrays": alone(struct.pack("<IIQ", 9, 9, 0)),
    "array of no type": alone(struct.pack("<IIQ", 9, 77, 1)), "array cut": alone((ARRAY, (I32, [1, 2], 1 << 40))),
    "array wraps": alone((ARRAY, (U64, [1], 1 << 61))), "strings cut": alone((ARRAY, (STRING, ["a"], 3))),
    "string cut": alone(struct.pack("<IQ", 8, 1 << 60)), "strings": alone((ARRAY, (STRING, ["", "a", "bc"]))),
})
for at in range(25, 1900, 41):
    SEEDS[f"cut at {at}"] = model()[:at]
NO_TENSORS = build({"general.architecture": (STRING, "hunyuan-dense"), "k": (U8, 1)}, {})
SEEDS["no tensors, no padding"] = NO_TENSORS[:24 + 8 + 20 + 4 + 8 + 13 + 8 + 1 + 4 + 1]
SEEDS["tensors, no padding"] = build({}, {"a": (F32, [8])})[:24 + 8 + 1 + 4 + 8 + 4 + 8]
for kind in PACK:
    SEEDS[f"value {kind}"] = model({"general.sampling.temp": (kind, 1), ARCH + "vocab_size": (kind, 10 if kind != BOOL else 1),
                                    "general.sampling.top_k": (kind, 1)})
    SEEDS[f"array {kind}"] = model({"tokenizer.ggml.token_type": (ARRAY, (kind, TYPES if kind != BOOL else [1] * 10))})
SEEDS["value negative"] = model({ARCH + "vocab_size": (I64, -10)})
SEEDS["value large"] = model({ARCH + "vocab_size": (U64, (1 << 64) - 1)})

for label, (name, entry) in {
        "no name": ("", (F32, [8])), "long name": ("x" * 256, (F32, [8])), "zero in its name": ("a\0b", (F32, [8])),
        "no dimension": ("extra", (F32, [])), "five dimensions": ("extra", (F32, [1, 1, 1, 1, 1])),
        "four dimensions": ("extra", (F32, [1, 1, 1, 8])), "empty": ("extra", (F32, [0])),
        "negative": ("extra", (F32, [1 << 63])), "elements wrap": ("extra", (F32, [1 << 32, 1 << 32], 0)),
        "bytes wrap": ("extra", (F32, [1 << 62], 0)), "no type": ("extra", (4, [8])),
        "unknown type": ("extra", (99, [8])),
        "half a block": ("extra", (Q8_0, [33])), "not aligned": ("extra", (F32, [8], 4)),
        "far": ("extra", (F32, [8], 1 << 40)), "farther": ("extra", (F32, [8], (1 << 64) - 32)),
        "overlaps": ("extra", (F32, [8], 0)), "extra": ("extra.weight", (F32, [8])),
        "bias": ("blk.0.attn_q.bias", (F32, [8])), "doubles": ("output_norm.weight", (28, [8])),
        "quantised vector": ("output_norm.weight", (Q8_0, [32])),
        "quantised scales": ("blk.0.attn_norm.weight", (24, [8])),
        "embedding gone": ("token_embd.weight", DROP), "embedding a vector": ("token_embd.weight", (BF16, [80])),
        "embedding of 11": ("token_embd.weight", (BF16, [11, 8])), "norm gone": ("blk.0.attn_q_norm.weight", DROP),
        "matrix turned": ("blk.0.ffn_down.weight", (BF16, [6, 8])),
        "integers": ("blk.0.attn_k.weight", (26, [4, 8]))}.items():
    SEEDS[f"tensor {label}"] = model(weights={name: entry})
SEEDS["tensor twice"] = build({}, {"a": (F32, [8]), "b": (F32, [8])}).replace(string("b"), string("a"))

for label, (key, entry) in {
        "no architecture": ("general.architecture", DROP), "architecture a number": ("general.architecture", (U32, 1)),
        "another architecture": ("general.architecture", (STRING, "llama")), "split": ("split.count", (U16, 2)),
        "split text": ("split.count", (STRING, "x")), "not split": ("split.count", (U16, 1)),
        "rope linear": (ARCH + "rope.scaling.type", (STRING, "linear")),
        "rope none": (ARCH + "rope.scaling.type", (STRING, "none")),
        "rope number": (ARCH + "rope.scaling.type", (U32, 1)), "no heads": (ARCH + "attention.head_count", DROP),
        "0 heads": (ARCH + "attention.head_count", (U32, 0)), "no kv heads": (ARCH + "attention.head_count_kv", DROP),
        "heads text": (ARCH + "attention.head_count", (STRING, "2")), "no hidden": (ARCH + "embedding_length", DROP),
        "no key length": (ARCH + "attention.key_length", DROP),
        "key length text": (ARCH + "attention.key_length", (STRING, "4")),
        "rotated": (ARCH + "rope.dimension_count", (U32, 2)),
        "rotated text": (ARCH + "rope.dimension_count", (STRING, "")),
        "values": (ARCH + "attention.value_length", (U32, 8)), "no layers": (ARCH + "block_count", DROP),
        "layers text": (ARCH + "block_count", (STRING, "1")),
        "no epsilon": (ARCH + "attention.layer_norm_rms_epsilon", DROP),
        "epsilon nan": (ARCH + "attention.layer_norm_rms_epsilon", (FLOAT, float("nan"))),
        "epsilon text": (ARCH + "attention.layer_norm_rms_epsilon", (STRING, "x")),
        "epsilon integer": (ARCH + "attention.layer_norm_rms_epsilon", (U32, 1)),
        "no base": (ARCH + "rope.freq_base", DROP),
        "base double": (ARCH + "rope.freq_base", (DOUBLE, 1e4)),
        "base infinite": (ARCH + "rope.freq_base", (FLOAT, float("inf"))),
        "rows": (ARCH + "vocab_size", (U32, 11)), "no vocab": (ARCH + "vocab_size", DROP),
        "stop text": ("tokenizer.ggml.eos_token_id", (STRING, "7")),
        "two stops": ("tokenizer.ggml.eot_token_id", (U32, 8)),
        "no stop": ("tokenizer.ggml.eos_token_id", DROP), "stop beyond": ("tokenizer.ggml.eos_token_id", (U32, 10)),
        "penalty": ("general.sampling.penalty_repeat", (FLOAT, 1.05)), "top_p": ("general.sampling.top_p", (FLOAT, 0.6)),
        "penalty text": ("general.sampling.penalty_repeat", (STRING, "1")),
        "top_k real": ("general.sampling.top_k", (FLOAT, 20.0)),
        "top_k": ("general.sampling.top_k", (I32, 20)), "no name": ("general.name", DROP),
        "name number": ("general.name", (U32, 2)), "name bytes": ("general.name", (STRING, b"\xff\xfe\x1b[1m")),
        "name long": ("general.name", (STRING, "Hy-MT2 " * 60))}.items():
    SEEDS[f"model {label}"] = model({key: entry})

for label, (key, entry) in {
        "no model": ("model", DROP), "model number": ("model", (U32, 1)), "llama": ("model", (STRING, "llama")),
        "no pre": ("pre", DROP), "hunyuan": ("pre", (STRING, "hunyuan")), "other pre": ("pre", (STRING, "qwen2" * 20)),
        "no tokens": ("tokens", DROP), "tokens of numbers": ("tokens", (ARRAY, (I32, TYPES))),
        "0 tokens": ("tokens", (ARRAY, (STRING, []))), "token empty": ("tokens", (ARRAY, (STRING, [""] + TOKENS[1:]))),
        "token bytes": ("tokens", (ARRAY, (STRING, [b"\xff"] + TOKENS[1:]))),
        "token outside": ("tokens", (ARRAY, (STRING, ["中"] + TOKENS[1:]))),
        "token twice": ("tokens", (ARRAY, (STRING, ["b"] + TOKENS[1:]))),
        "control twice": ("tokens", (ARRAY, (STRING, TOKENS[:8] + ["<s>", "x"]))),
        "control a token": ("tokens", (ARRAY, (STRING, TOKENS[:7] + ["a", "b", "x"]))),
        "no types": ("token_type", DROP), "types of text": ("token_type", (ARRAY, (STRING, TOKENS))),
        "types a number": ("token_type", (I32, 1)), "9 types": ("token_type", (ARRAY, (I32, TYPES[:9]))),
        "unknown token": ("token_type", (ARRAY, (I32, [2] + TYPES[1:]))),
        "byte token": ("token_type", (ARRAY, (I32, [6] + TYPES[1:]))),
        "negative type": ("token_type", (ARRAY, (I32, [-1] + TYPES[1:]))),
        "no ordinary": ("token_type", (ARRAY, (I32, [3] * 10))), "no merges": ("merges", DROP),
        "0 merges": ("merges", (ARRAY, (STRING, []))), "merge of one": ("merges", (ARRAY, (STRING, ["ab"]))),
        "merge of three": ("merges", (ARRAY, (STRING, ["a b c"]))), "merge empty": ("merges", (ARRAY, (STRING, [""]))),
        "merge unknown": ("merges", (ARRAY, (STRING, ["a z"]))),
        "merge to unknown": ("merges", (ARRAY, (STRING, ["c d"]))),
        "merge blank": ("merges", (ARRAY, (STRING, [" "]))),
        "merge again": ("merges", (ARRAY, (STRING, ["a b", "a b"])))}.items():
    SEEDS[f"tokenizer {label}"] = model({"tokenizer.ggml." + key: entry})
SEEDS["tokenizer no ordinary, no merges"] = model({
    "tokenizer.ggml.token_type": (ARRAY, (I32, [3] * 10)), "tokenizer.ggml.merges": (ARRAY, (STRING, ["a b"]))})

WORDS = ["GGUF", "hunyuan-dense", "general.alignment", "tokenizer.ggml.", "token_embd.weight", "output.weight",
         "rope.scaling.type", "none", "gpt2", "split.count"]
