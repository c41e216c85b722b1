#!/usr/bin/env python3
"""Tensors of the start and after a loss: --tensors loads files in each form, read-only, and a bad one ends the start; a worker that is
killed under --supervise leaves names that answer 410, in a later generation; a tensor without uses goes after its ttl.

engine_tensors_start.py KERNSERVE"""
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile

from daemon import Daemon, check, comes_to, free_ports, metric, request, wrongs
from fault_supervise import child_of
from files import write_npy, write_safetensors
from tensors import Tensor

PATH = sys.argv[1]
TWO = struct.pack("<2f", 1, 2)
TAG = "db32fa6b2c39fd7f8d3d207fe13832e9468cceaaa52b4e59c6e425d7d5f15845"


def ask(daemon, method, path, body=b"", *fields):
    with daemon.connect(60) as connection:
        return connection.ask(request(method, path, list(fields), body), method)


def names(daemon):
    return [entry["name"] for entry in json.loads(ask(daemon, "GET", "/v2/tensors").body)["tensors"]]


def write_files(folder):
    os.mkdir(os.path.join(folder, "more"))
    tensor = Tensor("FP32", [2], [1, 2])
    with open(os.path.join(folder, "w.safetensors"), "wb") as file:
        file.write(write_safetensors({"a.w": tensor}))
    with open(os.path.join(folder, "more", "v.npy"), "wb") as file:
        file.write(write_npy(tensor))
    with open(os.path.join(folder, "more", "m.safetensors"), "wb") as file:
        file.write(write_safetensors({"a.w": tensor}))
    with open(os.path.join(folder, "short.npy"), "wb") as file:
        file.write(write_npy(tensor)[:-1])


def files_of_the_start(folder):
    options = ("--tensors", os.path.join(folder, "w.safetensors"), "--tensors", "q.=" + os.path.join(folder, "more"))
    with Daemon(PATH, "--backend", "cpu", "--threads", "1", *options) as daemon:
        check(names(daemon) == ["a.w", "q.m.a.w", "q.v"], "names of the start", names(daemon))
        answer = ask(daemon, "GET", "/v2/tensors/q.v")
        check(answer.status == 200 and answer.body == TWO and answer.header("etag") == '"%s"' % TAG, "bytes of an npy", answer)
        launches = metric(daemon.metrics(), "kernserve_launches_total")
        for what, answer in (("DELETE", ask(daemon, "DELETE", "/v2/tensors/a.w")), ("PUT", ask(daemon, "PUT", "/v2/tensors/a.w?shape=2&datatype=FP32", TWO)),
                             ("a stored output", ask(daemon, "POST", "/v2/models/softmax/infer?INPUT0=@q.v&OUTPUT0=@a.w"))):
            check((answer.status, answer.header("kernserve-error")) == (403, "read_only"), what, "of a tensor of the start", answer)
        check(metric(daemon.metrics(), "kernserve_launches_total") == launches, "a refused output was computed")
        check(ask(daemon, "GET", "/v2/tensors/a.w").body == TWO, "its bytes")
        check(metric(daemon.metrics(), "kernserve_resident_bytes", kind="tensor") == 8, "equal contents count once")


def ends_with_78(path, word):
    ports = free_ports(2)
    done = subprocess.run([PATH, "--backend", "cpu", "--listen", "127.0.0.1:%d" % ports[0], "--admin-listen", "127.0.0.1:%d" % ports[1],
                           "--tensors", path], capture_output=True, text=True, timeout=60)
    lines = [line for line in done.stderr.splitlines() if "level=error" in line]
    check(done.returncode == 78 and len(lines) == 1 and word in lines[0], path, done.returncode, done.stderr)


def lost_names():
    with Daemon(PATH, "--backend", "cpu", "--threads", "1", "--supervise") as daemon:
        check(ask(daemon, "PUT", "/v2/tensors/W?shape=2&datatype=FP32", TWO).status == 201, "PUT")
        check(ask(daemon, "PUT", "/v2/tensors/V?shape=2&datatype=FP32", TWO).status == 201, "PUT")
        check(ask(daemon, "DELETE", "/v2/tensors/V").status == 204, "DELETE")
        killed = child_of(daemon.process.pid)
        os.kill(killed, signal.SIGKILL)
        check(comes_to(lambda: child_of(daemon.process.pid) not in (None, killed), True) is True, "no new daemon")
        check(daemon.ready_within(60), "not ready again")
        answer = ask(daemon, "GET", "/v2/tensors/W")
        check(answer.status == 410 and answer.header("kernserve-error") == "lost", "a lost name", answer)
        check(b"tensor 'W' was lost when the worker was restarted (generation 1, now 2): put it again" in answer.body, answer.body)
        check(ask(daemon, "GET", "/v2/tensors/V").status == 404, "a name that was deleted before is lost")
        listed = json.loads(ask(daemon, "GET", "/v2/tensors").body)
        check(listed["generation"] == 2 and listed["tensors"][0]["lost"] is True, "the list", listed)
        check(ask(daemon, "PUT", "/v2/tensors/W?shape=2&datatype=FP32", TWO).status == 201, "a lost name is put again")
        check(ask(daemon, "GET", "/v2/tensors/W").body == TWO, "its bytes")
        check(metric(daemon.metrics(), "kernserve_resident_generation") == 2, "the metric")
        check(daemon.says("no option has this variable", 0) is None, "the supervisor's variables are warned of")


def ttl_of_a_second():
    with Daemon(PATH, "--backend", "cpu", "--threads", "1", "--tensor-ttl", "1s") as daemon:
        ask(daemon, "PUT", "/v2/tensors/short?shape=2&datatype=FP32", TWO)
        ask(daemon, "PUT", "/v2/tensors/long?shape=2&datatype=FP32&ttl=3600", TWO)
        check(comes_to(lambda: names(daemon), ["long"]) == ["long"], "it has not gone")
        check(metric(daemon.metrics(), "kernserve_resident_gone_total", reason="ttl") == 1, "the metric")


def main():
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder)
        files_of_the_start(folder)
        ends_with_78(os.path.join(folder, "short.npy"), "short.npy")
        ends_with_78(os.path.join(folder, "none.npy"), "No such file")
        ends_with_78(os.path.join(folder, "w.bin"), "neither .safetensors nor .npy")
    lost_names()
    ttl_of_a_second()
    return wrongs() > 0


if __name__ == "__main__":
    sys.exit(main())
