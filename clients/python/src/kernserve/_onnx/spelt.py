"""Patterns that an exporter spelt out with broadcasts: norms along any axis, softmax, a product with rows of one-hot."""

from __future__ import annotations

import math
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from .chain import Node, View
from .moves import Better, _lengths, _node, reshape_to, same_but_ones

Reduced = Tuple[str, List[int]]  # a value, and axes of it


def _stripped(view: View, name: str) -> str:
    """The value behind reshapes that insert or remove nothing but dimensions of 1."""
    node = view.makers.get(name)
    while node is not None and node.op == "reshape" and same_but_ones(_lengths(view, node.inputs[0]), _lengths(view, name)):
        name = node.inputs[0]
        node = view.makers.get(name)
    return name


def _reduced(view: View, name: str, function: str) -> Optional[Reduced]:
    """What a reduction is taken of. A mean may be a sum and a factor."""
    node = view.makers.get(_stripped(view, name))
    factor = None
    if function == "mean" and node is not None and (node.is_map("mul") or node.is_map("div")):
        number = view.operand(node)
        if not number or len(node.inputs) == 2 and number is None:
            return None
        factor = number if node.is_map("mul") else 1 / number
        node, function = view.makers.get(_stripped(view, node.inputs[0])), "sum"
    if node is None or node.op != "reduce" or node.parameters["op"] != function or node.parameters["axis"] == "all":
        return None
    dims = _lengths(view, node.inputs[0])
    if dims is None:
        return None
    axes = sorted(axis % len(dims) for axis in node.parameters["axis"])
    lengths = [dims[axis] for axis in axes]
    if factor is not None and (None in lengths or not math.isclose(factor * math.prod(length or 0 for length in lengths), 1.0, rel_tol=1e-6)):
        return None
    return node.inputs[0], axes


def _spread(view: View, name: str, like: str, axes: Sequence[int]) -> bool:
    """It has ones where `like` has the axes, so that it is of each row along them."""
    dims, whole = _lengths(view, name), _lengths(view, like)
    return dims is not None and whole is not None and len(dims) == len(whole) and all(dims[axis] == 1 for axis in axes)


def _centred(view: View, name: str) -> Optional[Reduced]:
    """x in x - mean(x)."""
    node = view.map_of(name, "sub")
    if node is None or len(node.inputs) != 2:
        return None
    mean = _reduced(view, node.inputs[1], "mean")
    return mean if mean is not None and mean[0] == node.inputs[0] and _spread(view, node.inputs[1], mean[0], mean[1]) else None


def _variance(view: View, name: str) -> Optional[Reduced]:
    """mean((x - mean x)^2), or mean(x^2) - mean(x)^2, which is cut at 0 or not."""
    name = _stripped(view, name)
    node = view.map_of(name, "max")
    if node is not None and view.operand(node) == 0.0:
        name = _stripped(view, node.inputs[0])
    squares = _reduced(view, name, "mean")
    if squares is not None:
        tensors, number = view.factors(squares[0])
        inner = _centred(view, tensors[0]) if len(tensors) == 2 and tensors[0] == tensors[1] and number == 1.0 else None
        return inner if inner is not None and inner[1] == squares[1] else None
    node = view.map_of(name, "sub")
    if node is None or len(node.inputs) != 2:
        return None
    squares = _reduced(view, node.inputs[0], "mean")
    tensors, number = view.factors(node.inputs[1])
    mean = _reduced(view, tensors[0], "mean") if len(tensors) == 2 and tensors[0] == tensors[1] and number == 1.0 else None
    # factors() may have looked through the factor of the mean
    if mean is None and len(tensors) == 2 and tensors[0] == tensors[1]:
        total = _reduced(view, tensors[0], "sum")
        dims = _lengths(view, total[0]) if total is not None else None
        count = math.prod(dims[axis] or 0 for axis in total[1]) if total is not None and dims is not None else 0
        mean = total if count and math.isclose(number * count * count, 1.0, rel_tol=1e-6) else None
    if squares is None or mean is None or squares[1] != mean[1]:
        return None
    return mean if view.factors(squares[0]) == ([mean[0], mean[0]], 1.0) else None


def _inverse_root(view: View, name: str) -> Optional[Tuple[Reduced, float]]:
    """x and eps of 1 / sqrt(var x + eps)."""
    node = view.map_of(name, "reciprocal")
    root = view.map_of(node.inputs[0], "sqrt") if node is not None else view.map_of(name, "rsqrt")
    shifted = view.map_of(root.inputs[0], "add") if root is not None else None
    eps = view.operand(shifted) if shifted is not None else None
    variance = _variance(view, shifted.inputs[0]) if shifted is not None and eps is not None and eps >= 0 else None
    return (variance, eps) if variance is not None and eps is not None and _spread(view, name, variance[0], variance[1]) else None


def norm(view: View, node: Node) -> Better:
    """(x - mean x) / sqrt(var x + eps), with a constant weight or not, along one axis or the last ones."""
    if not node.is_map("mul"):
        return None
    tensors, number = view.factors(node.outputs[0], 3)
    if number != 1.0 or not 2 <= len(tensors) <= 3:
        return None
    for name in tensors:
        centred = _centred(view, name)
        rest = [other for other in tensors if other is not name]
        for root in rest:
            inverse = _inverse_root(view, root) if centred is not None else None
            if centred is None or inverse is None or inverse[0] != centred:
                continue
            weights = [other for other in rest if other is not root]
            return _normed(view, node, centred, inverse[1], weights[0] if weights else "")
    return None


def rms(view: View, node: Node) -> Better:
    """x / sqrt(mean x^2 + eps) over the last axes, by a reciprocal."""
    if not node.is_map("mul") or len(node.inputs) != 2:
        return None
    for x, root in (node.inputs, node.inputs[::-1]):
        inverse = view.map_of(root, "reciprocal")
        inner = view.map_of(inverse.inputs[0], "sqrt") if inverse is not None else view.map_of(root, "rsqrt")
        shifted = view.map_of(inner.inputs[0], "add") if inner is not None else None
        eps = view.operand(shifted) if shifted is not None else None
        squares = _reduced(view, shifted.inputs[0], "mean") if shifted is not None and eps is not None and eps >= 0 else None
        dims = _lengths(view, x)
        if squares is None or dims is None or view.factors(squares[0], 1) != ([x, x], 1.0) or not _spread(view, root, x, squares[1]):
            continue
        if squares[1] == list(range(len(dims) - len(squares[1]), len(dims))):
            return Node("norm", [x], node.outputs, {"kind": "rms", "axis": squares[1], "eps": eps})
    return None


def _normed(view: View, node: Node, of: Reduced, eps: float, weight: str) -> Better:
    x, axes = of
    dims = _lengths(view, x)
    assert dims is not None
    rank, inputs = len(dims), [x]
    if weight:
        values = view.chain.constants.get(weight)
        extents = [dims[axis] for axis in axes]
        if values is None or values.ndim > rank or list(values.reshape((1,) * (rank - values.ndim) + values.shape).shape) != [
                length if axis in axes else 1 for axis, length in enumerate(dims)]:
            return None
        flat = view.chain.fresh(weight)
        view.chain.constants[flat], view.chain.ranks[flat] = values.reshape([length or 0 for length in extents]), len(axes)
        inputs.append(flat)
    parameters = {"kind": "layer", "axis": list(range(rank - len(axes), rank)), "eps": eps}
    if axes == parameters["axis"]:
        return Node("norm", inputs, node.outputs, parameters)
    perm = [axis for axis in range(rank) if axis not in axes] + axes
    turned = [dims[axis] for axis in perm]
    first = _node(view, "transpose", [x], None, turned, node.outputs[0], perm=perm)
    second = _node(view, "norm", [*first.outputs, *inputs[1:]], None, turned, node.outputs[0], **parameters)
    back = [perm.index(axis) for axis in range(rank)]
    return [first, second, Node("transpose", second.outputs, node.outputs, {"perm": back})]


def softmax(view: View, node: Node) -> Better:
    """exp(x - max x) / sum of it along one axis."""
    if not node.is_map("div") or len(node.inputs) != 2:
        return None
    power = view.map_of(node.inputs[0], "exp")
    total = _reduced(view, node.inputs[1], "sum")
    if power is None or total is None or total[0] != node.inputs[0] or len(total[1]) != 1 or not _spread(view, node.inputs[1], total[0], total[1]):
        return None
    shifted = view.map_of(power.inputs[0], "sub")
    if shifted is None or len(shifted.inputs) != 2:
        return None
    largest = _stripped(view, shifted.inputs[1])
    bounded = view.map_of(largest, "max")  # by minus infinity
    if bounded is not None and len(bounded.inputs) == 2:
        for name, other in (bounded.inputs, bounded.inputs[::-1]):
            values = view.chain.constants.get(other)
            if values is not None and bool(np.all(np.isneginf(values))):
                largest = name
    most = _reduced(view, largest, "max")
    if most is None or most[0] != shifted.inputs[0] or most[1] != total[1] or not _spread(view, shifted.inputs[1], most[0], most[1]):
        return None
    return Node("softmax", [shifted.inputs[0]], node.outputs, {"axis": most[1][0]})


def one_hot(view: View, node: Node) -> Better:
    """(x == 0, 1, 2, ..) as numbers, times a table: rows of the table by x, and zeros where x is none of its rows."""
    if node.op != "matmul" or len(node.inputs) != 2 or any(node.parameters.get(flag) for flag in ("transpose_a", "transpose_b", "activation", "alpha")):
        return None
    cast = view.map_of(node.inputs[0], "cast")
    equal = view.map_of(cast.inputs[0], "eq") if cast is not None else None
    table = view.chain.constants.get(node.inputs[1])
    if equal is None or len(equal.inputs) != 2 or table is None or table.ndim != 2 or not np.all(np.isfinite(table)):
        return None
    for x, other in (equal.inputs, equal.inputs[::-1]):
        values, dims = view.chain.constants.get(other), _lengths(view, x)
        if values is None or dims is None or dims[-1:] != [1] or values.dtype not in (np.int32, np.int64):
            continue
        first = int(values.reshape(-1)[0])
        if values.shape[-1] != values.size or values.ndim > len(dims) or values.size != table.shape[0] or not np.array_equal(values.reshape(-1), np.arange(first, first + values.size)):
            continue
        return _look_up(view, node, x, dims[:-1], first, table)
    return None


def _look_up(view: View, node: Node, x: str, dims: Sequence[object], first: int, table: np.ndarray) -> Better:
    """A row of zeros stands at each end, for what is below and above: indices are moved by one and held within. The largest integer wraps, and is below."""
    shape = reshape_to(dims)
    if shape is None:
        return None
    wide = np.concatenate([np.zeros_like(table[:1]), table, np.zeros_like(table[:1])])
    name = view.chain.fresh(node.inputs[1])
    view.chain.constants[name], view.chain.ranks[name] = wide, 2
    view.chain.dims[name] = list(wide.shape)
    flat = _node(view, "reshape", [x], None, dims, node.outputs[0], shape=shape)
    moved = _node(view, "map", flat.outputs, None, dims, node.outputs[0], op="add", a=float(1 - first))
    return [flat, moved, Node("gather", [name, *moved.outputs], node.outputs, {"mode": "clip"})]


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))))


FUNCTIONS: Dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "tanh": np.tanh, "gelu_tanh": _gelu_tanh,
    "relu": lambda x: np.maximum(x, 0), "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "silu": lambda x: x / (1 + np.exp(-x))}


def table(view: View, node: Node) -> Better:
    """A function of a constant table's rows is another table: in FP64, and rounded once more."""
    function = FUNCTIONS.get(str(node.parameters.get("op"))) if node.op == "map" else None
    if function is None or set(node.parameters) - {"op", "a"}:
        return None
    for place, name in enumerate(node.inputs):
        gather = view.makers.get(name)
        values = view.chain.constants.get(gather.inputs[0]) if gather is not None and gather.op == "gather" and len(gather.inputs) == 2 else None
        if gather is None or values is None or not view.alone(name) or set(gather.parameters) - {"mode"} or values.dtype not in (np.float32, np.float64):
            continue
        operands: List[object] = [values.astype(np.float64)]
        if len(node.inputs) == 2:
            other = view.chain.constants.get(node.inputs[1 - place])
            if other is None or values.ndim != 2 or other.ndim > view.chain.ranks.get(name, 0) or other.reshape(-1).size != other.shape[-1] or other.size not in (1, values.shape[-1]):
                continue
            operands.insert(1 - place, other.astype(np.float64).reshape(1, -1))
        elif "a" in node.parameters:
            operands.append(float(node.parameters["a"]))
        with np.errstate(all="ignore"):
            made = function(*operands).astype(values.dtype)
        fresh = view.chain.fresh(gather.inputs[0])
        view.chain.constants[fresh], view.chain.ranks[fresh], view.chain.dims[fresh] = made, made.ndim, list(made.shape)
        return Node("gather", [fresh, gather.inputs[1]], node.outputs, gather.parameters)
    return None


def table_of_table(view: View, node: Node) -> Better:
    """Rows of a constant table by what is looked up in another one are rows of a third."""
    inner = view.makers.get(node.inputs[1]) if node.op == "gather" and len(node.inputs) == 2 and not node.parameters else None
    if inner is None or inner.op != "gather" or len(inner.inputs) != 2 or inner.parameters or not view.alone(node.inputs[1]):
        return None
    rows, places = view.chain.constants.get(node.inputs[0]), view.chain.constants.get(inner.inputs[0])
    if rows is None or places is None or places.ndim != 1 or places.size > rows.shape[0] or not np.all((places >= -rows.shape[0]) & (places < rows.shape[0])):
        return None
    fresh = view.chain.fresh(node.inputs[0])
    view.chain.constants[fresh] = rows if np.array_equal(places, np.arange(rows.shape[0])) else np.ascontiguousarray(rows[places])
    view.chain.ranks[fresh], view.chain.dims[fresh] = rows.ndim, list(view.chain.constants[fresh].shape)
    return Node("gather", [fresh, inner.inputs[1]], node.outputs, {})
