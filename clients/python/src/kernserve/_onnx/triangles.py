"""Triangles of lengths that only a request knows: causal masks that a graph computes. What is one number on and below the diagonal and another above it,
or in a band along it, is followed through Trilu and elementwise operators; attention takes it as its causal and window."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import numpy as np

from .lengths import broadcast, has_unknown
from .ops import ONE, Dims

ELEMENTS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Where", "Cast", "Add", "Sub", "Mul", "Neg", "Identity", "And", "Or")


class Band:
    """Where row - column is at least low and at most high; None: any."""

    def __init__(self, low: Optional[int] = 0, high: Optional[int] = None) -> None:
        self.low, self.high = low, high

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Band) and (self.low, self.high) == (other.low, other.high)

    def within(self, other: "Band") -> "Band":
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        return Band(max(lows, default=None), min(highs, default=None))


class Triangle:
    """values: in the band, and outside. Of one shape whether both are equal or not."""

    def __init__(self, values: np.ndarray, dims: Dims, band: Optional[Band] = None) -> None:
        self.values, self.dims, self.band = values, dims, band or Band()

    def is_even(self) -> bool:
        return bool(self.values[0] == self.values[1])

    def is_kept(self) -> bool:
        """True in the band, and nowhere else."""
        return self.values.dtype == np.bool_ and bool(self.values[0]) and not self.values[1]


class Triangles:
    """dims: as ONNX has them."""

    def __init__(self, constants: Mapping[str, np.ndarray], dims: Callable[[str], Optional[Dims]]) -> None:
        self.constants, self.dims, self.found = constants, dims, {}  # type: Mapping[str, np.ndarray], Callable[[str], Optional[Dims]], Dict[str, Triangle]

    def fold(self, node: Any, attributes: Mapping[str, Any], run: Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]) -> Optional[Triangle]:
        """The node's result, if it is one."""
        if node.op_type == "Trilu":
            return self._below(node, attributes)
        if node.op_type in ("Unsqueeze", "Reshape", "Expand", "Slice"):
            return self._moved(node, attributes)
        return self._elements(node, run) if node.op_type in ELEMENTS else None

    def _below(self, node: Any, attributes: Mapping[str, Any]) -> Optional[Triangle]:
        value, dims = self.constants.get(node.input[0]), self.dims(node.input[0])
        if value is None or value.size != 1 or dims is None or len(dims) < 2 or all(isinstance(length, int) for length in dims[-2:]):
            return None
        shifted, upper = self.constants.get(node.input[1], np.ones(2)) if len(node.input) > 1 and node.input[1] else np.zeros(1, np.int64), attributes.get("upper", 1)
        if shifted.size != 1 or has_unknown(shifted):
            return None
        at, number = int(shifted.reshape(-1)[0]), value.reshape(-1)[0]
        if upper:  # column - row >= at
            return Triangle(np.array([0, number], value.dtype), list(dims), Band(1 - at, None))
        return Triangle(np.array([number, 0], value.dtype), list(dims), Band(-at, None))

    def _moved(self, node: Any, attributes: Mapping[str, Any]) -> Optional[Triangle]:
        """Axes of 1 in front of the last two."""
        given = self.found.get(node.input[0])
        if given is None:
            return None
        after, axes = self.dims(node.output[0]), self.constants.get(node.input[1]) if len(node.input) > 1 else np.array(attributes.get("axes", ()), np.int64)
        if node.op_type == "Unsqueeze" and axes is not None:
            rank = len(given.dims) + axes.size
            if all(int(axis) % rank < rank - 2 for axis in axes.reshape(-1)):
                return Triangle(given.values, ONE * axes.size + given.dims, given.band)
        elif node.op_type == "Expand" and after is not None and after[-2:] == given.dims[-2:]:
            return Triangle(given.values, ONE * (len(after) - len(given.dims)) + given.dims, given.band)
        return None

    def _elements(self, node: Any, run: Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]) -> Optional[Triangle]:
        given = [self.found.get(name) for name in node.input]
        triangles = [each for each in given if each is not None]
        if not triangles or any(each.dims[-2:] != triangles[0].dims[-2:] for each in triangles):
            return None
        if any(each.band != triangles[0].band for each in triangles):
            if node.op_type != "And" or not all(each.is_kept() for each in triangles) or len(triangles) != len(node.input):
                return None
            return Triangle(triangles[0].values, broadcast([each.dims for each in triangles]), triangles[0].band.within(triangles[1].band))
        values: Dict[str, np.ndarray] = {}
        shapes: List[Dims] = []
        for name, each in zip(node.input, given):
            alone = self.constants.get(name)
            if each is None and (alone is None or alone.size != 1 or has_unknown(alone)):
                return None
            wide = each.dims if each is not None else self.dims(name) or []
            shapes.append(wide)
            values[name] = each.values if each is not None else np.asarray(alone).reshape(-1)
        whole = broadcast(shapes)
        if any(length not in (1, last) for shape in shapes for length, last in zip(shape[-2:], triangles[0].dims[-len(shape[-2:]):])):
            return None
        return Triangle(np.broadcast_to(np.asarray(run(values)[0]), 2), whole, triangles[0].band)
