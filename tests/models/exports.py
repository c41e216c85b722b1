#!/usr/bin/env python3
"""Whole exports of real architectures: transformers' (of random weights, as there is no need of trained ones), PyTorch's own, torchvision's and
scikit-learn's, exported by both of PyTorch's exporters with a batch and a length that a request decides, converted (kernserve.onnx), loaded by
the client, asked with several batches and lengths and masks that mask, and set beside onnxruntime on the same file: each side's error is the
distance from the module in float64, and the daemon's is to be at most twice onnxruntime's and a few units of FP32. What cannot be converted is
to be named, node by node.

exports.py KERNSERVE [BACKEND] [--only WORD] [--rates] [--folder FOLDER]     of tests/compat/environment.sh tests/models/exports, which has PyTorch:
exit code 77 without it. --rates: requests a second of three of them beside onnxruntime, and where the time goes. --folder: keeps the graphs there.
"""

import argparse
import contextlib
import io
import os
import sys
import tempfile
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "http"), os.path.join(HERE, "..", "..", "clients", "python", "src")]
try:
    import numpy as np
    import onnx
    import onnxruntime
    import torch
    import transformers
    from torch.overrides import TorchFunctionMode
except ImportError as error:
    print("skipped: %s; tests/compat/environment.sh tests/models/exports makes an environment that has it" % error)
    sys.exit(77)
import kernserve  # noqa: E402
from daemon import Daemon, check, seed, wrongs  # noqa: E402
from kernserve.onnx import ConversionError, convert  # noqa: E402

RANDOM = np.random.default_rng(seed().getrandbits(32))
ULPS = 8  # of the largest element, beside onnxruntime's error
LEGACY, DYNAMO = "legacy", "dynamo"
WORDS = 200  # of small vocabularies


class Wide(TorchFunctionMode):
    """Everything that a module does in FP32 whatever its own datatype is, such as norms and angles, in float64."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        wider = lambda value: torch.float64 if value is torch.float32 else value
        if function is torch.Tensor.float:
            return args[0].double()
        return function(*map(wider, args), **{name: wider(value) for name, value in (kwargs or {}).items()})


class Text(torch.nn.Module):
    """A module of input_ids and attention_mask, as tokenizers give them. out: what of its answer is asked for."""

    def __init__(self, model, out="last_hidden_state", **more):
        super().__init__()
        self.model, self.out, self.more = model.eval(), out, more

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, **self.more)[self.out]


class Sentence(Text):
    """Mean of the tokens that the mask leaves, at length one: sentence-transformers' pooling."""

    def forward(self, input_ids, attention_mask):
        tokens = super().forward(input_ids, attention_mask)
        kept = attention_mask.unsqueeze(-1).expand(tokens.size()).to(tokens.dtype)
        mean = torch.sum(tokens * kept, 1) / torch.clamp(kept.sum(1), min=1e-9)
        return torch.nn.functional.normalize(mean, p=2, dim=1)


class Alone(torch.nn.Module):
    """input_ids without a mask."""

    def __init__(self, model, out="logits", **more):
        super().__init__()
        self.model, self.out, self.more = model.eval(), out, more

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, **self.more)[self.out]


class Pixels(torch.nn.Module):
    def __init__(self, model, out=None):
        super().__init__()
        self.model, self.out = model.eval(), out

    def forward(self, pixel_values):
        made = self.model(pixel_values)
        return made[self.out] if self.out else made


class Mixer(torch.nn.Module):
    """An MLP-Mixer's blocks on patches that are rows."""

    def __init__(self, patches=16, width=32, depth=2):
        super().__init__()
        mlp = lambda size, wide: torch.nn.Sequential(torch.nn.Linear(size, wide), torch.nn.GELU(), torch.nn.Linear(wide, size))
        self.blocks = torch.nn.ModuleList(torch.nn.ModuleList([torch.nn.LayerNorm(width), mlp(patches, 24), torch.nn.LayerNorm(width), mlp(width, 64)]) for _ in range(depth))
        self.head = torch.nn.Linear(width, 10)

    def forward(self, x):
        for norm1, tokens, norm2, channels in self.blocks:
            x = x + tokens(norm1(x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(norm2(x))
        return self.head(x.mean(1))


class Native(torch.nn.Module):
    """torch.nn.TransformerEncoder, causal or not."""

    def __init__(self, causal):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True, activation="gelu")
        self.encoder, self.causal = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), causal

    def forward(self, x):
        mask = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype) if self.causal else None
        return self.encoder(x, mask=mask, is_causal=self.causal)


class Recurrent(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.recurrent = kind(16, 24, batch_first=True)

    def forward(self, x):
        return self.recurrent(x)[0]


# --- what is exported ----------------------------------------------------------------------------------------------------------


def tokens(batch, length, masked=True):
    ids = RANDOM.integers(3, WORDS, (batch, length))
    mask = np.ones((batch, length), np.int64)
    for row in range(1, batch if length > 1 else 0):  # the first one is whole
        mask[row, RANDOM.integers(1, length):] = 0
    return {"input_ids": ids, "attention_mask": mask} if masked else {"input_ids": ids}


def padded_left(batch, length):
    given = tokens(batch, length)
    return {name: values[:, ::-1].copy() for name, values in given.items()}


class Model:
    """make: the module. draw(batch, length): its inputs. length: None where only the batch is free. refused: words of what is said, where it cannot be converted."""

    def __init__(self, name, make, draw, length=(8, 48), exporters=(LEGACY, DYNAMO), opsets=(17, 18), refused=None, batches=(1, 3), bound=ULPS):
        self.name, self.make, self.draw, self.length, self.exporters, self.opsets = name, make, draw, length, exporters, opsets
        self.refused, self.batches, self.bound = refused, batches, bound


def config(kind, width=48, depth=2, heads=4, **more):
    common = dict(hidden_size=width, num_hidden_layers=depth, num_attention_heads=heads, vocab_size=WORDS, max_position_embeddings=64)
    if kind is not transformers.BertConfig or "intermediate_size" not in more:
        common["intermediate_size"] = 2 * width
    common.update(more)
    return kind(**common)


def bert(attention, **more):
    made = config(transformers.BertConfig, **more)
    made._attn_implementation = attention
    return made


def text_models():
    t = transformers
    yield Model("bert", lambda: Text(t.BertModel(bert("sdpa"), add_pooling_layer=False)), tokens, opsets=(14, 17, 18, 20))
    yield Model("bert-eager", lambda: Text(t.BertModel(bert("eager"), add_pooling_layer=False)), tokens)
    yield Model("bert-pooler", lambda: Text(t.BertModel(bert("sdpa")), "pooler_output"), tokens)
    yield Model("bert-classifier", lambda: Text(t.BertForSequenceClassification(bert("sdpa", num_labels=3)), "logits"), tokens)
    yield Model("bert-masked-words", lambda: Text(t.BertForMaskedLM(bert("sdpa")), "logits"), tokens)
    yield Model("minilm", lambda: Sentence(t.BertModel(bert("sdpa", width=384, depth=6, heads=12, intermediate_size=1536, vocab_size=30522, max_position_embeddings=512), add_pooling_layer=False)),
                tokens, opsets=(17, 18), length=(16, 128))
    yield Model("bert-base", lambda: Text(t.BertModel(bert("sdpa", width=768, depth=12, heads=12, intermediate_size=3072, vocab_size=30522, max_position_embeddings=512), add_pooling_layer=False)),
                tokens, exporters=(DYNAMO,), opsets=(18,), length=(16, 128), batches=(1, 2))
    yield Model("bert-24-layers", lambda: Text(t.BertModel(bert("sdpa", depth=24), add_pooling_layer=False)), tokens, exporters=(DYNAMO,), opsets=(18,))
    yield Model("distilbert", lambda: Text(t.DistilBertModel(t.DistilBertConfig(dim=48, n_layers=2, n_heads=4, hidden_dim=96, vocab_size=WORDS, max_position_embeddings=64))), tokens)
    yield Model("roberta", lambda: Text(t.RobertaModel(config(t.RobertaConfig), add_pooling_layer=False)), tokens)
    yield Model("electra", lambda: Text(t.ElectraModel(config(t.ElectraConfig, embedding_size=32))), tokens)
    yield Model("mpnet", lambda: Text(t.MPNetModel(config(t.MPNetConfig), add_pooling_layer=False)), tokens)
    yield Model("albert", lambda: Text(t.AlbertModel(config(t.AlbertConfig, embedding_size=32), add_pooling_layer=False)), tokens)
    yield Model("deberta-v2", lambda: Text(t.DebertaV2Model(config(t.DebertaV2Config, relative_attention=True, pos_att_type=["p2c", "c2p"], type_vocab_size=0))), tokens, refused="Tile")
    yield Model("modernbert", lambda: Text(t.ModernBertModel(config(t.ModernBertConfig, pad_token_id=0, local_attention=8))), tokens)
    yield Model("t5-encoder", lambda: Text(t.T5EncoderModel(t.T5Config(d_model=48, d_kv=12, d_ff=96, num_layers=2, num_heads=4, vocab_size=WORDS))), tokens)
    yield Model("gpt2", lambda: Text(t.GPT2LMHeadModel(t.GPT2Config(n_embd=48, n_layer=2, n_head=4, vocab_size=WORDS, n_positions=64)), "logits", use_cache=False), tokens)
    yield Model("gpt2-left", lambda: Text(t.GPT2LMHeadModel(t.GPT2Config(n_embd=48, n_layer=2, n_head=4, vocab_size=WORDS, n_positions=64)), "logits", use_cache=False), padded_left)
    yield Model("gpt2-alone", lambda: Alone(t.GPT2LMHeadModel(t.GPT2Config(n_embd=48, n_layer=2, n_head=4, vocab_size=WORDS, n_positions=64)), use_cache=False), lambda b, s: tokens(b, s, False))
    few = dict(num_key_value_heads=2, rms_norm_eps=1e-6)
    yield Model("llama", lambda: Text(t.LlamaForCausalLM(config(t.LlamaConfig, **few)), "logits", use_cache=False), tokens)
    for layers in (16, 32):
        yield Model("llama-%d-layers" % layers, lambda layers=layers: Text(t.LlamaForCausalLM(config(t.LlamaConfig, depth=layers, **few)), "logits", use_cache=False), tokens, exporters=(DYNAMO,), opsets=(18,))
    yield Model("llama-eager", lambda: Text(t.LlamaForCausalLM(config(t.LlamaConfig, attn_implementation="eager", **few)), "logits", use_cache=False), tokens)
    yield Model("llama-alone", lambda: Alone(t.LlamaForCausalLM(config(t.LlamaConfig, **few)), use_cache=False), lambda b, s: tokens(b, s, False))
    yield Model("qwen2", lambda: Text(t.Qwen2ForCausalLM(config(t.Qwen2Config, **few)), "logits", use_cache=False), tokens)
    yield Model("qwen3", lambda: Text(t.Qwen3ForCausalLM(config(t.Qwen3Config, head_dim=12, **few)), "logits", use_cache=False), tokens)
    yield Model("mistral", lambda: Text(t.MistralForCausalLM(config(t.MistralConfig, sliding_window=8, **few)), "logits", use_cache=False), tokens)
    yield Model("gemma2", lambda: Text(t.Gemma2ForCausalLM(config(t.Gemma2Config, head_dim=12, sliding_window=8, query_pre_attn_scalar=12, **few)), "logits", use_cache=False), tokens)


def other_models():
    t, few = transformers, dict(image_size=32, patch_size=8)
    images = lambda size: lambda batch, length: {"pixel_values": RANDOM.standard_normal((batch, 3, size, size)).astype(np.float32)}
    rows = lambda *shape: lambda batch, length: {"x": RANDOM.standard_normal((batch, *(length if each is None else each for each in shape))).astype(np.float32)}
    yield Model("vit", lambda: Pixels(t.ViTForImageClassification(config(t.ViTConfig, num_labels=5, **few)), "logits"), images(32), None)
    yield Model("deit", lambda: Pixels(t.DeiTModel(config(t.DeiTConfig, **few), add_pooling_layer=False), "last_hidden_state"), images(32), None)
    yield Model("clip-vision", lambda: Pixels(t.CLIPVisionModel(config(t.CLIPVisionConfig, **few)), "pooler_output"), images(32), None)
    yield Model("mlp-mixer", Mixer, rows(16, 32), None)
    yield Model("torch-encoder", lambda: Native(False), rows(None, 32), exporters=(DYNAMO,))  # the older exporter writes the length that it saw into the graph
    yield Model("torch-causal", lambda: Native(True), rows(None, 32), exporters=(DYNAMO,))
    yield Model("lstm", lambda: Recurrent(torch.nn.LSTM), rows(9, 16), None, refused="LSTM")
    yield Model("gru", lambda: Recurrent(torch.nn.GRU), rows(9, 16), None, refused="GRU")
    try:
        import torchvision
    except ImportError:
        return
    v = torchvision.models
    yield Model("torchvision-vit", lambda: Pixels(v.VisionTransformer(32, 8, 2, 4, 48, 96, num_classes=5)), images(32), None)
    yield Model("resnet18", lambda: Pixels(v.resnet18()), images(64), None, batches=(1, 2))
    yield Model("mobilenet", lambda: Pixels(v.mobilenet_v3_small()), images(64), None, refused="groups of channels")
    yield Model("convnext", lambda: Pixels(v.convnext_tiny()), images(64), None, refused="groups of channels")
    yield Model("swin", lambda: Pixels(v.SwinTransformer([4, 4], 24, [1, 1], [2, 2], [2, 2], num_classes=5)), images(32), None, exporters=(DYNAMO,))  # the older exporter divides lengths


def pipelines():
    """scikit-learn's, as skl2onnx writes them: (name, estimator, two classes, words of the refusal)."""
    from sklearn.decomposition import PCA
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, Normalizer, PolynomialFeatures, StandardScaler
    from sklearn.svm import LinearSVC

    yield "MLPClassifier", MLPClassifier((32,), max_iter=20), False, None
    yield "MLPClassifier, two classes", MLPClassifier((32,), max_iter=20), True, None
    yield "StandardScaler, LogisticRegression", make_pipeline(StandardScaler(), LogisticRegression(max_iter=20)), False, None
    yield "StandardScaler, LogisticRegression, two classes", make_pipeline(StandardScaler(), LogisticRegression(max_iter=20)), True, None
    yield "MinMaxScaler, PCA, MLPClassifier", make_pipeline(MinMaxScaler(), PCA(16), MLPClassifier((32,), max_iter=20)), False, None
    yield "Normalizer, Ridge", make_pipeline(Normalizer(), Ridge()), False, None
    yield "StandardScaler, MLPRegressor", make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(32,), max_iter=20)), False, None
    yield "PCA, PolynomialFeatures, Ridge", make_pipeline(PCA(4), PolynomialFeatures(2), Ridge()), False, None
    yield "StandardScaler, SGDClassifier", make_pipeline(StandardScaler(), SGDClassifier(loss="log_loss", max_iter=20)), False, None
    yield "LinearSVC", LinearSVC(max_iter=100), False, None
    yield "GaussianNB", GaussianNB(var_smoothing=1e-3), False, None
    yield "RandomForestClassifier", RandomForestClassifier(5), False, "ai.onnx.ml::TreeEnsembleClassifier"


def sklearn_models(ks, only):
    try:
        from skl2onnx import to_onnx
        from sklearn.datasets import load_digits
    except ImportError as error:
        print("scikit-learn's pipelines skipped: %s" % error)
        return
    rows, classes = load_digits(return_X_y=True)
    rows = (rows + RANDOM.random(rows.shape)).astype(np.float32)
    for name, estimator, two, refused in pipelines():
        if only and not any(word in name for word in only):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator.fit(rows[:1000].astype(np.float64), classes[:1000] % 2 if two else classes[:1000])
            graph = to_onnx(estimator, rows[:1], options={"zipmap": False} if hasattr(estimator, "predict_proba") else None, target_opset={"": 18, "ai.onnx.ml": 3})
        try:
            definition, weights = convert(graph)
        except ConversionError as error:
            check(refused is not None and refused in str(error), name, error)
            print("%s: %d nodes of ONNX, refused: %s" % (name, len(graph.graph.node), error))
            continue
        check(refused is None, name, "was converted")
        entry = ks.load("exported", definition, weights)
        session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
        outputs, worst = [entry["name"] for entry in definition["outputs"]], [0.0, 0.0]
        for count in (1, 7, 64):
            asked = rows[1000:1000 + count]
            got, theirs = ks.infer("exported", **{definition["inputs"][0]["name"]: asked}), session.run(None, {session.get_inputs()[0].name: asked})
            exactly = getattr(estimator, "predict_proba", getattr(estimator, "decision_function", estimator.predict))(asked.astype(np.float64)).reshape(count, -1)
            mine, others = (np.asarray(each[-1]).reshape(count, -1) for each in ([got[output] for output in outputs], theirs))
            errors = [float(np.abs(each - exactly).max() / np.abs(exactly).max()) for each in (mine, others)]
            check(errors[0] <= 2 * errors[1] + 32 * 2.0 ** -24, name, count, errors)
            worst = [max(pair) for pair in zip(worst, errors)]
            if len(outputs) > 1:
                check(np.array_equal(np.asarray(got[outputs[0]]).reshape(-1), np.asarray(theirs[0]).reshape(-1)), name, "labels are not onnxruntime's")
        print("%s: %d nodes of ONNX, %d here, %d steps; from float64 %.1e, onnxruntime %.1e" % (name, len(graph.graph.node), len(definition["nodes"]), entry["steps"], *worst))


# --- how -------------------------------------------------------------------------------------------------------------------------


def export(model, module, exporter, opset, path):
    given = model.draw(2, model.length[0] + 1 if model.length else 0)
    names, values = list(given), tuple(torch.from_numpy(array) for array in given.values())
    two_free = [model.length is not None and array.ndim > 1 for array in given.values()]
    with warnings.catch_warnings(), torch.inference_mode(), contextlib.redirect_stdout(io.StringIO()):  # which would show a whole graph that it cannot export
        warnings.simplefilter("ignore")
        if exporter == LEGACY:
            free = {name: {0: "batch", 1: "length"} if both else {0: "batch"} for name, both in zip(names, two_free)}
            torch.onnx.export(module, values, path, dynamo=False, opset_version=opset, dynamic_axes=free, input_names=names, output_names=["y"])
        else:
            batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
            free = tuple({0: batch, 1: length} if both else {0: batch} for both in two_free)
            torch.onnx.export(module, values, path, dynamo=True, opset_version=opset, dynamic_shapes=(free), input_names=names, output_names=["y"], verbose=False)


def session_of(path, threads=1):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def draw_constants(module):
    """What begins as zeros and ones would hide a factor or a term that is left out."""
    with torch.no_grad():
        for weights in module.parameters():
            if weights.numel() > 1 and bool((weights == weights.flatten()[0]).all()):
                weights += 0.1 * torch.randn_like(weights)


def exact(module, given):
    with torch.inference_mode(), Wide():
        return module(*(torch.from_numpy(array.astype(np.float64) if array.dtype == np.float32 else array) for array in given.values())).numpy()


def questions(model):
    lengths = [None] if model.length is None else [1, model.length[0], int(RANDOM.integers(*model.length)), model.length[1]]
    return [(batch, length) for length in lengths for batch in model.batches]


def ask(ks, model, wide, session):
    """The largest errors, of the largest element of each answer."""
    mine, theirs = [], []
    for batch, length in questions(model):
        given = model.draw(batch, length)
        wanted, scale = exact(wide, given), 0.0
        scale = np.abs(wanted).max()
        got, other = np.asarray(ks.infer("exported", **given)["y"]), session.run(["y"], given)[0]
        check(got.shape == wanted.shape, model.name, got.shape, wanted.shape)
        if got.shape != wanted.shape:
            continue
        if "attention_mask" in given and wanted.shape[:2] == (batch, length):  # behind the mask there is nothing to be right: what the graph says is done
            kept = given["attention_mask"].astype(bool)
            check(np.abs(got - other).max() <= 1e-4 * np.abs(other).max(), model.name, "differs from onnxruntime behind the mask", np.abs(got - other).max())
            got, other, wanted = got[kept], other[kept], wanted[kept]
        errors = [float(np.abs(each - wanted).max() / scale) for each in (got, other)]
        check(errors[0] <= 2 * errors[1] + model.bound * 2.0 ** -24, "%s, batch %d, length %s: %.1e from float64, onnxruntime %.1e" % (model.name, batch, length, *errors))
        mine.append(errors[0])
        theirs.append(errors[1])
    return max(mine, default=0.0), max(theirs, default=0.0)


def one(ks, model, exporter, opset, path, module, wide):
    said = "%-18s %s %d: " % (model.name, exporter, opset)
    begun = time.monotonic()
    try:
        export(model, module, exporter, opset, path)
    except Exception as error:  # the exporter's
        print("%snot exported: %s" % (said, (str(error).strip() or repr(error)).splitlines()[0][:160]))
        return
    nodes, exported = len(onnx.load(path, load_external_data=False).graph.node), time.monotonic()
    try:
        definition, weights = convert(path)
        converted = time.monotonic()
        entry = ks.load("exported", definition, weights)
    except (ConversionError, kernserve.Error) as error:
        lines = str(error).splitlines()
        check(model.refused is not None and any(model.refused in line for line in lines) and "node '" in lines[0], model.name, exporter, opset, lines[:8])
        print("%s%d nodes of ONNX, refused: %s%s" % (said, nodes, lines[0], "" if len(lines) == 1 else " and %d more" % (len(lines) - 1)))
        return
    check(model.refused is None, model.name, "was converted")
    mine, theirs = ask(ks, model, wide, session_of(path))
    print("%s%d nodes of ONNX, %d here, %d steps%s; from float64 %.1e, onnxruntime %.1e (export %.1f s, conversion %.1f s)" % (
        said, nodes, len(definition["nodes"]), entry["steps"], ", max_batch %s" % entry.get("max_batch") if entry.get("max_batch") else "", mine, theirs, exported - begun, converted - exported))


# --- rates -----------------------------------------------------------------------------------------------------------------------


def raced():
    """Of real sizes: (name, module, inputs)."""
    t = transformers
    yield "MiniLM 384 x 6, pooled", Sentence(t.BertModel(bert("sdpa", width=384, depth=6, heads=12, intermediate_size=1536, vocab_size=30522, max_position_embeddings=512), add_pooling_layer=False)), tokens, ((1, 32), (1, 128), (8, 128))
    yield "ViT 384 x 6, 224 x 224", Pixels(t.ViTForImageClassification(config(t.ViTConfig, width=384, depth=6, heads=6, intermediate_size=1536, image_size=224, patch_size=16)), "logits"), \
        lambda batch, length: {"pixel_values": RANDOM.standard_normal((batch, 3, 224, 224)).astype(np.float32)}, ((1, None), (4, None))
    yield "Llama 512 x 6", Text(t.LlamaForCausalLM(config(t.LlamaConfig, width=512, depth=6, heads=8, num_key_value_heads=2, intermediate_size=1408, vocab_size=8000)), "logits", use_cache=False), tokens, ((1, 32), (1, 128), (4, 128))


def account(ks, given):
    """The steps that take the most time, of profiled requests."""
    for _ in range(5):
        ks.infer("exported", parameters={"profile": 1}, **given)
    datatype = {"int64": "INT64", "float32": "FP32"}[str(next(iter(given.values())).dtype)]
    plan = ks.plan("exported", *(array.shape for array in given.values()), datatype=datatype)
    steps = [step for step in plan["steps"] if step["us"]]
    whole, kinds = sum(step["us"] for step in steps), {}
    for step in steps:
        kinds[step["op"]] = kinds.get(step["op"], 0.0) + step["us"]
    said = ", ".join("%s %.0f %%" % (op, 100 * us / whole) for op, us in sorted(kinds.items(), key=lambda item: -item[1])[:7])
    slow = sorted(steps, key=lambda step: -step["us"])[:4]
    print("  of %.2f ms in %d steps: %s; slowest: %s" % (whole / 1000, len(steps), said, ", ".join("%s (%s) %.2f ms" % (step["nodes"][-1], step["op"], step["us"] / 1000) for step in slow)))


def rates(ks, url):
    """One caller and onnxruntime's two threads; two callers of one thread each."""
    import rates as race

    race.TURN_S = 1.0
    with tempfile.TemporaryDirectory() as folder:
        for name, module, draw, sizes in raced():
            path, model = os.path.join(folder, "raced.onnx"), Model(name, None, draw, length=(8, 48) if sizes[0][1] else None)
            export(model, module.eval(), DYNAMO, 18, path)
            ks.load("exported", *convert(path))
            sessions = {threads: session_of(path, threads) for threads in (1, 2)}
            print(name)
            for batch, length in sizes:
                given = draw(batch, length)
                sides = {"one caller": [lambda _: sessions[2].run(None, given), lambda _: ks.infer("exported", **given)], "two callers": [lambda _: sessions[1].run(None, given), lambda _: ks.infer("exported", **given)]}
                said = []
                for callers, (theirs, ours) in sides.items():
                    race.THREADS = 1 if callers == "one caller" else 2
                    pairs = [(race.rate(theirs, None), race.rate(ours, None)) for _ in range(5)]
                    said.append("%s: onnxruntime %.1f, kernserve %.1f (ratio %.2f)" % (callers, *(float(np.median([pair[side] for pair in pairs])) for side in (0, 1)), float(np.median([b / a for a, b in pairs]))))
                print("  batch %d%s: %s" % (batch, ", length %d" % length if length else "", "; ".join(said)))
                account(ks, given)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("daemon")
    parser.add_argument("backend", nargs="?", default="cpu")
    parser.add_argument("--only", default="", metavar="NAME,..", help="of the models' names, or words of the pipelines'")
    parser.add_argument("--rates", action="store_true")
    parser.add_argument("--folder")
    given = parser.parse_args()
    torch.manual_seed(seed().getrandbits(31))
    torch.set_num_threads(2)
    torch.backends.mha.set_fastpath_enabled(False)  # whose one operator no exporter knows
    print("torch %s, transformers %s, onnxruntime %s" % (torch.__version__, transformers.__version__, onnxruntime.__version__))
    with tempfile.TemporaryDirectory() as made, Daemon(given.daemon, "--backend", given.backend, "--log-level", "warn") as daemon, kernserve.Client("http://127.0.0.1:%d" % daemon.port) as ks:
        if given.rates:
            rates(ks, "http://127.0.0.1:%d" % daemon.port)
            return wrongs() > 0
        for model in [*text_models(), *other_models()]:
            if given.only and model.name not in given.only.split(","):
                continue
            module, wide = model.make().eval(), model.make().eval()
            draw_constants(module)
            wide.load_state_dict(module.state_dict())
            wide.double()
            for exporter in model.exporters:
                for opset in model.opsets if exporter == LEGACY else [opset for opset in model.opsets if opset >= 18]:
                    one(ks, model, exporter, opset, os.path.join(given.folder or made, "%s-%s-%d.onnx" % (model.name, exporter, opset)), module, wide)
        sklearn_models(ks, [word for word in given.only.split(",") if word])
        check(daemon.stop() == 0, "the exit code")
    return wrongs() > 0


if __name__ == "__main__":
    sys.exit(main())
