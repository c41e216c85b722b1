"""Values that are the same along an axis whose length only a request knows have 1 there as long as nobody minds: Expand, ConstantOfShape and masks
of lengths make them, elementwise operators broadcast them. Where the length itself is needed they are spread out."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Optional, Sequence

import numpy as np

from .chain import Chain, Node
from .lengths import broadcast
from .ops import ELEMENTS, ONE, Dims, Unsupported, is_repeat, shape_by

REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")


def places_of(before: Dims, after: Sequence[Any]) -> Optional[List[Optional[int]]]:
    """Of each axis of after the axis of before, None for one of 1, where only such come and go. An unknown length (None) is whatever it was."""
    axes = [axis for axis, length in enumerate(before) if length != 1]
    wanted = [place for place, length in enumerate(after) if length != 1]
    if len(axes) != len(wanted) or any(after[place] is not None and after[place] != before[axis] for place, axis in zip(wanted, axes)):
        return None
    rest = iter(axes)
    return [next(rest) if length != 1 else None for length in after]


class Narrow:
    def __init__(self, chain: Chain, dims: Dict[str, Dims], types: Dict[str, str]) -> None:
        self.chain, self.here, self.types = chain, dims, types
        self.wide: Dict[str, Dims] = {}  # as ONNX has it, of what is narrower here
        self.spread_out: Dict[str, str] = {}

    def dims(self, name: str) -> Optional[Dims]:
        """As ONNX has them."""
        return self.wide.get(name, self.here.get(name))

    def note(self, name: str, here: Dims, wide: Optional[Dims]) -> None:
        self.here[name] = list(here)
        if wide is not None and list(wide) != list(here):
            self.wide[name] = list(wide)

    def after(self, node: Any, attributes: Mapping[str, Any]) -> Optional[Dims]:
        """What the result has as ONNX says, where the operator does with narrow operands what it does with wide ones."""
        shapes = [self.dims(name) for name in node.input if name]
        if any(shape is None for shape in shapes):
            return None
        known = [shape or [] for shape in shapes]
        if node.op_type in ELEMENTS:
            return broadcast(known)
        if node.op_type == "Transpose":
            return [known[0][axis] for axis in attributes.get("perm", range(len(known[0]))[::-1])]
        if node.op_type == "Gather" and node.input[0] not in self.wide:
            axis = attributes.get("axis", 0) % len(known[0])
            return [*known[0][:axis], *known[1], *known[0][axis + 1:]]
        if node.op_type in REDUCTIONS:
            return self._reduced(node, attributes, known[0])
        return None

    def _reduced(self, node: Any, attributes: Mapping[str, Any], wide: Dims) -> Optional[Dims]:
        values = self.chain.constants.get(node.input[1]) if len(node.input) > 1 else np.array(attributes.get("axes", ()))
        if values is None or not values.size:
            return None
        axes, here = [int(axis) % len(wide) for axis in values.reshape(-1)], self.here[node.input[0]]
        if any(here[axis] != wide[axis] for axis in axes):
            return None
        keep = attributes.get("keepdims", 1)
        return [1 if place in axes else length for place, length in enumerate(wide) if keep or place not in axes]

    def moved(self, name: str, after: Sequence[Any], output: str) -> bool:
        """A reshape that gives or takes axes of 1."""
        wide, here = self.dims(name) or [], self.here[name]
        places = places_of(wide, after)
        if places is None:
            return False
        narrow = [1 if place is None else here[place] for place in places]
        self._move(name, narrow, output)
        self.note(output, narrow, [1 if place is None else wide[place] for place in places])
        return True

    def _move(self, name: str, after: Dims, output: str) -> None:
        values = self.chain.constants.get(name)
        if values is not None:
            self.chain.constants[output] = values.reshape([length if isinstance(length, int) else -1 for length in after])
        else:
            self.add("reshape", [name], after, output, shape=shape_by(self.here[name], after))

    def expand(self, name: str, target: Dims, output: str) -> None:
        """Along axes of 1 they stay that long."""
        wide, here = self.dims(name) or [], self.here[name]
        rank = max(len(wide), len(target))
        wide, here, target = (ONE * (rank - len(each)) + list(each) for each in (wide, here, target))
        result = []
        for old, new in zip(wide, target):
            if old not in (1, new) and new != 1 and is_repeat(old, new):
                raise Unsupported("it repeats along an axis whose length is not known")
            result.append(new if old == 1 else old)
        self._move(name, here, output)
        self.note(output, here, result)

    def constant(self, name: str, values: np.ndarray, wide: Dims) -> None:
        """One number for all of it."""
        self.chain.constants[name] = values.reshape((1,) * len(wide))
        self.note(name, [1] * len(wide), wide)

    def spread(self, name: str, source: Any) -> str:
        """The value with its lengths. source: which input has one, and where."""
        if name not in self.wide or name in self.spread_out:
            return self.spread_out.get(name, name)
        wide, here, whole = self.wide[name], list(self.here[name]), name
        repeats = [length if own == 1 and isinstance(length, int) and length > 1 else 0 for own, length in zip(here, wide)]
        if any(repeats):
            here = [length or own for own, length in zip(here, repeats)]
            whole = self._repeated(name, here, repeats)
        for axis, length in enumerate(wide):
            if here[axis] != length:
                of, place = source(length)
                zeros = self._zeros(of, place, length, len(wide) - axis - 1, name)
                here[axis] = length
                whole = self.add("map", [whole, zeros], here, None, name, op="or" if self.types.get(name) == "BOOL" else "add")
        self.spread_out[name] = whole
        return whole

    def _repeated(self, name: str, here: Dims, repeats: Sequence[int]) -> str:
        values = self.chain.constants.get(name)
        if values is None:
            return self.add("expand", [name], here, None, name, shape=list(repeats))
        made = self.chain.fresh(name)
        self.chain.constants[made] = np.ascontiguousarray(np.broadcast_to(values, [length or own for own, length in zip(values.shape, repeats)]))
        self.here[made] = list(here)
        if name in self.types:
            self.types[made] = self.types[name]
        return made

    def _zeros(self, name: str, axis: int, length: Any, behind: int, stem: str) -> str:
        """0 as often as an input is long, then axes of 1."""
        part, dims = name, list(self.here[name])
        if axis == 0 and len(dims) > 1:
            part, dims = self.add("reshape", [part], [length, None], None, stem, shape=[0, -1]), [length, None]
        for place in range(len(dims)):
            if place != axis and dims[place] != 1:
                dims[place] = 1
                part = self.add("slice", [part], dims, None, stem, axis=place, start=0, end=1)
        shape = [length] + [1] * behind
        part = self.add("reshape", [part], shape, None, stem, shape=[-1] + [1] * behind)
        target = self.types.get(stem, "FP32")
        part = self.add("map", [part], shape, None, stem, op="cast", out_datatype="INT32")
        part = self.add("map", [part], shape, None, stem, op="clamp", a=0.0, b=0.0)
        return self.add("map", [part], shape, None, stem, op="cast", out_datatype=target)

    def add(self, op: str, inputs: Sequence[str], dims: Dims, output: Optional[str], stem: str = "", /, **parameters: Any) -> str:
        name = output or self.chain.fresh(stem)
        self.chain.nodes.append(Node(op, inputs, [name], parameters))
        self.here[name] = list(dims)
        if not output and stem in self.types:
            self.types[name] = str(parameters.get("out_datatype", self.types[stem]))
        return name


def one_value(values: np.ndarray) -> bool:
    return values.size > 0 and math.prod(values.shape) > 0 and bool(np.all(values == values.reshape(-1)[0]))
