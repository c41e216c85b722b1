#!/bin/sh
# softmax by curl, JSON in and out: curl.sh [URL]
curl -fsS -w '\n%header{server-timing}\n' -d '{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}' \
    "${1:-http://localhost:8000}/v2/models/softmax/infer"
