#!/usr/bin/env python3
"""A refusal names the way out: what would make raw bytes a request, the words of a choice, routes that are there, ports that are
free, keys whose change needs a restart. The texts that clients look for stay in front.

engine_way_out.py KERNSERVE
"""

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile

from daemon import Daemon, Remote, check, cpu_daemon, daemon_path, request, wrongs

NUMBERS = struct.pack("<4f", 0.5, 1.25, -3.0, 2.0)
JSON_FAULT = "failed to parse the request JSON buffer: "
RAW = "; the body is no JSON: for raw bytes name ?shape=R,C&datatype=FP32, or send Content-Type: application/x-npy"


def says(connection, method, target, body, front, way):
    answer = connection.ask(request(method, target, (), body))
    sentence = json.loads(answer.body)["error"]
    check(400 <= answer.status < 500 and sentence.startswith(front) and sentence.endswith(way), target, sentence)


def messages(connection):
    softmax, reduce = "/v2/models/softmax/infer", "/v2/models/reduce/infer"
    says(connection, "POST", softmax, NUMBERS, JSON_FAULT + "value expected at 0", RAW)
    says(connection, "POST", softmax, b"\x93NUMPY\x01\x00", JSON_FAULT, RAW)
    says(connection, "POST", softmax, b"{]", JSON_FAULT, " at 1")
    names = "must be one of sum, mean, max, min, prod, argmax, argmin, l2norm, logsumexp, var, std, sumsq, l1norm, logsum, norm, any, all, count_nonzero, got 'avg'"
    says(connection, "POST", reduce + "?shape=4&op=avg", NUMBERS, "parameter 'op' of model 'reduce' ", names)
    says(connection, "GET", "/v3/models", b"", "Not Found", "; GET / lists the routes")
    says(connection, "GET", "/v2/models/softmax/nope", b"", "Not Found", "Not Found")


def index(where):
    """Every link of each listener leads somewhere."""
    for port in (where.port, where.admin_port):
        side = Remote("127.0.0.1:%d" % port)
        links = json.loads(side.get("/").body)["links"]
        check(("/v2" in links) == (port == where.port) and "/metrics" in links, "links", port, links)
        for link in links:
            check(side.get(link).status == 200, "a dead link", port, link)


def port_in_use(where):
    done = subprocess.run([daemon_path(), "--backend", "cpu", "--listen", "127.0.0.1:%d" % where.port, "--admin-listen="], capture_output=True, text=True, timeout=60)
    found = re.search(r"cannot listen on 127.0.0.1:%d: Address already in use; free are the ports (\d+) and (\d+)" % where.port, done.stderr)
    check(done.returncode == 75 and found and where.port < int(found.group(1)) < int(found.group(2)), "port in use", done.returncode, done.stderr)


def reload(settings):
    def write(text):
        with open(settings, "w") as file:
            file.write(text)
    write("queue = 9\nlog-level = info\nwarm = softmax:4:FP32\n")
    with cpu_daemon("--threads", "1", "--config", settings, "--max-body", "2M") as where:
        for text, names in (("queue = 9\nwarm = softmax:4:FP32\nlog-level = debug\n", "none"), ("queue = 8\nmax-body = 1M\nlog-level = info\n", '"queue, warm"'),
                            ("queue = 9\nwarm = softmax:4:FP32\nwarm = softmax:5:FP32\nserver-name = other\n", '"warm, server-name"')):
            write(text)
            os.kill(where.process.pid, signal.SIGHUP)
            check(where.says("configuration read again.*need_restart=%s " % names), "a reload that changes", names, where.said()[-300:])
        check(where.stop() == 0, "the exit code")


def warming(folder):
    """The supervisor hears how far a long start is."""
    path = os.path.join(folder, "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(path)
        heard.settimeout(30)
        options = ("--backend", "cpu", "--pinned-bytes", "64M", "--threads", "1", "--warm", "softmax:4:FP32", "--warm", "softmax:5:FP32")
        with Daemon(daemon_path(), *options, environment={"NOTIFY_SOCKET": path}) as where:
            told = ""
            while "READY=1" not in told:
                told += heard.recv(4096).decode() + "\n"
            steps = re.findall(r"STATUS=Warming up (.*)\nEXTEND_TIMEOUT_USEC=\d+\n", told)
            check(steps == ["1 of 2", "2 of 2"], "a start that warms", told)
            check(where.stop() == 0, "the exit code")


def main():
    with cpu_daemon("--threads", "1") as where:
        with where.connect() as connection:
            messages(connection)
        index(where)
        port_in_use(where)
        check(where.stop() == 0, "the exit code")
    with tempfile.TemporaryDirectory() as folder:
        reload(os.path.join(folder, "settings"))
        warming(folder)
    sys.exit(wrongs() > 0)


main()
