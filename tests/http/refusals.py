#!/usr/bin/env python3
"""Every row of refusal_rows.py gets its status and code, the connection stays usable where it must, and nothing leaks.

refusals.py [--closes] KERNSERVE [WORDS]   only rows whose name contains WORDS; --closes: every answer ends its
connection, and nothing of a body has been judged: a daemon whose reader is libmicrohttpd
"""

import json
import os
import sys
import tempfile
import time

from daemon import Daemon, metric, request, settle
from refusal_rows import CHUNK_ROWS, CLOSES, GOOD_BODY, OPTIONS, OTHER_ROWS, ROWS, SOFTMAX, STAYS, TOKEN

every_answer_closes = False
SECRET = "correct-horse-battery-staple"


def good_request(token=None):
    headers = [("Authorization", "Bearer " + token)] if token else []
    return request("POST", SOFTMAX, headers, GOOD_BODY)


def good_fault(answer):
    """None, or what is wrong with the answer to a good request."""
    if answer is None:
        return "a good request got no answer"
    if answer.status != 200:
        return "a good request got %r" % answer
    total = sum(json.loads(answer.body)["outputs"][0]["data"])
    return None if abs(total - 1) < 1e-5 else "a good request's softmax sums to %r" % total


def answer_fault(row, answer):
    """None, or how the refusal differs from what its row promises."""
    if answer is None:
        return "closed without an answer"
    if answer.status != row.status:
        return "status %d instead of %d: %r" % (answer.status, row.status, answer)
    code = answer.header("kernserve-error")
    if not code or (row.code and code != row.code):
        return "code %s instead of %s: %r" % (code, row.code, answer)
    if answer.header("content-type") != "application/json":
        return "content type %s" % answer.header("content-type")
    document = json.loads(answer.body)
    if set(document) != {"error"} or not document["error"]:
        return "body %r" % answer.body[:200]
    if row.status == 413 and "exceeds the maximum allowed" not in document["error"]:  # which Triton's clients search for
        return "the sentence is %r" % document["error"]
    if row.text and row.text not in document["error"]:
        return "the sentence is %r" % document["error"]
    needed = {405: "allow", 415: "accept-encoding", 401: "www-authenticate", 503: "retry-after"}.get(row.status)
    if needed and not answer.header(needed):
        return "no %s header" % needed
    return None


def row_fault(daemon, row, token):
    """Sends one row on a new connection and looks at what follows. None, or what is wrong."""
    with daemon.connect(30) as connection:
        answer = connection.ask(row.data)
        fault = answer_fault(row, answer)
        if fault:
            return fault
        if row.then == CLOSES:
            if answer and not answer.says_close():
                return "the answer does not announce that the connection closes"
            return None if connection.closed_within(5) else "the connection stays open, or a second answer came"
        if row.then == STAYS and every_answer_closes:
            return None if answer.says_close() and connection.closed_within(5) else "the connection stays open"
        if row.then == STAYS:
            if answer.says_close():
                return "the connection closes: %r" % answer
            return good_fault(connection.ask(good_request(token)))
    return None


def walk(daemon, rows, token=None):
    """Rows that went wrong; prints each."""
    bad = 0
    for row in rows:
        begun = time.monotonic()
        fault = row_fault(daemon, row, token)
        if not fault:
            with daemon.connect() as other:
                fault = good_fault(other.ask(good_request(token)))
                fault = fault and "afterwards, on a new connection: " + fault
        took = (time.monotonic() - begun) * 1e3
        print("%-5s %3d %-13s %-6s %7.1f ms  %s%s" % ("ok" if not fault else "WRONG", row.status, row.code or "-", row.then, took,
                                                     row.name, ": " + fault if fault else ""))
        bad += bool(fault)
    return bad


def counters_fault(before, after, rows):
    """Each refusal that is ours is counted once under its code."""
    expected = {}
    for row in rows:
        if row.code is not None:
            expected[row.code] = expected.get(row.code, 0) + 1
    unnamed = sum(row.code is None for row in rows)
    wrong = []
    for code, times in sorted(expected.items()):
        grew = (metric(after, "kernserve_requests_rejected_total", code=code) or 0) - \
            (metric(before, "kernserve_requests_rejected_total", code=code) or 0)
        if not times <= grew <= times + unnamed:
            wrong.append("%s grew by %d instead of %d" % (code, grew, times))
    return "; ".join(wrong) or None


def end(daemon, name):
    """Nothing is held and the daemon ends well."""
    used = settle(daemon)
    code = daemon.stop()
    if used == 0 and code == 0:
        return 0
    print("WRONG %s: %s bytes of the pinned pool in use, exit code %s" % (name, used, code))
    return 1


def with_options(path, options, rows):
    """One daemon of its own for rows that need other options."""
    with tempfile.NamedTemporaryFile("w", suffix=".tokens") as file:
        file.write(SECRET + "\n")
        file.flush()
        os.chmod(file.name, 0o600)
        token = SECRET if TOKEN in options else None
        options = [file.name if o == TOKEN else o for o in options]
        with Daemon(path, *options, "--pinned-bytes", "16M") as daemon:
            bad = walk(daemon, rows, token)
            if not token:
                bad += end(daemon, " ".join(options))
            return bad


def main():
    if len(sys.argv) < 2:
        raise SystemExit("usage: refusals.py KERNSERVE [WORDS]")
    global every_answer_closes
    every_answer_closes = sys.argv[1] == "--closes"
    if every_answer_closes:
        del sys.argv[1]
    path, words = sys.argv[1], " ".join(sys.argv[2:])
    rows = [row for row in ROWS if words in row.name and not (every_answer_closes and row in CHUNK_ROWS)]
    bad = 0
    with Daemon(path, *OPTIONS) as daemon:
        before = daemon.metrics()
        bad += walk(daemon, rows)
        fault = counters_fault(before, daemon.metrics(), rows)
        if fault:
            bad += 1
            print("WRONG kernserve_requests_rejected_total: " + fault)
        bad += end(daemon, "the daemon")
    total = len(rows)
    for options, others in OTHER_ROWS:
        others = [row for row in others if words in row.name]
        if others:
            total += len(others)
            bad += with_options(path, options, others)
    print("%d rows, %d wrong" % (total, bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
