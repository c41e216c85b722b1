#!/usr/bin/env python3
"""--devices: a worker process for each device, here of the CPU. Connections are spread evenly, however few; a worker that is killed under
load takes its own connections alone, and what it has not taken yet is another one's; one /metrics, readiness and status tell of all;
what would be in one worker alone is refused; a worker that ends at start again and again ends the whole.

engine_workers.py DAEMON
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from daemon import DEADLINE_S, Connection, Daemon, check, comes_to, daemon_path, metric, random_values, read_answer, request, row_request, seed, wrongs
from fault_supervise import Client
from ports import free_ports

PATH = daemon_path()
OPTIONS = ("--backend", "cpu", "--threads", "1", "--pinned-bytes", "64M")
ASK, BODY = row_request(random_values(seed(), 64))
CLIENTS = 6


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        return [int(child) for child in file.read().split()]


def is_worker(pid):
    """No child that has not become one yet, nor one of a sanitizer."""
    with open("/proc/%d/cmdline" % pid, "rb") as file:
        return b"--devices=" in file.read().split(b"\0")


class Workers(Daemon):
    """Two of the CPU."""

    def __init__(self, *options, path=PATH, environment=None):
        super().__init__(path, *OPTIONS, "--devices", "0,1", *options, environment=environment)
        check(comes_to(self.states, ["ready", "ready"]) == ["ready", "ready"], "not both are ready", self.states())

    def admin(self, target, data=None):
        with contextlib.closing(Connection(type("Second", (), {"host": self.host, "port": self.admin_port}))) as connection:
            return connection.ask(data or request("GET", target))

    def states(self):
        answer = self.admin("/readyz")
        return [row["state"] for row in json.loads(answer.body)["devices"]] if answer else None

    def pid_of(self, device):
        return json.loads(self.admin("/status.json?device=%d" % device).body)["pid"]

    def open_connections(self):
        text = self.admin("/metrics").body.decode()
        return [metric(text, "kernserve_worker_connections", device=device) for device in (0, 1)]


def stop(pid):
    """SIGSTOP, until it has reached every thread: a thread may take a connection until then."""
    def all_stopped():
        states = []
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/stat" % (pid, task)) as file:
                states.append(file.read().rsplit(")", 1)[1].split()[0])
        return set(states) == {"T"}
    os.kill(pid, signal.SIGSTOP)
    check(comes_to(all_stopped, True), "it does not stop")


def is_served(connection):
    connection.sendall(ASK + BODY)
    answer = read_answer(connection)
    return answer is not None and answer[0] == 200 and answer[2] == BODY


def spread(daemon):
    """No worker has two connections more than the other, while they come and while they go."""
    held = []
    for count in range(1, 10):
        held.append(daemon.dial())
        check(is_served(held[-1]), "a connection is not served")
        have = comes_to(lambda: sum(daemon.open_connections()), count) and daemon.open_connections()
        check(sorted(have) == [count // 2, (count + 1) // 2], "uneven", have)
    for connection in held[0:8:2]:  # four of one worker's five, none of the other's
        connection.close()
    comes_to(lambda: sorted(daemon.open_connections()), [1, 4])
    check(sorted(daemon.open_connections()) == [1, 4], "they did not take turns", daemon.open_connections())
    held = held[1:8:2] + held[8:]
    held += [daemon.dial() for _ in range(5)]  # at once: one that a worker is just taking counts once
    check(all([is_served(connection) for connection in held[-5:]]), "a later connection is not served")
    comes_to(lambda: daemon.open_connections(), [5, 5])
    check(daemon.open_connections() == [5, 5], "uneven again", daemon.open_connections())
    for connection in held:
        connection.close()
    comes_to(lambda: sum(daemon.open_connections()), 0)


def documents(daemon):
    """Of all workers, and of each."""
    held = [daemon.dial() for _ in range(2)]
    before = daemon.admin("/metrics").body.decode()
    for connection, times in zip(held, (3, 5)):
        for _ in range(times):
            check(is_served(connection), "not served")
    name, text = "kernserve_inference_requests_total", ""

    def grown():
        nonlocal text
        text = daemon.admin("/metrics").body.decode()
        return sorted(metric(text, name, device=d) - metric(before, name, device=d) for d in (0, 1))

    # On a busy host a worker may not have written its part in the time that a document waits for it: then it is the one before.
    got = comes_to(grown, [3, 5])
    check(got == [3, 5], "requests of each device", got)
    samples = [line for line in text.splitlines() if line and line[0] != "#"]
    check(all(re.match(r'\w+\{(.*,)?device="[01]"', line) for line in samples), "samples without a device",
          [line for line in samples if 'device="' not in line][:3])
    check(all(line.count('device="') == 1 for line in samples), "samples with two")
    heads = re.findall(r"^# HELP (\S+)", text, re.M)
    check(len(heads) == len(set(heads)) > 50, "a family comes twice", [head for head in heads if heads.count(head) > 1][:3])
    family = None
    for line in text.splitlines():  # what belongs together stands together
        family = line.split(" ")[2] if line.startswith("# ") else family
        check(line.startswith("#") or line.startswith(family), "a sample of another family", family, line)
    check(metric(text, "kernserve_worker_up") == 2 and metric(text, "kernserve_worker_starts_total") == 2, "up, starts")
    late = comes_to(lambda: metric(daemon.metrics(), name) == metric(text, name), True)
    check(late, "the data listener's metrics")
    check(sorted(daemon.pid_of(d) for d in (0, 1)) == sorted(children(daemon.process.pid)), "pids in /status.json")
    for target in ("/v2/plans", "/v2/trace", "/status", "/status.json"):
        answers = [daemon.admin(target + query) for query in ("", "?device=0", "?device=1", "?device=2", "?device=x")]
        strange = 200 if target.startswith("/status") else 400  # pages take any query
        check([a.status for a in answers] == [200, 200, 200, 400, strange], target, [(a.status, a.body[:80]) for a in answers])
    rows = json.loads(daemon.admin("/status.json").body)["workers"]
    check([(row["device"], row["state"], row["starts"]) for row in rows] == [(0, "ready", 1), (1, "ready", 1)], "/status.json", rows)
    page = daemon.admin("/status").body.decode()
    check(all('<a href="status?device=%d">%d</a></th><td>ready</td>' % (d, d) in page for d in (0, 1)), "/status", page)
    old = request("GET", "/v2/plans?device=1").replace(b"HTTP/1.1", b"HTTP/1.0")
    check(daemon.admin("", old).status == 200, "HTTP/1.0 goes there, too")
    with Connection(daemon) as connection:  # there and back, on one connection
        for device, model in ((0, "softmax"), (1, "reduce"), (0, "matmul"), (1, "softmax")):
            answer = connection.ask(request("GET", "/v2/models/%s/stats?device=%d" % (model, device)))
            check(answer and answer.status == 200 and json.loads(answer.body)["model_stats"][0]["name"] == model, "stats", device, answer)
    def counted(query):
        rows = json.loads(daemon.get("/v2/models/reduce/stats" + query).body)["model_stats"]
        return rows[0]["inference_count"], rows[0]["inference_stats"]["success"]["count"]
    each = [counted("?device=%d" % device) for device in (0, 1)]
    of_all = tuple(map(sum, zip(*each)))
    got = comes_to(lambda: counted(""), of_all)  # where a worker does not answer within 10 ms, they are those of a second ago
    check(all(each) and got == of_all, "statistics of all", each, got)
    got = comes_to(lambda: [row["inference_count"] for row in json.loads(daemon.get("/v2/models/stats").body)["model_stats"] if row["name"] == "reduce"], [of_all[0]])
    check(got == [of_all[0]], "statistics of all models", got, of_all)
    with Connection(daemon) as connection:  # two requests at once: the second one goes along, unread
        connection.send(request("GET", "/v2/models/stats?device=0") + request("GET", "/v2/models/stats?device=1") + ASK + BODY)
        check([connection.answer().status for _ in range(3)] == [200] * 3, "pipelined")
    for connection in held:
        connection.close()


def answered(daemon, target, missing=()):
    """A document of all workers, once these alone have not answered: on a busy host one may take more than half a second."""
    documents_read = []
    def ask():
        documents_read.append(json.loads(daemon.admin(target).body))
        return documents_read[-1].get("otherData", documents_read[-1])["missing"]
    check(comes_to(ask, list(missing)) == list(missing), target, "who is missing")
    return documents_read[-1]


def ask_each(daemon, target):
    """A request to each worker, as it is given."""
    held = [daemon.dial() for _ in range(2)]
    for connection in held:
        connection.sendall(request("POST", target, [], BODY))
        check(read_answer(connection)[0] == 200, "not served", target)
    for connection in held:
        connection.close()
    comes_to(lambda: sum(daemon.open_connections()), 0)


def plans_of_all(daemon):
    """Each worker's, with its device, in one order; as JSON, CSV and a table."""
    ask_each(daemon, "/v2/models/reduce/infer?shape=64&datatype=FP32")
    each = [json.loads(daemon.admin("/v2/plans?device=%d&sort=launches" % d).body) for d in (0, 1)]
    check(all(row["device"] == d for d in (0, 1) for row in each[d]["plans"]) and all("missing" not in one for one in each), "a device's own", each)
    of_all = answered(daemon, "/v2/plans?sort=launches")
    key = lambda row: json.dumps([row[name] for name in ("device", "model_name", "inputs", "parameters", "launches", "jobs", "busy_us")])
    rows = of_all["plans"]
    check(of_all["plans_total"] == sum(one["plans_total"] for one in each) == len(rows) > 3, "plans_total", of_all["plans_total"])
    check(sorted(map(key, rows)) == sorted(key(row) for one in each for row in one["plans"]), "plans of all")
    check([row["launches"] for row in rows] == sorted((row["launches"] for row in rows), reverse=True), "their order")
    for one in each:  # of each worker the order is its own
        mine = [key(row) for row in rows if row["device"] == one["plans"][0]["device"]]
        check(mine == [key(row) for row in one["plans"]], "the order of a device's")
    few = answered(daemon, "/v2/plans?top=3&sort=launches")
    check([key(row) for row in few["plans"]] == [key(row) for row in rows[:3]] and few["plans_total"] == len(rows), "top=3")
    csv = daemon.admin("", request("GET", "/v2/plans?sort=launches", [("Accept", "text/csv")])).body.decode().split("\r\n")
    check(csv[0].endswith(",share,device") and csv[-1] == "" and len(csv) == len(rows) + 2, "CSV", csv[:2])
    check([int(line.rsplit(",", 1)[1]) for line in csv[1:-1]] == [row["device"] for row in rows], "devices in CSV", csv)
    table = subprocess.run([PATH, "--plans", "http://%s:%d" % (daemon.host, daemon.admin_port)], capture_output=True, text=True, timeout=30, check=False)
    check(table.returncode == 0 and table.stdout.split()[:2] == ["device", "op"], "--plans", table)
    check(daemon.admin("/v2/plans?sort=other").status == 400 and daemon.admin("/v2/trace?ms=0").status == 400, "a wrong query")


def trace_of_all(daemon):
    """Processes of both devices, on one clock; what one has in its own trace is in that of all."""
    begun = time.monotonic_ns()
    ask_each(daemon, "/v2/models/softmax/infer?shape=64&datatype=FP32")
    each = [json.loads(daemon.admin("/v2/trace?device=%d" % d).body) for d in (0, 1)]
    of_all = answered(daemon, "/v2/trace")
    names = {e["pid"]: e["args"]["name"] for e in of_all["traceEvents"] if e["name"] == "process_name"}
    check(sorted(names) == [0, 1, 2, 3], "processes", names)
    check([names[2 * d] for d in (0, 1)] == ["kernserve, worker of device %d" % d for d in (0, 1)], "the hosts' names", names)
    check(all(names[2 * d + 1].startswith("cpu %d: " % d) for d in (0, 1)), "the devices' names", names)
    for d, one in enumerate(each):
        check({e["pid"] for e in one["traceEvents"]} == {2 * d, 2 * d + 1}, "processes of a device", d)
        have = [json.dumps(e, sort_keys=True) for e in of_all["traceEvents"] if e["pid"] // 2 == d]
        check(set(json.dumps(e, sort_keys=True) for e in one["traceEvents"]) == set(have), "events of a device", d)
        last = max(e["ts"] for e in of_all["traceEvents"] if e["pid"] == 2 * d and e["ph"] == "e")
        check(begun <= last * 1000 <= time.monotonic_ns(), "the clock of a device", d, last, begun)
    ids = [e["id"] for e in of_all["traceEvents"] if e["ph"] == "b" and e["name"] in ("softmax", "reduce", "matmul")]
    check(len(ids) == len(set(ids)) and {name.split(".")[0] for name in ids} == {"0", "1"}, "two slices have one id", sorted(ids)[:4])
    sums = [sum(one["otherData"][name] for one in each) for name in ("launches", "requests")]
    other = of_all["otherData"]
    check([other["launches"], other["requests"]] == sums and min(sums) > 3, "otherData", other, sums)
    check(other["from_ns"] == min(one["otherData"]["from_ns"] for one in each) and other["to_ns"] == max(one["otherData"]["to_ns"] for one in each), "its span", other)
    time.sleep(0.05)
    check(answered(daemon, "/v2/trace?ms=1")["otherData"]["requests"] == 0, "ms=1 has older requests")


def missing(daemon):
    """One that is stopped, or down, is named, and keeps the second listener half a second at most."""
    pid, connection = daemon.pid_of(1), Connection(type("Second", (), {"host": daemon.host, "port": daemon.admin_port}))
    check(connection.ask(request("GET", "/v2/plans?device=0")).status == 200, "a connection of worker 0")
    stop(pid)
    for target in ("/v2/plans", "/v2/trace"):
        begun = time.monotonic()
        document = json.loads(connection.ask(request("GET", target)).body)
        took = time.monotonic() - begun
        check(document.get("otherData", document)["missing"] == [1], target, "of one that is stopped", document.get("otherData"))
        check(took < 2.5, target, "waits for one that is stopped", took)
        check(all(row["device"] == 0 for row in document.get("plans", [])), "plans of one that is stopped")
    comes_to(daemon.states, ["ready", "stuck"])
    lines = connection.ask(request("GET", "/v2/plans", [("Accept", "text/csv")])).body.decode().split("\r\n")
    check(lines[-2] == "," * lines[0].count(",") + "1", "CSV has no line of one that is stopped", lines[-2:])
    os.kill(pid, signal.SIGCONT)
    check(comes_to(daemon.states, ["ready", "ready"]) == ["ready", "ready"], "it does not go on", daemon.states())
    connection.close()
    answered(daemon, "/v2/plans")
    os.kill(pid, signal.SIGKILL)
    comes_to(daemon.states, ["ready", "down"])
    answered(daemon, "/v2/trace", [1])
    check(comes_to(daemon.states, ["ready", "ready"]) == ["ready", "ready"], "not started again")
    answered(daemon, "/v2/trace")


def both_at_once(daemon):
    """Two workers that ask each other at the same time get their own answers."""
    wrong, count = [], 12
    def ask(device, target, good):
        with contextlib.closing(Connection(type("Second", (), {"host": daemon.host, "port": daemon.admin_port}))) as connection:
            connection.ask(request("GET", "/v2/plans?top=1&device=%d" % device))
            for _ in range(count):
                body = connection.ask(request("GET", target)).body
                with contextlib.suppress(ValueError, KeyError):
                    if good(json.loads(body)):
                        continue
                wrong.append((device, target, body[:200]))
    def few(document):
        return len(document["plans"]) == (2 if not document["missing"] else 1)
    def is_trace(document):
        return "traceEvents" in document and len({e["pid"] // 2 for e in document["traceEvents"]}) == 2 - len(document["otherData"]["missing"])
    threads = [threading.Thread(target=ask, args=row) for row in ((0, "/v2/plans?top=2", few), (1, "/v2/trace?ms=10000", is_trace))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not wrong, "another one's answer", wrong[:1])


def refused(daemon):
    with Connection(daemon) as connection:
        answer = connection.ask(request("POST", "/v2/logging", [], b"{}"))
        check(answer and answer.status == 501 and b"--devices" in answer.body, "not refused", answer)
        check(connection.ask(request("GET", "/v2/tensors")).status == 200, "the list")


def killed_under_load(daemon):
    target, end = daemon, threading.Event()
    clients = [Client(target, end) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    comes_to(daemon.open_connections, [CLIENTS / 2, CLIENTS / 2])
    time.sleep(0.3)
    other = daemon.pid_of(1)
    before, begun = sum(client.good for client in clients), time.monotonic()
    os.kill(daemon.pid_of(0), signal.SIGKILL)
    check(comes_to(daemon.states, ["down", "ready"], 0.9) == ["down", "ready"], "readiness does not say which", daemon.states())
    check(daemon.get("/readyz").status == 200, "not ready although one serves")
    check(metric(daemon.admin("/metrics").body.decode(), "kernserve_worker_up") == 1, "kernserve_worker_up")
    check(daemon.admin("/v2/plans?device=0").status == 503, "the plans of one that is down")
    check(comes_to(daemon.states, ["ready", "ready"]) == ["ready", "ready"], "not started again")
    ready_s = time.monotonic() - begun
    rate = (sum(client.good for client in clients) - before) / ready_s
    end.set()
    for client in clients:
        client.join()
    wrong = sorted(sum((client.wrong for client in clients), []))
    cut, gap = sum(client.cut for client in clients), max(client.longest for client in clients)
    print("killed under load: %d cut, %d wrong, %.0f answers/s meanwhile, the longest gap %.3f s, both ready after %.2f s"
          % (cut, len(wrong), rate, gap, ready_s))
    check(cut == CLIENTS / 2 and not wrong, "more than its own connections", cut, wrong[:3])
    check(gap < ready_s, "a client waited for the new start", gap, ready_s)
    check(daemon.pid_of(1) == other, "the other one was started again, too")
    check(daemon.says(r"a worker has ended and is started again.*worker=0 exit=137"), "the log")


def not_taken(daemon):
    """What is on its way to a worker that is stopped, and then killed, is served by the other one."""
    pid = daemon.pid_of(0)
    stop(pid)
    held = [daemon.dial() for _ in range(6)]
    for connection in held:
        connection.sendall(ASK + BODY)
    time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    answers = [read_answer(connection) for connection in held]
    check(all(answer and answer[0] == 200 and answer[2] == BODY for answer in answers), "lost on their way", answers)
    for connection in held:
        connection.close()
    check(comes_to(daemon.states, ["ready", "ready"]) == ["ready", "ready"], "not started again")


def stopped(daemon):
    """A worker that is stopped gets no connections, and what was on its way to it is another one's; then it goes on."""
    pid = daemon.pid_of(0)
    held = [daemon.dial() for _ in range(2)]
    check(all([is_served(connection) for connection in held]), "not served")
    stop(pid)
    late = [daemon.dial() for _ in range(4)]
    for connection in late:
        connection.sendall(ASK + BODY)
    answers = [read_answer(connection) for connection in late]
    check(all(answer and answer[0] == 200 and answer[2] == BODY for answer in answers), "it waits for one that is stopped", answers)
    check(daemon.states() == ["stuck", "ready"], "readiness", daemon.states())
    check(daemon.get("/readyz").status == 200, "not ready although one serves")
    os.kill(pid, signal.SIGCONT)
    check(comes_to(daemon.states, ["ready", "ready"]) == ["ready", "ready"], "it does not go on", daemon.states())
    check(all([is_served(connection) for connection in held]), "its connections")
    for connection in held + late:
        connection.close()


def ended(daemon):
    pids = children(daemon.process.pid)
    daemon.process.send_signal(signal.SIGHUP)
    check(comes_to(lambda: daemon.said().count("configuration read again"), 2) == 2, "SIGHUP goes to both")
    check(daemon.stop() == 0, "SIGTERM")
    check(len(pids) == 2 and not any(os.path.exists("/proc/%d" % pid) for pid in pids), "workers are left", pids)
    check(len(re.findall(r"msg=drained worker=[01]", daemon.said())) == 2, "both drain")


def device_lost():
    """A device that is lost takes one response of each connection, which ends it; no new connection gets a 503 (no black hole)."""
    faulty = os.path.join(os.path.dirname(PATH), "tests", "kernserve_faulty")
    if not os.access(faulty, os.X_OK):
        print("no kernserve_faulty: no lost device")
        return
    with Daemon(faulty, *OPTIONS) as daemon:
        launches = int(metric(daemon.metrics(), "kernserve_launches_total"))
        daemon.stop()
    asked = 60
    with Workers(path=faulty, environment={"KS_FAULT": "launch:%d:sticky" % (launches + asked)}) as daemon:
        with daemon.dial() as connection:
            check(all([is_served(connection) for _ in range(asked - 1)]), "before the fault")
            connection.sendall(ASK + BODY)
            answer = read_answer(connection)
            check(answer and answer[0] == 503 and answer[1].get("connection") == "close", "the fault", answer)
            check(connection.recv(1) == b"", "the connection of a lost device goes on")
        failed, answers, end = False, [], time.monotonic() + DEADLINE_S
        while len(answers) < asked // 2 and time.monotonic() < end:  # until it is down, and some more
            with daemon.dial() as connection:
                connection.sendall(ASK + BODY)
                answers.append((read_answer(connection) or (None,))[0])
            words = daemon.states()
            failed = failed or "failed" in words
            if "down" in words:
                break
            time.sleep(0.05)
        print("device lost: %d new connections until its worker had left" % len(answers))
        check(failed, "readiness does not say that the device is lost")
        check(answers and set(answers) == {200}, "a black hole", answers)
        check(daemon.says(r"started again; the others serve on.* exit=70"), "the log", daemon.said())
        check(comes_to(daemon.states, ["ready", "ready"]) == ["ready", "ready"], "not started again")
        check(daemon.stop() == 0, "SIGTERM")


def rate_limited(daemon):
    """Five starts in a minute: the sixth waits, while the other worker serves; and a supervisor that is killed leaves no worker."""
    for start in range(1, 6):
        begun = time.monotonic()
        os.kill(daemon.pid_of(0), signal.SIGKILL)
        check(comes_to(lambda: daemon.states()[0], "down") == "down", "not down", daemon.states())
        if start < 5:
            check(comes_to(daemon.states, ["ready", "ready"]) == ["ready", "ready"], "start %d does not come" % (start + 1))
            check(time.monotonic() - begun > 0.9, "started again at once", time.monotonic() - begun)
    waits = [int(ms) for ms in re.findall(r"started again; the others serve on.* in_ms=(\d+)", daemon.said())]
    check(len(waits) == 5 and max(waits[:4]) <= 1000 and 20000 < waits[4] <= 60000, "the pauses", waits)
    with daemon.dial() as connection:
        check(is_served(connection), "the other one does not serve")
    pids = children(daemon.process.pid)
    check(len(pids) == 1, "a worker too many", pids)
    daemon.kill()
    check(comes_to(lambda: os.path.exists("/proc/%d" % pids[0]), False) is False, "a worker is left")


class Passed(Workers):
    """By sockets as systemd passes them: blocking, the second listener's first."""

    def __init__(self):  # pylint: disable=super-init-not-called
        sockets = [socket.create_server(("127.0.0.1", port)) for port in free_ports(2)]
        script = 'exec 3<&%d 4<&%d; LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=admin:data exec "$@"' % tuple(s.fileno() for s in sockets)
        self.host, self.path, self.log = "127.0.0.1", PATH, tempfile.TemporaryFile()
        self.admin_port, self.port = (s.getsockname()[1] for s in sockets)
        self.process = subprocess.Popen(["sh", "-c", script, "sh", PATH, *OPTIONS, "--devices", "0,1"], stdout=subprocess.DEVNULL,
                                        stderr=self.log, pass_fds=[s.fileno() for s in sockets])
        for s in sockets:
            s.close()


def passed_sockets():
    with Passed() as daemon:
        check(comes_to(daemon.states, ["ready", "ready"]) == ["ready", "ready"], "not ready by passed sockets", daemon.said())
        held = [daemon.dial() for _ in range(2)]
        check(all([is_served(connection) for connection in held]), "not served by passed sockets")
        check(daemon.open_connections() == [1, 1], "uneven by passed sockets")
        check(daemon.admin("/v2/plans?device=1").status == 200, "handed over by passed sockets")
        for connection in held:
            connection.close()
        stop(daemon.pid_of(0))  # it takes no signal but the one that ends it
        for _ in range(2):
            daemon.process.send_signal(signal.SIGTERM)
            check(comes_to(lambda: daemon.said().count("msg=draining worker=1"), 1) == 1, "the other one drains")
        check(daemon.wait(30) == 75, "two SIGTERM, a worker that is stopped", daemon.process.returncode)
        check(daemon.says(r"a worker does not stop; killed.* worker=0 exit=75"), "the log", daemon.said())


def dies_at_start():
    """Each one is killed as soon as it is there: three times, then the supervisor gives up."""
    daemon = Daemon(PATH, *OPTIONS, "--devices", "0,1", must_start=False)
    end, seen = time.monotonic() + 60, set()
    while daemon.process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for pid in children(daemon.process.pid):
                if is_worker(pid):
                    seen.add(pid)
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)
    check(daemon.wait(30) == 70, "the exit code", daemon.process.returncode)
    check(daemon.says(r"ends before it is ready, again and again; giving up.* worker=[01] worker_exit=137 starts=3 exit=70"), daemon.said())
    check(len(seen) <= 6, "more starts than that", len(seen))


def wrong_options():
    rows = (("0,0", 78, "0 is named twice"), ("x", 78, "'x' is no index"), ("0,", 78, "'' is no index"), ("99", 78, "no CPU worker 99"),
            ("MIG-0a1b", 78, "MIG instance"), ("GPU-0a1b", 78, "no index"), ("0,1,", 78, "'' is no index"))
    cases = [(["--backend", "cpu", "--devices", text], code, says) for text, code, says in rows]
    cases += [(["--backend", "cpu", "--devices", "0", "--device", "1"], 78, "leave --device out"),
              (["--backend", "cpu", "--devices", "0,1", "--connections-per-address", "4"], 78, "connections-per-address")]
    cases += [(["--backend", "cpu", "--devices", "0,1", "--token-file", "/nowhere"], 66, "/nowhere")]
    if not os.path.exists("/proc/driver/nvidia/gpus"):
        cases += [(["--devices", "all"], 69, "has no GPU"), (["--devices", "0"], 69, "has no GPU")]
    for options, code, says in cases:
        for check_only in ((), ("--check-config",)):
            run = subprocess.run([PATH, *options, *check_only, "--listen", "127.0.0.1:0", "--admin-listen", ""], capture_output=True, text=True,
                                 timeout=60, check=False)
            check(run.returncode == code and says in run.stderr, options, check_only, run.returncode, run.stderr)


def main():
    wrong_options()
    dies_at_start()
    device_lost()
    passed_sockets()
    with Workers() as daemon:
        spread(daemon)
        documents(daemon)
        plans_of_all(daemon)
        trace_of_all(daemon)
        both_at_once(daemon)
        missing(daemon)
        refused(daemon)
        killed_under_load(daemon)
        not_taken(daemon)
        stopped(daemon)
        ended(daemon)
    with Workers() as daemon:
        rate_limited(daemon)
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
