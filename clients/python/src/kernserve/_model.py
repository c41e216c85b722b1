"""A model as the daemon takes it: a definition, alone or in one safetensors file with its weights."""

from __future__ import annotations

import json
import mmap
import os
import struct
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from ._datatypes import as_tensor, bytes_of
from ._tensor import FILE_TYPE
from ._wire import Bytes

Definition = Union[str, "os.PathLike[str]", Mapping[str, Any]]

_TYPES = {"BOOL": "BOOL", "FP16": "F16", "BF16": "BF16", "FP32": "F32", "FP64": "F64", "FP8E4M3": "F8_E4M3", "FP8E5M2": "F8_E5M2"}
_TYPES.update({kind + str(bits): kind[0] + str(bits) for kind in ("INT", "UINT") for bits in (8, 16, 32, 64)})


def _of_weights(text: str, weights: Mapping[str, Any]) -> List[Bytes]:
    """One file; arrays are sent from where they lie."""
    head: Dict[str, Any] = {"__metadata__": {"kernserve": text}}
    parts: List[Bytes] = []
    at = 0
    for key, values in weights.items():
        array, datatype = as_tensor(values, None)
        head[key] = {"dtype": _TYPES[datatype], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        parts.append(bytes_of(array))
        at += array.nbytes
    written = json.dumps(head).encode()
    written += b" " * (-len(written) % 8)
    return [struct.pack("<Q", len(written)) + written, *parts]


def body_of(definition: Definition, weights: Optional[Mapping[str, Any]]) -> Tuple[List[Bytes], str]:
    """Its bytes and their media type. A .safetensors file is mapped and not read."""
    if isinstance(definition, Mapping):
        text = json.dumps(definition)
    elif os.fspath(definition).endswith(".safetensors"):
        if weights is not None:
            raise ValueError("a safetensors file has its weights: weights= goes with a definition")
        with open(definition, "rb") as file:
            return [memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))], FILE_TYPE
    else:
        with open(definition, encoding="utf-8") as file:
            text = file.read()
    if weights is None:
        return [text.encode()], "application/json"
    return _of_weights(text, weights), FILE_TYPE
