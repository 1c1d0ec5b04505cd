"""Motion JPEG, encoded on the GPU by nvJPEG through torchvision: fast on GPUs without NVENC, but files are large."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import av.error
import numpy as np
import torch
import torchvision
from av.packet import Packet
from numpy.typing import NDArray
from torchvision.io import encode_jpeg

from segmentation.errors import BackendError, OutputError, one_line
from segmentation.frames import FORMATS, FULL, Frame, FrameBatch, Memory, VideoInfo
from segmentation.gpu.errors import translate_gpu_error
from segmentation.media.muxer import Muxer
from segmentation.media.video_packet import VideoPacket
from segmentation.options.config import Config
from segmentation.options.devices import allows_cuda
from segmentation.options.rate_factor import RateFactor
from segmentation.stages.encode import Encoder
from segmentation.stages.encode.pyav import describe_stream
from segmentation.stages.frame_kernels import FRAMES

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.gpu.cuda_calls import Event
    from segmentation.stages.encode.worker_process import EncoderService

_QUALITY = RateFactor(90, 95)
_AHEAD = 2  # encoded batches that may be on their way to the host
_BT470BG = 5  # the matrix of JPEG files (JFIF), BT.601, as H.273 numbers it


class _Pictures(NamedTuple):
    """Memory for the pictures of a batch, which is used again: new views of PyTorch's give up the GIL."""

    rgb: torch.Tensor  # (N, 3, H, W) uint8
    each: list[torch.Tensor]  # (3, H, W)


class JpegEncoder(Encoder):
    """See `segmentation.stages.encode`. Pictures are 4:4:4 in 8 bits, full range. Quality is 1 to 100, 90 by default.

    Three batches overlap. The newest is converted to RGB. torchvision encodes the one before it, in one call without
    the GIL. A thread copies the files of the one before that to the host.
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
        self._info = info
        layout = FORMATS[pix_fmt]
        # On the pipeline's stream the conversion would wait for batches that are queued there.
        self._gpu = gpu.with_own_stream()
        self._kernels = self._gpu.kernels(FRAMES, layout)
        self._matrix = (info.color.yuv_to_rgb(layout.bits) * 255).ravel()
        self._quality = _QUALITY.of(config.quality)
        self._converted: tuple[_Pictures, Event, FrameBatch] | None = None  # waiting for nvJPEG
        self._free: list[_Pictures] = []
        self._copying = ThreadPoolExecutor(1, "JPEG to the host")
        self._copies: deque[Future[list[VideoPacket]]] = deque()
        self._stream = muxer.add_video("mjpeg", info, {})
        context = self._stream.codec_context
        describe_stream(context, info, muxer)
        context.colorspace, context.color_range = _BT470BG, FULL
        context.width, context.height, context.pix_fmt = info.width, info.height, "yuvj444p"
        context.thread_count = 1  # the context only describes the stream
        try:
            context.open()
        except (av.error.FFmpegError, ValueError) as exc:
            raise OutputError(f"mjpeg can't be {info.width}x{info.height} ({one_line(exc)})") from exc

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        if not allows_cuda(config.device) or not torch.cuda.is_available():
            raise BackendError("JPEG is encoded on an NVIDIA GPU only, and PyTorch finds none here")
        return f"nvJPEG, torchvision {torchvision.__version__}"

    @staticmethod
    def formats(codec: str) -> tuple[str, ...]:
        return tuple(FORMATS)

    def encode(self, batch: FrameBatch) -> list[VideoPacket]:
        pictures, ready = self._pictures(batch), self._gpu.record_event()
        self._encode_converted()
        self._converted = (pictures, ready, batch)
        return self._copied(_AHEAD)

    def flush(self) -> list[VideoPacket]:
        self._encode_converted()
        return self._copied(0)

    def close(self) -> None:
        self._converted = None
        self._copying.shutdown(cancel_futures=True)

    def _pictures(self, batch: FrameBatch) -> _Pictures:
        """Queues the conversion of a batch. Returns its pictures, among others."""
        width, height = self._info.width, self._info.height
        if batch.ready is not None:
            self._gpu.wait_event(batch.ready)
        if self._free:
            made = self._free.pop()
        else:
            rgb = self._gpu.empty((len(batch.planes[0]), 3, height, width), torch.uint8)
            made = _Pictures(rgb, list(rgb))
        chroma_height, chroma_width = batch.planes[1].shape[1:]
        size = (chroma_width, chroma_height, len(batch))
        self._kernels("to_rgb", size, *batch.planes, made.rgb, width, height, *self._matrix)
        return made

    def _encode_converted(self) -> None:
        """Encodes the pictures that were converted last, and begins to copy the files to the host."""
        if self._converted is None:
            return
        pictures, ready, batch = self._converted
        self._converted = None
        ready.synchronize()  # torchvision encodes on another stream, and returns when it has done that
        files = self._encoded(pictures.each[: len(batch)])
        self._free.append(pictures)
        self._copies.append(self._copying.submit(self._packets, files, batch.frames))

    def _copied(self, left: int) -> list[VideoPacket]:
        """Returns the packets of all batches but the last `left`, and of those among them that are ready."""
        packets: list[VideoPacket] = []
        while self._copies and (len(self._copies) > left or self._copies[0].done()):
            packets += self._copies.popleft().result()
        return packets

    def _encoded(self, images: list[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the JPEG files of pictures (3, H, W), in device memory. nvJPEG runs on the default stream."""
        with torch.cuda.stream(torch.cuda.default_stream(self._gpu.device)):
            try:
                files: list[torch.Tensor] = encode_jpeg(images, self._quality)
            except RuntimeError as exc:
                if (fault := translate_gpu_error(exc)) is not None:
                    raise fault from exc
                size = f"{self._info.width}x{self._info.height}"
                raise OutputError(f"nvJPEG can't encode {size} ({str(exc).splitlines()[0]})") from exc
        return files

    def _packets(self, files: list[torch.Tensor], frames: tuple[Frame, ...]) -> list[VideoPacket]:
        """Copies JPEG files to the host. Returns them as packets."""
        self._gpu.enter()
        with torch.cuda.stream(torch.cuda.default_stream(self._gpu.device)):
            data = torch.cat(files).cpu().numpy()  # one copy for all files
        ends = np.cumsum([len(file) for file in files])[:-1]
        return [self._packet(part, frame) for part, frame in zip(np.split(data, ends), frames, strict=True)]

    def _packet(self, data: NDArray[np.uint8], frame: Frame) -> VideoPacket:
        packet: VideoPacket = Packet(data)  # type: ignore[arg-type, assignment]
        packet.stream, packet.time_base = self._stream, self._info.time_base
        packet.pts = packet.dts = frame.pts
        packet.duration, packet.is_keyframe = frame.duration, True
        return packet
