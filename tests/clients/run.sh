#!/usr/bin/env bash
# One example client against the daemon: run.sh KERNSERVE CLIENT [PYTHON]
# It must print the answer and the header that says where the time went. Exit code 77, with the reason: its language is not here.
# PYTHON: with numpy, tritonclient and kserve (tests/compat/environment.sh makes one).
client=$2 python=${3:-} here=$(cd "$(dirname "$0")" && pwd)
expected='0\.03205[0-9]*,? +0\.08714[0-9]*,? +0\.2368[0-9]*,? +0\.6439[0-9]*'
need() { command -v "$1" >/dev/null || { echo "$1 is not installed" && exit 77; }; }
case $client in
curl.sh) expected='"data":\[0\.032058608,0\.08714432,0\.23688284,0\.6439143\]' command=("$here/curl.sh") ;;
python_stdlib.py) need python3 && command=(python3 -B "$here/$client") ;;
*.py)
    [ -n "$python" ] || { echo "the packages it needs cannot be had here" && exit 77; }
    command=("$python" -B "$here/$client")
    ;;
tensor.sh) expected='"data":\[23(\.0)?,34(\.0)?\]' command=("$here/tensor.sh") ;;
libcurl.c | tensor.c) need cc && command=("$(mktemp -d)/client") && { cc "$here/$client" -lcurl -o "${command[0]}" || { echo "libcurl's headers are not installed" && exit 77; }; } ;;
node.mjs | tensor.mjs) need node && command=(node "$here/$client") ;;
main.go) need go && command=(env GOFLAGS=-mod=mod GO111MODULE=off go run "$here/$client") ;;
client.R) need Rscript && { Rscript -e 'library(curl)' >/dev/null 2>&1 || { echo "R has no package curl" && exit 77; }; } && command=(Rscript "$here/$client") ;;
client.jl) command -v julia >/dev/null || { echo "julia is not installed, and neither Debian 12 nor PyPI has it" && exit 77; } && command=(julia "$here/$client") ;;
*) echo "no such client: $client" && exit 64 ;;
esac
case $client in
tensor.c | tensor.mjs) expected='23, 34' ;;
numpy_client.py) expected='\[\[19\.0, 22\.0\], \[43\.0, 50\.0\]\]' ;;
tritonclient_aio.py) expected="'argmax': \[3, 3, 3\]" ;;
esac
# shellcheck source=tests/http/daemon.sh
. "$here/../http/daemon.sh"
start --allow-client-shm --pinned-bytes 16M
answer=$(timeout 60 "${command[@]}" "$url" 2>"$work/stderr")
want "exit code ($(tail -n 3 "$work/stderr"))" 0 $?
has "values" "$expected" "$answer"
has "where the time went" 'total;dur=[0-9]+\.[0-9]{3}, graph;desc=' "$answer"
printf '%s\n' "$answer" | head -n 2
stop
