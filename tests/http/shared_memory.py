#!/usr/bin/env python3
"""Shared memory of clients: every rule of the protocol's section 11, and what happens when a client cuts or drops its object.

shared_memory.py KERNSERVE
"""

import json
import mmap
import os
import random
import struct
import sys
import threading
import time

from daemon import Daemon, request, settle

SYSTEM, CUDA = "/v2/systemsharedmemory", "/v2/cudasharedmemory"
SOFTMAX, REDUCE, MATMUL = ("/v2/models/%s/infer" % name for name in ("softmax", "reduce", "matmul"))
OFF = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."


class Object:
    """An object below /dev/shm with a name of its own; gone at the end."""

    def __init__(self, size):
        self.key = "/kernserve-test-%d-%d" % (os.getpid(), random.getrandbits(40))
        self.path = "/dev/shm" + self.key
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.ftruncate(self.fd, size)
        self.memory = mmap.mmap(self.fd, size)

    def unlink(self):
        if os.path.exists(self.path):
            os.unlink(self.path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.unlink()
        os.close(self.fd)


class Run:
    def __init__(self, daemon):
        self.daemon, self.connection, self.wrong = daemon, daemon.connect(), 0

    def ask(self, method, target, document=None):
        return self.connection.ask(request(method, target, (), b"" if document is None else json.dumps(document).encode()))

    def want(self, name, expected, got):
        if expected != got:
            self.wrong += 1
        print("%s %s%s" % ("ok   " if expected == got else "WRONG", name, "" if expected == got else ": %r instead of %r" % (got, expected)))

    def refused(self, name, status, text, answer):
        self.want(name, (status, True), (answer.status, text in json.loads(answer.body or b'{"error":""}')["error"]))
        if text not in json.loads(answer.body or b'{"error":""}')["error"]:
            print("      %r" % answer)

    def register(self, name, key, size, offset=None):
        document = {"key": key, "byte_size": size}
        if offset is not None:
            document["offset"] = offset
        return self.ask("POST", "%s/region/%s/register" % (SYSTEM, name), document)

    def names(self, kind=SYSTEM):
        return [r["name"] for r in json.loads(self.ask("GET", kind + "/status").body)]


def window(region, size, offset=0):
    parameters = {"shared_memory_region": region, "shared_memory_byte_size": size}
    if offset:
        parameters["shared_memory_offset"] = offset
    return parameters


def work(shape, parameters, output=None, datatype="FP32", **more):
    document = {"inputs": [{"name": "INPUT0", "datatype": datatype, "shape": shape, "parameters": parameters}], "parameters": more}
    if output is not None:
        document["outputs"] = [{"name": "OUTPUT0", "parameters": output}]
    return document


def floats(values):
    return struct.pack("<%df" % len(values), *values)


def off(path):
    with Daemon(path, "--pinned-bytes", "16M") as daemon:
        run = Run(daemon)
        run.want("off: status", (200, b"[]"), (lambda a: (a.status, a.body))(run.ask("GET", SYSTEM + "/status")))
        run.refused("off: register", 501, OFF, run.register("a", "/a", 64))
        run.refused("off: unregister", 501, OFF, run.ask("POST", SYSTEM + "/unregister"))
        run.refused("off: register, cuda", 501, OFF, run.ask("POST", CUDA + "/region/a/register", {}))
        run.refused("off: in a request", 501, OFF, run.ask("POST", SOFTMAX, work([1, 4], window("a", 16))))
        run.refused("off: in an output", 501, OFF, run.ask("POST", SOFTMAX, dict(work([1, 1], {}), inputs=[
            {"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [1]}], outputs=[{"name": "OUTPUT0", "parameters": window("a", 16)}])))
        run.want("off: not among the extensions", False, "system_shared_memory" in json.loads(run.ask("GET", "/v2").body)["extensions"])
        daemon.stop()
        return run.wrong


def registering(run):
    run.want("among the extensions", True, "system_shared_memory" in json.loads(run.ask("GET", "/v2").body)["extensions"])
    with Object(8192) as o:
        run.want("register", (200, b""), (lambda a: (a.status, a.body))(run.register("in0", o.key, 64, 0)))
        entry = {"name": "in0", "key": o.key, "offset": 0, "byte_size": 64}
        run.want("status of all", [entry], json.loads(run.ask("GET", SYSTEM + "/status").body))
        run.want("status of one", [entry], json.loads(run.ask("GET", SYSTEM + "/region/in0/status").body))
        run.want("status of the other kind", [], json.loads(run.ask("GET", CUDA + "/status").body))
        run.refused("status of an unknown one", 404, "Unable to find system shared memory region: 'nope'", run.ask("GET", SYSTEM + "/region/nope/status"))
        run.refused("status of an unknown one, cuda", 404, "Unable to find cuda shared memory region: 'nope'", run.ask("GET", CUDA + "/region/nope/status"))
        run.refused("status by the wrong kind", 404, "system shared memory", run.ask("GET", CUDA + "/region/in0/status"))
        run.refused("a name in use", 400, "shared memory region 'in0' already in manager", run.register("in0", o.key, 64))
        run.refused("no key", 400, "Shared memory register request has no 'key' field", run.ask("POST", SYSTEM + "/region/x/register", {"byte_size": 4}))
        run.refused("no size", 400, "Shared memory register request has no 'byte_size' field", run.ask("POST", SYSTEM + "/region/x/register", {"key": o.key}))
        run.refused("no words at all", 400, "Shared memory register request has no 'byte_size' field", run.ask("POST", SYSTEM + "/region/x/register"))
        run.refused("a size below zero", 400, "byte_size", run.register("x", o.key, -4))
        run.refused("a size that is text", 400, "byte_size", run.register("x", o.key, "64"))
        run.refused("a key of slashes", 400, "cannot register shared memory region 'x' - invalid shm key '//'", run.register("x", "//", 4))
        run.refused("an empty key", 400, "invalid shm key", run.register("x", "", 4))
        run.refused("a reserved key", 400, "as the key contains the reserved prefix", run.register("x", "/triton_python_backend_shm_region_1", 4))
        run.refused("a key that is not there", 400, "Unable to open shared memory region: '/kernserve-none'", run.register("x", "/kernserve-none", 4))
        run.refused("a key that climbs", 400, "Unable to open", run.register("x", "/../../etc/passwd", 4))
        run.refused("a key of a folder below", 400, "Unable to open", run.register("x", "/a/b", 4))
        for name, size, offset in (("a size of nothing", 0, 0), ("beyond the end", 8193, 0), ("beyond the end by its offset", 8192, 1), ("an overflow", 2 ** 64 - 1, 2), ("far", 4, 2 ** 63)):
            run.refused("register " + name, 400, "failed to register shared memory region 'x': invalid args", run.register("x", o.key, size, offset))
        os.mkfifo(o.path + "-fifo")
        run.refused("a pipe", 400, "region", run.register("x", o.key + "-fifo", 4))
        os.unlink(o.path + "-fifo")
        run.refused("a name of 129 bytes", 400, "128", run.register("n" * 129, o.key, 4))
        run.refused("a name with a line feed", 400, "printable", run.register("a%0Ab", o.key, 4))
        run.want("an escaped name, an offset amid a page", 200, run.register("a%20b", o.key, 100, 4100).status)
        run.want("it is listed as it is meant", ["a b", "in0"], sorted(run.names()))
        for name in ("nope", "in0"):
            run.want("unregister %s as the other kind" % name, 200, run.ask("POST", CUDA + "/region/%s/unregister" % name).status)
        run.want("all of the other kind", 200, run.connection.ask(("POST %s/unregister HTTP/1.1\r\nHost: localhost\r\n\r\n" % CUDA).encode()).status)
        run.want("nothing went", ["a b", "in0"], sorted(run.names()))
        run.want("unregister one", 200, run.ask("POST", SYSTEM + "/region/in0/unregister").status)
        run.want("one went", ["a b"], run.names())
        run.want("unregister all", 200, run.ask("POST", SYSTEM + "/unregister").status)
        run.want("all went", [], run.names())
        for i in range(128):
            run.register("r%d" % i, o.key, 64)
        run.refused("one region too many", 503, "all 128 shared memory regions are in use", run.register("r128", o.key, 64))
        run.ask("POST", SYSTEM + "/unregister")


def cuda_words(run):
    good = "A" * 86 + "=="
    base = CUDA + "/region/c/register"
    gpu = "cuda_shared_memory" in json.loads(run.ask("GET", "/v2").body)["extensions"]
    for name, document in (("no handle", {"byte_size": 4, "device_id": 0}), ("no device", {"byte_size": 4, "raw_handle": {"b64": good}}), ("no size", {"raw_handle": {"b64": good}})):
        run.refused("cuda: " + name, 400, "Shared memory register request has no", run.ask("POST", base, document))
    run.refused("cuda: a handle that is no object", 400, "raw_handle", run.ask("POST", base, {"byte_size": 4, "device_id": 0, "raw_handle": good}))
    for name, text in (("short", "AAAA"), ("not base64", "!" * 86 + "=="), ("good form", good), ("good form", good[:72] + "\n" + good[72:] + "\n")):
        answer = run.ask("POST", base, {"byte_size": 4, "device_id": 0, "raw_handle": {"b64": text}})
        said = "GPUs not supported" if not gpu else "invalid args" if name == "good form" else "must be a valid base64 encoded cudaIpcMemHandle_t"
        run.refused("cuda: handle, " + name, 400, said, answer)


def using(run):
    with Object(1 << 16) as o:
        run.register("in", o.key, 4096, 0)
        run.register("out", o.key, 4096, 8192 + 12)
        o.memory[256:272] = floats([0, 0, 0, 0])
        before = o.memory[:]
        answer = run.ask("POST", SOFTMAX, dict(work([2, 2], window("in", 16, 256), dict(window("out", 100, 8), binary_data=False)), id="s-1"))
        run.want("in and out: says name, datatype, shape and no more",
                 {"id": "s-1", "model_name": "softmax", "model_version": "1", "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [2, 2]}]}, json.loads(answer.body))
        run.want("in and out: type", ("application/json", None), (answer.header("content-type"), answer.header("inference-header-content-length")))
        at = 8192 + 12 + 8
        run.want("in and out: values", floats([0.5] * 4), o.memory[at:at + 16])
        run.want("in and out: not a byte more", before[:at] + before[at + 16:], o.memory[:at] + o.memory[at + 16:])
        answer = run.ask("POST", SOFTMAX, work([2, 2], window("in", 16, 256)))
        run.want("in only", [0.5] * 4, json.loads(answer.body)["outputs"][0]["data"])
        both = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [3, 4]},
                           {"name": "INPUT1", "datatype": "FP32", "shape": [2, 1], "parameters": window("in", 8)}]}
        o.memory[0:8] = floats([10, 100])
        run.want("one from JSON, one from memory", [430.0], json.loads(run.ask("POST", MATMUL, both).body)["outputs"][0]["data"])
        halves = work([1, 2], window("in", 4, 512), window("out", 4), "FP16")
        run.want("FP16, which JSON cannot carry", 200, run.ask("POST", SOFTMAX, halves).status)
        run.want("FP16: values", struct.pack("<2e", 0.5, 0.5), o.memory[8204:8208])
        run.want("an empty tensor", 200, run.ask("POST", SOFTMAX, work([0, 4], window("in", 0), window("out", 0))).status)

        for name, status, text, document in (
                ("an unknown region", 404, "Unable to find shared memory region: 'nope'", work([2, 2], window("nope", 16))),
                ("an unknown region for the output", 404, "Unable to find shared memory region: 'nope'", work([2, 2], window("in", 16), window("nope", 16))),
                ("offset at the end", 400, "Invalid offset for shared memory region: 'in'", work([2, 2], window("in", 16, 4096))),
                ("offset of 2^64 - 32", 400, "Invalid offset for shared memory region: 'in'", work([2, 2], window("in", 16, 18446744073709551584))),
                ("offset and size beyond the end", 400, "Invalid offset + byte size for shared memory region: 'in'", work([2, 2], window("in", 16, 4084))),
                ("one byte beyond the end", 400, "Invalid offset + byte size for shared memory region: 'in'", work([2, 2], window("in", 16, 4081))),
                ("a size that overflows", 400, "Integer overflow detected: byte_size (", work([2, 2], window("in", 2 ** 64 - 1, 8))),
                ("a size that is not the tensor's", 400, "input byte size mismatch for input 'INPUT0' for model 'softmax'. Expected 16, got 12", work([2, 2], window("in", 12))),
                ("no size", 400, "shared_memory_byte_size", work([2, 2], {"shared_memory_region": "in"})),
                ("a region that is a number", 400, "shared_memory_region", work([2, 2], window(7, 16))),
                ("an offset of 1.5", 400, "shared_memory_offset", work([2, 2], window("in", 16, 1.5))),
                ("two sources", 400, "Input must set only one of the following fields", work([2, 2], dict(window("in", 16), binary_data_size=16))),
                ("an output too small", 400, "should be at least 16 bytes to hold the results", work([2, 2], window("in", 16), window("out", 15))),
                ("an output as classes too", 400, "classification", work([2, 2], window("in", 16), dict(window("out", 16), classification=1))),
                ("an output as binary too", 400, "binary_data", work([2, 2], window("in", 16), dict(window("out", 16), binary_data=True)))):
            run.refused("use: " + name, status, text, run.ask("POST", SOFTMAX, document))
        run.want("regions survive errors", ["in", "out"], sorted(run.names()))
        o.unlink()
        run.want("the key may go", 200, run.ask("POST", SOFTMAX, work([2, 2], window("in", 16), window("out", 16))).status)
        run.ask("POST", SYSTEM + "/unregister")
        run.refused("use after unregistering", 404, "Unable to find", run.ask("POST", SOFTMAX, work([2, 2], window("in", 16))))


def cutting(run):
    """A client cuts its object under us: an error for it, and the daemon stays."""
    with Object(1 << 20) as o:
        run.register("cut", o.key, 1 << 20)
        job = work([1 << 17], window("cut", 1 << 19), window("cut", 1 << 19, 1 << 19), axis=0)
        run.want("before", 200, run.ask("POST", SOFTMAX, job).status)
        os.ftruncate(o.fd, 4096)
        answer = run.ask("POST", SOFTMAX, job)
        gpu = "cuda_shared_memory" in json.loads(run.ask("GET", "/v2").body)["extensions"]
        if gpu:
            run.want("cut: the pinned pages stay", 200, answer.status)
        else:
            run.refused("cut: reading", 400, "has become smaller than it was registered", answer)
            answer = run.ask("POST", SOFTMAX, work([16], window("cut", 64), window("cut", 64, 1 << 19), axis=0))
            run.refused("cut: writing", 400, "has become smaller than it was registered", answer)
        run.want("cut: it has not grown again", 4096, os.fstat(o.fd).st_size)
        os.ftruncate(o.fd, 1 << 20)
        run.want("after it grew again", 200, run.ask("POST", SOFTMAX, job).status)
        run.ask("POST", SYSTEM + "/unregister")


def in_use(run):
    """Unregistered while requests run: they end well; the region goes with the last one."""
    size = 1 << 22
    with Object(2 * size) as o:
        stop, statuses = threading.Event(), []

        def load():
            with run.daemon.connect() as connection:
                job = json.dumps(work([1024, 1024], window("busy", size), window("busy", size, size))).encode()
                while not stop.is_set():
                    statuses.append(connection.ask(request("POST", SOFTMAX, (), job)).status)

        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(30):
            run.register("busy", o.key, 2 * size)
            time.sleep(0.01)
            run.ask("POST", SYSTEM + "/region/busy/unregister")
        stop.set()
        for thread in threads:
            thread.join()
        run.want("each request did, or found no region", {200, 404}, set(statuses))
        end = time.monotonic() + 30
        while run.names() and time.monotonic() < end:  # a request ends when its answer's last byte is sent
            time.sleep(0.01)
        run.want("in the end nothing is left", [], run.names())


def descriptors(run):
    with Object(4096) as o:
        time.sleep(0.5)  # until the connections of the test before are closed
        before = run.daemon.descriptors()
        for _ in range(200):
            run.register("d", o.key, 4096)
            run.ask("POST", SOFTMAX, work([2, 2], window("d", 16, 4090)))
            run.register("d", o.key, 9999)
            run.ask("POST", SYSTEM + "/region/d/unregister")
        run.want("no descriptor is left", True, run.daemon.descriptors() <= before)


def main():
    if len(sys.argv) < 2:
        raise SystemExit("usage: shared_memory.py KERNSERVE")
    wrong = off(sys.argv[1])
    with Daemon(sys.argv[1], "--allow-client-shm", "--threads", "2", "--pinned-bytes", "64M") as daemon:
        run = Run(daemon)
        for part in (registering, cuda_words, using, cutting, in_use, descriptors):
            part(run)
        with Object(64) as o:
            run.register("left", o.key, 64)
        run.want("nothing of a request is held", 0, settle(daemon))
        run.connection.close()
        run.want("exit code", 0, daemon.stop())
        run.want("no sanitizer's report", False, "Sanitizer" in daemon.said())
    return 1 if wrong or run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
