"""ONNX's numbers of 8 bits: quantize, dequantize and products of them where zero points are 0, else elementwise as ONNX says it."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

import numpy as np

from .ops import RULES, Call, Rule, Unsupported

CODES = ("INT8", "FP8E4M3", "FP8E5M2")  # of quantize and dequantize
RANGES: Dict[str, Tuple[float, float]] = {"INT8": (-128.0, 127.0), "UINT8": (0.0, 255.0), "INT16": (-32768.0, 32767.0), "UINT16": (0.0, 65535.0)}


class _Scales:
    """Scale and zero point of inputs 1 and 2, for a tensor of this shape."""

    def __init__(self, call: Call) -> None:
        if call.attributes.get("block_size"):
            raise Unsupported("its scales are for blocks")
        self.call, self.scale = call, call.constant(1, "scale")
        self.zero = call.constant(2, "zero point") if call.given(2) else np.zeros(1, np.int8)
        if self.scale.dtype != np.float32:
            raise Unsupported("its scale is %s" % self.scale.dtype)
        self.rank = len(call.shape(call.inputs[0]))
        self.axis = call.axis(call.attributes.get("axis", 1), self.rank) if self.scale.size > 1 else 0

    def way(self) -> Optional[str]:
        """scale_per; None: quantize and dequantize have no such scales, or zero points."""
        if np.any(self.zero.astype(np.float64) != 0) or np.any(self.scale < 2.0 ** -126):
            return None
        if self.scale.size == 1:
            return "tensor"
        return "column" if self.axis == self.rank - 1 else "row" if self.rank == 2 else None

    def one(self, values: np.ndarray) -> str:
        """As an operand of map."""
        if values.size == 1:
            return self.call.constant_of(values.reshape(()))
        return self.call.constant_of(values.reshape([-1 if place == self.axis else 1 for place in range(self.rank)]))


def _quantize(call: Call) -> None:
    if call.datatype(call.inputs[0]) != "FP32":
        raise Unsupported("its datatype is %s, FP32 is taken" % call.datatype(call.inputs[0]))
    scales, target = _Scales(call), call.datatype(call.outputs[0])
    if target.startswith("FP8") and not call.attributes.get("saturate", 1):
        raise Unsupported("it makes no numbers of what is too large, quantize makes the largest one")
    way = scales.way() if target in CODES else None
    if way is not None:
        call.add("quantize", [call.inputs[0], call.constant_of(scales.scale.reshape(-1))], call.outputs[0], out_datatype=target, scale_per=way)
        return
    if target not in RANGES:
        raise Unsupported("its codes are %s with zero points, or scales along an axis in front" % target)
    low, high = RANGES[target]
    steps = [call.add("map", [call.inputs[0], scales.one(scales.scale)], op="div")]
    steps.append(call.add("map", steps[-1:], op="round"))
    if np.any(scales.zero != 0):
        steps.append(call.add("map", [steps[-1], scales.one(scales.zero.astype(np.float32))], op="add"))
    steps.append(call.add("map", steps[-1:], op="clamp", a=low, b=high))
    call.add("map", steps[-1:], call.outputs[0], op="cast", out_datatype=target)


def _dequantize(call: Call) -> None:
    scales, source, target = _Scales(call), call.datatype(call.inputs[0]), call.datatype(call.outputs[0])
    if target != "FP32":
        raise Unsupported("its result is %s, FP32 is made" % target)
    way = scales.way() if source in CODES else None
    if way is not None:
        call.add("dequantize", [call.inputs[0], call.constant_of(scales.scale.reshape(-1))], call.outputs[0], scale_per=way)
        return
    if source not in RANGES and source != "INT32":
        raise Unsupported("its codes are %s with zero points, or scales along an axis in front" % source)
    moved = call.add("map", call.inputs[:1], op="cast", out_datatype="FP32")
    if np.any(scales.zero != 0):
        moved = call.add("map", [moved, scales.one(scales.zero.astype(np.float32))], op="sub")
    call.add("map", [moved, scales.one(scales.scale)], call.outputs[0], op="mul")


def _need_int8(call: Call, places: List[int], zeros: List[int]) -> None:
    for place in places:
        if call.datatype(call.inputs[place]) != "INT8":
            raise Unsupported("'%s' is %s, matmul takes INT8 by INT8" % (call.inputs[place], call.datatype(call.inputs[place])))
    for place in zeros:
        if call.given(place) and np.any(call.constant(place, "zero point") != 0):
            raise Unsupported("its zero points are not 0")


def _matmul_integer(call: Call) -> None:
    _need_int8(call, [0, 1], [2, 3])
    call.add("matmul", call.inputs[:2], call.outputs[0])


def _qlinear_matmul(call: Call) -> None:
    """Its result's scale is one."""
    _need_int8(call, [0, 3], [2, 5, 7])
    scales = [call.constant(place, "scale").reshape(-1) for place in (1, 4, 6)]
    if any(scale.dtype != np.float32 for scale in scales) or scales[2].size != 1 or call.datatype(call.outputs[0]) != "INT8":
        raise Unsupported("its result is not INT8 by one scale of FP32")
    product = call.add("matmul", [call.inputs[0], call.inputs[3], "", *(call.constant_of(scale) for scale in scales[:2])])
    call.add("quantize", [product, call.constant_of(scales[2])], call.outputs[0], out_datatype="INT8", scale_per="tensor")


QUANTIZE_RULES: Dict[str, Rule] = {"QuantizeLinear": _quantize, "DequantizeLinear": _dequantize, "MatMulInteger": _matmul_integer, "QLinearMatMul": _qlinear_matmul}
RULES.update(QUANTIZE_RULES)
