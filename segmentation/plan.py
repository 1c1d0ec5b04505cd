"""Which implementation serves each stage on this machine, and why. The only switch between them.

An implementation is a class named in `IMPLEMENTATIONS`; its module, with its heavy imports, is loaded only when it is a
candidate. Its `describe(config)` says in one line what it runs on, or raises `BackendError` where it can't run.
"""

import logging
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from segmentation.config import STAGES, Config
from segmentation.errors import BackendError, ConfigError
from segmentation.model import ENGINE

log = logging.getLogger(__name__)

IMPLEMENTATIONS = {
    "decode": {"pyav": "segmentation.decode.pyav:PyAVDecoder"},
    "preprocess": {"opencv": "segmentation.preprocess.opencv:OpenCVPreprocessor"},
    "infer": {
        "onnxruntime": "segmentation.inference.onnxruntime:OnnxRuntimeInference",
        "torch": "segmentation.inference.torch:TorchInference",
        "tensorrt": "segmentation.inference.tensorrt:TensorRTInference",
    },
    "postprocess": {"opencv": "segmentation.postprocess.opencv:OpenCVPostprocessor"},
    "encode": {"x264": "segmentation.encode.x264:X264Encoder"},
}
# Candidates by stage, the first that can run serves it.
BASELINE = {
    "decode": ("pyav",),
    "preprocess": ("opencv",),
    "infer": ("torch", "onnxruntime"),  # PyTorch where it finds a CUDA device, see its `describe`
    "postprocess": ("opencv",),
    "encode": ("x264",),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """What serves one stage: its name, the class, and what it runs on."""

    name: str
    implementation: Any  # fulfils the protocol of the stage's package
    reason: str


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
        return "\n".join(f"{stage:<12} {choice.name:<12} {choice.reason}" for stage, choice in choices)


def make_plan(config: Config) -> Plan:
    """Chooses for every stage. Raises `BackendError` if what `config` asks for can't run here."""
    if config.mode == "optimized":
        raise BackendError(
            "--optimized: this version has no GPU implementation of any stage; use --baseline or neither"
        )
    return Plan(*(_choose(stage, config) for stage in STAGES))


def _choose(stage: str, config: Config) -> Choice:
    wanted: str | None = getattr(config, stage)
    known = IMPLEMENTATIONS[stage]
    if wanted is not None and wanted not in known:
        raise ConfigError(f"--{stage} {wanted}: choose from {', '.join(known)}")
    candidates = (wanted,) if wanted is not None else BASELINE[stage]
    if stage == "infer" and config.model.endswith(ENGINE):
        if wanted not in (None, "tensorrt"):
            raise ConfigError(
                f"--infer {wanted}: can't run the engine {config.model}; use --infer tensorrt or the ONNX"
            )
        candidates = ("tensorrt",)
    refusals = []
    for name in candidates:
        module, _, attribute = known[name].partition(":")
        try:
            implementation = getattr(import_module(module), attribute)
            return Choice(name, implementation, implementation.describe(config))
        except ModuleNotFoundError as exc:
            refusals.append(f"{name}: the package {exc.name} is not installed; pip install 'video-segmentation[gpu]'")
        except BackendError as exc:
            refusals.append(f"{name}: {exc}")
        log.info("%s: %s", stage, refusals[-1])
    raise BackendError(f"{stage} can't be served here: {'; '.join(refusals)}")
