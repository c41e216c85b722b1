#!/usr/bin/env bash
# An idle daemon on the CPU: less than 64 MiB resident above the pool of its slots, before and after work, and no processor
# time; what --version tells; the size of the metrics page.
. "$(dirname "$0")/daemon.sh"
resident() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB$/\1/p' "/proc/$pid/status"; }
ticks() { awk '{ print $14 + $15 }' "/proc/$pid/stat"; }
metric() { curl -s -m 5 "$admin/metrics" | sed -n "s/^$1 //p"; }

# A small pool, so that the bound is tight whether or not its pages have been touched.
start --backend cpu --threads 4 --pinned-bytes 16M
pool=$(($(metric 'kernserve_pinned_memory_bytes{state="free"}') / 1024))
[ "$pool" -le 16384 ] || fault "the pool has $pool kB, 16 MiB were asked for"
if grep -aq -e __asan_init -e __tsan_init "$kernserve"; then
    echo "skip: a sanitizer's own memory is not the daemon's"
    bound=0
else
    bound=$((65536 + pool))
fi
small() { # small NAME
    local now
    now=$(resident)
    echo "      $1: $now kB resident, of them at most $pool kB pool"
    [ "$bound" -eq 0 ] || [ "$now" -lt "$bound" ] || fault "$1: $now kB resident, the bound is $bound kB"
}
for _ in {1..200}; do # the device is measured once the daemon is ready, which takes memory for a moment
    [ -z "$(metric kernserve_ceiling_copy_bytes_per_second)" ] || break
    sleep 0.1
done
small "idle after the start"
for _ in 1 2 3 4 5 6 7 8 9 10; do # the start's own work, such as measuring the device, may end behind the answer that it is ready
    before=$(ticks)
    sleep 2
    spent=$(($(ticks) - before)) # of a second's hundredths
    [ "$spent" -gt 4 ] || break
done
[ "$spent" -le 4 ] || fault "idle: $spent ms x 10 of processor time in two seconds"
page=$(curl -s -m 5 "$url/metrics")
lines=$(printf '%s\n' "$page" | grep -vc '^#')
[ "$lines" -lt 1700 ] || fault "the metrics page has $lines series at the start"
[ "${#page}" -lt 163840 ] || fault "the metrics page has ${#page} bytes at the start"

version=$("$kernserve" --version)
has "--version: revision" '^revision [0-9a-zA-Z.+-]+$' "$version"
has "--version: CUDA" '^CUDA ([0-9]+\.[0-9]+|none)' "$version"
has "--version: oneDNN" '^oneDNN ([0-9]+\.[0-9]+\.[0-9]+|none)$' "$version"
has "--version: libmicrohttpd" '^libmicrohttpd [0-9]+\.[0-9]+\.[0-9]+$' "$version"
revision=$(printf '%s\n' "$version" | sed -n 's/^revision //p')
has "the metrics name the same revision" "^kernserve_build_info\{.*revision=\"$revision\".*\} 1$" "$page"

python3 -B - "$url" "$(dirname "$0")" <<'PYTHON'
import sys
sys.path.insert(0, sys.argv[2])
from daemon import Remote, request
target = Remote(sys.argv[1])
for _ in range(20):
    with target.connect() as connection:
        for rows in (1, 64, 4096):
            for _ in range(10):
                answer = connection.ask(request("POST", "/v2/models/softmax/infer?shape=%d,32&datatype=FP32" % rows, [], bytes(rows * 128)))
                assert answer.status == 200 and len(answer.body) == rows * 128, answer
PYTHON
want "600 requests" 0 $?
sleep 0.5
small "idle after work"
stop
