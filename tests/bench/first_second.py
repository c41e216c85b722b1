#!/usr/bin/env python3
"""The first second of a plan: whether requests stall in it, and in which phase, beside the seconds behind it.

first_second.py KERNSERVE [--backend cuda] [--columns 16384] [--connections 128] [--threads 8] [-- options of the daemon]

Rows of FP32 softmax by wrk, a second each, in four orders, each on a fresh daemon:
  at ready  the moment that the daemon is ready, then the same again, then a plan of as many bytes and another shape
  settled   likewise, once the second listener's thread has measured the device
  warmed    likewise, with both shapes in --warm: planned and captured before ready
  mapped    at ready, rows of 4 KiB, whose plan has no copies; then the first row, in a process that has had work
A stall of each plan shows in the third second of `at ready` too; one of the process does not. What --warm takes away is planning or
capturing; what `mapped` leaves is of copies. A line gives the rate, p50, p99 and the maximum in us, graphs captured and the ms that
took, and the phases in ms of the slowest request that began in that second, where it is among the slowest that the daemon keeps."""
import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "http"))
from daemon import Daemon, check, metric, wrongs  # noqa: E402


def slowest_since(daemon, begun):
    with urllib.request.urlopen("http://127.0.0.1:%d/status.json" % daemon.admin_port, timeout=30) as response:
        slow = json.load(response)["slow"]
    for request in slow or []:
        if datetime.datetime.fromisoformat(request["time"].replace("Z", "+00:00")).timestamp() >= begun:
            return " ".join("%s %.1f" % (phase, us / 1e3) for phase, us in request["phases_us"].items() if us >= 50)
    return "-"


def second(daemon, given, order, what, shape):
    before, begun = daemon.metrics(), time.time()
    done = subprocess.run(["wrk", "-t%d" % given.threads, "-c%d" % given.connections, "-d1s", "--timeout", "60s", "-s",
                           os.path.join(HERE, "..", "load", "raw.lua"), "http://127.0.0.1:%d" % daemon.port, "--", "softmax", shape, "FP32"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = json.loads([text for text in done.stdout.splitlines() if text.startswith("{")][-1])
    check(found["errors"] == 0 and found["requests"] > 0, order, what, found)
    after = daemon.metrics()
    captured, took = ((metric(after, name) or 0) - (metric(before, name) or 0)
                      for name in ("kernserve_graph_capture_duration_seconds_count", "kernserve_graph_capture_duration_seconds_sum"))
    print("%-9s %-8s %-10s %8d/s  p50 %6d  p99 %7d  max %7d us  captured %3d in %6.1f ms  slowest, ms: %s" % (
        order, what, shape, found["rate"], found["p50_us"], found["p99_us"], found["max_us"], captured, took * 1e3, slowest_since(daemon, begun)), flush=True)


def main():
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernserve")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--columns", type=int, default=16384, help="of a row of FP32 (16384: 64 KiB)")
    parser.add_argument("--connections", type=int, default=128, help="of wrk (128)")
    parser.add_argument("--threads", type=int, default=8, help="of wrk, and shards of the daemon (8)")
    given, options = parser.parse_args(words[:at]), words[at + 1:]
    if not shutil.which("wrk"):
        print("wrk is not installed")
        return 77
    one, other, small = "1,%d" % given.columns, "1,1,%d" % given.columns, "1,1024"
    orders = {"at ready": (("first", one), ("again", one), ("another", other)),
              "settled": (("first", one), ("again", one), ("another", other)),
              "warmed": (("first", one), ("again", one), ("another", other)),
              "mapped": (("first", small), ("again", small), ("another", one), ("again", one))}
    for order, seconds in orders.items():
        warm = ["--warm=softmax:%s:FP32" % shape for shape in (one, other)] if order == "warmed" else []
        with Daemon(given.kernserve, "--backend", given.backend, "--threads", str(given.threads), *warm, *options) as daemon:
            if order == "settled":
                end = time.monotonic() + 30
                while not metric(daemon.metrics(), "kernserve_ceiling_copy_bytes_per_second") and time.monotonic() < end:
                    time.sleep(0.1)
            for what, shape in seconds:
                second(daemon, given, order, what, shape)
            check(daemon.stop() == 0, "the daemon's end")
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
