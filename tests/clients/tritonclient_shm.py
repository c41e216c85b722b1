#!/usr/bin/env python3
"""softmax with tensors in shared memory (kernserve --allow-client-shm): tritonclient_shm.py [URL]"""
import sys

import numpy
import tritonclient.http as httpclient
import tritonclient.utils.shared_memory as shm


class Client(httpclient.InferenceServerClient):
    def _post(self, *arguments, **named):
        self.headers = super()._post(*arguments, **named)
        return self.headers


client = Client((sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000").split("//")[1])
x = numpy.float32([[1, 2, 3, 4]])
handle = shm.create_shared_memory_region("tensors", "/kernserve_example", 2 * x.nbytes)
try:
    shm.set_shared_memory_region(handle, [x])
    client.register_system_shared_memory("tensors", "/kernserve_example", 2 * x.nbytes)
    tensor = httpclient.InferInput("INPUT0", list(x.shape), "FP32")
    tensor.set_shared_memory("tensors", x.nbytes)
    wanted = httpclient.InferRequestedOutput("OUTPUT0")
    wanted.set_shared_memory("tensors", x.nbytes, offset=x.nbytes)
    client.infer("softmax", [tensor], outputs=[wanted])
    timing = client.headers.get("server-timing")
    print(shm.get_contents_as_numpy(handle, numpy.float32, [2, 4])[1].tolist())
    print(timing)
    client.unregister_system_shared_memory("tensors")
finally:
    shm.destroy_shared_memory_region(handle)
