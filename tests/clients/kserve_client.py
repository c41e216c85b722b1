#!/usr/bin/env python3
"""softmax with KServe's SDK: kserve_client.py [URL]"""
import asyncio
import sys

import numpy
from kserve import InferInput, InferRequest, InferenceRESTClient, RESTConfig


async def main(url):
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    x = numpy.float32([[1, 2, 3, 4]])
    tensor = InferInput("INPUT0", list(x.shape), "FP32")
    tensor.set_data_from_numpy(x, binary_data=True)
    headers = {}
    assert await client.is_server_ready(url) and await client.is_model_ready(url, "softmax")
    answer = await client.infer(url, InferRequest("softmax", [tensor]), model_name="softmax", response_headers=headers)
    print(answer.outputs[0].as_numpy().tolist())
    print({name.lower(): value for name, value in headers.items()}["server-timing"])
    await client.close()


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"))
