"""What the Python client's types say, for mypy --strict alone: an operation gives an Array, and with store= a Tensor."""
import numpy as np

import kernserve


def results(ks: kernserve.Client, x: np.ndarray) -> None:
    plain: kernserve.Array = ks.softmax(x, axis=0, timeout=1.0)
    with ks.tensor(x, ttl=60) as weight:
        product: kernserve.Array = ks.matmul(x, weight, transpose_b=True)
        kept: kernserve.Tensor = ks.matmul(x, weight, store="h", ttl=60)
    summed: kernserve.Array = ks.reduce(kept, "sum", axis=(0, 1), out=plain)
    normed: kernserve.Array = ks.norm(summed, weight, kind="rms", eps=1e-6)
    both: tuple[kernserve.Array, kernserve.Array] = ks.norm(x, residual=normed, sum_out=True)
    first: tuple[kernserve.Tensor, kernserve.Tensor] = ks.topk(ks.map("gelu", both[1], store="g"), 3, store=("v", "i"))
    nearest: tuple[kernserve.Array, kernserve.Array] = ks.search(x, weight, 3, metric="cosine")
    assert nearest[1].ndim == 2
    attended: kernserve.Array = ks.attention(x, weight, weight, causal="top_left", window=3)
    with_sums: tuple[kernserve.Array, kernserve.Array] = ks.attention(x, attended, attended, lse=True)
    assert with_sums[1].ndim == 1
    running: kernserve.Array = ks.scan(x, "max", axis=0, exclusive=True)
    summed = ks.reduce(running) if running.ndim > 1 else running
    counts: kernserve.Array = ks.histogram(running, 10, min=0, max=1)
    with_edges: tuple[kernserve.Array, kernserve.Array] = ks.histogram(running, 10, min=0, max=1, edges=True)
    assert counts.shape == with_edges[0].shape
    rows: kernserve.Array = ks.gather(weight, [0, 2], axis=1, mode="wrap")
    bags: kernserve.Tensor = ks.gather(rows, [0, 2, 1], [0, 3], op="mean", store="bags")
    heads: kernserve.Array = ks.layout("transpose", rows, axes=(1, 0))
    joined: kernserve.Tensor = ks.layout("concat", heads, bags, axis=1, store="joined")
    joined.delete()
    taps: kernserve.Array = ks.window(heads, 2, stride=[1], auto_pad="same_upper")
    apart: kernserve.Tensor = ks.window(taps, (2,), store="apart")
    apart.delete()
    seconds = product.timing.total if product.timing else None
    assert seconds is None or seconds > 0, summed
    values: kernserve.Array = kept.numpy()
    names: list[str] = [tensor.name for tensor in ks.tensors("bert.")]
    ks.put("w", values, only_new=True).delete()
    ks.infer("softmax", INPUT0=first[0], store={"OUTPUT0": names[0]})
    bags.delete()


def wrong(ks: kernserve.Client, x: np.ndarray) -> None:
    ks.softmax(x, axis="0")  # type: ignore[call-overload]
    a: kernserve.Array = ks.softmax(x, store="h")  # type: ignore[assignment]
    b: kernserve.Array = ks.topk(x, 3)  # type: ignore[assignment]
    c: kernserve.Tensor = ks.gather(x, [0])  # type: ignore[assignment]
    del a, b, c
