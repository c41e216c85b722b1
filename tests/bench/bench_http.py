#!/usr/bin/env python3
"""kernserve, a bare server and a Python server under the same load, in turn; one table with their ratios.

bench_http.py BUILD [--quick] [--minutes M] [--rounds 3] [--threads N] [--split] [--peer PYTHON] [--out FILE] [-- OPTION...]

BUILD        folder in which target bench_http was built
--quick      the rows that something is wanted of, 1 minute; else all rows, 8 minutes. A run lasts as long as the minutes leave
--threads    of kernserve (shards), of the bare server and of the load generator, each; half of the cores
--split      servers on the first half of the cores, load generators on the others; else all share all
--peer       interpreter that has aiohttp and PyTorch or NumPy (python3); "none": do without
--out        also write the table there
OPTION...    kernserve's own, behind --threads and --queue

Each group of rows is one kind of work and a number of connections. Its sides run one after the other, round after round, and
the table has medians of the rounds. Exit code 1: errors were answered, or a side gave another result than kernserve."""
import argparse
import collections
import datetime
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from daemon import Daemon, metric  # noqa: E402
from sides import Load, Side, answer_of, elements, request_of  # noqa: E402

# where: cpu, gpu or both. quick: the forms that a quick run has, full: what the full one adds.
Work = collections.namedtuple("Work", "model shapes connections where quick full")
Wanted = collections.namedtuple("Wanted", "where name work side figure least most")

ALL = ("binary", "json", "peer", "peer json")
WORKS = [
    Work("softmax", ("1,256",), 1, "cpu", ("raw",), ()),
    Work("softmax", ("1,256",), 16, "cpu", ("raw", "binary", "json", "peer"), ("peer json",)),
    Work("softmax", ("1,64",), 128, "both", (), ("raw",) + ALL),
    Work("softmax", ("1,1024",), 1, "gpu", ("raw",), ("binary", "json", "peer")),
    Work("softmax", ("1,1024",), 16, "both", (), ("raw",) + ALL),
    Work("softmax", ("1,1024",), 128, "both", ("raw", "binary", "json", "peer"), ("peer json",)),
    Work("softmax", ("1,1024",), 1024, "both", (), ("raw", "binary", "json")),
    Work("softmax", ("1,16384",), 128, "both", (), ("raw",) + ALL),
    Work("softmax", ("1,262144",), 16, "both", ("raw",), ALL),
    Work("softmax", ("4096,1024",), 8, "both", ("raw",), ("binary", "json", "peer")),
    Work("softmax", ("16384,1024",), 4, "both", (), ("raw", "binary")),
    Work("reduce", ("1,1024",), 128, "both", (), ("raw",) + ALL),
    Work("reduce", ("256,1024",), 16, "both", (), ("raw", "binary", "peer")),
    Work("matmul", ("32,32", "32,32"), 128, "both", (), ("raw",) + ALL),
    Work("matmul", ("512,512", "512,512"), 16, "both", (), ("raw", "binary", "peer")),
]
ROW, ROW_1K = ("softmax", ("1,1024",)), ("softmax", ("1,256",))
WANTED = [
    Wanted("gpu", "4 KiB rows, plain raw, of the bare batched server", ROW + (128,), "raw", "rate/bare", 0.75, None),
    Wanted("gpu", "the same, times the Python server", ROW + (128,), "raw", "rate/peer", 50, None),
    Wanted("gpu", "the same, p99 over p50", ROW + (128,), "raw", "p99_us/p50_us", None, 3),
    Wanted("gpu", "4 KiB rows, OIP binary, of the bare batched server", ROW + (128,), "binary", "rate/bare", 0.65, None),
    Wanted("gpu", "1024 numbers as OIP JSON, requests/s", ROW + (128,), "json", "rate", 100000, None),
    Wanted("gpu", "4 KiB rows, one connection, p50 over the bare server's", ROW + (1,), "raw", "p50_us/bare", None, 1.25),
    Wanted("gpu", "1 MiB rows, of the bare loop's GB/s", ("softmax", ("1,262144",), 16), "raw", "rate/bare", 0.85, None),
    Wanted("gpu", "16 MiB, of an echo of the same bodies", ("softmax", ("4096,1024",), 8), "raw", "rate/bare", 0.85, None),
    Wanted("cpu", "1 KiB rows, one connection, of the bare echo", ROW_1K + (1,), "raw", "rate/bare", 0.75, None),
    Wanted("cpu", "1 KiB rows, 16 connections, of the bare echo", ROW_1K + (16,), "raw", "rate/bare", 0.75, None),
]
ROW_FORMAT = "%-34s %5s %-10s %10s %6s %8s %8s %7s %7s %7s %5s %7s %6s"
COLUMNS = ("work", "conn", "side", "req/s", "GB/s", "p50_us", "p99_us", "/bare", "p50/b", "/peer", "gen%", "cpu_us", "errors")
START_SECONDS = {"gpu": 30, "cpu": 5}  # all servers together
GENERATOR_BOUND = 0.9  # a load generator that computes for more than this share of its time is what is measured


def answer_bytes(work):
    dims = [[int(d) for d in shape.split(",")] for shape in work.shapes]
    if work.model == "matmul":
        return 4 * dims[0][0] * dims[1][1]
    return 4 * elements(work.shapes[0]) // (dims[0][-1] if work.model == "reduce" else 1)


def body_bytes(work):
    return 4 * sum(elements(shape) for shape in work.shapes)


def amount(value):
    return "%.0f" % value if value >= 100 else "%.1f" % value


def ratio(value):
    return "-" if value is None else "%.0f" % value if value >= 100 else "%.2f" % value


class Table:
    """Lines that go to the screen and, at the end, to a file."""

    def __init__(self, path):
        self.path, self.lines = path, []

    def say(self, line):
        print(line, flush=True)
        self.lines.append(line)

    def write(self):
        if self.path:
            with open(self.path, "w") as file:
                file.write("\n".join(self.lines) + "\n")


class Bench:
    def __init__(self, options, folder, table):
        self.options, self.table, self.build = options, table, options.build
        cores = sorted(os.sched_getaffinity(0))
        half = len(cores) // 2
        self.threads = options.threads or max(half, 1)
        self.servers_on, loads_on = (cores[:half], cores[half:]) if options.split else ([], [])
        taskset = lambda some: ["taskset", "-c", ",".join(map(str, some))] if some else []
        self.under = taskset(self.servers_on)
        self.load = Load(self.build, self.threads, taskset(loads_on), folder)
        self.readings = {}  # (model, shapes, connections): {side: Reading of medians}
        self.faults = []

    def start(self):
        extra = [word for word in self.options.daemon if word != "--"]
        own = ["--threads", str(self.threads), "--queue", "1024", "--log-level", "error"] + extra
        path = os.path.join(self.build, "kernserve")
        self.daemon = Daemon(path, *own, under=self.under)
        text = self.daemon.metrics()
        self.where = "cpu" if metric(text, "kernserve_device_info", device="cpu") else "gpu"
        self.peer, peer = None, "none"
        if self.options.peer != "none":
            try:
                program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer.py")
                self.peer = Side([self.options.peer, "-B", program, None] + (["numpy"] if self.where == "cpu" else []),
                                 self.under)
                peer = self.peer.said()
            except (OSError, RuntimeError) as error:
                peer = "skipped: %s does not run peer.py: %s" % (self.options.peer, str(error).splitlines()[-1])
        self.head(own, peer)

    def head(self, own, peer):
        first = lambda *command: subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode().split("\n")[0]
        say = self.table.say
        say("# %s; %s" % (datetime.date.today(), shlex.join(["tests/bench/bench_http.sh"] + sys.argv[2:])))
        with open("/proc/cpuinfo") as file:
            cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())
        gpu = first("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader") if self.where == "gpu" else "no GPU"
        say("# host: %d cores of %s, Linux %s, %s" % (os.cpu_count(), cpu, platform.release(), gpu))
        say("# kernserve: %s; %s" % (first(self.daemon.path, "--version"), " ".join(own)))
        say("# bare servers: %d threads; Python server: %s" % (self.threads, peer))
        say("# load: %s, %d threads; %s" % (first("wrk", "-v").split(" Copyright")[0], self.threads,
            "servers on cores %s, load on the others" % ",".join(map(str, self.servers_on)) if self.servers_on else
            "servers and load share all cores"))
        say("# load average before: %.1f" % os.getloadavg()[0])

    def works(self):
        for work in WORKS:
            sides = work.quick if self.options.quick else work.quick + work.full
            if work.where in (self.where, "both") and sides:
                yield work, ["bare"] + [side for side in sides if self.peer or not side.startswith("peer")]

    def bare(self, work):
        """The bare server for this work: on the GPU where it can do it, else an echo of as many bytes. Its name, too."""
        row = work.model == "softmax" and work.shapes[0].startswith("1,") and body_bytes(work) <= 65536
        name = "bare_gpu" if self.where == "gpu" and row else "bare_echo"
        command = [os.path.join(self.build, "tests", name), None, str(body_bytes(work)), str(self.threads)]
        if name == "bare_echo":
            command.append(str(answer_bytes(work)))
        return Side(command, self.under), name

    def check(self, work, servers, names):
        """Sides that compute must agree with kernserve, or they are no yardstick."""
        target, _, body = request_of("raw", work.model, work.shapes)
        ours = answer_of(self.daemon.port, target, body)
        for side in ("bare", "peer"):
            if side not in servers or names.get(side) == "bare_echo":
                continue
            theirs = answer_of(servers[side].port, target, body)
            if len(theirs) != len(ours) or not all(abs(a - b) <= 1e-3 * abs(b) + 1e-6 for a, b in zip(theirs, ours)):
                self.faults.append("%s of %s: another result than kernserve's" % (names.get(side, side), work.model))

    def run(self, work, sides, seconds):
        bare, bare_name = self.bare(work)
        try:
            servers = {side: bare if side == "bare" else self.peer if side.startswith("peer") else self.daemon for side in sides}
            names = {"bare": bare_name, "peer": "peer raw"}
            if body_bytes(work) <= 65536:
                self.check(work, servers, names)
            forms = {"bare": "raw", "peer": "raw", "peer json": "json"}
            taken = {side: [] for side in sides}
            for _ in range(self.options.rounds):
                for side in sides:
                    taken[side].append(self.load.closed(servers[side], forms.get(side, side), work, seconds))
        finally:
            bare.stop()
        medians = {side: type(t[0])(*map(statistics.median, zip(*t)))._replace(errors=sum(r.errors for r in t))
                   for side, t in taken.items()}
        self.readings[work[:3]] = medians
        for side in sides:
            self.row(work, side, names.get(side, side))

    def figure(self, work, side, figure):
        """What a column or a wanted line shows, such as rate/bare; None where it cannot be had."""
        readings = self.readings.get(tuple(work[:3]), {})
        of, _, over = figure.partition("/")
        own = readings.get(side)
        if not own or own.errors:
            return None
        if not over:
            return getattr(own, of)
        if over in own._fields:
            return getattr(own, of) / getattr(own, over)
        other = readings.get("peer json" if (over, side) == ("peer", "json") else over)
        return getattr(own, of) / getattr(other, of) if other and not side.startswith(over) else None

    def row(self, work, side, name):
        r = self.readings[work[:3]][side]
        ratios = [ratio(self.figure(work, side, figure)) for figure in ("rate/bare", "p50_us/bare", "rate/peer")]
        label = "%s %s" % (work.model, " x ".join(work.shapes))
        self.table.say(ROW_FORMAT % (
            label, work.connections, name, amount(r.rate), "%.2f" % (r.rate * (body_bytes(work) + answer_bytes(work)) / 1e9),
            "%.0f" % r.p50_us, "%.0f" % r.p99_us, *ratios, "%.0f" % (100 * r.generator), amount(r.server_us), r.errors)
            + ("  generator-bound" if r.generator >= GENERATOR_BOUND else ""))
        if r.errors:
            self.faults.append("%s, %d connections, %s: %d errors" % (label, work.connections, name, r.errors))

    def measure(self):
        begun, works = time.monotonic(), list(self.works())
        budget = 60 * (self.options.minutes or (1 if self.options.quick else 8)) - START_SECONDS[self.where]
        runs = self.options.rounds * (sum(len(sides) for _, sides in works) + 2)
        seconds = max(1, min(5, int(budget / runs - 0.2)))  # wrk takes whole ones, and 0.1 s more
        budget -= 2 * self.options.rounds * seconds  # of the constant rate
        self.table.say("# %d runs of %d s; each figure is the median of %d" % (runs, seconds, self.options.rounds))
        self.table.say(ROW_FORMAT % COLUMNS)
        for work, sides in works:
            if time.monotonic() - begun > budget:
                self.table.say("%s %s, %d connections: not run, the time is over" % (work.model, " x ".join(work.shapes), work.connections))
                continue
            self.run(work, sides, seconds)
        self.constant_rate(seconds)
        self.wanted()

    def constant_rate(self, seconds):
        """Latency at half of the rate that the slower of both reached: nothing queues but what the server itself holds up."""
        work = next(w for w in WORKS if w.where in (self.where, "both") and w.connections > 1 and "raw" in w.quick)
        if not shutil.which("h2load"):
            self.table.say("# at a constant rate: skipped, h2load (nghttp2-client) is not installed")
            return
        readings = self.readings[work[:3]]
        rate = min(readings["bare"].rate, readings["raw"].rate) / 2
        bare, name = self.bare(work)
        taken = {"bare": [], "raw": []}
        try:
            for _ in range(self.options.rounds):
                for side, server in (("bare", bare), ("raw", self.daemon)):
                    taken[side].append(self.load.rate(server, work, rate, seconds))
        finally:
            bare.stop()
        self.table.say("# at a constant rate, h2load, half of the slower one's: %.0f requests/s" % rate)
        for side, title in (("bare", name), ("raw", "raw")):
            median = lambda field: statistics.median(getattr(r, field) for r in taken[side])
            errors = sum(r.errors for r in taken[side])
            self.table.say(ROW_FORMAT % ("%s %s" % (work.model, work.shapes[0]), work.connections, title, amount(median("rate")), "-",
                                         "%.0f" % median("p50_us"), "%.0f" % median("p99_us"), "-", "-", "-", "-", "-", errors))
            if errors:
                self.faults.append("at a constant rate, %s: %d errors" % (title, errors))

    def wanted(self):
        self.table.say("# wanted")
        for w in WANTED:
            if w.where != self.where:
                continue
            value = self.figure(w.work, w.side, w.figure)
            bound = ">= %g" % w.least if w.least is not None else "<= %g" % w.most
            verdict = "not measured"
            if value is not None:
                verdict = "met" if (value >= w.least if w.least is not None else value <= w.most) else "missed"
            self.table.say("%-60s %10s %10s  %s" % (w.name, bound, ratio(value), verdict))

    def stop(self):
        if self.peer:
            self.peer.stop()
        code = self.daemon.stop()
        if code:
            self.faults.append("kernserve ended with exit code %d" % code)


def main():
    parser = argparse.ArgumentParser(usage="see the head of bench_http.py")
    parser.add_argument("build")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--split", action="store_true")
    parser.add_argument("--peer", default="python3")
    parser.add_argument("--out")
    options, options.daemon = parser.parse_known_args()
    table = Table(options.out)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder, table)
        bench.start()
        try:
            bench.measure()
        finally:
            bench.stop()
            for fault in bench.faults:
                table.say("FAULT " + fault)
            table.write()
    sys.exit(1 if bench.faults else 0)


main()
