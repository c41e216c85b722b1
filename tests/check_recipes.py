#!/usr/bin/env python3
"""The recipes of CONTRIBUTING.md, followed: check_recipes.py [--each] [--without FILE] [--cost]

tests/recipes/NAME.py has a toy for each recipe: EDITS of files that are there, a test; tests/recipes/NAME/ holds its new files, at
their places in the tree. All toys go into one copy of the tree (build-test/recipes/tree), which is built once, for the CPU. Then
each toy's test runs against the daemon, and the files that its recipe touched are counted and compared with the number in
CONTRIBUTING.md. Documents, tests and what --dump-config prints are apart; check_docs.py and check_layers.py read the copy, too.

--each          leaves out each counted file in turn: the toy must then fail, or the number is too large
--without FILE  leaves out that one, and must fail as well: of all that a recipe touches
--cost          says what the build took; ccache serves what the toys do not change
Exit code 0: no fault.
"""
import argparse
import importlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import traceback

import tree_files

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RECIPES = os.path.join(ROOT, "tests", "recipes")
COPY = os.path.join(ROOT, "build-test", "recipes", "tree")
APART = re.compile(r"^(tests/|docs/|deploy/config/)|\.md$")
TARGETS = ["kernserve", "op_affine"] + ["emulate_affine"] * (platform.machine() == "x86_64")  # as tests/CMakeLists.txt has it


class Fault(Exception):
    pass


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Recipe:
    def __init__(self, name, without):
        self.name, self.module = name, importlib.import_module(name)
        self.new = sorted(tree_files.walk(os.path.join(RECIPES, name))) if os.path.isdir(os.path.join(RECIPES, name)) else []
        self.edits = [edit for edit in self.module.EDITS if edit[0] not in without]
        self.all = set(self.new) | {edit[0] for edit in self.module.EDITS}
        self.new = [path for path in self.new if path not in without]

    def counted(self):
        return sorted(path for path in self.all if not APART.search(path))

    def apply(self, texts):
        """Into {path: bytes}. An edit is (file, regular expression, template): the last place that it matches is replaced."""
        for path in self.new:
            if path in texts:
                raise Fault("%s is there already" % path)
            texts[path] = read(os.path.join(RECIPES, self.name, path))
        for path, anchor, template in self.edits:
            text = texts[path].decode() if path in texts else ""
            places = list(re.finditer(anchor, text, re.M))
            if not places:
                raise Fault("%s has no place for its edit: nothing matches %s" % (path, anchor))
            at = places[-1]
            texts[path] = (text[:at.start()] + at.expand(template) + text[at.end():]).encode()

    def stated(self):
        """The number that CONTRIBUTING.md states below the recipe's heading."""
        text = read(os.path.join(ROOT, "CONTRIBUTING.md")).decode()
        at = re.search(r"^## %s\n(.*?)(?=^## |\Z)" % re.escape(self.module.HEADING), text, re.M | re.S)
        number = at and re.search(r"^Files that must be touched: (\d+)", at.group(1), re.M)
        if not number:
            raise Fault("CONTRIBUTING.md: '%s' has no line 'Files that must be touched: N'" % self.module.HEADING)
        return int(number.group(1))


def write_copy(texts):
    """Only what differs is written: what did not change is not built again."""
    gone = set(tree_files.walk(COPY)) - set(texts) if os.path.isdir(COPY) else set()
    for path in gone:
        os.remove(os.path.join(COPY, path))
    for path, content in texts.items():
        to = os.path.join(COPY, path)
        if os.path.exists(to) and read(to) == content:
            continue
        os.makedirs(os.path.dirname(to), exist_ok=True)
        with open(to, "wb") as file:
            file.write(content)
        mode = os.path.join(ROOT, path)
        os.chmod(to, os.stat(mode).st_mode & 0o777 if os.path.exists(mode) else 0o644)


def command(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options)
    if done.returncode:
        lines = done.stdout.strip().splitlines()
        tail = "\n    ".join([line[:200] for line in lines if re.search(r"\berror\b|FAILED|undefined", line)][:10] + lines[-5:])
        raise Fault("%s: exit code %d\n    %s" % (" ".join(map(os.path.basename, words[:4])), done.returncode, tail))
    return done.stdout


def build(cost):
    begun, out = time.monotonic(), os.path.join(COPY, "build")
    env = {**os.environ, "CCACHE_BASEDIR": COPY, "CCACHE_NOHASHDIR": "1", "GIT_CEILING_DIRECTORIES": os.path.dirname(COPY)}
    cache = os.path.join(out, "CMakeCache.txt")
    if os.path.exists(cache) and b"HOME_DIRECTORY:INTERNAL=%s\n" % COPY.encode() not in read(cache):
        shutil.rmtree(out)  # it came along from elsewhere
    if not os.path.exists(os.path.join(out, "build.ninja")):
        command("cmake", "-S", COPY, "-B", out, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DKERNSERVE_CUDA=OFF", env=env)
    said = command("cmake", "--build", out, "-j", str(os.cpu_count()), "--target", *TARGETS, env=env)
    if cost:
        print("built in %.1f s: %s" % (time.monotonic() - begun, said.strip().splitlines()[-1][:100]))
    return out


def check_tree(out):
    """What holds for the tree holds for the copy."""
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": os.path.dirname(COPY)}
    command(sys.executable, "-B", os.path.join(COPY, "tests", "check_docs.py"), COPY, env=env)
    command(sys.executable, "-B", os.path.join(COPY, "tests", "check_layers.py"), out, env=env)


def run(recipes, cost=False):
    """{recipe's name: fault or None}, and that of the whole as "tree"."""
    texts = {path: read(os.path.join(ROOT, path)) for path in tree_files.files(ROOT)}
    faults = {}
    try:
        for recipe in recipes:
            recipe.apply(texts)
        write_copy(texts)
        out = build(cost)
    except Fault as fault:
        return {"tree": fault}
    try:
        check_tree(out)
    except Fault as fault:
        faults["tree"] = fault
    for recipe in recipes:
        try:
            faults[recipe.name] = recipe.module.test(os.path.join(out, "kernserve"), COPY, command)
        except (Fault, AssertionError, OSError, RuntimeError) as fault:
            line = traceback.extract_tb(fault.__traceback__)[-1]
            faults[recipe.name] = "%s:%d: %s: %s %s" % (os.path.basename(line.filename), line.lineno, line.line, type(fault).__name__, str(fault)[-600:])
    return faults


def load(without=()):
    names = sorted(f[:-3] for f in os.listdir(RECIPES) if f.endswith(".py"))
    return [Recipe(name, without) for name in names]


def report(recipes, faults):
    wrong = 0
    for recipe in recipes:
        counted, fault = recipe.counted(), faults.get(recipe.name)
        try:
            stated = recipe.stated()
            if stated != len(counted):
                fault = fault or "CONTRIBUTING.md says %d files" % stated
        except Fault as missing:
            fault = fault or missing
        wrong += fault is not None
        print("%-5s %-7s %d files, and %d of tests and documents: %s" % (
            "ok" if fault is None else "FAIL", recipe.name, len(counted), len(recipe.all) - len(counted), " ".join(counted)))
        if fault is not None:
            print("      %s" % fault)
    if "tree" in faults:
        print("FAIL  the copy: %s" % faults["tree"])
    return wrong + ("tree" in faults)


def leave_out(path):
    """1: nothing failed."""
    found = [(name, fault) for name, fault in run(load({path})).items() if fault is not None]
    line = str(found[0][1]).strip().splitlines() if found else []
    print("%-6s without %s: %s" % ("found" if found else "MISSED", path, "%s: %s" % (found[0][0], line[-1].strip()[:110]) if found else "no fault"))
    return 0 if found else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--without", metavar="FILE")
    parser.add_argument("--cost", action="store_true")
    words = parser.parse_args()
    sys.path[:0] = [RECIPES, os.path.join(ROOT, "tests", "http")]
    sys.dont_write_bytecode = True
    recipes = load()
    if words.without:
        return leave_out(words.without)
    wrong = report(recipes, run(recipes, words.cost))
    if words.each and not wrong:
        wrong = sum(leave_out(path) for path in sorted({p for recipe in recipes for p in recipe.counted()}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
