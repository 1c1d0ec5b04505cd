"""Whether the GPU has NVENC, and what it takes: found by opening small encoders through FFmpeg. Needs no PyTorch."""

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

from segmentation.atomic_file import write_atomically
from segmentation.config import NVENC_PRESETS, Config
from segmentation.errors import BackendError, LacksEngine, one_line
from segmentation.gpu.discovery import enter_context, find_gpu

QUALITY = {"h264": 19, "hevc": 23, "av1": 22}  # NVENC's own scale, near that of x264 and x265
ALWAYS = {"tune": "hq", "rc": "vbr", "rc-lookahead": "20", "spatial-aq": "1"}
# What only newer GPUs take, best first; the first that opens an encoder is used.
EXTRAS = ({"bf": "3", "b_ref_mode": "middle", "temporal-aq": "1"}, {"bf": "3"}, {"bf": "0"})
_NONE = "this GPU has no NVENC, as A100, H100, H200 and B200 have none"
_HINTS = {  # fragments of what FFmpeg says, before which trying less is of no use
    "Cannot load": "there is no NVIDIA driver, or in a container NVIDIA_DRIVER_CAPABILITIES leaves out video",
    "required nvenc API": "the NVIDIA driver is too old for this FFmpeg",
    "unsupported device": _NONE,
    "no encode device": _NONE,
    "out of memory (10)": "consumer cards take few encoders at once, or the GPU's memory is full",
    "Codec not supported": "this GPU's NVENC does not make it; av1 needs Ada or newer",
}


def nvenc_engine(config: Config) -> str:
    """What NVENC serves, in a line. Raises `LacksEngine` where it can't do what `config` asks for."""
    codec = config.codec or "h264"
    if codec not in QUALITY:
        raise LacksEngine(f"NVENC makes {', '.join(QUALITY)}, not {codec}")
    if config.preset is not None and config.preset not in NVENC_PRESETS:
        raise LacksEngine(f"NVENC has no preset {config.preset}, but {', '.join(NVENC_PRESETS)}")
    if config.device == "cpu":
        raise BackendError("NVENC encodes on an NVIDIA GPU, not with --device cpu")
    index = int((config.device or "").partition(":")[2] or 0)
    found = extras(f"{codec}_nvenc", index)
    return f"{codec}_nvenc on cuda:{index}{'' if found['bf'] != '0' else ', without B-frames'}"


def extras(library: str, index: int) -> dict[str, str]:
    """Which of `EXTRAS` the GPU takes. Raises `LacksEngine` if there is none."""
    found = _probed(library, index)
    if isinstance(found, str):
        raise LacksEngine(found)
    return found


@cache
def _probed(library: str, index: int) -> dict[str, str] | str:
    """One of `EXTRAS`, or why there is none.

    Asked in the context that all use: one of FFmpeg's own would take it half a second, in which it keeps Python's lock.
    Even so it is a quarter; so that a GPU has no NVENC at all, which stays true, is asked once for all runs.
    """
    without = _note(index)
    if without is not None and without.is_file():
        return f"{library} can't be used: {without.read_text(encoding='utf-8')}"
    enter_context(index)
    said = ""
    for extra in EXTRAS:
        with _messages() as messages:
            try:
                current = HWAccel("cuda", device=str(index), options={"current_ctx": "1"})
                context = CodecContext.create(library, "w", hwaccel=current)
                assert isinstance(context, VideoCodecContext)
                context.width, context.height, context.pix_fmt, context.time_base = 256, 256, "nv12", Fraction(1, 30)
                context.options = {**ALWAYS, **extra}
                context.open()
                return extra
            except av.error.FFmpegError as exc:
                first = [" ".join(message.split()) for _, _, message in messages][:1]
                said = said or (first[0] if first else one_line(exc))  # the first trial says most
        for fragment, hint in _HINTS.items():
            if fragment in said:
                if hint == _NONE and without is not None:
                    with suppress(OSError):
                        without.parent.mkdir(parents=True, exist_ok=True)
                        write_atomically(without, f"{hint} ({said})".encode())
                return f"{library} can't be used: {hint} ({said})"
    return f"{library} can't be used: this GPU or its driver refuses ({said})"


def _note(index: int) -> Path | None:
    """The file that says of GPUs with this one's name that they have no NVENC; `None` where there is no GPU, or
    nothing is kept."""
    try:
        from segmentation.cache import engine_folder
    except ImportError:  # what it needs comes with the GPU packages
        return None
    gpu = find_gpu(index)
    return None if gpu is None else engine_folder() / f"no-nvenc-{re.sub('[^a-z0-9]+', '-', gpu.name.lower())}.txt"


@contextmanager
def _messages() -> Iterator[list[tuple[int, str, str]]]:
    """What FFmpeg says in this thread; its errors alone do not tell why there is no encoder."""
    before = av.logging.get_level()
    av.logging.set_level(av.logging.WARNING)
    try:
        with av.logging.Capture() as messages:
            yield messages
    finally:
        av.logging.set_level(before)
