#!/usr/bin/env python3
"""
A small good model, and the many ways in which one can be damaged.

DAMAGES lists them: a name, what is done to a copy of the good model, the file that the refusal must name ("": the
directory), words that it must contain. check_damaged.py tries them all; `damaged_models.py DIRECTORY` writes them all, to look at.
"""
import json
import os
import random
import shutil
import struct
import sys

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCAB = 16, 2, 4, 2, 8, 24, 272
SPECIALS = ["<｜hy_begin▁of▁sentence｜>", "<｜hy_User｜>", "<｜hy_Assistant｜>", "<｜hy_place▁holder▁no▁2｜>",
            "<｜hy_place▁holder▁no▁3｜>"]
STOP = 256 + SPECIALS.index("<｜hy_place▁holder▁no▁2｜>")
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

# --- the good model ----------------------------------------------------------------------------------------------


def config():
    return {
        "architectures": ["HunYuanDenseV1ForCausalLM"], "attention_bias": False, "dtype": "float32",
        "eos_token_id": STOP, "head_dim": HEAD_DIM, "hidden_act": "silu", "hidden_size": HIDDEN,
        "intermediate_size": INNER, "max_position_embeddings": 512, "mlp_bias": False,
        "model_type": "hunyuan_v1_dense", "num_attention_heads": HEADS, "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS, "rms_norm_eps": 1e-05,
        "rope_scaling": {"alpha": 1000.0, "factor": 1.0, "type": "dynamic"}, "rope_theta": 10000.0,
        "tie_word_embeddings": True, "use_cla": False, "use_qk_norm": True, "vocab_size": VOCAB,
    }


def byte_alphabet():
    """The characters that stand for the 256 bytes in byte-level vocabularies: printable ones for themselves."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(256 + i) for i in range(len(others))]


def tokenizer():
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s+|[^\\p{L}\\s]+"}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0",
        "added_tokens": [{"id": 256 + i, "content": content, "special": True} for i, content in enumerate(SPECIALS)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "decoder": byte_level,
        "model": {"type": "BPE", "ignore_merges": False, "vocab": {c: i for i, c in enumerate(byte_alphabet())},
                  "merges": []},
    }


def tensors():
    """Names to (dtype, shape, bytes), in order."""
    source = random.Random(5)
    found = {}

    def add(name, *shape):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [source.uniform(-0.3, 0.3) + (1 if len(shape) == 1 else 0) for _ in range(count)]
        found[name + ".weight"] = ("F32", list(shape), struct.pack(f"<{count}f", *values))

    add("model.embed_tokens", VOCAB, HIDDEN)
    add("model.norm", HIDDEN)
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        add(layer + "input_layernorm", HIDDEN)
        add(layer + "post_attention_layernorm", HIDDEN)
        add(layer + "self_attn.q_proj", HEADS * HEAD_DIM, HIDDEN)
        add(layer + "self_attn.k_proj", KV_HEADS * HEAD_DIM, HIDDEN)
        add(layer + "self_attn.v_proj", KV_HEADS * HEAD_DIM, HIDDEN)
        add(layer + "self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM)
        add(layer + "self_attn.query_layernorm", HEAD_DIM)
        add(layer + "self_attn.key_layernorm", HEAD_DIM)
        add(layer + "mlp.gate_proj", INNER, HIDDEN)
        add(layer + "mlp.up_proj", INNER, HIDDEN)
        add(layer + "mlp.down_proj", HIDDEN, INNER)
    return found


def header_of(stored):
    header, at = {}, 0
    for name, (dtype, shape, data) in stored.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    return header


def write(directory, name, data):
    with open(os.path.join(directory, name), "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def read(directory, name):
    with open(os.path.join(directory, name), "rb") as file:
        return file.read()


def write_json(directory, name, value):
    write(directory, name, json.dumps(value, ensure_ascii=False))


def read_json(directory, name):
    return json.loads(read(directory, name))


def write_container(directory, name, header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    write(directory, name, struct.pack("<Q", len(text) if length is None else length) + text + data)


def write_tensors(directory, name, stored):
    write_container(directory, name, header_of(stored), b"".join(data for _, _, data in stored.values()))


def write_good(directory):
    os.makedirs(directory)
    write_json(directory, "config.json", config())
    write_json(directory, "generation_config.json", {"eos_token_id": [STOP], "repetition_penalty": 1.05})
    write_json(directory, "hymt.json", {"name": "small", "prompts": "hy-mt1.5"})
    write_json(directory, "tokenizer.json", tokenizer())
    write_tensors(directory, WEIGHTS, tensors())


def write_shards(directory):
    """The same with its weights in two files."""
    stored = tensors()
    os.remove(os.path.join(directory, WEIGHTS))
    halves = {"one.safetensors": {}, "two.safetensors": {}}
    for i, name in enumerate(stored):
        halves["one.safetensors" if i < 10 else "two.safetensors"][name] = stored[name]
    for name, half in halves.items():
        write_tensors(directory, name, half)
    weight_map = {tensor: name for name, half in halves.items() for tensor in half}
    write_json(directory, INDEX, {"metadata": {"total_size": 1}, "weight_map": weight_map})


# --- damages -----------------------------------------------------------------------------------------------------

DAMAGES = []                        # (name, function of the directory, file named, words)


def damage(name, file, words, function):
    DAMAGES.append((name, function, file, words))


def in_json(file, *path):
    """A function that makes a damage of a function which changes the object at `path` in a JSON file."""
    def make(change):
        def apply(directory):
            value = read_json(directory, file)
            inner = value
            for key in path:
                inner = inner[key]
            change(inner)
            write_json(directory, file, value)
        return apply
    return make


def config_damage(name, words, **values):
    """Values of config.json; DELETE removes one."""
    def change(value):
        for key, new in values.items():
            if new is DELETE:
                del value[key]
            else:
                value[key] = new
    damage("config: " + name, "config.json", words, in_json("config.json")(change))


def text_damage(name, file, words, change):
    """Of the bytes of a file."""
    damage(name, file, words, lambda directory: write(directory, file, change(read(directory, file))))


def replaced(old, new):
    def change(data):
        assert old in data
        return data.replace(old, new, 1)
    return change


DELETE = object()

# Every small file, in every way that JSON can be broken.
for FILE in ("config.json", "generation_config.json", "hymt.json", "tokenizer.json"):
    text_damage(f"{FILE}: empty", FILE, "", lambda data: b"")
    text_damage(f"{FILE}: cut", FILE, "", lambda data: data[:len(data) // 2])
    text_damage(f"{FILE}: a list", FILE, "", lambda data: b"[" + data + b"]")
    text_damage(f"{FILE}: garbage behind", FILE, "", lambda data: data + b"x")
    text_damage(f"{FILE}: an unquoted key", FILE, "", lambda data: b"{key: 1," + data[1:])
    text_damage(f"{FILE}: broken UTF-8", FILE, "", lambda data: b'{"\xc3(": 1,' + data[1:])
    text_damage(f"{FILE}: UTF-16", FILE, "", lambda data: data.decode().encode("utf-16"))
    text_damage(f"{FILE}: half a surrogate", FILE, "", lambda data: b'{"x": "\\ud800",' + data[1:])
    text_damage(f"{FILE}: nested without end", FILE, "", lambda data: b'{"x":' + b"[" * 100000)
    text_damage(f"{FILE}: zeros", FILE, "", lambda data: bytes(len(data)))
for FILE, KEY in (("config.json", b'"vocab_size": 272'), ("generation_config.json", b'"repetition_penalty": 1.05'),
                  ("hymt.json", b'"prompts": "hy-mt1.5"')):
    text_damage(f"{FILE}: a key twice", FILE, "duplicate", replaced(b"{", b"{" + KEY + b", "))
text_damage("tokenizer.json: a key twice", "tokenizer.json", "twice", replaced(b"{", b'{"normalizer": null, '))


# Every file as something that is no file.
def instead(file, make):
    def apply(directory):
        path = os.path.join(directory, file)
        os.remove(path)
        make(path)
    return apply


def link_to(target):
    return lambda path: os.symlink(target, path)


# What may stand in a file's place, and words for it.
FILES_INSTEAD = (("a directory", os.mkdir, "is a directory"), ("a pipe", os.mkfifo, "not a regular file"),
                 ("a link to a device", link_to("/dev/zero"), "not a regular file"),
                 ("a link to nowhere", link_to("nowhere"), "link"))
for FILE in ("config.json", "generation_config.json", "hymt.json", "tokenizer.json", WEIGHTS):
    for NAME, MAKE, WORDS in FILES_INSTEAD:
        damage(f"{FILE}: {NAME}", FILE, WORDS, instead(FILE, MAKE))
    damage(f"{FILE}: a link to itself", FILE, "", instead(FILE, link_to(FILE)))
for FILE in ("config.json", "tokenizer.json", WEIGHTS):
    damage(f"{FILE}: missing", FILE, "", instead(FILE, lambda path: None))
for FILE in ("config.json", "generation_config.json", "tokenizer.json", WEIGHTS):
    damage(f"{FILE}: unreadable", FILE, "Permission denied",
           lambda directory, file=FILE: os.chmod(os.path.join(directory, file), 0))

# Numbers that are none, or that nobody can compute with.
for KEY in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
            "intermediate_size", "vocab_size", "max_position_embeddings"):
    for VALUE in (0, -1, 1.5, "16", True, [], 2 ** 31, 2 ** 32 + 16, 2 ** 62, 10 ** 30):
        config_damage(f"{KEY} {json.dumps(VALUE)}", KEY if VALUE != 10 ** 30 else "", **{KEY: VALUE})
for KEY in ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size", "max_position_embeddings"):
    config_damage(f"{KEY} missing", KEY + " is missing", **{KEY: DELETE})
for KEY, VALUES in (("rms_norm_eps", (0, -1e-5, "x", 1e308, 2)), ("rope_theta", (0, -1, "x", 1e308))):
    for VALUE in VALUES:
        config_damage(f"{KEY} {VALUE}", KEY, **{KEY: VALUE})
for WORD in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"nan", b"0x10", b"01", b"+1", b".5"):
    text_damage(f"config: rope_theta {WORD.decode()}", "config.json", "line",
                replaced(b'"rope_theta": 10000.0', b'"rope_theta": ' + WORD))
config_damage("hidden size of another model", "", hidden_size=32)
config_damage("heads that KV heads do not divide", "num_key_value_heads", num_key_value_heads=3)
config_damage("odd head", "head_dim", head_dim=7)
damage("config: one layer more", WEIGHTS, "model.layers.2.",
       in_json("config.json")(lambda value: value.update(num_hidden_layers=3)))
config_damage("one token more", "shape", vocab_size=VOCAB + 1)
damage("config: untied without a head", WEIGHTS, "lm_head.weight",
       in_json("config.json")(lambda value: value.update(tie_word_embeddings=False)))
config_damage("tied to a number", "tie_word_embeddings", tie_word_embeddings=1)
config_damage("another architecture", "MambaForCausalLM", architectures=["MambaForCausalLM"])
config_damage("no architecture", "architecture", architectures=DELETE)
config_damage("another activation", "hidden_act", hidden_act="gelu")
config_damage("without norms of queries", "use_qk_norm", use_qk_norm=False)
config_damage("shared keys", "use_cla", use_cla=True)
config_damage("unknown quantisation", "", quantization_config={"quant_method": "nothing-known"})
config_damage("quantisation that is a number", "", quantization_config=8)
config_damage("rotation of another kind", "yarn", rope_scaling={"type": "yarn", "factor": 4})
config_damage("rotation that is a list", "rope_scaling", rope_scaling=[])
config_damage("negative alpha", "alpha", rope_scaling={"type": "dynamic", "alpha": -1})
config_damage("huge alpha", "alpha", rope_scaling={"type": "dynamic", "alpha": 1e300})
# where generation_config.json names them, too, those of config.json are checked all the same
for VALUE in (-1, VOCAB, 2 ** 40, "3", [STOP, None], list(range(40))):
    config_damage(f"stop id {str(VALUE)[:20]}", "eos_token_id", eos_token_id=VALUE)
for KEY, VALUE in (("eos_token_id", 99999), ("repetition_penalty", 0), ("repetition_penalty", -1),
                   ("repetition_penalty", "1"), ("repetition_penalty", 1e300)):
    damage(f"generation: {KEY} {VALUE}", "generation_config.json", KEY,
           in_json("generation_config.json")(lambda value, key=KEY, new=VALUE: value.update({key: new})))
damage("generation: stop id that is text", "", "control token",
       in_json("generation_config.json")(lambda value: value.update(eos_token_id=5)))
for KEY, VALUE in (("prompts", "hy-mt9"), ("prompts", 5), ("languages", []), ("languages", ["xx"]), ("languages", "en"),
                   ("name", ""), ("name", "a\nb"), ("name", 5)):
    damage(f"hymt.json: {KEY} {json.dumps(VALUE)}", "hymt.json", "",
           in_json("hymt.json")(lambda value, key=KEY, new=VALUE: value.update({key: new})))

# Tokenizers of other kinds, and wrong ones of the right kind.
for NAME, PATH, CHANGE, WORDS in (
        ("unigram", ("model",), lambda v: v.update(type="Unigram"), "Unigram"),
        ("word pieces", ("model",), lambda v: v.update(type="WordPiece"), "WordPiece"),
        ("no model", (), lambda v: v.pop("model"), "model"),
        ("no vocabulary", ("model",), lambda v: v.pop("vocab"), "vocab"),
        ("an empty vocabulary", ("model",), lambda v: v.update(vocab={}), "vocab"),
        ("no merges", ("model",), lambda v: v.pop("merges"), "merges"),
        ("byte fallback", ("model",), lambda v: v.update(byte_fallback=True), "byte_fallback"),
        ("dropout", ("model",), lambda v: v.update(dropout=0.1), "dropout"),
        ("a negative id", ("model", "vocab"), lambda v: v.update(a=-1), ""),
        ("a huge id", ("model", "vocab"), lambda v: v.update(a=2 ** 62), ""),
        ("an id with a fraction", ("model", "vocab"), lambda v: v.update(a=1.5), ""),
        ("an id twice", ("model", "vocab"), lambda v: v.update(a=66), ""),
        ("an id beyond the embedding", ("model", "vocab"), lambda v: v.update(zz=VOCAB), "vocab_size"),
        ("a merge of what is not there", ("model",), lambda v: v.update(merges=[["a", "zzz"]]), ""),
        ("a merge to what is not there", ("model",), lambda v: v.update(merges=[["a", "b"]]), ""),
        ("a merge of three", ("model",), lambda v: v.update(merges=[["a", "b", "c"]]), ""),
        ("a merge that is a number", ("model",), lambda v: v.update(merges=[1]), ""),
        ("another normalizer", (), lambda v: v.update(normalizer={"type": "Lowercase"}), "Lowercase"),
        ("another decoder", (), lambda v: v.update(decoder={"type": "Metaspace"}), "Metaspace"),
        ("no pre-tokenizer", (), lambda v: v.update(pre_tokenizer=None), "pre_tokenizer"),
        ("another pre-tokenizer", (), lambda v: v.update(pre_tokenizer={"type": "Whitespace"}), "Whitespace"),
        ("a broken pattern", ("pre_tokenizer", "pretokenizers", 0), lambda v: v.update(pattern={"Regex": "(("}), ""),
        ("another split", ("pre_tokenizer", "pretokenizers", 0), lambda v: v.update(behavior="Removed"), "Removed"),
        ("an added token without id", ("added_tokens", 0), lambda v: v.pop("id"), "added token"),
        ("an added token in the place of another", ("added_tokens", 0), lambda v: v.update(id=257), ""),
        ("no control tokens", (), lambda v: v.update(added_tokens=[]), ""),
):
    # What does not fit the model is said of its tokenizer, whatever file that is in.
    damage(f"tokenizer: {NAME}", "the tokenizer" if NAME in ("an id beyond the embedding", "no control tokens")
           else "tokenizer.json", WORDS, in_json("tokenizer.json", *PATH)(CHANGE))


# Weights: lengths that lie, tensors that overlap, are missing, have another shape or type.
def header_damage(name, words, change, file=WEIGHTS):
    def apply(directory):
        stored = tensors()
        header = header_of(stored)
        data = b"".join(data for _, _, data in stored.values())
        change(header)
        write_container(directory, file, header, data)
    damage("weights: " + name, file, words, apply)


def tensor_damage(name, words, change):
    def apply(directory):
        stored = tensors()
        change(stored)
        write_tensors(directory, WEIGHTS, stored)
    damage("weights: " + name, WEIGHTS, words, apply)


EMBEDDING = "model.embed_tokens.weight"
QUERY = "model.layers.1.self_attn.q_proj.weight"
for LENGTH in (0, 1, 7, 8, 9, 100, 2000, -5000, -1):
    text_damage(f"weights: cut to {LENGTH} bytes", WEIGHTS, "", lambda data, length=LENGTH: data[:length])
text_damage("weights: bytes behind the end", WEIGHTS, "belong to none", lambda data: data + b"12345678")
for LENGTH in (0, 1, 10 ** 5, 10 ** 8 + 1, 2 ** 32, 2 ** 63, 2 ** 64 - 1, 2 ** 64 - 8):
    text_damage(f"weights: a header of {LENGTH} bytes", WEIGHTS, "header",
                lambda data, length=LENGTH: struct.pack("<Q", length) + data[8:])
text_damage("weights: text", WEIGHTS, "", lambda data: b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 9\n")
text_damage("weights: zeros", WEIGHTS, "", lambda data: bytes(len(data)))
text_damage("weights: broken JSON", WEIGHTS, "line", replaced(b'"dtype"', b"'dtype'"))
text_damage("weights: broken UTF-8", WEIGHTS, "line", replaced(b"model.norm", b"model\xffnorm"))
text_damage("weights: a name twice", WEIGHTS, "duplicate", replaced(b"layers.1.self_attn.q_proj", b"layers.0.self_attn.q_proj"))
header_damage("overlapping", "overlap", lambda h: h[QUERY].update(
    data_offsets=[at - 64 for at in h[QUERY]["data_offsets"]]))
header_damage("a hole", "", lambda h: h.pop(QUERY))
header_damage("data beyond the end", "truncated", lambda h: h[QUERY].update(
    data_offsets=[at + 10 ** 6 for at in h[QUERY]["data_offsets"]]))
header_damage("negative data", "negative", lambda h: h[QUERY].update(data_offsets=[-8, 0]))
header_damage("data that ends before it begins", "order", lambda h: h[QUERY].update(data_offsets=[64, 0]))
header_damage("offsets that are no pair", "data_offsets", lambda h: h[QUERY].update(data_offsets=[0]))
header_damage("a shape beyond the data", "needs", lambda h: h[QUERY].update(shape=[2 ** 20, 2 ** 20]))
header_damage("a shape beyond 64 bits", "", lambda h: h[QUERY].update(shape=[2 ** 40, 2 ** 40]))
header_damage("a negative shape", "natural", lambda h: h[QUERY].update(shape=[-32, -16]))
header_damage("a shape of numbers with fractions", "natural", lambda h: h[QUERY].update(shape=[32.0, 16.0]))
header_damage("a shape turned around", "shape", lambda h: h[QUERY].update(shape=[16, 32]))
header_damage("a flat shape", "shape", lambda h: h[QUERY].update(shape=[512]))
header_damage("an unknown type", "F31", lambda h: h[QUERY].update(dtype="F31"))
header_damage("integers of the same size", "I32", lambda h: h[QUERY].update(dtype="I32"))
header_damage("another type than the bytes", "needs", lambda h: h[QUERY].update(dtype="BF16"))
header_damage("no type", "dtype", lambda h: h[QUERY].pop("dtype"))
header_damage("no shape", "shape", lambda h: h[QUERY].pop("shape"))
header_damage("no data", "data_offsets", lambda h: h[QUERY].pop("data_offsets"))
header_damage("a tensor that is a number", "object", lambda h: h.update({QUERY: 5}))
header_damage("metadata that is a list", "metadata", lambda h: h.update(__metadata__=[]))
tensor_damage("no norm of queries", "query_layernorm", lambda t: t.pop("model.layers.0.self_attn.query_layernorm.weight"))
tensor_damage("no embedding", "embed_tokens", lambda t: t.pop(EMBEDDING))
tensor_damage("a layer missing", "model.layers.1.", lambda t: [t.pop(name) for name in list(t) if ".layers.1." in name])
tensor_damage("doubles", "F64", lambda t: t.update({QUERY: ("F64", [32, 16], bytes(4096))}))
tensor_damage("no tensor", "missing", lambda t: t.clear())


# Shards.
def shard_damage(name, file, words, change):
    def apply(directory):
        write_shards(directory)
        change(directory)
    damage("shards: " + name, file, words, apply)


def in_map(change):
    return in_json(INDEX, "weight_map")(change)


shard_damage("one missing", "two.safetensors", "", lambda d: os.remove(os.path.join(d, "two.safetensors")))
shard_damage("one cut", "two.safetensors", "truncated", lambda d: write(d, "two.safetensors", read(d, "two.safetensors")[:-4]))
shard_damage("one a directory", "two.safetensors", "is a directory",
             lambda d: (os.remove(os.path.join(d, "two.safetensors")), os.mkdir(os.path.join(d, "two.safetensors"))))
shard_damage("exchanged", INDEX, "is not in", lambda d: (
    os.rename(os.path.join(d, "two.safetensors"), os.path.join(d, "x")),
    os.rename(os.path.join(d, "one.safetensors"), os.path.join(d, "two.safetensors")),
    os.rename(os.path.join(d, "x"), os.path.join(d, "one.safetensors"))))
for PATH in ("../good/" + WEIGHTS, "/etc/passwd", "sub/one.safetensors", "..", ".", "", ".hidden", "x" * 300, "a\0b"):
    shard_damage(f"a path {json.dumps(PATH[:20])}", INDEX, "", in_map(lambda m, path=PATH: m.update({EMBEDDING: path})))
shard_damage("a name that is a number", INDEX, "plain file name", in_map(lambda m: m.update({EMBEDDING: 1})))
shard_damage("a tensor in no shard", INDEX, "is not in", in_map(lambda m: m.update({"model.more.weight": "one.safetensors"})))
shard_damage("a tensor not listed", INDEX, "missing", in_map(lambda m: m.pop(EMBEDDING)))
shard_damage("an index without map", INDEX, "weight_map", lambda d: write_json(d, INDEX, {"metadata": {}}))
shard_damage("a map that is a list", INDEX, "weight_map", lambda d: write_json(d, INDEX, {"weight_map": []}))
shard_damage("a broken index", INDEX, "line", lambda d: write(d, INDEX, read(d, INDEX)[:-9]))
shard_damage("an index that is a pipe", INDEX, "not a regular file",
             lambda d: (os.remove(os.path.join(d, INDEX)), os.mkfifo(os.path.join(d, INDEX))))
shard_damage("the index as a shard", INDEX, "", in_map(lambda m: m.update({EMBEDDING: INDEX})))


def write_damaged(good, directory, change):
    """A copy of the good model, damaged. Times and rights are those of new files."""
    shutil.copytree(good, directory, copy_function=shutil.copyfile)
    change(directory)


def main():
    good = os.path.join(sys.argv[1], "good")
    write_good(good)
    for number, (name, change, _, _) in enumerate(DAMAGES):
        safe = "".join(c if c.isalnum() else "-" for c in name)
        write_damaged(good, os.path.join(sys.argv[1], f"{number:03d}-{safe}"[:80]), change)


if __name__ == "__main__":
    main()
