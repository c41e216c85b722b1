#!/usr/bin/env python3
"""On a GPU: requests of models that many clients send at once are joined, each row has the bits that it had alone, whatever went out with it,
and a bad index in one request is that one's alone.

join_gpu.py KERNSERVE [BACKEND]
"""

import json
import random
import struct
import sys

from daemon import Daemon, check, metric, request, wrongs

WORDS, CLIENTS, ROUNDS = 50, 24, 60
PAIR = (24, 64)


def data(draw, name, *shape):
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    return {"name": name, "datatype": "FP32", "shape": list(shape), "data": [round(draw.uniform(-1, 1), 4) for _ in range(count)]}


def words(draw):
    """Words are looked up; a layer, a norm, a softmax, and the best class."""
    return {"format": 1, "max_batch": 48, "inputs": [{"name": "ids", "datatype": "INT64", "shape": [-1, 2]}],
            "initializers": [data(draw, "table", WORDS, 8), data(draw, "w", 16, 40), data(draw, "b", 40), data(draw, "v", 40, 10)],
            "nodes": [{"name": "pick", "op": "gather", "inputs": ["table", "ids"], "outputs": ["found"]},
                      {"name": "together", "op": "reshape", "inputs": ["found"], "outputs": ["x"], "parameters": {"shape": [0, 16]}},
                      {"name": "hidden", "op": "matmul", "inputs": ["x", "w", "b"], "outputs": ["h"], "parameters": {"activation": "relu"}},
                      {"name": "even", "op": "norm", "inputs": ["h"], "outputs": ["n"]},
                      {"name": "logits", "op": "matmul", "inputs": ["n", "v"], "outputs": ["l"]},
                      {"name": "classes", "op": "softmax", "inputs": ["l"], "outputs": ["p"]}], "outputs": [{"name": "p"}]}


def pair(draw):
    """A layer of the first input, each element times the second one's, another layer."""
    return {"format": 1, "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, PAIR[0]]}, {"name": "gate", "datatype": "FP32", "shape": [-1, PAIR[1]]}],
            "initializers": [data(draw, "w", *PAIR), data(draw, "b", PAIR[1]), data(draw, "v", PAIR[1], 8)],
            "nodes": [{"name": "hidden", "op": "matmul", "inputs": ["x", "w", "b"], "outputs": ["h"], "parameters": {"activation": "gelu"}},
                      {"name": "gated", "op": "map", "inputs": ["h", "gate"], "outputs": ["g"], "parameters": {"op": "mul"}},
                      {"name": "logits", "op": "matmul", "inputs": ["g", "v"], "outputs": ["l"]}], "outputs": [{"name": "l"}]}


def classify(rows):
    return request("POST", "/v2/models/words/infer?shape=%d,2" % len(rows), (), b"".join(struct.pack("<2q", *row) for row in rows))


def gate(rows):
    shapes = "&".join("shape=%d,%d" % (len(rows), wide) for wide in PAIR)
    return request("POST", "/v2/models/pair/infer?" + shapes, (), b"".join(row[0] for row in rows) + b"".join(row[1] for row in rows))


def round_of(draw, connections, sides):
    """A request of some rows on each connection, of either model, all sent before the first is read; some have a bad index."""
    sent = []
    for connection in connections:
        ask, rows, alone = sides[draw.randrange(2)]
        chosen = [draw.randrange(len(rows)) for _ in range(draw.randrange(1, 5))]
        asked = [rows[i] for i in chosen]
        bad = WORDS + draw.randrange(9) if ask is classify and draw.randrange(40) == 0 else None
        if bad:
            asked[-1] = (0, bad)
        sent.append((ask(asked), "node 'pick' (gather): INPUT1 (indices) has %d at place [%d,1]: " % (bad, len(asked) - 1) if bad else None,
                     b"".join(alone[i] for i in chosen)))
    for connection, (message, _, _) in zip(connections, sent):
        connection.send(message)
    for connection, (_, said, wanted) in zip(connections, sent):
        answer = connection.answer("POST")
        if said:
            check(answer.status == 400 and json.loads(answer.body)["error"].startswith(said), "a bad index", answer.body)
        else:
            check(answer.status == 200 and answer.body == wanted, "rows have other bits in company", len(wanted))


def main():
    path, backend = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "cuda"
    draw = random.Random(5)
    ids = [(draw.randrange(WORDS), draw.randrange(-WORDS, WORDS)) for _ in range(40)]
    pairs = [tuple(struct.pack("<%df" % wide, *(draw.uniform(-1, 1) for _ in range(wide))) for wide in PAIR) for _ in range(40)]
    with Daemon(path, "--backend", backend, "--threads", "1", "--lanes", "1") as daemon:
        with daemon.connect(60) as connection:
            for name, document in (("words", words(draw)), ("pair", pair(draw))):
                answer = connection.ask(request("PUT", "/v2/models/" + name, (), json.dumps(document).encode()))
                check(answer.status == 201, name, answer.body)
            sides = [(ask, rows, [connection.ask(ask([row])).body for row in rows]) for ask, rows in ((classify, ids), (gate, pairs))]
        check(all(len(set(alone)) > 20 for _, _, alone in sides), "answers differ")
        for target in ("words/plan?shape=3,2", "pair/plan?shape=3,%d&shape=3,%d" % PAIR):
            plan = json.loads(daemon.get("/v2/models/" + target).body)
            check(plan["path"] == "joined" and plan["join_rows"] in (48, 64), "the family's plan", plan)
        connections = [daemon.connect(60) for _ in range(CLIENTS)]
        for _ in range(ROUNDS):
            round_of(draw, connections, sides)
        for connection in connections:
            connection.close()
        joined = metric(daemon.metrics(), "kernserve_joined_requests_total")
        print("%d requests, %d of them joined with others" % (CLIENTS * ROUNDS, joined))
        check(joined > 0 or backend == "cpu", "none were joined")  # a CPU's launches are done when the next request comes
        check(daemon.stop() == 0, "the daemon's end")


main()
sys.exit(wrongs() > 0)
