#!/usr/bin/env python3
"""nginx, HAProxy, Varnish and Envoy in front of the daemon, and hostile requests: what a proxy has forwarded is what the daemon has counted.

proxies.py KERNSERVE [--count N] [--seed N] [--only NAMES] [--envoy PATH]   N payloads at each front; exit code 77 where no such proxy is there

Each front is a proxy with a configuration of its own before a daemon of its own, with connections kept and shared between clients:
nginx that keeps bodies back and that does not, HAProxy as it is and with `accept-invalid-http-request`, Varnish that passes everything
on, Envoy as it is and with `allow_chunked_length`. A payload of hostile.py goes
out on a connection; then, on another one, a good request whose answer is its own body. At the end
  - every good request got its own answer, with its own X-Request-Id, and no answer carried the id of somebody else's request
  - of each forwarded request, by the proxy's log, the answer had the request's own id
  - the answers that the proxy got are as many, status by status, as the daemon counted, but for clients that went meanwhile; and the daemon's access log names no request
    that the proxy's does not
  - the proxy made no 5xx because of what the daemon sent.
"""

import argparse
import collections
import json
import os
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
import hostile
from daemon import Connection, Daemon, check, wrongs
from ports import free_ports

SILENCE = 0.06  # seconds without a byte after which a payload has got all that it will get
# answered: the daemon's status; sent: the proxy's; server: that the request went to, or none
Line = collections.namedtuple("Line", "answered sent asked_id answered_id server request")

NGINX = """daemon off; master_process off; worker_processes 1; pid %(folder)s/nginx.pid; error_log %(folder)s/nginx.error;
events { worker_connections 256; }
http {
  log_format line escape=json 'LINE	$upstream_status	$status	$http_x_request_id	$upstream_http_x_request_id	$upstream_addr	$request';
  access_log %(folder)s/nginx.log line;
  client_body_temp_path %(folder)s/body; proxy_temp_path %(folder)s/proxy; fastcgi_temp_path %(folder)s/f; uwsgi_temp_path %(folder)s/u; scgi_temp_path %(folder)s/s;
  client_header_timeout 2s; client_body_timeout 2s; keepalive_timeout 5s; client_max_body_size 8m; underscores_in_headers on; merge_slashes off;
  upstream kernserve { server 127.0.0.1:%(daemon)d; keepalive 2; }
  server { listen 127.0.0.1:%(front)d; ignore_invalid_headers %(ignore)s;
    location / { proxy_pass http://kernserve; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host %(host)s; proxy_request_buffering %(buffering)s;
                 proxy_next_upstream off; proxy_ignore_client_abort on; proxy_read_timeout 5s; } }
}
"""
HAPROXY = """global
  log stdout format raw local0
  maxconn 200
defaults
  mode http
  log global
  option dontlognull
  %(option)s
  timeout connect 2s
  timeout client 2s
  timeout server 5s
  timeout http-request 2s
  timeout http-keep-alive 5s
  retries 0
  http-reuse always
frontend front
  bind 127.0.0.1:%(front)d
  http-request set-var(txn.asked) req.fhdr(x-request-id,1),hex
  http-request set-var(txn.line) method
  http-response set-var(txn.answered) res.fhdr(x-request-id,1),hex
  http-response set-var(txn.status) status
  log-format "LINE	%%[var(txn.status)]	%%ST	%%[var(txn.asked)]	%%[var(txn.answered)]	%%s	%%[var(txn.line)] %%ts"
  default_backend daemons
backend daemons
  server kernserve 127.0.0.1:%(daemon)d pool-max-conn 2
"""


# Varnish queues no request: where payloads whose ends have not come hold all connections, it answers 503 at once. Idle connections it takes first.
VARNISH = """vcl 4.1;
import std;
backend daemon { .host = "127.0.0.1"; .port = "%(daemon)d"; .max_connections = 16; }
sub vcl_recv { std.log("asked:" + req.http.X-Request-Id); return (pass); }
sub vcl_backend_fetch { std.log("asked:" + bereq.http.X-Request-Id); }
"""
# Of two fields the first is the one that it is known by; %{X-Request-Id}i would be the last.
VARNISH_LINE = "LINE\t%{Varnish:side}x\t%s\t%{VCL_Log:asked}x\t%{X-Request-Id}o\t%{VSL:FetchError}x\t%{Varnish:handling}x\t%r"
ENVOY_LINE = {"sent": "%RESPONSE_CODE%", "details": "%RESPONSE_CODE_DETAILS%", "asked": "%REQ(X-REQUEST-ID)%", "answered": "%RESP(X-REQUEST-ID)%",
              "server": "%UPSTREAM_HOST%", "method": "%REQ(:METHOD)%", "path": "%REQ(:PATH)%"}


def envoy_configuration(values):
    """JSON is YAML, too."""
    def typed(kind, **fields):
        return {"@type": "type.googleapis.com/envoy.extensions." + kind, **fields}

    def address(port):
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    log = typed("access_loggers.file.v3.FileAccessLog", path=values["folder"] + "/envoy.log", log_format={"json_format": ENVOY_LINE})
    manager = typed("filters.network.http_connection_manager.v3.HttpConnectionManager", stat_prefix="front", codec_type="HTTP1", normalize_path=False,
                    generate_request_id=False, preserve_external_request_id=True, request_headers_timeout="2s", stream_idle_timeout="2s",
                    common_http_protocol_options={"idle_timeout": "5s"}, http_protocol_options={"allow_chunked_length": values["lenient"]},
                    http_filters=[{"name": "router", "typed_config": typed("filters.http.router.v3.Router")}],
                    access_log=[{"name": "log", "typed_config": log}],
                    route_config={"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                        {"match": {"prefix": "/"}, "route": {"cluster": "daemon", "timeout": "5s"}},
                        {"match": {"connect_matcher": {}}, "route": {"cluster": "daemon", "timeout": "5s"}}]}]})
    cluster = {"name": "daemon", "connect_timeout": "2s", "type": "STATIC", "circuit_breakers": {"thresholds": [{"max_connections": 2}]},
               "load_assignment": {"cluster_name": "daemon", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(values["daemon"])}}]}]}}
    listener = {"address": address(values["front"]), "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}]}
    return json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}})


def lines_of_fields(log, hexadecimal):
    """Of nginx and HAProxy, whose escapes leave no tab in a field; HAProxy gives the ids in hexadecimal."""
    found = []
    for text in log.decode("latin-1").split("\n"):
        fields = text.split("\t")
        if fields[0] == "LINE" and len(fields) == 7:
            ids = [bytes.fromhex(f).decode("latin-1") if hexadecimal and f != "-" else f for f in fields[3:5]]
            ids = [re.sub(r"^(\\t|[ \t])+|(\\t|[ \t])+$", "", value) for value in ids]  # nginx keeps white space around a value
            found.append(Line(*fields[1:3], *ids, "" if fields[5] in ("-", "<NOSRV>") else fields[5], fields[6]))
    return found


def lines_of_varnish(log):
    """Of each request to the daemon one, and one of each that was answered without it. A body that the client broke off ends such a
    request without an answer; any other fault of it is the daemon's, for which Varnish makes a 503."""
    found = []
    for text in log.decode("latin-1").split("\n"):
        fields = text.split("\t")
        if fields[0] != "LINE" or len(fields) != 8:
            continue
        _, side, status, asked, answered, fault, handling, request = fields
        if side == "b" and fault == "-":
            found.append(Line(status, status, asked, answered, "daemon", request))
        elif side == "b":
            found.append(Line("-", "-" if fault.startswith("req.body") else status, asked, "-", "daemon", request + " " + fault))
        elif handling != "pass":
            found.append(Line("-", status, asked, "-", "", request))
    return found


def lines_of_envoy(log):
    found = []
    for text in log.decode("latin-1").split("\n"):
        if text.startswith("{") and text.endswith("}"):
            of = {name: "-" if value is None else str(value) for name, value in json.loads(text).items()}
            found.append(Line(of["sent"] if of["details"] == "via_upstream" else "-", of["sent"], of["asked"], of["answered"],
                              "" if of["server"] == "-" else of["server"], " ".join((of["method"], of["path"], of["details"]))))
    return found


# configure: values to the text of the file; commands: those that run, (folder, file, port); log: the file with a line a request
Kind = collections.namedtuple("Kind", "configure commands log lines")
KINDS = {
    "nginx": Kind(lambda values: NGINX % values, lambda program, folder, file, port: [[program, "-p", folder, "-c", file]], "nginx.log",
                  lambda log: lines_of_fields(log, False)),
    "haproxy": Kind(lambda values: HAPROXY % values, lambda program, folder, file, port: [[program, "-db", "-f", file]], "output0",
                    lambda log: lines_of_fields(log, True)),
    "varnish": Kind(lambda values: VARNISH % values, lambda program, folder, file, port: [
        [program, "-F", "-j", "none", "-n", folder + "/n", "-a", "127.0.0.1:%d" % port, "-f", file, "-s", "malloc,16m", "-p", "thread_pools=1",
         "-p", "thread_pool_min=10", "-p", "timeout_idle=5", "-p", "first_byte_timeout=5", "-p", "between_bytes_timeout=5"],
        ["varnishncsa", "-n", folder + "/n", "-t", "off", "-b", "-c", "-F", VARNISH_LINE]], "output1", lines_of_varnish),
    "envoy": Kind(envoy_configuration, lambda program, folder, file, port: [
        [program, "-c", file, "--concurrency", "1", "--disable-hot-restart", "-l", "error", "--file-flush-interval-msec", "100"]], "envoy.log", lines_of_envoy),
}


class Front:
    """A proxy before a daemon. values: the configuration's own."""

    def __init__(self, name, kernserve, folder, kind, program, values):
        self.name, self.folder, self.kind = name, os.path.join(folder, re.sub("[^a-z0-9]", "-", name.lower())), KINDS[kind]
        os.mkdir(self.folder)
        self.daemon = Daemon(kernserve, "--backend", "cpu", "--threads", "1", "--pinned-bytes", "16M", "--access-log", "on")
        self.port, = free_ports(1)
        self.host = "127.0.0.1"
        path = os.path.join(self.folder, "configuration")
        with open(path, "w") as file:
            file.write(self.kind.configure({"folder": self.folder, "daemon": self.daemon.port, "front": self.port, **values}))
        self.processes = []
        for number, command in enumerate(self.kind.commands(program, self.folder, path, self.port)):
            with open(os.path.join(self.folder, "output%d" % number), "wb") as output:
                self.processes.append(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT))
        self.stuck = set()  # requests whose chunk line fills HAProxy's buffer: no byte of the body goes on, and it may wait for an answer until its own 504
        self.log = os.path.join(self.folder, self.kind.log)
        self.first = 0  # line that counts
        self.wait()
        self.wait_for_log()
        self.before = self.counted()

    def wait(self):
        end = time.monotonic() + 20
        while time.monotonic() < end and all(process.poll() is None for process in self.processes):
            try:
                socket.create_connection((self.host, self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        said = open(os.path.join(self.folder, "output0")).read()
        self.close()
        raise RuntimeError("%s does not start: %s" % (self.name, said))

    def wait_for_log(self):
        """What writes the log may come later than the proxy, and then knows nothing of the requests before: it does not begin until one is there."""
        end, last = time.monotonic() + 20, 0
        while time.monotonic() < end:
            if last == 0:
                marker(self, b"first", 1)
            time.sleep(0.3)
            now = len(self.lines())
            if now and now == last:
                break
            last = now
        check(last, self.name, "logs nothing")
        self.first = last

    def lines(self):
        """What the proxy has logged."""
        with open(self.log, "rb") as file:
            return self.kind.lines(file.read())[self.first:]

    def counted(self):
        """Answers by status, as the daemon counted them, but those of this program at the second listener."""
        found = collections.Counter()
        for line in self.daemon.metrics().splitlines():
            match = re.match(r'kernserve_http_requests_total\{handler="(?!metrics)[^"]*",method="[^"]*",code="(\d+)"\} (\d+)', line)
            if match:
                found[match.group(1)] += int(match.group(2))
        return found

    def close(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait(10)
        check(self.daemon.stop() == 0, self.name, "the daemon ends badly")


def answers_in(stream):
    """(status, X-Request-Id) of whatever looks like the head of an answer at a line's beginning; proxies' pages hold none."""
    return [(int(status), (re.search(rb"(?im)^x-request-id: *([^\r\n]*)", head) or [b"", b""])[1])
            for status, head in re.findall(rb"(?ms)^HTTP/1\.[01] (\d{3})(.*?)\r\n\r\n", stream)]


def speak(front, data, generator):
    """Everything that a payload gets."""
    got = b""
    try:
        with socket.create_connection((front.host, front.port), 5) as s:
            cut = generator.randrange(len(data)) if generator.random() < 0.3 else 0
            for piece in filter(None, (data[:cut], data[cut:])):
                s.sendall(piece)
                if cut:
                    time.sleep(0.002)
            if generator.random() < 0.2:
                s.shutdown(socket.SHUT_WR)
            s.settimeout(SILENCE)
            while True:
                more = s.recv(65536)
                if not more:
                    break
                got += more
    except OSError:
        pass
    return got


def marker(front, name, value):
    """A good request's fault, or None: its answer is its own body."""
    body = struct.pack("<i", value)
    data = b"POST /v2/models/reduce/infer?shape=1,1&datatype=INT32&op=max&axis=1 HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: %s\r\nContent-Length: 4\r\n\r\n" % name + body
    with Connection(front, 10) as connection:
        answer = connection.ask(data, "POST")
    if answer is None:
        return "no answer"
    if answer.status != 200 or answer.body != body or answer.header("x-request-id") != name.decode():
        return "%r, id %s" % (answer, answer.header("x-request-id"))
    return None


def attack(front, count, seed):
    generator = random.Random(seed)
    issued = set()
    for number in range(count):
        name, other = (b"%c-%016x" % (kind, generator.getrandbits(64)) for kind in b"pm")
        family, data = hostile.payload(generator, name, number)
        if "huge_chunk_line" in family:
            front.stuck.add(name.decode())
        got = speak(front, data, generator)
        for status, answered in answers_in(got):
            check(answered not in issued, front.name, family, "got somebody else's answer", status, answered, data)
        issued.add(name)
        fault = marker(front, other, generator.getrandbits(31))
        check(fault is None, front.name, "behind", family, "a good request got", fault, data)
        issued.add(other)
        if fault and wrongs() > 20:
            break


def settled(front):
    """Both counts, when nothing moves any more: for 0.3 s where they agree, for 9 s where they do not, as what writes a proxy's log may lag."""
    last, still = None, 0
    for _ in range(120):
        now = front.lines(), front.counted()
        still = still + 1 if last and len(last[0]) == len(now[0]) and last[1] == now[1] else 0
        if still >= (1 if sum(line.server != "" for line in now[0]) == sum((now[1] - front.before).values()) else 30):
            break
        last = now
        time.sleep(0.3)
    return now[0], now[1] - front.before


def compare(front, count):
    lines, counted = settled(front)
    forwarded = [line for line in lines if line.answered.isdigit()]
    answered = collections.Counter(line.answered for line in forwarded)
    # A client that goes while its answer is on its way: the daemon has sent it, the proxy no longer looks.
    gone = [line for line in lines if line.server and not line.answered.isdigit()]
    check(not answered - counted and sum((counted - answered).values()) <= len(gone), front.name, "forwarded and answered", dict(answered), "counted by the daemon", dict(counted),
          "forwarded for clients that went", len(gone))
    for line in forwarded:
        valid = re.fullmatch("[!-~]{1,128}", line.asked_id) is not None
        check(not valid or line.answered_id == line.asked_id or not re.fullmatch("[pm]-[0-9a-f]{16}(-hidden)?", line.answered_id), front.name, "the answer to", line.asked_id, "has the id", line.answered_id, line)
    bad = [line for line in lines if line.sent.startswith("5") and not line.answered.startswith("5") and line.sent != "501" and line.sent != "505"
           and not (line.sent == "504" and line.asked_id in front.stuck)]
    check(not bad, front.name, "made", len(bad), "5xx of its own:", bad[:5])
    known = collections.Counter(line.asked_id.rstrip("\0") for line in lines)  # some without an answer: the client went, or its body was refused
    logged = collections.Counter(re.findall(r"msg=request request_id=\"?([!-~]*?)\"? ", front.daemon.said()))
    unknown = [name for name in logged if re.fullmatch("[pm]-[0-9a-f]{16}(-hidden)?", name) and logged[name] > known[name]]
    check(not unknown, front.name, "the daemon met requests that the proxy did not:", unknown[:5])
    check(len(forwarded) >= count, front.name, "forwarded only", len(forwarded))
    print("%-37s %5d payloads; %5d forwarded and answered %s, %3d forwarded for clients that went, %4d refused by the proxy; the daemon counted %d" %
          (front.name, count, len(forwarded), dict(sorted(answered.items())), len(gone), len(lines) - len(forwarded) - len(gone), sum(counted.values())))


FRONTS = (("nginx", "nginx, bodies kept back", {"buffering": "on", "ignore": "on", "host": "localhost"}),
          ("nginx", "nginx, bodies passed on", {"buffering": "off", "ignore": "off", "host": "$http_host"}),
          ("haproxy", "HAProxy", {"option": ""}),
          ("haproxy", "HAProxy, accept-invalid-http-request", {"option": "option accept-invalid-http-request"}),
          ("varnish", "Varnish", {}),
          ("envoy", "Envoy", {"lenient": False}),
          ("envoy", "Envoy, allow_chunked_length", {"lenient": True}))


def attack_all(fronts, arguments):
    threads = [threading.Thread(target=attack, args=(front, arguments.count, arguments.seed + i)) for i, front in enumerate(fronts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for front in fronts:
        compare(front, arguments.count)


def run(arguments, folder):
    os.environ["PATH"] += ":/usr/sbin"  # where Debian has them
    programs = {"nginx": "nginx", "haproxy": "haproxy", "varnish": "varnishd", "envoy": arguments.envoy}
    there = [front for front in FRONTS if shutil.which(programs[front[0]]) and front[0] in arguments.only.split(",")]
    if not there:
        print("none of %s is installed" % arguments.only)
        return 77
    fronts = []
    try:
        for kind, name, values in there:
            fronts.append(Front(name, arguments.kernserve, folder, kind, programs[kind], values))
        attack_all(fronts, arguments)
    finally:
        for front in fronts:
            front.close()
    print("%d payloads at %d fronts, %d wrong" % (arguments.count * len(fronts), len(fronts), wrongs()))
    return 1 if wrongs() else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernserve")
    parser.add_argument("--count", type=int, default=1100, help="payloads at each front (1100)")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("KS_SEED") or random.SystemRandom().getrandbits(32)))
    parser.add_argument("--only", default=",".join(KINDS), help="proxies, with commas")
    parser.add_argument("--envoy", default="envoy", help="the program")
    arguments = parser.parse_args()
    print("KS_SEED=%d" % arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # nginx's worker may be another user
        return run(arguments, folder)


if __name__ == "__main__":
    sys.exit(main())
