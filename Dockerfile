# syntax=docker/dockerfile:1
#
# The program with its GPU stages. Build it, and run it on the videos of the current folder:
#
#     docker build -t segmentation .
#     docker run --rm --gpus all --user "$(id -u):$(id -g)" -v "$PWD:/videos" -v segmentation-cache:/cache \
#         segmentation input.mp4
#
# --gpus needs the NVIDIA Container Toolkit, and a driver for CUDA 13 (580 or newer). --user makes the output yours;
# without it the user is 1000. The volume keeps what is made once for a GPU or a model: leave it out, and each run makes
# it again. Without --gpus everything runs on the CPU. A small image for the CPU alone, without PyTorch and CUDA:
#
#     docker build -t segmentation --build-arg BASE=debian:trixie-slim --build-arg EXTRAS= .

# The base variant: PyTorch's wheels bring CUDA's libraries, NVRTC among them, which compiles the project's kernels.
ARG BASE=nvidia/cuda:13.0.2-base-ubuntu24.04
ARG EXTRAS=[gpu]

# hadolint ignore=DL3006
FROM $BASE AS base
# Ubuntu and Debian move their packages' versions by themselves, and take the old ones away.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 srt-tools \
    && apt-get clean && rm -rf /var/lib/apt/lists/*
ENV PATH=/opt/venv/bin:$PATH

# uv compares each package with its SHA-256 in the lock, and does not stay in the image.
FROM base AS libraries
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*
ARG UV=0.13.9
RUN python3 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir "uv==$UV"
WORKDIR /opt/segmentation
COPY pyproject.toml uv.lock ./
ARG EXTRAS
# hadolint ignore=SC2086,DL4006
RUN extras=$(echo "$EXTRAS" | sed 's/[][]//g; s/,/ /g; s/[a-z]\+/--extra &/g') \
    && UV_PROJECT_ENVIRONMENT=/opt/venv UV_PYTHON_DOWNLOADS=never \
       /opt/uv/bin/uv sync --frozen --no-cache --no-install-project $extras

# For a GPU the wheel has the kernels' machine code and, where there is a compiler, the native decoder.
FROM libraries AS wheel
COPY README.md LICENSE setup.py ./
COPY tools/build_kernels.py tools/
COPY segmentation segmentation
ARG EXTRAS
# hadolint ignore=DL3008
RUN case "$EXTRAS" in *gpu*) \
        apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/* \
        && python tools/build_kernels.py ;; \
    esac \
    && /opt/uv/bin/uv build --wheel --no-cache -o /opt/wheel

FROM base
LABEL org.opencontainers.image.title="segmentation" org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.description="Finds people in a video and blurs, replaces or masks the rest"
# The libraries are gigabytes: a layer of their own, which changes only with the lock.
COPY --from=libraries /opt/venv /opt/venv
RUN --mount=type=bind,from=wheel,source=/opt,target=/mnt \
    /mnt/uv/bin/uv pip install --python /opt/venv/bin/python --no-deps --no-cache --compile-bytecode /mnt/wheel/*.whl

# The package sets this by itself; here it covers other programs that import ONNX Runtime too.
ENV ORT_DISABLE_TELEMETRY=1

# Any user may be given to `docker run`, and most have no home here. Python shall import nothing from among the videos.
ENV SEGMENTATION_ENGINES=/cache XDG_CACHE_HOME=/cache HOME=/cache PYTHONSAFEPATH=1
RUN mkdir -m 1777 /cache && mkdir /videos && chown 1000:1000 /videos
USER 1000:1000
WORKDIR /videos
# No HEALTHCHECK and no init: most commands end by themselves and answer nobody. deploy/compose.yaml has both for those
# that go on.
ENTRYPOINT ["python", "-m", "segmentation"]
CMD ["--help"]
