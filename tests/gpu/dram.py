#!/usr/bin/env python3
"""The bytes that /plan says of a plan are those that its kernels move between the GPU's memory and its caches, by Nsight Compute.

dram.py KERNSERVE BENCH_OPS NCU [--keep FILE]    the table also goes to FILE

20 shapes of each op, beyond the L2 cache: each is launched once (bench_ops --rows) from cold caches. What a kernel has written and
the L2 cache still holds at its end is on no counter of the memory; so softmax, which writes as much as it reads, has shapes of 3.75 GiB,
and reductions and products have small outputs. Exit code 77 without a GPU, or without permission for its counters.
"""

import csv
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "http"))
from daemon import Daemon, check, wrongs  # noqa: E402

SHAPES, FAR = 20, 0.05
SIZES = {"BF16": 2, "FP16": 2, "FP32": 4, "FP64": 8}
METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum")
OWN = re.compile("bench_fill|ops_copy16")


def drawn(op, rng):
    """Label of a row of bench_ops, and the query of the same plan."""
    datatype = rng.choice(sorted(SIZES))
    size = SIZES[datatype]
    if op == "matmul":
        k, n = rng.choice((1000, 2048, 4096, 8192)), rng.choice((1, 2, 8, 16, 32))
        m = (1 << 30) // size // k
        return "matmul %s %dx%d * %dx%d" % (datatype, m, k, k, n), "matmul/plan?shape=%d,%d&shape=%d,%d&datatype=%s" % (m, k, k, n, datatype)
    axis = rng.randrange(2)
    long = rng.choice((1000, 1024, 4096, 5000, 8192))
    most = (15 << 27 if op == "softmax" else 1 << 30) // size  # the largest output is 2 GiB - 1
    shape = (most // long, long) if axis else (long, most // long // 8 * 8)
    if op == "softmax":
        return "softmax %s %dx%d axis %d" % (datatype, *shape, axis), "softmax/plan?shape=%d,%d&datatype=%s&axis=%d" % (*shape, datatype, axis)
    kind = rng.choice(("sum", "mean", "max", "min", "argmax", "l2norm", "logsumexp"))
    return ("%s %s %dx%d axis %d" % (kind, datatype, *shape, axis),
            "reduce/plan?shape=%d,%d&datatype=%s&axis=%d&op=%s" % (*shape, datatype, axis, kind))


def said(path, queries):
    """Kernel and bytes of each plan."""
    with Daemon(path, "--backend", "cuda", "--threads", "1", "--autotune", "off", "--max-body", "16G", "--max-output", "2147483647", must_start=False, wait=120) as daemon:
        if not daemon.ready_within(120):
            check(daemon.process.poll() == 69, "the daemon does not start", daemon.said()[-500:])
            return None
        plans = [json.loads(daemon.get("/v2/models/" + query).body) for query in queries]
        check(daemon.stop(60) == 0, "the daemon's end")
    for plan, query in zip(plans, queries):
        check("bytes" in plan, query, plan)
    return plans


def launched(ncu, metrics, bench, cases, *options):
    """What ncu writes of one launch of each row; None without a GPU or its counters."""
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/rows", "w") as file:
            file.writelines(label + "\n" for label, _ in cases)
        done = subprocess.run([ncu, "--csv", *options, "--print-units", "base", "--metrics", ",".join(metrics), "--log-file", folder + "/log",
                               bench, "--once", "--rows", folder + "/rows"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with open(folder + "/log") as file:
            log = file.read()
    if done.returncode == 77 or "ERR_NVGPUCTRPERM" in log:
        return None
    check(done.returncode == 0 and "refused" not in done.stdout, done.returncode, done.stdout[-500:], log[-500:])
    return log


def moved(text):
    """Bytes read and written by the kernels of each row; a row begins with the kernels that fill its inputs."""
    rows, filled, launches = [], False, {}
    for row in csv.DictReader(io.StringIO("".join(line for line in text.splitlines(True) if line.startswith('"')))):
        at = launches.setdefault(int(row["ID"]), {"name": row["Kernel Name"]})
        at[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    for _, launch in sorted(launches.items()):
        fills = "bench_fill" in launch["name"]
        if fills and not filled:
            rows.append([0.0, 0.0, 0])
        filled = fills
        if rows and not OWN.search(launch["name"]):
            rows[-1] = [rows[-1][0] + launch[METRICS[0]], rows[-1][1] + launch[METRICS[1]], rows[-1][2] + 1]
    return rows


def main():
    path, bench, ncu = sys.argv[1:4]
    rng, cases = random.Random(20), []
    for op in ("softmax", "reduce", "matmul"):
        while sum(query.startswith(op) for _, query in cases) < SHAPES:
            case = drawn(op, rng)
            if case not in cases:
                cases.append(case)
    plans = said(path, [query for _, query in cases])
    if plans is None:
        print("no GPU")
        return 1 if wrongs() else 77
    log = launched(ncu, METRICS, bench, cases)
    if log is None:
        print("no GPU, or no permission for its counters")
        return 77
    rows = moved(log)
    check(len(rows) == len(cases), "rows with kernels", len(rows), len(cases))
    off, held, lines = 0.0, 0, []
    for (label, _), plan, (read, written, kernels) in zip(cases, plans, rows):
        share = (read + written) / plan["bytes"]
        off, held = max(off, abs(share - 1)), held + (abs(share - 1) <= FAR)
        lines.append("%-34s %-28s %8.1f MB said, %8.1f read + %7.1f written, %6.4f, %d kernels" % (
            label, plan["kernel"], plan["bytes"] / 1e6, read / 1e6, written / 1e6, share, kernels))
        print(lines[-1])
        check(abs(share - 1) <= FAR, label, "moves", share, "of what its plan says")
    if sys.argv[4:5] == ["--keep"]:
        with open(sys.argv[5], "w") as file:
            file.writelines(line + "\n" for line in lines)
    print("%d plans, %d within %.0f %%, the farthest %.1f %%" % (len(rows), held, 100 * FAR, 100 * off))
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
