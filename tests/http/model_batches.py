#!/usr/bin/env python3
"""Batches of models: how large they may be where memory between nodes is little.

model_batches.py KERNSERVE [BACKEND]     cpu, where none is named
"""

import json
import re
import sys

from daemon import Daemon, check, daemon_path, request, wrongs
from model_rows import OPTIONS, node, put_model
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
        check(daemon.stop() == 0, "the daemon's exit")


def main():
    check_arena()
    return wrongs()


if __name__ == "__main__":
    sys.exit(main())
