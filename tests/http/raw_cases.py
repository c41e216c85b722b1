#!/usr/bin/env python3
"""Raw bytes at both listeners: what HTTP forbids gets one refusal and the end, what it allows gets one answer, and the request
behind it gets its own; however the bytes are cut.

raw_cases.py KERNSERVE [--words WORDS]   only cases whose name contains WORDS. KS_SEED=N repeats the cuts.

Behind each case stands another good request, the tail. A case is
  refused  exactly one answer with one of the statuses, a JSON error in UTF-8 with a code and "Connection: close", and the end: the
           tail is never answered
  served   exactly one answer with the status, and the tail's answer behind it
  either   HTTP leaves it to the server: one of the two, whole
  last     exactly one answer with the status, which needs not be a refusal, and the end
  kept     answered with the status; whether the tail gets its answer too or the connection ends is the server's choice
A status may be a pair: the data listener's and the second listener's, which has no operations: there a path may be refused before
the body's framing is.
"""

import argparse
import gzip
import os
import random
import re
import sys
import tempfile
from collections import namedtuple

from daemon import Daemon, check, wrongs
from strict import Exchange, Malformed, error_fault

Case = namedtuple("Case", "name data kind statuses codes method", defaults=((), "GET"))
REFUSED, SERVED, EITHER, LAST, KEPT = "refused", "served", "either", "last", "kept"

INFER = "/v2/models/softmax/infer?shape=1,1&datatype=FP32"
LIVE = "/v2/health/live"
BODY = b"abcd"
CHUNKED = b"4\r\nabcd\r\n0\r\n\r\n"
TE = "Transfer-Encoding: chunked"
TAIL = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: the-tail\r\n\r\n"
ONE = (200, 404)  # of an inference: the second listener knows no such path


def text(value):
    return value.encode("latin-1") if isinstance(value, str) else value


def head(line, *fields, host="Host: localhost"):
    """Lines as they stand, ended by CR LF each."""
    lines = [line] + ([host] if host is not None else []) + list(fields)
    return b"\r\n".join(map(text, lines)) + b"\r\n\r\n"


def get(*fields, target=LIVE, method="GET", version="HTTP/1.1", host="Host: localhost"):
    return head(text(method) + b" " + text(target) + b" " + text(version), *fields, host=host)


def post(*fields, body=BODY, target=INFER, version="HTTP/1.1", host="Host: localhost"):
    return get(*fields, target=target, method="POST", version=version, host=host) + body


def sized(*fields, **options):
    """With a length that is right."""
    return post(*fields, "Content-Length: 4", **options)


def pieces_of(*chunks):
    return b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"


def chunked(body, *fields):
    return post(TE, *fields, body=body)


def refused(name, data, *statuses, codes=()):
    return Case(name, data, REFUSED, statuses or (400,), codes)


def served(name, data, *statuses, method="GET"):
    return Case(name, data, SERVED, statuses or (200,), method=method)


def either(name, data, *statuses):
    return Case(name, data, EITHER, statuses or (200, 400))


def kept(name, data, *statuses):
    return Case(name, data, KEPT, statuses or (200,))


def named(value):
    return repr(bytes([value]))[2:-1]


def request_lines():
    yield refused("a word for a request line", head("GARBAGE"))
    yield refused("an empty request line twice, then a word", b"\r\n\r\nGARBAGE\r\n\r\n")
    yield served("an empty line before the request line", b"\r\n" + get())
    yield refused("a space before the method", b" " + get())
    yield refused("no method", head(" /v2/health/live HTTP/1.1"))
    yield refused("no target", head("GET HTTP/1.1"))
    yield refused("no target, two spaces", head("GET  HTTP/1.1"))
    yield refused("no version", head("GET /v2/health/live"))
    yield refused("no version, a space", head("GET /v2/health/live "))
    yield refused("a field for a request line", b"Host: localhost\r\n\r\n")
    yield refused("a NUL for a request line", b"\0\r\n\r\n")
    yield refused("bytes of TLS", bytes.fromhex("16030100a5010000a10303") + bytes(range(128, 160)) + b"\r\n\r\n")
    yield refused("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, 505)
    for version in ("HTTP/2.0", "HTTP/3.0", "HTTP/0.9", "HTTP/9.9"):
        yield refused("version " + version, get(version=version), 400, 505)
    for version in ("HTTP/1.", "HTTP/.1", "HTTP/11", "HTTP/1.10", "HTTP/01.1", "HTTP/1.1x", "HTTP/1 .1", "http/1.1", "HTTP-1.1", "HTTPS/1.1", "HTTP/1,1", "HTTP/x.y", "HTTP/+1.1", "XHTTP/1.1",
                    "HTTP/1.1 HTTP/1.1", "HTTP/1.\xb9", "HTTP/1.1\x00", "HTTP/1.1\x0b", "HTTP/"):
        yield refused("version %r" % version, get(version=version), 400, 505)
    yield either("version HTTP/1.2", get(version="HTTP/1.2"), 200, 400, 505)
    yield refused("two spaces before the target", head("GET  /v2/health/live HTTP/1.1"))
    yield refused("two spaces before the version", head("GET /v2/health/live  HTTP/1.1"))
    yield refused("tabs for spaces", head("GET\t/v2/health/live\tHTTP/1.1"))
    yield refused("a space behind the version", head("GET /v2/health/live HTTP/1.1 "))
    yield refused("a tab behind the version", head("GET /v2/health/live HTTP/1.1\t"))
    yield refused("a space in the target", get(target="/v2/health/li ve"))
    yield refused("a bare CR in the target", get(target="/v2/health/live\rx"))
    yield refused("a bare CR in the method", get(method="GE\rT"))
    for value in (0, 1, 8, 9, 11, 12, 27, 31, 127):
        yield refused("byte %s in the target" % named(value), get(target=b"/v2/health/live" + bytes([value]) + b"x"))
        yield refused("byte %s in the query" % named(value), get(target=b"/v2/health/live?a" + bytes([value]) + b"x"))
    yield either("a byte above 127 in the target", get(target=b"/v2/health/live\xff"), 400, 404)
    yield either("a quotation mark in the target", get(target='/v2/health/live?"x"'), 200, 400)
    yield either("a fragment in the target", get(target="/v2/health/live#x"), 200, 400, 404)
    yield either("a backslash in the target", get(target="\\v2\\health\\live"), 400, 404)
    for method in ("G(T", "G\"T", "G,T", "G/T", "G:T", "G;T", "G\x00T", "G\x7fT", "G\xc3\xa9T", "GET:", "{}"):
        yield refused("method %r" % method, get(method=method), 400, 405, 501)
    for method in ("get", "Get", "FOO", "DELETE", "PUT", "PATCH", "TRACE", "G" * 30, "PROPFIND", "M-SEARCH", "!#$%&'*+-.^_`|~"):
        yield served("method " + method, get(method=method), 405, 501)
    yield served("DELETE with a body", get("Content-Length: 4", method="DELETE") + BODY, 405)
    yield served("HEAD", get(method="HEAD"), method="HEAD")
    yield served("HEAD of a path that is not there", get(method="HEAD", target="/nowhere"), 404, method="HEAD")
    yield served("GET with a body", get("Content-Length: 4") + BODY)
    yield served("GET with a chunked body", get(TE) + CHUNKED)
    yield served("HEAD with a body", get("Content-Length: 4", method="HEAD") + BODY, method="HEAD")
    yield refused("a target of 3 KiB", get(target="/v2?" + "x" * 3000), 414)
    yield refused("a target of 100 KiB", get(target="/v2?" + "x" * 100000), 414, 431)
    yield refused("a method of 100 KiB", get(method="X" * 100000), 400, 414, 431, 501)
    yield refused("a version of 100 KiB", get(version="H" * 100000), 400, 414, 431, 505)


def targets():
    yield served("a query of nothing", get(target=LIVE + "?"))
    yield served("the root", get(target="/"))
    yield served("absolute form", get(target="http://localhost" + LIVE))
    yield served("absolute form with a port", get(target="http://localhost:8000" + LIVE))
    yield served("absolute form in capitals", get(target="HTTP://LOCALHOST" + LIVE))
    yield served("absolute form of an inference", sized(target="http://localhost" + INFER), *ONE)
    yield served("absolute form without a path", get(target="http://localhost"))
    yield served("absolute form with a query and no path", get(target="http://localhost?x"), 200, 404)
    yield served("absolute form of another host than Host's", get(target="http://127.0.0.1" + LIVE, host="Host: localhost"))
    yield served("absolute form beside a foreign Host", get(target="http://localhost/v2", host="Host: evil.example"), (200, 404))
    yield served("absolute form of a foreign host", get(target="http://evil.example/v2"), 421, 404)
    yield refused("absolute form without a host", get(target="http:///v2"))
    yield either("absolute form with a user", get(target="http://me@localhost" + LIVE), 200, 400, 421)
    yield either("absolute form of https", get(target="https://localhost" + LIVE), 200, 400, 404, 421)
    yield either("absolute form of ftp", get(target="ftp://localhost" + LIVE), 400, 404, 421)
    yield refused("absolute form without Host", get(target="http://localhost" + LIVE, host=None))
    yield served("OPTIONS *", get(method="OPTIONS", target="*"), 200, 204)
    yield served("OPTIONS of a path", get(method="OPTIONS"), 200, 204, 405)
    yield either("GET *", get(target="*"), 400, 404)
    yield either("authority form", get(target="localhost:80", method="CONNECT"), 400, 404, 405, 501)
    yield either("GET in authority form", get(target="localhost:80"), 400, 404)
    yield either("a target without a slash", get(target="v2"), 400, 404)
    for target in ("/%", "/%g0", "/v2/models/%ff%fe", "/v2/models/%ff%fe/ready", "/v2/models/%c0%af", "/v2/models/%ed%a0%80", "/v2/models/%f5%80%80%80", "/v2/models/%e2%82", "/v2/models/%80",
                   "/v2/models/%1b[31m", "/v2/models/%22%5c", "/v2/models/%0d%0aX:%20y", "/v2/models/%7f", "/v2/models/x/versions/%ff", "/v2/health/live%00", "/../v2", "//v2", "/v2%2fhealth%2flive",
                   "/v2/models/" + "%c3%a9" * 100, "/v2/models/a" + "%c3%a9" * 100, "/v2/models/" + "%f0%9f%98%80" * 60 + "/config"):
        yield served("GET %s" % target[:40], get(target=target), 404)
    for name in ("%ff%fe", "%c3", "%e2%82", "%f0%9f%98", "a" * 63 + "%c3%a9", "a" * 62 + "%e2%82%ac"):
        yield served("POST to the model %s" % name[-30:], sized(target="/v2/models/%s/infer" % name), 404)
        yield served("an unknown region, %s" % name[-30:], get(target="/v2/systemsharedmemory/region/%s/status" % name), 404, 400)


def hosts():
    yield refused("no Host", get(host=None), codes=("host",))
    yield refused("no Host, a body", sized(host=None), codes=("host",))
    yield refused("two Hosts", get("Host: localhost"))
    yield refused("two Hosts that differ", get("Host: 127.0.0.1"))
    yield refused("a Host before a space and the colon", get(host="Host : localhost"))
    yield refused("a Host over two lines", get(host="Host: local\r\n host"))
    for host in ("localhost:80", "LOCALHOST", "127.0.0.1", "[::1]", "[::1]:80", "localhost:"):
        yield served("Host " + host, get(target="/v2", host="Host: " + host), (200, 404))
    for host in ("evil.example", "localhost.evil.example", "localhost@evil.example", "evil.example:80", "localhost,evil.example", "local host", "localhost:80x", "[::1", "localhost/", "http://localhost"):
        yield either("Host " + host, get(target="/v2", host="Host: " + host), 400, 421, 404)
    yield either("an empty Host", get(target="/v2", host="Host:"), 400, 421, 404)
    for name, value in (("spaces behind it", "localhost   "), ("a tab behind it", "localhost\t"), ("two spaces before it", "  localhost"), ("a tab before it", "\tlocalhost"), ("nothing before it", None)):
        yield served("Host with " + name, get(target="/v2", host="Host:localhost" if value is None else "Host: " + value), (200, 404))


def fields():
    for value in [v for v in range(32) if v not in (9, 10, 13)] + [127]:
        yield refused("byte %s in a value" % named(value), get(b"X-A: a" + bytes([value]) + b"b"))
    for value in (0, 1, 9, 11, 31, 127) + tuple(b' "(),/:;<=>?@[\\]{}') + (128, 195, 255):
        if value != ord(":"):
            yield refused("byte %s in a name" % named(value), get(b"X" + bytes([value]) + b"A: a"))
    yield refused("a NUL ends a value", get(b"X-A: a\0"))
    yield refused("a NUL begins a value", get(b"X-A: \0a"))
    yield refused("a NUL in the length", sized(b"Content-Length: 4\0"))
    yield refused("a NUL behind chunked", post(TE + "\0", body=CHUNKED))
    yield refused("a bare CR in a value", get("X-A: a\rb"))
    yield refused("a bare CR before CR LF", get("X-A: a\r"))
    yield refused("a bare CR and a length in a value", post("X-A: a\rContent-Length: 4"))
    yield refused("an empty name", get(": a"))
    yield refused("an empty name and no value", get(":"))
    yield refused("a space for a name", get(" : a"))
    yield refused("a line without a colon", get("X-A"))
    yield refused("a line of a space", get("X-A: a", " "))
    yield refused("a line of a tab", get("X-A: a", "\t"))
    yield refused("a fold", get("X-A: a", " b"))
    yield refused("a fold with a tab", get("X-A: a", "\tb"))
    yield refused("a fold as the first line", get(" X-A: b", host=None))
    yield refused("a fold behind the request line", head("GET /v2/health/live HTTP/1.1", " Host: localhost", "X-A: a"))
    yield refused("a fold of spaces alone before the end", get("X-A: a", "   "))
    yield refused("a folded length", post("Content-Length:", " 4"))
    yield refused("a length whose name is folded", post("Content-Lengt: 4", " h"))
    yield refused("a folded coding", post("Transfer-Encoding:", " chunked", body=CHUNKED))
    yield refused("a space before the colon", get("X-A : a"))
    yield refused("a tab before the colon", get("X-A\t: a"))
    yield served("nothing behind the colon", get("X-A:a"))
    yield served("an empty value", get("X-A:"))
    yield served("a value of spaces", get("X-A:     "))
    yield served("a value with a tab inside", get("X-A: a\tb"))
    yield served("a value with spaces around", get("X-A: \t a \t "))
    yield served("bytes above 127 in a value", get(b"X-A: caf\xc3\xa9 \xff"))
    yield served("a field a hundred times", get(*["X-A: %d" % i for i in range(50)]))
    yield served("a name of 200 bytes", get("X-" + "a" * 200 + ": a"))
    yield served("a value of 8 KiB", get("X-A: " + "a" * 8192))
    yield served("colons in a value", get("X-A: a:b::c"))
    yield served("an underscore in a name", get("X_A: a"))
    yield served("a name of signs", get("!#$%&'*+-.^_`|~: a"))
    yield either("a bare LF ends a field", get("X-A: a\nX-B: b"))
    yield either("bare LFs end all lines", get().replace(b"\r\n", b"\n"))
    yield either("a bare LF ends the request line", get().replace(b"HTTP/1.1\r\n", b"HTTP/1.1\n"))
    yield either("a bare LF for the empty line", get()[:-2] + b"\n")
    for fields in (["X-%d: %s" % (i, "a" * 1000) for i in range(20)], ["X-%d: a" % i for i in range(64)], ["X-A: " + "a" * 40000], ["X-A: a\0b"], [": a"], ["X-A: a", " b"]):
        yield Case("HEAD with %d bytes in %d fields" % (len(fields[0]), len(fields)), get(*fields, method="HEAD"), REFUSED, (400, 431), method="HEAD")
    yield refused("65 fields", get(*["X-%d: a" % i for i in range(64)]), 431)
    yield refused("2,000 fields", get(*["X-%d: a" % i for i in range(2000)]), 431)
    yield refused("20 KiB in 20 fields", get(*["X-%d: %s" % (i, "a" * 1000) for i in range(20)]), 431)
    yield refused("a field of 40 KiB", get("X-A: " + "a" * 40000), 431)
    yield refused("a field of 1 MiB", get("X-A: " + "a" * (1 << 20)), 431)
    yield refused("a name of 100 KiB", get("X" * 100000 + ": a"), 431)
    yield refused("a Content-Length twice, as one is empty", sized("Content-Length:"))


def lengths():
    for value in ("", "+4", "-4", "0x4", "4b", "4.0", "4e0", "4 4", "4,4", "4, 4", "4;4", "four", "\"4\"", "4\x0b", "\xb2", "4 \t4", "--4", "4/1", "4_0", "0b100", "4\u00a0", ",4", "4,", "NaN", "*"):
        yield refused("length %r" % value, post("Content-Length: " + value))
    for value in ("4294967296", "9223372036854775807", "9223372036854775808", "18446744073709551616", "18446744073709551620", "99999999999999999999999", "1" + "0" * 400):
        yield refused("length %s" % value[:30], post("Content-Length: " + value), 400, 413)
    yield refused("two lengths alike", sized("Content-Length: 4"))
    yield refused("two lengths that differ", sized("Content-Length: 0"))
    yield refused("two lengths that differ, the other way", post("Content-Length: 4", "Content-Length: 40"))
    yield refused("three lengths", sized("content-length: 4", "CONTENT-LENGTH: 4"))
    yield refused("two lengths with a field between", post("Content-Length: 4", "X-A: a", "content-length: 5"))
    yield refused("a length with a space before the colon", post("Content-Length : 4"))
    yield refused("a length of HTTP/1.0 twice", post("Content-Length: 4", "Content-Length: 4", version="HTTP/1.0"))
    yield served("zeros before a length", post("Content-Length: 0000000004"), *ONE)
    yield either("400 zeros before a length", post("Content-Length: " + "0" * 400 + "4"), (200, 404), 400)
    yield served("a length of 0", post("Content-Length: 0", body=b""), (400, 404))
    yield served("a length of 00", post("Content-Length: 00", body=b""), (400, 404))
    yield served("no length", post(body=b""), (400, 404))
    yield served("GET with a length of 0", get("Content-Length: 0"))
    for name, field in (("spaces behind it", "Content-Length: 4   "), ("tabs around it", "Content-Length:\t4\t"), ("spaces before it", "Content-Length:    4"), ("nothing before it", "Content-Length:4"),
                        ("a name in capitals", "CONTENT-LENGTH: 4"), ("a name in small letters", "content-length: 4")):
        yield served("a length with " + name, post(field), *ONE)


def codings():
    for value in ("xchunked", "chunkedx", "chunke", "identity", "gzip", "gzip, chunked", "chunked, gzip", "chunked, chunked", "chunked,", ",chunked", "chunked;q=1", "chunked; x=y", "\"chunked\"", "",
                  "\x0bchunked", "chunked\x0c", "chun ked", "chunked chunked", "identity, chunked", "trailers", "*", "chunked\xa0", "(chunked)"):
        yield refused("coding %r" % value, post("Transfer-Encoding: " + value, body=CHUNKED), 400, 501)
        yield refused("coding %r and a length" % value, post("Transfer-Encoding: " + value, "Content-Length: 4"), 400, 501)
    yield refused("chunked and a length", sized(TE))
    yield refused("a length and chunked", post("Content-Length: 4", TE, body=CHUNKED))
    yield refused("a length and chunked with a space behind it", post("Content-Length: 4", TE + " ", body=CHUNKED))
    yield refused("chunked twice", post(TE, TE, body=CHUNKED))
    yield refused("chunked and gzip in two fields", post(TE, "Transfer-Encoding: gzip", body=CHUNKED), 400, 501)
    yield refused("identity and chunked in two fields", post("Transfer-Encoding: identity", TE, body=CHUNKED), 400, 501)
    yield refused("chunked in HTTP/1.0", post(TE, body=CHUNKED, version="HTTP/1.0"))
    yield refused("chunked with a space before the colon", post("Transfer-Encoding : chunked", body=CHUNKED))
    yield refused("chunked and a bare CR", post("Transfer-Encoding: chunked\r", body=CHUNKED))
    for name, field in (("a space behind it", TE + " "), ("spaces and tabs behind it", TE + " \t "), ("a tab before it", "Transfer-Encoding:\tchunked"), ("nothing before it", "Transfer-Encoding:chunked"),
                        ("capitals", "TRANSFER-ENCODING: CHUNKED"), ("mixed letters", "transfer-encoding: cHuNkEd")):
        yield served("chunked with " + name, post(field, body=CHUNKED), *ONE)


def chunk_sizes():
    for line in (b"", b" ", b"+4", b"-4", b"0x4", b"x", b"zz", b"g", b"4h", b"4 4", b" 4", b"\t4", b"4\0", b"\x004", b"4\x0b", b"4\r", b"4,4", b"4.", b"--", b"four", b"\xb4", b"4_", b"4x;a=b", b'"4"', b"4\x01;a"):
        yield refused("chunk size %r" % line, chunked(line + b"\r\nabcd\r\n0\r\n\r\n"))
    for line in (b"8000000000000000", b"8000000000000004", b"ffffffffffffffff", b"fffffffffffffffe", b"10000000000000000", b"10000000000000004", b"f" * 17, b"1" + b"0" * 30 + b"4", b"1" + b"0" * 300):
        yield refused("chunk size %s" % line[:20].decode(), chunked(line + b"\r\nabcd\r\n0\r\n\r\n"), 400, 413)
    for line in (b"4", b"04", b"0000000004"):
        yield served("chunk size %s" % line.decode(), chunked(line + b"\r\nabcd\r\n0\r\n\r\n"), *ONE)
    yield either("chunk size of 24 digits", chunked(b"0" * 23 + b"4\r\nabcd\r\n0\r\n\r\n"), ONE, 400)
    yield served("chunk size A", chunked(b"A\r\n" + bytes(10) + b"\r\n0\r\n\r\n"), (400, 404))
    yield served("chunk size a", chunked(b"a\r\n" + bytes(10) + b"\r\n0\r\n\r\n"), (400, 404))
    yield served("four chunks", chunked(pieces_of(b"a", b"b", b"c", b"d")), *ONE)
    yield served("the last chunk is 000", chunked(b"4\r\nabcd\r\n000\r\n\r\n"), *ONE)
    yield served("no chunk but the last", chunked(b"0\r\n\r\n"), (400, 404))


def chunk_frames():
    yield refused("a bare LF behind a size", chunked(b"4\nabcd\r\n0\r\n\r\n"))
    yield refused("a bare LF behind a chunk", chunked(b"4\r\nabcd\n0\r\n\r\n"))
    yield refused("a bare LF behind the last size", chunked(b"4\r\nabcd\r\n0\n\r\n"))
    yield refused("a bare LF at the end", chunked(b"4\r\nabcd\r\n0\r\n\n"))
    yield refused("bare LFs everywhere", chunked(b"4\nabcd\n0\n\n"))
    yield refused("a bare CR behind a size", chunked(b"4\rabcd\r\n0\r\n\r\n"))
    yield refused("a bare CR behind a chunk", chunked(b"4\r\nabcd\r0\r\n\r\n"))
    yield refused("two CRs behind a size", chunked(b"4\r\r\nabcd\r\n0\r\n\r\n"))
    yield refused("two CRs behind a chunk", chunked(b"4\r\nabcd\r\r\n0\r\n\r\n"))
    yield refused("a chunk longer than its size", chunked(b"2\r\nabcd\r\n0\r\n\r\n"))
    yield refused("a chunk shorter than its size", chunked(b"5\r\nabcd\r\n0\r\n\r\n"))
    yield refused("no CR LF behind a chunk", chunked(b"4\r\nabcd0\r\n\r\n"))
    yield refused("an empty line between chunks", chunked(b"4\r\nabcd\r\n\r\n0\r\n\r\n"))
    yield refused("a space behind a chunk", chunked(b"4\r\nabcd \r\n0\r\n\r\n"))
    yield refused("an empty line before the first size", chunked(b"\r\n4\r\nabcd\r\n0\r\n\r\n"))
    yield refused("the length's body under chunked", chunked(b"abcd"))
    yield refused("size line of 2 KiB of zeros", chunked(b"0" * 2048 + b"4\r\nabcd\r\n0\r\n\r\n"))
    yield refused("size line of 64 KiB of zeros", chunked(b"0" * 65536 + b"4\r\nabcd\r\n0\r\n\r\n"))
    yield refused("an extension of 2 KiB", chunked(b"4;a=" + b"b" * 2048 + b"\r\nabcd\r\n0\r\n\r\n"), codes=("chunks",))
    yield refused("an extension of 64 KiB", chunked(b"4;a=" + b"b" * 65536 + b"\r\nabcd\r\n0\r\n\r\n"), codes=("chunks",))
    yield refused("an extension of 1 MiB without an end", chunked(b"4;a=" + b"b" * (1 << 20)), codes=("chunks",))
    yield refused("an extension of 2 KiB on the last chunk", chunked(b"4\r\nabcd\r\n0;a=" + b"b" * 2048 + b"\r\n\r\n"), codes=("chunks",))
    for extension in (b";a", b";a=b", b';a="b"', b';a="b c;d"', b";a=b;c=d", b';a="\\""', b";a-b=c_d", b";" + b"a" * 200, b"; a=b", b" ;a=b", b";a =b", b";a= b"):
        make = served if b" " not in extension.replace(b'"b c;d"', b"") else either
        yield make("extension %r" % extension[:20], chunked(b"4" + extension + b"\r\nabcd\r\n0" + extension + b"\r\n\r\n"), *(ONE,) if make is served else (ONE, 400))
    for extension in (b";", b";;", b";=", b";=b", b";a=", b";a=;b", b';a="', b';a="b', b';a="b"c', b';a=b"c"', b";a\0", b';a="\0"', b";a\n", b';a="\n"', b";a\rb", b";a=\x01", b';a="\x7f"', b";a,b", b";a b", b";(a)", b";a=b=c", b",a", b" a",
                      b";\xff", b';a="\\'):
        yield refused("malformed extension %r" % extension, chunked(b"4" + extension + b"\r\nabcd\r\n0\r\n\r\n"))


def trailers():
    yield served("a trailer", chunked(b"4\r\nabcd\r\n0\r\nX-A: a\r\n\r\n"), *ONE)
    yield served("three trailers", chunked(b"4\r\nabcd\r\n0\r\nX-A: a\r\nX-B:b\r\nX-C:\r\n\r\n"), *ONE)
    for line in (b": a", b"X-A", b"X-A : a", b" X-A: a", b"X-A: a\r\n b", b"X-A: a\0b", b"X-A: a\x01", b"X(A): a", b"X-A: a\rb", b"\0", b"X-A: a\nX-B: b"):
        yield refused("trailer %r" % line, chunked(b"4\r\nabcd\r\n0\r\n" + line + b"\r\n\r\n"))
    for line in (b"Content-Length: 4", b"Content-Length: 400", b"Transfer-Encoding: chunked", b"Host: evil.example", b"Authorization: Bearer x", b"Inference-Header-Content-Length: 1", b"Content-Encoding: gzip"):
        yield either("trailer %r" % line, chunked(b"4\r\nabcd\r\n0\r\n" + line + b"\r\n\r\n"), ONE, 400)
    yield refused("a trailer of 40 KiB", chunked(b"4\r\nabcd\r\n0\r\nX-A: " + b"a" * 40000 + b"\r\n\r\n"), 400, 431)
    yield refused("2,000 trailers", chunked(b"4\r\nabcd\r\n0\r\n" + b"X-A: a\r\n" * 2000 + b"\r\n"), 400, 431)


def expectations():
    yield served("Expect: 100-continue, the body at once", sized("Expect: 100-continue"), *ONE)
    yield served("Expect with a space behind it", sized("Expect: 100-continue "), *ONE)
    yield served("Expect in capitals", sized("EXPECT: 100-CONTINUE"), *ONE)
    yield served("Expect on GET", get("Expect: 100-continue"))
    yield kept("Expect in HTTP/1.0", sized("Expect: 100-continue", "Connection: keep-alive", version="HTTP/1.0"), ONE)
    for value in ("200-ok", "100-continue, x", "100", "", "100-continue;a", "x"):
        yield refused("Expect: %s" % value, sized("Expect: " + value), 417)
    yield refused("Expect twice", sized("Expect: 100-continue", "Expect: 100-continue"), 400, 417)
    yield refused("Expect and a length that is none", post("Expect: 100-continue", "Content-Length: x"))
    yield refused("Expect and chunked with a bad size", chunked(b"zz\r\n", "Expect: 100-continue"))


def contents():
    packed, other = gzip.compress(b"ab"), gzip.compress(b"cd")
    whole = gzip.compress(BODY)
    target = INFER
    for name, field in (("gzip", "gzip"), ("GZIP", "GZIP"), ("Gzip", "Gzip"), ("gzip and a space", "gzip "), ("a tab and gzip", "\tgzip")):
        yield served("Content-Encoding: " + name, post("Content-Encoding: " + field, "Content-Length: %d" % len(whole), body=whole, target=target), *ONE)
    yield served("gzip of two members", post("Content-Encoding: gzip", "Content-Length: %d" % len(packed + other), body=packed + other), *ONE)
    yield served("gzip of two members, chunked", chunked(pieces_of(packed[:7], packed[7:] + other[:3], other[3:]), "Content-Encoding: gzip"), *ONE)
    empty = gzip.compress(b"")
    yield served("gzip of an empty member and one more", post("Content-Encoding: gzip", "Content-Length: %d" % len(empty + whole), body=empty + whole), *ONE)
    yield served("gzip of two members, the second cut", post("Content-Encoding: gzip", "Content-Length: %d" % len(packed + other[:-3]), body=packed + other[:-3]), (400, 404))
    yield served("Content-Encoding: IDENTITY", sized("Content-Encoding: IDENTITY"), *ONE)
    yield served("Content-Encoding: br", sized("Content-Encoding: br"), (415, 404))
    yield served("Content-Encoding: gzip, gzip", sized("Content-Encoding: gzip, gzip"), (415, 404))
    yield served("a header length with spaces around it", post("Inference-Header-Content-Length:  0 ", "Content-Length: 4", target="/v2/models/softmax_vec/infer"), *ONE)
    yield refused("two header lengths", sized("Inference-Header-Content-Length: 0", "Inference-Header-Content-Length: 0"))
    yield refused("two content types", sized("Content-Type: a/b", "Content-Type: a/b"))
    yield refused("two content encodings", sized("Content-Encoding: gzip", "Content-Encoding: identity"))
    yield refused("two authorizations", sized("Authorization: a", "Authorization: b"))


def connections():
    yield served("Connection: keep-alive", get("Connection: keep-alive"))
    yield served("Connection: Keep-Alive", get("Connection: Keep-Alive"))
    yield served("Connection: x, keep-alive", get("Connection: x, keep-alive"))
    yield served("Connection: Upgrade", get("Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"))
    yield served("Upgrade: websocket", get("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"))
    yield served("TE: trailers", sized("TE: trailers", "Connection: TE"), *ONE)
    yield served("a range", get("Range: bytes=0-0"), 200, 206)
    yield served("conditions", get("If-None-Match: *", "If-Modified-Since: Sat, 01 Jan 2000 00:00:00 GMT"), 200)
    yield kept("HTTP/1.0 and keep-alive", get("Connection: keep-alive", version="HTTP/1.0"))
    yield kept("HTTP/1.0, keep-alive, a body", sized("Connection: keep-alive", version="HTTP/1.0"), *ONE)
    yield kept("HTTP/1.0, keep-alive, no Host", get("Connection: keep-alive", version="HTTP/1.0", host=None), 200, 400)


def last_answers():
    """Answered, and the connection ends because the request says so: the tail gets none."""
    for name, data in (("Connection: close", get("Connection: close")), ("Connection: CLOSE", get("Connection: CLOSE")), ("Connection: x, close", get("Connection: x, close")),
                       ("Connection: close, keep-alive", get("Connection: close, keep-alive")), ("two Connections, one close", get("Connection: keep-alive", "Connection: close")),
                       ("Connection:close and a space", get("Connection:close ")), ("close with a body", sized("Connection: close")), ("close with a chunked body", chunked(CHUNKED, "Connection: close")),
                       ("HTTP/1.0", get(version="HTTP/1.0")), ("HTTP/1.0 with a body", sized(version="HTTP/1.0")), ("HTTP/1.0 without Host", get(version="HTTP/1.0", host=None)),
                       ("HTTP/1.0 and close", get("Connection: close", version="HTTP/1.0"))):
        yield Case(name, data, LAST, (200, 404))


def as_old():
    """Heads of other families as HTTP/1.0, which has no chunks and needs no Host, and whose connections may always end."""
    for family in (targets, hosts, fields, lengths, contents):
        for case in family():
            line, _, rest = case.data.partition(b"\r\n")
            if not line.endswith(b" HTTP/1.1") or TE.encode() in rest or b"\r\nHost:" not in case.data:
                continue
            yield case._replace(name=case.name + ", HTTP/1.0", data=line[:-1] + b"0\r\n" + rest, kind=KEPT if case.kind == SERVED else case.kind)


FAMILIES = (request_lines, targets, hosts, fields, lengths, codings, chunk_sizes, chunk_frames, trailers, expectations, contents, connections, last_answers, as_old)


def all_cases():
    return [case for family in FAMILIES for case in family()]


def status_fits(case, status, second):
    if second and case.kind == REFUSED and status == 404 and b" /v2/models/" in case.data:
        return True
    return any(status == (wanted[second] if isinstance(wanted, tuple) else wanted) for wanted in case.statuses)


def refusal_fault(case, answers, rest, ended):
    if len(answers) != 1 or rest:
        return "%d answers and %d bytes instead of one refusal" % (len(answers), len(rest))
    answer = answers[0]
    if not ended:
        return "the connection stays open behind %r" % answer
    if not answer.says_close():
        return "the end is not announced: %r" % answer
    if answer.status < 400:
        return "accepted with %d" % answer.status
    code = answer.header("kernserve-error")
    if case.codes and code not in case.codes and code != "path":
        return "code %s" % code
    return error_fault(answer) if case.method != "HEAD" else None


def service_fault(answers, rest):
    if len(answers) != 2 or rest:
        return "%d answers and %d bytes instead of two, %r" % (len(answers), len(rest), answers[:1])
    if answers[1].status != 200 or answers[1].header("x-request-id") != "the-tail":
        return "the tail got %r, id %s" % (answers[1], answers[1].header("x-request-id"))
    if answers[0].status >= 400 and answers[0].body:
        return error_fault(answers[0])
    return None


def last_fault(answers, rest, ended):
    if len(answers) != 1 or rest:
        return "%d answers and %d bytes instead of one" % (len(answers), len(rest))
    return None if ended else "the connection stays open"


def case_fault(case, answers, rest, ended, second):
    """None, or what is wrong with what came back."""
    if not answers:
        return "no answer, %s, %r" % ("closed" if ended else "open", rest[:60])
    if not status_fits(case, answers[0].status, second):
        return "status %d instead of %s: %r" % (answers[0].status, " or ".join(map(str, case.statuses)), answers[0])
    kind = case.kind
    if kind == SERVED and second and b"expect: 100" in case.data.lower() and answers[0].status == 404 and answers[0].says_close():
        kind = LAST  # whether the body had come when the head was refused depends on time; if not, nobody knows whether it will
    if kind in (EITHER, KEPT) and len(answers) == 1:
        kind = REFUSED if kind == EITHER and answers[0].status >= 400 else LAST
    if kind == REFUSED:
        return refusal_fault(case, answers, rest, ended)
    return last_fault(answers, rest, ended) if kind == LAST else service_fault(answers, rest)


def cuts(generator, data, delivery):
    """Whole; in a few pieces; byte by byte as far as that is short."""
    if delivery == "whole":
        return [data]
    if delivery == "bytes":
        return [data[i:i + 1] for i in range(min(len(data), 400))] + ([data[400:]] if len(data) > 400 else [])
    places = sorted(generator.sample(range(1, len(data)), min(3, len(data) - 1)))
    return [data[a:b] for a, b in zip([0] + places, places + [len(data)])]


def run_case(address, case, pieces, second):
    """What is wrong with one case on a connection of its own; None: nothing."""
    methods = [case.method, "GET"]
    with Exchange(address) as exchange:
        exchange.send(pieces, 0.001 if len(pieces) == 4 else 0.0)
        try:
            ends = case.kind in (REFUSED, LAST)
            answers, _, rest = exchange.collect(1 if ends else 2, methods)
            if ends or len(answers) < 2:
                while not exchange.ended and exchange.receive(1.5):
                    pass
            ended = exchange.ended
            exchange.finish()
            answers, _, rest = exchange.collect(99, methods, 0.1)
        except Malformed as fault:
            return "%s, all: %r" % (fault, exchange.got[:300])
        return case_fault(case, answers, rest, ended, second)


def alive(address):
    """Somebody else's request, at the end of each case."""
    with Exchange(address) as exchange:
        exchange.send([TAIL])
        answers, _, _ = exchange.collect(1, ["GET"])
        return len(answers) == 1 and answers[0].status == 200


def walk(daemon, cases, generator):
    for second, port in enumerate((daemon.port, daemon.admin_port)):
        address, listener = (daemon.host, port), ("data", "second")[second]
        for case in cases:
            for delivery in ("whole", "pieces", "bytes"):
                fault = run_case(address, case, cuts(generator, case.data + TAIL, delivery), second)
                check(fault is None, listener, "listener,", delivery + ":", case.name + ":", fault)
                if fault:  # its bytes, once
                    print("      %r" % (case.data[:200],))
                    break
        check(alive(address), listener, "listener does not answer any more")


def over_a_unix_socket(path):
    """Whose buffer holds some hundreds of writes, however small: a head that comes byte by byte is taken from it."""
    for size in (100, 500, 8000):
        with Exchange(path, 15) as exchange:
            exchange.send([bytes([b]) for b in get("X-A: " + "a" * size)])
            answers, _, _ = exchange.collect(1, ["GET"])
            check(len(answers) == 1 and answers[0].status == 200, "a head with a field of", size, "bytes, byte by byte over a Unix socket:", answers)


def long_heads_behind_a_long_body(address, generator, rounds=60):
    """A part of a head that is left in its socket may keep the sender's window shut, until the sender tries again seconds later."""
    data = get("Content-Length: 250000", target="/v2/repository/index", method="POST") + b'{"ready":' + b"[" * 249991
    data += get(*["X-%d: %s" % (i, "a" * 1000) for i in range(15)]) * 6
    for _ in range(rounds):
        places = sorted(generator.sample(range(1, len(data)), 3))
        with Exchange(address) as exchange:
            exchange.send([data[a:b] for a, b in zip([0] + places, places + [len(data)])])
            answers, _, _ = exchange.collect(7, ["GET"], 1)
            if not check_all(answers, places):
                return


def check_all(answers, places):
    right = [answer.status for answer in answers] == [400] + [200] * 6
    check(right, "long heads behind a long body, cut at", places, [answer.status for answer in answers])
    return right


CODE = re.compile(r'kernserve_http_requests_total{handler="other",method="([^"]*)",code="(\d+)"} (\d+)')
# Heads with two faults, of which the first is told; and ones that are refused before their end has come. The method's label.
FAULTS = ((b"GETx\r\nX: \0b\r\n\r\n", "request_line", "other"), (b"HEAD /livez HTTP/1.1\r\nX y: b\r\nX: \0\r\n\r\n", "header", "HEAD"), (b"HEAD /livez HTTP/3.0\r\n: b\r\n\r\n", "version", "HEAD"),
          (b"POST /livez HTTP/1.1\r\nX: \x01\r\n: b\r\n\r\n", "header", "POST"), (b"HEAD /livez HTTP/1.1\r\nX: " + b"a" * 40000, "headers", "HEAD"),
          (b"HEAD /livez HTTP/1.1\r\nX: " + b"a" * 40000 + b"\r\nX: \0\r\n\r\n", "headers", "HEAD"))


def labels(daemon):
    return {found[:2]: int(found[2]) for found in CODE.findall(daemon.metrics())}


def one_code_however_cut(daemon, generator):
    """And one label; and no body where the method is HEAD."""
    for data, code, method in FAULTS:
        for delivery in ("whole", "pieces", "bytes"):
            before = labels(daemon)
            with Exchange((daemon.host, daemon.port)) as exchange:
                exchange.send(cuts(generator, data, delivery), 0.001 if delivery == "pieces" else 0.0)
                try:
                    answers, _, rest = exchange.collect(1, [method])
                except Malformed as fault:
                    answers, rest = [], str(fault)
            found = [answer.header("kernserve-error") for answer in answers]
            check(found == [code] and not rest, data[:60], delivery, "is", found, rest)
            grew = [key[0] for key, value in labels(daemon).items() if value > before.get(key, 0)]
            check(grew == [method], data[:60], delivery, "is counted as", grew)


# Of which no more comes: told at once.
EARLY = ((get("Content-Length: 5", method="CONNECT"), 405), (get(TE, method="CONNECT"), 405), (get(target="localhost:80", method="CONNECT"), 501), (get("Content-Length: 5", method="CONNECT", version="HTTP/1.0"), 405),
         (post(TE, body=b"7fffffffffffffff\r\n"), (413, 404)), (post(TE, body=b"4\r\nabcd\r\n7fffffff\r\n"), (413, 404)), (post(TE, target="/nowhere", body=b"200000\r\n"), 404))


def refused_early(daemon):
    for second, port in enumerate((daemon.port, daemon.admin_port)):
        for data, wanted in EARLY:
            with Exchange((daemon.host, port)) as exchange:
                exchange.send([data])
                answers, _, _ = exchange.collect(1, ["GET"], 2)
                wanted = wanted[second] if isinstance(wanted, tuple) else wanted
                check([answer.status for answer in answers] == [wanted] and answers[0].says_close(), data[:60], data[-20:], "without more:", answers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernserve")
    parser.add_argument("--words", default="")
    arguments = parser.parse_args()
    seed = int(os.environ.get("KS_SEED") or random.SystemRandom().getrandbits(32))
    print("KS_SEED=%d" % seed)
    cases = [case for case in all_cases() if arguments.words in case.name]
    with tempfile.TemporaryDirectory() as folder, Daemon(arguments.kernserve, "--backend", "cpu", "--threads", "1", "--pinned-bytes", "64M", "--listen", "unix:" + folder + "/data") as daemon:
        over_a_unix_socket(folder + "/data")
        long_heads_behind_a_long_body((daemon.host, daemon.port), random.Random(seed))
        one_code_however_cut(daemon, random.Random(seed))
        refused_early(daemon)
        walk(daemon, cases, random.Random(seed))
        check(daemon.stop() == 0, "the exit code")
    print("%d cases on two listeners, %d wrong" % (len(cases), wrongs()))
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
