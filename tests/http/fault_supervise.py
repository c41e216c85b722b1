#!/usr/bin/env python3
"""The daemon under --supervise is killed while eight clients load it: connections are lost, none is refused, and every client
is served again.

fault_supervise.py URL PID ROUNDS, PID the supervisor's. Prints the longest time that a client was without an answer.
"""

import os
import signal
import sys
import threading
import time

from daemon import Connection, Remote, request

BODY = bytes(4 * 8 * 64)
ASK = request("POST", "/v2/models/softmax/infer?shape=8,64&datatype=FP32", [], BODY)
CLIENTS, LONGEST = 8, 60  # seconds: a device that others use is opened in 20


def child_of(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as children:
        found = children.read().split()
    return int(found[0]) if found else None


class Client(threading.Thread):
    def __init__(self, target, stop):
        super().__init__()
        self.target, self.stop = target, stop
        self.good, self.cut, self.longest, self.served_at, self.wrong = 0, 0, 0.0, time.monotonic(), []

    def run(self):
        while not self.stop.is_set():
            try:
                connection = Connection(self.target, LONGEST)
            except OSError as error:
                self.wrong.append("connect: %s" % error)
                time.sleep(0.05)
                continue
            with connection:
                self.converse(connection)

    def converse(self, connection):
        while not self.stop.is_set():
            try:
                answer = connection.ask(ASK)
            except OSError as error:
                self.wrong.append("waited in vain: %s" % error)
                return
            if answer is None or answer.status != 200 or len(answer.body) != len(BODY):
                self.cut += 1
                if answer is not None and answer.status != 200:
                    self.wrong.append("status %d" % answer.status)
                return
            now = time.monotonic()
            self.good, self.longest, self.served_at = self.good + 1, max(self.longest, now - self.served_at), now


def main():
    target, pid, rounds = Remote(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    stop, wrong = threading.Event(), []
    clients = [Client(target, stop) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    for _ in range(rounds):
        time.sleep(0.3)
        killed = child_of(pid)
        os.kill(killed, signal.SIGKILL)
        killed_at = time.monotonic()
        while time.monotonic() < killed_at + LONGEST and not all(c.served_at > killed_at + 0.2 for c in clients):
            time.sleep(0.02)
        if not all(c.served_at > killed_at + 0.2 for c in clients):
            wrong.append("not all clients were served again")
        if child_of(pid) in (None, killed):
            wrong.append("no new daemon")
    stop.set()
    for client in clients:
        client.join(LONGEST + 5)
        wrong += client.wrong
    print("%d answers, %d cut, the longest gap %.2f s" % (sum(c.good for c in clients), sum(c.cut for c in clients),
                                                        max(c.longest for c in clients)))
    if not sum(c.cut for c in clients):
        wrong.append("nothing was cut: the daemon was not under load")
    for line in sorted(set(wrong)):
        print("WRONG %s (%d)" % (line, wrong.count(line)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
