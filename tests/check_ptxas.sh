#!/usr/bin/env bash
# No kernel of softmax, reduce, map, topk, gather, layout, window, scan, histogram, search, attention and quantize spills a register or keeps anything in local memory. Compiles them for one chip with
# -Xptxas -v, and lists each function with its registers, shared memory and stack.
#   check_ptxas.sh [CHIP]      default: sm_90a. Exit code 1: one has a stack frame or spills; 77: no nvcc here
set -eu
cd "$(dirname "$0")/.."
chip=${1:-sm_90a}
PATH=$PATH:/usr/local/cuda/bin
command -v nvcc >/dev/null || { echo "no nvcc here" && exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

jobs=()
for source in kernels/cuda/softmax/*.cu kernels/cuda/reduce/*.cu kernels/cuda/map/*.cu kernels/cuda/topk/*.cu kernels/cuda/gather/*.cu kernels/cuda/layout/*.cu kernels/cuda/window/*.cu kernels/cuda/scan/*.cu kernels/cuda/histogram/*.cu kernels/cuda/search/*.cu kernels/cuda/attention/*.cu kernels/cuda/quantize/*.cu; do
    nvcc -arch="$chip" -std=c++20 -O3 --expt-relaxed-constexpr -Iinclude -Ikernels -Xptxas -v -cubin -o "$work/cubin.${#jobs[@]}" \
        "$source" >"$work/${source//\//_}.log" 2>&1 &
    jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job" || { cat "$work"/*.log && exit 1; }; done

# "Function properties for NAME", then "N bytes stack frame, N bytes spill stores, N bytes spill loads", then, of a kernel but
# not of a function that it calls, what it uses
awk '/Function properties for/ { name = $NF }
     /bytes stack frame/ { stack[name] = $1; spilled[name] = $5 + $9 }
     /: Used [0-9]+ registers/ {
         registers[name] = $5
         shared[name] = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART) + 0 : 0
     }
     END { for (n in stack) printf "%s\t%d\t%d\t%d\t%d\n", n, registers[n], shared[n], stack[n], spilled[n] }' "$work"/*.log |
    (c++filt 2>/dev/null || cat) | sed -E 's/^void //; s/\(.*\)//' | sort >"$work/functions"
# FP64's sin and cos are the library's, whose reduction of large arguments has the bits of 2 / pi in a local array; what else runs in these
# kernels does not touch it.
allowed='map_vectors<map_real<double>, 1, |map_elements<double>'
awk -F '\t' -v allowed="$allowed" 'BEGIN { printf "%9s %7s %6s %6s\n", "registers", "shared", "stack", "spills" }
     { printf "%9d %7d %6d %6d  %s%s\n", $2, $3, $4, $5, $1, $4 + $5 ? $1 ~ allowed ? "  (library)" : "  <-- FAULT" : ""
       faults += $4 + $5 > 0 && $1 !~ allowed }
     END { printf "%s: %d functions, %d with a stack frame or spills\n", "'"$chip"'", NR, faults; exit faults > 0 || NR == 0 }' "$work/functions"
