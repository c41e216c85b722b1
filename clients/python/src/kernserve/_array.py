"""The result: an ndarray that knows where its time went. And what its head says of any answer."""

from __future__ import annotations

from typing import Any, Dict, Optional

import numpy as np


class Timing:
    """The daemon's account of one request, in seconds. A part that did not happen is None."""

    __slots__ = ("parts",)

    def __init__(self, parts: Dict[str, float]) -> None:
        self.parts = parts

    def __getattr__(self, name: str) -> Optional[float]:
        if name not in PARTS:
            raise AttributeError(name)
        return self.parts.get(name)

    def __repr__(self) -> str:
        return "Timing(%s)" % ", ".join("%s=%.3g" % item for item in self.parts.items())


PARTS = ("receive", "decode", "queue", "h2d", "compute", "d2h", "encode", "total")


class Answer:
    """What the fields of an answer say."""

    _fields: Optional[Dict[bytes, bytes]] = None

    @property
    def timing(self) -> Optional[Timing]:
        """None: the daemon runs with --server-timing off, or this was made of another result, or not by an operation."""
        parts = self._server_timing()
        return Timing({name: float(value[4:]) / 1000 for name, value in parts.items() if value.startswith("dur=")}) if parts else None

    @property
    def graph(self) -> Optional[str]:
        """hit: a captured CUDA graph ran; miss: plain launches; none: this path or backend has no graphs."""
        return self._server_timing().get("graph", "")[5:] or None

    @property
    def request_id(self) -> Optional[str]:
        return self._fields[b"x-request-id"].decode() if self._fields and b"x-request-id" in self._fields else None

    def _server_timing(self) -> Dict[str, str]:
        text = self._fields.get(b"server-timing", b"").decode() if self._fields else ""
        return dict(part.split(";", 1) for part in text.split(", ") if ";" in part)


class Array(np.ndarray, Answer):
    """What is made of it (slices, sums) has no timing of its own."""

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()


def array_of(values: np.ndarray, fields: Dict[bytes, bytes]) -> Array:
    result = values.view(Array)
    result._fields = fields
    return result
