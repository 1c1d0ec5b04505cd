"""What a file's suffix means for its codec, and what its format's muxer is told."""

from pathlib import Path

from segmentation.config import Config
from segmentation.effect import Effect
from segmentation.errors import ConfigError, OutputError
from segmentation.frames import VideoInfo

CUTOUTS = {".mov": "prores", ".webm": "vp9", ".mkv": "ffv1", ".png": "png"}  # codecs with alpha
EXACT = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".png")  # what keeps every timestamp and rotation, or needs none


def codec_for(target: Path, config: Config) -> str:
    """The codec of a file of this suffix, unless the user says. Raises `OutputError` where it can't hold alpha, and
    `ConfigError` where quality or preset are those of another codec."""
    suffix = target.suffix.lower()
    if Effect.parse(config.effect).kind != "cutout":
        codec = "av1" if suffix == ".webm" else "h264"
        if fault := config.misfit(codec):
            raise ConfigError(f"{target}: {fault}")
        return codec
    if suffix not in CUTOUTS:
        raise OutputError(f"{target}: can't hold a cutout's alpha; name a .mov, .webm or .mkv, or FOLDER/%05d.png")
    return CUTOUTS[suffix]


def format_options(target: Path, info: VideoInfo) -> dict[str, str]:
    """What the format's muxer is told, so that every timestamp stays what it is."""
    match target.suffix.lower():
        case ".mp4" | ".mov" | ".m4v":
            # A stream that begins later than 0 does so on the movie's own clock: one that meets the video's ticks.
            ticks = info.time_base.denominator
            clock = min(ticks * max(1, 100_000 // ticks), 1_000_000)
            return {"movflags": "+faststart", "movie_timescale": str(clock)}
        case ".mkv":  # AAC from an MP4 begins before 0; all streams would be shifted for it
            return {"avoid_negative_ts": "disabled"}
        case _:
            return {}
