#!/usr/bin/env python3
"""The fastest way of a plan is tried and kept: by hand, before ready, in idle turns, and over a restart.

tune.py KERNSERVE     on the CPU, where an FP32 matmul has two ways if oneDNN is there
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import time

from daemon import Daemon, check, request, wrongs

SHAPES = "24,24:24,24:FP32"
QUERY = "shape=24,24&shape=24,24"
OPTIONS = ("--backend", "cpu", "--threads", "1", "--pinned-bytes", "16M", "--log-format", "json")


def run(path, *arguments):
    done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def plan(daemon):
    answer = daemon.get("/v2/models/matmul/plan?" + QUERY)
    check(answer.status == 200, answer)
    return json.loads(answer.body)


def lines(daemon, message):
    return [line for line in daemon.said().splitlines() if '"%s"' % message in line]


def multiply(connection):
    """Whole numbers: every way gives the same."""
    a, b = [i % 5 for i in range(576)], [i % 7 - 3 for i in range(576)]
    answer = connection.ask(request("POST", "/v2/models/matmul/infer?" + QUERY, (), struct.pack("<1152f", *a, *b)))
    c = struct.unpack("<576f", answer.body)
    right = [sum(a[24 * i + k] * b[24 * k + j] for k in range(24)) for i in range(24) for j in range(24)]
    check(answer.status == 200 and list(c) == right, "a product", answer)


def refusals(path):
    for arguments, code, words in [
        (("--tune",), 64, "--tune needs shapes"),
        (("--tune", "4,4:5,5"), 78, "inner sizes differ"),
        (("--tune", "4,x:4,4"), 78, "is not like"),
        (("--tune", "4,4:4,4:FP99"), 78, "no such datatype"),
        (("--tune", "4,4:4,4?precision=tf16"), 78, "a parameter"),
        (("--tune", "nosuch:4,4"), 78, "no such model"),
        (("--tune", "4,4:4,4", "--backend", "gpu"), 64, "backend"),
    ]:
        got, out, said = run(path, *arguments)
        check(got == code and words in said and len(said.splitlines()) == 1 and not out, arguments, got, out, said)
    got, out, said = run(path, "--tune", SHAPES)
    if got != 0:  # no GPU here: said plainly, and the table does not begin
        check(got == 69 and "--backend cpu" in said and said.count("no GPU that works") <= 1 and not out, got, out, said)


def by_hand(path, folder):
    cache = os.path.join(folder, "by-hand")
    command = ("--backend", "cpu", "--tune-cache", cache, "--tune", SHAPES, "matmul_tb:16,8:12,8", "softmax:4,4")
    got, out, said = run(path, *command)
    table = out.splitlines()
    check(got == 0 and len(table) == 5, got, out, said)
    check(said.splitlines() == ["%d of 3: %s" % (i + 1, s) for i, s in enumerate(command[5:])], said)
    check("nothing to choose from" in table[4], table)
    ways = table[2].split()
    if ways[1] == "-":
        return False
    check(ways[0] == SHAPES and ways[1] == "2" and ways[-1] in ("onednn", "reference"), table)
    with open(cache, encoding="ascii") as file:
        kept = file.read()
    check(kept.startswith("kernserve tuned choices 1\n") and len(kept.splitlines()) == 3, kept)
    got, again, _ = run(path, *command)
    check(got == 0 and again.splitlines()[2].endswith(" (known)"), again)
    check(os.listdir(folder) == ["by-hand"], os.listdir(folder))
    return True


def before_ready(path, folder):
    """Tried for --warm, kept in the file, and in use from the first request after a restart."""
    cache = os.path.join(folder, "at-start")
    with Daemon(path, *OPTIONS, "--tune-cache", cache, "--warm", "matmul:" + SHAPES) as daemon:
        first = plan(daemon)
        check(first["tuned"]["candidates"] == 2 and first["tuned"]["us"] > 0, first)
        check(first["tuned"]["heuristic"] == "onednn" and first["tuned"]["heuristic_us"] > 0, first)
        with daemon.connect() as connection:
            multiply(connection)
        daemon.says('"plan tuned".*\n')
        check(len(lines(daemon, "plan tuned")) == 1, daemon.said())
        check(daemon.stop() == 0, "the daemon's end")
    with Daemon(path, *OPTIONS, "--tune-cache", cache) as daemon:
        with daemon.connect() as connection:
            multiply(connection)
        again = plan(daemon)
        check((again["kernel"], again["tuned"]) == (first["kernel"], first["tuned"]), first, again)
        check(not lines(daemon, "plan tuned"), daemon.said())
        check(daemon.stop() == 0, "the daemon's end")
    with Daemon(path, *OPTIONS, "--tune-cache", cache, "--autotune", "off") as daemon:
        check(plan(daemon)["tuned"] is None, plan(daemon))
        check(daemon.stop() == 0, "the daemon's end")


def broken_file(path, folder):
    """One line in the log, and everything works."""
    for name, text in [("foreign", "#!/bin/sh\necho\n"), ("damaged", "kernserve tuned choices 1\nx\n")]:
        cache = os.path.join(folder, name)
        with open(cache, "w", encoding="ascii") as file:
            file.write(text)
        with Daemon(path, *OPTIONS, "--tune-cache", cache, "--warm", "matmul:" + SHAPES) as daemon:
            check(plan(daemon)["tuned"]["candidates"] == 2, plan(daemon))
            daemon.says('"the tune cache is ignored".*\n')
            check(len(lines(daemon, "the tune cache is ignored")) == 1, daemon.said())
            check(daemon.stop() == 0, "the daemon's end")
            check(len(lines(daemon, "the tune cache is not written")) == (name == "foreign"), daemon.said())
        with open(cache, encoding="ascii") as file:
            check((file.read() == text) == (name == "foreign"), name)


def in_idle_turns(path, folder):
    """Requests that come while ways are tried are answered, and then the plan is tuned."""
    cache = os.path.join(folder, "live")
    with Daemon(path, *OPTIONS, "--tune-cache", cache, "--autotune", "background") as daemon:
        until = time.monotonic() + 30
        with daemon.connect() as connection:
            for _ in range(20):
                multiply(connection)
            while plan(daemon)["tuned"] is None and time.monotonic() < until:
                multiply(connection)
                time.sleep(0.01)
            tuned = plan(daemon)
            check(tuned["tuned"] is not None and tuned["tuned"]["candidates"] == 2, tuned)
            multiply(connection)
        while not os.path.exists(cache) and time.monotonic() < until:
            time.sleep(0.01)
        check(os.path.exists(cache), "the file is written while the daemon serves")
        check(daemon.stop() == 0, "the daemon's end")


def main():
    path = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        refusals(path)
        two_ways = by_hand(path, folder)
        if two_ways:
            before_ready(path, folder)
            broken_file(path, folder)
            in_idle_turns(path, folder)
    print("%d wrong%s" % (wrongs(), "" if two_ways else "; without oneDNN there is nothing to choose from: the rest is skipped"))
    return 1 if wrongs() else 0 if two_ways else 77


if __name__ == "__main__":
    sys.exit(main())
