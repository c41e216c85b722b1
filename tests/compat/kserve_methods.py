#!/usr/bin/env python3
"""KServe's REST client against the daemon: live, ready, model ready, infer as JSON and as bytes, errors: kserve_methods.py KERNSERVE"""

import asyncio
import os
import sys

import numpy
from httpx import HTTPStatusError
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from daemon import Daemon

wrong = 0


def want(name, good, got=None):
    global wrong
    wrong += not good
    print("%s %s%s" % ("ok   " if good else "WRONG", name, "" if good else ": %r" % (got,)))


async def ask(url):
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    want("is_server_live", await client.is_server_live(url) is True)
    want("is_server_ready", await client.is_server_ready(url) is True)
    want("is_model_ready", await client.is_model_ready(url, "softmax") is True)
    want("is_model_ready, unknown", await client.is_model_ready(url, "nope") is False)
    x = numpy.random.default_rng(3).normal(size=(3, 7)).astype(numpy.float32)
    for binary_in in (False, True):
        for outputs in (None, [RequestedOutput("OUTPUT0", {"binary_data": True})]):
            tensor = InferInput("INPUT0", list(x.shape), "FP32")
            tensor.set_data_from_numpy(x, binary_data=binary_in)
            request = InferRequest("reduce", [tensor], request_outputs=outputs, parameters={"op": "sum", "axis": 0})
            answer = await client.infer(url, request, model_name="reduce")
            got = answer.outputs[0].as_numpy()
            want("infer, %s in, %s out" % ("bytes" if binary_in else "JSON", "bytes" if outputs else "JSON"), numpy.allclose(got, x.sum(axis=0), atol=1e-5), got)
            want("infer: id and model", answer.id and answer.model_name == "reduce")
    empty = InferInput("INPUT0", [0, 4], "FP32")
    empty.set_data_from_numpy(numpy.zeros((0, 4), numpy.float32), binary_data=True)
    answer = await client.infer(url, InferRequest("softmax", [empty]), model_name="softmax")
    want("infer, an empty tensor", list(answer.outputs[0].shape) == [0, 4])
    try:
        await client.infer(url, InferRequest("nope", [empty]), model_name="nope")
        want("infer, unknown model", False)
    except HTTPStatusError as reason:
        want("infer, unknown model", "Request for unknown model: 'nope' is not found" in str(reason), str(reason))
    await client.close()


with Daemon(sys.argv[1], "--pinned-bytes", "16M") as daemon:
    asyncio.run(ask("http://127.0.0.1:%d" % daemon.port))
    wrong += daemon.stop() != 0
sys.exit(1 if wrong else 0)
