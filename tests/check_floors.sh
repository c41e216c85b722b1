#!/usr/bin/env bash
# Includes point down, kernels know nothing of the server, each outside library has one door, and so has inline assembly.
# A file includes its own room's headers and those of lower floors. A file that no row of the table names is a fault: give it
# a room first. check_floors.sh [ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"

# floor, room, files (patterns; the first row that matches counts)
floors='
0.0 status     include/kernserve/status.h kernels/status.c
0.1 tensor     include/kernserve/tensor.h kernels/tensor.c
0.2 op         include/kernserve/op.h kernels/ops.def
0.3 backend    include/kernserve/backend.h
0.4 number     server/number*
0.4 clock      server/clock.*
0.4 text       server/text.*
0.5 log        server/log*
0.5 model      server/model.*
0.5 config     server/config* server/options.def
0.5 version    server/version.*
0.4 notify     server/notify.*
0.4 nvml       server/nvml.*
0.6 tokens     server/tokens.*
0.6 metrics    server/metrics*
1.0 vectorise  kernels/vectorise.h
1.1 convert    kernels/convert.*
1.1 warp       kernels/ptx.cuh kernels/warp.cuh kernels/launch.cuh
1.2 shapes     kernels/matmul_shape.h
1.2 matmul_ptx kernels/matmul_ptx*
1.25 onednn    kernels/onednn*
1.25 cublaslt  kernels/cublaslt.*
1.3 softmax    kernels/softmax*
1.3 reduce     kernels/reduce*
1.3 matmul     kernels/matmul*
1.4 ops        kernels/ops.c
2.0 backends   kernels/backend_*
2.1 choice     server/backends.*
3.0 plan       server/plan.*
3.1 engine     server/engine* server/budget.c server/sizes.* server/warm.* server/slot* server/graphs.* server/check.* server/queue.* server/stream* server/tune*
3.2 regions    server/regions*
3.5 daemon     server/daemon.h
4.0 inflate    server/inflate* server/deflate*
4.1 scan       server/scan*
4.2 oip        server/oip* server/answer* server/documents* server/words*
4.25 gate      server/gate* server/plain_head* server/chunks* server/routes*
4.27 openapi   server/openapi*
4.26 identity  server/identity*
4.27 compat    server/compat*
4.28 control   server/control*
4.3 infer      server/infer* server/timing.*
5.0 http       server/http* server/transport* server/conns* server/reply* server/pages*
6.0 shard      server/shard*
7.0 listen     server/listen*
7.0 admin      server/admin*
7.1 supervise  server/supervise*
7.1 watch      server/watch.*
7.05 settle    server/settle.*
7.1 commands   server/command*
7.15 selftest  server/selftest*
7.2 main       server/main*
'

# header (pattern), the files that may include it
doors='
microhttpd.h        server/http.c
*cJSON.h            server/oip_json.c server/oip_control.c server/oip_safetensors.c server/compat_read.c
zlib.h              server/inflate.c server/deflate.c
charconv            server/number.cc
oneapi/dnnl/*       kernels/onednn.c
cuda*.h             kernels/*.cu kernels/*.cuh
cublas*.h           kernels/cublaslt.cu
cuda/*              kernels/*.cu kernels/*.cuh
cub/*               kernels/*.cu kernels/*.cuh
'

faults=0
fault() {
    echo "$1"
    faults=$((faults + 1))
}

# place FILE: sets floor and room
declare -A known_floor known_room
place() {
    local row_floor row_room patterns pattern
    floor=${known_floor[$1]:-} room=${known_room[$1]:-}
    [ -z "$floor" ] || return 0
    while read -r row_floor row_room patterns; do
        for pattern in $patterns; do
            # shellcheck disable=SC2053  # the right side is a pattern on purpose
            if [[ $1 == $pattern ]]; then
                floor=$row_floor room=$row_room
                known_floor[$1]=$floor known_room[$1]=$room
                return 0
            fi
        done
    done <<<"$floors"
    return 1
}

# one of ours? prints the file that "#include "NAME"" in FILE means
resolve() {
    local folder
    for folder in "$(dirname "$1")" include server kernels; do
        if [ -e "$folder/$2" ]; then
            echo "$folder/$2"
            return 0
        fi
    done
    return 1
}

check_own() { # FILE HEADER-FILE
    local from_floor=$floor from_room=$room
    case $1:$2 in kernels/*:server/* | include/*:server/* | include/*:kernels/*.h)
        fault "$1 includes $2: kernels and borders know nothing of the server" ;;
    esac
    if ! place "$2"; then
        fault "$2 stands on no floor: give it a row in $0"
    elif [ "$room" != "$from_room" ] && awk "BEGIN { exit !($floor >= $from_floor) }"; then
        fault "$1 ($from_room, floor $from_floor) includes $2 ($room, floor $floor): includes point down"
    fi
    floor=$from_floor room=$from_room
}

check_library() { # FILE HEADER
    local pattern files file
    while read -r pattern files; do
        # shellcheck disable=SC2053
        if [ -n "$pattern" ] && [[ $2 == $pattern ]]; then
            for file in $files; do
                # shellcheck disable=SC2053
                [[ $1 == $file ]] && return 0
            done
            fault "$1 includes <$2>, whose one door is $files"
        fi
    done <<<"$doors"
}

while read -r file; do
    fault "$file has inline assembly, whose doors are kernels/*ptx*.cuh: tests/emulate has them in C++"
done < <(grep -lwE 'asm' kernels/*.cu kernels/*.cuh | grep -v 'ptx[^/]*$')

set -f # patterns are patterns, not file names
count=0
for file in $(find include server kernels -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.def' | sort); do
    count=$((count + 1))
    if ! place "$file"; then
        fault "$file stands on no floor: give it a row in $0"
        continue
    fi
    while read -r header; do
        if target=$(resolve "$file" "$header"); then
            check_own "$file" "$target"
        else
            check_library "$file" "$header"
        fi
    done < <(sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]([^">]+)[">].*/\1/p' "$file")
done
[ "$count" -gt 0 ] || fault "no source file was found"

# What tests/http/engine_traps.py says of the library and no test can show: the calls that lead there are not made.
traps='MHD_quiesce_daemon|MHD_set_connection_option|MHD_OPTION_THREAD_POOL_SIZE|MHD_USE_TURBO|MHD_USE_INTERNAL_POLLING_THREAD|MHD_run_from_select'
while read -r line; do
    fault "$line: one of the library's traps, see tests/http/engine_traps.py"
done < <(grep -nE "$traps|MHD_run_wait\(" server/http.c | grep -vE 'MHD_run_wait\(http->library, 0\)')
echo "$count files, $faults faults"
[ "$faults" -eq 0 ]
