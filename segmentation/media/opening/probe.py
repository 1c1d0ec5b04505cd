"""Describes the main video of an input, from its container and its first frame."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from fractions import Fraction
from typing import cast

import av
import av.error
from av.container import InputContainer
from av.packet import Packet
from av.stream import Stream
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from segmentation.errors import InputError, one_line
from segmentation.frames import VideoInfo
from segmentation.frames.source import Source
from segmentation.media.bitstream.headers import (
    begins_inside,
    begins_stream,
    has_layers,
    is_idr,
    may_interlace,
    packs_b_frames,
    refreshes_gradually,
    stated_chroma_location,
)
from segmentation.media.bitstream.sei import light_messages, side_data
from segmentation.media.bitstream.slice_headers import without_pixels
from segmentation.media.bitstream.start_codes import PacketFilter
from segmentation.media.containers import may_step
from segmentation.media.demux import demuxed
from segmentation.media.encryption import refuse_encrypted, refuse_encrypted_mp4
from segmentation.media.mp4_samples import Mp4Video, samples_in
from segmentation.media.opening.cut_off import is_cut_off
from segmentation.media.opening.download import DownloadError, HttpFile
from segmentation.media.opening.open_input import decoder_options, open_input, too_large, video_stream
from segmentation.media.opening.stream_facts import StreamFacts, stream_facts
from segmentation.media.opening.stream_properties import color_of, display_matrix, nominal_rate, shown_as, stream_length
from segmentation.media.pictures.tiff import warn_of_pages
from segmentation.media.source_packets import SourcePackets
from segmentation.system.access import Access, check_size

log = logging.getLogger(__name__)

_TIMED = ("video", "audio")  # streams by whose first packets an input begins
_LONGER_SOUND = Fraction(1, 5)  # seconds by which the longest stream of a whole file may outlast the video
_MOST_HELD = 4096  # packets, while one of each such stream is waited for

ALPHA = "alpha"  # in `VideoInfo.left_out`
LAYER = "second layer (another view, or alpha)"  # likewise
_ALPHA_MODE = ("alpha_mode", "ALPHA_MODE")  # FFmpeg reads its own files' tag in place of the track's property
_BESIDE = ("vp8", "vp9")  # codecs whose alpha is beside the pictures
_EXIF = ("mjpeg", "png", "apng", "webp", "tiff")  # codecs of pictures that may carry it


def probe(given: str | Source, access: Access | None = None) -> VideoInfo:
    """Describes an input's main video, from the container and the first frame. Raises `InputError`."""
    source, access = Source.parse(given), access or Access()
    path = source.text
    with open_input(source, access, brief=True) as container:
        stream = video_stream(container, path, access)
        if "mp4" in container.format.name and not source.is_url:
            refuse_encrypted_mp4(source)
        _check_length(container, stream, path, access)
        extradata = stream.codec_context.extradata
        decoding_times = container.format.name == "avi" and stream.has_b_frames
        packets = SourcePackets(container, *container.streams) if may_step(container.format) else None
        first, frame = _first_of(source, container, stream, access, packets)
        start, first_pts = _beginning(container, stream, packets)
        codec = stream.codec_context.name
        head = b"" if first is None else bytes(first)
        matrix = display_matrix(frame, exif=head if codec in _EXIF else None)
        facts = stream_facts(stream)
        time_base = stream.time_base or Fraction(1, 1000)
        index = _pictures(source, stream, first_pts) if "mp4" in container.format.name else 0
        length = _stated_length(source, container, stream)
        seconds = float(length or Fraction(container.duration or 0, 1_000_000))
        timed = first is None or first.pts is not None
        rate = nominal_rate(stream, path, timed=timed)
        if codec == "tiff":
            warn_of_pages(head, path)
        if source.is_pattern:
            log.warning("%s: numbered pictures are read as %g frames a second", path, rate)
        info = VideoInfo(
            source=source,
            stream_index=stream.index,
            width=frame.width,
            height=frame.height,
            pix_fmt=frame.format.name,
            codec=codec,
            color=color_of(frame),
            time_base=time_base,
            rate=rate,
            start=start,
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
            first_pts=first_pts,
            extradata=extradata,
            timed=timed,
            # Addresses would be read whole to learn whether it does; HLS is sought by its playlist.
            may_step=may_step(container.format) and container.format.name != "hls" and not source.is_url,
            decoding_times=decoding_times,
            alone=len(container.streams) == 1,
        )
        return as_stated(info, head)


def _pictures(source: Source, stream: VideoStream, first_pts: int) -> int:
    """Returns how many pictures an MP4 shows by its index. The entries are asked one by one where that is in doubt."""
    index, time_base = stream.index_entries, stream.time_base
    if source.kind == "file" and time_base:
        codec = stream.codec_context.name
        if samples_in(Mp4Video(source.text, stream.index, codec, time_base, len(index), first_pts)) is not None:
            return len(index)
    return sum(not entry.is_discard for entry in index)


def _first_of(
    source: Source,
    container: InputContainer,
    stream: VideoStream,
    access: Access,
    packets: SourcePackets | None,
) -> tuple[Packet[VideoStream] | None, VideoFrame]:
    """Returns `first_packet_and_frame`. Raises `InputError`, which names the reason where an index is out of reach."""
    try:
        own = None if packets is None else _once_begun(container, stream, packets)
        return first_packet_and_frame(container, stream, source.text, access, own, pixels=False)
    except InputError as exc:
        place = _read_once(source, access) if "mp4" in container.format.name else ""
        if not place:
            raise
        hint = f"{place} an MP4 needs its index at its beginning (ffmpeg -movflags +faststart)"
        raise InputError(f"{exc}; {hint}") from exc


def _once_begun(
    container: InputContainer, stream: VideoStream, packets: SourcePackets
) -> Iterator[Packet[VideoStream]]:
    """Yields a stream's packets, once all pictures and sound that FFmpeg has seen have begun: it holds them."""
    waited = {other.index for other in container.streams if other.start_time is not None and other.type in _TIMED}
    held: list[Packet[Stream]] = []
    for packet in packets:
        waited.discard(packet.stream_index)
        held.append(packet)
        if not waited or len(held) == _MOST_HELD:
            waited.clear()
            yield from (cast("Packet[VideoStream]", one) for one in held if one.stream_index == stream.index)
            held.clear()
    yield from (cast("Packet[VideoStream]", one) for one in held if one.stream_index == stream.index)


def _beginning(container: InputContainer, stream: VideoStream, packets: SourcePackets | None) -> tuple[Fraction, int]:
    """Returns when the input begins, in seconds, and its video, in ticks.

    FFmpeg states that, unless the times of the first packets are wrong.
    """
    begins = [] if packets is None or not packets.stepped else map(packets.begin, container.streams)
    known = [begin for begin in begins if begin is not None]
    own = packets.begin(stream) if packets is not None and known else None
    if own is None or not stream.time_base:
        return Fraction(container.start_time or 0, 1_000_000), stream.start_time or 0
    return min(known), round(own / stream.time_base)


def _read_once(source: Source, access: Access) -> str:
    """Returns where a source is that can only be read from its beginning to its end, "" for any other."""
    if source.is_read_once:
        return "in a pipe"
    if not source.is_url:
        return ""
    try:
        with closing(HttpFile(source.text, access, named=True)) as file:
            return "" if file.seekable() else "from a server that sends no parts"
    except DownloadError:
        return ""


def as_stated(info: VideoInfo, head: bytes) -> VideoInfo:
    """Returns the description with what the stream's first packet states, which is given with start codes."""
    codec, layered = info.codec, has_layers(info.codec, head)
    return replace(
        info,
        interlaced=info.interlaced or may_interlace(codec, head),
        left_out=info.left_out + (LAYER,) * (layered and not info.layered),
        layered=layered,
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
        ALPHA: stream.codec_context.name in _BESIDE and "1" in (stream.metadata.get(name) for name in _ALPHA_MODE),
    }
    return tuple(name for name, there in has.items() if there)


def _stated_length(source: Source, container: InputContainer, stream: VideoStream) -> Fraction | None:
    """Returns the video's length in seconds by the container, at least where the video's end is missing."""
    length = stream_length(stream, stream.time_base or Fraction(1, 1000))
    if length is None and container.duration and is_cut_off(source, container.format.name):
        return max(Fraction(0), Fraction(container.duration, 1_000_000) - _LONGER_SOUND) or None
    return length


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


def _emptied(stream: VideoStream, packet: bytes) -> list[VideoFrame]:
    """Returns the frame of an IDR picture, the first packet, which the decoder holds back until it has two more.

    Without a frame, as of a field alone, the decoder is as it was.
    """
    context = stream.codec_context
    frames = context.decode(None)
    context.flush_buffers()
    return frames or context.decode(Packet(packet))


def _unseen(stream: VideoStream, packet: Packet[VideoStream]) -> list[VideoFrame]:
    """Returns a frame that refers to no other with its properties alone: its pixels take most of the description.

    Of any other picture there is none, and the decoder is as it was.
    """
    context = stream.codec_context
    headers = b"" if packet.has_sidedata("new_extradata") else without_pixels(context.name, bytes(packet))
    if not headers:
        return []
    try:
        return context.decode(Packet(headers)) or context.decode(None)
    except av.error.FFmpegError:
        return []
    finally:
        context.flush_buffers()


def first_packet_and_frame(
    container: InputContainer,
    stream: VideoStream,
    path: str,
    access: Access,
    packets: Iterable[Packet[VideoStream]] | None = None,
    *,
    pixels: bool = True,
) -> tuple[Packet[VideoStream] | None, VideoFrame]:
    """Returns the first packet, see `start_codes`, and the first frame that can be decoded, skipping damaged packets.

    A packet of H.264 and HEVC has the parameter sets, if any does up to that frame. The packet is `None` if all are
    damaged up to that frame. `packets` are the stream's, where the caller reads the container. Without `pixels` only
    the frame's properties count. Raises `InputError` if there is no frame.
    """
    stream.thread_type = "SLICE"  # frame threads would decode a second of video to return one frame
    codec = stream.codec_context.name
    if codec == "h264" or (codec == "hevc" and not pixels):
        stream.codec_context.thread_count = 1  # most pictures are one slice, and each thread takes as long to make
    stream.codec_context.options = decoder_options(access) | ({} if pixels else {"ec": "0"})  # no concealment
    filtered = PacketFilter(stream, path)
    first: Packet[VideoStream] | None = None
    begun = False
    try:
        for packet in demuxed(container, stream) if packets is None else packets:
            refuse_encrypted(packet, path)
            whole = b"" if begun else bytes(packet)
            frames = [] if begun or pixels else _unseen(stream, packet)
            with suppress(av.error.FFmpegError):
                frames = frames or packet.decode()
            if packet.size and (first is None or not begun):
                first = next(iter(filtered(packet)), first)
                begun = first is not None and begins_stream(codec, bytes(first))
                if first is not None and begun and not frames and is_idr(codec, bytes(first)):
                    frames = _emptied(stream, whole)
            if frames:
                check_size(frames[0].width, frames[0].height, path, access.max_pixels)
                return first, frames[0]
    except av.error.FFmpegError as exc:
        raise InputError(f"{path}: cannot be read ({one_line(exc)})") from exc
    limit = "" if stream.width else f", or they are {too_large(access)}"
    raise InputError(f"{path}: holds no frame that can be decoded{limit}")
