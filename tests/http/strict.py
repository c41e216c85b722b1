"""What comes back on a connection, read as strictly as a suspicious client would.

Interface  read_all(): a byte stream cut into answers, or what is wrong with it. Exchange: sends bytes in a chosen delivery and
           collects what comes back until enough answers are there or the end. error_fault(): whether a refusal is ours in form.
Rules      a status line of HTTP/1.1 with three digits, fields of one line with a token for a name, one Content-Length, the body's
           bytes and nothing behind the last answer. Interim answers (100) are counted apart.
"""

import json
import re
import socket
import time

from daemon import Answer

STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [\t -~]*")
FIELD_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([\t -~\x80-\xff]*)")
BODILESS = (204, 304)


class Malformed(Exception):
    """The stream is not HTTP; the text says why."""


def read_head(head):
    """Status and fields of an answer's head, without its empty line."""
    lines = head.split(b"\r\n")
    first = STATUS_LINE.fullmatch(lines[0])
    if not first:
        raise Malformed("status line %r" % lines[0][:80])
    fields = []
    for line in lines[1:]:
        match = FIELD_LINE.fullmatch(line)
        if not match:
            raise Malformed("field %r" % line[:80])
        fields.append((match.group(1).decode("latin-1").lower(), match.group(2).decode("latin-1").strip(" \t")))
    return int(first.group(1)), fields


def body_length(status, fields, method):
    lengths = [value for name, value in fields if name == "content-length"]
    if any(name == "transfer-encoding" for name, _ in fields):
        raise Malformed("an answer with Transfer-Encoding")
    if status in BODILESS:
        return 0
    if len(lengths) != 1 or not re.fullmatch("[0-9]+", lengths[0]):
        raise Malformed("status %d with Content-Length %r" % (status, lengths))
    return 0 if method == "HEAD" else int(lengths[0])


def read_one(stream, method):
    """(Answer, what follows), or None while it is not complete."""
    at = stream.find(b"\r\n\r\n")
    if at < 0:
        if stream and not b"HTTP/1.1 ".startswith(stream[:9]):
            raise Malformed("no answer: %r" % stream[:80])
        return None
    status, fields = read_head(stream[:at])
    if status < 200:
        return Answer(status, fields, b"", False), stream[at + 4:]
    length = body_length(status, fields, method)
    if len(stream) - at - 4 < length:
        return None
    return Answer(status, fields, stream[at + 4:at + 4 + length], False), stream[at + 4 + length:]


def read_all(stream, methods):
    """(final answers, number of interim ones, rest); methods: of the requests, in their order, the last for all that follow."""
    answers, interim = [], 0
    while stream:
        method = methods[min(len(answers), len(methods) - 1)]
        found = read_one(stream, method)
        if found is None:
            break
        answer, stream = found
        if answer.status < 200:
            interim += 1
        else:
            answers.append(answer)
    return answers, interim, stream


def error_fault(answer):
    """None, or how a refusal differs from what ours look like."""
    if answer.header("content-type") != "application/json":
        return "a refusal of type %s" % answer.header("content-type")
    if not answer.header("kernserve-error"):
        return "a refusal without Kernserve-Error"
    try:
        document = json.loads(answer.body.decode("utf-8"))
    except ValueError as error:
        return "a refusal whose body is no JSON in UTF-8: %s, %r" % (error, answer.body[:80])
    return None if set(document) == {"error"} and document["error"] else "a refusal with the body %r" % answer.body[:80]


class Exchange:
    """One connection: everything that was sent goes out, everything that came back is kept."""

    def __init__(self, address, timeout=5):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.settimeout(timeout)
        self.socket.connect(address)
        if family == socket.AF_INET:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.got, self.ended, self.reset = b"", False, False

    def send(self, pieces, pause=0.0):
        """A peer that has closed already is no fault: what it left behind counts."""
        try:
            for piece in pieces:
                self.socket.sendall(piece)
                if pause:
                    time.sleep(pause)
        except (BrokenPipeError, ConnectionResetError, socket.timeout):
            return False
        return True

    def receive(self, seconds):
        """One read; False at the end or when nothing came."""
        self.socket.settimeout(seconds)
        try:
            more = self.socket.recv(1 << 18)
        except (TimeoutError, socket.timeout):
            return False
        except ConnectionResetError:
            more, self.reset = b"", True
        self.ended |= not more
        self.got += more
        return bool(more)

    def collect(self, wanted, methods, seconds=2):
        """Until so many final answers have come, or the end, or silence."""
        while not self.ended:
            answers, _, _ = read_all(self.got, methods)
            if len(answers) >= wanted or not self.receive(seconds):
                break
        return read_all(self.got, methods)

    def finish(self, seconds=2):
        """Nothing more is sent. Whether the peer has closed its side too."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.ended = True
        while not self.ended and self.receive(seconds):
            pass
        return self.ended

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
