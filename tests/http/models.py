#!/usr/bin/env python3
"""Models over HTTP: a chain's answers against the same operations asked one by one, bit for bit, and a small network against
float64; the documents of a model; replacement and unloading while requests come; and the rows of model_rows.py. At the end nothing
is held.

models.py KERNSERVE [BACKEND]     cpu, where none is named
"""

import json
import math
import random as numbers
import re
import struct
import sys
import threading
import time

import refusals
from daemon import Daemon, Remote, check, comes_to, daemon_path, metric, request, seed, settle, wrongs
from files import write_safetensors
from model_rows import OPTIONS, ROWS, put_model
from tensors import Tensor, decode, random_tensor

BACKEND = sys.argv[2] if len(sys.argv) > 2 else "cpu"
CHAINS = 60


class Client:
    """A connection that is opened anew where an answer has closed it."""

    def __init__(self, daemon):
        self.daemon, self.connection = daemon, daemon.connect(60)

    def ask(self, data, method="GET"):
        answer = self.connection.ask(data, method)
        if answer is None or answer.says_close():
            self.connection = self.daemon.connect(60)
        return answer

    def get(self, target, headers=()):
        return self.ask(request("GET", target, headers))

    def document(self, target):
        answer = self.get(target)
        check(answer is not None and answer.status == 200, target, answer)
        return json.loads(answer.body)

    def put_tensor(self, name, tensor):
        shape = ",".join(map(str, tensor.shape))
        answer = self.ask(request("PUT", "/v2/tensors/%s?shape=%s&datatype=%s" % (name, shape, tensor.datatype), (), tensor.data))
        check(answer is not None and answer.status in (200, 201), "PUT of tensor", name, answer)

    def delete(self, target, status=204):
        answer = self.ask(request("DELETE", target))
        check(answer is not None and answer.status == status, "DELETE", target, answer)

    def load(self, name, document, status=(200, 201)):
        answer = self.ask(put_model(name, document))
        check(answer is not None and answer.status in status, "PUT of model", name, answer, json.dumps(document)[:2000])
        return answer


def infer(client, model, inputs, parameters=None, status=200):
    """inputs: [(name, Tensor)]. Returns {name: Tensor} by binary data."""
    head = {"inputs": [{"name": name, "datatype": t.datatype, "shape": t.shape, "parameters": {"binary_data_size": len(t.data)}}
                       for name, t in inputs], "parameters": dict(parameters or {}, binary_data_output=True)}
    text = json.dumps(head).encode()
    answer = client.ask(request("POST", "/v2/models/%s/infer" % model, [("Inference-Header-Content-Length", len(text))],
                                text + b"".join(t.data for _, t in inputs)))
    check(answer is not None and answer.status == status, model, answer, text[:1000])
    if answer is None or answer.status != 200:
        return None
    length = int(answer.header("inference-header-content-length") or len(answer.body))
    outputs, at = {}, length
    for output in json.loads(answer.body[:length])["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size", 0)
        outputs[output["name"]] = of_bytes(output["datatype"], output["shape"], answer.body[at:at + size])
        at += size
    return outputs


def of_bytes(datatype, shape, data):
    tensor = Tensor.__new__(Tensor)
    tensor.datatype, tensor.shape, tensor.data = datatype, list(shape), data
    tensor.values = decode(datatype, data)
    return tensor


# --- a small network against float64 ------------------------------------------------------------------------------------------

def network(generator):
    """64-64-10: the shape of the digits classifier; its weights."""
    return {"w0": random_tensor(generator, "FP32", [64, 64], 0.5), "b0": random_tensor(generator, "FP32", [64]),
            "w1": random_tensor(generator, "FP32", [64, 10], 0.5), "b1": random_tensor(generator, "FP32", [10])}


def network_definition(**members):
    return dict({
        "format": 1, "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 64]}],
        "initializers": [{"name": name, "tensor": "mlp." + name} for name in ("w0", "b0", "w1", "b1")],
        "nodes": [
            {"name": "hidden", "op": "matmul", "inputs": ["x", "w0", "b0"], "outputs": ["h"], "parameters": {"activation": "relu"}},
            {"name": "logits", "op": "matmul", "inputs": ["h", "w1", "b1"], "outputs": ["l"]},
            {"name": "classes", "op": "softmax", "inputs": ["l"], "outputs": ["p"], "parameters": {"axis": -1}}],
        "outputs": [{"name": "p", "datatype": "FP32", "shape": [-1, 10]}]}, **members)


def float64_network(weights, rows):
    def product(row, w, b):
        n = w.shape[1]
        return [math.fsum([row[k] * w.values[k * n + j] for k in range(len(row))] + [b.values[j]]) for j in range(n)]
    out = []
    for row in rows:
        logits = product([max(v, 0.0) for v in product(row, weights["w0"], weights["b0"])], weights["w1"], weights["b1"])
        top = max(logits)
        exps = [math.exp(v - top) for v in logits]
        out.append([e / math.fsum(exps) for e in exps])
    return out


def check_network(client, generator):
    weights = network(generator)
    for name, tensor in weights.items():
        client.put_tensor("mlp." + name, tensor)
    answer = client.load("mlp", network_definition(), (201,))
    entry = json.loads(answer.body)
    check(entry["nodes"] == 3 and entry["steps"] == 3 and entry["bytes"] == sum(len(t.data) for t in weights.values()), entry)
    for batch in (1, 3, 16):
        x = random_tensor(generator, "FP32", [batch, 64], 1.0)
        rows = [x.values[i * 64:i * 64 + 64] for i in range(batch)]
        expected = [v for row in float64_network(weights, rows) for v in row]
        got = infer(client, "mlp", [("x", x)])["p"]
        check(got.shape == [batch, 10], got.shape)
        worst = max(abs(a - b) for a, b in zip(got.values, expected))
        check(worst <= 1e-5, "the network differs from float64 by", worst)
        check_forms(client, x, got)


def check_forms(client, x, wanted):
    """Each format of a body gives the same bytes."""
    shape = ",".join(map(str, x.shape))
    raw = client.ask(request("POST", "/v2/models/mlp/infer?shape=%s" % shape, (), x.data))
    check(raw.status == 200 and raw.body == wanted.data and raw.header("kernserve-shape") == "%d,10" % x.shape[0], raw)
    bare = client.ask(request("POST", "/v2/models/mlp/raw?shape=%s" % shape, (), x.data))
    check(bare.status == 200 and bare.body == wanted.data, bare)
    words = {"inputs": [{"name": "x", "datatype": "FP32", "shape": x.shape, "data": x.values}]}
    text = client.ask(request("POST", "/v2/models/mlp/infer", (), json.dumps(words).encode()))
    output = json.loads(text.body)["outputs"][0]
    check(output["name"] == "p" and struct.pack("<%df" % len(output["data"]), *output["data"]) == wanted.data, text)
    safe = client.ask(request("POST", "/v2/models/mlp/infer", [("Content-Type", "application/x-safetensors"),
                                                               ("Accept", "application/x-safetensors")],
                              write_safetensors({"x": x}, None, ["x"])))
    length = struct.unpack_from("<Q", safe.body)[0]
    check(safe.status == 200 and list(json.loads(safe.body[8:8 + length])) == ["p"] and safe.body[8 + length:] == wanted.data, safe)
    client.put_tensor("x_there", x)
    named = {"inputs": [{"name": "x", "parameters": {"tensor": "x_there"}}],
             "outputs": [{"name": "p", "parameters": {"tensor": "p_there"}}]}
    def alike(body):  # what stays goes alone, which on a GPU has other bits than rows that may be joined
        return body == wanted.data if BACKEND == "cpu" else near(of_bytes("FP32", wanted.shape, body), wanted)
    kept = client.ask(request("POST", "/v2/models/mlp/infer", (), json.dumps(named).encode()))
    check(kept.status == 200, kept)
    check(alike(client.get("/v2/tensors/p_there").body), "an output that stays")
    by_place = client.ask(request("POST", "/v2/models/mlp/infer?INPUT0=@x_there"))
    check(by_place.status == 200 and alike(by_place.body), "an input by its place", by_place)
    client.delete("/v2/tensors/x_there")
    client.delete("/v2/tensors/p_there")


# --- documents ----------------------------------------------------------------------------------------------------------------

def check_documents(client):
    metadata = client.document("/v2/models/mlp")
    check(metadata == {"name": "mlp", "versions": ["1"], "platform": "kernserve_graph",
                       "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 64]}],
                       "outputs": [{"name": "p", "datatype": "FP32", "shape": [-1, 10]}]}, metadata)
    check(client.document("/v2/models/mlp/versions/1") == metadata, "the version's document")
    config = client.document("/v2/models/mlp/config")
    check(config["backend"] == "kernserve" and config["max_batch_size"] == 64 and config["input"][0]["dims"] == [64], config)
    check(client.document("/v2/models/mlp/ready") == {"name": "mlp", "ready": True}, "ready")
    before = client.document("/v2/models/mlp/stats")["model_stats"][0]["inference_count"]
    infer(client, "mlp", [("x", Tensor("FP32", [1, 64], [0.5] * 64))])
    after = client.document("/v2/models/mlp/stats")["model_stats"][0]["inference_count"]
    check(after == before + 1, "statistics", before, after)
    plan = client.document("/v2/models/mlp/plan?shape=8,64")
    check("chain<3 steps>" in json.dumps(plan) and "join_rows" not in plan, plan)
    check([(s["nodes"], s["op"], s["outputs"], s["bytes"]) for s in plan["steps"]] == [
        (["hidden"], "matmul", [{"datatype": "FP32", "shape": [8, 64]}], 4 * (8 * 64 + 64 * 64 + 64 + 8 * 64)),
        (["logits"], "matmul", [{"datatype": "FP32", "shape": [8, 10]}], 4 * (8 * 64 + 64 * 10 + 10 + 8 * 10)),
        (["classes"], "softmax", [{"datatype": "FP32", "shape": [8, 10]}], 4 * (8 * 10 + 8 * 10))], plan["steps"])
    check(plan["arena_bytes"] >= 4 * (8 * 64 + 8 * 10) and all(s["flops"] > 0 for s in plan["steps"]), plan)
    check("steps" not in client.document("/v2/models/softmax/plan?shape=4,64"), "an operation has no steps")
    index = json.loads(client.ask(request("POST", "/v2/repository/index")).body)
    check({"name": "mlp", "version": "1", "state": "READY", "reason": ""} in index, index)
    metrics = client.get("/metrics").body.decode()
    check('kernserve_requests_total{model="mlp"' in metrics or 'model="mlp"' in metrics, "metrics have the model")
    answer = client.get("/v2/models/mlp/definition")
    check(json.loads(answer.body) == network_definition(), "the definition", answer)
    check(client.get("/v2/models/mlp/definition", [("If-None-Match", answer.header("etag"))]).status == 304, "304")
    check("/v2/models/{model}/definition" in client.document("/openapi.json")["paths"], "the path in the description")


def check_profile(daemon, client):
    """The times of steps, where they are asked for: in the answer, in the plan and in the trace."""
    x = random_tensor(numbers.Random(1), "FP32", [4, 64], 1.0)
    target = "/v2/models/mlp/infer?shape=4,64"
    plain = client.ask(request("POST", target, (), x.data))
    check("node;" not in plain.header("server-timing"), "nobody asked", plain)
    for ask in (request("POST", target + "&profile=1", (), x.data), request("POST", target + "&profile=true", (), x.data),
                request("POST", "/v2/models/mlp/infer", (), json.dumps({
                    "parameters": {"profile": 1, "binary_data_output": True},
                    "inputs": [{"name": "x", "datatype": "FP32", "shape": [4, 64], "data": x.values}]}).encode())):
        answer = client.ask(ask)
        check(answer.status == 200 and answer.body.endswith(plain.body), answer)
        timing = answer.header("server-timing")
        nodes = re.findall(r'node;desc="([^"]*)";dur=([0-9.]+)', timing)
        compute = float(re.search("compute;dur=([0-9.]+)", timing).group(1))
        check([name for name, _ in nodes] == ["hidden", "logits", "classes"], timing)
        check(0 < sum(float(ms) for _, ms in nodes) <= compute + 0.002 and "graph;desc=none" in timing, timing)
    none = client.ask(request("POST", target + "&profile=0", (), x.data))
    check("node;" not in none.header("server-timing"), none)
    steps = client.document("/v2/models/mlp/plan?shape=4,64")["steps"]
    check(all(s["kernel"] and (s["us"] > 0) == (s["runs"] > 0) if s["us"] else s["runs"] == 0 for s in steps), steps)
    chain = {"format": 1, "inputs": [{"name": "v0", "datatype": "FP32", "shape": [-1]}], "outputs": [{"name": "v100"}],
             "nodes": [{"name": ("n%d" % i).ljust(128, "-"), "op": "softmax", "inputs": ["v%d" % i], "outputs": ["v%d" % (i + 1)]}
                       for i in range(100)]}
    client.load("deep", chain)
    timing = client.ask(request("POST", "/v2/models/deep/infer?shape=3&profile=1", (), bytes(12))).header("server-timing")
    check(timing.count("node;desc=") == 64 and re.search(r'"node-*";|;dur=[0-9.]+, rest;dur=[0-9.]+$', timing), timing)
    client.delete("/v2/models/deep")
    events = json.loads(Remote("127.0.0.1:%d" % daemon.admin_port).get("/v2/trace").body)["traceEvents"]
    nodes = [e for e in events if e.get("cat") == "node" and e["name"] in ("hidden", "logits", "classes")]
    launches = {e["args"]["launch"]: e for e in events if e.get("cat") == "compute"}
    check(len(nodes) == 9, "the steps of three requests in the trace", nodes)
    for node in nodes:
        whole = launches[node["args"]["launch"]]
        check(node["tid"] == whole["tid"] and whole["ts"] <= node["ts"] and node["ts"] + node["dur"] <= whole["ts"] + whole["dur"] + 0.002,
              "a step within its launch", node, whole)


def check_views(client):
    """Nodes that take no step are named, and maps that one step does: as many steps as the backend makes of them."""
    maps = [("less", "sub", ["part", "v"]), ("gate", "sigmoid", ["less"]), ("gated", "mul", ["less", "gate"])]
    chain = {"format": 1, "inputs": [{"name": "x", "datatype": "FP32", "shape": [4, 64]}, {"name": "v", "datatype": "FP32", "shape": [64]}],
             "nodes": [{"name": "part", "op": "slice", "inputs": ["x"], "outputs": ["part"], "parameters": {"axis": 0, "start": 1, "end": 3}}] +
                      [{"name": name, "op": "map", "inputs": inputs, "outputs": [name], "parameters": {"op": op}} for name, op, inputs in maps] +
                      [{"name": "flat", "op": "reshape", "inputs": ["gated"], "outputs": ["flat"], "parameters": {"shape": [128]}}],
             "outputs": [{"name": "flat"}]}
    x = struct.pack("<256f", *((i % 17) / 4 - 2 for i in range(256)))
    v = struct.pack("<64f", *((i % 5) / 8 for i in range(64)))
    answers = []
    for fuse in (True, False):
        client.load("views", {**chain, "fuse": fuse})
        answer = client.ask(request("POST", "/v2/models/views/infer?shape=4,64&shape=64&profile=1", (), x + v))
        plan = client.document("/v2/models/views/plan?shape=4,64&shape=64")
        steps = [s["nodes"] for s in plan["steps"]]
        check(plan["views"] == ["part", "flat"] and steps in ([["less", "gate", "gated"]], [["less"], ["gate"], ["gated"]]), plan)
        check(fuse or len(steps) == 3, "each node is a step", plan)
        timing = answer.header("server-timing")
        check(timing.endswith(', view;desc="part", view;desc="flat"') and timing.count("node;") == len(steps), timing)
        answers.append(answer.body)
    check(answers[0] == answers[1] and len(answers[0]) == 512, "the bits of the maps one by one")
    rows = [(a - b) for a, b in zip(struct.unpack("<256f", x)[64:192], struct.unpack("<64f", v) * 2)]
    check(all(abs(y - r / (1 + math.exp(-r))) < 1e-5 for y, r in zip(struct.unpack("<128f", answers[0]), rows)), "the values")
    client.delete("/v2/models/views")


def block(fuse, datatype="FP32"):
    """Two norms with what stands around them, as encoders have them: the second sum has two readers."""
    def node(name, what, inputs, output, **parameters):
        return {"name": name, "op": what, "inputs": inputs, "outputs": [output], "parameters": parameters}
    return {"format": 1, "fuse": fuse, "inputs": [{"name": n, "datatype": datatype, "shape": [-1, 24]} for n in ("x", "r")],
            "initializers": [{"name": n, "tensor": "block." + n} for n in ("w", "b", "g", "h", "u", "c", "v", "z")],
            "nodes": [node("up", "matmul", ["x", "w"], "p"), node("half", "map", ["p"], "a", op="mul", a=0.5), node("bias", "map", ["b", "a"], "a1", op="add"), node("act", "map", ["a1"], "a2", op="gelu"),
                      node("sum", "map", ["a2", "r"], "s", op="add"), node("norm", "norm", ["s", "g"], "n", kind="rms"),
                      node("shift", "map", ["n", "h"], "n1", op="add"), node("silu", "map", ["n1"], "n2", op="silu"),
                      node("down", "matmul", ["n2", "u"], "d"), node("tail", "map", ["d"], "d0", op="relu"),
                      node("again", "map", ["c", "d0"], "d1", op="add"), node("last", "norm", ["d1"], "l", kind="layer"),
                      node("scale", "map", ["v", "l"], "l1", op="mul"), node("move", "map", ["l1", "z"], "l2", op="add"),
                      node("both", "map", ["l2", "s"], "m", op="mul"), node("end", "map", ["m", "x"], "y", op="add"),
                      node("other", "matmul", ["x", "w"], "o0"), node("lift", "map", ["o0", "c"], "o1", op="add"), node("fourth", "map", ["o1"], "o", op="mul", a=0.25),
                      node("third", "matmul", ["r", "w"], "t0"), node("tenth", "map", ["t0"], "t", op="mul", a=0.1),  # which FP32 has not
                      node("side", "matmul", ["x", "u"], "k0"), node("bend", "map", ["k0"], "k1", op="silu"), node("rest", "map", ["r", "k1"], "k", op="add")],
            "outputs": [{"name": "y"}, {"name": "d0"}, {"name": "o"}, {"name": "t"}, {"name": "k"}]}


FUSED = [["up", "half", "bias", "act"], ["sum", "norm"], *([["shift", "silu"]] if BACKEND == "cpu" else [["shift"], ["silu"]]), ["down", "tail"], ["again", "last", "scale", "move"], ["both", "end"], ["other", "lift"], ["fourth"], ["third"], ["tenth"],
         *([["side", "bend"], ["rest"]] if BACKEND == "cpu" else [["side", "bend", "rest"]])]


def check_warm():
    """Plans of the shapes that a definition is to be ready for are there when its load is answered, on each thread."""
    with Daemon(daemon_path(), *OPTIONS, "--backend", BACKEND, "--threads", "2") as daemon:
        client = Client(daemon)

        def plans():
            return metric(daemon.metrics(), "kernserve_graph_cache_entries")
        for name, tensor in network(numbers.Random(2)).items():
            client.put_tensor("mlp." + name, tensor)
        before = plans()
        client.load("warm", network_definition())
        check(plans() == before, "without warm", before, plans())
        client.load("warm", network_definition(warm=[{"x": [3, 64]}, {"x": [5, 64]}]), (200,))
        check(plans() == before + 4, "warm", before, plans())
        infer(client, "warm", [("x", Tensor("FP32", [5, 64], [0.5] * 320))])
        check(plans() == before + 4, "a request makes no plan of its own", before, plans())
        client.delete("/v2/models/warm")
        check(comes_to(plans, before) == before, "behind the model", before, plans())
        check(daemon.stop() == 0, "the daemon's exit")


def check_fused(client, generator):
    """What one step does of a chain, and that it makes what the nodes would."""
    for datatype, worst in (("FP32", 2e-5), ("BF16", 0.1), ("FP64", 1e-12)):
        shapes = {"w": [24, 24], "u": [24, 24], **{n: [24] for n in "bghcvz"}}
        for name, shape in shapes.items():
            client.put_tensor("block." + name, random_tensor(generator, datatype, shape, 0.5))
        answers = []
        x, r = (random_tensor(generator, datatype, [5, 24], 1.0) for _ in range(2))
        for fuse in (True, False):
            entry = json.loads(client.load("block", block(fuse, datatype)).body)
            steps = client.document("/v2/models/block/plan?shape=5,24&shape=5,24")["steps"]
            names = [step["nodes"] for step in steps]
            check(names == (FUSED if fuse else [[n["name"]] for n in block(fuse)["nodes"]]) and entry["steps"] == len(names), fuse, names, entry)
            answers.append(infer(client, "block", [("x", x), ("r", r)]))
        for name in ("y", "d0", "o", "t", "k"):
            left, right = (answer[name] for answer in answers)
            off = max(abs(a - b) / max(1, abs(b)) for a, b in zip(left.values, right.values))
            check(left.shape == right.shape and off <= worst, "fused", datatype, name, "differs by", off)
        client.delete("/v2/models/block")
    for name in shapes:
        client.delete("/v2/tensors/block." + name)


def encoder(datatype, keys):
    """Heads of a projection twice: attention as one node, and the products and the softmax that it stands for."""
    def node(what, inputs, output, **parameters):
        return {"name": "make_" + output, "op": what, "inputs": inputs, "outputs": [output], "parameters": parameters}
    nodes, heads = [], {"q": 4, "k": 2, "v": 2}
    for name, count in heads.items():
        nodes += [node("matmul", ["x", "w" + name], name), node("layout", [name], name + "3", op="reshape", new_shape=[0, count, 6]),
                  node("layout", [name + "3"], name + "h", op="transpose", axes=[1, 0, 2]), node("gather", [name + "h", "pairs"], name + "p") if count == 2 else
                  node("map", [name + "h"], name + "p", op="mul", a=1)]
    nodes += [node("attention", ["q3", "k3", "v3"], "one", causal="top_left", layout="bshd"), node("layout", ["one"], "o", op="reshape", new_shape=[0, 24]),
              node("map", ["o", "x"], "y", op="add"),
              node("matmul", ["qp", "kp"], "s", transpose_b=True, alpha=6 ** -0.5), node("softmax", ["s"], "p", causal="top_left"), node("matmul", ["p", "vp"], "c"),
              node("layout", ["c"], "c3", op="transpose", axes=[1, 0, 2]), node("layout", ["c3"], "c2", op="reshape", new_shape=[0, 24]), node("map", ["c2", "x"], "z", op="add")]
    return {"format": 1, "inputs": [{"name": "x", "datatype": datatype, "shape": [keys, 24]}],
            "initializers": [*({"name": n, "tensor": "encoder." + n} for n in ("wq", "wk", "wv")), {"name": "pairs", "datatype": "INT64", "shape": [4], "data": [0, 0, 1, 1]}],
            "nodes": nodes, "outputs": [{"name": "y"}, {"name": "z"}]}


def check_attention(client, generator):
    """A block of an encoder whose attention is one node, beside the chain of products and softmax."""
    for datatype, worst in (("FP32", 5e-5), ("FP16", 0.03), ("BF16", 0.2)):
        for name, columns in (("wq", 24), ("wk", 12), ("wv", 12)):
            client.put_tensor("encoder." + name, random_tensor(generator, datatype, [24, columns], 0.3))
        client.load("encoder", encoder(datatype, -1))
        for rows in (1, 70):
            size = 1.0 if datatype == "FP32" else 0.25  # the softmax takes scores that 16 bits have rounded: of 20 they are off by a twentieth
            got = infer(client, "encoder", [("x", random_tensor(generator, datatype, [rows, 24], size))])
            off = max(abs(a - b) / max(1, abs(b)) for a, b in zip(got["y"].values, got["z"].values))
            check(got["y"].shape == [rows, 24] and off <= worst, "attention as a node", datatype, rows, "differs by", off)
        client.delete("/v2/models/encoder")
    for name in ("wq", "wk", "wv"):
        client.delete("/v2/tensors/encoder." + name)


def check_plans(daemon, client):
    """Models among the plans that have run, by their names, and gone with them."""
    def rows():
        plans = json.loads(Remote("127.0.0.1:%d" % daemon.admin_port).get("/v2/plans?top=4096").body)["plans"]
        return {(p["model_name"], tuple(p["inputs"][0]["shape"])): p for p in plans if p["model_name"] in ("mlp", "twin")}
    client.load("twin", network_definition())
    for name, count in (("mlp", 2), ("twin", 3)):
        for _ in range(count):
            infer(client, name, [("x", Tensor("FP32", [11, 64], [0.5] * 704))])
    found = rows()
    check({k[0]: p["jobs"] for k, p in found.items() if k[1] == (11, 64)} == {"mlp": 2, "twin": 3}, "plans of models", found)
    row = found["twin", (11, 64)]
    check(row["kernel"] == "chain<3 steps>" and row["measured"]["us"] > 0 and row["bytes"] == 4 * (11 * 64 + 64 * 64 + 64 + 640 + 10 + 110), row)
    client.delete("/v2/models/twin")
    comes_to(lambda: any(k[0] == "twin" for k in rows()), False)
    check({k[0] for k in rows()} == {"mlp"}, "behind an unload", rows())


def check_casts(client, generator):
    """Casts and scalars that go to the step in front of them."""
    def document(fuse):
        return {"format": 1, "fuse": fuse, "inputs": [{"name": "x", "datatype": "FP16", "shape": [-1, 9]}],
                "nodes": [{"name": name, "op": op, "inputs": [source], "outputs": [output], "parameters": parameters} for name, op, source, output, parameters in (
                    ("soft", "softmax", "x", "a", {}), ("wide", "map", "a", "b", {"op": "cast", "out_datatype": "FP32"}),
                    ("twice", "map", "b", "c", {"op": "mul", "a": 2}), ("plus", "map", "c", "d", {"op": "add", "a": -0.25}), ("narrow", "map", "d", "e", {"op": "cast", "out_datatype": "BF16"}),
                    ("norm", "norm", "x", "n", {"kind": "rms"}), ("double", "map", "n", "f", {"op": "cast", "out_datatype": "FP64"}),
                    ("bound", "map", "x", "g", {"op": "clamp", "a": -1, "b": 1}), ("bytes", "map", "g", "h", {"op": "cast", "out_datatype": "INT8"}),
                    ("kept", "map", "x", "k", {"op": "mul", "a": 3}), ("more", "map", "k", "m", {"op": "add", "a": 1}))],
                "outputs": [{"name": name} for name in "efkm"], "description": "k is an output, and stays"}
    x = random_tensor(generator, "FP16", [4, 9], 3.0)
    answers = []
    for fuse in (True, False):
        client.load("casts", document(fuse))
        names = [step["nodes"] for step in client.document("/v2/models/casts/plan?shape=4,9")["steps"]]
        check(len(names) == 11 if not fuse else names == [["soft", "wide"], ["twice", "plus", "narrow"], ["norm", "double"], ["bound", "bytes"], ["kept"], ["more"]], fuse, names)
        answers.append(infer(client, "casts", [("x", x)]))
    for name, worst in (("e", 0.02), ("f", 0.01), ("k", 0), ("m", 0)):
        left, right = (answer[name] for answer in answers)
        off = max(abs(a - b) for a, b in zip(left.values, right.values))
        check(left.datatype == right.datatype and left.shape == right.shape and off <= worst, "casts", name, "differs by", off)
    client.delete("/v2/models/casts")


def check_own_sum(client, generator):
    """A norm whose weight is the sum that it norms: the sum cannot go to its step."""
    nodes = [{"name": "sum", "op": "map", "inputs": ["x", "r"], "outputs": ["s"], "parameters": {"op": "add"}},
             {"name": "norm", "op": "norm", "inputs": ["s", "s"], "outputs": ["y"]}]
    x, r = (random_tensor(generator, "FP32", [24], 1.0) for _ in range(2))
    answers = []
    for fuse in (True, False):
        client.load("own", {"format": 1, "fuse": fuse, "inputs": [{"name": n, "datatype": "FP32", "shape": [24]} for n in "xr"],
                            "nodes": nodes, "outputs": [{"name": "y"}]})
        answers.append(infer(client, "own", [("x", x), ("r", r)])["y"].data)
    check(answers[0] == answers[1], "a sum that weighs itself")
    client.delete("/v2/models/own")


def check_batch(client):
    client.load("mlp8", network_definition(max_batch=8))
    config = client.document("/v2/models/mlp8/config")
    check(config["max_batch_size"] == 8 and config["input"][0]["dims"] == [64] and config["output"][0]["dims"] == [10], config)
    infer(client, "mlp8", [("x", Tensor("FP32", [8, 64], [0.5] * 512))])
    answer = client.ask(request("POST", "/v2/models/mlp8/infer?shape=9,64", (), bytes(9 * 256)))
    check(answer.status == 400 and b"batch-size must be <= 8" in answer.body, answer)
    client.delete("/v2/models/mlp8")


def check_wide(client, generator):
    """As many inputs and outputs as a model may have, with names as long as they may be, in each format."""
    names = [("x%d" % i).ljust(40, "-") for i in range(16)]
    made = [("y%d" % i).ljust(40, "-") for i in range(16)]
    client.load("wide", {"format": 1, "inputs": [{"name": name, "datatype": "FP32", "shape": ["rows"] + [1] * 6 + [i + 1]} for i, name in enumerate(names)],
                         "nodes": [{"name": "n%d" % i, "op": "map", "inputs": [names[i]], "outputs": [made[i]], "parameters": {"op": "neg"}} for i in range(16)],
                         "outputs": [{"name": name} for name in made]})
    inputs = [(name, random_tensor(generator, "FP32", [2] + [1] * 6 + [i + 1])) for i, name in enumerate(names)]
    wanted = {name: [-value for value in tensor.values] for name, (_, tensor) in zip(made, inputs)}
    bytes_of = lambda outputs: struct.pack("<%df" % sum(map(len, outputs.values())), *[value for values in outputs.values() for value in values])
    got = infer(client, "wide", inputs, {"id": "i" * 20})
    check(got is not None and {name: t.values for name, t in got.items()} == wanted, "binary", got)
    text = client.ask(request("POST", "/v2/models/wide/infer", (), json.dumps({"inputs": [
        {"name": name, "datatype": "FP32", "shape": t.shape, "data": t.values} for name, t in inputs],
        "outputs": [{"name": name, "parameters": {"binary_data": i == 15}} for i, name in enumerate(made)]}).encode()))
    length = int(text.header("inference-header-content-length"))
    said = [Tensor("FP32", output["shape"], output["data"]).data for output in json.loads(text.body[:length])["outputs"][:15]]
    check(b"".join(said) + text.body[length:] == bytes_of(wanted), "JSON, and one output behind it", text)
    safe = client.ask(request("POST", "/v2/models/wide/infer", [("Content-Type", "application/x-safetensors")], write_safetensors(dict(inputs), None, names)))
    length = 8 + struct.unpack_from("<Q", safe.body)[0]
    check(safe.status == 200 and list(json.loads(safe.body[8:length])) == made and safe.body[length:] == bytes_of(wanted), "safetensors", safe)
    client.put_tensor("x_there", inputs[15][1])
    query = "&".join("shape=" + ",".join(map(str, t.shape)) for _, t in inputs[:15]) + "&INPUT15=@x_there"
    body = b"".join(t.data for _, t in inputs[:15])
    raw = client.ask(request("POST", "/v2/models/wide/infer?%s&output=%s" % (query, made[15]), (), body))
    check(raw.status == 200 and decode("FP32", raw.body) == wanted[made[15]], "raw, one output named", raw)
    kept = client.ask(request("POST", "/v2/models/wide/infer?%s&OUTPUT14=@y_there" % query, (), body))
    check(kept.status == 200 and decode("FP32", client.get("/v2/tensors/y_there").body) == wanted[made[14]], "an output that stays, by its place", kept)
    longer = [(name, Tensor("FP32", [2000] + t.shape[1:], t.values * 1000)) for name, t in inputs]  # 1 MB each way
    got = infer(client, "wide", longer)
    check(got is not None and all(got[name].values == values * 1000 for name, values in wanted.items()), "1 MB")
    for name in ("/v2/tensors/x_there", "/v2/tensors/y_there", "/v2/models/wide"):
        client.delete(name)


def check_conditions(client):
    tag = client.get("/v2/models/mlp/definition").header("etag")
    text = network_definition(description="another")
    check(client.ask(put_model("mlp", text, ("If-None-Match", "*"))).status == 412, "If-None-Match: * where it is")
    check(client.ask(put_model("mlp", text, ("If-Match", '"' + "0" * 64 + '"'))).status == 412, "If-Match of another")
    check(client.ask(put_model("mlp", text, ("If-Match", tag))).status == 200, "If-Match of what is there")
    check(client.ask(put_model("mlp", network_definition())).status == 200, "and back")
    check(client.ask(put_model("none", text, ("If-Match", "*"))).status == 412, "If-Match where nothing is")
    check(b"is not found" in client.get("/v2/models/none").body, "a refused load leaves no name")


# --- random chains against their operations -------------------------------------------------------------------------------------

class Chain:
    """A random definition over values of float32, and what each node is to give, asked of the daemon node by node."""

    def __init__(self, generator, client):
        self.random, self.client = generator, client
        self.nodes, self.initializers, self.values, self.resident = [], [], {}, []
        self.columns = {}  # of a value's shape all but the first dimension is the definition's
        self.batch = generator.randint(1, 5)
        self.inputs = []
        for i in range(generator.randint(1, 3)):
            rest = [generator.randint(1, 12) for _ in range(generator.randint(1, 2))]
            self.inputs.append({"name": "in%d" % i, "datatype": "FP32", "shape": [-1] + rest})
            self.values["in%d" % i] = random_tensor(generator, "FP32", [self.batch] + rest)
        for i in range(generator.randint(1, 12)):
            self.add_node(i)

    def constant(self, shape):
        name = "c%d" % len(self.initializers)
        tensor = random_tensor(self.random, "FP32", shape)
        if self.random.random() < 0.5:
            self.initializers.append({"name": name, "tensor": "chain." + name})
            self.client.put_tensor("chain." + name, tensor)
            self.resident.append("chain." + name)
        else:
            self.initializers.append({"name": name, "datatype": "FP32", "shape": shape, "data": tensor.values})
        self.values[name] = tensor
        return name

    def add_node(self, number):
        floats = [name for name, t in self.values.items() if t.datatype == "FP32" and len(t.shape) >= 2]
        source = self.random.choice([n for n in floats if not n.startswith("c")])
        shape = self.values[source].shape
        kind = self.random.choice(["softmax", "unary", "binary", "norm", "matmul", "reshape", "reduce", "topk", "transpose", "slice", "pad", "concat", "split", "expand", "tile", "layout", "window"])
        inputs, parameters, outputs, op = [source], {}, ["v%d" % number], kind
        if kind == "softmax":
            parameters = {"axis": -1, "log": self.random.random() < 0.3}
        elif kind == "unary":
            op, parameters = "map", {"op": self.random.choice(["relu", "tanh", "sigmoid", "abs", "neg", "gelu"])}
        elif kind == "binary":
            op, parameters = "map", {"op": self.random.choice(["add", "mul", "max", "sub"])}
            inputs.append(self.constant(shape[-1:]) if self.random.random() < 0.6 else source)
        elif kind == "norm":
            inputs.append(self.constant(shape[-1:]))
            parameters = {"kind": self.random.choice(["layer", "rms"])}
        elif kind == "matmul":
            inputs.append(self.constant([shape[-1], self.random.randint(1, 9)]))
            parameters = {"activation": self.random.choice(["none", "relu", "gelu"])}
        elif kind == "reshape":
            parameters = {"shape": self.random.choice([[0, -1, 1], [0, 1, -1], [0, -1], [0, 1, -1 - len(shape), -1], [-2, -1, 1]])}
        elif kind == "reduce":
            parameters = {"op": self.random.choice(["sum", "max", "mean"]), "axis": -1, "keepdims": True}
        elif kind == "transpose":
            parameters = {self.random.choice(("perm", "axes")): [0] + self.random.sample(range(1, len(shape)), len(shape) - 1)}
        elif kind == "slice":
            start = self.random.randrange(shape[-1])
            parameters = {"axis": self.random.choice((-1, len(shape) - 1)), "start": start - self.random.choice((0, shape[-1]))}
            if self.random.random() < 0.6:
                parameters["end"] = self.random.randint(start + 1, shape[-1])
            if self.random.random() < 0.5:
                parameters["step"] = self.random.randint(1, 3)
        elif kind == "pad":
            parameters = {"axis": -1, "before": self.random.randint(0, 3), "after": [self.random.randint(1, 3)], "value": -0.5}
        elif kind == "concat":
            inputs += [source] * self.random.randint(1, 3)
            parameters = {"axis": -1}
        elif kind == "split":
            parts = self.random.choice([n for n in range(1, 5) if shape[-1] % n == 0])
            parameters = {"axis": -1, "parts": parts, "part": self.random.randrange(parts)}
        elif kind == "expand":
            parameters = {"shape": [0] + [self.random.randint(2, 3) if n == 1 else 0 for n in shape[1:]]}
        elif kind == "tile":
            parameters = {"axis": len(shape) - 1, "repeats": self.random.randint(1, 3)}
        elif kind == "layout":
            parameters = {"op": "slice", "steps": ",".join(["1"] * (len(shape) - 1) + ["-1"])}
        elif kind == "window":
            size = self.random.randint(1, min(3, shape[-2])) if len(shape) > 2 else 1
            if len(shape) > 2 and math.prod(shape[1:]) * size < 3000:
                parameters = {"size": size, "stride": self.random.randint(1, 2), "auto_pad": self.random.choice(("none", "same_upper"))}
            else:
                op, parameters = "map", {"op": "relu"}
        elif kind == "topk":
            parameters, outputs = {"k": self.random.randint(1, shape[-1])}, ["v%d" % number, "i%d" % number]
        self.nodes.append({"name": "n%d" % number, "op": op, "inputs": inputs, "outputs": outputs, "parameters": parameters})
        self.run(self.nodes[-1])

    def run(self, node):
        given = [self.values[name] for name in node["inputs"]]
        if node["op"] == "reshape":
            shape = [given[0].shape[i] if d == 0 else given[0].shape[-2 - d] if d < -1 else d for i, d in enumerate(node["parameters"]["shape"])]
            known = math.prod(d for d in shape if d > 0)
            shape = [len(given[0].values) // known if d < 0 else d for d in shape]
            self.values[node["outputs"][0]] = of_bytes(given[0].datatype, shape, given[0].data)
            return
        op, parameters = node["op"], node["parameters"]
        if op in ("transpose", "slice", "pad", "concat", "split", "expand", "tile"):
            names = {"perm": "axes", "start": "starts", "end": "ends", "step": "steps", "shape": "new_shape"}
            op, parameters = "layout", {"op": op, **{names.get(name, name): value for name, value in parameters.items()}}
        got = infer(self.client, op, [("INPUT%d" % i, t) for i, t in enumerate(given)], parameters)
        for i, name in enumerate(node["outputs"]):
            self.values[name] = got["OUTPUT%d" % i]

    def check(self):
        made = [name for node in self.nodes for name in node["outputs"]]
        pool = made + [i["name"] for i in self.inputs] + [c["name"] for c in self.initializers]
        names = self.random.sample(pool, min(len(pool), self.random.randint(0, 3)))
        names = ([made[-1]] if made[-1] not in names else []) + names
        self.random.shuffle(names)
        document = {"format": 1, "inputs": self.inputs, "initializers": self.initializers, "nodes": self.nodes,
                    "outputs": [{"name": name} for name in names], "fuse": self.random.random() < 0.5}
        if all(name in made for name in names) and self.random.random() < 0.5:
            document["max_batch"] = self.random.randint(self.batch, 9)
        self.client.load("chain", document)
        for _ in range(2):
            got = infer(self.client, "chain", [(i["name"], self.values[i["name"]]) for i in self.inputs])
            for name in names if got else ():
                wanted = self.values[name]
                same = got[name].data == wanted.data if BACKEND == "cpu" and not document["fuse"] else near(got[name], wanted)
                check(got[name].shape == wanted.shape and same, name, "differs in", json.dumps(document))
        for name in self.resident:
            self.client.delete("/v2/tensors/" + name)  # the model goes on with its content
        got = infer(self.client, "chain", [(i["name"], self.values[i["name"]]) for i in self.inputs])
        check(got and got[names[0]].shape == self.values[names[0]].shape, "behind the names of its contents")
        self.client.delete("/v2/models/chain")


def near(left, right):
    return all(a == b or abs(a - b) <= 1e-3 * max(1, abs(b)) for a, b in zip(left.values, right.values))


# --- replaced and unloaded while it is asked ------------------------------------------------------------------------------------

def scaled(factor):
    """x * factor: each answer says whose it is. The factor is a content of its own."""
    return {"format": 1, "inputs": [{"name": "x", "datatype": "FP32", "shape": ["n"]}],
            "initializers": [{"name": "k", "datatype": "FP32", "shape": [1], "data": [factor]}],
            "nodes": [{"name": "scale", "op": "map", "inputs": ["x", "k"], "outputs": ["y"], "parameters": {"op": "mul"}}],
            "outputs": [{"name": "y"}]}


def check_replaced(daemon, client):
    stop, seen, bad = threading.Event(), set(), []

    def ask(n):
        own = Client(daemon)
        body = struct.pack("<%df" % n, *([1.0] * n))
        while not stop.is_set():
            answer = own.ask(request("POST", "/v2/models/scale/infer?shape=%d" % n, (), body))
            if answer is not None and (answer.status == 404 or answer.header("kernserve-error") == "loading"):
                seen.add(404)
                continue
            values = set(struct.unpack("<%df" % n, answer.body)) if answer is not None and answer.status == 200 else None
            if values is None or len(values) != 1 or not values <= {1.0, 2.0, 3.0}:
                bad.append((answer, values))
                return
            seen.update(values)

    client.load("scale", scaled(1.0))
    threads = [threading.Thread(target=ask, args=(n,)) for n in (1, 7, 1000, 40000)]
    for thread in threads:
        thread.start()
    end, rounds = time.monotonic() + 4, 0
    while time.monotonic() < end:
        client.load("scale", scaled(1.0 + rounds % 3))
        rounds += 1
        if rounds % 10 == 0:
            client.delete("/v2/models/scale")
    client.load("scale", scaled(2.0))
    stop.set()
    for thread in threads:
        thread.join()
    check(not bad, "an answer of no version", bad[:2])
    check({1.0, 2.0, 3.0} <= seen and rounds >= 10, "the load met", seen, "in", rounds, "rounds")
    client.delete("/v2/models/scale")
    print("%d loads under 4 clients; answers of %s" % (rounds, sorted(seen)))


def resident_bytes(client):
    return client.document("/v2/tensors?limit=1")["bytes"]


def check_memory(client, before):
    """Contents go with the last plan of a shard, which happens in turns of shards."""
    check(comes_to(lambda: resident_bytes(client), before) == before, "bytes of contents", resident_bytes(client), "and not", before)
    for i in range(200):
        client.load("again", scaled(float(i)))
        got = infer(client, "again", [("x", Tensor("FP32", [3], [1.0, 2.0, 3.0]))])["y"]
        check(got.values == [i * 1.0, i * 2.0, i * 3.0], "load", i, got.values)
    client.delete("/v2/models/again")
    check(comes_to(lambda: resident_bytes(client), before) == before, "bytes of contents behind 200 loads", resident_bytes(client), before)
    answer = client.get("/v2/models/again")
    check(answer.status == 404 and b"has no available versions" in answer.body, answer)


def check_held(client):
    """A model holds the contents that it was loaded with."""
    tensor = Tensor("FP32", [1], [5.0])
    client.put_tensor("factor", tensor)
    document = scaled(1.0)
    document["initializers"] = [{"name": "k", "tensor": "factor"}]
    client.load("held", document)
    client.put_tensor("factor", Tensor("FP32", [1], [7.0]))
    got = infer(client, "held", [("x", Tensor("FP32", [2], [1.0, 2.0]))])["y"]
    check(got.values == [5.0, 10.0], "the content of the moment of loading", got.values)
    client.delete("/v2/tensors/factor")
    check(infer(client, "held", [("x", Tensor("FP32", [1], [1.0]))])["y"].values == [5.0], "behind the name")
    client.load("held", scaled(2.0))
    client.delete("/v2/models/held")


def check_indices(client, generator):
    """A table looked up by indices that a request gives, and by others that nodes make; a bad one is the request's fault, by the node's name."""
    rows, columns, count = generator.randint(4, 50), generator.randint(1, 9), generator.randint(2, 40)
    table = Tensor("FP32", [rows, columns], [float(i) for i in range(rows * columns)])
    nodes = [{"name": "look", "op": "gather", "inputs": ["table", "at"], "outputs": ["x"]},
             {"name": "best", "op": "reduce", "inputs": ["scores"], "outputs": ["i"], "parameters": {"op": "argmax", "axis": -1}},
             {"name": "shift", "op": "map", "inputs": ["i"], "outputs": ["j"], "parameters": {"op": "add", "a": 1}},
             {"name": "pick", "op": "gather", "inputs": ["table", "j"], "outputs": ["y"]}]
    document = {"format": 1, "inputs": [{"name": "at", "datatype": "INT32", "shape": ["n"]}, {"name": "scores", "datatype": "FP32", "shape": ["n", rows]}],
                "initializers": [{"name": "table", "datatype": "FP32", "shape": [rows, columns], "data": table.values}], "nodes": nodes,
                "outputs": [{"name": "x"}, {"name": "y"}]}
    client.load("lookup", document)
    at = [generator.randint(-rows, rows - 1) for _ in range(count)]
    best = [generator.randrange(rows - 1) for _ in range(count)]
    for bad, place in ((None, 0), ("look", generator.randrange(count)), ("pick", generator.randrange(count)), (None, 0)):
        given, chosen = list(at), list(best)
        if bad == "look":
            given[place] = generator.choice((rows, -rows - 1, 2 ** 31 - 1))
        elif bad:
            chosen[place] = rows - 1
        scores = Tensor("FP32", [count, rows], [float(i == b) for b in chosen for i in range(rows)])
        inputs = [("at", Tensor("INT32", [count], given)), ("scores", scores)]
        got = infer(client, "lookup", inputs, status=400 if bad else 200)
        if bad:
            data = b"".join(t.data for _, t in inputs)
            answer = client.ask(request("POST", "/v2/models/lookup/infer?shape=%d&shape=%d,%d" % (count, count, rows), (), data))
            value = given[place] if bad == "look" else rows
            said = "node '%s' (gather): INPUT1 (indices) has %d at place %d: it is outside [%d, %d)" % (bad, value, place, -rows, rows)
            check(answer.status == 400 and answer.header("kernserve-error") == "range" and said in answer.body.decode(), said, answer)
            continue
        for name, places in (("x", given), ("y", [b + 1 for b in chosen])):
            wanted = [float(p % rows * columns + c) for p in places for c in range(columns)]
            check(got[name].values == wanted, name, got[name].values[:9], wanted[:9])
    client.delete("/v2/models/lookup")
    kept = {"format": 1, "max_batch": 8, "inputs": [{"name": "at", "datatype": "INT64", "shape": [-1, 2]}, {"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
            "initializers": [document["initializers"][0], {"name": "i", "datatype": "INT64", "shape": [1], "data": [0]}],
            "nodes": [{"name": "look", "op": "gather", "inputs": ["table", "at"], "outputs": ["y"]}], "outputs": [{"name": "y"}]}
    client.load("lookup", kept)
    got = infer(client, "lookup", [("at", Tensor("INT64", [1, 2], [1, -1])), ("x", Tensor("FP32", [1, 3], [0.0] * 3))])
    check(got is not None and got["y"].values == table.values[columns:2 * columns] + table.values[-columns:], "a batch of indices", got)
    for inputs in (["x", "i"], ["x", "at"]):  # of rows of the batch, which would be others' in a larger one
        answer = client.load("lookup", dict(kept, nodes=[dict(kept["nodes"][0], inputs=inputs)]), status=(400,))
        check(answer.header("kernserve-error") == "definition" and b"it mixes rows of the batch" in answer.body, inputs, answer)
    client.delete("/v2/models/lookup")


def check_many(daemon, client, generator):
    """More nodes than a byte can number: what they make, the name of a late one whose indices are out of bounds, and each step where all are told."""
    rows, columns, count = generator.randint(4, 50), generator.randint(1, 9), generator.randint(2, 40)
    table = [float(i) for i in range(rows * columns)]
    name = lambda i: "v%d" % i if i else "at"
    nodes = [{"name": "node%d" % i, "op": "map", "inputs": [name(i)], "outputs": [name(i + 1)], "parameters": {"op": "neg"}} for i in range(900)]
    nodes[700] = {"name": "pick", "op": "gather", "inputs": ["table", name(700)], "outputs": [name(701)]}
    document = {"format": 1, "inputs": [{"name": "at", "datatype": "INT32", "shape": ["n"]}], "nodes": nodes, "outputs": [{"name": name(900)}],
                "initializers": [{"name": "table", "datatype": "FP32", "shape": [rows, columns], "data": table}]}
    at = [generator.randint(-rows, rows - 1) for _ in range(count)]
    wanted = [-table[i % rows * columns + c] for i in at for c in range(columns)]
    target = "/v2/models/many/infer?shape=%d" % count
    for fuse in (True, False):
        client.load("many", dict(document, fuse=fuse))
        got = infer(client, "many", [("at", Tensor("INT32", [count], at))])
        check(got[name(900)].values == wanted, "900 nodes, fuse", fuse, got[name(900)].values[:9], wanted[:9])
        place, value = generator.randrange(count), generator.choice((rows, -rows - 1, 2 ** 31 - 1))
        answer = client.ask(request("POST", target, (), Tensor("INT32", [count], at[:place] + [value] + at[place + 1:]).data))
        said = "node 'pick' (gather): INPUT1 (indices) has %d at place %d: it is outside [%d, %d)" % (value, place, -rows, rows)
        check(answer.status == 400 and answer.header("kernserve-error") == "range" and said in answer.body.decode(), said, answer)
    answer = client.ask(request("POST", target + "&profile=1", (), Tensor("INT32", [count], at).data))
    timing = answer.header("server-timing")
    check(answer.status == 200 and timing.count("node;desc=") == 64 and ", rest;dur=" in timing, timing)
    steps = client.document("/v2/models/many/plan?shape=%d" % count)["steps"]
    check([s["nodes"] for s in steps] == [[n["name"]] for n in nodes], "the plan's steps", len(steps))
    events = json.loads(Remote("127.0.0.1:%d" % daemon.admin_port).get("/v2/trace").body)["traceEvents"]
    traced = {e["name"] for e in events if e.get("cat") == "node"}
    check({n["name"] for n in nodes} <= traced, "the steps in the trace", len(traced))
    client.delete("/v2/models/many")


def main():
    generator = seed()
    check_warm()
    with Daemon(daemon_path(), *OPTIONS, "--backend", BACKEND) as daemon:
        client = Client(daemon)
        before = resident_bytes(client)
        check_network(client, generator)
        check_documents(client)
        check_profile(daemon, client)
        check_views(client)
        check_plans(daemon, client)
        check_batch(client)
        check_wide(client, generator)
        check_fused(client, generator)
        check_own_sum(client, generator)
        check_attention(client, generator)
        check_casts(client, generator)
        check_conditions(client)
        client.load("there", scaled(2.0))
        check(refusals.walk(daemon, ROWS) == 0, "rows that are refused")
        client.delete("/v2/models/there")
        check_indices(client, generator)
        check_many(daemon, client, generator)
        for _ in range(CHAINS):
            Chain(generator, client).check()
        check_held(client)
        check_replaced(daemon, client)
        client.delete("/v2/models/mlp")
        for name in ("w0", "b0", "w1", "b1"):
            client.delete("/v2/tensors/mlp." + name)
        check_memory(client, before)
        check(settle(daemon) == 0, "bytes of slots in use")
        check(daemon.stop() == 0, "the daemon's exit")
    with Daemon(daemon_path(), "--no-resident", "--backend", BACKEND) as daemon:
        answer = Client(daemon).ask(put_model("x", scaled(1.0)))
        check(answer is not None and answer.status == 501, "--no-resident", answer)
    return wrongs()


if __name__ == "__main__":
    sys.exit(main())
