#!/usr/bin/env python3
"""Each allocation of the start fails once, and all from one on: the daemon then serves all the same, or says one line and ends
with 71. First those that the program itself asks for, then those of its libraries too, before main as well (starve.c). Of the
libraries' a sample, the same each time unless KS_SEED is set; all with --all.

CUDA's runtime and a driver's libraries are not ours to starve: with CUDA in the build the program's own alone, and no list of devices.

engine_starve.py KERNSERVE LIBSTARVE [--all]
"""

import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from daemon import SKIP, check, daemon_path, seed, wrongs

SYSTEM = 71
EARLY, MIDDLE, ENDS, END = 6, 5, 12, 120  # how many are tried: before main; behind it; of its first and last END
SEED = "1"
LIBRARIES = (b"Error in GnuTLS", b"p11-kit")  # what constructors of libraries write before they go on
# It does not look at what it got, for two of its own 79,000: no check of ours comes between.
LOOKS_AT_NOTHING = rb"starve: SIGSEGV in \S*/libdnnl\.so"
BODY = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,2],"data":[1,1]}]}'
REQUEST = b"POST /v2/models/softmax/infer HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


class Case:
    def __init__(self, name, options, serves=False):
        self.name, self.options, self.serves = name, options, serves

    @staticmethod
    def known(out):
        """What must be there whatever fails: the C library needs memory to open /proc/cpuinfo, and without its name a processor is
        called CPU; a device that does not open is none."""
        return [b"cpu" if line.startswith(b"cpu  ") else line for line in out.splitlines() if not line.startswith(b"cuda:")]


class Run:
    """One start, with that allocation failing. said: what it wrote to stderr; out: to stdout; count: of allocations, or of the
    program's own."""

    def __init__(self, path, library, case, spec, listen, own=False):
        self.said, self.out, self.ready, self.served, self.own = b"", b"", False, None, own
        with tempfile.NamedTemporaryFile() as count, tempfile.TemporaryFile() as out:
            count.write(bytes(16))
            count.flush()
            environment = dict(os.environ, LD_PRELOAD=library, KS_STARVE=spec, KS_STARVE_COUNT=count.name)
            if own:
                environment["KS_STARVE_OWN"] = "1"
            self.process = subprocess.Popen([path, *case.options], stdout=out, stderr=subprocess.PIPE, env=environment)
            self._watch(case, listen, count.name)
            try:
                self.said += self.process.communicate(timeout=20)[1]
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.said += self.process.communicate()[1] + b"(did not end)"
            self.code = self.process.returncode
            if not self.ready:
                self.count = self._read(count.name)
            out.seek(0)
            self.out = out.read()

    def _watch(self, case, listen, count):
        """Reads until the end, or until it is ready: then one request, and SIGTERM."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if not select.select([self.process.stderr], [], [], 0.5)[0]:
                continue
            more = os.read(self.process.stderr.fileno(), 65536)
            self.said += more
            if not more:
                return
            if case.serves and b"msg=ready" in self.said:
                self.ready, self.count = True, self._read(count)
                self.served = ask(listen)
                self.process.send_signal(signal.SIGTERM)
                return

    def _read(self, name):
        with open(name, "rb") as file:
            return struct.unpack("<QQ", file.read())[self.own]

    def lines(self):
        return [line for line in self.said.splitlines() if line and not line.startswith(LIBRARIES)]


def ask(listen):
    """The status of one inference; each thing that failed may cost this one request, not the daemon."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        try:
            s.connect(listen)
            s.sendall(REQUEST)
            return int(s.recv(65536).split()[1])
        except (OSError, IndexError) as error:
            return repr(error)


def judge(case, spec, run, usual):
    if run.code == -signal.SIGSEGV and re.search(LOOKS_AT_NOTHING, run.said):
        return "oneDNN"
    if run.ready:
        # With nothing left at all the HTTP library may close the connection; the daemon stays, and ends as it is asked to.
        right = run.code == 0 and (run.served in (200, 503) or spec.endswith("+"))
    elif run.code == SYSTEM:
        right = len(run.lines()) == 1
    else:
        right = not case.serves and run.code == 0 and case.known(run.out) == case.known(usual.out) and not run.lines()
    check(right, case.name, "allocation", spec, "code", run.code, "served", run.served, run.lines()[-3:], run.out[-200:])
    return "serves" if run.ready else run.code


def every(count):
    return range(1, count + 1)


def sample(generator, main_at, count, serves):
    """What a library makes of itself may be tens of thousands between the first and the last behind main."""
    def some(first, last, most):
        numbers = range(max(1, first), last + 1)
        return generator.sample(numbers, min(most, len(numbers)))
    late = some(main_at + 1, min(main_at + END, count), ENDS if serves else 4) + some(max(main_at + 1, count - END), count, ENDS if serves else 4)
    return sorted(set(late + (some(1, main_at, EARLY) + some(main_at + END, count - END, MIDDLE) if serves else [])))


def walk(path, library, case, listen, pick, own=False):
    """pick: which of so many allocations fail."""
    usual = Run(path, library, case, "0", listen, own)
    check(usual.ready if case.serves else usual.code == 0, case.name, "does not start", usual.code, usual.said[-300:])
    check(not usual.ready or usual.served == 200, case.name, "does not serve", usual.served)
    ends, tried = {}, 0
    for form in ("%d", "%d+"):
        for n in pick(usual.count):
            run = Run(path, library, case, form % n, listen, own)
            end = judge(case, form % n, run, usual)
            ends[end] = ends.get(end, 0) + 1
            tried += 1
    print("%s: %d allocations%s, %d starts: %s" % (case.name, usual.count, " of its own" if own else "", tried, ends))


def main():
    os.environ.setdefault("KS_SEED", SEED)
    path, generator, whole = daemon_path(), seed(), "--all" in sys.argv
    if len(sys.argv) < 3 or not os.path.exists(sys.argv[2]):
        print("usage: engine_starve.py KERNSERVE LIBSTARVE [--all]")
        sys.exit(SKIP)
    library = os.path.abspath(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        config, listen, tokens = (os.path.join(folder, name) for name in ("config", "socket", "tokens"))
        with open(config, "w") as file:
            file.write("queue = 64\naccept-host = a.example\naccept-host = b.example\n")
        with open(tokens, "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write("secret\n")
        options = ["--config", config, "--backend", "cpu", "--threads", "1", "--connections", "64", "--listen", "unix:" + listen,
                   "--admin-listen", "127.0.0.1:0"]
        version = Run(path, library, Case("", ["--version"]), "0", None)
        main_at = max(0, version.count - 12)  # about what is asked for before main: --version itself asks for a dozen
        cuda = b"\nCUDA none" not in version.out
        begun = time.monotonic()
        for case in (Case("serve", [*options, "--pinned-bytes", "1M"], True), Case("--version", ["--version"]), Case("--help", ["--help"]),
                     Case("--dump-config", [*options, "--dump-config"]), Case("--check-config", [*options, "--token-file", tokens, "--check-config"]),
                     *([] if cuda else [Case("--list-devices", [*options, "--list-devices"])])):
            walk(path, library, case, listen, every, own=True)
            if not cuda:
                walk(path, library, case, listen, every if whole else lambda n: sample(generator, main_at, n, case.serves))
        print("%.1f s" % (time.monotonic() - begun))
    sys.exit(wrongs() > 0)


if __name__ == "__main__":
    main()
