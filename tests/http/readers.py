#!/usr/bin/env python3
"""Both readers of HTTP, the plain one and libmicrohttpd, give the same answers to the same requests, and count the same.

readers.py KERNSERVE KERNSERVE_LIBRARY [--count N] [--seed N] [--keep-going]   the full run: --count 20000 with five seeds

Two daemons with the same options get the same requests, drawn by drawn.py. The plain reader gets them on kept connections, some
pipelined, each connection going on behind every answer that lets it; the library, which is given a connection for one request,
each on one of its own. On both sides some are cut at random places. Compared are status, every field but Date, X-Request-Id
(unless the client gave one), Server-Timing, which must be there on both or on neither, and Connection; the body's bytes; how many
interim answers came; and, behind every 250 requests, by how much the counters of /metrics grew. The plain reader's connection must
end where the request or the refusal says so, and nowhere else.
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
from drawn import COMPAT, Draw, Drawn
from refusal_rows import CHUNK_ROWS, CLOSES, OPTIONS, OTHER_ROWS, ROWS, STAYS
from strict import Exchange, Malformed, read_all

OWN = ("date", "x-request-id", "server-timing")
CLOSING = ("request_line", "version", "framing", "header", "chunks", "host", "expect", "uri", "headers", "slow", "draining")
SECRET = "correct-horse-battery-staple"
TOKEN = "{token file}"
MARKER = request("GET", "/v2/health/live", [("X-Request-Id", "marker"), ("Authorization", "Bearer " + SECRET)])
# share of the requests, options
PROFILES = ((0.7, OPTIONS),
            (0.1, OPTIONS + ("--token-file", TOKEN, "--strict-parameters", "all", "--compat-models", "--response-compression", "--no-server-timing")),
            (0.1, OPTIONS + ("--json-non-finite", "error", "--max-requests-per-connection", "4", "--compat-models", "--triton-metrics")),
            (0.1, OPTIONS + ("--accept-host", "evil.example", "--max-header", "2k", "--max-fields", "9", "--max-uri", "100")))
# Pages that tell of the process: their numbers differ.
VOLATILE = re.compile(r"^/(metrics|v2/models/.*stats|v2/models/[^/]*/(versions/[^/]*/)?plan)(\?|$)")
# Members of a plan whose words hang on what each process has measured by then; null: not yet.
MEASURED = re.compile(rb'("source":|"bound":)("[^"]*"|null)')
NUMBER = re.compile(rb"[-+0-9.e]+|null")
# Counters that follow from what was asked alone.
COUNTED = ("kernserve_http_requests_total", "kernserve_http_request_body_bytes_total", "kernserve_http_response_body_bytes_total", "kernserve_inference_requests_total", "kernserve_requests_rejected_total", "kernserve_requests_warned_total",
           "kernserve_requests_aborted_total", "kernserve_transfer_bytes_total", "kernserve_inference_request_duration_seconds_count", "kernserve_inference_phase_duration_seconds_count",
           "kernserve_device_errors_total", "kernserve_log_messages_total")
UNREAD = 1 << 20  # above it a refused body is cut: how much of it, and of the answer, has passed by then is a matter of time
UNEVEN = re.compile(r'_response_body_bytes_total{handler="(metrics|model_stats|model_plan)"')  # pages of other numbers
READER = "kernserve_http_reader_requests_total"
STATUSES = {200, 400, 401, 403, 404, 405, 413, 414, 415, 417, 421, 422, 431, 501, 503, 504}


def second_reader(path, options):
    """A daemon in which libmicrohttpd reads whatever it may be given."""
    return Daemon(path, *options)


def counters(daemon):
    """The counted samples by name and labels."""
    found = {}
    for line in daemon.metrics().splitlines():
        key, _, value = line.rpartition(" ")
        if key.split("{")[0] in COUNTED and not UNEVEN.search(key):
            found[key] = float(value)
    return found


class Talk:
    """One connection: what was asked, and everything that came back."""

    def __init__(self, daemon, whole_head=False):
        self.exchange, self.whole_head = Exchange((daemon.host, daemon.port), 10), whole_head
        self.methods, self.fault, self.interims = [], None, 0

    def read(self):
        """All answers so far; none, and a fault, where they are not HTTP."""
        try:
            answers, self.interims, self.rest = read_all(self.exchange.got, self.methods or ["GET"])
            return answers
        except Malformed as fault:
            self.fault, self.rest = str(fault), b""
            return []

    def answers(self):
        """As many as requests were sent, or until the end."""
        while not self.exchange.ended and not self.fault and len(self.read()) < len(self.methods):
            if not self.exchange.receive(5):
                break
        return self.read()

    def send(self, group, random):
        """Several requests at once, cut at random places; for the library behind the first head, since it is only given heads that
        come whole."""
        wire = b"".join(drawn.bytes() for drawn in group)
        self.methods += [drawn.method for drawn in group]
        first = wire.find(b"\r\n\r\n") + 4 if self.whole_head else 0
        places = sorted(first + int(random.random() * (len(wire) - first)) for _ in range(random.choice((0, 0, 0, 1, 2, 5))))
        pause = random.choice((0.0, 0.0, 0.001)) if places else 0.0
        self.exchange.send([wire[a:b] for a, b in zip([0] + places, places + [len(wire)]) if a < b], pause)
        return self.answers()

    def send_expecting(self, drawn):
        """The head alone; the body behind a 100, not behind anything final."""
        self.methods.append(drawn.method)
        self.exchange.send([drawn.head()])
        self.read()
        before = self.interims
        while len(self.read()) < len(self.methods) and self.interims == before and not self.fault:
            if not self.exchange.receive(3):
                break
        if self.interims > before:
            self.exchange.send([drawn.framed()])
        return self.answers()

    def ask(self, group, random):
        if len(group) == 1 and group[0].expects:
            return self.send_expecting(group[0])
        return self.send(group, random)

    def end(self):
        self.exchange.finish(5)
        self.exchange.close()
        return self.read()


def shown(answer, drawn):
    """What must be alike of an answer."""
    volatile = VOLATILE.match(drawn.target) is not None and answer.status == 200 or answer.status == 504  # which tells how long
    given = any(name == "X-Request-Id" for name, _ in drawn.headers)
    fields = [(name, value) for name, value in answer.headers if name != "connection" and (name not in OWN or (name == "x-request-id" and given)) and not ((volatile or answer.status == 304) and name == "content-length")]  # of a 304 the library says 0, whatever it is told
    own = sorted(name for name, _ in answer.headers if name in OWN)
    if given and answer.header("x-request-id") not in [v for n, v in drawn.headers if n == "X-Request-Id"]:
        fields = [pair for pair in fields if pair[0] != "x-request-id"]  # refused, and one of ours in its place
    return answer.status, sorted(fields), own, steady(answer.body, drawn.target) if volatile else answer.body


def steady(body, target):
    """What two processes have in common of a page of numbers."""
    return b"" if target.startswith("/metrics") else NUMBER.sub(b"0", MEASURED.sub(rb"\g<1>0", body))


def difference(mine, other, drawn):
    a, b = shown(mine, drawn), shown(other, drawn)
    for name, x, y in zip(("status", "fields", "own fields", "body"), a, b):
        if x != y:
            return "%s %.300r, the library's %.300r (status %d, %d)" % (name, x, y, a[0], b[0])
    return None


def must_close(drawn, answer, interims):
    """Whether the connection ends behind an answer: by the request's wish, by its refusal, or because its body was not read. None:
    either is right."""
    if drawn.row is not None:
        return {STAYS: False, CLOSES: True}.get(drawn.row.then) if answer.status == drawn.row.status else None
    if any(name == "Connection" and "close" in value.lower() for name, value in drawn.headers):
        return True
    if answer.status >= 400 and (drawn.expects and interims == 0 or answer.header("kernserve-error") in CLOSING and answer.status != 421):
        return True
    return None if len(drawn.body) > UNREAD else False


class Run:
    def __init__(self, plain, library, draw, random, most):
        self.plain, self.library, self.draw, self.random, self.most = plain, library, draw, random, most
        self.asked, self.statuses, self.differences, self.connections = 0, {}, 0, 0
        self.before = [counters(plain), counters(library)]
        self.cut = False

    def wrong(self, text, *values):
        self.differences += 1
        check(False, text % values)

    def groups(self):
        """What one connection asks: groups of requests that go out together; the last group ends with what may close."""
        r, groups = self.random, []
        for _ in range(r.choice((1, 1, 2, 4, 8))):
            group = []
            for _ in range(r.choice((1, 1, 1, 2, 5))):
                drawn = self.draw.request()
                if drawn.expects and group:
                    break
                group.append(drawn)
                if drawn.ends:
                    break
            groups.append(group)
            if group[-1].ends:
                break
        return groups

    def compare(self, drawn, mine, interims):
        """One request once more, at the library."""
        talk = Talk(self.library, True)
        found = talk.ask([drawn], random.Random(self.random.getrandbits(64)))
        talk.end()
        self.asked += 1
        self.statuses[mine.status] = self.statuses.get(mine.status, 0) + 1
        self.cut |= mine.status >= 400 and len(drawn.body) > UNREAD
        if talk.fault or len(found) != 1 or talk.rest:
            self.wrong("%s: the library's answers are %s, %s", drawn, found, talk.fault)
            return
        fault = difference(mine, found[0], drawn)
        if not fault and drawn.expects and interims != talk.interims:
            fault = "%d interim answers, the library's %d" % (interims, talk.interims)
        if fault:
            self.wrong("%s: %s", drawn, fault)
            print("      %r" % drawn.bytes()[:300])

    def ask(self, talk, group):
        """One group. False: the connection is over."""
        first, before = len(talk.methods), talk.interims
        answers = talk.ask(group, random.Random(self.random.getrandbits(64)))[first:]
        if talk.fault or not answers:
            self.wrong("%s: no answer, %s", " | ".join(map(str, group)), talk.fault)
            return False
        for drawn, answer in zip(group, answers):
            self.compare(drawn, answer, talk.interims - before)
            wanted = first + group.index(drawn) + 1 == self.most or must_close(drawn, answer, talk.interims - before)
            if wanted is not None and answer.says_close() != wanted:
                self.wrong("%s: the connection %s behind %r", drawn, "ends" if answer.says_close() else "stays", answer)
        if len(answers) < len(group) and not answers[-1].says_close():
            self.wrong("%d answers to %d requests: %s", len(answers), len(group), " | ".join(map(str, group)))
        return not answers[-1].says_close()

    def connection(self, groups):
        """The groups, and a request by which the connection shows that it goes on, or is over."""
        talk, goes_on = Talk(self.plain), True
        self.connections += 1
        for group in groups:
            goes_on = self.ask(talk, group)
            if not goes_on:
                break
        before = len(talk.read())
        talk.methods = talk.methods[:before] + ["GET"]
        talk.exchange.send([MARKER])
        if goes_on:
            talk.answers()
        answers = talk.end()
        right = len(answers) == before + 1 and answers[-1].header("x-request-id") == "marker" if goes_on else len(answers) == before
        if not right or talk.rest:
            self.wrong("behind %s the marker %s; %d answers, %d bytes, %s", groups[-1][-1], "got no answer" if goes_on else "got one", len(answers), len(talk.rest), talk.fault)
        if goes_on:
            Talk(self.library, True).send([self.marker()], random.Random(0))

    @staticmethod
    def marker():
        drawn = Drawn("GET", "/v2/health/live", framing="none")
        drawn.raw = MARKER
        return drawn

    def counted(self, when):
        """All that was asked has been counted when the last answer has left, a moment later at the latest."""
        end = time.monotonic() + 30
        while True:
            now = [counters(self.plain), counters(self.library)]
            grew = {key: [int(n.get(key, 0) - b.get(key, 0)) for n, b in zip(now, self.before)] for key in now[0].keys() | now[1].keys()}
            uneven = {key: pair for key, pair in grew.items() if pair[0] != pair[1] and not (self.cut and "_body_bytes_total" in key)}
            if not uneven or time.monotonic() > end:
                break
            time.sleep(0.02)
        for key, pair in sorted(uneven.items()):
            self.wrong("%s: %s grew by %d, the library's by %d", when, key, *pair)
        self.before, self.cut = now, False


def models_of(*daemons):
    """All names, presets among them, that are no compatibility models; asked of both, so that both have counted it."""
    for daemon in daemons:
        with daemon.connect() as connection:
            body = connection.ask(request("POST", "/v2/repository/index", [("Authorization", "Bearer " + SECRET)]), "POST").body
    names = {name.decode() for name in re.findall(rb'"name":"([a-z0-9_]+)"', body)}
    return tuple(n for n in sorted(names) if n not in COMPAT)


def say_readers(plain, library):
    """That each side was read by the reader that it stands for: all but refused heads, and ones with odd white space."""
    counts = []
    for daemon in (plain, library):
        text = daemon.metrics()
        counts.append({reader: int(metric(text, READER, reader=reader) or 0) for reader in ("plain", "libmicrohttpd")})
    check(counts[0]["libmicrohttpd"] == 0 and counts[0]["plain"] > 0, "the first daemon is not read by the plain reader", counts[0])
    check(counts[1]["libmicrohttpd"] > 3 * counts[1]["plain"], "the second daemon is not read by the library", counts[1])
    return "%d by the plain reader, %d by the library" % (counts[0]["plain"], counts[1]["libmicrohttpd"])


def pair_of(paths, options, token):
    daemons = Daemon(paths[0], *options), second_reader(paths[1], options)
    if token:
        for daemon in daemons:
            daemon.get = lambda target, headers=(), connect=daemon.connect: connect().ask(request("GET", target, [("Authorization", "Bearer " + SECRET), *headers]))
    return daemons


def walk(run, first, wanted, keep_going):
    for drawn in first:
        run.connection([[drawn]])
    while run.asked < wanted and (run.differences == 0 or keep_going):
        batch = min(run.asked + 250, wanted)
        while run.asked < batch:
            run.connection(run.groups())
        run.counted("after %d requests" % run.asked)


def profile(paths, options, wanted, generator, keep_going):
    """One pair of daemons."""
    with tempfile.NamedTemporaryFile("w", suffix=".tokens") as file:
        file.write(SECRET + "\n")
        file.flush()
        os.chmod(file.name, 0o600)
        token = SECRET if TOKEN in options else None
        most = int(options[options.index("--max-requests-per-connection") + 1]) if "--max-requests-per-connection" in options else 0
        plain, library = pair_of(paths, ["--backend", "cpu", "--threads", "1", *(file.name if o == TOKEN else o for o in options)], token)
        rows = [row for row in ROWS if not is_apart(row) and row not in CHUNK_ROWS]  # whose framing the library is never given
        others = [row for needed, more in OTHER_ROWS if set(needed) <= set(options) for row in more if TOKEN not in needed]
        draw = Draw(generator, rows + others, models_of(plain, library), token, "--compat-models" in options)
        run = Run(plain, library, draw, generator, most)
        walk(run, [draw.row(row) for row in (rows if options == OPTIONS else others)] + draw.scalars(), wanted, keep_going)
        for daemon in (plain, library):
            check(token or settle(daemon) == 0, "slots are held")
        readers = say_readers(plain, library)
        check(plain.stop() == 0 and library.stop() == 0, "a daemon ends badly")
        print("%-60.60s %6d requests on %d connections, %s, %d differences, statuses %s" % (" ".join(options[6:]) or "the presets", run.asked, run.connections, readers, run.differences, dict(sorted(run.statuses.items()))))
        return run


def is_apart(row):
    """How much of a long body is read before the end is a matter of time, and counted."""
    return row.then != STAYS and len(row.data) > 65536


def rows_apart(paths):
    """Refusals that take their time, or may cut a body anywhere: one by one, on both."""
    slow = [(options, rows) for options, rows in OTHER_ROWS if "--body-timeout" in options]
    for options, rows in slow + [(OPTIONS, [row for row in ROWS if is_apart(row) and row not in CHUNK_ROWS])]:
        daemons = pair_of(paths, ["--backend", "cpu", "--threads", "1", *options], None)
        for row in rows:
            found = []
            for daemon in daemons:
                with daemon.connect() as connection:
                    answer = connection.ask(row.data)
                    found.append((answer.status, sorted((n, v) for n, v in answer.headers if n not in OWN), answer.body, connection.closed_within(3)))
            check(found[0] == found[1], row.name, *found)
        check(all(daemon.stop() == 0 for daemon in daemons), "a daemon of", options, "ends badly")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernserve")
    parser.add_argument("kernserve_library", help="the program of tests/reader_library.c")
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--keep-going", action="store_true", help="behind the first difference too")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else int(os.environ.get("KS_SEED") or random.SystemRandom().getrandbits(32))
    print("KS_SEED=%d" % seed)
    begun, asked, seen = time.monotonic(), 0, set()
    for share, options in PROFILES:
        run = profile((arguments.kernserve, arguments.kernserve_library), options, int(share * arguments.count), random.Random(seed), arguments.keep_going)
        asked += run.asked
        seen |= set(run.statuses)
    rows_apart((arguments.kernserve, arguments.kernserve_library))
    check(arguments.count < 1500 or seen >= STATUSES, "statuses never seen:", sorted(STATUSES - seen))
    print("%d requests through both readers, %d differences, %.1f s" % (asked, wrongs(), time.monotonic() - begun))
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
