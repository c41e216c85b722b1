#!/usr/bin/env bash
# A softmax request by curl is answered with its values, and the answer says where the time went.
. "$(dirname "$0")/daemon.sh"
start
body='{"id":"first","inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}'

answer=$(ask -d "$body" "$url/v2/models/softmax/infer")
want "JSON: status" 200 "$(status)"
has "JSON: id, model and version" '^\{"id":"first","model_name":"softmax","model_version":"1",' "$answer"
has "JSON: values" '"data":\[0\.03205860[0-9]*,0\.0871443[0-9]*,0\.2368828[0-9]*,0\.64391[0-9]*\]' "$answer"
has "JSON: content type" '^[Cc]ontent-[Tt]ype: application/json$' "$(headers)"
has "Server-Timing: total" '^[Ss]erver-[Tt]iming: .*total;dur=[0-9]+\.[0-9]{3}' "$(headers)"
has "Server-Timing: graph" 'graph;desc=(hit|miss|none)' "$(headers)"

# 1, 2, 3, 4 as little-endian floats, in the plain raw form
printf '\0\0\200\077\0\0\0\100\0\0\100\100\0\0\200\100' >"$work/x"
ask --data-binary "@$work/x" "$url/v2/models/softmax/infer?shape=1,4&datatype=FP32" >/dev/null 2>&1
want "plain raw: status" 200 "$(status)"
has "plain raw: shape" '^[Kk]ernserve-[Ss]hape: 1,4$' "$(headers)"
has "plain raw: datatype" '^[Kk]ernserve-[Dd]atatype: FP32$' "$(headers)"
want "plain raw: values" "0.0321 0.0871 0.2369 0.6439" "$(python3 -c '
import struct, sys
print(*("%.4f" % v for v in struct.unpack("<4f", open(sys.argv[1], "rb").read())))' "$work/body")"

answer=$(ask -d '{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2,2],"data":[1,2,3,4]}],"parameters":{"op":"max","axis":0}}' \
    "$url/v2/models/reduce/infer")
has "reduce: values" '"shape":\[2\],"data":\[3\.0,4\.0\]' "$answer"
answer=$(ask -d '{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,2],"data":[1,2]},{"name":"INPUT1","datatype":"FP32","shape":[2,1],"data":[3,4]}]}' \
    "$url/v2/models/matmul/infer")
has "matmul: values" '"shape":\[1,1\],"data":\[11\.0\]' "$answer"

# curl announces a body above 1 MiB and waits for 100 Continue
head -c 2097152 /dev/zero >"$work/zeros"
ask -H 'Expect: 100-continue' --data-binary "@$work/zeros" "$url/v2/models/reduce/infer?shape=524288&datatype=FP32&op=sum" >/dev/null
want "2 MiB behind 100-continue: status" 200 "$(status)"
want "2 MiB behind 100-continue: answer" "00000000" "$(od -An -tx1 "$work/body" | tr -d ' \n')"

answer=$(gzip -c <<<"$body" | ask -H 'Content-Encoding: gzip' --data-binary @- "$url/v2/models/softmax/infer")
has "gzip: values" '"data":\[0\.0320' "$answer"
answer=$(ask -H 'Transfer-Encoding: chunked' -d "$body" "$url/v2/models/softmax/infer")
has "chunked: values" '"data":\[0\.0320' "$answer"
answer=$(ask --http1.0 -d "$body" "$url/v2/models/softmax/infer")
has "HTTP/1.0: values" '"data":\[0\.0320' "$answer"
stop
