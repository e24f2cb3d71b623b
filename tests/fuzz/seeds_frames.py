"""Every frame of both directions, and every way in which one can be refused."""
import struct

MAGIC = 0x544D5948


def frame(kind, body, magic=MAGIC, length=None, reserved=0):
    return struct.pack("=IIII", magic, kind, len(body) if length is None else length, reserved) + body


def request(context=b"", text="自行".encode(), source=b"zh", target=b"en", adapter=b"", seed=0, temperature=0.0, top_p=0.0,
            top_k=0, lengths=None, reserved=0, flags=0):
    lengths = lengths or (len(context), len(text))
    return frame(64, struct.pack("=QIIQffII16s16sII32sII", 9, 1, 0, seed, temperature, top_p, top_k, reserved, source,
                                 target, *lengths, adapter, flags, 0) + context + text)


def result(finish=1, tokens=10, text="译文".encode(), fingerprint=b""):
    return frame(5, struct.pack("=QIIIIII64s", 7, 3, finish, tokens, 5, 0, len(text), fingerprint) + text)


def heartbeat(steps=1, sequence_steps=5, degraded=8, reused=9, preemptions=10):
    return frame(7, struct.pack("=QQQQQIIQQQ", steps, 2, 3, 4, sequence_steps, 6, 7, degraded, reused, preemptions))


FRAMES = {
    "hello": frame(1, struct.pack("=II", 3, 5) + b"0.2.0"),
    "hello other version": frame(1, struct.pack("=I", 77) + b"anything"),
    "hello short": frame(1, b"\2\0"),
    "loading": frame(2, struct.pack("=II", 50, 3) + b"abc"),
    "loading 101": frame(2, struct.pack("=II", 101, 0)),
    "ready": frame(3, struct.pack("=QQIIIIIIIIII", 6, 12, 2, 2048, 64, 1, 2, 3, 1, 1, 2, 0) + b"abbcccdeff"),
    "ready parameters": frame(3, struct.pack("=QQIIIIIIIIII", 1 << 63, 12, 2, 2048, 64, 0, 0, 0, 0, 0, 0, 0)),
    "ready threads": frame(3, struct.pack("=QQIIIIIIIIII", 1, 12, 1 << 31, 2048, 64, 0, 0, 0, 0, 0, 0, 0)),
    "ready lengths wrap": frame(3, struct.pack("=QQIIIIIIIIII", 1, 1, 1, 1, 1, 0x80000000, 0x80000000, 0, 0, 0, 0, 0)),
    "refused": frame(4, struct.pack("=II", 3, 4) + b"oops"),
    "refused for nothing": frame(4, struct.pack("=II", 0, 0)),
    "refused unknown": frame(4, struct.pack("=II", 99, 0)),
    "result": result(),
    "result with fingerprint": result(fingerprint=b"0123456789abcdef" * 4),
    "result with half a fingerprint": result(fingerprint=b"0123456789abcdef"),
    "result with another fingerprint": result(fingerprint=b"0123456789abcdeg" * 4),
    "result finish": result(finish=4),
    "result tokens": result(tokens=1 << 31),
    "result empty": result(text=b""),
    "failure": frame(6, struct.pack("=QIIII", 7, 3, 8, 0, 2) + b"no"),
    "failure none": frame(6, struct.pack("=QIIII", 7, 3, 0, 0, 0)),
    "failure finish": frame(6, struct.pack("=QIIII", 7, 3, 8, 9, 0)),
    "heartbeat": heartbeat(),
    "heartbeat steps": heartbeat(steps=1 << 63),
    "heartbeat sums": heartbeat(sequence_steps=1 << 63),
    "heartbeat degraded": heartbeat(degraded=1 << 63),
    "heartbeat reused": heartbeat(reused=1 << 63),
    "heartbeat preemptions": heartbeat(preemptions=1 << 63),
    "heartbeat long": heartbeat() + b"\0",
    "request": request(),
    "request with context": request(context=b"what came before"),
    "request with adapter": request(adapter=b"legal-2.0_x"),
    "request adapter behind": request(adapter=b"legal\0x"),
    "request adapter name": request(adapter=b"../legal"),
    "request full adapter": request(adapter=b"x" * 32),
    "request draws": request(seed=77, temperature=0.7, top_p=0.6, top_k=20),
    "request draws without limit": request(temperature=1.0, top_p=1.0),
    "request temperature": request(temperature=-1.0, top_p=1.0),
    "request temperature nan": request(temperature=float("nan"), top_p=1.0),
    "request temperature large": request(temperature=101.0, top_p=1.0),
    "request top_p": request(temperature=1.0, top_p=1.5),
    "request top_p nan": request(temperature=1.0, top_p=float("nan")),
    "request top_k": request(temperature=1.0, top_p=1.0, top_k=1 << 31),
    "request draw reserved": request(reserved=1),
    "request streams": request(flags=1),
    "request flags": request(flags=2),
    "request empty": request(text=b""),
    "request no language": request(source=b"", target=b""),
    "request full language": request(source=b"x" * 16),
    "request language behind": request(source=b"zh\0x"),
    "request length": request(lengths=(0, 0xFFFFFFFF)),
    "request lengths wrap": request(lengths=(0x80000000, 0x80000006)),
    "cancel": frame(65, struct.pack("=QII", 9, 1, 0)),
    "cancel long": frame(65, bytes(17)),
    "piece": frame(8, struct.pack("=QII", 7, 3, 3) + "自".encode()),
    "piece empty": frame(8, struct.pack("=QII", 7, 3, 0)),
    "piece short": frame(8, struct.pack("=QII", 7, 3, 4) + b"abc"),
    "unknown type": frame(9, b""),
    "magic": frame(1, b"", magic=1),
    "too long": frame(64, b"", length=0x7FFFFFFF),
    "reserved": frame(64, b"", reserved=1),
    "half": frame(64, bytes(100))[:50],
    "nothing": b"",
}
SEEDS = {label: b"\xff" + data for label, data in FRAMES.items()}
SEEDS["all, byte by byte"] = b"\0" + b"".join(
    FRAMES[name] for name in ("hello", "loading", "ready", "request", "piece", "result", "failure", "cancel", "heartbeat", "refused"))
SEEDS["all at once"] = b"\xff" + SEEDS["all, byte by byte"][1:] * 3
SEEDS["large"] = b"\xff" + result(text=b"x" * 5000) * 2
WORDS = ["HYMT"]
