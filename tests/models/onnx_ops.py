#!/usr/bin/env python3
"""The converter of ONNX graphs (kernserve.onnx): each operator, alone and in the patterns that one node can do, converted from FP32
(products and patterns from FP16 and FP64, too) and asked of the daemon with two batches, against onnx.reference in FP64; names and free
lengths; and each node that it cannot do is named.

onnx_ops.py KERNSERVE [BACKEND]     of tests/compat/environment.sh tests/models; cpu, where no backend is named
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENT = os.path.join(HERE, "..", "..", "clients", "python", "src")
sys.path[:0] = [os.path.join(HERE, "..", "http"), CLIENT]
import kernserve  # noqa: E402
from daemon import Daemon, check, daemon_path, seed, wrongs  # noqa: E402
from kernserve.onnx import ConversionError, convert  # noqa: E402

BACKEND = sys.argv[2] if len(sys.argv) > 2 else "cpu"
RANDOM = np.random.default_rng(seed().getrandbits(32))
OPSET = 21


def size(low=2, high=9):
    return int(RANDOM.integers(low, high))


class Case:
    """A graph for any datatype of floats. x has the shape ["batch", ...]; constants are arrays, or shapes of random ones."""

    def __init__(self, nodes, x=(), constants=None, more=None, ops=None, opset=OPSET, positive=False, y="y", bound=1e-5):
        self.nodes = [nodes] if isinstance(nodes, tuple) else nodes
        self.x, self.opset, self.positive, self.y, self.bound = list(x), opset, positive, [y] if isinstance(y, str) else y, bound
        self.more = more or {}  # further inputs: shapes behind the batch
        self.constants = {}
        for name, values in (constants or {}).items():
            if isinstance(values, (tuple, list)):
                values = self.draw(values)
            self.constants[name] = np.asarray(values)
        self.ops = ops  # what the chain must be
        self.dtype = np.float32

    def draw(self, shape):
        values = RANDOM.standard_normal(shape).astype(np.float32)
        return np.abs(values) + np.float32(0.1) if self.positive else values

    def name(self):
        return "+".join(node[0] for node in self.nodes)

    def model(self, dtype):
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        inputs = [helper.make_tensor_value_info(name, kind, ["batch", *shape]) for name, shape in {"x": self.x, **self.more}.items()]
        constants = [numpy_helper.from_array(values.astype(self.dtype).astype(dtype) if values.dtype.kind == "f" else values, name)
                     for name, values in self.constants.items()]
        own = lambda attributes: {name: kind if value is None else value for name, value in (attributes[0] if attributes else {}).items()}  # to: None is x's datatype
        nodes = [helper.make_node(op, ins.split(",") if ins else [], outs.split(","), name="%s%d" % (op.lower(), place), **own(attributes))
                 for place, (op, ins, outs, *attributes) in enumerate(self.nodes)]
        outputs = [onnx.ValueInfoProto(name=name) for name in self.y]
        graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        made = onnx.shape_inference.infer_shapes(model)  # outputs have datatypes then
        return made

    def run(self, ks, dtype=np.float32):
        self.dtype, bound = dtype, {np.float16: 0.03, np.float32: self.bound, np.float64: 0.03 * self.bound}[dtype]  # erf of onnx.reference is FP32's
        definition, weights = convert(self.model(dtype))
        if self.ops is not None:
            got = [node["parameters"].get("op", node["op"]) if node["op"] == "map" else node["op"] for node in definition["nodes"]]
            check(got == self.ops, self.name(), "became", got, "instead of", self.ops)
        ks.load("case", definition, weights)
        exact = ReferenceEvaluator(self.model(np.float64))
        for batch in (1, size(2, 6)):
            given = {name: self.draw([batch, *shape]).astype(dtype) for name, shape in {"x": self.x, **self.more}.items()}
            results = ks.infer("case", **given)
            expected = exact.run(None, {name: values.astype(np.float64) for name, values in given.items()})
            for name, right in zip(self.y, expected):
                got, right = np.asarray(results[name]), np.asarray(right)
                good = got.shape == right.shape and (got.dtype == dtype if right.dtype == np.float64 else got.dtype == right.dtype)
                wide = np.float64 if right.dtype.kind == "f" else right.dtype
                if good and right.dtype.kind == "f":
                    good = np.all(np.abs(got.astype(wide) - right) <= bound * (1 + np.abs(right)))
                check(good and (right.dtype.kind == "f" or np.array_equal(got, right)), self.name(), name, got.shape, right.shape, got.dtype, np.abs(got - right).max() if got.shape == right.shape and right.dtype.kind == "f" else "", json.dumps(definition)[:600])


def ints(*values):
    return np.array(values, np.int64)


def elements():
    a, b = size(), size()
    for op in ("Add", "Sub", "Mul", "Div", "Min", "Max"):
        yield Case((op, "x,c", "y"), [a, b], {"c": [b]}, positive=op == "Div", ops=[op.lower()])
        yield Case((op, "c,x", "y"), [a, b], {"c": [a, 1]}, positive=op == "Div")
        yield Case((op, "x,z", "y"), [a, b], more={"z": [a, 1]}, positive=op == "Div")
        yield Case((op, "x,c", "y"), [b], {"c": np.float32(0.75)})
        yield Case((op, "c,x", "y"), [b], {"c": np.array([1.5], np.float32)}, positive=op == "Div")
        yield Case((op, "x,c", "y"), [b], {"c": np.full((1, 1, 1), 0.75, np.float32)})  # one axis more than x
    yield Case(("Pow", "x,c", "y"), [a], {"c": np.float32(1.7)}, positive=True)
    yield Case(("Pow", "x,c", "y"), [a], {"c": ints(3)})
    yield Case(("Pow", "x,z", "y"), [a], more={"z": [a]}, positive=True)
    yield Case(("Sum", "x,z,c", "y"), [a], {"c": [a]}, more={"z": [a]})
    yield Case(("Mean", "x,z,c", "y"), [a], {"c": [a]}, more={"z": [a]})
    yield Case(("Max", "x", "y"), [a])
    for op in ("Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Neg", "Abs", "Sign", "Sin", "Cos", "Floor", "Ceil", "Round", "Softplus", "Elu", "LeakyRelu",
               "Identity", "Dropout", "Gelu"):
        yield Case((op, "x", "y"), [a, b])
    yield Case(("Gelu", "x", "y", {"approximate": "tanh"}), [a, b])
    yield Case(("Elu", "x", "y", {"alpha": 0.3}), [a])
    for op in ("Log", "Sqrt", "Reciprocal"):
        yield Case((op, "x", "y"), [a, b], positive=True)
    yield Case(("Clip", "x,low,high", "y"), [a], {"low": np.float32(-0.5), "high": np.float32(0.25)})
    yield Case(("Clip", "x,,high", "y"), [a], {"high": np.float32(0.25)})
    for op in ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"):
        yield Case([(op, "x,z", "m"), ("Where", "m,x,z", "y")], [a], more={"z": [a]})
    yield Case([("Less", "x,z", "m"), ("Not", "m", "n"), ("And", "m,n", "o"), ("Or", "o,m", "q"), ("Xor", "q,n", "y")], [a], more={"z": [a]})
    yield Case([("IsNaN", "x", "y")], [a])
    yield Case([("Cast", "x", "i", {"to": onnx.TensorProto.INT32}), ("Add", "i,i", "y")], [a])
    yield Case(("BatchNormalization", "x,s,b,m,v", "y"), [a, b], {"s": [a], "b": [a], "m": [a], "v": np.float32(RANDOM.random(a) + 0.1)})


def products():
    k, n, rows = size(), size(), size()
    for trans in (0, 1):
        for alpha, beta in ((1.0, 1.0), (0.5, 2.0)):
            shape = [n, k] if trans else [k, n]
            attributes = {"transB": trans, "alpha": alpha, "beta": beta}
            yield Case(("Gemm", "x,w,b", "y", attributes), [k], {"w": shape, "b": [n]}, ops=["matmul"])
            yield Case(("Gemm", "x,w,b", "y", attributes), [k], {"w": shape, "b": [1, n]}, ops=["matmul"])
            yield Case(("Gemm", "x,w,b", "y", attributes), [k], {"w": shape, "b": [1]}, ops=["matmul", "add"] if n > 1 else None)
            yield Case(("Gemm", "x,w,z", "y", attributes), [k], {"w": shape}, more={"z": [n]})
            yield Case(("Gemm", "x,w", "y", attributes), [k], {"w": shape})
    yield Case([("Transpose", "x", "t"), ("Gemm", "t,w,b", "y", {"transA": 1})], [k], {"w": [k, n], "b": [n]}, ops=["matmul"])
    yield Case([("Transpose", "x", "t"), ("Gemm", "t,t,", "y", {"transA": 1})], [k], ops=["matmul"])
    yield Case(("MatMul", "x,z", "y"), [rows, k], more={"z": [k, n]})
    yield Case(("MatMul", "x,w", "y"), [rows, k], {"w": [k, n]}, ops=["matmul"])
    for equation, of, ops in (("bij,jk->bik", {"w": [k, n]}, ["matmul"]), ("bij,kj->bik", {"w": [n, k]}, ["matmul"]), ("bij,kj->bki", {"w": [n, k]}, None), ("bij,j->bi", {"w": [k]}, None), ("bij,i->bij", {"w": [rows]}, None),
                              ("bij,jk->ik", {"w": [k, n]}, None), ("bij,ijk->bik", {"w": [rows, k, n]}, None)):
        yield Case(("Einsum", "x,w", "y", {"equation": equation}), [rows, k], of, ops=ops)
    for equation in ("bij,bkj->bik", "bij,bkj->bki", "bij,bkj->bijk"):
        yield Case(("Einsum", "x,z", "y", {"equation": equation}), [rows, k], more={"z": [n, k]})
    for equation in ("bij->bji", "bij->ib", "bij->j"):
        yield Case(("Einsum", "x", "y", {"equation": equation}), [rows, k])
    yield Case([("MatMul", "x,w", "h"), ("Add", "b,h", "g"), ("Relu", "g", "y")], [rows, k], {"w": [k, n], "b": [n]}, ops=["matmul"])
    yield Case([("MatMul", "x,w", "h"), ("Add", "h,b", "g"), ("Relu", "g", "r"), ("Add", "r,g", "y")], [k], {"w": [k, n], "b": [n]}, ops=["matmul", "relu", "add"])
    yield Case([("MatMul", "x,w", "h"), ("Add", "h,b", "y")], [rows, k], {"w": [k, n], "b": [rows, 1]}, ops=["matmul", "add"])
    yield Case([("MatMul", "x,w", "h"), ("Add", "h,b", "g"), ("Relu", "g", "r"), ("Reshape", "r,s", "y")], [k], {"w": [k, n], "b": [1, n], "s": ints(-1, n)}, ops=["matmul"])
    yield Case([("MatMul", "x,w", "h"), ("Add", "h,b", "y")], [k], {"w": [k, n], "b": [1, 1, n]}, ops=["matmul", "add"])
    yield Case([("MatMul", "x,w", "h"), ("Dropout", "h", "d"), ("Relu", "d", "y")], [k], {"w": [k, n]}, ops=["matmul"])
    yield Case([("Transpose", "w", "t", {"perm": [1, 0]}), ("MatMul", "x,t", "y")], [k], {"w": [n, k]}, ops=["matmul"])
    yield Case([("Transpose", "z", "t", {"perm": [0, 2, 1]}), ("MatMul", "x,t", "y")], [rows, k], more={"z": [n, k]}, ops=["matmul"])


def patterns():
    k, n, rows = size(), size(4, 9), size()
    half, one, root = np.float32(0.5), np.float32(1), np.float32(np.sqrt(2))
    scalars = {"half": half, "one": one, "root": root}
    erf = [("Div", "x,root", "d"), ("Erf", "d", "e"), ("Add", "e,one", "f")]
    yield Case([*erf, ("Mul", "x,f", "g"), ("Mul", "g,half", "y")], [n], scalars, ops=["gelu"])
    yield Case([*erf, ("Mul", "x,half", "g"), ("Mul", "g,f", "y")], [n], scalars, ops=["gelu"])
    yield Case([*erf, ("Mul", "half,f", "g"), ("Mul", "g,x", "y")], [n], scalars, ops=["gelu"])
    yield Case([*erf, ("Mul", "x,f", "y")], [n], scalars, ops=["div", "erf", "add", "mul"])  # twice a gelu is none
    yield Case([("MatMul", "x,w", "p"), ("Add", "p,b", "h"), ("Div", "h,root", "d"), ("Erf", "d", "e"), ("Add", "e,one", "f"), ("Mul", "h,f", "g"), ("Mul", "g,half", "y")],
               [k], dict(scalars, w=[k, n], b=[n]), ops=["matmul"])
    yield Case([("Pow", "x,three", "c"), ("Mul", "c,small", "s"), ("Add", "x,s", "i"), ("Mul", "i,scale", "j"), ("Tanh", "j", "t"), ("Add", "t,one", "f"),
                ("Mul", "x,f", "g"), ("Mul", "g,half", "y")], [n],
               dict(scalars, three=np.float32(3), small=np.float32(0.044715), scale=np.float32(np.sqrt(2 / np.pi))), ops=["gelu_tanh"])
    yield Case([("Mul", "x,x", "q"), ("Mul", "q,small", "s"), ("Add", "s,one", "a"), ("Mul", "x,scale", "b"), ("Mul", "b,a", "j"), ("Tanh", "j", "t"), ("Add", "t,one", "f"),
                ("Mul", "x,half", "g"), ("Mul", "g,f", "y")], [n],
               dict(scalars, small=np.float32(0.044715), scale=np.float32(np.sqrt(2 / np.pi))), ops=["gelu_tanh"])
    yield Case([("Sigmoid", "x", "s"), ("Mul", "s,x", "y")], [n], ops=["silu"])
    for square, last in ((("Pow", "d,two", "q"), -1), (("Mul", "d,d", "q"), 2)):
        norm = [("ReduceMean", "x,axis", "m"), ("Sub", "x,m", "d"), square, ("ReduceMean", "q,axis", "v"), ("Add", "v,eps", "e"), ("Sqrt", "e", "r"), ("Div", "d,r", "n")]
        constants = {"axis": ints(last), "two": np.float32(2), "eps": np.float32(1e-5), "w": [n], "b": [n]}
        yield Case([*norm, ("Mul", "n,w", "s"), ("Add", "s,b", "y")], [rows, n], constants, ops=["norm"], bound=3e-5)
        yield Case([*norm, ("Mul", "w,n", "s"), ("Relu", "s", "y")], [rows, n], constants, ops=["norm"], bound=3e-5)
    middle = [("ReduceMean", "x,axis", "m"), ("Sub", "x,m", "d"), ("Mul", "d,d", "q"), ("ReduceMean", "q,axis", "v"), ("Add", "v,eps", "e"), ("Sqrt", "e", "r"), ("Div", "d,r", "y")]
    yield Case(middle, [rows, n], {"axis": ints(1), "eps": np.float32(1e-3)}, ops=["reduce", "sub", "mul", "reduce", "add", "sqrt", "div"], bound=3e-5)
    yield Case([("Mul", "x,x", "q"), ("ReduceMean", "q,axis", "v"), ("Add", "v,eps", "e"), ("Sqrt", "e", "r"), ("Div", "x,r", "n"), ("Mul", "n,w", "y")], [n],
               {"axis": ints(-1), "eps": np.float32(1e-5), "w": [n]}, ops=["norm"], bound=3e-5)
    yield Case(("LayerNormalization", "x,w,b", "y", {"epsilon": 1e-3}), [rows, n], {"w": [n], "b": [n]}, ops=["norm"], bound=3e-5)
    yield Case(("LayerNormalization", "x,w", "y", {"axis": 1}), [rows, n], {"w": [rows, n]}, ops=["norm"], bound=3e-5)
    yield Case(("Softmax", "x", "y", {"axis": 1}), [rows, n])
    yield Case(("Softmax", "x", "y"), [rows, n])
    yield Case(("LogSoftmax", "x", "y", {"axis": -1}), [rows, n])


def spelt():
    """Norms along any axis and softmax as exporters write them that know neither: sums and factors, reshapes for what broadcasts, variance as E[x^2] - E[x]^2."""
    rows, n = size(3, 9), size(3, 9)
    softmax = [("ReduceMax", "x,axis", "m"), ("Sub", "x,m", "d"), ("Exp", "d", "e"), ("ReduceSum", "e,axis", "t"), ("Div", "e,t", "y")]
    yield Case(softmax, [rows, n], {"axis": ints(-1)}, ops=["softmax"])
    yield Case(softmax, [rows, n], {"axis": ints(1)}, ops=["softmax"])
    bounded = [("ReduceMax", "x,axis", "m0", {"keepdims": 0}), ("Max", "low,m0", "m1"), ("Unsqueeze", "m1,axis", "m"), *softmax[1:]]
    yield Case(bounded, [n], {"axis": ints(1), "low": np.float32(-np.inf)}, ops=["softmax"])
    yield Case([*softmax[:-1], ("Div", "d,t", "y")], [n], {"axis": ints(1)}, ops=["reduce", "sub", "exp", "reduce", "div"])
    for axis, shape, became in ((1, [rows, 1], ["transpose", "norm", "transpose"]), (2, [n], ["norm"])):
        for extent, ops in (((rows, n)[axis - 1], became), ((rows, n)[axis - 1] + 1, None)):  # a factor that makes no mean is none
            means = [("ReduceSum", "x,axis", "s", {"keepdims": 0}), ("Mul", "x,x", "q"), ("ReduceSum", "q,axis", "s2", {"keepdims": 0}), ("Mul", "s,part", "m"), ("Mul", "s2,part", "m2")]
            norm = [("Mul", "m,m", "mm"), ("Sub", "m2,mm", "v"), ("Max", "v,zero", "vv"), ("Unsqueeze", "vv,axis", "vu"), ("Unsqueeze", "m,axis", "mu"), ("Add", "vu,eps", "e"),
                    ("Sqrt", "e", "r"), ("Reciprocal", "r", "i"), ("Mul", "i,w", "iw"), ("Sub", "x,mu", "d"), ("Mul", "d,iw", "n"), ("Add", "n,b", "y")]
            constants = {"axis": ints(axis), "part": np.float32(1 / extent), "zero": np.float32(0), "eps": np.float32(1e-2), "w": [1, *shape], "b": shape}
            yield Case([*means, *norm], [rows, n], constants, ops=ops, bound=1e-4)


def windows():
    """Convolutions and pools, along one axis and two; what stands between transposes loses them."""
    c, o, n, m = size(1, 6), size(1, 6), size(7, 12), size(6, 11)
    conv = lambda *size, **attributes: ([("Conv", "x,w,b", "y", attributes)], {"w": [o, c, *size], "b": [o]})
    for nodes, constants in (conv(3), conv(5, strides=[2]), conv(3, pads=[2, 1], dilations=[2]), conv(4, auto_pad="SAME_UPPER", strides=[2]), conv(1)):
        yield Case(nodes, [c, n], constants, ops=None if c == 1 or o == 1 or "w" not in constants else ["window", "matmul", "transpose"] if constants["w"][2] > 1 else None, bound=3e-5)
    for nodes, constants in (conv(3, 3), conv(3, 2, strides=[2, 1], pads=[1, 0, 0, 1]), conv(2, 3, dilations=[2, 2], auto_pad="SAME_LOWER"), conv(5, 1, kernel_shape=[5, 1])):
        yield Case(nodes, [c, n, m], constants, bound=3e-5)
    yield Case([("Conv", "x,w", "h"), ("Relu", "h", "y")], [c, n], {"w": [o + 1, c, 3]}, ops=["window", "matmul", "transpose"], bound=3e-5)
    rows = [("Transpose", "x", "t", {"perm": [0, 2, 1]}), ("Unsqueeze", "t,last", "u"), ("Conv", "u,w", "h", {"kernel_shape": [3, 1]}), ("Squeeze", "h,last", "s"), ("Add", "s,b", "a")]
    wide = {"w": [o + 1, c + 1, 3, 1], "b": [1, o + 1, 1], "last": ints(3)}
    yield Case([*rows, ("Transpose", "a", "y", {"perm": [0, 2, 1]})], [n, c + 1], wide, ops=["window", "matmul"], bound=3e-5)
    yield Case([*rows[:3], ("GlobalMaxPool", "h", "g"), ("Squeeze", "g,both", "y")], [n, c + 1], dict(wide, both=ints(2, 3)), ops=["window", "matmul", "reshape", "reduce", "reshape"], bound=3e-5)
    turned = [("Transpose", "x", "t", {"perm": [0, 2, 3, 1]}), ("Add", "t,b", "a"), ("Mul", "w,a", "h")]
    yield Case([*turned, ("Transpose", "h", "y", {"perm": [0, 3, 1, 2]})], [c + 1, n, m], {"b": [n, m, c + 1], "w": [c + 1]}, ops=["add", "mul"])
    yield Case([*turned, ("ReduceMean", "h,two", "y", {"keepdims": 0})], [c + 1, n, m], {"b": [n, m, c + 1], "w": [c + 1], "two": ints(2)}, ops=["add", "mul", "reduce", "transpose"])
    for shape in ([c, n], [c, n, m]):
        spatial = len(shape) - 1
        for op in ("GlobalMaxPool", "GlobalAveragePool")[:spatial * 2 - 2]:  # onnx.reference takes other axes of one alone
            yield Case((op, "x", "y"), shape, ops=["reduce"])
        for op, attributes in (("MaxPool", {}), ("MaxPool", {"pads": [1] * (2 * spatial), "strides": [2] * spatial}), ("AveragePool", {"strides": [3] * spatial}),
                               ("AveragePool", {"pads": [1] * (2 * spatial), "count_include_pad": 1})):
            yield Case((op, "x", "y", {"kernel_shape": [3] * spatial, **attributes}), shape)


def lookups():
    """Rows by indices that a graph computes or has; one-hot products, whose table takes what follows."""
    n, k, v = size(3, 9), size(2, 7), size(3, 8)
    yield Case([("ArgMax", "x", "i", {"axis": 1, "keepdims": 0}), ("Gather", "t,i", "y")], [v], {"t": [v, k]}, ops=["reduce", "gather"])
    yield Case([("ArgMax", "x", "i", {"axis": 1}), ("GatherElements", "x,i", "y", {"axis": 1})], [v], ops=["reduce", "gather"])
    yield Case(("Gather", "x,i", "y", {"axis": 2}), [n, v], {"i": np.array([[0, -1], [2, 2]], np.int64)}, ops=["gather"])
    yield Case(("Gather", "x,i", "y", {"axis": 1}), [v], {"i": np.array([0, 2, 1], np.int32)}, ops=["gather"])
    hot = [("Mul", "x,three", "h"), ("Cast", "h", "i", {"to": onnx.TensorProto.INT32}), ("Unsqueeze", "i,last", "u"), ("Equal", "u,iota", "e"),
           ("Cast", "e", "f", {"to": None}), ("MatMul", "f,t", "p"), ("Identity", "p", "y")]
    for first in (0, -2):  # of what is below and above them the row is zeros
        constants = {"three": np.float32(3), "last": ints(2), "iota": np.arange(first, first + v, dtype=np.int32), "t": [v, k], "b": [k]}
        yield Case(hot, [n], constants, ops=["mul", "cast", "add", "gather"])
        yield Case([*hot[:-1], ("Add", "p,b", "a"), ("Tanh", "a", "y")], [n], constants, ops=["mul", "cast", "add", "gather"])
    yield Case([*hot[:-1], ("Add", "p,b", "a"), ("Mul", "a,p", "y")], [n], constants, ops=["mul", "cast", "add", "gather", "add", "mul"])
    yield Case([("ArgMax", "x", "i", {"axis": 1, "keepdims": 0}), ("Unsqueeze", "i,last", "u"), ("Gather", "t,u", "g"), ("Mul", "g,b", "y")], [v], {"t": [v], "b": [v], "last": ints(1)},
               ops=["reduce", "reshape", "gather", "mul"])
    constants = dict(constants, iota=np.arange(v, dtype=np.int32) * 2)
    yield Case(hot, [n], constants, ops=["mul", "cast", "reshape", "eq", "cast", "matmul"])  # no rows of one-hot


def encoder(fused):
    """A block of an encoder as PyTorch exports it: attention by transposes of a projection that is cut in three, and shapes computed from x's. The
    daemon's attention takes no FP64: products and softmax are not fused then."""
    rows, heads, deep = size(), size(2, 4), size(3, 6)
    wide = heads * deep
    names = [("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])]
    nodes = [("LayerNormalization", "x,nw,nb", "n"), ("MatMul", "n,wqkv", "p"), ("Add", "p,bqkv", "qkv"), ("Split", "qkv", "q0,k0,v0", {"axis": -1, "num_outputs": 3}),
             ("Shape", "x", "s"), ("Slice", "s,zero,two", "front"), ("Concat", "front,split", "cut", {"axis": 0}), ("Concat", "front,joined", "whole", {"axis": 0})]
    for name, perm in names:
        nodes += [("Reshape", name + "0,cut", name + "1"), ("Transpose", name + "1", name, {"perm": perm})]
    nodes += [("MatMul", "q,k", "a"), ("Div", "a,root", "b"), ("Softmax", "b", "c", {"axis": -1}), ("MatMul", "c,v", "d"), ("Transpose", "d", "e", {"perm": [0, 2, 1, 3]}),
              ("Reshape", "e,whole", "f"), ("MatMul", "f,wo", "g"), ("Add", "g,bo", "h"), ("Add", "x,h", "r"), ("LayerNormalization", "r,nw,nb", "t"),
              ("MatMul", "t,w1", "u"), ("Add", "b1,u", "u1"), ("Gelu", "u1", "u2"), ("MatMul", "u2,w2", "m"), ("Add", "m,bo", "m1"), ("Add", "r,m1", "y")]
    constants = {"nw": [wide], "nb": [wide], "wqkv": [wide, 3 * wide], "bqkv": [3 * wide], "wo": [wide, wide], "bo": [wide], "w1": [wide, 4 * wide], "b1": [4 * wide],
                 "w2": [4 * wide, wide], "zero": ints(0), "two": ints(2), "split": ints(heads, deep), "joined": ints(wide), "root": np.float32(np.sqrt(deep))}
    for name in ("wqkv", "wo", "w1", "w2"):
        constants[name] = (RANDOM.standard_normal(constants[name]) / np.sqrt(constants[name][0])).astype(np.float32)
    middle = ["reshape"] * 3 + ["attention"] if fused else ["reshape", "transpose"] * 3 + ["matmul", "div", "softmax", "matmul", "transpose"]
    yield Case(nodes, [rows, wide], constants, bound=1e-4,
               ops=["norm", "matmul", *["slice"] * 3, *middle, "reshape", "matmul", "add", "norm", "matmul", "matmul", "add"])


def quantized():
    """Codes of 8 bits and what is multiplied of them. Scales are powers of two, so that x / scale is as exact as x times its reciprocal."""
    rows, k, n = size(), size(), size()
    zero, code = np.zeros((), np.int8), lambda *shape: RANDOM.integers(-128, 128, shape).astype(np.int8)
    scales = lambda count: np.float32(2.0) ** RANDOM.integers(-6, -2, count).astype(np.float32)
    both = [("QuantizeLinear", "x,s,z", "q"), ("DequantizeLinear", "q,s,z", "y")]
    yield Case(both, [rows, k], {"s": np.float32(1 / 32), "z": zero}, ops=["quantize", "dequantize"], y=["q", "y"])
    for axis, shape, ops in ((-1, [rows, k], ["quantize", "dequantize"]), (1, [rows, k], ["div", "round", "clamp", "cast", "cast", "mul"]), (1, [k], ["quantize", "dequantize"])):
        count = k if axis == -1 else shape[0]
        yield Case([(*each, {"axis": axis}) for each in both], shape, {"s": scales(count), "z": np.zeros(count, np.int8)}, ops=ops, y=["q", "y"])
    for dtype in (np.int8, np.uint8):
        yield Case(both, [rows, k], {"s": np.float32(1 / 16), "z": np.array(3, dtype)}, ops=["div", "round", "add", "clamp", "cast", "cast", "sub", "mul"], y=["q", "y"])
    yield Case([("QuantizeLinear", "x,s", "q"), ("DequantizeLinear", "q,s", "y")], [k], {"s": np.float32(1 / 64)}, y=["q", "y"])  # UINT8
    yield Case([both[0], ("MatMulInteger", "q,w", "y")], [rows, k], {"s": np.float32(1 / 64), "z": zero, "w": code(k, n)}, ops=["quantize", "matmul"])
    wide = {"s": np.float32(1 / 64), "z": zero, "w": code(k, n), "t": scales(n), "u": np.float32(1 / 8)}
    yield Case([both[0], ("QLinearMatMul", "q,s,z,w,t,z,u,z", "y")], [k], wide, ops=["quantize", "matmul", "quantize"])
    yield Case([both[0], ("QLinearMatMul", "q,s,z,w,s,z,u,z", "p"), ("DequantizeLinear", "p,u,z", "y")], [rows, k], wide, ops=["quantize", "matmul", "quantize", "dequantize"])


def reductions():
    a, b, c = size(), size(), size()
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum"):
        for axes in ((1,), (-1,), (1, 3), (2, 3)):
            yield Case((op, "x,axes", "y", {"keepdims": int(RANDOM.integers(2))}), [a, b, c], {"axes": ints(*axes)}, positive=True, bound=3e-5)
    yield Case(("ReduceSum", "x,axes", "y"), [a, b], {"axes": ints(1)}, opset=13)
    yield Case(("ReduceMean", "x", "y", {"axes": [1]}), [a, b], opset=13)
    yield Case([("Cast", "x", "i", {"to": onnx.TensorProto.INT32}), ("ReduceSum", "i,axes", "y")], [a, b], {"axes": ints(1)})
    yield Case(("ArgMax", "x", "y", {"axis": 1}), [a, b])
    yield Case(("ArgMin", "x", "y", {"axis": -1, "keepdims": 0}), [a, b])
    yield Case(("TopK", "x,k", "v,y", {"axis": -1}), [a, b], {"k": ints(2)}, y=["v", "y"])


def layouts():
    a, b, c = size(3), size(3), size(3)
    yield Case(("Reshape", "x,s", "y"), [a, b], {"s": ints(0, -1)})
    yield Case(("Reshape", "x,s", "y"), [a, b], {"s": ints(-1, b, a)})
    yield Case([("Shape", "x", "s"), ("Gather", "s,zero", "n"), ("Unsqueeze", "n,first", "u"), ("Concat", "u,rest", "r", {"axis": 0}), ("Reshape", "x,r", "y")], [a, b],
               {"zero": np.int64(0), "first": ints(0), "rest": ints(-1)})
    for axis in (0, 1, 2, -1):
        yield Case(("Flatten", "x", "y", {"axis": axis}), [a, b])
    yield Case(("Unsqueeze", "x,axes", "y"), [a, b], {"axes": ints(1, -1)})
    yield Case([("Unsqueeze", "x,axes", "u"), ("Squeeze", "u,axes", "y")], [a, b], {"axes": ints(2)})
    yield Case(("Transpose", "x", "y", {"perm": [2, 0, 1]}), [a, b])
    yield Case(("Transpose", "x", "y"), [a, b])
    yield Case(("Concat", "x,z", "y", {"axis": 1}), [a, c], more={"z": [b, c]})
    yield Case(("Concat", ",".join(["x"] * 11), "y", {"axis": -1}), [a])
    starts, ends = ints(1, 0), ints(a, 2 ** 62)
    yield Case(("Slice", "x,s,e,axes", "y"), [a, b], {"s": starts, "e": ends, "axes": ints(1, 2)})
    yield Case(("Slice", "x,s,e,axes,steps", "y"), [a, b], {"s": ints(-1, -100), "e": ints(-2 ** 62, 100), "axes": ints(2, 1), "steps": ints(-1, 2)})
    yield Case(("Slice", "x,s,e,axes", "y"), [a, b], {"s": ints(0), "e": ints(2 ** 62), "axes": ints(0)})
    yield Case(("Split", "x,s", "p,q", {"axis": 1}), [a, b], {"s": ints(1, a - 1)}, y=["p", "q"])
    yield Case(("Split", "x", "p,q", {"axis": -1, "num_outputs": 2}), [a, b], y=["p", "q"])
    yield Case(("Pad", "x,p,v", "y"), [a, b], {"p": ints(0, 1, 2, 0, 0, 1), "v": np.float32(0.5)})
    yield Case(("Pad", "x,p", "y", {"mode": "reflect"}), [a, b], {"p": ints(0, 1, 2, 0, 2, 1)})
    yield Case(("Pad", "x,p", "y", {"mode": "edge"}), [a, b], {"p": ints(0, 1, 2, 0, 2, 1)})
    yield Case([("Unsqueeze", "x,axes", "u"), ("Expand", "u,s", "y")], [a], {"axes": ints(2), "s": ints(1, 1, b)})
    yield Case(("Tile", "x,r", "y"), [a, b], {"r": ints(1, 2, 3)})
    yield Case(("Gather", "x,i", "y", {"axis": 1}), [a, b], {"i": np.int64(-1)})
    yield Case(("Gather", "x,i", "y", {"axis": 2}), [a, b], {"i": ints(2, 1, 0)})
    yield Case([("Constant", "", "c", {"value": numpy_helper.from_array(np.float32([2.5] * 1))}), ("Sqrt", "w", "r"), ("Add", "x,r", "y")], [a], {"w": np.float32(RANDOM.random(a))})
    yield Case([("Relu", "x", "y"), ("Identity", "y", "z"), ("Identity", "x", "u")], [a], y=["y", "z", "u"])


def names_and_lengths(ks):
    """Names that the daemon does not take, two of which become one; a free length that two inputs share; a batch that is a number."""
    long = "x" * 50
    kind = onnx.TensorProto.FLOAT
    nodes = [helper.make_node("Add", ["a b", "a?b"], ["s/\u00e9"]), helper.make_node("Mul", ["s/\u00e9", long], ["the result"])]
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, shape in (("a b", [2, "a-b"]), ("a?b", [2, "a-b"]), (long, [1]))]
    graph = helper.make_graph(nodes, "names", inputs, [helper.make_tensor_value_info("the result", kind, [2, "a-b"])])
    definition, weights = convert(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10), max_batch=None)
    called = [entry["name"] for entry in definition["inputs"]]
    check(called == ["a_b", "a_b.1", "x" * 40] and definition["outputs"] == [{"name": "the_result"}] and not weights, definition)
    ks.load("names", definition)
    x = RANDOM.standard_normal((2, 5)).astype(np.float32)
    check(np.array_equal(ks.infer("names", **dict(zip(called, (x, x, np.full(1, 3, np.float32)))))["the_result"], (x + x) * np.float32(3)), "values by other names")
    try:
        ks.infer("names", **dict(zip(called, (x, x[:, :4], np.full(1, 3, np.float32)))))
        check(False, "two lengths of one word were taken")
    except kernserve.BadRequest:
        pass
    ks.unload("names")


def refusals():
    """Each node that cannot be had, by its name and in its place; nothing is written."""
    a = 4
    graph = Case([("Relu", "x", "h"), ("Einsum", "h", "e", {"equation": "i...->i..."}), ("Det", "w", "d"), ("NonZero", "e", "z"), ("Gather", "h,i", "g", {"axis": 1}),
                  ("Add", "g,e", "y")], [a], {"w": [2, 2], "i": ints(0, 3, 1).astype(np.uint8)}, y=["y", "d", "z"]).model(np.float32)
    graph.graph.node[2].input[0] = "x"
    try:
        convert(graph)
        check(False, "a graph of unknown operators was converted")
    except ConversionError as error:
        check(error.lines[:3] == ["node 'einsum1' (Einsum): its equation is 'i...->i...'", "node 'det2': ONNX op 'Det' has no counterpart here",
                                  "node 'nonzero3': ONNX op 'NonZero' has no counterpart here"], error.lines)
        check(len(error.lines) == 4 and error.lines[3].startswith("node 'gather4' (Gather): "), error.lines)
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("model.onnx", "model.safetensors")]
        onnx.save(graph, paths[0])
        words_of = [sys.executable, "-B", "-m", "kernserve.onnx", paths[0], "-o", paths[1]]
        run = subprocess.run(words_of, capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=CLIENT))
        check(run.returncode == 1 and "node 'einsum1' (Einsum): its equation" in run.stderr and not os.path.exists(paths[1]), run)
        for content, words in ((b"no model", "is no model of ONNX"), (None, "No such file")):
            os.unlink(paths[0])
            if content is not None:
                with open(paths[0], "wb") as file:
                    file.write(content)
            run = subprocess.run(words_of, capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=CLIENT))
            check(run.returncode == 1 and words in run.stderr and "Traceback" not in run.stderr, run)
    for case, words in ((Case(("Conv", "x,w", "y", {"group": 2}), [4, 9], {"w": [4, 2, 3]}), "it has 2 groups of channels"),
                        (Case(("MaxPool", "x", "y", {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}), [4, 9]), "ceil_mode"),
                        (Case(("AveragePool", "x", "y", {"kernel_shape": [3], "pads": [1, 1]}), [4, 9]), "it leaves the padding out of its means"),
                        (Case(("Conv", "x,w", "y"), [4, 5, 5, 5], {"w": [4, 4, 3, 3, 3]}), "it slides along 3 axes"),
                        (Case([("Cast", "x", "q", {"to": 3}), ("MatMulInteger", "q,w,z", "y")], [a], {"w": np.ones((a, 2), np.int8), "z": np.int8(1)}), "zero points are not 0"),
                        (Case([("Cast", "x", "q", {"to": 2}), ("MatMulInteger", "q,w", "y")], [a], {"w": np.ones((a, 2), np.int8)}), "'q' is UINT8"),
                        (Case(("Softmax", "x", "y", {"axis": 1}), [a, a], opset=11), "operator set 11"), (Case(("Reshape", "x,s", "y"), [a], {"s": ints(0, 4)}), None), (Case(("Pad", "x,p", "y"), [a], {"p": ints(0, -1, 0, 0)}), "takes elements away")):
        try:
            convert(case.model(np.float32))
            check(words is None, case.name(), "was converted")
        except (ConversionError, onnx.onnx_cpp2py_export.shape_inference.InferenceError) as error:
            check(words is not None and words in str(error), case.name(), error)


def turning_lengths():
    """What a graph computes with a length that only a request knows, and what turns at some length, is refused, not taken for what it is at a few lengths."""
    length = [("Shape", "x", "s"), ("Gather", "s,at", "n")]
    numbers = {"at": np.int64(1), "one": np.int64(1), "two": np.int64(2), "many": np.int64(100000), "a": np.float32(2), "b": np.float32(3), "zero": np.int64(0),
               "at0": ints(0), "table": np.ones((16, 1), np.float32), "none": ints(0, 0, 0)}
    chosen = [("Where", "c,a,b", "f"), ("Mul", "x,f", "y")]
    as_float = [("Cast", "m", "f", {"to": 1}), ("Mul", "x,f", "y")]
    square = [("Mul", "n,n", "nn"), ("Concat", "at0,at0,at0", "unused", {"axis": 0})]
    for nodes in ([*length, ("Greater", "n,two", "c"), *chosen], [*length, ("Equal", "n,one", "c"), *chosen], [*length, ("Equal", "n,zero", "c"), *chosen], [*length, ("LessOrEqual", "n,many", "c"), *chosen],
                  [*length, ("Sub", "n,two", "d"), ("Equal", "d,minus", "c"), *chosen], [*length, ("Cast", "n", "c", {"to": 9}), *chosen],
                  [*length, ("Mod", "n,two", "m"), *as_float], [*length, ("Div", "n,many", "m"), *as_float], [*length, ("Div", "n,two", "m"), *as_float], [*length, *square, ("Add", "nn,n", "e"), ("Add", "e,one", "e1"), ("Div", "e1,two", "m"), *as_float],
                  [*length, ("Min", "n,many", "m"), *as_float], [*length, ("Max", "n,two", "m"), *as_float],
                  [*length, ("Unsqueeze", "n,at0", "n1"), ("Slice", "table,at0,n1", "t"), ("ReduceMean", "t,at0", "f", {"keepdims": 0}), ("Mul", "x,f", "y")],
                  [*length, ("Expand", "n,s", "e"), ("Cast", "e", "f", {"to": 1}), ("Div", "x,f", "y")],
                  [("Shape", "x", "s"), ("ConstantOfShape", "s", "o"), ("Shape", "x", "s1"), ("Gather", "s1,at", "n"), ("Mul", "o,n", "m"), ("Cast", "m", "f", {"to": 1}), ("Mul", "x,f", "y")]):
        case = Case(nodes, ["S"], dict(numbers, minus=np.int64(-1)))
        try:
            made = convert(case.model(np.float32))[0]
            check(False, case.name(), "was converted", made["nodes"])
        except ConversionError as error:
            check("length" in str(error) or "constant" in str(error) or "counterpart" in str(error), case.name(), error)
    other = Case([("Shape", "w", "s"), ("Expand", "x,s", "e"), ("ReduceSum", "e,one", "y", {"keepdims": 0})], ["P"], {"one": ints(1)}, {"w": ["S"]})
    turned = Case([("Reshape", "x,s0", "a"), ("Transpose", "a", "b", {"perm": [0, 2, 1]}), ("Reshape", "b,s1", "y")], ["S", 8], {"s0": ints(1, -1, 8), "s1": ints(2, 8, -1)})
    fp8 = Case([("QuantizeLinear", "x,q,z", "c", {"saturate": 0}), ("DequantizeLinear", "c,q,z", "y")], [4], {"q": np.float32(1)}, opset=21)
    for case in (other, turned):
        try:
            made = convert(case.model(np.float32))[0]
            check(not any(node["op"] == "transpose" and node["parameters"]["perm"] == [0, 2, 1] and node["inputs"] == ["x"] for node in made["nodes"]) and case is turned, case.name(), made["nodes"])
        except ConversionError:
            pass
    model = fp8.model(np.float32)
    model.graph.initializer.append(helper.make_tensor("z", onnx.TensorProto.FLOAT8E4M3FN, [], [0.0]))
    try:
        convert(onnx.shape_inference.infer_shapes(model))
        check(False, "FP8 that does not saturate was converted")
    except ConversionError as error:
        check("too large" in str(error), error)


def main():
    count = 0
    with Daemon(daemon_path(), "--backend", BACKEND) as daemon, kernserve.Client("http://127.0.0.1:%d" % daemon.port) as ks:
        cases = [*elements(), *products(), *patterns(), *spelt(), *windows(), *lookups(), *encoder(True), *quantized(), *reductions(), *layouts()]
        others = [*products(), *patterns(), *windows()]
        for case, dtype in (*((case, np.float32) for case in cases), *((case, np.float64) for case in [*others, *encoder(False)]), *((case, np.float16) for case in others)):
            count += 1
            try:
                case.run(ks, dtype)
            except (kernserve.Error, ConversionError) as error:
                check(False, case.name(), repr(error), case.nodes)
        names_and_lengths(ks)
        ks.unload("case")
        check(daemon.stop() == 0, "the exit code")
    refusals()
    turning_lengths()
    print("%d graphs" % count)
    return wrongs() > 0


if __name__ == "__main__":
    sys.exit(main())
