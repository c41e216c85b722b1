#!/usr/bin/env python3
"""CUDA IPC regions: this process's device memory is registered, read and written by the daemon; needs a GPU and its driver.

cuda_memory.py KERNSERVE
"""

import base64
import ctypes
import json
import math
import struct
import sys

from daemon import SKIP, Daemon, request
from shared_memory import CUDA, SOFTMAX, Run, window, work


class Driver:
    """As much of the driver's interface as a client needs."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise OSError("%s: CUDA error %d" % (name, code))

    def allocate(self, size):
        """Address and base64 handle of device memory."""
        address, handle = ctypes.c_uint64(), (ctypes.c_ubyte * 64)()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.call("cuIpcGetMemHandle", handle, address)
        return address, base64.b64encode(bytes(handle)).decode()

    def write(self, address, data, offset=0):
        """The copy returns when the data is staged; another process may look at the memory only after the synchronisation."""
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address.value + offset), data, ctypes.c_size_t(len(data)))
        self.call("cuCtxSynchronize")

    def read(self, address, size, offset=0):
        out = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", out, ctypes.c_uint64(address.value + offset), ctypes.c_size_t(size))
        return out.raw


def register(run, name, handle, size, device=0):
    return run.ask("POST", "%s/region/%s/register" % (CUDA, name), {"raw_handle": {"b64": handle}, "device_id": device, "byte_size": size})


def main():
    if len(sys.argv) < 2:
        raise SystemExit("usage: cuda_memory.py KERNSERVE")
    try:
        driver = Driver()
    except OSError as reason:
        print("no GPU that can be used from here: %s" % reason)
        return SKIP
    size = 64 << 20
    with Daemon(sys.argv[1], "--allow-client-shm", "--compat-models", "--backend", "cuda") as daemon:
        run = Run(daemon)
        address, handle = driver.allocate(size)
        run.want("register", 200, register(run, "g", handle, size).status)
        run.want("status", [{"name": "g", "device_id": 0, "byte_size": size}], json.loads(run.ask("GET", CUDA + "/status").body))
        run.refused("larger than the allocation", 400, "failed to register shared memory region 'h': invalid args", register(run, "h", handle, 1 << 40))
        run.refused("another device", 400, "invalid args", register(run, "h", handle, 64, 7))
        rows, cols = 1000, 1024
        data = struct.pack("<%df" % cols, *((i % 7) / 4 for i in range(cols))) * rows
        driver.write(address, data)
        driver.write(address, b"\xa5" * len(data), len(data))
        answer = run.ask("POST", SOFTMAX, work([rows, cols], window("g", len(data)), window("g", len(data), len(data))))
        run.want("in and out on the device", 200, answer.status)
        total = sum(math.exp((i % 7) / 4) for i in range(cols))
        got = struct.unpack("<%df" % cols, driver.read(address, cols * 4, len(data) + (rows - 1) * cols * 4))
        off = [(i, got[i]) for i in range(cols) if not abs(got[i] - math.exp((i % 7) / 4) / total) < 1e-7]
        run.want("values of the last row that are off, the first three", [], off[:3])
        run.want("not a byte more", b"\0" * 4 * cols, driver.read(address, 4 * cols, 2 * len(data)))
        answer = run.ask("POST", SOFTMAX, work([1, 4], window("g", 16)))
        run.want("in only, a small one", 4, len(json.loads(answer.body)["outputs"][0]["data"]))
        run.refused("beyond the window", 400, "Invalid offset + byte size", run.ask("POST", SOFTMAX, work([1, 8], window("g", 32, size - 16))))
        numbers = struct.pack("<16i", *range(16))
        driver.write(address, numbers * 2 + bytes(128))
        inputs = [{"name": "INPUT%d" % i, "datatype": "INT32", "shape": [1, 16], "parameters": window("g", 64, 64 * i)} for i in range(2)]
        outputs = [{"name": "OUTPUT%d" % i, "parameters": window("g", 64, 128 + 64 * i)} for i in range(2)]
        answer = run.ask("POST", "/v2/models/simple/infer", {"inputs": inputs, "outputs": outputs})
        run.want("a model that works on the host", 200, answer.status)
        run.want("its sums and differences", struct.pack("<32i", *range(0, 32, 2), *([0] * 16)), driver.read(address, 128, 128))
        run.want("unregister", 200, run.ask("POST", CUDA + "/unregister").status)
        run.want("gone", [], run.names(CUDA))
        run.want("ready as ever", 200, run.ask("GET", "/v2/health/ready").status)
        run.want("exit code", 0, daemon.stop())
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
