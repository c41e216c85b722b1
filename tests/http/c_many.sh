#!/usr/bin/env bash
# Many clients at once, fast, slow and vanishing ones, all get their own answer.
. "$(dirname "$0")/daemon.sh"
start --threads 2
connections() { curl -s -m 5 "$admin/metrics" | sed -n 's/^kernserve_http_connections //p'; }
before=$(connections)
python3 "$(dirname "$0")/many.py" "$url"
want "64 connections with their own values" 0 $?
if command -v wrk >/dev/null; then
    report=$(wrk -t2 -c64 -d2s -s "$(dirname "$0")/../load/raw.lua" "$url" -- softmax 1,256 FP32)
    has "wrk: no error at all" '"errors":0' "$report"
    lacks "wrk: something was answered" '"requests":0,' "$report"
else
    echo "skip  wrk is not installed"
fi
settled() { [ "$(connections)" = "$before" ]; }
wait_for settled
want "all connections are gone afterwards" "$before" "$(connections)"
stop
