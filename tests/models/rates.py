"""Rates of a served model beside onnxruntime, in turns: onnxruntime is called in the process, the daemon is asked by HTTP."""

import os
import re
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
TURNS, TURN_S = 3, 0.4


def session_of(path):
    """A call of it is one thread, as a lane of the daemon is."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def rate(ask, rows):
    """Requests a second of THREADS threads, each of which asks one after the other."""
    counts, begun = [0] * THREADS, time.perf_counter()

    def loop(place):
        while time.perf_counter() < begun + TURN_S:
            ask(rows)
            counts[place] += 1

    threads = [threading.Thread(target=loop, args=(place,)) for place in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begun)


def wrk_rate(url, model, rows, datatype):
    """Requests a second of wrk's 16 connections; None without wrk."""
    if not shutil.which("wrk"):
        return None
    script = os.path.join(HERE, "..", "load", "raw.lua")
    words = ["wrk", "-t1", "-c16", "-d1s", "-s", script, url, "--", model, ",".join(map(str, rows.shape)), datatype]
    said = subprocess.run(words, capture_output=True, text=True)
    found = re.search(r"Requests/sec: *([\d.]+)", said.stdout)
    check(found is not None and "Non-2xx" not in said.stdout, said.stdout)
    check(not said.stderr, said.stderr)  # it goes on without a script that it cannot open
    return float(found[1]) if found else None


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
