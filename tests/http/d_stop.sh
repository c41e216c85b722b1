#!/usr/bin/env bash
# SIGTERM loses no accepted request, a second one stops at once with 75, and every way to fail has its exit code.
. "$(dirname "$0")/daemon.sh"
here=$(dirname "$0")

for round in 1 2 3; do
    start --threads 2
    python3 "$here/drain.py" "$url" "$pid"
    want "drain $round: every accepted request was answered" 0 $?
    gone "drain $round" 0
done

start
kill -INT "$pid"
gone "SIGINT drains too" 0

# serving on for a while: ready says no, requests are answered, and a second signal ends the wait
start --drain-delay 20s
kill -TERM "$pid"
wait_for sh -c "test \$(curl -s -m 5 -o /dev/null -w '%{http_code}' $admin/v2/health/ready) = 503"
want "draining: not ready" 503 "$(curl -s -m 5 -o /dev/null -w '%{http_code}' "$url/v2/health/ready")"
want "draining: live" 200 "$(curl -s -m 5 -o /dev/null -w '%{http_code}' "$url/v2/health/live")"
ask -d '{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,1],"data":[1]}]}' "$url/v2/models/softmax/infer" >/dev/null
want "draining: still serves during the delay" 200 "$(status)"
has "draining: announces the end" '^[Cc]onnection: close$' "$(headers)"
kill -TERM "$pid"
gone "a second SIGTERM" 75

ends() { # ends NAME CODE WORD-PATTERN OPTION...: exits within a second with one line on stderr
    local name=$1 want=$2 pattern=$3 code=0 begun took
    shift 3
    begun=$(date +%s%N)
    timeout 20 "$kernserve" "$@" >"$work/out" 2>"$work/said" || code=$?
    took=$((($(date +%s%N) - begun) / 1000000))
    want "$name: exit code" "$want" "$code"
    has "$name: says why" "$pattern" "$(cat "$work/said")"
    want "$name: lines on stderr" 1 "$(grep -c . "$work/said")"
    [ "$took" -lt "${KS_SLOW_MS:-3000}" ] || fault "$name: took $took ms"
}
read -r port other <<<"$(free_ports)"
free=(--listen "127.0.0.1:$port" --admin-listen "127.0.0.1:$other")
ends "unknown option" 64 "max-body" --max-bodi 5
ends "option without its value" 64 "listen" --listen
ends "size that is none" 64 "max-body" --max-body much
ends "limit of zero" 64 "queue" --queue 0
ends "no config file" 66 "no-such-file" --config "$work/no-such-file"
echo "max-bodi = 5" >"$work/bad.conf"
ends "unknown key in the file" 78 "max-bodi" --config "$work/bad.conf"
ends "beyond loopback without a token" 78 "allow-unauthenticated" --listen "0.0.0.0:$port" --admin-listen "127.0.0.1:$other"
if ! nvidia-smi >/dev/null 2>&1; then
    ends "no GPU, and one is demanded" 69 "." --backend cuda "${free[@]}"
fi
start
ends "port in use" 75 "in use" --listen "${url#http://}" --admin-listen "127.0.0.1:$other"
stop

"$kernserve" --help >"$work/out" 2>"$work/said"
want "--help: exit code" 0 $?
has "--help: on stdout" '--max-body' "$(cat "$work/out")"
for form in -h --help=all --help=max-body; do
    "$kernserve" "$form" >"$work/out" 2>"$work/said"
    want "$form: exit code" 0 $?
    has "$form: on stdout" '--max-body' "$(cat "$work/out")"
done
KERNSERVE_MAX_BODYY=1 "$kernserve" --check-config "${free[@]}" >"$work/out" 2>&1
want "an unknown variable: exit code" 0 $?
has "an unknown variable: the nearest" 'KERNSERVE_MAX_BODYY; the nearest is KERNSERVE_MAX_BODY$' "$(cat "$work/out")"
"$kernserve" --version >"$work/out"
want "--version: exit code" 0 $?
has "--version: says it" '[0-9]+\.[0-9]+\.[0-9]+' "$(cat "$work/out")"
"$kernserve" --check-config "${free[@]}" >"$work/out" 2>&1
want "--check-config: exit code" 0 $?
