#!/usr/bin/env python3
"""What comes over HTTP is, bit by bit, what the operation gives when it is called directly: alone, and amid 100 at once.

direct.py KERNSERVE DIRECT [--backend cpu|cuda]   DIRECT: the program of tests/direct.c; without --backend the daemon's choice

Every row goes out once by itself in each form, and then 100 times at once with other data in each, so that requests share
launches. KS_SEED=N repeats a run.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from types import SimpleNamespace

from daemon import Daemon, metric, request, settle
from forms import form_binary, form_plain_raw
from tensors import SIZES, count

TOGETHER = 100
WORKSPACE = 256 << 20  # as tests/direct.c has it
# Sign, the low bits of the exponent and the mantissa stay random; the rest makes magnitudes of 2^-7 to 2.
FLOATS = {"FP32": (0x83FFFFFF, 0x3C000000), "BF16": (0x83FF, 0x3C00), "FP16": (0x9FFF, 0x2000),
          "FP64": (0x807FFFFFFFFFFFFF, 0x3F80000000000000)}

# model, datatype, shape, parameters: rows of every length, columns, middle axes, scalars
ROWS = [
    ("softmax", "FP32", [1, 1024], {}),
    ("softmax", "BF16", [500, 7], {}),
    ("softmax", "FP16", [64, 33], {"log": True}),
    ("softmax", "FP32", [16, 1023], {"scale": 0.5}),
    ("softmax", "BF16", [3, 5000], {}),
    ("softmax", "FP64", [2, 3001], {"log": True}),
    ("softmax", "FP32", [2, 50257], {}),
    ("softmax", "FP32", [300, 40], {"axis": 0}),
    ("softmax", "BF16", [8, 50, 33], {"axis": 1}),
    ("softmax", "FP16", [100, 20, 3], {"axis": 1}),
    ("softmax_vec", "FP32", [4097], {}),
    ("reduce", "FP32", [1, 1024], {"op": "sum"}),
    ("reduce", "BF16", [2000, 7], {"op": "logsumexp"}),
    ("reduce", "FP32", [100, 257], {"op": "mean"}),
    ("reduce", "FP16", [5, 5001], {"op": "argmax"}),
    ("reduce", "FP32", [2, 50257], {"op": "logsumexp"}),
    ("reduce", "FP64", [3, 4096], {"op": "l2norm"}),
    ("reduce", "FP32", [60001], {"op": "sum", "axis": "all"}),
    ("reduce", "BF16", [400, 64], {"op": "max", "axis": 0}),
    ("reduce", "FP32", [9, 100, 31], {"op": "sum", "axis": 1}),
    ("reduce", "FP32", [6, 7, 8, 9], {"op": "prod", "axis": "0,2", "keepdims": True}),
    ("reduce", "INT16", [50, 129], {"op": "sum"}),
    ("reduce", "FP32", [70, 3001], {"op": "var", "ddof": 1}),
    ("reduce", "BF16", [400, 64], {"op": "std", "axis": 0}),
    ("reduce", "FP16", [9, 100, 32], {"op": "norm", "p": "-inf", "axis": 1}),
    ("reduce", "FP64", [3, 4096], {"op": "norm", "p": 3}),
    ("reduce", "UINT8", [333, 20], {"op": "argmin", "axis": 0}),
]
# Too large for mapped slots, and too large for any slot; on a GPU only.
LARGE_ROWS = [
    ("softmax", "FP32", [800, 1024], {}),
    ("softmax", "BF16", [3, 600000], {}),
    ("softmax", "FP32", [2000, 500], {"axis": 0}),
    ("reduce", "FP32", [1200000], {"op": "sum", "axis": "all"}),
    ("reduce", "BF16", [70000, 32], {"op": "logsumexp"}),
    ("reduce", "FP32", [1000, 1300], {"op": "argmax", "axis": 0}),
]
STAGED_ROWS = [
    ("softmax", "FP32", [5000, 4000], {}),
    ("reduce", "FP32", [20000001], {"op": "logsumexp", "axis": "all"}),
    ("softmax", "FP32", [65536, 480], {}),  # in blocks of rows
    ("reduce", "FP32", [60001, 700], {"op": "logsumexp"}),
]


class Direct:
    """The operation without daemon, engine and HTTP; one process per path."""

    def __init__(self, program, backend, path):
        self.process = subprocess.Popen([program, backend, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, work):
        query = form_plain_raw(work, None)[0].split("?", 1)[1]
        self.process.stdin.write(("%s %s\n" % (work.model, query)).encode() + work.inputs[0].data)
        self.process.stdin.flush()
        size = self.process.stdout.readline()
        if not size:
            raise SystemExit("direct ended with %d" % self.process.wait())
        return self.process.stdout.read(int(size))

    def close(self):
        self.process.stdin.close()
        if self.process.wait(60) != 0:
            raise SystemExit("direct ended with %d" % self.process.returncode)


def make_work(r, row):
    """A row with data of its own; now and then some NaN among them."""
    model, datatype, shape, parameters = row
    size = count(shape) * SIZES[datatype]
    data = r.getrandbits(8 * size)
    if datatype in FLOATS:
        keep, put = (v.to_bytes(SIZES[datatype], "little") * count(shape) for v in FLOATS[datatype])
        data = data & int.from_bytes(keep, "little") | int.from_bytes(put, "little")
    data = bytearray(data.to_bytes(size, "little"))
    if r.random() < 0.2:
        at = r.randrange(count(shape)) * SIZES[datatype]
        data[at:at + SIZES[datatype]] = b"\xff" * SIZES[datatype]
    tensor = SimpleNamespace(datatype=datatype, shape=shape, data=bytes(data))
    return SimpleNamespace(model=model, inputs=[tensor], names=["INPUT0"], gaps=False, parameters=parameters, target=lambda: "/v2/models/%s/infer" % model)


def sent(work, binary):
    return request("POST", *(form_binary(work, "") if binary else form_plain_raw(work, None)))


def result_of(answer):
    """The output's bytes, whichever form the answer has. Without one the daemon's log is told."""
    if answer is None or answer.status != 200:
        raise RuntimeError("no result: %r" % answer)
    return answer.body[int(answer.header("inference-header-content-length") or 0):]


class Run:
    def __init__(self, daemon, program, backend, seed):
        self.daemon, self.random = daemon, random.Random(seed)
        self.direct = {path: Direct(program, backend, path) for path in ("planned", "copies", "mapped")}
        for direct in self.direct.values():  # opening a device takes longer on a busy host than a connection may say nothing
            direct.ask(make_work(self.random, ROWS[0]))
        self.connections = [daemon.connect(120) for _ in range(TOGETHER)]
        self.compared = self.wrong = 0

    def compare(self, row, what, got, want):
        self.compared += 1
        if got != want:
            self.wrong += 1
            at = next((i for i, (g, w) in enumerate(zip(got, want)) if g != w), min(len(got), len(want)))
            print("WRONG %s %s: %d bytes instead of %d, first difference at byte %d" % (row, what, len(got), len(want), at))

    def alone(self, row):
        work = make_work(self.random, row)
        want = self.direct["planned"].ask(work)
        for path in ("copies", "mapped"):
            self.compare(row, "direct, " + path, self.direct[path].ask(work), want)
        for binary in (False, True):
            got = result_of(self.connections[0].ask(sent(work, binary), "POST"))
            self.compare(row, "alone, " + ("OIP binary" if binary else "plain raw"), got, want)

    def together(self, row, many):
        """All but the last byte of each request goes first, so that they become ready at about one time."""
        works = [make_work(self.random, row) for _ in range(many)]
        messages = [sent(work, i % 2) for i, work in enumerate(works)]
        for connection, message in zip(self.connections, messages):
            connection.send(message[:-1])
        for connection, message in zip(self.connections, messages):
            connection.send(message[-1:])
        answers = [connection.answer("POST") for connection in self.connections[:many]]
        for i, (work, answer) in enumerate(zip(works, answers)):
            self.compare(row, "%d of %d at once" % (i, many), result_of(answer), self.direct["planned"].ask(work))

    def close(self):
        for direct in self.direct.values():
            direct.close()
        for connection in self.connections:
            connection.close()


def run_daemon(arguments, seed, *options):
    """All rows against one daemon of one shard; with options the small ones only. Whether it has a GPU, how many were wrong."""
    choice = ["--backend", arguments.backend] if arguments.backend else []
    with Daemon(arguments.kernserve, "--threads", "1", "--workspace", str(WORKSPACE), *choice, *options) as daemon:
        backend = "cpu" if metric(daemon.metrics(), "kernserve_device_info", device="cpu") else "cuda"
        gpu = backend == "cuda"
        run = Run(daemon, arguments.direct, backend, seed)
        for row in ROWS + (LARGE_ROWS + STAGED_ROWS if gpu and not options else []):
            run.alone(row)
            run.together(row, 3 if row in STAGED_ROWS else TOGETHER)
        run.close()
        text = daemon.metrics()
        launches = metric(text, "kernserve_launches_total")
        requests = metric(text, "kernserve_inference_requests_total", outcome="ok")
        print("%s %s: %d comparisons, %d wrong; %d requests in %d launches" %
              (backend, " ".join(options), run.compared, run.wrong, requests, launches))
        if not options and launches >= requests:
            print("WRONG no two requests shared a launch")
            run.wrong += 1
        if settle(daemon) != 0:
            print("WRONG the pinned pool is in use")
            run.wrong += 1
        run.wrong += daemon.stop() != 0
        return gpu, run.wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernserve")
    parser.add_argument("direct")
    parser.add_argument("--backend", choices=("cpu", "cuda"))
    arguments = parser.parse_args()
    seed = int(os.environ.get("KS_SEED") or time.time_ns() % 1_000_000_007)
    print("KS_SEED=%d" % seed)
    gpu, wrong = run_daemon(arguments, seed)
    if gpu:  # the small rows again, all copied
        wrong += run_daemon(arguments, seed + 1, "--mapped-max", "1")[1]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
