#!/usr/bin/env python3
"""Clients that end their side of the connection behind a request. One that has closed loses its place in the queue at once; one
that still reads gets its answer, behind at most one interim response; and what was pipelined in front of the end is answered,
and then the connection is closed. HTTP/1.0 is the library's, all else the plain reader's."""
import socket
import struct
import sys
import time

from daemon import HeldDaemon, check, comes_to, metric, random_values, row_request, seed, wrongs

CLIENTS = 12
FIELDS = {"plainest form": b"X-None: 0", "other form": b"Accept-Language:  en"}  # two blanks


def requests_of(generator, count, field, version=b"1.1"):
    """So many requests, each with the body that its answer has."""
    for _ in range(count):
        head, body = row_request(random_values(generator, 64))
        yield head.replace(b"\r\n\r\n", b"\r\n" + field + b"\r\n\r\n").replace(b"HTTP/1.1", b"HTTP/" + version) + body, body


def answers(s):
    """(status, body) of everything that comes, to the end of the stream; the last item is None where that does not come."""
    data, found = b"", []
    try:
        while True:
            more = s.recv(65536)
            if not more:
                break
            data += more
    except (TimeoutError, ConnectionResetError) as fault:
        found.append(repr(fault))
    while b"\r\n\r\n" in data:
        head, data = data.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").lower().split("\r\n")
        length = sum(int(line.split(":")[1]) for line in lines if line.startswith("content-length:"))
        found.insert(len(found), (int(lines[0].split(" ")[1]), data[:length]))
        data = data[length:]
    return found


def pipelined(daemon, generator):
    for name, field in FIELDS.items():
        for count in (1, 2, 3):
            for pause in (None, 0, 0.05):  # None: the end comes in the last request's segment
                asked = list(requests_of(generator, count, field))
                with daemon.dial(timeout=30) as s:
                    s.sendall(b"".join(data for data, _ in asked), socket.MSG_MORE if pause is None else 0)
                    time.sleep(pause or 0)
                    s.shutdown(socket.SHUT_WR)
                    got = answers(s)
                    check(got == [(200, body) for _, body in asked], name, count, "requests and the end", got)


def dropped(daemon):
    return metric(daemon.metrics(), "kernserve_requests_aborted_total", phase="queue") or 0


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def wait_behind(daemon, generator, field, version):
    """Clients whose requests are in the queue; the bodies of their answers."""
    waiting, asked = [], []
    for data, body in requests_of(generator, CLIENTS, field, version):
        waiting.append(daemon.dial(timeout=30))
        waiting[-1].sendall(data)
        asked.append(body)
    check(comes_to(daemon.queued, CLIENTS) == CLIENTS, "in the queue are", daemon.queued())
    return waiting, asked


def gone(daemon, generator):
    # To a closed client of HTTP/1.0 nothing can be sent before its answer: only a reset tells of it.
    for name, field, version, leave in (*((name, field, b"1.1", leave) for name, field in FIELDS.items() for leave in (socket.socket.close, reset)),
                                        ("HTTP/1.0", b"X-None: 0", b"1.0", reset)):
        with daemon.held():
            before = dropped(daemon)
            waiting, _ = wait_behind(daemon, generator, field, version)
            begun = time.monotonic()
            for s in waiting:
                leave(s)
            left = comes_to(daemon.queued, 0)
            took, count = time.monotonic() - begun, dropped(daemon) - before
            print("%s, %s: %d of %d dropped within %.0f ms, %d keep their places" % (name, leave.__name__, count, CLIENTS, took * 1e3, left))
            check(count == CLIENTS and left == 0, name, leave.__name__, "clients that have gone keep their places in the queue")


def still_reads(daemon, generator, interim):
    for name, field, version, most in (*((name, field, b"1.1", interim) for name, field in FIELDS.items()),
                                       ("HTTP/1.0", b"X-None: 0", b"1.0", 0)):
        with daemon.held():
            waiting, asked = wait_behind(daemon, generator, field, version)
            for s in waiting:
                s.shutdown(socket.SHUT_WR)
            for s in waiting[:CLIENTS * most]:
                s.recv(1, socket.MSG_PEEK)
            time.sleep(0.5)  # five times --half-close-wait: nothing more is to come
            check(daemon.queued() == CLIENTS, name, "still reads, but of", CLIENTS, "there are in the queue", daemon.queued())
        for s, body in zip(waiting, asked):
            got = answers(s)
            check(got == [(100, b"")] * most + [(200, body)], name, "still reads", got)
            s.close()
        print("%s: %d answers, each behind %d interim responses" % (name, CLIENTS, most))


def main():
    generator = seed()
    with HeldDaemon() as daemon:
        pipelined(daemon, generator)
        gone(daemon, generator)
        still_reads(daemon, generator, 1)
        check(daemon.stop() == 0, "exit code")
    with HeldDaemon("--half-close-wait", "0s") as daemon:
        still_reads(daemon, generator, 0)
        check(daemon.stop() == 0, "exit code")
    sys.exit(1 if wrongs() else 0)


main()
