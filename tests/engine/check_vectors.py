"""hymt-engine eval and translate against results of independent implementations (tests/vectors, models/demo)."""
import glob
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(__file__))
from harness import DEMO, ENGINE, check, demo_cases, eval_lines, finish, instruction_sets, run

TOLERANCE = 2e-5                # of the largest absolute logit
PENALTIES = ((1.0, "greedy"), (1.05, "greedy_penalty_1.05"))


def compare_case(case, answer, greedy_name):
    """What is wrong with an answer, or ""."""
    if "error" in answer:
        return answer["error"]
    scale = max(abs(x) for x in case["last_logits"])
    if len(answer["last_logits"]) != len(case["last_logits"]):
        return "number of logits"
    worst = max(abs(a - b) for a, b in zip(answer["last_logits"], case["last_logits"]))
    if not worst <= TOLERANCE * scale:
        return f"logits differ by {worst / scale:.3g} of the largest"
    if answer["argmax_per_position"] != case.get("argmax_per_position", answer["argmax_per_position"]):
        return "argmax per position"
    if answer["greedy"] != case[greedy_name]:
        return f"greedy ids: {answer['greedy']} instead of {case[greedy_name]}"
    ended = "length" if len(answer["greedy"]) == 24 else "stop"
    # an answer of full length may end with a stop id, too
    if answer["finish"] != ended and not (answer["finish"] == "stop" and ended == "length"):
        return "finish"
    return ""


def check_model(model, reference, options=()):
    with open(reference, encoding="ascii") as file:
        cases = json.load(file)["cases"]
    asked = [(case, name, {"ids": case["ids"], "max_new": 24, "repetition_penalty": penalty})
             for penalty, name in PENALTIES for case in cases if name in case]
    code, out, err = run(["eval", "--model", model, "--precision", "exact", *options],
                         "".join(json.dumps(request) + "\n" for _, _, request in asked))
    answers = [json.loads(line) for line in out.splitlines()]
    wrong = [] if asked and len(answers) == len(asked) else [f"{len(answers)} answers to {len(asked)} requests: {err}"]
    for (case, name, _), answer in zip(asked, answers):
        problem = compare_case(case, answer, name)
        if problem:
            wrong.append(f"{len(case['ids'])} ids, {name}: {problem}")
    check(f"reference model {os.path.basename(model)}, {len(asked)} cases{', ' if options else ''}{' '.join(options)}",
          code == 0 and not wrong, "; ".join(wrong[:3]) or err)
    return hashlib.sha256(out).hexdigest()


def check_models():
    """Each as this machine would compute it; those that are quantised with every instruction set, 1 and 2 threads."""
    plain = [(path, f"{path}/reference.json") for path in sorted(glob.glob("tests/vectors/models/*"))]
    quantised = [pair for pair in plain if "fp8" in pair[0] or "gptq" in pair[0]]
    quantised += [(path, path[:-len("gguf")] + "json") for path in sorted(glob.glob("tests/vectors/gguf/*.gguf"))]
    for model, reference in plain:
        check_model(model, reference)
    for model, reference in quantised:
        digests = {check_model(model, reference, ["--isa", isa, "--threads", str(threads)])
                   for isa in instruction_sets() for threads in (1, 2)}
        check(f"{os.path.basename(model)}: the same bits with any instruction set and number of threads",
              len(digests) == 1)


def demo_request(case):
    return {"ids": case["prompt_ids"], "max_new": case["max_new"]}


def check_demo_batch(cases, isa, threads):
    """All cases in one batch; returns a digest of every byte of the answers."""
    lines = "".join(json.dumps(demo_request(case)) + "\n" for case in cases)
    code, out, err = run(["eval", "--model", DEMO, "--isa", isa, "--threads", str(threads)], lines)
    answers = [json.loads(line) for line in out.splitlines()]
    wrong = [i for i, (case, answer) in enumerate(zip(cases, answers)) if answer.get("greedy") != case["output_ids"]]
    check(f"demo model, {len(cases)} cases in one batch, {isa}, {threads} threads",
          code == 0 and len(answers) == len(cases) and not wrong, f"cases {wrong[:5]} {err}")
    return hashlib.sha256(out).hexdigest()


def check_demo_one_by_one(cases, isa, threads):
    """Each request is sent when the answer before it has come; returns the digest as above."""
    process = subprocess.Popen([ENGINE, "eval", "--model", DEMO, "--isa", isa, "--threads", str(threads)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    digest = hashlib.sha256()
    wrong = []
    for i, case in enumerate(cases):
        process.stdin.write(json.dumps(demo_request(case)).encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        digest.update(line)
        if json.loads(line).get("greedy") != case["output_ids"]:
            wrong.append(i)
    process.stdin.close()
    rest = process.stdout.read()
    check(f"demo model, {len(cases)} cases one by one, {isa}, {threads} threads",
          process.wait() == 0 and rest == b"" and not wrong, f"cases {wrong[:5]}")
    return digest.hexdigest()


def check_demo():
    """Every instruction set, 1 and 2 threads, one by one and in one batch; HYMT_CHECK_ALL=1: all cases everywhere."""
    cases = demo_cases()
    every = os.environ.get("HYMT_CHECK_ALL") == "1"
    sets = instruction_sets()
    digests = {}

    def run_cases(check_cases, isa, threads, step):
        digests.setdefault(step, set()).add(check_cases(cases[::step], isa, threads))

    for isa in sets:
        # The scalar code is the oracle, and slow: a few cases show whether its bits are the same.
        few = 1 if every else 60 if isa == "scalar" else 12
        all_of_them = few if isa == "scalar" else 1
        run_cases(check_demo_batch, isa, 2, all_of_them)
        run_cases(check_demo_batch, isa, 1, few)
        run_cases(check_demo_one_by_one, isa, 1, few)
        run_cases(check_demo_one_by_one, isa, 2, all_of_them if isa == sets[-1] else few)
    run_cases(check_demo_batch, sets[-1], 2, 1 if every else 60)
    check("the same bits in any batch, with any number of threads and any instruction set",
          all(len(of_same) == 1 for of_same in digests.values()), str(digests))


def check_translate():
    """The whole way from text to text, for the prompts that are plain: the instruction and the text alone."""
    pairs = {}
    for case in demo_cases():
        if case["prompt"].endswith("\n\n" + case["source"]) and case["prompt"].count("\n\n") == 1 \
                and "\n" not in case["source"] + case["output"]:
            pairs.setdefault((case["from"], case["to"]), []).append(case)
    wrong = []
    count = 0
    for (source, target), cases in pairs.items():
        code, out, err = run(["translate", "--model", DEMO, "--from", source, "--to", target],
                             "".join(case["source"] + "\n" for case in cases))
        lines = out.decode().split("\n")
        if code != 0 or lines.pop() != "" or len(lines) != len(cases):
            wrong.append(f"{source}-{target}: exit code {code}, {len(lines)} lines, {err}")
        for case, line in zip(cases, lines):
            count += 1
            if line != case["output"]:
                wrong.append(f"{source}-{target}: {line!r} instead of {case['output']!r}")
    check(f"translate, {count} texts in {len(pairs)} directions", count > 100 and not wrong, "; ".join(wrong[:3]))


def read_trace(path):
    with open(path, encoding="ascii") as file:
        return [json.loads(line) for line in file]


def check_trace_batch(folder):
    """More requests than run at a time: nobody who decodes misses a step, and while some wait, places are refilled."""
    cases = demo_cases()
    path = f"{folder}/batch.trace"
    code, answers, err = eval_lines(DEMO, [demo_request(case) for case in cases], ["--trace", path])
    prompts = {i + 1: len(case["prompt_ids"]) for i, case in enumerate(cases)}
    total = {i + 1: len(case["prompt_ids"]) + len(answer.get("greedy", ())) - 1
             for i, (case, answer) in enumerate(zip(cases, answers))}
    steps = read_trace(path)
    problem = ""
    at = dict.fromkeys(prompts, 0)          # positions computed
    for number, step in enumerate(steps, 1):
        rows = {}
        for row in step["rows"]:
            rows.setdefault(row["id"], []).append(row["pos"])
        must = {i for i in prompts if prompts[i] <= at[i] < total[i]}
        waiting = any(at[i] == 0 for i in prompts if i not in rows)
        started_now = [i for i in rows if at[i] == 0]
        for i, positions in rows.items():
            if positions != list(range(at[i], at[i] + len(positions))):
                problem = problem or f"step {number}: positions of {i}"
            at[i] += len(positions)
        if step["step"] != number or not must <= set(rows):
            problem = problem or f"step {number}: a decoding sequence has no row"
        if waiting and not started_now and len(must) < 256 and all(at[i] >= prompts[i] for i in rows):
            problem = problem or f"step {number}: requests wait, and a place stays free"
    if at != total:
        problem = problem or "rows computed and answers disagree"
    check(f"trace of {len(cases)} requests in {len(steps)} steps", code == 0 and not problem, problem or err)


def check_trace_arrival(folder):
    """A request that arrives while 8 decode has its prompt rows beside theirs, all in one step."""
    path = f"{folder}/arrival.trace"
    model = "tests/vectors/models/hunyuan_head128_bf16"
    process = subprocess.Popen([ENGINE, "eval", "--model", model, "--trace", path, "--max-context", "4096"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for i in range(8):
        process.stdin.write(json.dumps({"ids": [20 + i, 30, 40], "max_new": 2000}).encode() + b"\n")
    process.stdin.flush()
    while not os.path.exists(path) or os.path.getsize(path) < 5000:
        time.sleep(0.001)
    process.stdin.write(json.dumps({"ids": [50] * 20, "max_new": 5}).encode() + b"\n")
    process.stdin.close()
    answers = [json.loads(line) for line in process.stdout]
    steps = read_trace(path)
    arrival = [i for i, step in enumerate(steps) if any(row["id"] == 9 for row in step["rows"])]
    good = process.wait() == 0 and len(answers) == 9 and len(arrival) == len(answers[8]["greedy"])
    if good:
        first = steps[arrival[0]]["rows"]
        good = [row["pos"] for row in first if row["id"] == 9] == list(range(20)) and \
            arrival == list(range(arrival[0], arrival[0] + len(arrival)))
        for i in range(8):
            running = sum(1 for step in steps if any(row["id"] == i + 1 for row in step["rows"]))
            good = good and running == len(answers[i]["greedy"])
        good = good and len({row["id"] for row in first}) == 9
    check("a request that arrives while 8 decode joins the next step", good, f"steps {arrival[:3]}")


if __name__ == "__main__":
    check_models()
    check_demo()
    check_translate()
    with tempfile.TemporaryDirectory() as temporary:
        check_trace_batch(temporary)
        check_trace_arrival(temporary)
    finish()
