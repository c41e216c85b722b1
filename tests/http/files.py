"""Tensors as files, written and read by hand: .npy of versions 1 to 3 in either order, and safetensors.

Nothing here knows HTTP, and nothing of it is numpy's or safetensors' code: tests/http/suite.py lets those read and write.
"""

import itertools
import json
import math
import re
import struct

from tensors import SIZES, decode

NPY = {"INT8": "|i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "UINT8": "|u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8",
       "FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}
SAFE = {"INT8": "I8", "INT16": "I16", "INT32": "I32", "INT64": "I64", "UINT8": "U8", "UINT16": "U16", "UINT32": "U32", "UINT64": "U64",
        "FP16": "F16", "BF16": "BF16", "FP8E4M3": "F8_E4M3", "FP8E5M2": "F8_E5M2", "FP32": "F32", "FP64": "F64"}


def npy_head(text, version=1):
    """A head around any dictionary's text, as numpy pads it."""
    first = 10 if version == 1 else 12
    padding = -(first + len(text) + 1) % 64
    length = struct.pack("<H" if version == 1 else "<I", len(text) + padding + 1)
    return b"\x93NUMPY" + bytes((version, 0)) + length + text.encode() + b" " * padding + b"\n"


def fortran_bytes(tensor):
    """The elements with the first index running fastest."""
    size, strides = SIZES[tensor.datatype], [math.prod(tensor.shape[i + 1:]) for i in range(len(tensor.shape))]
    places = (sum(i * s for i, s in zip(index[::-1], strides)) for index in itertools.product(*(range(d) for d in tensor.shape[::-1])))
    return b"".join(tensor.data[p * size:(p + 1) * size] for p in places)


def write_npy(tensor, version=1, fortran=False):
    shape = "(%s)" % "".join("%d, " % d for d in tensor.shape) if len(tensor.shape) != 1 else "(%d,)" % tensor.shape[0]
    text = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (NPY[tensor.datatype], fortran, shape)
    return npy_head(text, version) + (fortran_bytes(tensor) if fortran else tensor.data)


def read_npy(body):
    """Datatype, shape, values of what the daemon writes: version 1, C order."""
    if body[:8] != b"\x93NUMPY\x01\0":
        raise ValueError("no npy file of version 1: %r" % body[:10])
    length = struct.unpack_from("<H", body, 8)[0]
    head = re.fullmatch(r"\{'descr': '(...)', 'fortran_order': False, 'shape': \(([0-9, ]*)\), \} *\n", body[10:10 + length].decode())
    if not head or (10 + length) % 64 or (head.group(2).count(",") == 0 and head.group(2)):
        raise ValueError("npy head %r" % body[:10 + length])
    datatype = {v: k for k, v in NPY.items()}[head.group(1)]
    return datatype, [int(d) for d in head.group(2).split(",") if d.strip()], decode(datatype, body[10 + length:])


def safetensors_head(document):
    text = json.dumps(document).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def write_safetensors(tensors, metadata=None, order=None):
    """Tensors by name; order: in which their bytes lie."""
    document, data = {}, b""
    for name in order or tensors:
        document[name] = {"dtype": SAFE[tensors[name].datatype], "shape": tensors[name].shape, "data_offsets": [len(data), len(data) + len(tensors[name].data)]}
        data += tensors[name].data
    document = {name: document[name] for name in tensors}
    if metadata is not None:
        document["__metadata__"] = metadata
    return safetensors_head(document) + data


def read_safetensors(body):
    """Datatype, shape and values of each output, which lie one behind the other."""
    length = struct.unpack_from("<Q", body)[0]
    entries, data, at, outputs = json.loads(body[8:8 + length]), body[8 + length:], 0, []
    for i, (name, entry) in enumerate(entries.items()):
        begin, end = entry["data_offsets"]
        if name != "OUTPUT%d" % i or length % 8 or begin != at:
            raise ValueError("safetensors head %r" % body[8:8 + length])
        datatype, at = {v: k for k, v in SAFE.items()}[entry["dtype"]], end
        outputs.append((datatype, entry["shape"], decode(datatype, data[begin:end])))
    if not outputs or at != len(data):
        raise ValueError("safetensors head %r" % body[8:8 + length])
    return outputs


def altered(generator, body, begin, end, words):
    """Body with one to three faults in front of `end`, nine of ten behind `begin`: a byte of `words` or another one, bytes left out, bytes twice."""
    body = bytearray(body)
    for _ in range(generator.randint(1, 3)):
        at = generator.randrange(begin if generator.random() < 0.9 else 0, min(end, len(body)))
        kind = generator.random()
        if kind < 0.5:
            body[at] = generator.choice(words + bytes([generator.randrange(256)]))
        elif kind < 0.75:
            del body[at:at + generator.randint(1, 9)]
        else:
            body[at:at] = body[at:at + generator.randint(1, 40)]
    return bytes(body)
