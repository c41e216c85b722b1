#!/usr/bin/env python3
"""--self-test: every figure is there and larger than 0, or null where the backend has no such thing; what is computed
follows from its parts; a wrong form, and a daemon that refuses the load, end with a clear line.

engine_selftest.py DAEMON"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from daemon import daemon_path  # noqa: E402

ON_A_GPU = ("graph_empty_us", "graph_flag_us", "copy_h2d_gbs", "copy_d2h_gbs", "copy_both_gbs")
ANYWHERE = ("echo_turn_us", "memcpy_gbs", "engine_row_us", "engine_large_gbs")


def run(*options):
    return subprocess.run([daemon_path(), "--backend", "cpu", "--pinned-bytes", "64M", "--self-test-time", "500ms",
                           *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, text=True)


def near(a, b):
    return abs(a - b) <= 1e-4 * abs(b)


def as_json():
    ended = run("--self-test=json", "--threads", "2", "--max-body", "4M")
    assert ended.returncode == 0, (ended.returncode, ended.stderr)
    told = json.loads(ended.stdout)
    assert told["backend"] == "cpu" and told["shards"] == 2 and told["cores"] >= 1 and told["load_threads"] >= 1, told
    assert told["shares_cores"] == (told["shards"] + told["load_threads"] > told["cores"]), told
    floors = told["floors"]
    assert sorted(floors) == sorted(ON_A_GPU + ANYWHERE), floors
    assert all(floors[name] is None for name in ON_A_GPU), "the CPU has no graphs and no link: %s" % floors
    assert all(floors[name] > 0 for name in ANYWHERE), floors
    assert [cell["connections"] for cell in told["requests"]] == [1, 16, 128, 4]
    for cell in told["requests"]:
        for side in (cell["daemon"], cell["echo"]):
            assert all(side[name] > 0 for name in ("per_s", "gbs", "p50_us", "p99_us")), cell
            assert side["p50_us"] <= side["p99_us"] and near(side["gbs"], side["per_s"] * cell["bytes"] / 1e9), cell
        assert near(cell["ratio"], cell["daemon"]["per_s"] / cell["echo"]["per_s"]), cell
    alone, large, distance = told["requests"][0], told["requests"][-1], told["distance"]
    assert alone["bytes"] == 4096 and large["bytes"] == 4 << 20
    assert distance["floor_of"] == ["echo_turn_us", "engine_row_us"]
    assert near(distance["floor_us"], sum(floors[name] for name in distance["floor_of"])), distance
    assert distance["p50_us"] == alone["daemon"]["p50_us"] and floors["echo_turn_us"] == alone["echo"]["p50_us"]
    assert near(distance["p50_per_floor"], distance["p50_us"] / distance["floor_us"]), distance
    assert near(distance["large_per_echo"], large["daemon"]["gbs"] / large["echo"]["gbs"]), distance
    assert near(distance["large_per_engine"], large["daemon"]["gbs"] / floors["engine_large_gbs"]), distance
    assert distance["large_per_copy_both"] is None, distance


def as_table():
    ended = run("--self-test", "--max-body", "1M", "--connections", "8")
    assert ended.returncode == 0, (ended.returncode, ended.stderr)
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("kernserve ") and any(line.startswith("distance") for line in lines), ended.stdout
    assert sum("none on this backend" in line for line in lines) == len(ON_A_GPU), ended.stdout
    parts = ended.stderr.splitlines()
    assert len(parts) == 5 and all(part.startswith("self-test: %d of 5, " % (i + 1)) for i, part in enumerate(parts)), ended.stderr
    assert parts[0].endswith("0.5 s left: limits of this host") and parts[1].endswith(" 1 connections, bodies of 4096 bytes"), ended.stderr
    rows = [line.split() for line in lines if line.count("|") == 3][1:]
    # --max-body and --connections bound the load.
    assert [(row[0], row[1]) for row in rows] == [("4096", "1"), ("4096", "8"), ("4096", "8"), ("1048576", "4")], rows


def refusals():
    ended = run("--self-test=xml")
    assert ended.returncode == 64 and "is none of table|json" in ended.stderr and not ended.stdout, ended
    ended = run("--self-test", "--max-work", "1")
    assert ended.returncode == 70 and "413" in ended.stderr and not ended.stdout, ended


def main():
    for test in (as_json, as_table, refusals):
        test()
        print("%s: as promised" % test.__name__)


main()
