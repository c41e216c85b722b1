"""The forms in which a piece of work travels: JSON, JSON + binary, mixed, OIP raw, plain raw, npy, safetensors; whole,
chunked, compressed.

Owns       Case (model, parameters, inputs, expected), the request bytes of each form, and the reading of an answer back into
           values. FORMS and TRANSPORTS are the lists that tests walk through.
"""

import gzip
import json
import math
import urllib.parse
import zlib

import files
from daemon import chunked, request
from tensors import CURVES, FP8, MODELS, OPS, PLAIN, REFERENCE, TRUTHS, UNIT, Tensor, count, decode, encode, random_tensor

JSON_TYPES = ("FP32", "FP64", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")


class Case:
    def __init__(self, op, inputs, /, model=None, fixed=None, **parameters):
        """inputs: None where an optional one is left out. fixed: parameters that the model's name implies and the request does not repeat."""
        self.op, self.inputs, self.parameters = op, [tensor for tensor in inputs if tensor], parameters
        self.names = ["INPUT%d" % i for i, tensor in enumerate(inputs) if tensor]
        self.gaps = None in inputs
        self.model = model or op
        self.expected = REFERENCE[op](*inputs, **{**(fixed or {}), **parameters})

    def __str__(self):
        shapes = " x ".join(str(t.shape) for t in self.inputs)
        return "%s %s %s %s" % (self.model, self.inputs[0].datatype, shapes, json.dumps(self.parameters))

    def target(self):
        return "/v2/models/%s/infer" % self.model


def json_words(values):
    return [float(v) if isinstance(v, float) else v for v in values]


def _body(case, request_id, binary_inputs, binary_output):
    """JSON head and blobs; binary_inputs is the set of inputs that go as bytes."""
    inputs, blobs = [], []
    for i, tensor in enumerate(case.inputs):
        entry = {"name": case.names[i], "shape": tensor.shape, "datatype": tensor.datatype}
        if i in binary_inputs:
            entry["parameters"] = {"binary_data_size": len(tensor.data)}
            blobs.append(tensor.data)
        else:
            entry["data"] = json_words(tensor.values)
        inputs.append(entry)
    document = {"inputs": inputs}
    if request_id:
        document["id"] = request_id
    if case.parameters:
        document["parameters"] = case.parameters
    if binary_output is not None:
        names = ["OUTPUT%d" % i for i in range(1 + len(case.expected.more) if hasattr(case, "expected") else 1)]
        document["outputs"] = [{"name": name, "parameters": {"binary_data": binary_output}} for name in names]
    head = json.dumps(document).encode()
    headers = [("Inference-Header-Content-Length", len(head))] if blobs else []
    return case.target(), headers, head + b"".join(blobs)


def form_json(case, request_id):
    return _body(case, request_id, set(), None)


def form_binary(case, request_id):
    return _body(case, request_id, set(range(len(case.inputs))), True)


def form_mixed(case, request_id):
    """The last input as bytes, others and the output as JSON; one input: JSON in, bytes out."""
    if len(case.inputs) == 1:
        return _body(case, request_id, set(), True)
    return _body(case, request_id, {len(case.inputs) - 1}, False)


def form_oip_raw(case, _):
    """No JSON at all: the model's only unknown dimension follows from the body's length."""
    return case.target(), [("Inference-Header-Content-Length", 0)], case.inputs[0].data


def form_plain_raw(case, _):
    datatypes = [t.datatype for t in case.inputs]
    query = [("shape", ",".join(map(str, t.shape))) for t in case.inputs]
    query += [("input", name) for name in case.names * case.gaps]
    query += [("datatype", d) for d in (datatypes if len(set(datatypes)) > 1 else datatypes[:1])]
    return _with_query(case, query), [], b"".join(t.data for t in case.inputs)


def query_value(value):
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_query(case, query):
    query = query + [(name, query_value(value)) for name, value in case.parameters.items()]
    return case.target() + ("?" + urllib.parse.urlencode(query, safe=",") if query else "")


def form_npy(case, _):
    """A version by the input's length, so that all are seen; the answer comes as the body came."""
    return _with_query(case, []), [("Content-Type", "application/x-npy")], files.write_npy(case.inputs[0], 1 + len(case.inputs[0].data) // 4 % 3)


def form_npy_fortran(case, _):
    return _with_query(case, []), [("Content-Type", "application/x-npy; v=1")], files.write_npy(case.inputs[0], 1, True)


def form_safetensors(case, _):
    """The last input's bytes first."""
    body = files.write_safetensors(dict(zip(case.names, case.inputs)), {"format": "pt"}, case.names[::-1])
    return _with_query(case, []), [("Content-Type", "application/x-safetensors")], body


def form_json_to_safetensors(case, request_id):
    target, headers, body = form_json(case, request_id)
    return target, headers + [("Accept", "application/x-safetensors")], body


def form_binary_to_npy(case, request_id):
    target, headers, body = _body(case, request_id, set(range(len(case.inputs))), None)
    return target, headers + [("Accept", "application/x-npy")], body


FORMS = {"json": form_json, "binary": form_binary, "mixed": form_mixed, "oip_raw": form_oip_raw, "plain_raw": form_plain_raw,
         "npy": form_npy, "npy_fortran": form_npy_fortran, "safetensors": form_safetensors,
         "json_to_safetensors": form_json_to_safetensors, "binary_to_npy": form_binary_to_npy}


def fits(form, case):
    """Whether a form can carry the case at all."""
    as_json = case.inputs[0].datatype in JSON_TYPES and case.expected.datatype in JSON_TYPES
    if form in ("json", "mixed"):
        return as_json
    if form == "json_to_safetensors":
        return case.inputs[0].datatype in JSON_TYPES
    if form == "binary_to_npy":
        return case.expected.datatype in files.NPY
    if form.startswith("npy"):
        return len(case.inputs) == 1 and {case.inputs[0].datatype, case.expected.datatype} <= set(files.NPY)
    if form == "oip_raw":
        return case.model.endswith("_vec")
    return True


def in_pieces(random, body):
    """The body cut at random places, small pieces among them."""
    pieces = []
    while body:
        size = random.choice((1, 2, 7, 100, 4096, len(body)))
        pieces.append(body[:size])
        body = body[size:]
        if len(pieces) > 200:
            pieces.append(body)
            break
    return pieces


def send_whole(_, target, headers, body):
    return request("POST", target, headers, body)


def send_chunked(random, target, headers, body):
    return chunked("POST", target, headers, in_pieces(random, body))


def send_gzip(_, target, headers, body):
    return request("POST", target, headers + [("Content-Encoding", "gzip")], gzip.compress(body))


def send_deflate(random, target, headers, body):
    return chunked("POST", target, headers + [("Content-Encoding", "deflate")], in_pieces(random, zlib.compress(body)))


TRANSPORTS = {"whole": send_whole, "chunked": send_chunked, "gzip": send_gzip, "deflate, chunked": send_deflate}


class Wrong(Exception):
    """An answer that is not what it must be; the text says where."""


def require(condition, text, *arguments):
    if not condition:
        raise Wrong(text % arguments)


def _read_document(case, form, document, request_id, blob):
    require(document.get("model_name") == case.model, "model_name is %r", document.get("model_name"))
    require(document.get("model_version") == "1", "model_version is %r", document.get("model_version"))
    if form != "oip_raw":
        require(document.get("id") == request_id, "id is %r instead of %r", document.get("id"), request_id)
    require(1 <= len(document["outputs"]) <= 1 + len(case.expected.more), "%d outputs", len(document["outputs"]))
    outputs = []
    for i, output in enumerate(document["outputs"]):
        require(output["name"] == "OUTPUT%d" % i, "output %d is called %r", i, output["name"])
        if "data" in output:
            values = output["data"]
            if output["datatype"] in ("FP32", *FP8):  # the shortest text of a float is not the double that the float equals
                values = decode(output["datatype"], encode(output["datatype"], values))
            require(set(output) == {"name", "datatype", "shape", "data"}, "members %s", sorted(output))
        else:
            size = output["parameters"].get("binary_data_size", 0)
            require(output["parameters"] == {"binary_data_size": size} and size <= len(blob), "parameters %s, %d bytes", output["parameters"], len(blob))
            values, blob = decode(output["datatype"], blob[:size]), blob[size:]
        outputs.append((output["datatype"], output["shape"], values))
    require(not blob, "%d bytes behind the outputs", len(blob))
    return outputs


def read_answer(case, form, answer, request_id):
    """Datatype, shape and values of each output of a 200; raises Wrong for anything else."""
    require(answer is not None, "no answer")
    require(answer.status == 200, "%r", answer)
    if form == "plain_raw":
        require(answer.header("content-type") == "application/octet-stream", "type %s", answer.header("content-type"))
        shape = answer.header("kernserve-shape", "")
        datatype = answer.header("kernserve-datatype")
        return [(datatype, [] if shape == "scalar" else [int(d) for d in shape.split(",")], decode(datatype, answer.body))]
    for kind, read in (("npy", lambda body: [files.read_npy(body)]), ("safetensors", files.read_safetensors)):
        if form.startswith(kind) or form.endswith("_to_" + kind):
            require(answer.header("content-type") == "application/x-" + kind, "type %s", answer.header("content-type"))
            return read(answer.body)
    head = answer.header("inference-header-content-length")
    cut = len(answer.body) if head is None else int(head)
    kind = "application/json" if head is None else "application/octet-stream"
    require(answer.header("content-type") == kind, "type %s", answer.header("content-type"))
    document = json.loads(answer.body[:cut])
    return _read_document(case, form, document, request_id, answer.body[cut:])


def check_answer(case, form, answer, request_id):
    """Raises Wrong unless the answer holds the reference's values within the tolerance. Returns how many outputs it holds."""
    outputs = read_answer(case, form, answer, request_id)
    require(len(outputs) <= 1 + len(case.expected.more), "%d outputs", len(outputs))
    for (datatype, shape, values), expected in zip(outputs, [case.expected, *case.expected.more]):
        require(datatype == expected.datatype, "datatype %s instead of %s", datatype, expected.datatype)
        require(shape == expected.shape, "shape %s instead of %s", shape, expected.shape)
        fault = expected.fault(values)
        require(fault is None, "%s", fault)
    return len(outputs)


def random_shape(random, least, most, longest):
    return [random.randint(1, longest) for _ in range(random.randint(least, most))]


def random_case(random, small=False):
    """Work of any operation with random shape, datatype and parameters."""
    op = random.choice(MODELS)
    return MAKERS[op](random, 6 if small else 40)


def random_softmax(random, longest, datatype=None):
    datatype = datatype or random.choice(("FP32", "FP64", "FP16", "BF16"))
    shape = random_shape(random, 1, 3, longest)
    parameters = {}
    if random.random() < 0.7:
        parameters["axis"] = random.randrange(-len(shape), len(shape))
    if random.random() < 0.3:
        parameters["log"] = True
    if random.random() < 0.3:
        parameters["scale"] = random.choice((0.5, 0.125, 2, -1.5))
    return Case("softmax", [random_tensor(random, datatype, shape)], **parameters)


def random_lengths(random, shape, axis=-1):
    """Of the axis, for the first extents in front of it or for fewer of them."""
    axis %= len(shape)
    rows = shape[:random.randint(0, axis)]
    return Tensor(random.choice(("INT32", "INT64")), rows, [random.randint(0, shape[axis]) for _ in range(count(rows))])


FLOAT_OPS = OPS
INTEGER_OPS = ("sum", "mean", "max", "min", "prod", "argmax", "argmin", "var", "std", "sumsq", "l1norm", "count_nonzero")


def random_reduce(random, longest, datatype=None, op=None):
    datatype = datatype or random.choice(("FP32", "FP64", "FP16", "BF16") + JSON_TYPES[2:])
    shape = random_shape(random, 1, 3, min(longest, 24))
    op = op or random.choice(FLOAT_OPS if datatype[:2] in ("FP", "BF") else INTEGER_OPS)
    x = random_tensor(random, datatype, shape)
    if op == "prod":
        x = factors(random, datatype, shape)
    elif op == "logsum":  # a sum near 0 has no logarithm worth a tolerance
        x = Tensor(datatype, shape, [abs(v) + 0.5 for v in x.values])
    parameters = {"p": random.choice((0, 1, 2, 3, 0.5, "inf", "-inf"))} if op == "norm" else {"ddof": random.choice((0, 1))} if op in ("var", "std") else {}
    axis = random.choice((random.randrange(-len(shape), len(shape)), "all"))
    if len(shape) > 1 and not op.startswith("arg") and random.random() < 0.3:
        axis = ",".join(map(str, random.sample(range(len(shape)), 2)))
    return Case("reduce", [x], op=op, axis=axis, keepdims=random.random() < 0.5, **parameters)


def factors(random, datatype, shape):
    """Factors whose product stays inside the datatype: near 1, or for integers mostly 1 with a few small ones."""
    n = count(shape)
    if datatype[:2] in ("FP", "BF"):
        return Tensor(datatype, shape, [random.choice((1, -1)) * math.exp(random.gauss(0, 0.5 / math.sqrt(n))) for _ in range(n)])
    values = [1] * n
    for place in random.sample(range(n), min(n, 8)):
        values[place] = random.randint(1, 7)
    return Tensor(datatype, shape, values)


def random_matmul(random, longest, datatype=None):
    datatype = datatype or random.choice(("FP32", "FP64", "FP16", "BF16", "INT8", "FP8E4M3"))
    narrow = datatype in ("INT8", "FP8E4M3")
    m, n, k = (random.randint(1, min(longest, 24)) for _ in range(3))
    lead = random.choice(([], [], [2], [3, 2]))
    parameters = {}
    ta, tb = random.random() < 0.3, random.random() < 0.3
    if ta:
        parameters["transpose_a"] = True
    if tb:
        parameters["transpose_b"] = True
    if random.random() < 0.3:
        parameters["alpha"] = random.choice((0.5, -2, 3.25))
    other = [1 if random.random() < 0.3 else d for d in lead]
    a = random_tensor(random, datatype, lead + ([k, m] if ta else [m, k]))
    b = random_tensor(random, datatype, other + ([n, k] if tb else [k, n]), 1.0)
    if not narrow:
        return Case("matmul", [a, b], **parameters)
    scales = [_random_scales(random, extents, random.choice(("tensor", "column"))) if random.random() < 0.6 else None for extents in (lead + [m], other + [n])]
    scales = [one and (one if count(one.shape) == 1 else Tensor("FP32", extents, [math.exp(random.gauss(0, 1)) for _ in range(count(extents))]))
              for one, extents in zip(scales, (lead + [m], other + [n]))]
    if datatype == "INT8" and not any(scales):
        parameters.pop("alpha", None)
    elif random.random() < 0.4:
        parameters["out_datatype"] = random.choice(("FP32", "FP16", "BF16"))
    while scales and not scales[-1]:
        scales.pop()
    return Case("matmul", [a, b, *([None] if scales else []), *scales], **parameters)


def random_norm(random, longest, datatype=None):
    datatype = datatype or random.choice(("FP32", "FP64", "FP16", "BF16"))
    shape = random_shape(random, 1, 3, longest)
    kind = random.choice(("layer", "rms", "l2", "group") if len(shape) > 1 else ("layer", "rms", "l2"))
    parameters, affine = {"kind": kind}, shape[-1:]
    if kind == "group":
        parameters["groups"] = random.choice([g for g in range(1, shape[1] + 1) if shape[1] % g == 0])
        affine = shape[1:2]
    elif random.random() < 0.3:
        axes = random.randint(1, len(shape))
        parameters["axis"] = ",".join(str(i - axes) for i in range(axes))
        affine = shape[-axes:]
    if random.random() < 0.3:
        parameters["eps"] = random.choice((0.001, 1e-5, 1))
    if random.random() < 0.5:
        parameters["activation"] = random.choice(("relu", "gelu", "gelu_tanh", "silu"))
    more = [random_tensor(random, datatype, affine, 1.0) for _ in range(random.randint(0, 2))]
    return Case("norm", [random_tensor(random, datatype, shape), *more], **parameters)


def random_map(random, longest, datatype=None):
    """Operands of which some have one index where the first has more, or no such axis."""
    datatype = datatype or random.choice(("FP32", "FP64", "FP16", "BF16") + JSON_TYPES[2:])
    real = datatype in UNIT
    op = random.choice([*PLAIN, *TRUTHS, *(CURVES if real else ())])
    shape = random_shape(random, 1, 3, min(longest, 24))
    operands = 3 if op == "fma" else 2 if op in ("add", "sub", "mul", "min", "max", "axpy", "div", *TRUTHS) else 1
    parameters = {"op": op}
    if op in ("axpy", "linear"):
        parameters["a"] = random.choice((2, 3, 0.5)) if real else 3
    if op in ("linear", "clamp"):
        parameters["b"] = 5
    if op == "clamp":
        parameters = {"op": op, "a": 1, "b": 5}
    if operands == 2 and op != "axpy" and random.random() < 0.3:
        operands, parameters["a"] = 1, 3
    if op in TRUTHS:
        parameters["out_datatype"] = "UINT8"
    shapes = [shape] + [[1 if random.random() < 0.3 else d for d in shape[random.randrange(len(shape)):]] for _ in range(operands - 1)]
    inputs = [random_tensor(random, datatype, s, 1.0) for s in shapes]
    if op == "div" and operands == 2:
        inputs[1] = Tensor(datatype, shapes[1], [abs(v) + 0.5 for v in inputs[1].values])
    return Case("map", inputs, **parameters)


def random_topk(random, longest, datatype=None):
    datatype = datatype or random.choice(("FP16", "BF16") + JSON_TYPES)
    shape = random_shape(random, 1, 3, longest)
    axis = random.randrange(-len(shape), len(shape))
    parameters = {"k": random.randint(1, shape[axis]), "axis": axis}
    if random.random() < 0.4:
        parameters["largest"] = random.random() < 0.5
    if random.random() < 0.3:
        parameters["sorted"] = random.random() < 0.5
    if random.random() < 0.4:
        parameters["index_datatype"] = random.choice(("INT64", "INT32"))
    return Case("topk", [random_tensor(random, datatype, shape)], **parameters)


def random_search(random, longest, datatype=None, metric=None):
    """Small integers, so that products and distances are exact and ties are the rule's; cosines of few rows, which differ."""
    datatype, metric = datatype if datatype == "FP32" else random.choice(("FP32", "FP16", "BF16")), metric or random.choice(("dot", "l2", "cosine"))
    queries, rows, depth = random.randint(1, 5), random.randint(1, 9 if metric == "cosine" else 60), random.randint(3, min(longest, 24))
    pair = [Tensor(datatype, [n, depth], [random.gauss(0, 1) if metric == "cosine" else random.randint(-3, 3) for _ in range(n * depth)])
            for n in (queries, rows)]
    bias = [Tensor("FP32", [rows], [random.randint(-9, 9) for _ in range(rows)])] if random.random() < 0.4 else []
    parameters = {"k": random.randint(1, rows)}
    if metric != "dot" or random.random() < 0.3:
        parameters["metric"] = metric
    return Case("search", [*pair, *bias], **parameters)


def random_attention(random, longest, datatype=None):
    datatype, layout = datatype if datatype == "FP32" else random.choice(("FP32", "FP16", "BF16")), random.choice(("bhsd", "bshd"))
    batches, kv_heads, group, queries, keys = (random.randint(1, most) for most in (2, 2, 3, 4, 20))
    depth, value_depth, rank = random.randint(1, min(longest, 20)), random.randint(1, min(longest, 12)), random.choice((2, 3, 4, 4))
    batches, kv_heads, group = batches if rank == 4 else 1, kv_heads if rank > 2 else 1, group if rank > 2 else 1
    def shape(heads, rows, length):
        return [batches, *((heads, rows) if layout == "bhsd" else (rows, heads)), length][4 - rank:] if rank > 2 else [rows, length]
    inputs = [random_tensor(random, datatype, one) for one in (shape(kv_heads * group, queries, depth), shape(kv_heads, keys, depth), shape(kv_heads, keys, value_depth))]
    mask = lengths = None
    if random.random() < 0.3:
        of = [batches, kv_heads * group, queries, keys][4 - rank:]
        of = [n if i + 1 == len(of) or random.random() < 0.5 else 1 for i, n in enumerate(of)]
        mask = random_tensor(random, random.choice(("FP32", datatype)), of)
    if random.random() < 0.3:
        lengths = Tensor(random.choice(("INT32", "INT64")), [batches], [random.randint(0, keys) for _ in range(batches)])
    parameters = {"layout": layout} if layout == "bshd" else {}
    if random.random() < 0.5:
        parameters["causal"] = random.choice(("top_left", "bottom_right"))
        if random.random() < 0.5:
            parameters["window"] = random.randint(1, keys)
    if random.random() < 0.3:
        parameters["softcap"] = 3.5
    if random.random() < 0.3:
        parameters["scale"] = random.choice((0.5, 0.125))
    if random.random() < 0.4:
        parameters["lse"] = True
    return Case("attention", [*inputs, mask, lengths], **parameters)


SCANS = ("sum", "prod", "max", "min", "logsumexp")


def random_scan(random, longest, datatype=None, op=None):
    datatype = datatype or random.choice(("FP16", "BF16") + JSON_TYPES)
    shape = random_shape(random, 1, 3, min(longest, 24))
    op = op or random.choice(SCANS)
    parameters = {"op": op, "axis": random.randrange(-len(shape), len(shape))}
    for name in ("exclusive", "reverse"):
        if random.random() < 0.5:
            parameters[name] = random.random() < 0.6
    return Case("scan", [factors(random, datatype, shape) if op == "prod" else random_tensor(random, datatype, shape)], **parameters)


def random_histogram(random, longest, datatype=None):
    datatype = datatype or random.choice(("FP16", "BF16") + JSON_TYPES)
    shape = random_shape(random, 1, 3, min(longest, 24))
    parameters = {"bins": random.choice((1, 2, 7, 10, 100, 256, 600))}
    x = random_tensor(random, datatype, shape)
    if datatype in UNIT or random.random() < 0.5:
        middle = random.gauss(0, 1)
        parameters["min"], parameters["max"] = (round(middle + far, 3) for far in (-random.uniform(0.5, 3), random.uniform(0.5, 3)))
    else:
        low = 0 if datatype[0] == "U" else -4
        x = Tensor(datatype, shape, [random.randint(low, 120) for _ in range(count(shape))])
    if random.random() < 0.5:
        first = random.randrange(len(shape))
        parameters["axis"] = ",".join(str(i) for i in range(first, len(shape)))
    if random.random() < 0.4:
        parameters["edges"] = True
    return Case("histogram", [x], **parameters)


def random_gather(random, longest, datatype=None):
    bags = random.random() < 0.3
    if datatype is None:
        datatype = random.choice(("FP32", "FP64", "FP16", "BF16") + (() if bags else ("INT8", "UINT16", "INT64")))
    table = random_tensor(random, datatype, random_shape(random, 1, 3, longest))
    rank, mode = len(table.shape), random.choice(("error", "wrap", "clip"))
    axis, parameters = 0 if bags else random.randrange(rank), {"mode": mode} if mode != "error" or random.random() < 0.5 else {}
    extent = table.shape[axis]
    shape = [random.randint(0, longest)] if bags else random_shape(random, 1, 2, 12)
    if not bags and random.random() < 0.4:
        parameters["kind"] = "elements"
        shape = table.shape[:axis] + [random.randint(1, 9)] + table.shape[axis + 1:]
    low, high = (-extent, extent - 1) if mode == "error" else (-3 * extent, 3 * extent)
    indices = Tensor(random.choice(("INT32", "INT64")), shape, [random.randint(low, high) for _ in range(count(shape))])
    if not bags:
        parameters["axis"] = axis - random.choice((0, rank))
        return Case("gather", [table, indices], **parameters)
    parameters["op"] = random.choice(("sum", "mean", "max"))
    cuts = sorted(random.randint(0, shape[0]) for _ in range(random.randint(0, 6)))
    offsets = Tensor(random.choice(("INT32", "INT64")), [len(cuts) + 2], [0, *cuts, shape[0]])
    weights = [random_tensor(random, random.choice((datatype, "FP32")), shape, 1.0)] if random.random() < 0.5 else []
    return Case("gather", [table, indices, offsets, *weights], **parameters)


LAYOUTS = ("transpose", "slice", "pad", "concat", "reshape", "split", "expand", "tile")


def random_layout(random, longest, datatype=None, op=None):
    op, datatype = op or random.choice(LAYOUTS), datatype or random.choice(("FP16", "BF16") + JSON_TYPES)
    shape = random_shape(random, 1, 4, min(longest, 12))
    rank, parameters, more = len(shape), {"op": op}, []
    if op == "transpose" and random.random() < 0.8:
        parameters["axes"] = [axis - random.choice((0, rank)) for axis in random.sample(range(rank), rank)]
    elif op == "slice" and random.random() < 0.3:
        axis = random.randrange(rank)
        start, end = sorted((random.randint(0, shape[axis]), random.randint(0, shape[axis])))
        parameters.update(axis=axis - random.choice((0, rank)), starts=[start], ends=[end], steps=[random.randint(1, 3)])
    elif op == "slice":
        starts, sizes, steps = [], [], []
        for n in shape:
            step = random.choice((1, 1, 2, 3, -1, -2))
            start = random.randrange(n)
            rest = len(range(start, n, step) if step > 0 else range(start, -1, step))
            starts.append(start - random.choice((0, n)))
            sizes.append(random.choice((-1, rest, random.randint(0, rest))))
            steps.append(step)
        parameters.update(starts=starts, sizes=sizes, steps=steps)
    elif op == "pad":
        mode = parameters["mode"] = random.choice(("constant", "edge", "reflect"))
        for name in ("before", "after"):
            if random.random() < 0.8:
                parameters[name] = [random.randint(0, n - 1 if mode == "reflect" else 3) for n in shape]
        if mode == "constant" and random.random() < 0.8:
            parameters["value"] = random.choice((1.5, -0.25)) if datatype in UNIT else random.randint(0, 127)
    elif op == "concat":
        axis = random.randrange(rank)
        parameters["axis"] = axis - random.choice((0, rank))
        more = [shape[:axis] + [random.randint(1, 5)] + shape[axis + 1:] for _ in range(random.randint(1, 7))]
    elif op == "split":
        axis, parts = random.randrange(rank), random.randint(1, 4)
        shape[axis] *= parts
        parameters.update(axis=axis - random.choice((0, rank)), parts=parts, part=random.randrange(-parts, parts))
    elif op == "expand":
        shape = [random.choice((1, n)) for n in shape]
        parameters["new_shape"] = random.choice(([], [2])) + [random.choice((0, random.randint(1, 4) if n == 1 else n)) for n in shape]
    elif op == "tile":
        parameters.update(random.choice((dict(repeats=[random.randint(0, 3) for _ in shape]), dict(repeats=[random.randint(1, 4)], axis=-1))))
    elif op == "reshape":
        parameters["new_shape"] = [[-1], [0, -1], [count(shape), 1], shape[::-1], [1, *shape]][random.randrange(5)]
    return Case("layout", [random_tensor(random, datatype, each) for each in [shape] + more], **parameters)


def random_window(random, longest, datatype=None, layout=None):
    spatial, lead, layout = random.randint(1, 2), random.randint(0, 2), layout or random.choice(("nhwc", "nchw"))
    datatype = datatype or random.choice(("FP16", "BF16") + JSON_TYPES)
    extents, channels = [random.randint(1, min(longest, 9)) for _ in range(spatial)], random.randint(1, 5)
    size = [random.randint(1, min(n, 3)) for n in extents]
    parameters = {"size": size, "layout": layout}
    if random.random() < 0.6:
        parameters["stride"] = random.choice(([random.randint(1, 3)], [random.randint(1, 3) for _ in size]))
    how = random.choice(("none", "pad", "both sides", "same_upper", "same_lower"))
    if how.startswith("same"):
        parameters["auto_pad"] = how
    elif how != "none":
        parameters["pad"] = [random.randint(0, 2) for _ in range(spatial * (1 if how == "pad" else 2))]
    if how != "none" and random.random() < 0.7:
        parameters["value"] = random.choice((1.5, -0.25)) if datatype in UNIT else random.randint(0, 127)
    if how.startswith("same") or all((s - 1) * 2 < n for s, n in zip(size, extents)):
        parameters["dilation"] = [2]
    inner = [channels, *extents] if layout == "nchw" else [*extents, channels]
    return Case("window", [random_tensor(random, datatype, [random.randint(1, 3) for _ in range(lead)] + inner)], **parameters)


def _random_scales(random, shape, per):
    extents = shape[:-1] if per == "row" else shape[-1:] if per == "column" else [1]
    return Tensor("FP32", extents, [math.exp(random.gauss(0, 2)) for _ in range(count(extents))])


def random_quantize(random, longest, datatype=None):
    datatype = datatype if datatype in ("FP32", "FP16", "BF16") else random.choice(("FP32", "FP16", "BF16"))
    shape, per = random_shape(random, 1, 3, min(longest, 24)), random.choice(("tensor", "row", "column"))
    parameters = {"scale_per": per} if per != "tensor" or random.random() < 0.3 else {}
    if random.random() < 0.6:
        parameters["out_datatype"] = random.choice(("INT8", "FP8E4M3", "FP8E5M2"))
    return Case("quantize", [random_tensor(random, datatype, shape)] + [_random_scales(random, shape, per)] * (random.random() < 0.3), **parameters)


def random_dequantize(random, longest, datatype=None):
    shape, per = random_shape(random, 1, 3, min(longest, 24)), random.choice(("tensor", "row", "column"))
    parameters = {"scale_per": per} if per != "tensor" or random.random() < 0.3 else {}
    if random.random() < 0.6:
        parameters["out_datatype"] = datatype if datatype == "FP32" else random.choice(("FP32", "FP16", "BF16"))
    x = random_tensor(random, random.choice(("INT8", "FP8E4M3", "FP8E5M2")), shape)
    return Case("dequantize", [x, _random_scales(random, shape, per)], **parameters)


MAKERS = {"softmax": random_softmax, "reduce": random_reduce, "matmul": random_matmul, "norm": random_norm, "map": random_map,
          "topk": random_topk, "scan": random_scan, "histogram": random_histogram, "gather": random_gather,
          "layout": random_layout, "window": random_window, "search": random_search, "attention": random_attention,
          "quantize": random_quantize, "dequantize": random_dequantize}
