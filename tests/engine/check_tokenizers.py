"""hymt-engine tokenize and inspect with a SentencePiece model, and a whole translation with a Llama model."""
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from harness import check, finish, run

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


if __name__ == "__main__":
    for model in ("bpe_byte_fallback", "unigram_nfkc"):
        with tempfile.TemporaryDirectory() as temporary:
            check_sentencepiece(model, temporary)
    finish()
