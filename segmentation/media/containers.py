"""Codec and muxer options that follow from the suffix of an output file."""

import io
from fractions import Fraction
from functools import cache
from pathlib import Path

import av
from av.container import OutputContainer
from av.format import ContainerFormat, Flags

from segmentation.errors import ConfigError, OutputError
from segmentation.frames import VideoInfo
from segmentation.frames.picture_names import PICTURE_SUFFIXES, PICTURES
from segmentation.media.output_stream import OutputDevice, OutputStream, Target
from segmentation.options.config import QUALITY, UNCOMPRESSED, Config

CUTOUTS = {".mov": "prores", ".webm": "vp9", ".mkv": "ffv1", ".png": "png"}  # codecs with alpha
EXACT = (
    ".mp4",
    ".m4v",
    ".mov",
    ".mkv",
    ".webm",
    *PICTURES,
    ".gif",
)  # these keep every timestamp and rotation, or need none


def may_step(kind: ContainerFormat) -> bool:
    """Returns whether the clock of this container may step: those that FFmpeg says so of, and FLV, which is recorded.

    Other containers have an index, or state times from their beginning.
    """
    return kind.name == "flv" or Flags.ts_discont in Flags(kind.flags)


LIP_SYNC = Fraction(40, 1000)  # seconds by which sound may be early, EBU R 37
# Codecs with a stream type of their own in MPEG-TS, by FFmpeg's mpegtsenc.c. Others become data that nothing plays.
_IN_TS = {
    *("mpeg1video", "mpeg2video", "mpeg4", "h264", "hevc", "vvc", "dirac", "vc1"),
    *("mp1", "mp2", "mp3", "aac", "aac_latm", "ac3", "eac3", "dts", "truehd", "opus", "s302m"),
    *("dvb_subtitle", "dvb_teletext", "klv", "scte_35", "timed_id3"),
}
_IN_M2TS = {"pcm_bluray", "hdmv_pgs_subtitle", "hdmv_text_subtitle"}


_NO_PS = ("av1", "ffv1")
_NO_VIDEO = ("h264", "hevc", "av1", "ffv1")  # of what this program writes
_NOT_IN = {
    **dict.fromkeys(("ogg", "ogv", "swf", "gxf"), _NO_VIDEO),
    "mov": ("av1",),
    "avi": ("vorbis",),
    **dict.fromkeys(("mpeg", "vob", "dvd", "svcd"), _NO_PS),
}


def has_type(form: str, suffix: str, codec: str) -> bool:
    """Returns whether a format has a place for a codec. FFmpeg writes some without one, which nothing can read."""
    if form == "mpegts":
        return codec in _IN_TS or (codec in _IN_M2TS and suffix.lower() in (".m2ts", ".mts"))
    if form == "yuv4mpegpipe":  # which fails at the first packet of another
        return codec == "rawvideo"
    return codec not in _NOT_IN.get(form, ())


_IN_FLV = (5512, 11025, 22050, 44100)  # Hz of PCM: FFmpeg writes other rates, which are read as 5512


def has_rate(form: str, codec: str, rate: int) -> bool:
    """Returns whether a format states this rate of sound, in Hz. FLV has four of PCM, and one of G.711."""
    if form != "flv" or not codec.startswith("pcm_"):
        return True
    return rate == 8000 if codec in ("pcm_mulaw", "pcm_alaw") else rate in _IN_FLV


class _Nowhere(io.BytesIO):
    """A file in memory with a name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def open_for_writing(address: str, name: str, options: dict[str, str]) -> OutputContainer:
    """Opens the file at `address` in the format that FFmpeg takes for the suffix of `name`, which is not opened.

    Raises `ValueError` where FFmpeg has no such format, and `OSError`.
    """
    return av.open(address, "w", format=_format_of(Path(name).suffix), container_options=options)


@cache
def _format_of(suffix: str) -> str:
    """Returns the name of the format that FFmpeg takes for a suffix. Raises `ValueError` where there is none."""
    with av.open(_Nowhere(f"name{suffix}"), "w") as trial:
        form: str = trial.format.name
    return form


def begin_file(address: str, target: Path, info: VideoInfo) -> OutputContainer:
    """Opens the file at `address`, which becomes `target`, for writing. Raises `OutputError` and `OSError`."""
    suffix, hint = target.suffix, f"name a file such as {target.stem}.mp4"
    if not suffix:  # FFmpeg would take the name .mp4 for one
        raise OutputError(f"{target}: has no suffix; {hint}, or a folder, {target.stem}/")
    try:
        container = open_for_writing(address, target.name, format_options(target, info))
    except ValueError as exc:
        raise OutputError(f"{target}: FFmpeg knows no container for {suffix}; {hint}") from exc
    if container.format.no_file:  # such as HLS
        raise OutputError(f"{target}: a {suffix} comes with further files, which are not written; {hint}")
    return container


def codec_for(target: Target, config: Config) -> str:
    """Returns the codec for a file of this suffix, where the user names none.

    Raises `OutputError` if the file is to hold a cutout and can't hold alpha. Raises `ConfigError` if quality or preset
    belong to another codec.
    """
    suffix = target.suffix.lower()
    if isinstance(target, Path) and of_pictures(target):
        codec = suffix[1:].replace("jpg", "jpeg")
        if config.effects[0].kind == "cutout" and codec in ("gif", "jpeg"):
            raise OutputError(f"{target}: can't hold a cutout's alpha; name a .webp, .mov, .webm or FOLDER/%05d.png")
        if codec in QUALITY and (fault := config.misfit(codec)):
            raise ConfigError(f"{target}: {fault}")
        return codec
    if suffix in PICTURE_SUFFIXES:
        raise OutputError(f"{target}: pictures are written as .png, .jpg, .jpeg or .webp")
    if config.effects[0].kind != "cutout":
        if isinstance(target, OutputDevice):
            return "v4l2"
        if isinstance(target, OutputStream) and target.format in UNCOMPRESSED:
            return "rawvideo"
        codec = "av1" if suffix == ".webm" else "h264"
        if fault := config.misfit(codec):
            raise ConfigError(f"{target}: {fault}")
        return codec
    if suffix not in CUTOUTS:
        raise OutputError(f"{target}: can't hold a cutout's alpha; name a .mov, .webm or .mkv, or FOLDER/%05d.png")
    if CUTOUTS[suffix] == "vp9" and (fault := config.misfit("vp9")):
        raise ConfigError(f"{target}: {fault}")
    return CUTOUTS[suffix]


def of_pictures(target: Path) -> bool:
    """Returns whether a file is a picture, one of several, or an animation, rather than a video."""
    return target.suffix.lower() in (*PICTURES, ".gif")


def format_options(target: Target, info: VideoInfo) -> dict[str, str]:
    """Returns options for the format's muxer with which every timestamp stays as it is."""
    match target.suffix.lower():
        case ".mp4" | ".mov" | ".m4v":
            # The movie's clock states where a stream begins: its ticks have to meet the video's.
            ticks = info.time_base.denominator
            clock = min(ticks * max(1, 100_000 // ticks), 1_000_000)
            return {"movflags": "+faststart", "movie_timescale": str(clock)}
        case ".mkv":  # AAC from an MP4 begins before 0, and FFmpeg would shift all streams because of that
            return {"avoid_negative_ts": "disabled"}
        case ".gif" | ".webp":
            return {"loop": "0"}  # again and again
        case _:
            return {}
