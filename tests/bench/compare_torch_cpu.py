#!/usr/bin/env python3
"""PyTorch and the CPU backend's operations on the same tensors, in one process, alternating: the rows and the opponents of compare_torch.py.

compare_torch_cpu.py LIBRARY [TEXT...]   LIBRARY: libks_bench_ops_cpu.so; only rows in whose label every TEXT stands
--drawn N: N rows of each operation drawn by --seed, beside the tables' rows (--no-tables: alone). Rows of --least to --most bytes, in and
out together, and of at most --flops. --json FILE also writes the rows there. --callers 2: two threads at once on each side.

One request of the CPU backend is one thread's work: lanes are the parallelism. So each side has one thread (torch.set_num_threads(1)),
and its time is that thread's processor time, which other processes of the host do not lengthen: medians of samples that alternate.
--callers 2: wall time of two callers that work at once, the least of the samples; PyTorch's also as one caller whose calls take
two threads each, and the better of the two counts. Eager PyTorch, whose memory stays warm: the allocator gives none back to the system.
Values are compared with float64 by the bounds of the op tests; exit code 1 when one is off.
"""

import argparse
import ctypes
import json
import math
import os
import statistics
import sys
import threading
import time

WARM = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 32), "MALLOC_ARENA_MAX": "1"}
if __name__ == "__main__" and any(os.environ.get(name) != value for name, value in WARM.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **WARM})

import torch

import compare_torch as ct
import drawn_rows

SAMPLE_S, SAMPLES_LEAST, SAMPLES_MOST = 0.004, 7, 41
SLOW = 0.7  # rows below it are listed
FAMILIES = {"softmax": ("softmax", "softmax_causal", "softmax_lengths"), "norm": ct.NORMS, "gather": ct.GATHERS, "topk": ct.TOPKS, "scan": ct.SCANS,
            "histogram": ct.HISTOGRAMS, "quantize": ct.QUANTIZERS, "dequantize": ct.DEQUANTIZERS, "search": ct.SEARCHES, "attention": ct.ATTENTIONS,
            "matmul8": ct.NARROWS, "layout": ("transpose", "slice", "pad", "concat"), "window": ("window",),
            "reduce": (*ct.TORCH, "sum_segments")}


class Nothing:
    """A stream: on the CPU work is done when a call returns."""
    cuda_stream = 0

    def synchronize(self):
        pass


def family_of(row):
    return "map" if ct.maps(row) else next(name for name, ops in FAMILIES.items() if row.op.decode() in ops)


# --- one caller -------------------------------------------------------------------------------------------------------------


def thread_s(call, count):
    begun = time.thread_time_ns()
    for _ in range(count):
        call(0)
    return (time.thread_time_ns() - begun) / 1e9


def calls_of(sides):
    """Calls in a sample, so that the slower side's takes SAMPLE_S or so."""
    counts = []
    for call in sides:
        call(0)
        counts.append(max(1, int(SAMPLE_S / max(1e-9, min(thread_s(call, 1) for _ in range(2))))))
    return counts


def times_alone(sides, side_s):
    """Microseconds of a call of each side: medians."""
    counts = calls_of(sides)
    samples, spent = [[] for _ in sides], 0
    while len(samples[0]) < SAMPLES_MOST and (len(samples[0]) < SAMPLES_LEAST or spent < side_s * len(sides)):
        for call, count, taken in zip(sides, counts, samples):
            taken.append(thread_s(call, count) / count)
            spent += taken[-1] * count
    return [1e6 * statistics.median(taken) for taken in samples]


# --- two callers ------------------------------------------------------------------------------------------------------------


class Callers:
    """Threads that stay, each with its set of tensors; a sample is from the first one's start to the last one's end."""

    def __init__(self, count):
        self.count, self.work = count, None
        self.gate, self.end = threading.Barrier(count + 1), threading.Barrier(count + 1)
        for i in range(count):
            threading.Thread(target=self.serve, args=(i,), daemon=True).start()

    def serve(self, i):
        torch.set_num_threads(1)
        while True:
            self.gate.wait()
            call, count = self.work
            for _ in range(count):
                call(i)
            self.end.wait()

    def sample(self, call, count):
        self.work = call, count
        begun = time.perf_counter()
        self.gate.wait()
        self.end.wait()
        return (time.perf_counter() - begun) / (count * self.count)


def wide_sample(call, count, threads):
    torch.set_num_threads(threads)
    begun = time.perf_counter()
    for _ in range(count * threads):
        call(0)
    took = (time.perf_counter() - begun) / (count * threads)
    torch.set_num_threads(1)
    time.sleep(0.002)  # its threads look for more work for a while
    return took


def times_together(callers, sides, side_s):
    counts, best, spent, rounds = calls_of(sides), [math.inf] * (2 * len(sides)), 0, 0
    while rounds < SAMPLES_MOST and (rounds < SAMPLES_LEAST or spent < side_s * len(best)):
        rounds += 1
        for i, (call, count) in enumerate(zip(sides, counts)):
            ways = [callers.sample(call, count)] + ([wide_sample(call, count, callers.count)] if i != 1 else [])
            for way, took in enumerate(ways):
                best[2 * i + way] = min(best[2 * i + way], took)
                spent += took * count * callers.count
    return [1e6 * min(best[2 * i:2 * i + 2]) for i in range(len(sides))]


# --- rows -------------------------------------------------------------------------------------------------------------------


def rows_of(library, arguments):
    def fits(row):
        try:
            work = library.plan(row)
        except RuntimeError:
            return False
        return arguments.least <= work.bytes <= arguments.most and work.flops <= arguments.flops
    if not arguments.no_tables:
        yield from filter(fits, library.rows())
    if arguments.drawn:
        functions = {name: draw for name, draw in drawn_rows.OPERATIONS.items() if not arguments.operations or name in arguments.operations}
        yield from ct.drawn_of(functions, arguments.seed, arguments.drawn, fits)


def measure(case, arguments, callers):
    sides = [case.theirs, case.ours] + ([case.theirs_compiled] if case.compiled else [])
    side_s = arguments.side_ms / 1e3
    theirs, ours, *others = times_together(callers, sides, side_s) if callers else times_alone(sides, side_s)
    return min(theirs, *others) if others else theirs, ours


def summary(rows, seconds):
    print()
    for family in dict.fromkeys(r["family"] for r in rows):
        ratios = [r["ratio"] for r in rows if r["family"] == family]
        print("geometric mean of %-11s %6.2f  (%d rows, least %.2f)" % (family, ct.geometric(ratios), len(ratios), min(ratios)))
    print("geometric mean of all         %6.2f  (%d rows)" % (ct.geometric([r["ratio"] for r in rows]), len(rows)))
    slow = sorted((r for r in rows if r["ratio"] < SLOW), key=lambda r: r["ratio"])
    for r in slow:
        print("below %g  %5.2f  %s" % (SLOW, r["ratio"], r["label"]))
    off = sum(r["wrong"] > 0 for r in rows)
    print("%d rows, %d below 1, %d below %g, %d with results further from float64 than allowed, %.0f s" %
          (len(rows), sum(r["ratio"] < 1 for r in rows), len(slow), SLOW, off, seconds))
    return 1 if off else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("library")
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_007)
    parser.add_argument("--drawn", type=int, default=0)
    parser.add_argument("--operations", nargs="*", help="of the drawn rows: those alone")
    parser.add_argument("--no-tables", action="store_true")
    parser.add_argument("--least", type=float, default=256 << 10)
    parser.add_argument("--most", type=float, default=16 << 20)
    parser.add_argument("--flops", type=float, default=2e9)
    parser.add_argument("--callers", type=int, default=1)
    parser.add_argument("--side-ms", type=float, default=60)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    ct.DEVICE, ct.SETS_LEAST, ct.SETS_MOST = "cpu", arguments.callers, arguments.callers
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    begun, library, stream = time.monotonic(), ct.Library(arguments.library), Nothing()
    callers = Callers(arguments.callers) if arguments.callers > 1 else None
    generator = torch.Generator().manual_seed(arguments.seed)
    print("PyTorch %s, callers: %d; copy of one thread %.0f GB/s (read + write); --seed %d" %
          (torch.__version__, arguments.callers, library.copy_gbs, arguments.seed))
    print("%-62s %10s %8s %10s %7s  %s" % ("", "ours us", "GB/s", "PyTorch us", "ratio", "way"))
    rows = []
    for row in rows_of(library, arguments):
        label = row.label.decode()
        if not (ct.maps(row) or row.op.decode() in ct.NAMED) or not all(" " + text in " " + label for text in arguments.texts):
            continue
        case = ct.case_of(library, row, generator, stream)
        bad = case.wrong()
        theirs, ours = measure(case, arguments, callers)
        rows.append({"label": label, "family": family_of(row), "bytes": case.work.bytes, "us": ours, "torch_us": theirs, "ratio": theirs / ours,
                     "wrong": bad})
        refuses = "; it refuses, its BF16" if getattr(case, "wide", None) else ""
        print("%-62s %10.1f %8.2f %10.1f %7.2f  %s%s%s" % (label, ours, case.work.bytes / ours / 1e3, theirs, theirs / ours, case.work.kernel.decode(), refuses,
                                                         "  WRONG: %d elements" % bad if bad else ""), flush=True)
    if not rows:
        print("no row has all of: %s" % " ".join(arguments.texts))
        return 1
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)
    return summary(rows, time.monotonic() - begun)


if __name__ == "__main__":
    sys.exit(main())
