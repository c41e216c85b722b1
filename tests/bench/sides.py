"""The servers that bench_http.py compares, and the programs that load them. Everything listens on and dials loopback.

Interface  Side (a server process), Load (the load generators and where they run), request_of() (what is sent), Reading.
Needs      wrk, and the programs of the build's target bench_http; h2load where rate() is called."""
import array
import collections
import json
import math
import os
import random
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "http"))
from ports import free_ports  # noqa: E402

LARGE = 256 << 10  # bodies from here on are sent by load_large: wrk reads answers 8 KiB at a time

# What one run gave. generator: share of its threads' time that the load generator computed; server_us: the server's CPU
# time for each request, all threads together.
Reading = collections.namedtuple("Reading", "rate p50_us p99_us errors generator server_us")


class Side:
    """A server on a free port, on its cores, ready when the constructor returns. said: its first line on stdout."""

    def __init__(self, command, under, wait=60):
        self.port, = free_ports(1)
        self.name = " ".join(os.path.basename(word) for word in command if word)
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(under + [str(self.port) if word is None else word for word in command],
                                        stdout=subprocess.PIPE, stderr=self.log)
        end = time.monotonic() + wait
        while not self.listens():
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                said = os.pread(self.log.fileno(), os.fstat(self.log.fileno()).st_size, 0)
                raise RuntimeError(said.decode(errors="replace").strip() or "it did not start to listen")
            time.sleep(0.02)

    def listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return True
        except OSError:
            return False

    def said(self):
        return self.process.stdout.readline().decode().strip()

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_of_children():
    """Of those that have ended, so of load generators; servers end with the run."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def elements(shape):
    return math.prod(int(d) for d in shape.split(","))


def values(count):
    """FP32 numbers; a block of a MiB repeats."""
    generator = random.Random(count)
    block = array.array("f", (generator.uniform(-2, 2) for _ in range(min(count, 1 << 18))))
    return block * (count // len(block))


def request_of(form, model, shapes):
    """Target, headers and body of an infer request of FP32 tensors."""
    target, data = "/v2/models/%s/infer" % model, [values(elements(shape)) for shape in shapes]
    if form == "raw":
        target += "?" + "&".join("shape=" + shape for shape in shapes) + "&datatype=FP32"
        return target, {}, b"".join(block.tobytes() for block in data)
    inputs = ['{"name":"INPUT%d","datatype":"FP32","shape":[%s],' % (i, shape) for i, shape in enumerate(shapes)]
    if form == "json":
        inputs = [head + '"data":[%s]}' % ",".join("%.7g" % x for x in block) for head, block in zip(inputs, data)]
        return target, {}, ('{"inputs":[%s]}' % ",".join(inputs)).encode()
    inputs = [head + '"parameters":{"binary_data_size":%d}}' % (4 * len(block)) for head, block in zip(inputs, data)]
    head = '{"inputs":[%s],"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}' % ",".join(inputs)
    return target, {"Inference-Header-Content-Length": len(head)}, head.encode() + b"".join(b.tobytes() for b in data)


def answer_of(port, target, body):
    """The FP32 numbers of one plain raw answer."""
    import http.client
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", target, body)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError("status %d: %s" % (answer.status, data[:200]))
    return struct.unpack("<%df" % (len(data) // 4), data)


class Load:
    """Load generators with a number of threads, on their cores. folder: for what they read and write."""

    def __init__(self, build, threads, cores, folder):
        self.build, self.threads, self.cores, self.folder = build, threads, len(cores), folder
        self.under = ["taskset", "-c", ",".join(map(str, cores))]

    def read(self, side, command, threads, seconds):
        """Runs a load generator that prints a line of JSON as its last."""
        server, own, begun = cpu_seconds(side.process.pid), cpu_of_children(), time.monotonic()
        done = subprocess.run(self.under + command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=seconds + 90)
        took, own = time.monotonic() - begun, cpu_of_children() - own
        server = cpu_seconds(side.process.pid) - server
        lines = done.stdout.decode(errors="replace").splitlines()
        if done.returncode or not lines or not lines[-1].startswith("{"):
            raise RuntimeError("%s: %s" % (" ".join(command), " / ".join(lines[-3:])))
        line = json.loads(lines[-1])
        return Reading(line["rate"], line["p50_us"], line["p99_us"], line["errors"], own / took / threads,
                       server / max(line["requests"], 1) * 1e6)

    def closed(self, side, form, work, seconds):
        """Each connection sends its next request when it has its answer."""
        if 4 * sum(elements(shape) for shape in work.shapes) < LARGE:
            threads = min(self.threads, work.connections)
            command = ["wrk", "-t%d" % threads, "-c%d" % work.connections, "-d%ds" % seconds, "--timeout", "30s",
                       "-s", os.path.join(HERE, "..", "load", form + ".lua"), "http://127.0.0.1:%d" % side.port, "--",
                       work.model, "x".join(work.shapes)]
            return self.read(side, command, threads, seconds)
        path = os.path.join(self.folder, "%s-%s-%s" % (form, work.model, "x".join(work.shapes)))
        if not os.path.exists(path):
            target, headers, body = request_of(form, work.model, work.shapes)
            lines = ["POST %s HTTP/1.1" % target, "Host: localhost", "Content-Length: %d" % len(body)]
            lines += ["%s: %s" % header for header in headers.items()]
            with open(path, "wb") as file:
                file.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        program = os.path.join(self.build, "tests", "load_large")
        command = [program, str(side.port), path, str(work.connections), str(seconds)]
        return self.read(side, command, min(work.connections, self.cores), seconds)

    def rate(self, side, work, rate, seconds):
        """A constant number of requests a second, plain raw, whatever the answers do: the rate achieved, p50, p99."""
        target, _, body = request_of("raw", work.model, work.shapes)
        data, log = os.path.join(self.folder, "body"), os.path.join(self.folder, "log")
        with open(data, "wb") as file:
            file.write(body)
        if os.path.exists(log):
            os.unlink(log)
        command = ["h2load", "--h1", "-t%d" % min(self.threads, work.connections), "-c%d" % work.connections,
                   "--rps=%f" % (rate / work.connections), "-D", str(seconds), "-d", data, "--log-file=" + log,
                   "http://127.0.0.1:%d%s" % (side.port, target)]
        subprocess.run(self.under + command, stdout=subprocess.DEVNULL, check=True, timeout=seconds + 90)
        times, errors = [], 0
        with open(log) as file:
            for line in file:
                _, status, took = line.split()[:3]
                times.append(int(took))
                errors += status != "200"
        times.sort()
        last = len(times) - 1
        return Reading(len(times) / seconds, times[last // 2], times[last * 99 // 100], errors, math.nan, math.nan)
