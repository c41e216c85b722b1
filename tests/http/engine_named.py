#!/usr/bin/env python3
"""Requests that name resident tensors: every operation, datatype, form and choice of named inputs against float64;
outputs that stay, regions tensor:NAME, a head that was read before, large requests, contents that are replaced and deleted while
they are in use; and what is refused. At the end nothing is held.

engine_named.py DAEMON [BACKEND]     cpu, where none is named
"""
import json
import struct
import sys
import threading
import time
import urllib.parse

import files
import forms
import refusals
from daemon import Daemon, check, daemon_path, request, seed, settle, wrongs
from forms import JSON_TYPES, MAKERS, Case, check_answer, json_words
from refusal_rows import Row, STAYS, post, tensor
from tensors import Tensor, decode, encode, random_tensor

SOFTMAX, REDUCE, MATMUL = ("/v2/models/%s/infer" % name for name in ("softmax", "reduce", "matmul"))
BACKEND = sys.argv[2] if len(sys.argv) > 2 else "cpu"
NPY, SAFE = [("Content-Type", "application/x-npy")], [("Content-Type", "application/x-safetensors")]


def put(name, tensor):
    query = urllib.parse.urlencode({"shape": ",".join(map(str, tensor.shape)), "datatype": tensor.datatype}, safe=",")
    return request("PUT", "/v2/tensors/%s?%s" % (name, query), (), tensor.data)


def ask(connection, data, status=200):
    answer = connection.ask(data)
    check(answer is not None and answer.status == status, "%s instead of %d for %r" % (answer, status, data[:200]))
    return answer


def same(left, right):
    """Equal bytes of FP32; a GPU may have another kernel for a product whose operand lies elsewhere."""
    if BACKEND == "cpu" or len(left) != len(right):
        return left == right
    return all(abs(a - b) <= 1e-4 * max(1, abs(b)) for a, b in zip(decode("FP32", left), decode("FP32", right)))


def query_of(case, named, more=()):
    """Of the forms whose parameters come from the query; in either case of the letters."""
    pairs = [("input%d" % i if i % 2 else "INPUT%d" % i, "@t%d" % i) for i in sorted(named)] + list(more)
    pairs += [(name, str(value).lower() if isinstance(value, bool) else value) for name, value in case.parameters.items()]
    return case.target() + "?" + urllib.parse.urlencode(pairs, safe=",@")


def raw_form(case, named, outputs):
    others = [t for i, t in enumerate(case.inputs) if i not in named]
    more = [("shape", ",".join(map(str, t.shape))) for t in others]
    if not named:
        more.append(("datatype", case.inputs[0].datatype))
    return query_of(case, named, more + outputs), [], b"".join(t.data for t in others)


def npy_form(case, named, outputs):
    others = [t for i, t in enumerate(case.inputs) if i not in named]
    return query_of(case, named, outputs), NPY, files.write_npy(others[0], 1) if others else b""


def safetensors_form(case, named, outputs):
    others = {"INPUT%d" % i: t for i, t in enumerate(case.inputs) if i not in named}
    return query_of(case, named, outputs), SAFE, files.write_safetensors(others, None, list(others)) if others else b""


def body_form(case, named, binary, output):
    """JSON, with the inputs that are not named in it or behind it. Datatype and shape beside a name may be there."""
    inputs, blobs = [], []
    for i, t in enumerate(case.inputs):
        entry = {"name": "INPUT%d" % i}
        if i not in named or i % 2:
            entry.update(shape=t.shape, datatype=t.datatype)
        if i in named:
            entry["parameters"] = {"tensor": "t%d" % i}
        elif binary:
            entry["parameters"] = {"binary_data_size": len(t.data)}
            blobs.append(t.data)
        else:
            entry["data"] = json_words(t.values)
        inputs.append(entry)
    document = {"inputs": inputs, "parameters": case.parameters, "outputs": [{"name": "OUTPUT0", "parameters": output}]}
    head = json.dumps(document).encode()
    return case.target(), [("Inference-Header-Content-Length", len(head))] if binary else [], head + b"".join(blobs)


def fits(form, case, named):
    others = [t for i, t in enumerate(case.inputs) if i not in named]
    if form == "json":
        return all(t.datatype in JSON_TYPES for t in others) and case.expected.datatype in JSON_TYPES
    return form != "npy" or (len(others) < 2 and case.inputs[0].datatype in files.NPY and case.expected.datatype in files.NPY)


NAMED_FORMS = {"plain_raw": lambda case, named: raw_form(case, named, []),
               "npy": lambda case, named: npy_form(case, named, []),
               "safetensors": lambda case, named: safetensors_form(case, named, []),
               "json": lambda case, named: body_form(case, named, False, {}),
               "binary": lambda case, named: body_form(case, named, True, {"binary_data": True})}
STORED_FORMS = {"plain_raw": lambda case, named: raw_form(case, named, [("OUTPUT0", "@h"), ("ttl", "60")]),
                "npy": lambda case, named: npy_form(case, named, [("output0", "@h")]),
                "safetensors": lambda case, named: safetensors_form(case, named, [("OUTPUT0", "@h")]),
                "json": lambda case, named: body_form(case, named, False, {"tensor": "h", "ttl": 60}),
                "binary": lambda case, named: body_form(case, named, True, {"tensor": "h"})}


def values_of(connection, case):
    """Every set of named inputs, in every form that carries it; the output in the answer, and as a tensor."""
    for i, t in enumerate(case.inputs):
        connection.ask(put("t%d" % i, t))
    for named in ({i for i in range(len(case.inputs)) if bits >> i & 1} for bits in range(1, 1 << len(case.inputs))):
        for form in NAMED_FORMS:
            if not fits(form, case, named):
                continue
            try:
                check_answer(case, form, ask(connection, request("POST", *NAMED_FORMS[form](case, named))), None)
            except forms.Wrong as wrong:
                check(False, "%s, %s, inputs %s named: %s" % (case, form, sorted(named), wrong))
            stored_of(connection, case, form, named)


def stored_of(connection, case, form, named):
    answer = ask(connection, request("POST", *STORED_FORMS[form](case, named)))
    check(answer.header("kernserve-tensor") == "h", "the output that stays has no field", answer.headers)
    shape = case.expected.shape
    if form in ("json", "binary"):
        output = {"name": "OUTPUT0", "datatype": case.expected.datatype, "shape": shape}
        check(json.loads(answer.body)["outputs"] == [output], "the output that stays", answer.body)
    else:
        fields = answer.header("kernserve-datatype"), answer.header("kernserve-shape"), answer.body
        check(fields == (case.expected.datatype, ",".join(map(str, shape)) or "scalar", b""), "the output that stays", fields)
    stored = ask(connection, request("GET", "/v2/tensors/h"))
    plain = ask(connection, request("POST", *NAMED_FORMS["plain_raw"](case, named)))
    check(stored.body == plain.body, "%s: the output that stays is another one" % case)


def every_operation(daemon, generator):
    floats = ("FP32", "FP64", "FP16", "BF16")
    with daemon.connect() as connection:
        for op, datatypes in (("softmax", floats), ("matmul", floats), ("reduce", floats + JSON_TYPES[2:])):
            for datatype in datatypes * 2:
                values_of(connection, MAKERS[op](generator, 9, datatype))
        a, b, bias = (random_tensor(generator, "FP32", shape, 1.0) for shape in ([3, 5], [5, 4], [4]))
        biased(connection, a, b, bias)


def biased(connection, a, b, bias):
    """An optional input is named like any other."""
    for name, t in (("t0", a), ("t1", b), ("t2", bias)):
        connection.ask(put(name, t))
    whole = ask(connection, request("POST", MATMUL + "?shape=3,5&shape=5,4&shape=4&datatype=FP32", (), a.data + b.data + bias.data))
    for query, body in (("INPUT2=@t2&shape=3,5&shape=5,4", a.data + b.data), ("INPUT0=@t0&INPUT1=@t1&INPUT2=@t2", b""),
                        ("INPUT1=@t1&shape=3,5&shape=4", a.data + bias.data),
                        ("INPUT1=@t1&input=INPUT2&shape=4&input=INPUT0&shape=3,5", bias.data + a.data)):
        check(same(ask(connection, request("POST", MATMUL + "?" + query, (), body)).body, whole.body), "a bias: " + query)


def left_out(connection):
    """A query without datatypes: an input that does not take the named tensor's has its own, of an operation and of a definition."""
    rows, ends, places = Tensor("FP32", [3, 2], [1, 2, 3, 4, 5, 6]), Tensor("INT32", [3], [1, 0, 2]), Tensor("INT32", [2], [-1, 0])
    ask(connection, put("rows", rows), 201)
    answer = ask(connection, request("POST", "/v2/models/gather/infer?shape=2&INPUT0=@rows", (), places.data))
    check(answer.body == encode("FP32", [5, 6, 1, 2]), "indices into a table that stays", answer)
    with_all = ask(connection, request("POST", "/v2/models/softmax_lengths/infer?shape=3,2&shape=3", (), rows.data + ends.data))
    check(ask(connection, request("POST", "/v2/models/softmax_lengths/infer?shape=3&INPUT0=@rows", (), ends.data)).body == with_all.body, "lengths beside rows that stay")
    npy = request("POST", "/v2/models/softmax_lengths/infer?INPUT0=@rows", NPY, files.write_npy(ends, 1))
    answer = ask(connection, npy)
    check(answer.body.endswith(b"\n" + with_all.body), "lengths of a file beside rows that stay", answer)
    check(ask(connection, request("POST", "/v2/models/map/infer?shape=1&INPUT0=@rows&op=add&INPUT2=@rows", (), bytes(4)), 400).header("kernserve-error") == "name", "an operand too many")
    definition = {"format": 1, "inputs": [{"name": "table", "datatype": "FP32", "shape": [-1, 2]}, {"name": "places", "datatype": "INT64", "shape": ["n"]}],
                  "nodes": [{"name": "pick", "op": "gather", "inputs": ["table", "places"], "outputs": ["picked"]}], "outputs": [{"name": "picked"}]}
    ask(connection, request("PUT", "/v2/models/pick", (), json.dumps(definition).encode()), 201)
    answer = ask(connection, request("POST", "/v2/models/pick/infer?shape=1&INPUT0=@rows", (), encode("INT64", [2])))
    check(answer.body == encode("FP32", [5, 6]), "an input that the definition declares", answer)
    for name in ("tensors/rows", "models/pick"):
        ask(connection, request("DELETE", "/v2/" + name), 204)


def vectors(daemon, generator):
    """OIP raw: no shape at all."""
    x = random_tensor(generator, "FP32", [100])
    case = Case("reduce", [x], model="reduce_vec", fixed={"op": "sum"})
    with daemon.connect() as connection:
        connection.ask(put("t0", x))
        answer = ask(connection, request("POST", case.target() + "?INPUT0=@t0", [("Inference-Header-Content-Length", 0)]))
        check_answer(case, "oip_raw", answer, None)


def region(name, size, more=""):
    return '"parameters":{"shared_memory_region":"tensor:%s","shared_memory_byte_size":%d%s}' % (name, size, more)


def regions(daemon, generator):
    """As tritonclient sends them, without --allow-client-shm; the head is read once and its names are looked up each time."""
    x = random_tensor(generator, "FP32", [2, 3])
    body = '{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2,3],%s}],"outputs":[{"name":"OUTPUT0",%s}]}' % (region("x", 24), region("y", 24))
    with daemon.connect() as connection:
        for factor in (1, 2, 3):
            scaled = Tensor("FP32", [2, 3], [factor * v for v in x.values])
            ask(connection, put("x", scaled), 201 if factor == 1 else 200)
            document = json.loads(ask(connection, post(SOFTMAX, body)).body)
            check(document["outputs"] == [{"name": "OUTPUT0", "datatype": "FP32", "shape": [2, 3]}], "a region", document)
            plain = ask(connection, request("POST", SOFTMAX + "?shape=2,3&datatype=FP32", (), scaled.data))
            check(ask(connection, request("GET", "/v2/tensors/y")).body == plain.body, "the region that was put anew")


def heads(daemon):
    """A head in front of bytes, sent again while its tensor is another one, of another shape, gone."""
    x = Tensor("FP32", [1, 2], [1, 2])
    head = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8}},
                                  {"name": "INPUT1", "parameters": {"tensor": "w"}}], "parameters": {"binary_data_output": True}}).encode()
    data = request("POST", MATMUL, [("Inference-Header-Content-Length", len(head))], head + x.data)
    with daemon.connect() as connection:
        for shape, values in (([2, 1], [3, 4]), ([2, 1], [5, 6]), ([2, 2], [1, 0, 0, 1])) * 3:
            connection.ask(put("w", Tensor("FP32", shape, values)))
            for _ in range(3):
                answer = ask(connection, data)
                cut = int(answer.header("inference-header-content-length"))
                columns = [values[i::shape[1]] for i in range(shape[1])]
                check(answer.body[cut:] == encode("FP32", [c[0] + 2 * c[1] for c in columns]), "a head that was read before")
        ask(connection, request("DELETE", "/v2/tensors/w"), 204)
        check(ask(connection, data, 404).header("kernserve-error") == "tensor", "a deleted tensor")


def large(daemon, generator):
    """Above the slots: rows that come while INPUT1 is there, and inputs that are all there."""
    rows, k = 8192, 1024
    x, w = (random_tensor(generator, "FP32", shape, 1.0) for shape in ([64, k], [k, 8]))
    x = type("Rows", (), {"datatype": "FP32", "shape": [rows, k], "data": x.data * (rows // 64)})
    with daemon.connect(60) as connection:
        ask(connection, put("X", x), 201)
        ask(connection, put("W", w), 201)
        whole = ask(connection, request("POST", MATMUL + "?shape=%d,%d&shape=%d,8&datatype=FP32" % (rows, k, k), (), x.data + w.data))
        for query, body in (("shape=%d,%d&INPUT1=@W" % (rows, k), x.data), ("INPUT0=@X&shape=%d,8" % k, w.data), ("INPUT0=@X&INPUT1=@W", b"")):
            check(same(ask(connection, request("POST", MATMUL + "?" + query, (), body)).body, whole.body), "a large request: " + query)
        plain = ask(connection, request("POST", SOFTMAX + "?shape=%d,%d&datatype=FP32" % (rows, k), (), x.data))
        check(same(ask(connection, request("POST", SOFTMAX + "?INPUT0=@X")).body, plain.body), "a large output of a resident input")
        ask(connection, request("POST", SOFTMAX + "?INPUT0=@X&OUTPUT0=@X"))
        check(same(ask(connection, request("GET", "/v2/tensors/X")).body, plain.body), "a large output that takes its input's name")
        for name in "XW":
            ask(connection, request("DELETE", "/v2/tensors/" + name), 204)


def in_use(daemon):
    """Each answer is by one content, whole, or says that there is none."""
    n, until = 64, time.monotonic() + 2
    contents = [Tensor("FP32", [n, n], [factor] * (n * n)) for factor in (1, 2, 3)]
    row = Tensor("FP32", [1, n], [1] * n)
    good = {encode("FP32", [n * factor] * n) for factor in (1, 2, 3)}
    seen = []

    def infer():
        with daemon.connect() as connection:
            while time.monotonic() < until:
                answer = connection.ask(request("POST", MATMUL + "?shape=1,%d&INPUT1=@moving" % n, (), row.data))
                seen.append(answer.status if answer.status != 200 or answer.body in good else "mixed")

    threads = [threading.Thread(target=infer) for _ in range(4)]
    for thread in threads:
        thread.start()
    with daemon.connect() as connection:
        step = 0
        while time.monotonic() < until:
            step += 1
            data = request("DELETE", "/v2/tensors/moving") if step % 7 == 0 else put("moving", contents[step % 3])
            check(connection.ask(data).status in (200, 201, 204, 404), "a change under load")
            time.sleep(0.005)
        connection.ask(request("DELETE", "/v2/tensors/moving"))
    for thread in threads:
        thread.join()
    check(set(seen) <= {200, 404} and seen.count(200) > 0, "replaced in use", {status: seen.count(status) for status in set(seen)})


def one(source, name="INPUT0", more="", to=SOFTMAX, outputs=""):
    return post(to, '{"inputs":[{"name":"%s",%s"parameters":{%s}}]%s}' % (name, more, source, outputs))


def named(query, body=b"", to=SOFTMAX):
    return request("POST", to + "?" + query, (), body)


STORED = ',"outputs":[{"name":"OUTPUT0","parameters":{%s}}]'
T = '"tensor":"four"'
# four: [1,4] FP32; whole: [4] INT32
ROWS = [
    Row("an unknown tensor", named("INPUT0=@none"), 404, "tensor", STAYS, "'none'"),
    Row("an unknown tensor in JSON", one('"tensor":"none"'), 404, "tensor", STAYS),
    Row("an unknown tensor beside an npy file", request("POST", MATMUL + "?INPUT1=@none", NPY, files.write_npy(Tensor("FP32", [1, 4], [1, 2, 3, 4]), 1)), 404, "tensor", STAYS),
    Row("a tensor and data", post(SOFTMAX, '{"inputs":[%s]}' % tensor(more=',"parameters":{%s}' % T)), 400, "count", STAYS, "'data' 'tensor' are set"),
    Row("a tensor and a binary size", one(T + ',"binary_data_size":16'), 400, "count", STAYS),
    Row("a tensor and a region", one(T + ',"shared_memory_region":"r"'), 400, "count", STAYS),
    Row("a tensor's name is a number", one('"tensor":4'), 400, "field", STAYS),
    Row("a tensor's name is empty", one('"tensor":""'), 400, "name", STAYS),
    Row("a tensor's name of 129 bytes", one('"tensor":"%s"' % ("n" * 129)), 400, "name", STAYS),
    Row("another datatype beside a tensor", one(T, more='"datatype":"FP16",'), 400, "datatype", STAYS, "'four'"),
    Row("another shape beside a tensor", one(T, more='"shape":[4,1],'), 400, "shape", STAYS, "[1,4]"),
    Row("a shape of text beside a tensor", one(T, more='"shape":["1",4],'), 400, "shape", STAYS),
    Row("another datatype in the query", named("INPUT0=@four&datatype=FP64"), 400, "datatype", STAYS),
    Row("a tensor that the operation does not take", named("INPUT0=@whole"), 400, "datatype", STAYS),
    Row("a tensor of another datatype than the body", named("shape=2,1&datatype=FP64&INPUT1=@four", bytes(16), MATMUL), 400, "datatype", STAYS),
    Row("a tensor whose inner size differs", named("shape=2,3&INPUT1=@four", bytes(24), MATMUL), 400, "shape", STAYS),
    Row("region: offset 1", post(SOFTMAX, '{"inputs":[{"name":"INPUT0",%s}]}' % region("four", 16, ',"shared_memory_offset":1')), 400, "shared_memory", STAYS),
    Row("region: another size", post(SOFTMAX, '{"inputs":[{"name":"INPUT0",%s}]}' % region("four", 8)), 400, "binary_size", STAYS),
    Row("region: another size of an output", one(T, outputs=',"outputs":[{"name":"OUTPUT0",%s}]' % region("h", 17)), 400, "shared_memory", STAYS),
    Row("region: no such tensor", post(SOFTMAX, '{"inputs":[{"name":"INPUT0",%s}]}' % region("none", 16)), 404, "tensor", STAYS),
    Row("region: registered", post("/v2/systemsharedmemory/region/tensor:four/register", '{"key":"/x","byte_size":16}'), 400, "shared_memory", STAYS),
    Row("an input's name without @", named("shape=1,4&datatype=FP32&INPUT1=four", bytes(16), MATMUL), 400, "parameter", STAYS, "@NAME"),
    Row("an input that the model lacks", named("INPUT9=@four"), 400, "name", STAYS),
    Row("an input that is named twice", named("INPUT0=@four&input0=@four"), 400, "name", STAYS),
    Row("an input that is named and has a shape", named("INPUT0=@four&input=INPUT0&shape=1,4", bytes(16)), 400, "name", STAYS),
    Row("a shape too many", named("INPUT0=@four&shape=1,4&shape=4&shape=1", bytes(36)), 400, "name", STAYS),
    Row("a body where every input is named", named("INPUT0=@four", bytes(4)), 400, "binary_size", STAYS),
    Row("an npy body where every input is named", request("POST", "/v2/models/scan/infer?INPUT0=@four", NPY, files.write_npy(Tensor("FP32", [1], [1]), 1)), 400, "name", STAYS),
    Row("a safetensors input that is named too", request("POST", MATMUL + "?INPUT0=@four", SAFE, files.write_safetensors({"INPUT0": Tensor("FP32", [1], [1])}, None, ["INPUT0"])), 400, "name", STAYS),
    Row("a named input beside JSON", post(SOFTMAX + "?OUTPUT0=@h", '{"inputs":[%s]}' % tensor()), 400, "parameter", STAYS),
    Row("an output with a bad name", named("INPUT0=@four&OUTPUT0=@.h"), 400, "name", STAYS),
    Row("an output that the model lacks", named("INPUT0=@four&OUTPUT1=@h"), 400, "name", STAYS),
    Row("no room for an output", named("INPUT0=@wide&INPUT1=@tall&OUTPUT0=@h", to=MATMUL), 507, "resident_full", STAYS),
    Row("an output that is classes too", one(T, outputs=STORED % '"tensor":"h","classification":1'), 400, "parameter", STAYS),
    Row("an output that is binary too", one(T, outputs=STORED % '"tensor":"h","binary_data":true'), 400, "parameter", STAYS),
    Row("ttl of text", named("INPUT0=@four&OUTPUT0=@h&ttl=x"), 400, "parameter", STAYS),
    Row("ttl of over 10 years", one(T, outputs=STORED % '"tensor":"h","ttl":315360001'), 400, "parameter", STAYS),
    Row("ttl without an output that stays", named("INPUT0=@four&ttl=60"), 400, "parameter", STAYS),
]


def refused(daemon):
    with daemon.connect() as connection:
        for name, t in (("four", Tensor("FP32", [1, 4], [1, 2, 3, 4])), ("whole", Tensor("INT32", [4], [1, 2, 3, 4])),
                        ("wide", Tensor("FP32", [4000, 1], [1] * 4000)), ("tall", Tensor("FP32", [1, 4000], [1] * 4000))):
            ask(connection, put(name, t), 201)
        check(refusals.walk(daemon, ROWS) == 0, "rows that are refused")
        check("h" not in names_of(connection), "a refused request stored its output")


def names_of(connection):
    return {e["name"]: e for e in json.loads(ask(connection, request("GET", "/v2/tensors")).body)["tensors"]}


def main():
    generator = seed()
    with Daemon(daemon_path(), "--backend", BACKEND, "--pinned-bytes", "64M", "--resident-bytes", "48M") as daemon:
        vectors(daemon, generator)
        regions(daemon, generator)
        heads(daemon)
        refused(daemon)
    with Daemon(daemon_path(), "--backend", BACKEND, "--pinned-bytes", "64M", "--resident-bytes", "256M") as daemon:
        every_operation(daemon, generator)
        with daemon.connect() as connection:
            left_out(connection)
        in_use(daemon)
        large(daemon, generator)
        with daemon.connect() as connection:
            check(all(entry["held"] == 0 for entry in names_of(connection).values()), "held at the end", names_of(connection))
        check(settle(daemon) == 0, "slots in use at the end")
        check(daemon.stop() == 0, "the daemon's end")
    with Daemon(daemon_path(), "--backend", BACKEND, "--pinned-bytes", "64M", "--no-resident") as daemon:
        check(refusals.walk(daemon, [Row("a name where no tensors stay", named("INPUT0=@four"), 501, "unsupported", STAYS)]) == 0, "--no-resident")
    sys.exit(wrongs())


main()
