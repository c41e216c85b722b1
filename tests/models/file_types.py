#!/usr/bin/env python3
"""Magika, the detector of file types that its package brings as a graph of ONNX: converted, loaded by PUT, and asked by the package itself,
whose session is the daemon instead of onnxruntime. Of each file the label is the package's own, and probabilities are within 1e-5 of
float64, computed here from the graph's weights. (onnxruntime's own are up to 2e-3 away: the graph's variance is E[x^2] - E[x]^2. Where two
labels are nearer than that, float64's decides.) Then rates beside onnxruntime, in turns.

file_types.py KERNSERVE [BACKEND] [--all | --files N] [--host]     of tests/compat/environment.sh tests/models; cpu, where no backend is named
--all: every file of /usr/share/doc, /usr/bin and the tree, and of each 20th the probabilities; else a sample of N of them (120) by KS_SEED
--host: the rates are those of a device: one file a request from 128 connections, beside onnxruntime on all of the host's cores
"""

import os
import sys

import magika
import numpy as np
import onnx
from magika import Magika

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "http"), os.path.join(HERE, "..", "..", "clients", "python", "src")]
import kernserve  # noqa: E402
from daemon import Daemon, check, daemon_path, seed, wrongs  # noqa: E402
from kernserve.onnx import convert  # noqa: E402
from rates import race, race_host, session_of  # noqa: E402

ALL, HOST = "--all" in sys.argv, "--host" in sys.argv
FILES = int(sys.argv.pop(sys.argv.index("--files") + 1)) if "--files" in sys.argv else 120
BACKEND = next((word for word in sys.argv[2:] if not word.startswith("-")), "cpu")
PLACES = ("/usr/share/doc", "/usr/bin", os.path.join(HERE, "..", ".."))
EXACT, BATCH, FASTER = 12, 64, 20
BOUND, APART = 1e-5, 4e-3  # from float64; labels that are nearer than onnxruntime is exact
GRAPH = os.path.join(os.path.dirname(magika.__file__), "models", "standard_v3_3", "model.onnx")
OPS = ["map", "gather", "reshape", "transpose", "norm", "window", "matmul", "map", "reduce", "reshape", "norm", "matmul", "softmax"]


class Served:
    """In the place of an InferenceSession. Keeps what it was asked, and what it answered."""

    def __init__(self, run):
        self.ask, self.rows, self.scores = run, [], []

    def run(self, names, given):
        rows = np.asarray(given["bytes"], np.int32)
        self.rows.append(rows)
        self.scores.append(np.asarray(self.ask(names, {"bytes": rows})))
        return [self.scores[-1]]


def files(random):
    """Readable files, in an order of their own."""
    found = []
    for place in PLACES:
        for folder, folders, names in os.walk(place):
            folders[:] = sorted(name for name in folders if name != ".git" and not name.startswith("build"))
            found += [os.path.join(folder, name) for name in sorted(names)]
    found = [path for path in found if os.path.isfile(path) and not os.path.islink(path) and os.access(path, os.R_OK)]
    return found if ALL else random.sample(found, min(FILES, len(found)))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


class Exact:
    """The network in float64. Its weights are told apart by their shapes, and by the node that takes them."""

    def __init__(self, path):
        graph = onnx.load(path).graph
        values = {tensor.name: onnx.numpy_helper.to_array(tensor).astype(np.float64) for tensor in graph.initializer}
        of = lambda op, *shape: [values[name] for node in graph.node if node.op_type == op for name in node.input if name in values and values[name].shape == shape]
        self.table, self.table_bias = of("MatMul", 257, 64)[0], of("Add", 1, 1, 64)[0]
        self.weight0, (self.bias0, self.bias) = of("Mul", 1, 512, 1)[0], of("Add", 1, 512, 1)
        self.conv = of("Conv", 512, 256, 5, 1)[0][..., 0]
        self.weight1, self.bias1, self.dense, self.dense_bias = of("Mul", 1, 512)[0], of("Add", 1, 512)[0], of("MatMul", 512, 214)[0], of("Add", 1, 214)[0]

    @staticmethod
    def norm(x, axis, weight, bias):
        d = x - x.mean(axis, keepdims=True)
        return d / np.sqrt((d ** 2).mean(axis, keepdims=True) + 1e-6) * weight + bias

    def row(self, x):
        """Probabilities of one file."""
        inside = (x >= 0) & (x < len(self.table))
        embedded = np.where(inside[:, None], self.table[np.where(inside, x, 0)], 0.0)
        h = self.norm(gelu(embedded + self.table_bias[0, 0]).reshape(512, 256), 0, self.weight0[0], self.bias0[0])
        taps = sum(h[t:t + 508] @ self.conv[:, :, t].T for t in range(5))
        h = self.norm(gelu(taps + self.bias[0, :, 0]).max(0), 0, self.weight1[0], self.bias1[0])
        z = h @ self.dense + self.dense_bias[0]
        e = np.exp(z - z.max())
        return e / e.sum()


def compare(ks, random):
    paths, exact = files(random), Exact(GRAPH)
    own, ours = Magika(), Magika()
    theirs = Served(lambda names, given, session=own._onnx_session: session.run(names, given)[0])
    served = Served(lambda names, given: np.concatenate([ks.infer("magika", bytes=given["bytes"][at:at + BATCH])["target_label"] for at in range(0, len(given["bytes"]), BATCH)]))
    own._onnx_session, ours._onnx_session = theirs, served
    labels = set()
    for first in range(0, len(paths), BATCH):
        some = paths[first:first + BATCH]
        for path, wanted, got in zip(some, own.identify_paths(some), ours.identify_paths(some)):
            check(wanted.status == got.status, path, wanted, got)
            labels.add(str(wanted.output.label) if wanted.ok else "")
    rows, wanted, got = (np.concatenate(parts) for parts in (served.rows, theirs.scores, served.scores))
    if not np.array_equal(rows, np.concatenate(theirs.rows)):  # a file has changed meanwhile
        same = (rows == np.concatenate(theirs.rows)).all(1)
        check(same.mean() > 0.99, "files that are the same to both:", same.mean())
        rows, wanted, got = rows[same], wanted[same], got[same]
    near = 0
    for place in np.flatnonzero(wanted.argmax(1) != got.argmax(1)):
        right = exact.row(rows[place])
        best = np.sort(right)[-2:]
        near += 1
        check(best[1] - best[0] < APART and right.argmax() == got[place].argmax(), "a label:", got[place].argmax(), "instead of", wanted[place].argmax(), best)
    made = np.array([[256] * 2048, [-1] * 2048, [2 ** 31 - 1, 257] * 1024, list(range(256)) * 8], np.int32)  # of no file: values outside, and a ramp
    worst = theirs_worst = 0.0
    for place in range(0, len(rows), 20 if ALL else max(1, len(rows) // EXACT)):
        right = exact.row(rows[place])
        worst, theirs_worst = max(worst, np.abs(got[place] - right).max()), max(theirs_worst, np.abs(wanted[place] - right).max())
    for row, scores in zip(made, np.asarray(ks.infer("magika", bytes=made)["target_label"])):
        worst = max(worst, np.abs(scores - exact.row(row)).max())
    check(worst <= BOUND, "from float64:", worst)
    print("%d files, %d by the network, %d labels, equal but for %d too near to tell; %.1e from float64 (bound %.0e; onnxruntime %.1e)" %
          (len(paths), len(rows), len(labels), near, worst, BOUND, theirs_worst))
    return rows


def main():
    random = seed()
    definition, weights = convert(GRAPH, max_batch=BATCH)
    check([node["op"] for node in definition["nodes"]] == OPS, "nodes:", [node["op"] for node in definition["nodes"]])
    print("%d nodes of ONNX, %d here" % (len(onnx.load(GRAPH).graph.node), len(definition["nodes"])))
    with Daemon(daemon_path(), "--backend", BACKEND) as daemon, kernserve.Client("http://127.0.0.1:%d" % daemon.port) as ks:
        ks.load("magika", definition, weights)
        rows = compare(ks, random)
        url = "http://127.0.0.1:%d" % daemon.port
        if HOST:
            race_host(url, GRAPH, "magika", "target_label", np.ascontiguousarray(rows[:1]), "INT32", FASTER)
        else:
            race(ks, url, session_of(GRAPH), "magika", "target_label", [np.ascontiguousarray(rows[:batch]) for batch in (1, 8)], "INT32")
        ks.unload("magika")
        check(daemon.stop() == 0, "the exit code")
    return wrongs() > 0


if __name__ == "__main__":
    sys.exit(main())
