"""Train the demo model's tokenizer: byte-level BPE with the pre-tokenizer and added tokens of HY-MT 1.8B, 8,000 ordinary tokens.

    train_tokenizer.py DATA RUN         writes RUN/tokenizer.json
"""
import argparse
import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import demo_data as data

# The pre-tokenizer of HY-MT 1.8B: up to three digits; a run of Han and kana; then words, punctuation and space.
SPLITS = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]


def training_texts(train):
    """All names as they are and in lower case, composed titles, and the prompts' own words."""
    sampler = data.Sampler(train, 7)
    texts = []
    for row in train:
        for language in data.LANGUAGES:
            texts += [row.text[language], row.text[language].lower()]
    for _ in range(60000):
        texts.append(sampler.draw()[1])
    for source in data.LANGUAGES:
        for target in data.LANGUAGES:
            if source != target:
                texts += [data.prompt("", source, target)] * 300
    for target in data.LANGUAGES:
        for _ in range(300):
            texts += [data.prompt_term("", target, "", ""), data.prompt_context("", target, ""), data.prompt_format("", target)]
    random.Random(1).shuffle(texts)
    return texts


def train_tokenizer(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(split), "isolated", invert=False) for split in SPLITS]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=data.ORDINARY_TOKENS, min_frequency=2, special_tokens=[],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != data.ORDINARY_TOKENS:
        raise SystemExit(f"the texts give only {tokenizer.get_vocab_size()} tokens, {data.ORDINARY_TOKENS} are needed")
    for token in data.added_tokens():
        added = AddedToken(token["content"], special=token["special"], normalized=False)
        (tokenizer.add_special_tokens if token["special"] else tokenizer.add_tokens)([added])
        if tokenizer.token_to_id(token["content"]) != token["id"]:
            raise SystemExit(f"added token {token['content']} got another id than {token['id']}")
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("run", type=Path)
    arguments = parser.parse_args()
    texts = training_texts(data.load(arguments.data)[0])
    tokenizer = train_tokenizer(texts)
    arguments.run.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(arguments.run / "tokenizer.json"))
    sample = texts[:20000]
    tokens = sum(len(encoding.ids) for encoding in tokenizer.encode_batch(sample, add_special_tokens=False))
    print(f"{tokenizer.get_vocab_size()} tokens, {sum(map(len, sample)) / tokens:.2f} characters per token")


if __name__ == "__main__":
    main()
