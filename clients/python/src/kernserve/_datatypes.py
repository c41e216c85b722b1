"""NumPy's datatypes and the protocol's names. BF16 and FP8 are those of ml_dtypes where it is installed, else bytes of their size."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import numpy as np

_NAMES = {"FP64": "float64", "FP32": "float32", "FP16": "float16", "BOOL": "bool"}
_NAMES.update({kind.upper() + str(bits): kind + str(bits) for kind in ("int", "uint") for bits in (8, 16, 32, 64)})
TO_NUMPY: Dict[str, np.dtype] = {name: np.dtype(dtype) for name, dtype in _NAMES.items()}
OF_NUMPY: Dict[np.dtype, str] = {dtype: name for name, dtype in TO_NUMPY.items()}
# Without ml_dtypes: what stands in for them, named by the argument datatype=.
STAND_INS: Dict[str, np.dtype] = {"BF16": np.dtype("uint16"), "FP8E4M3": np.dtype("uint8"), "FP8E5M2": np.dtype("uint8")}
try:
    import ml_dtypes

    for _name, _type in (("BF16", ml_dtypes.bfloat16), ("FP8E4M3", ml_dtypes.float8_e4m3fn), ("FP8E5M2", ml_dtypes.float8_e5m2)):
        TO_NUMPY[_name] = np.dtype(_type)
        OF_NUMPY[np.dtype(_type)] = _name
except ImportError:
    TO_NUMPY.update(STAND_INS)


def as_tensor(values: Any, datatype: Optional[str]) -> Tuple[np.ndarray, str]:
    """An array whose bytes can be sent as they lie, and its datatype's name. Copies where strides or byte order ask for it."""
    if not isinstance(values, np.ndarray):
        values = np.from_dlpack(values) if hasattr(values, "__dlpack__") else np.asarray(values)
    if not (values.flags.c_contiguous and values.dtype.isnative):
        # not ascontiguousarray, which gives a scalar one dimension
        values = np.array(values, dtype=values.dtype.newbyteorder("="), order="C")
    name = OF_NUMPY.get(values.dtype)
    if datatype is None or datatype == name:
        if name is None:
            raise TypeError("no datatype of the daemon for an array of %s" % values.dtype)
        return values, name
    if STAND_INS.get(datatype) != values.dtype:
        raise TypeError("an array of %s cannot be sent as %s" % (values.dtype, datatype))
    return values, datatype


def bytes_of(values: np.ndarray) -> memoryview:
    """Its memory, not a copy. ml_dtypes' arrays have no buffer of their own kind."""
    return values.reshape(-1).view(np.uint8).data if values.size else memoryview(bytearray())
