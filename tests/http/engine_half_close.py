#!/usr/bin/env python3
"""A client that closes its sending side right after the request gets its complete answer, also beside idle connections."""
import socket
import sys

from daemon import cpu_daemon, random_values, read_answer, row_request, seed

ROUNDS = 60
COUNTS = {16: ROUNDS, 256: ROUNDS, 40000: ROUNDS, 200000: 10}  # the first are answered at once, the last after a suspension


def once(daemon, generator, count):
    head, body = row_request(random_values(generator, count))
    with daemon.dial() as s:
        s.sendall(head + body)
        s.shutdown(socket.SHUT_WR)
        answer = read_answer(s)
        if answer is None or answer[0] != 200 or answer[2] != body:
            return False
        return s.recv(1) == b""


def main():
    generator = seed()
    missing = {}
    with cpu_daemon("--threads", "1") as daemon:
        for idle in (0, 50):
            beside = [daemon.dial() for _ in range(idle)]
            for count, rounds in COUNTS.items():
                lost = sum(not once(daemon, generator, count) for _ in range(rounds))
                if lost:
                    missing[(idle, count)] = lost
            for s in beside:
                s.close()
        code = daemon.stop()
    print("rounds:", 2 * sum(COUNTS.values()), "without a complete answer:", missing or 0)
    sys.exit(1 if missing or code != 0 else 0)


main()
