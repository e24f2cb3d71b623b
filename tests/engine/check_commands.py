"""The command line of hymt-engine: usage errors, bad requests, lines in and out."""
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(__file__))
from harness import DEMO, ENGINE, check, demo_cases, eval_lines, finish, run

VECTOR = "tests/vectors/models/hunyuan_gqa_f32"         # vocabulary 320, context 4096


def check_usage():
    wrong_usage = {
        "no command": [],
        "unknown command": ["dance"],
        "unknown option": ["eval", "--model", VECTOR, "--loud"],
        "no model": ["eval"],
        "empty model": ["eval", "--model", ""],
        "stray argument": ["eval", "--model", VECTOR, "stray"],
        "unknown precision": ["eval", "--model", VECTOR, "--precision", "int8"],
        "unknown instruction set": ["eval", "--model", VECTOR, "--isa", "mmx"],
        "threads 0": ["eval", "--model", VECTOR, "--threads", "0"],
        "threads x": ["eval", "--model", VECTOR, "--threads", "2x"],
        "unknown family": ["translate", "--model", DEMO, "--from", "en", "--to", "zh", "--family", "x"],
        "memory x": ["eval", "--model", VECTOR, "--memory", "x"],
        "memory 0": ["eval", "--model", VECTOR, "--memory", "0"],
        "memory 1T": ["eval", "--model", VECTOR, "--memory", "1T"],
        "memory beyond all": ["eval", "--model", VECTOR, "--memory", "9223372036854775807G"],
        "no languages": ["translate", "--model", DEMO],
        "rows 0": ["bench", "--model", VECTOR, "--rows", "1,0"],
        "65 rows": ["bench", "--model", VECTOR, "--rows", ",".join(["1"] * 65)],
        "bench of texts without languages": ["bench", "--model", DEMO, "--texts", __file__],
        "bench of texts with rows": ["bench", "--model", DEMO, "--texts", __file__, "--from", "en", "--to", "zh", "--rows", "1"],
        "bench of no texts with languages": ["bench", "--model", DEMO, "--from", "en"],
        "serve without socket": ["serve", "--model", DEMO],
        "serve on no socket": ["serve", "--model", DEMO, "--fd", "0"],
    }
    for name, arguments in wrong_usage.items():
        code, out, err = run(arguments)
        check(f"wrong usage: {name}", code == 2 and out == b"" and err != "", f"{code} {err}")
    for arguments in (["--help"], ["--version"], ["eval", "--help"], ["translate", "--help"], ["serve", "--help"]):
        code, out, err = run(arguments)
        check(f"hymt-engine {' '.join(arguments)}", code == 0 and out != b"" and err == "", f"{code} {err}")


def check_failures():
    with tempfile.TemporaryDirectory() as folder:
        for name, model in (("missing", f"{folder}/none"), ("empty", folder), ("a file", __file__)):
            code, out, err = run(["eval", "--model", model], '{"ids":[1]}\n')
            check(f"model directory is {name}", code == 1 and out == b"" and err.count("\n") == 1, f"{code} {err}")
        code, out, err = run(["eval", "--model", VECTOR, "--trace", f"{folder}/no/trace"])
        check("trace that cannot be written", code == 1 and "trace" in err, f"{code} {err}")
    code, out, err = run(["translate", "--model", VECTOR, "--from", "en", "--to", "zh"], "x\n")
    check("translate without prompt family or tokenizer", code == 1 and out == b"", f"{code} {err}")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([ENGINE, "eval", "--model", VECTOR], input=b'{"ids":[1]}\n', stdout=full,
                              stderr=subprocess.PIPE, check=False)
        check("full disk behind the standard output", done.returncode == 1 and done.stderr != b"")
        done = subprocess.run([ENGINE, "inspect", "--model", DEMO], stdout=full, stderr=subprocess.PIPE, check=False)
        check("full disk behind inspect, said once", done.returncode == 1 and done.stderr.count(b"\n") == 1, str(done))
    code, out, err = run(["inspect", "--model", DEMO, "--family", "hy-mt2"])
    check("a family that hymt.json overrides is told of", code == 0 and b"hy-mt1.5" in out and "hy-mt2" in err and
          "hymt.json" in err, err)
    code, out, err = run(["inspect", "--model", DEMO, "--family", "hy-mt1.5"])
    check("the family that hymt.json names is not", code == 0 and err == "", err)
    for name, redirection, wanted in (("output", ">&-", 1), ("input", "<&-", 1), ("error output", "2>&-", 0)):
        command = f'"$0" eval --model {VECTOR} --trace "$1/trace" {redirection}'
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["bash", "-c", command, ENGINE, folder], input=b'{"ids":[1]}\n',
                                  capture_output=True, check=False)
            with open(f"{folder}/trace", encoding="ascii") as file:
                trace = [json.loads(line) for line in file]
        check(f"no standard {name}", done.returncode == wanted and all("rows" in step for step in trace) and
              (wanted == 0) == (done.stdout != b"") == (done.stderr == b""), str(done))
    done = subprocess.run(["bash", "-c", '"$0" --version >&-', ENGINE], capture_output=True, check=False)
    check("--version without a standard output", done.returncode == 1 and done.stderr != b"", str(done))
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run([ENGINE, "eval", "--model", VECTOR], input=b'{"ids":[1]}\n' * 100, stdout=write_end,
                          stderr=subprocess.PIPE, check=False)
    os.close(write_end)
    check("closed pipe behind the standard output", done.returncode == 1 and done.stderr != b"", str(done))


def check_bad_requests():
    """Each bad line gets an error of its own; the good ones around it are answered."""
    good = '{"ids":[5,6,7],"max_new":3,"repetition_penalty":1.05}'
    bad = [
        "", "{", "[]", "null", '"ids"', '{"ids":[1]} x', "{}", '{"ids":null}', '{"ids":5}', '{"ids":[]}',
        '{"ids":["1"]}', '{"ids":[1.0]}', '{"ids":[true]}', '{"ids":[-1]}', '{"ids":[320]}',
        '{"ids":[99999999999999999999]}', '{"ids":[4294967297]}', '{"ids":[1],"max_new":-1}',
        '{"ids":[1],"max_new":1.5}', '{"ids":[1],"max_new":"3"}', '{"ids":[1],"max_new":4096}',
        '{"ids":[1],"max_new":9000000000}', '{"ids":[1],"repetition_penalty":0}',
        '{"ids":[1],"repetition_penalty":-1}', '{"ids":[1],"repetition_penalty":"1"}',
        '{"ids":[1],"repetition_penalty":1e300}', '{"ids":[1],"ids":[2]}', '{"ids":[1]', "\xff",
        '{"ids":[' + ",".join(["1"] * 4097) + "]}",
    ]
    lines = [good]
    for line in bad:
        lines += [line, good]
    data = "\n".join(lines).encode("latin-1")           # without a last newline
    code, out, err = run(["eval", "--model", VECTOR], data)
    answers = [json.loads(line) for line in out.decode().splitlines()]
    check("bad requests: exit code and number of answers", code == 1 and len(answers) == len(lines), f"{code} {err}")
    wrong = [line[:40] for line, answer in zip(lines, answers)
             if (list(answer) != ["error"] or not answer["error"]) == (line != good)]
    check(f"bad requests: {len(bad)} kinds, each an error of its own", not wrong, str(wrong))
    same = [answer for line, answer in zip(lines, answers) if line == good]
    check("bad requests: the good ones beside them are not touched", all(a == same[0] for a in same))


def check_eval_edges():
    code, answers, err = eval_lines(VECTOR, [{"ids": [5]}, {"ids": [5], "max_new": 0}, {"ids": [5] * 4000},
                                             {"ids": [5], "max_new": 4095}])
    shapes = [(len(a["last_logits"]), len(a["argmax_per_position"]), a["finish"]) for a in answers]
    check("max_new 0 computes the prompt only",
          code == 0 and shapes[0] == (320, 1, "length") and answers[0] == answers[1] and answers[0]["greedy"] == [],
          err)
    check("a prompt of 4000 ids", shapes[2] == (320, 4000, "length"), str(shapes))
    check("an answer up to the end of the context", shapes[3][:2] == (320, 1) and
          (answers[3]["finish"] == "stop" or len(answers[3]["greedy"]) == 4095), str(shapes))
    code, out, err = run(["eval", "--model", VECTOR], b"")
    check("no request, no answer", code == 0 and out == b"" and err == "")
    code, answers, err = eval_lines(VECTOR, [{"ids": [5], "max_new": 60}], ["--max-context", "32"])
    check("--max-context bounds prompt and answer", code == 1 and "32" in answers[0].get("error", ""), err)


def check_translate_lines():
    case = next(c for c in demo_cases() if c["from"] == "en" and c["to"] == "zh")
    text, answer = case["source"], case["output"]
    arguments = ["translate", "--model", DEMO, "--from", "en", "--to", "zh"]
    code, out, err = run(arguments, f"{text}\n\n  \t\n{text}")
    check("translate: blank lines as they are, a last line without newline",
          code == 0 and out.decode() == f"{answer}\n\n  \t\n{answer}\n", f"{out} {err}")
    code, out, err = run(arguments, f"{text}\n".encode() + b"bad \xff\xfe bytes\n" + ("word " * 5000 + "\n").encode() +
                         f"{text}\n".encode())
    check("translate: a bad line gives an empty line and a message with its number",
          code == 1 and out.decode() == f"{answer}\n\n\n{answer}\n" and "line 2:" in err and "line 3:" in err and
          "line 1:" not in err and "line 4:" not in err, f"{out[:200]} {err}")
    code, out, err = run(arguments, f"{text}\r\n\r\n{text}\nbad ".encode() + b"\xff\r\n" + f"{text}\r".encode())
    check("translate: a carriage return at the end of a line stays there",
          code == 1 and out.decode() == f"{answer}\r\n\r\n{answer}\n\r\n{answer}\r\n" and "line 4:" in err,
          f"{out} {err}")
    blank = "\u3000\u00a0\n\u2003\t \x85\n\u2028\n\0\n"
    code, out, err = run(arguments, blank)
    check("translate: blanks of any script, and a lone NUL, as they are", code == 0 and out.decode() == blank,
          f"{out} {err}")
    code, out, err = run(arguments, b"x" * (17 * 1024 * 1024) + f"\n{text}\n".encode())
    check("translate: a line of 17 MB", code == 1 and out.decode() == f"\n{answer}\n" and "line 1:" in err, err)
    code, out, err = run(["translate", "--model", DEMO, "--from", "EN_us", "--to", "zh-CN"], f"{text}\n")
    check("translate: spellings of language codes", code == 0 and out.decode() == f"{answer}\n", err)
    for codes in (["xx", "zh"], ["en", "xx"], ["en", "ko"]):
        code, out, err = run(["translate", "--model", DEMO, "--from", codes[0], "--to", codes[1]], f"{text}\n")
        check(f"translate: {codes[0]} to {codes[1]} is refused with the known languages",
              code == 1 and out == b"" and "en zh de fr es ja" in err, f"{code} {err}")
    many = 600                                         # more than are in flight at a time
    code, out, err = run(arguments, f"{text}\n\n" * many)
    check(f"translate: {2 * many} lines", code == 0 and out.decode() == f"{answer}\n\n" * many, err)


def check_translate_dialogue():
    """Each line is answered as soon as it is there, without waiting for the end of the input."""
    case = next(c for c in demo_cases() if c["from"] == "en" and c["to"] == "zh")
    process = subprocess.Popen([ENGINE, "translate", "--model", DEMO, "--from", "en", "--to", "zh"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    good = True
    for _ in range(3):
        process.stdin.write((case["source"] + "\n").encode())
        process.stdin.flush()
        good = good and process.stdout.readline().decode() == case["output"] + "\n"
    process.stdin.close()
    check("translate: line by line", good and process.stdout.read() == b"" and process.wait() == 0)


def check_long_lines():
    """One byte more than a line may have, its newline in the same piece as the byte or in a later one."""
    limit = 16 * 1024 * 1024
    good = b'{"text": "a word"}'
    longest = b'{"ids": [1]' + b" " * (limit - 12) + b"}"
    answers = []
    for line in (longest, longest[:-1] + b" }"):
        with tempfile.TemporaryFile() as file:
            file.write(line + b"\n" + good + b"\n")
            file.seek(0)
            done = subprocess.run([ENGINE, "tokenize", "--model", DEMO], stdin=file, capture_output=True, check=False)
        answers.append([done.returncode] + [list(json.loads(text)) for text in done.stdout.splitlines()])
    process = subprocess.Popen([ENGINE, "tokenize", "--model", DEMO], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(longest[:-1] + b" }")
    process.stdin.flush()
    time.sleep(1)
    process.stdin.write(b"\n" + good)
    out = process.communicate()[0]
    answers.append([process.returncode] + [list(json.loads(text)) for text in out.splitlines()])
    check("tokenize: a line as long as may be, and longer ones", answers == [
        [0, ["text"], ["ids"]], [1, ["error"], ["ids"]], [1, ["error"], ["ids"]]], str(answers))


def check_tokenize():
    """Line by line, as a dialogue; bad lines beside good ones."""
    process = subprocess.Popen([ENGINE, "tokenize", "--model", DEMO], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    good = True
    for text in ("a word", "", "\0", "中文"):
        process.stdin.write((json.dumps({"text": text}) + "\n").encode())
        process.stdin.flush()
        ids = json.loads(process.stdout.readline())
        process.stdin.write((json.dumps(ids) + "\r\n").encode())
        process.stdin.flush()
        good = good and json.loads(process.stdout.readline()) == {"text": text}
    process.stdin.close()
    check("tokenize: there and back, line by line", good and process.stdout.read() == b"" and process.wait() == 0)
    bad = ["", "{", "[]", "{}", '{"text": 1}', '{"ids": [-1]}', '{"ids": ["x"]}', '{"text": "", "ids": []}', '"\xff"']
    code, out, err = run(["tokenize", "--model", DEMO], "\n".join(bad + ['{"text": ""}']).encode("latin-1"))
    answers = [list(json.loads(line)) for line in out.splitlines()]
    check("tokenize: bad lines", code == 1 and answers == [["error"]] * len(bad) + [["ids"]] and err == "",
          f"{answers} {err}")


def check_bench():
    code, out, err = run(["bench", "--model", VECTOR, "--rows", "1,4", "--prompt", "20", "--new", "8"])
    table = [line.split() for line in out.decode().splitlines()[-2:]]
    check("bench", code == 0 and [row[0] for row in table] == ["1", "4"] and
          all(float(cell) > 0 for row in table for cell in row) and b"threads" in out, f"{out} {err}")


def check_bench_texts():
    arguments = ["bench", "--model", DEMO, "--from", "en", "--to", "zh", "--texts"]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/texts"
        with open(path, "w", encoding="utf-8") as file:
            # more than are in the batch at a time, an empty line, and no newline at the end
            file.write("Good morning\n\n" + "".join(f"Item {number}\n" for number in range(1100)) + "Thank you")
        code, out, err = run(arguments + [path, "--new", "1"])
        lines = out.decode().splitlines()
        check("bench of texts", code == 0 and lines[1].startswith("1102 texts, ") and
              " 1102 of answers, 1102 answers did not end by themselves, " in lines[1] and
              len(lines[-1].split()) == 5 and all(float(cell) > 0 for cell in lines[-1].split()), f"{out} {err}")
        with open(path, "w", encoding="utf-8") as file:
            file.write("Good morning\n")
        code, out, err = run(arguments + [path])
        check("bench of one text, to its end", code == 0 and b"\n1 texts, " in out and b", 0 answers did not end" in out, f"{out} {err}")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n\n")
        code, out, err = run(arguments + [path])
        check("bench of no texts", code == 1 and out == b"" and "no texts" in err, f"{out} {err}")
        code, out, err = run(arguments + [f"{folder}/none"])
        check("bench of a missing file", code == 1 and out == b"" and err.count("\n") == 1, f"{out} {err}")


if __name__ == "__main__":
    check_usage()
    check_failures()
    check_bad_requests()
    check_eval_edges()
    check_translate_lines()
    check_translate_dialogue()
    check_tokenize()
    check_long_lines()
    check_bench()
    check_bench_texts()
    finish()
