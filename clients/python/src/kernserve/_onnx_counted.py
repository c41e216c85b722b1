"""What a request is to count: positions, and triangles that attention did not take, as nodes of the daemon. The last step, when patterns are found."""

from __future__ import annotations

from typing import Any, List, Sequence

import numpy as np

from ._onnx_chain import Chain, Node, join_equals
from ._onnx_positions import input_with


def count(chain: Chain, inputs: Sequence[str]) -> None:
    nodes: List[Node] = []
    for node in chain.nodes:
        nodes += _triangle(chain, node, inputs) if node.op == "triangle" else [node]
    chain.nodes, nodes = nodes, []
    for node in chain.nodes:
        nodes += _positions(chain, node) if node.op == "positions" else [node]
    chain.nodes = nodes
    chain.drop_aliases()
    join_equals(chain)
    chain.drop_unused()


def _positions(chain: Chain, node: Node) -> List[Node]:
    """0, 1, 2, .. along an axis of an input, of whose other axes the first element is enough."""
    name, axis, made = node.inputs[0], int(node.parameters["axis"]), []  # type: str, int, List[Node]
    for place, length in enumerate(chain.dims[name]):
        if place != axis and length != 1:
            made.append(Node("slice", [name], [chain.fresh_of(made, node.outputs[0])], {"axis": place, "start": 0, "end": 1}))
            name = made[-1].outputs[0]
    steps: List[Any] = [("reshape", {"shape": [-1]}), ("map", {"op": "cast", "out_datatype": "INT32"}), ("map", {"op": "clamp", "a": 1.0, "b": 1.0})]
    for op, parameters in steps:
        made.append(Node(op, [name], [chain.fresh_of(made, node.outputs[0])], parameters))
        name = made[-1].outputs[0]
    return [*made, Node("scan", [name], node.outputs, {"axis": 0, "exclusive": True})]


def _triangle(chain: Chain, node: Node, inputs: Sequence[str]) -> List[Node]:
    dims, values, band = chain.dims[node.outputs[0]], node.parameters["values"], node.parameters["band"]
    made: List[Node] = []

    def add(op: str, names: Sequence[str], /, **parameters: Any) -> str:
        made.append(Node(op, names, [chain.fresh_of(made, node.outputs[0])], parameters))
        return made[-1].outputs[0]

    def number(value: Any, dtype: Any) -> str:
        name = chain.fresh_of(made, node.outputs[0])
        chain.constants[name] = np.array(value, dtype)
        return name

    ends = []
    for length, shape in ((dims[-2], [-1, 1]), (dims[-1], [1, -1])):
        name, axis = input_with(chain.dims, inputs, length)
        counted = add("positions", [name], axis=axis)
        ends.append(add("reshape", [counted], shape=shape))
    apart = add("map", ends, op="sub")
    tests = [add("map", [apart], op=op, a=float(end)) for op, end in (("ge", band.low), ("le", band.high)) if end is not None]
    inside = tests[0] if len(tests) == 1 else add("map", tests, op="and")
    if values.dtype != np.bool_:
        inside = add("map", [inside, number(values[0], values.dtype), number(values[1], values.dtype)], op="where")
    elif not values[0]:
        inside = add("map", [inside], op="not")
    rank = len(dims)
    return [*made, Node("reshape", [inside], node.outputs, {"shape": [1] * (rank - 2) + [-2, -3]} if rank > 2 else {"shape": [0, 0]})]
