#!/usr/bin/env bash
# --supervise: a small parent keeps the sockets, so that a daemon that dies is replaced and nobody is refused meanwhile; and
# sockets that systemd hands over in the same way.
. "$(dirname "$0")/daemon.sh"
here=$(dirname "$0")
good='{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,2],"data":[1,1]}]}'
child() { cat "/proc/$pid/task/$pid/children" 2>/dev/null | tr -d ' '; }
answers() { has "$1" '"data":\[0.5,0.5\]' "$(ask -d "$good" "$url/v2/models/softmax/infer")"; }
has_gone() { ! kill -0 "$1"; }
new_child() {
    local now
    now=$(child)
    [ -n "$now" ] && [ "$now" != "$1" ]
}

start --supervise --threads 1
answers "supervised"
threads=$(grep -c . < <(ls "/proc/$pid/task"))
want "the supervisor is one thread" 1 "$threads"
old=$(child)
kill -HUP "$pid"
wait_for grep -q 'configuration read again' "$work/log"
want "SIGHUP goes on to the daemon, which stays" "$old" "$(child)"
python3 -B "$here/fault_supervise.py" "$url" "$pid" 2
want "kill -9 under load, twice" 0 $?
has "it says that it starts again" 'started again.*exit=137' "$(cat "$work/log")"
answers "after two kills"
old=$(child)
kill -TERM "$pid"
gone "SIGTERM to the supervisor" 0
want "it takes the daemon with it" 1 "$(kill -0 "$old" 2>/dev/null; echo $?)"
has "the daemon drained" 'drained' "$(cat "$work/log")"

# what a restart does not heal is the operator's: five starts within a minute, and it says so
start --supervise --threads 1
for start in 1 2 3 4 5; do
    old=$(child)
    kill -KILL "$old"
    [ "$start" -lt 5 ] && wait_for new_child "$old"
done
gone "the start limit" 137
has "the start limit: one clear line" 'again and again; giving up.*exit=137.*starts=5.*seconds=60' "$(tail -n 1 "$work/log")"

# a supervisor that is killed leaves no daemon behind
start --supervise --threads 1
old=$(child)
kill -KILL "$pid"
gone "a killed supervisor" 137
wait_for has_gone "$old"
want "its daemon has gone" 1 "$(kill -0 "$old" 2>/dev/null; echo $?)"

# a mistake in the configuration is not tried again
code=0
timeout 60 "$kernserve" --supervise --listen "${url#http://}" --admin-listen "${admin#http://}" --token-file "$work/none" >"$work/out" 2>"$work/log" || code=$?
has "no token file: exit code" '^(66|77|78)$' "$code"
lacks "no token file: not tried again" 'started again' "$(cat "$work/log")"

# a lost device: 70, and a new daemon
faulty=$(dirname "$kernserve")/tests/kernserve_faulty
if [ -x "$faulty" ]; then
    kernserve=$faulty start --threads 1
    first=$(curl -s -m 5 "$admin/metrics" | sed -n 's/^kernserve_launches_total //p')
    stop
    export KS_FAULT=launch:$((first + 2)):sticky
    kernserve=$faulty start --supervise --threads 1
    unset KS_FAULT
    old=$(child)
    answers "before the fault"
    ask -d "$good" "$url/v2/models/softmax/infer" >/dev/null
    want "the fault" 503 "$(status)"
    wait_for new_child "$old"
    wait_for ready_or_gone
    answers "after the fault"
    has "the fault's exit code" 'started again.*exit=70' "$(cat "$work/log")"
    kill -TERM "$pid"
    gone "SIGTERM after the fault" 0
fi

# systemd's way: the socket is there first, and the first connection starts the daemon
if command -v systemd-socket-activate >/dev/null; then
    read -r port other <<<"$(free_ports)"
    url=http://127.0.0.1:$port admin=http://127.0.0.1:$other
    systemd-socket-activate -l "127.0.0.1:$port" -E ASAN_OPTIONS -E UBSAN_OPTIONS -E TSAN_OPTIONS "$kernserve" --threads 1 \
        --listen 127.0.0.1:1 --admin-listen "127.0.0.1:$other" >"$work/out" 2>"$work/log" &
    pid=$!
    wait_for grep -qi 'listening on' "$work/log"
    answers "a socket from systemd"
    kill -TERM "$pid"
    gone "a socket from systemd, SIGTERM" 0
else
    echo "skip: systemd-socket-activate is not installed"
fi
