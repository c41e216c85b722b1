#!/usr/bin/env python3
"""NumPy and safetensors write the bodies and read the answers: files_real.py KERNSERVE"""

import io
import os
import sys

import numpy
import safetensors.numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from daemon import Daemon, request

NPY, SAFE = "application/x-npy", "application/x-safetensors"


def npy_bytes(x, version):
    out = io.BytesIO()
    numpy.lib.format.write_array(out, x, version=version, allow_pickle=False)
    return out.getvalue()


def main():
    wrong = 0
    random = numpy.random.default_rng(11)
    with Daemon(sys.argv[1], "--pinned-bytes", "64M") as daemon, daemon.connect() as connection:

        def check(name, target, kind, body, expected, tolerance, read):
            nonlocal wrong
            answer = connection.ask(request("POST", target, [("Content-Type", kind)], body))
            good = answer.status == 200 and answer.header("content-type") == kind
            got = read(answer.body) if good else answer
            good = good and got.shape == expected.shape and got.dtype == expected.dtype and numpy.allclose(got, expected, rtol=tolerance, atol=tolerance)
            wrong += not good
            print("%s %s%s" % ("ok   " if good else "WRONG", name, "" if good else ": %r" % (got,)))

        def load(body):
            return numpy.load(io.BytesIO(body), allow_pickle=False)

        for version in ((1, 0), (2, 0), (3, 0)):
            for order in "CF":
                for shape in ((7,), (3, 5), (4, 1, 6), (2, 3, 4, 5), (300, 401)):
                    x = numpy.asarray(random.normal(size=shape).astype(numpy.float32), order=order)
                    check("npy %d, order %s, %s" % (version[0], order, shape), "/v2/models/reduce/infer?op=max&axis=0", NPY, npy_bytes(x, version), x.max(axis=0), 0, load)
        for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"):
            x = numpy.asarray(random.integers(0, 100, size=(6, 7)).astype(dtype), order="F")
            check("npy %s" % dtype, "/v2/models/reduce/infer?op=max&axis=1", NPY, npy_bytes(x, (1, 0)), x.max(axis=1), 0, load)
            check("safetensors %s" % dtype, "/v2/models/reduce/infer?op=max&axis=1", SAFE, safetensors.numpy.save({"x": numpy.ascontiguousarray(x)}), x.max(axis=1), 0,
                  lambda body: safetensors.numpy.load(body)["OUTPUT0"])
        x = numpy.float32(random.normal(size=(9, 4)))
        check("a scalar answer", "/v2/models/reduce/infer?axis=all&op=max", NPY, npy_bytes(x, (1, 0)), x.max(), 0, load)
        a, b = numpy.float64(random.normal(size=(13, 17))), numpy.float64(random.normal(size=(17, 5)))
        check("matmul from one safetensors body", "/v2/models/matmul/infer", SAFE, safetensors.numpy.save({"INPUT1": b, "INPUT0": a}, {"format": "np"}), a @ b, 1e-12,
              lambda body: safetensors.numpy.load(body)["OUTPUT0"])
        bias = numpy.float64(random.normal(size=5))
        check("a bias as well", "/v2/models/matmul/infer?activation=relu", SAFE, safetensors.numpy.save({"INPUT2": bias, "INPUT1": b, "INPUT0": a}),
              numpy.maximum(a @ b + bias, 0), 1e-12, lambda body: safetensors.numpy.load(body)["OUTPUT0"])
        wrong += daemon.stop() != 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
