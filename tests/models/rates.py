"""Rates of a served model beside onnxruntime, in turns: onnxruntime is called in the process, the daemon is asked by HTTP."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time

import onnxruntime

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "http"))
from daemon import check  # noqa: E402

THREADS = 2
TURNS, TURN_S = int(os.environ.get("KS_TURNS", "3")), 0.4


def session_of(path, threads=1):
    """A call of it is one thread, as a lane of the daemon is; 0: as many as there are cores."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def rate(ask, rows, asks=(), seconds=TURN_S):
    """Requests a second of THREADS threads, each of which asks one after the other; or of a thread for each of `asks`."""
    asks = asks or [ask] * THREADS
    counts, begun = [0] * len(asks), time.perf_counter()

    def loop(place):
        while time.perf_counter() < begun + seconds:
            asks[place](rows)
            counts[place] += 1

    threads = [threading.Thread(target=loop, args=(place,)) for place in range(len(asks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begun)


def wrk(url, model, rows, datatype, connections=16, threads=1, seconds=1):
    """What raw.lua says of wrk's connections; None without wrk."""
    if not shutil.which("wrk"):
        return None
    script = os.path.join(HERE, "..", "load", "raw.lua")
    words = ["wrk", "-t%d" % threads, "-c%d" % connections, "-d%ds" % seconds, "-s", script, url, "--", model, ",".join(map(str, rows.shape)), datatype]
    said = subprocess.run(words, capture_output=True, text=True)
    found = [json.loads(text) for text in said.stdout.splitlines() if text.startswith("{")]
    check(len(found) == 1 and found[0]["errors"] == 0 and not said.stderr, said)  # it goes on without a script that it cannot open
    return found[0] if found else None


def wrk_rate(url, model, rows, datatype):
    """Requests a second."""
    found = wrk(url, model, rows, datatype)
    return found and found["rate"]


def race(ks, url, session, model, output, batches, datatype="FP32", others=()):
    """batches: arrays of the model's one input. others: what else in this process takes such an array, as (name, function)."""
    name = session.get_inputs()[0].name
    served = ks.definition(model)["inputs"][0]["name"]
    print("requests/s, medians of %d turns; %d threads call onnxruntime in this process, by the client, wrk has 16 connections" % (TURNS, THREADS))
    for rows in batches:
        sides = {"onnxruntime": lambda: rate(lambda rows: session.run([output], {name: rows}), rows),
                 "Python client": lambda: rate(lambda rows: ks.infer(model, **{served: rows}), rows), "wrk": lambda: wrk_rate(url, model, rows, datatype)}
        sides.update({other: lambda ask=ask: rate(ask, rows) for other, ask in others})
        rates = {side: [] for side in sides}
        for _ in range(TURNS):
            for side, measure in sides.items():
                rates[side].append(measure())
        theirs = rates.pop("onnxruntime")
        said = ["onnxruntime %.0f" % statistics.median(theirs)]
        for side, ours in rates.items():
            if None not in ours:
                said.append("%s %.0f (ratio %.2f)" % (side, statistics.median(ours), statistics.median(a / b for a, b in zip(ours, theirs))))
        print("batch %3d: %s" % (len(rows), ", ".join(said)))


def race_host(url, path, model, output, row, datatype, faster, seconds=2):
    """One row a request, many at a time: beside onnxruntime on all cores, a session for each; then one at a time. faster: the ratio of rates that is wanted."""
    cores = os.cpu_count()
    name, sessions = session_of(path).get_inputs()[0].name, [session_of(path) for _ in range(cores)]
    calls = [lambda rows, session=session: session.run([output], {name: rows}) for session in (*sessions, session_of(path, 0))]
    theirs = rate(None, row, calls[:cores], seconds)

    def p50_us(call):
        times = []
        while len(times) < 50 or sum(times) < seconds / 4:
            begun = time.perf_counter()
            call(row)
            times.append(time.perf_counter() - begun)
        return statistics.median(times) * 1e6

    alone = min(p50_us(calls[0]), p50_us(calls[-1]))
    many, one = (wrk(url, model, row, datatype, connections, max(1, min(connections, cores // 2)), seconds) for connections in (128, 1))
    if not many or not one:
        print("onnxruntime on %d cores: %.0f/s, p50 of one %.0f us; rates by HTTP are left out: no wrk" % (cores, theirs, alone))
        return
    print("onnxruntime, %d sessions on %d cores: %.0f/s; wrk, 128 connections: %.0f/s, p50 %d us | ratio %.2f, wanted >= %g: %s"
          % (cores, cores, theirs, many["rate"], many["p50_us"], many["rate"] / theirs, faster, "met" if many["rate"] >= faster * theirs else "SHORT"))
    print("one at a time, p50: onnxruntime %.0f us, wrk %d us | ratio %.2f, wanted <= 1: %s" % (alone, one["p50_us"], one["p50_us"] / alone, "met" if one["p50_us"] <= alone else "SHORT"))
