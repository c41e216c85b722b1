#!/usr/bin/env python3
"""Clients that vanish in every stage of a request leave nothing behind: descriptors and slots are back within a second."""
import socket
import struct
import sys
import time

from kernserve_daemon import Daemon, daemon_path, random_values, row_request, seed

TIMES = 50


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


def settled(daemon, before):
    end = time.monotonic() + 1.5
    now = daemon.descriptors()
    while now > before and time.monotonic() < end:
        time.sleep(0.05)
        now = daemon.descriptors()
    used = daemon.metric('kernserve_pinned_memory_bytes{state="used"}')
    while used and time.monotonic() < end + 1.5:
        time.sleep(0.05)
        used = daemon.metric('kernserve_pinned_memory_bytes{state="used"}')
    return now, used


def main():
    generator = seed()
    bad = []
    with Daemon(daemon_path(), "--threads", "1") as daemon:
        time.sleep(0.2)
        before = daemon.descriptors()
        for stage in STAGES:
            for _ in range(TIMES if stage is not answer_unread else 20):
                head, body = row_request(random_values(generator, 256))
                try:
                    stage(daemon.connect(), head, body)
                except OSError as fault:
                    bad.append(f"{stage.__name__}: {fault}")
                    break
            descriptors, used = settled(daemon, before)
            print(f"{stage.__name__}: descriptors {before} -> {descriptors}, pinned bytes used {used:.0f}")
            if descriptors > before or used:
                bad.append(stage.__name__)
        code = daemon.stop()
    print("exit code", code)
    sys.exit(f"left something behind: {bad}" if bad or code != 0 else 0)


main()
