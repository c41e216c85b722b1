#!/usr/bin/env python3
"""/v2/trace is Chrome trace JSON that a viewer can trust: slices of a track nest, what begins ends, phases have no gap, flows lie
in slices, what is counted is there, and it agrees with the metrics. Ends with what overlapped.

trace.py KERNSERVE [OPTION...]     options go to the daemon
trace.py --check FILE [--overlap]  a trace that was taken under any load; --overlap: copies in, copies out and kernels of different
                                   lanes must have run side by side, and three lanes at once, as a GPU under load does
"""

import collections
import decimal
import json
import random
import sys
import threading
import time

from daemon import Connection, Daemon, Remote, check, comes_to, metric, request, wrongs
from forms import FORMS, fits, random_case

PHASES = ["receive", "decode", "queue", "h2d", "compute", "d2h", "encode"]
ENGINES = ["h2d", "compute", "d2h"]
FORMS_SENT = ("json", "binary", "plain_raw", "npy")


def second(daemon):
    """The second listener, as a place to ask."""
    return Remote("127.0.0.1:%d" % daemon.admin_port)


def ns(event, member):
    """Microseconds with three decimals, as a whole number of nanoseconds."""
    value = event[member] * 1000
    check(value == int(value) and value >= 0, member, event)
    return int(value)


def read(daemon, query=""):
    answer = second(daemon).get("/v2/trace" + query)
    check(answer.status == 200 and answer.header("content-type") == "application/json", query, answer.status, answer.headers)
    document = json.loads(answer.body, parse_float=decimal.Decimal)
    check(document["displayTimeUnit"] == "ns" and list(document) == ["displayTimeUnit", "traceEvents", "otherData"], list(document))
    return document


Trace = collections.namedtuple("Trace", "tracks requests names launches")


def parse(document):
    """Slices by track, requests by id (their phases in order), names of the tracks."""
    tracks, names, requests, flows = collections.defaultdict(list), {}, {}, collections.defaultdict(list)
    stacks, launches = collections.defaultdict(list), set()
    for event in document["traceEvents"]:
        kind, track = event["ph"], (event["pid"], event["tid"])
        if kind == "M":
            if event["name"] == "thread_name":
                check(track not in names, "named twice", event)
                names[track] = event["args"]["name"]
        elif kind == "X":
            start = ns(event, "ts")
            tracks[track].append((start, start + ns(event, "dur"), event))
            launches.add(event["args"]["launch"])
        elif kind in "sf":
            flows[event["id"]].append((kind, track, ns(event, "ts")))
        elif kind == "b":
            stacks[event["id"]].append((event["name"], ns(event, "ts"), event))
            check(event["cat"] == "request", event)
        elif kind == "e":
            check(stacks[event["id"]], "ends and never began", event)
            name, start, begun = stacks[event["id"]].pop()
            check(name == event["name"] and ns(event, "ts") >= start, name, start, event)
            of = requests.setdefault(event["id"], {"phases": []})
            if stacks[event["id"]]:
                check(stacks[event["id"]][-1][1] <= start and len(stacks[event["id"]]) == 1, "not inside of its request", event)
                of["phases"].append((name, start, ns(event, "ts")))
            else:
                of.update(model=name, start=start, end=ns(event, "ts"), **begun["args"])
        else:
            check(False, "unknown kind of event", event)
    check(not any(stacks.values()), "begun and never ended", [k for k, v in stacks.items() if v][:3])
    for track, slices in tracks.items():
        check(track in names, "a track without a name", track)
        slices.sort(key=lambda s: s[:2])
        for a, b in zip(slices, slices[1:]):
            check(a[1] <= b[0], "two slices of a track overlap", names.get(track), a, b)
    for key, ends in flows.items():
        check([e[0] for e in ends] == ["s", "f"], "a flow has one begin and one end", key, ends)
        for _, track, at in ends:
            check(any(s[0] <= at <= s[1] and s[2]["args"]["launch"] == key for s in tracks[track]), "a flow ends beside its slice", key, track, at)
    for key, r in requests.items():
        order = [PHASES.index(p[0]) for p in r["phases"]]
        check(order == sorted(set(order)), "phases out of order", key, r)
        if r["status"] == 200:
            points = [r["start"]] + [p[2] for p in r["phases"]]
            check([p[1] for p in r["phases"]] == points[:-1] and points[-1] == r["end"], "a gap between phases", key, r)
    return Trace(tracks, requests, names, launches)


def load(daemon, clients, rounds, seed):
    """Requests of several clients at once; by request id: status, bytes of the response's body."""
    sent, lock = {}, threading.Lock()

    def client(number):
        rng = random.Random(seed * 1000 + number)
        with Connection(daemon, 60) as connection:
            for i in range(rounds):
                case = random_case(rng, rng.random() < 0.95)  # what is expected is reckoned in Python, and here it is not compared
                form = rng.choice([form for form in FORMS_SENT if fits(form, case)])
                target, headers, body = FORMS[form](case, "")
                name = "%d-%d-%s" % (number, i, rng.choice(["a", "<img/src=x>", "a-name-that-is-longer-than-the-room-that-there-is-for-it"]))
                answer = connection.ask(request("POST", target, [*headers, ("X-Request-Id", name)], body))
                with lock:
                    sent[name[:39]] = (answer.status, len(answer.body), case)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sent


def copies(daemon, clients, rounds):
    """Requests of 2 MiB, which a GPU copies."""
    def client():
        with Connection(daemon, 60) as connection:
            for _ in range(rounds):
                answer = connection.ask(request("POST", "/v2/models/softmax/infer?shape=512,1024&datatype=FP32", (), bytes(2 << 20)))
                check(answer.status == 200, "2 MiB", answer)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def agrees(daemon, sent):
    """Every request that was answered is there, with its launch; times in the engines are those of the metrics."""
    before = daemon.metrics()
    document = read(daemon)
    trace = parse(document)
    check(document["otherData"]["truncated"] is False, document["otherData"])
    check(document["otherData"]["requests"] == len(trace.requests) and document["otherData"]["launches"] == len(trace.launches), document["otherData"])
    by_name = {r["request_id"]: r for r in trace.requests.values()}
    for name, (status, size, case) in sent.items():
        r = by_name.get(name)
        check(r is not None, "not in the trace", name)
        if r is None:
            continue
        check(r["status"] == status and r["model"] == case.model, name, r, status, case)
        if status == 200:
            check(r["out_bytes"] == size and r["in_bytes"] >= sum(len(t.data) for t in case.inputs), name, r, size)
            check("launch" not in r or r["launch"] in trace.launches, "its launch is not there", r)
    for engine in ENGINES:
        busy = sum(s[1] - s[0] for slices in trace.tracks.values() for s in slices if s[2]["cat"] == engine)
        told = (metric(before, "kernserve_batch_seconds_total", engine=engine) or 0) * 1e9
        check(abs(busy - told) <= 0.01 * told + 1000, "time in", engine, busy, "the metrics have", told)
    engines(daemon, trace)


def merged(trace, from_ns=0, to_ns=1 << 63):
    """ns of a window in which each engine of the device was busy on any lane; each two of them; two or more; all three."""
    points = sorted((at, step, slice_[2]["cat"]) for (pid, _), slices in trace.tracks.items() if pid == 1
                    for slice_ in slices if slice_[1] > from_ns and slice_[0] < to_ns
                    for at, step in ((max(slice_[0], from_ns), 1), (min(slice_[1], to_ns), -1)))
    depth, last, out = dict.fromkeys(ENGINES, 0), 0, {}
    for at, step, engine in points:
        busy = [name for name in ENGINES if depth[name]]
        names = busy + ["any"] * bool(busy) + ["%s_%s" % (a, b) for a in busy for b in busy if ENGINES.index(a) < ENGINES.index(b)]
        for name in names + ["two"] * (len(busy) > 1) + ["all"] * (len(busy) == 3):
            out[name] = out.get(name, 0) + at - last
        depth[engine] += step
        last = at
    return out


def engines(daemon, trace):
    """The daemon's own merging of the launches, against one of the trace's slices."""
    want = merged(trace)

    def far():
        page = second(daemon).get("/metrics").body.decode()
        got = {name: metric(page, "kernserve_engine_busy_seconds_total", engine=name) for name in ENGINES + ["any"]}
        pairs = {"h2d_compute": "h2d_compute", "h2d_d2h": "h2d_d2h", "compute_d2h": "compute_d2h", "all": "all", "two": "any"}
        got.update({name: metric(page, "kernserve_engine_overlap_seconds_total", pair=pair) for name, pair in pairs.items()})
        check(metric(page, "kernserve_timeline_overruns_total") == 0, "records were lost in a ring of 16384")
        check(metric(page, "kernserve_engine_observed_seconds_total") >= (got["any"] or 0), "busy while not observed")
        return {name: (got[name], float(want.get(name, 0)) / 1e9) for name in got
                if got[name] is None or abs(got[name] - float(want.get(name, 0)) / 1e9) > 1e-6}
    check(comes_to(far, {}) == {}, "busy and overlapping times of the engines: the metrics and the trace have", far())


def overlap(trace):
    """Share of the device's busy time with two or more slices under way; what ran side by side; the most lanes at once."""
    points, pairs, lanes = [], set(), 0
    for (pid, tid), slices in trace.tracks.items():
        if pid == 1:
            points += [(s[0], 1, s[2]["cat"], tid) for s in slices] + [(s[1], 0, s[2]["cat"], tid) for s in slices]
    running, busy, both, last = {}, 0, 0, 0
    for at, begins, kind, tid in sorted(points):
        busy += (at - last) * (len(running) > 0)
        both += (at - last) * (len(running) > 1)
        last = at
        if begins:
            pairs |= {tuple(sorted((kind, other))) for other in running.values()}
            running[tid] = kind
            lanes = max(lanes, len(running))  # the engines of one lane follow each other
        else:
            running.pop(tid, None)
    return both / busy if busy else 0, pairs, lanes


def tell(document, *window):
    trace = parse(document)
    share, pairs, lanes = overlap(trace)
    times = merged(trace, *window)
    ratio = times.get("two", 0) / times["any"] if "any" in times else 0
    print("%d launches, %d requests; two or more slices of the device under way in %.0f %% of its busy time, two or more engines in %.1f %%; "
          "%d lanes at once; side by side: %s"
          % (len(trace.launches), len(trace.requests), 100 * share, 100 * ratio, lanes, ", ".join("+".join(p) for p in sorted(pairs)) or "none"))
    return pairs, lanes, float(ratio)


def large(daemon):
    """A request above the slots, whose blocks are launches of a plan of their own, has all of its bytes."""
    size = 96 << 20
    with daemon.connect(60) as connection:
        answer = connection.ask(request("POST", "/v2/models/softmax/infer?shape=%d,1024&datatype=FP32" % (size >> 12), [("X-Request-Id", "large")], bytes(size)))
    check(answer.status == 200, "96 MiB", answer.status)
    found = [r for r in parse(read(daemon)).requests.values() if r["request_id"] == "large"]
    check(len(found) == 1 and found[0]["in_bytes"] >= size and found[0]["out_bytes"] == size, "a large request", found)


def spans(daemon):
    """ms= gives what ended within it."""
    document = read(daemon, "?ms=10000")
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    parse(document)
    time.sleep(0.3)
    with daemon.connect() as connection:
        connection.ask(request("POST", "/v2/models/softmax/infer?shape=2,3&datatype=FP32", [("X-Request-Id", "late")], bytes(24)))
    document = read(daemon, "?ms=200")
    trace = parse(document)
    check([r["request_id"] for r in trace.requests.values()] == ["late"], "in the last 200 ms", trace.requests)
    check(document["otherData"]["from_ns"] > now, document["otherData"])


def refusals(daemon):
    for query in ("?ms=0", "?ms=-1", "?ms=1000000000", "?ms=10001", "?ms=", "?ms=1x", "?ms=1&ms=2", "?m=1", "?", "?ms=99999999999999999999"):
        answer = second(daemon).get("/v2/trace" + query)
        if query == "?":
            check(answer.status == 200, query, answer)
        else:
            check(answer.status == 400 and answer.header("kernserve-error") == "parameter" and "10000" in answer.body.decode(), query, answer)
    answer = daemon.get("/v2/trace")
    check(answer.status == 404 and answer.header("kernserve-error") == "path", "on the data listener", answer)
    with second(daemon).connect() as connection:
        answer = connection.ask(request("POST", "/v2/trace"))
        check(answer.status == 405 and answer.header("allow") == "GET, HEAD", "POST", answer, answer.headers)
        check("/v2/trace" in connection.ask(request("GET", "/")).body.decode(), "the index has no link")
    with daemon.connect() as connection:
        connection.ask(request("POST", "/v2/models/softmax/infer?shape=2,3&datatype=FP32", [("X-Request-Id", "bad")], bytes(23)))
    bad = [r for r in parse(read(daemon)).requests.values() if r["request_id"] == "bad"]
    check(len(bad) == 1 and bad[0]["status"] == 400 and bad[0]["code"] == "binary_size" and not bad[0]["phases"], "a refused request", bad)


def small_ring(path, options):
    with Daemon(path, "--timeline", "16", *options) as daemon:
        load(daemon, 4, 40, 7)
        trace = parse(read(daemon))
        shards = sum(name.startswith("shard") and name.count(" ") == 1 for name in trace.names.values())
        check(0 < len(trace.launches) <= 16 * shards and 0 < len(trace.requests) <= 4 * shards, len(trace.launches), len(trace.requests), shards)
    with Daemon(path, "--timeline", "0", *options) as daemon:
        answer = second(daemon).get("/v2/trace")
        check(answer.status == 503 and answer.header("kernserve-error") == "unavailable", "no timeline", answer)


def main():
    path, *arguments = sys.argv[1:]
    if path == "--check":
        with open(arguments[0], "rb") as file:
            pairs, lanes, _ = tell(json.load(file, parse_float=decimal.Decimal))
        if "--overlap" in arguments:
            wanted = {("d2h", "h2d"), ("compute", "h2d"), ("compute", "d2h")}
            check(wanted <= pairs and lanes >= 3, "not side by side:", wanted - pairs, lanes, "lanes at once")
        return 1 if wrongs() else 0
    # Several lanes: launches follow each other on a shard's track.
    with Daemon(path, "--timeline", "16384", "--lanes", "4", *arguments) as daemon:
        agrees(daemon, load(daemon, 6, 60, int(time.time())))
        reader = threading.Thread(target=lambda: [read(daemon, "?ms=50") and time.sleep(0.01) for _ in range(20)])
        reader.start()  # reads while shards write
        load(daemon, 8, 40, 3)
        copies(daemon, 8, 20)
        reader.join()
        tell(read(daemon, "?ms=1000"))
        large(daemon)
        spans(daemon)
        refusals(daemon)
    small_ring(path, arguments)
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
