"""What a client can do wrong, one line each: a name, the bytes, the status, the code, and whether the connection stays.

Row(name, bytes, status, code, then[, text])
  code  what the header Kernserve-Error must say; None: any
  text  what the sentence must hold: the words of Triton's that clients and scripts search for
  then  STAYS: a good request on the same connection must succeed; CLOSES: the daemon hangs up; EITHER: both are right
A new row needs nothing else. refusals.py walks through them; soak.py mixes them with good requests.
"""

import gzip
import json
import math
from collections import namedtuple

from daemon import chunked, request
from files import npy_head, safetensors_head

Row = namedtuple("Row", "name data status code then text", defaults=(None,))
STAYS, CLOSES, EITHER = "stays", "closes", "either"

SOFTMAX = "/v2/models/softmax/infer"
REDUCE = "/v2/models/reduce/infer"
MATMUL = "/v2/models/matmul/infer"
NORM = "/v2/models/norm/infer"
MAP = "/v2/models/map/infer"
TOPK = "/v2/models/topk/infer"
ATTENTION = "/v2/models/attention/infer"
SEARCH = "/v2/models/search/infer"
SCAN = "/v2/models/scan/infer"
HISTOGRAM = "/v2/models/histogram/infer"
QUANTIZE = "/v2/models/quantize/infer"
DEQUANTIZE = "/v2/models/dequantize/infer"
GATHER = "/v2/models/gather/infer"
LAYOUT = "/v2/models/layout/infer"
WINDOW = "/v2/models/window/infer"
MAX_BODY, MAX_JSON = 4 << 20, 1 << 20
OPTIONS = ("--max-body", "4M", "--max-json", "1M", "--pinned-bytes", "64M")


def raw(*lines, body=b""):
    """A request from its lines as they stand."""
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def post(target, body, *headers):
    return request("POST", target, headers, body.encode() if isinstance(body, str) else body)


def tensor(shape="[1,4]", data="[1,2,3,4]", datatype='"FP32"', name='"INPUT0"', more=""):
    """One input as JSON text; a member given as None is left out."""
    members = (("name", name), ("shape", shape), ("datatype", datatype), ("data", data))
    return "{%s%s}" % (",".join('"%s":%s' % m for m in members if m[1] is not None), more)


def infer(*inputs, to=SOFTMAX, more="", **members):
    """An inference request; members are those of its one input, more is text behind the inputs."""
    return post(to, '{"inputs":[%s]%s}' % (",".join(inputs or [tensor(**members)]), more))


def parameters(to=SOFTMAX, **values):
    return infer(to=to, more=',"parameters":' + json.dumps(values))


def binary(size, body, length=None, to=SOFTMAX, shape="[1,4]", more=""):
    """A request whose input lies behind the JSON; length overrides the header's value."""
    head = '{"inputs":[%s]%s}' % (tensor(shape, None, more=',"parameters":{"binary_data_size":%s}' % size), more)
    return post(to, head.encode() + body, ("Inference-Header-Content-Length", len(head) if length is None else length))


def ones(shape):
    return json.dumps([1] * math.prod(json.loads(shape)))


def pair(a, b, b_type='"FP32"', b_name='"INPUT1"', to=MATMUL, more=""):
    """Two inputs of ones, for matmul or map."""
    return infer(tensor(a, ones(a)), tensor(b, ones(b), b_type, b_name), to=to, more=more)


def classify(elements):
    """The one largest of many zeros."""
    head = '{"inputs":[%s]%s}' % (tensor("[%d]" % elements, None, more=',"parameters":{"binary_data_size":%d}' % (4 * elements)), CLASSES % 1)
    return post(SOFTMAX, head.encode() + bytes(4 * elements), ("Inference-Header-Content-Length", len(head)))
def biased(bias, more="", datatype='"FP32"', name='"INPUT2"'):
    """matmul of 2 x 2 ones with a third input."""
    four = ones("[2,2]")
    third = tensor(bias, ones(bias), datatype, name)
    return infer(tensor("[2,2]", four), tensor("[2,2]", four, name='"INPUT1"'), third, to=MATMUL, more=more)


def norm(second=None, name="INPUT1", datatype='"FP32"', shape="[2,4]", to=NORM, **given):
    """norm of ones, with another input of ones."""
    more = [tensor(second, ones(second), datatype, '"%s"' % name)] if second else []
    return infer(tensor(shape, ones(shape)), *more, to=to, more=',"parameters":' + json.dumps(given))


def topk(shape="[2,4]", to=TOPK, **given):
    """topk of ones."""
    return infer(tensor(shape, ones(shape)), to=to, more=',"parameters":' + json.dumps(given))


def product(a, b, more=""):
    """matmul of 2 x 2 ones in two datatypes."""
    return infer(tensor("[2,2]", ones("[2,2]"), a), tensor("[2,2]", ones("[2,2]"), b, '"INPUT1"'), to=MATMUL, more=more)


def scaled(scales=None, numbers=None, datatype='"FP32"', x='"FP32"', shape="[2,4]", to=QUANTIZE, **given):
    """quantize or dequantize of ones by scales."""
    more = [tensor(scales, json.dumps(numbers) if numbers else ones(scales), datatype, '"INPUT1"')] if scales else []
    return infer(tensor(shape, ones(shape), x), *more, to=to, more=',"parameters":' + json.dumps(given))


def search(matrix="[6,4]", queries="[2,4]", third=None, name="INPUT2", datatype='"FP32"', to=SEARCH, **given):
    """search among ones, with a bias or a mask of ones."""
    more = [tensor(third, ones(third).replace("1", "true") if datatype == '"BOOL"' else ones(third), datatype, '"%s"' % name)] if third else []
    return infer(tensor(queries, ones(queries)), tensor(matrix, ones(matrix), name='"INPUT1"'), *more, to=to, more=',"parameters":' + json.dumps(given))


def attention(key="[6,4]", value="[6,4]", query="[2,4]", fourth=None, name="INPUT3", datatype='"FP32"', numbers=None, **given):
    """attention among ones, with a mask of ones or with lengths."""
    more = [tensor(fourth, json.dumps(numbers) if numbers else ones(fourth), datatype, '"%s"' % name)] if fourth else []
    return infer(tensor(query, ones(query)), tensor(key, ones(key), name='"INPUT1"'), tensor(value, ones(value), name='"INPUT2"'), *more, to=ATTENTION,
                 more=',"parameters":' + json.dumps(given))


def gather(indices, offsets=None, weights=None, table="[5,2]", datatype='"INT32"', to=GATHER, **given):
    """gather from a table of ones."""
    inputs = [tensor("[%d]" % len(indices), json.dumps(indices), datatype, '"INPUT1"')]
    if offsets:
        inputs.append(tensor("[%d]" % len(offsets), json.dumps(offsets), '"INT64"', '"INPUT2"'))
    if weights:
        inputs.append(tensor("[%d]" % len(weights), json.dumps(weights), '"FP32"', '"INPUT3"'))
    return infer(tensor(table, ones(table)), *inputs, to=to, more=',"parameters":' + json.dumps(given))


def layout(op, *more, shape="[5,6]", to=LAYOUT, **given):
    """layout of ones."""
    inputs = [tensor(each, ones(each), datatype, '"INPUT%d"' % (i + 1)) for i, (each, datatype) in enumerate(more)]
    return infer(tensor(shape, ones(shape)), *inputs, to=to, more=',"parameters":' + json.dumps({"op": op, **given}))


def window(shape="[5,6]", to=WINDOW, datatype='"FP32"', **given):
    """window of ones."""
    return infer(tensor(shape, ones(shape), datatype), to=to, more=',"parameters":' + json.dumps(given))


def gather_raw(count, place, rows=1000, columns=64):
    """Indices as bytes, more than the daemon looks at before the launch; one at that place is out of bounds."""
    indices = [i % rows for i in range(count)]
    indices[place] = rows
    body = bytes(4 * rows * columns) + b"".join(i.to_bytes(8, "little", signed=True) for i in indices)
    return post(GATHER + "?shape=%d,%d&shape=%d&datatype=FP32&datatype=INT64" % (rows, columns, count), body)


def lengths(values, shape=None, datatype='"INT32"', x="[2,3]", to=SOFTMAX, **given):
    """softmax of ones that end at lengths."""
    ends = tensor(shape or "[%d]" % len(values), json.dumps(values), datatype, '"INPUT2"')
    return infer(tensor(x, ones(x)), ends, to=to, more=',"parameters":' + json.dumps(given))


def lengths_raw(rows, place, value):
    """Lengths as bytes, more than the daemon looks at before the launch."""
    ends = [i % 9 for i in range(rows)]
    ends[place] = value
    body = bytes(4 * rows * 8) + b"".join(i.to_bytes(8, "little", signed=True) for i in ends)
    return post(SOFTMAX + "?shape=%d,8&shape=%d&input=INPUT0&input=INPUT2&datatype=FP32&datatype=INT64" % (rows, rows), body)


def segments(offsets, op="sum", x="[2,5]", shape=None, datatype='"INT32"', to=REDUCE, **given):
    """Reductions of ones, cut at offsets."""
    cut = tensor(shape or "[%d]" % len(offsets), json.dumps(offsets), datatype, '"INPUT1"')
    return infer(tensor(x, ones(x)), cut, to=to, more=',"parameters":' + json.dumps({"op": op, **given}))


def segments_raw(count, place, offset, op="sum"):
    """Offsets as bytes, more than the daemon looks at before the launch; segments of two elements but for that one."""
    offsets = [2 * i for i in range(count + 1)]
    offsets[place] = offset
    body = bytes(8 * count) + b"".join(i.to_bytes(8, "little", signed=True) for i in offsets)
    return post(REDUCE + "?shape=%d&shape=%d&datatype=FP32&datatype=INT64&op=%s" % (2 * count, count + 1, op), body)


def deep(levels):
    return "[" * levels + "1" + "]" * levels


def post_chunks(body):
    return raw("POST " + SOFTMAX + " HTTP/1.1", "Host: localhost", "Transfer-Encoding: chunked", body=body)


# What stands where a chunked body begins.
BAD_CHUNKS = {
    "a sign": b"+4\r\nabcd\r\n0\r\n\r\n", "none": b"\r\nabcd\r\n0\r\n\r\n", "0x": b"0x4\r\nabcd\r\n0\r\n\r\n", "white space in front": b" 4\r\nabcd\r\n0\r\n\r\n",
    "white space behind": b"4 \r\nabcd\r\n0\r\n\r\n", "a bare LF": b"4\nabcd\r\n0\r\n\r\n", "a bare CR": b"4\rabcd\r\n0\r\n\r\n", "two CRs": b"4\r\r\nabcd\r\n0\r\n\r\n",
    "2^63": b"8000000000000000\r\nabcd", "2^64": b"10000000000000000\r\nabcd", "17 digits": b"00000000000000004\r\nabcd\r\n0\r\n\r\n", "NUL": b"4\0\r\nabcd\r\n0\r\n\r\n",
    "no CR LF behind the data": b"4\r\nabcd0\r\n\r\n", "a bare LF behind the data": b"4\r\nabcd\n0\r\n\r\n", "a bare CR behind the data": b"4\r\nabcd\r0\r\n\r\n",
    "an extension without a name": b"4;\r\nabcd\r\n0\r\n\r\n", "an extension's name of nothing": b"4;=b\r\nabcd\r\n0\r\n\r\n", "an extension's value of nothing": b"4;a=\r\nabcd\r\n0\r\n\r\n",
    "an extension with an open quote": b'4;a="b\r\nabcd\r\n0\r\n\r\n', "a control byte in an extension": b"4;a=\x01\r\nabcd\r\n0\r\n\r\n", "an extension in brackets": b"4;(a)\r\nabcd\r\n0\r\n\r\n",
    "bytes behind a quoted value": b'4;a="b"c\r\nabcd\r\n0\r\n\r\n', "white space behind an extension": b"4;a \r\nabcd\r\n0\r\n\r\n", "a line of 1,025 bytes": b"4;a=" + b"b" * 1021 + b"\r\nabcd\r\n0\r\n\r\n",
}

GOOD_BODY = b'{"inputs":[' + tensor().encode() + b"]}"
GZIP = ("Content-Encoding", "gzip")
CLASSES = ',"outputs":[{"name":"OUTPUT0","parameters":{"classification":%s}}]'
SKELETON = ',"parameters":{%s}' % ",".join('"%03d%s":"%s"' % (i, "k" * 600, "v" * 1000) for i in range(60))

HTTP_ROWS = [
    Row("bad request line", raw("GARBAGE"), 400, "request_line", CLOSES),
    Row("header line without a colon", raw("GET /v2 HTTP/1.1", "Host: localhost", "nocolon"), 400, "header", CLOSES),
    Row("HTTP/2 in the request line", raw("GET /v2 HTTP/2.0", "Host: localhost"), 505, "version", CLOSES),
    Row("Content-Length is a word", raw("POST " + SOFTMAX + " HTTP/1.1", "Host: localhost", "Content-Length: many"), 400, "framing", CLOSES),
    Row("Content-Length above 2^64", raw("POST " + SOFTMAX + " HTTP/1.1", "Host: localhost", "Content-Length: 99999999999999999999999"), 413, "body_size", CLOSES),
    Row("no Host", raw("GET /v2 HTTP/1.1"), 400, "host", CLOSES),
    Row("Transfer-Encoding and Content-Length", raw("POST " + SOFTMAX + " HTTP/1.1", "Host: localhost", "Transfer-Encoding: chunked", "Content-Length: 5", body=b"0\r\n\r\n"), 400, "framing", CLOSES),
    Row("two Content-Lengths", raw("POST " + SOFTMAX + " HTTP/1.1", "Host: localhost", "Content-Length: 2", "Content-Length: 2", body=b"{}"), 400, "framing", CLOSES),
    Row("two Hosts", raw("GET /v2 HTTP/1.1", "Host: localhost", "Host: localhost"), 400, "framing", CLOSES),
    Row("two Content-Types", raw("POST " + SOFTMAX + " HTTP/1.1", "Host: localhost", "Content-Type: a/b", "Content-Type: a/b", "Content-Length: 2", body=b"{}"), 400, "framing", CLOSES),
    Row("two header lengths", raw("POST " + SOFTMAX + " HTTP/1.1", "Host: localhost", "Inference-Header-Content-Length: 2", "Inference-Header-Content-Length: 2", "Content-Length: 2", body=b"{}"), 400, "framing", CLOSES),
    Row("Transfer-Encoding gzip, chunked", raw("POST " + SOFTMAX + " HTTP/1.1", "Host: localhost", "Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"), 400, "framing", CLOSES),
    Row("space before a header's colon", raw("GET /v2 HTTP/1.1", "Host: localhost", "X-Thing : 1"), 400, "header", CLOSES),
    Row("control byte in a header's value", raw("GET /v2 HTTP/1.1", "Host: localhost", "X-Thing: a\x01b"), 400, "header", CLOSES),
    Row("header folded over two lines", raw("GET /v2 HTTP/1.1", "Host: localhost", "X-Thing: a", " b"), 400, "header", CLOSES),
    Row("brackets in a header's name", raw("GET /v2 HTTP/1.1", "Host: localhost", "X[Thing]: 1"), 400, "header", CLOSES),
    Row("foreign Host", raw("GET /v2 HTTP/1.1", "Host: evil.example"), 421, "host", STAYS),
    Row("browser's Origin", raw("GET /v2 HTTP/1.1", "Host: localhost", "Origin: http://evil.example"), 403, "origin", STAYS),
    Row("unknown Expect", raw("POST " + SOFTMAX + " HTTP/1.1", "Host: localhost", "Expect: miracles", "Content-Length: 2"), 417, "expect", CLOSES),
    Row("Expect: 100-continue for an unknown model", raw("POST /v2/models/nope/infer HTTP/1.1", "Host: localhost", "Expect: 100-continue", "Content-Length: 9"), 404, "model", CLOSES),
    Row("request line of 3 KiB", raw("GET /v2?%s HTTP/1.1" % ("x" * 3000), "Host: localhost"), 414, "uri", CLOSES),
    Row("20 KiB of headers", raw("GET /v2 HTTP/1.1", "Host: localhost", *("X-%d: %s" % (i, "y" * 1000) for i in range(20))), 431, "headers", CLOSES),
    Row("65 header fields", raw("GET /v2 HTTP/1.1", "Host: localhost", *("X-%d: y" % i for i in range(65))), 431, "headers", CLOSES),
    Row("unknown path", request("GET", "/v3"), 404, "path", STAYS, "Not Found"),
    Row("trailing slash", request("GET", "/v2/models/softmax/"), 404, "path", STAYS),
    Row("dots in the path", request("GET", "/v2/../v2"), 404, "path", STAYS),
    Row("double slash in the path", request("GET", "//v2"), 404, "path", STAYS),
    Row("encoded slash in the path", request("GET", "/v2%2Fhealth%2Flive"), 404, "path", STAYS),
    Row("encoded NUL behind a good path", request("GET", "/v2/health/live%00x"), 404, "path", STAYS),
    Row("DELETE on the metadata", request("DELETE", "/v2"), 405, "method", STAYS),
    Row("GET on infer", request("GET", SOFTMAX), 405, "method", STAYS, "Method Not Allowed"),
    Row("POST on health, with a body", request("POST", "/v2/health/live", body=b"{}"), 405, "method", STAYS),
    Row("Content-Encoding br", post(SOFTMAX, GOOD_BODY, ("Content-Encoding", "br")), 415, "encoding", STAYS, "Unsupported compression type"),
    Row("gzip that is none", post(SOFTMAX, GOOD_BODY, GZIP), 400, "encoding", STAYS),
    Row("gzip cut short", post(SOFTMAX, gzip.compress(GOOD_BODY)[:-12], GZIP), 400, "encoding", STAYS),
    Row("bytes behind the gzip stream", post(SOFTMAX, gzip.compress(GOOD_BODY) + b"more", GZIP), 400, "encoding", STAYS),
    Row("gzip bomb", post(SOFTMAX, gzip.compress(b" " * (MAX_BODY * 8)), GZIP), 413, "body_size", STAYS, "exceeds the maximum allowed"),
    Row("body a little over the limit", post(SOFTMAX + "?shape=1,4&datatype=FP32", bytes(MAX_BODY + 1000)), 413, "body_size", STAYS, "exceeds the maximum allowed"),
    Row("body announced far over the limit", raw("POST " + SOFTMAX + " HTTP/1.1", "Host: localhost", "Content-Length: 9999999999"), 413, "body_size", CLOSES, "exceeds the maximum allowed"),
    Row("chunked body over the limit", chunked("POST", SOFTMAX + "?shape=1,4&datatype=FP32", (), [bytes(1 << 20)] * 6), 413, "body_size", EITHER, "exceeds the maximum allowed"),
    Row("70,000 one-byte chunks", chunked("POST", SOFTMAX, (), [b" "] * 70000), 400, "chunks", CLOSES),
    Row("the 65,537th chunk of one byte", chunked("POST", SOFTMAX, (), [b" "] * 65537), 400, "chunks", CLOSES),
    Row("request line of two words", raw("GET /v2", "Host: localhost"), 400, "request_line", CLOSES),
    Row("two spaces in the request line", raw("GET  /v2 HTTP/1.1", "Host: localhost"), 400, "request_line", CLOSES),
    Row("a method that is no token", raw("G@T /v2 HTTP/1.1", "Host: localhost"), 400, "request_line", CLOSES),
    Row("a tab in the request line", raw("GET\t/v2 HTTP/1.1", "Host: localhost"), 400, "request_line", CLOSES),
    Row("HTTP in lower case", raw("GET /v2 http/1.1", "Host: localhost"), 400, "request_line", CLOSES),
    Row("NUL in the target", raw("GET /v2\0/x HTTP/1.1", "Host: localhost"), 400, "request_line", CLOSES),
    Row("NUL in a value", raw("GET /v2 HTTP/1.1", "Host: localhost", "X-Thing: a\0b"), 400, "header", CLOSES),
    Row("field without a name", raw("GET /v2 HTTP/1.1", "Host: localhost", ": b"), 400, "header", CLOSES),
    Row("bare CR in a value", raw("GET /v2 HTTP/1.1", "Host: localhost", "X-Thing: a\rb"), 400, "header", CLOSES),
    Row("bare LF behind a field", raw("GET /v2 HTTP/1.1", "Host: localhost\nX-Thing: b"), 400, "header", CLOSES),
    Row("bare LF behind the request line", b"GET /v2 HTTP/1.1\nHost: localhost\r\n\r\n", 400, "request_line", CLOSES),
    Row("first field folded", raw("GET /v2 HTTP/1.1", " Host: localhost"), 400, "header", CLOSES),
    Row("absolute target with a user", request("GET", "http://me@localhost/v2"), 400, "request_line", CLOSES),
    Row("absolute target without a host", request("GET", "http:///v2"), 400, "request_line", CLOSES),
    Row("absolute target of another server", request("GET", "http://evil.example/v2"), 421, "host", STAYS),
    Row("absolute target of another scheme", request("GET", "ftp://localhost/v2"), 404, "path", STAYS),
    Row("GET *", request("GET", "*"), 400, "request_line", CLOSES),
    Row("a name that is no UTF-8", request("GET", "/v2/models/%ff%fe"), 404, "model", STAYS, "Request for unknown model: '\ufffd\ufffd' is not found"),
    Row("a path with a byte that URIs have not", raw("GET /v2/models/\xff HTTP/1.1", "Host: localhost"), 400, "request_line", CLOSES),
    Row("a path that is no UTF-8", raw("GET /v2/models/%ff HTTP/1.1", "Host: localhost"), 404, "model", STAYS, "\ufffd"),
    Row("a fragment in an absolute target", raw("GET http://localhost/v2#a HTTP/1.1", "Host: localhost"), 400, "request_line", CLOSES),
    Row("a byte that URIs have not in an authority", raw("GET http://local\xff/v2 HTTP/1.1", "Host: localhost"), 400, "request_line", CLOSES),
    Row("a byte that URIs have not in an absolute target, HTTP/1.0", raw("GET http://localhost/v2\xff HTTP/1.0"), 400, "request_line", CLOSES),
    Row("a fragment", raw("GET /v2#a HTTP/1.1", "Host: localhost"), 400, "request_line", CLOSES),
    Row("two names in one Host", raw("GET /v2 HTTP/1.1", "Host: localhost, b"), 400, "host", CLOSES),
    Row("an empty Host", raw("GET /v2 HTTP/1.1", "Host:"), 400, "host", CLOSES),
    Row("CONNECT, whatever its Host", raw("CONNECT a.example:443 HTTP/1.1", "Host: a.example:443"), 501, "unsupported", CLOSES),
    Row("a name cut amid a character", request("GET", "/v2/models/" + "x" * 63 + "%c3%a9"), 404, "model", STAYS),
    Row("POST without a length", raw("POST " + SOFTMAX + " HTTP/1.1", "Host: localhost"), 400, "json", STAYS),
]

# Malformed framing of a chunked body, which libmicrohttpd is never given.
CHUNK_ROWS = [
    Row("bad chunk size", raw("POST " + SOFTMAX + " HTTP/1.1", "Host: localhost", "Transfer-Encoding: chunked", body=b"zz\r\n{}\r\n0\r\n\r\n"), 400, "chunks", CLOSES),
    *(Row("chunk size: " + name, post_chunks(body), 400, "chunks", CLOSES) for name, body in BAD_CHUNKS.items()),
    Row("a chunk's line of 64 KiB", post_chunks(b"4;a=" + b"b" * 65536 + b"\r\nabcd\r\n0\r\n\r\n"), 400, "chunks", CLOSES),
    Row("trailer: a field without a name", post_chunks(b"0\r\n: b\r\n\r\n"), 400, "header", CLOSES),
    Row("trailer: a line without a colon", post_chunks(b"0\r\nab\r\n\r\n"), 400, "header", CLOSES),
    Row("trailer: folded", post_chunks(b"0\r\na: b\r\n c\r\n\r\n"), 400, "header", CLOSES),
    Row("trailer: a bare LF", post_chunks(b"0\r\na: b\n\r\n"), 400, "header", CLOSES),
    Row("trailer: 20 KiB", post_chunks(b"0\r\n" + b"".join(b"x-%d: %s\r\n" % (i, b"y" * 1000) for i in range(20)) + b"\r\n"), 431, "headers", CLOSES),
    Row("trailer: 65 fields", post_chunks(b"0\r\n" + b"a: b\r\n" * 65 + b"\r\n"), 431, "headers", CLOSES),
]

JSON_ROWS = [
    Row("empty body", post(SOFTMAX, ""), 400, "json", STAYS),
    Row("JSON cut short", post(SOFTMAX, GOOD_BODY[:-3]), 400, "json", STAYS, "failed to parse the request JSON buffer: "),
    Row("bytes behind the JSON", post(SOFTMAX, GOOD_BODY + b"x"), 400, "json", STAYS, "failed to parse the request JSON buffer: "),
    Row("byte order mark", post(SOFTMAX, b"\xef\xbb\xbf" + GOOD_BODY), 400, "json", STAYS),
    Row("comment", post(SOFTMAX, b"/* hi */" + GOOD_BODY), 400, "json", STAYS),
    Row("raw control byte in a string", infer(more=',"id":"a\nb"'), 400, "json", STAYS),
    Row("invalid UTF-8", post(SOFTMAX, b'{"id":"\xff\xfe","inputs":[]}'), 400, "json", STAYS),
    Row("lone surrogate", infer(more=r',"id":"\ud800"'), 400, "json", STAYS),
    Row("leading zero", infer(data="[01,2,3,4]"), 400, "json", STAYS),
    Row("number that ends in a point", infer(data="[1.,2,3,4]"), 400, "json", STAYS),
    Row("duplicate key", infer(more=',"id":"a","id":"b"'), 400, "json", STAYS),
    Row("NaN outside data", infer(shape="[NaN,4]"), 400, "json", STAYS),
    Row("NaN in integer data", infer(to=REDUCE, datatype='"INT32"', data="[NaN,2,3,4]"), 400, "json", STAYS),
    Row("17 levels outside data", infer(more=',"x":' + deep(17)), 400, "json_limit", STAYS),
    Row("101 levels inside data", infer(shape="[1]", data=deep(101)), 400, "json_limit", STAYS, "JSON nesting depth exceeds maximum allowed limit (100)"),
    Row("250,000 levels", infer(shape="[1]", data="[" * 250000), 400, "json_limit", STAYS),
    Row("string of 2 KiB", infer(more=',"id":"%s"' % ("i" * 2048)), 400, "json_limit", STAYS),
    Row("65 members", infer(more="".join(',"m%d":1' % i for i in range(65))), 400, "json_limit", STAYS),
    Row("JSON head of 96 KiB", infer(more=SKELETON), 413, "body_size", STAYS),
    Row("JSON over its limit", infer(shape="[400000]", data="[%s]" % ",".join(["0.5"] * 400000)), 413, "body_size", STAYS, "exceeds the maximum allowed input size of 1048576 bytes. Use --max-json to increase the limit."),
]

WORD_ROWS = [
    Row("no inputs", post(SOFTMAX, "{}"), 400, "field", STAYS, "Unable to parse 'inputs': "),
    Row("inputs is an object", post(SOFTMAX, '{"inputs":{}}'), 400, "field", STAYS),
    Row("Inputs in the wrong case", post(SOFTMAX, '{"Inputs":[]}'), 400, "field", STAYS),
    Row("id is a number", infer(more=',"id":7'), 400, "field", STAYS, "Unable to parse 'id': "),
    Row("input without a name", infer(name=None), 400, "field", STAYS, "Unable to parse 'name': "),
    Row("input without a datatype", infer(datatype=None), 400, "field", STAYS),
    Row("input without a shape", infer(shape=None), 400, "field", STAYS),
    Row("unknown model", infer(to="/v2/models/nope/infer"), 404, "model", STAYS, "Request for unknown model: 'nope' is not found"),
    Row("unknown version", infer(to="/v2/models/softmax/versions/2/infer"), 404, "model", STAYS, "Request for unknown model: 'softmax' version 2 is not found"),
    Row("metadata of an unknown model", request("GET", "/v2/models/nope"), 404, "model", STAYS, "Request for unknown model: 'nope' is not found"),
    Row("configuration of an unknown model", request("GET", "/v2/models/nope/config"), 404, "model", STAYS, "Request for unknown model: 'nope' is not found"),
    Row("readiness of an unknown model", request("GET", "/v2/models/nope/ready"), 404, "model", STAYS, "Request for unknown model: 'nope' is not found"),
    Row("version v1", request("GET", "/v2/models/softmax/versions/v1"), 404, "path", STAYS, "Not Found"),
    Row("version of 40 digits", request("GET", "/v2/models/softmax/versions/" + "9" * 40), 404, "model", STAYS),
    Row("statistics of an unknown model", request("GET", "/v2/models/nope/stats"), 404, "model", STAYS, "requested model 'nope' is not available"),
    Row("unknown input", infer(name='"INPUT7"'), 400, "name", STAYS, "unexpected inference input 'INPUT7' for model 'softmax'"),
    Row("input with a NUL in its name", infer(name=r'"INPUT0\u0000"'), 400, "name", STAYS),
    Row("the same input twice", infer(tensor(), tensor()), 400, "name", STAYS, "input 'INPUT0' already exists in request"),
    Row("an input is missing", infer(to=MATMUL), 400, "name", STAYS, "expected 2 inputs but got 1 inputs for model 'matmul'. Got input(s) ['INPUT0'], but missing required input(s) ['INPUT1']. Please provide all required input(s)."),
    Row("unknown output", infer(more=',"outputs":[{"name":"OUTPUT1"}]'), 400, "name", STAYS, "unexpected inference output 'OUTPUT1' for model 'softmax'"),
    Row("the same output twice", infer(more=',"outputs":[{"name":"OUTPUT0"},{"name":"OUTPUT0"}]'), 400, "name", STAYS, "output 'OUTPUT0' already exists in request"),
    Row("classification of FP16", infer(tensor("[2]", None, '"FP16"', more=',"parameters":{"binary_data_size":4}'), more=CLASSES % 1), 400, None, STAYS, "class result not available for output due to unsupported type 'FP16'"),
    Row("classification by a word", infer(more=CLASSES % '"all"'), 400, "field", STAYS),
    Row("classification by half a class", infer(more=CLASSES % 0.5), 400, "field", STAYS),
    Row("classification of too many", classify(1000001), 400, "shape", STAYS),
    Row("sequence_id is true", parameters(sequence_id=True), 400, "parameter", STAYS),
    Row("sequence_start is a number", parameters(sequence_start=1), 400, "parameter", STAYS),
    Row("priority below zero", parameters(priority=-1), 400, "parameter", STAYS),
    Row("priority is 1.0", parameters(priority=1.0), 400, "parameter", STAYS),
    Row("timeout is text", parameters(timeout="soon"), 400, "parameter", STAYS),
    Row("unknown parameter of type object", infer(more=',"parameters":{"x":{}}'), 400, "parameter", STAYS, "parameter 'x' has invalid type"),
    Row("unknown parameter is null", infer(more=',"parameters":{"x":null}'), 400, "parameter", STAYS),
    Row("negative dimension", infer(shape="[-1,4]"), 400, "shape", STAYS, "Unable to parse 'shape': "),
    Row("dimension 4.0", infer(shape="[1,4.0]"), 400, "shape", STAYS),
    Row("dimension 4e0", infer(shape="[1,4e0]"), 400, "shape", STAYS),
    Row("dimension as text", infer(shape='[1,"4"]'), 400, "shape", STAYS),
    Row("scalar for softmax", infer(shape="[]", data="[1]"), 400, "shape", STAYS),
    Row("rank 9", infer(shape="[1,1,1,1,1,1,1,1,4]"), 400, "shape", STAYS),
    Row("2^64 elements", infer(shape="[4294967296,4294967296]"), 400, "shape", STAYS, "causes total element count to exceed maximum size of"),
    Row("2^62 elements of 4 bytes", infer(shape="[2147483648,2147483648]"), 400, "shape", STAYS, "byte size overflow for input 'INPUT0'"),
    Row("matmul of a vector", pair("[4]", "[4,1]"), 400, "shape", STAYS),
    Row("matmul with inner sizes 3 and 2", pair("[2,3]", "[2,2]"), 400, "shape", STAYS),
    Row("matmul of two datatypes", pair("[2,2]", "[2,2]", '"FP64"'), 400, "datatype", STAYS),
    Row("matmul with a bias of 3 for 2 columns", biased("[3]"), 400, "shape", STAYS),
    Row("matmul with a bias of rank 2", biased("[1,2]"), 400, "shape", STAYS),
    Row("matmul with a bias of another datatype", biased("[2]", datatype='"FP64"'), 400, "datatype", STAYS),
    Row("matmul with an unknown activation", biased("[2]", ',"parameters":{"activation":"tanh"}'), 400, "parameter", STAYS),
    Row("matmul with an activation that is a number", biased("[2]", ',"parameters":{"activation":1}'), 400, "parameter", STAYS),
    Row("matmul with a residual of one row", biased("[1,2]", name='"INPUT5"'), 400, "shape", STAYS, "matmul: INPUT5 (residual) has shape [1,2], OUTPUT0 [2,2]; they must be equal"),
    Row("matmul with a residual of another datatype", biased("[2,2]", datatype='"FP64"', name='"INPUT5"'), 400, "datatype", STAYS),
    Row("matmul of INT8 with a residual", infer(tensor("[1,1]", "[1]", '"INT8"'), tensor("[1,1]", "[1]", '"INT8"', '"INPUT1"'), tensor("[1,1]", "[1]", name='"INPUT5"'), to=MATMUL), 400, "datatype",
        STAYS, "matmul: INPUT5 (residual) goes with operands of 16 bits and more, INPUT0 has datatype INT8"),
    Row("matmul of INT8 by FP8", product('"INT8"', '"FP8E4M3"'), 400, "datatype", STAYS),
    Row("matmul of two of E5M2", product('"FP8E5M2"', '"FP8E5M2"'), 400, "datatype", STAYS),
    Row("matmul of UINT8", product('"UINT8"', '"UINT8"'), 400, "datatype", STAYS),
    Row("matmul of FP32 to FP16", pair("[2,2]", "[2,2]", more=',"parameters":{"out_datatype":"FP16"}'), 400, "parameter", STAYS,
        "matmul: parameter 'out_datatype' is FP16, INPUT0 has datatype FP32, which gives FP32"),
    Row("matmul of INT8 with an activation", product('"INT8"', '"INT8"', ',"parameters":{"activation":"relu","out_datatype":"INT32"}'), 400, "parameter", STAYS,
        "matmul: an output of INT32 takes no bias, scales, alpha or activation"),
    Row("matmul of FP32 with scales", infer(tensor("[1,1]", "[1]"), tensor("[1,1]", "[1]", name='"INPUT1"'), tensor("[1]", "[1]", name='"INPUT3"'), to=MATMUL), 400, "datatype", STAYS,
        "matmul: INPUT3 (scale_a) goes with operands of 8 bits, INPUT0 has datatype FP32"),
    Row("matmul of INT8 by a scale of 0", infer(tensor("[1,1]", "[1]", '"INT8"'), tensor("[1,1]", "[1]", '"INT8"', '"INPUT1"'), tensor("[1]", "[0]", name='"INPUT4"'), to=MATMUL), 400,
        "range", STAYS, "matmul: INPUT4 (scale_b) has 0 at place 0: takes finite numbers of at least 2^-126"),
    Row("matmul of INT8 with too many scales", infer(tensor("[1,1]", "[1]", '"INT8"'), tensor("[1,1]", "[1]", '"INT8"', '"INPUT1"'), tensor("[2]", "[1,1]", name='"INPUT3"'), to=MATMUL), 400,
        "shape", STAYS, "matmul: INPUT3 (scale_a) has shape [2], takes [1] or [1]"),
    Row("matmul with an unknown precision", biased("[2]", ',"parameters":{"precision":"fp8"}'), 400, "parameter", STAYS),
    Row("norm of integers", infer(to=NORM, datatype='"INT32"'), 400, "datatype", STAYS),
    Row("norm with a weight of 3 for 4 columns", norm("[3]"), 400, "shape", STAYS, "norm: INPUT1 (weight) has shape [3], needs [4]"),
    Row("norm with a bias of rank 2", norm("[2,4]", "INPUT2"), 400, "shape", STAYS),
    Row("norm with a residual of another shape", norm("[1,4]", "INPUT3"), 400, "shape", STAYS, "norm: INPUT3 (residual) has shape [1,4], needs [2,4]"),
    Row("norm with a pre_bias of 2 for 4 columns", norm("[2]", "INPUT4"), 400, "shape", STAYS),
    Row("norm with a weight of another datatype", norm("[4]", datatype='"FP64"'), 400, "datatype", STAYS),
    Row("norm with a residual of another datatype", norm("[2,4]", "INPUT3", '"FP64"'), 400, "datatype", STAYS),
    Row("norm of an axis that is not the last", norm(axis=0), 400, "axis", STAYS, "norm: axis lists 1 axes from 0 on, needs the last ones of INPUT0's rank 2"),
    Row("norm of an axis outside", norm(axis=2), 400, "axis", STAYS),
    Row("norm of an axis twice", norm(axis="1,-1"), 400, "axis", STAYS),
    Row("norm of groups along an axis", norm(kind="group", axis=1), 400, "axis", STAYS),
    Row("norm of 3 groups of 4 channels", norm(kind="group", groups=3), 400, "parameter", STAYS, "norm: groups is 3, which does not divide the 4 channels"),
    Row("norm of groups of a vector", norm(kind="group", shape="[4]"), 400, "shape", STAYS),
    Row("norm of groups by layers", norm(groups=2), 400, "parameter", STAYS),
    Row("norm with an eps below zero", norm(eps=-1e-5), 400, "parameter", STAYS),
    Row("norm with an eps that is no number", norm(eps="small"), 400, "parameter", STAYS),
    Row("norm of an unknown kind", norm(kind="batch"), 400, "parameter", STAYS),
    Row("norm with an unknown activation", norm(activation="tanh"), 400, "parameter", STAYS),
    Row("norm to integers", norm(out_datatype="INT8"), 400, "parameter", STAYS),
    Row("norm_rms_w of another kind", norm("[4]", to="/v2/models/norm_rms_w/infer", kind="layer"), 400, "parameter", STAYS, "parameter 'kind' is fixed in model 'norm_rms_w' and cannot be 'layer'"),
    Row("norm of nothing", norm(shape="[2,0]"), 400, "empty", STAYS),
    Row("norm whose sum is not asked for", infer(to=NORM, more=',"outputs":[{"name":"OUTPUT1"}]'), 400, "name", STAYS, "unexpected inference output 'OUTPUT1' for model 'norm', which makes 1 with these parameters"),
    Row("topk of booleans", infer(to=TOPK, datatype='"BOOL"', data="[true]", shape="[1]"), 400, "datatype", STAYS),
    Row("topk of none", topk(k=0), 400, "parameter", STAYS, "topk: parameter 'k' is 0, takes 1 to 2048"),
    Row("topk of more than there may be", topk(k=2049), 400, "parameter", STAYS, "topk: parameter 'k' is 2049, takes 1 to 2048"),
    Row("topk of more than there are", topk(k=5), 400, "parameter", STAYS, "topk: parameter 'k' is 5, INPUT0 has 4 elements along axis -1"),
    Row("topk_10 of fewer than ten", topk(to="/v2/models/topk_10/infer"), 400, "parameter", STAYS, "topk: parameter 'k' is 10, INPUT0 has 4 elements along axis -1"),
    Row("topk_10 of another number", topk(to="/v2/models/topk_10/infer", k=2), 400, "parameter", STAYS, "parameter 'k' is fixed in model 'topk_10' and cannot be '2'"),
    Row("topk with a k that is no integer", topk(k=1.5), 400, "parameter", STAYS),
    Row("topk along an axis outside", topk(axis=2), 400, "axis", STAYS, "topk: axis 2 is outside [-2, 2) of INPUT0's rank"),
    Row("topk with indices of another datatype", topk(index_datatype="INT16"), 400, "parameter", STAYS),
    Row("topk of the largest or so", topk(largest="maybe"), 400, "parameter", STAYS),
    Row("topk of nothing", topk(shape="[2,0]"), 400, "empty", STAYS),
    Row("topk of rank 9", topk(shape="[1,1,1,1,1,1,1,1,1]"), 400, "shape", STAYS),
    Row("attention of two inputs", pair("[2,2]", "[2,2]", '"FP32"', to=ATTENTION), 400, "name", STAYS),
    Row("attention of vectors", attention(query="[4]"), 400, "shape", STAYS, "attention: INPUT0 has rank 1, takes 2 to 4"),
    Row("attention of other keys", attention("[6,5]"), 400, "shape", STAYS, "attention: INPUT0 has 4 elements in a head, INPUT1 has 5"),
    Row("attention of more values than keys", attention(value="[7,4]"), 400, "shape", STAYS, "attention: INPUT1 has 6 keys, INPUT2 has 7"),
    Row("attention of heads that do not divide", attention("[2,6,4]", "[2,6,4]", "[3,2,4]"), 400, "shape", STAYS, "attention: INPUT0 has 3 heads, which is no multiple of INPUT1's 2"),
    Row("attention of long heads", attention("[1,257]", "[1,4]", "[1,257]"), 400, "shape", STAYS, "attention: INPUT0 has heads of 257 elements, takes 1 to 256"),
    Row("attention with a mask that does not broadcast", attention(fourth="[3,6]"), 400, "shape", STAYS, "attention: INPUT3 (mask) has shape [3,6], which does not broadcast to the scores' [2,6]"),
    Row("attention with a mask of FP64", attention(fourth="[6]", datatype='"FP64"'), 400, "datatype", STAYS),
    Row("attention with too many lengths", attention(fourth="[2]", name="INPUT4", datatype='"INT32"'), 400, "shape", STAYS, "attention: INPUT4 (lengths) has 2 values, INPUT0 has 1 batches"),
    Row("attention with a length beyond the keys", attention(fourth="[1]", name="INPUT4", datatype='"INT32"', numbers=[7]), 400, "range", STAYS,
        "attention: INPUT4 (lengths) has 7 at place 0: it is outside [0, 6], INPUT1's keys"),
    Row("attention with a window and no causal", attention(window=2), 400, "parameter", STAYS, "attention: parameter 'window' is 2, which takes a causal"),
    Row("attention with a soft cap below 0", attention(softcap=-1), 400, "parameter", STAYS),
    Row("attention with a scale beyond FP32", attention(scale=1e39), 400, "parameter", STAYS),
    Row("attention with an unknown causal", attention(causal="left"), 400, "parameter", STAYS),
    Row("search of one input", infer(to=SEARCH), 400, "name", STAYS),
    Row("search in FP64", pair("[2,2]", "[2,2]", '"FP64"', to=SEARCH), 400, "datatype", STAYS),
    Row("search of a vector", search(queries="[4]"), 400, "shape", STAYS, "search: INPUT0 has rank 1, needs 2"),
    Row("search of other columns", search("[6,5]"), 400, "shape", STAYS, "search: INPUT0 has 4 columns, INPUT1 has 5"),
    Row("search among nothing", search("[0,4]"), 400, "empty", STAYS, "search: among nothing: INPUT1 has 0 rows of 4"),
    Row("search of none", search(k=0), 400, "parameter", STAYS, "search: parameter 'k' is 0, takes 1 to 1024"),
    Row("search of more than there may be", search(k=1025), 400, "parameter", STAYS, "search: parameter 'k' is 1025, takes 1 to 1024"),
    Row("search of more than there are", search(k=7), 400, "parameter", STAYS, "search: parameter 'k' is 7, INPUT1 has 6 rows"),
    Row("search_10 among fewer than ten", search(to="/v2/models/search_10/infer"), 400, "parameter", STAYS, "search: parameter 'k' is 10, INPUT1 has 6 rows"),
    Row("search by an unknown metric", search(metric="angle"), 400, "parameter", STAYS),
    Row("search with a bias of another length", search(third="[5]"), 400, "shape", STAYS, "search: INPUT2 has 5 values, INPUT1 has 6 rows"),
    Row("search with a bias of rank 2", search(third="[6,1]"), 400, "shape", STAYS, "search: INPUT2 has rank 2, needs 1"),
    Row("search with a bias of FP64", search(third="[6]", datatype='"FP64"'), 400, "datatype", STAYS),
    Row("search with a mask of FP32", search(third="[6]", name="INPUT3"), 400, "datatype", STAYS),
    Row("search with a mask of another length", search(third="[7]", name="INPUT3", datatype='"BOOL"'), 400, "shape", STAYS, "search: INPUT3 has 7 values, INPUT1 has 6 rows"),
    Row("scan of booleans", infer(to=SCAN, datatype='"BOOL"', data="[true]", shape="[1]"), 400, "datatype", STAYS),
    Row("scan along an axis outside", parameters(SCAN, axis=2), 400, "axis", STAYS, "scan: axis 2 is outside [-2, 2) of INPUT0's rank"),
    Row("scan by an unknown operation", parameters(SCAN, op="mean"), 400, "parameter", STAYS),
    Row("scan_sum by another operation", parameters("/v2/models/scan_sum/infer", op="max"), 400, "parameter", STAYS, "parameter 'op' is fixed in model 'scan_sum' and cannot be 'max'"),
    Row("scan that is exclusive or so", parameters(SCAN, exclusive="maybe"), 400, "parameter", STAYS),
    Row("histogram of booleans", infer(to=HISTOGRAM, datatype='"BOOL"', data="[true]", shape="[1]"), 400, "datatype", STAYS),
    Row("histogram of floats without a range", infer(to=HISTOGRAM), 400, "parameter", STAYS, "histogram: INPUT0 has datatype FP32, which needs parameters 'min' and 'max'"),
    Row("histogram with one end of a range", parameters(HISTOGRAM, min=0), 400, "parameter", STAYS, "histogram: parameter 'min' is given without 'max'"),
    Row("histogram of an empty range", parameters(HISTOGRAM, min=1, max=1), 400, "parameter", STAYS, "histogram: parameter 'min' is 1, not below 'max', which is 1"),
    Row("histogram of a range too wide", parameters(HISTOGRAM, min=-1.7e308, max=1.7e308), 400, "parameter", STAYS),
    Row("histogram of a range too narrow", parameters(HISTOGRAM, min=0, max=1e-320), 400, "parameter", STAYS),
    Row("histogram with no bins", parameters(HISTOGRAM, min=0, max=1, bins=0), 400, "parameter", STAYS, "histogram: parameter 'bins' is 0, takes 1 to 1048576"),
    Row("histogram with too many bins", parameters(HISTOGRAM, min=0, max=1, bins=1048577), 400, "parameter", STAYS),
    Row("histogram along an axis outside", parameters(HISTOGRAM, min=0, max=1, axis=2), 400, "axis", STAYS, "histogram: axis 2 is outside [-2, 2) of INPUT0's rank"),
    Row("histogram along a leading axis", parameters(HISTOGRAM, min=0, max=1, axis=0), 400, "axis", STAYS, "histogram: axis does not list the last axes of INPUT0, whose rank is 2"),
    Row("histogram_256 with other bins", parameters("/v2/models/histogram_256/infer", bins=10), 400, "parameter", STAYS),
    Row("histogram of rank 9", infer(to=HISTOGRAM, shape="[1,1,1,1,1,1,1,1,1]", data="[1]"), 400, "shape", STAYS),
    Row("scan of rank 9", infer(to=SCAN, shape="[1,1,1,1,1,1,1,1,1]", data="[1]"), 400, "shape", STAYS),
    Row("quantize of integers", scaled(x='"INT8"'), 400, "datatype", STAYS),
    Row("quantize to integers of 16 bits", scaled(out_datatype="INT16"), 400, "parameter", STAYS),
    Row("quantize by blocks", scaled(scale_per="block"), 400, "parameter", STAYS),
    Row("quantize with a scale in FP16", scaled("[1]", datatype='"FP16"'), 400, "datatype", STAYS),
    Row("quantize with too many scales", scaled("[2]"), 400, "shape", STAYS, "quantize: INPUT1 (scale) has shape [2], takes [1] with scale_per tensor"),
    Row("quantize with scales of other rows", scaled("[3]", scale_per="row"), 400, "shape", STAYS, "quantize: INPUT1 (scale) has shape [3], takes [2] with scale_per row"),
    Row("quantize by a scale of 0", scaled("[1]", [0]), 400, "range", STAYS, "quantize: INPUT1 (scale) has 0 at place 0: takes finite numbers of at least 2^-126"),
    Row("quantize by a scale below 0", scaled("[4]", [1, 1, -0.5, -1], scale_per="column"), 400, "range", STAYS, "quantize: INPUT1 (scale) has -0.5 at place 2: takes finite numbers of at least 2^-126"),
    Row("quantize_int8 to FP8", scaled(to="/v2/models/quantize_int8/infer", out_datatype="FP8E4M3"), 400, "parameter", STAYS),
    Row("dequantize without scales", scaled(x='"INT8"', to=DEQUANTIZE), 400, "name", STAYS),
    Row("dequantize of FP32", scaled("[1]", to=DEQUANTIZE), 400, "datatype", STAYS),
    Row("dequantize with scales of other columns", scaled("[2]", x='"INT8"', to=DEQUANTIZE, scale_per="column"), 400, "shape", STAYS,
        "dequantize: INPUT1 (scale) has shape [2], takes [4] with scale_per column"),
    Row("dequantize by a scale of 0", scaled("[2]", [1, 0], x='"INT8"', to=DEQUANTIZE, scale_per="row"), 400, "range", STAYS,
        "dequantize: INPUT1 (scale) has 0 at place 1: takes finite numbers of at least 2^-126"),
    Row("dequantize of FP8 beyond its largest", infer(tensor("[1]", "[449]", '"FP8E4M3"'), tensor("[1]", "[1]", name='"INPUT1"'), to=DEQUANTIZE), 400, "range", STAYS),
    Row("gather by floats", gather([0, 1], datatype='"FP32"'), 400, "datatype", STAYS, "inference input 'INPUT1' data-type is 'FP32', but model 'gather' expects 'INT32,INT64'"),
    Row("gather along an axis outside", gather([0], axis=2), 400, "axis", STAYS),
    Row("gather of an unknown kind", gather([0], kind="rows"), 400, "parameter", STAYS),
    Row("gather in an unknown mode", gather([0], mode="raise"), 400, "parameter", STAYS),
    Row("gather of elements of another rank", gather([0], kind="elements"), 400, "shape", STAYS, "gather: INPUT1 (indices) has shape [1], INPUT0 [5,2]"),
    Row("gather without indices", infer(tensor("[5,2]", ones("[5,2]")), to=GATHER), 400, "name", STAYS),
    Row("gather beyond the last slice", gather([0, 4, 5]), 400, "range", STAYS, "gather: INPUT1 (indices) has 5 at place 2: it is outside [-5, 5) of INPUT0's axis 0"),
    Row("gather beyond the first slice", gather([-6, 0]), 400, "range", STAYS, "has -6 at place 0"),
    Row("gather of an index of 2^63 - 1", gather([0, 2 ** 63 - 1], datatype='"INT64"'), 400, "range", STAYS, "has 9223372036854775807 at place 1"),
    Row("gather from a table of nothing", gather([0], table="[0,2]"), 400, "range", STAYS, "outside [0, 0)"),
    Row("gather from a table of nothing, clipped", gather([0], table="[0,2]", mode="clip"), 400, "range", STAYS),
    Row("gather with a bad first one of 5000 indices", gather_raw(5000, 0), 400, "range", STAYS, "has 1000 at place 0"),
    Row("gather with a bad middle one of 5000 indices", gather_raw(5000, 2500), 400, "range", STAYS, "has 1000 at place 2500"),
    Row("gather with a bad last one of 5000 indices", gather_raw(5000, 4999), 400, "range", STAYS, "has 1000 at place 4999"),
    Row("gather with an op without bags", gather([0], op="max"), 400, "name", STAYS, "gather: op 'max' without INPUT2"),
    Row("gather with weights without bags", gather([0], weights=[1.0]), 400, "name", STAYS),
    Row("gather of bags with an unknown op", gather([0], [0, 1], op="min"), 400, "parameter", STAYS),
    Row("gather of bags along axis 1", gather([0], [0, 1], axis=1), 400, "axis", STAYS),
    Row("gather of bags of elements", gather([0], [0, 1], kind="elements"), 400, "parameter", STAYS),
    Row("gather of bags with weights for 2 of 3 indices", gather([0, 1, 2], [0, 3], [1.0, 1.0]), 400, "shape", STAYS),
    Row("gather of bags that begin at 1", gather([0, 1, 2], [1, 3]), 400, "range", STAYS, "gather: INPUT2 (offsets) has 1 at place 0"),
    Row("gather of bags that fall", gather([0, 1, 2], [0, 2, 1, 3]), 400, "range", STAYS, "has 1 at place 2"),
    Row("gather of bags that end too early", gather([0, 1, 2], [0, 2]), 400, "range", STAYS, "end at place 1 with 3, the number of indices"),
    Row("gather of bags that end too late", gather([0, 1, 2], [0, 2, 4]), 400, "range", STAYS),
    Row("layout by an unknown operation", layout("rotate"), 400, "parameter", STAYS),
    Row("transpose along an axis twice", layout("transpose", axes=[1, 1]), 400, "axis", STAYS, "layout: 'axes' names axis 1 twice"),
    Row("transpose along an axis outside", layout("transpose", axes=[0, 2]), 400, "axis", STAYS, "'axes' holds 2, which is outside [-2, 2)"),
    Row("transpose of fewer axes", layout("transpose", axes=[0]), 400, "axis", STAYS, "'axes' has 1 numbers, INPUT0 has rank 2"),
    Row("transpose of a fraction of an axis", layout("transpose", axes=[0, 0.5]), 400, "axis", STAYS, "must be a list of at most 8 integers"),
    Row("transpose of a list of texts", layout("transpose", axes=["0", "1"]), 400, "axis", STAYS, "parameter 'axes' has invalid type"),
    Row("transpose of nine axes", layout("transpose", axes=list(range(9))), 400, "axis", STAYS, "got '0,1,2,3,4,5,6,7,8'"),
    Row("transpose of a thousand axes", layout("transpose", axes=[0] * 1000), 400, "axis", STAYS),
    Row("transpose of an axis of 2^64", layout("transpose", axes=[2 ** 64, 0]), 400, "axis", STAYS),
    Row("transpose with starts", layout("transpose", starts=[0, 0]), 400, "parameter", STAYS, "op 'transpose' does not take parameter 'starts'"),
    Row("slice from outside", layout("slice", starts=[6, 0]), 400, "range", STAYS, "'starts' has 6 for axis 0: it is outside [-5, 5]"),
    Row("slice of more than there is", layout("slice", sizes=[5, 7]), 400, "range", STAYS, "7 elements from 0 by steps of 1 leave axis 1, which has 6"),
    Row("slice by sizes and ends", layout("slice", sizes=[1, 1], ends=[1, 1]), 400, "parameter", STAYS, "takes 'sizes' or 'ends', and not both"),
    Row("slice to outside", layout("slice", axis=1, ends=[7]), 400, "range", STAYS, "'ends' has 7 for axis 1: it is outside [-6, 6]"),
    Row("slice of an axis outside", layout("slice", axis=2, ends=[1]), 400, "axis", STAYS, "layout: axis 2 is outside [-2, 2)"),
    Row("slice by steps of 0", layout("slice", steps=[0, 1]), 400, "parameter", STAYS, "'steps' has 0 for axis 0"),
    Row("slice of two inputs", layout("slice", ("[5,6]", '"FP32"')), 400, "name", STAYS, "takes INPUT0 alone, INPUT1 is for 'concat'"),
    Row("pad by fewer than 0", layout("pad", before=[-1, 0]), 400, "parameter", STAYS, "'before' has -1 for axis 0"),
    Row("pad by reflection of too few", layout("pad", after=[0, 6], mode="reflect"), 400, "shape", STAYS, "6 elements reflect 5 at most"),
    Row("pad of nothing by its edge", layout("pad", shape="[0,6]", before=[1, 0], mode="edge"), 400, "empty", STAYS),
    Row("pad by a value too large", layout("pad", value=1e39), 400, "parameter", STAYS, "which FP32 does not hold"),
    Row("pad by an unknown mode", layout("pad", mode="wrap_around"), 400, "parameter", STAYS),
    Row("pad to more than memory", layout("pad", after=[0, 2 ** 40]), 413, "work", STAYS),
    Row("concat of one input", layout("concat"), 400, "name", STAYS, "op 'concat' takes 2 to 8 inputs"),
    Row("concat of two datatypes", layout("concat", ("[5,6]", '"FP64"')), 400, "datatype", STAYS, "INPUT1 has datatype FP64, INPUT0 FP32"),
    Row("concat of shapes apart", layout("concat", ("[5,6]", '"FP32"'), ("[4,7]", '"FP32"')), 400, "shape", STAYS, "INPUT2 has shape [4,7], INPUT0 [5,6]"),
    Row("concat along an axis outside", layout("concat", ("[5,6]", '"FP32"'), axis=2), 400, "axis", STAYS),
    Row("split into unequal parts", layout("split"), 400, "shape", STAYS, "axis 0 has 5 elements, which are no 2 equal parts"),
    Row("split into no parts", layout("split", parts=0), 400, "parameter", STAYS, "'parts' is 0"),
    Row("a part behind the last one", layout("split", axis=1, part=2), 400, "range", STAYS, "'part' is 2: it is outside [-2, 2)"),
    Row("split along an axis outside", layout("split", axis=2), 400, "axis", STAYS),
    Row("expand to what does not broadcast", layout("expand", new_shape=[5, 12]), 400, "shape", STAYS, "it does not broadcast"),
    Row("expand without a shape", layout("expand"), 400, "parameter", STAYS, "op 'expand' needs parameter 'new_shape'"),
    Row("tile by fewer than 0", layout("tile", repeats=[1, -1]), 400, "parameter", STAYS, "'repeats' has -1 for axis 1"),
    Row("tile beyond all counts", layout("tile", repeats=[1, 2 ** 62]), 400, "shape", STAYS, "axis 1 becomes longer than"),
    Row("tile beyond memory", layout("tile", repeats=[2 ** 30, 1]), 413, "work", STAYS),
    Row("reshape without a shape", layout("reshape"), 400, "parameter", STAYS, "op 'reshape' needs parameter 'new_shape'"),
    Row("reshape to another count", layout("reshape", new_shape=[31]), 400, "shape", STAYS, "[5,6], 'new_shape' is [31]: the number of elements differs"),
    Row("reshape with two rests", layout("reshape", new_shape=[-1, -1]), 400, "shape", STAYS, "one dimension alone can take the rest"),
    Row("window without a size", window(), 400, "parameter", STAYS, "window: parameter 'size' is needed"),
    Row("window of three axes", window("[2,2,2,2]", size=[1, 1, 1]), 400, "parameter", STAYS, "'size' has 3 numbers, takes 1 or 2"),
    Row("window of no elements", window(size=[0]), 400, "parameter", STAYS, "'size' has 0 for spatial axis 0: it takes 1 and more"),
    Row("window beyond the input", window(size=[6]), 400, "shape", STAYS, "a window takes 6 elements of spatial axis 0, which has 5, with padding 5"),
    Row("window beyond the padded input", window(size=[4], dilation=[3], pad=[2, 2]), 400, "shape", STAYS, "takes 10 elements of spatial axis 0, which has 5, with padding 9"),
    Row("window of a vector", window("[5]", size=[2]), 400, "shape", STAYS, "INPUT0 has rank 1, windows of 1 axes take 2 to 8"),
    Row("window of an empty axis", window("[0,6]", size=[1], auto_pad="same_upper"), 400, "shape", STAYS),
    Row("window by a stride of 0", window(size=[2], stride=[0]), 400, "parameter", STAYS, "'stride' has 0 for spatial axis 0"),
    Row("window by a stride of a half", window(size=[2], stride=[0.5]), 400, "parameter", STAYS),
    Row("window by a dilation of -1", window(size=[2], dilation=[-1]), 400, "parameter", STAYS, "'dilation' has -1"),
    Row("window by strides of three axes", window("[5,6,7]", size=[2, 2], stride=[1, 1, 1]), 400, "parameter", STAYS, "'stride' has 3 numbers, 'size' has 2"),
    Row("window padded by -1", window(size=[2], pad=[-1]), 400, "parameter", STAYS, "'pad' has -1: it takes 0 and more"),
    Row("window padded in two ways", window(size=[2], pad=[1], auto_pad="same_upper"), 400, "parameter", STAYS, "'pad' and 'auto_pad' are given"),
    Row("window padded by three numbers", window(size=[2], pad=[1, 1, 1]), 400, "parameter", STAYS, "'pad' has 3 numbers, takes 1 or 2"),
    Row("window padded to more than memory", window(size=[2], pad=[2 ** 40]), 413, "work", STAYS),
    Row("window padded beyond numbers", window(size=[2], pad=[2 ** 62]), 400, "shape", STAYS, "becomes longer than"),
    Row("window padded by a value too large", window(size=[2], pad=[1], value=256, datatype='"UINT8"'), 400, "parameter", STAYS, "'value' is 256, which UINT8 does not hold"),
    Row("window in an unknown layout", window(size=[2], layout="chwn"), 400, "parameter", STAYS),
    Row("window_3 by another size", window(to="/v2/models/window_3/infer", size=[5]), 400, "parameter", STAYS),
    Row("layout_transpose by another operation", layout("slice", to="/v2/models/layout_transpose/infer"), 400, "parameter", STAYS),
    Row("gather_wrap of another mode", gather([0], to="/v2/models/gather_wrap/infer", mode="clip"), 400, "parameter", STAYS),
    Row("matmul whose output is 1.6 GB", post(MATMUL + "?shape=20000,1&shape=1,20000&datatype=FP32", bytes(160000)), 413, "work", STAYS),
    Row("map of shapes that do not broadcast", pair("[2,3]", "[2,2]", to=MAP, more=',"parameters":{"op":"add"}'), 400, "shape", STAYS, "INPUT0 has shape [2,3] and INPUT1 [2,2], which do not broadcast"),
    Row("map of two datatypes", pair("[2,2]", "[2,2]", '"FP64"', to=MAP, more=',"parameters":{"op":"add"}'), 400, "datatype", STAYS, "they must be equal"),
    Row("map where without a third input", pair("[2,2]", "[2,2]", to=MAP, more=',"parameters":{"op":"where"}'), 400, "name", STAYS, "where takes 3 inputs, INPUT2 is missing"),
    Row("map exp of two inputs", pair("[2,2]", "[2,2]", to=MAP, more=',"parameters":{"op":"exp"}'), 400, "name", STAYS, "exp takes 1 input"),
    Row("map axpy of one input", parameters(MAP, op="axpy", a=2), 400, "name", STAYS, "INPUT1 is missing"),
    Row("map where whose condition is FP32", infer(*(tensor(name='"INPUT%d"' % i) for i in range(3)), to=MAP, more=',"parameters":{"op":"where"}'), 400, "datatype", STAYS, "where takes BOOL"),
    Row("map with an unknown function", parameters(MAP, op="hypot"), 400, "parameter", STAYS),
    Row("map with an unknown out_datatype", parameters(MAP, op="exp", out_datatype="FP80"), 400, "parameter", STAYS),
    Row("map clamp from 2 to 1", parameters(MAP, op="clamp", a=2, b=1), 400, "parameter", STAYS, "a must not be above b"),
    Row("map exp with a", parameters(MAP, op="exp", a=2), 400, "parameter", STAYS, "exp does not take it"),
    Row("map adds 1.5 to integers", infer(to=MAP, datatype='"INT32"', more=',"parameters":{"op":"add","a":1.5}'), 400, "parameter", STAYS, "a whole number"),
    Row("map multiplies INT8 by 200", infer(to=MAP, datatype='"INT8"', more=',"parameters":{"op":"mul","a":200}'), 400, "parameter", STAYS, "-128 to 127"),
    Row("map and of floats", parameters(MAP, op="and", a=1), 400, "datatype", STAYS, "integers or BOOL"),
    Row("map abs of BOOL", infer(to=MAP, datatype='"BOOL"', data="[true,false,true,true]", more=',"parameters":{"op":"abs"}'), 400, "datatype", STAYS, "abs takes numbers"),
    Row("map of BYTES", infer(to=MAP, datatype='"BYTES"', data='["a","b","c","d"]'), 400, "datatype", STAYS),
    Row("map of rank 9", infer(to=MAP, shape="[1,1,1,1,1,1,1,1,4]"), 400, "shape", STAYS),
    Row("mean of nothing", infer(to=REDUCE, shape="[2,0]", data="[]", more=',"parameters":{"op":"mean"}'), 400, "empty", STAYS),
    Row("unknown datatype", infer(datatype='"FP8"'), 400, "datatype", STAYS, "inference input 'INPUT0' data-type is 'FP8', but model 'softmax' expects 'FP32'"),
    Row("datatype in lower case", infer(datatype='"fp32"'), 400, "datatype", STAYS),
    Row("BYTES", infer(datatype='"BYTES"', data='["a","b","c","d"]'), 400, "datatype", STAYS),
    Row("softmax of integers", infer(datatype='"INT32"'), 400, "datatype", STAYS),
    Row("FP16 as JSON", infer(datatype='"FP16"'), 400, "datatype", STAYS, "receiving FP16 data via JSON is not supported. Please use the binary data format for input"),
    Row("causal of rank 1", infer(shape="[4]", more=',"parameters":{"causal":"top_left"}'), 400, "axis", STAYS, "softmax: causal takes the last axis"),
    Row("causal along another axis", parameters(causal="bottom_right", axis=0), 400, "axis", STAYS, "softmax: causal takes the last axis"),
    Row("an unknown causal", parameters(causal="upper"), 400, "parameter", STAYS, "must be one of none, top_left, bottom_right"),
    Row("masked rows of another kind", parameters(masked_rows="one"), 400, "parameter", STAYS),
    Row("softmax with an unknown out_datatype", parameters(out_datatype="INT8"), 400, "parameter", STAYS),
    Row("a mask that does not broadcast", pair("[2,2]", "[2,3]", to="/v2/models/softmax/infer"), 400, "shape", STAYS, "softmax: INPUT1 (mask) has shape [2,3], which does not broadcast to INPUT0's [2,2]"),
    Row("a mask of integers", pair("[2,2]", "[2,2]", '"INT32"', to="/v2/models/softmax/infer"), 400, "datatype", STAYS, "inference input 'INPUT1' data-type is 'INT32'"),
    Row("a mask of another datatype", pair("[2,2]", "[2,2]", '"FP64"', to="/v2/models/softmax/infer"), 400, "datatype", STAYS, "softmax: INPUT1 has datatype FP64, takes BOOL, FP32 or INPUT0's, FP32"),
    Row("lengths of floats", lengths([1, 2], datatype='"FP32"'), 400, "datatype", STAYS, "inference input 'INPUT2' data-type is 'FP32', but model 'softmax' expects 'INT32,INT64'"),
    Row("lengths of other rows", lengths([1, 2, 3]), 400, "shape", STAYS, "softmax: INPUT2 (lengths) has shape [3], takes first extents of INPUT0's [2,3] in front of axis 1"),
    Row("lengths of the axis' rank", lengths([1, 2, 3, 1, 2, 3], "[2,3]"), 400, "shape", STAYS, "INPUT2 (lengths) has shape [2,3]"),
    Row("lengths in front of the first axis", lengths([1, 2], axis=0), 400, "shape", STAYS, "in front of axis 0"),
    Row("lengths in front of an axis outside", lengths([1, 2], axis=2), 400, "axis", STAYS),
    Row("a length below 0", lengths([3, -1]), 400, "range", STAYS, "softmax: INPUT2 (lengths) has -1 at place 1: it is outside [0, 3] of INPUT0's axis 1"),
    Row("a length beyond the axis", lengths([4, -1]), 400, "range", STAYS, "has 4 at place 0"),
    Row("a length of 2^63 - 1", lengths([0, 2 ** 63 - 1], datatype='"INT64"'), 400, "range", STAYS, "has 9223372036854775807 at place 1"),
    Row("a bad length of a batch's rows", lengths([1, 2, 3, 4], "[2,2]", x="[2,2,3]"), 400, "range", STAYS, "has 4 at place [1,1]"),
    Row("one bad length for all rows", lengths([-7], "[]"), 400, "range", STAYS, "has -7 at place []"),
    Row("a bad length beside causal", lengths([0, 9], causal="top_left"), 400, "range", STAYS, "has 9 at place 1"),
    Row("softmax_lengths beyond the axis", lengths([4, 0], to="/v2/models/softmax_lengths/infer"), 400, "range", STAYS),
    Row("a bad first one of 5000 lengths", lengths_raw(5000, 0, 9), 400, "range", STAYS, "has 9 at place 0"),
    Row("a bad middle one of 5000 lengths", lengths_raw(5000, 2500, -1), 400, "range", STAYS, "has -1 at place 2500"),
    Row("a bad last one of 5000 lengths", lengths_raw(5000, 4999, 9), 400, "range", STAYS, "has 9 at place 4999"),
    Row("axis beyond the rank", parameters(axis=2), 400, "axis", STAYS),
    Row("axis 1.5", parameters(axis=1.5), 400, "axis", STAYS),
    Row("axis as a word", parameters(axis="rows"), 400, "axis", STAYS),
    Row("the same axis twice", parameters(REDUCE, axis="0,-2"), 400, "axis", STAYS),
    Row("segments of floats", segments([0, 5], datatype='"FP32"'), 400, "datatype", STAYS, "inference input 'INPUT1' data-type is 'FP32', but model 'reduce' expects 'INT32,INT64'"),
    Row("segments of rank 2", segments([0, 5], shape="[2,1]"), 400, "shape", STAYS, "reduce: INPUT1 (segments) has rank 2, takes 1"),
    Row("no offsets", segments([], shape="[0]"), 400, "shape", STAYS, "has no elements"),
    Row("segments over several axes", segments([0, 5], axis="all"), 400, "axis", STAYS, "reduce: axis lists 2 axes, segments take one"),
    Row("segments over an axis outside", segments([0, 5], axis=2), 400, "axis", STAYS),
    Row("segments that begin at 1", segments([1, 5]), 400, "range", STAYS, "reduce: INPUT1 (segments) has 1 at place 0"),
    Row("segments that fall", segments([0, 3, 2, 5]), 400, "range", STAYS, "has 2 at place 2"),
    Row("segments that end too early", segments([0, 4]), 400, "range", STAYS, "end at place 1 with 5, the extent of INPUT0's axis"),
    Row("segments that end too late", segments([0, 6]), 400, "range", STAYS, "has 6 at place 1"),
    Row("an offset of 2^63 - 1", segments([0, 2 ** 63 - 1, 5], datatype='"INT64"'), 400, "range", STAYS, "has 9223372036854775807 at place 1"),
    Row("the maximum of an empty segment", segments([0, 2, 2, 5], op="max"), 400, "empty", STAYS, "reduce: max of nothing: segment 1 of INPUT1 (segments) begins and ends at 2"),
    Row("the variance of an empty segment", segments([0, 0, 5], op="var"), 400, "empty", STAYS, "segment 0"),
    Row("an empty segment in front of a bad offset", segments([0, 0, 6], op="mean"), 400, "range", STAYS, "has 6 at place 2"),
    Row("a bad first one of 5000 offsets", segments_raw(5000, 0, 1), 400, "range", STAYS, "has 1 at place 0"),
    Row("a bad middle one of 5000 offsets", segments_raw(5000, 2500, -1), 400, "range", STAYS, "has -1 at place 2500"),
    Row("a bad last one of 5000 offsets", segments_raw(5000, 5000, 9998), 400, "range", STAYS, "has 9998 at place 5000"),
    Row("an empty one of 5000 segments", segments_raw(5000, 2500, 4998, op="max"), 400, "empty", STAYS, "segment 2499 of INPUT1 (segments) begins and ends at 4998"),
    Row("unknown way to reduce", parameters(REDUCE, op="median"), 400, "parameter", STAYS),
    Row("variance with a negative ddof", parameters(REDUCE, op="var", ddof=-1), 400, "parameter", STAYS, "reduce: parameter 'ddof' is -1, takes 0 or more"),
    Row("variance with ddof as a word", parameters(REDUCE, op="std", ddof="inf"), 400, "parameter", STAYS, "must be a finite number"),
    Row("sum with ddof", parameters(REDUCE, op="sum", ddof=1), 400, "parameter", STAYS, "sum has none"),
    Row("norm with a negative p", parameters(REDUCE, op="norm", p=-2), 400, "parameter", STAYS, "reduce: parameter 'p' is -2, takes 0 or more, inf or -inf"),
    Row("norm whose p is NaN", parameters(REDUCE, op="norm", p="nan"), 400, "parameter", STAYS, "parameter 'p' of model 'reduce' must be a number"),
    Row("maximum with p", parameters(REDUCE, op="max", p=2), 400, "parameter", STAYS, "max has none"),
    Row("mean of BOOL", infer(to=REDUCE, datatype='"BOOL"', data="[true,false,true,true]", more=',"parameters":{"op":"mean"}'), 400, "datatype", STAYS, "mean takes FP16 to FP64"),
    Row("variance of nothing", infer(to=REDUCE, shape="[2,0]", data="[]", more=',"parameters":{"op":"var"}'), 400, "empty", STAYS, "reduce: var of nothing"),
    Row("deviation of nothing", infer(to=REDUCE, shape="[2,0]", data="[]", more=',"parameters":{"op":"std"}'), 400, "empty", STAYS),
    Row("largest of nothing", infer(to=REDUCE, shape="[2,0]", data="[]", more=',"parameters":{"op":"norm","p":"inf"}'), 400, "empty", STAYS),
    Row("norm of BYTES", infer(to=REDUCE, datatype='"BYTES"', data='["a","b","c","d"]', more=',"parameters":{"op":"any"}'), 400, "datatype", STAYS),
    Row("a number where true or false is wanted", parameters(log=3), 400, "parameter", STAYS),
    Row("a parameter that contradicts the preset", parameters("/v2/models/reduce_sum/infer", op="max"), 400, "parameter", STAYS),
    Row("reserved parameter", parameters(triton_x=1), 400, "parameter", STAYS, "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."),
    Row("parameter of type array", infer(more=',"parameters":{"axis":[1]}'), 400, "axis", STAYS, "parameter 'axis' has invalid type"),
    Row("way to reduce is null", infer(to=REDUCE, more=',"parameters":{"op":null}'), 400, "parameter", STAYS, "parameter 'op' has invalid type"),
    Row("too few elements", infer(data="[1,2,3]"), 400, "count", STAYS, "Failed to parse 'data' field: shape does not match true shape"),
    Row("too many elements", infer(data="[1,2,3,4,5]"), 400, "count", STAYS, "Unable to parse 'data': Shape does not match true shape of 'data' field"),
    Row("ragged data", infer(shape="[2,2]", data="[[1],[2,3,4]]"), 400, "count", STAYS),
    Row("no data at all", infer(data=None), 400, "count", STAYS, "Input must set only one of the following fields: "),
    Row("null data", infer(data="null"), 400, "count", STAYS),
    Row("two sources of data", infer(more="", data='[1,2,3,4],"parameters":{"binary_data_size":16}'), 400, "count", STAYS, "Input must set only one of the following fields: "),
    Row("data is a number", infer(data="1"), 400, "field", STAYS),
    Row("data is an object", infer(data="{}"), 400, "field", STAYS),
    Row("maximum of nothing", infer(to=REDUCE, shape="[0]", data="[]", more=',"parameters":{"op":"max"}'), 400, "empty", STAYS),
    Row("argmin of nothing", infer(to=REDUCE, shape="[2,0]", data="[]", more=',"parameters":{"op":"argmin"}'), 400, "empty", STAYS),
    Row("axes beyond the rank", parameters(REDUCE, axis="0,5"), 400, "axis", STAYS),
    Row("a list of axes for softmax", parameters(axis="0,1"), 400, "axis", STAYS),
    Row("matmul of ranks 2 and 3 that do not fit", pair("[2,2]", "[3,3,2]"), 400, "shape", STAYS),
    Row("output that is text", infer(more=',"outputs":["OUTPUT0"]'), 400, "field", STAYS),
    Row("outputs is text", infer(more=',"outputs":"OUTPUT0"'), 400, "field", STAYS),
    Row("17 outputs", infer(more=',"outputs":[%s]' % ",".join(['{"name":"OUTPUT0"}'] * 17)), 400, None, STAYS),
    Row("binary_data is a number", infer(more=',"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":1}}]'), 400, "field", STAYS),
    Row("one JSON input over the limit", infer(to=REDUCE, shape="[1000000]", datatype='"FP64"', data="[1]"), 413, "body_size", STAYS, "JSON input 'INPUT0' has a byte_size (8000000) that exceeds the maximum allowed value of 4194304"),
    Row("FP16 out as JSON", post("/v2/models/softmax/infer?shape=1,4&datatype=FP16", bytes(8), ("Accept", "application/json")), 400, "datatype", STAYS, "sending FP16 data via JSON is not supported. Please use the binary data format for output"),
    Row("2^63 as INT64", infer(to=REDUCE, datatype='"INT64"', data="[9223372036854775808,1,1,1]"), 400, "range", STAYS),
    Row("2^64 as UINT64", infer(to=REDUCE, datatype='"UINT64"', data="[18446744073709551616,1,1,1]"), 400, "range", STAYS),
    Row("1e400 as FP64", infer(datatype='"FP64"', data="[1e400,1,1,1]"), 400, "range", STAYS),
    Row("shared memory where it is off", infer(tensor(data=None, more=',"parameters":{"shared_memory_region":"r","shared_memory_byte_size":16}')), 501, "unsupported", STAYS, "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."),
    Row("3e9 as INT32", infer(to=REDUCE, datatype='"INT32"', data="[3000000000,1,1,1]"), 400, "range", STAYS),
    Row("-1 as UINT8", infer(to=REDUCE, datatype='"UINT8"', data="[-1,1,1,1]"), 400, "range", STAYS),
    Row("1.5 as INT64", infer(to=REDUCE, datatype='"INT64"', data="[1.5,1,1,1]"), 400, "range", STAYS),
    Row("1e39 as FP32", infer(data="[1e39,1,1,1]"), 400, "range", STAYS),
    Row("time limit of one microsecond", parameters(timeout=1), 504, "deadline", STAYS, "Request timeout expired"),
]

CONTROL_ROWS = [
    Row("index: JSON cut short", post("/v2/repository/index", '{"ready":'), 400, "json", STAYS),
    Row("index: ready is a number", post("/v2/repository/index", '{"ready":1}'), 400, "field", STAYS),
    Row("index: ready is 250,000 lists", post("/v2/repository/index", '{"ready":' + "[" * 250000), 400, "json_limit", STAYS),
    Row("index: a list", post("/v2/repository/index", "[]"), 400, "field", STAYS),
    Row("index: compressed", post("/v2/repository/index", gzip.compress(b"{}"), GZIP), 415, "encoding", STAYS),
    Row("index: body of 1 MiB and more", post("/v2/repository/index", '{"x":"' + " " * (1 << 20)), 400, "json_limit", STAYS),
    Row("index by GET", request("GET", "/v2/repository/index"), 405, "method", STAYS),
    Row("repository with a name", request("POST", "/v2/repository/mine/index"), 404, "path", STAYS),
    Row("load of an unknown model", post("/v2/repository/models/nope/load", "{}"), 404, "model", STAYS, "failed to load 'nope', failed to poll from model repository"),
    Row("unload an operation", post("/v2/repository/models/softmax/unload", "{}"), 409, "reserved", STAYS),
    Row("unload an unknown model, no body", post("/v2/repository/models/nope/unload", ""), 404, "model", STAYS),
    Row("log file", post("/v2/logging", '{"log_file":"/tmp/x"}'), 501, "unsupported", STAYS),
    Row("log flag is text", post("/v2/logging", '{"log_info":"yes"}'), 400, "field", STAYS),
    Row("trace settings", request("GET", "/v2/trace/setting"), 503, "unavailable", STAYS),
    Row("trace settings of an unknown model", request("GET", "/v2/models/nope/trace/setting"), 404, "model", STAYS),
    Row("generate", post("/v2/models/softmax/generate", "{}"), 404, "path", STAYS),
]

BINARY_ROWS = [
    Row("header length is a word", binary(16, bytes(16), "abc"), 400, "header_length", STAYS, "Unable to parse Inference-Header-Content-Length, got: abc"),
    Row("header length -1", binary(16, bytes(16), "-1"), 400, "header_length", STAYS, "inference header size should be in range (0, "),
    Row("header length +5", binary(16, bytes(16), "+5"), 400, "header_length", STAYS),
    Row("header length is empty", binary(16, bytes(16), ""), 400, "header_length", STAYS),
    Row("header length above the body", binary(16, bytes(16), "99999"), 400, "header_length", STAYS, "inference header size should be in range (0, "),
    Row("header length above 2^63", binary(16, bytes(16), "9223372036854775808"), 400, "header_length", STAYS),
    Row("header length cuts the JSON", binary(16, bytes(16), "20"), 400, "json", STAYS),
    Row("binary size is not the shape's", binary(12, bytes(12)), 400, "binary_size", STAYS, "input byte size mismatch for input 'INPUT0' for model 'softmax'. Expected 16, got 12"),
    Row("negative binary size", binary(-16, bytes(16)), 400, "binary_size", STAYS),
    Row("blob cut short", binary(16, bytes(9)), 400, "binary_size", STAYS, "unexpected size for input 'INPUT0', expecting 7 additional bytes for model 'softmax'"),
    Row("binary input over the limit", binary(8000000, bytes(16), shape="[1,2000000]"), 413, "body_size", STAYS, "exceeds the maximum allowed input size of 4194304 bytes. Use --max-body to increase the limit."),
    Row("raw body over the limit", post(SOFTMAX + "?shape=1,2000000&datatype=FP32", bytes(16)), 400, "binary_size", STAYS),
    Row("raw body over the limit, chunked", chunked("POST", SOFTMAX + "?shape=1,2000000&datatype=FP32", (), [bytes(16)]), 413, "body_size", STAYS, "Raw input has a byte_size (8000000) that exceeds the maximum allowed value of 4194304"),
    Row("bytes behind the blob", binary(16, bytes(20)), 400, "binary_size", STAYS, "unexpected additional input data for model 'softmax'"),
    Row("raw request to a model of two inputs", post(MATMUL, bytes(16), ("Inference-Header-Content-Length", 0)), 400, None, STAYS, "Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in"),
    Row("raw request to a model of two unknown dimensions", post(SOFTMAX, bytes(16), ("Inference-Header-Content-Length", 0)), 400, None, STAYS, "The shape of the raw input 'INPUT0' can not be deduced because there are more than one variable-sized dimension"),
    Row("plain raw: body is not the shape's", post(SOFTMAX + "?shape=1,4&datatype=FP32", bytes(12)), 400, "binary_size", STAYS),
    Row("plain raw: shape with a word", post(SOFTMAX + "?shape=1,x&datatype=FP32", bytes(16)), 400, "shape", STAYS),
    Row("plain raw: unknown datatype", post(SOFTMAX + "?shape=1,4&datatype=FP99", bytes(16)), 400, "datatype", STAYS),
    Row("plain raw: axis beyond the rank", post(SOFTMAX + "?shape=1,4&datatype=FP32&axis=5", bytes(16)), 400, "axis", STAYS),
    Row("plain raw: tf32 for FP16", post(MATMUL + "?shape=2,2&shape=2,2&datatype=FP16&precision=tf32", bytes(16)), 400, "parameter", STAYS),
    Row("plain raw: fast for FP16", post(MATMUL + "?shape=2,2&shape=2,2&datatype=FP16&precision=fast", bytes(16)), 400, "parameter", STAYS),
    Row("plain raw: four shapes for matmul", post(MATMUL + "?shape=2,2&shape=2,2&shape=2&shape=2&datatype=FP32", bytes(48)), 400, None, STAYS),
    Row("plain raw: one shape for two inputs", post(MATMUL + "?shape=2,2&datatype=FP32", bytes(16)), 400, None, STAYS),
]

NPY, SAFE = ("Content-Type", "application/x-npy"), ("Content-Type", "application/x-safetensors")


def npy(descr="'<f4'", order="False", shape="(1, 4)", data=bytes(16), to=SOFTMAX, version=1, more=""):
    return post(to, npy_head("{'descr': %s, 'fortran_order': %s, 'shape': %s, %s}" % (descr, order, shape, more), version) + data, NPY)


def safe(data=bytes(16), to=SOFTMAX, **tensors):
    return post(to, safetensors_head(tensors or {"INPUT0": place()}) + data, SAFE)


def place(dtype="F32", shape=(1, 4), begin=0, end=16):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


FILE_ROWS = [
    Row("npy: empty body", post(SOFTMAX, "", NPY), 400, "binary_size", STAYS),
    Row("npy: no magic", post(SOFTMAX, bytes(64), NPY), 400, "field", STAYS),
    Row("npy: version 4", post(SOFTMAX, npy_head("{}").replace(b"\1", b"\4", 1), NPY), 400, "field", STAYS),
    Row("npy: body ends in the header", post(SOFTMAX, npy_head("{'descr': '<f4'")[:40], NPY), 400, "binary_size", STAYS),
    Row("npy: header of 4 GiB", post(SOFTMAX, b"\x93NUMPY\x02\0\xff\xff\xff\xff", NPY), 413, "body_size", STAYS),
    Row("npy: header of nothing", post(SOFTMAX, b"\x93NUMPY\x01\0\0\0  ", NPY), 400, "field", STAYS),
    Row("npy: big-endian", npy("'>f4'"), 400, "datatype", STAYS),
    Row("npy: objects", npy("'|O'"), 400, "datatype", STAYS),
    Row("npy: structured", npy("[('a', '<f4')]"), 400, "datatype", STAYS),
    Row("npy: complex", npy("'<c8'"), 400, "datatype", STAYS),
    Row("npy: dates", npy("'<M8[ns]'"), 400, "datatype", STAYS),
    Row("npy: an integer for softmax", npy("'<i4'"), 400, "datatype", STAYS),
    Row("npy: order is a word", npy(order="Maybe"), 400, "field", STAYS),
    Row("npy: shape is a list", npy(shape="[1, 4]"), 400, "field", STAYS),
    Row("npy: shape is no tuple", npy(shape="(4)"), 400, "field", STAYS),
    Row("npy: negative dimension", npy(shape="(-1, 4)"), 400, "shape", STAYS),
    Row("npy: rank 9", npy(shape="(%s)" % "1, " * 9), 400, None, STAYS),
    Row("npy: 2^64 elements", npy(shape="(4294967296, 4294967296)"), 400, "shape", STAYS),
    Row("npy: more than the limit", npy(shape="(4194304, 4)"), 400, "binary_size", STAYS),
    Row("npy: an unknown key", npy(more="'x': 1, "), 400, "field", STAYS),
    Row("npy: a key twice", npy(more="'descr': '<f4', "), 400, "field", STAYS),
    Row("npy: a key missing", post(SOFTMAX, npy_head("{'descr': '<f4', 'shape': (4,), }") + bytes(16), NPY), 400, "field", STAYS),
    Row("npy: code in the header", post(SOFTMAX, npy_head("__import__('os')"), NPY), 400, "field", STAYS),
    Row("npy: data cut short", npy(data=bytes(12)), 400, "binary_size", STAYS),
    Row("npy: data too long", npy(data=bytes(20)), 400, "binary_size", STAYS),
    Row("npy: data cut short, chunked", chunked("POST", SOFTMAX, [NPY], [npy_head("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }"), bytes(13)]), 400, "binary_size", STAYS),
    Row("npy: data too long, chunked", chunked("POST", SOFTMAX, [NPY], [npy_head("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }"), bytes(17)]), 400, "binary_size", STAYS),
    Row("npy: for two inputs", npy(to=MATMUL), 400, "name", STAYS),
    Row("npy: the query says a shape too", npy(to=SOFTMAX + "?shape=1,4"), 400, "parameter", STAYS),
    Row("npy: axis beyond the rank", npy(to=SOFTMAX + "?axis=2"), 400, "axis", STAYS),
    Row("npy: an answer of BF16", post(SOFTMAX + "?shape=1,4&datatype=BF16", bytes(8), ("Accept", "application/x-npy")), 400, "datatype", STAYS),
    Row("safetensors: header of 2^63 bytes", post(SOFTMAX, b"\xff" * 8 + b"{}", SAFE), 413, "body_size", STAYS),
    Row("safetensors: body ends in the header", post(SOFTMAX, safetensors_head({})[:9], SAFE), 400, "binary_size", STAYS),
    Row("safetensors: no JSON", post(SOFTMAX, b"\x04\0\0\0\0\0\0\0{{{{", SAFE), 400, "json", STAYS),
    Row("safetensors: nothing in it", post(SOFTMAX, safetensors_head({}), SAFE), 400, "name", STAYS),
    Row("safetensors: one tensor for two inputs", safe(to=MATMUL), 400, "name", STAYS),
    Row("safetensors: an unknown name", safe(bytes(32), MATMUL, INPUT0=place(), x=place(begin=16, end=32)), 400, "name", STAYS),
    Row("safetensors: a tensor too many", safe(bytes(32), INPUT0=place(), x=place(begin=16, end=32)), 400, "name", STAYS),
    Row("safetensors: a bias and one operand", safe(bytes(32), MATMUL, INPUT0=place(), INPUT2=place(shape=(4,), begin=16, end=32)), 400, "name", STAYS),
    Row("safetensors: a bias of another length", safe(bytes(60), MATMUL, INPUT0=place(), INPUT1=place(shape=(4, 2), begin=16, end=48), INPUT2=place(shape=(3,), begin=48, end=60)), 400, "shape", STAYS),
    Row("safetensors: a tensor that matmul has not", safe(bytes(64), MATMUL, INPUT0=place(), INPUT1=place(shape=(4, 1), begin=16, end=32), INPUT2=place(shape=(1, 4), begin=32, end=48), INPUT6=place(begin=48, end=64)), 400, "name", STAYS),
    Row("safetensors: unknown type", safe(INPUT0=place("F8_E4M3")), 400, "datatype", STAYS),
    Row("safetensors: an integer for softmax", safe(INPUT0=place("I32")), 400, "datatype", STAYS),
    Row("safetensors: shape of text", safe(INPUT0=place(shape=("1", "4"))), 400, "shape", STAYS),
    Row("safetensors: negative dimension", safe(INPUT0=place(shape=(-1, 4))), 400, "shape", STAYS),
    Row("safetensors: 2^64 elements", safe(INPUT0=place(shape=(2 ** 32, 2 ** 32))), 400, "shape", STAYS),
    Row("safetensors: offsets are not the size", safe(INPUT0=place(end=12)), 400, "binary_size", STAYS),
    Row("safetensors: offsets run backwards", safe(INPUT0=place(begin=16, end=0)), 400, "binary_size", STAYS),
    Row("safetensors: a gap", safe(bytes(20), INPUT0=place(begin=4, end=20)), 400, "binary_size", STAYS),
    Row("safetensors: an overlap", safe(bytes(24), MATMUL, INPUT0=place(), INPUT1=place(shape=(4, 1), begin=8, end=24)), 400, "binary_size", STAYS),
    Row("safetensors: data cut short", safe(bytes(12)), 400, "binary_size", STAYS),
    Row("safetensors: data too long", safe(bytes(20)), 400, "binary_size", STAYS),
    Row("safetensors: the tensor is a list", safe(INPUT0=[1]), 400, "datatype", STAYS),
]

ROWS = HTTP_ROWS + CHUNK_ROWS + JSON_ROWS + WORD_ROWS + CONTROL_ROWS + BINARY_ROWS + FILE_ROWS

# Rows that need a daemon of their own: (options, rows). TOKEN stands for a file that refusals.py makes.
TOKEN = "{token file}"
BARE, USER = "a-secret-of-the-tests", "a-user-of-the-tests"  # every right; to infer alone
TOKEN_LINES = BARE + "\n" + USER + " tenant=alice rights=infer\n"


def as_user(method, target, body=b""):
    return request(method, target, [("Authorization", "Bearer " + USER)], body)


BINARY_NAN = b"\x00\x00\xc0\x7f" * 4
OTHER_ROWS = [
    (("--json-non-finite", "error"), [
        Row("NaN in a JSON answer for strict readers", binary(16, BINARY_NAN), 422, "non_finite", STAYS),
    ]),
    (("--strict-parameters", "all"), [
        Row("unknown parameter, strictly", parameters(colour="red"), 400, "parameter", STAYS),
        Row("unknown member, strictly", infer(more=',"colour":1'), 400, "parameter", STAYS, "the request has no member 'colour'"),
        Row("a query beside JSON, strictly", infer(to=SOFTMAX + "?colour=1"), 400, "parameter", STAYS, "parameters stand in the JSON"),
    ]),
    (("--compat-models",), [
        Row("101 levels inside data of a compatibility model", infer(tensor("[1]", deep(101)), to="/v2/models/identity_fp32/infer"), 400, "json_limit", STAYS, "JSON nesting depth exceeds maximum allowed limit (100)"),
        Row("17 levels outside data of a compatibility model", infer(to="/v2/models/identity_fp32/infer", more=',"x":' + deep(17)), 400, "json_limit", STAYS, "(16)"),
        Row("lists around an object in data of a compatibility model", infer(tensor("[1]", "[" * 20 + "{}" + "]" * 20), to="/v2/models/identity_fp32/infer"), 400, "json_limit", STAYS),
        Row("2 MiB of JSON to a compatibility model", infer(tensor("[1]", "[" + " " * (2 << 20) + "1]"), to="/v2/models/identity_fp32/infer"), 413, "body_size", STAYS),
    ]),
    (("--max-work", "1000"), [
        Row("too much work", pair("[20,20]", "[20,20]"), 413, "work", STAYS, "exceeds the maximum allowed value of 1e+03"),
    ]),
    (("--token-file", TOKEN), [
        Row("no token", infer(), 401, "auth", EITHER),
        Row("wrong token", post(SOFTMAX, GOOD_BODY, ("Authorization", "Bearer wrong")), 401, "auth", EITHER),
        Row("the operator's fields are no part of the token", post(SOFTMAX, GOOD_BODY, ("Authorization", "Bearer " + TOKEN_LINES.split("\n")[1])),
            401, "auth", EITHER),
        Row("log settings without the right", as_user("POST", "/v2/logging", b'{"log_info":false}'), 403, "auth", STAYS, "no right 'operator'"),
        Row("log settings without the right, no body", as_user("POST", "/v2/logging"), 403, "auth", STAYS),
        Row("trace settings without the right", as_user("POST", "/v2/trace/setting"), 403, "auth", STAYS),
        Row("a model's trace settings without the right", as_user("POST", "/v2/models/softmax/trace/setting"), 403, "auth", STAYS),
        Row("loading without the right", as_user("POST", "/v2/repository/models/softmax/load"), 403, "auth", STAYS, "no right 'models'"),
        Row("unloading without the right", as_user("POST", "/v2/repository/models/softmax/unload"), 403, "auth", STAYS),
    ] + [
        Row("shared memory without the right: " + path, as_user("POST", "/v2/%ssharedmemory/%s" % (kind, path), b"{}"), 403, "auth", STAYS)
        for kind in ("system", "cuda") for path in ("region/r/register", "region/r/unregister", "unregister")
    ]),
    (("--body-timeout", "600ms", "--header-timeout", "600ms"), [
        Row("body that never comes", raw("POST " + SOFTMAX + " HTTP/1.1", "Host: localhost", "Content-Length: 50", body=b"{"), 408, "slow", CLOSES),
        Row("header that never ends", b"GET /v2 HTTP/1.1\r\nHost: local", 408, "slow", CLOSES),
    ]),
]
