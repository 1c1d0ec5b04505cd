"""Finds out what NVENC supports here, by opening small encoders through FFmpeg. Needs no PyTorch."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from functools import cache
from pathlib import Path

import av.error
import av.logging
from av.codec.context import CodecContext
from av.codec.hwaccel import HWAccel
from av.video.codeccontext import VideoCodecContext

from segmentation.errors import BackendError, LacksEngine, one_line
from segmentation.frames import VideoInfo
from segmentation.gpu.discovery import enter_context, find_gpu
from segmentation.options.config import NVENC_PRESETS, Config
from segmentation.options.devices import allows_cuda
from segmentation.stages.encode.nvenc_options import ALWAYS, EXTRAS, QUALITY
from segmentation.system.atomic_file import write_atomically
from segmentation.system.cache import engine_folder, make_folder

# Width and height of trials, and up to which every GPU's NVENC makes all codecs. Other sizes are tried themselves.
_TRIAL, _LARGEST = 256, 4096
_NONE = "this GPU has no NVENC, as A100, H100, H200 and B200 have none"
FULL = "consumer cards take few encoders at once, or the GPU's memory is full"
_HINTS = {  # fragments of FFmpeg's messages, after which fewer options do not help
    "Cannot load": "there is no NVIDIA driver, or in a container NVIDIA_DRIVER_CAPABILITIES leaves out video",
    "required nvenc API": "the NVIDIA driver is too old for this FFmpeg",
    "unsupported device": _NONE,
    "no encode device": _NONE,
    "out of memory (10)": FULL,
    "Codec not supported": "this GPU's NVENC does not make it; av1 needs Ada or newer",
}


def nvenc_engine(config: Config, info: VideoInfo | None = None) -> str:
    """Says in one line which encoder of NVENC's runs on which GPU.

    Raises `LacksEngine` where it can't encode as `config` says, or not in the size of `info`.
    """
    codec = config.codec or "h264"
    if codec not in QUALITY:
        raise LacksEngine(f"NVENC makes {', '.join(QUALITY)}, not {codec}")
    if config.preset is not None and config.preset not in NVENC_PRESETS:
        raise LacksEngine(f"NVENC has no preset {config.preset}, but {', '.join(NVENC_PRESETS)}")
    if not allows_cuda(config.device):
        raise BackendError(f"NVENC encodes on an NVIDIA GPU, not with --device {config.device}")
    index = int((config.device or "").partition(":")[2] or 0)
    found = extras(f"{codec}_nvenc", index)
    if info is not None and not all(_TRIAL <= side <= _LARGEST for side in (info.width, info.height)):
        width, height = (side + side % 2 for side in (info.width, info.height))
        refusal = _refusal(f"{codec}_nvenc", index, width, height, found)
        if refusal:
            raise LacksEngine(f"{codec}_nvenc can't encode {width}x{height} ({refusal})")
    return f"{codec}_nvenc on cuda:{index}{'' if found['bf'] != '0' else ', without B-frames'}"


def extras(library: str, index: int) -> dict[str, str]:
    """Returns the first of `EXTRAS` that the GPU supports. Raises `LacksEngine` if there is none."""
    found = _probed(library, index)
    if isinstance(found, str):
        raise LacksEngine(found)
    return found


@cache
def _probed(library: str, index: int) -> dict[str, str] | str:
    """Returns one of `EXTRAS`, or the reason why there is none.

    Trials use the CUDA context of all stages: for a context of its own FFmpeg holds the GIL for half a second. A trial
    is slow even so. A GPU without NVENC stays one, and a file notes that for later runs.
    """
    note = _no_nvenc_file(index)
    if note is not None and note.is_file():
        return f"{library} can't be used: {note.read_text(encoding='utf-8')}"
    text = ""
    for extra in EXTRAS:
        refusal = _refusal(library, index, _TRIAL, _TRIAL, extra)
        if not refusal:
            return extra
        text = text or refusal  # the first trial has the best message
        for fragment, hint in _HINTS.items():
            if fragment in text:
                if hint == _NONE and note is not None:
                    with suppress(OSError):
                        make_folder(note.parent)
                        write_atomically(note, f"{hint} ({text})".encode())
                return f"{library} can't be used: {hint} ({text})"
    return f"{library} can't be used: this GPU or its driver refuses ({text})"


def _refusal(library: str, index: int, width: int, height: int, extra: dict[str, str]) -> str:
    """Returns FFmpeg's reason why an encoder can't be opened, empty if it can."""
    enter_context(index)  # any thread may ask
    with _messages() as messages:
        try:
            current = HWAccel("cuda", device=str(index), options={"current_ctx": "1"})
            context = CodecContext.create(library, "w", hwaccel=current)
            assert isinstance(context, VideoCodecContext)
            context.width, context.height, context.pix_fmt, context.time_base = width, height, "nv12", Fraction(1, 30)
            context.options = {**ALWAYS, **extra}
            context.open()
        except av.error.FFmpegError as exc:
            first = [" ".join(message.split()) for _, _, message in messages][:1]
            return first[0] if first else one_line(exc)
    return ""


def _no_nvenc_file(index: int) -> Path | None:
    """Returns the file that notes of GPUs with this one's name that they have no NVENC; `None` without a GPU."""
    gpu = find_gpu(index)
    return None if gpu is None else engine_folder() / f"no-nvenc-{re.sub('[^a-z0-9]+', '-', gpu.name.lower())}.txt"


@contextmanager
def _messages() -> Iterator[list[tuple[int, str, str]]]:
    """Collects FFmpeg's messages in this thread: its errors alone do not say why there is no encoder."""
    before = av.logging.get_level()
    av.logging.set_level(av.logging.WARNING)
    try:
        with av.logging.Capture() as messages:
            yield messages
    finally:
        av.logging.set_level(before)
