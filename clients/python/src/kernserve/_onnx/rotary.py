"""Rotary positions: x cos + (its halves changed for each other, one with another sign) sin, on heads that lie in front of rows. In the order that the
projection has, so that no transpose is left, with the sign in a table of sines that all layers share."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from .attention import SWAPPED
from .chain import Node, View
from .moves import Better, _node
from .ops import shape_by


def rotary(view: View, node: Node) -> Better:
    if not node.is_map("add") or len(node.inputs) != 2:
        return None
    for plain, turned in (node.inputs, node.inputs[::-1]):
        found = _found(view, plain, turned)
        if found is not None:
            return _made(view, node, *found)
    return None


def _found(view: View, plain: str, turned: str) -> Optional[Tuple[Node, str, str, int]]:
    """The transpose that made x, cosines, sines, and half of the depth."""
    cosine, sine = view.map_of(plain, "mul"), view.map_of(turned, "mul")
    if cosine is None or sine is None or len(cosine.inputs) != 2 or len(sine.inputs) != 2:
        return None
    for x, angles in (cosine.inputs, cosine.inputs[::-1]):
        made = view.makers.get(x)
        for halves, others in (sine.inputs, sine.inputs[::-1]):
            half = _half(view, halves, x) if made is not None and made.op == "transpose" and made.parameters["perm"] == SWAPPED else None
            if made is None or half is None:
                continue
            if all(_is_table(view, name, 2 * half) for name in (angles, others)):
                return made, angles, others, half
    return None


def _half(view: View, name: str, x: str) -> Optional[int]:
    """Of concat(-x[half:], x[:half])."""
    joined, dims = view.makers.get(name), view.chain.dims.get(x)
    if joined is None or joined.op != "concat" or len(joined.inputs) != 2 or joined.parameters["axis"] not in (-1, 3) or dims is None or len(dims) != 4 or not isinstance(dims[3], int):
        return None
    negated, first = view.map_of(joined.inputs[0], "neg"), view.makers.get(joined.inputs[1])
    last, half = view.makers.get(negated.inputs[0]) if negated is not None else None, dims[3] // 2
    if first is None or last is None or dims[3] % 2 or any(each.op != "slice" or each.inputs[0] != x or each.parameters["axis"] != 3 or each.parameters.get("step", 1) not in (None, 1) for each in (first, last)):
        return None
    ends = [(each.parameters["start"], each.parameters.get("end") or dims[3]) for each in (first, last)]
    return half if ends == [(0, half), (half, dims[3])] else None


def _is_table(view: View, name: str, depth: int) -> bool:
    """[B or 1, 1, rows, depth]."""
    dims = view.chain.dims.get(name)
    return dims is not None and len(dims) == 4 and dims[1] == 1 and dims[3] == depth and name not in view.chain.constants


def _made(view: View, node: Node, made: Node, cosine: str, sine: str, half: int) -> Better:
    chain, x, stem = view.chain, made.inputs[0], node.outputs[0]
    dims = chain.dims.get(x)
    if dims is None or chain.types.get(made.outputs[0], "FP32") != "FP32":
        return None
    nodes: List[Node] = []

    def add(op: str, inputs: Sequence[str], shape: Sequence[Any], /, **parameters: Any) -> str:
        nodes.append(_node(view, op, inputs, chain.fresh_of(nodes, stem), shape, stem, **parameters))
        return nodes[-1].outputs[0]

    signs = chain.fresh(stem + ".signs")
    chain.constants[signs] = np.repeat(np.array([-1, 1], np.float32), half)
    chain.ranks[signs] = 1
    signed = add("map", [sine, signs], chain.dims[sine], op="mul")
    tables = []
    for name in (cosine, signed):
        before = chain.dims[name]
        after = [before[0], before[2], 1, before[3]]
        tables.append(add("reshape", [name], after, shape=shape_by(before, after)))
    ends = [*dims[:3], half]
    parts = [add("slice", [x], ends, axis=3, start=start, end=start + half) for start in (half, 0)]
    turned = add("concat", parts, dims, axis=3)
    straight = add("map", [x, tables[0]], dims, op="mul")
    whole = add("map", [turned, tables[1], straight], dims, op="fma")
    return [*nodes, Node("transpose", [whole], node.outputs, {"perm": SWAPPED})]
