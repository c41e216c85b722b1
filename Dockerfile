# kernserve in a container: stages that build, small stages that run. deploy/image.sh TARGET gives the arguments.
#
#   cpu    Debian 12: the CPU backend with oneDNN
#   cuda   Ubuntu 24.04: kernels for the GPU, and the CPU backend
#   full   cuda with cuBLASLt beside the daemon's own products; the target where none is named
#
# Both images of a pair must be the same release of the same distribution: the stage that runs installs the libraries, by
# package name, that the other stage linked. The CUDA runtime is linked statically, and the driver's library comes from the host: the
# images bring no toolkit.
ARG CUDA_VERSION=13.0.1
ARG DEBIAN_BUILD=debian:12
ARG DEBIAN_RUN=debian:12-slim

FROM ${DEBIAN_BUILD} AS cpu-build
ARG REVISION=unknown
WORKDIR /src
COPY . .
RUN deploy/image_build.sh /build OFF "${REVISION}"

FROM ${DEBIAN_RUN} AS cpu
RUN --mount=type=bind,from=cpu-build,source=/build/packages,target=/tmp/packages \
    apt-get update && xargs apt-get install -y --no-install-recommends < /tmp/packages && rm -rf /var/lib/apt/lists/*
COPY --from=cpu-build /build/image/ /
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="kernserve" \
      org.opencontainers.image.description="Serves CUDA kernels over HTTP; this image: the CPU backend" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.documentation="/usr/local/share/doc/kernserve/README.md" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="debian:12-slim"
# Inside a container loopback reaches nobody, so this listens on all of the container's addresses, without a token: publish
# the ports on loopback, or mount a file of tokens and set KERNSERVE_TOKEN_FILE and KERNSERVE_ALLOW_UNAUTHENTICATED=off. Options of the command line win
# over these, and replace none of them.
ENV KERNSERVE_LISTEN=0.0.0.0:8000 \
    KERNSERVE_ADMIN_LISTEN=0.0.0.0:8002 \
    KERNSERVE_ALLOW_UNAUTHENTICATED=on
USER 65532:65532
EXPOSE 8000 8002
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["kernserve", "--healthcheck"]
ENTRYPOINT ["kernserve"]

FROM nvidia/cuda:${CUDA_VERSION}-devel-ubuntu24.04 AS cuda-build
ARG REVISION=unknown
WORKDIR /src
COPY . .
RUN deploy/image_build.sh /build ON "${REVISION}"

FROM ubuntu:24.04 AS cuda
RUN --mount=type=bind,from=cuda-build,source=/build/packages,target=/tmp/packages \
    apt-get update && xargs apt-get install -y --no-install-recommends < /tmp/packages && rm -rf /var/lib/apt/lists/*
COPY --from=cuda-build /build/image/ /
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="kernserve" \
      org.opencontainers.image.description="Serves CUDA kernels over HTTP" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.documentation="/usr/local/share/doc/kernserve/README.md" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="ubuntu:24.04"
ENV KERNSERVE_LISTEN=0.0.0.0:8000 \
    KERNSERVE_ADMIN_LISTEN=0.0.0.0:8002 \
    KERNSERVE_ALLOW_UNAUTHENTICATED=on \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65532:65532
EXPOSE 8000 8002
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["kernserve", "--healthcheck"]
ENTRYPOINT ["kernserve"]

FROM cuda AS full
COPY --from=cuda-build /build/cublaslt/ /usr/local/lib/
USER 0:0
RUN ldconfig
USER 65532:65532
