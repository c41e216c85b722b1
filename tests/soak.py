#!/usr/bin/env python3
"""Good, bad and broken-off requests in random order: the daemon's memory, descriptors and threads must not grow.

soak.py KERNSERVE [--count N]            default 10,000 requests to warm up, then three parts of as many. What leaks grows in each part; a
                                         buffer that some case uses first grows in one
soak.py KERNSERVE --under "valgrind ..." runs the daemon under a command, which then judges; growth is not looked at
KS_SEED=N repeats a run.
"""

import argparse
import os
import random as randomness
import shlex
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "http"))
from daemon import Daemon, settle  # noqa: E402
from forms import FORMS, TRANSPORTS, Wrong, check_answer, fits, random_case  # noqa: E402
from refusal_rows import CLOSES, OPTIONS, ROWS  # noqa: E402
from refusals import answer_fault  # noqa: E402

PARTS = 3
GROWTH_KIB = 256  # in a part
POOL_KIB = 16 << 10
SMALL = 20000  # bytes of a bad request: the mix shall be many requests, not large ones


def pool_kib(pid):
    """Resident KiB of the pool's slots: the mappings for which huge pages are asked (flag hg). A slot's first request
    touches 2 MiB at once, at any time of the run; the pool's own bound holds for them, not that of growth."""
    resident = pool = 0
    with open("/proc/%d/smaps" % pid) as file:
        for line in file:
            name, *values = line.split()
            if name == "Rss:":
                resident = int(values[0])
            elif name == "VmFlags:" and "hg" in values:
                pool += resident
    return pool


def size_of(pid):
    """Resident KiB, threads and open descriptors of a process."""
    with open("/proc/%d/status" % pid) as file:
        status = file.read()
    number = lambda name: int(status.split(name + ":")[1].split()[0])
    pool = pool_kib(pid)
    return {"resident KiB": number("VmRSS") - pool, "pool KiB": pool, "threads": number("Threads"),
            "descriptors": len(os.listdir("/proc/%d/fd" % pid))}


class Mix:
    """Draws requests and judges their answers, on six kept connections."""

    def __init__(self, daemon, random):
        self.daemon, self.random = daemon, random
        self.slots = [None] * 6
        self.cases = [random_case(random, small=True) for _ in range(200)]
        self.bad = [row for row in ROWS if len(row.data) < SMALL]
        self.counts = {"good": 0, "refused": 0, "broken off": 0}
        self.faults = []

    def step(self):
        place = self.random.randrange(len(self.slots))
        if self.slots[place] is None:
            self.slots[place] = self.daemon.connect(120)
        connection, kind = self.slots[place], self.random.random()
        try:
            if kind < 0.65:
                stays = self.good(connection)
            elif kind < 0.97:
                stays = self.refused(connection)
            else:
                stays = self.broken_off(connection)
        except (Wrong, OSError, KeyError, ValueError) as fault:
            self.faults.append("%s: %s" % (type(fault).__name__, fault))
            stays = False
        if not stays:
            connection.close()
            self.slots[place] = None

    def good(self, connection):
        case = self.random.choice(self.cases)
        form = self.random.choice([f for f in FORMS if fits(f, case)])
        transport = self.random.choice(("whole", "whole", "whole", "chunked", "gzip"))
        answer = connection.ask(TRANSPORTS[transport](self.random, *FORMS[form](case, "soak")))
        check_answer(case, form, answer, "soak")
        self.counts["good"] += 1
        return not answer.says_close()

    def refused(self, connection):
        row = self.random.choice(self.bad)
        answer = connection.ask(row.data)
        fault = answer_fault(row, answer)
        if fault:
            raise Wrong("%s: %s" % (row.name, fault))
        self.counts["refused"] += 1
        return row.then != CLOSES and not answer.says_close()

    def broken_off(self, connection):
        data = TRANSPORTS["whole"](self.random, *FORMS["plain_raw"](self.random.choice(self.cases), None))
        connection.send(data[:self.random.randrange(1, len(data) + 1)])
        self.counts["broken off"] += 1
        return False

    def run(self, count):
        for _ in range(count):
            self.step()
            if len(self.faults) > 20:
                return
        for place, connection in enumerate(self.slots):
            if connection:
                connection.close()
                self.slots[place] = None


def growth_faults(sizes):
    """sizes: before the first part and after each."""
    faults = []
    for what, limit in (("resident KiB", GROWTH_KIB), ("threads", 0), ("descriptors", 0)):
        print("%-13s %s" % (what, " ".join("%8d" % size[what] for size in sizes)))
        least = min(after[what] - before[what] for before, after in zip(sizes, sizes[1:]))
        if least > limit:
            faults.append("%s grew by %d and more in each part, allowed %d" % (what, least, limit))
    print("%-13s %s" % ("pool KiB", " ".join("%8d" % size["pool KiB"] for size in sizes)))
    if sizes[-1]["pool KiB"] > POOL_KIB:
        faults.append("the pool has %d KiB, allowed %d" % (sizes[-1]["pool KiB"], POOL_KIB))
    return faults


def rest(daemon):
    """Until the connections of the last part are gone, then its size."""
    settle(daemon)
    time.sleep(0.5)
    return size_of(daemon.process.pid)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernserve")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--under", default="")
    arguments = parser.parse_args()
    seed = int(os.environ.get("KS_SEED") or time.time_ns() % 1_000_000_007)
    print("KS_SEED=%d" % seed)
    under = shlex.split(arguments.under)
    options = ["--max-body", "4M", "--max-json", "1M", "--pinned-bytes", str(POOL_KIB << 10), "--threads", "2"]
    if under:  # everything takes fifty times as long
        options += ["--stall-timeout", "300s", "--request-timeout", "300s"]
    with Daemon(arguments.kernserve, *options, under=under, wait=120) as daemon:
        mix = Mix(daemon, randomness.Random(seed))
        faults = []
        if under:
            mix.run(arguments.count)
        else:
            begun, sizes = time.monotonic(), []
            for _ in range(1 + PARTS):
                mix.run(arguments.count)
                sizes.append(rest(daemon))
            print("%.0f requests a second" % ((1 + PARTS) * arguments.count / (time.monotonic() - begun)))
            faults = growth_faults(sizes)
        used = settle(daemon, 20)
        if used != 0:
            faults.append("%s bytes of the pinned pool are still in use" % used)
        code = daemon.stop(180)
        if code:
            faults.append("the daemon ended with %d" % code)
        if under:
            print(daemon.said()[-3000:])
    print(mix.counts)
    for fault in mix.faults + faults:
        print("WRONG " + fault)
    return 1 if mix.faults or faults else 0


if __name__ == "__main__":
    sys.exit(main())
