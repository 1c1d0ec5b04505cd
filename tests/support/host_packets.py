"""A `PacketDecoder` without a GPU, whose pictures are PyAV's frames, and which fails where a test says so."""

import threading
import time
from typing import Any

import av

from segmentation.errors import BackendError, InputError
from segmentation.frames import VideoInfo
from segmentation.frames.packet_decoder import DecodedPictures, PacketDecoder, PictureOrder

MARK = 7  # of chroma, in pictures that this decoder has made


class HostPackets(PacketDecoder):
    """Refuses streams of another size, and notes each connection that it begins."""

    def __init__(self, info: VideoInfo) -> None:
        self.info = info
        self.begun: list[VideoInfo] = []
        self.ended = 0
        self.fail = threading.Event()  # at the next packet
        self.fail_at_keyframe = threading.Event()  # at the next keyframe
        self.slow = 0.0  # seconds that it takes to begin
        self._decoder: Any = None
        self._waiting: set[int] = set()

    def begin(self, info: VideoInfo, order: PictureOrder) -> None:
        if (info.width, info.height) != (self.info.width, self.info.height):
            raise BackendError(f"it has become {info.width}x{info.height}")
        assert self._decoder is None, "the connection before has not ended"
        self._decoder = av.CodecContext.create(info.codec, "r")
        self.begun.append(info)
        time.sleep(self.slow)

    def decode(self, packet: Any) -> DecodedPictures:
        if packet is not None:
            self._waiting.add(packet.pts)
        for fail in (self.fail, self.fail_at_keyframe):
            if fail.is_set() and packet is not None and (packet.is_keyframe or fail is self.fail):
                fail.clear()
                raise InputError("made to fail")
        pictures = self._decoder.decode(packet)
        for picture in pictures:
            self._waiting.discard(picture.pts)
            for plane in picture.planes[1:]:
                plane.update(bytes([MARK]) * plane.buffer_size)
        return DecodedPictures(pictures, 0)

    def end(self) -> int:
        self.ended += self._decoder is not None
        self._decoder = None
        left, self._waiting = len(self._waiting), set()
        return left
