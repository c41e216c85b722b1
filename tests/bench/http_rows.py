"""The rows of bench_http.py, and what is wanted of some of them."""
import collections

from sides import elements

# connections: of all load generator threads together. where: the backend that it is for, cpu, gpu or both.
# quick: the sides beside the bare server; full: those that a full run adds. Works of which something is wanted come
# first.
Work = collections.namedtuple("Work", "model shapes connections where quick full")
# of: the Work's first three. figure: of that side, such as rate/bare. sign, bound: what it has to be.
Wanted = collections.namedtuple("Wanted", "where name of side figure sign bound")

FORMS, MOST = ("raw", "binary", "json"), ("raw", "binary", "json", "peer")
WORKS = [
    Work("softmax", ("1,256",), 1, "cpu", ("raw",), ()),
    Work("softmax", ("1,256",), 16, "cpu", ("raw", "binary", "json", "peer"), ("peer json",)),
    Work("softmax", ("1,1024",), 128, "both", ("raw", "binary", "json", "peer"), ("peer json",)),
    Work("softmax", ("1,1024",), 1, "both", ("raw",), ("binary", "json", "peer")),
    Work("softmax", ("1,262144",), 16, "both", ("raw",), ("binary", "json", "peer", "peer json")),
    Work("softmax", ("4096,1024",), 8, "both", ("raw",), ("binary", "json", "peer")),
    Work("softmax", ("1,64",), 128, "both", (), MOST),
    Work("softmax", ("1,1024",), 16, "both", (), MOST),
    Work("softmax", ("1,1024",), 1024, "both", (), FORMS),
    Work("softmax", ("1,16384",), 128, "both", (), MOST + ("peer json",)),
    Work("softmax", ("16384,1024",), 4, "both", (), ("raw", "binary")),
    Work("reduce", ("1,1024",), 128, "both", (), MOST),
    Work("reduce", ("256,1024",), 16, "both", (), ("raw", "binary", "peer")),
    Work("matmul", ("32,32", "32,32"), 128, "both", (), MOST),
    Work("matmul", ("512,512", "512,512"), 16, "both", (), ("raw", "binary", "peer")),
]


def row(count, connections):
    return "softmax", ("1,%d" % count,), connections


ROW, ROW_ALONE, ROW_1MIB, REQUEST_16MIB = row(1024, 128), row(1024, 1), row(262144, 16), ("softmax", ("4096,1024",), 8)
WANTED = [
    Wanted("gpu", "4 KiB rows, plain raw: of the bare batched server", ROW, "raw", "rate/bare", ">=", 0.75),
    Wanted("gpu", "the same: times the Python server", ROW, "raw", "rate/peer", ">=", 50),
    Wanted("gpu", "the same: p99 over p50", ROW, "raw", "p99_us/p50_us", "<=", 3),
    Wanted("gpu", "4 KiB rows, OIP binary: of the bare batched server", ROW, "binary", "rate/bare", ">=", 0.65),
    Wanted("gpu", "1024 numbers, OIP JSON: requests/s", ROW, "json", "rate", ">=", 100000),
    Wanted("gpu", "4 KiB rows, one connection: p50 over the bare one's", ROW_ALONE, "raw", "p50_us/bare", "<=", 1.25),
    Wanted("gpu", "1 MiB rows: of the bare loop's GB/s", ROW_1MIB, "raw", "rate/bare", ">=", 0.85),
    Wanted("gpu", "16 MiB: of an echo of the same bodies", REQUEST_16MIB, "raw", "rate/bare", ">=", 0.85),
    Wanted("cpu", "1 KiB rows, one connection: of the bare echo", row(256, 1), "raw", "rate/bare", ">=", 0.75),
    Wanted("cpu", "1 KiB rows, 16 connections: of the bare echo", row(256, 16), "raw", "rate/bare", ">=", 0.75),
]


def rows(where, quick):
    """The works of a run, each with its sides."""
    wanted = [w.of for w in WANTED if w.where == where]
    return [(work, ["bare", *work.quick, *(() if quick else work.full)]) for work in WORKS
            if work.where in (where, "both") and (work[:3] in wanted or not quick)]


def body_bytes(work):
    return 4 * sum(elements(shape) for shape in work.shapes)


def answer_bytes(work):
    dims = [[int(d) for d in shape.split(",")] for shape in work.shapes]
    if work.model == "matmul":
        return 4 * dims[0][0] * dims[1][1]
    return 4 * elements(work.shapes[0]) // (dims[0][-1] if work.model == "reduce" else 1)


def title(work):
    return "%s %s" % (work.model, " x ".join(work.shapes))
