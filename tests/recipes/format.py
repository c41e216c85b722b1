"""A toy format: tagged, a head of datatype, rank and dimensions in front of one tensor (server/codec/tagged.c)."""
import json
import struct

from daemon import Daemon, metric, request

HEADING = "Add a format"
EDITS = [
    ("server/base/formats.def", r"^FILE_FORMAT\(\w+\)\n", r"\g<0>FILE_FORMAT(tagged)\n"),
    # documents
    ("docs/http.md", r"^\| safetensors \| .*\n", r"\g<0>| tagged | `Content-Type: application/x-tagged`, one required input | tagged, unless `Accept` asks for another format |\n"),
]
TYPE, FP32, INT32 = ("Content-Type", "application/x-tagged"), 12, 7  # ks_dtype
VALUES = [3, -5, 8, 1, 7, -9]


def head(dtype, *dims):
    return b"TAG1" + struct.pack("<BBH%dQ" % len(dims), dtype, len(dims), 0, *dims)


def test(kernserve, tree, command):
    body = head(INT32, 2, 3) + struct.pack("<6i", *VALUES)
    target = "/v2/models/reduce/infer?op=max&axis=1"
    with Daemon(kernserve, "--backend", "cpu", "--pinned-bytes", "16M") as daemon, daemon.connect() as connection:
        answer = connection.ask(request("POST", target, [TYPE], body))
        assert answer.status == 200 and answer.header("content-type") == "application/x-tagged", answer
        assert answer.body == head(INT32, 2) + struct.pack("<2i", 8, 7), answer
        answer = connection.ask(request("POST", target, [TYPE, ("Accept", "application/json")], body))
        assert json.loads(answer.body)["outputs"][0]["data"] == [8, 7], answer
        document = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [2, 3], "data": VALUES}],
                    "parameters": {"op": "max", "axis": 1}}
        answer = connection.ask(request("POST", "/v2/models/reduce/infer", [("Accept", "application/x-tagged")], json.dumps(document).encode()))
        assert answer.body == head(INT32, 2) + struct.pack("<2i", 8, 7), answer
        for wrong, code in ((b"TAG2" + body[4:], "field"), (body[:-1], "binary_size"), (head(99, 6) + body[24:], "datatype")):
            answer = connection.ask(request("POST", target, [TYPE], wrong))
            assert answer.status == 400 and answer.header("kernserve-error") == code, answer
        assert metric(daemon.metrics(), "kernserve_inference_requests_total", encoding="tagged", outcome="ok") == 2, daemon.metrics()
        assert b"application/x-tagged" in daemon.get("/openapi.json").body
        assert daemon.stop() == 0
