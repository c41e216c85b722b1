#!/usr/bin/env python3
"""Models of tenants' own: the same name is another model for another tenant, on kept connections too, and nothing tells of others'.

model_tenants.py KERNSERVE [BACKEND]     cpu, where none is named
"""

import json
import os
import struct
import sys
import tempfile
import threading

from daemon import Daemon, check, daemon_path, request, wrongs
from files import write_safetensors
from model_loads import body_of, files_of
from model_rows import OPTIONS
from models import BACKEND, scaled
from tensors import Tensor

LINES = ["root", "alice:%s tenant=alice bytes=64M models=2" % ("a" * 20), "bob:%s tenant=bob rights=infer,models,tensors" % ("b" * 20),
         "carol:%s tenant=carol rights=infer" % ("c" * 20), "dave:%s rights=infer,models" % ("d" * 20)]
ROOT, ALICE, BOB, CAROL, DAVE = "root", "a" * 20, "b" * 20, "c" * 20, "d" * 20
ROUNDS = 40
OPERATIONS = set()  # and their presets: what is listed before anything is loaded


def ask(connection, token, method, target, body=b"", headers=()):
    return connection.ask(request(method, target, [("Authorization", "Bearer " + token), *headers], body if isinstance(body, bytes) else json.dumps(body).encode()))


def factor(connection, token, name):
    """What the model makes of 1; a status where it is not 200."""
    answer = ask(connection, token, "POST", "/v2/models/%s/infer?shape=1" % name, struct.pack("<f", 1))
    return struct.unpack("<f", answer.body)[0] if answer.status == 200 else answer.status


def load(connection, token, name, value, status=(200, 201), headers=()):
    answer = ask(connection, token, "PUT", "/v2/models/" + name, scaled(value), headers)
    check(answer.status in status, "load", token[0], name, answer)
    return answer


def names(connection, token):
    listed = json.loads(ask(connection, token, "POST", "/v2/repository/index").body)
    stats = json.loads(ask(connection, token, "GET", "/v2/models/stats").body)["model_stats"]
    ready = {m["name"] for m in listed if m["state"] == "READY"} - OPERATIONS
    check(ready <= {m["name"] for m in stats}, "statistics of what is listed", ready)
    for text in (json.dumps(listed), json.dumps(stats)):
        check(token == ROOT or not any(other + "/" in text for other in ("alice", "bob")), "no word of others", text[:300])
    return ready


def check_apart(connection):
    """All on one connection, whose target stays and whose token does not."""
    load(connection, ROOT, "m", 1.0)
    check([factor(connection, t, "m") for t in (ROOT, ALICE, BOB, CAROL, DAVE)] == [1.0] * 5, "what all see")
    load(connection, ALICE, "m", 2.0, (201,))
    load(connection, BOB, "m", 3.0, (201,))
    for _ in range(3):
        check([factor(connection, t, "m") for t in (ROOT, ALICE, BOB, CAROL, ALICE, ROOT)] == [1.0, 2.0, 3.0, 1.0, 2.0, 1.0], "each its own")
    head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}],
                       "parameters": {"binary_data_output": True}}).encode()  # which a shard keeps decoded
    for token, value in ((ROOT, 1.0), (ALICE, 2.0), (BOB, 3.0), (ALICE, 2.0), (CAROL, 1.0)) * 3:
        answer = ask(connection, token, "POST", "/v2/models/m/infer", head + struct.pack("<f", 1), [("Inference-Header-Content-Length", len(head))])
        check(answer.status == 200 and answer.body.endswith(struct.pack("<f", value)) and b'"model_name":"m"' in answer.body, token[0], answer)
    load(connection, ALICE, "only", 4.0)
    check([factor(connection, t, "only") for t in (ALICE, BOB, ROOT, CAROL)] == [4.0, 404, 404, 404], "another's name")
    for target in ("/v2/models/only", "/v2/models/only/config", "/v2/models/only/ready", "/v2/models/only/stats", "/v2/models/only/definition", "/v2/models/only/plan?shape=1"):
        check([ask(connection, t, "GET", target).status for t in (ALICE, BOB, ROOT)] == [200, 404, 404] or target.endswith("stats"), target)
        answer = ask(connection, BOB, "GET", target)
        check(answer.status >= 400 and b"alice" not in answer.body, target, answer)
    document = json.loads(ask(connection, ALICE, "GET", "/v2/models/only").body)
    check(document["name"] == "only", document)
    text = ask(connection, ALICE, "POST", "/v2/models/only/infer", {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]})
    check(json.loads(text.body)["model_name"] == "only", text)
    for name in ("alice%2Fonly", "alice/only"):
        check(factor(connection, BOB, name) == 404, "by its label", name)
    check(ask(connection, BOB, "DELETE", "/v2/models/only").status == 404, "another's is not unloaded")
    check(names(connection, ALICE) == {"m", "only"} and names(connection, BOB) == {"m"} and names(connection, CAROL) == {"m"}, "lists",
          names(connection, ALICE), names(connection, BOB))
    check(names(connection, ROOT) == {"m", "alice/m", "alice/only", "bob/m"}, "an operator's list", names(connection, ROOT))
    for target in ("/metrics", "/openapi.json"):
        answer = ask(connection, BOB, "GET", target)
        check(answer.status == 200 and b"alice" not in answer.body and b'"only"' not in answer.body, target)


def check_rights(connection):
    for token, words in ((CAROL, "'models'"), (DAVE, "operator")):
        for method, target in (("PUT", "/v2/models/x"), ("DELETE", "/v2/models/m"), ("POST", "/v2/repository/models/m/unload")):
            answer = ask(connection, token, method, target, scaled(9.0) if method == "PUT" else b"{}" if method == "POST" else b"")
            check(answer.status == 403 and answer.header("kernserve-error") == "auth", token[0], method, answer)
    check(factor(connection, DAVE, "m") == 1.0, "nothing has changed")
    answer = load(connection, ALICE, "third", 5.0, (507,))
    check(answer.header("kernserve-error") == "quota" and b"the 2 that its tenant may have" in answer.body, answer)
    check(load(connection, ALICE, "m", 2.5, (200,)).status == 200 and factor(connection, ALICE, "m") == 2.5, "a replacement is none more")
    for name in ("softmax", "softmax_fp16"):
        check(load(connection, ALICE, name, 1.0, (409,)).header("kernserve-error") == "reserved", name)
    check(load(connection, BOB, "m", 1.0, (412,), [("If-None-Match", "*")]).status == 412, "conditions are of one's own")
    tag = ask(connection, ALICE, "GET", "/v2/models/m/definition").header("etag")
    check(load(connection, BOB, "m", 1.0, (412,), [("If-Match", tag)]).status == 412, "another's ETag")


def check_repository(connection):
    """Triton's way, and one file: a tenant's, too."""
    weights = {"k": Tensor("FP32", [1], [7.0])}
    document = dict(scaled(1.0), initializers=["k"])
    check(ask(connection, BOB, "POST", "/v2/repository/models/filed/load", body_of({}, files_of(document, weights))).status == 200, "load")
    check(factor(connection, BOB, "filed") == 7.0 and factor(connection, ALICE, "filed") == 404, "a load by files")
    check(ask(connection, BOB, "POST", "/v2/repository/models/filed/load", b"{}").status == 200, "again: it is loaded")
    check(ask(connection, CAROL, "POST", "/v2/repository/models/filed/load", b"{}").status == 403, "no right")
    check(ask(connection, BOB, "POST", "/v2/repository/models/filed/unload", b"{}").status == 200 and factor(connection, BOB, "filed") == 404, "unload")
    one = write_safetensors(weights, {"kernserve": json.dumps(document)})
    check(ask(connection, BOB, "PUT", "/v2/models/filed", one, [("Content-Type", "application/x-safetensors")]).status == 201, "one file")
    check(factor(connection, BOB, "filed") == 7.0 and factor(connection, ROOT, "filed") == 404, "of one file")
    check(ask(connection, BOB, "DELETE", "/v2/models/filed").status == 204, "unloaded")


def check_named(connection):
    """Initializers are the tenant's tensors."""
    named = dict(scaled(1.0), initializers=[{"name": "k", "tensor": "k"}])
    for token, value in ((BOB, 8.0), (ROOT, 9.0)):
        check(ask(connection, token, "PUT", "/v2/tensors/k?shape=1&datatype=FP32", struct.pack("<f", value)).status == 201, "a tensor")
        check(ask(connection, token, "PUT", "/v2/models/named", named).status == 201 and factor(connection, token, "named") == value, "its tensor")
    check(ask(connection, ALICE, "PUT", "/v2/models/m", named).status == 404, "another's tensor")
    for token in (BOB, ROOT):
        check(ask(connection, token, "DELETE", "/v2/models/named").status == 204, "unloaded")


def check_at_once(daemon):
    """Each tenant replaces its own and asks for it, while the others do."""
    wrong = []

    def run(token, start):
        with daemon.connect() as connection:
            for i in range(ROUNDS):
                value = start + i
                if ask(connection, token, "PUT", "/v2/models/m", scaled(value)).status not in (200, 201) or factor(connection, token, "m") != value:
                    wrong.append((token[0], value))
    threads = [threading.Thread(target=run, args=(token, start)) for token, start in ((ROOT, 1000.0), (ALICE, 2000.0), (BOB, 3000.0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not wrong, "another's model, or an old one", wrong[:5])


def check_gone(connection):
    for token, status in ((ALICE, 204), (BOB, 204), (CAROL, 403), (ROOT, 204)):
        check(ask(connection, token, "DELETE", "/v2/models/m").status == status, "unloaded", token[0])
        seen = factor(connection, token, "m")
        check(seen == (404 if token == ROOT else 1000.0 + ROUNDS - 1), "what all see serves again", token[0], seen)
    check(ask(connection, ALICE, "DELETE", "/v2/models/only").status == 204, "unloaded")
    check(names(connection, ROOT) == set(), names(connection, ROOT))


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokens")
        with open(path, "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write("".join(line + "\n" for line in LINES))
        with Daemon(daemon_path(), *OPTIONS, "--backend", BACKEND, "--threads", "1", "--token-file", path) as daemon:
            with daemon.connect() as connection:
                OPERATIONS.update(names(connection, ROOT))
                check_apart(connection)
                check_rights(connection)
                check_repository(connection)
                check_named(connection)
                check_at_once(daemon)
                check_gone(connection)
            check(daemon.stop() == 0, "the daemon's exit")
    return wrongs()


if __name__ == "__main__":
    sys.exit(main())
