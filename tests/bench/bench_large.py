#!/usr/bin/env python3
"""Large requests beside small ones: rates, the daemon's memory, and what the small ones notice.

bench_large.py DAEMON [--clients 16] [--mib 256] [--seconds 10] [--small 2] [--cores N] [-- options of the daemon]

Softmax over rows of 1024 FP32. Each client is a process with one connection: large ones send --mib MiB and read as much,
again and again; small ones do the same with 4 KiB, first alone, then beside the large ones. Every answer is checked:
a large body repeats one MiB, and so must its answer. The memory is the daemon's resident set (the pinned pages of its
slots and rings among it), read every 20 ms, and its own count of pinned bytes. --cores N leaves the first N cores to the
daemon and the small clients and puts the large ones on the others, as if they came from another host; without it all
compete for the same cores, and the small ones also wait for a core."""
import argparse
import multiprocessing
import os
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from daemon import Daemon, metric  # noqa: E402

MIB = 1 << 20


def head_of(rows):
    return ("POST /v2/models/softmax/infer?shape=%d,1024&datatype=FP32 HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Length: %d\r\n\r\n" % (rows, rows * 4096)).encode()


def read_into(s, view):
    """Status of the next answer, whose body is as long as the view."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = s.recv(16384)
        if not more:
            return 0, b""
        data += more
    head, rest = data.split(b"\r\n\r\n", 1)
    status = int(head.split(b" ")[1])
    if status != 200:
        return status, head + rest
    at = len(rest)
    view[:at] = rest
    while at < len(view):
        n = s.recv_into(view[at:])
        if n == 0:
            return 0, b""
        at += n
    return status, head


def large(daemon, mib, cores, until, results):
    if cores:
        os.sched_setaffinity(0, set(range(cores, os.cpu_count())))
    block = struct.pack("<262144f", *((i * 7919 % 2003) / 200 for i in range(262144)))
    body = memoryview(block * mib)
    answer = memoryview(bytearray(mib * MIB))
    done, times, faults, first = 0, [], [], None
    with daemon.dial(120) as s:
        while time.monotonic() < until and not faults:
            begun = time.monotonic()
            s.sendall(head_of(mib * 256))
            s.sendall(body)
            status, text = read_into(s, answer)
            times.append(time.monotonic() - begun)
            if status != 200:
                faults.append((status, text[:200]))
                break
            first = first or bytes(answer[:MIB])
            if any(answer[i * MIB:(i + 1) * MIB] != first for i in range(mib)):
                faults.append("another answer")
            done += 1
    results.put(("large", done, times, faults))


def small(daemon, until, results):
    body = struct.pack("<1024f", *((i * 7919 % 2003) / 200 for i in range(1024)))
    request = head_of(1) + body
    answer, first = memoryview(bytearray(4096)), None
    times, faults = [], []
    with daemon.dial(60) as s:
        while time.monotonic() < until and not faults:
            begun = time.perf_counter()
            s.sendall(request)
            status, text = read_into(s, answer)
            times.append(time.perf_counter() - begun)
            first = first or bytes(answer)
            if status != 200 or answer != first:
                faults.append((status, text[:200]))
    results.put(("small", len(times), times, faults))


def status_bytes(pid, field):
    with open("/proc/%d/status" % pid) as status:
        return next((int(line.split()[1]) * 1024 for line in status if line.startswith(field)), 0)


def run(daemon, jobs, until, watch=None):
    """Starts the processes and gives (large times, small times, faults) when all have ended."""
    results = multiprocessing.Queue()
    processes = [multiprocessing.Process(target=job, args=(daemon, *args, until, results)) for job, *args in jobs]
    for p in processes:
        p.start()
    times, faults, left = {"large": [], "small": []}, [], len(processes)
    while left:
        if watch:
            watch()
        try:
            kind, _, taken, bad = results.get(timeout=0.02)
        except Exception:  # queue.Empty, by whichever name
            continue
        times[kind] += taken
        faults += bad
        left -= 1
    for p in processes:
        p.join()
    return times["large"], times["small"], faults


def quantile(times, q):
    return sorted(times)[min(len(times) - 1, int(len(times) * q))] * 1e6


def say_small(what, times):
    print("small %-7s %7d requests  p50 %7.0f us  p99 %7.0f us  p99.9 %7.0f us" %
          (what, len(times), quantile(times, .5), quantile(times, .99), quantile(times, .999)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("daemon")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--small", type=int, default=2)
    parser.add_argument("--cores", type=int, default=0)
    options, rest = parser.parse_known_args()
    if options.cores:
        os.sched_setaffinity(0, set(range(options.cores)))
    with Daemon(options.daemon, *[o for o in rest if o != "--"]) as daemon:
        pid = daemon.process.pid
        small_jobs = [(small,)] * options.small
        run(daemon, small_jobs, time.monotonic() + 0.5)
        _, alone, faults = run(daemon, small_jobs, time.monotonic() + options.seconds / 3)
        before, most = status_bytes(pid, "VmRSS"), [0]

        def watch():
            most[0] = max(most[0], status_bytes(pid, "VmRSS"))

        begun = time.monotonic()
        until = begun + options.seconds
        sent, beside, more = run(daemon, [(large, options.mib, options.cores)] * options.clients + small_jobs, until, watch)
        took = time.monotonic() - begun
        text = daemon.metrics()
        pinned = {state: (metric(text, "kernserve_pinned_memory_bytes", state=state) or 0) / MIB
                  for state in ("used", "free", "ring")}
        print("%d clients, %d MiB in and out: %d requests in %.1f s, %.2f GB/s each way, median %.0f ms" %
              (options.clients, options.mib, len(sent), took, len(sent) * options.mib * MIB / took / 1e9,
               quantile(sent, .5) / 1e3 if sent else 0))
        print("resident %d MiB before, %d MiB at most; pinned: slots %d MiB, rings %d MiB" %
              (before / MIB, most[0] / MIB, pinned["used"] + pinned["free"], pinned["ring"]))
        say_small("alone", alone)
        say_small("beside", beside)
        print("p99 beside / alone: %.2f" % (quantile(beside, .99) / quantile(alone, .99)))
        faults += more
        print("faults: %s" % (faults[:3] if faults else "none"))
        code = daemon.stop()
    sys.exit(1 if faults or code else 0)


main()
