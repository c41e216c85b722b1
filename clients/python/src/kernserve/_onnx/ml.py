"""Operators of the domain ai.onnx.ml, as skl2onnx writes scikit-learn's pipelines: scalers, linear models, normalizers, and labels that are numbers."""

from __future__ import annotations

import math
from typing import Any, Dict, List

import numpy as np

from .ops import RULES, Call, Dims, Rule, Unsupported

SCORES = {"NONE": None, "LOGISTIC": "sigmoid", "SOFTMAX": "softmax"}
NORMS = {"MAX": "max", "L1": "l1norm", "L2": "l2norm"}


def _text(call: Call, name: str, preset: str) -> str:
    value = call.attributes.get(name, preset.encode())
    return value.decode() if isinstance(value, bytes) else str(value)


def _numbers(call: Call, name: str) -> np.ndarray:
    return np.array(call.attributes.get(name, ()), np.float32)


def _rows(call: Call) -> str:
    """The operand, [rows, columns], as FP32."""
    name = call.inputs[0]
    if len(call.shape(name)) != 2:
        raise Unsupported("its operand has rank %d" % len(call.shape(name)))
    if call.datatype(name) == "FP32":
        return name
    cast = call.add("map", [name], op="cast", out_datatype="FP32")
    call.dims[cast], call.types[cast] = list(call.shape(name)), "FP32"
    return cast


def _known(call: Call, name: str, columns: Any, datatype: str = "FP32") -> str:
    """What shape inference does not know."""
    call.dims[name], call.types[name] = [call.shape(call.inputs[0])[0], *([] if columns is None else [columns])], datatype
    return name


def _scaler(call: Call) -> None:
    offset, scale = _numbers(call, "offset"), _numbers(call, "scale")
    moved = call.add("map", [_rows(call), call.constant_of(offset)], op="sub")
    _known(call, call.add("map", [moved, call.constant_of(scale)], call.outputs[0], op="mul"), call.shape(call.inputs[0])[1])


def _linear(call: Call, coefficients: np.ndarray, intercepts: np.ndarray) -> List[Any]:
    columns = call.shape(call.inputs[0])[1]
    if not isinstance(columns, int) or columns < 1 or coefficients.size % columns:
        raise Unsupported("its coefficients are not for %s columns" % columns)
    weight = np.ascontiguousarray(coefficients.reshape(-1, columns).T)
    inputs = [_rows(call), call.constant_of(weight)]
    if intercepts.size:
        inputs.append(call.constant_of(intercepts))
    return [inputs, weight.shape[1]]


def _scored(call: Call, inputs: List[str], output: str, columns: int) -> None:
    kind = _text(call, "post_transform", "NONE")
    if kind not in SCORES:
        raise Unsupported("its post_transform is '%s'" % kind)
    function = SCORES[kind]
    made = _known(call, call.add("matmul", inputs, None if function else output), columns)
    _known(call, output, columns)
    if function == "softmax":
        call.add("softmax", [made], output, axis=1)
    elif function:
        call.add("map", [made], output, op=function)


def _regressor(call: Call) -> None:
    inputs, targets = _linear(call, _numbers(call, "coefficients"), _numbers(call, "intercepts"))
    if targets != call.attributes.get("targets", 1):
        raise Unsupported("its coefficients are for %d targets" % targets)
    _scored(call, inputs, call.outputs[0], targets)


def _classifier(call: Call) -> None:
    """Scores, and labels by the largest one."""
    inputs, classes = _linear(call, _numbers(call, "coefficients"), _numbers(call, "intercepts"))
    labels = np.array(call.attributes.get("classlabels_ints", ()), np.int64)
    texts = call.attributes.get("classlabels_strings", ())
    if classes < 2 or max(labels.size, len(texts)) != classes:
        raise Unsupported("it has one score for two classes")
    scores = call.outputs[1] if len(call.outputs) > 1 and call.outputs[1] else call.chain.fresh(call.outputs[0])
    _scored(call, inputs, scores, classes)
    if call.outputs[0] and labels.size:
        best = call.add("reduce", [scores], op="argmax", axis=1, keepdims=False)
        _known(call, call.add("gather", [call.constant_of(labels), best], call.outputs[0]), None, "INT64")


def _normalizer(call: Call) -> None:
    """Of rows of zeros zeros."""
    kind = _text(call, "norm", "MAX")
    if kind not in NORMS:
        raise Unsupported("its norm is '%s'" % kind)
    rows = _rows(call)
    length = call.add("reduce", [rows], op=NORMS[kind], axis=[1], keepdims=True)
    if kind != "MAX":
        zero = call.add("map", [length], op="eq", a=0.0)
        length = call.add("map", [zero, call.constant_of(np.ones(1, np.float32)), length], op="where")
    _known(call, call.add("map", [rows, length], call.outputs[0], op="div"), call.shape(call.inputs[0])[1])


def _extractor(call: Call) -> None:
    """Columns by their numbers; labels by classes' numbers."""
    name, places = call.inputs[:2]
    dims, indices = call.shape(name), call.shape(places)
    known_lengths = [length for length in indices if isinstance(length, int)]
    count = math.prod(known_lengths) if len(known_lengths) == len(indices) else None
    flat = call.add("reshape", [places], shape=[-1]) if len(indices) != 1 else places
    known: Dims = [count if len(indices) != 1 else indices[0]]
    call.dims[flat] = known
    if len(dims) > 1:
        call.add("gather", [name, flat], call.outputs[0], axis=len(dims) - 1)
        call.dims[call.outputs[0]], call.types[call.outputs[0]] = [*dims[:-1], known[0]], call.datatype(name)
        return
    taken = call.add("gather", [name, flat])
    call.add("reshape", [taken], call.outputs[0], shape=[1, -1])
    call.dims[call.outputs[0]], call.types[call.outputs[0]] = [1, known[0]], call.datatype(name)


def _joined(call: Call) -> None:
    """FeatureVectorizer: columns side by side."""
    if any(len(call.shape(name)) != 2 or not isinstance(call.shape(name)[1], int) or call.datatype(name) != "FP32" for name in call.inputs):
        raise Unsupported("its operands are not all rows of FP32")
    if len(call.inputs) == 1:
        call.alias(call.inputs[0], call.outputs[0])
    else:
        call.add("concat", call.inputs, call.outputs[0], axis=1)
        widths = [call.shape(name)[1] for name in call.inputs]
        _known(call, call.outputs[0], sum(width for width in widths if isinstance(width, int)))


def _binarizer(call: Call) -> None:
    above = call.add("map", [_rows(call)], op="gt", a=float(call.attributes.get("threshold", 0.0)))
    _known(call, call.add("map", [above], call.outputs[0], op="cast", out_datatype="FP32"), call.shape(call.inputs[0])[1])


ML_RULES: Dict[str, Rule] = {"Scaler": _scaler, "LinearRegressor": _regressor, "LinearClassifier": _classifier, "Normalizer": _normalizer,
                             "ArrayFeatureExtractor": _extractor, "FeatureVectorizer": _joined, "Binarizer": _binarizer}
RULES.update({"ai.onnx.ml::" + name: rule for name, rule in ML_RULES.items()})
