#!/usr/bin/env python3
"""A full table of descriptors: accepting pauses without spinning, the log says so once a second with a count, and goes on
within a second when there is room.

engine_descriptors.py KERNSERVE
"""

import os
import re
import resource
import socket
import sys
import time

from daemon import check, comes_to, cpu_daemon, measured, wrongs

SECONDS = 3.2


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def lines(daemon, second):
    return [int(n) for found, n in re.findall(r"cannot accept connections\"(.*) times=(\d+)", daemon.said()) if ("listener=second" in found) == second]


def main():
    with cpu_daemon("--threads", "1") as daemon:
        pid = daemon.process.pid
        measured(daemon)
        usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (daemon.descriptors() + 2, usual[1]))
        before, begun = cpu_seconds(pid), time.monotonic()
        held = [daemon.dial() for _ in range(8)] + [socket.create_connection((daemon.host, daemon.admin_port)) for _ in range(8)]
        time.sleep(SECONDS)
        for second in (False, True):  # a line comes when a second is over, and may come late
            comes_to(lambda: sum(lines(daemon, second)) >= 10, True)
        used, took = cpu_seconds(pid) - before, time.monotonic() - begun
        for second in (False, True):
            times = lines(daemon, second)
            print("second listener" if second else "data listener", "lines", times)
            check(1 <= len(times) <= took + 1, "one line a second at most, not", len(times), "in", took)
            check(times and times[0] == 1 and sum(times) >= 10, "counts what it holds back:", times)
        check(used < 0.1 * took, "a pause is no spinning:", used, "s of CPU")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)
        begun = time.monotonic()
        check(daemon.get("/v2/health/ready").status == 200 and time.monotonic() - begun < 2, "served again after", time.monotonic() - begun)
        for s in held:
            s.close()
        check(daemon.stop() == 0, "the exit code")
    sys.exit(wrongs() > 0)


if __name__ == "__main__":
    main()
