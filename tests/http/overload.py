"""Clients that offer more than a daemon can do, for engine_overload.py and ../bench/bench_overload.py.

Interface  dear_request() (8 KiB that keep a CPU lane for a millisecond or more), Crowd (connections in one thread: as many
           requests at a time as there are connections, or so many a second whatever becomes of them), Probe (one client
           beside them), quantile()."""
import collections
import selectors
import struct
import threading
import time

from daemon import Remote, request


def dear_request(headers=(), query=""):
    """32 x 32 products of 8 x 8 matrices: few bytes, much work."""
    body = struct.pack("<2048e", *((i * 7919 % 201) / 50 for i in range(2048))) * 2
    return request("POST", "/v2/models/matmul/infer?shape=32,1,8,8&shape=1,32,8,8&datatype=FP16" + query, headers, body)


def quantile(values, q):
    return sorted(values)[min(len(values) - 1, int(len(values) * q))] if values else float("nan")


class Answers:
    """Of one run: seconds it took, and for each status how long each of its answers took."""

    def __init__(self):
        self.took, self.times, self.without_retry = 0, {}, 0

    def add(self, head, seconds):
        status = int(head[9:12])
        self.times.setdefault(status, []).append(seconds)
        if status == 503 and b"\r\nretry-after:" not in head.lower():
            self.without_retry += 1

    def rate(self, status):
        return len(self.times.get(status, ())) / self.took

    def milliseconds(self, status, q):
        return quantile(self.times.get(status, ()), q) * 1e3


class Crowd:
    """Connections to `daemon`, of which each has one request under way at most."""

    def __init__(self, daemon, connections, data):
        self.data = data
        self.selector = selectors.DefaultSelector()
        self.sockets = [daemon.dial(60) for _ in range(connections)]
        self.waiting = {}  # socket: [sent at, bytes of the answer that are missing, what came before its length was known]
        for s in self.sockets:
            s.setblocking(False)
            self.selector.register(s, selectors.EVENT_READ)

    def close(self):
        self.selector.close()
        for s in self.sockets:
            s.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _send(self, s):
        self.waiting[s] = [time.monotonic(), None, b""]
        if s.send(self.data) != len(self.data):
            raise RuntimeError("a request does not fit the socket")

    def _receive(self, s, answers):
        """True: the answer is whole."""
        one = self.waiting[s]
        got = s.recv(1 << 18)
        if not got:
            raise RuntimeError("the daemon closed a connection")
        if one[1] is None:
            one[2] += got
            head, found, body = one[2].partition(b"\r\n\r\n")
            if not found:
                return False
            one[2] = head
            one[1] = int(head.lower().split(b"\r\ncontent-length:")[1].split(b"\r\n")[0]) - len(body)
        else:
            one[1] -= len(got)
        if one[1] > 0:
            return False
        answers.add(one[2], time.monotonic() - one[0])
        del self.waiting[s]
        return True

    def _wait(self, until, answers):
        """The sockets whose answers came, at the latest at `until`."""
        events = self.selector.select(max(0, until - time.monotonic()))
        return [key.fileobj for key, _ in events if key.fileobj in self.waiting and self._receive(key.fileobj, answers)]

    def _finish(self, answers, begun):
        end = time.monotonic() + 30
        answers.took = time.monotonic() - begun
        while self.waiting:
            if time.monotonic() > end:
                raise RuntimeError("%d requests without an answer" % len(self.waiting))
            self._wait(end, Answers())
        return answers

    def closed(self, seconds):
        """As soon as an answer comes the next request leaves."""
        answers, begun = Answers(), time.monotonic()
        for s in self.sockets:
            self._send(s)
        while time.monotonic() < begun + seconds:
            for s in self._wait(begun + seconds, answers):
                self._send(s)
        return self._finish(answers, begun)

    def open(self, seconds, rate):
        """`rate` requests a second; one for which no connection is free is not sent. (answers, how many were not sent)"""
        answers, begun, sent, unsent = Answers(), time.monotonic(), 0, 0
        idle = collections.deque(self.sockets)  # in turn: one that stays silent from its beginning is closed as too slow
        while (now := time.monotonic()) < begun + seconds:
            while sent + unsent < (now - begun) * rate:
                if idle:
                    self._send(idle.popleft())
                    sent += 1
                else:
                    unsent += 1
            idle += self._wait(begun + (sent + unsent + 1) / rate, answers)
        return self._finish(answers, begun), unsent


class Probe(threading.Thread):
    """One request after the other, each timed."""

    def __init__(self, port, data, pause=0.005):
        super().__init__()
        self.where, self.data, self.pause = Remote("127.0.0.1:%d" % port), data, pause
        self.ends, self.times, self.fault = False, {}, None
        self.start()

    def run(self):
        try:
            with self.where.connect() as connection:
                while not self.ends:
                    begun = time.monotonic()
                    status = connection.ask(self.data).status
                    self.times.setdefault(status, []).append(time.monotonic() - begun)
                    time.sleep(self.pause)
        except (AttributeError, OSError) as fault:
            self.fault = fault

    def stop(self):
        """How long the answers of each status took."""
        self.ends = True
        self.join()
        if self.fault:
            raise RuntimeError("the daemon closed a connection: %s" % self.fault)
        return self.times
