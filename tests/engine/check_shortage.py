"""Allocations that fail: each request is answered as ever, or the model is refused while loading."""
import itertools
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import check_serve
from harness import DEMO, ENGINE, check, demo_cases, finish

VECTOR = "tests/vectors/models/hunyuan_gqa_f32"
# with sanitizers, whose programs start slowly, not each allocation in turn
STEP = 7 if os.environ.get("HYMT_SANITIZED") == "1" else 1


def fail_at(number, arguments, data):
    """(exit code, output, what it said) of the engine when that allocation fails."""
    done = subprocess.run([ENGINE, *arguments], input=data, capture_output=True, check=False, timeout=60,
                          env=dict(os.environ, HYMT_FAIL_ALLOC=str(number)))
    return done.returncode, done.stdout, done.stderr.decode()


def check_each(name, arguments, data, numbers):
    """One failure at a time, until there are no more allocations; every one is said."""
    _, expected, _ = fail_at("", arguments, data)
    refused = degraded = 0
    problem = ""
    for number in numbers:
        code, out, err = fail_at(number, arguments, data)
        if code == 0 and out == expected and err == "":
            break                                       # there are not so many allocations
        if code == 0 and out == expected and "memory" in err:
            degraded += 1
        elif code == 1 and out == b"" and "memory" in err:
            refused += 1
        else:
            problem = problem or f"allocation {number}: {code} {out[:100]} {err}"
    check(f"{name}: {degraded} allocations that fail change nothing, {refused} end the loading",
          not problem and degraded > 100 // STEP and len(expected) > 0, problem or f"{degraded} {refused}")


def check_all_after(name, arguments, data, numbers):
    """From some allocation on all fail: whatever is answered is right, and nothing crashes."""
    _, expected, _ = fail_at("", arguments, data)
    lines = expected.splitlines()
    problem = ""
    for number in numbers:
        code, out, err = fail_at(f"{number}+", arguments, data)
        answers = out.splitlines()
        wrong = [a for a, e in zip(answers, lines) if a not in (e, b"") and b"memory" not in a]
        if wrong or code not in (0, 1) or (code == 1 and err == "" and b"memory" not in out):
            problem = problem or f"from {number} on: {code} {out[:100]} {err}"
    check(f"{name}: memory that is out for good", not problem, problem)


def check_engine_of_worker():
    """In serve, degraded steps are counted in the heartbeat."""
    case = next(c for c in demo_cases() if c["from"] == "en" and c["to"] == "zh")
    problem = ""
    counted = 0
    for number in range(1100, 2000, 60):                # some of them after READY
        os.environ["HYMT_FAIL_ALLOC"] = str(number)
        engine = check_serve.Engine()
        del os.environ["HYMT_FAIL_ALLOC"]
        engine.start()
        engine.socket.sendall(b"".join(check_serve.request(i, i, case["from"], case["to"], case["source"], stream=i % 2 == 0)
                                       for i in range(20)))
        answered = 0
        pieces = [""] * 20
        while True:
            kind, body = engine.read()
            if kind == check_serve.PIECE:
                slot = check_serve.struct.unpack_from("=I", body, 8)[0]
                pieces[slot] += body[16:].decode()
                if not case["output"].startswith(pieces[slot]):
                    problem = problem or f"other pieces: {pieces[slot]}"
            elif kind == check_serve.RESULT:
                answered += 1
                if body[96:].decode() != case["output"]:
                    problem = problem or "another answer"
            elif answered == 20:
                degraded, reused = check_serve.struct.unpack_from("=QQ", body, 48)
                break
        counted += degraded > 0
        if reused == 0:
            problem = problem or "nothing reused"
        engine.close()
    check("serve: degraded steps are counted", counted > 0 and not problem, f"{counted} {problem}")


if __name__ == "__main__":
    REQUESTS = [{"ids": [5, 6, 7 + i], "max_new": 5 * i, "temperature": i % 2, "argmax_per_position": i % 2 == 0,
                 "repetition_penalty": 1.05} for i in range(6)]
    EVAL = "".join(json.dumps(request) + "\n" for request in REQUESTS).encode()
    EVAL_ARGUMENTS = ["eval", "--model", VECTOR, "--isa", "scalar", "--threads", "2"]
    check_each("eval", EVAL_ARGUMENTS, EVAL, itertools.count(1, STEP))
    check_all_after("eval", EVAL_ARGUMENTS, EVAL, range(1, 1500, 37 * STEP))
    TEXTS = [c["source"] for c in demo_cases() if c["from"] == "en" and c["to"] == "zh" and "\n" not in c["source"]]
    TRANSLATE = "".join(text + "\n" for text in TEXTS[:5]).encode()
    TRANSLATE_ARGUMENTS = ["translate", "--model", DEMO, "--from", "en", "--to", "zh", "--threads", "2"]
    check_each("translate", TRANSLATE_ARGUMENTS, TRANSLATE, range(1, 5000, 13 * STEP))
    check_all_after("translate", TRANSLATE_ARGUMENTS, TRANSLATE, range(1, 1500, 111))
    check_engine_of_worker()
    finish()
