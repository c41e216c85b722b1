#!/usr/bin/env python3
"""Instructions of one request, by body form and by whose they are: a figure that no other load on the machine changes.

    instructions.py KERNSERVE [--count N] [--columns N] [--top N] [--forms json,binary] [-- KERNSERVE-OPTION...]

The daemon runs under callgrind with one shard and the CPU backend; one kept connection sends N (500) equal requests for the maximum
of one row of --columns (256) FP32, one after the other. What the C library does counts as its caller's; what the kernel does
for a system call is not seen, nor what threads do that serve no request. --top prints the N functions that take most, themselves alone. Options behind -- go to the
daemon, such as --server-timing off.
"""
import argparse
import collections
import glob
import os
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from daemon import Daemon, request  # noqa: E402
from forms import FORMS, Case, check_answer  # noqa: E402
from tensors import random_tensor  # noqa: E402

# Callgrind makes everything some fifty times as slow. With a clock that is as much slower the daemon sees the times that it
# sees without: work is done at once where it would be.
CLOCK = """
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    if (real(id, now) != 0 || id == CLOCK_REALTIME) return 0;
    const long long ns = (now->tv_sec * 1000000000LL + now->tv_nsec) / 50;
    now->tv_sec = ns / 1000000000, now->tv_nsec = ns % 1000000000;
    return 0;
}
"""

# Whose a function is: the first pattern that its object and file match.
OWNERS = (("operation", r"kernserve\S* .*/kernels/(?!backend_)"), ("kernserve", r"/kernserve\S* "), ("libmicrohttpd", r"libmicrohttpd"),
          ("cJSON", r"libcjson"), ("libc", r""))


def owner(object_, file):
    return next(name for name, pattern in OWNERS if re.search(pattern, object_ + " " + file))


def costs(path):
    """Of one callgrind dump: {owner: instructions}, {(owner, function): its own instructions}."""
    names, owners, functions = {}, collections.Counter(), collections.Counter()
    at, to = {"ob": "", "fl": "", "fn": ""}, {}
    called = None  # the owner whose inclusive cost is on the next line
    for line in open(path):
        match = re.match(r"(c?)(ob|fl|fi|fe|fn)=\((\d+)\)(?: (.*))?", line)
        if match:
            prefix, kind, number, name = match.groups()
            table = "fl" if kind in ("fi", "fe") else kind
            if name is not None:
                names[table, number] = name.strip()
            if prefix or kind not in ("fi", "fe"):  # a function stays its file's where another file's is inlined
                (to if prefix else at)[table] = names[table, number]
            if kind == "fn" and not prefix:
                to = {}
        elif line.startswith("calls="):
            called = owner(to.get("ob", at["ob"]), to.get("fl", at["fl"]))
            to = {}
        elif re.match(r"[+*\-0-9]", line):
            whose, cost = owner(at["ob"], at["fl"]), int(line.split()[1])
            if called is None:
                functions[whose, at["fn"]] += cost
                owners[whose] += cost
            elif called == "libc" and whose != "libc":
                owners[whose] += cost
                owners["libc"] -= cost
            called = None
    return owners, functions


def make_requests(columns):
    """Of each form: the case and the request's bytes."""
    values = random_tensor(random.Random(1), "FP32", [1, columns])
    matrix = Case("reduce", [values], op="max")
    vector = Case("reduce", [type(values)("FP32", [columns], values.values)], model="reduce_vec")
    cases = {"plain_raw": matrix, "binary": matrix, "oip_raw": vector, "json": matrix}
    return {form: (case, request("POST", *FORMS[form](case, None))) for form, case in cases.items()}


class Profile:
    def __init__(self, path, options, folder):
        self.dump = os.path.join(folder, "dump")
        # By threads: by that clock the keeper's next turn is always due, so that it never sleeps.
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes", "--callgrind-out-file=" + self.dump]
        clock = os.path.join(folder, "clock.so")
        subprocess.run(["cc", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", clock], input=CLOCK.encode(), check=True)
        # oneDNN compiles kernels for the processor that it finds, and valgrind knows no AVX-512; it also counts each round of
        # a rep stosb as an instruction.
        environment = {"LD_PRELOAD": clock, "ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2",
                       "GLIBC_TUNABLES": "glibc.cpu.x86_rep_stosb_threshold=1000000000:glibc.cpu.x86_rep_movsb_threshold=1000000000"}
        # The second listener's thread would measure the host meanwhile.
        self.daemon = Daemon(path, "--backend", "cpu", "--threads", "1", "--pinned-bytes", "16M", "--admin-listen", "", *options,
                             under=valgrind, environment=environment)
        self.dumps = 0

    def control(self, *what):
        subprocess.run(["callgrind_control", *what, str(self.daemon.process.pid)], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def measure(self, form, case, data, count):
        with self.daemon.connect(120) as connection:
            check_answer(case, form, connection.ask(data), None)
            self.control("-i", "on")
            for _ in range(20):  # what is done once, such as looking up a symbol
                connection.ask(data)
            self.control("-z")
            for _ in range(count):
                connection.send(data)
                if connection.answer().status != 200:
                    raise SystemExit("an answer is no 200")
            self.control("-d")
            self.control("-i", "off")
        self.dumps += 1
        threads = [costs(path) for path in glob.glob("%s.%d-*" % (self.dump, self.dumps))]
        shards = [(owners, functions) for owners, functions in threads if functions["kernserve", "ks_http_turn"]]
        if len(shards) != 1:
            raise SystemExit("%d threads have served requests" % len(shards))
        return shards[0]


def main():
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--columns", type=int, default=256)
    parser.add_argument("--top", type=int, default=0)
    parser.add_argument("--forms", default="plain_raw,binary,oip_raw,json")
    arguments = parser.parse_args(sys.argv[1:split])
    forms = make_requests(arguments.columns)
    names = [name for name, _ in OWNERS]
    print("%-10s" % "form" + "".join("%14s" % name for name in names) + "%14s" % "in all")
    with tempfile.TemporaryDirectory() as folder:
        profile = Profile(arguments.path, sys.argv[split + 1:], folder)
        with profile.daemon:
            for form in arguments.forms.split(","):
                owners, functions = profile.measure(form, *forms[form], arguments.count)
                each = [owners[name] / arguments.count for name in names]
                print("%-10s" % form + "".join("%14.0f" % n for n in each) + "%14.0f" % sum(each), flush=True)
                for (whose, name), cost in functions.most_common(arguments.top):
                    print("    %8.1f  %-14s %s" % (cost / arguments.count, whose, name))
            if profile.daemon.stop() != 0:
                raise SystemExit("the daemon did not end well")


main()
