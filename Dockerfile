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
# hadolint ignore=DL3006
FROM $BASE
ARG EXTRAS=[gpu]

# Ubuntu and Debian move their packages' versions by themselves, and take the old ones away.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv srt-tools \
    && apt-get clean && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/venv

ENV PATH=/opt/venv/bin:$PATH

# NVDEC and NVENC are libraries of the driver, which the toolkit puts into the container only when asked for video.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,video,utility

# The dependencies are gigabytes: a layer of their own, which changes only with the lock. uv compares each package with
# its SHA-256, and does not stay in the image.
WORKDIR /opt/segmentation
ARG UV=0.13.9
COPY pyproject.toml uv.lock ./
# hadolint ignore=SC2086
RUN python3 -m venv /tmp/uv && /tmp/uv/bin/pip install --no-cache-dir "uv==$UV" \
    && extras=$(echo "$EXTRAS" | tr -d '[]' | tr ',' '\n' | sed '/^$/d; s/^/--extra /') \
    && UV_PROJECT_ENVIRONMENT=/opt/venv UV_PYTHON_DOWNLOADS=never \
       /tmp/uv/bin/uv sync --frozen --no-cache --no-install-project $extras \
    && rm -rf /tmp/uv*

COPY README.md LICENSE ./
COPY segmentation segmentation
RUN pip install --no-cache-dir --no-deps --force-reinstall . && rm -rf build ./*.egg-info

# The package sets this by itself; here it covers other programs that import ONNX Runtime too.
ENV ORT_DISABLE_TELEMETRY=1

# Any user may be given to `docker run`, and most have no home here. Python shall import nothing from among the videos.
ENV SEGMENTATION_ENGINES=/cache XDG_CACHE_HOME=/cache HOME=/cache PYTHONSAFEPATH=1
RUN mkdir -m 1777 /cache && mkdir /videos && chown 1000:1000 /videos
USER 1000:1000
WORKDIR /videos
ENTRYPOINT ["python", "-m", "segmentation"]
CMD ["--help"]
