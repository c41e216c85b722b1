#!/usr/bin/env python3
"""/status.json, held to its JSON Schema and to the metrics: idle, loaded, draining.

status.py KERNSERVE    with the Python of requirements.txt. Exit code 77: jsonschema is missing

  - status.schema.json takes the document in each state; nothing that is not known has a number
  - requests, refusals and bodies of the last minutes are those that were sent; a quantile lies within a sixteenth of what clients see
  - the slow requests are those that were slow, by their ids, and their phases add up to their totals
  - the plans are those of /v2/plans, with and without a timeline; the device's ceilings are theirs
  - a sampled trace is the exemplar of its bucket in OpenMetrics
  - a name that a client gives stays text; --no-status, tokens and the data listener answer as for the metrics
"""

import collections
import json
import os
import re
import sys
import tempfile
import threading
import time

try:
    import jsonschema
except ImportError as missing:
    print("the package %s is not installed" % missing.name)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "http"))
from daemon import Daemon, Remote, check, comes_to, request, wrongs

HOSTILE = "<img/src=x>"
ROWS = 256
TOKEN = "a-token-of-this-test"


def second(daemon):
    return Remote("%s:%d" % (daemon.host, daemon.admin_port))


def schema():
    with open(os.path.join(HERE, "status.schema.json")) as file:
        return jsonschema.Draft202012Validator(json.load(file))


def status(daemon, validator):
    answer = second(daemon).get("/status.json")
    check(answer.status == 200 and answer.header("content-type") == "application/json", answer, answer.headers)
    check(answer.header("cache-control") == "no-store", answer.headers)
    document = json.loads(answer.body)
    for error in list(validator.iter_errors(document))[:5]:
        check(False, "the schema:", error.json_path, error.message[:200])
    return document


def infer(model="softmax", rows=1, cols=256, name=None):
    fields = [("X-Request-Id", name)] if name else []
    return request("POST", "/v2/models/%s/infer?shape=%d,%d&datatype=FP32" % (model, rows, cols), fields, bytes(rows * cols * 4))


def idle(document):
    check(document["state"] == "ready", document["state"])
    for span in ("10s", "5m"):
        check(document["load"][span]["p50_us"] is None and document["load"][span]["requests"] == 0, document["load"])
    check(document["slow"] == [] and document["phases"] == [] and document["refused_5m"] == {}, document)
    check(document["device"]["memory"] is None, "memory of a CPU", document["device"])


def send(daemon, clients, rounds):
    """Answers by status, and the times that clients saw."""
    lock, seen, took = threading.Lock(), collections.Counter(), []

    def client(number):
        with daemon.connect() as connection:
            for i in range(rounds):
                begun = time.monotonic()
                answer = connection.ask(infer(rows=1 + i % 4, cols=64 * (1 + number)))
                with lock:
                    seen[answer.status] += 1
                    took.append(time.monotonic() - begun)
    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen, took


def loaded(daemon, validator):
    seen, took = send(daemon, 4, 300)
    with daemon.connect() as connection:
        for i in range(3):
            connection.ask(infer(rows=4096, cols=1024, name="large-%d" % i))
        connection.ask(infer(name=HOSTILE))
        for i in range(5):
            connection.ask(request("POST", "/v2/models/softmax/infer?shape=2,3&datatype=FP32", [("X-Request-Id", "bad")], bytes(23)))
    ended = sum(seen.values()) + 9
    check(comes_to(lambda: status(daemon, validator)["load"]["5m"]["requests"], ended) == ended, "never the requests that were sent")
    document = status(daemon, validator)
    check(len(document["slow"]) == 20, "slow requests", len(document["slow"]))
    check(document["refused_5m"] == {"path": 1, "binary_size": 5}, document["refused_5m"])
    check(sum(p["requests_10s"] for p in document["phases"]) == ended - 5, document["phases"])
    load = document["load"]["5m"]
    check(load["p50_us"] / 1e6 <= sorted(took)[len(took) // 2] * 1.07, "p50", load, sorted(took)[len(took) // 2])
    check(load["p50_us"] <= load["p99_us"] <= load["max_us"], load)
    check(abs(load["requests_per_s"] * load["span_s"] - ended) < 1, load)
    slow = document["slow"]
    check([s["total_us"] for s in slow] == sorted((s["total_us"] for s in slow), reverse=True), "not the slowest first")
    check({s["request_id"] for s in slow} >= {"large-%d" % i for i in range(3)}, "the large ones are not among the slow", [s["request_id"] for s in slow])
    for s in slow:
        phases = [value for value in s["phases_us"].values() if value is not None]
        check(s["status"] != 200 or abs(sum(phases) - s["total_us"]) < 0.01, "phases beside the total", s)
        check(s["status"] != 200 or s["plan"] and s["plan"].startswith(s["model"]), s)
    check(load["max_us"] / 1.07 <= slow[0]["total_us"] <= load["max_us"], "the slowest, and the maximum", slow[0], load)
    for model in document["phases"]:
        mean = model["mean_us"]
        check(abs(sum(v for k, v in mean.items() if k != "total") - mean["total"]) < 0.01, mean)
    plans(daemon, validator)
    timeline = document["timeline"]
    check(timeline["from_ns"] < timeline["to_ns"] <= timeline["from_ns"] + 2000000000, timeline["from_ns"], timeline["to_ns"])
    begun = [l[3] for l in timeline["launches"]]
    check(len(begun) == timeline["kept"] or len(begun) >= 2000, "launches", len(begun), timeline["kept"])
    check(timeline["busy_ns"]["any"] <= timeline["observed_ns"] <= timeline["observed_to_ns"] - timeline["observed_from_ns"], timeline["busy_ns"])
    for limit in document["limits"]:
        check(limit["now"] <= limit["max_5m"] and (limit["limit"] is None or limit["max_5m"] <= limit["limit"]), limit)


def plans(daemon, validator):
    """Those of /v2/plans; every launch is one of theirs, whatever the ring of the timeline has lost."""
    remote = second(daemon)
    # What moves values alone, within the caches, has no bound.
    ready = lambda: all(p["bound"] or p["flops"] == 0 for p in status(daemon, validator)["plans"])
    check(comes_to(ready, True), "the ceilings are not known")
    document, alone = status(daemon, validator), json.loads(remote.get("/v2/plans?top=50").body)
    texts = [p.pop("plan") for p in document["plans"]]
    check(document["plans"] == alone["plans"] and len(texts) == min(50, alone["plans_total"]) > 1, "not those of /v2/plans", len(texts), alone["plans_total"])
    for text, plan in zip(texts, document["plans"]):
        words = [plan["model_name"], plan["inputs"][0]["datatype"]] + ["[%s]" % ",".join(map(str, t["shape"])) for t in plan["inputs"]]
        check(text == " ".join(words), "its text", text, words)
    check(sum(p["jobs"] for p in document["plans"]) >= 1204, "jobs", sum(p["jobs"] for p in document["plans"]))
    ceilings = document["device"]["ceilings"]
    for plan in document["plans"]:
        check(plan["ceilings"]["copy_gbs"]["value"] == ceilings["copy_gbs"], "copy", plan["ceilings"], ceilings)
        taken, given = plan["inputs"][0]["datatype"], plan["outputs"][0]["datatype"]  # codes that become numbers are computed as numbers
        arithmetic = given if taken[:3] in ("INT", "UIN") and given[:2] in ("FP", "BF") else taken
        check(plan["ceilings"]["tflops"]["value"] == ceilings["tflops"].get(arithmetic), "tflops", plan["ceilings"], ceilings)


def hostile(daemon):
    """Names of clients among the slow ones, in a daemon that has no others."""
    with daemon.connect() as connection:
        connection.ask(infer(name=HOSTILE))
    remote = second(daemon)
    check(comes_to(lambda: [s["request_id"] for s in json.loads(remote.get("/status.json").body)["slow"]], [HOSTILE]) == [HOSTILE], "its name")
    page = remote.get("/status").body.decode()
    check(HOSTILE not in page and "&lt;img/src=x&gt;" in page, "a client's name became an element")


def exemplars(daemon):
    """Of requests whose client samples their trace, and of no other."""
    ids = {flag: "%032x" % (0xabc << 8 | flag) for flag in (0, 1)}
    with daemon.connect() as connection:
        for flag, trace in ids.items():
            fields = [("traceparent", "00-%s-00f067aa0ba902b7-%02x" % (trace, flag))]
            connection.ask(request("POST", "/v2/models/softmax/infer?shape=2,3&datatype=FP32", fields, bytes(24)))
        connection.ask(infer())
    with second(daemon).connect() as connection:
        page = connection.ask(request("GET", "/metrics", [("Accept", "application/openmetrics-text")])).body.decode()
    found = re.findall(r'^kernserve_inference_request_duration_seconds_bucket\{model="softmax",le="([^"]+)"\} \d+ # \{trace_id="([0-9a-f]+)"\} (\S+) (\S+)$', page, re.M)
    check([trace for _, trace, _, _ in found] == [ids[1]], "exemplars", found)
    check(all(float(value) <= float(le) and abs(float(at) - time.time()) < 60 for le, _, value, at in found), found)
    check(page.count(" # {") == len(found), "exemplars elsewhere")


def draining(daemon, validator):
    process = daemon.process
    process.terminate()
    check(comes_to(lambda: status(daemon, validator)["state"], "draining") == "draining", "never draining")


def doors(path):
    with Daemon(path, "--no-status") as daemon:
        for target in ("/status", "/status.json"):
            answer = second(daemon).get(target)
            check(answer.status == 404 and answer.header("kernserve-error") == "path", target, answer)
        check("/status" not in second(daemon).get("/").body.decode(), "the index has a dead link")
    with tempfile.NamedTemporaryFile("w", suffix=".tokens") as tokens:
        tokens.write(TOKEN + "\n")
        tokens.flush()
        with Daemon(path, "--token-file", tokens.name) as daemon:
            check(second(daemon).get("/status.json").status == 401, "without a token")
            with second(daemon).connect() as connection:
                answer = connection.ask(request("GET", "/status", [("Authorization", "Bearer " + TOKEN)]))
                check(answer.status == 200, "with a token", answer)
            check(daemon.get("/livez").status == 200, "health")


def main():
    path, validator = sys.argv[1], schema()
    jsonschema.Draft202012Validator.check_schema(validator.schema)
    with Daemon(path, "--drain-delay", "3s", "--timeline", "16384") as daemon:
        idle(status(daemon, validator))
        check(daemon.get("/status.json").status == 404, "on the data listener")
        loaded(daemon, validator)
        draining(daemon, validator)
    with Daemon(path, "--timeline", "0") as daemon:
        with daemon.connect() as connection:
            connection.ask(infer())
        comes_to(lambda: len(status(daemon, validator)["plans"]) > 0, True)
        document = status(daemon, validator)
        check(document["timeline"] is None and document["slow"] == [], "no timeline", document["timeline"])
        check("softmax FP32 [1,256]" in [p["plan"] for p in document["plans"]], "plans without a timeline", document["plans"])
    with Daemon(path) as daemon:
        hostile(daemon)
        exemplars(daemon)
    doors(path)
    print("%d wrong" % wrongs())
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
