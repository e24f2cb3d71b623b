"""Every frame of both directions, and every way in which one can be refused."""
import struct

MAGIC = 0x544D5948


def frame(kind, body, magic=MAGIC, length=None, reserved=0):
    return struct.pack("=IIII", magic, kind, len(body) if length is None else length, reserved) + body


def text(fixed, *parts):
    return fixed + b"".join(parts)


LANG = struct.pack("=16s16s", b"zh", b"en")
FRAMES = {
    "hello": frame(1, struct.pack("=II", 1, 5) + b"0.2.0"),
    "hello other version": frame(1, struct.pack("=I", 77) + b"anything"),
    "hello short": frame(1, b"\1\0"),
    "loading": frame(2, struct.pack("=II", 50, 3) + b"abc"),
    "loading 101": frame(2, struct.pack("=II", 101, 0)),
    "ready": frame(3, struct.pack("=QQIIIIIIIIII", 6, 12, 2, 2048, 64, 1, 2, 3, 1, 1, 2, 0) + b"abbcccdeff"),
    "ready parameters": frame(3, struct.pack("=QQIIIIIIIIII", 1 << 63, 12, 2, 2048, 64, 0, 0, 0, 0, 0, 0, 0)),
    "ready threads": frame(3, struct.pack("=QQIIIIIIIIII", 1, 12, 1 << 31, 2048, 64, 0, 0, 0, 0, 0, 0, 0)),
    "ready lengths wrap": frame(3, struct.pack("=QQIIIIIIIIII", 1, 1, 1, 1, 1, 0x80000000, 0x80000000, 0, 0, 0, 0, 0)),
    "refused": frame(4, struct.pack("=II", 3, 4) + b"oops"),
    "refused for nothing": frame(4, struct.pack("=II", 0, 0)),
    "refused unknown": frame(4, struct.pack("=II", 99, 0)),
    "result": frame(5, struct.pack("=QIIIIII", 7, 3, 1, 10, 5, 0, 6) + "译文".encode()),
    "result finish": frame(5, struct.pack("=QIIIIII", 7, 3, 4, 10, 5, 0, 0)),
    "result tokens": frame(5, struct.pack("=QIIIIII", 7, 3, 1, 1 << 31, 5, 0, 0)),
    "failure": frame(6, struct.pack("=QIIII", 7, 3, 8, 0, 2) + b"no"),
    "failure none": frame(6, struct.pack("=QIIII", 7, 3, 0, 0, 0)),
    "heartbeat": frame(7, struct.pack("=QQQQQII", 1, 2, 3, 4, 5, 6, 7)),
    "heartbeat steps": frame(7, struct.pack("=QQQQQII", 1 << 63, 2, 3, 4, 5, 6, 7)),
    "heartbeat long": frame(7, bytes(49)),
    "request": frame(64, struct.pack("=QII", 9, 1, 0) + LANG + struct.pack("=II", 0, 6) + "自行".encode()),
    "request empty": frame(64, struct.pack("=QII", 9, 1, 100) + LANG + struct.pack("=II", 0, 0)),
    "request no language": frame(64, struct.pack("=QII", 9, 1, 0) + bytes(32) + struct.pack("=II", 0, 0)),
    "request full language": frame(64, struct.pack("=QII", 9, 1, 0) + b"x" * 32 + struct.pack("=II", 0, 0)),
    "request language behind": frame(64, struct.pack("=QII16s16sII", 9, 1, 0, b"zh\0x", b"en", 0, 0)),
    "request length": frame(64, struct.pack("=QII", 9, 1, 0) + LANG + struct.pack("=II", 0, 0xFFFFFFFF)),
    "cancel": frame(65, struct.pack("=QII", 9, 1, 0)),
    "cancel long": frame(65, bytes(17)),
    "unknown type": frame(8, b""),
    "magic": frame(1, b"", magic=1),
    "too long": frame(64, b"", length=0x7FFFFFFF),
    "reserved": frame(64, b"", reserved=1),
    "half": frame(64, bytes(100))[:50],
    "nothing": b"",
}
SEEDS = {label: b"\xff" + data for label, data in FRAMES.items()}
SEEDS["all, byte by byte"] = b"\0" + b"".join(
    FRAMES[name] for name in ("hello", "loading", "ready", "request", "result", "failure", "cancel", "heartbeat", "refused"))
SEEDS["all at once"] = b"\xff" + SEEDS["all, byte by byte"][1:] * 3
SEEDS["large"] = b"\xff" + frame(5, struct.pack("=QIIIIII", 7, 3, 1, 10, 5, 0, 5000) + b"x" * 5000) * 2
WORDS = ["HYMT"]
