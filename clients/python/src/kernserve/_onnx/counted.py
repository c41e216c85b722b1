"""What a request is to count: positions, and triangles that attention did not take, as nodes of the daemon. The last step, when patterns are found."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Set

import numpy as np

from .chain import Chain, Node, join_equals
from .ops import shape_by
from .positions import input_with

PAIRS_MOST = 6


def count(chain: Chain, inputs: Sequence[str], batch: Any) -> None:
    """batch: the word of the length in front."""
    nodes: List[Node] = []
    for node in chain.nodes:
        nodes += _triangle(chain, node, inputs) if node.op == "triangle" else [node]
    chain.nodes, nodes = nodes, []
    chain.drop_aliases()
    join_equals(chain)
    chain.drop_unused()
    rows = Rows(chain, batch)
    if rows.can_be():
        rows.make()
    else:
        for node in chain.nodes:
            nodes += _positions(chain, node) if node.op == "positions" else [node]
        chain.nodes = nodes
    chain.drop_aliases()
    join_equals(chain)
    chain.drop_unused()


class Rows:
    """Positions counted for each of the batch, and what follows from them alone: its rows then go their own ways, and the model takes max_batch. Only
    where little is counted for pairs of positions, which would be done for each of the batch."""

    def __init__(self, chain: Chain, batch: Any) -> None:
        self.chain, self.batch = chain, batch
        self.counted: Set[str] = set()  # values that follow from positions and constants

    def can_be(self) -> bool:
        chain, pairs = self.chain, 0
        if not self.batch or not any(node.op == "positions" for node in chain.nodes):
            return False
        for node in chain.nodes:
            given = [name for name in node.inputs if name]
            if node.op == "positions":
                dims = chain.dims[node.inputs[0]]
                if not dims or dims[0] != self.batch or node.parameters["axis"] == 0:
                    return False
                self.counted.add(node.outputs[0])
            elif any(name in self.counted for name in given):
                whole = self.dims(node.outputs[0])
                if whole is None or any(self.dims(name) is None for name in given):
                    return False
                if all(name in self.counted or name in chain.constants for name in given):
                    if not self._follows(node) or node.outputs[0] in chain.kept:
                        return False
                    self.counted.add(node.outputs[0])
                    pairs += sum(not isinstance(length, int) for length in whole) > 1
                elif not self._meets(node, whole):
                    return False
        return pairs <= PAIRS_MOST

    def dims(self, name: str) -> Optional[List[Any]]:
        values = self.chain.constants.get(name)
        return list(values.shape) if values is not None else self.chain.dims.get(name)

    def _follows(self, node: Node) -> bool:
        if node.op == "gather":
            return node.inputs[0] in self.chain.constants and not node.parameters.get("axis") and not node.parameters.get("kind")
        if node.op == "concat" and any(name in self.chain.constants for name in node.inputs):
            return False  # which have no batch
        return node.op in ("map", "reshape", "transpose", "concat", "slice") or node.op == "matmul" and len(node.inputs) == 2

    def _meets(self, node: Node, dims: List[Any]) -> bool:
        """An operand that is spread over the batch."""
        if not dims or dims[0] != self.batch or not (node.op == "map" or node.op == "attention" and not any(name in self.counted for name in node.inputs[:3])):
            return False
        ranks = [self.dims(name) or [] for name in node.inputs if name in self.counted]
        return all(len(each) < len(dims) or len(each) == len(dims) and each[0] == 1 for each in ranks)

    def make(self) -> None:
        nodes: List[Node] = []
        for node in self.chain.nodes:
            if node.outputs[0] in self.counted:
                nodes += self._raised(node)
            elif any(name in self.counted for name in node.inputs):
                made = self._lined_up(node, self.dims(node.outputs[0]) or [], [])
                nodes += [*made[:-1], Node(node.op, made[-1].inputs, node.outputs, node.parameters)]
            else:
                nodes.append(node)
        self.chain.nodes = nodes
        for name in self.counted:
            self.chain.dims[name] = [self.batch, *self.chain.dims[name]]
            self.chain.ranks[name] = len(self.chain.dims[name])

    def _lined_up(self, node: Node, dims: List[Any], made: List[Node]) -> List[Node]:
        """The operands with the batch in front of as many axes as the result has. The last one is the node."""
        inputs, made = [], list(made)
        for name in node.inputs:
            own = self.chain.dims.get(name, [])
            if name in self.counted and len(own) + 1 != len(dims):
                here = own[1:] if len(own) == len(dims) else [1] * (len(dims) - len(own) - 1) + own
                made.append(Node("reshape", [name], [self.chain.fresh_of(made, name)], {"shape": shape_by([self.batch, *own], [self.batch, *here])}))
                name = made[-1].outputs[0]
            inputs.append(name)
        return [*made, Node(node.op, inputs, node.outputs, node.parameters)]

    def _raised(self, node: Node) -> List[Node]:
        parameters, dims = dict(node.parameters), self.chain.dims[node.outputs[0]]
        if node.op == "positions":
            return _positions(self.chain, node, True)
        if node.op in ("map", "matmul"):
            return self._lined_up(node, [self.batch, *dims], [])
        if node.op == "reshape":
            parameters["shape"] = shape_by([self.batch, *self.chain.dims[node.inputs[0]]], [self.batch, *dims])
        elif node.op == "transpose":
            parameters["perm"] = [0, *(axis + 1 for axis in parameters["perm"])]
        elif node.op in ("concat", "slice"):
            parameters["axis"] = parameters["axis"] % len(dims) + 1
        return [Node(node.op, node.inputs, node.outputs, parameters)]


def _positions(chain: Chain, node: Node, rows: bool = False) -> List[Node]:
    """0, 1, 2, .. along an axis of an input, of whose other axes the first element is enough. rows: for each of the batch."""
    name, axis, made = node.inputs[0], int(node.parameters["axis"]), []  # type: str, int, List[Node]
    for place, length in enumerate(chain.dims[name]):
        if place != axis and length != 1 and not (rows and place == 0):
            made.append(Node("slice", [name], [chain.fresh_of(made, node.outputs[0])], {"axis": place, "start": 0, "end": 1}))
            name = made[-1].outputs[0]
    steps: List[Any] = [("map", {"op": "clamp", "a": 1.0, "b": 1.0})]
    if chain.types.get(node.inputs[0]) not in ("INT32", "INT64"):
        steps.insert(0, ("map", {"op": "cast", "out_datatype": "INT32"}))
    if len(chain.dims[node.inputs[0]]) != 1 + rows:
        steps.insert(0, ("reshape", {"shape": [0, -1] if rows else [-1]}))
    for op, parameters in steps:
        made.append(Node(op, [name], [chain.fresh_of(made, node.outputs[0])], parameters))
        name = made[-1].outputs[0]
    return [*made, Node("scan", [name], node.outputs, {"axis": 1 if rows else 0, "exclusive": True})]


def _triangle(chain: Chain, node: Node, inputs: Sequence[str]) -> List[Node]:
    dims, values, band = chain.dims[node.outputs[0]], node.parameters["values"], node.parameters["band"]
    made: List[Node] = []

    def add(op: str, names: Sequence[str], shape: List[Any], /, **parameters: Any) -> str:
        made.append(Node(op, names, [chain.fresh_of(made, node.outputs[0])], parameters))
        chain.dims[made[-1].outputs[0]] = shape
        return made[-1].outputs[0]

    def number(value: Any, dtype: Any) -> str:
        name = chain.fresh_of(made, node.outputs[0])
        chain.constants[name] = np.array(value, dtype)
        return name

    ends = []
    for length, shape in ((dims[-2], [-1, 1]), (dims[-1], [1, -1])):
        name, axis = input_with(chain.dims, inputs, length)
        counted = add("positions", [name], [length], axis=axis)
        ends.append(add("reshape", [counted], [length if extent == -1 else 1 for extent in shape], shape=shape))
    both = list(dims[-2:])
    apart = add("map", ends, both, op="sub")
    tests = [add("map", [apart], both, op=op, a=float(end)) for op, end in (("ge", band.low), ("le", band.high)) if end is not None]
    inside = tests[0] if len(tests) == 1 else add("map", tests, both, op="and")
    if values.dtype != np.bool_:
        inside = add("map", [inside, number(values[0], values.dtype), number(values[1], values.dtype)], both, op="where")
    elif not values[0]:
        inside = add("map", [inside], both, op="not")
    rank = len(dims)
    return [*made, Node("reshape", [inside], node.outputs, {"shape": [1] * (rank - 2) + [-2, -3]} if rank > 2 else {"shape": [0, 0]})]
