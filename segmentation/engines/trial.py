"""The trial of an engine before it serves on a machine: its masks against FP32, its time against `torch-fp16`."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from segmentation.engines.build import obtain
from segmentation.engines.spec import EngineSpec
from segmentation.engines.verdict import BEGUN, DECLINED, FAILED, LONGEST, PROVEN, Verdict, VerdictFile
from segmentation.errors import BackendError, DeviceMemoryError, NotProven, SegmentationError, one_line
from segmentation.gpu.errors import translate_gpu_error
from segmentation.models.graph.comparison import MIN_IOU, compare
from segmentation.models.model import Model
from segmentation.models.sample_picture import picture_inputs
from segmentation.options.config import Config
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference
from segmentation.system.cache import locked, make_folder

log = logging.getLogger(__name__)

_MARGIN = 1.05  # of torch-fp16's time: a smaller difference is noise

Pictures: TypeAlias = NDArray[np.floating]  # (N, 3, H, W), inputs of the network


class Measured(NamedTuple):
    """A network's masks and times on the pictures of a trial."""

    masks: NDArray[np.float32]  # (N, h, w)
    milliseconds: float  # for a batch


def try_engine(
    spec: EngineSpec,
    batch: int,
    engine: Callable[[Path, Pictures], Measured],
    rival: Callable[[Pictures], Measured],
) -> Verdict:
    """Returns the verdict on an engine, which is built for its trial if need be, and keeps it.

    `engine` loads the engine at a path and runs the pictures in batches of `batch`, and so does `rival` with
    torch-fp16. What the engine raises is part of the verdict, unless it passes: full memory or a full disk. If several
    processes need one trial at once, one makes it and the others wait. Raises `NotProven` where there is no verdict,
    and `DeviceMemoryError`.
    """
    file = VerdictFile(spec, batch)
    try:
        make_folder(file.path.parent)
        with locked(file.path):
            verdict = file.read()
            if verdict is None:
                verdict = _trial(file, spec, batch, engine, rival)
                file.write(verdict)
            elif verdict.outcome == BEGUN:
                verdict = Verdict(outcome=FAILED, reason="the process ended when the engine first ran")
                file.write(verdict)
            return verdict
    except OSError as exc:
        elsewhere = "name a folder that can be written with SEGMENTATION_ENGINES"
        raise NotProven(f"{file.path}: cannot be written ({exc.strerror}); {elsewhere}") from exc


def _trial(
    file: VerdictFile,
    spec: EngineSpec,
    batch: int,
    engine: Callable[[Path, Pictures], Measured],
    rival: Callable[[Pictures], Measured],
) -> Verdict:
    """Builds and runs the engine. Raises the error of a GPU whose memory is full, and `NotProven` for what passes."""
    try:
        path, _ = obtain(spec, verify=False)
        few: Pictures = picture_inputs(spec.model).astype(spec.model.dtype)
        # At least one whole batch, and one that is not.
        order = [number % len(few) for number in range(max(batch, len(few)) + 1)]
        with file.first_run():
            measured = engine(path, few[order])
        return _judged(measured, _fp32(spec.model, few, order), lambda: rival(few[order]))
    except NotProven:
        raise
    except BackendError as exc:
        raise NotProven(f"engine not tried: {exc}") from exc
    except Exception as exc:
        if isinstance(translate_gpu_error(exc), DeviceMemoryError):
            raise
        if isinstance(exc, OSError | MemoryError) or isinstance(exc.__cause__, OSError | MemoryError):
            raise NotProven(f"engine not tried: {_words(exc)}") from exc
        return Verdict(outcome=FAILED, reason=_words(exc))


def _fp32(model: Model, pictures: Pictures, order: list[int]) -> NDArray[np.float32]:
    """Returns the masks of pictures in this order, of the network's own file, run by ONNX Runtime on the CPU."""
    network = OnnxRuntimeInference(model, Config())
    masks = network(pictures[order]).masks if model.form.recurrent else network(pictures).masks[order]
    return np.asarray(masks)


def _judged(measured: Measured, expected: NDArray[np.float32], rival: Callable[[], Measured]) -> Verdict:
    """Compares masks (N, h, w) with those of FP32 and, if they agree, the time with the rival's."""
    masks = measured.masks
    if masks.shape != expected.shape:
        return Verdict(outcome=FAILED, reason=f"its masks are {masks.shape}, those of FP32 {expected.shape}")
    compared, theirs = compare(expected, masks), None
    outcome, reason = PROVEN, ""
    if compared.iou < MIN_IOU:
        outcome = FAILED
        reason = f"its masks agree with FP32 only to an IoU of {compared.iou:.4f} ({MIN_IOU} is needed)"
    elif not compared.covered:
        outcome, reason = DECLINED, "the pictures that it is tried on show nothing that is kept, so they prove nothing"
    else:
        theirs = _milliseconds(rival)
        if theirs is not None and measured.milliseconds > _MARGIN * theirs:
            outcome = DECLINED
            reason = f"it takes {measured.milliseconds:.2f} ms for a batch, and torch-fp16 {theirs:.2f} ms"
    return Verdict(
        outcome=outcome,
        reason=reason,
        pictures=compared.pictures,
        iou=compared.iou,
        largest_difference=compared.largest_difference,
        covered=compared.covered,
        tensorrt_ms=round(measured.milliseconds, 4),
        torch_fp16_ms=None if theirs is None else round(theirs, 4),
    )


def _milliseconds(rival: Callable[[], Measured]) -> float | None:
    """Returns the rival's time; `None` where the rival can't run the network, which leaves the engine without one.

    Raises `DeviceMemoryError`, and `NotProven` where the GPU fails, which says nothing about either.
    """
    try:
        return rival().milliseconds
    except Exception as exc:
        fault = translate_gpu_error(exc)
        if isinstance(fault, DeviceMemoryError):
            raise
        if fault is not None:
            raise NotProven(f"engine not timed: {fault}") from exc
        log.info("torch-fp16 can't be timed (%s)", _words(exc))
        return None


def _words(exc: Exception) -> str:
    """Returns an error's text in one line: our own text as it is, and the beginning of a library's."""
    if isinstance(exc, SegmentationError):
        return " ".join(str(exc).split())[:LONGEST]
    return f"{type(exc).__name__}: {one_line(exc)}"
