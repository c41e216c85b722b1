#!/usr/bin/env python3
"""Both readers of HTTP, the plain one and libmicrohttpd, give the same answers to the same requests, and count the same.

readers.py KERNSERVE [--count N] [--seed N] [--keep-going]   N requests; the full run is --count 20000 with five seeds

Two daemons with the same options get the same connections: requests drawn by drawn.py, some pipelined, some cut at random places,
each connection going on behind every answer that lets it. Compared are status, every field but Date, X-Request-Id (unless the
client gave one) and Server-Timing, which must be there on both or on neither, the body's bytes, how many interim answers came,
whether the connection ends, and, behind every so many connections, by how much the counters of /metrics grew.
Profiles   options under which other answers are possible: a token, strict parameters, compressed answers, a last request.
"""

import argparse
import os
import random
import re
import sys
import tempfile
import time

from daemon import Daemon, check, metric, request, settle, wrongs
from drawn import COMPAT, Draw
from refusal_rows import LIBRARY, OPTIONS, OTHER_ROWS, ROWS, STAYS
from strict import Exchange, Malformed, read_all

OWN = ("date", "x-request-id", "server-timing")
SECRET = "correct-horse-battery-staple"
TOKEN = "{token file}"
MARKER = request("GET", "/v2/health/live", [("X-Request-Id", "marker"), ("Authorization", "Bearer " + SECRET)])
# share of the requests, options
PROFILES = ((0.7, OPTIONS),
            (0.1, OPTIONS + ("--token-file", TOKEN, "--strict-parameters", "--compat-models", "--response-compression", "--no-server-timing")),
            (0.1, OPTIONS + ("--json-non-finite", "error", "--max-requests-per-connection", "4", "--compat-models", "--triton-metrics")),
            (0.1, OPTIONS + ("--host", "evil.example", "--max-header", "2k", "--max-fields", "9", "--max-uri", "100")))
# Pages that tell of the process: their numbers differ.
VOLATILE = re.compile(r"^/(metrics|v2/models/.*stats|v2/models/[^/]*/(versions/[^/]*/)?plan)(\?|$)")
# Counters that follow from what was asked alone.
COUNTED = ("kernserve_http_requests_total", "kernserve_http_request_body_bytes_total", "kernserve_http_response_body_bytes_total", "kernserve_inference_requests_total", "kernserve_requests_rejected_total",
           "kernserve_requests_aborted_total", "kernserve_transfer_bytes_total", "kernserve_inference_request_duration_seconds_count", "kernserve_inference_phase_duration_seconds_count",
           "kernserve_device_errors_total", "kernserve_log_messages_total")
UNEVEN = re.compile(r'_response_body_bytes_total{handler="(metrics|model_stats|model_plan)"')  # pages of other numbers
READER = "kernserve_http_reader_requests_total"
STATUSES = {200, 400, 401, 403, 404, 405, 413, 414, 415, 417, 421, 422, 431, 501, 503, 504}


def second_reader(path, options, **others):
    """A daemon in which libmicrohttpd reads, and how a head is changed for it: not at all, where the plain reader can be turned
    off; else into a legal form that it leaves to the library."""
    environment = {"KERNSERVE_TEST_READER": "libmicrohttpd"}
    daemon = Daemon(path, *options, environment=environment, **others)
    if metric(daemon.metrics(), READER, reader="libmicrohttpd"):
        return daemon, lambda head: head
    return daemon, lambda head: head.replace(b"\r\nHost: ", b"\r\nHost:  ", 1)


class Side:
    """One of the two daemons."""

    def __init__(self, name, daemon, form):
        self.name, self.daemon, self.form = name, daemon, form
        self.before = None

    def wire(self, drawn):
        data = drawn.bytes()
        at = data.find(b"\r\n\r\n") + 4
        return self.form(data[:at]) + data[at:]

    def counters(self):
        """The counted samples by name and labels."""
        found = {}
        for line in self.daemon.metrics().splitlines():
            name = line.split("{")[0].split(" ")[0]
            key, _, value = line.rpartition(" ")
            if name in COUNTED and not UNEVEN.search(key):
                found[key] = float(value)
        return found


class Talk:
    """One connection to one side: what was asked, and everything that came back."""

    def __init__(self, side):
        self.side, self.exchange = side, Exchange((side.daemon.host, side.daemon.port), 10)
        self.methods, self.fault = [], None

    def send(self, group, random):
        """The group's bytes, pipelined; the same random numbers on both sides cut them at the same places, but for the form."""
        wire = b"".join(self.side.wire(drawn) for drawn in group)
        self.methods += [drawn.method for drawn in group]
        places = sorted(int(random.random() * len(wire)) for _ in range(random.choice((0, 0, 0, 1, 2, 5))))
        pause = random.choice((0.0, 0.0, 0.001)) if places else 0.0
        self.exchange.send([wire[a:b] for a, b in zip([0] + places, places + [len(wire)]) if a < b], pause)

    def send_head(self, drawn):
        self.methods.append(drawn.method)
        self.exchange.send([self.side.form(drawn.head())])

    def interim(self):
        """Whether 100 came before anything final: the body may follow."""
        try:
            before = len(read_all(self.exchange.got, self.methods)[0]), read_all(self.exchange.got, self.methods)[1]
            while True:
                answers, interim, _ = read_all(self.exchange.got, self.methods)
                if interim > before[1] or len(answers) >= len(self.methods):
                    return interim > before[1]
                if not self.exchange.receive(3):
                    return False
        except Malformed as fault:
            self.fault = str(fault)
            return False

    def answers(self):
        """(answers so far, interim ones), as many as requests were sent, or until the end."""
        try:
            answers, interim, _ = self.exchange.collect(len(self.methods), self.methods, 5)
            return answers, interim
        except Malformed as fault:
            self.fault = str(fault)
            return [], 0

    def end(self):
        self.exchange.finish(5)
        try:
            answers, _, rest = read_all(self.exchange.got, self.methods)
        except Malformed as fault:
            self.fault, answers, rest = str(fault), [], b""
        self.exchange.close()
        return answers, rest


def shown(answer, drawn):
    """What must be alike of an answer."""
    volatile = VOLATILE.match(drawn.target) is not None and answer.status == 200 or answer.status == 504  # which tells how long
    given = any(name == "X-Request-Id" for name, _ in drawn.headers)
    fields = [(name, value) for name, value in answer.headers if (name not in OWN or (name == "x-request-id" and given)) and not (volatile and name == "content-length")]
    own = sorted(name for name, _ in answer.headers if name in OWN)
    if given and answer.header("x-request-id") not in [v for n, v in drawn.headers if n == "X-Request-Id"]:
        fields = [pair for pair in fields if pair[0] != "x-request-id"]  # refused, and one of ours in its place
    return answer.status, sorted(fields), own, re.sub(rb"[-+0-9.e]+", b"0", answer.body) if volatile and not drawn.target.startswith("/metrics") else answer.body if not volatile else b""


def difference(mine, other, drawn):
    a, b = shown(mine, drawn), shown(other, drawn)
    for name, x, y in zip(("status", "fields", "own fields", "body"), a, b):
        if x != y:
            return "%s %.300r, the library's %.300r (status %d, %d)" % (name, x, y, a[0], b[0])
    return None


class Run:
    def __init__(self, sides, draw, random):
        self.sides, self.draw, self.random = sides, draw, random
        self.asked, self.statuses, self.differences = 0, {}, 0

    def wrong(self, *words):
        self.differences += 1
        check(False, *words)

    def groups(self):
        """What one connection asks: groups of requests that go out together; the last group ends with what may close."""
        r, groups = self.random, []
        for _ in range(r.choice((1, 1, 2, 4, 8))):
            group = []
            for _ in range(r.choice((1, 1, 1, 2, 5))):
                group.append(self.draw.request())
                if group[-1].ends:
                    break
            groups.append(group)
            if group[-1].ends:
                break
        return groups

    def ask(self, talks, group):
        """Sends one group on both sides. False: the connection is over."""
        for drawn in group[:-1]:
            drawn.expects = False
        last = group[-1]
        if last.expects and last.raw is None:
            if group[:-1]:
                self.ask(talks, group[:-1])
            for talk in talks:
                talk.send_head(last)
            for talk in talks:
                if talk.interim():
                    talk.exchange.send([last.framed()])
        else:
            number = self.random.getrandbits(64)
            for talk in talks:
                talk.send(group, random.Random(number))
        return self.compare(talks, group)

    def compare(self, talks, group):
        found = [talk.answers() for talk in talks]
        self.asked += len(group)
        for talk in talks:
            if talk.fault:
                self.wrong("%s: %s behind %s" % (talk.side.name, talk.fault, group[-1]))
                return False
        counts = [len(answers) for answers, _ in found]
        if counts[0] != counts[1] or found[0][1] != found[1][1]:
            self.wrong("answers %d, the library's %d, interim %d, %d, to %s" % (*counts, found[0][1], found[1][1], " | ".join(map(str, group))))
            return False
        first = len(talks[0].methods) - len(group)
        for i, drawn in enumerate(group):
            if first + i >= counts[0]:
                break
            mine, other = (answers[first + i] for answers, _ in found)
            self.statuses[mine.status] = self.statuses.get(mine.status, 0) + 1
            fault = difference(mine, other, drawn)
            if fault:
                self.wrong("%s: %s" % (drawn, fault))
                print("      %r" % drawn.bytes()[:300])
        if not counts[0]:
            self.wrong("no answer to %s" % " | ".join(map(str, group)))
            return False
        if counts[0] < len(talks[0].methods) and not found[0][0][-1].says_close():
            self.wrong("%d answers to %d requests, the end is not announced: %s" % (counts[0], len(talks[0].methods), " | ".join(map(str, group))))
        return counts[0] == len(talks[0].methods) and not found[0][0][-1].says_close()

    def connection(self, groups):
        talks = [Talk(side) for side in self.sides]
        goes_on = True
        for group in groups:
            goes_on = self.ask(talks, group)
            if not goes_on:
                break
        marked = len(talks[0].methods)
        for talk in talks:
            talk.methods.append("GET")
            talk.exchange.send([MARKER])
        if goes_on:
            for talk in talks:
                talk.answers()
        ends = [talk.end() for talk in talks]
        for talk, (answers, rest) in zip(talks, ends):
            right = len(answers) == marked + 1 and answers[-1].header("x-request-id") == "marker" if goes_on else len(answers) <= marked
            if not right or rest:
                self.wrong("%s: behind %d requests the marker %s; %d answers, %d bytes, %s" % (talk.side.name, marked, "got no answer" if goes_on else "got one", len(answers), len(rest), talk.fault))

    def counters(self, when):
        """All that was asked has been counted when the last answer has left, a moment later at the latest."""
        end = time.monotonic() + 2
        while True:
            now = [side.counters() for side in self.sides]
            wrong = {key: tuple(int(n.get(key, 0) - side.before.get(key, 0)) for side, n in zip(self.sides, now)) for key in now[0].keys() | now[1].keys()}
            wrong = {key: grew for key, grew in wrong.items() if grew[0] != grew[1]}
            if not wrong or time.monotonic() > end:
                break
            time.sleep(0.02)
        for key, grew in sorted(wrong.items()):
            self.wrong("%s: %s grew by %d, the library's by %d" % (when, key, *grew))
        for side, n in zip(self.sides, now):
            side.before = n


def models_of(daemon):
    """All names, presets among them, that are no compatibility models."""
    names = re.findall(rb'"name":"([a-z0-9_]+)"', daemon.connect().ask(request("POST", "/v2/repository/index", [("Authorization", "Bearer " + SECRET)]), "POST").body)
    return tuple(n for n in sorted({name.decode() for name in names}) if n not in COMPAT)


def read_by(daemon):
    text = daemon.metrics()
    return {reader: int(metric(text, READER, reader=reader) or 0) for reader in ("plain", "libmicrohttpd")}


def say_readers(sides):
    """That each side was read by the reader that it stands for."""
    counts = [read_by(side.daemon) for side in sides]
    print("      read by: %s; %s" % tuple(counts))
    if any(counts[0].values()):
        check(counts[0]["plain"] > 20 * counts[0]["libmicrohttpd"], "the first daemon was read by the library", counts[0])
        check(counts[1]["libmicrohttpd"] > 20 * counts[1]["plain"], "the second daemon was read by the plain reader", counts[1])


def profile(path, options, wanted, generator, keep_going):
    """One pair of daemons; the statuses that were seen."""
    with tempfile.NamedTemporaryFile("w", suffix=".tokens") as file:
        file.write(SECRET + "\n")
        file.flush()
        os.chmod(file.name, 0o600)
        token = SECRET if TOKEN in options else None
        options = ["--backend", "cpu", "--threads", "1", *(file.name if o == TOKEN else o for o in options)]
        plain = Daemon(path, *options)
        library, form = second_reader(path, options)
        sides = [Side("plain", plain, lambda head: head), Side("libmicrohttpd", library, form)]
        if token:
            for side in sides:
                ask = lambda target, daemon=side.daemon: daemon.connect().ask(request("GET", target, [("Authorization", "Bearer " + SECRET)]))
                side.daemon.get = ask
        rows = [row for row in ROWS if row.code != LIBRARY and not is_apart(row)]
        others = [row for needed, more in OTHER_ROWS if set(needed) <= set(options) for row in more if TOKEN not in needed]
        draw = Draw(generator, rows + others, models_of(plain), token, "--compat-models" in options)
        run = Run(sides, draw, generator)
        for side in sides:
            side.before = side.counters()
        for drawn in [draw.row(row) for row in (rows if tuple(options[4:]) == OPTIONS else others)] + draw.scalars():
            run.connection([[drawn]])
        while run.asked < wanted and (run.differences == 0 or keep_going):
            batch = run.asked + 250
            while run.asked < min(batch, wanted):
                run.connection(run.groups())
            run.counters("after %d requests" % run.asked)
        for side in sides:
            check(token or settle(side.daemon) == 0, side.name, "holds slots")
        say_readers(sides)
        for side in sides:
            check(side.daemon.stop() == 0, side.name, "ends badly")
        print("%-70s %6d requests, %d differences, statuses %s" % (" ".join(options[4:])[:70], run.asked, run.differences, dict(sorted(run.statuses.items()))))
        return run


def is_apart(row):
    """How much of a long body is read before the end is a matter of time, and counted."""
    return row.then != STAYS and len(row.data) > 65536


def rows_apart(path):
    """Refusals that take their time, or may cut a body anywhere: one by one, on both."""
    slow = [(options, rows) for options, rows in OTHER_ROWS if "--body-timeout" in options]
    for options, rows in slow + [(OPTIONS, [row for row in ROWS if is_apart(row)])]:
        plain = Daemon(path, "--backend", "cpu", "--threads", "1", *options)
        library, form = second_reader(path, ["--backend", "cpu", "--threads", "1", *options])
        for row in [r for r in rows if r.code != LIBRARY]:
            found = []
            for daemon, change in ((plain, lambda head: head), (library, form)):
                with daemon.connect() as connection:
                    answer = connection.ask(change(row.data))
                    found.append((answer.status, sorted((n, v) for n, v in answer.headers if n not in OWN), answer.body, connection.closed_within(3)))
            check(found[0] == found[1], row.name, *found)
        check(plain.stop() == 0 and library.stop() == 0, "the daemons of", options, "end badly")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernserve")
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--keep-going", action="store_true", help="behind the first difference too")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else int(os.environ.get("KS_SEED") or random.SystemRandom().getrandbits(32))
    print("KS_SEED=%d" % seed)
    begun, asked, seen = time.monotonic(), 0, set()
    for share, options in PROFILES:
        run = profile(arguments.kernserve, options, int(share * arguments.count), random.Random(seed), arguments.keep_going)
        asked += run.asked
        seen |= set(run.statuses)
    rows_apart(arguments.kernserve)
    check(arguments.count < 1500 or seen >= STATUSES, "statuses never seen:", sorted(STATUSES - seen))
    print("%d requests through both readers, %d differences, %.1f s" % (asked, wrongs(), time.monotonic() - begun))
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
