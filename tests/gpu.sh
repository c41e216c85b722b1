#!/usr/bin/env bash
# Everything that needs a GPU, in one command on a GPU host: build, tests, compute-sanitizer, benches; a table at the end.
#
#   tests/gpu.sh [PART...]      build test sanitize daemon bench; default: all of them
#
# Parts        build     configure and build (Release, with CUDA)        test    all of ctest
#              sanitize  the op tests and test_backend under memcheck, racecheck, initcheck and synccheck
#              daemon    200 mixed requests at the daemon under memcheck bench   bench_engine and bench_ops
# Environment  KS_BUILD=build-gpu   KS_CUDA_ARCH=90a-real   KS_JOBS (all cores)   KS_CASES=8 (random cases per op, sanitizers; below 10 each regime runs one way)
#              KS_PART_SECONDS=240 (a single run of anything)   KS_TOOLS="memcheck racecheck initcheck synccheck"
#              KS_SANITIZED="op_softmax op_reduce op_matmul test_backend"   KS_BENCH_ROWS="" (filter words of bench_ops)
# Output       logs in $KS_BUILD/gpu-logs, the last lines of a failed one here. Exit code 1 when anything failed.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=${KS_BUILD:-build-gpu}
case $build in /*) ;; *) build=$root/$build ;; esac
arch=${KS_CUDA_ARCH:-90a-real}
jobs=${KS_JOBS:-$(nproc)}
seconds=${KS_PART_SECONDS:-240}
tools=${KS_TOOLS:-memcheck racecheck initcheck synccheck}
sanitized=${KS_SANITIZED:-op_softmax op_reduce op_matmul test_backend}
logs=$build/gpu-logs
table=() passed=0 failed=0 skipped=0

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(build test sanitize daemon bench)
for part in "${parts[@]}"; do
    case $part in
    build | test | sanitize | daemon | bench) ;;
    *) echo "unknown part: $part (see the head of $0)" >&2 && exit 64 ;;
    esac
done
mkdir -p "$logs"

note() { # note RESULT NAME SECONDS REMARK
    table+=("$(printf '%-8s %-32s %5ss  %s' "$1" "$2" "$3" "$4")")
    echo "${table[-1]}"
    case $1 in
    passed) passed=$((passed + 1)) ;;
    failed) failed=$((failed + 1)) ;;
    skipped) skipped=$((skipped + 1)) ;;
    esac
}

# step NAME COMMAND...: its output goes to a log; 77 is a skip. The remark is the last line that the log has.
step() {
    local name=$1 begin=$SECONDS code=0 log remark
    shift
    log=$logs/${name// /-}.log
    timeout --kill-after=10 "$seconds" "$@" >"$log" 2>&1 </dev/null || code=$?
    remark=$(grep -v '^[[:space:]]*$' "$log" | tail -n 1 | cut -c 1-100)
    case $code in
    0) note passed "$name" $((SECONDS - begin)) "$remark" ;;
    77) note skipped "$name" $((SECONDS - begin)) "$remark" ;;
    124 | 137)
        note failed "$name" $((SECONDS - begin)) "not done in ${seconds} s"
        tail -n 15 "$log"
        ;;
    *)
        note failed "$name" $((SECONDS - begin)) "exit code $code"
        tail -n 40 "$log"
        ;;
    esac
    return "$code"
}

find_sanitizer() {
    local path
    for path in "$(command -v compute-sanitizer)" /usr/local/cuda/bin/compute-sanitizer \
        /usr/local/cuda/compute-sanitizer/compute-sanitizer; do
        [ -z "$path" ] || [ ! -x "$path" ] || { echo "$path" && return 0; }
    done
    return 1
}

find_program() { # a built program by its name, wherever CMake put it
    local path
    for path in "$build/$1" "$build/tests/$1"; do
        [ ! -x "$path" ] || { echo "$path" && return 0; }
    done
    return 1
}

part_build() {
    local generator=()
    command -v ninja >/dev/null && [ ! -e "$build/CMakeCache.txt" ] && generator=(-G Ninja)
    step configure cmake -S "$root" -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DKERNSERVE_CUDA=ON \
        -DKERNSERVE_CUDA_ARCH="$arch" || return 1
    local seconds=900
    step build cmake --build "$build" -j "$jobs"
}

part_test() {
    local seconds=900 begin=$SECONDS code=0 log=$logs/ctest.log line name
    timeout --kill-after=10 "$seconds" ctest --test-dir "$build" --output-on-failure -j "$((jobs > 4 ? 4 : jobs))" >"$log" 2>&1 || code=$?
    while read -r line; do
        name=$(sed -E 's/.*Test +#[0-9]+: ([^ ]+).*/\1/' <<<"$line")
        local took
        took=$(sed -E 's/.* ([0-9]+)\.[0-9]+ sec.*/\1/' <<<"$line")
        case $line in
        *Skipped*) note skipped "ctest $name" "$took" "" ;;
        *Passed*) note passed "ctest $name" "$took" "" ;;
        *) note failed "ctest $name" "$took" "see $log" ;;
        esac
    done < <(grep -E '^ *[0-9]+/[0-9]+ Test +#' "$log")
    [ "$code" -eq 0 ] || tail -n 60 "$log"
    grep -qE '^ *[0-9]+/[0-9]+ Test +#' "$log" || note failed ctest $((SECONDS - begin)) "no test ran, exit code $code"
}

# Leaks count for memcheck alone; the tests' own leaks on the host are another tool's business.
tool_options() {
    case $1 in
    memcheck) echo "--leak-check full" ;;
    racecheck) echo "--racecheck-report all" ;;
    esac
}

part_sanitize() {
    local sanitizer tool name program
    sanitizer=$(find_sanitizer) || {
        note skipped sanitize 0 "compute-sanitizer is not installed"
        return 0
    }
    for name in $sanitized; do
        program=$(find_program "$name") || {
            note skipped "sanitize $name" 0 "not built"
            continue
        }
        for tool in $tools; do
            # shellcheck disable=SC2046
            KS_CASES=${KS_CASES:-8} step "$tool $name" "$sanitizer" --tool "$tool" $(tool_options "$tool") \
                --error-exitcode 99 --print-limit 20 "$program"
        done
    done
}

part_daemon() {
    local sanitizer program
    program=$(find_program kernserve) || {
        note skipped "memcheck daemon" 0 "kernserve is not built"
        return 0
    }
    sanitizer=$(find_sanitizer) || {
        note skipped "memcheck daemon" 0 "compute-sanitizer is not installed"
        return 0
    }
    if [ ! -f "$root/tests/soak.py" ] || ! command -v python3 >/dev/null; then
        note skipped "memcheck daemon" 0 "needs tests/soak.py and python3"
        return 0
    fi
    KERNSERVE_BACKEND=cuda step "memcheck daemon" python3 "$root/tests/soak.py" "$program" --count 200 --under \
        "$sanitizer --tool memcheck --leak-check full --error-exitcode 99 --print-limit 20 --log-file $logs/memcheck-daemon.report"
    cat "$logs/memcheck-daemon.report"
}

part_bench() {
    local name program
    for name in bench_engine bench_ops; do
        program=$(find_program "$name") || {
            note skipped "$name" 0 "not built"
            continue
        }
        # shellcheck disable=SC2086
        case $name in
        bench_ops) step "$name" "$program" ${KS_BENCH_ROWS:-} && cat "$logs/$name.log" ;;
        *) step "$name" "$program" --backend cuda && cat "$logs/$name.log" ;;
        esac
    done
}

command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader
for part in "${parts[@]}"; do
    "part_$part" || [ "$part" != build ] || break
done
echo
printf '%s\n' "${table[@]}"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
