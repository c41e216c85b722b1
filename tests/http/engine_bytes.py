#!/usr/bin/env python3
"""Random sizes from 4 B to 300 KB, in random pieces, with random aborts between them: every answer is compared byte by byte."""
import random
import sys
import threading
import time

from daemon import DEADLINE_S, cpu_daemon, random_values, read_answer, row_request, seed, settle

SECONDS, THREADS, LEAST = 8, 4, 100


def send_in_pieces(s, data, generator):
    at = 0
    while at < len(data):
        n = generator.choice([1, 7, 100, 1460, 8192, 65536, len(data)])
        s.sendall(data[at:at + n])
        at += n
        if generator.random() < 0.02:
            time.sleep(0.002)


def worker(daemon, number, stop, faults, counts):
    generator = random.Random(number)
    s = daemon.dial()
    while not faults and (now := time.monotonic()) < stop + DEADLINE_S and (now < stop or counts["compared"] < LEAST):
        count = int(2 ** generator.uniform(0, 16.2))
        head, body = row_request(random_values(generator, count))
        if generator.random() < 0.1:
            send_in_pieces(s, (head + body)[:generator.randrange(len(head) + len(body))], generator)
            s.close()
            counts["aborted"] += 1
            s = daemon.dial()
            continue
        send_in_pieces(s, head + body, generator)
        answer = read_answer(s)
        if answer is None or answer[0] != 200:
            faults.append(f"{count} numbers: {answer and (answer[0], answer[2][:200])}")
        elif answer[2] != body:
            faults.append(f"{count} numbers: the answer differs from what was sent")
        counts["compared"] += 1
    s.close()


def main():
    generator = seed()
    faults, counts = [], {"compared": 0, "aborted": 0}
    with cpu_daemon("--threads", "2") as daemon:
        stop = time.monotonic() + SECONDS
        threads = [threading.Thread(target=worker, args=(daemon, generator.getrandbits(32), stop, faults, counts))
                   for _ in range(THREADS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        used = settle(daemon)
        code = daemon.stop()
    print(counts, "pinned bytes still used:", used)
    if faults or used or code != 0 or counts["compared"] < LEAST:
        sys.exit("\n".join(faults[:5]) or "slots are still in use, or too little was done")


main()
