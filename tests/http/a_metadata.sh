#!/usr/bin/env bash
# Server and model metadata, configuration and statistics hold what the protocol's clients read unchecked.
. "$(dirname "$0")/daemon.sh"
start
json() { # json NAME EXPRESSION TEXT: the expression over d must be true
    python3 -c 'import json, sys; d = json.loads(sys.argv[2]); sys.exit(0 if eval(sys.argv[1]) else 1)' "$2" "$3" 2>/dev/null
    want "$1" 0 $?
}
compact() { # no space behind a colon or a comma outside strings: scripts grep for such texts
    lacks "$1 is compact" '[:,] ' "$2"
}

d=$(ask "$url/v2")
json "server: members" 'set(d) == {"name", "version", "extensions"} and d["name"] == "kernserve"' "$d"
json "server: extensions" '"binary_tensor_data" in d["extensions"] and all(isinstance(e, str) for e in d["extensions"])' "$d"
compact "server metadata" "$d"
want "server with a slash" 200 "$(curl -s -m 5 -o /dev/null -w '%{http_code}' "$url/v2/")"
want "the query is ignored" 200 "$(curl -s -m 5 -o /dev/null -w '%{http_code}' "$url/v2?test_1=1&test_2=2")"

for model in softmax reduce matmul softmax_fp16 matmul_bf16 reduce_max softmax_vec matmul_tb; do
    d=$(ask "$url/v2/models/$model")
    json "$model: metadata" 'd["name"] == "'$model'" and d["versions"] == ["1"] and all(set(t) == {"name", "datatype", "shape"} and t["shape"] for t in d["inputs"] + d["outputs"])' "$d"
    d=$(ask "$url/v2/models/$model/config")
    json "$model: config" 'd["name"] == "'$model'" and d["max_batch_size"] == 0 and d["input"] and d["output"]' "$d"
    want "$model: ready" '{"name":"'$model'","ready":true}' "$(ask "$url/v2/models/$model/ready")"
done
d=$(ask "$url/v2/models/softmax_fp16")
json "softmax_fp16: datatype" 'd["inputs"][0]["datatype"] == "FP16"' "$d"
d=$(ask "$url/v2/models/reduce_argmax")
json "reduce_argmax: output" 'd["outputs"][0]["datatype"] == "INT64"' "$d"

ask -d '{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,2],"data":[1,2]}]}' "$url/v2/models/softmax_fp64/infer" >/dev/null
ask -d '{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,2],"data":[1,2]}]}' "$url/v2/models/softmax/infer" >/dev/null
d=$(ask "$url/v2/models/softmax/stats")
json "stats: one entry, all counts" 'len(d["model_stats"]) == 1 and d["model_stats"][0]["inference_count"] == 1 and d["model_stats"][0]["version"] == "1" and all(d["model_stats"][0]["inference_stats"][k]["count"] == 1 for k in ("success", "queue", "compute_input", "compute_infer", "compute_output"))' "$d"
lacks "stats: no number with a point or an exponent" ':[0-9]+(\.|e)' "$d"
d=$(ask "$url/v2/models/stats")
json "stats of all: every model, an alias under its own name" '{"softmax", "softmax_fp64", "reduce", "matmul"} <= {m["name"] for m in d["model_stats"]}' "$d"
d=$(ask "$url/v2/models/softmax/versions/1/stats")
json "stats of version 1" 'd["model_stats"][0]["name"] == "softmax"' "$d"
stop
