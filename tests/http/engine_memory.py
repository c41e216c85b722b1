#!/usr/bin/env python3
"""The daemon within a memory limit: in a control group of 300 MB it takes presets that fit, serves what is asked of it with
more than fits at once, and is not killed; what does not fit is refused at the start, with both numbers.

engine_memory.py KERNSERVE    77: control groups of memory cannot be made here
"""

import collections
import os
import struct
import subprocess
import sys
import threading
import time

from daemon import SKIP, Daemon, check, daemon_path, metric, request, wrongs

LIMIT = 300 << 20
BODY_BYTES, CLIENTS, TURNS, IDLE = 24 << 20, 16, 2, 300


def mount_of(version):
    """Where control groups of memory are mounted, and this process's own path below."""
    with open("/proc/self/cgroup") as file:
        groups = [line.strip().split(":", 2) for line in file]
    with open("/proc/self/mountinfo") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            kind, _, options = right.split()[:3]
            root, point = left.split()[3:5]
            for number, names, path in groups:
                if version == 1 and kind == "cgroup" and "memory" in options.split(",") and "memory" in names.split(","):
                    return point, os.path.relpath(path, root)
                if version == 2 and kind == "cgroup2" and number == "0":
                    return point, os.path.relpath(path, root)
    return None


class Group:
    """A group of its own with the limit, and one in it, without, where the daemon runs: an ancestor's limit counts."""

    def __init__(self):
        self.made = []
        self.path = None
        for version, file in ((1, "memory.limit_in_bytes"), (2, "memory.max")):
            found = mount_of(version)
            if not found:
                continue
            outer = os.path.join(found[0], "kernserve_test_%d" % os.getpid())
            try:
                os.mkdir(outer)
                self.made.append(outer)
                with open(os.path.join(outer, file), "w") as limit:
                    limit.write(str(LIMIT))
                inner = os.path.join(outer, "inner")
                os.mkdir(inner)
                self.made.append(inner)
                self.path, self.outer, self.version = inner, outer, version
                return
            except OSError as error:
                print("version %d: %s" % (version, error))
                self.end()

    def enter(self):
        with open(os.path.join(self.path, "cgroup.procs"), "w") as file:
            file.write(str(os.getpid()))

    def peak(self):
        name = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}[self.version]
        try:
            with open(os.path.join(self.outer, name)) as file:
                return int(file.read())
        except OSError:
            return -1

    def end(self):
        for path in reversed(self.made):
            for _ in range(50):
                try:
                    os.rmdir(path)
                    break
                except OSError:
                    time.sleep(0.1)
        self.made = []


def under(group):
    """A command line that moves itself into the group and then becomes the daemon."""
    return ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', group.path]


def large(daemon, statuses):
    """More bytes at once than the group has: each body is one answer of the size, or a refusal that says it is full."""
    body = struct.pack("<%di" % (1 << 18), *range(1 << 18)) * (BODY_BYTES >> 20)
    for _ in range(TURNS):
        with daemon.connect(60) as connection:
            answer = connection.ask(request("POST", "/v2/models/reduce/infer?shape=%d,1&datatype=INT32&axis=1&op=max" % (len(body) // 4), (), body))
            statuses.append(answer.status if answer else None)
            if answer and answer.status == 200:
                check(answer.body == body, "a wrong answer of", len(answer.body), "bytes")


def shapes(daemon, statuses):
    """Products of ever other shapes, each a plan."""
    with daemon.connect(60) as connection:
        for n in range(1, 400):
            values = bytes(4 * 64 * n + 4 * n * 8)
            answer = connection.ask(request("POST", "/v2/models/matmul/infer?shape=64,%d&shape=%d,8&datatype=FP32" % (n, n), (), values))
            statuses.append(answer.status)


def serves(path, group):
    with Daemon(path, "--backend", "cpu", "--threads", "2", "--log-level", "debug", under=under(group)) as daemon:
        ready = daemon.says(r"msg=limits.*slot_bytes=(\d+).*inflight_bytes=(\d+).*\n")
        slots, inflight = (int(n) for n in ready.groups())
        print("slots %d MiB, inflight %d MiB" % (slots >> 20, inflight >> 20))
        check(slots + inflight < LIMIT * 3 // 4, "presets of", slots, "and", inflight, "in a group of", LIMIT)
        check(slots >= 16 << 20 and inflight >= 16 << 20, "presets too small to serve:", slots, inflight)
        statuses, idle = [], [daemon.dial() for _ in range(IDLE)]
        threads = [threading.Thread(target=large, args=(daemon, statuses)) for _ in range(CLIENTS)] + [threading.Thread(target=shapes, args=(daemon, statuses))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for s in idle:
            s.close()
        alive, counts = daemon.process.poll() is None, dict(collections.Counter(statuses))
        print("answers %s, peak of the group %d MiB" % (counts, group.peak() >> 20))
        check(alive, "the daemon has gone:", daemon.process.poll(), daemon.said()[-300:])
        check(set(counts) <= {200, 503, 504}, counts)
        check(counts.get(200, 0) >= 399, "too few were served:", counts)
        if alive:
            check(metric(daemon.metrics(), "kernserve_inflight_bytes") == 0, "bytes stay in flight")
            check(daemon.stop() == 0, "the exit code")


def refuses(path, group):
    for option, value, numbers in (("--pinned-bytes", "290M", ("290 MiB", "300 MiB")), ("--inflight-bytes", "2G", ("2048 MiB", "300 MiB")),
                                   ("--plan-cache", "1G", ("2048 MiB", "300 MiB"))):
        for more in ((), ("--check-config",)):
            done = subprocess.run([*under(group), path, "--backend", "cpu", "--threads", "2", "--listen", "127.0.0.1:0", "--admin-listen", "",
                                   option, value, *more], capture_output=True, text=True, timeout=60)
            check(done.returncode == 78, option, value, "ends with", done.returncode)
            check(all(n in done.stderr for n in numbers) and len(done.stderr.splitlines()) == 1, done.stderr)


def refuses_anywhere(path):
    """No group is needed for more than this host has, nor for a limit of the process's own."""
    if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 1250 << 30:
        done = subprocess.run([path, "--backend", "cpu", "--listen", "127.0.0.1:0", "--admin-listen", "", "--pinned-bytes", "250G",
                               "--inflight-bytes", "1000G"], capture_output=True, text=True, timeout=60)
        check(done.returncode == 78 and "256000 MiB" in done.stderr, done.returncode, done.stderr)
    done = subprocess.run(["sh", "-c", 'ulimit -v 4000000 && exec "$@"', "sh", path, "--backend", "cpu", "--inflight-bytes", "4G", "--check-config"],
                          capture_output=True, text=True, timeout=60)
    check(done.returncode == 78 and "ulimit -v" in done.stderr and "3906 MiB" in done.stderr, done.returncode, done.stderr)


def main():
    path = daemon_path()
    refuses_anywhere(path)
    group = Group()
    if not group.path:
        print("no control group of memory can be made here: the rest is left out")
        sys.exit(1 if wrongs() else SKIP)
    try:
        refuses(path, group)
        serves(path, group)
    finally:
        group.end()
    sys.exit(wrongs() > 0)


if __name__ == "__main__":
    main()
