#!/usr/bin/env python3
"""The documents say what is there, and nothing else.

    check_docs.py [ROOT]             README's bytes; options, metrics, routes, error codes; links, paths, commands, identifiers, walks
    check_docs.py --self-test [ROOT] plants one fault for each check into a copy in memory and looks for its message

Sources are found by name anywhere in the tree (options.def, metrics.def, routes.c, status.h, kernserve.conf), so folders may move.
A new option is one row in docs/operate.md, a metric one row in docs/metrics.md, a route or an error code one row in docs/http.md.
Exit code 0: no fault.
"""

import fnmatch
import os
import re
import sys

import tree_files

README_BYTES = 10240
# Lines of a document, at most: one that grows past them has become two.
LINES = {"docs/architecture.md": 465, "docs/http.md": 275, "docs/tensors.md": 150, "docs/operate.md": 340, "docs/install.md": 130, "docs/metrics.md": 150, "docs/logs.md": 100, "docs/deploy.md": 220, "docs/benchmarks.md": 200,
         "docs/decisions.md": 150, "docs/kernels/softmax.md": 120, "docs/kernels/reduce.md": 120, "docs/kernels/matmul.md": 160,
         "docs/kernels/norm.md": 130, "docs/kernels/map.md": 160, "docs/kernels/topk.md": 110, "docs/kernels/search.md": 120, "docs/kernels/attention.md": 130, "docs/kernels/gather.md": 130, "docs/kernels/layout.md": 110, "docs/kernels/window.md": 110, "docs/kernels/scan.md": 120, "docs/kernels/histogram.md": 110, "docs/kernels/quantize.md": 110,
         "CONTRIBUTING.md": 130}
SOURCE = (".c", ".h", ".cc", ".cu", ".cuh", ".def")
NAMED = SOURCE + (".py", ".sh", ".lua")  # a bare name of that ending is a file of the tree
# Options of other programs, with the program that the line must name.
FOREIGN = {"--gpus": "docker", "--preset": "--preset", "--data-binary": "curl", "--h1": "h2load",
           "--rps": "h2load", "--latency": "wrk", "--output-on-failure": "ctest", "--follow": "git log", "--concurrency-range": "perf_analyzer",
           "--collect-metrics": "perf_analyzer", "--shared-memory": "perf_analyzer", "--build": "cmake", "--install": "cmake", "--prefix": "cmake",
           "--from-file": "kubectl"}
# Words that the glossary of docs/architecture.md replaces; its own column "in the code" may name them.
PRIVATE = re.compile(r"\b(nobody|somebody|whoever|whomever|hears|patience|skeleton|memo|has company|lined up|the words)\b", re.I)


class Tree:
    """Tracked files, and those that git would take, as text."""

    def __init__(self, root):
        self.root, self.texts = root, {}
        self.paths = tree_files.files(root)

    def text(self, path):
        if path not in self.texts:
            with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
                self.texts[path] = file.read()
        return self.texts[path]

    def named(self, name):
        """Files of that name, or of that last part of a path: ops/softmax.c"""
        return [p for p in self.paths if p == name or p.endswith("/" + name)]

    def only(self, name):
        found = self.named(name)
        if len(found) != 1:
            raise SystemExit("check_docs.py: %s is there %d times: %s" % (name, len(found), " ".join(found)))
        return self.text(found[0])

    def documents(self):
        return [p for p in self.paths if p.endswith(".md") and (p.startswith("docs/") or "/" not in p)]


# --- reading documents -------------------------------------------------------------------------------------------------


def rows(text, heading):
    """Cells of the table rows below a heading, as far as the next heading of its level or above."""
    at = re.search(r"^(#+) %s$" % re.escape(heading), text, re.M)
    if not at:
        return None
    behind = text[at.end():]
    end = re.search(r"^#{1,%d} " % len(at.group(1)), behind, re.M)
    table = []
    for line in (behind[:end.start()] if end else behind).splitlines():
        if line.startswith("|"):
            table.append([cell.strip().replace("\0", "|") for cell in line.replace("\\|", "\0").strip().strip("|").split("|")])
    return [r for r in table if r[0].startswith("`") or r[0].isdigit()]


def code(text):
    """(line number, text, whether it is a line of a block) of what stands in backticks or code blocks."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            inside = not inside
        elif inside:
            yield number, line, True
        else:
            for part in re.findall(r"`([^`]+)`", line):
                yield number, part.replace("\\|", "|"), False


def compare(what, where, documented, real):
    for name in sorted(real - documented):
        yield "%s: %s %s is not documented" % (where, what, name)
    for name in sorted(documented - real):
        yield "%s: %s %s does not exist" % (where, what, name)


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")


# --- what is there -----------------------------------------------------------------------------------------------------


def options(tree):
    return set(re.findall(r'^(?:TEXT|LIST|SIZE|TIME|COUNT|OCTAL|FLAG|CHOICE(?:_OF)?)\(\w+,(?: \w+,)? "([\w-]+)"', tree.only("options.def"), re.M))


def flags(tree):
    return set(re.findall(r'^FLAG\(\w+, "([\w-]+)"', tree.only("options.def"), re.M))


def commands(tree):
    at = re.search(r"ks_commands\[KS_COMMANDS\] = \{(.*?)\};", tree.only("value.c"), re.S)
    return set(re.findall(r'\{"([\w-]+)"', at.group(1)))


def refused(tree):
    """Options of other servers, for which the daemon names its own."""
    text = tree.only("names.c")
    at = re.search(r"\} foreign\[\] = \{(.*?)\};", text, re.S)
    return set(re.findall(r'\{"([\w-]+)"', at.group(1))) | set(re.findall(r'is_named\(name, length, "([\w-]+)"\)', text))


def metrics(tree):
    suffix = {"COUNTER": "_total", "INFO": "_info"}
    found = re.findall(r'^[A-Z]+(?:_BY)?\([^"]*?\b(COUNTER|BARE_COUNTER|GAUGE|HISTOGRAM|INFO|STATESET)\b[^"]*"(\w+)"', tree.only("metrics.def"), re.M)
    return {name + suffix.get(kind, "") for kind, name in found}, {name for kind, name in found if kind == "HISTOGRAM"}


def routes(tree):
    """{(pattern, methods)}"""
    text, found = tree.only("routes.c"), set()
    kinds = re.findall(r'SHARED_MEMORY\("([^"]+)"\)', text)
    for kind, path, methods in re.findall(r'\{(kind )?"([^"]*)", KS_ROUTE_\w+, KS_HANDLER_\w+, ([A-Z| ]+),', text):
        methods = ", ".join({"READS": "GET, HEAD", "WORKS": "POST", "BOTH": "GET, HEAD, POST", "PUTS": "PUT", "DELETES": "DELETE"}[m] for m in methods.split(" | "))
        for front in kinds if kind else [""]:
            found.add(("/" + front + path, methods))
    return found


def statuses(tree):
    """{(HTTP status, code, closes)} of what may be sent"""
    table = re.search(r"define KS_STATUS_TABLE\(X\)(.*?)(?=\n\s*/\* never sent|typedef)", tree.only("status.h"), re.S).group(1)
    return {(http, text, closes) for http, text, closes in re.findall(r'X\(\w+, (\d+), "(\w+)", ([01])\)', table)}


def expand(path):
    """`[x]` may be absent, `{a|b}` is one of them."""
    at = re.search(r"\[([^\]]*)\]", path)
    if at:
        return expand(path[:at.start()] + path[at.end():]) + expand(path[:at.start()] + at.group(1) + path[at.end():])
    at = re.search(r"\{([^}]*\|[^}]*)\}", path)
    if at:
        return [p for choice in at.group(1).split("|") for p in expand(path[:at.start()] + choice + path[at.end():])]
    return [path]


def pattern_of(path):
    return path.replace("{model}", "*").replace("{version}", "#").replace("{name}", "@")


# --- checks: each yields sentences -------------------------------------------------------------------------------------


def check_sizes(tree):
    size = len(tree.text("README.md").encode())
    if size > README_BYTES:
        yield "README.md has %d bytes, at most %d" % (size, README_BYTES)
    for path, most in LINES.items():
        if path not in tree.paths:
            yield "%s is missing" % path
        elif tree.text(path).count("\n") > most:
            yield "%s has %d lines, at most %d" % (path, tree.text(path).count("\n"), most)


def check_options(tree):
    where, real = "docs/operate.md", options(tree)
    table = rows(tree.text(where), "Options")
    if table is None:
        yield where + " has no section Options"
        return
    yield from compare("option", where, {r[0].strip("`").lstrip("-") for r in table}, real)
    # The sample file is what the daemon prints (a test holds it), with preset and range above each key.
    ranges = {}
    for preset, name in re.findall(r"^# (?:preset: (.*)|no preset)\n#([\w-]+) =", tree.only("kernserve.conf"), re.M):
        ranges[name] = preset
    for row in table:
        name, said = row[0].strip("`").lstrip("-"), row[1].strip("`")
        if name in ranges and said != ranges[name]:
            yield "%s: --%s has preset and range '%s', the document says '%s'" % (where, name, ranges[name], said)


def check_words_of_options(tree):
    known = options(tree) | commands(tree) | refused(tree) | {"no-" + f for f in flags(tree)}
    # Of scripts of the tree: what argparse knows, a case of a shell script, a comparison in C or Python.
    scripts = "\n".join(tree.text(p) for p in tree.paths if p.startswith(("tests/", "deploy/", "clients/")) and p.endswith((".py", ".sh", ".c", ".cu")))
    own = set(re.findall(r"""add_argument\((?:"-\w", )?"--([a-z][\w-]*)|--([a-z][\w-]*)(?: \||\))|(?:[!=]= |strcmp\(.*?, )"--([a-z][\w-]*)""", scripts))
    own = {name for found in own for name in found if name}
    for path in tree.documents():
        for number, line, _ in code(tree.text(path)):
            for option in re.findall(r"(?<![\w-])--([a-z][\w-]*)", line):
                foreign = FOREIGN.get("--" + option)
                if option in known or (foreign and foreign in line) or option in own:
                    continue
                yield "%s:%d: no option --%s" % (path, number, option)


def check_metrics(tree):
    where, (real, histograms) = "docs/metrics.md", metrics(tree)
    table = rows(tree.text(where), "Families")
    if table is None:
        yield where + " has no section Families"
        return
    yield from compare("metric", where, {r[0].strip("`") for r in table}, real)
    parts = {h + s for h in histograms for s in ("_bucket", "_sum", "_count")}
    for path in tree.documents():
        for number, line, _ in code(tree.text(path)):
            for name in re.findall(r"\bkernserve_[a-z]\w+", line):
                if name not in real | parts and not any(m.startswith(name + "_") or m.rsplit("_", 1)[0] == name for m in real):
                    yield "%s:%d: no metric %s" % (path, number, name)


def check_routes(tree):
    where, real = "docs/http.md", routes(tree)
    table = rows(tree.text(where), "Routes")
    if table is None:
        yield where + " has no section Routes"
        return
    documented = {(pattern_of(p), r[1]) for r in table for p in expand(r[0].strip("`"))}
    name = lambda r: "%s %s" % (r[1], r[0])
    yield from compare("route", where, set(map(name, documented)), set(map(name, real)))
    patterns = [re.compile("/" + "/".join("[^/]+" if s in "*#@" and s else re.escape(s) for s in p[1:].split("/")) + "$") for p, _ in real]
    for path in tree.documents():
        for number, line, _ in code(tree.text(path)):
            for url in re.findall(r"(?<![\w.])/v2(?:/[\w{}|\[\]./-]*)?", line.replace("localhost:8000", "").replace("127.0.0.1:8000", "").replace("localhost:8002", "")):
                if not all(any(p.match(one) for p in patterns) for one in expand(url)):
                    yield "%s:%d: no route %s" % (path, number, url)


def check_errors(tree):
    where, real = "docs/http.md", statuses(tree)
    table = rows(tree.text(where), "Error codes")
    if table is None:
        yield where + " has no section Error codes"
        return
    documented = {(r[0], r[1].strip("`"), "1" if r[2] == "yes" else "0") for r in table}
    name = lambda s: "%s %s%s" % (s[0], s[1], " (closes)" if s[2] == "1" else "")
    yield from compare("error code", where, set(map(name, documented)), set(map(name, real)))


def check_exits(tree):
    where = "docs/operate.md"
    table = re.search(r"define KS_EXIT_TABLE\(X\)(.*?)enum", tree.only("config.h"), re.S).group(1)
    real = {code + (" (a restart helps)" if helps == "true" else "") for code, helps in re.findall(r"X\(\w+, (\d+), (true|false),", table)}
    documented = {r[0] + (" (a restart helps)" if r[2] == "yes" else "") for r in rows(tree.text(where), "Exit codes") or ()}
    yield from compare("exit code", where, documented, real)


def check_links(tree):
    for path in tree.documents():
        text = tree.text(path)
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.S)):
            if re.match(r"\w+:", target):
                continue
            file, _, anchor = target.partition("#")
            there = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
            if there not in tree.paths and not any(p.startswith(there + "/") for p in tree.paths):
                yield "%s: link to %s, which is not there" % (path, target)
            elif anchor and anchor not in {slug(h) for h in re.findall(r"^#+ (.*)$", tree.text(there), re.M)}:
                yield "%s: link to %s, which has no such heading" % (path, target)


def check_paths(tree):
    tops = {p.split("/")[0] for p in tree.paths if "/" in p}
    names = {p.rsplit("/", 1)[-1] for p in tree.paths}
    for path in tree.documents():
        for number, line, block in code(tree.text(path)):
            for token in re.findall(r"(?<![\w/:.$-])(?:\./)?([\w.*-]+(?:/[\w.*-]*)*)", line):
                token = token.rstrip(".")
                if "NAME" in token:
                    continue
                if "/" in token and token.split("/")[0] in tops and not token.startswith("."):
                    if not any(p == token or p.startswith(token.rstrip("/") + "/") or fnmatch.fnmatch(p, token) for p in tree.paths):
                        yield "%s:%d: no file %s" % (path, number, token)
                    elif block and re.match(r"(\./)?%s( |$)" % re.escape(token), line.strip()) and token.endswith((".sh", ".py")) \
                            and not os.access(os.path.join(tree.root, token), os.X_OK):
                        yield "%s:%d: %s is not executable" % (path, number, token)
                elif "/" not in token and token.endswith(NAMED) and not any(fnmatch.fnmatch(n, token) for n in names):
                    yield "%s:%d: no file of the name %s" % (path, number, token)


def check_identifiers(tree):
    known = set()
    for path in tree.paths:
        if path.endswith(SOURCE):
            known.update(re.findall(r"\w+", tree.text(path)))
    known.update(n for p in tree.paths if p.endswith("CMakeLists.txt") for n in re.findall(r"\bks_\w+", tree.text(p)))
    known.update("KS_" + n for n in re.findall(r"\bKS_(\w+)", "".join(tree.text(p) for p in tree.paths if p.endswith((".sh", ".py", "CMakeLists.txt")))))
    for path in tree.documents():
        for number, line, _ in code(tree.text(path)):
            for name in re.findall(r"(?<![\w/])(?:ks|KS)_\w+", line):
                if "NAME" not in name and name not in known and not any(k.startswith(name) for k in known if name.endswith("_")):
                    yield "%s:%d: no identifier %s" % (path, number, name)


def bodies(text):
    """{function: its text} of what is defined at the left margin of a C file"""
    found = {}
    for at in re.finditer(r"^(?:[a-zA-Z_][^\n;={}]*?[ *])?(\w+)\((?:[^;{}]*)\)\n\{\n(.*?)^\}", text, re.S | re.M):
        found.setdefault(at.group(1), "")
        found[at.group(1)] += at.group(2)
    return found


def read_walk(block):
    """(file, [(function, caller or None, by a pointer)]) of each line"""
    for line in block.splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        file, chain = line.split(None, 1)
        caller, steps = None, []
        for level in chain.split(">"):
            names = [n.strip() for n in level.split(",")]
            steps += [(n.lstrip("*"), caller, n.startswith("*")) for n in names]
            caller = names[-1].lstrip("*")
        yield file, steps


def check_walks(tree):
    where, count = "docs/architecture.md", 0
    for block in re.findall(r"^```walk\n(.*?)^```", tree.text(where), re.S | re.M):
        texts, first = {}, True
        for file, steps in read_walk(block):
            found = tree.named(file)
            defined = bodies(tree.text(found[0])) if len(found) == 1 else {}
            if len(found) != 1:
                yield "%s: a walk names %s, which is there %d times" % (where, file, len(found))
            for name, caller, pointer in steps:
                count += 1
                if name not in defined:
                    yield "%s: %s does not define %s" % (where, file, name)
                    continue
                callers = [defined.get(caller, "")] if caller else list(texts.values())
                if not (pointer or (first and not caller)) and not any(re.search(r"\b%s\b" % name, t) for t in callers):
                    yield "%s: %s is not called by %s" % (where, name, caller or "a step before it")
                first = False
                texts[(file, name)] = defined[name]
    if count == 0:
        yield where + " has no walk"


def check_prose(tree):
    for path in tree.documents():
        if path in ("docs/architecture.md", "CHANGELOG.md") or path not in list(LINES) + ["README.md"]:
            continue
        inside = False
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            inside ^= line.startswith("```")
            at = None if inside else PRIVATE.search(re.sub(r"`[^`]*`", "", line))
            if at:
                yield "%s:%d: '%s' is a private word: docs/architecture.md has the glossary" % (path, number, at.group(0))


CHECKS = (check_sizes, check_options, check_words_of_options, check_metrics, check_routes, check_errors, check_exits, check_links, check_paths,
          check_identifiers, check_walks, check_prose)

# Faults for each check: the check, the file, what is replaced there (None: appended), by what, and a part of the message.
PLANTS = (
    (check_sizes, "README.md", None, "x" * README_BYTES, "README.md has"),
    (check_sizes, "docs/decisions.md", None, "\n" * 200, "docs/decisions.md has"),
    (check_options, "*options.def", None, 'FLAG(planted, "planted", 0, "help")\n', "option planted is not documented"),
    (check_options, "docs/operate.md", "| `--queue` |", "| `--queu` |", "option queu does not exist"),
    (check_options, "docs/operate.md", "`128; 1 to 65536`", "`64; 1 to 65536`", "--queue has preset"),
    (check_words_of_options, "docs/http.md", None, "\n`--max-bodi`\n", "no option --max-bodi"),
    (check_metrics, "*metrics.def", None, 'ENGINE(planted, COUNTER, "kernserve_planted", "", "help")\n', "metric kernserve_planted_total is not"),
    (check_metrics, "docs/metrics.md", "| `kernserve_queue_depth` |", "| `kernserve_queue_deep` |", "metric kernserve_queue_deep does not"),
    (check_metrics, "docs/operate.md", None, "\n`kernserve_nothing`\n", "no metric kernserve_nothing"),
    (check_routes, "*routes.c", '{"livez",', '{"planted", KS_ROUTE_LIVE, KS_HANDLER_live, READS, EACH, 1, 1},\n    {"livez",', "route GET, HEAD /planted is not"),
    (check_routes, "docs/http.md", "| `/readyz` | GET, HEAD |", "| `/readyz` | POST |", "route POST /readyz does not"),
    (check_routes, "README.md", None, "\n`GET /v2/modells/stats`\n", "no route /v2/modells/stats"),
    (check_errors, "*status.h", 'X(SHAPE, 400, "shape", 0)', 'X(SHAPE, 400, "shapes", 0)', "error code 400 shapes is not"),
    (check_errors, "docs/http.md", "| 503 | `queue_full` |", "| 503 | `queue_fool` |", "error code 503 queue_fool does not"),
    (check_exits, "docs/operate.md", "| 75 |", "| 76 |", "exit code 75 (a restart helps) is not"),
    (check_exits, "*config.h", "X(PERMISSION, 77, false", "X(PERMISSION, 77, true", "exit code 77 (a restart helps) is not"),
    (check_links, "README.md", None, "\n[x](docs/nothing.md)\n", "link to docs/nothing.md, which is not there"),
    (check_links, "README.md", None, "\n[x](docs/http.md#nothing)\n", "which has no such heading"),
    (check_paths, "docs/benchmarks.md", None, "\n`tests/bench/nothing.py`\n", "no file tests/bench/nothing.py"),
    (check_paths, "docs/benchmarks.md", None, "\n`nothing_here.c`\n", "no file of the name nothing_here.c"),
    (check_paths, "docs/benchmarks.md", None, "\n```\ntests/http/refusal_rows.py\n```\n", "is not executable"),
    (check_identifiers, "docs/architecture.md", None, "\n`ks_nothing_at_all`\n", "no identifier ks_nothing_at_all"),
    (check_walks, "docs/architecture.md", "ks_http_turn > wait_events,", "ks_http_turn > wait_event,", "does not define wait_event"),
    (check_walks, "docs/architecture.md", "turn > work", "turn > warm", "warm is not called by turn"),
    (check_prose, "docs/metrics.md", None, "\nnobody\n", "is a private word"),
)


def faults(tree):
    return [fault for check in CHECKS for fault in check(tree)]


def self_test(root):
    missed, tree = 0, Tree(root)
    for check in set(CHECKS) - {plant[0] for plant in PLANTS}:
        print("MISSED  no fault is planted for %s" % check.__name__)
        missed += 1
    for check, pattern, old, new, message in PLANTS:
        path = next(p for p in tree.paths if fnmatch.fnmatch(p, pattern))
        before = tree.text(path)
        tree.texts[path] = before.replace(old, new, 1) if old else before + new
        found = [f for f in check(tree) if message in f] if tree.texts[path] != before else []
        tree.texts[path] = before
        print("%-7s %s" % ("caught" if found else "MISSED", found[0] if found else "%s in %s" % (message, path)))
        missed += not found
    print("%d planted, %d missed" % (len(PLANTS), missed))
    return missed


def main():
    words = [w for w in sys.argv[1:] if w != "--self-test"]
    root = words[0] if words else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    if len(words) < len(sys.argv) - 1:
        sys.exit(1 if self_test(root) else 0)
    tree = Tree(root)
    found = faults(tree)
    for fault in found:
        print(fault)
    real = metrics(tree)[0]
    print("%d documents: %d options, %d metrics, %d routes, %d error codes; %d faults" % (
        len(tree.documents()), len(options(tree)), len(real), len(routes(tree)), len(statuses(tree)), len(found)))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
