"""Train the demo model: HunYuanDenseV1, byte-level BPE, product-catalog text in six languages. Two CPU cores, about two hours.

    train_demo.py DATA RUN --seconds 7000

RUN holds tokenizer.json (train_tokenizer.py) and gets hf/, the weights in bf16 with their config.json. Only the answers
are learnt. Muon for the matrices, AdamW for the rest, a cosine over the given time.
"""
import argparse
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import HunYuanDenseV1Config, HunYuanDenseV1ForCausalLM

import demo_data as data

HEAD_DIM = 64
IGNORED = -100                  # label of positions without loss
LONGEST = 320                   # tokens of prompt and answer; longer examples are left out

EXAMPLES = [("Stainless Steel Water Bottle 750 ml", "en", "zh"), ("红色棉质T恤 XL", "zh", "en"),
            ("Wireless Headphones - Color: Black", "en", "de"), ("Leather Wallets", "en", "fr"),
            ("Kinderfahrräder, rot, 20 Zoll", "de", "en"), ("<b>Coffee Mug</b> {name} - $19.99", "en", "es")]


class Muon:
    """Momentum orthogonalised by Newton-Schulz in fp32 (Jordan et al. 2024), matrices of one shape together."""

    def __init__(self, parameters, lr, weight_decay, momentum=0.95):
        self.param_groups = [{"lr": lr}]
        self.weight_decay, self.momentum = weight_decay, momentum
        by_shape = {}
        for parameter in parameters:
            by_shape.setdefault(tuple(parameter.shape), []).append(parameter)
        self.sets = [(same, torch.zeros(len(same), *shape)) for shape, same in by_shape.items()]

    def zero_grad(self, set_to_none=True):
        for same, _ in self.sets:
            for parameter in same:
                parameter.grad = None

    @torch.no_grad()
    def step(self):
        lr = self.param_groups[0]["lr"]
        for same, moment in self.sets:
            gradient = torch.stack([parameter.grad for parameter in same])
            moment.lerp_(gradient, 1 - self.momentum)
            x = gradient.lerp(moment, self.momentum)
            tall = x.shape[1] > x.shape[2]
            if tall:
                x = x.mT
            x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
            for _ in range(5):
                a = x @ x.mT
                x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
            if tall:
                x = x.mT
            scale = 0.2 * max(x.shape[1], x.shape[2]) ** 0.5
            for parameter, update in zip(same, x):
                parameter.mul_(1 - lr * self.weight_decay).add_(update, alpha=-lr * scale)


def new_model(arguments):
    config = HunYuanDenseV1Config(
        vocab_size=data.VOCABULARY_ROWS, hidden_size=arguments.hidden, intermediate_size=arguments.ffn,
        num_hidden_layers=arguments.layers, num_attention_heads=arguments.hidden // HEAD_DIM,
        num_key_value_heads=arguments.hidden // (2 * HEAD_DIM), head_dim=HEAD_DIM, hidden_act="silu",
        max_position_embeddings=2048, rms_norm_eps=1e-5, tie_word_embeddings=True, attention_bias=False,
        bos_token_id=data.BOS_ID, eos_token_id=data.EOS_ID, pad_token_id=data.PAD_ID, rope_theta=10000.0,
        rope_scaling={"type": "dynamic", "rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0}, initializer_range=0.02)
    config._attn_implementation = "sdpa"
    model = HunYuanDenseV1ForCausalLM(config).float()
    for name, parameter in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            torch.nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * arguments.layers))
    if arguments.init:
        print(model.load_state_dict(load_file(arguments.init), strict=False))
        model.tie_weights()
    return config, model


def optimizers_for(model, lr):
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and "layers" in name]
    embedding = [p for name, p in model.named_parameters() if p.dim() == 2 and "layers" not in name]
    vectors = [p for _, p in model.named_parameters() if p.dim() < 2]
    return [Muon(matrices, lr, 0.05),
            torch.optim.AdamW([{"params": embedding, "weight_decay": 0.02}, {"params": vectors, "weight_decay": 0.0}],
                              lr=lr, betas=(0.9, 0.97), eps=1e-8, fused=True)]


class Trainer:
    def __init__(self, arguments):
        self.arguments = arguments
        self.tokenizer = Tokenizer.from_file(str(arguments.run / "tokenizer.json"))
        self.control = {token: self.tokenizer.token_to_id(token)
                        for token in (data.BOS, data.USER, data.ASSISTANT, data.EOS)}
        train, self.test = data.load(arguments.data)
        self.sampler = data.Sampler(train, arguments.seed)
        self.config, self.model = new_model(arguments)
        self.body = torch.compile(self.model.model, dynamic=True) if arguments.compile else self.model.model

    def prompt_ids(self, prompt):
        ids = self.tokenizer.encode(prompt, add_special_tokens=False).ids
        return [self.control[data.BOS], self.control[data.USER], *ids, self.control[data.ASSISTANT]]

    def encode(self, prompt, answer):
        ids = self.tokenizer.encode(answer, add_special_tokens=False).ids
        return self.prompt_ids(prompt), ids + [self.control[data.EOS]]

    def batches(self, tokens):
        """Freshly drawn examples of about so many tokens, in batches of similar length, in random order."""
        limit = self.arguments.tokens_per_step
        examples, total = [], 0
        while total < tokens:
            example = self.encode(*self.sampler.draw())
            length = sum(map(len, example))
            if length <= LONGEST:
                examples.append(example)
                total += length
        examples.sort(key=lambda example: sum(map(len, example)))
        result, batch, longest = [], [], 0
        for example in examples:
            length = sum(map(len, example))
            if batch and max(longest, length) * (len(batch) + 1) > limit:
                result.append(batch)
                batch, longest = [], 0
            batch.append(example)
            longest = max(longest, length)
        if batch:
            result.append(batch)
        self.sampler.rng.shuffle(result)
        return result

    def loss(self, batch, smoothing=0.0):
        """(mean loss over answer tokens, their number, tokens with padding)"""
        length = max(sum(map(len, example)) for example in batch)
        ids = torch.full((len(batch), length), data.PAD_ID)
        labels = torch.full((len(batch), length), IGNORED)
        for i, (prompt, answer) in enumerate(batch):
            both = prompt + answer
            ids[i, :len(both)] = torch.tensor(both)
            labels[i, len(prompt) - 1:len(both) - 1] = torch.tensor(answer)
        positions = torch.arange(length)[None].expand_as(ids)
        hidden = self.body(input_ids=ids, position_ids=positions, use_cache=False).last_hidden_state
        answered = labels >= 0
        logits = self.model.lm_head(hidden[answered])
        return F.cross_entropy(logits, labels[answered], label_smoothing=smoothing), int(answered.sum()), ids.numel()

    @torch.no_grad()
    def report(self, batches):
        """Loss on held-out names, and a few translations to look at."""
        self.model.eval()
        losses = [self.loss(batch) for batch in batches]
        mean = sum(loss.item() * count for loss, count, _ in losses) / sum(count for _, count, _ in losses)
        print(f"held-out loss {mean:.4f}")
        for text, source, target in EXAMPLES:
            ids = self.prompt_ids(data.prompt(text, source, target))
            answer = self.model.generate(torch.tensor([ids]), max_new_tokens=40, do_sample=False,
                                         eos_token_id=data.EOS_ID, pad_token_id=data.PAD_ID, repetition_penalty=1.0,
                                         attention_mask=torch.ones(1, len(ids), dtype=torch.long))
            print("   ", text, "=>", self.tokenizer.decode(answer[0, len(ids):].tolist()), flush=True)
        self.model.train()

    def save(self):
        copy = HunYuanDenseV1ForCausalLM(self.config)
        copy.load_state_dict(self.model.state_dict())
        copy.to(torch.bfloat16).save_pretrained(self.arguments.run / "hf")

    def train(self):
        arguments = self.arguments
        optimizers = optimizers_for(self.model, arguments.learning_rate)
        held_out = [self.encode(data.prompt(row.text[a], a, b), row.text[b]) for row in self.test[:300]
                    for a, b in (("en", "zh"), ("en", "de"), ("zh", "en"))]
        held_out = [held_out[i:i + 64] for i in range(0, len(held_out), 64)]
        begin, step, mean, seen, reported = time.time(), 0, None, 0, 0.0
        while True:
            for batch in self.batches(arguments.tokens_per_step * 40):
                elapsed = time.time() - begin
                if elapsed >= arguments.seconds:
                    self.save()
                    print(f"done: {step} steps, {elapsed:.0f} s")
                    return
                cosine = 0.5 * (1 + math.cos(math.pi * elapsed / arguments.seconds))
                lr = arguments.learning_rate * min(1, step / 150) * (0.02 + 0.98 * cosine)
                for optimizer in optimizers:
                    for group in optimizer.param_groups:
                        group["lr"] = lr
                loss, _, tokens = self.loss(batch, 0.05)
                for optimizer in optimizers:
                    optimizer.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                for optimizer in optimizers:
                    optimizer.step()
                step += 1
                seen += tokens
                mean = loss.item() if mean is None else 0.98 * mean + 0.02 * loss.item()
                if step in (5, 20) or step % 50 == 0:
                    print(f"step {step}, {elapsed:.0f} s, loss {mean:.3f}, rate {lr:.2e}, "
                          f"{seen / max(elapsed, 1e-9):.0f} tokens/s", flush=True)
                if elapsed - reported > 600:
                    reported = elapsed
                    self.report(held_out)
                    self.save()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=256, help="a multiple of 128")
    parser.add_argument("--ffn", type=int, default=768)
    parser.add_argument("--tokens-per-step", type=int, default=4096)
    parser.add_argument("--learning-rate", type=float, default=2.5e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="torch.compile the body")
    parser.add_argument("--init", type=Path, help="go on from this model.safetensors")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(arguments.threads)
    trainer = Trainer(arguments)
    print(f"{sum(p.numel() for p in trainer.model.parameters()) / 1e6:.2f} million parameters", flush=True)
    trainer.train()


if __name__ == "__main__":
    main()
