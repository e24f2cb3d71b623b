"""Reading and writing model files for checks: safetensors and GGUF, with nothing but the standard library."""
import json
import math
import os
import struct
import sys

F32, F16, Q4_0, Q8_0, Q4_K, Q6_K, BF16 = 0, 1, 2, 8, 12, 14, 30          # GGUF types of tensors
GGUF_BLOCKS = {F32: (1, 4), F16: (1, 2), BF16: (1, 2), Q8_0: (32, 34), Q4_0: (32, 18), Q4_K: (256, 144),
               Q6_K: (256, 210)}
GGUF_TYPES = {"F32": F32, "F16": F16, "BF16": BF16}
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "I32": 4}

GGUF_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "model.embed_tokens": "token_embd",
    "model.norm": "output_norm", "lm_head": "output"}


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}"""
    with open(path, "rb") as file:
        data = file.read()
    start = 8 + struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"],
                   data[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]])
            for name, entry in header.items()}


def write_safetensors(path, tensors):
    """Wider elements first, so that all are aligned."""
    header = {}
    order = sorted(tensors, key=lambda name: -SIZES[tensors[name][0]])
    at = 0
    for name in order:
        dtype, shape, data = tensors[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            file.write(tensors[name][2])


def gguf_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(value):
    """Type and bytes: bool, int (unsigned, 32 bits), float (32 bits), str, or a list of str or int."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + gguf_string(value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(gguf_string(text) for text in value)
    return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)


def write_gguf(path, values, tensors):
    """tensors: {GGUF name: (type, shape with the rows first, bytes)}"""
    with open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)))
        for key, value in values.items():
            file.write(gguf_string(key) + gguf_value(value))
        at = 0
        for name, (kind, shape, data) in tensors.items():
            file.write(gguf_string(name) + struct.pack("<I", len(shape)))
            file.write(struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", kind, at))
            at += len(data) + -len(data) % 32
        file.write(b"\0" * (-file.tell() % 32))
        for _, _, data in tensors.values():
            file.write(data + b"\0" * (-len(data) % 32))


def gguf_name(name):
    """The GGUF name of a tensor of a safetensors file."""
    stem, suffix = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        layer, stem = stem[len("model.layers."):].split(".", 1)
        return f"blk.{layer}.{GGUF_NAMES[stem]}.{suffix}"
    return f"{GGUF_NAMES[stem]}.{suffix}"


def gguf_config(config):
    """Metadata for a config.json."""
    head_dim = config["head_dim"]
    base = config["rope_theta"]
    if config.get("rope_scaling"):
        base *= math.pow(config["rope_scaling"]["alpha"], head_dim / (head_dim - 2))
    arch = "hunyuan-dense"
    return {
        "general.architecture": arch, f"{arch}.block_count": config["num_hidden_layers"],
        f"{arch}.context_length": config["max_position_embeddings"], f"{arch}.embedding_length": config["hidden_size"],
        f"{arch}.feed_forward_length": config["intermediate_size"],
        f"{arch}.attention.head_count": config["num_attention_heads"],
        f"{arch}.attention.head_count_kv": config["num_key_value_heads"],
        f"{arch}.attention.key_length": head_dim, f"{arch}.attention.value_length": head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        f"{arch}.rope.freq_base": float(base),
        f"{arch}.rope.scaling.type": "none", f"{arch}.rope.scaling.factor": 1.0,
        "tokenizer.ggml.eos_token_id": config["eos_token_id"]}


def gguf_tokenizer(tokenizer, pre, rows=0):
    """Metadata for a tokenizer.json; ids up to `rows` that have no token are unused."""
    vocabulary = {token: (i, 1) for token, i in tokenizer["model"]["vocab"].items()}
    for added in tokenizer["added_tokens"]:
        vocabulary[added["content"]] = (added["id"], 3 if added["special"] else 4)
    count = max(rows, 1 + max(i for i, _ in vocabulary.values()))
    tokens = [f"[PAD{i}]" for i in range(count)]
    types = [5] * count
    for token, (i, kind) in vocabulary.items():
        tokens[i], types[i] = token, kind
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": types, "tokenizer.ggml.merges": merges, "tokenizer.ggml.add_bos_token": False}


def read_json(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return json.load(file)


def write_demo_gguf(path, demo):
    """The demo model as a GGUF file. It names the wrong end of answers, as a published one does."""
    config = read_json(demo, "config.json")
    tokenizer = read_json(demo, "tokenizer.json")
    values = gguf_config(config) | gguf_tokenizer(tokenizer, "hunyuan-dense", config["vocab_size"])
    values["general.name"] = "HY-MT1.5 demo"
    values["tokenizer.ggml.eos_token_id"] = 3
    penalty = read_json(demo, "generation_config.json").get("repetition_penalty", 1)
    values["general.sampling.penalty_repeat"] = float(penalty)
    write_gguf(path, values, {gguf_name(name): (GGUF_TYPES[dtype], shape, data)
                              for name, (dtype, shape, data) in read_safetensors(f"{demo}/model.safetensors").items()})


if __name__ == "__main__":
    write_demo_gguf(sys.argv[1], sys.argv[2])
