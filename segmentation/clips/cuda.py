"""Makes clips on an NVIDIA GPU: NVDEC decodes, and a kernel makes each output from its surfaces.

All sessions of NVDEC, the kernels and the memory of clips belong to one stream. Work on it happens in the order in
which threads queue it. So a surface is read before its session overwrites it, and freed memory is written to again only
when all earlier work is over. A batch belongs to the stream of the thread that takes it, see `CudaMaker.batch`.
"""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import PyNvVideoCodec as nvc
import torch
from av.video.stream import VideoStream
from numpy.typing import NDArray

from segmentation.clips.decode import decoded, needed, opened
from segmentation.clips.index import VideoIndex
from segmentation.clips.maker import REMEDY, ClipInProgress, Maker, Sample
from segmentation.clips.output import Draw, Output
from segmentation.clips.sampling import CLIPS, elements, lengths, levels, places, weights
from segmentation.errors import InputError
from segmentation.frames import FORMATS, PixelFormat
from segmentation.gpu.context import Gpu
from segmentation.gpu.errors import gpu_errors
from segmentation.gpu.kernels import Kernels
from segmentation.media.start_codes import PacketFilter
from segmentation.stages.decode.chunks import needs_earlier_frames
from segmentation.stages.decode.nvdec_log import damage_log
from segmentation.stages.decode.nvdec_session import NvdecSession, Surface, TimesToCome
from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool, StreamFormat

if TYPE_CHECKING:
    from segmentation.stages.decode.chunks import VideoPacket

    Packets: TypeAlias = Iterator[VideoPacket]

_LEAST_WORKERS = 2  # a single session leaves its engine idle between frames
_MOST_COPIES = 16  # outputs of batches that a program may have asked for before its stream has any of them


class CudaMaker(Maker[Surface]):
    """Makes CUDA tensors. Its sessions and their memory are kept for the videos to come, and end with the maker."""

    def __init__(self, outputs: Mapping[str, Output], index: int, engines: int) -> None:
        """`index` is the number of the GPU, `engines` how many of its engines can decode the videos."""
        self.workers = max(_LEAST_WORKERS, engines)
        self._sessions = NvdecSessionPool()
        self._kernels: dict[tuple[PixelFormat, int], Kernels] = {}  # by layout and quarter turns
        self._weights: dict[tuple[int, int], torch.Tensor] = {}  # see `sampling.weights`
        self._copies: deque[torch.cuda.Event] = deque()  # of clips into batches, which may not be over
        damage_log()  # takes over the library's log, which two threads must not do at once
        with ThreadPoolExecutor(1) as pool:  # else the caller's current device would be another one from here on
            self.gpu, self.outputs = pool.submit(_prepared, outputs, index).result()

    @contextmanager
    def working(self) -> Iterator[None]:
        with gpu_errors():
            self.gpu.enter()
            yield

    def frames(self, index: VideoIndex, numbers: Sequence[int]) -> Iterator[tuple[int, Surface]]:
        """See `Maker.frames`. Where NVDEC finds damage, or a frame is missing, FFmpeg decides what is damaged.

        NVDEC conceals damage, and its library names that in its log alone, which all sessions share.
        """
        named = damage_log().count()
        try:
            yield from self._decoded(index, numbers)
        except InputError:
            _refuse_damage(index, numbers)
            raise
        if damage_log().count() > named:
            _refuse_damage(index, numbers)

    def begin(self, index: VideoIndex, draw: Draw, length: int) -> ClipInProgress[Surface]:
        return _CudaClip(self, index, draw, length)

    def masks(self, masks: NDArray[np.uint8]) -> torch.Tensor:
        with torch.cuda.stream(self.gpu.stream):
            return torch.from_numpy(masks).to(self.gpu.device)

    def batch(self, clips: Sequence[torch.Tensor], output: Output | None) -> torch.Tensor:
        """See `Maker.batch`. The clips are copied on the calling thread's current stream, to which the batch belongs.

        So the batch is a tensor like any that this thread makes. That stream waits for the clips, and their memory is
        used again only when the copies are over.
        """
        shape = (len(clips), *clips[0].shape)
        axes = tuple(range(len(shape))) if output is None else output.axes
        stream = self._reading_stream()
        with torch.cuda.stream(stream):
            made = torch.empty([shape[axis] for axis in axes], dtype=clips[0].dtype, device=self.gpu.device)
            plain = made.permute([axes.index(axis) for axis in range(len(axes))])
            for row, clip in zip(plain, clips, strict=True):
                row.copy_(clip)
            self._keep(clips, stream)
        return made

    def _reading_stream(self) -> torch.cuda.Stream:
        """Returns the current stream of the calling thread, which waits from now on for all clips that are made.

        The thread itself waits if it is far ahead of its stream: clips keep their memory until they are copied.
        """
        while len(self._copies) >= _MOST_COPIES:
            self._copies.popleft().synchronize()
        stream = torch.cuda.current_stream(self.gpu.device)
        stream.wait_stream(self.gpu.stream)
        return stream

    def _keep(self, clips: Sequence[torch.Tensor], stream: torch.cuda.Stream) -> None:
        """Keeps the memory of clips from being used again until what is queued on a stream is over."""
        for clip in clips:
            clip.record_stream(stream)
        self._copies.append(stream.record_event(torch.cuda.Event(blocking=True)))

    def weights(self, length: int, after: int) -> torch.Tensor:
        """Returns a table of `sampling.weights` on the GPU."""
        key = (length, after)
        if key not in self._weights:
            with torch.cuda.stream(self.gpu.stream):
                self._weights[key] = torch.from_numpy(weights(length, after)).to(self.gpu.device)
        return self._weights[key]

    def kernels(self, layout: PixelFormat, turns: int) -> Kernels:
        """Returns the kernels for pictures of this layout that stand upright after so many quarter turns."""
        key = (layout, turns)
        if key not in self._kernels:
            self._kernels[key] = self.gpu.kernels(CLIPS, layout, turns)
        return self._kernels[key]

    def _decoded(self, index: VideoIndex, numbers: Sequence[int]) -> Iterator[tuple[int, Surface]]:
        """Yields the surfaces in order. Raises `InputError` if one of them does not come out."""
        assert index.coding is not None
        with opened(index, numbers[0]) as (stream, packets):
            about = (index.coding.codec, *index.stored, index.coding.pix_fmt, stream.codec_context.extradata)
            wanted = StreamFormat(self.gpu.index, *about)
            session = self._sessions.take(wanted) or NvdecSession(wanted, self.gpu, remedy=REMEDY)
            session.path = index.path
            try:
                left = iter(numbers)
                number = next(left, None)
                for found, surface in _surfaces(session, stream, packets, index, numbers):
                    if found != number:
                        break
                    yield found, surface
                    number = next(left, None)
                if number is not None:
                    raise InputError(f"{index.path}: frame {number} can't be decoded")
            except BaseException:
                session.close()  # it may hold frames of this clip, which would come out as frames of the next
                raise
            self._sessions.give_back(session)


def _prepared(outputs: Mapping[str, Output], index: int) -> tuple[Gpu, dict[str, tuple[Output, torch.Tensor]]]:
    """Returns a GPU with a stream of its own, and each output with its `sampling.elements` there, as bytes."""
    with gpu_errors():
        gpu = Gpu(index, priority=-1)  # decoders wait for their stream, and would wait for the training's kernels
        with torch.cuda.stream(gpu.stream):
            numbers = {name: torch.from_numpy(elements(output).view(np.uint8)) for name, output in outputs.items()}
            return gpu, {name: (output, numbers[name].to(gpu.device)) for name, output in outputs.items()}


def _refuse_damage(index: VideoIndex, numbers: Sequence[int]) -> None:
    """Raises `InputError` if FFmpeg finds damage on the way to these frames."""
    for _ in decoded(index, numbers):
        pass


def _surfaces(
    session: NvdecSession, stream: VideoStream, packets: Packets, index: VideoIndex, numbers: Sequence[int]
) -> Iterator[tuple[int, Surface]]:
    """Yields the surfaces of `numbers`, by their times, from packets that begin at the keyframe before them.

    The session is empty then. Raises `InputError` for a damaged packet.
    """
    codec = session.format.codec
    filtered, times = PacketFilter(stream, index.path), TimesToCome(codec)
    numbered = {int(index.pts[number]): number for number in numbers}
    keyframes = 0

    def named(surfaces: list[Surface]) -> Iterator[tuple[int, Surface]]:
        for surface in surfaces:
            pts, _, hidden = times.taken(surface.timestamp)
            if pts in numbered and not hidden:
                yield numbered[pts], surface

    for packet in needed(packets, index, numbers, codec):
        made = filtered(packet)
        if not made:
            raise InputError(f"{index.path}: a packet on the way to frame {numbers[-1]} is damaged")
        for ready in made:
            keyframes += ready.is_keyframe
            if keyframes > 1 or not needs_earlier_frames(codec, ready):
                yield from named(session.decode(times.data(ready)))
    yield from named(session.decode(nvc.PacketData()))  # an empty packet empties the session


class _CudaClip(ClipInProgress[Surface]):
    def __init__(self, maker: CudaMaker, index: VideoIndex, draw: Draw, length: int) -> None:
        self._parts = {name: _Part(maker, index, draw, length, *made) for name, made in maker.outputs.items()}
        self._count = 0

    def add(self, frame: Surface) -> None:
        for part in self._parts.values():
            part.make(frame, self._count)
        self._count += 1

    def sample(self) -> Sample:
        return {name: part.clip for name, part in self._parts.items()}


class _Part:
    """One output of a clip: `clip` (T, 3, H, W), and all that the kernel is told but the surface."""

    def __init__(
        self, maker: CudaMaker, index: VideoIndex, draw: Draw, length: int, output: Output, numbers: torch.Tensor
    ) -> None:
        """`numbers` is `sampling.elements` of the output, as bytes."""
        assert index.coding is not None
        self._index, self._layout = index, FORMATS[index.coding.pix_fmt.replace("yuvj", "yuv")]
        self._kernels = maker.kernels(self._layout, index.rotation // 90)
        self._window = output.window(index.size, draw, index.rotation).stored(index.size, index.rotation)
        height, width = output.size or index.size
        self.clip = maker.gpu.empty((length, 3, height, width), getattr(torch, output.dtype))
        columns, rows = (height, width) if index.rotation % 180 else (width, height)  # as stored
        self._size = (columns, rows)
        samples = lengths(self._window, self._layout)
        tables = [maker.weights(*along) for along in zip(samples, (columns, rows, columns, rows), strict=True)]
        self._told = (
            *(argument for table in tables for argument in (table, table.shape[1] - 1)),
            columns,
            rows,
            int(self._window.mirrored),
            *levels(output, index.coding.color, self._layout.bits).ravel(),
            numbers,
            self.clip.element_size(),
            self.clip.view(torch.uint8),
        )

    def make(self, surface: Surface, place: int) -> None:
        """Queues the kernel for frame `place` of the clip. Raises `InputError` if the video's size has changed."""
        width, height = self._index.stored
        pitch, layout = surface.strides[0], self._layout
        if tuple(surface.shape[:2]) != (height * 3 // 2 if layout.shift_y else height * 3, width):
            raise InputError(f"{self._index.path}: the picture's size changes on the way; {REMEDY}")
        first = surface.GetPtrToPlane(0)
        begins = places(self._window, pitch, height, layout)
        planes = [np.uint64(first + begin * layout.dtype().itemsize) for begin in begins]
        shift = 0 if layout.bits == 8 else 6
        behind = np.int64(place * math.prod(self.clip.shape[1:]))
        self._kernels("clip_sample", (*self._size, 1), *planes, np.int64(pitch), shift, *self._told, behind)
