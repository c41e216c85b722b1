#!/usr/bin/env python3
"""The rulers of the house: house.py [CHECKOUT] [--build FOLDER] [--check | --before CHECKOUT]

Prints a row for each target of structure: what it is in that checkout, the target, whether it is met. Calls and circles of files are read
from the objects of a build (CHECKOUT/build; the CPU's is enough), by the graph of check_layers.py; "-": the checkout, or the build, has
nothing that the ruler could measure, as a commit without ks_layer lines.

Files      sources and headers of include, kernels and server; a folder counts without its subfolders
Functions  lines from the name to the closing brace; one-line functions and members of C++ structs are not counted
--before   the table of docs/architecture.md: an older checkout beside this one
--check    exit code 1 when a target is missed that is not in MISSED
"""
import argparse
import collections
import os
import re
import sys

import check_docs
import check_layers

TOPS = ("include", "kernels", "server")
SOURCE = (".c", ".h", ".cc", ".cu", ".cuh", ".def")
PRIVATE_HEADER = re.compile(r"(^|_)(parts|core|cells|table|internal)\.h$")
# Targets that are missed so far: the list of open work. A name goes when its target is met, and none joins.
MISSED = {
    "private headers", "circles of files",
    "stays of a small request", "files of a small request", "entries into request.c",
}
RECIPES = ("op", "format", "metric", "option", "backend")


class Checkout:
    def __init__(self, root, build):
        self.root, self.build = os.path.abspath(root), build
        self.texts = {}
        for top in TOPS:
            for folder, _, names in os.walk(os.path.join(self.root, top)):
                for path in (os.path.join(folder, name) for name in names if name.endswith(SOURCE)):
                    with open(path, encoding="utf-8", errors="replace") as file:
                        self.texts[os.path.relpath(path, self.root)] = file.read()

    def read(self, path):
        path = os.path.join(self.root, path)
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            return file.read()


# --- files ---------------------------------------------------------------------------------------------------------------


def measure_files(checkout):
    folders = collections.Counter(map(os.path.dirname, checkout.texts))
    folder, files = folders.most_common(1)[0]
    yield "files in a folder", files, 24, folder
    path, text = max(checkout.texts.items(), key=lambda item: item[1].count("\n"))
    yield "longest file", text.count("\n"), 600, path
    private = sorted(path for path in checkout.texts if PRIVATE_HEADER.search(os.path.basename(path)))
    yield "private headers", len(private), 5, ""
    for library, header in (("libmicrohttpd", "microhttpd.h"), ("cJSON", "cjson/cJSON.h")):
        doors = [p for p, text in checkout.texts.items() if re.search(r'^\s*#\s*include\s*[<"]%s[">]' % re.escape(header), text, re.M)]
        yield "files that include " + library, len(doors), 1, ""


# --- functions -----------------------------------------------------------------------------------------------------------

Function = collections.namedtuple("Function", "name lines parameters path")
NO_NAME = ("__launch_bounds__", "__attribute__", "__align__", "alignas", "_Alignas", "sizeof", "decltype", "typeof")


def strip(text):
    """Without comments, contents of strings, and lines of the preprocessor; line ends stay."""
    ends = lambda at: re.sub(r"[^\n]", "", at.group(0))
    text = re.sub(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""",
                  lambda at: ends(at) if at.group(0)[0] == "/" else '""', text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", ends, text, flags=re.M)


def count_parameters(text):
    """Of a list that begins with its parenthesis; commas of templates and of inner parentheses are none."""
    depth, angle, commas = 0, 0, 0
    for c in text:
        depth += (c in "([") - (c in ")]")
        angle += (c == "<") - (c == ">")
        commas += c == "," and depth == 1 and angle == 0
        if depth == 0:
            break
    return commas + 1


def functions_of(checkout, inside, endings):
    found = []
    for path, text in checkout.texts.items():
        if not path.startswith(inside) or not path.endswith(endings):
            continue
        for at in re.finditer(r"^((?:(?!\n\n)[^;{}])*)\n\{\n(.*?)^\}", strip(text), re.S | re.M):
            head = at.group(1).lstrip("\n")
            for name in re.finditer(r"\b(\w+)\s*\(", head):
                before = head[:name.start()]
                if name.group(1) not in NO_NAME and before.count("(") == before.count(")"):
                    lines = head.count("\n", name.start()) + 1 + at.group(2).count("\n") + 2
                    found.append(Function(name.group(1), lines, count_parameters(head[name.end() - 1:]), path))
                    break
    return found


def measure_functions(checkout):
    server = functions_of(checkout, "server/", (".c", ".cc", ".h"))
    cuda = functions_of(checkout, "kernels/", (".cu", ".cuh"))
    cpu = functions_of(checkout, ("kernels/", "include/"), (".c", ".cc", ".h"))
    for name, functions, targets in (("server", server, (10, 22, 60)), ("CUDA", cuda, (10, 28, 120))):
        lines = sorted(f.lines for f in functions)
        longest = max(functions, key=lambda f: f.lines)
        yield "%s functions: median lines" % name, lines[len(lines) // 2], targets[0], "%d functions" % len(lines)
        yield "%s functions: 90th percentile" % name, lines[len(lines) * 9 // 10], targets[1], ""
        yield "%s functions: longest" % name, longest.lines, targets[2], longest.name
    everything = server + cuda + cpu
    # By name: what every operation has by the border of ops is one function.
    yield "functions of more than 6 parameters", len({f.name for f in everything if f.parameters > 6}), 12, ""
    most = max(everything, key=lambda f: f.parameters)
    yield "most parameters", most.parameters, 8, most.name


# --- layers --------------------------------------------------------------------------------------------------------------


def measure_layers(checkout):
    """Exceptions that check_layers.py knows by name count here."""
    check_layers.ROOT, check_layers.UPWARD, check_layers.CIRCLES = checkout.root, set(), set()
    layered = "ks_layer(" in (checkout.read("CMakeLists.txt") or "")
    layers = check_layers.read_layers() if layered else collections.OrderedDict(kernels=set(), server={"kernels"})
    built = os.path.isdir(os.path.join(checkout.build, "CMakeFiles"))
    check_layers.faults.clear()
    check_layers.check_includes(layers)
    includes = [f for f in check_layers.faults if " includes " in f and "must not know" in f]
    check_layers.faults.clear()
    if built:
        check_layers.check_calls(checkout.build, layers)
    calls = {tuple(re.findall(r"\S+/\S+\.\w+", f)) for f in check_layers.faults if " calls " in f}
    circles = [f for f in check_layers.faults if f.startswith("a circle")]
    yield "includes of a layer above", len(includes) if layered else None, 0, ""
    yield "calls of a layer above, by file", len(calls) if layered and built else None, 0, ""
    yield "circles of files", len(circles) if built else None, 0, ""


# --- borders, recipes, documents -----------------------------------------------------------------------------------------


def measure_border(checkout):
    """A member whose comment says what NULL means may be lacking."""
    text = checkout.texts.get("include/kernserve/backend.h", "")
    tables = dict(re.findall(r"^typedef struct (ks_\w+) \{\n(.*?)^\}", text, re.S | re.M))
    members = re.findall(r"((?:^ *(?:/\*|\*).*\n)*)^ +\S+ ?\(\*(\w+)\)\(", tables.get("ks_backend", ""), re.M)
    must = [name for comment, name in members if "NULL:" not in comment]
    groups = [tables[g] for g in re.findall(r"^ *const (ks_\w+) \*\w+;", tables.get("ks_backend", ""), re.M) if g in tables]
    whole = len(members) + sum(len(re.findall(r"\(\*\w+\)\(", group)) for group in groups)
    yield "functions that a backend must have", len(must) or None, 13, "%d with optional ones, %d optional groups" % (whole, len(groups))


def measure_recipes(checkout):
    text = checkout.read("CONTRIBUTING.md") or ""
    for name in RECIPES:
        at = re.search(r"^## Add an? %s\n(?:(?!^## ).*\n)*?Files that must be touched: (\d+)" % name, text, re.M)
        yield "files to touch for a new " + name, int(at.group(1)) if at else None, {"op": 4, "backend": 3}.get(name, 2), ""


def measure_documents(checkout):
    text = checkout.read("docs/architecture.md") or ""
    at = re.search(r"^### A small plain raw request\n.*?^```walk\n(.*?)^```", text, re.S | re.M)
    stays = [file for file, _ in check_docs.read_walk(at.group(1))] if at else []
    yield "stays of a small request", len(stays) or None, 30, ""
    yield "files of a small request", len(set(stays)) or None, 12, ""
    yield "entries into request.c", sum(file.endswith("/request.c") for file in stays) or None, 4, ""
    yield "README.md, bytes", len((checkout.read("README.md") or "").encode()), 10240, ""


MEASURES = (measure_files, measure_functions, measure_layers, measure_border, measure_recipes, measure_documents)


def measure_all(root, build=None):
    checkout = Checkout(root, build or os.path.join(root, "build"))
    return [row for measure in MEASURES for row in measure(checkout)]


def shown(figure):
    return "-" if figure is None else str(figure)


def print_both(before, rows):
    print("| ruler | before | now | target |\n| --- | --- | --- | --- |")
    for (name, was, _, _), (_, figure, target, _) in zip(before, rows):
        print("| %s | %s | %s | %d%s |" % (name, shown(was), shown(figure), target, " (missed)" if is_missed(figure, target) else ""))


def is_missed(figure, target):
    return figure is None or figure > target


def check(rows):
    """1: a target is missed that was met."""
    missed = {name for name, figure, target, _ in rows if is_missed(figure, target)}
    for name in sorted(missed - MISSED):
        print("FAULT: the target of '%s' was met and is missed now" % name)
    for name in sorted(MISSED - missed):
        print("note: the target of '%s' is met: take it from MISSED" % name)
    print("%d of %d targets are met" % (len(rows) - len(missed), len(rows)))
    return 1 if missed - MISSED else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    parser.add_argument("--build")
    parser.add_argument("--before", metavar="CHECKOUT")
    parser.add_argument("--check", action="store_true")
    words = parser.parse_args()
    rows = measure_all(words.checkout, words.build)
    if words.before:
        print_both(measure_all(words.before), rows)
        return 0
    print("%-38s %7s %7s" % ("ruler", "is", "target"))
    for name, figure, target, remark in rows:
        print("%-38s %7s %7d  %-7s %s" % (name, shown(figure), target, "missed" if is_missed(figure, target) else "", remark))
    return check(rows) if words.check else 0


if __name__ == "__main__":
    sys.exit(main())
