"""An engine of TensorRT-RTX, built without a GPU. With one, the stage `infer tensorrt` builds and runs an engine."""

import time
from collections.abc import Iterator
from pathlib import Path

from segmentation.doctor.finding import ABSENT, OK, Finding, Request
from segmentation.engines.spec import EngineOptions, EngineSpec
from segmentation.engines.variant import Variant, installed
from segmentation.models.model import load_model
from segmentation.models.sidecar import load_plan
from segmentation.options.config import Config
from segmentation.system.imports import loaded
from segmentation.system.installation import install


def check(request: Request) -> Iterator[Finding]:
    """Yields the finding."""
    version = installed().get("tensorrt_rtx")
    if version is None:
        yield Finding(name="engine", outcome=ABSENT, detail="TensorRT-RTX is not installed", mend=install("rtx"))
        return
    variant = Variant("tensorrt_rtx", version)
    spec = EngineSpec(model=load_model(Config()), options=EngineOptions(), variant=variant, gpu=None, frames=None)
    obtain = loaded("segmentation.engines.build", "obtain", "rtx")  # needs onnx, which the CPU's part lacks
    begin = time.perf_counter()
    path, _ = obtain(spec, Path(request.folder) / "person.engine")
    size, seconds = len(load_plan(path)[0]), time.perf_counter() - begin
    detail = f"{variant} builds one in {seconds:.1f} s, {size / 2**20:.1f} MB; without a GPU it is not run"
    yield Finding(name="engine", outcome=OK, detail=detail, figures={"seconds": round(seconds, 2), "bytes": size})
