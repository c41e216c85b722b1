#!/usr/bin/env bash
# The presets configure, and the last line says what they build: check_presets.sh. An nvcc without a GPU builds nothing for GPUs
# unless it is asked to.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
command -v ninja >/dev/null || { echo "no ninja here, which the presets name" && exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PATH=$PATH:/usr/local/cuda/bin
wrong=0

builds() { # builds PRESET PATTERN
    local said
    said=$(cd "$root" && cmake --preset "$1" -B "$work/$1" -DBUILD_TESTING=OFF 2>&1 | grep '^-- kernserve: ' | tail -1)
    if grep -Eq "$2" <<<"$said"; then
        echo "ok    $1: $said"
    else
        echo "FAIL  $1: '$said' has no '$2'"
        wrong=1
    fi
}

gpu=
for file in /dev/nvidia[0-9]* /proc/driver/nvidia/gpus/* /dev/dxg; do [ ! -e "$file" ] || gpu=$file; done
builds cpu 'the CPU alone; .*--preset cuda'
if [ -z "$gpu" ] || ! command -v nvcc >/dev/null; then builds release 'the CPU alone'; else builds release 'GPUs of 80-real .*--preset cpu'; fi
if command -v nvcc >/dev/null; then builds hopper 'GPUs of 90a-real;'; else echo "skip  hopper: no nvcc"; fi
exit $wrong
