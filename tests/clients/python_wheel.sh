#!/usr/bin/env bash
# Builds the wheel of clients/python, installs it into a fresh environment and runs python_package.py and python_tensors.py there: python_wheel.sh KERNSERVE PYTHON
# PYTHON has pip, setuptools, NumPy and ml_dtypes, and mypy to check its types (tests/compat/environment.sh makes one); the fresh one sees its NumPy and ml_dtypes, and none of its source.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kernserve=$(realpath "$1") python=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$here/../../clients/python" "$work/source" # setuptools leaves folders beside the source
"$python" -m pip wheel -q --no-deps --no-build-isolation --disable-pip-version-check -w "$work/wheels" "$work/source"
wheel=("$work"/wheels/kernserve_client-*-py3-none-any.whl)
size=$(stat -c %s "${wheel[0]}")
[ "$size" -lt 100000 ] || { echo "the wheel has $size bytes" && exit 1; }
grep -q 'kernserve/py.typed' <<<"$(python3 -m zipfile -l "${wheel[0]}")" || { echo "the wheel has no py.typed" && exit 1; }
"$python" -m venv "$work/fresh"
"$work/fresh/bin/pip" install -q --no-deps --no-index --disable-pip-version-check "${wheel[0]}"
site=$("$work/fresh/bin/python" -c 'import site; print(site.getsitepackages()[0])')
packages=$("$python" -c 'import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))')
for package in numpy numpy.libs ml_dtypes; do [ ! -e "$packages/$package" ] || ln -s "$packages/$package" "$site/$package"; done
echo "wheel: $size bytes"
cd "$work"
if "$python" -m mypy --version >/dev/null 2>&1; then
    "$python" -m mypy --strict --python-executable "$work/fresh/bin/python" -p kernserve
    "$python" -m mypy --strict --python-executable "$work/fresh/bin/python" "$here/python_typed.py"
fi
for test in python_package python_tensors; do "$work/fresh/bin/python" -B "$here/$test.py" "$kernserve" "$work/fresh/bin/kernserve-client"; done
