#!/usr/bin/env python3
"""Three daemons behind a proxy of deploy/, under load, while daemons are killed, drained and updated one after the other.

rollout.py KERNSERVE haproxy|envoy [--program PATH] [--seconds S]    exit code 77 where the proxy, or curl, is missing

The proxy runs with its file of deploy/ as it is, but for ports and the certificate. Each of 32 connections sends rows of 4 KiB whose
answer is the row itself, then 8 send 256 KiB. Counted is every request that did not get its answer:
  - kill -9 of one daemon: at most those on its wire, each named, and none that another daemon has met, by the others' access logs;
    of 4 KiB, which the buffers hold, at most two: an answer that had begun is not sent twice
  - SIGTERM of one, and of each in turn with a new start behind it: none at all
Besides: HTTP/2 with and without TLS, affinity, HAProxy's bound on the rate, no metrics through the front door.
"""

import argparse
import os
import re
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.join(HERE, "..", "http"))
from daemon import Remote, check, comes_to, metric, wrongs
from ports import free_ports

CONNECTIONS = 32
SMALL, LARGE = 4 << 10, 256 << 10


class Replica(Remote):
    """A daemon that is started again on the port it had."""

    def __init__(self, path, number, folder):
        port, self.admin_port = free_ports(2)
        super().__init__("http://127.0.0.1:%d" % port)
        self.name, self.log = "d%d" % number, os.path.join(folder, "d%d.log" % number)
        self.command = [path, "--backend", "cpu", "--threads", "1", "--pinned-bytes", "32M", "--drain-delay", "2s", "--access-log", "on", "--listen",
                        "127.0.0.1:%d" % port, "--admin-listen", "127.0.0.1:%d" % self.admin_port]
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        if not comes_to(self.is_ready, True):
            raise RuntimeError("%s does not become ready: %s" % (self.name, open(self.log).read()))

    def is_ready(self):
        try:
            return Remote("127.0.0.1:%d" % self.admin_port).get("/readyz").status == 200
        except OSError:
            return False

    def served(self):
        return metric(Remote("127.0.0.1:%d" % self.admin_port).metrics(), "kernserve_inference_requests_total", outcome="ok")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def drain(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


class Load(threading.Thread):
    """As soon as an answer comes the next request leaves. lost: (phase, id, what became of it)"""

    def __init__(self, port, body_bytes, connections=CONNECTIONS):
        super().__init__(daemon=True)
        self.port, self.body_bytes, self.connections, self.ends, self.phase = port, body_bytes, connections, False, "steady"
        self.lost, self.counts, self.made = [], {}, 0
        self.selector = selectors.DefaultSelector()
        self.under_way = {}  # socket: [id, body, what came]
        for _ in range(connections):
            self.open()
        self.start()

    def open(self):
        s = socket.create_connection(("127.0.0.1", self.port), 30)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.selector.register(s, selectors.EVENT_READ)
        self.send(s)

    def send(self, s):
        self.made += 1
        name, rows = "r%d-%07d" % (self.body_bytes, self.made), self.body_bytes // 4
        body = struct.pack("<i", self.made) * rows
        self.under_way[s] = [name, body, b""]
        s.sendall(b"POST /v2/models/reduce/infer?shape=%d,1&datatype=INT32&axis=1&op=max HTTP/1.1\r\nHost: kernserve.example\r\n"
                  b"X-Request-Id: %s\r\nContent-Length: %d\r\n\r\n" % (rows, name.encode(), len(body)) + body)

    def lose(self, s, what):
        self.lost.append((self.phase, self.under_way[s][0], what))
        self.close(s)

    def close(self, s):
        del self.under_way[s]
        self.selector.unregister(s)
        s.close()

    def receive(self, s):
        one = self.under_way[s]
        try:
            got = s.recv(1 << 18)
        except OSError as fault:
            got, one[2] = b"", one[2] + str(fault).encode()
        one[2] += got
        head, found, body = one[2].partition(b"\r\n\r\n")
        length = int(re.search(rb"(?i)\r\ncontent-length: *(\d+)", head).group(1)) if found else 0
        if found and len(body) >= length:
            if not head.startswith(b"HTTP/1.1 200 ") or body != one[1]:
                self.lose(s, head.split(b"\r\n")[0].decode() if body != one[1] else "another's answer")
            else:
                self.counts[self.phase] = self.counts.get(self.phase, 0) + 1
                if self.ends or b"\r\nconnection: close" in head.lower():
                    self.close(s)
                else:
                    self.send(s)
        elif not got:
            self.lose(s, "closed behind %d bytes" % len(one[2]))

    def run(self):
        end = None
        while not self.ends or self.under_way:
            end = end or (time.monotonic() + 40 if self.ends else None)
            for key, _ in self.selector.select(0.2):
                if key.fileobj in self.under_way:
                    self.receive(key.fileobj)
            while not self.ends and len(self.under_way) < self.connections:
                self.open()
            if end and time.monotonic() > end:
                self.lost += [(self.phase, one[0], "no answer in 40 s") for one in self.under_way.values()]
                return

    def stop(self):
        self.ends = True
        self.join(60)
        return self.lost

    def flows(self, count=200):
        """More answers come, whatever the host's pace."""
        goal = sum(self.counts.values()) + count
        check(comes_to(lambda: sum(self.counts.values()) >= goal or not self.is_alive(), True) and self.is_alive(), self.phase, "the answers stop")


# --- the two proxies ------------------------------------------------------------------------------------------------------


class Proxy:
    """A file of deploy/ with ports of this test."""

    def __init__(self, program, folder, replicas, certificate):
        self.program, self.folder, self.replicas, self.certificate = program, folder, replicas, certificate
        self.clear, self.tls, self.h2c, self.own = free_ports(4)
        self.path, self.output = os.path.join(folder, self.file), os.path.join(folder, "proxy.log")
        self.process = None

    def configure(self, *changes):
        with open(os.path.join(ROOT, "deploy", self.name, self.file)) as file:
            text = file.read()
        pairs = [(str(8100 + i), str(replica.port)) for i, replica in enumerate(self.replicas)]
        pairs += [("8080", str(self.clear)), ("8443", str(self.tls)), *self.changes(), *changes]
        for old, new in pairs:
            if old not in text:
                raise RuntimeError("%s: nothing to replace: %s" % (self.file, old))
            text = text.replace(old, new)
        with open(self.path, "w") as file:
            file.write(text)
        valid = subprocess.run(self.validate(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        check(valid.returncode == 0, self.name, "refuses the file:", valid.stdout[-2000:])

    def start(self):
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(self.command(), stdout=output, stderr=output, cwd=self.folder)
        if not comes_to(self.serves, True):
            raise RuntimeError("%s does not serve: %s" % (self.name, open(self.output).read()[-3000:]))

    def serves(self):
        try:
            return self.process.poll() is None and Remote("127.0.0.1:%d" % self.clear).get("/v2/health/ready").status == 200
        except OSError:
            return False

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def page(self, path):
        with urllib.request.urlopen("http://127.0.0.1:%d%s" % (self.own, path), timeout=30) as response:
            return response.read().decode()


class Haproxy(Proxy):
    name, file = "haproxy", "haproxy.cfg"

    def changes(self):
        return [("8081", str(self.h2c)), ("8404", str(self.own)), ("/etc/haproxy/kernserve.pem", self.certificate + ".pem")]

    def validate(self):
        return [self.program, "-c", "-f", self.path]

    def command(self):
        return [self.program, "-db", "-f", self.path]

    def counts(self):
        text = self.page("/metrics")
        return "sent again %d, to another daemon %d" % (metric(text, "haproxy_backend_retry_warnings_total"), metric(text, "haproxy_backend_redispatch_warnings_total"))


class Envoy(Proxy):
    name, file = "envoy", "envoy.yaml"

    def changes(self):
        self.h2c = self.clear
        return [("9901", str(self.own)), ("/etc/envoy/kernserve", self.certificate)]

    def validate(self):
        return [self.program, "--mode", "validate", "-l", "error", "-c", self.path]

    def command(self):
        return [self.program, "-c", self.path, "--concurrency", "1", "--disable-hot-restart", "-l", "error"]

    def counts(self):
        stats = dict(re.findall(r"^cluster\.kernserve\.(upstream_rq_retry\w*): (\d+)$", self.page("/stats?filter=upstream_rq_retry"), re.M))
        return "sent again %s, with success %s" % (stats.get("upstream_rq_retry"), stats.get("upstream_rq_retry_success"))


# --- what is tried -----------------------------------------------------------------------------------------------------------


def await_traffic(replica):
    """The proxy has found it again."""
    before = replica.served()
    check(comes_to(lambda: replica.served() > before, True), replica.name, "gets no requests again")


def kill_one(proxy, load, replica):
    load.phase = "kill -9"
    replica.process.send_signal(signal.SIGSTOP)  # requests gather on its wire, as many as on another's: else the kill costs none or one
    time.sleep(0.15)
    replica.kill()
    load.flows()
    time.sleep(1)
    replica.start()
    await_traffic(replica)


def drain_one(proxy, load, replica):
    load.phase = "SIGTERM"
    code = replica.drain()
    check(code == 0, replica.name, "drained and ended with", code)
    load.flows()
    replica.start()
    await_traffic(replica)


def update_all(proxy, load):
    load.phase = "rolling restart"
    for replica in proxy.replicas:
        code = replica.drain()
        check(code == 0, replica.name, "drained and ended with", code)
        replica.start()
        await_traffic(replica)


def met(replica, names):
    """Those that its access log has."""
    with open(replica.log, encoding="utf-8", errors="replace") as log:
        return {found.group(1) for found in map(re.compile(r"msg=request request_id=(\S+)").search, log) if found and found.group(1) in names}


def report(proxy, load, size, killed):
    for phase in load.counts:
        lost = sum(one[0] == phase for one in load.lost)
        print("%s, %d KiB, %s: %d failed of %d" % (proxy.name, size >> 10, phase, lost, lost + load.counts[phase]))
    names = {name for _, name, _ in load.lost}
    elsewhere = {name: replica.name for replica in proxy.replicas if replica is not killed and names for name in met(replica, names)}
    for phase, name, what in load.lost[:10]:
        print("  lost in %s: %s, %s; %s" % (phase, name, what, "met by " + elsewhere[name] if name in elsewhere else "no other daemon than %s met it" % killed.name))
        check(phase == "kill -9" and name not in elsewhere, proxy.name, "lost", name, "which was not on the killed daemon's wire")
    print("%s: %s" % (proxy.name, proxy.counts()))


def small_bodies(proxy, seconds):
    load = Load(proxy.clear, SMALL)
    load.flows(1000)
    time.sleep(seconds)
    kill_one(proxy, load, proxy.replicas[0])
    drain_one(proxy, load, proxy.replicas[1])
    update_all(proxy, load)
    load.stop()
    report(proxy, load, SMALL, proxy.replicas[0])
    check(len(load.lost) <= 2, proxy.name, "lost", len(load.lost), "requests that its buffer holds")


def large_bodies(proxy):
    """HAProxy's buffer does not hold them, so it sends none twice: a kill costs what the daemon had, a drain nothing."""
    load = Load(proxy.clear, LARGE, 8)
    load.flows(100)
    kill_one(proxy, load, proxy.replicas[0])
    drain_one(proxy, load, proxy.replicas[1])
    load.stop()
    report(proxy, load, LARGE, proxy.replicas[0])
    check(len(load.lost) <= 8, "more were lost than were under way:", len(load.lost))


def versions(proxy):
    body = struct.pack("<4i", 3, 1, 4, 1)
    path = "/v2/models/reduce/infer?shape=4,1&datatype=INT32&axis=1&op=max"
    tries = (("1.1", "http://127.0.0.1:%d" % proxy.clear, "--http1.1"), ("2", "http://127.0.0.1:%d" % proxy.h2c, "--http2-prior-knowledge"),
             ("2", "https://127.0.0.1:%d" % proxy.tls, "--http2"), ("1.1", "https://127.0.0.1:%d" % proxy.tls, "--http1.1"))
    for version, url, option in tries:
        done = subprocess.run(["curl", "-sk", option, "--max-time", "30", "--data-binary", "@-", "-w", "%{stderr}%{http_version} %{http_code}", url + path],
                              input=body, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        check(done.stdout == body and done.stderr.decode() == version + " 200", proxy.name, url.split(":")[0], option, done.stdout, done.stderr)
    print("%s: HTTP/1.1 and HTTP/2, each with and without TLS: 200" % proxy.name)
    check(Remote("127.0.0.1:%d" % proxy.clear).get("/metrics").status == 404, "metrics through the front door")


def ask(port, headers=b""):
    """(status, head) of one small request"""
    with socket.create_connection(("127.0.0.1", port), 30) as s:
        s.sendall(b"POST /v2/models/reduce/infer?shape=1,1&datatype=INT32&axis=1&op=max HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4\r\n" + headers + b"\r\n\x07\0\0\0")
        got = b""
        while more := s.recv(65536):
            got += more
    return int(got[9:12]), got.partition(b"\r\n\r\n")[0]


def affinity(proxy):
    """Requests of one affinity meet one daemon; several affinities more than one; and when that daemon is gone, another one."""
    homes = {}
    for name in ("tensor-%d" % i for i in range(10)):
        before = [replica.served() for replica in proxy.replicas]
        for _ in range(6):
            check(ask(proxy.clear, b"Kernserve-Affinity: %s\r\n" % name.encode())[0] == 200, proxy.name, name)
        grown = [i for i, replica in enumerate(proxy.replicas) if replica.served() > before[i]]
        check(len(grown) == 1, proxy.name, name, "went to", grown)
        homes[name] = grown[0]
    check(len(set(homes.values())) > 1, proxy.name, "every affinity went to one daemon", homes)
    name, home = next(iter(homes.items()))
    proxy.replicas[home].kill()
    answers = [ask(proxy.clear, b"Kernserve-Affinity: %s\r\n" % name.encode())[0] for _ in range(6)]
    check(answers == [200] * 6, proxy.name, "with its daemon gone:", answers)
    proxy.replicas[home].start()
    print("%s: 10 affinities, 6 requests each: one daemon each, %d daemons in all; 6 of 6 answered with that daemon killed" % (proxy.name, len(set(homes.values()))))


def rate(proxy):
    proxy.stop()
    proxy.configure(("gt 100000", "gt 20"))
    proxy.start()
    token = b"Authorization: Bearer first\r\n"
    for _ in range(3):  # a host that stalls for a second forgets the first requests
        time.sleep(1.5)
        answers = [ask(proxy.clear, token) for _ in range(40)]
        other = ask(proxy.clear, b"Authorization: Bearer second\r\n")[0]
        passed, refused = (sum(status == code for status, _ in answers) for code in (200, 429))
        if passed == 20:
            break
    check(passed == 20 and refused == 20 and other == 200, "of 40 at once", passed, "passed,", refused, "were refused; another token:", other)
    head = next((head for status, head in answers if status == 429), b"").lower()
    check(b"retry-after: 1" in head and b"kernserve-error: rate" in head, head)
    print("%s, 20 a second: of 40 requests of one token %d passed, %d got 429; another token: %d" % (proxy.name, passed, refused, other))


def alone_and_behind(proxy):
    """Not judged: what the proxy costs on this host, whose cores clients, proxy and daemons share."""
    if not shutil.which("wrk"):
        return
    rates = []
    for port in (proxy.replicas[0].port, proxy.clear):
        out = subprocess.run(["wrk", "-t1", "-c32", "-d2s", "-s", os.path.join(ROOT, "tests", "load", "raw.lua"), "http://127.0.0.1:%d" % port, "--", "softmax", "1,1024"],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        found = re.search(r"Requests/sec: +([\d.]+)", out)
        check(found and "Non-2xx" not in out and "Socket errors" not in out, "wrk:", out)
        rates.append(float(found.group(1)) if found else 1)
    print("%s: %.2f of the rate of one daemon alone (wrk, 32 connections, rows of 4 KiB)" % (proxy.name, rates[1] / rates[0]))


def certificate(folder):
    path = os.path.join(folder, "kernserve")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2", "-keyout", path + ".key", "-out", path + ".crt"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(path + ".pem", "w") as out:
        for end in (".crt", ".key"):
            with open(path + end) as file:
                out.write(file.read())
    return path


def run(arguments, program, folder):
    kind = {"haproxy": Haproxy, "envoy": Envoy}[arguments.proxy]
    replicas, proxy = [], None
    try:
        for number in range(3):
            replicas.append(Replica(arguments.kernserve, number, folder))
        proxy = kind(program, folder, replicas, certificate(folder))
        proxy.configure()
        proxy.start()
        small_bodies(proxy, arguments.seconds)
        large_bodies(proxy)
        versions(proxy)
        affinity(proxy)
        alone_and_behind(proxy)
        if kind is Haproxy:
            rate(proxy)
    finally:
        if proxy:
            proxy.stop()
        for replica in replicas:
            replica.kill()
    print("%d wrong" % wrongs())
    return 1 if wrongs() else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernserve")
    parser.add_argument("proxy", choices=("haproxy", "envoy"))
    parser.add_argument("--program", default="", help="the proxy, where it is not on the path")
    parser.add_argument("--seconds", type=float, default=1, help="of quiet load before the first kill (1)")
    arguments = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin"  # where Debian has HAProxy
    program = arguments.program or shutil.which(arguments.proxy)
    for tool, path in ((arguments.proxy, program), ("curl", shutil.which("curl")), ("openssl", shutil.which("openssl"))):
        if not path or not os.access(path, os.X_OK):
            print("%s is not installed" % tool)
            return 77
    with tempfile.TemporaryDirectory() as folder:
        return run(arguments, program, folder)


if __name__ == "__main__":
    sys.exit(main())
