#!/usr/bin/env python3
"""Models loaded, replaced and unloaded while clients ask them; exit code 1 where a promise does not hold: each answer is one version's, or
404 behind an unload, and memory, descriptors and threads are as before.

models_load.py KERNSERVE [--count 10000] [--clients 64] [--seconds 0] [--backend cpu]     that many loads, or for as long
"""

import argparse
import os
import struct
import sys
import threading
import time

COUNT, CLIENTS, GROWTH_KIB = 10000, 64, 4096
parser = argparse.ArgumentParser()
parser.add_argument("kernserve")
parser.add_argument("--count", type=int, default=COUNT)
parser.add_argument("--clients", type=int, default=CLIENTS)
parser.add_argument("--seconds", type=float, default=0)
parser.add_argument("--backend", default="cpu")
parser.add_argument("--growth", type=int, default=GROWTH_KIB, help="KiB of memory that are no leak; a sanitizer keeps what is freed")
GIVEN = parser.parse_args()
sys.argv[1:] = [GIVEN.kernserve]

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from daemon import Daemon, comes_to, metric, request  # noqa: E402
from model_files import SCALE, model_file, put_file  # noqa: E402
from model_loads import body_of, files_of, post  # noqa: E402
from model_rows import put_model  # noqa: E402
from models import Client, resident_bytes, scaled  # noqa: E402
from tensors import Tensor  # noqa: E402

BEFORE = 300  # loads until memory is what it stays


def state_of(process):
    with open("/proc/%d/status" % process) as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["VmRSS"].split()[0]), int(fields["Threads"])


def ask(daemon, number, stop, wrong, seen):
    """A small request and a large one in turn; the model's outputs are one factor all over."""
    client, sizes = Client(daemon), (1 + number, 1000 + 7 * number)
    while not stop.is_set():
        for n in sizes:
            answer = client.ask(request("POST", "/v2/models/loaded/infer?shape=%d" % n, (), struct.pack("<f", 1.0) * n))
            if answer is not None and (answer.status == 404 or answer.header("kernserve-error") == "loading"):
                seen.add(404)
                continue
            values = set(struct.unpack("<%df" % n, answer.body)) if answer is not None and answer.status == 200 else set()
            if len(values) != 1 or not values <= {float(i) for i in range(7)}:
                wrong.append((answer, sorted(values)[:4]))
                return
            seen.update(values)


def load(client, i):
    """By each way in turn; a fiftieth are unloaded first."""
    factor = Tensor("FP32", [1], [float(i % 7)])
    if i % 50 == 49:
        client.delete("/v2/models/loaded")
    asked = (put_file("loaded", model_file(SCALE, {"k": factor})), post("loaded", body_of({}, files_of(SCALE, {"k": factor}))),
             put_model("loaded", scaled(float(i % 7))))[i % 3]
    answer = client.ask(asked)
    return None if answer is not None and answer.status in (200, 201) else answer or "no answer"


def main():
    problems, wrong, seen, stop = [], [], set(), threading.Event()
    with Daemon(GIVEN.kernserve, "--backend", GIVEN.backend, "--pinned-bytes", "64M", "--resident-bytes", "64M", "--log-level", "error") as daemon:
        client, process = Client(daemon), daemon.process.pid
        problems += filter(None, (load(client, i) for i in range(BEFORE)))
        threads = [threading.Thread(target=ask, args=(daemon, i, stop, wrong, seen)) for i in range(GIVEN.clients)]
        for thread in threads:
            thread.start()
        problems += filter(None, (load(client, i) for i in range(BEFORE)))
        before, i, begun = state_of(process), 0, time.monotonic()
        while not problems and not wrong and (i < GIVEN.count if not GIVEN.seconds else time.monotonic() - begun < GIVEN.seconds):
            fault = load(client, i)
            problems += [fault] if fault else []
            i += 1
        took = time.monotonic() - begun
        stop.set()
        for thread in threads:
            thread.join()
        client.delete("/v2/models/loaded", 204)
        left = comes_to(lambda: (resident_bytes(client), metric(daemon.metrics(), "kernserve_inflight_bytes")), (0, 0))
        after = state_of(process)
        problems += ["bytes left: %s" % (left,)] if left != (0, 0) else []
        problems += ["RSS in KiB and threads: %s, then %s" % (before, after)] if after[0] - before[0] > GIVEN.growth or after[1] > before[1] else []
        problems += ["the daemon's exit"] if daemon.stop() else []
    problems += wrong
    print("%d loads in %.1f s under %d clients, answers of %s; RSS %d, then %d KiB" % (i, took, GIVEN.clients, sorted(seen), before[0], after[0]))
    for problem in problems[:5]:
        print("WRONG", problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
