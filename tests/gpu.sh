#!/usr/bin/env bash
# Everything that needs a GPU, in one command on a GPU host: build, tests, compute-sanitizer, benches; a table at the end.
#
#   tests/gpu.sh [PART...]      the parts below; default: all of them, in this order
#
# Parts        build     configure and build (Release, with CUDA)
#              test      all of ctest but for the emulated GPU's, or KS_TESTS (a pattern of names)
#              cases     random cases: matmul KS_MATMUL_CASES=10000, the other operations KS_RANDOM_CASES=24000 together
#              spills    no kernel of softmax and reduce spills or has a stack frame (check_ptxas.sh)
#              sanitize  the op tests and test_backend under memcheck, racecheck, initcheck and synccheck, the tools side by side
#              daemon    200 mixed requests at the daemon under memcheck
#              nvtx      a daemon whose NVTX ranges are counted (gpu/nvtx.py)
#              occupancy what /plan says of 60 kernels beside Nsight Compute (gpu/occupancy.py)
#              dram      the bytes of 60 plans beside Nsight Compute's counters of the memory (gpu/dram.py)
#              observed  page, trace and metrics of a daemon under load (gpu/observed.py, needs wrk); its files: gpu-logs/observed
#              workers   --devices 0,1 on a host with two GPUs: rates, faults (gpu/workers.py, needs wrk)
#              bench     bench_engine and bench_ops
#              host      kernserve --self-test, and four times the load (bench/bench_overload.py, needs wrk)
#              http      the daemon beside a bare server and a Python server (bench/bench_http.sh)
#              compare   PyTorch and our kernels side by side (bench/compare_torch.py; with --drawn 30 --operations shapes of no table)
#              matmul    every way of random products (op_matmul with cuBLASLt), the daemon tuned for a shape and started again, then
#                        bench/compare_cublaslt
#              ncu       why the KS_NCU_ROWS=5 rows of bench_ops, of 64 MB and more, with the smallest shares are slow, by counters;
#                        KS_NCU_ROWS=missed: all below 90 % of a copy (80 %: rows of 32 elements, other axes than the last one)
# Environment  KS_BUILD=build-gpu   KS_CUDA_ARCH=90a-real   KS_JOBS (all cores)   KS_CASES=8 (random cases per op, sanitizers; below 10 each regime runs one way)
#              KS_PART_SECONDS=240 (a single run of anything)   KS_TESTS=""    KS_TOOLS="memcheck racecheck initcheck synccheck"
#              KS_SANITIZED="op_... of all operations, test_backend"   KS_BENCH_ROWS="" (filter words of bench_ops and compare_torch.py)
#              KS_HTTP_OPTIONS="" (of bench_http.sh; --quick takes a minute, without it eight)
#              KS_OVERLOAD_OPTIONS="" (of bench_overload.py, which takes two minutes and a half as it is; KS_MATMUL_ROWS="")
# Output       logs in $KS_BUILD/gpu-logs, the last lines of a failed one here. Exit code 1 when anything failed.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=${KS_BUILD:-build-gpu}
case $build in /*) ;; *) build=$root/$build ;; esac
arch=${KS_CUDA_ARCH:-90a-real}
jobs=${KS_JOBS:-$(nproc)}
seconds=${KS_PART_SECONDS:-240}
tools=${KS_TOOLS:-memcheck racecheck initcheck synccheck}
ops=$(sed -n 's/^OP(\(.*\))$/op_\1/p' "$root/kernels/ops/ops.def" | tr '\n' ' ')op_narrow
sanitized=${KS_SANITIZED:-$ops test_backend}
logs=$build/gpu-logs
table=() passed=0 failed=0 skipped=0

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(build test cases spills sanitize daemon nvtx occupancy dram observed workers bench host http compare matmul ncu)
for part in "${parts[@]}"; do
    case $part in
    build | test | cases | spills | sanitize | daemon | nvtx | occupancy | dram | observed | workers | bench | host | http | compare | matmul | ncu) ;;
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

# logged NAME COMMAND...: what it prints goes to a log, its exit code and its seconds to a file beside that.
logged() {
    local begin=$SECONDS code=0 log=$logs/${1// /-}.log
    shift
    timeout --kill-after=10 "$seconds" "$@" >"$log" 2>&1 </dev/null || code=$?
    echo "$code $((SECONDS - begin))" >"$log.code"
}

# judge NAME: what has become of it; 77 is a skip. The remark is the last line that the log has.
judge() {
    local name=$1 log=$logs/${1// /-}.log code took remark
    read -r code took <"$log.code"
    remark=$(grep -v '^[[:space:]]*$' "$log" | tail -n 1 | cut -c 1-100)
    case $code in
    0) note passed "$name" "$took" "$remark" ;;
    77) note skipped "$name" "$took" "$remark" ;;
    124 | 137)
        note failed "$name" "$took" "not done in ${seconds} s"
        tail -n 15 "$log"
        ;;
    *)
        note failed "$name" "$took" "exit code $code"
        tail -n 40 "$log"
        ;;
    esac
    return "$code"
}

step() { logged "$@" && judge "$1"; }

find_tool() { # find_tool NAME: on the path, or where the toolkit keeps it
    local path
    for path in "$(command -v "$1")" "/usr/local/cuda/bin/$1" "/usr/local/cuda/$1/$1"; do
        [ -z "$path" ] || [ ! -x "$path" ] || { echo "$path" && return 0; }
    done
    return 1
}

find_program() { # a built program or library by its name, wherever CMake put it
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
    timeout --kill-after=10 "$seconds" ctest --test-dir "$build" --output-on-failure -j "$((jobs > 8 ? 8 : jobs))" -R "${KS_TESTS:-.}" \
        -E '^emulate_' >"$log" 2>&1 || code=$?
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

# random_cases OP COUNT PROCESSES: each of these has a seed of its own, which it prints.
random_cases() {
    local begin=$SECONDS op=$1 total=$2 processes=$3 log i program
    local each=$(((total + processes - 1) / processes)) pids=() failed_ones=0 cases=0
    program=$(find_program "$op")
    for ((i = 0; i < processes; i++)); do
        KS_SEED=$((RANDOM << 30 | RANDOM << 15 | RANDOM)) KS_CASES=$each timeout --kill-after=10 "$seconds" "$program" \
            >"$logs/cases-$op-$i.log" 2>&1 </dev/null &
        pids+=($!)
    done
    for ((i = 0; i < processes; i++)); do
        log=$logs/cases-$op-$i.log
        if ! wait "${pids[i]}" || grep -q 'no CUDA device' "$log"; then
            failed_ones=$((failed_ones + 1))
            echo "$log:" && grep -vE '^\[ *(RUN|OK|SKIPPED) *\]' "$log" | tail -n 15
        fi
        cases=$((cases + $(sed -nE 's/^([0-9]+) random cases$/\1/p' "$log" | grep . || echo 0)))
    done
    echo "$failed_ones $((SECONDS - begin)) $cases random cases by $processes processes, $failed_ones of them failed" >"$logs/cases-$op"
}

# All ops at once: the GPU waits for the host's reference most of the time. Twelve processes together at most: a seventeenth on
# one GPU got no device.
part_cases() {
    local op total=${KS_RANDOM_CASES:-24000} failed_ones took remark processes
    local counts=() i asked=0 others
    others=$(wc -w <<<"${ops/op_matmul/}")
    for op in $ops; do
        case $op in
        op_matmul) counts+=("$op" "${KS_MATMUL_CASES:-10000}") ;;
        *) counts+=("$op" $((total / others))) ;;
        esac
    done
    for ((i = 1; i < ${#counts[@]}; i += 2)); do asked=$((asked + (counts[i] > 0))); done
    [ "$asked" -gt 0 ] || return 0
    processes=$((jobs < 8 ? 2 : jobs * asked / 4 > 12 ? 12 / asked : jobs / 4))
    for ((i = 0; i < ${#counts[@]}; i += 2)); do
        if [ "${counts[i + 1]}" -gt 0 ] && find_program "${counts[i]}" >/dev/null; then
            random_cases "${counts[i]}" "${counts[i + 1]}" "$processes" &
        else
            rm -f "$logs/cases-${counts[i]}"
        fi
    done
    wait
    for ((i = 0; i < ${#counts[@]}; i += 2)); do
        op=${counts[i]}
        [ -e "$logs/cases-$op" ] || {
            note skipped "cases $op" 0 "not built, or none asked for"
            continue
        }
        read -r failed_ones took remark <"$logs/cases-$op"
        if [ "$failed_ones" -eq 0 ] && [ "${remark%% *}" -ge "${counts[i + 1]}" ]; then
            note passed "cases $op" "$took" "$remark"
        else
            note failed "cases $op" "$took" "$remark"
        fi
    done
}

part_spills() { step spills "$root/tests/check_ptxas.sh" "sm_${arch%%-*}"; }

# Leaks count for memcheck alone; the tests' own leaks on the host are another tool's business.
tool_options() {
    case $1 in
    memcheck) echo "--leak-check full" ;;
    racecheck) echo "--racecheck-report all" ;;
    esac
}

part_sanitize() {
    local sanitizer tool name program
    sanitizer=$(find_tool compute-sanitizer) || {
        note skipped sanitize 0 "compute-sanitizer is not installed"
        return 0
    }
    for name in $sanitized; do
        program=$(find_program "$name") || {
            note skipped "sanitize $name" 0 "not built"
            continue
        }
        for tool in $tools; do # the GPU waits for the host most of the time
            # Rates under racecheck take minutes and are none.
            # shellcheck disable=SC2046
            KS_SKIP=${KS_SKIP:-$([ "$tool" = racecheck ] && echo '*what_it_can_do_at_best')} KS_CASES=${KS_CASES:-8} logged "$tool $name" "$sanitizer" --tool "$tool" $(tool_options "$tool") \
                --error-exitcode 99 --print-limit 20 "$program" &
        done
        wait
        for tool in $tools; do judge "$tool $name"; done
    done
}

part_daemon() {
    local sanitizer program
    program=$(find_program kernserve) || {
        note skipped "memcheck daemon" 0 "kernserve is not built"
        return 0
    }
    sanitizer=$(find_tool compute-sanitizer) || {
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

part_nvtx() {
    local program
    program=$(find_program kernserve) || {
        note skipped nvtx 0 "kernserve is not built"
        return 0
    }
    step nvtx python3 -B "$root/tests/gpu/nvtx.py" "$program"
}

# What Nsight Compute says of launches beside their plans: PART, which is a script of tests/gpu.
beside_ncu() {
    local ncu program bench
    ncu=$(find_tool ncu) || {
        note skipped "$1" 0 "ncu is not installed"
        return 0
    }
    if ! program=$(find_program kernserve) || ! bench=$(find_program bench_ops); then
        note skipped "$1" 0 "kernserve or bench_ops is not built"
        return 0
    fi
    step "$1" python3 -B "$root/tests/gpu/$1.py" "$program" "$bench" "$ncu"
}

part_occupancy() {
    beside_ncu occupancy
}

part_dram() {
    beside_ncu dram
    if [ -e "$logs/dram.log" ]; then cat "$logs/dram.log"; fi
}

part_observed() {
    local program
    program=$(find_program kernserve) || {
        note skipped observed 0 "kernserve is not built"
        return 0
    }
    step observed python3 -B "$root/tests/gpu/observed.py" "$program" "$logs/observed"
    cat "$logs/observed.log"
}

part_workers() {
    local program
    program=$(find_program kernserve) || {
        note skipped workers 0 "kernserve is not built"
        return 0
    }
    step workers python3 -B "$root/tests/gpu/workers.py" "$program"
    cat "$logs/workers.log"
}

part_host() {
    local program
    program=$(find_program kernserve) || {
        note skipped self-test 0 "kernserve is not built"
        return 0
    }
    step self-test "$program" --backend cuda --self-test && cat "$logs/self-test.log"
    command -v wrk >/dev/null || {
        note skipped overload 0 "wrk is not installed"
        return 0
    }
    # shellcheck disable=SC2086
    step overload "$root/tests/bench/bench_overload.py" "$program" ${KS_OVERLOAD_OPTIONS:-}
    cat "$logs/overload.log"
}

part_http() {
    command -v wrk >/dev/null || {
        note skipped http 0 "wrk is not installed"
        return 0
    }
    local seconds=560
    # shellcheck disable=SC2086
    step http "$root/tests/bench/bench_http.sh" --build "$build" ${KS_HTTP_OPTIONS:-}
    cat "$logs/http.log"
}

part_compare() {
    local library
    library=$(find_program libks_bench_ops.so) || {
        note skipped compare 0 "libks_bench_ops.so is not built"
        return 0
    }
    python3 -c 'import torch' 2>/dev/null || {
        note skipped compare 0 "python3 has no PyTorch"
        return 0
    }
    # shellcheck disable=SC2086
    step compare python3 -B "$root/tests/bench/compare_torch.py" "$library" ${KS_BENCH_ROWS:-}
    cat "$logs/compare.log"
}

# KS_MATMUL_ROWS: compare_cublaslt's options: --warm, or filter words such as BF16.
part_matmul() {
    local program daemon cache=$logs/tune-cache
    program=$(find_program op_matmul) && KS_CUBLASLT=auto KS_CASES="${KS_ALGORITHM_CASES:-200}" step "matmul ways" "$program"
    daemon=$(find_program kernserve) && [ -e "$root/tests/http/tune_gpu.py" ] && {
        rm -f "$cache"
        step "matmul tuned" python3 -B "$root/tests/http/tune_gpu.py" "$daemon" "$cache"
        cat "$logs/matmul-tuned.log"
        step "models joined" python3 -B "$root/tests/http/join_gpu.py" "$daemon"
    }
    program=$(find_program compare_cublaslt) || {
        note skipped matmul 0 "compare_cublaslt is not built"
        return 0
    }
    # shellcheck disable=SC2086
    step "matmul compare" "$program" ${KS_MATMUL_ROWS:-}
    cat "$logs/matmul-compare.log"
}

# Rows of bench_ops, but for matmul, of 64 MB and more, and the sum of 2^20: share, bytes and label, the smallest shares first. A
# row is its label, 42 wide, then cold us, warm us, GB/s, floor us, share.
slowest_rows() {
    awk -v rows="${KS_NCU_ROWS:-5}" '!/^matmul/ && substr($0, 43) ~ /^ +[0-9.]+ +[0-9.]+ +[0-9]+ +[0-9.]+ +[0-9.]+%/ {
        split(substr($0, 43), f, " ")
        label = substr($0, 1, 42)
        sub(/ +$/, "", label)
        split(label, word, " ")
        asked = word[5] ~ /^-1$/ && word[3] !~ /x(32|33|7|2)$/ || word[3] !~ /x/ ? 90 : 80
        share = f[5] + 0
        if (rows == "missed" && share >= asked) next
        if (f[1] * f[3] * 1e3 >= 63.5e6 || rows == "missed" && label ~ /^sum FP32 1x1048576/)
            printf "%.1f\t%.0f\t%s\n", share, f[1] * f[3] * 1e3, label
    }' "$logs/bench_ops.log" | sort -n | if [ "${KS_NCU_ROWS:-5}" = missed ]; then cat; else head -n "${KS_NCU_ROWS:-5}"; fi
}

part_ncu() {
    local ncu program metrics name
    ncu=$(find_tool ncu) || {
        note skipped ncu 0 "ncu is not installed"
        return 0
    }
    program=$(find_program bench_ops) || {
        note skipped ncu 0 "bench_ops is not built"
        return 0
    }
    [ -s "$logs/bench_ops.log" ] || step bench_ops "$program" || return 1
    slowest_rows >"$logs/ncu-rows"
    [ -s "$logs/ncu-rows" ] || {
        note failed ncu 0 "no such row in $logs/bench_ops.log"
        return 1
    }
    cut -f 3 "$logs/ncu-rows" >"$logs/ncu-labels"
    metrics=gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum
    for name in dram__throughput lts__t_sectors; do metrics+=,$name.avg.pct_of_peak_sustained_elapsed; done
    for name in smsp__issue_active sm__warps_active sm__inst_executed_pipe_{alu,fma,fp64,lsu,xu}; do
        metrics+=,$name.avg.pct_of_peak_sustained_active
    done
    for name in barrier branch_resolving dispatch_stall drain lg_throttle long_scoreboard math_pipe_throttle membar \
        mio_throttle no_instruction not_selected short_scoreboard sleeping wait; do
        metrics+=,smsp__average_warps_issue_stalled_${name}_per_issue_active.ratio
    done
    step ncu "$ncu" --clock-control none --csv --kernel-name 'regex:(softmax|reduce)' --metrics "$metrics" \
        "$program" --once --from "$logs/ncu-labels" || return 1
    python3 - "$logs/ncu-rows" "$logs/ncu.log" <<'PYTHON' || note failed ncu 0 "its counters could not be read"
import csv
import re
import sys

# What follows from the numbers alone. Writes that the L2 cache keeps behind a kernel's end are not among its bytes.
MOVES, ISSUES, BUSY, WAITS = 1.1, 60, 75, 3


def verdict(m, must):
    moved = m["dram__bytes_read"] + m["dram__bytes_write"]
    pipes = {name[22:]: value for name, value in m.items() if name.startswith("sm__inst_executed_pipe_")}
    stalls = {name: value for name, value in m.items() if "_issue_stalled_" in name}
    pipe, busiest = max(pipes.items(), key=lambda item: item[1])
    said = []
    if moved > MOVES * must:
        said.append("bytes: moves %.2f of what it must" % (moved / must))
    if m["smsp__issue_active"] >= ISSUES:
        said.append("issue: %.0f %% of slots" % m["smsp__issue_active"])
    if busiest >= BUSY:
        said.append("pipe: %s %.0f %%" % (pipe.strip("_"), busiest))
    if m["dram__throughput"] >= BUSY:
        said.append("memory: DRAM %.0f %%" % m["dram__throughput"])
    if not said:
        said.append("latency")
    top = sorted(stalls.items(), key=lambda item: -item[1])[:WAITS]
    waits = ", ".join("%s %.1f" % (re.sub(".*stalled_|_per_issue_active", "", n).replace("_", " "), v) for n, v in top)
    return "; ".join(said), pipe.strip("_"), busiest, waits


kernels = {}
labels = []
for line in open(sys.argv[2]):
    found = re.match("(.{42}) (softmax|reduce)_", line)
    if found:
        labels.append(found[1].strip())
with open(sys.argv[2]) as file:
    for row in csv.DictReader(line for line in file if line.startswith('"')):
        value = row["Metric Value"].replace(",", "")
        value = 0 if value == "n/a" else float(value)
        kernels.setdefault(int(row["ID"]), {})[row["Metric Name"].split(".")[0]] = value
rows = {line.rstrip("\n").split("\t")[2]: line.split("\t") for line in open(sys.argv[1])}
print("%-38s %6s %7s %5s %5s %5s %5s  %-8s verdict; waits of a warp for each issue" %
      ("", "share", "us", "DRAM", "L2", "issue", "warps", "pipe"))
for label, (_, m) in zip(labels, sorted(kernels.items())):
    share, must = rows[label][:2]
    said, pipe, busiest, waits = verdict(m, float(must))
    print("%-38s %5s%% %7.1f %4.0f%% %4.0f%% %4.0f%% %4.0f%%  %-4s%3.0f%% %s; %s" %
          (label, share, m["gpu__time_duration"] / 1e3, m["dram__throughput"], m["lts__t_sectors"],
           m["smsp__issue_active"], m["sm__warps_active"], pipe, busiest, said, waits))
PYTHON
}

command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader
for part in "${parts[@]}"; do
    "part_$part" || [ "$part" != build ] || break
done
echo
printf '%s\n' "${table[@]}"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
