"""What a client can do wrong with /v2/tensors: rows as in refusal_rows.py, of a daemon that holds the tensor `there` (FP32, 2: 1, 2)
and has OPTIONS. tensors_resident.py walks through them.
"""

import json
import struct

from daemon import chunked, request
from files import npy_head, safetensors_head, write_npy
from refusal_rows import CLOSES, EITHER, STAYS, Row
from tensors import Tensor

OPTIONS = ("--resident-bytes", "64M", "--tensor-uploads", "4", "--max-body", "4M")
TWO = struct.pack("<2f", 1, 2)
SAFE, NPY = ("Content-Type", "application/x-safetensors"), ("Content-Type", "application/x-npy")
TAG = "db32fa6b2c39fd7f8d3d207fe13832e9468cceaaa52b4e59c6e425d7d5f15845"


def put(target, body=TWO, *headers):
    """A PUT that names its length, also of nothing."""
    return request("PUT", target, list(headers) + ([] if body else [("Content-Length", 0)]), body)


def one(query="shape=2&datatype=FP32", body=TWO, *headers, name="W"):
    return put("/v2/tensors/%s?%s" % (name, query), body, *headers)


def file_of(document, data, target="/v2/tensors?prefix=p.", *headers):
    return put(target, safetensors_head(document) + data, SAFE, *headers)


def f32(begin, count):
    return {"dtype": "F32", "shape": [count], "data_offsets": [begin, begin + 4 * count]}


def twice():
    text = '{"a":%s,"a":%s}' % (json.dumps(f32(0, 2)), json.dumps(f32(0, 2)))
    return struct.pack("<Q", len(text)) + text.encode() + TWO


def npy(text, body=TWO, version=1):
    return put("/v2/tensors/W", npy_head(text, version) + body, NPY)


def descr(kind):
    return npy("{'descr': %s, 'fortran_order': False, 'shape': (2,), }" % kind)


PAIR = {"a": f32(0, 1), "b": f32(4, 1)}

ROWS = [
    # 1, 2: names
    Row("a slash in a name", one(name="a/b"), 404, "path", STAYS),
    Row("an encoded slash in a name", one(name="a%2Fb"), 404, "path", STAYS),
    Row("two dots as a name", one(name=".."), 404, "path", STAYS),
    Row("an empty name", one(name=""), 404, "path", STAYS),
    Row("a name of 129 bytes", one(name="n" * 129), 400, "name", STAYS),
    Row("a name that begins with a dot", one(name=".x"), 400, "name", STAYS),
    Row("a name that begins with a dash", one(name="-x"), 400, "name", STAYS),
    Row("a blank in a name", one(name="a%20b"), 400, "name", STAYS),
    Row("a letter beyond ASCII in a name", one(name="%C3%A9"), 400, "name", STAYS),
    Row("GET of a name that none can have", request("GET", "/v2/tensors/a%20b"), 400, "name", STAYS),
    # 3, 4, 5: bytes, datatypes, shapes
    Row("bytes without a shape", one("datatype=FP32"), 400, "field", STAYS),
    Row("bytes without a datatype", one("shape=2"), 400, "field", STAYS),
    Row("bytes without a query", put("/v2/tensors/W"), 400, "field", STAYS),
    Row("a datatype that is none", one("shape=2&datatype=FP33"), 400, "datatype", STAYS),
    Row("texts", one("shape=2&datatype=BYTES"), 400, "datatype", STAYS),
    Row("a shape that is none", one("shape=4,x&datatype=FP32"), 400, "shape", STAYS),
    Row("a negative dimension", one("shape=-1&datatype=FP32"), 400, "shape", STAYS),
    Row("nine dimensions", one("shape=1,1,1,1,1,1,1,1,2&datatype=FP32"), 400, "shape", STAYS),
    Row("a shape beyond 2^63", one("shape=4294967296,4294967296&datatype=FP32"), 400, "shape", STAYS),
    Row("a dimension beyond 2^63", one("shape=9223372036854775808&datatype=FP32"), 400, "shape", STAYS),
    Row("a byte too few", one(body=TWO[:7]), 400, "binary_size", STAYS),
    Row("a byte too many", one(body=TWO + b"x"), 400, "binary_size", STAYS),
    Row("no byte", one(body=b""), 400, "binary_size", STAYS),
    Row("a byte too few, chunked", chunked("PUT", "/v2/tensors/W?shape=2&datatype=FP32", (), [TWO[:3], TWO[3:7]]), 400, "binary_size", STAYS),
    Row("a byte too many, chunked", chunked("PUT", "/v2/tensors/W?shape=2&datatype=FP32", (), [TWO, b"x"]), 400, "binary_size", STAYS),
    Row("BOOL of 2", one("shape=8&datatype=BOOL", bytes(7) + b"\2"), 400, "range", STAYS),
    Row("a compressed body", one("shape=2&datatype=FP32", TWO, ("Content-Encoding", "gzip")), 415, "encoding", STAYS),
    # 7: npy
    Row("npy of objects", descr("'|O'"), 400, "datatype", STAYS),
    Row("npy of the other byte order", descr("'>f4'"), 400, "datatype", STAYS),
    Row("npy of structures", descr("[('a', '<f4')]"), 400, "datatype", STAYS),
    Row("npy of version 9", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", version=9), 400, "field", STAYS),
    Row("npy that is none", put("/v2/tensors/W", b"PK\3\4" * 8, NPY), 400, "field", STAYS),
    Row("npy that ends in its head", put("/v2/tensors/W", b"\x93NUMPY\1\0\x76\0{", NPY), 400, "binary_size", STAYS),
    Row("npy beside a shape", put("/v2/tensors/W?shape=2", write_npy(Tensor("FP32", [2], [1, 2])), NPY), 400, "parameter", STAYS),
    Row("npy beside a key", put("/v2/tensors/W?key=a", write_npy(Tensor("FP32", [2], [1, 2])), NPY), 400, "parameter", STAYS),
    # 8, 9, 10: safetensors
    Row("a gap between tensors", file_of({"a": f32(0, 1), "b": f32(8, 1)}, bytes(12)), 400, "binary_size", STAYS),
    Row("tensors that overlap", file_of({"a": f32(0, 2), "b": f32(4, 1)}, TWO), 400, "binary_size", STAYS),
    Row("a key twice", put("/v2/tensors", twice(), SAFE), 400, None, STAYS),
    Row("a head of more than 4 MiB", put("/v2/tensors", struct.pack("<Q", (4 << 20) + 1) + b"{", SAFE), 413, "body_size", STAYS),
    Row("4097 keys", file_of({"k%d" % i: f32(0, 0) for i in range(4097)}, b""), 413, "body_size", STAYS),
    Row("5000 keys", file_of({"k%d" % i: f32(0, 0) for i in range(5000)}, b""), 413, "body_size", STAYS),
    Row("a key that is no name", file_of({"a b": f32(0, 2)}, TWO), 400, "name", STAYS),
    Row("a key with a slash", file_of({"a/b": f32(0, 2)}, TWO), 400, "name", STAYS),
    Row("prefix and key of 129 bytes", file_of({"k" * 65: f32(0, 2)}, TWO, "/v2/tensors?prefix=" + "p" * 64), 400, "name", STAYS),
    Row("a key of 200 bytes", file_of({"k" * 200: f32(0, 2)}, TWO, "/v2/tensors"), 400, "name", STAYS),
    Row("a prefix of 129 bytes", file_of({"k": f32(0, 2)}, TWO, "/v2/tensors?prefix=" + "p" * 129), 400, "name", STAYS),
    Row("two tensors for one name", file_of(PAIR, TWO, "/v2/tensors/W"), 400, "count", STAYS),
    Row("no tensor for a name", file_of({}, b"", "/v2/tensors/W"), 400, "count", STAYS),
    Row("a key that the file does not have", file_of(PAIR, TWO, "/v2/tensors/W?key=c"), 400, "name", STAYS),
    Row("a file longer than its head says", file_of(PAIR, TWO + b"x"), 400, "binary_size", STAYS),
    Row("a file shorter than its head says", file_of(PAIR, TWO[:7]), 400, "binary_size", STAYS),
    Row("bytes for many names", put("/v2/tensors?prefix=p."), 400, "field", STAYS),
    Row("npy for many names", put("/v2/tensors?prefix=p.", write_npy(Tensor("FP32", [2], [1, 2])), NPY), 400, "field", STAYS),
    # 11: the query
    Row("ttl of -1", one("shape=2&datatype=FP32&ttl=-1"), 400, "parameter", STAYS),
    Row("ttl of x", one("shape=2&datatype=FP32&ttl=x"), 400, "parameter", STAYS),
    Row("ttl of eleven years", one("shape=2&datatype=FP32&ttl=346896000"), 400, "parameter", STAYS),
    Row("evictable=2", one("shape=2&datatype=FP32&evictable=2"), 400, "parameter", STAYS),
    Row("a misspelt member", one("shpae=4&datatype=FP32"), 400, "parameter", STAYS),
    Row("a member twice", one("shape=2&shape=2&datatype=FP32"), 400, "parameter", STAYS),
    Row("limit=0", request("GET", "/v2/tensors?limit=0"), 400, "parameter", STAYS),
    Row("limit=10001", request("GET", "/v2/tensors?limit=10001"), 400, "parameter", STAYS),
    Row("a shape in a GET", request("GET", "/v2/tensors/there?shape=2"), 400, "parameter", STAYS),
    # 12: links
    Row("an ETag of 63 digits", one("etag=" + TAG[:63], b""), 400, "parameter", STAYS),
    Row("an ETag that nothing has", one("etag=" + "0" * 64, b""), 404, "content", STAYS),
    Row("an ETag with a body", one("etag=" + TAG), 400, "binary_size", STAYS),
    Row("an ETag with a chunked body", chunked("PUT", "/v2/tensors/W?etag=" + TAG, (), [TWO]), 400, "binary_size", STAYS),
    # 13, 14: digests, conditions
    Row("another body's digest", one("shape=2&datatype=FP32", TWO, ("Repr-Digest", "sha-256=:%s:" % ("A" * 43 + "="))), 400, "digest", STAYS),
    Row("a malformed digest", one("shape=2&datatype=FP32", TWO, ("Repr-Digest", "sha-256=:AAAA:")), 400, "digest", STAYS),
    Row("another file's digest", put("/v2/tensors?prefix=p.", safetensors_head({"a": f32(0, 2)}) + TWO, SAFE, ("Repr-Digest", "sha-256=:%s:" % ("A" * 43 + "="))), 400, "digest", STAYS),
    Row("If-None-Match: * where it is", one("shape=2&datatype=FP32", TWO, ("If-None-Match", "*"), name="there"), 412, "precondition", STAYS),
    Row("If-Match of another", one("shape=2&datatype=FP32", TWO, ("If-Match", '"%s"' % ("0" * 64)), name="there"), 412, "precondition", STAYS),
    Row("If-Match of none", one("shape=2&datatype=FP32", TWO, ("If-Match", '"%s"' % TAG)), 412, "precondition", STAYS),
    Row("DELETE If-Match of another", request("DELETE", "/v2/tensors/there", [("If-Match", '"%s"' % ("0" * 64))]), 412, "precondition", STAYS),
    # 15: room
    Row("over the budget", request("PUT", "/v2/tensors/W?shape=33554432&datatype=FP32", [("Content-Length", 4 * 33554432)]), 507, "resident_full", CLOSES),
    # 17, 18: none, and other methods
    Row("GET of none", request("GET", "/v2/tensors/none"), 404, "tensor", STAYS),
    Row("DELETE of none", request("DELETE", "/v2/tensors/none"), 404, "tensor", STAYS),
    Row("POST of a tensor", request("POST", "/v2/tensors/there", (), TWO), 405, "method", STAYS),
    Row("POST of the list", request("POST", "/v2/tensors", (), TWO), 405, "method", STAYS),
    Row("DELETE of the list", request("DELETE", "/v2/tensors"), 405, "method", STAYS),
    Row("PUT of an inference", put("/v2/models/softmax/infer"), 405, "method", STAYS),
]
