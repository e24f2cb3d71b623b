"""Texts and prompts that the demo model is trained on: what train_tokenizer.py, train_demo.py and evaluate_demo.py share.

The order of random draws is part of the recipe: a changed order gives another model.
"""
import csv
import json
import lzma
import random
import string
from pathlib import Path
from typing import NamedTuple

LANGUAGES = ["en", "zh", "de", "fr", "es", "ja"]
CHINESE_NAME = {"en": "英语", "zh": "中文", "de": "德语", "fr": "法语", "es": "西班牙语", "ja": "日语"}
ENGLISH_NAME = {"en": "English", "zh": "Chinese", "de": "German", "fr": "French", "es": "Spanish", "ja": "Japanese"}
CATALOG_COLUMN = {"en": "en", "zh": "zh-CN", "de": "de", "fr": "fr", "es": "es", "ja": "ja"}

# Control tokens of the HY-MT 1.8B chat template.
BOS, USER, ASSISTANT = "<｜hy_begin▁of▁sentence｜>", "<｜hy_User｜>", "<｜hy_Assistant｜>"
SYSTEM_END, EOS, PAD = "<｜hy_place▁holder▁no▁3｜>", "<｜hy_place▁holder▁no▁2｜>", "<｜hy_▁pad▁｜>"

# Layout of the vocabulary: ordinary tokens, then added ones, then rows without a token.
ORDINARY_TOKENS = 8000
VOCABULARY_ROWS = 8064
FIRST_ADDED, BOS_ID, PAD_ID, EOS_ID = 8000, 8000, 8002, 8020


class Row(NamedTuple):
    kind: str                   # category, value, name or description (of an attribute), cldr
    key: str
    context: str                # path of the category in English, or ""
    text: dict                  # language -> text


def read_tsv(path):
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    head = rows[0]
    return [dict(zip(head, row)) for row in rows[1:] if len(row) == len(head)]


def held_out(english):
    """Whether a name is never trained on: 3 % of them, by FNV-1a so that every program agrees."""
    value = 2166136261
    for byte in english.encode():
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value % 1000 < 30


def load(data):
    """Rows to train on and rows held out, without duplicates and without rows that lack a language."""
    train, test, seen = [], [], set()

    def add(row):
        (test if held_out(row.text["en"].lower()) else train).append(row)

    for line in read_tsv(Path(data) / "catalog_parallel.tsv.xz"):
        text = {language: line[column].strip() for language, column in CATALOG_COLUMN.items()}
        signature = tuple(text.values())
        if all(signature) and signature not in seen:
            seen.add(signature)
            add(Row(line["field"] if line["kind"] == "attribute" else line["kind"], line["key"], line["context"], text))
    for line in read_tsv(Path(data) / "cldr_parallel.tsv.xz"):
        text = {language: line[language].strip() for language in LANGUAGES}
        signature = tuple(text.values())
        # A name that is the same in every language would teach copying.
        if all(signature) and signature not in seen and len(set(signature)) > 1:
            seen.add(signature)
            add(Row("cldr", line["key"], "", text))
    return train, test


# --- prompts of HY-MT1.5 ---------------------------------------------------------------------------------------------

def prompt(text, source, target):
    if "zh" in (source, target):
        return f"将以下文本翻译为{CHINESE_NAME[target]}，注意只需要输出翻译后的结果，不要额外解释：\n\n{text}"
    return f"Translate the following segment into {ENGLISH_NAME[target]}, without additional explanation.\n\n{text}"


def prompt_term(text, target, term, translation):
    return (f"参考下面的翻译：\n{term} 翻译成 {translation}\n\n"
            f"将以下文本翻译为{CHINESE_NAME[target]}，注意只需要输出翻译后的结果，不要额外解释：\n{text}")


def prompt_context(text, target, context):
    return (f"{context}\n参考上面的信息，把下面的文本翻译成{CHINESE_NAME[target]}，"
            f"注意不需要翻译上文，也不要额外解释：\n{text}\n")


def prompt_format(text, target):
    return (f"将以下<source></source>之间的文本翻译为{CHINESE_NAME[target]}，注意只需要输出翻译后的结果，不要额外解释，"
            "原文中的<sn></sn>标签表示标签内文本包含格式信息，需要在译文中相应的位置尽量保留该标签。"
            f"输出格式为：<target>str</target>\n\n<source>{text}</source>")


# --- drawing examples ------------------------------------------------------------------------------------------------

def random_code(rng):
    """Something that a translation must copy: codes, sizes, prices, placeholders, addresses."""
    def digits(count):
        return "".join(rng.choice(string.digits) for _ in range(count))

    def capitals(count):
        return "".join(rng.choice(string.ascii_uppercase) for _ in range(count))

    kind = rng.randrange(13)
    if kind == 0:
        return f"{capitals(rng.randint(1, 3))}-{digits(rng.randint(2, 4))}"
    if kind == 1:
        return f"{capitals(rng.randint(2, 4))}{digits(rng.randint(1, 4))}"
    if kind == 2:
        return f"{rng.randint(1, 300)} x {rng.randint(1, 300)} {rng.choice(['cm', 'mm', 'm'])}"
    if kind == 3:
        usual = [50, 75, 100, 120, 200, 250, 330, 500, 750, 900, 1000, rng.randint(1, 2000)]
        return f"{rng.choice(usual)} {rng.choice(['ml', 'g', 'kg', 'l', 'mg'])}"
    if kind == 4:
        return f"{rng.randint(1, 99)}.{digits(1)} {rng.choice(['mm', 'cm', 'W', 'V', 'kg', 'mAh', 'GB'])}"
    if kind == 5:
        return f"{rng.randint(1, 5000)}{rng.choice(['W', 'V', 'mAh', 'GB', 'TB', 'ml', 'mm', 'Hz'])}"
    if kind == 6:
        return rng.choice(["USB-C", "HDMI", "Wi-Fi", "Bluetooth", "LED", "XL", "XXL", "DIY", "AA", "IP67", "PVC", "ABS",
                           "4K", "5G"])
    if kind == 7:
        return rng.choice(["%s", "%d", "{name}", "{{ name }}", "%{count}", "{0}", "${price}", "{count}", "%1$s", "[size]"])
    if kind == 8:
        return (f"https://example.{rng.choice(['com', 'org', 'net'])}/{rng.choice(['p', 'item', 'shop', 'img'])}/"
                f"{digits(rng.randint(2, 5))}")
    if kind == 9:
        return f"${rng.randint(1, 300)}.{digits(2)}"
    if kind == 10:
        return f"{rng.randint(1, 100)}%"
    if kind == 11:
        return digits(rng.choice([2, 3, 4, 5, 8, 13]))
    return f"{capitals(1)}{digits(1)}{capitals(1)}{digits(2)}"


SEPARATORS = [" - ", ", ", " / ", ": ", " | ", " – ", " + ", "; ", " · ", "\n", " & "]


class Sampler:
    """Draws (prompt, answer) pairs. Composed titles teach that parts are translated and the rest is copied."""

    def __init__(self, rows, seed):
        self.rng = random.Random(seed)
        self.rows = rows
        self.short = [row for row in rows if row.kind != "description" and max(map(len, row.text.values())) <= 48]
        self.names = [row for row in self.short if row.kind != "cldr"]
        self.descriptions = [row for row in rows if row.kind == "description"]

    def pair(self):
        """Source and target language; English on one side seven times of eight."""
        if self.rng.random() < 0.88:
            other = self.rng.choice(LANGUAGES[1:])
            return ("en", other) if self.rng.random() < 0.6 else (other, "en")
        return tuple(self.rng.sample(LANGUAGES, 2))

    def change_case(self, source, target):
        chance = self.rng.random()
        if chance < 0.10:
            return source.lower(), target
        if chance < 0.13:
            return source.upper(), target.upper()
        return source, target

    def compose(self, a, b):
        """A title of several names and codes: (source, target, rows it was made of)."""
        rng = self.rng
        count = rng.choice([1, 2, 2, 2, 3, 3, 4])
        parts = [rng.choice(self.names if rng.random() < 0.93 else self.short).text for _ in range(count)]
        pieces = [self.change_case(part[a], part[b]) for part in parts]
        if rng.random() < 0.22:
            at = rng.randrange(count)
            tag = rng.choice(["b", "i", "p", "strong", "span", "li", "h2"])
            pieces[at] = tuple(f"<{tag}>{text}</{tag}>" for text in pieces[at])
        for _ in range(rng.choice([0, 1, 1, 2]) if count > 1 else rng.choice([1, 1, 2])):
            code = random_code(rng)
            pieces.insert(rng.randint(0, len(pieces)), (code, code))
        separators = [rng.choice(SEPARATORS) if rng.random() < 0.6 else " - " for _ in pieces[1:]]
        for i in range(len(separators)):
            # Codes often stand beside a name with only a space between.
            if pieces[i][0] == pieces[i][1] or pieces[i + 1][0] == pieces[i + 1][1]:
                if rng.random() < 0.5:
                    separators[i] = " "
        source, target = pieces[0]
        for separator, (x, y) in zip(separators, pieces[1:]):
            source += separator + x
            target += separator + y
        if rng.random() < 0.12:
            code = random_code(rng)
            source, target = f"{source} ({code})", f"{target} ({code})"
        return source, target, parts

    def draw_row(self, a, b):
        row = self.rng.choice(self.rows if self.rng.random() < 0.15 else self.names)
        source, target = row.text[a], row.text[b]
        if row.kind != "description":
            source, target = self.change_case(source, target)
        if self.rng.random() < 0.06 and row.context:
            return prompt_context(source, b, row.context), target
        return prompt(source, a, b), target

    def draw_description(self, a, b):
        text = self.rng.choice(self.descriptions).text
        source, target = text[a], text[b]
        if self.rng.random() < 0.25:
            more = self.rng.choice(self.descriptions).text
            separator = self.rng.choice(["\n", "\n\n", " "])
            source, target = source + separator + more[a], target + separator + more[b]
        return prompt(source, a, b), target

    def draw(self):
        """One example: (prompt, answer)."""
        rng = self.rng
        a, b = self.pair()
        chance = rng.random()
        if chance < 0.60:
            return self.draw_row(a, b)
        if chance < 0.67:
            return self.draw_description(a, b)
        source, target, parts = self.compose(a, b)
        if chance < 0.94:
            return prompt(source, a, b), target
        if chance < 0.98:
            part = rng.choice(parts)
            wanted = rng.choice(self.names).text[b] if rng.random() < 0.5 else part[b]
            if part[a] in source and part[b] in target:
                return prompt_term(source, b, part[a], wanted), target.replace(part[b], wanted, 1)
            return prompt(source, a, b), target
        part = rng.choice(parts)
        if part[a] in source and part[b] in target:
            marked = source.replace(part[a], f"<s1>{part[a]}</s1>", 1)
            answer = target.replace(part[b], f"<s1>{part[b]}</s1>", 1)
            return prompt_format(marked, b), f"<target>{answer}</target>"
        return prompt(source, a, b), target


def added_tokens():
    """The added tokens that the demo model shares with HY-MT 1.8B, as its tokenizer.json lists them."""
    path = Path(__file__).resolve().parent.parent / "models" / "demo" / "tokenizer.json"
    return json.loads(path.read_text(encoding="utf-8"))["added_tokens"]
