#!/usr/bin/env python3
"""
Write the seeds of the fuzz targets: make_corpus.py DIRECTORY makes DIRECTORY/NAME/ and DIRECTORY/NAME.dict for each
seeds_NAME.py beside this program, from its SEEDS (label -> bytes) and, where it has one, its WORDS (a dictionary).
"""
import glob
import importlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def quoted(word):
    return '"' + "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}"
                         for byte in word.encode() if byte) + '"\n'


def main():
    sys.path.insert(0, HERE)
    for path in sorted(glob.glob(f"{HERE}/seeds_*.py")):
        module = importlib.import_module(os.path.basename(path)[:-3])
        name = module.__name__.removeprefix("seeds_")
        folder = os.path.join(sys.argv[1], name)
        os.makedirs(folder, exist_ok=True)
        for label, data in module.SEEDS.items():
            with open(os.path.join(folder, label.replace("/", "_").replace(" ", "_")), "wb") as file:
                file.write(data if isinstance(data, bytes) else data.encode())
        words = getattr(module, "WORDS", [])
        with open(f"{folder}.dict", "w", encoding="ascii") as file:
            file.writelines(quoted(word) for word in words if word)


if __name__ == "__main__":
    main()
