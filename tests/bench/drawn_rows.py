"""Rows for compare_torch.py that no table has: shapes drawn by a seed.

REGIMES: of softmax and reduce, those that once were weak. OPERATIONS: of each operation, sizes from some KB to some hundred MB by their
logarithm, lengths that are round and such that are not. Each function takes a random.Random and returns a row's texts as ops_rows.h has
them, but for the label."""

import random

BAG_INDICES = 16  # of an embedding_bag's bag, as ops_rows.c has it
BYTES = {"FP32": 4, "BF16": 2, "FP16": 2, "INT8": 1, "INT32": 4, "FP8E4M3": 1}
LEAST_BYTES, MOST_BYTES = 1 << 11, 256 << 20  # of an input


def text(*dims):
    return "x".join(str(d) for d in dims)


def row(op, dtype, first, second="", axis="", third="", to="", parameters=""):
    return {"op": op, "dtype": dtype, "first": first, "second": second, "axis": str(axis), "third": third, "to": to, "parameters": parameters}


# --- lengths and shapes -----------------------------------------------------------------------------------------------------


def between(rng, least, most):
    """By its logarithm; a third of them are odd, a third multiples of 8, the others powers of two."""
    n = int(least * (most / least) ** rng.random())
    kind = rng.randrange(3)
    n = n | 1 if kind == 0 else n // 8 * 8 if kind == 1 else 1 << n.bit_length() - 1
    return max(least, min(most, n))


def matrix(rng, dtype, columns_least, columns_most, most_bytes=MOST_BYTES, rows_least=1):
    """Columns of that many, and as many rows as a drawn size has."""
    columns = between(rng, columns_least, columns_most)
    rows_most = max(rows_least, most_bytes // BYTES[dtype] // columns)
    rows = between(rng, max(rows_least, min(rows_most, LEAST_BYTES // BYTES[dtype] // columns)), rows_most)
    return rows, columns


def solid(rng, dtype, rank, most_bytes=MOST_BYTES):
    """Axes whose product has a drawn size, of about equal logarithms."""
    elements = between(rng, LEAST_BYTES, most_bytes) // BYTES[dtype]
    shares = [0.3 + rng.random() for _ in range(rank)]
    dims = [max(1, round(elements ** (share / sum(shares)))) for share in shares]
    return [d // 8 * 8 if d > 16 and rng.random() < 0.5 else d for d in dims]


def float_of(rng):
    return rng.choice(("FP32", "BF16"))


# --- regimes that once were weak --------------------------------------------------------------------------------------------


def interleaved(rng):
    about = rng.randint(80, 118)
    dims = [about if rng.random() < 0.5 else rng.randint(80, 118) for _ in range(4)]
    return row(rng.choice(["sum", "max", "mean", "logsumexp"]), None, text(*dims), axis="0,2")


def tiny(rng):
    if rng.random() < 0.5:
        return row("softmax", None, text(rng.randint(1, 1000), rng.randint(3, 32)), axis=-1)
    return row(rng.choice(["sum", "max"]), None, text(rng.randint(2, 63)), axis=0)


def shallow_columns(rng):
    columns = rng.randint(80000, 140000)
    op = rng.choice(["sum", "max", "argmax", "logsumexp"])
    return row(op, None, text(rng.randint(200, 600), columns if rng.random() < 0.3 else columns // 8 * 8), axis=0)


def long_columns(rng):
    if rng.random() < 0.3:
        return row("softmax", None, text(rng.randint(2, 5), rng.randint(2500, 4500), rng.randint(300, 560) * 8), axis=1)
    side = rng.randint(4100, 11000)
    return row("softmax", None, text(side, side if rng.random() < 0.3 else side // 8 * 8), axis=0)


def unaligned_columns(rng):
    columns = 8 * (rng.randint(500, 1800) // 8 * 8 + rng.randint(1, 7))
    if rng.random() < 0.3:
        return row("softmax", "BF16", text(rng.randint(2000, 5500), 2 * columns), axis=0)
    return row(rng.choice(["sum", "max", "argmax", "logsumexp"]), "BF16", text(rng.randint(5000, 16000), columns), axis=0)


def four_and_huge(rng):
    if rng.random() < 0.5:
        op = rng.choice(["sum", "max", "argmax", "softmax"])
        return row(op, "BF16", text(rng.randint(9000000, 20000000), 4), axis=-1)
    return row("softmax", None, text(rng.randint(2, 9), rng.randint(2000000, 6400000)), axis=-1)


REGIMES = {"a": interleaved, "b": tiny, "c": shallow_columns, "d": long_columns, "e": unaligned_columns, "f": four_and_huge}


# --- operations -------------------------------------------------------------------------------------------------------------


def softmax(rng):
    dtype, kind = float_of(rng), rng.randrange(5)
    if kind == 0:
        rows, columns = matrix(rng, dtype, 16, 4096)
        return row("softmax_lengths", dtype, text(rows, columns), text(rows), parameters="axis=-1")
    if kind == 1:
        side = between(rng, 32, 4096)
        batch = between(rng, 1, max(1, min(1024, MOST_BYTES // BYTES[dtype] // side // side)))
        return row("softmax_causal", dtype, text(batch, side, side), axis=-1)
    dims = solid(rng, dtype, rng.randint(1, 4))
    return row("softmax", dtype, text(*dims), axis=rng.randrange(len(dims)))


def reduce(rng):
    dtype = float_of(rng)
    if rng.randrange(6) == 0:
        rows, columns = matrix(rng, dtype, 1, 2048)
        return row("sum_segments", dtype, text(rows, columns), text(between(rng, 2, max(2, rows)) + 1), parameters="axis=0")
    dims = solid(rng, dtype, rng.randint(1, 5))
    op = rng.choice(["sum", "max", "mean", "argmax", "logsumexp", "var", "std", "any", "all", "count_nonzero", "l1norm"])
    axes = sorted(rng.sample(range(len(dims)), 1 if op == "argmax" else rng.randint(1, len(dims))))
    return row(op, dtype, text(*dims), axis=",".join(str(a) for a in axes))


def norm(rng):
    dtype = float_of(rng)
    return row(rng.choice(["layer_norm", "rms_norm", "bias_layer_gelu", "add_rms_norm"]), dtype, text(*matrix(rng, dtype, 64, 65536)), axis=-1)


def map_(rng):
    op = rng.choice(["gelu", "gelu_tanh", "silu", "tanh", "exp", "relu", "add", "mul", "div", "where", "fma", "cast"])
    dtype = rng.choice(["FP32", "BF16", "FP16"] if op != "div" else ["FP32", "BF16"])  # quotients of normal numbers exceed FP16
    dims = solid(rng, dtype, rng.randint(1, 4), MOST_BYTES // 2)
    if op == "cast":
        return row(op, dtype, text(*dims), to=rng.choice([to for to in ("FP32", "BF16", "INT8") if to != dtype]))
    inputs = 3 if op in ("where", "fma") else 2 if op in ("add", "mul", "div") else 1
    others = [text(*(1 if rng.random() < 0.3 else d for d in dims)) for _ in range(inputs - 1)]
    return row(op, dtype, text(*dims), *(others + ["", ""])[:1], third=(others + ["", ""])[1])


def gather(rng):
    dtype, op = float_of(rng), rng.choice(["embedding", "index_select", "take_along", "embedding_bag"])
    if op == "index_select":
        dims = solid(rng, dtype, 3)
        axis = rng.randrange(3)
        return row(op, dtype, text(*dims), text(between(rng, 1, 2 * dims[axis])), axis=axis)
    rows, columns = matrix(rng, dtype, 2, 4096, rows_least=16)
    count = between(rng, 16, max(16, MOST_BYTES // BYTES[dtype] // columns))
    if op == "take_along":
        return row(op, dtype, text(rows, columns), text(rows, between(rng, 1, columns)), axis=1)
    return row(op, dtype, text(rows, columns), text(count // BAG_INDICES * BAG_INDICES if op == "embedding_bag" else count), axis=0)


def layout(rng):
    op, dtype = rng.choice(["transpose", "slice", "pad", "concat"]), rng.choice(["FP32", "BF16", "INT8"])
    dims = solid(rng, dtype, rng.randint(2, 4), MOST_BYTES // 2)
    axes = list(range(len(dims)))
    listed = lambda values: ",".join(str(v) for v in values)
    if op == "transpose":
        rng.shuffle(axes)
        return row(op, dtype, text(*dims), parameters="axes=" + listed(axes))
    if op == "slice":
        starts = [rng.randint(0, d // 2) if rng.random() < 0.5 else 0 for d in dims]
        sizes = [rng.randint(1, d - s) if rng.random() < 0.5 else d - s for d, s in zip(dims, starts)]
        return row(op, dtype, text(*dims), parameters="starts=%s sizes=%s" % (listed(starts), listed(sizes)))
    if op == "pad":
        before, after = ([rng.randint(0, 9) if rng.random() < 0.5 else 0 for _ in dims] for _ in range(2))
        return row(op, dtype, text(*dims), parameters="before=%s after=%s" % (listed(before), listed(after)))
    axis = rng.choice(axes)
    other = [between(rng, 1, 2 * d) if a == axis else d for a, d in enumerate(dims)]
    return row(op, dtype, text(*dims), text(*other), parameters="axis=%d" % axis)


def window(rng):
    dtype = rng.choice(["FP32", "BF16"])
    axes = rng.randint(1, 2)
    size = [rng.randint(2, 5) for _ in range(axes)]
    taps = size[0] if axes == 1 else size[0] * size[1]
    channels, batch = between(rng, 1, 256), between(rng, 1, 32)
    most = max(64, MOST_BYTES // BYTES[dtype] // taps // channels // batch)
    spatial = [max(8, round(between(rng, 64, most) ** (1 / axes))) for _ in range(axes)]
    parameters = "size=%s" % ",".join(str(n) for n in size)
    if rng.random() < 0.5:
        parameters += " pad=%s" % ",".join(str(rng.randint(0, n - 1)) for n in size)
    if rng.random() < 0.5:
        parameters += " stride=%s" % ",".join(str(rng.randint(1, 3)) for _ in size)
    return row("window", dtype, text(batch, *spatial, channels), parameters=parameters)


def topk(rng):
    dtype, k = float_of(rng), rng.choice([10, 50, 256, 2048])
    return row("topk_%d" % k, dtype, text(*matrix(rng, dtype, max(64, k), 1 << 20)), axis=-1)


def scan(rng):
    dtype = float_of(rng)
    dims = solid(rng, dtype, rng.randint(1, 3))
    return row(rng.choice(["cumsum", "cummax", "logcumsumexp"]), dtype, text(*dims), axis=rng.randrange(len(dims)))


def histogram(rng):
    dtype = float_of(rng)
    return row(rng.choice(["histc_256", "histc_10000"]), dtype, text(between(rng, 1000, MOST_BYTES // BYTES[dtype])), axis=0)


def quantize(rng):
    dtype = float_of(rng)
    return row(rng.choice(["quantize_tensor", "quantize_row", "quantize_column"]), dtype, text(*matrix(rng, dtype, 32, 65536)))


def dequantize(rng):
    per = rng.choice(["tensor", "row", "column"])
    rows, columns = matrix(rng, "INT8", 32, 65536)
    return row("deq_" + per, "INT8", text(rows, columns), text({"tensor": 1, "row": rows, "column": columns}[per]), to=rng.choice(["FP32", "BF16", "FP16"]))


def search(rng):
    dtype, k = rng.choice(["FP32", "BF16", "FP16"]), rng.choice([10, 128])
    depth = between(rng, 16, 1024)
    rows = between(rng, 1000, max(1000, (1 << 30) // BYTES[dtype] // depth))
    return row("search_%d" % k, dtype, text(between(rng, 1, 100), depth), text(rows, depth))


def attention(rng):
    dtype = rng.choice(["BF16", "BF16", "FP16", "FP32"])
    size = rng.choice([32, 64, 80, 96, 128, 128, 256])
    heads = rng.choice([4, 8, 12, 16, 32])
    shared = rng.choice([n for n in (1, 2, 4, 8) if heads % n == 0]) if rng.random() < 0.5 else 1
    keys = between(rng, 16, 8192 if dtype != "FP32" else 1024)
    queries = 1 if rng.random() < 0.3 else keys
    batch = between(rng, 1, max(1, min(32, (1 << 15) // keys)))
    op = "attn_causal" if queries > 1 and rng.random() < 0.4 else "attention"
    key = text(batch, heads // shared, keys, size)
    return row(op, dtype, text(batch, heads, queries, size), key, third=key)


def matmul8(rng):
    op = rng.choice(["int8_mm", "int8_mm_tb", "fp8_mm", "fp8_mm_tb", "fp8_fast", "fp8_fast_tb"])
    m, n, k = between(rng, 1, 4096), between(rng, 64, 8192), between(rng, 64, 8192)
    return row(op, "INT8" if op.startswith("int8") else "FP8E4M3", text(m, k), text(n, k) if op.endswith("_tb") else text(k, n))


OPERATIONS = {"softmax": softmax, "reduce": reduce, "norm": norm, "map": map_, "gather": gather, "layout": layout, "window": window, "topk": topk,
              "scan": scan, "histogram": histogram, "quantize": quantize, "dequantize": dequantize, "search": search, "attention": attention, "matmul8": matmul8}


def label_of(name, drawn):
    """As ops_rows.c makes a table's, behind the name of what it is drawn from."""
    others = "".join(", " + drawn[of] for of in ("second", "third") if drawn[of])
    ends = [drawn["parameters"], "axis " + drawn["axis"] if drawn["axis"] else "", "to " + drawn["to"] if drawn["to"] else ""]
    return " ".join([name, drawn["op"], drawn["dtype"], drawn["first"] + others, *filter(None, ends)])


def rows(functions, seed, each, fits=lambda drawn: True):
    """`each` rows of each function, with their labels; one that does not fit is drawn anew."""
    for name, draw in functions.items():
        rng, i = random.Random("%d %s" % (seed, name)), 0
        while i < each:
            drawn = draw(rng)
            drawn["dtype"] = drawn["dtype"] or ("BF16", "FP32")[i % 2]
            drawn["label"] = label_of(name, drawn)[:190]
            if fits(drawn):
                i += 1
                yield drawn
