#!/usr/bin/env bash
# Graphs of ONNX, converted and served: run.sh KERNSERVE PYTHON [BACKEND]
# PYTHON: with the packages of requirements.txt (tests/compat/environment.sh tests/models makes one).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
kernserve=$1 python=$2
shift 2
export OMP_NUM_THREADS=1 # scikit-learn's; the daemon's and onnxruntime's calls are a thread each
for test in onnx_ops onnx_attention onnx_lengths digits encoder file_types; do "$python" -B "$here/$test.py" "$kernserve" "$@"; done
