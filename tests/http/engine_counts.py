#!/usr/bin/env python3
"""What a small request takes, by the form of its body, with its plan in the cache, on a kept connection, on the CPU: allocations,
copies of tensor bytes and system calls. A count that grows is a failure.

    engine_counts.py DAEMON COUNTS     COUNTS: libcounts.so, preloaded into the daemon

Copies are memcpy's: bytes copied over the bytes of the tensor, in for a maximum (in >> out), out for an outer product (out >> in).
"""
import json
import mmap
import os
import random
import struct
import sys
import tempfile

from daemon import SKIP, Daemon, daemon_path, request
from forms import FORMS, Case, check_answer
from tensors import Tensor, random_tensor, count as count_of

ROUNDS = 200
CALLS, OWNERS = 512, ("kernserve", "libmicrohttpd", "cJSON", "others")
WORDS = 1 + CALLS + 3 * len(OWNERS)
NAMES = {0: "read", 1: "write", 9: "mmap", 11: "munmap", 12: "brk", 28: "madvise", 44: "sendto", 45: "recvfrom", 46: "sendmsg",
         47: "recvmsg", 202: "futex", 228: "clock_gettime", 232: "epoll_wait", 281: "epoll_pwait", 233: "epoll_ctl", 441: "epoll_pwait2"}
WAITS = (232, 281, 441)
# Of one request, at most: allocations of kernserve and of the libraries, copies in and out, system calls beyond epoll_wait, and
# KiB that are cleared. kernserve's allocations with JSON are the text of the answer, and chunks for the tree of a head that is
# not known yet. Two calls take each piece of a long body, and how many pieces it comes in follows from how the client sends and how quick
# this machine is.
# kernserve clears slots that rest, 64 KiB at a time, and where this test's process has to wait for a processor they rest between
# two requests. What a request takes itself it takes each time: so a form has several attempts.
ATTEMPTS = 5
LIMITS = {"plain_raw": (0, 0, 1, 0, 3, 4), "binary": (0, 0, 1, 0, 3, 4), "binary, new id": (2, 0, 1, 0, 3, 4),
          "oip_raw": (0, 0, 1, 0, 3, 4), "json": (2, 0, 0, 0, 3, 4), "plain_raw, 64 KiB": (0, 0, 1, 0, 6, 4),
          "plain_raw, 1 MiB": (0, 0, 1, 0, 64, 64),
          # A product copies its operands, which takes long where each memcpy is counted: it may go to a lane.
          "plain_raw, product": (0, 0, 2, 0, 5, 4), "named": (0, 0, 2, 0, 5, 4), "all named": (0, 0, 0, 0, 5, 4),
          "binary, named": (0, 0, 2, 0, 5, 4)}


class Table:
    """The counters of tests/counts.c."""

    def __init__(self, file):
        self.map = mmap.mmap(file.fileno(), WORDS * 8)

    def read(self):
        words = struct.unpack("%dQ" % WORDS, self.map[:WORDS * 8])
        rest, n = words[1 + CALLS:], len(OWNERS)
        return words[0], words[1:1 + CALLS], rest[:n], rest[n:2 * n], rest[2 * n:]


def difference(before, after, rounds):
    return tuple([(b - a) / rounds for a, b in zip(x, y)] for x, y in zip(before[1:], after[1:]))


def measure(daemon, table, form, case):
    """Calls by number; allocations, copied bytes and cleared bytes by owner, of one request."""
    new_id = form.endswith(", new id")
    rounds = ROUNDS if len(case.inputs[0].data) < 1 << 20 else 10
    if form in NAMED:
        datas, form = [NAMED[form](case)], "binary" if form.startswith("binary") else "plain_raw"
    else:
        form = form.split(",")[0]
        datas = [request("POST", *FORMS[form](case, "%d" % i if new_id else None)) for i in range(rounds if new_id else 1)]
    with daemon.connect() as connection:
        for i, tensor in enumerate(case.inputs):
            text = "/v2/tensors/t%d?shape=%s&datatype=%s" % (i, ",".join(map(str, tensor.shape)), tensor.datatype)
            connection.ask(request("PUT", text, (), tensor.data))
        check_answer(case, form, connection.ask(datas[0]), "0" if new_id else None)
        for data in datas[:50] * (1 if new_id or rounds < ROUNDS else 50):
            connection.ask(data)
        before = table.read()
        for i in range(rounds):
            connection.send(datas[i % len(datas)])
            answer = connection.answer()
            assert answer.status == 200, answer
        return difference(before, table.read(), rounds)


def named_raw(case):
    """The last input is a resident tensor."""
    shape = ",".join(map(str, case.inputs[0].shape))
    return request("POST", case.target() + "?shape=%s&INPUT1=@t1" % shape, (), case.inputs[0].data)


def all_named(case):
    return request("POST", case.target() + "?" + "&".join("INPUT%d=@t%d" % (i, i) for i in range(len(case.inputs))))


def named_binary(case):
    target, headers, body = FORMS["binary"](case, None)
    cut, data = int(headers[0][1]), case.inputs[0].data
    head = json.loads(body[:cut])
    head["inputs"][1]["parameters"] = {"tensor": "t1"}
    head = json.dumps(head).encode()
    return request("POST", target, [("Inference-Header-Content-Length", len(head))], head + data)


# Requests that name resident tensors take what those take that carry all their bytes.
NAMED = {"named": named_raw, "all named": all_named, "binary, named": named_binary}


def cases():
    """Of each form: a maximum of 4096 FP32, or of as many as its name says, and an outer product of 64 KiB; where a form has none such:
    None."""
    generator = random.Random(3)
    row, left, right = (random_tensor(generator, "FP32", s) for s in ([1, 4096], [128, 1], [1, 128]))
    long = {"64 KiB": [16384, 1], "1 MiB": [1 << 18, 1]}  # as long an answer
    short = random_tensor(generator, "FP32", [1, 64])
    product = Case("matmul", [left, right])
    tall, weight = random_tensor(generator, "FP64", [128, 16]), random_tensor(generator, "FP64", [16, 1])
    column = Case("matmul", [tall, weight])  # 16 KiB in
    vector = Case("reduce", [Tensor("FP32", [4096], row.values)], model="reduce_vec", fixed={"op": "sum"})
    maximum = Case("reduce", [row], op="max")
    return {"plain_raw": (maximum, product), "binary": (maximum, product), "binary, new id": (maximum, product),
            "plain_raw, product": (column, None), "named": (column, None), "all named": (column, None), "binary, named": (column, None),
            "oip_raw": (vector, None), "json": (Case("reduce", [short], op="max"), product),
            **{"plain_raw, " + size: (Case("reduce", [random_tensor(generator, "FP32", shape)], op="max"), None)
               for size, shape in long.items()}}


def counts_of(daemon, table, form, maximum, product):
    """Copies in, and what LIMITS limits."""
    calls, allocations, copied, cleared = measure(daemon, table, form, maximum)
    copies_in = sum(copied) / len(maximum.inputs[0].data)
    copies_out = 0.0
    if product:
        copies_out = sum(measure(daemon, table, form, product)[2]) / (4 * count_of(product.expected.shape))
    named = ["%s %.2f" % (NAMES.get(n, "call %d" % n), count) for n, count in enumerate(calls) if count > 0.005]
    print("%-16s  %s | %.2f, %.2f | %.1f | %s" % (form, "  ".join("%.2f" % a for a in allocations), copies_in, copies_out,
                                                sum(cleared) / 1024, ", ".join(named)))
    beyond = sum(count for n, count in enumerate(calls) if n not in WAITS)
    return copies_in, (allocations[0], sum(allocations[1:]), copies_in, copies_out, beyond, sum(cleared) / 1024)


def main():
    if len(sys.argv) < 3 or not os.access(sys.argv[2], os.R_OK):
        sys.exit(SKIP)
    bad = []
    with tempfile.NamedTemporaryFile() as file:
        environment = {"LD_PRELOAD": os.path.abspath(sys.argv[2]), "KS_COUNTS": file.name}
        with Daemon(daemon_path(), "--backend", "cpu", "--pinned-bytes", "64M", "--threads", "1", environment=environment) as daemon:
            table = Table(file)
            if table.read()[0] != 1:
                print("the kernel does not hand system calls over (syscall user dispatch, Linux 5.11 on x86-64)")
                sys.exit(SKIP)
            print("of one request    allocations: %s | copies in, out | KiB cleared | system calls" % ", ".join(OWNERS))
            for form, (maximum, product) in cases().items():
                for _ in range(ATTEMPTS):
                    copies_in, found = counts_of(daemon, table, form, maximum, product)
                    within = all(count <= limit + 0.04 for count, limit in zip(found, LIMITS[form]))
                    if within:
                        break
                if not within:
                    bad.append("%s: %s, at most %s" % (form, " ".join("%.2f" % count for count in found), LIMITS[form]))
                if copies_in < 0.9 and LIMITS[form][2] > 0:  # the ends of pieces are too short to be counted
                    bad.append("%s: the copy in was not seen, so nothing is counted" % form)
            assert daemon.stop() == 0
    sys.exit("\n".join(bad) if bad else 0)


main()
