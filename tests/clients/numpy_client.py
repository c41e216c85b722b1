#!/usr/bin/env python3
"""matmul with numpy: two operands in one body, an .npy file back: numpy_client.py [URL]"""
import io
import sys
import urllib.request

import numpy

a, b = numpy.float32([[1, 2], [3, 4]]), numpy.float32([[5, 6], [7, 8]])
url = (sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000") + "/v2/models/matmul/infer?datatype=FP32"
url += "".join("&shape=" + ",".join(map(str, m.shape)) for m in (a, b))
request = urllib.request.Request(url, data=a.tobytes() + b.tobytes(), headers={"Accept": "application/x-npy"})
with urllib.request.urlopen(request) as answer:
    c = numpy.load(io.BytesIO(answer.read()), allow_pickle=False)
    print(c.tolist())
    print(answer.headers["Server-Timing"])
assert numpy.array_equal(c, a @ b)
