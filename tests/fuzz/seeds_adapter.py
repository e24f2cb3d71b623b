"""LoRA adapters of the small model, whole ones and every way in which one is refused; and lists of adapters."""
import struct

from seeds import JSON_WORDS, compact, files

SIZES = {"self_attn.q_proj": (8, 8), "self_attn.k_proj": (4, 8), "self_attn.v_proj": (4, 8), "self_attn.o_proj": (8, 8),
         "mlp.gate_proj": (6, 8), "mlp.up_proj": (6, 8), "mlp.down_proj": (8, 6)}
NAMES = [module.split(".")[1] for module in SIZES]
BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "F64": 8}
PREFIX = "base_model.model.model.layers.0."
FIRST = PREFIX + "self_attn.q_proj.lora_A.weight"
CONFIG = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"]}


def container(stored, shift=0):
    header, data = {}, b""
    for name, (dtype, shape) in stored.items():
        size = BYTES[dtype]
        for extent in shape:
            size *= extent
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + size]}
        data += bytes((i * 5 + 1) & 0x3F for i in range(size))
    text = compact(header).encode()
    text += b" " * (-len(text) % 8 + shift)
    return struct.pack("<Q", len(text)) + text + data


def pairs(modules=("self_attn.q_proj", "self_attn.v_proj"), rank=2, dtype="F32"):
    found = {}
    for module in modules:
        outputs, inputs = SIZES[module]
        found[f"{PREFIX}{module}.lora_A.weight"] = (dtype, [rank, inputs])
        found[f"{PREFIX}{module}.lora_B.weight"] = (dtype, [outputs, rank])
    return found


def seed(changes=None, stored=None, shift=0):
    config = {key: value for key, value in {**CONFIG, **(changes or {})}.items() if value is not Ellipsis}
    return files(adapter_config__json=compact(config),
                 adapter_model__safetensors=container(pairs() if stored is None else stored, shift))


SEEDS = {
    "good": seed(), "all": seed({"target_modules": NAMES}, pairs(SIZES)), "F16": seed(stored=pairs(dtype="F16")),
    "BF16": seed(stored=pairs(dtype="BF16")), "all-linear": seed({"target_modules": "all-linear"}, pairs(SIZES)),
    "regular": seed({"target_modules": ".*_proj"}),
    "nothing": b"", "config only": files(adapter_config__json=compact(CONFIG)),
    "weights only": files(adapter_model__safetensors=container(pairs())),
    "rank pattern": seed({"rank_pattern": {"q_proj": 2, "layers.0.self_attn.v_proj": 2}, "r": 3}),
    "alpha pattern": seed({"alpha_pattern": {"self_attn.q_proj": 1.5}}), "rslora": seed({"use_rslora": True}),
    "layers": seed({"layers_to_transform": [0]}), "layer": seed({"layers_to_transform": 0}),
    "empty layers": seed({"layers_to_transform": []}), "another layer": seed({"layers_to_transform": 1}),
    "excluded": seed({"exclude_modules": ["k_proj"], "target_modules": "all-linear"}),
    "nothing meant": seed({"use_dora": False, "lora_bias": None, "modules_to_save": [], "target_parameters": {},
                           "layer_replication": "", "trainable_token_indices": 0, "init_lora_weights": True}),
    "eva": seed({"init_lora_weights": "eva"}), "not aligned": seed(shift=1),
    "path": seed({"target_modules": ["model.layers.0.self_attn.q_proj", "self_attn.v_proj"]}),
    "config broken": files(adapter_config__json="{", adapter_model__safetensors=container(pairs())),
    "config a list": files(adapter_config__json="[]"),
    "weights broken": files(adapter_config__json=compact(CONFIG), adapter_model__safetensors=b"12345678"),
    "weights empty": files(adapter_config__json=compact(CONFIG), adapter_model__safetensors=b""),
}
for number, change in enumerate((
        {"peft_type": "LOHA"}, {"peft_type": ...}, {"peft_type": 5}, {"task_type": "SEQ_CLS"}, {"task_type": None},
        {"bias": "all"}, {"bias": "none"}, {"use_dora": True}, {"use_dora": 1}, {"use_dora": 0.5}, {"fan_in_fan_out": "x"},
        {"modules_to_save": ["lm_head"]}, {"target_parameters": {"a": 1}}, {"init_lora_weights": "pissa"},
        {"init_lora_weights": 5}, {"r": ...}, {"r": 0}, {"r": 1025}, {"r": 2.0}, {"r": 10 ** 18}, {"lora_alpha": ...},
        {"lora_alpha": 0}, {"lora_alpha": 1e300}, {"lora_alpha": "4"}, {"use_rslora": 1}, {"rank_pattern": []},
        {"rank_pattern": {"q_proj": 0}}, {"rank_pattern": {".*": 2}}, {"rank_pattern": {"": 2}},
        {"rank_pattern": {str(i): 2 for i in range(8)}}, {"alpha_pattern": {"q_proj": None}}, {"alpha_pattern": 5},
        {"target_modules": ...}, {"target_modules": []}, {"target_modules": ""}, {"target_modules": [5]},
        {"target_modules": ["lm_head"]}, {"target_modules": ["q_proj"] * 8}, {"target_modules": ["q_proj"]},
        {"target_modules": ["q_proj", "k_proj"]}, {"layers_to_transform": "0"}, {"layers_to_transform": [0.5]},
        {"layers_to_transform": [0] * 8}, {"layers_to_transform": [7, 0]})):
    SEEDS[f"config {number}"] = seed(change)
for number, (name, entry) in enumerate((
        (FIRST, None), (FIRST.replace("lora_A", "lora_B"), None), (FIRST, ("F32", [3, 8])), (FIRST, ("F32", [2, 7])),
        (FIRST, ("F32", [16])), (FIRST, ("F32", [2, 8, 1])), (FIRST, ("I32", [2, 8])), (FIRST, ("F64", [2, 8])),
        (FIRST, ("F32", [0, 8])), (FIRST.replace("lora_A", "lora_B"), ("F32", [9, 2])),
        (FIRST.replace("layers.0", "layers.1"), ("F32", [2, 8])), ("stray", ("F32", [0])), ("stray", ("F32", [1])))):
    stored = pairs()
    stored[name] = entry
    SEEDS[f"weights {number}"] = seed(stored={key: value for key, value in stored.items() if value is not None})
SEEDS["no weights"] = seed({"target_modules": ".*"}, {})
SEEDS["weights of no target"] = seed({"target_modules": ["q_proj"]}, pairs(("self_attn.q_proj", "mlp.up_proj")))

for number, text in enumerate((
        "", " ", ",", "de=/a", "de=/a,", " de = /a b , zh>ja=/c,\n@legal=/d", "de=/a,de=/b", "zh>de=/a,de=/b,@x=/c,@x=/d",
        "de", "=", "de=", "=/a", "xx=/a", "xx>de=/a", "de>xx=/a", "de>=/a", ">de=/a", "zh>de>fr=/a", "zh-CN > en_US=/a",
        "@=/a", "@" + "x" * 31 + "=/a", "@" + "x" * 32 + "=/a", "@a b=/a", "@a.b-c_D9=/a", "@ä=/a", ", ,de=/a", "de=/a=b",
        "\xff=/a", "zh-TW=/a,zh-Hant=/b", "@\0=/a")):
    SEEDS[f"list {number}"] = files(**{"hymt__adapters": text})

WORDS = JSON_WORDS + sorted(CONFIG) + NAMES + [
    "use_rslora", "rank_pattern", "alpha_pattern", "layers_to_transform", "all-linear", "lora_A.weight", "lora_B.weight",
    "#file hymt.adapters\n", "#file adapter_model.safetensors\n", "zh>de=", "@legal=", "zh-Hant", "BF16", "F16"]
