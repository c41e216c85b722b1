#!/usr/bin/env python3
"""The device breaks while sixteen clients load the daemon: what every one of them sees, and how the process leaves.

fault_load.py KERNSERVE_FAULTY KIND [OPTION...], KIND sticky or hang. Wrong is: a request that was sent before the fault and
got no answer; a 503 that is not `device`; a 200 to a request that was sent after a client knew; a wrong result; health that
does not say 503 within a second; more than one fault counted; an exit code other than 70.
"""

import array
import datetime
import random
import re
import selectors
import sys
import threading
import time

from daemon import Connection, Daemon, metric, request

CLIENTS, ROWS, COLUMNS, LAUNCHES = 16, 8, 64, 1500
SLOW = 3  # a sanitizer's pace


class Seen:
    """What the clients have seen."""

    def __init__(self, ask, right):
        self.ask, self.right = ask, right
        self.known_at = None  # time.time() at which the first client had a 503 device in hand
        self.wrong, self.good, self.refused = [], 0, 0
        self.unanswered = []  # time.time() behind the sending of each such request

    def fault(self, text):
        self.wrong.append(text)

    def answered(self, sent_at, answer):
        if answer is None:
            self.unanswered.append(sent_at)
        elif answer.status == 200:
            self.good += 1
            if answer.body != self.right:
                self.fault("a wrong result")
            if self.known_at is not None and sent_at > self.known_at:
                self.fault("a 200 to a request that was sent after the fault was known")
        elif answer.status == 503 and answer.header("kernserve-error") == "device":
            self.refused += 1
            if self.known_at is None:
                self.known_at = time.time()
            if not answer.header("retry-after"):
                self.fault("a 503 without Retry-After")
        else:
            self.fault("unexpected: %r" % answer)


class Clients:
    """All in one thread: what waits for the interpreter's lock would take a request's time milliseconds behind its sending."""

    def __init__(self, where, seen):
        self.where, self.seen = where, seen
        self.waiting = selectors.DefaultSelector()
        self.sent_at = {}  # of each connection

    def ask(self, connection):
        connection.send(self.seen.ask)
        self.sent_at[connection] = time.time()

    def connect(self):
        try:
            connection = Connection(self.where, 20)
        except OSError:
            return
        self.waiting.register(connection.socket, selectors.EVENT_READ, connection)
        self.ask(connection)

    def take(self, connection):
        answer = connection.answer()
        self.seen.answered(self.sent_at[connection], answer)
        if answer is not None and not answer.says_close():
            self.ask(connection)
            return
        self.waiting.unregister(connection.socket)
        connection.close()
        self.connect()

    def run(self):
        """Until nobody answers."""
        for _ in range(CLIENTS):
            self.connect()
        while self.waiting.get_map():
            events = self.waiting.select(20)
            if not events:
                self.seen.fault("%d clients waited in vain" % len(self.waiting.get_map()))
                return
            try:
                for key, _ in events:
                    self.take(key.data)
            except OSError as error:
                self.seen.fault("a client waited in vain: %s" % error)
                return


def watch_health(daemon, seen, result):
    """The second listener says so too, and while it does the metrics count one fault."""
    second = type("Second", (), {"host": daemon.host, "port": daemon.admin_port})
    try:
        with Connection(second, 20) as connection:
            while True:
                answer = connection.ask(request("GET", "/v2/health/ready"))
                if answer is None:
                    return
                if answer.status == 503:
                    break
                time.sleep(0.005)
            result["unready_at"], result["body"] = time.time(), answer.body
            answer = connection.ask(request("GET", "/metrics"))
            if answer is not None:
                result["metrics"] = answer.body.decode()
    except OSError as error:
        seen.fault("health: %s" % error)


def launches_at_start(path, options):
    with Daemon(path, *options) as daemon:
        return int(metric(daemon.metrics(), "kernserve_launches_total"))


def failed_at(said):
    """When the log says that the device failed, as time.time() has it."""
    found = re.search(r'^ts=(\S+)Z .*msg="device failed"', said, re.M)
    return datetime.datetime.fromisoformat(found[1] + "+00:00").timestamp() if found else None


def main():
    path, kind, options = sys.argv[1], sys.argv[2], sys.argv[3:]
    first = launches_at_start(path, options)
    random.seed(1)
    body = array.array("f", [random.uniform(-4, 4) for _ in range(ROWS * COLUMNS)]).tobytes()
    ask = request("POST", "/v2/models/softmax/infer?shape=%d,%d&datatype=FP32" % (ROWS, COLUMNS), [], body)
    with Daemon(path, *options, environment={"KS_FAULT": "launch:%d:%s" % (first + LAUNCHES, kind)}) as daemon:
        with daemon.connect() as connection:
            right = connection.ask(ask)
        sums = [sum(array.array("f", right.body)[i * COLUMNS:(i + 1) * COLUMNS]) for i in range(ROWS)]
        seen, result = Seen(ask, right.body), {}
        if any(abs(s - 1) > 1e-4 for s in sums):
            seen.fault("rows of the first answer add up to %s" % sums)
        threads = [threading.Thread(target=Clients(daemon, seen).run), threading.Thread(target=watch_health, args=(daemon, seen, result))]
        for thread in threads:
            thread.start()
        try:
            code = daemon.process.wait(60)
        except Exception:
            code = "none within 60 s"
            daemon.kill()
        gone_at = time.time()
        for thread in threads:
            thread.join(30)
            if thread.is_alive():
                seen.fault("a client still waits")
        said = daemon.said()
    if code != 70:
        seen.fault("exit code %s instead of 70" % code)
    if not seen.good or not seen.refused:
        seen.fault("%d answers 200 and %d answers 503: it was to have both" % (seen.good, seen.refused))
    elif gone_at - seen.known_at > 2 * SLOW:
        seen.fault("it left %.1f s after the fault" % (gone_at - seen.known_at))
    if "unready_at" not in result or b'"failed"' not in result["body"]:
        seen.fault("ready never said failed: %s" % result.get("body"))
    elif seen.known_at and result["unready_at"] - seen.known_at > 1:
        seen.fault("ready said so only after %.1f s" % (result["unready_at"] - seen.known_at))
    if "metrics" in result:
        if metric(result["metrics"], "kernserve_device_faults_total") != 1:
            seen.fault("faults counted: %s" % metric(result["metrics"], "kernserve_device_faults_total"))
        if metric(result["metrics"], "kernserve_device_state", kernserve_device_state="failed") != 1:
            seen.fault("the device's state is not failed")
    else:
        seen.fault("no metrics after the fault")
    if said.count("device failed") != 1:
        seen.fault("the log says it %d times" % said.count("device failed"))
    else:  # once the process leaves it may cut what came after the fault
        late = sum(sent_at < failed_at(said) for sent_at in seen.unanswered)
        if late:
            seen.fault("%d requests that were sent before the fault got no answer" % late)
    if "Sanitizer" in said or "runtime error" in said:
        seen.fault(said[-2000:])
    print("%s: %d answers 200, then %d answers 503; gone %.2f s after the first" %
          (kind, seen.good, seen.refused, gone_at - (seen.known_at or gone_at)))
    for line in sorted(set(seen.wrong)):
        print("WRONG %s (%d)" % (line, seen.wrong.count(line)))
    if seen.wrong:
        print(said[-1500:])
    return 1 if seen.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
