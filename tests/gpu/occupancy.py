#!/usr/bin/env python3
"""What /plan says of a kernel's occupancy is what Nsight Compute says of its launch: registers, shared memory, CTAs on an SM by each limit,
warps.

occupancy.py KERNSERVE NCU

The daemon runs under ncu with metrics of the launch alone, which need no second pass. 20 shapes of each op; a launch is found by its
threads, registers and shared memory. Exit code 77 without a GPU.
"""

import csv
import io
import json
import os
import random
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "http"))
from daemon import Daemon, check, request, wrongs  # noqa: E402

SHAPES = 20
SHARED_SM, RESERVED = 228 << 10, 1 << 10  # bytes of shared memory of an SM, and of each CTA for the system: sm_90
SIZES = {"FP16": 2, "FP32": 4, "FP64": 8}
LAUNCH = {"threads": "launch__block_size", "registers": "launch__registers_per_thread", "static": "launch__shared_mem_per_block_static",
          "dynamic": "launch__shared_mem_per_block_dynamic"}
LIMITS = {"registers": "launch__occupancy_limit_registers", "shared": "launch__occupancy_limit_shared_mem",
          "threads": "launch__occupancy_limit_warps", "ctas": "launch__occupancy_limit_blocks"}
WARPS = "sm__maximum_warps_per_active_cycle_pct"
CONFIGURED = "launch__shared_mem_config_size"
PATIENT = ("--stall-timeout", "10m", "--request-timeout", "10m")  # ncu holds each launch back, a first one of a module for seconds
SHARED_STEP = 128  # what a CTA takes of shared memory is a multiple of so many bytes


def shapes(op, rng):
    """Shapes of the inputs, and other parameters of the query."""
    if op == "matmul":
        m, k, n = (rng.choice((1, 7, 64, 100, 512, 1000)) for _ in range(3))
        return [[m, k], [k, n]], ""
    shape = [rng.choice((1, 3, 64, 1000)), rng.choice((5, 32, 1000, 1024, 10000))]
    return [shape], "&axis=%d" % rng.randrange(2) + (rng.choice(("&op=sum", "&op=max", "&op=argmin")) if op == "reduce" else "")


def number(row, name):
    """ncu writes thousands with commas; Kbyte where it is asked for no unit."""
    return float(row[name].replace(",", ""))


def read(path):
    with open(path) as file:
        lines = [line for line in file if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("".join(lines))))[1:]  # the first one has units
    return {tuple(round(number(row, LAUNCH[name])) for name in LAUNCH): row for row in rows}


def plans_of(daemon):
    """Each shape asked for, and run once."""
    rng, out = random.Random(7), []
    for op in ("softmax", "reduce", "matmul"):
        for _ in range(SHAPES):
            inputs, more = shapes(op, rng)
            datatype = rng.choice(sorted(SIZES))
            query = "%s?%s&datatype=%s%s" % ("%s", "&".join("shape=%d,%d" % tuple(s) for s in inputs), datatype, more)
            body = bytes(SIZES[datatype] * sum(s[0] * s[1] for s in inputs))
            with daemon.connect(120) as connection:
                told = connection.ask(request("GET", "/v2/models/%s/" % op + query % "plan"))
                answer = told and connection.ask(request("POST", "/v2/models/%s/" % op + query % "infer", (), body))
            if answer is None or told.status != 200 or answer.status != 200:
                check(False, op, query, told, answer, daemon.process.poll(), daemon.said()[-2000:])
                return out
            plan = json.loads(told.body)
            out.append((op, query, plan))
    return out


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
    path, ncu = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        log = folder + "/launches.csv"
        under = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--log-file", log, "--graph-profiling", "node",
                 "--metrics", ",".join([*LAUNCH.values(), *LIMITS.values(), WARPS, CONFIGURED])]
        with Daemon(path, "--backend", "cuda", "--threads", "1", "--autotune", "off", *PATIENT, under=under, must_start=False) as daemon:
            if not daemon.ready_within(300):
                print("no GPU, or no permission for its counters")
                return 77
            plans = plans_of(daemon)
            check(daemon.stop(300) == 0, "the daemon's end")
        if wrongs():
            with open(log) as file:
                print("".join(line for line in file if not line.startswith('"'))[-2000:])  # what ncu says beside its table
        launches = read(log)
    found = sum(same("%s %s" % (op, query), plan, launches) for op, query, plan in plans)
    check(found >= 2 * SHAPES, "plans with an occupancy", found)
    print("%d plans, %d wrong" % (found, wrongs()))
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
