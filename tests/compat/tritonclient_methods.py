#!/usr/bin/env python3
"""Every method of tritonclient's HTTP client, threads and asyncio, against the daemon: tritonclient_methods.py KERNSERVE"""

import asyncio
import http.client
import inspect
import json
import os
import sys

import ml_dtypes
import numpy
import tritonclient.http as sync
import tritonclient.http.aio as aio
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from daemon import Daemon

X = numpy.random.default_rng(7).normal(size=(5, 9)).astype(numpy.float32)


def softmax(x, axis=1):
    e = numpy.exp(x.astype(numpy.float64) - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


class Caller:
    """One client of either kind under one face: call() waits where there is something to wait for; counts and compares."""

    def __init__(self, kind, module, url, loop=None):
        self.kind, self.loop, self.wrong, self.called = kind, loop, 0, set()
        if loop:
            self.client = loop.run_until_complete(self._open(module, url))
        else:
            self.client = module.InferenceServerClient(url, concurrency=4)

    async def _open(self, module, url):
        return module.InferenceServerClient(url)

    def call(self, name, *arguments, **named):
        self.called.add(name)
        result = getattr(self.client, name)(*arguments, **named)
        return self.loop.run_until_complete(result) if inspect.isawaitable(result) else result

    def want(self, name, good, got=None):
        self.wrong += not good
        print("%s %s: %s%s" % ("ok   " if good else "WRONG", self.kind, name, "" if good else ": %r" % (got,)))

    def refused(self, name, text, method, *arguments, **named):
        try:
            self.want(name, False, self.call(method, *arguments, **named))
        except InferenceServerException as reason:
            self.want(name, text in reason.message(), reason.message())


def tensor(name, x, datatype="FP32", **named):
    made = sync.InferInput(name, list(x.shape), datatype)
    made.set_data_from_numpy(x, **named)
    return made


def documents(c):
    c.want("is_server_live", c.call("is_server_live") is True)
    c.want("is_server_ready", c.call("is_server_ready") is True)
    c.want("is_model_ready", c.call("is_model_ready", "softmax") is True and c.call("is_model_ready", "softmax", "1") is True)
    c.want("is_model_ready, unknown", c.call("is_model_ready", "nope") is False)
    c.want("get_server_metadata", c.call("get_server_metadata")["name"] == "kernserve")
    c.want("get_model_metadata", c.call("get_model_metadata", "matmul", "1")["inputs"][1]["name"] == "INPUT1")
    c.refused("get_model_metadata, unknown", "Request for unknown model", "get_model_metadata", "nope")
    c.want("get_model_config", c.call("get_model_config", "softmax")["max_batch_size"] == 0)
    index = c.call("get_model_repository_index")
    c.want("get_model_repository_index", {"name": "softmax", "version": "1", "state": "READY", "reason": ""} in index, index)
    c.want("get_inference_statistics", len(c.call("get_inference_statistics", "softmax")["model_stats"]) == 1)
    c.want("get_inference_statistics of all", len(c.call("get_inference_statistics")["model_stats"]) > 10)
    c.refused("get_trace_settings", "does not support tracing", "get_trace_settings")
    c.refused("update_trace_settings", "does not support tracing", "update_trace_settings", settings={"trace_rate": "1"})
    c.want("update_log_settings", c.call("update_log_settings", {"log_verbose_level": 1})["log_verbose_level"] == 1)
    c.want("get_log_settings", c.call("get_log_settings")["log_verbose_level"] == 1)
    c.call("update_log_settings", {"log_verbose_level": 0})


def inference(c):
    want = softmax(X)

    def close(name, result, expected=want):
        got = result.as_numpy("OUTPUT0")
        c.want(name, got is not None and got.shape == expected.shape and numpy.allclose(got, expected, atol=1e-6), got)

    close("infer, bytes in and out", c.call("infer", "softmax", [tensor("INPUT0", X)]))
    close("infer, JSON in", c.call("infer", "softmax", [tensor("INPUT0", X, binary_data=False)]))
    close("infer, JSON out", c.call("infer", "softmax", [tensor("INPUT0", X)], outputs=[sync.InferRequestedOutput("OUTPUT0", binary_data=False)]))
    close("infer, requested as bytes", c.call("infer", "softmax", [tensor("INPUT0", X, binary_data=False)], outputs=[sync.InferRequestedOutput("OUTPUT0")]))
    a, b = X, X.T.copy()
    close("infer, one input of each kind", c.call("infer", "matmul", [tensor("INPUT0", a, binary_data=False), tensor("INPUT1", b)]), a @ b)
    close("infer, parameters", c.call("infer", "softmax", [tensor("INPUT0", X)], parameters={"axis": 0}), softmax(X, 0))
    result = c.call("infer", "softmax", [tensor("INPUT0", X)], request_id="r-1", sequence_id=3, sequence_start=True, sequence_end=True, priority=2,
                    timeout=1000000, headers={"X-Request-Id": "mine"}, query_params={"test_1": 1, "test_2": 2})
    close("infer, all that it can say", result)
    c.want("infer, id", result.get_response()["id"] == "r-1")
    for there in (None, "gzip", "deflate"):
        for back in (None, "gzip", "deflate"):
            close("infer, compressed %s and %s" % (there, back), c.call("infer", "softmax", [tensor("INPUT0", X)], request_compression_algorithm=there,
                                                                       response_compression_algorithm=back))
    x16 = X.astype(numpy.float16)
    got = c.call("infer", "softmax_fp16", [tensor("INPUT0", x16, "FP16")]).as_numpy("OUTPUT0")
    c.want("infer, FP16", got.dtype == numpy.float16 and numpy.allclose(got, softmax(x16), atol=1e-3), got)
    got = c.call("infer", "softmax_bf16", [tensor("INPUT0", X.astype(ml_dtypes.bfloat16), "BF16")]).as_numpy("OUTPUT0").astype(numpy.float32)
    c.want("infer, BF16", numpy.allclose(got, want, atol=0.01), got)
    exact = numpy.int64([[2 ** 53 + 1, -2 ** 62]])
    for binary in (True, False):
        result = c.call("infer", "reduce", [tensor("INPUT0", exact, "INT64", binary_data=binary)], parameters={"op": "max", "axis": 0},
                        outputs=[sync.InferRequestedOutput("OUTPUT0", binary_data=binary)])
        c.want("infer, exact 64-bit integers", result.as_numpy("OUTPUT0").tolist() == exact[0].tolist(), result.as_numpy("OUTPUT0"))
    words = numpy.float32([[numpy.nan, 1], [numpy.inf, -numpy.inf]])
    result = c.call("infer", "reduce", [tensor("INPUT0", words, binary_data=False)], parameters={"op": "max", "axis": 1},
                    outputs=[sync.InferRequestedOutput("OUTPUT0", binary_data=False)])
    got = result.as_numpy("OUTPUT0")
    c.want("infer, NaN and infinity as words", numpy.isnan(got[0]) and got[1] == numpy.inf, got)
    result = c.call("infer", "reduce", [tensor("INPUT0", X)], parameters={"op": "sum", "axis": "all"})
    c.want("infer, a scalar", result.as_numpy("OUTPUT0").shape == () and numpy.isclose(result.as_numpy("OUTPUT0"), X.sum(), atol=1e-4))
    empty = numpy.zeros((0, 4), numpy.float32)
    c.want("infer, an empty tensor", c.call("infer", "softmax", [tensor("INPUT0", empty)]).as_numpy("OUTPUT0").shape == (0, 4))
    for binary in (True, False):
        result = c.call("infer", "softmax", [tensor("INPUT0", numpy.float32([[1, 5, 3]]))], outputs=[sync.InferRequestedOutput("OUTPUT0", binary_data=binary, class_count=2)])
        got = [t.decode() if isinstance(t, bytes) else t for t in result.as_numpy("OUTPUT0")]
        c.want("infer, classification", [t.split(":")[1] for t in got] == ["1", "2"], got)
    c.refused("infer, unknown model", "Request for unknown model", "infer", "nope", [tensor("INPUT0", X)])
    c.refused("infer, an input too many", "unexpected inference input", "infer", "scan", [tensor("INPUT0", X), tensor("INPUT1", X)])


def safetensors(**arrays):
    head, data = {}, b""
    for name, array in arrays.items():
        head[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + data


def repository(c):
    """Models of one's own: loaded with their files, asked, replaced, unloaded."""
    def of(activation):
        return {"format": 1, "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 9]}], "initializers": ["w"],
                "nodes": [{"name": "up", "op": "matmul", "inputs": ["x", "w"], "outputs": ["h"], "parameters": {"activation": activation}}],
                "outputs": [{"name": "h"}]}

    def state():
        return [(m["state"], m["reason"]) for m in c.call("get_model_repository_index") if m["name"] == "mine"]

    config, w = {"backend": "kernserve", "max_batch_size": 64, "instance_group": [{"count": 1}]}, X.T.copy()
    files = {"file:1/model.json": json.dumps(of("relu")).encode(), "file:1/weights.safetensors": safetensors(w=w)}
    c.call("load_model", "mine", config=json.dumps(config), files=files)
    c.want("load_model: ready", c.call("is_model_ready", "mine", "1") is True and state() == [("READY", "")], state())
    c.want("load_model: its configuration", c.call("get_model_config", "mine")["max_batch_size"] == 64)
    c.want("load_model: its metadata", c.call("get_model_metadata", "mine")["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 9]}])
    asked = lambda: c.call("infer", "mine", [tensor("x", X)]).as_numpy("h")
    exact = X.astype(numpy.float64) @ w.astype(numpy.float64)
    c.want("load_model: what it answers", numpy.allclose(asked(), numpy.maximum(exact, 0), atol=1e-5), asked())
    c.call("load_model", "mine")
    c.want("load_model of what is loaded", numpy.allclose(asked(), numpy.maximum(exact, 0), atol=1e-5))
    c.call("load_model", "mine", config=json.dumps(of("none")), files={"file:weights.safetensors": safetensors(w=2 * w)})
    c.want("load_model: replaced, the definition as config", numpy.allclose(asked(), 2 * exact, atol=1e-5), asked())
    inlined = {"parameters": {"definition": {"string_value": json.dumps(dict(of("none"), initializers=[{"name": "w", "datatype": "FP32", "shape": [9, 5], "data": w.ravel().tolist()}]))}}}
    c.call("load_model", "mine", config=json.dumps(inlined))
    c.want("load_model: the definition as a parameter of config", numpy.allclose(asked(), exact, atol=1e-5), asked())
    c.refused("load_model: a faulty one", "has no tensor 'w'", "load_model", "mine", config=json.dumps(of("none")),
              files={"file:weights.safetensors": safetensors(v=w)})
    c.want("load_model: a faulty one changes nothing", numpy.allclose(asked(), exact, atol=1e-5))
    c.call("unload_model", "mine", unload_dependents=True)
    c.want("unload_model", c.call("is_model_ready", "mine") is False and state() == [("UNAVAILABLE", "unloaded")], state())
    c.refused("infer of what is unloaded", "Request for unknown model: 'mine' has no available versions", "infer", "mine", [tensor("x", X)])
    c.refused("load_model of what is unloaded", "failed to load 'mine', failed to poll from model repository", "load_model", "mine")
    c.refused("load_model, unknown", "failed to load 'nope', failed to poll from model repository", "load_model", "nope")
    c.refused("unload_model, unknown", "Request for unknown model: 'nope'", "unload_model", "nope")
    c.call("load_model", "softmax")
    c.refused("unload_model of an operation", "is the name of an operation", "unload_model", "softmax")


def resident_tensors(c, url):
    """Regions that are tensors of the server's own: nothing is registered."""
    connection = http.client.HTTPConnection(url)
    connection.request("PUT", "/v2/tensors/W?shape=9,5&datatype=FP32", X.T.tobytes())
    c.want("a tensor that stays", connection.getresponse().read() and True)
    weight, output = sync.InferInput("INPUT1", [9, 5], "FP32"), sync.InferRequestedOutput("OUTPUT0")
    weight.set_shared_memory("tensor:W", X.nbytes)
    result = c.call("infer", "matmul", [tensor("INPUT0", X), weight])
    c.want("infer, set_shared_memory of a tensor", numpy.allclose(result.as_numpy("OUTPUT0"), X @ X.T, atol=1e-5), result.as_numpy("OUTPUT0"))
    output.set_shared_memory("tensor:h", 100)
    c.call("infer", "matmul", [tensor("INPUT0", X), weight], outputs=[output])
    connection.request("GET", "/v2/tensors/h")
    got = numpy.frombuffer(connection.getresponse().read(), numpy.float32).reshape(5, 5)
    c.want("infer, an output that stays", numpy.allclose(got, X @ X.T, atol=1e-5), got)
    c.refused("a region of that name", "no region can be registered", "register_system_shared_memory", "tensor:W", "/x", 16)


def shared_memory(c):
    handle = shm.create_shared_memory_region("r", "/kernserve-methods-%d" % os.getpid(), 4 * X.nbytes)
    try:
        shm.set_shared_memory_region(handle, [X])
        c.call("unregister_system_shared_memory")
        c.call("unregister_cuda_shared_memory")
        c.call("register_system_shared_memory", "r", "/kernserve-methods-%d" % os.getpid(), 4 * X.nbytes)
        c.want("get_system_shared_memory_status", [r["byte_size"] for r in c.call("get_system_shared_memory_status")] == [4 * X.nbytes])
        c.want("get_system_shared_memory_status of one", c.call("get_system_shared_memory_status", "r")[0]["name"] == "r")
        c.refused("get_system_shared_memory_status, unknown", "Unable to find system shared memory region: 'x'", "get_system_shared_memory_status", "x")
        c.want("get_cuda_shared_memory_status", c.call("get_cuda_shared_memory_status") == [])
        given, asked = sync.InferInput("INPUT0", list(X.shape), "FP32"), sync.InferRequestedOutput("OUTPUT0")
        given.set_shared_memory("r", X.nbytes)
        asked.set_shared_memory("r", 2 * X.nbytes, offset=X.nbytes)
        result = c.call("infer", "softmax", [given], outputs=[asked])
        output = result.get_output("OUTPUT0")
        got = shm.get_contents_as_numpy(handle, numpy.float32, [4] + list(X.shape))[1]
        c.want("infer in shared memory", numpy.allclose(got, softmax(X), atol=1e-6) and output["shape"] == list(X.shape) and "data" not in output, got)
        c.call("unregister_system_shared_memory", "r")
        c.want("unregister_system_shared_memory", c.call("get_system_shared_memory_status") == [])
        c.refused("register_cuda_shared_memory of nonsense", "", "register_cuda_shared_memory", "g", b"A" * 86 + b"==", 0, 64)
    finally:
        shm.destroy_shared_memory_region(handle)


def every_method(c, module):
    """What the library offers beside this was left out on purpose."""
    left = {name for name in dir(module.InferenceServerClient) if not name.startswith("_")} - c.called
    c.want("every method was called", left <= {"close", "plugin", "register_plugin", "unregister_plugin", "generate_request_body", "parse_response_body"}, left)


def main():
    with Daemon(sys.argv[1], "--allow-client-shm", "--response-compression", "--pinned-bytes", "64M", "--backend", "cpu") as daemon:
        url = "127.0.0.1:%d" % daemon.port
        loop = asyncio.new_event_loop()
        callers = [(Caller("threads", sync, url), sync), (Caller("asyncio", aio, url, loop), aio)]
        for c, module in callers:
            for part in (documents, repository, inference, shared_memory):
                part(c)
            resident_tensors(c, url)
            if module is sync:
                waiting = [c.call("async_infer", "softmax", [tensor("INPUT0", X)], request_id=str(i)) for i in range(8)]
                c.want("async_infer", [w.get_result().get_response()["id"] for w in waiting] == [str(i) for i in range(8)])
            every_method(c, module)
            c.call("close")
        code = daemon.stop()
        return 1 if code or any(c.wrong for c, _ in callers) else 0


if __name__ == "__main__":
    sys.exit(main())
