"""The contract between the thread that reads a live source and a decoder that belongs to the pipeline."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

    from segmentation.frames import VideoInfo
    from segmentation.live_frames import DevicePicture


class DecodedPictures(NamedTuple):
    """The pictures that a packet completes, in presentation order."""

    pictures: list[DevicePicture]
    lost: int  # packets, of this and earlier calls, whose pictures will not come


class PacketDecoder(ABC):
    """Decodes the packets of a live source, one connection after the other.

    The thread that reads the source calls it, and changes to it at an IDR picture. The pipeline hands it over in
    `LiveFrames.packet_decoder`, and closes it from another thread. Then it decodes nothing more.
    """

    info: VideoInfo  # of the streams that it decodes

    @abstractmethod
    def begin(self, info: VideoInfo) -> None:
        """Begins a connection, of which `info` is known. Raises `BackendError` where pictures would not be exact."""

    @abstractmethod
    def decode(self, packet: Packet[VideoStream] | None) -> DecodedPictures:
        """Decodes a whole frame with start codes; without one, all pictures that are left. IDR pictures come first.

        Raises `InputError` or `DeviceError`. Only `end` may follow then, which counts this packet too.
        """

    @abstractmethod
    def end(self) -> int:
        """Ends the connection, and frees what it took. Returns how many packets' pictures have not come."""
