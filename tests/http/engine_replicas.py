#!/usr/bin/env python3
"""--devices: what stays is in every worker, or in none. Tensors and models that clients PUT, DELETE, load and unload at one worker are the
same at the other one with the answer; a worker that is killed, stopped or full takes part or refuses for all; one that is started again
has what the other one has; a tensor's time is over once no worker has used it.

engine_replicas.py DAEMON
"""

import base64
import json
import os
import signal
import struct
import sys
import tempfile
import threading
import time

from daemon import Connection, check, chunked, comes_to, metric, request, seed, wrongs
from engine_workers import Workers, children, stop
from files import write_npy, write_safetensors
from model_loads import body_of, files_of
from models import scaled
from tensors import Tensor

SAFE = [("Content-Type", "application/x-safetensors")]
KILLS = 3  # of a daemon: at most five starts in a minute
MEMORY = ("--resident-bytes", "64M", "--inflight-bytes", "40M")


def floats(*values):
    return struct.pack("<%df" % len(values), *values)


def put(name, data, query="", headers=()):
    return request("PUT", "/v2/tensors/%s?shape=%d&datatype=FP32%s" % (name, len(data) // 4, query), headers, data)


class Client:
    """A connection to each worker: the connection goes to whom its first request is about."""

    def __init__(self, daemon, token=None):
        self.daemon, self.fields = daemon, [("Authorization", "Bearer " + token)] if token else []
        self.at = [None, None]

    def _dial(self, device):
        connection = Connection(self.daemon, 60)
        answer = connection.ask(request("GET", "/v2/models/stats?device=%d" % device, self.fields))
        if answer is not None and answer.status == 200:
            self.at[device] = connection
        else:
            connection.close()  # it is down

    def ask(self, device, data):
        if self.at[device] is None:
            self._dial(device)
        if self.at[device] is None:
            return None
        answer = self.at[device].ask(data)
        if answer is None or answer.says_close() or answer.closed:
            self.at[device].close()
            self.at[device] = None
        return answer

    def both(self, data):
        return [self.ask(device, data) for device in (0, 1)]

    def value(self, name):
        """The tensor's bytes, or the status, which are to be the same in both."""
        answers = [a and (a.body if a.status == 200 else a.status) for a in self.both(request("GET", "/v2/tensors/" + name, self.fields))]
        check(answers[0] == answers[1], "not the same in both", name, [repr(a)[:80] for a in answers])
        return answers[0]

    def lists(self):
        return [[(e["name"], e["etag"], e.get("lost", False)) for e in json.loads(a.body)["tensors"]] for a in self.both(request("GET", "/v2/tensors?limit=10000", self.fields))]

    def names(self):
        lists = self.lists()
        check(lists[0] == lists[1], "lists differ", *lists)
        return [row[0] for row in lists[0]]

    def computed(self, model="softmax", tensor=None, data=b"", query=""):
        target = "/v2/models/%s/infer?%s" % (model, "INPUT0=@" + tensor if tensor else query)
        answers = [a and (a.body if a.status == 200 else a.status) for a in self.both(request("POST", target, self.fields, data))]
        check(answers[0] == answers[1], "results differ", model, tensor, answers)
        return answers[0]

    def close(self):
        for connection in self.at:
            if connection:
                connection.close()


def status(answer, wanted, *words):
    check(answer is not None and answer.status == wanted, "status", wanted, *words, answer)
    return answer


def tensors(client):
    one, two = floats(1, 2, 3), floats(4, 5, 6)
    for device in (0, 1):
        name = "W%d" % device
        answer = status(client.ask(device, put(name, one)), 201, "created")
        entry = json.loads(answer.body)
        check(answer.header("location") == "/v2/tensors/" + name and answer.header("etag") == '"%s"' % entry["etag"] and answer.header("kernserve-generation") == "1",
              "fields of the answer", answer.headers)
        check(client.value(name) == one, "a new tensor", name)
        status(client.ask(1 - device, put(name, one)), 200, "unchanged")
        status(client.ask(device, put(name, two)), 200, "replaced")
        check(client.value(name) == two, "a replaced tensor")
        check(client.computed(tensor=name) == client.computed(query="shape=3", data=two), "a result by name", name)
        status(client.ask(device, put(name, one, headers=[("If-None-Match", "*")])), 412, "If-None-Match")
        status(client.ask(device, put(name, one, headers=[("If-Match", '"%s"' % entry["etag"])])), 412, "If-Match")
        check(client.value(name) == two, "a refused change")
        status(client.ask(device, request("PUT", "/v2/tensors/L?etag=" + json.loads(client.ask(0, put("X", one)).body)["etag"])), 201, "link")
        check(client.value("L") == one, "a link")
        status(client.ask(device, request("PUT", "/v2/tensors/M?etag=" + "0" * 64)), 404, "a link to nothing")
        status(client.ask(device, chunked("PUT", "/v2/tensors/C?shape=3&datatype=FP32", [], [two[:5], two[5:]])), 201, "chunked")
        status(client.ask(device, request("PUT", "/v2/tensors/N", [("Content-Type", "application/x-npy")], write_npy(Tensor("FP32", [3], [4, 5, 6])))), 201, "npy")
        check(client.value("C") == client.value("N") == two, "other forms")
        many = write_safetensors({"a": Tensor("FP32", [1], [1.0]), "b": Tensor("FP32", [2], [1.0, 2.0])})
        answer = status(client.ask(device, request("PUT", "/v2/tensors?prefix=p.", SAFE, many)), 201, "many")
        check([e["name"] for e in json.loads(answer.body)["tensors"]] == ["p.a", "p.b"] and client.value("p.b") == floats(1, 2), "many tensors", answer)
        status(client.ask(device, request("DELETE", "/v2/tensors/p.a", [("If-Match", '"%s"' % ("1" * 64))])), 412, "DELETE If-Match")
        check(client.value("p.a") == floats(1), "a refused DELETE")
        for gone in ("p.a", "p.b", "L", "X", "C", "N", name):
            status(client.ask(device, request("DELETE", "/v2/tensors/" + gone)), 204, "DELETE")
            check(client.value(gone) == 404, "deleted", gone)
        status(client.ask(device, request("DELETE", "/v2/tensors/" + name)), 404, "DELETE of none")
    check(client.names() == [], "something is left", client.names())


def held(daemon):
    """Of all workers. On a busy host one may not have written its part in the time that /metrics waits for it: then it is less."""
    return metric(daemon.admin("/metrics").body.decode(), "kernserve_resident_tensors") or 0


def refused(client, daemon):
    """By one is by all, and nothing has changed."""
    before = max(held(daemon) for _ in range(3))
    rows = ((put("a.b-", b"", "&shpae=3"), 400, "parameter"),
            (request("PUT", "/v2/tensors/W?shape=2&datatype=FP32", [], floats(1)), 400, "binary_size"),
            (put("W", floats(1), headers=[("Repr-Digest", "sha-256=:%s:" % base64.b64encode(bytes(32)).decode())]), 400, "digest"),
            (put("W", floats(1), "&ttl=-1"), 400, "parameter"), (put(".W", floats(1)), 400, "name"),
            (request("PUT", "/v2/tensors/W?shape=25165824&datatype=FP32", [], b""), 400, "binary_size"),
            (request("PUT", "/v2/tensors/W?shape=12582912&datatype=FP32", [("Content-Length", str(48 << 20)), ("Expect", "100-continue")]), 413, "body_size"),
            (request("PUT", "/v2/tensors/W?shape=33554432&datatype=FP32", [("Content-Length", str(1 << 27)), ("Expect", "100-continue")]), 507, "resident_full"),
            (request("PUT", "/v2/models/softmax", [], b"{}"), 409, "reserved"), (request("PUT", "/v2/models/m", [], b"{}"), 400, "definition"),
            (request("DELETE", "/v2/models/m"), 404, "model"), (request("POST", "/v2/repository/models/m/unload"), 404, "model"),
            (request("POST", "/v2/repository/models/m/load", [], b"{}"), 404, "model"), (request("POST", "/v2/logging", [], b"{}"), 501, "unsupported"))
    for data, wanted, code in rows:
        for device in (0, 1):
            answer = status(client.ask(device, data), wanted, data[:60])
            check(answer.header("kernserve-error") == code, "code", code, data[:60], answer)
    for device in (0, 1):  # room for two of these, not for three
        for name, wanted in (("big0", 201), ("big1", 201), ("big2", 507)):
            answer = status(client.ask(device, put(name, bytes([len(name) + device]) + os.urandom(3) + bytes((24 << 20) - 4))), wanted, name)
        check(b"tensor 'big2' needs 25165824 bytes" in answer.body and client.value("big2") == 404, "the budget", answer)
        for name in ("big0", "big1"):
            status(client.ask(device, request("DELETE", "/v2/tensors/" + name)), 204)
    check(client.names() == [], "a refusal left something", client.names())
    left = comes_to(lambda: held(daemon), before)
    check(left == before, "a refusal left a tensor", before, left)


def factor(client, name):
    made = client.computed(name, data=floats(1), query="shape=1")
    return struct.unpack("<f", made)[0] if isinstance(made, bytes) else made


def loaded(client):
    document = scaled(2.0)
    filed = dict(scaled(1.0), initializers=["k"])
    for device in (0, 1):
        answer = status(client.ask(device, request("PUT", "/v2/models/m", [], json.dumps(document).encode())), 201, "PUT")
        check(json.loads(answer.body)["state"] == "READY" and answer.header("etag"), "the answer of a load", answer)
        check(factor(client, "m") == 2, "a model")
        status(client.ask(1 - device, request("PUT", "/v2/models/m", [], json.dumps(scaled(3.0)).encode())), 200, "replaced")
        check(factor(client, "m") == 3, "a replaced model")
        status(client.ask(device, request("PUT", "/v2/models/m", [], b'{"format":1}')), 400, "a bad one")
        check(factor(client, "m") == 3, "a refused load changes nothing")
        lists = [[(row["name"], row.get("state")) for row in json.loads(a.body)] for a in client.both(request("POST", "/v2/repository/index"))]
        check(lists[0] == lists[1] and ("m", "READY") in lists[0] and len({a.body for a in client.both(request("GET", "/v2/models"))}) == 1, "the lists", lists)
        status(client.ask(device, request("DELETE", "/v2/models/m")), 204, "DELETE")
        asked = request("POST", "/v2/models/m/infer?shape=1,1&datatype=FP32", [], floats(1))
        got = comes_to(lambda: [a.status for a in client.both(asked)], [404, 404])  # 503 while the other worker gives the refused load up
        check(got == [404, 404], "a deleted model", got)
        whole = write_safetensors({"k": Tensor("FP32", [1], [5.0])}, metadata={"kernserve": json.dumps(filed)})
        status(client.ask(device, request("PUT", "/v2/models/m", SAFE, whole)), 201, "a file")
        check(factor(client, "m") == 5, "a model in a file")
        status(client.ask(device, request("POST", "/v2/repository/models/m/unload")), 200, "unload")
        status(client.ask(device, request("POST", "/v2/repository/models/r/load", [], body_of({}, files_of(filed, {"k": Tensor("FP32", [1], [7.0])})))), 200, "load")
        check(factor(client, "m") == 404 and factor(client, "r") == 7, "the repository's protocol")
        status(client.ask(1 - device, request("POST", "/v2/repository/models/r/load", [], b"{}")), 200, "loaded already")
        status(client.ask(1 - device, request("POST", "/v2/repository/models/r/unload")), 200, "unload")


def in_use(client):
    """A name that a model holds, or that goes while requests name it: those that began have the old bytes, whole."""
    status(client.ask(0, put("k", floats(4))), 201)
    status(client.ask(1, request("PUT", "/v2/models/holds", [], json.dumps(dict(scaled(1.0), initializers=[{"name": "k", "tensor": "k"}])).encode())), 201)
    for verb in (put("k", floats(9)), request("DELETE", "/v2/tensors/k")):
        check(client.ask(0, verb).status in (200, 204) and factor(client, "holds") == 4, "a model lost what it holds", verb[:30])
    status(client.ask(0, request("DELETE", "/v2/models/holds")), 204)
    old, new = floats(*range(64)), floats(*range(64, 128))
    results = [client.computed(query="shape=64&axis=-1", data=data) for data in (old, new)]
    end, wrong = threading.Event(), []
    status(client.ask(0, put("W", old)), 201)

    def read(device):
        own = Client(client.daemon)
        while not end.is_set():
            answer = own.ask(device, request("POST", "/v2/models/softmax/infer?INPUT0=@W"))
            if not (answer and answer.status == 200 and answer.body in results):
                wrong.append(answer)
        own.close()
    threads = [threading.Thread(target=read, args=(device,)) for device in (0, 1)]
    for thread in threads:
        thread.start()
    for i in range(40):
        data, wanted = ((new, results[1]), (old, results[0]))[i % 2]
        status(client.ask(i // 2 % 2, put("W", data)), 200)
        check(client.computed(tensor="W") == wanted, "a change is not there with its answer")
    end.set()
    for thread in threads:
        thread.join()
    check(not wrong, "neither the old nor the new bytes", wrong[:3])
    status(client.ask(0, request("DELETE", "/v2/tensors/W")), 204)


def counted(daemon):
    """A request is counted once, where it came in."""
    def requests():
        return metric(daemon.admin("/metrics").body.decode(), "kernserve_http_requests_total", handler="tensors", method="PUT", code="201")
    before = requests()
    client = Client(daemon)
    status(client.ask(0, put("counted", floats(1))), 201)
    status(client.ask(1, request("DELETE", "/v2/tensors/counted")), 204)
    check(comes_to(lambda: requests() - before, 1) == 1, "counted", before, requests())
    check(comes_to(daemon.open_connections, [1, 1]) == [1, 1], "connections of workers stay", daemon.open_connections())
    client.close()


def times(client):
    """Used in one worker only, it stays in both; unused, it goes in both."""
    status(client.ask(0, put("kept", floats(1), "&ttl=2")), 201)
    status(client.ask(1, put("gone", floats(1), "&ttl=1")), 201)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        status(client.ask(1, request("POST", "/v2/models/softmax/infer?INPUT0=@kept")), 200, "used all the time")
        time.sleep(0.3)
    check(client.names() == ["kept"], "by their time", client.names())
    check(comes_to(client.lists, [[], []], 8) == [[], []], "it does not go", client.names())


def cut_short(daemon, client):
    """A body of which half has come, and then the client goes, its worker is killed, or the other one."""
    data = floats(*range(1 << 16))
    whole = put("half", data)
    connection = client.at[0] or client.ask(0, request("GET", "/v2/tensors")) and client.at[0]
    connection.send(whole[:len(whole) // 2])
    connection.close()
    client.at[0] = None
    check(client.value("half") == 404, "a body that broke off")
    for device in (1, 0):
        client.ask(0, request("GET", "/v2/tensors"))
        client.at[0].send(whole[:len(whole) // 2])
        time.sleep(0.05)
        os.kill(daemon.pid_of(device), signal.SIGKILL)
        client.at[0].send(whole[len(whole) // 2:])
        answer = client.at[0].answer()
        check((answer is not None) == (device == 1) and (answer is None or answer.status == 201), "half a body, killed", device, answer)
        check(comes_to(daemon.states, ["ready", "ready"]) == ["ready", "ready"], "not started again")
        client.close()
        client.at = [None, None]
        check(client.value("half") == data, "it is not in both", device)
        if device == 1:
            status(client.ask(1, request("DELETE", "/v2/tensors/half")), 204)
            status(client.ask(1, put("half", data)), 201)


def stopped(daemon, client):
    """A worker that does not go on keeps nothing from being as it was."""
    pid = daemon.pid_of(1)
    status(client.ask(0, put("S", floats(1))), 201)
    stop(pid)
    answer = status(client.ask(0, put("S", floats(2))), 503, "a worker is stopped")
    check(b"device 1 does not go on" in answer.body and answer.header("retry-after") == "1", "the sentence", answer)
    os.kill(pid, signal.SIGCONT)
    check(comes_to(daemon.states, ["ready", "ready"]) == ["ready", "ready"], "it does not go on")
    check(client.value("S") == floats(1), "a refused change was made")
    status(client.ask(1, put("S", floats(3))), 200)
    check(client.value("S") == floats(3), "behind that")


def killed_amid(generator):
    """Changes all the time at both workers while these are killed: what was answered is in both, with its last answered value."""
    with Workers(*MEMORY) as daemon:
        end, known, unsure = threading.Event(), {}, {}

        def change(device):
            client, i = Client(daemon), 0
            while not end.is_set():
                name, i = "T%d.%d" % (device, i % 7), i + 1
                deletes = i % 5 == 0
                data = floats(device, i, *range(generator.randrange(3000)))
                answer = client.ask(device, request("DELETE", "/v2/tensors/" + name) if deletes else put(name, data))
                if answer is not None and answer.status in (200, 201, 204, 404):
                    known[name] = 404 if deletes else data
                    unsure.pop(name, None)
                elif answer is None:
                    unsure.setdefault(name, []).append(404 if deletes else data)
                else:
                    check(answer.status == 503, "an answer amid a kill", answer)
                    time.sleep(0.02)
            client.close()
        threads = [threading.Thread(target=change, args=(device,)) for device in (0, 1)]
        for thread in threads:
            thread.start()
        status(Client(daemon).ask(0, request("PUT", "/v2/models/m", [], json.dumps(scaled(3.0)).encode())), 201)
        for kill in range(KILLS):
            time.sleep(0.2 + generator.random() / 10)
            os.kill(daemon.pid_of(kill % 2), signal.SIGKILL)
            comes_to(lambda: daemon.states()[kill % 2], "down")
            comes_to(daemon.states, ["ready", "ready"])
        time.sleep(0.3)
        end.set()
        for thread in threads:
            thread.join()
        check(daemon.states() == ["ready", "ready"], "not both are back", daemon.states())
        client = Client(daemon)
        check(factor(client, "m") == 3, "a model is lost")
        for name, value in known.items():
            check(client.value(name) in [value] + unsure.get(name, []), "a tensor is lost, or another one", name)
        print("killed amid changes: %d names, %d of them unsure" % (len(known), len(unsure)))
        client.close()
        check(not daemon.says(r"did not make a change", 0), "a worker went its own way")


def come_back(daemon, client):
    """One of them: as the other one. Both: what was put is lost, and says so; a PUT heals it in both."""
    status(client.ask(0, put("B", floats(1, 2), "&ttl=100&for=matmul")), 201)
    status(client.ask(0, request("PUT", "/v2/models/b", [], json.dumps(scaled(4.0)).encode())), 201)
    status(client.ask(1, request("POST", "/v2/repository/models/b/load", [], b"{}")), 200, "a load of what is there takes nobody's place")
    made = status(client.ask(1, request("PUT", "/v2/models/c", [], json.dumps(scaled(6.0)).encode())), 201)
    status(client.ask(1, request("PUT", "/v2/models/c", [("If-Match", made.header("etag"))], json.dumps(scaled(7.0)).encode())), 200, "a condition that held once")
    os.kill(daemon.pid_of(0), signal.SIGKILL)
    check(comes_to(daemon.states, ["down", "ready"]) == ["down", "ready"], "not down")
    status(client.ask(1, put("meanwhile", floats(8))), 201, "while one is down")
    status(client.ask(1, request("DELETE", "/v2/tensors/S")), 204, "while one is down")
    check(comes_to(daemon.states, ["ready", "ready"]) == ["ready", "ready"], "not started again")
    client.close()
    client.at = [None, None]
    check(client.value("B") == floats(1, 2) and client.value("meanwhile") == floats(8) and client.value("S") == 404 and factor(client, "b") == 4, "it has not what the other one has")
    check(factor(client, "c") == 7, "a model of a PUT with a condition")
    ttls = [json.loads(a.body)["ttl"] for a in client.both(request("GET", "/v2/tensors/B", [("Accept", "application/json")]))]
    check(ttls == [100, 100], "ttl", ttls)
    for device in (0, 1):
        os.kill(daemon.pid_of(device), signal.SIGKILL)
    client.close()
    client.at = [None, None]
    comes_to(daemon.states, ["down", "down"], 2)
    check(comes_to(daemon.states, ["ready", "ready"]) == ["ready", "ready"], "both not started again")
    check(client.value("B") == 410, "lost")
    status(client.ask(1, put("B", floats(6))), 201, "put again")
    check(client.value("B") == floats(6), "healed")


def stopped_as_it_joins():
    """One that is stopped while it is given tensors holds up changes no longer than any other one; asked to stop, it ends and comes back."""
    with Workers(*MEMORY) as daemon:
        client = Client(daemon)
        many = {"%d" % i: Tensor("FP32", [1], [float(i)]) for i in range(600)}
        status(client.ask(0, request("PUT", "/v2/tensors?prefix=J", SAFE, write_safetensors(many))), 201)
        for number in (signal.SIGSTOP, signal.SIGTERM):
            old = children(daemon.process.pid)
            os.kill(daemon.pid_of(1), signal.SIGKILL)
            check(comes_to(lambda: len(set(children(daemon.process.pid)) - set(old)), 1) == 1, "not started again")
            pid = (set(children(daemon.process.pid)) - set(old)).pop()
            comes_to(lambda: daemon.states()[1] in ("warming", "ready"), True)
            time.sleep(0.1)  # amid the tensors
            os.kill(pid, number)
            begun = time.monotonic()
            answer = client.ask(0, put("meanwhile", floats(number)))
            made = answer is not None and answer.status in (200, 201)
            check(made or (answer is not None and answer.status == 503), "as another one joins", answer)  # 503: it had joined, and is stuck
            check(time.monotonic() - begun < 8, "one that joins holds up a change", time.monotonic() - begun)
            if number == signal.SIGSTOP:
                os.kill(pid, signal.SIGCONT)
            else:
                check(made and comes_to(lambda: pid in children(daemon.process.pid), False, 10) is False, "it does not end", answer)
            check(comes_to(daemon.states, ["ready", "ready"], 10) == ["ready", "ready"], "not both are ready", daemon.states())
            client.close()
            client = Client(daemon)
            check((not made or client.value("meanwhile") == floats(number)) and len(client.names()) >= 600, "it has not what the other one has")
        client.close()
        check(daemon.stop() == 0, "SIGTERM")


def tenants():
    lines = ["root:%s" % ("r" * 20), "alice:%s tenant=alice bytes=1M tensors=2 models=1" % ("a" * 20), "bob:%s tenant=bob" % ("b" * 20)]
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        with Workers(*MEMORY, "--token-file", file.name) as daemon:
            alice, bob = Client(daemon, "a" * 20), Client(daemon, "b" * 20)
            for client, value in ((alice, 1), (bob, 2)):
                status(client.ask(value - 1, put("W", floats(value), headers=client.fields)), 201)
                status(client.ask(value - 1, request("PUT", "/v2/models/m", client.fields, json.dumps(scaled(float(value))).encode())), 201)
            status(alice.ask(0, put("V", floats(5), headers=alice.fields)), 201)
            for device in (0, 1):
                status(alice.ask(device, put("U", floats(5), headers=alice.fields)), 507, "a quota")
                status(alice.ask(device, request("PUT", "/v2/models/n", alice.fields, json.dumps(scaled(1.0)).encode())), 507, "a quota of models")
                status(alice.ask(device, put("U", floats(5), "&tenant=bob", alice.fields)), 400, "a member that clients do not have")
            status(alice.ask(0, put("U", floats(5))), 401, "no token")
            os.kill(children(daemon.process.pid)[1], signal.SIGKILL)
            check(daemon.says(r"started again; the others serve on"), "not killed")
            check(comes_to(daemon.states, ["ready", "ready"]) == ["ready", "ready"], "not started again")
            alice.close(), bob.close()
            alice, bob = Client(daemon, "a" * 20), Client(daemon, "b" * 20)
            check([client.value("W") for client in (alice, bob)] == [floats(1), floats(2)], "whose they are")
            check([factor(client, "m") for client in (alice, bob)] == [1, 2] and alice.value("V") == floats(5) and bob.value("V") == 404, "behind a new start")


def timed(name, function, *arguments):
    begun = time.monotonic()
    function(*arguments)
    print("%s: %.1f s" % (name, time.monotonic() - begun))


def main():
    generator = seed()
    with Workers(*MEMORY) as daemon:
        client = Client(daemon)
        timed("tensors", tensors, client)
        timed("refused", refused, client, daemon)
        timed("loaded", loaded, client)
        timed("in_use", in_use, client)
        timed("times", times, client)
        client.close()
        timed("counted", counted, daemon)
        client = Client(daemon)
        timed("stopped", stopped, daemon, client)
        timed("cut_short", cut_short, daemon, client)
        client.close()
        check(daemon.stop() == 0, "SIGTERM")
    with Workers(*MEMORY) as daemon:
        client = Client(daemon)
        status(client.ask(0, put("S", floats(1))), 201)
        timed("come_back", come_back, daemon, client)
        client.close()
    timed("killed_amid", killed_amid, generator)
    timed("stopped_as_it_joins", stopped_as_it_joins)
    timed("tenants", tenants)
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
