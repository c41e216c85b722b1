#!/usr/bin/env python3
"""Plants one fault at a time into a copy of the tree and says whether the tests catch it.

planted.py [--rows NAME,NAME] [--jobs N] [--all] [--check] [--table FILE] [--work FOLDER]

--check  only looks for the rows' texts (a second; for CI). --all: what the named tests let live meets every test.
--jobs   so many copies of the tree side by side, each with a build of its own; the number of cores is the preset.

The table (planted.def) has rows of this form; # begins a comment line:

    == name
    breaks: what a client or an operator would see
    in: the function that holds the text; where the text stands once in the tree it need not be right, which is said
    tests: names of ctest tests, separated by spaces; none: all of them
    build: asan (the fault shows to a sanitizer only), else left out
    lives: why no test catches it (a row that is named as alive)
    --
    the text to replace, any number of lines; white space is any white space
    ++
    what takes its place

More pairs of the two may follow, for code that stands in another form elsewhere: the first text that is found counts. A text
is looked for in all sources of the tree but tests, wherever they lie: it must be found exactly once (or once in the
named function). A row whose text is not found is stale, and that is a failure: code that changed needs its fault planted anew.
A copy is built once (with ccache: a minute), then each row builds what hangs on one file. Failures: a row that lives without
`lives`, is stale, or does not build; a test that fails without a fault.
"""

import argparse
import os
import queue
import re
import subprocess
import sys
import threading
import time

import tree_files

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCES = (".c", ".h", ".cc", ".cu", ".cuh", ".def")
CAUGHT, ALIVE, STALE, BROKEN, KNOWN = "caught", "ALIVE", "STALE", "DOES NOT BUILD", "alive, named"
TEST_SECONDS = 100  # a fault may make a daemon wait for ever: that is to be caught
# What the tests of the daemon are run with; building all of them costs a link each.
DAEMON_TARGETS = ("kernserve", "kernserve_faulty", "kernserve_streaming", "turns", "counts", "direct", "nvml_fake")


class Row:
    def __init__(self, name, fields, pairs):
        self.name, self.pairs = name, pairs
        self.breaks, self.function = fields.get("breaks", ""), fields.get("in", "")
        self.tests, self.build, self.lives = fields.get("tests", "").split(), fields.get("build", "plain"), fields.get("lives", "")


def read_table(path):
    rows = []
    with open(path) as file:
        lines = [line.rstrip("\n") for line in file if not line.startswith("#")]
    for part in re.split(r"^== ", "\n".join(lines), flags=re.M)[1:]:
        head, *ways = part.split("\n--\n")
        pairs = [tuple(text.strip("\n") for text in re.split(r"^\+\+$\n?", way, maxsplit=1, flags=re.M)) for way in ways]
        name, *lines_of = head.strip().split("\n")
        fields = dict((key.strip(), value.strip()) for key, value in (line.split(":", 1) for line in lines_of))
        unknown = set(fields) - {"breaks", "in", "tests", "build", "lives"}
        if unknown or not fields.get("breaks") or not pairs or not all(len(pair) == 2 and pair[0].strip() for pair in pairs):
            raise SystemExit("%s: row %s: %s" % (path, name, "unknown field %s" % ", ".join(unknown) if unknown else "incomplete"))
        rows.append(Row(name.strip(), fields, pairs))
    names = [row.name for row in rows]
    for name in names:
        if names.count(name) > 1:
            raise SystemExit("%s: row %s comes twice" % (path, name))
    return rows


def read_sources(names):
    sources = {}
    for name in names:
        if name.endswith(SOURCES) and not name.startswith("tests" + os.sep):
            with open(os.path.join(ROOT, name)) as file:
                sources[name] = file.read()
    return sources


def function_at(text, place):
    """The function whose body the place lies in: the last line before it that begins one."""
    heads = re.findall(r"^[A-Za-z_][^;{}=#\n]*?\b([A-Za-z_]\w*)\(", text[:place], flags=re.M)
    return heads[-1] if heads else ""


def places_of(find, sources):
    """Where a text stands: path, begin, end and function of each place."""
    pattern = re.compile(r"\s+".join(re.escape(word) for word in find.split()))
    return [(path, match.start(), match.end(), function_at(text, match.start()))
            for path, text in sources.items() for match in pattern.finditer(text)]


def locate(row, sources):
    """((path, begin, end, function), what takes the text's place) of a row; a sentence where there is not exactly one."""
    why = "the text is there no more"
    for find, put in row.pairs:
        found = places_of(find, sources)
        if len(found) > 1:
            why = "the text is there %d times, and not once in %s" % (len(found), row.function)
            found = [one for one in found if one[3] == row.function]
        if len(found) == 1:
            return (*found[0], put), None
    return None, why


def planted(text, begin, end, put):
    return text[:begin] + put + text[end:]


class Copy:
    """The tree again, with a build of each kind that a row wants. One thread."""

    def __init__(self, folder, names):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        for name in names:
            with open(os.path.join(ROOT, name), "rb") as file:
                content = file.read()
                if os.path.basename(name) == "CMakeLists.txt":
                    content = re.sub(rb"TIMEOUT 300", b"TIMEOUT %d" % TEST_SECONDS, content)
                self.write(name, content, os.stat(file.fileno()).st_mode)
        self.built = set()  # kinds that are configured

    def write(self, name, content, mode=None):
        """Only what differs is touched, so that a build has little to do."""
        path = os.path.join(self.folder, name)
        try:
            with open(path, "rb") as file:
                if file.read() == content:
                    return
        except OSError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        if mode is not None:
            os.chmod(path, mode)

    def run(self, command, seconds, log):
        # Without this what one copy has compiled would not serve the next.
        environment = {**os.environ, "CCACHE_BASEDIR": self.folder, "CCACHE_NOHASHDIR": "1"}
        environment.setdefault("ASAN_OPTIONS", "detect_leaks=1:halt_on_error=1")
        with open(log, "ab") as file:
            try:
                return subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment,
                                      timeout=seconds, check=False).returncode
            except subprocess.TimeoutExpired:
                return -1

    def configure(self, kind, log):
        # A fault often leaves something unused; that is not what is to be caught.
        flags = "-Wno-unused-parameter -Wno-unused-variable -Wno-unused-function -Wno-unused-but-set-variable"
        build = os.path.join(self.folder, "build-" + kind)
        if kind not in self.built:
            sanitize = "address,undefined" if kind == "asan" else ""
            self.run(["cmake", "-S", self.folder, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DKERNSERVE_CUDA=OFF",
                      "-DCMAKE_C_FLAGS=" + flags, "-DCMAKE_C_FLAGS_DEBUG=-O1 -g1", "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -g1",
                      "-DKS_SANITIZE=" + sanitize], 300, log)
            self.built.add(kind)
        return build

    def program_of(self, test):
        """What is built for a test: of emulate_NAME_HOW emulate_NAME, whose source is op_NAME.c."""
        name = test
        while name.startswith("emulate_") and not os.path.exists(os.path.join(self.folder, "tests", "ops", "op_%s.c" % name[8:])):
            name = name.rpartition("_")[0]
        return name

    def make(self, kind, tests, log):
        build, wanted = self.configure(kind, log), []
        for test in tests:
            wanted += DAEMON_TARGETS if test.startswith("http_") else [self.program_of(test)]
        return build, self.run(["cmake", "--build", build, "-j1", "--target", *(sorted(set(wanted)) or ["all"])], 1800, log)

    def test(self, build, tests, log):
        """True: all pass. A name without a test is no pass, nor is a test that is named and skipped."""
        command = ["ctest", "--test-dir", build, "--stop-on-failure", "--no-tests=error", "--output-on-failure"]
        if tests:
            command += ["-R", "^(%s)$" % "|".join(tests)]
        begin = os.path.getsize(log)
        good = self.run(command, 3600, log) == 0
        with open(log, errors="replace") as file:
            file.seek(begin)
            said = file.read()
        return good and (not tests or len(re.findall(r"^ *\d+/\d+ Test .* Passed ", said, flags=re.M)) == len(tests))


def judge(copy, row, place, sources, everything, log):
    """What became of one row."""
    path, begin, end, _, put = place
    copy.write(path, planted(sources[path], begin, end, put).encode())
    try:
        build, code = copy.make(row.build, row.tests, log)
        if code != 0:
            return BROKEN
        if not copy.test(build, row.tests, log):
            return CAUGHT
        if everything and row.tests:
            build, code = copy.make(row.build, (), log)
            if code == 0 and not copy.test(build, (), log):
                return CAUGHT
        return KNOWN if row.lives else ALIVE
    finally:
        copy.write(path, sources[path].encode())


def worker(number, given, names, sources, work, results, lock):
    copy = Copy(os.path.join(given.work, "copy%d" % number), names)
    sound = {}  # kind and test: it passes without a fault
    while True:
        try:
            row, place = work.get_nowait()
        except queue.Empty:
            return
        log, begun, verdict = os.path.join(given.work, row.name + ".log"), time.monotonic(), None
        if os.path.exists(log):
            os.remove(log)
        fresh = [test for test in row.tests or [""] if (row.build, test) not in sound]
        if fresh:
            build, code = copy.make(row.build, row.tests, log)
            for test in fresh:
                sound[row.build, test] = code == 0 and copy.test(build, [test] if test else [], log)
            begun = time.monotonic()
        unsound = [test for test in row.tests or [""] if not sound[row.build, test]]
        if unsound:
            verdict = "FAILS WITHOUT A FAULT: " + (" ".join(unsound) or "a test")
        else:
            verdict = judge(copy, row, place, sources, given.all, log)
        with lock:
            results[row.name] = verdict
            print("%-22s %-28s %-24s %4.0f s  %s" % (verdict, row.name, place[3] or os.path.basename(place[0]), time.monotonic() - begun,
                                                     row.lives if verdict == KNOWN else row.breaks), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--table", default=os.path.join(ROOT, "tests", "planted.def"))
    parser.add_argument("--work", default=os.path.join(ROOT, "build-planted"))
    given = parser.parse_args()
    given.work = os.path.abspath(given.work)
    rows, names = read_table(given.table), tree_files.files(ROOT)
    wanted = [name for name in given.rows.split(",") if name]
    for name in wanted:
        if name not in [row.name for row in rows]:
            raise SystemExit("no row %s" % name)
    rows = [row for row in rows if not wanted or row.name in wanted]
    sources, work, results = read_sources(names), queue.Queue(), {}
    for row in rows:
        place, why = locate(row, sources)
        if place is None:
            results[row.name] = STALE
            print("%-22s %-28s %s" % (STALE, row.name, why))
        else:
            if place[3] != row.function and not row.function.startswith("the table"):
                print("note: %s: the text is in %s now, not in %s" % (row.name, place[3] or place[0], row.function or "a function"))
            work.put((row, place))
    if not given.check:
        os.makedirs(given.work, exist_ok=True)
        lock, begun = threading.Lock(), time.monotonic()
        threads = [threading.Thread(target=worker, args=(i, given, names, sources, work, results, lock))
                   for i in range(max(1, min(given.jobs, len(rows))))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        missing = [row.name for row in rows if row.name not in results]
        print("%.0f s%s" % (time.monotonic() - begun, "; without a result: " + " ".join(missing) if missing else ""))
    counts = {}
    for verdict in results.values():
        counts[verdict] = counts.get(verdict, 0) + 1
    print("%d rows: %s" % (len(rows), ", ".join("%d %s" % (count, name) for name, count in sorted(counts.items())) or "all texts are there"))
    good = all(verdict in (CAUGHT, KNOWN) for verdict in results.values())
    return 0 if good and (given.check or len(results) == len(rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
