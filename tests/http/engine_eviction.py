#!/usr/bin/env python3
"""All places of connections are taken, and another client comes: whose connection gives way, and whose never does. On the data
listener, with its connections over two shards, and on the second listener, which has 64 places."""
import os
import select
import socket
import sys
import tempfile
import threading
import time

from daemon import DEADLINE_S, check, comes_to, cpu_daemon, daemon_path, metric, random_values, read_answer, request, row_request, sanitizer, seed, wrongs

LIMIT, ADMIN = 8, 64
SOON_S = 8  # under load; the idle timeout is 75 s, that of a head 10 s


def dial(port, address="127.0.0.1", timeout=SOON_S):
    s = socket.create_connection(("127.0.0.1", port), timeout, (address, 0))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def exchange(s, generator):
    """True: the right answer came; a connection that is closed, or not answered, gives False."""
    head, body = row_request(random_values(generator, 64))
    try:
        s.sendall(head + body)
        answer = read_answer(s)
    except OSError:
        return False
    return answer is not None and answer[0] == 200 and answer[2] == body


def has_ended(s):
    if not select.select([s], [], [], 0)[0]:
        return False
    try:
        return s.recv(1, socket.MSG_PEEK) == b""
    except ConnectionResetError:
        return True


def told(daemon, name, **labels):
    """The question takes a place itself: asked of the second listener."""
    with dial(daemon.admin_port) as s:
        s.sendall(request("GET", "/metrics"))
        return metric(read_answer(s)[2].decode(), name, **labels)


def evicted(daemon, reason):
    return told(daemon, "kernserve_http_connections_evicted_total", reason=reason)


def of_data(daemon):
    """Connections that are open, without the asker's."""
    return told(daemon, "kernserve_http_connections") - 1


def longest_idle(generator):
    """Of the plain reader: the library has one request a connection, and none that is idle."""
    with cpu_daemon("--threads", "2", "--connections", str(LIMIT)) as daemon:
        kept = []
        for _ in range(LIMIT):
            kept.append(dial(daemon.port))
            check(exchange(kept[-1], generator), "a connection within the limit")
            time.sleep(0.02)
        time.sleep(0.12)
        for i in range(3):
            begun = time.monotonic()
            kept.append(dial(daemon.port))
            check(exchange(kept[-1], generator), "new client", i)
            print("a new client is served after %.0f ms" % ((time.monotonic() - begun) * 1e3))
        ended = [i for i, s in enumerate(kept) if has_ended(s)]
        check(ended == [0, 1, 2], "gave way", ended)
        check(all(exchange(s, generator) for s in kept[3:]), "a connection that stayed")
        check(evicted(daemon, "idle") == 3 and evicted(daemon, "no_request") == 0, "evictions")
        for s in kept:
            s.close()
        check(daemon.stop() == 0, "exit code")


def under_way_stays(generator):
    """Requests amid their bodies; and a part of a head, for a second."""
    head, body = row_request(random_values(generator, 64))
    with cpu_daemon("--threads", "2", "--connections", str(LIMIT)) as daemon:
        busy = [dial(daemon.port, timeout=20) for _ in range(LIMIT)]
        for s in busy[1:]:
            check(exchange(s, generator), "a connection within the limit")
            s.sendall(head + body[:9])
        check(exchange(busy[0], generator), "a connection within the limit")
        begun = time.monotonic()  # from here on and not from the new client's coming, which may be late
        busy[0].sendall(head[:30])
        time.sleep(0.15)
        late = dial(daemon.port, timeout=DEADLINE_S)
        late.sendall(head + body)
        answer = read_answer(late)
        took = time.monotonic() - begun
        print("a part of a head gave way after %.1f s" % took)
        check(answer and answer[2] == body and took > 0.75, "part of a head", took)
        check(has_ended(busy[0]) and not any(has_ended(s) for s in busy[1:]), "who gave way")
        for s in busy[1:]:
            s.sendall(body[9:])
            answer = read_answer(s)
            check(answer and answer[2] == body, "a request under way was lost", answer)
        check(daemon.stop() == 0, "exit code")


class Storm(threading.Thread):
    """Keeps connections with one byte open, and opens another for each that is closed."""

    def __init__(self, port, count):
        super().__init__()
        self.port, self.count, self.opened, self.stop = port, count, 0, threading.Event()
        self.start()

    def run(self):
        poll, held = select.epoll(), {}
        while not self.stop.is_set():
            while len(held) < self.count:
                try:
                    s = dial(self.port)
                    s.sendall(b"P")
                except OSError:
                    break
                held[s.fileno()] = s
                poll.register(s, select.EPOLLRDHUP)
                self.opened += 1
            for fd, _ in poll.poll(0.01):
                poll.unregister(fd)
                held.pop(fd).close()
        for s in held.values():
            s.close()

    def end(self):
        self.stop.set()
        self.join()


def storm(generator):
    limit, count = 64, 200
    with cpu_daemon("--threads", "2", "--connections", str(limit)) as daemon:
        kept = [dial(daemon.port) for _ in range(8)]
        check(all(exchange(s, generator) for s in kept), "kept connections")
        flood = Storm(daemon.port, count)
        time.sleep(0.5)
        times, end = [], time.monotonic() + 3
        while time.monotonic() < end:
            begun = time.monotonic()
            with dial(daemon.port) as s:
                if exchange(s, generator):
                    times.append(time.monotonic() - begun)
                else:
                    times.append(float("inf"))
        alive = [not has_ended(s) and exchange(s, generator) for s in kept]
        flood.end()
        times.sort()
        good = sum(t < float("inf") for t in times)
        print("%d one-byte connections in 3.5 s; %d of %d new clients served, median %.1f ms, p99 %.1f ms" %
              (flood.opened, good, len(times), times[len(times) // 2] * 1e3, times[len(times) * 99 // 100] * 1e3))
        check(flood.opened > 2 * count, "this was no storm", flood.opened)
        check(len(times) >= 20 and good >= 0.98 * len(times), "new clients beside a storm", good, len(times))
        check(times[len(times) * 99 // 100] < 0.5, "p99 beside a storm", times[-5:])
        # Seen once, beside other tests: a shard of TSan's pace had no new connection left when the next one came, and its kept ones gave way.
        check(all(alive) or sanitizer(daemon_path()) == "thread" and alive.count(False) <= evicted(daemon, "idle"), "kept connections beside a storm", alive)
        # Idle is also a new client that has its answer and whose leaving has not been noticed yet.
        idle, silent = evicted(daemon, "idle"), evicted(daemon, "no_request")
        check(idle <= 0.02 * len(times) and silent > count, "evictions", idle, silent)
        check(daemon.stop() == 0, "exit code")


def addresses(generator):
    """The address with more than half of the places gives way, although another one's connection is older."""
    with cpu_daemon("--threads", "1", "--connections", str(LIMIT)) as daemon:
        first = dial(daemon.port, "127.0.0.3")
        others = [dial(daemon.port, "127.0.0.2") for _ in range(LIMIT - 1)]
        for s in [first] + others:
            s.sendall(b"P")
        time.sleep(0.2)
        with dial(daemon.port, "127.0.0.3") as s:
            check(exchange(s, generator), "a new client")
        check(has_ended(others[0]) and not has_ended(first), "who gave way")
        check(daemon.stop() == 0, "exit code")


def bound(generator):
    path = os.path.join(tempfile.mkdtemp(), "socket")
    with cpu_daemon("--threads", "2", "--connections-per-address", "3", "--listen", "unix:" + path) as daemon:
        mine = [dial(daemon.port, "127.0.0.2") for _ in range(4)]
        check([exchange(s, generator) for s in mine] == [True] * 3 + [False], "four of one address")
        check(exchange(dial(daemon.port, "127.0.0.3"), generator), "another address")
        mine[0].close()
        check(comes_to(lambda: of_data(daemon), 2) == 2, "two stay", of_data(daemon))
        check(exchange(dial(daemon.port, "127.0.0.2"), generator), "after one of them was closed")
        local = [socket.socket(socket.AF_UNIX) for _ in range(6)]
        for s in local:
            s.settimeout(SOON_S)
            s.connect(path)
            check(exchange(s, generator), "UNIX sockets have no address")
        check(evicted(daemon, "address") == 1, "the counter", evicted(daemon, "address"))
        check(daemon.stop() == 0, "exit code")


def second_listener():
    """80 connections of one byte, then 80 heads whose bodies never come: health is answered, in the places that it keeps."""
    endless = request("POST", "/v2/repository/index", body=b"{}")[:-2]
    with cpu_daemon("--threads", "1") as daemon:
        for name, data in (("one byte", b"G"), ("no body", endless), ("no body, no path", endless.replace(b"index", b"nope"))):
            held = [dial(daemon.admin_port) for _ in range(ADMIN * 5 // 4)]
            for s in held:
                try:
                    s.sendall(data)
                except OSError:
                    pass
            worst = 0
            for target in ("/v2/health/live", "/v2/health/ready") * 4:
                begun = time.monotonic()
                try:
                    with dial(daemon.admin_port) as s:
                        s.sendall(request("GET", target))
                        answer = read_answer(s)
                except OSError as fault:
                    answer = (repr(fault),)
                worst = max(worst, time.monotonic() - begun)
                check(answer and answer[0] == 200, "second listener,", name, answer)
            print("second listener, %s: health in %.0f ms at most" % (name, worst * 1e3))
            for s in held:
                s.close()
        check(daemon.stop() == 0, "exit code")


def main():
    generator = seed()
    for test in (longest_idle, under_way_stays, storm, addresses, bound):
        test(generator)
    second_listener()
    sys.exit(1 if wrongs() else 0)


main()
