#!/usr/bin/env bash
# Resident tensors by curl, with the requests and the answers of their specification, byte for byte: PUT, a link, GET, a list, use in
# each format, a result that stays, what is refused, a restart.   a_tensors.sh KERNSERVE [OPTION-OF-THE-DAEMON...]
. "$(dirname "$0")/daemon.sh"
options=("${@:2}")
here=$PWD
start "${options[@]}" --resident-bytes 64M
cd "$work" || exit 1
# BF16: ones
python3 -c 'import sys; sys.stdout.buffer.write(b"\x80\x3f" * 4096 * 4096)' >w.bf16
head -c 131072 w.bf16 >x.bf16
printf '\0\0\200\077\0\0\0\100' >vector # 1, 2 as FP32

field() { # field NAME: of the last answer
    headers | sed -n "s/^$1: //Ip"
}

tag_of() { # tag_of DATATYPE DIMENSIONS FILE: the ETag as its definition says
    python3 - "$@" <<'PYTHON'
import hashlib, sys
datatype, dims, data = sys.argv[1], sys.argv[2], open(sys.argv[3], "rb").read()
content = hashlib.sha256(b"".join(hashlib.sha256(data[at:at + (1 << 20)]).digest() for at in range(0, len(data), 1 << 20))).digest()
print(hashlib.sha256(("kernserve1\n%s\n%s\n" % (datatype, dims)).encode() + content).hexdigest())
PYTHON
}

entry() { # entry NAME DATATYPE SHAPE BYTES ETAG TTL USES
    printf '{"name":"%s","datatype":"%s","shape":[%s],"bytes":%s,"etag":"%s","ttl":%s,"expires_in":%s,"evictable":false,"read_only":false,"uses":%s,"held":0,"forms":[]}' \
        "$1" "$2" "$3" "$4" "$5" "$6" "$6" "$7"
}

all_of() { # all_of VALUE FILE: its bytes are that BF16 value, and nothing else
    python3 - "$@" <<'PYTHON'
import struct, sys
data = open(sys.argv[2], "rb").read()
want = struct.pack("<f", float(sys.argv[1]))[2:]
print("%d of %d" % (sum(data[at:at + 2] == want for at in range(0, len(data), 2)), len(data) // 2))
PYTHON
}

# --- PUT ---
tag=$(tag_of BF16 4096,4096 w.bf16)
answer=$(ask -T w.bf16 -H 'If-None-Match: *' "$url/v2/tensors/W?shape=4096,4096&datatype=BF16&ttl=3600")
want "PUT: status" 201 "$(status)"
want "PUT: Location" /v2/tensors/W "$(field location)"
want "PUT: ETag" "\"$tag\"" "$(field etag)"
want "PUT: Kernserve-Generation" 1 "$(field kernserve-generation)"
want "PUT: Content-Type" application/json "$(field content-type)"
want "PUT: the entry" "$(entry W BF16 4096,4096 33554432 "$tag" 3600 0)" "$answer"
ask -T w.bf16 -H 'If-None-Match: *' "$url/v2/tensors/W?shape=4096,4096&datatype=BF16&ttl=3600" >/dev/null
want "PUT where it is, If-None-Match: *" "412 precondition" "$(status) $(field kernserve-error)"
ask -T w.bf16 "$url/v2/tensors/W?shape=4096,4096&datatype=BF16&ttl=3600" >/dev/null
want "the same content again" "200 \"$tag\"" "$(status) $(field etag)"
ask -T vector -H 'Repr-Digest: sha-256=:ucgLWt7KRQdToWlQw8xlXScfe+96SFvIPxErcv7yHTc=:' "$url/v2/tensors/vector?shape=2&datatype=FP32" >/dev/null
want "the vector's ETag" '201 "db32fa6b2c39fd7f8d3d207fe13832e9468cceaaa52b4e59c6e425d7d5f15845"' "$(status) $(field etag)"
ask -T vector -H 'Repr-Digest: sha-256=:acgLWt7KRQdToWlQw8xlXScfe+96SFvIPxErcv7yHTc=:' "$url/v2/tensors/vector?shape=2&datatype=FP32" >/dev/null
want "another digest" "400 digest" "$(status) $(field kernserve-error)"
ask -T vector "$url/v2/tensors/vector?shpae=2&datatype=FP32" >/dev/null
want "a misspelt member" "400 parameter" "$(status) $(field kernserve-error)"

# --- a link by ETag, GET, HEAD, 304, DELETE, list ---
answer=$(ask -X PUT -H 'Content-Length: 0' "$url/v2/tensors/V?etag=$tag&ttl=60")
want "a link" "201 $(entry V BF16 4096,4096 33554432 "$tag" 60 0)" "$(status) $answer"
ask -X PUT -H 'Content-Length: 0' "$url/v2/tensors/U?etag=${tag//[0-9]/0}" >/dev/null
want "a link to what is not there" "404 content" "$(status) $(field kernserve-error)"
answer=$(ask "$url/v2/tensors?prefix=V&limit=1000")
want "a list" "200 {\"generation\":1,\"tensors\":[$(entry V BF16 4096,4096 33554432 "$tag" 60 0)],\"next\":null,\"bytes\":33554440,\"limit\":67108864}" \
    "$(status) $answer"
ask -X DELETE "$url/v2/tensors/V" >/dev/null
want "DELETE" 204 "$(status)"
ask "$url/v2/tensors/V" >/dev/null
want "GET of none" "404 tensor" "$(status) $(field kernserve-error)"
ask "$url/v2/tensors/W" >/dev/null
want "GET" "200 4096,4096 BF16 \"$tag\"" "$(status) $(field kernserve-shape) $(field kernserve-datatype) $(field etag)"
want "GET: the bytes" "" "$(cmp w.bf16 body 2>&1)"
ask -I "$url/v2/tensors/W" >/dev/null
want "HEAD" "200 33554432" "$(status) $(field content-length)"
ask -H "If-None-Match: \"$tag\"" "$url/v2/tensors/W" >/dev/null
want "If-None-Match of this content" 304 "$(status)"
answer=$(ask -H 'Accept: application/json' "$url/v2/tensors/W")
want "the entry: three GETs have used it, HEAD is no use" "$(entry W BF16 4096,4096 33554432 "$tag" 3600 3)" "$answer"

# --- a file of many ---
python3 - <<'PYTHON'
import json, struct
head = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [at, at + 4]} for at, name in ((0, "a"), (4, "b"))}).encode()
open("two.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + open("vector", "rb").read())
PYTHON
answer=$(ask -T two.safetensors -H 'Content-Type: application/x-safetensors' "$url/v2/tensors?prefix=bert.")
head -c 4 vector >a && tail -c 4 vector >b
want "PUT of a file" "201 {\"generation\":1,\"tensors\":[$(entry bert.a FP32 1 4 "$(tag_of FP32 1 a)" 3600 0),$(entry bert.b FP32 1 4 "$(tag_of FP32 1 b)" 3600 0)]}" \
    "$(status) $answer"

# --- no room ---
answer=$(ask -X PUT -T w.bf16 "$url/v2/tensors/more?shape=4096,4096&datatype=UINT16")
want "no room: status" "507 resident_full" "$(status) $(field kernserve-error)"
want "no room: the sentence" "{\"error\":\"tensor 'more' needs 33554432 bytes, 33554416 of 67108864 are free: delete one, put with evictable=1, or raise --resident-bytes\"}" "$answer"

# --- in a request ---
head='{"inputs":[{"name":"INPUT0","datatype":"BF16","shape":[16,4096],"parameters":{"binary_data_size":131072}},{"name":"INPUT1","parameters":{"tensor":"W"}}],"parameters":{"binary_data_output":true}}'
want "the JSON head's length" 194 "${#head}"
{ printf %s "$head" && cat x.bf16; } >binary
ask -H 'Inference-Header-Content-Length: 194' --data-binary @binary "$url/v2/models/matmul/infer" >/dev/null
want "JSON and bytes: status" 200 "$(status)"
tail -c 131072 body >product
want "JSON and bytes: the product" "65536 of 65536" "$(all_of 4096 product)"
ask --data-binary @x.bf16 "$url/v2/models/matmul/infer?shape=16,4096&INPUT1=@W" >/dev/null
want "raw: status, shape, datatype" "200 16,4096 BF16" "$(status) $(field kernserve-shape) $(field kernserve-datatype)"
want "raw: the product" "65536 of 65536" "$(all_of 4096 body)"
has "raw: of the family of joined rows" 'join;desc="1/16"' "$(field server-timing)"
ask --data-binary @x.bf16 "$url/v2/models/matmul/infer?shape=16,4096&input1=@W" >/dev/null
want "the input's name in the other case" "200 65536 of 65536" "$(status) $(all_of 4096 body)"
answer=$(ask "$url/v2/models/matmul/plan?shape=16,4096&INPUT1=@W")
has "/plan: the input is resident" '"name":"INPUT1","datatype":"BF16","shape":\[4096,4096\],"resident":true' "$answer"
has "/plan: the family's rows, and the bucket of these" '"join_rows":[0-9]+,"bucket":16,' "$answer"
ask -T x.bf16 "$url/v2/tensors/X?shape=16,4096&datatype=BF16" >/dev/null
ask -X POST "$url/v2/models/matmul/infer?INPUT0=@X&INPUT1=@W&OUTPUT0=@h&ttl=60" >/dev/null
want "all resident: status, body" "200 0" "$(status) $(stat -c %s body)"
want "all resident: fields" "16,4096 BF16 h" "$(field kernserve-shape) $(field kernserve-datatype) $(field kernserve-tensor)"
ask "$url/v2/tensors/h" >/dev/null
want "the product that stays" "200 65536 of 65536" "$(status) $(all_of 4096 body)"
has "its ETag is opaque" '^"g1-[0-9a-f]+"$' "$(field etag)"
answer=$(ask -d '{"inputs":[{"name":"INPUT0","parameters":{"tensor":"X"}},{"name":"INPUT1","parameters":{"tensor":"W"}}],"outputs":[{"name":"OUTPUT0","parameters":{"tensor":"h","ttl":60}}]}' \
    "$url/v2/models/matmul/infer")
want "JSON alone: status" 200 "$(status)"
has "JSON alone: the output has name, datatype and shape" '"outputs":\[\{"name":"OUTPUT0","datatype":"BF16","shape":\[16,4096\]\}\]' "$answer"
region='{"inputs":[{"name":"INPUT0","datatype":"BF16","shape":[16,4096],"parameters":{"shared_memory_region":"tensor:X","shared_memory_byte_size":131072}},{"name":"INPUT1","datatype":"BF16","shape":[4096,4096],"parameters":{"shared_memory_region":"tensor:W","shared_memory_byte_size":33554432}}],"outputs":[{"name":"OUTPUT0","parameters":{"shared_memory_region":"tensor:r","shared_memory_byte_size":131072}}]}'
ask -d "$region" "$url/v2/models/matmul/infer" >/dev/null
want "regions tensor:X, tensor:W, tensor:r" 200 "$(status)"
ask "$url/v2/tensors/r" >/dev/null
want "the region's product" "200 65536 of 65536" "$(status) $(all_of 4096 body)"
ask -d "${region/\"shared_memory_byte_size\":131072/\"shared_memory_byte_size\":131072,\"shared_memory_offset\":2}" "$url/v2/models/matmul/infer" >/dev/null
want "a region of a tensor has no offset" 400 "$(status)"
ask -d '{"key":"/x","offset":0,"byte_size":16}' "$url/v2/systemsharedmemory/region/tensor:W/register" >/dev/null
has "nor can it be registered" '^(400|501)$' "$(status)"
ask --data-binary @x.bf16 "$url/v2/models/matmul/infer?shape=16,4096&INPUT1=@none" >/dev/null
want "an input that names no tensor" "404 tensor" "$(status) $(field kernserve-error)"

# --- figures ---
answer=$(curl -s "$admin/metrics")
has "metrics: PUTs by outcome" '^kernserve_resident_puts_total\{outcome="created"\} [1-9]' "$answer"
has "metrics: time of PUTs" '^kernserve_resident_put_duration_seconds_count [1-9]' "$answer"
has "metrics: look-ups" '^kernserve_resident_lookups_total\{result="hit"\} [1-9]' "$answer"
for name in W X h r vector bert.a bert.b; do
    ask -X DELETE "$url/v2/tensors/$name" >/dev/null
    want "DELETE of $name" 204 "$(status)"
done
want "nothing is left" '{"generation":1,"tensors":[],"next":null,"bytes":0,"limit":67108864}' "$(ask "$url/v2/tensors")"
stop

# --- a restart ---
cd "$here" || exit 1
start "${options[@]}" --resident-bytes 64M --supervise
ask -T "$work/vector" "$url/v2/tensors/W?shape=2&datatype=FP32" >/dev/null
want "before the restart" "201 1" "$(status) $(field kernserve-generation)"
kill -KILL "$(cat "/proc/$pid/task/$pid/children")"
wait_for curl -fsS -m 5 "$url/v2/health/ready" || fault "no new worker is ready"
answer=$(ask -X POST "$url/v2/models/softmax/infer?INPUT0=@W")
want "a lost tensor" "410 lost {\"error\":\"tensor 'W' was lost when the worker was restarted (generation 1, now 2): put it again\"}" "$(status) $(field kernserve-error) $answer"
has "the list says so" '"name":"W",.*"lost":true' "$(ask "$url/v2/tensors")"
ask -T "$work/vector" "$url/v2/tensors/W?shape=2&datatype=FP32" >/dev/null
want "put again" "201 2" "$(status) $(field kernserve-generation)"
stop
