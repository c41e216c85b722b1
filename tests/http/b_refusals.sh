#!/usr/bin/env bash
# What curl does wrong by itself is refused with the protocol's sentence, one member, and the code in a header.
. "$(dirname "$0")/daemon.sh"
start --max-body 4M
refused() { # refused NAME STATUS CODE SENTENCE-PATTERN CURL-ARGUMENT...
    local name=$1 code=$2 error=$3 pattern=$4 answer
    shift 4
    answer=$(ask "$@")
    want "$name: status" "$code" "$(status)"
    has "$name: sentence" "^\{\"error\":\"[^\"]*$pattern" "$answer"
    has "$name: code" "^[Kk]ernserve-[Ee]rror: $error\$" "$(headers)"
    has "$name: content type" '^[Cc]ontent-[Tt]ype: application/json$' "$(headers)"
}
softmax=$url/v2/models/softmax/infer
input() { echo '{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2,2],"data":'"$1"'}]}'; }

refused "unknown path" 404 path "Not Found" "$url/v2/nothing"
refused "wrong method" 405 method "Method Not Allowed" -X PUT -d x "$url/v2"
has "wrong method: Allow" '^[Aa]llow: .*GET' "$(headers)"
refused "unknown model" 404 model "Request for unknown model: 'nope' is not found" -d "$(input '[1,2,3,4]')" "$url/v2/models/nope/infer"
refused "unknown version" 404 model "Request for unknown model: 'softmax' version 7 is not found" "$url/v2/models/softmax/versions/7"
refused "statistics of an unknown model" 404 model "requested model 'nope' is not available" "$url/v2/models/nope/stats"
refused "syntax" 400 json "failed to parse the request JSON buffer" -d '{"inputs":' "$softmax"
refused "too few numbers" 400 count "shape does not match true shape" -d "$(input '[1,2,3]')" "$softmax"
refused "too many numbers" 400 count "Shape does not match true shape of 'data' field" -d "$(input '[1,2,3,4,5]')" "$softmax"
refused "missing input" 400 name "expected 2 inputs but got 1 inputs for model 'matmul'" -d "$(input '[1,2,3,4]')" "$url/v2/models/matmul/infer"
refused "half floats as JSON" 400 datatype "FP16 data via JSON is not supported" \
    -d '{"inputs":[{"name":"INPUT0","datatype":"FP16","shape":[1],"data":[1]}]}' "$softmax"
refused "header length is a word" 400 header_length "Unable to parse Inference-Header-Content-Length, got: seven" \
    -H 'Inference-Header-Content-Length: seven' -d "$(input '[1,2,3,4]')" "$softmax"
refused "header length beyond the body" 400 header_length "inference header size should be in range \(0, " \
    -H 'Inference-Header-Content-Length: 99999999999' -d "$(input '[1,2,3,4]')" "$softmax"
refused "foreign encoding" 415 encoding "Unsupported compression type" -H 'Content-Encoding: zstd' -d "$(input '[1,2,3,4]')" "$softmax"
has "foreign encoding: what is accepted" '^[Aa]ccept-[Ee]ncoding: gzip, deflate$' "$(headers)"
refused "foreign Host" 421 host "" -H 'Host: rebound.example' "$url/v2"
refused "foreign Origin" 403 origin "" -H 'Origin: https://page.example' "$url/v2"
lacks "foreign Origin: no CORS header" '^[Aa]ccess-[Cc]ontrol' "$(headers)"
head -c 5000000 /dev/zero >"$work/big"
refused "body over the limit" 413 body_size "" --data-binary "@$work/big" "$softmax?shape=1250000&datatype=FP32"
refused "client text is made printable" 404 model "Request for unknown model" "$url/v2/models/%01%7f%c3%28/infer" -d '{}'
lacks "client text is made printable: no raw byte" "$(printf '[\001\177]')" "$(cat "$work/body")"

# any content type is taken, none too
for type in application/x-www-form-urlencoded text/plain application/octet-stream ''; do
    ask -H "Content-Type: $type" -d "$(input '[1,2,3,4]')" "$softmax" >/dev/null
    want "Content-Type '$type' is not refused" 200 "$(status)"
done
stop
