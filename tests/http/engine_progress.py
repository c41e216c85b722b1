#!/usr/bin/env python3
"""Legal work never counts as a lost device, however long it takes: long products, many of them on one lane's share of a
processor, a process that is stopped for a while, a worker that hardly ever gets a processor; nor does a client count as late for what
the daemon waited for a processor. --stall-timeout is far below what each takes. That work which really hangs is found is d_fault.sh's.

The share is a control group's (version 1, made as root); where none can be made that part is left out, and the test says so."""
import array
import os
import signal
import sys
import threading
import time

from daemon import Daemon, daemon_path, metric, request, sanitizer, seed

STREAMING = os.path.join(os.path.dirname(daemon_path()), "tests", "kernserve_streaming")
GROUPS = "/sys/fs/cgroup/cpu"


class Product:
    """A square product in FP64 whose elements are small integers, so that its sums are exact in any order."""

    def __init__(self, generator, size):
        self.size = size
        self.a, self.b = self.numbers(generator), self.numbers(generator)
        self.places = [(generator.randrange(size), generator.randrange(size)) for _ in range(50)]
        target = "/v2/models/matmul/infer?shape=%d,%d&shape=%d,%d&datatype=FP64" % (size, size, size, size)
        self.request = request("POST", target, [], self.a.tobytes() + self.b.tobytes())

    def numbers(self, generator):
        """A row of 4099, a prime, again and again."""
        some = array.array("d", [generator.randrange(-8, 9) for _ in range(4099)])
        return (some * (self.size * self.size // 4099 + 1))[:self.size * self.size]

    def is_right(self, answer):
        n = self.size
        if answer is None or answer.status != 200 or len(answer.body) != 8 * n * n:
            return False
        c = array.array("d", answer.body)
        return all(c[i * n + j] == sum(self.a[i * n + k] * self.b[k * n + j] for k in range(n)) for i, j in self.places)


class Ask(threading.Thread):
    def __init__(self, daemon, product):
        super().__init__()
        self.daemon_asked, self.product, self.answer, self.took = daemon, product, None, 0
        self.start()

    def run(self):
        begun = time.monotonic()
        with self.daemon_asked.connect(120) as connection:
            self.answer = connection.ask(self.product.request)
        self.took = time.monotonic() - begun


def start(path, *options):
    return Daemon(path, "--backend", "cpu", "--pinned-bytes", "64M", *options)


def expect_right(daemon, asks, what):
    for one in asks:
        one.join()
        assert one.product.is_right(one.answer), "%s: %r after %.2f s: %s" % (what, one.answer, one.took, daemon.said())
    assert daemon.process.poll() is None, "%s: the daemon has ended" % what
    assert metric(daemon.metrics(), "kernserve_device_faults_total") == 0, what


def stop_at_work(daemon, product):
    """Stops the process while its work is under way, which may end before the signal comes: then once more. The request."""
    for _ in range(50):
        before = metric(daemon.metrics(), "kernserve_launches_total")
        ask = Ask(daemon, product)
        while ask.is_alive() and metric(daemon.metrics(), "kernserve_launches_total") <= before:
            pass
        os.kill(daemon.process.pid, signal.SIGSTOP)
        ask.join(0.5)  # an answer that was on its way is here by then
        if ask.is_alive():
            return ask
        os.kill(daemon.process.pid, signal.SIGCONT)
        expect_right(daemon, [ask], "before the pause")
    raise AssertionError("no work was seen under way")


def no_threads_of_libraries():
    """Those of OpenMP, which oneDNN would start for each thread that computes, have the name of the one that starts them."""
    with start(daemon_path(), "--threads", "1") as daemon:
        names = [name for _, name in threads(daemon)]
        right = 2 if sanitizer(daemon_path()) == "thread" else 1  # main's; and TSan's own
        assert len([name for name in names if not name.startswith(("ks-", "kernserve-"))]) == right, "threads: %s" % sorted(names)


def long_products(generator):
    """Each takes several times the limit; four lanes share the processors that are there."""
    with start(daemon_path(), "--threads", "1", "--lanes", "4", "--stall-timeout", "100ms") as daemon:
        for size in (400, 600, 900, 1200, 1600, 2200, 3000):  # as large as it takes
            product = Product(generator, size)
            alone = Ask(daemon, product)
            expect_right(daemon, [alone], "a long product")
            if alone.took > 0.5:
                break
        assert alone.took > 0.5, "it was not long: %.2f s" % alone.took
        expect_right(daemon, [Ask(daemon, product) for _ in range(4)], "four at once")
        assert daemon.stop() == 0
    print("a product of %.2f s, the limit is 0.1 s" % alone.took)


def a_pause(generator):
    """The limit lies above what the work takes, on a busy host as well, and below the pause, for a device that tells of progress and one
    that does not."""
    product = Product(generator, 300 if sanitizer(daemon_path()) == "thread" else 400)  # some 50 ms
    with start(daemon_path(), "--threads", "1", "--stall-timeout", "5s") as first, \
            start(STREAMING, "--threads", "1", "--stall-timeout", "5s", "--stream-bytes", "128M") as second:
        asks = []
        for daemon in (first, second):
            asks.append(stop_at_work(daemon, product))
        time.sleep(6)
        for daemon in (first, second):
            os.kill(daemon.process.pid, signal.SIGCONT)
        for daemon, ask in zip((first, second), asks):
            expect_right(daemon, [ask], "a pause")
            assert ask.took > 6, "it was not under way: %.2f s" % ask.took
            assert daemon.stop() == 0


def threads(daemon):
    """Number and name of each; one may end meanwhile."""
    folder, found = "/proc/%d/task" % daemon.process.pid, []
    for task in os.listdir(folder):
        try:
            with open("%s/%s/comm" % (folder, task)) as file:
                found.append((task, file.read().strip()))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def lanes_of(daemon):
    return [task for task, name in threads(daemon) if name.startswith("ks-lane")]


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


class Group:
    """A control group with so much of every period; None in `with`: none can be made."""

    def __init__(self, period_us, quota_us):
        self.folder, self.values = "%s/kernserve-test-%d" % (GROUPS, os.getpid()), (period_us, quota_us)

    def __enter__(self):
        try:
            os.mkdir(self.folder)
        except OSError as fault:
            print("no control group, that part is left out: %s" % fault)
            return None
        write(self.folder + "/cpu.cfs_period_us", "%d" % self.values[0])
        write(self.folder + "/cpu.cfs_quota_us", "%d" % self.values[1])
        return self

    def __exit__(self, *_):
        if os.path.isdir(self.folder):
            os.rmdir(self.folder)

    def take(self, tasks):
        for task in tasks:
            write(self.folder + "/tasks", task)


def a_starved_worker(generator):
    """The worker has 2 ms of each half second: it stands still for many times the limit, ready to run all the while."""
    with Group(500000, 2000) as group:
        if group is None:
            return
        with start(daemon_path(), "--threads", "1", "--lanes", "1", "--stall-timeout", "100ms") as daemon:
            group.take(lanes_of(daemon))
            for size in (100, 200, 350, 500, 800, 1100, 1600):  # a quick processor needs little more than a share or two for the first ones
                ask = Ask(daemon, Product(generator, size))
                expect_right(daemon, [ask], "a starved worker")
                print("%d: a worker with a 250th of a processor: %.2f s, the limit is 0.1 s" % (size, ask.took))
                if ask.took > 0.6:
                    break
            assert ask.took > 0.6, "it was not starved: %.2f s" % ask.took
            assert daemon.stop() == 0


def a_starved_daemon():
    """All of it has a hundredth of a processor, or less of a quick one. A client that sends and reads as quickly as it can is not late for that; one that sends
    nothing is."""
    if sanitizer(daemon_path()) == "thread":
        print("under TSan a hundredth of a processor is minutes: left out, the other builds run it")
        return
    with Group(500000, 5000) as group:
        if group is None:
            return
        with start(daemon_path(), "--threads", "1", "--body-timeout", "4s", "--send-timeout", "4s", "--request-timeout", "5m") as daemon:
            group.take(os.listdir("/proc/%d/task" % daemon.process.pid))
            for rows, quota_us in ((4096, 5000), (8192, 5000), (16384, 5000), (16384, 2500), (16384, 1250)):
                write(group.folder + "/cpu.cfs_quota_us", "%d" % quota_us)
                body = array.array("f", [1.0] * 1024).tobytes() * rows
                data = request("POST", "/v2/models/softmax/infer?shape=%d,1024&datatype=FP32" % rows, [], body)
                begun = time.monotonic()
                with daemon.connect(300) as connection:
                    answer = connection.ask(data)
                took = time.monotonic() - begun
                assert answer is not None and answer.status == 200, "a starved daemon: %r after %.2f s" % (answer, took)
                assert answer.body == array.array("f", [1 / 1024] * 1024).tobytes() * rows, "%d bytes after %.2f s" % (len(answer.body), took)
                print("%d MiB in and out with %.2f %% of a processor: %.2f s, the limits are 4 s each" % (len(body) >> 20, quota_us / 5000, took))
                if took > 10:
                    break
            assert took > 10, "it was not starved: %.2f s" % took
            with daemon.connect(300) as connection:
                connection.send(data[:1000])
                answer = connection.answer("POST")
                assert answer is None or answer.status == 408, "a client that sends nothing: %r" % answer
            assert daemon.stop(120) == 0


def main():
    generator = seed()
    no_threads_of_libraries()
    long_products(generator)
    a_pause(generator)
    a_starved_worker(generator)
    a_starved_daemon()
    print("as promised")


main()
