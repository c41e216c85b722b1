#!/usr/bin/env python3
"""SIGTERM at any time ends with 0, with and without --supervise; and the supervisor holds every socket, so that nobody is
refused while its daemon is replaced: of both listeners, of unix sockets, and of sockets that were passed to it.

Time begins when our code does: until the loader has bound the libraries, a process has the system's way with signals. What
is sent in that time (a millisecond or two) is counted, not judged.

engine_signals.py KERNSERVE
"""

import fcntl
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time

from daemon import check, comes_to, daemon_path, sanitizer, seed, wrongs
from ports import free_ports

ROUNDS, PLAIN_ROUNDS, GROUP_ROUNDS, PAUSE_ROUNDS = 60, 20, 12, 6
OPTIONS = ("--backend", "cpu", "--threads", "1", "--pinned-bytes", "1M")
TERM_BIT, PIPE_BIT = 1 << (signal.SIGTERM - 1), 1 << (signal.SIGPIPE - 1)


def spawn(path, *options, command=(), **more):
    return subprocess.Popen([*command, path, *OPTIONS, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **more)


def addresses():
    return ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]


def our_code_runs(process):
    """Waits until SIGTERM is blocked; the seconds that took. Past that are a process that has ended, and one that ignores
    SIGPIPE, as main does at once: whoever waits for SIGTERM does not show it as blocked meanwhile."""
    begun = time.monotonic()
    while time.monotonic() < begun + 10 and process.poll() is None:
        with open("/proc/%d/status" % process.pid) as file:
            masks = {name: int(mask, 16) for name, mask in re.findall(r"(Sig\w+):\s*([0-9a-f]{16})", file.read())}
        if masks.get("SigBlk", 0) & TERM_BIT or masks.get("SigIgn", 0) & PIPE_BIT:
            break
    return time.monotonic() - begun


def end(process, seconds=40):
    try:
        said = process.communicate(timeout=seconds)[1].decode(errors="replace")
    except subprocess.TimeoutExpired:
        process.kill()
        said = "(did not end) " + process.communicate()[1].decode(errors="replace")
    return process.returncode, said


def early(path, generator, rounds, *options):
    codes, loader = {}, []
    for _ in range(rounds):
        delay = generator.uniform(0, 0.05)
        process = spawn(path, *addresses(), *options)
        loader.append(our_code_runs(process))
        time.sleep(delay)
        process.send_signal(signal.SIGTERM)
        code, said = end(process)
        codes[code] = codes.get(code, 0) + 1
        check(code == 0, options, "SIGTERM %.1f ms behind the first of our code: %d" % (delay * 1e3, code), said[-300:])
        check("level=error" not in said, said[-300:])
    print("%s, SIGTERM within 50 ms: codes %s; the loader took %.1f ms, at most %.1f"
          % (" ".join(options) or "plain", codes, sorted(loader)[rounds // 2] * 1e3, max(loader) * 1e3))


def before_our_code(path, generator):
    """For the record: sent at once, whatever runs."""
    codes = {}
    for _ in range(20):
        process = spawn(path, *addresses(), "--supervise")
        time.sleep(generator.uniform(0, 0.003))
        process.send_signal(signal.SIGTERM)
        code, _ = end(process)
        codes[code] = codes.get(code, 0) + 1
    print("not judged: SIGTERM within 3 ms of the spawn:", codes)
    check(set(codes) <= {0, -signal.SIGTERM}, codes)


def whole_group(path, generator):
    """As a terminal and a service manager ask: all processes at once. The daemon gets it twice, and is asked once."""
    for i in range(GROUP_ROUNDS):
        process = spawn(path, *addresses(), "--supervise", "--drain-delay", "100ms", start_new_session=True)
        our_code_runs(process)
        time.sleep(generator.uniform(0, 0.3))
        os.killpg(process.pid, signal.SIGINT if i % 2 else signal.SIGTERM)
        code, said = end(process)
        check(code == 0, "a signal to the whole group:", code, said[-400:])


def twice(path):
    """A second request is one: what runs is cut."""
    process = spawn(path, *addresses(), "--supervise", "--drain-delay", "20s")
    said = b""
    while b"msg=ready" not in said:
        said += os.read(process.stderr.fileno(), 4096)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    code, _ = end(process)
    check(code == 75 and time.monotonic() - begun < 5, "a second SIGTERM:", code, time.monotonic() - begun)


def child_of(process):
    with open("/proc/%d/task/%d/children" % (process.pid, process.pid)) as file:
        children = file.read().split()
    return int(children[0]) if children else None


def ask_health(family, address, seconds):
    """The status; what went wrong, where the connection was refused or cut."""
    with socket.socket(family) as s:
        s.settimeout(seconds)
        try:
            s.connect(address)
            s.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            head = b""
            while b"\r\n" not in head:
                more = s.recv(4096)
                if not more:
                    return "closed"
                head += more
            return int(head.split()[1])
        except OSError as error:
            return repr(error)


def wait_ready(listeners, seconds=30):
    until = time.monotonic() + seconds
    for family, address in listeners:
        while ask_health(family, address, 5) != 200 and time.monotonic() < until:
            time.sleep(0.05)


def killed_once(process, listeners, name):
    """The daemon is killed, and each listener asked again and again: connections wait, none is refused."""
    wait_ready(listeners)
    got = {}
    stop = threading.Event()

    def keep_asking(family, address):
        while not stop.is_set():
            got.setdefault(str(address), []).append(ask_health(family, address, 15))
            time.sleep(0.02)

    os.kill(child_of(process), signal.SIGKILL)
    time.sleep(0.02)  # what was under way has ended with the daemon
    askers = [threading.Thread(target=keep_asking, args=listener) for listener in listeners]
    for asker in askers:
        asker.start()
    time.sleep(0.3)  # within the pause before the next start
    wait_ready(listeners)
    stop.set()
    for asker in askers:
        asker.join()
    for _, address in listeners:
        statuses = got[str(address)]
        check(statuses and all(s == 200 for s in statuses), name, address, "answered", statuses[:20])
    print("%s: %s" % (name, {where: len(statuses) for where, statuses in got.items()}))


def stops(process, name, paths=()):
    process.send_signal(signal.SIGTERM)
    code, said = end(process)
    check(code == 0, name, code, said[-400:])
    check(not any(os.path.exists(path) for path in paths), name, "leaves its paths")


def listeners_are_kept(path):
    ports = free_ports(2)
    process = spawn(path, "--listen", "127.0.0.1:%d" % ports[0], "--admin-listen", "127.0.0.1:%d" % ports[1], "--supervise")
    killed_once(process, [(socket.AF_INET, ("127.0.0.1", port)) for port in ports], "ports")
    stops(process, "ports")
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("data", "second")]
        process = spawn(path, "--listen", "unix:" + paths[0], "--admin-listen", "unix:" + paths[1], "--supervise", "--socket-mode", "0600")
        killed_once(process, [(socket.AF_UNIX, p) for p in paths], "unix sockets")
        check(all(stat.S_IMODE(os.stat(p).st_mode) == 0o600 for p in paths), "their modes")
        stops(process, "unix sockets", paths)


def passed_sockets_are_kept(path):
    """As systemd passes them, with names; the opener's path stays."""
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, "passed")
        data, second = socket.socket(), socket.socket(socket.AF_UNIX)
        data.bind(("127.0.0.1", 0))
        second.bind(local)
        for s in (data, second):
            s.listen(100)
        high = [fcntl.fcntl(s.fileno(), fcntl.F_DUPFD, 50) for s in (second, data)]  # where 3 and 4 overwrite none of them
        listeners = [(socket.AF_INET, data.getsockname()), (socket.AF_UNIX, local)]
        for options in ((), ("--supervise",)):
            shell = 'exec 3<&%d 4<&%d; LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=admin:web exec "$0" "$@"' % tuple(high)
            process = spawn(path, "--listen", "127.0.0.1:1", "--admin-listen", "127.0.0.1:1", *options, command=("bash", "-c", shell),
                            pass_fds=high)
            if options:
                killed_once(process, listeners, "passed sockets")
            else:
                wait_ready(listeners)
            check(b"404" in answer_to(local, b"/v2/models/softmax"), "the socket named admin is the second listener")
            stops(process, "passed sockets, " + " ".join(options))
            check(os.path.exists(local), "a passed socket's path is its opener's")
        for fd in high:
            os.close(fd)
        data.close()
        second.close()


def answer_to(local, target):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(local)
        s.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % target)
        return s.recv(4096).split(b"\r\n")[0]


def while_it_pauses(path, generator):
    """Between a daemon's end and the next one's start."""
    for _ in range(PAUSE_ROUNDS):
        ports = free_ports(2)
        process = spawn(path, "--listen", "127.0.0.1:%d" % ports[0], "--admin-listen", "127.0.0.1:%d" % ports[1], "--supervise")
        wait_ready([(socket.AF_INET, ("127.0.0.1", ports[0]))])
        child = child_of(process)
        os.kill(child, signal.SIGKILL)
        check(comes_to(lambda: child_of(process) != child, True), "the daemon's end is not noticed")  # asked before that, it would end as the daemon did
        time.sleep(generator.uniform(0, 1.2))
        process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        code, said = end(process)
        check(code == 0 and time.monotonic() - begun < 10, "SIGTERM in the pause:", code, said[-300:])


def modes(path):
    """A unix socket's file has its mode from the first moment it is there, whatever the umask."""
    for mask, option, expected in ((0o000, "0660", 0o660), (0o077, "0666", 0o666), (0o022, "0600", 0o600), (0o027, "0", 0o750), (0o077, None, 0o660)):
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in ("data", "second")]
            options = ["--listen", "unix:" + paths[0], "--admin-listen", "unix:" + paths[1]] + (["--socket-mode", option] if option else [])
            shell = 'umask %04o && exec "$0" "$@"' % mask
            process = spawn(path, *options, command=("sh", "-c", shell))
            seen = [set(), set()]
            until = time.monotonic() + 1
            while time.monotonic() < until and not all(seen):
                for at, p in enumerate(paths):
                    try:
                        seen[at].add(stat.S_IMODE(os.stat(p).st_mode))
                    except FileNotFoundError:
                        pass
            wait_ready([(socket.AF_UNIX, p) for p in paths])
            for at, p in enumerate(paths):
                seen[at].add(stat.S_IMODE(os.stat(p).st_mode))
            check(seen == [{expected}] * 2, "umask %o, --socket-mode %s:" % (mask, option), [[oct(m) for m in s] for s in seen])
            stops(process, "unix sockets", paths)
    for wrong in ("0888", "660x", "01777", "-1", "rw"):
        code, said = end(spawn(path, "--socket-mode", wrong))
        check(code == 64 and "socket-mode" in said, wrong, code, said)


def main():
    path, generator = daemon_path(), seed()
    few = 3 if sanitizer(path) else 1  # a start takes several times as long, and most moments are covered by the other build
    early(path, generator, ROUNDS // few, "--supervise")
    early(path, generator, PLAIN_ROUNDS // few)
    before_our_code(path, generator)
    whole_group(path, generator)
    twice(path)
    listeners_are_kept(path)
    passed_sockets_are_kept(path)
    while_it_pauses(path, generator)
    modes(path)
    sys.exit(wrongs() > 0)


if __name__ == "__main__":
    main()
