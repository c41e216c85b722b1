#!/usr/bin/env python3
"""Compares the machine code of the kernels of two builds: what a commit that only moves or renames has to keep.

    tests/check_sass.py OLD NEW

OLD and NEW are folders that hold objects (build folders), or single objects. The functions of both are compared as
multisets of bodies. A body is the instructions' encodings, as cuobjdump --dump-sass prints them, with the chip, the
registers and the memory that --dump-resource-usage gives. Names are no part of it, nor is an address: jumps are
relative, and what refers to another symbol is a relocation, which is zero in an object. So a call of a function that
was not inlined does not say which one it is: compare optimised builds where that matters.

Prints how many functions are equal, changed (the same name, another body), added and removed, and the names of the
first of each. Ends with 0 where all are equal, 1 where one differs, 77 where there is no cuobjdump."""
import collections
import hashlib
import os
import re
import shutil
import subprocess
import sys

NAMES_SHOWN = 20
FUNCTION = re.compile(r"^\s*Function\s*:?\s*([^\s:]+):?\s*$")
CHIP = re.compile(r"^\s*code for (\S+)")
ENCODING = re.compile(r"/\* (0x[0-9a-f]{16}) \*/\s*$")
RESOURCES = re.compile(r"^\s*(REG:.*)$")


def objects(path):
    if os.path.isfile(path):
        return [path]
    found = []
    for folder, _, files in os.walk(path):
        found += [os.path.join(folder, name) for name in files if name.endswith(".cu.o")]
    return sorted(found)


def lines(tool, option, path):
    with subprocess.Popen([tool, option, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        yield from process.stdout
    if process.returncode != 0:
        sys.exit(f"check_sass: {tool} {option} {path}: status {process.returncode}")


def functions(tool, path):
    """(name, body) of each function of an object."""
    resources, name = collections.defaultdict(list), None
    for line in lines(tool, "--dump-resource-usage", path):
        if match := FUNCTION.match(line):
            name = match[1]
        elif name and (match := RESOURCES.match(line)):
            resources[name].append(match[1])
            name = None
    found, chip, digest = [], "", None
    for line in lines(tool, "--dump-sass", path):
        if match := ENCODING.search(line):
            digest.update(match[1].encode())
        elif match := FUNCTION.match(line):
            used = resources[match[1]]
            digest = hashlib.sha256(f"{chip} {used.pop(0) if used else ''}".encode())
            found.append((match[1], digest))
        elif match := CHIP.match(line):
            chip = match[1]
    return [(name, digest.hexdigest()) for name, digest in found]


def all_functions(tool, path):
    paths = objects(path)
    found = [function for each in paths for function in functions(tool, each)]
    if not found:
        sys.exit(f"check_sass: {path}: {len(paths)} objects and no kernel")
    return found


def left(these, others):
    """Those of `these` whose bodies `others` has not, one for one."""
    count = collections.Counter(body for _, body in others)
    rest = []
    for name, body in these:
        if count[body] > 0:
            count[body] -= 1
        else:
            rest.append(name)
    return rest


def plain(names):
    if not names or not shutil.which("c++filt"):
        return names
    return subprocess.run(["c++filt"], input="\n".join(names), text=True, stdout=subprocess.PIPE).stdout.splitlines()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    tool = shutil.which("cuobjdump", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    if not tool:
        print("check_sass: no cuobjdump: skipped")
        return 77
    old, new = (all_functions(tool, path) for path in sys.argv[1:])
    removed, added = left(old, new), left(new, old)
    equal = len(old) - len(removed)
    both = collections.Counter(removed) & collections.Counter(added)
    changed = list(both.elements())
    removed = list((collections.Counter(removed) - both).elements())
    added = list((collections.Counter(added) - both).elements())
    for what, names in (("changed", changed), ("added", added), ("removed", removed)):
        for name in plain(sorted(names)[:NAMES_SHOWN]):
            print(f"{what}: {name[:200]}")
        if len(names) > NAMES_SHOWN:
            print(f"{what}: {len(names) - NAMES_SHOWN} more")
    print(f"{equal} equal, {len(changed)} changed, {len(added)} added, {len(removed)} removed")
    return 1 if changed or added or removed else 0


if __name__ == "__main__":
    sys.exit(main())
