#!/usr/bin/env python3
"""Keeps 64 connections busy at once: each must get back the softmax of its own numbers, whatever its neighbours do.

Some send byte by byte, some pipeline two requests, some leave in the middle. many.py URL
"""

import os
import random as randomness
import sys
import threading
import time

from daemon import Remote, request, settle
from forms import Case, Wrong, check_answer, form_binary, form_json, form_plain_raw
from tensors import random_tensor

FORMS = {"json": form_json, "binary": form_binary, "plain_raw": form_plain_raw}


def dribble(connection, data, random):
    while data:
        n = random.choice((1, 3, 50, 1000))
        connection.send(data[:n])
        data = data[n:]
        time.sleep(0.0005)


def client(target, seed, rounds, faults):
    random = randomness.Random(seed)
    try:
        connection = target.connect(30)
        for turn in range(rounds):
            case = Case("softmax", [random_tensor(random, "FP32", [random.randint(1, 8), random.randint(1, 60)])])
            form = random.choice(list(FORMS))
            data = request("POST", *FORMS[form](case, "r"))
            habit = random.choice(("whole", "whole", "dribble", "pipeline", "leave"))
            if habit == "leave":
                connection.send(data[:random.randrange(1, len(data))])
                connection.close()
                connection = target.connect(30)
                continue
            if habit == "dribble":
                dribble(connection, data, random)
            else:
                connection.send(data * (2 if habit == "pipeline" else 1))
            for _ in range(2 if habit == "pipeline" else 1):
                check_answer(case, form, connection.answer(), "r")
        connection.close()
    except (Wrong, OSError, KeyError, ValueError) as fault:
        faults.append("client %d: %s: %s" % (seed, type(fault).__name__, fault))


def main():
    target = Remote(sys.argv[1])
    seed = int(os.environ.get("KS_SEED") or time.time_ns() % 1_000_000_007)
    print("KS_SEED=%d" % seed)
    faults = []
    threads = [threading.Thread(target=client, args=(target, seed + i, 12, faults)) for i in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    used = settle(target)
    if used != 0:
        faults.append("%s bytes of the pinned pool are still in use" % used)
    for fault in faults[:20]:
        print("WRONG " + fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
