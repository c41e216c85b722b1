#!/usr/bin/env python3
"""Every fenced block of README, docs/ and the client's README is run, as it stands but for addresses, folders and durations.

snippets.py KERNSERVE [PYTHON]    PYTHON has numpy and tritonclient (tests/compat/environment.sh); without it, what needs them is left out
snippets.py --list                each block and what becomes of it

A fence names its language; one that is not known here is a fault:
  sh       each command is run against a daemon (OF_DOCUMENT), its exit code is 0 and HTTP errors are failures. One that serves must become ready and end
           with 0. After a line that begins with "$ " its output follows, equal but for times. A command that takes minutes, installs
           packages or wants a cluster has a row in ELSEWHERE: the test that runs it, in whose text it stands
  python   the blocks of a document are one program
  promql   promtool takes each expression
  walk     tests/check_docs.py follows it
  text     a figure or an output: nothing to run
"""

import contextlib
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(HERE, "http"))
from daemon import Daemon, Remote, check, comes_to, wrongs  # noqa: E402
from ports import free_ports  # noqa: E402

# Whose blocks are about a daemon with options; the others' is one as it is installed.
OF_DOCUMENT = {"docs/workers.md": ("--backend", "cpu", "--devices", "0,1")}
LANGUAGES = ("sh", "python", "promql", "walk", "text")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
# Begin of a command, the test that runs it, and the words by which it stands there.
ELSEWHERE = (
    ("./deploy/quickstart.sh", "tests/run.sh", "/deploy/quickstart.sh"),
    ("./tests/run.sh", "tests/run.sh", "operate"),
    ("tests/bench/bench_http.sh", "tests/gpu.sh", "/tests/bench/bench_http.sh"),
    ("deploy/image.sh", "tests/operate/image.py", "image.sh"),
    ("kubectl apply -k deploy/k8s/overlays/gpu", "tests/operate/manifests.py", "kustomize"),
    ("python3 -m kernserve.onnx", "tests/models/digits.py", "kernserve.onnx"),
    ("pip wheel --no-deps clients/python", "tests/clients/python_wheel.sh", "-m pip wheel"),
)
SERVES = re.compile(r"^kernserve(?!.*--(check-config|dump-config|self-test|tune(?!-)|plans|healthcheck|version|list-devices))")


def documents():
    return ["README.md", "clients/python/README.md", *sorted(os.path.relpath(path, ROOT) for path in glob.glob(ROOT + "/docs/**/*.md", recursive=True))]


def blocks():
    """Document, line, language and text of each."""
    for name in documents():
        with open(os.path.join(ROOT, name)) as file:
            text = file.read()
        found = list(FENCE.finditer(text))
        check(2 * len(found) == text.count("```"), name, "has a fence that does not close")
        for match in found:
            yield name, text.count("\n", 0, match.start()) + 1, match[1], match[2]


def commands(text):
    return re.sub(r"\\\n\s*", "", text).splitlines()


def elsewhere(command):
    for begin, test, words in ELSEWHERE:
        if command.startswith(begin):
            with open(os.path.join(ROOT, test)) as file:
                check(words in file.read(), test, "does not run", command)
            return test
    return None


class Runs:
    def __init__(self, path, python, folder):
        self.path, self.python, self.folder, self.left = path, python, folder, []
        self.common = self.daemon = Daemon(path, "--tune-cache", folder + "/tunes.daemon")
        self.prepare()

    @contextlib.contextmanager
    def of(self, document):
        """The daemon that the document's blocks are about."""
        if document not in OF_DOCUMENT:
            yield
            return
        with Daemon(self.path, *OF_DOCUMENT[document]) as self.daemon:
            states = lambda: set(re.findall(rb'"state":"(\w+)"', self.daemon.get("/readyz").body))
            check(comes_to(states, {b"ready"}) == {b"ready"}, document, "workers are", states())
            yield
            check(self.daemon.stop() == 0, document, "the daemon's end")
        self.daemon = self.common

    def prepare(self):
        """The files that the commands send, the folders that they name, kernserve on the path."""
        os.makedirs(self.folder + "/bin")
        os.symlink(os.path.abspath(self.path), self.folder + "/bin/kernserve")
        for name in ("tests", "deploy"):
            os.symlink(os.path.join(ROOT, name), os.path.join(self.folder, name))
        row = bytes(4 * 64 * 1024)
        head = b'{"INPUT0":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"INPUT1":{"dtype":"F32","shape":[3,2],"data_offsets":[24,48]}}'
        npy = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }".ljust(117) + b"\n"
        for name, data in (("x.f32", row), ("ab.f32", bytes(4 * (64 * 128 + 128 * 256))), ("x.f16", row[:2 * 64 * 1024]), ("w.f32", bytes(4 * 1024 * 256)), ("tokens", b"a-token-of-this-test\n"),
                           ("scrape", b"a-token-of-this-test"), ("x.npy", b"\x93NUMPY\1\0" + len(npy).to_bytes(2, "little") + npy + bytes(24)),
                           ("ab.safetensors", len(head).to_bytes(8, "little") + head + bytes(48))):
            with open(os.path.join(self.folder, name), "wb") as file:
                file.write(data)
        os.chmod(self.folder + "/tokens", 0o600)

    def here(self, text):
        """Addresses of the daemon under test, this test's folder, a second of load, a client's kubectl without a cluster."""
        text = re.sub(r"\b(localhost|127\.0\.0\.1):8000\b", r"\1:%d" % self.daemon.port, text)
        text = re.sub(r"\b(localhost|127\.0\.0\.1):8002\b", r"\1:%d" % self.daemon.admin_port, text)
        text = re.sub(r"/etc/kernserve|/var/cache/kernserve", self.folder, text)
        text = text.replace("kubectl create", "kubectl create --dry-run=client -o yaml")
        return re.sub(r"-d5s|-D 5\b", lambda m: m[0].replace("5", "1"), text)

    def environment(self):
        return {**os.environ, "PATH": self.folder + "/bin:" + os.environ["PATH"], "PYTHONPATH": os.path.join(ROOT, "clients", "python", "src")}

    def shell(self, command, where):
        """What it wrote to the standard output; None where its program is not here."""
        program = shlex.split(command)[0]
        if program != "kernserve" and not os.path.exists(os.path.join(self.folder, program)) and not shutil.which(program):
            self.left.append("%s: %s is not installed" % (where, program))
            return None
        text = 'curl() { command curl --fail "$@"; }\n' + command
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        out = done.stdout.decode(errors="replace")
        check(done.returncode == 0, where, command, "ends with", done.returncode, out[-300:], done.stderr[-300:])
        check(program != "wrk" or '"errors":0' in out.replace(" ", ""), where, command, out[-300:])
        return out

    def serve(self, command, where):
        data, admin = free_ports(2)
        words = shlex.split(command, comments=True)
        if "--listen" in words:
            words[words.index("--listen") + 1] = "127.0.0.1:%d" % data
        else:
            words += ["--listen", "127.0.0.1:%d" % data]
        words += ["--admin-listen", "127.0.0.1:%d" % admin]
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(words, env=self.environment(), cwd=self.folder, stderr=log)
            ready, end = False, time.monotonic() + 60
            while not ready and process.poll() is None and time.monotonic() < end:
                with contextlib.suppress(OSError):
                    ready = Remote("127.0.0.1:%d" % data).get("/v2/health/ready").status == 200
                time.sleep(0.05)
            process.terminate()
            code = process.wait(60)
            check(ready and code == 0, where, command, "ready" if ready else "never ready", code, os.pread(log.fileno(), 2000, 0))

    def sh(self, text, where):
        lines, i = commands(text), 0
        while i < len(lines):
            line, told = lines[i], []
            i += 1
            if line.startswith("$ "):
                line = line[2:]
                while i < len(lines) and not lines[i].startswith("$ "):
                    told.append(lines[i])
                    i += 1
            if not line.strip() or line.startswith("#") or elsewhere(line):
                continue
            if SERVES.match(line):
                self.serve(self.here(line), where)
                continue
            out = self.shell(self.here(line), where)
            if told and out is not None:
                times = lambda words: re.sub(r"dur=[\d.]+", "dur=", words)
                check(times(out).splitlines() == times("\n".join(told)).splitlines(), where, "says", out, "and not", told)

    def python_program(self, text, where):
        missing = [name for name in ("numpy", "tritonclient") if name in text and
                   subprocess.run([self.python or sys.executable, "-c", "import " + name], stderr=subprocess.DEVNULL).returncode]
        if missing:
            check(not self.python, where, self.python, "has no", missing)
            self.left.append("%s: %s is not installed" % (where, missing[0]))
            return
        done = subprocess.run([self.python or sys.executable, "-B", "-c", self.here(text)], cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        check(done.returncode == 0 and done.stdout, where, done.stdout[-500:])

    def promql(self, text, where):
        bare = re.sub(r"\s+#.*", "", text)
        rules = [" ".join(lines.split()) for lines in re.split(r"\n(?!\s)", bare.strip())]
        if not shutil.which("promtool"):
            self.left.append("%s: promtool is not installed" % where)
            return
        with open(self.folder + "/rules.yml", "w") as file:
            file.write("groups:\n- name: snippets\n  rules:\n" + "".join("  - record: a:rule%d\n    expr: '%s'\n" % (i, rule.replace("'", "''")) for i, rule in enumerate(rules)))
        self.shell("promtool check rules rules.yml", where)


def gathered():
    """Blocks; the Python ones of a document as one."""
    programs = {}
    for name, line, language, text in blocks():
        if language == "python":
            programs.setdefault(name, [line, ""])[1] += text
        else:
            yield name, line, language, text
    for name, (line, text) in programs.items():
        yield name, line, "python", text


def tell(name, line, language, text):
    tests = sorted({elsewhere(command) for command in commands(text)} - {None}) if language == "sh" else []
    print("%s:%d: %s%s" % (name, line, language, "".join(", " + test for test in tests)))


def main():
    if sys.argv[1:] == ["--list"]:
        for block in gathered():
            tell(*block)
        return 0
    path, python = sys.argv[1], (sys.argv[2:] or [None])[0]
    counts = dict.fromkeys(LANGUAGES, 0)
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(path, python, folder)
        with runs.common:
            for name, line, language, text in gathered():
                where = "%s:%d" % (name, line)
                check(language in LANGUAGES, where, "a fence without a language that is run:", language)
                counts[language] = counts.get(language, 0) + 1
                act = {"sh": runs.sh, "python": runs.python_program, "promql": runs.promql}.get(language)
                if act:
                    with runs.of(name):
                        act(text, where)
    for line in runs.left:
        print("left out:", line)
    print("blocks: %s; %d wrong" % (", ".join("%d %s" % (n, language) for language, n in counts.items()), wrongs()))
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
