#!/usr/bin/env python3
"""kernserve, a bare server and a Python server under the same load, in turn; one table with their ratios.

bench_http.py BUILD [OPTION...] [-- DAEMON-OPTION...]

BUILD        folder in which target bench_http was built
--quick      the rows of which something is wanted, in a minute; else all, in eight
--only TEXT  of these the rows whose work begins so, such as "softmax 4096,1024"; more than once for several
--minutes M  others. A run lasts as long as they leave, and at least a second
--rounds N   how often each side runs (3)
--threads N  of kernserve (shards), of the bare server and of the load generator, each (half of the cores)
--split      servers on the first half of the cores, load generators on the others; else all share all
--peer P     a Python that has aiohttp and PyTorch or NumPy (python3); none: without the Python server
--out FILE   the table goes there, too

Each group of rows is one kind of work and a number of connections. Its sides run one after the other, round after
round, and the table has the medians. Exit code 1: errors were answered, or a side's result was not kernserve's."""
import argparse
import datetime
import os
import platform
import re
import resource
import shlex
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from daemon import Daemon  # noqa: E402
from http_rows import WANTED, answer_bytes, body_bytes, rows, title  # noqa: E402
from sides import Load, Reading, Side, answer_of, request_of  # noqa: E402

ROW = "%-34s %5s %-10s %10s %6s %8s %8s %7s %7s %7s %5s %7s %6s"
COLUMNS = "work conn side req/s GB/s p50_us p99_us /bare p50/b /peer gen% cpu_us errors".split()
START_SECONDS = {"gpu": 30, "cpu": 5}  # until all servers are up
GENERATOR_BOUND = 0.9  # a load generator that computes for more of its time is what is measured
BARE_GPU_MAX = 1 << 20


def amount(value):
    return "%.0f" % value if value >= 100 else "%.1f" % value


def ratio(value):
    if value is None:
        return "-"
    return ("%.0f" if value >= 100 else "%.2f" if value >= 0.1 else "%.3f") % value


def medians(readings):
    """Errors are added up: one is too many."""
    return Reading(*map(statistics.median, zip(*readings)))._replace(errors=sum(r.errors for r in readings))


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
        self.options, self.say, self.faults, self.daemon, self.peer = options, table.say, [], None, None
        self.readings = {}  # (model, shapes, connections): {side: medians}
        cores = sorted(os.sched_getaffinity(0))
        half = max(len(cores) // 2, 1)
        self.threads = options.threads or half
        servers_on, loads_on = (cores[:half], cores[half:] or cores) if options.split else (cores, cores)
        self.under = ["taskset", "-c", ",".join(map(str, servers_on))]
        self.load = Load(options.build, self.threads, loads_on, folder)

    def begin(self):
        """Starts kernserve and the Python server, and says what is compared on what."""
        words = ["--threads", str(self.threads), "--queue", "1024", "--log-level", "error", *self.options.daemon]
        self.daemon = Daemon(os.path.join(self.options.build, "kernserve"), *words, under=self.under)
        device = re.search("kernserve_device_info{(.*)}", self.daemon.metrics()).group(1)
        device = dict(re.findall('([a-z_]+)="(.*?)"', device))
        self.where, gpu = "gpu", "%(model_name)s, driver %(driver_version)s" % device
        if device["device"] == "cpu":
            self.where, gpu = "cpu", "no GPU"
        with open("/proc/cpuinfo") as file:
            cpu = (re.findall(r"model name\s*: (.*)", file.read()) or [platform.machine()])[0]
        self.say("# %s; %s" % (datetime.date.today(), shlex.join(["tests/bench/bench_http.sh", *sys.argv[2:]])))
        self.say("# host: %d cores of %s, Linux %s, %s; load average %.1f" %
                 (os.cpu_count(), cpu, platform.release(), gpu, os.getloadavg()[0]))
        self.say("# kernserve: %s" % " ".join(words))
        self.say("# bare servers: %d threads; Python server: %s" % (self.threads, self.begin_peer()))
        self.say("# load: %d threads; servers on cores %s, %s" %
                 (self.threads, self.under[2], "load on the others" if self.options.split else "load on the same"))

    def begin_peer(self):
        """What it is made of, or why there is none."""
        python = self.options.peer
        if python == "none":
            return "none"
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer.py")
        try:
            self.peer = Side([python, "-B", program, None] + (["numpy"] if self.where == "cpu" else []), self.under)
            return self.peer.said()
        except (OSError, RuntimeError) as error:
            return "skipped: %s does not run peer.py: %s" % (python, str(error).splitlines()[-1])

    def end(self):
        if self.peer:
            self.peer.stop()
        code = self.daemon.stop() if self.daemon else 0
        if code:
            self.faults.append("kernserve ended with exit code %d" % code)

    def bare(self, work):
        """The bare server for this work, and its name: the GPU's for rows that it can do, else an echo as long."""
        row = work.model == "softmax" and work.shapes[0].startswith("1,") and body_bytes(work) <= BARE_GPU_MAX
        name = "bare_gpu" if self.where == "gpu" and row else "bare_echo"
        command = [os.path.join(self.options.build, "tests", name), None, str(body_bytes(work)), str(self.threads)]
        return Side(command + ([str(answer_bytes(work))] if name == "bare_echo" else []), self.under), name

    def check(self, work, computing):
        """Sides that compute must agree with kernserve, or they are no yardstick."""
        target, _, body = request_of("raw", work.model, work.shapes)
        ours = answer_of(self.daemon.port, target, body)
        for server in computing:
            theirs = answer_of(server.port, target, body)
            if len(theirs) != len(ours) or any(abs(a - b) > 1e-3 * abs(b) + 1e-6 for a, b in zip(theirs, ours)):
                self.faults.append("%s: the result of %s is not kernserve's" % (title(work), server.name))

    def run(self, work, sides, seconds):
        bare, name = self.bare(work)
        try:
            if body_bytes(work) <= BARE_GPU_MAX:
                self.check(work, [bare] * (name == "bare_gpu") + [self.peer] * ("peer" in sides))
            taken = {side: [] for side in sides}
            for _ in range(self.options.rounds):
                for side in sides:
                    server = bare if side == "bare" else self.peer if side.startswith("peer") else self.daemon
                    form = "json" if side.endswith("json") else "binary" if side == "binary" else "raw"
                    taken[side].append(self.load.closed(server, form, work, seconds))
        finally:
            bare.stop()
        self.readings[work[:3]] = {side: medians(readings) for side, readings in taken.items()}
        for side in sides:
            self.row(work, side, name if side == "bare" else side)

    def figure(self, of, side, figure):
        """What a column or a wanted line shows, such as rate/bare; None where it cannot be had."""
        readings = self.readings.get(of, {})
        field, _, over = figure.partition("/")
        own = readings.get(side)
        if not own or own.errors:
            return None
        if not over:
            return getattr(own, field)
        if over in own._fields:
            return getattr(own, field) / getattr(own, over)
        other = readings.get("peer json" if (over, side) == ("peer", "json") else over)
        return getattr(own, field) / getattr(other, field) if other and not side.startswith(over) else None

    def row(self, work, side, name):
        r = self.readings[work[:3]][side]
        ratios = [ratio(self.figure(work[:3], side, figure)) for figure in ("rate/bare", "p50_us/bare", "rate/peer")]
        moved = r.rate * (body_bytes(work) + answer_bytes(work)) / 1e9
        line = ROW % (title(work), work.connections, name, amount(r.rate), "%.2f" % moved, "%.0f" % r.p50_us,
                      "%.0f" % r.p99_us, *ratios, "%.0f" % (100 * r.generator), amount(r.server_us), r.errors)
        self.say(line + ("  generator-bound" if r.generator >= GENERATOR_BOUND else ""))
        if r.errors:
            self.faults.append("%s, %d connections, %s: %d errors" % (title(work), work.connections, name, r.errors))

    def measure(self):
        begun, works = time.monotonic(), rows(self.where, self.options.quick)
        if self.options.only:
            works = [(work, sides) for work, sides in works if title(work).startswith(tuple(self.options.only))]
        if not self.peer:
            works = [(work, [side for side in sides if not side.startswith("peer")]) for work, sides in works]
        runs = self.options.rounds * (sum(len(sides) for _, sides in works) + 2)  # 2: at a constant rate
        budget = 60 * (self.options.minutes or (1 if self.options.quick else 8)) - START_SECONDS[self.where]
        seconds = max(1, min(5, int(budget / runs - 0.2)))  # wrk takes whole ones, and 0.1 s more
        budget -= 2 * self.options.rounds * seconds
        self.say("# %d runs of %d s; each figure is the median of %d" % (runs, seconds, self.options.rounds))
        self.say(ROW % tuple(COLUMNS))
        for work, sides in works:
            if time.monotonic() - begun < budget:
                self.run(work, sides, seconds)
            else:
                self.say("%s, %d connections: not run, the time is over" % (title(work), work.connections))
        if not self.options.only:
            self.constant_rate(next(work for work, _ in works if work.connections > 1), seconds)
        self.wanted()

    def constant_rate(self, work, seconds):
        """Latency at half of what the slower of both reaches: nothing waits but for what the server itself holds up."""
        if not shutil.which("h2load"):
            self.say("# at a constant rate: skipped, h2load (nghttp2-client) is not installed")
            return
        readings = self.readings[work[:3]]
        rate = min(readings["bare"].rate, readings["raw"].rate) / 2
        bare, name = self.bare(work)
        taken = {name: [], "raw": []}
        try:
            for _ in range(self.options.rounds):
                taken[name].append(self.load.rate(bare, work, rate, seconds))
                taken["raw"].append(self.load.rate(self.daemon, work, rate, seconds))
        finally:
            bare.stop()
        self.say("# at a constant rate, %.0f requests/s by h2load: half of what the slower one reached" % rate)
        for side, readings in taken.items():
            r = medians(readings)
            self.say(ROW % (title(work), work.connections, side, amount(r.rate), "-", "%.0f" % r.p50_us,
                            "%.0f" % r.p99_us, "-", "-", "-", "-", "-", r.errors))
            if r.errors:
                self.faults.append("at a constant rate, %s: %d errors" % (side, r.errors))

    def wanted(self):
        self.say("# wanted")
        for w in WANTED:
            if w.where == self.where:
                value, verdict = self.figure(w.of, w.side, w.figure), "not measured"
                if value is not None:
                    verdict = "met" if (value >= w.bound if w.sign == ">=" else value <= w.bound) else "missed"
                self.say("%-60s %10s %10s  %s" % (w.name, "%s %g" % (w.sign, w.bound), ratio(value), verdict))


def main():
    parser = argparse.ArgumentParser(usage="see the head of bench_http.py")
    parser.add_argument("build")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--split", action="store_true")
    parser.add_argument("--peer", default="python3")
    parser.add_argument("--out")
    own = sys.argv[1:sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    options = parser.parse_args(own)
    options.daemon = sys.argv[len(own) + 2:]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # for 1024 connections, in what is started here
    table = Table(options.out)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder, table)
        try:
            bench.begin()
            bench.measure()
        finally:
            bench.end()
            for fault in bench.faults:
                table.say("FAULT " + fault)
            table.write()
    sys.exit(1 if bench.faults else 0)


main()
