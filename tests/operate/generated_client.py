#!/usr/bin/env python3
"""A client that openapi-python-client generates from /openapi.json: JSON softmax, a product of bytes, npy, an error, a token.

generated_client.py KERNSERVE    by the Python of tests/operate/requirements.txt
"""
import importlib
import io
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from daemon import SKIP, Daemon, check, daemon_path, request, wrongs  # noqa: E402

try:
    import httpx
    import numpy
    import openapi_python_client  # noqa: F401
except ImportError as missing:
    print("generated_client.py: %s" % missing)
    sys.exit(SKIP)

OPTIONS = ("--backend", "cpu", "--pinned-bytes", "16M", "--threads", "1")
SECRET = "0123456789abcdef"


def generate(document, folder):
    """The package's modules, imported."""
    path = os.path.join(folder, "openapi.json")
    with open(path, "wb") as file:
        file.write(document)
    # Without formatters after it: what they say of the code is not asked here.
    config = os.path.join(folder, "config.yml")
    with open(config, "w") as file:
        file.write("post_hooks: []\n")
    done = subprocess.run([sys.executable, "-m", "openapi_python_client", "generate", "--path", path, "--config", config, "--meta", "none", "--output-path", os.path.join(folder, "generated")],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    check(done.returncode == 0, done.stdout)
    # It knows two kinds of body, and leaves the others of an operation out.
    warnings = [line for line in done.stdout.splitlines() if line.startswith(("Unsupported", "ERROR", "Cannot"))]
    check(all(line.startswith("Unsupported content type application/x-") for line in warnings), "the generator is content:", warnings)
    sys.path.insert(0, folder)
    return lambda name: importlib.import_module("generated." + name)


def json_softmax(module, client):
    models = module("models")
    body = models.InferRequest.from_dict({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [0, 0, 0, 0]}]})
    answer = module("api.inference.infer").sync_detailed("softmax", client=client, body=body, x_request_id="generated")
    check(isinstance(answer.parsed, models.InferAnswer) and answer.parsed.outputs[0].data == [0.25] * 4, answer)
    check(answer.headers["x-request-id"] == "generated", "the field of the request")


def raw_matmul(module, client):
    a, b = numpy.arange(6, dtype="<f4").reshape(2, 3), numpy.arange(12, dtype="<f4").reshape(3, 4)
    file = module("types").File(payload=io.BytesIO(a.tobytes() + b.tobytes()))
    got = module("api.inference.raw").sync("matmul", client=client, body=file, shape=["2,3", "3,4"], datatype=[module("models").Datatype("FP32")], alpha=2.0)
    values = numpy.frombuffer(got.payload.read(), "<f4").reshape(2, 4)
    check(numpy.array_equal(values, 2 * (a @ b)), "alpha A B", values)
    transposed = module("types").File(payload=io.BytesIO(a.T.tobytes() + b.tobytes()))
    got = module("api.inference.raw_version").sync("matmul", "1", client=client, body=transposed, shape=["3,2", "3,4"], transpose_a=True)
    check(numpy.array_equal(numpy.frombuffer(got.payload.read(), "<f4").reshape(2, 4), a @ b), "a parameter that is true or false")


def npy(module, url):
    """The generator knows one kind of bytes; the Content-Type of another is the client's to set."""
    def as_npy(sent):
        sent.headers["content-type"] = "application/x-npy"
    client = module("client").Client(base_url=url, httpx_args={"event_hooks": {"request": [as_npy]}})
    values, file = numpy.arange(6, dtype="<f8").reshape(2, 3), io.BytesIO()
    numpy.save(file, values)
    got = module("api.inference.raw").sync("reduce", client=client, body=module("types").File(payload=io.BytesIO(file.getvalue())), op=module("models").RawOp("max"), axis=1)
    check(numpy.array_equal(numpy.load(got.payload), values.max(axis=1)), "the maxima of rows")


def fault(module, client):
    answer = module("api.inference.raw").sync_detailed("softmax", client=client, body=module("types").File(payload=io.BytesIO(b"four")), shape=["1,2"])
    check(answer.status_code == 400 and isinstance(answer.parsed, module("models").Error) and "byte size" in answer.parsed.error, answer)
    check(answer.headers["kernserve-error"] == "binary_size", "the code")


def documents(module, client):
    check(module("api.models.model_metadata").sync("softmax", client=client).name == "softmax", "model metadata")
    check(module("api.health.ready").sync(client=client).ready is True, "health")
    check("kernserve_build_info" in module("api.operation.metrics").sync_detailed(client=client).content.decode(), "metrics")


def token(module, folder):
    path = os.path.join(folder, "tokens")
    with open(path, "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write("generated:%s\n" % SECRET)
    with Daemon(daemon_path(), *OPTIONS, "--token-file", path) as daemon:
        url, client = "http://127.0.0.1:%d" % daemon.port, module("client")
        def send(one):
            body = module("types").File(payload=io.BytesIO(struct.pack("<2f", 1, 1)))
            return module("api.inference.raw").sync_detailed("softmax", client=one, body=body, shape=["1,2"])
        good = send(client.AuthenticatedClient(base_url=url, token=SECRET))
        check(good.status_code == 200 and good.content == struct.pack("<2f", 0.5, 0.5), good)
        bad = send(client.Client(base_url=url))
        check(bad.status_code == 401 and bad.headers["kernserve-error"] == "auth", bad)
        check(daemon.stop() == 0, "the exit code")


def main():
    with tempfile.TemporaryDirectory() as folder, Daemon(daemon_path(), *OPTIONS) as daemon:
        with daemon.connect() as connection:
            module = generate(connection.ask(request("GET", "/openapi.json")).body, folder)
        url = "http://127.0.0.1:%d" % daemon.port
        client = module("client").Client(base_url=url, timeout=httpx.Timeout(30))
        json_softmax(module, client)
        raw_matmul(module, client)
        npy(module, url)
        fault(module, client)
        documents(module, client)
        token(module, folder)
        check(daemon.stop() == 0, "the exit code")
    return wrongs() > 0


sys.exit(main())
