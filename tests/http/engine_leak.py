#!/usr/bin/env python3
"""Clients that vanish in every stage of a request leave nothing behind: descriptors and slots come back.
Once on an idle daemon, and once beside slow work, so that what is queued or runs is abandoned too. KS_ABORTS: how often."""
import os
import socket
import struct
import sys
import threading
import time

from daemon import cpu_daemon, metric, random_values, read_answer, row_request, seed

TIMES = int(os.environ.get("KS_ABORTS", 1000))
SLOW = (b"POST /v2/models/matmul/infer?shape=512,512&shape=512,512&datatype=FP32 HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Length: 2097152\r\n\r\n" + bytes(2097152))


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def half_header(s, head, body):
    s.sendall(head[:len(head) // 2])
    s.close()


def half_body(s, head, body):
    s.sendall(head + body[:len(body) // 2])
    s.close()


def half_body_reset(s, head, body):
    s.sendall(head + body[:len(body) // 2])
    reset(s)


def large_part(s, head, body):
    s.sendall(head.replace(b"Content-Length: ", b"X-Length: ").replace(b"\r\n\r\n", b"\r\nContent-Length: 1048576\r\n\r\n"))
    s.sendall(bytes(300000))
    s.close()


def request_and_fin(s, head, body):
    s.sendall(head + body)
    s.shutdown(socket.SHUT_WR)
    s.close()


def request_and_reset(s, head, body):
    s.sendall(head + body)
    reset(s)


def close_while_queued(s, head, body):
    big = b"POST /v2/models/matmul/infer?shape=256,256&shape=256,256&datatype=FP32 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 524288\r\n\r\n"
    s.sendall(big + bytes(524288))
    reset(s)


def answer_unread(s, head, body):
    """The answer is larger than what the sockets hold; the client goes without reading it."""
    s.sendall(b"POST /v2/models/reduce/infer?shape=1048576,1&datatype=INT32&axis=1&op=max HTTP/1.1\r\nHost: localhost\r\n"
              b"Content-Length: 4194304\r\n\r\n" + bytes(4194304))
    time.sleep(0.01)
    reset(s)


STAGES = [half_header, half_body, half_body_reset, large_part, request_and_fin, request_and_reset, close_while_queued, answer_unread]


def used_by(daemon):
    """Bytes of the pinned pool in use, and inference requests in flight."""
    text = daemon.metrics()
    return (metric(text, "kernserve_pinned_memory_bytes", state="used") or 0,
            metric(text, "kernserve_inference_requests_in_flight") or 0)


def settled(daemon, before):
    """Descriptors are counted before each look at the metrics, whose own connection takes a moment to go."""
    end = time.monotonic() + 30
    while True:
        descriptors, used = daemon.descriptors(), used_by(daemon)
        if (descriptors <= before and used == (0, 0)) or time.monotonic() > end:
            return descriptors, used
        time.sleep(0.05)


class SlowWork:
    """Keeps every lane of the daemon busy with matrix products until it is left."""

    def __init__(self, daemon, clients):
        self.stop, self.wrong, self.done = threading.Event(), [], 0
        self.threads = [threading.Thread(target=self.client, args=(daemon,)) for _ in range(clients)]

    def client(self, daemon):
        with daemon.dial(timeout=60) as s:
            while not self.stop.is_set():
                s.sendall(SLOW)
                answer = read_answer(s)
                self.done += 1
                if answer is None or answer[0] not in (200, 503):
                    self.wrong.append(answer and answer[:2])
                    return

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for t in self.threads:
            t.join()


def abort_all(daemon, generator, times, stages):
    """Where a stage could not be gone through."""
    bad = []
    for stage in stages:
        for _ in range(times if stage is not answer_unread else min(times, 20)):
            head, body = row_request(random_values(generator, 256))
            try:
                stage(daemon.dial(), head, body)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the server may answer early and close
            except OSError as fault:
                bad.append(f"{stage.__name__}: {fault}")
                break
    return bad


def main():
    generator = seed()
    bad = []
    with cpu_daemon("--threads", "1") as daemon:
        time.sleep(0.2)
        before = daemon.descriptors()
        for stage in STAGES:
            bad += abort_all(daemon, generator, TIMES // 10, [stage])
            descriptors, used = settled(daemon, before)
            print(f"{stage.__name__}: descriptors {before} -> {descriptors}, pinned bytes and requests in use {used}")
            if descriptors > before or used != (0, 0):
                bad.append(stage.__name__)
        begun = time.monotonic()
        with SlowWork(daemon, 4) as slow:
            bad += abort_all(daemon, generator, TIMES, STAGES)
        rate = slow.done / (time.monotonic() - begun)
        descriptors, used = settled(daemon, before)
        text = daemon.metrics()
        aborted = {phase: metric(text, "kernserve_requests_aborted_total", phase=phase) or 0
                   for phase in ("receive", "queue", "compute", "send")}
        print(f"beside {slow.done} products: descriptors {before} -> {descriptors}, in use {used}, aborted {aborted}")
        # Under TSan, which is told by the rate (2 products a second; 20 to 40 without), requests hardly come to queue.
        met = aborted["receive"] and (aborted["queue"] or rate < 8)
        if descriptors > before or used != (0, 0) or slow.wrong or not met:
            bad.append(f"beside slow work: {slow.wrong[:3]}")
        code = daemon.stop()
    print("exit code", code)
    sys.exit(f"left something behind: {bad}" if bad or code != 0 else 0)


main()
