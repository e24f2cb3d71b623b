"""LoRA adapters: their results, bit for bit in any company, which of them are loaded, and those that cannot be used."""
import array
import glob
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(__file__))
from check_serve import FAILURE, RESULT, Engine, request
from check_vectors import TOLERANCE
from harness import DEMO, ENGINE, check, demo_cases, eval_lines, finish, instruction_sets, run

BASE = "tests/vectors/models/hunyuan_gqa_f32"
GOLDEN = "tests/vectors/adapters/lora_on_gqa_f32"
LINEARS = {"q_proj": "self_attn", "k_proj": "self_attn", "v_proj": "self_attn", "o_proj": "self_attn",
           "gate_proj": "mlp", "up_proj": "mlp", "down_proj": "mlp"}
ADAPTER_FAILURE = 14


# --- files ---------------------------------------------------------------------------------------------------------

def read_tensors(path):
    """{name: (dtype, shape, values)} of a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        raw = data[entry["data_offsets"][0]:entry["data_offsets"][1]]
        if entry["dtype"] == "F32":
            values = array.array("f", raw)
        elif entry["dtype"] == "BF16":
            words = array.array("H", raw)
            values = array.array("f", b"".join(struct.pack("<I", word << 16) for word in words))
        else:
            values = array.array("f", struct.unpack(f"<{len(raw) // 2}e", raw))
        tensors[name] = (entry["dtype"], entry["shape"], values)
    return tensors


def pack_values(dtype, values):
    if dtype == "F32":
        return array.array("f", values).tobytes()
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def rounded(dtype, values):
    """As they are when they have been stored."""
    if dtype == "F16":
        return list(struct.unpack(f"<{len(values)}e", struct.pack(f"<{len(values)}e", *values)))
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + struct.pack("<f", value)[2:])[0] for value in values]
    return list(array.array("f", values))


def write_tensors(path, tensors):
    header = {}
    data = b""
    for name, (dtype, shape, values) in tensors.items():
        raw = pack_values(dtype, values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def sizes(model):
    """The outputs and inputs of each matrix of a layer, and the number of layers."""
    with open(f"{model}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim") or config.get("attention_head_dim") or hidden // config["num_attention_heads"]
    query, key = head * config["num_attention_heads"], head * config["num_key_value_heads"]
    return {"q_proj": (query, hidden), "k_proj": (key, hidden), "v_proj": (key, hidden), "o_proj": (hidden, query),
            "gate_proj": (inner, hidden), "up_proj": (inner, hidden),
            "down_proj": (hidden, inner)}, config["num_hidden_layers"]


def make_adapter(folder, model, seed, rank=4, dtype="F32", targets=tuple(LINEARS), strength=0.5, settings=None,
                 rank_of=lambda layer, name: None):
    """A random adapter; returns its pairs {(layer, name): (rank, a, b)}."""
    dice = random.Random(seed)
    shapes, layers = sizes(model)
    pairs = {}
    tensors = {}
    for layer in range(layers):
        for name in targets:
            outputs, inputs = shapes[name]
            r = rank_of(layer, name) or rank
            a = rounded(dtype, [dice.gauss(0, 1 / math.sqrt(inputs)) for _ in range(r * inputs)])
            b = rounded(dtype, [dice.gauss(0, strength / math.sqrt(r)) for _ in range(outputs * r)])
            prefix = f"base_model.model.model.layers.{layer}.{LINEARS[name]}.{name}"
            tensors[f"{prefix}.lora_A.weight"] = (dtype, [r, inputs], a)
            tensors[f"{prefix}.lora_B.weight"] = (dtype, [outputs, r], b)
            pairs[layer, name] = (r, a, b)
    os.makedirs(folder, exist_ok=True)
    write_tensors(f"{folder}/adapter_model.safetensors", tensors)
    write_config(folder, {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 2 * rank,
                          "target_modules": list(targets), **(settings or {})})
    return pairs


def write_config(folder, config):
    with open(f"{folder}/adapter_config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)


def merge(model, folder, pairs, scale_of):
    """The model with W + scale * (b a) in the place of each W, in float32."""
    os.makedirs(folder, exist_ok=True)
    tensors = {}
    for path in sorted(glob.glob(f"{model}/*.safetensors")):
        tensors.update(read_tensors(path))
    tensors = {name: ("F32", shape, values) for name, (_, shape, values) in tensors.items()}
    for (layer, name), (rank, a, b) in pairs.items():
        key = f"model.layers.{layer}.{LINEARS[name]}.{name}.weight"
        _, (outputs, inputs), weights = tensors[key]
        scale = scale_of(layer, name, rank)
        merged = array.array("f", weights)
        for i in range(outputs):
            row = [0.0] * inputs
            for j in range(rank):
                factor = b[i * rank + j] * scale
                row = [sum_ + factor * value for sum_, value in zip(row, a[j * inputs:(j + 1) * inputs])]
            for k in range(inputs):
                merged[i * inputs + k] = weights[i * inputs + k] + row[k]
        tensors[key] = ("F32", [outputs, inputs], merged)
    write_tensors(f"{folder}/model.safetensors", tensors)
    for file in ("config.json", "generation_config.json"):
        if os.path.exists(f"{model}/{file}"):
            shutil.copy(f"{model}/{file}", folder)


# --- results -------------------------------------------------------------------------------------------------------

def distance(answer, logits):
    """From given logits, in parts of the largest."""
    if "error" in answer:
        return math.inf
    return max(abs(x - y) for x, y in zip(answer["last_logits"], logits)) / max(map(abs, logits))


def check_golden():
    with open(f"{GOLDEN}/reference.json", encoding="ascii") as file:
        cases = json.load(file)["cases"]
    for how, options, field in (("--adapter", ["--adapter", GOLDEN], {}), ("a request's field", [], {"adapter": GOLDEN})):
        code, answers, err = eval_lines(BASE, [{"ids": case["ids"], "max_new": 24, **field} for case in cases], options)
        wrong = [f"{len(case['ids'])} ids: {distance(answer, case['last_logits']):.3g}"
                 for case, answer in zip(cases, answers)
                 if not distance(answer, case["last_logits"]) <= TOLERANCE or answer["greedy"] != case["greedy"]]
        check(f"reference adapter by {how}, {len(cases)} cases", code == 0 and len(answers) == len(cases) and not wrong,
              f"{wrong} {err}")
    plain = eval_lines(BASE, [{"ids": case["ids"]} for case in cases])[1]
    without = eval_lines(BASE, [{"ids": case["ids"], "adapter": None} for case in cases], ["--adapter", GOLDEN])[1]
    check("null in a request: without the adapter", plain == without and
          all(distance(answer, case["last_logits"]) > 0.01 for case, answer in zip(cases, plain)))


PROMPTS = [[17], [5, 6, 7, 8, 9], [(7 * i) % 200 + 10 for i in range(40)]]


def check_merged(folder):
    """What an adapter does is what the model does into which it was merged: every matrix, type, scale and pattern."""
    variants = {
        "all seven matrices": {},
        "float16, rank 3": {"dtype": "F16", "rank": 3},
        "bfloat16, rank 17, rslora": {"dtype": "BF16", "rank": 17, "settings": {"use_rslora": True, "lora_alpha": 3.5}},
        "gate and up only": {"targets": ("gate_proj", "up_proj")},
        "k and o only": {"targets": ("k_proj", "o_proj")},
        "patterns of ranks and alphas": {
            "settings": {"rank_pattern": {"layers.1.mlp.up_proj": 2, "q_proj": 5},
                         "alpha_pattern": {"self_attn.v_proj": 1, "model.layers.0.mlp.down_proj": 40}},
            "rank_of": lambda layer, name: 5 if name == "q_proj" else 2 if (layer, name) == (1, "up_proj") else None},
        "names with paths": {"targets": ("q_proj", "down_proj"),
                             "settings": {"target_modules": ["self_attn.q_proj", "model.layers.0.mlp.down_proj",
                                                             "layers.1.mlp.down_proj"]}},
        "a regular expression": {"targets": ("v_proj", "up_proj"),
                                 "settings": {"target_modules": r".*\.(v_proj|up_proj)"}},
        "all-linear, and what means nothing": {
            "settings": {"target_modules": "all-linear", "use_dora": False, "modules_to_save": None, "bias": "none",
                         "rank_pattern": {}, "fan_in_fan_out": False, "init_lora_weights": "gaussian",
                         "task_type": None, "layers_to_transform": None, "lora_dropout": 0.1, "revision": None}},
    }

    def scale_of(settings):
        def scale(layer, name, rank):
            alpha = settings["lora_alpha"]
            if name == "v_proj":
                alpha = settings.get("alpha_pattern", {}).get("self_attn.v_proj", alpha)
            if (layer, name) == (0, "down_proj"):
                alpha = settings.get("alpha_pattern", {}).get("model.layers.0.mlp.down_proj", alpha)
            return alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
        return scale

    for number, (what, variant) in enumerate(variants.items()):
        model = "tests/vectors/models/hunyuan_wide_heads_bf16" if number % 2 else BASE
        adapter, merged = f"{folder}/adapter{number}", f"{folder}/merged{number}"
        pairs = make_adapter(adapter, model, number, **variant)
        with open(f"{adapter}/adapter_config.json", encoding="utf-8") as file:
            merge(model, merged, pairs, scale_of(json.load(file)))
        asked = [{"ids": ids, "max_new": 8} for ids in PROMPTS]
        wanted = eval_lines(merged, asked)[1]
        code, answers, err = eval_lines(model, asked, ["--adapter", adapter])
        worst = max(distance(answer, other["last_logits"]) for answer, other in zip(answers, wanted))
        plain = eval_lines(model, asked)[1]
        check(f"adapter like the merged model: {what}", code == 0 and worst <= TOLERANCE and
              all(answer["greedy"] == other["greedy"] for answer, other in zip(answers, wanted)) and
              all(distance(answer, other["last_logits"]) > 0.01 for answer, other in zip(plain, wanted)),
              f"{worst:.3g} {err}")


def check_company(folder):
    """Six adapters and none, in one batch and each alone, on every instruction set, with 1 and 2 threads: the same."""
    adapters = [None, GOLDEN]
    for number, (rank, dtype, targets) in enumerate((
            (1, "F32", tuple(LINEARS)), (16, "BF16", ("q_proj", "v_proj")), (33, "F16", ("down_proj", "gate_proj")),
            (8, "F32", ("o_proj",)), (64, "BF16", tuple(LINEARS)))):
        adapters.append(f"{folder}/company{number}")
        make_adapter(adapters[-1], BASE, 100 + number, rank, dtype, targets)
    dice = random.Random(7)
    requests = [{"ids": [dice.randrange(5, 320) for _ in range(length)], "max_new": 6 + length % 5,
                 "repetition_penalty": 1.05 if length % 3 else 1, "adapter": adapter}
                for length in (1, 3, 17, 90, 150) for adapter in adapters]
    # alone, in the order of the adapters
    alone = {}
    for adapter in adapters:
        for one in (r for r in requests if r["adapter"] == adapter):
            alone[json.dumps(one)] = run(["eval", "--model", BASE, "--threads", "1"], json.dumps(one))[1]
    different = len(set(alone[json.dumps(r)] for r in requests[-len(adapters):]))
    check("each adapter has answers of its own", different == len(adapters), str(different))
    dice.shuffle(requests)
    wanted = b"".join(alone[json.dumps(r)] for r in requests)
    data = "".join(json.dumps(r) + "\n" for r in requests)
    for isa in instruction_sets():
        for threads, most in ((1, 3), (2, 64), (2, 1)):
            code, out, err = run(["eval", "--model", BASE, "--isa", isa, "--threads", str(threads),
                                  "--max-adapters", str(most)], data)
            check(f"{len(requests)} requests with {len(adapters)} adapters, {isa}, {threads} threads, {most} loaded",
                  code == 0 and out == wanted, err)


def check_poison(folder):
    """An adapter full of NaN, which loads like any other: its requests fail, and it leaves nothing to others."""
    poison = f"{folder}/poison"
    make_adapter(poison, BASE, 400, rank=40)
    tensors = read_tensors(f"{poison}/adapter_model.safetensors")
    write_tensors(f"{poison}/adapter_model.safetensors",
                  {name: (dtype, shape, [math.nan] * len(values)) for name, (dtype, shape, values) in tensors.items()})
    good = {"ids": [9, 8, 7], "max_new": 12, "adapter": GOLDEN}
    wanted = eval_lines(BASE, [good])[1][0]
    code, answers, err = eval_lines(BASE, [{"ids": [5], "max_new": 5, "adapter": poison}, good, {**good, "adapter": None},
                                           {"ids": [6, 7], "max_new": 5, "adapter": poison}, good, good])
    check("an adapter of NaN fails its own requests", code == 1 and
          [list(answer) == ["error"] for answer in answers] == [True, False, False, True, False, False] and
          answers[1] == answers[4] == answers[5] == wanted, err)


# --- which are loaded ----------------------------------------------------------------------------------------------

def mapped(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        return {line.split()[-1] for line in file if "adapter_model.safetensors" in line}


def check_loaded(folder):
    """Loaded at first use, no more than may be, and the one that was used longest ago makes room."""
    names = [f"{folder}/loaded{number}" for number in range(5)]
    for number, name in enumerate(names):
        make_adapter(name, BASE, 200 + number)
    process = subprocess.Popen([ENGINE, "eval", "--model", BASE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(numbers):
        for number in numbers:
            process.stdin.write(json.dumps({"ids": [5, 6], "max_new": 4, "adapter": names[number]}).encode() + b"\n")
        process.stdin.flush()
        for _ in numbers:
            if "error" in json.loads(process.stdout.readline()):
                return None
        # what is unmapped with the last answer's request needs no event that we could wait for
        return sorted(names.index(os.path.dirname(path)) for path in mapped(process.pid))

    seen = [ask([0]), ask([1]), ask([2]), ask([0]), ask([3]), ask([1, 3])]
    check("adapters are loaded at first use, the least recently used makes room", seen ==
          [[0], [0, 1], [0, 1, 2], [0, 1, 2], [0, 2, 3], [0, 1, 3]], str(seen))
    many = ask([number % 5 for number in range(200)])
    check("200 requests that need 5 adapters where 3 may be loaded", many is not None and len(many) == 3, str(many))
    process.stdin.close()
    check("their engine ends well", process.wait() == 0 and process.stdout.read() == b"")
    for value in ("0", "65", "x"):
        check(f"--max-adapters {value}", run(["eval", "--model", BASE, "--max-adapters", value])[0] == 2)


# --- refused -------------------------------------------------------------------------------------------------------

def check_refused(folder):
    """Each with the file and the fault; a good request beside it does not notice."""
    good = f"{folder}/good"
    make_adapter(good, BASE, 300, targets=("q_proj", "v_proj"))
    with open(f"{good}/adapter_config.json", encoding="utf-8") as file:
        config = json.load(file)
    tensors = read_tensors(f"{good}/adapter_model.safetensors")
    first = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    second = first.replace("lora_A", "lora_B")
    cases = {}

    def case(name, words, settings=None, change=None):
        path = f"{folder}/bad{len(cases)}"
        os.makedirs(path)
        write_config(path, {key: value for key, value in {**config, **(settings or {})}.items() if value != "DROP"})
        changed = dict(tensors)
        if change is not None:
            change(changed)
        write_tensors(f"{path}/adapter_model.safetensors", changed)
        cases[path] = (name, ("adapter_config.json" if settings else "adapter_model.safetensors",) + words)
        return path

    for key, value, words in (
            ("peft_type", "LOHA", ("peft_type", "LOHA")), ("peft_type", "DROP", ("peft_type",)),
            ("peft_type", 5, ("peft_type",)), ("task_type", "SEQ_CLS", ("task_type", "SEQ_CLS")),
            ("bias", "all", ("bias", "all")), ("use_dora", True, ("use_dora",)), ("lora_bias", True, ("lora_bias",)),
            ("fan_in_fan_out", True, ("fan_in_fan_out",)), ("modules_to_save", ["lm_head"], ("modules_to_save",)),
            ("use_dora", "yes", ("use_dora",)), ("layer_replication", [[0, 1]], ("layer_replication",)),
            ("trainable_token_indices", [3], ("trainable_token_indices",)),
            ("alora_invocation_tokens", [3], ("alora_invocation_tokens",)),
            ("init_lora_weights", "pissa", ("init_lora_weights", "pissa")),
            ("r", "DROP", ("r ",)), ("r", 0, ("r ",)), ("r", -4, ("r ",)), ("r", 1025, ("r ",)), ("r", 4.0, ("r ",)),
            ("r", 10 ** 18, ("r ",)), ("lora_alpha", "DROP", ("lora_alpha",)), ("lora_alpha", 0, ("lora_alpha",)),
            ("lora_alpha", -1, ("lora_alpha",)), ("lora_alpha", 1e300, ("lora_alpha",)),
            ("lora_alpha", "8", ("lora_alpha",)), ("use_rslora", 1, ("use_rslora",)),
            ("rank_pattern", {"q_proj": 0}, ("rank_pattern", "q_proj")), ("rank_pattern", [4], ("rank_pattern",)),
            ("rank_pattern", {".*q.*": 4}, ("rank_pattern", "regular")),
            ("rank_pattern", {str(i): 4 for i in range(15)}, ("rank_pattern", "15")),
            ("alpha_pattern", {"q_proj": None}, ("alpha_pattern", "q_proj")),
            ("target_modules", "DROP", ("target_modules",)), ("target_modules", [], ("target_modules",)),
            ("target_modules", [5], ("target_modules",)), ("target_modules", ["q_proj", "lm_head"], ("lm_head",)),
            ("target_modules", ["q_proj", "v_proj", "layers.2.mlp.up_proj"], ("layers.2.mlp.up_proj", "2 layers")),
            ("target_modules", ["q_proj"] * 15, ("target_modules", "15")),
            ("layers_to_transform", "0", ("layers_to_transform",)),
            ("layers_to_transform", [0.5], ("layers_to_transform",))):
        case(f"{key} = {str(value)[:30]}", words, {key: value})
    for name, words, settings, change in (
            ("rank of the file", ("[4, 64]", "[5, 64]", first), {"r": 5}, None),
            ("a target that is not in the file", ("k_proj", "missing"), {"target_modules": ["q_proj", "k_proj", "v_proj"]},
             None),
            ("weights of no target", ("v_proj",), {"target_modules": ["q_proj"]}, None),
            ("weights of a layer that is left out", ("layers.0", ), {"layers_to_transform": [1]}, None)):
        path = case(name, words, settings, change)
        cases[path] = (name, ("adapter_model.safetensors",) + words)
    case("lora_B is missing", ("lora_B", "layers.0.self_attn.q_proj"), None, lambda t: t.pop(second))
    case("a layer is missing", ("layers.1.self_attn.v_proj",), None,
         lambda t: [t.pop(name) for name in list(t) if "layers.1.self_attn.v_proj" in name])
    case("a layer that the model has not", ("layers.2.self_attn", "2 layers"), None,
         lambda t: t.update({first.replace("layers.0", "layers.2"): t[first]}))
    case("another tensor", ("lora_embedding_A",), None,
         lambda t: t.update({"base_model.model.model.embed_tokens.lora_embedding_A": t[first]}))
    case("inputs of another model", ("[4, 63]", "[4, 64]"), None,
         lambda t: t.update({first: ("F32", [4, 63], [0.0] * 252)}))
    case("outputs of another model", ("[65, 4]", "[64, 4]"), None,
         lambda t: t.update({second: ("F32", [65, 4], [0.0] * 260)}))
    case("a vector", ("1 dimensions",), None, lambda t: t.update({first: ("F32", [256], [0.0] * 256)}))
    case("nothing in it", ("lora_A", "missing"), None, lambda t: t.clear())

    def damaged(name, words, damage):
        path = f"{folder}/bad{len(cases)}"
        shutil.copytree(good, path)
        damage(path)
        cases[path] = (name, words)

    def replace_in_header(path, old, new):
        with open(f"{path}/adapter_model.safetensors", "r+b") as file:
            data = file.read().replace(old, new)
            file.seek(0)
            file.write(data)

    damaged("another type of numbers", ("adapter_model.safetensors", "I32", "F32"),
            lambda path: replace_in_header(path, b'"F32"', b'"I32"'))
    damaged("no configuration", ("adapter_config.json",), lambda path: os.remove(f"{path}/adapter_config.json"))
    damaged("no weights", ("adapter_model.safetensors",), lambda path: os.remove(f"{path}/adapter_model.safetensors"))
    damaged("a pickle", ("adapter_model.bin", "pickle"),
            lambda path: os.rename(f"{path}/adapter_model.safetensors", f"{path}/adapter_model.bin"))
    damaged("a truncated file", ("adapter_model.safetensors", "truncated"),
            lambda path: os.truncate(f"{path}/adapter_model.safetensors", 2000))
    damaged("an empty file", ("adapter_model.safetensors",),
            lambda path: os.truncate(f"{path}/adapter_model.safetensors", 0))
    damaged("no JSON", ("adapter_config.json", "line 1"),
            lambda path: os.truncate(f"{path}/adapter_config.json", 20))
    cases[f"{folder}/no-such-directory"] = ("no directory", ("no-such-directory",))
    paths = [good]
    for path in cases:
        paths += [path, good]
    code, answers, err = eval_lines(BASE, [{"ids": [9, 8], "max_new": 3, "adapter": path} for path in paths])
    wrong = [f"{cases[path][0]}: {answer}"[:300] for path, answer in zip(paths, answers) if path != good and
             (list(answer) != ["error"] or not all(word in answer["error"] for word in cases[path][1]))]
    check(f"{len(cases)} adapters that cannot be used, each with the file and the fault",
          code == 1 and len(answers) == len(paths) and not wrong, "\n".join(wrong) or err)
    kept = [answer for path, answer in zip(paths, answers) if path == good]
    check("the good one beside them is not touched", all(answer == kept[0] and "error" not in answer for answer in kept))
    other = eval_lines("tests/vectors/models/hunyuan_wide_heads_bf16", [{"ids": [1], "adapter": GOLDEN}])[1][0]
    check("an adapter of another base model", "error" in other and "base model" in other["error"], str(other)[:200])
    for value in ('""', "5", "[]"):
        code, out, err = run(["eval", "--model", BASE], f'{{"ids":[1],"adapter":{value}}}')
        check(f"adapter {value} in a request", code == 1 and b"adapter" in out and out.startswith(b'{"error"'), err)


# --- languages -----------------------------------------------------------------------------------------------------

def copy_demo(folder, settings=None):
    os.makedirs(folder)
    for path in glob.glob(f"{DEMO}/*"):
        if os.path.basename(path) != "hymt.json":
            os.symlink(os.path.abspath(path), f"{folder}/{os.path.basename(path)}")
    with open(f"{DEMO}/hymt.json", encoding="utf-8") as file:
        original = json.load(file)
    with open(f"{folder}/hymt.json", "w", encoding="utf-8") as file:
        json.dump({**original, **(settings or {})}, file)


def translations(model, text, options=(), pairs=(("en", "de"), ("en", "fr"), ("zh", "de"))):
    """Code and output for each pair of languages."""
    found = []
    for source, target in pairs:
        code, out, _ = run(["translate", "--model", model, "--from", source, "--to", target, *options], text)
        found.append(out.decode() if code == 0 else None)
    return found


def check_languages(folder):
    text = "red bicycle\nwinter coat\n"
    one, two = f"{folder}/one", f"{folder}/two"
    make_adapter(one, DEMO, 1, rank=2, targets=("q_proj", "down_proj"), strength=1.0)
    make_adapter(two, DEMO, 2, rank=2, targets=("o_proj", "up_proj"), strength=1.0)
    plain, with_one, with_two = (translations(DEMO, text, options)
                                 for options in ([], ["--adapter", one], ["--adapter", two]))
    distinct = [len({plain[i], with_one[i], with_two[i], None}) for i in range(3)]
    check("translate --adapter", distinct == [4, 4, 4], str((plain, with_one, with_two)))
    found = translations(DEMO, text, ["--adapters", f" de = {one} , zh-CN>de={two},"])
    check("translate --adapters: a language, and a pair before it",
          found == [with_one[0], plain[1], with_two[2]], str(found))
    model = f"{folder}/model"
    copy_demo(model, {"adapters": {"de": "adapters/one", "fr": "adapters/two"}})
    os.mkdir(f"{model}/adapters")
    shutil.copytree(one, f"{model}/adapters/one")
    shutil.copytree(two, f"{model}/adapters/two")
    found = translations(model, text)
    check("hymt.json assigns adapters", found == [with_one[0], with_two[1], with_one[2]], str(found))
    os.remove(f"{model}/adapters/two/adapter_config.json")
    code, out, err = run(["inspect", "--model", model])
    told = [line.split(":")[:2] for line in out.decode().splitlines() if line.startswith("adapter for ")]
    check("inspect tells of adapters", code == 0 and told[0][0] == "adapter for de" and "bytes" in told[0][1] and
          told[1] == ["adapter for fr", " cannot be used"], str(told) + err)
    shutil.copy(f"{two}/adapter_config.json", f"{model}/adapters/two")
    found = translations(model, text, ["--adapters", f"en>de={two}"])
    check("what is given goes before hymt.json", found == [with_two[0], with_two[1], with_one[2]], str(found))
    check("translate with an adapter that is not there", translations(DEMO, text, ["--adapter", f"{folder}/none"]) ==
          [None] * 3)
    for number, adapters in enumerate(({"de": "/etc"}, {"de": "a/../../b"}, {"de": ".."}, {"de": ""}, {"de": 5}, [],
                                       {"xx": "a"}, {"en>": "a"}, {"en>xx": "a"}, {"zh": "a", "zh-CN": "b"},
                                       {"@name": "a"})):
        bad = f"{folder}/bad{number}"
        copy_demo(bad, {"adapters": adapters})
        code, _, err = run(["translate", "--model", bad, "--from", "en", "--to", "de"], text)
        check(f"hymt.json with adapters {adapters}", code == 1 and "hymt.json: adapters" in err, err)
    for adapters in ("de", "de=", "=x", "xx=x", "en>xx=x", "en>=x", "de=x,de=y", "de=x,zh>de=x,zh-CN>de=y", ",", "de=x,,fr=y"):
        code, _, err = run(["translate", "--model", DEMO, "--from", "en", "--to", "de", "--adapters", adapters], text)
        check(f"--adapters {adapters}", code == 1 and "list of adapters" in err, err)


def ready_fingerprint(engine):
    body = engine.start()
    lengths = struct.unpack_from("=QQIIIIIIIIII", body)[5:11]
    start = 56 + lengths[0] + lengths[1]
    return body[start:start + lengths[2]].decode()


def check_serve(folder):
    """One that cannot be used fails its requests and nothing else; once it is there, they are answered."""
    one, late = f"{folder}/one", f"{folder}/late"
    make_adapter(one, DEMO, 1, rank=2, targets=("q_proj", "down_proj"), strength=1.0)
    shutil.rmtree(late, ignore_errors=True)
    text = "red bicycle"
    plain = translations(DEMO, text + "\n")
    wanted = translations(DEMO, text + "\n", ["--adapter", one])
    without = Engine()
    fingerprint = ready_fingerprint(without)
    without.close()
    engine = Engine(options=["--adapters", f"de={one},fr={late}"])
    with_adapters = ready_fingerprint(engine)
    same = Engine(options=["--adapters", f"de={one}/,fr={folder}/elsewhere"])
    check("the fingerprint tells the adapters, not where they are",
          fingerprint != with_adapters == ready_fingerprint(same) and len(with_adapters) == 64)
    same.close()

    def ask(slot):
        pairs = (("en", "de"), ("en", "fr"), ("en", "zh"))
        engine.socket.sendall(b"".join(request(slot + i, slot + i, *pairs[i], text) for i in range(3)))
        answers, _ = engine.answers(3)
        return [answers[slot + i, slot + i] for i in range(3)]

    german, french, chinese = ask(1)
    check("serve: an adapter that is missing fails its requests, with its name",
          german[0] == RESULT and german[2] + "\n" == wanted[0] and chinese[0] == RESULT and
          french[:2] == (FAILURE, ADAPTER_FAILURE) and late in french[2], f"{german} {french} {chinese}")
    shutil.copytree(one, late)
    german, french, chinese = ask(11)
    check("serve: when it has come they are answered", french[0] == RESULT and french[2] + "\n" == wanted[1] != plain[1],
          str(french))
    told = [engine.fingerprints[11 + i, 11 + i] for i in range(3)]
    check("serve: what was not there when the engine started is not in its fingerprint", told[0] == told[2] == "" and
          len(told[1]) == 64, str(told))
    check("serve: ends well", engine.close() == 0)

    make_adapter(late, DEMO, 3, rank=2, targets=("q_proj", "down_proj"), strength=1.0)
    engine = Engine(options=["--adapters", f"fr={late}", "--max-adapters", "1"])
    engine.start()
    before = ask(21)[1]
    same_files = engine.fingerprints[22, 22]
    make_adapter(f"{folder}/new", DEMO, 4, rank=2, targets=("q_proj", "down_proj"), strength=1.0)
    shutil.rmtree(late)
    check("serve: while files are being replaced, those that are loaded serve", ask(31)[1] == before and
          engine.fingerprints[32, 32] == same_files == "")
    os.rename(f"{folder}/new", late)
    wanted = translations(DEMO, text + "\n", ["--adapter", late])
    _, french, chinese = ask(1)
    told = engine.fingerprints.get((2, 2))
    check("serve: files that came in their place are used from then on", french[2] + "\n" == wanted[1] != before[2] + "\n",
          f"{french} {before}")
    check("serve: an answer of an adapter that changed since the start has a fingerprint of its own",
          french[0] == RESULT and chinese[0] == RESULT and len(told) == 64 and told != with_adapters and
          engine.fingerprints[3, 3] == "", f"{french} {told}")
    engine.close()

    engine = Engine(options=["--adapters", f"fr={late}, @one={one}"])
    engine.start()
    pairs = (("fr", ""), ("fr", "one"), ("zh", "one"), ("fr", "two"))
    engine.socket.sendall(b"".join(request(i, i, "en", pairs[i][0], text, adapter=pairs[i][1]) for i in range(4)))
    answers, _ = engine.answers(4)
    by_name = translations(DEMO, text + "\n", ["--adapter", one], [("en", "fr"), ("en", "zh")])
    check("serve: an adapter that the request names, in the place of that of the language",
          [answers[i, i][2] + "\n" for i in range(3)] == [wanted[1], *by_name] and
          answers[3, 3][:2] == (FAILURE, ADAPTER_FAILURE) and '"two"' in answers[3, 3][2], str(answers))
    engine.close()


def check_serve_queue(folder):
    """Requests that wait for an adapter: all are answered, or cancelled, and nobody else waits for them."""
    names = [f"{folder}/queue{number}" for number in range(3)]
    for number, name in enumerate(names):
        make_adapter(name, DEMO, 20 + number, rank=2, targets=("v_proj",), strength=0.3)
    targets = ("de", "fr", "es")
    engine = Engine(options=["--max-adapters", "1", "--adapters",
                             ",".join(f"{target}={name}" for target, name in zip(targets, names))])
    engine.start()
    text = "red bicycle"
    wanted = {target: translations(DEMO, text + "\n", ["--adapter", name], [("en", target)])[0]
              for target, name in zip(targets, names)}
    started = time.monotonic()
    engine.socket.sendall(b"".join(request(i + 1, i, "en", targets[i % 3], text) for i in range(60)))
    answers, doubles = engine.answers(60)
    wrong = [i for i in range(60) if answers[i + 1, i][2] + "\n" != wanted[targets[i % 3]]]
    check("serve: 60 requests for 3 adapters where 1 may be loaded", not wrong and doubles == 0,
          f"{wrong} {time.monotonic() - started:.1f} s")
    engine.close()


if __name__ == "__main__":
    check_golden()
    with tempfile.TemporaryDirectory() as temporary:
        for part in (check_merged, check_company, check_poison, check_loaded, check_refused, check_languages, check_serve,
                     check_serve_queue):
            os.mkdir(f"{temporary}/{part.__name__}")
            part(f"{temporary}/{part.__name__}")
    finish()
