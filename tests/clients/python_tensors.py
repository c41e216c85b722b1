#!/usr/bin/env python3
"""Resident tensors by the installed Python client: python_tensors.py KERNSERVE KERNSERVE-CLIENT [BACKEND]

  - put, get, list, delete; the ETag is the daemon's; conditions; every datatype in and out
  - a tensor as each input of each operation, and results that stay: the values of a request that carries its operands
  - what is lost is put again, once, whatever threads ask: the daemon killed under --supervise, ended and started between two calls,
    a ttl that is over; what cannot be is Lost
  - 32 threads on one Client; 256 MiB each way without a copy; a refusal amid an upload; no room
  - the command line
"""
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "http"))
import kernserve  # noqa: E402
from daemon import Connection, Daemon, check, comes_to, request, wrongs  # noqa: E402
from kernserve._datatypes import OF_NUMPY, as_tensor  # noqa: E402
from kernserve._tensor import etag_of  # noqa: E402

MIB = 1 << 20
RANDOM = np.random.default_rng(int(os.environ.get("KS_SEED") or time.time_ns() % 1_000_000_007))
BACKEND = sys.argv[3] if len(sys.argv) > 3 else "cpu"
OPTIONS = ("--backend", BACKEND, "--pinned-bytes", "16M")


def raises(kind, call, **expected):
    try:
        call()
    except kernserve.Error as error:
        check(type(error) is kind, "the class", repr(error), "instead of", kind)
        for name, value in expected.items():
            check(getattr(error, name) == value, name, getattr(error, name), "instead of", value, ":", error)
    else:
        check(False, kind.__name__, "expected, no exception")


def client_of(daemon, **options):
    return kernserve.Client("http://127.0.0.1:%d" % daemon.port, **options)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def close(a, b):
    """Of FP32: whether an operand stays may choose another kernel, which sums in another order."""
    return a.dtype == b.dtype and a.shape == b.shape and np.allclose(a, b, rtol=1e-4, atol=1e-4)


def names(ks, prefix=""):
    return [tensor.name for tensor in ks.tensors(prefix)]


def life(ks):
    check(etag_of(np.float32([1, 2]), "FP32") == "db32fa6b2c39fd7f8d3d207fe13832e9468cceaaa52b4e59c6e425d7d5f15845", "the vector's ETag")
    for size in (0, 1, 1000, MIB - 1, MIB, MIB + 1, 3 * MIB, 9 * MIB + 5):
        values = RANDOM.integers(0, 256, size).astype(np.uint8)
        made = ks.put("sized", values)
        check(made.entry["etag"] == etag_of(values, "UINT8") and same(np.asarray(made.numpy()), values), "the ETag and bytes of", size)
    for dtype in OF_NUMPY:
        values = RANDOM.integers(0, 2, (3, 5)).astype(dtype)
        with ks.tensor(values) as tensor:
            check(tensor.dtype == dtype and tensor.nbytes == values.nbytes and same(np.asarray(ks.get(tensor.name)), values), "in and out,", dtype)
    with ks.tensor(np.float32(7)) as scalar:
        check(scalar.shape == () and scalar.numpy() == 7, "a scalar")
    with ks.tensor(np.uint16([[0x3f80, 0x4000]]), datatype="BF16") as tensor:
        check(tensor.datatype == "BF16" and tensor.numpy().tobytes() == b"\x80\x3f\x00\x40", "BF16 without ml_dtypes")

    w = floats(7, 5)
    first = ks.put("life.w", w, ttl=600, evictable=True)
    check(first.entry["ttl"] == 600 and first.entry["evictable"] and ks.tensor("life.w").entry["etag"] == first.entry["etag"], "the entry", first.entry)
    raises(kernserve.Precondition, lambda: ks.put("life.w", w + 1, only_new=True), status=412, code="precondition")
    raises(kernserve.Precondition, lambda: ks.put("life.w", w + 1, if_match="0" * 64), status=412)
    second = ks.put("life.w", w + 1, if_match=first.entry["etag"])
    raises(kernserve.Precondition, lambda: ks.delete("life.w", if_match=first.entry["etag"]), status=412)
    check(same(np.asarray(first.numpy()), w + 1), "a name is what it was replaced by")
    with ks.tensor(w + 1, "life.w") as there:  # was there: it stays
        check(there.entry["etag"] == second.entry["etag"], "the same content again")
    with ks.tensor(w + 1) as other:
        check(other.name in names(ks) and other.entry["etag"] == second.entry["etag"], "a second name for the content")
        with contextlib.suppress(ValueError), ks.tensor(w):
            raise ValueError
    check(names(ks) == ["life.w", "sized"], "what was made here is deleted at the end", names(ks))
    for i in range(5):
        ks.put("many.%d" % i, w)
    check(names(ks, "many.") == ["many.%d" % i for i in range(5)], "a list by prefix", names(ks, "many."))
    first.delete()
    raises(kernserve.NotFound, lambda: ks.delete("life.w"), status=404, code="tensor")
    raises(kernserve.NotFound, lambda: ks.get("nothing"), status=404, code="tensor")
    raises(kernserve.NotFound, lambda: ks.tensor("nothing"), status=404, code="tensor")
    raises(kernserve.BadRequest, lambda: ks.put(".x", w), status=400, code="name")
    raises(kernserve.BadRequest, lambda: ks.put("x", w, ttl=-1), status=400, code="parameter")
    for name in names(ks):
        ks.delete(name)


def use(ks):
    a, b, bias = floats(9, 33), floats(33, 17), floats(17)
    plain = np.asarray(ks.matmul(a, b, bias, activation="relu"))
    with ks.tensor(a) as ta, ks.tensor(b) as tb, ks.tensor(bias) as tbias:
        for operands in ((a, tb, bias), (ta, b, bias), (a, b, tbias), (ta, b, tbias), (a, tb, tbias), (ta, tb, tbias)):
            check(close(np.asarray(ks.matmul(*operands, activation="relu")), plain), "the values with", [type(o).__name__ for o in operands])
            inputs = {"INPUT%d" % i: operand for i, operand in enumerate(operands)}
            check(close(np.asarray(ks.infer("matmul", parameters={"activation": "relu"}, **inputs)["OUTPUT0"]), plain), "the same by infer")
        out = np.empty_like(plain)
        ks.matmul(a, tb, tbias, activation="relu", out=out)
        check(close(out, plain), "out= beside a tensor")
        check(close(np.asarray(ks.softmax(ta, axis=0)), np.asarray(ks.softmax(a, axis=0))), "softmax of a tensor")
        check(same(np.asarray(ks.reduce(ta, "argmax", axis=1)), np.asarray(ks.reduce(a, "argmax", axis=1))), "reduce of a tensor")
        check(close(np.asarray(ks.matmul(tb, ta, transpose_a=True, transpose_b=True)), np.asarray(ks.matmul(b, a, transpose_a=True, transpose_b=True))),
              "one tensor in two places")
        h = ks.matmul(a, tb, tbias, activation="relu", store="use.h", ttl=60)
        check(isinstance(h, kernserve.Tensor) and h.shape == (9, 17) and h.datatype == "FP32" and h.timing.total > 0, "a stored result", h)
        check(close(np.asarray(h.numpy()), plain) and ks.tensor("use.h").entry["ttl"] == 60, "its bytes, its ttl")
        chained = ks.softmax(h, store="use.h")  # replaces what it reads
        check(close(np.asarray(chained.numpy()), np.asarray(ks.softmax(plain))), "a chain of stored results")
        kept = ks.infer("reduce", parameters={"op": "sum"}, store={"OUTPUT0": "use.s"}, ttl=60, INPUT0=chained)["OUTPUT0"]
        check(isinstance(kept, kernserve.Tensor) and close(np.asarray(kept.numpy()), np.asarray(ks.reduce(chained, "sum"))), "infer, stored", kept)
        raises(kernserve.BadRequest, lambda: ks.matmul(floats(3, 4), tb), status=400, code="shape")
        raises(kernserve.BadRequest, lambda: ks.matmul(a.astype(np.float64), tb), status=400, code="datatype")
        raises(kernserve.BadRequest, lambda: ks.matmul(a, tb, store="a/b"), status=400, code="name")
        with contextlib.suppress(ValueError):
            check(not ks.matmul(a, tb, store="x", out=out), "store= and out=")
        chained.delete()
        kept.delete()
    raises(kernserve.NotFound, lambda: ks.softmax(h), status=404, code="tensor")
    check(names(ks) == [], "nothing is left", names(ks))


def together(threads_count, work):
    faults = []

    def guarded(index):
        try:
            work(index)
        except BaseException as error:  # noqa: BLE001
            faults.append(repr(error))

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(threads_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not faults, "threads:", len(faults), faults[:3])


def many_threads(ks):
    w, rows = floats(64, 48), [floats(1 + i % 5, 64) for i in range(32)]
    with ks.tensor(w) as weight:
        expected = [np.asarray(ks.matmul(row, weight)) for row in rows]  # alone: the same bits as joined with others' rows

        def work(index):
            for _ in range(40):
                check(same(np.asarray(ks.matmul(rows[index], weight)), expected[index]), "thread %d got another's result" % index)
            with ks.tensor(rows[index]) as row:
                check(close(np.asarray(ks.matmul(row, weight)), expected[index]), "a tensor of each thread")
        together(32, work)
    check(names(ks) == [], "nothing is left")


def no_copies(ks):
    big = np.zeros(256 * MIB, np.uint8)
    big[::4096] = 7
    back = np.empty_like(big)
    tracemalloc.start()
    try:
        with ks.tensor(big, timeout=300) as tensor:
            ks.get(tensor, out=back, timeout=300)
        ks.put("big", big, timeout=300).delete()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    check(np.array_equal(big, back), "256 MiB there and back")
    check(peak < 4 * MIB, "256 MiB took", peak, "bytes of the client's memory")


class Refuses:
    """Reads the head of a request and answers at once, whatever still comes."""

    def __init__(self, answer):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url, self.answer = "http://127.0.0.1:%d" % self.listener.getsockname()[1], answer
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            connection.recv(1000)
            connection.sendall(self.answer)
            self.open = connection  # read no further, not closed either


def refused_amid():
    text = b'{"error":"no room"}'
    server = Refuses(b"HTTP/1.1 507 No\r\nKernserve-Error: resident_full\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
    begun = time.monotonic()
    raises(kernserve.Full, lambda: kernserve.Client(server.url).put("w", np.zeros(64 * MIB, np.uint8)), status=507, code="resident_full")
    check(time.monotonic() - begun < 10, "the refusal of a body that nobody reads is not waited for")


def full(kernserve_path):
    with Daemon(kernserve_path, *OPTIONS, "--resident-bytes", "16M") as daemon, client_of(daemon) as ks:
        raises(kernserve.Full, lambda: ks.put("w", np.zeros(64 * MIB, np.uint8)), status=507, code="resident_full")
        with ks.tensor(np.zeros(9 * MIB, np.uint8), "keeps"):
            raises(kernserve.Full, lambda: ks.tensor(np.ones(9 * MIB, np.uint8)), status=507, code="resident_full")
            raises(kernserve.Full, lambda: ks.softmax(np.zeros((3, MIB), np.float32), store="h"), status=507, code="resident_full")
        ks.put("goes", np.zeros(9 * MIB, np.uint8), evictable=True)
        with ks.tensor(np.ones(9 * MIB, np.uint8)) as tensor:
            check(names(ks) == [tensor.name], "an evictable one made room", names(ks))
        check(daemon.stop() == 0, "the daemon's end")


def child_of(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as children:
        found = children.read().split()
    return int(found[0]) if found else None


def healed(ks, end):
    """A weight is used before and after `end` of the daemon's process, by one thread and by many."""
    w, x = floats(128, 96), floats(3, 128)
    plain = np.asarray(ks.matmul(x, w))
    with ks.tensor(w) as weight, ks.tensor(x, "healed.x") as row:
        stored = ks.matmul(row, weight, store="healed.h")
        end()
        check(close(np.asarray(ks.matmul(row, weight)), plain), "both are put again")
        check((weight._puts, row._puts) == (1, 1), "once each", weight._puts, row._puts)
        end()
        together(32, lambda _: check(close(np.asarray(ks.matmul(x, weight)), plain), "by many threads"))
        check(weight._puts == 2, "32 threads put once", weight._puts)
        end()
        check(same(np.asarray(weight.numpy()), w), "get puts again, too")
        end()
        check(close(np.asarray(ks.infer("matmul", INPUT0=row, INPUT1=weight)["OUTPUT0"]), plain), "and infer")
        return stored


def lost(kernserve_path):
    with Daemon(kernserve_path, *OPTIONS, "--supervise") as daemon, client_of(daemon) as ks:
        def end():
            child = child_of(daemon.process.pid)
            os.kill(child, signal.SIGKILL)
            check(comes_to(lambda: child_of(daemon.process.pid) not in (None, child), True), "no new worker")

        stored = healed(ks, end)
        raises(kernserve.Lost, stored.numpy, status=410, code="lost")
        raises(kernserve.Lost, lambda: ks.softmax(stored), status=410, code="lost")
        check([tensor.entry["lost"] for tensor in ks.tensors("healed.h")] == [True], "the list says so")
        check(daemon.stop() == 0, "the daemon's end")


def restarted(kernserve_path):
    with Daemon(kernserve_path, *OPTIONS) as daemon, client_of(daemon) as ks:
        def end():
            check(daemon.stop() == 0, "the daemon's end")
            daemon.process = subprocess.Popen(daemon.command, stdout=subprocess.DEVNULL, stderr=daemon.log)
            check(daemon.ready_within(60), "the daemon starts again")

        stored = healed(ks, end)
        raises(kernserve.NotFound, stored.numpy, status=404, code="tensor")
        check(daemon.stop() == 0, "the daemon's end")


def placed(kernserve_path):
    """On one of two devices alone, and put again there once its worker has ended."""
    with Daemon(kernserve_path, *OPTIONS, "--devices", "0,1") as daemon, client_of(daemon) as ks:
        def answer(port, target):
            with Connection(type("Where", (), {"host": "127.0.0.1", "port": port})) as connection:
                return json.loads(connection.ask(request("GET", target)).body)

        both = lambda: {row["state"] for row in answer(daemon.admin_port, "/readyz")["devices"]} == {"ready"}
        check(comes_to(both, True), "both devices are ready")
        w, x = floats(128, 96), floats(3, 128)
        plain = np.asarray(ks.matmul(x, w))
        with ks.tensor(w, device=1) as weight, ks.tensor(w, device=0) as other:
            check((weight.entry["device"], other.entry["device"]) == (1, 0), "their entries", weight.entry, other.entry)
            check([t.entry["device"] for t in ks.tensors()] == [t.entry["device"] for t in sorted((weight, other), key=lambda t: t.name)], "the list")
            for each in (weight, other):
                together(16, lambda _: check(close(np.asarray(ks.matmul(x, each)), plain), "by each connection"))
            raises(kernserve.BadRequest, lambda: ks.matmul(weight, other), status=409, code="placed")
            raises(kernserve.BadRequest, lambda: ks.put(weight.name, w), status=409, code="placed")
            os.kill(answer(daemon.admin_port, "/status.json?device=1")["pid"], signal.SIGKILL)
            check(comes_to(both, False) is False and comes_to(both, True), "device 1 is back")
            check(close(np.asarray(ks.matmul(x, weight)), plain) and weight._puts == 1, "put again", weight._puts)
            check(ks.tensor(weight.name).entry["device"] == 1, "where it was")
        check(ks.put("all", w).entry.get("device") is None, "on all, without")
        check(daemon.stop() == 0, "the daemon's end")


def expired(ks):
    w, x = floats(8, 4), floats(2, 8)
    with ks.tensor(w, ttl=1) as weight:
        check(comes_to(lambda: names(ks), []) == [], "the ttl is over")
        check(close(np.asarray(ks.matmul(x, weight)), np.asarray(ks.matmul(x, w))), "what has expired is put again")
        check(ks.tensor(weight.name).entry["ttl"] == 1, "with its ttl")


def safetensors(path, tensors):
    """Written by hand: the package is not wanted for that."""
    parts = {key: as_tensor(values, None)[0].tobytes() for key, values in tensors.items()}
    head, at = [], 0
    for key, data in parts.items():
        head.append('"%s":{"dtype":"F32","shape":%s,"data_offsets":[%d,%d]}' % (key, list(tensors[key].shape), at, at + len(data)))
        at += len(data)
    text = ("{" + ",".join(head) + "}").encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(parts.values()))


def formed(ks):
    """Put apart for an operation, the bytes and the values as ever; put again so where it is gone."""
    x, w = floats(3, 5), floats(5, 131)
    plain = np.asarray(ks.matmul(x, w))
    for make in (lambda: ks.put("formed", w, form="matmul"), lambda: ks.tensor(w, "formed", form="matmul")):
        made = make()
        check(made.entry["forms"] == ["matmul"] and close(np.asarray(ks.matmul(x, made)), plain) and same(np.asarray(made.numpy()), w), "a form", made.entry)
        ks.delete("formed")
        check(close(np.asarray(ks.matmul(x, made)), plain) and ks.tensor("formed").entry["forms"] == ["matmul"], "put again with its form")
        ks.delete("formed")
    raises(kernserve.BadRequest, lambda: ks.put("formed", w, form="softmax"), status=400, code="parameter")


def files_and_command(daemon, ks, command):
    def run(*words, data=None):
        return subprocess.run([command, "--url", "http://127.0.0.1:%d" % daemon.port, *words], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=60)

    x, w, bias = floats(3, 4), floats(4, 6), floats(6)
    with tempfile.TemporaryDirectory() as folder:
        files = {name: os.path.join(folder, name) for name in ("x.npy", "w.npy", "y.npy", "a.safetensors", "b.safetensors", "bad.safetensors")}
        np.save(files["x.npy"], x)
        np.save(files["w.npy"], w)
        safetensors(files["a.safetensors"], {"layer.w": w, "layer.b": bias})
        safetensors(files["b.safetensors"], {"layer/0:w": w})
        made = ks.put_file(files["a.safetensors"], "bert.", ttl=60)
        check([t.name for t in made] == names(ks, "bert.") or sorted(t.name for t in made) == names(ks, "bert."), "a file's tensors", made)
        check(same(np.asarray(ks.get("bert.layer.w")), w) and same(np.asarray(ks.get("bert.layer.b")), bias), "their bytes")
        done = run("put", files["b.safetensors"], "--prefix", "c.")
        check(done.returncode == 0 and done.stdout == b"c.layer.0.w\n" and same(np.asarray(ks.get("c.layer.0.w")), w), "keys with / and :", done)
        check(run("put", files["w.npy"], "--ttl", "60", "--evictable", "--for", "matmul").stdout == b"w\n", "put")
        check(run("put", files["x.npy"], "--name", "X").stdout == b"X\n", "put under a name")
        with open(files["x.npy"], "rb") as file:
            check(run("put", "-", "--name", "in", data=file.read()).returncode == 0, "put of standard input")
        listed = run("ls").stdout.decode().splitlines()
        check([line.split()[0] for line in listed] == ["X", "bert.layer.b", "bert.layer.w", "c.layer.0.w", "in", "w"], "ls", listed)
        check(run("ls", "bert.").stdout.count(b"\n") == 2, "ls of a prefix")
        check(run("get", "w", "-o", files["y.npy"]).returncode == 0 and same(np.load(files["y.npy"]), w), "get")
        plain = np.asarray(ks.matmul(x, w, bias))
        check(run("matmul", files["x.npy"], "@w", "--bias", "@bert.layer.b", "-o", files["y.npy"]).returncode == 0, "matmul of a tensor")
        check(close(np.load(files["y.npy"]), plain), "its values")
        check(run("matmul", "@X", "@w", "--bias", "@bert.layer.b", "-o", "@h").stdout == b"" and close(np.asarray(ks.get("h")), plain), "a result that stays")
        check(run("infer", "softmax", "INPUT0=@h", "-o", files["y.npy"]).returncode == 0, "infer of a tensor")
        check(close(np.load(files["y.npy"]), np.asarray(ks.softmax(plain))), "its values")
        check(b"resident" in run("top", "--count", "1", "--interval", "0.1").stdout, "top tells of tensors")
        check(run("rm", *names(ks)).returncode == 0 and names(ks) == [], "rm")
        with open(files["bad.safetensors"], "wb") as file:
            file.write(b"123456789")
        for code, *words in ((65, "rm", "nothing"), (65, "get", "nothing"), (65, "softmax", "@nothing"), (66, "put", folder + "/none.npy"), (64, "put", "-"),
                             (66, "put", folder + "/none.safetensors"), (64, "put", files["bad.safetensors"]), (64, "put", files["a.safetensors"], "--name", "n")):
            done = run(*words)
            check(done.returncode == code, words, "exit code", done.returncode, "instead of", code, done.stderr[-300:])
            check(b"Traceback" not in done.stderr, words, done.stderr)


def main():
    kernserve_path, command = sys.argv[1:3]
    refused_amid()
    with Daemon(kernserve_path, *OPTIONS, "--resident-bytes", "700M") as daemon, client_of(daemon) as ks:
        for part in (life, use, many_threads, formed, expired, no_copies):
            part(ks)
        files_and_command(daemon, ks, command)
        check(daemon.stop() == 0, "the daemon's end")
    full(kernserve_path)
    placed(kernserve_path)
    lost(kernserve_path)
    restarted(kernserve_path)
    sys.exit(wrongs() > 0)


main()
