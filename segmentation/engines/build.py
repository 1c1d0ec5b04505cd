"""Builds engines from models, or finds those that were built before."""

import logging
import platform
import re
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from segmentation._version import __version__
from segmentation.engines.builder import Built, build_plan
from segmentation.engines.spec import EngineSpec, meaning_of
from segmentation.engines.variant import installed, serves
from segmentation.engines.verdict import forget
from segmentation.errors import BackendError, EngineError
from segmentation.models.graph.comparison import MIN_IOU, compare
from segmentation.models.graph.fp16 import masks, to_fp16
from segmentation.models.graph.onnx_graph import (
    for_one_picture,
    in_order,
    is_quantized,
    prepare,
    session_of,
    states_in,
)
from segmentation.models.metadata import load_json
from segmentation.models.model import Model
from segmentation.models.sample_picture import picture_inputs
from segmentation.models.scores import probabilities
from segmentation.models.sidecar import (
    FORMAT,
    Sidecar,
    StateSpec,
    digest,
    is_sidecar,
    load_plan,
    sidecar_of,
    write_engine,
)
from segmentation.system.cache import engine_folder, locked, make_folder

log = logging.getLogger(__name__)

Pictures = Callable[[Model], NDArray[np.float32]]  # returns inputs (N, 3, H, W) of the model


def obtain(
    spec: EngineSpec,
    path: Path | None = None,
    *,
    force: bool = False,
    pictures: Pictures = picture_inputs,
    verify: bool = True,
) -> tuple[Path, bool]:
    """Returns the engine's path and whether the engine had to be built.

    By default the engine is in `engine_folder()` under `spec.file_name`. `pictures` returns the inputs on which masks
    are compared: those of `spec.frames`. Without `verify` a new engine is not run, which is left to the caller. If
    several processes need one engine at once, one builds it and the others wait. Raises `EngineError`.
    """
    target = path or engine_folder() / spec.file_name
    try:
        if path is None:
            make_folder(target.parent)
        with locked(target):
            reason = "asked for by --force" if force else _rebuild_reason(target, spec.fingerprint)
            if reason is None:
                log.info("%s: is there already", target)
                return target, False
            if spec.variant.module not in installed():
                raise EngineError(f"{target}: can't be built here, as {spec.variant} is not installed: {reason}")
            if target.exists():
                log.warning("%s: is built again: %s", target, reason)
            _check_sidecar_is_free(target)
            plan, sidecar = _build(spec, pictures, verify)
            forget(target)
            write_engine(target, plan, sidecar)
    except OSError as exc:
        raise EngineError(f"{target}: cannot be made ({exc.strerror}); choose another place with -o") from exc
    log.info("write: %s and %s", target, sidecar_of(target).name)
    return target, True


def trust(path: Path, spec: EngineSpec) -> None:
    """Writes a sidecar for the plan at `path`, built from `spec`'s model by another program: it can be loaded then.

    Raises `EngineError`.
    """
    try:
        plan = path.read_bytes()
    except OSError as exc:
        raise EngineError(f"{path}: cannot be read ({exc.strerror})") from exc
    model = spec.model
    fixed = spec.options.fixed_batch
    graph = prepare(model, fixed)
    sizes = [fixed or 1, 3, model.height, model.width]
    scores = next(in_order(session_of(graph), model, [np.zeros(sizes, model.dtype)]))[model.output_name]
    batch, dtype = fixed or -1, np.dtype(model.dtype).name
    built = Built(
        plan,
        {"name": model.input_name, "dtype": dtype, "shape": [batch, *sizes[1:]]},
        {"name": model.output_name, "dtype": dtype, "shape": [batch, *scores.shape[1:]]},
    )
    _check_sidecar_is_free(path)
    checked = "not built by this program: trusted by its user"
    sidecar = _sidecar(spec, built, _states(graph, model), "trusted", "unknown", None, checked, 0.0)
    write_engine(path, plan, sidecar)


def _rebuild_reason(path: Path, fingerprint: str) -> str | None:
    """Returns why the engine at `path` has to be built; `None` if it has this fingerprint and can be loaded."""
    if not path.exists():
        return "it is not there"
    try:
        _, sidecar = load_plan(path)
    except EngineError as exc:
        return str(exc)
    return None if sidecar.fingerprint == fingerprint else "its fingerprint is another, so it was built otherwise"


def _check_sidecar_is_free(path: Path) -> None:
    """Raises `EngineError` if the engine's sidecar would overwrite a .json that describes an ONNX."""
    beside = sidecar_of(path)
    if not beside.is_file():
        return
    try:
        ours = is_sidecar(load_json(beside))
    except ValueError:
        ours = False
    if not ours:
        raise EngineError(f"{path}: its sidecar would overwrite {beside}, which is no engine's; choose another name")


def _build(spec: EngineSpec, pictures: Pictures, verify: bool) -> tuple[bytes, Sidecar]:
    """Returns a plan and its sidecar. The steps: load, check, fold, batch (see `prepare`), FP16, build, verify."""
    begin = time.perf_counter()
    model, options = spec.model, spec.options
    graph = exact = prepare(model, options.fixed_batch)
    precision, comparison = options.precision, None
    if is_quantized(graph):
        precision = "quantized"
    elif model.dtype is np.float16:
        precision = "fp16"
    elif precision == "fp16":
        smaller = for_one_picture(model) if (options.fixed_batch or 1) > 1 else None
        graph, comparison = to_fp16(graph, model, pictures(model), smaller)
        log.info("fp16: mask IoU %.4f with FP32, %d nodes kept in FP32", comparison.iou, len(comparison.kept_in_fp32))
    timings = _timing_cache(spec) if options.timing_cache else None
    built = build_plan(graph, model, options, spec.variant, spec.capability, timings)
    seconds = time.perf_counter() - begin
    fp16 = asdict(comparison) if comparison is not None else None
    checked = "not run: it has a trial before it serves"
    sidecar = _sidecar(spec, built, _states(exact, model), spec.fingerprint, precision, fp16, checked, seconds)
    if verify:
        sidecar = replace(sidecar, checked=_verify(spec, pictures, exact, built.plan, sidecar))
    log.info("verify: %s", sidecar.checked)
    return built.plan, sidecar


def _states(graph: onnx.ModelProto, model: Model) -> list[StateSpec]:
    """Returns the states of a prepared graph."""
    return [
        {"name": one.name, "dtype": one.dtype, "shape": list(one.shape), "source": one.source}
        for one in states_in(session_of(graph), model)
    ]


def _verify(spec: EngineSpec, pictures: Pictures, exact: onnx.ModelProto, plan: bytes, sidecar: Sidecar) -> str:
    """Runs the plan if this GPU can, compares its masks with ONNX Runtime's, and returns a line on the result.

    Raises `EngineError` if the masks do not agree.
    """
    gpu = spec.gpu
    if gpu is None:
        return "not run: there is no NVIDIA GPU here"
    if not serves(spec.variant.module, gpu.capability) or spec.options.compute_capability not in (None, gpu.capability):
        return f"not run: it is not for this {gpu}"
    try:
        from segmentation.engines.session import run_plan
    except ModuleNotFoundError as exc:
        return f"not run: {exc.name} is not installed"
    inputs: NDArray[np.floating] = pictures(spec.model).astype(spec.model.dtype)
    try:
        actual = probabilities(run_plan(plan, sidecar, inputs), spec.model)
    except BackendError as exc:
        return f"not run: {exc}"
    expected = masks(session_of(exact), spec.model, inputs)
    result = compare(expected, actual)
    if result.iou < MIN_IOU:
        raise EngineError(
            f"{spec.model.path}: the engine's masks on {gpu} agree with FP32 only to an IoU of {result.iou:.4f} "
            f"({MIN_IOU} is needed); build it with --precision fp32"
        )
    return f"run on {gpu}: mask IoU {result.iou:.4f} with FP32, largest difference {result.largest_difference:.4f}"


def _sidecar(
    spec: EngineSpec,
    built: Built,
    states: list[StateSpec],
    fingerprint: str,
    precision: str,
    fp16: dict[str, object] | None,
    checked: str,
    seconds: float,
) -> Sidecar:
    """Returns the sidecar of a plan."""
    return Sidecar(
        engine_format=FORMAT,
        plan_sha256=digest(built.plan),
        plan_bytes=len(built.plan),
        fingerprint=fingerprint,
        ingredients=spec.ingredients,
        variant=spec.variant.module,
        variant_version=spec.variant.version,
        input=built.input,
        output=built.output,
        states=states,
        batch=list(spec.options.batch),
        **meaning_of(spec.model),
        precision=precision,
        fp16=fp16,
        checked=checked,
        build_seconds=round(seconds, 3),
        versions={
            "segmentation": __version__,
            "python": platform.python_version(),
            "onnx": onnx.__version__,
            "onnxruntime": onnxruntime.__version__,
        },
    )


def _timing_cache(spec: EngineSpec) -> Path | None:
    """Returns the path of the timing cache for this GPU and version; `None` for TensorRT-RTX, which times nothing."""
    if spec.variant.rtx or spec.gpu is None:
        return None
    folder = engine_folder()
    make_folder(folder)
    return folder / f"timing-{re.sub(r'[^a-z0-9]+', '-', spec.gpu.name.lower())}-{spec.variant.version}.cache"
