#!/usr/bin/env python3
"""Joined rows over HTTP: products over a resident tensor, searches in one, and requests of a model that wait together go out as one launch,
each answer has the bits that it has alone, and header, metrics and plan say so. A bad index in one is that one's alone."""
import json
import random
import struct
import sys

from daemon import HeldDaemon, check, comes_to, cpu_daemon, metric, read_answer, request, wrongs

K, N = 96, 37


def put(daemon, name, values, shape):
    target = "/v2/tensors/%s?shape=%s&datatype=FP32" % (name, shape)
    answer = ask(daemon, request("PUT", target, (), struct.pack("<%df" % len(values), *values)))
    check(answer and answer[0] in (200, 201), "PUT %s" % name, answer)


def product(rows):
    """A plain raw request of those rows."""
    target = "/v2/models/matmul/infer?shape=%d,%d&datatype=FP32&INPUT1=@W" % (len(rows), K)
    return request("POST", target, (), b"".join(rows))


def search(rows, output):
    """Of two outputs a plain raw answer holds one."""
    target = "/v2/models/search/infer?shape=%d,%d&datatype=FP32&INPUT1=@S&k=3&metric=cosine&output=%s" % (len(rows), K, output)
    return request("POST", target, (), b"".join(rows))


def searches(daemon, rows, chosen):
    """Both outputs of jobs of several rows, each where its request has it."""
    for output, size in (("OUTPUT0", 4), ("OUTPUT1", 8)):
        alone = [ask(daemon, search([row], output))[2] for row in rows]
        check(all(len(found) == 3 * size for found in alone) and len(set(alone)) > 20, output, len(set(alone)))
        clients = [daemon.dial(timeout=60) for _ in chosen]
        with daemon.held():
            for i, (client, which) in enumerate(zip(clients, chosen)):
                client.sendall(search([rows[r] for r in which], output))
                check(comes_to(daemon.queued, i + 1) == i + 1, "in the queue")
        for client, which in zip(clients, chosen):
            answer = read_answer(client)
            check(answer[0] == 200 and answer[2] == b"".join(alone[r] for r in which), "joined searches differ", output, len(which))
            check(timing(answer) == "%d/%d" % (len(chosen), sum(map(len, chosen))), "the searches' launch", answer[1])
            client.close()


WORDS = 50


def load_words(daemon, draw):
    """Two words of each row are looked up, and a layer, a norm and a softmax follow."""
    def data(name, *shape):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        return {"name": name, "datatype": "FP32", "shape": list(shape), "data": [round(draw.uniform(-1, 1), 4) for _ in range(count)]}

    document = {"format": 1, "max_batch": 48, "inputs": [{"name": "ids", "datatype": "INT64", "shape": [-1, 2]}],
                "initializers": [data("table", WORDS, 8), data("w", 16, 40), data("b", 40), data("v", 40, 5)],
                "nodes": [{"name": "pick", "op": "gather", "inputs": ["table", "ids"], "outputs": ["found"]},
                          {"name": "together", "op": "reshape", "inputs": ["found"], "outputs": ["x"], "parameters": {"shape": [0, 16]}},
                          {"name": "hidden", "op": "matmul", "inputs": ["x", "w", "b"], "outputs": ["h"], "parameters": {"activation": "relu"}},
                          {"name": "even", "op": "norm", "inputs": ["h"], "outputs": ["n"]},
                          {"name": "logits", "op": "matmul", "inputs": ["n", "v"], "outputs": ["l"]},
                          {"name": "classes", "op": "softmax", "inputs": ["l"], "outputs": ["p"]}],
                "outputs": [{"name": "p"}]}
    answer = ask(daemon, request("PUT", "/v2/models/words", (), json.dumps(document).encode()))
    check(answer[0] == 201, "the model", answer)


def classify(rows):
    return request("POST", "/v2/models/words/infer?shape=%d,2" % len(rows), (), b"".join(struct.pack("<2q", *row) for row in rows))


def models(daemon, draw):
    """Requests of one to four rows are one launch; those of more go alone; and what is bad in one is no other's fault."""
    load_words(daemon, draw)
    rows = [(draw.randrange(WORDS), draw.randrange(WORDS)) for _ in range(30)]
    alone = [ask(daemon, classify([row])) for row in rows]
    check(all(answer[0] == 200 and len(answer[2]) == 20 and timing(answer) == "1/1" for answer in alone), "alone", alone[0])
    alone = [answer[2] for answer in alone]
    check(len(set(alone)) > 20, "answers differ")
    many = ask(daemon, classify(rows[:5]))
    check(many[0] == 200 and timing(many) is None, "five rows go alone", many[1])
    plan = json.loads(ask(daemon, request("GET", "/v2/models/words/plan?shape=3,2"))[2])
    check(plan["join_rows"] == 48 and plan["path"] == "joined" and plan["inputs"][0]["shape"] == [48, 2], "the family's plan", plan)
    for bad in (False, True):
        chosen = [[draw.randrange(len(rows)) for _ in range(size)] for size in (1, 4, 2, 1, 3, 1, 4, 4)]
        clients = [daemon.dial(timeout=60) for _ in chosen]
        with daemon.held():
            for i, (client, which) in enumerate(zip(clients, chosen)):
                asked = [rows[r] for r in which]
                if bad and i == 2:
                    asked[1] = (0, WORDS)
                client.sendall(classify(asked))
                check(comes_to(daemon.queued, i + 1) == i + 1, "in the queue")
        for i, (client, which) in enumerate(zip(clients, chosen)):
            answer = read_answer(client)
            client.close()
            if bad and i == 2:
                text = json.loads(answer[2])["error"]
                check(answer[0] == 400 and text.startswith("node 'pick' (gather): INPUT1 (indices) has %d at place [1,1]: " % WORDS), text)
                continue
            check(answer[0] == 200 and answer[2] == b"".join(alone[r] for r in which), "joined rows of a model differ", len(which), bad)
            check(timing(answer) == "%d/%d" % (len(chosen), sum(map(len, chosen))), "the model's launch", answer[1])
    return rows, alone


PAIR = (24, 40)


def load_pair(daemon, draw):
    """A layer of the first input, each element times the second one's, another layer."""
    def data(name, *shape):
        return {"name": name, "datatype": "FP32", "shape": list(shape), "data": [round(draw.uniform(-1, 1), 4) for _ in range(shape[0] * (shape[1] if len(shape) > 1 else 1))]}

    document = {"format": 1, "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, PAIR[0]]}, {"name": "gate", "datatype": "FP32", "shape": [-1, PAIR[1]]}],
                "initializers": [data("w", *PAIR), data("b", PAIR[1]), data("v", PAIR[1], 5)],
                "nodes": [{"name": "hidden", "op": "matmul", "inputs": ["x", "w", "b"], "outputs": ["h"], "parameters": {"activation": "gelu"}},
                          {"name": "gated", "op": "map", "inputs": ["h", "gate"], "outputs": ["g"], "parameters": {"op": "mul"}},
                          {"name": "logits", "op": "matmul", "inputs": ["g", "v"], "outputs": ["l"]}], "outputs": [{"name": "l"}]}
    answer = ask(daemon, request("PUT", "/v2/models/pair", (), json.dumps(document).encode()))
    check(answer[0] == 201, "the model of two inputs", answer)


def gate(rows, fixed=""):
    """Inputs one behind the other; or the second one a resident tensor."""
    shapes = "&".join("shape=%d,%d" % (len(rows), wide) for wide in PAIR[:1 if fixed else 2])
    body = b"".join(row[0] for row in rows) + (b"" if fixed else b"".join(row[1] for row in rows))
    return request("POST", "/v2/models/pair/infer?" + shapes + fixed, (), body)


def pairs(daemon, draw):
    """Rows of two inputs, of jobs of several rows each; and a job whose second input stays goes alone."""
    load_pair(daemon, draw)
    rows = [tuple(struct.pack("<%df" % wide, *(draw.uniform(-1, 1) for _ in range(wide))) for wide in PAIR) for _ in range(20)]
    alone = [ask(daemon, gate([row])) for row in rows]
    check(all(answer[0] == 200 and timing(answer) == "1/1" for answer in alone), "alone", alone[0])
    alone = [answer[2] for answer in alone]
    chosen = [[draw.randrange(len(rows)) for _ in range(size)] for size in (3, 1, 4, 2, 1, 4)]
    clients = [daemon.dial(timeout=60) for _ in chosen]
    with daemon.held():
        for i, (client, which) in enumerate(zip(clients, chosen)):
            client.sendall(gate([rows[r] for r in which]))
            check(comes_to(daemon.queued, i + 1) == i + 1, "in the queue")
    for client, which in zip(clients, chosen):
        answer = read_answer(client)
        check(answer[0] == 200 and answer[2] == b"".join(alone[r] for r in which), "joined rows of two inputs differ", len(which))
        check(timing(answer) == "%d/%d" % (len(chosen), sum(map(len, chosen))), "the launch of two inputs", answer[1])
        client.close()
    target = "/v2/tensors/gate?shape=1,%d&datatype=FP32" % PAIR[1]
    check(ask(daemon, request("PUT", target, (), rows[0][1]))[0] == 201, "the second input stays")
    answer = ask(daemon, gate(rows[:1], "&INPUT1=@gate"))
    check(answer[0] == 200 and answer[2] == alone[0] and timing(answer) is None, "a resident second input", answer[:2])
    return rows, alone


def ask(daemon, message):
    with daemon.dial(timeout=60) as client:
        client.sendall(message)
        return read_answer(client)


def timing(answer):
    """The part `join` of Server-Timing, or None."""
    parts = [part.strip() for part in answer[1].get("server-timing", "").split(",")]
    found = [part for part in parts if part.startswith("join;desc=")]
    return found[0][len("join;desc="):].strip('"') if found else None


def main():
    draw = random.Random(7)
    rows = [struct.pack("<%df" % K, *(draw.uniform(-1, 1) for _ in range(K))) for _ in range(40)]
    rows[3] = struct.pack("<%df" % K, *([float("nan")] + [1.0] * (K - 1)))
    rows[4] = struct.pack("<%df" % K, *([float("inf")] + [1.0] * (K - 1)))
    sizes = [1, 2, 5, 16, 1, 33, 7, 1]
    with HeldDaemon() as daemon:
        put(daemon, "W", [draw.uniform(-1, 1) for _ in range(K * N)], "%d,%d" % (K, N))
        alone = []
        for row in rows:
            answer = ask(daemon, product([row]))
            check(answer[0] == 200 and len(answer[2]) == 4 * N, "a row alone", answer[:2])
            check(timing(answer) == "1/1", "alone", answer[1])
            alone.append(answer[2])
        chosen = [[draw.randrange(len(rows)) for _ in range(size)] for size in sizes]
        clients = [daemon.dial(timeout=60) for _ in sizes]
        with daemon.held():
            for i, client in enumerate(clients):
                client.sendall(product([rows[r] for r in chosen[i]]))
                check(comes_to(daemon.queued, i + 1) == i + 1, "in the queue")
        for client, which in zip(clients, chosen):
            answer = read_answer(client)
            check(answer[0] == 200 and answer[2] == b"".join(alone[r] for r in which), "joined rows differ", len(which))
            check(timing(answer) == "%d/%d" % (len(sizes), sum(sizes)), "the launch", answer[1])
            client.close()
        text = daemon.metrics()
        check(metric(text, "kernserve_joined_requests_total") == len(sizes), "joined requests")
        check(metric(text, "kernserve_launch_rows_count") == len(rows) + 1, "launches")
        check(metric(text, "kernserve_launch_rows_sum") == len(rows) + sum(sizes), "rows")
        put(daemon, "S", [draw.uniform(-1, 1) for _ in range(K * 500)], "500,%d" % K)
        searches(daemon, rows, chosen)
        words, classes = models(daemon, random.Random(8))
        gated, gates = pairs(daemon, random.Random(9))
    with cpu_daemon("--threads", "1", "--join-rows", "1") as daemon:
        put(daemon, "W", [1.0] * (K * N), "%d,%d" % (K, N))
        answer = ask(daemon, product(rows[:1]))
        check(answer[0] == 200 and timing(answer) is None, "--join-rows 1", answer[1])
        load_words(daemon, random.Random(8))
        for size in (1, 4):
            answer = ask(daemon, classify(words[:size]))
            check(answer[0] == 200 and timing(answer) is None and answer[2] == b"".join(classes[:size]), "a model that is not joined", size)
        load_pair(daemon, random.Random(9))
        for size in (1, 4):
            answer = ask(daemon, gate(gated[:size]))
            check(answer[0] == 200 and timing(answer) is None and answer[2] == b"".join(gates[:size]), "a model of two inputs that is not joined", size)


main()
sys.exit(wrongs() > 0)
