#!/usr/bin/env python3
"""Ports for the servers of tests: free_ports(COUNT) gives numbers on which nothing listens now. As a program it prints them.

They lie outside the range from which the kernel takes the client ends of connections: one from within could become some client's
between this call and the server's bind(). And no two tests at one time get the same, because each call goes on where
the last one of any process ended: the place is kept in a file of the user's, under a lock.

ports.py [COUNT]
"""

import errno
import fcntl
import os
import random
import socket
import sys
import tempfile

LEAST, BEYOND = 10000, 65536
EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"
ENOUGH = 1000  # fewer numbers than that outside the kernel's range, and those within it are taken as well


def _numbers():
    try:
        with open(EPHEMERAL) as file:
            low, high = map(int, file.read().split())
    except (OSError, ValueError):
        low, high = 32768, BEYOND - 1
    outside = [*range(LEAST, low), *range(high + 1, BEYOND)]
    return outside if len(outside) >= ENOUGH else list(range(LEAST, BEYOND))


def _free(port):
    """Without SO_REUSEADDR, so that a port with connections in TIME_WAIT is none either."""
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            return False
    return True


def free_ports(count):
    numbers = _numbers()
    place = os.path.join(tempfile.gettempdir(), "kernserve-test-ports-%d" % os.getuid())
    file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        said = os.pread(file, 16, 0)
        # A first one begins anywhere: containers that share the host's network have a file each.
        at = int(said) if said.strip().isdigit() else random.randrange(len(numbers))
        found = []
        for step in range(len(numbers)):
            port = numbers[(at + step) % len(numbers)]
            if _free(port):
                found.append(port)
            if len(found) == count:
                os.pwrite(file, b"%-16d" % ((at + step + 1) % len(numbers)), 0)
                return found
    finally:
        os.close(file)
    raise RuntimeError("no %d free ports among %d" % (count, len(numbers)))


if __name__ == "__main__":
    print(*free_ports(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
