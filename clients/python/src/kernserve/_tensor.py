"""Tensors that stay with the daemon: uploaded once, named in any number of requests."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

import numpy as np

from ._array import Answer, Array
from ._datatypes import TO_NUMPY, bytes_of
from ._errors import Error
from ._wire import Bytes

if TYPE_CHECKING:
    from ._client import Client

LEAF = 1 << 20  # bytes that are hashed by themselves
HASH_THREADS = 4  # hashlib lets other threads run
FILE_TYPE = "application/x-safetensors"


def etag_of(values: np.ndarray, datatype: str) -> str:
    """A content's identity, as the daemon computes it: SHA-256 of datatype, shape and the hashes of its MiBs. It makes no copy."""
    data = bytes_of(values)
    leaves = [data[at:at + LEAF] for at in range(0, len(data), LEAF)]
    if len(leaves) > 2 * HASH_THREADS:
        with ThreadPoolExecutor(min(HASH_THREADS, os.cpu_count() or 1)) as threads:
            digests = list(threads.map(_digest, leaves))
    else:
        digests = [_digest(leaf) for leaf in leaves]
    head = "kernserve1\n%s\n%s\n" % (datatype, ",".join(map(str, values.shape)))
    return hashlib.sha256(head.encode() + _digest(b"".join(digests))).hexdigest()


def _digest(data: Bytes) -> bytes:
    return hashlib.sha256(data).digest()


class Tensor(Answer):
    """A tensor that the daemon keeps: an input of any operation of its client, by its name.

    Made by Client.tensor, put, put_file, tensors, and by store= of an operation. One that was made from an array holds that array (which must
    not be changed meanwhile): where the daemon has lost the tensor, or dropped it, a call puts it again, once. As a context manager it
    is deleted at the end, if this object has made it.
    """

    def __init__(self, client: "Client", entry: Dict[str, Any], source: Optional[np.ndarray] = None, options: Tuple[Tuple[str, Any], ...] = (),
                 made: bool = False, fields: Optional[Dict[bytes, bytes]] = None) -> None:
        self.name: str = entry["name"]
        self.datatype: str = entry.get("datatype", "")  # "": of a list's row with "lost", of which the name is left
        self.shape: Tuple[int, ...] = tuple(entry.get("shape", ()))
        self.entry = entry  # what the daemon said of it when this object was made
        self._client, self._source, self._options, self._fields = client, source, options, fields
        self._maker = os.getpid() if made else 0
        self._puts = 0

    @property
    def dtype(self) -> np.dtype:
        return TO_NUMPY[self.datatype]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def numpy(self, out: Optional[np.ndarray] = None) -> Array:
        """Its values, received anew by each call."""
        return self._client.get(self, out=out)

    def delete(self) -> None:
        """Requests under way keep the content."""
        self._source = None
        self._client.delete(self)

    def __enter__(self) -> "Tensor":
        return self

    def __exit__(self, *_: Any) -> None:
        self._source = None
        if self._maker == os.getpid():  # not a forked child's to delete
            self._maker = 0
            try:
                self._client.delete(self)
            except Error as error:
                if error.status not in (404, 410):
                    raise

    def __repr__(self) -> str:
        return "Tensor(%r, %s, %s)" % (self.name, self.datatype, list(self.shape))

    def _put_again(self, puts: int) -> bool:
        """Of several threads that found it lost after that many puts, one puts. False: there is no array to put."""
        source = self._source
        if source is None:
            return False
        with self._client._pool.mending:
            if self._puts == puts:
                self._client._put_by_etag(self.name, source, self.datatype, self._options)
                self._puts += 1
        return True


def parts_of_file(path: str) -> List[Bytes]:
    """A safetensors file as a body, mapped and not read; keys with names that the daemon takes: / and : are dots."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < 8:
            raise ValueError("%s is no safetensors file" % path)
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    (length,) = struct.unpack("<Q", whole[:8])
    try:
        head = json.loads(bytes(whole[8:8 + length])) if length < len(whole) else None
    except ValueError:
        head = None
    if not isinstance(head, dict):
        raise ValueError("%s is no safetensors file" % path)
    names = {key: key if key == "__metadata__" else re.sub("[/:]", ".", key) for key in head}
    if len(set(names.values())) < len(names):
        raise ValueError("%s: two keys differ in / : . alone" % path)
    if all(key == name for key, name in names.items()):
        return [whole]
    text = json.dumps({names[key]: value for key, value in head.items()}).encode()
    text += b" " * (-len(text) % 8)
    return [struct.pack("<Q", len(text)) + text, whole[8 + length:]]
