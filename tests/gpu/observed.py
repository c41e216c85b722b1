#!/usr/bin/env python3
"""What an operator sees of a daemon under load: the page, its figures, a trace, the metrics. For a GPU; the CPU shows that it runs.

observed.py KERNSERVE OUT [--backend NAME] [OPTION...]     options go to the daemon; needs wrk; files go to the folder OUT

  - the page's overlap ratio is that of the trace's slices within 5 %
  - trace.json.gz: 100 ms, as tests/http/trace.py --check reads it; on a GPU copies in, copies out and kernels run side by side, and
    three lanes at once
  - a scrape takes less than 2 ms and 20 kB, compressed
  - status.html and status.json, metrics.txt.gz, plans.txt are kept
"""

import argparse
import decimal
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(TESTS, "http"))
import trace  # noqa: E402  tests/http's, not the library's
from daemon import Daemon, Remote, check, request, wrongs  # noqa: E402

SCRAPE_MS, SCRAPE_BYTES, FAR = 2, 20000, 0.05
# The first one has 16 MiB in and out a request, in slots (--pinned-bytes): a trace of 2 s holds 4,800 launches, and with 2 MiB three times
# as many happened on an H200; above the slots each request is sixteen launches.
LOADS = (("-t3", "-c12", "raw.lua", "softmax", "4096,1024"), ("-t1", "-c8", "mix.lua"), ("-t1", "-c2", "raw.lua", "matmul", "1024,1024x1024,1024", "FP16"))
SECONDS = 40


def start(url, which):
    threads, connections, script, *words = which
    return subprocess.Popen(["wrk", threads, connections, "-d%ds" % SECONDS, "--timeout", "30s", "-s", os.path.join(TESTS, "load", script), url, "--", *words],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end(loads):
    for process in loads:
        process.terminate()
        process.wait()


def fetch(admin, target, fields=()):
    with admin.connect(60) as connection:
        answer = connection.ask(request("GET", target, fields))
    check(answer.status == 200, target, answer)
    return answer


def save(out, name, data):
    with open(os.path.join(out, name), "wb") as file:
        file.write(data)


def traced(admin, out, backend):
    """A trace of 100 ms, by the checks of tests/http/trace.py."""
    data = fetch(admin, "/v2/trace?ms=100").body
    save(out, "trace.json.gz", gzip.compress(data))
    document = json.loads(data, parse_float=decimal.Decimal)
    check(not document["otherData"]["truncated"], document["otherData"])
    print("100 ms: ", end="")
    pairs, lanes, _ = trace.tell(document)
    if backend == "cuda":
        wanted = {("d2h", "h2d"), ("compute", "h2d"), ("compute", "d2h")}
        check(wanted <= pairs and lanes >= 3, "not side by side:", wanted - pairs, lanes, "lanes at once")


def ratios(admin):
    """The page's overlap ratio and that of the trace's slices, of the same two seconds."""
    windows = set()
    while len(windows) < 2:  # until one has just ended
        time.sleep(0.05)
        timeline = json.loads(fetch(admin, "/status.json").body)["timeline"]
        window = timeline["observed_from_ns"], timeline["observed_to_ns"]
        windows.add(window)
    document = json.loads(fetch(admin, "/v2/trace?ms=2200").body, parse_float=decimal.Decimal)
    check(not document["otherData"]["truncated"], document["otherData"])  # its shards would begin at different times
    check(document["otherData"]["from_ns"] <= window[0], "the trace begins late", document["otherData"], window)
    page = timeline["overlap_ratio"]
    print("2.2 s: ", end="")
    slices = trace.tell(document, *window)[2]
    print("overlap ratio: %.4f on the page, %.4f of the slices" % (page, slices))
    return page, slices


def scrape(admin):
    """Milliseconds and bytes, on one connection."""
    took, size = [], 0
    with admin.connect() as connection:
        for _ in range(40):
            begun = time.perf_counter()
            answer = connection.ask(request("GET", "/metrics", [("Accept-Encoding", "gzip")]))
            took.append(1e3 * (time.perf_counter() - begun))
            size = len(answer.body)
            check(answer.header("content-encoding") == "gzip", answer.headers)
            time.sleep(0.05)
    return statistics.median(took), max(took), size


def under_load(daemon, out, backend):
    admin, url = Remote("127.0.0.1:%d" % daemon.admin_port), "http://127.0.0.1:%d" % daemon.port
    loads = [start(url, LOADS[0])]  # alone: with small requests as well, two seconds are more than a trace holds
    try:
        time.sleep(6)
        pairs = [ratios(admin) for _ in range(3)]
        loads += [start(url, which) for which in LOADS[1:]]
        time.sleep(6)
        traced(admin, out, backend)
        median, most, size = scrape(admin)
        print("scrape under load: median %.2f ms, most %.2f ms, %d bytes" % (median, most, size))
        check(size < SCRAPE_BYTES, "a scrape has", size, "bytes")
        if backend == "cuda":
            check(median < SCRAPE_MS, "a scrape takes", median, "ms")
            far = [abs(page / slices - 1) if page and slices else 1 for page, slices in pairs]
            check(sorted(far)[1] <= FAR, "the overlap ratio, median of three", pairs)
        for target, name in (("/status", "status.html"), ("/status.json", "status.json")):
            begun = time.perf_counter()
            data = fetch(admin, target).body
            print("%s: %.1f ms, %d bytes" % (target, 1e3 * (time.perf_counter() - begun), len(data)))
            save(out, name, data)
        save(out, "metrics.txt.gz", gzip.compress(fetch(admin, "/metrics").body))
    finally:
        end(loads)
    for load in loads:
        check("errors" not in load.stdout.read(), "load with errors")
    with open(os.path.join(out, "plans.txt"), "w") as file:
        subprocess.run([daemon.path, "--plans", "http://127.0.0.1:%d" % daemon.admin_port], stdout=file, check=True)
    median, most, size = scrape(admin)
    print("scrape at rest: median %.2f ms, most %.2f ms, %d bytes" % (median, most, size))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("path")
    parser.add_argument("out")
    parser.add_argument("--backend", default="cuda")
    arguments, options = parser.parse_known_args()
    if not shutil.which("wrk"):
        print("wrk is not installed")
        return 77
    os.makedirs(arguments.out, exist_ok=True)
    options = options or ["--threads", "2", "--lanes", "4", "--timeline", "16384", "--pinned-bytes", "2G"]
    with Daemon(arguments.path, "--backend", arguments.backend, *options, must_start=False, wait=60) as daemon:
        if not daemon.ready_within(60):
            print("no GPU")
            return 77
        under_load(daemon, arguments.out, arguments.backend)
        check(daemon.stop() == 0, "the daemon's end")
    print("%d wrong" % wrongs())
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
