#!/usr/bin/env python3
"""A local client with tensors in system regions, against what the link to the GPU copies: GB/s in and out, and the share.

bench_shm.py KERNSERVE [--rows N] [--seconds S]      softmax of N rows of 1024 FP32, in and out in shared memory
Prints first the link's own rate (pinned memory, each way alone, best of 20), then one line for each number of clients.
"""

import argparse
import ctypes
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from cuda_memory import Driver
from daemon import Daemon, request
from shared_memory import SOFTMAX, SYSTEM, Object, window, work


def link_rate(size):
    """GB/s to and from the device, from pinned memory."""
    driver, host = Driver(), ctypes.c_void_p()
    device, _ = driver.allocate(size)
    driver.call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(size), 0)
    best = [0.0, 0.0]
    for _ in range(20):
        for i, (call, arguments) in enumerate((("cuMemcpyHtoD_v2", (device, host)), ("cuMemcpyDtoH_v2", (host, device)))):
            begun = time.perf_counter()
            driver.call(call, *arguments, ctypes.c_size_t(size))
            driver.call("cuCtxSynchronize")
            best[i] = max(best[i], size / (time.perf_counter() - begun) / 1e9)
    return best


def client(daemon, index, rows, until, done, timings):
    size = rows * 4096
    with Object(2 * size) as o, daemon.connect(60) as connection:
        for at in range(0, size, 1 << 20):
            o.memory[at:at + (1 << 20)] = os.urandom(1 << 10) * (1 << 10)
        name = "bench%d" % index
        words = json.dumps({"key": o.key, "byte_size": 2 * size}).encode()
        assert connection.ask(request("POST", "%s/region/%s/register" % (SYSTEM, name), (), words)).status == 200
        data = request("POST", SOFTMAX, (), json.dumps(work([rows, 1024], window(name, size), window(name, size, size))).encode())
        for _ in range(3):
            assert connection.ask(data).status == 200
        barrier.wait()
        while time.perf_counter() < until[0]:
            answer = connection.ask(data)
            assert answer.status == 200, answer
            done[index] += 1
        timings.append(answer.header("server-timing"))
        connection.ask(request("POST", "%s/region/%s/unregister" % (SYSTEM, name)))


def main():
    global barrier
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernserve")
    parser.add_argument("--rows", type=int, default=16384)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--options", default="--threads 1 --pinned-bytes 512M")
    arguments = parser.parse_args()
    size = arguments.rows * 4096
    to, back = link_rate(size)
    serial = 2 / (1 / to + 1 / back)
    print("link, %d MiB pinned: %.1f GB/s in, %.1f GB/s out; one after the other %.1f GB/s" % (size >> 20, to, back, serial))
    with Daemon(arguments.kernserve, "--allow-client-shm", "--backend", "cuda", *arguments.options.split()) as daemon:
        for clients in (1, 2, 3):
            until, done, timings, barrier = [0.0], [0] * clients, [], threading.Barrier(clients + 1)
            threads = [threading.Thread(target=client, args=(daemon, i, arguments.rows, until, done, timings)) for i in range(clients)]
            for thread in threads:
                thread.start()
            until[0] = time.perf_counter() + 1e6
            barrier.wait()
            begun = time.perf_counter()
            until[0] = begun + arguments.seconds
            for thread in threads:
                thread.join()
            rate = sum(done) * 2 * size / (time.perf_counter() - begun) / 1e9
            print("%d clients: %d requests, %.1f GB/s in + out, %.2f of the link one way after the other; last: %s"
                  % (clients, sum(done), rate, rate / serial, timings[0]))
        daemon.stop()


if __name__ == "__main__":
    main()
