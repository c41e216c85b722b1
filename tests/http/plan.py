#!/usr/bin/env python3
"""What was picked for a piece of work can be asked: the plan document, its figures, and the refusals that it shares with POST.

plan.py KERNSERVE [OPTION...]   options go to the daemon
"""

import json
import re
import sys

from daemon import Daemon, check, chunked, metric, request, settle, wrongs

MEMBERS = ["model_name", "model_version", "backend", "inputs", "outputs", "parameters", "kernel", "grid", "threads", "cluster", "shared_bytes",
           "path", "batch_max", "bytes", "flops", "intensity", "ceilings", "bound", "roofline_us", "measured", "achieved", "occupancy",
           "waves", "tuned"]
CEILINGS = ["copy_gbs", "read_gbs", "h2d_gbs", "d2h_gbs", "launch_us", "tflops"]

# model, query, the output's datatype and shape, bytes of inputs and output
GOOD = [
    ("softmax", "shape=4", "FP32", [4], 32),
    ("softmax", "shape=64,1024&datatype=BF16&axis=0&log=true&scale=0.5", "BF16", [64, 1024], 262144),
    ("softmax_fp16", "shape=2,3", "FP16", [2, 3], 24),
    ("softmax_vec", "shape=5", "FP32", [5], 40),
    ("softmax", "shape=0,4", "FP32", [0, 4], 0),
    ("softmax", "shape=4,6&shape=6&datatype=FP16&datatype=BOOL", "FP16", [4, 6], 102),
    ("softmax", "shape=4,6&datatype=FP16&causal=top_left&masked_rows=zero&out_datatype=FP32", "FP32", [4, 6], 144),
    ("softmax_causal_bf16", "shape=2,4,8", "BF16", [2, 4, 8], 256),
    ("softmax_masked", "shape=4,6&shape=4,1", "FP32", [4, 6], 208),
    ("softmax_lengths", "shape=4,6&shape=4", "FP32", [4, 6], 208),
    ("softmax", "shape=3,4,6&shape=3&input=INPUT0&input=INPUT2&datatype=BF16&datatype=INT64", "BF16", [3, 4, 6], 312),
    ("softmax", "shape=6,4&shape=4&shape=6&datatype=FP16&datatype=BOOL&datatype=INT32&causal=top_left", "FP16", [6, 4], 124),
    ("reduce", "shape=2,3,4&op=argmax&axis=1&keepdims=1", "INT64", [2, 1, 4], 160),
    ("reduce", "shape=3,5&datatype=UINT8&op=mean&axis=all", "FP64", [], 23),
    ("reduce_max", "shape=6,11&timeout=1", "FP32", [6], 288),
    ("reduce", "shape=6,11&datatype=INT16&op=var&ddof=1", "FP64", [6], 180),
    ("reduce", "shape=6,11&op=norm&p=-inf", "FP32", [6], 288),
    ("reduce", "shape=6,11&datatype=BOOL&op=sum&axis=all", "INT64", [], 74),
    ("reduce", "shape=6,11&datatype=BF16&op=count_nonzero&axis=0", "INT64", [11], 220),
    ("reduce_all", "shape=6,11", "BOOL", [6], 270),
    ("reduce_segments", "shape=6,11&shape=5", "FP32", [6, 4], 380),
    ("reduce", "shape=6,11&shape=3&datatype=BF16&datatype=INT64&op=argmax&axis=0", "INT64", [2, 11], 332),
    ("matmul", "shape=64,128&shape=128,256", "FP32", [64, 256], 229376),
    ("matmul", "shape=6,40&shape=40,3&datatype=INT8", "INT32", [6, 3], 432),
    ("matmul", "shape=2,6,40&shape=3,40&shape=2,6&shape=1&input=INPUT0&input=INPUT1&input=INPUT3&input=INPUT4&transpose_b=1"
     "&datatype=FP8E4M3&datatype=FP8E5M2&datatype=FP32&datatype=FP32&out_datatype=BF16", "BF16", [2, 6, 3], 724),
    ("matmul", "shape=2,3&shape=3,5&shape=2,5&input=INPUT0&input=INPUT1&input=INPUT5", "FP32", [2, 5], 164),
    ("matmul_tb", "shape=2%2C3&shape=4,3&alpha=2", "FP32", [2, 4], 104),
    ("norm", "shape=4,8&kind=rms&activation=silu", "FP32", [4, 8], 256),
    ("norm_rms_w_fp16", "shape=4,8&shape=8", "FP16", [4, 8], 144),
    ("map", "shape=4,5&op=gelu", "FP32", [4, 5], 160),
    ("map", "shape=3,1&shape=1,5&datatype=INT16&op=lt", "BOOL", [3, 5], 31),
    ("map", "shape=8&datatype=BF16&out_datatype=INT8", "INT8", [8], 24),
    ("map_add", "shape=6,11&shape=11", "FP32", [6, 11], 572),
    ("topk_10", "shape=4,32", "FP32", [4, 10], 992),
    ("topk", "shape=5,7&k=2&axis=0&largest=false&index_datatype=INT32", "FP32", [2, 7], 252),
    ("scan_sum", "shape=6,11", "FP32", [6, 11], 528),
    ("scan", "shape=3,5&datatype=UINT8&op=prod&axis=0&exclusive=true&reverse=1", "INT64", [3, 5], 135),
    ("scan", "shape=2,0&op=max", "FP32", [2, 0], 0),
    ("histogram", "shape=6,11&bins=10&min=0&max=2.5&axis=1", "INT64", [6, 10], 744),
    ("histogram_256", "shape=100&datatype=UINT8", "INT64", [256], 2148),
    ("quantize", "shape=6,11&scale_per=row", "INT8", [6, 11], 354),
    ("quantize_fp8_bf16", "shape=6,11", "FP8E4M3", [6, 11], 202),
    ("quantize", "shape=6,11&shape=11&scale_per=column&out_datatype=FP8E5M2&datatype=FP16&datatype=FP32", "FP8E5M2", [6, 11], 286),
    ("dequantize", "shape=6,11&shape=1&datatype=INT8&datatype=FP32", "FP32", [6, 11], 334),
    ("gather", "shape=100,8&shape=3", "FP32", [3, 8], 300),  # slices of 32 bytes, of which memory moves 64
    ("gather", "shape=9,2,100&shape=4&datatype=BF16&datatype=INT64&axis=1", "BF16", [9, 4, 100], 10832),
    ("gather_bag", "shape=100,16&shape=7&shape=4", "FP32", [3, 16], 684),
    ("layout", "shape=2,3,4&axes=2,0,-2", "FP32", [4, 2, 3], 192),
    ("layout_transpose", "shape=6,11", "FP32", [11, 6], 528),
    ("layout", "shape=100,64&datatype=INT8&op=slice&starts=-1,0&sizes=5,-1&steps=-20,1", "INT8", [5, 64], 640),
    ("layout", "shape=100,64&op=slice&axis=-1&starts=-2&ends=64", "FP32", [100, 2], 7200),
    ("layout", "shape=3,5&op=pad&before=1,0&after=1,2&mode=edge", "FP32", [5, 7], 200),
    ("layout_concat", "shape=3,5&shape=3,2&datatype=BF16&axis=1", "BF16", [3, 7], 84),
    ("layout", "shape=3,4&op=reshape&new_shape=0,2,-1", "FP32", [3, 2, 2], 96),
    ("layout", "shape=6,4&op=split&parts=3&part=-1", "FP32", [2, 4], 128),
    ("layout", "shape=4&op=expand&new_shape=3,4", "FP32", [3, 4], 64),
    ("layout", "shape=2,3&datatype=INT8&op=tile&repeats=2,1", "INT8", [4, 3], 18),
    ("layout", "shape=1&op=reshape&new_shape=", "FP32", [], 8),
    ("attention", "shape=2,8,1,64&shape=2,2,100,64&shape=2,2,100,32&datatype=FP16", "FP16", [2, 8, 1, 32], 79872),
    ("attention_causal_bf16", "shape=5,4,16&shape=9,2,16&shape=9,2,16&layout=bshd", "BF16", [5, 4, 16], 2432),
    ("search", "shape=3,40&shape=500,40&k=7", "FP32", [3, 7], 80732),
    ("search_10", "shape=3,40&shape=500,40&datatype=BF16&metric=cosine", "FP32", [3, 10], 40600),
    ("search", "shape=1,8&shape=20,8&shape=20&input=INPUT0&input=INPUT1&input=INPUT3&datatype=FP16&datatype=FP16&datatype=BOOL", "FP32", [1, 1], 368),
    ("window", "shape=1,128,64&size=5", "FP32", [1, 124, 320], 191488),
    ("window", "shape=100,32&size=1&stride=10", "FP32", [10, 32], 2560),  # of the input the elements under windows
    ("window_3x3", "shape=1,8,5,7&layout=nchw&auto_pad=same_upper&datatype=FP16", "FP16", [1, 5, 7, 72], 5600),
    ("window_3", "shape=4,9,2&pad=1&stride=2&datatype=FP32", "FP32", [4, 5, 6], 768),
]

# model, query, status, code: a plain raw request with that query is refused in the same words
BAD = [
    ("softmax", "", 400, "name"),
    ("softmax", "datatype=FP32", 400, "name"),
    ("matmul", "shape=2,2", 400, "name"),
    ("softmax", "shape=2&shape=2&shape=2&shape=2", 400, "name"),
    ("softmax", "shape=2,-2", 400, "shape"),
    ("softmax", "shape=4294967296,4294967296", 400, "shape"),
    ("matmul", "shape=2,3&shape=4,5", 400, "shape"),
    ("matmul", "shape=2,3&shape=3,5&datatype=FP8E5M2", 400, "datatype"),
    ("matmul", "shape=2,131072&shape=131072,5&datatype=INT8", 400, "shape"),
    ("matmul", "shape=2,3&shape=3,5&out_datatype=INT32", 400, "parameter"),
    ("matmul", "shape=2,3&shape=3,5&datatype=INT8&alpha=2&out_datatype=INT32", 400, "parameter"),
    ("map", "shape=2,3&shape=4,3&op=add", 400, "shape"),
    ("map", "shape=2,3&op=axpy", 400, "name"),
    ("map", "shape=2,3&op=clamp&a=2&b=1", 400, "parameter"),
    ("softmax", "shape=4&datatype=INT32", 400, "datatype"),
    ("softmax", "shape=4&datatype=FP32&datatype=FP32", 400, "datatype"),
    ("softmax", "shape=4&axis=1", 400, "axis"),
    ("softmax", "shape=4&causal=top_left", 400, "axis"),
    ("softmax", "shape=4,4&causal=above", 400, "parameter"),
    ("softmax", "shape=2,3&shape=2,2", 400, "shape"),
    ("softmax", "shape=2,3&shape=3&datatype=FP16&datatype=FP64", 400, "datatype"),
    ("softmax_lengths", "shape=2,3&shape=3", 400, "shape"),
    ("softmax_lengths", "shape=2,3&shape=2&axis=0", 400, "shape"),
    ("softmax_lengths", "shape=2,3&shape=2&datatype=FP32", 400, "datatype"),
    ("reduce_max", "shape=6,11&unknown=1", 400, "parameter"),
    ("softmax", "shape=4&axsi=0", 400, "parameter"),
    ("softmax", "shape=4&axis=%zz", 400, "parameter"),
    ("reduce", "shape=4&op=median", 400, "parameter"),
    ("reduce_max", "shape=4&op=sum", 400, "parameter"),
    ("reduce", "shape=3,0&op=max", 400, "empty"),
    ("reduce_segments", "shape=3,4&shape=3&axis=all", 400, "axis"),
    ("reduce_segments", "shape=3,4&shape=3,1", 400, "shape"),
    ("reduce_segments", "shape=3,4&shape=0", 400, "shape"),
    ("reduce_segments", "shape=3,4&shape=3&datatype=FP32", 400, "datatype"),
    ("reduce", "shape=3,0&op=norm&p=inf", 400, "empty"),
    ("reduce", "shape=3,4&op=norm&p=-1", 400, "parameter"),
    ("reduce", "shape=3,4&op=var&ddof=inf", 400, "parameter"),
    ("reduce", "shape=3,4&datatype=BOOL&op=max", 400, "datatype"),
    ("norm", "shape=2,4&shape=3", 400, "shape"),
    ("norm", "shape=2,4&axis=0", 400, "axis"),
    ("norm", "shape=2,0", 400, "empty"),
    ("topk", "shape=2,4&k=5", 400, "parameter"),
    ("topk", "shape=2,4&axis=2", 400, "axis"),
    ("topk", "shape=2,0", 400, "empty"),
    ("topk_10", "shape=2,4", 400, "parameter"),
    ("attention", "shape=2,4&shape=2,4", 400, "name"),
    ("attention", "shape=2,4&shape=6,5&shape=6,4", 400, "shape"),
    ("attention", "shape=2,4&shape=6,4&shape=6,4&window=2", 400, "parameter"),
    ("attention", "shape=2,4&shape=6,4&shape=6,4&datatype=FP64", 400, "datatype"),
    ("search", "shape=2,4", 400, "name"),
    ("search", "shape=2,4&shape=6,5", 400, "shape"),
    ("search", "shape=2,4&shape=0,4", 400, "empty"),
    ("search", "shape=2,4&shape=6,4&k=7", 400, "parameter"),
    ("search_10", "shape=2,4&shape=6,4", 400, "parameter"),
    ("search", "shape=2,4&shape=6,4&datatype=FP64", 400, "datatype"),
    ("scan", "shape=2,4&axis=-3", 400, "axis"),
    ("scan", "shape=2,4&op=mean", 400, "parameter"),
    ("histogram", "shape=2,4", 400, "parameter"),
    ("histogram", "shape=2,4&min=0&max=1&bins=0", 400, "parameter"),
    ("histogram", "shape=2,4&min=0&max=1&axis=0", 400, "axis"),
    ("quantize", "shape=2,4&datatype=FP64", 400, "datatype"),
    ("quantize", "shape=2,4&shape=2", 400, "shape"),
    ("quantize", "shape=2,4&scale_per=block", 400, "parameter"),
    ("dequantize", "shape=2,4&datatype=INT8", 400, "name"),
    ("dequantize", "shape=2,4&shape=2&scale_per=column&datatype=INT8&datatype=FP32", 400, "shape"),
    ("gather", "shape=5,6&shape=3&axis=2", 400, "axis"),
    ("gather", "shape=5,6&shape=3&kind=elements", 400, "shape"),
    ("gather", "shape=5,6&shape=3&datatype=FP32", 400, "datatype"),
    ("gather", "shape=5,6&shape=3&op=mean", 400, "name"),
    ("layout", "shape=5,6&axes=0", 400, "axis"),
    ("layout", "shape=5,6&axes=0,", 400, "axis"),
    ("layout", "shape=5,6&op=slice&starts=6,0", 400, "range"),
    ("layout", "shape=5,6&op=slice&starts=1,2,3,4,5,6,7,8,9", 400, "parameter"),
    ("layout", "shape=5,6&op=reshape&new_shape=7", 400, "shape"),
    ("layout", "shape=0,6&op=pad&before=1,0&mode=edge", 400, "empty"),
    ("layout_concat", "shape=5,6&shape=3&axis=0", 400, "shape"),
    ("window", "shape=5,6", 400, "parameter"),
    ("window", "shape=5,6&size=6", 400, "shape"),
    ("window", "shape=5,6&size=2&stride=0", 400, "parameter"),
    ("window_3", "shape=5,6&size=2", 400, "parameter"),
    ("softmax", "shape=2000000", 413, "body_size"),
    ("matmul", "shape=1000,1&shape=1,1000", 413, "work"),
    ("matmul", "shape=500,400&shape=400,500", 413, "work"),
]
LIMITS = ("--max-body", "4M", "--max-output", "2M", "--max-work", "100000000")


def plan(target, model, query):
    answer = target.get("/v2/models/%s/plan?%s" % (model, query))
    check(answer.status == 200 and answer.header("content-type") == "application/json", model, query, answer)
    return json.loads(answer.body)


def still(got):
    """What does not change while the daemon gets to know its device."""
    return {**got, "ceilings": 0, "bound": 0, "roofline_us": 0}


def good(daemon):
    for model, query, datatype, shape, size in GOOD:
        got = plan(daemon, model, query)
        check(list(got) == MEMBERS, query, list(got))
        check(got["model_name"] == model and got["model_version"] == "1", query, got)
        names = ["INPUT0", "INPUT2"] if model == "softmax_lengths" else re.findall("input=(INPUT.)", query) or ["INPUT0", "INPUT1", "INPUT2"]
        check([t["name"] for t in got["inputs"]] == names[:("&" + query).count("&shape=")], query, got["inputs"])
        check(got["outputs"][0] == {"name": "OUTPUT0", "datatype": datatype, "shape": shape}, query, got["outputs"])
        check(len(got["outputs"]) == 1 + model.startswith(("topk", "search", "quantize")), query, got["outputs"])
        check(got["bytes"] == size, query, got["bytes"])
        # work of no bytes is answered without a launch: its grid may be empty
        launched = (got["grid"], got["threads"], got["cluster"]) if size else (1,)
        check(got["kernel"] and min(*launched, got["batch_max"]) >= 1, query, got)
        check(list(got["ceilings"]) == [*CEILINGS, "cache_bytes"], query, got["ceilings"])
        check(all((got["ceilings"][name]["value"] is None) == (got["ceilings"][name]["source"] is None) for name in CEILINGS), query, got["ceilings"])
        check(got["intensity"] == (float("%.6g" % (got["flops"] / size)) if size and got["flops"] else None), query, got["intensity"])
        if got["backend"] == "cuda" and size:
            of = got["occupancy"]
            check(1 <= of["ctas"] <= min(n for n in of["ctas_by"].values() if n) and of["warps"] <= of["warps_max"] and of["limit"], query, of)
            check(got["waves"]["number"] >= 1 and 0 < got["waves"]["last"] <= 1, query, got["waves"])
        else:
            check(got["occupancy"] is None and got["waves"] is None, query, got)
        check(set(got["achieved"].values()) == {None}, query, got["achieved"])
        check(got["tuned"] is None, query, got["tuned"])
        check(got["measured"]["runs"] == 0 and got["measured"]["us"] is None, query, got)
        check(still(plan(daemon, model + "/versions/1", query)) == still(got), query, "differs for version 1")
    check(plan(daemon, "reduce", "shape=3,5,2&op=max&axis=0,-1")["parameters"] == {"op": "max", "axis": "0,2", "keepdims": False, "ddof": 0, "p": None}, "parameters")
    check(plan(daemon, "map", "shape=3&op=clamp&b=2")["parameters"] == {"op": "clamp", "a": None, "b": 2, "out_datatype": "FP32"}, "open side")


def bad(daemon):
    for model, query, status, code in BAD:
        got = daemon.get("/v2/models/%s/plan?%s" % (model, query))
        check(got.status == status and got.header("kernserve-error") == code, query, got)
        if "shape=" in query:  # without it the body would be JSON
            with daemon.connect() as connection:
                asked = connection.ask(chunked("POST", "/v2/models/%s/infer?%s" % (model, query)))
            check((got.status, got.body) == (asked.status, asked.body), query, got, "but POST", asked)


def http(daemon):
    target = "/v2/models/softmax/plan?shape=4"
    with daemon.connect() as connection:
        head = connection.ask(request("HEAD", target), "HEAD")
        full = connection.ask(request("GET", target))
        check(head.status == 200 and head.header("content-length") == str(len(full.body)), "HEAD", head.headers)
        posted = connection.ask(request("POST", target))
        check(posted.status == 405 and posted.header("allow") == "GET, HEAD", "POST", posted, posted.headers)
        unknown = connection.ask(request("GET", "/v2/models/nope/plan?shape=4"))
        check(unknown.status == 404 and unknown.header("kernserve-error") == "model", "unknown model", unknown)
    text = daemon.metrics()
    check(metric(text, "kernserve_http_requests_total", handler="model_plan", code="200") >= 2, "no handler label")
    check(metric(text, "kernserve_http_requests_total", handler="model_plan", code="405") == 1, "405 not counted")


def measured(daemon, model, query, size, path):
    """Each job that ran is in the figures, and what was picked stays."""
    before = plan(daemon, model, query)
    if before["backend"] == "cuda":
        check(before["path"] == path, query, before["path"], "instead of", path)
    else:
        check(before["path"] == "mapped", query, before["path"])
    runs = 3
    with daemon.connect(60) as connection:
        for _ in range(runs):
            check(connection.ask(request("POST", "/v2/models/%s/infer?%s" % (model, query), (), bytes(size))).status == 200, query)
    after = plan(daemon, model, query)
    figures = after["measured"]
    check(figures["runs"] == runs and figures["us"] > 0, query, figures)
    check(figures["of"] == ("kernels and link" if path == "mapped" and after["backend"] == "cuda" else "kernels"), query, figures)
    check(abs(after["achieved"]["gbs"] - after["bytes"] / figures["us"] / 1e3) <= 1e-4 * after["achieved"]["gbs"], query, after)
    check({**still(before), "measured": 0, "achieved": 0} == {**still(after), "measured": 0, "achieved": 0}, query, before, after)
    print("%s?%s on %s: %s, %s, %s" % (model, query, after["backend"], after["kernel"], after["path"], figures))


def main():
    path, options = sys.argv[1], sys.argv[2:]
    with Daemon(path, "--threads", "1", "--pinned-bytes", "64M", *LIMITS, *options) as daemon:
        good(daemon)
        bad(daemon)
        http(daemon)
        check(settle(daemon) == 0, "pinned memory is in use")
        check(daemon.stop() == 0, "the daemon's end")
    with Daemon(path, "--threads", "1", "--mapped-max", "64k", *options) as daemon:
        measured(daemon, "softmax", "shape=4,1024", 16384, "mapped")
        measured(daemon, "reduce", "shape=512,1024&op=logsumexp", 2 << 20, "copies")
        measured(daemon, "reduce", "shape=3,1000000&op=sum", 12 * 10 ** 6, "streamed")  # in one launch
        measured(daemon, "softmax", "shape=3000,1000", 12 * 10 ** 6, "streamed")  # in blocks of rows
        check(daemon.stop() == 0, "the daemon's end")
    print("%d good, %d bad, %d wrong" % (len(GOOD), len(BAD), wrongs()))
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
