#!/usr/bin/env bash
# Installs what is missing, builds kernserve, starts it in the foreground and shows a first request. Ctrl-C ends it.
#
#   ./deploy/quickstart.sh [--check] [-- KERNSERVE-OPTION...]
#
# --check  ends the daemon after the first answer; exit code 0 when the answer is right
# Debian 12 or Ubuntu 24.04, as root or with sudo, with or without a GPU. Once the packages are there it needs no network.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build
check=no
while [ $# -gt 0 ]; do
    case $1 in
    --check) check=yes ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0" && exit 0 ;;
    --) shift && break ;;
    *) echo "unknown option: $1 (kernserve's own options go behind --)" >&2 && exit 64 ;;
    esac
    shift
done

# The addresses that kernserve will listen on: its presets, unless its options say otherwise.
data=127.0.0.1:8000 admin=127.0.0.1:8002 previous=
for option in "$@"; do
    case $previous in
    --listen) data=$option ;;
    --admin-listen) admin=$option ;;
    esac
    case $option in
    --listen=*) data=${option#*=} ;;
    --admin-listen=*) admin=${option#*=} ;;
    esac
    previous=$option
done
url=http://$data

for address in "$data" "$admin"; do
    host=${address%:*} port=${address##*:}
    if [ "$host" != unix ] && (exec 3<>"/dev/tcp/$host/$port") 2>/dev/null; then
        echo "$address is taken by another program. Choose other ports, for instance:" >&2
        echo "  $0 -- --listen 127.0.0.1:8080 --admin-listen 127.0.0.1:8082" >&2
        exit 75
    fi
done

# shellcheck source=deploy/packages.sh
. "$root/deploy/packages.sh"
need_build
install_needed

log=$(mktemp)
echo "building in $build"
build() { # on a terminal ninja's own line says how far it is
    configure_release "$root" >"$log" 2>&1 || return
    if [ -t 1 ]; then cmake --build "$build" --target kernserve; else cmake --build "$build" --target kernserve >>"$log" 2>&1; fi
}
if ! build; then
    tail -n 40 "$log" >&2
    echo "the build failed; its whole output is in $log" >&2
    exit 70
fi
rm -f "$log"

body='{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}'

# first_request PID: waits until the daemon is ready, then shows what a client sees. 1: the daemon has gone, or answers wrongly
first_request() {
    local answer tries=600
    until curl -fs -m 5 -o /dev/null "$url/v2/health/ready"; do
        tries=$((tries - 1))
        kill -0 "$1" 2>/dev/null && [ "$tries" -gt 0 ] || return 1
        sleep 0.1
    done
    answer=$(curl -s -m 20 -w '\n%{http_code}\nServer-Timing: %header{server-timing}' -d "$body" "$url/v2/models/softmax/infer") || return 1
    echo
    printf '%s\n' "$ curl -s -w '\nServer-Timing: %header{server-timing}\n' -d '$body' $url/v2/models/softmax/infer"
    sed '2d' <<<"$answer"
    echo
    [ "$(sed -n 2p <<<"$answer")" = 200 ] && [[ $answer == *'"data":[0.032058'* ]]
}

if [ "$check" = yes ]; then
    "$build/kernserve" "$@" &
    daemon=$!
    trap 'kill -KILL $daemon 2>/dev/null' EXIT
    first_request "$daemon" || { echo "the first request failed" >&2 && exit 1; }
    kill -TERM "$daemon"
    wait "$daemon"
    trap - EXIT
    exit 0
fi
# The daemon takes this process's place, so that Ctrl-C and its exit code are its own. The request comes from beside it.
( (first_request $$ && echo "kernserve serves on $url, Ctrl-C ends it") & )
exec "$build/kernserve" "$@"
