#!/usr/bin/env bash
# 200 mixed requests under memcheck: no invalid access, no use of unset memory, no leak. valgrind.sh KERNSERVE [COUNT]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
kernserve=${1:?usage: valgrind.sh KERNSERVE [COUNT]}
command -v valgrind >/dev/null || { echo "skip: valgrind is not installed" && exit 77; }
if grep -q __asan_init "$kernserve" || grep -q __tsan_init "$kernserve"; then
    echo "skip: a sanitizer build does not run under valgrind" && exit 77
fi
# oneDNN compiles kernels for the processor that it finds; valgrind knows no AVX-512
export ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX2
# Its code, which has no name, reads up to a vector behind an operand that it has packed for itself.
suppressed=$(mktemp)
trap 'rm -f "$suppressed"' EXIT
printf '{\n  oneDNN\n  Memcheck:Addr32\n  obj:???\n}\n' >"$suppressed"
"$here/soak.py" "$kernserve" --count "${2:-200}" --under \
    "valgrind --quiet --leak-check=full --errors-for-leak-kinds=definite,indirect,possible --show-leak-kinds=definite,indirect,possible --error-exitcode=99 --num-callers=30 --suppressions=$suppressed"
