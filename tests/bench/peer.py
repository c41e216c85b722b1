#!/usr/bin/env python3
"""What one would write instead of kernserve: aiohttp around PyTorch, in one process; for bench_http.sh.

peer.py PORT [torch|numpy]     torch: on the GPU where there is one; numpy: on the CPU; neither: torch where it is found

It takes kernserve's plain raw requests and its JSON, of FP32, for softmax over the last axis, sums over the last axis
and matmul, and checks nothing. On uvloop where that is installed. Its first line says what it is made of."""
import json
import math
import sys

from aiohttp import web


class Numpy:
    def __init__(self):
        import numpy
        self.name, self.np = "NumPy " + numpy.__version__, numpy

    def softmax(self, x):
        e = self.np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def reduce(self, x):
        return x.sum(-1)

    def matmul(self, a, b):
        return a @ b

    def of_bytes(self, data, shape):
        return self.np.frombuffer(data, self.np.float32).reshape(shape)

    def of_list(self, data, shape):
        return self.np.array(data, self.np.float32).reshape(shape)

    def result(self, y):
        return y


class Torch:
    def __init__(self):
        import torch
        self.torch, self.device = torch, "cuda" if torch.cuda.is_available() else "cpu"
        where = torch.cuda.get_device_name() if self.device == "cuda" else "the CPU"
        self.name = "PyTorch %s on %s" % (torch.__version__, where)

    def softmax(self, x):
        return self.torch.softmax(x, -1)

    def reduce(self, x):
        return x.sum(-1)

    def matmul(self, a, b):
        return a @ b

    def of_bytes(self, data, shape):
        # a bytearray, because torch wants memory that may be written
        return self.torch.frombuffer(bytearray(data), dtype=self.torch.float32).view(shape).to(self.device)

    def of_list(self, data, shape):
        return self.torch.tensor(data, dtype=self.torch.float32, device=self.device).view(shape)

    def result(self, y):
        return y.cpu().numpy()


class Peer:
    def __init__(self, library):
        self.library = library

    def run(self, model, tensors):
        return self.library.result(getattr(self.library, model)(*tensors))

    async def infer(self, request):
        body = await request.read()
        if "shape" in request.query:
            return web.Response(body=self.raw(request, body), content_type="application/octet-stream")
        return web.json_response(self.words(request, json.loads(body)))

    def raw(self, request, body):
        tensors, at = [], 0
        for shape in request.query.getall("shape"):
            dims = [int(d) for d in shape.split(",")]
            end = at + 4 * math.prod(dims)
            tensors.append(self.library.of_bytes(body[at:end], dims))
            at = end
        return self.run(request.match_info["model"], tensors).tobytes()

    def words(self, request, asked):
        model = request.match_info["model"]
        y = self.run(model, [self.library.of_list(t["data"], t["shape"]) for t in asked["inputs"]])
        output = {"name": "OUTPUT0", "datatype": "FP32", "shape": list(y.shape), "data": y.ravel().tolist()}
        return {"model_name": model, "outputs": [output]}


def library_of(word):
    if word == "numpy":
        return Numpy()
    try:
        return Torch()
    except ImportError:
        if word == "torch":
            raise
        return Numpy()


def main():
    library = library_of(sys.argv[2] if len(sys.argv) > 2 else "")
    loop = "asyncio"
    try:
        import uvloop
        uvloop.install()
        loop = "uvloop"
    except ImportError:
        pass
    import aiohttp
    print("aiohttp %s on %s, %s" % (aiohttp.__version__, loop, library.name), flush=True)
    application = web.Application(client_max_size=1 << 30)
    application.router.add_post("/v2/models/{model:softmax|reduce|matmul}/infer", Peer(library).infer)
    web.run_app(application, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)


main()
