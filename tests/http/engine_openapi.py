#!/usr/bin/env python3
"""Every example of the OpenAPI document is sent and gives what it says, and the path for bytes is strict: no JSON, no name that
means nothing, whatever --strict-parameters says.

engine_openapi.py KERNSERVE
"""
import base64
import json
import struct
import sys
import urllib.parse

from daemon import check, cpu_daemon, request, wrongs

INFER, RAW = "/v2/models/{model}/infer", "/v2/models/{model}/raw"
JSON_RESULTS = {"softmax": [0.0320586, 0.0871443, 0.2368828, 0.6439142], "reduce": [5, 9], "matmul": [1, 2, 3, 4], "norm": [0.3651481, 0.7302962, 1.0954443, 1.4605924],
                "map": [11, 22, 13, 24], "topk": [4, 3], "scan": [1, 3, 6, 10],
                "histogram": [1, 2, 0, 1], "gather": [5, 6, 1, 2], "layout": [1, 3, 2, 4], "window": [1, 2, 2, 3], "search": [7, 6], "attention": [2, 4],
                "quantize": [127, -64, 32, 0], "dequantize": [2, -1.5]}


def close(got, want):
    return len(got) == len(want) and all(abs(g - w) < 1e-5 for g, w in zip(got, want))


def floats(content_type, body):
    """The FP32 values of a response: plain bytes, or what stands behind a file's head."""
    if content_type == "application/x-npy":
        body = body[10 + struct.unpack("<H", body[8:10])[0]:]
    elif content_type == "application/x-safetensors":
        body = body[8 + struct.unpack("<Q", body[:8])[0]:]
    return struct.unpack("<%df" % (len(body) // 4), body)


def examples(daemon, document):
    operation = document["paths"][INFER]["post"]
    content = operation["requestBody"]["content"]
    check(list(content)[0] == "application/json" and list(operation["responses"]["200"]["content"])[0] == "application/json", "JSON comes first")
    named = content["application/json"]["examples"]
    check(set(named) == set(JSON_RESULTS), "an example per op:", list(named))
    with daemon.connect() as connection:
        for model, example in named.items():
            answer = connection.ask(request("POST", INFER.format(model=model), [("Content-Type", "application/json")], json.dumps(example["value"]).encode()))
            check(answer.status == 200 and close(json.loads(answer.body)["outputs"][0]["data"], JSON_RESULTS[model]), model, answer)
        raws = document["paths"][RAW]["post"]["x-kernserve-examples"]
        check(len(raws) == 8 and {one["content_type"] for one in raws} == set(document["paths"][RAW]["post"]["requestBody"]["content"]), "an example per op and format", len(raws))
        for one in raws:
            for path in (RAW, "/v2/models/{model}/versions/1/raw", INFER):
                answer = connection.ask(request("POST", path.format(model=one["model"]) + "?" + one["query"], [("Content-Type", one["content_type"])], base64.b64decode(one["body_base64"])))
                name = (one["model"], one["content_type"], path)
                check(answer.status == 200 and answer.header("content-type") == one["content_type"] and close(floats(one["content_type"], answer.body), one["values"]), *name, answer)


# Parameters of each op, with what it takes for [2,2] (and for what its query says besides).
VALUES = {
    "softmax": {"axis": "0", "log": "true", "scale": "2", "causal": "top_left", "masked_rows": "zero", "out_datatype": "FP64"},
    "reduce": {"axis": "0", "op": "max", "keepdims": "true", "ddof": "1", "p": "inf"},
    "matmul": {"transpose_a": "true", "transpose_b": "false", "alpha": "0.5", "activation": "relu", "precision": "exact", "out_datatype": "FP32"},
    "norm": {"axis": "1", "kind": "rms", "groups": "1", "eps": "0.5", "activation": "gelu_tanh", "sum_out": "true", "out_datatype": "FP64"},
    "map": {"op": "relu", "a": "2", "b": "1", "out_datatype": "INT8"},
    "topk": {"axis": "0", "k": "2", "largest": "false", "sorted": "true", "index_datatype": "INT32"},
    "scan": {"axis": "0", "op": "prod", "exclusive": "true", "reverse": "true"},
    "histogram": {"axis": "1", "bins": "10", "min": "0", "max": "3", "edges": "true"},
    "gather": {"axis": "1", "kind": "elements", "mode": "wrap", "op": "sum"},
    "layout": {"op": "transpose", "axes": "1,0", "starts": "1,0", "sizes": "1,-1", "ends": "2,1", "steps": "1,2", "before": "1,0", "after": "0,2", "mode": "edge", "value": "-1", "axis": "1",
               "new_shape": "4", "repeats": "2,1", "parts": "2", "part": "1"},
    "search": {"k": "2", "metric": "l2"},
    "attention": {"scale": "2", "causal": "bottom_right", "window": "1", "softcap": "5", "layout": "bshd", "masked_rows": "nan", "lse": "true"},
    "quantize": {"scale_per": "row", "out_datatype": "FP8E4M3"},
    "dequantize": {"scale_per": "tensor", "out_datatype": "FP16"},
    "window": {"size": "2", "stride": "2", "dilation": "1", "pad": "1,0", "auto_pad": "same_lower", "layout": "nchw", "value": "-1"},
}
INPUTS = {"matmul": ("FP32", "FP32"), "search": ("FP32", "FP32"), "attention": ("FP32", "FP32", "FP32"), "gather": ("FP32", "INT32"), "dequantize": ("INT8", "FP32"), ("layout", "axis"): ("FP32", "FP32")}  # datatypes; of others one of FP32
SCALES = {("dequantize", 1): "1"}  # shapes of inputs that are not 2 x 2
BODIES = {"dequantize": struct.pack("<4bf", 4, 3, 2, 1, 0.5)}  # a scale of 0 would be refused
BESIDES = {("map", "a"): "&op=linear", ("map", "b"): "&op=linear", ("reduce", "ddof"): "&op=var", ("reduce", "p"): "&op=norm", ("attention", "window"): "&causal=top_left",
           **{("layout", name): "&op=slice" for name in ("starts", "sizes", "ends", "steps")}, **{("layout", name): "&op=pad" for name in ("before", "after", "mode", "value")},
           ("layout", "axis"): "&op=concat", ("layout", "new_shape"): "&op=reshape", ("layout", "repeats"): "&op=tile", ("layout", "parts"): "&op=split", ("layout", "part"): "&op=split",
           **{("window", name): "&size=2" for name in ("stride", "dilation", "pad", "auto_pad", "layout", "value")},
           **{("histogram", name): "&min=-1&max=4" for name in ("axis", "bins", "edges")}, ("histogram", "min"): "&max=4", ("histogram", "max"): "&min=-1"}


def parameters(daemon, document):
    """What the document names for bytes is taken, by the op that its description names, with a choice that the document lists."""
    named = [one for one in document["paths"][RAW]["post"]["parameters"] if one.get("in") == "query"]
    check({one["name"] for one in named} == {name for values in VALUES.values() for name in values}, "every parameter of every op:", [one["name"] for one in named])
    with daemon.connect() as connection:
        for one in named:
            name = one["name"]
            check("default" not in one["schema"], name, "would be sent to every op")
            for op, values in VALUES.items():
                check((op + " (preset" in one["description"]) == (name in values), op, name, one["description"])
                value = values.get(name) or next(other[name] for other in VALUES.values() if name in other)
                check("enum" not in one["schema"] or value in one["schema"]["enum"], op, name, one["schema"])
                inputs = INPUTS.get((op, name), INPUTS.get(op, ("FP32",)))
                query = "&".join(["shape=%s&datatype=%s" % (SCALES.get((op, i), "2,2"), datatype) for i, datatype in enumerate(inputs)] + [urllib.parse.urlencode({name: value})]) + BESIDES.get((op, name), "")
                answer = connection.ask(request("POST", RAW.format(model=op) + "?" + query, (), BODIES.get(op, bytes(16 * len(inputs)))))
                check(answer.status == (200 if name in values else 400), op, name, answer)


def strict(daemon):
    body = bytes(16)
    rows = (("a name that means nothing", "?shape=1,4&axsi=0", (), body, 400, "parameter"), ("a name in a file's query", "?axsi=0", [("Content-Type", "application/x-npy")], body, 400, None),
            ("JSON", "", [("Content-Type", "application/json")], b"{}", 400, "name"), ("JSON in front", "?shape=1,4", [("Inference-Header-Content-Length", "2")], body, 400, "header_length"),
            ("OIP raw", "?shape=1,4", [("Inference-Header-Content-Length", "0")], body, 400, "header_length"), ("no shape", "", (), body, 400, "name"))
    with daemon.connect() as connection:
        for name, query, headers, sent, status, code in rows:
            answer = connection.ask(request("POST", "/v2/models/softmax/raw" + query, headers, sent))
            check(answer.status == status and code in (None, answer.header("kernserve-error")), name, answer, answer.header("kernserve-error"))
        answer = connection.ask(request("POST", "/v2/models/softmax/raw?shape=1,4", [("Accept", "application/json")], body))
        check(answer.status == 200 and answer.header("content-type") == "application/octet-stream" and answer.header("kernserve-shape") == "1,4", "bytes, whatever Accept says", answer)
        check(connection.ask(request("GET", "/v2/models/softmax/raw")).status == 405, "a GET")
        check(connection.ask(request("POST", "/v2/models/simple/raw?shape=1,16", (), bytes(64))).header("kernserve-error") == "path", "a model that takes JSON alone")


with cpu_daemon("--threads", "1", "--strict-parameters", "off", "--compat-models") as daemon:
    document = json.loads(daemon.get("/openapi.json").body)
    examples(daemon, document)
    parameters(daemon, document)
    strict(daemon)
    check(daemon.stop() == 0, "the exit code")
sys.exit(wrongs() > 0)
