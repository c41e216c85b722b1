#!/usr/bin/env python3
"""A shard of a device that is polled: between the requests of a client that waits for each response it does not sleep; between seldom ones it
does, and it always does with --busy-poll 0. Told by the shard's voluntary context switches and its processor time."""
import os
import sys
import time

from daemon import Daemon, check, daemon_path, random_values, read_answer, row_request, seed, wrongs

REQUESTS, SELDOM, REST_S, TRIES = 400, 20, 0.05, 5  # a rest is longer than a busy host keeps a shard from what has come
WORK_S = 0.002  # of a client between a response and its next request: well below what a shard polls for, and longer than a busy host keeps one from sleeping
AWAKE, SELDOM_MOST_S = 0.3, SELDOM * 0.01 / 2  # of the sleeps without polling; half of what polling for all of its time takes


def shard(pid):
    for thread in os.listdir("/proc/%d/task" % pid):
        folder = "/proc/%d/task/%s/" % (pid, thread)
        with open(folder + "comm") as file:
            if file.read().startswith("ks-shard-"):
                return folder
    raise SystemExit("the daemon has no thread of a shard's name")


def sleeps(folder):
    with open(folder + "status") as file:
        return int(next(line for line in file if line.startswith("voluntary_ctxt_switches")).split()[1])


def processor_s(folder):
    with open(folder + "schedstat") as file:
        return int(file.read().split()[0]) / 1e9


def ask(client, generator, requests, rest_s):
    for _ in range(requests):
        head, body = row_request(random_values(generator, 64))
        client.sendall(head + body)
        answer = read_answer(client)
        check(answer and answer[0] == 200 and answer[2] == body, "an answer", answer)
        time.sleep(rest_s) if rest_s else None


def measure(generator, busy_poll):
    """Sleeps of the shard among the requests of an eager client, and its processor time among seldom ones."""
    faulty = os.path.join(os.path.dirname(daemon_path()), "tests", "kernserve_faulty")
    with Daemon(faulty, "--backend", "cpu", "--threads", "1", "--pinned-bytes", "64M", "--busy-poll", busy_poll, environment={"KS_POLLED": "1"}) as daemon:
        with daemon.dial() as client:
            ask(client, generator, 50, 0)
            folder = shard(daemon.process.pid)
            before = sleeps(folder)
            ask(client, generator, REQUESTS, WORK_S)
            eager = sleeps(folder) - before
            ask(client, generator, 2, REST_S)
            before_s = processor_s(folder)
            ask(client, generator, SELDOM, REST_S)
            seldom_s = processor_s(folder) - before_s
        check(daemon.stop() == 0, "the end")
    print("--busy-poll %s: %d sleeps among %d requests, %.1f ms of processor among %d seldom ones" % (busy_poll, eager, REQUESTS, seldom_s * 1e3, SELDOM))
    return eager, seldom_s


def main():
    generator = seed()
    asleep, _ = measure(generator, "0")
    awake, seldom_s = measure(generator, "10ms")
    for _ in range(TRIES - 1):  # a busy host keeps a client waiting for longer than a shard polls, and a shard for as long as a client rests
        if awake <= asleep * AWAKE and seldom_s < SELDOM_MOST_S:
            break
        awake, seldom_s = map(min, (awake, seldom_s), measure(generator, "10ms"))
    check(asleep >= REQUESTS * 0.5, "without polling a shard sleeps between requests", asleep)
    check(awake <= asleep * AWAKE, "with it a shard stays awake", awake, asleep)
    check(seldom_s < SELDOM_MOST_S, "a shard polls between seldom requests", seldom_s)
    sys.exit(1 if wrongs() else 0)


main()
