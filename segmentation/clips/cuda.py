"""Makes clips on an NVIDIA GPU: NVDEC decodes, and a kernel makes each output from its surfaces.

All sessions of NVDEC, the kernels and the memory of clips belong to one stream. Work on it happens in the order in
which threads queue it. So a surface is read before its session overwrites it, and freed memory is written to again only
when all earlier work is over. Batches are put together on a second stream, which waits for their own clips and not for
later ones. The stream of the thread that takes a batch waits for that one, see `CudaClipBuilder.handed_over`.

Each call of a library that releases the GIL waits for it again, among all the threads that decode. So there are few.
"""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import ctypes
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import PyNvVideoCodec as nvc
import torch
from av.video.stream import VideoStream
from numpy.typing import NDArray

from segmentation.clips.clip_builder import REMEDY, ClipBuilder, ClipInProgress, Sample
from segmentation.clips.decode import decoded, filtered_packets, opened
from segmentation.clips.index import VideoIndex
from segmentation.clips.native_clips import NativeClips
from segmentation.clips.open_videos import OpenVideos
from segmentation.clips.output import Augmentation, Output
from segmentation.clips.sampling import CLIPS, corners, elements, lengths, levels, weights
from segmentation.errors import BackendError, InputError
from segmentation.frames import FORMATS, PixelFormat
from segmentation.frames.orientation import Orientation
from segmentation.gpu.context import Gpu
from segmentation.gpu.cuda_calls import Event
from segmentation.gpu.errors import gpu_errors
from segmentation.gpu.kernels import Kernels, blocks
from segmentation.gpu.plane_pool import DevicePlanes, PlanePool
from segmentation.gpu.signatures import Argument
from segmentation.stages.decode.native.library import Sampler, library
from segmentation.stages.decode.nvdec_log import damage_log
from segmentation.stages.decode.nvdec_session import NvdecSession, Surface, TimesToCome
from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool
from segmentation.stages.decode.stream_format import StreamFormat

if TYPE_CHECKING:
    from segmentation.media.video_packet import VideoPacket

    Packets: TypeAlias = Iterator[VideoPacket]

_LEAST_WORKERS = 2  # a single session leaves its engine idle between frames
_MOST_KINDS = 4  # dtypes and shapes of clips, whose free memory is kept
_MOST_UNREAD = 16  # arrays of batches that a program may take while its stream is still busy with the first of them


class _Made(NamedTuple):
    """A clip's array, of one output or of masks, which is made once the event has passed."""

    array: torch.Tensor
    event: Event
    memory: DevicePlanes | None = None  # of the array, which is used again when nothing refers to it


class _Joined(NamedTuple):
    """An array of a batch, on the stream of batches, which is made once the event has passed."""

    array: torch.Tensor
    event: torch.cuda.Event


class ClipPicture(NamedTuple):
    """A decoded picture in device memory, until the next one is asked for. Lengths are in samples."""

    y: int  # addresses of the first samples
    u: int
    v: int
    pitch: int  # from row to row
    step: int  # from one sample of chroma to the next in its row
    shift: int  # by which samples are to be shifted down


class CudaClipBuilder(ClipBuilder["_CudaClip"]):
    """Makes CUDA tensors. Its sessions and their memory are kept for the videos to come, and end with the maker."""

    def __init__(self, outputs: Mapping[str, Output], index: int, engines: int) -> None:
        """`index` is the number of the GPU, `engines` how many of its engines can decode the videos."""
        self.workers = max(_LEAST_WORKERS, engines)
        self._sessions = NvdecSessionPool()
        self._kernels: dict[tuple[PixelFormat, Orientation], Kernels] = {}
        self._weights: dict[tuple[int, int], torch.Tensor] = {}  # see `sampling.weights`
        self._reads: deque[torch.cuda.Event] = deque()  # of the arrays before, at each array that was handed over
        self._spare: deque[torch.cuda.Event] = deque()  # that nobody waits for
        self._videos = OpenVideos()
        damage_log()  # takes over the library's log, which two threads must not do at once
        with ThreadPoolExecutor(1) as pool:  # else the caller's current device would be another one from here on
            self.gpu, self._joining, self.outputs = pool.submit(_prepared, outputs, index).result()
        self._native = NativeClips(self.gpu, self._videos) if _has_library() else None
        self._memory: dict[tuple[tuple[int, ...], torch.dtype], PlanePool] = {}  # of clips; the last used is last

    @contextmanager
    def working(self) -> Iterator[None]:
        with gpu_errors():
            self.gpu.enter()
            yield

    def begin(self, index: VideoIndex, draw: Augmentation, length: int) -> _CudaClip:
        return _CudaClip(self, index, draw, length)

    def make(self, index: VideoIndex, wanting: Mapping[int, Sequence[_CudaClip]]) -> None:
        """See `ClipBuilder.make`. Where NVDEC finds damage, or a frame is missing, FFmpeg decides what is damaged."""
        try:
            damaged = (self._decoded if self._native is None else self._native.make)(index, wanting)
        except InputError:
            _refuse_damage(index, sorted(wanting))
            raise
        if damaged:
            _refuse_damage(index, sorted(wanting))

    def memory(self, shape: tuple[int, ...], dtype: torch.dtype) -> DevicePlanes:
        """Returns the memory of a clip, for use on the stream. That of the last few kinds is kept."""
        key = (shape, dtype)
        pool = self._memory.pop(key, None) or self.gpu.plane_pool([shape], dtype)
        self._memory[key] = pool  # behind those that were wanted before
        if len(self._memory) > _MOST_KINDS:
            self._memory.pop(next(iter(self._memory)), None)
        return pool.take()

    def masks(self, masks: NDArray[np.uint8]) -> _Made:
        with torch.cuda.stream(self.gpu.stream):
            return _Made(torch.from_numpy(masks).to(self.gpu.device), self.gpu.record_event())

    def batch(self, clips: Sequence[_Made], output: Output | None) -> _Joined:  # type: ignore[override]
        arrays, joining = [clip.array for clip in clips], self._joining
        shape = (len(arrays), *arrays[0].shape)
        axes = tuple(range(len(shape))) if output is None else output.axes
        with torch.cuda.stream(joining.stream):
            for event in {id(clip.event): clip.event for clip in clips}.values():
                joining.wait_event(event)
            made = torch.empty([shape[axis] for axis in axes], dtype=arrays[0].dtype, device=self.gpu.device)
            torch.stack(arrays, out=made.permute([axes.index(axis) for axis in range(len(axes))]))
            self.gpu.wait_event(joining.record_event())  # before the memory of these clips is written to again
            return _Joined(made, joining.stream.record_event(self._event()))

    def handed_over(self, joined: _Joined) -> torch.Tensor:
        """See `ClipBuilder.handed_over`. The array is for the current stream of the calling thread.

        That stream waits for it, and its memory is used again only when it is freed and that stream has read it. The
        thread waits where it is far ahead of its stream.
        """
        stream, event = torch.cuda.current_stream(self.gpu.device), joined.event
        stream.wait_event(event)
        event.record(stream)
        self._reads.append(event)
        if len(self._reads) > _MOST_UNREAD:
            before = self._reads.popleft()
            if not before.query():
                before.synchronize()
            self._spare.append(before)
        joined.array.record_stream(stream)
        return joined.array

    def _event(self) -> torch.cuda.Event:
        """Returns an event to be recorded. It was another one's before, if there is one: see `cuda_calls.Event`."""
        try:
            return self._spare.popleft()
        except IndexError:
            return torch.cuda.Event(blocking=True)

    def weights(self, length: int, after: int) -> torch.Tensor:
        """Returns a table of `sampling.weights` on the GPU."""
        key = (length, after)
        if key not in self._weights:
            with torch.cuda.stream(self.gpu.stream):
                self._weights[key] = torch.from_numpy(weights(length, after)).to(self.gpu.device)
        return self._weights[key]

    def kernels(self, layout: PixelFormat, orientation: Orientation) -> Kernels:
        """Returns the kernels for pictures of this layout that are stored so."""
        key = (layout, orientation)
        if key not in self._kernels:
            self._kernels[key] = self.gpu.kernels(CLIPS, layout, orientation)
        return self._kernels[key]

    def _decoded(self, index: VideoIndex, wanting: Mapping[int, Sequence[_CudaClip]]) -> bool:
        """Makes frames from surfaces in order. Returns whether some session has found damage meanwhile.

        NVDEC conceals damage, and its library names that in its log alone, which all sessions share. Raises
        `InputError` if a surface does not come out.
        """
        named, numbers = damage_log().count(), sorted(wanting)
        with opened(index, numbers[0], self._videos.lent) as (stream, packets):
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
                    for clip in wanting[number]:
                        clip.add(surface)
                    number = next(left, None)
                if number is not None:
                    raise InputError(f"{index.path}: frame {number} can't be decoded")
            except BaseException:
                session.close()  # it may hold frames of this clip, which would come out as frames of the next
                raise
            self._sessions.give_back(session)
        return damage_log().count() > named


def _has_library() -> bool:
    try:
        library()
    except BackendError:  # PyNvVideoCodec decodes then
        return False
    return True


def _prepared(outputs: Mapping[str, Output], index: int) -> tuple[Gpu, Gpu, dict[str, tuple[Output, torch.Tensor]]]:
    """Returns a GPU with a stream, the same with another, and each output with its `sampling.elements`, as bytes."""
    with gpu_errors():
        gpu = Gpu(index, priority=-1)  # decoders wait for their stream, and would wait for the training's kernels
        with torch.cuda.stream(gpu.stream):
            numbers = {name: torch.from_numpy(elements(output).view(np.uint8)) for name, output in outputs.items()}
            return gpu, gpu.with_own_stream(), {n: (outputs[n], numbers[n].to(gpu.device)) for n in outputs}


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
    times = TimesToCome(session.format.codec)
    numbered = {int(index.pts[number]): number for number in numbers}

    def named(surfaces: list[Surface]) -> Iterator[tuple[int, Surface]]:
        for surface in surfaces:
            pts, _, hidden, _ = times.taken(surface.timestamp)
            if pts in numbered and not hidden:
                yield numbered[pts], surface

    for packet in filtered_packets(index, numbers, stream, packets):
        yield from named(session.decode(times.data(packet)))
    yield from named(session.decode(nvc.PacketData()))  # an empty packet empties the session


class _CudaClip(ClipInProgress):
    def __init__(self, maker: CudaClipBuilder, index: VideoIndex, draw: Augmentation, length: int) -> None:
        layout = self._layout = FORMATS[index.coding.pix_fmt.replace("yuvj", "yuv")]
        self._path, (width, height) = index.path, index.stored
        self._shape = (height * 3 // 2 if layout.shift_y else height * 3, width)  # of a surface
        self._parts = {name: _Part(maker, index, layout, draw, length, *made) for name, made in maker.outputs.items()}
        self._count, self._gpu, self._rows = 0, maker.gpu, height

    def samplers(self) -> list[Sampler]:
        return [part.sampler() for part in self._parts.values()]

    def add(self, surface: Surface) -> None:
        """Makes the next frame of each output. Raises `InputError` if the video's size has changed.

        A surface has luma above interleaved chroma (4:2:0), or above U and V (4:4:4).
        """
        if tuple(surface.shape[:2]) != self._shape:
            raise InputError(f"{self._path}: the picture's size changes on the way; {REMEDY}")
        each, shift = (1, 0) if self._layout.bits == 8 else (2, 6)
        y, pitch = surface.GetPtrToPlane(0), surface.strides[0]
        u = y + each * self._rows * pitch
        v = u + each * (1 if self._layout.shift_x else self._rows * pitch)
        for part in self._parts.values():
            part.make(ClipPicture(y, u, v, pitch, 1 + self._layout.shift_x, shift), self._count)
        self._count += 1

    def sample(self) -> Sample:
        event = self._gpu.record_event()
        return {name: _Made(part.clip, event, part.memory) for name, part in self._parts.items()}


class _Part:
    """One output of a clip: `clip` (T, 3, H, W), and the kernel that makes its frames."""

    def __init__(
        self,
        maker: CudaClipBuilder,
        index: VideoIndex,
        layout: PixelFormat,
        draw: Augmentation,
        length: int,
        output: Output,
        numbers: torch.Tensor,
    ) -> None:
        """`numbers` is `sampling.elements` of the output, as bytes."""
        window = output.window(index.size, draw, index.orientation).stored(index.size, index.orientation)
        height, width = output.size or index.size
        self.memory = maker.memory((length, 3, height, width), getattr(torch, output.dtype))
        (self.clip,) = self.memory
        columns, rows = index.orientation.size(width, height)  # as stored
        along = zip(lengths(window, layout), (columns, rows, columns, rows), strict=True)
        self._tables = [maker.weights(before, after) for before, after in along]
        self._kernels, self._size = maker.kernels(layout, index.orientation), (columns, rows, 1)
        self._arguments: tuple[Argument, ...] = (  # but for those of a picture, and of the frame's place
            *(argument for table in self._tables for argument in (table, table.shape[1] - 1)),
            *(columns, rows, int(window.mirrored), *levels(output.color, index.coding.color, layout.bits).ravel()),
            *(numbers, self.clip.element_size(), np.uint64(self.clip.data_ptr())),
        )
        self._bytes, self._corners = 1 if layout.bits == 8 else 2, corners(window, layout)
        self._length = 3 * height * width  # elements of a frame

    def make(self, picture: ClipPicture, place: int) -> None:
        """Queues the kernel for frame `place` of the clip."""
        y, u, v, pitch, step, shift = picture
        (top, left), (above, before) = self._corners
        luma, chroma = self._bytes * (top * pitch + left), self._bytes * (above * pitch + step * before)
        first = np.uint64(y + luma), np.uint64(u + chroma), np.uint64(v + chroma), np.int64(pitch), np.int64(pitch)
        arguments = *first, step, shift, *self._arguments, np.int64(place * self._length)
        self._kernels("clip_sample", self._size, *arguments)

    def sampler(self) -> Sampler:
        """Returns how the native library does what `make` does."""
        nowhere, zero = np.uint64(0), np.int64(0)  # for the library to fill in
        given = nowhere, nowhere, nowhere, zero, zero, 0, 0, *self._arguments, zero
        packed = self._kernels.packed("clip_sample", *given)
        self._packed = ctypes.create_string_buffer(packed, len(packed))
        across, down, _ = blocks(self._size)
        (top, left), (above, before) = self._corners
        kernel, address = self._kernels.handle("clip_sample"), ctypes.addressof(self._packed)
        return Sampler(kernel, address, self._length, len(packed), across, down, top, left, above, before)
