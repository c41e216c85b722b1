#!/usr/bin/env python3
"""What an idle daemon takes of a GPU's memory, as nvidia-smi sees it (all processes): an empty context, kernels, shards, lanes.

idle_memory.py KERNSERVE [--shards 1,2,4,8] [--limit 1024] [-- options of the daemon]

Each figure is the difference to what was in use before, in MiB; nothing else may begin or end on the GPU meanwhile. `kernels` is a daemon
that loads them at start beside one that loads none before it needs it. At the end the account: a shard's part and a lane's, as far as the rows
give them; behind a product with a workspace, and 12 s later, when memory that is not in use has gone back.
The exit code tells whether the last of --shards is above --limit."""
import argparse
import ctypes
import os
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from daemon import Daemon, check, request, wrongs  # noqa: E402


def used():
    """MiB in use; the least of two looks."""
    looks = []
    for _ in range(2):
        time.sleep(0.1)
        text = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"], stdout=subprocess.PIPE, text=True, check=True).stdout
        looks.append(int(text.split()[0]))
    return min(looks)


def settled(before):
    """Until a process that has ended has given back what it had; 5 s."""
    for _ in range(25):
        if used() <= before + 1:
            return
        time.sleep(0.1)


def context():
    """In a process of its own: a context and nothing else, until its standard input ends."""
    driver = ctypes.CDLL("libcuda.so.1")
    device, handle = ctypes.c_int(), ctypes.c_void_p()
    for code in (driver.cuInit(0), driver.cuDeviceGet(ctypes.byref(device), 0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(handle), device)):
        if code:
            raise SystemExit("CUDA error %d" % code)
    print("there", flush=True)
    sys.stdin.read()


def of_context(before):
    process = subprocess.Popen([sys.executable, __file__, "context"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    found = used() - before
    process.communicate("")
    settled(before)
    return found


def of_daemon(kernserve, before, shards, options, loading="", then=None):
    if loading:
        os.environ["CUDA_MODULE_LOADING"] = loading
    with Daemon(kernserve, "--backend", "cuda", "--threads", str(shards), *options) as daemon:
        os.environ.pop("CUDA_MODULE_LOADING", None)
        found = used() - before
        if then:
            then(daemon)
        check(daemon.stop() == 0, "the daemon's end")
    settled(before)
    return found


def with_workspace(before):
    """A product whose K is shared among CTAs works on partial sums in a workspace."""
    def then(daemon):
        m, k, n = 64, 8192, 64
        body = struct.pack("<f", 1.0) * (m * k + k * n)
        with daemon.connect(60) as connection:
            for _ in range(20):
                answer = connection.ask(request("POST", "/v2/models/matmul/infer?shape=%d,%d&shape=%d,%d&datatype=FP32" % (m, k, k, n), (), body))
                check(answer.status == 200 and answer.body == struct.pack("<f", float(k)) * (m * n), "the product", answer.status)
        print("%-46s %6d MiB" % ("behind products of %dx%dx%d" % (m, k, n), used() - before), flush=True)
        time.sleep(12)
        print("%-46s %6d MiB" % ("and 12 s later", used() - before), flush=True)
    return then


def main():
    if sys.argv[1:] == ["context"]:
        return context()
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernserve")
    parser.add_argument("--shards", default="1,2,4,8")
    parser.add_argument("--limit", type=int, default=1024, help="MiB that the last of --shards may take (1024)")
    given, options = parser.parse_args(words[:at]), words[at + 1:]
    before = used()
    print("%-46s %6d MiB" % ("in use before, by others", before), flush=True)
    empty = of_context(before)
    print("%-46s %6d MiB" % ("an empty context", empty), flush=True)
    late = of_daemon(given.kernserve, before, 1, options, loading="LAZY")
    print("%-46s %6d MiB" % ("a daemon with 1 shard, kernels not loaded", late), flush=True)
    rows, counts = [], [int(n) for n in given.shards.split(",")]
    for n in counts:
        rows.append(of_daemon(given.kernserve, before, n, options, then=with_workspace(before) if n == counts[-1] else None))
        print("%-46s %6d MiB" % ("a daemon with %d shards, at ready" % n, rows[-1]), flush=True)
    print("kernels: %d MiB" % (rows[0] - late))
    if len(counts) > 1:
        print("a shard more: %.1f MiB (from %d to %d)" % ((rows[-1] - rows[0]) / (counts[-1] - counts[0]), counts[0], counts[-1]))
    print("wanted <= %d MiB with %d shards: %s" % (given.limit, counts[-1], "met" if rows[-1] <= given.limit else "SHORT"))
    return 1 if rows[-1] > given.limit or wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
