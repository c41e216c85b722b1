# shellcheck shell=bash
# To be sourced by the curl scripts: `start [OPTION...]` runs kernserve on two free loopback ports and sets url, admin and
# pid; `stop` ends it by SIGTERM and demands exit code 0 and an empty pinned pool. `want`, `has` and `lacks` judge; the
# script's exit code is the number of wrong answers, at most 1.
set -u
unset "${!KERNSERVE_@}" # options, or warnings of a daemon that knows no such option: a test says itself what it wants
kernserve=${1:?usage: $0 KERNSERVE}
work=$(mktemp -d)
wrong=0
pid=

finish() {
    local code=$?
    [ -n "$pid" ] && kill -KILL "$pid" 2>/dev/null
    if [ "$wrong" -ne 0 ] && [ -s "$work/log" ]; then sed 's/^/daemon: /' "$work/log" | tail -n 20; fi
    rm -rf "$work"
    [ "$wrong" -eq 0 ] || code=1
    exit "$code"
}
trap finish EXIT

fault() {
    echo "WRONG $*"
    wrong=$((wrong + 1))
}

# want NAME EXPECTED GOT
want() {
    if [ "$2" = "$3" ]; then echo "ok    $1"; else fault "$1: '$3' instead of '$2'"; fi
}

# has NAME PATTERN TEXT, lacks NAME PATTERN TEXT: extended regular expressions
has() {
    if printf '%s\n' "$3" | grep -Eq -- "$2"; then echo "ok    $1"; else fault "$1: no '$2' in: $(printf '%s' "$3" | head -c 600)"; fi
}

lacks() {
    if printf '%s\n' "$3" | grep -Eq -- "$2"; then fault "$1: '$2' in: $(printf '%s' "$3" | head -c 600)"; else echo "ok    $1"; fi
}

free_ports() { # two of them
    python3 -B "$(dirname "${BASH_SOURCE[0]}")/ports.py" 2
}

# launch OPTION...: starts without waiting
launch() {
    local port other
    read -r port other <<<"$(free_ports)"
    url=http://127.0.0.1:$port
    admin=http://127.0.0.1:$other
    "$kernserve" --listen "127.0.0.1:$port" --admin-listen "127.0.0.1:$other" "$@" >"$work/out" 2>"$work/log" &
    pid=$!
}

# wait_for COMMAND...: until it succeeds, at most 60 s
wait_for() {
    local tries=600
    while ! "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.1
    done
}

start() {
    launch "$@"
    if ! wait_for ready_or_gone || ! kill -0 "$pid" 2>/dev/null; then
        fault "the daemon did not start: $(cat "$work/log")"
        exit 1
    fi
}

ready_or_gone() {
    curl -fsS -m 5 "$url/v2/health/ready" || ! kill -0 "$pid"
}

# gone NAME CODE: waits for the daemon's end and demands that exit code and a log without a sanitizer's report
gone() {
    local code=0
    wait "$pid" || code=$?
    pid=
    want "$1: exit code" "$2" "$code"
    lacks "$1: no sanitizer report" "(Sanitizer|runtime error):" "$(cat "$work/log")"
}

pool_used() {
    curl -s -m 5 "$admin/metrics" | sed -n 's/^kernserve_pinned_memory_bytes{.*state="used".*} //p'
}

pool_empty() {
    case $(pool_used) in 0 | 0.0) true ;; *) false ;; esac
}

stop() {
    local tries=300
    until pool_empty || [ "$tries" -eq 0 ]; do
        tries=$((tries - 1))
        sleep 0.1
    done
    pool_empty || fault "the pinned pool is not empty at the end: '$(pool_used)' bytes"
    kill -TERM "$pid"
    gone "SIGTERM" 0
}

# ask CURL-ARGUMENT...: the body; the status goes to $work/status, the headers to $work/headers
ask() {
    curl -s -m 120 -D "$work/headers" -o "$work/body" -w '%{http_code}' "$@" >"$work/status"
    cat "$work/body" 2>/dev/null
}

status() {
    cat "$work/status"
}

headers() {
    tr -d '\r' <"$work/headers"
}
