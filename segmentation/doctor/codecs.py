"""FFmpeg's codecs on the CPU: each encodes a few pictures, which are decoded again."""

from collections.abc import Iterator
from pathlib import Path

import av
import av.error

from segmentation.doctor.finding import FAILED, OK, Finding, Request
from segmentation.doctor.pictures import luma, lumas, moving, psnr, write
from segmentation.errors import one_line
from segmentation.options.config import Config
from segmentation.stages.encode.codec_settings import CODECS, codec_options
from segmentation.system.installation import install

_COUNT, _SIZE = 3, (320, 192)
_LEAST = 30  # dB


def check(request: Request) -> Iterator[Finding]:
    """Yields a finding for each codec."""
    av.logging.set_level(av.logging.PANIC)
    for codec in (name for name in CODECS if CODECS[name].library != "rawvideo"):
        yield _tried(codec, Path(request.folder) / f"{codec}.mkv")


def _tried(codec: str, path: Path) -> Finding:
    frames = list(moving(_COUNT, _SIZE))
    name, mend = f"{CODECS[codec].library}", f"{install()} --force-reinstall --no-cache-dir"
    try:
        write(path, frames, CODECS[codec].library, codec_options(codec, Config(), {}))
        found = lumas(path)
    except (av.error.FFmpegError, ValueError) as exc:
        return Finding(name=name, outcome=FAILED, detail=one_line(exc), mend=mend)
    if len(found) != _COUNT:
        return Finding(name=name, outcome=FAILED, detail=f"{len(found)} of {_COUNT} frames come back", mend=mend)
    quality = psnr([luma(frame) for frame in frames], found)
    outcome = OK if quality >= _LEAST else FAILED
    detail = f"{_COUNT} frames encoded and decoded, {quality:.1f} dB"
    return Finding(name=name, outcome=outcome, detail=detail, mend="" if outcome == OK else mend)
