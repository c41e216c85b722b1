"""Requests that want two parsers to disagree: where a request ends, which one a response belongs to, what a field says.

Interface  payload(random, name): (family, bytes, how to send them). Each carries X-Request-Id "NAME" in its own head and
           "NAME-hidden" in the request that it tries to hide, so that every request that a server sees can be told.
Made by a seed: a family draws its variants, then, one time in three, a mutation of the whole.
"""

INFER = b"/v2/models/reduce/infer?shape=1,1&datatype=INT32&op=max&axis=1"
LIVE = b"/v2/health/live"
CODINGS = (b"Transfer-Encoding: chunked", b"Transfer-Encoding : chunked", b"Transfer-Encoding:\tchunked", b"Transfer-Encoding:\x0bchunked", b"Transfer-Encoding: chunked ", b"Transfer-Encoding: chunked\t",
           b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding: identity, chunked", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
           b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"Transfer-Encoding\r\n : chunked", b"Transfer-Encoding:\r\n chunked",
           b"X: x\nTransfer-Encoding: chunked", b"X: x\rTransfer-Encoding: chunked", b"X: x\0Transfer-Encoding: chunked", b"Transfer-Encoding: \"chunked\"", b"Transfer-Encoding: cHuNkEd", b"Transfer-Encoding:chunked",
           b"Transfer-Encoding: chunked\0", b"Transfer-Encoding: \0chunked", b"Transfer_Encoding: chunked", b"TE: chunked", b" Transfer-Encoding: chunked", b"Transfer-Encoding: chunked;a=b",
           b"Transfer-Encoding: chunked,", b"Transfer-Encoding: ,chunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked\x85", b"Transfer-Encoding: chunked\x0c", b"Transfer-Encoding:")
LENGTHS = (b"%d", b"%d ", b" %d", b"+%d", b"0%d", b"0x%x", b"%d, %d", b"%d,%d", b"%d\r\nContent-Length: 0", b"%d\r\nContent-Length: %d", b"-%d", b"%d\0", b"%d\x0b", b"%d\r\n ", b"%d.0", b"%de0", b"'%d'", b"%d;a", b"00000000000000000000%d")
ENDINGS = (b"\r\n", b"\n", b"\r", b"\r\r\n", b"\n\r\n", b"\0\r\n", b" \r\n", b"\x0b\r\n")
SIZES = (b"4", b"04", b"0x4", b"+4", b"-4", b"4 ", b" 4", b"4;", b"4;a", b"4;a=b", b'4;a="b"', b'4;a="\r\n"', b"4;a=b\n", b"4\t", b"4\0", b"00000000000000004", b"10000000000000004", b"ffffffffffffffff", b"8000000000000000", b"4x", b"4;\x01", b"4" + b";a" * 300)


def head(line, name, *fields):
    return b"\r\n".join((line, b"Host: localhost", b"X-Request-Id: " + name) + fields) + b"\r\n\r\n"


def post(name, *fields, target=INFER, version=b"HTTP/1.1", method=b"POST"):
    return head(method + b" " + target + b" " + version, name, *fields)


def hidden(name):
    return post(name + b"-hidden", b"Content-Length: 4") + b"hide"


def length_field(random, n):
    template = random.choice(LENGTHS)
    return b"Content-Length: " + template % ((n,) * template.count(b"%"))


def cl_te(random, name):
    inner = hidden(name)
    body = b"0\r\n\r\n" + inner
    return post(name, *random.sample((length_field(random, len(body)), random.choice(CODINGS)), 2)) + body


def te_cl(random, name):
    inner = hidden(name)
    first = b"%x\r\n" % len(inner)
    body = first + inner + b"\r\n0\r\n\r\n"
    return post(name, *random.sample((length_field(random, len(first)), random.choice(CODINGS)), 2)) + body


def te_te(random, name):
    return post(name, random.choice(CODINGS), random.choice(CODINGS)) + b"4\r\nabcd\r\n0\r\n\r\n" + hidden(name)


def te_alone(random, name):
    return post(name, random.choice(CODINGS)) + b"4\r\nabcd\r\n0\r\n\r\n" + hidden(name)


def cl_cl(random, name):
    inner = hidden(name)
    return post(name, length_field(random, random.choice((0, 4, len(inner)))), length_field(random, random.choice((0, 4, len(inner))))) + b"abcd" + inner


def cl_list(random, name):
    return post(name, length_field(random, 4)) + b"abcd" + hidden(name)


def fold(random, name):
    lines = [b"Content-Length: 4", b"X-A: a", b"Transfer-Encoding: chunked"]
    at = random.randrange(3)
    lines[at] = random.choice((lines[at].replace(b": ", b":\r\n "), lines[at] + b"\r\n b", lines[at] + b"\r\n\tContent-Length: 40", lines[at] + b"\r\n "))
    return post(name, *lines[:random.choice((2, 3))]) + b"abcd" + hidden(name)


def strange_byte(random, name):
    """NUL, bare CR, bare LF and other control bytes, anywhere in a head."""
    whole = post(name, b"Content-Length: 4", b"X-A: a") + b"abcd"
    at = random.randrange(whole.index(b"\r\n\r\n") + 4)
    byte = random.choice((b"\0", b"\r", b"\n", b"\x01", b"\x0b", b"\x0c", b"\x7f", b"\x80", b"\x85", b"\xff", b" ", b"\t", b":", b"\r\n"))
    return whole[:at] + byte + whole[at + random.randint(0, 1):] + hidden(name)


def endings(random, name):
    lines = [b"POST " + INFER + b" HTTP/1.1", b"Host: localhost", b"X-Request-Id: " + name, b"Content-Length: 4", b""]
    return b"".join(line + (random.choice(ENDINGS) if random.random() < 0.4 else b"\r\n") for line in lines) + b"abcd" + hidden(name)


def absolute(random, name):
    authority = random.choice((b"localhost", b"localhost:80", b"evil.example", b"", b"me@localhost", b"localhost:x", b"[::1]", b"127.0.0.1"))
    return post(name, b"Content-Length: 4", target=random.choice((b"http://", b"HTTP://", b"https://", b"http:/", b"//")) + authority + random.choice((INFER, b"", b"?x"))) + b"abcd" + hidden(name)


def chunk_lines(random, name):
    size = random.choice(SIZES)
    end = random.choice((b"\r\n",) * 5 + ENDINGS)
    behind = random.choice((b"\r\n",) * 5 + ENDINGS + (b"",))
    last = random.choice((b"0\r\n\r\n",) * 3 + (b"0\n\n", b"0\r\n\n", b"00\r\n\r\n", b"0;a\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"0\r\nContent-Length: 9\r\n\r\n", b"0\r\n X\r\n\r\n", b"0\r\n\r", b"\r\n\r\n", b"-0\r\n\r\n"))
    return post(name, b"Transfer-Encoding: chunked") + size + end + b"abcd" + behind + last + hidden(name)


def huge_chunk_line(random, name):
    return post(name, b"Transfer-Encoding: chunked") + random.choice((b"4;" + b"a" * 5000, b"0" * 5000 + b"4", b"4;a=\"" + b"b" * 40000)) + b"\r\nabcd\r\n0\r\n\r\n" + hidden(name)


def expect(random, name):
    field = random.choice((b"Expect: 100-continue", b"Expect: 100-continue ", b"expect: 100-CONTINUE", b"Expect: x", b"Expect: 100-continue, x", b"Expect:", b"Expect : 100-continue"))
    return post(name, field, random.choice((b"Content-Length: 4", b"Content-Length: 400", b"Transfer-Encoding: chunked"))) + random.choice((b"abcd", b"", b"4\r\nabcd\r\n0\r\n\r\n")) + hidden(name)


def pipelined(random, name):
    parts = [random.choice((post(name, b"Content-Length: 4") + b"abcd", head(b"GET " + LIVE + b" HTTP/1.1", name), head(b"HEAD " + LIVE + b" HTTP/1.1", name), post(name, b"Content-Length: 0"),
                            post(name, b"Transfer-Encoding: chunked") + b"4\r\nabcd\r\n0\r\n\r\n")) for _ in range(random.randint(2, 12))]
    return b"".join(parts) + hidden(name)[:random.choice((1000, 10, 100))]


def early_end(random, name):
    whole = random.choice((post(name, b"Content-Length: 4") + b"abcd", post(name, b"Transfer-Encoding: chunked") + b"4\r\nabcd\r\n0\r\n\r\n", head(b"GET " + LIVE + b" HTTP/1.1", name)))
    return whole[:random.randrange(1, len(whole))]


def old(random, name):
    fields = random.choice(((b"Connection: keep-alive",), (), (b"Connection: close",), (b"Connection: keep-alive", b"Transfer-Encoding: chunked"), (b"Keep-Alive: 300", b"Connection: Keep-Alive, x")))
    return post(name, b"Content-Length: 4", *fields, version=random.choice((b"HTTP/1.0", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/1", b"http/1.1", b"HTTP/1.1 "))) + b"abcd" + hidden(name)


def upgrade(random, name):
    fields = random.choice(((b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"), (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
                            (b"Upgrade: TLS/1.0", b"Connection: Upgrade"), (b"Upgrade: x",)))
    return post(name, b"Content-Length: 4", *fields) + b"abcd" + hidden(name)


def bodies_of_others(random, name):
    """Methods that have no body, with one."""
    method = random.choice((b"GET", b"HEAD", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT", b"PUT", b"get", b"FOO"))
    inner = hidden(name)
    framing = random.choice(((b"Content-Length: %d" % len(inner), inner), (b"Transfer-Encoding: chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner)), (b"X-A: a", inner)))
    return post(name, framing[0], method=method, target=random.choice((LIVE, INFER, b"*", b"/nowhere"))) + framing[1]


def hop_by_hop(random, name):
    drop = random.choice((b"Content-Length", b"Host", b"X-Request-Id", b"Transfer-Encoding", b"close, Content-Length", b"Inference-Header-Content-Length", b"keep-alive, Content-Type"))
    return post(name, b"Content-Length: 4", b"Connection: " + drop, b"Inference-Header-Content-Length: 0") + b"abcd" + hidden(name)


def hosts(random, name):
    return post(name, b"Content-Length: 4", random.choice((b"Host: evil.example", b"host: localhost", b"Host : localhost", b"Host:", b" Host: x", b"X-Forwarded-Host: x"))) + b"abcd" + hidden(name)


def wide(random, name):
    """Heads near and above limits."""
    fields = random.choice((tuple(b"X-%d: a" % i for i in range(random.choice((50, 63, 80, 200)))), (b"X-A: " + b"a" * random.choice((1000, 7000, 15000, 40000)),), (b"X" * random.choice((300, 9000)) + b": a",)))
    return post(name, b"Content-Length: 4", *fields) + b"abcd" + hidden(name)


def targets(random, name):
    target = random.choice((b"/v2/health/live%0d%0aX-Request-Id:%20x", b"/v2/models/%00/infer", b"/%2e%2e/v2", b"/v2/./health/live", b"/v2/../v2", b"//v2/health/live", b"/v2/health/live#x", b"/v2/health/live\\", b"*", b"/\xff\xfe", b"/v2/models/%ff%fe/infer",
                            b"/" + b"a" * 3000, b"/v2/health/live?" + b"a" * 9000, b"/v2/health/live HTTP/1.1 x", b"/a b", b"/\x7f", b"/\x01", b""))
    return post(name, b"Content-Length: 4", target=target) + b"abcd" + hidden(name)


FAMILIES = (cl_te, te_cl, te_te, te_alone, cl_cl, cl_list, fold, strange_byte, endings, absolute, chunk_lines, huge_chunk_line, expect, pipelined, early_end, old, upgrade, bodies_of_others, hop_by_hop, hosts, wide, targets)


def mutated(random, data):
    """One change anywhere: a byte flipped, dropped, doubled, a line doubled or moved, a CR lost."""
    at, kind = random.randrange(len(data)), random.randrange(6)
    if kind == 0:
        return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1:]
    if kind == 1:
        return data[:at] + data[at + 1:]
    if kind == 2:
        return data[:at] + data[at:at + 1] + data[at:]
    lines = data.split(b"\r\n")
    at = random.randrange(len(lines))
    if kind == 3:
        lines.insert(at, lines[random.randrange(len(lines))])
    elif kind == 4:
        lines.insert(at, lines.pop(random.randrange(len(lines))))
    else:
        return b"\r\n".join(lines[:at + 1]) + b"\n" + b"\r\n".join(lines[at + 1:])
    return b"\r\n".join(lines)


def payload(random, name, number):
    """The families in turn; (family's name, bytes)."""
    family = FAMILIES[number % len(FAMILIES)]
    data = family(random, name)
    if random.random() < 0.33:
        data = mutated(random, data)
    return family.__name__, data
