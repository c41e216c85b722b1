"""Starts and stops kernserve for the tests, and speaks HTTP with it byte for byte.

Interface  Daemon (a process on free loopback ports), Remote (one that runs already), Connection (sends what a test made
           and reads one answer), metric() and settle() (the pinned pool must be empty after a test), check() and wrongs().
           For the engine's tests: cpu_daemon(), dial() (the bare socket), row_request() and read_answer() on it; for_library(), what the plain reader leaves; HeldDaemon,
           whose work ends only when the test lets it; comes_to(); sanitizer(), for what one makes too slow.
Needs      Python 3.8 and nothing else. One thread at a time for each Connection.
"""

import contextlib
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from ports import free_ports

for name in [name for name in os.environ if name.startswith("KERNSERVE_")]:
    del os.environ[name]  # options, or warnings of a daemon that knows no such option: a test says itself what it wants

DEADLINE_S = 30  # for what is to come: far more than a busy host needs, so that it is waited out only where it does not come


class Answer:
    """One HTTP answer: status, headers as a list of (lower-case name, value), body, closed (the peer hung up behind it)."""

    def __init__(self, status, headers, body, closed):
        self.status, self.headers, self.body, self.closed = status, headers, body, closed

    def header(self, name, otherwise=None):
        for key, value in self.headers:
            if key == name.lower():
                return value
        return otherwise

    def says_close(self):
        return (self.header("connection") or "").lower() == "close"

    def __repr__(self):
        return "%s %s %r" % (self.status, self.header("kernserve-error", "-"), self.body[:200])


class Connection:
    """A client socket. send() never fails for a peer that hung up: the answer that it left behind is what a test wants."""

    def __init__(self, where, timeout=20):
        self.socket = socket.create_connection((where.host, where.port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""
        self.eof = False

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def _more(self):
        try:
            got = self.socket.recv(1 << 20)
        except ConnectionResetError:
            got = b""
        self.eof = not got
        self.rest += got
        return bool(got)

    def _head(self):
        """Status and headers of the next final answer; None when the peer closed without one."""
        while True:
            while b"\r\n\r\n" not in self.rest:
                if not self._more():
                    return None
            head, self.rest = self.rest.split(b"\r\n\r\n", 1)
            lines = head.decode("latin-1").split("\r\n")
            status = int(lines[0].split(" ")[1])
            if status != 100:
                break
        headers = []
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers.append((name.strip().lower(), value.strip()))
        return status, headers

    def answer(self, method="GET"):
        """The next answer, or None when the connection ended without one."""
        found = self._head()
        if found is None:
            return None
        status, headers = found
        fields = dict(headers)
        length = int(fields["content-length"]) if "content-length" in fields else None
        if method == "HEAD" or status in (204, 304):
            length = 0
        parts, held = [self.rest], len(self.rest)  # put together once: bytes that grow are copied each time
        while (length is None or held < length) and not self.eof:
            self.rest = b""
            self._more()
            parts.append(self.rest)
            held += len(self.rest)
        self.rest = b"".join(parts)
        body = self.rest if length is None else self.rest[:length]
        self.rest = self.rest[len(body):]
        return Answer(status, headers, body, self.eof)

    def ask(self, data, method="GET"):
        self.send(data)
        return self.answer(method)

    def closed_within(self, seconds):
        """True: the peer has closed and sent nothing more."""
        if self.eof:
            return not self.rest
        self.socket.settimeout(seconds)
        try:
            while self._more():
                pass
        except (socket.timeout, TimeoutError):
            return False
        return True

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def request(method, target, headers=(), body=b""):
    """The bytes of a well-formed request; Content-Length is set for every body and for a POST."""
    lines = ["%s %s HTTP/1.1" % (method, target), "Host: localhost"]
    lines += ["%s: %s" % pair for pair in headers]
    if body or method == "POST":
        lines.append("Content-Length: %d" % len(body))
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def chunked(method, target, headers=(), chunks=()):
    """The bytes of a request whose body comes in the given chunks."""
    lines = ["%s %s HTTP/1.1" % (method, target), "Host: localhost", "Transfer-Encoding: chunked"]
    lines += ["%s: %s" % pair for pair in headers]
    parts = [("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")]
    for chunk in chunks:
        if chunk:
            parts.append(b"%x\r\n%s\r\n" % (len(chunk), chunk))
    return b"".join(parts) + b"0\r\n\r\n"


class Remote:
    """A daemon that somebody else started: http://HOST:PORT."""

    def __init__(self, url):
        match = re.fullmatch(r"(?:http://)?([^:/]+)(?::(\d+))?/?", url)
        if not match:
            raise SystemExit("not an address: %s" % url)
        self.host, self.port, self.process = match.group(1), int(match.group(2) or 80), None

    def connect(self, timeout=20):
        return Connection(self, timeout)

    def dial(self, timeout=20):
        """A bare socket, for tests of what happens on the wire."""
        s = socket.create_connection((self.host, self.port), timeout=timeout)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def get(self, target, headers=()):
        with self.connect() as connection:
            return connection.ask(request("GET", target, headers))

    def metrics(self, headers=()):
        return self.get("/metrics", headers).body.decode()

    def stop(self):
        return 0


def libraries(folder):
    """An environment in which a folder's libraries come before those that this process would find."""
    return {"LD_LIBRARY_PATH": ":".join(filter(None, (folder, os.environ.get("LD_LIBRARY_PATH"))))}


class Daemon(Remote):
    """kernserve at `path` with options, on two free ports, ready when the constructor returns.

    under  a command to run it under, such as valgrind. wait  seconds until it must be ready.
    """

    def __init__(self, path, *options, under=(), wait=60, environment=None, must_start=True):
        self.host = "127.0.0.1"
        self.path = path
        self.port, self.admin_port = free_ports(2)
        self.log = tempfile.TemporaryFile()
        self.command = [*under, path, "--listen", "127.0.0.1:%d" % self.port, "--admin-listen",
                        "127.0.0.1:%d" % self.admin_port, *options]
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=self.log,
                                        env={**os.environ, **(environment or {})})
        if must_start and not self.ready_within(wait):
            self.kill()
            raise RuntimeError("not ready after %d s: %s\n%s" % (wait, " ".join(self.command), self.said()))

    def ready_within(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            try:
                answer = self.get("/v2/health/ready")
                if answer and answer.status == 200:
                    return True
            except OSError:
                pass
            time.sleep(0.02)
        return False

    def descriptors(self):
        """How many descriptors the process has open."""
        return len(os.listdir("/proc/%d/fd" % self.process.pid))

    def said(self):
        """What it wrote to stderr so far. Not by seek(): the process shares the file's offset, and would write over what is there."""
        return os.pread(self.log.fileno(), os.fstat(self.log.fileno()).st_size, 0).decode(errors="replace")

    def says(self, pattern, seconds=DEADLINE_S):
        """The match in what it wrote to stderr, where a line may come later than what it tells of; None: it has not come."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.said())) and time.monotonic() < end:
            time.sleep(0.01)
        return found

    def stop(self, seconds=40):
        """SIGTERM; the exit code. A daemon that does not end is killed and gives -9."""
        if self.process.poll() is None:
            os.kill(self.pid_of_daemon(), signal.SIGTERM)
        return self.wait(seconds)

    def pid_of_daemon(self):
        """Some commands that it runs under start it as a child (compute-sanitizer), others become it (valgrind)."""
        pids = [self.process.pid]
        for pid in pids:
            with open("/proc/%d/cmdline" % pid, "rb") as file:
                if file.read().split(b"\0")[0] == os.fsencode(self.path):
                    return pid
            with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
                pids += [int(child) for child in file.read().split()]
        return self.process.pid

    def wait(self, seconds):
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            code = -9
        if code not in (0, 75):
            sys.stderr.write(self.said())
        return code

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.kill()
        if kind is not None and not issubclass(kind, SystemExit):
            sys.stderr.write(self.said())


_wrongs = []


def check(right, *words):
    """Goes on where it is not right, and says so; wrongs() at the end."""
    if not right:
        _wrongs.append(words)
        print("WRONG", *words)


def wrongs():
    return len(_wrongs)


def metric(text, name, **labels):
    """Sum of the samples of `name` whose labels include the given ones; None when there is none."""
    total = None
    for line in text.splitlines():
        match = re.match(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})? (\S+)", line)
        if not match or match.group(1) != name:
            continue
        have = dict(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', match.group(2) or ""))
        if all(have.get(key) == str(value) for key, value in labels.items()):
            total = (total or 0.0) + float(match.group(3))
    return total


def settle(where, seconds=DEADLINE_S):
    """Waits until no request holds a slot; the bytes of the pinned pool that stay in use (0 is right)."""
    end = time.monotonic() + seconds
    while True:
        used = metric(where.metrics(), "kernserve_pinned_memory_bytes", state="used")
        if used == 0 or time.monotonic() > end:
            return used
        time.sleep(0.05)


def open_target(url, path, *options):
    """The Remote or Daemon that a test's command line names."""
    if url:
        return Remote(url)
    if not path:
        raise SystemExit("give the path of kernserve, or --url")
    return Daemon(path, *options)


# --- the engine's tests: a CPU daemon, a request whose answer is its own body, answers read from a bare socket ---

SKIP = 77


def daemon_path():
    """The daemon that the command line names; without one the test is skipped."""
    if len(sys.argv) < 2 or not os.access(sys.argv[1], os.X_OK):
        print("usage: %s DAEMON" % sys.argv[0])
        sys.exit(SKIP)
    return sys.argv[1]


def sanitizer(path):
    """What the program was built with: "thread", "address", or None."""
    with open(path, "rb") as file:
        data = file.read()
    return "thread" if b"__tsan_init" in data else "address" if b"__asan_init" in data else None


def cpu_daemon(*options):
    return Daemon(daemon_path(), "--backend", "cpu", "--pinned-bytes", "64M", *options)


def measured(daemon, headers=()):
    """Once the second listener's thread has measured the device, which takes processor time and, for a moment, memory of the daemon
    after it is ready."""
    check(comes_to(lambda: "\nkernserve_ceiling_copy_bytes_per_second " in daemon.metrics(headers), True), "the device has not been measured")


def comes_to(read, wanted, seconds=DEADLINE_S):
    """What read() gives in the end: as soon as it is what is wanted, or when the time is over."""
    end = time.monotonic() + seconds
    while (got := read()) != wanted and time.monotonic() < end:
        time.sleep(0.002)
    return got


class HeldDaemon(Daemon):
    """kernserve_faulty on the CPU, with one shard of one lane. Within held() no work ends: what comes behind it waits in the queue,
    however quick the host is and however late the test comes."""

    def __init__(self, *options):
        self.folder = tempfile.TemporaryDirectory()
        self.hold = os.path.join(self.folder.name, "hold")
        super().__init__(os.path.join(os.path.dirname(daemon_path()), "tests", "kernserve_faulty"), "--backend", "cpu", "--threads", "1",
                         "--lanes", "1", "--pinned-bytes", "64M", *options, environment={"KS_HOLD": self.hold})

    def queued(self):
        return metric(self.metrics(), "kernserve_queue_depth")

    @contextlib.contextmanager
    def held(self):
        """A request is on the lane; its answer is read at the end."""
        with open(self.hold, "w"), self.dial(timeout=60) as front:
            try:
                head, body = row_request(range(1, 4))
                front.sendall(head + body)
                check(comes_to(lambda: metric(self.metrics(), "kernserve_lanes", state="busy"), 1) == 1, "the lane is not taken")
                yield
            finally:
                os.remove(self.hold)
            answer = read_answer(front)
            check(answer and answer[0] == 200 and answer[2] == body, "the request in front", answer)


def for_library(head):
    """A request of HTTP/1.0, which libmicrohttpd reads, and behind which the connection ends."""
    return head.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1)


def by_library(text):
    """Of a scrape: how many requests it has read."""
    return metric(text, "kernserve_http_reader_requests_total", reader="libmicrohttpd")


def seed():
    """Fresh random numbers, or those of KS_SEED; says which."""
    value = int(os.environ.get("KS_SEED", random.SystemRandom().getrandbits(32)))
    print("KS_SEED=%d" % value)
    return random.Random(value)


def random_values(generator, count):
    return [generator.getrandbits(31) for _ in range(count)]


def row_request(values, path="/v2/models/reduce/infer"):
    """Head and body of a plain raw request for the maximum over an axis of one: the answer is the bytes sent."""
    body = struct.pack("<%di" % len(values), *values)
    head = ("POST %s?shape=%d,1&datatype=INT32&axis=1&op=max HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
            % (path, len(values), len(body)))
    return head.encode(), body


def read_answer(s):
    """(status, fields, body) of the next answer on a bare socket, behind interim ones; None at the end of the stream."""
    body = b""
    while True:
        while b"\r\n\r\n" not in body:
            more = s.recv(65536)
            if not more:
                return None
            body += more
        head, body = body.split(b"\r\n\r\n", 1)
        if not head.startswith(b"HTTP/1.1 100 "):
            break
    lines = head.decode("latin-1").split("\r\n")
    fields = {name.strip().lower(): value.strip() for name, value in (line.split(":", 1) for line in lines[1:])}
    while len(body) < int(fields.get("content-length", 0)):
        more = s.recv(1 << 20)
        if not more:
            return None
        body += more
    return int(lines[0].split(" ")[1]), fields, body
