#!/usr/bin/env python3
"""A large body keeps its shard from nobody: millions of JSON numbers are read, converted and printed in slices, raw bytes
come and go in blocks, and a second connection of the same shard has its answers in between.

    engine_slices.py DAEMON TURNS [ROUNDS NUMBERS]     TURNS: libturns.so, preloaded into the daemon

The longest turn of any loop of the daemon is taken in CPU time, which nothing else on the machine makes longer: in one go,
2,000,000 numbers take 25 ms or more. Printed beside it, and not judged: the longest gap between two answers to a client that
asks without a pause.
"""
import gzip
import json
import multiprocessing
import os
import sys
import tempfile
import time
from array import array

from daemon import SKIP, Daemon, daemon_path, read_answer, row_request, seed

ROUNDS, NUMBERS = 1, 2000000
TURN_MS = 5  # measured: 0.8 at most; room for a slow machine
# A virtual machine's CPU time has gaps of its own: 19 and 35 ms, once each in some sixty runs on a busy one. A turn that does too
# much does so each time.
ATTEMPTS = 8
PING = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"  # nothing of it waits for the device


def post(body, *fields):
    lines = ["POST /v2/models/reduce/infer HTTP/1.1", "Host: localhost", "Content-Length: %d" % len(body), *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def document(values, datatype_first):
    """The maximum over an axis of one, which costs next to nothing: as many numbers come back."""
    parts = ['"datatype":"FP32"', '"data":' + json.dumps(values)]
    return ('{"parameters":{"op":"max","axis":1},"inputs":[{"name":"INPUT0","shape":[%d,1],%s}]}'
            % (len(values), ",".join(parts if datatype_first else parts[::-1]))).encode()


def raw(body):
    """The same with plain bytes, and what comes back: the same bytes."""
    head, _ = row_request([])
    return head.replace(b"shape=0,", b"shape=%d," % (len(body) // 4)).replace(b"Length: 0", b"Length: %d" % len(body)) + body, body


def forms(generator, count):
    values = [round(generator.uniform(-1, 1), 8) for _ in range(count)]
    few = [float(i % 7) for i in range(count)]
    return {
        "nothing": (None, None),
        "JSON": (post(document(values, True)), values),
        "JSON, datatype last": (post(document(values, False)), values),  # kept as text, and converted at the end
        "raw, 32 MiB": raw(array("f", range(1 << 23)).tobytes()),
        "JSON, gzip": (post(gzip.compress(document(few, True), 1), "Content-Encoding: gzip"), few),
    }


def send_large(daemon, request, values, rounds, over):
    """In a process of its own: neither waits for the other's interpreter. over: 1, or -1 where an answer is wrong."""
    def wrong(body):
        return body != values if isinstance(values, bytes) else array("f", json.loads(body)["outputs"][0]["data"]) != expected

    expected = None if isinstance(values, bytes) else array("f", values)
    for _ in range(rounds):
        with daemon.dial(60) as s:
            s.sendall(request)
            answer = read_answer(s)
            if answer is None or answer[0] != 200 or wrong(answer[2]):
                over.value = -1
                return
    over.value = 1


def longest_gap(daemon, request, values, rounds):
    """Milliseconds between two answers, and how many came, while another client's large requests are served."""
    over = multiprocessing.Value("i", 0)
    other = multiprocessing.Process(target=send_large, args=(daemon, request, values, rounds, over))
    gap, count = 0.0, 0
    with daemon.dial() as s:
        if request:
            other.start()
        begun = last = time.monotonic()
        while not over.value if request else last - begun < 0.5:
            s.sendall(PING)
            assert read_answer(s)[0] == 200
            now = time.monotonic()
            gap, last, count = max(gap, now - last), now, count + 1
    if request:
        other.join()
        assert over.value == 1, "a large request has no answer, or a wrong one"
    return gap * 1e3, count


def longest_turn(turns, request, values, rounds):
    """Milliseconds of CPU; then longest_gap's."""
    with tempfile.NamedTemporaryFile() as told:
        with Daemon(daemon_path(), "--backend", "cpu", "--pinned-bytes", "64M", "--threads", "1",
                    environment={"LD_PRELOAD": turns, "KS_TURNS": told.name}) as daemon:
            gap = longest_gap(daemon, request, values, rounds)
            assert daemon.stop() == 0
        words = told.read().split()
        assert words[:2] == [b"longest", b"turn"], words
        return int(words[2]) / 1e6, *gap


def main():
    if len(sys.argv) < 3 or not os.access(sys.argv[2], os.R_OK):
        sys.exit(SKIP)
    rounds, numbers = (int(sys.argv[3]), int(sys.argv[4])) if len(sys.argv) > 4 else (ROUNDS, NUMBERS)
    bad = []
    print("%d requests of %d numbers, one shard; ms" % (rounds, numbers))
    print("%-22s %16s %12s %10s" % ("beside", "longest turn CPU", "longest gap", "answers"))
    for name, large in forms(seed(), numbers).items():
        for _ in range(ATTEMPTS):
            turn, gap, count = longest_turn(os.path.abspath(sys.argv[2]), *large, rounds)
            print("%-22s %16.2f %12.2f %10d" % (name, turn, gap, count))
            if 0 < turn < TURN_MS:
                break
        else:
            bad.append(name)
    if bad:
        print("a turn of %d ms or more beside:" % TURN_MS, ", ".join(bad))
    sys.exit(1 if bad else 0)


main()
