#!/usr/bin/env python3
"""A request that finds every slot of its size out waits unread for one to come back: it is not refused for that, small
requests and health pass it, and slow clients who keep the slots keep nobody longer than a moment."""
import select
import socket
import sys
import threading
import time

from daemon import comes_to, cpu_daemon, metric, random_values, read_answer, request, row_request, seed, settle

# One shard with slots of 16 KiB and six of 64 KiB.
OPTIONS = ("--threads", "1", "--connections", "64", "--pinned-bytes", "1M")
SLOTS, VALUES = 6, 16000
PATIENCE_S = 0.1
NO_OVERFLOW = ("--inflight-bytes", "1")


def await_value(read, least, what):
    end = time.monotonic() + 30
    while read() < least:
        assert time.monotonic() < end, what


def begun(daemon):
    """Inference requests whose head has been judged."""
    text = daemon.metrics()
    ended = metric(text, "kernserve_inference_requests_total") or 0
    return metric(text, "kernserve_inference_requests_in_flight") + ended


class Holders:
    """Clients whose bodies have begun: each has a slot."""

    def __init__(self, daemon, generator, count=SLOTS):
        self.rest = []
        for _ in range(count):
            head, body = row_request(random_values(generator, VALUES))
            s = daemon.dial()
            s.sendall(head + body[:1000])
            self.rest.append((s, body))
        await_value(lambda: metric(daemon.metrics(), "kernserve_pinned_memory_bytes", state="used"), count * 2 * 65536,
                    "the bodies that have begun hold no slots")

    def finish_one(self):
        s, body = self.rest.pop()
        s.sendall(body[1000:])
        check(s, body)

    def finish(self):
        while self.rest:
            self.finish_one()


def check(s, body):
    with s:
        answer = read_answer(s)
    assert answer and answer[0] == 200 and answer[2] == body, answer and answer[:2]


def send(daemon, generator, half_close=False):
    head, body = row_request(random_values(generator, VALUES))
    s = daemon.dial()
    s.sendall(head + body)
    if half_close:
        s.shutdown(socket.SHUT_WR)
    return s, body


def refused_after_patience(generator):
    """With no memory but the slots the refusal comes when patience ends, not before; small requests pass meanwhile."""
    with cpu_daemon(*OPTIONS, *NO_OVERFLOW, "--slot-wait", "300ms") as daemon:
        holders = Holders(daemon, generator)
        begun = time.monotonic()
        s, _ = send(daemon, generator)
        for _ in range(10):
            head, body = row_request(random_values(generator, 100))
            with daemon.connect() as small:
                assert small.ask(request("GET", "/v2/health/ready")).status == 200
                assert small.ask(head + body, "POST").body == body
        small_s = time.monotonic() - begun
        answer = read_answer(s)
        waited_s = time.monotonic() - begun
        s.close()
        holders.finish()
        left = settle(daemon)
        assert daemon.stop() == 0
    print("20 small answers after %.0f ms, the refusal after %.0f ms" % (small_s * 1e3, waited_s * 1e3))
    assert answer[0] == 503 and answer[1]["kernserve-error"] == "budget", answer[:2]
    assert waited_s >= 0.9 * 0.3 and left == 0, (waited_s, left)


def served_by_returned_slots(generator):
    """With no memory but the slots one that comes back serves all who wait, one after the other, and those who have closed
    their sending side as well; who has gone away is forgotten."""
    # Nothing but answers is to come, also to those that have closed: no question whether they still read.
    with cpu_daemon(*OPTIONS, *NO_OVERFLOW, "--slot-wait", "30s", "--half-close-wait", "0s") as daemon:
        holders = Holders(daemon, generator)
        gone, _ = send(daemon, generator)
        waiting = [send(daemon, generator, half_close=i % 2 == 1) for i in range(5)]
        waits = not select.select([s for s, _ in waiting], [], [], 0.01)[0]
        gone.close()
        holders.finish_one()
        answers = []
        for s, body in waiting:
            with s:
                status, _, back = read_answer(s)
            answers.append((status, back == body))
        holders.finish()
        assert settle(daemon) == 0
        assert daemon.stop() == 0
    print("one slot served %d who waited" % len(answers))
    assert waits and answers == [(200, True)] * len(waiting), answers


def slow_clients_keep_nobody(generator):
    """All slots stay out: who waits goes on with other memory."""
    with cpu_daemon(*OPTIONS) as daemon:
        holders = Holders(daemon, generator)
        begun = time.monotonic()
        for s, body in [send(daemon, generator) for _ in range(8)]:
            check(s, body)
        waited_s = time.monotonic() - begun
        holders.finish()
        left = settle(daemon)
        assert daemon.stop() == 0
    print("8 answers beside %d slow bodies after %.0f ms" % (SLOTS, waited_s * 1e3))
    assert 0.9 * PATIENCE_S <= waited_s < 5 and left == 0, (waited_s, left)


def crowd(generator):
    """Many more connections than slots: every answer is right; a drain loses nobody who waits."""
    count, faults, answered, stop = 32, [], [0], threading.Event()
    rows = [row_request(random_values(generator, VALUES + i)) for i in range(count)]

    def client(daemon, head, body):
        try:
            with daemon.dial() as s:
                while not stop.is_set():
                    s.sendall(head + body)
                    status, _, back = read_answer(s)
                    assert status == 200 and back == body, status
                    answered[0] += 1
        except Exception as fault:  # noqa: BLE001 (told below)
            faults.append(repr(fault))

    with cpu_daemon(*OPTIONS) as daemon:
        clients = [threading.Thread(target=client, args=(daemon, *row)) for row in rows]
        for one in clients:
            one.start()
        time.sleep(0.7)
        comes_to(lambda: answered[0] >= count or bool(faults), True)
        stop.set()
        for one in clients:
            one.join()
        left, before = settle(daemon), begun(daemon)
        waiting = Holders(daemon, generator).rest + [send(daemon, generator) for _ in range(5)]
        await_value(lambda: begun(daemon), before + len(waiting), "not all requests have begun")
        ended = []
        drain = threading.Thread(target=lambda: ended.append(daemon.stop()))
        drain.start()
        time.sleep(0.02)
        for s, body in waiting[:SLOTS]:
            s.sendall(body[1000:])
        for s, body in waiting:
            check(s, body)
        drain.join()
    print("%d answers to %d connections with %d slots" % (answered[0], count, SLOTS))
    assert not faults and answered[0] >= count and left == 0 and ended == [0], (faults[:3], answered, left, ended)


def main():
    generator = seed()
    for test in (refused_after_patience, served_by_returned_slots, slow_clients_keep_nobody, crowd):
        test(generator)
        print("%s: as promised" % test.__name__)


main()
