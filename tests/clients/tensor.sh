#!/bin/sh
# A weight that is uploaded once and used by its name, by curl: tensor.sh [URL]
url=${1:-http://localhost:8000}
# the floats 1 2 3 4, little-endian
printf '\0\0\200\077\0\0\0\100\0\0\100\100\0\0\200\100' |
    curl -fsS -X PUT --data-binary @- -o /dev/null "$url/v2/tensors/W?shape=2,2&datatype=FP32&ttl=600" &&
    curl -fsS -w '\n%header{server-timing}\n' "$url/v2/models/matmul/infer" \
        -d '{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,2],"data":[5,6]},{"name":"INPUT1","parameters":{"tensor":"W"}}]}' &&
    curl -fsS -X DELETE "$url/v2/tensors/W"
