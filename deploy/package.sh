#!/usr/bin/env bash
# Builds the Debian package of this tree into build/package, or into FOLDER: deploy/package.sh [FOLDER]
# The tree is copied, with deploy/debian on top as debian/, so that nothing is left in it. For the CPU; KERNSERVE_CUDA=ON adds the GPU.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$root/build/package}
mkdir -p "$out"
out=$(cd "$out" && pwd)
for tool in dpkg-buildpackage dh; do
    command -v "$tool" >/dev/null || { echo "$tool is missing: apt-get install dpkg-dev debhelper" && exit 77; }
done
dpkg-checkbuilddeps "$root/deploy/debian/control" || { echo "these packages are missing: apt-get install build-essential and what is named above" && exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/kernserve
mkdir "$tree"
cd "$root"
# What git knows or would take; without git all but build folders.
if ! git ls-files -z --cached --others --exclude-standard >"$work/files" 2>/dev/null; then
    find . -path './build*' -prune -o -path ./.git -prune -o '(' -type f -o -type l ')' -print0 >"$work/files"
fi
# A file that git still lists may be gone.
tar --ignore-failed-read --null -T "$work/files" -cf - 2>/dev/null | tar -xf - -C "$tree"
cp -R deploy/debian "$tree/debian"
if [ -z "${KS_REVISION:-}" ]; then
    KS_REVISION=$(git describe --always --dirty --abbrev=12 2>/dev/null) || KS_REVISION=unknown
fi
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null) || unset SOURCE_DATE_EPOCH
fi
export KS_REVISION ${SOURCE_DATE_EPOCH:+SOURCE_DATE_EPOCH}
export CCACHE_BASEDIR=$tree CCACHE_NOHASHDIR=1
cd "$tree"
dpkg-buildpackage --build=binary --no-sign --jobs-force="$(nproc)"
mv "$work"/*.deb "$work"/*.changes "$work"/*.buildinfo "$out"
ls "$out"/*.deb
