"""Decodes live sources on NVDEC: the thread that reads a source feeds a session, and the ring holds device memory.

A call of the native library decodes a packet, and gives up the GIL once. It hands out each frame as soon as its packet
is there, unless a later one is shown before it, in planes of a pool. A frame that is alone goes through the stages
without another copy. Those that have waited for the stages are gathered in a batch, since the GPU takes little longer
for it than for one of them.
"""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

from av.video.frame import VideoFrame

from segmentation.errors import BackendError, InputError, LacksEngine, SegmentationError
from segmentation.frames import FORMATS, ON_GPU, FrameBatch, Memory, PixelFormat, Planes, VideoInfo
from segmentation.frames.live_frames import LiveFrame
from segmentation.frames.packet_decoder import DecodedPictures, DevicePicture, PacketDecoder, PictureOrder
from segmentation.gpu.context import Gpu, torch_dtype
from segmentation.gpu.errors import gpu_errors
from segmentation.gpu.transfer import GpuTransfer
from segmentation.live.decoder import LiveDecoder
from segmentation.media.bitstream.headers import is_idr
from segmentation.media.bitstream.sei import MessageReader
from segmentation.options.config import Config
from segmentation.stages.decode.chunk_progress import FrameTimes
from segmentation.stages.decode.native.library import library
from segmentation.stages.decode.native.session import NOTHING, NativeSession, OnePacket, Packets
from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool
from segmentation.stages.decode.nvdec_support import check_exactness, nvdec_engines
from segmentation.stages.decode.stream_format import StreamFormat
from segmentation.stages.frame_kernels import FRAMES

if TYPE_CHECKING:
    import torch

    from segmentation.gpu.plane_pool import DevicePlanes
    from segmentation.media.video_packet import VideoPacket

_REMEDY = "decoding begins anew at a keyframe"  # after an error
_MOST_HELD = 16  # pictures that a session holds back: as many as a stream may refer to
_UNEXPECTED = 1  # picture that may come beside those of the packets, in damaged streams
_NO_TIMES = FrameTimes(None, 0, ())
_CODECS = ("h264", "hevc")  # in which a packet is a frame, and an IDR picture tells where to change over


class LiveNvdecDecoder(LiveDecoder):
    """See `segmentation.stages.decode`. The planes of a batch are (N, h, w), with N 1 or the batch size.

    The CPU decodes up to an IDR picture, and after errors, see `media.live_decoding`. Its frames are uploaded.
    """

    memory: ClassVar[Memory] = "cuda"

    def __init__(
        self, info: VideoInfo, pix_fmt: str, config: Config, gpu: Gpu, *, sessions: NvdecSessionPool | None = None
    ) -> None:
        super().__init__(info, pix_fmt, config, gpu, sessions=sessions)
        layout = FORMATS[pix_fmt]
        self._stages = gpu
        shapes = [(self._batch_size, *shape) for shape in layout.shapes(info.width, info.height)]
        self._gathered = gpu.plane_pool(shapes, torch_dtype(layout))
        self._upload = GpuTransfer(gpu, info, layout, self._batch_size)
        self._sessions = sessions or NvdecSessionPool()
        self._own_sessions = sessions is None
        self._decoder = NvdecPackets(info, layout, config, gpu, self._sessions)
        self._live.packet_decoder = self._decoder

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        LiveDecoder.describe(config, info)
        if info is not None and info.codec not in _CODECS:
            raise LacksEngine(f"NVDEC decodes live sources in H.264 and HEVC alone, and {info.path} is {info.codec}")
        engines = nvdec_engines(config, info)
        library()
        return f"NVDEC, {engines} engines, native library, in a thread that always reads the source"

    def close(self) -> None:
        """Leaves the session to the next stream, though the source may keep its thread for a while.

        Sessions that belong to no pool of several streams are destroyed.
        """
        self._live.packet_decoder = None
        self._decoder.close()
        if self._own_sessions:
            self._sessions.close()

    def _made(self, taken: list[LiveFrame], begin: float) -> FrameBatch:
        batch = super()._made(taken, begin)
        if not batch.frames:
            return batch
        self._stages.enter()
        pictures = [frame.picture for frame in taken[: len(batch)] if isinstance(frame.picture, DevicePicture)]
        return replace(batch, planes=self._batched(pictures)) if pictures else self._upload.frames(batch, "cuda")

    def _batched(self, pictures: list[DevicePicture]) -> tuple[torch.Tensor, ...]:
        """Returns the planes of a batch of pictures."""
        for picture in pictures:
            self._stages.wait_event(picture.ready)
        if len(pictures) == 1:
            return pictures[0].planes
        planes = self._gathered.take()
        for row, picture in enumerate(pictures):
            for plane, own in zip(planes, picture.planes, strict=True):
                self._stages.copy_bytes(plane.data_ptr() + row * own.nbytes, own.data_ptr(), own.nbytes)
        return planes

    def _planes_of(self, picture: VideoFrame | DevicePicture) -> Planes:
        planes: Planes = ON_GPU if isinstance(picture, DevicePicture) else super()._planes_of(picture)
        return planes


class NvdecPackets(PacketDecoder):
    """Decodes the packets of a live source. Each connection takes a session from the pool, and gives it back emptied.

    Many cameras don't state that their frames come in the order in which they are shown, and NVDEC would hold some
    back. Where none was shown before an earlier one on the CPU, or in the connection before with the same parameter
    sets, a session begins that holds back none. Where too few were seen, and a session holds some back, such a session
    goes on at the next IDR picture. `InputError` is raised where frames come in another order after all.
    """

    def __init__(
        self, info: VideoInfo, layout: PixelFormat, config: Config, stages: Gpu, sessions: NvdecSessionPool
    ) -> None:
        """The planes are read on the stream of `stages`."""
        self.info = info
        self._config, self._sessions = config, sessions
        self._gpu = gpu = sessions.gpu(stages)
        self._format = StreamFormat(gpu.index, info.codec, info.width, info.height, info.pix_fmt, None)
        self._unpack = gpu.kernels(FRAMES, layout).handle("unpack")
        shapes = [(1, *shape) for shape in layout.shapes(info.width, info.height)]
        self._pool = gpu.plane_pool(shapes, torch_dtype(layout), reader=stages)
        self._planes: list[DevicePlanes] = []  # for the next pictures
        self._lock = threading.Lock()  # held where the session is used
        self._closed = False
        self._session: NativeSession | None = None  # of the connection; none that has failed
        self._in_order = False  # whether the session hands frames out as they are decoded
        self._messages = MessageReader(info)
        self._packet = OnePacket()
        self._serial = 0  # of the next packet
        self._times: dict[int, FrameTimes] = {}  # of the packets whose pictures are to come, by their numbers
        self._order = PictureOrder()  # of the connection
        self._time_base = info.time_base  # seconds, of the connection's packets

    def begin(self, info: VideoInfo, order: PictureOrder) -> None:
        picture, ours = ((one.codec, one.width, one.height, one.pix_fmt) for one in (info, self.info))
        if picture != ours:
            raise BackendError("it has become {} of {}x{} in {}".format(*picture))
        check_exactness(self._config, info)
        with self._lock:
            if self._closed:
                return
            self._gpu.enter()
            self._time_base, self._order = info.time_base, order
            wanted = self._format._replace(extradata=info.extradata)
            was_in_order = self._in_order and wanted == self._format
            self._format = wanted
            self._in_order = (order.known or was_in_order) and not order.reorders
            with gpu_errors():
                self._take_session()

    def decode(self, packet: VideoPacket | None) -> DecodedPictures:
        with self._lock, gpu_errors(), self._failed_session_destroyed():
            if (session := self._session) is None:
                return DecodedPictures([], 0)
            if packet is None:
                return self._emptied(session)
            left = DecodedPictures([], 0)
            if self._holds_back and is_idr(self.info.codec, bytes(packet)):
                left = self._emptied(session)
                self._in_order = True
                session = self._take_session()
            held = self._held(packet)
            self._check_order()
            pictures, lost = self._decoded(session, held)
            return DecodedPictures(left.pictures + pictures, left.lost + lost)

    def end(self) -> int:
        with self._lock:
            return self._end()

    def close(self) -> None:
        """Gives the session back. Packets that come later are not decoded."""
        with self._lock:
            self._closed = True
            self._end()
            self._planes = []

    def _take_session(self) -> NativeSession:
        """Begins with a session of the pool, or a new one. The one before was given back."""
        wanted = self._format._replace(latency="zero" if self._in_order else "low")
        kept = cast("NativeSession | None", self._sessions.take(wanted))
        session = self._session = kept or NativeSession(wanted, self._gpu, remedy=_REMEDY)
        session.path = self.info.path
        return session

    def _held(self, packet: VideoPacket) -> Packets:
        """Returns a packet for the library, and notes when its picture is shown, if it is."""
        serial, self._serial = self._serial, self._serial + 1
        shown = not packet.is_discard
        if shown:
            self._times[serial] = FrameTimes(packet.pts, packet.duration or 0, self._messages.of_packet(packet))
        time = packet.pts if packet.pts is not None else packet.dts or 0
        return self._packet.hold(packet, time, serial, kept=shown)

    @property
    def _holds_back(self) -> bool:
        """Returns whether the session holds frames back though none was shown before an earlier one."""
        return bool(self._times) and not (self._order.reorders or self._in_order)

    def _check_order(self) -> None:
        """Raises `InputError` where frames don't come in order from a session that would hand them out so."""
        if self._in_order and self._order.reorders:
            self._in_order = False
            raise InputError("its frames are no longer in the order in which they are shown")

    def _decoded(self, session: NativeSession, packet: Packets, *, flush: bool = False) -> DecodedPictures:
        """Returns the pictures that are ready after one more packet; all that are left, to `flush`."""
        self._aim(session)
        result = session.decode(packet, 0, self._unpack, flush=flush)
        planes, self._planes = self._planes[: result.produced], self._planes[result.produced :]
        pictures, lost = [], 0
        for own, found in zip(planes, session.pictures, strict=False):
            times = self._times.pop(found.serial, _NO_TIMES)
            lost += 0 if times.pts is None else self._lose(times.pts)
            pictures.append(self._picture(own, times, damaged=bool(found.damaged)))
        lost += self._lose() if self._in_order or flush else 0
        return DecodedPictures(pictures, lost)

    def _aim(self, session: NativeSession) -> None:
        """Gives the session planes for its next pictures, each a set."""
        while len(self._planes) < min(len(self._times), _MOST_HELD) + _UNEXPECTED:
            self._planes.append(self._pool.take())
        target = session.targets[0]
        for number, planes in enumerate(self._planes):
            for i, plane in enumerate(planes):
                target.planes[number][i] = plane.data_ptr()
        target.sets, target.capacity, target.filled = len(self._planes), 1, 0

    def _picture(self, planes: DevicePlanes, times: FrameTimes, *, damaged: bool) -> DevicePicture:
        return DevicePicture(
            planes=planes,
            ready=self._gpu.record_event(),
            width=self.info.width,
            height=self.info.height,
            pts=times.pts,
            duration=times.duration,
            time_base=self._time_base,
            messages=times.messages,
            is_corrupt=damaged,
        )

    def _lose(self, before: int | None = None) -> int:
        """Forgets the packets whose pictures should have come before a pts; all without it. Returns how many."""
        due = [
            n for n, times in self._times.items() if before is None or (times.pts is not None and times.pts < before)
        ]
        for serial in due:
            del self._times[serial]
        return len(due)

    def _emptied(self, session: NativeSession) -> DecodedPictures:
        """Returns the pictures that are left, and gives the session back."""
        left = self._decoded(session, NOTHING, flush=True)
        self._give_back(session)
        return left

    def _end(self) -> int:
        """Gives back a session that was not emptied. Its pictures are lost.

        Emptying it takes less time than making another one, during which all streams of the GPU wait.
        """
        if (session := self._session) is not None:
            with suppress(SegmentationError), self._failed_session_destroyed():
                session.forget(0)
                session.decode(NOTHING, 0, self._unpack, flush=True)
                self._give_back(session)
        return self._lose()

    def _give_back(self, session: NativeSession) -> None:
        session.forget(0)
        self._sessions.give_back(session)
        self._session = None

    @contextmanager
    def _failed_session_destroyed(self) -> Iterator[None]:
        """Destroys the session after any error: it may be damaged, and hold pictures of this connection."""
        try:
            yield
        except BaseException:
            if self._session is not None:
                self._session.close()
                self._session = None
            raise
