#!/usr/bin/env python3
"""Resident tensors under load; exit code 1 where a promise does not hold.

tensors_load.py replace KERNSERVE [--seconds 60] [--clients 64]   one name is replaced and read: each answer is of one version
tensors_load.py churn KERNSERVE [--count 100000] [--clients 8]    PUT and DELETE of 0 B to 4 MiB: memory, descriptors, threads as before
tensors_load.py rate KERNSERVE BARE_ECHO [--rounds 5]             PUT and GET of 64 MB beside a server that only receives
"""

import argparse
import hashlib
import os
import random
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from daemon import Daemon, request  # noqa: E402

MIB = 1 << 20
SIZE = 256 << 10


def put(target, body):
    return request("PUT", target, [("Content-Length", 0)] if not body else [], body)


def in_threads(count, work):
    """work(number, problems) in so many threads; the problems that they name."""
    problems = []
    threads = [threading.Thread(target=work, args=(i, problems)) for i in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return problems


# --- replace -----------------------------------------------------------------------------------------------------------


def version(number):
    return (b"%08d" % number) * (SIZE // 8)


def replace(given):
    target, done = "/v2/tensors/W?shape=%d&datatype=UINT8" % SIZE, [0, 0]
    tags, lock, stop = {}, threading.Lock(), time.monotonic() + given.seconds

    def work(number, problems):
        generator = random.Random(number)
        with daemon.connect(60) as connection:
            while time.monotonic() < stop and not problems:
                writes = generator.random() < 0.2
                body = version(generator.randrange(1000)) if writes else b""
                answer = connection.ask(put(target, body) if writes else request("GET", "/v2/tensors/W"))
                if answer is None or answer.status not in (200, 201):
                    problems.append("status %r" % answer)
                    return
                held = body if writes else answer.body
                if held != held[:8] * (SIZE // 8):
                    problems.append("an answer of two versions")
                with lock:
                    done[writes] += 1
                    if tags.setdefault(held[:8], answer.header("etag")) != answer.header("etag"):
                        problems.append("version %r with two ETags" % held[:8])

    with Daemon(given.kernserve, "--tensor-uploads", "64", "--resident-bytes", "256M") as daemon:
        with daemon.connect() as connection:
            connection.ask(put(target, version(0)))
        problems = in_threads(given.clients, work)
    print("replace: %d clients, %d s: %d GETs, %d PUTs of %d bytes, %d versions; %s" % (given.clients, given.seconds, done[0], done[1], SIZE, len(tags), problems or "none mixed"))
    return not problems


# --- churn -------------------------------------------------------------------------------------------------------------


def state(pid):
    text = open("/proc/%d/status" % pid).read()
    value = lambda name: int(text.split(name + ":")[1].split()[0])
    return value("VmRSS"), len(os.listdir("/proc/%d/fd" % pid)), value("Threads")


def churn(given):
    data = os.urandom(4 * MIB)

    def work(number, problems):
        generator = random.Random(given.seed + number)
        with daemon.connect(60) as connection:
            for i in range(rounds // given.clients):
                size = int(2 ** (22 * generator.random() ** 2)) - 1
                name = "n%d.%d" % (number, generator.randrange(4))
                from_byte = generator.randrange(4 * MIB - size)
                answer = connection.ask(put("/v2/tensors/%s?shape=%d&datatype=UINT8" % (name, size), data[from_byte:from_byte + size]))
                if answer is None or answer.status not in (200, 201):
                    problems.append("PUT %r" % answer)
                    return
                if generator.random() < 0.5 or i >= rounds // given.clients - 1:
                    connection.ask(request("DELETE", "/v2/tensors/" + name))
            for rest in range(4):
                connection.ask(request("DELETE", "/v2/tensors/n%d.%d" % (number, rest)))

    with Daemon(given.kernserve, "--resident-bytes", "256M") as daemon:
        pid = daemon.pid_of_daemon()
        rounds = max(given.count // 20, 1000)
        problems = in_threads(given.clients, work)
        time.sleep(3)
        before, rounds, begun = state(pid), given.count, time.monotonic()
        problems += in_threads(given.clients, work)
        took = time.monotonic() - begun
        time.sleep(3)
        after = state(pid)
        with daemon.connect() as connection:
            left = connection.ask(request("GET", "/v2/tensors")).body
    good = not problems and after[0] - before[0] <= 1024 and after[1:] == before[1:] and b'"tensors":[]' in left and b'"bytes":0,' in left
    print("churn: %d PUT and their DELETE in %.1f s: resident size %d kB before, %d after (%+d), descriptors %d, %d, threads %d, %d; left %s; %s" %
          (given.count, took, before[0], after[0], after[0] - before[0], before[1], after[1], before[2], after[2], left[:60], problems or "no fault"))
    return good


# --- rate --------------------------------------------------------------------------------------------------------------


def timed(where, data, most):
    """Seconds from the first byte sent to the last one of the answer."""
    with socket.create_connection(where, timeout=60) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = bytearray(MIB)
        begun, got = time.perf_counter(), 0
        one.sendall(data)
        while got < most:
            n = one.recv_into(buffer)
            if n == 0:
                break
            got += n
        return time.perf_counter() - begun


def rate(given):
    size, port = 64 * 1000 * 1000, 20000 + os.getpid() % 10000
    generator = random.Random(1)
    bodies = [generator.randbytes(size) for _ in range(2)]
    sink = subprocess.Popen([given.echo, str(port), str(size), "1", "1"], stdout=subprocess.DEVNULL)
    puts, gets, bare = [], [], []
    try:
        with Daemon(given.kernserve, "--resident-bytes", "1G") as daemon:
            where = (daemon.host, daemon.port)
            for i in range(given.rounds + 1):
                body = bodies[i % 2]
                puts.append(timed(where, put("/v2/tensors/W?shape=%d&datatype=UINT8" % size, body), 1))
                bare.append(timed(("127.0.0.1", port), request("POST", "/", (), body), 1))
                gets.append(timed(where, request("GET", "/v2/tensors/W"), size))
    finally:
        sink.terminate()
        sink.wait()
    middle = lambda times: sorted(times[1:])[len(times[1:]) // 2]
    print("rate: %d bytes, median of %d: PUT %.2f GB/s, a server that only receives %.2f GB/s (PUT %.2f of it), GET %.2f GB/s; SHA-256 of hashlib %.2f GB/s" %
          (size, given.rounds, size / middle(puts) / 1e9, size / middle(bare) / 1e9, middle(bare) / middle(puts), size / middle(gets) / 1e9, hash_rate(bodies[0])))
    return True


def hash_rate(body):
    begun = time.perf_counter()
    hashlib.sha256(body).digest()
    return len(body) / (time.perf_counter() - begun) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("replace", "churn", "rate"))
    parser.add_argument("kernserve")
    parser.add_argument("echo", nargs="?")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--clients", type=int)
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    given.clients = given.clients or {"replace": 64, "churn": 8}.get(given.what)
    return 0 if {"replace": replace, "churn": churn, "rate": rate}[given.what](given) else 1


if __name__ == "__main__":
    sys.exit(main())
