#!/usr/bin/env python3
"""What /plan says of a kernel's occupancy is what Nsight Compute says of its launch: registers, shared memory, CTAs on an SM by each limit,
warps.

occupancy.py KERNSERVE BENCH_OPS NCU

20 shapes of each op: the daemon says their plans, bench_ops launches each once under ncu, with metrics of the launch alone, which need no
second pass. A launch is found by its threads, registers and shared memory. Exit code 77 without a GPU, or without permission for its counters.
"""

import csv
import io
import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "http"))
from daemon import check, wrongs  # noqa: E402
from dram import launched, said  # noqa: E402

SHAPES = 20
SHARED_SM, RESERVED = 228 << 10, 1 << 10  # bytes of shared memory of an SM, and of each CTA for the system: sm_90
DATATYPES = ("FP16", "FP32", "FP64")
LAUNCH = {"threads": "launch__block_size", "registers": "launch__registers_per_thread", "static": "launch__shared_mem_per_block_static",
          "dynamic": "launch__shared_mem_per_block_dynamic"}
LIMITS = {"registers": "launch__occupancy_limit_registers", "shared": "launch__occupancy_limit_shared_mem",
          "threads": "launch__occupancy_limit_warps", "ctas": "launch__occupancy_limit_blocks"}
WARPS = "sm__maximum_warps_per_active_cycle_pct"
CONFIGURED = "launch__shared_mem_config_size"
SHARED_STEP = 128  # what a CTA takes of shared memory is a multiple of so many bytes


def drawn(op, rng):
    """Words of a row of bench_ops, and the query of the same plan."""
    datatype = rng.choice(DATATYPES)
    if op == "matmul":
        m, k, n = (rng.choice((1, 7, 64, 100, 512, 1000)) for _ in range(3))
        return "matmul %s %dx%d * %dx%d" % (datatype, m, k, k, n), "matmul/plan?shape=%d,%d&shape=%d,%d&datatype=%s" % (m, k, k, n, datatype)
    rows, columns, axis = rng.choice((1, 3, 64, 1000)), rng.choice((5, 32, 1000, 1024, 10000)), rng.randrange(2)
    kind = rng.choice(("sum", "max", "argmin")) if op == "reduce" else op
    return ("%s %s %dx%d axis %d" % (kind, datatype, rows, columns, axis),
            "%s/plan?shape=%d,%d&datatype=%s&axis=%d%s" % (op, rows, columns, datatype, axis, "&op=" + kind if op == "reduce" else ""))


def number(row, name):
    """ncu writes thousands with commas; Kbyte where it is asked for no unit."""
    return float(row[name].replace(",", ""))


def read(log):
    lines = [line for line in log.splitlines(True) if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("".join(lines))))[1:]  # the first one has units
    return {tuple(round(number(row, LAUNCH[name])) for name in LAUNCH): row for row in rows}


def same(name, plan, launches):
    of = plan["occupancy"]
    if of is None:
        return 0  # a library's kernel
    row = launches.get((plan["threads"], of["registers"], of["static_shared_bytes"], of["dynamic_shared_bytes"]))
    check(row is not None, name, "was not launched as the plan says", plan["kernel"], of)
    if row is None:
        return 0
    theirs = {limit: round(number(row, metric)) for limit, metric in LIMITS.items()}
    # ncu's limit by shared memory is that of the part of the L1 cache which the driver gave this launch, no larger than it has to be;
    # the plan's is that of all that an SM has.
    asked = of["static_shared_bytes"] + of["dynamic_shared_bytes"] + RESERVED
    taken = -(-asked // SHARED_STEP) * SHARED_STEP
    check(theirs.pop("shared") in (round(number(row, CONFIGURED)) // taken, of["ctas_by"]["shared"]), name, of, row[CONFIGURED], theirs)
    check(of["ctas_by"]["shared"] in (0, SHARED_SM // taken), name, of, taken)
    check(theirs == {limit: of["ctas_by"][limit] for limit in theirs}, name, of, theirs)
    check(abs(100 * of["warps"] / of["warps_max"] - number(row, WARPS)) < 0.1, name, of, row[WARPS])
    return 1


def main():
    path, bench, ncu = sys.argv[1:4]
    rng = random.Random(7)
    cases = [drawn(op, rng) for op in ("softmax", "reduce", "matmul") for _ in range(SHAPES)]
    plans = said(path, [query for _, query in cases])
    if plans is None:
        print("no GPU")
        return 1 if wrongs() else 77
    log = launched(ncu, [*LAUNCH.values(), *LIMITS.values(), WARPS, CONFIGURED], bench, cases, "--page", "raw")
    if log is None:
        print("no GPU, or no permission for its counters")
        return 77
    launches = read(log)
    found = sum(same(query, plan, launches) for (_, query), plan in zip(cases, plans))
    check(found >= 2 * SHAPES, "plans with an occupancy", found)
    print("%d plans, %d wrong" % (found, wrongs()))
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
