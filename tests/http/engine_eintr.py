#!/usr/bin/env python3
"""Calls of the daemon's threads that are interrupted now and then (EINTR, as a profiler's signals do it) cost no connection and no
answer: small and large requests through both readers, pages, refusals amid a body, and the end.

    engine_eintr.py DAEMON EINTR     EINTR: libeintr.so, preloaded into the daemon
"""
import os
import sys
import tempfile
import threading

from daemon import SKIP, Daemon, by_library, check, daemon_path, for_library, random_values, read_answer, request, row_request, seed, wrongs

SIZES = (16, 3000, 40000, 200000)
ROUNDS, CLIENTS, ONE_IN = 12, 4, (3, 20)


def ask(s, generator, i, form=lambda head: head):
    """Whether the answer is right, and what came."""
    head, body = row_request(random_values(generator, SIZES[i % len(SIZES)]))
    try:
        s.sendall(form(head) + body)
        answer = read_answer(s)
    except OSError as fault:
        answer = (repr(fault), {}, b"")
    return answer is not None and answer[0] == 200 and answer[2] == body, answer and answer[:2]


def kept(daemon, generator):
    """By the plain reader, one connection for all of it: were it closed, the next request would not be answered."""
    with daemon.dial(timeout=20) as s:
        for i in range(ROUNDS):
            good, came = ask(s, generator, i)
            if not good:
                check(False, "plain reader: request", i, came)
                return


def single(daemon, generator):
    for i in range(ROUNDS):
        with daemon.dial(timeout=20) as s:
            good, came = ask(s, generator, i, for_library)
            check(good, "library: request", i, came)


def pages(daemon):
    for _ in range(ROUNDS):
        for port in (daemon.port, daemon.admin_port):
            daemon_of_port = type("Port", (), {"host": "127.0.0.1", "port": port})
            with Daemon.dial(daemon_of_port) as s:
                s.sendall(request("GET", "/metrics"))
                answer = read_answer(s)
                check(answer and answer[0] == 200 and b"kernserve_state" in answer[2], "metrics", answer and answer[0])


def refusal(daemon):
    """The answer comes past the library, amid a body."""
    with daemon.dial() as s:
        s.sendall(b"POST /v2/models/reduce/infer?shape=4,1&datatype=INT8&axis=1&op=max HTTP/1.1\r\nHost: localhost\r\n"
                  b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            s.sendall(b"1\r\na\r\n" * 66000)
        except OSError:
            pass
        answer = read_answer(s)
        check(answer and answer[0] == 400 and answer[1]["kernserve-error"] == "chunks", "a refusal amid a body", answer)


def main():
    if len(sys.argv) < 3:
        print("usage: engine_eintr.py DAEMON EINTR")
        sys.exit(SKIP)
    generator = seed()
    for one_in in ONE_IN:
        with tempfile.NamedTemporaryFile() as told:
            environment = {"LD_PRELOAD": sys.argv[2], "KS_EINTR": str(one_in), "KS_EINTR_FILE": told.name}
            with Daemon(daemon_path(), "--backend", "cpu", "--pinned-bytes", "64M", "--threads", "2",
                        environment=environment) as daemon:
                clients = [threading.Thread(target=of, args=(daemon, generator)) for of in (kept, single) for _ in range(CLIENTS // 2)]
                clients.append(threading.Thread(target=pages, args=(daemon,)))
                for client in clients:
                    client.start()
                for client in clients:
                    client.join()
                refusal(daemon)
                check(by_library(daemon.metrics()) >= ROUNDS * CLIENTS / 2, "the library read", by_library(daemon.metrics()))
                check(daemon.stop() == 0, "exit code")
            text = told.read().decode()
            print("one call in %d: %s" % (one_in, text.strip()))
            check(text.startswith("interrupted ") and int(text.split()[1]) > 20, "this interrupted little", text)
    sys.exit(1 if wrongs() else 0)


main()
