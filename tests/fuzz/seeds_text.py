"""Texts of many scripts, and bytes that are none."""
SEEDS = {
    "empty": b"", "blank": b" \t\r\n", "words": b"I'm sure she'll take 12345 red bicycles, won't they?\n\n  x",
    "chinese": "今天天气真好。红色连衣裙".encode(), "japanese": "自転車とケーキ".encode(), "arabic": "دراجة حمراء".encode(),
    "thai": "จักรยานสีแดง".encode(), "hindi": "लाल साइकिल".encode(), "tibetan": "རྐང་འཁོར་".encode(),
    "emoji": "👩🏽‍🔧🇩🇪❤️".encode(), "combining": "é ö ñ".encode(), "controls": bytes(range(32)) + b"\x7f",
    "specials": "<｜hy_User｜><|eos|></think><answer>".encode(), "nul": b"a\0b",
    "bad start": b"\x80abc", "cut": "中".encode()[:2], "overlong": b"\xc0\xaf\xe0\x80\xaf", "surrogate": b"\xed\xa0\x80",
    "beyond": b"\xf4\x90\x80\x80", "latin": b"caf\xe9", "many": b"a" * 3000, "code": b"zh-Hant", "code 2": b"pt_BR",
    "private": "\ue000\U000f0000\ufffe".encode(), "separators": "a b c﻿d".encode(),
    "byte alphabet": "ĠĊĀÃ¡".encode(), "line ends": b"a\r\n\r\nb\rc\n \n",
}
WORDS = ["中", "ä", "\u0301", "\u200d", "<｜hy_User｜>", "\n\n", "  ", "\u3000", "12345", "zh-Hant"]
