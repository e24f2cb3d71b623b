"""Scheduling on real models: nothing that happens around a request changes a bit of its answer."""
import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from harness import DEMO, ENGINE, check, demo_cases, eval_lines, finish, instruction_sets, run

VECTOR = "tests/vectors/models/hunyuan_gqa_f32"         # vocabulary 320, context 4096
INSTRUCTION = [7, 300, 12, 45, 9, 77, 130, 4, 18, 99, 201, 33, 250, 61, 8, 90, 5, 140, 222, 17, 64]


def read_trace(path):
    with open(path, encoding="ascii") as file:
        return [json.loads(line) for line in file]


def rows_by_request(steps):
    positions = {}
    for step in steps:
        for row in step["rows"]:
            positions.setdefault(row["id"], []).append(row["pos"])
    return positions


def check_second_title():
    """translate: a second title computes its own tokens alone, and so do many that come together."""
    cases = [c for c in demo_cases() if c["from"] == "en" and c["to"] == "zh" and "\n" not in c["source"]]
    prompts = {}
    for case in cases:                                  # one for each first token of a text
        ids = case["prompt_ids"]
        prompts.setdefault(tuple(ids[:len(os.path.commonprefix([cases[0]["prompt_ids"], ids])) + 1]), case)
    chosen = list(prompts.values())
    arguments = ["translate", "--model", DEMO, "--from", "en", "--to", "zh"]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/trace"
        process = subprocess.Popen([ENGINE, *arguments, "--trace", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        good = True
        for case in chosen:
            process.stdin.write(case["source"].encode() + b"\n")
            process.stdin.flush()
            good = good and process.stdout.readline().decode() == case["output"] + "\n"
        process.stdin.close()
        process.wait()
        done = []
        problem = "" if good else "answers"
        for number, positions in sorted(rows_by_request(read_trace(path)).items()):
            ids = chosen[number - 1]["prompt_ids"]
            known = max((len(os.path.commonprefix([ids[:-1], other])) for other in done), default=0)
            if positions[0] != known or positions != list(range(known, known + len(positions))):
                problem = problem or f"title {number} begins at {positions[0]} instead of {known}"
            done.append(ids)
        check(f"translate: each of {len(chosen)} titles computes its own tokens alone", not problem, problem)

        run(arguments + ["--trace", path], "".join(case["source"] + "\n" for case in chosen))
        steps = read_trace(path)
        first = [step for step in steps for row in step["rows"] if row["pos"] == 0]
        check("translate: titles that come together compute their instruction once", len(first) == 1, str(len(first)))


def requests_of(count, seed, vocabulary=320):
    """Requests of all kinds; most begin with the same instruction."""
    chance = random.Random(seed)
    requests = []
    for _ in range(count):
        ids = INSTRUCTION[:chance.choice((0, 5, 16, 21, 21, 21))] + [chance.randrange(320)
                                                                    for _ in range(chance.choice((1, 3, 20, 150)))]
        request = {"ids": [token % vocabulary for token in ids], "max_new": chance.randrange(40), "argmax_per_position": chance.random() < 0.2,
                   "repetition_penalty": chance.choice((1.0, 1.05))}
        if chance.random() < 0.4:
            request.update(temperature=0.9, top_k=chance.choice((0, 20)), top_p=chance.choice((1, 0.7)),
                           seed=chance.randrange(5))
        requests.append(request)
    return requests


def raw_answers(requests, options=(), model=VECTOR):
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    code, out, err = run(["eval", "--model", model, *options], lines)
    return out.splitlines() if code == 0 else [err]


def check_invariance():
    """Byte by byte: alone, among others, in any order, cold and warm, on any instruction set and number of threads."""
    requests = requests_of(64, 1)
    alone = [raw_answers([request], ["--isa", "scalar", "--threads", "1"])[0] for request in requests]
    for count in (2, 7, 64):
        check(f"the same bits among {count}", raw_answers(requests[:count]) == alone[:count])
    for seed in range(3):
        order = list(range(64))
        random.Random(seed).shuffle(order)
        check(f"the same bits in order {seed}", raw_answers([requests[i] for i in order]) == [alone[i] for i in order])
    check("the same bits cold and warm", raw_answers(requests + requests) == alone + alone)
    for isa in instruction_sets():
        for threads in ("1", "2"):
            check(f"the same bits with {isa}, {threads} threads",
                  raw_answers(requests, ["--isa", isa, "--threads", threads]) == alone)


def check_other_models():
    """The same for weights of other types and other shapes, in short."""
    for name in ("hunyuan_wide_heads_bf16", "hunyuan_no_scaling_f16", "hunyuan_untied_sharded_bf16"):
        model = f"tests/vectors/models/{name}"
        requests = requests_of(24, 2, 256)
        alone = [raw_answers([request], ["--isa", "scalar", "--threads", "1"], model)[0] for request in requests]
        good = all(raw_answers(requests * 2, ["--isa", isa, "--threads", threads], model) == alone * 2
                   for isa, threads in zip(instruction_sets(), ("2", "1", "2")))
        check(f"the same bits on {name}", good and all(answer.startswith(b'{"last_logits"') for answer in alone))


def budget_of(model, options=()):
    """What inspect says of memory: (bytes in all, bytes of keys and values, their tokens), or its complaint."""
    lines = dict(line.split(": ", 1) for line in run(["inspect", "--model", model, *options])[1].decode().splitlines()
                 if ": " in line)
    if "memory in all" not in lines:
        return lines["memory"]
    size, tokens = lines["keys and values"].split(" bytes, ")
    return int(lines["memory in all"].split()[0]), int(size), int(tokens.split()[0])


def check_preemption():
    """Too little memory for the keys and values of all: some lose theirs, and have the same answers all the same."""
    requests = [{"ids": INSTRUCTION + [i] * 5, "max_new": 400, "argmax_per_position": i % 3 == 0,
                 "temperature": i % 2, "seed": i} for i in range(24)]
    plenty = raw_answers(requests)
    options = ["--max-context", "512"]
    whole, pages, tokens = budget_of(VECTOR, options)
    options += ["--memory", str(whole - pages + pages // tokens * 800)]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/trace"
        tight = raw_answers(requests, options + ["--trace", path])
        positions = rows_by_request(read_trace(path))
    again = sum(1 for rows in positions.values() if rows != sorted(set(rows)))
    check("the same bits after preemption", tight == plenty and again > 3, f"{again} computed again, {tight[0][:200]}")


def check_memory():
    """The budget is decided before a model is loaded, and kept."""
    whole, pages, tokens = budget_of(DEMO)
    least = whole - pages + pages // tokens * 512
    code, out, err = run(["translate", "--model", DEMO, "--from", "en", "--to", "zh", "--memory", str(whole // 16)])
    check("a model that does not fit is refused with sizes", code == 1 and out == b"" and "MB" in err and
          "does not fit" in err and budget_of(DEMO, ["--memory", str(whole // 16)]) + "\n" == err.split(": ", 1)[1], err)
    texts = [case for case in demo_cases() if case["from"] == "en" and case["to"] == "zh" and "\n" not in case["source"]]
    # a sanitizer's own memory is several times that of the program, which is slow besides
    sanitized = os.environ.get("HYMT_SANITIZED") == "1"
    rounds = 1 if sanitized else 8
    for memory in (least, least + (8 << 20), whole):
        decided = budget_of(DEMO, ["--memory", str(memory)])
        process = subprocess.Popen([ENGINE, "translate", "--model", DEMO, "--from", "en", "--to", "zh", "--threads", "2",
                                    "--memory", str(memory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process.stdin.write("".join(case["source"] + "\n" for case in texts).encode() * rounds)
        process.stdin.flush()
        good = True
        for case in texts * rounds:
            good = good and process.stdout.readline().decode() == case["output"] + "\n"
        with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
            peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
        process.stdin.close()
        process.wait()
        check(f"a budget of {memory >> 20} MB is kept", good and decided[0] <= memory and (sanitized or peak <= memory),
              f"{decided}, peak {peak >> 20} MB")


def check_sampling():
    base = {"ids": INSTRUCTION, "max_new": 30, "temperature": 1.0}
    requests = [dict(base, seed=seed) for seed in range(6)] + [dict(base, seed=0), dict(base, temperature=0, seed=3),
                                                               {"ids": INSTRUCTION, "max_new": 30},
                                                               dict(base, top_k=1, seed=9)]
    code, answers, err = eval_lines(VECTOR, requests)
    greedy = [tuple(answer.get("greedy", ())) for answer in answers]
    check("sampling: each seed its own answer, and always the same one", code == 0 and len(set(greedy[:6])) == 6 and
          greedy[6] == greedy[0], err)
    check("sampling: temperature 0 and top_k 1 take the likeliest", greedy[7] == greedy[8] == greedy[9])
    bad = [{"temperature": -1}, {"temperature": "1"}, {"temperature": 1e300}, {"top_k": -1}, {"top_k": 1.5}, {"top_p": 0},
           {"top_p": 1.1}, {"top_p": None}, {"seed": 1.5}, {"seed": "1"}, {"stop_at_loop": 1},
           {"argmax_per_position": "no"}]
    code, answers, err = eval_lines(VECTOR, [dict(base, **members) for members in bad])
    check("sampling: settings out of bounds are refused", code == 1 and all(list(a) == ["error"] for a in answers),
          str(answers)[:300])


def check_loops():
    """A random model soon says the same for ever; --stop_at_loop ends that, and only that."""
    requests = [{"ids": [i, 2 * i + 3], "max_new": 400} for i in range(20, 60)]
    _, endless, err = eval_lines(VECTOR, requests)
    code, answers, err = eval_lines(VECTOR, [dict(request, stop_at_loop=True) for request in requests])
    problem = err
    loops = 0
    for whole, answer in zip(endless, answers):
        ids = answer["greedy"]
        if ids != whole["greedy"][:len(ids)]:
            problem = problem or "other tokens"
        if answer["finish"] != "loop":
            problem = problem or ("other end" if answer != whole else "")
            continue
        loops += 1
        units = [u for u in range(1, 33) if (n := max(4, -(-24 // u))) * u <= len(ids) and
                 ids[-n * u:] == ids[-u:] * n]
        if not units:
            problem = problem or f"no loop in {ids}"
    check("loops end answers", code == 0 and loops > 0 and not problem, f"{loops} loops, {problem}")
    looping = next((w["greedy"], r["ids"]) for w, a, r in zip(endless, answers, requests) if a["finish"] == "loop")
    code, answers, err = eval_lines(VECTOR, [{"ids": [9] * 300 + looping[1], "max_new": 200, "stop_at_loop": True}])
    check("what stands more often in the source is no loop", code == 0 and answers[0]["finish"] != "loop", str(answers)[-200:])


if __name__ == "__main__":
    check_second_title()
    check_invariance()
    check_other_models()
    check_preemption()
    check_memory()
    check_sampling()
    check_loops()
    finish()
