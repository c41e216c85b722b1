#!/usr/bin/env bash
# Requests per second and latency of kernserve beside a bare epoll echo of the same bodies, in one run on one machine.
#
#   tests/bench/bench_http.sh [--path KERNSERVE | --url URL] [--seconds N] [--threads N] [--connections "1 8 64"]
#                             [--shapes "1,256 1,1024 64,1024"] [--forms "raw binary json"] [-- KERNSERVE-OPTION...]
#
# --path     the daemon to start on free ports (default build/kernserve); --url takes one that runs, on this or another host
# --threads  load generator threads (default 2). The echo has one thread: its column is a yardstick, not a competitor.
# Rows       one for each form, shape and number of connections; ratio = requests/s over the echo's with equal body and load.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
path=$root/build/kernserve url= seconds=3 threads=2 connections="1 8 64" shapes="1,256 1,1024 64,1024" forms="raw binary json"
while [ $# -gt 0 ]; do
    case $1 in
    --path) path=$2 && shift ;;
    --url) url=$2 && shift ;;
    --seconds) seconds=$2 && shift ;;
    --threads) threads=$2 && shift ;;
    --connections) connections=$2 && shift ;;
    --shapes) shapes=$2 && shift ;;
    --forms) forms=$2 && shift ;;
    --) shift && break ;;
    *) echo "unknown option: $1 (see the head of $0)" >&2 && exit 64 ;;
    esac
    shift
done
command -v wrk >/dev/null || { echo "wrk is not installed" >&2 && exit 69; }
work=$(mktemp -d)
daemon= echo=
finish() {
    [ -z "$echo" ] || kill "$echo" 2>/dev/null || true
    [ -z "$daemon" ] || { kill "$daemon" 2>/dev/null && wait "$daemon" || true; }
    rm -rf "$work"
}
trap finish EXIT

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

${CC:-cc} -std=gnu17 -D_GNU_SOURCE -O2 -o "$work/bare_echo" "$here/bare_echo.c"
if [ -z "$url" ]; then
    port=$(free_port) other=$(free_port)
    url=http://127.0.0.1:$port
    "$path" --listen "127.0.0.1:$port" --admin-listen "127.0.0.1:$other" "$@" 2>"$work/log" &
    daemon=$!
    until curl -fs -m 2 -o "$work/ready" "$url/v2/health/ready"; do
        kill -0 "$daemon" || { cat "$work/log" >&2 && exit 1; }
        sleep 0.1
    done
fi

# load URL CONNECTIONS SCRIPT ARGUMENT...: the line of JSON that the script prints
load() {
    local target=$1 c=$2 script=$3 t=$threads
    shift 3
    [ "$t" -le "$c" ] || t=$c
    wrk -t"$t" -c"$c" -d"${seconds}s" --timeout 30s -s "$root/tests/load/$script.lua" "$target" -- "$@" | grep '^{'
}
field() { sed -E "s/.*\"$1\":([0-9.]+).*/\1/" <<<"$2"; }

device=$(curl -s "$url/metrics" | sed -nE 's/^kernserve_device_info\{(.*)\} .*/\1/p' | head -n 1)
echo "device: ${device:-unknown}; load: wrk, $threads threads, $seconds s a cell; body: FP32 rows for softmax"
printf '%-7s %-12s %10s %5s %12s %9s %9s %7s %12s %7s\n' form shape bytes conn requests/s p50_us p99_us errors echo/s ratio
for shape in $shapes; do
    bytes=$((4 * ${shape//,/*}))
    for c in $connections; do
        port=$(free_port)
        "$work/bare_echo" "$port" "$bytes" &
        echo=$!
        sleep 0.2
        line=$(load "http://127.0.0.1:$port" "$c" echo "$bytes")
        kill "$echo" && wait "$echo" 2>/dev/null || true
        echo=
        yardstick=$(field rate "$line")
        for form in $forms; do
            line=$(load "$url" "$c" "$form" softmax "$shape")
            rate=$(field rate "$line")
            printf '%-7s %-12s %10d %5d %12.0f %9.0f %9.0f %7d %12.0f %7s\n' "$form" "$shape" "$bytes" "$c" "$rate" \
                "$(field p50_us "$line")" "$(field p99_us "$line")" "$(field errors "$line")" "$yardstick" \
                "$(awk "BEGIN { printf \"%.2f\", $rate / $yardstick }")"
        done
    done
done
