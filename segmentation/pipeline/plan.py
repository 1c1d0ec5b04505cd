"""Which implementation serves each stage on this machine, and why. The only switch between them.

An implementation is a class named in `IMPLEMENTATIONS`; its module, with its heavy imports, is loaded only when it is a
candidate. Its `describe(config, info)` says in one line what it runs on, or raises `BackendError` where it can't run.
"""

import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from segmentation.config import STAGES, Config
from segmentation.effect import Effect
from segmentation.errors import BackendError, ConfigError, LacksEngine, one_line
from segmentation.frames import VideoInfo
from segmentation.gpu.discovery import device_index, enter_context, require_torch, require_video_libraries
from segmentation.models.model import ENGINE, Model
from segmentation.stages.encode.nvenc_support import nvenc_engine
from segmentation.stages.masks.saved import MaskReader
from segmentation.tensorrt.variant import choose, find_gpu, installed

log = logging.getLogger(__name__)

# Locking pages takes a second for each few gigabytes, by one thread. PyTorch reads this when it is imported.
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "pinned_use_cuda_host_register:True,pinned_num_register_threads:8")

IMPLEMENTATIONS = {
    "decode": {
        "pyav": "segmentation.stages.decode.pyav:PyAVDecoder",
        "nvdec": "segmentation.stages.decode.nvdec:NvdecDecoder",
    },
    "preprocess": {
        "opencv": "segmentation.stages.preprocess.opencv:OpenCVPreprocessor",
        "cuda": "segmentation.stages.preprocess.cuda:CudaPreprocessor",
    },
    "infer": {
        "onnxruntime": "segmentation.stages.inference.onnxruntime:OnnxRuntimeInference",
        "torch": "segmentation.stages.inference.torch:TorchInference",
        "torch-fp16": "segmentation.stages.inference.torch_fp16:TorchFp16Inference",
        "tensorrt": "segmentation.stages.inference.tensorrt:TensorRTInference",
    },
    "postprocess": {
        "opencv": "segmentation.stages.postprocess.opencv:OpenCVPostprocessor",
        "cvcuda": "segmentation.stages.postprocess.cvcuda:CvCudaPostprocessor",
    },
    "encode": {
        "x264": "segmentation.stages.encode.pyav:PyAVEncoder",
        "x264-segments": "segmentation.stages.encode.segments:SegmentEncoder",
        "nvenc": "segmentation.stages.encode.nvenc:NvencEncoder",
        "jpeg": "segmentation.stages.encode.jpeg:JpegEncoder",
        "cutout": "segmentation.stages.encode.cutout:CutoutEncoder",
    },
}
# Candidates by stage, the first that can run serves it.
BASELINE = {
    "decode": ("pyav",),
    "preprocess": ("opencv",),
    "infer": ("torch", "onnxruntime"),  # PyTorch where it finds a CUDA device, see its `describe`
    "postprocess": ("opencv",),
    "encode": ("x264",),
}


OPTIMIZED = {
    "decode": ("nvdec",),
    "preprocess": ("cuda",),
    "infer": ("tensorrt", "torch-fp16"),
    "postprocess": ("cvcuda",),
    "encode": ("nvenc",),
}
AUTO = {stage: (*OPTIMIZED[stage], *BASELINE[stage]) for stage in STAGES}
# What serves where the GPU lacks an engine: its NVDEC does not know the codec, or it has no NVENC.
SUBSTITUTES = {"decode": "pyav", "encode": "x264-segments"}
_TABLES = {"baseline": BASELINE, "optimized": OPTIMIZED, "auto": AUTO}
# Their modules can't be imported, or say little, where there is no GPU: so that is asked first.
_ON_GPU = frozenset({"nvdec", "cuda", "cvcuda", "torch-fp16", "tensorrt", "nvenc", "jpeg"})


@dataclass(frozen=True, slots=True)
class Choice:
    """What serves one stage: its name, the class, and what it runs on."""

    name: str
    implementation: Any  # fulfils the protocol of the stage's package
    reason: str
    instead_of: str = ""  # why those that come first do not serve

    @property
    def memory(self) -> str:
        """Where it takes what it works on from: "host" or "cuda"."""
        return str(self.implementation.memory)

    @property
    def on_gpu(self) -> bool:
        """Whether it takes a `Gpu`."""
        return self.memory == "cuda"


@dataclass(frozen=True, slots=True)
class Plan:
    """One choice a stage, made before the first frame and never changed."""

    decode: Choice
    preprocess: Choice
    infer: Choice
    postprocess: Choice
    encode: Choice

    def names(self) -> dict[str, str]:
        """Stage to implementation, as in `--json`."""
        return {stage: getattr(self, stage).name for stage in STAGES}

    def __str__(self) -> str:
        choices = ((stage, getattr(self, stage)) for stage in STAGES)
        return "\n".join(
            f"{stage:<12} {choice.name:<12} {choice.reason}" + (f" ({choice.instead_of})" if choice.instead_of else "")
            for stage, choice in choices
        )

    @property
    def on_gpu(self) -> bool:
        """Whether any stage does."""
        return any(getattr(self, stage).on_gpu for stage in STAGES)


def make_plan(
    config: Config,
    info: VideoInfo | None = None,
    begin: Callable[[Any], None] = lambda infer: None,
    *,
    model: Model | None = None,
) -> Plan:
    """Chooses for every stage, for the video `info` and the `model` where they are known: what decodes and what infers
    depends on them.

    What is to infer is told to `begin` as soon as that is known, before the libraries of most others are imported.
    Raises `BackendError` if what `config` asks for can't run here.
    """
    mode = _mode(config)
    with ThreadPoolExecutor(1) as pool:
        if mode != "baseline":  # while libraries are imported
            pool.submit(_enter_context, config)
        encode = pool.submit(choose_encoder, config, info)
        if config.encode is not None:
            encode.result()  # nothing to look for; and what is begun may stand in for libraries that it imports
        chosen = {"infer": _choose("infer", _TABLES[mode]["infer"], config, info, model)}
        begin(chosen["infer"].implementation)
        for stage in ("decode", "preprocess", "postprocess"):
            chosen[stage] = _choose(stage, _TABLES[mode][stage], config, info)
        plan = Plan(**chosen, encode=encode.result())
    for stage in STAGES:
        choice: Choice = getattr(plan, stage)
        if choice.instead_of and mode != "baseline" and not choice.on_gpu:
            log.warning("%s: %s on the CPU (%s)", stage, choice.name, choice.instead_of)
    if config.compile and plan.infer.name != "torch-fp16":
        log.warning("infer: --compile is for torch-fp16 only, %s runs as it is", plan.infer.name)
    return plan


def choose_encoder(config: Config, info: VideoInfo | None = None) -> Choice:
    """What encodes the effect of `config`. Raises `BackendError`."""
    return _choose("encode", _TABLES[_mode(config)]["encode"], config, info)


def with_stage(plan: Plan, stage: str, name: str, config: Config, info: VideoInfo) -> Plan:
    """The plan with another implementation of one stage. Raises `BackendError`."""
    named: dict[str, Any] = {stage: name}
    chosen: dict[str, Choice] = {stage: _choose(stage, (), replace(config, **named), info)}
    return replace(plan, **chosen)


def _enter_context(config: Config) -> None:
    with suppress(BackendError):  # said where a stage is chosen
        enter_context(device_index(config))


def _mode(config: Config) -> str:
    """The table that serves: without a GPU, `auto` is the baseline. Raises `BackendError` if a GPU that is named is not
    there."""
    if config.device not in (None, "cpu"):
        device_index(config)
    without = config.mode == "auto" and (config.device == "cpu" or find_gpu() is None)
    return "baseline" if without else config.mode


def _choose(
    stage: str, candidates: tuple[str, ...], config: Config, info: VideoInfo | None, model: Model | None = None
) -> Choice:
    if config.masks is not None and stage in ("preprocess", "infer"):
        return Choice("masks", MaskReader, MaskReader.describe(config, info))
    wanted: str | None = getattr(config, stage)
    if stage == "encode" and Effect.parse(config.effect).kind == "cutout":
        wanted = "cutout"  # the one that encodes alpha
    known = IMPLEMENTATIONS[stage]
    if wanted is not None and wanted not in known:
        raise ConfigError(f"--{stage} {wanted}: choose from {', '.join(known)}")
    candidates = (wanted,) if wanted is not None else candidates
    if stage == "infer" and str(config.model).endswith(ENGINE):
        if wanted not in (None, "tensorrt"):
            raise ConfigError(
                f"--infer {wanted}: can't run the engine {config.model}; use --infer tensorrt or the ONNX"
            )
        candidates = ("tensorrt",)
    refusals: list[str] = []
    while candidates:
        name, *rest = candidates
        try:
            if model is not None and model.form.recurrent and name != "onnxruntime":
                raise BackendError(f"{model.name} carries states from frame to frame, which onnxruntime alone does")
            implementation, reason = _candidate(stage, name, config, info)
            return Choice(name, implementation, reason, "; ".join(refusals))
        except LacksEngine as exc:
            refusals.append(str(exc))
            if wanted is None and stage in SUBSTITUTES:
                rest = [SUBSTITUTES[stage], *rest]
        except BackendError as exc:
            refusals.append(f"{name}: {exc}")
        candidates = tuple(rest)
        log.info("%s: %s", stage, refusals[-1])
    asked = "--optimized: " if config.mode == "optimized" else ""
    raise BackendError(f"{asked}{stage} can't be served here: {'; '.join(refusals)}")


def _candidate(stage: str, name: str, config: Config, info: VideoInfo | None) -> tuple[Any, str]:
    """An implementation and what it runs on. Raises `BackendError` if it can't run here."""
    if name in _ON_GPU:
        device_index(config)
    if name == "nvdec":
        require_video_libraries()
    if name == "nvenc":
        nvenc_engine(config)
    if name == "tensorrt":
        choose(find_gpu(device_index(config)), installed())
    module, _, attribute = IMPLEMENTATIONS[stage][name].partition(":")
    try:
        implementation = getattr(import_module(module), attribute)
    except ModuleNotFoundError as exc:
        raise BackendError(f"the package {exc.name} is not installed; pip install 'video-segmentation[gpu]'") from exc
    except Exception as exc:  # what else keeps a GPU library from being loaded has no common class
        raise BackendError(f"{module} can't be loaded ({one_line(exc)})") from exc
    if name in _ON_GPU:
        require_torch()
    return implementation, implementation.describe(config, info)
