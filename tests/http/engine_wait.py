#!/usr/bin/env python3
"""Behind very long work nobody waits for a deadline that cannot be kept: while nothing has ended yet, and so no rate is known, the
work under way bounds the wait by its age. Who would wait for longer gets 503 with Retry-After, a newcomer at once; who is served in
time is served, and nobody but the first in the queue sees 504.

Work ends only when the test lets it (HeldDaemon), so that it is as long as the test wants on any machine."""
import os
import sys
import threading
import time

from daemon import HeldDaemon, check, comes_to, metric, request, settle, wrongs

DEADLINE_S = 12
# Moments with room on both sides: a newcomer is refused from 1.6 to 5.1 s of age (later the queue has grown so short that it may wait),
# and what holds memory or is second in the queue is refused itself from 7.2 s on.
NEWCOMER_S, WORK_S = 3, 5


class Ask(threading.Thread):
    def __init__(self, daemon, data):
        super().__init__()
        self.where, self.data, self.answer, self.took = daemon, data, None, 0
        self.start()

    def run(self):
        begun = time.monotonic()
        with self.where.connect(120) as connection:
            self.answer = connection.ask(self.data)
        self.took = time.monotonic() - begun

    def status(self):
        return self.answer.status if self.answer else None


def product(size):
    """Of FP64, so much work that a launch has one job."""
    target = "/v2/models/matmul/infer?shape=%d,%d&shape=%d,%d&datatype=FP64" % (size, size, size, size)
    return request("POST", target, [], bytes(16 * size * size))


def maximum(size):
    """So many bytes in and out."""
    return request("POST", "/v2/models/reduce/infer?shape=%d,1&datatype=INT32&axis=1&op=max" % (size // 4), [], bytes(size))


def comes_amid_work(daemon, data):
    """The work goes on for WORK_S even if the newcomer waits: then the others are judged as they should be all the same."""
    time.sleep(NEWCOMER_S)
    newcomer = Ask(daemon, data)
    time.sleep(WORK_S - NEWCOMER_S)
    return newcomer


def judge(name, code, asks, newcomer, served):
    counts = {status: sum(ask.status() == status for ask in asks) for status in (200, 503, 504)}
    refused = [ask for ask in asks if ask.status() == 503]
    print("%s: %s; refused within %.1f s of %d; a newcomer in %.3f s" % (name, counts, max((ask.took for ask in refused), default=0),
                                                                       DEADLINE_S, newcomer.took))
    check(sum(counts.values()) == len(asks) and counts[503] >= len(asks) / 3, name, counts)
    check(counts[200] >= served and counts[504] <= 1, name, counts)
    check(newcomer.status() == 503 and newcomer.took < 2, name, "a newcomer:", newcomer.answer, newcomer.took)
    for ask in [*refused, newcomer]:
        check(ask.answer.header("kernserve-error") == code and ask.answer.header("retry-after"), name, ask.answer)
    check(all(ask.took < DEADLINE_S * 0.9 for ask in refused), name, "refused late:", [ask.took for ask in refused])


def ends_well(daemon, data):
    last = Ask(daemon, data)
    last.join()
    check(last.status() == 200 and settle(daemon) == 0, "afterwards:", last.answer)
    check(daemon.stop() == 0, "the daemon's end")


def for_a_lane():
    """Sixteen behind one like them on the only lane, which takes 5 s of their 12."""
    with HeldDaemon("--request-timeout", "%ds" % DEADLINE_S) as daemon:
        data = product(96)
        with open(daemon.hold, "w"):
            front = Ask(daemon, data)
            check(comes_to(lambda: metric(daemon.metrics(), "kernserve_lanes", state="busy"), 1) == 1, "the lane is not taken")
            asks = [Ask(daemon, data) for _ in range(16)]
            check(comes_to(daemon.queued, 16) == 16, "they do not wait")
            newcomer = comes_amid_work(daemon, data)
            os.remove(daemon.hold)
        for ask in [front, *asks, newcomer]:
            ask.join()
        check(front.status() == 200, "the one on the lane", front.answer)
        judge("for a lane", "queue_full", asks, newcomer, 1)
        ends_well(daemon, data)


def for_memory():
    """Sixteen large requests, memory for two, whose work takes 5 s of their 12."""
    size = 4 << 20
    with HeldDaemon("--request-timeout", "%ds" % DEADLINE_S, "--inflight-bytes", "%d" % (5 * size)) as daemon:
        data = maximum(size)
        with daemon.held():
            asks = [Ask(daemon, data) for _ in range(16)]
            check(comes_to(lambda: metric(daemon.metrics(), "kernserve_large_requests", state="open"), 2) == 2, "two have memory")
            newcomer = comes_amid_work(daemon, data)
        for ask in [*asks, newcomer]:
            ask.join()
        judge("for memory", "budget", asks, newcomer, 2)
        ends_well(daemon, data)


def main():
    for_a_lane()
    for_memory()
    sys.exit(wrongs() > 0)


main()
