#!/usr/bin/env bash
# Makes the virtual environment that a folder's requirements.txt names, and prints its path: environment.sh [FOLDER]
# FOLDER: this one, whose tests of real clients need perf_analyzer besides, or tests/operate.
# Kept below ${XDG_CACHE_HOME:-~/.cache}/kernserve, under a name that changes with requirements.txt, so that it is made once.
# Exit code 77, and the reason as the last line: it cannot be made here, because no package index is reached.
set -u
here=$(cd "$(dirname "$0")" && pwd)
folder=$(cd "${1:-$here}" && pwd) || exit 71
perf_analyzer=perf-analyzer==2.60.0
name=$(cat "$folder/requirements.txt" "$0" | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kernserve
kind='env'
[ "$folder" = "$here" ] || kind=$(basename "$folder")
env=$cache/$kind-$name
if [ -e "$env/.complete" ]; then
    echo "$env"
    exit 0
fi

exec 3>&1 # below, all that the tools say goes to the standard error
give_up() {
    rm -rf "$env"
    echo "$1" >&3
    exit 77
}

# libraries FOLDER: the C and C++ runtime of the Debian release after 12, unpacked and not installed, where this host's are older
# than what perf_analyzer's wheel was made with (glibc 2.38, GCC 13).
libraries() {
    local folder=$1 site options
    site=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep '/debian/*$' | head -n 1)
    [ -n "$site" ] || return 1
    mkdir -p "$folder/lists/partial" "$folder/archives/partial" && cd "$folder" || return 1
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site trixie main" >sources.list
    options=(-q -o "Dir::Etc::SourceList=$folder/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$folder/lists"
        -o "Dir::Cache=$folder" -o "APT::Sandbox::User=root" -o Acquire::Retries=2 -o Acquire::http::Timeout=20)
    apt-get "${options[@]}" update && apt-get "${options[@]}" download libc6 libstdc++6 libgcc-s1 libssl3t64 zlib1g libzstd1 || return 1
    local package
    for package in *.deb; do dpkg-deb -x "$package" root || return 1; done
    rm -rf lists archives ./*.deb ./*.bin
}

# bin/perf_analyzer: the wheel's program, by this host's loader or by the unpacked one.
fetch_perf_analyzer() {
    local folder=$env/perf_analyzer program lib
    "$env/bin/pip" download -q --no-deps --only-binary=:all: --platform manylinux_2_38_x86_64 -d "$folder" "$perf_analyzer" &&
        python3 -m zipfile -e "$folder"/*.whl "$folder" || return 1
    program=$folder/perf_analyzer/bin/perf_analyzer
    chmod +x "$program"
    if "$program" --version >/dev/null 2>&1; then
        printf '#!/bin/sh\nexec "%s" "$@"\n' "$program" >"$env/bin/perf_analyzer"
    else
        (libraries "$folder/libraries") || return 1
        lib=$folder/libraries/root/usr/lib/$(uname -m)-linux-gnu
        printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' "$lib/ld-linux-x86-64.so.2" "$lib" "$program" >"$env/bin/perf_analyzer"
    fi
    chmod +x "$env/bin/perf_analyzer"
    "$env/bin/perf_analyzer" --version
}

{
    rm -rf "$cache/$kind"-*
    mkdir -p "$cache" && python3 -m venv "$env" || give_up "python3 -m venv does not work here"
    "$env/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 20 --only-binary=:all: -r "$folder/requirements.txt" ||
        give_up "the packages of requirements.txt cannot be had: no index is reached, or this Python is another than 3.11"
    [ "$folder" != "$here" ] || fetch_perf_analyzer || rm -f "$env/bin/perf_analyzer"
    touch "$env/.complete"
} >&2
echo "$env"
