#!/usr/bin/env bash
# Many clients at once, fast, slow and vanishing ones, all get their own answer.
. "$(dirname "$0")/daemon.sh"
start --threads 2
connections() { curl -s -m 5 "$admin/metrics" | sed -n 's/^kernserve_http_connections //p'; }
before=$(connections)
python3 "$(dirname "$0")/many.py" "$url"
want "64 connections with their own values" 0 $?
if command -v wrk >/dev/null; then
    scripts=$(dirname "$0")/../load
    loads=()
    load() { # SCRIPT CONNECTIONS WORD...: in the background
        wrk -t1 -c"$2" -d2s --timeout 20s -s "$scripts/$1.lua" "$url" -- "${@:3}" >"$work/$1" &
        loads+=($!)
    }
    load raw 64 softmax 1,256 FP32
    load binary 4 matmul 8,16x16,8 BF16 activation=relu
    load json 4 reduce 4,8 INT32 op=max axis=0
    load mix 4
    wait "${loads[@]}"
    for script in raw binary json mix; do
        has "wrk, $script.lua: no error at all" '"errors":0' "$(cat "$work/$script")"
        lacks "wrk, $script.lua: something was answered" '"requests":0,' "$(cat "$work/$script")"
    done
else
    echo "skip  wrk is not installed"
fi
settled() { [ "$(connections)" = "$before" ]; }
wait_for settled
want "all connections are gone afterwards" "$before" "$(connections)"
stop
