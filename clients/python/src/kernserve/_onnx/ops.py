"""What each of ONNX's operators becomes: a function for each, which adds nodes to the chain or says why it cannot."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

import numpy as np

from .chain import Chain, Node

Dims = List[Union[int, str, None]]  # a length, a word for one, or unknown
ONE: Dims = [1]
UNKNOWN = -(2 ** 40)  # and some below: stand in a computed shape for lengths that are not known before a request comes
FLOATS = ("FP16", "BF16", "FP32", "FP64")
CONCAT_MOST = 8
TO_THE_END = 10 ** 9  # and more: no axis is so long


# What is done element by element: of operands that are 1 long where another one is not it makes the same as of ones that were repeated.
ELEMENTS = ("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Sum", "Mean", "And", "Or", "Xor", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Where",
            "Relu", "Neg", "Abs", "Sign", "Not", "IsNaN", "Sigmoid", "Tanh", "Erf", "Exp", "Log", "Sqrt", "Reciprocal", "Softplus", "Sin", "Cos", "Floor", "Ceil", "Round",
            "Elu", "LeakyRelu", "HardSigmoid", "HardSwish", "Gelu", "Clip", "Cast", "Identity", "Dropout")


def is_unknown(length: int) -> bool:
    return UNKNOWN - 2 ** 20 < length <= UNKNOWN


class Unsupported(Exception):
    """Why a node has no counterpart."""


class Call:
    """One node of the graph, as the functions below see it."""

    def __init__(self, chain: Chain, node: Any, attributes: Dict[str, Any], opset: int, dims: Dict[str, Dims], types: Dict[str, str],
                 decode: Callable[[int], Any] = int) -> None:
        self.decode = decode  # a number of a computed shape as a length
        self.chain, self.attributes, self.opset, self.dims, self.types = chain, attributes, opset, dims, types
        self.op: str = node.op_type
        self.inputs: List[str] = list(node.input)
        self.outputs: List[str] = list(node.output)

    def add(self, op: str, inputs: Sequence[str], output: Optional[str] = None, /, **parameters: Any) -> str:
        """A node; its output, a new value where none is named."""
        name = output if output is not None else self.chain.fresh(self.outputs[0])
        self.chain.nodes.append(Node(op, inputs, [name], {key: value for key, value in parameters.items() if value is not None}))
        return name

    def constant_of(self, values: np.ndarray) -> str:
        name = self.chain.fresh(self.outputs[0])
        self.chain.constants[name] = values
        return name

    def given(self, place: int) -> bool:
        return place < len(self.inputs) and self.inputs[place] != ""

    def constant(self, place: int, what: str) -> np.ndarray:
        values = self.chain.constants.get(self.inputs[place])
        if values is None:
            raise Unsupported("its %s is no constant" % what)
        return values

    def integers(self, attribute: str, place: int) -> Optional[List[int]]:
        """A list that is an attribute in older operator sets, and an input in newer ones."""
        if self.given(place):
            return [int(value) for value in self.constant(place, attribute).reshape(-1)]
        value = self.attributes.get(attribute)
        return None if value is None else [int(item) for item in value]

    def shape(self, name: str) -> Dims:
        if name not in self.dims:
            raise Unsupported("the rank of '%s' is not known" % name)
        return self.dims[name]

    def axis(self, given: int, rank: int) -> int:
        if not -rank <= given < rank:
            raise Unsupported("axis %d is outside a rank of %d" % (given, rank))
        return given % rank

    def datatype(self, name: str) -> str:
        return self.types.get(name, "unknown")

    def need_floats(self) -> None:
        if self.datatype(self.inputs[0]) not in FLOATS:
            raise Unsupported("its datatype is %s, and the daemon computes it in FP64" % self.datatype(self.inputs[0]))

    def alias(self, source: str, name: str) -> None:
        """The same elements under another name: a view."""
        rank = len(self.shape(source))
        if rank:
            self.add("reshape", [source], name, shape=[0] * rank)
        else:
            self.add("map", [source], name, op="cast")

    def reshape(self, source: str, target: Dims, name: str) -> None:
        """More than one length that is not known may go, when patterns are found: what is left of them is named then."""
        self.add("reshape", [source], name, shape=shape_by(self.shape(source), target))
        self.dims[name] = target


def shape_by(before: Dims, target: Dims) -> List[int]:
    """A reshape's shape: unknown lengths are the source's, at the same place or another one; what is not takes the rest."""
    shape = []
    for place, length in enumerate(target):
        if isinstance(length, int):
            shape.append(length)
        elif length and place < len(before) and before[place] == length:
            shape.append(0)
        else:
            shape.append(-2 - before.index(length) if length and length in before else -1)
    return shape


Rule = Callable[[Call], None]


# --- elements ------------------------------------------------------------------------------------------------------------


def _one(function: str, floats: bool = True, **renamed: str) -> Rule:
    """A function of one operand. renamed: its parameters by ONNX's attributes."""
    def rule(call: Call) -> None:
        if floats:
            call.need_floats()
        parameters = {name: call.attributes.get(attribute) for name, attribute in renamed.items()}
        call.add("map", call.inputs, call.outputs[0], op=function, **parameters)
    return rule


NEUTRAL = {"add": 0.0, "sub": 0.0, "mul": 1.0, "div": 1.0}


def _scalar(call: Call, name: str, other: str) -> Optional[float]:
    """A constant that can go as the parameter `a`: it changes no shape."""
    values = call.chain.constants.get(name)
    if values is None or values.size != 1 or values.dtype.kind == "b" or values.ndim > len(call.dims.get(other, [])) or other in call.chain.constants:
        return None
    number = float(values.reshape(-1)[0])
    return number if math.isfinite(number) and abs(number) < 2 ** 53 else None


def _changes_nothing(call: Call, function: str, name: str, other: str) -> bool:
    """Such as a mask of zeros that is added."""
    values, dims = call.chain.constants.get(name), call.dims.get(other)
    if values is None or dims is None or function not in NEUTRAL or values.ndim > len(dims) or other in call.chain.constants or not np.all(values == NEUTRAL[function]):
        return False
    return all(length in (1, known) for length, known in zip(values.shape[::-1], dims[::-1]))


def _two(function: str, commutes: bool = True) -> Rule:
    """A function of two operands, or of many that are taken in turn."""
    def rule(call: Call) -> None:
        if function == "div":
            call.need_floats()
        if function == "pow" and call.datatype(call.inputs[0]) != call.datatype(call.inputs[1]):
            if _scalar(call, call.inputs[1], call.inputs[0]) is None:
                raise Unsupported("its operands have different datatypes")
        left = call.inputs[0]
        if function == "div" and _scalar(call, left, call.inputs[1]) == 1.0:
            call.add("map", call.inputs[1:], call.outputs[0], op="reciprocal")
            return
        if len(call.inputs) == 1:
            call.alias(left, call.outputs[0])
        for place, right in enumerate(call.inputs[1:], 2):
            name = call.outputs[0] if place == len(call.inputs) else call.chain.fresh(call.outputs[0])
            a, swapped = _scalar(call, right, left), _scalar(call, left, right) if commutes else None
            kept = next((one for one, gone in ((left, right), (right, left)) if (commutes or one == left) and _changes_nothing(call, function, gone, one)), None)
            if kept is not None:
                call.alias(kept, name)
                call.dims.setdefault(name, list(call.shape(kept)))
            elif a is not None:
                call.add("map", [left], name, op=function, a=a)
            elif swapped is not None:
                call.add("map", [right], name, op=function, a=swapped)
            else:
                call.add("map", [left, right], name, op=function)
            left = name
    return rule


def _logical(function: str, neutral: bool) -> Rule:
    """With the truth that changes nothing it is the other operand."""
    def rule(call: Call) -> None:
        for name, other in (call.inputs, call.inputs[::-1]):
            values = call.chain.constants.get(name)
            if values is not None and values.size == 1 and bool(values.reshape(-1)[0]) == neutral and values.ndim <= len(call.shape(other)):
                return call.alias(other, call.outputs[0])
        return _two(function)(call)
    return rule


def _mean(call: Call) -> None:
    call.need_floats()
    outputs, call.outputs = call.outputs, [call.chain.fresh(call.outputs[0])]
    _two("add")(call)
    call.add("map", call.outputs, outputs[0], op="div", a=float(len(call.inputs)))


def _clip(call: Call) -> None:
    ends = []
    for attribute, place in (("min", 1), ("max", 2)):
        value = call.constant(place, attribute).reshape(-1)[0] if call.given(place) else call.attributes.get(attribute)
        ends.append(None if value is None or not math.isfinite(value) else float(value))
    call.add("map", call.inputs[:1], call.outputs[0], op="clamp", a=ends[0], b=ends[1])


def _gelu(call: Call) -> None:
    call.need_floats()
    tanh = call.attributes.get("approximate", b"none") == b"tanh"
    call.add("map", call.inputs, call.outputs[0], op="gelu_tanh" if tanh else "gelu")


def _hard(call: Call) -> None:
    """HardSigmoid; HardSwish, which is x times it."""
    call.need_floats()
    swish = call.op == "HardSwish"
    slope, offset = (1 / 6, 0.5) if swish else (call.attributes.get("alpha", 0.2), call.attributes.get("beta", 0.5))
    bent = call.add("map", call.inputs, op="linear", a=float(slope), b=float(offset))
    gate = call.add("map", [bent], None if swish else call.outputs[0], op="clamp", a=0.0, b=1.0)
    if swish:
        call.add("map", [gate, call.inputs[0]], call.outputs[0], op="mul")


def _cast(call: Call) -> None:
    target = call.datatype(call.outputs[0])
    if target == call.datatype(call.inputs[0]):
        return call.alias(call.inputs[0], call.outputs[0])
    call.add("map", call.inputs[:1], call.outputs[0], op="cast", out_datatype=target)
    return None


def _identity(call: Call) -> None:
    if len(call.outputs) > 1 and call.outputs[1]:
        raise Unsupported("it is asked for its mask")
    call.alias(call.inputs[0], call.outputs[0])


def _batch_norm(call: Call) -> None:
    """In inference: a factor and a term for each channel."""
    if call.attributes.get("training_mode") or len(call.outputs) > 1:
        raise Unsupported("it is in training")
    weight, bias, mean, var = (call.constant(place, what).astype(np.float64) for place, what in
                               ((1, "scale"), (2, "bias"), (3, "mean"), (4, "variance")))
    factor = weight / np.sqrt(var + call.attributes.get("epsilon", 1e-5))
    shape = (-1,) + (1,) * (len(call.shape(call.inputs[0])) - 2)
    dtype = call.constant(1, "scale").dtype
    scaled = call.add("map", [call.inputs[0], call.constant_of(factor.astype(dtype).reshape(shape))], op="mul")
    call.add("map", [scaled, call.constant_of((bias - mean * factor).astype(dtype).reshape(shape))], call.outputs[0], op="add")


# --- products, norms, reductions -----------------------------------------------------------------------------------------


def _matmul(call: Call) -> None:
    call.need_floats()
    a, b = call.inputs
    ranks = [len(call.shape(name)) for name in (a, b)]
    if min(ranks) < 2:
        raise Unsupported("an operand has rank %d, matmul takes 2 and more" % min(ranks))
    call.add("matmul", [a, b], call.outputs[0])


def _gemm(call: Call) -> None:
    call.need_floats()
    get = call.attributes.get
    alpha, beta = get("alpha", 1.0), get("beta", 1.0)
    columns = call.shape(call.inputs[1])[0 if get("transB") else 1]
    inputs, rest = call.inputs[:2], call.inputs[2] if call.given(2) and beta != 0 else ""
    values = call.chain.constants.get(rest)
    if values is not None:
        if beta != 1:
            values = (values * values.dtype.type(beta)).astype(values.dtype)
        if values.size == columns and values.shape in ((columns,), (1, columns)):
            values = values.reshape(-1)
        if beta != 1 or values.shape != call.chain.constants[rest].shape:
            rest = call.constant_of(values)
        if values.shape == (columns,):
            inputs, rest = [*inputs, rest], ""
    elif rest and beta != 1:
        rest = call.add("map", [rest], op="mul", a=float(beta))
    flags = {"transpose_a": True if get("transA") else None, "transpose_b": True if get("transB") else None,
             "alpha": float(alpha) if alpha != 1 else None}
    product = call.add("matmul", inputs, None if rest else call.outputs[0], **flags)
    if rest:
        call.add("map", [product, rest], call.outputs[0], op="add")


def _softmax(call: Call) -> None:
    call.need_floats()
    rank = len(call.shape(call.inputs[0]))
    axis = call.axis(call.attributes.get("axis", -1 if call.opset >= 13 else 1), rank)
    if call.opset < 13 and axis != rank - 1:
        raise Unsupported("in operator set %d its axis %d means all axes from there on" % (call.opset, axis))
    call.add("softmax", call.inputs, call.outputs[0], axis=axis, log=True if call.op == "LogSoftmax" else None)


def _layer_norm(call: Call) -> None:
    call.need_floats()
    if any(call.outputs[1:]):
        raise Unsupported("it is asked for means and deviations")
    rank = len(call.shape(call.inputs[0]))
    axes = list(range(call.axis(call.attributes.get("axis", -1), rank), rank))
    inputs = list(call.inputs)
    for place in range(1, len(inputs)):
        if inputs[place] and len(call.shape(inputs[place])) != len(axes):
            raise Unsupported("'%s' has not the normalised axes" % inputs[place])
    kind = "rms" if call.op == "RMSNormalization" else "layer"
    call.add("norm", inputs, call.outputs[0], kind=kind, axis=axes, eps=float(call.attributes.get("epsilon", 1e-5)))


def _reduce(function: str) -> Rule:
    def rule(call: Call) -> None:
        datatype = call.datatype(call.inputs[0])
        exact = function in ("sum", "prod", "sumsq", "max", "min")
        if not exact:
            call.need_floats()
        axes = call.integers("axes", 1)
        rank = len(call.shape(call.inputs[0]))
        if not axes and call.attributes.get("noop_with_empty_axes"):
            raise Unsupported("it reduces no axis")
        chosen: Any = [call.axis(axis, rank) for axis in axes] if axes else "all"
        widened = datatype not in (*FLOATS, "INT64") and function in ("sum", "prod", "sumsq")
        name = call.add("reduce", call.inputs[:1], None if widened else call.outputs[0], op=function, axis=chosen,
                        keepdims=bool(call.attributes.get("keepdims", 1)))
        if widened:
            call.add("map", [name], call.outputs[0], op="cast", out_datatype=datatype)
    return rule


def _cumsum(call: Call) -> None:
    """Sums of integers are INT64."""
    rank, source, target = len(call.shape(call.inputs[0])), call.datatype(call.inputs[0]), call.datatype(call.inputs[0])
    flags = {name: True for name in ("exclusive", "reverse") if call.attributes.get(name)}
    axis = call.axis(int(call.constant(1, "axis").reshape(-1)[0]), rank)
    widened = source not in (*FLOATS, "INT64")
    name = call.add("scan", call.inputs[:1], None if widened else call.outputs[0], axis=axis, **flags)
    if widened:
        call.add("map", [name], call.outputs[0], op="cast", out_datatype=target)


def _arg(function: str) -> Rule:
    def rule(call: Call) -> None:
        if call.attributes.get("select_last_index"):
            raise Unsupported("it asks for the last of equals")
        call.add("reduce", call.inputs, call.outputs[0], op=function, axis=int(call.attributes.get("axis", 0)),
                 keepdims=bool(call.attributes.get("keepdims", 1)))
    return rule


# --- layout --------------------------------------------------------------------------------------------------------------


def _reshape(call: Call) -> None:
    shape = [int(length) for length in call.constant(1, "shape").reshape(-1)]
    before = call.shape(call.inputs[0])
    if 0 in shape and call.attributes.get("allowzero"):
        raise Unsupported("it makes a tensor of nothing")
    if not shape:
        raise Unsupported("its result is a scalar")
    if any(map(is_unknown, shape)):
        target: Dims = list(map(call.decode, shape))
        return call.reshape(call.inputs[0], [before[place] if length == 0 else None if length == -1 else length for place, length in enumerate(target)], call.outputs[0])
    same = [length == known or (length in (0, -1) and not isinstance(known, int)) or length == 0 for length, known in zip(shape, before)]
    if len(shape) == len(before) and all(same):
        return call.alias(call.inputs[0], call.outputs[0])
    call.add("reshape", call.inputs[:1], call.outputs[0], shape=shape)
    return None


def _flatten(call: Call) -> None:
    dims = call.shape(call.inputs[0])
    axis = call.attributes.get("axis", 1)
    axis += len(dims) if axis < 0 else 0
    tail = [length for length in dims[axis:] if isinstance(length, int)]
    if axis == 1 and len(dims) > 1:
        shape = [0, -1]
    elif axis == 0:
        shape = [1, -1]
    elif len(tail) == len(dims) - axis:
        shape = [-1, math.prod(tail)]
    else:
        raise Unsupported("lengths behind its axis %d are not known" % axis)
    call.add("reshape", call.inputs, call.outputs[0], shape=shape)


def _squeeze(call: Call) -> None:
    dims = call.shape(call.inputs[0])
    axes = call.integers("axes", 1)
    gone = [call.axis(axis, len(dims)) for axis in axes] if axes else [place for place, length in enumerate(dims) if length == 1]
    left = [length for place, length in enumerate(dims) if place not in gone]
    if not left:
        raise Unsupported("its result is a scalar")
    call.reshape(call.inputs[0], left, call.outputs[0])


def _unsqueeze(call: Call) -> None:
    dims = call.shape(call.inputs[0])
    axes = call.integers("axes", 1) or []
    rank = len(dims) + len(axes)
    new = sorted(call.axis(axis, rank) for axis in axes)
    rest = iter(dims)
    call.reshape(call.inputs[0], [1 if place in new else next(rest) for place in range(rank)], call.outputs[0])


def _transpose(call: Call) -> None:
    rank = len(call.shape(call.inputs[0]))
    perm = [int(axis) for axis in call.attributes.get("perm", range(rank)[::-1])]
    call.add("transpose", call.inputs, call.outputs[0], perm=perm)


def _concat(call: Call) -> None:
    axis, parts = int(call.attributes["axis"]), call.inputs
    if len(parts) == 1:
        return call.alias(parts[0], call.outputs[0])
    while len(parts) > CONCAT_MOST:
        parts = [call.add("concat", parts[:CONCAT_MOST], axis=axis), *parts[CONCAT_MOST:]]
    call.add("concat", parts, call.outputs[0], axis=axis)
    return None


def _slice(call: Call) -> None:
    name, dims = call.inputs[0], list(call.shape(call.inputs[0]))
    starts, ends = call.integers("starts", 1) or [], call.integers("ends", 2) or []
    axes = call.integers("axes", 3)
    steps = call.integers("steps", 4) or [1] * len(starts)
    parts = []
    for start, end, axis, step in zip(starts, ends, axes if axes else range(len(starts)), steps):
        axis = call.axis(axis, len(dims))
        length = dims[axis]
        if not isinstance(length, int):
            if step < 0 or abs(start) >= TO_THE_END or end <= -TO_THE_END:
                raise Unsupported("it cuts an axis whose length is not known")
            if start or step != 1 or end < TO_THE_END:
                parts.append({"axis": axis, "start": start, "end": end if end < TO_THE_END else None, "step": step})
            continue
        cut = range(*slice(start, end, step).indices(length))
        if not cut:
            raise Unsupported("it makes a tensor of nothing")
        if len(cut) < length or step < 0:
            parts.append({"axis": axis, "start": cut.start, "end": cut.stop if cut.stop >= 0 else None, "step": step})
    if not parts:
        return call.alias(name, call.outputs[0])
    for place, part in enumerate(parts, 1):
        name = call.add("slice", [name], call.outputs[0] if place == len(parts) else None, **part)
    return None


def _split(call: Call) -> None:
    dims = call.shape(call.inputs[0])
    axis = call.axis(call.attributes.get("axis", 0), len(dims))
    sizes, length = call.integers("split", 1), dims[axis]
    if sizes is None:
        if not isinstance(length, int):
            raise Unsupported("it cuts an axis whose length is not known")
        size = -(-length // len(call.outputs))
        sizes = [min(size, length - place * size) for place in range(len(call.outputs))]
    start = 0
    for name, size in zip(call.outputs, sizes):
        if name:
            call.add("slice", call.inputs[:1], name, axis=axis, start=start, end=start + size)
        start += size


def _pad(call: Call) -> None:
    dims = call.shape(call.inputs[0])
    pads = call.integers("pads", 1) or []
    axes = [call.axis(axis, len(dims)) for axis in call.integers("axes", 3) or range(len(dims))]
    mode = call.attributes.get("mode", b"constant").decode()
    if mode not in ("constant", "edge", "reflect"):
        raise Unsupported("its mode is '%s'" % mode)
    if min(pads, default=0) < 0:
        raise Unsupported("it takes elements away")
    before, after = [0] * len(dims), [0] * len(dims)
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[place + len(axes)]
    value: Any = float(call.constant(2, "value").reshape(-1)[0] if call.given(2) else call.attributes.get("value", 0.0))
    if math.isnan(value):
        raise Unsupported("it pads with NaN")
    if math.isinf(value):
        value = "inf" if value > 0 else "-inf"
    call.add("pad", call.inputs[:1], call.outputs[0], before=before, after=after, mode=mode if mode != "constant" else None,
             value=value if mode == "constant" and value else None)


def is_repeat(length: Any, wanted: Any) -> bool:
    """Of two lengths with words of their own one may be 1 while the other is not; one without a word is what the graph makes equal."""
    return bool(length == 1) or length != wanted and not any(not word or str(word).startswith(("?", "unk__")) for word in (length, wanted))


def _expand(call: Call) -> None:
    shape = [int(length) for length in call.constant(1, "shape").reshape(-1)]
    dims = call.shape(call.inputs[0])
    shape = [1] * (len(dims) - len(shape)) + shape
    for place in range(len(dims)):
        if shape[-1 - place] == 1 or is_unknown(shape[-1 - place]):
            if is_unknown(shape[-1 - place]) and is_repeat(dims[-1 - place], call.decode(shape[-1 - place])):
                raise Unsupported("it repeats along an axis whose length is not known")
            shape[-1 - place] = 0
    if any(map(is_unknown, shape)):
        raise Unsupported("it repeats along an axis whose length is not known")
    if len(shape) == len(dims) and all(length in (0, known) for length, known in zip(shape, dims)):
        return call.alias(call.inputs[0], call.outputs[0])
    call.add("expand", call.inputs[:1], call.outputs[0], shape=shape)
    return None


def _tile(call: Call) -> None:
    call.add("tile", call.inputs[:1], call.outputs[0], repeats=[int(count) for count in call.constant(1, "repeats").reshape(-1)])


def _gather(call: Call) -> None:
    """Constant indices that are a slice are one; others are looked up."""
    indices = call.chain.constants.get(call.inputs[1])
    dims = call.shape(call.inputs[0])
    axis = call.axis(call.attributes.get("axis", 0), len(dims))
    length = dims[axis]
    if indices is None or indices.ndim > 1 or indices.size == 0 or not isinstance(length, int) or call.inputs[0] in call.chain.constants:
        return _look_up(call, axis, None)
    places = [int(index) % length for index in indices.reshape(-1)]
    step = places[1] - places[0] if len(places) > 1 else 1
    if step == 0 or places != list(range(places[0], places[0] + step * len(places), step)):
        return _look_up(call, axis, None)
    end = places[-1] + (1 if step > 0 else -1)
    cut = call.add("slice", call.inputs[:1], call.outputs[0] if indices.ndim else None, axis=axis, start=places[0],
                   end=end if end >= 0 else None, step=step)
    if not indices.ndim:
        call.dims[cut] = [*dims[:axis], 1, *dims[axis + 1:]]
        left = [*dims[:axis], *dims[axis + 1:]]
        if not left:
            raise Unsupported("its result is a scalar")
        call.reshape(cut, left, call.outputs[0])
    return None


def _look_up(call: Call, axis: int, kind: Optional[str]) -> None:
    if call.datatype(call.inputs[1]) not in ("INT32", "INT64"):
        raise Unsupported("its indices are %s, and INT32 or INT64 are taken" % call.datatype(call.inputs[1]))
    call.add("gather", call.inputs, call.outputs[0], axis=axis or None, kind=kind)


def _gather_elements(call: Call) -> None:
    _look_up(call, call.axis(call.attributes.get("axis", 0), len(call.shape(call.inputs[0]))), "elements")


def _topk(call: Call) -> None:
    k = int(call.constant(1, "k").reshape(-1)[0]) if call.given(1) else int(call.attributes["k"])
    outputs = [call.outputs[0], call.outputs[1] if len(call.outputs) > 1 else ""]
    parameters = {"k": k, "axis": int(call.attributes.get("axis", -1)), "largest": bool(call.attributes.get("largest", 1)),
                  "index_datatype": "INT64"}
    call.chain.nodes.append(Node("topk", call.inputs[:1], outputs, parameters))


def _where(call: Call) -> None:
    if len(call.inputs) != 3:
        raise Unsupported("it has %d operands" % len(call.inputs))
    call.add("map", call.inputs, call.outputs[0], op="where")


RULES: Dict[str, Rule] = {
    "Add": _two("add"), "Sub": _two("sub", False), "Mul": _two("mul"), "Div": _two("div", False), "Pow": _two("pow", False),
    "Min": _two("min"), "Max": _two("max"), "Sum": _two("add"), "Mean": _mean, "And": _logical("and", True), "Or": _logical("or", False), "Xor": _two("xor"),
    "Equal": _two("eq"), "Less": _two("lt", False), "LessOrEqual": _two("le", False), "Greater": _two("gt", False),
    "GreaterOrEqual": _two("ge", False), "Where": _where,
    "Relu": _one("relu", False), "Neg": _one("neg", False), "Abs": _one("abs", False), "Sign": _one("sign", False), "Not": _one("not", False),
    "IsNaN": _one("isnan", False), "Sigmoid": _one("sigmoid"), "Tanh": _one("tanh"), "Erf": _one("erf"), "Exp": _one("exp"), "Log": _one("log"),
    "Sqrt": _one("sqrt"), "Reciprocal": _one("reciprocal"), "Softplus": _one("softplus"), "Sin": _one("sin"), "Cos": _one("cos"),
    "Floor": _one("floor"), "Ceil": _one("ceil"), "Round": _one("round"), "Elu": _one("elu", a="alpha"), "LeakyRelu": _one("leaky_relu", a="alpha"),
    "HardSigmoid": _hard, "HardSwish": _hard, "Gelu": _gelu, "Clip": _clip, "Cast": _cast, "Identity": _identity, "Dropout": _identity, "BatchNormalization": _batch_norm,
    "MatMul": _matmul, "Gemm": _gemm, "Softmax": _softmax, "LogSoftmax": _softmax, "LayerNormalization": _layer_norm,
    "RMSNormalization": _layer_norm, "ReduceSum": _reduce("sum"), "ReduceMean": _reduce("mean"), "ReduceMax": _reduce("max"),
    "ReduceMin": _reduce("min"), "ReduceProd": _reduce("prod"), "ReduceL1": _reduce("l1norm"), "ReduceL2": _reduce("l2norm"),
    "ReduceSumSquare": _reduce("sumsq"), "ReduceLogSum": _reduce("logsum"), "ReduceLogSumExp": _reduce("logsumexp"),
    "ArgMax": _arg("argmax"), "ArgMin": _arg("argmin"), "TopK": _topk, "CumSum": _cumsum, "Reshape": _reshape, "Flatten": _flatten, "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze, "Transpose": _transpose, "Concat": _concat, "Slice": _slice, "Split": _split, "Pad": _pad, "Expand": _expand,
    "Tile": _tile, "Gather": _gather, "GatherElements": _gather_elements,
}
