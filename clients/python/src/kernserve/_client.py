"""Calls to one daemon."""

from __future__ import annotations

import json
import os
import random
import ssl
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union
from urllib.parse import quote

import numpy as np

from ._array import Array, array_of
from ._datatypes import TO_NUMPY, as_tensor, bytes_of
from ._errors import Error, Unreachable, error_of
from ._wire import Address, Broken, Bytes, Place, Pool

Fields = Dict[bytes, bytes]
Axes = Union[int, Sequence[int], None]

HEADS_MAX = 1024  # request heads that are kept; a program sends the same few


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

    def softmax(self, x: Any, *, axis: Optional[int] = None, log: Optional[bool] = None, scale: Optional[float] = None,
                **options: Any) -> Array:
        """Softmax of scale * x along `axis` (-1), or its logarithm.

        All operations take these options: out (an array that receives the result), datatype ("BF16" for uint16 without ml_dtypes),
        priority (1 is first), timeout (seconds; the daemon drops what it cannot begin by then), headers (a mapping)."""
        return self._raw("softmax", (x,), {"axis": axis, "log": log, "scale": scale}, **options)

    def reduce(self, x: Any, op: Optional[str] = None, *, axis: Axes = None, keepdims: Optional[bool] = None, **options: Any) -> Array:
        """op (sum) of x along `axis`, an integer or several; None is the daemon's preset, () all axes.

        op: sum mean max min prod argmax argmin l2norm logsumexp."""
        axes = axis if axis is None or isinstance(axis, (int, np.integer)) else ",".join(map(str, axis)) or "all"
        return self._raw("reduce", (x,), {"op": op, "axis": axes, "keepdims": keepdims}, **options)

    def matmul(self, a: Any, b: Any, bias: Any = None, *, transpose_a: Optional[bool] = None, transpose_b: Optional[bool] = None,
               alpha: Optional[float] = None, activation: Optional[str] = None, precision: Optional[str] = None, **options: Any) -> Array:
        """activation(alpha * a @ b + bias); leading dimensions are equal or broadcast.

        activation: none relu gelu silu. precision: exact, or tf32 for FP32 on the tensor cores."""
        parameters = {"transpose_a": transpose_a, "transpose_b": transpose_b, "alpha": alpha, "activation": activation,
                      "precision": precision}
        return self._raw("matmul", (a, b) if bias is None else (a, b, bias), parameters, **options)

    def infer(self, model: str, *, parameters: Optional[Mapping[str, Any]] = None, outputs: Optional[Sequence[str]] = None,
              timeout: Optional[float] = None, **inputs: Any) -> Dict[str, Array]:
        """Any model, inputs and outputs by their names, by the Open Inference Protocol with binary tensors."""
        tensors = [(name, *as_tensor(values, None)) for name, values in inputs.items()]
        document: Dict[str, Any] = {
            "inputs": [{"name": name, "datatype": datatype, "shape": list(values.shape), "parameters": {"binary_data_size": values.nbytes}}
                       for name, values, datatype in tensors],
            "parameters": {**(parameters or {}), "binary_data_output": True}}
        if outputs is not None:
            document["outputs"] = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
        text = json.dumps(document).encode()
        parts: List[Bytes] = [text, *(bytes_of(values) for _, values, _ in tensors)]
        head = self._head("POST", "/v2/models/%s/infer" % quote(model, safe=""), sum(len(part) for part in parts),
                          {"Inference-Header-Content-Length": str(len(text))})
        fields, body = self._call(head, parts, timeout)
        length = int(fields.get(b"inference-header-content-length", len(body)))
        at, results = length, {}
        for output in json.loads(bytes(body[:length]))["outputs"]:
            size, dtype = output["parameters"]["binary_data_size"], TO_NUMPY[output["datatype"]]
            # a copy, since the place behind the text is aligned to nothing
            values = np.frombuffer(body[at:at + size], dtype=dtype).reshape(output["shape"]).copy()
            results[output["name"]] = array_of(values, fields)
            at += size
        return results

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

    def _raw(self, model: str, operands: Sequence[Any], parameters: Mapping[str, Any], *, out: Optional[np.ndarray] = None,
             datatype: Optional[str] = None, priority: Optional[int] = None, timeout: Optional[float] = None,
             headers: Optional[Mapping[str, str]] = None) -> Array:
        """The plain raw form: operands' bytes out, the result's bytes back, shapes and parameters in the query."""
        tensors = [as_tensor(values, datatype) for values in operands]
        extra = tuple(headers.items()) if headers else ()
        key = (model, tuple((values.shape, name) for values, name in tensors), tuple(parameters.values()), priority, timeout, extra)
        head = self._heads.get(key)
        if head is None:
            query: List[Tuple[str, Any]] = [("shape", ",".join(map(str, values.shape))) for values, _ in tensors]
            query += [("datatype", name) for _, name in tensors]
            query += [(name, value) for name, value in parameters.items() if value is not None]
            query += [("priority", priority)] if priority is not None else []
            query += [("timeout", int(timeout * 1e6))] if timeout is not None else []
            head = self._head("POST", "/v2/models/%s/infer?%s" % (model, _query(query)), sum(values.nbytes for values, _ in tensors), headers)
            if len(self._heads) >= HEADS_MAX:
                self._heads.clear()
            self._heads[key] = head
        receiver = _Receiver(out)
        fields, _ = self._call(head, [bytes_of(values) for values, _ in tensors], timeout, receiver)
        return array_of(receiver.taken(), fields)

    def _head(self, method: str, target: str, length: int, fields: Optional[Mapping[str, str]] = None) -> bytes:
        more = "".join("%s: %s\r\n" % item for item in fields.items()) if fields else ""
        if more.count("\n") != len(fields or ()) or "\r" in more.replace("\r\n", ""):
            raise ValueError("a header holds a line break")
        return ("%s %s%s HTTP/1.1\r\n%sContent-Length: %d\r\n%s\r\n" %
                (method, self._address.prefix, target, self._fields, length, more)).encode("ascii")

    def _get(self, target: str, retries: Optional[int] = None) -> bytes:
        head = ("GET %s%s HTTP/1.1\r\n%s\r\n" % (self._address.prefix, target, self._fields)).encode("ascii")
        return bytes(self._call(head, [], None, retries=retries)[1])

    def _post(self, target: str, document: Any) -> bytes:
        body = json.dumps(document).encode()
        return bytes(self._call(self._head("POST", target, len(body)), [body], None)[1])

    def _call(self, head: bytes, body: List[Bytes], timeout: Optional[float], place: Optional[Place] = None,
              retries: Optional[int] = None) -> Tuple[Fields, memoryview]:
        timeout = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        left = self.retries if retries is None else retries
        while True:
            status, fields, answer = self._once([head, *body], place or _keep, deadline)
            if 200 <= status < 300:
                return fields, answer
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
        if not 200 <= status < 300:
            return memoryview(bytearray(length))
        text, name = fields.get(b"kernserve-shape", b"?"), fields.get(b"kernserve-datatype", b"?").decode()
        dtype = TO_NUMPY.get(name)
        if text == b"?" or dtype is None:
            raise Unreachable("the answer has no Kernserve-Shape, or a Kernserve-Datatype that is unknown here: %r" % name)
        shape = () if text == b"scalar" else tuple(map(int, text.split(b",")))
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


def _keep(_status: int, _fields: Fields, length: int) -> memoryview:
    return memoryview(bytearray(length))


def _query(pairs: Sequence[Tuple[str, Any]]) -> str:
    def text(value: Any) -> str:
        return str(value).lower() if isinstance(value, (bool, np.bool_)) else str(value)

    return "&".join("%s=%s" % (name, quote(text(value), safe=",")) for name, value in pairs)


def _sentence(body: memoryview) -> str:
    try:
        return str(json.loads(bytes(body))["error"])
    except (ValueError, KeyError, TypeError):
        return bytes(body[:200]).decode("utf-8", "replace") or "no reason was given"
