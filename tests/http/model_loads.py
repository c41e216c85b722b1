#!/usr/bin/env python3
"""Models by Triton's repository protocol: config and files in base64, whole and byte by byte, against float64; what is refused; JSON
that is altered at random. At the end no byte is held. The unmodified client: tests/compat/tritonclient_methods.py.

model_loads.py KERNSERVE [BACKEND]     cpu, where none is named
"""

import base64
import json
import sys
import time

import refusals
from daemon import Daemon, check, comes_to, daemon_path, metric, request, seed, settle, wrongs
from files import altered, write_safetensors
from model_rows import OPTIONS, definition, node, put_model
from models import BACKEND, Client, float64_network, infer, network, network_definition, resident_bytes, scaled
from refusal_rows import STAYS, Row
from tensors import Tensor, random_tensor

ALTERED, LOADS = 400, 100
FACTOR = Tensor("FP32", [1], [2.0])
SCALE = dict(scaled(1.0), initializers=["k"])
WEIGHTS = write_safetensors({"k": FACTOR})


def encoded(data):
    return base64.b64encode(data).decode()


def body_of(config, files, **parameters):
    words = {} if config is None else {"config": config if isinstance(config, str) else json.dumps(config)}
    words.update({"file:" + name: encoded(data) for name, data in files.items()})
    return json.dumps({"parameters": dict(words, **parameters)}).encode()


def post(name, body, verb="load", headers=()):
    return request("POST", "/v2/repository/models/%s/%s" % (name, verb), headers, body)


def load(client, name, body, status=200):
    answer = client.ask(post(name, body))
    check(answer is not None and answer.status == status and (status != 200 or answer.body == b""), "load", name, answer)
    return answer


def files_of(document, tensors, folder="1/"):
    return {folder + "model.json": json.dumps(document).encode(), folder + "weights.safetensors": write_safetensors(tensors)}


def filed(document):
    return dict(document, initializers=["w0", "b0", "w1", "b1"])


def check_network(client, generator):
    """Each way to say it, and two files; nothing of a body's form matters."""
    weights = network(generator)
    document = filed(network_definition())
    split = dict(document, initializers=["w0", "b0", {"name": "w1", "file": "second.safetensors", "key": "w1"}, {"name": "b1", "file": "second.safetensors", "key": "bias"}])
    first, second = {k: weights[k] for k in ("w0", "b0")}, {"w1": weights["w1"], "bias": weights["b1"]}
    one = write_safetensors(weights, {"kernserve": json.dumps(document)})
    ways = [("files", body_of({"backend": "kernserve", "max_batch_size": 0}, files_of(document, weights))),
            ("files without a folder", body_of("{}", files_of(document, weights, ""))),
            ("the definition as config", body_of(document, {"1/weights.safetensors": write_safetensors(weights)})),
            ("a parameter", body_of({"parameters": {"definition": {"string_value": json.dumps(document)}}}, {"1/weights.safetensors": write_safetensors(weights)})),
            ("two files", body_of({}, dict(files_of(split, first), **{"1/second.safetensors": write_safetensors(second)}))),
            ("one file", body_of({}, {"1/model.safetensors": one})),
            ("slashes escaped", body_of({}, files_of(document, weights)).replace(b"/", b"\\/")),
            ("spaces", json.dumps(json.loads(body_of({}, files_of(document, weights))), indent=3).encode())]
    for way, body in ways:
        load(client, "filed", body)
        x = random_tensor(generator, "FP32", [generator.randint(1, 5), 64], 1.0)
        wanted = [v for row in float64_network(weights, [x.values[i * 64:i * 64 + 64] for i in range(x.shape[0])]) for v in row]
        got = infer(client, "filed", [("x", x)])
        worst = max(abs(a - b) for a, b in zip(got["p"].values, wanted)) if got else 1
        check(worst <= 1e-5, way, "differs from float64 by", worst)
        client.ask(post("filed", b"", "unload"))


def check_batch(client, generator):
    weights = network(generator)
    body = body_of({"name": "batched", "max_batch_size": 4}, files_of(filed(network_definition(max_batch=2)), weights))
    load(client, "batched", body)
    check(client.document("/v2/models/batched/config")["max_batch_size"] == 4, "the configuration's batch")
    infer(client, "batched", [("x", random_tensor(generator, "FP32", [4, 64]))])
    tag = client.get("/v2/models/batched/definition").header("etag")
    load(client, "batched", body.replace(b'\\"max_batch_size\\": 4', b'\\"max_batch_size\\": 3'))
    check(client.get("/v2/models/batched/definition").header("etag") != tag, "another batch is another model")
    client.ask(post("batched", b'{"parameters":{"unload_dependents":true}}', "unload"))


def check_pieces(daemon, client, generator):
    """Wherever the body is cut: base64 amid four letters, escapes, names."""
    body = body_of({"note": "\\ \" file:1/x"}, files_of(SCALE, {"k": FACTOR}), other={"file:a": [1, "b"]})
    for _ in range(12):
        cuts = sorted(generator.sample(range(1, len(body)), generator.choice([1, 5, 60])))
        parts = [body[a:b] for a, b in zip([0] + cuts, cuts + [len(body)])]
        with daemon.connect(30) as connection:
            connection.send(request("POST", "/v2/repository/models/pieces/load", [("Content-Length", len(body))])[:-4].replace(b"\r\nContent-Length: 0", b"") + b"\r\n\r\n")
            for part in parts:
                connection.send(part)
                time.sleep(0.001 if len(parts) < 20 else 0)
            answer = connection.ask(b"")
        check(answer is not None and answer.status == 200, "a body in pieces", answer)
        check(infer(client, "pieces", [("x", Tensor("FP32", [2], [1.0, 3.0]))])["y"].values == [2.0, 6.0], "pieces")
        client.ask(post("pieces", b"", "unload"))


def check_altered(client, generator):
    good, seen = body_of({"max_batch_size": 0}, files_of(SCALE, {"k": FACTOR})), {}
    for _ in range(ALTERED):
        body = altered(generator, good, 0, len(good), b'0123456789{}[]",:\\ =+/\x00\xff')
        answer = client.ask(post("altered", body))
        status = answer.status if answer is not None else None
        seen[status] = seen.get(status, 0) + 1
        check(status in (200, 400, 404, 413), "an altered body", status, body, answer)
    check(seen.get(400, 0) > ALTERED // 4, "altered bodies", seen)
    client.ask(post("altered", b"", "unload"))
    print("%d altered bodies: %s" % (ALTERED, seen))


# --- refusals -------------------------------------------------------------------------------------------------------------------

def refused(name, body, code, text=None, status=400, path="refused", verb="load", headers=()):
    return Row("load: " + name, post(path, body, verb, headers), status, code, STAYS, text)


def with_file(name, data=WEIGHTS):
    return body_of(SCALE, {"1/weights.safetensors": WEIGHTS, name: data})


def raw_file(text):
    return b'{"parameters":{"config":"{}","file:1/model.json":' + text + b"}}"


ROWS = [
    refused("unknown", b"{}", "model", "failed to load 'refused', failed to poll from model repository", 404),
    refused("unknown, no body", b"", "model", "failed to load 'refused', failed to poll", 404),
    refused("files without config", body_of(None, {"1/model.json": b"{}"}), "field", "config"),
    refused("config that is no text", b'{"parameters":{"config":{}}}', "field", "config"),
    refused("config that is no JSON", body_of("{", {}), "json"),
    refused("config that is a list", body_of("[]", {}), "field", "not an object"),
    refused("config with NaN", body_of('{"nodes":NaN}', {}), "json"),
    refused("config of another name", body_of({"name": "other"}, files_of(SCALE, {"k": FACTOR})), "name", "'other'"),
    refused("config with a batch that is text", body_of({"max_batch_size": "8"}, files_of(SCALE, {"k": FACTOR})), "field", "max_batch_size"),
    refused("config with a batch of -1", body_of({"max_batch_size": -1}, files_of(SCALE, {"k": FACTOR})), "field", "max_batch_size"),
    refused("config with a batch of 4097", body_of({"max_batch_size": 4097}, files_of(definition(), {"k": FACTOR})), "definition", "4096"),
    refused("config with a batch that the inputs have not", body_of({"max_batch_size": 4}, files_of(SCALE, {"k": FACTOR})), "definition", "'x'"),
    refused("config with a definition that is no text", body_of({"parameters": {"definition": {"string_value": 7}}}, {}), "field", "string_value"),
    refused("config, and nothing else", body_of({"backend": "onnxruntime"}, {}), "definition", "there is no definition"),
    refused("weights alone", body_of({}, {"1/weights.safetensors": WEIGHTS}), "definition", "there is no definition"),
    refused("one file without a definition", body_of({}, {"1/model.safetensors": WEIGHTS}), "definition", "there is no definition"),
    refused("base64 of other letters", raw_file(b'"ab-_"'), "field", "base64"),
    refused("base64 of five letters", raw_file(b'"abcde"'), "field", "base64"),
    refused("base64 with a letter behind its end", raw_file(b'"ab=c"'), "field", "base64"),
    refused("base64 of pads alone", raw_file(b'"===="'), "field", "base64"),
    refused("base64 with an escape", raw_file(b'"\\u0061bcd"'), "field", "base64"),
    refused("base64 that breaks off", b'{"parameters":{"config":"{}","file:1/model.json":"abcd', "json"),
    refused("a file that is a number", raw_file(b"7"), "field", "model.json"),
    refused("a file that is null", raw_file(b"null"), "field", "model.json"),
    refused("a file that is a list", raw_file(b'["abcd"]'), "field", "model.json"),
    refused("a file whose name is escaped", raw_file(b'"e30="').replace(b"model", b"mo\\u0064el"), "field", "model.json"),
    refused("a file given twice", with_file("weights.safetensors"), "name", "given twice"),
    refused("a member given twice", raw_file(b'"e30=","config":"{}"'), "json"),
    refused("an empty definition", raw_file(b'""'), "json"),
    refused("a definition over 1 MiB", body_of({}, {"1/model.json": b" " * ((1 << 20) + 1)}), "body_size", "1048577", 413),
    refused("a path", with_file("a/w.safetensors"), "name", "a/w.safetensors"),
    refused("the folder above", with_file("../x.safetensors"), "name", "../x.safetensors"),
    refused("the folder above of 1", with_file("1/../x.safetensors"), "name", "1/../x"),
    refused("an absolute path", with_file("/etc/passwd"), "name", "/etc/passwd"),
    refused("another version", with_file("2/model.json"), "name", "2/model.json"),
    refused("a hidden file", with_file("1/.safetensors"), "name", ".safetensors"),
    refused("an empty name", with_file(""), "name"),
    refused("another kind of file", with_file("1/labels.txt"), "name", "labels.txt"),
    refused("ONNX", with_file("1/model.onnx"), "definition", "ONNX"),
    refused("a name of 200 bytes", with_file("1/" + "w" * 200 + ".safetensors"), "field"),
    refused("65 files", body_of({}, {"%d.safetensors" % i: b"" for i in range(65)}), "count", "64"),
    refused("weights that are none", body_of(SCALE, {"1/weights.safetensors": b"nothing of the kind"}), "binary_size", "weights.safetensors"),
    refused("weights that end too early", body_of(SCALE, {"1/weights.safetensors": WEIGHTS[:-1]}), "binary_size", "weights.safetensors"),
    refused("weights with a byte too many", body_of(SCALE, {"1/weights.safetensors": WEIGHTS + b"x"}), "binary_size", "weights.safetensors"),
    refused("weights that are empty", body_of(SCALE, {"1/weights.safetensors": b""}), "binary_size", "weights.safetensors"),
    refused("a file that is not there", body_of(SCALE, {"1/other.safetensors": WEIGHTS}), "name", "weights.safetensors"),
    refused("a key that is not there", body_of(SCALE, {"1/weights.safetensors": write_safetensors({"z": FACTOR})}), "name", "no tensor 'k'"),
    refused("a node that cannot be", body_of(dict(SCALE, nodes=[node("matmul", ("x", "k"), ("y",), "up")]), {"1/weights.safetensors": WEIGHTS}), "shape", "node 'up'"),
    refused("no JSON", b"load", "field"),
    refused("JSON that breaks off", b"{", "json"),
    refused("a list", b"[]", "field"),
    refused("parameters that are a list", b'{"parameters":[]}', "field", "parameters"),
    refused("bytes behind it", b"{}x", "json"),
    refused("depth 17", b'{"a":' * 17 + b"1" + b"}" * 17, "json_limit"),
    refused("a text of 3 MiB", b'{"a":"' + b"x" * (3 << 20) + b'"}', "json_limit"),
    refused("over --max-json", body_of({}, {"1/w.safetensors": bytes(4 << 20)}), "body_size", "--max-json", 413),
    refused("compressed", b"{}", "encoding", None, 415, headers=[("Content-Encoding", "gzip")]),
    refused("an operation's name with config", body_of(SCALE, {"1/weights.safetensors": WEIGHTS}), "reserved", None, 409, path="softmax"),
    refused("a name that no model has", b"{}", "name", None, path=".x"),
    refused("a name of 64 bytes", body_of(SCALE, {"1/weights.safetensors": WEIGHTS}), "name", None, path="m" * 64),
    refused("a name with a slash", b"{}", "path", None, 404, path="a/b"),
    Row("load: by GET", request("GET", "/v2/repository/models/x/load"), 405, "method", STAYS),
    refused("unloading an operation", b'{"parameters":{"unload_dependents":false}}', "reserved", "softmax", 409, "softmax", "unload"),
    refused("unloading what is not there", b"{}", "model", "Request for unknown model: 'refused'", 404, verb="unload"),
    refused("unloading, a flag that is none", b'{"parameters":{"unload_dependents":1}}', "field", "unload_dependents", verb="unload"),
    refused("unloading, no JSON", b"{\"a\":1,}", "json", verb="unload"),
    Row("load: refused loads leave nothing", request("GET", "/v2/models/refused"), 404, "model", STAYS),
]


# --- memory -----------------------------------------------------------------------------------------------------------------------

def check_memory(daemon, client, generator, before):
    check(comes_to(lambda: resident_bytes(client), before) == before, "bytes of contents", resident_bytes(client), "and not", before)
    for i in range(LOADS):
        load(client, "again", body_of({}, files_of(SCALE, {"k": Tensor("FP32", [1], [float(i)])})))
        got = infer(client, "again", [("x", Tensor("FP32", [3], [1.0, 2.0, 3.0]))])["y"]
        check(got.values == [i * 1.0, i * 2.0, i * 3.0], "load", i, got.values)
        load(client, "again", body_of({}, files_of(SCALE, {"z": random_tensor(generator, "FP32", [30000])})), 400)
    client.ask(post("again", b"", "unload"))
    check(comes_to(lambda: resident_bytes(client), before) == before, "bytes behind loads", resident_bytes(client), before)
    body = body_of({}, files_of(SCALE, {"k": random_tensor(generator, "FP32", [60000])}))
    for end in (100, len(body) // 2, len(body) - 1):
        with daemon.connect(30) as connection:
            connection.send(post("again", body)[:end])
    in_flight = lambda: metric(daemon.metrics(), "kernserve_inflight_bytes")
    check(comes_to(in_flight, 0) == 0, "bytes of files in flight", in_flight())


# --- limits -----------------------------------------------------------------------------------------------------------------------

def long_chain():
    """Nodes whose rules are run for each of the lengths that are tried: a load that takes a while."""
    nodes = [{"name": "n%d" % i, "op": "matmul", "inputs": ["v%d" % i if i else "x", "k"], "outputs": ["v%d" % (i + 1)]} for i in range(600)]
    return {"format": 1, "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}], "nodes": nodes, "outputs": [{"name": "v600"}],
            "initializers": [{"name": "k", "datatype": "FP32", "shape": [4, 4], "data": [1.0] * 16}]}


def check_waiting(daemon, client):
    """16 loads wait; what comes beside them is sent away, and no load is lost."""
    asked = put_model("waits", long_chain())
    connections = [daemon.connect(60) for _ in range(60)]
    for connection in connections:
        connection.send(asked)
    answers = [connection.ask(b"") for connection in connections]
    statuses = [answer.status if answer is not None else None for answer in answers]
    check(set(statuses) <= {200, 201, 503} and statuses.count(201) == 1 and statuses.count(200) + 1 >= 16, "loads at once", sorted(set(statuses)), statuses.count(200))
    check(503 in statuses, "no load was sent away: 60 at once")
    check(all(b"16 loads wait" in a.body and a.header("retry-after") for a in answers if a is not None and a.status == 503), "the sentence")
    client.ask(post("waits", b"", "unload"))


def loads_at_once(daemon, client, names):
    """The same load by many names. Whether a request to one of them was seen while it was loaded, and whose waiting was too long."""
    connections = [daemon.connect(60) for _ in names]
    for name, connection in zip(names, connections):
        connection.send(put_model(name, long_chain()))
    seen = False
    for name in reversed(names):  # the last one's load begins last
        ask = request("POST", "/v2/models/%s/infer?shape=1,4" % name, (), bytes(16))
        answer, ready, after = (client.ask(asked) for asked in (ask, request("GET", "/v2/models/%s/ready" % name), ask))
        if answer.header("kernserve-error") == after.header("kernserve-error") == "loading":
            check(answer.status == 503 and answer.header("retry-after") and b"'%s' is being loaded" % name.encode() in answer.body, "while it is loaded", answer)
            check(ready.status == 503, "ready, while it is loaded", ready)
            seen = True
    late = []
    for name, connection in zip(names, connections):
        answer = connection.ask(b"")
        check(answer is not None and answer.status in (201, 504), "--load-timeout", answer)
        if answer is not None and answer.status == 504:
            check(answer.header("kernserve-error") == "deadline" and name.encode() in answer.body, "--load-timeout", answer)
            late.append(name)
    return seen, late


def check_loading():
    """A request to a model whose first load is under way, and one that waits longer for its load than it may."""
    with Daemon(daemon_path(), *OPTIONS, "--threads", "1", "--load-timeout", "1ms", "--backend", BACKEND) as daemon:
        client, seen, late = Client(daemon), False, []
        for turn in range(18):  # where other work keeps this client waiting, all are loaded before it looks; there are names for no more
            names = ["late%d-%d" % (turn, i) for i in range(12)]
            saw, behind = loads_at_once(daemon, client, names)
            seen, late = seen or saw, late + behind
            if seen and late:
                break
        check(seen, "no request was seen to come while a model is loaded")
        check(late, "no load took longer than --load-timeout")
        for name in late[-1:]:
            ask = request("POST", "/v2/models/%s/infer?shape=1,4" % name, (), bytes(16))
            check(comes_to(lambda: client.ask(ask).status, 200) == 200, "a load that nobody waits for goes on")
            gone, answer = client.ask(post(name, b"", "unload")), client.ask(ask)
            check(gone.status == 200 and answer.status == 404, "behind an unload", gone, answer)
        check(daemon.stop() == 0, "the daemon's exit")


def check_names(client):
    """Names have places for good; what is there may be replaced when all are taken."""
    for i in range(257):
        answer = client.ask(put_model("name%d" % i, scaled(1.0)))
        if answer is None or answer.status != 201:
            break
    check(answer is not None and answer.status == 507 and answer.header("kernserve-error") == "quota" and b"256" in answer.body, "names", i, answer)
    check(client.ask(put_model("name0", scaled(3.0))).status == 200, "one that is there")
    check(infer(client, "name0", [("x", Tensor("FP32", [1], [1.0]))])["y"].values == [3.0], "the new one")


def main():
    generator = seed()
    check_loading()
    with Daemon(daemon_path(), *OPTIONS, "--backend", BACKEND) as daemon:
        client = Client(daemon)
        check_waiting(daemon, client)
        check_names(client)
        check(daemon.stop() == 0, "the daemon's exit")
    with Daemon(daemon_path(), *OPTIONS, "--max-json", "4M", "--backend", BACKEND) as daemon:
        client = Client(daemon)
        before = resident_bytes(client)
        check_network(client, generator)
        check_batch(client, generator)
        check_pieces(daemon, client, generator)
        load(client, "softmax", b"{}")
        check(refusals.walk(daemon, ROWS) == 0, "rows that are refused")
        check_altered(client, generator)
        check_memory(daemon, client, generator, before)
        check(settle(daemon) == 0, "bytes of slots in use")
        check(daemon.stop() == 0, "the daemon's exit")
    with Daemon(daemon_path(), *OPTIONS, "--inflight-bytes", "1M", "--backend", BACKEND) as daemon:
        client = Client(daemon)
        body = body_of({}, files_of(SCALE, {"k": Tensor("FP32", [400000], [1.0] * 400000)}))
        for _ in range(3):
            answer = client.ask(post("large", body))
            check(answer is not None and answer.status == 503 and b"inflight-bytes" in answer.body, "--inflight-bytes", answer)
        load(client, "small", body_of({}, files_of(SCALE, {"k": FACTOR})))
        check(daemon.stop() == 0, "the daemon's exit")
    with Daemon(daemon_path(), "--no-resident", "--backend", BACKEND) as daemon:
        answer = Client(daemon).ask(post("x", b"{}"))
        check(answer is not None and answer.status == 501, "--no-resident", answer)
    return wrongs()


if __name__ == "__main__":
    sys.exit(main())
