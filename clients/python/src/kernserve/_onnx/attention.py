"""Attention, spelt out: products of queries and keys, scaled and masked, their softmax, a product with the values. One node of the daemon's."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from .._datatypes import OF_NUMPY
from .chain import Node, View
from .lengths import broadcast
from .moves import Better, _node, reshape_to
from .ops import RULES, Call, Dims, Unsupported, shape_by

FLOATS = ("FP32", "FP16", "BF16")  # what attention computes
DEPTH_MOST = 256
HIDES = -1e20  # and below: added to a score, nothing is left of it, and of two such sums the scores make no difference
SWAPPED = [0, 2, 1, 3]  # heads and rows


class Mask:
    """A tensor that is added to the scores, times a factor; or whose true elements leave a score as it is (keeps), or whose false ones do."""

    def __init__(self, name: str, kind: str, factor: float = 1.0) -> None:
        self.name, self.kind, self.factor = name, kind, factor


class Scores:
    """What is done with the products of queries and keys until their softmax: from its end to its beginning."""

    def __init__(self) -> None:
        self.factor, self.softcap = 1.0, 0.0
        self.masks: List[Mask] = []
        self.product: Optional[Node] = None


# --- what is known of values --------------------------------------------------------------------------------------------------


def _dims(view: View, name: str) -> Optional[List[Any]]:
    values = view.chain.constants.get(name)
    return list(values.shape) if values is not None else view.chain.dims.get(name)


def _datatype(view: View, name: str) -> str:
    """Of what patterns made, by what it is made of."""
    for _ in range(len(view.chain.nodes) + 1):
        if name in view.chain.constants:
            return OF_NUMPY.get(view.chain.constants[name].dtype, "unknown")
        if name in view.chain.types:
            return view.chain.types[name]
        node = view.makers.get(name)
        if node is None or "out_datatype" in node.parameters:
            return str(node.parameters["out_datatype"]) if node is not None else "unknown"
        name = node.inputs[1 if node.is_map("where") else 0]
    return "unknown"


def _same(a: Any, b: Any) -> bool:
    """Two lengths are one, as far as is known: only words that were given to tell them apart are two."""
    if isinstance(a, int) or isinstance(b, int):
        return bool(a == b)
    return not a or not b or a == b or any(str(word).startswith(("unk__", "?")) for word in (a, b))


def _is_one(a: Any, b: Any) -> bool:
    """Two lengths are known to be one."""
    return bool(a == b) and a is not None and a != ""


def _of_floats(view: View, node: Optional[Node], name: str) -> bool:
    return node is not None and node.is_map("cast") and view.alone(name) and node.parameters.get("out_datatype") in FLOATS and _datatype(view, node.inputs[0]) in FLOATS


def _uncast(view: View, name: str) -> str:
    """The value behind casts between the datatypes that attention computes in FP32 anyway."""
    node = view.makers.get(name)
    while node is not None and _of_floats(view, node, name):
        name = node.inputs[0]
        node = view.makers.get(name)
    return name


# --- from the softmax to the product ------------------------------------------------------------------------------------------


def _is_scalar(view: View, name: str, value: float) -> bool:
    values = view.chain.constants.get(name)
    return values is not None and values.size == 1 and float(values.reshape(-1)[0]) == value


def _weights(view: View, name: str) -> Optional[Tuple[str, bool]]:
    """What the softmax over the last axis is taken of, and whether 0 stands where it is NaN."""
    name, zero = _uncast(view, name), False
    chosen, uses = view.map_of(name, "where"), 1
    if chosen is not None and view.alone(name):
        test = view.map_of(chosen.inputs[0], "isnan")
        if test is None or test.inputs[0] != chosen.inputs[2] or not _is_scalar(view, chosen.inputs[1], 0.0):
            return None
        name, zero, uses = chosen.inputs[2], True, 2
    node = view.makers.get(name)
    dims = _dims(view, name)
    if node is None or node.op != "softmax" or node.parameters.get("log") or view.uses.get(name) != uses or dims is None:
        return None
    return (node.inputs[0], zero) if node.parameters.get("axis", -1) in (-1, len(dims) - 1) else None


def _hidden(view: View, node: Node) -> Optional[Mask]:
    """where(mask, x, -inf) or where(mask, -inf, x): the mask; x is the other operand."""
    for place, kind in ((2, "keeps"), (1, "hides")):
        values = view.chain.constants.get(node.inputs[place])
        if values is not None and values.size == 1 and float(values.reshape(-1)[0]) <= HIDES:
            return Mask(node.inputs[0], kind if np.isneginf(values).all() else kind + " softly")
    return None


def _walk(view: View, name: str, scores: Scores) -> bool:
    """Down to the product. false: something else is done with it."""
    if not view.alone(name):
        return False
    node = view.makers.get(name)
    if node is None:
        return False
    if node.op == "matmul":
        scores.product = node
        return len(node.inputs) == 2 and not node.parameters
    operand = view.operand(node) if node.op == "map" and len(node.inputs) <= 2 else None
    if _of_floats(view, node, name):
        return _walk(view, node.inputs[0], scores)
    if (node.is_map("mul") or node.is_map("div")) and operand and math.isfinite(operand):
        scores.factor *= operand if node.is_map("mul") else 1 / operand
        return _walk(view, node.inputs[0], scores)
    if node.is_map("tanh") and not scores.softcap and scores.factor > 0:
        scores.softcap, scores.factor = scores.factor, 1.0
        return _walk(view, node.inputs[0], scores)
    return not scores.softcap and _masked(view, node, scores)


def _masked(view: View, node: Node, scores: Scores) -> bool:
    if node.is_map("where"):
        mask = _hidden(view, node)
        if mask is None or scores.factor <= 0:
            return False
        scores.masks.append(mask)
        return _walk(view, node.inputs[1 if mask.kind.startswith("keeps") else 2], scores)
    if not node.is_map("add") or len(node.inputs) != 2 or node.inputs[0] == node.inputs[1]:
        return False
    for name, other in (node.inputs, node.inputs[::-1]):
        deeper = Scores()
        if _walk(view, name, deeper) and not (deeper.softcap and scores.factor != 1.0):
            # What lies deeper is multiplied by what is done here.
            for mask in deeper.masks:
                mask.factor *= scores.factor
            scores.masks += [Mask(other, "added", scores.factor), *deeper.masks]
            scores.softcap, scores.product = deeper.softcap, deeper.product
            scores.factor *= deeper.factor
            return True
    return False


# --- one mask -----------------------------------------------------------------------------------------------------------------


class Masks:
    """Makes one mask of all, of BOOL where it only selects. `nodes`: what computes it."""

    def __init__(self, view: View, stem: str) -> None:
        self.view, self.stem, self.nodes = view, stem, []  # type: View, str, List[Node]

    def constant(self, values: np.ndarray) -> str:
        name = self.view.chain.fresh(self.stem)
        self.view.chain.constants[name], self.view.chain.ranks[name] = values, values.ndim
        return name

    def map(self, function: str, inputs: Sequence[str], **parameters: Any) -> str:
        shapes = [_dims(self.view, name) or [] for name in inputs]
        node = _node(self.view, "map", inputs, None, broadcast(shapes), self.stem, op=function, **parameters)
        self.view.chain.types[node.outputs[0]] = _datatype(self.view, inputs[-1])
        self.nodes.append(node)
        return node.outputs[0]

    def selects(self, mask: Mask, alone: bool) -> Optional[Mask]:
        """The mask as one of BOOL, if it is no more than that: rows of which nothing is left are NaN by it, and means by finite numbers."""
        if mask.kind in ("keeps", "hides"):
            return mask
        chosen = self.view.chain.constants.get(mask.name) if mask.kind != "added" and alone else None
        if chosen is not None:
            kept = chosen if mask.kind.startswith("keeps") else ~chosen
            return Mask(self.constant(kept), "keeps") if np.all(kept.any(-1)) else None
        node = self.view.map_of(mask.name, "where") if mask.kind == "added" and mask.factor > 0 else None
        if node is not None:
            for place, kind in ((1, "keeps"), (2, "hides")):
                if _is_scalar(self.view, node.inputs[place], 0.0) and _is_scalar(self.view, node.inputs[3 - place], -math.inf):
                    return Mask(node.inputs[0], kind)
        values = self.view.chain.constants.get(mask.name) if mask.kind == "added" and mask.factor > 0 else None
        if values is None or not np.all((values == 0) | (values.astype(np.float64) <= HIDES)):
            return None
        kept = np.asarray(values == 0)
        return Mask(self.constant(kept), "keeps") if np.all(np.isneginf(values[~kept])) or alone and np.all(kept.any(-1)) else None

    def keeps(self, mask: Mask) -> str:
        values = self.view.chain.constants.get(mask.name)
        if mask.kind == "keeps":
            return mask.name
        return self.constant(~values) if values is not None else self.map("not", [mask.name])

    def added(self, mask: Mask) -> str:
        values = self.view.chain.constants.get(mask.name)
        if mask.kind != "added":
            low = HIDES * 1e18 if mask.kind.endswith("softly") else -math.inf
            ends = [np.array(number, np.float32) for number in ((0.0, low) if mask.kind.startswith("keeps") else (low, 0.0))]
            return self.constant(np.where(values, *ends)) if values is not None else self.map("where", [mask.name, *map(self.constant, ends)])
        if mask.factor == 1.0:
            return mask.name
        return self.constant(np.asarray(values * values.dtype.type(mask.factor))) if values is not None else self.map("mul", [mask.name], a=mask.factor)

    def join(self, masks: Sequence[Mask]) -> Optional[str]:
        """None: they cannot be one."""
        selecting = [self.selects(mask, len(masks) == 1) for mask in masks]
        if all(mask is not None for mask in selecting):
            names, function = [self.keeps(mask) for mask in selecting if mask is not None], "and"
        else:
            names, function = [self.added(mask) for mask in masks], "add"
            if len({_datatype(self.view, name) for name in names}) > 1:
                return None
        whole = names[0]
        for name in names[1:]:
            pair = [self.view.chain.constants.get(each) for each in (whole, name)]
            if pair[0] is not None and pair[1] is not None:
                whole = self.constant(np.asarray(pair[0] & pair[1] if function == "and" else pair[0] + pair[1]))
            else:
                whole = self.map(function, [whole, name])
        return whole


def causal(values: np.ndarray, rows: Any, keys: Any) -> Optional[Dict[str, Any]]:
    """The parameters that a constant mask of BOOL is: a triangle, or a band below it."""
    if values.ndim < 2 or values.shape[-2:] != (rows, keys) or math.prod(values.shape[:-2]) != 1:
        return None
    kept, ends = values.reshape(rows, keys), ((0, "top_left"), (keys - rows, "bottom_right"))
    for offset, name in ends:
        last = np.arange(rows)[:, None] + offset - np.arange(keys)[None, :]  # how far in front of the last one
        if np.array_equal(kept, last >= 0):
            return {"causal": name}
        window = int(last[kept].max(initial=0))
        if window > 0 and np.array_equal(kept, (last >= 0) & (last <= window)):
            return {"causal": name, "window": window}
    return None


# --- operands -----------------------------------------------------------------------------------------------------------------


def _unscaled(view: View, name: str) -> Tuple[str, float, List[Node]]:
    """An operand without the scalars that it was multiplied by, its factor, and the nodes that make it then."""
    node = view.makers.get(name)
    if node is None:
        return name, 1.0, []
    operand = view.operand(node) if node.is_map("mul") or node.is_map("div") else None
    if operand and math.isfinite(operand) and view.chain.ranks.get(node.inputs[0]) == view.chain.ranks.get(name):
        inner, factor, nodes = _unscaled(view, node.inputs[0])
        return inner, factor * (operand if node.is_map("mul") else 1 / operand), nodes
    if node.op in ("transpose", "reshape") and view.alone(name):
        inner, factor, nodes = _unscaled(view, node.inputs[0])
        if factor != 1.0:
            moved = _node(view, node.op, [inner], None, _dims(view, name), name, **node.parameters)
            return moved.outputs[0], factor, [*nodes, moved]
    return name, 1.0, []


def _fits(q: Sequence[Any], k: Sequence[Any], v: Sequence[Any]) -> bool:
    """[batch, heads, rows, depth] of each, keys as they were before their transpose."""
    if not all(isinstance(length, int) and 1 <= length <= DEPTH_MOST for length in (q[3], v[3])) or q[3] != k[3]:
        return False
    if not _same(q[0], k[0]) or not _same(k[0], v[0]) or not _same(k[2], v[2]) or k[1] != v[1]:
        return False
    return bool(q[1] == k[1] and q[1] or isinstance(q[1], int) and k[1] == 1)


def attention(view: View, node: Node) -> Better:
    if node.op != "matmul" or len(node.inputs) != 2 or node.parameters:
        return None
    found, scores = _weights(view, node.inputs[0]), Scores()
    if found is None or not _walk(view, found[0], scores) or scores.product is None:
        return None
    given = [*scores.product.inputs, node.inputs[1]]
    shapes = [_dims(view, name) for name in given]
    if any(shape is None for shape in shapes) or len({len(shape or ()) for shape in shapes}) != 1 or len(shapes[0] or ()) not in (3, 4):
        return None
    if any(_datatype(view, name) not in FLOATS or _datatype(view, name) != _datatype(view, given[0]) for name in given):
        return None
    q, k, v = ([*shape[:-2], *shape[-2:][::-1 if place == 1 else 1]] for place, shape in enumerate(shape or [] for shape in shapes))
    whole = [[shape[0], 1, *shape[1:]] if len(shape) == 3 else shape for shape in (q, k, v)]
    return _fused(view, node, given, whole, scores, found[1]) if _fits(*whole) else None


def _is_causal(view: View, mask: Mask, scores: Sequence[Any], alone: bool) -> bool:
    """A triangle that a graph makes of a request's lengths, or a band below the diagonal: a window."""
    node, dims = view.makers.get(mask.name), _dims(view, mask.name)
    if node is None or node.op != "triangle" or dims is None or not _same(dims[-2], scores[2]) or not _same(dims[-1], scores[3]) or any(length != 1 for length in dims[:-2]):
        return False
    below, above = (float(value) for value in node.parameters["values"])
    if node.parameters["band"].low != 0 or node.parameters["band"].high == 0:
        return False
    if mask.kind == "added":
        return mask.factor > 0 and below == 0 and (above <= HIDES if alone else above == -math.inf)
    keeps = (below, above) == ((1.0, 0.0) if mask.kind.startswith("keeps") else (0.0, 1.0))
    return keeps and (alone or not mask.kind.endswith("softly"))


def _fused(view: View, node: Node, given: Sequence[str], shapes: Sequence[List[Any]], scores: Scores, zero: bool) -> Better:
    stem, three = node.outputs[0], view.chain.ranks.get(given[0]) == 3
    masks = Masks(view, stem)
    if three and any(len(_dims(view, mask.name) or ()) > 3 for mask in scores.masks):
        return None  # it would raise the result's rank
    whole = [shapes[0][0], shapes[0][1], shapes[0][2], shapes[1][2]]
    triangles = [mask for mask in scores.masks if _is_causal(view, mask, whole, len(scores.masks) == 1)]
    scores.masks = [mask for mask in scores.masks if mask not in triangles]
    mask = masks.join(scores.masks) if scores.masks else ""
    if mask is None:
        return None
    dims = [shapes[0][0], shapes[0][1], shapes[0][2], shapes[1][2]]  # the scores'
    parameters: Dict[str, Any] = {"masked_rows": None if zero or not mask else "nan"}
    if mask and _datatype(view, mask) not in ("BOOL", "FP32", _datatype(view, given[0])):
        return None
    values = view.chain.constants.get(mask)
    triangle = causal(values, dims[2], dims[3]) if values is not None and values.dtype == np.bool_ else None
    if triangle is not None:
        every = triangle == {"causal": "top_left"}  # row has a key
        mask, parameters = "", triangle if every else {**triangle, **parameters}
    of_mask = _dims(view, mask) if mask else None
    if mask and three and of_mask is not None and len(of_mask) == 3:
        shape = reshape_to([of_mask[0], 1, *of_mask[1:]])
        if shape is None:
            return None
        masks.nodes.append(_node(view, "reshape", [mask], None, [of_mask[0], 1, *of_mask[1:]], stem, shape=shape))
        mask = masks.nodes[-1].outputs[0]
        of_mask = _dims(view, mask)
    if mask and (of_mask is None or not _spreads(of_mask, dims)):
        return None
    nodes, names = list(masks.nodes), []
    for place, name in enumerate(given):
        if place < 2:
            name, factor, made = _unscaled(view, name)
            scores.factor *= factor
            nodes += made
        if place == 1:
            swap = list(range(len(_dims(view, name) or shapes[1]) if three else 4))
            nodes.append(_node(view, "transpose", [name], None, shapes[1] if not three else [shapes[1][0], *shapes[1][2:]], stem, perm=[*swap[:-2], swap[-1], swap[-2]]))
            name = nodes[-1].outputs[0]
        if three:
            nodes.append(_node(view, "reshape", [name], None, shapes[place], stem, shape=[0, 1, -1, shapes[place][3]]))
            name = nodes[-1].outputs[0]
        names.append(name)
    if scores.softcap:
        parameters["softcap"] = scores.softcap
        scores.factor *= scores.softcap
    parameters["scale"] = scores.factor
    highs = [view.makers[mask.name].parameters["band"].high for mask in triangles]
    if triangles and parameters.setdefault("causal", "top_left") != "top_left":
        return None
    if any(highs) and "window" in parameters:
        return None
    if any(highs):
        parameters["window"] = min(high for high in highs if high)
    return [*nodes, *_ended(view, node, [*names, *([mask] if mask else [])], [*dims[:3], shapes[2][3]], parameters, three)]


def _ended(view: View, node: Node, inputs: Sequence[str], dims: List[Any], parameters: Dict[str, Any], three: bool) -> List[Node]:
    given = {name: value for name, value in parameters.items() if value is not None}
    if not three:
        return [Node("attention", inputs, node.outputs, given)]
    inner = _node(view, "attention", inputs, None, dims, node.outputs[0], **given)
    return [inner, Node("reshape", inner.outputs, node.outputs, {"shape": [0, -1, dims[3]]})]


def _spreads(mask: Sequence[Any], scores: Sequence[Any]) -> bool:
    """The daemon spreads a mask over batches, heads and rows, not over keys."""
    if not 1 <= len(mask) <= 4 or not _same(mask[-1], scores[-1]):
        return False
    return all(length == 1 or _same(length, scores[place]) for place, length in enumerate(mask[:-1], 4 - len(mask)))


# --- how heads lie ------------------------------------------------------------------------------------------------------------


def heads(view: View, node: Node) -> Better:
    """Heads and rows that were changed for each other are read so, and those of the result are changed behind it."""
    if node.op != "attention" or node.parameters.get("layout") == "bshd" or any(node.outputs[1:]):
        return None
    made = [view.makers.get(name) for name in node.inputs[:3]]
    if any(each is None or each.op != "transpose" or each.parameters["perm"] != SWAPPED for each in made):
        return None
    dims = view.chain.dims.get(node.outputs[0])
    inputs = [*(each.inputs[0] for each in made if each is not None), *node.inputs[3:]]
    inner = _node(view, "attention", inputs, None, [dims[axis] for axis in SWAPPED] if dims else None, node.outputs[0], **dict(node.parameters, layout="bshd"))
    return [inner, Node("transpose", inner.outputs, node.outputs, {"perm": SWAPPED})]


def _group(view: View, name: str, axis: int) -> Optional[str]:
    """[.., heads, 1, ..] of what was repeated to [.., heads, n, ..] and is read as heads * n."""
    node = view.makers.get(name)
    wide = view.makers.get(node.inputs[0]) if node is not None and node.op == "reshape" else None
    if node is None or wide is None or wide.op != "expand":
        return None
    before, after, out = (_dims(view, each) for each in (wide.inputs[0], wide.outputs[0], name))
    if before is None or after is None or out is None or len(before) != 5 or len(after) != 5 or len(out) != 4 or before[axis + 1] != 1:
        return None
    if not all(isinstance(dims[place], int) for dims in (before, after) for place in (axis, axis + 1)) or before[axis] != after[axis]:
        return None
    rest = [place for place in range(5) if place not in (axis, axis + 1)]
    same = all(_is_one(before[place], after[place]) and _is_one(after[place], out[place if place < axis else place - 1]) for place in rest)
    return wide.inputs[0] if same and out[axis] == after[axis] * after[axis + 1] else None


def groups(view: View, node: Node) -> Better:
    """Heads of keys and values that were repeated for groups of queries' heads are read as they were."""
    if node.op != "attention":
        return None
    axis = 2 if node.parameters.get("layout") == "bshd" else 1
    found = [_group(view, name, axis) for name in node.inputs[1:3]]
    nodes, names = [], []
    for name in found:
        dims = _dims(view, name) if name is not None else None
        if name is None or dims is None:
            return None
        narrow = [length for place, length in enumerate(dims) if place != axis + 1]
        nodes.append(_node(view, "reshape", [name], None, narrow, node.outputs[0], shape=shape_by(dims, narrow)))
        names.append(nodes[-1].outputs[0])
    if any(made.parameters["shape"].count(-1) > 1 for made in nodes):
        return None
    return [*nodes, Node("attention", [node.inputs[0], *names, *node.inputs[3:]], node.outputs, node.parameters)]


def batches(view: View, node: Node) -> Better:
    """[.., a, b] whose axes in front were joined to change the last two for each other: a transpose does without."""
    if node.op != "reshape":
        return None
    turned = view.makers.get(node.inputs[0])
    joined = view.makers.get(turned.inputs[0]) if turned is not None and turned.op == "transpose" and turned.parameters["perm"] == [0, 2, 1] else None
    if turned is None or joined is None or joined.op != "reshape":
        return None
    before, flat, after = (_dims(view, name) for name in (joined.inputs[0], joined.outputs[0], node.outputs[0]))
    if before is None or flat is None or after is None or min(len(before), len(after)) < 3 or len(flat) != 3:
        return None
    if not all(_is_one(*pair) for pair in zip(before[-2:], flat[-2:])) or not all(_is_one(*pair) for pair in zip(before[:-3:-1], after[-2:])):
        return None
    apart, rank = [*after[:-2], *before[-2:]], len(after)
    perm = [*range(rank - 2), rank - 1, rank - 2]
    if len(before) == rank and all(_is_one(*pair) for pair in zip(before, apart)):
        return Node("transpose", joined.inputs, node.outputs, {"perm": perm})
    shape = shape_by(before, apart)
    if shape.count(-1) > 1:
        return None
    first = _node(view, "reshape", joined.inputs, None, apart, node.outputs[0], shape=shape)
    return [first, Node("transpose", first.outputs, node.outputs, {"perm": perm})]


def rows(view: View, node: Node) -> Better:
    """A product with a matrix of rows whose axes in front were joined for it, and are set apart behind it, needs neither."""
    product = view.makers.get(node.inputs[0]) if node.op == "reshape" else None
    joined = view.makers.get(product.inputs[0]) if product is not None and product.op == "matmul" else None
    if product is None or joined is None or joined.op != "reshape" or not view.alone(node.inputs[0]) or product.parameters.get("transpose_a"):
        return None
    before, flat, made, weight, after = (_dims(view, name) for name in (joined.inputs[0], joined.outputs[0], node.inputs[0], product.inputs[1], node.outputs[0]))
    if before is None or flat is None or made is None or weight is None or after is None or [len(flat), len(weight)] != [2, 2]:
        return None
    if len(after) < 3 or made[1] != after[-1] or not isinstance(made[1], int) or not isinstance(flat[1], int):
        return None
    dims = [*after[:-1], flat[1]]
    shape = shape_by(before, dims)
    if shape.count(-1) > 1:
        return None
    if before == dims and None not in dims:
        return Node("matmul", [*joined.inputs, *product.inputs[1:]], node.outputs, product.parameters)
    first = _node(view, "reshape", joined.inputs, None, dims, node.outputs[0], shape=shape)
    return [first, Node("matmul", [*first.outputs, *product.inputs[1:]], node.outputs, product.parameters)]


# --- ONNX's operator of that name ---------------------------------------------------------------------------------------------


class _Operator:
    """Attention of operator set 23 and newer: [batch, heads, rows, depth], or [batch, rows, heads * depth]."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.dims: List[Dims] = [call.shape(name) for name in call.inputs[:3]]
        if any(call.outputs[3:]):
            raise Unsupported("it is asked for its scores")
        datatype = call.datatype(call.inputs[0])
        if datatype not in FLOATS:
            raise Unsupported("its datatype is %s, attention takes %s" % (datatype, ", ".join(FLOATS)))
        if int(call.attributes.get("softmax_precision", 1)) == 11:
            raise Unsupported("its softmax is FP64's")
        if call.given(4) != call.given(5):
            raise Unsupported("it has keys or values in front, and not both")
        self.three = len(self.dims[0]) == 3
        self.heads_first = not self.three or call.given(4) or any(call.outputs[1:])
        self.names = [self.operand(place) for place in range(3)]
        self.behind(1)
        self.behind(2)

    def new(self, op: str, inputs: Sequence[str], dims: Dims, output: Optional[str] = None, /, **parameters: Any) -> str:
        name = self.call.add(op, inputs, output, **parameters)
        self.call.dims[name] = dims
        return name

    def operand(self, place: int) -> str:
        """With an axis of heads, in front of the rows or behind."""
        name, dims = self.call.inputs[place], self.dims[place]
        if not self.three:
            return name
        count, wide = int(self.call.attributes["kv_num_heads" if place else "q_num_heads"]), dims[2]
        if not isinstance(wide, int) or wide % count:
            raise Unsupported("'%s' is not %d heads wide" % (name, count))
        self.dims[place] = [*dims[:2], count, wide // count]
        name = self.new("reshape", [name], self.dims[place], shape=[0, 0, count, wide // count])
        return self.turned(place, name) if self.heads_first else name

    def turned(self, place: int, name: str) -> str:
        self.dims[place] = [self.dims[place][axis] for axis in SWAPPED]
        return self.new("transpose", [name], self.dims[place], perm=SWAPPED)

    def behind(self, place: int) -> None:
        """Keys and values behind those that were there before, which are outputs, too."""
        call, output = self.call, self.call.outputs[place] if place < len(self.call.outputs) else ""
        if not call.given(4):
            if output:
                call.alias(self.names[place], output)
            return
        before, length = call.shape(call.inputs[3 + place]), self.dims[place][2]
        self.new_rows = length
        whole = before[2] + length if isinstance(before[2], int) and isinstance(length, int) else None
        self.dims[place] = [*self.dims[place][:2], whole, self.dims[place][3]]
        self.names[place] = self.new("concat", [call.inputs[3 + place], self.names[place]], self.dims[place], output or None, axis=2)

    def causal(self) -> Dict[str, Any]:
        call, (rows, row) = self.call, (self.dims[0], 2 if self.heads_first else 1)
        left, right = (int(call.attributes.get(name, -1)) for name in ("left_window_size", "right_window_size"))
        if right > 0 or left == 0 or left > 0 and right < 0 and not call.attributes.get("is_causal"):
            raise Unsupported("its window is [-%d, %d], attention's ends where causal does and has 1 and more" % (left, right))
        if not call.attributes.get("is_causal") and right < 0:
            return {}
        if call.given(4) and not _same(self.new_rows, rows[row]):
            raise Unsupported("it is causal, and its new keys are not as many as its queries")
        return {"causal": "bottom_right" if call.given(4) or call.given(6) else "top_left", "window": left if left > 0 else None}

    def mask(self) -> str:
        if not self.call.given(3):
            return ""
        name, keys = self.call.inputs[3], self.dims[1][2 if self.heads_first else 1]
        dims, datatype = self.call.shape(name), self.call.datatype(name)
        if datatype not in ("BOOL", "FP32", self.call.datatype(self.call.inputs[0])):
            raise Unsupported("its mask is %s" % datatype)
        if not dims or not _same(dims[-1], keys):
            raise Unsupported("its mask does not have a length for each key")
        return name

    def check(self) -> None:
        heads = [dims[1 if self.heads_first else 2] for dims in self.dims]
        depths = [dims[3] for dims in self.dims]
        if not all(isinstance(depth, int) and 1 <= depth <= DEPTH_MOST for depth in depths):
            raise Unsupported("its heads are not known to have 1 to %d elements" % DEPTH_MOST)
        if heads[1] != heads[2] or not (heads[0] == heads[1] or isinstance(heads[0], int) and isinstance(heads[1], int) and heads[0] % heads[1] == 0):
            raise Unsupported("it has %s heads of queries, and %s of keys" % (heads[0], heads[1]))


def _attention(call: Call) -> None:
    made = _Operator(call)
    made.check()
    inputs = [*made.names, made.mask(), call.inputs[6] if call.given(6) else ""]
    softcap, scale = float(call.attributes.get("softcap", 0.0)), call.attributes.get("scale")
    while not inputs[-1]:
        inputs.pop()
    last = made.dims[0][:3] + made.dims[2][3:]
    joined = made.three and made.heads_first
    result = made.new("attention", inputs, last, None if made.three else call.outputs[0], layout=None if made.heads_first else "bshd",
                      softcap=softcap if softcap > 0 else None, scale=None if scale is None else float(scale), **made.causal())
    if joined:
        last = [last[axis] for axis in SWAPPED]
        result = made.new("transpose", [result], last, perm=SWAPPED)
    if made.three and isinstance(last[2], int) and isinstance(last[3], int):
        call.add("reshape", [result], call.outputs[0], shape=[0, 0, last[2] * last[3]])


RULES["Attention"] = _attention
