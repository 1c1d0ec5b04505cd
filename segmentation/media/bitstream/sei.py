"""Messages that travel with coded pictures: read from frames and packets, and written into the output's packets.

They are SEI messages of H.264 and HEVC (H.264 annex D, H.274). Captions of other codecs become such messages. PyAV can
give no side data to frames, so encoders don't see the messages: they are put into the packets behind the encoder.
"""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import logging
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from av.packet import Packet
from av.sidedata.sidedata import SideDataContainer
from av.video.frame import VideoFrame

from segmentation.frames import Frame, Message, VideoInfo
from segmentation.media.bitstream.headers import first_slice, payloads, units
from segmentation.media.video_packet import VideoPacket, head, pts_of

if TYPE_CHECKING:
    from segmentation.media.video_packet import ChunkPacket

log = logging.getLogger(__name__)

CARRIERS = ("h264", "hevc")  # codecs that have SEI messages
REGISTERED, UNREGISTERED, MASTERING_DISPLAY, LIGHT_LEVEL = 4, 5, 137, 144  # payloadType
_ATSC = b"\xb5\x00\x31"  # country and provider, ATSC A/53 part 4, clause 6.2.3
_CAPTIONS, _FORMAT = b"GA94\x03", b"DTG1"  # of captions, and of the active format description
_HDR10_PLUS = b"\xb5\x00\x3c"  # SMPTE ST 2094-40
_TRIPLETS = 31  # of captions in a message, at most
_ASKED = ("h264", "hevc", "mpeg1video", "mpeg2video", "av1", "libdav1d")  # codecs whose frames bring messages
# UUIDs before the settings that x264 and x265 write into their streams: those of the output are others.
_SETTINGS = (bytes.fromhex("dc45e9bde6d948b7962cd820d923eeef"), bytes.fromhex("2ca2de09b51747dbbb55a4fe7fc2fc4e"))
_DYNAMIC = "HDR10+ metadata"
_LEFT_OUT = {  # kinds of side data that no encoder here takes
    "DYNAMIC_HDR_PLUS": _DYNAMIC,
    "DYNAMIC_HDR_VIVID": "HDR Vivid metadata",
    "DOVI_RPU_BUFFER": "Dolby Vision metadata",
    "S12M_TIMECODE": "timecodes of its frames",
}
_USER_DATA = 0xB2  # start code of MPEG-2, table 6-1


def side_data(frame: VideoFrame) -> dict[str, list[bytes]]:
    """Returns a frame's side data by PyAV's name of the kind. Empty where PyAV lacks the name of one."""
    found: dict[str, list[bytes]] = {}
    try:
        # Not `frame.side_data`, which keeps this container: the two would hold the frame until a garbage collection.
        container: Any = SideDataContainer(frame)  # type: ignore[call-arg]
    except ValueError:
        return found
    with suppress(IndexError):
        for number in count():  # PyAV 19 iterates over the kinds, and counts these alone
            data = container[number]
            found.setdefault(data.type.name, []).append(bytes(data))
    return found


def light_messages(data: dict[str, list[bytes]]) -> tuple[Message, ...]:
    """Returns the messages of HDR10's static metadata: mastering display (SMPTE ST 2086) and content light level.

    FFmpeg's side data are structures: ten rational numbers with two flags, and two integers.
    """
    found: list[Message] = []
    for display in data.get("MASTERING_DISPLAY_METADATA", [])[:1]:
        *numbers, has_primaries, has_luminance = struct.unpack("22i", display[:88])
        if has_primaries and has_luminance:
            values = [n / d if d else 0.0 for n, d in zip(numbers[::2], numbers[1::2], strict=True)]
            red, green, blue, white = (values[i : i + 2] for i in range(0, 8, 2))
            places = [min(65535, round(value * 50_000)) for value in (*green, *blue, *red, *white)]
            least, most = (round(value * 10_000) for value in values[8:])
            found.append((MASTERING_DISPLAY, struct.pack(">8H2I", *places, most, least)))
    for level in data.get("CONTENT_LIGHT_LEVEL", [])[:1]:
        most, average = struct.unpack("2I", level[:8])
        found.append((LIGHT_LEVEL, struct.pack(">2H", min(most, 65535), min(average, 65535))))
    return tuple(found)


class MessageReader:
    """Reads the messages of a video's frames. A line says once what is left out of each kind."""

    def __init__(self, info: VideoInfo) -> None:
        self._path, self._codec = info.path, info.codec
        self._asks = info.codec in _ASKED and not info.layered
        self._said = set(info.left_out)

    def of_frame(self, frame: VideoFrame) -> tuple[Message, ...]:
        """Returns the messages of a frame that FFmpeg has decoded."""
        data = side_data(frame) if self._asks else {}
        for kind in data:
            if kind in _LEFT_OUT:
                self._say(_LEFT_OUT[kind])
        found = [(REGISTERED, message) for captions in data.get("A53_CC", []) for message in _captions(captions)]
        found += [(REGISTERED, _ATSC + _FORMAT + bytes([0x41, 0xF0 | afd[0] & 15])) for afd in data.get("AFD", [])]
        return (*found, *((UNREGISTERED, user) for user in data.get("SEI_UNREGISTERED", []) if not _is_settings(user)))

    def of_packet(self, packet: ChunkPacket) -> tuple[Message, ...]:
        """Returns the messages of the frame in a packet with start codes."""
        if self._codec not in ("h264", "hevc", "mpeg2video"):
            return ()
        return tuple(filter(self._is_kept, _in_packet(self._codec, head(packet))))

    def _is_kept(self, message: Message) -> bool:
        kind, payload = message
        if kind == UNREGISTERED:
            return not _is_settings(payload)
        if kind == REGISTERED and payload.startswith(_HDR10_PLUS):
            self._say(_DYNAMIC)
        return kind == REGISTERED and payload.startswith((_ATSC + _CAPTIONS, _ATSC + _FORMAT))

    def _say(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            log.warning("%s: its %s are left out, since no encoder here takes them", self._path, what)


class MessageWriter:
    """Puts the messages of frames into their packets, and those of all the video into each keyframe."""

    def __init__(self, codec: str, info: VideoInfo, *, takes: bool = True) -> None:
        """`codec` is that of the output. One without messages is said, once for each kind.

        Messages of frames are left out, with a line, unless `takes` is set.
        """
        self._path, self._codec, self._takes = info.path, codec, takes
        self._light = info.light if codec in CARRIERS else ()
        self._pending: dict[int, tuple[Message, ...]] = {}  # by pts
        self._said: set[str] = set()

    def take(self, frames: Iterable[Frame]) -> None:
        """Takes the messages of frames that are about to be encoded."""
        for frame in frames:
            if frame.messages and self._codec in CARRIERS and self._takes:
                self._pending[frame.pts] = frame.messages
            for message in frame.messages:
                self._say(_name(message))

    def written(self, packets: list[VideoPacket]) -> list[VideoPacket]:
        """Returns an encoder's packets, between start codes, with the messages in them."""
        return [self._with_messages(packet) for packet in packets] if self._light or self._pending else packets

    def _with_messages(self, packet: VideoPacket) -> VideoPacket:
        messages = self._pending.pop(pts_of(packet), ()) + (self._light if packet.is_keyframe else ())
        if not messages:
            return packet
        data = bytes(packet)
        at = first_slice(self._codec, data)
        made: VideoPacket = Packet(data[:at] + sei_unit(self._codec, messages) + data[at:])  # type: ignore[assignment]
        made.stream, made.time_base, made.is_keyframe = packet.stream, packet.time_base, packet.is_keyframe
        made.pts, made.dts, made.duration = packet.pts, packet.dts, packet.duration
        return made

    def _say(self, what: str) -> None:
        if what in self._said or (self._takes and self._codec in CARRIERS):
            return
        self._said.add(what)
        if self._takes:
            text = "%s: its %s are left out, since %s has no place for them; --codec h264 and hevc keep them"
            log.warning(text, self._path, what, self._codec)
        else:
            log.warning("%s: its %s are left out, since they may name people (--keep-metadata)", self._path, what)


def sei_unit(codec: str, messages: Sequence[Message]) -> bytes:
    """Returns a NAL unit of SEI messages with its start code, H.264 clause 7.3.2.3 and H.265 7.3.2.4."""
    header = b"\x06" if codec == "h264" else b"\x4e\x01"
    body = bytearray()
    for kind, payload in messages:
        for number in (kind, len(payload)):
            body += b"\xff" * (number // 255) + bytes([number % 255])
        body += payload
    return b"\0\0\0\1" + header + _escaped(bytes(body)) + b"\x80"


def _captions(data: bytes) -> Iterator[bytes]:
    """Yields user data with the triplets of captions, ATSC A/53 part 4, table 6.7."""
    for at in range(0, len(data), 3 * _TRIPLETS):
        part = data[at : at + 3 * _TRIPLETS]
        yield _ATSC + _CAPTIONS + bytes([0x40 | len(part) // 3, 0xFF]) + part + b"\xff"


def _in_packet(codec: str, data: bytes) -> Iterator[Message]:
    """Yields the messages before a packet's first slice."""
    for unit in units(data[: first_slice(codec, data)]):
        if codec == "mpeg2video" and unit[:1] == bytes([_USER_DATA]):
            yield REGISTERED, _ATSC + unit[1:]
        elif codec == "h264" and unit[:1] == b"\x06":
            yield from payloads([unit[1:]])
        elif codec == "hevc" and unit[:1] == b"\x4e":
            yield from payloads([unit[2:]])


def _escaped(body: bytes) -> bytes:
    """Returns the bytes with those that prevent start codes, H.264 clause 7.4.1."""
    made = bytearray()
    for byte in body:
        if byte <= 3 and made.endswith(b"\0\0"):
            made.append(3)
        made.append(byte)
    return bytes(made)


def _is_settings(user_data: bytes) -> bool:
    return user_data.startswith(_SETTINGS)


def _name(message: Message) -> str:
    kind, payload = message
    if kind == UNREGISTERED:
        return "user data of frames (SEI)"
    return "closed captions (A/53)" if payload.startswith(_ATSC + _CAPTIONS) else "active format descriptions (AFD)"
