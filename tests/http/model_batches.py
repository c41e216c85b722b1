#!/usr/bin/env python3
"""Batches of models: how large they may be where memory between nodes is little.

model_batches.py KERNSERVE [BACKEND]     cpu, where none is named
"""

import json
import re
import sys

from daemon import Daemon, check, daemon_path, request, wrongs
from model_rows import OPTIONS, definition, node, put_model
from models import BACKEND, Client, infer
from tensors import Tensor

WIDE = 65536  # FP32 elements between the nodes of `wide`, of each row


def wide(**members):
    """A row is a number, made 256 KiB of, and added up again."""
    return dict({"format": 1, "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 1]}],
                 "nodes": [node("expand", ["x"], ["e"], "spread", shape=[0, WIDE]), {"name": "sum", "op": "reduce", "inputs": ["e"], "outputs": ["y"], "parameters": {"op": "sum", "axis": 1}}],
                 "outputs": [{"name": "y"}]}, **members)


def check_arena():
    """1 MiB holds three rows; what a document asks for beyond it is refused with both numbers."""
    with Daemon(daemon_path(), *OPTIONS, "--backend", BACKEND, "--model-arena", "1M", "--threads", "1") as daemon:
        client = Client(daemon)
        for most in (4, 64):
            answer = client.ask(put_model("wide", wide(max_batch=most)))
            text = json.loads(answer.body)["error"]
            numbers = [int(n) for n in re.findall(r"\d{6,}", text)]
            check(answer.status == 400 and answer.header("kernserve-error") == "definition" and numbers == [most * 4 * WIDE + 256, 1 << 20] and
                  text.startswith("at a batch of %d: wide: " % most) and "--model-arena" in text, text)
            check(client.get("/v2/models/wide").status == 404, "nothing is loaded")
        client.load("wide", wide(max_batch=3), (201,))
        got = infer(client, "wide", [("x", Tensor("FP32", [3, 1], [1.0, 2.0, -3.0]))])
        check(got["y"].values == [WIDE, 2 * WIDE, -3 * WIDE], got["y"].values)
        entry = json.loads(client.load("wide", wide(), (200,)).body)
        check(entry["max_batch"] == 2 and len(entry["warnings"]) == 1, entry)
        check(entry["warnings"][0].startswith("max_batch is 2: at a batch of 4: wide: ") and "1048576" in entry["warnings"][0], entry)
        check(daemon.says("level=warn .*model=wide max_batch=2 why="), "the log has it too")
        check(client.document("/v2/models/wide/config")["max_batch_size"] == 2, "the configuration")
        infer(client, "wide", [("x", Tensor("FP32", [2, 1], [1.0, 2.0]))])
        infer(client, "wide", [("x", Tensor("FP32", [3, 1], [1.0] * 3))], status=400)
        text = json.loads(client.ask(put_model("wider", wide(nodes=[dict(n, parameters={"shape": [0, 5 * WIDE]}) if n["name"] == "spread" else n for n in wide()["nodes"]]))).body)["error"]
        check(text.startswith("at a batch of 1: wider: "), text)
        check(daemon.stop() == 0, "the daemon's exit")


def check_preset(client):
    """A definition that names no batch has 64 where its rows are apart, and any where they are not, or are single numbers."""
    relu = {"op": "relu"}
    for what, most, members in (
            ("rows", 64, {}),
            ("attention with a mask for each of the batch", 64, {"nodes": [node("attention") | {"inputs": ["x", "x", "x", "m"]}], "inputs": [
                {"name": "x", "datatype": "FP32", "shape": [-1, 2, 3, 4]}, {"name": "m", "datatype": "BOOL", "shape": [-1, 1, 1, 3]}]}),
            ("a softmax over the batch", 0, {"nodes": [node("softmax", axis=0)]}),
            ("an output without the batch", 0, {"nodes": [node("reduce", axis=0)]}),
            ("another length in front", 0, {"inputs": [{"name": "x", "datatype": "FP32", "shape": ["n", 4]}]}),
            ("a length in front", 0, {"inputs": [{"name": "x", "datatype": "FP32", "shape": [3, 4]}]}),
            ("a vector", 0, {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}], "nodes": [node("map") | {"parameters": relu}]})):
        entry = json.loads(client.load("preset", definition(**members)).body)
        check(entry["max_batch"] == most and entry["warnings"] == [], what, entry)
    client.load("preset", definition())
    infer(client, "preset", [("x", Tensor("FP32", [64, 4], [1.0] * 256))])
    infer(client, "preset", [("x", Tensor("FP32", [65, 4], [1.0] * 260))], status=400)
    client.load("preset", definition(nodes=[node("softmax", axis=0)]))
    infer(client, "preset", [("x", Tensor("FP32", [65, 4], [1.0] * 260))])
    client.delete("/v2/models/preset")


def main():
    check_arena()
    with Daemon(daemon_path(), *OPTIONS, "--backend", BACKEND) as daemon:
        client = Client(daemon)
        check_preset(client)
        check(daemon.stop() == 0, "the daemon's exit")
    return wrongs()


if __name__ == "__main__":
    sys.exit(main())
