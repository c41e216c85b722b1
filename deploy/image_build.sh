#!/usr/bin/env bash
# What a build stage of the Dockerfile runs, as root in a container that is thrown away: image_build.sh OUT ON|OFF REVISION
#
# OUT/image      what the image gets, from / on: the stripped daemon, its list of parts, README and licence
# OUT/packages   the packages that hold the shared libraries of the daemon, one a line
# OUT/cublaslt   with ON: the library that the target `full` adds
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1 cuda=$2 revision=$3
# shellcheck source=deploy/packages.sh
. deploy/packages.sh
need_build
install_needed
PATH=$PATH:/usr/local/cuda/bin
cmake -S . -B "$out/tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF "-DKERNSERVE_CUDA=$cuda" "-DKS_REVISION=$revision"
cmake --build "$out/tree" --target kernserve sbom
install -D -s "$out/tree/kernserve" "$out/image/usr/local/bin/kernserve"
install -D -m 644 -t "$out/image/usr/local/share/doc/kernserve" "$out/tree/kernserve.spdx.json" README.md LICENSE
# libc is everywhere. A library below /lib may be listed as one below /usr/lib, and the other way.
ldd "$out/tree/kernserve" | awk '$3 ~ /^\// { print $3 }' | xargs -n 1 readlink -f | while read -r library; do
    dpkg -S "$library" 2>/dev/null || dpkg -S "${library#/usr}"
done | cut -d: -f1 | sort -u >"$out/packages"
if [ "$cuda" = ON ]; then
    mkdir -p "$out/cublaslt"
    cp -P /usr/local/cuda/lib64/libcublasLt.so.* "$out/cublaslt/"
fi
