#!/usr/bin/env python3
"""A block of a transformer's encoder, served: layer norm, attention of 12 heads, residual, layer norm, two products with gelu between, residual,
over 128 tokens of width 384 and 768, with drawn weights. Its graph of ONNX is written as PyTorch exports one, converted, and loaded by PUT; answers
of batches of 1 and 4 against float64. With --rates then rates beside onnxruntime and, where it can be imported, PyTorch, in turns: both are called in
the process while the daemon is asked by HTTP.

encoder.py KERNSERVE [BACKEND] [--rates]     of tests/compat/environment.sh tests/models; cpu, where no backend is named
"""

import math
import os
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "http"), os.path.join(HERE, "..", "..", "clients", "python", "src")]
import kernserve  # noqa: E402
from daemon import Daemon, check, daemon_path, seed, wrongs  # noqa: E402
from kernserve.onnx import convert  # noqa: E402
from rates import race, session_of  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

BACKEND = next((word for word in sys.argv[2:] if not word.startswith("-")), "cpu")
RATES = any(word == "--rates" for word in sys.argv[2:])
TOKENS, HEADS, WIDTHS, EPSILON = 128, 12, (384, 768), 1e-5
BOUND = 1e-5  # of the outputs' root mean square


def draw(width, generator):
    """Weights by the names that PyTorch's nn.TransformerEncoderLayer would give them, products' as [in, out]."""
    def normal(*shape, scale=1.0):
        return (generator.standard_normal(shape) * scale).astype(np.float32)

    weights = {"in_%s" % part: normal(width, width, scale=width ** -0.5) for part in "qkv"}
    weights.update({"in_%s_bias" % part: normal(width, scale=0.1) for part in "qkv"})
    weights.update(out=normal(width, width, scale=width ** -0.5), out_bias=normal(width, scale=0.1), linear1=normal(width, 4 * width, scale=width ** -0.5),
                   linear1_bias=normal(4 * width, scale=0.1), linear2=normal(4 * width, width, scale=(4 * width) ** -0.5), linear2_bias=normal(width, scale=0.1))
    for norm in ("norm1", "norm2"):
        weights.update({norm: 1 + normal(width, scale=0.1), norm + "_bias": normal(width, scale=0.1)})
    return weights


def graph(width, weights):
    """The block as a model of ONNX; -1 of a shape is the batch."""
    made, constants = [], {name: numpy_helper.from_array(value, name) for name, value in weights.items()}

    def node(op, *inputs, **attributes):
        made.append(helper.make_node(op, inputs, ["v%d" % len(made)], **attributes))
        return made[-1].output[0]

    def constant(name, values, datatype):
        constants[name] = numpy_helper.from_array(np.array(values, datatype), name)
        return name

    def linear(x, name):
        return node("Add", node("MatMul", x, name), name + "_bias")

    def heads(x):
        return node("Transpose", node("Reshape", x, constant("apart", [0, TOKENS, HEADS, width // HEADS], np.int64)), perm=[0, 2, 1, 3])

    norm = node("LayerNormalization", "x", "norm1", "norm1_bias", epsilon=EPSILON)
    q, k, v = (heads(linear(norm, "in_" + part)) for part in "qkv")
    scores = node("Mul", node("MatMul", q, node("Transpose", k, perm=[0, 1, 3, 2])), constant("scale", (width // HEADS) ** -0.5, np.float32))
    mixed = node("Transpose", node("MatMul", node("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    attended = node("Add", "x", linear(node("Reshape", mixed, constant("whole", [0, TOKENS, width], np.int64)), "out"))
    wide = linear(node("LayerNormalization", attended, "norm2", "norm2_bias", epsilon=EPSILON), "linear1")
    bent = node("Mul", node("Mul", wide, node("Add", node("Erf", node("Div", wide, constant("root", math.sqrt(2), np.float32))),
                                              constant("one", 1, np.float32))), constant("half", 0.5, np.float32))
    made.append(helper.make_node("Add", [attended, linear(bent, "linear2")], ["y"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", TOKENS, width]) for name in "xy"]
    model = helper.make_model(helper.make_graph(made, "encoder", ends[:1], ends[1:], list(constants.values())), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


def erf(x):
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def exact(weights, x):
    """The block in float64."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    batch, width = x.shape[0], x.shape[2]

    def norm(x, name):
        d = x - x.mean(-1, keepdims=True)
        return d / np.sqrt((d ** 2).mean(-1, keepdims=True) + EPSILON) * w[name] + w[name + "_bias"]

    def linear(x, name):
        return x @ w[name] + w[name + "_bias"]

    h = norm(x, "norm1")
    q, k, v = (linear(h, "in_" + part).reshape(batch, TOKENS, HEADS, -1).transpose(0, 2, 1, 3) for part in "qkv")
    scores = q @ k.transpose(0, 1, 3, 2) * (width // HEADS) ** -0.5
    e = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (e / e.sum(-1, keepdims=True)) @ v
    x = x + linear(mixed.transpose(0, 2, 1, 3).reshape(batch, TOKENS, width), "out")
    z = linear(norm(x, "norm2"), "linear1")
    return x + linear(0.5 * z * (1 + erf(z / math.sqrt(2))), "linear2")


def torch_block(width, weights):
    """PyTorch's own layer with these weights; a call of it is one thread, as a lane of the daemon is."""
    torch.set_num_threads(1)
    layer = torch.nn.TransformerEncoderLayer(width, HEADS, 4 * width, dropout=0.0, activation="gelu", layer_norm_eps=EPSILON, batch_first=True, norm_first=True).eval()
    tensor = {name: torch.from_dlpack(np.ascontiguousarray(value.T)) for name, value in weights.items()}
    state = {"self_attn.in_proj_weight": torch.cat([tensor["in_" + part] for part in "qkv"]), "self_attn.in_proj_bias": torch.cat([tensor["in_%s_bias" % part] for part in "qkv"]),
             "self_attn.out_proj.weight": tensor["out"], "self_attn.out_proj.bias": tensor["out_bias"]}
    for name in ("linear1", "linear2", "norm1", "norm2"):
        state.update({name + ".weight": tensor[name], name + ".bias": tensor[name + "_bias"]})
    layer.load_state_dict(state)

    def run(x):
        with torch.inference_mode():
            return np.from_dlpack(layer(torch.from_dlpack(x)))

    return run


def main():
    generator = np.random.default_rng(seed().getrandbits(31))
    with tempfile.TemporaryDirectory() as folder, Daemon(daemon_path(), "--backend", BACKEND) as daemon, \
            kernserve.Client("http://127.0.0.1:%d" % daemon.port) as ks:
        for width in WIDTHS:
            weights, path = draw(width, generator), os.path.join(folder, "encoder%d.onnx" % width)
            onnx.save(graph(width, weights), path)
            definition, values = convert(path)
            entry = ks.load("encoder", definition, values)
            print("width %d: %d nodes of ONNX, %d here, %d steps" % (width, len(onnx.load(path).graph.node), len(definition["nodes"]), entry["steps"]))
            session, theirs = session_of(path), torch_block(width, weights) if torch else None
            for batch in (1, 4):
                x = generator.standard_normal((batch, TOKENS, width)).astype(np.float32)
                wanted = exact(weights, x.astype(np.float64))
                size = np.sqrt((wanted ** 2).mean())
                apart = {"kernserve": ks.infer("encoder", x=x)["y"], "onnxruntime": session.run(["y"], {"x": x})[0]}
                if theirs:
                    apart["PyTorch"] = theirs(x)
                apart = {name: float(np.abs(got - wanted).max() / size) if got.shape == wanted.shape else math.nan for name, got in apart.items()}
                check(apart["kernserve"] <= BOUND, "from float64:", apart)
                print("batch %d, from float64: %s (bound %.0e)" % (batch, ", ".join("%s %.1e" % pair for pair in apart.items()), BOUND))
            if RATES:
                batches = [generator.standard_normal((batch, TOKENS, width)).astype(np.float32) for batch in (1, 4)]
                race(ks, "http://127.0.0.1:%d" % daemon.port, session, "encoder", "y", batches, others=[("PyTorch", theirs)] if theirs else [])
            ks.unload("encoder")
        check(daemon.stop() == 0, "the exit code")
    return wrongs() > 0


if __name__ == "__main__":
    sys.exit(main())
