"""Which streams and tags of another file a format holds, found by writing them to memory."""

import io
import struct
from contextlib import suppress

import av
import av.error
from av.audio.stream import AudioStream
from av.container import InputContainer, OutputContainer
from av.stream import Stream

from segmentation.frames import VideoInfo
from segmentation.media.containers import has_rate
from segmentation.media.copying.sound_copy import name_channels
from segmentation.media.copying.tags import MP4, kind_of, lasting_tags
from segmentation.media.demux import demuxed
from segmentation.media.opening.open_input import OPEN_OPTIONS, open_input

_CHUNK = 8  # bytes of a chunk's name and length, in AVI
_SHORTEST = 0.001  # seconds: no codec's packets are shorter
_LAST_OF_AC3 = 10  # versions of the bit stream (bsid) above are E-AC-3's


def format_holds(format_name: str, stream: Stream, file: io.BytesIO) -> bool:
    """Returns whether a format takes this stream, found by writing a header to `file`, in memory.

    PyAV refuses what Matroska's muxer would write under a tag of Windows, such as WMA, so AVI alone takes it.
    """
    if stream.type == "attachment" and format_name != "matroska":
        return False  # WebM would accept it and write nothing
    if isinstance(stream, AudioStream):
        if stream.codec_context is None:  # of a codec that FFmpeg does not know: the stream has no property then
            return False
        if not has_rate(format_name, stream.codec_context.name, stream.rate):
            return False
    try:
        with av.open(file, "w", format=format_name) as trial:
            copy = trial.add_stream_from_template(stream)
            if isinstance(copy, AudioStream):
                name_channels(copy)
            trial.start_encoding()
    except (av.error.FFmpegError, ValueError):
        return False
    return not isinstance(stream, AudioStream) or states_packets(format_name, file.getvalue(), stream)


def states_packets(format_name: str, header: bytes, stream: AudioStream) -> bool:
    """Returns whether a header of this format states size and length of its sound's packets, as players need them.

    AVI alone may not. `stream` is the sound, or one of the same codec and channels.
    ADPCM is decoded by that size. Of sound without a constant rate, a packet counts as a length for each block that it
    begins, as in DirectShow: FLAC, E-AC-3, AMR and DTS would be heard at once, or several times too slowly, where
    FFmpeg's muxer has no length or writes the size of a sample.
    """
    if format_name != "avi":
        return True
    scale, rate, *_, sample = struct.unpack_from("<7I", header, header.find(b"strh") + _CHUNK + 20)
    bytes_a_second, block = struct.unpack_from("<IH", header, header.find(b"strf") + _CHUNK + 8)
    if stream.codec_context.name.startswith("adpcm_"):
        return bool(block > 4 * stream.codec_context.channels)  # bytes: each channel has a header
    length = scale / rate  # seconds
    return bool(sample or (length >= _SHORTEST and (not block or block + 1 > bytes_a_second * length)))


def is_named_wrongly(stream: Stream, source: InputContainer, info: VideoInfo) -> bool:
    """Returns whether a stream that its file calls AC-3 is E-AC-3, by its first packet: ETSI TS 102 366, E.1.3.1.6.

    NUT has one name for both. MP4 has two, and its muxer fails at the end of a file with the wrong one."""
    if source.format.name != "nut" or kind_of(stream) != "audio ac3":
        return False
    if info.source.stream is not None:
        info.source.stream.expect(1)
    with suppress(av.error.FFmpegError), open_input(info.source, info.access) as again:
        first = next((bytes(packet) for packet in demuxed(again, again.streams[stream.index]) if packet.size > 5), None)
        return first is not None and first[:2] == b"\x0b\x77" and first[5] >> 3 > _LAST_OF_AC3
    return False


def copy_tags(source: InputContainer, output: OutputContainer) -> None:
    """Takes over the metadata of all the file; in MP4 and MOV as QuickTime keys where the usual tags hold less."""
    tags = lasting_tags(source.metadata)
    output.metadata.update(tags)
    if tags and output.format.name in MP4 and _lost_in_mp4(output.format.name, tags):
        options = output.container_options  # which the header obeys
        options["movflags"] = options.get("movflags", "") + "+use_metadata_tags"


def _lost_in_mp4(format_name: str, tags: dict[str, str]) -> set[str]:
    """Returns the tags that the usual metadata of MP4 or MOV don't hold, found by writing them to memory."""
    file = io.BytesIO()
    with av.open(file, "w", format=format_name) as trial:
        trial.add_stream("pcm_s16le" if format_name == "mov" else "mp2", rate=48000)
        trial.metadata.update(tags)
        trial.start_encoding()
    with av.open(io.BytesIO(file.getvalue()), **OPEN_OPTIONS) as made:
        return set(tags) - set(made.metadata) - {"timecode"}  # which becomes a track
