#!/usr/bin/env python3
"""--devices: tensors that one worker has alone. A PUT with device=N goes there, and so does each request that names it, whichever worker's
connection it comes by, with its bytes unread; connections go on, each request where it belongs. Tensors of two workers in one request are
refused; lists know of all; what a worker had that ends is lost, and says so. Outputs that stay, and tensors that may go for others, are
such tensors, too.

engine_placed.py DAEMON
"""

import json
import os
import signal
import socket
import struct
import sys
import tempfile
import threading
import time

from daemon import Connection, check, chunked, comes_to, daemon_path, for_library, metric, request, sanitizer, seed, wrongs
from engine_replicas import SAFE, Client, floats, put, status
from engine_workers import Workers, stop
from files import write_npy, write_safetensors
from models import scaled
from tensors import Tensor

MEMORY = ("--resident-bytes", "64M", "--inflight-bytes", "16M")
CLIENTS, NAMES = 6, 8


def product(rows):
    """Of a row of four and of a matrix of 4 x 2 with floats()."""
    return floats(*(sum(rows[i] * (2 * i + j) for i in range(4)) for j in range(2)))


MATRIX, ROW = floats(*range(8)), (1.0, 2.0, 3.0, 4.0)


def matrix(name, device, data=MATRIX, more=""):
    return request("PUT", "/v2/tensors/%s?shape=4,2&datatype=FP32&device=%d%s" % (name, device, more), [], data)


def by_query(name, row=ROW, more=""):
    return request("POST", "/v2/models/matmul/infer?%sshape=1,4&INPUT1=@%s" % (more, name), [], floats(*row))


def words(name, row=ROW, second=None, spelled="tensor"):
    second = second or {"name": "INPUT1", "parameters": {spelled: name}}
    return {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": list(row)}, second],
            "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}


def by_json(name, row=ROW):
    return request("POST", "/v2/models/matmul/infer", [], json.dumps(words(name, row)).encode())


def by_region(name, row=ROW):
    region = {"name": "INPUT1", "datatype": "FP32", "shape": [4, 2], "parameters": {"shared_memory_region": "tensor:" + name, "shared_memory_byte_size": 32}}
    return request("POST", "/v2/models/matmul/infer", [], json.dumps(words(name, row, region)).encode())


def by_binary(name, row=ROW):
    document = words(name, row)
    document["inputs"][0] = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "parameters": {"binary_data_size": 16}}
    head = json.dumps(document).encode()
    return request("POST", "/v2/models/matmul/infer", [("Inference-Header-Content-Length", len(head))], head + floats(*row))


def by_file(name, row=ROW):
    return request("POST", "/v2/models/matmul/infer?INPUT1=@%s" % name, [("Content-Type", "application/x-npy")], write_npy(Tensor("FP32", [1, 4], list(row))))


FORMS = (by_query, by_json, by_region, by_binary, by_file)


def result(answer):
    """The product's bytes, behind the words of an answer that has some; else the status."""
    if answer is None or answer.status != 200:
        return answer and answer.status
    length = answer.header("inference-header-content-length")
    if answer.body.startswith(b"\x93NUMPY"):
        return answer.body[128:]
    return answer.body[int(length):] if length else answer.body


class At(Client):
    """Each request is asked of the worker: a connection goes there with the request in front, from wherever its last one led."""

    def ask(self, device, data):
        super().ask(device, request("GET", "/v2/models/stats?device=%d" % device, self.fields))
        return super().ask(device, data)


def handovers(daemon):
    return metric(daemon.admin("/metrics").body.decode(), "kernserve_worker_handovers_total") or 0


def entries(answer):
    return {e["name"]: e for e in json.loads(answer.body)["tensors"]}


def forms(daemon):
    """Each form, by a connection that starts at either worker and goes on from there; heads and bodies in pieces; HTTP/1.0."""
    client = Client(daemon)
    for device in (0, 1):
        for asked in (0, 1):
            name = "W%d%d" % (device, asked)
            answer = status(client.ask(asked, matrix(name, device)), 201, "created")
            entry = json.loads(answer.body)
            check(entry["device"] == device and entry["shape"] == [4, 2] and answer.header("location") == "/v2/tensors/" + name, "the entry", entry)
    before = handovers(daemon)
    client.close()
    client = Client(daemon)
    rounds = 0
    for connection in (0, 1):  # there and back again, all on one connection
        for form in FORMS:
            for device in (0, 1, 1, 0):
                answer = client.ask(connection, form("W%d0" % device))
                check(result(answer) == product(ROW), "a result", form.__name__, device, answer)
                rounds += 1
    moved = handovers(daemon) - before
    check(rounds / 2 - 1 <= moved <= rounds / 2 + 6, "handed over", moved, rounds)
    with Connection(daemon) as connection:  # many at once: each where it belongs, in order
        rows = [(float(i), 1.0, 0.0, 2.0) for i in range(24)]
        connection.send(b"".join(FORMS[i % 5]("W%d0" % (i // 2 % 2), row) for i, row in enumerate(rows)))
        got = [result(connection.answer()) for _ in rows]
        check(got == [product(row) for row in rows], "pipelined", got)
    for form in FORMS:  # in pieces, cut anywhere
        data = form("W10")
        behind = data.index(b"\r\n\r\n") + 4
        for cuts in ((10,), (behind - 2,), (behind,), (behind + 3,), (7, behind - 5, behind + 5, len(data) - 1), tuple(range(6, behind, 40))):
            for start in (0, 1):
                with Connection(daemon) as connection:
                    check(connection.ask(request("GET", "/v2/models/stats?device=%d" % start)).status == 200, "a connection")
                    for at, end in zip((0,) + cuts, cuts + (len(data),)):
                        connection.send(data[at:end])
                        time.sleep(0.003)
                    got = result(connection.answer())
                    check(got == product(ROW), "in pieces", form.__name__, cuts, start, got)
                    check(result(connection.ask(by_query("W00"))) == product(ROW), "behind it")
        for device in (0, 1):
            with Connection(daemon) as connection:
                check(result(connection.ask(for_library(form("W%d0" % device)))) == product(ROW), "HTTP/1.0", form.__name__)
    late = by_json("W10")[:-1] + b" " * 9000 + b"}"  # longer than it was said to be: the rest is the next request's
    with Connection(daemon) as connection:
        check(connection.ask(late).status == 400, "JSON that is cut")
    for device in (0, 1):  # device=N leads there whatever the body says
        for asked in (0, 1):
            check(result(client.ask(asked, by_query("W%d0" % device, more="device=%d&" % device))) == product(ROW), "device=N")
            long = b"{" + b" " * 40000 + json.dumps(words("W%d0" % device)).encode()[1:]
            check(result(client.ask(asked, request("POST", "/v2/models/matmul/infer?device=%d" % device, [], long))) == product(ROW), "device=N, a long body")
            answer = client.ask(asked, request("POST", "/v2/models/matmul/infer", [], long))
            check(answer.status == 200, "the connection is there by now", answer)
            with Connection(daemon) as connection:
                check(connection.ask(request("GET", "/v2/models/stats?device=%d" % (1 - device))).status == 200)
                answer = connection.ask(request("POST", "/v2/models/matmul/infer", [], long))
                check(answer.status == 409 and answer.header("kernserve-error") == "placed", "a name behind 16 KiB", answer)
    for query, wanted in (("device=7&", 400), ("device=x&", 400)):
        check(client.ask(0, by_query("W00", more=query)).status in (wanted, 200), "no such device", query)
    check(client.ask(0, by_query("W00", more="device=7&")).status == 400, "no such device")
    plan = client.ask(0, request("GET", "/v2/models/matmul/plan?shape=1,4&INPUT1=@W10"))
    check(plan.status == 200 and b'"resident":true' in plan.body, "the plan", plan)
    with Connection(daemon) as connection:  # with Expect, and the name in the query: the other one says that it may be sent
        data = by_query("W10").replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n", 1)
        behind = data.index(b"\r\n\r\n") + 4
        check(connection.ask(request("GET", "/v2/models/stats?device=0")).status == 200)
        connection.send(data[:behind])
        connection.socket.settimeout(20)
        check(connection.socket.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n", "100 Continue")
        connection.send(data[behind:])
        check(result(connection.answer()) == product(ROW), "Expect")
    for name in ("W00", "W01", "W10", "W11"):
        status(client.ask(0, request("DELETE", "/v2/tensors/" + name)), 204)
    check([entries(a) for a in client.both(request("GET", "/v2/tensors"))] == [{}, {}], "something is left")
    client.close()


def documents(daemon):
    """PUT, GET, HEAD, DELETE, lists and conditions, by either worker, of tensors that are on either."""
    client = At(daemon)
    one, two = floats(1, 2, 3), floats(4, 5, 6)
    for device in (0, 1):
        for asked in (0, 1):
            made = status(client.ask(asked, put("A", one, "&device=%d&ttl=100" % device)), 201, "created")
            tag = json.loads(made.body)["etag"]
            check(made.header("etag") == '"%s"' % tag, "ETag")
            answers = client.both(request("GET", "/v2/tensors/A"))
            check([a.body for a in answers] == [one, one] and [a.header("etag") for a in answers] == ['"%s"' % tag] * 2, "GET", answers)
            for connection in (0, 1):
                client.ask(connection, request("GET", "/v2"))
                client.at[connection].send(request("HEAD", "/v2/tensors/A"))
                answer = client.at[connection].answer("HEAD")
                check(answer.status == 200 and answer.header("content-length") == "12", "HEAD", answer)
            check([a.status for a in client.both(request("GET", "/v2/tensors/A", [("If-None-Match", '"%s"' % tag)]))] == [304, 304], "304")
            status(client.ask(asked, put("A", one, "&device=%d" % device, [("If-None-Match", "*")])), 412, "If-None-Match")
            status(client.ask(asked, put("A", two, "&device=%d" % device, [("If-Match", '"%s"' % tag)])), 200, "If-Match")
            status(client.ask(asked, put("A", one, "&device=%d" % device, [("If-Match", '"%s"' % tag)])), 412, "If-Match of another one")
            other = status(client.ask(asked, put("A", one, "&device=%d" % (1 - device))), 409, "on another device")
            check(other.header("kernserve-error") == "placed" and b"'A' is on device %d" % device in other.body, "its words", other)
            other = status(client.ask(asked, put("A", one)), 409, "on all devices")
            check(other.header("kernserve-error") == "placed", "its code", other)
            tag = json.loads(client.ask(asked, request("GET", "/v2/tensors/A", [("Accept", "application/json")])).body)["etag"]
            link = status(client.ask(asked, request("PUT", "/v2/tensors/L?etag=%s&device=%d" % (tag, device))), 201, "a link")
            check(json.loads(link.body)["device"] == device, "where a link is", link)
            status(client.ask(asked, request("PUT", "/v2/tensors/M?etag=%s&device=%d" % (tag, 1 - device))), 404, "a link to what is not there")
            status(client.ask(asked, request("PUT", "/v2/tensors/M?etag=%s" % tag)), 404, "a link on all to what one has")
            status(client.ask(asked, chunked("PUT", "/v2/tensors/C?datatype=FP32&device=%d&shape=3" % device, [], [two[:5], two[5:]])), 201, "chunked")
            many = write_safetensors({"a": Tensor("FP32", [1], [1.0]), "b": Tensor("FP32", [2], [1.0, 2.0])})
            listed = status(client.ask(asked, request("PUT", "/v2/tensors?prefix=p.&device=%d" % device, SAFE, many)), 201, "many")
            check([e["device"] for e in entries(listed).values()] == [device] * 2, "where they are", listed)
            status(client.ask(1 - asked, put("R", one)), 201, "on all")
            lists = [entries(a) for a in client.both(request("GET", "/v2/tensors"))]
            check(sorted(lists[0]) == sorted(lists[1]) == ["A", "C", "L", "R", "p.a", "p.b"], "lists", *map(sorted, lists))
            check([[e.get("device") for e in row.values()] for row in lists] == [[device] * 3 + [None] + [device] * 2] * 2, "devices in lists", lists)
            check(all(lists[d]["A"]["etag"] == tag and lists[d]["A"]["shape"] == [3] and lists[d]["A"]["bytes"] == 12 for d in (0, 1)), "an entry", lists)
            check("uses" in lists[device]["A"] and "uses" not in lists[1 - device]["A"], "what one alone knows", lists)
            pages = []
            for connection in (0, 1):
                after, names = "", []
                while after is not None:
                    page = json.loads(client.ask(connection, request("GET", "/v2/tensors?limit=2&after=" + after)).body)
                    names += [e["name"] for e in page["tensors"]]
                    after = page["next"]
                pages.append(names)
            check(pages == [["A", "C", "L", "R", "p.a", "p.b"]] * 2, "pages", pages)
            status(client.ask(asked, put("R", one, "&device=%d" % device)), 409, "one of all on one alone")
            status(client.ask(asked, request("PUT", "/v2/models/holds", [], json.dumps(dict(scaled(1.0), initializers=[{"name": "k", "tensor": "A"}])).encode())), 409, "a model of one")
            status(client.ask(asked, request("DELETE", "/v2/tensors/A", [("If-Match", '"%s"' % ("1" * 64))])), 412, "DELETE If-Match")
            for name in ("A", "C", "L", "R", "p.a", "p.b"):
                status(client.ask(1 - asked, request("DELETE", "/v2/tensors/" + name)), 204, "DELETE")
                check([a.status for a in client.both(request("GET", "/v2/tensors/" + name))] == [404, 404], "deleted", name)
                status(client.ask(asked, request("DELETE", "/v2/tensors/" + name)), 404, "DELETE of none")
            status(client.ask(asked, put("A", one)), 201, "the name is free")
            status(client.ask(asked, request("DELETE", "/v2/tensors/A")), 204)
    for data, wanted, code in ((put("A", one, "&device=7"), 400, "parameter"), (put("A", one, "&device=x"), 400, "parameter"), (put("A", one, "&device=0&device=1"), 400, "parameter"),
                               (request("GET", "/v2/tensors/A?device=0"), 400, "parameter"), (request("DELETE", "/v2/tensors/A?device=0"), 400, "parameter"),
                               (put("A", one + b"x", "&device=1"), 400, "binary_size")):
        for asked in (0, 1):
            answer = client.ask(asked, data)
            check(answer is not None and answer.status == wanted and answer.header("kernserve-error") == code, "refused", data[:70], answer)
    large = os.urandom(24 << 20)  # more than --inflight-bytes: it goes straight to its place
    for asked in (0, 1):
        status(client.ask(asked, put("big", large, "&device=1")), 201 if asked == 0 else 200, "a large one")
    check(client.ask(0, request("GET", "/v2/tensors/big")).body == large, "its bytes")
    status(client.ask(0, request("DELETE", "/v2/tensors/big")), 204)
    client.close()


def two_workers(daemon):
    """Tensors of two workers in one request."""
    client = At(daemon)
    for name, device in (("P", 0), ("Q", 1)):
        status(client.ask(1 - device, matrix(name, device)), 201)
    status(client.ask(0, request("PUT", "/v2/tensors/X?shape=1,4&datatype=FP32", [], floats(*ROW))), 201, "on both")
    rows = [request("POST", "/v2/models/matmul/infer?INPUT0=@P&INPUT1=@Q"), request("POST", "/v2/models/matmul/infer?INPUT0=@Q&INPUT1=@P")]
    rows.append(request("POST", "/v2/models/matmul/infer", [], json.dumps({"inputs": [{"name": "INPUT%d" % i, "parameters": {"tensor": n}} for i, n in enumerate("PQ")]}).encode()))
    for asked in (0, 1):
        for row in rows:
            answer = client.ask(asked, row)
            check(answer is not None and answer.status == 409 and answer.header("kernserve-error") == "placed" and b"alone" in answer.body, "two devices", answer)
        for name in "PQ":  # with one of all devices it goes
            answer = client.ask(asked, request("POST", "/v2/models/matmul/infer?INPUT0=@X&INPUT1=@" + name))
            check(result(answer) == product(ROW), "with one of both", answer)
    for name in "PQX":
        status(client.ask(0, request("DELETE", "/v2/tensors/" + name)), 204)
    client.close()


def outputs(daemon):
    """What stays is on the worker that made it, and names lead there."""
    client = At(daemon)
    status(client.ask(0, put("X", floats(1, 2, 3, 4))), 201)
    for asked in (0, 1):
        made = client.ask(asked, request("POST", "/v2/models/softmax/infer?INPUT0=@X&OUTPUT0=@h&ttl=60"))
        check(made is not None and made.status == 200 and made.header("kernserve-tensor") == "h", "an output that stays", made)
        wanted = client.ask(asked, request("POST", "/v2/models/softmax/infer?INPUT0=@X")).body
        lists = [entries(a) for a in client.both(request("GET", "/v2/tensors?prefix=h"))]
        device = lists[0]["h"]["device"]
        check(lists[1]["h"]["device"] == device and lists[0]["h"]["etag"] == lists[1]["h"]["etag"], "where it is", lists)
        check([a.body for a in client.both(request("GET", "/v2/tensors/h"))] == [wanted] * 2, "its bytes")
        used = [a.body for a in client.both(request("POST", "/v2/models/reduce/infer?INPUT0=@h&op=sum&axis=0"))]
        check(used[0] == used[1] and abs(struct.unpack("<f", used[0])[0] - 1) < 1e-5, "used", used)
        for other in (0, 1):  # the same name again: where it was
            stored = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 1]}],
                                 "outputs": [{"name": "OUTPUT0", "parameters": {"tensor": "h"}}]}).encode()
            answer = client.ask(other, request("POST", "/v2/models/softmax/infer", [], stored))
            check(answer.status == 200 and answer.header("kernserve-tensor") == "h", "replaced", answer)
            lists = [entries(a) for a in client.both(request("GET", "/v2/tensors?prefix=h"))]
            check([row["h"]["device"] for row in lists] == [device] * 2 and [row["h"]["shape"] for row in lists] == [[1, 2]] * 2, "where it was", lists)
        there = client.ask(asked, request("POST", "/v2/models/softmax/infer?device=%d&INPUT0=@X&OUTPUT0=@g" % (1 - device)))
        check(there.status == 200 and entries(client.ask(asked, request("GET", "/v2/tensors")))["g"]["device"] == 1 - device, "on the device that is asked for", there)
        answer = client.ask(asked, request("POST", "/v2/models/softmax/infer?INPUT0=@g&OUTPUT0=@h"))
        check(answer.status == 409, "an output on another device", answer)
        answer = client.ask(asked, request("POST", "/v2/models/softmax/infer?INPUT0=@X&OUTPUT0=@X"))
        check(answer.status == 409 and answer.header("kernserve-error") == "placed", "one of all devices by an output", answer)
        tags = [entries(client.ask(asked, request("GET", "/v2/tensors")))[name]["etag"] for name in "gh"]
        check(len(set(tags)) == 2 and all(tag.startswith("g") for tag in tags), "ETags of two workers", tags)
        for name in "gh":
            status(client.ask(asked, request("DELETE", "/v2/tensors/" + name)), 204)
    status(client.ask(0, request("DELETE", "/v2/tensors/X")), 204)
    client.close()


def evictable(daemon):
    """What may go is on one worker: the one that is asked, or named; there it goes for others, and by its time."""
    client = At(daemon)
    size = 20 << 20
    block = bytes(size)
    for device in (0, 1):
        made = status(client.ask(device, put("E", floats(1), "&evictable=1")), 201)
        check(json.loads(made.body)["device"] == device and json.loads(made.body)["evictable"], "where it is", made)
        again = status(client.ask(1 - device, put("E", floats(2), "&evictable=1")), 200, "from the other one")
        check(json.loads(again.body)["device"] == device, "it stays there", again)
        status(client.ask(0, request("DELETE", "/v2/tensors/E")), 204)
        for i in range(4):  # room for three of these
            status(client.ask(i % 2, put("E%d" % i, bytes([i + 1]) + block[1:], "&evictable=1&device=%d" % device)), 201)
        lists = [sorted(entries(a)) for a in client.both(request("GET", "/v2/tensors?prefix=E"))]
        check(lists == [["E1", "E2", "E3"]] * 2, "the oldest one goes, in both lists", lists)
        check([a.status for a in client.both(request("GET", "/v2/tensors/E0"))] == [404, 404], "it is gone")
        for i in range(1, 4):
            status(client.ask(1 - device, request("DELETE", "/v2/tensors/E%d" % i)), 204)
        status(client.ask(1 - device, put("T%d" % device, floats(1), "&device=%d&ttl=1" % device)), 201, "with a time")
    time.sleep(1)
    got = comes_to(lambda: [sorted(entries(a)) for a in client.both(request("GET", "/v2/tensors"))], [[], []])
    check(got == [[], []], "by their time", got)
    client.close()


def lost(daemon):
    """The owner ends: its names are lost at once, by either worker and from then on; a PUT heals, a DELETE forgets."""
    client = At(daemon)
    for name in ("G", "H", "I", "K"):
        status(client.ask(0, matrix(name, 1)), 201)
    status(client.ask(0, matrix("own", 0)), 201)
    status(client.ask(1, request("POST", "/v2/models/softmax/infer?INPUT0=@own&OUTPUT0=@made&ttl=60")), 200)
    status(client.ask(1, put("all", floats(3))), 201)
    pid = daemon.pid_of(1)
    stop(pid)
    comes_to(daemon.states, ["ready", "stuck"])
    with Connection(daemon) as connection:
        answer = connection.ask(by_query("G"))
        check(answer and answer.status == 503 and answer.header("kernserve-error") == "unavailable" and answer.header("retry-after") == "1", "its worker is stopped", answer)
        check(result(connection.ask(by_query("own"))) == product(ROW), "the connection goes on")
    os.kill(pid, signal.SIGCONT)
    comes_to(daemon.states, ["ready", "ready"])
    client.close()
    client = At(daemon)
    check(result(client.ask(0, by_query("G"))) == product(ROW), "it goes on")
    os.kill(pid, signal.SIGKILL)
    check(comes_to(daemon.states, ["ready", "down"]) == ["ready", "down"], "not down")
    client.close()

    def is_lost(when):
        with Connection(daemon) as connection:
            for data in [form("G") for form in FORMS] + [request("GET", "/v2/tensors/G"), request("GET", "/v2/models/matmul/plan?shape=1,4&INPUT1=@G")]:
                answer = connection.ask(data)
                check(answer is not None and answer.status == 410 and answer.header("kernserve-error") == "lost" and b"device 1" in answer.body, "lost", when, data[:60], answer)
            check(result(connection.ask(by_query("own"))) == product(ROW), "what the other one has", when)
            check(connection.ask(request("GET", "/v2/tensors/all")).body == floats(3), "what both have", when)
            rows = entries(connection.ask(request("GET", "/v2/tensors")))
            check(rows["G"].get("lost") is True and rows["G"]["device"] == 1 and "lost" not in rows["own"] and "lost" not in rows["made"], "the list", when, rows)
    is_lost("down")
    with Connection(daemon) as connection:
        status(connection.ask(request("DELETE", "/v2/tensors/H")), 204, "a lost one")
        status(connection.ask(request("GET", "/v2/tensors/H")), 404, "forgotten")
        status(connection.ask(matrix("I", 1)), 503, "its worker is down")
        status(connection.ask(matrix("I", 0)), 201, "another one takes it")
    check(comes_to(daemon.states, ["ready", "ready"]) == ["ready", "ready"], "not started again")
    is_lost("back")
    is_lost("back")
    client = At(daemon)
    check([a.status for a in client.both(request("GET", "/v2/tensors/H"))] == [404, 404], "forgotten by both")
    check([result(a) for a in client.both(by_query("I"))] == [product(ROW)] * 2, "healed elsewhere")
    rows = [entries(a) for a in client.both(request("GET", "/v2/tensors"))]
    check([[row[name].get("device") for name in ("own", "made", "all", "I", "G")] for row in rows] == [[0, 0, None, 0, 1]] * 2, "where they are", rows)
    status(client.ask(0, matrix("G", 1)), 201, "healed")
    status(client.ask(0, request("PUT", "/v2/tensors/K?shape=4,2&datatype=FP32", [], MATRIX)), 201, "healed on both")
    check([result(a) for name in "GK" for a in client.both(by_query(name))] == [product(ROW)] * 4, "healed")
    check(all("device" not in entries(a)["K"] for a in client.both(request("GET", "/v2/tensors"))), "on both, it is no one's")
    os.kill(daemon.pid_of(1), signal.SIGTERM)  # drained: as one that ends
    answers = []
    with Connection(daemon) as connection:
        check(connection.ask(request("GET", "/v2/models/stats?device=0")).status in (200, 503), "a connection of worker 0")
        end = time.monotonic() + 20
        while (not answers or answers[-1] != 410) and time.monotonic() < end:
            answer = connection.ask(by_query("G"))
            if answer is None or answer.says_close():
                break
            answers.append(answer.status if answer.status != 200 else result(answer))
    check(set(answers) <= {product(ROW), 503, 410}, "as it drains", answers)
    check(comes_to(daemon.states, ["ready", "ready"]) == ["ready", "ready"], "not started again")
    client.close()
    client = At(daemon)
    check([a.status for a in client.both(by_query("G"))] == [410, 410] and [result(a) for a in client.both(by_query("K"))] == [product(ROW)] * 2, "behind a drain")
    status(client.ask(0, request("DELETE", "/v2/tensors/K")), 204)
    check([a.status for a in client.both(request("GET", "/v2/tensors/K"))] == [404, 404], "one of both that was lost on one")
    client.close()


def tenants():
    lines = ["root:%s" % ("r" * 20), "alice:%s tenant=alice tensors=3" % ("a" * 20), "bob:%s tenant=bob" % ("b" * 20)]
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        with Workers(*MEMORY, "--token-file", file.name) as daemon:
            alice, bob, root = (At(daemon, letter * 20) for letter in "abr")
            for client, device in ((alice, 0), (bob, 1)):
                for asked in (0, 1):
                    status(client.ask(asked, put("W", floats(device + 1), "&device=%d" % device, client.fields)), 201 - asked)
            check([c.value("W") for c in (alice, bob, root)] == [floats(1), floats(2), 404], "whose they are")
            for asked in (0, 1):
                status(root.ask(asked, request("GET", "/v2/tensors/W?tenant=bob", root.fields)), 200, "an operator")
                status(bob.ask(asked, request("GET", "/v2/tensors/W?tenant=alice", bob.fields)), 403, "a tenant")
                status(alice.ask(asked, put("V", floats(1), "&device=1")), 401, "no token")
                answer = alice.ask(asked, request("POST", "/v2/models/softmax/infer?INPUT0=@W&OUTPUT0=@mine", alice.fields))
                check(answer.status == 200 and answer.header("kernserve-tensor") == "mine", "an output", answer)
            names = [sorted(entries(a)) for c in (alice, bob, root) for a in c.both(request("GET", "/v2/tensors", c.fields))]
            check(names == [["W", "mine"]] * 2 + [["W"]] * 2 + [[]] * 2, "lists", names)
            status(root.ask(1, request("DELETE", "/v2/tensors/W?tenant=alice", root.fields)), 204, "an operator's DELETE")
            check(alice.value("W") == 404 and bob.value("W") == floats(2), "whose is gone")
            for client in (alice, bob, root):
                client.close()
            ended(daemon)


class Load(threading.Thread):
    """A client with one connection that names tensors of both workers, in every form; a result is known, or the name is lost."""

    def __init__(self, daemon, generator, end, may_lose):
        super().__init__()
        self.daemon_, self.generator, self.end, self.may_lose = daemon, generator, end, may_lose
        self.good = self.lost = self.cut = self.busy = 0
        self.wrong = []

    def run(self):
        connection = None
        while not self.end.is_set():
            row = tuple(float(self.generator.randrange(100)) for _ in range(4))
            device, n = self.generator.randrange(2), self.generator.randrange(NAMES)
            kind = self.generator.randrange(8)
            data = (FORMS[kind]("L%d.%d" % (device, n), row) if kind < 5
                    else request("GET", "/v2/tensors/L%d.%d" % (device, n)) if kind == 5
                    else by_query("both", row) if kind == 6 else request("POST", "/v2/models/softmax/infer?shape=2", [], floats(1, 1)))
            try:
                connection = connection or Connection(self.daemon_)
                answer = connection.ask(data)
            except OSError:
                answer = None
            wanted = product(row) if kind < 5 or kind == 6 else MATRIX if kind == 5 else floats(0.5, 0.5)
            if answer is None:
                self.cut += 1
            elif result(answer) == wanted:
                self.good += 1
            elif answer.status == 410 and device == 1 and kind < 6 and self.may_lose:
                self.lost += 1
            elif answer.status == 503 and device == 1 and kind < 6 and self.may_lose:
                self.busy += 1
            else:
                self.wrong.append((data[:120], answer))
            if answer is None or answer.says_close() or answer.closed:
                if connection:
                    connection.close()
                connection = None
        if connection:
            connection.close()


def under_load(generator):
    """Several clients, each with one connection, and names on both workers; then one worker is killed meanwhile."""
    seconds = 2 if sanitizer(daemon_path()) else 1.5
    with Workers(*MEMORY) as daemon:
        client = Client(daemon)

        def put_all(devices):
            for device in devices:
                for n in range(NAMES):
                    answer = client.ask(n % 2, matrix("L%d.%d" % (device, n), device))
                    check(answer is not None and answer.status in (200, 201), "put", device, n, answer)
        put_all((0, 1))
        status(client.ask(0, request("PUT", "/v2/tensors/both?shape=4,2&datatype=FP32", [], MATRIX)), 201)
        for kills in (False, True):
            end = threading.Event()
            loads = [Load(daemon, type(generator)(generator.getrandbits(32)), end, kills) for _ in range(CLIENTS)]
            before = handovers(daemon)
            for load in loads:
                load.start()
            time.sleep(seconds)
            if kills:
                os.kill(daemon.pid_of(1), signal.SIGKILL)
                check(comes_to(lambda: daemon.states()[1], "down") == "down", "not down")
                check(comes_to(daemon.states, ["ready", "ready"]) == ["ready", "ready"], "not started again")
                client.close()
                client = Client(daemon)
                put_all((1,))
                time.sleep(seconds / 2)
            end.set()
            for load in loads:
                load.join()
            wrong = sum((load.wrong for load in loads), [])
            sums = [sum(getattr(load, name) for load in loads) for name in ("good", "lost", "cut", "busy")]
            print("under load, %s: %d right, %d lost, %d cut, %d busy, %d handed over" % ("a kill" if kills else "no kill", *sums, handovers(daemon) - before))
            check(not wrong, "wrong answers", wrong[:3])
            check(sums[0] > 50 and (sums[2] <= CLIENTS if kills else sums[1:] == [0, 0, 0]), "answers", sums)
        for n in range(NAMES):
            check([result(a) for d in (0, 1) for a in client.both(by_query("L%d.%d" % (d, n)))] == [product(ROW)] * 4, "behind the load", n)
        client.close()
        check(comes_to(lambda: sum(daemon.open_connections()), 0) == 0, "connections are left")
        ended(daemon)


def changing(generator):
    """PUT, links and DELETE of the same names on either device and on all, by several clients at once: each answer is one of those there may be,
    none keeps a worker from what all do, and in the end both workers tell the same."""
    with Workers(*MEMORY) as daemon:
        end, wrong, kinds = threading.Event(), [], {}
        tags = {}
        setup = At(daemon)
        for n in range(4):  # what links lead to is there, on all, and goes
            made = setup.ask(n % 2, put("N%d" % (n % 3), floats(n)))
            check(made is not None and made.status in (200, 201), "the first ones", made)
            tags[n] = made.header("etag").strip('"')
        setup.close()

        def change(number):
            own, own_random = At(daemon), type(generator)(generator.getrandbits(32) + number)
            while not end.is_set():
                name, place = "N%d" % own_random.randrange(3), own_random.choice(["&device=0", "&device=1", "", "&evictable=1"])
                kind = own_random.choice(["put", "put", "new", "link", "many", "delete", "delete", "store"])
                headers, may = [], (200, 201, 409)
                if kind == "new":
                    headers, may = [("If-None-Match", "*")], (201, 409, 412)
                if kind == "delete":
                    data, may = request("DELETE", "/v2/tensors/" + name), (204, 404, 409)
                elif kind == "link":
                    data, may = request("PUT", "/v2/tensors/%s?etag=%s%s" % (name, tags[own_random.randrange(4)], place)), (200, 201, 404, 409)
                elif kind == "many":
                    data = request("PUT", "/v2/tensors?prefix=" + place, SAFE, write_safetensors({"N%d" % n: Tensor("FP32", [1], [float(number)]) for n in range(3)}))
                elif kind == "store":
                    data, may = request("POST", "/v2/models/reduce/infer?shape=1,1&datatype=FP32&axis=1&op=max&OUTPUT0=@" + name, [], floats(number)), (200, 409)
                else:
                    data = put(name, floats(number), place, headers)
                answer = own.ask(own_random.randrange(2), data)
                if answer is None or answer.status not in may:
                    wrong.append((kind, name, place, answer))
                else:
                    kinds[kind, answer.status] = kinds.get((kind, answer.status), 0) + 1
            own.close()
        threads = [threading.Thread(target=change, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(4)
        end.set()
        for thread in threads:
            thread.join()
        rest = [row for row in wrong if row[3] is None or row[3].status != 503]
        print("changing: %d busy, %s" % (len(wrong) - len(rest), " ".join("%s:%d %d" % (*key, kinds[key]) for key in sorted(kinds))))
        check(not rest, "an answer that cannot be", rest[:3])
        check(not daemon.says(r"did not make a change", 0), "a worker went its own way", daemon.said()[-1500:])
        check(daemon.states() == ["ready", "ready"], "a worker has ended", daemon.states())
        client = At(daemon)
        lists = [{n: (e.get("device"), e["etag"]) for n, e in entries(a).items()} for a in client.both(request("GET", "/v2/tensors"))]
        check(lists[0] == lists[1], "they do not tell the same", lists)
        for name in lists[0]:
            check(client.value(name) in [floats(i) for i in range(4)], "a value", name)
            status(client.ask(0, request("DELETE", "/v2/tensors/" + name)), 204)
        check([entries(a) for a in client.both(request("GET", "/v2/tensors"))] == [{}, {}], "something is left")
        client.close()
        ended(daemon)


def ended(daemon):
    check(daemon.stop() == 0, "SIGTERM")
    check("Sanitizer" not in daemon.said(), "a sanitizer says", daemon.said()[-2000:])


def timed(name, function, *arguments):
    begun = time.monotonic()
    function(*arguments)
    print("%s: %.1f s" % (name, time.monotonic() - begun), flush=True)


def main():
    generator = seed()
    with Workers(*MEMORY) as daemon:
        for function in (forms, documents, two_workers, outputs, evictable):
            timed(function.__name__, function, daemon)
        ended(daemon)
    with Workers(*MEMORY) as daemon:
        timed("lost", lost, daemon)
        ended(daemon)
    timed("tenants", tenants)
    timed("under_load", under_load, generator)
    timed("changing", changing, generator)
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
