"""A daemon of one's own on free loopback ports, for the engine's tests; ended by its process id, whatever happens."""
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

SKIP = 77


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Daemon:
    def __init__(self, path, *options):
        self.port, self.admin = free_port(), free_port()
        self.log = tempfile.TemporaryFile()
        command = [path, "--backend", "cpu", "--listen", f"127.0.0.1:{self.port}", "--admin-listen", f"127.0.0.1:{self.admin}",
                   "--pinned-bytes", "64M", *options]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        end = time.monotonic() + 20
        while True:
            try:
                if urllib.request.urlopen(self.url("/v2/health/ready"), timeout=2).status == 200:
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                print(self.text())
                sys.exit("the daemon did not get ready")
            time.sleep(0.05)

    def url(self, path):
        return f"http://127.0.0.1:{self.port}{path}"

    def text(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def connect(self, timeout=10):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def metric(self, start):
        page = urllib.request.urlopen(self.url("/metrics"), timeout=10).read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(start))

    def stop(self, number=signal.SIGTERM, timeout=20):
        """Ends the daemon; its exit code, None: it had to be killed."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.stop()
        if what[0] is not None:
            print(self.text())


def row_request(values, keep=True, path="/v2/models/reduce/infer"):
    """A plain raw request for max over one axis of length 1 would change nothing: the answer must be the bytes sent."""
    body = struct.pack(f"<{len(values)}i", *values)
    head = (f"POST {path}?shape={len(values)},1&datatype=INT32&axis=1&op=max HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Length: {len(body)}\r\n" + ("" if keep else "Connection: close\r\n") + "\r\n")
    return head.encode(), body


def random_values(generator, count):
    return [generator.getrandbits(31) for _ in range(count)]


def read_answer(s):
    """(status, fields, body) of one answer, or None at the end of the stream."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = s.recv(65536)
        if not more:
            return None
        data += more
    head, body = data.split(b"\r\n\r\n", 1)
    lines = head.decode("latin-1").split("\r\n")
    fields = {name.strip().lower(): value.strip() for name, value in (line.split(":", 1) for line in lines[1:])}
    length = int(fields.get("content-length", 0))
    while len(body) < length:
        more = s.recv(1 << 20)
        if not more:
            return None
        body += more
    return int(lines[0].split(" ")[1]), fields, body


def seed():
    value = int(os.environ.get("KS_SEED", random.SystemRandom().getrandbits(32)))
    print(f"KS_SEED={value}")
    return random.Random(value)


def daemon_path():
    if len(sys.argv) < 2 or not os.access(sys.argv[1], os.X_OK):
        print("usage: " + sys.argv[0] + " DAEMON")
        sys.exit(SKIP)
    return sys.argv[1]
