"""Opens inputs with PyAV, chooses the main video stream and reads its properties."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import logging
import math
import os
import re
import stat
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypedDict

import av
import av.error
from av.container import InputContainer
from av.packet import Packet
from av.stream import Disposition
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from segmentation.errors import InputError, one_line
from segmentation.frames import FORMATS, FULL, Color, VideoInfo
from segmentation.frames.byte_source import ByteSource, source_name
from segmentation.frames.orientation import UPRIGHT, Orientation
from segmentation.media.bitstream.headers import (
    begins_inside,
    begins_stream,
    has_layers,
    may_interlace,
    packs_b_frames,
    refreshes_gradually,
    stated_chroma_location,
)
from segmentation.media.bitstream.sei import light_messages, side_data
from segmentation.media.bitstream.start_codes import PacketFilter
from segmentation.media.containers import is_sequence, may_step, numbers_of
from segmentation.media.demux import demuxed
from segmentation.media.encryption import refuse_encrypted, refuse_encrypted_mp4
from segmentation.media.opening.download import DownloadError, Files, HttpFile
from segmentation.media.opening.stream_facts import StreamFacts, stream_facts
from segmentation.media.pictures.exif import exif_of, matrix_of, turned
from segmentation.media.pictures.heif import is_tiled, open_heif
from segmentation.media.pictures.webp import is_animated_webp, open_animated_webp
from segmentation.system.access import MAX_PIXELS, Access, check_size

log = logging.getLogger(__name__)

ALPHA = "alpha"  # in `VideoInfo.left_out`
SMPTE170M = 6  # the matrix BT.601, as H.273 numbers it
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
# FLV and MPEG-PS announce no streams, so FFmpeg looks for those that begin later, by itself for some 5 s.
_UNANNOUNCED = (b"FLV", b"\x00\x00\x01\xba")
_LOOK_AHEAD = {"analyzeduration": str(120_000_000), "probesize": str(64 << 20)}  # microseconds, bytes
_SKEW = 0.02  # of a display matrix: about a degree
# A playlist without an end is read from its first segment on, and ends where it has not grown in six reloads, which
# FFmpeg makes each half of its target duration.
_PLAYLIST_ON_DISK = {"live_start_index": "0", "m3u8_hold_counters": "6"}
_READ = 1024  # bytes of a file in which a playlist shows itself
_SLOWEST = Fraction(1, 100_000)  # frames a second
_EXIF = ("mjpeg", "png", "apng", "webp", "tiff")  # codecs of pictures that may carry it


def is_url(path: str) -> bool:
    """Returns whether `path` is an http(s) address rather than a file's name."""
    return path.startswith(("http://", "https://"))


def no_such_file(path: str) -> InputError:
    """Returns the error for a name that leads nowhere."""
    if "://" not in path:
        return InputError(f"{path}: no such file")
    return InputError(f"{path}: is no address that is read; those begin with {_ADDRESSES}")


def open_input(
    source: str | ByteSource, access: Access | None = None, limits: tuple[float, float] = _TIMEOUT
) -> InputContainer:
    """Opens a file, an http(s) address or a source of bytes for reading, at its beginning.

    `limits` are the seconds in which a file or an address must be opened, and each read must end. Raises `InputError`.
    """
    if isinstance(source, ByteSource):
        return _open_bytes(source, access or Access())
    path, access = source, access or Access()
    if is_sequence(path):
        return _open_sequence(path, access)
    url = is_url(path)
    if not url and is_animated_webp(path):
        return open_animated_webp(path, access.max_pixels)
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
        kind = _kind(beginning)  # of playlist or script
        files = Files(name, access) if url or kind in allowed - {"concat"} else None
        options = _limits(allowed if url else allowed & {str(kind)})
        options |= _PLAYLIST_ON_DISK if kind == "hls" and not url else {}
        options |= _LOOK_AHEAD if beginning.startswith(_UNANNOUNCED) else {}
        options["protocol_whitelist"] = "file" if files is None else "none"
        analysis = analysis_options(access) | (_NO_ANALYSIS if beginning[4:8] == _MP4 else {})
        container: InputContainer = av.open(
            name, "r", timeout=limits, options=analysis, container_options=options, io_open=files, **OPEN_OPTIONS
        )
        if files is not None:
            files.complete = True
        if not url and is_tiled(container):
            container.close()
            return open_heif(path, access.max_pixels)
        return container
    except DownloadError as exc:
        raise InputError(f"{path}: {exc.strerror}") from exc
    except FileNotFoundError as exc:
        raise no_such_file(path) from exc
    except PermissionError as exc:
        raise InputError(f"{path}: may not be read; check its permissions") from exc
    except IsADirectoryError as exc:
        raise InputError(f"{path}: is a folder, not a video") from exc
    except (av.error.FFmpegError, OSError, ValueError) as exc:
        kind = _kind(files.beginning if url and files is not None else beginning)
        if kind is not None and kind not in allowed:
            remedy = ", or allow it with --allow playlists" if kind in possible else ""
            text = "is a playlist or script that names other files; give the video itself"
            raise InputError(f"{path}: {text}{remedy}") from exc
        if isinstance(exc, av.error.InvalidDataError):
            text = "is not a video that FFmpeg can read, or its header is cut off or damaged"
            raise InputError(f"{path}: {text}") from exc
        raise InputError(f"{path}: cannot be opened ({one_line(exc)})") from exc


def _open_bytes(source: ByteSource, access: Access) -> InputContainer:
    options = _limits(set())
    try:
        reader = source.open()
        # Without a time limit: the program before a pipe may take long to begin.
        container: InputContainer = av.open(
            reader, "r", options=analysis_options(access), container_options=options, **OPEN_OPTIONS
        )
        return container
    except (av.error.FFmpegError, OSError, ValueError, TypeError) as exc:
        if source.fault:
            raise InputError(f"{source.name}: cannot be read ({source.fault})") from exc
        if isinstance(exc, av.error.EOFError):
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
    refused = _SCRIPTS.union(*(formats for kind, formats in _PLAYLISTS.items() if kind not in kinds))
    return {
        "format_whitelist": ",".join(sorted(av.formats_available - refused)),
        "pattern_type": "none",  # a percent sign in a picture's name stands for itself
        "http_persistent": "0",  # FFmpeg's HLS would take the connections for its own, and abort
    }


def _beginning(path: str) -> bytes:
    """Returns the first bytes of a file. Raises `InputError` for what can't be a video."""
    if stat.S_ISDIR(os.stat(path).st_mode):
        raise IsADirectoryError
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for its writer
        raise InputError(f"{path}: is a pipe or a device; copy its content to a file, and name that")
    with Path(path).open("rb") as file:
        beginning = file.read(_READ)
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


def probe(source: str | ByteSource, access: Access | None = None) -> VideoInfo:
    """Describes the main video of `source`, from the container and the first frame. Raises `InputError`."""
    path, access = source_name(source), access or Access()
    with open_input(source, access) as container:
        stream = video_stream(container, path, access)
        if "mp4" in container.format.name and not is_url(path):
            refuse_encrypted_mp4(source)
        _check_length(container, stream, path, access)
        extradata = stream.codec_context.extradata
        decoding_times = container.format.name == "avi" and stream.has_b_frames
        first, frame = _first_of(source, container, stream, access)
        codec = stream.codec_context.name
        head = b"" if first is None else bytes(first)
        matrix = display_matrix(frame, exif=head if codec in _EXIF else None)
        facts = stream_facts(stream)
        index = sum(not e.is_discard for e in stream.index_entries) if "mp4" in container.format.name else 0
        time_base = stream.time_base or Fraction(1, 1000)
        length = stream_length(stream, time_base)
        seconds = float(length or Fraction(container.duration or 0, 1_000_000))
        timed = first is None or first.pts is not None
        rate = nominal_rate(stream, path, timed=timed)
        if is_sequence(path):
            log.warning("%s: numbered pictures are read as %g frames a second", path, rate)
        info = VideoInfo(
            path=path,
            stream_index=stream.index,
            width=frame.width,
            height=frame.height,
            pix_fmt=frame.format.name,
            codec=codec,
            color=color_of(frame),
            time_base=time_base,
            rate=rate,
            start=Fraction(container.start_time or 0, 1_000_000),
            frames=index or stream.frames or round(seconds * rate),
            frames_exact=bool(index),
            end=_end(container, stream, length),
            sample_aspect_ratio=stream.sample_aspect_ratio or stream.codec_context.sample_aspect_ratio or None,
            display_matrix=matrix,
            **shown_as(matrix, path),
            chroma_location=facts.chroma_location or stated_chroma_location(codec, head),
            coded_aspect=stream.codec_context.sample_aspect_ratio or None,
            light=() if codec in _EXIF else light_messages(side_data(frame)),
            left_out=_left_out(facts, stream, path),
            interlaced=frame.interlaced_frame,
            access=access,
            first_pts=stream.start_time or 0,
            stream=None if isinstance(source, str) else source,
            extradata=extradata,
            timed=timed,
            # Addresses would be read whole to learn whether it does; HLS is sought by its playlist.
            may_step=may_step(container.format) and container.format.name != "hls" and not is_url(path),
            decoding_times=decoding_times,
        )
        return as_stated(info, head)


def _first_of(
    source: str | ByteSource, container: InputContainer, stream: VideoStream, access: Access
) -> tuple[Packet[VideoStream] | None, VideoFrame]:
    """Returns `first_packet_and_frame`. Raises `InputError`, which names the reason where an index is out of reach."""
    try:
        return first_packet_and_frame(container, stream, source_name(source), access)
    except InputError as exc:
        place = _read_once(source, access) if "mp4" in container.format.name else ""
        if not place:
            raise
        hint = f"{place} an MP4 needs its index at its beginning (ffmpeg -movflags +faststart)"
        raise InputError(f"{exc}; {hint}") from exc


def _read_once(source: str | ByteSource, access: Access) -> str:
    """Returns where a source is that can only be read from its beginning to its end, "" for any other."""
    if isinstance(source, ByteSource):
        return "" if source.seekable else "in a pipe"
    if not is_url(source):
        return ""
    try:
        with closing(HttpFile(source, access, named=True)) as file:
            return "" if file.seekable() else "from a server that sends no parts"
    except DownloadError:
        return ""


def as_stated(info: VideoInfo, head: bytes) -> VideoInfo:
    """Returns the description with what the stream's first packet states, which is given with start codes."""
    codec = info.codec
    return replace(
        info,
        interlaced=info.interlaced or may_interlace(codec, head),
        layered=has_layers(codec, head),
        packed=packs_b_frames(codec, head),
        inside=begins_inside(codec, head),
        gradual=refreshes_gradually(codec, head),
    )


def _left_out(facts: StreamFacts, stream: VideoStream, path: str) -> tuple[str, ...]:
    """Returns what goes with the stream and into no output. A line warns of colors that are none."""
    dolby = facts.dolby_vision
    if dolby is not None and not dolby[1]:
        text = "its colors are meant for Dolby Vision alone (profile %d), and are wrong here and in the output"
        log.warning("%s: " + text, path, dolby[0])
    has = {
        "360-degree metadata": facts.spherical,
        "metadata of two views": facts.stereo,
        "Dolby Vision metadata": dolby is not None,
        ALPHA: stream.metadata.get("alpha_mode") == "1",  # of VP8 and VP9, beside the pictures
    }
    return tuple(name for name, there in has.items() if there)


def _end(container: InputContainer, stream: VideoStream, length: Fraction | None) -> Fraction | None:
    """Returns when the last frame ends by the container, in seconds on its clock; `None` if it does not say.

    In Matroska, FFmpeg states the length from zero on, and mkvmerge from the first frame on: the earlier end is taken.
    """
    if length is None:
        return None
    begin = (stream.start_time or 0) * (stream.time_base or Fraction(1, 1000))
    return max(begin, length) if "matroska" in container.format.name else begin + length


def _check_length(container: InputContainer, stream: VideoStream, path: str, access: Access) -> None:
    """Raises `InputError` if the container states a length beyond the limit."""
    lengths = [
        stream_length(stream, stream.time_base or Fraction(1, 1000)),
        Fraction(container.duration or 0, 1_000_000),
    ]
    stated = max(length for length in lengths if length is not None)
    if access.max_duration is not None and stated > access.max_duration:
        raise too_long(path, access.max_duration, f"lasts {float(stated):.1f} s")


def too_long(path: str, most: Fraction, fault: str = "goes on longer than it says") -> InputError:
    """Returns the error of an input that is longer than is allowed."""
    return InputError(f"{path}: {fault}; at most {float(most):g} s are allowed (--max-duration)")


def first_packet_and_frame(
    container: InputContainer, stream: VideoStream, path: str, access: Access
) -> tuple[Packet[VideoStream] | None, VideoFrame]:
    """Returns the first packet, see `start_codes`, and the first frame that can be decoded, skipping damaged packets.

    A packet of H.264 and HEVC has the parameter sets, if any does up to that frame. The packet is `None` if all are
    damaged up to that frame. Raises `InputError` if there is no frame.
    """
    stream.thread_type = "SLICE"  # frame threads would decode a second of video to return one frame
    stream.codec_context.options = decoder_options(access)
    filtered = PacketFilter(stream, path)
    first: Packet[VideoStream] | None = None
    begun = False
    try:
        for packet in demuxed(container, stream):
            refuse_encrypted(packet, path)
            try:
                frames = packet.decode()
            except av.error.FFmpegError:
                frames = []
            if packet.size and (first is None or not begun):
                first = next(iter(filtered(packet)), first)
                begun = first is not None and begins_stream(stream.codec_context.name, bytes(first))
            if frames:
                check_size(frames[0].width, frames[0].height, path, access.max_pixels)
                return first, frames[0]
    except av.error.FFmpegError as exc:
        raise InputError(f"{path}: cannot be read ({one_line(exc)})") from exc
    limit = "" if stream.width else f", or they are {too_large(access)}"
    raise InputError(f"{path}: holds no frame that can be decoded{limit}")


def too_large(access: Access) -> str:
    """Returns the words for pictures of a size that FFmpeg refused without stating it."""
    return f"too large: of pixels, more than {access.max_pixels} are refused"


def color_of(frame: VideoFrame) -> Color:
    """Returns the color description of a decoded frame; for RGB that of the YUV which swscale makes, BT.601.

    FFmpeg's yuvj formats are full range by name.
    """
    full = frame.format.name.startswith("yuvj")
    return Color(
        matrix=SMPTE170M if frame.format.is_rgb else int(frame.colorspace),
        range=FULL if full else int(frame.color_range),
        primaries=int(frame.color_primaries),
        transfer=int(frame.color_trc),
    )


class ShownAs(TypedDict):
    """How stored frames stand upright, see `VideoInfo`."""

    rotation: int
    mirrored: bool


def shown_as(matrix: tuple[int, ...] | None, path: str) -> ShownAs:
    """Returns the orientation nearest to a display matrix. A line says where the matrix is none of the eight.

    The stored frame's axes point to (matrix[0], matrix[1]) and (matrix[3], matrix[4]) on the screen, right and down.
    """
    if matrix is None:
        return ShownAs(rotation=0, mirrored=False)
    a, b, c, d = matrix[0], matrix[1], matrix[3], matrix[4]
    rotation = round(math.degrees(math.atan2(-b, d)) / 90) * 90 % 360
    small, large = ((a, d), (b, c)) if rotation % 180 else ((b, c), (a, d))
    if max(map(abs, small)) > _SKEW * min(map(abs, large)):
        text = "its display matrix is no quarter turn: players turn the output alike, and the picture is seen turned by"
        log.warning("%s: %s %d degrees", path, text, rotation)
    return ShownAs(rotation=rotation, mirrored=a * d < b * c)


def display_matrix(frame: VideoFrame, *, exif: bytes | None = None) -> tuple[int, ...] | None:
    """Returns the 3x3 matrix by which players turn or mirror the picture, as 9 integers; `None` if there is none.

    `exif` is the coded picture if it may have EXIF data. PyAV lacks that kind of side data, and crashes later if it is
    asked for any. Without them it still has the angle, but not whether the picture is mirrored.
    """
    if exif is not None and (shown := turned(exif_of(exif))) != UPRIGHT:
        return matrix_of(shown)
    for matrix in [] if exif is not None else side_data(frame).get("DISPLAYMATRIX", []):
        return tuple(memoryview(matrix).cast("i"))
    return matrix_of(Orientation(round(frame.rotation / 90) % 4, mirrored=False)) if frame.rotation else None


def stream_length(stream: VideoStream, time_base: Fraction) -> Fraction | None:
    """Returns the stream's own length in seconds, which Matroska keeps in a tag; `None` if the container has none."""
    if stream.container.format.name == "asf":  # each stream of a WMV claims the length of the longest
        return None
    if stream.duration:
        return stream.duration * time_base
    clock = re.fullmatch(r"(\d+):(\d\d):(\d\d(?:\.\d+)?)", stream.metadata.get("DURATION", ""))
    return None if clock is None else int(clock[1]) * 3600 + int(clock[2]) * 60 + Fraction(clock[3])


def nominal_rate(stream: VideoStream, path: str, *, timed: bool = True) -> Fraction:
    """Returns frames a second for rate control: the first plausible rate of the container, else 30.

    Of streams that are not `timed`, the average rate is only FFmpeg's default, and the guessed one the stream's own.
    Raises `InputError` where a frame is to be shown for days: no container and no encoder keeps such times.
    """
    average, guessed = stream.average_rate, stream.guessed_rate
    stated = (*((average, guessed) if timed else (guessed, average)), stream.base_rate)
    for rate in stated:
        if rate is not None and _SLOWEST <= rate <= 240:
            return Fraction(rate).limit_denominator(100_000)
    if rate := next((rate for rate in stated if rate is not None and 0 < rate < _SLOWEST), None):
        raise InputError(f"{path}: states {float(rate):.3g} frames a second; at least {float(_SLOWEST):g} are possible")
    return Fraction(30)


def working_format(pix_fmt: str, allowed: tuple[str, ...]) -> str:
    """Returns the key of `FORMATS` in which a stream is processed: the nearest to `pix_fmt` of those `allowed`.

    yuvj formats are their plain counterparts. RGB and rare subsamplings become 4:4:4, gray becomes 4:2:0, more than 10
    bits become 10. A format that is not allowed becomes 4:2:0 of the same depth, or of 8 bits.
    """
    plain = pix_fmt.replace("yuvj", "yuv")
    if plain not in FORMATS:
        layout = av.VideoFormat(pix_fmt, 8, 8)
        chroma = {(4, 4): "420", (4, 8): "422"}.get((layout.chroma_width(), layout.chroma_height()), "444")
        gray = not layout.is_rgb and len(layout.components) < 3
        deep = max(c.bits for c in layout.components) > 8
        plain = f"yuv{'420' if gray else chroma}p{'10le' if deep else ''}"
    same_depth = "yuv420p10le" if FORMATS[plain].bits == 10 else "yuv420p"
    return next(f for f in (plain, same_depth, "yuv420p") if f in allowed)
