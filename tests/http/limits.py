#!/usr/bin/env python3
"""Each limit at its edge: what is just within is served, what is just beyond gets the answer that is promised, at the time that
is promised. Tokens and their file; times of heads, bodies and answers; the least rate; the size of bodies of unknown length;
connections.

limits.py KERNSERVE

The parts run side by side: they wait most of the time.
"""
import gzip
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from daemon import Daemon, check, chunked, comes_to, daemon_path, metric, request, settle, wrongs
from files import npy_head

REDUCE = "/v2/models/reduce/infer"
SMALL = request("POST", REDUCE + "?shape=4,1&datatype=INT32&axis=1&op=max", (), bytes(16))
# The head of a body that goes through the plain reader, and of one that the library reads.
PLAIN = b"POST %s?shape=%d,1&datatype=INT8&axis=1&op=max HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
LIBRARY = b"POST %s?shape=%d,1&datatype=INT8&axis=1&op=max HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


def daemon(*options):
    return Daemon(daemon_path(), "--backend", "cpu", "--pinned-bytes", "16M", "--threads", "1", *options)


# --- tokens -----------------------------------------------------------------------------------------------------------


def judged(path):
    """Exit code and sentence of --check-config with that token file."""
    done = subprocess.run([daemon_path(), "--check-config", "--token-file", path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    return done.returncode, done.stderr.decode(errors="replace")


def written(folder, content, mode=0o600):
    path = os.path.join(folder, "tokens")
    if os.path.exists(path):
        os.remove(path)
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, mode)
    return path


def token_files():
    """Whom the file's mode lets read it, what a token may consist of, how many and how large."""
    with tempfile.TemporaryDirectory() as folder:
        for mode in (0o600, 0o400, 0o700):
            check(judged(written(folder, b"abc\n", mode))[0] == 0, "mode %o is refused" % mode)
        for mode in (0o640, 0o620, 0o610, 0o604, 0o602, 0o601, 0o644):
            code, said = judged(written(folder, b"abc\n", mode))
            check(code == 77 and "%04o" % mode in said, "mode %o: exit code %d, %s" % (mode, code, said))
        good = (b"abc", b"abc\n", b"\n\nabc\n", b"abc\r\ndef\r\n", b"# words\nabc\n#\n", b"!~{}\n", b"abc\n" * 256)
        for content in good:
            check(judged(written(folder, content))[0] == 0, "tokens %r are refused" % content[:40])
        bad = (b"", b"\n", b"# abc\n", b"abc\n" * 257, b"a" * 65537)
        for content in bad + tuple(b"ab%cc\n" % byte for byte in (0, 1, 7, 11, 12, 27, 31, 127, 128, 160, 255)):
            code, said = judged(written(folder, content))
            check(code == 78 and "token-file" in said, "tokens %r: exit code %d, %s" % (content[:40], code, said))
        check(judged(os.path.join(folder, "none"))[0] == 66, "a file that is not there")
        os.mkdir(os.path.join(folder, "folder"), 0o700)
        check(judged(os.path.join(folder, "folder"))[0] == 78, "a folder is a token file")


def bearer(where, value, target="/v2"):
    with where.connect() as connection:
        return connection.ask(request("GET", target, [("Authorization", value)]))


def each_byte(where):
    for value, status in (("Bearer first-secret", 200), ("bearer Second", 200), ("Bearer first-secreT", 401), ("Bearer first-secre", 401),
                          ("Bearer first-secrett", 401), ("Bearer xirst-secret", 401), ("Bearer second", 401), ("Bearer Secon\xe4", 401),
                          ("Bearer SecondSecond", 401), ("Bearer # two", 401), ("Bearer ", 401), ("Bearer", 401), ("Basic Second", 401)):
        answer = bearer(where, value)
        check(answer.status == status, "Authorization: %s: %s" % (value, answer))
    check(where.get("/v2/health/live").status == 200, "health wants a token")


def read_again(where, folder, settings):
    """SIGHUP: a good file takes the place of the old one; a bad one changes nothing, the log's level neither."""
    rows = ((b"third\n", 0o600, "third", 0), (b"fourth\n", 0o644, "third", 0), (b"a\x01b\n", 0o600, "third", 0), (b"fifth\nsixth\n", 0o400, "sixth", 1))
    for turn, (content, mode, opens, verbose) in enumerate(rows):
        written(folder, content, mode)
        with open(settings, "w") as file:
            file.write("log-level = %s\n" % ("debug" if turn > 0 else "info"))
        where.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 30
        while len(re.findall("configuration (?:read again|refused)", where.said())) <= turn and time.monotonic() < end:
            time.sleep(0.02)
        for token in ("Second", "third", "fourth", "a", "sixth"):
            answer = bearer(where, "Bearer " + token)
            check(answer.status == (200 if token == opens else 401), "after reading %r, token %s: %s" % (content, token, answer))
        level = json.loads(bearer(where, "Bearer " + opens, "/v2/logging").body)["log_verbose_level"]
        check(level == verbose, "after reading %r: log_verbose_level %s" % (content, level))


def tokens():
    """Every byte of a token counts, and each token of the file opens; one that is only alike does not."""
    with tempfile.TemporaryDirectory() as folder:
        settings = os.path.join(folder, "settings")
        with open(settings, "w") as file:
            file.write("log-level = info\n")
        with daemon("--config", settings, "--token-file", written(folder, b"# two\r\nfirst-secret\r\nSecond\n")) as where:
            each_byte(where)
            read_again(where, folder, settings)
            check(where.stop() == 0, "the daemon's end")


# --- times ------------------------------------------------------------------------------------------------------------


def next_answer(connection, seconds):
    """(answer or None, seconds until it was there); (None, None): nothing came."""
    begun = time.monotonic()
    connection.socket.settimeout(seconds)
    try:
        return connection.answer(), time.monotonic() - begun
    except (TimeoutError, socket.timeout):
        return None, None


def trickle(connection, piece, pause, seconds):
    """Sends the piece again and again until an answer is there; seconds until then, None: none came."""
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        connection.send(piece)
        if select.select([connection.socket], [], [], pause)[0]:
            return time.monotonic() - begun
    return None


def is_slow(answer, closes=True):
    return answer is not None and answer.status == 408 and answer.header("kernserve-error") == "slow" and (not closes or answer.says_close())


def heads():
    """A head must be there within --header-timeout, whatever comes of it meanwhile: the answer is 408, and soon."""
    with daemon("--header-timeout", "800ms", "--body-timeout", "60s", "--idle-timeout", "60s") as where:
        for name, piece in (("stops", b""), ("trickles", b"x")):
            with where.connect() as connection:
                connection.send(b"POST /v2/models/reduce/infer HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
                took = trickle(connection, piece, 0.05, 30)
                check(took is not None and 0.6 < took < 20, "a head that %s is answered after %s s" % (name, took))
                check(is_slow(connection.answer()), "a head that %s" % name)
                check(connection.closed_within(10), "a head that %s: the connection stays" % name)
        with where.connect() as connection:
            begun = time.monotonic()
            check(connection.closed_within(30) and time.monotonic() - begun > 0.6, "a connection that says nothing")
        check(metric(where.metrics(), "kernserve_requests_rejected_total", code="slow") == 2, "heads that came too slowly are counted")
        check(where.stop() == 0, "the daemon's end")


def bodies():
    """A body must be there within --body-timeout, whatever its rate."""
    with daemon("--body-timeout", "800ms", "--min-rate", "1", "--header-timeout", "60s", "--idle-timeout", "60s") as where:
        for name, head, piece in (("plain", PLAIN % (REDUCE.encode(), 4000, 4000), b"x"), ("chunked", LIBRARY % (REDUCE.encode(), 4000), b"1\r\nx\r\n")):
            with where.connect() as connection:
                connection.send(head)
                took = trickle(connection, piece, 0.05, 30)
                check(took is not None and 0.6 < took < 20, "a %s body that trickles is answered after %s s" % (name, took))
                check(is_slow(connection.answer()), "a %s body that trickles" % name)
        check(where.stop() == 0, "the daemon's end")


def rates():
    """After 5 s a body must have moved --min-rate bytes a second, long before --body-timeout; one that does goes on."""
    with daemon("--body-timeout", "60s", "--min-rate", "20k") as where:
        talks = []

        def talk(name, head, piece, pause, total, slow):
            with where.connect(timeout=30) as connection:
                connection.send(head)
                if slow:
                    took = trickle(connection, piece, pause, 30)
                    check(took is not None and 4.5 < took < 20, "%s: answered after %s s" % (name, took))
                    check(is_slow(connection.answer()), name)
                    return
                for _ in range(total // 10000):
                    connection.send(piece)
                    time.sleep(pause)
                answer, _ = next_answer(connection, 20)
                check(answer is not None and answer.status == 200 and len(answer.body) == total, "%s: %s" % (name, answer))

        piece = bytes(10000)
        for row in (("a slow body", PLAIN % (REDUCE.encode(), 900000, 900000), bytes(500), 0.1, 0, True),
                    ("a slow chunked body", LIBRARY % (REDUCE.encode(), 900000), b"1f4\r\n%s\r\n" % bytes(500), 0.1, 0, True),
                    ("a body fast enough", PLAIN % (REDUCE.encode(), 600000, 600000), piece, 0.11, 600000, False)):
            talks.append(threading.Thread(target=talk, args=row))
            talks[-1].start()
        for thread in talks:
            thread.join()
        check(metric(where.metrics(), "kernserve_requests_rejected_total", code="slow") == 2, "slow bodies are counted")
        check(where.stop() == 0, "the daemon's end")


def deadlines():
    """--request-timeout counts from the head, and a client may ask for less, never for more."""
    text = '{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1]}],"parameters":{"axis":0%s}}'
    with daemon("--request-timeout", "2s", "--body-timeout", "60s") as where:
        for asked, pause, status in (("", 0, 200), ("", 2.3, 504), (',"timeout":10000000', 2.3, 504), (',"timeout":18446744073709551615', 2.3, 504),
                                     (',"timeout":9223372036854775', 0, 200), (',"timeout":0', 0, 200), (',"timeout":50000', 0.2, 504)):
            data = request("POST", REDUCE, (), (text % asked).encode())
            with where.connect() as connection:
                connection.send(data[:-1])
                time.sleep(pause)
                answer = connection.ask(data[-1:])
                check(answer is not None and answer.status == status, "a body after %s s%s: %s" % (pause, asked, answer))
                if answer and status == 504:
                    check(answer.header("kernserve-error") == "deadline" and answer.header("retry-after") is None, "%s" % answer.headers)
        check(where.stop() == 0, "the daemon's end")


def answers():
    """An answer that is not read ends within --send-timeout; one that is read slowly, within it, arrives whole."""
    size = 16 << 20
    head = (PLAIN % (REDUCE.encode(), size >> 12, size)).replace(b",1&", b",1,4096&")  # long rows: a slow build reads them in less time
    with daemon("--send-timeout", "1s", "--max-body", "32M") as where:
        with where.connect() as connection:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            connection.send(head + bytes(size))
            check(comes_to(lambda: metric(where.metrics(), "kernserve_inference_requests_in_flight") or 0, 0) == 0, "an answer that nobody reads is in flight")
            got = connection.answer()
            check(got is None or len(got.body) < size, "an answer that nobody read came whole")
        with where.connect() as connection:
            answer = connection.ask(head + bytes(size))
            check(answer.status == 200 and len(answer.body) == size, "an answer that is read: %s" % answer.status)
        check(where.stop() == 0, "the daemon's end")


# --- sizes ------------------------------------------------------------------------------------------------------------


def pieces(body, size=10000):
    return [body[i:i + size] for i in range(0, len(body), size)]


def json_body(size):
    text = b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[4,1],"data":[1,2,3,4]}]}'
    return text + b" " * (size - len(text))


def sizes():
    """--max-body for bodies whose length nobody has said: at the limit they are served, one byte beyond it is 413."""
    limit = 65536
    raw, vector = REDUCE + "?axis=1&op=max&datatype=INT8&shape=%d,1", "/v2/models/reduce_vec/infer?datatype=INT8"
    deduced = ("Inference-Header-Content-Length", 0)
    packed = (("Content-Encoding", "gzip"),)
    with daemon("--max-body", str(limit), "--max-json", str(limit)) as where:
        for over in (0, 1):
            size = limit + over
            head = npy_head("{'descr': '|i1', 'fortran_order': False, 'shape': (%d, 1), }" % (size - 128))
            forms = [("a length", request("POST", raw % size, (), bytes(size))),
                     ("chunked", chunked("POST", raw % size, (), pieces(bytes(size)))),
                     ("chunked, one chunk", chunked("POST", raw % size, (), [bytes(size)])),
                     ("chunked, the shape deduced", chunked("POST", vector, [deduced], pieces(bytes(size)))),
                     ("the shape deduced", request("POST", vector, [deduced], bytes(size))),
                     ("chunked JSON", chunked("POST", REDUCE, (), pieces(json_body(size)))),
                     ("chunked npy", chunked("POST", REDUCE + "?axis=1", [("Content-Type", "application/x-npy")], pieces(head + bytes(size - len(head))))),
                     ("packed", request("POST", raw % size, packed, gzip.compress(bytes(size)))),
                     ("packed and chunked", chunked("POST", raw % size, packed, pieces(gzip.compress(bytes(size)), 20))),
                     ("packed JSON", request("POST", REDUCE, packed, gzip.compress(json_body(size))))]
            check(len(head) == 128, "the npy head has %d bytes" % len(head))
            for name, data in forms:
                with where.connect() as connection:
                    answer = connection.ask(data)
                    good = answer is not None and answer.status == 200 if over == 0 else answer is not None and answer.status == 413
                    check(good, "a body of %d bytes, %s: %s" % (size, name, answer))
                    if over and answer:
                        check(answer.header("kernserve-error") == "body_size", "a body over the limit, %s: %s" % (name, answer))
        # A body without an end is cut a mebibyte beyond the limit, which is what is read of a refused one.
        head, beyond = npy_head("{'descr': '|i1', 'fortran_order': False, 'shape': (%d, 1), }" % (2 * limit)), limit + (1 << 20) + 65536
        for name, data in (("raw", chunked("POST", raw % (2 * limit), (), pieces(bytes(beyond)))),
                           ("the shape deduced", chunked("POST", vector, [deduced], pieces(bytes(beyond)))),
                           ("JSON", chunked("POST", REDUCE, (), pieces(json_body(beyond)))),
                           ("npy", chunked("POST", REDUCE + "?axis=1", [("Content-Type", "application/x-npy")], pieces(head + bytes(beyond)))),
                           ("control", chunked("POST", "/v2/repository/index", (), pieces(b" " * beyond))),
                           ("nothing wanted", chunked("GET", "/v2", (), pieces(bytes(beyond))))):
            with where.connect() as connection:
                connection.send(data[:-len(b"0\r\n\r\n")])
                answer, _ = next_answer(connection, 5)
                check(answer is not None and answer.status == 413 and answer.header("kernserve-error") == "body_size" and answer.says_close(),
                      "a body without an end, %s: %s" % (name, answer))
                check(connection.closed_within(30), "a body without an end, %s: the connection stays" % name)
        check(settle(where) == 0, "memory of refused bodies stays in use")
        check(where.stop() == 0, "the daemon's end")


# --- connections ------------------------------------------------------------------------------------------------------


def connections():
    """Never more than --connections: while all of them are busy those beyond wait, and they are served when others close."""
    limit, extra = 4, 3
    with daemon("--connections", str(limit), "--body-timeout", "60s") as where:
        admin = Daemon.__new__(Daemon)  # the second listener has places of its own
        admin.host, admin.port = where.host, where.admin_port
        end = time.monotonic() + 30
        while metric(admin.metrics(), "kernserve_http_connections") != 1 and time.monotonic() < end:
            time.sleep(0.02)  # the asker itself
        served = [where.connect() for _ in range(limit)]
        for connection in served:
            check(connection.ask(SMALL).status == 200, "a connection within the limit")
            connection.send(SMALL[:-8])
        waiting = [where.connect() for _ in range(extra)]
        for connection in waiting:
            connection.send(SMALL)
        check(not select.select([c.socket for c in waiting], [], [], 0.5)[0], "a connection above the limit is served")
        open_now = metric(admin.metrics(), "kernserve_http_connections")
        check(open_now == limit + 1, "%s connections are open, %d of them the asker's" % (open_now, 1))
        for connection in served[1:]:
            connection.send(SMALL[-8:])
            check(connection.answer().status == 200, "a busy connection within the limit suffers")
        for at in range(extra):
            (served + waiting)[at].close()
            answer, _ = next_answer(waiting[at], 30)
            check(answer is not None and answer.status == 200, "one that waited, after another closed: %s" % answer)
        for connection in served + waiting:
            connection.close()
        check(where.stop() == 0, "the daemon's end")


# --- the end ----------------------------------------------------------------------------------------------------------


def draining():
    """A request amid its body is waited for, and the exit code says 0; past --shutdown-timeout it is cut, and that says 75."""
    with daemon("--shutdown-timeout", "20s") as where, where.connect() as connection:
        connection.send(SMALL[:-8])
        check(comes_to(lambda: metric(where.metrics(), "kernserve_inference_requests_in_flight"), 1) == 1, "a request amid its body")
        where.process.send_signal(signal.SIGTERM)
        time.sleep(1)
        answer = connection.ask(SMALL[-8:])
        check(answer is not None and answer.status == 200, "a request amid its body while draining: %s" % answer)
        check(where.wait(40) == 0, "the daemon's end after all requests were answered")
    with daemon("--shutdown-timeout", "500ms", "--body-timeout", "60s") as where, where.connect() as connection:
        connection.send(SMALL[:-8])
        check(comes_to(lambda: metric(where.metrics(), "kernserve_inference_requests_in_flight"), 1) == 1, "a request amid its body")
        where.process.send_signal(signal.SIGTERM)
        answer, took = next_answer(connection, 30)
        check(took is not None and took > 0.3 and (answer is None or answer.status == 503), "a request past --shutdown-timeout: %s" % answer)
        code = where.wait(40)
        check(code == 75, "the daemon's end after a request was cut: %d" % code)


def main():
    parts = (token_files, tokens, heads, bodies, rates, deadlines, answers, sizes, connections, draining)
    threads = []
    daemon_path()  # without one the test is skipped here, not in a thread

    def guarded(part):
        begun = time.monotonic()
        try:
            part()
        except BaseException as fault:  # a part that stops says so, and the others go on
            check(False, part.__name__, repr(fault))
        print("%s: %.1f s" % (part.__name__, time.monotonic() - begun), flush=True)

    for part in parts:
        threads.append(threading.Thread(target=guarded, args=(part,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    print("%d wrong" % wrongs())
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
