# shellcheck shell=bash
# To be sourced by quickstart.sh and tests/run.sh: what they share.
# Installs what is missing, and touches the package manager only then, so that a second run works offline:
#   need PACKAGE PROBE       PROBE: a command, or a header (with .h) below /usr/include
#   wish PACKAGE PROBE       the same, but the program works without it: tried, never a failure
#   install_needed           what need and wish found missing; 1: something needed cannot be had
# And builds the release into build/:
#   configure_release ROOT   for the GPUs of this host where nvcc and a GPU are here, else for the CPU alone
ks_needed= ks_wished=

ks_have() { # PACKAGE PROBE
    case $2 in
    *.h)
        local folder
        for folder in /usr/include /usr/local/include "/usr/include/$(uname -m)-linux-gnu" ${CPATH:+${CPATH//:/ }}; do
            [ -e "$folder/$2" ] && return 0
        done
        return 1
        ;;
    *) command -v "$2" >/dev/null 2>&1 ;;
    esac
}

need() {
    ks_have "$@" || ks_needed="$ks_needed $1"
}

wish() {
    ks_have "$@" || ks_wished="$ks_wished $1"
}

ks_as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo env DEBIAN_FRONTEND=noninteractive "$@"
    else
        echo "neither root nor sudo: cannot run $*" >&2
        return 1
    fi
}

ks_apt() {
    ks_as_root apt-get -q -y -o Acquire::Retries=2 -o Acquire::http::Timeout=20 -o Dpkg::Use-Pty=0 "$@"
}

# ks_install PACKAGE...: those that the archive has
ks_install() {
    local package wanted=
    for package in "$@"; do
        if apt-cache show "$package" >/dev/null 2>&1; then wanted="$wanted $package"; fi
    done
    # shellcheck disable=SC2086  # a list of words on purpose
    [ -z "$wanted" ] || ks_apt install --no-install-recommends $wanted >/dev/null
}

install_needed() {
    [ -n "$ks_needed$ks_wished" ] || return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "missing:$ks_needed (no apt-get here: install them by hand)" >&2
        [ -z "$ks_needed" ]
        return
    fi
    echo "installing:$ks_needed$ks_wished"
    # lists that are there are fresh enough for what can be done without
    if [ -n "$ks_needed" ] || ! ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1; then ks_apt update >/dev/null; fi || echo "the package lists could not be refreshed; going on with what is there" >&2
    # shellcheck disable=SC2086
    if [ -n "$ks_needed" ] && ! ks_apt install --no-install-recommends $ks_needed >/dev/null; then
        echo "missing, and not to be had:$ks_needed" >&2
        return 1
    fi
    # shellcheck disable=SC2086
    [ -z "$ks_wished" ] || ks_install $ks_wished || echo "done without:$ks_wished" >&2
    ks_needed= ks_wished=
}

# What a build needs.
need_build() {
    need cmake cmake
    need ninja-build ninja
    need gcc gcc
    need g++ g++
    need libmicrohttpd-dev microhttpd.h
    need libgnutls28-dev gnutls/abstract.h
    need nettle-dev nettle/sha2.h
    need libcjson-dev cjson/cJSON.h
    need zlib1g-dev zlib.h
    need curl curl
    wish libdnnl-dev oneapi/dnnl/dnnl.h
    wish libcurl4-openssl-dev curl/curl.h
}

# The chips of this host's GPUs as CMake names them, separated by semicolons; empty: no GPU, or no nvcc.
gpu_chips() {
    PATH=$PATH:/usr/local/cuda/bin command -v nvcc >/dev/null || return 0
    nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -E '^[0-9]+\.[0-9]+$' | sort -u |
        sed -E 's/\.//; s/^90$/90a/; s/$/-real/' | paste -sd ';' || true
}

configure_release() {
    local root=$1 build=$1/build chips
    local flags=(-DCMAKE_BUILD_TYPE=Release -DKERNSERVE_CUDA=OFF)
    chips=$(gpu_chips)
    [ -z "$chips" ] || flags=(-DCMAKE_BUILD_TYPE=Release -DKERNSERVE_CUDA=ON "-DKERNSERVE_CUDA_ARCH=$chips")
    # A build folder that came along from elsewhere would be refused.
    if [ -e "$build/CMakeCache.txt" ] && ! grep -qx "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$build/CMakeCache.txt"; then
        rm -rf "$build/CMakeCache.txt" "$build/CMakeFiles"
    fi
    [ -e "$build/CMakeCache.txt" ] || flags+=(-G Ninja)
    PATH=$PATH:/usr/local/cuda/bin cmake -S "$root" -B "$build" "${flags[@]}"
}
