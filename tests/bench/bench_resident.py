#!/usr/bin/env python3
"""Resident tensors beside what they replace: rates, latency, transfers, leaks, replacement under load, loss.

bench_resident.py KERNSERVE [--backend cuda] [--only ROWS] [--seconds 5] [--rounds 3] [--puts 100000] [--small] [-- options of the daemon]

Each row runs beside its opponent on one daemon, in turns; a line gives the median of both, the ratio, and what is wanted of it.
  alone    one connection: BF16 16x4096 by a resident 4096x4096 beside softmax of as many bytes, p50
  wide     one connection: BF16 1x8192 by a resident 8192x8192, p50
  rows     128 connections of BF16 1x4096 by a resident 4096x4096, beside the weight in the body, and beside softmax of as many bytes
  fp32     16 connections of FP32 1x1024 by a resident 1024x1024 beside the weight in the body
  put      PUT of 64 and 256 MB beside a server that only receives; the same bytes again by ETag beside HEAD
  get      GET of 64 and 256 MB beside a server that only sends
  churn    --puts PUTs and DELETEs of 0 B to 4 MiB from 8 connections: resident size, descriptors, threads, device memory; then of 4 KiB: a rate
  beside   softmax of 4 KiB beside 10,000 tensors
  replace  64 clients, 10 replacements a second: each answer is by one version that was there while it was asked
  kill     the worker under --supervise is killed: 410, and the Python client puts again
Load comes from wrk where it is installed (tests/load/raw.lua), else from Python processes, whose rates are their own. --small shrinks all
for a check of this script. The exit code tells of wrong answers and of leaks, not of figures that fall short."""
import argparse
import json
import multiprocessing
import os
import random
import selectors
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "http"), os.path.join(HERE, "..", "..", "clients", "python", "src")]
import kernserve  # noqa: E402
from daemon import Daemon, check, metric, wrongs  # noqa: E402

MB = 1_000_000
RESTS_S = 12  # memory that nothing is in goes back 10 s after the last PUT
TYPES = {"BF16": np.uint16, "FP32": np.float32}


# --- what is printed --------------------------------------------------------------------------------------------------------


def line(row, what, figure, unit, opponent="", beside=None, inverse=False, sign="", wanted=None):
    """inverse: the ratio of times, where less is better."""
    ratio = figure / beside if beside else figure
    text = "%-8s %-44s %12.4g %-6s" % (row, what, figure, unit)
    text += " | %s: %.4g, ratio %.3f" % (opponent, beside, ratio) if beside else ""
    if wanted is not None:
        good = ratio <= wanted if sign == "<=" else ratio >= wanted
        text += " | wanted %s %g%s: %s" % (sign, wanted, " " + unit if beside is None else "", "met" if good else "SHORT")
    print(text, flush=True)


def in_turns(rounds, *sides):
    """Medians of what each side gives, asked in turns."""
    found = [[] for _ in sides]
    for _ in range(rounds):
        for each, side in zip(found, sides):
            each.append(side())
    return [statistics.median(each) for each in found]


# --- load: one request again and again --------------------------------------------------------------------------------------


def shape_of(dims):
    return ",".join(map(str, dims))


def bits(rng, datatype, dims):
    """Values between 0.5 and 1."""
    count = int(np.prod(dims))
    if datatype == "BF16":
        return (rng.integers(0, 128, count, np.uint16) | 0x3f00).reshape(dims)
    return (rng.random(count, np.float32) / 2 + 0.5).reshape(dims)


class Work:
    """A plain raw request: shapes of the operands that its body carries, and names in the query."""

    def __init__(self, model, datatype, *shapes, **names):
        self.model, self.datatype, self.shapes, self.names = model, datatype, shapes, names

    def wrk(self, port, connections, seconds):
        threads = max(1, min(connections, (os.cpu_count() or 2) // 2, 16))
        words = [self.model, "x".join(map(shape_of, self.shapes)), self.datatype, *("%s=@%s" % pair for pair in self.names.items())]
        done = subprocess.run(["wrk", "-t%d" % threads, "-c%d" % connections, "-d%ds" % max(1, round(seconds)), "--timeout", "60s", "-s",
                               os.path.join(HERE, "..", "load", "raw.lua"), "http://127.0.0.1:%d" % port, "--", *words],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        found = json.loads([text for text in done.stdout.splitlines() if text.startswith("{")][-1])
        return found

    def request(self):
        rng = np.random.default_rng(1)
        body = b"".join(bits(rng, self.datatype, dims).tobytes() for dims in self.shapes)
        query = ["shape=" + shape_of(dims) for dims in self.shapes] + ["datatype=" + self.datatype] + ["%s=@%s" % pair for pair in self.names.items()]
        return ("POST /v2/models/%s/infer?%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (self.model, "&".join(query), len(body))
                ).encode() + body

    def python(self, port, connections, seconds):
        processes = min(connections, os.cpu_count() or 2)
        shares = [len(range(i, connections, processes)) for i in range(processes)]
        with multiprocessing.Pool(processes) as pool:
            parts = pool.starmap(hammer, [(port, self.request(), share, seconds) for share in shares])
        times = sorted(t for part in parts for t in part[0])
        return {"rate": len(times) / seconds, "errors": sum(part[1] for part in parts), "requests": len(times),
                "p50_us": statistics.median(times) * 1e6 if times else 0, "p99_us": times[len(times) * 99 // 100] * 1e6 if times else 0}

    def load(self, port, connections, seconds):
        found = (self.wrk if shutil.which("wrk") else self.python)(port, connections, seconds)
        check(found["errors"] == 0 and found["requests"] > 0, self.model, self.shapes, self.names, found)
        return found


def hammer(port, request, connections, seconds):
    """Times of requests, and answers that were no 200. A connection sends the next one when it has the answer."""
    times, errors, until = [], 0, time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for _ in range(connections):
            s = socket.create_connection(("127.0.0.1", port))
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(s, selectors.EVENT_READ, [time.monotonic(), b""])
            s.sendall(request)
        waiting = connections
        while waiting:
            for key, _ in selector.select(60):
                more = key.fileobj.recv(1 << 20)
                key.data[1] += more
                head, end, body = key.data[1].partition(b"\r\n\r\n")
                if more and not (end and len(body) >= int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])):
                    continue
                now = time.monotonic()
                times.append(now - key.data[0])
                errors += not head.startswith(b"HTTP/1.1 200 ")
                if more and now < until:
                    key.data[:] = [now, b""]
                    key.fileobj.sendall(request)
                else:
                    waiting -= 1
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
    return times, errors


# --- one request by hand ----------------------------------------------------------------------------------------------------


class Peer:
    """A connection that sends and receives large bodies without copies of its own."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.place = memoryview(bytearray(65536))

    def ask(self, method, target, body=b"", into=None):
        """Status and the first bytes of the body, or all of it in `into`."""
        self.socket.sendall(("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (method, target, len(body))).encode())
        if body:
            self.socket.sendall(body)
        have, end = 0, -1
        while end < 0:
            got = self.socket.recv_into(self.place[have:])
            if got == 0:
                return 0, b""
            have += got
            end = bytes(self.place[:have]).find(b"\r\n\r\n")
        head = bytes(self.place[:end]).decode("latin-1").lower()
        status = int(head[9:12])
        length = 0 if method == "HEAD" or status == 204 else int(head.split("content-length:")[1].split("\r\n")[0])
        into = memoryview(bytearray(length)) if into is None or len(into) < length else into
        first = have - end - 4
        into[:first] = self.place[end + 4:have]
        while first < length:
            got = self.socket.recv_into(into[first:length])
            if got == 0:
                return 0, b""
            first += got
        return status, bytes(into[:min(length, 4096)])


def put(daemon, name, values, datatype):
    status, text = Peer(daemon.port).ask("PUT", "/v2/tensors/%s?shape=%s&datatype=%s&ttl=0" % (name, shape_of(values.shape), datatype),
                                         memoryview(values.reshape(-1).view(np.uint8)))
    check(status in (200, 201), "PUT", name, status, text)


def drop(daemon, *names):
    peer = Peer(daemon.port)
    for name in names:
        check(peer.ask("DELETE", "/v2/tensors/" + name)[0] == 204, "DELETE", name)


def bare_server(listener, sends):
    """Receives bodies and throws them away, or sends `sends` bytes for each request."""
    place, answer = memoryview(bytearray(4 << 20)), memoryview(bytearray(sends))
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            head = b""
            while more := connection.recv(65536):
                head += more
                while b"\r\n\r\n" in head:
                    text, _, rest = head.partition(b"\r\n\r\n")
                    left = int(text.lower().split(b"content-length:")[1].split(b"\r\n")[0]) - len(rest)
                    while left > 0:
                        left -= connection.recv_into(place[:left])
                    head = b""
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % sends)
                    if sends:
                        connection.sendall(answer)


class Bare:
    def __init__(self, sends=0):
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.process = multiprocessing.Process(target=bare_server, args=(listener, sends), daemon=True)
        self.process.start()
        listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.join()


# --- rows of latency and rates ----------------------------------------------------------------------------------------------


def alone(daemon, given):
    n, m = (256, 16) if given.small else (4096, 16)
    put(daemon, "W", bits(np.random.default_rng(2), "BF16", (n, n)), "BF16")
    product, softmax = Work("matmul", "BF16", (m, n), INPUT1="W"), Work("softmax", "BF16", (m, n))
    ours, theirs = in_turns(given.rounds, *(lambda work=work: work.load(daemon.port, 1, given.seconds)["p50_us"] for work in (product, softmax)))
    line("alone", "p50 of BF16 %dx%d by @W %dx%d" % (m, n, n, n), ours, "us", "softmax of as many bytes", theirs, sign="<=", wanted=1.3)
    drop(daemon, "W")


def wide(daemon, given):
    n = 256 if given.small else 8192
    put(daemon, "W", bits(np.random.default_rng(2), "BF16", (n, n)), "BF16")
    (ours,) = in_turns(given.rounds, lambda: Work("matmul", "BF16", (1, n), INPUT1="W").load(daemon.port, 1, given.seconds)["p50_us"])
    line("wide", "p50 of BF16 1x%d by @W %dx%d" % (n, n, n), ours, "us", sign="<=", wanted=80)
    drop(daemon, "W")


def rows(daemon, given):
    n, connections = (256, 16) if given.small else (4096, 128)
    put(daemon, "W", bits(np.random.default_rng(2), "BF16", (n, n)), "BF16")
    named, carried, softmax = (Work("matmul", "BF16", (1, n), INPUT1="W"), Work("matmul", "BF16", (1, n), (n, n)), Work("softmax", "BF16", (1, n)))
    tails = []

    def rate(work):
        found = work.load(daemon.port, connections, given.seconds)
        if work is named:
            tails.append(found["p99_us"] / max(found["p50_us"], 1))
        return found["rate"]

    ours, body, other = in_turns(given.rounds, *(lambda work=work: rate(work) for work in (named, carried, softmax)))
    what = "BF16 1x%d by @W %dx%d, %d connections" % (n, n, n, connections)
    line("rows", what, ours, "1/s", "W in the body", body, sign=">=", wanted=20)
    line("rows", "the same", ours, "1/s", "softmax of as many bytes", other, sign=">=", wanted=0.7)
    line("rows", "the same: p99 over p50", statistics.median(tails), "", sign="<=", wanted=3)
    drop(daemon, "W")


def fp32(daemon, given):
    n = 1024
    put(daemon, "W", bits(np.random.default_rng(2), "FP32", (n, n)), "FP32")
    named, carried = Work("matmul", "FP32", (1, n), INPUT1="W"), Work("matmul", "FP32", (1, n), (n, n))
    ours, body = in_turns(given.rounds, *(lambda work=work: work.load(daemon.port, 16, given.seconds)["rate"] for work in (named, carried)))
    line("fp32", "FP32 1x%d by @W %dx%d, 16 connections" % (n, n, n), ours, "1/s", "W in the body", body, sign=">=", wanted=5)
    drop(daemon, "W")


def beside(daemon, given):
    count, softmax, peer = 100 if given.small else 10_000, Work("softmax", "FP32", (1, 1024)), Peer(daemon.port)

    def fill(method):
        for i in range(count):
            target = "/v2/tensors/b%05d" % i
            status, text = peer.ask(method, target + ("?shape=4&datatype=FP32&ttl=0" if method == "PUT" else ""), b"0123456789%06d" % i if method == "PUT" else b"")
            check(status in (201, 204), method, target, status, text)

    def with_them():
        fill("PUT")
        rate = softmax.load(daemon.port, 16, given.seconds)["rate"]
        fill("DELETE")
        return rate

    ours, bare = in_turns(given.rounds, with_them, lambda: softmax.load(daemon.port, 16, given.seconds)["rate"])
    line("beside", "softmax of 4 KiB beside %d tensors" % count, ours, "1/s", "without them", bare, sign=">=", wanted=0.99)


# --- rows of transfers ------------------------------------------------------------------------------------------------------


def sizes(given):
    return (1 * MB, 4 * MB) if given.small else (64 * MB, 256 * MB)


def transfer(daemon, given, row, size, ours, bare):
    """Rates in MB/s; at least 5 of each in a round."""
    def rate(call):
        times, until = [], time.monotonic() + given.seconds / 2
        while len(times) < 5 or time.monotonic() < until:
            begun = time.monotonic()
            call()
            times.append(time.monotonic() - begun)
        return size / MB / statistics.median(times)

    a, b = in_turns(given.rounds, lambda: rate(ours), lambda: rate(bare))
    line(row, "%s of %d MB" % (row.upper(), size / MB), a, "MB/s", "a bare server", b, sign=">=", wanted=0.9)


def put_row(daemon, given):
    for size in sizes(given):
        data = np.random.default_rng(3).integers(0, 256, size, np.uint8)
        view, count = memoryview(data), 0
        peer = Peer(daemon.port)
        target = "/v2/tensors/P?shape=%d&datatype=UINT8&ttl=0" % size

        def ours():
            nonlocal count
            count += 1
            data[:8] = np.frombuffer(count.to_bytes(8, "little"), np.uint8)  # another content each time
            status, text = peer.ask("PUT", target, view)
            check(status in (200, 201), "PUT", status, text)

        with Bare() as server:
            sink = Peer(server.port)
            transfer(daemon, given, "put", size, ours, lambda: sink.ask("PUT", "/", view))
        etag = kernserve.Client("http://127.0.0.1:%d" % daemon.port).tensor("P").entry["etag"]

        def small(method, target):
            begun = time.monotonic()
            for _ in range(200):
                check(peer.ask(method, target)[0] == 200, method, target)
            return (time.monotonic() - begun) / 200 * 1e6

        link, head = in_turns(given.rounds, lambda: small("PUT", "/v2/tensors/P?ttl=0&etag=" + etag), lambda: small("HEAD", "/v2/tensors/P"))
        line("put", "%d MB again by ETag" % (size / MB), link, "us", "HEAD", head, sign="<=", wanted=1.5)
        drop(daemon, "P")


def get_row(daemon, given):
    for size in sizes(given):
        data = np.random.default_rng(3).integers(0, 256, size, np.uint8)
        put(daemon, "G", data, "UINT8")
        into, peer = np.zeros(size, np.uint8), Peer(daemon.port)

        def ours():
            check(peer.ask("GET", "/v2/tensors/G", into=memoryview(into))[0] == 200, "GET")

        ours()
        check(np.array_equal(into, data), "the bytes of GET")
        with Bare(size) as server:
            source = Peer(server.port)
            transfer(daemon, given, "get", size, ours, lambda: source.ask("GET", "/", into=memoryview(into)))
        drop(daemon, "G")


# --- leaks ------------------------------------------------------------------------------------------------------------------


def churning(port, index, puts, most, results):
    """PUT and DELETE by turns, of sizes from 0 to `most` bytes, small ones more often."""
    draw, peer, faults = random.Random(index), Peer(port), 0
    block = memoryview(draw.randbytes(most + 256))
    begun = time.monotonic()
    for i in range(puts):
        size = most if most <= 4096 else draw.choice((0, draw.randrange(4096), draw.randrange(65536), int(most * draw.random() ** 6)))
        start = i % 256
        target = "/v2/tensors/c%d.%d" % (index, i % 7)
        faults += peer.ask("PUT", "%s?shape=%d&datatype=UINT8" % (target, size), block[start:start + size])[0] not in (200, 201)
        faults += peer.ask("DELETE", target)[0] != 204
    results.put((faults, time.monotonic() - begun))


def churned(daemon, puts, most):
    """Rate of PUT and DELETE together."""
    results = multiprocessing.Queue()
    processes = [multiprocessing.Process(target=churning, args=(daemon.port, i, puts // 8, most, results)) for i in range(8)]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    check(sum(faults for faults, _ in found) == 0, "refused PUTs and DELETEs:", found)
    return 2 * (puts // 8) * 8 / max(seconds for _, seconds in found)


def held(daemon, given):
    """KiB of resident size, descriptors, threads, resident tensors' gauges, MiB of the device."""
    def proc(name):
        with open("/proc/%d/%s" % (daemon.process.pid, name)) as file:
            return file.read()

    fields = dict(text.split(":", 1) for text in proc("status").splitlines())
    text = daemon.metrics()
    device = 0
    if given.backend == "cuda":
        device = int(subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"], stdout=subprocess.PIPE,
                                    text=True, check=True).stdout.split()[0])
    descriptors = []
    for _ in range(5):  # a connection that has just ended may have one yet
        time.sleep(0.1)
        descriptors.append(daemon.descriptors())
    return {"rss_kib": int(fields["VmRSS"].split()[0]), "descriptors": min(descriptors), "threads": int(fields["Threads"]),
            "tensors": metric(text, "kernserve_resident_tensors") or 0, "bytes": metric(text, "kernserve_resident_bytes") or 0, "device_mib": device}


def churn(daemon, given):
    puts, most = (400, 65536) if given.small else (given.puts, 4 << 20)
    churned(daemon, puts // 2, most)  # on an H200 heap and device memory are at their level behind 500,000, not behind 250,000
    time.sleep(RESTS_S)
    before = held(daemon, given)
    rate = churned(daemon, puts, most)
    time.sleep(RESTS_S)
    after = held(daemon, given)
    line("churn", "%d PUT and DELETE, 0 B to %d KiB" % (puts, most >> 10), rate, "1/s")
    for name in before:
        line("churn", "the daemon's %s, before %s" % (name, before[name]), after[name], "", sign="<=",
             wanted=before[name] + (1024 if name == "rss_kib" else 0))
        check(name == "rss_kib" or after[name] <= before[name], name, "grew from", before[name], "to", after[name])
    line("churn", "PUT and DELETE of 4 KiB, 8 connections", churned(daemon, puts, 4096), "1/s", sign=">=", wanted=20_000)


# --- replacement and loss ---------------------------------------------------------------------------------------------------


def version(n, v):
    """A weight of that version: a row of ones gives n * (v + j % 7) in column j, exactly."""
    return np.broadcast_to((v + np.arange(n) % 7).astype(np.float32), (n, n)).copy()


def asking(port, n, clients, done, begun, until, results):
    """Clients of one process. done, begun: the versions whose PUT was answered, and sent."""
    counts, faults = [0, 0], []
    body = np.ones(n, np.float32).tobytes()

    def work():
        peer, into, ones = Peer(port), np.empty(n, np.float32), np.arange(n) % 7
        while time.monotonic() < until and not faults:
            low = done.value
            status, _ = peer.ask("POST", "/v2/models/matmul/infer?shape=1,%d&datatype=FP32&INPUT1=@R" % n, body, memoryview(into).cast("B"))
            high = begun.value
            answers = into / n - ones
            counts[0] += 1
            counts[1] += low != high
            if status != 200 or np.any(answers != answers[0]) or not low <= answers[0] <= high:
                faults.append((status, low, high, float(answers.min()), float(answers.max())))

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put((counts, faults))


def replace(daemon, given):
    n, seconds = (64, 2) if given.small else (1024, max(given.seconds, given.replace_seconds))
    put(daemon, "R", version(n, 0), "FP32")
    done, begun, results = multiprocessing.Value("q", 0), multiprocessing.Value("q", 0), multiprocessing.Queue()
    start = time.monotonic()
    processes = [multiprocessing.Process(target=asking, args=(daemon.port, n, 8, done, begun, start + seconds, results)) for _ in range(8)]
    for process in processes:
        process.start()
    peer, v = Peer(daemon.port), 0
    while time.monotonic() < start + seconds:
        v += 1
        data = memoryview(version(n, v)).cast("B")
        begun.value = v
        status, text = peer.ask("PUT", "/v2/tensors/R?shape=%d,%d&datatype=FP32&ttl=0" % (n, n), data)
        done.value = v
        check(status == 200, "replacement", v, status, text)
        time.sleep(max(0, start + v / 10 - time.monotonic()))
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    faults = [fault for _, each in found for fault in each]
    check(not faults, "status, versions before and after, least and largest answer:", faults[:5])
    line("replace", "answers by 64 clients, %d versions, %.0f s" % (v, seconds), sum(counts[0] for counts, _ in found), "")
    line("replace", "of them, asked while a PUT was under way", sum(counts[1] for counts, _ in found), "")
    line("replace", "of them mixed, of a version not there, or no 200", len(faults), "", sign="<=", wanted=0)
    drop(daemon, "R")


def worker_of(daemon):
    with open("/proc/%d/task/%d/children" % (daemon.process.pid, daemon.process.pid)) as children:
        found = children.read().split()
    return int(found[0]) if found else None


def kill(given, options):
    w = bits(np.random.default_rng(4), "FP32", (256, 256))
    with Daemon(given.kernserve, "--backend", given.backend, "--supervise", *options) as daemon:
        ks = kernserve.Client("http://127.0.0.1:%d" % daemon.port)
        x = bits(np.random.default_rng(5), "FP32", (4, 256))
        with ks.tensor(w, "K") as weight:
            right = np.asarray(ks.matmul(x, weight))
            times = []
            for _ in range(1 if given.small else 3):
                worker = worker_of(daemon)
                os.kill(worker, signal.SIGKILL)
                begun = time.monotonic()
                check(daemon.ready_within(60), "no new worker is ready")
                ready = time.monotonic()
                status, text = Peer(daemon.port).ask("POST", "/v2/models/softmax/infer?INPUT0=@K")
                check(status == 410 and b"lost" in text, "a lost tensor:", status, text)
                check(np.array_equal(np.asarray(ks.matmul(x, weight)), right), "the client heals")
                times.append((ready - begun, time.monotonic() - ready))
            check(weight._puts == len(times), "puts again", weight._puts)
        line("kill", "until a worker is ready again (%s)" % text[:90].decode(), statistics.median(t for t, _ in times) * 1e3, "ms")
        line("kill", "410 and put again", statistics.median(t for _, t in times) * 1e3, "ms")
        check(daemon.stop() == 0, "the daemon's end")


ROWS = {"alone": alone, "wide": wide, "rows": rows, "fp32": fp32, "put": put_row, "get": get_row, "churn": churn, "beside": beside, "replace": replace}


def main():
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernserve")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--only", default=",".join([*ROWS, "kill"]), help="rows, with commas")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (5)")
    parser.add_argument("--rounds", type=int, default=3, help="turns (3)")
    parser.add_argument("--puts", type=int, default=100_000, help="of the row churn (100000)")
    parser.add_argument("--replace-seconds", type=float, default=60.0, help="of the row replace (60)")
    parser.add_argument("--small", action="store_true", help="small sizes: a check of this script")
    given, options = parser.parse_args(words[:at]), words[at + 1:]
    only = given.only.split(",")
    unknown = set(only) - set(ROWS) - {"kill"}
    if unknown:
        parser.error("no such rows: %s" % ", ".join(sorted(unknown)))
    print("load: %s; backend %s, %d cores" % ("wrk" if shutil.which("wrk") else "Python, which limits the rates", given.backend, os.cpu_count()))
    with Daemon(given.kernserve, "--backend", given.backend, *options) as daemon:
        for name in only:
            if name != "kill":
                ROWS[name](daemon, given)
        check(daemon.stop() == 0, "the daemon's end")
    if "kill" in only:
        kill(given, options)
    sys.exit(wrongs() > 0)


if __name__ == "__main__":
    main()
