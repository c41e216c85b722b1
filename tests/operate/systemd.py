#!/usr/bin/env python3
"""The units of deploy/systemd, without a running systemd: they are valid, as tight as they say, agree with each other and with the exit codes;
sockets that systemd-socket-activate passes go to the listener that their names say; and the daemon serves under the units' filters of
system calls.

systemd.py BUILD-FOLDER        exit code 77: systemd-analyze is not here
"""
import ctypes
import ctypes.util
import errno
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "http"))
from daemon import check, comes_to, wrongs  # noqa: E402
from ports import free_ports  # noqa: E402

UNITS = os.path.join(ROOT, "deploy", "systemd")
# Drop-ins, and the exposure that systemd-analyze gives: ten times its number.
SCORES = [((), 16), (("network",), 14), (("network", "tight"), 12), (("network", "cpu"), 13)]
OWN_LINES = r"(StateDirectory|CacheDirectory|RuntimeDirectory|MemoryMax|Environment=(CUDA_CACHE_PATH|CUDA_VISIBLE_DEVICES|KERNSERVE_\w+))="
REQUEST = b"POST /v2/models/softmax/infer?shape=1,4&datatype=FP32 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\nConnection: close\r\n\r\n" + bytes(16)


def text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def run(*words, **environment):
    return subprocess.run(words, capture_output=True, text=True, timeout=60, env={**os.environ, **environment})


def are_valid(build, folder):
    """Installed to a folder that has the program, so that its path holds."""
    done = run("cmake", "--install", build, "--prefix", folder + "/at")
    units = folder + "/at/lib/systemd/system"
    names = sorted(os.listdir(units))
    check(done.returncode == 0 and names == ["kernserve-admin.socket", "kernserve.service", "kernserve.socket", "kernserve@.service"], names, done.stderr)
    shutil.copy(units + "/kernserve@.service", units + "/kernserve@3.service")
    for name in names + ["kernserve@3.service"]:
        done = run("systemd-analyze", "verify", "--man=no", os.path.join(units, name))
        check(done.returncode == 0 and not done.stderr, name, done.returncode, done.stderr)


def are_tight(folder):
    for drop_ins, most in SCORES:
        at = os.path.join(folder, "-".join(("at",) + drop_ins))
        os.makedirs(at + "/kernserve.service.d")
        shutil.copy(UNITS + "/kernserve.service", at)
        for name in drop_ins:
            shutil.copy("%s/%s.conf" % (UNITS, name), at + "/kernserve.service.d")
        done = run("systemd-analyze", "security", "--offline=true", "--threshold=%d" % most, at + "/kernserve.service", SYSTEMD_UNIT_PATH=at)
        check(done.returncode == 0, "exposure with", drop_ins, done.stdout[-200:], done.stderr)


def agree():
    service = {name: text(os.path.join(UNITS, name)).split("\n[Service]\n")[1].split("\n[Install]\n")[0] for name in ("kernserve.service", "kernserve@.service")}
    kept = [[line for line in one.splitlines() if line and not line.startswith("#") and not re.match(OWN_LINES, line)] for one in service.values()]
    check(kept[0] == kept[1], "kernserve.service and kernserve@.service differ:", sorted(set(kept[0]) ^ set(kept[1])))
    exits = re.findall(r"^    X\(\w+, (\d+), false,", text(ROOT + "/server/base/config/config.h"), re.M)
    for name, one in service.items():
        named = re.search(r"^RestartPreventExitStatus=(.*)", one, re.M).group(1).split()
        check(named == [code for code in exits if code != "0"], name, "RestartPreventExitStatus", named, exits)


# --- sockets that are passed --------------------------------------------------------------------------------------------


def ask(port, request):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        s.sendall(request)
        got = b""
        while chunk := s.recv(65536):
            got += chunk
    return got


def get(port, path):
    return ask(port, b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path)


def activated(kernserve, names, folder):
    """The process, the ports, and the file of its log."""
    ports, log = free_ports(2), os.path.join(folder, "log-" + names.replace(":", "-"))
    words = ["systemd-socket-activate", "--fdname=" + names] + [w for port in ports for w in ("-l", "127.0.0.1:%d" % port)]
    with open(log, "w") as file:
        process = subprocess.Popen(words + [kernserve, "--backend", "cpu", "--pinned-bytes", "16M", "--listen", "127.0.0.1:1", "--admin-listen", "127.0.0.1:2"],
                                   stdout=file, stderr=file)
    check(comes_to(lambda: text(log).count("Listening on"), 2) == 2, text(log))
    return process, ports, log


def names_decide(kernserve, folder):
    for names in ("data:admin", "admin:data"):
        process, ports, log = activated(kernserve, names, folder)
        data, admin = ports if names == "data:admin" else ports[::-1]
        check(ask(data, REQUEST).startswith(b"HTTP/1.1 200"), names, "the data listener")
        check(b"kernserve_state" in get(admin, b"/metrics"), names, "the second listener")
        check(b" 404 " in ask(admin, REQUEST).split(b"\r\n")[0], names, "inference on the second listener")
        serves = 'serves="http://127.0.0.1:%d, metrics and health http://127.0.0.1:%d"' % (data, admin)
        check(comes_to(lambda: serves in text(log), True), names, text(log))  # the log's own thread writes it
        process.terminate()
        check(process.wait(20) == 0, names, "exit code", process.returncode)
    process, ports, log = activated(kernserve, "admin:admin", folder)
    try:
        get(ports[0], b"/livez")
    except OSError:
        pass  # it ends without an answer
    check(process.wait(20) == 78 and "two passed sockets are named admin" in text(log), "two second listeners", process.returncode, text(log))


# --- system calls ---------------------------------------------------------------------------------------------------------


def calls_of(group):
    said = run("systemd-analyze", "syscall-filter", group).stdout
    found = set()
    for word in re.findall(r"^    ([@\w-]+)$", said, re.M):
        found |= calls_of(word) if word.startswith("@") else {word}
    return found


def allowed(files):
    calls = set()
    for file in files:
        for line in re.findall(r"^SystemCallFilter=(.*)$", text(os.path.join(UNITS, file)), re.M):
            for group in line.lstrip("~").split():
                calls = calls - calls_of(group) if line.startswith("~") else calls | calls_of(group)
    return calls


class Filter:
    """libseccomp, as systemd uses it: other calls fail with EPERM."""

    def __init__(self, calls):
        self.library = ctypes.CDLL(ctypes.util.find_library("seccomp"))
        self.library.seccomp_init.restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.library.seccomp_init(0x00050000 | errno.EPERM))
        for call in calls:
            number = self.library.seccomp_syscall_resolve_name(call.encode())
            if number >= 0:
                self.library.seccomp_rule_add_array(self.context, 0x7fff0000, number, 0, None)

    def load(self):
        if self.library.seccomp_load(self.context) != 0:
            os._exit(99)


def serves_under_filters(kernserve, folder):
    if not ctypes.util.find_library("seccomp"):
        print("no libseccomp here: the daemon did not run under the filters")
        return
    for files in (("kernserve.service",), ("kernserve.service", "tight.conf")):
        calls = allowed(files)
        check(100 < len(calls) < 400 and "mount" not in calls, files, "allow", len(calls), "calls")
        check(("mbind" in calls) == (len(files) == 1), files, "mbind")
        filter_, ports, log = Filter(calls), free_ports(2), os.path.join(folder, "log-filter")
        with open(log, "w") as file:
            process = subprocess.Popen([kernserve, "--backend", "cpu", "--pinned-bytes", "16M", "--listen", "127.0.0.1:%d" % ports[0], "--admin-listen",
                                        "127.0.0.1:%d" % ports[1]], stdout=file, stderr=file, preexec_fn=filter_.load)
        check(comes_to(lambda: "msg=ready" in text(log) or process.poll() is not None, True), files, text(log))
        if process.poll() is not None:
            check(False, files, "the daemon ended with", process.returncode)
            continue
        with open("/proc/%d/status" % process.pid) as file:
            check("Seccomp:\t2" in file.read(), "no filter")
        check(ask(ports[0], REQUEST).startswith(b"HTTP/1.1 200"), files, "a request")
        check(b"kernserve_state" in get(ports[1], b"/metrics"), files, "a scrape")
        process.terminate()
        check(process.wait(20) == 0, files, "exit code", process.returncode, text(log))


def main():
    build = os.path.abspath(sys.argv[1])
    if not shutil.which("systemd-analyze") or not shutil.which("systemd-socket-activate"):
        print("systemd-analyze is not installed")
        sys.exit(77)
    agree()
    with tempfile.TemporaryDirectory() as folder:
        are_valid(build, folder)
        are_tight(folder)
        names_decide(build + "/kernserve", folder)
        serves_under_filters(build + "/kernserve", folder)
    print("%d wrong" % wrongs())
    sys.exit(wrongs() > 0)


if __name__ == "__main__":
    main()
