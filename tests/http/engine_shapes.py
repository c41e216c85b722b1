#!/usr/bin/env python3
"""Requests that all differ in shape: the daemon's memory stays within what its options allow, a plan in use stays as quick as it was,
a question for a plan keeps none, and where the memory of the process is limited it goes on.

    engine_shapes.py KERNSERVE [--count N] [--presets]

--count    so many distinct specs over all operations, in JSON, JSON + binary, OIP raw, plain raw and npy, and questions for
           plans (20000), with a plan cache so small that it is full early; then twice as many with the options as they are
           preset, which take some 32,000 to fill.
--presets  all of --count with the options as they are preset.
"""
import argparse
import json
import os
import re
import statistics
import struct
import sys
import time
import types

from daemon import SKIP, Daemon, check, comes_to, measured, request, wrongs
from files import write_npy

DEPTH = 16  # requests under way on the connection
SMALL = ("--plan-cache", "2M", "--max-plans", "1000")
HOT = request("POST", "/v2/models/softmax/infer?shape=64,64&datatype=FP32", (), struct.pack("<4096f", *([1.0] * 4096)))
ONES = {"FP32": struct.pack("<65536f", *([1.0] * 65536)), "FP64": struct.pack("<65536d", *([1.0] * 65536))}
SIZE = {"FP32": 4, "FP64": 8}
VECTORS = 4096


def digits(number, bases):
    """number in mixed radix; what is left over comes last."""
    out = []
    for base in bases:
        out.append(number % base)
        number //= base
    return out + [number]


def product_of(dims):
    count = 1
    for d in dims:
        count *= d
    return count


def post(target, body, *headers):
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n%s" % (
        target.encode(), len(body), b"".join(b"%s: %s\r\n" % h for h in headers), body)


# Each kind: the request of its number j, and what the first and last number of the answer's data must be. No two kinds and
# no two numbers share a spec.

def product_shape(j):
    m, n, k, _ = digits(j, (48, 48, 60))
    return m + 5, n + 5, k + 1


def matmul_binary(j):
    m, n, k = product_shape(j)
    ones = ONES["FP32"]
    head = ('{"inputs":[{"name":"INPUT0","shape":[%d,%d],"datatype":"FP32","parameters":{"binary_data_size":%d}},'
            '{"name":"INPUT1","shape":[%d,%d],"datatype":"FP32","parameters":{"binary_data_size":%d}}],'
            '"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}' % (m, k, 4 * m * k, k, n, 4 * k * n)).encode()
    return post("/v2/models/matmul/infer", head + ones[:4 * (m * k + k * n)],
                (b"Inference-Header-Content-Length", b"%d" % len(head))), "FP32", k, m * n


def matmul_raw(j):
    m, n, k = product_shape(j)
    return post("/v2/models/matmul_tb/infer?shape=%d,%d&shape=%d,%d&datatype=FP32" % (m, k, n, k),
                ONES["FP32"][:4 * k * (m + n)]), "FP32", k, m * n


def softmax_raw(j):
    *dims, axis, double, _ = digits(j, [3] * 8 + [8, 2])
    dims = [d + 1 for d in dims]
    dtype = ("FP32", "FP64")[double]
    count = product_of(dims)
    return post("/v2/models/softmax/infer?shape=%s&datatype=%s&axis=%d" % (",".join(map(str, dims)), dtype, axis),
                ONES[dtype][:SIZE[dtype] * count]), dtype, 1 / dims[axis], count


def softmax_npy(j):
    *dims, axis, double, _ = digits(j, [4] * 7 + [7, 2])
    dims = [d + 1 for d in dims]
    dtype = ("FP32", "FP64")[double]
    count = product_of(dims)
    body = write_npy(types.SimpleNamespace(datatype=dtype, shape=dims, data=ONES[dtype][:SIZE[dtype] * count]))
    return post("/v2/models/softmax/infer?axis=%d" % axis, body, (b"Content-Type", b"application/x-npy")), None, None, None


def reduced(j, rank, side):
    *dims, axis, double, _ = digits(j, [side] * rank + [rank, 2])
    dims = [d + 1 for d in dims]
    return dims, axis, ("FP32", "FP64")[double]


def reduce_json(j):
    dims, axis, dtype = reduced(j, 8, 3)
    count = product_of(dims)
    body = '{"inputs":[{"name":"INPUT0","shape":%s,"datatype":"%s","data":[%s]}],"parameters":{"axis":%d}}' % (
        dims, dtype, ",".join(["1"] * count), axis)
    return post("/v2/models/reduce_max/infer", body.encode()), None, None, None


def reduce_raw(j):
    dims, axis, dtype = reduced(j, 8, 3)
    count = product_of(dims)
    return post("/v2/models/reduce_sum/infer?shape=%s&datatype=%s&axis=%d" % (",".join(map(str, dims)), dtype, axis),
                ONES[dtype][:SIZE[dtype] * count]), dtype, dims[axis], count // dims[axis]


def vector_oip_raw(j):
    """The length is all that such a request can say; past VECTORS of them a parameter differs."""
    length, scale = j % VECTORS + 1, 1 + j // VECTORS
    target = "/v2/models/softmax_vec/infer" + ("?scale=%d" % scale if scale > 1 else "")
    return post(target, ONES["FP32"][:4 * length], (b"Inference-Header-Content-Length", b"0")), None, None, None


def question(j):
    m, n, k = product_shape(j)
    return ("GET /v2/models/matmul/plan?shape=%d,%d&shape=%d,%d&datatype=FP32 HTTP/1.1\r\nHost: localhost\r\n\r\n" % (
        m + 60, k, k, n)).encode(), None, None, None


KINDS = (matmul_binary, matmul_raw, softmax_raw, softmax_npy, reduce_json, reduce_raw, vector_oip_raw, question)


class Reader:
    """Answers of requests that were sent one behind the other."""

    def __init__(self, socket):
        self.socket, self.rest, self.at = socket, b"", 0

    def more(self):
        got = self.socket.recv(1 << 20)
        if not got:
            raise EOFError
        self.rest, self.at = self.rest[self.at:] + got, 0

    def answer(self):
        while True:
            end = self.rest.find(b"\r\n\r\n", self.at)
            if end >= 0:
                break
            self.more()
        head = self.rest[self.at:end].lower()
        length = int(re.search(rb"\r\ncontent-length: (\d+)", head).group(1))
        size = end + 4 - self.at + length
        while len(self.rest) < self.at + size:
            self.more()
        body = self.rest[self.at + size - length:self.at + size]
        self.at += size
        return int(head[9:12]), head, body


def right(body, head, dtype, value, count):
    found = re.search(rb"inference-header-content-length: (\d+)", head)
    data = body[int(found.group(1)) if found else 0:]
    if len(data) != count * SIZE[dtype]:
        return False
    got = struct.unpack("<%d%s" % (count, "f" if dtype == "FP32" else "d"), data)
    return all(abs(g - value) <= 1e-6 * value for g in (got[0], got[-1], min(got), max(got)))


def storm(connection, reader, first, last, seen):
    """Specs [first, last). Every answer is looked at, the numbers of one in eight."""
    made = [KINDS[i % len(KINDS)](i // len(KINDS)) for i in range(first, last)]
    connection.sendall(b"".join(m[0] for m in made))
    for i, (_, dtype, value, count) in zip(range(first, last), made):
        status, head, body = reader.answer()
        seen[status] = seen.get(status, 0) + 1
        if status != 200:
            seen.setdefault("first", body[:200])
        elif dtype and i // len(KINDS) % 4 == 0:
            check(right(body, head, dtype, value, count), "spec %d: not the right numbers" % i)


def hot_us(connection, reader, rounds):
    times = []
    for _ in range(rounds):
        begun = time.perf_counter_ns()
        connection.sendall(HOT)
        status, _, _ = reader.answer()
        times.append((time.perf_counter_ns() - begun) / 1e3)
        check(status == 200, "the hot plan", status)
    return times


def hot_pair(pairs, rounds):
    """Of several daemons in turns, each's times."""
    turns = [[hot_us(*pair, 1)[0] for pair in pairs] for _ in range(rounds)]
    return list(zip(*turns))


def resident_kib(daemon):
    with open("/proc/%d/status" % daemon.process.pid, encoding="ascii") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))


def figure(daemon, name):
    return sum(float(line.split()[-1]) for line in daemon.metrics().splitlines() if line.startswith(name))


def many_shapes(path, specs, presets):
    threads = 2
    options = [] if presets else list(SMALL)
    daemon = Daemon(path, "--backend", "cpu", "--threads", str(threads), *options)
    measured(daemon)
    plan_bytes, plans = (64 << 20, 16384) if presets else (2 << 20, 1000)
    storms = [daemon.dial() for _ in range(threads)]  # one on each shard
    readers = [Reader(s) for s in storms]
    quiet = Daemon(path, "--backend", "cpu", "--threads", str(threads), *options)  # what the machine does besides slows it as well
    measured(quiet)
    pairs = [(s, Reader(s)) for s in (daemon.dial(), quiet.dial())]
    hot_pair(pairs, 200)
    base = resident_kib(daemon)
    seen, most, during, begun = {}, base, ([], []), time.monotonic()
    for first in range(0, specs, DEPTH):
        turn = first // DEPTH % threads
        storm(storms[turn], readers[turn], first, min(first + DEPTH, specs), seen)
        for times, more in zip(during, hot_pair(pairs, 1)):
            times += more
        if first % (64 * DEPTH) == 0:
            most = max(most, resident_kib(daemon))
    took = time.monotonic() - begun
    after = hot_pair(pairs, 1000)
    most = max(most, resident_kib(daemon))
    allowed = base + threads * plan_bytes // 1024 + 8192
    held, bytes_held = figure(daemon, "kernserve_graph_cache_entries"), figure(daemon, "kernserve_graph_cache_bytes")
    check(list(seen) == [200], "every answer is 200", seen)
    check(most <= allowed, "resident KiB: at start %d, at most %d; the options allow %d" % (base, most, allowed))
    check(held <= threads * plans and bytes_held <= threads * plan_bytes, "plans held", held, bytes_held)
    check(bytes_held >= 0.95 * threads * plan_bytes or held >= 0.95 * threads * plans, "the caches are full", held, bytes_held)
    us = {"among": [statistics.median(times) for times in during], "after": [statistics.median(times) for times in after]}
    for when, (busy, idle) in us.items():
        check(busy <= 1.5 * idle + 20, "p50 of the hot plan %s them: %.1f us, of a daemon without them %.1f us" % (when, busy, idle))
    check(daemon.process.poll() is None and daemon.stop() == 0, "the daemon ends well")
    check(quiet.stop() == 0, "the quiet one ends well")
    reading = {"specs": specs, "seconds": round(took, 1), "answers": seen, "resident_kib": {"start": base, "most": most,
               "allowed": allowed}, "plans_held": held, "plan_bytes_held": bytes_held,
               "hot_p50_us": {when: [round(t, 1) for t in times] for when, times in us.items()}}
    print(json.dumps(reading))


def questions_keep_nothing(path):
    """As many as an earlier version needed for hundreds of MiB."""
    daemon = Daemon(path, "--backend", "cpu", "--threads", "1")
    measured(daemon)
    connection = daemon.dial()
    reader = Reader(connection)
    connection.sendall(question(0)[0])  # the first of a datatype has a product measured, once, by the second listener's thread
    check(reader.answer()[0] == 200 and comes_to(lambda: "\nkernserve_ceiling_flops_per_second{" in daemon.metrics(), True), "no product was measured")
    held, base = figure(daemon, "kernserve_graph_cache_entries"), resident_kib(daemon)
    for first in range(0, 4000, DEPTH):
        connection.sendall(b"".join(question(j)[0] for j in range(first, first + DEPTH)))
        for _ in range(DEPTH):
            status, _, body = reader.answer()
            check(status == 200 and b'"kernel":"' in body, status, body[:100])
    check(figure(daemon, "kernserve_graph_cache_entries") == held, "a question left a plan in the cache")
    check(resident_kib(daemon) <= base + 2048, "4000 questions took memory", base, resident_kib(daemon))
    check(daemon.stop() == 0, "the daemon ends well")


def limited(kib):
    return ("bash", "-c", 'ulimit -v %d; exec "$0" "$@"' % kib)


def start_within(path, kib):
    """A daemon whose address space ends at so many KiB; None: it said why not, in one line, and left with 71."""
    daemon = Daemon(path, "--backend", "cpu", "--threads", "1", "--pinned-bytes", "16M", under=limited(kib), must_start=False)
    if daemon.ready_within(20):
        return daemon
    code, said = daemon.wait(20), daemon.said()
    check((code == 71 or code == 78 and "memory:" in said) and len(said.splitlines()) == 1, "a limit of %d KiB: exit %d" % (kib, code), said)
    return None


def serve_within(daemon, words):
    """Products of ever new shapes. The library ends a connection for which it finds no memory; another one goes on."""
    seen = {}
    for first in range(0, 1500, DEPTH):
        requests = [(matmul_raw, matmul_binary, question)[i % 3](i)[0] for i in range(first, first + DEPTH)]
        try:
            with daemon.dial() as connection:
                reader = Reader(connection)
                connection.sendall(b"".join(requests))
                for _ in requests:
                    status, head, body = reader.answer()
                    seen[status] = seen.get(status, 0) + 1
                    code = re.search(rb"kernserve-error: ([a-z_]+)", head)
                    # the library leaves out fields that it has no memory for
                    check(status == 200 or (status == 503 and (not code or code.group(1) in (b"memory", b"budget"))), words, status, head, body)
        except (EOFError, OSError):
            seen["closed"] = seen.get("closed", 0) + 1
        if daemon.process.poll() is not None:
            break
    check(daemon.process.poll() is None, words, "the daemon ended", daemon.process.poll(), daemon.said()[-500:])
    check(daemon.stop() == 0, words, "it ends well")
    return seen


def little_memory(path):
    free = Daemon(path, "--backend", "cpu", "--threads", "1", "--pinned-bytes", "16M")
    with open("/proc/%d/status" % free.process.pid, encoding="ascii") as file:
        need = int(re.search(r"VmPeak:\s+(\d+)", file.read()).group(1))
    check(free.stop() == 0, "stop")
    served = {}
    for limit in [96 << 10, *range(need // 4, need, need // 24), need, need + 8192]:
        daemon = start_within(path, limit)
        if daemon:
            served[limit] = serve_within(daemon, "a limit of %d KiB:" % limit)
    check(served, "it starts with what it needs, and a little more")
    print("it needs %d KiB; with a limit of so many KiB: answers" % need, served)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kernserve")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--presets", action="store_true")
    arguments = parser.parse_args()
    with open(arguments.kernserve, "rb") as file:
        sanitized = b"__asan_init" in (text := file.read()) or b"__tsan_init" in text
    if sanitized:
        print("skip: a sanitizer takes memory of its own")
        return SKIP
    if not arguments.presets:
        many_shapes(arguments.kernserve, arguments.count, False)
    many_shapes(arguments.kernserve, arguments.count * (1 if arguments.presets else 2), True)
    questions_keep_nothing(arguments.kernserve)
    little_memory(arguments.kernserve)
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
