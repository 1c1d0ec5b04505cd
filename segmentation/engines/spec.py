"""The specification of an engine: the builder's options, checked on creation, and the fingerprint."""

import json
import re
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from segmentation.engines.variant import LEAN, Variant, serves
from segmentation.errors import BackendError, ConfigError, EngineError
from segmentation.gpu.discovery import GpuInfo, dotted
from segmentation.models.model import Model
from segmentation.models.sample_picture import PICTURE
from segmentation.models.sidecar import Ingredients, Sidecar, StatedMeaning, digest

RECIPE = 1  # is raised whenever the same ingredients give another graph than before
HARDWARE = ("none", "ampere-plus", "same-compute-capability")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of one build. Raises `ConfigError` if a value is out of range."""

    precision: str = "fp16"  # or "fp32"; a graph with Q/DQ nodes, or in FP16, is taken as it is
    batch: tuple[int, int, int] = (1, 16, 16)  # least, best, largest number of pictures; fixed if all are equal
    optimization_level: int | None = None  # 0 (fast build) to 5 (fast engine); None: the builder's default, 3
    workspace: int | None = None  # MiB that a layer may use while it runs; None: all of the GPU's
    aux_streams: int = 0  # streams beside the pipeline's own
    hardware_compatibility: str = "none"  # TensorRT only: the other GPUs that are to run the engine
    version_compatible: bool = False  # TensorRT only: the lean runtime of later versions is to run the engine
    compute_capability: tuple[int, int] | None = None  # TensorRT-RTX only: build for this one alone
    timing_cache: bool = True  # TensorRT only: keep the times measured on this GPU for the next build

    def __post_init__(self) -> None:
        if self.precision not in ("fp16", "fp32"):
            raise ConfigError(
                f"precision {self.precision!r} is unknown: choose fp16 or fp32; INT8 and FP8 come with the model, as "
                "Q/DQ nodes"
            )
        least, best, largest = self.batch
        if not 1 <= least <= best <= largest:
            raise ConfigError(f"batch {least},{best},{largest}: least, best and largest must rise from 1 or more")
        if self.optimization_level is not None and not 0 <= self.optimization_level <= 5:
            raise ConfigError(f"optimization level {self.optimization_level}: must lie in 0 to 5")
        if self.workspace is not None and self.workspace < 1:
            raise ConfigError(f"workspace {self.workspace}: must be 1 MiB or more")
        if not 0 <= self.aux_streams <= 7:
            raise ConfigError(f"auxiliary streams {self.aux_streams}: must lie in 0 to 7")
        if self.hardware_compatibility not in HARDWARE:
            raise ConfigError(
                f"hardware compatibility {self.hardware_compatibility!r} is unknown: choose {', '.join(HARDWARE)}"
            )
        if self.compute_capability is not None and not serves("tensorrt_rtx", self.compute_capability):
            raise ConfigError(f"compute capability {dotted(self.compute_capability)}: TensorRT-RTX does not serve it")

    def of(self, model: Model) -> "EngineOptions":
        """Returns the options for a model, whose frames go through one by one if it is recurrent."""
        return replace(self, batch=(1, 1, 1)) if model.form.recurrent else self

    @property
    def fixed_batch(self) -> int | None:
        """The batch size if it is fixed; `None` if the batch is dynamic."""
        return self.batch[0] if self.batch[0] == self.batch[2] else None

    def check(self, variant: Variant) -> None:
        """Raises `ConfigError` if `variant` lacks one of the options, which would otherwise be left out silently."""
        if variant.rtx and self.hardware_compatibility != "none":
            raise ConfigError(
                f"hardware compatibility {self.hardware_compatibility}: {variant} has no such option, its engines run "
                "on all GPUs from 8.0 that it serves"
            )
        if variant.rtx and self.version_compatible:
            raise ConfigError(f"version compatibility: engines of {variant} run on that release alone")
        if not variant.rtx and self.compute_capability is not None:
            raise ConfigError(f"compute capability: {variant} builds for the GPU at hand; that is for TensorRT-RTX")


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """Everything that decides one engine.

    Raises `ConfigError` if `variant` lacks one of the options or a recurrent network is to have a batch, and
    `EngineError` for networks that find single things.
    """

    model: Model
    options: EngineOptions
    variant: Variant
    gpu: GpuInfo | None = None  # the one at hand, if there is one
    frames: Path | None = None  # a video to compare FP16 on; None: the package's picture

    def __post_init__(self) -> None:
        self.options.check(self.variant)
        if self.model.detection is not None:
            raise EngineError(f"{self.model.path}: finds single things, which no engine does here; leave it an .onnx")
        if self.model.form.recurrent and self.options.fixed_batch != 1:
            raise ConfigError(
                f"batch {','.join(map(str, self.options.batch))}: {self.model.name} carries states from frame to "
                "frame, so it takes one frame at a time; leave out --batch"
            )

    @property
    def at_hand(self) -> GpuInfo:
        """The GPU at hand, without which the full TensorRT builds nothing. Raises `BackendError` if there is none."""
        if self.gpu is None:
            raise BackendError(f"{self.variant}: needs an NVIDIA GPU here")
        return self.gpu

    @property
    def capability(self) -> tuple[int, int] | None:
        """The compute capability for TensorRT-RTX; `None` is all from 8.0 on, so Turing's 7.5 has to be stated."""
        turing = (7, 5) if self.gpu is not None and self.gpu.capability == (7, 5) else None
        return self.options.compute_capability or turing

    @cached_property
    def ingredients(self) -> Ingredients:
        """Everything that the engine depends on, found without building anything."""
        model, options = self.model, asdict(self.options)
        for name in ("precision", "batch", "timing_cache", "compute_capability"):
            options.pop(name)  # stated by keys of their own; the timing cache does not change results
        if self.variant.rtx:
            gpu, capability = "any", dotted(self.capability) if self.capability else "8.0 and newer"
        else:
            gpu, capability = self.at_hand.name, dotted(self.at_hand.capability)
        fp16 = self.options.precision == "fp16"
        return {
            "recipe": RECIPE,
            "onnx_sha256": digest(model.path.read_bytes()),
            "input_size": [model.height, model.width],
            "output": model.output_name,
            "inputs": {extra.name: list(extra.values) for extra in model.form.extras},
            "precision": self.options.precision,
            "frames_sha256": digest((self.frames or PICTURE).read_bytes()) if fp16 else None,
            "batch": list(self.options.batch),
            "variant": self.variant.module,
            "variant_version": self.variant.version,
            "gpu": gpu,
            "compute_capability": capability,
            "options": options,
            "meaning": meaning_of(model),
            "keep": list(model.keep) if fp16 else None,
        }

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the ingredients, in hexadecimal."""
        return digest(json.dumps(self.ingredients, sort_keys=True).encode())

    @property
    def file_name(self) -> str:
        """Such as `person-fp16-b1.16-rtx1.7.1.116-any-3f2a51c09be7.engine`; see engines/README.md."""
        variant = f"{'rtx' if self.variant.rtx else 'trt'}{self.variant.version}"
        where = self.ingredients["gpu"].lower().replace("nvidia", "").replace("geforce", "")
        if self.capability is not None and self.variant.rtx:
            where = "sm{}{}".format(*self.capability)
        parts = [
            re.sub(r"[^\w.]+", "_", self.model.path.stem),
            self.options.precision,
            f"b{'.'.join(map(str, sorted(set(self.options.batch))))}",
            variant,
            re.sub(r"\W+", "", where),
            self.fingerprint[:12],
        ]
        return "-".join(parts) + ".engine"


def meaning_of(model: Model) -> StatedMeaning:
    """Returns the meaning of a model's numbers as JSON values."""
    return {
        "labels": list(model.labels),
        "mean": list(model.mean),
        "std": list(model.std),
        "channel_order": model.channel_order,
        "activation": model.activation,
    }


def check_machine(path: Path, sidecar: Sidecar, variant: Variant, gpu: GpuInfo) -> None:
    """Raises `EngineError` if the plan at `path` was built for other software or another GPU than this machine's."""
    again = "build it again here with segmentation-build"
    options, built_for = sidecar.ingredients["options"], sidecar.ingredients["compute_capability"]
    built_by = f"{sidecar.variant} {sidecar.variant_version}"
    here = f"{variant.module} {variant.version}"
    compatible = sidecar.variant == "tensorrt" and options["version_compatible"]
    if built_by != here and not (compatible and variant.module in ("tensorrt", LEAN)):
        raise EngineError(f"{path}: was built by {built_by}, here is {here}; {again}")
    one = built_for == dotted(gpu.capability)
    if variant.rtx:
        fits = one or (built_for == "8.0 and newer" and gpu.capability >= (8, 0))
    else:
        level = str(options["hardware_compatibility"])
        fits = {
            "none": one and sidecar.ingredients["gpu"] == gpu.name,
            "same-compute-capability": one,
            "ampere-plus": gpu.capability >= (8, 0),
        }[level]
    if not fits:
        raise EngineError(f"{path}: was built for {sidecar.ingredients['gpu']} ({built_for}), here is {gpu}; {again}")
