#!/usr/bin/env python3
"""Sixteen clients at full load while the daemon gets SIGTERM: what it accepted it answers, then it refuses and is gone.

drain.py URL PID. A request counts as lost when its answer breaks off, or when a connection that was open before the signal
ends without an answer although the whole request had been sent and no answer had announced the end.
"""

import os
import signal
import sys
import threading
import time

from daemon import Remote, request

BODY = bytes(4 * 64 * 256)
ASK = request("POST", "/v2/models/softmax/infer?shape=64,256&datatype=FP32", [], BODY)


def client(target, counts, lost, signalled):
    try:
        connection = target.connect(20)
        while True:
            connection.send(ASK)
            sent_before = not signalled.is_set()
            answer = connection.answer()
            if answer is None:
                # an idle connection may be closed by the drain just as the next request leaves: that one was not accepted
                if sent_before:
                    lost.append("a request that was sent before the signal got no answer")
                return
            if answer.status == 200 and len(answer.body) != len(BODY):
                lost.append("an answer of %d bytes" % len(answer.body))
            if answer.status not in (200, 503):
                lost.append("status %d" % answer.status)
            if answer.status == 503 and answer.header("kernserve-error") != "draining":
                lost.append("503 %s" % answer.header("kernserve-error"))
            counts[answer.status] = counts.get(answer.status, 0) + 1
            if answer.says_close():
                return
    except OSError as fault:
        if not signalled.is_set():
            lost.append(str(fault))


def accepts(target):
    """For longer than a second: answers say that they are the last ones a moment before the port is closed."""
    until = time.monotonic() + 1
    while time.monotonic() < until:
        try:
            target.connect(2).close()
        except OSError:
            return False
        time.sleep(0.01)
    return True


def main():
    target, pid = Remote(sys.argv[1]), int(sys.argv[2])
    counts, lost, signalled = {}, [], threading.Event()
    threads = [threading.Thread(target=client, args=(target, counts, lost, signalled)) for _ in range(16)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    signalled.set()
    begun = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    for thread in threads:
        thread.join(30)
    took = time.monotonic() - begun
    if any(thread.is_alive() for thread in threads):
        lost.append("a client still waits after %.1f s" % took)
    if not counts.get(200):
        lost.append("nothing was served")
    if accepts(target):
        lost.append("the port still accepts")
    print("answers %s, drained in %.2f s" % (counts, took))
    for fault in sorted(set(lost)):
        print("LOST %s (%d)" % (fault, lost.count(fault)))
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
