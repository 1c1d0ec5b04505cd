"""Encoding with NVENC, the video encoder of NVIDIA GPUs, through FFmpeg, from the GPU's memory.

Not run on a GPU that has NVENC. These parts were checked instead:

- every option, against the tables of the encoders in PyAV's wheels;
- all that happens between this module, FFmpeg and NVENC's API, with a stand-in for NVIDIA's library;
- the way from PyTorch's memory to FFmpeg's frames, on a GPU;
- the refusal, on machines without NVENC.

The default qualities are a guess at those of x264 and x265.
"""

from __future__ import annotations

import errno
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import av.error
from av.video.frame import CudaContext, PictureType, VideoFrame

from segmentation.errors import DeviceError, OutputError, one_line
from segmentation.frames import Frame, FrameBatch, Memory, VideoInfo
from segmentation.media.muxer import Muxer
from segmentation.media.video_packet import VideoPacket, pts_of
from segmentation.options.config import Config
from segmentation.stages.encode import Encoder
from segmentation.stages.encode.codec_settings import LiveKeyframes, described_options
from segmentation.stages.encode.nvenc_options import options
from segmentation.stages.encode.nvenc_support import FULL, extras, nvenc_engine
from segmentation.stages.encode.nvenc_surfaces import SurfaceLayout
from segmentation.stages.encode.pyav import describe_stream

if TYPE_CHECKING:
    import torch

    from segmentation.gpu.context import Gpu
    from segmentation.stages.encode.worker_process import EncoderService

log = logging.getLogger(__name__)

_MEMORY = "cuda"  # FFmpeg's pixel format for frames in the GPU's memory


@dataclass(eq=False, slots=True)
class _Surfaces:
    """Memory for a batch, and FFmpeg's frames that refer to it. Both are used again when all packets are out."""

    memory: torch.Tensor
    pictures: list[VideoFrame]
    held: int = 0  # frames whose packets are not out


class NvencEncoder(Encoder):
    """See `segmentation.stages.encode`. 4:2:0 only, in 10 bits with hevc and av1.

    Surfaces are wrapped for FFmpeg once and written again and again: FFmpeg registers each address with NVENC, and
    PyTorch and PyAV release the GIL several times for each new frame.

    The quality is NVENC's `cq`. Quality 0 is lossless, except for av1.
    """

    memory: ClassVar[Memory] = "cuda"

    def __init__(
        self,
        muxer: Muxer,
        info: VideoInfo,
        pix_fmt: str,
        config: Config,
        gpu: Gpu,
        *,
        service: EncoderService | None = None,
    ) -> None:
        self._gpu = gpu
        self._info = info
        self._begun = False  # whether a picture was encoded
        layout = self._layout = SurfaceLayout(info, pix_fmt, gpu)
        self._free: list[_Surfaces] = []
        self._held: dict[int, _Surfaces] = {}  # by pts: the surfaces of frames whose packets are not out
        if (layout.width, layout.height) != (info.width, info.height):
            padded = f"{info.width}x{info.height} is padded to {layout.width}x{layout.height}"
            log.warning("%s: %s: %s in %s has even sizes only", info.path, padded, muxer.codec, pix_fmt)
        library = f"{muxer.codec}_nvenc"
        self._error_prefix = f"{library} can't encode {layout.width}x{layout.height} {layout.format}"
        chosen = options(muxer.codec, config, extras(library, gpu.index)) | described_options(library, info, pix_fmt)
        self._stream = muxer.add_video(library, info, chosen)
        if info.light and muxer.codec == "av1":
            log.warning("%s: its HDR10 metadata is left out, since %s is written without", info.path, library)
        self._keyframes = LiveKeyframes(info)
        context = self._stream.codec_context
        describe_stream(context, info, muxer)
        context.width, context.height, context.pix_fmt = layout.width, layout.height, _MEMORY
        # PyTorch's CUDA context, where the planes' addresses are valid. FFmpeg gets the current context, because it
        # accepts a primary context only with flags that PyTorch does not set.
        self._cuda = CudaContext(gpu.index, primary_ctx=False, current_ctx=True)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        return nvenc_engine(config, info)

    @staticmethod
    def formats(codec: str) -> tuple[str, ...]:
        return ("yuv420p",) if codec == "h264" else ("yuv420p", "yuv420p10le")

    def encode(self, batch: FrameBatch) -> list[VideoPacket]:
        packets: list[VideoPacket] = []
        surfaces = self._take(len(batch))
        self._layout.fill(surfaces.memory, batch)
        self._gpu.record_event().synchronize()  # the host waits for the stream, since NVENC does not
        surfaces.held = len(batch)
        for picture, frame in zip(surfaces.pictures, batch.frames, strict=False):
            self._held[frame.pts] = surfaces
            packets += self._packets(self._timed(picture, frame))
        return packets

    def flush(self) -> list[VideoPacket]:
        return self._packets(None)

    def close(self) -> None:
        self._free.clear()
        self._held.clear()

    def _take(self, count: int) -> _Surfaces:
        """Returns surfaces for `count` frames that NVENC does not read."""
        for surfaces in self._free:
            if len(surfaces.pictures) >= count:
                self._free.remove(surfaces)
                return surfaces
        memory = self._layout.empty(count)
        return _Surfaces(memory, [self._layout.wrap(surface, self._cuda) for surface in memory])

    def _timed(self, picture: VideoFrame, frame: Frame) -> VideoFrame:
        picture.pts, picture.duration, picture.time_base = frame.pts, frame.duration, self._info.time_base
        picture.pict_type = PictureType.NONE
        return self._keyframes.mark(picture, frame.pts)

    def _release(self, packets: list[VideoPacket]) -> None:
        """Counts the frames of these packets as read: FFmpeg refers to a surface until its packet is out."""
        for packet in packets:
            surfaces = self._held.pop(pts_of(packet))
            surfaces.held -= 1
            if not surfaces.held:
                self._free.append(surfaces)

    def _packets(self, picture: VideoFrame | None) -> list[VideoPacket]:
        try:
            packets = list(self._stream.encode(picture))
        except (av.error.FFmpegError, ValueError) as exc:
            number = getattr(exc, "errno", None)
            if number == errno.EIO and self._begun:  # before, it is FFmpeg's word for an encoder that is refused
                text = f"{self._stream.codec_context.name}: {one_line(exc)}"
                raise DeviceError(f"the GPU failed ({text}); see nvidia-smi and the system's log") from exc
            if number == errno.ENOMEM:
                raise OutputError(f"{self._error_prefix} ({FULL}); try --encode x264") from exc
            raise OutputError(f"{self._error_prefix} ({one_line(exc)}); try --encode x264") from exc
        self._begun = True
        self._release(packets)
        return packets
