"""hymt-engine serve: the conversation in frames, as a worker would hold it."""
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
from harness import DEMO, ENGINE, check, demo_cases, finish, run

MAGIC = 0x544D5948
HELLO, LOADING, READY, REFUSED, RESULT, FAILURE, HEARTBEAT, PIECE = range(1, 9)
REQUEST, CANCEL = 64, 65
MODEL_MISSING, LANGUAGE, TOO_LONG, BAD_TEXT, UNFINISHED = 1, 7, 8, 9, 10


def frame(kind, body):
    return struct.pack("=IIII", MAGIC, kind, len(body), 0) + body


def request(generation, slot, source, target, text, max_new=0, adapter="", context="", draw=(0, 0.0, 0.0, 0), stream=False):
    """draw: seed, temperature, top_p, top_k."""
    text = text if isinstance(text, bytes) else text.encode()
    context = context if isinstance(context, bytes) else context.encode()
    return frame(REQUEST, struct.pack("=QIIQffII16s16sII32sII", generation, slot, max_new, *draw, 0, source.encode(),
                                      target.encode(), len(context), len(text), adapter.encode(), int(stream), 0) +
                 context + text)


def cancel(generation, slot):
    return frame(CANCEL, struct.pack("=QII", generation, slot, 0))


class Engine:
    """A running engine and this side of its socket."""

    def __init__(self, model=DEMO, options=()):
        self.socket, theirs = socket.socketpair()
        self.process = subprocess.Popen([ENGINE, "serve", "--model", model, "--fd", str(theirs.fileno()), *options],
                                        pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)
        theirs.close()
        self.buffer = b""
        self.fingerprints = {}                          # of results, where they are not READY's

    def read(self, timeout=30):
        """The next frame (type, body), or None at the end of the conversation."""
        end = time.monotonic() + timeout
        while True:
            if len(self.buffer) >= 16:
                magic, kind, length, reserved = struct.unpack_from("=IIII", self.buffer)
                assert magic == MAGIC and reserved == 0
                if len(self.buffer) >= 16 + length:
                    body = self.buffer[16:16 + length]
                    self.buffer = self.buffer[16 + length:]
                    return kind, body
            if not select.select([self.socket], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError
            try:
                got = self.socket.recv(1 << 20)
            except ConnectionResetError:
                got = b""
            if not got:
                return None
            self.buffer += got

    def start(self):
        """Skip to READY; returns its body."""
        while True:
            kind, body = self.read()
            if kind == READY:
                return body

    def answers(self, count, timeout=60):
        """`count` results and failures: {(generation, slot): (kind, code or finish, text)}; counts doubles, too."""
        found = {}
        doubles = 0
        while len(found) < count:
            kind, body = self.read(timeout)
            if kind == RESULT:
                generation, slot, finish_, _, _, _, length = struct.unpack_from("=QIIIIII", body)
                text = body[96:]
                self.fingerprints[(generation, slot)] = body[32:96].rstrip(b"\0").decode()
                assert len(text) == length
                key, value = (generation, slot), (RESULT, finish_, text.decode())
            elif kind == FAILURE:
                generation, slot, failure, _, length = struct.unpack_from("=QIIII", body)
                text = body[24:]
                assert len(text) == length
                key, value = (generation, slot), (FAILURE, failure, text.decode())
            else:
                assert kind == HEARTBEAT
                continue
            doubles += key in found
            found[key] = value
        return found, doubles

    def ends(self, timeout=1.0):
        """Exit code if the process ends in time, else None."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def close(self):
        self.socket.close()
        code = self.ends(5)
        if code is None:
            self.process.kill()
            self.process.wait()
        self.process.stderr.close()
        return code


def check_handshake():
    engine = Engine(options=["--threads", "2"])
    kind, body = engine.read()
    version, length = struct.unpack_from("=II", body)
    check("serve: HELLO comes first", kind == HELLO and version == 3 and len(body) == 8 + length)
    percents = []
    while True:
        kind, body = engine.read()
        if kind != LOADING:
            break
        percents.append(struct.unpack_from("=I", body)[0])
    check("serve: LOADING, rising", percents != [] and percents == sorted(percents) and percents[-1] <= 100,
          str(percents))
    fields = struct.unpack_from("=QQIIIIIIIIII", body)
    names = body[56:].decode()
    lengths = fields[5:11]
    parts = []
    for length in lengths:
        parts.append(names[:length])
        names = names[length:]
    check("serve: READY tells the model", kind == READY and names == "" and parts[0] == "hymt-demo" and
          parts[1] == "hy-mt1.5" and len(parts[2]) == 64 and parts[3] == "exact" and parts[4].startswith("cpu") and
          parts[5] == "en zh de fr es ja" and fields[2] == 2 and fields[3] == 2048 and 16 <= fields[4] <= 256,
          f"{kind} {fields} {parts}")
    with open(f"/proc/{engine.process.pid}/status", encoding="ascii") as file:
        status = file.read()
    with open(f"/proc/{engine.process.pid}/oom_score_adj", encoding="ascii") as file:
        score = int(file.read())
    with open(f"/proc/{engine.process.pid}/limits", encoding="ascii") as file:
        core = next(line for line in file if line.startswith("Max core")).split()
    check("serve: no new privileges, no core file, raised OOM score",
          "NoNewPrivs:\t1" in status and core[4:6] == ["0", "0"] and score >= 500, f"{core} {score}")
    engine.process.send_signal(signal.SIGINT)
    case = plain_cases()[0]
    engine.socket.sendall(request(7, 3, case["from"], case["to"], case["source"]))
    found, _ = engine.answers(1)
    check("serve: SIGINT is ignored, a request is answered", found == {(7, 3): (RESULT, 1, case["output"])}, str(found))
    check("serve: the end of the socket is the end", engine.close() == 0)


def plain_cases():
    return [case for case in demo_cases() if case["prompt"].endswith("\n\n" + case["source"]) and
            case["prompt"].count("\n\n") == 1]


def check_requests():
    engine = Engine()
    engine.start()
    cases = plain_cases()
    data = b"".join(request(1000 + i, i, case["from"], case["to"], case["source"]) for i, case in enumerate(cases))
    engine.socket.sendall(data)
    found, doubles = engine.answers(len(cases))
    wrong = [i for i, case in enumerate(cases) if found.get((1000 + i, i)) != (RESULT, 1, case["output"])]
    check(f"serve: {len(cases)} requests at once, more than the credits", not wrong and not doubles,
          f"{wrong[:5]} {doubles}")

    bad = {
        1: (request(1, 1, "en", "ko", "Basketball"), LANGUAGE),
        2: (request(1, 2, "zh-CN", "en", "x"), LANGUAGE),
        3: (request(1, 3, "en", "zh", "word " * 5000), TOO_LONG),
        4: (request(1, 4, "en", "zh", b"\xff\xfe"), BAD_TEXT),
        5: (request(1, 5, "en", "zh", "woman in manual wheelchair: light skin tone", 2), UNFINISHED),
    }
    engine.socket.sendall(b"".join(data for data, _ in bad.values()))
    found, _ = engine.answers(len(bad))
    for slot, (_, code) in bad.items():
        check(f"serve: failure {code}", found[(1, slot)][:2] == (FAILURE, code), str(found[(1, slot)]))
    check("serve: an unknown language lists the known ones", "en zh de fr es ja" in found[(1, 1)][2])
    engine.close()


def check_context():
    """A context is part of the prompt."""
    engine = Engine()
    engine.start()
    engine.socket.sendall(request(1, 0, "en", "zh", "Grip type") +
                          request(1, 1, "en", "zh", "Grip type", context="Tennis rackets and their handles") +
                          request(1, 2, "en", "zh", "Grip type", context=b"\xff") +
                          request(1, 3, "en", "zh", "Grip type", context="word " * 5000))
    tokens = {}
    codes = {}
    while len(tokens) + len(codes) < 4:
        kind, body = engine.read()
        if kind == RESULT:
            tokens[struct.unpack_from("=QI", body)[1]] = struct.unpack_from("=QIII", body)[3]
        elif kind == FAILURE:
            codes[struct.unpack_from("=QI", body)[1]] = struct.unpack_from("=QII", body)[2]
    check("serve: a context lengthens the prompt", tokens[1] > tokens[0] + 3, f"{tokens} {codes}")
    check("serve: contexts that cannot be asked with", codes == {2: BAD_TEXT, 3: TOO_LONG}, str(codes))
    engine.close()


def check_long_texts():
    """Texts beyond all bounds are refused without being encoded; who waits behind them hardly notices."""
    engine = Engine()
    engine.start()
    case = plain_cases()[0]
    engine.socket.settimeout(60)
    start = time.monotonic()
    for slot in range(4):
        engine.socket.sendall(request(1, slot, "en", "zh", "word " * 1600000))
    engine.socket.sendall(request(1, 4, case["from"], case["to"], case["source"]))
    found, _ = engine.answers(5)
    check("serve: texts of 8 MB are refused in little time",
          all(found[(1, slot)][:2] == (FAILURE, TOO_LONG) for slot in range(4)) and
          found[(1, 4)] == (RESULT, 1, case["output"]) and time.monotonic() - start < 10,
          f"{time.monotonic() - start} {found}")
    engine.close()


def check_cancel():
    engine = Engine()
    engine.start()
    case = plain_cases()[0]
    ask = [request(i, i, case["from"], case["to"], case["source"]) for i in range(400)]
    drop = [cancel(i, i) for i in range(400) if i % 2]
    wrong_generation = [cancel(i + 1, i) for i in range(0, 400, 2)]
    engine.socket.sendall(b"".join(ask) + b"".join(drop) + b"".join(wrong_generation) + cancel(9999, 9999))
    engine.socket.sendall(request(5000, 0, case["from"], case["to"], case["source"]))
    kept = {(i, i) for i in range(0, 400, 2)} | {(5000, 0)}
    found = {}
    try:
        while True:
            got, _ = engine.answers(1, 1)
            assert not set(got) & set(found)
            found.update(got)
    except TimeoutError:
        pass
    # An answer that was ready before its cancellation was read is sent all the same.
    extra = set(found) - kept
    check("serve: cancelled requests get no answer, all others do", kept <= set(found) and len(extra) < 40,
          f"{len(extra)} extra, {len(kept - set(found))} missing")
    engine.close()


def check_end():
    case = plain_cases()[0]
    one = request(1, 1, case["from"], case["to"], case["source"])
    garbage = {
        "garbage": b"GET / HTTP/1.0\r\n\r\n",
        "an engine's own frame": frame(HEARTBEAT, bytes(72)),
        "a length beyond all bounds": struct.pack("=IIII", MAGIC, REQUEST, 0x7FFFFFFF, 0),
        "a body shorter than its fields say": struct.pack("=IIII", MAGIC, REQUEST, len(one) - 17, 0) + one[16:-1],
        "an unterminated language": frame(REQUEST, struct.pack("=QIIQffII16s16sII", 1, 1, 0, 0, 0, 0, 0, 0, b"x" * 16,
                                                               b"zh", 0, 0)),
        "a temperature that is no number": request(1, 1, case["from"], case["to"], "x", draw=(0, float("nan"), 1.0, 0)),
    }
    for name, data in garbage.items():
        engine = Engine()
        engine.start()
        engine.socket.sendall(data)
        check(f"serve: {name} ends the conversation", engine.ends() == 1)
        engine.close()
    engine = Engine()
    engine.start()
    engine.socket.sendall(one[:30])
    engine.socket.shutdown(socket.SHUT_WR)
    check("serve: half a frame and the end", engine.ends() == 0)
    engine.close()
    engine = Engine()
    engine.start()
    engine.socket.sendall(one * 50)
    engine.socket.close()
    check("serve: the worker goes while requests run", engine.ends() == 0)
    engine.close()
    for number, code in ((signal.SIGTERM, 0), (signal.SIGQUIT, 2)):
        engine = Engine()
        engine.start()
        engine.socket.sendall(one * 50)
        engine.process.send_signal(number)
        check(f"serve: {number.name} ends it at once", engine.ends() == code)
        engine.close()


def check_parent_death():
    """The engine dies with its parent even where the socket stays open in another process."""
    ours, theirs = socket.socketpair()
    parent = os.fork()
    if parent == 0:
        ours.close()
        child = subprocess.Popen([ENGINE, "serve", "--model", DEMO, "--fd", str(theirs.fileno())],
                                 pass_fds=[theirs.fileno()])
        theirs.close()
        child.wait()
        os._exit(0)
    theirs.close()
    ours.settimeout(5)
    got = ours.recv(1 << 16)                            # HELLO: it runs
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    start = time.monotonic()
    try:
        while ours.recv(1 << 16):
            pass
        ended = True
    except ConnectionResetError:
        ended = True
    except TimeoutError:
        ended = False
    check("serve: it dies with its parent", got[:4] == b"HYMT" and ended and time.monotonic() - start < 1)
    ours.close()


def check_refused():
    engine = Engine(model="/nonexistent")
    kinds = []
    while (got := engine.read()) is not None:
        kinds.append(got)
    kind, body = kinds[-1]
    failure, length = struct.unpack_from("=II", body)
    check("serve: a missing model is refused", kinds[0][0] == HELLO and kind == REFUSED and
          failure == MODEL_MISSING and len(body) == 8 + length and engine.ends() == 1, str(kinds))
    engine.close()


def check_slow_reader():
    """
    A worker that sends more than the engine keeps, and does not read: the engine takes the rest when some are answered,
    and loses none. Cancellations behind them spare the computing of most.
    """
    engine = Engine()
    engine.start()
    case = plain_cases()[0]
    count, kept = 4400, 500
    engine.socket.setblocking(False)
    data = b"".join([request(i, i, case["from"], case["to"], case["source"]) for i in range(count)] +
                    [cancel(i, i) for i in range(kept, count)])
    end = time.monotonic() + 120
    while data and time.monotonic() < end:
        if select.select([], [engine.socket], [], 1)[1]:
            data = data[engine.socket.send(data):]
    time.sleep(1)
    engine.socket.setblocking(True)
    found = {}
    while not data and not set(found) >= {(i, i) for i in range(kept)}:
        got, _ = engine.answers(1)
        assert not set(got) & set(found)
        found.update(got)
    check(f"serve: {count} requests and {count - kept} cancellations from a worker that does not read",
          not data and len(found) < count and all(value == (RESULT, 1, case["output"]) for value in found.values()),
          f"{len(data)} bytes not taken, {len(found)} answers")
    engine.close()


def check_drawing():
    """Drawn answers depend on the seed, and on nothing else; those that are not drawn do not change beside them."""
    engine = Engine()
    engine.start()
    case = plain_cases()[0]
    draws = [(seed, 1.5, 1.0, 0) for seed in range(8)] * 2 + [(5, 0.0, 0.0, 0), (9, 1.5, 1.0, 1)]
    engine.socket.sendall(b"".join(request(i, i, case["from"], case["to"], case["source"], draw=draw)
                                   for i, draw in enumerate(draws)))
    found, _ = engine.answers(len(draws))
    answers = [found[i, i] for i in range(len(draws))]
    check("serve: drawn answers depend on the seed alone", answers[:8] == answers[8:16] and len(set(answers[:8])) > 4 and
          all(answer == (RESULT, 1, case["output"]) for answer in answers[16:]), str(answers))
    engine.close()


def preempting():
    """Options with so little memory for keys and values that requests lose theirs to older ones."""
    options = ["--max-context", "512"]
    code, out, _ = run(["inspect", "--model", DEMO, *options])
    lines = dict(line.split(": ", 1) for line in out.decode().splitlines() if ": " in line)
    whole = int(lines["memory in all"].split()[0])
    size, tokens = lines["keys and values"].split(" bytes, ")
    each = int(size) // int(tokens.split()[0])
    return options + ["--memory", str(whole - int(size) + each * 640)]


def check_streams():
    """Pieces of answers add up to them, byte by byte, whatever the language and whoever else is answered."""
    cases = plain_cases()
    # Drawn answers have halves of characters, which stand as U+FFFD once it is sure that no other half follows.
    wild = [case for case in cases if case["to"] in ("zh", "ja")][:60]
    for name, options in (("", []), (", with preemption", preempting())):
        engine = Engine(options=options)
        engine.start()
        asked = [(case, (0, 0.0, 0.0, 0)) for case in cases] + [(case, (seed, 2.0, 1.0, 0)) for seed, case in enumerate(wild)]
        if options:
            asked = asked[::3] + [(case, (seed, 2.0, 1.0, 0)) for seed in range(3, 6) for case in wild]
        engine.socket.sendall(b"".join(request(5, i, case["from"], case["to"], case["source"], draw=draw, stream=i % 5 != 4)
                                       for i, (case, draw) in enumerate(asked)))
        pieces = {}
        answers = {}
        problem = ""
        while len(answers) < len(asked):
            kind, body = engine.read(60)
            if kind == HEARTBEAT:
                preemptions = struct.unpack("=QQQQQIIQQQ", body)[9]
                continue
            generation, slot = struct.unpack_from("=QI", body)
            if kind == PIECE:
                length = struct.unpack_from("=I", body, 12)[0]
                if slot in answers or slot % 5 == 4 or length == 0 or length != len(body) - 16 or generation != 5:
                    problem = problem or f"a piece out of place, for {slot}"
                pieces.setdefault(slot, []).append(body[16:].decode())      # whole characters
            elif kind == RESULT:
                answers[slot] = body[96:].decode()
            else:
                answers[slot] = None
        engine.close()
        for slot, text in answers.items():
            case, draw = asked[slot]
            if text is not None and draw[1] == 0 and text != case["output"]:
                problem = problem or f"{slot} has another answer"
            if text is not None and not text.startswith("".join(pieces.get(slot, []))):
                problem = problem or f"pieces of {slot} do not fit: {pieces[slot]} {text}"
        several = sum(1 for slot, text in answers.items() if text is not None and len(pieces.get(slot, [])) > 1)
        most = sum(1 for slot, text in answers.items() if slot % 5 != 4 and text is not None and len(text) > 12 and
                   len("".join(pieces.get(slot, []))) < len(text) / 2)
        halves = sum(1 for text in answers.values() if text is not None and "\ufffd" in text)
        check(f"serve: the pieces of {len(pieces)} answers are their beginnings{name}",
              not problem and several > len(asked) / 3 and most == 0 and halves > 5 and (not options or preemptions > 3),
              f"{problem} {several} of {len(asked)}, {most} late, {halves} with halves, {preemptions} preemptions")


def wait_for_idleness(pid):
    """Until a process has used no processor time for a while."""
    used = -1
    while True:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            now = sum(int(word) for word in file.read().rsplit(")", 1)[1].split()[11:13])
        if now == used:
            return
        used = now
        time.sleep(0.5)


def check_streams_of_a_slow_reader():
    """Who does not read gets no more than so many pieces, and the answers; who cancels gets none any more."""
    engine = Engine(options=["--threads", "1"])
    engine.start()
    engine.read()                                       # the heartbeat that comes with READY
    case = next(case for case in plain_cases() if len(case["output"]) > 20)
    count = 1500
    engine.socket.setblocking(False)
    data = b"".join(request(1, i, case["from"], case["to"], case["source"], stream=True) for i in range(count))
    end = time.monotonic() + 120
    while data and time.monotonic() < end:
        if select.select([], [engine.socket], [], 1)[1]:
            data = data[engine.socket.send(data):]
    engine.socket.setblocking(True)
    wait_for_idleness(engine.process.pid)
    pieces, results, wrong = 0, 0, ""
    while results < count:
        kind, body = engine.read(60)
        pieces += kind == PIECE
        results += kind == RESULT
        tokens = struct.unpack_from("=I", body, 20)[0] if kind == RESULT else 0
        if kind == RESULT and body[96:].decode() != case["output"]:
            wrong = "another answer"
    check(f"serve: {pieces} pieces of {count} answers for a worker that was slow",
          not data and not wrong and pieces < count * (tokens - 2) / 2, f"{len(data)} {wrong} {tokens}")
    engine.socket.sendall(request(2, 7, "en", "zh", "word", 400, draw=(1, 100.0, 1.0, 0), stream=True))
    while engine.read()[0] != PIECE:
        pass
    engine.socket.sendall(cancel(2, 7) + request(3, 7, case["from"], case["to"], case["source"]))
    late = 0
    while True:
        kind, body = engine.read()
        if kind == RESULT:
            break
        late += kind == PIECE
    check("serve: a stream that is cancelled ends", struct.unpack_from("=Q", body)[0] == 3 and late < 100, str(late))
    engine.close()


def check_heartbeat():
    engine = Engine()
    engine.start()
    engine.read()                                       # the one that comes with READY
    case = plain_cases()[0]

    def ask(number):
        engine.socket.sendall(request(number % 64, number, case["from"], case["to"], case["source"]))

    # As many as it takes for three of them, and each answer is followed by another request.
    steps = []
    asked = 64
    for number in range(asked):
        ask(number)
    end = time.monotonic() + 60
    while len(steps) < 3 and time.monotonic() < end:
        kind, body = engine.read()
        if kind == HEARTBEAT:
            steps.append(struct.unpack("=QQQQQIIQQQ", body)[0])
        else:
            ask(asked)
            asked += 1
    check("serve: heartbeats while requests run, their step counter rising",
          len(steps) == 3 and steps[0] < steps[1] < steps[2], f"{steps} after {asked} requests")
    answered = asked - 64
    while answered < asked:
        answered += engine.read()[0] != HEARTBEAT
    start = time.monotonic()
    kind, body = engine.read(8)
    stats = struct.unpack("=QQQQQIIQQQ", body)
    check("serve: a heartbeat when idle", kind == HEARTBEAT and time.monotonic() - start < 6 and
          stats[5:7] == (0, 0) and stats[8] > 0 and stats[4] > stats[0] > 0 and stats[1] >= stats[4], str(stats))
    engine.close()


if __name__ == "__main__":
    check_handshake()
    check_requests()
    check_context()
    check_long_texts()
    check_cancel()
    check_end()
    check_parent_death()
    check_refused()
    check_drawing()
    check_streams()
    if os.environ.get("HYMT_SANITIZED") != "1":         # thousands of answers, and a clock
        check_slow_reader()
        check_streams_of_a_slow_reader()
        check_heartbeat()
    finish()
