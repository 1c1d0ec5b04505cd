"""Chooses the implementation of each stage, and the pixel format between them. The only switch of its kind.

Candidates come from `IMPLEMENTATIONS`. `describe(config, info)` of a class raises `BackendError` where it can't run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

from av import VideoFormat

from segmentation.engines.variant import choose, installed
from segmentation.errors import (
    BackendError,
    ConfigError,
    LacksEngine,
    NotProven,
    RefusesNetwork,
    did_you_mean,
)
from segmentation.frames import FORMATS, Memory, VideoInfo
from segmentation.gpu.discovery import (
    TORCH_IS_SLOWER,
    device_index,
    enter_context,
    find_gpu,
    require_torch,
    require_video_libraries,
    torch_may_find_gpu,
)
from segmentation.media.containers import CUTOUTS, codec_for, of_pictures
from segmentation.media.opening.stream_properties import working_format
from segmentation.media.output_stream import OutputStream, Target, as_target
from segmentation.models.model import ENGINE, Model
from segmentation.models.secondary import SecondaryNetwork
from segmentation.options.anonymize import REGIONS
from segmentation.options.config import UNCOMPRESSED, Config, with_batch_size
from segmentation.options.devices import allows_cuda, processor
from segmentation.options.effect import Effect
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS, candidates
from segmentation.pipeline.planning.planned_steps import PlannedStep, planned_steps
from segmentation.stages import Stage
from segmentation.stages.decode import Decoder
from segmentation.stages.encode import Encoder
from segmentation.stages.encode.nvenc_support import nvenc_engine
from segmentation.stages.inference import GPU_BATCH, Inference, asked_for, keys_at_once
from segmentation.stages.masks.saved import MaskReader
from segmentation.stages.postprocess import Postprocessor
from segmentation.stages.preprocess import Preprocessor
from segmentation.system.imports import loaded

log = logging.getLogger(__name__)

_planned: set[str] = set()  # modes by which a plan has been made, so that libraries are imported

S = TypeVar("S", bound=Stage)


@dataclass(frozen=True, slots=True)
class Choice(Generic[S]):
    """The implementation of one stage: its name, its class, and a line on the machine that it runs on."""

    name: str
    implementation: type[S]
    reason: str
    instead_of: str = ""  # why the implementations that come first can't run

    @property
    def memory(self) -> Memory:
        """Where it takes its input from."""
        return self.implementation.memory

    @property
    def on_gpu(self) -> bool:
        return self.memory == "cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPlan:
    """One video to write."""

    path: Target
    option: str  # that names it: "-o" or "--also"
    config: Config  # with the effect of this output, and the options that go with it
    encode: Choice[Encoder]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One choice a stage, made before the first frame."""

    decode: Choice[Decoder]
    preprocess: Choice[Preprocessor] | None  # `None` with saved masks, as `infer`
    infer: Choice[Inference] | None
    masks: str  # with saved masks: a line on them
    postprocess: Choice[Postprocessor] | None  # `None` without a video, as `encode`
    encode: Choice[Encoder] | None  # of the main output
    outputs: tuple[OutputPlan, ...] = ()  # the main one first; empty without a target
    pix_fmt: str = ""  # from decoder to encoders, a key of `frames.FORMATS`; empty without a target and a video
    steps: tuple[PlannedStep, ...] = ()  # between inference and postprocess

    def names(self) -> dict[str, str]:
        """Stage to implementation, as in `--json`."""
        return {stage: name for stage, name, _ in self._lines()}

    def __str__(self) -> str:
        return "\n".join(f"{stage:<12} {name:<12} {reason}" for stage, name, reason in self._lines())

    def with_batch_size(self, frames: int) -> Plan:
        """Returns the plan for batches of at most that many frames: stages allocate memory for a batch."""
        outputs = (replace(output, config=with_batch_size(output.config, frames)) for output in self.outputs)
        return replace(self, outputs=tuple(outputs))

    @property
    def on_gpu(self) -> bool:
        """Whether any stage is on a GPU."""
        return any(choice is not None and choice.on_gpu for choice in self.choices.values())

    @property
    def mask_memory(self) -> Memory:
        """Where masks are refined: where frames are composited, or without a video where they were used last."""
        return (self.postprocess or self.preprocess or self.decode).memory

    @property
    def frame_memory(self) -> Memory:
        """Where frames are between inference and postprocess."""
        return self.decode.memory if self.infer is None else self.mask_memory

    @property
    def choices(self) -> dict[str, Choice[Any] | None]:
        """Stage to choice, in a frame's order."""
        return {
            "decode": self.decode,
            "preprocess": self.preprocess,
            "infer": self.infer,
            "postprocess": self.postprocess,
            "encode": self.encode,
        }

    def _lines(self) -> Iterator[tuple[str, str, str]]:
        """Stage, name, reason."""
        for stage, choice in self.choices.items():
            if stage == "postprocess":
                yield from self.steps
            if choice is None and stage in ("preprocess", "infer"):
                yield stage, "masks", self.masks
            elif choice is not None:
                yield stage, choice.name, choice.reason + (f" ({choice.instead_of})" if choice.instead_of else "")


def make_plan(
    config: Config,
    info: VideoInfo | None = None,
    target: Target | None = None,
    *,
    model: Model | None = None,
    secondary: Sequence[SecondaryNetwork] = (),
    begin: Callable[[type[Inference]], None] | None = None,
) -> Plan:
    """Chooses for every stage, for the video `info`, the main output `target` and the `model`, as far as given.

    The networks of `--then` are given as `secondary`.
    `begin` is called with the class that infers as soon as it is chosen, before the libraries of most other stages are
    imported. Raises `BackendError` if a stage that `config` asks for can't run here, and `ConfigError` or `OutputError`
    if an output can't be what it is asked to be.
    """
    mode = _mode(config)
    saved = config.masks is not None
    encode: Callable[[], Choice[Encoder]] = partial(_choose, "encode", candidates("encode", mode), config, info)
    with ThreadPoolExecutor(1) as pool:
        if mode not in _planned:  # beside the imports of libraries; later runs would only wait for the thread
            if mode != "baseline":
                pool.submit(_enter_context, config)
            if config.video:
                encode = pool.submit(encode).result
        infer = None if saved else _choose("infer", candidates("infer", mode), config, info, model)
        if infer is not None and begin is not None:
            begin(infer.implementation)
        decode = _choose("decode", candidates("decode", mode), config, info)
        preprocess = None if saved else _choose("preprocess", candidates("preprocess", mode), config, info, model)
        postprocess = _choose("postprocess", candidates("postprocess", mode), config, info) if config.video else None
        chosen = encode() if config.video else None
        plan = Plan(
            decode=decode,
            preprocess=preprocess,
            infer=infer,
            masks=MaskReader.describe(config) if saved else "",
            postprocess=postprocess,
            encode=chosen,
        )
        live = info is not None and info.live is not None
        memory = "host" if infer is None else infer.memory
        plan = replace(plan, steps=planned_steps(config, model, memory, secondary, plan.frame_memory, live=live))
    _planned.add(mode)
    if info is not None and chosen is None:
        plan = with_own_format(plan, config, info)
    elif info is not None and chosen is not None and target is not None:
        plan = _with_outputs(plan, chosen, config, info, target)
    for stage, choice in plan.choices.items():
        if choice is not None and choice.instead_of and mode != "baseline" and not choice.on_gpu:
            where = "" if IMPLEMENTATIONS[stage][choice.name].processor else " on the CPU"
            log.warning("%s: %s%s (%s)", stage, choice.name, where, choice.instead_of)
    if config.compile and infer is not None and infer.name != "torch-fp16":
        log.warning("infer: --compile is for torch-fp16 only, %s runs as it is", infer.name)
    return plan


def choose_network(config: Config, info: VideoInfo, model: Model) -> tuple[Choice[Preprocessor], Choice[Inference]]:
    """Returns the preprocessing and inference of another network, which the options `config` name."""
    mode = _mode(config)
    infer = _choose("infer", candidates("infer", mode), config, info, model)
    return _choose("preprocess", candidates("preprocess", mode), config, info, model), infer


def with_stage(plan: Plan, stage: str, name: str, config: Config, info: VideoInfo, model: Model | None = None) -> Plan:
    """The plan with another implementation of one stage. Raises `BackendError`."""
    named: dict[str, Any] = {stage: name}
    named[stage] = _choose(stage, (), replace(config, **named), info, model)
    return replace(plan, **named)


def with_host_decoder(plan: Plan, config: Config, info: VideoInfo) -> Plan:
    """The plan with a decoder that converts to the pixel format of the outputs."""
    return with_stage(plan, "decode", "pyav" if info.live is None else "live", config, info)


def with_own_format(plan: Plan, config: Config, info: VideoInfo) -> Plan:
    """The plan with the pixel format nearest to the input's, since there is no encoder to ask."""
    plan = replace(plan, pix_fmt=working_format(info.pix_fmt, tuple(FORMATS)))
    converts = plan.pix_fmt != _plain(info.pix_fmt)  # which NVDEC can't do
    return with_host_decoder(plan, config, info) if plan.decode.on_gpu and converts else plan


def choose_fallback(
    refusing: Choice[Inference], exc: RefusesNetwork, config: Config, info: VideoInfo, model: Model
) -> Choice[Inference]:
    """Returns the inference in place of one that refuses the network. Raises `exc` where the user asked for that."""
    if asked_for(config):
        raise exc
    known = IMPLEMENTATIONS["infer"]
    fallback = known[refusing.name].fallback
    if model.form.recurrent and not known[fallback].runs_states:
        fallback = known[fallback].fallback
    chosen: Choice[Inference] = _choose("infer", (), replace(config, infer=fallback), info, model)
    log.warning("infer: %s%s (%s: %s)", chosen.name, "" if chosen.on_gpu else " on the CPU", refusing.name, exc)
    return chosen


def _of_pictures(target: Path, config: Config) -> bool:
    """Whether a file is written as pictures. Cut-outs have encoders with alpha for some of these suffixes."""
    return of_pictures(target) and not (_is_cutout(config) and target.suffix.lower() in CUTOUTS)


def _with_outputs(plan: Plan, encode: Choice[Encoder], config: Config, info: VideoInfo, target: Target) -> Plan:
    """The plan with its outputs, encoded by `encode` unless they need another encoder, and their pixel format."""
    outputs, pix_fmt = _plan_outputs(encode, config, info, target)
    plan = replace(plan, encode=outputs[0].encode, outputs=outputs, pix_fmt=pix_fmt)
    if plan.decode.on_gpu and pix_fmt != _plain(info.pix_fmt):
        plan = with_host_decoder(plan, config, info)
        log.warning("%s: %s decodes it, because NVDEC converts nothing", info.path, plan.decode.name)
    return plan


def plan_outputs(config: Config, info: VideoInfo, target: Target) -> tuple[tuple[OutputPlan, ...], str]:
    """Returns the outputs, and the pixel format that all of them take, without a choice for the other stages.

    Raises as `make_plan`.
    """
    return _plan_outputs(_choose("encode", candidates("encode", _mode(config)), config, info), config, info, target)


def _plan_outputs(
    chosen: Choice[Encoder], config: Config, info: VideoInfo, target: Target
) -> tuple[tuple[OutputPlan, ...], str]:
    outputs = []
    paths = [("-o", target), *(("--also", Path(path)) for _, path in config.also)]
    for effect, (option, path) in zip(config.effects, paths, strict=True):
        own = _with_effect(config, effect)
        own_target = path if option == "-o" else as_target(path, replace(own, format=None))
        if isinstance(own_target, Path) and _of_pictures(own_target, own):
            own = _without_codec(own, own_target, option)
            encode = _choose("encode", ("pictures",), own, info)
        elif _is_cutout(own) == _is_cutout(config):
            encode = chosen
        else:
            encode = _choose("encode", candidates("encode", _mode(own)), own, info)
        outputs.append(OutputPlan(path=own_target, option=option, config=own, encode=encode))
    outputs = [_streaming(output, info) for output in outputs]
    return tuple(outputs), _pixel_format(outputs, info)


def _streaming(output: OutputPlan, info: VideoInfo) -> OutputPlan:
    """The output with an encoder whose packets follow the frames closely, where it or the source is a stream.

    Encoders of segments put out nothing for seconds, and encoders on a GPU have no uncompressed video.
    """
    target, wanted = output.path, output.config.encode
    segments = info.live is not None and output.encode.name == "x264-segments"
    if not (isinstance(target, OutputStream) or segments) or _is_cutout(output.config):
        return output
    if isinstance(target, OutputStream) and target.format in UNCOMPRESSED and wanted not in (None, "x264"):
        raise ConfigError(f"encode {wanted!r}: {target.format} is not compressed; leave out --encode")
    if wanted is not None:
        return output
    x264 = _choose("encode", ("x264",), output.config, info)
    return replace(output, encode=replace(x264, instead_of=output.encode.instead_of))


def _pixel_format(outputs: Sequence[OutputPlan], info: VideoInfo) -> str:
    """The layout of frames from decoder to encoders, one for all. A line says so where it is not the input's."""
    codecs = [output.config.codec or codec_for(output.path, output.config) for output in outputs]
    known = [out.encode.implementation.formats(codec) for out, codec in zip(outputs, codecs, strict=True)]
    pix_fmt = working_format(info.pix_fmt, tuple(f for f in known[0] if all(f in other for other in known)))
    hint = "; more show --codec hevc" if pix_fmt == "yuv420p10le" else ""
    few = f"; some players show H.264 in 8-bit 4:2:0 only{hint}" if "h264" in codecs and pix_fmt != "yuv420p" else ""
    if pix_fmt != _plain(info.pix_fmt):
        layout = VideoFormat(info.pix_fmt, 8, 8)
        alpha = any(part.is_alpha for part in layout.components)
        lost = "transparent parts, if any, are white" if layout.is_rgb else "without its alpha"
        without = f", {lost}" if alpha else ""
        log.warning("%s: %s is converted to %s%s%s", info.path, info.pix_fmt, pix_fmt, without, few)
    elif few:
        log.warning("%s: %s is kept%s", info.path, info.pix_fmt, few)
    return pix_fmt


def _plain(pix_fmt: str) -> str:
    """FFmpeg's name without the full range that `yuvj` implies."""
    return pix_fmt.replace("yuvj", "yuv")


def _is_cutout(config: Config) -> bool:
    return config.effects[0].kind == "cutout"


def _with_effect(config: Config, effect: Effect) -> Config:
    """The options of another output. A cut-out takes no codec's options, and other outputs take none of a cut-out's."""
    was, is_now = _is_cutout(config), effect.kind == "cutout"
    if is_now and not was:
        return replace(config, effect=effect.text, codec=None, preset=None, encode=None, quality=None, verify=False)
    if was and not is_now:
        return replace(config, effect=effect.text, encode=None, quality=None)
    return config if config.effect == effect.text else replace(config, effect=effect.text)


def _without_codec(config: Config, path: Path, option: str) -> Config:
    """The options of an output whose suffix decides the codec. Raises `ConfigError` where the main output is it."""
    if option == "-o":
        for name in ("codec", "preset", "verify", "encode"):
            if getattr(config, name):
                raise ConfigError(f"{name} {getattr(config, name)}: {path.suffix} files have none; leave out --{name}")
        return config
    return replace(config, codec=None, preset=None, encode=None, quality=None, verify=False)


def _enter_context(config: Config) -> None:
    with suppress(BackendError):  # raised again where a stage is chosen
        enter_context(device_index(config))


def may_use_gpu(config: Config) -> bool:
    """Returns whether there are a GPU and PyTorch, and the options let stages run on the GPU."""
    try:
        return _mode(config) != "baseline" and find_gpu() is not None and find_spec("torch") is not None
    except BackendError:  # raised again where a stage is chosen
        return False


def _mode(config: Config) -> str:
    """The table to choose from: without a GPU, `auto` is the baseline. Raises `BackendError` if `device` is missing."""
    if config.device is not None and allows_cuda(config.device):
        device_index(config)
    without = config.mode == "auto" and (not allows_cuda(config.device) or find_gpu() is None)
    return "baseline" if without else config.mode


def _choose(
    stage: str, names: tuple[str, ...], config: Config, info: VideoInfo | None, model: Model | None = None
) -> Choice[Any]:
    wanted: str | None = getattr(config, stage)
    if stage == "encode" and names != ("pictures",) and config.effects[0].kind == "cutout":
        wanted = "cutout"  # the one that encodes alpha
    known = IMPLEMENTATIONS[stage]
    if wanted is not None and wanted not in known:
        raise ConfigError(f"--{stage} {wanted}: choose from {', '.join(known)}{did_you_mean(wanted, known)}")
    names = (wanted,) if wanted is not None else names
    if stage == "infer":
        names = _infer_candidates(names, config, model)
    elif stage == "decode" and info is not None and info.live is not None:
        if wanted is not None and known[wanted].live:
            raise ConfigError(f"--decode {wanted}: reads files; use --decode {known[wanted].live} for a live source")
        names = tuple(dict.fromkeys(known[name].live or name for name in names))
    refusals: list[tuple[str, str]] = []  # (implementation or "", reason)
    while names:
        name, *rest = names
        try:
            if stage == "infer" and model is not None and model.form.recurrent and not known[name].runs_states:
                raise BackendError(f"{model.name} carries states from frame to frame, which it can't")
            implementation, reason = _candidate(stage, name, config, info)
            if model is not None and issubclass(implementation, Inference):
                given = with_batch_size(config, model.batch_on_gpu or config.batch_size or GPU_BATCH)
                found_out = implementation.known(model, with_batch_size(given, keys_at_once(given, model)))
                reason = ", ".join(filter(None, (reason, found_out)))
            return Choice(name, implementation, reason, _said_once(refusals))
        except LacksEngine as exc:
            refusals.append(("", str(exc)))
            if wanted is None and known[name].substitute:
                rest = [known[name].substitute, *rest]
        except BackendError as exc:
            refusals.append((name, str(exc)))
            if isinstance(exc, NotProven) and asked_for(config):
                rest = []
        names = tuple(rest)
        log.info("%s: %s", stage, _said_once(refusals[-1:]))
    asked = "--optimized: " if config.mode == "optimized" else ""
    raise BackendError(f"{asked}{stage} can't be served here: {_said_once(refusals)}")


def _said_once(refusals: Sequence[tuple[str, str]]) -> str:
    """Returns the reasons, each behind the implementations that gave it."""
    names: dict[str, list[str]] = {}
    for name, reason in refusals:
        names.setdefault(reason, []).append(name)
    return "; ".join(": ".join(filter(None, (", ".join(by), reason))) for reason, by in names.items())


def _infer_candidates(names: tuple[str, ...], config: Config, model: Model | None) -> tuple[str, ...]:
    """The implementations that may run a model. Raises `ConfigError` where the one that is asked for can't."""
    asked = config.infer or processor(config.device)
    option = f"--infer {asked}" if config.infer else f"--device {config.device}"
    known = IMPLEMENTATIONS["infer"]
    if callable(config.model):
        alone = config.anonymize == REGIONS and _mode(config) != "baseline"
        serving = ("nothing", "function") if alone else ("function",)
        if asked is not None and asked not in serving:
            raise ConfigError(f"{option}: can't run the {config.model_name}; leave it out")
        return serving if asked is None else (asked,)
    if str(config.model).endswith(ENGINE):
        if asked not in (None, "tensorrt"):
            raise ConfigError(f"{option}: can't run the engine {config.model}; use --infer tensorrt or the ONNX")
        return ("tensorrt",)
    if model is not None and model.detection is not None:
        if asked not in (None, "onnxruntime") and not (known[asked].instance_modes or known[asked].processor):
            raise ConfigError(f"{option}: can't run {model.name}, which finds single things; leave it out")
        names = candidates("infer", _mode(config), instances=True)
        asked = "instances" if asked == "onnxruntime" else asked
    elif model is not None and asked in ("instances", "torch-instances"):
        raise ConfigError(f"{option}: can't run {model.name}, which finds no single things; leave it out")
    return names if asked is None else (asked,)


def _candidate(stage: str, name: str, config: Config, info: VideoInfo | None) -> tuple[type[Stage], str]:
    """An implementation and what it runs on. Raises `BackendError` if it can't run here."""
    one = IMPLEMENTATIONS[stage][name]
    if one.on_gpu:
        device_index(config)
    if name in ("nvdec", "nvdec-native") and info is not None and info.source.stream is not None:
        raise LacksEngine(f"NVDEC's demuxers read files, and {info.path} is none")
    if name in ("nvdec", "nvdec-native", "live-nvdec"):
        require_video_libraries()
    if name == "nvenc":
        nvenc_engine(config)
    if name == "tensorrt":
        choose(find_gpu(device_index(config)), installed())
    if name == "torch" and config.infer is None and not torch_may_find_gpu(config.device):
        raise BackendError(TORCH_IS_SLOWER)
    module, _, attribute = one.place.partition(":")
    implementation: type[Stage] = loaded(module, attribute, one.extra)
    if one.on_gpu:
        require_torch()
    return implementation, implementation.describe(config, info)
