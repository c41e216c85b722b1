"""Transposes and reshapes that go: a transpose is moved behind what can be done before it, until it meets another, or moves nothing."""

from __future__ import annotations

import math
from typing import Any, List, Optional, Sequence, Union

import numpy as np

from .chain import Node, View
from .ops import shape_by

Better = Union[None, Node, List[Node]]


def _lengths(view: View, name: str) -> Optional[List[Any]]:
    """A value's dimensions, None for a length that is not known; None: not even the rank is."""
    if name in view.chain.constants:
        return list(view.chain.constants[name].shape)
    dims = view.chain.dims.get(name)
    return None if dims is None else [length if isinstance(length, int) else None for length in dims]


def same_but_ones(a: Optional[Sequence[Any]], b: Optional[Sequence[Any]]) -> bool:
    """Alike but for dimensions of 1, wherever these stand."""
    if a is None or b is None or list(a).count(None) > 1:
        return False
    return [length for length in a if length != 1] == [length for length in b if length != 1]


def _node(view: View, op: str, inputs: Sequence[str], output: Optional[str], dims: Optional[Sequence[Any]], stem: str, /,
          **parameters: Any) -> Node:
    """A node; where no output is named, a new value."""
    name = output or view.chain.fresh(stem)
    view.chain.ranks[name] = len(dims) if dims is not None else view.chain.ranks.get(name, 0)
    if dims is not None:
        view.chain.dims[name] = list(dims)
    return Node(op, inputs, [name], parameters)


def reshape_to(dims: Sequence[Any]) -> Optional[List[int]]:
    """A reshape's shape: one unknown length takes the rest."""
    unknown = [length for length in dims if not isinstance(length, int)]
    return None if len(unknown) > 1 else [length if isinstance(length, int) else -1 for length in dims]


def _transpose(view: View, name: str) -> Optional[Node]:
    made = view.makers.get(name)
    return made if made is not None and made.op == "transpose" else None


def reshapes(view: View, node: Node) -> Better:
    """A reshape of a reshape is one; to the shape that there was it is none. A transpose that moves nothing but ones is a reshape."""
    dims = _lengths(view, node.outputs[0])
    return _still(view, node) if node.op == "transpose" else _joined(view, node, dims) if node.op == "reshape" and not node.is_alias() else None


def _still(view: View, node: Node) -> Better:
    perm, source = node.parameters["perm"], _lengths(view, node.inputs[0])
    if perm == sorted(perm):
        return Node("reshape", node.inputs, node.outputs, {"shape": [0] * len(perm)})
    if source is None or [axis for axis in perm if source[axis] != 1] != [axis for axis in range(len(perm)) if source[axis] != 1]:
        return None
    shape = reshape_to([source[axis] for axis in perm])
    return Node("reshape", node.inputs, node.outputs, {"shape": shape}) if shape is not None else None


def _joined(view: View, node: Node, dims: Optional[List[Any]]) -> Better:
    made, source = view.makers.get(node.inputs[0]), node.inputs[0]
    if made is not None and made.op == "reshape":
        source = made.inputs[0]
    words = [view.chain.dims.get(name) for name in (source, node.outputs[0])]
    named = words[0] is not None and words[0] == words[1] and None not in words[0]
    if dims is not None and (named or _lengths(view, source) == dims and dims.count(None) <= 1):
        return Node("reshape", [source], node.outputs, {"shape": [0] * len(dims)})
    if source == node.inputs[0]:
        return None
    if all(length > 0 or length == -1 for length in node.parameters["shape"]) and node.parameters["shape"].count(-1) < 2:
        return Node("reshape", [source], node.outputs, node.parameters)
    shape = shape_by(words[0], words[1]) if words[0] is not None and words[1] is not None else [-1, -1]
    return Node("reshape", [source], node.outputs, {"shape": shape}) if shape.count(-1) < 2 else None


def transposes(view: View, node: Node) -> Better:
    """Of a transpose, of a map, of a reduction."""
    made = _transpose(view, node.inputs[0]) if node.inputs else None
    if node.op == "transpose" and made is not None:
        return Node("transpose", made.inputs, node.outputs, {"perm": [made.parameters["perm"][axis] for axis in node.parameters["perm"]]})
    if node.op == "map":
        return _map(view, node)
    if made is None or not view.alone(node.inputs[0]):
        return None
    if node.op == "reduce":
        return _reduce(view, node, made)
    return _reshape(view, node, made) or _merged(view, node, made) if node.op == "reshape" else None


def _map(view: View, node: Node) -> Better:
    """Elements are the same wherever they stand: constants are turned with them."""
    found = [_transpose(view, name) for name in node.inputs]
    perms = [made.parameters["perm"] for made in found if made is not None]
    if not perms or any(perm != perms[0] for perm in perms):
        return None
    perm = perms[0]
    inputs: List[str] = []
    back = [perm.index(axis) for axis in range(len(perm))]
    for name, made in zip(node.inputs, found):
        values = view.chain.constants.get(name)
        if made is not None and view.uses.get(name, 0) == node.inputs.count(name):
            inputs.append(made.inputs[0])
        elif made is None and values is not None and values.ndim <= len(perm):
            if values.size > 1:
                turned = np.ascontiguousarray(values.reshape((1,) * (len(perm) - values.ndim) + values.shape).transpose(back))
                name = view.chain.fresh(name)
                view.chain.constants[name], view.chain.ranks[name] = turned, turned.ndim
            inputs.append(name)
        else:
            return None
    dims = _lengths(view, node.outputs[0])
    inner = _node(view, "map", inputs, None, [dims[axis] for axis in back] if dims is not None else None, node.outputs[0], **node.parameters)
    return [inner, Node("transpose", inner.outputs, node.outputs, {"perm": perm})]


def _reduce(view: View, node: Node, made: Node) -> Better:
    perm, axes, dims = made.parameters["perm"], node.parameters["axis"], _lengths(view, made.inputs[0])
    if not isinstance(axes, (list, tuple)):
        return None
    if dims is None or node.parameters["op"] in ("argmax", "argmin"):
        return None
    gone = sorted(perm[axis % len(perm)] for axis in axes)
    left = [axis for axis in range(len(perm)) if axis not in gone]
    keepdims = node.parameters["keepdims"]
    after = [1 if axis in gone else dims[axis] for axis in range(len(perm))] if keepdims else [dims[axis] for axis in left]
    inner = _node(view, "reduce", made.inputs, None, after, node.outputs[0], **dict(node.parameters, axis=gone))
    turned = perm if keepdims else [left.index(axis) for axis in perm if axis not in gone]
    return [inner, Node("transpose", inner.outputs, node.outputs, {"perm": turned})]


def _reshape(view: View, node: Node, made: Node) -> Better:
    """A reshape that does nothing but insert or remove dimensions of 1."""
    perm, source = made.parameters["perm"], _lengths(view, made.inputs[0])
    before, after = _lengths(view, node.inputs[0]), _lengths(view, node.outputs[0])
    if source is None or before is None or after is None or not same_but_ones(before, after) or source.count(None) > 1:
        return None
    axes = [perm[axis] for axis, length in enumerate(before) if length != 1]  # of the source, in the order of the result
    inner_axes = sorted(axes)
    ones = after.count(1)
    inner_dims = [source[axis] for axis in inner_axes] + [1] * ones
    shape = reshape_to(inner_dims)
    if shape is None:
        return None
    rest, one = iter(axes), iter(range(len(axes), len(axes) + ones))
    turned = [next(one) if length == 1 else inner_axes.index(next(rest)) for length in after]
    inner = _node(view, "reshape", made.inputs, None, inner_dims, node.outputs[0], shape=shape)
    return [inner, Node("transpose", inner.outputs, node.outputs, {"perm": turned})]


def _merged(view: View, node: Node, made: Node) -> Better:
    """A reshape that joins axes which lie side by side in front of the transpose, too."""
    perm, source, before, after = made.parameters["perm"], _lengths(view, made.inputs[0]), _lengths(view, node.inputs[0]), _lengths(view, node.outputs[0])
    if source is None or before is None or after is None or len(after) >= len(before) or source.count(None) > 1:
        return None
    groups: List[List[int]] = []
    rest = list(range(len(before)))
    for length in after:
        group = [rest.pop(0)] if rest else []
        while rest and None not in (length, before[group[-1]], before[rest[0]]) and math.prod(before[axis] or 0 for axis in group) < (length or 0):
            group.append(rest.pop(0))
        axes = [perm[axis] for axis in group]
        if not group or [before[axis] for axis in group] != [None] and math.prod(before[axis] or 0 for axis in group) != length or axes != list(range(axes[0], axes[0] + len(axes))):
            return None
        groups.append(axes)
    if rest:
        return None
    order = sorted(groups)
    inner_dims = [None if [source[axis] for axis in axes] == [None] else math.prod(source[axis] or 0 for axis in axes) for axes in order]
    shape = reshape_to(inner_dims)
    if shape is None:
        return None
    inner = _node(view, "reshape", made.inputs, None, inner_dims, node.outputs[0], shape=shape)
    return [inner, Node("transpose", inner.outputs, node.outputs, {"perm": [order.index(axes) for axes in groups]})]


def windows(view: View, node: Node) -> Better:
    """Channels first of what was channels last."""
    if node.op != "window" or node.parameters.get("layout") != "nchw":
        return None
    made = _transpose(view, node.inputs[0])
    spatial = len(node.parameters["size"])
    if made is None:
        return None
    perm = made.parameters["perm"]
    lead = len(perm) - spatial - 1
    if perm != [*range(lead), len(perm) - 1, *range(lead, len(perm) - 1)]:
        return None
    return Node("window", made.inputs, node.outputs, {name: value for name, value in node.parameters.items() if name != "layout"})


MOVES = (reshapes, transposes, windows)
