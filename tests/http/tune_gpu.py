#!/usr/bin/env python3
"""On a GPU: shapes tuned before ready, the table of --tune, a restart that takes the first request by the tuned kernel, one bit pattern
over a thousand requests, and the same without cuBLASLt.

tune_gpu.py KERNSERVE CACHE
"""

import json
import os
import random
import subprocess
import sys

from daemon import Daemon, check, request, wrongs

SHAPES = [("16,1024:1024,1024:FP32", "shape=16,1024&shape=1024,1024", 4 * (16 + 1024) * 1024),
          ("512,512:512,512:BF16", "shape=512,512&shape=512,512&datatype=BF16", 2 * 2 * 512 * 512),
          ("64,257:257,333:FP16", "shape=64,257&shape=257,333&datatype=FP16", 2 * 257 * (64 + 333)),
          ("8,32,32:8,32,32:FP32", "shape=8,32,32&shape=8,32,32", 4 * 2 * 8 * 32 * 32)]


def plan(daemon, query):
    return json.loads(daemon.get("/v2/models/matmul/plan?" + query).body)


def body(size):
    """No infinities, whatever the datatype: every byte's upper bits are those of numbers below 2."""
    generator = random.Random(size)
    return bytes(generator.randrange(256) & (0xBF if i % 2 else 0xFF) for i in range(size))


def ask(connection, query, sent):
    answer = connection.ask(request("POST", "/v2/models/matmul/infer?" + query, (), sent))
    check(answer.status == 200, query, answer)
    return answer


def main():
    path, cache = sys.argv[1:]
    tune = [path, "--backend", "cuda", "--tune", *(s[0] for s in SHAPES), "--tune-cache", cache]
    tune += ["--mapped-max", "4096"]  # a border that is not the one of the daemons that take the choices over
    done = subprocess.run(tune, capture_output=True, text=True, timeout=300, check=False)
    print(done.stdout + done.stderr)
    check(done.returncode == 0 and len(done.stdout.splitlines()) == 2 + len(SHAPES), done.returncode)
    bits = {}
    for options in ((), ("--cublaslt", "off")):
        with Daemon(path, "--backend", "cuda", "--threads", "2", "--tune-cache", cache, *options) as daemon, \
                daemon.connect(60) as connection:
            for _, query, size in SHAPES:
                sent = body(size)
                answers = {ask(connection, query, sent).body for _ in range(1000)}
                check(len(answers) == 1, query, len(answers), "bit patterns")
                bits.setdefault(query, []).append(answers)
                now = plan(daemon, query)
                print(query, options, now["kernel"], now["path"], now["tuned"], now["measured"])
                library = now["kernel"].startswith("cublasLt")
                check(not (options and library), query, now)
                check((now["tuned"] or {}).get("candidates", 0) > 1 or options, query, now)
            check(daemon.stop() == 0, "the daemon's end")
    cut = os.path.join(os.path.dirname(cache), "cut")
    with open(cache, "rb") as whole, open(cut, "wb") as part:
        part.write(whole.read()[:-10])
    with Daemon(path, "--backend", "cuda", "--threads", "1", "--tune-cache", cut) as daemon, daemon.connect(60) as connection:
        ask(connection, SHAPES[0][1], body(SHAPES[0][2]))
        check(daemon.says("the tune cache is ignored"), daemon.said())
        check(plan(daemon, SHAPES[0][1])["tuned"] is None, plan(daemon, SHAPES[0][1]))
        check(daemon.stop() == 0, "the daemon's end")
    print("%d wrong" % wrongs())
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
