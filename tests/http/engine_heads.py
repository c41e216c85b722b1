#!/usr/bin/env python3
"""Heads and framings, on both listeners: hostile ones get one response or a close, whatever they hold and however they come; legal ones of
every kind are served by the plain reader; and no connection costs processor time while nothing arrives.

    engine_heads.py DAEMON
"""
import re
import socket
import sys
import time

from daemon import DEADLINE_S, check, cpu_daemon, measured, metric, read_answer, request, row_request, random_values, seed, wrongs
from refusal_rows import CHUNK_ROWS, CLOSES, HTTP_ROWS, raw

SMUGGLED = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
LIVE = "GET /livez HTTP/1.1"
HOST = "Host: localhost"
LENGTH = "POST /livez HTTP/1.1"

# Beside the rows of refusal_rows.py that end their connection.
HEADS = {
    "NUL first": b"\0", "NUL in the method": raw("G\0T /livez HTTP/1.1", HOST), "NUL in a name": raw(LIVE, HOST, "X\0Y: a"),
    "a field of a colon": raw(LIVE, HOST, ":"), "a bare CR for a line's end": raw(LIVE, HOST + "\rX: y"), "CR CR LF": raw(LIVE, HOST + "\r"),
    "a bare LF for an empty line": raw(LIVE, HOST)[:-2] + b"\n", "LF LF": raw(LIVE, HOST).replace(b"\r\n", b"\n"),
    "a space first": b" " + raw(LIVE, HOST), "LF first": b"\n" + raw(LIVE, HOST), "TLS": bytes([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]) + bytes(200),
    "HTTP/2's preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.0, NUL": raw("GET /livez\0 HTTP/1.0"), "HTTP/1.0, a fold": raw("GET /livez HTTP/1.0", "X: y", " z"),
    "HTTP/1.0, chunked": raw("POST /livez HTTP/1.0", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "HTTP/1.0, two lengths": raw("POST /livez HTTP/1.0", "Content-Length: 4", "Content-Length: 4", body=b"abcd"),
    "HTTP/1.0, a bad length": raw("POST /livez HTTP/1.0", "Content-Length: 4 4", body=b"abcd"), "no Host, first field folded": raw(LIVE, " x: y"),
    "a length of 10^30": raw(LENGTH, HOST, "Content-Length: " + "9" * 30), "a length below zero": raw(LENGTH, HOST, "Content-Length: -1"),
    "three lengths": raw(LENGTH, HOST, "Content-Length: 4", "Content-Length: 4", "Content-Length: 5", body=b"abcd"),
    "lengths in a list": raw(LENGTH, HOST, "Content-Length: 4, 4", body=b"abcd"),
    "64 KiB of a request line": b"GET /" + b"x" * 65536, "64 KiB of a field": raw(LIVE, HOST)[:-2] + b"X: " + b"y" * 65536, "64 KiB of empty fields": raw(LIVE, HOST)[:-2] + b"X:\r\n" * 16384,
    "64 KiB of a name": raw(LIVE, HOST)[:-2] + b"X" * 65536,
}


def cases():
    yield from HEADS.items()
    for row in HTTP_ROWS + CHUNK_ROWS:
        if row.then == CLOSES and row.status in (400, 431, 414, 505) and len(row.data) < 100000:
            yield row.name, row.data


ATTEMPTS = 3  # where a time is judged: a busy host may be late once, what takes long does so each time


def until_closed(s, seconds=8.0):
    """All that comes; None behind it: the peer did not close."""
    got, end = b"", time.monotonic() + seconds
    s.settimeout(0.2)
    while time.monotonic() < end:
        try:
            more = s.recv(65536)
        except (TimeoutError, socket.timeout):
            continue
        except ConnectionResetError:
            return got, True
        if not more:
            return got, True
        got += more
    return got, False


def one_response(got):
    """None, or what is wrong with all that came back."""
    if not got:
        return None
    head, _, body = got.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    if len(re.findall(rb"HTTP/1\.[01] \d\d\d", got)) != 1:
        return "more than one status line"
    if not re.match(rb"HTTP/1\.1 (4\d\d|505) ", head) or fields.get(b"connection") != b"close":
        return "no refusal that ends the connection"
    if b"kernserve-error" not in fields or fields[b"content-type"] != b"application/json" or len(body) != int(fields[b"content-length"]):
        return "no code, or a body of another length"
    body.decode("utf-8")
    return None


def hostile(daemon):
    """In one piece and byte by byte, with another request behind: that one is never answered."""
    count = 0
    for port in (daemon.port, daemon.admin_port):
        for name, data in cases():
            for step in (len(data), 1):
                if step == 1 and len(data) > 2000:
                    continue
                with socket.create_connection((daemon.host, port), timeout=DEADLINE_S) as s:
                    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    try:
                        for at in range(0, len(data), step):
                            s.sendall(data[at:at + step])
                        s.sendall(SMUGGLED)
                    except (BrokenPipeError, ConnectionResetError):
                        pass
                    got, closed = until_closed(s)
                fault = one_response(got) if closed else "not closed"
                check(not fault, name, "port", port, "step", step, fault, got[:300])
                count += 1
    text = daemon.metrics()
    check(metric(text, "kernserve_http_handovers_total") == 0, "libmicrohttpd was given a hostile head")
    print(count, "hostile requests")


def cpu_seconds(daemon):
    """Of all its threads, ended ones too: the process's clock, by the number that Linux gives it (clock_getcpuclockid(3))."""
    return time.clock_gettime(~daemon.process.pid << 3 | 2)


POST = "POST /v2/models/reduce/infer?shape=64,1&datatype=FP32&axis=1&op=max HTTP/1.1"
CHUNKED = raw(POST, HOST, "Transfer-Encoding: chunked")
# What has come when nothing more does, on which listeners.
SILENT = {
    "nothing": b"", "half a request line": b"GET /liv", "half a head": raw(LIVE, HOST)[:-3], "a CR": raw(LIVE, HOST)[:-1],
    "15 KiB of a head": raw(LIVE, HOST, *("X-%d: %s" % (i, "y" * 1000) for i in range(15)))[:-2], "half a body": raw(POST, HOST, "Content-Length: 256", body=bytes(100)),
    "a chunked head": CHUNKED, "half a size": CHUNKED + b"1", "1,000 bytes of a size's line": CHUNKED + b"100;a=" + b"b" * 990, "64 KiB of a size's line": CHUNKED + b"100;a=" + b"b" * 65536, "an open quote": CHUNKED + b'100;a="b',
    "half a chunk": CHUNKED + b"100\r\n" + bytes(100), "a chunk without its end": CHUNKED + b"80\r\n" + bytes(128), "half a trailer": CHUNKED + b"100\r\n" + bytes(256) + b"\r\n0\r\nX: y\r\nZ",
    "leave to send was given": raw(POST, HOST, "Content-Length: 256", "Expect: 100-continue"), "refused, the body is dropped": raw("POST /nothing HTTP/1.1", HOST, "Content-Length: 256"),
    "HTTP/1.0, half a body": raw(POST.replace("1.1", "1.0"), "Content-Length: 256", body=bytes(100)), "a whole request": SMUGGLED,
    "empty lines": b"\r\n\r\n",
}


def silence(daemon):
    """Eight connections of each kind on either listener, for a second: next to nothing. The best of three, since the daemon has other threads."""
    measured(daemon)
    connections = []
    for data in SILENT.values():
        for port in (daemon.port,) * 8 + (daemon.admin_port,) * 2:
            connections.append(socket.create_connection((daemon.host, port), timeout=DEADLINE_S))
            connections[-1].sendall(data)
    time.sleep(0.3)
    used = []
    for _ in range(3):
        before = cpu_seconds(daemon)
        time.sleep(1)
        used.append(cpu_seconds(daemon) - before)
    check(min(used) < 0.03, "seconds of processor time in a second of silence, %d connections:" % len(connections), used)
    print("%d silent connections: %.4f s of processor time a second" % (len(connections), min(used)))
    for s in connections:
        s.close()


def readers(daemon):
    """Which reader serves what."""
    def counts():
        text = daemon.metrics()
        return [metric(text, "kernserve_http_reader_requests_total", reader=r) for r in ("plain", "libmicrohttpd")] + \
               [metric(text, "kernserve_http_handovers_total", reason="http10")]

    head, body = row_request([1, 2, 3])
    plain = [SMUGGLED, head + body, request("HEAD", "/v2"), request("GET", "/v2", (), b"abc"), request("OPTIONS", "*"), request("POST", "/v2/repository/index", (), b"{}"),
             request("GET", "http://localhost/v2"), raw(POST, HOST, "Transfer-Encoding: chunked", body=b"100\r\n" + bytes(256) + b"\r\n0\r\n\r\n"),
             raw(POST, HOST, "Content-Length: 256", "Expect: 100-continue", body=bytes(256)), raw(LIVE, HOST, *("X-%d: %s" % (i, "y" * 1000) for i in range(14))),
             request("DELETE", "/v2"), raw(LIVE, HOST, "Connection: close"), raw(LIVE, HOST, "Connection: Upgrade", "Upgrade: h2c")]
    for port in (daemon.port, daemon.admin_port):
        before = counts()
        for data in plain:
            with socket.create_connection((daemon.host, port), timeout=DEADLINE_S) as s:
                s.sendall(data)
                check(s.recv(100)[:9] == b"HTTP/1.1 ", "no answer to", data[:100])
        for data in (b"GET /livez HTTP/1.0\r\n\r\n", b"GET /livez HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + SMUGGLED):
            with socket.create_connection((daemon.host, port), timeout=DEADLINE_S) as s:
                s.sendall(data)
                got, closed = until_closed(s)
                check(closed and got.count(b'"live":true') == 1 and b"Connection: close" in got, "HTTP/1.0", closed, got)
        # What the library may read otherwise, or would have to wait for, is not handed over.
        own = (b"GET /livez HTTP/1.0\r\nX: y \r\n\r\n",), (b"GET /livez HTTP/1.0\r\nX:y\r\n\r\n",), (b"GET /livez HTT", b"P/1.0\r\nX: y\r\n\r\n" + SMUGGLED)
        for pieces in own:
            with socket.create_connection((daemon.host, port), timeout=DEADLINE_S) as s:
                for piece in pieces:
                    s.sendall(piece)
                    time.sleep(0.02)
                got, closed = until_closed(s)
                check(closed and got.count(b'"live":true') == 1 and b"Connection: close" in got, "HTTP/1.0 of ours", closed, got)
        after = counts()
        grew = [b - a for a, b in zip(before, after)]
        late = grew[1] - 2  # on a busy host the two pieces may be there at once: the library's, as any request of HTTP/1.0 that is whole
        check(late in (0, 1) and grew == [len(plain) + 1 + len(own) - late, 2 + late, 2 + late], "requests of plain, of libmicrohttpd, handed over:", grew)  # and the page before


def leave_to_send(daemon):
    """100 Continue comes before the body is there, and never in front of a refusal."""
    body = bytes(range(256))
    with daemon.dial(timeout=DEADLINE_S) as s:
        for fields in (["Content-Length: 256"], ["Transfer-Encoding: chunked"]) * 2:
            s.sendall(raw(POST, HOST, "Expect: 100-continue", *fields))
            check(s.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n", "no leave to send")
            s.sendall(body if "Length" in fields[0] else b"100\r\n" + body + b"\r\n0\r\n\r\n")
            answer = read_answer(s)
            check(answer and answer[0] == 200 and answer[2] == body, "after 100", answer and answer[:2])
    for target, fields in ((POST.replace("reduce", "nope"), ["Content-Length: 256"]), (POST, ["Content-Length: 9999999999"]), (POST.replace("reduce", "nope"), ["Transfer-Encoding: chunked"])):
        with daemon.dial(timeout=DEADLINE_S) as s:
            s.sendall(raw(target, HOST, "Expect: 100-continue", *fields))
            got, closed = until_closed(s)
            check(closed and re.match(rb"HTTP/1\.1 4(04|13) ", got) and b"100 Continue" not in got, "refused before its body", got[:100], closed)


def long_heads(daemon, generator):
    """Heads around the length up to which one is kept, and up to the limit, in pieces, and pipelined."""
    _, body = row_request(random_values(generator, 64))
    for length in (1000, 1023, 1024, 1025, 2047, 2048, 4096, 10000, 16000):
        head = raw(POST.replace("FP32", "INT32"), HOST, "Content-Length: 256", "X-Request-Id: name-%d" % length)[:-2]
        rest = length - len(head) - 2
        while rest > 0:
            n = rest if rest < 1000 + 8 else 500
            head += b"X:" + b"y" * (n - 4) + b"\r\n"
            rest -= n
        whole = head + b"\r\n" + body
        check(len(whole) == length + 256, "a head of", length, "has", len(whole) - 256)
        with daemon.dial(timeout=DEADLINE_S) as s:
            for _ in range(3):
                at = generator.randrange(1, len(whole))
                s.sendall(whole[:at])
                time.sleep(0.005)
                s.sendall(whole[at:] + whole)
                came = b""
                while came.count(body) < 2 or len(came) < 2 * len(body):
                    more = s.recv(65536)
                    if not more:
                        break
                    came += more
                check(came.count(b" 200 OK") == 2 and came.count(b"name-%d\r\n" % length) == 2, "a head of", length, came[:200])


def framed(generator, body):
    """A body in chunks of random sizes, with what may stand in their framing."""
    out, at = b"", 0
    while at < len(body):
        n = min(len(body) - at, generator.choice((1, 2, 15, 16, 17, 300, 4096, 70000)))
        size = b"%0*x" % (generator.choice((1, 1, 1, 16)), n)
        out += (size.upper() if generator.random() < 0.5 else size) + generator.choice((b"", b"", b";a", b" ;a=b", b';a="b;\\""', b";a;b=c")) + b"\r\n" + body[at:at + n] + b"\r\n"
        at += n
    return out + generator.choice((b"0", b"000", b"0;a")) + b"\r\n" + generator.choice((b"", b"", b"X: y\r\n", b"X:\r\nY:z\r\n")) + b"\r\n"


def chunked_bodies(daemon, generator):
    """However it is framed and cut, the body is the body; another request may follow in the same piece."""
    for i in range(60):
        values = random_values(generator, generator.choice((1, 3, 64, 5000, 300000 if i % 10 == 0 else 64)))
        head, body = row_request(values)
        data = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", head) + framed(generator, body)
        data += head + body
        with daemon.dial(timeout=20) as s:
            cuts = sorted(generator.randrange(len(data)) for _ in range(generator.choice((0, 1, 5, 30))))
            for a, b in zip([0] + cuts, cuts + [len(data)]):
                s.sendall(data[a:b])
                time.sleep(0.001)
            for _ in range(2):
                fields, came = b"", b""
                while b"\r\n\r\n" not in came:
                    came += s.recv(1)
                while len(came.split(b"\r\n\r\n", 1)[1]) < len(body):
                    came += s.recv(len(body) - len(came.split(b"\r\n\r\n", 1)[1]))
                check(came.startswith(b"HTTP/1.1 200") and came.endswith(body), "a chunked body of", len(body), came[:200])


def ends(daemon):
    """A client that sends no more: its whole requests are answered, the rest ends at once."""
    head, body = row_request([7] * 64)
    for name, data, answers in (("half a head", head[:40], 0), ("two requests", (head + body) * 2, 2), ("a request and half a head", head + body + head[:40], 1),
                                ("half a chunked body", CHUNKED + b"100\r\n" + bytes(10), 0), ("nothing", b"", 0)):
        for _ in range(ATTEMPTS):
            with daemon.dial(timeout=DEADLINE_S) as s:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
                begun = time.monotonic()
                got, closed = until_closed(s)
                took = time.monotonic() - begun
            if took < 1:
                break
        check(closed and got.count(b" 200 OK") == answers and took < 1, name, closed, got.count(b" 200 OK"), took)


def main():
    generator = seed()
    with cpu_daemon("--threads", "1", "--idle-timeout", "30s", "--header-timeout", "30s", "--body-timeout", "30s") as daemon:
        hostile(daemon)
        silence(daemon)
        readers(daemon)
        leave_to_send(daemon)
        long_heads(daemon, generator)
        chunked_bodies(daemon, generator)
        ends(daemon)
        check(daemon.stop() == 0, "the daemon's end")
    sys.exit("%d wrong" % wrongs() if wrongs() else 0)


main()
