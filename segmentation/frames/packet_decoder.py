"""The contract between the thread that reads a live source and a decoder that belongs to the pipeline."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # machines without a GPU may lack PyTorch
    import torch
    from av.packet import Packet
    from av.video.stream import VideoStream

    from segmentation.frames import Message, VideoInfo
    from segmentation.frames.event import Event


_ENOUGH = 10  # packets: encoders put three pictures or so between those to which they refer


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePicture:
    """A decoded picture in a GPU's memory. The other attributes are those of PyAV's frames."""

    planes: tuple[torch.Tensor, ...]  # Y, U and V: (1, h, w)
    ready: Event  # the planes hold the picture once this CUDA event has passed
    width: int  # pixels
    height: int
    pts: int | None  # ticks of `time_base`
    duration: int  # ticks, 0 if unknown
    time_base: Fraction  # seconds
    messages: tuple[Message, ...] = ()  # see `Frame`
    is_corrupt: bool = False  # the decoder has found damage, and concealed it

    @property
    def size(self) -> int:
        """Returns the bytes of device memory that the picture takes."""
        return sum(plane.nbytes for plane in self.planes)


class DecodedPictures(NamedTuple):
    """The pictures that a packet completes, in presentation order."""

    pictures: list[DevicePicture]
    lost: int  # packets, of this and earlier calls, whose pictures will not come


class PictureOrder:
    """Watches whether a connection's pictures are shown in the order in which they come."""

    def __init__(self) -> None:
        self.reorders = False  # a picture was shown before an earlier one
        self._newest: int | None = None  # pts
        self._seen = 0  # packets from the first keyframe on

    def feed(self, packet: Packet[VideoStream]) -> None:
        """Takes the next packet."""
        self._seen += packet.is_keyframe or self._seen > 0
        newest, pts = self._newest, packet.pts
        if pts is None:
            return
        self._newest = pts if newest is None or packet.is_keyframe else max(newest, pts)
        self.reorders |= newest is not None and pts < newest and not packet.is_keyframe

    @property
    def known(self) -> bool:
        """Returns whether a group of pictures was seen that would show it if they were reordered."""
        return self._seen >= _ENOUGH


class PacketDecoder(ABC):
    """Decodes the packets of a live source, one connection after the other.

    The thread that reads the source calls it, and changes to it at an IDR picture. The pipeline hands it over in
    `LiveFrames.packet_decoder`, and closes it from another thread. Then it decodes nothing more.
    """

    info: VideoInfo  # of the streams that it decodes

    @abstractmethod
    def begin(self, info: VideoInfo, order: PictureOrder) -> None:
        """Begins a connection, of which `info` is known. Raises `BackendError` where pictures would not be exact.

        `info.extradata` are the sequence parameter sets, wherever the stream has them.
        The caller feeds `order` with each packet before this decodes it, and has fed it with those before.
        """

    @abstractmethod
    def decode(self, packet: Packet[VideoStream] | None) -> DecodedPictures:
        """Decodes a whole frame with start codes; without one, all pictures that are left. IDR pictures come first.

        Raises `InputError` or `DeviceError`. Only `end` may follow then, which counts this packet too.
        """

    @abstractmethod
    def end(self) -> int:
        """Ends the connection, and frees what it took. Returns how many packets' pictures have not come."""
