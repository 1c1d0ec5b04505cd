"""Opens inputs with PyAV, within the limits of their access, and chooses the main video stream."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import logging
import os
import re
import stat
from functools import cache
from pathlib import Path
from typing import Any

import av
import av.error
from av.container import InputContainer
from av.stream import Disposition, Stream
from av.video.stream import VideoStream

from segmentation.errors import InputError, one_line
from segmentation.frames.byte_source import ByteSource
from segmentation.frames.picture_names import numbers_of
from segmentation.frames.source import Source
from segmentation.media.opening.download import DownloadError, Files
from segmentation.media.opening.joined_ts import BEGINNING, JoinedTs, is_ts
from segmentation.media.pictures.heif import is_tiled, open_heif
from segmentation.media.pictures.webp import is_animated_webp, open_animated_webp
from segmentation.system.access import MAX_PIXELS, Access, check_size, refused_above
from segmentation.system.interrupts import interrupts

log = logging.getLogger(__name__)

CONCEALED = ("hevc",)  # codecs of which FFmpeg drops frames up to the next keyframe, unless asked for broken frames
_ADDRESSES = "http(s)://, rtsp(s)://, rtmp://, srt://, udp://, rtp:// or file:///"
_TIMEOUT = (20.0, 60.0)  # seconds to open and to read
OPEN_OPTIONS: dict[str, Any] = {"metadata_errors": "ignore"} if int(av.__version__.partition(".")[0]) < 19 else {}
# Demuxers that open other files or addresses than the one that is named. PyAV's FFmpeg has none for DASH.
_SCRIPTS = {"dash", "imf", "rtp", "rtsp", "sap", "sdp", "vobsub", "avisynth", "vapoursynth"}
_PLAYLISTS = {"concat": {"concat"}, "hls": {"hls", "applehttp"}}  # by kind
_BEGINNINGS = {b"#EXTM3U": "hls", b"ffconcat": "concat", b"v=0": "sdp", b"# VobSub": "vobsub"}
_MP4 = b"ftyp"  # follows the length of the first box of an MP4 or MOV
# FFmpeg would decode up to 20 frames at each opening to learn what an MP4's header tells, or the first frame.
_NO_ANALYSIS = {"skip_frame": "all"}
# Of an MP4 with an index FFmpeg would read up to 5 MB of packets, and ask PyAV at each of them whether time is over.
_BRIEF = {"probesize": "32"}  # bytes
_DESCRIBED = {"h264", "hevc", "av1"}  # codecs of which extradata and the first picture tell what packets would
# FLV and MPEG-PS announce no streams, so FFmpeg looks for those that begin later, by itself for some 5 s. It keeps the
# packets up to there, so that bytes are the limit.
_UNANNOUNCED = (b"FLV", b"\x00\x00\x01\xba")
_LOOK_AHEAD = {"analyzeduration": str(100 * 3600 * 1_000_000), "probesize": str(64 << 20)}  # microseconds, bytes
# A playlist without an end is read from its first segment on, and ends where it has not grown in six reloads, which
# FFmpeg makes each half of its target duration.
_PLAYLIST_ON_DISK = {"live_start_index": "0", "m3u8_hold_counters": "6"}


def is_url(path: str) -> bool:
    """Returns whether `path` is an http(s) address rather than a file's name."""
    return path.startswith(("http://", "https://"))


def no_such_file(path: str) -> InputError:
    """Returns the error for a name that leads nowhere."""
    if not path.strip():  # as of a variable that is not set
        return InputError(f"{path!r}: must be the name of a file")
    if "://" not in path:
        return InputError(f"{path}: no such file")
    if Source.parse(path).is_live:  # such as the file of an effect
        return InputError(f"{path}: is a live source, which inputs alone can be; name a file or an http(s) address")
    name, _, address = path.partition("=")
    if is_url(address):
        return InputError(f"{path}: a name stands before live sources alone, such as HLS; leave out {name}=")
    return InputError(f"{path}: is no address that is read; those begin with {_ADDRESSES}")


def open_input(
    given: str | Source,
    access: Access | None = None,
    limits: tuple[float, float] = _TIMEOUT,
    *,
    brief: bool = False,
) -> InputContainer:
    """Opens a file, numbered pictures, an http(s) address or bytes for reading, at the beginning.

    `limits` are the seconds in which a file or an address must be opened, and each read must end. With `brief`, the
    packets of an MP4 are not read, which alone may have some of its codec contexts' facts. Raises `InputError`.
    """
    source, access = Source.parse(given), access or Access()
    if source.stream is not None:
        return _open_bytes(source.stream, access)
    path, url = source.text, source.is_url
    if source.is_pattern:
        return _open_sequence(path, access)
    if url and re.search(r"\s", path):  # a line break would add headers to the request
        raise InputError(f"{path.split()[0]}: the address has a space or line break after this; write it as %20")
    # An absolute path can't be mistaken for a protocol ("a:b.mp4") or an option ("-video.mp4").
    name = path if url else os.path.abspath(path)
    # Concat scripts open files past `Files`, so an address is none, and they lead to no address.
    possible = {"hls"} if url else set(_PLAYLISTS)
    allowed = possible if access.playlists else set()
    files: Files | None = None
    beginning = b""
    try:
        beginning = b"" if url else _beginning(path)
        if beginning.startswith(b"RIFF") and is_animated_webp(path):
            return open_animated_webp(path, access.max_pixels)
        kind = _kind(beginning)  # of playlist or script
        files = Files(name, access) if url or kind in allowed - {"concat"} else None
        options = _limits(allowed if url else allowed & {str(kind)})
        options |= _PLAYLIST_ON_DISK if kind == "hls" and not url else {}
        options |= _LOOK_AHEAD if beginning.startswith(_UNANNOUNCED) else {}
        options["protocol_whitelist"] = "file" if files is None else "none"
        mp4 = beginning[4:8] == _MP4
        options |= _BRIEF if brief and mp4 else {}
        analysis = analysis_options(access) | (_NO_ANALYSIS if mp4 else {})
        opener = files or (_open_ts if is_ts(beginning) else None)
        with interrupts():
            container: InputContainer = av.open(
                name, "r", timeout=limits, options=analysis, container_options=options, io_open=opener, **OPEN_OPTIONS
            )
        if brief and mp4 and not all(map(_is_described, container.streams)):
            container.close()
            return open_input(source, access, limits)
        if files is not None:
            files.complete = True
        if not url and is_tiled(container):
            container.close()
            return open_heif(path, access.max_pixels)
        return container
    except (av.error.FFmpegError, OSError, ValueError) as exc:
        kind = _kind(files.beginning if url and files is not None else beginning)
        names_others = kind is not None and kind not in allowed
        raise _fault(path, exc, names_others=names_others, allowable=kind in possible) from exc


def _is_described(stream: Stream) -> bool:
    """Returns whether an MP4's header describes a stream. Packets add to that of fragments, and of older codecs."""
    if not stream.frames or not isinstance(stream, VideoStream):
        return bool(stream.frames)
    context = stream.codec_context
    return context is not None and context.name in _DESCRIBED and bool(context.extradata)


def _fault(path: str, exc: Exception, *, names_others: bool, allowable: bool) -> InputError:
    """Returns in words why a file can't be opened. It may be one that names others, which may be `allowable`."""
    if isinstance(exc, DownloadError):
        return InputError(f"{path}: {exc.strerror}")
    if isinstance(exc, FileNotFoundError):
        return no_such_file(path)
    if isinstance(exc, PermissionError):
        return InputError(f"{path}: may not be read; check its permissions")
    if names_others:
        remedy = ", or allow it with --allow playlists" if allowable else ""
        return InputError(f"{path}: is a playlist or script that names other files; give the video itself{remedy}")
    if isinstance(exc, av.error.InvalidDataError):
        return InputError(f"{path}: is not a video that FFmpeg can read, or its header is cut off or damaged")
    return InputError(f"{path}: cannot be opened ({one_line(exc)})")


def _open_ts(path: str, flags: int, options: dict[str, str]) -> JoinedTs:
    """Opens a file for PyAV's `io_open`."""
    return JoinedTs(Path(path).open("rb"))


def _open_bytes(source: ByteSource, access: Access) -> InputContainer:
    options = _limits(set())
    try:
        reader = JoinedTs(source.open())
        # Without a time limit: the program before a pipe may take long to begin.
        with interrupts():
            container: InputContainer = av.open(
                reader, "r", options=analysis_options(access), container_options=options, **OPEN_OPTIONS
            )
        return container
    except (av.error.FFmpegError, OSError, ValueError, TypeError) as exc:
        if source.fault:
            raise InputError(f"{source.name}: cannot be read ({source.fault})") from exc
        if isinstance(exc, av.error.EOFError) or not source.open().read(1):
            raise InputError(f"{source.name}: holds no bytes, or ends before a video begins") from exc
        if isinstance(exc, av.error.InvalidDataError):
            raise InputError(f"{source.name}: is not a video that FFmpeg can read, or is damaged") from exc
        raise InputError(f"{source.name}: cannot be opened ({one_line(exc)})") from exc


def _open_sequence(path: str, access: Access) -> InputContainer:
    """Opens numbered pictures, from the first of them on. Raises `InputError` if there are none, or one is missing."""
    numbers = numbers_of(Path(path))
    if not numbers:
        raise InputError(f"{path}: no such file, and no pictures numbered so")
    if missing := set(range(numbers[0], numbers[-1])) - set(numbers):
        raise InputError(f"{path}: number {min(missing)} is missing between {numbers[0]} and {numbers[-1]}")
    folder = str(Path(path).absolute().parent).replace("%", "%%")  # a single % stands for a number in the name alone
    options = {
        **_limits(set()),
        "protocol_whitelist": "file",
        "pattern_type": "sequence",
        "start_number": str(numbers[0]),
    }
    try:
        container: InputContainer = av.open(
            f"{folder}/{Path(path).name}",
            "r",
            format="image2",
            options=analysis_options(access),
            container_options=options,
            **OPEN_OPTIONS,
        )
        return container
    except (av.error.FFmpegError, OSError, ValueError) as exc:
        raise InputError(f"{path}: cannot be opened ({one_line(exc)})") from exc


def analysis_options(access: Access) -> dict[str, str]:
    """Returns FFmpeg's options for frames that it decodes as it opens a file, to learn the streams' properties."""
    return {"max_pixels": _most_pixels(access)}


def _limits(kinds: set[str]) -> dict[str, str]:
    """Returns FFmpeg's options with which a file opens itself alone, unless it is a playlist of one of these kinds."""
    return {
        "format_whitelist": _whitelist(frozenset(kinds)),
        "pattern_type": "none",  # a percent sign in a picture's name stands for itself
        "http_persistent": "0",  # FFmpeg's HLS would take the connections for its own, and abort
    }


@cache
def _whitelist(kinds: frozenset[str]) -> str:
    """Returns the formats that are read, with commas between them: all but scripts and other playlists."""
    refused = _SCRIPTS.union(*(formats for kind, formats in _PLAYLISTS.items() if kind not in kinds))
    return ",".join(sorted(av.formats_available - refused))


def _beginning(path: str) -> bytes:
    """Returns the first bytes of a file. Raises `InputError` for what can't be a video."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        what = "give its files one by one, or the folder to the command line"
        raise InputError(f"{path}: is a folder, not a video; {what}")
    if not stat.S_ISREG(mode):  # opening a pipe would wait for its writer
        raise InputError(f"{path}: is a pipe or a device; copy its content to a file, and name that")
    with open(path, "rb", buffering=0) as file:  # each call of the system gives up the GIL, and a buffer takes four
        beginning = file.read(BEGINNING)
    if not beginning:
        raise InputError(f"{path}: the file is empty")
    return beginning


def _kind(beginning: bytes) -> str | None:
    """Returns the kind of playlist or script that begins so; `None` for whatever else."""
    if b"<MPD" in beginning:
        return "dash"
    return next((kind for start, kind in _BEGINNINGS.items() if beginning.startswith(start)), None)


def video_stream(container: InputContainer, path: str, access: Access | None = None) -> VideoStream:
    """Returns the main video stream: FFmpeg's choice, never a cover picture. Raises `InputError` if there is none."""
    videos = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
    if not videos:
        raise InputError(f"{path}: has no video stream")
    best = container.streams.best("video")
    stream = best if isinstance(best, VideoStream) and best in videos else videos[0]
    if stream.codec_context is None:
        raise InputError(f"{path}: its video codec is unknown to this FFmpeg")
    if is_tiled(container):
        raise InputError(f"{path}: consists of tiles, which are read from a file alone; save it as one, or as a JPEG")
    check_size(stream.width, stream.height, path, (access or Access()).max_pixels)
    return stream


def decoder_options(access: Access, codec: str = "") -> dict[str, str]:
    """Returns FFmpeg's options with which a decoder refuses frames far beyond the limit.

    With its `codec`, it puts out the broken frames of `CONCEALED` too, with a mark.

    The codec's own size, which FFmpeg checks, may be that of whole blocks; `check_size` checks the picture's. Without
    `unaligned` FFmpeg leaves columns at the left that the stream says to cut off.
    """
    flags = "+unaligned+output_corrupt" if codec in CONCEALED else "+unaligned"
    return {"max_pixels": _most_pixels(access), "flags": flags}


def _most_pixels(access: Access) -> str:
    return str(min(MAX_PIXELS, 2 * access.max_pixels + (1 << 16)))


def too_large(access: Access) -> str:
    """Returns the words for pictures of a size that FFmpeg refused without stating it."""
    return f"too large: of pixels, {refused_above(access.max_pixels)}"
