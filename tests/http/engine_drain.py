#!/usr/bin/env python3
"""SIGTERM under load loses no accepted request: each gets its whole answer (200, or 503 draining), connects are refused at
once, and the daemon ends with 0."""
import signal
import socket
import sys
import threading
import time

from daemon import comes_to, cpu_daemon, random_values, read_answer, row_request, seed

CLIENTS = 16
SERVED = 50  # answers before the signal, at least


def client(daemon, request, body, stopping, faults, counts):
    try:
        s = daemon.dial()
    except OSError:
        return
    while True:
        try:
            s.sendall(request)
            answer = read_answer(s)
        except OSError:
            answer = None
        if answer is None:
            # Between two requests the server may close; one that was sent before the drain began must be answered.
            if not stopping.is_set():
                faults.append("a request was lost before the drain")
            else:
                counts["closed"] += 1
            return
        status, fields, got = answer
        counts[status] = counts.get(status, 0) + 1
        if status == 200 and got != body:
            faults.append("an answer differs")
        if status not in (200, 503):
            faults.append(f"status {status}")
        if fields.get("connection") == "close":
            return
        if status == 503:
            faults.append("503 without Connection: close")
            return


def accepts(daemon):
    try:
        socket.create_connection(("127.0.0.1", daemon.port), timeout=1).close()
        return True
    except OSError:
        return False


def main():
    generator = seed()
    head, body = row_request(random_values(generator, 1024))
    for cycle in range(4):
        stopping, faults, counts = threading.Event(), [], {"closed": 0}
        daemon = cpu_daemon("--threads", "2")
        with daemon:
            threads = [threading.Thread(target=client, args=(daemon, head + body, body, stopping, faults, counts))
                       for _ in range(CLIENTS)]
            for t in threads:
                t.start()
            time.sleep(0.5)
            comes_to(lambda: counts.get(200, 0) >= SERVED or bool(faults), True)
            stopping.set()
            begun = time.monotonic()
            daemon.process.send_signal(signal.SIGTERM)
            if comes_to(lambda: accepts(daemon), False):
                faults.append("connects are still accepted after SIGTERM")
            try:
                code = daemon.process.wait(40)
            except Exception:
                code = None
            took = time.monotonic() - begun
            for t in threads:
                t.join(5)
        print(f"cycle {cycle}: {counts}, ended with {code} after {took:.2f} s")
        if faults or code != 0 or counts["closed"] > 0 or counts.get(200, 0) < SERVED:
            sys.exit(f"{faults[:5]} exit code {code}")


main()
