#!/usr/bin/env python3
"""Clients that end their side of the connection behind a request. One that has closed loses its place in the queue at once; one
that still reads gets its answer, behind at most one interim response; and what was pipelined in front of the end is answered,
and then the connection is closed. Through the plain reader and through the library."""
import socket
import sys
import time

from daemon import check, cpu_daemon, metric, random_values, row_request, seed, wrongs

SLOW = (b"POST /v2/models/matmul/infer?shape=1024,1024&shape=1024,1024&datatype=BF16 HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Length: 4194304\r\n\r\n" + bytes(4194304))
QUEUED, CLIENTS = 15, 12
FIELDS = {"plain reader": b"X-None: 0", "library": b"Accept-Language:  en"}  # two blanks are not of the plainest form


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
                with daemon.dial(timeout=2) as s:
                    s.sendall(b"".join(data for data, _ in asked), socket.MSG_MORE if pause is None else 0)
                    time.sleep(pause or 0)
                    s.shutdown(socket.SHUT_WR)
                    got = answers(s)
                    check(got == [(200, body) for _, body in asked], name, count, "requests and the end", got)


def fill_queue(daemon):
    """Work of a second or more; the clients that wait for it."""
    clients = [daemon.dial(timeout=60) for _ in range(QUEUED)]
    for s in clients:
        s.sendall(SLOW)
    end = time.monotonic() + 10
    while metric(daemon.metrics(), "kernserve_queue_depth") < QUEUED * 2 // 3 and time.monotonic() < end:
        time.sleep(0.005)
    return clients


def finish(clients):
    for s in clients:
        got = answers_of_one(s)
        check(got == 200, "work in front", got)
        s.close()


def answers_of_one(s):
    return int(s.recv(65536).split(b" ", 2)[1])


def dropped(daemon):
    return metric(daemon.metrics(), "kernserve_requests_aborted_total", phase="queue") or 0


def gone(daemon, generator):
    for name, field in FIELDS.items():
        before, clients = dropped(daemon), fill_queue(daemon)
        waiting = []
        for data, _ in requests_of(generator, CLIENTS, field):
            waiting.append(daemon.dial())
            waiting[-1].sendall(data)
        time.sleep(0.05)
        begun = time.monotonic()
        for s in waiting:
            s.close()
        while dropped(daemon) < before + CLIENTS and time.monotonic() < begun + 3:
            time.sleep(0.002)
        took, left = time.monotonic() - begun, metric(daemon.metrics(), "kernserve_queue_depth")
        print("%s: %d of %d dropped %.0f ms after they closed, %d still queued in front" %
              (name, dropped(daemon) - before, CLIENTS, took * 1e3, left))
        check(dropped(daemon) == before + CLIENTS and left > 0, name, "closed clients keep their places in the queue")
        finish(clients)


def still_reads(daemon, generator, interim):
    for name, field, version, most in (*((name, field, b"1.1", interim) for name, field in FIELDS.items()),
                                       ("HTTP/1.0", b"X-None: 0", b"1.0", 0)):
        clients, waiting, asked = fill_queue(daemon), [], []
        for data, body in requests_of(generator, CLIENTS, field, version):
            waiting.append(daemon.dial(timeout=30))
            waiting[-1].sendall(data)
            waiting[-1].shutdown(socket.SHUT_WR)
            asked.append(body)
        seen = 0
        for s, body in zip(waiting, asked):
            got = answers(s)
            seen += got[:1] == [(100, b"")]
            check(got in ([(200, body)], [(100, b""), (200, body)][:2 * most]), name, "still reads", got)
            s.close()
        print("%s: %d of %d answers, %d behind an interim response" % (name, CLIENTS, CLIENTS, seen))
        check(seen == most * CLIENTS, name, "interim responses", seen)
        finish(clients)


def main():
    generator = seed()
    options = ("--threads", "1", "--lanes", "1", "--pinned-bytes", "512M")
    with cpu_daemon(*options) as daemon:
        pipelined(daemon, generator)
        gone(daemon, generator)
        still_reads(daemon, generator, 1)
        check(daemon.stop() == 0, "exit code")
    with cpu_daemon(*options, "--half-close-wait", "0s") as daemon:
        still_reads(daemon, generator, 0)
        check(daemon.stop() == 0, "exit code")
    sys.exit(1 if wrongs() else 0)


main()
