"""Tensors as flat Python lists, their bytes on the wire, and the answers that float64 arithmetic gives.

Owns       Tensor (datatype, shape, values), encode and decode of every datatype, reference() of each operation and
           tolerance() of each answer. values.py and soak.py send them; nothing here knows HTTP.
Tolerance  absolute part + rounding unit of the output x |reference| + rounding unit of the arithmetic x a stated growth.
"""

import bisect
import builtins
import heapq
import itertools
import math
import os
import re
import struct

CODES = {"INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
         "FP16": "e", "FP32": "f", "FP64": "d"}
FP8 = {"FP8E4M3": (3, 7, 448.0), "FP8E5M2": (2, 15, 57344.0)}  # bits of the mantissa, bias, largest value
SIZES = {"BF16": 2, "FP8E4M3": 1, "FP8E5M2": 1, **{name: struct.calcsize("<" + code) for name, code in CODES.items()}}
UNIT = {"FP64": 2.0 ** -53, "FP32": 2.0 ** -24, "FP16": 2.0 ** -11, "BF16": 2.0 ** -8}  # half an ulp, relative
FLOOR = {"FP64": 2.0 ** -1074, "FP32": 2.0 ** -126, "FP16": 2.0 ** -25, "BF16": 2.0 ** -126}  # below it values may be 0
HALF_INFINITE = 65520.0  # what is rounded to infinity in FP16


def to_bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    if bits & 0x7FFFFFFF > 0x7F800000:
        return 0x7FC0
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def fp8_numbers(datatype):
    """What the codes 0 to 127 are worth, infinity and NaN left out."""
    mantissa, bias, most = FP8[datatype]
    parts = [(code >> mantissa, code % (1 << mantissa)) for code in range(128)]
    numbers = [math.ldexp(part + (exponent > 0) * (1 << mantissa), max(exponent, 1) - bias - mantissa) for exponent, part in parts]
    return [n for n in numbers if n <= most]


def to_fp8(datatype, value):
    """To nearest even, saturating; no NaN comes here."""
    numbers, size = fp8_numbers(datatype), abs(value)
    at = bisect.bisect_left(numbers, size)
    if at == len(numbers) or (at and (size - numbers[at - 1], (at - 1) % 2) < (numbers[at] - size, at % 2)):
        at -= 1
    return at | (128 if math.copysign(1, value) < 0 else 0)


def encode(datatype, values):
    if datatype in FP8:
        return bytes(to_fp8(datatype, v) for v in values)
    if datatype == "BF16":
        return struct.pack("<%dH" % len(values), *map(to_bf16, values))
    return struct.pack("<%d%s" % (len(values), CODES[datatype]), *values)


def decode(datatype, data):
    count = len(data) // SIZES[datatype]
    if datatype in FP8:
        numbers = fp8_numbers(datatype)
        numbers += [math.inf] * (datatype == "FP8E5M2")
        numbers += [math.nan] * (128 - len(numbers))
        return [math.copysign(numbers[code & 127], 1 if code < 128 else -1) for code in data]
    if datatype == "BF16":
        halves = struct.unpack("<%dH" % count, data)
        return list(struct.unpack("<%df" % count, struct.pack("<%dI" % count, *(h << 16 for h in halves))))
    return list(struct.unpack("<%d%s" % (count, CODES[datatype]), data))


def count(shape):
    return math.prod(shape)


class Tensor:
    """Values are what the datatype holds: they went through its bytes once."""

    def __init__(self, datatype, shape, values):
        self.datatype, self.shape = datatype, list(shape)
        self.data = encode(datatype, values)
        self.values = decode(datatype, self.data)


def random_tensor(random, datatype, shape, spread=4.0):
    """Uneven on purpose: mostly normal values, some large, some tiny, so that a skipped element shows."""
    n = count(shape)
    if datatype in UNIT or datatype in FP8:
        values = [random.gauss(0, 1) * random.choice((spread, 1.0, 0.01)) for _ in range(n)]
    else:
        bits = SIZES[datatype] * 8
        top = min(2 ** (bits - 1) - 1, 10 ** 6)
        values = [random.randint(0 if datatype[0] == "U" else -top, top) for _ in range(n)]
    return Tensor(datatype, shape, values)


def along(shape, axes):
    """For each output element the flat indices of what is reduced into it, both in row-major order."""
    strides = [count(shape[i + 1:]) for i in range(len(shape))]
    kept = [i for i in range(len(shape)) if i not in axes]
    inner = [sum(p) for p in itertools.product(*[[j * strides[i] for j in range(shape[i])] for i in sorted(axes)])]
    for place in itertools.product(*[range(shape[i]) for i in kept]):
        base = sum(j * strides[i] for j, i in zip(place, kept))
        yield [base + offset for offset in inner]


def arithmetic(datatype):
    """Rounding unit of the arithmetic: FP32 for everything below it."""
    return UNIT["FP64"] if datatype not in ("FP32", "FP16", "BF16") else UNIT["FP32"]


class Expected:
    """Datatype, shape, float64 (or exact integer) values, and how far each answer may be away. more: OUTPUT1 and on."""

    def __init__(self, datatype, shape, values, tolerance, more=()):
        self.datatype, self.shape, self.values, self.tolerance = datatype, list(shape), values, tolerance
        self.more = list(more)

    def fault(self, got):
        """None, or a sentence about the worst wrong element."""
        if len(got) != len(self.values):
            return "%d elements instead of %d" % (len(got), len(self.values))
        for i, (g, w, t) in enumerate(zip(got, self.values, self.tolerance)):
            if self.datatype == "FP16" and math.isfinite(w) and abs(w) + t >= HALF_INFINITE:
                if g == math.copysign(math.inf, w) or (abs(w) - t < HALF_INFINITE and abs(g - w) <= t):
                    continue
            if isinstance(w, float) and (math.isnan(w) or math.isinf(w)):
                if not (math.isnan(g) and math.isnan(w)) and g != w:
                    return "element %d is %r instead of %r" % (i, g, w)
            elif not abs(g - w) <= t:
                return "element %d is %r instead of %r, off by %.3g, allowed %.3g" % (i, g, w, abs(g - w), t)
        return None


def _rounded(datatype, values, errors):
    """Adds what writing the output's datatype may cost, once, to the errors of the arithmetic."""
    if datatype not in UNIT:
        return list(errors)
    return [e + 1.01 * UNIT[datatype] * abs(v) + FLOOR[datatype] if math.isfinite(v) else 0.0
            for v, e in zip(values, errors)]


def _selected(x, causal, lengths=None, axis=-1):
    """Whether causal and lengths leave each element."""
    takes = [True] * len(x.values)
    if causal != "none":
        rows, columns = x.shape[-2:]
        corner = 0 if causal == "top_left" else columns - rows
        takes = [i % columns <= i // columns % rows + corner for i in range(len(x.values))]
    if lengths:
        behind, sharing = count(x.shape[axis % len(x.shape) + 1:]), count(x.shape[len(lengths.shape):])
        takes = [take and i // behind % x.shape[axis] < lengths.values[i // sharing] for i, take in enumerate(takes)]
    return takes


def softmax(x, mask=None, lengths=None, axis=-1, log=False, scale=1.0, causal="none", masked_rows="nan", out_datatype=None):
    """mask: added, of x's datatype; one of BOOL has a test of its own (values.py)."""
    rank, unit = len(x.shape), arithmetic(x.datatype)
    values, errors = [0.0] * len(x.values), [0.0] * len(x.values)
    takes, none = _selected(x, causal, lengths, axis), -math.inf if log else 0.0
    added = [0.0] * len(x.values)
    if mask:
        lead = len(x.shape) - len(mask.shape)
        added = [mask.values[_offset(place[lead:], mask.shape)] for place in itertools.product(*map(range, x.shape))]
    for whole in along(x.shape, {axis % rank}):
        for i in whole:
            values[i] = none
        row = [i for i in whole if takes[i]]
        scaled = [x.values[i] * scale + added[i] for i in row]
        top = max(scaled, default=-math.inf)
        if top == -math.inf:
            for i in whole:
                values[i] = none if masked_rows == "zero" else math.nan
            continue
        total = math.fsum(math.exp(s - top) for s in scaled)
        for i, s in zip(row, scaled):
            # the subtraction loses units of |s| and |top|, whose exponential carries them on; sum and exp add a few more
            reach = abs(s) + abs(top) + 8.0
            if log:
                values[i] = s - top - math.log(total)
                errors[i] = 4 * unit * (reach + abs(math.log(total)))
            else:
                values[i] = math.exp(s - top) / total
                errors[i] = 4 * unit * reach * values[i] if values[i] else 0.0
    out = out_datatype or x.datatype
    return Expected(out, x.shape, values, _rounded(out, values, errors))


def _norm_of(v, p, unit):
    """(sum |x|^p)^(1/p), whose powers are taken in FP64."""
    magnitudes = [abs(e) for e in v]
    if p in ("inf", "-inf"):
        return float(max(magnitudes) if p == "inf" else min(magnitudes)), 0.0
    if p == 0:
        return float(sum(m != 0 for m in magnitudes)), 0.0
    value = math.fsum(m ** p for m in magnitudes) ** (1 / p)
    steep = max([abs(math.log2(m)) for m in magnitudes if m > 0], default=0.0)
    return value, (UNIT["FP64"] * (len(v) / p + 32 * (steep + 1)) + (2 * unit if p in (1, 2) else 0)) * value


def _var_of(v, ddof, unit):
    n, mean = len(v), math.fsum(v) / len(v)
    if n <= ddof:
        return math.nan, 0.0
    value = math.fsum((e - mean) ** 2 for e in v) / (n - ddof)
    return value, (2.0 ** -20 if unit > UNIT["FP64"] else 64 * n * unit) * (value + (v[0] - mean) ** 2 / 2 ** 20) + 64 * n * UNIT["FP64"] * math.sqrt(value) * abs(mean)


def _one(op, v, unit, ddof=0, p=2):
    """One reduced value and the error that its arithmetic may have."""
    n = len(v)
    growth = unit * (math.log2(n + 1) + 4 + 2 * math.sqrt(n))
    exact = all(isinstance(e, int) for e in v)
    if op in ("max", "min"):
        return (max(v) if op == "max" else min(v)), 0.0
    if op in ("argmax", "argmin"):
        return v.index(max(v) if op == "argmax" else min(v)), 0.0
    if op == "sum":
        return (sum(v), 0) if exact else (math.fsum(v), growth * math.fsum(map(abs, v)))
    if op == "mean":
        return math.fsum(v) / n, growth * (math.fsum(map(abs, v)) / n)
    if op == "prod":
        value = math.prod(v)
        return (value, 0) if exact else (value, 2 * n * unit * abs(value))
    if op == "l2norm":
        value = math.sqrt(math.fsum(e * e for e in v))
        return value, (8 * unit + growth) * value
    if op in ("var", "std"):
        value, error = _var_of(v, ddof, unit)
        return (value, error) if op == "var" else (math.sqrt(value), math.sqrt(value + error) - math.sqrt(max(value - error, 0)))
    if op == "sumsq":
        value = sum(e * e for e in v) if exact else math.fsum(e * e for e in v)
        return value, 0 if exact else growth * value
    if op == "l1norm":
        value = math.fsum(map(abs, v))
        return value, growth * value
    if op == "logsum":
        total = math.fsum(v)
        return math.log(total), growth * math.fsum(map(abs, v)) / total + 4 * unit * max(1.0, abs(math.log(total)))
    if op == "norm":
        return _norm_of(v, p, unit)
    if op == "count_nonzero":
        return sum(e != 0 for e in v), 0
    if op == "logsumexp":
        top = max(v)
        value = top + math.log(math.fsum(math.exp(e - top) for e in v))
        return value, 4 * unit * (max(1.0, abs(value)) + abs(top) + 4)
    raise ValueError(op)


# any and all, whose results are BOOL, have a test of their own (values.py).
OPS = ("sum", "mean", "max", "min", "prod", "argmax", "argmin", "l2norm", "logsumexp", "var", "std", "sumsq", "l1norm", "logsum", "norm",
       "count_nonzero")


def axes_of(axis, rank):
    if axis == "all":
        return set(range(rank))
    if isinstance(axis, str):
        return {int(a) % rank for a in axis.split(",")}
    return {axis % rank}


def reduce(x, segments=None, op="sum", axis=-1, keepdims=False, ddof=0, p=2):
    axes = axes_of(axis, len(x.shape))
    shape = [1 if i in axes else d for i, d in enumerate(x.shape) if keepdims or i not in axes]
    rows = list(along(x.shape, axes))
    begins = [0] * len(rows)
    if segments:
        (own,) = axes
        offsets, inner = segments.values, count(x.shape[own + 1:])
        shape = x.shape[:own] + [len(offsets) - 1] + x.shape[own + 1:]
        lines = [rows[i:i + inner] for i in range(0, len(rows), inner)]
        cut = [(line[i:j], i) for part in lines for i, j in zip(offsets, offsets[1:]) for line in part]
        rows, begins = [row for row, _ in cut], [begin for _, begin in cut]
    datatype = x.datatype
    if op in ("argmax", "argmin", "count_nonzero"):
        datatype = "INT64"
    elif datatype not in UNIT and op not in ("max", "min"):
        datatype = "INT64" if op in ("sum", "prod", "sumsq") else "FP64"
    pairs = [_one(op, [x.values[i] for i in row], arithmetic(x.datatype), ddof, p) for row in rows]
    values, errors = [p[0] for p in pairs], [p[1] for p in pairs]
    if op.startswith("arg"):
        values = [value + begin for value, begin in zip(values, begins)]
    if op in ("max", "min", "argmax", "argmin", "count_nonzero"):
        return Expected(datatype, shape, values, [0] * len(values))
    return Expected(datatype, shape, values, _rounded(datatype, values, errors))


def _scale_of(scales, leading, place, each, i):
    """Of row or column i of the matrix at that place."""
    return 1.0 if scales is None else scales.values[0 if count(scales.shape) == 1 else _offset(place, leading) * each + i]


def matmul(a, b, bias=None, scale_a=None, scale_b=None, transpose_a=False, transpose_b=False, alpha=1.0, out_datatype="auto"):
    sa, sb = a.shape, b.shape
    m, k = (sa[-1], sa[-2]) if transpose_a else (sa[-2], sa[-1])
    n = sb[-2] if transpose_b else sb[-1]
    rank = max(len(sa), len(sb))
    la, lb = [1] * (rank - len(sa)) + sa[:-2], [1] * (rank - len(sb)) + sb[:-2]
    lead = [max(p, q) if min(p, q) else 0 for p, q in zip(la, lb)]
    narrow = a.datatype == "INT8" or a.datatype in FP8
    whole = a.datatype == "INT8" and out_datatype in ("auto", "INT32") and scale_a is scale_b is None
    out = "INT32" if whole else a.datatype if not narrow else "FP32" if out_datatype == "auto" else out_datatype
    unit = 0 if whole else UNIT["FP32"] if narrow else arithmetic(a.datatype)
    values, errors = [], []
    for place in itertools.product(*map(range, lead)):
        oa = _offset(place, la) * m * k
        ob = _offset(place, lb) * k * n
        for i in range(m):
            for j in range(n):
                left = [a.values[oa + (p * m + i if transpose_a else i * k + p)] for p in range(k)]
                right = [b.values[ob + (j * k + p if transpose_b else p * n + j)] for p in range(k)]
                products = [u * v for u, v in zip(left, right)]
                scale = alpha * _scale_of(scale_a, la, place, m, i) * _scale_of(scale_b, lb, place, n, j)
                values.append(sum(products) if whole else scale * math.fsum(products))
                errors.append(abs(scale) * (2 * math.sqrt(k) + 4) * unit * math.fsum(map(abs, products)))
    return Expected(out, lead + [m, n], values, _rounded(out, values, errors))


def _offset(place, dims):
    index = 0
    for p, d in zip(place, dims):
        index = index * d + (p if d > 1 else 0)
    return index


ACTIVATION = {"none": lambda z: z, "relu": lambda z: max(z, 0.0), "gelu": lambda z: 0.5 * z * (1 + math.erf(z / math.sqrt(2))),
              "gelu_tanh": lambda z: 0.5 * z * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z ** 3))),
              "silu": lambda z: z / (1 + math.exp(-z)) if z > -700 else 0.0}


def norm(x, weight=None, bias=None, kind="layer", axis=-1, groups=1, eps=None, activation="none"):
    rank, unit = len(x.shape), arithmetic(x.datatype)
    first = 1 if kind == "group" else rank - len(axes_of(axis, rank))
    length, inner = count(x.shape[first:]), 1
    if kind == "group":
        length, inner = length // groups, count(x.shape[2:])
    eps = (1e-12 if kind == "l2" else 1e-5) if eps is None else eps
    narrow = UNIT[x.datatype] > UNIT["FP32"]
    values, errors = [], []
    for row in range(len(x.values) // length if length else 0):
        s = x.values[row * length:][:length]
        mean = math.fsum(s) / length if kind in ("layer", "group") else 0.0
        squares = math.fsum((v - mean) ** 2 for v in s)
        divisor = max(math.sqrt(squares), eps) if kind == "l2" else math.sqrt(squares / length + eps)
        largest = max(map(abs, s))
        for i, v in enumerate(s):
            place = row % groups * (length // inner) + i // inner
            w, b = (t.values[place] if t else d for t, d in ((weight, 1.0), (bias, 0.0)))
            n = (v - mean) / divisor
            z = n * w + b
            y = ACTIVATION[activation](z)
            error = unit * (8 * abs(n * w) + (4 * abs(mean) + (math.log2(length) + 4) * largest) / divisor * abs(w) + 2 * abs(b))
            values.append(y)
            errors.append(1.2 * error + 4 * unit * abs(z) + (2.0 ** -12 * abs(y) if narrow else 0.0))
    return Expected(x.datatype, x.shape, values, _rounded(x.datatype, values, errors))


def _whole(datatype, value):
    """The integer that those low bits are."""
    bits = SIZES[datatype] * 8
    low = value % 2 ** bits
    return low - 2 ** bits if datatype[0] == "I" and low >= 2 ** (bits - 1) else low


# Exact on integers, which wrap, and one rounding on floats.
PLAIN = {
    "abs": abs, "neg": lambda x: -x, "square": lambda x: x * x, "relu": lambda x: max(x, 0), "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "min": min, "max": max, "fma": lambda x, y, z: x * y + z,
    "axpy": lambda x, y, a: a * x + y, "linear": lambda x, a, b: a * x + b, "clamp": lambda x, a, b: min(max(x, a), b),
}
CURVES = {
    "exp": math.exp, "tanh": math.tanh, "sigmoid": lambda x: 1 / (1 + math.exp(-x)), "gelu": lambda x: x * math.erfc(-x / math.sqrt(2)) / 2,
    "silu": lambda x: x / (1 + math.exp(-x)), "sin": math.sin, "div": lambda x, y: x / y, "erf": math.erf,
}
TRUTHS = {"lt": lambda x, y: x < y, "ge": lambda x, y: x >= y, "ne": lambda x, y: x != y}


def map_(*inputs, op, out_datatype=None, **numbers):
    """numbers: a and b, as the request has them; of a function of two operands with one input a is the other one."""
    shape = []
    for t in inputs:
        pairs = itertools.zip_longest(shape[::-1], t.shape[::-1], fillvalue=1)
        shape = [q if p == 1 else p for p, q in pairs][::-1]
    datatype, unit = inputs[0].datatype, arithmetic(inputs[0].datatype)
    values, errors = [], []
    for place in itertools.product(*map(range, shape)):
        v = [t.values[_offset(place[len(shape) - len(t.shape):], t.shape)] for t in inputs] + list(numbers.values())
        value = (PLAIN.get(op) or CURVES.get(op) or TRUTHS[op])(*v)
        values.append(int(value) if op in TRUTHS else _whole(datatype, value) if datatype not in UNIT else value)
        narrow = 2.0 ** -12 * abs(value) if op in CURVES and datatype in ("FP16", "BF16") else 0
        # what the rounding of a product leaves when the sum behind it cancels
        product = abs(v[0] * v[{"fma": 1, "axpy": 2, "linear": 1}[op]]) if op in ("fma", "axpy", "linear") else 0
        errors.append(4 * unit * max(abs(value), abs(v[0])) + narrow if op in CURVES else
                      2 * unit * (abs(value) + product) if datatype in UNIT else 0)
    out = out_datatype or datatype
    return Expected(out, shape, values, [0] * len(values) if op in TRUTHS else _rounded(out, values, errors))


def topk(x, k=1, axis=-1, largest=True, sorted=True, index_datatype="INT64"):
    """sorted changes nothing: the answer is in order either way."""
    axis %= len(x.shape)
    shape = [k if i == axis else d for i, d in enumerate(x.shape)]
    values, places, inner = [0] * count(shape), [0] * count(shape), count(shape[axis + 1:])
    for number, row in enumerate(along(x.shape, {axis})):
        def key(i):
            return (-x.values[row[i]] if largest else x.values[row[i]], i)
        for j, i in enumerate(heapq.nsmallest(k, range(len(row)), key=key)):
            at = (number // inner * k + j) * inner + number % inner
            values[at], places[at] = x.values[row[i]], i
    exact = [0] * len(values)
    return Expected(x.datatype, shape, values, exact, [Expected(index_datatype, shape, places, exact)])


def search(queries, matrix, bias=None, k=1, metric="dot"):
    """INPUT3, a mask of BOOL, has a test of its own (values.py). Indices are exact: forms.random_search makes no two scores that are nearly equal."""
    (q, depth), rows = queries.shape, matrix.shape[0]
    scores, places, errors = [], [], []
    for i in range(q):
        x = queries.values[i * depth:(i + 1) * depth]
        row = []
        for j in range(rows):
            y = matrix.values[j * depth:(j + 1) * depth]
            dot, norms = math.fsum(a * b for a, b in zip(x, y)), math.sqrt(math.fsum(a * a for a in x) * math.fsum(b * b for b in y))
            score = math.fsum((a - b) ** 2 for a, b in zip(x, y)) if metric == "l2" else dot if metric == "dot" or norms == 0 else dot / norms
            row.append((score + (bias.values[j] if bias else 0), j))
        best = heapq.nsmallest(k, row, key=lambda pair: (pair[0] if metric == "l2" else -pair[0], pair[1]))
        scores += [pair[0] for pair in best]
        places += [pair[1] for pair in best]
    errors = [(8 + depth) * UNIT["FP32"] * (1 + abs(score)) for score in scores]
    return Expected("FP32", [q, k], scores, errors, [Expected("INT64", [q, k], places, [0] * len(places))])


def _heads(tensor, layout):
    """[B, H, S, D] of a tensor of rank 2 to 4, and where an element of it lies."""
    shape = tensor.shape
    h, s = (-2, -3) if layout == "bshd" and len(shape) > 2 else (-3, -2)
    extents = [shape[0] if len(shape) > 3 else 1, shape[h] if len(shape) > 2 else 1, shape[s], shape[-1]]
    def at(b, head, row):
        first, second = (row, head) if layout == "bshd" else (head, row)
        return ((b * extents[2 if layout == "bshd" else 1] + first) * extents[1 if layout == "bshd" else 2] + second) * extents[3]
    return extents, at


def attention(query, key, value, mask=None, lengths=None, scale=None, causal="none", window=0, softcap=0, layout="bhsd", masked_rows="zero", lse=False):
    ((batches, heads, queries, depth), q_at), ((_, kv_heads, keys, _), k_at) = _heads(query, layout), _heads(key, layout)
    (_, _, _, value_depth), v_at = _heads(value, layout)
    scale = 1 / math.sqrt(depth) if scale is None else scale
    unit, out = UNIT[query.datatype], Tensor(query.datatype, list(query.shape[:-1]) + [value_depth], [0] * (batches * heads * queries * value_depth))
    o_at, values, errors, sums = _heads(out, layout)[1], list(out.values), list(out.values), []
    extents = [1] * (4 - len(mask.shape)) + list(mask.shape) if mask else []
    for b, h, i in itertools.product(range(batches), range(heads), range(queries)):
        length, group = lengths.values[b] if lengths else keys, h // (heads // kv_heads)
        last = i + (length - queries if causal == "bottom_right" else 0) if causal != "none" else length - 1
        taken, off = {}, 0  # off: of a score, by its products and by what is added to it; weights are off by as much of themselves
        for j in range(max(0, last - window) if window else 0, min(last + 1, length)):
            products = [query.values[q_at(b, h, i) + d] * key.values[k_at(b, group, j) + d] for d in range(depth)]
            dot, size = math.fsum(products) * scale, math.fsum(map(abs, products)) * abs(scale)
            dot = softcap * math.tanh(dot / softcap) if softcap else dot
            if mask:
                place = 0
                for extent, index in zip(extents, (b, h, i, j)):
                    place = place * extent + (index if extent > 1 else 0)
                if mask.datatype == "BOOL" and not mask.values[place]:
                    continue
                dot += 0 if mask.datatype == "BOOL" else mask.values[place]
            taken[j] = dot
            if math.isfinite(dot):
                off = max(off, ((depth + 2) * size + 3 * abs(dot)) * UNIT["FP32"])
        most = max(taken.values(), default=-math.inf)
        weights = {j: math.exp(z - most) for j, z in taken.items()} if most > -math.inf else {}
        total = math.fsum(weights.values())
        sums.append(most + math.log(total) if weights else math.nan if masked_rows == "nan" else -math.inf)
        for c in range(value_depth):
            terms = [w * value.values[v_at(b, group, j) + c] / total for j, w in weights.items()]
            values[o_at(b, h, i) + c] = math.fsum(terms) if weights else math.nan if masked_rows == "nan" else 0.0
            errors[o_at(b, h, i) + c] = (4 * unit + (depth + 40) * UNIT["FP32"] + 2 * off) * math.fsum(map(abs, terms)) + 1e-7
    more = [Expected("FP32", list(query.shape[:-1]) if layout == "bhsd" or len(query.shape) < 3 else [*query.shape[:-3], heads, queries], sums,
                     [4 * unit + (depth + 40) * UNIT["FP32"] * (1 + abs(s)) for s in sums])] if lse else []
    return Expected(query.datatype, out.shape, values, errors, more)


def scan(x, op="sum", axis=-1, exclusive=False, reverse=False):
    """Each prefix is what reduce makes of it; nothing has the identity."""
    axis %= len(x.shape)
    real = x.datatype in UNIT
    datatype = x.datatype if real or op in ("max", "min") else "FP64" if op == "logsumexp" else "INT64"
    none = {"sum": 0, "prod": 1, "max": -math.inf, "min": math.inf, "logsumexp": -math.inf}[op]
    if op in ("max", "min") and not real:
        top = 2 ** (SIZES[datatype] * 8 - (datatype[0] == "I")) - 1
        none = top if op == "min" else -top - 1 if datatype[0] == "I" else 0
    values, errors = [0] * len(x.values), [0] * len(x.values)
    for row in along(x.shape, {axis}):
        order = row[::-1] if reverse else row
        for i, at in enumerate(order):
            prefix = [x.values[j] for j in order[:i if exclusive else i + 1]]
            value, errors[at] = _one(op, prefix, arithmetic(x.datatype)) if prefix else (none, 0)
            values[at] = _whole(datatype, value) if datatype not in UNIT else value
    if op in ("max", "min"):
        return Expected(datatype, x.shape, values, [0] * len(values))
    return Expected(datatype, x.shape, values, _rounded(datatype, values, errors))


def histogram(x, bins=256, min=None, max=None, axis="all", edges=False):
    """Without min and max integers are their bins."""
    axes = axes_of(axis, len(x.shape))
    shape = [d for i, d in enumerate(x.shape) if i not in axes] + [bins]
    ranged = min is not None
    begins = [min + b * ((max - min) / bins) for b in range(bins)] + [max] if ranged else list(range(bins + 1))
    values = []
    for row in along(x.shape, axes):
        counts = [0] * bins
        for value in (x.values[i] for i in row):
            if ranged and min <= value <= max:
                counts[builtins.min(bisect.bisect_right(begins, value), bins) - 1] += 1
            elif not ranged and 0 <= value < bins:
                counts[value] += 1
        values += counts
    more = [Expected("FP64", [bins + 1], [float(e) for e in begins], [0] * (bins + 1))] if edges else []
    return Expected("INT64", shape, values, [0] * len(values), more)


def _single(value):
    """The nearest FP32."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def _scale_places(shape, scale_per):
    """For each element its scale's number, and the scales' shape."""
    columns, n = shape[-1], count(shape)
    if scale_per == "row":
        return [i // columns for i in range(n)], shape[:-1]
    return ([i % columns for i in range(n)], [columns]) if scale_per == "column" else ([0] * n, [1])


def quantize(x, scale=None, out_datatype="INT8", scale_per="tensor"):
    """Codes and scales are exact: scales are FP32's, so are their reciprocals, and products with these."""
    places, shape = _scale_places(x.shape, scale_per)
    most = FP8[out_datatype][2] if out_datatype in FP8 else 127
    if scale is None:
        largest = [0.0] * count(shape)
        for place, value in zip(places, x.values):
            largest[place] = builtins.max(largest[place], abs(value))
        scales = [builtins.max(_single(n / most), 2.0 ** -126) if n else 1.0 for n in largest]
    else:
        scales = scale.values
    inverses = [_single(1 / scale) for scale in scales]
    quotients = [_single(value * inverses[place]) for place, value in zip(places, x.values)]
    if out_datatype == "INT8":
        codes = [int(builtins.min(builtins.max(round(q), -128), 127)) for q in quotients]
    else:
        codes = decode(out_datatype, encode(out_datatype, quotients))
    return Expected(out_datatype, x.shape, codes, [0] * len(codes), [Expected("FP32", shape, scales, [0] * len(scales))])


def dequantize(x, scale, out_datatype="FP32", scale_per="tensor"):
    places, _ = _scale_places(x.shape, scale_per)
    values = [_single(code * scale.values[place]) for place, code in zip(places, x.values)]
    return Expected(out_datatype, x.shape, values, _rounded(out_datatype, values, [0] * len(values)))


def _slice_of(index, extent, mode):
    if mode == "clip":
        return min(max(index, 0), extent - 1)
    return index % extent if mode == "wrap" else index + extent * (index < 0)


def gather(table, indices, offsets=None, weights=None, axis=0, kind="slices", mode="error", op="sum"):
    axis %= len(table.shape)
    outer, extent, inner = count(table.shape[:axis]), table.shape[axis], count(table.shape[axis + 1:])
    slices = [_slice_of(i, extent, mode) for i in indices.values]
    if offsets is not None:
        return _bags(table, slices, offsets.values, weights.values if weights else None, op)
    if kind == "elements":
        length = indices.shape[axis]
        sources = [((i // inner // length) * extent + s) * inner + i % inner for i, s in enumerate(slices)]
        shape = indices.shape
    else:
        sources = [(o * extent + s) * inner + j for o in range(outer) for s in slices for j in range(inner)]
        shape = table.shape[:axis] + indices.shape + table.shape[axis + 1:]
    return Expected(table.datatype, shape, [table.values[s] for s in sources], [0.0] * len(sources))


def _bags(table, slices, offsets, weights, op):
    inner, unit, values, errors = count(table.shape[1:]), arithmetic(table.datatype), [], []
    for begin, end in zip(offsets, offsets[1:]):
        for column in range(inner):
            terms = [table.values[slices[i] * inner + column] * (weights[i] if weights else 1.0) for i in range(begin, end)]
            value, size = (max(terms, default=0.0), max(map(abs, terms), default=0.0)) if op == "max" else (math.fsum(terms), math.fsum(map(abs, terms)))
            n = len(terms) if op == "mean" and terms else 1
            values.append(value / n)
            errors.append(unit * (len(terms) + 4) * size / n)
    return Expected(table.datatype, [len(offsets) - 1] + table.shape[1:], values, _rounded(table.datatype, values, errors))


def _places(shape):
    """Each index of a shape, the last axis fastest."""
    return itertools.product(*map(range, shape))


def _padded(i, before, extent, mode):
    """The input's index; None: the value's."""
    i -= before
    if 0 <= i < extent:
        return i
    if mode == "constant":
        return None
    if mode == "edge":
        return min(max(i, 0), extent - 1)
    return -i if i < 0 else 2 * (extent - 1) - i


def _sliced(extent, start, size, end, step):
    """The input's indices along an axis; of a list that is not given None."""
    if end is not None:
        return list(range(extent))[start:end:step]
    step = 1 if step is None else step
    start = (0 if step > 0 else extent - 1) if start is None else start + extent * (start < 0)
    walk = range(start, extent, step) if step > 0 else range(start, -1, step)
    return list(walk if size in (None, -1) else walk[:size])


def layout(x, *more, op="transpose", axes=None, starts=None, sizes=None, ends=None, steps=None, before=None, after=None, mode="constant", value=0,
           axis=0, new_shape=None, repeats=None, parts=2, part=0):
    """Each element by its index."""
    rank, shape = len(x.shape), x.shape
    strides = [count(shape[i + 1:]) for i in range(rank)]
    at = lambda index: x.values[sum(i * s for i, s in zip(index, strides))]
    if op == "reshape":
        new = [shape[i] if n == 0 else n for i, n in enumerate(new_shape)]
        new = [count(shape) // -count(new) if n == -1 else n for n in new]
        return Expected(x.datatype, new, x.values, [0.0] * len(x.values))
    if op == "concat":
        axis %= rank
        parts = [(t, count(t.shape[axis:])) for t in (x, *more)]
        values = [v for o in range(count(shape[:axis])) for t, run in parts for v in t.values[o * run:(o + 1) * run]]
        new = shape[:axis] + [sum(t.shape[axis] for t, _ in parts)] + shape[axis + 1:]
        return Expected(x.datatype, new, values, [0.0] * len(values))
    if op == "transpose":
        order = [a % rank for a in axes] if axes is not None else list(range(rank))[::-1]
        new = [shape[a] for a in order]
        values = [at([i for _, i in sorted(zip(order, index))]) for index in _places(new)]
        return Expected(x.datatype, new, values, [0.0] * len(values))
    if op == "expand":
        more = len(new_shape) - rank
        new = [n or shape[i - more] for i, n in enumerate(new_shape)]
        values = [at([i * (n > 1) for i, n in zip(index[more:], shape)]) for index in _places(new)]
        return Expected(x.datatype, new, values, [0.0] * len(values))
    alone = lambda list_, other: list_ if list_ is None or len(list_) == rank else [list_[0] if i == axis % rank else other for i in range(rank)]
    if op == "slice":
        starts, sizes, ends, steps = alone(starts, None), alone(sizes, None), alone(ends, None), alone(steps, None)
        none = [None] * rank
        walks = [_sliced(*given) for given in zip(shape, starts or none, sizes or none, ends or none, steps or none)]
    elif op == "split":
        walks = [list(range(n)) for n in shape]
        each = shape[axis] // parts
        walks[axis] = walks[axis][part % parts * each:(part % parts + 1) * each]
    elif op == "tile":
        walks = [list(range(n)) * times for n, times in zip(shape, alone(repeats, 1))]
    else:
        before, after = alone(before, 0) or [0] * rank, alone(after, 0) or [0] * rank
        walks = [[_padded(i, b, n, mode) for i in range(b + n + a)] for n, b, a in zip(shape, before, after)]
    values = [value if None in index else at(index) for index in itertools.product(*walks)]
    return Expected(x.datatype, [len(walk) for walk in walks], values, [0.0] * len(values))


def _alike(extent, stride, reach, lower):
    """Elements in front and behind, so that there are as many windows as strides fit."""
    more = max(0, (extent - 1) // stride * stride + reach - extent)
    return (more - more // 2, more // 2) if lower else (more // 2, more - more // 2)


def window(x, size, stride=1, dilation=1, pad=None, auto_pad="none", layout="nhwc", value=0):
    """Each element by its window, its tap and its channel."""
    each = lambda numbers: list(numbers) * (len(size) // len(numbers)) if isinstance(numbers, (list, tuple)) else [numbers] * len(size)
    first, spatial, shape = layout == "nchw", len(size), x.shape
    lead = len(shape) - spatial - 1
    stride, dilation = each(stride), each(dilation)
    extents, channels = shape[lead + first:][:spatial], shape[lead if first else -1]
    reach = [(n - 1) * d + 1 for n, d in zip(size, dilation)]
    pad = list(pad or [0] * spatial)
    pads = list(zip(pad, pad[spatial:] or pad)) if auto_pad == "none" else [_alike(*given, auto_pad == "same_lower") for given in zip(extents, stride, reach)]
    windows = [(n + sum(p) - r) // s + 1 for n, p, r, s in zip(extents, pads, reach, stride)]
    strides = [count(shape[i + 1:]) for i in range(len(shape))]
    values = []
    for index in itertools.product(_places(shape[:lead]), _places(windows), _places(size), range(channels)):
        places = [w * s + t * d - p[0] for w, s, t, d, p in zip(index[1], stride, index[2], dilation, pads)]
        if any(not 0 <= place < n for place, n in zip(places, extents)):
            values.append(value)
            continue
        whole = [*index[0], index[3], *places] if first else [*index[0], *places, index[3]]
        values.append(x.values[sum(i * s for i, s in zip(whole, strides))])
    return Expected(x.datatype, shape[:lead] + windows + [count(size) * channels], values, [0.0] * len(values))


REFERENCE = {"softmax": softmax, "reduce": reduce, "matmul": matmul, "norm": norm, "map": map_, "topk": topk, "scan": scan,
             "histogram": histogram, "gather": gather, "layout": layout, "window": window, "search": search, "attention": attention,
             "quantize": quantize, "dequantize": dequantize}
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "kernels", "ops", "ops.def")) as _file:
    MODELS = tuple(re.findall(r"^OP\((\w+)\)", _file.read(), re.M))  # each has a reference here and a maker in forms.py
