#!/usr/bin/env python3
"""What being observed costs: raw rows of 4 KiB from wrk, a daemon for each side, loaded in turns.

bench_observed.py KERNSERVE [--sides off,on] [--rounds N] [--turns N] [--seconds N] [--threads N] [--connections N] [--backend NAME]

A round starts fresh daemons and loads each for --seconds in each of its turns; which comes first alternates.

off     --timeline 0 --no-status, asked for nothing
on      the presets; /status.json and /metrics (gzip) are asked for once a second
traced  on, and /v2/trace once a second
logged  on, and the access log of one request in a thousand
Prints the rates of each round (geometric means of its turns), and each side's ratio to off with the standard error over the rounds.
"""

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "http"))
from daemon import Daemon, Remote, request  # noqa: E402

SIDES = {"off": ("--timeline", "0", "--no-status"), "on": (), "traced": (), "logged": ("--access-log", "on", "--access-log-sample", "1000")}
ASKED = {"off": (), "on": ("/status.json", "/metrics"), "traced": ("/status.json", "/metrics", "/v2/trace"), "logged": ("/status.json", "/metrics")}


def ask(admin, targets, stop):
    with admin.connect(60) as connection:
        while targets and not stop.is_set():
            for target in targets:
                assert connection.ask(request("GET", target, [("Accept-Encoding", "gzip")])).status == 200, target
            stop.wait(1)


def wrk(daemon, arguments, seconds):
    done = subprocess.run(["wrk", "-t%d" % min(arguments.threads, arguments.connections), "-c%d" % arguments.connections, "-d%ds" % seconds, "-s",
                           os.path.join(os.path.dirname(HERE), "load", "raw.lua"), "http://127.0.0.1:%d" % daemon.port, "--", "softmax", "1,1024"],
                          stdout=subprocess.PIPE, check=True, text=True)
    line = json.loads(done.stdout.splitlines()[-1])
    assert not line["errors"], line
    return line["rate"]


def reading(daemon, side, arguments):
    """A daemon is asked only while it is the one under load."""
    stop = threading.Event()
    asker = threading.Thread(target=ask, args=(Remote("127.0.0.1:%d" % daemon.admin_port), ASKED[side], stop))
    asker.start()
    try:
        return wrk(daemon, arguments, arguments.seconds)
    finally:
        stop.set()
        asker.join()


def round_of(sides, arguments):
    """A daemon for each side, loaded in turns; the rates by side."""
    options = ["--backend", arguments.backend, "--threads", str(arguments.threads), "--queue", "1024", "--warm", "softmax:1,1024:FP32"]
    rates = {side: [] for side in sides}
    with contextlib.ExitStack() as stack:
        daemons = {side: stack.enter_context(Daemon(arguments.path, *options, *SIDES[side])) for side in sides}
        time.sleep(1)  # the measurement of the device follows ready
        for daemon in daemons.values():
            wrk(daemon, arguments, 1)
        for turn in range(arguments.turns):
            for side in sides if turn % 2 == 0 else sides[::-1]:
                rates[side].append(reading(daemons[side], side, arguments))
    return {side: statistics.geometric_mean(values) for side, values in rates.items()}


def tell(rounds):
    for side in rounds[0]:
        logs = [math.log(rates[side] / rates["off"]) for rates in rounds]
        error = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
        print("%-7s %8.0f requests/s  %.4f of off +- %.4f" % (
            side, statistics.geometric_mean([rates[side] for rates in rounds]), math.exp(statistics.mean(logs)), error))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    for name, preset in (("rounds", 8), ("turns", 6), ("threads", 8), ("connections", 128), ("seconds", 1)):
        parser.add_argument("--" + name, type=int, default=preset)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--sides", default="off,on")
    arguments = parser.parse_args()
    rounds = []
    for n in range(arguments.rounds):
        sides = arguments.sides.split(",")
        rounds.append(round_of(sides if n % 2 == 0 else sides[::-1], arguments))
        print("  ".join("%s %.0f" % (side, rounds[-1][side]) for side in sides), flush=True)
    tell([{side: rates[side] for side in arguments.sides.split(",")} for rates in rounds])


if __name__ == "__main__":
    main()
