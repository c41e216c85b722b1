"""A toy backend: twin, the CPU's under a name of its own, which counts its launches."""
import struct

from daemon import Daemon, request

HEADING = "Add a backend"
EDITS = [
    ("CMakeLists.txt", r"^ks_layer\(kernels/cuda .*\n", r"\g<0>ks_layer(kernels/twin ops cpu)\n"),
    ("CMakeLists.txt", r"^(ks_layer\(server/daemon .*?\bcuda) ", r"\1 twin "),
    ("include/kernserve/backends.h", r"^    X\(CPU, cpu, false\)", r"\g<0> X(TWIN, twin, false)"),
    # documents, and what --dump-config=sample prints
    ("docs/operate.md", r"^(\| `--backend` .*?\|cpu)", r"\1\\|twin"),
    ("deploy/config/kernserve.conf", r"(\|cpu)\n(?=#backend = )", r"\1|twin\n"),
]


def test(kernserve, tree, command):
    assert "twin" in command(kernserve, "--help")
    body = struct.pack("<4i", 3, -5, 8, 1)
    with Daemon(kernserve, "--backend", "twin", "--pinned-bytes", "16M") as daemon, daemon.connect() as connection:
        answer = connection.ask(request("POST", "/v2/models/reduce/infer?shape=2,2&datatype=INT32&op=max&axis=1", body=body))
        assert answer.status == 200 and answer.body == struct.pack("<2i", 3, 8), answer
        assert daemon.stop() == 0
        said = daemon.said()
        assert "backend=twin" in said and "twin: 0 launches" not in said and " launches\n" in said, said
