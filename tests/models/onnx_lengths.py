#!/usr/bin/env python3
"""Lengths that only a request knows, in graphs of ONNX (kernserve.onnx): positions that a graph counts, masks that it makes of them, constants that it
cuts and spreads out, as PyTorch's exporters write transformers; and ai.onnx.ml as skl2onnx writes it. Each small graph is hand-built, converted, asked
with several batches and lengths, and compared with onnx.reference. Whole exports are tests/models/exports.py's.

onnx_lengths.py KERNSERVE [BACKEND]     of tests/compat/environment.sh tests/models; cpu, where no backend is named
"""

import json
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnx_ops as base
from kernserve.onnx import ConversionError, convert
from onnx_ops import RANDOM, Daemon, check, daemon_path, ints, kernserve, wrongs

HEADS, DEPTH, WIDE, MOST = 2, 4, 8, 16  # MOST: rows of the table of positions
KINDS = {"F": TensorProto.FLOAT, "I": TensorProto.INT64, "B": TensorProto.BOOL}
TABLE, WORDS = RANDOM.standard_normal((MOST, WIDE)).astype(np.float32), RANDOM.standard_normal((50, WIDE)).astype(np.float32)
CONSTANTS = {"zero": np.int64(0), "one": np.int64(1), "two": np.int64(2), "minus": np.int64(-1), "at0": ints(0), "at1": ints(1), "at2": ints(2), "at3": ints(3), "last": ints(-1), "at01": ints(0, 1), "at12": ints(1, 2),
             "true": np.array(True), "f0": np.float32(0), "f1": np.float32(1), "inf": np.float32(-np.inf), "low": np.finfo(np.float32).min, "root": np.float32(np.sqrt(DEPTH)), "table": TABLE, "words": WORDS,
             "heads": ints(HEADS), "depth": ints(DEPTH), "wide": ints(WIDE), "types": RANDOM.standard_normal((2, WIDE)).astype(np.float32)}
LENGTHS = ((1, 1), (1, 7), (3, 1), (3, 6), (2, MOST))
SHAPE = [("Shape", "ids", "s"), ("Gather", "s,zero", "b0"), ("Gather", "s,one", "s0"), ("Unsqueeze", "b0,at0", "b"), ("Unsqueeze", "s0,at0", "n"), ("Range", "zero,s0,one", "i"), ("Range", "zero,b0,one", "j")]
# Queries [1, 1, S, 1], keys [1, 1, 1, S], the batch's own [B, 1, 1, 1].
INDICES = [*SHAPE, ("Unsqueeze", "i,at01", "q0"), ("Unsqueeze", "q0,at3", "q"), ("Unsqueeze", "q0,at2", "k"), ("Unsqueeze", "j,at12", "j0"), ("Unsqueeze", "j0,at3", "jj")]


def graph(nodes, inputs, constants=None, outputs="y", opset=18, ml=False):
    made = [helper.make_node(op.split("::")[-1], ins.split(","), outs.split(","), name="%s%d" % (op.lower(), place), domain="ai.onnx.ml" if op.startswith("ml::") else "", **(attributes[0] if attributes else {}))
            for place, (op, ins, outs, *attributes) in enumerate(nodes)]
    used = {name for node in made for name in node.input}
    values = [numpy_helper.from_array(np.asarray(value), name) for name, value in {**CONSTANTS, **(constants or {})}.items() if name in used]
    ends = [helper.make_tensor_value_info(name, KINDS[kind], shape) for name, (kind, shape) in inputs.items()]
    whole = helper.make_graph(made, "g", ends, [onnx.ValueInfoProto(name=name) for name in outputs.split(",")], values)
    imports = [helper.make_opsetid("", opset), *([helper.make_opsetid("ai.onnx.ml", 3)] if ml else [])]
    return onnx.shape_inference.infer_shapes(helper.make_model(whole, opset_imports=imports, ir_version=9))


def draw(name, kind, shape):
    if kind == "F":
        return RANDOM.standard_normal(shape).astype(np.float32)
    if name == "mask":  # behind some length of each row but the first one nothing is kept
        kept = RANDOM.integers(1, shape[1] + 1, shape[0])
        kept[0] = shape[1]
        return (np.arange(shape[1]) < kept[:, None]).astype(np.int64)
    return RANDOM.integers(0, 50, shape)


def asked(ks, nodes, inputs, constants=None, ops=None, outputs="y", lengths=LENGTHS, max_batch=None, given=None, opset=18, ml=False, none=()):
    """ops: what the chain is, or None. none: operations that it must not have."""
    model = graph(nodes, inputs, constants, outputs, opset, ml)
    what = "+".join(node[0] for node in nodes[-6:])
    try:
        definition, weights = convert(model)
        got = [node["parameters"].get("op", node["op"]) if node["op"] == "map" else node["op"] for node in definition["nodes"]]
        check(ops is None or got == ops, what, "became", got, "instead of", ops)
        check(not set(got) & set(none), what, "became", got)
        entry = ks.load("case", definition, weights)
        check(max_batch is None or entry["max_batch"] == max_batch, what, "has max_batch", entry["max_batch"], "instead of", max_batch)
        exact = base.ReferenceEvaluator(model)
        for batch, length in lengths:
            feeds = given(batch, length) if given else {name: draw(name, kind, [{"B": batch, "S": length}.get(each, each) for each in shape]) for name, (kind, shape) in inputs.items()}
            with np.errstate(all="ignore"):
                right = exact.run(None, feeds)
            results = ks.infer("case", **feeds)
            for name, wanted in zip(outputs.split(","), right):
                mine, wanted = np.asarray(results[name]), np.asarray(wanted)
                close = mine.shape == wanted.shape and mine.dtype == wanted.dtype and (np.allclose(mine, wanted, 2e-5, 2e-5, equal_nan=True) if wanted.dtype.kind == "f" else np.array_equal(mine, wanted))
                check(close, what, (batch, length), name, mine.shape, wanted.shape, mine.dtype, wanted.dtype, json.dumps(definition)[:700])
        return definition
    except (ConversionError, kernserve.Error) as error:
        check(False, what, repr(error))
        return None


IDS, MASKED = {"ids": ("I", ["B", "S"])}, {"ids": ("I", ["B", "S"]), "mask": ("I", ["B", "S"])}
HEADED = {"x": ("F", ["B", HEADS, "S", DEPTH])}


def positions(ks):
    """Embeddings of positions, counted and cut; what is one number everywhere."""
    embedded = [("Unsqueeze", "i,at0", "p"), ("Gather", "table,p", "e"), ("Gather", "words,ids", "w"), ("Add", "w,e", "y")]
    definition = asked(ks, [*SHAPE, *embedded], IDS, ops=["clamp", "scan", "reshape", "gather", "gather", "reshape", "add"], max_batch=64)
    if definition:
        try:
            ks.infer("case", ids=np.zeros((2, MOST + 1), np.int64))
            check(False, "a position without a row was taken")
        except kernserve.BadRequest as error:
            check(error.code == "range" and "outside" in str(error), error)
    cut = {"buffer": np.arange(MOST)[None], "zeros": np.zeros((1, MOST), np.int64), "moved": np.arange(MOST)[None] - 2}
    for buffer in ("buffer", "moved"):
        asked(ks, [*SHAPE, ("Slice", buffer + ",at0,n,at1", "p"), ("Gather", "table,p", "e"), ("Gather", "words,ids", "w"), ("Add", "w,e", "y")], IDS, cut, ["clamp", "scan", "reshape", "gather", "gather", "reshape", "add"], max_batch=64)
    kinds = [("Slice", "buffer,at0,n,at1,at1", "p"), ("GatherElements", "zeros,p", "t0", {"axis": 1}), ("Concat", "b,n", "bn", {"axis": 0}), ("Expand", "t0,bn", "t"), ("Gather", "types,t", "tt"), ("Gather", "words,ids", "w"), ("Add", "w,tt", "y")]
    asked(ks, [*SHAPE, *kinds], IDS, cut, ["gather"], max_batch=64)
    asked(ks, [*SHAPE, ("Slice", "rows,at0,n,at0", "r"), ("Mul", "r,two", "p"), ("Cast", "p", "f", {"to": 1}), ("Cast", "ids", "x", {"to": 1}), ("Add", "x,f", "y")], IDS, {"rows": RANDOM.integers(0, 9, MOST)}, max_batch=64)
    counted = [("Cast", "mask", "m", {"to": 6}), ("CumSum", "m,one", "c"), ("Mul", "c,m", "d"), ("Cast", "d", "p", {"to": 7}), ("Gather", "table,p", "e"), ("Gather", "words,ids", "w"), ("Add", "w,e", "y")]
    asked(ks, counted, MASKED, lengths=LENGTHS[:-1], max_batch=64)
    angles = [("Unsqueeze", "i,at0", "p"), ("Cast", "p", "pf", {"to": 1}), ("Unsqueeze", "pf,at1", "p3"), ("MatMul", "frequencies,p3", "a"), ("Transpose", "a", "t", {"perm": [0, 2, 1]}), ("Concat", "t,t", "tt", {"axis": -1}), ("Cos", "tt", "c0"),
              ("Unsqueeze", "c0,at1", "c"), ("Mul", "x,c", "y")]
    asked(ks, [*SHAPE, *angles], {**IDS, **HEADED}, {"frequencies": RANDOM.random((1, DEPTH // 2, 1)).astype(np.float32)}, max_batch=64, none=["slice"])


def attended(mask, low="inf", wrapped=False):
    """x x^T masked, softmax, x."""
    tail = [("IsNaN", "a", "nan"), ("Where", "nan,f0,a", "a1"), ("MatMul", "a1,x", "y")] if wrapped else [("MatMul", "a,x", "y")]
    return [("Transpose", "x", "t", {"perm": [0, 1, 3, 2]}), ("MatMul", "x,t", "z0"), ("Div", "z0,root", "z1"), *mask, ("Softmax", "z", "a", {"axis": -1}), *tail]


def masks(ks):
    both = {**MASKED, **HEADED}
    selected = lambda low: [("Where", "m,f0,%s" % low, "bias"), ("Add", "z1,bias", "z")]
    chosen = [("Where", "m,z1,inf", "z")]
    # As the newer exporter has it: GatherND at the batch's index and the key's; as the older one: the mask laid flat, at index * length + index.
    read = [("Cast", "mask", "kept", {"to": 9}), ("GreaterOrEqual", "q,zero", "g0"), ("And", "true,g0", "g"), ("Max", "jj,k", "both"), ("Shape", "both", "bs"), ("Expand", "jj,bs", "j1"), ("Unsqueeze", "j1,last", "j2"), ("Expand", "k,bs", "k1"),
            ("Unsqueeze", "k1,last", "k2"), ("Concat", "j2,k2", "at", {"axis": -1}), ("GatherND", "kept,at", "m0")]
    flat = [("Cast", "mask", "kept", {"to": 9}), ("GreaterOrEqual", "q,zero", "g0"), ("And", "true,g0", "g"), ("Flatten", "kept", "flat", {"axis": 2}), ("Mul", "jj,s0", "at0s"), ("Add", "k,at0s", "at"), ("Gather", "flat,at", "m1"),
            ("Reshape", "m1,last", "m2"), ("Shape", "at", "as"), ("Reshape", "m2,as", "m0")]
    for way in (read, flat):
        whole = [("And", "g,m0", "m")]
        asked(ks, [*INDICES, *way, *whole, *attended(chosen, wrapped=True)], both, none=["scan", "gather", "matmul", "softmax"], max_batch=64)
        asked(ks, [*INDICES, *way, *whole, *attended(selected("low"))], both, none=["scan", "gather", "matmul", "softmax"], max_batch=64)
        # Causal, too: rows without a key of their own follow ONNX whether what hides is finite or not.
        causal = [("LessOrEqual", "k,q", "c0"), ("And", "c0,g", "c"), ("And", "c,m0", "m")]
        left = lambda batch, length: {"ids": draw("ids", "I", [batch, length]), "mask": draw("mask", "I", [batch, length])[:, ::-1].copy(), "x": draw("x", "F", [batch, HEADS, length, DEPTH])}
        for given in (None, left):
            asked(ks, [*INDICES, *way, *causal, *attended(selected("low"))], both, none=["matmul", "softmax"], max_batch=64, given=given)
            asked(ks, [*INDICES, *way, *causal, *attended(chosen, wrapped=True)], both, none=["matmul", "softmax"], max_batch=64, given=given)
    alone = {**IDS, **HEADED}
    for compared in (("LessOrEqual", "k,q", "m"), ("GreaterOrEqual", "q,k", "m")):
        asked(ks, [*INDICES, compared, *attended(chosen)], alone, ops=["attention"], none=["scan", "matmul", "softmax"], max_batch=64)
    window = {"w": np.int64(3)}
    banded = [("LessOrEqual", "k,q", "m0"), ("Sub", "q,k", "d"), ("Less", "d,w", "m1"), ("And", "m0,m1", "m")]
    definition = asked(ks, [*INDICES, *banded, *attended(chosen)], alone, window, none=["scan", "matmul", "softmax"], max_batch=64)
    check(definition is None or any(node["parameters"].get("window") == 2 for node in definition["nodes"]), "no window")
    asked(ks, [*INDICES, ("Sub", "q,w", "qw"), ("Greater", "k,qw", "m1"), ("LessOrEqual", "k,q", "m0"), ("And", "m1,m0", "m"), *attended(chosen)], alone, window, none=["scan", "matmul", "softmax"])
    # Documents that are packed into one row, of positions that a graph itself counted: there is but one.
    packed = [("Unsqueeze", "i,at0", "p0"), ("Concat", "b,at1", "b1", {"axis": 0}), ("Expand", "p0,b1", "p"), ("Slice", "p,at0,at1,at1", "first"), ("Sub", "first,one", "before"), ("Concat", "before,p", "cat", {"axis": -1}), ("Add", "one,s0", "s1"),
              ("Unsqueeze", "s1,at0", "n1"), ("Slice", "cat,at1,n1,last", "later"), ("Slice", "cat,at0,n,last", "sooner"), ("Sub", "later,sooner", "step"), ("Equal", "step,one", "same"), ("Not", "same", "new"), ("Cast", "new", "new1", {"to": 7}),
              ("CumSum", "new1,minus", "document"), ("Expand", "jj,qs", "j1"), ("Expand", "q,qs", "q1"), ("Unsqueeze", "j1,last", "j2"), ("Unsqueeze", "q1,last", "q2"), ("Concat", "j2,q2", "atq", {"axis": -1}), ("GatherND", "document,atq", "dq"), ("GatherND", "p,atq", "pq"),
              ("LessOrEqual", "k,pq", "m0"), ("Equal", "dq,zero", "m1"), ("And", "m0,m1", "m")]
    asked(ks, [*INDICES, ("Max", "jj,q", "jq"), ("Shape", "jq", "qs"), *packed, *attended(chosen)], alone, none=["scan", "matmul", "softmax"], max_batch=64)


def spread(ks):
    """What is the same at each place: its length stands where it is asked for."""
    floats = {"ids": ("I", ["B", "S"]), "x": ("F", ["B", "S", WIDE])}
    first = {"cls": RANDOM.standard_normal((1, 1, WIDE)).astype(np.float32)}
    asked(ks, [*SHAPE, ("Concat", "b,at1,wide", "to", {"axis": 0}), ("Expand", "cls,to", "c"), ("Concat", "c,x", "y", {"axis": 1})], floats, first, max_batch=64)
    asked(ks, [*SHAPE, ("Concat", "b,n,wide", "to", {"axis": 0}), ("Expand", "cls,to", "y")], IDS, first)
    asked(ks, [*SHAPE, ("Concat", "b,n", "to", {"axis": 0}), ("ConstantOfShape", "to", "y", {"value": numpy_helper.from_array(np.array([3], np.int64))})], IDS)
    asked(ks, [*SHAPE, ("Concat", "n,n", "to", {"axis": 0}), ("Expand", "true,to", "y")], IDS)
    asked(ks, [*SHAPE, ("Unsqueeze", "i,at0", "y")], IDS)
    asked(ks, [*INDICES, ("Greater", "q,k", "y")], IDS)
    pooled = [("Unsqueeze", "mask,last", "m0"), ("Shape", "x", "xs"), ("Expand", "m0,xs", "m1"), ("Cast", "m1", "m", {"to": 1}), ("Mul", "x,m", "xm"), ("ReduceSum", "xm,at1", "t", {"keepdims": 0}), ("ReduceSum", "m,at1", "c0", {"keepdims": 0}),
              ("Clip", "c0,small", "c"), ("Div", "t,c", "p"), ("ReduceL2", "p,at1", "l", {"keepdims": 1}), ("Div", "p,l", "y")]
    asked(ks, pooled, {"mask": ("I", ["B", "S"]), "x": ("F", ["B", "S", WIDE])}, {"small": np.float32(1e-9)}, none=["expand"], max_batch=64)
    # T5's: buckets of how far apart, by logarithms, whose bias is added to the scores.
    bias = {"eight": np.int64(4), "eightf": np.float32(4), "scale": np.float32(2.1), "most": np.int64(7), "biases": RANDOM.standard_normal((16, HEADS)).astype(np.float32)}
    bucket = [("Unsqueeze", "i,at1", "r"), ("Unsqueeze", "i,at0", "c"), ("Sub", "c,r", "d"), ("Greater", "d,zero", "right"), ("Cast", "right", "r0", {"to": 7}), ("Mul", "r0,eight", "r1"), ("Abs", "d", "apart"), ("Less", "apart,eight", "near"), ("Cast", "apart", "af", {"to": 1}),
              ("Div", "af,eightf", "ad"), ("Log", "ad", "al"), ("Mul", "al,scale", "as"), ("Cast", "as", "ai", {"to": 7}), ("Add", "ai,eight", "far0"), ("Min", "far0,most", "far"), ("Where", "near,apart,far", "b1"), ("Add", "b1,r1", "bucket"), ("Gather", "biases,bucket", "bb"),
              ("Transpose", "bb", "bt", {"perm": [2, 0, 1]}), ("Unsqueeze", "bt,at0", "bu")]
    asked(ks, [*SHAPE, *bucket, *attended([("Add", "z1,bu", "z")])], {**IDS, **HEADED}, bias, none=["matmul", "softmax"])


def decoders(ks):
    """What decoders' blocks are spelt as: rotary positions on heads in front of rows, RMS norm by a reciprocal; and vision's: patches, a mask of zeros."""
    half = DEPTH // 2
    angles = [("Unsqueeze", "i,at0", "p"), ("Cast", "p", "pf", {"to": 1}), ("Unsqueeze", "pf,last", "p3"), ("Mul", "p3,frequencies", "t"), ("Concat", "t,t", "tt", {"axis": -1}), ("Cos", "tt", "c0"), ("Sin", "tt", "s9"),
              ("Unsqueeze", "c0,at1", "c"), ("Unsqueeze", "s9,at1", "sn")]
    turned = lambda x, y: [("Slice", x + ",at0,half,at3", x + "a"), ("Slice", x + ",half,end,at3", x + "b"), ("Neg", x + "b", x + "n"), ("Concat", "%sn,%sa" % (x, x), x + "h", {"axis": -1}), ("Mul", x + ",c", x + "c"), ("Mul", x + "h,sn", x + "s"),
                           ("Add", "%sc,%ss" % (x, x), y)]
    apart = [("Concat", "b,n,heads,depth", "apart", {"axis": 0}), ("Reshape", "rows,apart", "r4"), ("Transpose", "r4", "q0", {"perm": [0, 2, 1, 3]}), ("Concat", "b,n,wide", "joined", {"axis": 0})]
    tail = [("Transpose", "q2", "t4", {"perm": [0, 1, 3, 2]}), ("MatMul", "q1,t4", "z1"), ("Softmax", "z1", "a", {"axis": -1}), ("MatMul", "a,q0", "o"), ("Transpose", "o", "o1", {"perm": [0, 2, 1, 3]}), ("Reshape", "o1,joined", "y")]
    more = {"frequencies": RANDOM.random(half).astype(np.float32), "half": ints(half), "end": ints(2 ** 62)}
    definition = asked(ks, [*SHAPE, *angles, *apart, ("Identity", "q0", "k0"), *turned("q0", "q1"), *turned("k0", "q2"), *tail], {**IDS, "rows": ("F", ["B", "S", WIDE])}, more, none=["transpose", "neg", "softmax"], max_batch=64)
    check(definition is None or [node["op"] for node in definition["nodes"]].count("attention") == 1, "rotary")
    norm = [("Mul", "rows,rows", "q"), ("ReduceMean", "q,last", "m"), ("Add", "m,eps", "e"), ("Sqrt", "e", "r")]
    constants = {"eps": np.float32(1e-5), "w": RANDOM.random(WIDE).astype(np.float32)}
    for inverse in (("Reciprocal", "r", "v"), ("Div", "f1,r", "v")):
        asked(ks, [*norm, inverse, ("Mul", "rows,v", "n"), ("Mul", "w,n", "y")], {"rows": ("F", ["B", "S", WIDE])}, constants, ["norm"], max_batch=64)
    patches = [("Conv", "x,w,wb", "c", {"kernel_shape": [2, 2], "strides": [2, 2]}), ("Reshape", "c,flat", "f"), ("Transpose", "f", "y", {"perm": [0, 2, 1]})]
    weights = {"w": RANDOM.standard_normal((5, 3, 2, 2)).astype(np.float32), "wb": RANDOM.standard_normal(5).astype(np.float32), "flat": ints(0, 5, -1)}
    asked(ks, patches, {"x": ("F", ["B", 3, 6, 4])}, weights, ["window", "matmul", "reshape"], max_batch=64)
    asked(ks, [*attended([("Add", "z1,none", "z")], wrapped=True)], {"x": ("F", ["B", HEADS, 6, DEPTH])}, {"none": np.zeros((1, 1, 6, 1), np.float32)}, ["attention"], max_batch=64)
    asked(ks, [("HardSwish", "x", "a"), ("HardSigmoid", "a", "y")], {"x": ("F", ["B", 5])}, ops=["linear", "clamp", "mul", "linear", "clamp"], max_batch=64)


def learned(ks):
    """ai.onnx.ml."""
    rows, lengths = {"x": ("F", ["B", 5])}, ((1, 1), (6, 1))
    numbers = lambda *shape: [float(value) for value in RANDOM.standard_normal(shape).reshape(-1)]
    asked(ks, [("ml::Scaler", "x", "y", {"offset": numbers(5), "scale": numbers(5)})], rows, ops=["sub", "mul"], lengths=lengths, ml=True)
    for norm in ("MAX", "L1", "L2"):
        given = lambda batch, length: {"x": np.vstack([RANDOM.random((batch, 5)), np.zeros((int(norm != "MAX"), 5))]).astype(np.float32)}
        asked(ks, [("ml::Normalizer", "x", "y", {"norm": norm})], rows, lengths=lengths, given=given, ml=True)
    asked(ks, [("ml::LinearRegressor", "x", "y", {"coefficients": numbers(10), "intercepts": numbers(2), "targets": 2})], rows, ops=["matmul"], lengths=lengths, ml=True)
    for post, ops in (("NONE", []), ("SOFTMAX", ["softmax"])):
        made = {"coefficients": numbers(15), "intercepts": numbers(3), "classlabels_ints": [4, 7, 9], "post_transform": post}
        asked(ks, [("ml::LinearClassifier", "x", "label,y", made)], rows, ops=["matmul", *ops, "reduce", "gather"], outputs="label,y", lengths=lengths, ml=True)
    asked(ks, [("ml::ArrayFeatureExtractor", "x,few", "y")], rows, {"few": ints(3, 0)}, lengths=lengths, ml=True)
    asked(ks, [("ml::Binarizer", "x", "y", {"threshold": 0.25})], rows, ops=["gt", "cast"], lengths=lengths, ml=True)


def refusals():
    """And what is not needed is not named."""
    for nodes, inputs, words in (([*SHAPE, ("Add", "s0,s0", "s2"), ("Range", "zero,s2,one", "r"), ("Cast", "r", "y", {"to": 1})], IDS, "it counts up to a length that no input has"),
                                 ([*SHAPE, ("Range", "one,s0,one", "r"), ("Cast", "r", "y", {"to": 1})], IDS, "node 'range7' (Range): it computes with a length that only a request knows"),
                                 ([("ml::LinearClassifier", "x", "label,y", {"coefficients": [1.0] * 5, "classlabels_ints": [0, 1]})], {"x": ("F", ["B", 5])}, "it has one score for two classes"),
                                 ([("ml::Normalizer", "x", "y", {"norm": "L7"})], {"x": ("F", ["B", 5])}, "its norm is 'L7'"),
                                 ([("Relu", "x", "y"), ("NonZero", "x", "n"), ("Transpose", "n", "unused")], {"x": ("F", ["B", 5])}, None)):
        try:
            convert(graph(nodes, inputs, ml=True))
            check(words is None, nodes[-1], "was converted")
        except ConversionError as error:
            check(words is not None and words in str(error), nodes[-1], error)


def main():
    with Daemon(daemon_path(), "--backend", base.BACKEND) as daemon, kernserve.Client("http://127.0.0.1:%d" % daemon.port) as ks:
        for part in (positions, masks, spread, decoders, learned):
            part(ks)
        ks.unload("case")
        check(daemon.stop() == 0, "the exit code")
    refusals()
    return wrongs() > 0


if __name__ == "__main__":
    sys.exit(main())
