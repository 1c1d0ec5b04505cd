"""Values that travel through the pipeline: frames in YUV with their timestamps, and their masks.

Frames stay YUV from the decoder to the encoder: three planes, Y (H, W) and U, V (h, w), where (h, w) is (H, W) divided
by the chroma subsampling and rounded up; uint8 for 8 bits, uint16 (low bits used) for 10. On the CPU each frame has its
own planes, NumPy arrays; on a GPU the frames of a batch lie in three tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from segmentation.frames.instances import Box, FrameInstances
from segmentation.frames.orientation import Orientation
from segmentation.system.access import Access

if TYPE_CHECKING:  # machines without a GPU may lack PyTorch
    import torch

    from segmentation.frames.event import Event
    from segmentation.frames.live_frames import LiveFrames
    from segmentation.frames.source import Source
    from segmentation.system.shared_memory import BlockPool, SharedPlanes

Memory = Literal["host", "cuda"]
HostArray: TypeAlias = NDArray[Any]
Array: TypeAlias = "HostArray | torch.Tensor"  # on the host or on a GPU

Plane = NDArray[Any]  # (h, w) uint8 or uint16
Planes = tuple[Plane, Plane, Plane]
Halvings = dict[tuple[int, int], Plane]  # of a plane, by (width, height): as often as a stage needed it
Message = tuple[int, bytes]  # of SEI: payloadType and payload, see `media.sei`
CutOut = tuple[Plane, Plane, Plane, Plane]  # with alpha, as large as luma and in as many bits, 0 to 255 or 1023
ON_GPU: Any = ()  # the planes of a frame that lies in its batch's


@dataclass(frozen=True, slots=True)
class PixelFormat:
    """A planar YUV layout: FFmpeg's name, bits a sample, log2 of the chroma subsampling in x and y."""

    name: str
    bits: int
    shift_x: int
    shift_y: int

    @property
    def dtype(self) -> type[np.uint8] | type[np.uint16]:
        return np.uint8 if self.bits == 8 else np.uint16

    def shapes(self, width: int, height: int) -> tuple[tuple[int, int], ...]:
        """The shapes (h, w) of Y, U and V of a frame of this size."""
        chroma = (-(-height >> self.shift_y), -(-width >> self.shift_x))
        return (height, width), chroma, chroma

    def frame_bytes(self, width: int, height: int) -> int:
        """Bytes of the planes of a frame of this size."""
        return sum(h * w for h, w in self.shapes(width, height)) * self.dtype().itemsize


FORMATS = {
    f.name: f
    for f in (
        PixelFormat("yuv420p", 8, 1, 1),
        PixelFormat("yuv422p", 8, 1, 0),
        PixelFormat("yuv444p", 8, 0, 0),
        PixelFormat("yuv420p10le", 10, 1, 1),
        PixelFormat("yuv422p10le", 10, 1, 0),
        PixelFormat("yuv444p10le", 10, 0, 0),
    )
}

# ITU-T H.273 code points, which FFmpeg uses as they are.
UNSPECIFIED = 2
LIMITED, FULL = 1, 2  # FFmpeg's AVColorRange
_KR_KB = {  # luma weights of red and blue by matrix coefficients, H.273 table 4
    1: (0.2126, 0.0722),  # BT.709
    4: (0.30, 0.11),  # FCC
    5: (0.299, 0.114),  # BT.470BG (BT.601, 625 lines)
    6: (0.299, 0.114),  # SMPTE 170M (BT.601, 525 lines)
    7: (0.212, 0.087),  # SMPTE 240M
    9: (0.2627, 0.0593),  # BT.2020, non-constant luminance
    10: (0.2627, 0.0593),  # BT.2020, constant luminance, read as non-constant
}


@dataclass(frozen=True, slots=True)
class Color:
    """How YUV numbers map to light: H.273 code points; `range` is 0 (unspecified), 1 (limited) or 2 (full)."""

    matrix: int = UNSPECIFIED
    range: int = 0
    primaries: int = UNSPECIFIED
    transfer: int = UNSPECIFIED

    @property
    def weights(self) -> tuple[float, float]:
        """(Kr, Kb). An unspecified matrix is read as BT.601, as swscale reads it."""
        return _KR_KB.get(self.matrix, _KR_KB[6])

    def levels(self, bits: int) -> tuple[float, float, float, float]:
        """(black, luma span, chroma zero, chroma span) in sample values, H.273 equations 21 to 29."""
        scale = 1 << (bits - 8)
        if self.range == FULL:
            return 0.0, 256.0 * scale - 1, 128.0 * scale, 256.0 * scale - 1
        return 16.0 * scale, 219.0 * scale, 128.0 * scale, 224.0 * scale

    @property
    def swscale(self) -> int:
        """The matrix as swscale numbers it, whose BT.601 is 5."""
        return self.matrix if self.matrix in (1, 4, 7, 9) else 9 if self.matrix == 10 else 5

    def yuv_to_rgb(self, bits: int) -> NDArray[np.float32]:
        """(3, 4) matrix: (Y, U, V, 1) in sample values to (R, G, B) in 0..1, not clipped. H.273 equations 38 to 43."""
        kr, kb = self.weights
        kg = 1 - kr - kb
        black, luma, zero, chroma = self.levels(bits)
        red, blue = 2 * (1 - kr), 2 * (1 - kb)
        linear = np.array(
            [
                [1 / luma, 0, red / chroma],
                [1 / luma, -blue * kb / kg / chroma, -red * kr / kg / chroma],
                [1 / luma, blue / chroma, 0],
            ]
        )
        return np.hstack([linear, -linear @ [[black], [zero], [zero]]]).astype(np.float32)

    def from_rgb(self, rgb: tuple[int, int, int], bits: int) -> tuple[int, int, int]:
        """An 8-bit RGB color as (Y, U, V) sample values."""
        kr, kb = self.weights
        black, luma, zero, chroma = self.levels(bits)
        r, g, b = (c / 255 for c in rgb)
        y = kr * r + (1 - kr - kb) * g + kb * b
        u, v = (b - y) / (2 * (1 - kb)), (r - y) / (2 * (1 - kr))
        top = (1 << bits) - 1
        return tuple(min(top, max(0, round(x))) for x in (black + luma * y, zero + chroma * u, zero + chroma * v))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoInfo:
    """One video stream, as found before the first frame is processed."""

    source: Source
    stream_index: int
    width: int  # pixels, as stored (before any rotation)
    height: int
    pix_fmt: str  # FFmpeg's name of the decoder's format
    codec: str
    color: Color
    time_base: Fraction  # seconds a tick of pts
    rate: Fraction  # frames a second, nominal: for rate control and progress, never for timestamps
    start: Fraction  # seconds: where the container's clock begins
    frames: int  # as the container says, 0 if it does not say
    frames_exact: bool  # whether `frames` is the length of an index, so that fewer decoded frames mean damage
    end: Fraction | None  # seconds: where the container says that this stream ends
    sample_aspect_ratio: Fraction | None
    display_matrix: tuple[int, ...] | None  # FFmpeg's AV_PKT_DATA_DISPLAYMATRIX, 9 integers
    rotation: int  # degrees counter-clockwise that stored frames must be turned to stand upright: 0, 90, 180, 270
    interlaced: bool  # whether frames may consist of two fields
    mirrored: bool = False  # whether turned frames are mirrored left to right before they are shown
    chroma_location: str = ""  # FFmpeg's name; empty where the stream states none
    coded_aspect: Fraction | None = None  # of samples, by the coded stream alone: the container may state another
    light: tuple[Message, ...] = ()  # HDR10's static metadata, for each keyframe
    left_out: tuple[str, ...] = ()  # metadata of all the stream that no output holds, in words
    first_pts: int = 0  # ticks: where the container says that this stream begins
    layered: bool = False  # whether a packet holds several views of a frame, as in MV-HEVC
    packed: bool = False  # whether a packet may hold two frames, as in MPEG-4 of old encoders
    gradual: bool = False  # whether the first pictures lack what went before, until a gradual refresh is over
    inside: bool = False  # whether the shown picture begins to the right of the coded one's corner, or below it
    access: Access = field(default_factory=Access)  # within which the input is opened again
    live: LiveFrames | None = None  # where the frames of a camera or a stream arrive
    extradata: bytes | None = None  # parameter sets that the container stores apart from the packets
    timed: bool = True  # whether the first packet has a pts
    may_step: bool = False  # whether the container's clock may step, so that a time may lead to another place
    decoding_times: bool = False  # whether pts are decoding times of frames that are shown in another order, as in AVI
    alone: bool = False  # whether the input has no other stream

    @property
    def path(self) -> str:
        """The input's name in messages, which is a file's path. That of a live source is without secrets."""
        return self.source.label if self.source.is_live else self.source.text

    @property
    def orientation(self) -> Orientation:
        """How stored frames stand upright."""
        return Orientation(self.rotation // 90, self.mirrored)

    @property
    def upright_size(self) -> tuple[int, int]:
        """Width and height of the picture when it stands upright."""
        return self.orientation.size(self.width, self.height)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One picture and when it is shown. The planes are not written to after the decoder has handed them over."""

    planes: Planes  # ON_GPU where the batch's planes hold the picture; a `CutOut` where the effect leaves one
    pts: int  # ticks of VideoInfo.time_base
    duration: int  # ticks, 0 if unknown
    messages: tuple[Message, ...] = ()  # captions and other data that go with it into the output
    # Of these very planes, by size, see `preprocess.opencv.shrink`: `replace` does not take them along.
    halvings: tuple[Halvings, ...] = field(init=False, default_factory=lambda: ({}, {}, {}), compare=False, repr=False)


class _Rows(tuple):  # type: ignore[type-arg]  # of CUDA tensors
    """Views of a batch's planes. They hold on to the planes, whose memory goes back to a pool without them."""

    whole: object


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameBatch:
    """Successive frames of one stream, all of one size and format, in presentation order.

    A batch without frames is a pause of a live source: what waits for later frames is to come out without them.
    """

    frames: tuple[Frame, ...]
    index: int  # number of the first frame, counted from the first frame that is put out
    number: int = 0  # of the batch, counted likewise: batches may be short, so it does not follow from `index`
    # On a GPU: (Y, U, V), of cut-outs with alpha, CUDA tensors (N, h, w) whose first len(frames) pictures count.
    planes: tuple[torch.Tensor, ...] = ()
    ready: Event | None = None  # the planes hold the pictures once this CUDA event has passed
    shared: SharedPlanes | None = None  # the block that these frames begin, if an encoder's process sees it
    repeated: bool = False  # while a live source is lost: its last picture again, which did not arrive
    card: Planes | None = None  # on the host: shown in the place of the picture, where the effect leaves one

    @property
    def memory(self) -> Memory:
        """Where the pictures are: "host" or "cuda"."""
        return "cuda" if self.planes else "host"

    def __len__(self) -> int:
        return len(self.frames)

    def part(self, begin: int, end: int) -> FrameBatch:
        """Frames `begin` to `end` of the batch, which share its memory."""
        if (begin, end) == (0, len(self)):
            return self
        rows = _Rows(plane[begin:end] for plane in self.planes)
        rows.whole = self.planes
        return replace(self, frames=self.frames[begin:end], index=self.index + begin, planes=rows)

    def without_pictures(self) -> FrameBatch:
        """The frames' times alone: what is still asked for when the pictures are encoded, and their memory free."""
        frames = self.frames if self.memory == "cuda" else tuple(replace(f, planes=ON_GPU) for f in self.frames)
        return replace(self, frames=frames, planes=(), ready=None, shared=None, card=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedBatch:
    """Frames with what the network found in them."""

    frames: FrameBatch
    masks: Array  # (N, h, w) float32 in 0..1, upright
    class_map: Array | None = None  # (N, h, w) uint8, upright: index into the kept classes, where it is asked for
    instances: Sequence[FrameInstances] = ()  # N, read on the host wherever the masks are; none unless asked for
    # (N,) on the host, once the GPU has written it: whether the mask exceeds the threshold; `None` before that is known
    found: NDArray[np.bool_] | None = None
    unknown: NDArray[np.bool_] | None = None  # (N,) likewise: whether the network gave no mask, and all is covered
    shots: tuple[int, ...] | None = None  # N, rising: the number of each frame's shot, where cuts are looked for
    further: tuple[MaskedBatch, ...] = ()  # of the same frames: what further networks found, until it is joined
    # N: the boxes of heads that nothing covers, where they are looked for
    bare: tuple[tuple[Box, ...], ...] | None = None

    def __len__(self) -> int:
        return len(self.frames)

    def to(self, memory: Memory, transfer: Transfer) -> MaskedBatch:
        """The batch in that memory: the same where all of it is there already."""
        count = len(self.frames)
        return MaskedBatch(
            frames=transfer.frames(self.frames, memory),
            masks=transfer.rows(self.masks, memory, count),
            class_map=None if self.class_map is None else transfer.rows(self.class_map, memory, count),
            instances=self.instances if memory == "cuda" else tuple(self.instances),
            found=self.found,
            unknown=self.unknown,
            shots=self.shots,
            bare=self.bare,
        )

    def host_masks(self, transfer: Transfer) -> NDArray[np.float32]:
        """Returns the masks (N, h, w) on the host."""
        return np.asarray(transfer.on_host(self.masks[: len(self)])[0], np.float32)


class Transfer(Protocol):
    """Moves batches between the host's memory and the GPU's."""

    def enter(self) -> None:
        """Prepares the calling thread; each thread that moves something calls it first."""

    def on_stream(self) -> AbstractContextManager[object]:
        """Within it, what PyTorch queues on the GPU goes to the run's stream."""

    def frames(
        self, batch: FrameBatch, memory: Memory, *, wait: bool = True, blocks: BlockPool | None = None
    ) -> FrameBatch:
        """The batch in that memory: as it is if it is there, else a copy; on the host in one of `blocks`, if given.

        Without `wait` the GPU may still be copying; the copy is complete once `ready` has passed.
        """

    def rows(self, array: Array, memory: Memory, count: int, *, wait: bool = True) -> Array:
        """The first `count` rows of an array in that memory, likewise.

        Without `wait` the GPU may still be copying; the copy is complete once an event has passed that is recorded
        after the call.
        """

    def on_host(self, array: Array, *more: Array | None) -> tuple[HostArray, list[HostArray | None]]:
        """These arrays on the host, `None` for `None`. Waits once for all of them."""


class HostTransfer:
    """A `Transfer` for runs without a GPU, where nothing moves."""

    def enter(self) -> None: ...

    def on_stream(self) -> AbstractContextManager[object]:
        return nullcontext()

    def frames(
        self, batch: FrameBatch, memory: Memory, *, wait: bool = True, blocks: BlockPool | None = None
    ) -> FrameBatch:
        return batch

    def rows(self, array: Array, memory: Memory, count: int, *, wait: bool = True) -> Array:
        return array

    def on_host(self, array: Array, *more: Array | None) -> tuple[HostArray, list[HostArray | None]]:
        return np.asarray(array), [None if one is None else np.asarray(one) for one in more]
