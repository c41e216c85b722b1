#!/usr/bin/env python3
"""The daemon with a fifth of a processor: products near --max-work, middling ones and small requests of every form, for
half an hour. It must not end, must not count a device fault, and every answer must be right, or 503, or 504.

low_cpu.py KERNSERVE [--seconds 1800] [--cores 0.2] [--heavy 3] [--middling 2] [--small 4] [-- OPTION...]

The share is a control group's, made as root in /sys/fs/cgroup: version 1 (cpu.cfs_quota_us) or 2 (cpu.max); where none can
be made, exit code 77 and the reason. The group's weight is the largest, so that other work on the host takes none of it. The clients are outside of the group. KS_SEED=N repeats the requests of a run.
A heavy client takes 0.3 GiB in the daemon (--inflight-bytes bounds it) and 0.1 GiB here.
"""

import argparse
import array
import collections
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from daemon import Connection, Daemon, metric, request  # noqa: E402
from forms import FORMS, TRANSPORTS, check_answer, fits, random_case  # noqa: E402

SKIP = 77
PERIOD_US = 100000
PATIENCE = 900  # seconds that a client waits for an answer: the daemon's own limits come first
TYPES = {"FP32": ("f", 4), "FP64": ("d", 8)}


# --- the share of a processor ---


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def own_group(controller):
    """The folder of this process's group that has the controller, and the version of that hierarchy; None: there is none."""
    with open("/proc/self/cgroup") as file:
        rows = [line.rstrip("\n").split(":", 2) for line in file]
    for _, controllers, path in rows:
        if controller in controllers.split(","):
            return "/sys/fs/cgroup/%s%s" % (controllers, path), 1
    for number, controllers, path in rows:
        if number == "0" and controllers == "":
            return "/sys/fs/cgroup%s" % path, 2
    return None, 0


class Share:
    """A group whose processes have so many processors together. Leaves with 77 where it cannot be made."""

    def __init__(self, cores):
        above, version = own_group("cpu")
        if version == 0:
            self.skip("no control group has processors to share")
        self.folder = os.path.join(above, "kernserve-low-cpu-%d" % os.getpid())
        try:
            os.mkdir(self.folder)
        except OSError as fault:
            self.skip("no control group can be made: %s" % fault)
        try:
            quota = "%d" % int(cores * PERIOD_US)
            if version == 1:
                write(self.folder + "/cpu.cfs_period_us", "%d" % PERIOD_US)
                write(self.folder + "/cpu.cfs_quota_us", quota)
                write(self.folder + "/cpu.shares", "262144")
            else:
                write(self.folder + "/cpu.max", "%s %d" % (quota, PERIOD_US))
                write(self.folder + "/cpu.weight", "10000")
        except OSError as fault:
            os.rmdir(self.folder)
            self.skip("the control group cannot limit processors: %s" % fault)

    @staticmethod
    def skip(why):
        print("skip: %s" % why)
        sys.exit(SKIP)

    def under(self):
        """A command to run a program under, in the group."""
        return ["sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', self.folder]

    def close(self):
        for _ in range(100):  # a process that has just ended may still be in it
            try:
                os.rmdir(self.folder)
                return
            except OSError:
                time.sleep(0.05)


# --- requests ---


class Product:
    """A[m,k] B[k,n] of small integers, whose sums are exact in any order."""

    def __init__(self, generator, datatype, m, k, n):
        self.code, self.width = TYPES[datatype]
        self.m, self.k, self.n = m, k, n
        self.name = "%s [%d,%d][%d,%d]" % (datatype, m, k, k, n)
        self.a, self.b = self.numbers(generator, m * k), self.numbers(generator, k * n)
        target = "/v2/models/matmul/infer?shape=%d,%d&shape=%d,%d&datatype=%s" % (m, k, k, n, datatype)
        self.request = request("POST", target, [], self.a.tobytes() + self.b.tobytes())

    def numbers(self, generator, count):
        """4099 of them, a prime, again and again."""
        some = array.array(self.code, [generator.randrange(-8, 9) for _ in range(4099)])
        return (some * (count // 4099 + 1))[:count]

    def fault(self, answer, generator):
        """What is wrong with a 200; None: nothing, as far as 40 elements tell."""
        if len(answer.body) != self.m * self.n * self.width:
            return "%s: %d bytes" % (self.name, len(answer.body))
        for _ in range(40):
            i, j = generator.randrange(self.m), generator.randrange(self.n)
            at = (i * self.n + j) * self.width
            got = array.array(self.code, answer.body[at:at + self.width])[0]
            right = sum(self.a[i * self.k + l] * self.b[l * self.n + j] for l in range(self.k))
            if got != right:
                return "%s: element %d,%d is %r and not %r" % (self.name, i, j, got, right)
        return None


class Tally:
    """What became of the requests of one kind. Any thread."""

    def __init__(self):
        self.lock = threading.Lock()
        self.counts, self.slowest, self.faults = collections.Counter(), 0.0, []

    def add(self, what, took):
        with self.lock:
            self.counts[what] += 1
            self.slowest = max(self.slowest, took)

    def wrong(self, text):
        with self.lock:
            self.faults.append("%s: %s" % (time.strftime("%H:%M:%S"), text))

    def __str__(self):
        words = ", ".join("%d %s" % (n, what) for what, n in sorted(self.counts.items()))
        return "%s; slowest %.1f s; %d wrong" % (words or "none", self.slowest, len(self.faults))


def judge(tally, answer, took, fault_of):
    """A 200 that fault_of finds nothing wrong with, or 503 or 504 with a code."""
    if answer is None:
        tally.wrong("no answer after %.1f s" % took)
        return
    code = answer.header("kernserve-error", "")
    tally.add("200" if answer.status == 200 else "%d %s" % (answer.status, code), took)
    if answer.status == 200:
        fault = fault_of(answer)
        if fault:
            tally.wrong(fault)
    elif answer.status not in (503, 504) or code in ("", "device"):
        tally.wrong("%r after %.1f s" % (answer, took))


class Client(threading.Thread):
    """One request after the other until the time is over. turn() sends one."""

    def __init__(self, daemon, tally, generator, until):
        super().__init__()
        self.where, self.tally, self.generator, self.until = daemon, tally, generator, until

    def run(self):
        while time.monotonic() < self.until and self.where.process.poll() is None:
            begun = time.monotonic()
            try:
                self.turn(begun)
            except Exception as fault:  # whatever it is, it is the run's result
                self.tally.wrong("%s after %.1f s: %s" % (type(fault).__name__, time.monotonic() - begun, fault))
                time.sleep(0.2)


class Multiplier(Client):
    def __init__(self, products, *rest):
        super().__init__(*rest)
        self.products = products

    def turn(self, begun):
        product = self.generator.choice(self.products)
        with Connection(self.where, PATIENCE) as connection:
            answer = connection.ask(product.request)
        judge(self.tally, answer, time.monotonic() - begun, lambda good: product.fault(good, self.generator))
        if answer is not None and answer.status != 200:
            time.sleep(float(answer.header("retry-after", 1)))


class Mixer(Client):
    """Small requests in every form, on a connection that is kept for some of them."""

    def turn(self, begun):
        with Connection(self.where, PATIENCE) as connection:
            for _ in range(self.generator.randrange(1, 20)):
                case = random_case(self.generator, small=True)
                form = self.generator.choice([f for f in FORMS if fits(f, case)])
                data = TRANSPORTS["whole"](self.generator, *FORMS[form](case, "low"))
                begun = time.monotonic()
                answer = connection.ask(data)
                judge(self.tally, answer, time.monotonic() - begun, lambda good: check_answer(case, form, good, "low") and None)
                if answer is None or answer.says_close():
                    return


class Prober(Client):
    """Live and ready, on the second listener."""

    def turn(self, begun):
        second = type("Second", (), {"host": self.where.host, "port": self.where.admin_port})
        for path in ("/v2/health/live", "/v2/health/ready"):
            begun = time.monotonic()
            with Connection(second, PATIENCE) as connection:
                answer = connection.ask(request("GET", path))
            self.tally.add(path + (" %d" % answer.status if answer else " no answer"), time.monotonic() - begun)
            if answer is None or answer.status != 200:
                self.tally.wrong("%s: %r" % (path, answer))
        time.sleep(1)


# --- the run ---


def run(daemon, arguments, generator):
    heavy = [Product(generator, "FP64", 3600, 3800, 3600), Product(generator, "FP32", 3600, 3800, 3600)]
    middling = [Product(generator, "FP64", 700, 900, 800), Product(generator, "FP32", 1500, 700, 1300)]
    tallies = {name: Tally() for name in ("heavy", "middling", "small", "health")}
    until = time.monotonic() + arguments.seconds
    common = lambda name: (daemon, tallies[name], random.Random(generator.getrandbits(32)), until)
    clients = [Multiplier(heavy, *common("heavy")) for _ in range(arguments.heavy)]
    clients += [Multiplier(middling, *common("middling")) for _ in range(arguments.middling)]
    clients += [Mixer(*common("small")) for _ in range(arguments.small)]
    clients.append(Prober(*common("health")))
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    return tallies


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernserve")
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--cores", type=float, default=0.2)
    parser.add_argument("--heavy", type=int, default=3)
    parser.add_argument("--middling", type=int, default=2)
    parser.add_argument("--small", type=int, default=4)
    parser.add_argument("options", nargs="*", help="of the daemon, behind --")
    arguments = parser.parse_args()
    seed = int(os.environ.get("KS_SEED") or random.SystemRandom().getrandbits(32))
    print("KS_SEED=%d" % seed)
    share = Share(arguments.cores)
    faults = []
    try:
        with Daemon(arguments.kernserve, "--backend", "cpu", *arguments.options, under=share.under(), wait=300) as daemon:
            begun = time.monotonic()
            tallies = run(daemon, arguments, random.Random(seed))
            took = time.monotonic() - begun
            for name, tally in tallies.items():
                print("%-8s %s" % (name, tally))
                faults += ["%s: %s" % (name, fault) for fault in tally.faults]
                if not tally.counts:
                    faults.append("%s: no answer at all" % name)
            if daemon.process.poll() is not None:
                faults.append("the daemon ended with %d" % daemon.process.returncode)
            else:
                lost = metric(daemon.metrics(), "kernserve_device_faults_total")
                code = daemon.stop(120)
                print("%.0f s with %.2f of a processor, load average %.1f; %d device faults; exit code %d" % (
                    took, arguments.cores, os.getloadavg()[0], lost, code))
                if lost != 0 or code != 0:
                    faults.append("device faults %d, exit code %d" % (lost, code))
            if faults:
                print(daemon.said()[-3000:])
    finally:
        share.close()
    for fault in faults[:20]:
        print("WRONG %s" % fault[:400])
    print("%d wrong" % len(faults) if faults else "as promised")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
