#!/usr/bin/env bash
# Builds a container image of this tree: deploy/image.sh cpu|cuda|full [NAME] [BUILDER-OPTION...]
#
# NAME is kernserve:VERSION for full, kernserve:VERSION-TARGET for the others, where none is given. By docker, podman or buildah, whichever is found first, or the one that
# KS_ENGINE names. The image's labels and the daemon's --version tell version and revision of the tree.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
usage() { sed -n '2s/^# //p' "$0" >&2 && exit 64; }
target=${1:-}
case $target in cpu | cuda | full) ;; *) usage ;; esac
version=$(sed -n 's/^project(kernserve VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
name=${2:-kernserve:$version-$target}
name=${name%-full}
shift $(($# < 2 ? $# : 2))
revision=$(git -C "$root" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
created=$(git -C "$root" log -1 --format=%cI 2>/dev/null || date -u +%FT%TZ)
engine=${KS_ENGINE:-}
for one in docker podman buildah; do
    [ -n "$engine" ] || ! command -v "$one" >/dev/null || engine=$one
done
[ -n "$engine" ] || { echo "none of docker, podman, buildah is installed" >&2 && exit 69; }
command=build
[ "$engine" != buildah ] || command=bud
set -x
exec "$engine" "$command" --target "$target" --tag "$name" --build-arg "VERSION=$version" --build-arg "REVISION=$revision" \
    --build-arg "CREATED=$created" "$@" "$root"
