"""Positions of lengths that only a request knows: what a graph counts with Range, and looks up, compares and adds up.

A grid is an integer for each place of a tensor: a number plus indices times numbers. Reads of a tensor at a grid that are its own elements again are
reshapes, comparisons of grids are triangles or one truth; where numbers are needed they are counted in a request, by sums of ones."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from .chain import Chain, Node
from .lengths import Lengths, broadcast, has_unknown
from .ops import ONE, Dims, Unsupported, shape_by
from .triangles import Band, Triangle

Terms = Dict[int, int]  # what an index along an axis is multiplied by; a length is its number in computed shapes
COMPARED = {"Less": "lt", "LessOrEqual": "le", "Greater": "gt", "GreaterOrEqual": "ge", "Equal": "eq"}


class Grid:
    def __init__(self, dims: Dims, terms: Terms, offset: int = 0) -> None:
        self.dims, self.terms, self.offset = dims, terms, offset

    def raised(self, rank: int) -> "Grid":
        """With axes of 1 in front."""
        more = rank - len(self.dims)
        return Grid(ONE * more + self.dims, {axis + more: factor for axis, factor in self.terms.items()}, self.offset)

    def under(self, dims: Dims) -> Optional["Grid"]:
        """With other axes of 1, whose lengths may be left out (None)."""
        places = [place for place, length in enumerate(dims) if length != 1]
        axes = [axis for axis, length in enumerate(self.dims) if length != 1]
        if len(places) != len(axes) or any(dims[place] not in (None, self.dims[axis]) for place, axis in zip(places, axes)):
            return None
        at = dict(zip(axes, places))
        if any(axis not in at for axis in self.terms):
            return None
        return Grid([self.dims[axes[places.index(place)]] if place in places else 1 for place in range(len(dims))],
                    {at[axis]: factor for axis, factor in self.terms.items()}, self.offset)


class Truth:
    """One value at each place."""

    def __init__(self, value: bool, dims: Dims) -> None:
        self.value, self.dims = value, dims


Made = Union[None, Grid, Truth, Triangle]


def input_with(dims: Mapping[str, Dims], inputs: Sequence[str], word: Any) -> Tuple[str, int]:
    """An input that has the length, and where: the one of the lowest rank."""
    for name in sorted(inputs, key=lambda name: len(dims.get(name, []))):
        if word in dims.get(name, []):
            return name, dims[name].index(word)
    raise Unsupported("it counts up to a length that no input has")


class Positions:
    def __init__(self, chain: Chain, lengths: Lengths, dims: Dict[str, Dims], types: Dict[str, str], inputs: Sequence[str]) -> None:
        self.chain, self.lengths, self.dims, self.types, self.inputs = chain, lengths, dims, types, inputs
        self.found: Dict[str, Grid] = {}
        self.tuples: Dict[str, List[str]] = {}  # grids side by side along a last axis: indices of GatherND
        self.counted: Dict[Any, str] = {}

    # --- what is a grid -------------------------------------------------------------------------------------------------------

    def fold(self, node: Any, attributes: Mapping[str, Any]) -> Made:
        if node.op_type == "Range":
            return self._range(node)
        if not any(name in self.found for name in node.input):
            return None
        if node.op_type == "Concat":
            return self._concat(node, attributes)
        if node.op_type == "GatherND":
            return self._composed(node, attributes)
        if node.op_type == "Slice":
            return self._sliced(node)
        given = self._given(node.input)
        if given is None:
            return self._moved(node, attributes) if node.input[0] in self.found else None
        if node.op_type in ("Identity", "Cast") and (node.op_type == "Identity" or attributes.get("to") == 7):
            return given[0]
        if node.op_type in ("Unsqueeze", "Squeeze", "Reshape", "Expand"):
            return self._moved(node, attributes)
        if len(given) != 2:
            return None
        a, b = (each.raised(max(len(other.dims) for other in given)) for each in given)
        if node.op_type in ("Add", "Sub"):
            return self._sum(a, b, -1 if node.op_type == "Sub" else 1)
        if node.op_type == "Mul":
            return self._product(a, b)
        return self._compared(a, b, COMPARED[node.op_type]) if node.op_type in COMPARED else None

    def _given(self, names: Sequence[str]) -> Optional[List[Grid]]:
        """The operands as grids. A length that is no grid's axis is a number."""
        grids = []
        for name in names:
            values = self.chain.constants.get(name)
            if name in self.found:
                grids.append(self.found[name])
            elif values is None or values.size != 1 or values.dtype != np.int64:
                return None
            else:
                grids.append(Grid([1] * values.ndim, {}, int(values.reshape(-1)[0])))
        return grids

    def _numbers(self, name: str) -> Optional[List[Any]]:
        values = self.chain.constants.get(name)
        return None if values is None or values.dtype != np.int64 else [self.lengths.decode(int(number)) for number in values.reshape(-1)]

    def _range(self, node: Any) -> Optional[Grid]:
        values = [self.chain.constants.get(name) for name in node.input]
        if any(each is None or each.dtype != np.int64 or each.size != 1 for each in values):
            return None
        start, limit, step = (int(each.reshape(-1)[0]) for each in values if each is not None)
        if has_unknown(np.array([start, step])) or step != 1 or start != 0 or not has_unknown(np.array([limit])):
            return None
        return Grid([self.lengths.decode(limit)], {0: 1})

    def _moved(self, node: Any, attributes: Mapping[str, Any]) -> Optional[Grid]:
        grid = self.found[node.input[0]]
        numbers = self._numbers(node.input[1]) if len(node.input) > 1 else [int(axis) for axis in attributes.get("axes", ())]
        if numbers is None or node.op_type not in ("Unsqueeze", "Squeeze", "Reshape", "Expand"):
            return None
        if node.op_type == "Unsqueeze":
            rank = len(grid.dims) + len(numbers)
            new, rest = sorted(int(axis) % rank for axis in numbers), iter(grid.dims)
            return grid.under([1 if place in new else next(rest) for place in range(rank)])
        if node.op_type == "Squeeze":
            gone = [int(axis) % len(grid.dims) for axis in numbers]
            return grid.under([length for place, length in enumerate(grid.dims) if place not in gone and (numbers or length != 1)])
        if node.op_type == "Reshape":
            return grid.under([grid.dims[place] if length == 0 else None if length == -1 else length for place, length in enumerate(numbers)])
        wide = grid.raised(max(len(numbers), len(grid.dims)))
        numbers = [1] * (len(wide.dims) - len(numbers)) + numbers
        if any(length != 1 and wanted not in (1, length) for length, wanted in zip(wide.dims, numbers)):
            return None
        return Grid([wanted if length == 1 else length for length, wanted in zip(wide.dims, numbers)], wide.terms, wide.offset)

    def _concat(self, node: Any, attributes: Mapping[str, Any]) -> Optional[Grid]:
        """As indices side by side they are a tuple; one number in front of a grid that goes on from it makes it longer."""
        grids = [self.found.get(name) for name in node.input]
        known = [grid for grid in grids if grid is not None]
        axis = attributes["axis"] % len(known[0].dims)
        if len(known) < len(grids):
            return None
        if all(grid.dims[-1:] == [1] and axis == len(grid.dims) - 1 for grid in known):
            self.tuples[node.output[0]] = list(node.input)
            return None
        first, rest = known[0], known[-1]
        factor = rest.terms.get(axis)
        others = [{place: number for place, number in grid.terms.items() if place != axis} for grid in known]
        if len(known) != 2 or first.dims[axis] != 1 or factor is None or others[0] != others[1] or first.offset + factor != rest.offset:
            return None
        if [length for place, length in enumerate(first.dims) if place != axis] != [length for place, length in enumerate(rest.dims) if place != axis]:
            return None
        longer = self.lengths.length([number + 1 for number in self.lengths.trial(rest.dims[axis])])
        return Grid([longer if place == axis else length for place, length in enumerate(rest.dims)], rest.terms, first.offset)

    def _composed(self, node: Any, attributes: Mapping[str, Any]) -> Optional[Grid]:
        """A grid read at indices that are grids."""
        grid, names = self.found.get(node.input[0]), self.tuples.get(node.input[1], [])
        if grid is None or len(names) != len(grid.dims) or attributes.get("batch_dims", 0):
            return None
        places = [self.found[name] for name in names]
        whole = Grid(broadcast([place.dims for place in places]), {}, grid.offset)
        for axis, factor in grid.terms.items():
            part = self._product(places[axis], Grid([], {}, factor).raised(len(whole.dims)))
            whole_or_none = self._sum(whole, part, 1) if part is not None else None
            if whole_or_none is None:
                return None
            whole = whole_or_none
        return Grid(whole.dims[:-1], whole.terms, whole.offset)

    def _sliced(self, node: Any) -> Optional[Grid]:
        """From a number on, to an end that is as far from the axis's own whatever its length."""
        grid, lists = self.found.get(node.input[0]), [self._numbers(name) for name in node.input[1:] if name]
        if grid is None or len(lists) < 3 or any(each is None or len(each) != 1 for each in lists) or lists[3:] not in ([], [[1]]):
            return None
        start, end, axis = (each[0] for each in lists[:3] if each is not None)
        axis %= len(grid.dims)
        length = grid.dims[axis]
        if not isinstance(start, int) or start < 0 or isinstance(end, int) and (end <= start or not isinstance(length, int) and (start, end) != (0, 1)):
            return None
        apart = {a - b for a, b in zip(self.lengths.trial(length), self.lengths.trial(end))}
        if not isinstance(end, int) and (len(apart) != 1 or min(apart) < 0):
            return None
        cut = min(end, length) - start if isinstance(end, int) and isinstance(length, int) else 1 if isinstance(end, int) else self.lengths.length([number - start for number in self.lengths.trial(end)])
        terms = {place: factor for place, factor in grid.terms.items() if place != axis or cut != 1}
        return Grid([cut if place == axis else each for place, each in enumerate(grid.dims)], terms, grid.offset + start * grid.terms.get(axis, 0))

    def _sum(self, a: Grid, b: Grid, sign: int) -> Optional[Grid]:
        if any(has_unknown(np.array([number], np.int64)) for each in (a, b) for number in (each.offset, *(each.terms.values() if sign < 0 else ()))):
            return None
        terms = dict(a.terms)
        for axis, factor in b.terms.items():
            if axis in terms and has_unknown(np.array([factor, terms[axis]], np.int64)):
                return None
            terms[axis] = terms[axis] + sign * factor if axis in terms else sign * factor
        return Grid(broadcast([a.dims, b.dims]), {axis: factor for axis, factor in terms.items() if factor}, a.offset + sign * b.offset)

    def _product(self, a: Grid, b: Grid) -> Optional[Grid]:
        if a.terms and b.terms:
            return None
        grid, number = (a, b.offset) if a.terms else (b, a.offset)
        if grid.offset or has_unknown(np.array([number], np.int64)) and any(factor != 1 for factor in grid.terms.values()):
            return None
        return Grid(broadcast([a.dims, b.dims]), {axis: factor * number for axis, factor in grid.terms.items()})

    def _compared(self, a: Grid, b: Grid, function: str) -> Made:
        """a - b against 0, which is known where indices, 0 and more, are counted in one direction, or is a band along the last two axes."""
        apart = self._sum(a, b, -1)
        if apart is None:
            return None
        if function == "eq":
            return Truth(apart.offset == 0, apart.dims) if not apart.terms else None
        if function in ("le", "lt"):  # as 0 - (a - b)
            apart = Grid(apart.dims, {axis: -factor for axis, factor in apart.terms.items()}, -apart.offset)
        least = apart.offset - (function in ("gt", "lt"))  # + terms >= 0
        if all(factor > 0 for factor in apart.terms.values()) and least >= 0:
            return Truth(True, apart.dims)
        if all(factor < 0 for factor in apart.terms.values()) and least < 0:
            return Truth(False, apart.dims)
        row, column = len(apart.dims) - 2, len(apart.dims) - 1
        if set(apart.terms) != {row, column} or sorted(apart.terms.values()) != [-1, 1] or apart.dims[row] != apart.dims[column]:
            return None
        if apart.terms[row] > 0:  # row - column >= -least
            return Triangle(np.array([True, False]), apart.dims, Band(-least, None))
        if least == -1:  # above the diagonal
            return Triangle(np.array([False, True]), apart.dims, Band(0, None))
        return Triangle(np.array([True, False]), apart.dims, Band(None, least))

    # --- reads that are reshapes ------------------------------------------------------------------------------------------------

    def read(self, node: Any, attributes: Mapping[str, Any]) -> Optional[Tuple[str, Dims, Dims]]:
        """What a lookup at a grid is a reshape of, what it has of lengths by itself, and what it has as ONNX says."""
        if node.op_type == "GatherND" and node.input[1] in self.tuples and not attributes.get("batch_dims", 0):
            return self._read_all(node.input[0], [self.found[name] for name in self.tuples[node.input[1]]])
        grid = self.found.get(node.input[1]) if node.op_type == "Gather" and node.input[0] in self.dims else None
        if grid is None or attributes.get("axis", 0) != 0:
            return None
        made, source = self.chain.makers().get(node.input[0]), node.input[0]
        flat = made is not None and made.op == "reshape"
        if made is not None and flat and made.inputs[0] in self.dims:
            source = made.inputs[0]
        return self._read_flat(source, grid, self.dims[node.input[0]][1:])

    def _read_all(self, data: str, grids: Sequence[Grid]) -> Optional[Tuple[str, Dims, Dims]]:
        before = self.dims[data]
        if len(grids) > len(before) or any(list(grid.terms.values()) != [1] or grid.offset for grid in grids):
            return None
        axes = [next(iter(grid.terms)) for grid in grids]
        if axes != sorted(set(axes)) or any(grid.dims[axis] != length for grid, axis, length in zip(grids, axes, before)):
            return None
        whole = broadcast([grid.dims for grid in grids])[:-1]
        narrow = [whole[axis] if axis in axes else 1 for axis in range(len(whole))]
        return data, narrow + before[len(grids):], whole + before[len(grids):]

    def _read_flat(self, source: str, grid: Grid, rest: Dims) -> Optional[Tuple[str, Dims, Dims]]:
        """Axes in front that were joined to one, read at a grid that has their strides."""
        before, axes = self.dims[source], sorted(grid.terms)
        count = len(axes)
        if grid.offset or [grid.dims[axis] for axis in axes] != before[:count] or [length for length in before[count:] if length != 1] != [length for length in rest if length != 1]:
            return None
        for place, axis in enumerate(axes):
            if self.lengths.product(before[place + 1:count]) != self.lengths.trial(self.lengths.decode(grid.terms[axis])):
                return None
        narrow = [length if axis in axes else 1 for axis, length in enumerate(grid.dims)]
        return source, narrow + list(rest), list(grid.dims) + list(rest)

    # --- numbers ----------------------------------------------------------------------------------------------------------------

    def source(self, word: Any) -> Tuple[str, int]:
        """An input of the model that has the length, and where."""
        return input_with(self.dims, self.inputs, word)

    def count(self, word: Any) -> str:
        """0, 1, 2, .. up to the length."""
        if word not in self.counted:
            name, axis = self.source(word)
            made = self.counted[word] = self.chain.fresh("positions")
            self.chain.nodes.append(Node("positions", [name], [made], {"axis": axis}))
            self.dims[made], self.types[made] = [word], "INT64"
        return self.counted[word]

    def place(self, name: str) -> None:
        """The grid as a value; of its axes along which it is even 1 is left."""
        grid = self.found[name]
        dims, parts = grid.dims, []
        if has_unknown(np.array([grid.offset, *grid.terms.values()], np.int64)):
            raise Unsupported("'%s' has lengths that only a request knows" % name)
        for axis, factor in sorted(grid.terms.items()):
            shape = [length if place == axis else 1 for place, length in enumerate(dims)]
            part = self._add("reshape", [self.count(dims[axis])], shape, name, shape=shape_by([dims[axis]], shape))
            parts.append(part if factor == 1 else self._add("map", [part], shape, name, op="mul", a=float(factor)))
        if not parts:
            self.chain.constants[name] = np.full((1,) * len(dims), grid.offset, np.int64)
            self.dims[name] = [1] * len(dims)
            return
        whole = parts[0]
        for part in parts[1:]:
            whole = self._add("map", [whole, part], broadcast([self.dims[whole], self.dims[part]]), name, op="add")
        dims = list(self.dims[whole])
        self._add("map", [whole], dims, name, True, op="add", a=float(grid.offset)) if grid.offset else self._add("reshape", [whole], dims, name, True, shape=[0] * len(dims))

    def _add(self, op: str, inputs: Sequence[str], dims: Dims, stem: str, last: bool = False, /, **parameters: Any) -> str:
        name = stem if last else self.chain.fresh(stem)
        self.chain.nodes.append(Node(op, inputs, [name], parameters))
        self.dims[name], self.types[name] = list(dims), "INT64"
        return name
