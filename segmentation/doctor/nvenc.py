"""NVENC: which codecs and sizes it encodes, and its default qualities beside those of the CPU's encoders."""

from collections.abc import Iterator
from pathlib import Path

import av
import av.error
from av.codec.hwaccel import HWAccel
from av.video.frame import VideoFrame

from segmentation.doctor.finding import ABSENT, FAILED, OK, REPORT, Finding, Request, refused
from segmentation.doctor.pictures import RATE, luma, lumas, moving, psnr, write
from segmentation.errors import LacksEngine, one_line
from segmentation.gpu.discovery import device_index, enter_context
from segmentation.options.config import Config
from segmentation.stages.encode.codec_settings import CODECS, codec_options
from segmentation.stages.encode.nvenc_options import QUALITY, options
from segmentation.stages.encode.nvenc_support import extras

_SIZES = ((1280, 720), (1920, 1080), (3840, 2160), (7680, 4320))
_FEW = 3  # frames by which a size is tried
_COUNT, _SIZE = 60, (1280, 720)  # of the frames by which quality is measured
_LEAST = 30  # dB


def check(request: Request) -> Iterator[Finding]:
    """Yields a finding for each codec."""
    av.logging.set_level(av.logging.PANIC)
    index = device_index(Config(device=request.device))
    for codec in QUALITY:
        library = f"{codec}_nvenc"
        try:
            extra = extras(library, index)
        except LacksEngine as exc:
            yield refused(library, exc, ABSENT)
            continue
        try:
            yield _measured(codec, extra, index, Path(request.folder))
        except (av.error.FFmpegError, ValueError) as exc:
            yield Finding(name=library, outcome=FAILED, detail=one_line(exc), mend=REPORT)


def _measured(codec: str, extra: dict[str, str], index: int, folder: Path) -> Finding:
    """Returns the finding on a codec. Raises FFmpeg's errors."""
    chosen = options(codec, Config(encode="nvenc"), extra)
    sizes = [f"{width}x{height}" for width, height in _SIZES if _encodes(codec, chosen, index, (width, height), folder)]
    frames, nv12 = list(moving(_COUNT, _SIZE)), list(moving(_COUNT, _SIZE, "nv12"))
    nvenc = _rate(folder / "nvenc.mkv", frames, _write(folder / "nvenc.mkv", nv12, codec, chosen, index))
    path = folder / "cpu.mkv"
    own = _rate(path, frames, write(path, frames, CODECS[codec].library, codec_options(codec, Config(), {})))
    detail = (
        f"{', '.join(sizes)}; default quality {nvenc[0]} kbit/s, {nvenc[1]:.1f} dB "
        f"({CODECS[codec].library}: {own[0]} kbit/s, {own[1]:.1f} dB)"
    )
    figures = {"kbits": nvenc[0], "psnr": nvenc[1], "cpu_kbits": own[0], "cpu_psnr": own[1], "options": chosen}
    outcome = OK if sizes and nvenc[1] >= _LEAST else FAILED
    mend = "" if outcome == OK else REPORT
    return Finding(name=f"{codec}_nvenc", outcome=outcome, detail=detail, mend=mend, figures=figures)


def _encodes(codec: str, chosen: dict[str, str], index: int, size: tuple[int, int], folder: Path) -> bool:
    """Returns whether NVENC takes frames of this size, and all come back."""
    try:
        _write(folder / "size.mkv", list(moving(_FEW, size, "nv12")), codec, chosen, index)
        return len(lumas(folder / "size.mkv")) == _FEW
    except (av.error.FFmpegError, ValueError):
        return False


def _write(path: Path, frames: list[VideoFrame], codec: str, chosen: dict[str, str], index: int) -> int:
    """Encodes with NVENC, in the CUDA context of this process; returns the packets' bytes."""
    enter_context(index)
    current = HWAccel("cuda", device=str(index), options={"current_ctx": "1"})
    return write(path, frames, f"{codec}_nvenc", chosen, hwaccel=current)


def _rate(path: Path, frames: list[VideoFrame], size: int) -> tuple[int, float]:
    """Returns the kbit/s and the dB of a file of `frames`, whose packets have `size` bytes."""
    return round(size * 8 * RATE / len(frames) / 1000), psnr([luma(frame) for frame in frames], lumas(path))
