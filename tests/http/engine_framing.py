#!/usr/bin/env python3
"""Ambiguous framing: each payload gets a 4xx or a closed connection, and never a second answer on that connection."""
import socket
import sys

from daemon import cpu_daemon

SMUGGLED = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
PATH = b"/v2/models/softmax/infer?shape=1,1&datatype=FP32"


def post(*fields, body=b"abcd", version=b"HTTP/1.1", host=b"Host: localhost\r\n"):
    return b"POST " + PATH + b" " + version + b"\r\n" + host + b"".join(f + b"\r\n" for f in fields) + b"\r\n" + body + SMUGGLED


CHUNKED = b"4\r\nabcd\r\n0\r\n\r\n"
CASES = {
    "two lengths that differ": post(b"Content-Length: 4", b"Content-Length: 5"),
    "two lengths alike": post(b"Content-Length: 4", b"Content-Length: 4"),
    "a list of lengths": post(b"Content-Length: 4, 4"),
    "a signed length": post(b"Content-Length: +4"),
    "a negative length": post(b"Content-Length: -4"),
    "a hexadecimal length": post(b"Content-Length: 0x4"),
    "an empty length": post(b"Content-Length: "),
    "a length with a unit": post(b"Content-Length: 4b"),
    "a length with a fraction": post(b"Content-Length: 4.0"),
    "a length with a space inside": post(b"Content-Length: 4 4"),
    "a length above 2^64": post(b"Content-Length: 99999999999999999999999"),
    "a length above 2^63": post(b"Content-Length: 9999999999999999999"),
    "length and chunked": post(b"Content-Length: 4", b"Transfer-Encoding: chunked", body=CHUNKED),
    "chunked and length": post(b"Transfer-Encoding: chunked", b"Content-Length: 4", body=CHUNKED),
    "length and unknown coding": post(b"Content-Length: 4", b"Transfer-Encoding: xchunked"),
    "chunked twice": post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=CHUNKED),
    "chunked and identity": post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", body=CHUNKED),
    "a list of codings": post(b"Transfer-Encoding: gzip, chunked", body=CHUNKED),
    "chunked not last": post(b"Transfer-Encoding: chunked, identity", body=CHUNKED),
    "identity": post(b"Transfer-Encoding: identity", body=CHUNKED),
    "coding with a parameter": post(b"Transfer-Encoding: chunked;q=1", body=CHUNKED),
    "coding in quotes": post(b'Transfer-Encoding: "chunked"', body=CHUNKED),
    "an empty coding": post(b"Transfer-Encoding: ", body=CHUNKED),
    "coding with a vertical tab": post(b"Transfer-Encoding: \x0bchunked", body=CHUNKED),
    "coding in HTTP/1.0": post(b"Transfer-Encoding: chunked", body=CHUNKED, version=b"HTTP/1.0"),
    "a space before the colon": post(b"Content-Length : 4"),
    "a space before the coding's colon": post(b"Transfer-Encoding : chunked", b"Content-Length: 4", body=CHUNKED),
    "a control byte in a name": post(b"Content\x01Length: 4", b"Content-Length: 4"),
    "a control byte in a value": post(b"X-A: a\x01b", b"Content-Length: 4"),
    "a delete byte in a value": post(b"X-A: a\x7fb", b"Content-Length: 4"),
    "a bracket in a name": post(b"X[A]: b", b"Content-Length: 4"),
    "a name of nothing": post(b": b", b"Content-Length: 4"),
    "two hosts": post(b"Host: localhost", b"Content-Length: 4"),
    "no host": post(b"Content-Length: 4", host=b""),
    "two types": post(b"Content-Type: a/b", b"Content-Type: c/d", b"Content-Length: 4"),
    "two encodings": post(b"Content-Encoding: gzip", b"Content-Encoding: identity", b"Content-Length: 4"),
    "two authorizations": post(b"Authorization: a", b"Authorization: b", b"Content-Length: 4"),
    "two expectations": post(b"Expect: 100-continue", b"Expect: 100-continue", b"Content-Length: 4"),
    "an unknown expectation": post(b"Expect: 200-ok", b"Content-Length: 4"),
    "two header lengths": post(b"Inference-Header-Content-Length: 0", b"Inference-Header-Content-Length: 4", b"Content-Length: 4"),
    "a chunk size with a sign": post(b"Transfer-Encoding: chunked", body=b"+4\r\nabcd\r\n0\r\n\r\n"),
    "a chunk size of letters": post(b"Transfer-Encoding: chunked", body=b"zz\r\nabcd\r\n0\r\n\r\n"),
    "a chunk size above 2^64": post(b"Transfer-Encoding: chunked", body=b"FFFFFFFFFFFFFFFFF\r\nabcd\r\n0\r\n\r\n"),
    "a chunk longer than its size": post(b"Transfer-Encoding: chunked", body=b"2\r\nabcd\r\n0\r\n\r\n"),
    "a length on a line of its own": post(b"Content-Length:", b" 4"),
    "a length over two lines": post(b"Content-Length: 4", b" 4"),
    "a length whose name is folded": post(b"Content-Lengt: 4", b" h"),
    "a coding on a line of its own": post(b"Transfer-Encoding:", b"\tchunked", body=CHUNKED),
    "a coding whose name is folded": post(b"Transfer-Encodin: chunked", b" g", body=CHUNKED),
    "a folded field that nobody knows": post(b"X-A: a", b"  b", b"Content-Length: 4"),
    "a host over two lines": post(b"Content-Length: 4", host=b"Host: local\r\n host\r\n"),
    "a line without a colon": post(b"Content-Length 4"),
}


def exchange(daemon, payload):
    """Everything that comes back until the server closes, or has been silent for a while."""
    got = b""
    with daemon.dial(timeout=3) as s:
        try:
            s.sendall(payload)
            s.settimeout(0.7)
            while True:
                more = s.recv(65536)
                if not more:
                    return got, True
                got += more
        except ConnectionResetError:
            return got, True
        except (TimeoutError, socket.timeout):
            return got, False


def main():
    bad = []
    with cpu_daemon("--threads", "1") as daemon:
        for name, payload in CASES.items():
            got, closed = exchange(daemon, payload)
            status = got[9:12].decode("latin-1")
            second = b'"live":true' in got or b" 200 " in got or got.count(b"HTTP/1.1 ") > 1
            if second or not closed or (got and not status.startswith("4")):
                bad.append(f"{name}: {'open' if not closed else 'closed'}, {got[:160]!r}")
            again = exchange(daemon, SMUGGLED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            if b'"live":true' not in again[0]:
                bad.append(f"{name}: the server does not answer any more")
                break
        code = daemon.stop()
    print(len(CASES), "payloads,", len(bad), "wrong; exit code", code)
    sys.exit("\n".join(bad) if bad or code != 0 else 0)


main()
