#!/usr/bin/env python3
"""The installed Python client against a daemon, and against a server that misbehaves: python_package.py KERNSERVE KERNSERVE-CLIENT

  - every operation against NumPy in float64, optional inputs left out, two outputs, values that decide; datatypes; strided, big-endian, empty and scalar arrays, out= in place
  - errors by class, and what is sent again: 503 after Retry-After, a kept connection that ended; never a 4xx or 504
  - sixteen threads, a fork, a Unix socket, a token; the operations' parameters are the daemon's
  - the README's program and the command line
"""
import inspect
import io
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "http"))
import kernserve  # noqa: E402
from daemon import Daemon, check, wrongs  # noqa: E402

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

RANDOM = np.random.default_rng(int(os.environ.get("KS_SEED") or time.time_ns() % 1_000_000_007))


def raises(kind, call, **expected):
    try:
        call()
    except kind as error:
        check(type(error) is kind, "the class", type(error), "instead of", kind)
        for name, value in expected.items():
            check(getattr(error, name) == value, name, getattr(error, name), "instead of", value, ":", error)
        return error
    except Exception as error:  # noqa: BLE001
        check(False, kind.__name__, "expected, not", repr(error))
    else:
        check(False, kind.__name__, "expected, no exception")
    return None


class Lent:
    """Another library's array, which has DLPack and nothing else."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


def near(result, expected, dtype):
    bound = {2: 0.02, 4: 1e-5, 8: 1e-12}[np.dtype(dtype).itemsize] if np.dtype(dtype).kind not in "iu" else 0
    got = np.asarray(result).astype(np.float64)
    check(got.shape == expected.shape and np.all(np.abs(got - expected) <= bound * (1 + np.abs(expected))), "values of", dtype, got.shape, expected.shape)


def softmax64(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def norm64(x, kind):
    x = x.astype(np.float64)
    if kind == "layer":
        x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def optional_inputs(ks):
    """Operations whose inputs may be left out, and those of two outputs."""
    rows, columns = (int(each) for each in RANDOM.integers(2, 60, 2))
    x, residual = (RANDOM.standard_normal((rows, columns)).astype(np.float32) for _ in range(2))
    weight, pre_bias = (RANDOM.standard_normal(columns).astype(np.float32) for _ in range(2))
    near(ks.norm(x), norm64(x, "layer"), np.float32)
    near(ks.norm(x, weight, kind="rms", eps=np.float64(1e-5)), norm64(x, "rms") * weight, np.float32)
    # a gap: no weight and no bias
    whole = x.astype(np.float64) + residual + pre_bias
    near(ks.norm(x, residual=residual, pre_bias=pre_bias), norm64(whole, "layer"), np.float32)
    out, total = np.empty((rows, columns), np.float16), np.empty_like(x)
    pair = ks.norm(x, weight, residual=residual, pre_bias=pre_bias, sum_out=True, out_datatype="FP16", out=(out, total), priority=1, timeout=20)
    near(out, norm64(whole, "layer") * weight, np.float16)
    near(total, whole, np.float32)
    check(np.shares_memory(pair[0], out) and np.shares_memory(pair[1], total) and pair[1].timing.total > 0, "out= of a pair")
    raises(ValueError, lambda: ks.norm(x, sum_out=True, out=(out, np.empty((rows, columns + 1), np.float32))))
    raises(ValueError, lambda: ks.norm(x, sum_out=True, store="alone"))
    raises(ValueError, lambda: ks.topk(x, store=("a", "b"), out=(total, None)))
    raises(kernserve.BadRequest, lambda: ks.topk(x, columns + 1), code="parameter")

    k = int(RANDOM.integers(1, columns + 1))
    values, places = ks.topk(x, np.int64(k), largest=False, index_datatype="INT32")
    order = np.argsort(x, axis=-1, kind="stable")[:, :k]
    check(np.array_equal(values, np.take_along_axis(x, order, -1)) and np.array_equal(places, order) and places.dtype == np.int32, "topk")
    with ks.tensor(x) as kept:
        stored = ks.topk(kept, k, largest=False, axis=1, store=("first", "second"))
        check([each.name for each in stored] == ["first", "second"] and np.array_equal(ks.get("second"), order), "a pair that is stored")
        for each in stored:
            each.delete()
    matrix = RANDOM.integers(-3, 4, (50, columns)).astype(np.float32)
    scores, places = ks.search(matrix[:2], matrix, 3, metric="l2", mask=np.arange(50) % 3 > 0)
    distances = np.where(np.arange(50) % 3 > 0, ((matrix[:2, None] - matrix) ** 2).sum(-1), np.inf)
    order = np.argsort(distances, axis=-1, kind="stable")[:, :3]
    check(np.array_equal(places, order) and np.array_equal(scores, np.take_along_axis(distances, order, -1)), "search")
    query, key, value = (RANDOM.standard_normal((heads, 9, 16)).astype(np.float32) for heads in (4, 2, 2))
    levels = np.where(np.arange(9) < 7, np.einsum("hqd,hkd->hqk", query, np.repeat(key, 2, 0)) / 4, -np.inf)
    weights = np.exp(levels - levels.max(-1, keepdims=True))
    means, sums = ks.attention(query, key, value, lengths=np.array([7], np.int32), lse=True)
    check(np.allclose(means, weights / weights.sum(-1, keepdims=True) @ np.repeat(value, 2, 0), rtol=0, atol=1e-5), "attention")
    check(np.allclose(sums, np.log(weights.sum(-1)) + levels.max(-1), rtol=0, atol=1e-5), "attention's lse")
    codes, scales = ks.quantize(x, scale_per="row")
    check(codes.dtype == np.int8 and scales.shape == (rows,) and np.all(np.abs(codes * scales[:, None].astype(np.float64) - x) <= 0.5001 * scales[:, None]), "quantize")
    check(np.array_equal(ks.dequantize(codes, scales, scale_per="row"), codes * scales[:, None]), "dequantize")
    other, columns_scales = ks.quantize(x, scale_per="column")
    wide = codes.astype(np.float64).T @ other.astype(np.float64)
    check(np.array_equal(ks.matmul(codes, other, transpose_a=True), wide), "INT8 by INT8")
    ones_scales = np.ones(1, np.float32)
    near(ks.matmul(codes, other, None, ones_scales, columns_scales, transpose_a=True), wide * columns_scales, np.float32)
    near(ks.matmul(x, x, transpose_b=True, residual=x @ x.T), 2 * (x.astype(np.float64) @ x.T), np.float32)
    near(ks.scan(x), np.cumsum(x.astype(np.float64), -1), np.float32)
    whole = RANDOM.integers(-100, 100, (rows, columns), dtype=np.int8)
    sums = ks.scan(whole, axis=0, exclusive=True, reverse=True)
    check(sums.dtype == np.int64 and np.array_equal(sums, np.cumsum(whole[::-1], 0, dtype=np.int64)[::-1] - whole), "scan")
    check(np.array_equal(ks.scan(x, "max", axis=np.int64(0)), np.maximum.accumulate(x, 0)), "scan by max")
    counts, edges = ks.histogram(x, np.int64(10), min=-1, max=1.5, edges=True)
    check(np.array_equal(counts, np.histogram(x.astype(np.float64), 10, (-1, 1.5))[0]) and np.allclose(edges, np.linspace(-1, 1.5, 11), rtol=0, atol=1e-15), "histogram")
    check(np.array_equal(ks.histogram(whole, 50, axis=(0, 1)), np.bincount(whole[(whole >= 0) & (whole < 50)], minlength=50)), "bincount")
    check(ks.histogram(x, 7, min=0, max=1, axis=-1).shape == (rows, 7), "histograms of rows")
    ones = ks.map("where", x > 0, np.float32(1), np.zeros(columns, np.float32))
    check(ones.dtype == np.float32 and np.array_equal(ones, x > 0), "three operands, broadcast")
    near(ks.map("add", x, weight), x.astype(np.float64) + weight, np.float32)
    near(ks.map("clamp", x, a=-0.5, b=0.25, out_datatype="FP64"), np.clip(x, -0.5, 0.25).astype(np.float64), np.float32)
    whole = RANDOM.integers(0, 3, 50)
    check(np.array_equal(ks.map("cast", whole, out_datatype="BOOL"), whole != 0), "cast")


def by_index(ks):
    """gather against NumPy: slices, elements, bags with and without weights, a table that stays, an index out of bounds."""
    rows, columns = (int(each) for each in RANDOM.integers(2, 60, 2))
    table = RANDOM.standard_normal((rows, columns)).astype(np.float32)
    indices = RANDOM.integers(-rows, rows, (3, 5))
    check(np.array_equal(ks.gather(table, indices), table[indices]), "slices")
    check(np.array_equal(ks.gather(table, [columns, -1], axis=1, mode="clip"), table[:, [columns - 1, 0]]), "along an axis, clipped")
    order = np.argsort(table, axis=0).astype(np.int32)
    check(np.array_equal(ks.gather(table, order, axis=np.int64(0), kind="elements"), np.take_along_axis(table, order, 0)), "elements")
    whole = RANDOM.integers(0, 2, (rows, 3)) > 0
    check(np.array_equal(ks.gather(whole, indices[0], mode="wrap"), whole[indices[0]]), "a table of BOOL")
    bags, weights = np.array([0, 2, 2, 5]), RANDOM.standard_normal(5).astype(np.float32)
    slices = table.astype(np.float64)[indices[0]]
    near(ks.gather(table, indices[0], bags), np.array([slices[i:j].sum(0) for i, j in zip(bags, bags[1:])]), np.float32)
    scaled = slices * weights[:, None]
    near(ks.gather(table, indices[0], bags, weights), np.array([scaled[i:j].sum(0) for i, j in zip(bags, bags[1:])]), np.float32)
    with ks.tensor(table) as kept:
        out = np.empty((5, columns), np.float32)
        ks.gather(kept, indices[1], out=out)
        check(np.array_equal(out, table[indices[1]]), "a table that stays, out=")
        most = ks.gather(kept, indices[0], [0, 5], op="max", store="most")
        check(np.array_equal(most.numpy(), table[indices[0]].max(0)[None]), "a bag that is stored")
        most.delete()
    for bad in ([0, rows], np.resize([0, 1, -rows - 1], 5000)):
        error = raises(kernserve.BadRequest, lambda: ks.gather(table, bad), status=400, code="range")
        check(error and "at place %d:" % (1 if len(bad) == 2 else 2) in str(error), "the place", error)
    raises(kernserve.BadRequest, lambda: ks.gather(table, [0], weights=weights[:1]), code="name")
    raises(kernserve.BadRequest, lambda: ks.gather(table, [0.0]), code="datatype")


def by_layout(ks):
    """layout against NumPy: each operation, parts that stay, a list of NumPy's integers, a refusal."""
    x = RANDOM.standard_normal(tuple(int(each) for each in RANDOM.integers(2, 20, 3))).astype(np.float32)
    rows, columns, depth = x.shape
    check(np.array_equal(ks.layout("transpose", x), x.T) and np.array_equal(ks.layout("transpose", x, axes=np.array([1, 2, 0])), x.transpose(1, 2, 0)), "transpose")
    check(np.array_equal(ks.layout("slice", x, starts=[-1, 0, 0], steps=[-1, 2, 1], sizes=(-1, -1, 1)), x[::-1, ::2, :1]), "slice")
    check(np.array_equal(ks.layout("slice", x, axis=1, starts=[1], ends=[-1]), x[:, 1:-1]) and np.array_equal(ks.layout("pad", x, axis=-1, after=[2]), np.pad(x, ((0, 0), (0, 0), (0, 2)))), "of one axis")
    check(np.array_equal(ks.layout("pad", x, before=[1, 0, 1], after=[0, 0, 1], mode="reflect"), np.pad(x, ((1, 0), (0, 0), (1, 1)), "reflect")), "pad")
    check(np.array_equal(ks.layout("pad", x > 0, after=[0, 3, 0], value=1), np.pad(x > 0, ((0, 0), (0, 3), (0, 0)), constant_values=True)), "pad of BOOL")
    check(np.isneginf(ks.layout("pad", x, before=[0, 0, 1], value=-np.inf)[..., 0]).all(), "pad by infinity")
    check(ks.layout("reshape", x, new_shape=[0, -1]).shape == (rows, columns * depth) and ks.layout("reshape", x[:1, :1, :1], new_shape=()).shape == (), "reshape")
    check(np.array_equal(ks.layout("tile", x, repeats=[2, 1, 3]), np.tile(x, (2, 1, 3))) and np.array_equal(ks.layout("expand", x, new_shape=[2, 0, 0, 0])[1], x), "tile and expand")
    check(np.array_equal(ks.layout("split", np.concatenate([x, x + 1]), part=1), x + 1), "split")
    with ks.tensor(x) as kept:
        stored = ks.layout("concat", kept, x, kept, axis=-1, store="joined")
        check(np.array_equal(stored.numpy(), np.concatenate([x, x, x], -1)), "concat of parts that stay")
        stored.delete()
    raises(kernserve.BadRequest, lambda: ks.layout("slice", x, starts=[rows + 1, 0, 0]), status=400, code="range")


def by_window(ks):
    """window against NumPy's: of one axis and of two, channels last and first, padded, stored; a product of it is a convolution."""
    x = RANDOM.standard_normal((2, 9, 8, 3)).astype(np.float32)
    view = np.lib.stride_tricks.sliding_window_view
    rows = view(x[0, 0], 3, axis=0)[::2].transpose(0, 2, 1).reshape(3, 9)  # [windows, taps * C]
    check(np.array_equal(ks.window(x[0, 0], 3, stride=2), rows), "one axis")
    planes = view(x, (3, 2), axis=(1, 2)).transpose(0, 1, 2, 4, 5, 3).reshape(2, 7, 7, 18)
    check(np.array_equal(ks.window(x, (3, 2)), planes) and np.array_equal(ks.window(x.transpose(0, 3, 1, 2), [3, 2], layout="nchw"), planes), "two axes")
    padded = view(np.pad(x[0, 0], ((1, 1), (0, 0)), constant_values=-2), 3, axis=0).transpose(0, 2, 1).reshape(8, 9)
    check(np.array_equal(ks.window(x[0, 0], np.int64(3), pad=1, value=-2), padded) and np.array_equal(ks.window(x[0, 0], 3, auto_pad="same_upper", value=-2), padded), "padded")
    stored = ks.window(x, [3, 2], store="windows")
    check(np.array_equal(stored.numpy(), planes), "stored")
    stored.delete()
    raises(kernserve.BadRequest, lambda: ks.window(x, 10), status=400, code="shape")


def operations(ks):
    for dtype in [np.float16, np.float32, np.float64] + ([ml_dtypes.bfloat16] if ml_dtypes else []):
        a, b = (RANDOM.standard_normal((int(rows), 40)).astype(dtype) for rows in RANDOM.integers(1, 70, 2))
        near(ks.softmax(a, axis=0), softmax64(a.astype(np.float64), 0), dtype)
        selected = RANDOM.random(a.shape) < 0.5
        selected[:, 0] = True
        near(ks.softmax(a, selected), softmax64(np.where(selected, a.astype(np.float64), -np.inf), 1), dtype)
        near(ks.softmax(a, b[:1], causal="bottom_right", masked_rows="zero"),
             np.nan_to_num(softmax64(np.where(np.tri(*a.shape, a.shape[1] - a.shape[0], dtype=bool), a.astype(np.float64) + b[:1].astype(np.float64), -np.inf), 1)), dtype)
        ends = RANDOM.integers(1, 41, len(a))
        shorter = np.where(np.arange(40) < ends[:, None], a.astype(np.float64), -np.inf)
        near(ks.softmax(a, lengths=ends), softmax64(shorter, 1), dtype)
        near(ks.softmax(a, selected, ends.astype(np.int32)), softmax64(np.where(selected, shorter, -np.inf), 1), dtype)
        near(ks.reduce(a, "max", axis=1), a.astype(np.float64).max(1), dtype)
        cuts = np.array([0, 7, 7, 40])
        near(ks.reduce(a, segments=cuts), np.stack([a.astype(np.float64)[:, i:j].sum(1) for i, j in zip(cuts, cuts[1:])], 1), dtype)
        product = ks.matmul(a, b, transpose_b=True)
        near(product, a.astype(np.float64) @ b.astype(np.float64).T, dtype)
        check(product.dtype == np.dtype(dtype), "the datatype", product.dtype)
    whole = RANDOM.integers(-100, 100, (3, 5, 7))
    for name in ("int8", "int16", "int32", "int64"):
        near(ks.reduce(whole.astype(name), "sum", axis=(0, 2), keepdims=True), whole.sum((0, 2), keepdims=True).astype(np.float64), "int64")
    for ddof in (0, 1):
        near(ks.reduce(whole.astype(np.float64), "std", axis=1, ddof=ddof), whole.astype(np.float64).std(1, ddof=ddof), np.float64)
    for p in (0, 3, np.inf, -np.inf):
        near(ks.reduce(whole.astype(np.float64), "norm", axis=2, p=p), np.linalg.norm(whole.astype(np.float64), p, 2), np.float64)
    check(ks.reduce(whole > 0, "any", axis=2).tolist() == (whole > 0).any(2).tolist() and ks.reduce(whole > 0, "any", axis=2).dtype == bool, "any")
    check(ks.reduce(whole, "argmin", axis=2).dtype == np.int64 and ks.reduce(whole, axis=()).shape == (), "argmin, all axes")
    x = RANDOM.standard_normal((8, 32)).astype(np.float32)
    plain = np.asarray(ks.softmax(x))
    strided = np.repeat(x, 2, axis=1)[:, ::2]
    for other in (strided, np.asfortranarray(x), x.astype(">f4"), x.tolist()):
        near(ks.softmax(other), plain.astype(np.float64), np.float32)
    near(ks.softmax(Lent(x)), plain.astype(np.float64), np.float32)
    check(ks.softmax(np.zeros((0, 4), np.float32)).shape == (0, 4), "an empty array")
    bits = (x.view(np.uint32) >> 16).astype(np.uint16)
    as_bits = ks.softmax(bits, datatype="BF16")
    near(np.asarray(as_bits).view(np.uint16).astype(np.uint32).__lshift__(16).view(np.float32), plain.astype(np.float64), np.float16)

    out = np.empty_like(x)
    result = ks.softmax(x, out=out)
    check(np.shares_memory(result, out) and np.array_equal(out, plain), "out= is received in place")
    for wrong in (np.empty((8, 31), np.float32), np.empty((8, 32), np.float64), np.empty((32, 8), np.float32).T):
        raises(ValueError, lambda wrong=wrong: ks.softmax(x, out=wrong))
    read_only = np.empty_like(x)
    read_only.flags.writeable = False
    raises(ValueError, lambda: ks.softmax(x, out=read_only))
    check(np.array_equal(ks.softmax(x), plain), "the connection serves after a fault of out=")

    timing = result.timing
    check(timing.total > 0 and timing.total >= timing.compute and timing.h2d is None, "the timing", timing)
    check(result.graph == "none" and re.fullmatch("[0-9a-f]{16}", result.request_id), "graph, request id", result.graph, result.request_id)
    check(ks.softmax(x, headers={"X-Request-Id": "mine-1"}).request_id == "mine-1", "a header of the caller's")
    check(result[0].timing is None, "a part of a result has no timing")
    named = ks.infer("matmul", INPUT0=x, INPUT1=x, parameters={"transpose_b": True}, outputs=["OUTPUT0"])
    check(np.array_equal(named["OUTPUT0"], ks.matmul(x, x, transpose_b=True)) and named["OUTPUT0"].timing.total > 0, "infer by names")
    check("softmax_fp16" in ks.models() and ks.ready() and ks.metadata()["name"] == "kernserve", "models, ready, metadata")
    check(ks.plan("softmax", (8, 32))["model_name"] == "softmax" and ks.statistics("softmax")[0]["inference_count"] > 10, "plan, statistics")


def errors(ks):
    x = np.zeros((2, 3), np.float32)
    error = raises(kernserve.BadRequest, lambda: ks.softmax(x, axis=7), status=400, code="axis")
    check(error and "axis 7" in str(error) and error.request_id, "the daemon's sentence and id", error)
    raises(kernserve.BadRequest, lambda: ks.matmul(x, x), code="shape")
    raises(kernserve.NotFound, lambda: ks.infer("nothing", INPUT0=x), status=404, code="model")
    raises(kernserve.BadRequest, lambda: ks.softmax(np.float32(1)), status=400)
    raises(TypeError, lambda: ks.softmax(np.array([{}], dtype=object)))
    raises(TypeError, lambda: ks.softmax(x, datatype="BF16"))
    raises(ValueError, lambda: ks.softmax(x, headers={"A": "b\r\nC: d"}))
    raises(ValueError, lambda: kernserve.Client("ftp://host"))
    raises(kernserve.Unreachable, lambda: kernserve.Client("http://127.0.0.1:1").ready())


class Script:
    """A server that plays answers, one for each request, and remembers what came. None closes without an answer."""

    def __init__(self, *answers):
        self.answers, self.requests, self.connections = list(answers), [], 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while self.answers:
            with self.listener.accept()[0] as connection, connection.makefile("rb") as file:
                self.connections += 1
                while self.answers:
                    head = b""
                    while (line := file.readline()) not in (b"", b"\r\n"):
                        head += line
                    if not line:
                        break
                    file.read(int(re.search(rb"Content-Length: (\d+)", head).group(1)))
                    self.requests.append(time.monotonic())
                    answer = self.answers.pop(0)
                    if answer is None:
                        break
                    connection.sendall(answer)
                    if b"Connection: close" in answer:
                        break


GOOD = (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nkernserve-shape: 2\r\nKERNSERVE-DATATYPE:  FP32 \r\nContent-Length: 8\r\n\r\n" +
        np.float32([0.5, 0.5]).tobytes())


def fault(status, retry=b""):
    return b"HTTP/1.1 %d No\r\nKernserve-Error: code\r\n%sContent-Length: 13\r\n\r\n{\"error\":\"e\"}" % (status, retry)


def sent_again():
    x = np.zeros(2, np.float32)
    later = b"Retry-After: 1\r\n"
    server = Script(fault(503, later), GOOD)
    check(kernserve.Client(server.url).softmax(x).tolist() == [0.5, 0.5], "503, then good")
    check(1 <= server.requests[1] - server.requests[0] < 2, "Retry-After is obeyed", server.requests)
    server = Script(*[fault(503, later)] * 3)
    raises(kernserve.Busy, lambda: kernserve.Client(server.url, retries=2).softmax(x), status=503, code="code")
    check(len(server.requests) == 3, "two retries", len(server.requests))
    server = Script(fault(503, b"Retry-After: 9\r\n"), GOOD)
    begun = time.monotonic()
    raises(kernserve.Busy, lambda: kernserve.Client(server.url).softmax(x, timeout=3), status=503)
    check(time.monotonic() - begun < 1, "a retry that would be too late is not waited for")
    for status, kind in ((400, kernserve.BadRequest), (401, kernserve.Forbidden), (404, kernserve.NotFound), (413, kernserve.BadRequest),
                         (500, kernserve.Error), (504, kernserve.Deadline)):
        server = Script(fault(status, later), GOOD)
        raises(kind, lambda: kernserve.Client(server.url).softmax(x), status=status, code="code")
        check(len(server.requests) == 1, status, "is not sent again")

    server = Script(GOOD, None, GOOD, GOOD)
    client = kernserve.Client(server.url)
    check([client.softmax(x).tolist() for _ in range(3)] == [[0.5, 0.5]] * 3 and len(server.requests) == 4, "a kept connection that ended")
    server = Script(GOOD, GOOD, GOOD)
    client = kernserve.Client(server.url)
    client.softmax(x)
    client.softmax(x)
    check(server.connections == 1, "a connection is kept", server.connections)
    client._pool.waiting[0].used -= 61
    client.softmax(x)
    check(server.connections == 2, "a connection that was idle for 60 s is not used", server.connections)
    raises(kernserve.Unreachable, lambda: kernserve.Client(Script(None).url).softmax(x))
    raises(kernserve.Deadline, lambda: kernserve.Client(Script(GOOD[:-3], GOOD).url, timeout=0.3).softmax(x), status=None)
    cut = GOOD[:-3].replace(b"Content", b"Connection: close\r\nContent", 1)
    raises(kernserve.Unreachable, lambda: kernserve.Client(Script(cut).url).softmax(x))
    raises(kernserve.Unreachable, lambda: kernserve.Client(Script(GOOD.replace(b"shape: 2", b"shape: 3")).url).softmax(x))
    server = Script(b"HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 13\r\n\r\n{\"error\":\"e\"}")
    raises(kernserve.BadRequest, lambda: kernserve.Client(server.url).softmax(x), status=413)


def together(ks):
    arrays = [RANDOM.standard_normal((3, 50 + i)).astype(np.float32) for i in range(16)]
    expected, wrong = [np.asarray(ks.softmax(x)) for x in arrays], []

    def work(index):
        for _ in range(100):
            if not np.array_equal(ks.softmax(arrays[index]), expected[index]):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    children = []
    for _ in range(5):
        children.append(os.fork())
        if children[-1] == 0:
            os._exit(0 if all(np.array_equal(ks.softmax(x), y) for x, y in zip(arrays, expected)) else 1)
    for thread in threads:
        thread.join()
    check([os.waitpid(child, 0)[1] for child in children] == [0] * 5, "forked processes")
    check(not wrong, "threads got others' results", wrong[:5])


def parameters(daemon):
    """The operations, and their keywords, are those that the daemon's own document names."""
    listed = {}
    for row in json.loads(daemon.get("/openapi.json").body)["paths"]["/v2/models/{model}/raw"]["post"]["parameters"]:
        for name in re.findall(r"(\w+) \(preset ", row.get("description", "")):
            listed.setdefault(name, set()).add(row["name"])
    check(len(listed) >= 3, "operations of the document", listed)
    for name, wanted in listed.items():
        call = getattr(kernserve.Client, name, None)
        check(call is not None, "the client lacks the operation", name)
        inputs = {"a", "b", "bias", "scale_a", "scale_b", "residual"} if name == "matmul" else {"query", "key", "value", "mask", "lengths"} if name == "attention" else {"x", "scale"} if name.endswith("quantize") else {"x", "y", "z", "mask", "lengths", "segments", "weight", "bias", "residual", "pre_bias", "table", "indices", "offsets", "weights", "more", "queries", "matrix"}
        keywords = set(inspect.signature(call).parameters) - {"self", "options"} - inputs if call else set()
        check(keywords == wanted, name, keywords, wanted)


def models(ks):
    """One's own: a definition, one with its weights, a file; and what they answer."""
    definition = {"format": 1, "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 5]}], "initializers": ["w", {"name": "b", "file": "w.safetensors", "key": "bias"}],
                  "nodes": [{"name": "up", "op": "matmul", "inputs": ["x", "w", "b"], "outputs": ["h"]},
                            {"name": "best", "op": "softmax", "inputs": ["h"], "outputs": ["p"]}], "outputs": [{"name": "p"}]}
    x = RANDOM.standard_normal((3, 5)).astype(np.float32)
    weights = {"w": np.asfortranarray(RANDOM.standard_normal((5, 4)).astype(np.float32)), "bias": RANDOM.standard_normal(4).astype(np.float32), "other": np.zeros((2, 0), np.int8)}
    wanted = softmax64(x.astype(np.float64) @ weights["w"].astype(np.float64) + weights["bias"], 1)
    entry = ks.load("own", definition, weights)
    check(entry["state"] == "READY" and entry["nodes"] == 2 and len(entry["warnings"]) == 1, entry)
    near(ks.infer("own", x=x)["p"], wanted, np.float32)
    check(ks.definition("own") == definition and "own" in ks.models(), "its definition")
    raises(kernserve.Precondition, lambda: ks.load("own", definition, weights, only_new=True), status=412)
    raises(kernserve.BadRequest, lambda: ks.load("other", definition), status=400, code="definition")
    raises(kernserve.BadRequest, lambda: ks.load("other", definition, {"w": weights["w"]}), status=400, code="name")
    check(ks.load("own", dict(definition, description="another"), weights, if_match=entry["etag"])["etag"] != entry["etag"], "another")
    ks.unload("own")
    raises(kernserve.NotFound, lambda: ks.infer("own", x=x), status=404)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.json")
        with open(path, "w") as file:
            json.dump(dict(definition, initializers=[{"name": name, "datatype": "FP32", "shape": list(a.shape), "data": a.ravel().tolist()}
                                                     for name, a in (("w", weights["w"]), ("b", weights["bias"]))]), file)
        ks.load("m", path)
        near(ks.infer("m", x=x)["p"], wanted, np.float32)
        ks.unload("m")
        raises(ValueError, lambda: ks.load("m", folder + "/m.safetensors", weights))


def write_model(path):
    """A model of one file, by hand: y = 2 x."""
    definition = {"format": 1, "inputs": [{"name": "x", "datatype": "FP32", "shape": ["n"]}], "initializers": ["k"],
                  "nodes": [{"name": "twice", "op": "map", "inputs": ["x", "k"], "outputs": ["y"], "parameters": {"op": "mul"}}], "outputs": [{"name": "y"}]}
    head = json.dumps({"__metadata__": {"kernserve": json.dumps(definition)}, "k": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    with open(path, "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head + np.float32(2).tobytes())


def readme_and_command(daemon, command):
    url = "http://127.0.0.1:%d" % daemon.port

    def program(path, expected):
        """The README's blocks in Python that use the package, as one program."""
        with open(os.path.join(HERE, "..", "..", path)) as file:
            blocks = re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S)
        text = "".join(block for block in blocks if "kernserve" in block).replace("http://127.0.0.1:8000", url).replace("http://localhost:8000", url)
        done = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        check(done.returncode == 0 and re.search(expected, done.stdout, re.S), path, done.stdout)

    program("clients/python/README.md", r"\(64, 64\).*\(64, 256\) \(64, 256\) float32.*\['bert.w'\] True.*\(64, 256\).*\(64, 256\) matmul.*axis 7 is outside")
    program("README.md", r"0\.0320.* 0\.6439.*e-0")

    def run(*words, data=None):
        return subprocess.run([command, "--url", url, *words], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)

    x = RANDOM.standard_normal((3, 4)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path, result = os.path.join(folder, "x.npy"), os.path.join(folder, "y.npy")
        np.save(path, x)
        check(run("softmax", path, "-o", result, "--axis", "0").returncode == 0, "softmax")
        near(np.load(result), softmax64(x.astype(np.float64), 0), np.float32)
        np.save(os.path.join(folder, "ends.npy"), np.array([4, 2, 1]))
        check(run("softmax", path, "--lengths", os.path.join(folder, "ends.npy"), "-o", result).returncode == 0, "lengths")
        check(np.load(result)[2].tolist() == [1, 0, 0, 0], "a row of one", np.load(result))
        np.save(os.path.join(folder, "cuts.npy"), np.array([0, 1, 4]))
        check(run("reduce", path, "--segments", os.path.join(folder, "cuts.npy"), "--op", "max", "-o", result).returncode == 0, "segments")
        check(np.array_equal(np.load(result), np.stack([x[:, 0], x[:, 1:].max(1)], 1)), "its values")
        with open(path, "rb") as file:
            done = run("reduce", "-", "--op", "max", "--axis", "all", data=file.read())
        check(np.load(io.BytesIO(done.stdout)) == x.max(), "by standard input and output")
        check(run("matmul", path, path, "--transpose-b", "-o", result).returncode == 0 and np.load(result).shape == (3, 3), "matmul")
        check(run("infer", "softmax", "INPUT0=" + path, "-p", "axis=0", "-o", result).returncode == 0, "infer")
        near(np.load(result), softmax64(x.astype(np.float64), 0), np.float32)
        write_model(os.path.join(folder, "twice.safetensors"))
        done = run("load", os.path.join(folder, "twice.safetensors"))
        check(done.returncode == 0 and json.loads(done.stdout)["name"] == "twice", "load", done)
        np.save(path, x.ravel())
        check(run("infer", "twice", "x=" + path, "-o", result).returncode == 0 and (np.load(result) == 2 * x.ravel()).all(), "a model of one's own")
        np.save(path, x)
        for code, *words in ((0, "unload", "twice"), (65, "unload", "twice"), (66, "load", folder + "/none.safetensors"), (64, "load", path, "--name", "n"), (0, "models"), (0, "health"), (0, "plan", "softmax", "3,4"), (0, "top", "--count", "1", "--interval", "0.1"), (64, "softmx"),
                             (64, "softmax"), (65, "softmax", path, "--axis", "9"), (66, "softmax", folder + "/none"), (74, "softmax", path, "-o", folder),
                             (69, "--url", "http://127.0.0.1:1", "models")):
            done = run(*words)
            check(done.returncode == code, words, "exit code", done.returncode, "instead of", code, done.stderr[-300:])
            check(b"Traceback" not in done.stderr, words, done.stderr)


def main():
    kernserve_path, command = sys.argv[1:]
    sent_again()
    with tempfile.TemporaryDirectory() as folder:
        path, token = os.path.join(folder, "socket"), "a-secret-of-this-test"
        with open(os.path.join(folder, "tokens"), "w") as file:
            file.write(token + "\n")
        os.chmod(file.name, 0o600)
        with Daemon(kernserve_path, "--backend", "cpu", "--pinned-bytes", "16M", "--listen", "unix:" + path) as daemon:
            ks = kernserve.Client("127.0.0.1:%d" % daemon.port)
            for part in (operations, optional_inputs, by_index, by_layout, by_window, errors, together, models):
                part(ks)
            parameters(daemon)
            readme_and_command(daemon, command)
            with kernserve.Client("unix:" + path) as local:
                check(local.softmax(np.zeros(4, np.float32)).tolist() == [0.25] * 4, "a Unix socket")
            check(daemon.stop() == 0, "the daemon's end")
        with Daemon(kernserve_path, "--backend", "cpu", "--pinned-bytes", "16M", "--token-file", os.path.join(folder, "tokens")) as daemon:
            url = "http://127.0.0.1:%d" % daemon.port
            raises(kernserve.Forbidden, lambda: kernserve.Client(url, token="wrong").softmax(np.zeros(4, np.float32)), status=401, code="auth")
            check(kernserve.Client(url, token=token).softmax(np.zeros(4, np.float32)).shape == (4,), "a token")
            check(daemon.stop() == 0, "the daemon's end")
    sys.exit(wrongs() > 0)


main()
