#!/usr/bin/env python3
"""Resident tensors over HTTP: every form in and out, identity against hashlib, conditions, digests, links, lists, many names at
once, bodies that break off, tenants, no store; and the rows of tensor_rows.py. At the end nothing is held.

tensors_resident.py [--closes] [--ring] [--identity N] KERNSERVE   --closes: as refusals.py; --ring: a backend that runs no stored outputs;
--identity: of so many sizes around the MiB (40) the ETag, and nothing else
"""

import base64
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

import refusals
from daemon import Daemon, check, chunked, comes_to, request, seed, settle, wrongs
from files import NPY, SAFE, read_npy, safetensors_head, write_npy, write_safetensors
from tensor_rows import NPY as NPY_TYPE, OPTIONS, ROWS, SAFE as SAFE_TYPE, TAG, TWO, f32, put
from tensors import SIZES, Tensor, decode

MIB = 1 << 20


def etag_of(datatype, shape, data):
    leaves = b"".join(hashlib.sha256(data[at:at + MIB]).digest() for at in range(0, len(data), MIB))
    return hashlib.sha256(b"kernserve1\n%s\n%s\n" % (datatype.encode(), ",".join(map(str, shape)).encode()) + hashlib.sha256(leaves).digest()).hexdigest()


def digest_of(data):
    return "sha-256=:%s:" % base64.b64encode(hashlib.sha256(data).digest()).decode()


class Client:
    """A connection that is opened anew where an answer has closed it."""

    def __init__(self, daemon):
        self.daemon, self.connection = daemon, daemon.connect(60)

    def ask(self, data, method="GET"):
        answer = self.connection.ask(data, method)
        if answer is None or answer.says_close() or answer.closed:
            self.connection.close()
            self.connection = self.daemon.connect(60)
        return answer

    def entry(self, name):
        answer = self.ask(request("GET", "/v2/tensors/" + name, [("Accept", "application/json")]))
        return json.loads(answer.body) if answer.status == 200 else answer.status

    def names(self, query=""):
        return [e["name"] for e in json.loads(self.ask(request("GET", "/v2/tensors" + query)).body)["tensors"]]


def literal(client):
    """The vector of the ETag, the answer's members in their order."""
    answer = client.ask(put("/v2/tensors/there?shape=2&datatype=FP32&ttl=3600", TWO, ("If-None-Match", "*")))
    check(answer.status == 201 and answer.header("etag") == '"%s"' % TAG, "the vector's ETag", answer)
    check((answer.header("location"), answer.header("kernserve-generation"), answer.header("content-type")) ==
          ("/v2/tensors/there", "1", "application/json"), "fields of 201", answer.headers)
    text = '{"name":"there","datatype":"FP32","shape":[2],"bytes":8,"etag":"%s","ttl":3600,"expires_in":3600,"evictable":false,"read_only":false,"uses":0,"held":0,"forms":[]}' % TAG
    check(answer.body.decode() == text, "the entry", answer.body)
    answer = client.ask(put("/v2/tensors/there?shape=2&datatype=FP32&ttl=60&evictable=1"))
    check(answer.status == 200 and json.loads(answer.body)["ttl"] == 60 and json.loads(answer.body)["evictable"] is True, "the same again, other attributes", answer)
    answer = client.ask(put("/v2/tensors/there?shape=2&datatype=FP32", struct.pack("<2f", 3, 4), ("If-Match", '"%s"' % TAG)))
    check(answer.status == 200 and answer.header("etag") != '"%s"' % TAG, "replaced", answer)
    check(client.ask(put("/v2/tensors/there?shape=2&datatype=FP32")).status == 200, "replaced again")


def reading(client):
    answer = client.ask(request("GET", "/v2/tensors/there"))
    check((answer.status, answer.body, answer.header("kernserve-shape"), answer.header("kernserve-datatype"), answer.header("content-type")) ==
          (200, TWO, "2", "FP32", "application/octet-stream"), "GET", answer, answer.headers)
    uses = client.entry("there")["uses"]
    head = client.ask(request("HEAD", "/v2/tensors/there"), "HEAD")
    check((head.status, head.body, head.header("content-length"), head.header("etag")) == (200, b"", "8", '"%s"' % TAG), "HEAD", head.headers)
    check(client.entry("there")["uses"] == uses + 1, "HEAD is no use, a GET is", uses, client.entry("there"))
    for value in ('"%s"' % TAG, 'W/"%s"' % TAG, '"x", "%s"' % TAG, "*"):
        answer = client.ask(request("GET", "/v2/tensors/there", [("If-None-Match", value)]))
        check((answer.status, answer.body, answer.header("etag")) == (304, b"", '"%s"' % TAG), "304", value, answer)
    answer = client.ask(request("GET", "/v2/tensors/there", [("If-None-Match", '"0"')]))
    check((answer.status, answer.body) == (200, TWO), "another ETag", answer)
    answer = client.ask(request("GET", "/v2/tensors/there", [("Range", "bytes=0-3")]))
    check((answer.status, answer.body) == (200, TWO), "Range is ignored", answer)


def pattern(datatype, count, generator):
    data = bytearray(generator.randbytes(count * SIZES[datatype]))
    return bytes(data)


def forms(client, generator):
    """Every datatype in by each form and out by each."""
    for datatype in SIZES:
        for shape in ([], [0], [5], [2, 0, 3], [3, 4], [2, 3, 4]):
            count = 1
            for d in shape:
                count *= d
            tensor = Tensor.__new__(Tensor)
            tensor.datatype, tensor.shape, tensor.data = datatype, shape, pattern(datatype, count, generator)
            tag = etag_of(datatype, shape, tensor.data)
            ways = [put("/v2/tensors/f?shape=%s&datatype=%s" % (",".join(map(str, shape)), datatype), tensor.data),
                    put("/v2/tensors/f", write_safetensors({"any": tensor}), SAFE_TYPE),
                    put("/v2/tensors/f?key=b", write_safetensors({"a": tensor, "b": tensor, "c": tensor}, {"format": "pt"}), SAFE_TYPE)]
            if datatype in NPY:
                ways += [put("/v2/tensors/f", write_npy(tensor), NPY_TYPE), put("/v2/tensors/f", write_npy(tensor, 2, True), NPY_TYPE)]
            for number, way in enumerate(ways):
                answer = client.ask(way)
                check(answer.status in (200, 201) and answer.header("etag") == '"%s"' % tag, "form in", datatype, shape, number, answer, tag)
                client.ask(request("DELETE", "/v2/tensors/f"))
            client.ask(ways[0])
            answer = client.ask(request("GET", "/v2/tensors/f"))
            check(answer.body == tensor.data and answer.header("kernserve-shape") == (",".join(map(str, shape)) or "scalar"), "raw out", datatype, shape, answer)
            answer = client.ask(request("GET", "/v2/tensors/f", [("Accept", SAFE_TYPE[1])]))
            length = struct.unpack_from("<Q", answer.body)[0]
            check(json.loads(answer.body[8:8 + length]) == {"f": {"dtype": SAFE[datatype], "shape": shape, "data_offsets": [0, len(tensor.data)]}} and
                  answer.body[8 + length:] == tensor.data and length % 8 == 0, "safetensors out", datatype, shape, answer)
            answer = client.ask(request("GET", "/v2/tensors/f", [("Accept", NPY_TYPE[1])]))
            if datatype in NPY:
                kind, dims, values = read_npy(answer.body)
                check((kind, dims) == (datatype, shape) and answer.body.endswith(tensor.data), "npy out", datatype, shape, answer)
            else:
                check((answer.status, answer.header("kernserve-error")) == (400, "datatype"), "npy of a datatype that it has no type for", answer)
    client.ask(request("DELETE", "/v2/tensors/f"))


def identity(client, generator, times):
    """Sizes around the MiB, against hashlib; also by chunks of any size."""
    for _ in range(times):
        size = max(0, generator.choice([0, 1, 64, 4096, MIB, 2 * MIB]) + generator.randint(-70, 70))
        data, shape = generator.randbytes(size), [size]
        target = "/v2/tensors/i?shape=%d&datatype=UINT8" % size
        at, chunks = 0, []
        while at < size and len(chunks) < 40:
            n = generator.randint(1, size)
            chunks.append(data[at:at + n])
            at += n
        chunks.append(data[at:])
        way = generator.choice([put(target, data), chunked("PUT", target, (), chunks)])
        answer = client.ask(way)
        check(answer.status in (200, 201) and answer.header("etag") == '"%s"' % etag_of("UINT8", shape, data), "ETag", size, answer)
        answer = client.ask(request("GET", "/v2/tensors/i"))
        check(answer.body == data, "bytes", size, len(answer.body))
    client.ask(request("DELETE", "/v2/tensors/i"))


def links(client):
    answer = client.ask(put("/v2/tensors/linked?etag=" + TAG, b""))
    check(answer.status == 201 and json.loads(answer.body)["bytes"] == 8, "link", answer)
    check(client.ask(put("/v2/tensors/linked?etag=" + TAG, b"")).status == 200, "link again")
    check(client.ask(request("DELETE", "/v2/tensors/there")).status == 204, "DELETE")
    check(client.ask(request("GET", "/v2/tensors/linked")).body == TWO, "the content stays with its other name")
    check(client.ask(put("/v2/tensors/there?etag=" + TAG, b"")).status == 201, "and back")
    check(client.ask(request("DELETE", "/v2/tensors/linked", [("If-Match", '"%s"' % TAG)])).status == 204, "DELETE If-Match")


def digests(client, daemon):
    data = bytes(range(256)) * 4096
    target = "/v2/tensors/d?shape=%d&datatype=UINT8" % len(data)
    check(client.ask(put(target, data, ("Repr-Digest", "md5=:AAAA:"))).status == 201, "md5 alone is ignored")
    check(client.ask(put(target, data, ("Repr-Digest", "md5=:AAAA:, " + digest_of(data)))).status == 200, "a right digest")
    body = safetensors_head({"a": f32(0, 2)}) + TWO
    check(client.ask(put("/v2/tensors/e", body, SAFE_TYPE, ("Repr-Digest", digest_of(body)))).status == 201, "a right digest of a file")
    announced = request("PUT", target, [("Content-Length", len(data)), ("Expect", "100-continue"), ("Repr-Digest", digest_of(data))])
    with daemon.connect() as connection:
        connection.socket.sendall(announced)
        answer = connection.answer()
        check(answer.status == 200 and answer.says_close() and json.loads(answer.body)["name"] == "d", "the body is spared", answer)
    other = announced.replace(b"shape=%d" % len(data), b"shape=2,%d" % (len(data) // 2))
    with daemon.connect() as connection:
        connection.socket.sendall(other)
        check(connection.socket.recv(100).startswith(b"HTTP/1.1 100 "), "the same bytes in another shape are another content")
    for name in "de":
        client.ask(request("DELETE", "/v2/tensors/" + name))


def many(client):
    document = {"a": f32(0, 1), "b.w": f32(4, 1), "none": f32(8, 0)}
    answer = client.ask(put("/v2/tensors?prefix=bert.&ttl=60", safetensors_head(document) + TWO, SAFE_TYPE))
    entries = json.loads(answer.body)
    check(answer.status == 201 and entries["generation"] == 1 and {e["name"] for e in entries["tensors"]} == {"bert.a", "bert.b.w", "bert.none"}, "many", answer)
    check(client.ask(request("GET", "/v2/tensors/bert.b.w")).body == TWO[4:], "one of many")
    answer = client.ask(put("/v2/tensors?prefix=bert.", safetensors_head({"new": f32(0, 1), "a": f32(4, 1)}) + TWO, SAFE_TYPE, ("If-None-Match", "*")))
    check(answer.status == 412 and client.entry("bert.new") == 404 and client.ask(request("GET", "/v2/tensors/bert.a")).body == TWO[:4], "all or none", answer)
    check(client.names("?prefix=bert.") == ["bert.a", "bert.b.w", "bert.none"], "list by prefix", client.names())
    page = json.loads(client.ask(request("GET", "/v2/tensors?prefix=bert.&limit=2")).body)
    check(page["next"] == "bert.b.w" and len(page["tensors"]) == 2, "a page", page)
    page = json.loads(client.ask(request("GET", "/v2/tensors?prefix=bert.&limit=2&after=bert.b.w")).body)
    check(page["next"] is None and [e["name"] for e in page["tensors"]] == ["bert.none"], "the last page", page)
    check(list(page) == ["generation", "tensors", "next", "bytes", "limit"] and page["limit"] == 64 * MIB, "members of a list", page)
    for name in client.names("?prefix=bert."):
        check(client.ask(request("DELETE", "/v2/tensors/" + name)).status == 204, "DELETE", name)
    check(client.ask(put("/v2/tensors", safetensors_head({}), SAFE_TYPE)).status == 200, "a file of nothing")


def bytes_held(client):
    return json.loads(client.ask(request("GET", "/v2/tensors")).body)["bytes"]


def broken(client, daemon):
    """A body that breaks off anywhere changes nothing, and its memory comes back; places of uploads, too."""
    whole = put("/v2/tensors/there?shape=1048576&datatype=FP32", bytes(4 * MIB))
    # What was deleted before may be read yet: only then are its bytes given back.
    check(comes_to(lambda: bytes_held(client), len(TWO)) == len(TWO), "bytes of what was deleted", bytes_held(client))
    for cut in (60, 200, 70000, 3 * MIB, len(whole) - 1):
        with daemon.connect() as connection:
            connection.send(whole[:cut])
            time.sleep(0.05)
    deadline = time.monotonic() + 30
    held, answer = [], None
    while time.monotonic() < deadline and (answer is None or answer.status != 503):  # places of those above may be free a moment later
        for connection in held:
            connection.close()
        held = [daemon.connect() for _ in range(4)]
        for number, connection in enumerate(held):
            connection.send(put("/v2/tensors/up%d?shape=1048576&datatype=FP32" % number, bytes(4 * MIB))[:100000])
        for _ in range(20):
            answer = client.ask(put("/v2/tensors/up?shape=2&datatype=FP32"))
            if answer.status == 503:
                break
            time.sleep(0.05)
    check(answer.status == 503 and answer.header("kernserve-error") == "budget" and answer.header("retry-after"), "one upload too many", answer)
    for connection in held:
        connection.close()
    while time.monotonic() < deadline and answer.status == 503:
        answer = client.ask(put("/v2/tensors/up?shape=2&datatype=FP32"))
    check(answer.status in (200, 201), "their places are free again", answer)
    client.ask(request("DELETE", "/v2/tensors/up"))
    left = comes_to(lambda: bytes_held(client), len(TWO))
    check(client.names() == ["there"] and client.ask(request("GET", "/v2/tensors/there")).body == TWO, "nothing has changed", client.names())
    check(left == len(TWO), "no byte is left behind bodies that broke off", left)


def slow(daemon):
    """A body below --min-rate ends with 408, and the name is as before."""
    with daemon.connect(30) as connection:
        connection.send(put("/v2/tensors/there?shape=1048576&datatype=FP32", bytes(4 * MIB))[:1000])
        answer = connection.answer()
        check(answer is not None and (answer.status, answer.header("kernserve-error")) == (408, "slow") and answer.says_close(), "a slow body", answer)


def races(client, daemon, generator):
    """Two PUTs of one name at once: both are stored, and the one that ends later stays, whole."""
    bodies = [generator.randbytes(2 * MIB + 3) for _ in range(2)]
    target = "/v2/tensors/race?shape=%d&datatype=UINT8" % len(bodies[0])
    for last in (0, 1):
        with daemon.connect() as a, daemon.connect() as b:
            pair = ((a, bodies[0]), (b, bodies[1]))
            for connection, body in pair:
                connection.send(put(target, body)[:-1])
            for connection, body in pair if last else reversed(pair):
                connection.send(body[-1:])
                check(connection.answer().status in (200, 201), "one of two PUTs")
        answer = client.ask(request("GET", "/v2/tensors/race"))
        check(answer.body == bodies[last] and answer.header("etag") == '"%s"' % etag_of("UINT8", [len(bodies[0])], bodies[last]), "the later end", last, answer.status)
    check(client.ask(request("HEAD", "/v2/tensors/none"), "HEAD").status == 404, "HEAD of none")
    for method, target, allowed in (("POST", "/v2/tensors/there", "GET, HEAD, PUT, DELETE"), ("DELETE", "/v2/tensors", "GET, HEAD, PUT"), ("PUT", "/v2/models/softmax/infer", "POST")):
        answer = client.ask(request(method, target, [("Content-Length", 0)] if method != "POST" else []))
        check((answer.status, answer.header("allow")) == (405, allowed), "Allow", method, target, answer, answer.headers)
    client.ask(request("DELETE", "/v2/tensors/race"))


def old(daemon):
    """HTTP/1.0: libmicrohttpd's."""
    data = os.urandom(3 * MIB + 5)
    for method, target, body in (("PUT", "/v2/tensors/old?shape=%d&datatype=UINT8" % len(data), data), ("HEAD", "/v2/tensors/old", b""), ("GET", "/v2/tensors/old", b""),
                                 ("DELETE", "/v2/tensors/old", b"")):
        with daemon.connect() as connection:
            connection.send(request(method, target, (), body).replace(b" HTTP/1.1", b" HTTP/1.0", 1))
            answer = connection.answer(method)
            check(answer.status == {"PUT": 201, "DELETE": 204}.get(method, 200), "HTTP/1.0", method, answer)
            check(method != "GET" or answer.body == data, "HTTP/1.0 bytes", len(answer.body))
            check(method != "HEAD" or answer.header("content-length") == str(len(data)), "HTTP/1.0 HEAD", answer.headers)


def tenants(path):
    lines = "op0123456789012345\nalice0123456789012 tenant=alice tensors=2 bytes=1M rights=infer,tensors\nbob012345678901234 tenant=bob rights=infer\n"
    with tempfile.NamedTemporaryFile("w", suffix=".tokens") as file:
        file.write(lines)
        file.flush()
        os.chmod(file.name, 0o600)
        with Daemon(path, *OPTIONS, "--token-file", file.name) as daemon:
            client = Client(daemon)
            operator, alice, bob = (("Authorization", "Bearer " + line.split()[0]) for line in lines.splitlines())

            def ask(token, method, target, body=b"", *headers):
                return client.ask(request(method, target, [token, *headers], body), method)

            check(ask(alice, "PUT", "/v2/tensors/W?shape=2&datatype=FP32", TWO).status == 201, "a tenant's tensor")
            check(ask(operator, "GET", "/v2/tensors/W").status == 404, "is not the operator's")
            check(ask(operator, "GET", "/v2/tensors/W?tenant=alice").body == TWO, "but can be asked for by it")
            check(ask(bob, "GET", "/v2/tensors/W").status == 404 and ask(bob, "GET", "/v2/tensors/W?tenant=alice").status == 403, "nor another's")
            answer = ask(bob, "PUT", "/v2/tensors/W?shape=2&datatype=FP32", TWO)
            check((answer.status, answer.header("kernserve-error")) == (403, "auth"), "a token without the right", answer)
            check(ask(bob, "DELETE", "/v2/tensors/W").status == 403, "DELETE without the right")
            check(ask(operator, "PUT", "/v2/tensors/L?etag=" + TAG, b"", ("Content-Length", 0)).status == 404, "a link finds one's own alone")
            check(ask(alice, "PUT", "/v2/tensors/X?shape=2&datatype=FP32&ttl=0", TWO).status == 400, "for ever is the operator's")
            check(ask(operator, "PUT", "/v2/tensors/X?shape=2&datatype=FP32&ttl=0", TWO).status == 201, "who may")
            answer = ask(alice, "PUT", "/v2/tensors/Y?shape=1048577&datatype=UINT8", bytes(MIB + 1))
            check((answer.status, answer.header("kernserve-error")) == (507, "quota"), "over its bytes", answer)
            check(ask(alice, "PUT", "/v2/tensors/Y?shape=1&datatype=UINT8", b"1").status == 201, "its second")
            answer = ask(alice, "PUT", "/v2/tensors/Z?shape=1&datatype=UINT8", b"2")
            check((answer.status, answer.header("kernserve-error")) == (507, "quota"), "its third", answer)


def recipes(daemon):
    """The curl lines of docs/tensors.md, as they stand."""
    text = open(os.path.join(os.path.dirname(__file__), "../../docs/tensors.md")).read()
    lines = text.split("```text\n")[1].split("```\n")[0].replace("localhost:8000", "%s:%d" % (daemon.host, daemon.port))
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(["bash", "-ec", lines], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    check(ran.returncode == 0, "the recipes of docs/tensors.md", ran.stdout.decode(errors="replace"))


def without(path):
    with Daemon(path, "--no-resident") as daemon:
        client = Client(daemon)
        for method, target, body in (("PUT", "/v2/tensors/W?shape=2&datatype=FP32", TWO), ("GET", "/v2/tensors", b""), ("GET", "/v2/tensors/W", b""), ("DELETE", "/v2/tensors/W", b"")):
            answer = client.ask(request(method, target, (), body))
            check((answer.status, answer.header("kernserve-error")) == (501, "unsupported"), "--no-resident", method, answer)


def main():
    refusals.every_answer_closes = "--closes" in sys.argv
    path, generator = sys.argv[-1], seed()
    if "--identity" in sys.argv:
        with Daemon(path, *OPTIONS) as daemon:
            identity(Client(daemon), generator, int(sys.argv[sys.argv.index("--identity") + 1]))
            check(settle(daemon) == 0 and daemon.stop() == 0, "the daemon ends well")
        return 1 if wrongs() else 0
    with Daemon(path, *OPTIONS) as daemon:
        client = Client(daemon)
        literal(client)
        reading(client)
        forms(client, generator)
        identity(client, generator, 40)
        links(client)
        digests(client, daemon)
        many(client)
        broken(client, daemon)
        slow(daemon)
        races(client, daemon, generator)
        old(daemon)
        if "--ring" not in sys.argv:
            recipes(daemon)
        for name in client.names():
            check(name == "there" or client.ask(request("DELETE", "/v2/tensors/" + name)).status == 204, "DELETE", name)
        bad = refusals.walk(daemon, ROWS)
        check(bad == 0, "%d rows" % bad)
        check(client.names() == ["there"], "no row has stored anything", client.names())
        check(client.ask(request("DELETE", "/v2/tensors/there")).status == 204, "the last DELETE")
        # What a row's connection left behind when it broke off is another shard's to put away.
        left = comes_to(lambda: bytes_held(client), 0)
        check(left == 0, "no byte is left", left)
        check(settle(daemon) == 0 and daemon.stop() == 0, "the daemon ends well")
    tenants(path)
    without(path)
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
