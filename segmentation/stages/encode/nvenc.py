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
from typing import TYPE_CHECKING, ClassVar

import av.error
import torch
from av.video.frame import CudaContext, VideoFrame

from segmentation.errors import DeviceError, OutputError, one_line
from segmentation.frames import FORMATS, Frame, FrameBatch, Memory, VideoInfo
from segmentation.media.muxer import Muxer
from segmentation.options.config import Config
from segmentation.stages.encode import Encoder, VideoPacket
from segmentation.stages.encode.codec_settings import LiveKeyframes
from segmentation.stages.encode.nvenc_support import ALWAYS, FULL, LOW_DELAY, QUALITY, extras, nvenc_engine
from segmentation.stages.encode.pyav import describe_stream, round_up

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.stages.encode.worker_process import EncoderService

log = logging.getLogger(__name__)

_PRESET = "p5"
_GOP = "250"  # frames, as with x264: without it the driver's preset decides, and may choose one keyframe alone
_MEMORY = "cuda"  # FFmpeg's pixel format for frames in the GPU's memory
_PITCH = 256  # bytes: rows are multiples of it long; NVENC requires multiples of 4


class NvencEncoder(Encoder):
    """See `segmentation.stages.encode`. 4:2:0 only, in 10 bits with hevc and av1.

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
        self._format = "nv12" if FORMATS[pix_fmt].bits == 8 else "p010le"
        self._width, self._height = round_up(info.width, 1), round_up(info.height, 1)
        if (self._width, self._height) != (info.width, info.height):
            padded = f"{info.width}x{info.height} is padded to {self._width}x{self._height}"
            log.warning("%s: %s: %s in %s has even sizes only", info.path, padded, muxer.codec, pix_fmt)
        library = f"{muxer.codec}_nvenc"
        self._error_prefix = f"{library} can't encode {self._width}x{self._height} {self._format}"
        self._stream = muxer.add_video(library, info, options(muxer.codec, config, extras(library, gpu.index)))
        self._keyframes = LiveKeyframes(info)
        context = self._stream.codec_context
        describe_stream(context, info, muxer)
        context.width, context.height, context.pix_fmt = self._width, self._height, _MEMORY
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
        with torch.cuda.stream(self._gpu.stream):
            y, u, v = (plane[: len(batch)] for plane in batch.planes)
            batch_surfaces = surfaces(y, u, v, self._width, self._height)
            # The host waits for the stream, since NVENC does not. FFmpeg then refers to a surface until its packet is
            # out. After that PyTorch reuses the memory for later work on the same stream.
            self._gpu.stream.record_event().synchronize()
            for surface, frame in zip(batch_surfaces, batch.frames, strict=True):
                packets += self._packets(self._picture(surface, frame))
        return packets

    def flush(self) -> list[VideoPacket]:
        return self._packets(None)

    def _picture(self, surface: torch.Tensor, frame: Frame) -> VideoFrame:
        luma, chroma = surface[: self._height, : self._width], surface[self._height :, : self._width]
        # Stream -1: FFmpeg waits for no stream.
        picture = VideoFrame.from_dlpack((luma, chroma), self._format, stream=-1, cuda_context=self._cuda)
        picture.pts, picture.duration, picture.time_base = frame.pts, frame.duration, self._info.time_base
        return self._keyframes.mark(picture)

    def _packets(self, picture: VideoFrame | None) -> list[VideoPacket]:
        try:
            packets = list(self._stream.encode(picture))
            self._begun = True
            return packets
        except (av.error.FFmpegError, ValueError) as exc:
            number = getattr(exc, "errno", None)
            if number == errno.EIO and self._begun:  # before, it is FFmpeg's word for an encoder that is refused
                text = f"{self._stream.codec_context.name}: {one_line(exc)}"
                raise DeviceError(f"the GPU failed ({text}); see nvidia-smi and the system's log") from exc
            if number == errno.ENOMEM:
                raise OutputError(f"{self._error_prefix} ({FULL}); try --encode x264") from exc
            raise OutputError(f"{self._error_prefix} ({one_line(exc)}); try --encode x264") from exc


def surfaces(y: torch.Tensor, u: torch.Tensor, v: torch.Tensor, width: int, height: int) -> torch.Tensor:
    """Returns planes Y (N, h, w) and U, V (N, h/2, w/2) in NVENC's layout, padded to the even `width` and `height`.

    The result is (N, height * 3/2, pitch), uint8, or uint16 with the 10 bits at the top: rows of luma, then rows of U
    and V interleaved. They follow each other without a gap, since NVENC gets the address of the luma alone.
    """
    deep = y.dtype == torch.uint16
    if deep:  # PyTorch has few operations for uint16, and 10 bits are the same in int16
        y, u, v = (plane.view(torch.int16) for plane in (y, u, v))
    row = _PITCH // y.element_size()
    result = y.new_empty((len(y), height * 3 // 2, -(-width // row) * row))
    luma, chroma = result[:, :height, :width], result[:, height:, :width]
    luma[:, : y.shape[1], : y.shape[2]] = y
    luma[:, y.shape[1] :, : y.shape[2]] = y[:, -1:]
    luma[:, :, y.shape[2] :] = luma[:, :, y.shape[2] - 1 : y.shape[2]]
    chroma[..., 0::2], chroma[..., 1::2] = u, v
    return result.bitwise_left_shift_(6).view(torch.uint16) if deep else result


def options(codec: str, config: Config, extra: dict[str, str]) -> dict[str, str]:
    """Returns FFmpeg's options of the encoder. `extra` are those of `nvenc_support.extras`."""
    chosen = {"preset": config.preset or _PRESET, "g": _GOP}
    if config.quality == 0 and codec != "av1":
        return {**chosen, "tune": "lossless", "bf": "0"}
    quality = QUALITY[codec].of(config.quality)
    chosen |= {**ALWAYS, **extra, "cq": str(max(1, quality))}  # 0 lets NVENC choose
    if config.low_delay:
        chosen |= LOW_DELAY
    return {**chosen, "profile": "high"} if codec == "h264" else chosen  # of the others: main
