#!/usr/bin/env python3
"""TLS listeners: what files are refused, versions, bodies around the size of a TLS record, pipelining, client certificates, idle and
slow clients, reload, --admin-tls, --supervise.

tls.py KERNSERVE            the checks, by Python's ssl and by curl
tls.py KERNSERVE --cost     processor time of the daemon for a request, beside plain HTTP
"""
import contextlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import warnings

warnings.simplefilter("ignore", DeprecationWarning)  # of the old versions that are tried
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from daemon import SKIP, Connection, Daemon, check, comes_to, daemon_path, metric, request, settle, wrongs  # noqa: E402
from ports import free_ports  # noqa: E402

OPTIONS = ("--backend", "cpu", "--pinned-bytes", "16M", "--threads", "1")
RECORD = 16384  # bytes of a TLS record, at most
SIZES = [n * RECORD + d for n in (1, 2, 5) for d in (-4, 0, 4)] + [4, 1 << 20, 16 << 20]
IDLE = 256


class Files:
    """Certificates of a run, made by openssl."""

    def __init__(self, folder):
        self.folder = folder
        for ca in ("ca", "client-ca", "other-ca"):
            self.openssl("req", "-x509", *self.new(ca), "-subj", "/CN=" + ca, "-days", "30", "-out", self.at(ca + ".pem"))
        self.signed("one", "ca", 20)
        self.signed("two", "ca", 25)
        self.signed("client", "client-ca", 20)
        self.signed("stranger", "other-ca", 20)

    def at(self, name):
        return os.path.join(self.folder, name)

    def openssl(self, *words):
        subprocess.run(["openssl", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def new(self, name):
        return "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", self.at(name + ".key")

    def signed(self, name, ca, days):
        with open(self.at("names"), "w") as file:
            file.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        self.openssl("req", *self.new(name), "-subj", "/CN=" + name, "-out", self.at(name + ".csr"))
        self.openssl("x509", "-req", "-in", self.at(name + ".csr"), "-CA", self.at(ca + ".pem"), "-CAkey", self.at(ca + ".key"), "-CAcreateserial", "-days", str(days),
                     "-extfile", self.at("names"), "-out", self.at(name + ".pem"))
        os.chmod(self.at(name + ".key"), 0o600)

    def options(self, name="one"):
        return "--tls-cert", self.at(name + ".pem"), "--tls-key", self.at(name + ".key")


class TlsDaemon(Daemon):
    """A daemon with a TLS listener on a port of its own beside the plain one."""

    def __init__(self, files, *options, **more):
        (self.tls_port,) = free_ports(1)
        self.files = files
        super().__init__(daemon_path(), *OPTIONS, *files.options(), "--tls-listen", "127.0.0.1:%d" % self.tls_port, *options, **more)

    def context(self, client=None):
        context = ssl.create_default_context(cafile=self.files.at("ca.pem"))
        if client:
            context.load_cert_chain(self.files.at(client + ".pem"), self.files.at(client + ".key"))
        return context

    def tls(self, context=None, port=None, receive_bytes=0):
        s = socket.socket()
        s.settimeout(20)
        if receive_bytes:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        s.connect(("127.0.0.1", port or self.tls_port))
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection.__new__(Connection)
        connection.socket, connection.rest, connection.eof = (context or self.context()).wrap_socket(s, server_hostname="localhost"), b"", False
        return connection


def infer(size, name="x"):
    return request("POST", "/v2/models/reduce/infer?shape=1,%d&datatype=FP32&axis=0&op=sum" % (size // 4), [("X-Request-Id", name)], numbers(size))


def numbers(size):
    return (bytes(range(1, 64)) * (size // 63 + 1))[:size]


# --- files ---

def refused(files, name, code, says, *options):
    """The start and --check-config agree."""
    (port,) = free_ports(1)
    command = [daemon_path(), *OPTIONS, "--listen=", "--admin-listen=", "--tls-listen", "127.0.0.1:%d" % port, *options]
    for last in ([], ["--check-config"]):
        done = subprocess.run(command + last, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        check(done.returncode == code and says in done.stderr, name, last, done.returncode, done.stderr)


def wrong_files(files):
    garbage, shared = files.at("garbage.pem"), files.at("shared.key")
    with open(garbage, "w") as file:
        file.write("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    os.chmod(garbage, 0o600)
    shutil.copy(files.at("one.key"), shared)
    os.chmod(shared, 0o640)
    one, key = files.at("one.pem"), files.at("one.key")
    refused(files, "no certificate", 78, "--tls-cert")
    refused(files, "no key", 78, "--tls-key", "--tls-cert", one)
    refused(files, "a certificate that is none", 78, garbage, "--tls-cert", garbage, "--tls-key", key)
    refused(files, "a key that is none", 78, garbage, "--tls-cert", one, "--tls-key", garbage)
    refused(files, "another's key", 78, files.at("two.key"), "--tls-cert", one, "--tls-key", files.at("two.key"))
    refused(files, "a key that others may read", 77, shared, "--tls-cert", one, "--tls-key", shared)
    refused(files, "a file that is not there", 66, files.at("none"), "--tls-cert", files.at("none"), "--tls-key", key)
    refused(files, "a client CA that is none", 78, key, *files.options(), "--tls-client-ca", key)
    refused(files, "priorities that are none", 78, "+VERS-TLS9", *files.options(), "--tls-priorities", "NORMAL:+VERS-TLS9")
    (port,) = free_ports(1)
    tokens = files.at("tokens")
    with open(tokens, "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write("one:0123456789abcdef\n")
    for option, warned in (("--listen", True), ("--tls-listen", False)):
        done = subprocess.run([daemon_path(), *OPTIONS, "--listen=", "--admin-listen=", option, "0.0.0.0:%d" % port, *files.options(), "--token-file", tokens, "--check-config"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        check(done.returncode == 0 and ("clear text" in done.stderr) == warned, option, done)
        check(("https://0.0.0.0:%d" % port in done.stdout) != warned, option, done.stdout)


# --- requests ---

def versions(daemon):
    for version, good in ((ssl.TLSVersion.TLSv1, False), (ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)):
        context = daemon.context()
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = version
        try:
            with daemon.tls(context) as connection:
                answer = connection.ask(request("GET", "/v2", [("X-Request-Id", version.name)]))
                check(good and answer.status == 200, version, answer)
        except (ssl.SSLError, ConnectionError) as refusal:
            check(not good, version, refusal)
    for version in ("TLSv1_2", "TLSv1_3"):
        check(daemon.says(r"request_id=%s .* reader=libmicrohttpd tls=TLS%s" % (version, version[4:].replace("_", "."))), version, "stands in the access log")
    url = "https://localhost:%d/v2" % daemon.tls_port
    curl = ["curl", "-sS", "-m", "20", "--resolve", "localhost:%d:127.0.0.1" % daemon.tls_port, "--cacert", daemon.files.at("ca.pem"), "-o", os.devnull, "-w", "%{http_code}"]
    got = subprocess.run(curl + [url, url], stdout=subprocess.PIPE, text=True, check=False)
    check(got.returncode == 0 and got.stdout.startswith("200"), "curl", got)
    got = subprocess.run(curl + ["--tls-max", "1.0", "--ciphers", "DEFAULT:@SECLEVEL=0", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    check(got.returncode in (35, 56), "curl by TLS 1.0", got)
    got = subprocess.run(["curl", "-s", "-m", "20", "http://localhost:%d/v2" % daemon.tls_port], stdout=subprocess.PIPE, check=False)
    check(got.returncode != 0 and not got.stdout, "HTTP without TLS", got)


def bodies(daemon):
    """The same bytes as by the plain listener, however records and requests lie: what the library has decrypted and the socket no longer
    shows must not wait."""
    with daemon.tls() as tls, daemon.connect() as plain:
        for size in SIZES:
            answers = [connection.ask(infer(size)) for connection in (tls, plain)]
            check([a.status for a in answers] == [200, 200] and answers[0].body == answers[1].body, size, "bytes", answers)
        head = request("POST", "/v2/models/softmax/infer?shape=1,4096&datatype=FP32", (), bytes(RECORD)).split(b"\r\n\r\n")[0] + b"\r\n\r\n"
        for cut in (len(head) - 1, len(head), RECORD - 1, RECORD, RECORD + 1):  # what a record ends with
            wire = head + bytes(RECORD)
            tls.send(wire[:cut])
            time.sleep(0.02)
            check(tls.ask(wire[cut:]).status == 200, "a record that ends at", cut)
        for count, size in ((64, 4096), (3, RECORD), (20, RECORD + 4)):
            tls.send(infer(size) * count)
            check([tls.answer().status for _ in range(count)] == [200] * count, count, "pipelined requests of", size)
        tls.send(b"POST /v2/models/softmax/infer?shape=1,4096&datatype=FP32 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
                 b"".join(b"%x\r\n%s\r\n" % (n, bytes(n)) for n in (RECORD - 1, 1)) + b"0\r\n\r\n" + request("GET", "/v2/nothing"))
        check([tls.answer().status for _ in range(2)] == [200, 404], "chunks, and a request behind them")
        answer = tls.ask(request("POST", "/v2/models/softmax/infer?shape=1024,4096&datatype=FP32", (), numbers(16 << 20)))
        same = plain.ask(request("POST", "/v2/models/softmax/infer?shape=1024,4096&datatype=FP32", (), numbers(16 << 20)))
        check(answer.status == same.status == 200 and answer.body == same.body, "16 MiB each way", answer, same)
        check(tls.ask(b"GET /v2 HTTP/1.1\r\nHost: evil.example\r\n\r\n").status == 421, "heads are checked")
        check(tls.ask(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n").status == 400 and tls.closed_within(10), "a folded field is refused, and ends the connection")


def last(files):
    """A request that comes while the last response is on its way does not take it back; an end that the client asked for is there at once."""
    with TlsDaemon(files, "--max-requests-per-connection", "2") as daemon:
        for _ in range(3):
            with daemon.tls(receive_bytes=8192) as connection:  # so that the response is not the kernel's to deliver at once
                connection.ask(request("GET", "/v2"))
                connection.send(request("GET", "/openapi.json"))
                time.sleep(0.05)
                connection.send(request("GET", "/v2"))
                time.sleep(0.05)
                answer = connection.answer("GET")
                check(answer is not None and answer.says_close() and len(answer.body) == int(answer.header("content-length")), "the last response", answer)
        with daemon.tls() as connection:
            connection.send(request("GET", "/v2") + request("GET", "/v2") + request("GET", "/v2"))
            check([connection.answer().status for _ in range(2)] == [200, 200] and connection.closed_within(5), "closed behind the last")
        begun = time.monotonic()
        with daemon.tls() as connection:
            check(connection.ask(request("GET", "/v2", [("Connection", "close")])).status == 200 and connection.closed_within(5), "an end that was asked for")
        check(time.monotonic() - begun < 0.9, "its end takes", time.monotonic() - begun, "s")
        open_ones = comes_to(lambda: metric(daemon.metrics(), "kernserve_http_connections"), 1)
        check(open_ones == 1, "beside the one that asks there are", open_ones)
        lingering = daemon.tls()
        lingering.send(request("GET", "/v2") + request("GET", "/v2"))
        check([lingering.answer().status for _ in range(2)] == [200, 200], "in front of the end")
        check(daemon.stop() == 0, "the exit code beside one that lingers")
        lingering.close()


def slow(daemon):
    """Clients that say nothing, or not enough, are nobody's delay, and are ended by --header-timeout and --body-timeout."""
    begun = time.monotonic()
    idle = [socket.create_connection(("127.0.0.1", daemon.tls_port), timeout=30) for _ in range(IDLE)]
    for s in idle[:IDLE // 2]:
        s.sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a hello
    with daemon.tls() as connection:
        times = []
        for _ in range(50):
            at = time.monotonic()
            check(connection.ask(infer(4096)).status == 200, "beside idle handshakes")
            times.append(time.monotonic() - at)
        check(sorted(times)[25] < 0.05, "the median beside idle handshakes is", sorted(times)[25], "s")
    for s in idle:
        with contextlib.suppress(ConnectionResetError):
            while s.recv(4096):
                pass
        s.close()
    check(0.5 < time.monotonic() - begun < 20, "idle handshakes were ended after", time.monotonic() - begun, "s")
    for name, wire in (("head", request("GET", "/v2")[:-2]), ("body", infer(4096)[:-1])):
        with daemon.tls() as connection:
            answer = connection.ask(wire)
            check(answer is not None and answer.status == 408 and connection.closed_within(20), "a slow", name, answer)


def certificate(daemon):
    with daemon.tls() as connection:
        return connection.socket.getpeercert(binary_form=True)


def expiry(daemon):
    return metric(daemon.metrics(), "kernserve_tls_certificate_expiry_timestamp_seconds")


def hang_up(daemon, says):
    count = daemon.said().count(says)
    os.kill(daemon.process.pid, signal.SIGHUP)
    check(comes_to(lambda: daemon.said().count(says) > count, True), "SIGHUP is answered with:", says)


def reload(daemon, files):
    live = [files.at("live.pem"), files.at("live.key")]
    before, old = certificate(daemon), daemon.tls()
    first = expiry(daemon)
    check(old.ask(request("GET", "/v2")).status == 200 and 19 * 86400 < first - time.time() < 21 * 86400, "20 days are left", first)
    shutil.copy(files.at("two.pem"), live[0])
    hang_up(daemon, "nothing has changed")  # the key is still the first one's
    check(certificate(daemon) == before and expiry(daemon) == first, "a reload with a wrong key changes nothing")
    shutil.copy(files.at("two.key"), live[1])
    hang_up(daemon, "configuration read again")
    check(certificate(daemon) != before, "new connections get the new certificate")
    check(24 * 86400 < expiry(daemon) - time.time() < 26 * 86400, "25 days are left", expiry(daemon))
    check(old.ask(request("GET", "/v2")).status == 200, "an old connection goes on")
    old.close()


def clients(files):
    with TlsDaemon(files, "--tls-client-ca", files.at("client-ca.pem")) as daemon:
        for client, good in (("client", True), ("stranger", False), (None, False), ("client", True)):
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                context, status = daemon.context(client), None
                context.maximum_version = version
                with contextlib.suppress(ssl.SSLError, ConnectionError):
                    with daemon.tls(context) as connection:
                        answer = connection.ask(request("GET", "/v2"))
                        status = answer and answer.status
                check(status == (200 if good else None), version, client, status)
        check(daemon.stop() == 0, "the exit code")


def admin(files):
    """Both listeners by TLS, the data sockets from a supervisor; an idle connection does not hold the end up."""
    with TlsDaemon(files, "--admin-tls", "--supervise") as daemon:
        with daemon.tls(port=daemon.admin_port) as connection:
            check(connection.ask(request("GET", "/v2/health/ready")).status == 200, "the second listener by TLS")
        check(daemon.says(r'serves="http://\S+, https://127.0.0.1:%d, metrics and health https://127.0.0.1:%d"' % (daemon.tls_port, daemon.admin_port)), "the start line")
        done = subprocess.run([daemon.path, "--healthcheck", "--listen", "127.0.0.1:%d" % daemon.port, "--admin-listen", "127.0.0.1:%d" % daemon.admin_port, "--admin-tls"], check=False)
        check(done.returncode == 0, "the health check asks the listener without TLS")
        idle = daemon.tls()
        check(idle.ask(request("GET", "/v2")).status == 200, "by sockets of the supervisor")
        begun = time.monotonic()
        check(daemon.stop() == 0 and time.monotonic() - begun < 10, "the end takes", time.monotonic() - begun, "s")
        check(idle.closed_within(5), "an idle connection is closed at the end")


def cost(files):
    """User and system time of the daemon's process for a request on a kept connection, plain and TLS in turns."""
    with TlsDaemon(files) as daemon:
        def spent():
            with open("/proc/%d/stat" % daemon.process.pid) as file:
                return sum(int(word) for word in file.read().rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")

        for size, count in ((4096, 20000), (1 << 20, 600)):
            wire = request("POST", "/v2/models/softmax/infer?shape=%d,1024&datatype=FP32" % (size // 4096), (), numbers(size))
            each = {"plain": [], "TLS": []}
            for _ in range(3):
                for name, connection in (("plain", daemon.connect()), ("TLS", daemon.tls())):
                    before = spent()
                    for _ in range(count):
                        connection.ask(wire)
                    each[name].append((spent() - before) / count * 1e6)
                    connection.close()
            plain, tls = (sorted(each[name])[1] for name in ("plain", "TLS"))
            print("%7d bytes each way: plain %.0f us, TLS %.0f us of the daemon's processor time, %.1f times" % (size, plain, tls, tls / plain))
        daemon.stop()


def main():
    if not shutil.which("openssl") or not shutil.which("curl"):
        print("openssl or curl is not here")
        return SKIP
    with tempfile.TemporaryDirectory() as folder:
        files = Files(folder)
        if "--cost" in sys.argv:
            cost(files)
            return 0
        wrong_files(files)
        for kind in ("pem", "key"):
            shutil.copy(files.at("one." + kind), files.at("live." + kind))
        with TlsDaemon(files, *files.options("live"), "--access-log", "on", "--header-timeout", "1s", "--body-timeout", "1s") as daemon:
            slow(daemon)
            check(daemon.stop() == 0, "the exit code")
        with TlsDaemon(files, *files.options("live"), "--access-log", "on") as daemon:
            versions(daemon)
            bodies(daemon)
            reload(daemon, files)
            check(settle(daemon) == 0, "nothing is held")
            check(daemon.stop() == 0, "the exit code")
        last(files)
        clients(files)
        admin(files)
    return wrongs() > 0


sys.exit(main())
