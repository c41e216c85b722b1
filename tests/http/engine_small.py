#!/usr/bin/env python3
"""Small requests, which the plain reader answers: the same answers as the library's, however the bytes come, and whatever comes
before and behind them on their connection."""
import socket
import sys
import time

from daemon import cpu_daemon, random_values, row_request, seed

OWN = ("date", "server-timing", "x-request-id")  # of each answer alone
LAST = ("connection", "close")  # the library is given a connection for one request
COUNT = 64


def unlike(head):
    """The same head in a form that is left to the library."""
    return head.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n")


class Talk:
    """One connection; what is wrong is remembered."""

    bad = []

    def __init__(self, daemon, name):
        self.socket, self.name, self.came = daemon.dial(timeout=5), name, b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *parts, pause=0.0):
        for part in parts:
            self.socket.sendall(part)
            time.sleep(pause)

    def until(self, enough):
        while not enough():
            more = self.socket.recv(65536)
            if not more:
                raise RuntimeError("%s: the end amid an answer: %r" % (self.name, self.came[:200]))
            self.came += more

    def wants(self, body, status=200, **wanted):
        """The next answer's fields."""
        self.until(lambda: b"\r\n\r\n" in self.came)
        head, self.came = self.came.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
        length = int(fields["content-length"])
        self.until(lambda: len(self.came) >= length)
        came, self.came = self.came[:length], self.came[length:]
        if int(lines[0].split(" ")[1]) != status or (body is not None and came != body):
            self.bad.append("%s: %s, %d bytes" % (self.name, lines, length))
        for name, value in wanted.items():
            if fields.get(name.replace("_", "-")) != value:
                self.bad.append("%s: %s is not %s: %s" % (self.name, name, value, lines))
        return fields

    def wants_end(self):
        if self.came or self.socket.recv(1) != b"":
            self.bad.append("%s: more than was asked for" % self.name)


def same_fields(daemon, head, body):
    for what, change in (("an answer", lambda h: h), ("a fault", lambda h: h.replace(b"op=max", b"op=least")),
                         ("a JSON answer", lambda h: h.replace(b"\r\n\r\n", b"\r\nAccept: application/json\r\n\r\n"))):
        with Talk(daemon, what) as own, Talk(daemon, what + ", the library's") as library:
            found = []
            for talk, form in ((own, change(head)), (library, unlike(change(head)))):
                talk.send(form + body)
                fields = talk.wants(None, 400 if what == "a fault" else 200)
                found.append([(name, value) for name, value in fields.items() if name not in OWN and (name, value) != LAST])
                found[-1].append(sorted(name for name in fields if name in OWN))
            if sorted(map(str, found[0])) != sorted(map(str, found[1])):
                Talk.bad.append("%s: %s, the library's %s" % (what, *found))


def pieces(daemon, head, body):
    for at in (1, 7, len(head) - 3, len(head) - 1, len(head), len(head) + 1, len(head) + len(body) - 1):
        for pause in (0.0, 0.002, 0.15):
            with Talk(daemon, "cut at %d, %g s" % (at, pause)) as talk:
                whole = head + body
                talk.send(whole[:at], whole[at:], pause=pause)
                talk.wants(body)
                talk.send(whole)
                talk.wants(body)
    with Talk(daemon, "byte by byte") as talk:
        talk.send(*[bytes([b]) for b in head + body])
        talk.wants(body)
    with Talk(daemon, "a part and no more") as talk:
        talk.send(head + body[:5])
        talk.socket.shutdown(socket.SHUT_WR)
        talk.wants_end()


def mixed(daemon, generator, head, body):
    live = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    long_head, long_body = row_request(random_values(generator, 40000))
    with Talk(daemon, "mixed") as talk:
        for _ in range(3):
            for request, wanted in ((head + body, body), (live, None), (long_head + long_body, long_body), (head + body, body)):
                talk.send(request)
                talk.wants(wanted)
    with Talk(daemon, "in one piece") as talk:
        talk.send((head + body) * 50 + live + head + body)
        for wanted in [body] * 50 + [None, body]:
            talk.wants(wanted)
    with Talk(daemon, "a fault between") as talk:
        for _ in range(3):
            talk.send(head.replace(b"op=max", b"op=least") + body + head + body)
            talk.wants(None, 400)
            talk.wants(body)
    with Talk(daemon, "names") as talk:
        for i in range(5):
            talk.send(head.replace(b"\r\n\r\n", b"\r\nX-Request-Id: name%d\r\n\r\n" % i) + body)
            talk.wants(body, x_request_id="name%d" % i)
        talk.send(head + body)
        if talk.wants(body).get("x-request-id", "name").startswith("name"):
            Talk.bad.append("an earlier request's name")


def unread(daemon, generator):
    """Nobody reads until the sockets are full."""
    head, body = row_request(random_values(generator, 4096))
    with Talk(daemon, "unread") as talk:
        talk.socket.settimeout(0.5)
        sent, whole = 0, (head + body) * 2000
        try:
            while sent < len(whole):
                sent += talk.socket.send(whole[sent:sent + 65536])
        except (TimeoutError, socket.timeout):
            pass
        talk.socket.settimeout(5)
        for _ in range(sent // len(head + body)):
            talk.wants(body)


def last(head, body):
    with cpu_daemon("--threads", "1", "--max-requests-per-connection", "3") as daemon:
        with Talk(daemon, "the last one") as talk:
            for _ in range(2):
                talk.send(head + body)
                if "connection" in talk.wants(body):
                    Talk.bad.append("an early end is announced")
            talk.send(head + body)
            talk.wants(body, connection="close")
            talk.wants_end()
        return daemon.stop()


def main():
    generator = seed()
    head, body = row_request(random_values(generator, COUNT))
    with cpu_daemon("--threads", "1") as daemon:
        same_fields(daemon, head, body)
        pieces(daemon, head, body)
        mixed(daemon, generator, head, body)
        unread(daemon, generator)
        code = daemon.stop()
    code |= last(head, body)
    print("exit code", code)
    sys.exit("\n".join(Talk.bad) if Talk.bad or code else 0)


main()
