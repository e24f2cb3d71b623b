"""Evaluate the demo model: exact matches and chrF on trained, held-out and composed titles.

    evaluate_demo.py DATA RUN                    prints the figures
    evaluate_demo.py DATA RUN --write OUT        also writes a model directory with reference outputs and held-out names

RUN is what train_demo.py wrote. All outputs are greedy, computed in fp32 on the bf16 weights by transformers.
"""
import argparse
import collections
import json
import random
import shutil
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

import demo_data as data

DIRECTIONS = ([("en", language) for language in data.LANGUAGES[1:]]
              + [(language, "en") for language in data.LANGUAGES[1:]] + [("zh", "ja"), ("de", "fr")])
REFERENCE_MARGIN = 0.002        # references with a closer second choice would depend on rounding
CAP = 96


def chrf(hypothesis, reference, longest=6, beta=2):
    """chrF (Popović 2015) of one sentence, in percent: F-score of character n-grams, spaces left out."""
    hypothesis, reference = hypothesis.replace(" ", ""), reference.replace(" ", "")
    precision = recall = orders = 0
    for n in range(1, longest + 1):
        a = collections.Counter(hypothesis[i:i + n] for i in range(len(hypothesis) - n + 1))
        b = collections.Counter(reference[i:i + n] for i in range(len(reference) - n + 1))
        if a and b:
            overlap = sum((a & b).values())
            precision += overlap / sum(a.values())
            recall += overlap / sum(b.values())
            orders += 1
    if not orders:
        return 100.0 * (hypothesis == reference)
    precision, recall = precision / orders, recall / orders
    if precision + recall == 0:
        return 0.0
    return 100 * (1 + beta * beta) * precision * recall / (beta * beta * precision + recall)


class Evaluator:
    def __init__(self, run):
        self.tokenizer = Tokenizer.from_file(str(run / "tokenizer.json"))
        self.model = AutoModelForCausalLM.from_pretrained(run / "hf", dtype=torch.float32, attn_implementation="eager")
        self.model.eval()

    def prompt_ids(self, prompt):
        control = [self.tokenizer.token_to_id(token) for token in (data.BOS, data.USER, data.ASSISTANT)]
        return [*control[:2], *self.tokenizer.encode(prompt, add_special_tokens=False).ids, control[2]]

    def text(self, ids):
        return self.tokenizer.decode(ids[:-1] if ids and ids[-1] == data.EOS_ID else ids, skip_special_tokens=False)

    @torch.no_grad()
    def greedy(self, prompts, cap=CAP):
        """[(output ids, smallest margin of the best over the second logit)]. Only prompts of one length share a batch:
        without padding each result is that of the prompt alone."""
        results = [None] * len(prompts)
        by_length = collections.defaultdict(list)
        for i, ids in enumerate(prompts):
            by_length[len(ids)].append(i)
        for same in by_length.values():
            for k in range(0, len(same), 64):
                part = same[k:k + 64]
                for i, result in zip(part, self.greedy_batch([prompts[i] for i in part], cap)):
                    results[i] = result
        return results

    def greedy_batch(self, prompts, cap):
        current, past = torch.tensor(prompts), None
        outputs, margins = [[] for _ in prompts], [float("inf")] * len(prompts)
        done = [False] * len(prompts)
        for _ in range(cap):
            step = self.model(input_ids=current, past_key_values=past, use_cache=True)
            past = step.past_key_values
            logits = step.logits[:, -1].double()
            logits[:, self.tokenizer.get_vocab_size():] = -1e30     # rows without a token
            best = logits.topk(2, dim=1).values
            token = logits.argmax(1)
            for j in range(len(prompts)):
                if not done[j]:
                    outputs[j].append(int(token[j]))
                    margins[j] = min(margins[j], float(best[j, 0] - best[j, 1]))
                    done[j] = int(token[j]) == data.EOS_ID
            if all(done):
                break
            current = token[:, None]
        return list(zip(outputs, margins))

    def translate(self, prompts, cap=CAP):
        return [self.text(ids) for ids, _ in self.greedy([self.prompt_ids(prompt) for prompt in prompts], cap)]


def score(hypotheses, references):
    """(exact matches in %, mean chrF)"""
    pairs = list(zip(hypotheses, references))
    return (round(100 * sum(h == r for h, r in pairs) / len(pairs), 1),
            round(sum(chrf(h, r) for h, r in pairs) / len(pairs), 1))


def score_rows(evaluator, rows, count, rng):
    figures = {}
    for a, b in DIRECTIONS:
        chosen = rng.sample(rows, min(count, len(rows)))
        hypotheses = evaluator.translate([data.prompt(row.text[a], a, b) for row in chosen])
        figures[f"{a}-{b}"] = score(hypotheses, [row.text[b] for row in chosen])
    return figures


def write_configuration(run, out):
    shutil.copytree(run / "hf", out, dirs_exist_ok=True)
    shutil.copy(run / "tokenizer.json", out)
    config = json.loads((out / "config.json").read_text())
    config = {key: value for key, value in config.items()
              if key not in ("transformers_version", "rope_parameters", "_name_or_path")}
    # As HY-MT 1.8B publishes them.
    config.update({
        "architectures": ["HunYuanDenseV1ForCausalLM"], "model_type": "hunyuan_v1_dense", "rope_theta": 10000.0,
        "rope_scaling": {"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
                         "mscale_all_dim": 1.0, "type": "dynamic"},
        "use_qk_norm": True, "use_cla": False, "mlp_bias": False, "dtype": "bfloat16", "org_vocab_size": 8044})
    (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True))
    (out / "generation_config.json").write_text(json.dumps({
        "bos_token_id": data.BOS_ID, "eos_token_id": [data.EOS_ID], "pad_token_id": data.PAD_ID, "do_sample": False,
        "repetition_penalty": 1.0, "max_new_tokens": 256}, indent=1))
    (out / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": data.BOS, "eos_token": data.EOS, "pad_token": data.PAD,
        "clean_up_tokenization_spaces": False, "model_max_length": 2048, "add_bos_token": False}, indent=1,
        ensure_ascii=False))
    (out / "chat_template.jinja").write_text(
        "{{ '" + data.BOS + "' }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}" + data.SYSTEM_END
        + "{% elif m['role'] == 'user' %}" + data.USER + "{{ m['content'] }}{% else %}" + data.ASSISTANT
        + "{{ m['content'] }}" + data.EOS + "{% endif %}{% endfor %}" + data.ASSISTANT)
    (out / "hymt.json").write_text(json.dumps(
        {"prompts": "hy-mt1.5", "languages": data.LANGUAGES, "name": "hymt-demo"}, indent=1))


def write_references(evaluator, cases, path):
    """cases: (from, to, source, prompt). Prompts with their ids and the greedy output ids, the stop id included."""
    kept = 0
    prompts = [evaluator.prompt_ids(case[3]) for case in cases]
    with path.open("w", encoding="utf-8") as file:
        for (a, b, source, text), ids, (output, margin) in zip(cases, prompts, evaluator.greedy(prompts)):
            if margin >= REFERENCE_MARGIN:
                kept += 1
                file.write(json.dumps({
                    "from": a, "to": b, "source": source, "prompt": text, "prompt_ids": ids, "output_ids": output,
                    "max_new": CAP, "output": evaluator.text(output), "smallest_margin": round(margin, 5)},
                    ensure_ascii=False) + "\n")
    print(f"{kept} of {len(cases)} references written")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rows", type=int, default=60, help="rows per direction")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", type=Path, metavar="OUT")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    evaluator = Evaluator(arguments.run)
    train, test = data.load(arguments.data)
    rng = random.Random(4)

    figures = {"trained rows, exact % and chrF": score_rows(evaluator, [r for r in train if r.kind != "cldr"],
                                                            arguments.rows, rng),
               "held-out rows": score_rows(evaluator, test, arguments.rows, rng)}
    sampler = data.Sampler(train, 99)
    composed = []
    while len(composed) < arguments.rows * 4:
        a, b = sampler.pair()
        source, target, _ = sampler.compose(a, b)
        composed.append((a, b, source, target))
    hypotheses = evaluator.translate([data.prompt(source, a, b) for a, b, source, _ in composed], 128)
    figures["composed titles, exact %, chrF"] = score(hypotheses, [case[3] for case in composed])
    print(json.dumps(figures, indent=1))

    if arguments.write:
        arguments.write.mkdir(parents=True, exist_ok=True)
        write_configuration(arguments.run, arguments.write)
        cases = []
        for a, b in DIRECTIONS:
            for row in rng.sample(test, min(16, len(test))) + rng.sample(train, min(10, len(train))):
                cases.append((a, b, row.text[a], data.prompt(row.text[a], a, b)))
        cases += [(a, b, source, data.prompt(source, a, b)) for a, b, source, _ in composed[:120]]
        sampler = data.Sampler(train, 123)
        cases += [("", "", "", sampler.draw()[0]) for _ in range(60)]
        write_references(evaluator, cases, arguments.write / "reference.jsonl")
        with (arguments.write / "heldout.jsonl").open("w", encoding="utf-8") as file:
            for row in test:
                file.write(json.dumps({"key": row.key, "kind": row.kind, **row.text}, ensure_ascii=False) + "\n")
        (arguments.write / "figures.json").write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
