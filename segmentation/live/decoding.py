"""Decodes the packets of a live source's connection: on the CPU, or by a decoder that the pipeline hands over."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, TypeAlias

import av.error
from av.packet import Packet
from av.video.frame import VideoFrame

from segmentation.errors import SegmentationError
from segmentation.frames.live_frames import LiveFrames
from segmentation.frames.packet_decoder import DecodedPictures, DevicePicture, PacketDecoder, PictureOrder
from segmentation.media.bitstream.headers import is_idr, sequence_sets
from segmentation.media.bitstream.losses import A_FRAME_EACH, AwaitedFrames, Undecodable
from segmentation.media.bitstream.start_codes import PacketFilter
from segmentation.media.opening.open_input import CONCEALED, decoder_options
from segmentation.media.opening.probe import as_stated
from segmentation.system.access import Access

if TYPE_CHECKING:
    from av.video.stream import VideoStream

    VideoPacket: TypeAlias = Packet[Any]

Pictures: TypeAlias = Sequence[VideoFrame | DevicePicture]

log = logging.getLogger(__name__)

_THREADS = 4  # of a decoder: cameras send few slices in a picture, and idle threads cost too
_PAUSE = 10.0  # seconds between two beginnings on a connection: all streams of the GPU wait while a session is made
_ALONE = ("h264",)  # codecs of which FFmpeg neither conceals damage nor tells of it where threads share a picture


class ConnectionDecoder:
    """Decodes the packets of one connection.

    The CPU begins. At the first IDR picture after the pipeline has handed its `PacketDecoder` over, the CPU's decoder
    is emptied, and the pipeline's begins: no frame is lost, and none comes twice. After an error of that decoder it
    begins anew at the next IDR picture, but not sooner than `_PAUSE` after it has begun; the CPU decodes until then.
    Where that error comes before a second keyframe, and where the parameter sets change, the CPU goes on at the next
    keyframe, to the end of the connection.
    """

    def __init__(
        self, stream: VideoStream, frames: LiveFrames, access: Access, name: str, undecodable: Undecodable
    ) -> None:
        """`name` is the source's, for messages."""
        stream.thread_type = "SLICE"  # frame threads would hold back a frame each
        codec = stream.codec_context.name
        stream.thread_count = 1 if codec in _ALONE else _THREADS
        stream.codec_context.options = decoder_options(access, codec)
        self._stream, self._frames, self._name, self._undecodable = stream, frames, name, undecodable
        self._filter = PacketFilter(stream, name)
        self._order = PictureOrder()
        self._device: PacketDecoder | None = None  # the pipeline's decoder, while it decodes
        self._sets: frozenset[bytes] = frozenset()  # with which it has begun
        self._refused = False  # whether the CPU decodes to the end of the connection
        self._proven = False  # whether the pipeline's decoder has come to a keyframe after the one that it began with
        self._soonest = 0.0  # on the monotonic clock: when it may begin
        self._awaits_keyframe = False  # whether the CPU can't decode before the next one
        self._begun = codec not in CONCEALED  # whether a whole picture has come
        self._a_frame_each = codec in A_FRAME_EACH
        self._awaited = AwaitedFrames()  # from the CPU

    def __call__(self, packet: VideoPacket) -> Pictures:
        """Returns the pictures that a packet completes, in presentation order."""
        copies = self._filtered_copies(packet) if packet.is_keyframe and self._may_use_device else []
        self._order.feed(packet)
        if self._device is not None:
            return self._go_on(packet, copies, self._device)
        begun = self._change(copies)
        return self._on_cpu(packet) if begun is None else begun

    def finish(self) -> Pictures:
        """Returns the pictures that are left, and frees the pipeline's decoder."""
        if self._device is None:
            return self._on_cpu(None)
        left: Pictures = []
        try:
            left = self._counted(self._device.decode(None))
        except SegmentationError as exc:
            log.info("%s: its last pictures are lost: %s", self._name, exc)
        self.close()
        return left

    def close(self) -> None:
        """Frees the pipeline's decoder. Called in every way out."""
        if self._device is not None:
            self._undecodable.failed(self._device.end())
            self._device = None

    @property
    def _may_use_device(self) -> bool:
        if self._refused or self._frames.packet_decoder is None:
            return False
        return self._device is not None or time.monotonic() >= self._soonest

    def _filtered_copies(self, packet: VideoPacket) -> list[VideoPacket]:
        """Returns a packet as decoders without a container take it. The filters would empty the packet itself."""
        copy: VideoPacket = Packet(bytes(packet))
        copy.pts, copy.dts, copy.duration = packet.pts, packet.dts, packet.duration
        copy.time_base, copy.is_keyframe = packet.time_base, True
        return self._filter(copy)

    def _change(self, copies: list[VideoPacket]) -> Pictures | None:
        """Begins with the pipeline's decoder. Returns its first pictures, or `None` if the CPU has to decode."""
        device, stream, context = self._frames.packet_decoder, self._stream, self._stream.codec_context
        head = b"".join(map(bytes, copies))
        if device is None or not is_idr(context.name, head) or not (context.width and context.pix_fmt):
            return None
        info = replace(device.info, time_base=stream.time_base or device.info.time_base, codec=context.name)
        info = replace(info, width=context.width, height=context.height, pix_fmt=context.pix_fmt)
        self._device, self._sets = device, sequence_sets(info.codec, head)
        self._proven, self._soonest = False, time.monotonic() + _PAUSE
        info = replace(info, extradata=b"".join(sorted(self._sets)))
        try:
            device.begin(as_stated(info, head), self._order)
            first = [picture for copy in copies for picture in self._counted(device.decode(copy))]
        except SegmentationError as exc:
            self._refused = True
            self._device = None
            device.end()
            log.warning("%s: decoded on the CPU, as long as it is connected (%s)", self._name, exc)
            return None
        log.info("%s: the pipeline's decoder begins", self._name)
        return [*self._on_cpu(None), *first]

    def _go_on(self, packet: VideoPacket, copies: list[VideoPacket], device: PacketDecoder) -> Pictures:
        """Decodes with the pipeline's decoder. Goes back to the CPU where that can't be done."""
        sets = sequence_sets(device.info.codec, b"".join(map(bytes, copies)))
        if sets and sets != self._sets:
            left = self.finish()
            self._refuse("its parameter sets have changed")
            return [*left, *self._on_cpu(packet)]
        try:
            ready = copies if packet.is_keyframe else self._filter(packet)
            self._undecodable.failed(int(not ready))
            pictures = [picture for one in ready for picture in self._counted(device.decode(one))]
        except SegmentationError as exc:
            self._fail(exc)
            if not packet.is_keyframe:
                return []
            self._undecodable.failed(-1)  # it was counted, as the pipeline's decoder failed with it
            return self._on_cpu(packet)
        self._proven |= packet.is_keyframe
        return pictures

    def _fail(self, error: SegmentationError) -> None:
        """Ends the pipeline's decoder after an error: damage if it is proven, else it can't decode this source."""
        if not self._proven:
            self._refuse(str(error))
            return
        self._awaits_keyframe = True
        self.close()
        log.info("%s: frames are missing up to the next keyframe (%s)", self._name, error)

    def _refuse(self, reason: str) -> None:
        """Ends the pipeline's decoder for this connection."""
        self._refused = self._awaits_keyframe = True
        self.close()
        log.warning("%s: decoded on the CPU from the next keyframe on (%s)", self._name, reason)

    def _counted(self, decoded: DecodedPictures) -> list[DevicePicture]:
        self._undecodable.failed(decoded.lost)
        return decoded.pictures

    def _on_cpu(self, packet: VideoPacket | None) -> list[VideoFrame]:
        """Returns the pictures that a packet completes; without one those that the CPU's decoder still holds."""
        if self._awaits_keyframe:
            if packet is None or not packet.is_keyframe:
                self._undecodable.failed(int(packet is not None))
                return []
            self._awaits_keyframe = False
            self._stream.codec_context.flush_buffers()  # it was emptied, and takes no packets otherwise
        try:
            pictures = self._stream.codec_context.decode(packet)
        except av.error.FFmpegError as exc:
            log.info("%s: a packet can't be decoded: %s", self._name, exc)
            self._undecodable.failed()
            return []
        self._undecodable.failed(self._left_out(packet, pictures))
        if not self._begun:  # broken ones are of a group whose beginning is missing
            pictures = list(dropwhile(lambda picture: picture.is_corrupt, pictures))
            self._begun = bool(pictures)
        return pictures

    def _left_out(self, packet: VideoPacket | None, pictures: Sequence[VideoFrame]) -> int:
        """Returns how many pictures FFmpeg has left out without an error: they should have come before these.

        `packet` is the last one that was decoded; after `None` all should have come.
        """
        if not self._a_frame_each:
            return 0
        if packet is not None:
            self._awaited.feed(packet)
        left_out = 0
        for picture in pictures:
            self._awaited.take(picture)
            left_out += 0 if picture.pts is None else self._awaited.give_up(picture.pts)
        return left_out if packet is not None else left_out + self._awaited.give_up()
