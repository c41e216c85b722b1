#!/usr/bin/env python3
"""The Python client beside http.client sending the same bytes by hand, and beside tritonclient: one softmax of 4 KiB on a kept connection.

bench_client.py KERNSERVE [--rounds N]    with a Python that has the client, NumPy and tritonclient. In turns, medians; a line each, and the ratios
"""
import argparse
import http.client
import os
import statistics
import sys
import time

import numpy as np
import tritonclient.http

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
import kernserve  # noqa: E402
from daemon import Daemon  # noqa: E402

CALLS = 400


def by_hand(port, x):
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def call():
        connection.request("POST", "/v2/models/softmax/infer?shape=1,1024&datatype=FP32", x.tobytes())
        return np.frombuffer(connection.getresponse().read(), np.float32)
    return call


def by_triton(port, x):
    client = tritonclient.http.InferenceServerClient("127.0.0.1:%d" % port)

    def call():
        tensor = tritonclient.http.InferInput("INPUT0", x.shape, "FP32")
        tensor.set_data_from_numpy(x)
        return client.infer("softmax", [tensor]).as_numpy("OUTPUT0")
    return call


def by_client(port, x):
    client = kernserve.Client("http://127.0.0.1:%d" % port)
    return lambda: client.softmax(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernserve")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    x = np.random.default_rng(1).standard_normal((1, 1024), dtype=np.float32)
    with Daemon(arguments.kernserve, "--backend", "cpu") as daemon:
        calls = {"http.client": by_hand(daemon.port, x), "tritonclient": by_triton(daemon.port, x), "client": by_client(daemon.port, x)}
        times = {name: [] for name in calls}
        answers = [np.asarray(call()).reshape(-1) for call in calls.values()]
        if any(not np.array_equal(answer, answers[0]) for answer in answers):
            sys.exit("the answers differ")
        for _ in range(arguments.rounds):
            for name, call in calls.items():
                begun = time.perf_counter()
                for _ in range(CALLS):
                    call()
                times[name].append((time.perf_counter() - begun) / CALLS * 1e6)
    for name, each in times.items():
        print("%-12s %7.1f us a call, %.2f of http.client" % (
            name, statistics.median(each), statistics.median(a / b for a, b in zip(each, times["http.client"]))))


main()
