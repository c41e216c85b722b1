"""Triangles of lengths that only a request knows: causal masks that a graph computes. What is one number on and below the diagonal and another above it
is followed through Expand, ConstantOfShape, Trilu and elementwise operators; attention takes it as its causal."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import numpy as np

from ._onnx_lengths import Lengths, has_unknown
from ._onnx_ops import Dims

ELEMENTS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Where", "Cast", "Add", "Sub", "Mul", "Neg", "Identity")
SPREADS = ("Add", "Sub", "Mul", "Div", "Where", "Equal", "Greater", "Less")  # whose other operands give the shape


class Triangle:
    """values: on and below the diagonal, and above it. Of one shape whether both are equal or not."""

    def __init__(self, values: np.ndarray, dims: Dims) -> None:
        self.values, self.dims = values, dims

    def is_even(self) -> bool:
        return bool(self.values[0] == self.values[1])


class Triangles:
    def __init__(self, lengths: Lengths, constants: Mapping[str, np.ndarray]) -> None:
        self.lengths, self.constants, self.found = lengths, constants, {}  # type: Lengths, Mapping[str, np.ndarray], Dict[str, Triangle]

    def fold(self, node: Any, attributes: Mapping[str, Any], run: Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]) -> bool:
        """Whether the node's result is one."""
        made = self._spread(node, attributes) if node.op_type in ("Expand", "ConstantOfShape") else self._below(node, attributes) if node.op_type == "Trilu" else None
        if made is None and node.op_type in ELEMENTS:
            made = self._elements(node, run)
        if made is not None:
            self.found[node.output[0]] = made
        return made is not None

    def _shape(self, name: str) -> Optional[List[Any]]:
        values = self.constants.get(name)
        shape = [self.lengths.decode(int(number)) for number in values.reshape(-1)] if values is not None and values.dtype == np.int64 else []
        return shape if len(shape) > 0 and not all(isinstance(length, int) for length in shape) else None

    def _spread(self, node: Any, attributes: Mapping[str, Any]) -> Optional[Triangle]:
        shape = self._shape(node.input[-1])
        value = self.constants.get(node.input[0]) if node.op_type == "Expand" else attributes.get("value", np.zeros(1, np.float32))
        if shape is None or value is None or value.size != 1 or value.ndim > len(shape) or has_unknown(value):
            return None
        return Triangle(np.repeat(value.reshape(-1), 2), shape)

    def _below(self, node: Any, attributes: Mapping[str, Any]) -> Optional[Triangle]:
        given = self.found.get(node.input[0])
        if given is None or not given.is_even() or attributes.get("upper", 1) or len(given.dims) < 2:
            return None
        if len(node.input) > 1 and node.input[1] and np.any(self.constants.get(node.input[1], np.ones(1)) != 0):
            return None
        return Triangle(np.array([given.values[0], 0], given.values.dtype), given.dims)

    def _elements(self, node: Any, run: Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]) -> Optional[Triangle]:
        given = [self.found.get(name) for name in node.input]
        triangles = [each for each in given if each is not None]
        if not triangles or any(each.dims != triangles[0].dims for each in triangles):
            return None
        values: Dict[str, np.ndarray] = {}
        for name, each in zip(node.input, given):
            alone = self.constants.get(name)
            if each is None and (alone is None or alone.size != 1 or alone.ndim > len(triangles[0].dims) or has_unknown(alone)):
                return None
            values[name] = each.values if each is not None else np.asarray(alone).reshape(-1)
        return Triangle(np.broadcast_to(np.asarray(run(values)[0]), 2), triangles[0].dims)

    def number(self, node: Any, name: str, dims: Mapping[str, Dims]) -> Optional[np.ndarray]:
        """The one number that it is, where another operand has its shape."""
        each = self.found.get(name)
        if each is None or not each.is_even() or node.op_type not in SPREADS:
            return None
        return each.values[:1].reshape(()) if any(dims.get(other) == each.dims for other in node.input if other != name) else None
