"""Models of quantised safetensors, whole ones and every way in which scales, zeros, groups or their words are refused."""
import struct

from seeds import JSON_WORDS, compact, files
from seeds_config import CONFIG as PLAIN_CONFIG

CONFIG = (PLAIN_CONFIG.replace('"num_key_value_heads":1', '"num_key_value_heads":2')
          .replace('"intermediate_size":6', '"intermediate_size":8'))
MATRICES = ["mlp.down_proj", "mlp.gate_proj", "mlp.up_proj", "self_attn.k_proj", "self_attn.o_proj", "self_attn.q_proj",
            "self_attn.v_proj"]
LAYER = "model.layers.0."
QUERY = LAYER + "self_attn.q_proj"
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "I32": 4, "F64": 8}
ONE = {"F32": struct.pack("<f", 0.5), "F16": struct.pack("<e", 0.5), "BF16": struct.pack("<f", 0.5)[2:], "F8_E4M3": b"\x38",
       "I32": struct.pack("<I", 0x76543210), "F64": struct.pack("<d", 0.5)}


def tensor(dtype, *shape, data=None):
    count = 1
    for extent in shape:
        count *= extent
    return dtype, list(shape), ONE[dtype] * count if data is None else data


def container(stored, shift=0):
    """Wider elements first, so that all are aligned; `shift` undoes it."""
    header, data = {}, b""
    for name, (dtype, shape, content) in sorted(stored.items(), key=lambda item: -SIZES[item[1][0]]):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = compact(header).encode()
    text += b" " * (-len(text) % 8 + shift)
    return struct.pack("<Q", len(text)) + text + data


def rest():
    found = {"model.embed_tokens.weight": tensor("BF16", 10, 8), "model.norm.weight": tensor("BF16", 8)}
    for name, size in (("input_layernorm", 8), ("post_attention_layernorm", 8), ("self_attn.query_layernorm", 4),
                       ("self_attn.key_layernorm", 4)):
        found[f"{LAYER}{name}.weight"] = tensor("BF16", size)
    return found


def fp8(scale=("F32", 1)):
    found = rest()
    for name in MATRICES:
        found[f"{LAYER}{name}.weight"] = tensor("F8_E4M3", 8, 8)
        found[f"{LAYER}{name}.weight_scale"] = tensor(*scale)
    return found


def gptq(group=4, order=True):
    groups = 8 // group
    found = rest()
    for name in MATRICES:
        found[f"{LAYER}{name}.qweight"] = tensor("I32", 1, 8)
        found[f"{LAYER}{name}.qzeros"] = tensor("I32", groups, 1)
        found[f"{LAYER}{name}.scales"] = tensor("F16", groups, 8)
        if order is not None:
            found[f"{LAYER}{name}.g_idx"] = tensor("I32", 8, data=struct.pack(
                "<8i", *(i // group if order else (i + 1) % groups for i in range(8))))
    return found


FP8 = {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"], "fmt": "e4m3"}
GROUP = {"weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}}
COMPRESSED = {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": GROUP}}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 4, "checkpoint_format": "gptq", "pack_dtype": "int32"}


def seed(stored, quantization, shift=0):
    config = CONFIG if quantization is None else CONFIG[:-1] + ',"quantization_config":' + compact(quantization) + "}"
    return files(config__json=config, model__safetensors=container(stored, shift))


SEEDS = {
    "fp8": seed(fp8(), FP8), "fp8 untold": seed(fp8(), None), "fp8 scale without dimension": seed(fp8(("F32",)), FP8),
    "fp8 rows": seed(fp8(("F16", 8)), COMPRESSED), "fp8 rows by one": seed(fp8(("BF16", 8, 1)), COMPRESSED),
    "gptq": seed(gptq(), GPTQ), "gptq version 2": seed(gptq(), {**GPTQ, "checkpoint_format": "gptq_v2"}),
    "gptq without order": seed(gptq(order=None), GPTQ), "gptq other order": seed(gptq(order=False), GPTQ),
    "gptq one group": seed(gptq(8), {**GPTQ, "group_size": -1}), "gptq untold": seed(gptq(), None),
    "gptq uneven groups": seed(gptq(8), {**GPTQ, "group_size": 5}),
    "gptq larger group": seed(gptq(8), {**GPTQ, "group_size": 128}),
    "gptq rows": seed(gptq(), GPTQ).replace(b'"head_dim":4', b'"head_dim":6'),
    "not aligned": seed(fp8(), FP8, 1), "gptq not aligned": seed(gptq(), GPTQ, 2),
}


def damage(label, make, quantization, name, *content, **how):
    stored = make()
    if content:
        stored[name] = tensor(*content, **how)
    else:
        del stored[name]
    SEEDS[label] = seed(stored, quantization)


SCALE = QUERY + ".weight_scale"
for number, content in enumerate((
        (), ("F32", 2), ("F32", 4, 2), ("F32", 1, 8), ("F32", 0), ("F64", 1), ("I32", 1), ("F8_E4M3", 8),
        ("F32", 1, 1, 1))):
    damage(f"fp8 scale {number}", fp8, FP8, SCALE, *content)
for dtype, bits in (("F32", b"\0\0\x80\x7f"), ("F32", b"\0\0\xc0\x7f"), ("F16", b"\0\x7c"), ("BF16", b"\x80\xff")):
    damage(f"fp8 scale not finite {dtype} {bits[-1]} {bits[-2]}", fp8, FP8, SCALE, dtype, 1, data=bits)
damage("fp8 embedding", fp8, FP8, "model.embed_tokens.weight", "F8_E4M3", 10, 8)
damage("fp8 norm", fp8, FP8, "model.norm.weight", "F8_E4M3", 8)
damage("fp8 shape", fp8, FP8, QUERY + ".weight", "F8_E4M3", 8, 4)
damage("fp8 integers", fp8, FP8, QUERY + ".weight", "I32", 8, 8)
damage("mixed", fp8, FP8, QUERY + ".weight", "F32", 8, 8)
for part, contents in {
        "qweight": ((), ("I32", 8, 1), ("I32", 2, 8), ("F32", 1, 8), ("I32", 8)),
        "qzeros": ((), ("I32", 1, 1), ("I32", 2, 2), ("F32", 2, 1)),
        "scales": ((), ("F16", 1, 8), ("F16", 2, 4), ("F64", 2, 8), ("BF16", 2, 8), ("F32", 2, 8), ("I32", 2, 8)),
        "g_idx": ((), ("I32", 4), ("I32", 8, 1), ("F32", 8))}.items():
    for number, content in enumerate(contents):
        damage(f"gptq {part} {number}", gptq, GPTQ, f"{QUERY}.{part}", *content)
for number in (-1, 2, 2 ** 31 - 1, -2 ** 31):
    damage(f"gptq group {number}", gptq, GPTQ, QUERY + ".g_idx", "I32", 8, data=struct.pack("<8i", *[0] * 7, number))

for number, change in enumerate((
        {"weight_block_size": [128, 128]}, {"weight_block_size": None}, {"fmt": "e5m2"}, {"fmt": 5}, {"fmt": None},
        {"quant_method": None}, {"quant_method": 8}, {"quant_method": "awq" * 30})):
    SEEDS[f"fp8 config {number}"] = seed(fp8(), {**FP8, **change})
for number, change in enumerate((
        {"format": "pack-quantized"}, {"format": "naive-quantized"}, {"config_groups": []}, {"config_groups": {}},
        {"config_groups": {"g": 1}}, {"config_groups": {"g": {"weights": 1}}},
        *({"config_groups": {"g": {"weights": {**GROUP["weights"], **wrong}}}} for wrong in (
            {"num_bits": 4}, {"num_bits": "8"}, {"type": "int"}, {"strategy": "group"}, {"symmetric": False})))):
    SEEDS[f"compressed config {number}"] = seed(fp8(), {**COMPRESSED, **change})
for number, change in enumerate((
        {"bits": 8}, {"bits": None}, {"group_size": 0}, {"group_size": -2}, {"group_size": 2 ** 20 + 1}, {"group_size": "4"},
        {"group_size": 10 ** 30}, {"group_size": 1}, {"checkpoint_format": "marlin"}, {"checkpoint_format": 5},
        {"checkpoint_format": None}, {"pack_dtype": "int64"})):
    SEEDS[f"gptq config {number}"] = seed(gptq(), {**GPTQ, **change})
SEEDS["number"] = seed(fp8(), 8)
SEEDS["list"] = seed(fp8(), [])

WORDS = JSON_WORDS + ["quantization_config", "quant_method", "fp8", "compressed-tensors", "gptq", "gptq_v2", "group_size",
                      "config_groups", "weight_scale", "qweight", "qzeros", "scales", "g_idx", "F8_E4M3", "I32", "F16",
                      "model.safetensors", "#file config.json\n"]
