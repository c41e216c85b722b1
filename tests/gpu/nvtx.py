#!/usr/bin/env python3
"""NVTX ranges of the CUDA backend, counted by a library in a profiler's place (nvtx_count.c).

nvtx.py                 the door alone: builds nvtx_try.cc, needs CUDA's headers, no GPU
nvtx.py KERNSERVE       a daemon on a GPU: ranges are as many as its metrics have launches, captures and trials, and none is nested

Exit code 77 where CUDA's headers, or a GPU, are missing.
"""

import glob
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "http"))
from daemon import Daemon, check, metric, request, wrongs  # noqa: E402


def headers():
    for folder in [os.environ.get("CUDA_HOME", "") + "/include", *sorted(glob.glob("/usr/local/cuda*/include"))]:
        if os.path.exists(folder + "/nvtx3/nvToolsExtCudaRt.h"):
            return folder
    print("CUDA's headers (nvtx3) are not here")
    sys.exit(77)


def build(folder):
    """The library; the environment that loads it; the file of its counts."""
    library, counts = folder + "/nvtx_count.so", folder + "/counts"
    subprocess.run(["cc", "-std=gnu17", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-isystem", headers(), HERE + "/nvtx_count.c", "-o", library],
                   check=True)
    return {"NVTX_INJECTION64_PATH": library, "KS_NVTX_COUNTS": counts}, counts


def read(counts):
    with open(counts) as file:
        return {name: int(value) for name, value in (line.split() for line in file)}


def door(folder):
    environment, counts = build(folder)
    subprocess.run(["c++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", "-isystem", headers(), "-I", ROOT + "/kernels", HERE + "/nvtx_try.cc",
                    "-o", folder + "/try", "-lpthread", "-ldl"], check=True)
    subprocess.run([folder + "/try"], check=True, env={**os.environ, **environment})
    got = read(counts)
    check(got == {"launch": 100, "collect": 100, "capture": 2, "trial": 0, "popped": 202, "nested": 0, "unregistered": 0, "streams": 1, "domains": 1}, got)
    subprocess.run([folder + "/try"], check=True)  # without a library


def daemon(folder, path):
    environment, counts = build(folder)
    with Daemon(path, "--threads", "2", "--lanes", "2", "--warm", "matmul:512,512:512,512:FP16", environment=environment) as running:
        if "backend=cuda" not in running.said():
            print("no GPU")
            sys.exit(77)
        for query, size, times in (("softmax/infer?shape=4,1024", 16384, 50), ("softmax/infer?shape=512,1024", 2 << 20, 20)):
            with running.connect(60) as connection:
                for _ in range(times):
                    check(connection.ask(request("POST", "/v2/models/" + query, (), bytes(size))).status == 200, query)
        text = running.metrics()
        check(running.stop() == 0, "the daemon's end")
    got = read(counts)
    launches, captures = metric(text, "kernserve_launches_total"), metric(text, "kernserve_graph_capture_duration_seconds_count")
    # What the start measures and checks goes through the same door.
    check(got["launch"] >= launches > 0 and got["capture"] >= captures > 0 and got["trial"] > 0, got, launches, captures)
    check(got["collect"] <= got["launch"] + got["trial"], got)
    check(got["popped"] == sum(got[name] for name in ("launch", "collect", "capture", "trial")), got)
    check(got["nested"] == got["unregistered"] == 0 and got["domains"] == 1 and got["streams"] >= 4, got)
    print(got)


def main():
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 1:
            daemon(folder, sys.argv[1])
        else:
            door(folder)
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
