#!/usr/bin/env python3
"""/v2/plans: what has run, merged over the shards, in the order and form that is asked for; what bounds each plan, and on the CPU no
plan does better than it could; the metrics and kernserve --plans say the same. Where a sanitizer sets the pace, rates are not compared.

plans.py KERNSERVE [OPTION...]   options go to the daemon
"""

import csv
import io
import json
import subprocess
import sys
import tempfile
import threading

from daemon import Daemon, Remote, check, comes_to, metric, request, sanitizer, wrongs

# model, query, bytes of the body (below the slots: each is one launch), requests sent; the last two are the same work by two names
SENT = [
    ("softmax", "shape=4,1024&datatype=FP32", 16384, 40),
    ("reduce", "shape=64,1024&datatype=FP32&op=sum", 1 << 18, 12),
    ("reduce", "shape=64,1024&datatype=FP32&op=max", 1 << 18, 7),
    ("reduce", "shape=128,1024&datatype=FP64&op=sum", 1 << 20, 6),
    ("matmul", "shape=256,256&shape=256,256&datatype=FP32", 2 << 18, 9),
    ("softmax", "shape=8,512&datatype=FP16", 8192, 3),
    ("softmax_fp16", "shape=8,512&datatype=FP16", 8192, 2),
]
STARTS = 3
NOISE = 12  # other work on the host may lower what is measured: so many tries


def second(daemon):
    """The second listener, as a place to ask."""
    return Remote("127.0.0.1:%d" % daemon.admin_port)


def get(daemon, target, accept=None):
    with second(daemon).connect() as connection:
        return connection.ask(request("GET", target, [("Accept", accept)] if accept else ()))


def plans(daemon, query=""):
    answer = get(daemon, "/v2/plans" + query)
    check(answer.status == 200 and answer.header("content-type") == "application/json", query, answer)
    return json.loads(answer.body)


def load(daemon):
    """A connection for each request: the shards take turns."""
    for model, query, size, times in SENT:
        body = bytes(size)
        for _ in range(times):
            with daemon.connect(60) as connection:
                check(connection.ask(request("POST", "/v2/models/%s/infer?%s" % (model, query), (), body)).status == 200, query)


def read_beside(daemon, over):
    """While the shards write: what is read is whole, and no count goes back."""
    seen = {}
    while not over.is_set():
        now = jobs_of(plans(daemon)["plans"])
        check(all(now.get(k, 0) >= jobs for k, jobs in seen.items()), "a count went back", seen, now)
        seen = now


def key(row):
    return row["model_name"], row["inputs"][0]["datatype"], tuple(tuple(t["shape"]) for t in row["inputs"]), row["parameters"].get("op")


def jobs_of(rows):
    return {key(row): row["jobs"] for row in rows}


WANTED = {
    ("softmax", "FP32", ((4, 1024),), None): 40,
    ("reduce", "FP32", ((64, 1024),), "sum"): 12,
    ("reduce", "FP32", ((64, 1024),), "max"): 7,
    ("reduce", "FP64", ((128, 1024),), "sum"): 6,
    ("matmul", "FP32", ((256, 256), (256, 256)), None): 9,
    ("softmax", "FP16", ((8, 512),), None): 5,
}


def known(daemon):
    """All is measured that was asked for."""
    return all(row["ceilings"]["copy_gbs"]["value"] and row["ceilings"]["tflops"]["value"] for row in plans(daemon)["plans"])


def merged(daemon):
    got = plans(daemon)
    rows = got["plans"]
    mine = {k: v for k, v in jobs_of(rows).items() if k in WANTED}
    check(mine == WANTED, "jobs", mine)
    check(got["plans_total"] == len(rows) and len(set(map(key, rows))) == len(rows), "a plan is there twice", list(map(key, rows)))
    for row in rows:
        check(0 < row["launches"] <= row["jobs"] and row["busy_us"] > 0, row)
        check(abs(row["measured"]["us"] * row["measured"]["runs"] - row["busy_us"]) <= 1e-3 * row["busy_us"] + 1e-3, row)


def bounds(daemon):
    """Plans whose share is above 1.1."""
    above = []
    for row in plans(daemon)["plans"]:
        if row["flops"] == 0 and row["bytes"] <= row["ceilings"]["cache_bytes"] and row["backend"] == "cpu":  # values are moved, in caches
            check(row["bound"] is row["roofline_us"] is row["achieved"]["share"] is None, "a bound where nothing is one", row)
            continue
        check(row["bound"] in ("launch", "memory", "link", "compute") and row["roofline_us"] > 0, "bound", row)
        share = row["achieved"]["share"]
        check(abs(share - row["roofline_us"] / row["measured"]["us"]) <= 1e-4 * share, "share", row)
        if share >= 1.1 and row["backend"] == "cpu":
            above.append((key(row), share, row["ceilings"]))
    return above


def orders(daemon):
    for sort, member, down in (("time", lambda r: r["busy_us"], True), ("launches", lambda r: r["launches"], True),
                               ("share", lambda r: r["achieved"]["share"] or sys.maxsize, False)):
        values = [member(row) for row in plans(daemon, "?sort=" + sort)["plans"]]
        check(values == sorted(values, reverse=down) and len(values) >= len(WANTED), sort, values)
    check([key(r) for r in plans(daemon)["plans"]] == [key(r) for r in plans(daemon, "?sort=time&top=4096")["plans"]], "presets")
    top = plans(daemon, "?top=2&sort=launches")
    check(len(top["plans"]) == 2 and top["plans_total"] >= len(WANTED), "top=2", top)


def as_csv(daemon):
    answer = get(daemon, "/v2/plans?sort=launches", "text/csv")
    check(answer.status == 200 and answer.header("content-type") == "text/csv; charset=utf-8", answer, answer.headers)
    lines = list(csv.DictReader(io.StringIO(answer.body.decode(), newline="")))
    rows = plans(daemon, "?sort=launches")["plans"]
    check(len(lines) == len(rows), "lines", len(lines), len(rows))
    for line, row in zip(lines, rows):
        check(None not in line and None not in line.values(), "fields", line)
        check((line["op"], line["kernel"], line["bound"]) == (row["model_name"], row["kernel"], row["bound"] or ""), line, row)
        share = row["achieved"]["share"]
        check(int(line["jobs"]) == row["jobs"] and (line["share"] == "" if share is None else float(line["share"]) == share), line, row)
        check(line["shapes"] == " ".join("x".join(map(str, t["shape"])) for t in row["inputs"]), line, row)


def refusals(daemon):
    for query in ("?top=0", "?top=4097", "?top=x", "?sort=x", "?sort=", "?limit=3"):
        answer = get(daemon, "/v2/plans" + query)
        check(answer.status == 400 and answer.header("kernserve-error") == "parameter", query, answer)
    check(daemon.get("/v2/plans").status == 404, "it is the second listener's")
    with second(daemon).connect() as connection:
        check(connection.ask(request("POST", "/v2/plans")).status == 405, "POST")
        head = connection.ask(request("HEAD", "/v2/plans"), "HEAD")
        check(head.status == 200 and int(head.header("content-length")) > 0, "HEAD", head)


def metrics(daemon):
    text = daemon.metrics()
    rows = plans(daemon)["plans"]
    for op in ("softmax", "reduce", "matmul"):
        models = [m for m in (op, op + "_fp16") if 'kernserve_kernel_bytes_total{model="%s"}' % m in text]
        mine = [row for row in rows if row["model_name"] == op and key(row) in WANTED]
        for family, wanted in (("busy_seconds", sum(r["busy_us"] for r in mine) / 1e6), ("bytes", sum(r["bytes"] * r["jobs"] for r in mine)),
                               ("flops", sum(r["flops"] * r["jobs"] for r in mine))):
            got = sum(metric(text, "kernserve_kernel_%s_total" % family, model=m) for m in models)
            check(abs(got - wanted) <= 1e-3 * wanted, family, op, got, wanted)
    ceilings = rows[0]["ceilings"]
    copy = metric(text, "kernserve_ceiling_copy_bytes_per_second")
    check(abs(copy / 1e9 - ceilings["copy_gbs"]["value"]) <= 1e-3 * copy / 1e9, "copy", copy, ceilings)
    check(metric(text, "kernserve_ceiling_flops_per_second", datatype="FP32") > 1e8, "flops")


def command(daemon, path):
    """The table of a terminal, of the daemon that the options or a URL name."""
    admin = "127.0.0.1:%d" % daemon.admin_port
    for options in (("--plans", "http://%s" % admin), ("--admin-listen", admin, "--plans"), ("--plans", "%s/v2/plans?sort=time" % admin)):
        done = subprocess.run([path, *options], capture_output=True, text=True, timeout=30)
        lines = done.stdout.splitlines()
        check(done.returncode == 0 and not done.stderr and len(lines) == plans(daemon)["plans_total"] + 1, options, done)
        check(lines[0].split()[:3] == ["op", "type", "shapes"] and len({len(line) for line in lines}) == 1, options, lines)
    wrong = subprocess.run([path, "--plans", "http://%s/v2/plans?top=0" % admin], capture_output=True, text=True, timeout=30)
    check(wrong.returncode == 71 and "status 400" in wrong.stderr and "top=0" in wrong.stderr, wrong)
    old = subprocess.run([path, "--plans", "64"], capture_output=True, text=True, timeout=30)
    check(old.returncode == 64 and "--max-plans" in old.stderr, old)
    nobody = subprocess.run([path, "--admin-listen", "", "--plans"], capture_output=True, text=True, timeout=30)
    check(nobody.returncode == 71 and "nothing listens" in nobody.stderr and not nobody.stdout, nobody)


def with_token(path):
    """The command sends the first token of the daemon's file; without it, it is refused."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("a-token-of-sixteen-bytes-and-more\nanother-token-of-sixteen-bytes\n")
        file.flush()
        with Daemon(path, "--threads", "1", "--pinned-bytes", "64M", "--backend", "cpu", "--token-file", file.name) as daemon:
            ask = [path, "--admin-listen", "127.0.0.1:%d" % daemon.admin_port, "--plans"]

            def with_file():  # the command waits 2 s for a thread that measures the device first
                good = subprocess.run([*ask, "--token-file", file.name], capture_output=True, text=True, timeout=30)
                return good.returncode == 0 and good.stdout.startswith("op ")
            check(comes_to(with_file, True), "the command with the daemon's token")
            bare = subprocess.run(ask, capture_output=True, text=True, timeout=30)
            check(bare.returncode == 71 and "status 401" in bare.stderr, bare)


def one_start(path, options, first):
    """Plans above what their device can do."""
    with Daemon(path, "--threads", "2", "--pinned-bytes", "64M", *options) as daemon:
        over = threading.Event()
        reader = threading.Thread(target=read_beside, args=(daemon, over))
        reader.start()
        load(daemon)
        over.set()
        reader.join()
        check(comes_to(lambda: known(daemon), True), "the ceilings are not known")
        above = bounds(daemon)
        if first:
            for test in (merged, orders, as_csv, refusals, metrics):
                test(daemon)
            command(daemon, path)
        check(daemon.stop() == 0, "the daemon's end")
    return above


def copy_rates(path):
    """The daemon's, and that of a self-test, in the same unit."""
    with Daemon(path, "--threads", "1", "--pinned-bytes", "64M", "--backend", "cpu") as daemon:
        target = "/v2/models/softmax/plan?shape=4"
        check(comes_to(lambda: json.loads(daemon.get(target).body)["ceilings"]["copy_gbs"]["value"] is not None, True), "no copy rate")
        ours = json.loads(daemon.get(target).body)["ceilings"]["copy_gbs"]["value"]
    done = subprocess.run([path, "--backend", "cpu", "--pinned-bytes", "64M", "--self-test-time", "500ms", "--self-test=json"],
                          capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise SystemExit(done)
    return ours, json.loads(done.stdout)["floors"]["memcpy_gbs"]


def main():
    path, options = sys.argv[1], sys.argv[2:]
    paced = sanitizer(path) is not None
    for start in range(1 if paced else STARTS):
        for _ in range(NOISE):
            above = one_start(path, options, start == 0)
            if paced or not above:
                break
        check(paced or not above, "better than the device can do", above)
    with_token(path)
    if paced:
        print("%d wrong" % wrongs())
        return 1 if wrongs() else 0
    ours = theirs = 0
    for _ in range(NOISE):  # the best of each: other work only lowers both
        ours, theirs = map(max, copy_rates(path), (ours, theirs))
        if abs(ours - theirs) <= 0.25 * theirs:
            break
    check(abs(ours - theirs) <= 0.25 * theirs, "copy rates: %.1f GB/s, the self-test's %.1f" % (ours, theirs))
    print("copies %.1f GB/s, the self-test's %.1f; %d wrong" % (ours, theirs, wrongs()))
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
