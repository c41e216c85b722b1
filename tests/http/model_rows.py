"""What a client can do wrong with a model: rows as in refusal_rows.py, of a daemon that has loaded `there` (a map of the input x, FP32
of one free length) and has OPTIONS. models.py walks through them.
"""

import json

from daemon import request
from refusal_rows import STAYS, Row

OPTIONS = ("--resident-bytes", "64M", "--pinned-bytes", "64M")


def put_model(name, document, *headers):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return request("PUT", "/v2/models/" + name, headers, body)


def node(op="map", inputs=("x",), outputs=("y",), name="n", **parameters):
    return {"name": name, "op": op, "inputs": list(inputs), "outputs": list(outputs), "parameters": parameters}


RELU = {"name": "n", "op": "map", "inputs": ["x"], "outputs": ["y"], "parameters": {"op": "relu"}}


def definition(**members):
    document = {"format": 1, "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}], "nodes": [RELU],
                "outputs": [{"name": "y"}]}
    document.update(members)
    return {key: value for key, value in document.items() if value is not None}


def model(**members):
    return put_model("refused", definition(**members))


def shaped(*dims, **members):
    return model(inputs=[{"name": "x", "datatype": "FP32", "shape": list(dims)}], **members)


def data(shape, elements, datatype="FP32", **members):
    return model(initializers=[dict({"name": "k", "datatype": datatype, "shape": shape, "data": elements}, **members)])


def matmul(*shape):
    return model(initializers=[{"name": "w", "datatype": "FP32", "shape": list(shape), "data": [1.0] * (shape[0] * shape[1])}],
                 nodes=[node("matmul", ("x", "w"))])


def infer(text, target="/v2/models/there/infer"):
    return request("POST", target, (), text.encode())


MANY = [dict(RELU, name="n%d" % i, inputs=["x"], outputs=["y%d" % i]) for i in range(1025)]

ROWS = [
    # 26: nodes
    Row("model: no nodes", model(nodes=None), 400, "definition", STAYS, "nodes"),
    Row("model: nodes is empty", model(nodes=[]), 400, "definition", STAYS, "empty"),
    Row("model: 1,025 nodes", model(nodes=MANY, outputs=[{"name": "y0"}]), 400, "definition", STAYS, "1024"),
    Row("model: a node without op", model(nodes=[{"name": "n", "inputs": ["x"], "outputs": ["y"]}]), 400, "definition", STAYS, "node 'n'"),
    Row("model: a gather without indices", model(nodes=[node("gather")]), 400, "count", STAYS, "'gather' needs its input 1, indices"),
    Row("model: a gather by floats", model(nodes=[node("gather", ("x", "x"))]), 400, "datatype", STAYS, "node 'n' (gather): INPUT1 (indices) has datatype FP32"),
    Row("model: an op that is unknown", model(nodes=[node("einsum")]), 400, "definition", STAYS, "einsum"),
    Row("model: a node without a name", model(nodes=[{"op": "map", "inputs": ["x"], "outputs": ["y"]}]), 400, "name", STAYS, "node 0"),
    Row("model: a node that is no object", model(nodes=[7]), 400, "field", STAYS, "node 0"),
    # 27: names
    Row("model: an input that nobody makes", model(nodes=[node("softmax", ("z",))]), 400, "name", STAYS, "'z'"),
    Row("model: an input of a later node", model(nodes=[node("softmax", ("b",)), node("softmax", ("x",), ("b",), "m")]), 400, "name", STAYS, "node 'n'"),
    Row("model: a cycle", model(nodes=[node("softmax", ("y",))]), 400, "name", STAYS, "'y'"),
    Row("model: two nodes of one name", model(nodes=[RELU, dict(RELU, outputs=["z"])]), 400, "name", STAYS, "node 'n'"),
    Row("model: a value made twice", model(nodes=[RELU, dict(RELU, name="m")]), 400, "name", STAYS, "'y' is given twice"),
    Row("model: an output of the input's name", model(nodes=[dict(RELU, outputs=["x"])]), 400, "name", STAYS, "twice"),
    Row("model: a name of other bytes", model(nodes=[dict(RELU, outputs=["a b"])]), 400, "name", STAYS, "a b"),
    Row("model: a name of 129 bytes", model(nodes=[dict(RELU, outputs=["y" * 129])]), 400, "name", STAYS, "128"),
    # 28: counts, parameters
    Row("model: lengths of a softmax", model(nodes=[node("softmax", ("x", "", "x"))]), 400, "datatype", STAYS, "node 'n' (softmax): INPUT2 has datatype FP32, takes INT32 or INT64"),
    Row("model: too many inputs of a node", model(nodes=[node("softmax", ("x", "x", "", "x"))]), 400, "count", STAYS, "node 'n'"),
    Row("model: too few inputs of a node", model(nodes=[node("matmul", ("x",))]), 400, "count", STAYS, "node 'n'"),
    Row("model: a required input not given", model(nodes=[node("matmul", ("", "x"))]), 400, "count", STAYS, "node 'n'"),
    Row("model: a node without outputs", model(nodes=[node("softmax", ("x",), ())]), 400, "count", STAYS, "node 'n'"),
    Row("model: more outputs than an op makes", model(nodes=[node("softmax", ("x",), ("y", "z"))]), 400, "count", STAYS, "node 'n'"),
    Row("model: five outputs", model(nodes=[node("softmax", ("x",), "abcde")]), 400, "count", STAYS, "node 'n'"),
    Row("model: a parameter that is unknown", model(nodes=[node("softmax", ("x",), axes=1)]), 400, "parameter", STAYS, "axes"),
    Row("model: a parameter of the wrong type", model(nodes=[node("softmax", ("x",), log="yes")]), 400, "parameter", STAYS, "node 'n'"),
    Row("model: a parameter of no choice", model(nodes=[node("matmul", ("x", "x"), activation="cube")]), 400, "parameter", STAYS, "node 'n'"),
    # 29: shapes
    Row("model: inner sizes differ", matmul(5, 3), 400, "shape", STAYS, "node 'n' (matmul): inner sizes differ"),
    Row("model: shapes that do not broadcast", model(initializers=[{"name": "k", "datatype": "FP32", "shape": [3], "data": [1, 2, 3]}], nodes=[dict(node("map", ("x", "k")), parameters={"op": "add"})]), 400, "shape", STAYS, "node 'n' (map)"),
    Row("model: a bad axis", model(nodes=[node("softmax", ("x",), axis=2)]), 400, "axis", STAYS, "node 'n' (softmax)"),
    # 30: datatypes, reshapes
    Row("model: mixed datatypes", model(initializers=[{"name": "w", "datatype": "FP64", "shape": [4, 2], "data": [1] * 8}],
                                        nodes=[node("matmul", ("x", "w"))]), 400, "datatype", STAYS, "node 'n'"),
    Row("model: a reshape of two rests", model(nodes=[node("reshape", shape=[-1, -1])]), 400, "shape", STAYS, "node 'n'"),
    Row("model: a reshape without shape", model(nodes=[node("reshape")]), 400, "parameter", STAYS, "shape"),
    Row("model: a reshape of other size", model(nodes=[node("reshape", shape=[0, 5])]), 400, "shape", STAYS, "node 'n' (reshape)"),
    Row("model: a reshape of a dimension that is not there", model(nodes=[node("reshape", shape=[0, 2, 0])]), 400, "shape", STAYS, "node 'n'"),
    Row("model: a reshape of a far dimension that is not there", model(nodes=[node("reshape", shape=[0, 2, -4])]), 400, "shape", STAYS, "node 'n' (reshape)"),
    Row("model: a reshape of a dimension below all", model(nodes=[node("reshape", shape=[0, -10])]), 400, "shape", STAYS, "-9"),
    Row("model: a reshape of nine dimensions", model(nodes=[node("reshape", shape=[0] + [1] * 8)]), 400, "shape", STAYS, "8"),
    # 31: what moves elements
    Row("model: a transpose of an axis twice", model(nodes=[node("transpose", perm=[1, 1])]), 400, "axis", STAYS, "node 'n' (layout): 'axes' names axis 1 twice"),
    Row("model: a transpose with another op", model(nodes=[dict(node("transpose"), parameters={"op": "pad"})]), 400, "parameter", STAYS, "has no parameter 'op'"),
    Row("model: a transpose with starts", model(nodes=[node("transpose", start=1)]), 400, "parameter", STAYS, "does not take parameter 'starts'"),
    Row("model: perm of an operation", model(nodes=[node("layout", perm=[1, 0])]), 400, "parameter", STAYS, "has no parameter 'perm'"),
    Row("model: a slice past the end", model(nodes=[node("slice", axis=1, start=0, end=5)]), 400, "range", STAYS, "node 'n' (layout): 'ends' has 5 for axis 1"),
    Row("model: a slice by steps of 0", model(nodes=[node("slice", axis=1, step=0)]), 400, "parameter", STAYS, "node 'n'"),
    Row("model: a slice by a text", model(nodes=[node("slice", start="one")]), 400, "parameter", STAYS, "node 'n'"),
    Row("model: a concat of one", model(nodes=[node("concat")]), 400, "name", STAYS, "takes 2 to 8 inputs"),
    Row("model: a split into unequal parts", model(nodes=[node("split", axis=1, parts=3)]), 400, "shape", STAYS, "axis 1 has 4 elements, which are no 3 equal parts"),
    Row("model: an expand of two elements", model(nodes=[node("expand", shape=[0, 8])]), 400, "shape", STAYS, "does not broadcast"),
    Row("model: a pad by fewer than 0", model(nodes=[node("pad", axis=1, before=-1)]), 400, "parameter", STAYS, "'before' has -1 for axis 1"),
    Row("model: a window longer than the axis", model(nodes=[node("window", size=8)]), 400, "shape", STAYS, "node 'n' (window): a window takes 8 elements"),
    Row("model: a window without a size", model(nodes=[node("window", stride=1)]), 400, "parameter", STAYS, "node 'n' (window): parameter 'size' is needed"),
    # 32: outputs, initializers
    Row("model: an output that nobody makes", model(outputs=[{"name": "z"}]), 400, "name", STAYS, "'z'"),
    Row("model: an output given twice", model(outputs=[{"name": "y"}, {"name": "y"}]), 400, "name", STAYS, "twice"),
    Row("model: no outputs", model(outputs=[]), 400, "definition", STAYS, "outputs"),
    Row("model: 17 outputs", model(outputs=[{"name": "y"}] * 17), 400, "definition", STAYS, "outputs"),
    Row("model: an output of another shape", model(outputs=[{"name": "y", "datatype": "FP32", "shape": [-1, 5]}]), 400, "shape", STAYS, "'y'"),
    Row("model: an output of another datatype", model(outputs=[{"name": "y", "datatype": "FP16", "shape": [-1, 4]}]), 400, "datatype", STAYS, "'y'"),
    Row("model: an initializer of a file", model(initializers=["w"]), 400, "definition", STAYS, "'w'"),
    Row("model: an initializer of no source", model(initializers=[{"name": "w"}]), 400, "definition", STAYS, "'w'"),
    Row("model: an initializer of two sources", data([1], [1], tensor="w"), 400, "definition", STAYS, "'k'"),
    Row("model: data of another length", data([2], [1]), 400, "count", STAYS, "'k'"),
    Row("model: data that is too long", data([2], [1, 2, 3]), 400, "count", STAYS, "'k'"),
    Row("model: data outside of the datatype", data([1], [300], "UINT8"), 400, "range", STAYS, "'k'"),
    Row("model: data of FP16", data([1], [1], "FP16"), 400, "range", STAYS, "'k'"),
    Row("model: data of a free shape", data([-1], [1]), 400, "shape", STAYS, "'k'"),
    Row("model: too many elements", data([65537], [0] * 65537), 400, "definition", STAYS, "65536"),
    # 33: tensors
    Row("model: an unknown tensor", model(initializers=[{"name": "w", "tensor": "nowhere"}]), 404, "tensor", STAYS, "nowhere"),
    # 34: shapes of inputs
    Row("model: five free lengths", shaped("a", "b", "c", "d", "e"), 400, "shape", STAYS),
    Row("model: five lengths of -1", shaped(-1, -1, -1, -1, -1), 400, "shape", STAYS, "5"),
    Row("model: a dimension of 0", shaped(0), 400, "shape", STAYS),
    Row("model: a dimension of -2", shaped(-2), 400, "shape", STAYS),
    Row("model: a dimension of two words", shaped("a b"), 400, "shape", STAYS),
    Row("model: nine dimensions", shaped(*[1] * 9), 400, "shape", STAYS),
    Row("model: no inputs", model(inputs=[]), 400, "definition", STAYS, "inputs"),
    Row("model: 17 inputs", model(inputs=[{"name": "x%d" % i, "datatype": "FP32", "shape": [1]} for i in range(17)]), 400, "json_limit", STAYS, "inputs"),
    Row("model: an input of BYTES", model(inputs=[{"name": "x", "datatype": "BYTES", "shape": [1]}]), 400, "datatype", STAYS, "BYTES"),
    # 35: members
    Row("model: an unknown member", model(colour=1), 400, "field", STAYS, "colour"),
    Row("model: an unknown member of a node", model(nodes=[dict(RELU, colour=1)]), 400, "field", STAYS, "colour"),
    Row("model: an unknown member of an input", model(inputs=[{"name": "x", "datatype": "FP32", "shape": [4], "colour": 1}]), 400, "field", STAYS, "colour"),
    Row("model: format 2", model(format=2), 400, "definition", STAYS, "format"),
    Row("model: no format", model(format=None), 400, "definition", STAYS, "format"),
    Row("model: fuse is a number", model(fuse=1), 400, "field", STAYS, "fuse"),
    Row("model: a list", put_model("refused", b"[]"), 400, "field", STAYS),
    # 36: text
    Row("model: over 1 MiB", put_model("refused", b" " * ((1 << 20) + 1)), 413, "body_size", STAYS),
    Row("model: depth 17", put_model("refused", b'{"a":' * 17 + b"1" + b"}" * 17), 400, "json_limit", STAYS),
    Row("model: NaN", put_model("refused", b'{"format":NaN}'), 400, "json", STAYS),
    Row("model: bytes behind it", put_model("refused", json.dumps(definition()).encode() + b"x"), 400, "json", STAYS),
    Row("model: nothing", request("PUT", "/v2/models/refused", [("Content-Length", 0)]), 400, "json", STAYS),
    # 37: max_batch
    Row("model: max_batch 0", model(max_batch=0), 400, "definition", STAYS, "max_batch"),
    Row("model: max_batch -1", model(max_batch=-1), 400, "definition", STAYS, "max_batch"),
    Row("model: max_batch 4097", model(max_batch=4097), 400, "definition", STAYS, "4096"),
    Row("model: max_batch as text", model(max_batch="8"), 400, "definition", STAYS, "max_batch"),
    Row("model: max_batch without a batch", shaped(4, max_batch=8), 400, "definition", STAYS, "'x'"),
    Row("model: an output without the batch", model(max_batch=8, nodes=[node("reduce", axis=0)]), 400, "definition", STAYS, "'y'"),
    Row("model: a softmax over the batch", model(max_batch=8, nodes=[node("softmax", axis=0)]), 400, "definition", STAYS, "node 'n' (softmax): it mixes rows of the batch"),
    Row("model: a transpose of the batch", model(max_batch=8, nodes=[node("transpose", perm=[1, 0], name="t", outputs=("v",)), node("transpose", ("v",), perm=[1, 0])]), 400, "definition", STAYS, "node 't' (layout)"),
    Row("model: a reshape of the batch", model(max_batch=8, nodes=[node("reshape", shape=[-1, 2], name="r", outputs=("v",)), node("reshape", ("v",), shape=[-1, 4])]), 400, "definition", STAYS, "node 'r' (reshape)"),
    Row("model: a product of the batch with itself", model(max_batch=8, nodes=[node("matmul", ("x", "x"), transpose_b=True)]), 400, "definition", STAYS, "node 'n' (matmul)"),
    # warm
    Row("model: warm of another input", model(warm=[{"z": [1, 4]}]), 400, "definition", STAYS, "'z'"),
    Row("model: warm of another rank", model(warm=[{"x": [4]}]), 400, "definition", STAYS, "'x'"),
    Row("model: warm of another shape", model(warm=[{"x": [2, 5]}]), 400, "shape", STAYS, "'x'"),
    # 39: names of models
    Row("model: an operation's name", put_model("softmax", definition()), 409, "reserved", STAYS, "softmax"),
    Row("model: a preset's name", put_model("softmax_fp16", definition()), 409, "reserved", STAYS),
    Row("model: unloading an operation", request("DELETE", "/v2/models/softmax"), 409, "reserved", STAYS),
    Row("model: a name of 64 bytes", put_model("m" * 64, definition()), 400, "name", STAYS),
    Row("model: a name with a blank", put_model("a%20b", definition()), 400, "name", STAYS),
    Row("model: a name that begins with a dot", put_model(".x", definition()), 400, "name", STAYS),
    Row("model: unloading what is not there", request("DELETE", "/v2/models/nowhere"), 404, "model", STAYS),
    Row("model: a query", request("PUT", "/v2/models/refused?ttl=4", (), json.dumps(definition()).encode()), 400, "parameter", STAYS, "ttl"),
    Row("model: a definition of an operation", request("GET", "/v2/models/softmax/definition"), 404, "model", STAYS),
    Row("model: a definition as an npy", put_model("refused", b"x", ("Content-Type", "application/x-npy")), 400, "definition", STAYS, "npy"),
    Row("model: a definition in gzip", put_model("refused", b"x", ("Content-Encoding", "gzip")), 415, "encoding", STAYS),
    Row("model: profile of 2", request("POST", "/v2/models/there/infer?shape=1&profile=2", (), bytes(4)), 400, "parameter", STAYS, "must be 0 or 1, got '2'"),
    Row("model: profile as a list", infer('{"parameters":{"profile":[1]},"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}'), 400, "parameter", STAYS),
    Row("model: profile of an operation", request("POST", "/v2/models/softmax/infer?shape=1&profile=1", (), bytes(4)), 400, "parameter", STAYS, "has no parameter 'profile'"),
    # 44 and what a model's own inputs refuse
    Row("model: another datatype", infer('{"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[1]}]}'), 400, "datatype", STAYS),
    Row("model: another rank", infer('{"inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"data":[1]}]}'), 400, "shape", STAYS, "'x'"),
    Row("model: another input", infer('{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}'), 400, "name", STAYS, "INPUT0"),
    Row("model: another output", infer('{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}],"outputs":[{"name":"OUTPUT0"}]}'), 400, "name", STAYS, "OUTPUT0"),
    Row("model: a parameter of an operation", request("POST", "/v2/models/there/raw?shape=1&axis=0", (), bytes(4)), 400, "parameter", STAYS, "axis"),
    Row("model: refused loads leave nothing", request("GET", "/v2/models/refused"), 404, "model", STAYS),
]
