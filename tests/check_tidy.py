#!/usr/bin/env python3
"""clang-tidy over the C sources of server/ and kernels/: check_tidy.py [--jobs N] [--all]

A source that was found clean is looked at again when something of it has changed: its text, that of a header that it includes, near or far,
.clang-tidy, the flags, the program or this file. Their hash is the name of an empty file below ${XDG_CACHE_HOME:-~/.cache}/kernserve/tidy, so that
all clones of a user share it, as they share ccache's objects; a name that nobody asked for in 30 days goes. --all looks at each.
Exit code 1: reports, or a source that does not compile; 77: clang-tidy-14 is not installed.
"""
import argparse
import concurrent.futures
import hashlib
import os
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TIDY = "clang-tidy-14"
FLAGS = ["-std=gnu17", "-D_GNU_SOURCE", '-DKS_VERSION="0"', "-Iinclude", "-Iserver", "-Ikernels"]
KEPT_S = 30 * 86400


def sources():
    for folder in ("kernels", "server"):
        for path, _, names in os.walk(os.path.join(ROOT, folder)):
            yield from (os.path.relpath(os.path.join(path, name), ROOT) for name in names if name.endswith(".c"))


def run(command):
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")


class Clean:
    """The hashes of what was found clean."""

    def __init__(self, flags):
        self.folder = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kernserve", "tidy")
        os.makedirs(self.folder, exist_ok=True)
        self.digests = {}
        self.flags = flags
        self.common = [run([TIDY, "--version"]).stdout, repr(flags), self.digest(".clang-tidy"), self.digest(os.path.abspath(__file__))]

    def digest(self, path):
        """Of a file's bytes, read once; paths within the tree do not count, so that clones agree."""
        if path not in self.digests:
            with open(os.path.join(ROOT, path), "rb") as file:
                self.digests[path] = hashlib.sha256(file.read()).hexdigest()
        return self.digests[path]

    def key(self, source):
        """None: the compiler does not find all that it includes."""
        listed = run(["gcc", "-M", "-MT", "x", *self.flags, source])
        if listed.returncode != 0:
            return None
        files = listed.stdout.replace("\\\n", " ").split()[1:]
        text = "\n".join(self.common + ["%s %s" % (os.path.relpath(f, ROOT) if f.startswith(ROOT) else f, self.digest(f)) for f in files])
        return os.path.join(self.folder, hashlib.sha256(text.encode()).hexdigest())

    def forget_old(self):
        for entry in os.scandir(self.folder):
            if entry.stat().st_mtime < time.time() - KEPT_S:
                os.remove(entry.path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    if not shutil.which(TIDY):
        print("%s is not installed" % TIDY)
        return 77
    flags = FLAGS + ["-DKS_HAVE_ONEDNN=1"] * os.path.exists("/usr/include/oneapi/dnnl/dnnl.h")
    clean, wrong, looked = Clean(flags), 0, 0

    def look(source):
        """(source, whether it was known, the reports or None)"""
        key = clean.key(source)
        if key and not given.all and os.path.exists(key):
            os.utime(key)
            return source, True, None
        found = run([TIDY, "--quiet", source, "--", *flags])
        if found.returncode != 0:
            return source, False, found.stdout
        if key:
            open(key, "w").close()
        return source, False, None

    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        for source, known, reports in pool.map(look, sorted(sources())):
            looked += not known
            if reports is not None:
                wrong += 1
                print("%s:\n%s" % (source, reports), flush=True)
    clean.forget_old()
    print("%d sources, %d of them looked at, %d with reports" % (len(list(sources())), looked, wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
