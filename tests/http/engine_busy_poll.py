#!/usr/bin/env python3
"""A shard of a device that is polled: between the requests of a client that waits for each response it does not sleep; between seldom ones it
does, and it always does with --busy-poll 0. Told by the shard's voluntary context switches and its processor time."""
import os
import sys
import time

from daemon import Daemon, check, daemon_path, random_values, read_answer, row_request, seed, wrongs

REQUESTS, QUICK_LEAST, SELDOM, REST_S, TRIES = 400, 40, 20, 0.05, 8  # a rest is longer than a busy host keeps a shard from what has come
WORK_S = 0.002  # of a client between a response and its next request: well below what a shard polls for, and longer than a busy host keeps one from sleeping
POLL_S, QUICK_S = 0.01, 0.008  # what a shard polls for; from one request to the next, so that the rest between them was shorter, whatever else the host did
AWAKE, SELDOM_MOST_S = 0.3, SELDOM * POLL_S / 2  # of the sleeps without polling; half of what polling for all of its time takes


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


def ask_eagerly(client, generator, folder):
    """Sleeps of the shard for each request, of those that came quickly behind one that did, too: a shard polls where its last rest was short."""
    slept = quick = 0
    was_quick, at, count = False, time.monotonic(), sleeps(folder)
    for _ in range(REQUESTS):
        ask(client, generator, 1, WORK_S)
        now, so_far = time.monotonic(), sleeps(folder)
        is_quick = now - at < QUICK_S
        if is_quick and was_quick:
            quick += 1
            slept += so_far - count
        was_quick, at, count = is_quick, now, so_far
    return slept / quick if quick >= QUICK_LEAST else None, quick


def measure(generator, busy_poll):
    """Sleeps of the shard for each request of an eager client, None where too few came quickly, and its processor time among seldom ones."""
    faulty = os.path.join(os.path.dirname(daemon_path()), "tests", "kernserve_faulty")
    with Daemon(faulty, "--backend", "cpu", "--threads", "1", "--pinned-bytes", "64M", "--busy-poll", busy_poll, environment={"KS_POLLED": "1"}) as daemon:
        with daemon.dial() as client:
            ask(client, generator, 50, 0)
            folder = shard(daemon.process.pid)
            eager, quick = ask_eagerly(client, generator, folder)
            ask(client, generator, 2, REST_S)
            before_s = processor_s(folder)
            ask(client, generator, SELDOM, REST_S)
            seldom_s = processor_s(folder) - before_s
        check(daemon.stop() == 0, "the end")
    print("--busy-poll %s: %s sleeps for each of %d quick requests, %.1f ms of processor among %d seldom ones" %
          (busy_poll, eager if eager is None else "%.2f" % eager, quick, seldom_s * 1e3, SELDOM))
    return eager, seldom_s


def tried(generator, busy_poll, suffices=lambda eager, seldom_s: True):
    """The least of both over up to TRIES measurements, until they suffice: a busy host keeps a client waiting, and a shard for as long as a client rests."""
    eager, seldom = [], []
    for _ in range(TRIES):
        now, now_s = measure(generator, busy_poll)
        eager += [] if now is None else [now]
        seldom.append(now_s)
        if eager and suffices(min(eager), min(seldom)):
            break
    return min(eager, default=None), min(seldom)


def main():
    generator = seed()
    asleep, _ = tried(generator, "0")
    check(asleep is not None, "no requests came quickly")
    if asleep is not None:
        awake, seldom_s = tried(generator, "%dms" % (POLL_S * 1e3), lambda eager, seldom_s: eager <= asleep * AWAKE and seldom_s < SELDOM_MOST_S)
        check(asleep >= 0.5, "without polling a shard sleeps between requests", asleep)
        check(awake is not None and awake <= asleep * AWAKE, "with it a shard stays awake", awake, asleep)
        check(seldom_s < SELDOM_MOST_S, "a shard polls between seldom requests", seldom_s)
    sys.exit(1 if wrongs() else 0)


main()
