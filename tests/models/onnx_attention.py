#!/usr/bin/env python3
"""Attention in graphs of ONNX (kernserve.onnx): as exporters spell it, with masks, scales, groups of heads, and heads that lie in front of the rows
or behind, and ONNX's own operator, become one node; what attention cannot do stays products and a softmax. Converted from FP32, FP16 and FP64
(which attention does not take), asked of the daemon with two batches, against onnx.reference in FP64; and rows of which a mask leaves nothing.

onnx_attention.py KERNSERVE [BACKEND]     of tests/compat/environment.sh tests/models; cpu, where no backend is named
"""

import json
import sys
import urllib.request
import warnings

import numpy as np

import onnx_ops as base
from kernserve.onnx import ConversionError, convert
from onnx_ops import RANDOM, Case, Daemon, check, daemon_path, ints, kernserve, size, wrongs

HEADS, DEPTH, ROWS = 2 * size(2, 4), size(2, 7), size(2, 12)
WIDE = HEADS * DEPTH
SCALARS = {"root": np.float32(np.sqrt(DEPTH)), "part": np.float32(DEPTH ** -0.25), "zero": np.float32(0), "inf": np.float32(-np.inf), "low": np.finfo(np.float32).min, "cap": np.float32(1.5),
           "apart": ints(0, ROWS, HEADS, DEPTH), "whole": ints(0, ROWS, WIDE), "last": ints(-1)}
TRIANGLE = np.tril(np.ones((ROWS, ROWS), bool))
HEADED = {"k": [HEADS, ROWS, DEPTH], "v": [HEADS, ROWS, DEPTH]}  # beside x


class Sums(Case):
    """A case whose values are shapes of heads. FP64 is not fused: its ops are not looked at."""

    def run(self, ks, dtype=np.float32):
        ops, self.ops = self.ops, self.ops if dtype != np.float64 else None
        super().run(ks, dtype)
        self.ops = ops


def of(nodes, ops=None, constants=None, more=None, x=None, **rest):
    return Sums(nodes, x or HEADED["k"], dict(SCALARS, **(constants or {})), HEADED if more is None else more, ops, **rest)


def spelt(middle, ops, before="x,t", **rest):
    """x k^T, what is done in the middle from s to z, softmax, v."""
    turned = [] if before != "x,t" else [("Transpose", "k", "t", {"perm": [0, 1, 3, 2]})]
    return of([*turned, ("MatMul", before, "s"), *middle, ("Softmax", "z", "p", {"axis": -1}), ("MatMul", "p,v", "y")], ops, **rest)


def scales_and_masks():
    alone = ["attention"]
    yield spelt([("Div", "s,root", "z")], alone)
    yield spelt([("Mul", "part,s", "z")], alone)
    yield spelt([("Identity", "s", "i"), ("Mul", "i,part", "z")], alone)
    yield of([("Mul", "x,part", "a"), ("Transpose", "k", "t", {"perm": [0, 1, 3, 2]}), ("Mul", "t,part", "b"), ("MatMul", "a,b", "z"), ("Softmax", "z", "p"), ("MatMul", "p,v", "y")], alone)
    yield spelt([("Div", "s,root", "d"), ("Add", "d,m", "z")], alone, more=dict(HEADED, m=[1, 1, ROWS]))
    yield spelt([("Add", "m,s", "d"), ("Mul", "d,part", "z")], ["mul", "attention"], more=dict(HEADED, m=[HEADS, ROWS, ROWS]))
    yield spelt([("Add", "s,m", "d"), ("Add", "d,c", "z")], ["add", "attention"], constants={"c": [HEADS, ROWS, ROWS]}, more=dict(HEADED, m=[1, 1, ROWS]))
    yield spelt([("Div", "s,cap", "c1"), ("Tanh", "c1", "c2"), ("Mul", "c2,cap", "c3"), ("Add", "c3,m", "z")], alone, more=dict(HEADED, m=[1, ROWS, ROWS]))
    yield spelt([("Tanh", "s", "c2"), ("Mul", "c2,cap", "z")], alone)
    drawn = RANDOM.random((ROWS, ROWS)) < 0.5
    drawn[:, 0] = True  # each row has one
    drawn[0, 1:] = ROWS < 3  # and this one no other: no triangle, if it has three
    for mask, low in ((drawn, "inf"), (TRIANGLE, "inf"), (TRIANGLE, "low")):
        yield spelt([("Where", "m,s,%s" % low, "z")], alone, constants={"m": mask})
        yield spelt([("Where", "n,%s,s" % low, "z")], alone, constants={"n": ~mask})
        yield spelt([("Add", "s,m", "z")], alone, constants={"m": np.where(mask, np.float32(0), SCALARS[low])})
    # Masks that are made: some keys are hidden, the first one never.
    first = {"first": np.arange(ROWS) == 0, "rest": np.arange(ROWS) > 0, "c": TRIANGLE}
    made = [("Greater", "g,zero", "m0"), ("Or", "m0,first", "m"), ("Less", "g,zero", "n0"), ("And", "n0,rest", "n")]
    for where, ops in (("m,s,inf", ["gt", "or", "attention"]), ("n,inf,s", ["lt", "and", "not", "attention"]), ("m,s,low", None)):
        yield spelt([*made, ("Div", "s,root", "d"), ("Where", where.replace("s", "d"), "z")], ops, constants=first, more=dict(HEADED, g=[1, ROWS, ROWS]))
    of_keys, of_both = dict(HEADED, g=[1, 1, ROWS]), dict(HEADED, g=[1, 1, ROWS], b=[HEADS, ROWS, ROWS])
    yield spelt([*made, ("Where", "m,zero,inf", "w"), ("Add", "s,w", "z")], ["gt", "or", "attention"], constants=first, more=of_keys)
    yield spelt([*made, ("Where", "n,inf,zero", "w"), ("Add", "s,w", "z")], ["lt", "and", "not", "attention"], constants=first, more=of_keys)
    yield spelt([*made, ("Where", "m,s,inf", "w"), ("Where", "c,w,inf", "z")], ["gt", "or", "and", "attention"], constants=first, more=of_keys)
    yield spelt([*made, ("Where", "m,s,inf", "w"), ("Add", "w,b", "z")], None, constants=first, more=of_both)


def heads():
    """A projection's rows become heads by reshape and transpose, whose order attention reads."""
    apart = [step for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])) for step in (("MatMul", "x,w" + name, name + "0"), ("Add", "%s0,b%s" % (name, name), name + "1"),
                                                                                                      ("Reshape", name + "1,apart", name + "2"), ("Transpose", name + "2", name, {"perm": perm}))]
    tail = [("MatMul", "p,v", "o"), ("Transpose", "o", "o1", {"perm": [0, 2, 1, 3]}), ("Reshape", "o1,whole", "y")]
    weights = {letter + name: [WIDE, WIDE] if letter == "w" else [WIDE] for name in "qkv" for letter in "wb"}
    weights = {name: (RANDOM.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32) for name, shape in weights.items()}
    plain = ["matmul", "reshape"] * 3 + ["attention", "reshape"]
    yield of([*apart, ("MatMul", "q,k", "s"), ("Div", "s,root", "z"), ("Softmax", "z", "p"), *tail], plain, weights, {}, [ROWS, WIDE])
    scaled = [("Mul", "q,part", "qs"), ("Mul", "k,part", "ks"), ("MatMul", "qs,ks", "s"), ("Add", "s,c", "z"), ("Softmax", "z", "p")]
    masked = np.where(TRIANGLE, np.float32(0), np.float32(-np.inf))
    yield of([*apart, *scaled, *tail], plain, dict(weights, c=masked), {}, [ROWS, WIDE])
    wrapped = [("IsNaN", "p", "n"), ("Where", "n,zero,p", "p2"), ("MatMul", "p2,v", "o"), *tail[1:]]
    yield of([*apart, *scaled, *wrapped], plain, dict(weights, c=masked), {}, [ROWS, WIDE])
    folded = [("Reshape", "k,flat", "kf"), ("Transpose", "kf", "kt", {"perm": [0, 2, 1]}), ("Reshape", "kt,back", "kb"), ("MatMul", "x,kb", "s"), ("Softmax", "s", "p"), ("MatMul", "p,v", "y")]
    yield of(folded, ["attention"], {"flat": ints(-1, ROWS, DEPTH), "back": ints(-1, HEADS, DEPTH, ROWS)})
    few = {"k": [HEADS // 2, ROWS, DEPTH], "v": [HEADS // 2, ROWS, DEPTH]}  # groups
    spread = [step for name in "kv" for step in (("Unsqueeze", name + ",two", name + "5"), ("Expand", name + "5,wide", name + "6"), ("Reshape", name + "6,joined", name + "7"))]
    constants = {"two": ints(2), "wide": ints(1, HEADS // 2, 2, ROWS, DEPTH), "joined": ints(0, HEADS, ROWS, DEPTH)}
    yield of([*spread, ("Transpose", "k7", "t", {"perm": [0, 1, 3, 2]}), ("MatMul", "x,t", "s"), ("Softmax", "s", "p"), ("MatMul", "p,v7", "y")], ["attention"], constants, few)
    one = {"k": [1, ROWS + 1, DEPTH], "v": [1, ROWS + 1, DEPTH + 1]}  # which broadcasts over the heads
    yield spelt([("Identity", "s", "z")], ["attention"], more=one)
    three = {"k": [ROWS + 1, DEPTH], "v": [ROWS + 1, DEPTH]}
    bare = [("Transpose", "k", "t", {"perm": [0, 2, 1]}), ("MatMul", "x,t", "s"), ("Softmax", "s", "p"), ("MatMul", "p,v", "y")]
    yield of(bare, ["reshape", "reshape", "reshape", "attention", "reshape"], more=three, x=[ROWS, DEPTH])
    yield of([*bare[:2], ("Add", "s,m", "z"), ("Softmax", "z", "p"), bare[3]], None, more=dict(three, m=[ROWS, ROWS + 1]), x=[ROWS, DEPTH])


def left_alone():
    """Its weights are asked for; nothing but a part of the softmax; a mask over rows; a depth that is too large; keys that two batches share."""
    turned = ("Transpose", "k", "t", {"perm": [0, 1, 3, 2]})
    yield of([turned, ("MatMul", "x,t", "z"), ("Softmax", "z", "p"), ("MatMul", "p,v", "y")], ["matmul", "softmax", "matmul"], y=["y", "p"])
    yield spelt([("Add", "s,m", "z")], ["matmul", "add", "softmax", "matmul"], more=dict(HEADED, m=[1, ROWS, 1]), bound=1e-4) if ROWS > 1 else spelt([("Identity", "s", "z")], None)
    yield spelt([("Relu", "s", "z")], ["matmul", "softmax", "matmul"])
    deep = {"k": [1, 2, 257], "v": [1, 2, 3]}
    yield spelt([("Div", "s,root", "z")], ["matmul", "div", "softmax", "matmul"], more=deep, x=[1, 3, 257], constants={"root": np.float32(16)}, bound=1e-4)
    yield of([("Transpose", "c", "t", {"perm": [0, 1, 3, 2]}), ("MatMul", "x,t", "z"), ("Softmax", "z", "p"), ("MatMul", "p,c", "y")], ["matmul", "softmax", "matmul"], {"c": [1, HEADS, ROWS, DEPTH]}, {})


def operator():
    def own(attributes, more=None, nodes=(), inputs="x,k,v", outputs="y", x=None, ops=None, opset=24, **rest):
        return of([*nodes, ("Attention", inputs, outputs, attributes)], ops or ["attention"], rest.pop("constants", None), more, x, opset=opset, **rest)

    rows, wide = {"k": [ROWS, WIDE // 2], "v": [ROWS, WIDE // 2]}, {"q_num_heads": HEADS, "kv_num_heads": HEADS // 2}
    yield own({}, opset=23)
    yield own({"scale": 0.3, "softcap": 1.5, "is_causal": 1})
    yield own({"is_causal": 1}, dict(HEADED, m=[1, ROWS, ROWS]), inputs="x,k,v,m")
    yield own({}, dict(HEADED, g=[HEADS, ROWS, ROWS]), [("Greater", "g,low9", "m")], "x,k,v,m", ops=["gt", "attention"], constants={"low9": np.float32(-9)})
    yield own(wide, rows, x=[ROWS, WIDE], ops=["reshape", "reshape", "reshape", "attention", "reshape"])
    past = {"k": [HEADS, ROWS, DEPTH], "v": [HEADS, ROWS, DEPTH], "pk": [HEADS, 3, DEPTH], "pv": [HEADS, 3, DEPTH]}
    yield own({"is_causal": 1}, past, inputs="x,k,v,,pk,pv", outputs="y,nk,nv", y=["y", "nk", "nv"], ops=["concat", "concat", "attention"])
    rows.update(pk=[HEADS // 2, 3, DEPTH], pv=[HEADS // 2, 3, DEPTH])
    yield own(dict(wide, is_causal=1), rows, inputs="x,k,v,,pk,pv", outputs="y,nk,nv", x=[ROWS, WIDE], y=["y", "nk", "nv"],
              ops=["reshape", "transpose"] * 3 + ["concat", "concat", "attention", "transpose", "reshape"])
    lengths = [("ReduceSum", "g,two", "n0", {"keepdims": 0}), ("Clip", "n0,one,many", "n1"), ("Cast", "n1", "n", {"to": 7})]
    yield own({"is_causal": 1}, dict(HEADED, g=[1]), lengths, "x,k,v,,,,n", constants={"two": ints(1), "one": np.float32(1), "many": np.float32(ROWS)}, ops=["reduce", "clamp", "cast", "attention"])
    if 25 <= base.onnx.defs.onnx_opset_version():
        yield own({"is_causal": 1, "left_window_size": 2}, opset=25)


def nothing_left(ks, url):
    """A row that a mask hides whole is NaN, as its softmax is, or 0 where the graph says so; a finite mask leaves the values' mean."""
    for low, wrapped in (("inf", False), ("inf", True), ("low", False)):
        nodes = [("Greater", "g,zero", "m"), ("Where", "m,s,%s" % low, "z")]
        case = spelt(nodes, None, more=dict(HEADED, g=[1, ROWS, ROWS]))
        if wrapped:
            case.nodes[-1:] = [("IsNaN", "p", "n"), ("Where", "n,zero,p", "p2"), ("MatMul", "p2,v", "y")]
        definition, weights = convert(case.model(np.float32))
        check(definition["nodes"][-1]["op"] == "attention", definition["nodes"][-1])
        ks.load("case", definition, weights)
        given = {name: case.draw([2, *shape]) for name, shape in {"x": case.x, **case.more}.items()}
        given["g"][:] = 1
        given["g"][1, 0, 0] = -1
        with np.errstate(invalid="ignore"):
            right = base.ReferenceEvaluator(case.model(np.float64)).run(None, {name: values.astype(np.float64) for name, values in given.items()})[0]
        check(np.isnan(right[1, :, 0]).all() == (low == "inf" and not wrapped), low, wrapped, right[1, 0, 0])
        got = np.asarray(ks.infer("case", **given)["y"])
        check(np.allclose(got, right, 1e-5, 1e-5, equal_nan=True), low, wrapped, got[1, 0, 0], right[1, 0, 0])
    config = json.load(urllib.request.urlopen("%s/v2/models/case/config" % url))
    check(config["max_batch_size"] == 64, "a mask of each batch keeps batches apart:", config)


def asked(ks, case, lengths, fused=1):
    """A case with free lengths: words in its shapes, asked with some."""
    definition, weights = convert(case.model(np.float32))
    check([node["op"] for node in definition["nodes"]].count("attention") == fused, case.name(), json.dumps(definition)[:900])
    ks.load("case", definition, weights)
    exact = base.ReferenceEvaluator(case.model(np.float64))
    for known in lengths:
        given = {name: case.draw([known.get(length, length) for length in ["batch", *shape]]) for name, shape in {"x": case.x, **case.more}.items()}
        right = exact.run(None, {name: values.astype(np.float64) for name, values in given.items()})[0]
        got = np.asarray(ks.infer("case", **given)["y"])
        check(got.shape == right.shape and np.allclose(got, right, 3e-5, 3e-5), case.name(), known, got.shape, right.shape, np.abs(got - right).max() if got.shape == right.shape else "")


def free_lengths(ks):
    """As exporters write shapes that a request decides: groups of heads by expand; rows in front of the batch, a product over both of them."""
    lengths = [{"batch": 1, "rows": size()}, {"batch": size(), "rows": 1}, {"batch": 3, "rows": size()}]
    shape = [("Shape", "x", "s"), ("Gather", "s,at0", "b0"), ("Unsqueeze", "b0,at00", "b"), ("Gather", "s,at1", "r0"), ("Unsqueeze", "r0,at00", "r")]
    numbers = {"at0": np.int64(0), "at1": np.int64(1), "at00": ints(0), "two": ints(2), "heads": ints(HEADS), "few": ints(HEADS // 2), "depth": ints(DEPTH), "wide": ints(WIDE), "five": ints(5),
               "ones": np.ones(5, np.int64), "minus": ints(-1)}
    grouped = [*shape, ("Concat", "b,r,few,depth", "c1", {"axis": 0}), ("Concat", "b,few,two,r,depth", "c2", {"axis": 0}), ("Concat", "b,heads,r,depth", "c3", {"axis": 0}),
               ("Concat", "b,r,heads,depth", "c4", {"axis": 0}), ("Concat", "b,r,wide", "c5", {"axis": 0}), ("ConstantOfShape", "five", "none"), ("Mul", "ones,minus", "below"), ("Equal", "c2,below", "e"),
               ("Where", "e,ones,c2", "c6"), ("MatMul", "x,w", "k0"), ("Reshape", "k0,c1", "k1"), ("Transpose", "k1", "k2", {"perm": [0, 2, 1, 3]}), ("Unsqueeze", "k2,two", "k3"), ("Expand", "k3,c6", "k4"),
               ("Reshape", "k4,c3", "k5"), ("Reshape", "x,c4", "q0"), ("Transpose", "q0", "q", {"perm": [0, 2, 1, 3]}), ("Transpose", "k5", "t", {"perm": [0, 1, 3, 2]}), ("MatMul", "q,t", "z"), ("Softmax", "z", "p"),
               ("MatMul", "p,k5", "o"), ("Transpose", "o", "o1", {"perm": [0, 2, 1, 3]}), ("Reshape", "o1,c5", "y")]
    asked(ks, of(grouped, None, dict(numbers, w=(RANDOM.standard_normal([WIDE, WIDE // 2]) / WIDE).astype(np.float32)), {}, ["rows", WIDE]), lengths)
    rows = [*shape, ("Mul", "b,heads", "bh"), ("Mul", "b,r", "br"), ("Concat", "r,bh,depth", "c1", {"axis": 0}), ("Concat", "br,wide", "c2", {"axis": 0}), ("Concat", "r,b,wide", "c3", {"axis": 0}),
            ("Transpose", "x", "x1", {"perm": [1, 0, 2]}), ("Reshape", "x1,c1", "x2"), ("Transpose", "x2", "q", {"perm": [1, 0, 2]}), ("Mul", "q,part", "q1"), ("Transpose", "q", "t", {"perm": [0, 2, 1]}),
            ("MatMul", "q1,t", "z"), ("Softmax", "z", "p"), ("MatMul", "p,q", "o"), ("Transpose", "o", "o1", {"perm": [1, 0, 2]}), ("Reshape", "o1,c2", "o2")]
    weights = {"w": [WIDE, WIDE], "bias": [WIDE]}
    asked(ks, of([*rows, ("Gemm", "o2,w,bias", "g"), ("Reshape", "g,c3", "g1"), ("Transpose", "g1", "y", {"perm": [1, 0, 2]})], None, {**numbers, **weights}, {}, ["rows", WIDE]), lengths)
    causal = [*shape, ("Concat", "r,r", "rr", {"axis": 0}), ("Expand", "one,rr", "all"), ("Trilu", "all", "low0", {"upper": 0}), ("Equal", "low0,none", "off"), ("Concat", "b,r,heads,depth", "c1", {"axis": 0}),
              ("Concat", "b,r,wide", "c2", {"axis": 0}), ("Reshape", "x,c1", "x1"), ("Transpose", "x1", "q", {"perm": [0, 2, 1, 3]}), ("Transpose", "x1", "t", {"perm": [0, 2, 3, 1]}), ("MatMul", "q,t", "s0")]
    tail = [("Softmax", "z", "p"), ("MatMul", "p,q", "o"), ("Transpose", "o", "o1", {"perm": [0, 2, 1, 3]}), ("Reshape", "o1,c2", "y")]
    numbers.update(one=np.float32(1), none=np.float32(0))
    for masked in ([("Where", "off,low,none", "m"), ("Add", "s0,m", "z")], [("Where", "off,inf,s0", "z")], [("Not", "off", "on"), ("Where", "on,s0,inf", "s1"), ("Mul", "s1,part", "z")]):
        asked(ks, of([*causal, *masked, *tail], None, numbers, {}, ["rows", WIDE]), lengths)
    # A triangle that is no mask of attention's is counted.
    asked(ks, of([*causal, ("Where", "off,none,one", "m"), ("Mul", "s0,m", "z"), *tail], None, numbers, {}, ["rows", WIDE]), lengths, 0)
    try:
        convert(of([*rows, ("Softmax", "o2", "g", {"axis": 0}), ("Reshape", "g,c3", "y")], None, numbers, {}, ["rows", WIDE]).model(np.float32))
        check(False, "two lengths that one -1 cannot be were converted")
    except ConversionError as error:
        check("more than one length of its result is not known" in str(error), error)


def refusals():
    def words(nodes, more, x=None, opset=24, **constants):
        try:
            convert(of(nodes, None, constants, more, x, opset=opset).model(np.float32))
        except ConversionError as error:
            return str(error)
        return "converted"

    deep = {"k": [1, 2, 257], "v": [1, 2, 3]}
    for got, said in ((words([("Attention", "x,k,v", "y,a,b,s")], HEADED), "node 'attention0' (Attention): it is asked for its scores"),
                      (words([("Attention", "x,k,v", "y")], deep, [1, 2, 257]), "its heads are not known to have 1 to 256 elements"),
                      (words([("Attention", "x,k,v", "y", {"softmax_precision": 11})], HEADED), "its softmax is FP64's"),
                      (words([("Attention", "x,k,v,m", "y")], dict(HEADED, m=[1, ROWS, ROWS + 1])), "its mask does not have a length for each key"),
                      (words([("Attention", "x,k,v,,pk,pv", "y", {"is_causal": 1})], {"k": [1, 2, 3], "v": [1, 2, 3], "pk": [1, 4, 3], "pv": [1, 4, 3]}, [1, 1, 3]), "its new keys are not as many")):
        check(said in got, got, "instead of", said)


def main():
    warnings.simplefilter("ignore", RuntimeWarning)  # the lowest FP32 is infinite as FP16
    count = 0
    with Daemon(daemon_path(), "--backend", base.BACKEND) as daemon, kernserve.Client("http://127.0.0.1:%d" % daemon.port) as ks:
        url = "http://127.0.0.1:%d" % daemon.port
        spelt_out = [*scales_and_masks(), *heads(), *left_alone()]
        for case, dtype in (*((case, np.float32) for case in [*spelt_out, *operator()]), *((case, dtype) for case in spelt_out for dtype in (np.float16, np.float64))):
            count += 1
            try:
                case.run(ks, dtype)
            except (kernserve.Error, ConversionError) as error:
                check(False, case.name(), dtype, repr(error), case.nodes)
        nothing_left(ks, url)
        free_lengths(ks)
        ks.unload("case")
        check(daemon.stop() == 0, "the exit code")
    refusals()
    print("%d graphs" % count)
    return wrongs() > 0


if __name__ == "__main__":
    sys.exit(main())
