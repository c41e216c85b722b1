#!/usr/bin/env python3
"""The token file over time: what rights allow, that SIGHUP changes them for requests on connections that are open, and that
200 reloads cost no memory.

engine_tokens.py KERNSERVE
"""

import json
import os
import re
import signal
import sys
import tempfile

from daemon import Daemon, check, comes_to, daemon_path, measured, request, wrongs

INFER = "/v2/models/softmax/infer"
BODY = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 1]}]}).encode()
RELOADS, SETTLED, LINES = 200, 40, 250
RSS_MOST_KIB = 512  # for all reloads behind the first few; a table kept each time makes 1.6 MiB of these


def write(path, lines):
    with open(path, "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write("".join(line + "\n" for line in lines))


def ask(connection, method, target, token, body=b""):
    return connection.ask(request(method, target, [("Authorization", "Bearer " + token)] if token else [], body))


def reloads(daemon):
    return re.findall(r"configuration read again.*token_tables=(\d+)", daemon.said())


def reload(daemon):
    before = len(reloads(daemon))
    os.kill(daemon.process.pid, signal.SIGHUP)
    check(comes_to(lambda: len(reloads(daemon)) > before, True), "SIGHUP is not answered")


def rss_kib(daemon):
    with open("/proc/%d/status" % daemon.process.pid) as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))


def rights(daemon, path):
    write(path, ["root", "user tenant=alice rights=infer", "keeper rights=tensors,models", "both rights=infer,operator"])
    reload(daemon)
    table = {  # token: infer, log settings read, changed, loading a model (an operation: nothing), metrics
        None: (401, 401, 401, 401, 401), "wrong": (401, 401, 401, 401, 401), "root": (200, 200, 200, 200, 200), "user": (200, 200, 403, 403, 200),
        "keeper": (403, 200, 403, 403, 200), "both": (200, 200, 200, 200, 200)}
    for token, expected in table.items():
        with daemon.connect() as connection:
            got = (ask(connection, "POST", INFER, token, BODY), ask(connection, "GET", "/v2/logging", token),
                   ask(connection, "POST", "/v2/logging", token, b'{"log_verbose_level":0}'),
                   ask(connection, "POST", "/v2/repository/models/softmax/load", token, b"{}"), ask(connection, "GET", "/metrics", token))
            check(tuple(a.status for a in got) == expected, token, [a.status for a in got], "instead of", expected)
            check(all(a.header("kernserve-error") == "auth" for a in got if a.status in (401, 403)), token, "the code is auth")
    settings = json.loads(ask(daemon.connect(), "GET", "/v2/logging", "root").body)
    with daemon.connect() as connection:
        check(ask(connection, "POST", "/v2/logging", "user", b'{"log_error":false}').status == 403, "no right")
        check(json.loads(ask(connection, "GET", "/v2/logging", "user").body) == settings, "a refused request changes nothing")


def changes(daemon, path):
    """The connection stays, the token does not."""
    with daemon.connect() as connection:
        for turn in range(6):
            good, bad = ("one", "two") if turn % 2 else ("two", "one")
            write(path, [good])
            reload(daemon)
            got = [ask(connection, "POST", INFER, token, BODY).status for token in (good, bad)]
            check(got == [200, 401], "turn", turn, got)
    write(path, ["good", "s colour=red"])
    os.kill(daemon.process.pid, signal.SIGHUP)
    check(daemon.says("nothing has changed"), "SIGHUP is not answered")
    check(daemon.says("behind a token may stand"), "the log says what is wrong with the file")
    check("colour" not in daemon.said(), "no byte of a token file's line is logged")
    with daemon.connect() as connection:
        check(ask(connection, "POST", INFER, "one", BODY).status == 200, "a file that is refused changes nothing")


def grows(daemon, path):
    write(path, ["root"] + ["%0200d rights=infer" % i for i in range(LINES)])
    settled = 0
    with daemon.connect() as connection:
        for turn in range(RELOADS):
            reload(daemon)
            check(ask(connection, "POST", INFER, "root", BODY).status == 200, "turn", turn)
            if turn == SETTLED:
                settled = rss_kib(daemon)
    grown = rss_kib(daemon) - settled
    tables = [int(n) for n in reloads(daemon)]
    print("RSS behind reload %d: %d KiB, %+d KiB behind %d more; tables at most %d" % (SETTLED, settled, grown, RELOADS - SETTLED, max(tables)))
    with open(daemon.path, "rb") as file:
        sanitized = b"__asan_init" in (text := file.read()) or b"__tsan_init" in text  # which keeps freed memory for itself
    check(sanitized or grown <= RSS_MOST_KIB, "reloads cost", grown, "KiB")
    check(max(tables) <= 4, "one table for each of two shards, the second listener and the store, not", max(tables))


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokens")
        write(path, ["root"])
        with Daemon(daemon_path(), "--backend", "cpu", "--pinned-bytes", "16M", "--threads", "2", "--token-file", path) as daemon:
            measured(daemon, [("Authorization", "Bearer root")])
            rights(daemon, path)
            changes(daemon, path)
            grows(daemon, path)
            check(daemon.stop() == 0, "the exit code")
    sys.exit(wrongs() > 0)


if __name__ == "__main__":
    main()
