"""Encoding with NVENC, the video encoder on NVIDIA GPUs, through FFmpeg: pictures go in from the GPU's memory.

Not run here: the GPU that this was developed on has no NVENC. Checked instead: every option against the tables of the
encoders in PyAV's wheels, the surfaces' layout by encoding the same memory on the CPU, the way from PyTorch's memory to
FFmpeg's frames on a GPU, the refusal on machines without NVENC, and the rest against FFmpeg's source. The qualities
that are taken without `--quality` are a guess at what x264 and x265 do with theirs.
"""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import logging
from typing import TYPE_CHECKING, Any, ClassVar

import av.error
import torch
from av.packet import Packet
from av.video.frame import CudaContext, VideoFrame

from segmentation.config import Config
from segmentation.errors import OutputError, one_line
from segmentation.frames import FORMATS, Frame, FrameBatch, Memory, VideoInfo
from segmentation.media.muxer import Muxer
from segmentation.stages.encode import Encoder
from segmentation.stages.encode.nvenc_support import ALWAYS, QUALITY, extras, nvenc_engine
from segmentation.stages.encode.pyav import describe_stream, round_up

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.stages.encode.worker_process import EncoderService

log = logging.getLogger(__name__)

_PRESET = "p5"
_MEMORY = "cuda"  # FFmpeg's pixel format for frames that are not in its own memory
_PITCH = 256  # bytes that a row's length is a multiple of; NVENC asks for 4


class NvencEncoder(Encoder):
    """See `segmentation.stages.encode`. 4:2:0 only, 10 bits with hevc and av1; quality as `cq`, 0 is lossless but for av1."""

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
        self._format = "nv12" if FORMATS[pix_fmt].bits == 8 else "p010le"
        self._width, self._height = round_up(info.width, 1), round_up(info.height, 1)
        if (self._width, self._height) != (info.width, info.height):
            padded = f"{info.width}x{info.height} is padded to {self._width}x{self._height}"
            log.warning("%s: %s: %s in %s has even sizes only", info.path, padded, muxer.codec, pix_fmt)
        library = f"{muxer.codec}_nvenc"
        self._what = f"{library} can't encode {self._width}x{self._height} {self._format}"
        self._stream = muxer.add_video(library, info, options(muxer.codec, config, extras(library, gpu.index)))
        context = self._stream.codec_context
        describe_stream(context, info, muxer)
        context.width, context.height, context.pix_fmt = self._width, self._height, _MEMORY
        # PyTorch's CUDA context: memory of one context is nothing in another. It has to be had as the current one, for
        # FFmpeg takes a primary context only with flags that PyTorch doesn't set.
        self._cuda = CudaContext(gpu.index, primary_ctx=False, current_ctx=True)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        return nvenc_engine(config)

    @staticmethod
    def formats(codec: str) -> tuple[str, ...]:
        return ("yuv420p",) if codec == "h264" else ("yuv420p", "yuv420p10le")

    def encode(self, batch: FrameBatch) -> list[Packet[Any]]:
        packets: list[Packet[Any]] = []
        with torch.cuda.stream(self._gpu.stream):
            y, u, v = (plane[: len(batch)] for plane in batch.planes)
            made = surfaces(y, u, v, self._width, self._height)
            # NVENC waits for no stream of ours, so the host does. From here on the surfaces belong to FFmpeg, until it
            # has their packets; then PyTorch gives their memory to later work on the same stream, when nobody reads it.
            self._gpu.stream.record_event().synchronize()
            for surface, frame in zip(made, batch.frames, strict=True):
                packets += self._packets(self._picture(surface, frame))
        return packets

    def flush(self) -> list[Packet[Any]]:
        return self._packets(None)

    def close(self) -> None:
        """The session ends with the codec context, when the stream is let go."""

    def _picture(self, surface: torch.Tensor, frame: Frame) -> VideoFrame:
        luma, chroma = surface[: self._height, : self._width], surface[self._height :, : self._width]
        # -1: nothing to wait for.
        picture = VideoFrame.from_dlpack((luma, chroma), self._format, stream=-1, cuda_context=self._cuda)
        picture.pts, picture.duration, picture.time_base = frame.pts, frame.duration, self._info.time_base
        return picture

    def _packets(self, picture: VideoFrame | None) -> list[Packet[Any]]:
        try:
            return list(self._stream.encode(picture))
        except (av.error.FFmpegError, ValueError) as exc:
            raise OutputError(f"{self._what} ({one_line(exc)}); try --encode x264") from exc


def surfaces(y: torch.Tensor, u: torch.Tensor, v: torch.Tensor, width: int, height: int) -> torch.Tensor:
    """Planes Y (N, h, w) and U, V (N, h/2, w/2) as NVENC reads them, padded to the even `width` and `height`.

    Returns (N, height * 3/2, pitch): rows of luma, then right below them rows of U and V interleaved, since NVENC is
    told only where the luma begins. uint8, or uint16 with 10 bits at the top.
    """
    deep = y.dtype == torch.uint16
    if deep:  # PyTorch does little with uint16; the bits are the same
        y, u, v = (plane.view(torch.int16) for plane in (y, u, v))
    row = _PITCH // y.element_size()
    made = y.new_empty((len(y), height * 3 // 2, -(-width // row) * row))
    luma, chroma = made[:, :height, :width], made[:, height:, :width]
    luma[:, : y.shape[1], : y.shape[2]] = y
    luma[:, y.shape[1] :, : y.shape[2]] = y[:, -1:]
    luma[:, :, y.shape[2] :] = luma[:, :, y.shape[2] - 1 : y.shape[2]]
    chroma[..., 0::2], chroma[..., 1::2] = u, v
    return made.bitwise_left_shift_(6).view(torch.uint16) if deep else made


def options(codec: str, config: Config, extra: dict[str, str]) -> dict[str, str]:
    """FFmpeg's options of the encoder; `extra` are those of `extras`."""
    chosen = {"preset": config.preset or _PRESET}
    if config.quality == 0 and codec != "av1":
        return {**chosen, "tune": "lossless", "bf": "0"}
    quality = QUALITY[codec] if config.quality is None else config.quality
    chosen |= {**ALWAYS, **extra, "cq": str(max(1, quality))}  # 0 would let NVENC choose
    return {**chosen, "profile": "high"} if codec == "h264" else chosen  # else main
