#!/usr/bin/env python3
"""--model-repository: models on disk, at start and by Triton's load, in the three modes; folders that change, come, go, or are no models';
and what ends the start. The answers say whose file they are of.

engine_model_repository.py KERNSERVE [BACKEND]     cpu, where none is named
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading

from daemon import Daemon, check, comes_to, free_ports, request, wrongs
from files import write_npy, write_safetensors
from models import BACKEND, Client, scaled
from tensors import Tensor

PATH = sys.argv[1]
SCALE = dict(scaled(1.0), initializers=["k"])
STARTS = ("--backend", BACKEND, "--threads", "1", "--resident-bytes", "32M")


def write(path, data):
    """In one step, as one who replaces a file should."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + "~", "wb") as file:
        file.write(data if isinstance(data, bytes) else json.dumps(data).encode())
    os.rename(path + "~", path)


def weights(factor):
    return write_safetensors({"k": Tensor("FP32", [1], [float(factor)])})


def write_model(folder, factor):
    write(os.path.join(folder, "weights.safetensors"), weights(factor))
    write(os.path.join(folder, "model.json"), SCALE)


def one_file(factor, document=SCALE):
    return write_safetensors({"k": Tensor("FP32", [1], [float(factor)])}, {"kernserve": json.dumps(document)})


def factor_of(client, name):
    """What its answer says; None: it is not there."""
    answer = client.ask(request("POST", "/v2/models/%s/infer?shape=2" % name, (), struct.pack("<2f", 1.0, 1.0)))
    if answer is None or answer.status != 200:
        return None
    values = struct.unpack("<2f", answer.body)
    check(values[0] == values[1], name, "answers", values)
    return values[0]


def index(client):
    return {m["name"]: (m["state"], m["reason"]) for m in json.loads(client.ask(request("POST", "/v2/repository/index")).body)}


def ask(client, name, verb, status=200, text=""):
    answer = client.ask(request("POST", "/v2/repository/models/%s/%s" % (name, verb), (), b"{}"))
    check(answer is not None and answer.status == status and text.encode() in answer.body, verb, name, answer)


def with_repository(folder, *more):
    return Daemon(PATH, *STARTS, "--model-repository", folder, *more)


# --- what is there ----------------------------------------------------------------------------------------------------------------

def write_all(folder):
    """Models of each form, and what is none."""
    write_model(folder + "/plain", 2)
    write_model(folder + "/versioned/1", 3)
    write(folder + "/one/model.safetensors", one_file(4))
    write(folder + "/named/model.json", dict(SCALE, initializers=[{"name": "k", "file": "b.safetensors", "key": "k"}]))
    write(folder + "/named/a.safetensors", weights(7))
    write(folder + "/named/b.safetensors", weights(5))
    write(folder + "/resident/model.json", dict(SCALE, initializers=[{"name": "k", "tensor": "start"}]))
    write(folder + "/start.npy", write_npy(Tensor("FP32", [1], [6.0])))
    os.symlink(folder + "/plain", folder + "/link")
    os.makedirs(folder + "/two words")
    os.makedirs(folder + "/.hidden")
    for name, make in (("empty", lambda path: None), ("broken", lambda path: write(path + "/model.json", b"{")),
                       ("fifo", lambda path: os.mkfifo(path + "/model.json")),
                       ("linked", lambda path: (write(path + "/model.json", SCALE), os.symlink(folder + "/plain/weights.safetensors", path + "/weights.safetensors"))),
                       ("short", lambda path: (write(path + "/model.json", SCALE), write(path + "/weights.safetensors", weights(1)[:-1]))),
                       ("missing", lambda path: write(path + "/model.json", SCALE)),
                       ("long", lambda path: write(path + "/model.json", b" " * ((1 << 20) + 1))),
                       ("far", lambda path: write(path + "/model.json", dict(SCALE, initializers=[{"name": "k", "file": "../plain/weights.safetensors", "key": "k"}]))),
                       ("node", lambda path: write(path + "/model.safetensors", one_file(1, dict(SCALE, nodes=[{"name": "up", "op": "matmul", "inputs": ["x", "k"], "outputs": ["y"]}])))),
                       ("huge", lambda path: sparse(path))):
        os.makedirs(folder + "/" + name)
        make(folder + "/" + name)
    write(folder + "/softmax/model.json", SCALE)


def sparse(path):
    """A GiB of weights, of which no byte is on the disk."""
    size = 1 << 30
    head = json.dumps({"k": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    write(path + "/model.json", SCALE)
    write(path + "/weights.safetensors", struct.pack("<Q", len(head)) + head)
    os.truncate(path + "/weights.safetensors", 8 + len(head) + size)


GOOD = {"plain": 2, "versioned": 3, "one": 4, "named": 5, "resident": 6}
BAD = {"empty": "neither model.json", "broken": "JSON", "fifo": "no ordinary file", "linked": "link", "short": "bytes", "missing": "no file", "long": "maximum",
       "far": "../plain", "node": "node 'up'", "huge": "1073741824"}


def at_start(folder):
    with with_repository(folder, "--tensors", folder + "/start.npy") as daemon:
        client = Client(daemon)
        states = index(client)
        for name, factor in GOOD.items():
            check(states.get(name) == ("READY", "") and factor_of(client, name) == factor, name, states.get(name), factor_of(client, name))
        for name, word in BAD.items():
            check(states.get(name, ("", ""))[0] == "UNAVAILABLE" and word in states[name][1], name, states.get(name))
            check(factor_of(client, name) is None, name, "answers")
        check(states["softmax"] == ("READY", "") and not {"link", "two words", ".hidden"} & set(states), "no models", sorted(states))
        bytes_of = json.loads(client.get("/v2/tensors?limit=1").body)["bytes"]
        check(bytes_of <= 5 * 4, "what could not be loaded holds", bytes_of)
        check(daemon.stop() == 0, "the daemon's exit")


def by_requests(folder):
    """explicit: load and unload; a changed file counts with the next load."""
    with with_repository(folder, "--load-model", "plain", "--load-model", "nowhere") as daemon:
        client = Client(daemon)
        check({n for n, s in index(client).items() if s[0] == "READY" and n in GOOD} == {"plain"}, "what was wanted", index(client))
        check(index(client)["one"] == ("UNAVAILABLE", "unloaded"), "what was not", index(client)["one"])
        ask(client, "one", "load")
        check(factor_of(client, "one") == 4, "loaded later", factor_of(client, "one"))
        ask(client, "broken", "load", 400)
        ask(client, "nowhere", "load", 404, "failed to load 'nowhere', failed to poll from model repository")
        ask(client, "link", "load", 404)
        ask(client, "softmax", "load")
        ask(client, "plain", "unload")
        check(factor_of(client, "plain") is None and index(client)["plain"] == ("UNAVAILABLE", "unloaded"), "unloaded", index(client)["plain"])
        write_model(folder + "/plain", 8)
        ask(client, "plain", "load")
        check(factor_of(client, "plain") == 8, "loaded again, as it is now", factor_of(client, "plain"))
        write(folder + "/plain/model.json", b"{")
        ask(client, "plain", "load", 400)
        check(factor_of(client, "plain") == 8 and index(client)["plain"] == ("READY", ""), "a bad file changes nothing", index(client)["plain"])
        write_model(folder + "/plain", 2)
        check(client.ask(request("PUT", "/v2/models/own", (), json.dumps(scaled(9.0)).encode())).status == 201, "PUT")
        ask(client, "own", "load")  # it is in no folder, and loaded
        check(factor_of(client, "own") == 9, "a model of a PUT")
        check(daemon.stop() == 0, "the daemon's exit")


def two_folders(folder, other):
    write_model(other + "/plain", 11)
    write_model(other + "/second", 12)
    with with_repository(folder, "--model-repository", other, "--model-control-mode", "none", "--load-model", "plain", "--tensors", folder + "/start.npy") as daemon:
        client = Client(daemon)
        check([factor_of(client, name) for name in ("plain", "second", "one")] == [2, 12, 4], "the first folder's, and all")
        for verb in ("load", "unload"):
            ask(client, "plain", verb, 503, "explicit model load / unload is not allowed if polling is enabled")
        check(client.ask(request("PUT", "/v2/models/own", (), json.dumps(scaled(9.0)).encode())).status == 201, "PUT")
        check(daemon.stop() == 0, "the daemon's exit")


# --- polls ----------------------------------------------------------------------------------------------------------------------------

def polls(folder):
    write_model(folder + "/m", 1)
    write_model(folder + "/goes", 5)
    with with_repository(folder, "--model-control-mode", "poll", "--repository-poll-secs", "1") as daemon:
        client, own = Client(daemon), Client(daemon)
        check(factor_of(client, "m") == 1 and factor_of(client, "goes") == 5, "at start")
        ask(client, "m", "load", 503, "polling is enabled")
        stop, seen, bad = threading.Event(), set(), []

        def serve():
            while not stop.is_set():
                factor = factor_of(own, "m")
                (seen.add if factor in (1, 2, 3) else bad.append)(factor)

        thread = threading.Thread(target=serve)
        thread.start()
        for factor in (2, 3):
            write(folder + "/m/weights.safetensors", weights(factor))
            check(comes_to(lambda: factor_of(client, "m"), factor) == factor, "a changed file", factor, factor_of(client, "m"))
        write(folder + "/m/model.json", b"{")
        write_model(folder + "/new", 7)
        check(comes_to(lambda: factor_of(client, "new"), 7) == 7, "a new folder", factor_of(client, "new"))
        check(factor_of(client, "m") == 3, "a bad file changes nothing", factor_of(client, "m"))
        shutil.rmtree(folder + "/goes")
        check(comes_to(lambda: factor_of(client, "goes"), None) is None, "a folder that has gone", factor_of(client, "goes"))
        check(index(client)["goes"] == ("UNAVAILABLE", "unloaded"), "its state", index(client)["goes"])
        stop.set()
        thread.join()
        check(not bad and {1, 3} <= seen, "answers while files change", seen, bad[:3])
        check(client.ask(request("PUT", "/v2/models/own", (), json.dumps(scaled(9.0)).encode())).status == 201 and factor_of(client, "own") == 9, "PUT")
        check(daemon.stop() == 0, "the daemon's exit")


# --- what ends the start --------------------------------------------------------------------------------------------------------------

def ends_with_78(word, *options):
    ports = free_ports(2)
    done = subprocess.run([PATH, *STARTS, "--listen", "127.0.0.1:%d" % ports[0], "--admin-listen", "127.0.0.1:%d" % ports[1], *options],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=60)
    last = [line for line in done.stderr.splitlines() if "level=error" in line][-1:]
    check(done.returncode == 78 and last and word in last[0], options, done.returncode, done.stderr)


def checked(*options):
    """Exit code of --check-config, and what it said."""
    ports = free_ports(2)
    done = subprocess.run([PATH, *STARTS, "--listen", "127.0.0.1:%d" % ports[0], "--admin-listen", "127.0.0.1:%d" % ports[1], "--check-config", *options],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=60)
    return done.returncode, done.stderr.splitlines()


def check_config(folder, other):
    """What a start would find, but for memory; a model is a warning, or with --exit-on-error a fault."""
    bad = {**BAD, "huge": "broadcast", "softmax": "an operation"}
    for more, code, kind in (((), 0, "warning: "), (("--exit-on-error",), 78, "")):
        got, said = checked("--model-repository", folder, *more)
        check(got == code and len(said) == len(bad), "--check-config", more, got, said)
        for name, word in bad.items():
            start = "kernserve: %smodel-repository: model '%s': " % (kind, name)
            check([line for line in said if line.startswith(start) and word in line], "--check-config", name, said)
    check(checked("--model-repository", other, "--exit-on-error") == (0, []), "good folders")
    got, said = checked("--model-repository", other, "--model-repository", folder + "/nowhere", "--load-model", "none")
    check(got == 78 and len(said) == 2 and "/nowhere" in said[0] and "load-model: none" in said[1], "a folder and a name", got, said)


def main():
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other, tempfile.TemporaryDirectory() as third:
        write_all(folder)
        at_start(folder)
        by_requests(folder)
        two_folders(folder, other)
        polls(third)
        ends_with_78("model-repository: " + folder + "/nowhere", "--model-repository", folder + "/nowhere")
        ends_with_78("model-repository: " + folder + "/start.npy", "--model-repository", folder + "/start.npy")
        check_config(folder, other)
        ends_with_78("broken", "--model-repository", folder, "--exit-on-error")
        ends_with_78("load-model: none", "--model-repository", other, "--exit-on-error", "--load-model", "none")
        ends_with_78("no models are loaded here", "--model-repository", other, "--no-resident")
        with with_repository(other, "--exit-on-error") as daemon:
            check(factor_of(Client(daemon), "second") == 12, "no error, and no exit")
            check(daemon.stop() == 0, "the daemon's exit")
    return wrongs()


if __name__ == "__main__":
    sys.exit(main())
