#!/usr/bin/env python3
"""Each allocation of a request fails once, and each of its system calls is interrupted or moves one byte: requests of each form, pages,
uploads, loads of models, and a reload. Each time there is the right answer, or, where memory was missing, 503 or 507 with its code or a
connection that closes; the same request is right behind it, and nothing stays held.

engine_torture.py KERNSERVE LIBSTARVE LIBEINTR [--all]     of many places some, drawn anew each time, unless --all
"""
import base64
import json
import mmap
import os
import signal
import struct
import sys
import tempfile
import time

from daemon import SKIP, Daemon, Remote, check, chunked, comes_to, daemon_path, for_library, request, seed, settle, wrongs
from files import write_npy, write_safetensors
from model_rows import RELU, definition
from tensors import Tensor

PLACES = 24  # of a case and a kind of failure, without --all
STRAY = 3  # places behind the last one that was counted: other threads' allocations and calls come between
HELD_MOST = 12  # allocations: what is kept for the next of its kind
SAFE = [("Content-Type", "application/x-safetensors")]
FAILS, INTERRUPTED, SHORT = "fails", 1, 2
KINDS = {FAILS: "fails", INTERRUPTED: "EINTR", SHORT: "short"}


class Numbers:
    """A file of 64-bit numbers that a preloaded library counts in."""

    def __init__(self, size=32):
        self.file = tempfile.NamedTemporaryFile()
        self.file.write(bytes(size))
        self.file.flush()
        self.map = mmap.mmap(self.file.fileno(), size)

    def get(self, i):
        return struct.unpack_from("<Q", self.map, 8 * i)[0]

    def set(self, i, value):
        struct.pack_into("<Q", self.map, 8 * i, value)


class Bed:
    """The daemon with both libraries. starved: allocations, held, place; called: calls, place, kind."""

    def __init__(self, own, *options):
        self.starved, self.called, self.own = Numbers(), Numbers(), own
        environment = {"LD_PRELOAD": "%s:%s" % (os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3])), "KS_STARVE": "0",
                       "KS_STARVE_COUNT": self.starved.file.name, "KS_EINTR_AT": self.called.file.name}
        if own:
            environment["KS_STARVE_OWN"] = "1"
        self.daemon = Daemon(daemon_path(), "--backend", "cpu", "--threads", "1", "--lanes", "1", "--pinned-bytes", "64M", "--resident-bytes", "64M",
                             "--log-level", "warn", *options, environment=environment)

    def count(self, kind):
        return self.starved.get(1 if self.own else 0) if kind == FAILS else self.called.get(0)

    def arm(self, kind, n):
        """The n-th from here on."""
        if kind == FAILS:
            self.starved.set(3, self.count(kind) + n)
        else:
            self.called.set(2, kind)
            self.called.set(1, self.count(kind) + n)

    def disarm(self):
        self.starved.set(3, 0)
        self.called.set(1, 0)

    def held(self):
        return self.starved.get(2)


class Case:
    """right: of an answer. undo: a request that takes back what it did. admin: by the second listener."""

    def __init__(self, name, data, right, undo=None, admin=False):
        self.name, self.data, self.right, self.undo, self.admin = name, data, right, undo, admin

    def ask(self, bed):
        where = Remote("127.0.0.1:%d" % bed.daemon.admin_port) if self.admin else bed.daemon
        try:
            with where.connect() as connection:
                return connection.ask(self.data)
        except ConnectionError:
            return None

    def take_back(self, bed):
        if self.undo:
            with bed.daemon.connect() as connection:
                connection.ask(self.undo)


def is_body(body):
    return lambda answer: answer.status == 200 and answer.body == body


def has(status, part=b""):
    return lambda answer: answer.status == status and part in answer.body


def cases(generator):
    values = [generator.randint(-1000, 1000) for _ in range(64)]
    tensor = Tensor("INT32", [64, 1], values)
    target, plain = "/v2/models/reduce/infer", "/v2/models/reduce/infer?shape=64,1&datatype=INT32&axis=1&op=max"
    head = {"inputs": [{"name": "INPUT0", "shape": [64, 1], "datatype": "INT32"}], "parameters": {"axis": 1, "op": "max"}}
    text = json.dumps(dict(head, inputs=[dict(head["inputs"][0], data=values)])).encode()
    binary = json.dumps(dict(head, inputs=[dict(head["inputs"][0], parameters={"binary_data_size": 256})],
                             outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": True}}])).encode()
    named = json.dumps(dict(head, inputs=[dict(head["inputs"][0], parameters={"tensor": "there"})],
                            outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": True}}])).encode()
    large = os.urandom(3 << 20)
    large_plain = "/v2/models/reduce/infer?shape=%d,1&datatype=INT32&axis=1&op=max" % (len(large) // 4)
    document = definition(initializers=["k"], nodes=[dict(RELU, inputs=["x", "k"], parameters={"op": "mul"})])
    weights = write_safetensors({"k": Tensor("FP32", [1], [2.0])}, {"kernserve": json.dumps(document)})
    load = json.dumps({"parameters": {"config": json.dumps(document), "file:1/weights.safetensors": base64.b64encode(
        write_safetensors({"k": Tensor("FP32", [1], [2.0])})).decode()}}).encode()
    x = struct.pack("<4f", 1, 2, 3, 4)
    ends = tensor.data
    return [
        Case("plain", request("POST", plain, [], tensor.data), is_body(ends)),
        Case("plain, by the library", for_library(request("POST", plain, [], tensor.data)), is_body(ends)),
        Case("chunked", chunked("POST", plain, [], [tensor.data[:100], tensor.data[100:]]), is_body(ends)),
        Case("JSON", request("POST", target, [], text), has(200, b'"data":[%d,' % values[0])),
        Case("binary", request("POST", target, [("Inference-Header-Content-Length", len(binary))], binary + tensor.data),
             lambda answer: answer.status == 200 and answer.body.endswith(ends)),
        Case("npy", request("POST", target + "?axis=1&op=max", [("Content-Type", "application/x-npy")], write_npy(tensor)),
             lambda answer: answer.status == 200 and answer.body.endswith(ends)),
        Case("large", request("POST", large_plain, [], large), is_body(large)),
        Case("a resident input", request("POST", target, [], named), lambda answer: answer.status == 200 and answer.body.endswith(ends)),
        Case("a bad request", request("POST", target, [], text[:-1]), has(400)),
        Case("an upload", request("PUT", "/v2/tensors/t?shape=64,1&datatype=INT32", [], tensor.data), has(201), request("DELETE", "/v2/tensors/t")),
        Case("a large upload", request("PUT", "/v2/tensors/t?shape=%d&datatype=UINT8" % len(large), [], large), has(201),
             request("DELETE", "/v2/tensors/t")),
        Case("a tensor read", request("GET", "/v2/tensors/there"), is_body(ends)),
        Case("the list of tensors", request("GET", "/v2/tensors"), has(200, b'"there"')),
        Case("a model put", request("PUT", "/v2/models/m", SAFE, weights), has(201),
             request("DELETE", "/v2/models/m")),
        Case("a model loaded", request("POST", "/v2/repository/models/m/load", [], load), has(200), request("DELETE", "/v2/models/m")),
        Case("a model asked", request("POST", "/v2/models/kept/infer?shape=1,4&datatype=FP32", [], x), is_body(struct.pack("<4f", 2, 4, 6, 8))),
        Case("metrics", request("GET", "/metrics"), has(200, b"kernserve_state")),
        Case("plans", request("GET", "/v2/plans"), has(200, b"reduce"), admin=True),
        Case("a trace", request("GET", "/v2/trace?ms=1000"), has(200, b"traceEvents"), admin=True),
        Case("metadata", request("GET", "/v2/models/softmax"), has(200, b"softmax")),
    ], tensor, weights


def places(generator, count):
    every = range(1, count + STRAY + 1)
    if "--all" in sys.argv or len(every) <= PLACES:
        return every
    return sorted(generator.sample(every, PLACES))


def judge(case, kind, n, answer):
    if kind != FAILS:
        check(answer is not None and case.right(answer), case.name, "call", n, "interrupted" if kind == INTERRUPTED else "short", answer)
        return "right"
    if answer is None:
        return "closed"
    if case.right(answer):
        return "right"
    check(answer.status in (503, 507) and answer.header("kernserve-error"), case.name, "allocation", n, answer)
    return answer.header("kernserve-error")


def walk(bed, case, kind, generator):
    for _ in range(3):  # what the first ones of a kind leave behind for the next is no leak
        before = bed.count(kind)
        answer = case.ask(bed)
        count = bed.count(kind) - before
        check(answer is not None and case.right(answer), case.name, "undisturbed", answer)
        case.take_back(bed)
    settle(bed.daemon)
    held, ends, tried = bed.held(), {}, 0
    for n in places(generator, count):
        bed.arm(kind, n)
        answer = case.ask(bed)
        bed.disarm()
        end = judge(case, kind, n, answer)
        ends[end] = ends.get(end, 0) + 1
        tried += 1
        case.take_back(bed)
        answer = case.ask(bed)
        check(answer is not None and case.right(answer), case.name, "behind place", n, "of kind", kind, answer)
        case.take_back(bed)
    check(settle(bed.daemon) == 0, case.name, "holds pinned memory")
    more = bed.held() - held
    check(more <= HELD_MOST, case.name, "of kind", kind, "holds", more, "allocations more, behind", tried)
    return "%s %s of %d: %s, %+d held" % (KINDS[kind], tried, count, ends, more)


class Reload:
    """Of the tokens, by SIGHUP. Where it fails, the former token goes on; the next one succeeds."""

    def __init__(self, folder):
        self.path, self.token = os.path.join(folder, "tokens"), 0
        self.write()
        self.bed = Bed(True, "--token-file", self.path)

    def write(self):
        self.token += 1
        with open(self.path + ".new", "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write("token%d\n" % self.token)
        os.rename(file.name, self.path)

    def is_right(self, token):
        with self.bed.daemon.connect() as connection:
            return connection.ask(request("GET", "/v2/models/softmax", [("Authorization", "Bearer token%d" % token)])).status == 200

    def signal(self):
        os.kill(self.bed.daemon.process.pid, signal.SIGHUP)

    def walk(self, kind):
        self.write()
        before = self.bed.count(kind)
        self.signal()
        check(comes_to(lambda: self.is_right(self.token), True), "a reload, undisturbed")
        count, failed = self.bed.count(kind) - before, 0
        for n in range(1, min(count, PLACES) + 1):
            self.write()
            self.bed.arm(kind, n)
            self.signal()
            time.sleep(0.03)
            self.bed.disarm()
            if not self.is_right(self.token):
                failed += 1
                check(self.is_right(self.token - 1), "a reload: place", n, "of kind", kind, "took both tokens")
                self.signal()
                check(comes_to(lambda: self.is_right(self.token), True), "the reload behind place", n, "of kind", kind)
        return "%s %d: %d kept the former" % (KINDS[kind], n, failed)


def main():
    path, generator = daemon_path(), seed()
    if len(sys.argv) < 4 or not os.path.exists(sys.argv[2]):
        print("usage: engine_torture.py KERNSERVE LIBSTARVE LIBEINTR [--all]")
        sys.exit(SKIP)
    begun = time.monotonic()
    for own in (True, False):
        bed = Bed(own)
        with bed.daemon:
            every, tensor, weights = cases(generator)
            with bed.daemon.connect() as connection:
                check(connection.ask(request("PUT", "/v2/tensors/there?shape=64,1&datatype=INT32", [], tensor.data)).status == 201, "there")
                answer = connection.ask(request("PUT", "/v2/models/kept", SAFE, weights))
                check(answer.status == 201, "kept", answer)
            for case in every:
                kinds = (FAILS, INTERRUPTED, SHORT) if own else (FAILS,)
                print("%-24s %s" % (case.name, "; ".join(walk(bed, case, kind, generator) for kind in kinds)))
            check(bed.daemon.process.poll() is None, "the daemon lives")
            check(bed.daemon.stop() == 0, "the daemon's end")
    with tempfile.TemporaryDirectory() as folder:
        reload = Reload(folder)
        with reload.bed.daemon:
            print("%-24s %s" % ("a reload", "; ".join(reload.walk(kind) for kind in KINDS)))
            check(reload.bed.daemon.stop() == 0, "the daemon's end, behind reloads")
    print("%.1f s" % (time.monotonic() - begun))
    sys.exit(wrongs() > 0)


if __name__ == "__main__":
    main()
