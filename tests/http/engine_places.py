#!/usr/bin/env python3
"""Indices out of bounds at the first, a middle and the last place, wherever the indices lie: in a slot, few and many, in a client's
region, in a resident tensor, in a request above the slots. Each is 400 `range` with place, value and V, and no fault of the device.

engine_places.py KERNSERVE [OPTION...]   options go to the daemon; beside it kernserve_streaming, where it is built
"""

import json
import os
import struct
import sys

from daemon import Daemon, check, daemon_path, metric, request, seed, wrongs
from shared_memory import SYSTEM, Object, window

ROWS = 1000
FEW, MANY = 20, 6000  # below and above what the host looks at itself
STREAMING = os.path.join(os.path.dirname(daemon_path()), "tests", "kernserve_streaming")


def spoilt(indices, place, value):
    return indices[:place] + [value] + indices[place + 1:]


def places(count):
    return (0, count // 2, count - 1)


def raw(table, columns, indices):
    query = "shape=%d,%d&shape=%d&datatype=FP32&datatype=INT64" % (ROWS, columns, len(indices))
    return request("POST", "/v2/models/gather/infer?" + query, (), table + struct.pack("<%dq" % len(indices), *indices))


def rows_of(table, columns, indices):
    size = 4 * columns
    return b"".join(table[i % ROWS * size:][:size] for i in indices)


def each_place(name, generator, count, send, good):
    """send(indices) gives the answer; the one to good indices comes between the refusals, on the same connection."""
    indices = [generator.randrange(-ROWS, ROWS) for _ in range(count)]
    for place in places(count):
        for value in (ROWS, -ROWS - 1, 2 ** 62):
            answer = send(spoilt(spoilt(indices, count - 1, ROWS), place, value))
            check(answer is not None and answer.status == 400 and answer.header("kernserve-error") == "range", name, place, value, answer)
            text = "INPUT1 (indices) has %d at place %d: it is outside [-%d, %d) of INPUT0's axis 0" % (value, place, ROWS, ROWS)
            check(answer is not None and text in json.loads(answer.body)["error"], name, text, answer)
        answer = send(indices)
        check(answer is not None and answer.status == 200 and good(answer, indices), name, "good indices", answer)


def in_slots(daemon, generator, columns, name):
    table = generator.randbytes(4 * ROWS * columns)
    with daemon.connect() as connection:
        for count in (FEW, MANY):
            each_place("%s, %d indices" % (name, count), generator, count, lambda indices: connection.ask(raw(table, columns, indices)),
                       lambda answer, indices: answer.body == rows_of(table, columns, indices))


def in_regions(daemon, generator, columns=4):
    table = generator.randbytes(4 * ROWS * columns)
    with Object(8 * MANY) as places_of, daemon.connect() as connection:
        check(connection.ask(request("POST", SYSTEM + "/region/places/register", (), json.dumps({"key": places_of.key, "byte_size": 8 * MANY}).encode())).status == 200, "register")
        for count in (FEW, MANY):
            def send(indices):
                places_of.memory[:8 * len(indices)] = struct.pack("<%dq" % len(indices), *indices)
                inputs = [{"name": "INPUT0", "datatype": "FP32", "shape": [ROWS, columns], "parameters": {"binary_data_size": len(table)}},
                          {"name": "INPUT1", "datatype": "INT64", "shape": [len(indices)], "parameters": window("places", 8 * len(indices))}]
                head = json.dumps({"inputs": inputs, "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}).encode()
                return connection.ask(request("POST", "/v2/models/gather/infer", [("Inference-Header-Content-Length", len(head))], head + table))

            each_place("region, %d indices" % count, generator, count, send,
                       lambda answer, indices: answer.body.endswith(rows_of(table, columns, indices)))


def in_residents(daemon, generator, columns=4):
    table = generator.randbytes(4 * ROWS * columns)
    with daemon.connect() as connection:
        def send(indices):
            target = "/v2/tensors/places?shape=%d&datatype=INT64" % len(indices)
            put = connection.ask(request("PUT", target, (), struct.pack("<%dq" % len(indices), *indices)))
            check(put.status in (200, 201, 204), "put", put)
            query = "shape=%d,%d&datatype=FP32&INPUT1=@places" % (ROWS, columns)
            return connection.ask(request("POST", "/v2/models/gather/infer?" + query, (), table))

        for count in (FEW, MANY):
            each_place("resident, %d indices" % count, generator, count, send,
                       lambda answer, indices: answer.body == rows_of(table, columns, indices))


def after(daemon):
    """A client's fault is none of the device's."""
    text = daemon.metrics()
    check(metric(text, "kernserve_device_errors_total") == 0, "errors of the device", metric(text, "kernserve_device_errors_total"))
    check(daemon.get("/v2/health/ready").status == 200, "ready")
    check(daemon.stop() == 0, "stop")


def main():
    generator = seed()
    path, options = daemon_path(), sys.argv[2:]
    with Daemon(path, "--pinned-bytes", "64M", "--allow-client-shm", *options) as daemon:
        in_slots(daemon, generator, 4, "slot")
        in_regions(daemon, generator)
        in_residents(daemon, generator)
        after(daemon)
    for program in [path] + [STREAMING] * os.path.exists(STREAMING):
        memory = ("--stream-bytes", "64M") if program == STREAMING else ()
        with Daemon(program, "--pinned-bytes", "64M", "--threads", "1", *memory, *options) as daemon:
            in_slots(daemon, generator, 600, "above the slots")  # a table of 2.4 MB, and the largest slot class is 1 MiB
            after(daemon)
    return wrongs()


if __name__ == "__main__":
    sys.exit(main())
