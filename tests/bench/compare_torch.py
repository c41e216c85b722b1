#!/usr/bin/env python3
"""PyTorch and our kernels on the same tensors, in one process, alternating: time, share of a device copy, ratio.

compare_torch.py LIBRARY [TEXT...]   LIBRARY: libks_bench_ops.so; only rows in whose label every TEXT stands
--seed N repeats a run's data; --json FILE also writes the rows there; --compiled times torch.compile of a norm's whole expression,
too, and compares with the better of both. --drawn N: instead of the table's rows, N drawn ones, by the seed, of each regime that once
was weak, or with --operations of each operation (drawn_rows.py); their labels begin with the letter or the operation. --side-ms: of each
side's launches of a row.

Rows are those of ops_rows.h but for matmul. Beside map's functions and moved bits stands torch.compile of them, too (--no-compile: eager alone). Each side is a CUDA graph of many launches that goes round the same sets of
inputs, and has a set of outputs for each; the sets are beyond three times the L2 cache together (at most 64 of them, so that
small rows stay in it). One replay of PyTorch's graph, one of ours, and again; medians, by events. GB/s counts inputs and
output once, whatever the kernels move. Before that our results are compared with float64 of the same data, by the bounds
of the op tests; exit code 1 when one is off.
"""

import argparse
import ctypes
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import drawn_rows
from drawn_rows import BAG_INDICES

SETS_BYTES, SETS_LEAST, SETS_MOST = 300 << 20, 4, 64
REPLAY_US, LAUNCHES_LEAST, LAUNCHES_MOST = 10000, 4, 96
SIDE_US, REPLAYS_LEAST, REPLAYS_MOST = 250000, 5, 25
LARGE_BYTES = 64e6  # from here on the share of a copy is what counts
AS_FAST = 0.98  # PyTorch's time over ours: below it ours is slower, by more than the noise
DEVICE = "cuda"
MEMORY_ALIGNMENT = 4096  # as a slot's
DTYPES = {"FP32": (torch.float32, 2.0 ** -24), "BF16": (torch.bfloat16, 2.0 ** -8)}


class Row(ctypes.Structure):
    _fields_ = [("op", ctypes.c_char * 16), ("dtype", ctypes.c_char * 8), ("first", ctypes.c_char * 32),
                ("second", ctypes.c_char * 32), ("axis", ctypes.c_char * 16), ("label", ctypes.c_char * 192),
                ("third", ctypes.c_char * 24), ("to", ctypes.c_char * 8), ("parameters", ctypes.c_char * 40)]


class Work(ctypes.Structure):
    """ops_work as far as it is read here; the rest has room to spare."""
    _fields_ = [("in_bytes", ctypes.c_size_t), ("out_bytes", ctypes.c_size_t), ("bytes", ctypes.c_double),
                ("flops", ctypes.c_double), ("kernel", ctypes.c_char * 56), ("rest", ctypes.c_char * 65536)]


class Library:
    def __init__(self, path):
        self.dll = ctypes.CDLL(path)
        self.dll.ops_row_at.restype = ctypes.c_bool
        self.dll.ops_copy_gbs.restype = ctypes.c_double
        self.dll.ops_input_at.restype = self.dll.ops_output_at.restype = ctypes.c_longlong
        for name in ("ops_open", "ops_plan", "ops_launch"):
            getattr(self.dll, name).restype = ctypes.c_char_p
        self.check(self.dll.ops_open())
        self.copy_gbs = self.dll.ops_copy_gbs()

    @staticmethod
    def check(why):
        if why is not None:
            raise RuntimeError(why.decode())

    def rows(self):
        row, i = Row(), 0
        while self.dll.ops_row_at(i, ctypes.byref(row)):
            yield row
            row, i = Row(), i + 1

    def plan(self, row):
        work = Work()
        self.check(self.dll.ops_plan(ctypes.byref(row), ctypes.byref(work)))
        return work

    def places(self, work):
        """Of the inputs and outputs in their sides."""
        return ({i: at for i in range(8) if (at := self.dll.ops_input_at(ctypes.byref(work), i)) >= 0},
                {i: at for i in range(4) if (at := self.dll.ops_output_at(ctypes.byref(work), i)) >= 0})

    def launch(self, work, source, result, stream):
        self.check(self.dll.ops_launch(ctypes.byref(work), ctypes.c_void_p(source.data_ptr()),
                                       ctypes.c_void_p(result.data_ptr()), ctypes.c_void_p(stream.cuda_stream)))


def row_of(texts):
    return Row(*(texts[name].encode() for name, _ in Row._fields_))


def drawn_of(functions, seed, each, fits=lambda row: True):
    return map(row_of, drawn_rows.rows(functions, seed, each, lambda texts: fits(row_of(texts))))


def causal(x):
    """-inf above the diagonal that ends in the corner."""
    rows, columns = x.shape[-2:]
    return x.masked_fill(torch.ones(rows, columns, dtype=torch.bool, device=x.device).triu(columns - rows + 1), -math.inf)


TORCH = {"softmax": lambda x, axes: torch.softmax(x, axes[0]), "softmax_causal": lambda x, axes: torch.softmax(causal(x), axes[0]),
         "sum": torch.sum, "mean": torch.mean, "max": torch.amax, "logsumexp": torch.logsumexp,
         "argmax": lambda x, axes: torch.argmax(x, axes[0]),
         "var": lambda x, axes: torch.var(x, axes, correction=0), "std": lambda x, axes: torch.std(x, axes, correction=0),
         "l1norm": lambda x, axes: torch.linalg.vector_norm(x, 1, axes), "any": torch.any, "all": torch.all, "count_nonzero": torch.count_nonzero}
OF_RESULTS = {"argmax": torch.int64, "count_nonzero": torch.int64, "any": torch.bool, "all": torch.bool}
# PyTorch's maxima come with indices, which ours do not make.
SCANS = {"cumsum": torch.cumsum, "cummax": torch.cummax, "logcumsumexp": torch.logcumsumexp}

# Norms of a case's inputs by number (ops/norm.h): 0 x, 1 weight, 2 bias, 3 residual, 4 pre_bias.
EPS = 1e-5
NORMS = {"layer_norm": lambda t: F.layer_norm(t[0], t[1].shape, t[1], t[2], EPS),
         "rms_norm": lambda t: F.rms_norm(t[0], t[1].shape, t[1], EPS),
         "bias_layer_gelu": lambda t: F.gelu(F.layer_norm(t[0] + t[4], t[1].shape, t[1], t[2], EPS)),
         "add_rms_norm": lambda t: (lambda s: (F.rms_norm(s, t[1].shape, t[1], EPS), s))(t[0] + t[3])}

# k of topk's rows, which their op names.
TOPKS = {"topk_%d" % k: k for k in (10, 50, 256, 2048)}


def wrong_topk(x, k, axis, values, indices):
    """Places that differ from the beginning of a stable sort, which has the order of topk."""
    want = torch.sort(x, dim=axis, descending=True, stable=True)
    first = want.values.narrow(axis, 0, k), want.indices.narrow(axis, 0, k)
    return int((values != first[0]).sum()) + int((indices != first[1]).sum())


# Gathers of a case's inputs by number (ops/gather.h): 0 table, 1 indices, 2 offsets.
GATHERS = {"embedding": lambda t, axis: F.embedding(t[1], t[0]),
           "index_select": lambda t, axis: torch.index_select(t[0], axis, t[1]),
           "take_along": lambda t, axis: torch.take_along_dim(t[0], t[1], axis),
           "embedding_bag": lambda t, axis: F.embedding_bag(t[1], t[0], t[2], mode="sum", include_last_offset=True)}


def wrong_gather(op, t, axis, got, unit):
    """Moved bits are equal, and bags within what the op test allows of 16 slices."""
    if op != "embedding_bag":
        return int((got != GATHERS[op](t, axis).flatten()).sum())
    slices = t[0].double()[t[1]].view(len(t[2]) - 1, -1, t[0].shape[1])
    want, size = slices.sum(1).flatten(), slices.abs().sum(1).flatten()
    return int((~((got.double() - want).abs() <= 2.0 ** -24 * (slices.shape[1] + 4) * size + 1.01 * unit * want.abs())).sum())


def wrong_norm(op, t, got, unit):
    """The same of a norm: its outputs in order; s is rounded to FP32 as our sums are."""
    s = sum((t[i].float() for i in (4, 3) if i in t), t[0].float()).double()
    mean = 0 if "rms" in op else s.mean(-1, keepdim=True)
    rstd = ((s - mean).square().mean(-1, keepdim=True) + EPS).rsqrt()
    n, w = (s - mean) * rstd, t[1].double()
    b = t[2].double() if 2 in t else torch.zeros_like(w)
    z = n * w + b
    want = F.gelu(z) if "gelu" in op else z
    bound = 2.0 ** -24 * (8 * (n * w).abs() + 4 * (w * mean).abs() * rstd + 2 * b.abs() + 3 * w.abs())
    if "gelu" in op:
        bound = 1.2 * bound + 2.0 ** -22 * z.abs() + (2.0 ** -12 * want.abs() if unit > 2.0 ** -20 else 0)
    bound += 1.01 * unit * want.abs() + 1e-30
    count = int((~((got[0].double() - want).abs() <= bound)).sum())
    return count + (int((got[1] != s.to(got[1].dtype)).sum()) if len(got) > 1 else 0)


KINDS = {"FP32": torch.float32, "BF16": torch.bfloat16, "FP16": torch.float16, "FP64": torch.float64, "INT8": torch.int8, "INT32": torch.int32,
         "BOOL": torch.bool, "FP8E4M3": torch.float8_e4m3fn}
F = torch.nn.functional
# map's functions: of the inputs, as a client of PyTorch writes them; "cast" is made of the row.
MAP = {"gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "tanh": torch.tanh, "exp": torch.exp,
       "relu": torch.relu, "add": torch.add, "mul": torch.mul, "div": torch.div, "lt": torch.lt, "where": torch.where,
       "fma": lambda x, y, z: x * y + z, "cast": None}
EXACT = ("relu", "add", "mul", "div", "lt", "where", "fma", "cast")


def wrong_map(op, inputs, got, unit):
    """How many elements are further from float64 than map promises; a cast of random numbers is PyTorch's own but for FP8 and saturation."""
    if op == "cast":
        x = inputs[0]
        if got.dtype == torch.int8:
            return int((got != x.clamp(-128, 127).to(torch.int8)).sum())
        if got.dtype == torch.float8_e4m3fn:
            return int((got.float() != x.float().clamp(-448, 448).to(got.dtype).float()).sum())
        return int((got != x.to(got.dtype)).sum())
    want = MAP[op](*(x if x.dtype in (torch.bool, torch.int8) else x.double() for x in inputs))
    if not want.is_floating_point():
        return int((got != want).sum())
    narrow = unit > 2.0 ** -20
    bound = 1.01 * unit * want.abs() + (2.0 ** -25 if got.dtype == torch.float16 else 2.0 ** -126)  # half a step of the subnormal ones
    if op not in EXACT:
        bound += 2.0 ** -22 * torch.maximum(inputs[0].double().abs(), want.abs()) + (2.0 ** -12 * want.abs() if narrow else 0)
    elif narrow:  # computed in FP32 first
        bound += 2.0 ** -24 * want.abs()
    return int((~(((got.double() - want).abs() <= bound) | (got.double() == want))).sum())  # by 0: infinity


# Bins of histogram's rows, from -4 to 4.
HISTOGRAMS = {"histc_256": 256, "histc_10000": 10000}


def quantizer(axis, by=torch.div):
    """To INT8 by scales over an axis (None: all), as a client of PyTorch writes it."""
    def quantize(x):
        x = x.float()
        most = x.abs().amax() if axis is None else x.abs().amax(axis, keepdim=True)
        scale = torch.where(most == 0, 1.0, most / torch.full_like(most, 127))  # by a number PyTorch multiplies
        return by(x, scale).round().clamp(-128, 127).to(torch.int8), scale.flatten()
    return quantize


QUANTIZED = {"quantize_tensor": None, "quantize_row": -1, "quantize_column": 0}
QUANTIZERS = {name: quantizer(axis) for name, axis in QUANTIZED.items()}
# As ours: by the rounded reciprocal.
QUANTIZED_EXACTLY = {name: quantizer(axis, lambda x, scale: x * (1 / scale)) for name, axis in QUANTIZED.items()}


def wrong_histogram(x, bins, counts):
    """Bins whose count differs from that of a search among the edges in float64."""
    edges = torch.arange(bins, dtype=torch.float64, device=x.device) * (8 / bins) - 4
    values = x.double().flatten()
    values = values[(values >= -4) & (values <= 4)]
    want = torch.bincount(torch.searchsorted(edges, values, right=True) - 1, minlength=bins)
    return int((counts != want).sum())


def wrong_scan(op, x, axis, got, unit):
    """Elements further from float64 than the op test allows; maxima are exact."""
    if op == "cummax":
        return int((got != torch.cummax(x, axis).values).sum())
    x = x.double()
    want = SCANS[op](x, axis)
    bound = 1.01 * unit * want.abs()
    if op == "cumsum":
        bound += 8.1 * 2.0 ** -24 * torch.cumsum(x.abs_(), axis)
    else:
        bound += 4 * 2.0 ** -24 * want.abs().clamp(min=1) + 2.0 ** -21
    return int((~((got.double() - want).abs() <= bound)).sum())


def wrong(op, x, axes, got, unit):
    """How many elements of our result are further from float64 than the op tests allow."""
    if op in ("max", "argmax"):
        top = torch.amax(x, axes, keepdim=True)
        if op == "max":
            return int((got.reshape(top.shape) != top).sum())
        shape = [1] * x.dim()
        shape[axes[0]] = -1
        place = torch.arange(x.shape[axes[0]], device=x.device).view(shape)
        first = torch.where(x == top, place, x.shape[axes[0]]).amin(axes)
        return int((got.reshape(first.shape) != first).sum())
    if op in ("any", "all", "count_nonzero"):
        want = TORCH[op](x, axes)
        return int((got.reshape(want.shape) != want).sum())
    x = x.double()
    if op in ("var", "std"):
        want = torch.var(x, axes, correction=0)
        bound = 2.0 ** -21 * want
        if op == "std":
            want, bound = want.sqrt(), 2.0 ** -21 * want.sqrt()
    elif op == "l1norm":
        want = x.abs().sum(axes)
        bound = 6 * 2.0 ** -24 * want
    elif op.startswith("softmax"):
        x = causal(x) if op == "softmax_causal" else x
        distance = x - x.amax(axes, keepdim=True)
        want = distance.exp()
        want /= want.sum(axes, keepdim=True)
        distance.nan_to_num_(neginf=0)
        bound = (distance.abs_() + 8) * 2.0 ** -23 * want + 1e-37
    elif op == "logsumexp":
        want = torch.logsumexp(x, axes)
        bound = 4 * 2.0 ** -24 * want.abs().clamp(min=1) + 2.0 ** -22
    else:
        n = math.prod(x.shape[a] for a in axes) if op == "mean" else 1
        want = x.sum(axes) / n
        bound = 6 * 2.0 ** -24 * x.abs().sum(axes) / n
    bound += 1.01 * unit * want.abs()
    return int((~((got.reshape(want.shape).double() - want).abs() <= bound)).sum())


def memory(size, value):
    whole = torch.full((size + MEMORY_ALIGNMENT,), value, dtype=torch.uint8, device=DEVICE)
    return whole[-whole.data_ptr() % MEMORY_ALIGNMENT:][:size]


def capture(stream, call, sets, launches):
    """A graph of the calls; what each of them made lives until its set is used again."""
    graph, kept = torch.cuda.CUDAGraph(), [None] * sets
    with torch.cuda.stream(stream):
        graph.capture_begin()
        for i in range(launches):
            kept[i % sets] = call(i % sets)
        graph.capture_end()
    return graph, kept


def elapsed_us(stream, work):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream):
        begin.record()
        work()
        end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


class Case:
    """One row's tensors: each input padded as a lane pads it, each output poisoned."""

    def __init__(self, library, row, generator, stream, compiled=False):
        self.library, self.stream, self.op = library, stream, row.op.decode()
        function = NORMS.get(self.op) or QUANTIZERS.get(self.op)
        self.compiled = torch.compile(function, dynamic=False) if compiled and function else None
        self.work = library.plan(row)
        self.dtype, self.unit = DTYPES[row.dtype.decode()]
        shape = [int(d) for d in row.first.decode().split("x")]
        self.axes = [int(a) % len(shape) for a in (row.axis.decode() or "-1").split(",")]
        elements = math.prod(shape)
        self.take_memory()
        size = elements * self.dtype.itemsize
        self.places, self.out_places = library.places(self.work)
        at = self.places[0]
        self.inputs = [s[at:at + size].view(self.dtype).view(shape) for s in self.sources]
        for x in self.inputs:
            x.normal_(generator=generator)
        self.gathers = [self.gather_inputs(s, x, row, generator) for s, x in zip(self.sources, self.inputs)] if self.op in GATHERS else []
        self.norms = [self.norm_inputs(s, x, generator) for s, x in zip(self.sources, self.inputs)] if self.op in NORMS else []

    def take_memory(self, least=None):
        """Sets of both sides, at least so many."""
        set_bytes = self.work.in_bytes + self.work.out_bytes
        self.sets = max(least or SETS_LEAST, min(SETS_MOST, SETS_BYTES // set_bytes + 1))
        self.sources = [memory(self.work.in_bytes, 0) for _ in range(self.sets)]
        self.results = [memory(self.work.out_bytes, 255) for _ in range(self.sets)]

    def gather_inputs(self, source, x, row, generator):
        shape, inputs = [int(d) for d in row.second.decode().split("x")], {0: x}
        for i, at in self.places.items():
            if i > 0:
                elements = math.prod(shape) if i == 1 else math.prod(shape) // BAG_INDICES + 1
                inputs[i] = source[at:at + elements * 8].view(torch.int64)
        inputs[1].random_(0, x.shape[self.axes[0]], generator=generator)
        inputs[1] = inputs[1].view(shape)
        if 2 in inputs:
            inputs[2].copy_(torch.arange(len(inputs[2]), device=DEVICE) * (inputs[1].numel() // (len(inputs[2]) - 1)))
        return inputs

    def norm_inputs(self, source, x, generator):
        inputs = {0: x}
        for i, at in self.places.items():
            if i > 0:
                shape = x.shape if i == 3 else x.shape[-1:]
                inputs[i] = source[at:at + math.prod(shape) * self.dtype.itemsize].view(self.dtype).view(shape)
                inputs[i].normal_(generator=generator)
        return inputs

    def ours(self, i):
        self.library.launch(self.work, self.sources[i], self.results[i], self.stream)

    def theirs(self, i):
        if self.op in TOPKS:
            return torch.topk(self.inputs[i], TOPKS[self.op], self.axes[0])
        if self.op in SCANS:
            return SCANS[self.op](self.inputs[i], self.axes[0])
        if self.op in HISTOGRAMS:
            return torch.histc(self.inputs[i].float(), HISTOGRAMS[self.op], -4, 4)  # it has none of BF16
        if self.op in QUANTIZERS:
            return QUANTIZERS[self.op](self.inputs[i])
        if self.gathers:
            return GATHERS[self.op](self.gathers[i], self.axes[0])
        return NORMS[self.op](self.norms[i]) if self.norms else TORCH[self.op](self.inputs[i], self.axes)

    def theirs_compiled(self, i):
        return self.compiled(self.inputs[i] if self.op in QUANTIZERS else self.norms[i])

    def wrong(self):
        """Of the first and the last set, launched plainly."""
        count = 0
        for i in (0, self.sets - 1):
            self.ours(i)
            self.stream.synchronize()
            x = self.inputs[i]
            if self.gathers:
                got = self.results[i][:self.work.out_bytes - 256].view(self.dtype)
                got = got[:GATHERS[self.op](self.gathers[i], self.axes[0]).numel()]
                count += wrong_gather(self.op, self.gathers[i], self.axes[0], got, self.unit)
                continue
            if self.norms:
                size = x.numel() * self.dtype.itemsize
                got = [self.results[i][at:at + size].view(self.dtype).view(x.shape) for at in self.out_places.values()]
                count += wrong_norm(self.op, self.norms[i], got, self.unit)
                continue
            if self.op in TOPKS:
                count += self.wrong_topk(i)
                continue
            if self.op in HISTOGRAMS:
                bins = HISTOGRAMS[self.op]
                count += wrong_histogram(x, bins, self.results[i][:bins * 8].view(torch.int64))
                continue
            if self.op in QUANTIZERS:
                codes, scales = QUANTIZED_EXACTLY[self.op](x)
                at = self.out_places[1]
                count += int((self.results[i][:x.numel()].view(torch.int8).view(x.shape) != codes).sum())
                count += int((self.results[i][at:at + 4 * scales.numel()].view(torch.float32) != scales).sum())
                continue
            if self.op in SCANS:
                got = self.results[i][:x.numel() * self.dtype.itemsize].view(self.dtype).view(x.shape)
                count += wrong_scan(self.op, x, self.axes[0], got, self.unit)
                continue
            kind = OF_RESULTS.get(self.op, self.dtype)
            elements = x.numel() if self.op.startswith("softmax") else x.numel() // math.prod(x.shape[a] for a in self.axes)
            got = self.results[i][:elements * kind.itemsize].view(kind)
            count += wrong(self.op, x, self.axes, got, self.unit)
        return count

    compiled = None

    def wrong_topk(self, i):
        shape = list(self.inputs[i].shape)
        shape[self.axes[0]] = TOPKS[self.op]
        got = []
        for output, kind in ((0, self.dtype), (1, torch.int64)):
            at = self.out_places[output]
            got.append(self.results[i][at:at + math.prod(shape) * kind.itemsize].view(kind).view(shape))
        return wrong_topk(self.inputs[i], TOPKS[self.op], self.axes[0], *got)

    def times(self, side_us):
        """Medians of one launch: PyTorch's, ours, and the compiled one's where it is asked for."""
        sides = []
        for call in (self.theirs, self.ours) + ((self.theirs_compiled,) if self.compiled else ()):
            elapsed_us(self.stream, lambda: [call(i) for i in (0, 1)])  # loads and warms
            sides.append([call, elapsed_us(self.stream, lambda: [call(i) for i in range(4)]) / 4])
        slower = max(guess for _, guess in sides)
        launches = int(max(LAUNCHES_LEAST, min(LAUNCHES_MOST, REPLAY_US / slower)))
        replays = int(max(REPLAYS_LEAST, min(REPLAYS_MOST, side_us / (launches * slower))))
        torch.cuda.synchronize()
        graphs = [capture(self.stream, call, self.sets, launches) for call, _ in sides]
        times = [[] for _ in graphs]
        for graph, _ in graphs:
            elapsed_us(self.stream, graph.replay)
        for _ in range(replays):
            for (graph, _), taken in zip(graphs, times):
                taken.append(elapsed_us(self.stream, graph.replay) / launches)
        return [statistics.median(t) for t in times]


class MapCase(Case):
    """A row of map: inputs one behind the other, each on 256 bytes, as ks_spec_layout has them."""

    def __init__(self, library, row, generator, stream, compiles):
        self.library, self.stream, self.op = library, stream, row.op.decode()
        self.work = library.plan(row)
        shapes = [[int(d) for d in text.decode().split("x")] for text in (row.first, row.second, row.third) if text]
        self.dtype, self.unit = KINDS[row.dtype.decode()], DTYPES.get(row.dtype.decode(), (None, 2.0 ** -11))[1]
        self.kind = KINDS[row.to.decode()] if row.to else torch.bool if self.op == "lt" else self.dtype
        self.shape = torch.broadcast_shapes(*shapes)
        self.function = MAP[self.op] or (lambda x: x.to(self.kind))
        self.compiled = torch.compile(self.function, dynamic=False) if compiles else None
        self.take_memory()
        self.inputs = [self.place(source, shapes, generator) for source in self.sources]

    def place(self, source, shapes, generator):
        inputs, at = [], 0
        for i, shape in enumerate(shapes):
            kind = torch.bool if self.op == "where" and i == 0 else self.dtype
            size = math.prod(shape) * kind.itemsize
            x = source[at:at + size].view(kind).view(shape)
            if kind.is_floating_point:
                x.normal_(generator=generator)
            else:
                x.copy_(torch.randint(0, 2 if kind == torch.bool else 100, shape, device=DEVICE, generator=generator))
            inputs.append(x)
            at += -(-size // 256) * 256
        return inputs

    def theirs(self, i):
        return self.function(*self.inputs[i])

    def theirs_compiled(self, i):
        return self.compiled(*self.inputs[i])

    def wrong(self):
        count = 0
        for i in (0, self.sets - 1):
            self.ours(i)
            self.stream.synchronize()
            got = self.results[i][:math.prod(self.shape) * self.kind.itemsize].view(self.kind).view(self.shape)
            count += wrong_map(self.op, self.inputs[i], got, self.unit)
        return count


def windows(x, size, stride=(1,), pad=(0,)):
    """Rows of [taps.., channels] of [batch, spatial.., channels]."""
    axes = len(size)
    x = F.pad(x, [0, 0] + [p for n in reversed(pad * (axes if len(pad) == 1 else 1)) for p in (n, n)])
    for a, n in enumerate(size):
        x = x.unfold(1 + a, n, (stride * axes)[a])
    return x.permute(*range(axes + 1), *range(axes + 2, 2 * axes + 2), axes + 1).contiguous()


def below(x, lengths):
    """Whether a place of the last axis is below its row's length."""
    return torch.arange(x.shape[-1], device=x.device) < lengths.view(-1, *[1] * (x.dim() - 1))


def copied(x):
    """A copy, also of what lies as it should: contiguous() makes none then."""
    return x.clone(memory_format=torch.contiguous_format)


def sliced(x, starts=None, sizes=None, steps=None):
    if steps and min(steps) < 0:  # which PyTorch's slices cannot have
        return torch.flip(x, [a for a, n in enumerate(steps) if n < 0])
    return copied(x[tuple(slice(f, None if n is None else f + n, t) for f, n, t in
                          zip(starts or [0] * x.dim(), sizes or [None] * x.dim(), steps or [1] * x.dim()))])


# Of a row's inputs and its parameters by name, lists of integers: as a client of PyTorch writes it.
MOVES = {"transpose": lambda x, axes: copied(x.permute(axes)), "slice": sliced,
         "pad": lambda x, before, after: F.pad(x, [n for pair in zip(reversed(before), reversed(after)) for n in pair]),
         "concat": lambda x, y, axis: torch.cat((x, y), axis[0]), "window": windows,
         "softmax_lengths": lambda x, lengths, axis: torch.softmax(x.masked_fill(~below(x, lengths), -math.inf), axis[0]),
         "sum_segments": lambda x, offsets, axis: torch.segment_reduce(x, "sum", offsets=offsets, axis=axis[0], unsafe=True)}


class MovedCase(MapCase):
    """A row whose parameters are lists; beside it stands torch.compile, too, but for segments."""

    def __init__(self, library, row, generator, stream, compiles):
        self.library, self.stream, self.op, self.work = library, stream, row.op.decode(), library.plan(row)
        self.dtype, self.unit = KINDS[row.dtype.decode()], DTYPES.get(row.dtype.decode(), (None, 2.0 ** -11))[1]
        self.parameters = {name: [int(n) for n in text.split(",")] for name, text in
                           (word.split("=") for word in row.parameters.decode().split())}
        shapes = [[int(d) for d in text.decode().split("x")] for text in (row.first, row.second) if text]
        self.take_memory()
        places = sorted(library.places(self.work)[0].items())
        self.inputs = [[self.fill(source, at, shape, n, shapes, generator) for n, ((_, at), shape) in enumerate(zip(places, shapes))]
                       for source in self.sources]
        self.function = lambda *inputs: MOVES[self.op](*inputs, **self.parameters)
        self.compiled = torch.compile(self.function, dynamic=False) if compiles and self.op != "sum_segments" else None

    def fill(self, source, at, shape, n, shapes, generator):
        kind = self.dtype if n == 0 or self.op == "concat" else torch.int64
        x = source[at:at + math.prod(shape) * kind.itemsize].view(kind).view(shape)
        if n and self.op == "softmax_lengths":
            return x.random_(1, shapes[0][-1] + 1, generator=generator)
        if n and self.op == "sum_segments":
            ends = torch.randint(0, shapes[0][0] + 1, (shape[0] - 2,), device=DEVICE, generator=generator).sort().values
            x[0], x[-1] = 0, shapes[0][0]
            x[1:-1] = ends
            return x
        return x.normal_(generator=generator) if kind.is_floating_point else x.random_(generator=generator)

    def wrong(self):
        """Moved bits are equal; the others within what the op tests allow."""
        count = 0
        for i in (0, self.sets - 1):
            self.ours(i)
            self.stream.synchronize()
            x, *others = self.inputs[i]
            exact = self.op not in ("softmax_lengths", "sum_segments")
            want = self.function(x if exact else x.double(), *others).flatten()
            got = self.results[i][:want.numel() * self.dtype.itemsize].view(self.dtype)
            if exact:
                count += int((got != want).sum())
                continue
            if self.op == "softmax_lengths":
                distance = (x.double() - x.double().masked_fill(~below(x, others[0]), -math.inf).amax(-1, keepdim=True)).flatten()
                bound = (distance.abs() + 8) * 2.0 ** -23 * want + 1e-37
            else:
                bound = 6 * 2.0 ** -24 * self.function(x.double().abs(), *others).flatten()
            count += int((~((got.double() - want).abs() <= bound + 1.01 * self.unit * want.abs())).sum())
        return count


# k of search's rows, which their op names.
SEARCHES = {"search_10": 10, "search_128": 128}
SEARCH_BLOCK = 1 << 28  # elements of the matrix whose float64 is there at a time


class SearchCase(Case):
    """A row of search: queries, then the matrix, beside a product and its topk. A matrix beyond the caches by far is one set."""
    compiled = None

    def __init__(self, library, row, generator, stream):
        self.library, self.stream, self.k = library, stream, SEARCHES[row.op.decode()]
        self.work = library.plan(row)
        self.dtype = KINDS[row.dtype.decode()]
        self.queries, self.matrix = ([int(d) for d in text.decode().split("x")] for text in (row.first, row.second))
        self.take_memory(1)
        places, self.out_places = library.places(self.work)
        self.inputs = [[s[places[i]:places[i] + math.prod(shape) * self.dtype.itemsize].view(self.dtype).view(shape)
                        for i, shape in enumerate((self.queries, self.matrix))] for s in self.sources]
        for pair in self.inputs:
            for x in pair:
                x.normal_(generator=generator)

    def ours(self, i):
        self.library.launch(self.work, self.sources[i % self.sets], self.results[i % self.sets], self.stream)

    def theirs(self, i):
        queries, matrix = self.inputs[i % self.sets]
        return torch.topk(queries @ matrix.T, self.k, -1)

    def best(self, queries, matrix):
        """In float64, a block of rows at a time."""
        values, rows = None, max(self.k, SEARCH_BLOCK // matrix.shape[1])
        for first in range(0, matrix.shape[0], rows):
            block = queries.double() @ matrix[first:first + rows].double().T
            block = torch.topk(block, min(self.k, block.shape[1]), -1).values
            values = block if values is None else torch.topk(torch.cat((values, block), -1), self.k, -1).values
        return values

    def wrong(self):
        """Scores that are not those of their rows, or not as good as the best there are, by two bounds; rows that come twice."""
        queries, matrix = self.inputs[0]
        shape, count = [self.queries[0], self.k], 0
        self.ours(0)
        self.stream.synchronize()
        at, kinds = [self.out_places[i] for i in (0, 1)], (torch.float32, torch.int64)
        scores, rows = (self.results[0][a:a + math.prod(shape) * kind.itemsize].view(kind).view(shape) for a, kind in zip(at, kinds))
        if not bool(((rows >= 0) & (rows < matrix.shape[0])).all()):
            return rows.numel()
        depth = matrix.shape[1]
        for q in range(shape[0]):
            found = matrix[rows[q]].double()
            bound = (8 + 2 * math.sqrt(depth)) * 2.0 ** -24 * (found.abs() @ queries[q].double().abs())
            count += int((~((scores[q].double() - found @ queries[q].double()).abs() <= bound)).sum()) + shape[1] - len(rows[q].unique())
            best = self.best(queries[q:q + 1], matrix)[0] if q % 16 == 0 else scores[q].double()
            count += int((~((scores[q].double() - best).abs() <= 2 * bound)).sum())
        return count


ATTENTIONS = {"attention": False, "attn_causal": True}
ATTENTION_CHECKED = 64  # rows of a head that are compared with float64


class AttentionCase(Case):
    """A row of attention, beside scaled_dot_product_attention by cuDNN and by flash; of FP32 by its efficient kernel and by plain products."""
    def __init__(self, library, row, generator, stream):
        self.library, self.stream, self.causal = library, stream, ATTENTIONS[row.op.decode()]
        self.work, self.dtype = library.plan(row), KINDS[row.dtype.decode()]
        shapes = [[int(d) for d in text.decode().split("x")] for text in (row.first, row.second, row.third)]
        self.take_memory()
        places, self.out_places = library.places(self.work)
        self.shape = shapes[0][:3] + shapes[2][3:]
        self.inputs = [[s[places[i]:places[i] + math.prod(shape) * self.dtype.itemsize].view(self.dtype).view(shape).normal_(generator=generator)
                        for i, shape in enumerate(shapes)] for s in self.sources]
        self.backends = [b for b in ((SDPBackend.FLASH_ATTENTION, SDPBackend.MATH) if DEVICE == "cpu" else
                                     (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH) if self.dtype == torch.float32 else
                                     (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION)) if self.runs(b)] or [SDPBackend.MATH]
        self.compiled = len(self.backends) > 1

    def by(self, backend, i):
        query, key, value = self.inputs[i % self.sets]
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(query, key, value, is_causal=self.causal, enable_gqa=query.shape[1] != key.shape[1])

    def runs(self, backend):
        try:
            self.by(backend, 0)
        except RuntimeError:  # sizes that it refuses
            return False
        return True

    def ours(self, i):
        self.library.launch(self.work, self.sources[i % self.sets], self.results[i % self.sets], self.stream)

    def theirs(self, i):
        return self.by(self.backends[0], i)

    def theirs_compiled(self, i):
        return self.by(self.backends[1], i)

    def wrong(self):
        """Of some rows of each head, values further from float64 than the page's bound."""
        query, key, value = self.inputs[0]
        self.ours(0)
        self.stream.synchronize()
        at = self.out_places[0]
        got = self.results[0][at:at + math.prod(self.shape) * self.dtype.itemsize].view(self.dtype).view(self.shape)
        rows = torch.randperm(query.shape[2], device=DEVICE)[:ATTENTION_CHECKED]
        unit, count = {torch.float32: 2.0 ** -24, torch.float16: 2.0 ** -11, torch.bfloat16: 2.0 ** -8}[self.dtype], 0
        for b in range(query.shape[0]):
            for h in range(query.shape[1]):
                k, v = (x[b, h * x.shape[1] // query.shape[1]].double() for x in (key, value))
                q = query[b, h, rows].double()
                scores = q @ k.T / math.sqrt(q.shape[1])
                if self.causal:
                    scores = scores.masked_fill(torch.arange(k.shape[0], device=DEVICE) > rows[:, None], -math.inf)
                weights = torch.softmax(scores, -1)
                want, size = weights @ v, weights @ v.abs()
                sums = (q.abs() @ k.abs().T).amax(-1, keepdim=True) / math.sqrt(q.shape[1])
                grown = (8 + 4 * math.sqrt(q.shape[1]) + q.shape[1] / 8) * 2.0 ** -24 * (sums + 8) * 2
                count += int((~((got[b, h, rows].double() - want).abs() <= (2 * unit + grown + 4 * math.sqrt(k.shape[0]) * 2.0 ** -24) * size + unit * want.abs())).sum())
        return count


# 8 bits: whether INPUT1 lies along K, and whether sums may be FP8's own.
NARROWS = {"int8_mm": (False, False), "int8_mm_tb": (True, False), "fp8_mm": (False, False), "fp8_mm_tb": (True, False),
           "fp8_fast": (False, True), "fp8_fast_tb": (True, True)}
NARROW_CHECKED = 64  # rows that are compared with float64


class NarrowCase(Case):
    """A product of 8 bits beside _int_mm and _scaled_mm, which has INPUT1 along K whatever ours has, and use_fast_accum where ours is fast.
    Beside sizes that they refuse stands PyTorch's product of BF16."""
    compiled = None

    def __init__(self, library, row, generator, stream):
        self.library, self.stream = library, stream
        self.along, self.fast = NARROWS[row.op.decode()]
        self.work, self.dtype = library.plan(row), KINDS[row.dtype.decode()]
        (self.m, self.k), second = ([int(d) for d in text.decode().split("x")] for text in (row.first, row.second))
        self.n = second[0] if self.along else second[1]
        self.take_memory()
        self.places, self.out_places = library.places(self.work)
        self.inputs = [self.fill(source, generator) for source in self.sources]
        self.wide = None
        try:
            self.theirs(0)
        except RuntimeError:  # sizes that it refuses
            self.wide = [[x.to(torch.bfloat16) for x in case[:2]] for case in self.inputs]

    def fill(self, source, generator):
        tensors = []
        for i, (rows, columns) in enumerate(((self.m, self.k), (self.n, self.k) if self.along else (self.k, self.n))):
            x = source[self.places[i]:self.places[i] + rows * columns].view(self.dtype).view(rows, columns)
            if self.dtype == torch.int8:
                x.copy_(torch.randint(-128, 128, x.shape, device=DEVICE, generator=generator))
            else:
                x.copy_(torch.randn(x.shape, device=DEVICE, generator=generator))
            tensors.append(x)
        if self.along:
            tensors[1] = tensors[1].T
        scales = [source[self.places[i]:self.places[i] + 4].view(torch.float32) for i in (3, 4) if i in self.places]
        for scale, value in zip(scales, (0.5, 0.0625)):
            scale.fill_(value)
        across = tensors[1] if self.along or self.dtype == torch.int8 else tensors[1].T.contiguous().T
        return tensors + [across, *(s.reshape(()) for s in scales)]

    def ours(self, i):
        self.library.launch(self.work, self.sources[i % self.sets], self.results[i % self.sets], self.stream)

    def theirs(self, i):
        a, _, b, *scales = self.inputs[i % self.sets]
        if self.wide:
            return self.wide[i % self.sets][0] @ self.wide[i % self.sets][1]
        if self.dtype == torch.int8:
            return torch._int_mm(a, b)
        return torch._scaled_mm(a, b, scale_a=scales[0], scale_b=scales[1], out_dtype=torch.bfloat16, use_fast_accum=self.fast)

    def wrong(self):
        """Of some rows, values further from float64 than the op test allows; INT8's are exact. Leaves the errors' norms over the result's."""
        a, b = self.inputs[0][:2]
        self.ours(0)
        self.stream.synchronize()
        kind, at = torch.int32 if self.dtype == torch.int8 else torch.bfloat16, self.out_places[0]
        got = self.results[0][at:at + self.m * self.n * kind.itemsize].view(kind).view(self.m, self.n)
        rows = torch.randperm(self.m, device=DEVICE)[:NARROW_CHECKED]
        factor = 1 if self.dtype == torch.int8 else 0.5 * 0.0625
        x, y = a[rows].double(), b.double()
        want, size = x @ y * factor, x.abs() @ y.abs() * factor
        allowed = torch.zeros_like(want)
        if self.dtype != torch.int8:
            allowed = ((self.k / 8 + 8) * 2.0 ** -24 * 1.2 + (2.0 ** -8 if self.fast else 0)) * size + 1.01 * 2.0 ** -8 * want.abs()
        them = want if self.wide else self.theirs(0)[rows].double()
        self.errors = [float((z - want).norm() / want.norm()) for z in (got[rows].double(), them)]
        return int((~((got[rows].double() - want).abs() <= allowed)).sum())


# As quantizers: whose scales.
DEQUANTIZERS = {"deq_tensor": lambda x, scale: x.float() * scale, "deq_row": lambda x, scale: x.float() * scale[:, None],
                "deq_column": lambda x, scale: x.float() * scale}


class DequantizeCase(MapCase):
    """Codes of 8 bits times scales, as a client of PyTorch writes it."""

    def __init__(self, library, row, generator, stream, compiles):
        self.library, self.stream, self.op, self.work = library, stream, row.op.decode(), library.plan(row)
        self.dtype, self.kind = KINDS[row.dtype.decode()], KINDS[row.to.decode() or "FP32"]
        self.shape, scales = ([int(d) for d in text.decode().split("x")] for text in (row.first, row.second))
        self.take_memory()
        places = library.places(self.work)[0]
        self.inputs = []
        for source in self.sources:
            codes = source[places[0]:places[0] + math.prod(self.shape)].view(self.dtype).view(self.shape)
            codes.copy_(torch.randint(-100, 100, self.shape, device=DEVICE, generator=generator))
            scale = source[places[1]:places[1] + 4 * scales[0]].view(torch.float32).uniform_(0.001, 1, generator=generator)
            self.inputs.append((codes, scale))
        self.function = lambda codes, scale: DEQUANTIZERS[self.op](codes, scale).to(self.kind)
        self.compiled = torch.compile(self.function, dynamic=False) if compiles else None

    def wrong(self):
        """One product, rounded once more where the output is narrower."""
        self.ours(0)
        self.stream.synchronize()
        got = self.results[0][:math.prod(self.shape) * self.kind.itemsize].view(self.kind).view(self.shape)
        return int((got != self.function(*self.inputs[0])).sum())


NAMED = {**TORCH, **NORMS, **TOPKS, **GATHERS, **SCANS, **HISTOGRAMS, **QUANTIZERS, **DEQUANTIZERS, **SEARCHES, **ATTENTIONS, **MOVES, **NARROWS}


def maps(row):
    """Whether it is a function of map."""
    return " axis " not in row.label.decode() and row.op.decode() in MAP


def case_of(library, row, generator, stream, compiles=False, compiles_norms=False):
    op = row.op.decode()
    if op in SEARCHES or op in ATTENTIONS or op in NARROWS:
        kind = SearchCase if op in SEARCHES else AttentionCase if op in ATTENTIONS else NarrowCase
        return kind(library, row, generator, stream)
    if op in MOVES or op in DEQUANTIZERS or maps(row):
        kind = MovedCase if op in MOVES else DequantizeCase if op in DEQUANTIZERS else MapCase
        return kind(library, row, generator, stream, compiles)
    return Case(library, row, generator, stream, compiles_norms and op in NORMS)


def geometric(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios)))


def summary(rows, families, seconds):
    print()
    for op in dict.fromkeys(r["op"] for r in rows):
        ratios = [r["ratio"] for r in rows if r["op"] == op]
        print("geometric mean of %-9s %6.2f  (%d rows)" % (op, geometric(ratios), len(ratios)))
    for name in families:
        here = [r for r in rows if r["label"].startswith(name + " ")]
        large = [r["share"] for r in here if r["bytes"] >= LARGE_BYTES]
        if here:
            print("%s: ratio at least %.2f, geometric mean %.2f, %d of %d below %g%s" % (
                name, min(r["ratio"] for r in here), geometric([r["ratio"] for r in here]), sum(r["ratio"] < AS_FAST for r in here), len(here), AS_FAST,
                "; share of a copy, 64 MB or more: %.1f%% to %.1f%%" % (100 * min(large), 100 * max(large)) if large else ""))
    least = min(rows, key=lambda r: r["ratio"])
    print("geometric mean of all       %6.2f  (%d rows)" % (geometric([r["ratio"] for r in rows]), len(rows)))
    print("smallest ratio              %6.2f  %s" % (least["ratio"], least["label"]))
    large = sorted((r for r in rows if r["bytes"] >= LARGE_BYTES), key=lambda r: r["share"])
    for r in large[:5]:
        print("small share, 64 MB or more  %5.1f%%  %s" % (100 * r["share"], r["label"]))
    off = sum(r["wrong"] > 0 for r in rows)
    print("%d rows, %d with results further from float64 than allowed, %.0f s" % (len(rows), off, seconds))
    return 1 if off else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("library")
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_007)
    parser.add_argument("--json")
    parser.add_argument("--compiled", action="store_true", help="norms: torch.compile as well")
    parser.add_argument("--no-compile", action="store_true", help="map and moved bits: without torch.compile")
    parser.add_argument("--map", action="store_true", help="map's rows alone")
    parser.add_argument("--drawn", type=int, default=0)
    parser.add_argument("--operations", action="store_true", help="with --drawn: rows of each operation")
    parser.add_argument("--side-ms", type=float, default=SIDE_US / 1e3)
    arguments = parser.parse_args()
    drawn = (drawn_rows.OPERATIONS if arguments.operations else drawn_rows.REGIMES) if arguments.drawn else {}
    if not torch.cuda.is_available():
        print("compare_torch: no CUDA device: skipped")
        return 77
    begun = time.monotonic()
    library, stream = Library(arguments.library), torch.cuda.Stream()
    generator = torch.Generator(device=DEVICE).manual_seed(arguments.seed)
    print("%s, PyTorch %s; device copy %.0f GB/s (read + write); --seed %d" %
          (torch.cuda.get_device_name(), torch.__version__, library.copy_gbs, arguments.seed))
    print("%-42s %10s %8s %8s %10s %10s %7s  %s" % ("", "ours us", "GB/s", "of copy", "floor us", "PyTorch us", "ratio", "kernel"))
    rows = []
    for row in drawn_of(drawn, arguments.seed, arguments.drawn) if drawn else library.rows():
        label, op = row.label.decode(), row.op.decode()
        known = maps(row) or (not arguments.map and op in NAMED)
        if not known or not all(" " + text in " " + label for text in arguments.texts):
            continue
        case = case_of(library, row, generator, stream, not arguments.no_compile, arguments.compiled)
        torch.cuda.synchronize()
        bad = case.wrong()
        theirs, ours, *compiled = case.times(1e3 * arguments.side_ms)
        names = [b.name.split("_")[0].lower() for b in case.backends] if op in ATTENTIONS else ["eager", "compiled"]
        note = "  (%s %.2f, %s %.2f us)" % (names[0], theirs, names[1], *compiled) if compiled else ""
        theirs = min(theirs, *compiled) if compiled else theirs
        if op in NARROWS:
            note = "  (errors %.1e, theirs %.1e; %.0f T/s%s)" % (*case.errors, case.work.flops / ours / 1e6, "; it refuses, its BF16" if case.wide else "")
        gbs = case.work.bytes / ours / 1e3
        rows.append({"label": label, "op": op, "bytes": case.work.bytes, "us": ours, "share": gbs / library.copy_gbs,
                     "torch_us": theirs, "ratio": theirs / ours, "wrong": bad})
        print("%-42s %10.2f %8.0f %7.1f%% %10.2f %10.2f %7.2f  %s%s%s" %
              (label, ours, gbs, 100 * gbs / library.copy_gbs, case.work.bytes / library.copy_gbs / 1e3, theirs, theirs / ours,
               case.work.kernel.decode(), note, "  WRONG: %d elements" % bad if bad else ""), flush=True)
        del case
        torch.cuda.empty_cache()
    if not rows:
        print("no row has all of: %s" % " ".join(arguments.texts))
        return 1
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)
    return summary(rows, drawn, time.monotonic() - begun)


if __name__ == "__main__":
    sys.exit(main())
