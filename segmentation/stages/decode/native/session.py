"""NVDEC sessions of the native library: one call decodes many packets into planes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from ctypes import byref
from typing import TYPE_CHECKING, Any
from weakref import finalize

import numpy as np
from numpy.typing import ArrayLike

from segmentation.errors import InputError, SegmentationError
from segmentation.frames import FORMATS
from segmentation.gpu.capture_lock import capture_unsafe
from segmentation.gpu.errors import translate_gpu_error
from segmentation.stages.decode.chunks import StreamChanges
from segmentation.stages.decode.native import library as native
from segmentation.stages.decode.nvdec_support import CODEC_NUMBERS, NVDEC_CODECS
from segmentation.stages.decode.stream_format import StreamFormat

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.media.video_packet import ChunkPacket

MOST_AT_ONCE = 32  # pictures that one packet may push out: as many as a decoder has surfaces
_MOST_PICTURES = 128  # of a call
_IN_ORDER = ("vp8", "vp9")  # codecs whose frames are shown as they are decoded


_COLUMNS = (np.uint64, np.uint32, np.int64, np.int64, np.uint8)  # of `PacketArrays`


class Packets:
    """Packets as the library takes them, with the numbers by which it names their pictures. Keeps them alive."""

    def __init__(
        self,
        data: ArrayLike,
        sizes: ArrayLike,
        times: ArrayLike,
        serials: ArrayLike,
        kept: ArrayLike,
        memory: object = None,
    ) -> None:
        """`data` are addresses in `memory`. `serials` are -1 where no picture is ever shown.

        Pictures that are not `kept` are decoded and dropped.
        """
        columns = zip((data, sizes, times, serials, kept), _COLUMNS, strict=True)
        self._arrays = [np.ascontiguousarray(column, kind) for column, kind in columns]
        self.count, self._memory = len(self._arrays[0]), memory

    @classmethod
    def of(
        cls, packets: Sequence[ChunkPacket], times: Sequence[int], serials: Sequence[int], kept: Sequence[bool]
    ) -> Packets:
        """Returns packets that are objects."""
        data, sizes = [packet.buffer_ptr for packet in packets], [packet.buffer_size for packet in packets]
        return cls(data, sizes, times, serials, kept, packets)

    def after(self, at: int) -> native.PacketArrays:
        """Returns the arrays from packet number `at` on."""
        return native.PacketArrays(*(array.ctypes.data + at * array.itemsize for array in self._arrays))


class OnePacket(Packets):
    """One packet after the other, in the same arrays."""

    def __init__(self) -> None:
        super().__init__([0], [0], [0], [0], [1])
        self._all = super().after(0)

    def hold(self, packet: ChunkPacket, time: int, serial: int, *, kept: bool) -> OnePacket:
        """Holds a packet in place of the one before. Returns itself."""
        values = packet.buffer_ptr, packet.buffer_size, time, serial, kept
        for array, value in zip(self._arrays, values, strict=True):
            array[0] = value
        self._memory = packet
        return self

    def after(self, at: int) -> native.PacketArrays:
        return self._all


NOTHING = Packets((), (), (), (), ())


class NativeSession:
    """One NVDEC decoder, which unpacks its pictures on the stream of its `gpu`.

    It takes packets of two groups, of one chunk and of the next one, and puts the pictures into the group's target.
    """

    def __init__(self, stream_format: StreamFormat, gpu: Gpu, *, remedy: str = "use --decode pyav") -> None:
        """Creates a session on the stream of `gpu`. `remedy` ends its errors. Raises as `decode` does."""
        self.format, self.gpu, self._remedy = stream_format, gpu, remedy
        self.path = ""  # of the file that is being decoded, for errors
        self.group = 0  # of the last chunk
        self.targets = (native.Target * 2)()
        self.pictures = (native.NativePicture * _MOST_PICTURES)()  # of the last call
        self._result = native.Result()
        self._begun = False  # whether a picture has come: the first packets create the hardware decoder
        layout = FORMATS[stream_format.pix_fmt.replace("yuvj", "yuv")]
        deep = layout.bits > 8
        settings = native.SessionSettings(
            codec=CODEC_NUMBERS[NVDEC_CODECS[stream_format.codec]],
            width=stream_format.width,
            height=stream_format.height,
            bytes=2 if deep else 1,
            shift=6 if deep else 0,
            subsampled=bool(layout.shift_y),
            in_order=stream_format.codec in _IN_ORDER or stream_format.latency == "zero",
            delay=native.DELAYS[stream_format.latency],
            stream=gpu.stream.cuda_stream,
        )
        self._library = native.library()
        reason = ctypes.create_string_buffer(256)
        with capture_unsafe():
            self._handle: int = self._library.nd_create(byref(settings), reason, len(reason))
        if not self._handle:
            raise self._fault(stream_format.codec, reason.value.decode())
        # A session that nobody closes goes with its last reference. A process that ends needs none of it.
        self._destroyed = finalize(self, _destroy, self._library, self._handle)
        self._destroyed.atexit = False

    def decode(self, packets: Packets, at: int, kernel: int, *, flush: bool) -> native.Result:
        """Decodes packets of `group` from number `at` on, until a target is full; then all that are left, to `flush`.

        `kernel` is the handle of the one in unpack.cu. The result and `pictures` are overwritten by the next call.
        Raises `StreamChanges` where the pictures get another size, `InputError` if NVDEC can't decode the stream, or a
        `DeviceError`.
        """
        arguments = self.group, flush, kernel, self.targets
        return self._called(self._library.nd_decode, packets, at, arguments)

    def sample(self, packets: Packets, at: int, clips: native.Clips) -> native.Result:
        """Decodes packets from number `at` on, and makes the frames of clips from their pictures.

        All pictures are out then, unless the result is not `flushed`: then a further call goes on. The result and
        `pictures` are overwritten by that call. Raises as `decode` does.
        """
        return self._called(self._library.nd_sample, packets, at, (byref(clips),))

    def _called(
        self, function: Callable[..., int], packets: Packets, at: int, arguments: tuple[Any, ...]
    ) -> native.Result:
        result, count = self._result, packets.count - at
        with nullcontext() if self._begun else capture_unsafe():
            given = byref(packets.after(at)), count, *arguments
            outcome = function(self._handle, *given, self.pictures, _MOST_PICTURES, byref(result))
        if outcome == native.CHANGES:
            what = "the picture's size or depth changes on the way, which NVDEC's frames don't follow"
            raise StreamChanges(f"{self.path}: {what}; {self._remedy}")
        if outcome:
            raise self._fault(self.path, self._library.nd_error(self._handle).decode())
        self._begun = self._begun or result.shown > 0
        return result

    def forget(self, group: int) -> None:
        """Forgets the packets of a group whose pictures have not come, and its target."""
        self._library.nd_forget(self._handle, group)
        self.targets[group] = native.Target()

    def close(self) -> None:
        """Destroys the session. What it has queued is over then."""
        self._handle = 0
        self._destroyed()

    def _fault(self, what: str, reason: str) -> SegmentationError:
        """Returns the error of a call of the driver that failed."""
        fault = translate_gpu_error(RuntimeError(reason))
        return fault or InputError(f"{what}: NVDEC can't decode it ({reason}); {self._remedy}")


def _destroy(library: ctypes.CDLL, handle: int) -> None:
    with capture_unsafe():
        library.nd_destroy(handle)
