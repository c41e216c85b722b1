"""A chain of the daemon's operations while it is made of an ONNX graph: its nodes, its constants, and patterns that one node can do."""

from __future__ import annotations

import math
import re
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

NAME_MAX = 128  # of nodes and values
EQUAL_MOST = 4096  # elements of a constant that is looked for among others
ENDS_MAX = 40  # of inputs and outputs
ACTIVATIONS = {"matmul": ("relu", "gelu", "silu"), "norm": ("relu", "gelu", "gelu_tanh", "silu")}


class Node:
    """One operation. `inputs` and `outputs` are values' names, "" where one is not given."""

    def __init__(self, op: str, inputs: Sequence[str], outputs: Sequence[str], parameters: Dict[str, Any]) -> None:
        self.op, self.inputs, self.outputs, self.parameters = op, list(inputs), list(outputs), parameters

    def is_alias(self) -> bool:
        """It gives its input another name."""
        return self.parameters == {"op": "cast"} if self.op == "map" else self.op == "reshape" and not any(self.parameters["shape"])

    def is_map(self, function: str) -> bool:
        return self.op == "map" and self.parameters.get("op") == function


class Chain:
    """Nodes in their order, constants by name, and what values are known to be."""

    def __init__(self) -> None:
        self.nodes: List[Node] = []
        self.constants: Dict[str, np.ndarray] = {}
        self.ranks: Dict[str, int] = {}
        self.dims: Dict[str, List[Any]] = {}
        self.types: Dict[str, str] = {}  # datatypes of what the graph named
        self.kept: List[str] = []  # the model's outputs

    def fresh(self, stem: str) -> str:
        """A name that no value has."""
        taken = {name for node in self.nodes for name in node.outputs} | set(self.constants) | set(self.ranks) | set(self.dims)
        number = 0
        while "%s.%d" % (stem, number) in taken:
            number += 1
        return "%s.%d" % (stem, number)

    def fresh_of(self, nodes: Sequence[Node], stem: str) -> str:
        """And that none of these nodes has, which are not in the chain yet."""
        name, number = self.fresh(stem), 0
        taken = {each for node in nodes for each in node.outputs}
        while name in taken:
            number += 1
            name = self.fresh("%s.%d" % (stem, number))
        return name

    def makers(self) -> Dict[str, Node]:
        return {name: node for node in self.nodes for name in node.outputs if name}

    def uses(self) -> Dict[str, int]:
        counts: Dict[str, int] = {name: 1 for name in self.kept}
        for node in self.nodes:
            for name in node.inputs:
                counts[name] = counts.get(name, 0) + 1
        return counts

    def rename(self, name: str, other: str) -> None:
        """Each takes the name of the other."""
        both = {name: other, other: name}
        for node in self.nodes:
            node.inputs, node.outputs = ([both.get(value, value) for value in names] for names in (node.inputs, node.outputs))
        tables: List[Dict[str, Any]] = [self.constants, self.ranks, self.dims, self.types]
        for table in tables:
            table.update({both[key]: table.pop(key) for key in both if key in table})

    def drop_aliases(self) -> None:
        """An output's name goes to the node that makes the value; where that is another output, an input or a constant, it stays a node."""
        source: Dict[str, str] = {}
        makers = self.makers()
        for node in self.nodes[::-1]:
            name, alias = node.inputs[0], node.outputs[0]
            if node.is_alias() and alias in self.kept and name in makers and name not in self.kept:
                for other in self.nodes:
                    other.inputs = [alias if value == name else value for value in other.inputs]
                makers[name].outputs = [alias if value == name else value for value in makers[name].outputs]
                self.nodes.remove(node)
        kept: List[Node] = []
        for node in self.nodes:
            node.inputs = [source.get(name, name) for name in node.inputs]
            if node.is_alias() and node.outputs[0] not in self.kept:
                source[node.outputs[0]] = node.inputs[0]
            else:
                kept.append(node)
        self.nodes = kept

    def drop_unused(self) -> None:
        needed = set(self.kept)
        kept: List[Node] = []
        for node in reversed(self.nodes):
            if needed & set(node.outputs):
                needed |= set(node.inputs)
                kept.append(node)
        self.nodes = kept[::-1]
        self.constants = {name: values for name, values in self.constants.items() if name in needed}


class View:
    """The chain as patterns look at it: what made a value, and how often it is used."""

    def __init__(self, chain: Chain) -> None:
        self.chain, self.makers, self.uses = chain, chain.makers(), chain.uses()

    def scalar(self, name: str) -> Optional[float]:
        values = self.chain.constants.get(name)
        return float(values.reshape(-1)[0]) if values is not None and values.size == 1 and values.ndim <= 1 else None

    def map_of(self, name: str, function: str) -> Optional[Node]:
        node = self.makers.get(name)
        return node if node is not None and node.is_map(function) else None

    def alone(self, name: str) -> bool:
        """It is used once, so it can go."""
        return self.uses.get(name, 0) == 1

    def operand(self, node: Node) -> Optional[float]:
        """The scalar that the second operand of a map is, whatever way it is given."""
        if "a" in node.parameters:
            return float(node.parameters["a"])
        return self.scalar(node.inputs[1]) if len(node.inputs) == 2 else None

    def factors(self, name: str, depth: int = 6) -> Tuple[List[str], float]:
        """Of a product: tensors, sorted, and the scalar of all its scalars. Powers of 2 and 3 are products."""
        scalar = self.scalar(name)
        if scalar is not None:
            return [], scalar
        node = self.makers.get(name)
        if depth == 0 or node is None or node.op != "map":
            return [name], 1.0
        second = self.operand(node)
        if node.is_map("pow") and second in (2.0, 3.0):
            tensors, number = self.factors(node.inputs[0], depth - 1)
            return sorted(tensors * int(second)), number ** second
        if node.is_map("div") and second:
            tensors, number = self.factors(node.inputs[0], depth - 1)
            return tensors, number / second
        if not node.is_map("mul"):
            return [name], 1.0
        tensors, number = self.factors(node.inputs[0], depth - 1)
        if second is not None:
            return tensors, number * second
        others, other = self.factors(node.inputs[1], depth - 1)
        return sorted(tensors + others), number * other

    def one_more(self, name: str, function: str) -> Optional[str]:
        """The argument of function in 1 + function(argument)."""
        node = self.map_of(name, "add")
        if node is None:
            return None
        operands = node.inputs
        if self.operand(node) == 1.0:
            inner = self.map_of(operands[0], function)
            return inner.inputs[0] if inner is not None else None
        return None


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=5e-4)


# --- patterns: each looks at one node and says what it could be ----------------------------------------------------------------


def _gelu(view: View, node: Node) -> Optional[Node]:
    """0.5 x (1 + erf(x / sqrt 2)), 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), x sigmoid(x): the scalars in any order."""
    if not node.is_map("mul"):
        return None
    tensors, number = view.factors(node.outputs[0])
    if len(tensors) != 2:
        return None
    for x, factor in (tensors, tensors[::-1]):
        gate = view.map_of(factor, "sigmoid")
        if gate is not None and gate.inputs[0] == x and number == 1.0:
            return Node("map", [x], node.outputs, {"op": "silu"})
        if not _close(number, 0.5):
            continue
        inner = view.one_more(factor, "erf")
        if inner is not None:
            argument, scale = view.factors(inner)
            if argument == [x] and _close(scale, math.sqrt(0.5)):
                return Node("map", [x], node.outputs, {"op": "gelu"})
        inner = view.one_more(factor, "tanh")
        if inner is not None and _tanh_argument(view, inner, x):
            return Node("map", [x], node.outputs, {"op": "gelu_tanh"})
    return None


def _tanh_argument(view: View, name: str, x: str) -> bool:
    tensors, scale = view.factors(name)
    if not _close(scale, math.sqrt(2 / math.pi)):
        return False
    if len(tensors) == 2 and x in tensors:  # x (1 + 0.044715 x^2)
        node = view.map_of(tensors[1 - tensors.index(x)], "add")
        if node is None or view.operand(node) != 1.0:
            return False
        square, number = view.factors(node.inputs[0])
        return square == [x, x] and _close(number, 0.044715)
    node = view.map_of(tensors[0], "add") if len(tensors) == 1 else None
    if node is None or len(node.inputs) != 2:
        return False
    for plain, cube in (node.inputs, node.inputs[::-1]):
        power, number = view.factors(cube)
        if plain == x and power == [x, x, x] and _close(number, 0.044715):
            return True
    return False


def _norm(view: View, node: Node) -> Optional[Node]:
    """d / sqrt(mean d^2 + eps) over the last axes: d is x - mean x (layer), else x itself (rms)."""
    if not node.is_map("div") or len(node.inputs) != 2:
        return None
    root = view.map_of(node.inputs[1], "sqrt")
    shifted = view.map_of(root.inputs[0], "add") if root is not None else None
    eps = view.operand(shifted) if shifted is not None else None
    if shifted is None or eps is None or eps < 0:
        return None
    x = node.inputs[0]
    squares = _mean(view, shifted.inputs[0])
    if squares is None or view.factors(squares.inputs[0]) != ([x, x], 1.0):
        return None
    parameters = {"kind": "rms", "axis": squares.parameters["axis"], "eps": eps}
    centred = view.map_of(x, "sub")
    mean = _mean(view, centred.inputs[1]) if centred is not None and len(centred.inputs) == 2 else None
    if centred is not None and mean is not None and mean.inputs[0] == centred.inputs[0] and mean.parameters["axis"] == squares.parameters["axis"]:
        return Node("norm", [centred.inputs[0]], node.outputs, dict(parameters, kind="layer"))
    return Node("norm", [x], node.outputs, parameters)


def _mean(view: View, name: str) -> Optional[Node]:
    """A mean over the last axes, which stay as extents of 1."""
    node = view.makers.get(name)
    if node is None or node.op != "reduce" or node.parameters["op"] != "mean" or not node.parameters["keepdims"]:
        return None
    rank = view.chain.ranks.get(node.inputs[0])
    axes = node.parameters["axis"]
    if rank is None or axes == "all" or sorted(axis % rank for axis in axes) != list(range(rank - len(axes), rank)):
        return None
    return node


def _affine(view: View, node: Node) -> Optional[Node]:
    """norm(x) * weight, + bias: with constants of the normalised axes' shape, which have to be known."""
    if not (node.is_map("mul") or node.is_map("add")) or len(node.inputs) != 2:
        return None
    place = 1 if node.is_map("mul") else 2
    for name, other in (node.inputs, node.inputs[::-1]):
        norm = view.makers.get(name)
        values = view.chain.constants.get(other)
        if norm is None or norm.op != "norm" or values is None or not view.alone(name) or any(norm.inputs[place:]):
            continue
        count = len(norm.parameters["axis"])
        if "activation" in norm.parameters or values.ndim < count or values.ndim > view.chain.ranks.get(name, count) or 1 in values.shape[-count:]:
            continue
        if any(length != 1 for length in values.shape[:-count]):
            continue
        if values.ndim > count:
            other = view.chain.fresh(other)
            view.chain.constants[other], view.chain.ranks[other] = values.reshape(values.shape[-count:]), count
        inputs = norm.inputs + [""] * (place - len(norm.inputs)) + [other]
        return Node("norm", inputs, node.outputs, norm.parameters)
    return None


def _bias(view: View, node: Node) -> Optional[Node]:
    """matmul + a vector of its columns."""
    if not node.is_map("add") or len(node.inputs) != 2:
        return None
    for name, other in (node.inputs, node.inputs[::-1]):
        product = view.makers.get(name)
        values = view.chain.constants.get(other)
        if product is None or product.op != "matmul" or values is None or not view.alone(name):
            continue
        weight = view.chain.constants.get(product.inputs[1])
        columns = weight.shape[-2 if product.parameters.get("transpose_b") else -1] if weight is not None else None
        if len(product.inputs) > 2 or "activation" in product.parameters or values.ndim > view.chain.ranks.get(name, 1) or values.size != columns:
            continue
        if values.shape[-1:] != (columns,):
            continue
        if values.ndim > 1:
            other = view.chain.fresh(other)
            view.chain.constants[other] = values.reshape(-1)
        return Node("matmul", product.inputs + [other], node.outputs, product.parameters)
    return None


def _activation(view: View, node: Node) -> Optional[Node]:
    """matmul or norm, then a function that it has itself."""
    made = view.makers.get(node.inputs[0]) if node.op == "map" and len(node.inputs) == 1 else None
    function = str(node.parameters.get("op"))
    if made is None or function not in ACTIVATIONS.get(made.op, ()) or not view.alone(node.inputs[0]) or "activation" in made.parameters:
        return None
    return Node(made.op, made.inputs, node.outputs, dict(made.parameters, activation=function))


def _transposed(view: View, node: Node) -> Optional[Node]:
    """An operand of matmul whose last two axes were changed for each other is read so."""
    if node.op != "matmul":
        return None
    for place, flag in ((0, "transpose_a"), (1, "transpose_b")):
        made = view.makers.get(node.inputs[place])
        if made is None or made.op != "transpose" or len(made.parameters["perm"]) < 2:
            continue
        perm = made.parameters["perm"]
        last = len(perm) - 1
        if perm == [*range(last - 1), last, last - 1]:
            inputs = list(node.inputs)
            inputs[place] = made.inputs[0]
            return Node("matmul", inputs, node.outputs, dict(node.parameters, **{flag: not node.parameters.get(flag, False)}))
    return None


Pattern = Callable[[View, Node], Union[None, Node, List[Node]]]
FIRST: Tuple[Pattern, ...] = (_gelu, _norm)
LAST: Tuple[Pattern, ...] = (_affine, _bias, _activation, _transposed)


def join_equals(chain: Chain) -> None:
    """Nodes that make the same of the same are one, and so are small constants."""
    first: Dict[Any, str] = {}
    same: Dict[str, str] = {}
    for name, values in chain.constants.items():
        if values.size <= EQUAL_MOST and name not in chain.kept:
            same[name] = first.setdefault((values.dtype.str, values.shape, values.tobytes()), name)
    kept: List[Node] = []
    for node in chain.nodes:
        node.inputs = [same.get(name, name) for name in node.inputs]
        key = (node.op, tuple(node.inputs), repr(sorted(node.parameters.items(), key=lambda item: item[0])), len(node.outputs))
        other = first.get(key)
        if other is not None and len(node.outputs) == 1 and node.outputs[0] not in chain.kept and node.op not in ("triangle", "unsupported"):
            same[node.outputs[0]] = other
        else:
            first.setdefault(key, node.outputs[0])
            kept.append(node)
    chain.nodes = kept


def fuse(chain: Chain, patterns: Sequence[Sequence[Pattern]]) -> None:
    """Each group until none of its patterns is found. What a pattern leaves without a use goes."""
    join_equals(chain)
    chain.drop_aliases()
    chain.drop_unused()
    for group in patterns:
        while _found(chain, group):
            chain.drop_aliases()
            chain.drop_unused()
        join_equals(chain)


def _found(chain: Chain, group: Sequence[Pattern]) -> bool:
    view = View(chain)
    for place, node in enumerate(chain.nodes):
        for pattern in group:
            better = pattern(view, node)
            if better is not None:
                chain.nodes[place:place + 1] = better if isinstance(better, list) else [better]
                return True
    return False


def name_all(chain: Chain, inputs: Sequence[str]) -> Dict[str, str]:
    """What each value is called in the definition: its own name where that may be one."""
    names: Dict[str, str] = {"": ""}
    taken = set()
    ends = set(inputs) | set(chain.kept)
    order = [*inputs, *chain.kept, *chain.constants, *(name for node in chain.nodes for name in node.outputs)]
    for name in order:
        if name in names:
            continue
        most = ENDS_MAX if name in ends else NAME_MAX
        stem = re.sub(r"[^A-Za-z0-9_.:/-]", "_", name)[-most:]
        called, number = stem, 0
        while called in taken:
            number += 1
            called = "%s.%d" % (stem[:most - 6], number)
        taken.add(called)
        names[name] = called
    return names
