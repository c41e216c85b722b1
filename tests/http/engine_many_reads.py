#!/usr/bin/env python3
"""A body with a length may come in as many small reads as its client likes, through either reader: only its rate is bounded.
More than 65,536 reads must end with 200; a body below --min-rate must end with 408 behind the 5 s that every body has."""
import sys
import threading
import time

from daemon import check, cpu_daemon, random_values, read_answer, row_request, seed, wrongs

COUNT = 18000            # numbers of 4 bytes, sent byte after byte
PAUSE_S = 1e-6           # long enough, with what a sleep itself takes, for the daemon to have read the byte
DEADLINE_S = 60          # of one body: far longer than it takes
GRACE_S, SLOW_BYTES_PER_S = 5, 200


def with_field(head, field):
    return head.replace(b"\r\n\r\n", b"\r\n" + field + b"\r\n\r\n")


def byte_by_byte(daemon, generator, name, field):
    """Most of the single bytes are a read of their own."""
    head, body = row_request(random_values(generator, COUNT))
    with daemon.dial(timeout=DEADLINE_S) as s:
        s.sendall(with_field(head, field))
        begun = time.monotonic()
        try:
            for i in range(len(body)):
                s.send(body[i:i + 1])
                time.sleep(PAUSE_S)
        except OSError as fault:
            print(name, "stopped at byte", i, fault)
        answer = read_answer(s)
        print("%s: %d bytes in as many writes, %.1f s, %s" % (name, len(body), time.monotonic() - begun, answer and answer[0]))
        check(answer and answer[0] == 200 and answer[2] == body, name, answer and answer[:2])


def too_slow(daemon, generator):
    head, body = row_request(random_values(generator, COUNT))
    with daemon.dial() as s:
        s.sendall(head)
        s.settimeout(1 / SLOW_BYTES_PER_S)
        begun = time.monotonic()
        data = b""
        for i in range(4 * GRACE_S * SLOW_BYTES_PER_S):
            try:
                s.send(body[i:i + 1])
                data = s.recv(4096)
                break
            except TimeoutError:
                continue
        took = time.monotonic() - begun
        print("below --min-rate: %.1f s, %r" % (took, data[:24]))
        check(data.startswith(b"HTTP/1.1 408 ") and b"Kernserve-Error: slow" in data, "a body below --min-rate", data)
        check(GRACE_S - 0.5 < took < 3 * GRACE_S, "its 408 came after", took)


def main():
    generator = seed()
    with cpu_daemon("--threads", "1", "--min-rate", "1024") as daemon:
        clients = [threading.Thread(target=too_slow, args=(daemon, generator)),
                   threading.Thread(target=byte_by_byte, args=(daemon, generator, "plain reader", b"X-None: 0")),
                   threading.Thread(target=byte_by_byte, args=(daemon, generator, "library", b"Expect: 100-continue"))]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        check(daemon.stop() == 0, "exit code")
    sys.exit(1 if wrongs() else 0)


main()
