#!/usr/bin/env python3
"""Every operation in every form gives the float64 reference's values, says where its time went, and leaves no memory behind.

values.py KERNSERVE            starts the daemon on free ports
values.py --url http://HOST:PORT   asks one that runs, for instance on a GPU host
KS_SEED=N repeats a run; --count N asks for more random cases; --huge adds tensors above the largest slot class.
"""

import argparse
import json
import math
import os
import random as randomness
import re
import statistics
import sys
import time

import forms
from daemon import metric, open_target, request, settle
from forms import FORMS, TRANSPORTS, Case, Wrong, check_answer, fits, require
from tensors import MODELS, OPS, Tensor, decode, encode, random_tensor

PHASES = ("receive", "decode", "queue", "h2d", "compute", "d2h", "encode")


def timing(answer):
    """Server-Timing as {phase: ms} and what it says of the graph."""
    line = answer.header("server-timing")
    require(line, "no Server-Timing")
    phases, graph = {}, None
    for part in line.split(","):
        match = re.fullmatch(r"\s*(\w+);(?:dur=(\d+\.\d{3})|desc=(\S+))\s*", part)
        require(match, "Server-Timing has %r", part)
        if match.group(2):
            phases[match.group(1)] = float(match.group(2))
        elif match.group(1) == "graph":
            graph = match.group(3)
    require("total" in phases, "no total in %s", line)
    require(not set(phases) - set(PHASES) - {"total"}, "unknown phase in %s", line)
    require(graph in ("hit", "miss", "none"), "graph says %r", graph)
    return phases, graph


class Run:
    """Asks on one kept connection; counts what was right."""

    def __init__(self, target, random):
        self.target, self.random = target, random
        self.connection, self.right, self.wrong = None, 0, 0

    def ask(self, data):
        if self.connection is None or self.connection.eof:
            self.connection = self.target.connect(60)
        return self.connection.ask(data)

    def check(self, case, form, transport="whole", outputs=None):
        """outputs: how many the answer has to hold."""
        request_id = self.random.choice(("r-%d" % self.right, "a \"b\" \\ \u00e9\u4e2d\n", "x" * 200))
        data = TRANSPORTS[transport](self.random, *FORMS[form](case, request_id))
        answer = self.ask(data)
        try:
            held = check_answer(case, form, answer, request_id)
            require(outputs in (None, held), "%d outputs", held)
            timing(answer)
            self.right += 1
        except (Wrong, KeyError, ValueError) as fault:
            self.wrong += 1
            print("WRONG %s, %s, %s: %s" % (case, form, transport, fault))

    def fail(self, text):
        self.wrong += 1
        print("WRONG " + text)


def every_form(run, rounds):
    """Each form and each transport with random work of each operation."""
    for _ in range(rounds):
        for op, make in forms.MAKERS.items():
            for form in FORMS:
                datatype = run.random.choice(("FP32", "FP64")) if form in ("json", "mixed", "json_to_safetensors") else None
                case = make(run.random, 40, datatype)
                if fits(form, case):
                    run.check(case, form, run.random.choice(list(TRANSPORTS)))
    for form in FORMS:
        for transport in TRANSPORTS:
            vector = random_tensor(run.random, "FP32", [run.random.randint(1, 5000)])
            run.check(Case("softmax", [vector], model="softmax_vec"), form, transport)


def every_reduction(run):
    """Each way to reduce, each datatype, in each form that can carry it."""
    for datatype in ("FP32", "FP64", "FP16", "BF16") + forms.JSON_TYPES[2:]:
        for op in OPS if datatype in ("FP32", "FP64", "FP16", "BF16") else forms.INTEGER_OPS:
            case = forms.random_reduce(run.random, 24, datatype, op)
            for form in FORMS:
                if fits(form, case):
                    run.check(case, form)


def every_scan(run):
    """Each operation of scan and each datatype, in each form that can carry it."""
    for datatype in ("FP16", "BF16") + forms.JSON_TYPES:
        for op in forms.SCANS:
            case = forms.random_scan(run.random, 24, datatype, op)
            for form in FORMS:
                if fits(form, case):
                    run.check(case, form)


def every_layout(run):
    """Each operation of layout and each datatype, in each form that can carry it."""
    for datatype in ("FP16", "BF16") + forms.JSON_TYPES:
        for op in forms.LAYOUTS:
            case = forms.random_layout(run.random, 12, datatype, op)
            for form in FORMS:
                if fits(form, case):
                    run.check(case, form)


def every_window(run):
    """Windows by either layout and of each datatype, in each form that can carry it."""
    for datatype in ("FP16", "BF16") + forms.JSON_TYPES:
        for layout in ("nhwc", "nchw"):
            case = forms.random_window(run.random, 9, datatype, layout)
            for form in FORMS:
                if fits(form, case):
                    run.check(case, form)


def masks(run):
    """Softmax of selected elements: an added mask that broadcasts, causal, both, results of another datatype; and a mask of BOOL."""
    r = run.random
    for datatype in ("FP32", "FP64", "FP16", "BF16"):
        for causal in ("none", "top_left", "bottom_right"):
            rows, columns = r.randint(1, 20), r.randint(20, 60)
            x = random_tensor(r, datatype, [2, rows, columns])
            mask = random_tensor(r, datatype, r.choice(([columns], [rows, columns], [2, 1, columns], [2, rows, 1])))
            for inputs in ([x], [x, mask]):
                case = Case("softmax", inputs, causal=causal, log=r.random() < 0.3, scale=r.choice((1, 0.5, -1.5)))
                for form in FORMS:
                    if fits(form, case):
                        run.check(case, form)
        case = Case("softmax", [random_tensor(r, datatype, [3, 40])], out_datatype=r.choice(("FP32", "FP16", "BF16", "FP64")))
        run.check(case, "binary")
    x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    document = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2, 3], "data": x}, {"name": "INPUT1", "datatype": "BOOL", "shape": [2, 3], "data": [False, True, True, False, False, False]}]}
    for model, parameters, wanted in (("softmax", {"masked_rows": "zero"}, [0, 1 / (1 + math.e), 1 / (1 + 1 / math.e), 0, 0, 0]), ("softmax_causal", {}, [1 / (1 + math.e), 1 / (1 + 1 / math.e), 0] + [math.exp(v - 6) / (1 + math.exp(-1) + math.exp(-2)) for v in (4, 5, 6)])):
        sent = document if model == "softmax" else {"inputs": document["inputs"][:1]}
        answer = run.ask(request("POST", "/v2/models/%s/infer" % model, [], json.dumps({**sent, "parameters": parameters}).encode()))
        got = json.loads(answer.body)["outputs"][0]["data"] if answer.status == 200 else []
        if len(got) != 6 or any(abs(g - w) > 1e-6 or (w == 0) != (g == 0) for g, w in zip(got, wanted)):
            run.fail("%s with %r: %r" % (model, parameters, answer))
        else:
            run.right += 1
    target = "/v2/models/softmax_masked/infer?shape=2,3&shape=3&datatype=FP32&datatype=BOOL"
    answer = run.ask(request("POST", target, [], encode("FP32", x) + bytes([1, 0, 1])))
    got = decode("FP32", answer.body) if answer.status == 200 else []
    if len(got) != 6 or any(abs(g - w) > 1e-6 for g, w in zip(got, [1 / (1 + math.exp(2)), 0, 1 / (1 + math.exp(-2))] * 2)):
        run.fail("a mask of BOOL in a raw request: %r" % answer)
    else:
        run.right += 1


def lengths(run):
    """Softmax of rows that end at lengths: with and without a mask or causal in front, along any axis, and rows of nothing."""
    r = run.random
    for datatype in ("FP32", "FP64", "FP16", "BF16"):
        for axis in (-1, 1, 0):
            shape = [r.randint(1, 4), r.randint(1, 9), r.randint(20, 60)]
            x, ends = random_tensor(r, datatype, shape), forms.random_lengths(r, shape, axis)
            more = {"causal": r.choice(("top_left", "bottom_right"))} if axis == -1 else {}
            for inputs in ([x, None, ends], [x, random_tensor(r, datatype, shape[1:]), ends]):
                case = Case("softmax", inputs, axis=axis, log=r.random() < 0.3, masked_rows=r.choice(("nan", "zero")), **more)
                for form in FORMS:
                    if fits(form, case):
                        run.check(case, form)
    x = Tensor("FP32", [3, 2], [1.0, 2.0, math.nan, math.inf, 5.0, math.nan])
    ends = Tensor("INT32", [3], [2, 0, 1])
    for model, inputs in (("softmax", [x, None, ends]), ("softmax_lengths", [x, None, ends])):
        for form in ("binary", "plain_raw", "safetensors"):
            run.check(Case("softmax", inputs, model=model, masked_rows="zero"), form)
    declared = json.loads(run.ask(request("GET", "/v2/models/softmax_lengths_bf16")).body)["inputs"]
    if [(i["name"], i["datatype"], i["shape"]) for i in declared] != [("INPUT0", "BF16", [-1, -1]), ("INPUT2", "INT32", [-1])]:
        run.fail("softmax_lengths_bf16 declares %r" % declared)
    else:
        run.right += 1


def segments(run):
    """Each reduction of segments, along any axis; empty ones where the operation has a value for nothing."""
    r = run.random
    for op in forms.FLOAT_OPS:
        for datatype in (r.choice(("FP32", "FP64")), r.choice(("FP16", "BF16")), r.choice(forms.JSON_TYPES[2:])):
            whole = forms.random_reduce(r, 24, datatype, op if datatype[:2] in ("FP", "BF") else r.choice(forms.INTEGER_OPS))
            x, parameters = whole.inputs[0], dict(whole.parameters, keepdims=False)
            axis = r.randrange(len(x.shape))
            parameters["axis"] = r.choice((axis, axis - len(x.shape)))
            cuts = sorted(r.sample(range(1, x.shape[axis]), r.randint(0, x.shape[axis] - 1)))
            if parameters["op"] in ("sum", "prod", "sumsq", "l1norm", "l2norm"):
                cuts = sorted(cuts + cuts[:2] + [0])
            offsets = Tensor(r.choice(("INT32", "INT64")), [len(cuts) + 2], [0, *cuts, x.shape[axis]])
            case = Case("reduce", [x, offsets], **parameters)
            for form in FORMS:
                if fits(form, case):
                    run.check(case, form)
    x, offsets = random_tensor(r, "FP32", [3, 7]), Tensor("INT32", [4], [0, 2, 2, 7])
    for form in ("json", "plain_raw", "binary"):
        run.check(Case("reduce", [x, offsets], model="reduce_segments"), form)
        run.check(Case("reduce", [x, Tensor("INT64", [3], [0, 1, 3])], model="reduce_segments", axis=0, op="max"), form)


def truths(run):
    """any and all, whose results are BOOL, of every datatype; and BOOL's own sums and counts."""
    r, nan = run.random, float("nan")
    for datatype in ("BOOL", "FP32", "FP64", "FP16", "BF16") + forms.JSON_TYPES[2:]:
        values = [r.choice((0, 0, 1)) for _ in range(18)] + [0, 0, 0, 1, 1, 1]
        if datatype[:2] in ("FP", "BF"):
            values[0] = nan
        rows = [values[i:i + 3] for i in range(0, 24, 3)]
        data = encode("UINT8" if datatype == "BOOL" else datatype, values)
        for op, want in (("any", [v != [0, 0, 0] for v in rows]), ("all", [0 not in v for v in rows]), ("count_nonzero", [3 - v.count(0) for v in rows])):
            answer = run.ask(request("POST", "/v2/models/reduce/infer?shape=8,3&datatype=%s&op=%s" % (datatype, op), [], data))
            fields = answer.header("kernserve-datatype"), answer.body
            if fields != (("INT64", encode("INT64", want)) if op == "count_nonzero" else ("BOOL", bytes(want))):
                run.fail("%s of %s: %r instead of %r" % (op, datatype, fields, want))
            else:
                run.right += 1
    document = {"inputs": [{"name": "INPUT0", "datatype": "BOOL", "shape": [2, 3], "data": [True, False, True, False, False, False]}]}
    for parameters, want in (({"op": "any"}, [True, False]), ({"op": "all", "axis": 0}, [False, False, False]), ({"op": "sum"}, [2, 0]), ({"op": "sum", "axis": "all"}, [2])):
        answer = run.ask(request("POST", "/v2/models/reduce/infer", [], json.dumps({**document, "parameters": parameters}).encode()))
        if answer.status != 200 or json.loads(answer.body)["outputs"][0]["data"] != want:
            run.fail("%r of BOOL: %r" % (parameters, answer))
        else:
            run.right += 1


def presets(run):
    """Models whose name fixes a datatype, a parameter or a rank."""
    r = run.random
    run.check(Case("softmax", [random_tensor(r, "FP16", [3, 50])], model="softmax_fp16"), "binary")
    run.check(Case("matmul", [random_tensor(r, "BF16", [5, 7]), random_tensor(r, "BF16", [7, 3])], model="matmul_bf16"), "binary")
    run.check(Case("reduce", [random_tensor(r, "FP64", [4, 9])], model="reduce_fp64"), "json")
    for op in ("sum", "mean", "max", "argmax", "var", "std"):
        run.check(Case("reduce", [random_tensor(r, "FP32", [6, 11])], model="reduce_" + op, fixed={"op": op}), "json")
    run.check(Case("reduce", [random_tensor(r, "FP32", [333])], model="reduce_vec"), "oip_raw")
    pair = [random_tensor(r, "FP32", [5, 7]), random_tensor(r, "FP32", [3, 7])]
    run.check(Case("matmul", pair, model="matmul_tb", fixed={"transpose_b": True}), "binary")
    row = [random_tensor(r, "BF16", [6, 40]), random_tensor(r, "BF16", [40]), random_tensor(r, "BF16", [40])]
    run.check(Case("norm", row, model="norm_layer_wb_bf16", fixed={"kind": "layer"}), "plain_raw")
    run.check(Case("norm", row[:2], model="norm_rms_w_bf16", fixed={"kind": "rms"}), "binary")
    run.check(Case("norm", row[:1], model="norm_layer_bf16", fixed={"kind": "layer"}), "binary")
    run.check(Case("norm", [random_tensor(r, "FP32", [3, 9])], model="norm_l2", fixed={"kind": "l2"}), "json")
    pair = [random_tensor(r, "FP32", [5, 7]), random_tensor(r, "FP32", [5, 7])]
    for op in ("add", "mul"):
        for form in ("json", "binary", "plain_raw"):
            run.check(Case("map", pair, model="map_" + op, fixed={"op": op}), form)
    run.check(Case("map", pair, model="map_axpy", fixed={"op": "axpy"}, a=2.5), "binary")
    for op in ("exp", "relu", "gelu", "silu", "sigmoid"):
        run.check(Case("map", pair[:1], model="map_" + op, fixed={"op": op}), "binary")
    where(run)
    filtered(run)
    for form, outputs in (("json", 2), ("binary", 2), ("safetensors", 2), ("json_to_safetensors", 2), ("plain_raw", 1), ("npy", 1)):
        run.check(Case("topk", [random_tensor(r, "FP32", [3, 70])], model="topk_10", fixed={"k": 10}), form, outputs=outputs)
    run.check(Case("topk", [random_tensor(r, "FP32", [2, 500])], model="topk_50", fixed={"k": 50}, largest=False), "binary", outputs=2)
    pair = [Tensor("FP32", [n, 9], [r.randint(-3, 3) for _ in range(9 * n)]) for n in (3, 70)]
    for form, outputs in (("json", 2), ("binary", 2), ("safetensors", 2), ("plain_raw", 1)):
        run.check(Case("search", pair, model="search_10", fixed={"k": 10}), form, outputs=outputs)
    run.check(Case("search", pair, model="search_10", fixed={"k": 10}, metric="l2"), "binary", outputs=2)
    run.check(Case("scan", [random_tensor(r, "FP32", [4, 70])], model="scan_sum", fixed={"op": "sum"}), "json")
    run.check(Case("scan", [random_tensor(r, "INT8", [4, 70])], model="scan_sum", fixed={"op": "sum"}, exclusive=True, reverse=True), "plain_raw")
    for form, outputs in (("json", 1), ("binary", 1), ("plain_raw", 1)):
        run.check(Case("histogram", [random_tensor(r, "UINT8", [4, 70])], model="histogram_256", fixed={"bins": 256}), form, outputs=outputs)
    for form, outputs in (("json", 2), ("binary", 2), ("safetensors", 2), ("json_to_safetensors", 2), ("plain_raw", 1), ("npy", 1)):
        case = Case("histogram", [random_tensor(r, "FP32", [3, 70])], model="histogram_256", fixed={"bins": 256}, min=-1, max=1, edges=True, axis=-1)
        run.check(case, form, outputs=outputs)
    table, places = random_tensor(r, "FP32", [6, 40]), Tensor("INT64", [5], [-7, 100, 0, 5, -1])
    run.check(Case("gather", [table, places], model="gather_wrap", fixed={"mode": "wrap"}), "binary")
    bag = [table, Tensor("INT32", [5], [0, 5, -1, 2, 2]), Tensor("INT32", [4], [0, 2, 2, 5])]
    run.check(Case("gather", bag, model="gather_bag"), "plain_raw")
    run.check(Case("gather", bag, model="gather_bag", op="mean"), "json")
    run.check(Case("layout", [random_tensor(r, "FP32", [6, 40])], model="layout_transpose"), "binary")
    run.check(Case("layout", [random_tensor(r, "FP32", [2, 3, 4])], model="layout_transpose", axes=[1, 2, 0]), "plain_raw")
    parts = [random_tensor(r, "FP32", [n, 5]) for n in (2, 3, 1)]
    run.check(Case("layout", parts, model="layout_concat", fixed={"op": "concat"}), "safetensors")
    run.check(Case("window", [random_tensor(r, "FP32", [2, 9, 4])], model="window_3", fixed={"size": [3]}), "binary")
    run.check(Case("window", [random_tensor(r, "FP32", [1, 6, 7, 2])], model="window_3x3", fixed={"size": [3, 3]}, pad=[1, 1], stride=[2]), "plain_raw")


def where(run):
    """map_where as its metadata declares it: a condition of BOOL, and two tensors of FP32 that broadcast."""
    inputs = [("BOOL", [2, 2], [True, False, False, True]), ("FP32", [2, 2], [1, 2, 3, 4]), ("FP32", [2], [-1, -2])]
    declared = json.loads(run.ask(request("GET", "/v2/models/map_where")).body)
    document = {"inputs": [{"name": "INPUT%d" % i, "datatype": d, "shape": s, "data": v} for i, (d, s, v) in enumerate(inputs)]}
    answer = run.ask(request("POST", "/v2/models/map_where/infer", [], json.dumps(document).encode()))
    raw = encode("UINT8", [1, 0, 0, 1]) + encode("FP32", [1, 2, 3, 4, -1, -2])
    target = "/v2/models/map_where/infer?shape=2,2&shape=2,2&shape=2&datatype=BOOL&datatype=FP32&datatype=FP32"
    bytes_answer = run.ask(request("POST", target, [], raw))
    try:
        require([i["datatype"] for i in declared["inputs"]] == ["BOOL", "FP32", "FP32"], "declared %r", declared)
        require(answer.status == 200 and json.loads(answer.body)["outputs"][0]["data"] == [1, -2, -1, 4], "%r", answer)
        require(bytes_answer.status == 200 and bytes_answer.body == encode("FP32", [1, -2, -1, 4]), "%r", bytes_answer)
        run.right += 1
    except (Wrong, KeyError) as fault:
        run.fail("map_where: %s" % fault)


def filtered(run):
    """search among the rows that its mask names: fewer than k of them."""
    inputs = [("INPUT0", "FP32", [1, 2], [1, 1]), ("INPUT1", "FP32", [4, 2], [1, 0, 5, 5, 0, 1, 2, 2]), ("INPUT3", "BOOL", [4], [True, False, True, False])]
    document = {"inputs": [{"name": n, "datatype": d, "shape": s, "data": v} for n, d, s, v in inputs], "parameters": {"k": 3, "metric": "l2"}}
    answer = run.ask(request("POST", "/v2/models/search/infer", [], json.dumps(document).encode()))
    if answer.status != 200 or [output["data"] for output in json.loads(answer.body)["outputs"]] != [[1, 1, math.inf], [0, 2, -1]]:
        run.fail("search of a mask: %r" % answer)
    else:
        run.right += 1


def edges(run):
    """Empty tensors, scalars out, exact 64-bit integers, NaN and infinity, odd ranks."""
    r = run.random
    nan, inf = float("nan"), float("inf")
    for form in ("json", "binary", "plain_raw"):
        run.check(Case("softmax", [Tensor("FP32", [0, 4], [])]), form)
        run.check(Case("softmax", [Tensor("FP32", [1], [7.0])]), form)
        run.check(Case("reduce", [Tensor("FP32", [3, 0], [])], op="sum"), form)
        run.check(Case("reduce", [Tensor("FP32", [3, 0], [])], op="prod"), form)
        run.check(Case("matmul", [Tensor("FP32", [2, 0], []), Tensor("FP32", [0, 3], [])]), form)
        run.check(Case("topk", [Tensor("FP32", [0, 4], [])], k=2), form)
        run.check(Case("search", [Tensor("FP32", [0, 4], []), random_tensor(r, "FP32", [3, 4])], k=2), form)
        run.check(Case("topk", [Tensor("INT64", [2, 3], [2 ** 62, 2 ** 62 + 1, 2 ** 62 - 1, -5, -5, 7])], k=3), form)
        run.check(Case("scan", [Tensor("FP32", [0, 4], [])], op="max"), form)
        run.check(Case("histogram", [Tensor("FP32", [0, 4], [])], bins=3, min=0, max=1), form)
        run.check(Case("histogram", [Tensor("INT32", [2, 0], [])], bins=3, axis=-1), form)
        run.check(Case("histogram", [Tensor("FP32", [6], [nan, 0.0, 1.0, inf, -inf, 0.5])], bins=2, min=0, max=1), form)
        run.check(Case("histogram", [Tensor("UINT64", [3], [2 ** 64 - 1, 3, 0])], bins=4), form)
        run.check(Case("scan", [Tensor("INT32", [3, 0], [])], op="sum"), form)
        run.check(Case("scan", [Tensor("INT64", [4], [2 ** 62, 2 ** 62, 2 ** 62, 5])], op="sum"), form)
        run.check(Case("scan", [Tensor("UINT64", [3], [5, 2 ** 64 - 1, 7])], op="min", exclusive=True), form)
        broken = Case("scan", [Tensor("FP32", [5], [1.0] * 5)], op="sum")
        broken.inputs = [Tensor("FP32", [5], [1.0, inf, 2.0, -inf, 3.0])]
        broken.expected.values, broken.expected.tolerance = [1.0, inf, inf, nan, nan], [0] * 5
        run.check(broken, form)
        run.check(Case("gather", [random_tensor(r, "FP32", [3, 4]), Tensor("INT32", [0], [])]), form)
        run.check(Case("gather", [Tensor("INT64", [3], [2 ** 53 + 1, -(2 ** 62), 5]), Tensor("INT64", [2], [-3, 1])]), form)
        run.check(Case("layout", [Tensor("FP32", [0, 4], [])]), form)
        run.check(Case("layout", [Tensor("INT16", [2, 0], [])], op="pad", before=[1, 2], value=-7), form)
        run.check(Case("layout", [Tensor("INT64", [2, 2], [2 ** 53 + 1, -(2 ** 62), 5, 2 ** 63 - 1])], op="slice", steps=[-1, -1]), form)
        run.check(Case("layout", [random_tensor(r, "FP32", [1, 2, 1, 3, 1, 2, 1, 2])], axes=[7, 0, 5, 6, 4, 3, 2, 1]), form)
        run.check(Case("layout", [Tensor("FP32", [1, 1], [2.5])], op="reshape", new_shape=[]), form)
        run.check(Case("window", [Tensor("INT64", [3, 1], [2 ** 53 + 1, -(2 ** 62), 5])], size=[2], pad=[1, 0], value=-7), form)
        run.check(Case("window", [Tensor("FP32", [0, 4, 2], [])], size=[3]), form)
        run.check(Case("window", [random_tensor(r, "FP32", [2, 1, 1, 1, 1, 2, 6, 5])], size=[2, 5], layout="nchw"), form)
        run.check(Case("reduce", [random_tensor(r, "FP32", [5, 6])], op="sum", axis="all"), form)
        run.check(Case("reduce", [Tensor("INT64", [3], [2 ** 53 + 1, -(2 ** 62), 5])], op="max"), form)
        run.check(Case("reduce", [Tensor("UINT64", [2], [2 ** 64 - 1, 1])], op="max"), form)
        run.check(Case("reduce", [Tensor("INT64", [2], [9007199254740993, 2])], op="sum"), form)
        run.check(Case("reduce", [random_tensor(r, "FP32", [2, 1, 3, 1, 2, 1, 2, 2])], op="mean", axis="1,4,7"), form)
        special = Case("reduce", [Tensor("FP32", [3, 2], [nan, 1.0, inf, 1.0, -inf, 2.0])], op="sum")
        special.expected.values, special.expected.tolerance = [nan, inf, -inf], [0, 0, 0]
        run.check(special, form)
        masked = Case("softmax", [Tensor("FP32", [2, 2], [0.0, 0.0, 0.0, 0.0])])
        masked.inputs = [Tensor("FP32", [2, 2], [-inf, 3.0, inf, 1.0])]
        masked.expected.values, masked.expected.tolerance = [0.0, 1.0, nan, nan], [0.0, 1e-6, 0, 0]
        run.check(masked, form)


def sizes(run, huge):
    """Around chunk, slot and class borders, where off-by-one lives. Sums are checked, so no byte may be lost."""
    lengths = [1, 31, 32, 33, 1023, 1024, 1025, 16383, 16384, 16385, 65537, 262143] + ([5_000_001, 20_000_003] if huge else [])
    for n in lengths:
        pattern = encode("INT32", [run.random.randint(-1000, 1000) for _ in range(min(n, 997))])
        data = (pattern * (n // min(n, 997) + 1))[:4 * n]
        values = memoryview(data).cast("i")
        answer = run.ask(request("POST", "/v2/models/reduce/infer?shape=%d&datatype=INT32&op=sum" % n, [], data))
        want = encode("INT64", [sum(values)])
        if answer is None or answer.status != 200 or answer.body != want:
            run.fail("sum of %d integers: %r" % (n, answer))
        else:
            run.right += 1


def json_answers(run):
    """A plain raw request or a file whose Accept asks for JSON gets JSON; outputs asked for by name come as they were asked for."""
    case = Case("softmax", [random_tensor(run.random, "FP32", [3, 5])])
    for form in ("plain_raw", "npy", "safetensors"):
        target, headers, body = FORMS[form](case, None)
        answer = run.ask(request("POST", target, headers + [("Accept", "application/json")], body))
        try:
            check_answer(case, "json", answer, None)
            run.right += 1
        except Wrong as fault:
            run.fail("%s with Accept: application/json: %s" % (form, fault))


def phases_add_up(run, rows, rounds=300):
    """The phases of a request make up its total within 2 % at the median, and repeated work finds its graph."""
    case = Case("softmax", [random_tensor(run.random, "FP32", [rows, 1024])])
    data = TRANSPORTS["whole"](run.random, *FORMS["plain_raw"](case, None))
    ratios, graphs, totals = [], [], []
    for _ in range(rounds):
        phases, graph = timing(run.ask(data))
        total = phases.pop("total")
        totals.append(total)
        ratios.append(sum(phases.values()) / max(total, 0.001))
        graphs.append(graph)
    median = statistics.median(ratios)
    print("phases / total of %d KiB: median %.4f over %d requests; total p50 %.3f ms; graph %s"
          % (rows * 4, median, rounds, statistics.median(totals), {g: graphs.count(g) for g in sorted(set(graphs))}))
    if abs(median - 1) > 0.02:
        run.fail("the phases make up %.4f of the total" % median)
    else:
        run.right += 1
    if graphs[-1] == "miss":
        run.fail("after %d equal requests there is still no graph" % rounds)


def documents(run):
    """The GET answers that clients read before they ask for work."""
    def get(path):
        answer = run.ask(request("GET", path))
        require(answer.status == 200, "%s: %r", path, answer)
        require(answer.header("content-type") == "application/json", "%s: type %s", path, answer.header("content-type"))
        return json.loads(answer.body)
    try:
        require(get("/v2/health/live") == {"live": True}, "live")
        require(get("/v2/health/ready") == {"live": True, "ready": True}, "ready")
        require({"name", "version", "extensions"} == set(get("/v2")), "server metadata")
        for model in MODELS:
            base = "/v2/models/" + model
            require(get(base)["name"] == model, "metadata")
            require(get(base + "/versions/1")["versions"] == ["1"], "metadata of version 1")
            require(get(base + "/config")["max_batch_size"] == 0, "config")
            require(get(base + "/ready") == {"name": model, "ready": True}, "ready")
            stats = get(base + "/stats")["model_stats"]
            require(len(stats) == 1, "stats of one model")
            inner = stats[0]["inference_stats"]
            require(inner["success"]["count"] > 0, "%s was never counted", model)
            require(inner["success"]["count"] == inner["queue"]["count"], "queue count")
            require(len({inner[k]["count"] for k in ("compute_input", "compute_infer", "compute_output")}) == 1, "compute counts")
        require(len(get("/v2/models/stats")["model_stats"]) > 3, "stats of all")
        run.right += 1
    except (Wrong, KeyError) as fault:
        run.fail("documents: %s" % fault)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernserve", nargs="?")
    parser.add_argument("--url")
    parser.add_argument("--count", type=int, default=6, help="rounds of random cases")
    parser.add_argument("--huge", action="store_true")
    arguments = parser.parse_args()
    seed = int(os.environ.get("KS_SEED") or time.time_ns() % 1_000_000_007)
    print("KS_SEED=%d" % seed)
    target = open_target(arguments.url, arguments.kernserve)
    run = Run(target, randomness.Random(seed))
    every_form(run, arguments.count)
    every_reduction(run)
    every_scan(run)
    every_layout(run)
    every_window(run)
    truths(run)
    masks(run)
    lengths(run)
    segments(run)
    presets(run)
    edges(run)
    json_answers(run)
    sizes(run, arguments.huge)
    phases_add_up(run, 1)
    phases_add_up(run, 64)
    documents(run)
    used = settle(target)
    if used != 0:
        run.fail("%s bytes of the pinned pool are still in use" % used)
    device = re.search(r'kernserve_device_info\{[^}]*device="([^"]*)"', target.metrics())
    code = target.stop()
    if code:
        run.fail("the daemon ended with %d" % code)
    print("%d right, %d wrong, on %s" % (run.right, run.wrong, device.group(1) if device else "?"))
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
