#!/usr/bin/env bash
# What a device's faults do to clients and to the process: kernserve_faulty, whose backend fails on demand (on a host with a
# GPU it wraps the CUDA backend), and kernserve itself, which must not contain the switch.
. "$(dirname "$0")/daemon.sh"
here=$(dirname "$0")
if LC_ALL=C grep -aq -e 'KS_FAULT' -e 'injected: ' "$kernserve"; then fault "the test switch is in $kernserve"; else echo "ok    no test switch in the daemon"; fi

faulty=$(dirname "$kernserve")/tests/kernserve_faulty
if [ ! -x "$faulty" ]; then
    echo "skip: $faulty is not built"
    [ "$wrong" -eq 0 ] && exit 77
    exit 1
fi
if ! LC_ALL=C grep -aq 'KS_FAULT' "$faulty"; then fault "the search for the switch finds nothing where it is"; fi
kernserve=$faulty

# --- at full load: all know within a second, no result is trusted any more, and the process leaves with 70
for threads in 1 2; do
    python3 -B "$here/fault_load.py" "$faulty" sticky --threads $threads
    want "sticky fault under load, $threads shards" 0 $?
    python3 -B "$here/fault_load.py" "$faulty" hang --stall-timeout 500ms --threads $threads
    want "work that hangs, $threads shards" 0 $?
done

# --- one failed call is one failed request
good='{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,2],"data":[1,1]}]}'
infer() { ask -d "${1:-$good}" "$url/v2/models/softmax/infer"; }
metric() { curl -s -m 5 "$admin/metrics" | sed -n "s/^$1 //p"; }

start --threads 1
first=$(metric kernserve_launches_total)
stop
for call in launch poll; do
    KS_FAULT=$call:$((first + 3)):oom start --threads 1
    infer >/dev/null && want "$call, out of memory: before it" 200 "$(status)"
    infer >/dev/null && want "$call, out of memory: still before it" 200 "$(status)"
    body=$(infer)
    want "$call, out of memory: that request" 503 "$(status)"
    has "$call, out of memory: its code" '^[Kk]ernserve-[Ee]rror: memory$' "$(headers)"
    has "$call, out of memory: when to try again" '^[Rr]etry-[Aa]fter: [0-9]+$' "$(headers)"
    has "$call, out of memory: its text" '"error":"[^"]+"' "$body"
    for _ in 1 2 3; do
        has "$call, out of memory: right again" '"data":\[0.5,0.5\]' "$(infer)"
    done
    want "$call, out of memory: ready" 200 "$(curl -s -m 5 -o /dev/null -w '%{http_code}' "$url/v2/health/ready")"
    want "$call, out of memory: no device fault" 0 "$(metric 'kernserve_device_faults_total{.*}')"
    stop
done

# --- a device that is found bad while the daemon drains: still 70, and nobody waits for it
KS_FAULT=launch:$((first + 1)):hang start --threads 1 --stall-timeout 2s
(infer >"$work/hung") &
asked=$!
wait_for sh -c "curl -s -m 5 $admin/metrics | grep -q '^kernserve_launches_total $((first + 1))$'"
kill -TERM "$pid"
gone "a fault during the drain" 70
wait "$asked"
has "a fault during the drain: what hung was answered" '"error"' "$(cat "$work/hung")"

# --- at start: no daemon serves before every operation's known answer was right
refuses() { # refuses NAME FAULT CODE... : it leaves with one of the codes and says why
    local name=$1 fault=$2 code=0 port other
    shift 2
    read -r port other <<<"$(free_ports)"
    KS_FAULT=$fault timeout 30 "$kernserve" --threads 1 --stall-timeout 500ms --listen "127.0.0.1:$port" \
        --admin-listen "127.0.0.1:$other" ${backend:+--backend $backend} >"$work/out" 2>"$work/log" || code=$?
    case " $* " in *" $code "*) echo "ok    $name: exit code" ;; *) fault "$name: exit code $code instead of $*: $(cat "$work/log")" ;; esac
    has "$name: says why" 'cannot start' "$(cat "$work/log")"
    lacks "$name: no sanitizer report" '(Sanitizer|runtime error):' "$(cat "$work/log")"
}
backend=cpu
if nvidia-smi >/dev/null 2>&1; then backend=cuda; fi
refuses "slot, out of memory" slot_init:1:oom 71
refuses "later slot, out of memory" slot_init:3:oom 71
refuses "lane, out of memory" lane_open:1:oom 71
refuses "lane, device lost" lane_open:1:sticky 69
refuses "known-answer test, wrong bytes" launch:1:garbage 69
refuses "known-answer test of a later operation, wrong bytes" poll:$first:garbage 69
refuses "known-answer test hangs" launch:2:hang 69
refuses "known-answer test, device lost" launch:2:sticky 69
refuses "device does not open" open:1:sticky 69 71
