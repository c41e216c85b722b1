#!/usr/bin/env python3
"""What the sample programs of Triton's clients do, against --compat-models: compat_models.py KERNSERVE"""

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
    x = numpy.random.default_rng(1).normal(size=100000).astype(numpy.float32)
    result = client.infer("identity_fp32", [tensor("INPUT0", x, "FP32")])
    want("identity_fp32", numpy.array_equal(result.as_numpy("OUTPUT0"), x))


def shared(client):
    a = numpy.arange(16, dtype=numpy.int32)
    key = "/kernserve-compat-%d" % os.getpid()
    handle = shm.create_shared_memory_region("io", key, 256)
    try:
        shm.set_shared_memory_region(handle, [a, a])
        client.register_system_shared_memory("io", key, 256)
        inputs, outputs = [], []
        for i in range(2):
            inputs.append(sync.InferInput("INPUT%d" % i, [1, 16], "INT32"))
            inputs[i].set_shared_memory("io", 64, offset=64 * i)
            outputs.append(sync.InferRequestedOutput("OUTPUT%d" % i))
            outputs[i].set_shared_memory("io", 64, offset=128 + 64 * i)
        client.infer("simple", inputs, outputs=outputs)
        got = shm.get_contents_as_numpy(handle, numpy.int32, [4, 16])
        want("simple in shared memory", numpy.array_equal(got[2], 2 * a) and not got[3].any(), got)
        outputs[0].set_shared_memory("io", 63, offset=128)
        refused(client, "an output too small", "should be at least 64 bytes", "simple", inputs, outputs=outputs)
        client.unregister_system_shared_memory()
    finally:
        shm.destroy_shared_memory_region(handle)


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
        for name, body, headers in (("no JSON", b"{", ()), ("a list", b"[]", ()), ("deep", b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":%s}]}' % (b"[" * 40 + b"1" + b"]" * 40), ()),
                                    ("a header length beyond", b"{}", [("Inference-Header-Content-Length", 9)]), ("a header length below zero", b"{}", [("Inference-Header-Content-Length", -1)]),
                                    ("gzip that is none", b"{}", [("Content-Encoding", "gzip")])):
            answer = connection.ask(request("POST", "/v2/models/identity_fp32/infer", headers, body))
            want(name, answer.status == 400 and set(json.loads(answer.body)) == {"error"}, answer)
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
        refusals(client, daemon)
        stats = client.get_inference_statistics("simple")["model_stats"][0]["inference_stats"]
        want("statistics", stats["success"]["count"] > 6 and stats["fail"]["count"] > 3 and stats["queue"]["count"] == stats["success"]["count"], stats)
        client.close()
        wrong += daemon.stop() != 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
