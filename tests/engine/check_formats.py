"""Model formats: GGUF with its tokenizer, spellings of quantised safetensors, and that loading expands nothing."""
import json
import lzma
import math
import os
import shutil
import struct
import sys
import tempfile
import unicodedata

sys.path.insert(0, os.path.dirname(__file__))
from check_serve import Engine
from harness import DEMO, check, demo_cases, finish, run
from model_files import (BF16, F32, GGUF_BLOCKS, Q4_0, Q4_K, Q6_K, Q8_0, gguf_config, gguf_name, gguf_tokenizer,
                         read_json, read_safetensors, write_demo_gguf, write_gguf, write_safetensors)

MODELS = "tests/vectors/models"
TOKENIZERS = "tests/vectors/tokenizer"

# --- GGUF ------------------------------------------------------------------------------------------------------------


def check_demo_as_gguf(folder):
    """The demo model as a GGUF file translates as it does itself."""
    path = f"{folder}/demo.gguf"
    write_demo_gguf(path, DEMO)
    code, out, err = run(["inspect", "--model", path])
    expected = (b"\nformat: GGUF\n", b"tokenizer: metadata of the GGUF file, ", b"family: hy-mt1.5 (general.name",
                b"ids below 8044\n", b"stop id: 3 ", b"tensor: blk.{0..4}.ffn_down.weight [256, 768] BF16, ")
    check("inspect a GGUF file", code == 0 and all(part in out for part in expected), f"{code} {err} {out.decode()}")
    cases = [case for case in demo_cases() if (case["from"], case["to"]) == ("en", "zh") and
             case["prompt"].endswith("\n\n" + case["source"]) and case["prompt"].count("\n\n") == 1 and
             "\n" not in case["source"] + case["output"]]
    for model in (path, folder):
        code, out, err = run(["translate", "--model", model, "--from", "en", "--to", "zh"],
                             "".join(case["source"] + "\n" for case in cases))
        what = "a GGUF file" if model == path else "a directory of one GGUF file"
        check(f"translate with {what}, {len(cases)} texts",
              code == 0 and len(cases) > 20 and out.decode().split("\n")[:-1] == [case["output"] for case in cases] and
              "stop id 3 " in err, f"{code} {err}")
    code, out, err = run(["tokenize", "--model", path], '{"text": "<｜hy_User｜> a"}\n')
    ids = json.loads(out)["ids"]
    check("no control token of a GGUF file is found in text", code == 0 and ids and max(ids) < 8000, f"{ids} {err}")


def check_tokenizer(folder, name, pre):
    """A tokenizer.json as metadata of a GGUF file, which knows no normalisation."""
    with lzma.open(f"{TOKENIZERS}/{name}.tokenizer.json.xz", "rt", encoding="utf-8") as file:
        tokenizer = json.load(file)
    path = f"{folder}/{name}.gguf"
    write_gguf(path, {"general.architecture": "hunyuan-dense"} | gguf_tokenizer(tokenizer, pre), {})
    with open(f"{TOKENIZERS}/{name}.jsonl", encoding="utf-8") as file:
        cases = [json.loads(line) for line in file]
    cases = [case for case in cases if unicodedata.normalize("NFC", case["text"]) == case["text"]]
    code, out, err = run(["tokenize", "--model", path],
                         "".join(json.dumps(request) + "\n" for case in cases
                                 for request in ({"text": case["text"]}, {"ids": case["ids"]})))
    answers = [json.loads(line) for line in out.splitlines()]
    wrong = [case["text"] for case, ids, text in zip(cases, answers[::2], answers[1::2])
             if ids.get("ids") != case["ids"] or text.get("text") != case["decoded"]]
    check(f"tokenizer of a GGUF file, {pre}, {len(cases)} texts", code == 0 and len(cases) > 500 and
          len(answers) == 2 * len(cases) and not wrong, f"{wrong[:3]} {err}")
    os.remove(path)


# --- spellings of quantised safetensors ------------------------------------------------------------------------------


def answers_of(model):
    prompts = [[1, 5, 9], [7] * 20]
    code, out, err = run(["eval", "--model", model],
                         "".join(json.dumps({"ids": ids, "max_new": 8}) + "\n" for ids in prompts))
    return out if code == 0 else err


def check_spelling(folder, what, base, change):
    """A model whose files say the same otherwise computes the same bits."""
    directory = f"{folder}/spelling"
    shutil.rmtree(directory, ignore_errors=True)
    os.mkdir(directory)
    config = read_json(MODELS, base, "config.json")
    tensors = read_safetensors(f"{MODELS}/{base}/model.safetensors")
    change(config, tensors)
    with open(f"{directory}/config.json", "w", encoding="ascii") as file:
        json.dump(config, file)
    write_safetensors(f"{directory}/model.safetensors", tensors)
    expected, got = answers_of(f"{MODELS}/{base}"), answers_of(directory)
    check(f"{base}: {what}", isinstance(got, bytes) and got == expected, str(got)[:200])


def each_scale(tensors, change):
    for name in [name for name in tensors if name.endswith(".weight_scale")]:
        rows = tensors[name[:-len("_scale")]][1][0]
        tensors[name] = change(rows, *tensors[name])


def check_fp8_spellings(folder):
    def scalar(_, tensors):
        each_scale(tensors, lambda rows, dtype, shape, data: (dtype, [], data))

    def repeated(_, tensors):
        each_scale(tensors, lambda rows, dtype, shape, data: (dtype, [rows], data * rows))

    def wider(_, tensors):
        each_scale(tensors, lambda rows, dtype, shape, data: (
            "F32", [rows], b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))))

    def renamed(config, _):
        quantization = config["quantization_config"]
        quantization["ignore"] = quantization.pop("ignored_layers")

    def untold(config, _):
        del config["quantization_config"]

    def other_method(config, _):
        config["quantization_config"] = read_json(MODELS, "hunyuan_fp8_channel", "config.json")["quantization_config"]

    check_spelling(folder, "scales without a dimension", "hunyuan_fp8", scalar)
    check_spelling(folder, "the scale once for each row", "hunyuan_fp8", repeated)
    check_spelling(folder, "the other quantization_config", "hunyuan_fp8", other_method)
    check_spelling(folder, "no quantization_config", "hunyuan_fp8", untold)
    check_spelling(folder, "scales as float32, one dimension", "hunyuan_fp8_channel", wider)
    check_spelling(folder, "ignore instead of ignored_layers", "hunyuan_fp8_channel", renamed)


def change_zeros(tensors, change):
    for name in [name for name in tensors if name.endswith(".qzeros")]:
        dtype, shape, data = tensors[name]
        nibbles = [change(byte >> shift & 15) for byte in data for shift in (0, 4)]
        tensors[name] = (dtype, shape, bytes(low | high << 4 for low, high in zip(nibbles[::2], nibbles[1::2])))


def check_lowest_zero(folder):
    """The lowest zero, 0, is stored as the highest number in version 1, which stores zeros less one in 4 bits."""
    answers = []
    for version, stored in (("gptq", 15), ("gptq_v2", 0)):
        path = f"{folder}/{version}"
        os.mkdir(path)
        config = read_json(MODELS, "hunyuan_gptq_int4", "config.json")
        config["quantization_config"]["checkpoint_format"] = version
        tensors = read_safetensors(f"{MODELS}/hunyuan_gptq_int4/model.safetensors")
        change_zeros(tensors, lambda zero, stored=stored: stored)
        with open(f"{path}/config.json", "w", encoding="ascii") as file:
            json.dump(config, file)
        write_safetensors(f"{path}/model.safetensors", tensors)
        answers.append(answers_of(path))
    check("hunyuan_gptq_int4: the lowest zero in both versions", isinstance(answers[0], bytes) and
          answers[0] == answers[1], str(answers[0])[:200])


def check_gptq_spellings(folder):
    def version_2(config, tensors):
        config["quantization_config"]["checkpoint_format"] = "gptq_v2"
        change_zeros(tensors, lambda zero: zero + 1)

    def no_groups(_, tensors):
        for name in [name for name in tensors if name.endswith(".g_idx")]:
            del tensors[name]

    def other_groups(_, tensors):
        """The groups of all matrices that have two change their places; g_idx says so."""
        for name in [name for name in tensors if name.endswith(".g_idx")]:
            dtype, shape, data = tensors[name]
            if shape != [256]:
                continue
            tensors[name] = (dtype, shape, struct.pack("<256i", *(1 - group for group in struct.unpack("<256i", data))))
            for part in (".scales", ".qzeros"):
                dtype, shape, data = tensors[name[:-len(".g_idx")] + part]
                half = len(data) // 2
                tensors[name[:-len(".g_idx")] + part] = (dtype, shape, data[half:] + data[:half])

    check_spelling(folder, "version 2 stores zeros themselves", "hunyuan_gptq_int4", version_2)
    check_lowest_zero(folder)
    check_spelling(folder, "no g_idx", "hunyuan_gptq_int4", no_groups)
    check_spelling(folder, "g_idx in another order", "hunyuan_gptq_int4", other_groups)


# --- memory ----------------------------------------------------------------------------------------------------------

SHAPE = {"architectures": ["HunYuanDenseV1ForCausalLM"], "hidden_size": 512, "num_attention_heads": 8,
         "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 2048, "vocab_size": 8064,
         "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
         "eos_token_id": 8020}
MATRICES = {"self_attn.q_proj": (512, 512), "self_attn.k_proj": (128, 512), "self_attn.v_proj": (128, 512),
            "self_attn.o_proj": (512, 512), "mlp.gate_proj": (2048, 512), "mlp.up_proj": (2048, 512),
            "mlp.down_proj": (512, 2048)}
VECTORS = {"input_layernorm": 512, "post_attention_layernorm": 512, "self_attn.query_layernorm": 64,
           "self_attn.key_layernorm": 64}


def filled(count):
    """Bytes that are small numbers in any type."""
    return b"\x11" * count


def plain(dtype, *shape):
    return dtype, list(shape), filled(math.prod(shape) * (4 if dtype == "F32" else 2))


def hf_matrix(kind, name, rows, columns):
    """The tensors of a linear layer."""
    if kind == "bf16":
        return {f"{name}.weight": plain("BF16", rows, columns)}
    if kind == "fp8":
        return {f"{name}.weight": ("F8_E4M3", [rows, columns], filled(rows * columns)),
                f"{name}.weight_scale": plain("F32", rows)}
    return {f"{name}.qweight": ("I32", [columns // 8, rows], filled(columns * rows // 2)),
            f"{name}.qzeros": ("I32", [columns // 128, rows // 8], filled(columns * rows // 256)),
            f"{name}.scales": plain("F16", columns // 128, rows)}


def write_hf_model(directory, kind, layers):
    tensors = {"model.embed_tokens.weight": plain("BF16", 8064, 512), "model.norm.weight": plain("BF16", 512)}
    for layer in range(layers):
        for name, size in VECTORS.items():
            tensors[f"model.layers.{layer}.{name}.weight"] = plain("BF16", size)
        for name, shape in MATRICES.items():
            tensors |= hf_matrix(kind, f"model.layers.{layer}.{name}", *shape)
    config = SHAPE | {"num_hidden_layers": layers}
    if kind == "gptq":
        config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    os.mkdir(directory)
    write_safetensors(f"{directory}/model.safetensors", tensors)
    with open(f"{directory}/config.json", "w", encoding="ascii") as file:
        json.dump(config, file)
    for name in ("tokenizer.json", "hymt.json"):
        shutil.copy(f"{DEMO}/{name}", directory)


def write_gguf_model(directory, kind, layers, tokenizer):
    block, size = GGUF_BLOCKS[kind]

    def matrix(rows, columns):
        return kind, [rows, columns], filled(rows * columns // block * size)

    tensors = {"token_embd.weight": matrix(8064, 512), "output_norm.weight": (F32, [512], filled(2048))}
    for layer in range(layers):
        for name, length in VECTORS.items():
            tensors[gguf_name(f"model.layers.{layer}.{name}.weight")] = (F32, [length], filled(4 * length))
        for name, shape in MATRICES.items():
            tensors[gguf_name(f"model.layers.{layer}.{name}.weight")] = matrix(*shape)
    os.mkdir(directory)
    write_gguf(f"{directory}/model.gguf", gguf_config(SHAPE | {"num_hidden_layers": layers}) | tokenizer, tensors)
    shutil.copy(f"{DEMO}/hymt.json", directory)


def memory_of(directory):
    """What an engine that has loaded a model occupies: anonymous bytes, and the most that was ever resident."""
    engine = Engine(directory, ["--max-context", "512", "--threads", "2"])
    stored = struct.unpack_from("=QQ", engine.start())[1]
    with open(f"/proc/{engine.process.pid}/status", encoding="ascii") as file:
        status = dict(line.split(":", 1) for line in file)
    engine.close()
    return stored, int(status["RssAnon"].split()[0]) * 1024, int(status["VmHWM"].split()[0]) * 1024


def check_memory(folder):
    """
    A model with more layers of the same kind takes its stored bytes more, not one twentieth above them, and of those
    hardly any is memory of the engine's own. All weights are read while loading, so that the most ever resident has them.
    """
    tokenizer = gguf_tokenizer(read_json(DEMO, "tokenizer.json"), "hunyuan-dense", 8064)
    kinds = {"bf16": "bf16", "fp8": "fp8", "gptq": "gptq", "GGUF BF16": BF16, "GGUF Q8_0": Q8_0, "GGUF Q4_0": Q4_0,
             "GGUF Q4_K": Q4_K, "GGUF Q6_K": Q6_K}
    for name, kind in kinds.items():
        results = []
        for layers in (1, 16):
            directory = f"{folder}/memory"
            if isinstance(kind, str):
                write_hf_model(directory, kind, layers)
            else:
                write_gguf_model(directory, kind, layers, tokenizer)
            results.append(memory_of(directory))
            shutil.rmtree(directory)
        stored, own, most = (large - small for small, large in zip(*results))
        check(f"memory of {name}: {stored >> 20} MB more stored, {own >> 10} kB more of its own, {most >> 20} MB at most",
              stored > 20 << 20 and own <= stored // 20 and stored * 9 // 10 <= most <= stored + stored // 20 and
              results[1][1] < 60 << 20, str(results))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        check_demo_as_gguf(temporary)
        check_tokenizer(temporary, "deepseek_v3", "hunyuan-dense")
        check_tokenizer(temporary, "qwen3", "hunyuan")
        check_fp8_spellings(temporary)
        check_gptq_spellings(temporary)
        check_memory(temporary)
    finish()
