#!/usr/bin/env python3
"""softmax with Python's standard library, bytes in and out: python_stdlib.py [URL]"""
import array
import sys
import urllib.request

url = (sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000") + "/v2/models/softmax/infer?shape=1,4&datatype=FP32"
x = array.array("f", [1, 2, 3, 4])
with urllib.request.urlopen(urllib.request.Request(url, data=x.tobytes())) as answer:
    y = array.array("f", answer.read())
    print(list(y))
    print(answer.headers["Server-Timing"])
