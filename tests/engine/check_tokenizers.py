"""hymt-engine tokenize and inspect with a SentencePiece model, and a whole translation with a Llama model."""
import array
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from check_architectures import LLAMA, make_tensors, write_tensors
from harness import DEMO, ENGINE, check, finish, run
from model_files import write_demo_gguf

VECTORS = "tests/vectors/sentencepiece"


def check_sentencepiece(name, folder):
    """All texts of the reference and, the other way, their ids."""
    shutil.copy(f"{VECTORS}/{name}.model", f"{folder}/tokenizer.model")
    with open(f"{VECTORS}/{name}.jsonl", encoding="utf-8") as file:
        cases = [json.loads(line) for line in file]
    requests = [{"text": case["text"]} for case in cases] + [{"ids": case["ids"]} for case in cases]
    code, out, err = run(["tokenize", "--model", folder], "".join(json.dumps(r) + "\n" for r in requests))
    answers = [json.loads(line) for line in out.splitlines()]
    wanted = [{"ids": case["ids"]} for case in cases] + [{"text": case["decoded"]} for case in cases]
    wrong = [request for request, answer, right in zip(requests, answers, wanted) if answer != right]
    check(f"tokenize with {name}, {len(requests)} requests",
          code == 0 and len(answers) == len(requests) > 1400 and not wrong, f"{wrong[:2]} {err}")


def make_model(folder, files):
    """A random Llama model with 2,000 SentencePiece pieces and two added tokens."""
    config = dict(LLAMA, vocab_size=2002, max_position_embeddings=512, eos_token_id=[2, 2001])
    write_tensors(f"{folder}/model.safetensors", make_tensors(config, random.Random(5)))
    shutil.copy(f"{VECTORS}/bpe_byte_fallback.model", f"{folder}/tokenizer.model")
    for name, content in dict(files, **{"config.json": config}).items():
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            json.dump(content, file)


def ids_of(folder, text):
    code, out, err = run(["tokenize", "--model", folder], json.dumps({"text": text}) + "\n")
    return json.loads(out)["ids"] if code == 0 else err


def prompt_of(folder, source, target, text, model=None, options=()):
    """The ids of the prompt that translate makes, from its trace, or what it complains of."""
    _, out, err = run(["translate", "--model", model or folder, "--from", source, "--to", target,
                       "--trace", f"{folder}/trace", *options], text + "\n")
    if not os.path.exists(f"{folder}/trace"):
        return err
    with open(f"{folder}/trace", encoding="ascii") as file:
        rows = [row for step in file for row in json.loads(step)["rows"]]
    out.decode()                # whatever a random model says is UTF-8
    return [row["token"] for row in rows] or err


ALMA = {"templates": {
    "plain": "Translate this from {source_lang} to {target_lang}:\n{source_lang}: {text}\n{target_lang}:"}}
TOWER = {"templates": {
    "plain": "Translate the following text from {source_lang} into {target_lang}.\n"
             "{source_lang}: {text}\n{target_lang}:",
    "chat": "<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"}}
ADDED = {"added_tokens.json": {"<|im_start|>": 2000, "<|im_end|>": 2001},
         "special_tokens_map.json": {"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]}}


def check_prompt(label, files, parts, text="自行车 <|im_end|></s>"):
    """The prompt of a translation from zh to en: control tokens as ids, the text between them tokenized."""
    with tempfile.TemporaryDirectory() as folder:
        make_model(folder, dict(ADDED, **files))
        expected = [1]          # <s>
        for part in parts:
            expected += [part] if isinstance(part, int) else ids_of(folder, part.replace("{text}", text))
        found = prompt_of(folder, "zh", "en", text)
        check(label, found[:len(expected)] == expected, f"{found} instead of {expected}")
        check(f"{label}: the text gives no control token",
              not set(ids_of(folder, text)) & {1, 2, 2000, 2001}, ids_of(folder, text))


def check_prompts():
    alma = ["Translate this from Chinese to English:\nChinese: {text}\nEnglish:"]
    tower = [2000, "user\nTranslate the following text from Chinese into English.\nChinese: {text}\nEnglish:", 2001,
             "\n", 2000, "assistant\n"]
    check_prompt("prompts of ALMA", {"hymt.json": {"prompts": "alma"}}, alma)
    check_prompt("the same from templates", {"hymt.json": ALMA}, alma)
    check_prompt("prompts of TowerInstruct", {"hymt.json": {"prompts": "tower-instruct"}}, tower)
    check_prompt("the same from templates", {"hymt.json": TOWER}, tower)
    check_prompt("codes and control tokens in a template",
                 {"hymt.json": {"templates": {"plain": "</s>{source_code}>{target_code}: {text}<|im_start|>"}}},
                 [2, "zh>en: {text}", 2000])


def check_context():
    """translate --context: the wording that the family has for it, or a message."""
    context, text = "冬天的衣服 <｜hy_User｜>", "外套"
    turn = f"{context}\n参考上面的信息，把下面的文本翻译成英语，注意不需要翻译上文，也不要额外解释：\n{text}\n"
    with tempfile.TemporaryDirectory() as folder:
        expected = [8000, 8006] + ids_of(DEMO, turn) + [8007]
        found = prompt_of(folder, "zh", "en", text, DEMO, ("--context", context))
        check("translate with a context", found[:len(expected)] == expected, f"{found} instead of {expected}")
    with tempfile.TemporaryDirectory() as folder:
        make_model(folder, dict(ADDED, **{"hymt.json": {"prompts": "alma"}}))
        found = prompt_of(folder, "zh", "en", text, options=("--context", context))
        check("a model without a prompt for a context", "no prompt of the form \"context\"" in found, found)


def serialized_piece(piece, score):
    """As tokenizer.model has it: a field of its own with a text and a score."""
    data = piece.encode()
    data = b"\x0a" + bytes([len(data)]) + data + b"\x15" + struct.pack("<f", score)
    return b"\x0a" + bytes([len(data)]) + data


def budgeted(model):
    """What inspect says of the program and the tokenizer, in MB."""
    out = run(["inspect", "--model", model])[1].decode()
    return int(out.split("tokenizer and program ")[1].split()[0].rstrip(";"))


def needed(model):
    """What tokenizing takes at most, in MB."""
    with subprocess.Popen([ENGINE, "tokenize", "--model", model], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(b'{"text": "a"}\n')
        process.stdin.flush()
        process.stdout.readline()
        with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
            peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
        process.stdin.close()
    return peak / 1024


def check_memory():
    """The budget knows what large tokenizers take, whatever file they come from."""
    if os.environ.get("HYMT_SANITIZED") == "1":
        return                  # sanitizers take memory of their own
    with tempfile.TemporaryDirectory() as folder:
        make_model(folder, {})
        with open(f"{folder}/tokenizer.model", "ab") as file:
            for i in range(200000):
                file.write(serialized_piece("".join(chr(97 + i // 26 ** n % 26) for n in range(7)), -20 - i / 1000))
        config = dict(LLAMA, vocab_size=202000, max_position_embeddings=512, eos_token_id=2, hidden_size=8)
        tensors = make_tensors(dict(config, vocab_size=1), random.Random(5))
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            tensors[name] = ([202000, 8], array.array("f", bytes(4 * 8 * 202000)))
        write_tensors(f"{folder}/model.safetensors", tensors)
        with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        check("memory for 200,000 pieces of SentencePiece is in the budget", needed(folder) <= budgeted(folder),
              f"{needed(folder)} MB, but {budgeted(folder)}")
    with tempfile.TemporaryDirectory() as folder:
        write_demo_gguf(f"{folder}/model.gguf", DEMO)
        bare = budgeted("tests/vectors/models/hunyuan_gqa_f32")
        check("memory for the tokenizer of a GGUF file is in the budget", budgeted(folder) > bare,
              f"{budgeted(folder)} MB, {bare} without any")


if __name__ == "__main__":
    check_memory()
    check_context()
    check_prompts()
    for model in ("bpe_byte_fallback", "unigram_nfkc"):
        with tempfile.TemporaryDirectory() as temporary:
            check_sentencepiece(model, temporary)
    finish()
