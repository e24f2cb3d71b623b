"""Architectures, biases and scaled rotations against a forward pass in plain float64 Python.

The forward pass below is written from the models' definitions and knows nothing of the engine. It is first held against
the reference models, which transformers computed; then models are made that no reference covers.
"""
import array
import json
import math
import os
import random
import struct
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from harness import check, eval_lines, finish, run

TOLERANCE = 2e-5                # of the largest absolute logit


# --- safetensors ---------------------------------------------------------------------------------------------------

def read_tensors(path):
    """Name → (shape, list of floats), of F32 and BF16 tensors."""
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            widened = bytearray(2 * (end - begin))
            widened[2::4] = data[begin:end:2]
            widened[3::4] = data[begin + 1:end:2]
            values = array.array("f", bytes(widened))
        else:
            values = array.array("f", data[begin:end])
        tensors[name] = (entry["shape"], values.tolist())
    return tensors


def write_tensors(path, tensors):
    header = {}
    body = b""
    for name, (shape, values) in tensors.items():
        stored = array.array("f", values).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(stored)]}
        body += stored
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


# --- the forward pass ----------------------------------------------------------------------------------------------

def frequencies(config, dim):
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    theta = config.get("rope_theta", scaling.get("rope_theta", 10000.0))
    if kind == "dynamic" and scaling.get("alpha") and config["architectures"][0].startswith("HunYuan"):
        theta *= scaling["alpha"] ** (dim / (dim - 2))
    plain = [theta ** (-2 * i / dim) for i in range(dim // 2)]
    if kind == "linear":
        return [f / scaling["factor"] for f in plain]
    if kind != "llama3":
        return plain
    scaled = []
    for f in plain:
        wavelength = 2 * math.pi / f
        context = scaling["original_max_position_embeddings"]
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        if wavelength < context / high:
            scaled.append(f)
        elif wavelength > context / low:
            scaled.append(f / scaling["factor"])
        else:
            smooth = (context / wavelength - low) / (high - low)
            scaled.append((1 - smooth) * f / scaling["factor"] + smooth * f)
    return scaled


def norm(x, weight, eps):
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + eps)
    return [v * scale * w for v, w in zip(x, weight)]


class Forward:
    """Logits at the last position of a list of ids."""

    def __init__(self, config, tensors):
        self.config, self.tensors = config, tensors
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads", self.heads)
        self.dim = config.get("head_dim") or config.get("attention_head_dim") or config["hidden_size"] // self.heads
        self.eps = config["rms_norm_eps"]
        self.frequencies = frequencies(config, self.dim)

    def vector(self, name):
        return self.tensors[name][1]

    def linear(self, name, x):
        (rows, columns), weights = self.tensors[name + ".weight"]
        bias = self.tensors.get(name + ".bias", (None, [0.0] * rows))[1]
        return [sum(map(float.__mul__, weights[r * columns:(r + 1) * columns], x)) + bias[r] for r in range(rows)]

    def rotated(self, head, position):
        half = self.dim // 2
        angles = [position * f for f in self.frequencies]
        return [head[i] * math.cos(angles[i]) - head[i + half] * math.sin(angles[i]) for i in range(half)] + \
            [head[i + half] * math.cos(angles[i]) + head[i] * math.sin(angles[i]) for i in range(half)]

    def split(self, values, count, position, norm_name):
        heads = [self.rotated(values[h * self.dim:(h + 1) * self.dim], position) for h in range(count)]
        if norm_name in self.tensors:
            heads = [norm(head, self.vector(norm_name), self.eps) for head in heads]
        return heads

    def attend(self, prefix, rows):
        name = prefix + "self_attn."
        queries = [self.split(self.linear(name + "q_proj", x), self.heads, p, name + "query_layernorm.weight")
                   for p, x in enumerate(rows)]
        keys = [self.split(self.linear(name + "k_proj", x), self.kv_heads, p, name + "key_layernorm.weight")
                for p, x in enumerate(rows)]
        values = [self.linear(name + "v_proj", x) for x in rows]
        results = []
        for position in range(len(rows)):
            mixed = []
            for h in range(self.heads):
                kv = h // (self.heads // self.kv_heads)
                scores = [sum(map(float.__mul__, queries[position][h], keys[t][kv])) / math.sqrt(self.dim)
                          for t in range(position + 1)]
                largest = max(scores)
                weights = [math.exp(s - largest) for s in scores]
                for d in range(self.dim):
                    mixed.append(sum(w * values[t][kv * self.dim + d] for t, w in enumerate(weights)) / sum(weights))
            results.append(self.linear(name + "o_proj", mixed))
        return results

    def mlp(self, name, x):
        gate, up = self.linear(name + "gate_proj", x), self.linear(name + "up_proj", x)
        return self.linear(name + "down_proj", [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)])

    def logits(self, ids):
        hidden = self.config["hidden_size"]
        embedding = self.vector("model.embed_tokens.weight")
        rows = [embedding[i * hidden:(i + 1) * hidden] for i in ids]
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            weight = self.vector(prefix + "input_layernorm.weight")
            mixed = self.attend(prefix, [norm(x, weight, self.eps) for x in rows])
            rows = [[a + b for a, b in zip(x, y)] for x, y in zip(rows, mixed)]
            weight = self.vector(prefix + "post_attention_layernorm.weight")
            inner = [self.mlp(prefix + "mlp.", norm(x, weight, self.eps)) for x in rows]
            rows = [[a + b for a, b in zip(x, y)] for x, y in zip(rows, inner)]
        last = norm(rows[-1], self.vector("model.norm.weight"), self.eps)
        name = "model.embed_tokens" if self.config["tie_word_embeddings"] else "lm_head"
        return self.linear(name, last)


def distance(found, expected):
    if len(found) != len(expected):
        return math.inf
    return max(abs(a - b) for a, b in zip(found, expected)) / max(abs(x) for x in expected)


def check_oracle(name):
    """The forward pass above against a reference model."""
    directory = f"tests/vectors/models/{name}"
    with open(f"{directory}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    with open(f"{directory}/reference.json", encoding="ascii") as file:
        cases = [case for case in json.load(file)["cases"] if len(case["ids"]) <= 12]
    forward = Forward(config, read_tensors(f"{directory}/model.safetensors"))
    worst = max(distance(forward.logits(case["ids"]), case["last_logits"]) for case in cases)
    check(f"the forward pass in Python equals {name}, {len(cases)} cases", len(cases) > 1 and worst < TOLERANCE, worst)


# --- made models ---------------------------------------------------------------------------------------------------

BASE = {"hidden_act": "silu", "rms_norm_eps": 1e-5, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
        "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 40, "vocab_size": 70,
        "max_position_embeddings": 128, "tie_word_embeddings": True, "eos_token_id": 2}
LLAMA = dict(BASE, architectures=["LlamaForCausalLM"])
HUNYUAN = dict(BASE, architectures=["HunYuanDenseV1ForCausalLM"], use_qk_norm=True)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 40}

MADE = (
    ("Llama, attention_bias", dict(LLAMA, attention_bias=True)),
    ("Llama, mlp_bias", dict(LLAMA, mlp_bias=True)),
    ("Llama, both biases, untied, linear scaling",
     dict(LLAMA, attention_bias=True, mlp_bias=True, tie_word_embeddings=False, torch_dtype="float32",
          rope_scaling={"type": "linear", "factor": 2.5}, rope_theta=5000.0)),
    ("Llama, linear scaling in rope_parameters", dict(LLAMA, dtype="float32",
     rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 300000.0})),
    ("Llama, llama3 scaling", dict(LLAMA, rope_theta=500.0, rope_scaling=LLAMA3)),
    ("Llama, dynamic scaling, which has no effect within the context",
     dict(LLAMA, rope_scaling={"type": "dynamic", "factor": 2.0, "alpha": 1000.0})),
    ("Hunyuan, attention_bias, attention_head_dim",
     dict({k: v for k, v in HUNYUAN.items() if k != "head_dim"}, attention_head_dim=16, attention_bias=True,
          rope_scaling={"type": "dynamic", "alpha": 50.0})),
    ("Hunyuan, linear scaling", dict(HUNYUAN, rope_scaling={"type": "linear", "factor": 3.0})),
)


def make_tensors(config, rng):
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    q, kv = config["num_attention_heads"] * 16, config["num_key_value_heads"] * 16
    tensors = {}

    def add(name, *shape, around=0.0, spread=0.3):
        values = [rng.gauss(around, spread) for _ in range(math.prod(shape))]
        tensors[name] = (list(shape), array.array("f", values).tolist())

    add("model.embed_tokens.weight", vocab, hidden, spread=1.0)
    add("model.norm.weight", hidden, around=1.5, spread=0.8)
    if not config["tie_word_embeddings"]:
        add("lm_head.weight", vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            add(f"{prefix}{name}.weight", hidden, around=1.0, spread=0.8)
        if config["architectures"][0].startswith("HunYuan"):
            for name in ("query_layernorm", "key_layernorm"):
                add(f"{prefix}self_attn.{name}.weight", 16, around=1.0, spread=0.8)
        for name, rows, columns, flag in (
                ("self_attn.q_proj", q, hidden, "attention_bias"), ("self_attn.k_proj", kv, hidden, "attention_bias"),
                ("self_attn.v_proj", kv, hidden, "attention_bias"), ("self_attn.o_proj", hidden, q, "attention_bias"),
                ("mlp.gate_proj", inner, hidden, "mlp_bias"), ("mlp.up_proj", inner, hidden, "mlp_bias"),
                ("mlp.down_proj", hidden, inner, "mlp_bias")):
            add(f"{prefix}{name}.weight", rows, columns)
            if config.get(flag):
                add(f"{prefix}{name}.bias", rows, spread=1.0)
    return tensors


def check_made(label, config, folder, rng):
    tensors = make_tensors(config, rng)
    with open(f"{folder}/config.json", "w", encoding="ascii") as file:
        json.dump(config, file)
    write_tensors(f"{folder}/model.safetensors", tensors)
    prompts = [[rng.randrange(70) for _ in range(length)] for length in (1, 5, 24)]
    code, answers, err = eval_lines(folder, [{"ids": ids, "max_new": 1} for ids in prompts])
    forward = Forward(config, tensors)
    worst = max((distance(answer.get("last_logits", []), forward.logits(ids))
                 for ids, answer in zip(prompts, answers)), default=math.inf)
    check(label, code == 0 and len(answers) == len(prompts) and worst < TOLERANCE, f"{worst} {err}")
    # a bias that config.json announces is not optional
    first = next((name for name in tensors if name.endswith(".bias")), None)
    if first is not None:
        del tensors[first]
        write_tensors(f"{folder}/model.safetensors", tensors)
        code, _, err = run(["inspect", "--model", folder])
        check(f"{label}: missing {first}", code == 1 and f'tensor "{first}" is missing' in err, err)


if __name__ == "__main__":
    for reference in ("llama_gqa_f32", "llama_tied_theta_bf16", "hunyuan_gqa_f32"):
        check_oracle(reference)
    generator = random.Random(20)
    for made_label, made_config in MADE:
        with tempfile.TemporaryDirectory() as temporary:
            check_made(made_label, made_config, temporary, generator)
    finish()
