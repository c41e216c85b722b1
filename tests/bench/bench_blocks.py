#!/usr/bin/env python3
"""Blocks of models on one device: what they take there, beside the sum of their kernels, a request of as many bytes, and PyTorch.

bench_blocks.py KERNSERVE [--backend cuda] [--only BLOCKS] [--seconds 1] [--rounds 3] [--torch-seconds 60] [--small] [-- options of the daemon]

  mlp        x + gelu(layer_norm(x) w1 + b1) w2 + b2, BF16, M 16, 4096 -> 11008 -> 4096
  encoder    layer norm, attention of 12 heads, residual, layer norm, two products with gelu between, residual: BF16, 128 tokens of 768
  encoder8   eight of it at once
  *_apart    of an encoder: queries, keys and values by three products; else by one of a batch of three, whose thirds are views
  mlp128, mlp768, mlp768_1, encoder384, encoder1024    other sizes

A block is loaded by PUT with resident weights, and asked by one connection. Device time is that between the stamps of its first and its last
kernel, of which /plan has the mean: the median, and the least, of means over some requests each. `in a graph` of a step: what each of
eight more of it adds to a model of that step alone; its weights above 16 MiB change from one to the next, as in the block. `by events`: with profile=1,
without a graph. Values are set beside float64, where the same nodes in float64 with each result rounded to BF16 are off, too: twice that is the
bound. One request is one launch of one graph by the counters. Where torch with CUDA can be imported, a process of its own times the same block
on the same bytes, eager and compiled, in a CUDA graph of several runs, by events. The exit code tells of wrong answers, not of figures that fall short."""
import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "http"), HERE]
from bench_resident import Work, drop, in_turns, line, put, shape_of  # noqa: E402
from daemon import Daemon, Remote, check, comes_to, metric, request, wrongs  # noqa: E402

EPSILON, MORE, LARGE, WINDOW = 1e-5, 8, 16 << 20, 25
# what, its lengths, one product for queries, keys and values; wanted us of device time; torch.compile in a graph on an H200 (2026-11-23)
BLOCKS = {"mlp": ("mlp", (16, 4096, 11008), True, 50, 59.3), "encoder": ("encoder", (1, 128, 768, 12), True, 30, 33.1),
          "encoder8": ("encoder", (8, 128, 768, 12), True, 50, 56.6), "encoder_apart": ("encoder", (1, 128, 768, 12), False, 30, 33.1),
          "encoder8_apart": ("encoder", (8, 128, 768, 12), False, 50, 56.6), "mlp128": ("mlp", (128, 4096, 11008), True, 58, 65.5),
          "mlp768": ("mlp", (16, 768, 3072), True, 11, 15.1), "mlp768_1": ("mlp", (1, 768, 3072), True, 10, 13.9),
          "encoder384": ("encoder", (1, 128, 384, 12), True, 25, 27.2), "encoder1024": ("encoder", (1, 512, 1024, 16), True, 48, 52.1)}
USUAL = ["mlp", "encoder", "encoder8", "encoder_apart", "encoder8_apart"]
SMALL = {"mlp": (4, 32, 96), "encoder": (2, 16, 64, 4)}


# --- values -----------------------------------------------------------------------------------------------------------------


def narrow(x):
    """BF16's bits, rounded to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def wide(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def erf(x):
    return np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size).reshape(x.shape)


def norm(x, weight, bias):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d ** 2).mean(-1, keepdims=True) + EPSILON) * weight + bias


def attention(q, k, v):
    q, k, v = (each.transpose(0, 2, 1, 3) for each in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2) * q.shape[-1] ** -0.5
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)


NUMPY = {"matmul": lambda p, x, w: x @ w, "norm": lambda p, *t: norm(*t), "attention": lambda p, *t: attention(*t), "reshape": lambda p, x: x.reshape(p["shape"]),
         "split": lambda p, x: np.split(x, p["parts"], p["axis"])[p["part"]],
         "map": lambda p, *t: t[0] + t[1] if p["op"] == "add" else 0.5 * t[0] * (1 + erf(t[0] / math.sqrt(2)))}


class Block:
    """A definition's nodes, its weights as BF16's bits, and an input."""

    def __init__(self, name, given):
        self.name = name
        self.kind, self.lengths, self.joined, self.wanted, self.known = BLOCKS[name]
        if given.small:
            self.lengths = SMALL[self.kind]
        self.rng = np.random.default_rng(sum(self.lengths))  # one block's bytes are the same where queries, keys and values come apart
        self.weights, self.nodes = {}, []
        getattr(self, self.kind)(*self.lengths)
        self.x = narrow(self.rng.standard_normal(self.shape, np.float32))

    def draw(self, name, *shape, scale=1.0, around=0.0):
        self.weights[name] = narrow(around + self.rng.standard_normal(shape, np.float32) * np.float32(scale))
        return name

    def node(self, op, /, *inputs, **parameters):
        self.nodes.append({"name": "v%d" % len(self.nodes), "op": op, "inputs": list(inputs), "outputs": ["v%d" % len(self.nodes)], "parameters": parameters})
        return self.nodes[-1]["outputs"][0]

    def product(self, x, name, inner, columns, *batch):
        return self.node("matmul", x, self.draw(name, *batch, inner, columns, scale=inner ** -0.5))

    def biased(self, x, name, inner, columns):
        return self.node("map", self.product(x, name, inner, columns), self.draw(name + "_bias", columns, scale=0.1), op="add")

    def normed(self, x, name, width):
        return self.node("norm", x, self.draw(name, width, scale=0.1, around=1.0), self.draw(name + "_bias", width, scale=0.1), eps=EPSILON)

    def feed(self, x, width, hidden):
        """x + what the two products make of its norm."""
        bent = self.node("map", self.biased(self.normed(x, "norm2", width), "linear1", width, hidden), op="gelu")
        return self.node("map", x, self.biased(bent, "linear2", hidden, width), op="add")

    def mlp(self, rows, width, hidden):
        self.shape = (rows, width)
        self.feed("x", width, hidden)

    def encoder(self, batch, tokens, width, heads):
        self.shape = (batch, tokens, width)
        rows = self.node("reshape", "x", shape=[-1, width])
        given = self.normed(rows, "norm1", width)
        thirds = self.product(given, "in", width, width, 3)
        if self.joined:
            thirds = [self.node("split", thirds, axis=0, parts=3, part=i) for i in range(3)]
        else:
            self.nodes.pop()
            self.weights.update({"in%d" % i: part.copy() for i, part in enumerate(self.weights.pop("in"))})
            thirds = [self.node("matmul", given, "in%d" % i) for i in range(3)]
        heads_of = [self.node("reshape", third, shape=[batch, tokens, heads, width // heads]) for third in thirds]
        mixed = self.node("reshape", self.node("attention", *heads_of, layout="bshd"), shape=[-1, width])
        attended = self.node("map", rows, self.product(mixed, "out", width, width), op="add")
        self.node("reshape", self.feed(attended, width, 4 * width), shape=[batch, tokens, width])

    def values(self, rounded):
        """By name, in float64; rounded: each to BF16."""
        values = {name: wide(bits) for name, bits in (*self.weights.items(), ("x", self.x))}
        for node in self.nodes:
            y = NUMPY[node["op"]](node["parameters"], *(values[name] for name in node["inputs"]))
            values[node["outputs"][0]] = wide(narrow(y)) if rounded else y
        return values

    def definition(self, nodes, inputs, outputs):
        read = {name for node in nodes for name in node["inputs"]}
        return {"format": 1, "inputs": [{"name": name, "datatype": "BF16", "shape": list(shape)} for name, shape in inputs.items()],
                "initializers": [{"name": name, "tensor": name} for name in self.tensors if name in read], "nodes": nodes,
                "outputs": [{"name": name} for name in outputs], "warm": [{name: list(shape) for name, shape in inputs.items()}]}


# --- requests ---------------------------------------------------------------------------------------------------------------


class Served:
    """A model that is loaded, and one connection that asks it."""

    def __init__(self, daemon, name, definition, body):
        self.daemon, self.name = daemon, name
        self.connection = daemon.connect(timeout=120)
        answer = self.connection.ask(request("PUT", "/v2/models/" + name, (), json.dumps(definition).encode()), "PUT")
        check(answer.status in (200, 201), name, answer)
        self.query = "?" + "&".join("shape=" + shape_of(each["shape"]) for each in definition["inputs"])
        self.body = body

    def ask(self, more=""):
        answer = self.connection.ask(request("POST", "/v2/models/%s/infer%s" % (self.name, self.query + more), (), self.body))
        check(answer.status == 200, self.name, answer)
        return answer

    def plan(self):
        return json.loads(self.connection.ask(request("GET", "/v2/models/%s/plan%s" % (self.name, self.query))).body)

    def timed(self):
        """Runs whose kernels were timed, and microseconds of them all; NaN where there are no stamps."""
        found = self.plan()["measured"]
        return found["runs"], found["runs"] * (found["us"] or math.nan if found["runs"] else 0)

    def device_us(self, seconds):
        """Median and least over windows of requests, and `compute` of each request in Server-Timing."""
        for _ in range(WINDOW):
            self.ask()
        found, compute, until = [], [], time.monotonic() + seconds
        before = self.timed()
        while len(found) < 3 or time.monotonic() < until:
            for _ in range(WINDOW):
                compute.append(float(re.search("compute;dur=([0-9.]+)", self.ask().header("server-timing"))[1]) * 1e3)
            now = self.timed()
            check(now[0] - before[0] == WINDOW, self.name, "timed runs", now, before)
            found.append((now[1] - before[1]) / WINDOW)
            before = now
        return statistics.median(found), min(found), compute

    def unload(self):
        check(self.connection.ask(request("DELETE", "/v2/models/" + self.name), "DELETE").status == 204, "DELETE", self.name)
        self.connection.close()


def one_launch(served, backend, requests=100):
    """By the daemon's counters; all that runs meanwhile are these requests."""
    names = ("kernserve_launches_total", "kernserve_graph_launches_total")

    def read():
        text = served.daemon.metrics()
        return [metric(text, name) or 0 for name in names]

    before = read()
    graphs = {re.search("graph;desc=([a-z]+)", served.ask().header("server-timing"))[1] for _ in range(requests)}
    launches, by_graph = (now - then for now, then in zip(read(), before))
    check(launches == requests and (backend == "cpu" or (by_graph == requests and graphs == {"hit"})), served.name, launches, by_graph, graphs)
    print("%-8s %d requests: %d launches, %d of them by a graph, graph;desc=%s" % (served.name, requests, launches, by_graph, ",".join(graphs)))


# --- steps ------------------------------------------------------------------------------------------------------------------


def again(nodes, number, large, fed):
    """The same nodes under names of their own, and every second time with other weights of those that are large. fed: an input that is
    another one's output."""
    rename = {name: "%s.%d" % (name, number) for node in nodes for name in node["outputs"]}
    rename.update({name: name + ".other" for name in large if number % 2})
    source = {name: "%s.%d" % (output, number - 1) for name, output in fed.items() if number}
    return [{**node, "name": "%s.%d" % (node["name"], number), "inputs": [source.get(name, rename.get(name, name)) for name in node["inputs"]],
             "outputs": [rename[name] for name in node["outputs"]]} for node in nodes]


def step_us(daemon, block, names, values, seconds):
    """What each of MORE of a step adds to a model of it alone. A sum that a norm keeps is the next one's input, since one that is not read is not kept."""
    nodes = [node for node in block.nodes if node["name"] in names]
    made = [name for node in nodes for name in node["outputs"]]
    read = list(dict.fromkeys(name for node in nodes for name in node["inputs"]))
    inputs = {name: values[name].shape for name in read if name not in made and name not in block.weights}
    outside = {name for node in block.nodes if node not in nodes for name in node["inputs"]} | {block.nodes[-1]["outputs"][0]}
    outputs = [name for name in made if name in outside]
    large = {name for name in read if name in block.weights and block.weights[name].nbytes > LARGE}
    fed = {next(iter(inputs)): outputs[0]} if len(outputs) > 1 else {}
    body, times = b"".join(narrow(values[name]).tobytes() for name in inputs), []
    for count in (1, 1 + MORE):
        repeated = [node for number in range(count) for node in again(nodes, number, large, fed)]
        served = Served(daemon, "step", block.definition(repeated, inputs, ["%s.%d" % (name, count - 1) for name in outputs]), body)
        plan = served.plan()
        check(len(plan["steps"]) == count, names, "are not one step:", plan["steps"])
        times.append(served.device_us(seconds)[0])
        served.unload()
    return (times[1] - times[0]) / MORE


def steps_of(served, block, values, given):
    """A table of the steps, and the sum of their kernels in graphs."""
    for _ in range(20):
        answer = served.ask("&profile=1")
    plan, rows = served.plan(), []
    trace = Remote("127.0.0.1:%d" % served.daemon.admin_port).get("/v2/trace?ms=5000").body.decode()
    steps = [step for step in plan["steps"] if step["nodes"]]
    names = [step["nodes"][0] for step in steps]
    check(len(steps) == len(plan["steps"]), "copies beside", names)
    check(all('"name":"%s"' % name in trace for name in names), "the trace has no step of", names)
    check(answer.header("server-timing").count("node;") == len(names), answer.header("server-timing"))
    for step in steps:
        us = step_us(served.daemon, block, step["nodes"], values, given.seconds / 10)
        ops = [(node["parameters"] if node["op"] == "map" else node)["op"] for name in step["nodes"] for node in block.nodes if node["name"] == name]
        rows.append((us, step["us"] or 0, step["roofline_us"] or 0, " + ".join(ops), "x".join(map(str, step["outputs"][0]["shape"])), step["kernel"]))
    total = sum(row[0] for row in rows)
    print("%-8s %d nodes, %d steps, %d views, arena %d bytes" % (served.name, len(block.nodes), len(rows), len(plan["views"]), plan["arena_bytes"]))
    print("         in a graph  by events  roofline us   share")
    for us, events, roofline, ops, shape, kernel in sorted(rows, reverse=True):
        print("         %10.2f %10.2f %12.2f %6.1f%%  %s %s  %s" % (us, events, roofline, 100 * us / total, ops, shape, kernel))
    return total


# --- PyTorch, in a process of its own ------------------------------------------------------------------------------------------


def torch_blocks(folder, blocks, mode):
    """A line of JSON for each block and side; its output lies in the folder."""
    import torch
    import torch.nn.functional as F
    if not torch.cuda.is_available():
        sys.exit("torch has no CUDA")

    def load(path):
        return {name: torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).cuda() for name, bits in np.load(path).items()}

    def of_mlp(w):
        def run(x):
            n = F.layer_norm(x, x.shape[-1:], w["norm2"], w["norm2_bias"], EPSILON)
            return x + F.gelu(n @ w["linear1"] + w["linear1_bias"]) @ w["linear2"] + w["linear2_bias"]
        return run

    def of_encoder(w, heads):
        feed = of_mlp(w)

        def run(x):
            batch, tokens, width = x.shape
            h = F.layer_norm(x, (width,), w["norm1"], w["norm1_bias"], EPSILON) @ w["in"]
            q, k, v = h.view(batch, tokens, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
            return feed(x + mixed @ w["out"])
        return run

    def graph_us(run, x, path, runs=8):
        sets = [x] + [torch.randn_like(x) for _ in range(runs - 1)]
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), torch.no_grad():
            for each in sets[:2]:
                run(each)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                results = [run(each) for each in sets]
            times = []
            for _ in range(12):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                graph.replay()
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end) * 1e3 / runs)
            np.save(path, results[0].view(torch.int16).cpu().numpy().view(np.uint16))
        return statistics.median(times[1:])

    for side in ("eager", "compiled"):
        for name in blocks:
            tensors = load(os.path.join(folder, name + ".npz"))
            x = tensors.pop("x")
            if "in" in tensors:
                tensors["in"] = torch.cat(list(tensors["in"]), 1)
            run = of_mlp(tensors) if BLOCKS[name][0] == "mlp" else of_encoder(tensors, BLOCKS[name][1][-1])
            run = run if side == "eager" else torch.compile(run, dynamic=False, mode=mode)
            us = graph_us(run, x, os.path.join(folder, "%s.%s.npy" % (name, side)))
            print(json.dumps({"block": name, "side": side, "us": us, "torch": torch.__version__}), flush=True)


def opponents(folder, blocks, given):
    """(block, side): microseconds, output. Says why where there is none."""
    if given.backend != "cuda" or given.small or given.torch_seconds <= 0:
        print("PyTorch: left out (%s)" % ("--small" if given.small else "--backend cpu" if given.backend != "cuda" else "--torch-seconds 0"))
        return {}
    words = [sys.executable, "-B", os.path.abspath(__file__), "-", "--torch-of", folder, "--only", ",".join(blocks), "--torch-mode", given.torch_mode]
    with open(os.path.join(folder, "torch.txt"), "w+") as said:
        try:
            code = subprocess.run(words, stdout=said, stderr=subprocess.STDOUT, timeout=given.torch_seconds, check=False).returncode
        except subprocess.TimeoutExpired:
            code = "none within %g s" % given.torch_seconds
        said.seek(0)
        lines = said.read().splitlines()
    found = [json.loads(text) for text in lines if text.startswith("{")]
    if code:
        print("PyTorch: %d of %d figures, the others are left out (ended with %s): %s" % (len(found), 2 * len(blocks), code, lines[-1][:200] if lines else ""))
    return {(each["block"], each["side"]): (each["us"], np.load(os.path.join(folder, "%(block)s.%(side)s.npy" % each))) for each in found}


# --- a block ----------------------------------------------------------------------------------------------------------------


def far(bits, exact):
    """Largest distance, and root mean square, in units of the root mean square of what is exact."""
    d, size = wide(bits).reshape(exact.shape) - exact, np.sqrt((exact ** 2).mean())
    return float(np.abs(d).max() / size), float(np.sqrt((d ** 2).mean()) / size)


def measure(daemon, name, given, folder):
    block = Block(name, given)
    exact, rounded = block.values(False), block.values(True)
    last = block.nodes[-1]["outputs"][0]
    others = {key + ".other": np.roll(bits, 1) for key, bits in block.weights.items() if bits.nbytes > LARGE}
    block.tensors = {**block.weights, **others}
    for key, bits in block.tensors.items():
        put(daemon, key, bits, "BF16")
    np.savez(os.path.join(folder, name + ".npz"), x=block.x, **block.weights)
    served = Served(daemon, name, block.definition(block.nodes, {"x": block.shape}, [last]), block.x.tobytes())

    result = {"block": block, "exact": exact[last], "got": np.frombuffer(served.ask().body, np.uint16).reshape(exact[last].shape)}
    apart, bound = far(result["got"], exact[last]), far(narrow(rounded[last]), exact[last])
    check(all(a <= 2 * b for a, b in zip(apart, bound)), name, "from float64:", apart, "bound", [2 * b for b in bound])
    print("%-8s from float64: largest %.2e, root mean square %.2e; with each node's result rounded %.2e, %.2e (bound twice that)" % (name, *apart, *bound))
    one_launch(served, given.backend)
    us, least, compute = served.device_us(given.seconds)
    line(name, "device time (least %.2f)" % least, us, "us", sign="<=", wanted=block.wanted)
    line(name, "compute in Server-Timing (least %.0f)" % min(compute), statistics.median(compute), "us")
    line(name, "device time", us, "us", "sum of its kernels in graphs", steps_of(served, block, exact, given), sign="<=", wanted=1.05)
    works = [Work(name, "BF16", block.shape), Work("softmax", "BF16", block.shape)]
    ours, softmax = in_turns(given.rounds, *(lambda work=work: work.load(daemon.port, 1, given.seconds)["p50_us"] for work in works))
    line(name, "p50 of one connection", ours, "us", "softmax of as many bytes (%.0f) + device time" % softmax, softmax + us, sign="<=", wanted=1)
    result["us"] = us
    served.unload()
    drop(daemon, *block.tensors)
    return result


def beside_torch(name, result, theirs):
    for side in ("eager", "compiled"):
        if (name, side) not in theirs:
            continue
        us, got = theirs[name, side]
        line(name, "device time", result["us"], "us", "PyTorch %s in a graph" % side, us, sign="<=", wanted=1)
        if side == "eager":
            apart, bound = far(result["got"], result["exact"]), far(got, result["exact"])
            check(all(a <= 2 * b for a, b in zip(apart, bound)), name, "from float64:", apart, "eager PyTorch", bound)
            print("%-8s from float64: largest %.2e, root mean square %.2e; eager PyTorch %.2e, %.2e" % (name, *apart, *bound))


def main():
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernserve")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--only", default=",".join(USUAL), help="blocks, with commas")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement (1)")
    parser.add_argument("--rounds", type=int, default=3, help="turns over HTTP (3)")
    parser.add_argument("--torch-seconds", type=float, default=60.0, help="for all of PyTorch's figures, its compiler among them (60); 0: without it")
    parser.add_argument("--torch-mode", default="default", help="torch.compile's mode, such as max-autotune-no-cudagraphs")
    parser.add_argument("--torch-of", help=argparse.SUPPRESS)
    parser.add_argument("--small", action="store_true", help="small sizes: a check of this script")
    given, options = parser.parse_args(words[:at]), words[at + 1:]
    names = given.only.split(",")
    unknown = set(names) - set(BLOCKS)
    if unknown:
        parser.error("no such blocks: %s" % ", ".join(sorted(unknown)))
    if given.torch_of:
        torch_blocks(given.torch_of, names, given.torch_mode)
        return
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        slots = ("--threads", "2", "--pinned-bytes", "64M" if given.small else "1G")  # of up to 16 MiB: what is above them has no graph
        with Daemon(given.kernserve, "--backend", given.backend, *slots, *options) as daemon:
            comes_to(lambda: "\nkernserve_ceiling_copy_bytes_per_second " in daemon.metrics(), True)  # the device's ceilings are measured by then
            for name in names:
                results[name] = measure(daemon, name, given, folder)
            check(daemon.stop() == 0, "the daemon's end")
        known = [name for name in names if BLOCKS[name][2]]
        theirs = opponents(folder, known, given)
    for name in names:
        beside_torch(name, results[name], theirs)
        if (name, "compiled") not in theirs and not given.small:
            line(name, "device time", results[name]["us"], "us", "torch.compile in a graph on 2026-11-23", BLOCKS[name][4])
    sys.exit(wrongs() > 0)


if __name__ == "__main__":
    main()
