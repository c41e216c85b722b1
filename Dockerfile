# kernserve in a container: a build stage with the CUDA compiler, a small stage that runs.
#
#   docker build -t kernserve .                                     kernels for the GPU; the same image also runs on the CPU
#   docker build -t kernserve:cpu --build-arg BUILD_IMAGE=debian:12 --build-arg RUN_IMAGE=debian:12-slim .
#   docker run --gpus all -p 127.0.0.1:8000:8000 -p 127.0.0.1:8002:8002 kernserve
#
# Both images must be the same release of the same distribution: the second stage installs the libraries, by package name,
# that the first stage linked. The CUDA runtime is linked statically, so the small image brings no toolkit.
ARG CUDA_VERSION=13.0.1
ARG BUILD_IMAGE=nvidia/cuda:${CUDA_VERSION}-devel-ubuntu24.04
ARG RUN_IMAGE=nvidia/cuda:${CUDA_VERSION}-base-ubuntu24.04

FROM ${BUILD_IMAGE} AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
WORKDIR /src
COPY deploy/packages.sh deploy/packages.sh
RUN . deploy/packages.sh && need_build && install_needed && rm -rf /var/lib/apt/lists/*
COPY . .
# Kernels for GPUs where the image has nvcc; there is no GPU while it is built.
RUN export PATH=$PATH:/usr/local/cuda/bin cuda=OFF; ! command -v nvcc || cuda=ON \
    && cmake -S . -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF -DKERNSERVE_CUDA=$cuda \
    && cmake --build /build --target kernserve sbom \
    && strip /build/kernserve
# The packages that hold the shared libraries of the binary; libc is everywhere.
RUN ldd /build/kernserve | awk '$3 ~ /^\// { print $3 }' | xargs -n 1 readlink -f | while read -r library; do \
        dpkg -S "$library" 2>/dev/null || dpkg -S "${library#/usr}"; done | cut -d: -f1 | sort -u > /build/packages

FROM ${RUN_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="kernserve" \
      org.opencontainers.image.description="CUDA kernels over HTTP" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN --mount=type=bind,from=build,source=/build/packages,target=/tmp/packages \
    apt-get update && xargs apt-get install -y --no-install-recommends < /tmp/packages && rm -rf /var/lib/apt/lists/*
COPY --from=build /build/kernserve /usr/local/bin/kernserve
COPY --from=build /build/kernserve.spdx.json /usr/local/share/doc/kernserve/kernserve.spdx.json
USER 65532:65532
EXPOSE 8000 8002
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["kernserve", "--healthcheck"]
ENTRYPOINT ["kernserve"]
# Inside a container loopback reaches nobody, so this listens on all of the container's addresses, without a token: publish
# the ports on loopback as above, or mount a file of tokens and say --token-file instead of --allow-unauthenticated.
CMD ["--listen", "0.0.0.0:8000", "--admin-listen", "0.0.0.0:8002", "--allow-unauthenticated"]
