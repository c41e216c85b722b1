#!/usr/bin/env python3
"""Bodies and answers that are moved in pieces: every way in which such a request can end, and what its
connection is good for afterwards. On the daemon itself; with --ring on kernserve_streaming beside it, whose device has memory of its
own, so that what is above the slots goes through the ring."""
import json
import os
import socket
import struct
import sys
import tempfile
import threading
import time
from array import array

from daemon import Daemon, daemon_path, metric, random_values, read_answer, row_request, seed, settle

MIB = 1 << 20
STREAMING = os.path.join(os.path.dirname(daemon_path()), "tests", "kernserve_streaming")
SIZES = (40000, MIB, 6 * MIB)  # in a slot, in a slot and in many pieces, above the slots


def start(path, *options):
    limit = "--inflight-bytes" if path != STREAMING else "--stream-bytes"
    return Daemon(path, "--backend", "cpu", "--pinned-bytes", "64M", "--threads", "1", limit, str(128 * MIB), *options)


def large_request(size):
    """Head and body of a request whose answer is its body."""
    head = ("POST /v2/models/reduce/infer?shape=%d,1&datatype=INT32&axis=1&op=max HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Length: %d\r\n\r\n" % (size // 4, size))
    return head.encode(), os.urandom(size)


def binary_request(size):
    body = os.urandom(size)
    words = ('{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[%d,1],"parameters":{"binary_data_size":%d}}],'
             '"parameters":{"binary_data_output":true,"op":"max","axis":1}}' % (size // 4, size)).encode()
    head = ("POST /v2/models/reduce/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
            "Inference-Header-Content-Length: %d\r\n\r\n" % (size + len(words), len(words)))
    return head.encode() + words, body


def json_request(count):
    """As many numbers, and what comes back."""
    values = [float(i * 7919 % 2003) for i in range(count)]
    words = ('{"parameters":{"op":"max","axis":1},"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[%d,1],"data":%s}]}'
             % (count, json.dumps(values))).encode()
    head = "POST /v2/models/reduce/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(words)
    return head.encode() + words, values


class Sender(threading.Thread):
    """Sends while somebody else reads; a peer that hangs up ends it."""

    def __init__(self, s, data):
        super().__init__()
        self.socket, self.data, self.fault = s, data, None
        self.start()

    def run(self):
        try:
            self.socket.sendall(self.data)
        except OSError as fault:
            self.fault = fault


class Reader:
    """Answers on one socket, one after the other, however they lie behind each other."""

    def __init__(self, s, piece=1 << 20):
        self.socket, self.piece, self.rest = s, piece, b""

    def answer(self):
        while b"\r\n\r\n" not in self.rest:
            more = self.socket.recv(self.piece)
            if not more:
                return None
            self.rest += more
        head, rest = self.rest.split(b"\r\n\r\n", 1)
        if head.startswith(b"HTTP/1.1 100 "):
            self.rest = rest
            return self.answer()
        lines = head.decode("latin-1").split("\r\n")
        fields = {name.strip().lower(): value.strip() for name, value in (line.split(":", 1) for line in lines[1:])}
        length, parts, got = int(fields.get("content-length", 0)), [rest], len(rest)
        while got < length:
            parts.append(self.socket.recv(self.piece))
            if not parts[-1]:
                return None
            got += len(parts[-1])
        whole = b"".join(parts)
        self.rest = whole[length:]
        return int(lines[0].split(" ")[1]), fields, whole[:length]


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def aborted(daemon, phase):
    return metric(daemon.metrics(), "kernserve_requests_aborted_total", phase=phase) or 0


def wait_until(true, what, seconds=30):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def nothing_is_left(daemon):
    def idle():
        text = daemon.metrics()
        return not any(metric(text, name, **labels) for name, labels in (
            ("kernserve_large_requests", {"state": "open"}), ("kernserve_large_requests", {"state": "waiting"}),
            ("kernserve_large_memory_bytes", {}), ("kernserve_inflight_bytes", {}), ("kernserve_inference_requests_in_flight", {})))

    wait_until(idle, "something is left")
    assert settle(daemon) == 0


def served(s, generator):
    head, body = row_request(random_values(generator, 64))
    s.sendall(head + body)
    answer = read_answer(s)
    return answer is not None and answer[0] == 200 and answer[2] == body


# --- what must go well ---


def one_behind_the_other(daemon, generator):
    """In a pipeline: large, small, JSON, large ones, OIP's, small; sent without a look at any answer."""
    before = daemon.metrics()
    requests = [(*large_request(size), False) for size in SIZES]
    requests.insert(1, (*row_request(random_values(generator, 64)), False))
    requests.insert(2, (*binary_request(5 * MIB), True))
    requests.append((*row_request(random_values(generator, 64)), False))
    with daemon.dial(60) as s:
        sender, reader = Sender(s, b"".join(head + body for head, body, _ in requests)), Reader(s)
        for i, (head, body, words) in enumerate(requests):
            answer = reader.answer()
            assert answer and answer[0] == 200, "number %d: %s" % (i, answer and answer[:2])
            skip = int(answer[1].get("inference-header-content-length", 0))
            assert answer[2][skip:] == body and (skip > 0) == words, "number %d: other bytes" % i
        sender.join()
        assert served(s, generator)
    after = daemon.metrics()
    for name in ("request", "response"):
        moved = [metric(text, "kernserve_http_%s_body_bytes_total" % name, handler="infer") or 0 for text in (before, after)]
        least = sum(len(body) for _, body, _ in requests)
        assert least <= moved[1] - moved[0] < least + 10000, "%s bytes: %s" % (name, moved)


def over_a_local_socket(path, generator):
    with tempfile.TemporaryDirectory() as folder:
        where = os.path.join(folder, "socket")
        with start(path, "--listen", "unix:" + where) as daemon, socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(where)
            requests = [large_request(size) for size in (400, *SIZES, 64)]
            sender, reader = Sender(s, b"".join(head + body for head, body in requests)), Reader(s)
            for _, body in requests:
                answer = reader.answer()
                assert answer and answer[0] == 200 and answer[2] == body
            sender.join()
            assert daemon.stop() == 0


def numbers_in_words(daemon, generator):
    request, values = json_request(300000)
    with daemon.dial(60) as s:
        for _ in range(2):
            sender = Sender(s, request)
            answer = Reader(s).answer()
            sender.join()
            assert answer and answer[0] == 200, answer and answer[:2]
            assert json.loads(answer[2])["outputs"][0]["data"] == values
        assert served(s, generator)


def two_inputs(daemon, generator):
    """Rows of a large second matrix, which the first one picks: there is a gap between the two where they are put."""
    rows, cols, picked = 1001, 1303, (7, 1000, 0)
    right = array("f", (generator.randrange(-1000, 1000) for _ in range(rows * cols)))
    left = array("f", (float(at == one) for one in picked for at in range(rows)))
    body = left.tobytes() + right.tobytes()
    expected = b"".join(right[one * cols:(one + 1) * cols].tobytes() for one in picked)
    inputs = ['{"name":"INPUT%d","datatype":"FP32","shape":[%d,%d],"parameters":{"binary_data_size":%d}}' % (i, *shape, size)
              for i, (shape, size) in enumerate((((3, rows), len(left) * 4), ((rows, cols), len(right) * 4)))]
    words = ('{"inputs":[%s],"parameters":{"binary_data_output":true}}' % ",".join(inputs)).encode()
    plain = ("POST /v2/models/matmul/infer?shape=3,%d&shape=%d,%d&datatype=FP32 HTTP/1.1\r\nHost: localhost\r\n"
             "Content-Length: %d\r\n\r\n" % (rows, rows, cols, len(body))).encode()
    binary = ("POST /v2/models/matmul/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
              "Inference-Header-Content-Length: %d\r\n\r\n" % (len(words) + len(body), len(words))).encode() + words
    with daemon.dial(60) as s:
        for head in (plain, binary):
            s.sendall(head + body)
            answer = Reader(s).answer()
            assert answer and answer[0] == 200, answer
            assert answer[2][int(answer[1].get("inference-header-content-length", 0)):] == expected, "other bytes"
        assert served(s, generator)


def in_drops(daemon, generator):
    """A head in three pieces, a body in bytes at first, an answer read 3000 bytes at a time."""
    for size in SIZES:
        head, body = large_request(size)
        with daemon.dial(60) as s:
            for part in (head[:10], head[10:-1], head[-1:], body[:1], body[1:2], body[2:5]):
                s.sendall(part)
                time.sleep(0.002)
            sender = Sender(s, body[5:])
            answer = Reader(s, 3000).answer()
            sender.join()
            assert answer and answer[0] == 200 and answer[2] == body
            assert served(s, generator)


def half_a_close_behind_it(daemon, generator):
    for size in SIZES:
        head, body = large_request(size)
        with daemon.dial(60) as s:
            def send(s=s, head=head, body=body):
                s.sendall(head + body)
                s.shutdown(socket.SHUT_WR)

            sender = threading.Thread(target=send)
            sender.start()
            answer = Reader(s).answer()
            sender.join()
            assert answer and answer[0] == 200 and answer[2] == body
            assert s.recv(1) == b"", "the connection stays open"


# --- who goes away ---


def leaving_amid_the_body(daemon, generator):
    for size in SIZES:
        for leave in (socket.socket.close, reset):
            before = aborted(daemon, "receive")
            head, body = large_request(size)
            s = daemon.dial(60)
            s.sendall(head + body[:size // 2])
            # a reset takes along what the daemon has not read yet, the head too
            wait_until(lambda: metric(daemon.metrics(), "kernserve_inference_requests_in_flight"), "never under way")
            leave(s)
            wait_until(lambda: aborted(daemon, "receive") == before + 1, "not counted as aborted")
            nothing_is_left(daemon)


def leaving_amid_the_answer(daemon, generator):
    for leave in (socket.socket.close, reset):
        before = aborted(daemon, "send")
        head, body = large_request(24 * MIB)  # more than the sockets hold
        s = daemon.dial(60)
        s.sendall(head + body)
        assert s.recv(1) == b"H"
        leave(s)
        wait_until(lambda: aborted(daemon, "send") == before + 1, "not counted as aborted")
        nothing_is_left(daemon)


def leaving_behind_the_head(daemon, generator):
    before = aborted(daemon, "receive")
    head, _ = large_request(6 * MIB)
    with daemon.dial(60) as s:
        s.sendall(head)
        s.shutdown(socket.SHUT_WR)
        assert s.recv(1) == b""
    wait_until(lambda: aborted(daemon, "receive") == before + 1, "not counted as aborted")
    nothing_is_left(daemon)


# --- who is refused ---


def refused_before_the_body(path, generator):
    """Who finds the queue full is told before the body's end, and the answer is not lost although more of it comes."""
    with start(path, "--queue", "1") as daemon, daemon.dial(60) as first, daemon.dial(60) as second:
        head, body = large_request(60 * MIB)  # of 128 MiB, in and out
        senders = []
        for count, s in ((1, first), (2, second)):
            senders.append(Sender(s, head + body))
            wait_until(lambda: sum(metric(daemon.metrics(), "kernserve_large_requests", state=state)
                                   for state in ("open", "waiting")) == count, "it does not wait")
        for parts, more in (((head,), b""), ((head, body[:100000]), b""), ((head,), body)):
            with daemon.dial(60) as s:
                for part in parts:
                    s.sendall(part)
                sender = Sender(s, more)
                answer = Reader(s).answer()
                assert answer and answer[0] == 503 and answer[1]["kernserve-error"] == "queue_full", answer
                assert answer[1]["connection"] == "close" and s.recv(1) == b""
                sender.join()
        for s, sender in ((first, senders[0]), (second, senders[1])):
            answer = Reader(s).answer()
            sender.join()
            assert answer and answer[0] == 200 and answer[2] == body
        nothing_is_left(daemon)
        assert daemon.stop() == 0


def refused_behind_the_body(daemon, generator):
    """What a request has wrong is told behind its body, and the connection stays."""
    head, body = large_request(400000)
    head = head.replace(b"shape=", b"shape=3,")
    with daemon.dial(60) as s:
        for _ in range(3):
            s.sendall(head + body)
            answer = Reader(s).answer()
            assert answer and answer[0] == 400 and "connection" not in answer[1], answer
        assert served(s, generator)
    nothing_is_left(daemon)


def a_body_that_stops(daemon, generator):
    """408 in time, for whoever still listens; then the end. --body-timeout is a second."""
    for size in (400, *SIZES):
        head, body = large_request(size)
        with daemon.dial(60) as s:
            begun = time.monotonic()
            s.sendall(head + body[:size // 2])
            answer = Reader(s).answer()
            assert answer and answer[0] == 408 and answer[1]["kernserve-error"] == "slow", answer
            assert answer[1]["connection"] == "close" and 0.8 < time.monotonic() - begun < 20
            assert s.recv(1) == b""
        nothing_is_left(daemon)


def an_answer_that_nobody_reads(daemon, generator):
    """--send-timeout is two seconds, and the body may take its time."""
    head, body = large_request(24 * MIB)
    before = aborted(daemon, "send")
    with daemon.dial(60) as s:
        s.sendall(head + body)
        assert s.recv(13, socket.MSG_PEEK | socket.MSG_WAITALL) == b"HTTP/1.1 200 ", "no answer to leave unread"
        wait_until(lambda: aborted(daemon, "send") == before + 1, "still there", 25)
        nothing_is_left(daemon)


def a_drain_amid_the_answer(path, generator):
    with start(path) as daemon, daemon.dial(60) as s, daemon.dial(60) as t:
        head, body = large_request(24 * MIB)
        s.sendall(head + body)
        assert s.recv(1) == b"H"
        t.sendall(head + body[:MIB])
        time.sleep(0.1)
        codes = []
        stopper = threading.Thread(target=lambda: codes.append(daemon.stop()))
        stopper.start()
        time.sleep(0.3)
        reader = Reader(s)
        reader.rest = b"H"
        answer = reader.answer()
        assert answer and answer[0] == 200 and answer[2] == body
        sender = Sender(t, body[MIB:])
        answer = Reader(t).answer()
        sender.join()
        assert answer and answer[0] == 200 and answer[2] == body and answer[1]["connection"] == "close"
        assert t.recv(1) == b""
        stopper.join()
        assert codes == [0], codes


def small_ones_beside(daemon, generator):
    """Three connections with large bodies and answers, all the time; who asks for little is served in between."""
    over = threading.Event()
    faults = []

    def client():
        head, body = large_request(12 * MIB)
        with daemon.dial(60) as s:
            while not over.is_set() and not faults:
                sender = Sender(s, head + body)
                answer = Reader(s).answer()
                sender.join()
                if not answer or answer[0] != 200 or answer[2] != body:
                    faults.append(answer and answer[:2])

    threads = [threading.Thread(target=client) for _ in range(3)]
    for t in threads:
        t.start()
    with daemon.dial(60) as s:
        end, count = time.monotonic() + 1, 0
        while time.monotonic() < end:
            assert served(s, generator)
            count += 1
    over.set()
    for t in threads:
        t.join()
    assert not faults and count > 10, (faults, count)


# What each of them talks to: a daemon, one that does not wait long for bodies, one that does not for readers, or one that
# it starts itself.
TESTS = [(one_behind_the_other, "daemon"), (over_a_local_socket, "own"), (numbers_in_words, "daemon"),
         (two_inputs, "daemon"), (in_drops, "daemon"), (half_a_close_behind_it, "daemon"),
         (leaving_amid_the_body, "daemon"), (leaving_amid_the_answer, "daemon"), (leaving_behind_the_head, "daemon"),
         (refused_before_the_body, "own"), (refused_behind_the_body, "daemon"), (small_ones_beside, "daemon"),
         (a_body_that_stops, "strict"), (an_answer_that_nobody_reads, "unread"), (a_drain_amid_the_answer, "own")]


def main():
    generator = seed()
    faults = []
    for path in [STREAMING] if "--ring" in sys.argv else [daemon_path()]:
        with start(path, "--body-timeout", "1s", "--min-rate", "1") as strict, start(path) as daemon, \
                start(path, "--send-timeout", "2s", "--min-rate", "1") as unread:
            for test, on in TESTS:
                on = {"daemon": daemon, "strict": strict, "unread": unread, "own": path}[on]
                begun = time.monotonic()
                name = "%s: %s" % (os.path.basename(path), test.__name__)
                try:
                    test(on, generator)
                    print("%s: as promised, %.1f s" % (name, time.monotonic() - begun))
                except (AssertionError, OSError, TypeError) as fault:
                    faults.append("%s: %s" % (name, fault or repr(fault)))
                    print("FAULT", faults[-1])
            for one in (strict, unread, daemon):
                if one.stop() != 0:
                    faults.append("%s: another exit code" % os.path.basename(path))
    sys.exit("\n".join(faults) if faults else 0)


main()
