#!/usr/bin/env python3
"""The cases of public suites of HTTP/1.1, as a table: Http11Probe (215), h1spec (33). conformance.py KERNSERVE

Row(name, data, status, then): the name is the suite's own. GET / is the health check here, POST / an op that answers with the five bytes
that it got, a resource with an ETag a tensor. A row says what this daemon does, more narrowly than its suite, which takes several
answers for many rows; where the suite takes one alone, it is that one.
  STAYS   one answer; then a good request on the same connection gets its own
  CLOSES  one answer, or none where status is NONE, and the end, although a good request lies behind it
  ODD     one answer; what lies behind is no good request, and is rejected
  WAITS   no answer: the request is not complete
Two rows are not as their suite has it: MAL-CL-OVERFLOW is 413 (of a body that is too large), not 400; an entity
tag without quotes matches (CAP-INM-UNQUOTED, a warning there)."""
import random
import socket
import sys
from collections import namedtuple

from daemon import Connection, Daemon, check, daemon_path, wrongs

Row = namedtuple("Row", "name data status then body", defaults=(None,))
STAYS, CLOSES, ODD, WAITS, NONE = "stays", "closes", "odd", "waits", 0
HOST = b"Host: localhost"
LIVE = b"/v2/health/live"
ECHO = b"/v2/models/reduce/infer?shape=1,%d&datatype=UINT8&op=max&axis=0"  # the maximum over one row is that row
CHUNKED, CL5 = b"Transfer-Encoding: chunked", b"Content-Length: 5"
HELLO = b"5\r\nhello\r\n0\r\n\r\n"
SOCKET = (b"Upgrade: websocket", b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
BEHIND = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: behind\r\n\r\n"


def head(line, *fields, host=HOST):
    return b"\r\n".join((line, *filter(None, (host,)), *fields)) + b"\r\n\r\n"


def get(*fields, host=HOST, target=LIVE, method=b"GET", version=b"HTTP/1.1", body=b""):
    return head(b"%s %s %s" % (method, target, version), *fields, host=host) + body


def post(*fields, body=b"hello", size=5, method=b"POST", version=b"HTTP/1.1"):
    return head(b"%s %s %s" % (method, ECHO % size, version), *fields) + body


def chunks(body, *fields):
    return post(CHUNKED, *fields, body=body)


def trailer(field):
    return chunks(b"5\r\nhello\r\n0\r\n" + field + b"\r\n\r\n")


GET = get()
INNER = b"0\r\n\r\n" + GET  # behind an end of chunks, a request
PROBE_SMUGGLING = (
    Row("SMUG-CL-TE-BOTH", post(b"Content-Length: 15", CHUNKED, body=HELLO), 400, CLOSES),
    Row("SMUG-DUPLICATE-CL", post(CL5, b"Content-Length: 10", body=b"helloworld"), 400, CLOSES),
    Row("SMUG-CL-LEADING-ZEROS", post(b"Content-Length: 005"), 200, STAYS, b"hello"),
    Row("SMUG-TE-XCHUNKED", post(b"Transfer-Encoding: xchunked", CL5), 400, CLOSES),
    Row("SMUG-TE-TRAILING-SPACE", post(b"Transfer-Encoding: chunked ", CL5), 400, CLOSES),
    Row("SMUG-TE-SP-BEFORE-COLON", post(b"Transfer-Encoding : chunked", CL5), 400, CLOSES),
    Row("SMUG-CL-NEGATIVE", post(b"Content-Length: -1", body=b""), 400, CLOSES),
    Row("SMUG-CLTE-PIPELINE", post(b"Content-Length: 4", CHUNKED, body=b"0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-TECL-PIPELINE", post(CHUNKED, b"Content-Length: 30", body=b"0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-CL-TRAILING-SPACE", post(b"Content-Length: 5 "), 200, STAYS, b"hello"),
    Row("SMUG-TE-DOUBLE-CHUNKED", post(b"Transfer-Encoding: chunked, chunked", CL5), 400, CLOSES),
    Row("SMUG-CL-EXTRA-LEADING-SP", post(b"Content-Length:  5"), 200, STAYS, b"hello"),
    Row("SMUG-TE-CASE-MISMATCH", post(b"Transfer-Encoding: Chunked", CL5), 400, CLOSES),
    Row("SMUG-CL-COMMA-DIFFERENT", post(b"Content-Length: 5, 10"), 400, CLOSES),
    Row("SMUG-TE-NOT-FINAL-CHUNKED", post(b"Transfer-Encoding: chunked, gzip", body=b"0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-TE-HTTP10", post(CHUNKED, CL5, version=b"HTTP/1.0"), 400, CLOSES),
    Row("SMUG-CHUNK-BARE-SEMICOLON", chunks(b"5;\r\nhello\r\n0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-CHUNK-EXT-INVALID-TOKEN", chunks(b"5;bad[=x\r\nhello\r\n0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-BARE-CR-HEADER-VALUE", post(CL5, b"X-Test: val\rue"), 400, CLOSES),
    Row("SMUG-CL-OCTAL", post(b"Content-Length: 0o5"), 400, CLOSES),
    Row("SMUG-CHUNK-UNDERSCORE", chunks(b"1_0\r\nhello world!!!!!\r\n0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-TE-EMPTY-VALUE", post(b"Transfer-Encoding: ", CL5), 400, CLOSES),
    Row("SMUG-TE-LEADING-COMMA", post(b"Transfer-Encoding: , chunked", CL5), 400, CLOSES),
    Row("SMUG-TE-DUPLICATE-HEADERS", post(CHUNKED, b"Transfer-Encoding: identity", CL5), 400, CLOSES),
    Row("SMUG-CHUNK-HEX-PREFIX", chunks(b"0x5\r\nhello\r\n0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-CHUNK-SIZE-PLUS", chunks(b"+5\r\nhello\r\n0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-CHUNK-SIZE-TRAILING-OWS", chunks(b"5 \r\nhello\r\n0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-CL-HEX-PREFIX", post(b"Content-Length: 0x5"), 400, CLOSES),
    Row("SMUG-CL-INTERNAL-SPACE", post(b"Content-Length: 1 0", body=b"hello12345"), 400, CLOSES),
    Row("SMUG-CHUNK-LEADING-SP", chunks(b" 5\r\nhello\r\n0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-CHUNK-MISSING-TRAILING-CRLF", chunks(b"5\r\nhello0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-CHUNK-EXT-LF", chunks(b"5;\nhello\r\n0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-CHUNK-SPILL", chunks(b"5\r\nhello!!\r\n0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-CHUNK-LF-TERM", chunks(b"5\r\nhello\n0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-CHUNK-EXT-CTRL", chunks(b"5;\0ext\r\nhello\r\n0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-CHUNK-EXT-CR", chunks(b"5;a\rX\r\nhello\r\n0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-TE-VTAB", post(b"Transfer-Encoding: \x0bchunked", CL5), 400, CLOSES),
    Row("SMUG-TE-FORMFEED", post(b"Transfer-Encoding: \x0cchunked", CL5), 400, CLOSES),
    Row("SMUG-TE-NULL", post(b"Transfer-Encoding: chunked\0", CL5), 400, CLOSES),
    Row("SMUG-CHUNK-LF-TRAILER", chunks(b"5\r\nhello\r\n0\r\n\n"), 400, CLOSES),
    Row("SMUG-TE-IDENTITY", post(b"Transfer-Encoding: identity", CL5), 400, CLOSES),
    Row("SMUG-CHUNK-NEGATIVE", chunks(b"-1\r\nhello\r\n0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-TRANSFER_ENCODING", post(b"Transfer_Encoding: chunked", CL5), 200, STAYS, b"hello"),
    Row("SMUG-CL-COMMA-SAME", post(b"Content-Length: 5, 5"), 400, CLOSES),
    Row("SMUG-CL-COMMA-TRIPLE", post(b"Content-Length: 5, 5, 5"), 400, CLOSES),
    Row("SMUG-CHUNKED-WITH-PARAMS", post(b"Transfer-Encoding: chunked;ext=val", CL5), 400, CLOSES),
    Row("SMUG-EXPECT-100-CL", post(CL5, b"Expect: 100-continue"), 200, STAYS, b"hello"),
    Row("SMUG-TRAILER-CL", trailer(b"Content-Length: 50"), 200, STAYS, b"hello"),
    Row("SMUG-TRAILER-TE", trailer(b"Transfer-Encoding: chunked"), 200, STAYS, b"hello"),
    Row("SMUG-TRAILER-HOST", trailer(b"Host: evil.example.com"), 200, STAYS, b"hello"),
    Row("SMUG-TRAILER-AUTH", trailer(b"Authorization: Bearer evil"), 200, STAYS, b"hello"),
    Row("SMUG-HEAD-CL-BODY", get(CL5, method=b"HEAD", body=b"hello"), 200, STAYS),
    Row("SMUG-OPTIONS-CL-BODY", get(CL5, method=b"OPTIONS", body=b"hello"), 405, STAYS),
    Row("SMUG-CL-UNDERSCORE", post(b"Content-Length: 1_0", body=b"helloworld"), 400, CLOSES),
    Row("SMUG-CL-NEGATIVE-ZERO", post(b"Content-Length: -0", body=b""), 400, CLOSES),
    Row("SMUG-CL-DOUBLE-ZERO", post(b"Content-Length: 00", body=b"", size=0), 200, STAYS, b""),
    Row("SMUG-CL-LEADING-ZEROS-OCTAL", post(b"Content-Length: 0200", body=b"A" * 200, size=200), 200, STAYS, b"A" * 200),
    Row("SMUG-TE-OBS-FOLD", post(b"Transfer-Encoding:\r\n chunked", CL5), 400, CLOSES),
    Row("SMUG-TE-TRAILING-COMMA", post(b"Transfer-Encoding: chunked,", CL5), 400, CLOSES),
    Row("SMUG-TE-TAB-BEFORE-VALUE", post(b"Transfer-Encoding:\tchunked", CL5), 400, CLOSES),
    Row("SMUG-ABSOLUTE-URI-HOST-MISMATCH", get(target=b"http://other.example.com" + LIVE), 200, STAYS),
    Row("SMUG-MULTIPLE-HOST-COMMA", get(host=b"Host: localhost, other.example.com"), 400, CLOSES),
    Row("SMUG-CHUNK-BARE-CR-TERM", chunks(b"5\rhello\r\n0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-TRAILER-CONTENT-TYPE", trailer(b"Content-Type: text/evil"), 200, STAYS, b"hello"),
    Row("SMUG-CLTE-CONN-CLOSE", post(CL5, CHUNKED, body=b"0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-TECL-CONN-CLOSE", post(CHUNKED, CL5, body=b"0\r\n\r\n"), 400, CLOSES),
    Row("SMUG-CLTE-DESYNC", post(b"Content-Length: 6", CHUNKED, body=b"0\r\n\r\nX"), 400, CLOSES),
    Row("SMUG-CLTE-SMUGGLED-GET", post(b"Content-Length: %d" % len(INNER), CHUNKED, body=INNER), 400, CLOSES),
    Row("SMUG-CLTE-SMUGGLED-GET-CL-PLUS", post(b"Content-Length: +%d" % len(INNER), CHUNKED, body=INNER), 400, CLOSES),
    Row("SMUG-CLTE-SMUGGLED-GET-CL-NON-NUMERIC", post(b"Content-Length: %dx" % len(INNER), CHUNKED, body=INNER), 400, CLOSES),
    Row("SMUG-CLTE-SMUGGLED-GET-TE-OBS-FOLD", post(b"Transfer-Encoding:\r\n chunked", b"Content-Length: %d" % len(INNER), body=INNER), 400, CLOSES),
    Row("SMUG-CLTE-SMUGGLED-HEAD", post(b"Content-Length: %d" % (len(INNER) + 1), CHUNKED, body=INNER.replace(b"GET", b"HEAD")), 400, CLOSES),
    Row("SMUG-CLTE-SMUGGLED-GET-TE-TRAILING-SPACE", post(b"Content-Length: %d" % len(INNER), b"Transfer-Encoding: chunked ", body=INNER), 400, CLOSES),
    Row("SMUG-CLTE-SMUGGLED-GET-TE-LEADING-COMMA", post(b"Content-Length: %d" % len(INNER), b"Transfer-Encoding: , chunked", body=INNER), 400, CLOSES),
    Row("SMUG-CLTE-SMUGGLED-GET-TE-CASE-MISMATCH", post(b"Content-Length: %d" % len(INNER), b"Transfer-Encoding: Chunked", body=INNER), 400, CLOSES),
    Row("SMUG-TE-DUPLICATE-HEADERS-SMUGGLED-GET", post(CHUNKED, b"Transfer-Encoding: identity", b"Content-Length: %d" % len(INNER), body=INNER), 400, CLOSES),
    Row("SMUG-TECL-SMUGGLED-GET", post(CHUNKED, b"Content-Length: 4", body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(get(b"Content-Length: 7")), get(b"Content-Length: 7"))), 400, CLOSES),
    Row("SMUG-DUPLICATE-CL-SMUGGLED-GET", post(b"Content-Length: 4", b"Content-Length: %d" % (len(GET) + 4), body=b"PING" + GET), 400, CLOSES),
    Row("SMUG-GET-CL-PREFIX-DESYNC", get(b"Content-Length: %d" % len(GET[:-2]), body=GET[:-2]), 200, STAYS),
    Row("SMUG-TECL-DESYNC", post(CHUNKED, b"Content-Length: 30", body=b"0\r\n\r\nX"), 400, CLOSES),
    Row("SMUG-CL0-BODY-POISON", post(b"Content-Length: 0", body=b"X", size=0), 200, ODD, b""),
    Row("SMUG-GET-CL-BODY-DESYNC", get(CL5, body=b"hello"), 200, STAYS),
    Row("SMUG-OPTIONS-CL-BODY-DESYNC", get(CL5, method=b"OPTIONS", body=b"hello"), 405, STAYS),
    Row("SMUG-EXPECT-100-CL-DESYNC", post(CL5, b"Expect: 100-continue"), 200, STAYS, b"hello"),
    Row("SMUG-OPTIONS-TE-OBS-FOLD", get(b"Transfer-Encoding:\r\n chunked", CL5, method=b"OPTIONS", body=b"hello"), 400, CLOSES),
    Row("SMUG-CHUNK-INVALID-SIZE-DESYNC", chunks(b"+0\r\n\r\nX"), 400, CLOSES),
    Row("SMUG-PIPELINE-SAFE", GET, 200, STAYS),
)
PROBE_MALFORMED = (
    Row("MAL-BINARY-GARBAGE", bytes(random.Random(42).choices(range(256), k=256)) + b"\r\n\r\n", 400, CLOSES),
    Row("MAL-LONG-URL", get(target=b"/" + b"A" * 100000), 414, CLOSES),
    Row("MAL-LONG-HEADER-VALUE", get(b"X-Big: " + b"B" * 100000), 431, CLOSES),
    Row("MAL-MANY-HEADERS", get(*(b"X-H-%d: value" % i for i in range(10000))), 431, CLOSES),
    Row("MAL-NUL-IN-URL", get(target=b"/\0test"), 400, CLOSES),
    Row("MAL-CONTROL-CHARS-HEADER", get(b"X-Test: abc\x07\x08\x0bdef"), 400, CLOSES),
    Row("MAL-INCOMPLETE-REQUEST", get(b"X-Test: value")[:-4], NONE, WAITS),
    Row("MAL-EMPTY-REQUEST", b"", NONE, WAITS),
    Row("MAL-LONG-HEADER-NAME", get(b"A" * 100000 + b": val"), 431, CLOSES),
    Row("MAL-LONG-METHOD", get(method=b"A" * 100000), 400, CLOSES),
    Row("MAL-NON-ASCII-HEADER-NAME", get(b"X-T\xc3\xabst: value"), 400, CLOSES),
    Row("MAL-NON-ASCII-URL", get(target=b"/caf\xc3\xa9"), 400, CLOSES),
    Row("MAL-CL-OVERFLOW", post(b"Content-Length: 99999999999999999999", body=b""), 413, CLOSES),
    Row("MAL-WHITESPACE-ONLY-LINE", b"   \r\n\r\n", 400, CLOSES),
    Row("MAL-NUL-IN-HEADER-VALUE", get(b"X-Test: val\0ue"), 400, CLOSES),
    Row("MAL-CHUNK-SIZE-OVERFLOW", chunks(b"FFFFFFFFFFFFFFFF0\r\nhello\r\n0\r\n\r\n"), 400, CLOSES),
    Row("MAL-H2-PREFACE", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, CLOSES),
    Row("MAL-CL-EMPTY", post(b"Content-Length: ", body=b""), 400, CLOSES),
    Row("MAL-CL-TAB-BEFORE-VALUE", post(b"Content-Length:\t5"), 200, STAYS, b"hello"),
    Row("MAL-URL-BACKSLASH", get(target=b"/path\\file"), 404, STAYS),
    Row("MAL-URL-OVERLONG-UTF8", get(target=b"/\xc0\xaf"), 400, CLOSES),
    Row("MAL-URL-PERCENT-NULL", get(target=b"/path%00.html"), 404, STAYS),
    Row("MAL-URL-PERCENT-CRLF", get(target=b"/path%0d%0aX-Injected:%20true"), 404, STAYS),
    Row("MAL-CHUNK-EXT-64K", chunks(b"5;ext=" + b"a" * 65536 + b"\r\nhello\r\n0\r\n\r\n"), 400, CLOSES),
    Row("MAL-RANGE-OVERLAPPING", get(b"Range: bytes=" + b",".join([b"0-"] * 1000)), 200, STAYS),
    Row("MAL-POST-CL-HUGE-NO-BODY", post(b"Content-Length: 999999999", body=b""), 413, CLOSES),
)
PROBE_NORMALIZATION = (
    Row("NORM-UNDERSCORE-CL", post(CL5, b"Content_Length: 99"), 200, STAYS, b"hello"),
    Row("NORM-SP-BEFORE-COLON-CL", post(CL5, b"Content-Length : 3"), 400, CLOSES),
    Row("NORM-TAB-IN-NAME", post(CL5, b"Content\tLength: 99"), 400, CLOSES),
    Row("NORM-CASE-TE", post(CL5, b"TRANSFER-ENCODING: chunked"), 400, CLOSES),
    Row("NORM-UNDERSCORE-TE", post(CL5, b"Transfer_Encoding: chunked"), 200, STAYS, b"hello"),
)
PROBE_COMPLIANCE = (
    Row("COMP-BASELINE", GET, 200, STAYS),
    Row("RFC9112-2.2-BARE-LF-REQUEST-LINE", GET.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\n"), 400, CLOSES),
    Row("RFC9112-2.2-BARE-LF-HEADER", get(b"X-Test: value").replace(b"localhost\r\n", b"localhost\n"), 400, CLOSES),
    Row("RFC9112-5.1-OBS-FOLD", get(b"X-Test: value\r\n continued"), 400, CLOSES),
    Row("RFC9110-5.6.2-SP-BEFORE-COLON", get(b"X-Test : value"), 400, CLOSES),
    Row("RFC9112-3-MULTI-SP-REQUEST-LINE", GET.replace(b"GET ", b"GET  "), 400, CLOSES),
    Row("RFC9112-7.1-MISSING-HOST", get(host=None), 400, CLOSES),
    Row("RFC9112-2.3-INVALID-VERSION", get(version=b"HTTP/9.9"), 505, CLOSES),
    Row("RFC9112-5-EMPTY-HEADER-NAME", get(b": empty-name"), 400, CLOSES),
    Row("RFC9112-3-CR-ONLY-LINE-ENDING", GET.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r"), 400, CLOSES),
    Row("RFC9112-3-MISSING-TARGET", head(b"GET HTTP/1.1"), 400, CLOSES),
    Row("RFC9112-3.2-FRAGMENT-IN-TARGET", get(target=b"/path#frag"), 400, CLOSES),
    Row("RFC9112-2.3-HTTP09-REQUEST", b"GET /\r\n", 400, CLOSES),
    Row("RFC9112-5-INVALID-HEADER-NAME", get(b"Bad[Name: value"), 400, CLOSES),
    Row("RFC9112-5-HEADER-NO-COLON", get(b"NoColonHere"), 400, CLOSES),
    Row("RFC9110-5.4-DUPLICATE-HOST", get(b"Host: other.example.com"), 400, CLOSES),
    Row("RFC9112-6.1-CL-NON-NUMERIC", post(b"Content-Length: abc", body=b""), 400, CLOSES),
    Row("RFC9112-6.1-CL-PLUS-SIGN", post(b"Content-Length: +5"), 400, CLOSES),
    Row("COMP-WHITESPACE-BEFORE-HEADERS", b"GET " + LIVE + b" HTTP/1.1\r\n \r\n" + HOST + b"\r\n\r\n", 400, CLOSES),
    Row("COMP-DUPLICATE-HOST-SAME", get(HOST), 400, CLOSES),
    Row("COMP-HOST-WITH-USERINFO", get(host=b"Host: user@localhost"), 400, CLOSES),
    Row("COMP-HOST-WITH-PATH", get(host=b"Host: localhost/path"), 400, CLOSES),
    Row("COMP-ASTERISK-WITH-GET", get(target=b"*"), 400, CLOSES),
    Row("COMP-OPTIONS-STAR", get(target=b"*", method=b"OPTIONS"), 200, STAYS),
    Row("COMP-UNKNOWN-TE-501", post(b"Transfer-Encoding: gzip", body=b""), 400, CLOSES),
    Row("COMP-LEADING-CRLF", b"\r\n\r\n" + GET, 200, STAYS),
    Row("COMP-ABSOLUTE-FORM", get(target=b"http://localhost" + LIVE), 200, STAYS),
    Row("COMP-METHOD-CASE", get(method=b"get"), 405, STAYS),
    Row("COMP-POST-CL-BODY", post(CL5), 200, STAYS, b"hello"),
    Row("COMP-POST-CL-ZERO", post(b"Content-Length: 0", body=b"", size=0), 200, STAYS, b""),
    Row("COMP-POST-NO-CL-NO-TE", post(body=b"", size=0), 200, STAYS, b""),
    Row("COMP-POST-CL-UNDERSEND", post(b"Content-Length: 10", size=10), NONE, WAITS),
    Row("COMP-CHUNKED-BODY", chunks(HELLO), 200, STAYS, b"hello"),
    Row("COMP-CHUNKED-MULTI", post(CHUNKED, body=b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", size=11), 200, STAYS, b"hello world"),
    Row("COMP-CHUNKED-EMPTY", post(CHUNKED, body=b"0\r\n\r\n", size=0), 200, STAYS, b""),
    Row("COMP-CHUNKED-NO-FINAL", chunks(b"5\r\nhello\r\n"), NONE, WAITS),
    Row("COMP-UPGRADE-POST", post(CL5, b"Connection: Upgrade", *SOCKET, b"Sec-WebSocket-Version: 13"), 200, STAYS, b"hello"),
    Row("COMP-UPGRADE-MISSING-CONN", get(*SOCKET, b"Sec-WebSocket-Version: 13"), 200, STAYS),
    Row("COMP-UPGRADE-UNKNOWN", get(b"Connection: Upgrade", b"Upgrade: totally-made-up/1.0"), 200, STAYS),
    Row("COMP-METHOD-CONNECT", head(b"CONNECT example.com:443 HTTP/1.1", host=b"Host: example.com:443"), 501, CLOSES),
    Row("COMP-EXPECT-UNKNOWN", get(b"Expect: 200-ok"), 417, CLOSES),
    Row("COMP-GET-WITH-CL-BODY", get(CL5, body=b"hello"), 200, STAYS),
    Row("COMP-CHUNKED-EXTENSION", chunks(b"5;ext=value\r\nhello\r\n0\r\n\r\n"), 200, STAYS, b"hello"),
    Row("COMP-UPGRADE-INVALID-VER", get(b"Connection: Upgrade", *SOCKET, b"Sec-WebSocket-Version: 99"), 200, STAYS),
    Row("COMP-METHOD-TRACE", get(method=b"TRACE"), 405, STAYS),
    Row("COMP-HOST-EMPTY-VALUE", get(host=b"Host: "), 400, CLOSES),
    Row("COMP-REQUEST-LINE-TAB", GET.replace(b"GET ", b"GET\t"), 400, CLOSES),
    Row("COMP-VERSION-MISSING-MINOR", get(version=b"HTTP/1"), 400, CLOSES),
    Row("COMP-VERSION-LEADING-ZEROS", get(version=b"HTTP/01.01"), 400, CLOSES),
    Row("COMP-VERSION-WHITESPACE", get(version=b"HTTP/ 1.1"), 400, CLOSES),
    Row("COMP-CONNECTION-CLOSE", get(b"Connection: close"), 200, CLOSES),
    Row("COMP-HTTP10-DEFAULT-CLOSE", get(version=b"HTTP/1.0"), 200, CLOSES),
    Row("COMP-HTTP10-NO-HOST", get(version=b"HTTP/1.0", host=None), 200, CLOSES),
    Row("COMP-HTTP12-VERSION", get(version=b"HTTP/1.2"), 200, STAYS),
    Row("COMP-TRACE-WITH-BODY", get(CL5, method=b"TRACE", body=b"hello"), 405, STAYS),
    Row("COMP-CHUNKED-TRAILER-VALID", trailer(b"X-Checksum: abc"), 200, STAYS, b"hello"),
    Row("COMP-CHUNKED-HEX-UPPERCASE", post(CHUNKED, body=b"A\r\nhelloworld\r\n0\r\n\r\n", size=10), 200, STAYS, b"helloworld"),
    Row("COMP-RANGE-POST", post(CL5, b"Range: bytes=0-10"), 200, STAYS, b"hello"),
    Row("COMP-UPGRADE-HTTP10", get(b"Connection: Upgrade", *SOCKET, b"Sec-WebSocket-Version: 13", version=b"HTTP/1.0"), 200, CLOSES),
    Row("COMP-HEAD-NO-BODY", get(method=b"HEAD"), 200, STAYS),
    Row("COMP-UNKNOWN-METHOD", get(method=b"FOOBAR"), 405, STAYS),
    Row("COMP-405-ALLOW", get(method=b"DELETE"), 405, STAYS),
    Row("COMP-DATE-HEADER", GET, 200, STAYS),
    Row("COMP-DATE-FORMAT", GET, 200, STAYS),
    Row("COMP-NO-1XX-HTTP10", post(b"Expect: 100-continue", CL5, version=b"HTTP/1.0"), 200, CLOSES, b"hello"),
    Row("COMP-NO-CL-IN-204", get(method=b"OPTIONS"), 405, STAYS),
    Row("COMP-OPTIONS-ALLOW", get(method=b"OPTIONS"), 405, STAYS),
    Row("COMP-CONTENT-TYPE", GET, 200, STAYS),
    Row("COMP-VERSION-CASE", get(version=b"http/1.1"), 400, CLOSES),
    Row("COMP-LONG-URL-OK", get(target=b"/" + b"a" * 7900), 414, CLOSES),
    Row("COMP-SPACE-IN-TARGET", get(target=b"/pa th"), 400, CLOSES),
    Row("COMP-DUPLICATE-CT", post(CL5, b"Content-Type: text/plain", b"Content-Type: text/html"), 400, CLOSES),
    Row("COMP-TRACE-SENSITIVE", get(b"Authorization: Bearer secret-token-123", method=b"TRACE"), 405, STAYS),
    Row("COMP-RANGE-INVALID", get(b"Range: bytes=abc-xyz"), 200, STAYS),
    Row("COMP-ACCEPT-NONSENSE", get(b"Accept: application/x-nonsense"), 200, STAYS),
    Row("COMP-POST-UNSUPPORTED-CT", post(CL5, b"Content-Type: application/x-nonsense"), 200, STAYS, b"hello"),
)


def tensor(*fields):
    return get(*fields, target=b"/v2/tensors/etag")


def capabilities(etag):
    """A tensor has an ETag and no time: what is asked by time is not looked at."""
    return (
        Row("CAP-ETAG-304", tensor(b"If-None-Match: " + etag), 304, STAYS),
        Row("CAP-LAST-MODIFIED-304", tensor(b"If-Modified-Since: Sun, 01 Jan 2040 00:00:00 GMT"), 200, STAYS, b"hello"),
        Row("CAP-ETAG-IN-304", tensor(b"If-None-Match: " + etag), 304, STAYS),
        Row("CAP-INM-PRECEDENCE", tensor(b"If-None-Match: " + etag, b"If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT"), 304, STAYS),
        Row("CAP-INM-WILDCARD", tensor(b"If-None-Match: *"), 304, STAYS),
        Row("CAP-IMS-FUTURE", tensor(b"If-Modified-Since: Thu, 01 Jan 2099 00:00:00 GMT"), 200, STAYS, b"hello"),
        Row("CAP-IMS-INVALID", tensor(b"If-Modified-Since: not-a-date"), 200, STAYS, b"hello"),
        Row("CAP-INM-UNQUOTED", tensor(b"If-None-Match: " + etag.strip(b'"')), 304, STAYS),
        Row("CAP-ETAG-WEAK", tensor(b"If-None-Match: W/" + etag), 304, STAYS),
    )


PROBE_COOKIES = (
    Row("COOK-ECHO", get(b"Cookie: foo=bar"), 200, STAYS),
    Row("COOK-OVERSIZED", get(b"Cookie: big=" + b"A" * 65536), 431, CLOSES),
    Row("COOK-EMPTY", get(b"Cookie: "), 200, STAYS),
    Row("COOK-NUL", get(b"Cookie: foo=\0bar"), 400, CLOSES),
    Row("COOK-CONTROL-CHARS", get(b"Cookie: foo=\x01\x02\x03"), 400, CLOSES),
    Row("COOK-MANY-PAIRS", get(b"Cookie: " + b"; ".join(b"k%d=v%d" % (i, i) for i in range(1000))), 200, STAYS),
    Row("COOK-MALFORMED", get(b"Cookie: ===;;;"), 200, STAYS),
    Row("COOK-MULTI-HEADER", get(b"Cookie: a=1", b"Cookie: b=2"), 200, STAYS),
    Row("COOK-PARSED-BASIC", get(b"Cookie: foo=bar"), 200, STAYS),
    Row("COOK-PARSED-MULTI", get(b"Cookie: a=1; b=2; c=3"), 200, STAYS),
    Row("COOK-PARSED-EMPTY-VAL", get(b"Cookie: foo="), 200, STAYS),
    Row("COOK-PARSED-SPECIAL", get(b"Cookie: a=hello world; b=x=y"), 200, STAYS),
)
# Beginnings of a request, each of which is waited with.
H1SPEC_BEGINNINGS = tuple(Row("fragment %r" % text[-12:], text, NONE, WAITS) for text in (
    b"G", b"GET ", b"GET /hello", b"GET /hello ", b"GET /hello HTTP", b"GET /hello HTTP/1.1", b"GET /hello HTTP/1.1\r", b"GET /hello HTTP/1.1\r\n", b"GET /hello HTTP/1.1\r\nHos",
    b"GET /hello HTTP/1.1\r\nHost:", b"GET /hello HTTP/1.1\r\nHost: ", b"GET /hello HTTP/1.1\r\nHost: localhost", b"GET /hello HTTP/1.1\r\nHost: localhost\r",
    b"GET /hello HTTP/1.1\r\nHost: localhost\r\n", b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r"))
H1SPEC = H1SPEC_BEGINNINGS + (
    Row("Request without HTTP version", b"GET / \r\n\r\n", 400, CLOSES),
    Row("Request with Expect header", get(b"Expect: 100-continue"), 200, STAYS),
    Row("Valid GET request", GET, 200, STAYS),
    Row("Valid GET request with edge cases", get(b"empty:", host=b"hoSt:\tlocalhost"), 200, STAYS),
    Row("Invalid header characters", get(b"X-Invalid[]: test"), 400, CLOSES),
    Row("Missing Host header", get(CL5, host=None), 400, CLOSES),
    Row("Multiple Host headers", get(b"Host: example.org"), 400, CLOSES),
    Row("Overflowing negative Content-Length header", get(b"Content-Length: -123456789123456789123456789"), 400, CLOSES),
    Row("Negative Content-Length header", get(b"Content-Length: -1234"), 400, CLOSES),
    Row("Non-numeric Content-Length header", get(b"Content-Length: abc"), 400, CLOSES),
    Row("Empty header value", get(b"X-Empty-Header: "), 200, STAYS),
    Row("Header containing invalid control character", get(b"X-Bad-Control-Char: test\x07"), 400, CLOSES),
    Row("Invalid HTTP version", get(version=b"HTTP/9.9"), 505, CLOSES),
    Row("Invalid prefix of request", b"Extra line" + GET, 400, CLOSES),
    Row("Invalid line ending", b"GET " + LIVE + b" HTTP/1.1\r\n" + HOST + b"\r\n\rSome-Header: Test\r\n\r\n", 400, CLOSES),
    Row("Valid POST request with body", post(CL5), 200, STAYS, b"hello"),
    Row("Chunked Transfer-Encoding", post(CHUNKED, body=b"c\r\nHellO world1\r\n0\r\n\r\n", size=12), 200, STAYS, b"HellO world1"),
    Row("Conflicting Transfer-Encoding and Content-Length in varying case",
        post(b"content-LengtH: 5", b"TransFer-Encoding: chunked", body=b"c\r\nHellO world1\r\n0\r\n\r\n", size=12), 400, CLOSES),
)


def waits(connection, row):
    connection.send(row.data)
    connection.socket.settimeout(0.1)
    try:
        got = connection.socket.recv(1000)
    except (socket.timeout, TimeoutError):
        return
    check(False, row.name, "got", got, "for a request that is not complete")


def walk(daemon, row):
    with Connection(daemon) as connection:
        if row.then == WAITS:
            return waits(connection, row)
        connection.send(row.data + BEHIND)
        method = row.data.lstrip().split(b" ")[0].decode("latin-1")
        answer = connection.answer(method)
        status = answer.status if answer else NONE
        check(status == row.status, row.name, "got", status, answer, "wanted", row.status)
        check(row.body is None or (answer and answer.body == row.body), row.name, "the body", answer)
        check(not answer or answer.header("date") and (answer.header("content-type") or not answer.body), row.name, "Date, Content-Type", answer and answer.headers)
        check(status != 405 or answer.header("allow"), row.name, "405 without Allow")
        check(status != 304 or answer.header("etag") and not answer.body, row.name, "304 without its ETag")
        if row.then == ODD:
            check(400 <= connection.answer().status < 500, row.name, "behind it, what is no good request was taken")
        elif row.then == STAYS:
            behind = connection.answer()
            check(behind and behind.status == 200 and behind.header("x-request-id") == "behind", row.name, "behind it a good request got", behind)
        else:
            check(connection.closed_within(10), row.name, "more than one answer, or no end:", connection.rest[:200])


def main():
    with Daemon(daemon_path(), "--backend", "cpu", "--threads", "1", "--pinned-bytes", "16M", "--max-body", "1M") as daemon:
        with Connection(daemon) as connection:
            connection.send(b"PUT /v2/tensors/etag?shape=5&datatype=UINT8 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello")
            etag = connection.answer().header("etag").encode()
        probe = PROBE_SMUGGLING + PROBE_MALFORMED + PROBE_NORMALIZATION + PROBE_COMPLIANCE + capabilities(etag) + PROBE_COOKIES
        check(len(probe) == 215 and len(H1SPEC) == 33, "rows:", len(probe), len(H1SPEC))
        for row in probe + H1SPEC:
            walk(daemon, row)
        check(daemon.stop() == 0, "the daemon's end")
    print("%d rows of Http11Probe, %d of h1spec, %d wrong" % (len(probe), len(H1SPEC), wrongs()))
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
