#!/usr/bin/env python3
"""Write a model with random weights in the layout of the published ones, for tests of loading, memory and speed.

Needs Python alone. Weights are written as they are made, so that memory does not grow with the model; the bytes of a
tensor depend on the seed, its name and its shape only.
"""
import argparse
import hashlib
import json
import math
import os
import struct
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CHUNK = 8 * 1024 * 1024             # bytes made at a time
STOP_FACTOR = 1                     # powers of four by which the stop tokens' rows of the embedding are larger

# hidden, layers, heads, KV heads, head size, feed-forward, vocabulary, alpha, context, kind of tokenizer
SHAPES = {
    "hy-mt1.5-1.8b": (2048, 32, 16, 4, 128, 6144, 120818, 1000.0, 262144, "1.8b"),
    "hy-mt1.5-7b": (4096, 32, 32, 8, 128, 14336, 128167, 1000.0, 262144, "7b"),
    "hunyuan-mt-7b": (4096, 32, 32, 8, 128, 14336, 128256, 100000.0, 32768, "7b"),
    "300m": (1024, 16, 8, 2, 128, 2816, 120818, 1000.0, 262144, "1.8b"),
    "tiny": (64, 2, 4, 2, 16, 160, 120818, 1000.0, 4096, "1.8b"),
}
PROMPTS = {"hy-mt1.5-1.8b": "hy-mt1.5", "hy-mt1.5-7b": "hy-mt1.5", "hunyuan-mt-7b": "hunyuan-mt"}
DTYPES = {"bf16": ("BF16", "bfloat16", 2), "fp16": ("F16", "float16", 2), "fp32": ("F32", "float32", 4)}

# --- configuration -----------------------------------------------------------------------------------------------

# First id behind the ordinary tokens, then by name what config.json tells.
IDS = {
    "1.8b": {"ordinary": 120000, "bos": 120000, "eos": 120020, "pad": 120002, "sep": 120007, "stop": [120020, 120001]},
    "7b": {"ordinary": 127957, "bos": 127958, "eos": 127960, "pad": 127961, "sep": 127962, "stop": [127960, 127967]},
}


def make_config(arguments):
    hidden, layers, heads, kv_heads, head_dim, inner, vocab, alpha, context, kind = SHAPES[arguments.shape]
    ids = IDS[kind]
    config = {
        "architectures": ["HunYuanDenseV1ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attention_head_dim": head_dim,
        "bos_token_id": ids["bos"],
        "dtype": DTYPES[arguments.dtype][1],
        "eos_token_id": ids["eos"],
        "head_dim": head_dim,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": inner,
        "max_position_embeddings": context,
        "mlp_bias": False,
        "model_type": "hunyuan_v1_dense",
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": kv_heads,
        "pad_token_id": ids["pad"],
        "rms_norm_eps": 1e-05,
        "rope_scaling": {"alpha": alpha, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
                         "mscale_all_dim": 1.0, "type": "dynamic"},
        "rope_theta": 10000.0,
        "sep_token_id": ids["sep"],
        "tie_word_embeddings": True,
        "use_cache": True,
        "use_cla": False,
        "use_qk_norm": True,
        "vocab_size": vocab,
    }
    for setting in arguments.set:
        key, _, value = setting.partition("=")
        if key not in config or not value:
            sys.exit(f"make_model.py: --set {setting}: not KEY=VALUE with a key of config.json")
        config[key] = json.loads(value)
    if config["vocab_size"] <= max(ids["stop"]):
        # a vocabulary too small for the published ids ends with its stop token
        config.update(bos_token_id=0, pad_token_id=0, sep_token_id=0, eos_token_id=config["vocab_size"] - 1)
    return config


def stop_ids(config, kind):
    ids = IDS[kind]
    vocab = config["vocab_size"]
    return ids["stop"] if vocab > max(ids["stop"]) else [vocab - 1, vocab - 2]


def make_generation_config(config, kind):
    return {"bos_token_id": config["bos_token_id"], "do_sample": True, "eos_token_id": stop_ids(config, kind),
            "pad_token_id": config["pad_token_id"], "repetition_penalty": 1.05, "temperature": 0.7, "top_k": 20,
            "top_p": 0.6}


# --- tensors -----------------------------------------------------------------------------------------------------

def tensor_list(config, head):
    """Names and shapes in the order of the published files: the layers, the embedding, the rest."""
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    size = config["head_dim"]
    query, key_value = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    tensors = []
    if head or not config["tie_word_embeddings"]:
        tensors.append(("lm_head.weight", (vocab, hidden)))
    tensors.append(("model.embed_tokens.weight", (vocab, hidden)))
    for layer in range(config["num_hidden_layers"]):
        for name, shape in (("input_layernorm", (hidden,)), ("mlp.down_proj", (hidden, inner)),
                            ("mlp.gate_proj", (inner, hidden)), ("mlp.up_proj", (inner, hidden)),
                            ("post_attention_layernorm", (hidden,)), ("self_attn.k_proj", (key_value, hidden)),
                            ("self_attn.key_layernorm", (size,)), ("self_attn.o_proj", (hidden, query)),
                            ("self_attn.q_proj", (query, hidden)), ("self_attn.query_layernorm", (size,)),
                            ("self_attn.v_proj", (key_value, hidden))):
            tensors.append((f"model.layers.{layer}.{name}.weight", shape))
    tensors.append(("model.norm.weight", (hidden,)))
    return tensors


def top_bytes(dtype, octave, spread):
    """
    For each random byte the top byte of a little-endian number: a random sign, and a size from 2^octave to
    2^(octave + 2), or a quarter of that for `spread` of 128 values. Without a spread there is no sign either: norms.
    """
    table = bytearray(256)
    for value in range(256):
        exponent = octave - (2 if value % 128 < spread else 0)
        sign = value & 0x80 if spread else 0
        if dtype == "F16":              # sign, 5 bits of exponent, 2 of the mantissa
            table[value] = sign | (exponent + 15 + (value >> 2 & 1)) << 2 | value & 3
        else:                           # sign, 7 of 8 bits of exponent; the last one is random
            table[value] = sign | (exponent + 127) >> 1
    return bytes(table)


def octave_of(columns):
    """Sizes around 1 / sqrt(columns) keep activations near 1. Odd, since the last bit of bf16's exponent is random."""
    return 2 * round((math.log2(0.47 / math.sqrt(columns)) - 1) / 2) + 1


def random_bytes(seed, name, element, table, size):
    """The elements of a tensor as bytes, in pieces."""
    for number, start in enumerate(range(0, size, CHUNK)):
        length = min(CHUNK, size - start)
        label = f"{seed} {name} {number}".encode()
        piece = bytearray(hashlib.shake_128(label).digest(length))
        piece[element - 1::element] = piece[element - 1::element].translate(table)
        yield piece


def stop_row(seed, element, table, dtype, size, negative):
    """
    The embedding of a stop token: larger than others, and the second one is the opposite of the first, so that one of
    the two is likely to be chosen after a few tokens. Otherwise hardly any answer would end.
    """
    row = next(random_bytes(seed, "stop", element, table, size))
    for at in range(element - 1, size, element):
        row[at] = row[at] + (STOP_FACTOR * 8 if dtype == "F16" else STOP_FACTOR) ^ (0x80 if negative else 0)
    return row


def put_row(piece, start, row, at):
    """Overwrite what of a row, at its place in the tensor, lies in this piece of it."""
    first, last = max(at, start), min(at + len(row), start + len(piece))
    if first < last:
        piece[first - start:last - start] = row[first - at:last - at]


def write_tensor(file, arguments, name, shape, stops):
    dtype, _, element = DTYPES[arguments.dtype]
    size = math.prod(shape) * element
    norm = len(shape) == 1
    table = top_bytes(dtype, -1 if norm else octave_of(shape[1]), 0 if norm else 32)
    # a stored head of a tied model is a copy of the embedding
    source = "model.embed_tokens.weight" if name == "lm_head.weight" and arguments.tied else name
    rows = {}
    if name in ("lm_head.weight", "model.embed_tokens.weight"):
        pitch = shape[1] * element
        rows = {stop * pitch: stop_row(arguments.seed, element, table, dtype, pitch, number % 2 == 1)
                for number, stop in enumerate(stops)}
    at = 0
    for piece in random_bytes(arguments.seed, source, element, table, size):
        for place, row in rows.items():
            put_row(piece, at, row, place)
        file.write(piece)
        at += len(piece)


# --- files -------------------------------------------------------------------------------------------------------

def cut_into_shards(tensors, element, limit):
    shards = [[]]
    size = 0
    for name, shape in tensors:
        length = math.prod(shape) * element
        if shards[-1] and size + length > limit:
            shards.append([])
            size = 0
        shards[-1].append((name, shape))
        size += length
    return shards


def write_safetensors(path, arguments, tensors, stops):
    dtype, _, element = DTYPES[arguments.dtype]
    header = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in tensors:
        end = at + math.prod(shape) * element
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors:
            write_tensor(file, arguments, name, shape, stops)
    return at


def write_json(directory, name, value):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")


def write_weights(arguments, config, stops):
    element = DTYPES[arguments.dtype][2]
    tensors = tensor_list(config, arguments.head)
    shards = cut_into_shards(tensors, element, arguments.shard_bytes)
    names = ["model.safetensors"] if len(shards) == 1 else [
        f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    total = 0
    for name, shard in zip(names, shards):
        total += write_safetensors(os.path.join(arguments.directory, name), arguments, shard, stops)
        print(f"{name}: {total} bytes so far", flush=True)
    if len(shards) > 1:
        write_json(arguments.directory, "model.safetensors.index.json", {
            "metadata": {"total_size": total},
            "weight_map": {tensor: name for name, shard in zip(names, shards) for tensor, _ in shard}})


# --- tokenizer ---------------------------------------------------------------------------------------------------

PATTERN_7B = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
              r"\s*[\r\n]+|\s+(?!\S)|\s+")


def pad_vocabulary(model, size):
    """Tokens made of two that are there, with their merges, up to a published vocabulary's size."""
    vocab, merges = model["vocab"], model["merges"]
    tokens = sorted(vocab, key=vocab.get)
    for left in tokens:
        for right in tokens:
            if len(vocab) >= size:
                return
            if left + right not in vocab:
                vocab[left + right] = len(vocab)
                merges.append([left, right])


def added_token(number, content, special=True):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": special}


def make_tokenizer(kind, source):
    """The demo's tokenizer, padded to a published one's size and given its control tokens."""
    with open(source, encoding="utf-8") as file:
        tokenizer = json.load(file)
    first = IDS[kind]["ordinary"]
    pad_vocabulary(tokenizer["model"], first)
    if kind == "7b":
        names = ["<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>"]
        names += [f"<|extra_{number}|>" for number in range(205)]
        tokenizer["added_tokens"] = [added_token(first + i, name) for i, name in enumerate(names)]
        tokenizer["model"]["ignore_merges"] = True
        tokenizer["pre_tokenizer"]["pretokenizers"][:-1] = [
            {"type": "Split", "pattern": {"Regex": PATTERN_7B}, "behavior": "Isolated", "invert": False}]
    else:
        added = [added_token(first + i, token["content"], token["special"])
                 for i, token in enumerate(tokenizer["added_tokens"])]
        added += [added_token(first + len(added) + i, f"<｜hy_place▁holder▁no▁{number}｜>")
                  for i, number in enumerate(range(26, 800))]
        tokenizer["added_tokens"] = added
    return tokenizer


def copy_tokenizer(arguments, config, kind):
    tokenizer = make_tokenizer(kind, arguments.tokenizer)
    if config["vocab_size"] < 1 + max(token["id"] for token in tokenizer["added_tokens"]):
        sys.exit("make_model.py: vocab_size is too small for the tokenizer")
    with open(os.path.join(arguments.directory, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(tokenizer, file, ensure_ascii=False)
    write_json(arguments.directory, "hymt.json", {"name": f"random-{arguments.shape}",
                                                  "prompts": PROMPTS.get(arguments.shape, "hy-mt1.5")})


# --- the program -------------------------------------------------------------------------------------------------

def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES, help="whose shapes")
    parser.add_argument("directory", help="where to; it is made, or must be empty")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--no-head", dest="head", action="store_false",
                        help="leave out lm_head.weight, which published files have although it equals the embedding")
    parser.add_argument("--shard-bytes", type=int, default=5 * 1000 ** 3, help="at most so many in a file (default: 5e9)")
    parser.add_argument("--tokenizer", default=os.path.join(ROOT, "models/demo/tokenizer.json"),
                        help="which to pad to the published size (default: the demo's)")
    parser.add_argument("--no-tokenizer", dest="tokenizer", action="store_const", const=None,
                        help="write none, and no hymt.json")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="another value in config.json, such as num_hidden_layers=2")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    kind = SHAPES[arguments.shape][-1]
    config = make_config(arguments)
    arguments.tied = config["tie_word_embeddings"]
    os.makedirs(arguments.directory, exist_ok=True)
    if os.listdir(arguments.directory):
        sys.exit(f"make_model.py: {arguments.directory} is not empty")
    write_json(arguments.directory, "config.json", config)
    write_json(arguments.directory, "generation_config.json", make_generation_config(config, kind))
    if arguments.tokenizer:
        copy_tokenizer(arguments, config, kind)
    write_weights(arguments, config, stop_ids(config, kind))


if __name__ == "__main__":
    main()
