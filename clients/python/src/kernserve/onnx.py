"""ONNX graphs as models of the daemon: python3 -m kernserve.onnx model.onnx -o model.safetensors

Writes one safetensors file: the weights, and in its head the definition, a chain of the daemon's operations. The daemon takes it with
`kernserve-client load NAME model.safetensors`, ks.load("NAME", "model.safetensors"), or curl -T. Needs `pip install kernserve-client[onnx]`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from ._datatypes import OF_NUMPY
from ._model import body_of
from ._onnx import attention, moves, rotary, spelt
from ._onnx.chain import FIRST, LAST, Chain, Node, fuse, name_all
from ._onnx.counted import count
from ._onnx.einsum import EINSUM_RULES
from ._onnx.lengths import LOST, Lengths, broadcast, has_unknown, is_word
from ._onnx.ml import ML_RULES
from ._onnx.narrow import Narrow, one_value
from ._onnx.ops import ONE, RULES, Call, Dims, Rule, Unsupported, shape_by
from ._onnx.positions import Grid, Made, Positions, Truth
from ._onnx.quantize import QUANTIZE_RULES
from ._onnx.triangles import Triangle, Triangles
from ._onnx.windows import WINDOW_RULES

NODES_MAX, INPUTS_MAX, OUTPUTS_MAX = 1024, 16, 16
OLDEST = 7  # operator set; from this one on operands broadcast as NumPy's
DATATYPES = {"FLOAT": "FP32", "DOUBLE": "FP64", "FLOAT16": "FP16", "BFLOAT16": "BF16", "FLOAT8E4M3FN": "FP8E4M3", "FLOAT8E5M2": "FP8E5M2",
             "BOOL": "BOOL", **{kind + bits: kind + bits for kind in ("INT", "UINT") for bits in ("8", "16", "32", "64")}}
MOVES = (*moves.MOVES, attention.batches, attention.rows, attention.heads, attention.groups)
# In this order: what is spelt out, then what only moves elements, which stands between the rest.
PATTERNS = (*((pattern,) for pattern in FIRST), (spelt.norm, spelt.rms), (spelt.softmax,), (spelt.one_hot,), (rotary.rotary,), MOVES, (attention.attention,), MOVES,
            (spelt.table, spelt.table_of_table), *((pattern,) for pattern in LAST), MOVES)
assert {*WINDOW_RULES, *QUANTIZE_RULES, *EINSUM_RULES} <= set(RULES) and ML_RULES
# What may have a shape with lengths that only a request knows.
BY_SHAPES = ("Reshape", "Expand")
LOOK_UPS = ("Gather", "GatherElements", "GatherND")


def _computed(compute: Callable[[], Any]) -> Any:
    """What the evaluator says against a node is said of that node."""
    try:
        return compute()
    except Unsupported:
        raise
    except Exception as error:
        raise Unsupported("it is a constant that cannot be computed: %s" % error) from error


class ConversionError(ValueError):
    """Nodes that cannot be had here, a line for each: `.lines`."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = list(lines)


class _Reader:
    """Reads a model's graph into a chain, node by node; `lines` has what could not be."""

    def __init__(self, model: Any) -> None:
        self.onnx: Any = importlib.import_module("onnx")
        for module in ("onnx.reference", "onnx.numpy_helper", "onnx.shape_inference"):
            importlib.import_module(module)
        self.opsets = {entry.domain: entry.version for entry in model.opset_import}
        self.opset: int = self.opsets.get("", self.opsets.get("ai.onnx", 0))
        try:
            model = self.onnx.shape_inference.infer_shapes(model, data_prop=True)
        except Exception:  # what is not known is then said of the node that needs it
            pass
        self.graph, self.chain, self.lines = model.graph, Chain(), []  # type: Any, Chain, List[str]
        self.dims: Dict[str, Dims] = {}
        self.types: Dict[str, str] = {}
        self.lengths = Lengths()
        self.narrow = Narrow(self.chain, self.dims, self.types)
        self.triangles = Triangles(self.chain.constants, self.narrow.dims)
        for value in (*self.graph.input, *self.graph.value_info, *self.graph.output):
            self._note(value)
        for tensor in self.graph.initializer:
            self._constant(tensor.name, self.onnx.numpy_helper.to_array(tensor))
        for tensor in self.graph.sparse_initializer:
            self.lines.append("initializer '%s' is sparse" % tensor.values.name)
        self.inputs = [value.name for value in self.graph.input if value.name not in self.chain.constants]
        self.chain.kept = [value.name for value in self.graph.output]
        self.positions = Positions(self.chain, self.lengths, self.dims, self.types, self.inputs)

    def _note(self, value: Any) -> None:
        kind = value.type.tensor_type
        if kind.elem_type:
            self.types[value.name] = DATATYPES.get(self.onnx.TensorProto.DataType.Name(kind.elem_type), "unknown")
        if kind.HasField("shape"):
            self.dims[value.name] = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in kind.shape.dim]

    def _constant(self, name: str, values: Any) -> None:
        values = np.asarray(values)
        self.chain.constants[name] = values
        self.dims[name], self.types[name] = list(values.shape), OF_NUMPY.get(values.dtype, "unknown")

    def read(self) -> None:
        if not OLDEST <= self.opset:
            self.lines.append("operator set %d is older than %d: onnx.version_converter makes it newer" % (self.opset, OLDEST))
        lost: Set[str] = set()  # values that no node here makes: what is said of their users would not be their users' fault
        for node in self.graph.node:
            name = node.name or (node.output[0] if node.output else "")
            line, follows = None, bool(lost & set(node.input))
            try:
                if not self._fold(node):
                    self._convert(node)
                continue
            except Unsupported as reason:
                line = None if follows else "node '%s' (%s): %s" % (name, node.op_type, reason)
            except KeyError:
                line = "node '%s': ONNX op '%s' has no counterpart here" % (name, "::".join(filter(None, (node.domain, node.op_type))))
            lost |= set(node.output)
            self.chain.nodes.append(Node("unsupported", node.input, node.output, {"line": line}))
        for name in self.chain.kept:
            self._end(name)
        self.chain.drop_unused()  # of a node whose result is not needed nothing is said
        self.lines += [node.parameters["line"] for node in self.chain.nodes if node.op == "unsupported" and node.parameters["line"]]
        self.chain.ranks = {name: len(dims) for name, dims in self.dims.items()}
        self.chain.dims, self.chain.types = dict(self.dims), self.types

    def _end(self, name: str) -> None:
        """An output has the lengths that ONNX says."""
        try:
            self._place(name)
            if name in self.narrow.wide:
                whole = self.narrow.spread(name, self.positions.source)
                self.chain.nodes.append(Node("reshape", [whole], [self.chain.fresh(name)], {"shape": [0] * len(self.narrow.wide[name])}))
                self.dims[self.chain.nodes[-1].outputs[0]] = self.narrow.wide[name]
                self.chain.rename(name, self.chain.nodes[-1].outputs[0])
        except Unsupported as reason:
            self.lines.append("output '%s': %s" % (name, reason))

    def _is_partial(self, name: str) -> bool:
        values = self.chain.constants.get(name)
        return values is not None and has_unknown(values)

    def _fold(self, node: Any) -> bool:
        """A node of constants alone is a constant, and so is a shape."""
        constants = self.chain.constants
        shape_of = self.narrow.dims(node.input[0]) if node.op_type == "Shape" else None
        if shape_of is not None:
            shape = [self.lengths.code(length) for length in self.lengths.named(shape_of)]
            ends = {attribute.name: attribute.i for attribute in node.attribute}
            self._constant(node.output[0], np.array(shape[ends.get("start", 0):ends.get("end")], np.int64))
            return True
        attributes = {attribute.name: self.onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        if "value" in attributes and node.op_type == "ConstantOfShape":
            attributes["value"] = self.onnx.numpy_helper.to_array(attributes["value"])
        if node.domain not in ("", "ai.onnx") or any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            return False
        if node.input and _computed(lambda: self._follow(node, attributes)):
            return True
        if any(name and name not in constants for name in node.input) or not (node.input or node.op_type == "Constant"):
            return False
        if node.op_type in ("Slice", "Expand") and not self._is_partial(node.input[0]) and any(map(self._is_partial, node.input[1:])):
            return False
        wide = self.narrow.after(node, attributes) if any(name in self.narrow.wide for name in node.input) else []
        if wide is None:
            return False
        given = [name for name in node.input if name]
        if node.op_type == "Cast" and self._is_partial(given[0]) and attributes.get("to") != self.onnx.TensorProto.BOOL:  # of no other datatype's range
            self._constant(node.output[0], constants[given[0]])
            return True
        values = [constants[name] for name in given]
        partial = any(map(self._is_partial, given))
        results = _computed(lambda: self.lengths.evaluate(node.op_type, values, lambda each: self._run(node, dict(zip(given, each)))) if partial else self._run(
            node, dict(zip(given, values))))
        for name, made in zip(filter(None, node.output), results):
            self._constant(name, made)
        if wide:
            self.narrow.note(node.output[0], self.dims[node.output[0]], wide)
        return True

    def _follow(self, node: Any, attributes: Mapping[str, Any]) -> bool:
        """Of lengths that only a request knows: positions, triangles, one number at every place, what is spread out."""
        made: Made = self.positions.fold(node, attributes) or self.triangles.fold(node, attributes, lambda given: self._run(node, given))
        name, constants = node.output[0], self.chain.constants
        if isinstance(made, Grid):
            self.positions.found[name], self.dims[name], self.types[name] = made, list(made.dims), "INT64"
        elif isinstance(made, Truth) or isinstance(made, Triangle) and made.is_even():
            number = np.array(made.value) if isinstance(made, Truth) else np.asarray(made.values[0])
            self._number(name, number, made.dims)
        elif made is not None:
            self.triangles.found[name], self.types[name] = made, OF_NUMPY.get(made.values.dtype, "unknown")
            self.narrow.note(name, ONE * (len(made.dims) - 2) + made.dims[-2:], made.dims)
        elif node.op_type == "ConstantOfShape" and self._is_partial(node.input[0]):
            value = attributes.get("value", np.zeros(1, np.float32))
            self._number(name, value, [self.lengths.decode(int(length)) for length in constants[node.input[0]].reshape(-1)])
        elif node.op_type in LOOK_UPS and node.input[0] in constants and one_value(constants[node.input[0]]) and not self._is_partial(node.input[0]):
            return self._look_up_number(node, attributes)
        elif node.op_type == "CumSum" and node.input[0] in self.narrow.wide and node.input[0] in constants and not constants[node.input[0]].any():
            self._number(name, constants[node.input[0]].reshape(-1)[:1], self.narrow.wide[node.input[0]])
        else:
            return False
        return True

    def _number(self, name: str, value: np.ndarray, wide: Dims) -> None:
        self.types[name] = OF_NUMPY.get(value.dtype, "unknown")
        self.narrow.constant(name, np.asarray(value), wide)

    def _look_up_number(self, node: Any, attributes: Mapping[str, Any]) -> bool:
        """Of a table of one number, whatever the places are."""
        table, places = self.narrow.dims(node.input[0]), self.narrow.dims(node.input[1])
        if node.op_type == "GatherND":
            names = self.positions.tuples.get(node.input[1])
            if names is None or table is None or attributes.get("batch_dims", 0):
                return False
            wide = broadcast([self.positions.found[name].dims for name in names])[:-1] + table[len(names):]
            self._number(node.output[0], self.chain.constants[node.input[0]].reshape(-1)[0], wide)
            return True
        if table is None or places is None or node.input[1] in self.chain.constants and not self._is_partial(node.input[1]) and node.input[1] not in self.narrow.wide:
            return False
        axis = attributes.get("axis", 0) % len(table)
        wide = list(places) if node.op_type == "GatherElements" else [*table[:axis], *places, *table[axis + 1:]]
        self._number(node.output[0], self.chain.constants[node.input[0]].reshape(-1)[0], wide)
        return True

    def _run(self, node: Any, given: Mapping[str, np.ndarray]) -> List[np.ndarray]:
        helper = self.onnx.helper
        ends_of = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), None) for name, values in given.items()]
        graph = helper.make_graph([node], "constants", ends_of, [self.onnx.ValueInfoProto(name=name) for name in node.output if name])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        return list(self.onnx.reference.ReferenceEvaluator(model).run(None, dict(given)))

    def _place(self, name: str) -> None:
        """A grid or a triangle as a value."""
        if name in self.chain.makers() or name in self.chain.constants:
            return
        if name in self.positions.found:
            self.positions.place(name)
            self.narrow.note(name, self.dims[name], self.positions.found[name].dims)
        elif name in self.triangles.found:
            triangle = self.triangles.found[name]
            self.chain.nodes.append(Node("triangle", [""], [name], {"values": triangle.values, "band": triangle.band}))

    def _spread(self, node: Any) -> None:
        """Operands with their lengths, for an operator that minds."""
        for place, name in enumerate(node.input):
            if name in self.narrow.wide:
                node.input[place] = self.narrow.spread(name, self.positions.source)

    def _decoded(self, name: str) -> Optional[List[Any]]:
        values = self.chain.constants.get(name)
        return None if values is None or values.dtype != np.int64 else [self.lengths.decode(int(length)) for length in values.reshape(-1)]

    def _reshaped(self, node: Any, attributes: Mapping[str, Any]) -> bool:
        """A narrow value with other axes of 1."""
        name = node.input[0]
        wide, numbers = self.narrow.dims(name), self._decoded(node.input[1]) if len(node.input) > 1 else [int(axis) for axis in attributes.get("axes", ())]
        if wide is None or numbers is None:
            return False
        if node.op_type == "Unsqueeze":
            rank, rest = len(wide) + len(numbers), iter(wide)
            new = [int(axis) % rank for axis in numbers]
            return self.narrow.moved(name, [1 if place in new else next(rest) for place in range(rank)], node.output[0])
        if node.op_type == "Squeeze":
            gone = [int(axis) % len(wide) for axis in numbers] or [place for place, length in enumerate(wide) if length == 1]
            return self.narrow.moved(name, [length for place, length in enumerate(wide) if place not in gone], node.output[0])
        return self.narrow.moved(name, [(wide[place] if place < len(wide) else 1) if length == 0 else None if length == -1 else length for place, length in enumerate(numbers)], node.output[0])

    def _narrowed(self, node: Any, attributes: Mapping[str, Any]) -> Tuple[bool, Optional[Dims]]:
        """Whether the node is done; else what its result has as ONNX says, where that is more than here."""
        followed = node.input and any(node.input[0] in names for names in (self.narrow.wide, self.positions.found, self.triangles.found))
        found = self.positions.read(node, attributes) if not followed else None
        if found is not None:
            self.chain.nodes.append(Node("reshape", [found[0]], [node.output[0]], {"shape": shape_by(self.dims[found[0]], found[1])}))
            self.narrow.note(node.output[0], found[1], found[2])
            return True, None
        for name in node.input:
            self._place(name)
        if self._cut(node):
            return True, None
        target = self._decoded(node.input[1]) if node.op_type == "Expand" else None
        if target is not None and (node.input[0] in self.narrow.wide or not all(isinstance(length, int) for length in target)):
            self.narrow.expand(node.input[0], target, node.output[0])
            return True, None
        if not any(name in self.narrow.wide for name in node.input):
            return False, None
        if node.op_type in ("Unsqueeze", "Squeeze", "Reshape") and self._reshaped(node, attributes):
            return True, None
        wide = self.narrow.after(node, attributes)
        if wide is None:
            self._spread(node)
        return False, wide

    def _cut(self, node: Any) -> bool:
        """The first elements of a constant, as many as a length that only a request knows: looked up by their positions."""
        table = self.chain.constants.get(node.input[0])
        if node.op_type != "Slice" or table is None or not self._is_partial(node.input[2]):
            return False
        starts, ends = (self._decoded(name) for name in node.input[1:3])
        axes, steps = (self._decoded(node.input[place]) if len(node.input) > place and node.input[place] else None for place in (3, 4))
        if starts is None or ends is None or len(starts) != 1 or starts[0] != 0 or steps not in (None, [1]) or len(axes or [0]) != 1:
            raise Unsupported(LOST)
        axis, word = int((axes or [0])[0]) % table.ndim, ends[0]
        if table.shape[axis] == 1 or one_value(table):
            raise Unsupported("it cuts an axis of one number by a length that only a request knows")
        places, output = self.positions.count(word), node.output[0]
        if all(length == 1 for length in table.shape[:axis]):
            flat = self.chain.fresh(node.input[0])
            self.chain.constants[flat], self.dims[flat], self.types[flat] = table.reshape(table.shape[axis:]), list(table.shape[axis:]), self.types[node.input[0]]
            if axis:
                places = self.narrow.add("reshape", [places], [*ONE * axis, word], None, places, shape=[1] * axis + [-1])
            self.chain.nodes.append(Node("gather", [flat, places], [output], {}))
        else:
            self.chain.nodes.append(Node("gather", [node.input[0], places], [output], {"axis": axis}))
        self.dims[output] = [word if place == axis else length for place, length in enumerate(table.shape)]
        return True

    def _guess(self, node: Any, attributes: Mapping[str, Any]) -> None:
        """The datatype of a result behind operators that shape inference does not know."""
        if not node.output or node.output[0] in self.types or not node.input:
            return
        if node.op_type == "Cast":
            self.types[node.output[0]] = DATATYPES.get(self.onnx.TensorProto.DataType.Name(attributes["to"]), "unknown")
        elif node.op_type in ("ArgMax", "ArgMin"):
            self.types[node.output[0]] = "INT64"
        elif node.op_type in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "IsNaN"):
            self.types[node.output[0]] = "BOOL"
        elif node.domain in ("", "ai.onnx") and node.input[node.op_type == "Where"] in self.types:
            self.types[node.output[0]] = self.types[node.input[node.op_type == "Where"]]

    def _convert(self, node: Any) -> None:
        called = node.op_type if node.domain in ("", "ai.onnx") else "%s::%s" % (node.domain, node.op_type)
        rule = RULES.get(called)
        if rule is None and called not in LOOK_UPS:
            raise KeyError(called)
        for name in node.output[:1]:
            if name in self.types and self.types[name] == "unknown":
                raise Unsupported("the datatype of its result is none of the daemon's")
        attributes = {attribute.name: self.onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        self._guess(node, attributes)
        made = len(self.chain.nodes)
        for name in node.input:
            self.lengths.named(self.dims.get(name, []))
        if not self._sure(lambda: self._ruled(node, attributes, rule, made)):
            raise KeyError(called)

    def _ruled(self, node: Any, attributes: Dict[str, Any], rule: Optional[Rule], made: int) -> bool:
        """Whether there is something to convert it by."""
        done, wide = self._narrowed(node, attributes)
        if done or rule is None:
            return done
        if any(map(self._is_partial, node.input)) and node.op_type not in BY_SHAPES:
            raise Unsupported(LOST)
        rule(Call(self.chain, node, attributes, self.opset, self.dims, self.types, self.lengths.decode))
        if wide is not None:
            self.dims.pop(node.output[0], None)  # ONNX's
        self.lengths.note(self.chain, self.chain.nodes[made:], self.dims)
        if wide is not None:
            self.narrow.note(node.output[0], self.dims[node.output[0]], wide)
        return True

    def _sure(self, convert_it: Callable[[], bool]) -> bool:
        try:
            return convert_it()
        except Unsupported:
            raise
        except Exception as error:  # what a rule did not find in a graph that is not as ONNX says
            raise Unsupported("it is not as its operator needs it: %s %s" % (type(error).__name__, error)) from error

    def leading(self) -> Optional[str]:
        """The word of the batch: the length in front of the first input that has none of its own. Others with another word are free."""
        for name in self.inputs:
            dims = self.dims.get(name, [])
            if dims and not isinstance(dims[0], int):
                return dims[0] if is_word(dims[0]) else ""
        return None

    def shape_of(self, name: str) -> List[Any]:
        shape: List[Any] = []
        for place, length in enumerate(self.dims[name]):
            if isinstance(length, int):
                shape.append(length)
            elif length is None or not is_word(length) or place == 0 and length == self.leading():
                shape.append(-1)
            else:
                shape.append(re.sub(r"\W", "_", length, flags=re.ASCII))
        return shape


def _definition(reader: _Reader, description: str, max_batch: Optional[int]) -> Tuple[Dict[str, Any], Dict[str, np.ndarray]]:
    chain = reader.chain
    names = name_all(chain, reader.inputs)
    definition: Dict[str, Any] = {"format": 1, "description": description}
    if max_batch:
        definition["max_batch"] = max_batch
    definition["inputs"] = [{"name": names[name], "datatype": reader.types[name], "shape": reader.shape_of(name)} for name in reader.inputs]
    definition["initializers"] = [names[name] for name in chain.constants]
    definition["nodes"] = [{"name": names[next(filter(None, node.outputs))], "op": node.op, "inputs": [names[name] for name in node.inputs],
                            "outputs": [names[name] for name in node.outputs], "parameters": node.parameters} for node in chain.nodes]
    definition["outputs"] = [{"name": names[name]} for name in chain.kept]
    return definition, {names[name]: values for name, values in chain.constants.items()}


def _limits(reader: _Reader) -> List[str]:
    lines = [*reader.lines]
    for count, most, what in ((len(reader.chain.nodes), NODES_MAX, "nodes"), (len(reader.inputs), INPUTS_MAX, "inputs"),
                              (len(reader.chain.kept), OUTPUTS_MAX, "outputs")):
        if count > most:
            lines.append("the model has %d %s, the daemon takes %d" % (count, what, most))
    for name in reader.inputs:
        if name not in reader.dims or reader.types.get(name, "unknown") == "unknown":
            lines.append("input '%s' has no rank, or a datatype that the daemon has not" % name)
    lines += ["node '%s' (reshape): more than one length of its result is not known" % node.outputs[0] for node in reader.chain.nodes
              if node.op == "reshape" and node.parameters["shape"].count(-1) > 1]
    for name in reader.chain.constants:
        if reader.types.get(name) == "unknown":
            lines.append("initializer '%s' has a datatype that the daemon has not" % name)
    return lines


def convert(model: Any, *, outputs: Optional[Sequence[str]] = None, max_batch: Optional[int] = None) -> Tuple[Mapping[str, Any], Mapping[str, np.ndarray]]:
    """Definition and weights of a ModelProto or a file: ks.load("name", *convert("model.onnx")).

    outputs: those of the model's that are asked for, which spares what only others need; None: all. Raises ConversionError, which names
    each node that the daemon cannot do."""
    onnx = importlib.import_module("onnx")
    if not hasattr(model, "graph"):
        try:
            model = onnx.load(model)
        except OSError:
            raise
        except Exception as error:  # protobuf's
            raise ConversionError(["'%s' is no model of ONNX: %s" % (model, error)]) from error
    _check(model)
    reader = _Reader(model)
    if outputs is not None:
        unknown = sorted(set(outputs) - set(reader.chain.kept))
        if unknown:
            raise ConversionError(["the model has no output '%s'" % name for name in unknown])
        reader.chain.kept = list(outputs)
        _keep_needed(reader.graph, outputs)
    reader.read()
    try:
        if not reader.lines:
            fuse(reader.chain, PATTERNS)
            count(reader.chain, reader.inputs, reader.leading())
        lines = _limits(reader)
        made = _definition(reader, model.graph.name[:200], max_batch) if not lines else None
    except Unsupported as reason:
        raise ConversionError([str(reason)]) from reason
    except Exception as error:  # what a pattern did not find in a graph that is not as ONNX says
        raise ConversionError(["the graph is not as ONNX has it: %s %s" % (type(error).__name__, error)]) from error
    if made is None:
        raise ConversionError(lines)
    return made


def _check(model: Any) -> None:
    """Values are made once, and before they are used: patterns would not come to an end else. Initializers have their bytes."""
    numpy_helper = importlib.import_module("onnx.numpy_helper")
    made = {"", *(value.name for value in model.graph.input), *(tensor.name for tensor in model.graph.initializer)}
    lines: List[str] = []
    for tensor in model.graph.initializer:
        try:
            numpy_helper.to_array(tensor)
        except Exception as error:
            lines.append("initializer '%s': %s" % (tensor.name, error))
    for node in model.graph.node:
        name = node.name or (node.output[0] if node.output else node.op_type)
        lines += ["node '%s': its input '%s' is made by no node in front of it" % (name, value) for value in node.input if value not in made]
        if not node.input and (node.op_type in RULES or node.op_type == "Shape"):
            lines.append("node '%s': it has no input" % name)
        lines += ["node '%s': its output '%s' was made before" % (name, value) for value in node.output if value and value in made]
        made |= set(node.output)
    lines += ["the model's output '%s' is made by no node" % value.name for value in model.graph.output if value.name not in made]
    if lines:
        raise ConversionError(lines)


def _keep_needed(graph: Any, outputs: Sequence[str]) -> None:
    needed, kept = set(outputs), []
    for node in reversed(graph.node):
        if needed & set(node.output):
            needed |= set(node.input)
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept[::-1])


def main(words: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m kernserve.onnx", description="An ONNX graph as a model of kernserve, in one file.")
    parser.add_argument("model", help="a file of ONNX")
    parser.add_argument("-o", "--out", required=True, metavar="FILE", help="the .safetensors file that is written")
    parser.add_argument("--output", action="append", metavar="NAME", help="an output that is asked for; may be repeated; without it all")
    parser.add_argument("--max-batch", type=int, metavar="N", help="the definition's max_batch")
    given = parser.parse_args(words)
    try:
        definition, weights = convert(given.model, outputs=given.output, max_batch=given.max_batch)
    except ImportError as error:
        print("%s: pip install 'kernserve-client[onnx]'" % error, file=sys.stderr)
        return 1
    except (ConversionError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    parts, _ = body_of(definition, weights)
    with open(given.out, "wb") as file:
        for part in parts:
            file.write(part)
    print(json.dumps({"nodes": len(definition["nodes"]), "bytes": sum(values.nbytes for values in weights.values()), "inputs": definition["inputs"],
                      "outputs": [entry["name"] for entry in definition["outputs"]]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
