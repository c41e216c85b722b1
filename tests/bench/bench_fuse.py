#!/usr/bin/env python3
"""Maps of a model in one pass beside the same maps one by one: bench_fuse.py KERNSERVE [--seconds 2] [-- options of the daemon]

Each chain is loaded twice, with and without `fuse`, and asked by one connection in turns. A line has the least `compute` in Server-Timing of
both, as others may use the cores, the ratio of these and that of the medians, the steps of both, and the bytes of a value; the answers must be
the same bytes. On a GPU maps are one pass where the daemon fuses
them: else both have as many steps."""
import argparse
import os
import re
import statistics
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "http"))
import json  # noqa: E402

from daemon import Daemon, check, request, wrongs  # noqa: E402

COLUMNS = 1024


def chain(fuse, datatype, nodes):
    """Nodes as (op, inputs), each of which makes the value of its number; "x", "y" of each row, "v" of a column."""
    listed = []
    for i, (op, inputs, more) in enumerate(nodes):
        listed.append({"name": "n%d" % i, "op": "map", "inputs": inputs, "outputs": [str(i)], "parameters": {"op": op, **more}})
    used = {name for _, inputs, _ in nodes for name in inputs}
    return {"format": 1, "fuse": fuse, "nodes": listed, "outputs": [{"name": str(len(nodes) - 1)}],
            "inputs": [{"name": name, "datatype": datatype, "shape": [COLUMNS] if name == "v" else [-1, COLUMNS]}
                       for name in ("x", "y", "v") if name in used]}


CHAINS = {
    "2 nodes": [("sub", ["x", "v"], {}), ("relu", ["0"], {})],
    "4 nodes": [("sub", ["x", "v"], {}), ("clamp", ["0"], {"a": -1, "b": 1}), ("abs", ["1"], {}), ("max", ["2", "y"], {})],
    "8 nodes": [("sub", ["x", "v"], {}), ("abs", ["0"], {}), ("max", ["1", "y"], {}), ("neg", ["2"], {}), ("min", ["3", "x"], {}),
                ("square", ["4"], {}), ("sub", ["5", "y"], {}), ("relu", ["6"], {})],
    "x sigmoid(x - v)": [("sub", ["x", "v"], {}), ("sigmoid", ["0"], {}), ("mul", ["x", "1"], {})],
}


def body_of(datatype, definition, rows):
    parts, target = [], ""
    for n, tensor in enumerate(definition["inputs"]):
        count = COLUMNS if tensor["name"] == "v" else rows * COLUMNS
        values = [((i * 7 + n * 3) % 23) / 8 - 1.25 for i in range(COLUMNS)]
        parts.append(struct.pack("<%d%s" % (COLUMNS, "e" if datatype == "FP16" else "f"), *values) * (count // COLUMNS))
        target += "&shape=" + ("%d" % COLUMNS if tensor["name"] == "v" else "%d,%d" % (rows, COLUMNS))
    return target.replace("&", "?", 1), b"".join(parts)


def row(daemon, name, datatype, rows, seconds):
    definitions = {fuse: chain(fuse, datatype, CHAINS[name]) for fuse in (True, False)}
    target, body = body_of(datatype, definitions[True], rows)
    times, answers, steps = {True: [], False: []}, {}, {}
    with daemon.connect(timeout=60) as connection:
        for fuse, definition in definitions.items():
            answer = connection.ask(request("PUT", "/v2/models/chain%d" % fuse, (), json.dumps(definition).encode()), "PUT")
            check(answer.status in (200, 201), answer)
            steps[fuse] = json.loads(answer.body)["steps"]
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(times[False]) < 60:
            for fuse in (True, False):
                answer = connection.ask(request("POST", "/v2/models/chain%d/infer" % fuse + target, (), body), "POST")
                check(answer.status == 200, answer)
                times[fuse].append(float(re.search("compute;dur=([0-9.]+)", answer.header("server-timing")).group(1)))
                answers[fuse] = answer.body
    check(answers[True] == answers[False], "the same bytes", name)
    one, each = (min(times[fuse]) * 1000 for fuse in (True, False))
    middle = statistics.median(times[False]) / statistics.median(times[True])
    size = rows * COLUMNS * (2 if datatype == "FP16" else 4)
    print("%-18s %-5s %9d bytes  fused %9.1f us in %d  one by one %9.1f us in %d  ratio %.2f, of medians %.2f" %
          (name, datatype, size, one, steps[True], each, steps[False], each / one, middle), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernserve")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("options", nargs="*")
    asked = parser.parse_args()
    with Daemon(asked.kernserve, "--threads", "1", "--lanes", "1", *asked.options) as daemon:
        for name in CHAINS:
            for datatype, rows in (("FP32", 16), ("FP32", 256), ("FP32", 4096), ("FP16", 256)):
                row(daemon, name, datatype, rows, asked.seconds)
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
