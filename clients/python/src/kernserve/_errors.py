"""What a call may raise."""

from __future__ import annotations

from typing import Optional


class Error(Exception):
    """A request that got no result. The text is the daemon's sentence."""

    def __init__(self, text: str, status: Optional[int] = None, code: str = "", request_id: str = "") -> None:
        super().__init__(text)
        self.status = status  # of HTTP; None: no answer came
        self.code = code  # the daemon's field Kernserve-Error: "shape", "datatype", "queue_full", ...
        self.request_id = request_id  # as in the daemon's logs


class BadRequest(Error):
    """The request is wrong, and would be again: 400, 413, 415, 422 and every other 4xx that has no class of its own."""


class Forbidden(Error):
    """401, 403, 421: no token, or none with the right."""


class NotFound(Error):
    """404: no such model, tensor or route."""


class Lost(NotFound):
    """410: the tensor went with the daemon's process; put it again. A Tensor that was made from an array has done so once."""


class Precondition(Error):
    """412: only_new, or if_match, and it is not so."""


class Full(Error):
    """507: no room for the tensor, of the daemon's or of this token's: delete one, or put with evictable."""


class Busy(Error):
    """503 after all retries: no room, draining, or the device failed; `code` tells which."""


class Deadline(Error):
    """504, or the client's own timeout (status None)."""


class Unreachable(Error):
    """No connection, or one that broke."""


def error_of(status: int, text: str, code: str, request_id: str) -> Error:
    kinds = {401: Forbidden, 403: Forbidden, 404: NotFound, 410: Lost, 412: Precondition, 421: Forbidden, 503: Busy, 504: Deadline, 507: Full}
    kind = kinds.get(status, BadRequest if 400 <= status < 500 else Error)
    return kind(text, status, code, request_id)
