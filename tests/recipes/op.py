"""A toy op: affine, y = scale * x + shift. Its kernel runs on the emulated GPU."""
import json
import os
import platform
import shutil
import struct

from daemon import Daemon, request

HEADING = "Add an op"
EDITS = [
    ("kernels/ops/ops.def", r"\Z", "OP(affine)\n"),
    # documents
    ("README.md", r"^\| `matmul` .*\n", r"\g<0>| `affine` | `INPUT0`, rank 1-8 | `scale`, `shift` | FP32 |\n"),
]
VALUES = [1.5, -2.0, 3.25, 0.0, 1024.0, -7.5]
WANT = [2 * v - 0.5 for v in VALUES]
PARAMETERS = {"scale": 2, "shift": -0.5}


def test(kernserve, tree, command):
    folder = os.path.dirname(kernserve)
    command(os.path.join(folder, "tests", "op_affine"))
    if platform.machine() == "x86_64":
        said = command(os.path.join(folder, "tests", "emulate", "emulate_affine"))
        assert "backend emulated: right" in said and "backend cpu: right" in said, said
    compile_for_gpu(tree, command)
    with Daemon(kernserve, "--backend", "cpu", "--pinned-bytes", "16M") as daemon:
        models = json.loads(daemon.get("/v2/models/stats").body)
        assert "affine" in {m["name"] for m in models["model_stats"]}, models
        assert daemon.get("/v2/models/affine").status == 200
        data = struct.pack("<6f", *VALUES)
        assert ask_json(daemon) == WANT
        assert ask_binary(daemon, data) == struct.pack("<6f", *WANT)
        with daemon.connect() as connection:
            answer = connection.ask(request("POST", "/v2/models/affine/infer?shape=2,3&datatype=FP32&scale=2&shift=-0.5", body=data))
            assert answer.status == 200 and answer.body == struct.pack("<6f", *WANT), answer
            answer = connection.ask(request("POST", "/v2/models/affine/infer?shape=2,3&datatype=INT32", body=data))
            assert answer.status == 400 and answer.header("kernserve-error") == "datatype", answer
        assert daemon.stop() == 0


def compile_for_gpu(tree, command):
    """Where nvcc is: the emulated GPU takes more than it does."""
    nvcc = shutil.which("nvcc", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    if nvcc:
        folders = ["-I" + os.path.join(tree, name) for name in ("include", "kernels")]
        command(nvcc, "-std=c++20", "-arch=sm_80", "-Werror=all-warnings", "-D_GNU_SOURCE", *folders, "-c",
                os.path.join(tree, "kernels/cuda/affine/affine.cu"), "-o", os.path.join(tree, "build", "affine.o"))


def ask_json(daemon):
    document = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2, 3], "data": VALUES}], "parameters": PARAMETERS}
    with daemon.connect() as connection:
        answer = connection.ask(request("POST", "/v2/models/affine/infer", body=json.dumps(document).encode()))
    assert answer.status == 200, answer
    return json.loads(answer.body)["outputs"][0]["data"]


def ask_binary(daemon, data):
    head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2, 3], "parameters": {"binary_data_size": len(data)}}],
                       "parameters": {**PARAMETERS, "binary_data_output": True}}).encode()
    with daemon.connect() as connection:
        answer = connection.ask(request("POST", "/v2/models/affine/infer", [("Inference-Header-Content-Length", len(head))], head + data))
    assert answer.status == 200, answer
    return answer.body[int(answer.header("inference-header-content-length")):]
