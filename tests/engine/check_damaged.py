"""Damaged models: each is refused with the file and the fault, with exit code 1, soon."""
import os
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from damaged_formats import ADAPTERS, FORMATS, write_adapter
from damaged_models import DAMAGES, WEIGHTS, tensors, write_damaged, write_good, write_shards, write_tensors
from harness import ENGINE, check, finish

SECONDS = 20


def unprivileged():
    """Root may read everything, so the engine runs as somebody else."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


def run(command, model, data=b"", adapter=None):
    arguments = [os.path.abspath(ENGINE), command, "--model", model] + (["--adapter", adapter] if adapter else [])
    if command == "translate":
        arguments += ["--from", "en", "--to", "zh"]
    try:
        done = subprocess.run(arguments, input=data, capture_output=True, timeout=SECONDS, check=False,
                              preexec_fn=unprivileged)
    except subprocess.TimeoutExpired:
        return "hung", b"", ""
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def refusal(model, file, words, adapter=None):
    """What is wrong with the way in which a model is refused, or its adapter; "" when nothing is."""
    code, out, err = run("translate", model, b"" if adapter is None else b"a word\n", adapter)
    if code != 1 or out != b"":
        return f"exit code {code}, {len(out)} bytes of output, {err[-300:]}"
    lines = err.splitlines()
    # a note may stand before it
    if not all(line.startswith("hymt-engine: ") for line in lines) or not 1 <= len(lines) <= 2:
        return f"not a message: {err[:300]}"
    err = lines[-1]
    if file not in err or words not in err or (file == "" and os.path.basename(model) not in err):
        return f"{file!r} or {words!r} is not in: {err[:300]}"
    return ""


def check_whole_ones(folder):
    """What the damages start from is in order, and so refused for its damage alone."""
    for name, make in (("good", lambda directory: None), ("sharded", write_shards)):
        model = f"{folder}/{name}-copy"
        write_damaged(f"{folder}/good", model, make)
        codes = [run(command, model) for command in ("translate", "inspect")]
        check(f"the {name} model opens", [code for code, _, _ in codes] == [0, 0], str(codes))


def report(what, count, wrong):
    check(f"{count} damaged {what}, each refused with the file and the fault", not wrong,
          f"{len(wrong)} not:\n  " + "\n  ".join(wrong[:10]))


def check_damages(folder, what, base, damages):
    wrong = []
    for number, (name, change, file, words) in enumerate(damages):
        model = f"{base}-damaged{number}"
        write_damaged(base, model, change)
        problem = refusal(model, file, words)
        if problem:
            wrong.append(f"{name}: {problem}")
        shutil.rmtree(model)
    report(what, len(damages), wrong)


def check_formats(folder):
    for name, make, damages in FORMATS:
        base = f"{folder}/{name}"
        write_damaged(f"{folder}/good", base, make)
        code, _, err = run("translate", base, b"a word\n")
        # a random model may say what is none
        check(f"the {name} model opens", code in (0, 1) and "a word" not in err and ": line 1: " in err or code == 0, err)
        check_damages(folder, f"{name} models", base, damages)


def check_adapters(folder):
    base = f"{folder}/adapter"
    write_adapter(base)
    codes = run("translate", f"{folder}/good", b"", base)
    check("the adapter opens", codes[0] == 0, str(codes))
    wrong = []
    for number, (name, change, file, words) in enumerate(ADAPTERS):
        adapter = f"{folder}/adapter{number}"
        write_damaged(base, adapter, change)
        problem = refusal(f"{folder}/good", file, words, adapter)
        if problem:
            wrong.append(f"{name}: {problem}")
    report("adapters", len(ADAPTERS), wrong)


def check_numbers(folder):
    """Weights that are no numbers cannot be seen while loading; no text comes of them."""
    for name, value in (("NaN", float("nan")), ("infinite", float("inf"))):
        def change(directory, bad=value):
            stored = tensors()
            dtype, shape, data = stored["model.layers.0.mlp.down_proj.weight"]
            stored["model.layers.0.mlp.down_proj.weight"] = (dtype, shape, struct.pack("<f", bad) * (len(data) // 4))
            write_tensors(directory, WEIGHTS, stored)
        model = f"{folder}/{name}"
        write_damaged(f"{folder}/good", model, change)
        code, out, err = run("translate", model, b"a word\n")
        check(f"weights that are {name}: the text fails", code == 1 and out == b"\n" and "not a number" in err,
              f"{code} {out} {err}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        os.chmod(temporary, 0o755)
        write_good(f"{temporary}/good")
        check_whole_ones(temporary)
        check_damages(temporary, "models", f"{temporary}/good", DAMAGES)
        check_formats(temporary)
        check_adapters(temporary)
        check_numbers(temporary)
    finish()
