#!/usr/bin/env python3
"""What the sample programs of Triton's clients do, against --compat-models: compat_models.py KERNSERVE"""

import base64
import json
import os
import sys

import numpy
import tritonclient.http as sync
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from daemon import Daemon, request

wrong = 0


def want(name, good, got=None):
    global wrong
    wrong += not good
    print("%s %s%s" % ("ok   " if good else "WRONG", name, "" if good else ": %r" % (got,)))


def tensor(name, x, datatype, **named):
    made = sync.InferInput(name, list(x.shape), datatype)
    made.set_data_from_numpy(x, **named)
    return made


def numbers(client):
    a, b = numpy.arange(16, dtype=numpy.int32).reshape(1, 16), numpy.full((1, 16), 2 ** 31 - 1, numpy.int32)
    with numpy.errstate(over="ignore"):
        expected = (a + b, a - b)
    for binary_in in (True, False):
        for binary_out in (True, False):
            inputs = [tensor("INPUT0", a, "INT32", binary_data=binary_in), tensor("INPUT1", b, "INT32")]
            outputs = [sync.InferRequestedOutput("OUTPUT%d" % i, binary_data=binary_out) for i in range(2)]
            result = client.infer("simple", inputs, outputs=outputs, request_id="7", request_compression_algorithm="gzip" if binary_in else None)
            good = all(numpy.array_equal(result.as_numpy("OUTPUT%d" % i), expected[i]) for i in range(2))
            want("simple, in %s, out %s" % (binary_in, binary_out), good and result.get_response()["id"] == "7", result.get_response())
    result = client.infer("simple", inputs, outputs=outputs[1:])
    want("simple, one output", result.as_numpy("OUTPUT0") is None and numpy.array_equal(result.as_numpy("OUTPUT1"), expected[1]))
    batch = numpy.arange(128, dtype=numpy.int32).reshape(8, 16)
    result = client.infer("simple", [tensor("INPUT0", batch, "INT32"), tensor("INPUT1", batch, "INT32")])
    want("simple, a batch", numpy.array_equal(result.as_numpy("OUTPUT0"), 2 * batch))


def strings(client):
    a = numpy.array([[str(i).encode() for i in range(16)]], dtype=object)
    b = numpy.array([[b"-1000"] * 16], dtype=object)
    for binary in (True, False):
        result = client.infer("simple_string", [tensor("INPUT0", a, "BYTES", binary_data=binary), tensor("INPUT1", b, "BYTES", binary_data=not binary)],
                              outputs=[sync.InferRequestedOutput("OUTPUT%d" % i, binary_data=binary) for i in range(2)])
        got = [[int(v) for v in result.as_numpy("OUTPUT%d" % i)[0]] for i in range(2)]
        want("simple_string", got == [[i - 1000 for i in range(16)], [i + 1000 for i in range(16)]], got)
    words = numpy.array([[b"", b"a \"b\" \\", "\u00e9\u4e2d".encode()]], dtype=object)
    for binary in (True, False):
        result = client.infer("simple_identity", [tensor("INPUT0", words, "BYTES", binary_data=binary)], outputs=[sync.InferRequestedOutput("OUTPUT0", binary_data=True)])
        want("simple_identity", list(result.as_numpy("OUTPUT0")[0]) == list(words[0]), result.as_numpy("OUTPUT0"))
    latin = [tensor("INPUT0", numpy.array([[b"\xe9"]], dtype=object), "BYTES")]
    refused(client, "bytes that are not UTF-8, as JSON", "not UTF-8", "simple_identity", latin, outputs=[sync.InferRequestedOutput("OUTPUT0", binary_data=False)])
    want("and as bytes", client.infer("simple_identity", latin).as_numpy("OUTPUT0")[0][0] == b"\xe9")
    x = numpy.random.default_rng(1).normal(size=100000).astype(numpy.float32)
    result = client.infer("identity_fp32", [tensor("INPUT0", x, "FP32")])
    want("identity_fp32", numpy.array_equal(result.as_numpy("OUTPUT0"), x))


def windows(client, kind, read):
    """Both inputs and both outputs in the region "io"; read() gives its 64 numbers."""
    a = numpy.arange(16, dtype=numpy.int32)
    inputs, outputs = [], []
    for i in range(2):
        inputs.append(sync.InferInput("INPUT%d" % i, [1, 16], "INT32"))
        inputs[i].set_shared_memory("io", 64, offset=64 * i)
        outputs.append(sync.InferRequestedOutput("OUTPUT%d" % i))
        outputs[i].set_shared_memory("io", 64, offset=128 + 64 * i)
    client.infer("simple", inputs, outputs=outputs)
    got = read()
    want("simple in %s shared memory" % kind, numpy.array_equal(got[2], 2 * a) and not got[3].any(), got)
    outputs[0].set_shared_memory("io", 63, offset=128)
    refused(client, "an output too small", "should be at least 64 bytes", "simple", inputs, outputs=outputs)
    inputs[0].set_shared_memory("io", 64, offset=256 - 63)
    refused(client, "an input beyond the region", "Invalid offset + byte size for shared memory region: 'io'", "simple", inputs)
    inputs[0].set_shared_memory("io", 60)
    refused(client, "an input of another size", "input byte size mismatch for input 'INPUT0' for model 'simple'. Expected 64, got 60", "simple", inputs)
    inputs[0].set_shared_memory("nobody", 64)
    refused(client, "a region that nobody registered", "Unable to find shared memory region: 'nobody'", "simple", inputs)


def with_object(work):
    """work(key, read) with 256 bytes below /dev/shm that hold 0 to 15 twice."""
    a = numpy.arange(16, dtype=numpy.int32)
    key = "/kernserve-compat-%d" % os.getpid()
    handle = shm.create_shared_memory_region("io", key, 256)
    try:
        shm.set_shared_memory_region(handle, [a, a])
        work(key, lambda: shm.get_contents_as_numpy(handle, numpy.int32, [4, 16]))
    finally:
        shm.destroy_shared_memory_region(handle)


def shared(client):
    def work(key, read):
        client.register_system_shared_memory("io", key, 256)
        windows(client, "system", read)
        client.unregister_system_shared_memory()

    with_object(work)


def device_shared(path):
    """CUDA regions on a device that is none, whose handles are names of objects (tests/backend_streaming.c)."""
    global wrong
    streaming = os.path.join(os.path.dirname(path), "tests", "kernserve_streaming")

    def work(key, read):
        client.register_cuda_shared_memory("io", base64.b64encode(key.encode().ljust(64, b"\0")), 0, 256)
        windows(client, "CUDA", read)
        client.unregister_cuda_shared_memory()

    with Daemon(streaming, "--compat-models", "--allow-client-shm", "--pinned-bytes", "16M") as daemon:
        client = sync.InferenceServerClient("127.0.0.1:%d" % daemon.port)
        with_object(work)
        client.close()
        wrong += daemon.stop() != 0


def words(client, daemon):
    """NaN, infinities and what else JSON has no numbers for: in, and out again."""
    x = numpy.array([numpy.nan, numpy.inf, -numpy.inf, -0.0, 1e-45, 3.4028235e38, 0.1], numpy.float32)
    result = client.infer("identity_fp32", [tensor("INPUT0", x, "FP32", binary_data=False)], outputs=[sync.InferRequestedOutput("OUTPUT0", binary_data=False)])
    want("words for NaN and infinity", result.as_numpy("OUTPUT0").tobytes() == x.tobytes(), result.as_numpy("OUTPUT0"))
    with daemon.connect() as connection:
        body = b'{"id":"a\\u0000b","inputs":[{"name":"INPUT0","shape":[4],"datatype":"FP32","data":[[Inf,-Inf],[NaN,2]]}]}'
        answer = connection.ask(request("POST", "/v2/models/identity_fp32/infer", (), body))
        want("words as they come", answer.status == 200 and answer.body.endswith(b'"data":[Infinity,-Infinity,NaN,2.0]}]}'), answer)
        want("an id with a NUL", json.loads(answer.body)["id"] == "a\0b", answer)
        answer = connection.ask(request("POST", "/v2/models/identity_fp32/infer", [("Inference-Header-Content-Length", 0)], x.tobytes()))
        want("raw", answer.status == 200 and answer.body.endswith(b'"shape":[7],"parameters":{"binary_data_size":28}}]}' + x.tobytes()), answer)
        text = b'{"inputs":[{"name":"INPUT0","shape":[1,2],"datatype":"BYTES","data":["a\\u0000","\\u00e9"]}]}'
        answer = connection.ask(request("POST", "/v2/models/simple_identity/infer", (), text))
        want("a text with a NUL", json.loads(answer.body)["outputs"][0]["data"] == ["a\0", "\u00e9"], answer)


def refused(client, name, text, *arguments, **named):
    try:
        client.infer(*arguments, **named)
        want(name, False)
    except InferenceServerException as reason:
        want(name, text in reason.message(), reason.message())


def refusals(client, daemon):
    a = numpy.zeros((1, 16), numpy.int32)
    good = [tensor("INPUT0", a, "INT32"), tensor("INPUT1", a, "INT32")]
    refused(client, "one input", "expected 2 inputs but got 1 inputs", "simple", good[:1])
    refused(client, "the same input twice", "already exists", "simple", [good[0], good[0]])
    refused(client, "an unknown input", "unexpected inference input 'X'", "simple", [tensor("X", a, "INT32")])
    refused(client, "another datatype", "data-type is 'FP32', but model 'simple' expects 'INT32'", "simple", [tensor("INPUT0", a.astype(numpy.float32), "FP32")])
    nine = numpy.zeros((9, 16), numpy.int32)
    refused(client, "a batch of nine", "inference request batch-size must be <= 8 for 'simple'", "simple", [tensor("INPUT0", nine, "INT32"), tensor("INPUT1", nine, "INT32")])
    refused(client, "another length", "shape", "simple", [tensor("INPUT0", a[:, :15], "INT32")])
    refused(client, "words that are no numbers", "is no decimal number", "simple_string", [tensor("INPUT%d" % i, numpy.array([[b"x"] * 16], dtype=object), "BYTES") for i in range(2)])
    texts = serialize_byte_tensor(numpy.array([b"abc"], dtype=object)).item()
    with daemon.connect() as connection:
        for name, blob, shape, text in (("a text cut short", texts[:-1], [1, 1], "incomplete string length indicator"), ("two texts for one", texts * 2, [1, 1], "expected 1 string elements"),
                                        ("no text at all", b"", [1, 1], "expected 1 string elements")):
            head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": shape, "parameters": {"binary_data_size": len(blob)}}]}).encode()
            answer = connection.ask(request("POST", "/v2/models/simple_identity/infer", [("Inference-Header-Content-Length", len(head))], head + blob))
            want(name, answer.status == 400 and text in json.loads(answer.body)["error"], answer)
        one = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":%s}]%s}'
        for name, body, headers in (("no JSON", b"{", ()), ("a list", b"[]", ()), ("NaN as a shape", one.replace(b"[1]", b"[NaN]") % (b"[1]", b""), ()), ("NaN as a parameter", one % (b"[1]", b',"parameters":{"x":NaN}'), ()),
                                    ("a null among numbers", one % (b"[null]", b""), ()), ("a text among numbers", one % (b'["1"]', b""), ()), ("1e39", one % (b"[1e39]", b""), ()), ("a duplicate key", one % (b"[1]", b',"id":"a","id":"b"'), ()),
                                    ("bytes behind the JSON", one % (b"[1]", b"") + b"x", ()), ("a comment", b"/**/" + one % (b"[1]", b""), ()), ("a raw body of a byte too many", b"12345", [("Inference-Header-Content-Length", 0)]),
 ("deep", one % (b"[" * 101 + b"1" + b"]" * 101, b""), ()),
                                    ("a header length beyond", b"{}", [("Inference-Header-Content-Length", 9)]), ("a header length below zero", b"{}", [("Inference-Header-Content-Length", -1)]),
                                    ("gzip that is none", b"{}", [("Content-Encoding", "gzip")])):
            answer = connection.ask(request("POST", "/v2/models/identity_fp32/infer", headers, body))
            want(name, answer.status == 400 and set(json.loads(answer.body)) == {"error"}, answer)
        for model, text in (("simple", "Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'simple' model configuration"),
                            ("simple_identity", "For BYTE datatype raw input 'INPUT0', the model must have input shape [1]")):
            answer = connection.ask(request("POST", "/v2/models/%s/infer" % model, [("Inference-Header-Content-Length", 0)], b"1234"))
            want("a raw body for %s" % model, answer.status == 400 and json.loads(answer.body)["error"] == text, answer)
        head = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":%d}}]}' % (17 << 20)
        answer = connection.ask(request("POST", "/v2/models/identity_fp32/infer", [("Inference-Header-Content-Length", len(head))], head + bytes(17 << 20)))
        want("17 MiB", answer.status == 413, answer)


def main():
    global wrong
    with Daemon(sys.argv[1], "--compat-models", "--allow-client-shm", "--pinned-bytes", "16M") as daemon:
        client = sync.InferenceServerClient("127.0.0.1:%d" % daemon.port)
        for model in ("simple", "simple_identity", "simple_string", "identity_fp32"):
            config = client.get_model_config(model)
            rank = 1 + (config["max_batch_size"] > 0)
            want(model + ": metadata and config agree", all(len(t["shape"]) == rank for t in client.get_model_metadata(model)["inputs"]) and client.is_model_ready(model))
        for part in (numbers, strings, shared):
            part(client)
        words(client, daemon)
        refusals(client, daemon)
        stats = client.get_inference_statistics("simple")["model_stats"][0]["inference_stats"]
        want("statistics", stats["success"]["count"] > 6 and stats["fail"]["count"] > 3 and stats["queue"]["count"] == stats["success"]["count"], stats)
        client.close()
        wrong += daemon.stop() != 0
    device_shared(sys.argv[1])
    with Daemon(sys.argv[1], "--compat-models", "--pinned-bytes", "16M", "--json-non-finite", "error") as daemon:
        answer = daemon.connect().ask(request("POST", "/v2/models/identity_fp32/infer", (), b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[NaN]}]}'))
        want("no words for strict readers", answer.status == 422 and answer.header("kernserve-error") == "non_finite", answer)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
