#!/usr/bin/env python3
"""The folders as layers: check_layers.py [BUILD-FOLDER]

CMakeLists.txt has a line for each folder, the lowest first: ks_layer(FOLDER LAYER... LIBRARIES LIBRARY...). A folder includes
include/ and the layers of its line, and calls those; with BUILD-FOLDER the calls are read from the objects there. Faults: an
include or a call of another layer, a layer that its line names and that stands below it, a circle of files that call each other,
a library outside its one file, inline assembly outside common/ptx*, and the calls of libmicrohttpd that lead into its traps.
"""
import collections
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = re.compile(r"\.(c|h|cc|cu|cuh|def)$")
# a header: the files that may include it
DOORS = [
    ("microhttpd.h", "server/http/mhd.c"),
    ("gnutls/", "server/http/tls/tls.c"),
    ("nettle/", "server/resident/hash.c"),
    ("cjson/cJSON.h", "server/codec/json_tree.c"),
    ("zlib.h", "server/codec/inflate.c server/codec/deflate.c"),
    ("charconv", "server/base/number/number.cc"),
    ("oneapi/dnnl/", "kernels/cpu/onednn.c"),
    ("cublas", "kernels/cuda/matmul/cublaslt.cu"),
    ("cuda", "kernels/cuda/"),
    ("nvtx3/", "kernels/cuda/common/nvtx.h"),
    ("cub/", "kernels/cuda/"),
]
# what tests/http/engine_traps.py says of the library and no test can show
TRAPS = re.compile(r"MHD_quiesce_daemon|MHD_set_connection_option|MHD_OPTION_THREAD_POOL_SIZE|MHD_USE_TURBO|"
                   r"MHD_USE_INTERNAL_POLLING_THREAD|MHD_run_from_select|MHD_run_wait\((?!http->(library|tls), 0\))")
# The circles of files that call each other and stay, with the reason: none may join them.
CIRCLES = {
    "server/engine/engine.c server/engine/graphs.c server/engine/tune/tune.c":
        "a trial is a launch that collect hands back to the tuner, and a failed capture may find the device lost",
    "server/http/mhd.c server/http/plain.c server/http/plain_io.c server/http/turn.c":
        "the plain transport hands connections over to libmicrohttpd's, and the IO queue ends requests that it has moved",
}

faults, left = [], []


def read_layers():
    layers = collections.OrderedDict()
    for words in re.findall(r"^ks_layer\(([^)]*)\)", open(os.path.join(ROOT, "CMakeLists.txt")).read(), re.M):
        folder, *rest = words.split("LIBRARIES")[0].split()
        below = {os.path.basename(name): name for name in layers}
        for name in rest:
            if name not in below:
                faults.append("CMakeLists.txt: ks_layer(%s) names %s, which does not stand above it" % (folder, name))
        layers[folder] = {below[name] for name in rest if name in below}
    if not layers:
        sys.exit("CMakeLists.txt has no ks_layer line")
    return layers


def layer_of(path, layers):
    for folder in layers:
        if path.startswith(folder + "/"):
            return folder
    return "include" if path.startswith("include/") else "main" if path == "server/main.c" else None


def may_know(layer, other, layers):
    return other in (layer, "include") or layer == "main" or other in layers.get(layer, ())


def check_library(path, header):
    for name, files in DOORS:
        if header.startswith(name):
            if not any(path == file or file.endswith("/") and path.startswith(file) for file in files.split()):
                faults.append("%s includes <%s>, which belongs to %s" % (path, header, files))
            return


def check_includes(layers):
    count = 0
    for top in ("include", "kernels", "server"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for path in (os.path.relpath(os.path.join(folder, n), ROOT) for n in sorted(names) if SOURCE.search(n)):
                count += 1
                check_file(path, layers)
    return count


def check_file(path, layers):
    layer = layer_of(path, layers)
    if layer is None:
        faults.append("%s lies in no layer: ks_layer lines of CMakeLists.txt" % path)
        return
    text = open(os.path.join(ROOT, path)).read()
    for header in re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', text, re.M):
        found = [r for r in (os.path.dirname(path), "server", "kernels", "include") if os.path.exists(os.path.join(ROOT, r, header))]
        if not found:
            check_library(path, header)
        elif not may_know(layer, layer_of(os.path.normpath(os.path.join(found[0], header)), layers), layers):
            faults.append("%s includes %s, a layer that it must not know" % (path, header))
    if re.search(r"\basm\b\s*(volatile)?\s*\(", text) and not re.search(r"/common/ptx[^/]*$", path):
        faults.append("%s has inline assembly, which belongs to kernels/cuda/common/ptx*" % path)
    if path == "server/http/mhd.c":
        faults.extend("%s: %s is one of libmicrohttpd's traps" % (path, call) for call in TRAPS.findall(text))


def read_objects(build, layers):
    """{(layer, source): (defined symbols, undefined symbols)} of the layers' objects."""
    objects = {}
    for top in sorted(glob.glob(os.path.join(build, "CMakeFiles", "ks_*.dir"))):
        for place, _, names in os.walk(top):
            for path in (os.path.join(place, name) for name in names if name.endswith(".o")):
                source = os.path.relpath(path, top)[:-2]
                folder = layer_of(source, layers)
                if folder not in layers or not os.path.exists(os.path.join(ROOT, source)):
                    continue  # of a file that is gone
                defined, wanted = objects.setdefault((folder, os.path.relpath(source, folder)), (set(), set()))
                for line in subprocess.run(["nm", "-P", "-g", path], capture_output=True, text=True, check=True).stdout.splitlines():
                    symbol, kind = line.split()[:2]
                    (wanted if kind == "U" else defined).add(symbol)
    return objects


def check_calls(build, layers):
    objects = read_objects(build, layers)
    if not objects:
        sys.exit("%s: no object of a layer there" % build)
    home = {symbol: place for place, (defined, _) in objects.items() for symbol in defined}
    calls = collections.defaultdict(dict)
    for place, (_, wanted) in objects.items():
        for symbol in sorted(wanted):
            to = home.get(symbol)
            if to is None or to == place:
                continue
            if not may_know(place[0], to[0], layers):
                faults.append("%s/%s calls %s of %s/%s, a layer that it must not know" % (*place, symbol, *to))
            elif to[0] == place[0]:
                calls[place][to] = symbol
    for circle in find_circles(calls):
        names = " ".join(sorted("%s/%s" % place for place in circle))
        if names in CIRCLES:
            left.append("circle: " + names)
        else:
            inner = ["%s -> %s (%s)" % (a[1], b[1], calls[a][b]) for a in sorted(circle) for b in calls[a] if b in circle]
            faults.append("a circle of files: %s\n    %s" % (names, "\n    ".join(inner)))
    return len(objects)


def find_circles(calls):
    """Strongly connected files of more than one, by Tarjan's algorithm."""
    index, low, stack, circles = {}, {}, [], []

    def visit(at):
        index[at] = low[at] = len(index)
        stack.append(at)
        for to in calls.get(at, ()):
            if to not in index:
                visit(to)
            if to in stack:
                low[at] = min(low[at], low[to])
        if low[at] == index[at]:
            circle = set()
            while at not in circle:
                circle.add(stack.pop())
            if len(circle) > 1:
                circles.append(circle)

    for at in sorted(calls):
        if at not in index:
            visit(at)
    return circles


def main():
    layers = read_layers()
    count = check_includes(layers)
    objects = check_calls(sys.argv[1], layers) if len(sys.argv) > 1 else 0
    known = len(CIRCLES) if objects else 0
    if len(left) < known:
        faults.append("%d of the %d known exceptions are gone: take them from this script" % (known - len(left), known))
    print("\n".join(faults + ["still so: " + line for line in left]))
    print("%d files, %d objects, %d layers, %d faults" % (count, objects, len(layers), len(faults)))
    return 1 if faults or not count else 0


if __name__ == "__main__":
    sys.exit(main())
