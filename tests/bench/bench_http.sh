#!/usr/bin/env bash
# kernserve beside a bare server and a Python server, in one run on one host: requests/s, latency, GB/s and their
# ratios, and what is wanted of them. Builds what it needs; docs/benchmarks.md explains the columns.
#
#   tests/bench/bench_http.sh [--build FOLDER] [OPTION...]     options: bench_http.py, at the head of it
#   tests/bench/bench_http.sh --quick                          about a minute; without it at most eight
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$root/build
if [ "${1:-}" = --build ]; then
    build=$(cd "$2" && pwd)
    shift 2
fi
command -v wrk >/dev/null || { echo "wrk is not installed" >&2 && exit 69; }
if [ ! -e "$build/CMakeCache.txt" ]; then
    # shellcheck source=deploy/packages.sh
    . "$root/deploy/packages.sh"
    configure_release "$root" >/dev/null
fi
cmake --build "$build" --target bench_http >&2
exec python3 -B "$here/bench_http.py" "$build" "$@"
