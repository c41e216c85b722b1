"""Requests of each operation, a row each: what is sent, and what the answer is in float64 or in exact integers.

Interface  cases(random) draws all rows, shapes and values new; a Case says what any client needs to know. OPERATIONS has a function for each line of
           kernels/ops/ops.def. wrong(case, name, got) is the reason why an output is not what it has to be, or None.
Bounds     of floats: UNITS roundings of the output's datatype and of FP32, of the largest value that was added. The operations' own tests know
           sharper ones; here a mask, a length, a scale or an input that was lost on its way has to be seen, which is many orders above.
"""

import itertools
import math
from types import SimpleNamespace

import ml_dtypes
import numpy as np

BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
DATATYPES = {np.dtype(kind): name for name, kind in (("FP64", "f8"), ("FP32", "f4"), ("FP16", "f2"), ("BF16", BF16), ("FP8E4M3", E4M3), ("FP8E5M2", E5M2), ("BOOL", "?"),
                                                     *((kind + str(8 * size), kind[0].lower() + str(size)) for kind in ("INT", "UINT") for size in (1, 2, 4, 8)))}
UNITS = 32
ROUNDING = {"FP64": 2.0 ** -53, "FP32": 2.0 ** -24, "FP16": 2.0 ** -11, "BF16": 2.0 ** -8}


def datatype(array):
    return DATATYPES[array.dtype]


class Case:
    """inputs: arrays by name, without those that are left out. parameters: those that a request says. model: stands for `op` with the parameters `preset`, which
    a client of the operation says itself. stay: inputs that are tensors of the daemon's, put beforehand. also: a check of all outputs together."""

    def __init__(self, name, op, inputs, outputs, parameters=None, model=None, preset=None, stay=(), also=None):
        self.name, self.op, self.inputs, self.outputs, self.parameters = name, op, inputs, outputs, parameters or {}
        self.model, self.preset, self.stay, self.also = model or op, preset or {}, set(stay), also

    def __str__(self):
        said = ["%s %s%s%s" % (name, datatype(array), list(array.shape), " stays" if name in self.stay else "") for name, array in self.inputs.items()]
        return "%s: %s; %s %s" % (self.name, ", ".join(said), self.model, self.parameters)


def near(values, kind=np.float32, size=1.0, units=UNITS):
    """An output of floats: values in float64, and how far from them an answer may be; size: what was added, where that is more than the values and 1."""
    name, values = DATATYPES[np.dtype(kind)], np.asarray(values, np.float64)
    arithmetic = units * ROUNDING["FP64" if name == "FP64" else "FP32"]
    with np.errstate(invalid="ignore"):
        bound = arithmetic * np.maximum(np.abs(values), size) + 2 * ROUNDING[name] * np.abs(values)
    return SimpleNamespace(values=values, datatype=name, bound=np.broadcast_to(bound, values.shape), shape=values.shape)


def same(values):
    """An output that has one right value."""
    values = np.asarray(values)
    return SimpleNamespace(values=values, datatype=datatype(values), bound=None, shape=values.shape)


def wrong(case, name, got):
    wanted = case.outputs[name]
    if got.dtype not in DATATYPES or datatype(got) != wanted.datatype or got.shape != wanted.shape:
        return "%s is %s%s and not %s%s" % (name, DATATYPES.get(got.dtype, got.dtype), list(got.shape), wanted.datatype, list(wanted.shape))
    if wanted.bound is None:
        bad = np.asarray(got).view("u%d" % got.itemsize) != wanted.values.view("u%d" % got.itemsize) if got.ndim else np.asarray(got) != wanted.values
        if got.dtype.kind == "f" and not np.any(bad & ~(np.asarray(got) == wanted.values)):
            return None  # of -0 and 0 either
    else:
        with np.errstate(invalid="ignore"):
            exact, far = got.astype(np.float64), np.abs(got.astype(np.float64) - wanted.values)
            bad = ~((far <= wanted.bound) | (exact == wanted.values) | (np.isnan(exact) & np.isnan(wanted.values)))
    if not np.any(bad):
        return None
    place = tuple(int(each[0]) for each in np.nonzero(np.atleast_1d(bad)))
    return "%s[%s] is %s and not %s; %d of %d are wrong" % (name, place, np.atleast_1d(got)[place], np.atleast_1d(wanted.values)[place], np.sum(bad), bad.size)


class Draw:
    """Shapes and values."""

    def __init__(self, random):
        self.random = random

    def size(self, low=1, high=20):
        return int(self.random.integers(low, high + 1))

    def sizes(self, count, low=1, high=12):
        return tuple(self.size(low, high) for _ in range(count))

    def normal(self, *shape, kind=np.float32):
        return self.random.standard_normal(shape).astype(kind)

    def whole(self, low, high, shape, kind=np.int64):
        """From low up to high, which is among them."""
        return np.asarray(self.random.integers(low, high + 1, shape), kind)

    def some(self, *shape):
        return self.random.random(shape) < 0.6

    def cuts(self, length, parts, kind=np.int32):
        """Offsets: from 0 to length, not falling."""
        return np.concatenate([[0], np.sort(self.random.integers(0, length + 1, parts - 1)), [length]]).astype(kind)

    def scales(self, *shape):
        return self.random.uniform(0.01, 2, shape).astype(np.float32)


def inputs(*arrays):
    """By the daemon's names; None: left out."""
    return {"INPUT%d" % i: array for i, array in enumerate(arrays) if array is not None}


def outputs(*wanted):
    return {"OUTPUT%d" % i: each for i, each in enumerate(wanted)}


# --- what the operations are, in float64 ------------------------------------------------------------------------------------

def softmax64(z, axis=-1, rows_of_nothing=math.nan):
    top = z.max(axis, keepdims=True, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(z - np.where(np.isfinite(top), top, 0))
        sums = e.sum(axis, keepdims=True)
        return np.where(sums > 0, e / np.where(sums > 0, sums, 1), rows_of_nothing)


def triangle(rows, columns, ends=None):
    """causal bottom_right: column <= row + ends - rows."""
    return np.arange(columns) <= np.arange(rows)[:, None] + ((columns if ends is None else ends) - rows)


def gelu64(x):
    return x * 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)))


def silu64(x):
    return x / (1 + np.exp(-x))


def norm64(s, kind, axes=(-1,), eps=1e-5):
    s = s - s.mean(axes, keepdims=True) if kind == "layer" else s
    return s / np.sqrt((s * s).mean(axes, keepdims=True) + eps)


def attention64(query, key, value, selected=True, added=0.0, softcap=0.0):
    """[B, H, S, D]; rows of nothing are 0, and the logarithms of their sums -inf."""
    group = query.shape[1] // key.shape[1]
    key, value = (np.repeat(each.astype(np.float64), group, 1) for each in (key, value))
    z = np.einsum("bhqd,bhkd->bhqk", query.astype(np.float64), key) / math.sqrt(query.shape[-1])
    z = np.where(selected, (softcap * np.tanh(z / softcap) if softcap else z) + added, -np.inf)
    top = np.maximum(z.max(-1), -1e300)
    with np.errstate(divide="ignore"):
        return softmax64(z, rows_of_nothing=0) @ value, np.log(np.exp(z - top[..., None]).sum(-1)) + top


def first(scores, k, largest):
    """The k first of each row, and their places: of equal ones the lower place."""
    places = np.argsort(-scores if largest else scores, -1, kind="stable")[..., :k]
    return np.take_along_axis(scores, places, -1), places


def codes_of(x, scale, kind):
    """quantize: FP32's reciprocal and product, rounded to nearest even, saturated."""
    scaled = x.astype(np.float32) * (np.float32(1) / scale)
    if kind == np.int8:
        return np.clip(np.rint(scaled), -128, 127).astype(np.int8)
    top = float(ml_dtypes.finfo(kind).max)
    return np.clip(scaled, -top, top).astype(kind)


def scales_of(x, axis, top):
    most = np.abs(x.astype(np.float32)).max(axis)
    return np.where(most > 0, most / np.float32(top), np.float32(1)).astype(np.float32)


# --- the table ----------------------------------------------------------------------------------------------------------------

def softmax(d):
    a, b, c = d.sizes(3)
    x = d.normal(a, b, c)
    z = 0.5 * x.astype(np.float64)
    yield Case("log, scale, an axis amid others", "softmax", inputs(x), outputs(near(z - z.max(1, keepdims=True) - np.log(np.exp(z - z.max(1, keepdims=True)).sum(1, keepdims=True)), size=8)),
               {"axis": 1, "log": True, "scale": 0.5})
    x, rows, columns = d.normal(a, b, c), b, c
    yield Case("causal, rows of nothing are 0", "softmax", inputs(x), outputs(near(softmax64(np.where(triangle(rows, columns), x.astype(np.float64), -np.inf), rows_of_nothing=0))),
               {"masked_rows": "zero"}, "softmax_causal", {"causal": "bottom_right"})
    x, mask = d.normal(a, b, kind=BF16), d.normal(1, b)
    yield Case("a mask that is added, BF16 in and FP32 out", "softmax", inputs(x, mask), outputs(near(softmax64(x.astype(np.float64) + mask))), {"out_datatype": "FP32"}, "softmax_masked_bf16")
    x, mask, ends = d.normal(a, b, c), d.some(b, c), d.whole(0, c, a, np.int32)
    shorter = np.where(np.arange(c) < ends[:, None, None], x.astype(np.float64), -np.inf)
    yield Case("a mask of BOOL and lengths", "softmax", inputs(x, mask, ends), outputs(near(softmax64(np.where(mask, shorter, -np.inf), rows_of_nothing=0))), {"masked_rows": "zero"})
    yield Case("lengths without a mask", "softmax", inputs(x, None, ends), outputs(near(softmax64(shorter))), None, "softmax_lengths")


def reduce(d):
    a, b, c = d.sizes(3, 2)
    x = d.normal(a, b, c)
    yield Case("var of two axes, which stay", "reduce", inputs(x), outputs(near(x.astype(np.float64).var((0, 2), ddof=1, keepdims=True), size=4)), {"axis": [0, 2], "keepdims": True, "ddof": 1}, "reduce_var", {"op": "var"})
    cuts, exact = d.cuts(b, 4), x.astype(np.float64)
    yield Case("sums of segments", "reduce", inputs(x, cuts), outputs(near(np.stack([exact[:, i:j].sum(1) for i, j in zip(cuts, cuts[1:])], 1), size=16)), {"axis": 1}, "reduce_segments")
    whole = d.whole(-128, 127, (a, b, c), np.int8)
    yield Case("all of INT8, in INT64", "reduce", inputs(whole), outputs(same(whole.sum(dtype=np.int64))), {"op": "sum", "axis": "all"})
    x = d.whole(-3, 3, (a, b), BF16)
    yield Case("the first of equal ones, of BF16", "reduce", inputs(x), outputs(same(x.astype(np.float32).argmin(0))), {"axis": 0}, "reduce_argmin", {"op": "argmin"})
    yield Case("p of a norm", "reduce", inputs(exact), outputs(near((np.abs(exact) ** 3).sum(2) ** (1 / 3), np.float64, 64)), {"op": "norm", "p": 3.0, "axis": -1})


def matmul(d):
    m, n, k = d.sizes(3, 1, 40)
    a, b, bias = d.normal(m, k), d.normal(n, k), d.normal(n)
    z = 0.25 * (a.astype(np.float64) @ b.astype(np.float64).T) + bias
    yield Case("bias, gelu, a transpose", "matmul", inputs(a, b, bias), outputs(near(gelu64(z), size=64)), {"alpha": 0.25, "activation": "gelu"}, "matmul_tb", {"transpose_b": True})
    rest, y = d.normal(m, n), 4 * (z - bias) + bias
    yield Case("a bias, silu and a residual", "matmul", inputs(a, b, bias, None, None, rest), outputs(near(y / (1 + np.exp(-y)) + rest, size=64)), {"transpose_b": True, "activation": "silu"})
    a, b = d.normal(3, 1, m, k, kind=np.float64), d.normal(2, k, n, kind=np.float64)
    yield Case("batches that are broadcast, FP64", "matmul", inputs(a, b), outputs(near(a @ b, np.float64, 64)), None, "matmul_fp64")
    a, b = d.whole(-128, 127, (m, k), np.int8), d.whole(-128, 127, (k, n), np.int8)
    exact = a.astype(np.int64) @ b.astype(np.int64)
    yield Case("INT8 by INT8 in INT32", "matmul", inputs(a, b), outputs(same(exact.astype(np.int32))))
    rows, columns, bias = d.scales(m) / 1000, d.scales(n), d.normal(n)
    y = exact * rows[:, None].astype(np.float64) * columns + bias
    yield Case("INT8 with scales of rows and columns, a bias, FP16 out; the weight stays", "matmul", inputs(a, b, bias, rows, columns), outputs(near(np.maximum(y, 0), np.float16, 1000)),
               {"out_datatype": "FP16", "activation": "relu"}, stay=("INPUT1", "INPUT4"))
    a, b = d.normal(m, k, kind=E4M3), d.normal(n, k, kind=E5M2)
    y = (a.astype(np.float64) @ b.astype(np.float64).T) * rows[:, None] * 0.5
    yield Case("FP8 of both kinds with scales, no bias", "matmul", inputs(a, b, None, rows, np.float32([0.5])), outputs(near(y, size=16)), {"transpose_b": True})


def norm(d):
    a, b, c = d.size(), d.size(1, 4), d.size(8, 40)  # few elements may have next to no variance, which makes a rounding large
    x, residual, weight, pre_bias = d.normal(a, c), d.normal(a, c), d.normal(c), d.normal(c)
    s = x.astype(np.float64) + residual
    yield Case("a residual, and the sum", "norm", inputs(x, weight, None, residual), outputs(near(norm64(s, "rms") * weight, size=8), near(s)), None, "norm_add_rms", {"kind": "rms", "sum_out": True})
    s = s + pre_bias
    yield Case("neither weight nor bias", "norm", inputs(x, None, None, residual, pre_bias), outputs(near(norm64(s, "layer", eps=1e-3), np.float16, 64)), {"kind": "layer", "eps": 1e-3, "out_datatype": "FP16"})
    x, weight, bias = d.normal(a, 2 * b, c), d.normal(2 * b), d.normal(2 * b)
    n = norm64(x.astype(np.float64).reshape(a, 2, b * c), "layer").reshape(x.shape)
    yield Case("groups, silu", "norm", inputs(x, weight, bias), outputs(near(silu64(n * weight[:, None] + bias[:, None]), size=64)), {"kind": "group", "groups": 2, "activation": "silu"})


def map_(d):
    a, b = d.sizes(2)
    which, y, z = d.some(a, 1), d.normal(b), d.normal(a, b)
    yield Case("where, broadcast", "map", inputs(which, y, z), outputs(same(np.where(which, y, z))), None, "map_where", {"op": "where"})
    yield Case("two ends, another datatype", "map", inputs(z), outputs(same(np.clip(z, np.float32(-0.5), np.float32(0.75)).astype(np.float64))), {"op": "clamp", "a": -0.5, "b": 0.75, "out_datatype": "FP64"})
    x, y = d.whole(-2 ** 31, 2 ** 31 - 1, (a, b), np.int32), d.whole(-2 ** 31, 2 ** 31 - 1, (a, 1), np.int32)
    with np.errstate(over="ignore"):
        yield Case("integers, which wrap", "map", inputs(x, y), outputs(same(x + y)), None, "map_add", {"op": "add"})
    x, y, z = d.normal(a, b, kind=np.float16), d.normal(b, kind=np.float16), d.normal(a, b, kind=np.float16)
    yield Case("fma of FP16", "map", inputs(x, y, z), outputs(near(x.astype(np.float64) * y + z, np.float16, 16)), {"op": "fma"})


def topk(d):
    a, b, c = d.sizes(3, 10, 30)
    x = d.normal(a, b)
    values, places = first(x, 10, True)
    yield Case("ten", "topk", inputs(x), outputs(same(values), same(places)), None, "topk_10", {"k": 10})
    x = d.whole(-4, 4, (a, b, c), np.int16)
    values, places = (np.moveaxis(each, -1, 1) for each in first(np.moveaxis(x, 1, -1), 7, False))
    yield Case("the smallest along an axis, many of them equal", "topk", inputs(x), outputs(same(np.ascontiguousarray(values)), same(np.ascontiguousarray(places.astype(np.int32)))),
               {"k": 7, "axis": 1, "largest": False, "index_datatype": "INT32"})


def scan(d):
    a, b = d.sizes(2, 2, 40)
    x = d.normal(a, b)
    yield Case("sums", "scan", inputs(x), outputs(near(np.cumsum(x.astype(np.float64), -1), size=64)), None, "scan_sum")
    whole = d.whole(-128, 127, (a, b), np.int8)
    yield Case("from the end, without the element itself, in INT64", "scan", inputs(whole), outputs(same(np.cumsum(whole[::-1], 0, dtype=np.int64)[::-1] - whole)), {"axis": 0, "exclusive": True, "reverse": True})
    x = d.normal(a, b, kind=BF16)
    yield Case("extremes of BF16", "scan", inputs(x), outputs(same(np.maximum.accumulate(x.astype(np.float32), 0).astype(BF16))), {"op": "max", "axis": 0})


def histogram(d):
    a, b = d.sizes(2, 2, 40)
    x = d.whole(0, 255, (a, b), np.uint8)
    yield Case("bytes", "histogram", inputs(x), outputs(same(np.bincount(x.ravel(), minlength=256))), None, "histogram_256")
    # edges that FP64 has exactly, and the elements too: one answer
    x = d.whole(-40, 40, (a, b), np.float32) / np.float32(16)
    edges = np.linspace(-2, 2, 9)
    yield Case("rows, with their edges", "histogram", inputs(x), outputs(same(np.stack([np.histogram(row.astype(np.float64), 8, (-2, 2))[0] for row in x])), same(edges)),
               {"bins": 8, "min": -2.0, "max": 2.0, "axis": -1, "edges": True})


def gather(d):
    a, b, n = d.sizes(3, 2)
    table, indices = d.normal(a, b), d.whole(-b, b - 1, (2, n))
    yield Case("slices along an axis, from the end too", "gather", inputs(table, indices), outputs(same(table[:, indices])), {"axis": 1})
    order = d.whole(0, a - 1, (n, b), np.int32)
    yield Case("elements", "gather", inputs(table, order), outputs(same(np.take_along_axis(table, order, 0))), {"kind": "elements"})
    indices, cuts, weights = d.whole(-a, a - 1, n, np.int32), d.cuts(n, 3), d.normal(n)
    slices = table.astype(np.float64)[indices] * weights[:, None]
    bags = np.stack([slices[i:j].sum(0) for i, j in zip(cuts, cuts[1:])])
    yield Case("bags with weights, of a table that stays", "gather", inputs(table, indices, cuts, weights), outputs(near(bags, size=16)), None, "gather_bag", stay=("INPUT0",))
    half, indices = d.normal(a, b, kind=np.float16), d.whole(-100, 100, ())
    yield Case("one index, any", "gather", inputs(half, indices), outputs(same(half[indices % a])), {"mode": "wrap"}, "gather_fp16")


def layout(d):
    a, b, c = d.sizes(3, 2)
    x = d.normal(a, b, c)
    yield Case("transpose", "layout", inputs(x), outputs(same(np.ascontiguousarray(x.transpose(2, 0, 1)))), {"axes": [2, 0, 1]}, "layout_transpose", {"op": "transpose"})
    yield Case("slice, backwards", "layout", inputs(x), outputs(same(np.ascontiguousarray(x[::-1, ::2, :1]))), {"op": "slice", "starts": [-1, 0, 0], "steps": [-1, 2, 1], "sizes": [-1, -1, 1]})
    parts = [d.whole(0, 65535, (a, d.size(), c), np.uint16) for _ in range(3)]
    yield Case("three joined", "layout", inputs(*parts), outputs(same(np.concatenate(parts, 1))), {"axis": 1}, "layout_concat", {"op": "concat"})
    x = d.normal(a, b, kind=BF16)
    yield Case("padded by infinity", "layout", inputs(x), outputs(same(np.pad(x.astype(np.float32), ((1, 0), (0, 2)), constant_values=-np.inf).astype(BF16))), {"op": "pad", "before": [1, 0], "after": [0, 2], "value": "-inf"})


def taps64(x, size, strides=(1, 1)):
    """Windows over the two axes in front of the last: [.., windows, windows, taps * C]."""
    w = np.lib.stride_tricks.sliding_window_view(x, size, axis=(-3, -2))[..., ::strides[0], ::strides[1], :, :, :]
    w = np.moveaxis(w, -3, -1)
    return np.ascontiguousarray(w.reshape(*w.shape[:-3], -1))


def window(d):
    a, b, c = d.size(1, 3), d.size(3, 9), d.size(1, 5)
    x = d.normal(a, b, b + 1, c)
    yield Case("3 x 3, as many windows as elements", "window", inputs(x), outputs(same(taps64(np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), (3, 3)))), {"auto_pad": "same_upper"}, "window_3x3", {"size": [3, 3]})
    planes = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    yield Case("channels in front, strides", "window", inputs(planes), outputs(same(taps64(x, (2, 3), (2, 1)))), {"size": [2, 3], "stride": [2, 1], "layout": "nchw"})
    x = d.whole(-9, 9, (b, c), np.int32)
    padded = np.pad(x, ((2, 1), (0, 0)), constant_values=-7)
    yield Case("one axis, a value outside", "window", inputs(x), outputs(same(taps64(padded[None], (1, 3))[0])), {"pad": [2, 1], "value": -7}, "window_3", {"size": [3]})


def search(d):
    rows, n, width = d.size(1, 6), d.size(20, 80), d.size(2, 40)
    queries, matrix = d.whole(-4, 4, (rows, width), np.float32), d.whole(-4, 4, (n, width), np.float32)
    far = ((queries[:, None].astype(np.float64) - matrix) ** 2).sum(-1)
    scores, places = first(far, 5, False)
    yield Case("the nearest of a matrix that stays", "search", inputs(queries, matrix), outputs(same(scores.astype(np.float32)), same(places)), {"k": 5, "metric": "l2"}, stay=("INPUT1",))
    bias, mask = d.whole(-9, 9, n, np.float32), np.arange(n) % 3 > 0
    scores, places = first(np.where(mask, queries.astype(np.float64) @ matrix.T + bias, -np.inf), 10, True)
    yield Case("ten, by products, a bias and a mask", "search", inputs(queries, matrix, bias, mask), outputs(same(scores.astype(np.float32)), same(places)), None, "search_10", {"k": 10})
    # few take part: the rest of the answer is row -1; FP16
    mask = np.arange(n) < 3
    scores, places = first((queries.astype(np.float64) @ matrix.T)[:, :3], 3, True)
    scores, places = np.pad(scores, ((0, 0), (0, 2)), constant_values=-np.inf), np.pad(places, ((0, 0), (0, 2)), constant_values=-1)
    yield Case("a mask without a bias, FP16", "search", inputs(queries.astype(np.float16), matrix.astype(np.float16), None, mask), outputs(same(scores.astype(np.float32)), same(places)), {"k": 5, "metric": "dot"}, "search_fp16")


def attention(d):
    batch, groups, heads, width, depth = d.size(1, 3), d.size(1, 3), d.size(1, 3), d.size(4, 40), d.size(4, 40)
    rows, keys = d.size(2, 20), d.size(2, 30)
    query, key, value = d.normal(batch, groups * heads, rows, width), d.normal(batch, heads, keys, width), d.normal(batch, heads, keys, depth)
    yield Case("causal, heads in groups", "attention", inputs(query, key, value), outputs(near(attention64(query, key, value, triangle(rows, keys))[0], size=8)), None, "attention_causal", {"causal": "bottom_right"})
    # a step of decoding: the query is what is new, keys and values are there, their lengths are data
    one, ends = d.normal(batch, groups * heads, 1, width), d.whole(1, keys, batch, np.int32)
    there = np.arange(keys) < ends[:, None, None, None]
    means, sums = attention64(one, key, value, there)
    yield Case("decode: keys and values stay, lengths, sums", "attention", inputs(one, key, value, None, ends), outputs(near(means, size=8), near(sums, size=16)), {"lse": True}, "attention_lengths", stay=("INPUT1", "INPUT2"))
    half = [each.astype(np.float16) for each in (one, key, value)]
    # weights are rounded to 16 bits before they meet the values, on a GPU
    yield Case("decode in FP16", "attention", inputs(*half, None, ends), outputs(near(attention64(*half, there)[0], np.float16, 8, 2 ** 13)), {"causal": "bottom_right"}, "attention_lengths_fp16", stay=("INPUT1", "INPUT2"))
    mask = d.normal(1, 1, rows, keys)
    turned = [np.ascontiguousarray(each.transpose(0, 2, 1, 3)) for each in (query, key, value)]
    yield Case("a mask that is added, softcap, rows in front of heads", "attention", inputs(*turned, mask), outputs(near(attention64(query, key, value, True, mask, 5.0)[0].transpose(0, 2, 1, 3), size=8)),
               {"softcap": 5.0, "layout": "bshd"})


def quantize(d):
    a, b = d.sizes(2, 1, 40)
    x = d.normal(a, b)
    scale = scales_of(x, 1, 127)
    yield Case("INT8 by rows", "quantize", inputs(x), outputs(same(codes_of(x, scale[:, None], np.int8)), same(scale)), {"scale_per": "row"}, "quantize_int8")
    given = d.scales(b)
    yield Case("scales that are given, of BF16", "quantize", inputs(x.astype(BF16), given), outputs(same(codes_of(x.astype(BF16), given, np.int8)), same(given)), {"scale_per": "column"})
    scale = scales_of(x, None, 448).reshape(1)
    yield Case("FP8", "quantize", inputs(x), outputs(same(codes_of(x, scale, E4M3)), same(scale)), None, "quantize_fp8", {"out_datatype": "FP8E4M3"})


def dequantize(d):
    a, b = d.sizes(2, 1, 40)
    codes, scale = d.whole(-128, 127, (a, b), np.int8), d.scales(b)
    yield Case("INT8 by columns", "dequantize", inputs(codes, scale), outputs(same(codes.astype(np.float32) * scale)), {"scale_per": "column"})
    codes, scale = d.normal(a, b, kind=E5M2), np.float32([0.5])
    yield Case("FP8 to FP16", "dequantize", inputs(codes, scale), outputs(same((codes.astype(np.float32) * scale).astype(np.float16))), {"out_datatype": "FP16"})


OPERATIONS = {"softmax": softmax, "reduce": reduce, "matmul": matmul, "norm": norm, "map": map_, "topk": topk, "scan": scan, "histogram": histogram, "gather": gather, "layout": layout,
              "window": window, "search": search, "attention": attention, "quantize": quantize, "dequantize": dequantize}


# --- a model of one's own ---------------------------------------------------------------------------------------------------------

def decoder(d):
    """A step of a decoder: attention over keys and values that stay, by lengths that are data, then a product in INT8. Its definition, weights and case."""
    batch, heads, width, keys, columns = d.size(1, 4), d.size(1, 3), 4 * d.size(1, 8), d.size(2, 30), d.size(1, 40)
    query, ends = d.normal(batch, 2 * heads, 1, width), d.whole(1, keys, batch, np.int32)
    key, value = d.normal(batch, heads, keys, width), d.normal(batch, heads, keys, width)
    weight = d.normal(2 * heads * width, columns)
    scale = scales_of(weight, 0, 127)
    weights = {"w.codes": codes_of(weight, scale, np.int8), "w.scales": scale}
    definition = {
        "format": 1, "inputs": [{"name": "query", "datatype": "FP32", "shape": ["batch", 2 * heads, 1, width]}, {"name": "key", "datatype": "FP32", "shape": ["batch", heads, "keys", width]},
                                {"name": "value", "datatype": "FP32", "shape": ["batch", heads, "keys", width]}, {"name": "lengths", "datatype": "INT32", "shape": ["batch"]}],
        "initializers": list(weights),
        "nodes": [{"name": "attend", "op": "attention", "inputs": ["query", "key", "value", "", "lengths"], "outputs": ["mean"]},
                  {"name": "rows", "op": "reshape", "inputs": ["mean"], "outputs": ["flat"], "parameters": {"shape": [0, -1]}},
                  {"name": "narrow", "op": "quantize", "inputs": ["flat"], "outputs": ["codes", "scales"], "parameters": {"scale_per": "row"}},
                  {"name": "project", "op": "matmul", "inputs": ["codes", "w.codes", "", "scales", "w.scales"], "outputs": ["y"]}],
        "outputs": [{"name": "mean"}, {"name": "codes"}, {"name": "scales"}, {"name": "y"}]}
    mean = attention64(query, key, value, np.arange(keys) < ends[:, None, None, None])[0]
    flat = mean.reshape(batch, -1)
    top = np.abs(flat).max(1) / 127
    codes = SimpleNamespace(values=flat / top[:, None], datatype="INT8", bound=np.full(flat.shape, 0.501), shape=flat.shape)
    y = SimpleNamespace(values=flat @ (weights["w.codes"].astype(np.float64) * scale), datatype="FP32", shape=(batch, columns),
                        bound=0.51 * top[:, None] * np.abs(weights["w.codes"] * scale.astype(np.float64)).sum(0))

    def also(got):
        """The product of what the request's own codes are, which is exact but for the scales."""
        exact = got["codes"].astype(np.int64) @ weights["w.codes"].astype(np.int64)
        far = np.abs(got["y"] - exact * got["scales"].astype(np.float64)[:, None] * scale)
        return None if np.all(far <= 4 * ROUNDING["FP32"] * np.abs(got["y"])) else "y is not the product of codes and their scales"

    case = Case("a model: decode, quantize, a product in INT8", None, {"query": query, "key": key, "value": value, "lengths": ends},
                {"mean": near(mean, size=8), "codes": codes, "scales": near(top), "y": y}, stay=("key", "value"), also=also)
    return definition, weights, case


def cases(random, only=None):
    d = Draw(random)
    return list(itertools.chain.from_iterable(draw(d) for name, draw in OPERATIONS.items() if only in (None, name)))
