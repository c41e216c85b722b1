#!/usr/bin/env python3
"""Models that come as one safetensors file: a small network against float64, initializers of every datatype byte for byte, files that
come in pieces, chunked, or break off, files that are altered at random, and what is refused. At the end no byte is held.

model_files.py KERNSERVE [BACKEND]     cpu, where none is named
"""

import json
import struct
import sys

import refusals
from daemon import Daemon, check, chunked, comes_to, daemon_path, request, seed, settle, wrongs
from files import SAFE, altered, safetensors_head, write_safetensors
from model_rows import OPTIONS, definition, node
from models import BACKEND, Client, float64_network, infer, network, network_definition, resident_bytes, scaled
from refusal_rows import CLOSES, STAYS, Row
from tensors import Tensor, random_tensor

TYPE = ("Content-Type", "application/x-safetensors")
ALTERED, LOADS = 400, 100


def put_file(name, body, *headers):
    return request("PUT", "/v2/models/" + name, (TYPE,) + headers, body)


def model_file(document, tensors, order=None):
    return write_safetensors(tensors, {"kernserve": json.dumps(document)}, order)


def load(client, name, body, *headers):
    answer = client.ask(put_file(name, body, *headers))
    check(answer is not None and answer.status in (200, 201), "PUT of a file", name, answer)
    return json.loads(answer.body) if answer is not None and answer.status in (200, 201) else {}


def of_file():
    """The network of models.py, whose first weight is named by its key alone."""
    sources = ["w0"] + [{"name": name, "file": "weights.safetensors", "key": "net/" + name} for name in ("b0", "w1", "b1")]
    return dict(network_definition(), initializers=sources)


def network_file(weights, order=None):
    return model_file(of_file(), {key if key == "w0" else "net/" + key: weights[key] for key in weights}, order)


# --- values -------------------------------------------------------------------------------------------------------------------

def check_network(client, generator):
    weights = network(generator)
    order = ["w0", "net/b0", "net/w1", "net/b1"]
    generator.shuffle(order)
    entry = load(client, "filed", network_file(weights, order))
    check(entry["bytes"] == sum(len(t.data) for t in weights.values()) and entry["warnings"] == [] and entry["steps"] == 3, entry)
    check(json.loads(client.get("/v2/models/filed/definition").body) == of_file(), "the definition")
    for batch in (1, 2, 9):
        x = random_tensor(generator, "FP32", [batch, 64], 1.0)
        wanted = [v for row in float64_network(weights, [x.values[i * 64:i * 64 + 64] for i in range(batch)]) for v in row]
        got = infer(client, "filed", [("x", x)])["p"]
        worst = max(abs(a - b) for a, b in zip(got.values, wanted))
        check(got.shape == [batch, 10] and worst <= 1e-5, "the network differs from float64 by", worst)
    check(client.document("/v2/tensors")["tensors"] == [], "a file's tensors have no names")


def check_etags(client, generator):
    """An ETag is that of text and contents: other weights are another one."""
    weights = network(generator)
    first = load(client, "filed", network_file(weights))["etag"]
    check(load(client, "filed", network_file(weights, ["net/b1", "net/w1", "w0", "net/b0"]))["etag"] == first, "the same in another order")
    other = load(client, "filed", network_file(network(generator)))["etag"]
    check(other != first, "other weights")
    check(client.ask(put_file("filed", network_file(weights), ("If-Match", '"%s"' % first))).status == 412, "If-Match of what was")
    check(client.ask(put_file("filed", network_file(weights), ("If-None-Match", "*"))).status == 412, "If-None-Match: *")
    check(client.ask(put_file("filed", network_file(weights), ("If-Match", '"%s"' % other))).status == 200, "If-Match")


def check_datatypes(client, generator):
    """Outputs that are initializers have a file's bytes, of every datatype, in any order of the file."""
    names = [name for name in SAFE if name != "BOOL"]
    for round_ in range(20):
        kinds = generator.sample(names, 3)
        shapes = [[generator.randint(1, 40) for _ in range(generator.randint(1, 3))] for _ in kinds]
        tensors = {"k%d" % i: random_tensor(generator, kind, shape) for i, (kind, shape) in enumerate(zip(kinds, shapes))}
        tensors["other"] = random_tensor(generator, "FP64", [7])
        order = list(tensors)
        generator.shuffle(order)
        document = definition(initializers=["k0", "k1", "k2"], outputs=[{"name": n} for n in ("y", "k0", "k1", "k2")])
        entry = load(client, "kinds", model_file(document, tensors, order))
        check(len(entry["warnings"]) == 1 and "1 of the file" in entry["warnings"][0], entry)
        got = infer(client, "kinds", [("x", random_tensor(generator, "FP32", [2, 4]))])
        for name in ("k0", "k1", "k2"):
            wanted = tensors[name]
            check(got[name].data == wanted.data and got[name].shape == wanted.shape and got[name].datatype == wanted.datatype, name, kinds)
    client.delete("/v2/models/kinds")


def check_shared(client, before):
    """Two initializers of one tensor are one content. In front of all else: what is deleted goes when the last lane that used it lets go."""
    k = Tensor("FP32", [2], [3.0, 5.0])
    document = {"format": 1, "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
                "initializers": ["k", {"name": "again", "file": "other.safetensors", "key": "k"}],
                "nodes": [dict(node("map", ("x", "k"), ("a",)), parameters={"op": "mul"}),
                          dict(node("map", ("a", "again"), ("y",), "m"), parameters={"op": "add"})],
                "outputs": [{"name": "y"}]}
    load(client, "twice", model_file(document, {"k": k}))
    check(resident_bytes(client) == before + 8, "bytes of one content", resident_bytes(client) - before)
    check(infer(client, "twice", [("x", Tensor("FP32", [1, 2], [1.0, 2.0]))])["y"].values == [6.0, 15.0], "both")
    client.delete("/v2/models/twice")


# --- bodies that come in pieces, or do not come -----------------------------------------------------------------------------------

def large_file(generator, megabytes=9):
    """Larger than --max-body, whose tensors are hashed by hashers."""
    columns = megabytes << 18 >> 10
    weight = Tensor("FP32", [1024, columns], [float(generator.randint(-4, 4)) for _ in range(1024)] * columns)
    document = {"format": 1, "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 1024]}], "initializers": ["w"],
                "nodes": [node("matmul", ("x", "w"))], "outputs": [{"name": "y"}]}
    return weight, model_file(document, {"w": weight})


def check_large(daemon, client, generator):
    weight, body = large_file(generator)
    columns = weight.shape[1]
    load(client, "large", body)
    x = [float(generator.randint(-4, 4)) for _ in range(1024)]
    wanted = [sum(x[k] * weight.values[k * columns + j] for k in range(1024)) for j in range(0, columns, 97)]
    check(infer(client, "large", [("x", Tensor("FP32", [1, 1024], x))])["y"].values[::97] == wanted, "a large product of whole numbers")
    chunks, at = [], 0
    while at < len(body):
        size = generator.choice([1, 77, 4096, 65536, 1 << 20])
        chunks.append(body[at:at + size])
        at += size
    answer = client.ask(chunked("PUT", "/v2/models/large", [TYPE], chunks))
    check(answer is not None and answer.status == 200, "a chunked file", answer)
    asked = put_file("large", body)
    for left in (len(body), len(body) - 4, len(body) - 100, len(body) // 2, 1):  # it breaks off: the model stays
        with daemon.connect(30) as connection:
            connection.socket.sendall(asked[:len(asked) - left])
    check(infer(client, "large", [("x", Tensor("FP32", [1, 1024], x))])["y"].values[::97] == wanted, "behind files that broke off")
    client.delete("/v2/models/large")


def check_altered(client, generator):
    """A file with bytes changed, left out or doubled in its head loads, or is refused; never half."""
    weights = {name: Tensor("FP32", [2, 2], [1.0, 2.0, 3.0, 4.0]) for name in ("a", "b")}
    document = definition(inputs=[{"name": "x", "datatype": "FP32", "shape": [-1, 2]}], initializers=["a", "b"],
                          nodes=[node("matmul", ("x", "a"), ("h",)), node("matmul", ("h", "b"), ("y",), "m")])
    good, seen = model_file(document, weights), {}
    head = struct.unpack_from("<Q", good)[0] + 8
    for _ in range(ALTERED):
        body = altered(generator, good, 8, head, b'0123456789{}[]",:\\ \x00\xff')
        answer = client.ask(put_file("altered", body))
        status = answer.status if answer is not None else None
        seen[status] = seen.get(status, 0) + 1
        check(status in (200, 201, 400, 413), "an altered file", status, body[:head], answer)
    check(seen.get(400, 0) > ALTERED // 4, "altered files", seen)
    if client.get("/v2/models/altered").status == 200:
        client.delete("/v2/models/altered")
    print("%d altered files: %s" % (ALTERED, seen))


# --- refusals -------------------------------------------------------------------------------------------------------------------

PAIR = Tensor("FP32", [1], [2.0])
SCALE = dict(scaled(1.0), initializers=["k"])


def source(**members):
    return model_file(dict(SCALE, initializers=[dict({"name": "k"}, **members)]), {"k": PAIR})


def headed(metadata, **tensors):
    document = {"__metadata__": metadata} if metadata is not None else {}
    return safetensors_head(dict(document, **tensors))


def placed(*ranges):
    """Tensors of one FP32 at these bytes, and twelve bytes of data."""
    tensors = {name: {"dtype": "F32", "shape": [1], "data_offsets": list(r)} for name, r in zip("kab", ranges)}
    return headed({"kernserve": json.dumps(SCALE)}, **tensors) + bytes(12)


def refused(name, body, code, text=None, status=400, then=STAYS, path="refused", headers=()):
    return Row("model file: " + name, put_file(path, body, *headers), status, code, then, text)


GOOD = model_file(SCALE, {"k": PAIR})
HUGE = headed({"kernserve": json.dumps(SCALE)}, k={"dtype": "F32", "shape": [1 << 25], "data_offsets": [0, 1 << 27]})
ROWS = [
    refused("no metadata", write_safetensors({"k": PAIR}), "definition", "kernserve"),
    refused("metadata without a definition", write_safetensors({"k": PAIR}, {"format": "pt"}), "definition", "kernserve"),
    refused("metadata that is no object", headed("kernserve"), "definition", "kernserve"),
    refused("a definition that is no text", headed({"kernserve": SCALE}), "definition", "kernserve"),
    refused("an empty definition", headed({"kernserve": ""}), "json"),
    refused("a definition that is no JSON", headed({"kernserve": "{"}), "json"),
    refused("a definition with a zero byte", headed({"kernserve": "{}\0"}), "json"),
    refused("a definition over 1 MiB", headed({"kernserve": " " * ((1 << 20) + 1)}), "body_size", "1048577", 413),
    refused("a definition that names the node", model_file(dict(SCALE, nodes=[node("matmul", ("x", "k"), ("y",), "up")]), {"k": PAIR}), "shape", "node 'up'"),
    refused("a key that is not there", model_file(dict(SCALE, initializers=[{"name": "k", "file": "w.safetensors", "key": "z"}]), {"k": PAIR}), "name", "no tensor 'z'"),
    refused("no tensors at all", headed({"kernserve": json.dumps(SCALE)}), "name", "no tensor 'k'"),
    refused("a key of 129 bytes is nobody's", model_file(SCALE, {"k" * 129: PAIR}), "name", "no tensor 'k'"),
    refused("an initializer without a key", source(file="w.safetensors"), "name", "initializer 'k'"),
    refused("an initializer with an empty key", source(file="w.safetensors", key=""), "name", "initializer 'k'"),
    refused("an initializer of two sources", source(file="w.safetensors", key="k", tensor="t"), "definition", "has 2 of"),
    refused("an initializer of a path", source(file="a/w.safetensors", key="k"), "name", "a/w.safetensors"),
    refused("an initializer of the folder above", source(file="../w.safetensors", key="k"), "name", "../w"),
    refused("an initializer of a hidden file", source(file=".safetensors", key="k"), "name", ".safetensors"),
    refused("an initializer of another kind of file", source(file="w.npy", key="k"), "name", "w.npy"),
    refused("an initializer of no file's name", source(file=7, key="k"), "name", "initializer 'k'"),
    refused("an initializer with an unknown member", source(file="w.safetensors", key="k", shape=[1]), "field", "shape"),
    refused("an initializer of a list", model_file(dict(SCALE, initializers=[["k"]]), {"k": PAIR}), "field", "initializer 0"),
    refused("an initializer of an empty name", model_file(dict(SCALE, initializers=[""]), {"k": PAIR}), "name", "initializer 0"),
    refused("an initializer given twice", model_file(dict(SCALE, initializers=["k", "k"]), {"k": PAIR}), "name", "twice"),
    refused("a gap", placed((0, 4), (8, 12)), "binary_size", "gap"),
    refused("an overlap", placed((0, 4), (0, 4), (4, 8)), "binary_size", "overlap"),
    refused("offsets that are not the shape's", placed((0, 8), (8, 12)), "binary_size", "'k'"),
    refused("a key twice", (lambda text: struct.pack("<Q", len(text)) + text)(b'{"__metadata__":{"kernserve":"{}"},"k":{},"k":{}}'), "json", None),
    refused("a byte short", GOOD[:-1], "binary_size"),
    refused("a byte too many", GOOD + b"x", "binary_size"),
    refused("a head that is cut", GOOD[:40], "binary_size"),
    refused("nothing", b"", "binary_size"),
    refused("a head of 5 MiB", struct.pack("<Q", 5 << 20) + b"{", "body_size", None, 413),
    refused("a head of 2^64 bytes", b"\xff" * 8 + b"{", "body_size", None, 413),
    refused("a datatype that is unknown", headed({"kernserve": json.dumps(SCALE)}, k={"dtype": "F7", "shape": [1], "data_offsets": [0, 4]}) + bytes(4), "datatype"),
    refused("4097 tensors", headed({"kernserve": json.dumps(SCALE)}, **{"t%d" % i: {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(4097)}), "body_size", "4096", 413),
    refused("an operation's name", GOOD, "reserved", "softmax", 409, path="softmax"),
    refused("a name of a model that cannot be", GOOD, "name", None, path=".x"),
    refused("in gzip", GOOD, "encoding", None, 415, headers=(("Content-Encoding", "gzip"),)),
    Row("model file: an npy", request("PUT", "/v2/models/refused", [("Content-Type", "application/x-npy")], b"\x93NUMPY"), 400, "definition", STAYS, "npy"),
    Row("model file: more than there is room for", request("PUT", "/v2/models/refused", [TYPE, ("Content-Length", len(HUGE) + (1 << 27))]) + HUGE + bytes(64),
        507, "resident_full", CLOSES, "134217728"),
    Row("model file: a file that JSON calls for", request("PUT", "/v2/models/refused", (), json.dumps(SCALE).encode()), 400, "definition", STAYS, "'k'"),
    Row("model file: refused loads leave nothing", request("GET", "/v2/models/refused"), 404, "model", STAYS),
]


# --- memory -----------------------------------------------------------------------------------------------------------------------

def check_memory(client, generator, before):
    check(comes_to(lambda: resident_bytes(client), before) == before, "bytes of contents", resident_bytes(client), "and not", before)
    for i in range(LOADS):
        load(client, "again", model_file(SCALE, {"k": Tensor("FP32", [1], [float(i)])}))
        got = infer(client, "again", [("x", Tensor("FP32", [3], [1.0, 2.0, 3.0]))])["y"]
        check(got.values == [i * 1.0, i * 2.0, i * 3.0], "load", i, got.values)
        client.ask(put_file("again", model_file(SCALE, {"z": random_tensor(generator, "FP32", [1000])})))
    client.delete("/v2/models/again")
    check(comes_to(lambda: resident_bytes(client), before) == before, "bytes behind loads", resident_bytes(client), before)


def main():
    generator = seed()
    with Daemon(daemon_path(), *OPTIONS, "--max-body", "1M", "--backend", BACKEND) as daemon:
        client = Client(daemon)
        before = resident_bytes(client)
        check_shared(client, before)
        check_network(client, generator)
        check_etags(client, generator)
        check_datatypes(client, generator)
        check(refusals.walk(daemon, ROWS) == 0, "rows that are refused")
        check_altered(client, generator)
        check_large(daemon, client, generator)
        client.delete("/v2/models/filed")
        check_memory(client, generator, before)
        check(settle(daemon) == 0, "bytes of slots in use")
        check(daemon.stop() == 0, "the daemon's exit")
    with Daemon(daemon_path(), "--no-resident", "--backend", BACKEND) as daemon:
        answer = Client(daemon).ask(put_file("x", GOOD))
        check(answer is not None and answer.status == 501, "--no-resident", answer)
    return wrongs()


if __name__ == "__main__":
    sys.exit(main())
