#!/usr/bin/env python3
"""Limits hold, and past each of them the client gets the answer that is promised: tiny chunks, connections, descriptors,
slow headers and bodies, idle connections, memory of answers that nobody reads."""
import os
import resource
import select
import socket
import struct
import sys
import time

from daemon import comes_to, cpu_daemon, measured, metric, random_values, read_answer, row_request, seed

CHUNKS = 65536


def exchange(s, request):
    s.sendall(request)
    return read_answer(s)


def closed_after(s, seconds):
    """Seconds until the server closes; None: it has not within the given time."""
    begun = time.monotonic()
    s.settimeout(seconds)
    try:
        while s.recv(65536):
            pass
    except (TimeoutError, socket.timeout):
        return None
    except ConnectionResetError:
        pass
    return time.monotonic() - begun


def chunks_of(generator, size, count):
    """A chunked request whose body is `count` pieces of `size` bytes; what its answer must hold."""
    body = generator.getrandbits(8 * size * count).to_bytes(size * count, "little")
    head = ("POST /v2/models/reduce/infer?shape=%d,1&datatype=INT8&axis=1&op=max HTTP/1.1\r\nHost: localhost\r\n"
            "Transfer-Encoding: chunked\r\n\r\n" % len(body)).encode()
    line = b"%x\r\n" % size
    pieces = b"".join(line + body[i:i + size] + b"\r\n" for i in range(0, len(body), size))
    return head + pieces + b"0\r\n\r\n", body


def tiny_chunks(generator):
    """65,536 pieces of one byte are taken, one more is not, and larger pieces buy more of them."""
    with cpu_daemon("--threads", "1") as daemon:
        for size, count, expected in ((1, CHUNKS, 200), (1, CHUNKS + 40, 400), (100, CHUNKS + 600, 200)):
            request, body = chunks_of(generator, size, count)
            with daemon.dial() as s:
                try:
                    answer = exchange(s, request)
                except (BrokenPipeError, ConnectionResetError):
                    answer = read_answer(s)
                assert answer and answer[0] == expected, "%d chunks of %d: %s" % (count, size, answer and answer[:2])
                if expected == 200:
                    assert answer[2] == body, "%d chunks of %d: another body" % (count, size)
                else:
                    assert answer[1]["kernserve-error"] == "chunks" and answer[1]["connection"] == "close", answer
                    assert closed_after(s, 30) is not None, "the connection stays open after too many chunks"
        assert daemon.stop() == 0


def cpu_seconds(daemon):
    with open("/proc/%d/stat" % daemon.process.pid) as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def quiet(daemon, what):
    """Waiting must not cost a core."""
    before = cpu_seconds(daemon)
    time.sleep(1)
    spent = cpu_seconds(daemon) - before
    assert spent < 0.4, "%s: %.2f s of CPU in one second" % (what, spent)


def admission(generator):
    """While every connection within the limit is amid a request, those above it wait unanswered, cost nothing, and are served when
    others close. (What rests gives way: engine_eviction.py.)"""
    limit, extra = 8, 5
    with cpu_daemon("--threads", "2", "--connections", str(limit)) as daemon:
        measured(daemon)
        head, body = row_request(random_values(generator, 256))
        served = [daemon.dial() for _ in range(limit)]
        for s in served:
            assert exchange(s, head + body)[2] == body
            s.sendall(head + body[:7])
        waiting = [daemon.dial() for _ in range(extra)]
        for s in waiting:
            s.sendall(head + body)
        assert not select.select(waiting, [], [], 0.5)[0], "a connection above the limit was served"
        quiet(daemon, "connections above the limit")
        for s in served:
            assert exchange(s, body[7:] + head + body[:7])[2] == body, "a connection within the limit suffers"
        for closing, s in zip(served, waiting):
            closing.close()
            s.settimeout(30)
            assert read_answer(s)[2] == body, "a waiting connection is not served after another closed"
        for s in served + waiting:
            s.close()
        assert daemon.stop() == 0


def no_descriptors(generator):
    """Without a descriptor to accept with, the listener rests instead of spinning, and goes on afterwards."""
    with cpu_daemon("--threads", "1") as daemon:
        head, body = row_request(random_values(generator, 256))
        kept = daemon.dial()
        assert exchange(kept, head + body)[2] == body
        measured(daemon)
        # prlimit lets the limit fall below what is open: then no new descriptor can be had.
        limits = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (daemon.descriptors(), limits[1]))
        late = daemon.dial()
        late.sendall(head + body)
        quiet(daemon, "no descriptor left")
        assert exchange(kept, head + body)[2] == body, "an open connection suffers from EMFILE"
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, limits)
        late.settimeout(30)
        assert read_answer(late)[2] == body, "a connection is not accepted after descriptors are back"
        kept.close()
        late.close()
        assert daemon.stop() == 0


def drip(s, text, seconds):
    """Sends byte after byte until the peer answers; True: it did."""
    end = time.monotonic() + seconds
    for i in range(len(text)):
        if time.monotonic() > end:
            return False
        try:
            s.sendall(text[i:i + 1])
        except (BrokenPipeError, ConnectionResetError):
            return True
        if select.select([s], [], [], 0.05)[0]:
            return True
    return False


def slow_clients(generator):
    """A header or a body that trickles gets 408 and the end, silence is closed; another client notices nothing."""
    options = ("--header-timeout", "700ms", "--body-timeout", "900ms", "--idle-timeout", "1s")
    with cpu_daemon("--threads", "1", *options) as daemon:
        head, body = row_request(random_values(generator, 256))
        with daemon.dial() as s:
            assert drip(s, head[:40] + b"X-Slow: " + b"a" * 200, 5), "a slow header is never answered"
            answer = read_answer(s)
            assert answer is None or (answer[0] == 408 and answer[1]["kernserve-error"] == "slow"), answer
        with daemon.dial() as s:
            s.sendall(head)
            assert drip(s, body, 12), "a slow body is never answered"
            answer = read_answer(s)
            assert answer and answer[0] == 408 and answer[1]["kernserve-error"] == "slow", answer
            assert answer[1]["connection"] == "close" and closed_after(s, 30) is not None
        with daemon.dial() as s:
            took = closed_after(s, 6)
            assert took is not None, "a silent connection is never closed"
        with daemon.dial() as s:
            assert exchange(s, head + body)[2] == body
            took = closed_after(s, 8)
            assert took is not None and took > 0.8, "an idle connection is closed after %s s" % took
        with daemon.dial() as s:
            for _ in range(12):
                assert exchange(s, head + body)[2] == body, "a connection in use is closed"
                time.sleep(0.2)
        assert metric(daemon.metrics(), "kernserve_requests_rejected_total", code="slow") >= 1
        assert daemon.stop() == 0


def resident(daemon):
    with open("/proc/%d/status" % daemon.process.pid) as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def unread_answers(generator):
    """The text of JSON answers that nobody reads stays within the bytes in flight; who does not fit gets 503."""
    count, clients, limit = 400000, 16, 20 << 20
    body = struct.pack("<%df" % count, *(generator.gauss(0, 1e-20) for _ in range(count)))
    head = ("POST /v2/models/softmax/infer?shape=%d,1&datatype=FP32&axis=0&log=true HTTP/1.1\r\nHost: localhost\r\n"
            "Accept: application/json\r\nContent-Length: %d\r\n\r\n" % (count, len(body))).encode()
    with cpu_daemon("--threads", "2", "--inflight-bytes", str(limit)) as daemon:
        before = resident(daemon)
        sockets = [daemon.dial(timeout=60) for _ in range(clients)]
        for s in sockets:
            try:
                s.sendall(head + body)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before its body's end and slower than the second that the server reads on: the answer is there
        end, most = time.monotonic() + 3, 0
        while time.monotonic() < end:
            most = max(most, metric(daemon.metrics(), "kernserve_inflight_bytes"))
            time.sleep(0.02)
        grown = resident(daemon) - before
        codes = {}
        for s in sockets:
            status, fields, text = read_answer(s)
            codes[status] = codes.get(status, 0) + 1
            if status == 503:
                assert fields["kernserve-error"] == "budget" and fields["retry-after"] == "1", fields
            else:
                assert status == 200 and text.count(b",") >= count - 1 and text.endswith(b"]}]}"), text[-100:]
            s.close()
        print("answers:", codes, "most bytes in flight:", int(most), "grown by", grown >> 20, "MiB")
        assert most <= limit and codes.get(200, 0) >= 1 and codes.get(503, 0) >= 1, codes
        assert comes_to(lambda: metric(daemon.metrics(), "kernserve_inflight_bytes"), 0) == 0, "bytes in flight after all is over"
        with daemon.dial(timeout=60) as s:
            assert exchange(s, head + body)[0] == 200
        assert daemon.stop() == 0


def main():
    generator = seed()
    faults = []
    for test in (tiny_chunks, admission, no_descriptors, slow_clients, unread_answers):
        begun = time.monotonic()
        try:
            test(generator)
            print("%s: as promised, %.1f s" % (test.__name__, time.monotonic() - begun))
        except (AssertionError, OSError, TypeError) as fault:
            faults.append("%s: %s" % (test.__name__, fault or repr(fault)))
            print("FAULT", faults[-1])
    sys.exit("\n".join(faults) if faults else 0)


main()
