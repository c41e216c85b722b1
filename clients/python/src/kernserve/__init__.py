"""A client of kernserve: NumPy in, NumPy out.

    import kernserve
    ks = kernserve.Client("http://127.0.0.1:8000")
    y = ks.softmax(x, axis=-1)
    print(y.timing.total, y.timing.compute)
    with ks.tensor(w) as weight:
        y = ks.matmul(x, weight)
"""

from ._array import Array, Timing
from ._client import Client
from ._errors import BadRequest, Busy, Deadline, Error, Forbidden, Full, Lost, NotFound, Precondition, Unreachable
from ._tensor import Tensor

__all__ = ["Array", "BadRequest", "Busy", "Client", "Deadline", "Error", "Forbidden", "Full", "Lost", "NotFound", "Precondition",
           "Tensor", "Timing", "Unreachable"]
