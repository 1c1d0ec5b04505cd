"""Finds engines that other machines have built, and their runtimes, for TensorRT's lean runtime alone."""

from dataclasses import replace
from pathlib import Path

from segmentation.engines.spec import EngineOptions, EngineSpec
from segmentation.engines.variant import Variant
from segmentation.errors import BackendError, EngineError
from segmentation.gpu.discovery import GpuInfo
from segmentation.models.model import Model
from segmentation.models.sidecar import read_sidecar
from segmentation.system.cache import engine_folder


def ready_spec(model: Model, options: EngineOptions, gpu: GpuInfo) -> EngineSpec:
    """Returns the specification by which an engine in `engine_folder()` was built, of whatever version of TensorRT.

    Raises `BackendError` if no engine there is of this model, these options and this GPU.
    """
    options = replace(options, version_compatible=True)
    for path in sorted(engine_folder().glob("*.engine")):
        try:
            sidecar = read_sidecar(path)
        except EngineError:
            continue
        variant = Variant(sidecar.variant, sidecar.variant_version)
        if variant.module != "tensorrt":
            continue
        spec = EngineSpec(model=model, options=options, variant=variant, gpu=gpu)
        if spec.file_name == path.name:
            return spec
    raise BackendError(
        f"TensorRT's lean runtime builds nothing, and {engine_folder()} has no engine of {model.name} for {gpu}: "
        "build one with segmentation-build --version-compatible where TensorRT is, and put both files there"
    )


def lean_library(version: str) -> Path:
    """Returns the lean runtime of another version than the one that is installed. Raises `BackendError`."""
    folder = engine_folder() / f"lean-{version}"
    found = sorted(folder.rglob("libnvinfer_lean.so*"))
    if not found:
        raise BackendError(
            f"the engine needs the lean runtime of TensorRT {version}, its own: pip install --no-deps --target "
            f"{folder} tensorrt-lean-cu13-libs=={version}"
        )
    return found[0]
