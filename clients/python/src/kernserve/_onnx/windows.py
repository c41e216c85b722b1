"""What ONNX slides a window for, as the daemon's window and what is done with its rows."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from .ops import RULES, Call, Dims, Unsupported

SPATIAL_MOST = 2


def _unless(items: List[int], usual: int) -> Optional[List[int]]:
    return items if any(item != usual for item in items) else None


class _Windows:
    """The spatial axes of a node that slides windows over [N, C, ...], without those along which there is nothing to slide."""

    def __init__(self, call: Call, sizes: Optional[List[int]] = None) -> None:
        call.need_floats()
        self.call = call
        dims = call.shape(call.inputs[0])
        spatial = len(dims) - 2
        sizes, strides, dilations = sizes or self._each("kernel_shape", spatial), self._each("strides", spatial), self._each("dilations", spatial)
        pads = [int(item) for item in call.attributes.get("pads") or [0] * (2 * spatial)]
        alike = call.attributes.get("auto_pad", b"NOTSET").decode()
        if alike not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
            raise Unsupported("its auto_pad is '%s'" % alike)
        if spatial < 1 or len(sizes) != spatial:
            raise Unsupported("its windows have not the axes of its operand")
        if call.attributes.get("ceil_mode"):
            raise Unsupported("its windows may end behind the padding (ceil_mode)")
        if alike != "NOTSET":
            pads = [0] * (2 * spatial)
        self.auto_pad = alike.lower() if alike.startswith("SAME") else None
        self.dims, self.spatial = dims, spatial
        still = [i for i in range(spatial) if dims[2 + i] == 1 and sizes[i] == 1 and pads[i] == pads[spatial + i] == 0]
        self.slid = [i for i in range(spatial) if i not in still] or [0]
        if len(self.slid) > SPATIAL_MOST:
            raise Unsupported("it slides along %d axes, window along %d" % (len(self.slid), SPATIAL_MOST))
        self.size, self.stride, self.dilation, before, after = (
            [items[i] for i in self.slid] for items in (sizes, strides, dilations, pads[:spatial], pads[spatial:]))
        self.pad = before + after

    def _each(self, name: str, spatial: int) -> List[int]:
        return [int(item) for item in self.call.attributes.get(name) or [1] * spatial]

    def out(self, place: int) -> Any:
        """Windows along an axis that is slid along, where its length is known."""
        length = self.dims[2 + self.slid[place]]
        if not isinstance(length, int):
            return None
        if self.auto_pad:
            return -(-length // self.stride[place])
        count = len(self.slid)
        reach = (self.size[place] - 1) * self.dilation[place] + 1
        return (length + self.pad[place] + self.pad[count + place] - reach) // self.stride[place] + 1

    def rows(self, value: Any = None) -> Tuple[str, Dims]:
        """[N, windows.., taps * C], and its dimensions."""
        call, name = self.call, self.call.inputs[0]
        shape = [*self.dims[:2], *(self.dims[2 + i] for i in self.slid)]
        if len(shape) < len(self.dims):
            name = call.chain.fresh(call.outputs[0])
            call.reshape(call.inputs[0], shape, name)
            call.dims[name] = shape
        padded = any(self.pad) or self.auto_pad
        rows = call.add("window", [name], size=self.size, stride=_unless(self.stride, 1), dilation=_unless(self.dilation, 1),
                        pad=_unless(self.pad, 0), auto_pad=self.auto_pad, layout="nchw", value=value if padded else None)
        channels = self.dims[1]
        wide = channels * math.prod(self.size) if isinstance(channels, int) else None
        call.dims[rows] = [self.dims[0], *(self.out(i) for i in range(len(self.slid))), wide]
        return rows, call.dims[rows]

    def back(self, name: str, channels: Any) -> None:
        """[N, windows.., channels] as the node's output has it."""
        call, last = self.call, len(self.slid) + 1
        windows = call.dims[name][1:-1]
        spatial: List[Any] = [1] * self.spatial
        for place, i in enumerate(self.slid):
            spatial[i] = windows[place]
        first = call.add("transpose", [name], None if self.spatial > len(self.slid) else call.outputs[0], perm=[0, last, *range(1, last)])
        call.dims[first] = [self.dims[0], channels, *windows]
        if self.spatial > len(self.slid):
            call.reshape(first, [self.dims[0], channels, *spatial], call.outputs[0])


def _conv(call: Call) -> None:
    """A product of the windows' rows. A weight [O, C, size..] is [size.., C, O] to them."""
    weight = call.constant(1, "weight")
    groups = int(call.attributes.get("group", 1))
    if groups != 1:
        raise Unsupported("it has %d groups of channels" % groups)
    if weight.ndim < 3:
        raise Unsupported("its weight has rank %d" % weight.ndim)
    windows = _Windows(call, list(weight.shape[2:]))
    if weight.shape[1] != windows.dims[1]:
        raise Unsupported("its weight is for %d channels" % weight.shape[1])
    rows, dims = windows.rows()
    turned = np.ascontiguousarray(np.moveaxis(weight, (0, 1), (-1, -2)).reshape(-1, weight.shape[0]))
    inputs = [rows, call.constant_of(turned)]
    if call.given(2):
        inputs.append(call.inputs[2])
    product = call.add("matmul", inputs)
    call.dims[product] = [*dims[:-1], weight.shape[0]]
    windows.back(product, weight.shape[0])


def _pool(function: str) -> Any:
    """Rows as [.., taps, C], of whose taps the function is taken."""
    def rule(call: Call) -> None:
        if any(call.outputs[1:]):
            raise Unsupported("it is asked for places")
        windows = _Windows(call)
        channels, taps = windows.dims[1], math.prod(windows.size)
        if not isinstance(channels, int):
            raise Unsupported("how many channels it has is not known")
        padded = any(windows.pad) or windows.auto_pad
        if function == "mean" and padded and not call.attributes.get("count_include_pad"):
            raise Unsupported("it leaves the padding out of its means")
        rows, dims = windows.rows("-inf" if function == "max" else None)
        split = call.add("reshape", [rows], shape=[0] * (len(dims) - 1) + [taps, channels])
        call.dims[split] = [*dims[:-1], taps, channels]
        taken = call.add("reduce", [split], op=function, axis=[len(dims) - 1], keepdims=False)
        call.dims[taken] = [*dims[:-1], channels]
        windows.back(taken, channels)
    return rule


def _global(function: str) -> Any:
    def rule(call: Call) -> None:
        call.need_floats()
        axes = list(range(2, len(call.shape(call.inputs[0]))))
        call.add("reduce", call.inputs, call.outputs[0], op=function, axis=axes, keepdims=True)
    return rule


WINDOW_RULES: Dict[str, Any] = {"Conv": _conv, "MaxPool": _pool("max"), "AveragePool": _pool("mean"), "GlobalMaxPool": _global("max"),
                                "GlobalAveragePool": _global("mean")}
RULES.update(WINDOW_RULES)
