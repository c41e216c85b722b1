"""HTTP/1.1 to one daemon: kept connections, heads read by hand (the library's parser takes longer than a small kernel), bodies received
where they shall lie."""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
import time
import weakref
from collections import deque
from typing import Callable, Deque, Dict, List, Optional, Sequence, Tuple, Union
from urllib.parse import urlsplit

from ._errors import Deadline, Unreachable

Bytes = Union[bytes, memoryview]
Place = Callable[[int, Dict[bytes, bytes], int], memoryview]  # status, fields, length: where a body goes

IDLE_S = 60.0  # a connection that was idle for longer is closed, not used
HEAD_MAX = 65536
IOV_MAX = 64


class Broken(Exception):
    """The connection ended before an answer's first byte."""


class Address:
    def __init__(self, url: str, context: Optional[ssl.SSLContext]) -> None:
        self.url, self.path, self.context, self.prefix = url, None, None, ""
        if url.startswith("unix:"):
            self.path, self.host = url[5:], "localhost"
            return
        parts = urlsplit(url if "//" in url else "http://" + url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("%r is neither http://HOST:PORT, https://HOST:PORT nor unix:/PATH" % url)
        self.name, self.port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
        self.host, self.prefix = parts.netloc.rpartition("@")[2], parts.path.rstrip("/")
        if parts.scheme == "https":
            self.context = context or ssl.create_default_context()

    def connect(self, timeout: float) -> socket.socket:
        try:
            if self.path is not None:
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                connection.settimeout(timeout)
                connection.connect(self.path)
                return connection
            connection = socket.create_connection((self.name, self.port), timeout)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self.context.wrap_socket(connection, server_hostname=self.name) if self.context else connection
        except socket.timeout:
            raise Deadline("no connection to %s within %.3g s" % (self.url, timeout)) from None
        except OSError as error:
            raise Unreachable("no connection to %s: %s" % (self.url, error)) from None


class Connection:
    """One request at a time. After an exception it is closed."""

    def __init__(self, address: Address, timeout: float) -> None:
        self.url = address.url
        self.socket = address.connect(timeout)
        self.timeout = timeout
        self.fresh = True
        self.used = 0.0
        self.head = bytearray(HEAD_MAX)
        self.view = memoryview(self.head)
        self.gather = not isinstance(self.socket, ssl.SSLSocket)

    def close(self) -> None:
        self.socket.close()

    def exchange(self, parts: Sequence[Bytes], place: Place, deadline: float) -> Tuple[int, Dict[bytes, bytes], memoryview, bool]:
        """Sends the parts and returns status, fields, body, and whether the connection may be used again."""
        try:
            self._wait(deadline)
            try:
                whole = self._send(list(parts), deadline)
            except (BrokenPipeError, ConnectionResetError):
                whole = False  # the daemon may have refused the rest of the body: its answer says why
            status, fields, body, stays = self._answer(place, deadline)
            return status, fields, body, stays and whole
        except socket.timeout:
            raise Deadline("no answer from %s within the timeout" % self.url) from None
        except OSError as error:
            raise Unreachable("%s: %s" % (self.url, error)) from None

    def _wait(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout
        if not 0.9 * self.timeout < left <= self.timeout:  # else the timeout that is set will do: it costs no call
            self.socket.settimeout(left)
            self.timeout = left

    def _send(self, parts: List[Bytes], deadline: float) -> bool:
        """False: an answer came amid the body, whose rest nobody wants."""
        if not self.gather:
            for part in parts:
                self.socket.sendall(part)
            return True
        while parts:
            sent = self.socket.sendmsg(parts[:IOV_MAX])
            while parts and sent >= len(parts[0]):
                sent -= len(parts[0])
                del parts[0]
            if parts:
                parts[0] = memoryview(parts[0])[sent:]
                if self._answered(deadline):
                    return False
        return True

    def _answered(self, deadline: float) -> bool:
        """Waits until there is room for more of a body; true: there is an answer, or an end, and perhaps never room."""
        self._wait(deadline)
        poll = select.poll()
        poll.register(self.socket, select.POLLIN | select.POLLOUT)
        events = poll.poll(1000 * self.timeout)
        if not events:
            raise socket.timeout
        return events[0][1] != select.POLLOUT

    def _answer(self, place: Place, deadline: float) -> Tuple[int, Dict[bytes, bytes], memoryview, bool]:
        have = 0
        while True:
            end = self.head.find(b"\r\n\r\n", 0, have)
            if end >= 0:
                if self.head[9:10] != b"1":
                    break
                have -= end + 4  # an interim answer
                self.view[:have] = bytes(self.view[end + 4:end + 4 + have])
                continue
            if have == HEAD_MAX:
                raise Unreachable("%s: the answer's head is longer than %d bytes" % (self.url, HEAD_MAX))
            got = self._receive(self.view[have:])
            if got == 0:
                if have == 0:
                    raise Broken
                raise Unreachable("%s: the connection ended within an answer's head" % self.url)
            have += got
            self._wait(deadline)
        lines = bytes(self.view[:end]).split(b"\r\n")
        fields: Dict[bytes, bytes] = {}
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            fields[name.lower()] = value.strip()
        status, length = int(lines[0][9:12]), int(fields.get(b"content-length", b"-1"))
        if length < 0 and status not in (204, 304):
            raise Unreachable("%s: an answer without Content-Length" % self.url)
        body = place(status, fields, max(length, 0))
        first = min(have - end - 4, len(body))
        body[:first] = self.view[end + 4:end + 4 + first]
        while first < len(body):
            got = self._receive(body[first:])
            if got == 0:
                raise Unreachable("%s: the connection ended within an answer's body" % self.url)
            first += got
            self._wait(deadline)
        return status, fields, body, fields.get(b"connection", b"").lower() != b"close"

    def _receive(self, into: memoryview) -> int:
        try:
            return self.socket.recv_into(into)
        except ConnectionResetError:
            return 0


class Pool:
    """Connections that wait for the next call: the last one used is the first one taken. Any thread."""

    def __init__(self, address: Address, kept: int, timeout: float) -> None:
        self.address, self.kept, self.timeout = address, kept, timeout
        self.begin()
        POOLS.add(self)

    def begin(self) -> None:
        self.lock = threading.Lock()
        self.mending = threading.Lock()  # held while a lost tensor is put again
        self.waiting: Deque[Connection] = deque()

    def take(self, timeout: float, fresh: bool = False) -> Connection:
        with self.lock:
            oldest = time.monotonic() - IDLE_S
            while self.waiting and self.waiting[0].used < oldest:
                self.waiting.popleft().close()
            if self.waiting and not fresh:
                return self.waiting.pop()
        return Connection(self.address, min(timeout, self.timeout))

    def give_back(self, connection: Connection) -> None:
        connection.fresh = False
        connection.used = time.monotonic()
        with self.lock:
            if len(self.waiting) < self.kept:
                self.waiting.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self.lock:
            while self.waiting:
                self.waiting.pop().close()


POOLS: "weakref.WeakSet[Pool]" = weakref.WeakSet()


def _begin_in_child() -> None:
    """After a fork the connections are the parent's, and a lock may be held by a thread that is not here."""
    for pool in POOLS:
        pool.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
