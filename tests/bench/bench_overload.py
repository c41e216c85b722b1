#!/usr/bin/env python3
"""Four times the load: what is answered, what is refused, and how fast.

bench_overload.py DAEMON [--seconds 3] [--rounds 3] [--threads 8] [--connections "16 32 64 128"] [--shapes "1,1024 64,1024"]
                  [-- options of the daemon]

For each shape wrk finds the number of connections with the most requests/s (softmax, plain raw); then that peak and four
times as many connections take turns, once with the queue as it is and once with --queue 8, which refuses. A client of
its own measures refusals, another one the second listener's health, while the load is on. Beside the daemon, in the same rounds, an echo of
the same bodies over as many connections (bare_echo of the daemon's build): what four times the connections leave of the peak of the
machine and the generator alone. Last, on the CPU backend, work that keeps a lane for long, offered at four times its peak whatever becomes
of it. The promise: answered / peak >= 0.90, of what the echo keeps where that is less than all; refusals and health p99 <= 50 ms. The last
line says whether it was kept; so does the exit status."""
import argparse
import json
import math
import os
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "http"))
from daemon import Daemon, request  # noqa: E402
from sides import Side  # noqa: E402
from overload import Crowd, Probe, dear_request, quantile  # noqa: E402

MOST_MS, LEAST = 50, 0.9


def wrk(server, shape, connections, options):
    """(good, refused) a second"""
    script = os.path.join(HERE, "..", "load", "raw.lua")
    command = ["wrk", "-t%d" % min(options.threads, connections), "-c%d" % connections, "-d%ds" % options.seconds,
               "--timeout", "30s", "-s", script, "http://127.0.0.1:%d" % server.port, "--", "softmax", shape]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    told = json.loads(next(line for line in out.splitlines() if line.startswith("{")))
    return (told["requests"] - told["errors"]) / told["seconds"], told["errors"] / told["seconds"]


def row_bytes(shape):
    return 4 * math.prod(map(int, shape.split(",")))


def row_request(shape):
    count = row_bytes(shape) // 4
    return request("POST", "/v2/models/softmax/infer?shape=%s&datatype=FP32" % shape, (),
                   struct.pack("<%df" % count, *((i * 7919 % 2003) / 200 for i in range(count))))


class Watch:
    """Refusals as one more client meets them, and the second listener's health."""

    def __init__(self, daemon, data):
        self.client, self.live = Probe(daemon.port, data, 0.001), Probe(daemon.admin_port, request("GET", "/v2/health/live"))

    def stop(self):
        """Two lists of seconds."""
        return self.client.stop().get(503, []), self.live.stop()[200]


def say(what, pairs, refusals, live, echo=1.0):
    """True: as promised. The median pair counts. echo: what an echo keeps of its own peak."""
    ratio = quantile([good / peak for good, peak, _ in pairs], 0.5)
    good, peak, bad = (quantile(column, 0.5) for column in zip(*pairs))
    refusal_ms, live_ms = (quantile(times, 0.99) * 1e3 for times in (refusals, live))
    print("%-34s peak %8.0f/s  at 4 times %8.0f/s  ratio %.2f (echo %.2f)  refused %8.0f/s  p99 of %d refusals %.1f ms, of health %.1f ms" %
          (what, peak, good, ratio, echo, bad, len(refusals), refusal_ms, live_ms), flush=True)
    return ratio >= LEAST * min(echo, 1) and not refusal_ms > MOST_MS and not live_ms > MOST_MS


def cheap(options, rest, shape):
    """Rows as fast as connections can send them."""
    with Daemon(options.daemon, *rest) as daemon:
        wrk(daemon, shape, 16, options)
        rates = {c: wrk(daemon, shape, c, options)[0] for c in map(int, options.connections.split())}
        daemon.stop()
    best = max(rates, key=rates.get)
    kept = True
    for queue in ((), ("--queue", "8")):
        pairs, kept_by_echo, refusals, live = [], [], [], []
        echo = Side([os.path.join(os.path.dirname(options.daemon), "tests", "bare_echo"), None, str(row_bytes(shape)),
                     str(options.threads)], [])
        try:
            with Daemon(options.daemon, *rest, *queue) as daemon:
                for _ in range(options.rounds):
                    alone = wrk(echo, shape, best, options)[0]
                    kept_by_echo.append(wrk(echo, shape, 4 * best, options)[0] / alone)
                    peak = wrk(daemon, shape, best, options)[0]
                    watch = Watch(daemon, row_request(shape))
                    good, bad = wrk(daemon, shape, 4 * best, options)
                    pairs.append((good, peak, bad))
                    more = watch.stop()
                    refusals += more[0]
                    live += more[1]
                daemon.stop()
        finally:
            echo.stop()
        kept &= say("%s %d>%d conn %s" % (shape, best, 4 * best, " ".join(queue)), pairs, refusals, live,
                    quantile(kept_by_echo, 0.5))
    return kept


def dear(options, rest):
    """Work that one lane does a few hundred times a second."""
    with Daemon(options.daemon, *rest, "--backend", "cpu", "--threads", "1", "--lanes", "1", "--queue", "16") as daemon:
        live, pairs, refusals = Probe(daemon.admin_port, request("GET", "/v2/health/live")), [], []
        with Crowd(daemon, 4, dear_request()) as few, Crowd(daemon, 64, dear_request()) as many:
            few.closed(0.5)
            for _ in range(options.rounds):
                peak = few.closed(options.seconds).rate(200)
                flood, _ = many.open(options.seconds, 4 * peak)
                pairs.append((flood.rate(200), peak, flood.rate(503)))
                refusals += flood.times.get(503, [])
        kept = say("matmul, one CPU lane, 4 x the rate", pairs, refusals, live.stop()[200])
        daemon.stop()
    return kept


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("daemon")
    parser.add_argument("--seconds", type=int, default=3)  # wrk takes whole ones
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--connections", default="16 32 64 128")
    parser.add_argument("--shapes", default="1,1024 64,1024")
    options, rest = parser.parse_known_args()
    rest = [o for o in rest if o != "--"]
    kept = [cheap(options, rest, shape) for shape in options.shapes.split()] + [dear(options, rest)]
    print("as promised" if all(kept) else "NOT as promised")
    sys.exit(0 if all(kept) else 1)


main()
