"""Calls to one daemon."""

from __future__ import annotations

import json
import os
import random
import ssl
import time
from typing import Any, Callable, Dict, List, Literal, Mapping, Optional, Sequence, Tuple, TypeVar, Union, overload
from urllib.parse import quote

import numpy as np

from ._array import Array, array_of
from ._datatypes import TO_NUMPY, as_tensor, bytes_of
from ._errors import Error, NotFound, Unreachable, error_of
from ._model import Definition, body_of
from ._tensor import FILE_TYPE, Tensor, etag_of, parts_of_file
from ._wire import Address, Broken, Bytes, Place, Pool

Fields = Dict[bytes, bytes]
Axes = Union[int, Sequence[int], None]
Integers = Optional[Sequence[int]]
Numbers = Union[int, Integers]
Named = Union[str, Tensor]
Result = TypeVar("Result")

HEADS_MAX = 1024  # request heads that are kept; a program sends the same few
LIST_MAX = 1000  # tensors of one page of a list


class Client:
    """A kernserve daemon. Thread-safe: each call under way has a connection of its own, and up to `connections` are kept.

    url        "http://HOST:PORT", "https://HOST:PORT" or "unix:/PATH"; None: $KERNSERVE_URL, else http://127.0.0.1:8000
    token      bearer token; None: $KERNSERVE_TOKEN, else none
    timeout    seconds of a whole call with its retries, where the call names none
    retries    of a 503, each after the daemon's Retry-After; nothing else is sent again, but for a kept connection that had ended
    context    for https: whom to trust; None: the system's certificates

    Arrays are sent from where they lie (copied only if strided or of foreign byte order) and received where they stay; `out=` receives
    in place. A call raises a subclass of kernserve.Error.
    """

    def __init__(self, url: Optional[str] = None, *, token: Optional[str] = None, timeout: float = 30.0, connections: int = 16,
                 retries: int = 3, context: Optional[ssl.SSLContext] = None) -> None:
        self.timeout, self.retries = timeout, retries
        token = token if token is not None else os.environ.get("KERNSERVE_TOKEN")
        self._address = Address(url or os.environ.get("KERNSERVE_URL") or "http://127.0.0.1:8000", context)
        self._pool = Pool(self._address, connections, timeout)
        self._fields = "Host: %s\r\n" % self._address.host + ("Authorization: Bearer %s\r\n" % token if token else "")
        self._heads: Dict[Any, bytes] = {}

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that no call uses."""
        self._pool.close()

    # --- operations -------------------------------------------------------------------------------------------------------

    @overload
    def softmax(self, x: Any, mask: Any = None, lengths: Any = None, *, store: str, **options: Any) -> Tensor: ...

    @overload
    def softmax(self, x: Any, mask: Any = None, lengths: Any = None, *, axis: Optional[int] = None, log: Optional[bool] = None, scale: Optional[float] = None,
                causal: Optional[str] = None, masked_rows: Optional[str] = None, out_datatype: Optional[str] = None,
                store: None = None, **options: Any) -> Array: ...

    def softmax(self, x: Any, mask: Any = None, lengths: Any = None, *, axis: Optional[int] = None, log: Optional[bool] = None, scale: Optional[float] = None,
                causal: Optional[str] = None, masked_rows: Optional[str] = None, out_datatype: Optional[str] = None,
                **options: Any) -> Any:
        """Softmax of scale * x + mask along `axis` (-1), or its logarithm; a mask of bool selects instead. Its shape broadcasts.

        causal: none top_left bottom_right. lengths: int32 or int64 for x's first axes in front of `axis`; of each row the places below
        its length take part. masked_rows: what rows of nothing are, nan or zero.

        An input of any operation is an array or a Tensor. All operations take these options: out (an array that receives the result),
        store (a name: the result stays with the daemon, and is a Tensor; ttl: for so many seconds after its last use), datatype ("BF16" for
        uint16 without ml_dtypes), priority (1 is first), timeout (seconds; the daemon drops what it cannot begin by then), headers (a
        mapping)."""
        parameters = {"axis": axis, "log": log, "scale": scale, "causal": causal, "masked_rows": masked_rows, "out_datatype": out_datatype}
        return self._operate("softmax", (x, mask, lengths), parameters, **options)

    @overload
    def reduce(self, x: Any, op: Optional[str] = None, segments: Any = None, *, store: str, **options: Any) -> Tensor: ...

    @overload
    def reduce(self, x: Any, op: Optional[str] = None, segments: Any = None, *, axis: Axes = None, keepdims: Optional[bool] = None, ddof: Optional[float] = None,
               p: Optional[float] = None, store: None = None, **options: Any) -> Array: ...

    def reduce(self, x: Any, op: Optional[str] = None, segments: Any = None, *, axis: Axes = None, keepdims: Optional[bool] = None, ddof: Optional[float] = None,
               p: Optional[float] = None, **options: Any) -> Any:
        """op (sum) of x along `axis`, an integer or several; None is the daemon's preset, () all axes.

        op: sum mean max min prod argmax argmin l2norm logsumexp var std sumsq l1norm logsum norm any all count_nonzero. ddof: of var and
        std, 0 as in NumPy. p: of norm, 2; 0 or more, or an infinity. segments: int32 or int64 offsets along the one axis, 0 to its extent,
        which becomes as long as there are segments."""
        return self._operate("reduce", (x, segments), {"op": op, "axis": _axes(axis), "keepdims": keepdims, "ddof": ddof, "p": p}, **options)

    @overload
    def matmul(self, a: Any, b: Any, bias: Any = None, scale_a: Any = None, scale_b: Any = None, residual: Any = None, *, store: str, **options: Any) -> Tensor: ...

    @overload
    def matmul(self, a: Any, b: Any, bias: Any = None, scale_a: Any = None, scale_b: Any = None, residual: Any = None, *, transpose_a: Optional[bool] = None,
               transpose_b: Optional[bool] = None, alpha: Optional[float] = None, activation: Optional[str] = None, precision: Optional[str] = None,
               out_datatype: Optional[str] = None, store: None = None, **options: Any) -> Array: ...

    def matmul(self, a: Any, b: Any, bias: Any = None, scale_a: Any = None, scale_b: Any = None, residual: Any = None, *, transpose_a: Optional[bool] = None,
               transpose_b: Optional[bool] = None, alpha: Optional[float] = None, activation: Optional[str] = None, precision: Optional[str] = None,
               out_datatype: Optional[str] = None, **options: Any) -> Any:
        """activation(alpha * a @ b + bias) + residual, of the result's shape; leading dimensions of a and b are equal or broadcast.

        activation: none relu gelu silu. precision: exact, or tf32 for FP32 on the tensor cores. Of int8 and FP8: scale_a and scale_b as
        quantize gives them by row and by column, out_datatype FP32 FP16 BF16, and INT32 of int8 alone."""
        parameters = {"transpose_a": transpose_a, "transpose_b": transpose_b, "alpha": alpha, "activation": activation,
                      "precision": precision, "out_datatype": out_datatype}
        return self._operate("matmul", (a, b, bias, scale_a, scale_b, residual), parameters, **options)

    @overload
    def quantize(self, x: Any, scale: Any = None, *, store: Tuple[str, str], **options: Any) -> Tuple[Tensor, Tensor]: ...

    @overload
    def quantize(self, x: Any, scale: Any = None, *, scale_per: Optional[str] = None, out_datatype: Optional[str] = None, store: None = None,
                 **options: Any) -> Tuple[Array, Array]: ...

    def quantize(self, x: Any, scale: Any = None, *, scale_per: Optional[str] = None, out_datatype: Optional[str] = None, **options: Any) -> Any:
        """Codes of 8 bits, and the scales that turn them back: given, or of the largest magnitude of each. Options as of norm's pair.

        scale_per: tensor row column. out_datatype: INT8 FP8E4M3 FP8E5M2."""
        return self._operate("quantize", (x, scale), {"scale_per": scale_per, "out_datatype": out_datatype}, 2, **options)

    @overload
    def dequantize(self, x: Any, scale: Any, *, store: str, **options: Any) -> Tensor: ...

    @overload
    def dequantize(self, x: Any, scale: Any, *, scale_per: Optional[str] = None, out_datatype: Optional[str] = None, store: None = None,
                   **options: Any) -> Array: ...

    def dequantize(self, x: Any, scale: Any, *, scale_per: Optional[str] = None, out_datatype: Optional[str] = None, **options: Any) -> Any:
        """Codes of 8 bits times their scales. scale_per: tensor row column. out_datatype: FP32 FP16 BF16."""
        return self._operate("dequantize", (x, scale), {"scale_per": scale_per, "out_datatype": out_datatype}, **options)

    @overload
    def norm(self, x: Any, weight: Any = None, bias: Any = None, residual: Any = None, pre_bias: Any = None, *, store: str,
             sum_out: Literal[False, None] = None, **options: Any) -> Tensor: ...

    @overload
    def norm(self, x: Any, weight: Any = None, bias: Any = None, residual: Any = None, pre_bias: Any = None, *, store: Tuple[str, str],
             sum_out: Literal[True], **options: Any) -> Tuple[Tensor, Tensor]: ...

    @overload
    def norm(self, x: Any, weight: Any = None, bias: Any = None, residual: Any = None, pre_bias: Any = None, *, sum_out: Literal[True],
             store: None = None, **options: Any) -> Tuple[Array, Array]: ...

    @overload
    def norm(self, x: Any, weight: Any = None, bias: Any = None, residual: Any = None, pre_bias: Any = None, *, kind: Optional[str] = None,
             axis: Axes = None, groups: Optional[int] = None, eps: Optional[float] = None, activation: Optional[str] = None,
             sum_out: Literal[False, None] = None, out_datatype: Optional[str] = None, store: None = None, **options: Any) -> Array: ...

    def norm(self, x: Any, weight: Any = None, bias: Any = None, residual: Any = None, pre_bias: Any = None, *, kind: Optional[str] = None,
             axis: Axes = None, groups: Optional[int] = None, eps: Optional[float] = None, activation: Optional[str] = None,
             sum_out: Optional[bool] = None, out_datatype: Optional[str] = None, **options: Any) -> Any:
        """activation(n * weight + bias), n being x + pre_bias + residual normalised over the last axes. sum_out: a pair, with that sum.

        kind: layer rms l2 group. activation: as matmul's. Options of a pair are pairs: store=(NAME, NAME), out=(ARRAY, ARRAY)."""
        parameters = {"kind": kind, "axis": _axes(axis), "groups": groups, "eps": eps, "activation": activation, "sum_out": sum_out,
                      "out_datatype": out_datatype}
        return self._operate("norm", (x, weight, bias, residual, pre_bias), parameters, 2 if sum_out else 1, **options)

    @overload
    def map(self, op: str, x: Any, y: Any = None, z: Any = None, *, store: str, **options: Any) -> Tensor: ...

    @overload
    def map(self, op: str, x: Any, y: Any = None, z: Any = None, *, a: Optional[float] = None, b: Optional[float] = None,
            out_datatype: Optional[str] = None, store: None = None, **options: Any) -> Array: ...

    def map(self, op: str, x: Any, y: Any = None, z: Any = None, *, a: Optional[float] = None, b: Optional[float] = None,
            out_datatype: Optional[str] = None, **options: Any) -> Any:
        """op(x), op(x, y) or op(x, y, z) of elements: "gelu", "add", "where", "cast", ...; shapes broadcast. Without y the scalar a."""
        return self._operate("map", (x, y, z), {"op": op, "a": a, "b": b, "out_datatype": out_datatype}, **options)

    @overload
    def topk(self, x: Any, k: Optional[int] = None, *, store: Tuple[str, str], **options: Any) -> Tuple[Tensor, Tensor]: ...

    @overload
    def topk(self, x: Any, k: Optional[int] = None, *, axis: Optional[int] = None, largest: Optional[bool] = None,
             sorted: Optional[bool] = None, index_datatype: Optional[str] = None, store: None = None,
             **options: Any) -> Tuple[Array, Array]: ...

    def topk(self, x: Any, k: Optional[int] = None, *, axis: Optional[int] = None, largest: Optional[bool] = None,
             sorted: Optional[bool] = None, index_datatype: Optional[str] = None, **options: Any) -> Any:
        """The k (1) first along `axis` (-1), and their indices; of equal values the lower index first. Options as of norm's pair."""
        parameters = {"k": k, "axis": axis, "largest": largest, "sorted": sorted, "index_datatype": index_datatype}
        return self._operate("topk", (x,), parameters, 2, **options)

    @overload
    def search(self, queries: Any, matrix: Any, k: Optional[int] = None, *, bias: Any = None, mask: Any = None, store: Tuple[str, str],
               **options: Any) -> Tuple[Tensor, Tensor]: ...

    @overload
    def search(self, queries: Any, matrix: Any, k: Optional[int] = None, *, bias: Any = None, mask: Any = None, metric: Optional[str] = None,
               store: None = None, **options: Any) -> Tuple[Array, Array]: ...

    def search(self, queries: Any, matrix: Any, k: Optional[int] = None, *, bias: Any = None, mask: Any = None, metric: Optional[str] = None,
               **options: Any) -> Any:
        """The scores and numbers of the k (1) rows of the matrix that are nearest to each query, by metric: dot l2 cosine. Options as of norm's pair.

        bias: added to each row's score. mask: a row where it is false takes no part; fewer than k rows leave -1."""
        return self._operate("search", (queries, matrix, bias, mask), {"k": k, "metric": metric}, 2, **options)

    @overload
    def attention(self, query: Any, key: Any, value: Any, mask: Any = None, lengths: Any = None, *, store: str,
                  lse: Literal[False, None] = None, **options: Any) -> Tensor: ...

    @overload
    def attention(self, query: Any, key: Any, value: Any, mask: Any = None, lengths: Any = None, *, store: Tuple[str, str],
                  lse: Literal[True], **options: Any) -> Tuple[Tensor, Tensor]: ...

    @overload
    def attention(self, query: Any, key: Any, value: Any, mask: Any = None, lengths: Any = None, *, lse: Literal[True],
                  store: None = None, **options: Any) -> Tuple[Array, Array]: ...

    @overload
    def attention(self, query: Any, key: Any, value: Any, mask: Any = None, lengths: Any = None, *, scale: Optional[float] = None, causal: Optional[str] = None,
                  window: Optional[int] = None, softcap: Optional[float] = None, layout: Optional[str] = None, masked_rows: Optional[str] = None,
                  lse: Literal[False, None] = None, store: None = None, **options: Any) -> Array: ...

    def attention(self, query: Any, key: Any, value: Any, mask: Any = None, lengths: Any = None, *, scale: Optional[float] = None, causal: Optional[str] = None,
                  window: Optional[int] = None, softcap: Optional[float] = None, layout: Optional[str] = None, masked_rows: Optional[str] = None,
                  lse: Optional[bool] = None, **options: Any) -> Any:
        """softmax(scale * query @ key.T + mask) @ value, of heads [batches, heads, rows, elements]; leading axes may be left out of all three.

        A mask of bool selects instead. lengths: int32 or int64, how many keys each batch has. causal: none top_left bottom_right. window: keys
        in front of the last one that causal leaves. layout: bhsd, or bshd for [batches, rows, heads, elements]. masked_rows: what rows of
        nothing are, zero or nan. lse: the logarithms of the sums as well, in a pair."""
        parameters = {"scale": scale, "causal": causal, "window": window, "softcap": softcap, "layout": layout, "masked_rows": masked_rows, "lse": lse}
        return self._operate("attention", (query, key, value, mask, lengths), parameters, 2 if lse else 1, **options)

    @overload
    def scan(self, x: Any, op: Optional[str] = None, *, store: str, **options: Any) -> Tensor: ...

    @overload
    def scan(self, x: Any, op: Optional[str] = None, *, axis: Optional[int] = None, exclusive: Optional[bool] = None,
             reverse: Optional[bool] = None, store: None = None, **options: Any) -> Array: ...

    def scan(self, x: Any, op: Optional[str] = None, *, axis: Optional[int] = None, exclusive: Optional[bool] = None,
             reverse: Optional[bool] = None, **options: Any) -> Any:
        """Prefixes by op (sum) along `axis` (-1); exclusive: without the element itself; reverse: from the end.

        op: sum prod max min logsumexp."""
        return self._raw("scan", (x,), {"op": op, "axis": axis, "exclusive": exclusive, "reverse": reverse}, **options)

    @overload
    def histogram(self, x: Any, bins: Optional[int] = None, *, edges: Optional[Literal[False]] = None, store: str, **options: Any) -> Tensor: ...

    @overload
    def histogram(self, x: Any, bins: Optional[int] = None, *, edges: Literal[True], store: Tuple[str, str],
                  **options: Any) -> Tuple[Tensor, Tensor]: ...

    @overload
    def histogram(self, x: Any, bins: Optional[int] = None, *, min: Optional[float] = None, max: Optional[float] = None, axis: Axes = None,
                  edges: Literal[True], store: None = None, **options: Any) -> Tuple[Array, Array]: ...

    @overload
    def histogram(self, x: Any, bins: Optional[int] = None, *, min: Optional[float] = None, max: Optional[float] = None, axis: Axes = None,
                  edges: Optional[Literal[False]] = None, store: None = None, **options: Any) -> Array: ...

    def histogram(self, x: Any, bins: Optional[int] = None, *, min: Optional[float] = None, max: Optional[float] = None, axis: Axes = None,
                  edges: Optional[bool] = None, **options: Any) -> Any:
        """Counts of x's elements in `bins` (256) of equal width from min to max; integers without these are the numbers of their bins.

        axis: the last axes, over which is counted (all). edges: a pair, with the bins' edges in FP64. Options as of norm's pair."""
        parameters = {"bins": bins, "min": min, "max": max, "axis": _axes(axis), "edges": edges}
        return self._operate("histogram", (x,), parameters, 2 if edges else 1, **options)

    @overload
    def gather(self, table: Any, indices: Any, offsets: Any = None, weights: Any = None, *, store: str, **options: Any) -> Tensor: ...

    @overload
    def gather(self, table: Any, indices: Any, offsets: Any = None, weights: Any = None, *, axis: Optional[int] = None,
               kind: Optional[str] = None, mode: Optional[str] = None, op: Optional[str] = None, store: None = None,
               **options: Any) -> Array: ...

    def gather(self, table: Any, indices: Any, offsets: Any = None, weights: Any = None, *, axis: Optional[int] = None,
               kind: Optional[str] = None, mode: Optional[str] = None, op: Optional[str] = None, **options: Any) -> Any:
        """Slices of table along `axis` (0) by index, or with offsets the op (sum) of each bag's slices, times their weights.

        kind: slices elements, as numpy.take and take_along_axis. mode: error (an index out of bounds is BadRequest "range") wrap clip.
        op: sum mean max. Bag i has indices[offsets[i]:offsets[i + 1]]. Indices and offsets are int32 or int64."""
        return self._operate("gather", (table, indices, offsets, weights), {"axis": axis, "kind": kind, "mode": mode, "op": op}, **options)

    @overload
    def layout(self, op: str, x: Any, *more: Any, store: str, **options: Any) -> Tensor: ...

    @overload
    def layout(self, op: str, x: Any, *more: Any, axes: Integers = None, starts: Integers = None, sizes: Integers = None,
               ends: Integers = None, steps: Integers = None, before: Integers = None, after: Integers = None, mode: Optional[str] = None,
               value: Optional[float] = None, axis: Optional[int] = None, new_shape: Integers = None, repeats: Integers = None,
               parts: Optional[int] = None, part: Optional[int] = None, store: None = None, **options: Any) -> Array: ...

    def layout(self, op: str, x: Any, *more: Any, axes: Integers = None, starts: Integers = None, sizes: Integers = None,
               ends: Integers = None, steps: Integers = None, before: Integers = None, after: Integers = None, mode: Optional[str] = None,
               value: Optional[float] = None, axis: Optional[int] = None, new_shape: Integers = None, repeats: Integers = None,
               parts: Optional[int] = None, part: Optional[int] = None, **options: Any) -> Any:
        """x transposed (axes), a slice of it (starts, sizes or ends, steps), padded (before, after, mode: constant edge reflect, value),
        reshaped (new_shape: 0 keeps a dimension, one -1 takes the rest), a part of it (split: axis, parts, part), expanded to new_shape,
        tiled (repeats), or concat with more along axis (0). A list of one number is for `axis`."""
        parameters = {"op": op, "axes": _integers(axes), "starts": _integers(starts), "sizes": _integers(sizes), "ends": _integers(ends),
                      "steps": _integers(steps), "before": _integers(before), "after": _integers(after), "mode": mode, "value": value, "axis": axis,
                      "new_shape": _integers(new_shape), "repeats": _integers(repeats), "parts": parts, "part": part}
        return self._operate("layout", (x, *more), parameters, **options)

    @overload
    def window(self, x: Any, size: Numbers, *, store: str, **options: Any) -> Tensor: ...

    @overload
    def window(self, x: Any, size: Numbers, *, stride: Numbers = None, dilation: Numbers = None, pad: Numbers = None,
               auto_pad: Optional[str] = None, layout: Optional[str] = None, value: Optional[float] = None, store: None = None,
               **options: Any) -> Array: ...

    def window(self, x: Any, size: Numbers, *, stride: Numbers = None, dilation: Numbers = None, pad: Numbers = None,
               auto_pad: Optional[str] = None, layout: Optional[str] = None, value: Optional[float] = None, **options: Any) -> Any:
        """Sliding windows of x, unfolded: [.., windows.., taps * C]; size is a number, or two of two spatial axes. x is nhwc (channels last)
        or nchw, by layout. pad: in front and behind, or all in front, then all behind; auto_pad: same_upper same_lower; value: outside x."""
        lists = {"size": size, "stride": stride, "dilation": dilation, "pad": pad}
        parameters = {name: _integers([each] if isinstance(each, (int, np.integer)) else each) for name, each in lists.items()}
        return self._operate("window", (x,), {**parameters, "auto_pad": auto_pad, "layout": layout, "value": value}, **options)

    def infer(self, model: str, *, parameters: Optional[Mapping[str, Any]] = None, outputs: Optional[Sequence[str]] = None,
              store: Optional[Mapping[str, str]] = None, ttl: Optional[int] = None, timeout: Optional[float] = None,
              **inputs: Any) -> Dict[str, Any]:
        """Any model, inputs and outputs by their names, by the Open Inference Protocol with binary tensors.

        store: names of outputs, and the names under which these stay with the daemon. A result is an Array, or a stored one's Tensor."""
        return self._named(model, inputs, parameters or {}, outputs, store or {}, ttl=ttl, timeout=timeout)

    # --- tensors that stay with the daemon -------------------------------------------------------------------------------

    def tensor(self, source: Any, name: Optional[str] = None, *, ttl: Optional[int] = None, evictable: Optional[bool] = None,
               device: Optional[int] = None, form: Optional[str] = None, datatype: Optional[str] = None, timeout: Optional[float] = None) -> Tensor:
        """A tensor for an array, or the one that has the name `source` already.

        An array's bytes are sent only where the daemon has none with their hash. ttl: seconds after the last use (the daemon's preset;
        0: for ever). device: of several, the one that is to have it alone (all). form: matmul or search, for which bytes that are sent
        are put as it reads them best, too. name: one of its own, if not given. `with` deletes it at the end, unless the name was there
        before."""
        if isinstance(source, str):
            return Tensor(self, json.loads(self._get(_path(source), fields={"Accept": "application/json"})))
        values, kind = as_tensor(source, datatype)
        options = _stay(ttl, evictable, device, form)
        name = name or "client-%d-%016x" % (os.getpid(), random.SystemRandom().getrandbits(64))
        status, entry = self._put_by_etag(name, values, kind, options, timeout)
        return Tensor(self, entry, values, options, made=status == 201)

    def put(self, name: str, values: Any, *, ttl: Optional[int] = None, evictable: Optional[bool] = None, device: Optional[int] = None,
            form: Optional[str] = None, only_new: bool = False, if_match: Optional[str] = None, datatype: Optional[str] = None,
            timeout: Optional[float] = None) -> Tensor:
        """Makes or replaces a tensor. only_new: Precondition where the name is there; if_match: where its ETag is another. Full: no room."""
        values, kind = as_tensor(values, datatype)
        options = _stay(ttl, evictable, device, form)
        fields = {"If-None-Match": "*"} if only_new else {}
        fields.update({"If-Match": '"%s"' % if_match} if if_match else {})
        return Tensor(self, self._put(name, values, kind, options, timeout, fields)[1], values, options)

    def put_file(self, path: str, prefix: str = "", *, ttl: Optional[int] = None, evictable: Optional[bool] = None,
                 device: Optional[int] = None, form: Optional[str] = None, timeout: Optional[float] = None) -> List[Tensor]:
        """All tensors of a safetensors file, or none: PREFIX+key each, where / and : become dots."""
        parts = parts_of_file(path)
        pairs = [("prefix", prefix or None), *_stay(ttl, evictable, device, form)]
        target = "/v2/tensors?" + _query([pair for pair in pairs if pair[1] is not None])
        head = self._head("PUT", target.rstrip("?"), sum(len(part) for part in parts), {"Content-Type": FILE_TYPE})
        return [Tensor(self, entry) for entry in json.loads(bytes(self._call(head, parts, timeout)[2]))["tensors"]]

    def get(self, name: Named, *, out: Optional[np.ndarray] = None, timeout: Optional[float] = None) -> Array:
        """A tensor's values."""
        tensors = [name] if isinstance(name, Tensor) else []
        receiver = _Receiver(out)
        head = self._head("GET", _path(name))
        _, fields, _ = self._healed(tensors, lambda: self._call(head, [], timeout, receiver))
        return array_of(receiver.taken(), fields)

    def delete(self, name: Named, *, if_match: Optional[str] = None) -> None:
        """Frees a name. Requests under way keep its content."""
        self._call(self._head("DELETE", _path(name), fields={"If-Match": '"%s"' % if_match} if if_match else None), [], None)

    def tensors(self, prefix: str = "") -> List[Tensor]:
        """Those whose names begin so, by name, and what the daemon says of each in `.entry`."""
        found: List[Tensor] = []
        page: Dict[str, Any] = {"next": ""}
        while page["next"] is not None:
            pairs = [("prefix", prefix), ("limit", LIST_MAX), ("after", page["next"])]
            page = json.loads(self._get("/v2/tensors?" + _query([pair for pair in pairs if pair[1]])))
            found += [Tensor(self, entry) for entry in page["tensors"]]
        return found

    def _put(self, name: str, values: np.ndarray, datatype: str, options: Sequence[Tuple[str, Any]], timeout: Optional[float] = None,
             fields: Optional[Mapping[str, str]] = None) -> Tuple[int, Dict[str, Any]]:
        query = [("shape", ",".join(map(str, values.shape))), ("datatype", datatype)] + [pair for pair in options if pair[1] is not None]
        head = self._head("PUT", _path(name) + "?" + _query(query), values.nbytes, fields)
        status, _, body = self._call(head, [bytes_of(values)], timeout)
        return status, json.loads(bytes(body))

    def _put_by_etag(self, name: str, values: np.ndarray, datatype: str, options: Sequence[Tuple[str, Any]],
                     timeout: Optional[float] = None) -> Tuple[int, Dict[str, Any]]:
        etag = etag_of(values, datatype)
        pairs = [("etag", etag)] + [pair for pair in options if pair[1] is not None and pair[0] != "for"]  # a link has the content's
        try:
            status, _, body = self._call(self._head("PUT", _path(name) + "?" + _query(pairs), 0), [], timeout)
        except NotFound as error:
            if error.code != "content":
                raise
        else:
            return status, json.loads(bytes(body))
        status, entry = self._put(name, values, datatype, options, timeout)
        if entry["etag"] != etag:
            raise Error("tensor %r: the array has changed while it was sent" % name)
        return status, entry

    def _healed(self, tensors: Sequence[Tensor], call: Callable[[], Result]) -> Result:
        """A call that names tensors. Where one is lost or gone, those whose arrays are here are put again, once."""
        puts = [tensor._puts for tensor in tensors]
        try:
            return call()
        except NotFound as error:
            if error.code not in ("tensor", "lost"):
                raise
            if not any([tensor._put_again(count) for tensor, count in zip(tensors, puts)]):
                raise
        return call()

    # --- models of one's own ------------------------------------------------------------------------------------------------

    def load(self, name: str, definition: Definition, weights: Optional[Mapping[str, Any]] = None, *, only_new: bool = False,
             if_match: Optional[str] = None, timeout: Optional[float] = None) -> Dict[str, Any]:
        """Loads or replaces a model, which serves when this returns: the daemon's entry of it.

        definition: a mapping, or the path of a .json file, or of a .safetensors file that holds one. weights: arrays by key, sent with the
        definition, whose initializers name them."""
        parts, media_type = body_of(definition, weights)
        fields = {"Content-Type": media_type}
        fields.update({"If-None-Match": "*"} if only_new else {})
        fields.update({"If-Match": '"%s"' % if_match} if if_match else {})
        head = self._head("PUT", _model_path(name), sum(len(part) for part in parts), fields)
        entry: Dict[str, Any] = json.loads(bytes(self._call(head, parts, timeout)[2]))
        return entry

    def unload(self, name: str, *, if_match: Optional[str] = None) -> None:
        """Requests under way are served."""
        self._call(self._head("DELETE", _model_path(name), fields={"If-Match": '"%s"' % if_match} if if_match else None), [], None)

    def definition(self, name: str) -> Any:
        return json.loads(self._get(_model_path(name) + "/definition"))

    # --- the daemon -------------------------------------------------------------------------------------------------------

    def ready(self) -> bool:
        """False: it runs, and serves nothing now (it warms up, drains, or its device failed)."""
        try:
            self._get("/v2/health/ready", retries=0)
        except Error as error:
            if error.status is None:
                raise
            return False
        return True

    def models(self) -> List[str]:
        return sorted(model["name"] for model in json.loads(self._post("/v2/repository/index", {})))

    def metadata(self, model: Optional[str] = None) -> Any:
        return json.loads(self._get("/v2/models/" + quote(model, safe="") if model else "/v2"))

    def statistics(self, model: Optional[str] = None) -> Any:
        path = "/v2/models/%s/stats" % quote(model, safe="") if model else "/v2/models/stats"
        return json.loads(self._get(path))["model_stats"]

    def plan(self, model: str, *shapes: Sequence[int], datatype: str = "FP32", **parameters: Any) -> Any:
        """What the daemon has chosen for that work (kernel, path, bytes, measured times), without running it."""
        query = [("shape", ",".join(map(str, shape))) for shape in shapes] + [("datatype", datatype)] + list(parameters.items())
        return json.loads(self._get("/v2/models/%s/plan?%s" % (quote(model, safe=""), _query(query))))

    def metrics(self) -> str:
        """In Prometheus' text format."""
        return self._get("/metrics").decode()

    # --- below ------------------------------------------------------------------------------------------------------------

    def _operate(self, model: str, operands: Sequence[Any], parameters: Mapping[str, Any], outputs: int = 1, *, out: Any = None,
                 store: Any = None, **options: Any) -> Any:
        """An operation with optional inputs, None where they are not given. The raw form has inputs without a gap, and one output."""
        given = [operand for operand in operands if operand is not None]
        if outputs == 1 and not any(operand is None for operand in operands[:len(given)]):
            return self._raw(model, given, parameters, out=out, store=store, **options)
        names = ["OUTPUT%d" % index for index in range(outputs)]
        outs, stores = ([None] * outputs if each is None else [each] if outputs == 1 else list(each) for each in (out, store))
        if len(outs) != outputs or len(stores) != outputs or any(isinstance(each, str) for each in (out, store) if outputs > 1):
            raise ValueError("%s has %d outputs: as many of out and store" % (model, outputs))
        inputs = {"INPUT%d" % index: operand for index, operand in enumerate(operands) if operand is not None}
        chosen = {name: value.item() if isinstance(value, np.generic) else value for name, value in parameters.items() if value is not None}
        results = self._named(model, inputs, chosen, names,
                              {name: kept for name, kept in zip(names, stores) if kept is not None},
                              out={name: values for name, values in zip(names, outs) if values is not None}, **options)
        return results[names[0]] if outputs == 1 else tuple(results[name] for name in names)

    def _named(self, model: str, inputs: Mapping[str, Any], parameters: Mapping[str, Any], outputs: Optional[Sequence[str]],
               store: Mapping[str, str], *, out: Mapping[str, np.ndarray] = {}, ttl: Optional[int] = None, datatype: Optional[str] = None,
               priority: Optional[int] = None, timeout: Optional[float] = None, headers: Optional[Mapping[str, str]] = None) -> Dict[str, Any]:
        """The Open Inference Protocol's form with binary tensors: inputs and outputs by names."""
        if set(out) & set(store):
            raise ValueError("a result that is stored has no bytes for out")
        receivers = {name: _Receiver(values) for name, values in out.items()}
        named = {name: values for name, values in inputs.items() if isinstance(values, Tensor)}
        tensors = [(name, *as_tensor(values, datatype)) for name, values in inputs.items() if name not in named]
        wanted: Dict[str, Dict[str, Any]] = {name: {"binary_data": True} for name in outputs or ()}
        life = {} if ttl is None else {"ttl": ttl}
        wanted.update({name: {"tensor": kept, **life} for name, kept in store.items()})
        limits = {"priority": priority, "timeout": None if timeout is None else int(timeout * 1e6)}
        document: Dict[str, Any] = {
            "inputs": [{"name": name, "datatype": kind, "shape": list(values.shape), "parameters": {"binary_data_size": values.nbytes}}
                       for name, values, kind in tensors] +
                      [{"name": name, "parameters": {"tensor": tensor.name}} for name, tensor in named.items()],
            "parameters": {**parameters, **{name: value for name, value in limits.items() if value is not None}, "binary_data_output": True}}
        if wanted or outputs is not None:
            document["outputs"] = [{"name": name, "parameters": each} for name, each in wanted.items()]
        text = json.dumps(document).encode()
        parts: List[Bytes] = [text, *(bytes_of(values) for _, values, _ in tensors)]
        head = self._head("POST", "/v2/models/%s/infer" % quote(model, safe=""), sum(len(part) for part in parts),
                          {"Inference-Header-Content-Length": str(len(text)), **(headers or {})})
        _, fields, body = self._healed(list(named.values()), lambda: self._call(head, parts, timeout))
        length = int(fields.get(b"inference-header-content-length", len(body)))
        at, results = length, {}  # type: int, Dict[str, Any]
        for output in json.loads(bytes(body[:length]))["outputs"]:
            name = output["name"]
            if name in store:
                results[name] = Tensor(self, {**output, "name": store[name]}, fields=fields)
                continue
            size, receiver = output["parameters"]["binary_data_size"], receivers.get(name) or _Receiver(None)
            # a copy, since the place behind the text is aligned to nothing
            receiver.place(tuple(output["shape"]), output["datatype"], size)[:] = body[at:at + size]
            results[name] = array_of(receiver.taken(), fields)
            at += size
        return results

    def _raw(self, model: str, operands: Sequence[Any], parameters: Mapping[str, Any], *, out: Optional[np.ndarray] = None,
             store: Optional[str] = None, ttl: Optional[int] = None, datatype: Optional[str] = None, priority: Optional[int] = None,
             timeout: Optional[float] = None, headers: Optional[Mapping[str, str]] = None) -> Union[Array, Tensor]:
        """The plain raw form: arrays' bytes out, the result's bytes back; shapes, parameters and names of tensors in the query."""
        named = [(index, operand) for index, operand in enumerate(operands) if isinstance(operand, Tensor)]
        arrays = [as_tensor(operand, datatype) for operand in operands if not isinstance(operand, Tensor)]
        extra = tuple(headers.items()) if headers else ()
        key = (model, tuple([(values.shape, name) for values, name in arrays]), tuple([(index, tensor.name) for index, tensor in named]),
               tuple(parameters.values()), store, ttl, priority, timeout, extra)
        head = self._heads.get(key)
        if head is None:
            query: List[Tuple[str, Any]] = [("shape", ",".join(map(str, values.shape))) for values, _ in arrays]
            query += [("datatype", name) for _, name in arrays]
            query += [("INPUT%d" % index, "@" + tensor.name) for index, tensor in named]
            query += [("OUTPUT0", "@" + store)] if store is not None else []
            pairs = [*parameters.items(), ("ttl", ttl), ("priority", priority), ("timeout", None if timeout is None else int(timeout * 1e6))]
            query += [pair for pair in pairs if pair[1] is not None]
            head = self._head("POST", "/v2/models/%s/infer?%s" % (model, _query(query)), sum(values.nbytes for values, _ in arrays), headers)
            if len(self._heads) >= HEADS_MAX:
                self._heads.clear()
            self._heads[key] = head
        body = [bytes_of(values) for values, _ in arrays]
        receiver = _Receiver(out) if store is None else _Stored(self, store, out)
        if named:
            fields = self._healed([tensor for _, tensor in named], lambda: self._call(head, body, timeout, receiver))[1]
        else:
            fields = self._call(head, body, timeout, receiver)[1]
        return array_of(receiver.taken(), fields) if isinstance(receiver, _Receiver) else receiver.taken(fields)

    def _head(self, method: str, target: str, length: Optional[int] = None, fields: Optional[Mapping[str, str]] = None) -> bytes:
        more = "".join("%s: %s\r\n" % item for item in fields.items()) if fields else ""
        if more.count("\n") != len(fields or ()) or "\r" in more.replace("\r\n", ""):
            raise ValueError("a header holds a line break")
        more += "" if length is None else "Content-Length: %d\r\n" % length
        return ("%s %s%s HTTP/1.1\r\n%s%s\r\n" % (method, self._address.prefix, target, self._fields, more)).encode("ascii")

    def _get(self, target: str, retries: Optional[int] = None, fields: Optional[Mapping[str, str]] = None) -> bytes:
        return bytes(self._call(self._head("GET", target, fields=fields), [], None, retries=retries)[2])

    def _post(self, target: str, document: Any) -> bytes:
        body = json.dumps(document).encode()
        return bytes(self._call(self._head("POST", target, len(body)), [body], None)[2])

    def _call(self, head: bytes, body: Sequence[Bytes], timeout: Optional[float], place: Optional[Place] = None,
              retries: Optional[int] = None) -> Tuple[int, Fields, memoryview]:
        timeout = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        left = self.retries if retries is None else retries
        while True:
            status, fields, answer = self._once([head, *body], place or _keep, deadline)
            if 200 <= status < 300:
                return status, fields, answer
            if status == 503 and left > 0 and fields.get(b"retry-after", b"").isdigit():
                pause = int(fields[b"retry-after"]) * random.uniform(1, 1.25)
                if time.monotonic() + pause < deadline:
                    left -= 1
                    time.sleep(pause)
                    continue
            raise error_of(status, _sentence(answer), fields.get(b"kernserve-error", b"").decode(), fields.get(b"x-request-id", b"").decode())

    def _once(self, parts: List[Bytes], place: Place, deadline: float) -> Tuple[int, Fields, memoryview]:
        again = False
        while True:
            connection = self._pool.take(deadline - time.monotonic(), again)
            try:
                status, fields, answer, stays = connection.exchange(parts, place, deadline)
            except Broken:
                connection.close()
                if connection.fresh:
                    raise Unreachable("%s closed the connection without an answer" % self._address.url) from None
                again = True  # it was closed while it waited here
                continue
            except BaseException:
                connection.close()
                raise
            if stays:
                self._pool.give_back(connection)
            else:
                connection.close()
            return status, fields, answer


class _Receiver:
    """Where the result goes: an array of the answer's shape and datatype, or `out`."""

    __slots__ = ("out", "result", "fault")

    def __init__(self, out: Optional[np.ndarray]) -> None:
        if out is not None and not (out.flags.c_contiguous and out.flags.writeable and out.dtype.isnative):
            raise ValueError("out is not a contiguous, writable array of the host's byte order")
        self.out, self.fault = out, ""
        self.result: Optional[np.ndarray] = None

    def __call__(self, status: int, fields: Fields, length: int) -> memoryview:
        return self.place(*_kind(fields), length) if 200 <= status < 300 else memoryview(bytearray(length))

    def place(self, shape: Tuple[int, ...], name: str, length: int) -> memoryview:
        """Where a result of `length` bytes goes."""
        dtype = TO_NUMPY[name]
        if self.out is not None and (self.out.shape != shape or self.out.dtype.itemsize != dtype.itemsize or
                                     (self.out.dtype != dtype and name not in ("BF16", "FP8E4M3", "FP8E5M2"))):
            self.fault = "out is %s of %s, the result %s of %s" % (self.out.shape, self.out.dtype, shape, name)
            return memoryview(bytearray(length))
        result = np.empty(shape, dtype) if self.out is None else self.out
        if result.nbytes != length:
            raise Unreachable("the answer has %d bytes, its shape %d" % (length, result.nbytes))
        self.result = result
        return bytes_of(result)

    def taken(self) -> np.ndarray:
        if self.fault:
            raise ValueError(self.fault)
        assert self.result is not None
        return self.result


class _Stored:
    """The place of an answer without bytes, whose result stays with the daemon."""

    __slots__ = ("client", "name")

    def __init__(self, client: Client, name: str, out: Optional[np.ndarray]) -> None:
        if out is not None:
            raise ValueError("a result that is stored has no bytes for out")
        self.client, self.name = client, name

    def __call__(self, _status: int, _fields: Fields, length: int) -> memoryview:
        return memoryview(bytearray(length))

    def taken(self, fields: Fields) -> Tensor:
        shape, datatype = _kind(fields)
        return Tensor(self.client, {"name": self.name, "datatype": datatype, "shape": list(shape)}, fields=fields)


def _kind(fields: Fields) -> Tuple[Tuple[int, ...], str]:
    text, name = fields.get(b"kernserve-shape", b"?"), fields.get(b"kernserve-datatype", b"?").decode()
    if text == b"?" or name not in TO_NUMPY:
        raise Unreachable("the answer has no Kernserve-Shape, or a Kernserve-Datatype that is unknown here: %r" % name)
    return () if text == b"scalar" else tuple(map(int, text.split(b","))), name


def _axes(axis: Axes) -> Union[int, str, None]:
    return axis if axis is None or isinstance(axis, (int, np.integer)) else ",".join(str(each) for each in axis) or "all"


def _integers(values: Integers) -> Optional[str]:
    return None if values is None else ",".join(str(int(each)) for each in values)


def _stay(ttl: Optional[int], evictable: Optional[bool], device: Optional[int], form: Optional[str]) -> Tuple[Tuple[str, Any], ...]:
    return ("ttl", ttl), ("evictable", None if evictable is None else int(evictable)), ("device", device), ("for", form)


def _model_path(name: str) -> str:
    return "/v2/models/" + quote(name, safe="")


def _path(name: Named) -> str:
    return "/v2/tensors/" + quote(name.name if isinstance(name, Tensor) else name, safe="")


def _keep(_status: int, _fields: Fields, length: int) -> memoryview:
    return memoryview(bytearray(length))


def _query(pairs: Sequence[Tuple[str, Any]]) -> str:
    def text(value: Any) -> str:
        return str(value).lower() if isinstance(value, (bool, np.bool_)) else str(value)

    return "&".join("%s=%s" % (name, quote(text(value), safe=",@")) for name, value in pairs)


def _sentence(body: memoryview) -> str:
    try:
        return str(json.loads(bytes(body))["error"])
    except (ValueError, KeyError, TypeError):
        return bytes(body[:200]).decode("utf-8", "replace") or "no reason was given"
