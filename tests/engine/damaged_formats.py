"""
Small good models of the other formats, and the ways in which each can be damaged: GGUF, SentencePiece, FP8, GPTQ, and
adapters of the good model.

FORMATS lists them: a name, what makes the whole one of a copy of the good model, its damages as in damaged_models.py.
ADAPTERS are damages of a good adapter, which write_adapter() makes.
"""
import json
import os
import struct

from damaged_models import (EMBEDDING, FILES_INSTEAD, HEAD_DIM, HEADS, HIDDEN, INNER, KV_HEADS, LAYERS, QUERY, STOP, VOCAB,
                            WEIGHTS, byte_alphabet, config, header_of, in_json, instead, read, read_json, replaced, tensors,
                            tokenizer, write, write_container, write_json)
from model_files import F32, Q8_0, gguf_config, gguf_name, gguf_string, gguf_tokenizer, write_gguf, write_safetensors

FORMATS = []


def remove(directory, *names):
    for name in names:
        os.remove(os.path.join(directory, name))


def of_bytes(file, change):
    return lambda directory: write(directory, file, change(read(directory, file)))


def whole_file_damages(file, optional=False):
    """Whatever stands in its place, and whatever has been cut off."""
    damages = [(f"{file}: {what}", instead(file, make), file, words) for what, make, words in FILES_INSTEAD]
    damages += [(f"{file}: unreadable", lambda directory: os.chmod(os.path.join(directory, file), 0), file,
                 "Permission denied")]
    if not optional:
        damages += [(f"{file}: {what}", of_bytes(file, change), file, "") for what, change in (
            ("empty", lambda data: b""), ("one byte", lambda data: data[:1]),
            ("a third", lambda data: data[:len(data) // 3]),
            ("all but the end", lambda data: data[:-5]), ("zeros", lambda data: bytes(len(data))),
            ("a pointer", lambda data: b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 9\n"))]
    return damages


# --- GGUF --------------------------------------------------------------------------------------------------------

GGUF = "model.gguf"
ARCH = "hunyuan-dense."


def gguf_parts():
    """The good model's metadata and tensors. One pair of letters is a token, so that there is a merge."""
    words = tokenizer()
    words["model"]["vocab"]["ab"] = 270
    words["model"]["merges"] = ["a b"]
    values = gguf_config(config()) | gguf_tokenizer(words, "hunyuan-dense", VOCAB)
    values["tokenizer.ggml.eos_token_id"] = STOP
    return values, {gguf_name(name): (F32, shape, data) for name, (_, shape, data) in tensors().items()}


def write_good_gguf(directory):
    remove(directory, "config.json", "generation_config.json", "tokenizer.json", WEIGHTS)
    write_gguf(os.path.join(directory, GGUF), *gguf_parts())


def in_gguf(change):
    """`change` gets metadata and tensors."""
    def apply(directory):
        values, stored = gguf_parts()
        change(values, stored)
        write_gguf(os.path.join(directory, GGUF), values, stored)
    return apply


def gguf_value(key, new):
    return in_gguf(lambda values, _: values.pop(key) if new is None else values.update({key: new}))


def gguf_tensor(name, new):
    return in_gguf(lambda _, stored: stored.pop(name) if new is None else stored.update({name: new}))


def numbered(at, pack, *numbers):
    """Numbers written over what stands at a place of the file, or behind a piece of text in it."""
    def change(data):
        place = at if isinstance(at, int) else data.index(at) + len(at)
        piece = struct.pack(pack, *numbers)
        return data[:place] + piece + data[place + len(piece):]
    return of_bytes(GGUF, change)


def item(key, index, new):
    """One element of a list in the metadata."""
    return in_gguf(lambda values, _: values[key].__setitem__(index, new))


GGUF_DAMAGES = whole_file_damages(GGUF)
for NAME, CHANGE, WORDS in (
        ("a device", instead(GGUF, lambda path: os.symlink("/dev/zero", path)), ""),
        ("another magic", numbered(0, "<4s", b"GGJT"), "no GGUF"), ("version 2", numbered(4, "<I", 2), "version 2"),
        ("big endian", numbered(4, ">I", 3), "byte order"), ("tensors without end", numbered(8, "<Q", 2 ** 63),
        "more keys or tensors"),
        ("keys without end", numbered(16, "<Q", 2 ** 64 - 1), "more keys or tensors"),
        ("one tensor more", numbered(8, "<Q", 25), ""),
        ("one key less", numbered(16, "<Q", 10), ""), ("a key without end", numbered(24, "<Q", 2 ** 40), "truncated"),
        ("a key of no letters", numbered(24, "<Q", 0), "empty"),
        ("a value of no type", numbered(b"general.architecture", "<I", 99), "type"),
        ("a text without end", numbered(b"general.architecture", "<IQ", 8, 2 ** 63), "truncated"),
        ("a list without end", numbered(b"tokenizer.ggml.token_type", "<IIQ", 9, 5, 2 ** 62), "truncated"),
        ("a list of lists", numbered(b"tokenizer.ggml.token_type", "<II", 9, 9), "array of arrays"),
        ("a list of no type", numbered(b"tokenizer.ggml.token_type", "<II", 9, 44), "type"),
        ("a tensor of 9 dimensions", numbered(b"output_norm.weight", "<I", 9), "dimension"),
        ("an empty tensor", numbered(b"output_norm.weight", "<IQ", 1, 0), "empty dimension"),
        ("a tensor beyond 64 bits", numbered(b"token_embd.weight", "<IQQ", 2, 2 ** 40, 2 ** 40), "beyond any memory"),
        ("a tensor of no type", numbered(b"output_norm.weight", "<IQI", 1, HIDDEN, 4), "type 4"),
        ("an offset between", numbered(b"output_norm.weight", "<IQIQ", 1, HIDDEN, F32, 8), "aligned"),
        ("an offset beyond", numbered(b"output_norm.weight", "<IQIQ", 1, HIDDEN, F32, 2 ** 50), "truncated"),
        ("the place of another", numbered(b"output_norm.weight", "<IQIQ", 1, HIDDEN, F32, 0), "overlap"),
        ("a name twice", of_bytes(GGUF, replaced(gguf_string("blk.1.attn_k.weight"), gguf_string("blk.1.attn_v.weight"))), "twice"),
        ("a key twice", of_bytes(GGUF, replaced(ARCH.encode() + b"attention.key_length", ARCH.encode() + b"embedding_length\0\0\0\0")),
         "zero byte"),
        ("another architecture", gguf_value("general.architecture", "mamba"), "mamba"),
        ("an architecture that is a number", gguf_value("general.architecture", 5), "general.architecture"),
        ("one of several files", gguf_value("split.count", 3), "split.count"),
        ("another rotation", gguf_value(ARCH + "rope.scaling.type", "yarn"), "rope.scaling.type"),
        ("half of each head rotated", gguf_value(ARCH + "rope.dimension_count", 4), "rope.dimension_count"),
        ("other sizes of values", gguf_value(ARCH + "attention.value_length", 4), "attention.value_length"),
        ("an alignment of 24", gguf_value("general.alignment", 24), "general.alignment"),
        ("an alignment that is text", gguf_value("general.alignment", "32"), "general.alignment"),
        ("an epsilon of nothing", gguf_value(ARCH + "attention.layer_norm_rms_epsilon", float("nan")), "epsilon"),
        ("an epsilon of text", gguf_value(ARCH + "attention.layer_norm_rms_epsilon", "small"), "epsilon"),
        ("a base of infinity", gguf_value(ARCH + "rope.freq_base", float("inf")), "rope.freq_base"),
        ("a base below 1", gguf_value(ARCH + "rope.freq_base", 0.5), "base"),
        ("KV heads that do not divide", gguf_value(ARCH + "attention.head_count_kv", 3), "num_key_value_heads"),
        ("layers without end", gguf_value(ARCH + "block_count", 2 ** 32 - 1), "num_hidden_layers"),
        ("no head", gguf_value(ARCH + "attention.head_count", 0), "num_attention_heads"),
        ("one layer more", gguf_value(ARCH + "block_count", LAYERS + 1), "blk.2."),
        ("one layer less", gguf_value(ARCH + "block_count", LAYERS - 1), "blk.1."),
        ("another number of rows", gguf_value(ARCH + "vocab_size", VOCAB + 1), "vocab_size"),
        ("an end beyond the vocabulary", gguf_value("tokenizer.ggml.eos_token_id", VOCAB), "eos_token_id"),
        ("an end that is text", gguf_value("tokenizer.ggml.eos_token_id", "</s>"), "eos_token_id"),
        ("a penalty of text", gguf_value("general.sampling.penalty_repeat", "1.05"), "penalty_repeat"),
        ("a penalty of nothing", gguf_value("general.sampling.penalty_repeat", 0.0), "repetition_penalty"),
        ("no matrix", gguf_tensor("blk.1.attn_q.weight", None), "blk.1.attn_q.weight"),
        ("no embedding", gguf_tensor("token_embd.weight", None), "token_embd.weight"),
        ("a flat embedding", gguf_tensor("token_embd.weight", (F32, [VOCAB * HIDDEN], bytes(4 * VOCAB * HIDDEN))),
        "token_embd.weight"),
        ("a matrix turned", gguf_tensor("blk.0.attn_q.weight", (F32, [HIDDEN, HEADS * HEAD_DIM], bytes(2048))), "shape"),
        ("a matrix of integers", gguf_tensor("blk.0.attn_q.weight", (26, [HEADS * HEAD_DIM, HIDDEN], bytes(2048))),
        "I32"),
        ("blocks longer than rows", gguf_tensor("blk.0.attn_q.weight", (Q8_0, [HEADS * HEAD_DIM, HIDDEN], bytes(544))),
        "whole blocks"),
        ("a bias", gguf_tensor("blk.0.attn_q.bias", (F32, [HEADS * HEAD_DIM], bytes(128))), "blk.0.attn_q.bias"),
        ("frequencies", gguf_tensor("rope_freqs.weight", (F32, [4], bytes(16))), "rope_freqs.weight"),
        ("another tokenizer", gguf_value("tokenizer.ggml.model", "t5"), "t5"),
        ("another pre-tokenizer", gguf_value("tokenizer.ggml.pre", "tekken"), "tekken"),
        ("tokens that are numbers", gguf_value("tokenizer.ggml.tokens", [1, 2]), "tokenizer.ggml.tokens"),
        ("tokens without types", gguf_value("tokenizer.ggml.token_type", [1] * (VOCAB - 1)), "one type for each token"),
        ("types that are text", gguf_value("tokenizer.ggml.token_type", ["1"] * VOCAB), "token_type"),
        ("a token of an unknown type", item("tokenizer.ggml.token_type", 7, 2), "type 2"),
        ("a token twice", item("tokenizer.ggml.tokens", 70, byte_alphabet()[71]), ""),
        ("no ordinary token", gguf_value("tokenizer.ggml.token_type", [5] * VOCAB), ""),
        ("a merge of one", item("tokenizer.ggml.merges", 0, "ab"), "merge"),
        ("a merge of three", item("tokenizer.ggml.merges", 0, "a b c"), "merge"),
        ("a merge of what is not there", item("tokenizer.ggml.merges", 0, "a zz"), ""),
        ("a merge to what is not there", item("tokenizer.ggml.merges", 0, "b a"), "")):
    GGUF_DAMAGES.append((f"GGUF: {NAME}", CHANGE, GGUF, WORDS))
for KEY in ("general.architecture", ARCH + "block_count", ARCH + "context_length", ARCH + "embedding_length",
            ARCH + "feed_forward_length", ARCH + "attention.head_count", ARCH + "attention.layer_norm_rms_epsilon",
            "tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
            "tokenizer.ggml.merges"):
    GGUF_DAMAGES.append((f"GGUF: no {KEY}", gguf_value(KEY, None), GGUF, KEY))
for KEY in ("block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
            "attention.head_count_kv", "attention.key_length", "attention.value_length", "vocab_size"):
    GGUF_DAMAGES.append((f"GGUF: {KEY} as text", gguf_value(ARCH + KEY, "8"), GGUF, KEY))
GGUF_DAMAGES.append(("GGUF: two in one directory",
                     lambda directory: write(directory, "more.gguf", read(directory, GGUF)), "more.gguf", "several"))
FORMATS.append(("GGUF", write_good_gguf, GGUF_DAMAGES))


# --- SentencePiece -----------------------------------------------------------------------------------------------

MODEL = "tokenizer.model"


def field(number, kind, content):
    """A field of a message: a small number (0), or bytes: 4 of them (5), or any number (2)."""
    if kind == 0:
        return bytes([number << 3, content]) if number < 16 else bytes([number << 3 & 127 | 128, number >> 4, content])
    length = len(content)
    return bytes([number << 3 | kind]) + (bytes([length & 127 | 128, length >> 7]) if kind == 2 else b"") + content


def piece(text, kind=1, score=-1.0):
    data = text if isinstance(text, bytes) else text.encode()
    return field(1, 2, field(1, 2, data) + field(2, 5, struct.pack("<f", score)) + field(3, 0, kind))


def spm(*more, head=None, trainer=field(3, 0, 2), normalizer=b""):
    """A model of bytes, a blank and what is given."""
    first = [piece("<unk>", 2), piece("<s>", 3), piece("</s>", 3)] if head is None else head
    pieces = first + [piece(f"<0x{byte:02X}>", 6) for byte in range(256)] + [piece("▁"), piece("a")] + list(more)
    return b"".join(pieces) + field(2, 2, trainer + b"\x98\x02\x01") + field(3, 2, normalizer)


def write_good_sentencepiece(directory):
    remove(directory, "tokenizer.json")
    write(directory, MODEL, spm())
    write_json(directory, "hymt.json", {"templates": {"plain": "{text}"}})
    write_json(directory, "generation_config.json", {"eos_token_id": 2})
    write_json(directory, "config.json", dict(config(), eos_token_id=2))
    write_json(directory, "added_tokens.json", {"<pad>": 261})
    write_json(directory, "tokenizer_config.json", {"bos_token": "<s>", "added_tokens_decoder": {"1": {"content": "<s>"}}})
    write_json(directory, "special_tokens_map.json", {"eos_token": "</s>"})


def table(*units, size=1024, texts=b"\0"):
    """A table of characters whose first units are given."""
    trie = struct.pack(f"<{len(units)}I", *units) + struct.pack("<I", 1 << 31) * (256 - len(units))
    return spm(normalizer=field(2, 2, struct.pack("<I", size) + trie + texts))


NEIGHBOURS = ("added_tokens.json", "tokenizer_config.json", "special_tokens_map.json")
SPM_DAMAGES = whole_file_damages(MODEL)
for NAME, DATA, WORDS in (
        ("no pieces", b"", "no pieces"), ("no unknown piece", spm(head=[piece("<s>", 3)]), "one unknown"),
        ("two unknown pieces", spm(piece("<u>", 2)), "one unknown"), ("words", spm(trainer=field(3, 0, 3)),
        "unigram and BPE"),
        ("no type", spm(trainer=field(3, 0, 0)), "unigram and BPE"),
        ("blanks behind", spm(trainer=field(3, 0, 2) + field(24, 0, 1)), "blanks"),
        ("an empty piece", spm(piece("")), "empty"), ("a zero byte in a piece", spm(piece("a\0")), "UTF-8"),
        ("bytes in a piece", spm(piece(b"\xc3(")), "UTF-8"), ("a score of nothing", spm(piece("b", 1, float("nan"))),
        "score"),
        ("an infinite score", spm(piece("b", 1, float("inf"))), "score"), ("a piece of type 9", spm(piece("b", 9)),
        "type"),
        ("a byte that is none", spm(piece("<0xZZ>", 6)), "<0xNN>"), ("a piece that is a number", spm() + field(1, 0, 5),
        "kind"),
        ("a piece cut", spm() + b"\x0a\x7fa", "cut off"),
        ("a number without end", spm() + b"\x78" + b"\xff" * 12, "cut off"),
        ("another piece of that spelling", spm(piece("a")), ""),
        ("a piece like a control piece", spm(piece("<s>")),
        "spelled like"), ("blanks not escaped", spm(normalizer=field(5, 0, 0)), "escape"),
        ("a denormalizer", spm() + field(5, 2, field(2, 2, b"abc")), "denormalizer"),
        ("a text for the unknown that is none", spm() + field(2, 2, b"\xe2\x02\x01\xff"), "UTF-8"),
        ("a table that is short", spm(normalizer=field(2, 2, b"ab")), "table"), ("a table of no size", table(size=0),
        "table"),
        ("a table of another size", table(size=2048), "table"), ("a table without texts", table(texts=b""), "table"),
        ("a table of open texts", table(texts=b"ab"), "cut off"), ("a table that begins outside", table(1 << 31),
        "leads out"),
        ("a table that leads outside", table(0, 1 << 30), "leads out"),
        ("a table that leads out of its texts", table(1 << 10 | 1 << 8, 1 << 31 | 9), "leads out")):
    SPM_DAMAGES.append((f"SentencePiece: {NAME}", lambda directory, data=DATA: write(directory, MODEL, data), MODEL, WORDS))
SPM_DAMAGES.append(("SentencePiece: more pieces than rows", lambda directory: (remove(directory, "added_tokens.json"), write(
    directory, MODEL, spm(*[piece(f"more{i}") for i in range(20)]))), "the tokenizer", "vocab_size"))
for FILE in NEIGHBOURS:
    SPM_DAMAGES += [damage for damage in whole_file_damages(FILE, True) if "nowhere" not in damage[0]]
    for NAME, DATA in (("empty", b""), ("a list", b"[]"), ("cut", b'{"a'), ("a key twice", b'{"a":1,"a":1}'),
    ("bytes", b'{"\xff":1}')):
        SPM_DAMAGES.append((f"{FILE}: {NAME}", lambda directory, file=FILE, data=DATA: write(directory, file, data), FILE, ""))
for NAME, DATA in (
        ("an id that is text", {"<p>": "261"}), ("a negative id", {"<p>": -1}), ("a huge id", {"<p>": 2 ** 62}),
        ("the id of a piece", {"<p>": 5}), ("a piece of another id", {"a": 261}), ("no spelling", {"": 261}),
        ("an id twice", {"<p>": 261, "<q>": 261})):
    SPM_DAMAGES.append((f"added_tokens.json: {NAME}", lambda directory, data=DATA: write_json(
        directory, "added_tokens.json", data), "added_tokens.json", "added token"))
for NAME, DATA in (
        ("an id that is no number", {"x": {"content": "<p>"}}), ("a token that is a number", {"262": 5}),
        ("a token without spelling", {"262": {"special": True}}), ("the id of a piece", {"5": {"content": "<p>"}})):
    SPM_DAMAGES.append((f"tokenizer_config.json: {NAME}", lambda directory, data=DATA: write_json(
        directory, "tokenizer_config.json", {"added_tokens_decoder": data}), "tokenizer_config.json", "added token"))
SPM_DAMAGES.append(("special_tokens_map.json: an ordinary piece", lambda directory: write_json(
    directory, "special_tokens_map.json", {"eos_token": "a"}), MODEL, "ordinary piece"))
FORMATS.append(("SentencePiece", write_good_sentencepiece, SPM_DAMAGES))


# --- FP8 and GPTQ ------------------------------------------------------------------------------------------------

NORMS = ("layernorm", "norm.weight", "embed_tokens")
SCALE = struct.pack("<f", 0.01)


def is_linear(name):
    return not any(part in name for part in NORMS)


def fp8_tensors():
    found = {}
    for name, (dtype, shape, data) in tensors().items():
        if is_linear(name):
            found[name] = ("F8_E4M3", shape, bytes(i * 7 & 0x77 for i in range(shape[0] * shape[1])))
            found[name + "_scale"] = ("F32", [1], SCALE)
        else:
            found[name] = (dtype, shape, data)
    return found


def gptq_tensors():
    found = {}
    for name, (dtype, shape, data) in tensors().items():
        stem = name[:-len("weight")]
        rows, columns = shape[0], shape[-1]
        if not is_linear(name):
            found[name] = (dtype, shape, data)
            continue
        found[stem + "qweight"] = ("I32", [columns // 8, rows], bytes(i * 11 & 255 for i in range(columns * rows // 2)))
        found[stem + "qzeros"] = ("I32", [columns // 8, rows // 8], b"\x77" * (columns * rows // 16))
        found[stem + "scales"] = ("F16", [columns // 8, rows], struct.pack("<e", 0.01) * (columns * rows // 8))
        found[stem + "g_idx"] = ("I32", [columns], struct.pack(f"<{columns}i", *(i // 8 for i in range(columns))))
    return found


FP8_CONFIG = {"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": ["lm_head"]}
COMPRESSED = {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {
    "group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}}}}
GPTQ_CONFIG = {"quant_method": "gptq", "bits": 4, "group_size": 8, "checkpoint_format": "gptq"}


def write_quantised(make, quantization):
    def apply(directory):
        write_json(directory, "config.json", dict(config(), quantization_config=quantization))
        write_safetensors(os.path.join(directory, WEIGHTS), make())
    return apply


def quantised_tensor(make, name, *content):
    def apply(directory):
        stored = make()
        stored.pop(name)
        if content:
            stored[name] = content
        write_safetensors(os.path.join(directory, WEIGHTS), stored)
    return apply


def quantised_config(quantization, **changes):
    """Changes with None take something away."""
    changed = {key: value for key, value in {**quantization, **changes}.items() if value is not None}
    return lambda directory: write_json(directory, "config.json", dict(config(), quantization_config=changed))


def group_of(**changes):
    return {"config_groups": {"group_0": {"weights": {**COMPRESSED["config_groups"]["group_0"]["weights"], **changes}}}}


STEM = QUERY[:-len("weight")]
ROWS = HEADS * HEAD_DIM
FP8_DAMAGES = [(f"FP8: {name}", change, WEIGHTS, words) for name, change, words in (
    ("no scale", quantised_tensor(fp8_tensors, QUERY + "_scale"), "weight_scale"),
    ("no weight", quantised_tensor(fp8_tensors, QUERY), "q_proj.weight"),
    ("two scales", quantised_tensor(fp8_tensors, QUERY + "_scale", "F32", [2], SCALE * 2), "one for each row"),
    ("no scale in it", quantised_tensor(fp8_tensors, QUERY + "_scale", "F32", [0], b""), "one for each row"),
    ("scales in two directions", quantised_tensor(fp8_tensors, QUERY + "_scale", "F32", [ROWS, 2], SCALE * 2 * ROWS),
    "dimension"),
    ("a scale of nothing", quantised_tensor(fp8_tensors, QUERY + "_scale", "F32", [1], b"\0\0\xc0\x7f"), "finite"),
    ("an infinite scale", quantised_tensor(fp8_tensors, QUERY + "_scale", "BF16", [1], b"\x80\x7f"), "finite"),
    ("a scale of integers", quantised_tensor(fp8_tensors, QUERY + "_scale", "I32", [1], bytes(4)), "scales"),
    ("a norm", quantised_tensor(fp8_tensors, "model.norm.weight", "F8_E4M3", [HIDDEN], bytes(HIDDEN)),
    "model.norm.weight"),
    ("an embedding without scale", quantised_tensor(fp8_tensors, EMBEDDING, "F8_E4M3", [VOCAB, HIDDEN], bytes(VOCAB * HIDDEN)),
     "embed_tokens.weight_scale"),
    ("another shape", quantised_tensor(fp8_tensors, QUERY, "F8_E4M3", [HIDDEN, ROWS], bytes(HIDDEN * ROWS)), "shape"))]
FP8_DAMAGES += [(f"FP8: {name}", change, "config.json", words) for name, change, words in (
    ("no method", quantised_config(FP8_CONFIG, quant_method=None), "quant_method"),
    ("another method", quantised_config(FP8_CONFIG, quant_method="awq"), "awq"),
    ("a method that is a number", quantised_config(FP8_CONFIG, quant_method=8), "quant_method"),
    ("the other kind of 8 bits", quantised_config(FP8_CONFIG, fmt="e5m2"), "e5m2"),
    ("scales for blocks", quantised_config(FP8_CONFIG, weight_block_size=[128, 128]), "weight_block_size"),
    ("another format", quantised_config(COMPRESSED, format="pack-quantized"), "pack-quantized"),
    ("no groups", quantised_config(COMPRESSED, config_groups=None), "config_groups"),
    ("groups that are a list", quantised_config(COMPRESSED, config_groups=[]), "config_groups"),
    ("a group that is a number", quantised_config(COMPRESSED, config_groups={"group_0": 1}), "config_groups"),
    ("4 bits", quantised_config(COMPRESSED, **group_of(num_bits=4)), "num_bits"),
    ("integers", quantised_config(COMPRESSED, **group_of(type="int")), "int"),
    ("scales for groups", quantised_config(COMPRESSED, **group_of(strategy="group")), "group"),
    ("not symmetric", quantised_config(COMPRESSED, **group_of(symmetric=False)), "asymmetric"))]
GPTQ_DAMAGES = [(f"GPTQ: {name}", change, WEIGHTS, words) for name, change, words in (
    *((f"no {part}", quantised_tensor(gptq_tensors, STEM + part), STEM + (part if part != "qweight" else "weight"))
      for part in ("qweight", "qzeros", "scales")),
    ("words turned", quantised_tensor(gptq_tensors, STEM + "qweight", "I32", [ROWS, 2], bytes(8 * ROWS)), "shape"),
    ("words of floats", quantised_tensor(gptq_tensors, STEM + "qweight", "F32", [2, ROWS], bytes(8 * ROWS)), "I32"),
    ("zeros of one group", quantised_tensor(gptq_tensors, STEM + "qzeros", "I32", [1, ROWS // 8], bytes(ROWS // 2)),
    "shape"),
    ("flat zeros", quantised_tensor(gptq_tensors, STEM + "qzeros", "I32", [ROWS // 4], bytes(ROWS)), "shape"),
    ("scales of one group", quantised_tensor(gptq_tensors, STEM + "scales", "F16", [1, ROWS], bytes(2 * ROWS)), "shape"),
    ("scales of integers", quantised_tensor(gptq_tensors, STEM + "scales", "I32", [2, ROWS], bytes(8 * ROWS)), "scales"),
    ("groups of half the inputs", quantised_tensor(gptq_tensors, STEM + "g_idx", "I32", [8], bytes(32)), "shape"),
    ("groups of floats", quantised_tensor(gptq_tensors, STEM + "g_idx", "F32", [16], bytes(64)), "I32"),
    *((f"group {number}", quantised_tensor(gptq_tensors, STEM + "g_idx", "I32", [16], struct.pack("<16i", *[0] * 15, number)),
       "group that does not exist") for number in (2, -1, 2 ** 31 - 1, -2 ** 31)))]
GPTQ_DAMAGES += [(f"GPTQ: {name}", change, "config.json", words) for name, change, words in (
    ("8 bits", quantised_config(GPTQ_CONFIG, bits=8), "bits"), ("no bits", quantised_config(GPTQ_CONFIG, bits=None),
    "bits"),
    ("another format", quantised_config(GPTQ_CONFIG, checkpoint_format="marlin"), "marlin"),
    ("long words", quantised_config(GPTQ_CONFIG, pack_dtype="int64"), "int64"),
    *((f"groups of {json.dumps(size)}", quantised_config(GPTQ_CONFIG, group_size=size), "group_size")
      for size in (0, -2, 1.5, "8", 2 ** 40, [])), ("no groups", quantised_config(GPTQ_CONFIG, group_size=None),
      "group_size"))]
for SIZE in (16, 4):
    GPTQ_DAMAGES.append((f"GPTQ: groups of another size, {SIZE}", quantised_config(GPTQ_CONFIG, group_size=SIZE), WEIGHTS, "shape"))
FORMATS.append(("FP8", write_quantised(fp8_tensors, FP8_CONFIG), FP8_DAMAGES))
FORMATS.append(("GPTQ", write_quantised(gptq_tensors, GPTQ_CONFIG), GPTQ_DAMAGES))


# --- adapters ----------------------------------------------------------------------------------------------------

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER = "adapter_model.safetensors"
RANK = 2
LORA_B = "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight"
LORA_A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


def adapter_tensors():
    found = {}
    for layer in range(LAYERS):
        for name, outputs, inputs in (("self_attn.q_proj", ROWS, HIDDEN),
        ("self_attn.v_proj", KV_HEADS * HEAD_DIM, HIDDEN),
                                      ("mlp.down_proj", HIDDEN, INNER)):
            stem = f"base_model.model.model.layers.{layer}.{name}.lora_"
            found[stem + "A.weight"] = ("F32", [RANK, inputs], SCALE * RANK * inputs)
            found[stem + "B.weight"] = ("F32", [outputs, RANK], SCALE * RANK * outputs)
    return found


def write_adapter(directory):
    os.makedirs(directory)
    write_json(directory, ADAPTER_CONFIG, {"peft_type": "LORA", "r": RANK, "lora_alpha": 4,
                                           "target_modules": ["q_proj", "v_proj", "down_proj"]})
    write_safetensors(os.path.join(directory, ADAPTER), adapter_tensors())


def in_header(change):
    def apply(directory):
        stored = adapter_tensors()
        header = header_of(stored)
        change(header)
        write_container(directory, ADAPTER, header, b"".join(data for _, _, data in stored.values()))
    return apply


# What is wrong with keys and tensors, check_adapters.py tries; here, what is wrong with files.
ADAPTERS = whole_file_damages(ADAPTER_CONFIG) + whole_file_damages(ADAPTER)
ADAPTERS += [(f"{ADAPTER_CONFIG}: {name}", of_bytes(ADAPTER_CONFIG, change), ADAPTER_CONFIG, "") for name, change in (
    ("a list", lambda data: b"[" + data + b"]"), ("UTF-16", lambda data: data.decode().encode("utf-16")),
    ("broken UTF-8", lambda data: b'{"\xff": 1,' + data[1:]), ("a key twice", lambda data: b'{"r": 2,' + data[1:]),
    ("nested without end", lambda data: b'{"x":' + b"[" * 100000),
    ("a number without end", replaced(b'"r": 2', b'"r": 1e999')))]
ADAPTERS += [(f"adapter: {name}", in_header(change), ADAPTER, words) for name, change, words in (
    ("overlapping", lambda h: h[LORA_B].update(data_offsets=[at - 4 for at in h[LORA_B]["data_offsets"]]), "overlap"),
    ("data beyond the end", lambda h: h[LORA_A].update(data_offsets=[2 ** 40, 2 ** 40 + 128]), "truncated"),
    ("negative data", lambda h: h[LORA_A].update(data_offsets=[-128, 0]), "negative"),
    ("a shape beyond 64 bits", lambda h: h[LORA_A].update(shape=[2 ** 40, 2 ** 40]), ""),
    ("an unknown type", lambda h: h[LORA_A].update(dtype="F31"), "F31"), ("a hole", lambda h: h.pop(LORA_A), ""))]
ADAPTERS += [(f"adapter: a header of {length} bytes", of_bytes(ADAPTER, lambda data, length=length: struct.pack(
    "<Q", length) + data[8:]), ADAPTER, "header") for length in (0, 2 ** 32, 2 ** 64 - 1)]
