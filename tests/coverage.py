#!/usr/bin/env python3
"""Lines and branches that the tests reach in the parts that judge requests; fails below the least share of branches.

coverage.py [--build FOLDER] [--tests PATTERN] [--least PERCENT] [--missing] [--no-build] [--jobs N]

It configures FOLDER (build-coverage; KS_COVERAGE for the sources of PARTS alone, whose objects ccache cannot share, CPU only), builds what the
tests that PATTERN names run, forgets what earlier runs counted, runs them and asks gcov. --missing prints each line with a branch that was
never taken; --no-build reads what is there.

A name of PARTS that no object has is a failure, as is a group below
the least share. What does not count, each by a rule of its own:
  assert     the branches of an assert(): the other one ends the process.
  throw      branches that gcov calls exceptional: a call that does not come back.
  memory     a line that fails with KS_MEMORY or tests what malloc, calloc or realloc gave: the tests of failed allocations
             (test_decode, test_inflate) take many of them, but no run takes all of them.
  switch     the branch of a `switch` over an enum to nowhere: all rows of the enum have a case.
Needs gcc's gcov (the compiler's own version), CMake, Python 3.8 and nothing else.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# group: the sources
PARTS = {
    "head": ("server/base/head.c", "server/http/plain_head.c"),
    "JSON": ("server/codec/scan/scan.c", "server/codec/scan/scan_text.c", "server/codec/scan/scan_values.c", "server/codec/scan/scan_string.c",
             "server/codec/scan/scan_data.c", "server/codec/decode.c", "server/codec/json.c", "server/codec/params.c", "server/codec/raw.c",
             "server/codec/head_cache.c", "server/codec/file.c", "server/codec/npy.c", "server/codec/safetensors.c",
             "server/api/control_body.c", "server/base/number/read.c"),
    "shape": ("kernels/ops/spec/tensor.c", "kernels/ops/softmax.c", "kernels/ops/reduce.c"),
    "admission": ("server/engine/slots.c", "server/engine/budget.c", "server/engine/slot_queue.c", "server/engine/engine.c"),
    "error code": ("kernels/ops/spec/status.c", "server/http/response.c"),
}

# The unit tests and the kept inputs of the fuzzers. The daemon's tests add no branch to these sources that they lack, and take
# minutes: --tests . runs all of them.
TESTS = r"^(test_(tensor|backend|number|scan|decode|forms|inflate|plan|engine|head|admission|leaf)|op_(softmax|reduce)|http_(engine_named|tensors_resident|refusals)|replay_.*)$"

MEMORY = re.compile(r"\b(KS_MEMORY|malloc|calloc|realloc|aligned_alloc)\b")
BESIDE = ("kernserve_streaming", "kernserve_faulty")


def run(command, **keywords):
    return subprocess.run(command, check=True, **keywords)


def build(folder, tests, jobs):
    environment = {**os.environ, "CCACHE_BASEDIR": ROOT, "CCACHE_NOHASHDIR": "1"}
    # What is inlined by order would be counted once for each place that it is inlined to, and most of them are constants. The CPU's vectors
    # say __always_inline__, and stay inlined.
    configure = ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DKERNSERVE_CUDA=OFF",
                 "-DKS_COVERAGE=%s" % ";".join(name for names in PARTS.values() for name in names), "-DCMAKE_C_FLAGS=-Dalways_inline=unused -Wno-psabi"]
    run(configure, env=environment, stdout=subprocess.DEVNULL)
    shown = json.loads(run(["ctest", "--test-dir", folder, "--show-only=json-v1", "-R", tests], stdout=subprocess.PIPE).stdout)
    if not shown["tests"]:
        raise SystemExit("no test is called %s" % tests)
    # A test whose program is not there yet has no command, and is called as its program; what http tests run their command names, and BESIDE.
    programs = {test["name"] for test in shown["tests"] if "command" not in test}
    words = {word for test in shown["tests"] for word in test.get("command", ())} | {os.path.join(folder, "tests", name) for name in BESIDE}
    targets = sorted(programs | {os.path.relpath(word, folder) for word in words if word.startswith(folder + os.sep)})
    run(["cmake", "--build", folder, "-j", str(jobs), "--target", *targets], env=environment)


def counted(folder, suffix):
    for path, _, names in os.walk(folder):
        for name in names:
            if name.endswith(suffix):
                yield os.path.join(path, name)


def objects(folder):
    """A source -> its notes. What tests compile a second time (emulate) does not count."""
    found = {}
    for path in counted(folder, ".gcno"):
        place = re.search(r"\.dir/((?:server|kernels)/.*?\.c)(?:\.o)?\.gcno$", path)
        if place and "%stests%s" % (os.sep, os.sep) not in path[len(folder):]:
            found.setdefault(place[1], []).append(path)
    return found


def gcov(path, name):
    """What gcov tells of the source itself, not of the headers that it includes; None: no test ran it."""
    data = path[:-len(".gcno")] + ".gcda"
    if not os.path.exists(data):
        return None
    told = run(["gcov", "--json-format", "--stdout", "--branch-probabilities", data], cwd=os.path.dirname(path),
               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    for line in told.splitlines():
        record = json.loads(line)
        for file in record["files"]:
            if file["file"].endswith(name):
                return {**file, "file": os.path.join(record["current_working_directory"], file["file"])}
    return None


def source_of(file):
    with open(file["file"]) as text:
        return text.read().split("\n")


def rule(text, branch):
    """The rule by which a branch does not count; None: it does."""
    if branch["throw"]:
        return "throw"
    if "assert(" in text:
        return "assert"
    if MEMORY.search(text):
        return "memory"
    if text.lstrip().startswith("switch (") and branch["count"] == 0:
        return "switch"
    return None


class Sum:
    def __init__(self):
        self.lines = self.lines_hit = self.branches = self.branches_hit = 0
        self.left_out = {}

    def add(self, other):
        self.lines += other.lines
        self.lines_hit += other.lines_hit
        self.branches += other.branches
        self.branches_hit += other.branches_hit
        for name, count in other.left_out.items():
            self.left_out[name] = self.left_out.get(name, 0) + count

    def share(self):
        return 100.0 * self.branches_hit / self.branches if self.branches else 100.0

    def row(self, name):
        lines = 100.0 * self.lines_hit / self.lines if self.lines else 100.0
        left_out = ", ".join("%s %d" % pair for pair in sorted(self.left_out.items()))
        return "%-24s lines %5.1f %% of %4d   branches %5.1f %% of %4d   left out: %s" % (
            name, lines, self.lines, self.share(), self.branches, left_out or "none")


def judge(file, missing):
    text, total = source_of(file), Sum()
    for line in file["lines"]:
        here = text[line["line_number"] - 1]
        total.lines += 1
        total.lines_hit += line["count"] > 0
        untaken = []
        for i, branch in enumerate(line["branches"]):
            why = rule(here, branch)
            if why:
                total.left_out[why] = total.left_out.get(why, 0) + 1
                continue
            total.branches += 1
            total.branches_hit += branch["count"] > 0
            if branch["count"] == 0:
                untaken.append(str(i))
        if untaken and missing:
            print("    %s:%d (%s of %d): %s" % (os.path.basename(file["file"]), line["line_number"], ",".join(untaken),
                                                len(line["branches"]), here.strip()))
    return total


def report(folder, least, missing):
    found, faults = objects(folder), []
    for group, names in PARTS.items():
        total = Sum()
        for name in names:
            if len(found.get(name, ())) != 1:
                faults.append("%s: %d objects have this name, one is wanted: mend PARTS" % (name, len(found.get(name, ()))))
                continue
            file = gcov(found[name][0], name)
            if file is None:
                faults.append("%s: no test ran it" % name)
                continue
            one = judge(file, missing)
            print(one.row("  " + name))
            total.add(one)
        print(total.row(group))
        if total.share() < least:
            faults.append("%s: %.1f %% of the branches, %g %% are wanted" % (group, total.share(), least))
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build-coverage"))
    parser.add_argument("--tests", default=TESTS)
    parser.add_argument("--least", type=float, default=90)
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    folder, begun, faults = os.path.abspath(given.build), time.monotonic(), []
    if not given.no_build:
        build(folder, given.tests, given.jobs)
        for path in list(counted(folder, ".gcda")):
            os.remove(path)
        print("built after %.0f s" % (time.monotonic() - begun), flush=True)
        tests = subprocess.run(["ctest", "--test-dir", folder, "-j", str(given.jobs), "-R", given.tests, "--output-on-failure"],
                               env={"KS_CASES": "10", **os.environ})
        if tests.returncode != 0:
            faults.append("a test failed: what it did not reach is not the tests' fault")
        print("tested after %.0f s" % (time.monotonic() - begun), flush=True)
    faults += report(folder, given.least, given.missing)
    for fault in faults:
        print("FAULT", fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
