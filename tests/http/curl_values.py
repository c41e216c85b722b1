#!/usr/bin/env python3
"""What a person types: curl with JSON, JSON + binary and plain raw bodies gets the float64 reference's values from each operation.

curl_values.py KERNSERVE | --url http://HOST:PORT      KS_SEED=N repeats a run. One line for each operation and form.
"""

import argparse
import os
import random as randomness
import subprocess
import sys
import tempfile
import time

from daemon import Answer, open_target
from forms import FORMS, MAKERS, Wrong, check_answer

CASES = 5  # for each operation and form


def curl(url, headers, body):
    """The answer to a POST by the curl program."""
    with tempfile.NamedTemporaryFile() as sent, tempfile.NamedTemporaryFile() as head, tempfile.NamedTemporaryFile() as got:
        sent.write(body)
        sent.flush()
        command = ["curl", "-s", "-m", "30", "--data-binary", "@" + sent.name, "-D", head.name, "-o", got.name]
        for name, value in headers:
            command += ["-H", "%s: %s" % (name, value)]
        subprocess.run([*command, url], check=True)
        # the last head: above 1 MiB curl asks first, and a 100 comes before the answer
        lines = head.read().decode("latin-1").rstrip("\r\n").split("\r\n\r\n")[-1].split("\r\n")
        fields = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:] if line)]
        return Answer(int(lines[0].split()[1]), fields, got.read(), False)


def ask(base, random, op, form):
    """None, or what was wrong."""
    datatype = "FP32" if form == "json" else random.choice(("FP32", "FP16", "BF16", "FP64"))
    case = MAKERS[op](random, 40, datatype)
    target, headers, body = FORMS[form](case, "typed")
    try:
        answer = curl(base + target, headers, body)
        check_answer(case, form, answer, "typed")
        if "total;dur=" not in answer.header("server-timing", ""):
            return "no Server-Timing"
    except (Wrong, KeyError, ValueError, subprocess.CalledProcessError) as fault:
        return "%s: %s" % (case, fault)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernserve", nargs="?")
    parser.add_argument("--url")
    arguments = parser.parse_args()
    seed = int(os.environ.get("KS_SEED") or time.time_ns() % 1_000_000_007)
    print("KS_SEED=%d" % seed)
    random, wrong = randomness.Random(seed), 0
    target = open_target(arguments.url, arguments.kernserve)
    base = "http://%s:%d" % (target.host, target.port)
    for op in MAKERS:
        for form in ("json", "binary", "plain_raw"):
            faults = [fault for fault in (ask(base, random, op, form) for _ in range(CASES)) if fault]
            print("%s %-8s %-9s %d requests" % ("WRONG" if faults else "ok   ", op, form, CASES), *faults)
            wrong += len(faults)
    if target.stop():
        wrong += 1
        print("WRONG the daemon's exit code")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
