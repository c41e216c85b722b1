#!/usr/bin/env python3
"""Four reductions at once with tritonclient's asyncio client: tritonclient_aio.py [URL]"""
import asyncio
import sys

import numpy
import tritonclient.http.aio as httpclient


async def main(url):
    headers = []

    async def keep(session, context, parameters):
        headers.append(parameters.response.headers)

    async with httpclient.InferenceServerClient(url.split("//")[1]) as client:
        client._stub.trace_configs.append(trace(keep))
        x = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
        tensor = httpclient.InferInput("INPUT0", list(x.shape), "FP32")
        tensor.set_data_from_numpy(x)
        ops = ("sum", "mean", "max", "argmax")
        results = await asyncio.gather(*(client.infer("reduce", [tensor], parameters={"op": op, "axis": 1}) for op in ops))
        print({op: result.as_numpy("OUTPUT0").tolist() for op, result in zip(ops, results)})
        print(headers[-1].get("Server-Timing"))


def trace(keep):
    import aiohttp
    config = aiohttp.TraceConfig()
    config.on_request_end.append(keep)
    config.freeze()
    return config


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"))
