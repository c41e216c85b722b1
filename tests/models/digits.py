#!/usr/bin/env python3
"""A network of scikit-learn's, served: MLPClassifier on its digits, exported to ONNX, converted, loaded by PUT; the whole test set alone
and in batches against float64 and against scikit-learn's labels. Then rates beside onnxruntime, in turns, which is called in the
process while the daemon is asked by HTTP.

digits.py KERNSERVE [BACKEND]     of tests/compat/environment.sh tests/models; cpu, where no backend is named
"""

import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import skl2onnx
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENT = os.path.join(HERE, "..", "..", "clients", "python", "src")
sys.path[:0] = [os.path.join(HERE, "..", "http"), CLIENT]
import kernserve  # noqa: E402
from daemon import Daemon, check, daemon_path, seed, wrongs  # noqa: E402
from rates import race, session_of  # noqa: E402

BACKEND = sys.argv[2] if len(sys.argv) > 2 else "cpu"
BOUND = 1e-5


def train(number):
    """The network, and the rows and labels that it has not seen."""
    x, y = load_digits(return_X_y=True)
    seen, unseen, labels, right = train_test_split((x / 16).astype(np.float32), y, test_size=0.5, random_state=number, stratify=y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        network = MLPClassifier((64,), max_iter=60, random_state=number).fit(seen, labels)
    return network, unseen, right


def exact(network, x):
    """Its probabilities in float64."""
    for weight, bias in zip(network.coefs_[:-1], network.intercepts_[:-1]):
        x = np.maximum(x @ weight.astype(np.float64) + bias, 0)
    x = x @ network.coefs_[-1].astype(np.float64) + network.intercepts_[-1]
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def export(network, folder):
    """The files of ONNX and of the daemon. Without --output there are labels, too."""
    paths = [os.path.join(folder, name) for name in ("digits.onnx", "digits.safetensors")]
    model = skl2onnx.to_onnx(network, np.zeros((1, 64), np.float32), options={"zipmap": False})
    with open(paths[0], "wb") as file:
        file.write(model.SerializeToString())
    words = [sys.executable, "-B", "-m", "kernserve.onnx", paths[0], "-o", paths[1]]
    environment = dict(os.environ, PYTHONPATH=CLIENT)
    whole = subprocess.run(words, capture_output=True, text=True, env=environment)
    check(whole.returncode == 0 and '"outputs": ["label", "probabilities"]' in whole.stdout, "labels:", whole)
    run = subprocess.run([*words, "--output", "probabilities", "--max-batch", "1024"], capture_output=True, text=True, env=environment)
    check(run.returncode == 0, run)
    print("%d nodes of ONNX" % len(model.graph.node), run.stdout.strip())
    return paths


def compare(ks, network, x, right):
    wanted, labels = exact(network, x.astype(np.float64)), network.predict(x)
    name = ks.definition("digits")["inputs"][0]["name"]
    generator, worst = np.random.default_rng(0), 0.0
    cuts = np.unique(np.concatenate([[0], np.cumsum(generator.integers(1, 130, len(x))), [len(x)]]))
    cuts = cuts[cuts <= len(x)]
    for what, pieces in (("alone", np.split(np.arange(len(x)), len(x))), ("in batches", np.split(np.arange(len(x)), cuts[1:-1])), ("at once", [np.arange(len(x))])):
        got = np.concatenate([np.asarray(ks.infer("digits", **{name: x[piece]})["probabilities"]) for piece in pieces])
        apart = float(np.abs(got - wanted).max()) if got.shape == wanted.shape else float("nan")
        check(got.dtype == np.float32 and apart <= BOUND, what, got.shape, apart)
        check(np.array_equal(network.classes_[got.argmax(1)], labels), what, "other labels than scikit-learn's:", int((got.argmax(1) != labels).sum()))
        worst = max(worst, apart)
    print("%d rows: %.1e from float64 (bound %.0e), labels equal, accuracy %.4f" % (len(x), worst, BOUND, np.mean(labels == right)))


def main():
    network, x, right = train(seed().getrandbits(31))
    with tempfile.TemporaryDirectory() as folder:
        exported, converted = export(network, folder)
        with Daemon(daemon_path(), "--backend", BACKEND) as daemon, kernserve.Client("http://127.0.0.1:%d" % daemon.port) as ks:
            ks.load("digits", converted)
            print("nodes:", ", ".join("%s%s" % (node["op"], " " + node["parameters"]["activation"] if "activation" in node["parameters"] else "")
                                      for node in ks.definition("digits")["nodes"]))
            compare(ks, network, x, right)
            race(ks, "http://127.0.0.1:%d" % daemon.port, session_of(exported), "digits", "probabilities", [np.ascontiguousarray(x[:batch]) for batch in (1, 64, 512)])
            ks.unload("digits")
            check(daemon.stop() == 0, "the exit code")
    return wrongs() > 0


if __name__ == "__main__":
    sys.exit(main())
