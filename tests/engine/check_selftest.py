"""hymt-engine selftest: the demo passes; models with a fault that opening cannot see do not."""
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from damaged_models import STOP, WEIGHTS, read, tensors, write, write_good, write_json, write_tensors
from harness import DEMO, check, finish, run


def selftest(model, *options):
    """Exit code, and the report's lines; the last one must be the verdict, and fit the code."""
    code, out, err = run(["selftest", "--model", model, "--seconds", "1", *options])
    lines = out.decode().splitlines()
    verdict = "verdict: PASS" if code == 0 else "verdict: FAIL"
    return code, lines, bool(lines) and lines[-1] == verdict and code in (0, 1), err


def failed(lines):
    return [line.split(":")[0].removeprefix("FAILED  ") for line in lines if line.startswith("FAILED")]


def check_demo():
    code, lines, told, err = selftest(DEMO)
    said = "\n".join(lines)
    check("selftest: the demo passes", code == 0 and told and not failed(lines), f"{code} {said} {err}")
    wanted = ["model opens", "tokenizer round trips: 50 of 50", "template", "stop ids: 8020", "known answer", "answers end",
              "texts in a batch: 50 of 50", "memory", "same bits alone", "same bits with scalar", "speed", "fingerprint"]
    check("selftest: the report tells all of it", all(word in said for word in wanted),
          str([word for word in wanted if word not in said]))


def check_damaged(folder):
    def copy(name):
        model = f"{folder}/{name}"
        shutil.copytree(DEMO, model)
        return model

    model = copy("cut")
    write(model, WEIGHTS, read(model, WEIGHTS)[:-1000])
    code, lines, told, _ = selftest(model)
    check("selftest: a model that does not open", code == 1 and told and failed(lines) == ["model opens"] and
          any(WEIGHTS in line and "truncated" in line for line in lines), "\n".join(lines))

    # the last quarter is layers: other numbers there open, and answer something else
    model = copy("other")
    data = bytearray(read(model, WEIGHTS))
    data[-3000000:-2000000] = bytes(1000000)
    write(model, WEIGHTS, bytes(data))
    code, lines, told, _ = selftest(model)
    check("selftest: damaged weights that open", code == 1 and told and "known answer" in failed(lines) and
          not any("same bits" in name for name in failed(lines)), "\n".join(lines))

    model = copy("stop")
    write_json(model, "generation_config.json", {"eos_token_id": [8001]})
    code, lines, told, _ = selftest(model)
    check("selftest: a wrong stop id", code == 1 and told and "stop ids" in failed(lines), "\n".join(lines))

    model = copy("alpha")
    with open(f"{model}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    config["rope_scaling"]["alpha"] = 2.0
    write_json(model, "config.json", config)
    code, lines, told, _ = selftest(model)
    check("selftest: a rotation of another model", code == 1 and told and "known answer" in failed(lines), "\n".join(lines))

    model = f"{folder}/nan"
    write_good(model)
    stored = tensors()
    stored["model.norm.weight"] = ("F32", stored["model.norm.weight"][1], b"\xff" * len(stored["model.norm.weight"][2]))
    write_tensors(model, WEIGHTS, stored)
    code, lines, told, _ = selftest(model)
    check("selftest: weights that are no numbers", code == 1 and told and "texts in a batch" in failed(lines) and
          f"stop ids: {STOP};" in "\n".join(lines), "\n".join(lines))


if __name__ == "__main__":
    code_, out_, err_ = run(["selftest", "--model", DEMO, "--seconds", "0"])
    check("selftest: wrong usage", code_ == 2 and out_ == b"" and err_ != "", err_)
    check_demo()
    with tempfile.TemporaryDirectory() as temporary:
        check_damaged(temporary)
    finish()
