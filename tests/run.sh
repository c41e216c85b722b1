#!/usr/bin/env bash
# Everything that this machine can test, in one command: ./tests/run.sh [quick]
#
# Installs what is missing (and touches the package manager only then), builds, tests, and ends with one line:
# N passed, N failed, N skipped. Exit code 0 only when nothing failed. What is skipped is said, with its reason.
# quick  release build and its tests only. Logs stay in build-test/logs.
# Rates are compared by the tests of the release build, which run first; what is compiled beside them takes only the processor time that
# they leave. What is behind them runs in lanes side by side.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 71
logs=$root/build-test/logs
mkdir -p "$logs"
PATH=$PATH:/usr/local/cuda/bin:/usr/sbin # where Debian has nginx and haproxy
results=$logs/results # a line for each: pass, fail, skip; of all lanes
: >"$results"
jobs=$(nproc)
compat_python= # of tests/compat's packages, once clients has them
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 # what one clone has compiled serves the next
export KS_SLOW_MS=15000 # d_stop.sh: sanitizers start slowly
export ASAN_OPTIONS=detect_leaks=1:halt_on_error=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

# say RESULT TEXT: the lines of one result stay together, whatever another lane says
say() {
    [ -z "$1" ] || echo "$1" >>"$results"
    printf '%s\n' "$2"
}
pass() { say pass "ok    $1 ($2 s${3:+, $3 s of processors})"; } # NAME SECONDS [PROCESSOR-SECONDS]
skip() { say skip "skip  $1: $2"; }   # NAME REASON
fail() {                              # NAME LOG
    say fail "FAIL  $1, the end of $2:"$'\n'"$(tail -n 40 "$2" | sed 's/^/      /')"
}

# spent: into $cpu_s what this shell's children took of processors so far, once they have ended. `times` in a subshell would tell of its own.
spent() {
    local file=$logs/times.$BASHPID
    times >"$file"
    cpu_s=$(awk 'NR == 2 { gsub(/[ms]/, " "); print int($1 * 60 + $2 + $3 * 60 + $4) }' "$file")
    rm "$file"
}

# step NAME COMMAND...: counts as one test; exit code 77 is a skip, whose reason is the last line
step() {
    local name=$1 log=$logs/${1//[ \/]/_}.log begun=$SECONDS code=0 cpu_s before_s
    shift
    say '' "run   $name"
    spent
    before_s=$cpu_s
    "$@" >"$log" 2>&1 </dev/null || code=$?
    spent
    case $code in
    0) pass "$name" $((SECONDS - begun)) $((cpu_s - before_s)) ;;
    77) skip "$name" "$(tail -n 1 "$log")" ;;
    *) fail "$name (exit code $code)" "$log" ;;
    esac
    [ "$code" -eq 0 ]
}

# suite NAME BUILD-FOLDER: each ctest test counts as one. Twice as many run at a time as there are processors, but of those that load one,
# which take two of the slots that tests/CMakeLists.txt gives out, as many as there are.
suite() {
    local name=$1 build=$2 begun=$SECONDS report=$logs/$1.xml slots=$logs/slots.json counts cpu_s before_s
    say '' "run   $name"
    rm -f "$report"
    echo '{"version":{"major":1,"minor":0},"local":[{"cpus":[{"id":"0","slots":'$((2 * jobs))'}]}]}' >"$slots"
    spent
    before_s=$cpu_s
    ctest --test-dir "$build" -j $((2 * jobs)) --resource-spec-file "$slots" --output-junit "$report" >"$logs/$name.ctest.log" 2>&1 </dev/null
    if ! counts=$(python3 - "$name" "$report" "$results" <<'PYTHON'
import sys
import xml.etree.ElementTree as tree
name, report, results = sys.argv[1:]
counts = {"pass": 0, "fail": 0, "skip": 0}
for case in tree.parse(report).getroot().iter("testcase"):
    lines = (case.findtext("system-out") or "").strip().splitlines()
    status = case.get("status")
    if case.find("failure") is not None or status == "fail":
        counts["fail"] += 1
        print("FAIL  %s %s" % (name, case.get("name")), file=sys.stderr)
        said = [line for line in lines[:-40] if line.startswith(("WRONG", "Traceback"))][:10] + lines[-40:]
        print("".join("      %s\n" % line[:300] for line in said), end="", file=sys.stderr)
    elif status == "run":
        counts["pass"] += 1
    else:
        counts["skip"] += 1
        reason = "it would prove nothing in this build" if status == "disabled" else lines[-1][:200] if lines else status
        print("skip  %s %s: %s" % (name, case.get("name"), reason), file=sys.stderr)
if not sum(counts.values()):
    sys.exit("no test ran")
print("%s %s: %d passed, %d failed, %d skipped" % ("FAIL " if counts["fail"] else "ok   ", name, *counts.values()))
with open(results, "a") as file:
    file.write("".join("%s\n" % result * count for result, count in counts.items()))
PYTHON
    ); then
        fail "$name: no result" "$logs/$name.ctest.log"
        return
    fi
    spent
    say '' "$counts ($((SECONDS - begun)) s, $((cpu_s - before_s)) s of processors)"
}

# beside LANE...: functions side by side, each with its steps one after the other
beside() {
    local lane lanes=()
    for lane; do
        { "$lane"; echo "end $lane" >>"$results"; } &
        lanes+=($!)
    done
    trap 'kill "${lanes[@]}"' INT TERM
    wait "${lanes[@]}"
    trap - INT TERM
    for lane; do grep -qx "end $lane" "$results" || say fail "FAIL  the lane of $lane did not come to its end"; done
}

finish() {
    local counts=() result
    for result in pass fail skip; do counts+=("$(grep -cx $result "$results")"); done
    printf '%d passed, %d failed, %d skipped\n' "${counts[@]}"
    [ "${counts[1]}" -eq 0 ]
    exit
}

# --- what the steps run -------------------------------------------------------------------------------------------------
build_release() { configure_release "$root" && cmake --build "$root/build" -j "$jobs"; }

# sanitized NAME SANITIZERS CMAKE-OPTION...: into build-test/NAME
sanitized() {
    local build=$root/build-test/$1 sanitize=$2
    shift 2
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_C_FLAGS_DEBUG=-O1 -g1" "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -g1" \
        -DKERNSERVE_CUDA=OFF "-DKS_SANITIZE=$sanitize" "$@" && cmake --build "$build" -j "$jobs"
}

# Kernels for one chip, to prove that they compile; the daemon that comes of it must start where there is no driver. Nobody runs
# them, so they need not be fast: that takes a fifth of the time.
cuda_compiles() {
    command -v nvcc >/dev/null || { echo "no nvcc here" && return 77; }
    [ -z "$(gpu_chips)" ] || { echo "the release build has them already" && return 77; }
    local fast=
    ! nvcc --help | grep -q Ofast-compile || fast=-Ofc=max
    cmake -S "$root" -B "$root/build-test/cuda" -G Ninja -DCMAKE_BUILD_TYPE=Release -DKERNSERVE_CUDA=ON -DKERNSERVE_CUDA_ARCH=90a-real \
        "-DCMAKE_CUDA_FLAGS=$fast" && cmake --build "$root/build-test/cuda" -j "$jobs" --target kernserve ks_bench_ops compare_cublaslt
}

cuda_starts() {
    [ -x "$root/build-test/cuda/kernserve" ] || { echo "there is no such build here" && return 77; }
    "$root/tests/http/a_first_request.sh" "$root/build-test/cuda/kernserve"
}

# sources PATTERN...: those that git knows or would take; without git all
sources() {
    local pattern
    git ls-files --cached --others --exclude-standard "$@" 2>/dev/null && return
    for pattern; do find . -path './build*' -prune -o -name "$pattern" -print; done
}

formatted() {
    command -v clang-format-14 >/dev/null || { echo "clang-format-14 is not installed; other versions lay out differently" && return 77; }
    sources '*.c' '*.h' '*.cc' '*.cu' '*.cuh' | while read -r file; do [ ! -e "$file" ] || echo "$file"; done |
        xargs -P "$jobs" -n 20 clang-format-14 --dry-run --Werror
}

quickstart() {
    local port other
    read -r port other <<<"$(python3 -B "$root/tests/http/ports.py" 2)"
    # from another folder, by its full path
    (cd / && "$root/deploy/quickstart.sh" --check -- --listen "127.0.0.1:$port" --admin-listen "127.0.0.1:$other")
}

# The clients that people have: examples in tests/clients, and the real packages of tests/compat.
clients() {
    local environment python='' reason client begun=$SECONDS
    if environment=$("$root/tests/compat/environment.sh" 2>"$logs/environment.log"); then
        python=$environment/bin/python
        compat_python=$python
        pass "packages for tests/compat: $environment" $((SECONDS - begun))
    else
        reason=$(tail -n 1 <<<"$environment")
        skip "packages for tests/compat" "$reason"
    fi
    for client in curl.sh python_stdlib.py numpy_client.py tritonclient_client.py tritonclient_aio.py tritonclient_shm.py kserve_client.py \
        libcurl.c node.mjs main.go client.R client.jl tensor.sh tensor.c tensor.mjs; do
        step "client $client" "$root/tests/clients/run.sh" "$root/build/kernserve" "$client" $python
    done
    step "snippets of the documents" python3 -B "$root/tests/snippets.py" "$root/build/kernserve" $python
    if [ -n "$python" ]; then step "Python package" "$root/tests/clients/python_wheel.sh" "$root/build/kernserve" "$python"; else skip "Python package" "$reason"; fi
    local test
    for test in tritonclient_methods every_operation kserve_methods files_real compat_models; do
        if [ -n "$python" ]; then step "$test" "$python" -B "$root/tests/compat/$test.py" "$root/build/kernserve"; else skip "$test" "$reason"; fi
    done
    if [ -n "$python" ]; then step "OpenAPI" "$root/tests/compat/openapi.sh" "$root/build/kernserve" "$environment"; else skip "OpenAPI" "$reason"; fi
    if [ -x "${environment##*$'\n'}/bin/perf_analyzer" ]; then
        step "perf_analyzer" "$python" -B "$root/tests/compat/perf_analyzer.py" "$root/build/kernserve" "$environment/bin/perf_analyzer"
    else
        skip "perf_analyzer" "its wheel, or the libraries that it needs, cannot be had here"
    fi
    begun=$SECONDS
    if environment=$("$root/tests/compat/environment.sh" "$root/tests/models" 2>"$logs/environment-models.log"); then
        pass "packages for tests/models: $environment" $((SECONDS - begun))
        step "models of ONNX" "$root/tests/models/run.sh" "$root/build/kernserve" "$environment/bin/python"
    else
        skip "models of ONNX" "$(tail -n 1 <<<"$environment")"
    fi
}

# What deploy/ holds for a fleet, by real proxies, Prometheus, and the tools that judge manifests; after clients, whose packages
# have KServe's.
operate() {
    local environment reason='' begun=$SECONDS kserve=() python name
    if ! environment=$("$root/tests/compat/environment.sh" "$root/tests/operate" 2>"$logs/environment-operate.log"); then
        reason=$(tail -n 1 <<<"$environment")
        for name in "behind Envoy" "rollout behind Envoy" Prometheus "generated client" "spans to a collector" manifests "manifests: planted mistakes" "status.json" "status page"; do skip "$name" "$reason"; done
        return
    fi
    python=$environment/bin/python
    pass "packages for tests/operate: $environment" $((SECONDS - begun))
    [ -z "$compat_python" ] || kserve=(--kserve "$compat_python")
    step "behind Envoy" "$root/tests/compat/proxies.py" "$root/build/kernserve" --count 150 --only envoy --envoy "$environment/bin/envoy"
    step "rollout behind Envoy" "$root/tests/operate/rollout.py" "$root/build/kernserve" envoy --program "$environment/bin/envoy"
    step "Prometheus" "$python" -B "$root/tests/operate/prometheus.py" "$root/build/kernserve"
    step "status.json" "$python" -B "$root/tests/operate/status.py" "$root/build/kernserve"
    step "status page" "$python" -B "$root/tests/operate/page.py" "$root/build/kernserve"
    step "spans to a collector" "$python" -B "$root/tests/http/otlp.py" "$root/build/kernserve"
    step "generated client" "$python" -B "$root/tests/operate/generated_client.py" "$root/build/kernserve"
    step "manifests" "$python" -B "$root/tests/operate/manifests.py" "${kserve[@]}"
    step "manifests: planted mistakes" "$python" -B "$root/tests/operate/manifests.py" "${kserve[@]}" --self-test
}

# What needs no packages of Python's: the program as it is installed, and long runs of it.
installed() {
    step "quickstart" quickstart
    step "soak" "$root/tests/soak.py" "$root/build/kernserve"
    step "behind HAProxy, nginx, Varnish" "$root/tests/compat/proxies.py" "$root/build/kernserve" --count 300 --only nginx,haproxy,varnish
    step "valgrind" "$root/tests/valgrind.sh" "$root/build/kernserve" 200
    step "TLS" python3 -B "$root/tests/operate/tls.py" "$root/build/kernserve"
    step "access log" python3 -B "$root/tests/operate/logs.py" "$root/build/kernserve"
    step "container image" "$root/tests/operate/image.py"
    step "install" "$root/tests/operate/install.py" "$root/build"
    step "Debian package" "$root/tests/operate/package.py" "$root/build"
    step "units of systemd" "$root/tests/operate/systemd.py" "$root/build"
    step "manual and completions" "$root/tests/operate/manual.py" "$root/build/kernserve"
    step "rollout behind HAProxy" "$root/tests/operate/rollout.py" "$root/build/kernserve" haproxy
}

least_priority() { chrt -i -p 0 "$BASHPID" 2>/dev/null || renice -n 19 -p "$BASHPID" >/dev/null; }

sanitizers_built() {
    least_priority
    step "ASan and UBSan build" sanitized asan address,undefined
    # oneDNN's threads come from an OpenMP that TSan cannot see into
    step "TSan build" sanitized tsan thread -DKERNSERVE_ONEDNN=OFF
}

# What is only compiled or read, in the time that all else leaves.
compiled() {
    least_priority
    step "CUDA code compiles" cuda_compiles
    step "clang-tidy" "$root/tests/check_tidy.py"
    step "formatting" formatted
}

released() { suite release "$root/build"; }

# What is made of the tree.
tree() {
    step "layers" python3 -B "$root/tests/check_layers.py" "$root/build"
    step "rulers of the house" python3 -B "$root/tests/house.py" --check
    step "recipes of CONTRIBUTING.md" python3 -B "$root/tests/check_recipes.py" --cost
    step "coverage" "$root/tests/coverage.py" --build "$root/build-test/coverage"
    step "planted faults: texts" "$root/tests/planted.py" --check
    command -v promtool >/dev/null || skip "promtool check metrics" "promtool is not installed"
    if [ -z "$(gpu_chips)" ]; then skip "GPU tests" "no GPU here; tests/gpu.sh runs them on a host that has one"; fi
    [ ! -x "$root/build/kernserve" ] || installed
}

# The program among what it meets.
clients_and_operate() {
    [ -x "$root/build/kernserve" ] || return
    clients
    operate
}

sanitizers() {
    suite asan+ubsan "$root/build-test/asan"
    suite tsan "$root/build-test/tsan"
}

# --- the run --------------------------------------------------------------------------------------------------------------
# shellcheck source=deploy/packages.sh
. "$root/deploy/packages.sh"
need_build
need libcmocka-dev cmocka.h
need python3 python3
wish wrk wrk
wish prometheus promtool
wish valgrind valgrind
wish ccache ccache
wish clang-format-14 clang-format-14
wish clang-tidy-14 clang-tidy-14
if [ "${1:-}" != quick ]; then
    wish nodejs node
    wish golang-go go
    wish r-base-core Rscript
    wish haproxy haproxy
    wish nginx nginx
    wish varnish varnishd
    wish chromium chromium
    wish openssl openssl
    wish buildah buildah
    wish debootstrap debootstrap
    wish git git
    wish dpkg-dev dpkg-buildpackage
    [ -e /usr/share/build-essential ] || ks_wished="$ks_wished build-essential" # which dpkg-buildpackage asks for
    wish debhelper dh
    wish lintian lintian
    wish mandoc mandoc
    wish zsh zsh
    [ -e /usr/lib/R/site-library/curl ] || ks_wished="$ks_wished r-cran-curl"
    python3 -c 'import ensurepip' 2>/dev/null || ks_wished="$ks_wished python3-venv"
fi
install_needed || { say fail "FAIL  packages" && finish; }

step "release build" build_release
if [ "${1:-}" = quick ]; then
    released
    finish
fi
# Tests that compare rates are the release build's: beside them nothing runs but what compiles.
tested() {
    beside released sanitizers_built
    beside sanitizers clients_and_operate tree
}
beside tested compiled
step "CUDA build without a driver" cuda_starts
finish
