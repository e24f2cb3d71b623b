"""What the seeds of several targets share."""
import json


def files(**contents):
    """One input out of several files; names with a dot are given with __ for it."""
    parts = []
    for name, data in contents.items():
        parts.append(f"#file {name.replace('__', '.')}\n".encode() + (data if isinstance(data, bytes) else data.encode()))
    return b"\n".join(parts)


def edits(text, table):
    """The seeds that come of replacing one piece of a text, label -> new text."""
    seeds = {}
    for label, (old, new) in table.items():
        assert old in text, (label, old)
        seeds[label] = text.replace(old, new, 1)
    return seeds


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


JSON_WORDS = ["null", "true", "false", "{}", "[]", "\"", ":", ",", "0", "-1", "1e400", "1.5", "NaN", "\\u0000", "\\ud800",
              "9223372036854775807", "9223372036854775808", "18446744073709551616", "4294967296", "2147483648", "#file "]
