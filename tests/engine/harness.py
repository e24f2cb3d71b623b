"""What the engine's end-to-end checks share: counting, running the program, reading vectors."""
import json
import os
import subprocess
import sys

ENGINE = os.environ.get("HYMT_ENGINE", "build/hymt-engine")
DEMO = "models/demo"
passed = 0
failed = 0


def check(name, good, why=""):
    global passed, failed
    if good:
        passed += 1
        print(f"ok      {name}", flush=True)
    else:
        failed += 1
        print(f"FAILED  {name}" + (f": {why}" if why else ""), flush=True)
    return good


def finish():
    """Hand the counts to the caller (the file named by the first argument) and exit."""
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", encoding="ascii") as tally:
            tally.write(f"{passed} {failed}\n")
    else:
        print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def run(arguments, data=b"", timeout=300):
    """Run the engine; returns (exit code, stdout bytes, stderr text)."""
    if isinstance(data, str):
        data = data.encode()
    done = subprocess.run([ENGINE] + arguments, input=data, capture_output=True, timeout=timeout, check=False)
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def eval_lines(model, requests, options=()):
    """Answers of `eval` to a list of requests, as one batch."""
    code, out, err = run(["eval", "--model", model, *options], "".join(json.dumps(r) + "\n" for r in requests))
    return code, [json.loads(line) for line in out.decode().splitlines()], err


def demo_cases():
    with open(f"{DEMO}/reference.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def instruction_sets():
    """Those this machine and build have."""
    return [isa for isa in ("scalar", "avx2", "avx512")
            if "no " + isa not in run(["eval", "--model", "/nonexistent", "--isa", isa])[2]]
