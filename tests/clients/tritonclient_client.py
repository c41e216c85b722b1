#!/usr/bin/env python3
"""softmax with NVIDIA's tritonclient: tritonclient_client.py [URL]"""
import sys

import numpy
import tritonclient.http as httpclient


class Client(httpclient.InferenceServerClient):
    """Keeps the last answer's headers, which the library does not hand on."""

    def _post(self, *arguments, **named):
        self.headers = super()._post(*arguments, **named)
        return self.headers


client = Client((sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000").split("//")[1])
x = numpy.float32([[1, 2, 3, 4]])
tensor = httpclient.InferInput("INPUT0", list(x.shape), "FP32")
tensor.set_data_from_numpy(x)
result = client.infer("softmax", [tensor], parameters={"axis": 1})
print(result.as_numpy("OUTPUT0").tolist())
print(client.headers.get("server-timing"))
client.close()
