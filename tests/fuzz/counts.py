#!/usr/bin/env python3
"""Runs the fuzz targets one after the other and counts: executions, what is covered, crashes.

counts.py BUILD [--work FOLDER] [--seconds S] [--runs N] [--only NAMES]

BUILD is a build with -DKS_FUZZ=ON and clang: Release for executions, Debug with -DKS_SANITIZE=address,undefined for what a sanitizer
sees, a twentieth as quick. Each target runs for S seconds or N executions, whichever ends first, from its kept corpus and from what
earlier runs with the same FOLDER found; executions of all those runs are added up there (counts.json). An input that ends a target stays
in FOLDER/crashes: mend the cause, then keep the input in tests/fuzz/corpus. Exit code 1: there was one.

Asked for are 10^9 executions of the parsers together, 10^8 of the head, 10^7 of whole connections."""
import argparse
import fcntl
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GROUPS = (("parsers", 10 ** 9, ("scan", "oip", "inflate", "compat", "chunks", "definition", "load")), ("head", 10 ** 8, ("head",)), ("http", 10 ** 7, ("http",)))


def found(pattern, text, otherwise=0):
    match = re.search(pattern, text, re.M)
    return int(match.group(1)) if match else otherwise


def fuzz(given, name):
    """(executions, whether it crashed)"""
    corpus, crashes = (os.path.join(given.work, *parts) for parts in (("corpus", name), ("crashes",)))
    os.makedirs(corpus, exist_ok=True)
    os.makedirs(crashes, exist_ok=True)
    before = len(os.listdir(corpus))
    begun = time.monotonic()
    done = subprocess.run([os.path.join(given.build, "tests", "fuzz_" + name), "-runs=%d" % given.runs, "-max_total_time=%d" % given.seconds,
                           "-print_final_stats=1", "-timeout=20", "-artifact_prefix=%s/%s-" % (crashes, name), corpus, os.path.join(HERE, "corpus", name)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = done.stdout.decode("utf-8", "replace")
    executions = found(r"^stat::number_of_executed_units: (\d+)", text)
    edges = [int(value) for value in re.findall(r"\scov: (\d+)", text)]
    print("%-11s %11d executions in %4.0f s; edges %5d, %5d at the start; %5d inputs new%s" % (
        name, executions, time.monotonic() - begun, edges[-1] if edges else 0, found(r"INITED cov: (\d+)", text), len(os.listdir(corpus)) - before,
        "; CRASHED" if done.returncode else ""), flush=True)
    if done.returncode:
        print(text[-4000:], flush=True)
    return executions, done.returncode != 0 or executions == 0


def added(path, name, executions):
    """The counts of all runs. Read and written at once, under a lock: several may run side by side."""
    with open(path, "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        counts = json.loads(file.read() or "{}")
        counts[name] = counts.get(name, 0) + executions
        file.truncate(0)
        json.dump(counts, file)
    return counts


def main():
    names = [name for _, _, members in GROUPS for name in members]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--work", default="fuzz-work", help="corpora, counts and crash inputs (fuzz-work)")
    parser.add_argument("--seconds", type=int, default=60, help="of each target (60)")
    parser.add_argument("--runs", type=int, default=-1, help="of each target, at most (no limit)")
    parser.add_argument("--only", default=",".join(names), help="targets, with commas")
    given = parser.parse_args()
    only = given.only.split(",")
    if set(only) - set(names):
        parser.error("no such targets: %s" % ", ".join(sorted(set(only) - set(names))))
    os.makedirs(given.work, exist_ok=True)
    counts, crashed = {}, []
    for name in only:
        executions, bad = fuzz(given, name)
        counts = added(os.path.join(given.work, "counts.json"), name, executions)
        crashed += [name] * bad
    for group, asked, members in GROUPS:
        sum_of = sum(counts.get(name, 0) for name in members)
        print("%-11s %11d executions in all, %.4f of the %d asked for" % (group, sum_of, sum_of / asked, asked))
    print("crashed: %s" % (", ".join(crashed) or "none"))
    return 1 if crashed else 0


if __name__ == "__main__":
    sys.exit(main())
