"""Every option, once. The command line and `segment()` both build a `Config`; it checks itself on creation."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from segmentation.effect import Effect, number
from segmentation.errors import ConfigError
from segmentation.model_types import TYPES
from segmentation.option_types import fitted

STAGES = ("decode", "preprocess", "infer", "postprocess", "encode")
DEFAULT_SMOOTH = 0.5
_LONGEST = 1_000_000_000  # seconds, 30 years: times beyond overflow the clocks of containers
# By codec, best to worst: constant rate factors, but for mjpeg JPEG's own quality.
QUALITY = {"h264": (0, 51), "hevc": (0, 51), "av1": (0, 63), "ffv1": (0, 0), "mjpeg": (100, 1), "vp9": (0, 63)}
CODECS = ("h264", "hevc", "av1", "ffv1", "mjpeg")  # to choose from; vp9 is for cut-outs only
_X26X = ("ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow", "placebo")
PRESETS = {"h264": _X26X, "hevc": _X26X, "av1": tuple(map(str, range(14))), "ffv1": (), "mjpeg": ()}
ACTIVATIONS = ("none", "sigmoid", "softmax", "minmax")
NVENC_PRESETS = ("p1", "p2", "p3", "p4", "p5", "p6", "p7")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of one run.

    Raises `ConfigError` if a value is of another type or out of range. Times are in seconds. `None` means: let the
    program choose.
    """

    model: str | Path = "person"  # the built-in model's name or the path of an .onnx or .engine file
    classes: tuple[str, ...] | None = None  # labels to keep; default: person, or all but background
    effect: str = "blur"
    also: Sequence[tuple[str, str | Path]] = ()  # further outputs of the same run: (effect, file)
    invert: bool = False  # keep what the classes are not: the effect is on them
    threshold: float = 0.5  # of the mask: where the edge lies
    feather: float = 0.0  # width of the soft edge, in pixels of a picture whose shorter side has 1080; 0: sharp
    smooth: float | None = (
        None  # how much masks are smooth_masks over time, 0 (not at all) to 1; see `smoothing_strength`
    )
    refine: bool = True  # draw the mask's edge along the picture's
    batch_size: int | None = None
    max_frames: int | None = None
    start: float = 0.0
    duration: float | None = None
    # Default: h264, or av1 in .webm. mjpeg and `encode="jpeg"` imply each other.
    codec: Literal["h264", "hevc", "av1", "ffv1", "mjpeg"] | None = None
    # Constant rate factor of the codec: lower is better, 0 is lossless for h264 and hevc. For mjpeg 1 to 100, the best.
    quality: int | None = None
    preset: str | None = None  # the codec library's name for how much time it takes to compress well, see `PRESETS`
    mode: Literal["auto", "baseline", "optimized"] = "auto"
    device: str | None = None  # "cpu" or "cuda:N"
    decode: str | None = None
    preprocess: str | None = None
    infer: str | None = None
    postprocess: str | None = None
    encode: str | None = None
    compile: bool = False  # torch.compile the network: slow to start, faster after
    overwrite: bool = False
    strict: bool = False  # damaged input is an error, not a note
    trace: str | Path | None = None  # a file that gets what happened when, for https://ui.perfetto.dev
    verify: bool = False  # decode the output afterwards and compare it with the input
    results: str | Path | None = None  # a file of JSON lines: what was found in each frame
    rle: bool = False  # with the masks in it, as COCO writes them
    save_masks: str | Path | None = None  # a file of the masks as they were found
    masks: str | Path | None = None  # such a file, to be used in place of the network
    # What the model's input and output mean, where neither its metadata nor a .json beside it says so.
    mean: tuple[float, ...] | None = None  # of RGB in 0..1
    std: tuple[float, ...] | None = None
    channel_order: Literal["rgb", "bgr"] | None = None
    input_size: tuple[int, int] | None = None  # (height, width), for models with a dynamic size: overrides theirs
    labels: tuple[str, ...] | None = None
    # Still to be applied to the output; "minmax" stretches each picture's to 0..1.
    activation: Literal["none", "sigmoid", "softmax", "minmax"] | None = None
    model_type: str | None = None  # of `model_types.TYPES`: what is not said otherwise is as in such networks
    model_output: str | None = None  # the name of the output that is the mask; default: the first that can be
    model_inputs: tuple[str, ...] = ()  # what inputs besides the picture hold: "NAME=VALUE" or "NAME=VALUE,VALUE,..."

    def __post_init__(self) -> None:
        for option in fields(self):  # before anybody can see the frozen object
            object.__setattr__(self, option.name, fitted(option.name, getattr(self, option.name), option.type))
        for effect, _ in self.also:
            Effect.parse(effect)
        if Effect.parse(self.effect).kind == "cutout":
            self._check_cutout()
        elif self.encode == "cutout":
            raise ConfigError(f"encode cutout: encodes the effect cutout only, not {self.effect}")
        _choice("mode", self.mode, ("auto", "baseline", "optimized"))
        _choice("codec", self.codec, (None, *CODECS))
        self._check_jpeg()
        _choice("channel order", self.channel_order, (None, "rgb", "bgr"))
        _choice("activation", self.activation, (None, *ACTIVATIONS))
        _choice("model type", self.model_type, (None, *TYPES))
        self.inputs_by_name  # noqa: B018  # raises
        for name, value in (("batch size", self.batch_size), ("max frames", self.max_frames)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} {value}: must be 1 or more")
        if self.smooth is not None and not 0 <= self.smooth <= 1:
            raise ConfigError(f"smooth {self.smooth}: must lie in 0 (off) to 1")
        if not 0 < self.threshold < 1:
            raise ConfigError(f"threshold {self.threshold}: must lie between 0 and 1, both excluded")
        if not 0 <= self.feather <= 500:
            raise ConfigError(f"feather {self.feather}: must lie in 0 (a sharp edge) to 500")
        if not 0 <= self.start <= _LONGEST:
            raise ConfigError(f"start {self.start}: must be 0 or more seconds, and at most {_LONGEST}")
        if self.duration is not None and not 0 < self.duration <= _LONGEST:
            raise ConfigError(f"duration {self.duration}: must be more than 0 seconds, and at most {_LONGEST}")
        by_suffix = ("vp9",) if Effect.parse(self.effect).kind == "cutout" else ("h264", "av1")
        faults = [self.misfit(codec) for codec in ((self.codec,) if self.codec else by_suffix)]
        if faults[0] is not None and all(faults):
            raise ConfigError(faults[0])
        if self.device is not None and not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise ConfigError(f"device {self.device!r}: write cpu, cuda or cuda:N")
        if self.rle and self.results is None:
            raise ConfigError("rle: the masks go into the results; name a file for them with --results")
        self._check_masks()
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) != 3:
                raise ConfigError(f"{name} {values}: must be three numbers, for red, green and blue")
        if self.std is not None and not all(0 < v < math.inf for v in self.std):
            raise ConfigError(f"std {self.std}: must be above 0")
        if self.mean is not None and not all(map(math.isfinite, self.mean)):
            raise ConfigError(f"mean {self.mean}: must be numbers")
        if self.input_size is not None and not all(8 <= v <= 8192 for v in self.input_size):
            raise ConfigError(f"input size {self.input_size}: height and width must lie in 8 to 8192")

    @property
    def inputs_by_name(self) -> dict[str, tuple[float, ...]]:
        """`model_inputs`, read. Raises `ConfigError`."""
        values = {}
        for text in self.model_inputs:
            name, _, listed = text.rpartition("=")
            if not name:
                raise ConfigError(f"model input {text!r}: write NAME=VALUE, such as downsample_ratio=0.25")
            values[name] = tuple(number(part, f"model input {text!r}") for part in listed.split(","))
        return values

    @property
    def smoothing_strength(self) -> float:
        """`smooth`, or what it is by default: saved masks stay as smooth as they are."""
        by_default = DEFAULT_SMOOTH if self.masks is None else 0.0
        return by_default if self.smooth is None else self.smooth

    def misfit(self, codec: str) -> str | None:
        """What `codec` does not take, if there is something: the quality, or the preset."""
        best, worst = QUALITY[codec]
        if self.quality is not None and not min(best, worst) <= self.quality <= max(best, worst):
            return f"quality {self.quality}: {codec} takes {best} (best) to {worst}"
        nvenc = self.encode == "nvenc"
        known = NVENC_PRESETS if nvenc else PRESETS.get(codec, ())
        if self.preset is not None and self.preset not in known:
            choices = f"choose {', '.join(known)}" if known else f"{codec} has none"
            return f"preset {self.preset!r} is unknown for {'nvenc' if nvenc else codec}: {choices}"
        return None

    def _check_masks(self) -> None:
        """Refuses what saved masks leave nothing to do for."""
        if self.masks is None:
            return
        if self.smooth:
            raise ConfigError("smooth: saved masks stay as smooth as they are; leave out --smooth, or --masks")
        for name in ("model", "classes", "preprocess", "infer", "save_masks"):
            if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(f"masks {self.masks}: the masks are found already; leave out {option}, or --masks")

    def _check_cutout(self) -> None:
        """Refuses what goes without saying, or does not go, where alpha is to be encoded."""
        if self.codec is not None:
            raise ConfigError(f"codec {self.codec!r}: a cutout's follows from its output's suffix; leave out --codec")
        if self.preset is not None:
            raise ConfigError(f"preset {self.preset!r}: the codecs of cutouts have none; leave out --preset")
        if self.encode not in (None, "cutout"):
            raise ConfigError(f"encode {self.encode!r}: can't encode alpha; leave out --encode")
        if self.verify:
            raise ConfigError("verify: can't check a cutout, whose layout is not the input's; leave out --verify")

    def _check_jpeg(self) -> None:
        """Completes or refuses the pair of codec and encoder: the GPU's JPEG encoder is the only one of its codec."""
        if self.codec == "mjpeg" and self.encode is None:
            object.__setattr__(self, "encode", "jpeg")
        elif self.codec is None and self.encode == "jpeg":
            object.__setattr__(self, "codec", "mjpeg")
        elif self.codec == "mjpeg" and self.encode != "jpeg":
            raise ConfigError(f"encode {self.encode!r}: mjpeg is made by --encode jpeg only")
        elif self.codec != "mjpeg" and self.encode == "jpeg":
            raise ConfigError(f"codec {self.codec!r}: --encode jpeg makes mjpeg only")
        if self.codec == "mjpeg" and self.verify:
            raise ConfigError("verify: can't check mjpeg, whose colors and layout are JPEG's own; leave out --verify")


def seconds(text: str) -> float:
    """Reads `90`, `90.5`, `1:30` or `0:01:30.5` as seconds."""
    parts = text.split(":")
    if len(parts) > 3:
        raise ConfigError(f"time {text!r}: write seconds or [HH:]MM:SS")
    total = 0.0
    for part in parts:
        total = total * 60 + number(part, f"time {text!r}")
    return total


def _choice(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} {value!r} is unknown: choose {', '.join(str(a) for a in allowed if a is not None)}")
