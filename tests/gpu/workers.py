#!/usr/bin/env python3
"""Workers of --devices 0,1 on a host with two GPUs; --backend cpu shows that it runs.

workers.py KERNSERVE [--backend cuda] [--seconds 3] [--rounds 3] [--only rates,killed,trapped,idle,tensors,placed]     needs wrk, taskset

  rates    a load that the GPU limits (a product of two resident tensors) and one that the host limits (raw rows of 4 KiB, 128 connections):
           --devices 0,1 beside --devices 0, and beside two daemons that know nothing of each other, each with its GPU and half the processors
  killed   a worker is killed under the first load: the other one's rate, errors by kind, seconds until it is ready, its tensors
  trapped  the same, by a kernel that traps (kernserve_faulty; on the CPU its backend loses the device)
  idle     that load on worker 0 alone, with and without an idle worker 1
  tensors  PUT, and requests that name what was PUT, at both workers, under that load: each answer is right
  placed   the same of tensors that are on one device each; their memory is taken there alone, and an output that stays is where its input is

Clients have a quarter of the processors, the daemons the rest, where there are eight. Exit code 77: there are no two GPUs, or no wrk.
"""

import argparse
import array
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(TESTS, "http"))
from daemon import Connection, Daemon, check, comes_to, metric, request, wrongs  # noqa: E402

PARTS = ("rates", "killed", "trapped", "idle", "tensors", "placed")
PRODUCT = "/v2/models/matmul/infer?INPUT0=@A&INPUT1=@B"
ROWS = "/v2/models/softmax/infer?shape=1,1024&datatype=FP32"
MOVES = "/v2/models/softmax/stats?device=%d"  # takes a connection to that worker
CONNECTIONS = {"product": 32, "rows": 128}
DOUBLE, APART, IDLE = 1.95, 0.98, 0.01
# wrk's words: TARGET, bytes of the body, and of a request that goes ahead of each, "" for none. At its end the errors by kind.
SCRIPT = """
function init(args)
    local body = string.rep(string.char(0, 0, 128, 63), tonumber(args[2]) / 4)
    words = wrk.format("POST", args[1], {["Host"] = "localhost", ["Content-Length"] = tostring(#body)}, body)
    if args[3] and args[3] ~= "" then words = wrk.format("GET", args[3], {["Host"] = "localhost"}) .. words end
end
function request() return words end
function done(summary, latency)
    local e = summary.errors
    io.write(string.format('{"requests":%d,"seconds":%.4f,"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}\\n',
        summary.requests, summary.duration / 1e6, e.connect, e.read, e.write, e.status, e.timeout))
end
"""
KINDS = ("connect", "read", "write", "status", "timeout")


# --- processors -------------------------------------------------------------------------------------------------------


def siblings(processors):
    """Of each core its processors, so that no two daemons share one."""
    groups = {}
    for one in sorted(processors):
        with contextlib.suppress(OSError), open("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list" % one) as file:
            groups.setdefault(file.read().strip(), []).append(one)
            continue
        groups[one] = [one]
    return list(groups.values())


def flat(groups):
    return [one for group in groups for one in group]


def halves(sets):
    """Of two workers: what each has for itself, or half of what both have."""
    if not sets[0] & sets[1]:
        return sets
    cores = siblings(sets[0] | sets[1])
    middle = len(cores) // 2
    return [set(flat(cores[:middle])), set(flat(cores[middle:]))] if middle else sets


def pinned(processors):
    return ("taskset", "-c", ",".join(map(str, sorted(processors))))


# --- daemons and loads ------------------------------------------------------------------------------------------------


class Host:
    """What all parts share: processors, tensors, options."""

    def __init__(self, given, folder):
        self.given, self.folder, self.program = given, folder, given.kernserve
        cores = siblings(os.sched_getaffinity(0))
        few = len(flat(cores)) < 8
        self.clients = flat(cores if few else cores[-(len(cores) // 4):])
        self.servers = flat(cores if few else cores[:-(len(cores) // 4)])
        self.own = None  # of the two daemons that stand alone, once workers have said what they have
        gpu = given.backend == "cuda"
        self.inner = 262144 if gpu else 4096
        self.options = ("--backend", given.backend, "--tune-cache", os.path.join(folder, "tuned"))
        self.options += () if gpu else ("--threads", "1", "--pinned-bytes", "64M")
        block = array.array("f", [(i * i * 7 + i // 3) % 5 - 2 for i in range(65521)])  # small integers: the sums are exact
        count = 64 * self.inner
        self.a = (block * (count // len(block) + 1))[:count]
        self.b = (block[11:] + block[:11]) * (count // len(block) + 1)
        self.b = self.b[:count]
        self.first = sum(self.a[k] * self.b[64 * k] for k in range(self.inner))
        self.product = None
        self.script = os.path.join(folder, "load.lua")
        with open(self.script, "w") as file:
            file.write(SCRIPT)

    def start(self, *options, alone=None, path=None, environment=None):
        """Ready, with both tensors. alone: on that GPU, with its half of the processors."""
        environment = dict(environment or {})
        if alone is not None and self.given.backend == "cuda":
            environment["CUDA_VISIBLE_DEVICES"] = str(alone)
        under = pinned(self.servers if alone is None else self.own[alone])
        daemon = Daemon(path or self.program, *self.options, *options, under=under, wait=60, environment=environment)
        daemon.second = type("Second", (), {"host": daemon.host, "port": daemon.admin_port})
        with daemon.connect(60) as connection:
            for name, shape, values in (("A", (64, self.inner), self.a), ("B", (self.inner, 64), self.b)):
                answer = connection.ask(request("PUT", "/v2/tensors/%s?shape=%d,%d&datatype=FP32" % (name, *shape), [], values.tobytes()))
                check(answer and answer.status in (200, 201), "PUT", name, answer)
            self.check_product(connection, "the product")
        return daemon

    def check_product(self, connection, *what):
        answer = connection.ask(request("POST", PRODUCT))
        if not check_status(answer, *what):
            return
        values = array.array("f", answer.body)
        self.product = self.product or answer.body
        check(len(values) == 64 * 64 and values[0] == self.first and answer.body == self.product, *what, "has other values", values[:2], self.first)

    def workers(self, devices="0,1", **named):
        daemon = self.start("--devices", devices, **named)
        count = devices.count(",") + 1
        check(comes_to(lambda: states(daemon), ["ready"] * count) == ["ready"] * count, "not all are ready", states(daemon))
        if count == 2 and not self.own:
            sets = [os.sched_getaffinity(pid_of(daemon, d)) for d in (0, 1)]
            self.own = halves(sets)
        return daemon

    def wrk(self, port, connections, seconds, target, body, ahead=""):
        threads = max(1, min(8, len(self.clients) // 2, connections))
        words = ["wrk", "-t%d" % threads, "-c%d" % connections, "-d%ds" % seconds, "--timeout", "20s", "-s", self.script, "http://127.0.0.1:%d" % port]
        return subprocess.Popen([*pinned(self.clients), *words, "--", target, str(body), ahead], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def load(self, load, ports, seconds, ahead=""):
        """By two clients, one for each of two daemons, with half of the connections each."""
        target, body = (PRODUCT, 0) if load == "product" else (ROWS, 4096)
        return [self.wrk(ports[i % len(ports)], CONNECTIONS[load] // 2, seconds, target, body, ahead) for i in (0, 1)]

    def rate(self, load, ports, ahead=""):
        if self.given.backend == "cuda":
            summed(self.load(load, ports, 1, ahead))  # graphs and trials are made
        rate, errors = summed(self.load(load, ports, self.given.seconds, ahead))
        check(rate > 0 and not any(errors.values()), load, "has errors", errors)
        return rate / (2 if ahead else 1)


def check_status(answer, *what):
    good = answer is not None and answer.status == 200
    check(good, *what, answer)
    return good


def summed(processes):
    """Requests a second of all, errors by kind."""
    rate, errors = 0.0, dict.fromkeys(KINDS, 0)
    for process in processes:
        text, _ = process.communicate(timeout=120)
        lines = [line for line in text.splitlines() if line.startswith("{")]
        check(lines, "wrk says", text[-300:])
        for line in lines:
            said = json.loads(line)
            rate += said["requests"] / said["seconds"]
            errors = {kind: errors[kind] + said[kind] for kind in KINDS}
    return rate, errors


def admin(daemon, target):
    with contextlib.closing(Connection(daemon.second, 20)) as connection:
        return connection.ask(request("GET", target))


def states(daemon):
    answer = admin(daemon, "/readyz")
    return [row["state"] for row in json.loads(answer.body)["devices"]] if answer else None


def pid_of(daemon, device):
    return json.loads(admin(daemon, "/status.json?device=%d" % device).body)["pid"]


def connect_to(daemon, device):
    """A connection at that worker."""
    connection = daemon.connect(60)
    check_status(connection.ask(request("GET", MOVES % device)), "to worker", device)
    return connection


def row(*cells):
    print("  ".join(("%-14s" if i == 0 else "%12s") % cell for i, cell in enumerate(cells)), flush=True)


# --- rates ------------------------------------------------------------------------------------------------------------


def one_side(host, side):
    """Rates of both loads."""
    with contextlib.ExitStack() as stack:
        if side == "apart":
            daemons = [host.start(alone=i) for i in (0, 1)]
        else:
            daemons = [host.workers("0,1" if side == "both" else "0")]
        for daemon in daemons:
            stack.enter_context(daemon)
        ports = [daemon.port for daemon in daemons]
        return {load: host.rate(load, ports) for load in CONNECTIONS}


def rates(host):
    """In another order each round; the workers come first, since their processors are those of the others."""
    sides, read = ["both", "one", "apart"], []
    row("requests/s", "round", "--devices 0", "--devices 0,1", "two daemons", "of one", "of two")
    for number in range(host.given.rounds):
        order = sides[number % 3:] + sides[:number % 3]
        have = {side: one_side(host, side) for side in order}
        read.append(have)
        for load in CONNECTIONS:
            one, both, apart = (have[side][load] for side in ("one", "both", "apart"))
            row(load, number + 1, "%.0f" % one, "%.0f" % both, "%.0f" % apart, "%.3f" % (both / one), "%.3f" % (both / apart))
    for load in CONNECTIONS:
        one, both, apart = (statistics.median(have[side][load] for have in read) for side in ("one", "both", "apart"))
        row(load, "median", "%.0f" % one, "%.0f" % both, "%.0f" % apart, "%.3f" % (both / one), "%.3f" % (both / apart))
        if host.given.backend == "cuda":
            wanted, is_it = (DOUBLE, both / one) if load == "product" else (APART, both / apart)
            check(is_it >= wanted, load, "%.3f, wanted is %.2f" % (is_it, wanted))


# --- a worker that ends -----------------------------------------------------------------------------------------------


def watch(daemon, until):
    """(time, products of each worker, states), until that is so of the last one or half a minute is over."""
    seen, end = [], time.monotonic() + 30
    while time.monotonic() < end:
        answer = admin(daemon, "/metrics")
        if answer is None:  # of the worker that ends
            continue
        text = answer.body.decode()
        counts = [metric(text, "kernserve_inference_requests_total", device=d) for d in (0, 1)]
        seen.append((time.monotonic(), counts, states(daemon)))
        if until(seen):
            break
        time.sleep(0.05)
    return seen


def slope(seen, device):
    (first, last) = seen[0], seen[-1]
    return (last[1][device] - first[1][device]) / (last[0] - first[0]) if last[0] > first[0] else 0.0


def ends_under_load(host, name, daemon, strike):
    loads = host.load("product", [daemon.port], 60)
    time.sleep(0.5)
    before = watch(daemon, lambda seen: seen[-1][0] - seen[0][0] > max(1.0, host.given.seconds / 2))
    struck = time.monotonic()
    strike()
    during = watch(daemon, lambda seen: seen[-1][2] == ["ready", "ready"] and any(one[2] != ["ready", "ready"] for one in seen))
    took = time.monotonic() - struck
    for process in loads:
        process.send_signal(signal.SIGINT)  # it says what it has counted, and ends
    _, errors = summed(loads)
    hit = next((d for one in during for d in (0, 1) if one[2][d] not in ("ready", "stuck")), None)
    check(hit is not None and during[-1][2] == ["ready", "ready"], name, "states", during[-1][2])
    if hit is None:
        return
    away = [one for one in during if one[2][hit] != "ready" and one[2][1 - hit] == "ready"]
    was, now = slope(before, 1 - hit), slope(away, 1 - hit)
    row(name, "worker %d" % hit, "other before", "%.0f/s" % was, "meanwhile", "%.0f/s" % now, "%.3f" % (now / was if was else 0))
    row("", "ready after", "%.2f s" % took, "errors", " ".join("%s %d" % item for item in errors.items()))
    # Its connections are lost, and nothing else; a device that is lost ends each with a 503.
    answers_max = CONNECTIONS["product"] if name == "trapped" else 0
    check(errors["connect"] + errors["timeout"] == 0 and errors["status"] <= answers_max, name, "more than its own connections", errors)
    check(now > 0.9 * was or host.given.backend != "cuda", name, "the other one is slower", was, now)
    for device in (0, 1):
        with connect_to(daemon, device) as connection:
            host.check_product(connection, name, "tensors of worker", device)


def killed(host):
    with host.workers() as daemon:
        ends_under_load(host, "killed", daemon, lambda: os.kill(pid_of(daemon, 0), signal.SIGKILL))


def trapped(host):
    path = os.path.join(os.path.dirname(os.path.abspath(host.program)), "tests", "kernserve_faulty")
    if not os.access(path, os.X_OK):
        print("trapped: no", path)
        return
    mark = os.path.join(host.folder, "trap")
    with host.workers(path=path, environment={"KS_TRAP": mark}) as daemon:
        ends_under_load(host, "trapped", daemon, lambda: open(mark, "w").close())
        check(not os.path.exists(mark) and daemon.says(r"started again; the others serve on.* exit=70"), "the trap's end", daemon.said()[-500:])
        logs = [line for line in daemon.said().splitlines() if "level=error" in line]
        print("  %s" % (logs[0][:160] if logs else "no error in the log"))


# --- an idle one, and tensors -----------------------------------------------------------------------------------------


def idle(host):
    """Each request takes its connection to worker 0 first, where it is from then on."""
    read = {"0": [], "0,1": []}
    row("worker 0 alone", "round", "--devices 0", "--devices 0,1", "ratio")
    for number in range(host.given.rounds):
        for devices in sorted(read, reverse=number % 2 == 1):
            with host.workers(devices) as daemon:
                read[devices].append(host.rate("product", [daemon.port], MOVES % 0))
        row("product", number + 1, *("%.0f" % read[devices][-1] for devices in ("0", "0,1")), "%.4f" % (read["0,1"][-1] / read["0"][-1]))
    ratio = statistics.median(read["0,1"]) / statistics.median(read["0"])
    row("product", "median", "", "", "%.4f" % ratio)
    check(abs(1 - ratio) <= IDLE or host.given.backend != "cuda", "an idle worker costs", ratio)


def resident(daemon):
    return [metric(admin(daemon, "/metrics").body.decode(), "kernserve_resident_bytes", kind="tensor", device=d) for d in (0, 1)]


def on_one_device(daemon):
    """Of either device: its memory, what computes with it and what that leaves, by connections that begin at the other one."""
    ones = array.array("f", [1.0]) * (1 << 20)
    for device in (0, 1):
        before = resident(daemon)
        with connect_to(daemon, 1 - device) as connection:
            answer = connection.ask(request("PUT", "/v2/tensors/P?shape=1024,1024&datatype=FP32&device=%d" % device, [], ones.tobytes()))
            check(answer and answer.status == 201 and json.loads(answer.body)["device"] == device, "PUT on one device", device, answer)
        grown = [after - was for after, was in zip(resident(daemon), before)]
        check(grown[device] == 4 << 20 and grown[1 - device] == 0, "its memory", device, grown)
        with connect_to(daemon, 1 - device) as connection:
            answer = connection.ask(request("POST", "/v2/models/matmul/infer?INPUT0=@P&INPUT1=@P&OUTPUT0=@Q"))
            check(answer and answer.status == 200 and answer.header("kernserve-tensor") == "Q", "an output that stays", device, answer)
        with connect_to(daemon, 1 - device) as connection:
            entry = connection.ask(request("GET", "/v2/tensors/Q", [("Accept", "application/json")]))
            check(entry and entry.status == 200 and json.loads(entry.body)["device"] == device, "where it is", device, entry)
            answer = connection.ask(request("GET", "/v2/tensors/Q"))
            check(answer and answer.status == 200 and set(array.array("f", answer.body)) == {1024.0}, "its values", device)
        with connect_to(daemon, 1 - device) as connection:
            for name in "PQ":
                check(connection.ask(request("DELETE", "/v2/tensors/" + name)).status == 204, "DELETE", name)
        check(resident(daemon) == before, "its memory stays", device, resident(daemon), before)


def placed(host):
    tensors(host, "&device=%d")


def tensors(host, place=""):
    """Each client PUTs its own name, at one worker, and asks both for sums of it. place: on which device that is, by the client."""
    puts, sums, wrong, end = [0], [0], [], time.monotonic() + host.given.seconds
    lock = threading.Lock()

    def client(number, daemon):
        with contextlib.ExitStack() as stack:
            at = [stack.enter_context(connect_to(daemon, d)) for d in (0, 1)]
            version = number
            while time.monotonic() < end and not wrong:
                version += 4
                body = array.array("f", [version % 1000]) * (64 * 256)
                answer = at[number % 2].ask(request("PUT", "/v2/tensors/T%d?shape=64,256&datatype=FP32%s" % (number, place and place % (number // 2)), [], body.tobytes()))
                if not answer or answer.status not in (200, 201):
                    wrong.append(("PUT", answer))
                    return
                for device, connection in enumerate(at):
                    answer = connection.ask(request("POST", "/v2/models/reduce/infer?INPUT0=@T%d&axis=1&op=sum" % number))
                    if not answer or answer.status != 200 or array.array("f", answer.body) != array.array("f", [256.0 * (version % 1000)]) * 64:
                        wrong.append((device, version, answer))
                        return
                with lock:
                    puts[0] += 1
                    sums[0] += 2

    with host.workers() as daemon:
        if place:
            on_one_device(daemon)
        loads = host.load("product", [daemon.port], 60)
        threads = [threading.Thread(target=client, args=(i, daemon)) for i in range(4)]
        end = time.monotonic() + host.given.seconds
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for process in loads:
            process.send_signal(signal.SIGINT)
        rate, errors = summed(loads)
        moved = metric(admin(daemon, "/metrics").body.decode(), "kernserve_worker_handovers_total")
    row("placed" if place else "tensors", "%d PUTs" % puts[0], "%d sums" % sums[0], "%.0f products/s" % rate, "%d wrong" % len(wrong), "%d moved" % moved)
    check(not wrong and puts[0] > 0 and not any(errors.values()), "tensors under load", wrong[:1], errors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernserve")
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(PARTS))
    given = parser.parse_args()
    only = given.only.split(",")
    if not set(only) <= set(PARTS):
        parser.error("--only has some of " + ",".join(PARTS))
    if not shutil.which("wrk") or not shutil.which("taskset"):
        print("wrk or taskset is missing")
        return 77
    if given.backend == "cuda":
        # The presets of --devices check the index; the device is not touched.
        run = subprocess.run([given.kernserve, "--check-config", "--devices", "0,1"], capture_output=True, text=True, timeout=60, check=False)
        if run.returncode != 0:
            print("no two GPUs:", run.stderr.strip())
            return 77
    with tempfile.TemporaryDirectory() as folder:
        host = Host(given, folder)
        print("%d processors for daemons, %d for clients" % (len(host.servers), len(host.clients)))
        for part in PARTS:
            begun = time.monotonic()
            if part in only:
                globals()[part](host)
                print("%s: %.0f s" % (part, time.monotonic() - begun), flush=True)
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
