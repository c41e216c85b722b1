#!/usr/bin/env python3
"""Requests above the slots go through in pieces: right bytes in every form, memory waited for in turn and given back at
once, nobody kept waiting by one who has stopped. On the daemon itself, where they lie in ordinary memory; with --ring on
kernserve_streaming beside it, whose device has memory of its own, as a GPU has."""
import os
import re
import select
import socket
import struct
import sys
import threading
import time

from daemon import Daemon, daemon_path, metric, random_values, row_request, sanitizer, seed

MIB = 1 << 20
STREAMING = os.path.join(os.path.dirname(daemon_path()), "tests", "kernserve_streaming")


def start(path, memory, *options, environment=None):
    """One shard whose largest slot class is 1 MiB, and so much memory for what is above."""
    limit = "--inflight-bytes" if path != STREAMING else "--stream-bytes"
    return Daemon(path, "--backend", "cpu", "--pinned-bytes", "64M", "--threads", "1", limit, str(memory), *options,
                  environment=environment)


def read_large(s):
    """As read_answer, behind interim ones too, in time that grows with the length alone."""
    head, rest = b"HTTP/1.1 100 ", b""
    while head.startswith(b"HTTP/1.1 100 "):
        while b"\r\n\r\n" not in rest:
            more = s.recv(65536)
            if not more:
                return None
            rest += more
        head, rest = rest.split(b"\r\n\r\n", 1)
    lines = head.decode("latin-1").split("\r\n")
    fields = {name.strip().lower(): value.strip() for name, value in (line.split(":", 1) for line in lines[1:])}
    body = bytearray(int(fields.get("content-length", 0)))
    at = len(rest)
    body[:at] = rest
    view = memoryview(body)
    while at < len(body):
        n = s.recv_into(view[at:])
        if n == 0:
            return None
        at += n
    return int(lines[0].split(" ")[1]), fields, bytes(body)


def large_request(size):
    """Head and body of a request whose answer is its body; long rows, where it has some, are a quarter of the work in a slow build."""
    body = os.urandom(size)
    shape = "%d,1,1024" % (size // 4096) if size % 4096 == 0 else "%d,1" % (size // 4)
    head = ("POST /v2/models/reduce/infer?shape=%s&datatype=INT32&axis=1&op=max HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Length: %d\r\n\r\n" % (shape, size))
    return head.encode(), body


def binary_request(size):
    body = os.urandom(size)
    words = ('{"id":"large","inputs":[{"name":"INPUT0","datatype":"INT32","shape":[%d,1],"parameters":'
             '{"binary_data_size":%d}}],"parameters":{"binary_data_output":true,"op":"max","axis":1}}'
             % (size // 4, size)).encode()
    head = ("POST /v2/models/reduce/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
            "Inference-Header-Content-Length: %d\r\n\r\n" % (size + len(words), len(words)))
    return head.encode() + words, body


def chunked_request(size):
    body = os.urandom(size)
    head = ("POST /v2/models/reduce/infer?shape=%d,1&datatype=INT32&axis=1&op=max HTTP/1.1\r\nHost: localhost\r\n"
            "Transfer-Encoding: chunked\r\n\r\n" % (size // 4)).encode()
    return head, body


def chunks(body, size):
    return b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + size]), body[i:i + size])
                    for i in range(0, len(body), size)) + b"0\r\n\r\n"


def exchange(s, head, body):
    s.sendall(head)
    s.sendall(body)
    return read_large(s)


def held(daemon):
    """Large requests with memory, those that wait, and the memory."""
    text = daemon.metrics()
    return (metric(text, "kernserve_large_requests", state="open"),
            metric(text, "kernserve_large_requests", state="waiting"),
            metric(text, "kernserve_large_memory_bytes") + metric(text, "kernserve_inflight_bytes"))


def wait_for(daemon, expected, what, seconds=30):
    end = time.monotonic() + seconds
    while True:
        now = held(daemon)
        if all(e is None or n == e for n, e in zip(now, expected)):
            return
        assert time.monotonic() < end, "%s: open, waiting, bytes are %s and not %s" % (what, now, expected)
        time.sleep(0.01)


def phases(fields):
    named = {name: float(value) for name, value in re.findall(r"(\w+);dur=([0-9.]+)", fields["server-timing"])}
    total = named.pop("total")
    assert abs(sum(named.values()) - total) < 0.0015 * (len(named) + 1), fields["server-timing"]
    assert total > 0 and "compute" in named, fields["server-timing"]


def bytes_in_every_form(path, generator):
    with start(path, 96 * MIB) as daemon, daemon.dial(60) as s:
        for size in (MIB + 4, 3 * MIB - 4 * generator.randrange(1000), 24 * MIB + 12):
            for make in (large_request, binary_request, chunked_request):
                head, body = make(size)
                answer = exchange(s, head, chunks(body, 100000) if make is chunked_request else body)
                assert answer and answer[0] == 200, "%s of %d: %s" % (make.__name__, size, answer and answer[:2])
                skip = int(answer[1].get("inference-header-content-length", 0))
                assert answer[2][skip:] == body, "%s of %d: other bytes" % (make.__name__, size)
                assert (skip > 0) == (make is binary_request), answer[1]
                if skip:
                    assert b'"id":"large"' in answer[2][:skip], answer[2][:skip]
                phases(answer[1])
        head, body = large_request(4 * MIB)
        rows = struct.pack("<1048576f", *([0.5, 1.5] * 524288))  # blocks of a softmax: each row is 0.269, 0.731
        answer = exchange(s, ("POST /v2/models/softmax/infer?shape=524288,2&datatype=FP32 HTTP/1.1\r\nHost: localhost\r\n"
                              "Content-Length: %d\r\n\r\n" % len(rows)).encode(), rows)
        first = answer[2][:8]
        assert answer[2] == first * 524288 and abs(sum(struct.unpack("<2f", first)) - 1) < 1e-6
        wait_for(daemon, (0, 0, 0), "after all")
        assert daemon.stop() == 0


class Clients:
    """Threads that send large requests one after the other and compare."""

    def __init__(self, daemon, count, times, size):
        self.bad, self.done = [], 0
        self.threads = [threading.Thread(target=self.client, args=(daemon, times, size)) for _ in range(count)]
        for t in self.threads:
            t.start()

    def client(self, daemon, times, size):
        try:
            for _ in range(times):
                head, body = large_request(size)
                with daemon.dial(60) as s:
                    answer = exchange(s, head, body)
                if answer is None or answer[0] != 200 or answer[2] != body:
                    self.bad.append(answer and answer[:2])
                self.done += 1
        except OSError as fault:
            self.bad.append(fault)

    def join(self):
        for t in self.threads:
            t.join()
        assert not self.bad, self.bad[:3]


def more_than_the_memory_holds(path, generator):
    """Eight clients, memory for two: all are served, and small requests beside them."""
    with start(path, 34 * MIB) as daemon, daemon.dial(60) as small:
        clients = Clients(daemon, 8, 3, 8 * MIB)
        head, body = row_request(random_values(generator, 256))
        most, count = 0, 0
        while any(t.is_alive() for t in clients.threads):
            assert exchange(small, head, body)[2] == body
            most = max(most, held(daemon)[0])
            count += 1
        clients.join()
        assert most <= 2, "%d large requests had memory, there is room for two" % most
        wait_for(daemon, (0, 0, 0), "after all")
        print("   %d small requests beside %d large ones" % (count, clients.done))
        assert daemon.stop() == 0


def stopped_clients(path, generator):
    """Those who stop amid a body or an answer hold no lane, and leave nothing behind."""
    # a byte a second, so that none of them is too slow before a slow machine has sent all
    with start(path, 220 * MIB, "--min-rate", "1") as daemon:
        stopped = []
        for i in range(16):
            head, body = large_request(6 * MIB)  # more than a socket's buffers hold, 4 MiB here
            stopped.append(daemon.dial(60))
            stopped[-1].sendall(head + (body if i % 2 else body[:60 + i * MIB // 4]))
        wait_for(daemon, (16, 0, None), "sixteen that stop")
        head, body = large_request(8 * MIB)
        with daemon.dial(60) as s:
            assert exchange(s, head, body)[2] == body, "a request beside those that have stopped"
        assert metric(daemon.metrics(), "kernserve_lanes", state="busy") == 0
        for i, s in enumerate(stopped):
            if i % 4 < 2:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
        wait_for(daemon, (0, 0, 0), "after they have gone", 1)
        assert daemon.stop() == 0


def memory_goes_back_with_the_fault(path, generator):
    """A body that turns out wrong, too slow or too long gives its memory back before its connection ends."""
    with start(path, 64 * MIB, "--body-timeout", "3s") as daemon:
        head, body = chunked_request(4 * MIB)
        with daemon.dial(60) as s:
            s.sendall(head + chunks(body + body[:100000], 100000)[:-5])
            wait_for(daemon, (0, 0, 0), "a body that is longer than its shape")
            s.sendall(b"0\r\n\r\n")
            answer = read_large(s)
            assert answer[0] == 400 and answer[1]["kernserve-error"] == "binary_size", answer
        head, body = large_request(4 * MIB)
        with daemon.dial(60) as s:
            s.sendall(head + body[:2 * MIB])
            wait_for(daemon, (1, 0, None), "half a body")
            answer = read_large(s)
            assert answer[0] == 408 and answer[1]["kernserve-error"] == "slow", answer
            wait_for(daemon, (0, 0, 0), "a body that came too slowly")
        assert daemon.stop() == 0


def waiting(path, generator):
    """Waiting for memory is not the client's slowness; the queue is bounded; half a close is no leaving."""
    with start(path, 18 * MIB, "--body-timeout", "3s", "--queue", "2") as daemon:
        head, body = large_request(8 * MIB)
        with daemon.dial(60) as first, daemon.dial(60) as second, daemon.dial(60) as third, daemon.dial(60) as late:
            first.sendall(head + body)  # its answer stays unread: it keeps the memory
            wait_for(daemon, (1, 0, None), "the first")
            sender = threading.Thread(target=lambda: (second.sendall(head + body), second.shutdown(socket.SHUT_WR)))
            sender.start()
            wait_for(daemon, (1, 1, None), "the second")
            third.sendall(head + body[:3 * MIB // 2])
            wait_for(daemon, (1, 2, None), "the third")
            begun = time.monotonic()
            late.sendall(head)
            answer = read_large(late)
            assert answer[0] == 503 and answer[1]["kernserve-error"] == "queue_full", answer
            assert answer[1]["retry-after"] and time.monotonic() - begun < 2.5
            time.sleep(3.5)
            assert held(daemon)[:2] == (1, 2), "the body's time runs on while the request waits"
            third.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            third.close()
            wait_for(daemon, (1, 1, None), "one that has gone")
            assert read_large(first)[2] == body
            answer = read_large(second)
            assert answer and answer[0] == 200 and answer[2] == body, answer and answer[:2]
            sender.join()
        wait_for(daemon, (0, 0, 0), "after all")
        assert daemon.stop() == 0


def the_deadline_ends_waiting(path, generator):
    with start(path, 18 * MIB, "--request-timeout", "2s") as daemon:
        head, body = large_request(8 * MIB)
        with daemon.dial(60) as first, daemon.dial(60) as second:
            first.sendall(head + body)
            wait_for(daemon, (1, 0, None), "the first")
            second.sendall(head + body[:MIB])
            begun = time.monotonic()
            answer = read_large(second)
            assert answer[0] == 504 and answer[1]["kernserve-error"] == "deadline", answer
            assert 1.5 < time.monotonic() - begun < 20
            wait_for(daemon, (1, 0, None), "one that was told")
        assert daemon.stop() == 0


class Taker(threading.Thread):
    """Sends as far as it is let, and reads on `hold` seconds after its answer has begun, whose memory it keeps so long."""

    def __init__(self, daemon, head, body, hold):
        super().__init__()
        self.head, self.body = head, body
        self.where, self.hold, self.answer, self.took = daemon, hold, None, 0.0
        self.start()

    def run(self):
        with self.where.dial(60) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            begun = time.monotonic()
            s.sendall(self.head)
            left = memoryview(self.body)
            while left:
                readable, _, _ = select.select([s], [s], [], 60)
                if readable:
                    break
                left = left[s.send(left[:65536]):]
            first = s.recv(12, socket.MSG_PEEK)
            self.took = time.monotonic() - begun
            if first.endswith(b" 200"):
                time.sleep(self.hold)
            self.answer = read_large(s)

    def status(self):
        return self.answer[0] if self.answer else None


def alone_s(path, memory, head, body):
    """Seconds that such a request takes with nothing beside it, at most of three."""
    took = []
    with start(path, memory, "--threads", "1") as daemon, daemon.dial(60) as s:
        for _ in range(3):
            begun = time.monotonic()
            assert exchange(s, head, body)[0] == 200
            took.append(time.monotonic() - begun)
        assert daemon.stop() == 0
    return max(took)


def a_line_too_long(path, generator):
    """Memory for two, which their clients keep for 0.25 s: within a deadline of 3 s some 24 can be served. Who would wait for
    longer hears so at once, as soon as there is a rate to tell it by; before that everybody waits. Where the work itself takes
    longer, clients keep it and wait for longer too."""
    size = 6 * MIB if sanitizer(path) else 8 * MIB  # more than a socket's buffers hold
    memory = 9 * size // 2
    head, body = large_request(size)
    hold = max(0.25, 3 * alone_s(path, memory, head, body))
    deadline = 12 * hold
    with start(path, memory, "--request-timeout", "%dms" % (1e3 * deadline), "--threads", "1") as daemon:
        first = [Taker(daemon, head, body, hold) for _ in range(8)]
        for one in first:
            one.join()
            assert one.status() == 200 and one.answer[2] == one.body, one.answer and one.answer[:2]
        second = []
        for _ in range(70):
            second.append(Taker(daemon, head, body, hold))
            time.sleep(0.005)
        for one in second:
            one.join()
        counts = {status: sum(one.status() == status for one in second) for status in (200, 503, 504)}
        refused = [one for one in second if one.status() == 503]
        print("    of 70: %s; refused within %.2f s" % (counts, max([one.took for one in refused], default=0)))
        assert sum(counts.values()) == 70, counts
        assert counts[200] >= 10 and counts[503] >= 30 and counts[504] <= 10, counts
        for one in second:
            assert one.status() != 200 or one.answer[2] == one.body, "other bytes"
        for one in refused:
            assert one.answer[1]["kernserve-error"] == "budget" and int(one.answer[1]["retry-after"]) >= 1, one.answer[1]
        at_once = sum(one.took < deadline / 3 for one in refused)
        assert at_once >= 0.8 * len(refused), "%d of %d were told within a third of the deadline" % (at_once, len(refused))
        with daemon.dial(60) as s:  # the rate that was low keeps nobody out
            answer = exchange(s, head, body)
            assert answer[0] == 200 and answer[2] == body
        wait_for(daemon, (0, 0, 0), "after all")
        assert daemon.stop() == 0


def a_drain_finishes_them(path, generator):
    with start(path, 64 * MIB) as daemon, daemon.dial(60) as s:
        head, body = large_request(12 * MIB)
        s.sendall(head + body[:4 * MIB])
        wait_for(daemon, (1, 0, None), "a body under way")
        codes = []
        stopper = threading.Thread(target=lambda: codes.append(daemon.stop()))
        stopper.start()
        time.sleep(0.3)
        s.sendall(body[4 * MIB:])
        answer = read_large(s)
        assert answer and answer[0] == 200 and answer[2] == body and answer[1]["connection"] == "close"
        stopper.join()
        assert codes == [0], codes


def a_drain_s_end_cuts_them(path, generator):
    with start(path, 64 * MIB, "--shutdown-timeout", "500ms") as daemon, daemon.dial(60) as s, daemon.dial(60) as t:
        head, body = large_request(12 * MIB)
        s.sendall(head + body[:4 * MIB])
        t.sendall(head + body)
        wait_for(daemon, (2, 0, None), "a body and an answer under way")
        code = daemon.stop()
        assert code in (0, 75), code


def a_device_that_is_lost(path, generator):
    """Amid the copies in: 503. Amid the copies out: the answer ends early. Either way the daemon ends as it should."""
    if path != STREAMING:
        return
    for copy in (3, 9):
        with start(path, 64 * MIB, environment={"KS_FAIL_COPY": str(copy)}) as daemon, daemon.dial(60) as s:
            head, body = large_request(12 * MIB)
            try:
                answer = exchange(s, head, body)
            except (BrokenPipeError, ConnectionResetError):
                answer = None
            if answer:
                assert answer[0] == 503 and answer[1]["kernserve-error"] == "device", answer[:2]
            code = daemon.wait(20)
            assert code == 70, code


def main():
    generator = seed()
    faults = []
    for path in [STREAMING] if "--ring" in sys.argv else [daemon_path()]:
        for test in (bytes_in_every_form, more_than_the_memory_holds, stopped_clients, memory_goes_back_with_the_fault,
                     waiting, the_deadline_ends_waiting, a_line_too_long, a_drain_finishes_them, a_drain_s_end_cuts_them,
                     a_device_that_is_lost):
            begun = time.monotonic()
            name = "%s: %s" % (os.path.basename(path), test.__name__)
            if test is a_line_too_long and path == STREAMING and sanitizer(path) == "thread":
                print("%s: left out, a copy at this pace takes minutes; without --ring it is done" % name)
                continue
            try:
                test(path, generator)
                print("%s: as promised, %.1f s" % (name, time.monotonic() - begun))
            except (AssertionError, OSError, TypeError) as fault:
                faults.append("%s: %s" % (name, fault or repr(fault)))
                print("FAULT", faults[-1])
    sys.exit("\n".join(faults) if faults else 0)


main()
